"""DescribeConfigs, IncrementalAlterConfigs and AlterConfigs of one resource, in any version."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ..protocol.api import ApiKey
from ..protocol.errors import ErrorCode
from ..protocol.messages import alter_configs as legacy
from ..protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ..protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from .check import Check
from .exchange import Connection

# Types of resources
TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
# Operations
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
# Sources
DYNAMIC_TOPIC, DYNAMIC_BROKER, DYNAMIC_DEFAULT_BROKER, STATIC_BROKER, DEFAULT = 1, 2, 3, 4, 5
DYNAMIC_CLIENT_METRICS, DYNAMIC_GROUP = 7, 8
# Types of configs, since version 3
BOOLEAN, STRING, INT, SHORT, LONG, DOUBLE, LIST, CLASS, PASSWORD = range(1, 10)

ALL_BROKERS = ""
"""The resource whose settings are the defaults of all brokers (KIP-226)."""

Change = tuple[str, int, str | None]


class Resource(NamedTuple):
    """What configs belong to."""

    type: int
    name: str


def this_broker(c: Check) -> Resource:
    """The broker at the address."""
    return Resource(BROKER, str(c.target.node_id))


def describe(
    c: Check,
    resource: Resource,
    keys: Sequence[str] | None = None,
    *,
    version: int | None = None,
    synonyms: bool = True,
    documentation: bool = False,
    to: Connection | None = None,
) -> Any:
    """The result of DescribeConfigs for one resource."""
    version = c.version(ApiKey.DESCRIBE_CONFIGS) if version is None else version
    requested = DescribeConfigsResource(
        resource_type=resource.type,
        resource_name=resource.name,
        configuration_keys=None if keys is None else list(keys),
    )
    request = DescribeConfigsRequest(
        resources=[requested], include_synonyms=synonyms, include_documentation=documentation and version >= 3
    )
    results = c.call(request, version, to=to).results
    c.equal([(each.resource_type, each.resource_name) for each in results], [tuple(resource)], "results (resources)")
    (result,) = results
    if result.error_code == ErrorCode.NONE:
        c.true(not result.error_message, "error_message", expected="none", actual=result.error_message)
    return result


def config(c: Check, resource: Resource, key: str) -> Any | None:
    """One config as it is described, with synonyms; None if it is not."""
    result = describe(c, resource, [key])
    c.error(result.error_code, ErrorCode.NONE, f"DescribeConfigs error_code of {resource.name}")
    return result.configs[0] if result.configs else None


def value(c: Check, resource: Resource, key: str) -> tuple[str | None, int] | None:
    """Value and source of one config; None if it is not described."""
    found = config(c, resource, key)
    return None if found is None else (found.value, found.config_source)


def until_value(c: Check, resource: Resource, key: str, expected: tuple[str | None, int] | None) -> None:
    """Wait for a change: a broker learns of it a moment after the response."""
    last: list[tuple[str | None, int] | None] = [None]

    def arrived() -> bool:
        last[0] = value(c, resource, key)
        return last[0] == expected

    c.until(arrived, f"{key} = {expected} (value and source) of {resource.name}")


def unchanged(c: Check, resource: Resource, key: str, expected: tuple[str | None, int] | None) -> None:
    """A config of a topic still has this value and source, also after a later change has arrived at the broker."""
    marker = c.name("marker").rsplit("-", 1)[-1]
    with c.setup("a later change"):
        c.error(alter(c, resource, ("flush.messages", SET, f"1{marker}")).error_code, ErrorCode.NONE)
        until_value(c, resource, "flush.messages", (f"1{marker}", DYNAMIC_TOPIC))
    c.equal(value(c, resource, key), expected, f"{key} (value and source) afterwards")


@contextlib.contextmanager
def restored(c: Check, resource: Resource, *keys: str) -> Iterator[None]:
    """At the end, these configs of the resource have their previous values, or are unset as before."""
    own = DYNAMIC_DEFAULT_BROKER if resource.name == ALL_BROKERS else _OWN_SOURCE[resource.type]
    with c.setup(f"describing {', '.join(keys)}"):
        result = describe(c, resource, keys)
        c.error(result.error_code, ErrorCode.NONE, "DescribeConfigs error_code")
    before = {each.name: each.value for each in result.configs if each.config_source == own}
    try:
        yield
    finally:
        alter(c, resource, *((key, SET if key in before else DELETE, before.get(key)) for key in keys))


_OWN_SOURCE = {
    TOPIC: DYNAMIC_TOPIC,
    BROKER: DYNAMIC_BROKER,
    CLIENT_METRICS: DYNAMIC_CLIENT_METRICS,
    GROUP: DYNAMIC_GROUP,
}


def incremental_resource(resource: Resource, *changes: Change) -> AlterConfigsResource:
    configs = [AlterableConfig(name=key, config_operation=operation, value=value) for key, operation, value in changes]
    return AlterConfigsResource(resource_type=resource.type, resource_name=resource.name, configs=configs)


def alter(
    c: Check,
    resource: Resource,
    *changes: Change,
    version: int | None = None,
    validate_only: bool = False,
    to: Connection | None = None,
) -> Any:
    """The response to IncrementalAlterConfigs of one resource."""
    request = IncrementalAlterConfigsRequest(
        resources=[incremental_resource(resource, *changes)], validate_only=validate_only
    )
    return _only(c, resource, c.call(request, version, to=to).responses)


def replace(
    c: Check,
    resource: Resource,
    configs: Mapping[str, str | None],
    *,
    version: int | None = None,
    validate_only: bool = False,
) -> Any:
    """The response to AlterConfigs of one resource, which replaces all of its configs."""
    wanted = [legacy.AlterableConfig(name=key, value=value) for key, value in configs.items()]
    named = legacy.AlterConfigsResource(resource_type=resource.type, resource_name=resource.name, configs=wanted)
    request = legacy.AlterConfigsRequest(resources=[named], validate_only=validate_only)
    return _only(c, resource, c.call(request, version).responses)


def _only(c: Check, resource: Resource, responses: Sequence[Any]) -> Any:
    c.equal(
        [(each.resource_type, each.resource_name) for each in responses], [tuple(resource)], "responses (resources)"
    )
    return responses[0]

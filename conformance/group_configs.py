"""Configs of groups (KIP-848): resources of type GROUP, and the configs of the broker behind them."""

from __future__ import annotations

from typing import Any

from ..protocol.api import ApiKey
from ..protocol.errors import ErrorCode
from ..protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ..protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from . import configs as k
from .case import needs
from .check import Check
from .configs import Resource
from .exchange import Connection

DESCRIBE = needs(ApiKey.DESCRIBE_CONFIGS, 4)
ALTER = (*DESCRIBE, *needs(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1))
SESSION = "consumer.session.timeout.ms"
INTERVAL = "consumer.heartbeat.interval.ms"
ASSIGNMENT = "consumer.assignment.interval.ms"
RESET = "share.auto.offset.reset"
SOURCE = "KIP-848: Group Configurations"


def group(c: Check) -> Resource:
    """A group that does not exist; what a case sets is deleted at its end, also if it fails."""
    resource = Resource(k.GROUP, c.group())

    def delete(wire: Connection) -> None:
        requested = DescribeConfigsResource(resource_type=resource.type, resource_name=resource.name)
        (result,) = wire.call(DescribeConfigsRequest(resources=[requested]), 4).results
        changes = [(each.name, k.DELETE, None) for each in result.configs if each.config_source == k.DYNAMIC_GROUP]
        if changes:
            request = IncrementalAlterConfigsRequest(resources=[k.incremental_resource(resource, *changes)])
            wire.call(request, c.version(ApiKey.INCREMENTAL_ALTER_CONFIGS))

    c.at_end(delete)
    return resource


def described(c: Check, resource: Resource, key: str) -> Any:
    """A config, which must exist."""
    found = k.config(c, resource, key)
    c.true(found is not None, f"{key} of {resource.name}", expected="a config", actual=found)
    return found


def broker_value(c: Check, key: str) -> Any:
    """The broker's config of this name, as it is described."""
    return described(c, k.this_broker(c), key)


def allowed_session(c: Check) -> str:
    """A session timeout that the broker allows and that is not its default."""
    highest = broker_value(c, "group.consumer.max.session.timeout.ms").value
    default = broker_value(c, f"group.{SESSION}").value
    return str(int(highest) - (highest == default))


def is_config(c: Check, actual: int, group_id: str, key: str, what: str) -> None:
    """Compare a number in a response with the group's config; positive is enough if the server does not describe it."""
    c.true(actual > 0, what, expected="a positive number", actual=actual)
    if c.target.supports(ApiKey.DESCRIBE_CONFIGS, 4):
        found = k.describe(c, Resource(k.GROUP, group_id), [key])
        if found.error_code == ErrorCode.NONE and found.configs:
            c.equal(actual, int(found.configs[0].value), f"{what}, which is the group's {key}")

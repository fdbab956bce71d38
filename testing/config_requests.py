"""Requests about configs: change and describe one resource at a time."""

from collections.abc import Mapping, Sequence
from typing import Any

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages import alter_configs as legacy
from moldau.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from moldau.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from moldau.protocol.messages.metadata import MetadataRequest
from moldau.testing.wire import WireClient

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND = 0, 1, 2
ALL_BROKERS = ""

Change = tuple[str, int, str | None]


def node_id(wire: WireClient) -> str:
    """The id of the only broker, as a resource name."""
    (broker,) = wire.call(MetadataRequest(topics=[]), 12).brokers
    return str(broker.node_id)


def answer(wire: WireClient, kind: int, name: str, *changes: Change, validate_only: bool = False) -> Any:
    """The response to an IncrementalAlterConfigs of one resource."""
    configs = [AlterableConfig(name=key, config_operation=operation, value=value) for key, operation, value in changes]
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    (response,) = wire.call(
        IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only), 1
    ).responses
    return response


def alter(wire: WireClient, kind: int, name: str, *changes: Change, validate_only: bool = False) -> str:
    """The name of the error code of an IncrementalAlterConfigs."""
    return ErrorCode(answer(wire, kind, name, *changes, validate_only=validate_only).error_code).name


def replace(wire: WireClient, kind: int, name: str, configs: Mapping[str, str], *, validate_only: bool = False) -> str:
    """The name of the error code of an AlterConfigs."""
    wanted = [legacy.AlterableConfig(name=key, value=value) for key, value in configs.items()]
    resource = legacy.AlterConfigsResource(resource_type=kind, resource_name=name, configs=wanted)
    (response,) = wire.call(legacy.AlterConfigsRequest(resources=[resource], validate_only=validate_only), 2).responses
    return ErrorCode(response.error_code).name


def describe(wire: WireClient, kind: int, name: str, keys: Sequence[str] | None = None) -> Any:
    """The result of describing one resource, with synonyms."""
    requested = DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=None if keys is None else list(keys)
    )
    (result,) = wire.call(DescribeConfigsRequest(resources=[requested], include_synonyms=True), 4).results
    return result


Described = tuple[str | None, int, int, bool, bool, list[tuple[str, str | None, int]]]


def described(wire: WireClient, kind: int, name: str, key: str) -> Described | None:
    """Value, source, type, read-only, sensitive and synonyms of one config; None if it is not described."""
    found = describe(wire, kind, name, [key]).configs
    if not found:
        return None
    (config,) = found
    (config,) = found
    return (
        config.value,
        config.config_source,
        config.config_type,
        config.read_only,
        config.is_sensitive,
        [(synonym.name, synonym.value, synonym.source) for synonym in config.synonyms],
    )

"""AlterConfigs (33) and IncrementalAlterConfigs (44): configs of topics, of a broker, of all brokers, of groups.

* Each resource succeeds or fails by itself, whole: one bad key changes nothing of its resource.
* A broker is named by its id, and only this one can be named; the empty name stands for all brokers (KIP-226).
* What is checked is the state after the change: every value, and rules between values.
* AlterConfigs replaces all that is set for the resource. IncrementalAlterConfigs changes single keys (KIP-339): SET,
  DELETE, and for lists APPEND and SUBTRACT, which start from the default where nothing is set.
* A group need not exist to have configs: they wait for it.
* `validate_only` answers the same and writes nothing.
* Configs of client metrics and log levels are not supported, which is the server's lack and not the client's mistake:
  UNSUPPORTED_VERSION. Types that Kafka does not have are INVALID_REQUEST.
* With the feature eligible.leader.replicas.version, min.insync.replicas of all brokers stays, and no single broker has
  another (KIP-966).

A value that does not change makes no ConfigRecord, except for brokers, where the record makes them load files that a
value names once more (KAFKA-14136).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from ..config import broker as broker_settings
from ..config import group as group_settings
from ..config import topic as topic_settings
from ..config.definition import ConfigError, ConfigType, Setting, format_value
from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.messages import alter_configs as legacy
from ..protocol.messages import incremental_alter_configs as incremental
from .features import ELIGIBLE_LEADER_REPLICAS_VERSION
from .image import (
    BROKER_LOGGER_RESOURCE,
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
    ConfigResource,
)
from .outcome import NO_ERROR, ApiError, Outcome, Versioned, check_record_count
from .records import ClearElrRecord, ConfigRecord
from .topic_names import validate_topic_name

if TYPE_CHECKING:
    from .context import ControllerContext
    from .image import MetadataImage

SET: Final = 0
DELETE: Final = 1
APPEND: Final = 2
SUBTRACT: Final = 3
_OPERATIONS: Final = {SET: "SET", DELETE: "DELETE", APPEND: "APPEND", SUBTRACT: "SUBTRACT"}

_UNSUPPORTED_RESOURCES: Final = {BROKER_LOGGER_RESOURCE: "BROKER_LOGGER", CLIENT_METRICS_RESOURCE: "CLIENT_METRICS"}

MAX_VALUE_BYTES: Final = 0x7FFF
"""The longest string of a ConfigRecord; a request cannot hold a longer one either, but APPEND can make one."""


class _Operation(NamedTuple):
    name: str
    operation: int
    value: str | None


def alter_configs(
    image: MetadataImage, request: legacy.AlterConfigsRequest, context: ControllerContext
) -> Outcome[legacy.AlterConfigsResponse]:
    """Decide on an AlterConfigsRequest."""

    def wanted(resource: ConfigResource, operations: list[_Operation]) -> dict[str, str | None]:
        changes: dict[str, str | None] = {operation.name: operation.value for operation in operations}
        return dict.fromkeys(image.config(*resource)) | changes

    resources = [
        (
            ConfigResource(resource.resource_type, resource.resource_name),
            [_Operation(c.name, SET, c.value) for c in resource.configs],
        )
        for resource in request.resources
    ]
    errors, records = _alter(image, resources, wanted, context)
    responses = [
        legacy.AlterConfigsResourceResponse(
            error_code=error.code, error_message=error.message, resource_type=resource.type, resource_name=resource.name
        )
        for (resource, _), error in zip(resources, errors, strict=True)
    ]
    return Outcome(legacy.AlterConfigsResponse(responses=responses), [] if request.validate_only else records)


def incremental_alter_configs(
    image: MetadataImage, request: incremental.IncrementalAlterConfigsRequest, context: ControllerContext
) -> Outcome[incremental.IncrementalAlterConfigsResponse]:
    """Decide on an IncrementalAlterConfigsRequest."""

    def wanted(resource: ConfigResource, operations: list[_Operation]) -> dict[str, str | None]:
        present = image.config(*resource)
        return {operation.name: _operate(resource, operation, present.get(operation.name)) for operation in operations}

    resources = [
        (
            ConfigResource(resource.resource_type, resource.resource_name),
            [_Operation(config.name, config.config_operation, config.value) for config in resource.configs],
        )
        for resource in request.resources
    ]
    errors, records = _alter(image, resources, wanted, context)
    responses = [
        incremental.AlterConfigsResourceResponse(
            error_code=error.code, error_message=error.message, resource_type=resource.type, resource_name=resource.name
        )
        for (resource, _), error in zip(resources, errors, strict=True)
    ]
    response = incremental.IncrementalAlterConfigsResponse(responses=responses)
    return Outcome(response, [] if request.validate_only else records)


def _alter(
    image: MetadataImage,
    resources: list[tuple[ConfigResource, list[_Operation]]],
    wanted: Callable[[ConfigResource, list[_Operation]], dict[str, str | None]],
    context: ControllerContext,
) -> tuple[list[ApiError], list[Versioned]]:
    """The error of each resource, and the records of those that have none.

    `wanted` gives the value that each touched key of a resource is to have, None for no value.
    """
    counts = Counter(resource for resource, _ in resources)
    errors: list[ApiError] = []
    records: list[Versioned] = []
    for resource, operations in resources:
        try:
            if counts[resource] > 1:
                raise _invalid_request("The request has this resource more than once.")
            _check_form(resource, operations, context)
            changes = wanted(resource, operations)
            _check_common_min_insync_replicas(image, resource, changes)
            _check_state(image, resource, changes, context)
        except KafkaError as error:
            errors.append(ApiError.of(error))
        else:
            errors.append(NO_ERROR)
            records += _config_records(image, resource, changes)
    check_record_count(records)
    return errors, records


def _check_form(resource: ConfigResource, operations: list[_Operation], context: ControllerContext) -> None:
    """Raise for a request that no state could make right."""
    names = Counter(operation.name for operation in operations)
    repeated = [name for name, count in names.items() if count > 1]
    if repeated:
        raise _invalid_request(f"These keys appear more than once: {', '.join(repeated)}")
    nulls = [operation.name for operation in operations if operation.operation != DELETE and operation.value is None]
    if nulls:
        raise _invalid_request(f"These keys have no value: {', '.join(nulls)}")
    for operation in operations:
        if operation.operation not in _OPERATIONS:
            raise _invalid_request(f"There is no operation {operation.operation} on a config")
    if resource.type == BROKER_RESOURCE:
        if resource.name:
            _check_broker_name(resource.name, context.node_id)
    elif resource.type not in (TOPIC_RESOURCE, GROUP_RESOURCE):
        raise unsupported_resource(resource.type)


def unsupported_resource(resource_type: int) -> KafkaError:
    """The error of a type of resource that has no configs here."""
    name = _UNSUPPORTED_RESOURCES.get(resource_type)
    if name is None:
        return _invalid_request(f"There is no type {resource_type} of resources that have configs")
    return KafkaError(
        ErrorCode.UNSUPPORTED_VERSION,
        f"This server does not support configs of {name} resources (type {resource_type})",
    )


def _check_broker_name(name: str, node_id: int) -> None:
    if name != str(node_id):
        raise _invalid_request(f"This is broker {node_id}: configs of broker {name!r} have to be sent there")


def _operate(resource: ConfigResource, operation: _Operation, present: str | None) -> str | None:
    """The value that a key has after an operation."""
    if operation.operation == DELETE:
        return None
    assert operation.value is not None
    if operation.operation == SET:
        return operation.value
    setting = _setting(resource, operation.name)
    if setting is None or setting.type is not ConfigType.LIST:
        raise _not_a_list(resource, operation, setting)
    entries = _split(format_value(setting.default) if present is None else present)
    for entry in _split(operation.value):
        if operation.operation == SUBTRACT:
            if entry in entries:
                entries.remove(entry)
        elif entry not in entries:
            entries.append(entry)
    return ",".join(entries)


def _setting(resource: ConfigResource, name: str) -> Setting | None:
    if resource.type == TOPIC_RESOURCE:
        return topic_settings.SETTINGS.get(name)
    if resource.type == GROUP_RESOURCE:
        return group_settings.SETTINGS.get(name)
    return broker_settings.SETTINGS.get(name) or broker_settings.DYNAMIC_ONLY.get(name)


def _not_a_list(resource: ConfigResource, operation: _Operation, setting: Setting | None) -> KafkaError:
    kind = _OPERATIONS[operation.operation]
    if setting is None and resource.type == BROKER_RESOURCE:
        message = f"{kind} needs a list, and there is no config {operation.name}"
    else:
        message = f"{kind} needs a list, and {operation.name} is none"
    return KafkaError(ErrorCode.INVALID_CONFIG, message)


def _split(value: str | None) -> list[str]:
    return [entry for entry in (value or "").split(",") if entry]


def _check_state(
    image: MetadataImage, resource: ConfigResource, changes: Mapping[str, str | None], context: ControllerContext
) -> None:
    """Raise unless the resource exists and may have the configs that it would have."""
    state = {**image.config(*resource), **changes}
    configs = {name: value for name, value in state.items() if value is not None}
    if any(len(value.encode()) > MAX_VALUE_BYTES for value in configs.values()):
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"A value would have more than {MAX_VALUE_BYTES} bytes",
        )
    if resource.type == BROKER_RESOURCE:
        try:
            broker_settings.validate_dynamic_configs(configs, per_broker=bool(resource.name))
        except ConfigError as error:
            # Kafka's answer to a bad broker config (KAFKA-13609); for a topic it is INVALID_CONFIG.
            raise _invalid_request(error.message) from None
        return
    if resource.type == GROUP_RESOURCE:
        if not resource.name:
            raise _invalid_request("Groups have no common configs: a group has to be named")
        context.check_group_configs(image, configs)
        return
    if not resource.name:
        raise _invalid_request("Topics have no common configs: a topic has to be named")
    validate_topic_name(resource.name)
    context.check_topic_configs(image, configs)
    if resource.name not in image.topics_by_name:
        message = f"There is no topic '{resource.name}'"
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)


def _check_common_min_insync_replicas(
    image: MetadataImage, resource: ConfigResource, changes: Mapping[str, str | None]
) -> None:
    """Raise where eligible leader replicas need the one min.insync.replicas of all brokers as it is."""
    name = "min.insync.replicas"
    if (
        resource.type != BROKER_RESOURCE
        or name not in changes
        or not image.features.get(ELIGIBLE_LEADER_REPLICAS_VERSION)
    ):
        return
    if resource.name:
        message = f"{name} of a single broker cannot be set while {ELIGIBLE_LEADER_REPLICAS_VERSION} is 1"
    elif changes[name] is None:
        message = f"{name} of all brokers cannot be deleted while {ELIGIBLE_LEADER_REPLICAS_VERSION} is 1"
    else:
        return
    raise KafkaError(ErrorCode.INVALID_CONFIG, message)


def _config_records(
    image: MetadataImage, resource: ConfigResource, changes: Mapping[str, str | None]
) -> Iterable[Versioned]:
    present = image.config(*resource)
    for name, value in changes.items():
        if value == present.get(name) and resource.type != BROKER_RESOURCE:
            continue
        yield Versioned(ConfigRecord(resource_type=resource.type, resource_name=resource.name, name=name, value=value))
        if name == "min.insync.replicas" and image.features.get(ELIGIBLE_LEADER_REPLICAS_VERSION):
            # Who is eligible was decided by the old minimum (KIP-966).
            yield Versioned(ClearElrRecord(topic_name=resource.name if resource.type == TOPIC_RESOURCE else ""))


def _invalid_request(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)

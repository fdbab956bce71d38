"""AlterConfigs (33) and IncrementalAlterConfigs (44): configs of topics, of a broker, of all brokers, of groups, of
subscriptions of client metrics.

* Each resource succeeds or fails separately and completely: one invalid key leaves its resource unchanged.
* A broker is named by its id, and checks its configs itself before it forwards them to a remote controller
  (`check_before_forwarding`). The empty name means all brokers (KIP-226).
* The state after the change is validated: every value, and rules between values.
* AlterConfigs replaces all configs of the resource. IncrementalAlterConfigs changes single keys (KIP-339): SET,
  DELETE, and for lists APPEND and SUBTRACT, which start from the default if the key is not set.
* A group need not exist to have configs: they apply when the group is created.
* `validate_only` returns the same response and writes nothing.
* The lists of a subscription of client metrics cannot be changed with APPEND and SUBTRACT, as in Apache Kafka.
* Log levels are not supported. The error is UNSUPPORTED_VERSION, because the request is valid. Types that Kafka does
  not have are INVALID_REQUEST.
* With the feature eligible.leader.replicas.version, min.insync.replicas of all brokers cannot be deleted, and no single
  broker can have its own value (KIP-966).

An unchanged value writes no ConfigRecord, except for brokers, where the record makes them reload the files that the
value names (KAFKA-14136).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from ..config import broker as broker_settings
from ..config import group as group_settings
from ..config import topic as topic_settings
from ..config.broker_config import without_values
from ..config.checks import cordoned_problem
from ..config.definition import ConfigError, ConfigType, Setting, format_value
from ..config.providers import has_reference
from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.messages import alter_configs as legacy
from ..protocol.messages import incremental_alter_configs as incremental
from ..protocol.steps import Steps, completed
from .features import CORDONED_DIRECTORIES_SINCE, ELIGIBLE_LEADER_REPLICAS_VERSION
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
    from ..config.broker_config import BrokerConfig
    from .context import ControllerContext
    from .image import MetadataImage

SET: Final = 0
DELETE: Final = 1
APPEND: Final = 2
SUBTRACT: Final = 3
_OPERATIONS: Final = {SET: "SET", DELETE: "DELETE", APPEND: "APPEND", SUBTRACT: "SUBTRACT"}

_UNSUPPORTED_RESOURCES: Final = {BROKER_LOGGER_RESOURCE: "BROKER_LOGGER"}

_CORDONED: Final = "cordoned.log.dirs"

MAX_VALUE_BYTES: Final = 0x7FFF
"""The longest string of a ConfigRecord. A request cannot hold a longer string, but APPEND can produce one."""

R = TypeVar("R")


class _Operation(NamedTuple):
    name: str
    operation: int
    value: str | None


def alter_configs(
    image: MetadataImage, request: legacy.AlterConfigsRequest, context: ControllerContext
) -> Outcome[legacy.AlterConfigsResponse]:
    """Decide on an AlterConfigsRequest."""
    return completed(alter_configs_in_steps(image, request, context))


def alter_configs_in_steps(
    image: MetadataImage, request: legacy.AlterConfigsRequest, context: ControllerContext
) -> Steps[Outcome[legacy.AlterConfigsResponse]]:
    """The same in steps."""
    resources, wanted = yield from _parse(image, request)
    errors, records = yield from _alter(image, resources, wanted, context)
    responses = yield from _responses(legacy.AlterConfigsResourceResponse, resources, errors)
    return Outcome(legacy.AlterConfigsResponse(responses=responses), [] if request.validate_only else records)


def incremental_alter_configs(
    image: MetadataImage, request: incremental.IncrementalAlterConfigsRequest, context: ControllerContext
) -> Outcome[incremental.IncrementalAlterConfigsResponse]:
    """Decide on an IncrementalAlterConfigsRequest."""
    return completed(incremental_alter_configs_in_steps(image, request, context))


def incremental_alter_configs_in_steps(
    image: MetadataImage, request: incremental.IncrementalAlterConfigsRequest, context: ControllerContext
) -> Steps[Outcome[incremental.IncrementalAlterConfigsResponse]]:
    """The same in steps."""
    resources, wanted = yield from _parse(image, request)
    errors, records = yield from _alter(image, resources, wanted, context)
    responses = yield from _responses(incremental.AlterConfigsResourceResponse, resources, errors)
    response = incremental.IncrementalAlterConfigsResponse(responses=responses)
    return Outcome(response, [] if request.validate_only else records)


def check_before_forwarding(
    image: MetadataImage,
    request: legacy.AlterConfigsRequest | incremental.IncrementalAlterConfigsRequest,
    context: ControllerContext,
) -> Steps[list[ApiError]]:
    """The errors of resources that a broker must not forward to a remote controller, in the order of the request.

    As in Apache Kafka, such a controller leaves to the broker what is invalid in every state, and the configs of
    brokers, because only the broker knows them.
    """
    resources, wanted = yield from _parse(image, request)
    counts = Counter(resource for resource, _ in resources)
    errors: list[ApiError] = []
    for resource, operations in resources:
        try:
            _check_once(resource, counts)
            _check_form(resource, operations)
            if resource.type == BROKER_RESOURCE:
                if resource.name not in ("", str(context.node_id)):
                    raise _other_broker(resource.name, context.node_id)
                _check_state(image, resource, wanted(resource, operations), context)
        except KafkaError as error:
            errors.append(ApiError.of(error))
        else:
            errors.append(NO_ERROR)
        yield 1
    return errors


def configs_after(
    image: MetadataImage,
    request: legacy.AlterConfigsRequest | incremental.IncrementalAlterConfigsRequest,
    resource: ConfigResource,
) -> Steps[tuple[frozenset[str], dict[str, str]] | None]:
    """The names that a request changes of a resource, and all its configs afterwards.

    None if the request does not change the resource, or if its form is refused.
    """
    resources, wanted = yield from _parse(image, request)
    found = [operations for each, operations in resources if each == resource]
    if len(found) != 1:
        return None
    try:
        _check_form(resource, found[0])
        changes = wanted(resource, found[0])
    except KafkaError:
        return None  # the same error is the response to the request
    state = {**image.config(*resource), **changes}
    return frozenset(changes), {name: value for name, value in state.items() if value is not None}


_Resources = list[tuple[ConfigResource, list[_Operation]]]
_Wanted = Callable[[ConfigResource, list[_Operation]], dict[str, str | None]]


def _parse(
    image: MetadataImage, request: legacy.AlterConfigsRequest | incremental.IncrementalAlterConfigsRequest
) -> Steps[tuple[_Resources, _Wanted]]:
    """The resources with their operations, and a function that returns the new value of each changed key."""
    resources: _Resources = []
    if isinstance(request, legacy.AlterConfigsRequest):
        for replaced in request.resources:
            operations = [_Operation(config.name, SET, config.value) for config in replaced.configs]
            resources.append((ConfigResource(replaced.resource_type, replaced.resource_name), operations))
            yield 1
        return resources, partial(_replaced, image)
    for changed in request.resources:
        operations = [_Operation(config.name, config.config_operation, config.value) for config in changed.configs]
        resources.append((ConfigResource(changed.resource_type, changed.resource_name), operations))
        yield 1
    return resources, partial(_changed, image)


def _replaced(image: MetadataImage, resource: ConfigResource, operations: list[_Operation]) -> dict[str, str | None]:
    changes: dict[str, str | None] = {operation.name: operation.value for operation in operations}
    return dict.fromkeys(image.config(*resource)) | changes


def _changed(image: MetadataImage, resource: ConfigResource, operations: list[_Operation]) -> dict[str, str | None]:
    present = image.config(*resource)
    return {operation.name: _operate(resource, operation, present.get(operation.name)) for operation in operations}


def _responses(
    make: Callable[..., R], resources: list[tuple[ConfigResource, list[_Operation]]], errors: list[ApiError]
) -> Steps[list[R]]:
    responses = []
    for (resource, _), error in zip(resources, errors, strict=True):
        responses.append(
            make(
                error_code=error.code,
                error_message=error.message,
                resource_type=resource.type,
                resource_name=resource.name,
            )
        )
        yield 1
    return responses


def _alter(
    image: MetadataImage,
    resources: _Resources,
    wanted: _Wanted,
    context: ControllerContext,
) -> Steps[tuple[list[ApiError], list[Versioned]]]:
    """The error of each resource, and the records of those that have none.

    `wanted` returns the new value of each changed key of a resource; None means no value.
    """
    counts = Counter(resource for resource, _ in resources)
    errors: list[ApiError] = []
    records: list[Versioned] = []
    for resource, operations in resources:
        try:
            _check_once(resource, counts)
            _check_form(resource, operations)
            if resource.type == BROKER_RESOURCE and resource.name:
                _check_broker(image, resource.name, context.node_id)
            changes = wanted(resource, operations)
            _check_cordoning_supported(image, resource, changes)
            _check_state(image, resource, changes, context)
            # As in Apache Kafka, whose brokers check the other configs before the controller does this.
            _check_common_min_insync_replicas(image, resource, changes)
        except KafkaError as error:
            errors.append(ApiError.of(error))
        else:
            errors.append(NO_ERROR)
            records += _config_records(image, resource, changes)
        yield 1
    check_record_count(records)
    return errors, records


def _check_once(resource: ConfigResource, counts: Mapping[ConfigResource, int]) -> None:
    if counts[resource] > 1:
        raise _invalid_request("Duplicate resource in the request.")


def _check_form(resource: ConfigResource, operations: list[_Operation]) -> None:
    """Raise for a request that is invalid in every state."""
    names = Counter(operation.name for operation in operations)
    repeated = [name for name, count in names.items() if count > 1]
    if repeated:
        raise _invalid_request(f"Duplicate config keys: {', '.join(repeated)}")
    nulls = [operation.name for operation in operations if operation.operation != DELETE and operation.value is None]
    if nulls:
        raise _invalid_request(f"Config keys without a value: {', '.join(nulls)}")
    for operation in operations:
        if operation.operation not in _OPERATIONS:
            raise _invalid_request(f"Unknown config operation {operation.operation}")
    if resource.type not in (BROKER_RESOURCE, TOPIC_RESOURCE, GROUP_RESOURCE, CLIENT_METRICS_RESOURCE):
        raise unsupported_resource(resource.type)


def unsupported_resource(resource_type: int) -> KafkaError:
    """The error for a resource type that has no configs here."""
    name = _UNSUPPORTED_RESOURCES.get(resource_type)
    if name is None:
        return _invalid_request(f"Unknown resource type {resource_type}")
    return KafkaError(
        ErrorCode.UNSUPPORTED_VERSION,
        f"This server does not support configs of {name} resources (type {resource_type})",
    )


def _check_broker(image: MetadataImage, name: str, node_id: int) -> None:
    """Raise unless this is a broker of the cluster. The other brokers have checked that the name is their own."""
    if name == str(node_id) or any(name == str(broker_id) for broker_id in image.brokers):
        return
    if image.brokers.keys() - {node_id}:
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"There is no broker {name!r}")
    raise _other_broker(name, node_id)


def _other_broker(name: str, node_id: int) -> KafkaError:
    return _invalid_request(f"This is broker {node_id}; send configs of broker {name!r} to that broker")


def _operate(resource: ConfigResource, operation: _Operation, present: str | None) -> str | None:
    """The value of a key after an operation."""
    if operation.operation == DELETE:
        return None
    assert operation.value is not None
    if operation.operation == SET:
        return operation.value
    setting = _setting(resource, operation.name)
    if setting is None or setting.type is not ConfigType.LIST:
        raise _not_a_list(resource, operation, setting)
    before = (format_value(setting.default) or "") if present is None else present
    entries = _split(before) if before else []
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
    if resource.type == CLIENT_METRICS_RESOURCE:
        return None  # Apache Kafka refuses APPEND and SUBTRACT for its lists
    return broker_settings.SETTINGS.get(name) or broker_settings.DYNAMIC_ONLY.get(name)


def _not_a_list(resource: ConfigResource, operation: _Operation, setting: Setting | None) -> KafkaError:
    kind = _OPERATIONS[operation.operation]
    if setting is None and resource.type == BROKER_RESOURCE:
        message = f"{kind} requires a list, but there is no config {operation.name}"
    else:
        message = f"{kind} requires a list, but {operation.name} is not a list"
    return KafkaError(ErrorCode.INVALID_CONFIG, message)


def _split(value: str) -> list[str]:
    """The entries as Java's `split` returns them: empty entries count, except at the end after a comma."""
    entries = value.split(",")
    while len(entries) > 1 and not entries[-1]:
        entries.pop()
    return [] if value and entries == [""] else entries


def _check_state(
    image: MetadataImage, resource: ConfigResource, changes: Mapping[str, str | None], context: ControllerContext
) -> None:
    """Raise unless the resource exists and its configs are valid after the changes."""
    state = {**image.config(*resource), **changes}
    configs = {name: value for name, value in state.items() if value is not None}
    if any(len(value.encode()) > MAX_VALUE_BYTES for value in configs.values()):
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"The value would exceed {MAX_VALUE_BYTES} bytes",
        )
    if resource.type == BROKER_RESOURCE:
        written = configs
        try:
            if resource.name in ("", str(context.node_id)):
                configs = context.config.replaced(configs)
            else:  # the other broker has checked the values that come from its providers
                written = configs = {name: value for name, value in configs.items() if not has_reference(value)}
            broker_settings.validate_dynamic_configs(configs, per_broker=bool(resource.name))
        except ConfigError as error:
            # Kafka's error for an invalid broker config (KAFKA-13609); for a topic it is INVALID_CONFIG.
            raise _invalid_request(without_values(error.message, written, configs)) from None
        if resource.name == str(context.node_id):
            _check_cordoned(changes, context.config)
        return
    if resource.type == GROUP_RESOURCE:
        if not resource.name:
            raise _invalid_request("There are no default configs for groups; specify a group id")
        context.check_group_configs(image, configs)
        return
    if resource.type == CLIENT_METRICS_RESOURCE:
        if not resource.name:
            raise _invalid_request("There are no default configs for client metrics; specify a subscription")
        _check_client_metrics(configs)
        return
    if not resource.name:
        raise _invalid_request("There are no default configs for topics; specify a topic name")
    validate_topic_name(resource.name)
    context.check_topic_configs(image, configs)
    if resource.name not in image.topics_by_name:
        message = f"There is no topic '{resource.name}'"
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)


def _check_client_metrics(configs: Mapping[str, str]) -> None:
    from ..config import client_metrics  # the other requests do not need it

    try:
        client_metrics.validate_client_metrics_configs(configs)
    except client_metrics.ClientMetricsRequestError as error:
        raise _invalid_request(error.message) from None
    except ConfigError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, error.message) from None


def _check_common_min_insync_replicas(
    image: MetadataImage, resource: ConfigResource, changes: Mapping[str, str | None]
) -> None:
    """With eligible leader replicas, raise if min.insync.replicas of all brokers is deleted, or that of one is set."""
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


def _check_cordoning_supported(
    image: MetadataImage, resource: ConfigResource, changes: Mapping[str, str | None]
) -> None:
    if (
        resource.type == BROKER_RESOURCE
        and _CORDONED in changes
        and image.metadata_version < CORDONED_DIRECTORIES_SINCE
    ):
        message = f"{_CORDONED} requires the metadata.version 4.3-IV0 ({CORDONED_DIRECTORIES_SINCE}) or later"
        raise KafkaError(ErrorCode.INVALID_CONFIG, message)


def _check_cordoned(changes: Mapping[str, str | None], config: BrokerConfig) -> None:
    """Raise unless the directories of the new value exist."""
    text = changes.get(_CORDONED)
    if text is None:
        return
    problem = cordoned_problem([path for path in map(str.strip, text.split(",")) if path], config)
    if problem is not None:
        raise _invalid_request(f"Invalid value {text} for {_CORDONED}: {problem}")


def _config_records(
    image: MetadataImage, resource: ConfigResource, changes: Mapping[str, str | None]
) -> Iterable[Versioned]:
    present = image.config(*resource)
    for name, value in changes.items():
        if value == present.get(name) and resource.type != BROKER_RESOURCE:
            continue
        yield Versioned(ConfigRecord(resource_type=resource.type, resource_name=resource.name, name=name, value=value))
        if name == "min.insync.replicas" and image.features.get(ELIGIBLE_LEADER_REPLICAS_VERSION):
            # The eligible replicas were chosen with the old minimum (KIP-966).
            yield Versioned(ClearElrRecord(topic_name=resource.name if resource.type == TOPIC_RESOURCE else ""))


def _invalid_request(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)

"""IncrementalAlterConfigs of topics: set, delete, append, subtract (KIP-339)."""

from __future__ import annotations

from ...protocol.api import ApiKey
from ...protocol.errors import ErrorCode
from ...protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from .. import configs as k
from ..case import Layer, Level, case, needs, versions_of
from ..check import Check
from .configs_describe import new_topic

ALTER = needs(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, ApiKey.DESCRIBE_CONFIGS, 4)
VERSIONS = versions_of(ApiKey.INCREMENTAL_ALTER_CONFIGS)


@case(
    "configs.incremental.exchange",
    "configs are set and deleted, and others keep their values",
    source="KIP-339",
    layer=Layer.WIRE,
    versions=VERSIONS,
)
def exchange(c: Check, version: int) -> None:
    """Sends: IncrementalAlterConfigs that sets `segment.ms` and deletes `retention.ms` of a topic, which also has
    `max.message.bytes`.

    Expects: no error, no message, the type and name of the topic; then DescribeConfigs with the new value, the
    inherited one, and the one that the request does not name.

    Why: this is how tools change one config without knowing the others.
    """
    resource = new_topic(c, retention_ms="777", max_message_bytes="5000")
    result = k.alter(c, resource, ("segment.ms", k.SET, "888000"), ("retention.ms", k.DELETE, None), version=version)
    c.error(result.error_code, ErrorCode.NONE)
    c.true(not result.error_message, "error_message", expected="none", actual=result.error_message)
    k.until_value(c, resource, "segment.ms", ("888000", k.DYNAMIC_TOPIC))
    found = k.config(c, resource, "retention.ms")
    c.true(
        found is not None and found.config_source > k.DYNAMIC_TOPIC,
        "config_source of the deleted retention.ms",
        expected="2 to 5",
        actual=found,
    )
    other = k.value(c, resource, "max.message.bytes")
    c.equal(other, ("5000", k.DYNAMIC_TOPIC), "max.message.bytes, which the request does not name (value and source)")


@case(
    "configs.incremental.list",
    "entries are appended to a list and subtracted from it",
    source="KIP-339",
    layer=Layer.WIRE,
    versions=VERSIONS,
)
def list_entries(c: Check, version: int) -> None:
    """Sends: IncrementalAlterConfigs with APPEND of `compact` to `cleanup.policy=delete`, then SUBTRACT of `delete`.

    Expects: `delete,compact`, then `compact`, in DescribeConfigs.

    Why: a program that adds its entry to a list must not remove those of other programs.
    """
    resource = new_topic(c, cleanup_policy="delete")
    result = k.alter(c, resource, ("cleanup.policy", k.APPEND, "compact"), version=version)
    c.error(result.error_code, ErrorCode.NONE, "error_code of APPEND")
    k.until_value(c, resource, "cleanup.policy", ("delete,compact", k.DYNAMIC_TOPIC))
    result = k.alter(c, resource, ("cleanup.policy", k.SUBTRACT, "delete"), version=version)
    c.error(result.error_code, ErrorCode.NONE, "error_code of SUBTRACT")
    k.until_value(c, resource, "cleanup.policy", ("compact", k.DYNAMIC_TOPIC))


@case(
    "configs.incremental.unknown-topic",
    "a topic that does not exist is rejected, and the other one is changed",
    source="KIP-339",
    layer=Layer.WIRE,
    versions=VERSIONS,
)
def unknown_topic(c: Check, version: int) -> None:
    """Sends: IncrementalAlterConfigs of a topic that does not exist, and of one that does.

    Expects: UNKNOWN_TOPIC_OR_PARTITION with a message for the first; the second is changed.

    Why: each resource succeeds or fails independently, and the configs of a misspelled topic have no effect.
    """
    known, unknown = new_topic(c), k.Resource(k.TOPIC, c.name("no-such-topic"))
    change = ("retention.ms", k.SET, "999")
    request = IncrementalAlterConfigsRequest(
        resources=[k.incremental_resource(unknown, change), k.incremental_resource(known, change)]
    )
    responses = c.call(request, version).responses
    found = {(each.resource_type, each.resource_name): each for each in responses}
    c.equal((sorted(found), len(responses)), (sorted([tuple(known), tuple(unknown)]), 2), "responses (resources)")
    c.error(found[unknown].error_code, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "error_code of the unknown topic")
    message = found[unknown].error_message
    c.true(message, "error_message of the unknown topic", expected="a message", actual=message)
    c.error(found[known].error_code, ErrorCode.NONE, "error_code of the known topic")
    k.until_value(c, known, "retention.ms", ("999", k.DYNAMIC_TOPIC))


@case(
    "configs.incremental.validate-only",
    "a dry run changes nothing",
    source="KIP-339",
    layer=Layer.WIRE,
    versions=VERSIONS,
)
def validate_only(c: Check, version: int) -> None:
    """Sends: IncrementalAlterConfigs with `validate_only`: a valid value, and an invalid one.

    Expects: no error, then INVALID_CONFIG; the topic keeps its value.

    Why: a tool checks a value before its user confirms the change.
    """
    resource = new_topic(c, retention_ms="777")
    result = k.alter(c, resource, ("retention.ms", k.SET, "1"), version=version, validate_only=True)
    c.error(result.error_code, ErrorCode.NONE, "error_code of the valid value")
    result = k.alter(c, resource, ("retention.ms", k.SET, "-2"), version=version, validate_only=True)
    c.error(result.error_code, ErrorCode.INVALID_CONFIG, "error_code of the invalid value")
    k.unchanged(c, resource, "retention.ms", ("777", k.DYNAMIC_TOPIC))


@case(
    "configs.incremental.invalid",
    "changes that are impossible are rejected",
    source="KIP-339",
    needs=ALTER,
    variants={
        "unknown-config": ("no.such.config", k.SET, "1", ErrorCode.INVALID_CONFIG),
        "no-config-name": ("", k.SET, "1", ErrorCode.INVALID_CONFIG),
        "too-small": ("segment.ms", k.SET, "0", ErrorCode.INVALID_CONFIG),
        "not-a-number": ("segment.ms", k.SET, "soon", ErrorCode.INVALID_CONFIG),
        "empty-number": ("segment.ms", k.SET, "", ErrorCode.INVALID_CONFIG),
        "not-a-choice": ("compression.type", k.SET, "rar", ErrorCode.INVALID_CONFIG),
        "not-a-boolean": ("preallocate", k.SET, "1", ErrorCode.INVALID_CONFIG),
        "not-a-policy": ("cleanup.policy", k.SET, "shred", ErrorCode.INVALID_CONFIG),
        "contradiction": ("min.compaction.lag.ms", k.SET, "9223372036854775807", ErrorCode.INVALID_CONFIG),
        "set-null": ("segment.ms", k.SET, None, ErrorCode.INVALID_REQUEST),
        "append-null": ("cleanup.policy", k.APPEND, None, ErrorCode.INVALID_REQUEST),
        "subtract-null": ("cleanup.policy", k.SUBTRACT, None, ErrorCode.INVALID_REQUEST),
        "append-to-number": ("segment.ms", k.APPEND, "1", ErrorCode.INVALID_CONFIG),
        "subtract-from-number": ("segment.ms", k.SUBTRACT, "1", ErrorCode.INVALID_CONFIG),
        "append-invalid": ("cleanup.policy", k.APPEND, "shred", ErrorCode.INVALID_CONFIG),
    },
)
def invalid(c: Check, key: str, operation: int, value: str | None, expected: ErrorCode) -> None:
    """Sends: IncrementalAlterConfigs with a valid change of `retention.ms`, and an impossible change of another config.

    Expects: INVALID_CONFIG, or INVALID_REQUEST if the value is null, with a message; `retention.ms` is unchanged too.

    Why: the changes of one resource are made together or not at all, so that a user can correct and repeat them.
    """
    resource = new_topic(c, retention_ms="777", max_compaction_lag_ms="1000")
    result = k.alter(c, resource, ("retention.ms", k.SET, "1"), (key, operation, value))
    c.error(result.error_code, expected)
    c.true(result.error_message, "error_message", expected="a message", actual=result.error_message)
    k.unchanged(c, resource, "retention.ms", ("777", k.DYNAMIC_TOPIC))


@case(
    "configs.incremental.unknown-operation",
    "an operation that does not exist is rejected",
    source="KIP-339",
    needs=ALTER,
    level=Level.APACHE,
    variants={"4": (4,), "minus-1": (-1,)},
)
def unknown_operation(c: Check, operation: int) -> None:
    """Sends: IncrementalAlterConfigs with an operation other than 0 to 3.

    Expects: an error, INVALID_REQUEST or UNKNOWN_SERVER_ERROR as in Apache Kafka; the config is unchanged.

    Why: a newer client may have more operations, which must not be taken for SET.
    """
    resource = new_topic(c, retention_ms="777")
    result = k.alter(c, resource, ("retention.ms", operation, "1"))
    c.error(result.error_code, {ErrorCode.INVALID_REQUEST, ErrorCode.UNKNOWN_SERVER_ERROR})
    k.unchanged(c, resource, "retention.ms", ("777", k.DYNAMIC_TOPIC))


@case(
    "configs.incremental.duplicate-resource",
    "a resource that occurs twice is rejected, and the other one is changed",
    source="KIP-339",
    layer=Layer.WIRE,
    versions=VERSIONS,
)
def duplicate_resource(c: Check, version: int) -> None:
    """Sends: IncrementalAlterConfigs with one topic twice, with different values, and another topic.

    Expects: INVALID_REQUEST for the first topic, which is unchanged; the other one is changed.

    Why: the server cannot know which of the two values is meant.
    """
    twice, once = new_topic(c, retention_ms="777"), new_topic(c, retention_ms="777")
    changes = [(twice, "1"), (once, "2"), (twice, "3")]
    request = IncrementalAlterConfigsRequest(
        resources=[k.incremental_resource(each, ("retention.ms", k.SET, value)) for each, value in changes]
    )
    responses = c.call(request, version).responses
    found = {(each.resource_name, each.error_code) for each in responses}
    expected = {(twice.name, int(ErrorCode.INVALID_REQUEST)), (once.name, int(ErrorCode.NONE))}
    c.equal(sorted(found), sorted(expected), "responses (resource_name and error_code)")
    k.until_value(c, once, "retention.ms", ("2", k.DYNAMIC_TOPIC))
    k.unchanged(c, twice, "retention.ms", ("777", k.DYNAMIC_TOPIC))


@case(
    "configs.incremental.duplicate-key",
    "a config that occurs twice in a resource is rejected",
    source="KIP-339",
    needs=ALTER,
    variants={"set-and-set": (k.SET, "2"), "set-and-delete": (k.DELETE, None)},
)
def duplicate_key(c: Check, operation: int, value: str | None) -> None:
    """Sends: IncrementalAlterConfigs with two operations for one config.

    Expects: INVALID_REQUEST with a message; the config is unchanged.

    Why: the operations have no order, so the result would be undefined.
    """
    resource = new_topic(c, retention_ms="777")
    result = k.alter(c, resource, ("retention.ms", k.SET, "1"), ("retention.ms", operation, value))
    c.error(result.error_code, ErrorCode.INVALID_REQUEST)
    c.true(result.error_message, "error_message", expected="a message", actual=result.error_message)
    k.unchanged(c, resource, "retention.ms", ("777", k.DYNAMIC_TOPIC))


@case(
    "configs.incremental.no-effect",
    "changes that change nothing succeed",
    source="KIP-339",
    needs=ALTER,
    variants={
        "same-value": (("retention.ms", k.SET, "777"),),
        "delete-default": (("segment.ms", k.DELETE, None),),
        "delete-unknown": (("no.such.config", k.DELETE, None),),
        "append-present": (("cleanup.policy", k.APPEND, "compact"),),
        "subtract-absent": (("cleanup.policy", k.SUBTRACT, "delete"),),
        "none": (None,),
    },
)
def no_effect(c: Check, change: k.Change | None) -> None:
    """Sends: IncrementalAlterConfigs whose result is what the topic already has.

    Expects: no error; the configs of the topic are the same as before.

    Why: programs set the configs of their topics at each start.
    """
    resource = new_topic(c, retention_ms="777", cleanup_policy="compact")
    result = k.alter(c, resource, *([] if change is None else [change]))
    c.error(result.error_code, ErrorCode.NONE)
    c.true(not result.error_message, "error_message", expected="none", actual=result.error_message)
    k.unchanged(c, resource, "retention.ms", ("777", k.DYNAMIC_TOPIC))
    c.equal(k.value(c, resource, "cleanup.policy"), ("compact", k.DYNAMIC_TOPIC), "cleanup.policy")
    found = k.describe(c, resource).configs
    own = sorted(each.name for each in found if each.config_source == k.DYNAMIC_TOPIC)
    c.equal(own, ["cleanup.policy", "flush.messages", "retention.ms"], "configs with the source of the topic")


@case(
    "configs.incremental.no-resources",
    "a request without resources has an empty response",
    source="KIP-339",
    layer=Layer.WIRE,
    versions=VERSIONS,
)
def no_resources(c: Check, version: int) -> None:
    """Sends: IncrementalAlterConfigs without resources.

    Expects: a response without resources.

    Why: a generic client serializes an empty list like any other, and waits for the response.
    """
    c.equal(c.call(IncrementalAlterConfigsRequest(), version).responses, [], "responses")


@case(
    "configs.incremental.resource",
    "resources that cannot have configs are rejected",
    source="KIP-339",
    needs=ALTER,
    variants={
        "type-0": (0, "x", ErrorCode.INVALID_REQUEST),
        "type-1": (1, "x", ErrorCode.INVALID_REQUEST),
        "type-3": (3, "", ErrorCode.INVALID_REQUEST),
        "type-5": (5, "1", ErrorCode.INVALID_REQUEST),
        "type-33": (33, "x", ErrorCode.INVALID_REQUEST),
        "type-64": (64, "x", ErrorCode.INVALID_REQUEST),
        "type-127": (127, "x", ErrorCode.INVALID_REQUEST),
        "all-topics": (k.TOPIC, "", ErrorCode.INVALID_REQUEST),
        "topic-name": (k.TOPIC, "not a name!", ErrorCode.INVALID_TOPIC_EXCEPTION),
        "broker-not-a-number": (k.BROKER, "x", ErrorCode.INVALID_REQUEST),
        "other-broker": (k.BROKER, "2000000000", ErrorCode.INVALID_REQUEST),
        "long-number": (k.BROKER, "9" * 5_000, ErrorCode.INVALID_REQUEST),
        "arabic-digit": (k.BROKER, "\u0663", ErrorCode.INVALID_REQUEST),
    },
)
def resource(c: Check, kind: int, name: str, expected: ErrorCode) -> None:
    """Sends: IncrementalAlterConfigs of a type of resources that does not exist, all topics, an invalid name, or a
    broker other than the one at the address.

    Expects: INVALID_REQUEST, or INVALID_TOPIC_EXCEPTION for a name that no topic can have, with a message.

    Why: a change that has no effect must not look like one that was made.
    """
    result = k.alter(c, k.Resource(kind, name), ("retention.ms", k.SET, "1"), validate_only=True)
    c.error(result.error_code, expected)
    c.true(result.error_message, "error_message", expected="a message", actual=result.error_message)

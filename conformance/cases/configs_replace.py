"""AlterConfigs: all configs of a resource are replaced (KIP-133). Deprecated since KIP-339, and still in use."""

from __future__ import annotations

from ...protocol.api import ApiKey
from ...protocol.errors import ErrorCode
from ...protocol.messages.alter_configs import AlterConfigsRequest
from .. import configs as k
from .. import topic_admin as t
from ..case import Layer, case, needs, versions_of
from ..check import Check
from .configs_describe import new_topic

REPLACE = needs(ApiKey.ALTER_CONFIGS, 2, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, ApiKey.DESCRIBE_CONFIGS, 4)
VERSIONS = versions_of(ApiKey.ALTER_CONFIGS)


@case(
    "configs.replace.exchange",
    "the configs of a topic are replaced",
    source="KIP-133",
    layer=Layer.WIRE,
    versions=VERSIONS,
)
def exchange(c: Check, version: int) -> None:
    """Sends: AlterConfigs with `segment.ms` and a new `max.message.bytes`, for a topic with `retention.ms` and
    `max.message.bytes`.

    Expects: no error, no message, the type and name of the topic; then the two values of the request, and no value of
    the topic for `retention.ms`.

    Why: older tools describe all configs, change one, and send all of them.
    """
    resource = new_topic(c, retention_ms="777", max_message_bytes="5000")
    result = k.replace(c, resource, {"segment.ms": "888000", "max.message.bytes": "6000"}, version=version)
    c.error(result.error_code, ErrorCode.NONE)
    c.true(not result.error_message, "error_message", expected="none", actual=result.error_message)
    k.until_value(c, resource, "segment.ms", ("888000", k.DYNAMIC_TOPIC))
    found = k.describe(c, resource).configs
    own = {each.name: each.value for each in found if each.config_source == k.DYNAMIC_TOPIC}
    c.equal(own, {"segment.ms": "888000", "max.message.bytes": "6000"}, "configs with the source of the topic")


@case(
    "configs.replace.unknown-topic",
    "a topic that does not exist is rejected",
    source="KIP-133",
    layer=Layer.WIRE,
    versions=VERSIONS,
)
def unknown_topic(c: Check, version: int) -> None:
    """Sends: AlterConfigs of a topic that does not exist.

    Expects: UNKNOWN_TOPIC_OR_PARTITION with a message; the topic is not created.

    Why: the configs of a misspelled topic have no effect, and its user must learn it.
    """
    name = c.name("no-such-topic")
    result = k.replace(c, k.Resource(k.TOPIC, name), {"retention.ms": "1"}, version=version)
    c.error(result.error_code, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    c.true(result.error_message, "error_message", expected="a message", actual=result.error_message)
    t.missing(c, name)


@case(
    "configs.replace.validate-only",
    "a dry run changes nothing",
    source="KIP-133",
    layer=Layer.WIRE,
    versions=VERSIONS,
)
def validate_only(c: Check, version: int) -> None:
    """Sends: AlterConfigs with `validate_only`: a valid value, and an invalid one.

    Expects: no error, then INVALID_CONFIG; the topic keeps its value.

    Why: a tool checks a value before its user confirms the change.
    """
    resource = new_topic(c, retention_ms="777")
    result = k.replace(c, resource, {"segment.ms": "1000"}, version=version, validate_only=True)
    c.error(result.error_code, ErrorCode.NONE, "error_code of the valid value")
    result = k.replace(c, resource, {"segment.ms": "0"}, version=version, validate_only=True)
    c.error(result.error_code, ErrorCode.INVALID_CONFIG, "error_code of the invalid value")
    k.unchanged(c, resource, "retention.ms", ("777", k.DYNAMIC_TOPIC))


@case(
    "configs.replace.none",
    "no configs reset a topic to the defaults",
    source="KIP-133",
    layer=Layer.WIRE,
    versions=VERSIONS,
)
def no_configs(c: Check, version: int) -> None:
    """Sends: AlterConfigs without configs, for a topic with two.

    Expects: no error; then no config with the source of the topic.

    Why: a server that takes this for no change leaves configs that the user wants to remove.
    """
    resource = new_topic(c, retention_ms="777", cleanup_policy="compact")
    result = k.replace(c, resource, {}, version=version)
    c.error(result.error_code, ErrorCode.NONE)

    def is_reset() -> bool:
        return all(each.config_source != k.DYNAMIC_TOPIC for each in k.describe(c, resource).configs)

    c.until(is_reset, "no config with the source of the topic")


@case(
    "configs.replace.invalid",
    "configs that a topic cannot have are rejected",
    source="KIP-133",
    needs=REPLACE,
    variants={
        "unknown-config": ({"retention.ms": "1", "no.such.config": "1"}, ErrorCode.INVALID_CONFIG),
        "not-a-number": ({"retention.ms": "1", "segment.ms": "soon"}, ErrorCode.INVALID_CONFIG),
        "contradiction": ({"min.compaction.lag.ms": "2", "max.compaction.lag.ms": "1"}, ErrorCode.INVALID_CONFIG),
        "null": ({"retention.ms": "1", "segment.ms": None}, ErrorCode.INVALID_REQUEST),
    },
)
def invalid(c: Check, values: dict[str, str | None], expected: ErrorCode) -> None:
    """Sends: AlterConfigs with a config that does not exist, an impossible value or null, together with a valid one.

    Expects: INVALID_CONFIG, or INVALID_REQUEST if the value is null, with a message; the topic keeps its configs.

    Why: the configs of one resource are replaced together or not at all.
    """
    resource = new_topic(c, retention_ms="777")
    result = k.replace(c, resource, values)
    c.error(result.error_code, expected)
    c.true(result.error_message, "error_message", expected="a message", actual=result.error_message)
    k.unchanged(c, resource, "retention.ms", ("777", k.DYNAMIC_TOPIC))


@case(
    "configs.replace.resource",
    "resources that cannot have configs are rejected",
    source="KIP-133",
    needs=REPLACE,
    variants={
        "type-0": (0, "x", ErrorCode.INVALID_REQUEST),
        "type-1": (1, "x", ErrorCode.INVALID_REQUEST),
        "type-3": (3, "", ErrorCode.INVALID_REQUEST),
        "type-33": (33, "x", ErrorCode.INVALID_REQUEST),
        "type-127": (127, "x", ErrorCode.INVALID_REQUEST),
        "all-topics": (k.TOPIC, "", ErrorCode.INVALID_REQUEST),
        "topic-name": (k.TOPIC, "not a name!", ErrorCode.INVALID_TOPIC_EXCEPTION),
        "other-broker": (k.BROKER, "2000000000", ErrorCode.INVALID_REQUEST),
    },
)
def resource(c: Check, kind: int, name: str, expected: ErrorCode) -> None:
    """Sends: AlterConfigs of a type of resources that does not exist, of all topics, of an invalid name, or of a broker
    other than the one at the address.

    Expects: INVALID_REQUEST, or INVALID_TOPIC_EXCEPTION for a name that no topic can have, with a message.

    Why: a change that has no effect must not look like one that was made.
    """
    result = k.replace(c, k.Resource(kind, name), {"retention.ms": "1"}, validate_only=True)
    c.error(result.error_code, expected)
    c.true(result.error_message, "error_message", expected="a message", actual=result.error_message)


@case(
    "configs.replace.no-resources",
    "a request without resources has an empty response",
    source="KIP-133",
    layer=Layer.WIRE,
    versions=VERSIONS,
)
def no_resources(c: Check, version: int) -> None:
    """Sends: AlterConfigs without resources.

    Expects: a response without resources.

    Why: a generic client serializes an empty list like any other, and waits for the response.
    """
    c.equal(c.call(AlterConfigsRequest(), version).responses, [], "responses")

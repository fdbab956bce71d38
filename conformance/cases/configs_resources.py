"""Configs of groups and of client metrics, and ListConfigResources (KIP-714, KIP-848, KIP-1000, KIP-1142)."""

from __future__ import annotations

from typing import Any

from ...protocol.api import ApiKey
from ...protocol.errors import ErrorCode
from ...protocol.messages.list_config_resources import ListConfigResourcesRequest
from .. import configs as k
from ..case import Layer, Release, case, needs, versions_of
from ..check import Check
from .configs_brokers import unsupported
from .configs_describe import new_topic

ALTER = needs(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, ApiKey.DESCRIBE_CONFIGS, 4)
LIST = needs(ApiKey.LIST_CONFIG_RESOURCES, 1)
SESSION_TIMEOUT = "consumer.session.timeout.ms"


def listed(c: Check, *types: int) -> set[k.Resource]:
    response = c.call(ListConfigResourcesRequest(resource_types=list(types)), 1)
    c.error(response.error_code, ErrorCode.NONE, "ListConfigResources error_code")
    found = [k.Resource(each.resource_type, each.resource_name) for each in response.config_resources]
    c.equal(len(found), len(set(found)), "config_resources (number of different resources)")
    return set(found)


@case(
    "configs.group.default",
    "a group has the configs of its broker, also before it exists",
    source="KIP-848",
    layer=Layer.WIRE,
    needs=ALTER,
    since=Release(4, 0),
)
def group_default(c: Check) -> None:
    """Sends: DescribeConfigs of a group that does not exist.

    Expects: no error; `consumer.session.timeout.ms` and `consumer.heartbeat.interval.ms` as positive INTs, with a
    source of the broker (2 to 5), neither read-only nor sensitive.

    Why: the settings of a group are prepared before its first member joins.
    """
    result = k.describe(c, k.Resource(k.GROUP, c.group()))
    c.error(result.error_code, ErrorCode.NONE)
    found = {each.name: each for each in result.configs}
    for name in (SESSION_TIMEOUT, "consumer.heartbeat.interval.ms"):
        each = found[name]
        c.true(int(each.value) > 0, f"value of {name}", expected="a positive number", actual=each.value)
        c.true(2 <= each.config_source <= 5, f"config_source of {name}", expected="2 to 5", actual=each.config_source)
        c.equal((each.config_type, each.read_only, each.is_sensitive), (k.INT, False, False), f"{name} (type, flags)")


@case(
    "configs.group.change",
    "a config of a group is set, listed and deleted",
    source="KIP-848 and KIP-1142",
    needs=(*ALTER, *LIST),
    since=Release(4, 1),
    alters_configs=True,
)
def group_change(c: Check) -> None:
    """Sends: IncrementalAlterConfigs that sets `consumer.session.timeout.ms` of a group; DescribeConfigs and
    ListConfigResources; then DELETE.

    Expects: the value with source 8 (group) and the broker's value behind it as synonym; the group in the list; after
    DELETE the value and source of the broker again.

    Why: operators give a group with slow members a longer timeout than the others.
    """
    group = k.Resource(k.GROUP, c.group())
    before = k.value(c, group, SESSION_TIMEOUT)
    with k.restored(c, group, SESSION_TIMEOUT):
        c.error(k.alter(c, group, (SESSION_TIMEOUT, k.SET, "50000")).error_code, ErrorCode.NONE, "error_code of SET")
        k.until_value(c, group, SESSION_TIMEOUT, ("50000", k.DYNAMIC_GROUP))
        found: Any = k.config(c, group, SESSION_TIMEOUT)
        first, *others = [(each.name, each.value, each.source) for each in found.synonyms]
        c.equal(first, (SESSION_TIMEOUT, "50000", k.DYNAMIC_GROUP), "first synonym")
        c.equal({name for name, _, _ in others}, {f"group.{SESSION_TIMEOUT}"}, "other synonyms (names)")
        c.equal(others[0][1:], before, "second synonym, compared with the value before")
        c.true(group in listed(c, k.GROUP), "ListConfigResources", expected=f"{group}", actual="a list without it")
        c.error(k.alter(c, group, (SESSION_TIMEOUT, k.DELETE, None)).error_code, ErrorCode.NONE, "error_code of DELETE")
        k.until_value(c, group, SESSION_TIMEOUT, before)


@case(
    "configs.group.invalid",
    "configs that a group cannot have are rejected",
    source="KIP-848",
    needs=ALTER,
    since=Release(4, 0),
    variants={
        "too-short": (SESSION_TIMEOUT, "1", ErrorCode.INVALID_CONFIG),
        "too-long": (SESSION_TIMEOUT, "2147483647", ErrorCode.INVALID_CONFIG),
        "not-a-number": ("consumer.heartbeat.interval.ms", "soon", ErrorCode.INVALID_CONFIG),
        "4301-digits": (SESSION_TIMEOUT, "9" * 4_301, ErrorCode.INVALID_CONFIG),
        "of-topics": ("retention.ms", "1", ErrorCode.INVALID_CONFIG),
        "unknown": ("no.such.config", "1", ErrorCode.INVALID_CONFIG),
        "null": (SESSION_TIMEOUT, None, ErrorCode.INVALID_REQUEST),
    },
)
def group_invalid(c: Check, key: str, value: str | None, expected: ErrorCode) -> None:
    """Sends: IncrementalAlterConfigs of a group with a timeout that the broker does not allow, a config that groups do
    not have, or null.

    Expects: INVALID_CONFIG, or INVALID_REQUEST for null, with a message; no config of the group is set.

    Why: with a wrong timeout, members of the group would be removed again and again.
    """
    group = k.Resource(k.GROUP, c.group())
    result = k.alter(c, group, (key, k.SET, value), validate_only=True)
    c.error(result.error_code, expected)
    c.true(result.error_message, "error_message", expected="a message", actual=result.error_message)


@case(
    "configs.group.duration",
    "offsets can be reset by a duration of any length",
    source="KIP-932 and KIP-1106",
    needs=ALTER,
    since=Release(4, 1),
    variants={
        "usual": ("PT1H", ErrorCode.NONE),
        "zeros": (f"P{'0' * 5_000}1D", ErrorCode.NONE),
        "longest": ("PT9223372036854775807S", ErrorCode.NONE),
        "too-long": ("PT9223372036854775808S", ErrorCode.INVALID_CONFIG),
        "4301-digits": (f"P{'9' * 4_301}D", ErrorCode.INVALID_CONFIG),
        "negative": ("-PT1H", ErrorCode.INVALID_CONFIG),
        "word": ("hour", ErrorCode.INVALID_CONFIG),
    },
)
def group_duration(c: Check, duration: str, expected: ErrorCode) -> None:
    """Sends: IncrementalAlterConfigs (a dry run) with `share.auto.offset.reset=by_duration:...` for a group.

    Expects: no error for durations of ISO 8601 that fit into 64 bits; INVALID_CONFIG for others.

    Why: a share group begins to read at the first record of this age.
    """
    change = ("share.auto.offset.reset", k.SET, f"by_duration:{duration}")
    result = k.alter(c, k.Resource(k.GROUP, c.group()), change, validate_only=True)
    c.error(result.error_code, expected)


@case(
    "configs.group.no-name",
    "groups have no common configs",
    source="KIP-848",
    needs=ALTER,
    since=Release(4, 0),
)
def group_no_name(c: Check) -> None:
    """Sends: DescribeConfigs and IncrementalAlterConfigs of the group with an empty name.

    Expects: INVALID_REQUEST with a message, and no configs.

    Why: the empty name stands for all brokers in other requests; groups inherit from the settings of brokers instead.
    """
    group = k.Resource(k.GROUP, "")
    result = k.describe(c, group)
    c.error(result.error_code, ErrorCode.INVALID_REQUEST, "DescribeConfigs error_code")
    c.equal(result.configs, [], "configs")
    result = k.alter(c, group, (SESSION_TIMEOUT, k.SET, "50000"), validate_only=True)
    c.error(result.error_code, ErrorCode.INVALID_REQUEST, "IncrementalAlterConfigs error_code")
    c.true(result.error_message, "error_message", expected="a message", actual=result.error_message)


@case(
    "configs.client-metrics.exchange",
    "a subscription of client metrics is created, described, listed and deleted",
    source="KIP-714 and KIP-1000",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.LIST_CONFIG_RESOURCES),
    needs=(*ALTER, *needs(ApiKey.ALTER_CONFIGS, 2)),
    alters_configs=True,
)
def client_metrics(c: Check, version: int) -> None:
    """Sends: IncrementalAlterConfigs with `interval.ms` of a subscription; DescribeConfigs; ListConfigResources of
    client metrics; DELETE.

    Expects: the value with source 7 (client metrics); the subscription in the list, with its type since version 1; at
    the end it is not in the list. A server without this type of resource responds UNSUPPORTED_VERSION and names it.

    Why: operators collect metrics from clients by such subscriptions, and list them to remove them again.
    """
    subscription = k.Resource(k.CLIENT_METRICS, c.name("metrics"))
    if unsupported(c, subscription, k.describe(c, subscription)):
        return

    def found() -> set[tuple[int, str]]:
        request = ListConfigResourcesRequest(resource_types=[k.CLIENT_METRICS] if version >= 1 else [])
        response = c.call(request, version)
        c.error(response.error_code, ErrorCode.NONE, "ListConfigResources error_code")
        return {(each.resource_type, each.resource_name) for each in response.config_resources}

    with k.restored(c, subscription, "interval.ms"):
        result = k.alter(c, subscription, ("interval.ms", k.SET, "3600000"))
        c.error(result.error_code, ErrorCode.NONE, "error_code of SET")
        k.until_value(c, subscription, "interval.ms", ("3600000", k.DYNAMIC_CLIENT_METRICS))
        # Apache Kafka applies it to the list after it has described it.
        c.until(lambda: tuple(subscription) in found(), "the subscription in ListConfigResources")
        c.equal({kind for kind, _ in found()}, {k.CLIENT_METRICS}, "ListConfigResources (types)")
        result = k.alter(c, subscription, ("interval.ms", k.DELETE, None))
        c.error(result.error_code, ErrorCode.NONE, "error_code of DELETE")
        c.until(lambda: tuple(subscription) not in found(), "ListConfigResources without the subscription")


@case(
    "configs.client-metrics.invalid",
    "configs that a subscription of client metrics cannot have are rejected",
    source="KIP-714",
    needs=(*ALTER, *needs(ApiKey.ALTER_CONFIGS, 2)),
    variants={
        "too-often": ("s", "interval.ms", "99", ErrorCode.INVALID_REQUEST),
        "too-rarely": ("s", "interval.ms", "3600001", ErrorCode.INVALID_REQUEST),
        "unknown": ("s", "no.such.config", "1", ErrorCode.INVALID_REQUEST),
        "match": ("s", "match", "no_such_selector=1", ErrorCode.INVALID_CONFIG),
        "no-name": ("", "interval.ms", "1000", ErrorCode.INVALID_REQUEST),
    },
)
def client_metrics_invalid(c: Check, name: str, key: str, value: str, expected: ErrorCode) -> None:
    """Sends: IncrementalAlterConfigs (a dry run) of a subscription with an impossible interval, selector, config or
    name.

    Expects: INVALID_REQUEST, or INVALID_CONFIG for the selector, with a message. A server without this type of resource
    responds UNSUPPORTED_VERSION and names it.

    Why: all clients follow these subscriptions; a short interval would burden the cluster.
    """
    subscription = k.Resource(k.CLIENT_METRICS, name)
    if unsupported(c, subscription, k.describe(c, subscription)):
        return
    result = k.alter(c, subscription, (key, k.SET, value), validate_only=True)
    c.error(result.error_code, expected)
    c.true(result.error_message, "error_message", expected="a message", actual=result.error_message)


@case(
    "configs.list.client-metrics",
    "version 0 lists only client metrics",
    source="KIP-1000",
    layer=Layer.WIRE,
    needs=needs(ApiKey.LIST_CONFIG_RESOURCES, 0),
)
def list_client_metrics(c: Check) -> None:
    """Sends: ListConfigResources in version 0, while there is a topic with a config.

    Expects: no error; the topic and the broker are not in the list.

    Why: clients of this version take every name for a subscription of client metrics.
    """
    topic = new_topic(c, retention_ms="777")
    response = c.call(ListConfigResourcesRequest(), 0)
    c.error(response.error_code, ErrorCode.NONE)
    names = {each.resource_name for each in response.config_resources}
    c.equal(names & {topic.name, str(c.target.node_id)}, set(), "topics and brokers in the list")


@case(
    "configs.list.types",
    "resources are listed by their types",
    source="KIP-1142",
    layer=Layer.WIRE,
    needs=LIST,
)
def list_types(c: Check) -> None:
    """Sends: ListConfigResources of topics, of brokers, of both, and of all types, while there is a topic.

    Expects: the topic and the broker, each only where its type is requested, and no other types.

    Why: tools describe the configs of all resources of a type, and learn their names by this request.
    """
    topic, broker = new_topic(c), k.this_broker(c)
    for requested in ((k.TOPIC,), (k.BROKER,), (k.TOPIC, k.BROKER), (k.BROKER_LOGGER,), ()):
        found = listed(c, *requested)
        for resource in (topic, broker):
            is_expected = not requested or resource.type in requested
            c.equal(resource in found, is_expected, f"whether {resource} is in the list of the types {requested}")
        if requested:
            c.equal({each.type for each in found}, {*requested}, f"types in the list of the types {requested}")


@case(
    "configs.list.unknown-type",
    "a type of resources that does not exist is rejected",
    source="KIP-1142",
    layer=Layer.WIRE,
    needs=LIST,
    variants={"0": ([0],), "3": ([3],), "127": ([127],), "beside-known": ([k.TOPIC, 3],)},
)
def list_unknown_type(c: Check, requested: list[int]) -> None:
    """Sends: ListConfigResources of a type that does not exist, alone or together with topics.

    Expects: UNSUPPORTED_VERSION, and an empty list.

    Why: a newer client must learn that this server cannot have such resources, instead of seeing an empty list.
    """
    response = c.call(ListConfigResourcesRequest(resource_types=requested), 1)
    c.error(response.error_code, ErrorCode.UNSUPPORTED_VERSION)
    c.equal(response.config_resources, [], "config_resources")

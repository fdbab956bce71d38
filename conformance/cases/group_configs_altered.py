"""Configs of groups (KIP-848) that are set, deleted, rejected and listed, and what they do."""

from __future__ import annotations

from ...protocol.api import ApiKey
from ...protocol.errors import ErrorCode
from ...protocol.messages.list_config_resources import ListConfigResourcesRequest
from .. import configs as k
from .. import consumer_group as g
from ..case import Layer, Level, Release, case, needs, versions_of
from ..check import Check
from ..configs import Resource
from ..consumer_group import FEATURES, ConsumerMember
from ..group_configs import (
    ALTER,
    ASSIGNMENT,
    DESCRIBE,
    INTERVAL,
    RESET,
    SESSION,
    SOURCE,
    allowed_session,
    broker_value,
    described,
    group,
)


@case(
    "group-configs.alter.exchange",
    "a config of a group is set and deleted",
    source=SOURCE,
    layer=Layer.WIRE,
    features=FEATURES,
    needs=DESCRIBE,
    versions=versions_of(ApiKey.INCREMENTAL_ALTER_CONFIGS),
    alters_configs=True,
)
def alter(c: Check, version: int) -> None:
    """Sends: IncrementalAlterConfigs that sets a session timeout for a group; then one that deletes it.

    Expects: the new value with source DYNAMIC_GROUP_CONFIG, and the broker's value as second synonym; the broker's
    value again at the end. Another group keeps the broker's value, and so do the group's other configs.

    Why: groups of slow consumers need other timeouts than the rest.
    """
    resource, other = group(c), group(c)
    default = broker_value(c, f"group.{SESSION}")
    interval = broker_value(c, f"group.{INTERVAL}").value
    wanted = allowed_session(c)
    answer = k.alter(c, resource, (SESSION, k.SET, wanted), version=version)
    c.error(answer.error_code, ErrorCode.NONE)
    c.true(not answer.error_message, "error_message", expected="none", actual=answer.error_message)
    k.until_value(c, resource, SESSION, (wanted, k.DYNAMIC_GROUP))
    found = described(c, resource, SESSION)
    synonyms = [(each.name, each.value, each.source) for each in found.synonyms]
    behind = [(each.name, each.value, each.source) for each in default.synonyms]
    c.equal(synonyms, [(SESSION, wanted, k.DYNAMIC_GROUP), *behind], "synonyms")
    untouched = described(c, resource, INTERVAL)
    c.equal(untouched.value, interval, f"{INTERVAL} of the group")
    c.equal(k.value(c, other, SESSION), (default.value, default.config_source), "value and source for another group")
    c.error(k.alter(c, resource, (SESSION, k.DELETE, None), version=version).error_code, ErrorCode.NONE)
    k.until_value(c, resource, SESSION, (default.value, default.config_source))


@case(
    "group-configs.alter.replace",
    "AlterConfigs replaces all configs of a group",
    source=SOURCE,
    layer=Layer.WIRE,
    features=FEATURES,
    needs=(*ALTER, *needs(ApiKey.ALTER_CONFIGS, 2)),
    versions=versions_of(ApiKey.ALTER_CONFIGS),
    alters_configs=True,
)
def replace(c: Check, version: int) -> None:
    """Sends: AlterConfigs with a heartbeat interval for a group that has a session timeout; then without configs.

    Expects: the interval, and the broker's session timeout; at the end the broker's interval too.

    Why: older tools use this API, which replaces everything.
    """
    resource = group(c)
    session, interval = broker_value(c, f"group.{SESSION}"), broker_value(c, f"group.{INTERVAL}")
    wanted = str(int(interval.value) + 1)
    with c.setup("a config of a group"):
        c.error(k.alter(c, resource, (SESSION, k.SET, allowed_session(c))).error_code, ErrorCode.NONE)
        k.until_value(c, resource, SESSION, (allowed_session(c), k.DYNAMIC_GROUP))
    c.error(k.replace(c, resource, {INTERVAL: wanted}, version=version).error_code, ErrorCode.NONE)
    k.until_value(c, resource, INTERVAL, (wanted, k.DYNAMIC_GROUP))
    c.equal(k.value(c, resource, SESSION), (session.value, session.config_source), "value and source of the timeout")
    c.error(k.replace(c, resource, {}, version=version).error_code, ErrorCode.NONE)
    k.until_value(c, resource, INTERVAL, (interval.value, interval.config_source))


@case(
    "group-configs.alter.share",
    "a config of share groups is set for a group",
    source="KIP-932: Group Configurations",
    level=Level.SHOULD,
    features=FEATURES,
    needs=ALTER,
    since=Release(4, 2),
    variants={
        "reset": (RESET, "by_duration:PT1H"),
        "isolation": ("share.isolation.level", "read_committed"),
        "lock-duration": ("share.record.lock.duration.ms", "20000"),
    },
    alters_configs=True,
)
def alter_share(c: Check, key: str, wanted: str) -> None:
    """Sends: IncrementalAlterConfigs that sets a config of share groups; then one that deletes it.

    Expects: the new value with source DYNAMIC_GROUP_CONFIG and synonyms; the default again at the end.

    Why: a share group is configured by an administrator only, as its members cannot.
    """
    resource = group(c)
    default = described(c, resource, key)
    c.error(k.alter(c, resource, (key, k.SET, wanted)).error_code, ErrorCode.NONE)
    k.until_value(c, resource, key, (wanted, k.DYNAMIC_GROUP))
    found = described(c, resource, key)
    synonyms = [(each.name, each.value, each.source) for each in found.synonyms]
    behind = [(each.name, each.value, each.source) for each in default.synonyms]
    c.equal(synonyms, [(key, wanted, k.DYNAMIC_GROUP), *behind], "synonyms")
    c.error(k.alter(c, resource, (key, k.DELETE, None)).error_code, ErrorCode.NONE)
    k.until_value(c, resource, key, (default.value, default.config_source))


INVALID: dict[str, tuple[str, str | None, ErrorCode]] = {
    "no-number": (INTERVAL, "soon", ErrorCode.INVALID_CONFIG),
    "negative": (SESSION, "-1", ErrorCode.INVALID_CONFIG),
    "zero": (INTERVAL, "0", ErrorCode.INVALID_CONFIG),
    "of-topics": ("retention.ms", "1", ErrorCode.INVALID_CONFIG),
    "of-brokers": ("group.consumer.session.timeout.ms", "50000", ErrorCode.INVALID_CONFIG),
    "unknown": ("consumer.no.such.config", "1", ErrorCode.INVALID_CONFIG),
    "null": (SESSION, None, ErrorCode.INVALID_REQUEST),
}


@case(
    "group-configs.alter.invalid",
    "a config that a group cannot have is rejected",
    source=SOURCE,
    features=FEATURES,
    needs=ALTER,
    variants=dict(INVALID),
    alters_configs=True,
)
def invalid(c: Check, key: str, wanted: str | None, expected: ErrorCode) -> None:
    """Sends: IncrementalAlterConfigs with a valid config of a group, and one that is invalid.

    Expects: an error with a message, and none of both is set.

    Why: a typing error in a setting must be noticed immediately, and not when consumers time out.
    """
    resource = group(c)
    valid = SESSION if key == INTERVAL else INTERVAL
    default = broker_value(c, f"group.{valid}")
    change = (valid, k.SET, default.value)
    answer = k.alter(c, resource, change, (key, k.SET, wanted))
    c.error(answer.error_code, expected)
    c.true(answer.error_message, "error_message", expected="a message", actual=answer.error_message)
    c.equal(k.value(c, resource, valid), (default.value, default.config_source), "value and source of the valid config")


@case(
    "group-configs.alter.limits",
    "the broker's limits apply to a group's timeouts and intervals",
    source=SOURCE,
    features=FEATURES,
    needs=ALTER,
    variants={
        "session-low": (SESSION, "group.consumer.min.session.timeout.ms", -1),
        "session-high": (SESSION, "group.consumer.max.session.timeout.ms", 1),
        "interval-low": (INTERVAL, "group.consumer.min.heartbeat.interval.ms", -1),
        "interval-high": (INTERVAL, "group.consumer.max.heartbeat.interval.ms", 1),
    },
    alters_configs=True,
)
def limits(c: Check, key: str, limit: str, beyond: int) -> None:
    """Sends: IncrementalAlterConfigs with the broker's limit plus or minus one; then with the limit.

    Expects: INVALID_CONFIG, and the value is not set; no error for the limit, which is set.

    Why: limits protect the coordinator from consumers that send heartbeats all the time, or block partitions for hours.
    """
    resource = group(c)
    edge = int(broker_value(c, limit).value)
    default = broker_value(c, f"group.{key}")
    answer = k.alter(c, resource, (key, k.SET, str(edge + beyond)))
    c.error(answer.error_code, ErrorCode.INVALID_CONFIG, f"error_code for {edge + beyond}")
    c.equal(k.value(c, resource, key), (default.value, default.config_source), "value and source after the error")
    c.error(k.alter(c, resource, (key, k.SET, str(edge))).error_code, ErrorCode.NONE, f"error_code for {edge}")
    k.until_value(c, resource, key, (str(edge), k.DYNAMIC_GROUP))
    c.error(k.alter(c, resource, (key, k.DELETE, None)).error_code, ErrorCode.NONE, "error_code of the deletion")


@case(
    "group-configs.alter.validate-only",
    "a config of a group is validated without being set",
    source="KIP-339",
    features=FEATURES,
    needs=ALTER,
    alters_configs=True,
)
def validate_only(c: Check) -> None:
    """Sends: IncrementalAlterConfigs with validate_only, with a valid and with an invalid value; then the valid one for
    another group without it.

    Expects: no error, INVALID_CONFIG, no error; when the other group's value is visible, the first group has none.

    Why: tools check a change before they make it.
    """
    resource, other = group(c), group(c)
    default = broker_value(c, f"group.{SESSION}")
    wanted = allowed_session(c)
    valid = k.alter(c, resource, (SESSION, k.SET, wanted), validate_only=True)
    c.error(valid.error_code, ErrorCode.NONE, "error_code of the valid value")
    bad = k.alter(c, resource, (SESSION, k.SET, "soon"), validate_only=True)
    c.error(bad.error_code, ErrorCode.INVALID_CONFIG, "error_code of the invalid value")
    c.error(k.alter(c, other, (SESSION, k.SET, wanted)).error_code, ErrorCode.NONE, "error_code for the other group")
    k.until_value(c, other, SESSION, (wanted, k.DYNAMIC_GROUP))
    c.equal(
        k.value(c, resource, SESSION), (default.value, default.config_source), "value and source of the first group"
    )
    k.alter(c, other, (SESSION, k.DELETE, None))


@case(
    "group-configs.list",
    "ListConfigResources returns groups with configs",
    source="KIP-1142",
    features=FEATURES,
    needs=(*ALTER, *needs(ApiKey.LIST_CONFIG_RESOURCES, 1)),
    alters_configs=True,
)
def list_resources(c: Check) -> None:
    """Sends: ListConfigResources for groups, for topics and for all types, before and while a group has a config.

    Expects: the group, with type GROUP, only while it has a config, and not among topics.

    Why: this is how configs of groups that no longer exist are found.
    """
    resource, other = group(c), group(c)

    def listed(*types: int) -> list[Resource]:
        answer = c.call(ListConfigResourcesRequest(resource_types=list(types)))
        c.error(answer.error_code, ErrorCode.NONE, "ListConfigResources error_code")
        found = [Resource(each.resource_type, each.resource_name) for each in answer.config_resources]
        return [each for each in found if each.name in (resource.name, other.name)]

    c.equal(listed(k.GROUP), [], "the groups before")
    c.error(k.alter(c, resource, (SESSION, k.SET, allowed_session(c))).error_code, ErrorCode.NONE)
    k.until_value(c, resource, SESSION, (allowed_session(c), k.DYNAMIC_GROUP))
    c.equal(listed(k.GROUP), [resource], "the case's groups")
    c.equal(listed(), [resource], "the case's resources of all types")
    c.equal(listed(k.TOPIC), [], "the case's groups among the topics")
    c.error(k.alter(c, resource, (SESSION, k.DELETE, None)).error_code, ErrorCode.NONE)
    c.until(lambda: not listed(k.GROUP), "a list without the group")


@case(
    "group-configs.heartbeat-interval",
    "members get the heartbeat interval of their group",
    source=SOURCE,
    features=FEATURES,
    needs=(*ALTER, *needs(ApiKey.CONSUMER_GROUP_HEARTBEAT, 0)),
    alters_configs=True,
)
def heartbeat_interval(c: Check) -> None:
    """Sends: heartbeats of a member before, while and after its group has its own interval; and of another group.

    Expects: the broker's interval, the group's, the broker's again; the other group has the broker's interval.

    Why: the interval is the server's choice since KIP-848, and members follow without a restart.
    """
    resource, other = group(c), group(c)
    topic = c.topic()
    default = int(broker_value(c, f"group.{INTERVAL}").value)
    member, stranger = ConsumerMember(c, resource.name, topic), ConsumerMember(c, other.name, topic)
    c.equal(member.join().heartbeat_interval_ms, default, "heartbeat_interval_ms of the first heartbeat")
    c.error(k.alter(c, resource, (INTERVAL, k.SET, str(default + 17))).error_code, ErrorCode.NONE)
    c.until(lambda: member.heartbeat().heartbeat_interval_ms == default + 17, "the group's interval")
    c.equal(stranger.join().heartbeat_interval_ms, default, "heartbeat_interval_ms of another group")
    c.error(k.alter(c, resource, (INTERVAL, k.DELETE, None)).error_code, ErrorCode.NONE)
    c.until(lambda: member.heartbeat().heartbeat_interval_ms == default, "the broker's interval again")


@case(
    "group-configs.assignment-interval",
    "a new assignment waits for the group's interval",
    source="KIP-1263",
    features=FEATURES,
    needs=(*ALTER, *needs(ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, ApiKey.CONSUMER_GROUP_DESCRIBE, 0)),
    since=Release(4, 3),
    alters_configs=True,
)
def assignment_interval(c: Check) -> None:
    """Sends: to a stable group with the longest interval between assignments, a second member; then the interval 0.

    Expects: the state Assigning with an assignment epoch below the group's, and no change for the first member, until
    the interval is 0; then all partitions are distributed.

    Why: large groups that start at the same time must not be rebalanced for each member.
    """
    resource = group(c)
    topic = c.topic(2)
    highest = broker_value(c, "group.consumer.max.assignment.interval.ms").value
    first, second = ConsumerMember(c, resource.name, topic), ConsumerMember(c, resource.name, topic)
    with c.setup("a group with a long assignment interval"):
        c.error(k.alter(c, resource, (ASSIGNMENT, k.SET, highest)).error_code, ErrorCode.NONE)
        k.until_value(c, resource, ASSIGNMENT, (highest, k.DYNAMIC_GROUP))
        first.join()
        g.settle(c, first)
    epoch = first.epoch
    second.join()
    for _ in range(3):
        second.follow()
        first.follow()
    c.equal((first.owned, first.epoch), ({topic.topic_id: [0, 1]}, epoch), "assignment and epoch of the first member")
    c.equal(second.owned, {}, "assignment of the second member")
    found = g.describe(c, resource.name)
    c.equal(found.group_state, "Assigning", "group_state")
    c.equal((found.group_epoch, found.assignment_epoch), (epoch + 1, epoch), "group_epoch and assignment_epoch")
    c.error(k.alter(c, resource, (ASSIGNMENT, k.SET, "0")).error_code, ErrorCode.NONE)
    g.settle(c, first, second)
    c.equal(sorted(first.partitions + second.partitions), [0, 1], "the partitions of both members")
    k.alter(c, resource, (ASSIGNMENT, k.DELETE, None))

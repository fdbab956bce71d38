"""Consumer groups in the requests of all groups: ListGroups, DescribeGroups, DeleteGroups; and without the feature."""

from __future__ import annotations

from ...protocol.api import ApiKey
from ...protocol.errors import ErrorCode
from ...protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from ...protocol.messages.delete_groups import DeleteGroupsRequest
from ...protocol.messages.describe_groups import DescribeGroupsRequest
from .. import committed_offsets as o
from .. import consumer_group as g
from ..case import Layer, Level, case, needs, versions_of
from ..check import Check
from ..consumer_group import FEATURES, ConsumerMember
from ..outcome import NotApplicableError

HEARTBEAT = needs(ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, ApiKey.CONSUMER_GROUP_DESCRIBE, 0)


@case(
    "consumer-groups.list.exchange",
    "ListGroups returns consumer groups",
    source="KIP-848: ListGroups API",
    layer=Layer.WIRE,
    features=FEATURES,
    needs=HEARTBEAT,
    versions=versions_of(ApiKey.LIST_GROUPS),
)
def list_exchange(c: Check, version: int) -> None:
    """Sends: ListGroups while a stable consumer group exists.

    Expects: the group with protocol type consumer; since version 4 its state, and since version 5 its type consumer.

    Why: tools choose the API that describes a group by its type.
    """
    group = c.group()
    member = ConsumerMember(c, group, c.topic())
    g.stable(c, member)
    found = g.listed(c, group, version=version)
    c.equal(list(found), [group], "the case's groups in the response")
    c.equal(found[group].protocol_type, "consumer", "protocol_type")
    if version >= 4:
        c.equal(found[group].group_state, "Stable", "group_state")
    if version >= 5:
        c.equal(found[group].group_type, "consumer", "group_type")


@case(
    "consumer-groups.list.filters",
    "ListGroups filters by type and by state, ignoring case",
    source="KIP-518 and KIP-848: ListGroups API",
    features=FEATURES,
    needs=(*HEARTBEAT, *needs(ApiKey.LIST_GROUPS, 5)),
    variants={
        "consumer": ((), ("consumer",), "consumer-stable consumer-empty"),
        "consumer-upper-case": ((), ("CONSUMER",), "consumer-stable consumer-empty"),
        "classic": ((), ("classic",), "classic-empty"),
        "both": ((), ("classic", "consumer"), "consumer-stable consumer-empty classic-empty"),
        "share": ((), ("share",), ""),
        "unknown-type": ((), ("no-such-type",), ""),
        "stable": (("Stable",), (), "consumer-stable"),
        "stable-lower-case": (("stable",), (), "consumer-stable"),
        "empty": (("Empty",), (), "consumer-empty classic-empty"),
        "empty-consumer": (("Empty",), ("consumer",), "consumer-empty"),
        "stable-classic": (("Stable",), ("classic",), ""),
        "unknown-state": (("no-such-state",), (), ""),
    },
)
def list_filters(c: Check, states: tuple[str, ...], types: tuple[str, ...], expected: str) -> None:
    """Sends: ListGroups with filters, while a stable and an empty consumer group and an empty classic group exist.

    Expects: the groups of these states and types, and no others; no error for a state or a type that does not exist.

    Why: a tool for one kind of groups must not see those that it cannot describe.
    """
    topic = c.topic()
    names = {name: c.group(name) for name in ("consumer-stable", "consumer-empty", "classic-empty")}
    stable, empty = (ConsumerMember(c, names[name], topic) for name in ("consumer-stable", "consumer-empty"))
    g.stable(c, stable)
    with c.setup("empty groups"):
        empty.join()
        c.error(empty.leave().error_code, ErrorCode.NONE)
        classic = names["classic-empty"]
        o.committed_before(c, c.coordinator(classic), o.commit_request(classic, topic, {0: 1}))
    found = g.listed(c, *names.values(), states=states, types=types)
    words = {group: word for word, group in names.items()}
    c.equal(sorted(words[group] for group in found), sorted(expected.split()), "the groups in the response")


@case(
    "consumer-groups.describe-groups",
    "DescribeGroups does not describe a consumer group",
    source="KIP-848 and KIP-1043",
    features=FEATURES,
    needs=HEARTBEAT,
    versions=versions_of(ApiKey.DESCRIBE_GROUPS),
)
def describe_groups(c: Check, version: int) -> None:
    """Sends: DescribeGroups for a stable consumer group.

    Expects: the state Dead without members; since version 6 also GROUP_ID_NOT_FOUND with a message.

    Why: a tool that knows classic groups only must not take a consumer group for one without members and delete it.
    """
    group = c.group()
    member = ConsumerMember(c, group, c.topic())
    g.stable(c, member)
    (found,) = c.call(DescribeGroupsRequest(groups=[group]), version, to=member.wire).groups
    c.equal((found.group_id, found.group_state, found.members), (group, "Dead", []), "group, state and members")
    c.error(found.error_code, ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else ErrorCode.NONE)
    if version >= 6:
        c.true(found.error_message, "error_message", expected="a message", actual=found.error_message)


@case(
    "consumer-groups.describe.classic-group",
    "ConsumerGroupDescribe does not describe a classic group",
    source="KIP-848: ConsumerGroupDescribe API",
    features=FEATURES,
    needs=HEARTBEAT,
    versions=versions_of(ApiKey.CONSUMER_GROUP_DESCRIBE),
)
def describe_classic(c: Check, version: int) -> None:
    """Sends: ConsumerGroupDescribe for a classic group that has offsets only.

    Expects: GROUP_ID_NOT_FOUND with a message, and no members.

    Why: by this error tools find out that they must use DescribeGroups.
    """
    group = c.group()
    wire = c.coordinator(group)
    o.committed_before(c, wire, o.commit_request(group, c.topic(), {0: 1}))
    found = g.describe(c, group, version, to=wire)
    c.error(found.error_code, ErrorCode.GROUP_ID_NOT_FOUND)
    c.true(found.error_message, "error_message", expected="a message", actual=found.error_message)
    c.equal(found.members, [], "members")


@case(
    "consumer-groups.delete",
    "a consumer group is deleted when it is empty",
    source="KIP-229 and KIP-848",
    features=FEATURES,
    needs=HEARTBEAT,
    versions=versions_of(ApiKey.DELETE_GROUPS),
)
def delete(c: Check, version: int) -> None:
    """Sends: DeleteGroups for a consumer group with a member and a committed offset; again after the member has left.

    Expects: NON_EMPTY_GROUP, and the member stays; then no error. The group and its offsets no longer exist.

    Why: deleting a group that is in use loses the progress of its application.
    """
    topic = c.topic()
    group = c.group()
    member = ConsumerMember(c, group, topic)
    o.committed_before(c, member.wire, o.commit_request(group, topic, {0: 4}))
    g.stable(c, member)

    def error_of() -> int:
        results = c.call(DeleteGroupsRequest(groups_names=[group]), version, to=member.wire).results
        c.equal([each.group_id for each in results], [group], "results (group_id)")
        return int(results[0].error_code)

    c.error(error_of(), ErrorCode.NON_EMPTY_GROUP, "error_code with a member")
    c.error(member.heartbeat().error_code, ErrorCode.NONE, "error_code of the member's heartbeat")
    c.equal(o.offsets(c, member.wire, group, topic, [0]), {0: 4}, "the committed offset")
    member.leave()
    c.error(error_of(), ErrorCode.NONE, "error_code of the empty group")
    c.error(g.describe(c, group, to=member.wire).error_code, ErrorCode.GROUP_ID_NOT_FOUND, "error_code of Describe")
    c.equal(g.listed(c, group), {}, "ListGroups")
    c.equal(o.offsets(c, member.wire, group, topic, [0]), {0: -1}, "the offset of the deleted group")
    c.error(error_of(), ErrorCode.GROUP_ID_NOT_FOUND, "error_code of the deleted group")


@case(
    "consumer-groups.recreated",
    "a group that was deleted begins again",
    source="KIP-848: Group Epoch",
    level=Level.SHOULD,
    features=FEATURES,
    needs=HEARTBEAT,
)
def recreated(c: Check) -> None:
    """Sends: the only member leaves, the group is deleted, and a new member joins a group of the same name.

    Expects: the first epoch once more, and all partitions for the new member; the old one is unknown.

    Why: nothing of a deleted group may have an effect on its successor.
    """
    topic = c.topic(2)
    group = c.group()
    old, new = ConsumerMember(c, group, topic), ConsumerMember(c, group, topic)
    g.stable(c, old)
    first = old.epoch
    with c.setup("a deleted group"):
        old.leave()
        (result,) = c.call(DeleteGroupsRequest(groups_names=[group]), to=old.wire).results
        c.error(result.error_code, ErrorCode.NONE, "DeleteGroups error_code")
    new.join()
    g.settle(c, new)
    c.equal((new.epoch, new.owned), (first, {topic.topic_id: [0, 1]}), "epoch and assignment of the new member")
    c.error(old.heartbeat().error_code, ErrorCode.UNKNOWN_MEMBER_ID, "error_code of the old member")


@case(
    "consumer-groups.disabled",
    "without the feature group.version the APIs of consumer groups are rejected",
    source="KIP-848: Public Interfaces, group.version",
    level=Level.SHOULD,
    needs=needs(ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, ApiKey.CONSUMER_GROUP_DESCRIBE, 0),
)
def disabled(c: Check) -> None:
    """Sends: to a server without the finalized feature group.version, which has the APIs nevertheless: a first
    heartbeat and ConsumerGroupDescribe.

    Expects: UNSUPPORTED_VERSION for both, and no group.

    Why: clients with group.protocol=consumer report by this error that the cluster must be upgraded.
    """
    if c.target.features.get("group.version", 0) >= 1:
        raise NotApplicableError("the feature group.version is finalized")
    group = c.group()
    member = ConsumerMember(c, group, c.topic())
    c.error(member.try_join(0).error_code, ErrorCode.UNSUPPORTED_VERSION, "ConsumerGroupHeartbeat error_code")
    (found,) = c.call(ConsumerGroupDescribeRequest(group_ids=[group]), 0, to=member.wire).groups
    c.error(found.error_code, ErrorCode.UNSUPPORTED_VERSION, "ConsumerGroupDescribe error_code")
    c.equal(g.listed(c, group), {}, "ListGroups")

"""ShareGroupHeartbeat and ShareGroupDescribe, and share groups in the requests of all groups (KIP-932)."""

from __future__ import annotations

from typing import Any

from ...protocol.api import ApiKey
from ...protocol.errors import ErrorCode
from ...protocol.messages.delete_groups import DeleteGroupsRequest
from ...protocol.messages.describe_groups import DescribeGroupsRequest
from ...protocol.messages.find_coordinator import FindCoordinatorRequest
from ...protocol.messages.share_group_describe import ShareGroupDescribeRequest
from ...protocol.uuid import uuid_to_str
from .. import consumer_group as g
from .. import share_group as s
from ..case import Layer, Level, case, needs, versions_of
from ..check import Check
from ..classic_group import ClassicGroup
from ..consumer_group import ConsumerMember
from ..group_configs import is_config
from ..share_group import FEATURES, MEMBERS, ShareMember

SOURCE = "KIP-932: ShareGroupHeartbeat API"
SHARE = 2
"""The type of share coordinators in FindCoordinator."""


def rejected(c: Check, answer: Any, expected: ErrorCode) -> None:
    """Compare the whole response to a heartbeat that is rejected."""
    c.error(answer.error_code, expected)
    c.true(answer.error_message, "error_message", expected="a message", actual=answer.error_message)
    c.equal((answer.member_epoch, answer.assignment), (0, None), "member_epoch and assignment")


@case(
    "share-groups.heartbeat.exchange",
    "a member of a share group joins, is assigned all partitions, stays and leaves",
    source=SOURCE,
    layer=Layer.WIRE,
    features=FEATURES,
    needs=MEMBERS,
    versions=versions_of(ApiKey.SHARE_GROUP_HEARTBEAT),
)
def exchange(c: Check, version: int) -> None:
    """Sends: ShareGroupHeartbeat of the only member of a new group: epoch 0 with its subscription, then its epoch until
    it has an assignment, then epoch -1.

    Expects: its member ID, a positive epoch and the group's heartbeat interval each time; both partitions of the topic;
    no assignment in the response to a heartbeat without news; at the end epoch -1, after which it is unknown.

    Why: a share consumer has no other source for its epoch, its interval and its partitions.
    """
    topic = c.topic(2)
    member = ShareMember(c, c.group(), topic)

    def heartbeat() -> bool:
        answer = member.heartbeat(version) if member.epoch else member.join(version)
        c.error(answer.error_code, ErrorCode.NONE)
        c.equal((answer.error_message, answer.member_id), (None, member.member_id), "error_message and member_id")
        c.true(answer.member_epoch > 0, "member_epoch", expected="a positive epoch", actual=answer.member_epoch)
        is_config(c, answer.heartbeat_interval_ms, member.group, "share.heartbeat.interval.ms", "heartbeat_interval_ms")
        return bool(member.assigned)

    c.until(heartbeat, "an assignment for the only member")
    c.equal(member.assigned, {topic.topic_id: [0, 1]}, "assignment")
    epoch = member.epoch
    answer = member.heartbeat(version)
    c.error(answer.error_code, ErrorCode.NONE)
    c.equal((answer.member_epoch, answer.assignment), (epoch, None), "member_epoch and assignment without news")
    answer = member.heartbeat(version, member_epoch=-1)
    c.error(answer.error_code, ErrorCode.NONE, "error_code of the last heartbeat")
    c.equal((answer.member_id, answer.member_epoch), (member.member_id, -1), "member_id and member_epoch")
    rejected(c, member.heartbeat(version, member_epoch=epoch), ErrorCode.UNKNOWN_MEMBER_ID)


@case(
    "share-groups.heartbeat.unknown-member",
    "a member that the share group does not have is rejected",
    source=SOURCE,
    layer=Layer.WIRE,
    features=FEATURES,
    needs=MEMBERS,
    versions=versions_of(ApiKey.SHARE_GROUP_HEARTBEAT),
)
def unknown_member(c: Check, version: int) -> None:
    """Sends: heartbeats with epochs 3 and -1 of an unknown member, to a group with a member and to no group.

    Expects: UNKNOWN_MEMBER_ID for the first group, GROUP_ID_NOT_FOUND for the second, which is not created.

    Why: a share consumer that was removed must notice it and join again.
    """
    group, none = c.group(), c.group("none")
    topic = c.topic()
    s.joined(c, ShareMember(c, group, topic))
    stranger, lost = ShareMember(c, group, topic), ShareMember(c, none, topic)
    for epoch in (3, -1):
        rejected(c, stranger.heartbeat(version, member_epoch=epoch), ErrorCode.UNKNOWN_MEMBER_ID)
        rejected(c, lost.heartbeat(version, member_epoch=epoch), ErrorCode.GROUP_ID_NOT_FOUND)
    c.equal(list(g.listed(c, group, none)), [group], "the case's groups in ListGroups")


@case(
    "share-groups.heartbeat.invalid",
    "a first heartbeat with an invalid field is rejected",
    source=SOURCE,
    layer=Layer.WIRE,
    features=FEATURES,
    needs=MEMBERS,
    variants={
        "group-id-empty": ({"group_id": ""},),
        "group-id-blank": ({"group_id": "  "},),
        "member-id-empty": ({"member_id": ""},),
        "member-id-blank": ({"member_id": "  "},),
        "rack-id-blank": ({"rack_id": " "},),
        "no-subscription": ({"subscribed_topic_names": None},),
        "empty-subscription": ({"subscribed_topic_names": []},),
        "epoch-minus-2": ({"member_epoch": -2},),
    },
)
def invalid(c: Check, fields: dict[str, Any]) -> None:
    """Sends: a first ShareGroupHeartbeat to a new group in which one field is invalid.

    Expects: INVALID_REQUEST with epoch 0 and no assignment, and no group.

    Why: an incomplete first heartbeat would create a member that is never assigned anything.
    """
    group = c.group()
    answer = ShareMember(c, group, c.topic()).join(**fields)
    c.error(answer.error_code, ErrorCode.INVALID_REQUEST)
    c.equal((answer.member_epoch, answer.assignment), (0, None), "member_epoch and assignment")
    c.equal(g.listed(c, group), {}, "ListGroups")


@case(
    "share-groups.epochs.fenced",
    "a heartbeat with a future epoch is fenced",
    source=SOURCE,
    features=FEATURES,
    needs=MEMBERS,
)
def fenced(c: Check) -> None:
    """Sends: a heartbeat with the member's epoch plus one, then with its epoch.

    Expects: FENCED_MEMBER_EPOCH; then no error.

    Why: such a member belongs to another group of that name.
    """
    member = ShareMember(c, c.group(), c.topic())
    s.joined(c, member)
    rejected(c, member.heartbeat(member_epoch=member.epoch + 1), ErrorCode.FENCED_MEMBER_EPOCH)
    c.error(member.heartbeat().error_code, ErrorCode.NONE, "error_code with the right epoch")


@case(
    "share-groups.assignment.shared",
    "more members than partitions: members share a partition",
    source="KIP-932: Share Group Assignment",
    features=FEATURES,
    needs=MEMBERS,
)
def shared(c: Check) -> None:
    """Sends: two members of a topic with one partition join; one leaves.

    Expects: the partition is assigned to both members, and stays with the second.

    Why: the number of share consumers is not limited by the number of partitions.
    """
    topic = c.topic()
    group = c.group()
    members = [ShareMember(c, group, topic) for _ in range(2)]
    s.joined(c, *members)
    for member in members:
        c.equal(member.assigned, {topic.topic_id: [0]}, "assignment")
    members[0].heartbeat(member_epoch=-1)
    found = s.describe(c, group)
    c.equal([each.member_id for each in found.members], [members[1].member_id], "members")
    c.equal(members[1].follow(), {topic.topic_id: [0]}, "assignment of the remaining member")


@case(
    "share-groups.describe.exchange",
    "ShareGroupDescribe returns the state of a share group and its members",
    source="KIP-932: ShareGroupDescribe API",
    layer=Layer.WIRE,
    features=FEATURES,
    needs=MEMBERS,
    versions=versions_of(ApiKey.SHARE_GROUP_DESCRIBE),
)
def describe(c: Check, version: int) -> None:
    """Sends: ShareGroupDescribe of a stable group with one member.

    Expects: state Stable, equal epochs, assignor simple, and the member with its client, rack, subscription and
    assignment by topic ID and name; no authorized operations. After the member has left: Empty without members.

    Why: kafka-share-groups.sh shows these fields.
    """
    topic = c.topic(2)
    group = c.group()
    wire = c.connect(client_id="share-client", address=c.coordinator(group).address)
    member = ShareMember(c, group, topic, wire=wire)
    with c.setup("a share group with an assignment"):
        c.error(member.join(rack_id="rack").error_code, ErrorCode.NONE)
        c.until(member.follow, "an assignment")
    found = s.describe(c, group, version)
    c.error(found.error_code, ErrorCode.NONE)
    c.equal((found.group_state, found.assignor_name), ("Stable", "simple"), "group_state and assignor_name")
    c.equal((found.group_epoch, found.assignment_epoch), (member.epoch, member.epoch), "the epochs of the group")
    c.equal(found.authorized_operations, -(2**31), "authorized_operations")
    c.equal(len(found.members), 1, "members (number)")
    one = found.members[0]
    identity = one.member_id, one.rack_id, one.member_epoch, one.client_id
    c.equal(identity, (member.member_id, "rack", member.epoch, "share-client"), "IDs, rack and epoch of the member")
    g.is_address(c, one.client_host, "client_host")
    c.equal(one.subscribed_topic_names, [topic.name], "subscribed_topic_names")
    assigned = [(each.topic_id, each.topic_name, sorted(each.partitions)) for each in one.assignment.topic_partitions]
    c.equal(assigned, [(topic.topic_id, topic.name, [0, 1])], "assignment")
    member.heartbeat(member_epoch=-1)
    empty = s.describe(c, group, version)
    c.equal((empty.group_state, empty.members), ("Empty", []), "group_state and members of the empty group")


@case(
    "share-groups.describe.unknown-group",
    "ShareGroupDescribe rejects a group that does not exist or is no share group",
    source="KIP-932: ShareGroupDescribe API",
    layer=Layer.WIRE,
    features=FEATURES | g.FEATURES,
    needs=MEMBERS,
    versions=versions_of(ApiKey.SHARE_GROUP_DESCRIBE),
)
def describe_unknown(c: Check, version: int) -> None:
    """Sends: ShareGroupDescribe of an unknown group, and of a consumer group.

    Expects: GROUP_ID_NOT_FOUND with a message for both, and no members.

    Why: tools find out the type of a group by this error.
    """
    consumer = ConsumerMember(c, c.group(), c.topic())
    g.stable(c, consumer)
    for group in (c.name("unknown"), consumer.group):
        found = s.describe(c, group, version)
        c.error(found.error_code, ErrorCode.GROUP_ID_NOT_FOUND)
        c.true(found.error_message, "error_message", expected="a message", actual=found.error_message)
        c.equal(found.members, [], "members")


@case(
    "share-groups.describe.authorized-operations",
    "ShareGroupDescribe returns what the principal may do, if it is requested",
    source="KIP-430 and KIP-932",
    level=Level.SHOULD,
    features=FEATURES,
    needs=MEMBERS,
)
def authorized_operations(c: Check) -> None:
    """Sends: ShareGroupDescribe with include_authorized_operations.

    Expects: at least READ (bit 3) and DESCRIBE (bit 8), and operations of groups only.

    Why: a user interface shows only what its user may do.
    """
    member = ShareMember(c, c.group(), c.topic())
    s.joined(c, member)
    request = ShareGroupDescribeRequest(group_ids=[member.group], include_authorized_operations=True)
    (found,) = c.call(request, to=member.wire).groups
    operations = found.authorized_operations
    c.equal(operations & (1 << 3 | 1 << 8), 1 << 3 | 1 << 8, "authorized_operations, as far as READ and DESCRIBE")
    everything = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11
    c.equal(operations & ~everything, 0, "authorized_operations other than those of groups")


@case(
    "share-groups.list",
    "ListGroups returns share groups, and filters them by type",
    source="KIP-932: ListGroups API",
    features=FEATURES,
    needs=(*MEMBERS, *needs(ApiKey.LIST_GROUPS, 5)),
)
def list_groups(c: Check) -> None:
    """Sends: ListGroups without filters, with type share, with type consumer, and with state Empty.

    Expects: the share group with protocol type share, type share and state Stable in the first two; not in the others.

    Why: tools choose the API that describes a group by its type.
    """
    member = ShareMember(c, c.group(), c.topic())
    s.joined(c, member)
    for types in ((), ("share",), ("Share", "classic")):
        found = g.listed(c, member.group, types=types)
        shown = [(each.protocol_type, each.group_type, each.group_state) for each in found.values()]
        c.equal(shown, [("share", "share", "Stable")], f"the group with the types {types}")
    c.equal(g.listed(c, member.group, types=("consumer", "classic")), {}, "the group with the other types")
    c.equal(g.listed(c, member.group, states=("Empty",)), {}, "the group with the state Empty")


@case(
    "share-groups.other-protocols",
    "members of other protocols cannot join a share group",
    source="KIP-932: Group Type",
    features=FEATURES | g.FEATURES,
    needs=(*MEMBERS, *needs(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, ApiKey.JOIN_GROUP, 9)),
)
def other_protocols(c: Check) -> None:
    """Sends: JoinGroup, ConsumerGroupHeartbeat and DescribeGroups for a share group; ShareGroupHeartbeat for a consumer
    group.

    Expects: INCONSISTENT_GROUP_PROTOCOL, GROUP_ID_NOT_FOUND, state Dead; GROUP_ID_NOT_FOUND. Both groups continue.

    Why: an application that uses the same name for both must not take the other one's records.
    """
    topic = c.topic()
    member = ShareMember(c, c.group(), topic)
    s.joined(c, member)
    classic = ClassicGroup(c, member.group).member()
    classic.member_id = "chosen by the client"
    c.error(classic.ask_join().error_code, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "JoinGroup error_code")
    classic.member_id = ""
    consumer = ConsumerMember(c, member.group, topic)
    g.rejected(c, consumer.try_join(), ErrorCode.GROUP_ID_NOT_FOUND)
    (found,) = c.call(DescribeGroupsRequest(groups=[member.group]), to=member.wire).groups
    c.equal((found.group_state, found.members), ("Dead", []), "DescribeGroups group_state and members")
    c.error(member.heartbeat().error_code, ErrorCode.NONE, "error_code of the share member")
    other = ConsumerMember(c, c.group(), topic)
    g.stable(c, other)
    rejected(c, ShareMember(c, other.group, topic).join(), ErrorCode.GROUP_ID_NOT_FOUND)
    c.error(other.heartbeat().error_code, ErrorCode.NONE, "error_code of the consumer member")


@case(
    "share-groups.delete",
    "a share group is deleted when it is empty",
    source="KIP-932: DeleteGroups API",
    features=FEATURES,
    needs=(*MEMBERS, *needs(ApiKey.DELETE_GROUPS, 2)),
)
def delete(c: Check) -> None:
    """Sends: DeleteGroups for a share group with a member, and again after it has left.

    Expects: NON_EMPTY_GROUP, then no error, and the group no longer exists.

    Why: kafka-share-groups.sh --delete does this.
    """
    member = ShareMember(c, c.group(), c.topic())
    s.joined(c, member)

    def error_of() -> int:
        (result,) = c.call(DeleteGroupsRequest(groups_names=[member.group]), to=member.wire).results
        c.equal(result.group_id, member.group, "results[0].group_id")
        return int(result.error_code)

    c.error(error_of(), ErrorCode.NON_EMPTY_GROUP, "error_code with a member")
    c.error(member.heartbeat().error_code, ErrorCode.NONE, "error_code of the member's heartbeat")
    member.heartbeat(member_epoch=-1)
    c.error(error_of(), ErrorCode.NONE, "error_code of the empty group")
    c.error(s.describe(c, member.group).error_code, ErrorCode.GROUP_ID_NOT_FOUND, "ShareGroupDescribe error_code")


@case(
    "share-groups.find-coordinator",
    "FindCoordinator finds the share coordinator of a share partition",
    source="KIP-932: FindCoordinator API",
    features=FEATURES,
    needs=(*MEMBERS, *needs(ApiKey.FIND_COORDINATOR, 6)),
)
def find_coordinator(c: Check) -> None:
    """Sends: FindCoordinator with type 2 and the key GROUP:TOPIC-ID:PARTITION; and with a key without these parts.

    Expects: a broker of the cluster; INVALID_REQUEST for the second key.

    Why: brokers store the state of share partitions there.
    """
    topic = c.topic()
    key = f"{c.name()}:{uuid_to_str(topic.topic_id)}:0"
    c.coordinator(key, SHARE)
    (found,) = c.call(FindCoordinatorRequest(key_type=SHARE, coordinator_keys=[key]), 6).coordinators
    c.error(found.error_code, ErrorCode.NONE)
    c.equal(found.key, key, "coordinators[0].key")
    c.true(found.node_id in c.target.brokers, "node_id", expected="a broker's", actual=found.node_id)
    (bad,) = c.call(FindCoordinatorRequest(key_type=SHARE, coordinator_keys=["no-share-partition"]), 6).coordinators
    c.error(bad.error_code, ErrorCode.INVALID_REQUEST, "error_code of a key that is no share partition")

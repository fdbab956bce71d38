"""ConsumerGroupHeartbeat in each version, and how members join and leave (KIP-848)."""

from __future__ import annotations

from typing import Any

from ...protocol.api import ApiKey
from ...protocol.errors import ErrorCode
from ...protocol.messages.consumer_group_heartbeat import TopicPartitions
from .. import consumer_group as g
from ..case import Layer, Level, case, needs, versions_of
from ..check import Check
from ..consumer_group import FEATURES, LEAVE, ConsumerMember, share
from ..group_configs import INTERVAL, is_config

HEARTBEAT = needs(ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, ApiKey.CONSUMER_GROUP_DESCRIBE, 0)
VERSION_1 = needs(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, ApiKey.CONSUMER_GROUP_DESCRIBE, 0)


@case(
    "consumer-groups.heartbeat.exchange",
    "a member joins, is assigned all partitions, stays and leaves",
    source="KIP-848: ConsumerGroupHeartbeat API",
    layer=Layer.WIRE,
    features=FEATURES,
    needs=HEARTBEAT,
    versions=versions_of(ApiKey.CONSUMER_GROUP_HEARTBEAT),
)
def exchange(c: Check, version: int) -> None:
    """Sends: ConsumerGroupHeartbeat of the only member of a new group: epoch 0 with its subscription, then its epoch
    until it has an assignment, then with its partitions, then epoch -1.

    Expects: its member ID, a positive epoch and the group's heartbeat interval each time; all three partitions of
    the topic by topic ID, once; no assignment in the response to a heartbeat without news; at the end epoch -1, and no
    assignment.

    Why: a consumer has no other source for its identity, its epoch, its interval and its partitions.
    """
    topic = c.topic(3)
    member = ConsumerMember(c, c.group(), topic)
    member_id = member.member_id
    epochs: list[int] = []

    def heartbeat() -> bool:
        answer = member.heartbeat(version) if epochs else member.join(version)
        c.error(answer.error_code, ErrorCode.NONE)
        c.true(not answer.error_message, "error_message", expected="none", actual=answer.error_message)
        c.equal(answer.member_id, member_id, "member_id")
        c.true(answer.member_epoch > 0, "member_epoch", expected="a positive epoch", actual=answer.member_epoch)
        is_config(c, answer.heartbeat_interval_ms, member.group, INTERVAL, "heartbeat_interval_ms")
        epochs.append(answer.member_epoch)
        return bool(member.owned)

    c.until(heartbeat, "an assignment for the only member")
    c.equal(member.owned, {topic.topic_id: [0, 1, 2]}, "assignment")
    c.equal(sorted(epochs), epochs, "the epochs of the responses, which must not decrease")
    for fields in ({"topic_partitions": member.reported()}, {}):
        answer = member.heartbeat(version, **fields)
        c.error(answer.error_code, ErrorCode.NONE)
        c.equal(answer.member_id, member_id, "member_id")
        c.equal(answer.member_epoch, epochs[-1], "member_epoch of a heartbeat without news")
        c.equal(answer.assignment, None, "assignment of a heartbeat without news")
    answer = member.leave(version=version)
    c.error(answer.error_code, ErrorCode.NONE, "error_code of the last heartbeat")
    c.equal(answer.member_id, member_id, "member_id of the last heartbeat")
    c.equal(answer.member_epoch, LEAVE, "member_epoch of the last heartbeat")
    c.equal(answer.assignment, None, "assignment of the last heartbeat")
    rejoined = member.heartbeat(version)
    c.error(rejoined.error_code, ErrorCode.UNKNOWN_MEMBER_ID, "error_code of a heartbeat after the last one")


@case(
    "consumer-groups.heartbeat.unknown-member",
    "a member that the group does not have is rejected",
    source="KIP-848: ConsumerGroupHeartbeat API",
    layer=Layer.WIRE,
    features=FEATURES,
    needs=HEARTBEAT,
    versions=versions_of(ApiKey.CONSUMER_GROUP_HEARTBEAT),
)
def unknown_member(c: Check, version: int) -> None:
    """Sends: heartbeats with epochs 3 and -1 and an unknown member ID to a group that has another member.

    Expects: UNKNOWN_MEMBER_ID with a message, epoch 0, interval 0 and no assignment; the other member is unaffected.

    Why: a consumer that was removed must notice it, revoke its partitions and join again.
    """
    topic = c.topic()
    group = c.group()
    member, stranger = ConsumerMember(c, group, topic), ConsumerMember(c, group, topic)
    g.stable(c, member)
    for epoch in (3, LEAVE):
        g.rejected(c, stranger.heartbeat(version, member_epoch=epoch), ErrorCode.UNKNOWN_MEMBER_ID)
    answer = member.heartbeat(version)
    c.error(answer.error_code, ErrorCode.NONE, "error_code of the other member")
    c.equal(share(member), [0], "the partitions of the other member")


@case(
    "consumer-groups.heartbeat.unknown-group",
    "only a heartbeat with epoch 0 creates a group",
    source="KIP-848: ConsumerGroupHeartbeat API",
    layer=Layer.WIRE,
    features=FEATURES,
    needs=HEARTBEAT,
    variants={"epoch-3": (3,), "leave": (LEAVE,)},
)
def unknown_group(c: Check, epoch: int) -> None:
    """Sends: ConsumerGroupHeartbeat with epoch 3 or -1 to a group that does not exist; then ListGroups.

    Expects: GROUP_ID_NOT_FOUND, and no group of that name.

    Why: a group that was deleted must not be created by the remaining heartbeats of its members.
    """
    group = c.group()
    stranger = ConsumerMember(c, group, c.topic())
    g.rejected(c, stranger.heartbeat(member_epoch=epoch), ErrorCode.GROUP_ID_NOT_FOUND)
    c.equal(g.listed(c, group), {}, "ListGroups")


@case(
    "consumer-groups.heartbeat.member-id.created-by-server",
    "version 0 gives an ID to a member without one",
    source="KIP-848: ConsumerGroupHeartbeat API",
    layer=Layer.WIRE,
    features=FEATURES,
    needs=HEARTBEAT,
)
def created_by_server(c: Check) -> None:
    """Sends: version 0 with epoch 0 and an empty member ID, twice; then heartbeats with the IDs of the responses.

    Expects: two different IDs, which the coordinator then knows; two members in ConsumerGroupDescribe.

    Why: clients that were written for version 0 take their ID from the response.
    """
    topic = c.topic(2)
    group = c.group()
    members = [ConsumerMember(c, group, topic, member_id="") for _ in range(2)]
    for member in members:
        member.join(0)
        c.true(member.member_id, "member_id", expected="a new ID", actual=member.member_id)
    g.settle(c, *members)
    c.equal(share(*members), [0, 1], "the partitions of both members")
    found = sorted(each.member_id for each in g.describe(c, group).members)
    c.equal(found, sorted(member.member_id for member in members), "members of ConsumerGroupDescribe")
    c.true(len(set(found)) == 2, "the IDs", expected="two different ones", actual=found)


@case(
    "consumer-groups.heartbeat.member-id.required",
    "since version 1 members create their IDs",
    source="KIP-1082",
    layer=Layer.WIRE,
    features=FEATURES,
    needs=VERSION_1,
)
def member_id_required(c: Check) -> None:
    """Sends: version 1 with epoch 0 and an empty member ID.

    Expects: INVALID_REQUEST, and no group.

    Why: the response to a first heartbeat may be lost; a server that creates IDs then has a member without a client.
    """
    group = c.group()
    member = ConsumerMember(c, group, c.topic(), member_id="")
    g.rejected(c, member.try_join(1), ErrorCode.INVALID_REQUEST, "MemberId can't be empty.")
    c.equal(g.listed(c, group), {}, "ListGroups")


@case(
    "consumer-groups.heartbeat.full-request",
    "a heartbeat with all fields returns the assignment",
    source="KIP-848: ConsumerGroupHeartbeat API",
    features=FEATURES,
    needs=HEARTBEAT,
)
def full_request(c: Check) -> None:
    """Sends: to a stable group, a heartbeat with the member's epoch and all fields, as after a lost response.

    Expects: no error, the same epoch, and the assignment that the member already has.

    Why: a consumer that does not know whether its last heartbeat arrived sends everything, and must get everything.
    """
    topic = c.topic(6)
    member = ConsumerMember(c, c.group(), topic)
    g.stable(c, member)
    request = member.join_request(member_epoch=member.epoch, topic_partitions=member.reported())
    epoch, owned = member.epoch, member.owned
    answer = member.send(request)
    c.error(answer.error_code, ErrorCode.NONE)
    c.equal(answer.member_epoch, epoch, "member_epoch")
    c.true(answer.assignment is not None, "assignment", expected="the assignment", actual=answer.assignment)
    c.equal(g.partitions_of(answer.assignment.topic_partitions), owned, "assignment")  # type: ignore[union-attr]


@case(
    "consumer-groups.heartbeat.rejoin",
    "a member that joins again keeps its place",
    source="KIP-848: ConsumerGroupHeartbeat API",
    features=FEATURES,
    needs=HEARTBEAT,
)
def rejoin(c: Check) -> None:
    """Sends: a first heartbeat with epoch 0 from a member that is already in a stable group of two.

    Expects: no error, the same epoch and the same partitions; the other member keeps its own.

    Why: a consumer that was fenced joins again with epoch 0, and must not cause a rebalance.
    """
    topic = c.topic(6)
    group = c.group()
    member, other = ConsumerMember(c, group, topic), ConsumerMember(c, group, topic)
    g.stable(c, member, other)
    before, others, epoch = share(member), share(other), member.epoch
    answer = member.join()
    c.true(answer.assignment is not None, "assignment", expected="the assignment", actual=answer.assignment)
    g.settle(c, member, other)
    c.equal(share(member), before, "the partitions of the member")
    c.equal(share(other), others, "the partitions of the other member")
    c.equal((member.epoch, other.epoch), (epoch, epoch), "the epochs of both members")


@case(
    "consumer-groups.heartbeat.leave",
    "the members that stay get the partitions of one that leaves",
    source="KIP-848: ConsumerGroupHeartbeat API",
    features=FEATURES,
    needs=HEARTBEAT,
)
def leave(c: Check) -> None:
    """Sends: a last heartbeat with epoch -1 from one of two members; then heartbeats of the other one.

    Expects: epoch -1 in the response; the other member gets all six partitions with a higher epoch, and keeps those
    that it has; the group is Empty, not deleted, when this one has left too.

    Why: partitions of a consumer that is closed must be read by the others immediately.
    """
    topic = c.topic(6)
    group = c.group()
    leaver, other = ConsumerMember(c, group, topic), ConsumerMember(c, group, topic)
    g.stable(c, leaver, other)
    epoch = other.epoch
    c.equal(leaver.leave().member_epoch, LEAVE, "member_epoch of the last heartbeat")
    c.until(lambda: len(other.follow().partitions) == 6, "all partitions for the other member")
    c.equal(share(other), [0, 1, 2, 3, 4, 5], "the partitions of the other member")
    c.true(other.epoch > epoch, "member_epoch of the other member", expected=f"above {epoch}", actual=other.epoch)
    c.error(leaver.leave().error_code, ErrorCode.UNKNOWN_MEMBER_ID, "error_code of a second last heartbeat")
    other.leave()
    described = g.describe(c, group)
    c.equal((described.group_state, described.members), ("Empty", []), "group_state and members of the empty group")


FIRST_HEARTBEATS: dict[str, tuple[dict[str, Any], str | None]] = {
    "group-id-empty": ({"group_id": ""}, "GroupId can't be empty."),
    "group-id-blank": ({"group_id": "  "}, "GroupId can't be empty."),
    "member-id-blank": ({"member_id": "  "}, "MemberId can't be empty."),
    "instance-id-empty": ({"instance_id": ""}, "InstanceId can't be empty."),
    "rack-id-blank": ({"rack_id": " "}, "RackId can't be empty."),
    "rebalance-timeout": ({"rebalance_timeout_ms": -1}, "RebalanceTimeoutMs must be provided in first request."),
    "partitions-null": ({"topic_partitions": None}, "TopicPartitions must be empty when (re-)joining."),
    "partitions": (
        {"topic_partitions": [TopicPartitions(topic_id=bytes(15) + b"\7", partitions=[0])]},
        "TopicPartitions must be empty when (re-)joining.",
    ),
    "no-subscription": ({"subscribed_topic_names": None}, None),
    "leave-without-instance": ({"member_epoch": -2}, "InstanceId can't be null."),
    "epoch-minus-3": ({"member_epoch": -3}, None),
}


@case(
    "consumer-groups.heartbeat.invalid",
    "a first heartbeat with an invalid field is rejected",
    source="KIP-848: ConsumerGroupHeartbeat API, Request Validation",
    layer=Layer.WIRE,
    features=FEATURES,
    needs=VERSION_1,
    variants=dict(FIRST_HEARTBEATS),
)
def invalid(c: Check, fields: dict[str, Any], message: str | None) -> None:
    """Sends: a first heartbeat to a new group in which one field is invalid.

    Expects: INVALID_REQUEST with a message that names the field; epoch 0, interval 0 and no assignment; no group.

    Why: an incomplete first heartbeat would create a member that is never assigned anything or never expires.
    """
    group = c.group()
    member = ConsumerMember(c, group, c.topic())
    g.rejected(c, member.try_join(**fields), ErrorCode.INVALID_REQUEST)
    c.equal(g.listed(c, group), {}, "ListGroups")


@case(
    "consumer-groups.heartbeat.invalid-message",
    "the message of an invalid first heartbeat names the field",
    source="KIP-848: ConsumerGroupHeartbeat API, Request Validation",
    layer=Layer.WIRE,
    level=Level.APACHE,
    features=FEATURES,
    needs=VERSION_1,
)
def invalid_message(c: Check) -> None:
    """Sends: first heartbeats, in each of which one field is invalid.

    Expects: for each the error message of Apache Kafka.

    Why: the message is all that the user of a new client sees.
    """
    member = ConsumerMember(c, c.group(), c.topic())
    for name, (fields, message) in FIRST_HEARTBEATS.items():
        if message is not None:
            c.equal(member.try_join(**fields).error_message, message, f"error_message for {name}")

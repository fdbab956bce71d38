"""Members of the classic protocol in consumer groups (KIP-848): what their requests return there."""

from __future__ import annotations

from typing import Any

from ...protocol.api import ApiKey
from ...protocol.errors import ErrorCode
from ...testing.group_requests import leave_request, subscription
from .. import committed_offsets as o
from .. import consumer_group as g
from ..case import Layer, Level, case, versions_of
from ..check import Check
from ..consumer_group import FEATURES, share
from ..mixed_group import NEEDS, MixedGroup

SOURCE = "KIP-848: Supporting the classic protocol in consumer groups"


def joins_at(c: Check, generation: int, epoch: int) -> None:
    """The generation of a new classic member is the epoch of the last assignment.

    That is the epoch of before if the next assignment is delayed (group.consumer.assignment.interval.ms, KIP-1263).
    """
    expected = f"{epoch + 1}, or {epoch} before the next assignment"
    c.true(generation in (epoch, epoch + 1), "generation_id", expected=expected, actual=generation)


@case(
    "consumer-groups.classic-member.join",
    "a classic member joins a consumer group without waiting",
    source=SOURCE,
    layer=Layer.WIRE,
    features=FEATURES,
    needs=NEEDS,
    versions=versions_of(ApiKey.JOIN_GROUP),
)
def join(c: Check, version: int) -> None:
    """Sends: JoinGroup in this version to a consumer group with one member; then SyncGroup and Heartbeat.

    Expects: the group's epoch as generation, protocol range, no leader and no members; since version 4
    MEMBER_ID_REQUIRED first. SyncGroup succeeds; the group has both members, which share the partitions.

    Why: older clients must be able to join groups that were created by newer ones.
    """
    group = MixedGroup(c)
    consumer, classic = group.consumer(), group.classic()
    g.stable(c, consumer)
    answer = classic.join(version)
    c.error(answer.error_code, ErrorCode.NONE, "JoinGroup error_code")
    joins_at(c, answer.generation_id, consumer.epoch)
    c.equal(answer.protocol_name, "range", "protocol_name")
    c.equal((answer.leader, answer.members), ("", []), "leader and members")
    c.true(answer.member_id, "member_id", expected="an ID", actual=answer.member_id)
    if version >= 7:
        c.equal(answer.protocol_type, "consumer", "protocol_type")
    group.synced(classic)
    members = {each.member_id for each in g.describe(c, group.id).members}
    c.equal(members, {consumer.member_id, classic.member_id}, "members of ConsumerGroupDescribe")

    def owned() -> list[int]:
        consumer.follow()
        if classic.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS:
            classic.protocols = group.protocols(*synced)
            classic.join(version)
            return group.synced(classic)
        return synced

    synced: list[int] = []

    def is_shared() -> bool:
        nonlocal synced
        synced = owned()
        return sorted([*share(consumer), *synced]) == [0, 1, 2, 3] and len(synced) == 2

    c.until(is_shared, "two partitions for each of both members")
    found = g.describe(c, group.id)
    c.equal((classic.generation, found.assignment_epoch), (found.group_epoch,) * 2, "the generation, as group_epoch")


@case(
    "consumer-groups.classic-member.member-id",
    "the member ID that JoinGroup gives in a consumer group",
    source="KIP-394 and KIP-848",
    features=FEATURES,
    needs=NEEDS,
)
def member_id(c: Check) -> None:
    """Sends: JoinGroup in version 9 without a member ID, to a consumer group; then version 3 of another member.

    Expects: MEMBER_ID_REQUIRED with an ID, and the group's members are unchanged; version 3 joins immediately.

    Why: a client that does not get its first response must not leave a member behind.
    """
    group = MixedGroup(c)
    consumer = group.consumer()
    epoch = consumer.join().member_epoch
    given = group.classic().ask_join(9)
    c.error(given.error_code, ErrorCode.MEMBER_ID_REQUIRED)
    c.true(given.member_id, "member_id", expected="an ID", actual=given.member_id)
    members = [each.member_id for each in g.describe(c, group.id).members]
    c.equal(members, [consumer.member_id], "members after MEMBER_ID_REQUIRED")
    joined = group.classic().ask_join(3)
    c.error(joined.error_code, ErrorCode.NONE, "error_code in version 3")
    joins_at(c, joined.generation_id, epoch)


@case(
    "consumer-groups.classic-member.join-rejected",
    "a classic member that does not fit into a consumer group is rejected",
    source=SOURCE,
    level=Level.APACHE,
    features=FEATURES,
    needs=NEEDS,
    variants={
        "protocol-type": ({"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        "no-protocols": ({"protocols": {}}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        "other-protocol": ({"protocols": {"sticky": subscription("a")}}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        "no-subscription": ({"protocols": {"range": b""}}, ErrorCode.UNKNOWN_SERVER_ERROR),
        "subscription": ({"protocols": {"range": b"\xff\xff\0\0\0\0"}}, ErrorCode.UNKNOWN_SERVER_ERROR),
        "session-short": ({"session_timeout_ms": 1}, ErrorCode.INVALID_SESSION_TIMEOUT),
        "session-long": ({"session_timeout_ms": 2**31 - 1}, ErrorCode.INVALID_SESSION_TIMEOUT),
    },
)
def join_rejected(c: Check, settings: dict[str, Any], expected: ErrorCode) -> None:
    """Sends: JoinGroup to a consumer group that has a classic member with protocol range, with one wrong field.

    Expects: the error of this field; the group has the same members as before.

    Why: a member with a protocol that the others do not have cannot be assigned partitions.
    """
    group = MixedGroup(c)
    consumer, classic = group.consumer(), group.classic()
    consumer.join()
    c.error(classic.join().error_code, ErrorCode.NONE, "JoinGroup error_code of the first classic member")
    member = group.classic(**settings)
    member.member_id = "chosen by the client"
    c.error(member.ask_join().error_code, expected)
    members = sorted(each.member_id for each in g.describe(c, group.id).members)
    c.equal(members, sorted([consumer.member_id, classic.member_id]), "members of ConsumerGroupDescribe")


@case(
    "consumer-groups.classic-member.fenced",
    "Heartbeat and SyncGroup of classic members are fenced by member ID, instance ID and generation",
    source=SOURCE,
    features=FEATURES,
    needs=NEEDS,
)
def fenced(c: Check) -> None:
    """Sends: to a consumer group, Heartbeat and SyncGroup with an unknown member ID, the ID of a consumer member, the
    instance ID of another member, an unknown instance ID, and wrong generations.

    Expects: UNKNOWN_MEMBER_ID, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION.

    Why: after these errors a client rejoins, or stops.
    """
    group = MixedGroup(c)
    consumer = group.consumer(instance_id="c")
    consumer.join()
    classic = group.classic(instance_id="i")
    c.error(classic.join().error_code, ErrorCode.NONE, "JoinGroup error_code of the classic member")
    epoch = classic.generation
    stranger = group.classic()
    stranger.generation = epoch

    def both(member: Any, expected: ErrorCode, when: str) -> None:
        c.error(member.heartbeat(), expected, f"Heartbeat error_code {when}")
        c.error(member.sync().error_code, expected, f"SyncGroup error_code {when}")

    stranger.member_id = "no such member"
    both(stranger, ErrorCode.UNKNOWN_MEMBER_ID, "of an unknown member")
    stranger.member_id = consumer.member_id
    both(stranger, ErrorCode.UNKNOWN_MEMBER_ID, "with the ID of a consumer member")
    stranger.instance_id = "i"
    both(stranger, ErrorCode.FENCED_INSTANCE_ID, "with the instance ID of another member")
    c.error(stranger.ask_join().error_code, ErrorCode.FENCED_INSTANCE_ID, "JoinGroup error_code with its instance ID")
    stranger.instance_id = "no such instance"
    both(stranger, ErrorCode.UNKNOWN_MEMBER_ID, "with an unknown instance ID")
    c.error(
        stranger.ask_join().error_code, ErrorCode.UNKNOWN_MEMBER_ID, "JoinGroup error_code with an unknown instance"
    )
    for generation in (epoch - 1, epoch + 1, -1):
        classic.generation = generation
        both(classic, ErrorCode.ILLEGAL_GENERATION, f"with generation {generation} instead of {epoch}")
    classic.generation = epoch
    stranger.member_id = ""


@case(
    "consumer-groups.classic-member.sync-protocol",
    "SyncGroup with another protocol than that of JoinGroup is rejected",
    source="KIP-559 and KIP-848",
    features=FEATURES,
    needs=NEEDS,
    variants={"name": ("consumer", "sticky"), "type": ("connect", "range")},
)
def sync_protocol(c: Check, protocol_type: str, protocol_name: str) -> None:
    """Sends: to a consumer group, SyncGroup with another protocol name or type; then with the right one.

    Expects: INCONSISTENT_GROUP_PROTOCOL, then no error.

    Why: a client that decodes an assignment with the wrong protocol reads wrong partitions.
    """
    group = MixedGroup(c)
    group.consumer().join()
    classic = group.classic()
    c.error(classic.join().error_code, ErrorCode.NONE, "JoinGroup error_code")
    classic.protocol_type, classic.protocol_name = protocol_type, protocol_name
    c.error(classic.sync().error_code, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "SyncGroup error_code")
    classic.protocol_type, classic.protocol_name = "consumer", "range"
    c.error(classic.sync().error_code, ErrorCode.NONE, "SyncGroup error_code with the right protocol")


@case(
    "consumer-groups.classic-member.leave",
    "LeaveGroup removes members of both protocols from a consumer group",
    source="KIP-345 and KIP-848",
    features=FEATURES,
    needs=NEEDS,
)
def leave(c: Check) -> None:
    """Sends: LeaveGroup for an unknown member, an unknown member with a known instance ID, an unknown instance ID, the
    instance ID of a classic member, and the ID of a consumer member.

    Expects: in this order UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, UNKNOWN_MEMBER_ID, and no error twice, each with the
    IDs of its request; the group is an empty consumer group.

    Why: kafka-consumer-groups.sh removes members like this.
    """
    group = MixedGroup(c)
    consumer, classic = group.consumer(), group.classic(instance_id="i")
    consumer.join()
    c.error(classic.join().error_code, ErrorCode.NONE, "JoinGroup error_code")
    members = ("no-such-member", None), ("no-such-member", "i"), ("", "x"), ("", "i"), (consumer.member_id, None)
    answer = c.call(leave_request(group.id, *members), 5, to=group.wire)
    c.error(answer.error_code, ErrorCode.NONE, "LeaveGroup error_code")
    unknown, fenced = ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID
    codes = [unknown, fenced, unknown, ErrorCode.NONE, ErrorCode.NONE]
    found = [(each.member_id, each.group_instance_id, ErrorCode(each.error_code)) for each in answer.members]
    expected = [(*member, code) for member, code in zip(members, codes, strict=True)]
    c.equal(found, expected, "members (member_id, group_instance_id, error_code)")
    group.is_shown("consumer", "Empty", "at the end")


@case(
    "consumer-groups.classic-member.leave.rebalance",
    "the partitions of a classic member that left are assigned to the others",
    source=SOURCE,
    features=FEATURES,
    needs=NEEDS,
)
def leave_rebalance(c: Check) -> None:
    """Sends: one of two classic members of a consumer group leaves; the consumer member sends heartbeats.

    Expects: the classic member that stays has to rejoin; it and the consumer member get two partitions each.

    Why: partitions without a reader are not processed.
    """
    group = MixedGroup(c)
    consumer, leaving, staying = group.consumer(), group.classic(), group.classic()
    g.stable(c, consumer)
    for member in (leaving, staying):
        c.error(member.join().error_code, ErrorCode.NONE, "JoinGroup error_code")
    c.error(leaving.left(), ErrorCode.NONE, "LeaveGroup error_code")
    owned: list[int] = []

    def is_shared() -> bool:
        nonlocal owned
        consumer.follow()
        if staying.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS:
            owned = group.rejoined(staying, *owned)
        return sorted([*share(consumer), *owned]) == [0, 1, 2, 3] and len(owned) == 2

    c.until(is_shared, "two partitions for each of the remaining members")
    members = {each.member_id for each in g.describe(c, group.id).members}
    c.equal(members, {consumer.member_id, staying.member_id}, "members of ConsumerGroupDescribe")


@case(
    "consumer-groups.classic-member.commit",
    "classic members of a consumer group commit with their generation",
    source=SOURCE,
    features=FEATURES,
    needs=NEEDS,
    versions=versions_of(ApiKey.OFFSET_COMMIT),
)
def commit(c: Check, version: int) -> None:
    """Sends: OffsetCommit of a classic member of a consumer group with the next generation, and with its own.

    Expects: ILLEGAL_GENERATION, then no error; only the second offset is stored.

    Why: older clients do not know the errors of member epochs.
    """
    group = MixedGroup(c)
    group.consumer().join()
    classic = group.classic()
    c.error(classic.join().error_code, ErrorCode.NONE, "JoinGroup error_code")
    group.synced(classic)
    codes = []
    for offset, ahead in ((7, 1), (8, 0)):
        generation = classic.generation + ahead
        request = o.commit_request(
            group.id, group.topic, {0: offset}, member_id=classic.member_id, generation=generation
        )
        codes.append(ErrorCode(o.commit_error(c, group.wire, request, version)))
    c.equal(codes, [ErrorCode.ILLEGAL_GENERATION, ErrorCode.NONE], "OffsetCommit error_code of both requests")
    c.equal(o.offsets(c, group.wire, group.id, group.topic, [0, 1]), {0: 8, 1: -1}, "the committed offsets")

"""TxnOffsetCommit with the identity of a group's member (KIP-447)."""

from __future__ import annotations

from typing import Final

from ...protocol.api import ApiKey
from ...protocol.errors import ErrorCode
from ...protocol.messages.list_groups import ListGroupsRequest
from .. import group_offsets as o
from ..case import Level, Release, case, needs, versions_of
from ..check import Check
from ..transactional_producer import Producer, errors, group_coordinator

COMMITS: Final = versions_of(ApiKey.TXN_OFFSET_COMMIT)
WITH_MEMBERS: Final = versions_of(ApiKey.TXN_OFFSET_COMMIT, 3)
IMPLICIT: Final = 5
"""The version of TxnOffsetCommit that adds the group to the transaction."""


def _producer(c: Check, version: int) -> Producer:
    return Producer(c, implicit=version >= IMPLICIT).begin()


@case(
    "transactions.offset-commit.no-member",
    "offsets without a member are accepted, also if the group has members",
    source="KIP-447",
    versions=COMMITS,
)
def no_member(c: Check, version: int) -> None:
    """Sends: TxnOffsetCommit without a member ID (generation -1), for a group with a member.

    Expects: no error.

    Why: producers before KIP-447 do not know the members of the group.
    """
    topic, group = c.topic(), c.group()
    o.classic_member(c, group)
    producer = _producer(c, version)
    producer.write_offsets(group, topic, {0: 1}, version=version)
    producer.commit()
    c.equal(o.settled(c, group, topic), {0: 1}, "the offsets after the commit")


@case(
    "transactions.offset-commit.member",
    "only a member of the current generation commits offsets",
    source="KIP-447",
    versions=WITH_MEMBERS,
)
def member(c: Check, version: int) -> None:
    """Sends: TxnOffsetCommit with the member ID and generation of a classic group, with a newer and an older
    generation, with an unknown member ID, without a member ID, and with a wrong instance ID.

    Expects: no error; ILLEGAL_GENERATION twice; UNKNOWN_MEMBER_ID for the others. The offset is that of the first.

    Why: a consumer that has lost its partitions to another one must not commit their offsets.
    """
    topic, group = c.topic(), c.group()
    member_id, generation = o.classic_member(c, group)
    producer = _producer(c, version)
    producer.write_offsets(group, topic, {0: 1}, version=version, member_id=member_id, generation=generation)
    for name, epoch, instance_id, expected in (
        (member_id, generation + 1, None, ErrorCode.ILLEGAL_GENERATION),
        (member_id, generation - 1, None, ErrorCode.ILLEGAL_GENERATION),
        ("stranger", generation, None, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", generation, None, ErrorCode.UNKNOWN_MEMBER_ID),
        (member_id, generation, "i-9", ErrorCode.UNKNOWN_MEMBER_ID),
    ):
        found = producer.commit_offsets(
            group, topic, {0: 9}, version, member_id=name, generation=epoch, instance_id=instance_id
        )
        what = f"TxnOffsetCommit (member {name!r}, generation {epoch}, instance {instance_id})"
        errors(c, found, {0: expected}, what)
    producer.commit()
    c.equal(o.settled(c, group, topic), {0: 1}, "the offsets after the commit")


@case(
    "transactions.offset-commit.static-member",
    "a static member that was replaced is fenced",
    source="KIP-345 and KIP-447",
    versions=WITH_MEMBERS,
)
def static_member(c: Check, version: int) -> None:
    """Sends: TxnOffsetCommit of the current and of the former member with the same instance ID.

    Expects: no error for the current one, FENCED_INSTANCE_ID for the former; the offset is that of the current one.

    Why: two processes with one instance ID must not both commit.
    """
    topic, group = c.topic(), c.group()
    before = o.classic_member(c, group, instance_id="i-1")
    after = o.classic_member(c, group, instance_id="i-1")
    producer = _producer(c, version)
    if not producer.implicit:
        c.error(producer.add_offsets(group), ErrorCode.NONE, "AddOffsetsToTxn error_code")
    for which, offset, expected in ((after, 1, ErrorCode.NONE), (before, 9, ErrorCode.FENCED_INSTANCE_ID)):
        found = producer.commit_offsets(
            group,
            topic,
            {0: offset},
            version,
            member_id=which.member_id,
            generation=which.generation,
            instance_id="i-1",
        )
        errors(c, found, {0: expected}, "TxnOffsetCommit")
    producer.commit()
    c.equal(o.settled(c, group, topic), {0: 1}, "the offsets after the commit")


@case(
    "transactions.offset-commit.group-without-members",
    "a member of a group that does not exist is rejected",
    source="KIP-447",
    versions=WITH_MEMBERS,
)
def group_without_members(c: Check, version: int) -> None:
    """Sends: TxnOffsetCommit with a member ID and generation 3, for a new group.

    Expects: ILLEGAL_GENERATION, or UNKNOWN_MEMBER_ID as Apache Kafka 3.9 responds; no pending offset.

    Why: the group was deleted or has expired; its member has to join again, which it does after both errors.
    """
    topic, group = c.topic(), c.group()
    producer = _producer(c, version)
    if not producer.implicit:
        c.error(producer.add_offsets(group), ErrorCode.NONE, "AddOffsetsToTxn error_code")
    found = producer.commit_offsets(group, topic, {0: 1}, version, member_id="stranger", generation=3)
    c.equal(sorted(found), [0], "the partitions of the TxnOffsetCommit response")
    c.error(found[0], {ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID}, "TxnOffsetCommit error_code")
    c.equal(o.stable(c, group, topic), {0: -1}, "the offset with require_stable")


@case(
    "transactions.offset-commit.rejected-group",
    "rejected offsets do not create a group",
    source="KIP-447 and KIP-848",
    level=Level.APACHE,
    versions=WITH_MEMBERS,
    since=Release(4, 0),
)
def rejected_group(c: Check, version: int) -> None:
    """Sends: TxnOffsetCommit with a member ID and generation 3, for a new group; ListGroups.

    Expects: ILLEGAL_GENERATION; no such group in ListGroups.

    Why: a client with a wrong group ID would create groups that no consumer uses.
    """
    topic, group = c.topic(), c.group()
    producer = _producer(c, version)
    if not producer.implicit:
        c.error(producer.add_offsets(group), ErrorCode.NONE, "AddOffsetsToTxn error_code")
    found = producer.commit_offsets(group, topic, {0: 1}, version, member_id="stranger", generation=3)
    errors(c, found, {0: ErrorCode.ILLEGAL_GENERATION}, "TxnOffsetCommit")
    listed = c.call(ListGroupsRequest(), to=group_coordinator(c, group)).groups
    c.equal([each.group_id for each in listed if each.group_id == group], [], "the group in ListGroups")


@case(
    "transactions.offset-commit.consumer-group-member",
    "the generation of a member of a consumer group is its epoch",
    source="KIP-848",
    needs=needs(ApiKey.CONSUMER_GROUP_HEARTBEAT, 0),
    features={"group.version": 1},
    versions=WITH_MEMBERS,
)
def consumer_group_member(c: Check, version: int) -> None:
    """Sends: TxnOffsetCommit with the ID and the epoch of a member, with a newer epoch, with an unknown member ID, and
    without a member.

    Expects: no error, ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, no error; the offset is that of the last.

    Why: a producer uses the same fields for both kinds of groups.
    """
    topic, group = c.topic(), c.group()
    member_id, epoch = o.consumer_member(c, group, topic)
    producer = _producer(c, version)
    if not producer.implicit:
        c.error(producer.add_offsets(group), ErrorCode.NONE, "AddOffsetsToTxn error_code")
    for offset, name, generation, expected in (
        (1, member_id, epoch, ErrorCode.NONE),
        (9, member_id, epoch + 1, ErrorCode.ILLEGAL_GENERATION),
        (9, "stranger", epoch, ErrorCode.UNKNOWN_MEMBER_ID),
        (2, "", -1, ErrorCode.NONE),
    ):
        found = producer.commit_offsets(group, topic, {0: offset}, version, member_id=name, generation=generation)
        errors(c, found, {0: expected}, f"TxnOffsetCommit (member {name!r}, generation {generation})")
    producer.commit()
    c.equal(o.settled(c, group, topic), {0: 2}, "the offsets after the commit")


@case(
    "transactions.offset-commit.during-rebalance",
    "a rebalance does not stop a member's offsets",
    source="KIP-447",
    needs=needs(ApiKey.TXN_OFFSET_COMMIT, 3),
)
def during_rebalance(c: Check) -> None:
    """Sends: TxnOffsetCommit with the generation of a JoinGroup response, before SyncGroup.

    Expects: no error.

    Why: a consumer commits what it has processed before it gives its partitions away; otherwise it is processed twice.
    """
    topic, group = c.topic(), c.group()
    member_id, generation = o.classic_member(c, group, sync=False)
    producer = Producer(c).begin()
    producer.write_offsets(group, topic, {0: 1}, member_id=member_id, generation=generation)
    producer.commit()
    c.equal(o.settled(c, group, topic), {0: 1}, "the offsets after the commit")

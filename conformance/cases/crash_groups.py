"""Crash: committed offsets, and members of classic and consumer groups."""

from __future__ import annotations

from ...protocol.api import ApiKey
from ...protocol.errors import ErrorCode
from ...protocol.messages.delete_groups import DeleteGroupsRequest
from .. import committed_offsets as o
from .. import consumer_group
from ..case import Level, needs
from ..check import Check, Topic
from ..classic_group import ClassicGroup
from ..consumer_group import ConsumerMember
from ..exchange import Connection
from ..recovery import crash_case, group_coordinator, new_group, ready, without_load

OFFSETS = needs(ApiKey.OFFSET_COMMIT, 6, ApiKey.OFFSET_FETCH, 7)
CLASSIC = needs(ApiKey.JOIN_GROUP, 5, ApiKey.SYNC_GROUP, 3, ApiKey.HEARTBEAT, 3, ApiKey.OFFSET_COMMIT, 7)
CONSUMER = needs(ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, ApiKey.CONSUMER_GROUP_DESCRIBE, 0)


@crash_case(
    "crash.offsets.committed",
    "committed offsets survive, with leader epoch and metadata",
    source="KIP-211 and KIP-320",
    needs=OFFSETS,
)
def committed(c: Check) -> None:
    """Sends: OffsetCommit of two partitions, and of one of them again, with leader epoch and metadata; kill -9;
    restart; OffsetFetch of three partitions.

    Expects: the last offset, leader epoch and metadata of each; -1 for the partition without a commit.

    Why: a consumer that loses its offset reads everything again, or skips to the end.
    """
    topic, group = c.topic(3), new_group(c)
    wire = c.coordinator(group)
    o.committed_before(c, wire, o.commit_request(group, topic, {0: 11, 1: 22}, metadata="first", leader_epoch=0))
    o.committed_before(c, wire, o.commit_request(group, topic, {1: 33}, metadata="second", leader_epoch=-1))
    c.crash()
    ready(c, topic, partitions=3)
    found = _fetched(c, group_coordinator(c, group), group, topic, 3)
    expected = {0: o.Committed(11, 0, "first"), 1: o.Committed(33, -1, "second"), 2: o.NONE}
    c.equal(found, expected, "offset, leader epoch, metadata and error code of each partition")


@crash_case(
    "crash.offsets.many-commits",
    "of many commits the last one survives",
    source="Protocol: OffsetCommit",
    needs=OFFSETS,
)
def many_commits(c: Check) -> None:
    """Sends: 200 OffsetCommits for one partition, and two for another group; kill -9; restart; OffsetFetch.

    Expects: the last acknowledged offset of each group.

    Why: the server replays its log of offsets; the last entry of a group must win, and only in its own group.
    """
    topic = c.topic()
    groups = {new_group(c): range(200), new_group(c): range(1_000, 1_002)}
    for group, offsets in groups.items():
        wire = c.coordinator(group)
        for offset in offsets:
            o.committed_before(c, wire, o.commit_request(group, topic, {0: offset}))
    c.crash()
    ready(c, topic)
    for group, offsets in groups.items():
        found = _fetched(c, group_coordinator(c, group), group, topic, 1)
        c.equal(found, {0: o.Committed(offsets[-1])}, f"what the group {group} has committed")


@crash_case(
    "crash.offsets.deleted",
    "deleted offsets do not return",
    source="KIP-496",
    needs=(*OFFSETS, *needs(ApiKey.OFFSET_DELETE, 0)),
)
def offsets_deleted(c: Check) -> None:
    """Sends: OffsetCommit of two partitions, OffsetDelete of one; kill -9; restart; OffsetFetch.

    Expects: -1 for the deleted offset; the other one is unchanged.

    Why: an administrator deletes an offset so that the consumer starts from the beginning.
    """
    topic, group = c.topic(2), new_group(c)
    wire = c.coordinator(group)
    o.committed_before(c, wire, o.commit_request(group, topic, {0: 5, 1: 6}))
    response = o.delete(c, wire, group, {topic.name: [0]})
    c.error(response.error_code, ErrorCode.NONE, "OffsetDelete error_code")
    c.equal(o.deleted(c, response), {topic.name: {0: 0}}, "OffsetDelete error codes of the partitions")
    c.crash()
    ready(c, topic, partitions=2)
    found = _fetched(c, group_coordinator(c, group), group, topic, 2)
    c.equal(found, {0: o.NONE, 1: o.Committed(6)}, "what the group has committed")


@crash_case(
    "crash.offsets.group-deleted",
    "a deleted group does not return",
    source="KIP-229",
    needs=(*OFFSETS, *needs(ApiKey.DELETE_GROUPS, 0)),
)
def group_deleted(c: Check) -> None:
    """Sends: OffsetCommit, DeleteGroups; kill -9; restart; OffsetFetch and DeleteGroups.

    Expects: offset -1 without an error, and GROUP_ID_NOT_FOUND.

    Why: a new consumer with the name of a deleted group must not continue where the old one stopped.
    """
    topic, group = c.topic(), new_group(c)
    wire = c.coordinator(group)
    o.committed_before(c, wire, o.commit_request(group, topic, {0: 5}))

    def delete(wire: Connection) -> int:
        (result,) = c.call(DeleteGroupsRequest(groups_names=[group]), to=wire).results
        return int(result.error_code)

    c.error(delete(wire), ErrorCode.NONE, "DeleteGroups error_code")
    c.crash()
    ready(c, topic)
    wire = group_coordinator(c, group)
    c.equal(_fetched(c, wire, group, topic, 1), {0: o.NONE}, "what the deleted group has committed")
    c.error(delete(wire), ErrorCode.GROUP_ID_NOT_FOUND, "DeleteGroups error_code after the restart")


@crash_case(
    "crash.groups.classic.continues",
    "the members of a classic group continue",
    source="Protocol: Consumer group",
    level=Level.SHOULD,
    needs=CLASSIC,
)
def classic_continues(c: Check) -> None:
    """Sends: JoinGroup and SyncGroup of two members, OffsetCommit; kill -9; restart; Heartbeat, DescribeGroups,
    SyncGroup, OffsetCommit and OffsetFetch of both.

    Expects: no errors; the group is Stable with the same generation, members and assignments.

    Why: a restart that makes all groups rejoin interrupts every application that consumes.
    """
    topic = c.topic(2)
    group = ClassicGroup(c, new_group(c))
    first, second = group.member(), group.member()
    group.complete(first, second)
    for partition, member in enumerate((first, second)):
        request = o.commit_request(
            group.id, topic, {partition: 7}, member_id=member.member_id, generation=first.generation
        )
        o.committed_before(c, member.wire, request)
    c.crash()
    ready(c, topic, partitions=2)
    wire = first.wire = second.wire = group.wire = group_coordinator(c, group.id)
    for partition, member in enumerate((first, second)):
        c.error(member.heartbeat(), ErrorCode.NONE, "Heartbeat error_code")
        answer = member.sync()
        c.error(answer.error_code, ErrorCode.NONE, "SyncGroup error_code")
        c.equal(answer.assignment, member.member_id.encode(), "SyncGroup assignment")
        request = o.commit_request(
            group.id, topic, {partition: 8}, member_id=member.member_id, generation=first.generation
        )
        c.error(o.commit_error(c, wire, request), ErrorCode.NONE, "OffsetCommit error_code")
    described = group.describe()
    c.equal(described.group_state, "Stable", "DescribeGroups group_state")
    members = {each.member_id: each.member_assignment for each in described.members}
    c.equal(members, {each.member_id: each.member_id.encode() for each in (first, second)}, "members and assignments")
    found = _fetched(c, wire, group.id, topic, 2)
    c.equal(found, {0: o.Committed(8), 1: o.Committed(8)}, "what the group has committed")


@crash_case(
    "crash.groups.classic.fenced",
    "members that were not in the last generation stay out",
    source="Protocol: Consumer group",
    needs=(*CLASSIC, *needs(ApiKey.LEAVE_GROUP, 3)),
)
def classic_fenced(c: Check) -> None:
    """Sends: JoinGroup of two members, LeaveGroup of the second, a new generation of the first; kill -9; restart;
    Heartbeat and OffsetCommit of the member that left, and of the first with its old generation.

    Expects: UNKNOWN_MEMBER_ID for the heartbeat; UNKNOWN_MEMBER_ID or ILLEGAL_GENERATION for both commits; the same
    committed offset.

    Why: a member that lost its partitions before the crash must not commit offsets for them afterwards.
    """
    topic = c.topic()
    group = ClassicGroup(c, new_group(c))
    first, second = group.member(), group.member()
    group.complete(first, second)
    old = first.generation
    c.error(second.left(), ErrorCode.NONE, "LeaveGroup error_code")
    with c.setup("a generation without the second member"):
        first.wait_for_rebalance()
        c.error(first.join().error_code, ErrorCode.NONE, "JoinGroup error_code")
        c.error(first.sync({first.member_id: b"all"}).error_code, ErrorCode.NONE, "SyncGroup error_code")
    request = o.commit_request(group.id, topic, {0: 1}, member_id=first.member_id, generation=first.generation)
    o.committed_before(c, first.wire, request)
    c.crash()
    ready(c, topic)
    wire = first.wire = second.wire = group_coordinator(c, group.id)
    c.error(second.heartbeat(), ErrorCode.UNKNOWN_MEMBER_ID, "Heartbeat error_code of the member that left")
    rejected = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION)
    for member_id in (second.member_id, first.member_id):
        request = o.commit_request(group.id, topic, {0: 99}, member_id=member_id, generation=old)
        c.error(o.commit_error(c, wire, request), rejected, "OffsetCommit error_code")
    c.equal(_fetched(c, wire, group.id, topic, 1), {0: o.Committed(1)}, "what the group has committed")


@crash_case(
    "crash.groups.classic.rejoin",
    "a new member of a restored group starts a rebalance",
    source="Protocol: Consumer group",
    level=Level.SHOULD,
    needs=CLASSIC,
)
def classic_rejoin(c: Check) -> None:
    """Sends: JoinGroup and SyncGroup of one member; kill -9; restart; JoinGroup of a second member, Heartbeat and
    JoinGroup of the first.

    Expects: REBALANCE_IN_PROGRESS for the heartbeat; both join the next generation, with one leader.

    Why: the restored group must be one that works, not a picture of it.
    """
    group = ClassicGroup(c, new_group(c))
    first = group.member()
    group.complete(first)
    before = first.generation
    c.crash()
    first.wire = group.wire = group_coordinator(c, group.id)
    second = group.member()
    first.wire = c.connect(address=group.wire.address)
    second.start_join()
    first.wait_for_rebalance()
    first.start_join()
    for member in (first, second):
        c.error(member.joined().error_code, ErrorCode.NONE, "JoinGroup error_code")
    c.equal((first.generation, second.generation), (before + 1, before + 1), "the generation of both members")
    c.equal(first.leader, second.leader, "the leader")
    leader = first if first.leader == first.member_id else second
    leader.start_sync({first.member_id: b"1", second.member_id: b"2"})
    other = second if leader is first else first
    other.start_sync()
    for member in (leader, other):
        answer = member.synced()
        c.error(answer.error_code, ErrorCode.NONE, "SyncGroup error_code")
        c.equal(answer.assignment, b"1" if member is first else b"2", "SyncGroup assignment")


@crash_case(
    "crash.groups.classic.static",
    "a static member keeps its place",
    source="KIP-345",
    level=Level.SHOULD,
    needs=CLASSIC,
)
def classic_static(c: Check) -> None:
    """Sends: JoinGroup and SyncGroup of a member with a `group_instance_id`; kill -9; restart; JoinGroup with the same
    `group_instance_id` and no member ID; Heartbeat with the old and the new member ID.

    Expects: another member ID in the same generation; FENCED_INSTANCE_ID for the old one.

    Why: the server's restart must not cost static members the rebalance that they exist to avoid.
    """
    group = ClassicGroup(c, new_group(c))
    instance = c.name("instance")
    old = group.member(instance_id=instance)
    group.complete(old)
    c.crash()
    old.wire = group.wire = group_coordinator(c, group.id)
    new = group.member(instance_id=instance)
    c.error(new.join().error_code, ErrorCode.NONE, "JoinGroup error_code")
    c.true(new.member_id != old.member_id, "the new member_id", expected="another one", actual=new.member_id)
    c.equal(new.generation, old.generation, "the generation")
    c.error(new.sync().error_code, ErrorCode.NONE, "SyncGroup error_code")
    c.error(new.heartbeat(), ErrorCode.NONE, "Heartbeat error_code of the new member ID")
    c.error(old.heartbeat(), ErrorCode.FENCED_INSTANCE_ID, "Heartbeat error_code of the old member ID")


@crash_case(
    "crash.groups.consumer.continues",
    "the members of a consumer group continue",
    source="KIP-848",
    level=Level.SHOULD,
    needs=(*CONSUMER, *OFFSETS),
    features=consumer_group.FEATURES,
)
def consumer_continues(c: Check) -> None:
    """Sends: ConsumerGroupHeartbeats of two members until both have their partitions, OffsetCommit; kill -9; restart;
    heartbeats, ConsumerGroupDescribe and OffsetFetch.

    Expects: no errors; the same member epochs, assignments and group epoch.

    Why: members keep their partitions while the coordinator restarts; a new epoch would make all of them stop.
    """
    topic, group = c.topic(4), new_group(c)
    first, second = (ConsumerMember(c, group, topic) for _ in range(2))
    consumer_group.stable(c, first, second)
    before = consumer_group.describe(c, group, to=first.wire)
    request = o.commit_request(group, topic, {0: 3}, member_id=first.member_id, generation=first.epoch)
    o.committed_before(c, first.wire, request, min(c.version(ApiKey.OFFSET_COMMIT), 9))
    c.crash()
    ready(c, topic, partitions=4)
    first.wire = second.wire = c.coordinator(group)
    for member in (first, second):
        epoch, owned = member.epoch, member.owned
        answer = without_load(c, member.heartbeat, "ConsumerGroupHeartbeat")
        c.error(answer.error_code, ErrorCode.NONE, "ConsumerGroupHeartbeat error_code")
        c.equal((member.epoch, member.owned), (epoch, owned), "member epoch and assignment")
    after = consumer_group.describe(c, group, to=first.wire)
    shown = [
        (
            each.group_state,
            each.group_epoch,
            each.assignment_epoch,
            each.assignor_name,
            {m.member_id: consumer_group.partitions_of(m.assignment.topic_partitions) for m in each.members},
        )
        for each in (before, after)
    ]
    c.equal(shown[1], shown[0], "state, epochs, assignor and assignments in ConsumerGroupDescribe")
    c.equal(_fetched(c, first.wire, group, topic, 1), {0: o.Committed(3)}, "what the group has committed")


@crash_case(
    "crash.groups.consumer.fenced",
    "a member that left a consumer group stays out",
    source="KIP-848",
    needs=CONSUMER,
    features=consumer_group.FEATURES,
)
def consumer_fenced(c: Check) -> None:
    """Sends: heartbeats of two members; the second leaves, the first gets all partitions; kill -9; restart; a heartbeat
    of the second; ConsumerGroupDescribe.

    Expects: UNKNOWN_MEMBER_ID, and a group without the second member.

    Why: a member that was replaced before the crash must not return with its old partitions.
    """
    topic, group = c.topic(2), new_group(c)
    first, second = (ConsumerMember(c, group, topic) for _ in range(2))
    consumer_group.stable(c, first, second)
    c.error(second.leave().error_code, ErrorCode.NONE, "error_code of the last heartbeat")
    with c.setup("the first member has all partitions"):
        consumer_group.settle(c, first)
        c.equal(first.partitions, [0, 1], "the partitions of the first member")
    c.crash()
    ready(c, topic, partitions=2)
    first.wire = second.wire = c.coordinator(group)
    answer = without_load(c, second.heartbeat, "ConsumerGroupHeartbeat")
    c.error(answer.error_code, ErrorCode.UNKNOWN_MEMBER_ID, "error_code of the member that left")
    described = without_load(c, lambda: consumer_group.describe(c, group, to=first.wire), "ConsumerGroupDescribe")
    members = {each.member_id for each in described.members}
    c.true(second.member_id not in members, "the members in ConsumerGroupDescribe", expected="not the one that left",
           actual=members)  # fmt: skip


def _fetched(c: Check, wire: Connection, group: str, topic: Topic, partitions: int) -> dict[int, o.Committed]:
    """What OffsetFetch returns for the first partitions of a topic; without a commit, only the offset counts."""
    version = c.version(ApiKey.OFFSET_FETCH)
    found = o.fetch(c, wire, group, {topic: range(partitions)}, version)
    c.error(found.error_code, ErrorCode.NONE, "OffsetFetch error_code")
    c.equal(list(found.topics), [o.key_of(topic, version)], "the topics of the OffsetFetch response")
    entries = found.topics[o.key_of(topic, version)]
    return {index: o.Committed(-1, error_code=each.error_code) if each.offset == -1 else each
            for index, each in entries.items()}  # fmt: skip

"""OffsetCommit and OffsetFetch of members: generations, fencing, epochs of the consumer protocol."""

from __future__ import annotations

from ...protocol.api import ApiKey
from ...protocol.errors import ErrorCode
from .. import committed_offsets as o
from ..case import Layer, Level, case, needs, versions_of
from ..check import Check
from ..classic_group import ClassicGroup, shortest_session_ms
from .groups_describe import join_consumer_group

OFFSETS = needs(ApiKey.OFFSET_FETCH, 1)
CONSUMER_GROUP = needs(ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, ApiKey.OFFSET_FETCH, 9)
EPOCH = 9
"""The first version of OffsetCommit and OffsetFetch with member epochs (KIP-848)."""
STATIC = 7
"""The first version of OffsetCommit with instance IDs (KIP-345)."""


@case(
    "offsets.members.commit",
    "a member commits in its generation only",
    source="Protocol: OffsetCommit",
    layer=Layer.WIRE,
    needs=OFFSETS,
    versions=versions_of(ApiKey.OFFSET_COMMIT),
)
def commit(c: Check, version: int) -> None:
    """Sends: OffsetCommit of the member of a group in generation 1; with generation 0 and 2; with another member ID;
    and without a member.

    Expects: no error; ILLEGAL_GENERATION; UNKNOWN_MEMBER_ID; UNKNOWN_MEMBER_ID. Only the first offset is committed.

    Why: a consumer that has lost its partitions must not overwrite the offsets of the one that has them now.
    """
    topic = c.topic(2)
    group = ClassicGroup(c)
    member = group.member()
    group.complete(member)
    request = o.commit_request(group.id, topic, {1: 5}, member_id=member.member_id, generation=member.generation)
    c.error(o.commit_error(c, group.wire, request, version), ErrorCode.NONE)
    for member_id, generation, expected in (
        (member.member_id, 0, ErrorCode.ILLEGAL_GENERATION),
        (member.member_id, 2, ErrorCode.ILLEGAL_GENERATION),
        ("stranger", 1, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", -1, ErrorCode.UNKNOWN_MEMBER_ID),
    ):
        wrong = o.commit_request(group.id, topic, {1: 77}, member_id=member_id, generation=generation)
        what = f"error_code for the member ID {member_id!r} and generation {generation}"
        c.error(o.commit_error(c, group.wire, wrong, version), expected, what)
    c.equal(o.offsets(c, group.wire, group.id, topic, [0, 1]), {0: -1, 1: 5}, "offsets afterwards")


@case(
    "offsets.members.every-partition-fails",
    "an error of the member is an error for each partition",
    source="Protocol: OffsetCommit",
    layer=Layer.WIRE,
    needs=OFFSETS,
    versions=versions_of(ApiKey.OFFSET_COMMIT),
)
def every_partition_fails(c: Check, version: int) -> None:
    """Sends: OffsetCommit of two topics with an old generation.

    Expects: ILLEGAL_GENERATION in the entry of each partition; nothing is committed.

    Why: the response has no top-level error, so a client takes a missing entry for a successful commit.
    """
    first, second = c.topic(2), c.topic()
    group = ClassicGroup(c)
    member = group.member()
    group.complete(member)
    request = o.commit_request(group.id, first, {0: 1, 1: 1}, member_id=member.member_id, generation=0)
    request.topics += o.commit_request(group.id, second, {0: 1}).topics
    illegal = int(ErrorCode.ILLEGAL_GENERATION)
    expected = {o.key_of(first, version): [(0, illegal), (1, illegal)], o.key_of(second, version): [(0, illegal)]}
    c.equal(o.commit(c, group.wire, request, version), expected, "partitions (partition_index, error_code) by topic")
    c.equal(o.offsets(c, group.wire, group.id, first, [0, 1]), {0: -1, 1: -1}, "offsets afterwards")


@case(
    "offsets.members.rebalance",
    "a member commits until it has rejoined, and again after the assignments",
    source="Protocol: OffsetCommit",
    needs=(*OFFSETS, *needs(ApiKey.OFFSET_COMMIT, 2, ApiKey.JOIN_GROUP, 4)),
)
def rebalance(c: Check) -> None:
    """Sends: OffsetCommit of a member while a second one waits in JoinGroup; after its own JoinGroup, with the old and
    the new generation; after SyncGroup.

    Expects: no error; ILLEGAL_GENERATION; REBALANCE_IN_PROGRESS; no error.

    Why: a consumer commits when its partitions are revoked; between both requests it has none.
    """
    topic = c.topic()
    group = ClassicGroup(c)
    first, second = group.member(), group.member()
    group.complete(first)
    second.start_join()
    first.wait_for_rebalance()

    def committed(offset: int, generation: int) -> int:
        request = o.commit_request(group.id, topic, {0: offset}, member_id=first.member_id, generation=generation)
        return o.commit_error(c, group.wire, request)

    c.error(committed(9, 1), ErrorCode.NONE, "error_code before its JoinGroup")
    first.join()
    second.joined()
    c.error(committed(10, 1), ErrorCode.ILLEGAL_GENERATION, "error_code after JoinGroup with the old generation")
    c.error(committed(11, 2), ErrorCode.REBALANCE_IN_PROGRESS, "error_code after JoinGroup with the new generation")
    c.equal(o.offsets(c, group.wire, group.id, topic, [0]), {0: 9}, "offsets before SyncGroup")
    first.sync({first.member_id: b"-", second.member_id: b"-"})
    c.error(committed(12, 2), ErrorCode.NONE, "error_code after SyncGroup")
    c.equal(o.offsets(c, group.wire, group.id, topic, [0]), {0: 12}, "offsets after SyncGroup")


@case(
    "offsets.members.extend-the-session",
    "a commit keeps a member alive like a heartbeat",
    source="KIP-62",
    level=Level.SHOULD,
    needs=(*OFFSETS, *needs(ApiKey.OFFSET_COMMIT, 2, ApiKey.JOIN_GROUP, 5)),
    seconds=60.0,
)
def extend_the_session(c: Check) -> None:
    """Sends: OffsetCommit, and no heartbeats, of a member with a short session timeout; nothing from a second member
    with the same timeout, which joined later.

    Expects: the second member is removed, and the first one is still a member then.

    Why: a consumer that commits is alive.
    """
    session_ms = shortest_session_ms(c)
    topic = c.topic()
    group = ClassicGroup(c)
    member, silent = (group.member(session_timeout_ms=session_ms) for _ in range(2))
    group.complete(member, silent)
    request = o.commit_request(group.id, topic, {0: 1}, member_id=member.member_id, generation=member.generation)

    def is_alone() -> bool:
        c.error(o.commit_error(c, group.wire, request), ErrorCode.NONE, "OffsetCommit error_code")
        return [each.member_id for each in group.describe().members] == [member.member_id]

    c.until(is_alone, "the end of the other session")
    c.error(member.heartbeat(), ErrorCode.REBALANCE_IN_PROGRESS, "Heartbeat error_code")


@case(
    "offsets.members.after-leaving",
    "offsets are committed without a member when the group is empty again",
    source="Protocol: OffsetCommit",
    layer=Layer.WIRE,
    needs=OFFSETS,
    versions=versions_of(ApiKey.OFFSET_COMMIT),
)
def after_leaving(c: Check, version: int) -> None:
    """Sends: OffsetCommit without a member while the group has one; again after it has left.

    Expects: UNKNOWN_MEMBER_ID; then no error and the new offset. The offset of the member stays in between.

    Why: administrators reset offsets of groups that have stopped, and of no others.
    """
    topic = c.topic()
    group = ClassicGroup(c)
    member = group.member()
    group.complete(member)
    own = o.commit_request(group.id, topic, {0: 5}, member_id=member.member_id, generation=member.generation)
    o.committed_before(c, group.wire, own)
    request = o.commit_request(group.id, topic, {0: 1})
    c.error(o.commit_error(c, group.wire, request, version), ErrorCode.UNKNOWN_MEMBER_ID, "error_code with a member")
    c.error(member.left(), ErrorCode.NONE, "LeaveGroup error_code")
    c.equal(o.offsets(c, group.wire, group.id, topic, [0]), {0: 5}, "offsets after the member has left")
    c.error(o.commit_error(c, group.wire, request, version), ErrorCode.NONE, "error_code without members")
    c.equal(o.offsets(c, group.wire, group.id, topic, [0]), {0: 1}, "offsets after the reset")


@case(
    "offsets.members.static",
    "a static member that was replaced cannot commit",
    source="KIP-345",
    layer=Layer.WIRE,
    needs=(*OFFSETS, *needs(ApiKey.JOIN_GROUP, 5)),
    versions=versions_of(ApiKey.OFFSET_COMMIT, STATIC),
)
def static(c: Check, version: int) -> None:
    """Sends: OffsetCommit of a static member that has restarted; of the process before; of it without its instance ID;
    and of the new process with an unknown instance ID.

    Expects: no error; FENCED_INSTANCE_ID; UNKNOWN_MEMBER_ID; UNKNOWN_MEMBER_ID.

    Why: two processes with one instance ID would overwrite each other's offsets.
    """
    topic = c.topic()
    group = ClassicGroup(c)
    before = group.member(instance_id="instance-1")
    group.complete(before)
    after = group.restarted(before)
    for number, (member_id, instance_id, expected) in enumerate(
        (
            (after.member_id, "instance-1", ErrorCode.NONE),
            (before.member_id, "instance-1", ErrorCode.FENCED_INSTANCE_ID),
            (before.member_id, None, ErrorCode.UNKNOWN_MEMBER_ID),
            (after.member_id, "instance-9", ErrorCode.UNKNOWN_MEMBER_ID),
        )
    ):
        request = o.commit_request(
            group.id, topic, {0: number}, member_id=member_id, generation=1, instance_id=instance_id
        )
        c.error(o.commit_error(c, group.wire, request, version), expected, f"error_code of commit {number}")
    c.equal(o.offsets(c, group.wire, group.id, topic, [0]), {0: 0}, "offsets afterwards")


@case(
    "offsets.members.shared",
    "all members of a group share its offsets",
    source="Protocol: OffsetFetch",
    needs=(*OFFSETS, *needs(ApiKey.OFFSET_COMMIT, 2)),
)
def shared(c: Check) -> None:
    """Sends: OffsetCommit of a member; then LeaveGroup of it, and OffsetFetch on another connection.

    Expects: the offset of the member that has left; another group has none.

    Why: the next owner of a partition continues where the one before has stopped.
    """
    topic = c.topic()
    group, other = ClassicGroup(c), ClassicGroup(c)
    first, second = group.member(), group.member()
    group.complete(first, second)
    request = o.commit_request(group.id, topic, {0: 42}, member_id=first.member_id, generation=first.generation)
    c.error(o.commit_error(c, first.wire, request), ErrorCode.NONE, "OffsetCommit error_code")
    c.error(first.left(), ErrorCode.NONE, "LeaveGroup error_code")
    c.equal(o.offsets(c, second.wire, group.id, topic, [0]), {0: 42}, "offsets of the group")
    c.equal(o.offsets(c, other.wire, other.id, topic, [0]), {0: -1}, "offsets of another group")


@case(
    "offsets.members.consumer-group-commit",
    "a member with the consumer protocol commits with its epoch only",
    source="KIP-848",
    layer=Layer.WIRE,
    features={"group.version": 1},
    needs=CONSUMER_GROUP,
    versions=versions_of(ApiKey.OFFSET_COMMIT, EPOCH),
)
def consumer_group_commit(c: Check, version: int) -> None:
    """Sends: OffsetCommit of a member with ConsumerGroupHeartbeat with its epoch; with a higher one; with another
    member ID; and without a member.

    Expects: no error; STALE_MEMBER_EPOCH; UNKNOWN_MEMBER_ID; UNKNOWN_MEMBER_ID.

    Why: the epoch fences members that have lost their partitions.
    """
    topic = c.topic()
    group = ClassicGroup(c)
    member_id, epoch = join_consumer_group(c, group, topic.name)
    for number, (name, generation, expected) in enumerate(
        (
            (member_id, epoch, ErrorCode.NONE),
            (member_id, epoch + 1, ErrorCode.STALE_MEMBER_EPOCH),
            ("stranger", epoch, ErrorCode.UNKNOWN_MEMBER_ID),
            ("", -1, ErrorCode.UNKNOWN_MEMBER_ID),
        )
    ):
        request = o.commit_request(group.id, topic, {0: number}, member_id=name, generation=generation)
        c.error(o.commit_error(c, group.wire, request, version), expected, f"error_code of commit {number}")
    c.equal(o.offsets(c, group.wire, group.id, topic, [0]), {0: 0}, "offsets afterwards")


@case(
    "offsets.members.consumer-group-old-version",
    "a member with the consumer protocol cannot commit with a version without epochs",
    source="KIP-848",
    layer=Layer.WIRE,
    features={"group.version": 1},
    level=Level.APACHE,
    needs=CONSUMER_GROUP,
    versions=versions_of(ApiKey.OFFSET_COMMIT, 2, EPOCH - 1),
)
def consumer_group_old_version(c: Check, version: int) -> None:
    """Sends: OffsetCommit in a version before 9 of a member with ConsumerGroupHeartbeat.

    Expects: UNSUPPORTED_VERSION, and no offset.

    Why: in these versions the field is a generation, and a client does not know the errors for epochs.
    """
    topic = c.topic()
    group = ClassicGroup(c)
    member_id, epoch = join_consumer_group(c, group, topic.name)
    request = o.commit_request(group.id, topic, {0: 1}, member_id=member_id, generation=epoch)
    c.error(o.commit_error(c, group.wire, request, version), ErrorCode.UNSUPPORTED_VERSION)
    c.equal(o.offsets(c, group.wire, group.id, topic, [0]), {0: -1}, "offsets afterwards")


@case(
    "offsets.members.consumer-group-fetch",
    "OffsetFetch of a member with the consumer protocol is checked by its epoch",
    source="KIP-848",
    layer=Layer.WIRE,
    features={"group.version": 1},
    needs=CONSUMER_GROUP,
    versions=versions_of(ApiKey.OFFSET_FETCH, EPOCH),
)
def consumer_group_fetch(c: Check, version: int) -> None:
    """Sends: OffsetFetch with the member ID and epoch of a member with ConsumerGroupHeartbeat; with lower and higher
    epochs; with another member ID; and without a member.

    Expects: no error; STALE_MEMBER_EPOCH; UNKNOWN_MEMBER_ID; no error. With an error, no topics.

    Why: a member that has lost its partitions must not start to read them; administrators have no member ID.
    """
    topic = c.topic()
    group = ClassicGroup(c)
    o.committed_before(c, group.wire, o.commit_request(group.id, topic, {0: 6}))
    member_id, epoch = join_consumer_group(c, group, topic.name)
    offset = {o.key_of(topic, version): {0: o.Committed(6)}}
    for name, requested, expected in (
        (member_id, epoch, ErrorCode.NONE),
        (member_id, epoch - 1, ErrorCode.STALE_MEMBER_EPOCH),
        (member_id, epoch + 1, ErrorCode.STALE_MEMBER_EPOCH),
        ("stranger", epoch, ErrorCode.UNKNOWN_MEMBER_ID),
        (None, -1, ErrorCode.NONE),
    ):
        found = o.fetch(c, group.wire, group.id, {topic: [0]}, version, member_id=name, member_epoch=requested)
        what = f"with the member ID {name!r} and epoch {requested}"
        c.error(found.error_code, expected, f"error_code {what}")
        c.equal(found.topics, {} if expected else offset, f"partitions by topic {what}")

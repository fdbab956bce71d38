"""LeaveGroup: one member, several members (KIP-345), and what is rejected."""

from __future__ import annotations

from ...protocol.api import ApiKey
from ...protocol.errors import ErrorCode
from ...testing.group_requests import leave_request
from ..case import Layer, Level, case, needs, versions_of
from ..check import Check
from ..classic_group import BATCHED_LEAVE, ClassicGroup

LEAVE = needs(ApiKey.JOIN_GROUP, 5, ApiKey.LEAVE_GROUP, BATCHED_LEAVE)


@case(
    "groups.leave.exchange",
    "a member leaves",
    source="Protocol: LeaveGroup, KIP-345",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.LEAVE_GROUP),
)
def exchange(c: Check, version: int) -> None:
    """Sends: LeaveGroup of the only member of a group; then Heartbeat of it, and DescribeGroups.

    Expects: no error; from version 3 on an entry with its member ID, a null instance ID and no error; then
    UNKNOWN_MEMBER_ID, and the state Empty with the protocol type that the group had.

    Why: a consumer that stops releases its partitions to the others immediately.
    """
    group = ClassicGroup(c)
    group.keep()
    member = group.member()
    group.complete(member)
    answer = member.leave(version)
    c.error(answer.error_code, ErrorCode.NONE)
    found = [(each.member_id, each.group_instance_id, each.error_code) for each in answer.members]
    expected = [(member.member_id, None, 0)] if version >= BATCHED_LEAVE else []
    c.equal(found, expected, "members (member_id, group_instance_id, error_code)")
    c.error(member.heartbeat(), ErrorCode.UNKNOWN_MEMBER_ID, "Heartbeat error_code afterwards")
    described = group.describe()
    c.equal(
        (described.group_state, described.protocol_type, described.members),
        ("Empty", "consumer", []),
        "DescribeGroups group_state, protocol_type and members",
    )


@case(
    "groups.leave.unknown-member",
    "a member that the group does not have is rejected",
    source="Protocol: LeaveGroup",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.LEAVE_GROUP),
)
def unknown_member(c: Check, version: int) -> None:
    """Sends: LeaveGroup with a member ID that the server has not given, to a group with one member.

    Expects: UNKNOWN_MEMBER_ID, up to version 2 for the request and from version 3 on for the member; the group's
    member stays.

    Why: a consumer that retries must see that it has already left, and must not remove another one.
    """
    group = ClassicGroup(c)
    member = group.member()
    group.complete(member)
    stranger = group.member()
    stranger.member_id = "stranger"
    answer = stranger.leave(version)
    if version < BATCHED_LEAVE:
        c.error(answer.error_code, ErrorCode.UNKNOWN_MEMBER_ID)
    else:
        c.error(answer.error_code, ErrorCode.NONE)
        found = [(each.member_id, each.group_instance_id, each.error_code) for each in answer.members]
        c.equal(found, [("stranger", None, int(ErrorCode.UNKNOWN_MEMBER_ID))], "members")
    c.error(member.heartbeat(), ErrorCode.NONE, "Heartbeat error_code of the member")


@case(
    "groups.leave.unknown-group",
    "leaving a group that does not exist is rejected",
    source="Protocol: LeaveGroup",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.LEAVE_GROUP),
)
def unknown_group(c: Check, version: int) -> None:
    """Sends: LeaveGroup to a group that does not exist.

    Expects: UNKNOWN_MEMBER_ID, for the request or for the member.

    Why: releases of Apache Kafka differ in where the error is; a client reads both.
    """
    stranger = ClassicGroup(c).member()
    stranger.member_id = "stranger"
    answer = stranger.leave(version)
    errors = [answer.error_code, *(each.error_code for each in answer.members)]
    c.true(
        [each for each in errors if each] == [ErrorCode.UNKNOWN_MEMBER_ID],
        "the error codes of the response",
        expected="UNKNOWN_MEMBER_ID once",
        actual=errors,
    )


@case(
    "groups.leave.empty-group-id",
    "the empty group has no members that leave",
    source="Protocol: LeaveGroup",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.LEAVE_GROUP),
)
def empty_group_id(c: Check, version: int) -> None:
    """Sends: LeaveGroup with an empty group ID.

    Expects: INVALID_GROUP_ID for the request.

    Why: the empty group has no members.
    """
    member = ClassicGroup(c, "").member()
    member.member_id = "stranger"
    answer = member.leave(version)
    c.error(answer.error_code, ErrorCode.INVALID_GROUP_ID)
    c.equal(answer.members, [], "members")


@case(
    "groups.leave.several",
    "each member of a request has its own result",
    source="KIP-345",
    layer=Layer.WIRE,
    needs=needs(ApiKey.JOIN_GROUP, 5),
    versions=versions_of(ApiKey.LEAVE_GROUP, BATCHED_LEAVE),
)
def several(c: Check, version: int) -> None:
    """Sends: LeaveGroup for a dynamic member, a static member by its instance ID only, and two unknown members.

    Expects: entries in the order of the request: no error for the first two, UNKNOWN_MEMBER_ID for the others; the
    group is empty.

    Why: administrators remove static members by their instance IDs, and must see which were not found.
    """
    group = ClassicGroup(c)
    group.keep()
    dynamic, static = group.member(), group.member(instance_id="instance-1")
    group.complete(dynamic, static)
    unknown = int(ErrorCode.UNKNOWN_MEMBER_ID)
    request = leave_request(
        group.id, ("stranger", None), (dynamic.member_id, None), ("", "instance-2"), ("", "instance-1")
    )
    answer = c.call(request, version, to=group.wire)
    c.error(answer.error_code, ErrorCode.NONE)
    c.equal(
        [(each.member_id, each.group_instance_id, each.error_code) for each in answer.members],
        [
            ("stranger", None, unknown),
            (dynamic.member_id, None, 0),
            ("", "instance-2", unknown),
            ("", "instance-1", 0),
        ],
        "members (member_id, group_instance_id, error_code)",
    )
    c.equal(group.describe().group_state, "Empty", "group_state in DescribeGroups")


@case(
    "groups.leave.fenced",
    "an instance ID with another member's ID is fenced",
    source="KIP-345",
    layer=Layer.WIRE,
    needs=needs(ApiKey.JOIN_GROUP, 5),
    versions=versions_of(ApiKey.LEAVE_GROUP, BATCHED_LEAVE),
)
def fenced(c: Check, version: int) -> None:
    """Sends: LeaveGroup with an instance ID and the member ID that this instance had before its restart.

    Expects: FENCED_INSTANCE_ID for the member; the instance stays in the group.

    Why: a process that was replaced must not remove the one that replaced it.
    """
    group = ClassicGroup(c)
    before = group.member(instance_id="instance-1")
    group.complete(before)
    after = group.restarted(before)
    answer = before.leave(version)
    c.error(answer.error_code, ErrorCode.NONE)
    found = [(each.member_id, each.group_instance_id, each.error_code) for each in answer.members]
    expected = [(before.member_id, "instance-1", int(ErrorCode.FENCED_INSTANCE_ID))]
    c.equal(found, expected, "members (member_id, group_instance_id, error_code)")
    c.error(after.heartbeat(), ErrorCode.NONE, "Heartbeat error_code of the new process")


@case(
    "groups.leave.reason",
    "a reason does not change the response",
    source="KIP-800",
    layer=Layer.WIRE,
    needs=needs(ApiKey.LEAVE_GROUP, 5),
    level=Level.SHOULD,
    variants={"null": (None,), "empty": ("",), "text": ("the consumer was closed",), "long": ("x" * 10_000,)},
)
def reason(c: Check, text: str | None) -> None:
    """Sends: LeaveGroup with a reason, or without one, in version 5.

    Expects: no error, and an empty group.

    Why: the reason is for the log of the server only.
    """
    group = ClassicGroup(c)
    group.keep()
    member = group.member()
    group.complete(member)
    answer = member.leave(5, reason=text)
    c.error(answer.error_code, ErrorCode.NONE)
    c.equal([each.error_code for each in answer.members], [0], "members (error_code)")
    c.equal(group.describe().group_state, "Empty", "group_state in DescribeGroups")


@case(
    "groups.leave.pending",
    "a member that has received its ID and not joined may leave",
    source="KIP-394",
    needs=LEAVE,
)
def pending(c: Check) -> None:
    """Sends: JoinGroup, whose response has a member ID; LeaveGroup with this ID; then JoinGroup of the leader.

    Expects: no error; the rebalance completes without waiting for the member that has left.

    Why: a consumer that is closed while it joins must not delay the others for a session timeout.
    """
    group = ClassicGroup(c)
    leader = group.member()
    group.complete(leader)
    new = group.member()
    new.take_id()
    c.error(new.left(), ErrorCode.NONE)
    answer = leader.join()
    c.error(answer.error_code, ErrorCode.NONE, "JoinGroup error_code of the leader")
    c.equal([each.member_id for each in answer.members], [leader.member_id], "members of the next generation")
    c.error(new.ask_join().error_code, ErrorCode.UNKNOWN_MEMBER_ID, "JoinGroup error_code of the member that has left")
    new.member_id = ""


@case(
    "groups.leave.while-it-waits",
    "a member that leaves while its JoinGroup waits is removed",
    source="Protocol: LeaveGroup",
    needs=LEAVE,
)
def while_it_waits(c: Check) -> None:
    """Sends: JoinGroup of a second member, which waits for the first one; LeaveGroup for it on another connection.

    Expects: UNKNOWN_MEMBER_ID in the response to its JoinGroup; the first member rejoins alone.

    Why: a JoinGroup without a response would block the consumer's thread, also while it shuts down.
    """
    group = ClassicGroup(c)
    first, second = group.member(), group.member()
    group.complete(first)
    second.start_join()
    group.wait_for_members(2)
    answer = c.call(leave_request(group.id, (second.member_id, None)), to=group.wire)
    c.equal([each.error_code for each in answer.members], [0], "LeaveGroup members (error_code)")
    c.error(second.joined().error_code, ErrorCode.UNKNOWN_MEMBER_ID, "JoinGroup error_code of the second member")
    joined = first.join()
    c.error(joined.error_code, ErrorCode.NONE, "JoinGroup error_code of the first member")
    c.equal([each.member_id for each in joined.members], [first.member_id], "members of the next generation")

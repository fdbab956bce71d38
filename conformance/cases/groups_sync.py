"""SyncGroup: the leader's assignments, and what is rejected."""

from __future__ import annotations

from ...protocol.api import ApiKey
from ...protocol.errors import ErrorCode
from ...testing.group_requests import assigned, assignment, subscription
from ..case import Layer, Level, case, needs, versions_of
from ..check import Check
from ..classic_group import ClassicGroup

SYNC = needs(ApiKey.JOIN_GROUP, 4, ApiKey.SYNC_GROUP, 3)
WITH_PROTOCOL = 5
"""The first version with the protocol's type and name (KIP-559)."""


@case(
    "groups.sync.exchange",
    "the leader receives its own assignment",
    source="Protocol: SyncGroup",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.SYNC_GROUP),
)
def exchange(c: Check, version: int) -> None:
    """Sends: SyncGroup of the only member of a group, which is its leader, with an assignment for itself.

    Expects: no error and the same bytes; in version 5 the protocol type and name of the group.

    Why: a consumer reads the partitions of this response.
    """
    group = ClassicGroup(c)
    member = group.member()
    member.join()
    answer = member.sync({member.member_id: b"\x00mine"}, version)
    c.error(answer.error_code, ErrorCode.NONE)
    c.equal(answer.assignment, b"\x00mine", "assignment")
    if version >= WITH_PROTOCOL:
        c.equal((answer.protocol_type, answer.protocol_name), ("consumer", "range"), "protocol_type and protocol_name")
    c.equal(group.describe().group_state, "Stable", "group_state in DescribeGroups")


@case(
    "groups.sync.follower",
    "the other members wait for the leader's assignments",
    source="Protocol: SyncGroup",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.SYNC_GROUP),
)
def follower(c: Check, version: int) -> None:
    """Sends: SyncGroup of a follower; then of the leader, with different assignments; then of the follower again.

    Expects: each member receives the assignment that the leader sent for it; the repeated request has the same
    response.

    Why: a follower that receives another member's partitions reads them twice, and no member reads its own.
    """
    group = ClassicGroup(c)
    leader, other = group.member(), group.member()
    group.complete(leader)
    other.start_join()
    leader.wait_for_rebalance()
    leader.join()
    other.joined()
    other.start_sync(version=version)
    first = leader.sync({leader.member_id: b"leader's", other.member_id: b"follower's"}, version)
    second = other.synced()
    c.error(first.error_code, ErrorCode.NONE, "error_code of the leader")
    c.error(second.error_code, ErrorCode.NONE, "error_code of the follower")
    c.equal(first.assignment, b"leader's", "assignment of the leader")
    c.equal(second.assignment, b"follower's", "assignment of the follower")
    again = other.sync(version=version)
    c.error(again.error_code, ErrorCode.NONE, "error_code of the repeated request")
    c.equal(again.assignment, b"follower's", "assignment in the response to the repeated request")
    for member in (leader, other):
        c.error(member.heartbeat(), ErrorCode.NONE, "Heartbeat error_code")


@case(
    "groups.sync.unknown-member",
    "a member that the group does not have is rejected",
    source="Protocol: SyncGroup",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.SYNC_GROUP),
    variants={"group": (True, "stranger"), "no-group": (False, "stranger"), "empty": (True, "")},
)
def unknown_member(c: Check, version: int, exists: bool, member_id: str) -> None:
    """Sends: SyncGroup with a member ID that the server has not given, to a group with one member or to none.

    Expects: UNKNOWN_MEMBER_ID and no assignment; the member's heartbeats have no error.

    Why: a consumer whose session has expired must not take partitions that another one has now.
    """
    group = ClassicGroup(c)
    member = group.member()
    if exists:
        group.complete(member)
    stranger = group.member()
    stranger.member_id, stranger.generation = member_id, 1
    answer = stranger.sync({"stranger": b"stolen", member.member_id: b"stolen"}, version)
    c.error(answer.error_code, ErrorCode.UNKNOWN_MEMBER_ID)
    c.equal(answer.assignment, b"", "assignment")
    if exists:
        c.error(member.heartbeat(), ErrorCode.NONE, "Heartbeat error_code of the member")
        c.equal(member.sync().assignment, member.member_id.encode(), "assignment of the member")


@case(
    "groups.sync.generation",
    "another generation is rejected",
    source="Protocol: SyncGroup",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.SYNC_GROUP),
)
def generation(c: Check, version: int) -> None:
    """Sends: SyncGroup with generations other than the current one, 1.

    Expects: ILLEGAL_GENERATION and no assignment; afterwards the member still has its own.

    Why: a leader that was slow must not overwrite the assignments of the generation that replaced its own.
    """
    group = ClassicGroup(c)
    member = group.member()
    group.complete(member)
    for wrong in (-1, 0, 2, 2**31 - 1):
        member.generation = wrong
        answer = member.sync({member.member_id: b"late"}, version)
        c.error(answer.error_code, ErrorCode.ILLEGAL_GENERATION, f"error_code for generation {wrong}")
        c.equal(answer.assignment, b"", "assignment")
    member.generation = 1
    c.equal(member.sync().assignment, member.member_id.encode(), "assignment for the current generation")


@case(
    "groups.sync.empty-group-id",
    "the empty group has no assignments",
    source="Protocol: SyncGroup",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.SYNC_GROUP),
)
def empty_group_id(c: Check, version: int) -> None:
    """Sends: SyncGroup with an empty group ID.

    Expects: INVALID_GROUP_ID.

    Why: the empty group has no members.
    """
    member = ClassicGroup(c, "").member()
    member.member_id, member.generation = "stranger", 1
    c.error(member.sync(version=version).error_code, ErrorCode.INVALID_GROUP_ID)


@case(
    "groups.sync.protocol",
    "a member that believes in another protocol is rejected",
    source="KIP-559",
    layer=Layer.WIRE,
    needs=needs(ApiKey.SYNC_GROUP, WITH_PROTOCOL),
    variants={
        "type": ("connect", "range"),
        "name": ("consumer", "roundrobin"),
    },
)
def protocol(c: Check, protocol_type: str, protocol_name: str) -> None:
    """Sends: SyncGroup with another protocol type or name than the group's; then with the right ones.

    Expects: INCONSISTENT_GROUP_PROTOCOL without an assignment; then no error.

    Why: a member that would decode the assignment with another protocol must not receive it.
    """
    member = ClassicGroup(c).member()
    member.join()
    request = member.sync_request({member.member_id: b"wrong"})
    request.protocol_type, request.protocol_name = protocol_type, protocol_name
    answer = c.call(request, to=member.wire)
    c.error(answer.error_code, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    c.equal(answer.assignment, b"", "assignment")
    c.equal(member.sync({member.member_id: b"right"}).assignment, b"right", "assignment with the right protocol")


@case(
    "groups.sync.protocol-null",
    "a member that sends only one of protocol type and name is rejected",
    source="KIP-559",
    layer=Layer.WIRE,
    level=Level.APACHE,
    needs=needs(ApiKey.SYNC_GROUP, WITH_PROTOCOL),
    variants={"type": (None, "range"), "name": ("consumer", None), "both": (None, None)},
)
def protocol_null(c: Check, protocol_type: str | None, protocol_name: str | None) -> None:
    """Sends: SyncGroup in version 5 with a null protocol type or a null protocol name.

    Expects: INCONSISTENT_GROUP_PROTOCOL.

    Why: since version 5 both fields are mandatory, so that the server can compare them.
    """
    member = ClassicGroup(c).member()
    member.join()
    request = member.sync_request({member.member_id: b"-"})
    request.protocol_type, request.protocol_name = protocol_type, protocol_name
    c.error(c.call(request, to=member.wire).error_code, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)


@case(
    "groups.sync.no-assignment",
    "a member for which the leader sends nothing receives an empty assignment",
    source="Protocol: SyncGroup",
    needs=SYNC,
)
def no_assignment(c: Check) -> None:
    """Sends: SyncGroup of a leader with an assignment for itself only, and of a follower.

    Expects: an empty assignment for the follower, and no error.

    Why: a group may have more members than partitions.
    """
    group = ClassicGroup(c)
    leader, other = group.member(), group.member()
    group.complete(leader)
    other.start_join()
    leader.wait_for_rebalance()
    leader.join()
    other.joined()
    other.start_sync()
    c.equal(leader.sync({leader.member_id: b"all"}).assignment, b"all", "assignment of the leader")
    answer = other.synced()
    c.error(answer.error_code, ErrorCode.NONE, "error_code of the follower")
    c.equal(answer.assignment, b"", "assignment of the follower")


@case(
    "groups.sync.unknown-members-are-ignored",
    "assignments for members that the group does not have are ignored",
    source="Protocol: SyncGroup",
    needs=SYNC,
    level=Level.SHOULD,
)
def unknown_members_are_ignored(c: Check) -> None:
    """Sends: SyncGroup of the leader with assignments for itself and for an unknown member.

    Expects: no error and its own assignment; DescribeGroups shows one member.

    Why: a member may have left between the leader's two requests.
    """
    group = ClassicGroup(c)
    member = group.member()
    member.join()
    answer = member.sync({"stranger": b"x" * 1_000, member.member_id: b"mine"})
    c.error(answer.error_code, ErrorCode.NONE)
    c.equal(answer.assignment, b"mine", "assignment")
    found = [(each.member_id, each.member_assignment) for each in group.describe().members]
    c.equal(found, [(member.member_id, b"mine")], "DescribeGroups members (member_id, member_assignment)")


@case(
    "groups.sync.follower-cannot-assign",
    "assignments of a member that is not the leader are ignored",
    source="Protocol: SyncGroup",
    needs=SYNC,
)
def follower_cannot_assign(c: Check) -> None:
    """Sends: SyncGroup of a follower with assignments for all; then of the leader, with others.

    Expects: the leader's assignments for both.

    Why: two members that assign would give the same partitions to several members.
    """
    group = ClassicGroup(c)
    leader, other = group.member(), group.member()
    group.complete(leader)
    other.start_join()
    leader.wait_for_rebalance()
    leader.join()
    other.joined()
    other.start_sync({leader.member_id: b"wrong", other.member_id: b"wrong"})
    c.equal(leader.sync({leader.member_id: b"l", other.member_id: b"f"}).assignment, b"l", "assignment of the leader")
    c.equal(other.synced().assignment, b"f", "assignment of the follower")


@case(
    "groups.sync.any-partitions",
    "an assignment may have partitions that do not exist",
    source="Protocol: SyncGroup",
    needs=SYNC,
    level=Level.APACHE,
)
def any_partitions(c: Check) -> None:
    """Sends: SyncGroup of a leader with an assignment of a topic that does not exist.

    Expects: the same bytes in the response and in DescribeGroups.

    Why: the coordinator does not interpret assignments; leaders may know topics that it does not know yet.
    """
    group = ClassicGroup(c)
    nowhere = assignment({"no such topic!": [0, 77, 2**31 - 1, -1]})
    member = group.member(protocols={"range": subscription("no such topic!")})
    member.join()
    answer = member.sync({member.member_id: nowhere})
    c.equal(assigned(answer.assignment), {"no such topic!": [-1, 0, 77, 2**31 - 1]}, "assignment")
    found = [each.member_assignment for each in group.describe().members]
    c.equal(found, [nowhere], "DescribeGroups members (member_assignment)")


@case(
    "groups.sync.during-a-rebalance",
    "SyncGroup of a member that has not rejoined is rejected",
    source="Protocol: SyncGroup",
    layer=Layer.WIRE,
    needs=needs(ApiKey.JOIN_GROUP, 4),
    versions=versions_of(ApiKey.SYNC_GROUP),
)
def during_a_rebalance(c: Check, version: int) -> None:
    """Sends: SyncGroup of a member while a second one waits in JoinGroup.

    Expects: REBALANCE_IN_PROGRESS and no assignment.

    Why: the member must rejoin; the assignment of its generation is about to be replaced.
    """
    group = ClassicGroup(c)
    first, second = group.member(), group.member()
    group.complete(first)
    second.start_join()
    group.wait_for_state("PreparingRebalance")
    answer = first.sync(version=version)
    c.error(answer.error_code, ErrorCode.REBALANCE_IN_PROGRESS)
    c.equal(answer.assignment, b"", "assignment")


@case(
    "groups.sync.rebalance-while-waiting",
    "a follower that waits for its assignment learns of the next rebalance",
    source="Protocol: SyncGroup",
    needs=SYNC,
)
def rebalance_while_waiting(c: Check) -> None:
    """Sends: SyncGroup of a follower, which waits for the leader; then JoinGroup of a third member.

    Expects: REBALANCE_IN_PROGRESS for the follower.

    Why: a follower that waits for an assignment that is never sent would block the next generation.
    """
    group = ClassicGroup(c)
    leader, waiting, new = (group.member() for _ in range(3))
    group.complete(leader)
    waiting.start_join()
    leader.wait_for_rebalance()
    leader.join()
    waiting.joined()
    waiting.start_sync()
    new.start_join()
    answer = waiting.synced()
    c.error(answer.error_code, ErrorCode.REBALANCE_IN_PROGRESS)
    c.equal(answer.assignment, b"", "assignment")

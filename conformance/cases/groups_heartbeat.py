"""Heartbeat: members that are alive, and how they learn of rebalances."""

from __future__ import annotations

from ...protocol.api import ApiKey
from ...protocol.errors import ErrorCode
from ..case import Layer, case, needs, versions_of
from ..check import Check
from ..classic_group import ClassicGroup

STATIC = 3
"""The first version with instance IDs (KIP-345)."""


@case(
    "groups.heartbeat.exchange",
    "a heartbeat of a member has no error",
    source="Protocol: Heartbeat",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.HEARTBEAT),
)
def exchange(c: Check, version: int) -> None:
    """Sends: Heartbeat of the only member of a group, three times; from version 3 on also of a static member.

    Expects: no error.

    Why: any error makes a consumer rejoin, so that its group would never be stable.
    """
    group = ClassicGroup(c)
    member = group.member()
    group.complete(member)
    for _ in range(3):
        c.error(member.heartbeat(version), ErrorCode.NONE)
    if version >= STATIC:
        static_group = ClassicGroup(c)
        static = static_group.member(instance_id="instance-1")
        static_group.complete(static)
        c.error(static.heartbeat(version), ErrorCode.NONE, "error_code of the static member")


@case(
    "groups.heartbeat.unknown-member",
    "a member that the group does not have is rejected",
    source="Protocol: Heartbeat",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.HEARTBEAT),
    variants={"group": (True, "stranger"), "no-group": (False, "stranger"), "empty": (True, "")},
)
def unknown_member(c: Check, version: int, exists: bool, member_id: str) -> None:
    """Sends: Heartbeat with a member ID that the server has not given, to a group with one member or to none.

    Expects: UNKNOWN_MEMBER_ID.

    Why: a consumer whose session has expired must stop and rejoin; its partitions belong to others.
    """
    group = ClassicGroup(c)
    if exists:
        group.complete(group.member())
    stranger = group.member()
    stranger.member_id, stranger.generation = member_id, 1
    c.error(stranger.heartbeat(version), ErrorCode.UNKNOWN_MEMBER_ID)


@case(
    "groups.heartbeat.generation",
    "another generation is rejected",
    source="Protocol: Heartbeat",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.HEARTBEAT),
    variants={"older": (0,), "newer": (2,), "minus-1": (-1,), "2147483647": (2**31 - 1,)},
)
def generation(c: Check, version: int, wrong: int) -> None:
    """Sends: Heartbeat of the member of a group in generation 1, with another generation; then with 1.

    Expects: ILLEGAL_GENERATION; then no error.

    Why: a member that has missed a generation must not go on with partitions of the one before.
    """
    group = ClassicGroup(c)
    member = group.member()
    group.complete(member)
    member.generation = wrong
    c.error(member.heartbeat(version), ErrorCode.ILLEGAL_GENERATION)
    member.generation = 1
    c.error(member.heartbeat(version), ErrorCode.NONE, "error_code for the current generation")


@case(
    "groups.heartbeat.empty-group-id",
    "the empty group has no heartbeats",
    source="Protocol: Heartbeat",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.HEARTBEAT),
)
def empty_group_id(c: Check, version: int) -> None:
    """Sends: Heartbeat with an empty group ID.

    Expects: INVALID_GROUP_ID.

    Why: the empty group has no members.
    """
    member = ClassicGroup(c, "").member()
    member.member_id, member.generation = "stranger", 1
    c.error(member.heartbeat(version), ErrorCode.INVALID_GROUP_ID)


@case(
    "groups.heartbeat.rebalance",
    "a heartbeat during a rebalance requires a rejoin",
    source="Protocol: Heartbeat",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.HEARTBEAT),
)
def rebalance(c: Check, version: int) -> None:
    """Sends: JoinGroup of a second member; then Heartbeat of the first one.

    Expects: REBALANCE_IN_PROGRESS until the first member has rejoined; then no error, although no assignment has been
    sent yet.

    Why: members learn of a rebalance only by this error.
    """
    group = ClassicGroup(c)
    first, second = group.member(), group.member()
    group.complete(first)
    second.start_join()
    group.wait_for_state("PreparingRebalance")
    for _ in range(2):
        c.error(first.heartbeat(version), ErrorCode.REBALANCE_IN_PROGRESS)
    c.equal(first.join().generation_id, 2, "JoinGroup generation_id")
    second.joined()
    c.equal(group.describe().group_state, "CompletingRebalance", "group_state in DescribeGroups")
    c.error(first.heartbeat(version), ErrorCode.NONE, "error_code before SyncGroup")


@case(
    "groups.heartbeat.fenced",
    "a static member that was replaced is fenced",
    source="KIP-345",
    layer=Layer.WIRE,
    needs=needs(ApiKey.JOIN_GROUP, 5),
    versions=versions_of(ApiKey.HEARTBEAT, STATIC),
)
def fenced(c: Check, version: int) -> None:
    """Sends: JoinGroup of a second process with the same instance ID; then Heartbeat of the first process.

    Expects: FENCED_INSTANCE_ID for the first, no error for the second.

    Why: two processes with one instance ID would read the same partitions.
    """
    group = ClassicGroup(c)
    before = group.member(instance_id="instance-1")
    group.complete(before)
    after = group.restarted(before)
    before.generation = after.generation
    c.error(before.heartbeat(version), ErrorCode.FENCED_INSTANCE_ID)
    c.error(after.heartbeat(version), ErrorCode.NONE, "error_code of the new process")


@case(
    "groups.heartbeat.other-connection",
    "a member is not bound to a connection",
    source="Protocol: Heartbeat",
    needs=needs(ApiKey.JOIN_GROUP, 4),
)
def other_connection(c: Check) -> None:
    """Sends: JoinGroup and SyncGroup on a connection, which is then closed; then Heartbeat on another one.

    Expects: no error, and the group is stable.

    Why: a consumer must survive a short loss of its connection.
    """
    group = ClassicGroup(c)
    member = group.member()
    group.complete(member)
    member.wire.close()
    again = group.member()
    again.member_id, again.generation = member.member_id, member.generation
    c.error(again.heartbeat(), ErrorCode.NONE)
    c.equal(group.describe().group_state, "Stable", "group_state in DescribeGroups")

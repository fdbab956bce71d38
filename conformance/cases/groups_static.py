"""Static members: restarts without a rebalance, and the fencing of the process that was replaced (KIP-345)."""

from __future__ import annotations

from ...protocol.api import ApiKey
from ...protocol.errors import ErrorCode
from ...testing.group_requests import leave_request, subscription
from ..case import Layer, Level, case, needs, versions_of
from ..check import Check
from ..classic_group import ClassicGroup

STATIC = needs(ApiKey.JOIN_GROUP, 5, ApiKey.SYNC_GROUP, 3, ApiKey.HEARTBEAT, 3, ApiKey.LEAVE_GROUP, 3)


@case(
    "groups.static.restart",
    "a static member that restarts keeps its assignment, without a rebalance",
    source="KIP-345",
    layer=Layer.WIRE,
    needs=STATIC,
    versions=versions_of(ApiKey.JOIN_GROUP, 5),
)
def restart(c: Check, version: int) -> None:
    """Sends: JoinGroup with the instance ID of a follower and without a member ID, as after a restart; then SyncGroup.

    Expects: the current generation and leader, a new member ID, no members; the assignment that the process before
    it had; no rebalance for the leader; still two members.

    Why: a rolling restart must not stop a group, and must not move partitions with large state.
    """
    group = ClassicGroup(c)
    leader, static = group.member(), group.member(instance_id="instance-1")
    group.complete(leader, static)
    back = group.member(instance_id="instance-1")
    answer = back.join(version)
    c.error(answer.error_code, ErrorCode.NONE)
    c.equal((answer.generation_id, answer.leader), (2, leader.member_id), "generation_id and leader")
    c.equal(answer.members, [], "members")
    c.true(answer.member_id not in ("", static.member_id), "member_id", expected="a new one", actual=answer.member_id)
    synced = back.sync()
    c.error(synced.error_code, ErrorCode.NONE, "SyncGroup error_code")
    c.equal(synced.assignment, static.member_id.encode(), "SyncGroup assignment")
    for member in (leader, back):
        c.error(member.heartbeat(), ErrorCode.NONE, "Heartbeat error_code")
    found = {each.member_id for each in group.describe().members}
    c.equal(found, {leader.member_id, back.member_id}, "members in DescribeGroups")


@case(
    "groups.static.fenced",
    "the process that was replaced is fenced in every request",
    source="KIP-345",
    needs=STATIC,
)
def fenced(c: Check) -> None:
    """Sends: Heartbeat, SyncGroup, JoinGroup and LeaveGroup of a static member after another process has joined with
    its instance ID.

    Expects: FENCED_INSTANCE_ID for each; the new process stays in the group.

    Why: two processes with one instance ID would read the same partitions; the older one must stop.
    """
    group = ClassicGroup(c)
    leader, static = group.member(), group.member(instance_id="instance-1")
    group.complete(leader, static)
    back = group.restarted(static)
    c.error(static.heartbeat(), ErrorCode.FENCED_INSTANCE_ID, "Heartbeat error_code")
    answer = static.sync()
    c.error(answer.error_code, ErrorCode.FENCED_INSTANCE_ID, "SyncGroup error_code")
    c.equal(answer.assignment, b"", "SyncGroup assignment")
    c.error(static.ask_join().error_code, ErrorCode.FENCED_INSTANCE_ID, "JoinGroup error_code")
    c.error(static.left(), ErrorCode.FENCED_INSTANCE_ID, "LeaveGroup error_code")
    c.error(back.heartbeat(), ErrorCode.NONE, "Heartbeat error_code of the new process")
    c.equal(len(group.describe().members), 2, "members in DescribeGroups (number)")


@case(
    "groups.static.fenced-while-waiting",
    "a process that waits for its assignment or for members is fenced immediately",
    source="KIP-345",
    needs=STATIC,
    variants={"join": (True,), "sync": (False,)},
)
def fenced_while_waiting(c: Check, in_join: bool) -> None:
    """Sends: JoinGroup, or SyncGroup, of a static member, which waits for the others; then JoinGroup of another process
    with its instance ID.

    Expects: FENCED_INSTANCE_ID in the response that the first process waits for.

    Why: otherwise it would wait until its request times out, and then try again.
    """
    group = ClassicGroup(c)
    leader, static, back = group.member(), *(group.member(instance_id="instance-1") for _ in range(2))
    group.complete(leader)
    static.start_join()
    group.wait_for_members(2)
    if not in_join:
        leader.join()
        static.joined()
        static.start_sync()
    back.start_join()
    answer = static.joined() if in_join else static.synced()
    c.error(answer.error_code, ErrorCode.FENCED_INSTANCE_ID)


@case(
    "groups.static.leader-restarts",
    "a static leader that restarts learns whether to assign partitions",
    source="KIP-814",
    layer=Layer.WIRE,
    needs=STATIC,
    versions=versions_of(ApiKey.JOIN_GROUP, 5),
)
def leader_restarts(c: Check, version: int) -> None:
    """Sends: JoinGroup with the instance ID of the leader and without a member ID, as after a restart.

    Expects: the current generation; in version 9 its new member ID as the leader, skip_assignment, and all members; in
    older versions the leader's former member ID, and no members.

    Why: a restarted leader must not assign without the others' rejoin; since KIP-814 it is still the leader, and
    notices when the topics change.
    """
    group = ClassicGroup(c)
    leader, other = group.member(instance_id="instance-1"), group.member(instance_id="instance-2")
    group.complete(leader, other)
    back = group.member(instance_id="instance-1")
    answer = back.join(version)
    c.error(answer.error_code, ErrorCode.NONE)
    c.equal(answer.generation_id, 2, "generation_id")
    c.true(answer.member_id not in ("", leader.member_id), "member_id", expected="a new one", actual=answer.member_id)
    members = {(each.member_id, each.group_instance_id, each.metadata) for each in answer.members}
    if version >= 9:
        c.equal(answer.skip_assignment, True, "skip_assignment")
        c.equal(answer.leader, back.member_id, "leader")
        expected = {
            (back.member_id, "instance-1", subscription("a")),
            (other.member_id, "instance-2", subscription("a")),
        }
        c.equal(members, expected, "members (member_id, group_instance_id, metadata)")
    else:
        c.equal(answer.leader, leader.member_id, "leader")
        c.equal(members, set(), "members")
    c.equal(back.sync().assignment, leader.member_id.encode(), "SyncGroup assignment")
    c.error(other.heartbeat(), ErrorCode.NONE, "Heartbeat error_code of the other member")


@case(
    "groups.static.other-protocols",
    "a restart with other metadata is a rebalance only if the group's protocol changes",
    source="KIP-345",
    level=Level.APACHE,
    needs=STATIC,
)
def other_protocols(c: Check) -> None:
    """Sends: JoinGroup of a restarted follower that has one more protocol than before; the group's choice is the same.

    Expects: the current generation, and no rebalance for the leader.

    Why: an upgrade that adds an assignor is done by a rolling restart of all members.
    """
    group = ClassicGroup(c)
    leader, static = group.member(instance_id="instance-1"), group.member(instance_id="instance-2")
    group.complete(leader, static)
    back = group.member(instance_id="instance-2", protocols={"range": subscription("a"), "roundrobin": b""})
    answer = back.join()
    c.error(answer.error_code, ErrorCode.NONE)
    c.equal(answer.generation_id, 2, "generation_id")
    c.equal(answer.protocol_name, "range", "protocol_name")
    c.error(leader.heartbeat(), ErrorCode.NONE, "Heartbeat error_code of the leader")


@case(
    "groups.static.new-protocol",
    "a restart that changes the group's protocol causes a rebalance",
    source="KIP-345",
    level=Level.APACHE,
    needs=STATIC,
)
def new_protocol(c: Check) -> None:
    """Sends: JoinGroup of the only, static member after a restart, with a protocol that it prefers to its former one.

    Expects: generation 2 with the new protocol, and the member as its leader.

    Why: the assignment of the old protocol may be meaningless for the new one.
    """
    group = ClassicGroup(c)
    static = group.member(instance_id="instance-1", protocol_type="opaque", protocols={"a": b"old"})
    group.complete(static)
    back = group.member(instance_id="instance-1", protocol_type="opaque", protocols={"b": b"new", "a": b"old"})
    answer = back.join()
    c.error(answer.error_code, ErrorCode.NONE)
    c.equal((answer.generation_id, answer.protocol_name), (2, "b"), "generation_id and protocol_name")
    found = [(each.member_id, each.metadata) for each in answer.members]
    c.equal(found, [(back.member_id, b"new")], "members (member_id, metadata)")


@case(
    "groups.static.member-id-of-another",
    "an instance ID with the member ID of another instance is fenced",
    source="KIP-345",
    needs=STATIC,
)
def member_id_of_another(c: Check) -> None:
    """Sends: JoinGroup, Heartbeat and SyncGroup with the instance ID of one static member and the member ID of another.

    Expects: FENCED_INSTANCE_ID for each; the heartbeats of both members have no error.

    Why: the instance ID and the member ID must belong together, as each of them alone may be old.
    """
    group = ClassicGroup(c)
    first, second = group.member(instance_id="instance-1"), group.member(instance_id="instance-2")
    group.complete(first, second)
    wrong = group.member(instance_id="instance-1")
    wrong.member_id, wrong.generation = second.member_id, second.generation
    c.error(wrong.ask_join().error_code, ErrorCode.FENCED_INSTANCE_ID, "JoinGroup error_code")
    c.error(wrong.heartbeat(), ErrorCode.FENCED_INSTANCE_ID, "Heartbeat error_code")
    c.error(wrong.sync().error_code, ErrorCode.FENCED_INSTANCE_ID, "SyncGroup error_code")
    for member in (first, second):
        c.error(member.heartbeat(), ErrorCode.NONE, "Heartbeat error_code of a member")


@case(
    "groups.static.unknown-instance",
    "an unknown instance ID with a member ID is an unknown member",
    source="KIP-345",
    needs=STATIC,
)
def unknown_instance(c: Check) -> None:
    """Sends: JoinGroup, Heartbeat, SyncGroup and LeaveGroup with an instance ID that the group does not have, and with
    a member ID.

    Expects: UNKNOWN_MEMBER_ID for each.

    Why: a static member whose session has expired joins again without a member ID after this error.
    """
    group = ClassicGroup(c)
    group.complete(group.member(instance_id="instance-1"))
    stranger = group.member(instance_id="instance-9")
    stranger.member_id, stranger.generation = "instance-9-stranger", 1
    c.error(stranger.ask_join().error_code, ErrorCode.UNKNOWN_MEMBER_ID, "JoinGroup error_code")
    c.error(stranger.heartbeat(), ErrorCode.UNKNOWN_MEMBER_ID, "Heartbeat error_code")
    c.error(stranger.sync().error_code, ErrorCode.UNKNOWN_MEMBER_ID, "SyncGroup error_code")
    c.error(stranger.left(), ErrorCode.UNKNOWN_MEMBER_ID, "LeaveGroup error_code")


@case(
    "groups.static.without-instance-id",
    "a static member may omit its instance ID in a heartbeat",
    source="KIP-345",
    level=Level.APACHE,
    needs=STATIC,
)
def without_instance_id(c: Check) -> None:
    """Sends: Heartbeat of a static member with its member ID and without its instance ID.

    Expects: no error.

    Why: the member ID alone identifies the member, as for clients with an older version of Heartbeat.
    """
    group = ClassicGroup(c)
    member = group.member(instance_id="instance-1")
    group.complete(member)
    member.instance_id = None
    c.error(member.heartbeat(), ErrorCode.NONE)


@case(
    "groups.static.removed-by-instance-id",
    "an administrator removes a static member by its instance ID",
    source="KIP-345",
    needs=STATIC,
)
def removed_by_instance_id(c: Check) -> None:
    """Sends: LeaveGroup with an instance ID and an empty member ID, on another connection than the member's.

    Expects: no error; a rebalance without the member, whose next heartbeat is UNKNOWN_MEMBER_ID.

    Why: static members do not leave when they stop; administrators remove those that do not return.
    """
    group = ClassicGroup(c)
    leader, static = group.member(), group.member(instance_id="instance-1")
    group.complete(leader, static)
    answer = c.call(leave_request(group.id, ("", "instance-1")), to=group.wire)
    c.error(answer.error_code, ErrorCode.NONE, "LeaveGroup error_code")
    c.equal([each.error_code for each in answer.members], [0], "LeaveGroup members (error_code)")
    leader.wait_for_rebalance()
    c.equal([each.member_id for each in leader.join().members], [leader.member_id], "members of the next generation")
    c.error(static.heartbeat(), ErrorCode.UNKNOWN_MEMBER_ID, "Heartbeat error_code of the removed member")


@case(
    "groups.static.returns-after-leaving",
    "a static member that was removed joins again with a rebalance",
    source="KIP-345",
    needs=STATIC,
)
def returns_after_leaving(c: Check) -> None:
    """Sends: LeaveGroup of a static member; then JoinGroup with its instance ID, and of the other member.

    Expects: one generation with both; the instance ID has a new member ID.

    Why: its partitions were given to others when it left.
    """
    group = ClassicGroup(c)
    leader, static = group.member(), group.member(instance_id="instance-1")
    group.complete(leader, static)
    c.error(static.left(), ErrorCode.NONE, "LeaveGroup error_code")
    back = group.member(instance_id="instance-1")
    back.start_join()
    group.wait_for_members(2)
    answer = leader.join()
    c.error(back.joined().error_code, ErrorCode.NONE, "JoinGroup error_code")
    c.equal((answer.generation_id, back.generation), (3, 3), "generation_id of both members")
    found = {(each.member_id, each.group_instance_id) for each in answer.members}
    c.equal(found, {(leader.member_id, None), (back.member_id, "instance-1")}, "members (member_id, group_instance_id)")
    c.true(back.member_id != static.member_id, "member_id", expected="a new one", actual=back.member_id)

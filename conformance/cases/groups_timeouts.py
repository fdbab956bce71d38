"""Members that do not send what they should: session timeouts and rebalance timeouts (KIP-62, KIP-345).

The timeouts are as short as the server allows, and are waited for; no case expects an upper bound below its deadline.
"""

from __future__ import annotations

from ...protocol.api import ApiKey
from ...protocol.errors import ErrorCode
from ..case import Level, case, needs
from ..check import Check
from ..classic_group import ClassicGroup, shortest_session_ms

TIMEOUTS = needs(ApiKey.JOIN_GROUP, 5, ApiKey.SYNC_GROUP, 3, ApiKey.DESCRIBE_GROUPS, 0)
REBALANCE_MS = 2_500
"""A rebalance timeout that is waited for. All requests before it must be sent within this time."""
SECONDS = 60.0


@case(
    "groups.timeouts.session",
    "a member without heartbeats is removed after its session timeout",
    source="KIP-62",
    needs=TIMEOUTS,
    seconds=SECONDS,
)
def session(c: Check) -> None:
    """Sends: nothing from a follower with a short session timeout; heartbeats from the leader, and then its JoinGroup.

    Expects: REBALANCE_IN_PROGRESS for the leader, whose next generation has no other member; UNKNOWN_MEMBER_ID for the
    follower.

    Why: the partitions of a consumer that has crashed are read by others only after this.
    """
    session_ms = shortest_session_ms(c)
    group = ClassicGroup(c)
    leader, silent = group.member(), group.member(session_timeout_ms=session_ms)
    group.complete(leader, silent)
    leader.wait_for_rebalance()
    answer = leader.join()
    c.error(answer.error_code, ErrorCode.NONE, "JoinGroup error_code of the leader")
    c.equal(answer.generation_id, 3, "generation_id")
    c.equal([each.member_id for each in answer.members], [leader.member_id], "members (member_id)")
    c.error(silent.heartbeat(), ErrorCode.UNKNOWN_MEMBER_ID, "Heartbeat error_code of the silent member")
    c.error(silent.sync().error_code, ErrorCode.UNKNOWN_MEMBER_ID, "SyncGroup error_code of the silent member")


@case(
    "groups.timeouts.heartbeats-extend-the-session",
    "heartbeats keep a member alive for longer than its session timeout",
    source="KIP-62",
    needs=TIMEOUTS,
    seconds=SECONDS,
)
def heartbeats(c: Check) -> None:
    """Sends: heartbeats of a member with a short session timeout, and nothing from a second one with the same timeout,
    which joined later.

    Expects: the second member is removed, and the first one is still a member then.

    Why: each heartbeat must begin the session again; otherwise each consumer would rejoin after its session timeout.
    """
    session_ms = shortest_session_ms(c)
    group = ClassicGroup(c)
    first, silent = (group.member(session_timeout_ms=session_ms) for _ in range(2))
    group.complete(first, silent)
    first.wait_for_rebalance()
    answer = first.join()
    c.error(answer.error_code, ErrorCode.NONE, "JoinGroup error_code")
    c.equal([each.member_id for each in answer.members], [first.member_id], "members (member_id)")


@case(
    "groups.timeouts.last-session",
    "a group is empty after the session of its last member",
    source="KIP-62",
    needs=TIMEOUTS,
    seconds=SECONDS,
)
def last_session(c: Check) -> None:
    """Sends: JoinGroup and SyncGroup of a member with a short session timeout, and then only DescribeGroups.

    Expects: the state Empty, without members.

    Why: the group can be deleted, and its offsets be reset, only when it is empty.
    """
    session_ms = shortest_session_ms(c)
    group = ClassicGroup(c)
    group.keep()
    group.complete(group.member(session_timeout_ms=session_ms))
    group.wait_for_state("Empty")
    c.equal(group.describe().members, [], "members in DescribeGroups")


@case(
    "groups.timeouts.static-session",
    "a static member is removed after its session timeout, not when it disconnects",
    source="KIP-345",
    needs=TIMEOUTS,
    seconds=SECONDS,
)
def static_session(c: Check) -> None:
    """Sends: nothing from a static follower, whose connection is closed; heartbeats from the leader.

    Expects: no rebalance at first; then REBALANCE_IN_PROGRESS, and a generation without the static member.

    Why: an instance that does not return must not keep its partitions forever.
    """
    session_ms = shortest_session_ms(c)
    group = ClassicGroup(c)
    leader, static = group.member(), group.member(instance_id="instance-1", session_timeout_ms=session_ms)
    group.complete(leader, static)
    static.wire.close()
    leader.wait_for_rebalance()
    answer = leader.join()
    c.equal([each.member_id for each in answer.members], [leader.member_id], "members (member_id)")


@case(
    "groups.timeouts.rebalance",
    "a rebalance continues without a member that does not rejoin",
    source="KIP-62",
    needs=TIMEOUTS,
    seconds=SECONDS,
)
def rebalance(c: Check) -> None:
    """Sends: JoinGroup of a second member; the first one, with a short rebalance timeout, sends nothing but heartbeats.

    Expects: after the rebalance timeout a generation with the second member only, as its leader; UNKNOWN_MEMBER_ID for
    the first one.

    Why: a consumer whose thread is stuck sends heartbeats and never rejoins; the others must not wait for it.
    """
    group = ClassicGroup(c)
    stuck = group.member(rebalance_timeout_ms=REBALANCE_MS)
    group.complete(stuck)
    new = group.member(rebalance_timeout_ms=REBALANCE_MS)
    new.start_join()
    stuck.wait_for_rebalance()
    answer = new.joined()
    c.error(answer.error_code, ErrorCode.NONE, "JoinGroup error_code")
    c.equal((answer.generation_id, answer.leader), (2, new.member_id), "generation_id and leader")
    c.equal([each.member_id for each in answer.members], [new.member_id], "members (member_id)")
    c.error(stuck.heartbeat(), ErrorCode.UNKNOWN_MEMBER_ID, "Heartbeat error_code of the first member")


@case(
    "groups.timeouts.rebalance-static",
    "a static member that does not rejoin in time stays for its session",
    source="KIP-345",
    needs=TIMEOUTS,
    seconds=SECONDS,
)
def rebalance_static(c: Check) -> None:
    """Sends: JoinGroup of a second, dynamic member; a static one with a short rebalance timeout does not rejoin.

    Expects: after the rebalance timeout generation 2, whose leader is the member that has joined, and whose members
    are both.

    Why: an instance that restarts during a rebalance must not lose its partitions.
    """
    group = ClassicGroup(c)
    static = group.member(instance_id="instance-1", rebalance_timeout_ms=REBALANCE_MS)
    group.complete(static)
    new = group.member(rebalance_timeout_ms=REBALANCE_MS)
    answer = new.join()
    c.error(answer.error_code, ErrorCode.NONE, "JoinGroup error_code")
    c.equal((answer.generation_id, answer.leader), (2, new.member_id), "generation_id and leader")
    found = {(each.member_id, each.group_instance_id) for each in answer.members}
    expected = {(static.member_id, "instance-1"), (new.member_id, None)}
    c.equal(found, expected, "members (member_id, group_instance_id)")


@case(
    "groups.timeouts.longest-rebalance",
    "a rebalance waits for the longest rebalance timeout of its members",
    source="KIP-62",
    needs=TIMEOUTS,
    seconds=SECONDS,
)
def longest_rebalance(c: Check) -> None:
    """Sends: JoinGroup of a member with a short rebalance timeout; the first member, with a long one, rejoins only
    after the short one is over.

    Expects: generation 2 with both members.

    Why: a member that processes a large batch needs this time, and has set it.
    """
    group = ClassicGroup(c)
    slow = group.member()
    group.complete(slow)
    probe = ClassicGroup(c)
    new = group.member(rebalance_timeout_ms=REBALANCE_MS)
    other = probe.member(rebalance_timeout_ms=REBALANCE_MS)
    probe.complete(other)
    new.start_join()
    # Another group measures the time: its rebalance ends when the short timeout is over.
    group.wait_for_members(2)
    late = probe.member(rebalance_timeout_ms=REBALANCE_MS)
    c.error(late.join().error_code, ErrorCode.NONE, "JoinGroup error_code in the other group")
    answer = slow.join()
    c.error(answer.error_code, ErrorCode.NONE, "JoinGroup error_code")
    found = {each.member_id for each in answer.members}
    c.equal(found, {slow.member_id, new.member_id}, "members (member_id)")
    c.equal(new.joined().generation_id, 2, "generation_id of the new member")


@case(
    "groups.timeouts.sync-follower",
    "a follower that never sends SyncGroup is removed after the rebalance timeout",
    source="KIP-62, KAFKA-13435",
    needs=TIMEOUTS,
    level=Level.SHOULD,
    seconds=SECONDS,
)
def sync_follower(c: Check) -> None:
    """Sends: JoinGroup of two members; SyncGroup of the leader only.

    Expects: the leader's assignment; then REBALANCE_IN_PROGRESS for the leader, whose next generation has no other
    member; UNKNOWN_MEMBER_ID for the follower.

    Why: the partitions of a follower that crashed between both requests would be unread for its session timeout.
    """
    group = ClassicGroup(c)
    leader, lazy = (group.member(rebalance_timeout_ms=REBALANCE_MS) for _ in range(2))
    group.complete(leader)
    lazy.start_join()
    leader.wait_for_rebalance()
    leader.join()
    lazy.joined()
    answer = leader.sync({leader.member_id: b"l", lazy.member_id: b"z"})
    c.error(answer.error_code, ErrorCode.NONE, "SyncGroup error_code")
    c.equal(answer.assignment, b"l", "assignment")
    leader.wait_for_rebalance()
    c.equal([each.member_id for each in leader.join().members], [leader.member_id], "members of the next generation")
    c.error(lazy.heartbeat(), ErrorCode.UNKNOWN_MEMBER_ID, "Heartbeat error_code of the follower")


@case(
    "groups.timeouts.sync-leader",
    "a leader that never sends SyncGroup is removed after the rebalance timeout",
    source="KIP-62, KAFKA-13435",
    needs=TIMEOUTS,
    seconds=SECONDS,
)
def sync_leader(c: Check) -> None:
    """Sends: JoinGroup of two members; SyncGroup of the follower only, which waits; then its JoinGroup.

    Expects: REBALANCE_IN_PROGRESS for the follower after the rebalance timeout; it becomes the leader of the next
    generation, without the former leader, whose heartbeat is UNKNOWN_MEMBER_ID.

    Why: a leader that crashes while it assigns must not stop the group until its session expires.
    """
    group = ClassicGroup(c)
    leader, follower = (group.member(rebalance_timeout_ms=REBALANCE_MS) for _ in range(2))
    group.complete(leader)
    follower.start_join()
    leader.wait_for_rebalance()
    leader.join()
    follower.joined()
    follower.start_sync()
    c.error(follower.synced().error_code, ErrorCode.REBALANCE_IN_PROGRESS, "SyncGroup error_code of the follower")
    answer = follower.join()
    c.error(answer.error_code, ErrorCode.NONE, "JoinGroup error_code")
    c.equal(answer.leader, follower.member_id, "leader")
    c.equal([each.member_id for each in answer.members], [follower.member_id], "members (member_id)")
    c.error(leader.heartbeat(), ErrorCode.UNKNOWN_MEMBER_ID, "Heartbeat error_code of the former leader")


@case(
    "groups.timeouts.waiting-members-stay",
    "a member that waits in JoinGroup does not need heartbeats",
    source="KIP-62",
    needs=TIMEOUTS,
    seconds=SECONDS,
)
def waiting_members_stay(c: Check) -> None:
    """Sends: JoinGroup of a member with a short session timeout, which waits; the first member rejoins only after this
    timeout.

    Expects: generation 2 with both members.

    Why: a client does not send heartbeats while it waits; a rebalance may take longer than a session.
    """
    session_ms = shortest_session_ms(c)
    group = ClassicGroup(c)
    first = group.member()
    group.complete(first)
    waiting = group.member(session_timeout_ms=session_ms)
    waiting.start_join()
    group.wait_for_members(2)
    # Another group measures the time: it is empty when the session is over.
    clock = ClassicGroup(c)
    clock.keep()
    clock.complete(clock.member(session_timeout_ms=session_ms))
    clock.wait_for_state("Empty")
    answer = first.join()
    found = {each.member_id for each in answer.members}
    c.equal(found, {first.member_id, waiting.member_id}, "members (member_id)")
    c.error(waiting.joined().error_code, ErrorCode.NONE, "JoinGroup error_code of the waiting member")

"""How long a rebalance waits, for which members, and its result."""

from __future__ import annotations

import pytest

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.join_group import JoinGroupResponse

from ..harness import Coordinator
from .actors import (
    INITIAL_DELAY_MS,
    REBALANCE_TIMEOUT_MS,
    SESSION_TIMEOUT_MS,
    heartbeat_request,
    join_all,
    join_request,
    leave_request,
    stable_group,
    start_joining,
    sync_all,
    sync_request,
)

# -- the first rebalance (group.initial.rebalance.delay.ms) ------------------------------------------------------------


def test_the_first_rebalance_waits_for_more_members() -> None:
    coordinator = Coordinator()
    _, caller = start_joining(coordinator)
    coordinator.advance(2999)
    assert caller.waits
    coordinator.advance(1)
    assert caller.response.generation_id == 1


def test_it_waits_as_long_again_when_another_member_came() -> None:
    coordinator = Coordinator()
    _, first = start_joining(coordinator)
    coordinator.advance(2000)
    _, second = start_joining(coordinator)
    coordinator.advance(1000)  # 3 s: a member joined
    assert first.waits
    coordinator.advance(1000)
    _, third = start_joining(coordinator)
    coordinator.advance(2000)  # 6 s: another one
    assert first.waits
    coordinator.advance(3000)  # 9 s: no other member
    assert [caller.response.generation_id for caller in (first, second, third)] == [1, 1, 1]


def test_it_waits_no_longer_than_the_rebalance_timeout() -> None:
    coordinator = Coordinator()
    waiting = [start_joining(coordinator, rebalance_timeout_ms=10_000)[1]]
    for _ in range(9):
        coordinator.advance(1000)
        waiting.append(start_joining(coordinator, rebalance_timeout_ms=10_000)[1])
    assert all(caller.waits for caller in waiting)
    coordinator.advance(1000)
    assert [caller.response.generation_id for caller in waiting] == [1] * 10


def test_without_a_delay_it_ends_immediately() -> None:
    coordinator = Coordinator(group_initial_rebalance_delay_ms=0)
    _, caller = start_joining(coordinator)
    assert caller.response.generation_id == 1


def test_a_group_that_became_empty_waits_again() -> None:
    coordinator = Coordinator()
    (member,) = stable_group(coordinator, {})
    coordinator.send(leave_request(member))
    _, caller = start_joining(coordinator)
    coordinator.advance(2999)
    assert caller.waits
    coordinator.advance(1)
    assert caller.response.generation_id == 3


def test_a_member_of_an_earlier_rebalance_does_not_extend_a_later_one() -> None:
    coordinator = Coordinator()
    members = [start_joining(coordinator, rebalance_timeout_ms=INITIAL_DELAY_MS)[0] for _ in range(2)]
    coordinator.advance(3000)
    coordinator.send(leave_request(*members))
    _, caller = start_joining(coordinator)
    coordinator.advance(3000)
    assert caller.response.generation_id == 3


def test_the_first_rebalance_does_not_wait_for_a_member_that_leaves() -> None:
    coordinator = Coordinator()
    gone, of_gone = start_joining(coordinator)
    _, caller = start_joining(coordinator)
    assert coordinator.send(leave_request(gone)).response.members[0].error_code == ErrorCode.NONE
    assert of_gone.error is ErrorCode.UNKNOWN_MEMBER_ID
    assert caller.waits
    coordinator.advance(6000)
    assert len(caller.response.members) == 1


def test_when_all_leave_during_the_first_rebalance_the_generation_is_empty() -> None:
    coordinator = Coordinator()
    member, _ = start_joining(coordinator)
    coordinator.send(leave_request(member))
    coordinator.advance(3000)
    assert coordinator.describe("group").group_state == "Empty"
    assert [record.value.generation for record in coordinator.written() if record.value] == [1]


# -- later ones --------------------------------------------------------------------------------------------------------


def test_a_rebalance_ends_when_all_members_have_joined() -> None:
    coordinator = Coordinator()
    leader, follower = stable_group(coordinator)
    newcomer, of_newcomer = start_joining(coordinator)
    of_leader = coordinator.send(join_request(leader))
    assert of_newcomer.waits
    of_follower = coordinator.send(join_request(follower))
    for caller in (of_newcomer, of_leader, of_follower):
        assert caller.response.generation_id == 2
        assert caller.response.leader == leader
    assert {member.member_id for member in of_leader.response.members} == {leader, follower, newcomer}


def test_a_member_that_does_not_join_within_the_rebalance_timeout_is_removed() -> None:
    coordinator = Coordinator()
    leader, late = stable_group(coordinator)
    caller = coordinator.send(join_request(leader))
    for _ in range(12):
        assert caller.waits
        assert coordinator.send(heartbeat_request(late)).error is ErrorCode.REBALANCE_IN_PROGRESS
        coordinator.advance(5000)
    assert [member.member_id for member in caller.response.members] == [leader]
    assert coordinator.send(heartbeat_request(late)).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert coordinator.send(join_request(late)).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_the_longest_rebalance_timeout_applies() -> None:
    coordinator = Coordinator()
    leader, _ = stable_group(
        coordinator,
        {"rebalance_timeout_ms": 10_000},
        {"rebalance_timeout_ms": 20_000, "session_timeout_ms": 60_000},
    )
    caller = coordinator.send(join_request(leader, rebalance_timeout_ms=10_000))
    coordinator.advance(19_999)
    assert caller.waits
    coordinator.advance(1)
    assert caller.response.generation_id == 2


def test_a_leader_that_does_not_join_is_replaced_by_the_first_member_that_did() -> None:
    coordinator = Coordinator()
    leader, follower = stable_group(coordinator, {"instance_id": "leader"}, {})
    caller = coordinator.send(join_request(follower, protocols={"range": b"other"}))
    for _ in range(12):
        coordinator.send(heartbeat_request(leader))
        coordinator.advance(5000)
    assert caller.response.leader == follower
    # It is static and may rejoin until its session expires.
    assert [member.member_id for member in caller.response.members] == [leader, follower]


def test_when_the_leader_leaves_another_member_leads() -> None:
    coordinator = Coordinator()
    leader, second, third = stable_group(coordinator, {}, {}, {})
    coordinator.send(leave_request(leader))
    waiting = [coordinator.send(join_request(member)) for member in (third, second)]
    assert [caller.response.leader for caller in waiting] == [second, second]


def test_a_rebalance_that_no_static_member_joins_waits_for_their_sessions_to_end() -> None:
    coordinator = Coordinator()
    _, plain = stable_group(
        coordinator, {"instance_id": "one", "session_timeout_ms": 100_000}, {"session_timeout_ms": 100_000}
    )
    coordinator.send(leave_request(plain))
    coordinator.advance(REBALANCE_TIMEOUT_MS)
    assert coordinator.describe("group").group_state == "PreparingRebalance"
    coordinator.advance(100_000 - REBALANCE_TIMEOUT_MS)
    assert coordinator.describe("group").group_state == "Empty"
    assert [(record.value.generation, len(record.value.members)) for record in coordinator.written()] == [
        (1, 2),
        (2, 0),
    ]


# -- protocols ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("members", "chosen"),
    [
        ([["range", "sticky"]], "range"),
        ([["range", "sticky"], ["sticky", "range"], ["sticky", "range"]], "sticky"),
        ([["sticky", "range"], ["range", "sticky"]], "sticky"),  # a tie: the earlier member's
        ([["sticky", "range"], ["sticky", "range"], ["range"]], "range"),  # all must speak it
        ([["a", "b", "c"], ["c", "b"], ["b", "a", "c"]], "b"),
    ],
)
def test_the_protocol_is_chosen_by_votes(members: list[list[str]], chosen: str) -> None:
    coordinator = Coordinator()
    waiting = [start_joining(coordinator, protocols=dict.fromkeys(names, b"")) for names in members]
    coordinator.advance(6000)
    assert {caller.response.protocol_name for _, caller in waiting} == {chosen}


def test_the_vote_of_a_leaving_member_does_not_count() -> None:
    coordinator = Coordinator()
    both = {"sticky": b"", "range": b""}
    _, second, third = stable_group(
        coordinator, {"protocols": {"range": b""}}, {"protocols": both}, {"protocols": both}
    )
    assert coordinator.group().protocol_name == "range"
    coordinator.send(leave_request(next(iter(coordinator.group().members))))
    caller = coordinator.send(join_request(second, protocols=both))
    coordinator.send(join_request(third, protocols=both))
    assert caller.response.protocol_name == "sticky"


def test_old_protocol_names_of_a_member_are_removed() -> None:
    coordinator = Coordinator()
    (member,) = stable_group(coordinator, {})
    for number in range(100):
        coordinator.send(join_request(member, protocols={"range": b"", f"other {number}": b""}))
    assert coordinator.group().protocol_counts.supported_by(1) == {"range", "other 99"}


# -- sessions ----------------------------------------------------------------------------------------------------------


def test_a_member_without_heartbeats_is_removed() -> None:
    coordinator = Coordinator()
    leader, silent = stable_group(coordinator)
    coordinator.advance(SESSION_TIMEOUT_MS - 1)
    assert coordinator.send(heartbeat_request(leader)).error is ErrorCode.NONE
    coordinator.advance(1)
    assert coordinator.send(heartbeat_request(leader)).error is ErrorCode.REBALANCE_IN_PROGRESS
    assert coordinator.send(heartbeat_request(silent)).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert list(coordinator.group().members) == [leader]


def test_the_session_of_a_new_member_starts_with_its_generation() -> None:
    coordinator = Coordinator()
    join_all(coordinator, {})
    coordinator.advance(SESSION_TIMEOUT_MS - 1)
    assert len(coordinator.group().members) == 1
    coordinator.advance(1)
    assert not coordinator.group().members


def test_after_the_last_member_the_empty_generation_is_written() -> None:
    coordinator = Coordinator()
    stable_group(coordinator, {})
    coordinator.written()
    coordinator.advance(SESSION_TIMEOUT_MS)
    (record,) = coordinator.written()
    assert (record.value.generation, record.value.protocol, record.value.leader) == (2, None, None)
    assert record.value.protocol_type == "consumer"
    assert record.value.members == []
    assert coordinator.describe("group").group_state == "Empty"


def test_a_member_lives_while_it_waits_for_a_rebalance() -> None:
    coordinator = Coordinator()
    leader, follower = stable_group(coordinator)
    caller = coordinator.send(join_request(leader))
    for _ in range(6):
        coordinator.advance(8000)
        assert coordinator.send(heartbeat_request(follower)).error is ErrorCode.REBALANCE_IN_PROGRESS
    assert caller.waits
    coordinator.send(join_request(follower))
    assert caller.response.generation_id == 2
    # And has a full session from the response on.
    coordinator.advance(SESSION_TIMEOUT_MS - 1)
    assert coordinator.send(heartbeat_request(leader, 2)).error is ErrorCode.NONE


def test_a_member_lives_while_it_waits_for_its_assignment() -> None:
    coordinator = Coordinator()
    leader, follower = join_all(coordinator, {}, {})
    caller = coordinator.send(sync_request(follower))
    for _ in range(3):
        coordinator.advance(8000)
        assert coordinator.send(heartbeat_request(leader)).error is ErrorCode.NONE
    assert caller.waits
    coordinator.send(sync_request(leader, 1, {follower: b"late"}))
    assert caller.response.assignment == b"late"
    # And has a full session from the response on.
    coordinator.advance(SESSION_TIMEOUT_MS - 1)
    assert follower in coordinator.group().members
    coordinator.advance(1)
    assert follower not in coordinator.group().members


def test_a_member_that_waited_in_vain_for_its_assignment_has_a_full_session() -> None:
    coordinator = Coordinator()
    leader, follower = join_all(coordinator, {}, {})
    in_vain = coordinator.send(sync_request(follower))
    for _ in range(3):
        coordinator.advance(8000)
        coordinator.send(heartbeat_request(leader))
    joining = coordinator.send(join_request(leader, protocols={"range": b"other"}))
    assert in_vain.error is ErrorCode.REBALANCE_IN_PROGRESS
    coordinator.advance(SESSION_TIMEOUT_MS - 1)
    assert joining.waits
    coordinator.advance(1)
    assert [member.member_id for member in joining.response.members] == [leader]


def test_a_new_member_does_not_wait_for_ever() -> None:
    """Its client may have rejoined as another member; the rebalance would wait for the old one."""
    coordinator = Coordinator()
    (member,) = stable_group(coordinator, {"rebalance_timeout_ms": 1_000_000})
    _, newcomer = start_joining(coordinator)
    for _ in range(60):
        assert newcomer.waits
        coordinator.advance(5000)
        coordinator.send(heartbeat_request(member))
    assert newcomer.response == JoinGroupResponse(
        error_code=ErrorCode.UNKNOWN_MEMBER_ID, member_id="", protocol_name=None
    )
    assert list(coordinator.group().members) == [member]


def test_a_commit_is_a_sign_of_life() -> None:
    coordinator = Coordinator()
    (member,) = stable_group(coordinator, {})
    for _ in range(5):
        coordinator.advance(SESSION_TIMEOUT_MS - 1)
        coordinator.group().committed(member, coordinator.now())
    assert coordinator.describe("group").group_state == "Stable"
    coordinator.advance(SESSION_TIMEOUT_MS)
    assert coordinator.describe("group").group_state == "Empty"


def test_a_commit_without_a_member_extends_no_session() -> None:
    coordinator = Coordinator()
    stable_group(coordinator, {})
    coordinator.advance(SESSION_TIMEOUT_MS - 1)
    coordinator.group().committed("", coordinator.now())
    coordinator.advance(1)
    assert coordinator.describe("group").group_state == "Empty"


# -- members that never send SyncGroup ---------------------------------------------------------------------------------


@pytest.mark.parametrize("leader_syncs", [True, False])
def test_a_member_that_never_syncs_is_removed(leader_syncs: bool) -> None:
    coordinator = Coordinator()
    leader, silent = join_all(coordinator, {}, {})
    caller = coordinator.send(sync_request(leader if leader_syncs else silent))
    missing = silent if leader_syncs else leader
    for _ in range(11):
        coordinator.advance(5000)
        for member in (leader, silent):
            assert coordinator.send(heartbeat_request(member)).error is ErrorCode.NONE
    coordinator.advance(5000)
    assert caller.error is (ErrorCode.NONE if leader_syncs else ErrorCode.REBALANCE_IN_PROGRESS)
    assert coordinator.send(heartbeat_request(missing)).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert coordinator.describe("group").group_state == "PreparingRebalance"


def test_no_member_is_removed_once_all_have_their_assignment() -> None:
    coordinator = Coordinator()
    leader, late = join_all(coordinator, {}, {})
    coordinator.send(sync_request(leader, 1, {leader: b"1", late: b"2"}))
    coordinator.advance(4000)
    assert coordinator.send(sync_request(late)).response.assignment == b"2"
    for _ in range(20):
        coordinator.advance(4000)
        for member in (leader, late):
            assert coordinator.send(heartbeat_request(member)).error is ErrorCode.NONE


def test_a_generation_ends_when_a_member_of_it_joins_again() -> None:
    coordinator = Coordinator()
    leader, follower = join_all(coordinator, {}, {})
    waiting = coordinator.send(sync_request(follower))
    joining = coordinator.send(join_request(leader, protocols={"range": b"other"}))
    assert waiting.error is ErrorCode.REBALANCE_IN_PROGRESS
    assert coordinator.send(join_request(follower)).response.generation_id == 2
    assert joining.response.generation_id == 2
    sync_all(coordinator, 2, leader, follower)


def test_a_generation_without_assignments_leaves_no_assignment() -> None:
    coordinator = Coordinator()
    leader, follower = stable_group(coordinator)
    coordinator.send(join_request(leader))
    coordinator.send(join_request(follower))
    coordinator.send(join_request(leader, protocols={"range": b"other"}))
    described = coordinator.describe("group")
    assert described.group_state == "PreparingRebalance"
    assert [member.member_assignment for member in described.members] == [b"", b""]
    assert not coordinator.group().pending_sync_members


def test_a_deadline_of_an_earlier_generation_does_not_end_a_later_one() -> None:
    coordinator = Coordinator()
    leader, follower = join_all(coordinator, {}, {})
    coordinator.advance(5000)
    of_leader = coordinator.send(join_request(leader, protocols={"range": b"other"}))
    coordinator.send(join_request(follower))
    assert of_leader.response.generation_id == 2
    sync_all(coordinator, 2, leader, follower)
    for _ in range(12):
        coordinator.advance(5000)
        for member in (leader, follower):
            assert coordinator.send(heartbeat_request(member, 2)).error is ErrorCode.NONE

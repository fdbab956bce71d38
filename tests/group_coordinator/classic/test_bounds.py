"""Memory and work stay bounded, whatever clients do."""

from __future__ import annotations

import sys

import pytest

from moldau.coordinator.outcome import Now
from moldau.group_coordinator.classic.group import ClassicGroup
from moldau.protocol.errors import ErrorCode

from ...coordinator.harness import FakeCaller
from ..harness import Coordinator
from .actors import SESSION_TIMEOUT_MS, heartbeat_request, join_request, stable_group, start_joining

NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000


def deadlines_of(coordinator: Coordinator, group_id: str = "group") -> list[object]:
    return [name for of_group, name in coordinator.states.deadlines._deadlines if of_group == group_id]


def test_10_000_new_members_that_never_retry_are_removed() -> None:
    coordinator = Coordinator()
    (member,) = stable_group(coordinator, {})
    for _ in range(10_000):
        assert coordinator.send(join_request()).error is ErrorCode.MEMBER_ID_REQUIRED
    assert coordinator.send(heartbeat_request(member)).error is ErrorCode.NONE
    coordinator.advance(SESSION_TIMEOUT_MS - 1)
    assert coordinator.send(heartbeat_request(member)).error is ErrorCode.NONE
    coordinator.advance(1)
    assert not coordinator.group().pending_members
    assert deadlines_of(coordinator) == [("classic session", member)]
    assert coordinator.describe("group").group_state == "Stable"


def test_10_000_joins_of_old_clients_that_never_retry_are_removed() -> None:
    """Each of them waits for a rebalance; their heartbeats continue for five minutes."""
    coordinator = Coordinator()
    (member,) = stable_group(coordinator, {"rebalance_timeout_ms": 1_800_000, "session_timeout_ms": 1_800_000})
    waiting = [coordinator.send(join_request(session_timeout_ms=1_800_000), 3) for _ in range(10_000)]
    coordinator.advance(NEW_MEMBER_JOIN_TIMEOUT_MS)
    assert {caller.error for caller in waiting} == {ErrorCode.UNKNOWN_MEMBER_ID}
    assert list(coordinator.group().members) == [member]
    assert len(deadlines_of(coordinator)) == 2


def test_the_maximum_size_of_a_group_limits_waiting_callers() -> None:
    coordinator = Coordinator(group_max_size=10)
    stable_group(coordinator)
    replies = [coordinator.send(join_request(), 3) for _ in range(10_000)]
    assert sum(caller.waits for caller in replies) == 10
    assert {caller.error for caller in replies if not caller.waits} == {ErrorCode.GROUP_MAX_SIZE_REACHED}
    assert len(coordinator.group().members) == 12


def test_10_000_groups_without_a_generation_are_not_written() -> None:
    coordinator = Coordinator()
    for number in range(10_000):
        coordinator.send(join_request(group_id=f"group {number}"))
    coordinator.advance(SESSION_TIMEOUT_MS)
    assert coordinator.written() == []
    assert not any(group.pending_members for group in coordinator.states.all_of(ClassicGroup))
    assert len(coordinator.states.groups) == len(list(coordinator.states.all_of(ClassicGroup)))


@pytest.mark.parametrize("size", [1, 1000])
def test_a_heartbeat_costs_the_same_in_a_group_of_any_size(size: int) -> None:
    """Counted in calls of functions, which do not depend on the machine."""
    coordinator = Coordinator()
    members = stable_group(coordinator, *[{} for _ in range(size)])
    request = heartbeat_request(members[-1])
    caller = FakeCaller(4)
    now = Now(coordinator.now().epoch_ms + 1, coordinator.now_ms + 1)
    calls = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        coordinator.shard.serve(caller, request, now)
    finally:
        sys.setprofile(None)
    assert calls < 25


def test_a_rebalance_of_a_large_group_is_one_record() -> None:
    coordinator = Coordinator()
    waiting = [start_joining(coordinator)[1] for _ in range(1000)]
    coordinator.advance(6000)
    assert {caller.response.generation_id for caller in waiting} == {1}
    assert [len(caller.response.members) for caller in waiting] == [1000] + [0] * 999


def test_of_more_than_10_000_new_members_the_oldest_are_forgotten() -> None:
    coordinator = Coordinator()
    stable_group(coordinator, {})
    given = [coordinator.send(join_request()).response.member_id for _ in range(10_003)]

    assert list(coordinator.group().pending_members) == given[3:]
    assert len(deadlines_of(coordinator)) == 10_001
    assert coordinator.send(join_request(given[2])).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert coordinator.send(join_request(given[3])).waits

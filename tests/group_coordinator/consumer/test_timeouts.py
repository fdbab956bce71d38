"""Members that send no heartbeats, and members that do not revoke their partitions in time."""

from __future__ import annotations

import pytest

from moldau.protocol.errors import ErrorCode

from ..harness import Coordinator
from .consumer import GROUP, Consumer, settle


@pytest.fixture
def coordinator() -> Coordinator:
    coordinator = Coordinator()
    coordinator.topics.create("t", 4)
    return coordinator


def test_a_member_without_heartbeats_is_fenced(coordinator: Coordinator) -> None:
    a = Consumer(coordinator, "a", ["t"])
    a.join()
    coordinator.advance(44_999)
    assert "a" in coordinator.group(GROUP).members
    coordinator.advance(1)
    assert coordinator.group(GROUP).state_name == "Empty"
    assert a.heartbeat().error is ErrorCode.UNKNOWN_MEMBER_ID


def test_each_heartbeat_extends_the_session(coordinator: Coordinator) -> None:
    a = Consumer(coordinator, "a", ["t"])
    a.join()
    for _ in range(5):
        coordinator.advance(40_000)
        assert a.heartbeat().error is ErrorCode.NONE


def test_a_rejected_heartbeat_does_not_extend_the_session(coordinator: Coordinator) -> None:
    a = Consumer(coordinator, "a", ["t"])
    a.join()
    coordinator.advance(40_000)
    assert a.heartbeat(member_epoch=9).error is ErrorCode.FENCED_MEMBER_EPOCH
    coordinator.advance(5000)
    assert coordinator.group(GROUP).state_name == "Empty"


def test_a_group_may_override_its_times() -> None:
    coordinator = Coordinator(
        overrides={GROUP: {"consumer.session.timeout.ms": "50000", "consumer.heartbeat.interval.ms": "7000"}}
    )
    a = Consumer(coordinator, "a", ["t"])
    assert a.join().response.heartbeat_interval_ms == 7000
    coordinator.advance(49_999)
    assert "a" in coordinator.group(GROUP).members
    coordinator.advance(1)
    assert "a" not in coordinator.group(GROUP).members


def test_the_remaining_members_get_the_partitions_of_a_fenced_member(coordinator: Coordinator) -> None:
    a, b = Consumer(coordinator, "a", ["t"]), Consumer(coordinator, "b", ["t"])
    a.join()
    coordinator.advance(2000)
    b.join()
    settle(a, b)
    for _ in range(10):
        coordinator.advance(5000)
        b.follow()
    assert b.owned == {"t": {0, 1, 2, 3}}


def test_a_member_that_does_not_revoke_partitions_in_time_is_fenced(coordinator: Coordinator) -> None:
    a = Consumer(coordinator, "a", ["t"], rebalance_timeout_ms=20_000)
    b = Consumer(coordinator, "b", ["t"])
    a.join()
    coordinator.advance(2000)
    b.join()
    a.heartbeat()  # from here on it must revoke partitions
    for _ in range(4):
        coordinator.advance(4999)
        assert a.heartbeat().response.member_epoch == 2
        b.heartbeat()
    coordinator.advance(4)
    assert a.heartbeat().error is ErrorCode.UNKNOWN_MEMBER_ID
    coordinator.advance(2000)
    b.heartbeat()
    assert b.assigned == {"t": {0, 1, 2, 3}}


def test_a_member_that_revokes_in_time_is_not_fenced(coordinator: Coordinator) -> None:
    a = Consumer(coordinator, "a", ["t"], rebalance_timeout_ms=6000)
    b = Consumer(coordinator, "b", ["t"])
    a.join()
    coordinator.advance(2000)
    b.join()
    settle(a, b)
    for _ in range(4):
        coordinator.advance(5000)
        a.heartbeat()
        b.heartbeat()
    assert set(coordinator.group(GROUP).members) == {"a", "b"}


def test_after_a_restart_every_member_has_a_full_session(coordinator: Coordinator) -> None:
    a = Consumer(coordinator, "a", ["t"], rebalance_timeout_ms=20_000)
    b = Consumer(coordinator, "b", ["t"])
    a.join()
    coordinator.advance(2000)
    b.join()
    a.heartbeat()
    coordinator.advance(19_000)
    coordinator.restart()
    coordinator.advance(19_999)
    assert set(coordinator.group(GROUP).members) == {"a", "b"}
    coordinator.advance(1)
    assert set(coordinator.group(GROUP).members) == {"b"}
    coordinator.advance(25_000 + 4500)
    assert set(coordinator.group(GROUP).members) == set()


def test_after_a_restart_sessions_end_one_after_the_other_within_a_tenth(coordinator: Coordinator) -> None:
    members = [Consumer(coordinator, f"m{number}", ["t"]) for number in range(100)]
    for member in members:
        member.join()
    coordinator.restart()
    coordinator.advance(44_999)
    assert len(coordinator.group(GROUP).members) == 100
    for left in (99, 98, 97):
        coordinator.advance(1 if left == 99 else 45)
        assert len(coordinator.group(GROUP).members) == left
    coordinator.advance(4500)
    assert coordinator.group(GROUP).members == {}


def test_no_deadline_outlives_its_member(coordinator: Coordinator) -> None:
    coordinator.advance(2000)  # including the work after loading
    others = len(coordinator.shard.deadlines)
    a, b = Consumer(coordinator, "a", ["t"]), Consumer(coordinator, "b", ["t"])
    a.join()
    coordinator.advance(2000)
    b.join()
    a.heartbeat()
    assert len(coordinator.shard.deadlines) == others + 3
    a.leave()
    b.leave()
    assert len(coordinator.shard.deadlines) == others


def test_a_member_that_could_not_be_fenced_is_fenced_later(coordinator: Coordinator) -> None:
    Consumer(coordinator, "a", ["t"]).join()
    with coordinator.log_refuses(ErrorCode.NOT_ENOUGH_REPLICAS):
        coordinator.advance(46_000)
        assert "a" in coordinator.group(GROUP).members
    coordinator.advance(1000)
    assert "a" not in coordinator.group(GROUP).members

"""Static members (KIP-345) of consumer groups: their partitions outlive a restart of the client."""

from __future__ import annotations

import pytest

from moldau.group_coordinator.records import ConsumerGroupCurrentMemberAssignmentKey
from moldau.protocol.errors import ErrorCode

from ..harness import Coordinator
from .consumer import GROUP, Consumer, settle


@pytest.fixture
def coordinator() -> Coordinator:
    coordinator = Coordinator()
    coordinator.topics.create("t", 4)
    return coordinator


def two_members(coordinator: Coordinator) -> tuple[Consumer, Consumer]:
    a = Consumer(coordinator, "a", ["t"], instance_id="first")
    b = Consumer(coordinator, "b", ["t"], instance_id="second")
    a.join()
    coordinator.advance(2000)
    b.join()
    settle(a, b)
    return a, b


@pytest.mark.parametrize("member_id", ["a-again", "a"])
def test_a_static_member_that_rejoins_keeps_its_assignment(coordinator: Coordinator, member_id: str) -> None:
    a, b = two_members(coordinator)
    coordinator.written()
    response = a.leave_for_a_while().response
    assert (response.member_id, response.member_epoch) == ("a", -2)
    (record,) = coordinator.written()
    assert isinstance(record.key, ConsumerGroupCurrentMemberAssignmentKey)
    assert record.value.member_epoch == -2
    coordinator.advance(10_000)
    assert b.heartbeat().response.assignment is None

    again = Consumer(coordinator, member_id, ["t"], instance_id="first")
    assert again.join().response.member_epoch == 3
    assert again.assigned == a.owned
    group = coordinator.group(GROUP)
    assert (group.group_epoch, set(group.members), group.state_name) == (3, {member_id, "b"}, "Stable")
    assert group.static_members == {"first": member_id, "second": "b"}
    assert b.heartbeat().response.assignment is None
    # Its session is the new one's.
    for _ in range(3):
        coordinator.advance(40_000)
        again.heartbeat()
        b.heartbeat()
    assert set(coordinator.group(GROUP).members) == {member_id, "b"}


def test_an_instance_id_is_its_owners_until_it_leaves(coordinator: Coordinator) -> None:
    two_members(coordinator)
    other = Consumer(coordinator, "other", ["t"], instance_id="first")
    assert other.join().error is ErrorCode.UNRELEASED_INSTANCE_ID
    assert set(coordinator.group(GROUP).members) == {"a", "b"}


def test_a_replaced_static_member_is_fenced(coordinator: Coordinator) -> None:
    a, _ = two_members(coordinator)
    a.leave_for_a_while()
    Consumer(coordinator, "again", ["t"], instance_id="first").join()
    assert a.send(member_epoch=3, instance_id="first").error is ErrorCode.FENCED_INSTANCE_ID
    assert a.send(member_epoch=-1, instance_id="first").error is ErrorCode.FENCED_INSTANCE_ID
    assert a.send(member_epoch=-2, instance_id="first").error is ErrorCode.FENCED_INSTANCE_ID
    assert a.send(member_epoch=3).error is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("epoch", [2, -1, -2])
def test_an_unknown_instance_id_is_rejected(coordinator: Coordinator, epoch: int) -> None:
    a, _ = two_members(coordinator)
    assert a.send(member_epoch=epoch, instance_id="third").error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_member_that_does_not_rejoin_loses_its_assignment(coordinator: Coordinator) -> None:
    a, b = two_members(coordinator)
    a.leave_for_a_while()
    for _ in range(9):
        coordinator.advance(5000)
        b.follow()
    settle(b)
    assert b.owned == {"t": {0, 1, 2, 3}}
    assert coordinator.group(GROUP).static_members == {"second": "b"}


def test_a_static_member_may_leave_permanently(coordinator: Coordinator) -> None:
    a, b = two_members(coordinator)
    assert a.leave().response.member_epoch == -1
    settle(b)
    assert b.owned == {"t": {0, 1, 2, 3}}


def test_a_rejoining_static_member_with_another_subscription_gets_another_assignment(coordinator: Coordinator) -> None:
    a, b = two_members(coordinator)
    coordinator.topics.create("u", 1)
    a.leave_for_a_while()
    coordinator.advance(2000)
    again = Consumer(coordinator, "again", ["u"], instance_id="first")
    again.join()
    settle(again, b)
    assert again.owned == {"u": {0}}
    assert b.owned == {"t": {0, 1, 2, 3}}


def test_a_static_member_that_rejoined_may_commit_immediately(coordinator: Coordinator) -> None:
    a, _ = two_members(coordinator)
    a.leave_for_a_while()
    again = Consumer(coordinator, "again", ["t"], instance_id="first")
    again.join()
    topic_id = coordinator.topics.id_of("t")
    member = coordinator.group(GROUP).members["again"]
    assert all(member.assignment_epoch(topic_id, partition) == 0 for partition in again.owned["t"])

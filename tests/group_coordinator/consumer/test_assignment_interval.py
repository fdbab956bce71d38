"""group.consumer.assignment.interval.ms: members come together before partitions are moved."""

from __future__ import annotations

from typing import Any

from ..harness import Coordinator
from .consumer import GROUP, Consumer


def coordinator_with(**settings: Any) -> Coordinator:
    coordinator = Coordinator(**settings)
    coordinator.topics.create("t", 4)
    return coordinator


def test_a_member_that_joins_within_the_interval_waits_without_partitions() -> None:
    coordinator = coordinator_with(consumer_assignment_interval_ms=1000)
    a, b, c = (Consumer(coordinator, name, ["t"]) for name in "abc")
    a.join()
    coordinator.advance(500)
    assert b.join().response.member_epoch == 2
    coordinator.advance(100)
    assert c.join().response.member_epoch == 2
    assert (b.assigned, c.assigned) == ({}, {})
    group = coordinator.group(GROUP)
    assert (group.group_epoch, group.target_assignment_epoch, group.state_name) == (4, 2, "Assigning")

    coordinator.advance(399)
    assert a.heartbeat().response.assignment is None
    coordinator.advance(1)
    a.heartbeat()
    assert len(a.assigned["t"]) == 2
    group = coordinator.group(GROUP)
    assert (group.group_epoch, group.target_assignment_epoch) == (4, 4)


def test_without_an_interval_every_change_takes_effect_immediately() -> None:
    coordinator = coordinator_with(consumer_assignment_interval_ms=0)
    a, b = Consumer(coordinator, "a", ["t"]), Consumer(coordinator, "b", ["t"])
    a.join()
    assert b.join().response.member_epoch == 3


def test_a_group_may_override_its_interval() -> None:
    coordinator = coordinator_with(overrides={GROUP: {"consumer.assignment.interval.ms": "7000"}})
    a, b = Consumer(coordinator, "a", ["t"]), Consumer(coordinator, "b", ["t"])
    a.join()
    coordinator.advance(6999)
    assert b.join().response.member_epoch == 2
    coordinator.advance(1)
    assert b.heartbeat().response.member_epoch == 3


def test_the_interval_outlives_a_restart() -> None:
    coordinator = coordinator_with(consumer_assignment_interval_ms=5000)
    a, b = Consumer(coordinator, "a", ["t"]), Consumer(coordinator, "b", ["t"])
    a.join()
    coordinator.restart()
    assert b.join().response.member_epoch == 2
    coordinator.advance(5000)
    assert b.heartbeat().response.member_epoch == 3

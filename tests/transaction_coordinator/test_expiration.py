"""Unused transactional IDs are removed."""

from __future__ import annotations

import pytest

from moldau.coordinator.deadlines import Deadlines
from moldau.protocol.errors import ErrorCode
from moldau.transaction_coordinator.shard import TransactionShard
from moldau.transaction_coordinator.transaction import TransactionStatus

from .harness import Coordinator, Producer

PARTITION = ("t", 0)
DAY_MS = 24 * 3_600_000


def is_known(coordinator: Coordinator) -> bool:
    return "id" in coordinator.transactions()


@pytest.mark.parametrize("state", ["EMPTY", "COMPLETE_COMMIT", "COMPLETE_ABORT"])
def test_an_unused_id_is_forgotten(state: str) -> None:
    coordinator = Coordinator()
    producer = coordinator.begin()
    if state != "EMPTY":
        coordinator.add(producer, PARTITION)
        coordinator.end(producer, committed=state == "COMPLETE_COMMIT")
        coordinator.write_markers()
    coordinator.written()

    coordinator.advance(7 * DAY_MS - 1)
    assert is_known(coordinator)
    coordinator.advance(1)

    assert not is_known(coordinator)
    (tombstone,) = coordinator.written()
    assert tombstone.value is None
    assert len(coordinator.states.deadlines) == 0
    coordinator.restart()
    assert not is_known(coordinator)
    assert coordinator.add(producer, PARTITION).error is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert coordinator.begin() == Producer(producer.id + 1, 0)


def test_whatever_it_is_used_for_keeps_it() -> None:
    coordinator = Coordinator()
    producer = coordinator.begin()
    for _ in range(3):
        coordinator.advance(4 * DAY_MS)
        coordinator.add(producer, PARTITION)
        coordinator.end(producer, committed=True, api_version=4)
        coordinator.write_markers()
        coordinator.restart()
    coordinator.advance(4 * DAY_MS)
    assert coordinator.begin().id == producer.id
    coordinator.advance(7 * DAY_MS - 1)
    assert is_known(coordinator)
    coordinator.advance(1)
    assert not is_known(coordinator)


def test_one_that_waits_for_its_markers_is_kept() -> None:
    coordinator = Coordinator()
    producer = coordinator.begin()
    coordinator.add(producer, PARTITION)
    coordinator.end(producer, committed=True)
    coordinator.advance(30 * DAY_MS)
    assert coordinator.transaction().status is TransactionStatus.PREPARE_COMMIT

    coordinator.write_markers()
    coordinator.advance(7 * DAY_MS - 1)
    assert is_known(coordinator)
    coordinator.advance(1 + 3_600_000)
    assert not is_known(coordinator)


def test_a_tombstone_that_cannot_be_written_is_tried_again() -> None:
    coordinator = Coordinator()
    coordinator.begin()
    with coordinator.log_refuses(ErrorCode.NOT_ENOUGH_REPLICAS):
        coordinator.advance(8 * DAY_MS)
        assert is_known(coordinator)
    coordinator.advance(3_600_000)
    assert not is_known(coordinator)


def test_a_flood_of_ids_expires() -> None:
    coordinator = Coordinator(transactional_id_expiration_ms=60_000)
    for number in range(3000):
        coordinator.begin(f"id-{number}")
        coordinator.now_ms += 10
        coordinator.settle()
    assert len(coordinator.states.transactions) == 3000
    coordinator.advance(60_000)

    assert coordinator.transactions() == {}
    assert len(coordinator.states.deadlines) == 0


def test_ids_that_expired_without_a_leader_are_removed_after_loading() -> None:
    coordinator = Coordinator()
    coordinator.begin()
    coordinator.advance(DAY_MS)
    coordinator.now_ms += 10 * DAY_MS
    coordinator.restart()
    assert not is_known(coordinator)


def test_loading_many_ids_does_not_block_requests_and_sets_all_deadlines() -> None:
    """Each step processes a small part, and other requests are served between the steps."""
    coordinator = Coordinator(transactional_id_expiration_ms=60_000)
    for number in range(3000):
        coordinator.begin(f"id-{number}")
    coordinator.restart()
    assert len(coordinator.states.deadlines) == 3000

    again = TransactionShard(coordinator.states)
    coordinator.states.deadlines = Deadlines()
    again.loaded(coordinator.now())
    steps = 0
    while (due := again.deadlines.pop_due(coordinator.now_ms)) is not None:
        before = len(again.deadlines)
        due.action(coordinator.now())
        assert len(again.deadlines) - before <= 300
        steps += 1
    assert steps > 5
    assert len(again.deadlines) == 3000


def test_an_id_used_while_deadlines_are_set_keeps_its_own_deadline() -> None:
    coordinator = Coordinator(transactional_id_expiration_ms=60_000)
    for number in range(1000):
        coordinator.begin(f"id-{number}")
    coordinator.now_ms += 30_000
    coordinator.states.deadlines = Deadlines()
    coordinator.shard.loaded(coordinator.now())
    coordinator.begin("id-999")
    coordinator.settle()

    coordinator.advance(59_999)
    assert list(coordinator.transactions()) == ["id-999"]
    coordinator.advance(1)
    assert coordinator.transactions() == {}

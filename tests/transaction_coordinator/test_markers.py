"""From the decision to the end: markers, and failures in between."""

from __future__ import annotations

import pytest

from moldau.coordinator.deadlines import Deadlines
from moldau.protocol.errors import ErrorCode
from moldau.transaction_coordinator.completion import RETRY_MS
from moldau.transaction_coordinator.transaction import TransactionStatus

from .harness import Coordinator

PARTITION = ("t", 0)


def prepared(coordinator: Coordinator, transactional_id: str = "id") -> None:
    producer = coordinator.begin(transactional_id)
    coordinator.add(producer, PARTITION, transactional_id=transactional_id, client_version=2)
    coordinator.commit(producer, transactional_id=transactional_id)


def test_a_decision_that_was_not_written_has_no_markers() -> None:
    coordinator = Coordinator()
    producer = coordinator.begin()
    coordinator.add(producer, PARTITION)

    with coordinator.log_refuses(ErrorCode.NOT_LEADER_OR_FOLLOWER):
        assert coordinator.end(producer, committed=True).error is ErrorCode.NOT_COORDINATOR
    assert coordinator.markers == []
    assert coordinator.transaction().status is TransactionStatus.ONGOING


def test_an_uncommitted_decision_has_no_markers() -> None:
    coordinator = Coordinator()
    producer = coordinator.begin()
    coordinator.add(producer, PARTITION)
    coordinator.log.replicated = False

    sent = coordinator.end(producer, committed=True)

    assert sent.waits
    assert coordinator.markers == []
    coordinator.log.replicated = True
    coordinator.runtime.high_watermark_changed()
    coordinator.settle()
    assert sent.error is ErrorCode.NONE
    assert len(coordinator.markers) == 1


def test_loading_the_log_writes_the_markers_again() -> None:
    coordinator = Coordinator()
    for transactional_id in ("a", "b", "c"):
        prepared(coordinator, transactional_id)
    given = {one.transactional_id: one for one in coordinator.markers}
    coordinator.markers_written(given.pop("b"))

    coordinator.restart()

    assert {one.transactional_id: one for one in coordinator.markers} == given
    coordinator.write_markers()
    coordinator.restart()
    assert coordinator.markers == []


def test_markers_of_an_earlier_transaction_are_ignored() -> None:
    coordinator = Coordinator()
    prepared(coordinator)
    (first,) = coordinator.write_markers()
    coordinator.written()

    coordinator.markers_written(first)  # again
    assert coordinator.written() == []

    prepared(coordinator)
    coordinator.written()
    coordinator.markers_written(first)  # very late
    assert coordinator.written() == []
    assert coordinator.transaction().status is TransactionStatus.PREPARE_COMMIT
    coordinator.markers_written(first._replace(transactional_id="nobody"))
    assert coordinator.written() == []


def test_an_end_that_cannot_be_written_is_tried_again() -> None:
    coordinator = Coordinator()
    prepared(coordinator)

    with coordinator.log_refuses(ErrorCode.NOT_ENOUGH_REPLICAS):
        coordinator.write_markers()
        coordinator.advance(10 * RETRY_MS)
        assert coordinator.transaction().status is TransactionStatus.PREPARE_COMMIT
    coordinator.advance(RETRY_MS)

    assert coordinator.transaction().status is TransactionStatus.COMPLETE_COMMIT
    assert coordinator.markers == []


def test_markers_are_only_for_the_leader() -> None:
    coordinator = Coordinator()
    prepared(coordinator)
    (markers,) = coordinator.markers
    coordinator.runtime.close()

    coordinator.markers_written(markers)

    coordinator.restart()
    assert coordinator.transaction().status is TransactionStatus.PREPARE_COMMIT


@pytest.mark.parametrize("client_version", [1, 2])
def test_no_deadline_of_many_transactions_remains(client_version: int) -> None:
    coordinator = Coordinator()
    producer = coordinator.begin()
    for _ in range(500):
        coordinator.add(producer, PARTITION, client_version=client_version)
        if client_version == 2:
            producer = coordinator.commit(producer)
        else:
            coordinator.end(producer, committed=True, api_version=4)
        coordinator.write_markers()

    deadlines: Deadlines = coordinator.states.deadlines
    assert len(deadlines) == 1  # the transactional id expires
    assert len(deadlines._heap) < 100

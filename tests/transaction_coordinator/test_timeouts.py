"""A transaction that takes too long is aborted, and its producer fenced."""

from __future__ import annotations

from typing import Any

import pytest

from moldau.protocol.errors import ErrorCode, KafkaError
from moldau.transaction_coordinator.transaction import LAST_EPOCH, NO_TIMEOUT_MS, TransactionStatus

from .harness import TIMEOUT_MS, Coordinator, Producer

PARTITION = ("t", 0)


def ongoing(coordinator: Coordinator, **kwargs: Any) -> Producer:
    producer = coordinator.begin(**kwargs)
    coordinator.add(producer, PARTITION)
    return producer


@pytest.mark.parametrize("transaction_version", [0, 1, 2])
def test_it_is_aborted_when_its_time_is_over(transaction_version: int) -> None:
    coordinator = Coordinator(transaction_version=transaction_version)
    producer = ongoing(coordinator)

    coordinator.advance(TIMEOUT_MS - 1)
    assert coordinator.transaction().status is TransactionStatus.ONGOING
    coordinator.advance(1)

    (markers,) = coordinator.write_markers()
    assert (markers.producer_id, markers.producer_epoch, markers.committed) == (producer.id, 1, False)
    assert markers.transaction_version == (2 if transaction_version == 2 else 0)
    assert coordinator.transaction().status is TransactionStatus.COMPLETE_ABORT
    assert coordinator.add(producer, PARTITION).error is ErrorCode.PRODUCER_FENCED
    assert coordinator.end(producer, committed=True, api_version=4).error is ErrorCode.PRODUCER_FENCED
    assert coordinator.end(producer, committed=True, api_version=5).error is ErrorCode.INVALID_TXN_STATE


def test_with_bumps_a_producer_that_aborts_a_timed_out_transaction_may_continue() -> None:
    coordinator = Coordinator()
    producer = ongoing(coordinator)
    coordinator.advance(TIMEOUT_MS)
    coordinator.write_markers()

    response = coordinator.end(producer, committed=False).response

    assert coordinator.add(Producer(response.producer_id, response.producer_epoch), PARTITION).response is None


def test_the_timeout_starts_with_the_first_partition() -> None:
    coordinator = Coordinator()
    producer = ongoing(coordinator)
    coordinator.advance(TIMEOUT_MS // 2)
    coordinator.add(producer, ("t", 1))
    coordinator.advance(TIMEOUT_MS // 2)

    assert coordinator.transaction().status is TransactionStatus.PREPARE_ABORT


def test_every_transaction_has_its_own_timeout() -> None:
    coordinator = Coordinator()
    producer = ongoing(coordinator)
    for _ in range(5):
        coordinator.advance(TIMEOUT_MS - 1)
        assert coordinator.end(producer, committed=True, api_version=4).error is ErrorCode.NONE
        coordinator.write_markers()
        coordinator.add(producer, PARTITION)
    coordinator.advance(TIMEOUT_MS - 1)
    assert coordinator.transaction().status is TransactionStatus.ONGOING
    coordinator.advance(1)
    assert coordinator.transaction().status is TransactionStatus.PREPARE_ABORT


@pytest.mark.parametrize("restarts", [1, 5])
def test_the_timeout_includes_the_time_before_the_coordinator_moved(restarts: int) -> None:
    coordinator = Coordinator()
    ongoing(coordinator)
    for _ in range(restarts):
        coordinator.advance((TIMEOUT_MS - 1) // restarts)
        coordinator.restart()
    assert coordinator.transaction().status is TransactionStatus.ONGOING
    coordinator.advance(1 + (TIMEOUT_MS - 1) % restarts)
    assert coordinator.transaction().status is TransactionStatus.PREPARE_ABORT


def test_a_transaction_that_timed_out_without_a_leader_is_aborted_after_loading() -> None:
    coordinator = Coordinator()
    ongoing(coordinator)
    coordinator.now_ms += 10 * TIMEOUT_MS
    coordinator.restart()

    assert coordinator.transaction().status is TransactionStatus.PREPARE_ABORT


def test_an_abort_that_cannot_be_written_is_tried_again() -> None:
    coordinator = Coordinator(transaction_abort_timed_out_transaction_cleanup_interval_ms=500)
    producer = ongoing(coordinator)
    with coordinator.log_refuses(ErrorCode.NOT_ENOUGH_REPLICAS):
        coordinator.advance(TIMEOUT_MS + 1200)
        assert coordinator.transaction().status is TransactionStatus.ONGOING
    # Until then it is open, and the producer is not fenced.
    assert coordinator.add(producer, ("t", 1)).response is None
    coordinator.advance(500)

    assert coordinator.transaction().status is TransactionStatus.PREPARE_ABORT


def test_an_abort_that_needs_a_producer_id_waits_for_one() -> None:
    coordinator = Coordinator(transaction_abort_timed_out_transaction_cleanup_interval_ms=500)
    producer = coordinator.begin_with_epoch(LAST_EPOCH)
    coordinator.add(producer, PARTITION)
    coordinator.has_producer_ids = False
    coordinator.advance(TIMEOUT_MS + 1200)
    assert coordinator.transaction().status is TransactionStatus.ONGOING
    coordinator.has_producer_ids = True
    coordinator.advance(500)

    coordinator.write_markers()
    assert coordinator.transaction().producer_id == producer.id + 1


def test_a_decided_transaction_does_not_time_out() -> None:
    coordinator = Coordinator()
    producer = ongoing(coordinator)
    coordinator.end(producer, committed=True, api_version=4)
    coordinator.advance(10 * TIMEOUT_MS)

    assert coordinator.transaction().status is TransactionStatus.PREPARE_COMMIT
    coordinator.restart()
    coordinator.advance(10 * TIMEOUT_MS)
    assert coordinator.transaction().status is TransactionStatus.PREPARE_COMMIT


def test_two_phase_commit_never_times_out() -> None:
    coordinator = Coordinator(transaction_two_phase_commit_enable=True, transactional_id_expiration_ms=1000)
    producer = coordinator.begin(enable_2pc=True, api_version=6)
    coordinator.add(producer, PARTITION)

    coordinator.advance(NO_TIMEOUT_MS + 1)
    coordinator.restart()
    coordinator.advance(NO_TIMEOUT_MS + 1)

    assert coordinator.transaction().status is TransactionStatus.ONGOING


def test_a_test_can_expire_it_immediately() -> None:
    coordinator = Coordinator()
    producer = coordinator.begin()

    with pytest.raises(KafkaError, match="no open transaction"):
        coordinator.shard.time_out("id")
    with pytest.raises(KafkaError, match=r"Transactional id .* does not exist"):
        coordinator.shard.time_out("another")
    coordinator.add(producer, PARTITION)
    coordinator.runtime.decide("id", coordinator.shard.time_out("id"))
    coordinator.settle()
    assert coordinator.transaction().status is TransactionStatus.PREPARE_ABORT

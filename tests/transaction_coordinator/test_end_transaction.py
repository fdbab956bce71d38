"""EndTxn: the responses to a producer, also when it retries."""

from __future__ import annotations

import pytest

from moldau.protocol.errors import ErrorCode
from moldau.transaction_coordinator.markers import Markers
from moldau.transaction_coordinator.transaction import LAST_EPOCH, TransactionStatus

from .harness import Coordinator, Producer

PARTITION, ANOTHER = ("t", 0), ("t", 1)


def test_the_response_is_sent_after_the_decision_and_before_the_markers() -> None:
    coordinator = Coordinator()
    producer = coordinator.begin()
    coordinator.add(producer, PARTITION, ANOTHER)

    sent = coordinator.end(producer, committed=True, api_version=4)

    assert sent.error is ErrorCode.NONE
    assert (sent.response.producer_id, sent.response.producer_epoch) == (-1, -1)
    assert coordinator.transaction().status is TransactionStatus.PREPARE_COMMIT
    assert coordinator.write_markers() == [
        Markers("id", producer.id, 0, True, frozenset({PARTITION, ANOTHER}), transaction_version=0)
    ]
    assert coordinator.transaction().status is TransactionStatus.COMPLETE_COMMIT
    assert coordinator.transaction().partitions == frozenset()


def test_with_bumps_the_marker_fences_the_transaction_it_ends() -> None:
    coordinator = Coordinator()
    producer = coordinator.begin()
    coordinator.add(producer, PARTITION, client_version=2)

    assert coordinator.commit(producer) == Producer(producer.id, 1)
    assert coordinator.write_markers() == [
        Markers("id", producer.id, 1, True, frozenset({PARTITION}), transaction_version=2)
    ]


def test_every_transaction_has_its_epoch() -> None:
    coordinator = Coordinator()
    producer = coordinator.begin()
    for epoch in range(1, 10):
        coordinator.add(producer, PARTITION, client_version=2)
        sent = coordinator.end(producer, committed=epoch % 3 > 0)
        coordinator.write_markers()
        producer = Producer(sent.response.producer_id, sent.response.producer_epoch)
        assert producer.epoch == epoch


@pytest.mark.parametrize("committed", [False, True])
@pytest.mark.parametrize("moves", [False, True])
def test_a_retry_gets_the_same_response(committed: bool, moves: bool) -> None:
    coordinator = Coordinator()
    producer = coordinator.begin()
    coordinator.add(producer, PARTITION, client_version=2)
    first = coordinator.end(producer, committed=committed).response
    if moves:
        coordinator.restart()

    assert coordinator.end(producer, committed=committed).error is ErrorCode.CONCURRENT_TRANSACTIONS
    coordinator.write_markers()
    if moves:
        coordinator.restart()
    assert coordinator.end(producer, committed=committed).response == first
    assert coordinator.end(producer, committed=not committed).error is ErrorCode.INVALID_TXN_STATE
    assert coordinator.markers == []


def test_a_retry_during_the_next_transaction_is_fenced() -> None:
    coordinator = Coordinator()
    producer = coordinator.begin()
    coordinator.add(producer, PARTITION, client_version=2)
    following = coordinator.commit(producer)
    coordinator.write_markers()
    coordinator.add(following, PARTITION, client_version=2)

    assert coordinator.end(producer, committed=True).error is ErrorCode.PRODUCER_FENCED
    assert coordinator.transaction().status is TransactionStatus.ONGOING


@pytest.mark.parametrize("state", ["EMPTY", "COMPLETE_COMMIT", "COMPLETE_ABORT"])
def test_with_epoch_bumps_an_empty_transaction_can_be_aborted(state: str) -> None:
    coordinator = Coordinator()
    producer = coordinator.begin()
    if state != "EMPTY":
        coordinator.add(producer, PARTITION, client_version=2)
        response = coordinator.end(producer, committed=state == "COMPLETE_COMMIT").response
        producer = Producer(response.producer_id, response.producer_epoch)
        coordinator.write_markers()
    coordinator.advance(5000)

    aborted = coordinator.end(producer, committed=False).response

    assert aborted.producer_epoch == producer.epoch + 1
    (markers,) = coordinator.write_markers()
    assert markers == Markers("id", producer.id, producer.epoch + 1, False, frozenset(), transaction_version=2)
    assert coordinator.transaction().started_ms == coordinator.now().epoch_ms
    assert coordinator.end(producer, committed=False).response == aborted


# -- the last epoch ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("committed", [False, True])
@pytest.mark.parametrize("moves", [False, True])
def test_the_last_epoch_ends_with_a_new_producer_id(committed: bool, moves: bool) -> None:
    coordinator = Coordinator()
    producer = coordinator.begin_with_epoch(LAST_EPOCH)
    coordinator.add(producer, PARTITION, client_version=2)

    first = coordinator.end(producer, committed=committed).response
    following = Producer(first.producer_id, first.producer_epoch)

    assert following == Producer(producer.id + 1, 0)
    if moves:
        coordinator.restart()
    for early in (producer, following):  # the producer does not know yet whether the markers are written
        assert coordinator.end(early, committed=committed).error is ErrorCode.CONCURRENT_TRANSACTIONS
        assert coordinator.add(early, PARTITION).error is ErrorCode.CONCURRENT_TRANSACTIONS
    assert coordinator.write_markers() == [
        Markers("id", producer.id, LAST_EPOCH + 1, committed, frozenset({PARTITION}), transaction_version=2)
    ]
    if moves:
        coordinator.restart()
    assert coordinator.end(producer, committed=committed).response == first
    assert coordinator.end(producer, committed=not committed).error is ErrorCode.INVALID_TXN_STATE
    assert coordinator.begin(expected=producer) == following
    assert coordinator.add(following, PARTITION, client_version=2).response is None
    assert coordinator.end(producer, committed=committed).error is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert coordinator.commit(following) == Producer(following.id, 1)


def test_a_retry_of_the_last_epoch_is_fenced_by_a_producer_that_begins() -> None:
    coordinator = Coordinator()
    producer = coordinator.begin_with_epoch(LAST_EPOCH)
    coordinator.add(producer, PARTITION, client_version=2)
    coordinator.commit(producer)
    coordinator.write_markers()
    begun = coordinator.begin()

    assert begun == Producer(producer.id + 1, 1)
    assert coordinator.end(producer, committed=True).error is ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_before_bumps_the_last_epoch_ends_any_number_of_transactions() -> None:
    coordinator = Coordinator()
    producer = coordinator.begin_with_epoch(LAST_EPOCH)
    for _ in range(3):
        coordinator.add(producer, PARTITION)
        assert coordinator.end(producer, committed=True, api_version=4).error is ErrorCode.NONE
        coordinator.write_markers()

    assert coordinator.transaction().producer_id == producer.id
    assert coordinator.transaction().producer_epoch == LAST_EPOCH


def test_without_a_producer_id_at_hand_the_last_epoch_has_to_wait() -> None:
    coordinator = Coordinator()
    producer = coordinator.begin_with_epoch(LAST_EPOCH)
    coordinator.add(producer, PARTITION, client_version=2)
    coordinator.has_producer_ids = False

    assert coordinator.end(producer, committed=True).error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    coordinator.has_producer_ids = True
    assert coordinator.commit(producer) == Producer(producer.id + 1, 0)


def test_below_transaction_version_1_the_next_producer_id_is_known_until_the_coordinator_moves() -> None:
    # A client that does not know of the downgrade. Its next id is lost with the coordinator; the epoch that no
    # producer gets is in force then, and a producer that begins gets another id.
    coordinator = Coordinator(transaction_version=0)
    producer = coordinator.begin_with_epoch(LAST_EPOCH)
    coordinator.add(producer, PARTITION, client_version=2)
    following = coordinator.commit(producer)
    coordinator.restart()
    coordinator.write_markers()

    assert coordinator.transaction().producer_epoch == LAST_EPOCH + 1
    assert coordinator.add(following, PARTITION).error is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert coordinator.begin() == Producer(following.id + 1, 0)

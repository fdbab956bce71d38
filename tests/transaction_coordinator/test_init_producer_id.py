"""InitProducerId: the id and epoch of a producer, and the state of its predecessor."""

from __future__ import annotations

import pytest

from moldau.protocol.errors import ErrorCode
from moldau.transaction_coordinator.transaction import LAST_EPOCH, NO_TIMEOUT_MS, TransactionStatus

from .harness import FIRST_PRODUCER_ID, TIMEOUT_MS, Coordinator, Producer

PARTITION = ("t", 0)


def test_a_transactional_id_keeps_its_producer_id_and_gets_the_next_epoch() -> None:
    coordinator = Coordinator()

    assert coordinator.begin() == Producer(FIRST_PRODUCER_ID, 0)
    assert coordinator.begin() == Producer(FIRST_PRODUCER_ID, 1)
    assert coordinator.begin("another") == Producer(FIRST_PRODUCER_ID + 1, 0)
    coordinator.restart()
    assert coordinator.begin() == Producer(FIRST_PRODUCER_ID, 2)


@pytest.mark.parametrize(
    ("timeout_ms", "error"),
    [
        (-1, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        (0, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        (1, ErrorCode.NONE),
        (900_000, ErrorCode.NONE),
        (900_001, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
    ],
)
def test_a_timeout_has_limits(timeout_ms: int, error: ErrorCode) -> None:
    coordinator = Coordinator()

    assert coordinator.init(timeout_ms=timeout_ms).error is error
    assert len(coordinator.written()) == (error is ErrorCode.NONE)


def test_the_latest_timeout_applies() -> None:
    coordinator = Coordinator()
    coordinator.begin(timeout_ms=1000)
    coordinator.begin(timeout_ms=2000)

    assert coordinator.transaction().timeout_ms == 2000


@pytest.mark.parametrize("expected", [Producer(-1, 0), Producer(5, -1)])
def test_an_id_without_an_epoch_is_no_producer(expected: Producer) -> None:
    coordinator = Coordinator()

    assert coordinator.init(expected=expected).error is ErrorCode.INVALID_REQUEST
    assert coordinator.init("", expected=expected).error is ErrorCode.INVALID_REQUEST


def test_two_phase_commit_must_be_enabled() -> None:
    refused, allowed = Coordinator(), Coordinator(transaction_two_phase_commit_enable=True)

    assert refused.init(api_version=6, enable_2pc=True).error is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert refused.init(api_version=6, keep_prepared_txn=True).error is ErrorCode.UNSUPPORTED_VERSION
    assert allowed.init(api_version=6, enable_2pc=True, keep_prepared_txn=True).error is ErrorCode.UNSUPPORTED_VERSION
    assert allowed.init(api_version=6, enable_2pc=True, timeout_ms=-1).error is ErrorCode.NONE
    assert allowed.transaction().timeout_ms == NO_TIMEOUT_MS


def test_without_a_producer_id_at_hand_a_new_one_has_to_wait() -> None:
    coordinator = Coordinator()
    coordinator.has_producer_ids = False

    assert coordinator.init().error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    coordinator.has_producer_ids = True
    assert coordinator.begin() == Producer(FIRST_PRODUCER_ID, 0)


# -- going on after an error (KIP-360) ---------------------------------------------------------------------------------


def test_a_producer_continues_with_the_next_epoch() -> None:
    coordinator = Coordinator()
    producer = coordinator.begin()

    assert coordinator.begin(expected=producer) == Producer(producer.id, 1)


def test_a_retry_gets_the_same_response() -> None:
    coordinator = Coordinator()
    producer = coordinator.begin()
    went_on = coordinator.begin(expected=producer)

    assert coordinator.begin(expected=producer) == went_on
    assert coordinator.begin(expected=producer) == went_on
    assert coordinator.begin(expected=went_on) == Producer(producer.id, 2)
    assert coordinator.init(expected=producer).error is ErrorCode.PRODUCER_FENCED


def test_a_retry_is_fenced_when_another_producer_has_begun() -> None:
    coordinator = Coordinator()
    producer = coordinator.begin()
    coordinator.begin(expected=producer)
    coordinator.begin()

    assert coordinator.init(expected=producer).error is ErrorCode.PRODUCER_FENCED


def test_a_retry_is_fenced_when_the_coordinator_has_moved() -> None:
    # A record has no field for the last epoch. Apache Kafka does the same.
    coordinator = Coordinator()
    producer = coordinator.begin()
    coordinator.begin(expected=producer)
    coordinator.restart()

    assert coordinator.init(expected=producer).error is ErrorCode.PRODUCER_FENCED


def test_a_producer_whose_id_has_expired_gets_a_new_one() -> None:
    coordinator = Coordinator(transactional_id_expiration_ms=1000)
    producer = coordinator.begin()
    coordinator.advance(1000)

    went_on = coordinator.begin(expected=producer)

    assert went_on == Producer(producer.id + 1, 0)
    assert coordinator.begin(expected=went_on) == Producer(went_on.id, 1)


def test_a_producer_may_end_its_open_transaction_by_going_on() -> None:
    coordinator = Coordinator()
    producer = coordinator.begin()
    coordinator.add(producer, PARTITION)

    assert coordinator.init(expected=producer).error is ErrorCode.CONCURRENT_TRANSACTIONS
    assert coordinator.init(expected=producer).error is ErrorCode.CONCURRENT_TRANSACTIONS
    (markers,) = coordinator.write_markers()
    assert not markers.committed
    # The abort has bumped the epoch already, and no other producer has started.
    assert coordinator.begin(expected=producer) == Producer(producer.id, 1)
    assert coordinator.begin(expected=producer) == Producer(producer.id, 1)


def test_so_it_may_when_the_coordinator_has_moved() -> None:
    coordinator = Coordinator()
    producer = coordinator.begin()
    coordinator.add(producer, PARTITION)
    coordinator.init(expected=producer)
    coordinator.restart()
    coordinator.write_markers()
    coordinator.restart()

    assert coordinator.begin(expected=producer) == Producer(producer.id, 1)


def test_without_bumps_an_aborted_producer_must_start_again() -> None:
    coordinator = Coordinator(transaction_version=1)
    producer = coordinator.begin()
    coordinator.add(producer, PARTITION)

    assert coordinator.init(expected=producer).error is ErrorCode.CONCURRENT_TRANSACTIONS
    coordinator.write_markers()
    assert coordinator.init(expected=producer).error is ErrorCode.PRODUCER_FENCED
    assert coordinator.begin() == Producer(producer.id, 2)


# -- epochs that are used up -------------------------------------------------------------------------------------------


def test_a_new_producer_id_follows_the_last_epoch() -> None:
    coordinator = Coordinator()
    producer = coordinator.begin_with_epoch(LAST_EPOCH)

    assert coordinator.begin() == Producer(producer.id + 1, 0)
    assert coordinator.init(expected=producer).error is ErrorCode.PRODUCER_FENCED


def test_a_producer_continues_with_a_new_id_and_may_retry() -> None:
    coordinator = Coordinator()
    producer = coordinator.begin_with_epoch(LAST_EPOCH)
    went_on = coordinator.begin(expected=producer)

    assert went_on == Producer(producer.id + 1, 0)
    assert coordinator.begin(expected=producer) == went_on
    assert coordinator.begin(expected=went_on) == Producer(went_on.id, 1)
    assert coordinator.init(expected=producer).error is ErrorCode.PRODUCER_FENCED


def test_a_retry_after_a_lost_response_gets_the_last_epoch_again() -> None:
    coordinator = Coordinator()
    producer = coordinator.begin_with_epoch(LAST_EPOCH - 1)
    went_on = coordinator.begin(expected=producer)

    assert went_on == Producer(producer.id, LAST_EPOCH)
    assert coordinator.begin(expected=producer) == went_on
    older = Producer(producer.id, LAST_EPOCH - 2)
    assert coordinator.init(expected=older).error is ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize("transaction_version", [0, 1, 2])
def test_a_producer_with_the_last_epoch_is_fenced_by_the_reserved_one(transaction_version: int) -> None:
    coordinator = Coordinator(transaction_version=transaction_version)
    producer = coordinator.begin_with_epoch(LAST_EPOCH)
    coordinator.add(producer, PARTITION)

    assert coordinator.init().error is ErrorCode.CONCURRENT_TRANSACTIONS
    (markers,) = coordinator.write_markers()
    assert markers.producer_epoch == LAST_EPOCH + 1
    begun = coordinator.begin()
    # With bumps, the abort assigns a new producer id; otherwise, InitProducerId does.
    assert begun == Producer(producer.id + 1, 1 if transaction_version == 2 else 0)


def test_the_new_id_of_a_rotation_that_was_not_written_is_lost() -> None:
    coordinator = Coordinator()
    producer = coordinator.begin_with_epoch(LAST_EPOCH)

    with coordinator.log_refuses(ErrorCode.NOT_ENOUGH_REPLICAS):
        assert coordinator.init().error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert coordinator.begin() == Producer(producer.id + 2, 0)


def test_a_transaction_with_the_reserved_epoch_can_be_aborted() -> None:
    # A log that another release left with the highest epoch in use: it must not block its transactional id.
    coordinator = Coordinator()
    producer = coordinator.begin_with_epoch(LAST_EPOCH)
    broken = Producer(producer.id, LAST_EPOCH + 1)
    transaction = coordinator.transaction()
    coordinator.states.transactions["id"] = transaction.with_epoch(broken.epoch, -1, TIMEOUT_MS, 0)
    coordinator.add(broken, PARTITION)

    assert coordinator.init().error is ErrorCode.CONCURRENT_TRANSACTIONS
    coordinator.write_markers()
    assert coordinator.transaction().status is TransactionStatus.COMPLETE_ABORT
    assert coordinator.begin().epoch == 1

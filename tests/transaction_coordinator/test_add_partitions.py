"""Adding partitions: a transaction begins with the first one, and grows."""

from __future__ import annotations

from moldau.protocol.errors import ErrorCode
from moldau.transaction_coordinator.transaction import TransactionStatus

from .harness import Coordinator, partitions


def test_a_transaction_begins_with_its_first_partition() -> None:
    coordinator = Coordinator()
    producer = coordinator.begin()
    coordinator.advance(1000)
    coordinator.add(producer, ("t", 0))
    began_ms = coordinator.now().epoch_ms
    coordinator.advance(1000)

    coordinator.add(producer, ("t", 1), ("u", 0))

    transaction = coordinator.transaction()
    assert transaction.status is TransactionStatus.ONGOING
    assert transaction.started_ms == began_ms
    assert transaction.updated_ms == began_ms + 1000
    assert transaction.partitions == {("t", 0), ("t", 1), ("u", 0)}


def test_the_next_transaction_begins_without_any() -> None:
    coordinator = Coordinator()
    producer = coordinator.begin()
    coordinator.add(producer, *partitions("t", range(10)))
    coordinator.end(producer, committed=False, api_version=4)
    coordinator.write_markers()
    coordinator.advance(1000)

    coordinator.add(producer, ("u", 0))

    assert coordinator.transaction().partitions == {("u", 0)}
    assert coordinator.transaction().started_ms == coordinator.now().epoch_ms


def test_partitions_of_the_transaction_are_not_written_again() -> None:
    coordinator = Coordinator()
    producer = coordinator.begin()
    coordinator.add(producer, *partitions("t", range(10)))
    coordinator.written()

    assert coordinator.add(producer, *partitions("t", range(3, 7))).response is None
    assert coordinator.written() == []
    assert coordinator.add(producer).response is None
    assert coordinator.written() == []
    coordinator.add(producer, ("t", 9), ("t", 10))
    (record,) = coordinator.written()
    assert record.value is not None
    (topic,) = record.value.transaction_partitions
    assert topic.partition_ids == list(range(11))


def test_the_client_s_version_is_that_of_its_last_request() -> None:
    coordinator = Coordinator()
    producer = coordinator.begin()
    coordinator.add(producer, ("t", 0), client_version=2)
    assert coordinator.transaction().client_version == 2
    coordinator.add(producer, ("t", 1), client_version=1)
    assert coordinator.transaction().client_version == 0


def test_a_request_that_exceeds_a_batch_is_rejected_completely() -> None:
    coordinator = Coordinator()
    coordinator.log.max_batch_bytes = 1000
    producer = coordinator.begin()

    assert coordinator.add(producer, *partitions("t", range(1000))).error is ErrorCode.UNKNOWN_SERVER_ERROR
    assert coordinator.transaction().status is TransactionStatus.EMPTY
    assert coordinator.add(producer, *partitions("t", range(10))).response is None

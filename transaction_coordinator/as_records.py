"""Converts a transaction to a record and back.

A record contains the whole transaction except the epoch before the last bump (`Transaction.last_epoch`), which is known
only until the coordinator moves. After loading it is known for a transaction that ended with a bump; otherwise, a
producer that retries InitProducerId is fenced and must start as a new producer.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Final

from ..coordinator.outcome import Record
from ..protocol.records import NO_PRODUCER_EPOCH
from .records import PartitionsSchema, TransactionLogKey, TransactionLogValue
from .transaction import COMPLETE, EPOCH_BUMPS, LAST_EPOCH, PREPARED, Partition, Transaction, TransactionStatus

_ENDED: Final = PREPARED | COMPLETE
_STATUSES: Final = tuple(TransactionStatus)


class DecidedRecord(Record):
    """A record with its transaction, including fields that the record lacks: replay need not decode it."""

    transaction: Transaction


def record_of(transaction: Transaction, transaction_version: int) -> DecidedRecord:
    """The record in the format of this `transaction.version`."""
    value = TransactionLogValue(
        producer_id=transaction.producer_id,
        previous_producer_id=transaction.previous_producer_id,
        next_producer_id=transaction.next_producer_id,
        producer_epoch=transaction.producer_epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=transaction.status,
        transaction_partitions=_by_topic(transaction) if transaction.status is not TransactionStatus.EMPTY else None,
        transaction_last_update_timestamp_ms=transaction.updated_ms,
        transaction_start_timestamp_ms=transaction.started_ms,
        client_transaction_version=transaction.client_version,
    )
    key = TransactionLogKey(transactional_id=transaction.transactional_id)
    record = DecidedRecord(key, value, 1 if transaction_version >= 1 else 0)
    record.transaction = transaction
    return record


def tombstone(transactional_id: str) -> Record:
    """The tombstone of a transactional ID."""
    return Record(TransactionLogKey(transactional_id=transactional_id), None)


def transaction_of(transactional_id: str, value: TransactionLogValue) -> Transaction:
    """The transaction in the record of this ID."""
    partitions: frozenset[Partition] = frozenset(
        [(topic.topic, index) for topic in value.transaction_partitions or () for index in topic.partition_ids]
    )
    status = _STATUSES[value.transaction_status]
    return Transaction(
        transactional_id=transactional_id,
        producer_id=value.producer_id,
        producer_epoch=value.producer_epoch,
        timeout_ms=value.transaction_timeout_ms,
        status=status,
        partitions=partitions,
        started_ms=value.transaction_start_timestamp_ms,
        updated_ms=value.transaction_last_update_timestamp_ms,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        last_epoch=_last_epoch(status, value),
        client_version=value.client_transaction_version,
    )


def _last_epoch(status: TransactionStatus, value: TransactionLogValue) -> int:
    if value.client_transaction_version < EPOCH_BUMPS or status not in _ENDED:
        return NO_PRODUCER_EPOCH
    # The epochs of a new producer id start at 0.
    return value.producer_epoch - 1 if value.producer_epoch > 0 else LAST_EPOCH


def _by_topic(transaction: Transaction) -> list[PartitionsSchema]:
    if len(transaction.partitions) == 1:  # the usual case
        ((topic, index),) = transaction.partitions
        return [PartitionsSchema(topic=topic, partition_ids=[index])]
    by_topic: defaultdict[str, list[int]] = defaultdict(list)
    for topic, index in sorted(transaction.partitions):
        by_topic[topic].append(index)
    return [PartitionsSchema(topic=topic, partition_ids=indices) for topic, indices in by_topic.items()]

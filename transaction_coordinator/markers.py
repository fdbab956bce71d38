"""The markers of a transaction that ends: an effect of the decision (`coordinator.outcome.Outcome`)."""

from __future__ import annotations

from typing import NamedTuple

from .transaction import Partition, Transaction, TransactionStatus


class Markers(NamedTuple):
    """The markers to write to the partitions of a transaction that ends."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    committed: bool
    partitions: frozenset[Partition]
    """May be empty: then `markers_written` may be decided immediately."""
    transaction_version: int
    """How strictly the partitions check the epoch: 2 if it was bumped for this marker, otherwise 0."""


def markers_of(transaction: Transaction) -> Markers:
    """The markers of a transaction in one of the states PREPARE_*."""
    return Markers(
        transaction.transactional_id,
        transaction.producer_id,
        transaction.producer_epoch,
        transaction.status is TransactionStatus.PREPARE_COMMIT,
        transaction.partitions,
        transaction.client_version,
    )

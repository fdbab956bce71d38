"""The markers that have to be written, from when it is safe to.

A marker makes records visible or gone for good, so the decision behind it must not be lost: not before the record of it
is below the high watermark. That is when answers leave, so the outbox is one more caller that waits for an answer; it
gets the markers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from .transaction import Partition, Transaction, TransactionStatus

if TYPE_CHECKING:
    from ..coordinator.outcome import Answer
    from ..protocol.errors import KafkaError


class Markers(NamedTuple):
    """What has to be written to the partitions of a transaction that ends."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    committed: bool
    partitions: frozenset[Partition]
    """None at all is possible: then `markers_written` may be decided at once."""
    transaction_version: int
    """How strictly the partitions check the epoch: 2 when it was bumped for this marker, else 0."""


class Outbox:
    """See `coordinator.outcome.Caller`."""

    api_version = 0
    client_id = ""
    client_host = ""
    listener_name = ""

    def __init__(self) -> None:
        self._markers: list[Markers] = []

    def of(self, transaction: Transaction) -> Answer:
        """The answer that puts the markers of a transaction that ends in here."""
        markers: Any = Markers(
            transaction.transactional_id,
            transaction.producer_id,
            transaction.producer_epoch,
            transaction.status is TransactionStatus.PREPARE_COMMIT,
            transaction.partitions,
            transaction.client_version,
        )
        return self, markers

    def reply(self, response: Markers) -> None:
        """The decision is safe."""
        self._markers.append(response)

    def fail(self, error: KafkaError) -> None:
        """It came to nothing, or whoever coordinates next will find it in the log."""

    def take(self) -> list[Markers]:
        """What there is to write; it is not given a second time."""
        taken, self._markers = self._markers, []
        return taken

"""The state of a transactional ID: its producer and its transaction.

    EMPTY           a producer got its ID and epoch; there was no transaction since then
    ONGOING         partitions were added
    PREPARE_COMMIT  the decision to commit, which is final; markers are being written
    PREPARE_ABORT   the same for an abort
    COMPLETE_COMMIT every partition has its marker; the next transaction may begin
    COMPLETE_ABORT  the same, aborted

A `Transaction` is immutable: a change creates a new value. The functions here only compute it; the modules of the
requests check who may change it, and when.

With transactions version 2 (KIP-890), the end of a transaction bumps the producer's epoch, so that delayed writes of
the transaction cannot become part of the next one. An epoch is an int16. Producers never get the highest one: it is
reserved for fencing a producer with the one below. When that producer ends a transaction, it gets a new producer ID
with epoch 0.
"""

from __future__ import annotations

import enum
from typing import Final, NamedTuple

from ..protocol.records import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

EPOCH_MAX: Final = 0x7FFF
LAST_EPOCH: Final = EPOCH_MAX - 1
"""The highest epoch that a producer gets."""

EPOCH_BUMPS: Final = 2
"""Since this `transaction.version`, every transaction bumps the epoch."""

NO_TIMEOUT_MS: Final = 0x7FFF_FFFF
"""The timeout with two-phase commit (KIP-939): an external system decides how the transaction ends."""

NOT_STARTED: Final = -1

Partition = tuple[str, int]


class TransactionStatus(enum.IntEnum):
    """The values are the numbers in the log."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5

    @property
    def state_name(self) -> str:
        """The name in Kafka's tools."""
        return _NAMES[self]


_NAMES: Final = {status: status.name.title().replace("_", "") for status in TransactionStatus}

PREPARED: Final = frozenset({TransactionStatus.PREPARE_COMMIT, TransactionStatus.PREPARE_ABORT})
COMPLETE: Final = frozenset({TransactionStatus.COMPLETE_COMMIT, TransactionStatus.COMPLETE_ABORT})


class Transaction(NamedTuple):
    """One transactional ID. A tuple, because each transaction creates several values, and tuples are the fastest."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    status: TransactionStatus = TransactionStatus.EMPTY
    partitions: frozenset[Partition] = frozenset()
    started_ms: int = NOT_STARTED
    """The time when the first partition was added."""
    updated_ms: int = NOT_STARTED
    previous_producer_id: int = NO_PRODUCER_ID
    """The producer ID before the last change; retries of the request that changed it contain it."""
    next_producer_id: int = NO_PRODUCER_ID
    last_epoch: int = NO_PRODUCER_EPOCH
    """The epoch before the last bump, if that was for the same producer. Records have no field for it."""
    client_version: int = 0
    """2 if its client supports epoch bumps, otherwise 0."""

    @property
    def is_exhausted(self) -> bool:
        """Whether the epochs of this producer ID are exhausted."""
        return self.producer_epoch >= LAST_EPOCH

    # -- producers -----------------------------------------------------------------------------------------------------

    def with_epoch(self, epoch: int, last_epoch: int, timeout_ms: int, now_ms: int) -> Transaction:
        """A producer starts or restarts with this epoch."""
        return self._replace(
            status=TransactionStatus.EMPTY,
            updated_ms=now_ms,
            previous_producer_id=self.producer_id,
            producer_epoch=epoch,
            last_epoch=last_epoch,
            timeout_ms=timeout_ms,
            partitions=frozenset(),
            started_ms=NOT_STARTED,
        )

    def with_new_producer_id(self, producer_id: int, last_epoch: int, timeout_ms: int, now_ms: int) -> Transaction:
        """The epochs are exhausted: start with another producer ID."""
        begun = self.with_epoch(0, last_epoch, timeout_ms, now_ms)
        return begun._replace(producer_id=producer_id)

    # -- transactions --------------------------------------------------------------------------------------------------

    def adding(self, partitions: frozenset[Partition], client_version: int, now_ms: int) -> Transaction:
        """Add partitions. The first ones begin the transaction."""
        is_ongoing = self.status is TransactionStatus.ONGOING
        return self._replace(
            status=TransactionStatus.ONGOING,
            updated_ms=now_ms,
            previous_producer_id=self.producer_id,
            partitions=self.partitions | partitions,
            started_ms=self.started_ms if is_ongoing else now_ms,
            client_version=client_version,
        )

    def ending(self, *, committed: bool, now_ms: int) -> Transaction:
        """Commit or abort, for a client without epoch bumps."""
        return self._replace(
            status=TransactionStatus.PREPARE_COMMIT if committed else TransactionStatus.PREPARE_ABORT,
            updated_ms=now_ms,
            previous_producer_id=self.producer_id,
            next_producer_id=NO_PRODUCER_ID,
            client_version=0,
        )

    def ending_with_bump(self, *, committed: bool, next_producer_id: int, now_ms: int) -> Transaction:
        """Commit or abort with an epoch bump. ``next_producer_id`` is a new ID if it `is_exhausted`.

        A transaction without partitions may be aborted: the client does not know whether its writes had any effect.
        """
        return self._replace(
            status=TransactionStatus.PREPARE_COMMIT if committed else TransactionStatus.PREPARE_ABORT,
            updated_ms=now_ms,
            previous_producer_id=self.producer_id,
            started_ms=self.started_ms if self.status is TransactionStatus.ONGOING else now_ms,
            producer_epoch=min(self.producer_epoch + 1, EPOCH_MAX),
            last_epoch=self.producer_epoch,
            next_producer_id=next_producer_id,
            client_version=EPOCH_BUMPS,
        )

    def fencing(self, now_ms: int) -> Transaction:
        """Abort and fence the producer. `ending_with_bump` fences as well."""
        return self._replace(
            status=TransactionStatus.PREPARE_ABORT,
            updated_ms=now_ms,
            previous_producer_id=self.producer_id,
            producer_epoch=min(self.producer_epoch + 1, EPOCH_MAX),
            last_epoch=NO_PRODUCER_EPOCH,
            next_producer_id=NO_PRODUCER_ID,
            client_version=0,
        )

    @property
    def next_producer(self) -> tuple[int, int]:
        """The ID and epoch of the producer after this transaction is completed."""
        if self.client_version >= EPOCH_BUMPS and self.next_producer_id != NO_PRODUCER_ID:
            return self.next_producer_id, 0
        return self.producer_id, self.producer_epoch

    def completed(self, now_ms: int) -> Transaction:
        """Every partition has its marker."""
        committed = self.status is TransactionStatus.PREPARE_COMMIT
        producer_id, producer_epoch = self.next_producer
        return self._replace(
            status=TransactionStatus.COMPLETE_COMMIT if committed else TransactionStatus.COMPLETE_ABORT,
            updated_ms=now_ms,
            previous_producer_id=self.producer_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            next_producer_id=NO_PRODUCER_ID,
            partitions=frozenset(),
        )

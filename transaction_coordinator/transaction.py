"""What a transactional id is at: its producer, and where its transaction stands.

    EMPTY           a producer was given its id and epoch; there was no transaction since
    ONGOING         partitions were added
    PREPARE_COMMIT  it was decided to commit: from here on nothing can change that. Markers are being written
    PREPARE_ABORT   the same, to abort
    COMPLETE_COMMIT every partition has its marker; the next transaction may begin
    COMPLETE_ABORT  the same, aborted

A `Transaction` is a value: what changes is another one. The functions here only compute it; who may ask for it, and
when, is the business of the modules of the requests.

Who ends a transaction by version 2 (KIP-890) has its epoch bumped with that, so that nothing that is still on its way
for the transaction can land in the next one. An epoch is an int16. Producers never see the highest: it is left for
fencing whoever has the one below. When that one ends a transaction, it gets a new producer id with epoch 0.
"""

from __future__ import annotations

import enum
from typing import Final, NamedTuple

from ..protocol.records import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

EPOCH_MAX: Final = 0x7FFF
LAST_EPOCH: Final = EPOCH_MAX - 1
"""The highest that a producer gets."""

EPOCH_BUMPS: Final = 2
"""From this `transaction.version` on the epoch is bumped with every transaction."""

NO_TIMEOUT_MS: Final = 0x7FFF_FFFF
"""Of two-phase commit (KIP-939): somebody else decides how it ends."""

NOT_STARTED: Final = -1

Partition = tuple[str, int]


class TransactionStatus(enum.IntEnum):
    """By the numbers of the log."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5

    @property
    def state_name(self) -> str:
        """As Kafka's tools print it."""
        return _NAMES[self]


_NAMES: Final = {status: status.name.title().replace("_", "") for status in TransactionStatus}

PREPARED: Final = frozenset({TransactionStatus.PREPARE_COMMIT, TransactionStatus.PREPARE_ABORT})
COMPLETE: Final = frozenset({TransactionStatus.COMPLETE_COMMIT, TransactionStatus.COMPLETE_ABORT})


class Transaction(NamedTuple):
    """One transactional id. A tuple, because each transaction makes several, and tuples are made quickest."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    status: TransactionStatus = TransactionStatus.EMPTY
    partitions: frozenset[Partition] = frozenset()
    started_ms: int = NOT_STARTED
    """When the first partition was added."""
    updated_ms: int = NOT_STARTED
    previous_producer_id: int = NO_PRODUCER_ID
    """Before the last change; a retry of what gave out a new one comes with it."""
    next_producer_id: int = NO_PRODUCER_ID
    last_epoch: int = NO_PRODUCER_EPOCH
    """Before the last bump, if that was for the same producer. Records have no field for it."""
    client_version: int = 0
    """Whether its client knows epoch bumps: 2, else 0."""

    @property
    def is_exhausted(self) -> bool:
        """Whether there is no epoch left for this producer id."""
        return self.producer_epoch >= LAST_EPOCH

    # -- producers -----------------------------------------------------------------------------------------------------

    def with_epoch(self, epoch: int, last_epoch: int, timeout_ms: int, now_ms: int) -> Transaction:
        """A producer begins, or begins again, with this epoch."""
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
        """The epochs are used up: begin with another producer id."""
        begun = self.with_epoch(0, last_epoch, timeout_ms, now_ms)
        return begun._replace(producer_id=producer_id)

    # -- transactions --------------------------------------------------------------------------------------------------

    def adding(self, partitions: frozenset[Partition], client_version: int, now_ms: int) -> Transaction:
        """With these partitions too. The first ones begin the transaction."""
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
        """Committed or aborted, by a client that does not know of epoch bumps."""
        return self._replace(
            status=TransactionStatus.PREPARE_COMMIT if committed else TransactionStatus.PREPARE_ABORT,
            updated_ms=now_ms,
            previous_producer_id=self.producer_id,
            next_producer_id=NO_PRODUCER_ID,
            client_version=0,
        )

    def ending_with_bump(self, *, committed: bool, next_producer_id: int, now_ms: int) -> Transaction:
        """Committed or aborted, with the epoch bumped. ``next_producer_id`` is a new one if it `is_exhausted`.

        What has no partition may be aborted too: a client cannot know whether its writes had any effect.
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
        """Aborted without its producer, who must not write any more. `ending_with_bump` fences as well."""
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
        """The id and epoch that the producer goes on with, once this transaction is completed."""
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

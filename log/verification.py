"""Transaction verification (KIP-890): the first batch of a transaction requires the coordinator's confirmation.

A transactional batch is appended immediately if its transaction is already open in this log. Otherwise the server asks
the coordinator whether the transaction contains this partition, and the log keeps a `Verification` until the response.
The server passes the same object to `append` with the batch: it is valid for as long as the log keeps it.

The log drops it when the transaction begins here, or when a marker is appended: a confirmation from before the marker
does not apply to later batches. A later transaction gets another object, so an old response is not used for it.

The lowest sequence number of all pending batches is kept. That batch must come first: if it is retried, later batches
must not overtake it. The log may have no other state of the producer.
"""

from __future__ import annotations


class Verification:
    """The state of one pending transaction verification. It is compared by identity."""

    __slots__ = ("epoch", "epoch_per_transaction", "lowest_sequence", "started_ms")

    def __init__(self, epoch: int, first_sequence: int, *, epoch_per_transaction: bool, started_ms: int) -> None:
        self.epoch = epoch
        """The producer epoch."""
        self.lowest_sequence = first_sequence
        self.epoch_per_transaction = epoch_per_transaction
        """The client raises its epoch with each transaction (transaction.version 2)."""
        self.started_ms = started_ms

    def note(self, epoch: int, first_sequence: int) -> None:
        """Another batch waits for the same response."""
        if epoch > self.epoch:
            self.epoch = epoch
            self.lowest_sequence = first_sequence
        elif epoch == self.epoch:
            self.lowest_sequence = min(self.lowest_sequence, first_sequence)

    def __repr__(self) -> str:
        return f"Verification(epoch={self.epoch}, lowest_sequence={self.lowest_sequence})"


DISABLED = Verification(-1, -1, epoch_per_transaction=False, started_ms=0)
"""Always valid; used if `transaction.partition.verification.enable` is false."""

"""The first batch of a transaction waits for the transaction coordinator's word (KIP-890).

A transactional batch is appended where its transaction is open already. Where it is not, the coordinator is asked
whether the transaction has this partition, and until its answer has come the log keeps a `Verification`. Whoever asks
holds the same object, and shows it with the batch: it is good for as long as the log still has it.

The log lets go of it when the transaction has begun here, or when a marker comes: an answer that was given before the
marker says nothing about what comes after it. A producer that begins anew gets another object, so an old answer is not
taken for a new one.

Of all batches that wait, the lowest sequence number is remembered. It is the one that must come first: if it has to be
sent again, later ones may not overtake it. The log may know nothing else of the producer.
"""

from __future__ import annotations


class Verification:
    """What is remembered of a transaction that is being verified. It is compared by identity."""

    __slots__ = ("epoch", "epoch_per_transaction", "lowest_sequence", "started_ms")

    def __init__(self, epoch: int, first_sequence: int, *, epoch_per_transaction: bool, started_ms: int) -> None:
        self.epoch = epoch
        """The producer's."""
        self.lowest_sequence = first_sequence
        self.epoch_per_transaction = epoch_per_transaction
        """The client raises its epoch with each transaction (transaction.version 2)."""
        self.started_ms = started_ms

    def note(self, epoch: int, first_sequence: int) -> None:
        """Another batch waits for the same answer."""
        if epoch > self.epoch:
            self.epoch = epoch
            self.lowest_sequence = first_sequence
        elif epoch == self.epoch:
            self.lowest_sequence = min(self.lowest_sequence, first_sequence)

    def __repr__(self) -> str:
        return f"Verification(epoch={self.epoch}, lowest_sequence={self.lowest_sequence})"


SWITCHED_OFF = Verification(-1, -1, epoch_per_transaction=False, started_ms=0)
"""Shown by a broker that does not ask (`transaction.partition.verification.enable`): it is always good."""

"""Metadata transactions (KIP-868): records between two markers count all or not at all.

    BeginTransaction, records in any number of batches, EndTransaction | AbortTransaction

They are how more records than fit into one batch are written as one change; the records that make a new cluster are
wrapped in one. Nothing else is between the markers, because there is one writer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from .records import AbortTransactionRecord, BeginTransactionRecord, EndTransactionRecord, MetadataRecord


class TransactionFilter:
    """Lets through what counts, in order; holds back what is in a transaction until its end is seen."""

    def __init__(self) -> None:
        self._held: list[MetadataRecord] | None = None

    @property
    def is_open(self) -> bool:
        """Whether a transaction has begun and not ended: its writer died, so a new one has to abort it."""
        return self._held is not None

    def feed(self, records: Iterable[MetadataRecord]) -> Iterator[MetadataRecord]:
        """The records that count now."""
        for record in records:
            match record:
                case BeginTransactionRecord():
                    self._held = []
                case AbortTransactionRecord():
                    self._held = None
                case EndTransactionRecord():
                    held, self._held = self._held, None
                    yield from held or ()
                case _ if self._held is None:
                    yield record
                case _:
                    self._held.append(record)

"""Metadata transactions (KIP-868): the records between two markers take effect together or not at all.

    BeginTransaction, records in any number of batches, EndTransaction | AbortTransaction

Transactions write more records than fit into one batch as one change, for example the records of a new cluster. There
is only one writer, so that no other records are between the markers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from .records import AbortTransactionRecord, BeginTransactionRecord, EndTransactionRecord, MetadataRecord


class TransactionFilter:
    """Passes records on in order. Records in a transaction are kept until its end."""

    def __init__(self) -> None:
        self._held: list[MetadataRecord] | None = None

    @property
    def is_open(self) -> bool:
        """Whether a transaction has begun and not ended: its writer has crashed, and a new one must abort it."""
        return self._held is not None

    def feed(self, records: Iterable[MetadataRecord]) -> Iterator[MetadataRecord]:
        """The records that take effect now."""
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

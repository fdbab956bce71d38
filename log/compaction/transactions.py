"""The transactions in a compaction pass: which batches were aborted, and which markers are still needed.

Records of an aborted transaction are removed, so they must not supersede an older record of the same key. A marker is
needed as long as a batch of its transaction remains, even an empty one: without the marker, readers of committed
records would assign the batch to the producer's next transaction. So a marker can be removed if a pass has found no
batch between the producer's previous marker and this one.

Batches and markers are added in the order of their offsets. The `.txnindex` files list the aborted transactions,
including those of later segments: the marker may be in a segment that is not compacted yet.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from heapq import heappop, heappush

from ..files import FileSystem, join
from ..names import TRANSACTION_INDEX, offset_file_name
from ..transaction_index import AbortedTransaction, decode_entries


class AbortedTransactions:
    """The `.txnindex` files of a partition."""

    __slots__ = ("_base_offsets", "_directory", "_file_system")

    def __init__(self, file_system: FileSystem, directory: str, base_offsets: Sequence[int]) -> None:
        """`base_offsets` of the segments whose indexes are read, in order."""
        self._file_system = file_system
        self._directory = directory
        self._base_offsets = base_offsets

    def overlapping(self, offset: int, end_offset: int) -> Iterator[AbortedTransaction]:
        """The aborted transactions with offsets in [offset, end_offset)."""
        number = max(bisect_right(self._base_offsets, offset) - 1, 0)
        for base_offset in self._base_offsets[number:]:
            for entry in self._entries(base_offset):
                if entry.last_offset >= offset and entry.first_offset < end_offset:
                    yield entry
                if entry.last_stable_offset >= end_offset:
                    return

    def _entries(self, base_offset: int) -> list[AbortedTransaction]:
        try:
            data = self._file_system.read_file(join(self._directory, offset_file_name(base_offset, TRANSACTION_INDEX)))
        except FileNotFoundError:  # most segments have no aborted transactions
            return []
        return decode_entries(data)


class _Aborted:
    """An aborted transaction whose marker has not been reached."""

    __slots__ = ("has_batches", "transaction")

    def __init__(self, transaction: AbortedTransaction) -> None:
        self.transaction = transaction
        self.has_batches = False


class Transactions:
    """The open transactions at the current offset of a pass."""

    __slots__ = ("_aborted", "_coming", "_committed", "still_needed")

    def __init__(self) -> None:
        self._coming: list[tuple[int, AbortedTransaction]] = []  # a heap by first offset
        self._aborted: dict[int, _Aborted] = {}
        self._committed: set[int] = set()
        self.still_needed: list[AbortedTransaction] = []
        """The aborted transactions whose markers were reached and must be kept: entries of the new `.txnindex`."""

    def expect(self, aborted: Iterator[AbortedTransaction]) -> None:
        """Add transactions that were aborted at the current offset or later. Duplicates are permitted."""
        for transaction in aborted:
            heappush(self._coming, (transaction.first_offset, transaction))

    def _begin_up_to(self, offset: int) -> None:
        coming = self._coming
        while coming and coming[0][0] <= offset:
            transaction = heappop(coming)[1]
            self._aborted.setdefault(transaction.producer_id, _Aborted(transaction))

    def is_aborted(self, producer_id: int, last_offset: int) -> bool:
        """Whether this batch of a transaction was aborted."""
        if self._coming:
            self._begin_up_to(last_offset)
        aborted = self._aborted.get(producer_id) if self._aborted else None
        if aborted is None:
            self._committed.add(producer_id)
            return False
        aborted.has_batches = True
        return True

    def may_discard_marker(self, producer_id: int, last_offset: int, commit: bool | None) -> bool:
        """Whether no batch of the transaction that this marker ends remains. `commit` is None for an emptied marker."""
        self._begin_up_to(last_offset)
        if commit is None:
            return True
        if commit:
            if producer_id in self._committed:
                self._committed.remove(producer_id)
                return False
            return True
        aborted = self._aborted.pop(producer_id, None)
        if aborted is None or not aborted.has_batches:
            return True
        self.still_needed.append(aborted.transaction)
        return False

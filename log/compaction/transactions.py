"""What compaction must know of transactions: which batches were aborted, and which markers are still needed.

Records of an aborted transaction go; so they must not hide an older record of the same key either. A marker is needed
as long as a batch of its transaction is left, if only an empty one: without it readers of committed records would take
the batch for one of the producer's next transaction. So a marker can be discarded when a pass has met no batch between
the producer's previous marker and this one.

Batches and markers are told in the order of their offsets. Which transactions were aborted is read from the `.txnindex`
files, of later segments too: the marker may lie in one that is not compacted yet.
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
        """`base_offsets` of the segments whose indexes are looked at, in order."""
        self._file_system = file_system
        self._directory = directory
        self._base_offsets = base_offsets

    def overlapping(self, offset: int, end_offset: int) -> Iterator[AbortedTransaction]:
        """The aborted transactions that have offsets in [offset, end_offset)."""
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
        except FileNotFoundError:  # most segments have none
            return []
        return decode_entries(data)


class _Aborted:
    """An aborted transaction whose marker has not come yet."""

    __slots__ = ("has_batches", "transaction")

    def __init__(self, transaction: AbortedTransaction) -> None:
        self.transaction = transaction
        self.has_batches = False


class Transactions:
    """What is open at the offset that a pass has come to."""

    __slots__ = ("_aborted", "_coming", "_committed", "still_needed")

    def __init__(self) -> None:
        self._coming: list[tuple[int, AbortedTransaction]] = []  # a heap by first offset
        self._aborted: dict[int, _Aborted] = {}
        self._committed: set[int] = set()
        self.still_needed: list[AbortedTransaction] = []
        """The aborted transactions whose markers were met and must stay: entries of the new `.txnindex`."""

    def expect(self, aborted: Iterator[AbortedTransaction]) -> None:
        """Transactions that were aborted somewhere from here on; one may be told twice."""
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
        """Whether nothing is left of the transaction that this marker ends. `commit` None: the marker was emptied."""
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

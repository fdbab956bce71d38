"""The aborted transactions of a segment, for read_committed consumers (KIP-98).

    .txnindex   (version int16 0 | producer_id int64 | first_offset int64 | last_offset int64
                 | last_stable_offset int64)*

There is one entry for each abort marker in the segment: the first offset of the transaction, the offset of the marker
(`last_offset`), and the last stable offset after it, from which a reader knows when later entries are irrelevant. The
last two grow from entry to entry. The first entry creates the file.

Most segments have no entries, and are not checked again once that is known. The latest entries of the active segment
are kept in memory, so that consumers at the end of the log cause no reads; for consumers that are further behind, the
first entry is found by bisection in the file.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from struct import Struct

from ..protocol.named_tuples import NamedTuple
from .descriptors import ColdRead, DescriptorCache, FileRange, OpenFile

_ENTRY = Struct(">hqqqq")
_LAST_OFFSET = Struct(">18x q 8x")  # of an entry
_VERSION = 0
_RECENT = 256
_BLOCK_ENTRIES = 512  # 17 kB: reading and searching them costs less than two more reads of an entry
_READ_ENTRIES = 64


class AbortedTransaction(NamedTuple):
    """A transaction that was aborted, by the offsets of its first record and of its marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


_last_offset = attrgetter("last_offset")


def encode_entries(entries: Iterable[AbortedTransaction]) -> bytes:
    """The content of a file with these entries."""
    return b"".join(_ENTRY.pack(_VERSION, *entry) for entry in entries)


def decode_entries(data: bytes) -> list[AbortedTransaction]:
    """The entries of a file with this content."""
    whole = len(data) - len(data) % _ENTRY.size
    return [AbortedTransaction(*fields) for _version, *fields in _ENTRY.iter_unpack(memoryview(data)[:whole])]


class TransactionIndex:
    """The `.txnindex` of one segment. An incomplete entry at the end of the file is ignored."""

    __slots__ = ("_count", "_files", "_recent", "open_file", "path")

    def __init__(self, files: DescriptorCache, path: str, *, new: bool) -> None:
        """`new`: there is no file until an entry is written."""
        self._files = files
        self.path = path
        self.open_file: OpenFile | None = None
        self._count = 0 if new else -1  # -1: unknown
        self._recent: list[AbortedTransaction] = []  # the latest entries, if any were appended recently

    def is_missing(self) -> None:
        """There is no file: after listing a directory, this saves a system call for each segment."""
        self._count = 0

    @property
    def count(self) -> int:
        """The number of entries."""
        if self._count < 0:
            try:
                self._count = self._files.file_system.size(self.path) // _ENTRY.size
            except FileNotFoundError:
                self._count = 0
        return self._count

    @property
    def stored_bytes(self) -> int:
        """The size of the file, except for an incomplete entry at its end."""
        return self.count * _ENTRY.size

    def opened(self) -> OpenFile:
        """The open file, for copying it; it must exist."""
        return self._open()

    def append(self, aborted: AbortedTransaction) -> None:
        count = self.count
        data = _ENTRY.pack(_VERSION, *aborted)
        self._open(create=True).file.write_at((data,), count * _ENTRY.size, len(data))
        self._count = count + 1
        self._recent.append(aborted)
        if len(self._recent) > _RECENT:
            del self._recent[: _RECENT // 2]

    def rebuild(self, entries: Sequence[AbortedTransaction]) -> bool:
        """Replace all entries. Returns whether the file has changed; then the directory must be synced."""
        data = encode_entries(entries)
        file_system = self._files.file_system
        try:
            known = file_system.read_file(self.path)
        except FileNotFoundError:
            known = b""
        if data == known:
            return False
        self._files.forget(self)
        if data:
            file_system.replace_file(self.path, data, sync=True)
        else:
            file_system.unlink(self.path)
        self._count = len(entries)
        self.forget_recent()
        return True

    def forget_recent(self) -> None:
        """The segment receives no more appends: read the file from now on."""
        self._recent = []

    def truncate_to(self, offset: int) -> None:
        """Remove the entries of markers at `offset` and later ones."""
        count = self.count
        if not count:
            return
        kept = self._number_of(offset, wait=True)
        if kept < count:
            self._open().file.truncate(kept * _ENTRY.size)
            self._count = kept
        self.forget_recent()

    def entries(self) -> list[AbortedTransaction]:
        """All entries, in order."""
        return list(self._read(0, wait=True)) if self.count else []

    def collect(
        self, fetch_offset: int, upper_bound: int, *, wait: bool = True
    ) -> tuple[list[AbortedTransaction], bool]:
        """The entries for a reader of [fetch_offset, upper_bound), and whether later segments cannot add any.

        Without `wait` it raises `ColdRead` instead of waiting for the device.
        """
        found: list[AbortedTransaction] = []
        for entry in self._from(fetch_offset, wait):
            if entry.first_offset < upper_bound:
                found.append(entry)
            if entry.last_stable_offset >= upper_bound:
                return found, True
        return found, False

    def sync(self) -> None:
        """Make the entries durable."""
        if self.count:
            self._open().file.sync()

    def _from(self, offset: int, wait: bool) -> Iterator[AbortedTransaction]:
        """The entries of markers at `offset` and later ones."""
        recent = self._recent
        if recent and (offset >= recent[0].last_offset or len(recent) == self.count):
            return iter(recent[bisect_left(recent, offset, key=_last_offset) :])
        return self._read(self._number_of(offset, wait), wait)

    def _number_of(self, offset: int, wait: bool) -> int:
        """The index of the first entry in the file whose marker is at `offset` or later; the count if there is none."""
        low, high = 0, self.count
        # Bisect by single reads down to one block, then read that block.
        while high - low > _BLOCK_ENTRIES:
            middle = (low + high) // 2
            if _LAST_OFFSET.unpack_from(self._bytes(middle, 1, wait))[0] < offset:
                low = middle + 1
            else:
                high = middle
        if low == high:
            return low
        block = self._bytes(low, high - low, wait)
        return low + bisect_left(
            range(high - low), offset, key=lambda number: _LAST_OFFSET.unpack_from(block, number * _ENTRY.size)[0]
        )

    def _read(self, number: int, wait: bool) -> Iterator[AbortedTransaction]:
        """The entries of the file from this one on."""
        count = self.count
        while number < count:
            length = min(_READ_ENTRIES, count - number)
            for _version, *fields in _ENTRY.iter_unpack(self._bytes(number, length, wait)):
                yield AbortedTransaction(*fields)
            number += length

    def _bytes(self, number: int, count: int, wait: bool) -> bytes | bytearray:
        """The bytes of `count` entries of the file, which must exist."""
        open_file = self._open()
        position, length = number * _ENTRY.size, count * _ENTRY.size
        if wait:
            return open_file.file.read_at(position, length)
        data = bytearray(length)
        if open_file.file.read_cached(position, data) < length:
            raise ColdRead(FileRange(open_file, 0, self.count * _ENTRY.size))
        return data

    def _open(self, *, create: bool = False) -> OpenFile:
        open_file = self.open_file
        return open_file if open_file is not None else self._files.open(self, create=create)

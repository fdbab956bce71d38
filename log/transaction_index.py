"""The aborted transactions of a segment, for consumers that read only what was committed (KIP-98).

    .txnindex   (version int16 0 | producer_id int64 | first_offset int64 | last_offset int64
                 | last_stable_offset int64)*

One entry for each abort marker in the segment: where the transaction began, where the marker lies, and the last stable
offset after it, which tells a reader when no later entry can matter to it. Entries are few; the file is made by the
first and read whole.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from .files import FileSystem

_ENTRY = Struct(">hqqqq")
_VERSION = 0


class AbortedTransaction(NamedTuple):
    """A transaction that was aborted, by the offsets of its first record and of its marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionIndex:
    """The `.txnindex` of one segment."""

    __slots__ = ("_file_system", "path")

    def __init__(self, file_system: FileSystem, path: str) -> None:
        self._file_system = file_system
        self.path = path

    def append(self, aborted: AbortedTransaction) -> None:
        data = _ENTRY.pack(_VERSION, *aborted)
        file = self._file_system.open(self.path, create=True)
        try:
            file.write_at((data,), file.size() // _ENTRY.size * _ENTRY.size, len(data))
        finally:
            file.close()

    def entries(self) -> list[AbortedTransaction]:
        """All of them in order; what a crash left incomplete at the end is left out."""
        try:
            data = self._file_system.read_file(self.path)
        except FileNotFoundError:
            return []
        whole = len(data) // _ENTRY.size * _ENTRY.size
        return [AbortedTransaction(*fields) for _version, *fields in _ENTRY.iter_unpack(data[:whole])]

    def truncate_to(self, offset: int) -> None:
        """Drop the entries of markers at `offset` and beyond."""
        entries = self.entries()
        kept = sum(entry.last_offset < offset for entry in entries)
        if kept < len(entries):
            file = self._file_system.open(self.path)
            try:
                file.truncate(kept * _ENTRY.size)
            finally:
                file.close()

    def collect(self, fetch_offset: int, upper_bound: int) -> tuple[list[AbortedTransaction], bool]:
        """Those that a reader of [fetch_offset, upper_bound) must know, and whether later segments cannot add any."""
        found = []
        for entry in self.entries():
            if entry.last_offset >= fetch_offset and entry.first_offset < upper_bound:
                found.append(entry)
            if entry.last_stable_offset >= upper_bound:
                return found, True
        return found, False

    def sync(self) -> None:
        if self._file_system.exists(self.path):
            file = self._file_system.open(self.path)
            try:
                file.sync()
            finally:
                file.close()

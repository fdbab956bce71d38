"""The two sparse indexes of a segment.

    .index      (relative offset int32, position int32)*       by offset: the position in the .log file to scan from
    .timeindex  (timestamp int64, relative offset int32)*      by time: the offset to scan from

Relative offsets count from the segment's base offset. An entry of the offset index contains the last offset of a batch
and the position of that batch. An entry of the time index means that no batch before this offset has a larger
timestamp, and that the batch that ends with this offset has exactly this timestamp. Both fields grow monotonically. An
entry is added for about every `index.interval.bytes` of log (KIP-33 for time).

The file of the active segment is behind: new entries are buffered in memory and written some hundred at a time, and
when the segment is sealed, flushed or closed. No entries are lost: after an unclean shutdown everything after the
recovery point is indexed again from the log, and the recovery point moves only after the entries are durable. Apache
Kafka maps a preallocated file instead; the files are the same once sealed, and both servers accept both.
"""

from __future__ import annotations

from bisect import bisect_left
from struct import Struct

from .descriptors import ColdRead, DescriptorCache, FileRange, OpenFile
from .files import FileSystem

_BUFFERED_BYTES = 4096
_BLOCK_ENTRIES = 2048  # 16 kB: reading and searching them costs less than two more reads of an entry


class SparseIndex:
    """The base of both: sorted entries of a fixed size, the older ones in a file, the newer ones in a buffer."""

    __slots__ = ("_buffer", "_files", "_last", "_stored", "base_offset", "max_entries", "open_file", "path")

    ENTRY: Struct

    def __init__(self, files: DescriptorCache, path: str, base_offset: int, max_bytes: int, *, new: bool) -> None:
        """`new`: there is no file until entries are written."""
        self._files = files
        self.path = path
        self.base_offset = base_offset
        self.max_entries = max_bytes // self.ENTRY.size
        self.open_file: OpenFile | None = None
        self._stored = 0 if new else -1  # entries in the file, -1: unknown
        self._buffer = bytearray()
        self._last: tuple[int, int] | None = None  # the last entry, where it has been read or written

    @property
    def entries(self) -> int:
        return self._stored_entries() + len(self._buffer) // self.ENTRY.size

    def entry(self, number: int, *, wait: bool = True) -> tuple[int, int]:
        """The raw fields of entry `number`, which must exist. `wait`: see `lower_bound`."""
        stored = self._stored_entries()
        size = self.ENTRY.size
        if number >= stored:
            first, second = self.ENTRY.unpack_from(self._buffer, (number - stored) * size)
        else:
            first, second = self.ENTRY.unpack(self._read(number, 1, wait))
        return first, second

    def last(self) -> tuple[int, int] | None:
        if self._last is None and (entries := self.entries):
            self._last = self.entry(entries - 1)
        return self._last

    def lower_bound(self, target: int, *, wait: bool = True) -> tuple[int, int] | None:
        """The last entry whose first field is at most `target`; None if there is none.

        Without `wait` it raises `ColdRead` instead of waiting for the device.
        """
        buffer = self._buffer
        unpack_from = self.ENTRY.unpack_from
        if buffer and unpack_from(buffer)[0] <= target:
            return self._bisect(buffer, target)
        high = self._stored_entries()
        low = 0
        # Bisect by single reads down to one block, then read that block.
        while high - low > _BLOCK_ENTRIES:
            middle = (low + high) // 2
            if self.entry(middle, wait=wait)[0] <= target:
                low = middle
            else:
                high = middle
        if low == high:
            return None
        return self._bisect(self._read(low, high - low, wait), target)

    def _read(self, number: int, count: int, wait: bool) -> bytes | bytearray:
        """The raw bytes of entries in the file."""
        size = self.ENTRY.size
        open_file = self._open()
        if wait:
            return open_file.file.read_at(number * size, count * size)
        data = bytearray(count * size)
        if open_file.file.read_cached(number * size, data) < len(data):
            # The whole index, 2 MB for a segment of 1 GB: otherwise the search would read one cold page after another.
            raise ColdRead(FileRange(open_file, 0, self._stored * size))
        return data

    def truncate_entries(self, count: int) -> None:
        """Keep the first `count` entries."""
        stored = self._stored_entries()
        size = self.ENTRY.size
        self._last = None
        if count < stored:
            self._open().file.truncate(count * size)
            self._stored = count
            self._buffer.clear()
        else:
            del self._buffer[(count - stored) * size :]

    def persist(self) -> None:
        """Write the buffered entries to the file. After an `OSError` they are still buffered."""
        if self._buffer:
            position = self._stored_entries() * self.ENTRY.size
            self._open(create=True).file.write_at((self._buffer,), position, len(self._buffer))
            self._stored += len(self._buffer) // self.ENTRY.size
            self._buffer.clear()

    def touch(self) -> None:
        """Create the file, even if it is empty: Apache Kafka treats a segment without it as damaged."""
        self.persist()
        if not self._stored_entries():
            self._open(create=True)

    def reset(self) -> None:
        """Remove all entries, and any other bytes."""
        if self.open_file is not None or self._file_system.exists(self.path):
            self._open().file.truncate(0)
        self._stored = 0
        self._buffer.clear()
        self._last = None

    def opened(self) -> OpenFile:
        """The open file, for syncing or copying it."""
        return self._open(create=True)

    @property
    def stored_bytes(self) -> int:
        """The size of the file; the entries after it are in memory."""
        return self._stored_entries() * self.ENTRY.size

    def room(self) -> int:
        """The number of entries that may still be added."""
        return self.max_entries - self.entries

    def _append(self, first: int, second: int) -> None:
        self._buffer += self.ENTRY.pack(first, second)
        self._last = first, second

    def _bisect(self, data: bytes | bytearray, target: int) -> tuple[int, int] | None:
        unpack_from, size = self.ENTRY.unpack_from, self.ENTRY.size
        low, high = 0, len(data) // size
        while low < high:
            middle = (low + high) // 2
            if unpack_from(data, middle * size)[0] <= target:
                low = middle + 1
            else:
                high = middle
        if not low:
            return None
        first, second = unpack_from(data, (low - 1) * size)
        return first, second

    def _stored_entries(self) -> int:
        if self._stored < 0:
            try:
                self._stored = self._file_system.size(self.path) // self.ENTRY.size
            except FileNotFoundError:
                self._stored = 0
        return self._stored

    @property
    def _file_system(self) -> FileSystem:
        return self._files.file_system

    def _open(self, *, create: bool = False) -> OpenFile:
        open_file = self.open_file
        return open_file if open_file is not None else self._files.open(self, create=create)


class OffsetIndex(SparseIndex):
    """Finds positions by offset."""

    __slots__ = ()

    ENTRY = Struct(">ii")

    def append(self, last_offset: int, position: int) -> bool:
        """Add the position of the batch that ends with `last_offset`. Returns whether `persist` is due."""
        self._append(last_offset - self.base_offset, position)
        return len(self._buffer) >= _BUFFERED_BYTES

    def position(self, offset: int, *, wait: bool = True) -> int:
        """The position to scan from for the batch with `offset`: the start of some batch at or before it.

        `wait`: see `lower_bound`.
        """
        found = self.lower_bound(offset - self.base_offset, wait=wait)
        return found[1] if found is not None else 0

    def upper_bound(self, position: int, *, wait: bool = True) -> int | None:
        """The last offset of the first indexed batch that begins at `position` or after it; None if there is none.

        `wait`: see `lower_bound`.
        """
        low, high = 0, self._stored_entries()
        while high - low > _BLOCK_ENTRIES:
            middle = (low + high) // 2
            if self.entry(middle, wait=wait)[1] < position:
                low = middle + 1
            else:
                high = middle + 1  # this may be it
        for data in (self._read(low, high - low, wait) if low < high else b"", self._buffer):
            number = self._first_at(data, position)
            if number * self.ENTRY.size < len(data):
                return self.base_offset + int(self.ENTRY.unpack_from(data, number * self.ENTRY.size)[0])
        return None

    def _first_at(self, data: bytes | bytearray, position: int) -> int:
        unpack_from, size = self.ENTRY.unpack_from, self.ENTRY.size
        return bisect_left(range(len(data) // size), position, key=lambda number: unpack_from(data, number * size)[1])

    def last_offset(self) -> int:
        """The largest offset indexed, or the base offset."""
        last = self.last()
        return self.base_offset + last[0] if last is not None else self.base_offset

    def truncate_to(self, offset: int) -> None:
        """Remove the entries for `offset` and later ones."""
        relative = offset - self.base_offset
        low, high = 0, self.entries
        while low < high:
            middle = (low + high) // 2
            if self.entry(middle)[0] < relative:
                low = middle + 1
            else:
                high = middle
        self.truncate_entries(low)


class TimeIndex(SparseIndex):
    """Finds offsets by timestamp."""

    __slots__ = ()

    ENTRY = Struct(">qi")

    def maybe_append(self, timestamp: int, last_offset: int) -> None:
        """Add the largest timestamp so far and the last offset of its batch, unless it is already the last entry."""
        last = self.last()
        if timestamp > (last[0] if last is not None else -1):
            self._append(timestamp, last_offset - self.base_offset)

    def offset(self, timestamp: int) -> int:
        """The offset to scan from for `timestamp`: no batch that ends before it has a larger timestamp."""
        found = self.lower_bound(timestamp)
        return self.base_offset + found[1] if found is not None else self.base_offset

    def last_entry(self) -> tuple[int, int]:
        """The largest timestamp indexed and its absolute offset; (-1, base offset) without entries."""
        last = self.last()
        return (last[0], self.base_offset + last[1]) if last is not None else (-1, self.base_offset)

    def truncate_to(self, offset: int) -> None:
        """Remove the entries for `offset` and later ones."""
        relative = offset - self.base_offset
        count = self.entries
        while count and self.entry(count - 1)[1] >= relative:
            count -= 1
        self.truncate_entries(count)

    def room(self) -> int:
        # The last slot is reserved for the entry that sealing adds.
        return super().room() - 1

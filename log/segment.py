"""One segment: a `.log` file of batches and its indexes.

The active segment receives appends. A sealed segment is only read until it is deleted, compacted or truncated. The
first append creates the files, so the directory of an unused partition contains no segment files.

Besides its size, the active segment keeps in memory: the position and last offset of its latest batches, so that a
consumer at the end of the log is served without reading the index or the file; the largest timestamp and the last
offset of its batch, for the time index; the number of bytes since the last index entry.

All methods are called from one thread. `OSError` propagates to the log, which handles it.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence

from ..protocol.records import (
    BATCH_OVERHEAD,
    HEADER,
    BatchHeader,
    CorruptBatchError,
    RecordBatch,
    read_batch_header,
)
from .descriptors import ColdRead, DescriptorCache, FileRange, OpenFile
from .files import Buffer, join
from .index import OffsetIndex, TimeIndex
from .names import DELETED, LOG, OFFSET_INDEX, TIME_INDEX, TRANSACTION_INDEX, offset_file_name
from .transaction_index import TransactionIndex

NO_LIMIT = 1 << 63
MAX_RELATIVE_OFFSET = 0x7FFF_FFFF

MAX_GROUP = 256
"""The largest number of batches in one write: each has two buffers, and a system call accepts 1,024."""

_RECENT_BATCHES = 512
_SCAN_BYTES = 8192
_COPY_BYTES = 1 << 20


class Segment:
    """See the module docstring. `size` is the valid length of the `.log` file; bytes beyond it are not acknowledged."""

    __slots__ = (
        "_files",
        "_max_timestamp",
        "_offset_of_max_timestamp",
        "_recent_last_offsets",
        "_recent_positions",
        "_recent_start",
        "base_offset",
        "bytes_since_index_entry",
        "created_ms",
        "directory",
        "first_timestamp",
        "full",
        "nearly_full",
        "offset_index",
        "on_disk",
        "open_file",
        "path",
        "roll_after_ms",
        "roll_after_timestamp",
        "size",
        "time_index",
        "transaction_index",
    )

    def __init__(
        self,
        files: DescriptorCache,
        directory: str,
        base_offset: int,
        *,
        size: int,
        max_index_bytes: int,
        created_ms: int,
        new: bool,
    ) -> None:
        """`new`: the segment has no files yet. Otherwise `size` is the size of its `.log` file."""
        self._files = files
        self.directory = directory
        self.base_offset = base_offset
        self.path = join(directory, offset_file_name(base_offset, LOG))
        self.open_file: OpenFile | None = None
        self.on_disk = not new
        self.size = size
        self.created_ms = created_ms
        self.offset_index = OffsetIndex(
            files, join(directory, offset_file_name(base_offset, OFFSET_INDEX)), base_offset, max_index_bytes, new=new
        )
        self.time_index = TimeIndex(
            files, join(directory, offset_file_name(base_offset, TIME_INDEX)), base_offset, max_index_bytes, new=new
        )
        self.transaction_index = TransactionIndex(
            files, join(directory, offset_file_name(base_offset, TRANSACTION_INDEX)), new=new
        )
        self.bytes_since_index_entry = 0
        self.full = False
        """An index has no room for another entry (`segment.index.bytes`)."""
        self.nearly_full = False
        """An index may not have room for the entries of a whole group of batches."""
        # None: not read from the time index yet.
        self._max_timestamp: int | None = -1 if new else None
        self._offset_of_max_timestamp = base_offset
        self.first_timestamp = -1
        """The largest timestamp of the first batch, from which the age of the segment is counted; -1 if there is none.
        """
        self.roll_after_timestamp = NO_LIMIT
        """A batch with a larger timestamp begins a new segment."""
        self.roll_after_ms = NO_LIMIT
        """After this time the next batch begins a new segment: for batches without timestamps."""
        self._recent_start = NO_LIMIT  # the first offset in the two arrays
        self._recent_last_offsets = array("q")
        self._recent_positions = array("q")

    # Appending

    def limits(self, now_ms: int, segment_bytes: int) -> tuple[int, int, int]:
        """How many more bytes the segment may take, up to which timestamp and up to which offset.

        This is the only place that decides when a segment rolls: by its size (`segment.bytes`), by its age according
        to timestamps or to the clock (`segment.ms`), when an index is full (`segment.index.bytes`), and before offsets
        that are too far from its base offset for the indexes. Only the offset limits an empty segment.
        """
        last_offset = self.base_offset + MAX_RELATIVE_OFFSET
        if not self.size:
            return NO_LIMIT, NO_LIMIT, last_offset
        if self.full or now_ms > self.roll_after_ms:
            return 0, self.roll_after_timestamp, last_offset
        return segment_bytes - self.size, self.roll_after_timestamp, last_offset

    def must_roll(self, size: int, max_timestamp: int, last_offset: int, now_ms: int, segment_bytes: int) -> bool:
        """Whether `size` bytes of batches, up to `last_offset` and `max_timestamp`, must go to a new segment."""
        room, latest_timestamp, largest_offset = self.limits(now_ms, segment_bytes)
        return size > room or max_timestamp > latest_timestamp or last_offset > largest_offset

    def write(self, buffers: Sequence[Buffer], length: int) -> None:
        """Write at the end, in one system call. After an `OSError` only bytes beyond `size` have changed."""
        open_file = self.open_file
        if open_file is None:
            open_file = self._files.open(self) if self.on_disk else self._make_files()
        open_file.used = True
        open_file.file.write_at(buffers, self.size, length)

    def write_ahead(self, piece: Buffer, distance: int) -> None:
        """Write `distance` bytes beyond the end. The piece becomes valid when `write` has written what is before it."""
        open_file = self._files.open(self) if self.on_disk else self._make_files()
        open_file.used = True
        open_file.file.write_at((piece,), self.size + distance, len(piece))

    def _make_files(self) -> OpenFile:
        """Create the `.log` and empty indexes: Apache Kafka recovers segments in order only if all have indexes."""
        for index in (self.offset_index, self.time_index):
            index.touch()
            self._files.forget(index)
        open_file = self._files.open(self, create=True)
        self.on_disk = True
        return open_file

    def make_files(self) -> bool:
        """Create the files of a segment without batches; otherwise the first append creates them. Returns whether
        there were none."""
        if self.on_disk:
            return False
        self._make_files()
        return True

    def prepare_to_note(self) -> None:
        """Read what `note_batch` needs, so that it cannot fail after the write. Usually everything is in memory."""
        if self._max_timestamp is None:
            self.max_timestamp  # noqa: B018 - reads it
            self.offset_index.last()
        self.time_index.last()

    def note_batch(
        self, base_offset: int, last_offset: int, max_timestamp: int, size: int, index_interval_bytes: int
    ) -> bool:
        """Update the state after a batch was written at the end. Returns whether the indexes should be persisted."""
        position = self.size
        self.size = position + size
        known = self._max_timestamp
        if known is None:
            known = self.max_timestamp
        if max_timestamp > known:
            self._max_timestamp = max_timestamp
            self._offset_of_max_timestamp = last_offset
        recent = self._recent_last_offsets
        if not recent:
            self._recent_start = base_offset
        recent.append(last_offset)
        self._recent_positions.append(position)
        if len(recent) > _RECENT_BATCHES:
            self._forget_older_batches()
        due = False
        if self.bytes_since_index_entry > index_interval_bytes:
            due = self.offset_index.append(last_offset, position)
            self.time_index.maybe_append(self.max_timestamp, self._offset_of_max_timestamp)
            room = min(self.offset_index.room(), self.time_index.room())
            self.full = room <= 0
            self.nearly_full = room <= MAX_GROUP
            self.bytes_since_index_entry = 0
        self.bytes_since_index_entry += size
        return due

    def _forget_older_batches(self) -> None:
        half = _RECENT_BATCHES // 2
        self._recent_start = self._recent_last_offsets[half - 1] + 1
        del self._recent_last_offsets[:half]
        del self._recent_positions[:half]

    def persist_indexes(self) -> None:
        """Write the buffered entries of the indexes."""
        self.offset_index.persist()
        self.time_index.persist()

    def reset_indexes(self) -> None:
        """Clear the indexes, to rebuild them from the log."""
        self.offset_index.reset()
        self.time_index.reset()
        self.full = self.nearly_full = False
        self._max_timestamp, self._offset_of_max_timestamp = -1, self.base_offset
        self.forget_recent_batches()

    def seal(self) -> None:
        """Complete the indexes on disk, because the segment receives no more batches, or the log is closed.

        The last entry of the time index must be the segment's largest timestamp: retention reads it.
        """
        if not self.on_disk:
            return
        self.time_index.maybe_append(self.max_timestamp, self._offset_of_max_timestamp)
        self.offset_index.touch()
        self.time_index.touch()

    # Reading

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp of all batches, in ms; -1 if there is none."""
        if self._max_timestamp is None:
            self._max_timestamp, self._offset_of_max_timestamp = self.time_index.last_entry()
        return self._max_timestamp

    @property
    def offset_of_max_timestamp(self) -> int:
        """The last offset of the batch that has `max_timestamp`."""
        self.max_timestamp  # noqa: B018 - reads both
        return self._offset_of_max_timestamp

    @property
    def knows_max_timestamp(self) -> bool:
        """Whether `max_timestamp` can be returned without reading the time index."""
        return self._max_timestamp is not None

    def largest_timestamp(self) -> int:
        """The timestamp for retention and search by time: `max_timestamp`, or the modification time of the file."""
        timestamp = self.max_timestamp
        if timestamp >= 0 or not self.on_disk:
            return timestamp
        return self._files.file_system.modified_ms(self.path)

    def locate(self, offset: int, *, wait: bool = True) -> tuple[int, int] | None:
        """Position and size of the batch with `offset`, or of the next one; None if the segment has none.

        Without `wait` it raises `ColdRead` instead of waiting for the device.
        """
        recent = self._recent_last_offsets
        if offset >= self._recent_start:
            index = bisect_left(recent, offset)
            if index < len(recent):
                positions = self._recent_positions
                position = positions[index]
                end = positions[index + 1] if index + 1 < len(positions) else self.size
                return position, end - position
            return None
        for header, position in self.scan(self.offset_index.position(offset, wait=wait), wait=wait):
            if header.last_offset >= offset:
                return position, header.size
        return None

    def upper_bound(self, position: int, *, wait: bool = True) -> int | None:
        """An offset larger than those of the batches before `position`, and close to them; None: the segment's end.

        `wait`: see `locate`.
        """
        if position >= self.size:
            return None
        positions = self._recent_positions
        if positions and position > positions[0]:
            index = bisect_left(positions, position)
            return self._recent_last_offsets[index - 1] + 1 if index < len(positions) else None
        return self.offset_index.upper_bound(position, wait=wait)

    def find_first_timestamp(self) -> None:
        """Read `first_timestamp`, if there is a first batch."""
        self.first_timestamp = -1
        for header, _position in self.scan(0):
            self.first_timestamp = header.max_timestamp
            return

    def range(self, position: int, length: int) -> FileRange:
        """A reference to these bytes of the file."""
        open_file = self.open_file
        if open_file is None:
            open_file = self._files.open(self)
        open_file.used = True
        return FileRange(open_file, position, length)

    def opened(self) -> OpenFile:
        """The open `.log` file, for copying it; it must exist."""
        return self._files.open(self)

    def scan(self, position: int, end: int | None = None, *, wait: bool = True) -> Iterator[tuple[BatchHeader, int]]:
        """Headers of the batches from `position` to `end`, each with its position. Only the headers are checked.

        Raises `CorruptBatchError` at an incomplete batch. Without `wait` it raises `ColdRead` instead of waiting for
        the device.
        """
        end = self.size if end is None else min(end, self.size)
        if position >= end:
            return
        # While the caller processes the headers, the cache may evict the file: the range keeps it open.
        with self.range(0, end) as file:
            chunk: bytes | bytearray = b""
            start = position
            while position < end:
                if position + BATCH_OVERHEAD > start + len(chunk):
                    chunk, start = file.read(position, _SCAN_BYTES) if wait else _read_cached(file, position), position
                header = read_batch_header(chunk, position - start)
                if position + header.size > end:
                    raise CorruptBatchError(f"the batch at position {position} extends past the end of the segment")
                yield header, position
                position += header.size

    def read_batch(self, position: int, size: int) -> RecordBatch:
        """The complete batch at `position`."""
        with self.range(position, size) as file:
            data = file.read()
        if len(data) < size:
            raise CorruptBatchError(f"the batch at position {position} extends past the end of the file")
        batch = RecordBatch(*HEADER.unpack_from(data))
        batch.data = memoryview(data)
        return batch

    def next_offset(self) -> int:
        """The offset after the last batch, found by scanning from the last index entry.

        Raises `CorruptBatchError` if the index does not match the log: otherwise offsets could be assigned twice.
        """
        entry = self.offset_index.last()
        if entry is None:
            position, indexed = 0, None
        else:
            position, indexed = entry[1], self.base_offset + entry[0]
            if position >= self.size:
                raise CorruptBatchError(f"{self.offset_index.path} extends past the end of the segment")
        offset = self.base_offset
        for header, _position in self.scan(position):
            if indexed is not None and header.last_offset != indexed:
                raise CorruptBatchError(f"{self.offset_index.path} does not match the segment")
            indexed = None
            offset = header.next_offset
        return offset

    # Truncating and removing

    def truncate_to(self, offset: int) -> None:
        """Remove the batch with `offset` and everything after it."""
        located = self.locate(offset)
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self.transaction_index.truncate_to(offset)
        if located is not None:
            self.cut(located[0])
        self.forget_recent_batches()
        self._find_max_timestamp()
        if not self.size:
            self.first_timestamp = -1
            self.roll_after_timestamp = self.roll_after_ms = NO_LIMIT

    def cut(self, size: int) -> None:
        """Truncate the `.log` file to `size` bytes. Existing ranges keep their bytes."""
        if not self.on_disk:
            return
        open_file = self._files.open(self)
        if open_file.references > 1 and size < self.size:
            self._replace_by_prefix(open_file, size)
        else:
            open_file.file.truncate(size)
        self.size = size

    def _replace_by_prefix(self, open_file: OpenFile, size: int) -> None:
        """Continue with a copy of the first `size` bytes, because a response is still sending the old file."""
        from .names import CLEANED  # after a crash before the rename, Moldau and Apache Kafka remove such a file

        file_system = self._files.file_system
        copy_path = self.path + CLEANED
        copy = file_system.open(copy_path, create=True)
        try:
            copy.truncate(0)
            position = 0
            while position < size:
                data = open_file.file.read_at(position, min(_COPY_BYTES, size - position))
                copy.write_at((data,), position, len(data))
                position += len(data)
        finally:
            copy.close()
        file_system.rename(copy_path, self.path)
        self._files.forget(self)

    def discard_tail(self) -> None:
        """Truncate what a failed write left beyond `size`."""
        if self.on_disk:
            self._files.open(self).file.truncate(self.size)

    def forget_recent_batches(self) -> None:
        """Find batches by the index from now on: the segment receives no more appends, or was truncated."""
        self._recent_last_offsets = array("q")
        self._recent_positions = array("q")
        self._recent_start = NO_LIMIT
        self.bytes_since_index_entry = 0
        self.transaction_index.forget_recent()

    def _find_max_timestamp(self) -> None:
        """After a truncation: from the last entry of the time index and the batches after it."""
        timestamp, offset = self.time_index.last_entry()
        for header, _position in self.scan(self.offset_index.position(offset)):
            if header.max_timestamp > timestamp:
                timestamp, offset = header.max_timestamp, header.last_offset
        self._max_timestamp, self._offset_of_max_timestamp = timestamp, offset

    def forget_files(self) -> None:
        """Close the descriptors; ranges keep theirs."""
        self._files.forget(self)
        self._files.forget(self.offset_index)
        self._files.forget(self.time_index)
        self._files.forget(self.transaction_index)

    def mark_deleted(self) -> list[str]:
        """Rename the segment's files, so that they are no longer part of the log; returns the paths to unlink."""
        self.forget_files()
        paths = []
        for path in (self.path, self.offset_index.path, self.time_index.path, self.transaction_index.path):
            try:
                self._files.file_system.rename(path, path + DELETED)
            except FileNotFoundError:
                continue
            paths.append(path + DELETED)
        return paths

    def moved_to(self, directory: str) -> None:
        """The partition's directory was renamed."""
        self.directory = directory
        self.forget_files()
        self.path = join(directory, offset_file_name(self.base_offset, LOG))
        self.offset_index.path = join(directory, offset_file_name(self.base_offset, OFFSET_INDEX))
        self.time_index.path = join(directory, offset_file_name(self.base_offset, TIME_INDEX))
        self.transaction_index.path = join(directory, offset_file_name(self.base_offset, TRANSACTION_INDEX))


def _read_cached(file: FileRange, position: int) -> bytearray:
    """Up to `_SCAN_BYTES` from `position` on, and at least one header unless the range ends before."""
    rest = file.length - position
    chunk = bytearray(min(_SCAN_BYTES, rest))
    read = file.read_cached(chunk, position)
    if read < min(BATCH_OVERHEAD, rest):
        raise ColdRead(file.part(position, _SCAN_BYTES))
    del chunk[read:]
    return chunk

"""The new segment of a group of segments, under the suffix `.cleaned`.

Its indexes are built as an append builds them (`segment.py`), and completed as by sealing: they are the same as in a
log with just these batches.

Nothing is written while all batches of the first old segment are unchanged: most of a log is clean, and an unchanged
segment keeps its file. The first change copies the batches before it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from ...protocol.paged_bytes import WINDOW_BYTES, PagedBytes
from ...protocol.records import BATCH_OVERHEAD
from ..files import File, FileSystem, join
from ..index import OffsetIndex, TimeIndex
from ..names import CLEANED, LOG, OFFSET_INDEX, SEGMENT_SUFFIXES, TIME_INDEX, TRANSACTION_INDEX, offset_file_name
from ..transaction_index import AbortedTransaction, encode_entries
from .rebuilding import Rebuilding

_BUFFER_BYTES = 1 << 20


class CleanedSegment:
    """See the module docstring. `OSError` propagates; `discard` then removes the files."""

    __slots__ = (
        "_buffer",
        "_bytes_since_index_entry",
        "_directory",
        "_file",
        "_file_system",
        "_index_interval_bytes",
        "_max_timestamp",
        "_offset_index",
        "_offset_of_max_timestamp",
        "_on_write",
        "_source_path",
        "_time_index",
        "_time_indexed",
        "_written",
        "base_offset",
        "size",
    )

    def __init__(
        self,
        file_system: FileSystem,
        directory: str,
        base_offset: int,
        *,
        index_interval_bytes: int,
        on_write: Callable[[int], None],
    ) -> None:
        """The segment begins as a copy of the `.log` with this base offset. `on_write` is called with bytes written."""
        self._file_system = file_system
        self._directory = directory
        self.base_offset = base_offset
        self._index_interval_bytes = index_interval_bytes
        self._on_write = on_write
        self._source_path = join(directory, offset_file_name(base_offset, LOG))
        self._file: File | None = None
        self._written = 0
        self._buffer = bytearray()  # the data after that
        self.size = 0
        """The total size of all batches so far, in bytes."""
        self._offset_index = bytearray()
        self._time_index = bytearray()
        self._bytes_since_index_entry = 0
        self._max_timestamp, self._offset_of_max_timestamp, self._time_indexed = -1, base_offset, -1

    @property
    def changed(self) -> bool:
        """Whether the segment differs from the first old segment, as far as batches were added."""
        return self._file is not None

    def keep(self, batch: bytes | memoryview | PagedBytes, last_offset: int, max_timestamp: int) -> None:
        """Add the next batch of the old segment, unchanged."""
        self._note(len(batch), last_offset, max_timestamp)
        if self._file is None:
            return
        if isinstance(batch, PagedBytes):
            for start in range(0, len(batch), WINDOW_BYTES):
                self._add(batch[start : start + WINDOW_BYTES])
        else:
            self._add(batch)

    def add(self, batch: bytes, last_offset: int, max_timestamp: int) -> None:
        """Add a rewritten batch."""
        self.diverge()
        self._note(len(batch), last_offset, max_timestamp)
        self._add(batch)

    def add_in_pieces(self, batch: Rebuilding, last_offset: int) -> None:
        """Add a large rewritten batch. Raises `InvalidRecordsError`."""
        self.diverge()
        self._write_buffer()
        start = self._written
        self._written += BATCH_OVERHEAD
        for piece in batch.pieces():
            self._write(piece)
        end = self._written
        self._written = start
        self._write(batch.header())
        self._written = end
        self._note(end - start, last_offset, batch.max_timestamp)

    def diverge(self) -> None:
        """From here on the content differs from the first old segment."""
        if self._file is None:
            file = self._file = self._file_system.open(self._path(LOG), create=True)
            file.truncate(0)
            self._copy_beginning(file)

    def _copy_beginning(self, file: File) -> None:
        source = self._file_system.open(self._source_path)
        try:
            for position in range(0, self.size, _BUFFER_BYTES):
                data = source.read_at(position, min(_BUFFER_BYTES, self.size - position))
                file.write_at((data,), position, len(data))
                self._on_write(len(data))
        finally:
            source.close()
        self._written = self.size

    def _note(self, length: int, last_offset: int, max_timestamp: int) -> None:
        position = self.size
        self.size = position + length
        if max_timestamp > self._max_timestamp:
            self._max_timestamp, self._offset_of_max_timestamp = max_timestamp, last_offset
        if self._bytes_since_index_entry > self._index_interval_bytes:
            self._offset_index += OffsetIndex.ENTRY.pack(last_offset - self.base_offset, position)
            self._note_time()
            self._bytes_since_index_entry = 0
        self._bytes_since_index_entry += length

    def _note_time(self) -> None:
        if self._max_timestamp > self._time_indexed:
            self._time_indexed = self._max_timestamp
            relative_offset = self._offset_of_max_timestamp - self.base_offset
            self._time_index += TimeIndex.ENTRY.pack(self._max_timestamp, relative_offset)

    def _add(self, data: bytes | memoryview) -> None:
        self._buffer += data
        if len(self._buffer) >= _BUFFER_BYTES:
            self._write_buffer()

    def _write_buffer(self) -> None:
        if self._buffer:
            self._write(self._buffer)
            self._buffer = bytearray()

    def _write(self, data: bytes | bytearray) -> None:
        assert self._file is not None
        self._file.write_at((data,), self._written, len(data))
        self._written += len(data)
        self._on_write(len(data))

    def finish(self, aborted: list[AbortedTransaction], modified_ms: int) -> None:
        """Make all files complete and durable, except for their names.

        `aborted`: the entries of the `.txnindex`. `modified_ms`: when the latest of the old segments was changed, which
        determines the retention of records without timestamps.
        """
        self.diverge()
        assert self._file is not None
        self._write_buffer()
        self._file.sync()
        self._file.close()
        self._file = None
        self._file_system.set_modified_ms(self._path(LOG), modified_ms)
        self._note_time()
        self._write_file(OFFSET_INDEX, bytes(self._offset_index))
        self._write_file(TIME_INDEX, bytes(self._time_index))
        if aborted:
            self._write_file(TRANSACTION_INDEX, encode_entries(aborted))

    def _write_file(self, suffix: str, data: bytes) -> None:
        file = self._file_system.open(self._path(suffix), create=True)
        try:
            file.truncate(0)
            file.write_at((data,), 0, len(data))
            file.sync()
        finally:
            file.close()

    def discard(self) -> None:
        """Remove the files. If one cannot be removed, the next startup removes it."""
        if self._file is not None:
            self._file.close()
            self._file = None
        for suffix in SEGMENT_SUFFIXES:
            with contextlib.suppress(OSError):
                self._file_system.unlink(self._path(suffix))

    def _path(self, suffix: str) -> str:
        return join(self._directory, offset_file_name(self.base_offset, suffix) + CLEANED)

"""The batches of a sealed `.log`, in order. Each batch is validated before it is returned.

The file is read in pieces, and a batch is a range of its piece: nothing is copied. A batch above `LARGE_BYTES` is
returned as `PagedBytes`, which read it again. So memory is bounded. The header is a plain tuple of the 13 fields
(`protocol/records.py` shows them), because a pass reads millions of headers.

The validation covers lengths, the magic, the CRC, and that offsets increase and stay below the next segment's. Leader
epoch and base offset are not covered by the CRC; the order of the offsets usually reveals a corrupt base offset.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ...protocol.checksum import crc32c
from ...protocol.paged_bytes import PagedBytes
from ...protocol.records import ATTRIBUTES_POSITION, BATCH_OVERHEAD, HEADER, LOG_OVERHEAD, MAGIC
from ..files import File, FileSystem, join
from ..names import LOG, offset_file_name
from .job import CorruptSegmentError, SegmentFiles

Batch = tuple[bytes | PagedBytes, int, int, tuple[int, ...]]
"""A buffer, the begin and end of the batch in it, and the header. `PagedBytes` are valid until the next batch."""

LARGE_BYTES = 2 << 20
"""Batches above this size, stored or decompressed, are processed in parts."""

BASE_OFFSET = 0
BATCH_LENGTH = 1
LEADER_EPOCH = 2
BATCH_MAGIC = 3
CRC = 4
ATTRIBUTES = 5
LAST_OFFSET_DELTA = 6
BASE_TIMESTAMP = 7
MAX_TIMESTAMP = 8
PRODUCER_ID = 9
PRODUCER_EPOCH = 10
BASE_SEQUENCE = 11
RECORD_COUNT = 12

_PIECE_BYTES = 1 << 20


class SegmentReader:
    """Reads one segment."""

    __slots__ = ("_file_system", "_on_read", "_piece_position", "_segment", "path")

    def __init__(
        self, file_system: FileSystem, directory: str, segment: SegmentFiles, on_read: Callable[[int], None]
    ) -> None:
        """`on_read` is called with the number of bytes of each piece that was read."""
        self._file_system = file_system
        self._segment = segment
        self._on_read = on_read
        self._piece_position = 0
        self.path = join(directory, offset_file_name(segment.base_offset, LOG))

    def batches(self) -> Iterator[Batch]:
        """All batches. Raises `CorruptSegmentError` at the first invalid one."""
        file = self._file_system.open(self.path)
        try:
            size, end_offset = self._segment.size, self._segment.end_offset
            position, needed = 0, BATCH_OVERHEAD
            next_offset = self._segment.base_offset
            unpack_from = HEADER.unpack_from
            while position < size:
                self._piece_position = position
                requested = min(max(needed, _PIECE_BYTES), size - position)
                data = file.read_at(position, requested)
                self._on_read(len(data))
                if len(data) < requested:
                    raise self._corrupt(0, next_offset, "the file is shorter than it was")
                view = memoryview(data)
                start, needed = 0, BATCH_OVERHEAD
                while requested - start >= BATCH_OVERHEAD:
                    fields = unpack_from(data, start)
                    length = fields[BATCH_LENGTH] + LOG_OVERHEAD
                    if fields[BATCH_MAGIC] != MAGIC or length < BATCH_OVERHEAD or fields[RECORD_COUNT] < 0:
                        raise self._corrupt(start, next_offset, "no batch starts here")
                    end = start + length
                    if end > requested:
                        needed = length
                        break
                    if crc32c(view[start + ATTRIBUTES_POSITION : end]) != fields[CRC]:
                        raise self._corrupt(start, next_offset, "the CRC does not match")
                    base_offset = fields[BASE_OFFSET]
                    last_offset = base_offset + fields[LAST_OFFSET_DELTA]
                    if not next_offset <= base_offset <= last_offset < end_offset:
                        raise self._misplaced(start, next_offset, base_offset, last_offset)
                    yield data, start, end, fields
                    next_offset = last_offset + 1
                    start = end
                position += start
                if position + needed > size > position:
                    raise self._corrupt(start, next_offset, "a batch extends past the end of the segment")
                if needed > LARGE_BYTES:
                    self._piece_position = position
                    self._check_large(file, needed, fields, next_offset)
                    yield self._paged(file, needed), 0, needed, fields
                    next_offset = fields[BASE_OFFSET] + fields[LAST_OFFSET_DELTA] + 1
                    position += needed
                    needed = BATCH_OVERHEAD
        finally:
            file.close()

    def _check_large(self, file: File, length: int, fields: tuple[int, ...], next_offset: int) -> None:
        """The same checks, for a batch of which only the header was read, at the piece's position."""
        crc = 0
        for start in range(ATTRIBUTES_POSITION, length, _PIECE_BYTES):
            requested = min(_PIECE_BYTES, length - start)
            data = file.read_at(self._piece_position + start, requested)
            self._on_read(len(data))
            if len(data) < requested:
                raise self._corrupt(0, next_offset, "the file is shorter than it was")
            crc = crc32c(data, crc)
        if crc != fields[CRC]:
            raise self._corrupt(0, next_offset, "the CRC does not match")
        base_offset = fields[BASE_OFFSET]
        last_offset = base_offset + fields[LAST_OFFSET_DELTA]
        if not next_offset <= base_offset <= last_offset < self._segment.end_offset:
            raise self._misplaced(0, next_offset, base_offset, last_offset)

    def _paged(self, file: File, length: int) -> PagedBytes:
        position = self._piece_position

        def read(begin: int, end: int) -> bytes:
            data = file.read_at(position + begin, end - begin)
            if len(data) < end - begin:
                raise self._corrupt(0, 0, "the file is shorter than it was")
            return data

        return PagedBytes(read, 0, length)

    def _misplaced(self, start: int, next_offset: int, base_offset: int, last_offset: int) -> CorruptSegmentError:
        return self._corrupt(start, next_offset, f"offsets {base_offset} to {last_offset} do not fit in here")

    def corrupt(self, batch: Batch, problem: str) -> CorruptSegmentError:
        """The error for the batch that was returned last."""
        return self._corrupt(batch[1], batch[3][BASE_OFFSET], problem)

    def _corrupt(self, start: int, offset: int, problem: str) -> CorruptSegmentError:
        return CorruptSegmentError(self.path, self._piece_position + start, offset, problem)

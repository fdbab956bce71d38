"""Reading a `.log` file batch by batch, across damage, in bounded memory.

Bytes that are not a batch, or a batch with a wrong CRC, are one `Damage` up to the next valid batch. That is the batch
after the length in the broken header, if there is one, otherwise the first position with a plausible header and a
correct CRC.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from ..protocol.checksum import crc32c
from ..protocol.records import (
    ATTRIBUTES_POSITION,
    BATCH_OVERHEAD,
    HEADER,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_POSITION,
    BatchHeader,
    InvalidRecordsError,
    RecordBatch,
    read_batch_header,
)
from .files import File
from .segment import MAX_RELATIVE_OFFSET

PIECE_BYTES = 1 << 22
"""The bytes of one read. Larger batches are checked in pieces, and their `data` is only the header."""

_MAGIC = bytes((MAGIC,))

Progress = Callable[[int], None]
"""Called with the number of further bytes that were checked."""


class Damage(NamedTuple):
    """Bytes that are not a valid batch."""

    position: int
    end: int
    reason: str
    is_tail: bool
    """No valid batch follows in the file."""
    is_empty: bool
    """All bytes are zeros: preallocated, or lost in a power failure."""


def inspect_batches(
    file: File, size: int, base_offset: int, progress: Progress
) -> Iterator[tuple[int, RecordBatch] | Damage]:
    """The valid batches of the file with their positions, and the damage between them."""
    position = 0
    piece, start = memoryview(b""), 0
    reported = 0
    while position < size:
        have = start + len(piece) - position
        if have < min(BATCH_OVERHEAD, size - position):
            piece, start = memoryview(file.read_at(position, min(PIECE_BYTES, size - position))), position
            progress(start - reported)
            reported = start
            have = len(piece)
            if not have:
                return  # the file was truncated in the meantime
        problem = None
        try:
            if size - position < BATCH_OVERHEAD:
                read_batch_header(piece[position - start :], 0)
            length = LOG_OVERHEAD + int.from_bytes(piece[position - start + 8 : position - start + 12], "big")
            if have < length <= PIECE_BYTES and position + length <= size:
                piece, start = memoryview(file.read_at(position, min(PIECE_BYTES, size - position))), position
                progress(start - reported)
                reported = start
                if len(piece) < length:
                    return
            at = position - start
            batch = RecordBatch(*HEADER.unpack_from(piece, at))
            if batch.magic != MAGIC or batch.batch_length < BATCH_OVERHEAD - LOG_OVERHEAD:
                read_batch_header(piece, at)
            length = batch.size
            if position + length > size:
                problem = f"the batch is truncated: {size - position} of {length} bytes are there"
            elif length <= PIECE_BYTES:
                batch.data = piece[at : at + length]
                if crc32c(batch.data[ATTRIBUTES_POSITION:]) != batch.crc:
                    problem = "the CRC of the batch does not match"
            else:
                batch.data = piece[at : at + BATCH_OVERHEAD]
                if _crc_of(file, position + ATTRIBUTES_POSITION, position + length) != batch.crc:
                    problem = "the CRC of the batch does not match"
            if problem is None and batch.last_offset_delta < 0:
                problem = f"the batch's last offset delta is {batch.last_offset_delta}"
        except InvalidRecordsError as error:
            problem = str(error)
        if problem is None:
            yield position, batch
            position += length
            continue
        found = _next_batch(file, position, size, base_offset)
        end = size if found is None else found
        yield Damage(position, end, problem, found is None, found is None and _is_zeros(file, position, size))
        position = end
    progress(size - reported)


def _crc_of(file: File, position: int, end: int) -> int:
    crc = 0
    while position < end:
        data = file.read_at(position, min(PIECE_BYTES, end - position))
        if not data:
            break
        crc = crc32c(data, crc)
        position += len(data)
    return crc


def _is_zeros(file: File, position: int, end: int) -> bool:
    while position < end:
        data = file.read_at(position, min(PIECE_BYTES, end - position))
        if not data or data.count(0) != len(data):
            return False
        position += len(data)
    return True


def _next_batch(file: File, position: int, size: int, base_offset: int) -> int | None:
    """The position of the first valid batch after a broken one at `position`."""
    header = file.read_at(position, BATCH_OVERHEAD)
    if len(header) == BATCH_OVERHEAD:
        length = int.from_bytes(header[8:12], "big", signed=True)
        after = position + LOG_OVERHEAD + length
        if length > 0 and _is_batch(file, after, size, base_offset):
            return after
    at = position + 1
    while at + BATCH_OVERHEAD <= size:
        window = file.read_at(at, min(PIECE_BYTES, size - at))
        last = len(window) - BATCH_OVERHEAD
        found = window.find(_MAGIC, MAGIC_POSITION)
        while 0 <= found <= last + MAGIC_POSITION:
            start = found - MAGIC_POSITION
            if _may_be_header(BatchHeader(*HEADER.unpack_from(window, start)), size - at - start, base_offset) and (
                _is_batch(file, at + start, size, base_offset)
            ):
                return at + start
            found = window.find(_MAGIC, found + 1)
        if last < 0:
            return None
        at += last + 1
    return None


def _may_be_header(header: BatchHeader, rest: int, base_offset: int) -> bool:
    return (
        header.magic == MAGIC
        and BATCH_OVERHEAD <= header.size <= rest
        and header.last_offset_delta >= 0
        and 0 <= header.base_offset - base_offset <= MAX_RELATIVE_OFFSET
    )


def _is_batch(file: File, position: int, size: int, base_offset: int) -> bool:
    data = file.read_at(position, BATCH_OVERHEAD) if position + BATCH_OVERHEAD <= size else b""
    if len(data) < BATCH_OVERHEAD:
        return False
    header = BatchHeader(*HEADER.unpack(data))
    return (
        _may_be_header(header, size - position, base_offset)
        and _crc_of(file, position + ATTRIBUTES_POSITION, position + header.size) == header.crc
    )

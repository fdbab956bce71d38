"""The records of a batch, decompressed, in parts of bounded size.

175 kB of gzip can contain 15 million records of seven bytes, or one record of 100 MB. So a batch above `LARGE_BYTES`,
compressed or not, is decompressed piece by piece, and the pieces are cut between two records. Nearly every batch is
smaller: it is one part.

A record above `LONG_RECORD_BYTES` is not assembled. Its part has only the head of the record, up to the beginning of
the value's length: that is all that decides whether the record is kept. The rest of it is needed only for copying.

`InvalidRecordsError` for malformed records, when they are reached.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator

from ...protocol.compression import (
    STORED_MAX_SIZE,
    CompressionError,
    DecompressedTooLargeError,
    decompress,
    decompress_pieces,
)
from ...protocol.paged_bytes import PagedBytes
from ...protocol.records import BATCH_OVERHEAD, CODEC_MASK, InvalidRecordsError, extended, read_varint
from .reading import ATTRIBUTES, LARGE_BYTES, RECORD_COUNT, Batch

LONG_RECORD_BYTES = 256 * 1024

Part = tuple[bytes, int, int, int]
"""A buffer, the begin and end of the records in it, and their number. The end of a long record is beyond the buffer. If
the number is 0, the bytes continue the long record of the previous part."""

_MIN_RECORD_BYTES = 7  # the attributes, and six varints
_HEAD_BYTES = 32  # a record up to its key has at most 26 bytes


def parts_of(batch: Batch) -> Iterable[Part]:
    """The records of a batch: a tuple of one part, or `LargeRecords`."""
    data, start, end, fields = batch
    position, count, codec = start + BATCH_OVERHEAD, fields[RECORD_COUNT], fields[ATTRIBUTES] & CODEC_MASK
    if end - position > LARGE_BYTES or isinstance(data, PagedBytes):
        return LargeRecords(batch)
    if codec:
        try:
            data = bytes(decompress(codec, memoryview(data)[position:end], LARGE_BYTES))
        except DecompressedTooLargeError:
            return LargeRecords(batch)
        except CompressionError as error:
            raise InvalidRecordsError(str(error)) from None
        position, end = 0, len(data)
    if count > end - position:
        raise _not_filled(count)
    return ((data, position, end, count),)


class LargeRecords:
    """The records of a large batch. Each iteration decompresses them again."""

    __slots__ = ("_batch",)

    def __init__(self, batch: Batch) -> None:
        _data, start, end, fields = batch
        size = STORED_MAX_SIZE if fields[ATTRIBUTES] & CODEC_MASK else end - start - BATCH_OVERHEAD
        if fields[RECORD_COUNT] * _MIN_RECORD_BYTES > size:
            raise _not_filled(fields[RECORD_COUNT])
        self._batch = batch

    def __iter__(self) -> Iterator[Part]:
        """The parts without the continuations of long records."""
        return (part for part in self.with_continuations() if part[3])

    def with_continuations(self) -> Iterator[Part]:
        """All parts."""
        data, start, end, fields = self._batch
        begin = start + BATCH_OVERHEAD
        body = data.rest(begin) if isinstance(data, PagedBytes) else memoryview(data)[begin:end]
        try:
            pieces = decompress_pieces(fields[ATTRIBUTES] & CODEC_MASK, body, STORED_MAX_SIZE)
            yield from _cut(pieces, fields[RECORD_COUNT])
        except CompressionError as error:
            raise InvalidRecordsError(str(error)) from None


def _not_filled(count: int) -> InvalidRecordsError:
    return InvalidRecordsError(f"{count} records do not fill the batch")


def _cut(pieces: Iterator[bytes], count: int) -> Iterator[Part]:
    """Exactly `count` records."""
    data, position, left = b"", 0, count
    while True:
        number, end = _whole_records(data, position, left)
        if number:
            yield data, position, end, number
            left -= number
            position = end
        if not left:
            break
        if _begins_long(data, position):
            data, position = yield from _long_record(data[position:], pieces)
            left -= 1
        else:
            data, position = _longer(data[position:], len(data) - position + 1, pieces), 0
    if position != len(data) or next(pieces, None) is not None:
        raise _not_filled(count)


def _whole_records(data: bytes, position: int, limit: int) -> tuple[int, int]:
    """The number of whole records from `position` on, at most `limit`, and the end of the last one."""
    size, number, end = len(data), 0, position
    try:
        while number < limit:
            byte = data[position]
            if byte < 0x80:
                position += 1 + (byte >> 1)
            elif (second := data[position + 1]) < 0x80:
                position += 2 + ((byte & 0x7F | second << 7) >> 1)
            else:
                length, position = read_varint(data, position)
                if length < 0:
                    raise InvalidRecordsError(f"invalid record length {length}")
                position += length
            if position > size:
                break
            number += 1
            end = position
    except IndexError:
        pass  # the length is not complete
    return number, end


def _begins_long(data: bytes, position: int) -> bool:
    try:
        return read_varint(data, position)[0] > LONG_RECORD_BYTES
    except IndexError:
        return False


def _longer(data: bytes, needed: int, pieces: Iterator[bytes]) -> bytes:
    """`data` with at least `needed` bytes."""
    if needed <= len(data):
        return data
    longer = extended(data, 0, needed, pieces)
    if longer is None or len(longer) < needed:
        raise InvalidRecordsError("the records are truncated")
    return bytes(longer)


def _long_record(data: bytes, pieces: Iterator[bytes]) -> Generator[Part, None, tuple[bytes, int]]:
    """The record at the beginning of `data`. Returns the buffer after it, and the position there."""
    data = _longer(data, _HEAD_BYTES, pieces)
    length, position = read_varint(data, 0)
    record_end = position + length
    _timestamp_delta, position = read_varint(data, position + 1, 10)
    _offset_delta, position = read_varint(data, position)
    key_length, position = read_varint(data, position)
    position += max(key_length, 0)
    if position >= record_end:
        raise InvalidRecordsError("a key extends past the end of its record")
    data = _longer(data, position + 1, pieces)
    yield data, 0, record_end, 1
    position = record_end
    while position > len(data):
        position -= len(data)
        data = _longer(b"", 1, pieces)
        yield data, 0, min(position, len(data)), 0
    return data, position

"""Searches a batch for a record by timestamp, reading little more than the timestamps.

Each record begins with its length, so the search goes from one record to the next without reading the bytes in between.
It does not detect malformed data there; `record_scan` validates skipped records when a batch is produced.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator

from .record_scan import BYTES_PER_ELEMENT, STEP_ELEMENTS
from .records import InvalidRecordsError, bytes_follow, read_varint, wrap_int64

_LOWEST = -(1 << 63)
_RECORDS_PER_STEP = 4 * STEP_ELEMENTS
# For fewer records the lookup table costs more than it saves.
_FEW_RECORDS = 64
_NONE_PASSED = bytes(256)
_MIN_LENGTH = 6  # of a record without key, value and headers
# By first byte of a record: the distance to the next record, if that byte is the whole length; otherwise 0.
_STRIDES = bytes(
    1 + (byte >> 1) if byte < 0x80 and not byte & 1 and byte >> 1 >= _MIN_LENGTH else 0 for byte in range(256)
)


def search(
    pieces: Iterator[bytes], count: int, base_timestamp: int, *, timestamp: int | None, first_delta: int = 0
) -> Generator[None, None, tuple[int, int] | None]:
    """(timestamp, offset delta) of the first record with at least this timestamp and at least this offset delta; with
    None, of the first record with the largest timestamp. In steps of about 2 ms.

    Raises:
        InvalidRecordsError: the bytes are not ``count`` records.
        CompressionError: they cannot be decompressed.
    """
    # Timestamps are compared in their encoded form, as deltas. Those from `lowest` to `highest` are skipped.
    lowest = _LOWEST - base_timestamp
    highest = (_LOWEST if timestamp is None else timestamp - 1) - base_timestamp
    largest = _LOWEST, 0
    passed = _passed(lowest, highest) if count > _FEW_RECORDS else _NONE_PASSED
    strides = _STRIDES
    data: bytes | bytearray = next(pieces, b"")
    position = number = fetched = 0
    step_end = min(_RECORDS_PER_STEP, count)
    while number < count:
        try:
            for number in range(number, step_end):  # noqa: B007, B020 - it continues where it was interrupted
                stride = strides[data[position]]
                if stride and passed[data[position + 2]]:
                    position += stride
                    continue
                length, start = read_varint(data, position)
                if length < _MIN_LENGTH:
                    raise InvalidRecordsError(f"invalid record length {length}")
                delta, end = read_varint(data, start + 1, 10)
                if not lowest <= delta <= highest:
                    offset_delta, _ = read_varint(data, end)
                    found = wrap_int64(base_timestamp + delta)
                    if timestamp is not None:
                        if found >= timestamp and offset_delta >= first_delta:
                            return found, offset_delta
                    elif found > largest[0]:
                        largest = found, offset_delta
                        before, highest = highest, found - base_timestamp
                        if before < _MAX_ONE_BYTE_ZIGZAG and highest >= _MIN_ONE_BYTE_ZIGZAG and count > _FEW_RECORDS:
                            passed = _passed(lowest, highest)
                position = start + length
            number = step_end
        except IndexError:
            # The record, or the part that is needed, continues in the next pieces.
            while True:
                position -= len(data)
                piece = next(pieces, None)
                if piece is None:
                    raise InvalidRecordsError("the records are truncated") from None
                data = data[position:] + piece if position < 0 else piece
                position = max(position, 0)
                fetched += len(piece) >> BYTES_PER_ELEMENT
                if fetched >= STEP_ELEMENTS:
                    fetched = 0
                    yield
                if position < len(data):
                    break
        else:
            step_end = min(number + _RECORDS_PER_STEP, count)
            if number < count:
                yield
    while position > len(data):
        position -= len(data)
        if (piece := next(pieces, None)) is None:
            raise InvalidRecordsError("the records are truncated")
        data = piece
        fetched += len(piece) >> BYTES_PER_ELEMENT
        if fetched >= STEP_ELEMENTS:
            fetched = 0
            yield
    if position != len(data) or next(pieces, None) is not None:
        raise bytes_follow(count)
    return largest if timestamp is None else None


# The values of a varint's first byte if it is the only one.
_MIN_ONE_BYTE_ZIGZAG, _MAX_ONE_BYTE_ZIGZAG = -64, 63


def _passed(lowest: int, highest: int) -> bytes:
    """For each first byte of a timestamp, whether the record can be skipped without decoding the timestamp."""
    return bytes(byte < 0x80 and lowest <= (byte >> 1) ^ -(byte & 1) <= highest for byte in range(256))

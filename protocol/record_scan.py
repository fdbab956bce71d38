"""A scan of all records of a batch that creates no object per record. It checks that each record is well-formed, and
finds the largest timestamp and the records that need attention.

For a broker, which needs this for batches from any client. 175 kB can contain 15 million records, so the scan is a
generator. It receives the records piece by piece as they are decompressed, and yields after each `STEP_ELEMENTS` (about
2 ms of work), so that its caller can run other tasks in between, or cancel the scan. The results are in its attributes.

It rejects the same records as `iter_records`. A record of many pieces is skipped without buffering it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from .record_cursor import Cursor
from .records import MAX_VARINT, InvalidRecordsError, bytes_follow, extended, read_varint, wrap_int64

STEP_ELEMENTS = 4000
"""The number of records and record headers between two yields."""
BYTES_PER_ELEMENT = 8
"""As a power of 2: the bytes of a record of many pieces that take as long as one record."""
LONG_RECORD_BYTES = 256 * 1024
"""Records of more bytes than this are not assembled from their pieces."""

_NULL = 1  # the length -1 as a zigzag varint
_LOWEST = -(1 << 63)


class RecordScan:
    """The scan of one batch. Timestamps are those of the records, for any timestamp type of the batch."""

    __slots__ = (
        "_base_timestamp",
        "_count",
        "_highest",
        "_key_required",
        "_lowest",
        "_on_odd",
        "_pieces",
        "delta_of_largest",
        "is_sequential",
        "largest",
    )

    def __init__(
        self,
        pieces: Iterator[bytes],
        count: int,
        base_timestamp: int,
        *,
        lowest: int,
        highest: int,
        key_required: bool = False,
        on_odd: Callable[[int, int, int, bool], bool],
    ) -> None:
        """``on_odd`` is called with (index, offset delta, timestamp, has a key) of each record whose timestamp is not
        from ``lowest`` to ``highest``, or that has no key if ``key_required``. If it returns true, the scan ends.
        """
        self._pieces = pieces
        self._count = count
        self._base_timestamp = base_timestamp
        self._lowest = lowest
        self._highest = highest
        self._key_required = key_required
        self._on_odd = on_odd
        self.largest = _LOWEST
        """The largest timestamp."""
        self.delta_of_largest = 0
        """The offset delta of the first record with the largest timestamp."""
        self.is_sequential = True
        """Whether the offset deltas are 0, 1, 2, ..."""

    def steps(self) -> Iterator[None]:
        """Scan the records.

        Raises:
            InvalidRecordsError: the bytes are not exactly `count` records.
            CompressionError: they cannot be decompressed.
        """
        # One loop, in which the one-byte case of every varint is inlined, because a call per record would cost more.
        pieces, count, base_timestamp = self._pieces, self._count, self._base_timestamp
        lowest, highest, key_required = self._lowest, self._highest, self._key_required
        largest = _LOWEST
        data: bytes | bytearray = next(pieces, b"")
        end = len(data)
        position = 0
        left = STEP_ELEMENTS  # until the next yield
        for index in range(count):
            while True:
                start = position
                needed = MAX_VARINT
                try:
                    byte = data[position]
                    position += 1
                    length = (byte >> 1) ^ -(byte & 1)
                    if byte >= 0x80:
                        length, position = read_varint(data, start)
                    record_end = position + length
                    if record_end <= end:
                        break
                    needed = record_end - start
                    if needed > LONG_RECORD_BYTES:
                        break
                except IndexError:
                    pass
                longer = extended(data, start, needed, pieces)
                if longer is None:
                    raise InvalidRecordsError("the records are truncated")
                data, position, end = longer, 0, len(longer)
            if length < 0:
                raise InvalidRecordsError(f"invalid record length {length}")
            if record_end > end:
                cursor = Cursor(pieces, data, position)
                walk = _LongRecord(cursor, length)
                for elements in walk.steps():
                    left -= elements
                    if left <= 0:
                        left = STEP_ELEMENTS
                        yield
                data, position, end = cursor.data, cursor.position, len(cursor.data)
                timestamp, offset_delta, has_key = (
                    base_timestamp + walk.timestamp_delta,
                    walk.offset_delta,
                    walk.has_key,
                )
                if offset_delta != index:
                    self.is_sequential = False
            else:
                try:
                    position += 1  # the record's attributes: unused so far
                    byte = data[position]
                    position += 1
                    timestamp = base_timestamp + ((byte >> 1) ^ -(byte & 1))
                    if byte >= 0x80:
                        timestamp, position = read_varint(data, position - 1, 10)
                        timestamp += base_timestamp
                    byte = data[position]
                    position += 1
                    offset_delta = (byte >> 1) ^ -(byte & 1)
                    if byte >= 0x80:
                        offset_delta, position = read_varint(data, position - 1)
                    if offset_delta != index:
                        self.is_sequential = False
                    key_length = data[position]
                    position += 1
                    if key_length >= 0x80:
                        length, position = read_varint(data, position - 1)
                        key_length = length << 1 if length >= 0 else _NULL
                    if not key_length & 1:
                        position += key_length >> 1
                        has_key = True
                    else:
                        has_key = False
                    byte = data[position]
                    position += 1
                    if byte >= 0x80:
                        length, position = read_varint(data, position - 1)
                        byte = length << 1 if length >= 0 else _NULL
                    if not byte & 1:
                        position += byte >> 1
                    byte = data[position]
                    position += 1
                    if byte:
                        headers, position = read_varint(data, position - 1)
                        # Each header takes at least two bytes, which limits their number.
                        if headers < 0 or headers * 2 > record_end - position:
                            raise InvalidRecordsError(f"a record declares {headers} headers")
                        for _ in range(headers):
                            byte = data[position]
                            position += 1
                            if byte >= 0x80:
                                length, position = read_varint(data, position - 1)
                                byte = length << 1 if length >= 0 else _NULL
                            if byte & 1:
                                raise InvalidRecordsError("a record header has no key")
                            position += byte >> 1
                            byte = data[position]
                            position += 1
                            if byte >= 0x80:
                                length, position = read_varint(data, position - 1)
                                byte = length << 1 if length >= 0 else _NULL
                            if not byte & 1:
                                position += byte >> 1
                            if position > record_end:
                                raise InvalidRecordsError("a record header extends past the end of its record")
                            left -= 1
                            if left <= 0:
                                left = STEP_ELEMENTS
                                yield
                except IndexError:
                    raise InvalidRecordsError("a record's length does not match its content") from None
                if position != record_end:
                    raise InvalidRecordsError("a record's length does not match its content")
            if not lowest <= timestamp <= highest or (key_required and not has_key):
                timestamp = wrap_int64(timestamp)
                if (not lowest <= timestamp <= highest or (key_required and not has_key)) and self._on_odd(
                    index, offset_delta, timestamp, has_key
                ):
                    return
            if timestamp > largest:
                self.largest = largest = timestamp
                self.delta_of_largest = offset_delta
            left -= 1
            if left <= 0:
                left = STEP_ELEMENTS
                yield
        if position != end or next(pieces, None) is not None:
            raise bytes_follow(count)


class _LongRecord:
    """A record whose pieces are not all in memory."""

    __slots__ = ("_cursor", "_end", "has_key", "offset_delta", "timestamp_delta")

    def __init__(self, cursor: Cursor, length: int) -> None:
        self._cursor = cursor
        self._end = cursor.offset + length
        self.timestamp_delta = 0
        self.offset_delta = 0
        self.has_key = False

    def steps(self) -> Iterator[int]:
        """Skip the record; yields the number of elements that each part counts for."""
        cursor = self._cursor
        yield from self._skip(1)  # attributes
        self.timestamp_delta = cursor.varint(10)
        self.offset_delta = cursor.varint()
        key_length = cursor.varint()
        self.has_key = key_length >= 0
        yield from self._skip(key_length)
        yield from self._skip(cursor.varint())
        headers = cursor.varint()
        # Each header takes at least two bytes, which limits their number.
        if headers < 0 or headers * 2 > self._end - cursor.offset:
            raise InvalidRecordsError(f"a record declares {headers} headers")
        for _ in range(headers):
            key_length = cursor.varint()
            if key_length < 0:
                raise InvalidRecordsError("a record header has no key")
            yield from self._skip(key_length)
            yield from self._skip(cursor.varint())
            yield 1
        if cursor.offset != self._end:
            raise InvalidRecordsError("a record's length does not match its content")

    def _skip(self, count: int) -> Iterator[int]:
        """Skip a field; a negative length means null."""
        if count > self._end - self._cursor.offset:
            raise InvalidRecordsError("a record's length does not match its content")
        for size in self._cursor.skip(max(count, 0)):
            yield size >> BYTES_PER_ELEMENT

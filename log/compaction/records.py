"""The records of a part of a batch (`parts`), parsed in place: only their keys and where they end.

`protocol/records.py` shows the format. A compaction pass needs only the key of each of millions of records, and whether
the value is null. So the loops here step from key to key and copy nothing else. The one- and two-byte cases of the
varints are inlined: nearly all varints are that short, and a call costs more than the rest.

Keys of 32 bytes and more are replaced by their SHA-256, so that the size of a stored key is bounded. Shorter keys are
never as long as a digest, so that they cannot be confused with one.

Malformed bytes raise `InvalidRecordsError`.
"""

from __future__ import annotations

from collections.abc import Collection
from hashlib import sha256
from typing import NamedTuple

from ...protocol.records import InvalidRecordsError, wrap_int64

MAX_KEY = 31
"""The largest key in bytes that is stored unchanged."""

_NULL = 1  # the length -1 as a zigzag varint


def note_keys(data: bytes, position: int, end: int, count: int, base_offset: int, latest: dict[bytes, int]) -> int:
    """Store the offset of each key in these records, times two, plus one if the value is null.

    Records are in the order of their offsets, so that a stored offset of the same key is older. There is at least one.
    Returns the offset delta of the last one.
    """
    # The zigzag encoding doubles the offset. In a batch of many records, the bytes after the first one are the same for
    # 64 records: they are decoded once.
    base = base_offset << 1
    tail, size = b"", 2
    try:
        for _ in range(count):
            byte = data[position]
            if byte < 0x80:
                record_end = position + 1 + (byte >> 1)
                position += 2  # plus one byte for the attributes
            elif (second := data[position + 1]) < 0x80:
                record_end = position + 2 + ((byte & 0x7F | second << 7) >> 1)
                position += 3
            else:
                length, position = _varint(data, position)
                record_end = position + length
                position += 1
            while data[position] >= 0x80:
                position += 1
            position += 1
            byte = data[position]
            if byte < 0x80:
                doubled = byte
                position += 1
            elif (second := data[position + 1]) < 0x80:
                doubled = byte & 0x7F | second << 7
                position += 2
            else:
                if data[position + 1 : position + size] != tail:
                    offset, end_of_offset = _varint(data, position)
                    tail, size = data[position + 1 : end_of_offset], end_of_offset - position
                    of_tail = (offset << 1 if offset >= 0 else (-offset << 1) - 1) - (byte & 0x7F)
                doubled = of_tail + (byte & 0x7F)
                position += size
            length = data[position]
            if length < 0x80:
                position += 1
            else:
                length, position = _varint(data, position)
                length = length << 1 if length >= 0 else _NULL
            if length != _NULL:
                key = data[position : (position := position + (length >> 1))]
                if position >= record_end:
                    raise InvalidRecordsError("a key extends past the end of its record")
                if length > 2 * MAX_KEY:
                    key = sha256(key).digest()
                latest[key] = base + doubled + (data[position] == _NULL)
            position = record_end
    except IndexError:
        raise InvalidRecordsError("the records are truncated") from None
    if position != end:
        raise InvalidRecordsError(f"{count} records do not fill the batch")
    return doubled >> 1


def flag_older(
    data: bytes, position: int, end: int, count: int, newer: Collection[bytes], *, keep_tombstones: bool
) -> tuple[bytearray, bool]:
    """Which of these records, all older than those in `newer`, are kept: a byte per record, 1 if it is kept.

    Also returns whether a tombstone is kept.
    """
    flags = bytearray(count)
    tombstones = False
    try:
        for number in range(count):
            byte = data[position]
            if byte < 0x80:
                record_end = position + 1 + (byte >> 1)
                position += 2
            elif (second := data[position + 1]) < 0x80:
                record_end = position + 2 + ((byte & 0x7F | second << 7) >> 1)
                position += 3
            else:
                length, position = _varint(data, position)
                record_end = position + length
                position += 1
            while data[position] >= 0x80:
                position += 1
            position += 1
            while data[position] >= 0x80:
                position += 1
            position += 1
            length = data[position]
            if length < 0x80:
                position += 1
            else:
                length, position = _varint(data, position)
                length = length << 1 if length >= 0 else _NULL
            if length != _NULL:
                key = data[position : (position := position + (length >> 1))]
                if position >= record_end:
                    raise InvalidRecordsError("a key extends past the end of its record")
                if (key if length <= 2 * MAX_KEY else sha256(key).digest()) not in newer:
                    if data[position] != _NULL:
                        flags[number] = 1
                    elif keep_tombstones:
                        flags[number] = 1
                        tombstones = True
            position = record_end
    except IndexError:
        raise InvalidRecordsError("the records are truncated") from None
    if position != end:
        raise InvalidRecordsError(f"{count} records do not fill the batch")
    return flags, tombstones


class RecordKey(NamedTuple):
    """The fields of a record that decide whether it is kept."""

    offset_delta: int
    key: bytes | None
    """A digest if the key is long."""
    null_value: bool


def record_keys(data: bytes, position: int, end: int, count: int) -> list[RecordKey]:
    """The keys of all these records, in order. For the few batches that the faster loops do not support."""
    found: list[RecordKey] = []
    try:
        for _ in range(count):
            length, position = _varint(data, position)
            record_end = position + length
            _timestamp_delta, position = _varint(data, position + 1, 10)
            offset_delta, position = _varint(data, position)
            length, position = _varint(data, position)
            key = None
            if length >= 0:
                key = data[position : position + length]
                position += length
                if length > MAX_KEY:
                    key = sha256(key).digest()
            if position >= record_end:
                raise InvalidRecordsError("a key extends past the end of its record")
            found.append(RecordKey(offset_delta, key, data[position] == _NULL))
            position = record_end
    except IndexError:
        raise InvalidRecordsError("the records are truncated") from None
    if position != end:
        raise InvalidRecordsError(f"{count} records do not fill the batch")
    return found


class Rewritten(NamedTuple):
    """Records of a batch, with timestamp deltas relative to another time."""

    data: bytes
    shift: int
    """How much later that time is, in ms."""
    max_timestamp_delta: int
    """The largest original timestamp delta."""


def rewrite(
    data: bytes, position: int, flags: bytearray, *, shift: int | None = None, timestamp_delta: int | None = None
) -> Rewritten:
    """Concatenate the records whose flag is set. There is at least one. The last one may extend beyond `data`.

    Their timestamp deltas become relative to a time that is `shift` ms later: by default that of the first record. With
    `timestamp_delta` all records get this delta. Unchanged records are copied in long pieces.
    """
    parts: list[bytes] = []
    small, small_end = _SMALL, len(_SMALL)
    begin = copied = position  # data[begin:copied] is copied next
    largest = -(1 << 63)
    try:
        for stays in flags:
            start = position
            byte = data[position]
            if byte < 0x80:
                position += 1
                record_end = position + (byte >> 1)
            elif (second := data[position + 1]) < 0x80:
                position += 2
                record_end = position + ((byte & 0x7F | second << 7) >> 1)
            else:
                length, position = _varint(data, position)
                record_end = position + length
            if stays:
                attributes = position
                position += 1
                byte = data[position]
                if byte < 0x80:
                    delta = (byte >> 1) ^ -(byte & 1)
                    timestamp_end = position + 1
                elif (second := data[position + 1]) < 0x80:
                    delta = (value := byte & 0x7F | second << 7) >> 1 ^ -(value & 1)
                    timestamp_end = position + 2
                else:
                    delta, timestamp_end = _varint(data, position, 10)
                if delta > largest:
                    largest = delta
                if shift is None:
                    shift = delta
                if start != copied:
                    if begin != copied:
                        parts.append(data[begin:copied])
                    begin = start
                new_delta = delta - shift if timestamp_delta is None else timestamp_delta
                if new_delta != delta:
                    encoded = small[new_delta] if 0 <= new_delta < small_end else encode_varint(wrap_int64(new_delta))
                    if len(encoded) == timestamp_end - position:
                        parts.append(data[begin:position])
                        parts.append(encoded)
                    else:
                        if begin != start:
                            parts.append(data[begin:start])
                        parts.append(encode_varint(1 + len(encoded) + record_end - timestamp_end))
                        parts.append(data[attributes:position])
                        parts.append(encoded)
                    begin = timestamp_end
                copied = record_end
            position = record_end
    except IndexError:
        raise InvalidRecordsError("the records are truncated") from None
    parts.append(data[begin:copied])
    assert shift is not None
    return Rewritten(b"".join(parts), shift, largest)


def encode_varint(value: int) -> bytes:
    """The value as a zigzag varint, or varlong."""
    value = value << 1 if value >= 0 else (-value << 1) - 1
    output = bytearray()
    while value >= 0x80:
        output.append(value & 0x7F | 0x80)
        value >>= 7
    output.append(value)
    return bytes(output)


_SMALL = tuple(encode_varint(value) for value in range(1024))


def _varint(data: bytes, position: int, max_bytes: int = 5) -> tuple[int, int]:
    """The zigzag varint at `position`, of at most 5 bytes (10 for a varlong), and the position after it."""
    byte = data[position]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position + 1
    value = shift = 0
    for _ in range(max_bytes):
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            value &= 0xFFFF_FFFF_FFFF_FFFF if max_bytes == 10 else 0xFFFF_FFFF  # wraps like the integers of Java
            return (value >> 1) ^ -(value & 1), position
        shift += 7
    raise InvalidRecordsError(f"a varint is longer than {max_bytes} bytes")

"""Record batches, format v2: the records of Produce and Fetch, and the content of a `.log` file.

A batch is a header of 61 bytes and its records (KIP-98; headers KIP-82; delete horizon KIP-534):

    offset  field                     type
         0  base_offset               int64     offset of the first record
         8  batch_length              int32     bytes that follow this field
        12  partition_leader_epoch    int32
        16  magic                     int8      2
        17  crc                       uint32    CRC-32C of everything from the attributes to the end
        21  attributes                int16     bits 0-2 codec, 3 LogAppendTime, 4 transactional, 5 control,
                                                6 base_timestamp is the delete horizon
        23  last_offset_delta         int32     last offset - base_offset, kept by compaction
        27  base_timestamp            int64     ms
        35  max_timestamp             int64     ms
        43  producer_id               int64     -1: none
        51  producer_epoch            int16
        53  base_sequence             int32
        57  record_count              int32
        61  records, compressed together if the codec says so

    record: length varint | attributes int8 | timestamp_delta varlong | offset_delta varint
            | key length varint, key | value length varint, value        (length -1: null)
            | header count varint | (key length varint, key | value length varint, value)*

The CRC does not cover base_offset and partition_leader_epoch: a broker assigns both without changing the rest. The
first three fields and the magic have the same position in every format, so that older formats are recognized. Message
sets of magic 0 and 1 are rejected, as in Apache Kafka 4.

Reading headers never decodes a record. Decoding is total: any bytes result in records or an `InvalidRecordsError`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from struct import Struct
from typing import NoReturn

from .checksum import crc32c
from .compression import STORED_MAX_SIZE, Codec, CompressionError, compress, decompress_pieces
from .named_tuples import NamedTuple

Buffer = bytes | bytearray | memoryview

NO_OFFSET = -1
NO_TIMESTAMP = -1
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_LEADER_EPOCH = -1

MAGIC = 2
LOG_OVERHEAD = 12
"""The size of base_offset and batch_length, which batch_length does not include."""
MAGIC_POSITION = 16
CRC_POSITION = 17
ATTRIBUTES_POSITION = 21
BATCH_OVERHEAD = 61
"""The size of a batch without records."""
MIN_MESSAGE_SIZE = 14
"""The smallest batch_length of any format (an empty message of magic 0); less is a corrupt batch, not a short one."""

CODEC_MASK = 0x07
TIMESTAMP_TYPE_MASK = 0x08
TRANSACTIONAL_MASK = 0x10
CONTROL_MASK = 0x20
DELETE_HORIZON_MASK = 0x40

CREATE_TIME = 0
LOG_APPEND_TIME = 1

HEADER = Struct(">qiibIhiqqqhii")
"""All 13 fields of the header, in order."""
_LENGTH_AND_MAGIC = Struct(">qiib")
_CRC_COVERED_HEADER = Struct(">hiqqqhii")
_PREFIX = Struct(">qiibI")

_MAX_INT32 = 0x7FFF_FFFF
_MAX_INT64 = 0x7FFF_FFFF_FFFF_FFFF
_UNSIGNED_INT32 = 0xFFFF_FFFF
_UNSIGNED_INT64 = 0xFFFF_FFFF_FFFF_FFFF


class InvalidRecordsError(ValueError):
    """Bytes that are not a record batch, or a batch whose records do not match its header."""


class CorruptBatchError(InvalidRecordsError):
    """A batch that is damaged: an impossible length or magic, or a CRC that does not match."""


class UnsupportedMagicError(InvalidRecordsError):
    """A message set of magic 0 or 1."""


class Record(NamedTuple):
    """One record: offset, timestamp in ms (-1: none), key and value (None: null), headers in order, keys repeatable.

    Header keys are UTF-8; other bytes are preserved by decoding and building, as surrogate escapes.
    """

    offset: int = 0
    timestamp: int = NO_TIMESTAMP
    key: bytes | None = None
    value: bytes | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()


class BatchHeader:
    """The header of a batch; the records are not checked."""

    __slots__ = (
        "attributes",
        "base_offset",
        "base_sequence",
        "base_timestamp",
        "batch_length",
        "crc",
        "last_offset_delta",
        "magic",
        "max_timestamp",
        "partition_leader_epoch",
        "producer_epoch",
        "producer_id",
        "record_count",
    )

    def __init__(
        self,
        base_offset: int,
        batch_length: int,
        partition_leader_epoch: int,
        magic: int,
        crc: int,
        attributes: int,
        last_offset_delta: int,
        base_timestamp: int,
        max_timestamp: int,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        record_count: int,
    ) -> None:
        self.base_offset = base_offset
        self.batch_length = batch_length
        self.partition_leader_epoch = partition_leader_epoch
        self.magic = magic
        self.crc = crc
        self.attributes = attributes
        self.last_offset_delta = last_offset_delta
        self.base_timestamp = base_timestamp
        self.max_timestamp = max_timestamp
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence
        self.record_count = record_count

    @property
    def size(self) -> int:
        """The size of the whole batch in bytes, header included."""
        return LOG_OVERHEAD + self.batch_length

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """Sequence number of the last record, which wraps after 2**31 - 1; -1 if there is none."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return increment_sequence(self.base_sequence, self.last_offset_delta)

    @property
    def codec(self) -> int:
        """Id of the compression codec; 5 to 7 are invalid."""
        return self.attributes & CODEC_MASK

    @property
    def timestamp_type(self) -> int:
        """`CREATE_TIME` or `LOG_APPEND_TIME`."""
        return LOG_APPEND_TIME if self.attributes & TIMESTAMP_TYPE_MASK else CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_MASK)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_MASK)

    @property
    def delete_horizon_ms(self) -> int | None:
        """When compaction may drop this batch's tombstones and markers; None before compaction set the time."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON_MASK else None

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and all(getattr(self, n) == getattr(other, n) for n in BatchHeader.__slots__)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)}" for name in _FIELDS_IN_ORDER)
        return f"{type(self).__name__}({fields})"


_FIELDS_IN_ORDER = BatchHeader.__init__.__code__.co_varnames[1:14]


class RecordBatch(BatchHeader):
    """A whole batch: its header and `data`, a view of all its bytes in the original buffer."""

    __slots__ = ("data",)

    data: memoryview

    def has_valid_crc(self) -> bool:
        return crc32c(self.data[ATTRIBUTES_POSITION:]) == self.crc


def read_batch_header(buffer: Buffer, offset: int = 0) -> BatchHeader:
    """The header at `offset`.

    Raises `UnsupportedMagicError` for magic 0 and 1, `CorruptBatchError` for any other magic except 2, for an
    impossible length, and for fewer than 61 bytes. The caller must check the CRC, and that all `size` bytes exist.
    """
    if len(buffer) - offset < LOG_OVERHEAD + 5:
        raise CorruptBatchError(f"a batch header needs {BATCH_OVERHEAD} bytes, {max(len(buffer) - offset, 0)} remain")
    _base_offset, batch_length, _epoch, magic = _LENGTH_AND_MAGIC.unpack_from(buffer, offset)
    _check_length_and_magic(batch_length, magic)
    if len(buffer) - offset < BATCH_OVERHEAD:
        raise CorruptBatchError(f"a batch header needs {BATCH_OVERHEAD} bytes, {len(buffer) - offset} remain")
    return BatchHeader(*HEADER.unpack_from(buffer, offset))


def iter_batches(buffer: Buffer, offset: int = 0) -> Iterator[RecordBatch]:
    """The whole batches in `buffer` from `offset` on, in order; an incomplete last batch is ignored.

    A fetch response may end with such a batch. CRCs are not checked (`has_valid_crc`). Raises as `read_batch_header`.
    """
    view = memoryview(buffer)
    end = len(view)
    while end - offset >= LOG_OVERHEAD + 5:
        _base_offset, batch_length, _epoch, magic = _LENGTH_AND_MAGIC.unpack_from(view, offset)
        _check_length_and_magic(batch_length, magic)
        batch_end = offset + LOG_OVERHEAD + batch_length
        if batch_end > end:
            return
        batch = RecordBatch(*HEADER.unpack_from(view, offset))
        batch.data = view[offset:batch_end]
        yield batch
        offset = batch_end


def _check_length_and_magic(batch_length: int, magic: int) -> None:
    if batch_length < MIN_MESSAGE_SIZE:
        raise CorruptBatchError(f"batch_length {batch_length} is below the minimum of {MIN_MESSAGE_SIZE}")
    if magic != MAGIC:
        if magic in (0, 1):
            raise UnsupportedMagicError(f"message format v{magic} is not supported, only v2 (Kafka 0.11 and later)")
        raise CorruptBatchError(f"unknown magic {magic}")
    if batch_length < BATCH_OVERHEAD - LOG_OVERHEAD:
        raise CorruptBatchError(f"batch_length {batch_length} is too short for a batch header")


def iter_records(batch: RecordBatch, max_size: int = STORED_MAX_SIZE) -> Iterator[Record]:
    """The batch's records in order, decompressed piece by piece, each with its absolute offset and its timestamp.

    Under LogAppendTime every record has the batch's max_timestamp. Raises `InvalidRecordsError` if the bytes are not
    exactly `record_count` records, and `CompressionError` if they do not decompress to at most `max_size` bytes,
    possibly after some records.
    """
    count = batch.record_count
    if count <= 0:
        if count < 0:
            raise InvalidRecordsError(f"record count {count} is negative")
        if len(batch.data) > BATCH_OVERHEAD:
            raise InvalidRecordsError("bytes follow the header of a batch without records")
        return
    pieces = decompress_pieces(batch.codec, batch.data[BATCH_OVERHEAD:], max_size)
    base_offset = batch.base_offset
    base_timestamp = batch.base_timestamp
    log_append_time = batch.max_timestamp if batch.attributes & TIMESTAMP_TYPE_MASK else None
    data = next(pieces, b"")
    end = len(data)
    position = 0
    for _ in range(count):
        while True:
            try:
                timestamp_delta, offset_delta, key, value, headers, position_after = _read_record(data, position, end)
                break
            except _RecordCutOffError as cut_off:
                needed = cut_off.size
            except IndexError:
                if end - position >= MAX_VARINT:
                    raise InvalidRecordsError("a record's length does not match its content") from None
                needed = MAX_VARINT
            longer = extended(data, position, needed, pieces)
            if longer is None:
                # Parsing it without further pieces raises the specific error.
                _refuse_record(data, position, end)
            data, position, end = bytes(longer), 0, len(longer)
        position = position_after
        timestamp = log_append_time
        if timestamp is None:
            timestamp = base_timestamp + timestamp_delta
            if not -_MAX_INT64 <= timestamp <= _MAX_INT64:
                timestamp = wrap_int64(timestamp)
        yield Record(base_offset + offset_delta, timestamp, key, value, headers)
    if position != end or next(pieces, None) is not None:
        raise bytes_follow(count)


MAX_VARINT = 5
"""The maximum size of a record's length."""


def extended(data: bytes | bytearray, position: int, needed: int, pieces: Iterator[bytes]) -> bytes | bytearray | None:
    """The rest of `data` from `position` on, extended from `pieces` to `needed` bytes or to all available bytes;
    None if no bytes remain."""
    piece = next(pieces, None)
    if piece is None:
        return None
    if needed <= len(data) - position + len(piece):
        return data[position:] + piece
    # A record of many pieces.
    longer = bytearray(data[position:])
    longer += piece
    while len(longer) < needed and (piece := next(pieces, None)) is not None:
        longer += piece
    return longer


def bytes_follow(count: int) -> InvalidRecordsError:
    """The error for a batch with bytes after its records."""
    return InvalidRecordsError(f"bytes follow the {count} records that the batch declares")


def wrap_int64(value: int) -> int:
    """`value` wrapped to 64 bits like Java's long, as clients and Apache Kafka compute timestamps."""
    return (value + (1 << 63) & _UNSIGNED_INT64) - (1 << 63)


def time_after(timestamp_ms: int, duration_ms: int) -> int:
    """The time ``duration_ms`` after ``timestamp_ms``, for an int64 field; the maximum int64 if it would be exceeded.

    Durations of 2**63 - 1 mean forever. Apache Kafka wraps around, into the past, in most places.
    """
    return min(timestamp_ms + duration_ms, _MAX_INT64)


class _RecordCutOffError(InvalidRecordsError):
    """A truncated record; `size` is that of the whole record, including its length."""

    def __init__(self, length: int, left: int, size: int) -> None:
        super().__init__(f"a record of {length} bytes does not fit into the remaining {left}")
        self.size = size


def _refuse_record(data: bytes, position: int, end: int) -> NoReturn:
    """Raise the error of a record that the end of the batch truncates."""
    try:
        _read_record(data, position, end)
    except _RecordCutOffError as error:
        raise InvalidRecordsError(str(error)) from None
    except IndexError:
        pass
    raise InvalidRecordsError("the records are truncated")


def _read_record(
    data: bytes, position: int, end: int
) -> tuple[int, int, bytes | None, bytes | None, Sequence[tuple[str, bytes | None]], int]:
    """The record at `position`: (timestamp delta, offset delta, key, value, headers, position after it).

    The one-byte case of every varint is inlined: nearly all varints have one byte, and a call costs more than the rest.
    """
    start = position
    byte = data[position]
    if byte < 0x80:
        length = (byte >> 1) ^ -(byte & 1)
        position += 1
    else:
        length, position = read_varint(data, position)
    record_end = position + length
    if length < 0:
        raise InvalidRecordsError(f"invalid record length {length}")
    if record_end > end:
        raise _RecordCutOffError(length, end - position, record_end - start)
    position += 1  # the record's attributes: unused so far

    byte = data[position]
    if byte < 0x80:
        timestamp_delta = (byte >> 1) ^ -(byte & 1)
        position += 1
    else:
        timestamp_delta, position = read_varint(data, position, 10)
    byte = data[position]
    if byte < 0x80:
        offset_delta = (byte >> 1) ^ -(byte & 1)
        position += 1
    else:
        offset_delta, position = read_varint(data, position)

    key: bytes | None = None
    byte = data[position]
    if byte < 0x80:
        length = (byte >> 1) ^ -(byte & 1)
        position += 1
    else:
        length, position = read_varint(data, position)
    if length >= 0:
        key = data[position : position + length]
        position += length
    value: bytes | None = None
    byte = data[position]
    if byte < 0x80:
        length = (byte >> 1) ^ -(byte & 1)
        position += 1
    else:
        length, position = read_varint(data, position)
    if length >= 0:
        value = data[position : position + length]
        position += length

    headers: Sequence[tuple[str, bytes | None]] = ()
    byte = data[position]
    if byte:
        headers, position = _read_headers(data, position, record_end)
    else:
        position += 1
    if position != record_end:
        raise InvalidRecordsError("a record's length does not match its content")
    return timestamp_delta, offset_delta, key, value, headers, position


def _read_headers(data: bytes, position: int, end: int) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
    count, position = read_varint(data, position)
    # Each header takes at least two bytes, which limits the list before it grows.
    if count < 0 or count * 2 > end - position:
        raise InvalidRecordsError(f"a record declares {count} headers in {end - position} bytes")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        length, position = read_varint(data, position)
        if length < 0:
            raise InvalidRecordsError("a record header has no key")
        key = data[position : position + length].decode("utf-8", "surrogateescape")
        position += length
        length, position = read_varint(data, position)
        value = None
        if length >= 0:
            value = data[position : position + length]
            position += length
        if position > end:
            raise InvalidRecordsError("a record header extends past the end of its record")
        headers.append((key, value))
    return tuple(headers), position


def read_varint(data: bytes | bytearray, position: int, max_bytes: int = 5) -> tuple[int, int]:
    """The zigzag varint at `position`, of at most 5 bytes (10 for a varlong), and the position after it."""
    value = shift = 0
    for _ in range(max_bytes):
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            value &= _UNSIGNED_INT64 if max_bytes == 10 else _UNSIGNED_INT32  # wraps like Java's fixed-size types
            return (value >> 1) ^ -(value & 1), position
        shift += 7
    raise InvalidRecordsError(f"a varint is longer than {max_bytes} bytes")


def encode_varint(value: int) -> bytes:
    """`value` as a zigzag varint."""
    value = value << 1 if value >= 0 else (-value << 1) - 1
    if value < 0x80:
        return _ONE_BYTE[value]
    if value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    output = bytearray()
    while value >= 0x80:
        output.append(value & 0x7F | 0x80)
        value >>= 7
    output.append(value)
    return bytes(output)


_ONE_BYTE = tuple(bytes((value,)) for value in range(0x80))
_SMALL_END = 1024
_SMALL = tuple(encode_varint(value) for value in range(_SMALL_END))
_NULL = encode_varint(-1)
_NO_HEADERS = encode_varint(0)


def build_batch(
    records: Iterable[Record],
    *,
    base_offset: int = 0,
    keep_offsets: bool = False,
    last_offset_delta: int | None = None,
    leader_epoch: int = NO_LEADER_EPOCH,
    codec: int = Codec.NONE,
    level: int | None = None,
    log_append_time_ms: int | None = None,
    delete_horizon_ms: int | None = None,
    max_timestamp: int | None = None,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
) -> bytes:
    """A batch of these records, with a valid CRC.

    The records take the offsets `base_offset`, `base_offset` + 1, ...; with `keep_offsets` they keep their own, which
    may have gaps (compaction). `last_offset_delta` defaults to the last record's. Timestamps are the records' own;
    `log_append_time_ms` makes the batch LogAppendTime with that time. `max_timestamp` defaults to the records' largest.
    Without records the result is the bare header that compaction keeps for a producer's last sequence number.
    """
    records = records if isinstance(records, (list, tuple)) else list(records)
    if delete_horizon_ms is not None:
        base_timestamp = delete_horizon_ms
    else:
        base_timestamp = records[0].timestamp if records else NO_TIMESTAMP
    parts: list[bytes] = []
    largest = NO_TIMESTAMP
    offset_delta = -1
    for record in records:
        offset_delta = record.offset - base_offset if keep_offsets else offset_delta + 1
        timestamp = record.timestamp
        if timestamp > largest:
            largest = timestamp
        timestamp_delta = timestamp - base_timestamp
        if not -_MAX_INT64 <= timestamp_delta <= _MAX_INT64:
            timestamp_delta = wrap_int64(timestamp_delta)
        append_record(parts, record, timestamp_delta, offset_delta)
    body = b"".join(parts)
    if codec and records:
        body = compress(codec, body, level)
    if log_append_time_ms is not None:
        largest = log_append_time_ms
    attributes = (
        (codec if records else Codec.NONE)
        | (TIMESTAMP_TYPE_MASK if log_append_time_ms is not None else 0)
        | (TRANSACTIONAL_MASK if transactional else 0)
        | (CONTROL_MASK if control else 0)
        | (DELETE_HORIZON_MASK if delete_horizon_ms is not None else 0)
    )
    covered = _CRC_COVERED_HEADER.pack(
        attributes,
        offset_delta if last_offset_delta is None else last_offset_delta,
        base_timestamp,
        largest if max_timestamp is None else max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        len(records),
    )
    crc = crc32c(body, crc32c(covered))
    prefix = _PREFIX.pack(base_offset, BATCH_OVERHEAD - LOG_OVERHEAD + len(body), leader_epoch, MAGIC, crc)
    return b"".join((prefix, covered, body))


def batch_of_body(body: bytes, count: int, *, timestamp: int, base_offset: int, leader_epoch: int) -> bytes:
    """Like `build_batch`, for ``count`` records of one timestamp that `append_record` has encoded."""
    covered = _CRC_COVERED_HEADER.pack(
        0, count - 1, timestamp, timestamp, NO_PRODUCER_ID, NO_PRODUCER_EPOCH, NO_SEQUENCE, count
    )
    crc = crc32c(body, crc32c(covered))
    prefix = _PREFIX.pack(base_offset, BATCH_OVERHEAD - LOG_OVERHEAD + len(body), leader_epoch, MAGIC, crc)
    return b"".join((prefix, covered, body))


def batch_header(batch: BatchHeader, body: Iterable[bytes], *, attributes: int, max_timestamp: int) -> bytes:
    """The header, with a valid CRC, of a producer's batch whose records are replaced by these pieces."""
    covered = _CRC_COVERED_HEADER.pack(
        attributes,
        batch.last_offset_delta,
        batch.base_timestamp,
        max_timestamp,
        batch.producer_id,
        batch.producer_epoch,
        batch.base_sequence,
        batch.record_count,
    )
    crc = crc32c(covered)
    size = BATCH_OVERHEAD - LOG_OVERHEAD
    for piece in body:
        crc = crc32c(piece, crc)
        size += len(piece)
    prefix = _PREFIX.pack(batch.base_offset, size, NO_LEADER_EPOCH, MAGIC, crc)
    return prefix + covered


def append_record(parts: list[bytes], record: Record, timestamp_delta: int, offset_delta: int) -> None:
    """Encode a record. Most numbers are small: they are looked up inline, because a call for each would be slower."""
    _offset, _timestamp, key, value, headers = record
    small, end = _SMALL, _SMALL_END
    if key is None:
        key_length, key = _NULL, b""
    else:
        length = len(key)
        key_length = small[length] if length < end else encode_varint(length)
    if value is None:
        value_length, value = _NULL, b""
    else:
        length = len(value)
        value_length = small[length] if length < end else encode_varint(length)
    body = b"".join(
        (
            b"\x00",
            small[timestamp_delta] if 0 <= timestamp_delta < end else encode_varint(timestamp_delta),
            small[offset_delta] if 0 <= offset_delta < end else encode_varint(offset_delta),
            key_length,
            key,
            value_length,
            value,
            _headers(headers) if headers else _NO_HEADERS,
        )
    )
    length = len(body)
    parts.append(small[length] if length < end else encode_varint(length))
    parts.append(body)


def _headers(headers: Sequence[tuple[str, bytes | None]]) -> bytes:
    encoded = [encode_varint(len(headers))]
    for key, value in headers:
        encoded_key = key.encode("utf-8", "surrogateescape")
        encoded += (encode_varint(len(encoded_key)), encoded_key)
        encoded += (_NULL,) if value is None else (encode_varint(len(value)), value)
    return b"".join(encoded)


def increment_sequence(sequence: int, increment: int) -> int:
    """`sequence` + `increment` in the space of sequence numbers, in which 0 follows 2**31 - 1."""
    return (sequence + increment) & _MAX_INT32


__all__ = [
    "BATCH_OVERHEAD",
    "CREATE_TIME",
    "LOG_APPEND_TIME",
    "LOG_OVERHEAD",
    "MAGIC",
    "NO_LEADER_EPOCH",
    "NO_OFFSET",
    "NO_PRODUCER_EPOCH",
    "NO_PRODUCER_ID",
    "NO_SEQUENCE",
    "NO_TIMESTAMP",
    "BatchHeader",
    "Codec",
    "CompressionError",
    "CorruptBatchError",
    "InvalidRecordsError",
    "Record",
    "RecordBatch",
    "UnsupportedMagicError",
    "build_batch",
    "increment_sequence",
    "iter_batches",
    "iter_records",
    "read_batch_header",
]

"""Validation of batches from producers: the checks of Apache Kafka, with its error codes, in its order.

For nearly every batch, checking the 61 header bytes and the CRC is sufficient. Records are decoded where the result
depends on them: on a compacted topic (each needs a key), for recompression to the topic's `compression.type`, with
`validate_records`, and if the header's timestamps are out of range, to report the invalid records. Apache Kafka decodes
every batch; `docs/known_gaps.md` lists what only that detects.

All functions are pure functions of bytes, configuration and time, so that a server can run the expensive one
(`prepare_steps`) in a thread or another process, in slices, and append the result. Invalid bytes of any kind raise
`KafkaError`.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterator
from struct import Struct
from typing import Protocol

from ..protocol.checksum import crc32c, crc32c_joined
from ..protocol.compression import (
    DEFAULT_MAX_SIZE,
    PIECE_BYTES,
    Codec,
    CodecUnavailableError,
    CompressionError,
    Compressor,
    DecompressedTooLargeError,
    compress,
    compressor,
    decompress_pieces,
)
from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.named_tuples import NamedTuple
from ..protocol.paged_bytes import PagedBytes
from ..protocol.record_cursor import Cursor
from ..protocol.record_scan import BYTES_PER_ELEMENT, STEP_ELEMENTS, RecordScan
from ..protocol.records import (
    ATTRIBUTES_POSITION,
    BATCH_OVERHEAD,
    CODEC_MASK,
    CONTROL_MASK,
    DELETE_HORIZON_MASK,
    HEADER,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MAGIC,
    MIN_MESSAGE_SIZE,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
    BatchHeader,
    InvalidRecordsError,
    RecordBatch,
    batch_header,
    encode_varint,
    wrap_int64,
)
from ..protocol.steps import completed
from .config import LogConfig
from .files import Buffer

_CODEC_BY_NAME = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}
_MAX_WINDOW_BYTES = 32 << 20
"""The largest window of large compressed batches, which is in memory during decompression: that of zstd level 20."""
_RECORD_ERRORS_SHOWN = 3
MAX_RECORD_ERRORS = 1000
"""The limit of invalid records in a response. They are sufficient to reject the batch, so later records are not
checked; Apache Kafka reports all."""
_OTHER_ATTRIBUTES = CODEC_MASK | TRANSACTIONAL_MASK | CONTROL_MASK | DELETE_HORIZON_MASK


class InvalidRecordBatchError(KafkaError):
    """A batch that is rejected because of the records in `record_errors` (KIP-467)."""

    def __init__(self, code: ErrorCode, message: str, record_errors: list[tuple[int, str]]) -> None:
        super().__init__(code, message)
        self.record_errors = record_errors
        """(index of the record in the batch, error message)"""


def target_codec(config: LogConfig) -> Codec | None:
    """The codec of stored batches; None for the producer's."""
    return _CODEC_BY_NAME.get(config.compression_type)


def needs_recompression(records: Buffer, config: LogConfig) -> bool:
    """Whether this batch must be rewritten before the append. Reads only the header; False for malformed bytes."""
    target = target_codec(config)
    if target is None or len(records) < BATCH_OVERHEAD or records[MAGIC_POSITION] != MAGIC:
        return False
    attributes = int.from_bytes(records[ATTRIBUTES_POSITION : ATTRIBUTES_POSITION + 2], "big")
    return attributes & CODEC_MASK != target


def needs_records(records: Buffer, config: LogConfig, *, now_ms: int) -> bool:
    """Whether the records of this batch must be validated before the append. Reads only the header; False for malformed
    bytes."""
    if len(records) < BATCH_OVERHEAD or records[MAGIC_POSITION] != MAGIC:
        return False
    if config.compacted or config.validate_records:
        return True
    attributes = records[ATTRIBUTES_POSITION + 1]
    target = target_codec(config)
    if (target is not None and attributes & CODEC_MASK != target) or attributes & TIMESTAMP_TYPE_MASK:
        return True
    base, largest = _TIMESTAMPS.unpack_from(records, _TIMESTAMPS_POSITION)
    return _timestamps_look_wrong(base, largest, config, now_ms)


class Parts(Protocol):
    """A container for bytes, for example a ``list[bytes]``."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[bytes]: ...

    def __contains__(self, part: object, /) -> bool: ...

    def append(self, part: bytes, /) -> None:
        """Keep this behind all others. Raises `KafkaError` if there is no room."""

    def insert(self, index: int, part: bytes, /) -> None:
        """Keep this before all others: ``index`` is 0."""

    def clear(self) -> None:
        """Discard all of them."""


class Prepared(NamedTuple):
    """The result of validating a batch's records."""

    max_timestamp: int
    """The largest timestamp of the records."""
    pieces: Collection[Buffer] | None = None
    """The batch in the topic's `compression.type`, one piece if it is not large; None if it already has that type."""


class TooMuchWorkError(Exception):
    """The records take more memory than the caller of `prepare_steps` allowed."""


def prepare_steps(
    records: Buffer, config: LogConfig, *, now_ms: int, max_size: int | None = None, parts: Parts | None = None
) -> Generator[None, None, Prepared]:
    """All checks of a client's batch except those of the log's state, and recompression, in steps of about 2 ms.

    The records are decompressed, validated and compressed in pieces. `parts` stores the compressed pieces, by default
    in memory. Raises `KafkaError`, and `TooMuchWorkError` if they are larger than `max_size` bytes.
    """
    batch = checked_batch(records, config)
    return (yield from look_steps(batch, batch.data[BATCH_OVERHEAD:], config, now_ms, max_size, parts))


def look_steps(
    batch: BatchHeader,
    body: memoryview | PagedBytes,
    config: LogConfig,
    now_ms: int,
    max_size: int | None,
    parts: Parts | None = None,
) -> Generator[None, None, Prepared]:
    """What `prepare_steps` does after `checked_batch`. ``body`` is what follows the header."""
    target = target_codec(config)
    limit = DEFAULT_MAX_SIZE if max_size is None else max_size
    try:
        pieces = decompress_pieces(batch.codec, body, limit, _MAX_WINDOW_BYTES)
        output = None
        if target is not None and target != batch.codec:
            output = _Output(target, config, parts)
            pieces = output.copy(pieces)
        checks = _RecordChecks(batch, config, now_ms)
        scan = checks.scan(pieces)
        yield from scan.steps()
        checks.refuse()
        largest = batch.max_timestamp if batch.timestamp_type == LOG_APPEND_TIME else scan.largest
        if output is None:
            return Prepared(largest)
        if not scan.is_sequential or batch.timestamp_type == LOG_APPEND_TIME:
            assert target is not None
            output = _Output(target, config, parts)
            yield from output.rewrite(batch, body, limit)
        return Prepared(largest, output.batch(batch, largest))
    except DecompressedTooLargeError as error:
        if max_size is not None:
            raise TooMuchWorkError from None
        raise _undecodable(error) from None
    except (InvalidRecordsError, CompressionError) as error:
        raise _undecodable(error) from None
    except CodecUnavailableError as error:
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, str(error)) from None


def _undecodable(error: Exception) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, f"The batch cannot be decoded: {error}")


def prepare(records: Buffer, config: LogConfig, *, now_ms: int) -> Prepared:
    """`prepare_steps` in one step, which may take long."""
    return completed(prepare_steps(records, config, now_ms=now_ms))


def prepared_batch(records: Buffer, prepared: Prepared, config: LogConfig) -> Buffer:
    """The batch to be appended with `validated=True`. The header of a large one may be changed in place."""
    if prepared.pieces is not None:
        first, *others = prepared.pieces
        return b"".join((first, *others)) if others else first
    batch = single_batch(records)
    if (
        batch.size > LARGE_BYTES
        and not batch.data.readonly
        and _has_wrong_timestamps(batch, prepared.max_timestamp, config)
    ):
        batch.data[:BATCH_OVERHEAD] = with_timestamps(batch, prepared.max_timestamp, log_append_time=False)
        return batch.data
    return _with_correct_timestamps(batch, prepared.max_timestamp, config).data


def recompress(records: Buffer, config: LogConfig, *, now_ms: int) -> Buffer:
    """The batch as it is to be appended with `validated=True`."""
    return prepared_batch(records, prepare(records, config, now_ms=now_ms), config)


def validate_client_batch(
    records: Buffer, config: LogConfig, *, now_ms: int, validated: bool = False, crc: int | None = None
) -> RecordBatch:
    """The only batch in `records`, as it will be stored except for offset, leader epoch and LogAppendTime.

    It is the given batch if no change was necessary. `validated`: its records were already validated. `crc`: see
    `checked_batch`.
    """
    batch = checked_batch(records, config, crc)
    if not validated and needs_records(records, config, now_ms=now_ms):
        prepared = completed(look_steps(batch, batch.data[BATCH_OVERHEAD:], config, now_ms, None))
        if prepared.pieces is not None:
            batch = batch_in(prepared_batch(records, prepared, config))
        else:
            batch = _with_correct_timestamps(batch, prepared.max_timestamp, config)
    if batch.size > config.max_message_bytes:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"Message batch size is {batch.size} bytes which exceeds the maximum configured size of "
            f"{config.max_message_bytes}.",
        )
    return batch


MAGIC_POSITION = 16


def checked_batch(records: Buffer, config: LogConfig, crc: int | None = None) -> RecordBatch:
    """The only batch in `records`, after all checks of its header. `crc`: its computed CRC, if that is known.

    Raises:
        KafkaError: the batch is rejected.
    """
    batch = single_batch(records)
    if batch.base_offset != 0:
        raise KafkaError(
            ErrorCode.INVALID_RECORD, f"The baseOffset of the record batch should be 0, but it is {batch.base_offset}"
        )
    if batch.size > config.max_message_bytes:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"The record batch size is {batch.size} bytes which exceeds the maximum configured value of "
            f"{config.max_message_bytes}.",
        )
    if not (batch.has_valid_crc() if crc is None else batch.crc == crc):
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"Record is corrupt (stored crc = {batch.crc}).")
    if batch.codec > Codec.ZSTD:
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"Unknown compression type id: {batch.codec}")
    if batch.last_offset_delta < 0:
        raise KafkaError(ErrorCode.INVALID_RECORD, f"Batch has an invalid offset range: [0, {batch.last_offset_delta}]")
    if batch.record_count <= 0:
        raise KafkaError(ErrorCode.INVALID_RECORD, f"Invalid reported count for record batch: {batch.record_count}")
    if batch.last_offset_delta + 1 != batch.record_count:
        raise KafkaError(
            ErrorCode.INVALID_RECORD,
            f"Inconsistent batch offset range [0, {batch.last_offset_delta}] and count of records {batch.record_count}",
        )
    if batch.is_control:
        raise KafkaError(ErrorCode.INVALID_RECORD, "Clients are not allowed to write control records")
    if batch.producer_id >= 0 and batch.base_sequence < 0:
        raise KafkaError(
            ErrorCode.INVALID_RECORD,
            f"Invalid sequence number {batch.base_sequence} in record batch with producerId {batch.producer_id}",
        )
    return batch


def single_batch(records: Buffer) -> RecordBatch:
    """The only batch that a produce request may contain for a partition.

    As in Apache Kafka, an incomplete batch or header after it is ignored.
    """
    batch_size = _next_batch_size(records, 0)
    if batch_size is None:
        raise KafkaError(ErrorCode.INVALID_RECORD, "Produce requests must have at least one record batch per partition")
    if records[MAGIC_POSITION] != MAGIC:
        raise KafkaError(
            ErrorCode.INVALID_RECORD, "Produce requests are only allowed to contain record batches with magic version 2"
        )
    if _next_batch_size(records, batch_size) is not None:
        raise KafkaError(
            ErrorCode.INVALID_RECORD,
            "Produce requests are only allowed to contain exactly one record batch per partition",
        )
    if batch_size < BATCH_OVERHEAD:
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE,
            f"Record batch is corrupt (the size {batch_size} is smaller than the minimum allowed overhead "
            f"{BATCH_OVERHEAD})",
        )
    return batch_in(records[:batch_size])


def _next_batch_size(records: Buffer, position: int) -> int | None:
    """Size of the complete batch of any format at `position`; None if there is none."""
    left = len(records) - position
    if left < LOG_OVERHEAD:
        return None
    length = int.from_bytes(records[position + 8 : position + 12], "big", signed=True)
    if length < MIN_MESSAGE_SIZE:
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE,
            f"Record size {length} is less than the minimum record overhead ({MIN_MESSAGE_SIZE})",
        )
    if left <= MAGIC_POSITION:
        return None
    magic = records[position + MAGIC_POSITION]
    if magic > MAGIC:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"Invalid magic found in record: {magic}")
    return LOG_OVERHEAD + length if left >= LOG_OVERHEAD + length else None


def batch_in(records: Buffer) -> RecordBatch:
    """The batch in these bytes, without any check."""
    batch = RecordBatch(*HEADER.unpack_from(records))
    batch.data = memoryview(records)
    return batch


_TIMESTAMPS = Struct(">qq")
_TIMESTAMPS_POSITION = 27


def _timestamps_look_wrong(base: int, largest: int, config: LogConfig, now_ms: int) -> bool:
    """Whether a record may be outside the topic's limits, or the header's largest timestamp incorrect."""
    if config.message_timestamp_type != "CreateTime":
        return False
    return (
        largest < base
        or (base != NO_TIMESTAMP and now_ms - base > config.message_timestamp_before_max_ms)
        or largest - now_ms > config.message_timestamp_after_max_ms
    )


class _RecordChecks:
    """Validates the records of a client's batch like Apache Kafka's LogValidator."""

    def __init__(self, batch: BatchHeader, config: LogConfig, now_ms: int) -> None:
        self._batch = batch
        self._compacted = config.compacted
        self._create_time = config.message_timestamp_type == "CreateTime"
        self._log_append_time = batch.timestamp_type == LOG_APPEND_TIME
        self._lowest = now_ms - config.message_timestamp_before_max_ms
        self._highest = now_ms + config.message_timestamp_after_max_ms
        self._errors: list[tuple[int, str]] = []
        self._bad_timestamp = False

    def scan(self, pieces: Iterator[bytes]) -> RecordScan:
        lowest, highest = -_ANY_TIMESTAMP, _ANY_TIMESTAMP - 1
        if self._log_append_time:
            lowest, highest = 0, -1  # the timestamps are the batch's: look at each record
        elif self._create_time:
            lowest, highest = max(lowest, self._lowest), min(highest, self._highest)
        return RecordScan(
            pieces,
            self._batch.record_count,
            self._batch.base_timestamp,
            lowest=lowest,
            highest=highest,
            key_required=self._compacted,
            on_odd=self._look,
        )

    def _look(self, index: int, offset_delta: int, timestamp: int, has_key: bool) -> bool:
        if self._log_append_time:
            timestamp = self._batch.max_timestamp
        if self._compacted and not has_key:
            self._errors.append((index, "Compacted topic cannot accept message without key"))
        elif self._create_time and timestamp != NO_TIMESTAMP:
            if not self._lowest <= timestamp <= self._highest:
                self._bad_timestamp = True
                self._errors.append(
                    (
                        index,
                        f"Timestamp {timestamp} of message with offset {offset_delta} is out of range. "
                        f"The timestamp should be within [{self._lowest}, {self._highest}]",
                    )
                )
        elif self._log_append_time:
            self._bad_timestamp = True
            self._errors.append(
                (index, "Invalid timestamp type. Producer should not set timestamp type to LogAppendTime.")
            )
        return len(self._errors) >= MAX_RECORD_ERRORS

    def refuse(self) -> None:
        """Raise if there are errors."""
        errors = self._errors
        if self._bad_timestamp:
            raise InvalidRecordBatchError(
                ErrorCode.INVALID_TIMESTAMP, "One or more records have been rejected due to invalid timestamp", errors
            )
        if errors:
            shown = "; ".join(f"record {index}: {text}" for index, text in errors[:_RECORD_ERRORS_SHOWN])
            raise InvalidRecordBatchError(
                ErrorCode.INVALID_RECORD,
                f"One or more records have been rejected due to {len(errors)} record errors in total, and only showing "
                f"the first three errors at most: {shown}",
                errors,
            )


_ANY_TIMESTAMP = 1 << 63


class _Output:
    """The records compressed again, as far as the topic's `max.message.bytes` lets them be appended."""

    def __init__(self, codec: Codec, config: LogConfig, parts: Parts | None) -> None:
        levels = {
            Codec.GZIP: config.compression_gzip_level,
            Codec.LZ4: config.compression_lz4_level,
            Codec.ZSTD: config.compression_zstd_level,
        }
        self._codec = codec
        self._level = levels.get(codec)
        self._first: bytes | None = None  # a batch of one piece needs no compressor that keeps a state
        self._compressor: Compressor | None = None
        self._limit = config.max_message_bytes
        self._parts: Parts = [] if parts is None else parts
        self._parts.clear()
        self._size = BATCH_OVERHEAD

    def copy(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        """These pieces, each compressed on its way."""
        for piece in pieces:
            self._add(piece)
            yield piece

    def rewrite(self, batch: BatchHeader, body: memoryview | PagedBytes, max_size: int) -> Iterator[None]:
        """Compress the records, which were looked at, with the offsets 0, 1, 2, ...; in steps."""
        timestamp_delta = None
        if batch.timestamp_type == LOG_APPEND_TIME:
            timestamp_delta = encode_varint(wrap_int64(batch.max_timestamp - batch.base_timestamp))
        cursor = Cursor(decompress_pieces(batch.codec, body, max_size, _MAX_WINDOW_BYTES))
        parts: list[bytes] = []
        size = 0
        left = _RECORDS_PER_STEP
        for index in range(batch.record_count):
            length = cursor.varint()
            end = cursor.offset + length
            b"".join(cursor.take(1))  # attributes, which mean nothing
            written = cursor.varint(10)
            cursor.varint()
            # The rest of the record is as it was.
            begin = b"\0" + (timestamp_delta or encode_varint(written)) + encode_varint(index)
            rest = end - cursor.offset
            parts.append(encode_varint(len(begin) + rest) + begin)
            size += len(parts[-1])
            for part in cursor.take(rest):
                parts.append(part)
                size += len(part)
                left -= len(part) >> BYTES_PER_ELEMENT
                if size > PIECE_BYTES:
                    self._add(b"".join(parts))
                    parts.clear()
                    size = 0
            left -= 1
            if left <= 0:
                left = _RECORDS_PER_STEP
                yield
        self._add(b"".join(parts))

    def _add(self, piece: bytes) -> None:
        if self._size > self._limit:
            return  # the batch is refused, once its records have been looked at
        if self._compressor is None:
            if self._first is None:
                self._first = piece
                return
            self._compressor = compressor(self._codec, self._level)
            self._keep(self._compressor.add(self._first))
            self._first = b""
        self._keep(self._compressor.add(piece))

    def _keep(self, part: bytes) -> None:
        if part:
            self._parts.append(part)
            self._size += len(part)

    def batch(self, batch: BatchHeader, max_timestamp: int) -> Collection[bytes]:
        """The whole batch in pieces; in one if it is not large.

        Raises:
            KafkaError: MESSAGE_TOO_LARGE.
        """
        if self._compressor is None:
            self._keep(compress(self._codec, self._first or b"", self._level))
        elif self._size <= self._limit:
            self._keep(self._compressor.finish())
        if self._size > self._limit:
            self._parts.clear()
            raise KafkaError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"Message batch size is {self._size} bytes or more, which exceeds the maximum configured size of "
                f"{self._limit}.",
            )
        attributes = self._codec | batch.attributes & TRANSACTIONAL_MASK
        self._parts.insert(0, batch_header(batch, self._parts, attributes=attributes, max_timestamp=max_timestamp))
        return self._parts if self._size > LARGE_BYTES else (b"".join(self._parts),)


LARGE_BYTES = 2 << 20
"""Copying, checking or writing more bytes than this takes too long for one step of an event loop."""

_RECORDS_PER_STEP = STEP_ELEMENTS // 4


def _has_wrong_timestamps(batch: BatchHeader, largest: int, config: LogConfig) -> bool:
    """Whether a header with CreateTime and this largest timestamp would be another one."""
    return config.message_timestamp_type == "CreateTime" and (
        batch.timestamp_type == LOG_APPEND_TIME or batch.max_timestamp != largest
    )


def _with_correct_timestamps(batch: RecordBatch, largest: int, config: LogConfig) -> RecordBatch:
    """The batch with CreateTime and the correct largest timestamp in its header."""
    if not _has_wrong_timestamps(batch, largest, config):
        return batch
    header = with_timestamps(batch, largest, log_append_time=False)
    return batch_in(header + bytes(batch.data[BATCH_OVERHEAD:]))


def with_timestamps(batch: RecordBatch, max_timestamp: int, *, log_append_time: bool) -> bytes:
    """The 61 header bytes of a valid batch with another largest timestamp and timestamp type, and the CRC that follows.

    As in Apache Kafka, undefined attributes are removed.
    """
    attributes = batch.attributes & _OTHER_ATTRIBUTES | (TIMESTAMP_TYPE_MASK if log_append_time else 0)
    header = bytearray(
        HEADER.pack(
            batch.base_offset,
            batch.batch_length,
            batch.partition_leader_epoch,
            MAGIC,
            0,
            attributes,
            batch.last_offset_delta,
            batch.base_timestamp,
            max_timestamp,
            batch.producer_id,
            batch.producer_epoch,
            batch.base_sequence,
            batch.record_count,
        )
    )
    body_size = batch.size - BATCH_OVERHEAD
    crc = crc32c(header[ATTRIBUTES_POSITION:])
    if body_size <= LARGE_BYTES:
        crc = crc32c(batch.data[BATCH_OVERHEAD:], crc)
    else:  # the CRC of the body follows from that of the batch, which is valid
        old = crc32c(batch.data[ATTRIBUTES_POSITION:BATCH_OVERHEAD])
        crc = crc32c_joined(crc, crc32c_joined(old, batch.crc, body_size), body_size)
    header[ATTRIBUTES_POSITION - 4 : ATTRIBUTES_POSITION] = crc.to_bytes(4, "big")
    return bytes(header)

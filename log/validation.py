"""May these bytes from a producer be appended? The checks of Apache Kafka, with its error codes, in its order.

Nearly every batch is judged by its 61 header bytes and its CRC. Records are decoded where the answer depends on them:
on a compacted topic (each needs a key), for recompression to the topic's `compression.type`, with `validate_records`,
and when the header's timestamps look wrong, to name the records that are. Where Apache Kafka, which decodes every
batch, would see more, `docs/known_gaps.md` says so.

Everything here is a pure function of bytes, configuration and time, so that a server can run the expensive ones
(`recompress`) in a thread and append the result. What is refused raises `KafkaError`, whatever the bytes were.
"""

from __future__ import annotations

from ..protocol.checksum import crc32c
from ..protocol.compression import Codec, CodecUnavailableError, CompressionError
from ..protocol.errors import ErrorCode, KafkaError
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
    InvalidRecordsError,
    Record,
    RecordBatch,
    build_batch,
    iter_records,
)
from .config import LogConfig
from .files import Buffer

_CODEC_BY_NAME = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}
_RECORD_ERRORS_SHOWN = 3
_OTHER_ATTRIBUTES = CODEC_MASK | TRANSACTIONAL_MASK | CONTROL_MASK | DELETE_HORIZON_MASK


class InvalidRecordBatchError(KafkaError):
    """A batch refused because of some of its records, which `record_errors` names (KIP-467)."""

    def __init__(self, code: ErrorCode, message: str, record_errors: list[tuple[int, str]]) -> None:
        super().__init__(code, message)
        self.record_errors = record_errors
        """(index of the record in the batch, what is wrong with it)"""


def target_codec(config: LogConfig) -> Codec | None:
    """The codec that batches are stored with; None for the producer's."""
    return _CODEC_BY_NAME.get(config.compression_type)


def needs_recompression(records: Buffer, config: LogConfig) -> bool:
    """Must this batch be rewritten before it is appended? Looks at the header only; of malformed bytes it says no."""
    target = target_codec(config)
    if target is None or len(records) < BATCH_OVERHEAD or records[MAGIC_POSITION] != MAGIC:
        return False
    attributes = int.from_bytes(records[ATTRIBUTES_POSITION : ATTRIBUTES_POSITION + 2], "big")
    return attributes & CODEC_MASK != target


def recompress(records: Buffer, config: LogConfig, *, now_ms: int) -> bytes:
    """The batch in the topic's `compression.type`, after every check of a client's batch but those of the log's state.

    Slow for large batches, and releases the GIL for most of it. The result is to be appended with `validated=True`.
    """
    batch = _checked_batch(records, config)
    decoded = _checked_records(batch, config, now_ms)
    return _rebuild(batch, decoded, config)


def validate_client_batch(records: Buffer, config: LogConfig, *, now_ms: int, validated: bool = False) -> RecordBatch:
    """The one batch in `records`, as it is to be stored but for offset, leader epoch and LogAppendTime.

    It is the given one wherever nothing had to be changed. `validated`: its records were looked at already.
    """
    batch = _checked_batch(records, config)
    target = target_codec(config)
    recompression = target is not None and target != batch.codec
    if not validated and (
        recompression
        or config.compacted
        or config.validate_records
        or batch.timestamp_type == LOG_APPEND_TIME
        or _timestamps_look_wrong(batch, config, now_ms)
    ):
        decoded = _checked_records(batch, config, now_ms)
        if recompression:
            batch = _parse(_rebuild(batch, decoded, config))
        else:
            batch = _with_true_timestamps(batch, decoded, config)
    if batch.size > config.max_message_bytes:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"Message batch size is {batch.size} bytes which exceeds the maximum configured size of "
            f"{config.max_message_bytes}.",
        )
    return batch


MAGIC_POSITION = 16


def _checked_batch(records: Buffer, config: LogConfig) -> RecordBatch:
    """The one batch in `records`, everything that its header tells checked."""
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
    if not batch.has_valid_crc():
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
    """The one whole batch that a produce request may hold for a partition.

    As Apache Kafka reads it: bytes after it that are less than a batch header, or a batch that is cut off, are ignored.
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
    return _parse(records[:batch_size])


def _next_batch_size(records: Buffer, position: int) -> int | None:
    """Size of the whole batch of any format at `position`; None if there is none."""
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


def _parse(records: Buffer) -> RecordBatch:
    batch = RecordBatch(*HEADER.unpack_from(records))
    batch.data = memoryview(records)
    return batch


def _timestamps_look_wrong(batch: RecordBatch, config: LogConfig, now_ms: int) -> bool:
    """Could a record be outside the topic's limits, or the header's largest timestamp be untrue?"""
    if config.message_timestamp_type != "CreateTime":
        return False
    base, largest = batch.base_timestamp, batch.max_timestamp
    return (
        largest < base
        or (base != NO_TIMESTAMP and now_ms - base > config.message_timestamp_before_max_ms)
        or largest - now_ms > config.message_timestamp_after_max_ms
    )


def decode(batch: RecordBatch) -> list[Record]:
    """The records of a client's batch; what cannot be decoded is INVALID_RECORD."""
    try:
        return list(iter_records(batch))
    except (InvalidRecordsError, CompressionError) as error:
        raise KafkaError(ErrorCode.INVALID_RECORD, f"The batch cannot be decoded: {error}") from None
    except CodecUnavailableError as error:
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, str(error)) from None


def _checked_records(batch: RecordBatch, config: LogConfig, now_ms: int) -> list[Record]:
    """The records, each checked as Apache Kafka's LogValidator does."""
    records = decode(batch)
    errors: list[tuple[int, str]] = []
    bad_timestamp = False
    create_time = config.message_timestamp_type == "CreateTime"
    before, after = config.message_timestamp_before_max_ms, config.message_timestamp_after_max_ms
    for index, record in enumerate(records):
        if config.compacted and record.key is None:
            errors.append((index, "Compacted topic cannot accept message without key"))
        elif create_time and record.timestamp != NO_TIMESTAMP:
            if now_ms - record.timestamp > before or record.timestamp - now_ms > after:
                bad_timestamp = True
                errors.append(
                    (
                        index,
                        f"Timestamp {record.timestamp} of message with offset {record.offset} is out of range. "
                        f"The timestamp should be within [{now_ms - before}, {now_ms + after}]",
                    )
                )
        elif batch.timestamp_type == LOG_APPEND_TIME:
            bad_timestamp = True
            errors.append((index, "Invalid timestamp type. Producer should not set timestamp type to LogAppendTime."))
    if bad_timestamp:
        raise InvalidRecordBatchError(
            ErrorCode.INVALID_TIMESTAMP, "One or more records have been rejected due to invalid timestamp", errors
        )
    if errors:
        shown = "; ".join(f"record {index}: {text}" for index, text in errors[:_RECORD_ERRORS_SHOWN])
        raise InvalidRecordBatchError(
            ErrorCode.INVALID_RECORD,
            f"One or more records have been rejected due to {len(errors)} record errors in total, and only showing the "
            f"first three errors at most: {shown}",
            errors,
        )
    return records


def _with_true_timestamps(batch: RecordBatch, records: list[Record], config: LogConfig) -> RecordBatch:
    """The batch with CreateTime and the true largest timestamp in its header."""
    if config.message_timestamp_type != "CreateTime":
        return batch
    largest = max(record.timestamp for record in records)
    if batch.timestamp_type != LOG_APPEND_TIME and batch.max_timestamp == largest:
        return batch
    header = with_timestamps(batch, largest, log_append_time=False)
    return _parse(header + bytes(batch.data[BATCH_OVERHEAD:]))


def with_timestamps(batch: RecordBatch, max_timestamp: int, *, log_append_time: bool) -> bytes:
    """The batch's 61 header bytes with another largest timestamp and timestamp type, and the CRC that follows.

    As in Apache Kafka, attributes that mean nothing are dropped on this occasion.
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
    crc = crc32c(batch.data[BATCH_OVERHEAD:], crc32c(header[ATTRIBUTES_POSITION:]))
    header[ATTRIBUTES_POSITION - 4 : ATTRIBUTES_POSITION] = crc.to_bytes(4, "big")
    return bytes(header)


def _rebuild(batch: RecordBatch, records: list[Record], config: LogConfig) -> bytes:
    codec = target_codec(config)
    codec = Codec(batch.codec) if codec is None else codec
    levels = {
        Codec.GZIP: config.compression_gzip_level,
        Codec.LZ4: config.compression_lz4_level,
        Codec.ZSTD: config.compression_zstd_level,
    }
    try:
        return build_batch(
            records,
            codec=codec,
            level=levels.get(codec),
            producer_id=batch.producer_id,
            producer_epoch=batch.producer_epoch,
            base_sequence=batch.base_sequence,
            transactional=batch.is_transactional,
        )
    except CodecUnavailableError as error:
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, str(error)) from None

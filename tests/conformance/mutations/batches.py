"""Changes of the record batches in Produce requests and Fetch responses."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from moldau.protocol.checksum import crc32c
from moldau.protocol.compression import CompressionError
from moldau.protocol.records import (
    ATTRIBUTES_POSITION,
    CRC_POSITION,
    InvalidRecordsError,
    Record,
    RecordBatch,
    build_batch,
    iter_batches,
    iter_records,
)

LEADER_EPOCH_AT = 12
TIMESTAMP_AT = 27
MAX_TIMESTAMP_AT = 35
PRODUCER_ID_AT = 43
PRODUCER_EPOCH_AT = 51
SEQUENCE_AT = 53

Change = Callable[[Any], Any]


def per_batch(change: Callable[[bytes], bytes], *, damaged: bool = False) -> Change:
    """For a field with records: each whole batch is changed; if `damaged`, also with a wrong CRC."""

    def changed(old: Any) -> Any:
        if not old:
            return old
        data = bytes(old)
        try:
            batches = list(iter_batches(data))
        except ValueError:
            return old
        rest = data[sum(batch.size for batch in batches) :]
        parts = [change(bytes(each.data)) if damaged or each.has_valid_crc() else bytes(each.data) for each in batches]
        return b"".join([*parts, rest])

    return changed


def without_last_batch(old: Any) -> Any:
    """The batches of a response without the last one."""
    if not old:
        return old
    batches = [bytes(batch.data) for batch in iter_batches(bytes(old))]
    return b"".join(batches[:-1])


def without_first_batch(old: Any) -> Any:
    """The batches of a response without the first one."""
    if not old:
        return old
    batches = [bytes(batch.data) for batch in iter_batches(bytes(old))]
    return b"".join(batches[1:])


def field(form: str, position: int, change: Callable[[int], int], *, with_crc: bool = True) -> Change:
    """One field of the header of each batch, with the CRC that belongs to it."""

    def changed(batch: bytes) -> bytes:
        result = bytearray(batch)
        (old,) = struct.unpack_from(f">{form}", result, position)
        struct.pack_into(f">{form}", result, position, change(old))
        return with_valid_crc(bytes(result)) if with_crc else bytes(result)

    return per_batch(changed)


def with_valid_crc(batch: bytes) -> bytes:
    result = bytearray(batch)
    struct.pack_into(">I", result, CRC_POSITION, crc32c(memoryview(result)[ATTRIBUTES_POSITION:]))
    return bytes(result)


def last_byte_inverted(batch: bytes) -> bytes:
    return batch[:-1] + bytes((batch[-1] ^ 1,))


def per_record(change: Callable[[Record], Record | None], *, codec: int | None = None) -> Change:
    """Each record of batches without control records; None removes it. The header remains."""

    def changed(data: bytes) -> bytes:
        (batch,) = iter_batches(data)
        if batch.is_control:
            return data
        try:
            records = list(iter_records(batch))
        except (InvalidRecordsError, CompressionError):
            return data
        return _rebuilt(batch, [new for old in records if (new := change(old)) is not None], codec)

    return per_batch(changed)


def reversed_values(data: bytes) -> bytes:
    """The values of a batch in the reverse order, at the same offsets."""
    (batch,) = iter_batches(data)
    try:
        records = list(iter_records(batch))
    except (InvalidRecordsError, CompressionError):
        return data
    return _rebuilt(
        batch, [old._replace(value=new.value) for old, new in zip(records, records[::-1], strict=True)], None
    )


def _rebuilt(batch: RecordBatch, records: list[Record], codec: int | None) -> bytes:
    return build_batch(
        records,
        base_offset=batch.base_offset,
        keep_offsets=True,
        last_offset_delta=batch.last_offset_delta,
        leader_epoch=struct.unpack_from(">i", batch.data, LEADER_EPOCH_AT)[0],
        codec=batch.codec if codec is None else codec,
        log_append_time_ms=batch.max_timestamp if batch.timestamp_type else None,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
        transactional=batch.is_transactional,
    )

"""Encoding and decoding of the batches of the metadata log and of its snapshots.

Metadata records are stored in ordinary batches. The value of each record is one frame (`records.py`); there is no key.
Control batches hold the records of raft itself (KIP-595, KIP-630, KIP-853): key (version int16, type int16), value a
message of `protocol.messages.control_records`:

    type 2  LeaderChange      the first record of every epoch
         3  SnapshotHeader    the first record of a snapshot
         4  SnapshotFooter    the last record of a snapshot, without which it is incomplete
         5  KRaftVersion      the finalized kraft.version
         6  KRaftVoters       the voters, with directories and endpoints
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from struct import Struct as Layout
from typing import TYPE_CHECKING, Final

from ..protocol.codec import decode, encode
from ..protocol.errors import MalformedMessage, UnsupportedVersion
from ..protocol.messages.control_records import (
    KRaftVersionRecord,
    LeaderChangeMessage,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)
from ..protocol.named_tuples import NamedTuple
from ..protocol.records import (
    CompressionError,
    InvalidRecordsError,
    Record,
    RecordBatch,
    append_record,
    batch_of_body,
    build_batch,
    iter_batches,
    iter_records,
)
from ..protocol.steps import completed
from .records import MetadataRecord, decode_record, encode_record

if TYPE_CHECKING:
    from ..protocol.steps import Steps
    from .outcome import Versioned

ControlRecord = LeaderChangeMessage | SnapshotHeaderRecord | SnapshotFooterRecord | KRaftVersionRecord | VotersRecord

_CONTROL_KEY: Final = Layout(">hh")
_CONTROL_TYPES: Final[dict[type, int]] = {
    LeaderChangeMessage: 2,
    SnapshotHeaderRecord: 3,
    SnapshotFooterRecord: 4,
    KRaftVersionRecord: 5,
    VotersRecord: 6,
}
_CONTROL_RECORDS: Final = {number: cls for cls, number in _CONTROL_TYPES.items()}

MAX_BATCH_BYTES: Final = 8 * 1024 * 1024
"""The largest batch that KRaft writes and reads, in bytes."""


_RECORDS_PER_STEP: Final = 100


class MetadataLogError(Exception):
    """The metadata log or a snapshot cannot be read: it is damaged, or its format is newer than this software."""


class DamagedError(MetadataLogError):
    """The stored bytes are corrupt or truncated. An older snapshot with the log after it may contain the same state."""


class MetadataBatch(NamedTuple):
    """One decoded batch. Only one of `control` and `records` is not empty."""

    base_offset: int
    next_offset: int
    epoch: int
    timestamp_ms: int
    control: Sequence[ControlRecord]
    records: Sequence[MetadataRecord]


def control_batch(records: Iterable[ControlRecord], *, base_offset: int, epoch: int, timestamp_ms: int) -> bytes:
    """A control batch of these records."""
    return build_batch(
        [
            Record(
                timestamp=timestamp_ms, key=_CONTROL_KEY.pack(0, _CONTROL_TYPES[type(record)]), value=encode(record, 0)
            )
            for record in records
        ],
        base_offset=base_offset,
        leader_epoch=epoch,
        control=True,
    )


def metadata_batches(
    records: Iterable[Versioned], *, base_offset: int, epoch: int, timestamp_ms: int, max_records: int
) -> Iterator[tuple[int, bytes]]:
    """Batches of these records with the number of records in each: as few as `max_records` and the size permit."""
    steps = metadata_batches_in_steps(
        records, base_offset=base_offset, epoch=epoch, timestamp_ms=timestamp_ms, max_records=max_records
    )
    return (batch for batch in steps if batch is not None)


def metadata_batches_in_steps(
    records: Iterable[Versioned], *, base_offset: int, epoch: int, timestamp_ms: int, max_records: int
) -> Iterator[tuple[int, bytes] | None]:
    """The same, with None yielded at intervals."""
    parts: list[bytes] = []
    count = size = 0

    def batch() -> tuple[int, bytes]:
        data = batch_of_body(
            b"".join(parts), count, timestamp=timestamp_ms, base_offset=base_offset, leader_epoch=epoch
        )
        return count, data

    for versioned in records:
        value = encode_record(versioned.record, versioned.version)
        if count and (count == max_records or size + len(value) > MAX_BATCH_BYTES - 1024):
            yield batch()
            base_offset += count
            parts.clear()
            count = size = 0
        append_record(parts, Record(timestamp=timestamp_ms, value=value), 0, count)
        count += 1
        size += len(value) + 32
        if not count % _RECORDS_PER_STEP:
            yield None
    if count:
        yield batch()


def read_batches(data: bytes | bytearray | memoryview, *, what: str) -> Iterator[MetadataBatch]:
    """The complete batches in `data`, decoded. `what` names the source in the MetadataLogError for malformed bytes."""
    for batch in checked_batches(data, what=what):
        yield decode_batch(batch, what=what)


def checked_batches(data: bytes | bytearray | memoryview, *, what: str) -> Iterator[RecordBatch]:
    """The complete batches in `data`, whose CRC matches. `what`: see `read_batches`."""
    try:
        for batch in iter_batches(data):
            if not batch.has_valid_crc():
                raise DamagedError(
                    f"{what} is corrupt: the CRC of the batch at offset {batch.base_offset} does not match"
                )
            yield batch
    except InvalidRecordsError as error:
        raise DamagedError(f"{what} is corrupt: {error}") from None


def decode_batch(batch: RecordBatch, *, what: str) -> MetadataBatch:
    """The records of a batch. `what` names the source in the MetadataLogError for unreadable records."""
    return completed(decode_batch_in_steps(batch, what=what))


def decode_batch_in_steps(batch: RecordBatch, *, what: str) -> Steps[MetadataBatch]:
    """The same, in steps: a batch may have thousands of records."""
    try:
        return (yield from _decode(batch))
    except (InvalidRecordsError, CompressionError) as error:
        raise DamagedError(f"{what} is corrupt: {error}") from None
    except (MalformedMessage, UnsupportedVersion) as error:
        place = f"the batch at offset {batch.base_offset}"
        raise MetadataLogError(
            f"{what} contains a record that this version cannot decode, in {place}: {error}"
        ) from None


def _decode(batch: RecordBatch) -> Steps[MetadataBatch]:
    control: list[ControlRecord] = []
    records: list[MetadataRecord] = []
    for count, record in enumerate(iter_records(batch), 1):
        if not count % _RECORDS_PER_STEP:
            yield 0
        if batch.is_control:
            control.append(_decode_control(record))
        else:
            records.append(decode_record(bytes(record.value or b""))[0])
    return MetadataBatch(
        batch.base_offset,
        batch.next_offset,
        batch.partition_leader_epoch,
        batch.max_timestamp,
        control,
        records,
    )


def _decode_control(record: Record) -> ControlRecord:
    key = record.key or b""
    if len(key) < _CONTROL_KEY.size or record.value is None:
        raise MalformedMessage("a control record without key or value", 0)
    cls = _CONTROL_RECORDS.get(_CONTROL_KEY.unpack_from(key)[1])
    if cls is None:
        raise UnsupportedVersion(f"unknown control record type {_CONTROL_KEY.unpack_from(key)[1]}")
    # Each of them begins with its own version.
    version = int.from_bytes(record.value[:2], "big", signed=True)
    decoded: ControlRecord = decode(cls, record.value, version)
    return decoded

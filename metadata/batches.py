"""Batches of the metadata log and of its snapshots, from records and back.

Metadata records lie in ordinary batches, one frame (`records.py`) as the value of each record, without a key. Control
batches hold what raft itself has to say (KIP-595, KIP-630, KIP-853): key (version int16, type int16), value a message
of `protocol.messages.control_records`:

    type 2  LeaderChange      the first record of every epoch
         3  SnapshotHeader    the first record of a snapshot
         4  SnapshotFooter    its last one, without which the snapshot is not whole
         5  KRaftVersion      the finalized kraft.version
         6  KRaftVoters       the voters, with directories and endpoints
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from struct import Struct as Layout
from typing import TYPE_CHECKING, Final, NamedTuple

from ..protocol.codec import decode, encode
from ..protocol.errors import MalformedMessage, UnsupportedVersion
from ..protocol.messages.control_records import (
    KRaftVersionRecord,
    LeaderChangeMessage,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)
from ..protocol.records import (
    CompressionError,
    InvalidRecordsError,
    Record,
    RecordBatch,
    build_batch,
    iter_batches,
    iter_records,
)
from .records import MetadataRecord, decode_record, encode_record

if TYPE_CHECKING:
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
"""The largest batch that KRaft writes, and reads."""


class MetadataLogError(Exception):
    """The metadata log or a snapshot cannot be read: damaged, or written by something newer than this."""


class DamagedError(MetadataLogError):
    """What was written has changed or is cut off. An older copy, where there is one, says the same."""


class MetadataBatch(NamedTuple):
    """One batch, decoded: `control` or `records`, never both."""

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
    """Batches of these records, each with the number of its records: as few as `max_records` and the size allow."""
    values: list[Record] = []
    size = 0
    for versioned in records:
        value = encode_record(versioned.record, versioned.version)
        if values and (len(values) == max_records or size + len(value) > MAX_BATCH_BYTES - 1024):
            yield len(values), build_batch(values, base_offset=base_offset, leader_epoch=epoch)
            base_offset += len(values)
            values, size = [], 0
        values.append(Record(timestamp=timestamp_ms, value=value))
        size += len(value) + 32
    if values:
        yield len(values), build_batch(values, base_offset=base_offset, leader_epoch=epoch)


def read_batches(data: bytes | bytearray | memoryview, *, what: str) -> Iterator[MetadataBatch]:
    """The whole batches in `data`, decoded. `what` is named in the MetadataLogError for bytes that are none."""
    try:
        for batch in iter_batches(data):
            if not batch.has_valid_crc():
                raise DamagedError(f"{what} is damaged: the checksum of the batch at offset {batch.base_offset}")
            yield decode_batch(batch, what=what)
    except InvalidRecordsError as error:
        raise DamagedError(f"{what} is damaged: {error}") from None


def decode_batch(batch: RecordBatch, *, what: str) -> MetadataBatch:
    """The records of a batch. `what` is named in the MetadataLogError for records that cannot be read."""
    try:
        return _decode(batch)
    except (InvalidRecordsError, CompressionError) as error:
        raise DamagedError(f"{what} is damaged: {error}") from None
    except (MalformedMessage, UnsupportedVersion) as error:
        place = f"the batch at offset {batch.base_offset}"
        raise MetadataLogError(f"{what} holds what this version cannot read, in {place}: {error}") from None


def _decode(batch: RecordBatch) -> MetadataBatch:
    control: list[ControlRecord] = []
    records: list[MetadataRecord] = []
    for record in iter_records(batch):
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
        raise UnsupportedVersion(f"there is no control record of type {_CONTROL_KEY.unpack_from(key)[1]}")
    # Every one of them begins with its own version.
    version = int.from_bytes(record.value[:2], "big", signed=True)
    decoded: ControlRecord = decode(cls, record.value, version)
    return decoded

"""The contents of the files of a log directory, as facts: dictionaries that are printed as JSON or as text.

Damage is a fact like any other, with its position, and reading continues after it where possible. Every fact has a
``kind``; facts about damage have a ``problem``.
"""

import mmap
from collections.abc import Callable, Iterator
from copy import copy
from pathlib import Path
from struct import Struct as Layout
from typing import Any, Final

from ..coordinator.outcome import Record as CoordinatorRecord
from ..log import names
from ..log.checkpoints import (
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    META_PROPERTIES,
    RECOVERY_POINT_CHECKPOINT,
    CorruptCheckpointError,
    decode_leader_epochs,
    decode_offsets,
    decode_partition_metadata,
    decode_properties,
)
from ..log.producer_state import CorruptSnapshotError, ProducerState, read_end_transaction_marker
from ..metadata.topic_names import CONSUMER_OFFSETS, TRANSACTION_STATE
from ..protocol.compression import Codec, CodecUnavailableError, CompressionError
from ..protocol.errors import MalformedMessage
from ..protocol.records import (
    LOG_APPEND_TIME,
    NO_PRODUCER_ID,
    InvalidRecordsError,
    Record,
    RecordBatch,
    iter_batches,
    iter_records,
    read_batch_header,
)
from ..protocol.schema import Struct
from ..protocol.uuid import uuid_to_str
from .output import binary_as_json

Fact = dict[str, Any]

_CHECKPOINT: Final = ".checkpoint"
_OFFSET_ENTRY: Final = Layout(">ii")
_TIME_ENTRY: Final = Layout(">qi")
_ABORTED_ENTRY: Final = Layout(">hqqqq")


class NotDumpableError(Exception):
    """The file is not a known file of a log directory; the message lists the known ones."""


def dump(path: Path, *, records: bool) -> Iterator[Fact]:
    """The facts in a file, whose name determines the format; with ``records``, including the records of batches.

    Raises NotDumpableError for an unknown file name, OSError for a file that cannot be read.
    """
    return _reader(path.name)(path, records)


def _reader(name: str) -> Callable[[Path, bool], Iterator[Fact]]:
    stem = name.removesuffix(names.DELETED).removesuffix(names.CLEANED).removesuffix(names.SWAP)
    if stem in _BY_NAME:
        return _BY_NAME[stem]
    for suffix, reader in _BY_SUFFIX.items():
        if stem.endswith(suffix):
            return reader
    known = ", ".join([*_BY_SUFFIX, *_BY_NAME])
    raise NotDumpableError(f"cannot dump {name}: not a file of a log directory; known files: {known}")


def _dump_batches(path: Path, records: bool) -> Iterator[Fact]:
    decode = _decoder_of_records(path)
    with _mapped(path) as data:
        position = 0
        while position < len(data):
            try:
                header = read_batch_header(data, position)
            except InvalidRecordsError as error:
                yield _rest(data, position, str(error))
                return
            if position + header.size > len(data):
                yield _rest(data, position, f"the batch is truncated; its length is {header.size} bytes")
                return
            batch = next(iter_batches(data[position : position + header.size]))
            yield _batch_fact(batch, position)
            if records and batch.has_valid_crc():
                yield from decode(batch)
            position += header.size


def _decoder_of_records(path: Path) -> Callable[[RecordBatch], Iterator[Fact]]:
    """The decoder of a file's records, chosen by the topic in the name of the file's folder."""
    folder = path.absolute().parent.name
    if path.name.endswith(_CHECKPOINT) or folder.startswith(names.METADATA_TOPIC):
        return lambda batch: _metadata_facts(batch, path)
    if folder.startswith(f"{CONSUMER_OFFSETS}-"):
        return lambda batch: _record_facts(batch, group_fact)
    if folder.startswith(f"{TRANSACTION_STATE}-"):
        return lambda batch: _record_facts(batch, transaction_fact)
    return _record_facts


def _rest(data: memoryview, position: int, reason: str) -> Fact:
    left = len(data) - position
    # Preallocated space is not damage: a segment may be larger than the data written to it.
    if _is_zeros(data, position):
        return {"kind": "unused", "position": position, "bytes": left}
    return {"kind": "damage", "position": position, "bytes": left, "problem": reason}


def _is_zeros(data: memoryview, position: int) -> bool:
    """Whether all bytes from ``position`` on are zero. Compared in chunks, because there may be gigabytes."""
    zeros = bytes(1 << 16)
    return all(
        (piece := bytes(data[start : start + len(zeros)])) == zeros[: len(piece)]
        for start in range(position, len(data), len(zeros))
    )


def _batch_fact(batch: RecordBatch, position: int) -> Fact:
    fact: Fact = {
        "kind": "batch",
        "position": position,
        "bytes": batch.size,
        "base_offset": batch.base_offset,
        "last_offset": batch.last_offset,
        "records": batch.record_count,
        "leader_epoch": batch.partition_leader_epoch,
        "codec": Codec(batch.codec).name.lower() if batch.codec in tuple(Codec) else batch.codec,
        "timestamp_type": "LogAppendTime" if batch.timestamp_type == LOG_APPEND_TIME else "CreateTime",
        "max_timestamp": batch.max_timestamp,
        "producer_id": batch.producer_id if batch.producer_id != NO_PRODUCER_ID else None,
        "producer_epoch": batch.producer_epoch if batch.producer_id != NO_PRODUCER_ID else None,
        "base_sequence": batch.base_sequence if batch.producer_id != NO_PRODUCER_ID else None,
        "last_sequence": batch.last_sequence if batch.producer_id != NO_PRODUCER_ID else None,
        "transactional": batch.is_transactional,
        "control": batch.is_control,
        "crc": batch.crc,
    }
    if not batch.has_valid_crc():
        fact["problem"] = "the CRC does not match"
    return fact


def record_fact(record: Record) -> Fact:
    """A record of a batch, with the field names of `moldau consume --json`."""
    return {
        "kind": "record",
        "offset": record.offset,
        "timestamp": record.timestamp,
        **binary_as_json("key", record.key),
        **binary_as_json("value", record.value),
        "headers": [{"name": name, **binary_as_json("value", value)} for name, value in record.headers],
    }


def group_fact(record: Record) -> Fact:
    """A record of ``__consumer_offsets``; a record of an unknown type as bytes."""
    from ..group_coordinator.records import decode_record

    return _coordinator_fact(record, "group", decode_record)


def transaction_fact(record: Record) -> Fact:
    """A record of ``__transaction_state``, with the name of the transaction's state."""
    from ..transaction_coordinator.records import decode_record
    from ..transaction_coordinator.transaction import TransactionStatus

    fact = _coordinator_fact(record, "transaction", decode_record)
    if fact["kind"] == "transaction" and fact["value"] is not None:
        fact["state"] = TransactionStatus(fact["value"]["transaction_status"]).state_name
        fact["text"] = f"{fact['state']}  {fact['text']}"
    return fact


def _coordinator_fact(
    record: Record, kind: str, decode: Callable[[bytes, bytes | None], CoordinatorRecord | None]
) -> Fact:
    from ..protocol.struct_json import struct_as_json, struct_as_text

    try:
        decoded = decode(record.key or b"", record.value)
    except MalformedMessage as error:
        return {**record_fact(record), "problem": f"cannot decode the {kind} record: {error}"}
    if decoded is None:
        return record_fact(record)
    key, value, version = decoded
    return {
        "kind": kind,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "type": type(key).__name__.removesuffix("Key"),
        "key": struct_as_json(key),
        "value": None if value is None else struct_as_json(value),
        "value_version": None if value is None else version,
        "text": f"{struct_as_text(key)}  {'deleted' if value is None else struct_as_text(value)}",
    }


def _record_facts(batch: RecordBatch, as_fact: Callable[[Record], Fact] = record_fact) -> Iterator[Fact]:
    marker = read_end_transaction_marker(batch) if batch.is_control else None
    try:
        for record in iter_records(batch):
            fact = as_fact(record) if marker is None else record_fact(record)
            if marker is not None:
                fact["marker"] = "COMMIT" if marker.committed else "ABORT"
                fact["coordinator_epoch"] = marker.coordinator_epoch
            yield fact
    except (InvalidRecordsError, CompressionError, CodecUnavailableError) as error:
        yield {"kind": "damage", "base_offset": batch.base_offset, "problem": f"cannot read the records: {error}"}


def _metadata_facts(batch: RecordBatch, path: Path) -> Iterator[Fact]:
    from ..metadata.batches import MetadataLogError, decode_batch
    from ..protocol.struct_json import struct_as_json, struct_as_text

    try:
        decoded = decode_batch(batch, what=path.name)
    except MetadataLogError as error:
        yield {"kind": "damage", "base_offset": batch.base_offset, "problem": str(error)}
        return
    for offset, found in enumerate((*decoded.control, *decoded.records), batch.base_offset):
        record = _without_secrets(found)
        yield {
            "kind": "metadata",
            "offset": offset,
            "type": type(record).__name__,
            "fields": struct_as_json(record),
            "text": struct_as_text(record),
        }


def _without_secrets(record: Struct) -> Struct:
    """A metadata record whose passwords and keys are hidden: dumps are shown to others."""
    from ..config.broker import setting_behind
    from ..metadata.image import BROKER_RESOURCE
    from ..metadata.records import ConfigRecord, UserScramCredentialRecord

    if isinstance(record, UserScramCredentialRecord):
        shown = copy(record)
        shown.salt = shown.stored_key = shown.server_key = b""
        return shown
    if isinstance(record, ConfigRecord) and record.resource_type == BROKER_RESOURCE and record.value is not None:
        setting = setting_behind(record.name)
        if setting is None or setting.is_sensitive:  # of unknown settings, nothing is known
            shown_config = copy(record)
            shown_config.value = "[hidden]"
            return shown_config
    return record


def _dump_offset_index(path: Path, records: bool) -> Iterator[Fact]:
    base_offset = _base_offset(path)
    batches = _BatchesByPosition(path)
    previous = -1
    for number, (relative_offset, position) in enumerate(_entries(path, _OFFSET_ENTRY)):
        if relative_offset <= previous or (number == 0 and relative_offset == 0 == position):
            # Apache Kafka preallocates the index of an active segment with zeros after the entries.
            if relative_offset or position:
                yield {"kind": "damage", "entry": number, "problem": "the index entries are out of order"}
            return
        previous = relative_offset
        offset = base_offset + relative_offset
        fact: Fact = {"kind": "offset index entry", "offset": offset, "position": position}
        problem = batches.problem_at(position, offset)
        yield fact if problem is None else {**fact, "problem": problem}


def _dump_time_index(path: Path, records: bool) -> Iterator[Fact]:
    base_offset = _base_offset(path)
    previous = -1
    for number, (timestamp, relative_offset) in enumerate(_entries(path, _TIME_ENTRY)):
        if timestamp <= previous or (number == 0 and timestamp == 0 == relative_offset):
            if timestamp or relative_offset:
                yield {"kind": "damage", "entry": number, "problem": "the index entries are out of order"}
            return
        previous = timestamp
        yield {"kind": "time index entry", "timestamp": timestamp, "offset": base_offset + relative_offset}


def _dump_transaction_index(path: Path, records: bool) -> Iterator[Fact]:
    for version, producer_id, first_offset, last_offset, last_stable_offset in _entries(path, _ABORTED_ENTRY):
        yield {
            "kind": "aborted transaction",
            "version": version,
            "producer_id": producer_id,
            "first_offset": first_offset,
            "last_offset": last_offset,
            "last_stable_offset": last_stable_offset,
        }


def _dump_producer_snapshot(path: Path, records: bool) -> Iterator[Fact]:
    state = ProducerState()
    try:
        state.load_snapshot(path.read_bytes())
    except CorruptSnapshotError as error:
        yield {"kind": "damage", "problem": str(error)}
        return
    for entry in state:
        open_transaction = entry.transaction_first_offset
        yield {
            "kind": "producer",
            "producer_id": entry.producer_id,
            "producer_epoch": entry.epoch,
            "last_sequence": entry.last_sequence,
            "last_offset": entry.last_offset,
            "last_timestamp": entry.last_timestamp,
            "coordinator_epoch": entry.coordinator_epoch,
            "open_transaction_first_offset": open_transaction if open_transaction >= 0 else None,
        }


def _dump_offsets(path: Path, records: bool) -> Iterator[Fact]:
    for (topic, partition), offset in decode_offsets(path.read_bytes(), path.name).items():
        yield {"kind": "offset", "topic": topic, "partition": partition, "offset": offset}


def _dump_leader_epochs(path: Path, records: bool) -> Iterator[Fact]:
    for epoch, start_offset in decode_leader_epochs(path.read_bytes(), path.name):
        yield {"kind": "leader epoch", "epoch": epoch, "start_offset": start_offset}


def _dump_partition_metadata(path: Path, records: bool) -> Iterator[Fact]:
    yield {"kind": "partition", "topic_id": uuid_to_str(decode_partition_metadata(path.read_bytes(), path.name))}


def _dump_properties(path: Path, records: bool) -> Iterator[Fact]:
    yield {"kind": "properties", **decode_properties(path.read_bytes())}


def _reporting_corruption(reader: Callable[[Path, bool], Iterator[Fact]]) -> Callable[[Path, bool], Iterator[Fact]]:
    def read(path: Path, records: bool) -> Iterator[Fact]:
        try:
            yield from reader(path, records)
        except CorruptCheckpointError as error:
            yield {"kind": "damage", "problem": str(error)}

    return read


_BY_NAME: Final[dict[str, Callable[[Path, bool], Iterator[Fact]]]] = {
    RECOVERY_POINT_CHECKPOINT: _reporting_corruption(_dump_offsets),
    LOG_START_OFFSET_CHECKPOINT: _reporting_corruption(_dump_offsets),
    HIGH_WATERMARK_CHECKPOINT: _reporting_corruption(_dump_offsets),
    names.LEADER_EPOCH_CHECKPOINT: _reporting_corruption(_dump_leader_epochs),
    names.PARTITION_METADATA: _reporting_corruption(_dump_partition_metadata),
    META_PROPERTIES: _reporting_corruption(_dump_properties),
}
_BY_SUFFIX: Final[dict[str, Callable[[Path, bool], Iterator[Fact]]]] = {
    names.LOG: _dump_batches,
    _CHECKPOINT: _dump_batches,
    names.OFFSET_INDEX: _dump_offset_index,
    names.TIME_INDEX: _dump_time_index,
    names.TRANSACTION_INDEX: _dump_transaction_index,
    names.PRODUCER_SNAPSHOT: _dump_producer_snapshot,
}


class _mapped:  # noqa: N801 - used like a function
    """A file's bytes, memory-mapped; empty for an empty file, which cannot be mapped."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")
        self._map: mmap.mmap | None = None

    def __enter__(self) -> memoryview:
        if self._file.seek(0, 2) == 0:
            return memoryview(b"")
        self._map = mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)
        return memoryview(self._map)

    def __exit__(self, *_: object) -> None:
        # The map is closed with its last view; closing it earlier would raise BufferError.
        self._file.close()


class _BatchesByPosition:
    """The batches of the segment that belongs to an index, to check the index entries."""

    def __init__(self, index_path: Path) -> None:
        log_path = index_path.with_suffix(names.LOG)
        self._data = memoryview(log_path.read_bytes()) if log_path.is_file() else None

    def problem_at(self, position: int, offset: int) -> str | None:
        """Why the entry from ``offset`` to ``position`` is wrong; None if it is right or there is no segment."""
        if self._data is None:
            return None
        try:
            batch = next(iter_batches(self._data[position:]), None)
        except InvalidRecordsError:
            batch = None
        if batch is None:
            return "no batch starts at this position of the segment"
        if not batch.base_offset <= offset <= batch.last_offset:
            return "the batch at this position does not contain this offset"
        return None


def _base_offset(path: Path) -> int:
    parsed = names.parse_offset_file_name(path.name)
    return 0 if parsed is None else parsed[0]


def _entries(path: Path, layout: Layout) -> Iterator[tuple[int, ...]]:
    data = path.read_bytes()
    yield from layout.iter_unpack(data[: len(data) // layout.size * layout.size])

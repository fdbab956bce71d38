"""Snapshots of the metadata log: `<end offset, 20 digits>-<epoch, 10 digits>.checkpoint` (KIP-630).

A snapshot represents all records before its end offset. It is a file of batches, like a segment, with separate offsets
that start at 0:

    control batch   SnapshotHeader (timestamp of the last contained record), KRaftVersion, KRaftVoters
    batches         records that define the image
    control batch   SnapshotFooter

Formatting a directory creates two: `00000000000000000000-0000000000.checkpoint` next to the log contains no metadata,
but names the first voter (KIP-853). `bootstrap.checkpoint` in the parent directory contains the records that the first
leader writes to the log (KIP-778), and no voters.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from ..protocol.messages.control_records import (
    KRaftVersionRecord,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)
from ..protocol.named_tuples import NamedTuple
from ..protocol.steps import completed
from .batches import (
    ControlRecord,
    DamagedError,
    checked_batches,
    control_batch,
    decode_batch_in_steps,
    metadata_batches,
)
from .outcome import MAX_RECORDS_PER_REQUEST

if TYPE_CHECKING:
    from ..protocol.steps import Steps
    from .outcome import Versioned
    from .records import MetadataRecord

BOOTSTRAP_FILE: Final = "bootstrap.checkpoint"
_NAME: Final = re.compile(r"(\d{20})-(\d{10})\.checkpoint\Z")


class SnapshotId(NamedTuple):
    """The offset after the last record that a snapshot contains, and that record's epoch."""

    end_offset: int
    epoch: int

    @property
    def file_name(self) -> str:
        return f"{self.end_offset:020d}-{self.epoch:010d}.checkpoint"


class Snapshot(NamedTuple):
    """The content of a snapshot. Without a KRaftVersion record the version is 0, and there are no voters."""

    last_contained_timestamp_ms: int
    kraft_version: int
    voters: VotersRecord | None
    records: Sequence[MetadataRecord]


def parse_file_name(name: str) -> SnapshotId | None:
    """The snapshot with this file name; None for any other file."""
    match = _NAME.match(name)
    return SnapshotId(int(match[1]), int(match[2])) if match else None


def encode_snapshot(
    records: Iterable[Versioned],
    *,
    epoch: int,
    timestamp_ms: int,
    last_contained_timestamp_ms: int,
    voters: VotersRecord | None,
) -> bytes:
    """The content of a snapshot file. With voters, it includes their kraft.version, which is 1."""
    return b"".join(
        snapshot_batches(
            records,
            epoch=epoch,
            timestamp_ms=timestamp_ms,
            last_contained_timestamp_ms=last_contained_timestamp_ms,
            voters=voters,
            max_records=MAX_RECORDS_PER_REQUEST,
        )
    )


def snapshot_batches(
    records: Iterable[Versioned],
    *,
    epoch: int,
    timestamp_ms: int,
    last_contained_timestamp_ms: int,
    voters: VotersRecord | None,
    max_records: int,
) -> Iterator[bytes]:
    """The same in pieces: the header, batches of at most `max_records`, the footer."""
    header: list[ControlRecord] = [
        SnapshotHeaderRecord(version=0, last_contained_log_timestamp=last_contained_timestamp_ms)
    ]
    if voters is not None:
        header += [KRaftVersionRecord(version=0, kraft_version=1), voters]
    yield control_batch(header, base_offset=0, epoch=epoch, timestamp_ms=timestamp_ms)
    offset = len(header)
    for count, batch in metadata_batches(
        records, base_offset=offset, epoch=epoch, timestamp_ms=timestamp_ms, max_records=max_records
    ):
        yield batch
        offset += count
    footer = SnapshotFooterRecord(version=0)
    yield control_batch([footer], base_offset=offset, epoch=epoch, timestamp_ms=timestamp_ms)


def decode_snapshot(data: bytes, *, name: str) -> Snapshot:
    """The content of a snapshot file. Raises MetadataLogError if it is damaged or incomplete."""
    return completed(decode_snapshot_in_steps(data, name=name))


def decode_snapshot_in_steps(data: bytes, *, name: str) -> Steps[Snapshot]:
    """The same, in steps."""
    header: SnapshotHeaderRecord | None = None
    is_whole = False
    kraft_version = 0
    voters: VotersRecord | None = None
    records: list[MetadataRecord] = []
    for stored in checked_batches(data, what=name):
        batch = yield from decode_batch_in_steps(stored, what=name)
        records += batch.records
        for record in batch.control:
            match record:
                case SnapshotHeaderRecord():
                    header = record
                case SnapshotFooterRecord():
                    is_whole = True
                case KRaftVersionRecord():
                    kraft_version = record.kraft_version
                case VotersRecord():
                    voters = record
    if header is None or not is_whole:
        raise DamagedError(f"{name} is incomplete: the {'footer' if header else 'header'} is missing")
    return Snapshot(header.last_contained_log_timestamp, kraft_version, voters, records)

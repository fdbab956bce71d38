"""Snapshots of the metadata log: `<end offset, 20 digits>-<epoch, 10 digits>.checkpoint` (KIP-630).

A snapshot stands for all records before its end offset. It is a file of batches, as a segment is, with offsets of its
own that start at 0:

    control batch   SnapshotHeader (time of the last record it stands for), KRaftVersion, KRaftVoters
    batches         records that make the image
    control batch   SnapshotFooter

Formatting a directory makes two: `00000000000000000000-0000000000.checkpoint` beside the log, which holds no metadata
but names the first voter (KIP-853), and `bootstrap.checkpoint` in the directory above, which holds the records that the
first leader writes into the log (KIP-778) and no voters.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from ..protocol.messages.control_records import (
    KRaftVersionRecord,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)
from .batches import ControlRecord, DamagedError, control_batch, metadata_batches, read_batches
from .outcome import MAX_RECORDS_PER_REQUEST

if TYPE_CHECKING:
    from .outcome import Versioned
    from .records import MetadataRecord

BOOTSTRAP_FILE: Final = "bootstrap.checkpoint"
_NAME: Final = re.compile(r"(\d{20})-(\d{10})\.checkpoint\Z")


class SnapshotId(NamedTuple):
    """The offset after the last record that a snapshot stands for, and that record's epoch."""

    end_offset: int
    epoch: int

    @property
    def file_name(self) -> str:
        return f"{self.end_offset:020d}-{self.epoch:010d}.checkpoint"


class Snapshot(NamedTuple):
    """A snapshot's content. Without KRaftVersion the version is 0, and there are no voters in it."""

    last_contained_timestamp_ms: int
    kraft_version: int
    voters: VotersRecord | None
    records: Sequence[MetadataRecord]


def parse_file_name(name: str) -> SnapshotId | None:
    """The snapshot that a file name stands for; None for any other file."""
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
    """The content of a snapshot file; with voters also their kraft.version, which is 1."""
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
    """The same piece by piece: the header, batches of at most `max_records`, the footer."""
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
    """What a snapshot file holds. Raises MetadataLogError for one that is damaged or not whole."""
    header: SnapshotHeaderRecord | None = None
    is_whole = False
    kraft_version = 0
    voters: VotersRecord | None = None
    records: list[MetadataRecord] = []
    for batch in read_batches(data, what=name):
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
        raise DamagedError(f"{name} is not whole: it has no {'footer' if header else 'header'}")
    return Snapshot(header.last_contained_log_timestamp, kraft_version, voters, records)

"""The manifest: lists what belongs to an archive, as JSON that is replaced as a whole for every piece.

It names the archived topic, with its topic id, so that a topic that was deleted and created again is a different one.
It also names the streaming query that writes the archive, and the pieces with their files, sizes and offset ranges. A
batch belongs to the archive from the moment when a manifest that contains it has its final name. So a batch that Spark
repeats after a restart is recognized, and is not written twice.

This module alone keeps two invariants. Pieces are in the order of their batches, and no batch is in two of them. The
offsets of a partition only increase from piece to piece.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from .archive_layout import ArchiveError, Layout, write_atomically
from .archive_values import ValueSchema

FORMAT = "moldau archive"
VERSION = 1


@dataclass(frozen=True, slots=True)
class PartitionRange:
    """The records of one Kafka partition in a piece. Offsets may be missing in between (compaction, transactions)."""

    records: int
    first_offset: int
    last_offset: int


@dataclass(frozen=True, slots=True)
class Piece:
    """A folder of data, in ``data/<name>``, and its files by their relative paths, with their sizes in bytes."""

    name: str
    first_batch: int
    last_batch: int
    records: int
    # The number of records whose value does not match the archive's schema: their column `parsed` is null.
    unfit: int
    oldest_ms: int
    newest_ms: int
    # The size of the largest record, alone in a batch, uncompressed.
    largest_record_bytes: int
    partitions: Mapping[int, PartitionRange]
    files: Mapping[str, int]

    @property
    def bytes(self) -> int:
        return sum(self.files.values())


@dataclass(frozen=True, slots=True)
class Manifest:
    """An archive that is complete up to and including ``last_batch``."""

    topic: str
    topic_id: str
    # Of the topic when it was last described; a replay creates a topic with as many.
    partition_count: int
    value_schema: ValueSchema | None
    # Spark's id of the query, from its checkpoint; None until the first batch.
    query_id: str | None = None
    last_batch: int = -1
    # Spark's schema of the rows, in its JSON form; None until the first batch.
    row_schema: Mapping[str, Any] | None = None
    pieces: tuple[Piece, ...] = field(default=())

    @property
    def records(self) -> int:
        return sum(piece.records for piece in self.pieces)

    @property
    def unfit(self) -> int:
        return sum(piece.unfit for piece in self.pieces)

    @property
    def bytes(self) -> int:
        return sum(piece.bytes for piece in self.pieces)

    @property
    def files(self) -> int:
        return sum(len(piece.files) for piece in self.pieces)

    @property
    def partitions(self) -> dict[int, PartitionRange]:
        """The range of each partition that has records in the archive."""
        return dict(sorted(merged_ranges(piece.partitions for piece in self.pieces).items()))

    @property
    def next_offsets(self) -> dict[int, int]:
        """The offset after the last record of each partition that has records."""
        return {partition: found.last_offset + 1 for partition, found in self.partitions.items()}

    def with_batch(self, batch: int, piece: Piece | None) -> Manifest:
        """The archive with one more batch; None for a batch without records."""
        if batch <= self.last_batch:
            raise ArchiveError(f"batch {batch} does not follow batch {self.last_batch}")
        counted = replace(self, last_batch=batch)
        if piece is None:
            return counted
        known = self.next_offsets
        for partition, found in piece.partitions.items():
            if found.first_offset < known.get(partition, 0):
                raise ArchiveError(
                    f"batch {batch} begins at offset {found.first_offset} of partition {partition}, but the archive "
                    f"has everything before {known[partition]}: the checkpoint was changed, or the topic was created "
                    "again"
                )
        seen = max(piece.partitions, default=-1) + 1
        return replace(counted, pieces=(*self.pieces, piece), partition_count=max(self.partition_count, seen))

    def with_merged(self, run: Sequence[Piece], merged: Piece) -> Manifest:
        """The archive with one piece instead of a run of pieces, which must contain the same records."""
        start = self.pieces.index(run[0])
        assert tuple(run) == self.pieces[start : start + len(run)], "a run consists of adjacent pieces"
        if merged.partitions != merged_ranges(piece.partitions for piece in run):
            raise ArchiveError(
                f"{merged.name} does not contain the same records as {run[0].name} to {run[-1].name}: the archive is "
                "unchanged. Are the files of these pieces damaged?"
            )
        return replace(self, pieces=(*self.pieces[:start], merged, *self.pieces[start + len(run) :]))


def merged_ranges(all_ranges: Iterable[Mapping[int, PartitionRange]]) -> dict[int, PartitionRange]:
    """The combined ranges of consecutive pieces."""
    merged: dict[int, PartitionRange] = {}
    for ranges in all_ranges:
        for partition, new in ranges.items():
            old = merged.get(partition)
            merged[partition] = new if old is None else _joined(old, new)
    return merged


def _joined(old: PartitionRange, new: PartitionRange) -> PartitionRange:
    return PartitionRange(
        old.records + new.records,
        min(old.first_offset, new.first_offset),
        max(old.last_offset, new.last_offset),
    )


# -- as a file ---------------------------------------------------------------------------------------------------------


def save(layout: Layout, manifest: Manifest) -> None:
    """Replace the manifest on disk."""
    document = {"format": FORMAT, "version": VERSION, **asdict(manifest)}
    write_atomically(layout.manifest, json.dumps(document, indent=1, ensure_ascii=False) + "\n")


def load(layout: Layout) -> Manifest | None:
    """The manifest on disk, None if there is none; ArchiveError if it cannot be parsed."""
    try:
        text = layout.manifest.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise _unreadable(layout, error) from error
    try:
        document = json.loads(text)
        if not isinstance(document, dict) or document.pop("format", None) != FORMAT:
            raise ValueError(f"it is not marked as a {FORMAT}")
        version = document.pop("version")
    except (ValueError, KeyError) as error:
        raise _unreadable(layout, error) from error
    if version != VERSION:
        raise ArchiveError(
            f"{layout.manifest} has version {version}, and this Moldau supports version {VERSION}: use the Moldau that "
            "wrote it, or a newer one"
        )
    try:
        return _manifest(document)
    except (TypeError, KeyError, ValueError, AttributeError) as error:
        raise _unreadable(layout, error) from error


def load_existing(layout: Layout) -> Manifest:
    """The manifest of an archive that must exist and have records."""
    if not layout.root.is_dir():
        raise ArchiveError(f"there is no folder {layout.root}")
    manifest = load(layout)
    if manifest is None:
        raise ArchiveError(
            f"{layout.root} is not an archive: it has no {layout.manifest.name}. "
            "`moldau spark archive TOPIC --to DIR` creates one"
        )
    return manifest


def check_files(layout: Layout, manifest: Manifest) -> None:
    """ArchiveError unless every file exists with the size with which it was written."""
    for piece in manifest.pieces:
        for name, size in piece.files.items():
            path = layout.data / piece.name / name
            try:
                found = path.stat().st_size
            except OSError as error:
                raise _damaged(layout, path, error.strerror or str(error)) from error
            if found != size:
                raise _damaged(layout, path, f"it has {found} bytes, and was written with {size}")


def _manifest(document: dict[str, Any]) -> Manifest:
    schema = document.pop("value_schema")
    pieces = tuple(_piece(entry) for entry in document.pop("pieces"))
    return Manifest(
        **document,
        value_schema=None if schema is None else ValueSchema(**schema),
        pieces=pieces,
    )


def _piece(entry: dict[str, Any]) -> Piece:
    ranges = {int(partition): PartitionRange(**found) for partition, found in entry.pop("partitions").items()}
    return Piece(**entry, partitions=ranges)


def _unreadable(layout: Layout, error: Exception) -> ArchiveError:
    return ArchiveError(
        f"the manifest of the archive cannot be read, {layout.manifest}: {error}. Restore it from a copy, or archive "
        "the topic again into another folder"
    )


def _damaged(layout: Layout, path: Path, what: str) -> ArchiveError:
    return ArchiveError(
        f"the archive {layout.root} is damaged: {path.relative_to(layout.root)}: {what}. Restore the file from a copy"
    )

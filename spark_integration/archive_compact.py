"""Merging small files: a run of small pieces becomes one piece, with few files for each date and partition.

The order is the same as for archiving. The merged piece is written under a temporary name, compared with the original
pieces, and renamed. Then the manifest is replaced, and only then are the old pieces removed. If a merge is interrupted,
the next writer removes the unfinished piece or the old pieces that the manifest no longer names.

A reader of the old files fails at that moment. It finds all records when it reads the manifest again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .archive_failures import error_summary, spark_failures
from .archive_layout import ArchiveError, Layout, local_folder, locked, remove_leftovers, remove_piece
from .archive_manifest import Manifest, Piece, check_files, load_existing, save
from .archive_pieces import publish_piece, read_pieces, write_piece

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFAULT_FILE_BYTES = 128 * 1024 * 1024
# A merge needs this much free disk space, and repeats this much work when it is interrupted.
_MERGE_BYTES = 4 * 1024**3


@dataclass(frozen=True, slots=True)
class MergeDone:
    """A run of pieces that has been merged into one."""

    pieces: int
    records: int
    files_before: int
    files_after: int


def plan_merges(pieces: Sequence[Piece], file_bytes: int, merge_bytes: int = _MERGE_BYTES) -> list[tuple[Piece, ...]]:
    """The runs of adjacent pieces that are worth merging: their files average less than half of ``file_bytes``.

    A run is split where it would exceed ``merge_bytes``. A single piece already has as few files as possible.
    """
    runs: list[list[Piece]] = [[]]
    for piece in pieces:
        is_small = piece.bytes < len(piece.files) * file_bytes / 2
        is_full = sum(each.bytes for each in runs[-1]) + piece.bytes > merge_bytes
        if not is_small or is_full:
            runs.append([])
        if is_small:
            runs[-1].append(piece)
    return [tuple(run) for run in runs if len(run) > 1]


@contextmanager
def open_compaction(folder: str, file_bytes: int = DEFAULT_FILE_BYTES) -> Iterator[Compaction]:
    """The merge of an archive, inside a ``with`` block. The archive is locked against other writers."""
    layout = Layout(local_folder(folder))
    load_existing(layout)
    with locked(layout):
        manifest = load_existing(layout)
        check_files(layout, manifest)
        remove_leftovers(layout, {piece.name for piece in manifest.pieces})
        yield Compaction(layout, manifest, file_bytes)


class Compaction:
    """A locked archive, and the runs of pieces to be merged."""

    def __init__(self, layout: Layout, manifest: Manifest, file_bytes: int) -> None:
        self._layout = layout
        self._file_bytes = file_bytes
        self.manifest = manifest
        self.runs = plan_merges(manifest.pieces, file_bytes)

    def run(self, spark: SparkSession, on_merge: Callable[[MergeDone], None]) -> Manifest:
        """Merge all runs. Returns the resulting manifest."""
        for run in self.runs:
            try:
                merged, temporary = self._write(spark.newSession(), run)
            except spark_failures() as error:
                raise ArchiveError(
                    f"Spark cannot merge {run[0].name} to {run[-1].name} of {self._layout.root}: "
                    f"{error_summary(error)}\nThe archive is unchanged. Is a file damaged, or the disk full?"
                ) from error
            manifest = self.manifest.with_merged(run, merged)
            publish_piece(self._layout, temporary, merged)
            save(self._layout, manifest)
            self.manifest = manifest
            for piece in run:
                remove_piece(self._layout, piece.name)
            on_merge(MergeDone(len(run), merged.records, sum(len(piece.files) for piece in run), len(merged.files)))
        return self.manifest

    def _write(self, spark: SparkSession, run: Sequence[Piece]) -> tuple[Piece, Path]:
        records, size = sum(piece.records for piece in run), sum(piece.bytes for piece in run)
        cells = {name.rpartition("/")[0] for piece in run for name in piece.files}
        tasks = min(len(cells), 4 * spark.sparkContext.defaultParallelism)
        rows = read_pieces(spark, self._layout, self.manifest, run).repartition(tasks, "date", "partition")
        max_file_records = max(1, records * self._file_bytes // size)
        written = write_piece(spark, rows, self._layout, run[0].first_batch, run[-1].last_batch, max_file_records)
        assert written is not None, "pieces have records"
        return written

"""Putting compacted segments in the place of old ones, so that a crash at any moment leaves the old or the new.

What `compact` wrote beside a log are `.cleaned` files, complete and on the device. In Apache Kafka's order:

1. `.cleaned` becomes `.swap`. A start that finds both at one offset removes both, and the old segments stand.
2. From here on the new segment counts: a start that finds `.swap` alone removes the segments that it replaces, and
   gives it its name (`loader.clear_leftovers`).
3. The old files become `.deleted`, so that no start takes them for part of the log. Ranges in flight keep theirs.
4. `.swap` becomes the name without.

The names reach the device with the log's next flush; a file system that loses the last of these changes leaves an
earlier state of the same order.

Between beginning and end the log goes on: it grows, retention takes its first segments, it may be cut. A replacement
whose old segments are all gone is left out. One of which a part is gone, or has changed, and everything after it, must
not be put in place: it was made in the belief that the earlier part was compacted too, and may lack the tombstones of
records that are still there.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..descriptors import DescriptorCache
from ..files import FileSystem, join
from ..names import (
    CLEANED,
    SEGMENT_SUFFIXES,
    SWAP,
    TRANSACTION_INDEX,
    is_leftover,
    offset_file_name,
)
from ..segment import Segment
from ..segments import Segments
from .job import CompactionJob, Replacement


class Compaction:
    """One pass over a log that is under way: what it was begun with."""

    __slots__ = ("_segments", "job", "placed", "stale")

    def __init__(self, job: CompactionJob, segments: Sequence[Segment]) -> None:
        self.job = job
        self._segments = {segment.base_offset: segment for segment in segments}
        self.placed = 0
        """How many replacements are done with."""
        self.stale = False
        """The log has changed too much: nothing more of this pass may be put in place."""

    def locate(self, replacement: Replacement, segments: Segments) -> int | None:
        """The number of the first segment that is to be replaced; None if the log has lost them, or has changed."""
        if self.stale:
            return None
        old = [self._segments[base_offset] for base_offset in replacement.old_base_offsets]
        first = segments.number_of(old[0].base_offset)
        there = [segments[number] for number in range(first, min(first + len(old), len(segments) - 1))]
        sizes = {files.base_offset: files.size for files in self.job.segments}
        if there == old and all(segment.size == sizes[segment.base_offset] for segment in old):
            return first
        if old[-1].base_offset >= segments[0].base_offset:
            self.stale = True
        return None


def put_in_place(
    segments: Segments,
    number: int,
    replacement: Replacement,
    files: DescriptorCache,
    directory: str,
    *,
    max_index_bytes: int,
    now_ms: int,
) -> None:
    """Steps 2 to 4, for the segments from `number` on. After an `OSError` only a start can tell what is the log."""
    file_system = files.file_system
    old = [segments[index] for index in range(number, number + len(replacement.old_base_offsets))]
    names = _suffixes(file_system, directory, replacement.base_offset, SWAP)
    for segment in old:
        segments.trash += segment.mark_deleted()
    for suffix in names:
        path = join(directory, offset_file_name(replacement.base_offset, suffix))
        file_system.rename(path + SWAP, path)
    new = Segment(
        files,
        directory,
        replacement.base_offset,
        size=replacement.size,
        max_index_bytes=max_index_bytes,
        created_ms=now_ms,
        new=False,
    )
    if TRANSACTION_INDEX not in names:
        new.transaction_index.is_missing()
    segments.replace(number, len(old), new)


def begin_swap(file_system: FileSystem, directory: str, base_offset: int) -> None:
    """Step 1. After an `OSError` nothing has begun, and the new files are gone."""
    path = join(directory, offset_file_name(base_offset, ""))
    try:
        for suffix in _suffixes(file_system, directory, base_offset, CLEANED):
            file_system.rename(path + suffix + CLEANED, path + suffix + SWAP)
    except OSError:
        _unlink(file_system, [path + suffix + kind for suffix in SEGMENT_SUFFIXES for kind in (SWAP, CLEANED)])
        raise


def discard(file_system: FileSystem, directory: str) -> None:
    """Remove what a pass left that is not put in place."""
    try:
        names, _directories = file_system.list_directory(directory)
    except FileNotFoundError:
        return
    _unlink(
        file_system,
        [join(directory, name) for name in names if name.endswith(CLEANED) and is_leftover(name)],
    )


def _suffixes(file_system: FileSystem, directory: str, base_offset: int, kind: str) -> list[str]:
    """Which files of a segment there are, the `.log` first: what no start may take for the whole goes first."""
    path = join(directory, offset_file_name(base_offset, ""))
    return [suffix for suffix in SEGMENT_SUFFIXES if file_system.exists(path + suffix + kind)]


def _unlink(file_system: FileSystem, paths: Sequence[str]) -> None:
    for path in paths:
        try:
            file_system.unlink(path)
        except FileNotFoundError:
            continue

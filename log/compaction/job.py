"""What is to be compacted, and what came of it: plain values, which go to another process and back.

The log makes a `CompactionJob` of its sealed segments (`Log.begin_compaction`); `compact` reads those files, writes
`.cleaned` ones beside them, and returns a `CompactionResult`; the log puts them in place (`Log.end_compaction`), if it
has not changed too much meanwhile. So nothing of a running log is shared with whoever computes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class SegmentFiles:
    """One sealed segment as it lies on disk."""

    base_offset: int
    size: int
    """Bytes of the `.log`."""
    end_offset: int
    """The base offset of the next segment."""
    modified_ms: int
    """When its `.log` was last changed, ms since the epoch."""


@dataclass(frozen=True, slots=True)
class CompactionJob:
    """One pass over one partition. Offsets are absolute, times in ms, sizes in bytes."""

    directory: str
    """The partition's."""
    topic: str
    partition: int
    segments: tuple[SegmentFiles, ...]
    """From the log's first one to the last that may be rewritten: none that is active, that reaches past the recovery
    point or the last stable offset, or that has records younger than `min.compaction.lag.ms`."""
    later_segments: tuple[int, ...]
    """Base offsets of the segments after them which have a `.txnindex`: a transaction may be aborted there whose
    records are in `segments`. Those files are only read, and may be appended to meanwhile."""
    first_dirty_offset: int
    """Everything before was cleaned before."""
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    dedupe_buffer_bytes: int
    """Memory that the map of keys may take, its load factor included."""
    io_bytes_per_second: float
    """Bytes read and written a second at most; 0: as fast as it goes."""
    last_batches: Mapping[int, tuple[int, int]]
    """By producer id, for the producers that are still known: their epoch, and the last offset of their latest batch
    with data, which stays, emptied if need be (-1: none is known, then a marker of that epoch stays)."""


@dataclass(frozen=True, slots=True)
class Replacement:
    """A new segment in the place of some old ones. Its `.cleaned` files (.log, .index, .timeindex, and .txnindex if it
    has entries) are complete and on the device; so are their names."""

    old_base_offsets: tuple[int, ...]
    base_offset: int
    size: int
    """Bytes of the new `.log`; 0 where nothing is left: the files are there, and empty."""


@dataclass(frozen=True, slots=True)
class CompactionStatistics:
    """What a pass read, wrote and took."""

    bytes_read: int = 0
    """What was read twice, for its keys and to be rewritten, is counted twice."""
    bytes_written: int = 0
    records_kept: int = 0
    records_dropped: int = 0
    map_entries: int = 0
    indexing_seconds: float = 0.0
    """How long finding the latest offset of each key took."""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class CompactionResult:
    """What a pass did."""

    replacements: tuple[Replacement, ...]
    """In the order of their offsets, which is the order in which they must be put in place. A segment of which
    everything stays has none."""
    clean_offset: int
    """The next `first_dirty_offset`."""
    statistics: CompactionStatistics = field(default_factory=CompactionStatistics)


class CorruptSegmentError(Exception):
    """A batch that is not what it should be: the partition must not be compacted until people have looked."""

    def __init__(self, path: str, position: int, offset: int, problem: str) -> None:
        super().__init__(path, position, offset, problem)  # pickled by its arguments
        self.path = path
        self.position = position
        self.offset = offset
        """Of the batch, as far as it is known."""
        self.problem = problem

    def __str__(self) -> str:
        return f"{self.path} at position {self.position} (offset {self.offset}): {self.problem}"

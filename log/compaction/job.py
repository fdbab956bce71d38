"""The input and the result of a compaction pass: plain values, which are sent to another process and back.

The log creates a `CompactionJob` of its sealed segments (`Log.begin_compaction`); `compact` reads those files, writes
`.cleaned` files next to them, and returns a `CompactionResult`; `Compaction.end` puts them in place if the log has not
changed too much in the meantime. The computing process shares no state with the running log.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...protocol.named_tuples import NamedTuple


class SegmentFiles(NamedTuple):
    """One sealed segment on disk."""

    base_offset: int
    size: int
    """Bytes of the `.log`."""
    end_offset: int
    """The base offset of the next segment."""
    modified_ms: int
    """When its `.log` was last changed, ms since the epoch."""


class CompactionJob(NamedTuple):
    """One pass over one partition. Offsets are absolute, times in ms, sizes in bytes."""

    directory: str
    """The partition's directory."""
    topic: str
    partition: int
    segments: tuple[SegmentFiles, ...]
    """From the log's first segment to the last one that may be rewritten: it is not active, does not extend beyond the
    recovery point or the last stable offset, and has no records younger than `min.compaction.lag.ms`."""
    later_segments: tuple[int, ...]
    """Base offsets of the later segments that have a `.txnindex`: it may contain an aborted transaction whose records
    are in `segments`. These files are only read, and may be appended to during the pass."""
    first_dirty_offset: int
    """Everything before it was already compacted."""
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    dedupe_buffer_bytes: int
    """The memory of the map of keys, including its load factor."""
    io_bytes_per_second: float
    """The limit of bytes read and written per second; 0: unlimited."""
    last_batches: Mapping[int, tuple[int, int]]
    """By producer id, for the known producers: the epoch, and the last offset of the latest batch with data. That batch
    is kept, if necessary without records (-1: none is known, then a marker of that epoch is kept)."""


class Replacement(NamedTuple):
    """A new segment that replaces some old ones. Its `.cleaned` files (.log, .index, .timeindex, and .txnindex if it
    has entries) are complete and durable, and so are their names."""

    old_base_offsets: tuple[int, ...]
    base_offset: int
    size: int
    """Bytes of the new `.log`; 0 if no records remain: the files exist, and are empty."""


class CompactionStatistics(NamedTuple):
    """What a pass read and wrote, and its duration."""

    bytes_read: int = 0
    """Bytes that were read twice, for the keys and for rewriting, are counted twice."""
    bytes_written: int = 0
    records_kept: int = 0
    records_dropped: int = 0
    map_entries: int = 0
    indexing_seconds: float = 0.0
    """The time for finding the latest offset of each key."""
    seconds: float = 0.0


class CompactionResult(NamedTuple):
    """The result of a pass."""

    replacements: tuple[Replacement, ...]
    """In the order of their offsets, in which they must be put in place. An unchanged segment has no replacement."""
    clean_offset: int
    """The next `first_dirty_offset`."""
    statistics: CompactionStatistics = CompactionStatistics()


class CorruptSegmentError(Exception):
    """A corrupt batch: the partition must not be compacted until an administrator has checked it."""

    def __init__(self, path: str, position: int, offset: int, problem: str) -> None:
        super().__init__(path, position, offset, problem)  # pickled by its arguments
        self.path = path
        self.position = position
        self.offset = offset
        """The offset of the batch, if it is known."""
        self.problem = problem

    def __str__(self) -> str:
        return f"{self.path} at position {self.position} (offset {self.offset}): {self.problem}"

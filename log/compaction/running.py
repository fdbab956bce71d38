"""One pass over a log that is running: from the job for `compact` to segments that are in place.

A pass takes minutes, and the log continues to change: it grows, retention deletes its first segments, it may be
truncated. A replacement whose old segments are all deleted is skipped. If only some of them are deleted, or one has
changed, neither this replacement nor any later one may be put in place: each was computed on the assumption that the
earlier part was compacted too, and may lack the tombstones of records that still exist.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ..config import LogConfig
from ..descriptors import DescriptorCache
from ..files import TRANSIENT_ERRNOS
from ..producer_state import ProducerState
from ..segment import Segment
from ..segments import Segments
from .cleanable import Cleanable
from .job import CompactionJob, CompactionResult, Replacement, SegmentFiles


class CompactedLog(Protocol):
    """What a pass needs of its log (`Log`)."""

    directory: str
    topic: str
    partition: int
    files: DescriptorCache
    segments: Segments
    producers: ProducerState
    flushed_offset: int

    @property
    def config(self) -> LogConfig: ...

    def check_online(self) -> None:
        """Raise KAFKA_STORAGE_ERROR if the log is offline."""

    def replace_segments(self, number: int, replacement: Replacement, now_ms: int) -> None:
        """Put a compacted segment in the place of those it was made of, from `number` on. Raises `KafkaError`."""

    def end_compaction(self, compaction: Compaction) -> None:
        """Remove the files that a pass left, and allow the next pass. No effect if the pass has ended."""

    def fail(self, error: OSError) -> None:
        """Take the log offline."""


class Compaction:
    """See the module docstring. Created by `Log.begin_compaction`; ended once by `end`, `cancel` or `fail`."""

    __slots__ = ("_log", "_segments", "job", "placed", "stale")

    def __init__(self, log: CompactedLog, job: CompactionJob, segments: Sequence[Segment]) -> None:
        self._log = log
        self.job = job
        """For `compact`, in another process."""
        self._segments = {segment.base_offset: segment for segment in segments}
        self.placed = 0
        """The number of replacements that are in place or skipped."""
        self.stale = False
        """The log has changed too much: no more replacements of this pass may be put in place."""

    def put_in_place(self, replacement: Replacement, now_ms: int) -> bool:
        """Replace the old segments by a compacted one. Replacements must be put in place in the order of their offsets.

        Returns False, and changes nothing, if the log has changed so that neither this replacement nor any later one
        may be put in place. Raises `KafkaError`.
        """
        self._log.check_online()
        number = self._locate(replacement)
        if number is not None:
            self._log.replace_segments(number, replacement, now_ms)
        self.placed += not self.stale
        return not self.stale

    def end(self, result: CompactionResult, now_ms: int) -> bool:
        """Put the remaining replacements in place and end the pass. Returns whether all of them are in place.

        The next pass may begin at `result.clean_offset` only after the log was flushed: until then the names of the
        new files are not durable. Raises `KafkaError`.
        """
        try:
            for replacement in result.replacements[self.placed :]:
                if not self.put_in_place(replacement, now_ms):
                    break
        finally:
            self.cancel()
        return not self.stale

    def cancel(self) -> None:
        """End the pass and remove its remaining files. Segments that are in place stay. Raises `KafkaError`."""
        self._log.end_compaction(self)

    def fail(self, error: OSError) -> None:
        """A file could not be read or written. A full disk is harmless; any other error takes the log offline."""
        self.cancel()
        if error.errno not in TRANSIENT_ERRNOS and not isinstance(error, FileNotFoundError):
            self._log.fail(error)

    def _locate(self, replacement: Replacement) -> int | None:
        """The number of the first segment to be replaced; None if the log no longer has them, or has changed."""
        if self.stale:
            return None
        segments = self._log.segments
        old = [self._segments[base_offset] for base_offset in replacement.old_base_offsets]
        first = segments.number_of(old[0].base_offset)
        found = [segments[number] for number in range(first, min(first + len(old), len(segments) - 1))]
        sizes = {files.base_offset: files.size for files in self.job.segments}
        if found == old and all(segment.size == sizes[segment.base_offset] for segment in old):
            return first
        if old[-1].base_offset >= segments[0].base_offset:
            self.stale = True
        return None


def begin_compaction(
    log: CompactedLog, cleanable: Cleanable, *, now_ms: int, dedupe_buffer_bytes: int, io_bytes_per_second: float
) -> Compaction | None:
    """A pass over the segments of `log` that are cleanable and flushed; None if there are none. Raises `OSError`."""
    segments, config = log.segments, log.config
    count = segments.number_of(cleanable.first_uncleanable_offset)
    while count and (segments.end_of(count - 1) or 0) > log.flushed_offset:
        count -= 1
    sealed = [segments[number] for number in range(count)]
    if not sealed or segments[count].base_offset <= cleanable.first_dirty_offset:
        return None
    job = CompactionJob(
        directory=log.directory,
        topic=log.topic,
        partition=log.partition,
        segments=tuple(
            SegmentFiles(
                base_offset=segment.base_offset,
                size=segment.size,
                end_offset=segments[number + 1].base_offset,
                modified_ms=log.files.file_system.modified_ms(segment.path),
            )
            for number, segment in enumerate(sealed)
        ),
        later_segments=tuple(
            segments[number].base_offset
            for number in range(count, len(segments))
            if segments[number].transaction_index.count
        ),
        first_dirty_offset=cleanable.first_dirty_offset,
        now_ms=now_ms,
        delete_retention_ms=config.delete_retention_ms,
        segment_bytes=config.segment_bytes,
        segment_index_bytes=config.segment_index_bytes,
        index_interval_bytes=config.index_interval_bytes,
        dedupe_buffer_bytes=dedupe_buffer_bytes,
        io_bytes_per_second=io_bytes_per_second,
        last_batches={
            entry.producer_id: (entry.epoch, entry.batches[-1].last_offset if entry.batches else -1)
            for entry in log.producers
        },
    )
    return Compaction(log, job, sealed)

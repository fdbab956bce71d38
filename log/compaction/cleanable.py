"""Which part of a log may be compacted now, and how much of it is dirty.

    |  clean: compacted before  |  dirty, cleanable      |  not yet                          |
    0                  first dirty offset      first uncleanable offset                log end offset

As in Apache Kafka, the cleanable part ends at a segment boundary, before the active segment, before the last stable
offset, and before the first dirty segment with a record younger than `min.compaction.lag.ms`. The log with the highest
`dirty_ratio` is compacted next, if the ratio exceeds `min.cleanable.dirty.ratio`; a log with a dirty record older than
`max.compaction.lag.ms` is compacted in any case.
"""

from __future__ import annotations

from ...protocol.named_tuples import NamedTuple
from ..config import LogConfig
from ..segments import Segments

_MAX_INT64 = 0x7FFF_FFFF_FFFF_FFFF


class Cleanable(NamedTuple):
    """What a compaction pass would find in a log. Bytes are those of complete segments."""

    first_dirty_offset: int
    """Everything before it was already compacted."""
    first_uncleanable_offset: int
    clean_bytes: int
    cleanable_bytes: int
    overdue_ms: int
    """The time since `max.compaction.lag.ms` expired for the oldest dirty batch; 0 if it has not expired."""

    @property
    def dirty_ratio(self) -> float:
        """The share of the cleanable bytes in the bytes that a pass would read; 0 if there are none."""
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0

    def due(self, min_ratio: float) -> bool:
        """Whether a pass should run."""
        return self.cleanable_bytes > 0 and (self.overdue_ms > 0 or self.dirty_ratio > min_ratio)


def find_cleanable(
    segments: Segments,
    config: LogConfig,
    *,
    clean_offset: int | None,
    log_start_offset: int,
    last_stable_offset: int,
    now_ms: int,
) -> Cleanable:
    """`clean_offset`: the offset up to which the log was compacted; None if it never was. `OSError` propagates."""
    if clean_offset is None or not log_start_offset <= clean_offset <= segments.active.base_offset:
        # Records were deleted, or the checkpoint belongs to another log. Compacting records twice is harmless.
        clean_offset = log_start_offset
    first_dirty = segments.number_of(clean_offset)
    youngest = now_ms - config.min_compaction_lag_ms if config.min_compaction_lag_ms > 0 else None
    number = first_dirty
    while number < len(segments) - 1:
        end = segments.end_of(number)
        if end is None or end > last_stable_offset:
            break
        if youngest is not None and segments[number].largest_timestamp() > youngest:
            break
        number += 1
    return Cleanable(
        first_dirty_offset=clean_offset,
        first_uncleanable_offset=max(segments[number].base_offset, clean_offset),
        clean_bytes=sum(segments[index].size for index in range(first_dirty)),
        cleanable_bytes=sum(segments[index].size for index in range(first_dirty, number)),
        overdue_ms=_overdue_ms(segments, config, first_dirty, now_ms),
    )


def _overdue_ms(segments: Segments, config: LogConfig, first_dirty: int, now_ms: int) -> int:
    if config.max_compaction_lag_ms >= _MAX_INT64:
        return 0
    oldest = now_ms
    for index in range(first_dirty, len(segments) - 1):
        segment = segments[index]
        if segment.first_timestamp < 0:
            segment.find_first_timestamp()  # for a loaded segment: one short read, once
        if segment.first_timestamp > 0:
            oldest = min(oldest, segment.first_timestamp)
    return max(0, now_ms - config.max_compaction_lag_ms - oldest)

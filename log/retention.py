"""Which of a log's oldest segments are deleted, and why. This module accesses no file and no clock.

Complete segments are deleted, the oldest first, for one of three reasons, in this order, as in Apache Kafka:

    reason             in force with             a segment is deleted when
    log start offset   every cleanup.policy      the next one begins at or before the log start offset (DeleteRecords)
    size               `delete` in it,           the log without it still has at least retention.bytes
                       retention.bytes >= 0
    time               `delete` in it,           its largest timestamp is more than retention.ms ago
                       retention.ms >= 0

A segment that is kept also keeps all later ones, regardless of their age. Segments that extend beyond the high
watermark are kept, because not every replica has their records. The active segment may be deleted by size or time if it
is not empty; the log must be rolled first, so that it has another one.

With an empty `cleanup.policy`, or only `compact`, only records before the log start offset are deleted.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Protocol

from ..protocol.named_tuples import NamedTuple
from .config import LogConfig


class RetainedSegment(Protocol):
    """The properties of a segment that retention uses."""

    @property
    def base_offset(self) -> int: ...

    @property
    def size(self) -> int:
        """Bytes of batches."""

    def largest_timestamp(self) -> int:
        """Of its records in ms; the file's modification time if they have none. May wait for the device."""


class RetainedSegments(Protocol):
    """The segments of a log in order; there is always at least one."""

    def __len__(self) -> int: ...

    def __getitem__(self, number: int, /) -> RetainedSegment: ...


class Reason(Enum):
    """Why segments are deleted."""

    LOG_START_OFFSET = "log start offset"
    SIZE = "size"
    TIME = "time"


class OldSegments(NamedTuple):
    """The next `segment_count` oldest segments, of `size` bytes in total, are deleted for this reason."""

    reason: Reason
    segment_count: int
    size: int


def find_old_segments(
    segments: RetainedSegments,
    *,
    log_start_offset: int,
    log_end_offset: int,
    high_watermark: int,
    config: LogConfig,
    now_ms: int,
) -> list[OldSegments]:
    """The segments to delete now: disjoint, non-empty runs of segments from the oldest on.

    Besides the returned segments, only one more is checked for each reason, except for `retention.bytes`, which needs
    the sizes of all segments.
    """
    if len(segments) == 1 and not segments[0].size:
        return []
    found: list[OldSegments] = []
    taken = 0

    def take(reason: Reason, is_old: Callable[[RetainedSegment, int], bool], *, active_too: bool) -> None:
        nonlocal taken
        first, size = taken, 0
        while taken < len(segments):
            segment = segments[taken]
            is_active = taken + 1 == len(segments)
            end = log_end_offset if is_active else segments[taken + 1].base_offset
            if is_active and not (active_too and segment.size):
                break
            if end > high_watermark or not is_old(segment, end):
                break
            size += segment.size
            taken += 1
        if taken > first:
            found.append(OldSegments(reason, taken - first, size))

    take(Reason.LOG_START_OFFSET, lambda segment, end: end <= log_start_offset, active_too=False)
    if not config.deletes:
        return found
    if config.retention_bytes >= 0:
        excess = sum(segments[number].size for number in range(taken, len(segments))) - config.retention_bytes

        def is_excess(segment: RetainedSegment, end: int) -> bool:
            nonlocal excess
            if segment.size > excess:
                return False
            excess -= segment.size
            return True

        if excess >= 0:
            take(Reason.SIZE, is_excess, active_too=True)
    if config.retention_ms >= 0:
        oldest_ms = now_ms - config.retention_ms
        take(Reason.TIME, lambda segment, end: segment.largest_timestamp() < oldest_ms, active_too=True)
    return found


def count_segments(found: list[OldSegments]) -> int:
    """The number of segments for all reasons."""
    return sum(old.segment_count for old in found)


def explain(found: list[OldSegments], *, log_start_offset: int, config: LogConfig) -> str:
    """A description for the server's log. `log_start_offset` is the one before the deletion."""
    because = {
        Reason.LOG_START_OFFSET: f"before the log start offset {log_start_offset}",
        Reason.SIZE: f"over retention.bytes={config.retention_bytes}",
        Reason.TIME: f"older than retention.ms={config.retention_ms}",
    }
    return ", ".join(f"{old.segment_count} {because[old.reason]}" for old in found)

"""Which of a log's oldest segments go, and why. Nothing here touches a file or a clock.

Whole segments go, the oldest first, for one of three reasons that are looked at in this order, as in Apache Kafka:

    reason             in force with             a segment goes when
    log start offset   every cleanup.policy      the next one begins at or before the log start offset (DeleteRecords)
    size               `delete` in it,           the log without it still has retention.bytes or more
                       retention.bytes >= 0
    time               `delete` in it,           its largest timestamp is more than retention.ms ago
                       retention.ms >= 0

A segment that must stay keeps all that follow it, however old they are. None goes that reaches beyond the high
watermark: what is not on every replica is nobody's to delete. The active segment may go for its size or its time if
there is anything in it; the log has to be rolled before, so that it has another one.

A `cleanup.policy` of nothing keeps everything but what is before the log start offset, and so does `compact` alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from .config import LogConfig


class RetainedSegment(Protocol):
    """What is looked at of a segment."""

    @property
    def base_offset(self) -> int: ...

    @property
    def size(self) -> int:
        """Bytes of batches."""

    def largest_timestamp(self) -> int:
        """Of its records in ms; when its file was changed if they have none. May wait for the device."""


class RetainedSegments(Protocol):
    """The segments of a log in order; there is always one."""

    def __len__(self) -> int: ...

    def __getitem__(self, number: int, /) -> RetainedSegment: ...


class Reason(Enum):
    """Why segments go."""

    LOG_START_OFFSET = "log start offset"
    SIZE = "size"
    TIME = "time"


@dataclass(frozen=True, slots=True)
class OldSegments:
    """The next `count` oldest segments, of `size` bytes in all, go for this reason."""

    reason: Reason
    count: int
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
    """What is to be deleted now: disjoint runs of segments from the oldest on, none of them empty.

    Only as many segments are looked at as are found, and one more for each reason; but for `retention.bytes`, which
    needs the sizes of all.
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
    """Of all reasons together."""
    return sum(old.count for old in found)


def explain(found: list[OldSegments], *, log_start_offset: int, config: LogConfig) -> str:
    """Why these segments go, in words for the server's log. `log_start_offset` is the one before they went."""
    because = {
        Reason.LOG_START_OFFSET: f"before the log start offset {log_start_offset}",
        Reason.SIZE: f"over retention.bytes={config.retention_bytes}",
        Reason.TIME: f"older than retention.ms={config.retention_ms}",
    }
    return ", ".join(f"{old.count} {because[old.reason]}" for old in found)

"""Which segments are merged into one, so that repeated compaction does not produce ever smaller segments.

Adjacent segments are merged while their total size fits into `segment.bytes`, that of their indexes into
`segment.index.bytes`, and their offsets into 31 bits, because an index stores relative offsets. The sizes are those
before rewriting, as in Apache Kafka: the result is smaller, and the next pass merges it with more segments.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .job import SegmentFiles

_MAX_RELATIVE_OFFSET = 0x7FFF_FFFF


class Sizes(NamedTuple):
    """The sizes of one segment's files, in bytes."""

    log: int
    offset_index: int
    time_index: int


def group_segments(
    segments: Sequence[SegmentFiles], sizes: Sequence[Sizes], max_bytes: int, max_index_bytes: int
) -> list[list[SegmentFiles]]:
    """`segments` in order, in groups of adjacent segments."""
    groups: list[list[SegmentFiles]] = []
    log = offset_index = time_index = 0
    for segment, size in zip(segments, sizes, strict=True):
        log += size.log
        offset_index += size.offset_index
        time_index += size.time_index
        if (
            groups
            and log <= max_bytes
            and offset_index <= max_index_bytes
            and time_index <= max_index_bytes
            and (not size.log or segment.end_offset - 1 - groups[-1][0].base_offset <= _MAX_RELATIVE_OFFSET)
        ):
            groups[-1].append(segment)
        else:
            groups.append([segment])
            log, offset_index, time_index = size
    return groups

"""When a segment rolls: every reason, at its boundary, and on every path of an append."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from moldau.log.descriptors import DescriptorCache
from moldau.log.memory_files import MemoryFileSystem
from moldau.log.producer_state import MARKER_BATCH_SIZE, EndTransactionMarker
from moldau.log.segment import Segment

from .conftest import NOW, Partition, make_batch

SIZE = len(make_batch(b"x"))
SEGMENT_BYTES = 1_000
LARGEST_RELATIVE_OFFSET = 2**31 - 1
FAR_FUTURE_MS = 1 << 62
Append = Callable[[Partition, int], object]


def make_segment(*, base_offset: int = 100, size: int = 400) -> Segment:
    files = DescriptorCache(MemoryFileSystem(), 8)
    return Segment(files, "/data", base_offset, size=size, max_index_bytes=1 << 20, created_ms=NOW, new=True)


def must_roll(segment: Segment, **changed: int) -> bool:
    batch = {"size": SIZE, "max_timestamp": NOW, "last_offset": segment.base_offset + 10, "now_ms": NOW} | changed
    return segment.must_roll(**batch, segment_bytes=SEGMENT_BYTES)


def test_a_segment_without_a_limit_in_reach_does_not_roll() -> None:
    assert not must_roll(make_segment())


def test_a_segment_rolls_before_it_exceeds_segment_bytes() -> None:
    segment = make_segment(size=400)
    assert not must_roll(segment, size=SEGMENT_BYTES - 400)
    assert must_roll(segment, size=SEGMENT_BYTES - 399)


def test_a_segment_rolls_when_segment_bytes_was_reduced_below_its_size() -> None:
    assert must_roll(make_segment(size=SEGMENT_BYTES + 1), size=1)


def test_a_segment_rolls_by_timestamps_regardless_of_the_clock() -> None:
    segment = make_segment()
    segment.roll_after_timestamp = NOW + 5
    assert not must_roll(segment, max_timestamp=NOW + 5, now_ms=FAR_FUTURE_MS)
    assert must_roll(segment, max_timestamp=NOW + 6)


def test_a_segment_without_timestamps_rolls_by_the_clock() -> None:
    segment = make_segment()
    segment.roll_after_ms = NOW + 5
    assert not must_roll(segment, now_ms=NOW + 5, max_timestamp=FAR_FUTURE_MS)
    assert must_roll(segment, now_ms=NOW + 6, max_timestamp=-1)


def test_a_segment_with_a_full_index_rolls() -> None:
    segment = make_segment()
    segment.nearly_full = True
    assert not must_roll(segment)
    segment.full = True
    assert must_roll(segment)


@pytest.mark.parametrize("size", [0, 400])
def test_a_segment_rolls_before_a_relative_offset_exceeds_31_bits(size: int) -> None:
    segment = make_segment(base_offset=100, size=size)
    assert not must_roll(segment, last_offset=100 + LARGEST_RELATIVE_OFFSET)
    assert must_roll(segment, last_offset=101 + LARGEST_RELATIVE_OFFSET)


def test_an_empty_segment_does_not_roll_by_size_time_or_index() -> None:
    segment = make_segment(size=0)
    segment.full = True
    segment.roll_after_timestamp = segment.roll_after_ms = NOW - 1
    assert not must_roll(segment, size=SEGMENT_BYTES + 1, max_timestamp=FAR_FUTURE_MS, now_ms=FAR_FUTURE_MS)


def append(partition: Partition, timestamp: int) -> object:
    return partition.append(make_batch(b"x", timestamp=timestamp))


def append_group(partition: Partition, timestamp: int) -> object:
    data = make_batch(b"x", timestamp=timestamp)
    return partition.log.append_plain([data], now_ms=partition.now_ms, leader_epoch=1)


def append_own(partition: Partition, timestamp: int) -> object:
    return partition.append(make_batch(b"x", timestamp=timestamp), client=False)


def append_as_follower(partition: Partition, timestamp: int) -> object:
    data = make_batch(b"x", timestamp=timestamp, base_offset=partition.log.log_end_offset, leader_epoch=1)
    return partition.log.append_as_follower(data, now_ms=partition.now_ms, leader_epoch=1)


def append_rewritten(partition: Partition, timestamp: int) -> object:
    """The timestamps are replaced: this batch takes the slow path."""
    partition.configure(message_timestamp_type="LogAppendTime")
    partition.now_ms = max(partition.now_ms, timestamp)
    return append(partition, timestamp)


def append_marker(partition: Partition, timestamp: int) -> object:
    partition.now_ms = max(partition.now_ms, timestamp)
    return partition.log.append_marker(
        7, 0, EndTransactionMarker(True, 0), transaction_version=1, now_ms=partition.now_ms, leader_epoch=1
    )


every_path = pytest.mark.parametrize(
    "append_next", [append, append_group, append_own, append_as_follower, append_rewritten, append_marker]
)
paths_without_timestamps = pytest.mark.parametrize(
    "append_next", [append, append_group, append_own, append_as_follower]
)


@every_path
def test_every_append_rolls_by_size(memory_partition: Any, segments_of: Any, append_next: Append) -> None:
    size = MARKER_BATCH_SIZE if append_next is append_marker else SIZE
    append(memory_partition, NOW)
    memory_partition.configure(segment_bytes=SIZE + size)
    append_next(memory_partition, NOW)
    assert segments_of(memory_partition.log) == [0]
    append_next(memory_partition, NOW)
    assert segments_of(memory_partition.log) == [0, 2]


@every_path
def test_every_append_rolls_by_timestamps(memory_partition: Any, segments_of: Any, append_next: Append) -> None:
    memory_partition.configure(segment_ms=1_000)
    append(memory_partition, NOW)
    append_next(memory_partition, NOW + 1_000)
    assert segments_of(memory_partition.log) == [0]
    append_next(memory_partition, NOW + 1_001)
    assert segments_of(memory_partition.log) == [0, 2]


@paths_without_timestamps
def test_every_append_rolls_by_the_clock(memory_partition: Any, segments_of: Any, append_next: Append) -> None:
    memory_partition.configure(segment_ms=1_000)
    append(memory_partition, -1)
    memory_partition.now_ms += 1_000
    append_next(memory_partition, -1)
    assert segments_of(memory_partition.log) == [0]
    memory_partition.now_ms += 1
    append_next(memory_partition, -1)
    assert segments_of(memory_partition.log) == [0, 2]


@every_path
def test_every_append_rolls_when_an_index_is_full(memory_partition: Any, segments_of: Any, append_next: Append) -> None:
    append(memory_partition, NOW)
    memory_partition.log.segments.active.full = True
    append_next(memory_partition, NOW)
    assert segments_of(memory_partition.log) == [0, 1]


@every_path
def test_every_append_rolls_before_relative_offsets_exceed_31_bits(
    memory_partition: Any, segments_of: Any, append_next: Append
) -> None:
    log = memory_partition.log
    almost = make_batch(b"x", base_offset=LARGEST_RELATIVE_OFFSET - 1, leader_epoch=1)
    log.append_as_follower(almost, now_ms=NOW, leader_epoch=1)
    append_next(memory_partition, NOW)
    assert log.log_end_offset == LARGEST_RELATIVE_OFFSET + 1
    assert segments_of(log) == [0]
    append_next(memory_partition, NOW)
    assert segments_of(log) == [0, LARGEST_RELATIVE_OFFSET + 1]


@pytest.mark.parametrize("limit", ["size", "timestamps", "offsets"])
def test_a_group_ends_where_the_segment_rolls(memory_partition: Any, segments_of: Any, limit: str) -> None:
    log = memory_partition.log
    start = LARGEST_RELATIVE_OFFSET - 2 if limit == "offsets" else 0
    first = make_batch(b"x", base_offset=start, leader_epoch=1)
    log.append_as_follower(first, now_ms=NOW, leader_epoch=1)
    if limit == "size":
        memory_partition.configure(segment_bytes=3 * SIZE)
    if limit == "timestamps":
        memory_partition.configure(segment_ms=2)
    group = [make_batch(b"x", timestamp=NOW + 1 + number) for number in range(4)]
    appended = log.append_plain(group, now_ms=NOW, leader_epoch=1)
    assert [info.first_offset - start for info in appended] == [1, 2]
    (rolled, *_) = log.append_plain(group[2:], now_ms=NOW, leader_epoch=1)
    assert segments_of(log) == [0, rolled.first_offset]


def test_the_first_batch_of_a_segment_is_written_alone(memory_partition: Any) -> None:
    assert len(memory_partition.log.append_plain([make_batch(b"x")] * 2, now_ms=NOW, leader_epoch=1)) == 1
    assert len(memory_partition.log.append_plain([make_batch(b"x")] * 2, now_ms=NOW, leader_epoch=1)) == 2


def test_a_gap_that_fits_in_a_segment_is_not_between_two_segments(memory_partition: Any, segments_of: Any) -> None:
    """Recovery takes a gap between two segments for lost records where the log is not compacted."""
    log = memory_partition.log
    append(memory_partition, NOW)
    for offset in (1_000, LARGEST_RELATIVE_OFFSET + 1):
        data = make_batch(b"x", base_offset=offset, leader_epoch=1)
        log.append_as_follower(data, now_ms=NOW, leader_epoch=1)
    assert segments_of(log) == [0, 1_001]
    assert [record.offset for record in memory_partition.records()] == [0, 1_000, LARGEST_RELATIVE_OFFSET + 1]

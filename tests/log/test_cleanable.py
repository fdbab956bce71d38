"""Which part of a log may be compacted, and how dirty it is."""

from __future__ import annotations

import pytest

from moldau.log.compaction.cleanable import Cleanable
from moldau.protocol.records import Record

from .conftest import NOW, Partition, make_batch


@pytest.fixture
def compacted(partition: Partition) -> Partition:
    """Five segments of one batch each, a second apart, at the offsets 0, 1, 2, 3, 4; the last is active."""
    partition.configure(cleanup_policy=("compact",))
    for number in range(5):
        if number:
            partition.log.roll(NOW)
        partition.append(make_batch(Record(0, NOW + number * 1000, b"key", b"value")))
    return partition


def cleanable(partition: Partition, clean_offset: int | None = None, *, stable: int = 5, now: int = 0) -> Cleanable:
    return partition.log.cleanable(clean_offset, stable, NOW + now)


def test_all_but_the_active_segment_is_dirty_before_the_first_pass(compacted: Partition) -> None:
    found = cleanable(compacted)
    assert (found.first_dirty_offset, found.first_uncleanable_offset) == (0, 4)
    assert found.dirty_ratio == 1.0


@pytest.mark.parametrize(("clean_offset", "ratio"), [(1, 3 / 4), (2, 2 / 4), (3, 1 / 4), (4, 0.0)])
def test_the_dirty_ratio_is_that_of_bytes_since_the_last_pass(
    compacted: Partition, clean_offset: int, ratio: float
) -> None:
    found = cleanable(compacted, clean_offset)
    assert (found.first_dirty_offset, found.first_uncleanable_offset) == (clean_offset, 4)
    assert found.dirty_ratio == ratio
    assert found.due(ratio - 0.01) == (ratio > 0)
    assert not found.due(ratio)


@pytest.mark.parametrize(("stable", "end"), [(5, 4), (4, 4), (3, 3), (1, 1), (0, 0)])
def test_nothing_past_the_last_stable_offset_is_compacted(compacted: Partition, stable: int, end: int) -> None:
    found = cleanable(compacted, stable=stable)
    assert found.first_uncleanable_offset == end
    assert (found.cleanable_bytes > 0) == (end > 0)


def test_a_segment_that_contains_the_last_stable_offset_is_not_compacted(partition: Partition) -> None:
    partition.configure(cleanup_policy=("compact",))
    for value in (b"a", b"b", b"c"):
        partition.append(make_batch(Record(0, NOW, b"key", value)))
    partition.log.roll(NOW)
    assert cleanable(partition, stable=2).first_uncleanable_offset == 0
    assert cleanable(partition, stable=3).first_uncleanable_offset == 3


@pytest.mark.parametrize(("lag_ms", "now", "end"), [(0, 0, 4), (1000, 0, 0), (1000, 1000, 1), (1000, 3500, 3)])
def test_young_records_wait(compacted: Partition, lag_ms: int, now: int, end: int) -> None:
    compacted.configure(min_compaction_lag_ms=lag_ms)
    assert cleanable(compacted, now=now).first_uncleanable_offset == end


def test_segments_that_are_already_clean_need_no_minimum_age(compacted: Partition) -> None:
    compacted.configure(min_compaction_lag_ms=1000)
    assert cleanable(compacted, 2, now=3000).first_uncleanable_offset == 3


@pytest.mark.parametrize("reopened", [False, True])
def test_a_record_that_has_waited_for_too_long_is_compacted_whatever_the_ratio(
    compacted: Partition, reopened: bool
) -> None:
    compacted.configure(max_compaction_lag_ms=1000)
    if reopened:
        compacted.reopen()
    assert cleanable(compacted, now=1000).overdue_ms == 0
    assert cleanable(compacted, now=1500).overdue_ms == 500
    assert cleanable(compacted, 1, now=1500).overdue_ms == 0, "the first segment is clean"
    assert cleanable(compacted, now=1500).due(1.0)


@pytest.mark.parametrize("clean_offset", [5, 99])
def test_a_checkpoint_past_the_active_segment_is_not_believed(compacted: Partition, clean_offset: int) -> None:
    assert cleanable(compacted, clean_offset).first_dirty_offset == 0


def test_a_checkpoint_before_the_log_start_is_moved_up(compacted: Partition) -> None:
    compacted.log.delete_records_before(2)
    found = cleanable(compacted, 1)
    assert (found.first_dirty_offset, found.first_uncleanable_offset) == (2, 4)


def test_a_log_with_one_segment_has_nothing_to_compact(partition: Partition) -> None:
    partition.append()
    found = cleanable(partition)
    assert (found.first_dirty_offset, found.first_uncleanable_offset, found.dirty_ratio) == (0, 0, 0.0)
    assert not found.due(0.0)


def test_segments_of_a_compacted_topic_are_rolled_in_time_for_the_largest_lag(partition: Partition) -> None:
    partition.configure(cleanup_policy=("compact",), segment_ms=10_000, max_compaction_lag_ms=100)
    for late, segments in ((0, 1), (100, 1), (101, 2)):
        partition.append(make_batch(Record(0, NOW + late, b"key", b"value")))
        assert len(partition.log.segments) == segments
    partition.configure(cleanup_policy=("delete",))
    partition.append(make_batch(Record(0, NOW + 5000, b"key", b"value")))
    assert len(partition.log.segments) == 2

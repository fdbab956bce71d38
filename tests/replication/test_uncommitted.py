"""The sizes of records above the high watermark, which consumers wait for."""

from __future__ import annotations

from moldau.replication.uncommitted import UncommittedRecords


def test_appends_of_days_without_a_committed_record_take_little_memory() -> None:
    """As while an in-sync set is too small, and producers do not wait for it."""
    uncommitted = UncommittedRecords(0)
    for end_offset in range(1, 10_001):
        uncommitted.add(end_offset, 100)
    assert uncommitted.tracked <= 256
    assert uncommitted.move(9_990) + uncommitted.move(10_000) == 1_000_000
    assert uncommitted.tracked == 0


def test_what_remains_of_an_append_after_a_truncation_wakes_up_consumers() -> None:
    """A follower appends several batches at once."""
    uncommitted = UncommittedRecords(10)
    uncommitted.add(20, 1000)
    uncommitted.truncate(15)
    assert uncommitted.move(15) > 0


def test_a_truncated_append_does_not_count() -> None:
    uncommitted = UncommittedRecords(10)
    uncommitted.add(20, 1000)
    uncommitted.add(30, 1000)
    uncommitted.truncate(20)
    assert uncommitted.move(20) == 1000
    uncommitted.add(25, 1)
    uncommitted.truncate(5)
    assert uncommitted.high_watermark == 5
    assert uncommitted.tracked == 0

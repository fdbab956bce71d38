"""Rolling, truncating, deleting: the effects on the segments and on the state that is derived from them."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from moldau.log.partition_directory import remove_partition_directory
from moldau.log.producer_state import EndTransactionMarker
from moldau.log.verification import DISABLED
from moldau.protocol.errors import ErrorCode, KafkaError

NOW = 1_700_000_000_000
DAY_MS = 24 * 3_600_000
Batch = Callable[..., bytes]
BaseOffsets = Callable[[Any], list[int]]


# Rolling


def test_a_full_segment_is_followed_by_another(partition: Any, batch: Batch, segments_of: BaseOffsets) -> None:
    size = len(batch(b"x" * 100))
    partition.configure(segment_bytes=size * 3)
    for _ in range(7):
        partition.append(batch(b"x" * 100))
    assert segments_of(partition.log) == [0, 3, 6]
    assert [name for name in partition.names() if name.endswith(".log")] == [
        "00000000000000000000.log",
        "00000000000000000003.log",
        "00000000000000000006.log",
    ]
    assert partition.log.size == size * 7


def test_segments_roll_by_the_timestamps_of_records(partition: Any, batch: Batch, segments_of: BaseOffsets) -> None:
    partition.configure(segment_ms=1_000, message_timestamp_after_max_ms=10**15)
    partition.append(batch(timestamp=NOW))
    partition.append(batch(timestamp=NOW + 1_000))
    partition.append(batch(timestamp=5))
    partition.now_ms += DAY_MS
    partition.append(batch(timestamp=NOW + 10))
    assert segments_of(partition.log) == [0], "the wall clock does not matter"
    partition.append(batch(timestamp=NOW + 1_001))
    assert segments_of(partition.log) == [0, 4]


def test_segments_without_timestamps_roll_by_the_clock(partition: Any, batch: Batch, segments_of: BaseOffsets) -> None:
    partition.configure(segment_ms=1_000)
    partition.append(batch(timestamp=-1))
    partition.now_ms += 1_000
    partition.append(batch(timestamp=-1))
    assert segments_of(partition.log) == [0]
    partition.now_ms += 1
    partition.append(batch(timestamp=-1))
    assert segments_of(partition.log) == [0, 2]


def test_rolling_by_time_continues_after_a_restart(partition: Any, batch: Batch, segments_of: BaseOffsets) -> None:
    partition.configure(segment_ms=1_000, message_timestamp_after_max_ms=10**15)
    partition.append(batch(timestamp=NOW))
    partition.append(batch(timestamp=NOW + 900))
    partition.reopen()
    partition.append(batch(timestamp=NOW + 1_000))
    partition.append(batch(timestamp=NOW + 1_001))
    assert segments_of(partition.log) == [0, 3]


def test_a_changed_configuration_applies_immediately(partition: Any, batch: Batch, segments_of: BaseOffsets) -> None:
    partition.configure(message_timestamp_after_max_ms=10**15)
    partition.append(batch(timestamp=NOW))
    partition.configure(segment_ms=100)
    partition.append(batch(timestamp=NOW + 101))
    assert segments_of(partition.log) == [0, 1]
    partition.configure(segment_bytes=100)
    partition.append(batch(timestamp=NOW + 101))
    assert segments_of(partition.log) == [0, 1, 2]


def test_jitter_spreads_rolling_and_is_the_same_after_a_restart(partition: Any, batch: Batch) -> None:
    partition.configure(segment_ms=10_000, segment_jitter_ms=5_000)
    times = set()
    for _ in range(8):
        partition.append(batch(timestamp=NOW))
        times.add(partition.log.segments.active.roll_after_timestamp - NOW)
        partition.log.roll(NOW)
    assert len(times) > 3
    assert all(5_000 <= time <= 10_000 for time in times)
    partition.append(batch(timestamp=NOW))
    before = partition.log.segments.active.roll_after_timestamp
    partition.reopen()
    assert partition.log.segments.active.roll_after_timestamp == before


def test_a_full_index_rolls(partition: Any, batch: Batch, segments_of: BaseOffsets) -> None:
    partition.configure(index_interval_bytes=0, segment_index_bytes=48)
    partition.reopen()
    for _ in range(16):
        partition.append(batch(b"x" * 50))
    assert segments_of(partition.log) == [0, 7, 14], "6 entries of the offset index"
    for number in range(7):
        partition.append(batch(timestamp=NOW + number))
    assert segments_of(partition.log) == [0, 7, 14, 19], "4 entries of the time index, one of them for the end"


def test_rolling_an_empty_segment_does_nothing(partition: Any, batch: Batch, segments_of: BaseOffsets) -> None:
    partition.log.roll(NOW)
    assert segments_of(partition.log) == [0]
    partition.append(batch())
    partition.log.roll(NOW)
    partition.log.roll(NOW)
    assert segments_of(partition.log) == [0, 1]
    partition.append(batch())
    assert partition.values() == [b"value"] * 2


def test_a_sealed_segment_has_complete_indexes_and_a_producer_snapshot(partition: Any, batch: Batch) -> None:
    partition.configure(index_interval_bytes=0)
    for time in (NOW, NOW + 50, NOW + 20):
        partition.append(batch(timestamp=time))
    partition.log.roll(NOW)
    assert partition.names() == [
        "00000000000000000000.index",
        "00000000000000000000.log",
        "00000000000000000000.timeindex",
        "00000000000000000003.snapshot",
    ]
    times = partition.file_system.read_file(partition.path("00000000000000000000.timeindex"))
    assert times[-12:] == (NOW + 50).to_bytes(8, "big") + (1).to_bytes(4, "big")


# Cutting


def test_truncation_removes_the_batch_with_the_offset(partition: Any, batch: Batch) -> None:
    for number in range(4):
        partition.append(batch(b"%d-a" % number, b"%d-b" % number))
    partition.log.truncate_to(5, NOW)
    assert partition.log.log_end_offset == 4, "the batch of offsets 4 and 5 is gone as a whole"
    assert partition.values() == [b"0-a", b"0-b", b"1-a", b"1-b"]
    assert partition.append(batch(b"new")).first_offset == 4


def test_truncation_beyond_the_end_affects_only_epochs(partition: Any, batch: Batch) -> None:
    partition.append(batch())
    partition.log.assign_leader_epoch(9)
    assert partition.log.latest_epoch == 9
    partition.log.truncate_to(1, NOW)
    assert partition.log.latest_epoch == 1
    assert partition.values() == [b"value"]


@pytest.mark.parametrize("reopened", [False, True])
def test_truncation_removes_segments_epochs_snapshots_and_producers(
    partition: Any, producer_batch: Batch, segments_of: BaseOffsets, reopened: bool
) -> None:
    partition.configure(segment_bytes=len(producer_batch(0)) * 3, index_interval_bytes=0)
    for sequence in range(12):
        partition.leader_epoch = sequence // 4
        partition.append(producer_batch(sequence))
    if reopened:
        partition.reopen()
    partition.log.truncate_to(5, NOW)
    assert segments_of(partition.log) == [0, 3]
    assert partition.log.log_end_offset == 5
    assert partition.log.latest_epoch == 1
    assert partition.log.end_offset_for_epoch(0) == (0, 4)
    assert partition.log.snapshots.offsets == [3]
    (producer,) = partition.log.active_producers()
    assert (producer.last_sequence, producer.last_offset) == (4, 4)
    partition.append(producer_batch(5))
    assert partition.append(producer_batch(5)).duplicate
    assert partition.values() == [b"%04d" % number for number in range(6)]
    partition.reopen()
    assert partition.values() == [b"%04d" % number for number in range(6)]
    assert partition.append(producer_batch(5)).duplicate


def test_truncation_before_the_first_segment_starts_over(partition: Any, batch: Batch) -> None:
    partition.configure(segment_bytes=300)
    partition.append_values(*[b"x" * 100] * 6)
    partition.log.flush(NOW)
    partition.log.delete_records_before(5)
    partition.log.truncate_to(2, NOW)
    assert (partition.log.log_start_offset, partition.log.log_end_offset) == (2, 2)
    assert partition.append(batch()).first_offset == 2


def test_starting_over_at_an_offset(partition: Any, producer_batch: Batch) -> None:
    partition.append(producer_batch(0))
    partition.append(producer_batch(1))
    partition.log.truncate_fully_and_start_at(100, NOW, 90)
    assert (partition.log.log_start_offset, partition.log.log_end_offset, partition.log.size) == (90, 100, 0)
    assert partition.log.active_producers() == []
    assert partition.log.latest_epoch == -1
    assert partition.fetch(95) == b""
    assert partition.append(producer_batch(7)).first_offset == 100
    partition.log.roll(NOW)
    partition.reopen(log_start_offset=90)
    assert (partition.log.log_start_offset, partition.log.log_end_offset) == (100, 101)


def test_an_offset_may_be_started_over_at_where_a_segment_was(partition: Any, batch: Batch) -> None:
    partition.append(batch(b"old"))
    partition.log.truncate_fully_and_start_at(0, NOW)
    partition.append(batch(b"new"))
    assert partition.values() == [b"new"]
    trash = list(partition.log.trash)
    for path in trash:
        partition.file_system.unlink(path)
    partition.reopen()
    assert partition.values() == [b"new"]


def test_truncation_keeps_rolling_by_time_correct(partition: Any, batch: Batch, segments_of: BaseOffsets) -> None:
    partition.configure(segment_ms=1_000, message_timestamp_after_max_ms=10**15)
    partition.append(batch(timestamp=NOW))
    partition.append(batch(timestamp=NOW + 10))
    partition.log.roll(NOW)
    partition.append(batch(timestamp=NOW + 20))
    partition.reopen()
    partition.log.truncate_to(1, NOW)
    partition.append(batch(timestamp=NOW + 1_000))
    assert segments_of(partition.log) == [0]
    partition.append(batch(timestamp=NOW + 1_001))
    assert segments_of(partition.log) == [0, 2]


def test_truncation_keeps_time_lookups_correct(partition: Any, batch: Batch) -> None:
    partition.configure(index_interval_bytes=0)
    for number in range(20):
        partition.append(batch(timestamp=NOW + number))
    partition.append(batch(timestamp=NOW + 999))
    partition.log.truncate_to(10, NOW)
    largest = partition.log.offset_of_max_timestamp()
    assert (largest.timestamp, largest.offset) == (NOW + 9, 9)
    assert partition.log.offset_for_timestamp(NOW + 10) is None
    partition.append(batch(timestamp=NOW + 5))
    partition.log.roll(NOW)
    partition.reopen()
    assert partition.log.offset_of_max_timestamp().offset == 9


def test_the_checkpoint_is_lowered_before_the_files_are_truncated(partition: Any, batch: Batch) -> None:
    partition.append_values(b"a", b"b", b"c")
    partition.log.flush(NOW)
    reported: list[tuple[int, int]] = []
    partition.log.on_recovery_point_lowered = lambda log: reported.append((log.recovery_point, log.size))
    size = partition.log.size
    partition.log.truncate_to(1, NOW)
    assert reported == [(1, size)]
    assert partition.log.recovery_point == 1
    partition.log.truncate_fully_and_start_at(0, NOW)
    assert len(reported) == 2


# Deleting


def test_deleted_records_are_unreadable_and_their_segments_removed(
    partition: Any, batch: Batch, segments_of: BaseOffsets
) -> None:
    partition.configure(segment_bytes=len(batch(b"00")) * 2)
    partition.append_values(*[b"%02d" % number for number in range(9)])
    partition.log.flush(NOW)
    partition.log.delete_records_before(5)
    assert partition.log.log_start_offset == 5
    assert segments_of(partition.log) == [4, 6, 8]
    assert partition.values() == [b"05", b"06", b"07", b"08"]
    with pytest.raises(KafkaError) as caught:
        partition.log.read(4, 100, max_offset=9, min_one_batch=True)
    assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
    partition.log.delete_records_before(3)
    assert partition.log.log_start_offset == 5
    with pytest.raises(KafkaError) as caught:
        partition.log.delete_records_before(10)
    assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert sorted(path.rpartition("/")[2] for path in partition.log.trash) == sorted(
        f"{offset:020d}{suffix}.deleted" for offset in (0, 2) for suffix in (".index", ".log", ".timeindex")
    )


def test_all_records_may_be_deleted(partition: Any, batch: Batch) -> None:
    partition.append_values(b"a", b"b")
    partition.log.delete_records_before(2)
    assert (partition.log.log_start_offset, partition.log.log_end_offset) == (2, 2)
    assert partition.values() == []
    assert partition.append(batch(b"c")).first_offset == 2
    partition.reopen(log_start_offset=2)
    assert partition.values() == [b"c"]


def test_leader_epochs_move_with_the_beginning(partition: Any, batch: Batch) -> None:
    for epoch in range(4):
        partition.leader_epoch = epoch
        partition.append_values(b"a", b"b")
    partition.log.delete_records_before(5)
    assert partition.log.leader_epochs.entries == [(2, 5), (3, 6)]
    assert partition.log.end_offset_for_epoch(0) == (0, 5)
    assert partition.log.epoch_of(4) == -1


def test_retention_deletes_the_oldest_segments_and_never_the_active_one(
    partition: Any, batch: Batch, segments_of: BaseOffsets
) -> None:
    partition.configure(segment_bytes=300)
    partition.append_values(*[b"x" * 200] * 4)
    partition.log.delete_first_segments(2)
    assert segments_of(partition.log) == [2, 3]
    assert partition.log.log_start_offset == 2
    partition.log.delete_first_segments(10)
    assert segments_of(partition.log) == [3]
    partition.log.delete_first_segments(1)
    assert segments_of(partition.log) == [3]


def test_a_deleted_segment_removes_its_aborted_transactions(partition: Any, producer_batch: Batch) -> None:
    partition.configure(segment_bytes=300)
    for sequence in range(6):
        partition.append(producer_batch(sequence, transactional=True), verification=DISABLED)
        partition.log.append_marker(
            7, 0, EndTransactionMarker(False, 0), transaction_version=1, now_ms=NOW, leader_epoch=1
        )
    indexes = [name for name in partition.names() if name.endswith(".txnindex")]
    assert len(indexes) == len(partition.log.segments) == 3
    assert [first for _, first, _, _ in partition.log.aborted_transactions(0, 12)] == [0, 2, 4, 6, 8, 10]
    partition.log.delete_first_segments(2)
    assert [name for name in partition.names() if name.endswith(".txnindex")] == indexes[2:]
    start = partition.log.log_start_offset
    assert [first for _, first, _, _ in partition.log.aborted_transactions(start, 12)] == [
        first for first in (0, 2, 4, 6, 8, 10) if first + 1 >= start
    ]


def test_a_truncation_removes_later_aborted_transactions(partition: Any, producer_batch: Batch) -> None:
    for sequence in range(4):
        partition.append(producer_batch(sequence, transactional=True), verification=DISABLED)
        if sequence != 2:
            partition.log.append_marker(
                7, 0, EndTransactionMarker(False, 0), transaction_version=1, now_ms=NOW, leader_epoch=1
            )
        if sequence == 1:
            partition.log.roll(NOW)
    assert partition.log.aborted_transactions(0, 7) == [(7, 0, 1, 2), (7, 2, 3, 4), (7, 4, 6, 7)]
    partition.log.truncate_to(6, NOW)
    assert partition.log.aborted_transactions(0, 6) == [(7, 0, 1, 2), (7, 2, 3, 4)]
    assert partition.log.first_unstable_offset() == 4, "open again"
    partition.log.truncate_to(3, NOW)
    assert partition.log.aborted_transactions(0, 3) == [(7, 0, 1, 2)]
    assert partition.log.first_unstable_offset() == 2
    partition.reopen(clean=False)
    assert partition.log.aborted_transactions(0, 3) == [(7, 0, 1, 2)]
    assert partition.log.first_unstable_offset() == 2


def test_a_duplicate_is_recognized_even_if_its_records_are_deleted(partition: Any, producer_batch: Batch) -> None:
    partition.configure(segment_bytes=150)
    for sequence in range(5):
        partition.append(producer_batch(sequence))
    partition.log.flush(NOW)
    partition.log.delete_records_before(5)
    assert partition.append(producer_batch(4)).duplicate
    partition.reopen(log_start_offset=5)
    assert partition.append(producer_batch(4)).duplicate


# Flushing


def test_flushing_is_due_by_messages_time_and_sealed_segments(partition: Any, batch: Batch) -> None:
    assert not partition.log.flush_due(NOW + 10**9)
    partition.configure(flush_messages=3)
    partition.append(batch(b"a", b"b"))
    assert not partition.log.flush_due(NOW)
    partition.append(batch(b"c"))
    assert partition.log.flush_due(NOW)
    partition.log.flush(NOW)
    assert not partition.log.flush_due(NOW)
    partition.configure(flush_messages=10**9, flush_ms=500)
    partition.append(batch(b"d"))
    assert not partition.log.flush_due(NOW + 499)
    assert partition.log.flush_due(NOW + 500)
    partition.configure(flush_ms=10**12)
    partition.log.roll(NOW)
    assert partition.log.flush_due(NOW), "a segment was sealed"


def test_a_flush_makes_everything_durable_and_moves_the_recovery_point(
    memory_partition: Any, batch: Batch, producer_batch: Batch
) -> None:
    import random

    memory_partition.configure(segment_bytes=500)
    for sequence in range(6):
        memory_partition.append(producer_batch(sequence))
    assert memory_partition.log.recovery_point == 0
    memory_partition.log.flush(NOW)
    assert memory_partition.log.recovery_point == 6
    expected = memory_partition.values()
    for seed in range(30):
        survivor = type(memory_partition)(
            memory_partition.file_system.crash(random.Random(seed)), memory_partition.directory
        )
        survivor.open(clean=False, recovery_point=6)
        assert survivor.values() == expected
        assert survivor.append(producer_batch(5)).duplicate


def test_a_flush_may_run_while_the_log_is_in_use(partition: Any, batch: Batch) -> None:
    partition.append(batch(b"a"))
    flush = partition.log.begin_flush()
    partition.append(batch(b"b"))
    partition.log.roll(NOW)
    partition.append(batch(b"c"))
    flush.run()
    partition.log.end_flush(flush, NOW)
    assert partition.log.flushed_offset == 1
    partition.log.flush(NOW)
    assert partition.log.flushed_offset == 3
    assert partition.log.begin_flush() is None


def test_a_flush_that_began_before_a_truncation_guarantees_nothing(partition: Any, batch: Batch) -> None:
    partition.append_values(b"a", b"b", b"c")
    flush = partition.log.begin_flush()
    flush.run()
    partition.log.truncate_to(1, NOW)
    partition.append(batch(b"other"))
    partition.log.end_flush(flush, NOW)
    assert partition.log.flushed_offset <= 1


def test_sealed_segments_alone_can_be_flushed(memory_partition: Any, batch: Batch) -> None:
    memory_partition.configure(segment_bytes=300)
    memory_partition.append_values(b"a" * 200, b"b" * 200, b"c" * 200)
    synced: list[str] = []
    memory_partition.file_system.fail_with = lambda operation, path: (
        synced.append(path.rpartition("/")[2]) if operation == "sync" else None
    )
    flush = memory_partition.log.begin_flush(2)
    flush.run()
    memory_partition.log.end_flush(flush, NOW)
    assert memory_partition.log.flushed_offset == 2
    assert "00000000000000000002.log" not in synced
    assert {"00000000000000000000.log", "00000000000000000001.timeindex"} <= set(synced)


def test_a_deleted_partition_does_not_disturb_a_running_flush(partition: Any, batch: Batch) -> None:
    partition.append(batch(b"a"))
    partition.log.roll(NOW)
    partition.append(batch(b"b"))
    flush = partition.log.begin_flush()
    partition.log.abandon()
    remove_partition_directory(partition.file_system, partition.directory)
    flush.run()
    partition.log.end_flush(flush, NOW)


def test_a_clean_shutdown_syncs_the_indexes_even_if_every_append_was_flushed(
    memory_partition: Any, batch: Batch
) -> None:
    """All records are flushed then, but the indexes of the active segment were never synced."""
    memory_partition.configure(index_interval_bytes=1, flush_messages=1)
    for _ in range(20):
        memory_partition.append(batch(b"x" * 100))
        memory_partition.log.flush(NOW)
    memory_partition.log.close(NOW)
    paths = [memory_partition.path(f"00000000000000000000.{kind}") for kind in ("index", "timeindex")]
    written = [memory_partition.file_system.read_file(path) for path in paths]
    assert all(written)
    for seed in range(50):
        survivor = memory_partition.file_system.crash(Random(seed))
        assert [survivor.read_file(path) for path in paths] == written

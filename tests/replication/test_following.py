"""A followed partition: its requests, truncation where the logs diverge, and the leader's high watermark. The local
broker has the id 1, and its leader the id 2."""

from __future__ import annotations

import errno
from random import Random
from typing import Any

import pytest

from moldau.log.memory_files import MemoryFileSystem
from moldau.log.producer_state import EndTransactionMarker, build_end_transaction_marker
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.fetch import EpochEndOffset, PartitionData
from moldau.protocol.records import Record, build_batch
from moldau.replication.following import FIRST_PAUSE_MS, Following, Next, Position
from moldau.replication.partition import Partition

from .partitions import DIRECTORY, NOW, Waiter, append, follow, lead, new_partition, plain_batch, refusal_of

MAX_PAUSE_MS = 1000


def from_leader(offset: int, leader_epoch: int, count: int = 1, **options: Any) -> bytes:
    """A batch in the log of the leader."""
    batch = bytearray(build_batch([Record(0, NOW, None, b"replicated")] * count, **options))
    batch[0:8] = offset.to_bytes(8, "big")
    batch[12:16] = leader_epoch.to_bytes(4, "big")
    return bytes(batch)


def following(partition: Partition, leader_epoch: int = 4, **options: Any) -> Following:
    assert follow(partition, leader_epoch, **options)
    return Following(partition)


def handle(following: Following, *, requested: Position | None = None, now_ms: int = 0, **data: Any) -> Next:
    """Process a response to this request, or to the next one, and truncate the log if it says so."""
    response = PartitionData(**{"high_watermark": 0, "log_start_offset": 0, "records": b"", **data})
    step = following.handle(
        requested or following.position, response, now_ms=now_ms, wall_ms=NOW, max_pause_ms=MAX_PAUSE_MS
    )
    return truncate(following, now_ms) if step is Next.TRUNCATE else step


def truncate(following: Following, now_ms: int = 0, *, sync: bool = True) -> Next:
    assert not following.is_due(1 << 60)
    return following.truncate(now_ms=now_ms, wall_ms=NOW, max_pause_ms=MAX_PAUSE_MS, sync=sync)


def led_before(*epochs: int) -> Partition:
    """A partition with one record of each of these leader epochs, which follows in no epoch yet."""
    partition = new_partition()
    for number, epoch in enumerate(epochs):
        assert lead(partition, leader_epoch=epoch, partition_epoch=-1 + number)
        append(partition)
    return partition


def test_a_follower_requests_the_records_after_its_own() -> None:
    partition = led_before(2, 3)
    followed = following(partition, partition_epoch=5)
    assert followed.position == Position(4, 2, 3, 0)
    assert handle(followed, records=from_leader(2, 4, count=3), high_watermark=4) is Next.FETCH
    assert followed.position == Position(4, 5, 4, 0)


def test_the_high_watermark_follows_the_leader_as_far_as_there_are_records() -> None:
    partition = new_partition()
    followed = following(partition)
    handle(followed, records=from_leader(0, 4, count=2), high_watermark=7)
    assert partition.high_watermark == 2
    handle(followed, records=from_leader(2, 4, count=2), high_watermark=3)
    assert partition.high_watermark == 3
    # A new leader does not know yet that these records are committed.
    handle(followed, high_watermark=1)
    assert partition.high_watermark == 3


def test_a_response_with_another_history_truncates_the_log_and_nothing_else() -> None:
    partition = led_before(2, 3, 3)
    followed = following(partition, partition_epoch=5)
    partition.append_as_follower(b"", high_watermark=1, log_start_offset=0, now_ms=NOW)
    before = partition.high_watermark
    diverging = EpochEndOffset(epoch=3, end_offset=2)
    assert handle(followed, diverging_epoch=diverging, high_watermark=9, log_start_offset=1) is Next.FETCH
    assert partition.log.log_end_offset == 2
    assert (partition.high_watermark, partition.log.log_start_offset) == (min(before, 2), 0)
    assert followed.position == Position(4, 2, 3, 0)


def test_a_truncation_of_an_earlier_leader_epoch_is_not_performed() -> None:
    partition = led_before(2, 3, 3)
    followed = following(partition, partition_epoch=5)
    response = PartitionData(high_watermark=0, log_start_offset=0, records=b"")
    response.diverging_epoch = EpochEndOffset(epoch=2, end_offset=1)
    step = followed.handle(followed.position, response, now_ms=0, wall_ms=NOW, max_pause_ms=MAX_PAUSE_MS)
    assert step is Next.TRUNCATE
    lead(partition, leader_epoch=6, partition_epoch=6, replicas=(1, 2), isr=(1, 2))
    assert truncate(followed) is Next.STOP
    assert partition.log.log_end_offset == 3


def test_records_after_a_truncation_that_is_not_synced_are_written_after_its_sync() -> None:
    """The broker leads before the flush has ended. A power failure must not restore records in front of new ones."""
    file_system = MemoryFileSystem()
    file_system.make_directory(DIRECTORY)
    partition = new_partition(file_system)
    lead(partition, leader_epoch=2, partition_epoch=0)
    for _ in range(3):
        append(partition)
    partition.log.flush(NOW)
    followed = following(partition, partition_epoch=5)
    response = PartitionData(high_watermark=0, log_start_offset=0, records=b"")
    response.diverging_epoch = EpochEndOffset(epoch=2, end_offset=1)
    followed.handle(followed.position, response, now_ms=0, wall_ms=NOW, max_pause_ms=MAX_PAUSE_MS)
    assert truncate(followed, sync=False) is Next.FETCH
    assert partition.log.cut_is_unsynced
    ends = {new_partition(file_system.crash(Random(seed)), clean=False).log.log_end_offset for seed in range(20)}
    assert ends == {1, 3}
    lead(partition, leader_epoch=6, partition_epoch=6, replicas=(1, 2), isr=(1, 2))
    append(partition)
    assert not partition.log.cut_is_unsynced
    for seed in range(20):
        log = new_partition(file_system.crash(Random(seed)), clean=False).log
        epochs = [batch.partition_leader_epoch for batch in log.batches(0)]
        assert epochs in ([2], [2, 6])


def test_an_epoch_that_the_leader_does_not_have_is_removed() -> None:
    partition = led_before(2, 3, 3)
    followed = following(partition, partition_epoch=5)
    handle(followed, diverging_epoch=EpochEndOffset(epoch=2, end_offset=9))
    assert followed.position == Position(4, 1, 2, 0)


def test_the_epoch_of_a_leader_that_has_not_appended_anything_is_removed() -> None:
    partition = led_before(2)
    assert lead(partition, leader_epoch=3, partition_epoch=3)
    followed = following(partition, partition_epoch=5)
    assert followed.position == Position(4, 1, 3, 0)
    assert handle(followed, diverging_epoch=EpochEndOffset(epoch=2, end_offset=1)) is Next.FETCH
    assert followed.position == Position(4, 1, 2, 0)


def test_a_divergence_that_truncation_cannot_resolve_is_not_repeated_without_a_pause() -> None:
    partition = led_before(2)
    followed = following(partition, partition_epoch=5)
    assert handle(followed, diverging_epoch=EpochEndOffset(epoch=2, end_offset=7), now_ms=10) is Next.PAUSE
    assert partition.log.log_end_offset == 1
    assert not followed.is_due(10)
    assert followed.is_due(10 + FIRST_PAUSE_MS)


def test_pauses_double_until_there_is_progress() -> None:
    followed = following(new_partition())
    pauses = []
    for _ in range(7):
        handle(followed, error_code=ErrorCode.UNKNOWN_LEADER_EPOCH, now_ms=0)
        pauses.append(followed.resume_ms)
    assert pauses == [50, 100, 200, 400, 800, 1000, 1000]
    assert followed.problem is not None
    handle(followed, records=from_leader(0, 4))
    assert followed.is_due(0)
    handle(followed, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER, now_ms=0)
    assert followed.resume_ms == 50


def test_a_response_of_an_earlier_leader_epoch_or_position_is_ignored() -> None:
    partition = new_partition()
    earlier = following(partition)
    requested = earlier.position
    handle(earlier, records=from_leader(0, 4))
    assert handle(earlier, requested=requested, records=from_leader(0, 4)) is Next.FETCH
    assert partition.log.log_end_offset == 1
    requested = earlier.position
    later = following(partition, 5, partition_epoch=2)
    assert handle(later, requested=requested, records=from_leader(1, 4)) is Next.FETCH
    assert partition.log.log_end_offset == 1
    assert handle(earlier, records=from_leader(1, 4)) is Next.STOP
    assert partition.log.log_end_offset == 1
    assert handle(later, records=from_leader(1, 5)) is Next.FETCH
    lead(partition, leader_epoch=6, partition_epoch=3, replicas=(1, 2), isr=(1, 2))
    assert handle(later, records=from_leader(2, 5)) is Next.STOP


def test_a_log_without_leader_epochs_is_truncated_to_its_high_watermark() -> None:
    file_system = MemoryFileSystem()
    file_system.make_directory(DIRECTORY)
    partition = new_partition(file_system)
    partition.log.append(plain_batch(3), now_ms=NOW, leader_epoch=-1)
    partition.restore_high_watermark(1)
    assert partition.log.latest_epoch == -1
    followed = following(partition)
    assert truncate(followed) is Next.FETCH
    # The batch at offset 1 contains the high watermark.
    assert followed.position.fetch_offset <= 1


def test_a_longer_log_is_truncated_to_the_end_of_the_leaders_log() -> None:
    partition = led_before(2, 3, 3)
    followed = following(partition, partition_epoch=5)
    position = followed.position
    assert handle(followed, error_code=ErrorCode.OFFSET_OUT_OF_RANGE) is Next.FIND_OFFSET
    assert followed.found_offsets(position, 2, 0) is Next.TRUNCATE
    assert truncate(followed) is Next.FETCH
    assert followed.position.fetch_offset == 2


def test_a_log_whose_next_records_were_deleted_begins_again_at_the_leaders_log_start() -> None:
    partition = led_before(2, 3, 3)
    followed = following(partition, partition_epoch=5)
    position = followed.position
    assert followed.found_offsets(position, 90, 50) is Next.TRUNCATE
    assert truncate(followed) is Next.FETCH
    assert followed.position == Position(4, 50, -1, 50)
    assert partition.high_watermark == 50
    assert handle(followed, records=from_leader(50, 4), high_watermark=51, log_start_offset=50) is Next.FETCH
    assert (partition.log.log_end_offset, partition.high_watermark) == (51, 51)


def test_the_leaders_log_start_is_taken_over_up_to_the_high_watermark() -> None:
    partition = new_partition()
    followed = following(partition)
    handle(followed, records=from_leader(0, 4) + from_leader(1, 4), high_watermark=1, log_start_offset=2)
    assert partition.log.log_start_offset == 1
    handle(followed, high_watermark=2, log_start_offset=2)
    assert partition.log.log_start_offset == 2


def test_corrupt_records_are_requested_again() -> None:
    partition = new_partition()
    followed = following(partition)
    damaged = bytearray(from_leader(0, 4))
    damaged[-1] ^= 1
    assert handle(followed, records=bytes(damaged)) is Next.PAUSE
    assert partition.log.log_end_offset == 0
    assert handle(followed, records=from_leader(0, 4)) is Next.FETCH


def test_batches_of_a_later_epoch_than_the_requested_one_are_not_appended() -> None:
    partition = new_partition()
    followed = following(partition)
    handle(followed, records=from_leader(0, 4) + from_leader(1, 5), high_watermark=2)
    assert (partition.log.log_end_offset, partition.high_watermark) == (1, 1)


def test_a_follower_that_becomes_leader_keeps_transactions_open_whose_markers_may_not_be_committed() -> None:
    partition = new_partition()
    followed = following(partition)
    batch = from_leader(0, 4, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    marker = build_end_transaction_marker(7, 0, EndTransactionMarker(True, 0), offset=1, leader_epoch=4, now_ms=NOW)
    handle(followed, records=batch + marker, high_watermark=1)
    assert (partition.high_watermark, partition.last_stable_offset) == (1, 0)
    lead(partition, leader_epoch=5, partition_epoch=2, replicas=(1, 2), isr=(1, 2))
    assert (partition.high_watermark, partition.last_stable_offset) == (1, 0)
    partition.follower_fetched(2, 2, now_ms=NOW, eligible=True)
    partition.advance_high_watermark()
    assert (partition.high_watermark, partition.last_stable_offset) == (2, 2)


def test_truncation_removes_the_markers_of_open_transactions() -> None:
    partition = new_partition()
    followed = following(partition)
    batch = from_leader(0, 4, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    marker = build_end_transaction_marker(7, 0, EndTransactionMarker(True, 0), offset=1, leader_epoch=4, now_ms=NOW)
    handle(followed, records=batch + marker, high_watermark=0)
    handle(followed, diverging_epoch=EpochEndOffset(epoch=4, end_offset=1))
    assert partition.log.log_end_offset == 1
    assert partition.has_open_transaction(7, 0)
    assert partition.uncommitted is not None
    assert partition.uncommitted.first_ending is None


@pytest.mark.parametrize("leader_id", [-1, 3])
def test_a_partition_with_another_leader_or_none_is_not_followed_any_longer(leader_id: int) -> None:
    partition = new_partition()
    followed = following(partition)
    follow(partition, 5, 2, leader_id=leader_id)
    assert handle(followed, records=from_leader(0, 4)) is Next.STOP


@pytest.mark.parametrize(("code", "step"), [(errno.ENOSPC, Next.PAUSE), (errno.EIO, Next.STOP)])
def test_a_full_disk_pauses_and_a_broken_one_stops_the_replication(code: int, step: Next) -> None:
    file_system = MemoryFileSystem()
    file_system.make_directory(DIRECTORY)
    followed = following(new_partition(file_system))
    file_system.fail_with = lambda operation, path: code if operation == "write" else None
    assert handle(followed, records=from_leader(0, 4), now_ms=10) is step
    assert followed.problem is not None
    file_system.fail_with = None
    assert followed.is_due(10 + FIRST_PAUSE_MS) is (step is Next.PAUSE)
    if step is Next.PAUSE:
        assert handle(followed, records=from_leader(0, 4)) is Next.FETCH
        assert followed.partition.log.log_end_offset == 1


def test_consumers_of_a_follower_are_notified_when_its_high_watermark_moves() -> None:
    partition = new_partition()
    followed = following(partition)
    waiter = Waiter()
    partition.waiters.wait_for_bytes(waiter, 1)
    handle(followed, records=from_leader(0, 4))
    assert waiter.notified == 0
    handle(followed, high_watermark=1)
    assert waiter.notified == 1
    partition.check_leader(4, or_follower=True)
    assert refusal_of(partition.check_leader, 4) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert refusal_of(partition.check_leader, 3, or_follower=True) is ErrorCode.FENCED_LEADER_EPOCH


def test_consumers_of_a_follower_are_notified_when_a_marker_is_committed() -> None:
    partition = new_partition()
    followed = following(partition)
    batch = from_leader(0, 4, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    marker = build_end_transaction_marker(7, 0, EndTransactionMarker(True, 0), offset=1, leader_epoch=4, now_ms=NOW)
    handle(followed, records=batch, high_watermark=1)
    waiter = Waiter()
    partition.waiters.wait_for_stable(waiter)
    handle(followed, records=marker, high_watermark=1)
    assert (waiter.notified, partition.last_stable_offset) == (0, 0)
    handle(followed, high_watermark=2)
    assert (waiter.notified, partition.last_stable_offset) == (1, 2)


def test_an_empty_log_begins_with_the_whole_batch_in_which_the_log_of_the_leader_begins() -> None:
    """DeleteRecords may move the log start offset of the leader into a batch."""
    partition = new_partition()
    followed = following(partition)
    requested = followed.position
    assert handle(followed, error_code=ErrorCode.OFFSET_OUT_OF_RANGE) is Next.FIND_OFFSET
    assert followed.found_offsets(requested, 5, 2) is Next.TRUNCATE
    assert truncate(followed) is Next.FETCH
    assert followed.position == Position(4, 2, -1, 2)
    batch = from_leader(0, 4, count=5)
    assert handle(followed, records=batch, high_watermark=5, log_start_offset=2) is Next.FETCH
    assert followed.position == Position(4, 5, 4, 2)
    assert (partition.log.log_start_offset, partition.high_watermark) == (2, 5)
    assert handle(followed, records=from_leader(5, 4), high_watermark=6, log_start_offset=2) is Next.FETCH


def test_a_log_with_records_rejects_a_batch_that_overlaps_them() -> None:
    partition = led_before(2, 3)
    followed = following(partition, partition_epoch=5)
    assert handle(followed, records=from_leader(0, 4, count=5), high_watermark=5) is Next.PAUSE
    assert partition.log.log_end_offset == 2

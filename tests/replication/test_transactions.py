"""A partition with transactions: the limit for read_committed readers, and when waiting fetches are notified."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from moldau.log.memory_files import MemoryFileSystem
from moldau.log.segments import Segments
from moldau.protocol.errors import ErrorCode
from moldau.protocol.records import Record, build_batch
from moldau.replication.partition import ISOLATION_READ_COMMITTED, ISOLATION_READ_UNCOMMITTED

from .partitions import DIRECTORY, NOW, Waiter, append, follow, lead, new_partition, open_partition, refusal_of


@pytest.fixture
def file_system() -> Any:
    file_system = MemoryFileSystem()
    file_system.make_directory(DIRECTORY)
    return file_system


@pytest.fixture
def partition(file_system: Any) -> Any:
    return open_partition(file_system)


class Producer:
    """Writes in transactions, each with a new epoch (KIP-890)."""

    def __init__(self, partition: Any, producer_id: int) -> None:
        self.partition = partition
        self.producer_id = producer_id
        self.epoch = 0
        self.sequence = 0

    def write(self, count: int = 1, **options: Any) -> Any:
        data = build_batch(
            [Record(0, NOW, None, b"x")] * count,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=self.sequence,
            transactional=True,
        )
        verification = self.partition.start_verification(
            self.producer_id, self.epoch, self.sequence, epoch_per_transaction=True, now_ms=NOW
        )
        info = self.partition.append(data, acks=-1, now_ms=NOW, verification=verification)
        self.sequence += count
        return info

    def end(self, *, committed: bool = True, coordinator_epoch: int = 0) -> Any:
        self.epoch += 1
        self.sequence = 0
        return self.partition.append_marker(
            self.producer_id,
            self.epoch,
            coordinator_epoch=coordinator_epoch,
            committed=committed,
            transaction_version=2,
            now_ms=NOW,
        )


def offsets(partition: Any) -> Any:
    return partition.last_stable_offset, partition.high_watermark


def test_the_last_stable_offset_is_the_start_of_the_oldest_open_transaction(partition: Any) -> None:
    first, second = Producer(partition, 1), Producer(partition, 2)
    append(partition, 2)
    assert offsets(partition) == (2, 2)
    first.write(3)
    assert offsets(partition) == (2, 5)
    append(partition)
    second.write()
    second.end()
    assert offsets(partition) == (2, 8)
    first.end(committed=False)
    assert offsets(partition) == (9, 9)
    second.write()
    assert offsets(partition) == (9, 10)


def test_a_read_committed_reader_stops_there_and_gets_aborted_transactions(partition: Any) -> None:
    producer = Producer(partition, 1)
    producer.write()
    producer.end(committed=False)
    append(partition)
    producer.write()
    found = partition.read(0, 1_000, isolation_level=ISOLATION_READ_COMMITTED, min_one_batch=True)
    assert len(found.records) == partition.log.segments.active.locate(3)[0]
    assert found.aborted_transactions == [(1, 0, 1, 2)]
    found = partition.read(0, 1_000, isolation_level=ISOLATION_READ_UNCOMMITTED, min_one_batch=True)
    assert len(found.records) == partition.log.size
    assert found.aborted_transactions == ()
    for offset in (3, 4):
        found = partition.read(offset, 1_000, isolation_level=ISOLATION_READ_COMMITTED, min_one_batch=True)
        assert found.records is None


@pytest.mark.parametrize("clean", [True, False])
def test_open_transactions_limit_readers_after_a_restart(file_system: Any, partition: Any, clean: bool) -> None:
    append(partition)
    Producer(partition, 1).write(2)
    append(partition)
    if clean:
        partition.log.close(NOW)
    file_system = file_system.crash()
    partition = open_partition(file_system, clean=clean)
    assert offsets(partition) == (1, 4)
    assert partition.has_open_transaction(1, 0)
    partition.append_marker(1, 1, coordinator_epoch=0, committed=True, transaction_version=2, now_ms=NOW)
    assert offsets(partition) == (5, 5)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("rolled", ["nothing", "before", "between"])
def test_after_a_restart_a_transaction_is_open_until_its_marker_is_committed(
    file_system: Any, partition: Any, clean: bool, committed: bool, rolled: str
) -> None:
    """The high watermark of the checkpoint is between the records of a transaction and its marker."""
    earlier, first, second = (Producer(partition, number) for number in range(3))
    earlier.write()
    earlier.end()  # 1
    if rolled == "before":
        partition.log.roll(NOW)
    append(partition)
    first.write()  # 3
    if rolled == "between":
        partition.log.roll(NOW)
    second.write()  # 4
    append(partition)  # 5
    second.end(committed=committed)  # 6
    first.end(committed=committed)  # 7
    append(partition)
    if clean:
        partition.log.close(NOW)
    partition = new_partition(file_system.crash(), clean=clean)
    partition.restore_high_watermark(5)
    found = []
    lead(partition, replicas=(1, 2), isr=(1, 2))
    for position in (5, 6, 7, 8, 9):
        partition.follower_fetched(2, position, now_ms=NOW, eligible=True)
        partition.advance_high_watermark()
        found.append(offsets(partition))
    assert found == [(3, 5), (3, 6), (3, 7), (8, 8), (9, 9)]


def test_a_marker_that_is_truncated_after_a_restart_leaves_its_transaction_open(
    file_system: Any, partition: Any
) -> None:
    producer = Producer(partition, 1)
    producer.write()
    producer.end()
    partition = new_partition(file_system, clean=False)
    partition.restore_high_watermark(1)
    follow(partition)
    partition.truncate_as_follower(1, NOW)
    partition.append_as_follower(b"", high_watermark=1, log_start_offset=0, now_ms=NOW)
    assert offsets(partition) == (0, 1)
    assert partition.has_open_transaction(1, 0)


def test_if_uncommitted_records_cannot_be_read_no_transaction_ends_before_they_are_committed(
    file_system: Any, partition: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = Producer(partition, 1)
    append(partition)
    producer.write()
    producer.end()
    partition = new_partition(file_system, clean=False)

    def fail(*_arguments: Any) -> Any:
        raise OSError(errno.EMFILE, "too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(Segments, "producer_batches", fail)
        partition.restore_high_watermark(2)
    assert offsets(partition) == (0, 2)
    lead(partition, replicas=(1, 2), isr=(1, 2))
    partition.follower_fetched(2, 3, now_ms=NOW, eligible=True)
    partition.advance_high_watermark()
    assert offsets(partition) == (3, 3)


def test_deleting_the_start_of_an_open_transaction_keeps_it_open(file_system: Any, partition: Any) -> None:
    producer = Producer(partition, 1)
    producer.write(3)
    producer.write(3)
    partition.delete_records_before(4)
    assert offsets(partition) == (4, 6)
    assert partition.has_open_transaction(1, 0)
    producer.end(committed=False)
    assert offsets(partition) == (7, 7)
    found = partition.read(4, 1_000, isolation_level=ISOLATION_READ_COMMITTED, min_one_batch=True)
    assert found.aborted_transactions == [(1, 0, 6, 7)]


def test_a_marker_requires_the_leader_but_no_in_sync_replicas(partition: Any) -> None:
    producer = Producer(partition, 1)
    producer.write()
    partition.update_config(partition.log.config, min_insync_replicas=2)
    lead(partition, partition_epoch=1, replicas=(1, 2), isr=(1,))
    assert refusal_of(append, partition) is ErrorCode.NOT_ENOUGH_REPLICAS
    producer.end()
    assert partition.log.log_end_offset == 2
    assert offsets(partition) == (0, 1)  # records with too few replicas are not committed
    partition.update_config(partition.log.config, min_insync_replicas=1)
    assert offsets(partition) == (2, 2)
    follow(partition, leader_epoch=4, partition_epoch=2)
    assert refusal_of(producer.end) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    verify = partition.start_verification
    assert refusal_of(verify, 1, 5, 0, epoch_per_transaction=True, now_ms=NOW) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_an_earlier_coordinator_is_fenced(partition: Any) -> None:
    producer = Producer(partition, 1)
    producer.write()
    producer.end(coordinator_epoch=5)
    producer.write()
    assert refusal_of(producer.end, coordinator_epoch=4) is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert offsets(partition) == (2, 3)


def test_markers_are_flushed_like_other_appends(file_system: Any) -> None:
    partition = open_partition(file_system, flush_messages=1)
    producer = Producer(partition, 1)
    producer.write()
    producer.end()
    assert partition.log.flushed_offset == 2


def test_a_waiter_is_notified_only_when_the_oldest_transaction_ends(partition: Any) -> None:
    first, second, waiter = Producer(partition, 1), Producer(partition, 2), Waiter()
    first.write()
    second.write()
    assert partition.has_unstable_records
    partition.waiters.wait_for_stable(waiter)
    append(partition, 100)
    second.end()
    assert waiter.notified == 0
    assert len(partition.waiters) == 1
    first.end()
    assert (waiter.notified, len(partition.waiters), partition.has_unstable_records) == (1, 0, False)


def test_a_waiter_is_notified_of_changes_unless_it_was_removed(partition: Any) -> None:
    staying, leaving = Waiter(), Waiter()
    Producer(partition, 1).write()
    partition.waiters.wait_for_stable(staying)
    partition.waiters.wait_for_stable(leaving)
    partition.waiters.remove(leaving)
    partition.delete_records_before(1)
    assert (staying.changed, leaving.changed) == (1, 0)


def test_a_waiter_for_bytes_may_wait_for_a_transaction_instead(partition: Any) -> None:
    waiter = Waiter()
    partition.waiters.wait_for_bytes(waiter, 10)
    partition.waiters.wait_for_stable(waiter)
    append(partition, 100)
    assert waiter.notified == 0
    partition.waiters.notify_stable()
    assert waiter.notified == 1


def test_a_waiter_that_waits_again_during_its_notification_waits_for_the_next(partition: Any) -> None:
    class Again(Waiter):
        def enough(self) -> None:
            super().enough()
            partition.waiters.wait_for_stable(self)

    waiter = Again()
    partition.waiters.wait_for_stable(waiter)
    partition.waiters.notify_stable()
    assert waiter.notified == 1
    partition.waiters.notify_stable()
    assert waiter.notified == 2

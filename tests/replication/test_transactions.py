"""A partition with transactions: how far a reader of committed records may go, and when those who wait are told."""

import pytest

from moldau.log.config import LogConfig
from moldau.log.descriptors import DescriptorCache
from moldau.log.loader import load_log
from moldau.log.memory_files import MemoryFileSystem
from moldau.protocol.errors import ErrorCode, KafkaError
from moldau.protocol.records import Record, build_batch
from moldau.replication.partition import ISOLATION_READ_COMMITTED, ISOLATION_READ_UNCOMMITTED, Partition

NOW = 1_700_000_000_000
DIRECTORY = "/data/t-0"


def open_partition(file_system, *, clean=True, **config):
    log = load_log(DescriptorCache(file_system, 8), DIRECTORY, "t", 0, LogConfig(**config), clean=clean, now_ms=NOW)
    partition = Partition("t", b"\1" * 16, 0, 1, log)
    partition.update(leader_id=1, leader_epoch=3, partition_epoch=0, replicas=(1,), isr=(1,))
    return partition


@pytest.fixture
def file_system():
    file_system = MemoryFileSystem()
    file_system.make_directory(DIRECTORY)
    return file_system


@pytest.fixture
def partition(file_system):
    return open_partition(file_system)


class Producer:
    """Writes in transactions, each with an epoch of its own (KIP-890)."""

    def __init__(self, partition, producer_id):
        self.partition = partition
        self.producer_id = producer_id
        self.epoch = 0
        self.sequence = 0

    def write(self, count=1, **options):
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

    def end(self, *, committed=True, coordinator_epoch=0):
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


def write_plain(partition, count=1):
    return partition.append(build_batch([Record(0, NOW, None, b"plain")] * count), acks=-1, now_ms=NOW)


def offsets(partition):
    return partition.last_stable_offset, partition.high_watermark


def test_the_last_stable_offset_is_where_the_oldest_open_transaction_begins(partition):
    first, second = Producer(partition, 1), Producer(partition, 2)
    write_plain(partition, 2)
    assert offsets(partition) == (2, 2)
    first.write(3)
    assert offsets(partition) == (2, 5)
    write_plain(partition)
    second.write()
    second.end()
    assert offsets(partition) == (2, 8)
    first.end(committed=False)
    assert offsets(partition) == (9, 9)
    second.write()
    assert offsets(partition) == (9, 10)


def test_a_reader_of_committed_records_stops_there_and_is_told_of_what_was_aborted(partition):
    producer = Producer(partition, 1)
    producer.write()
    producer.end(committed=False)
    write_plain(partition)
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
def test_open_transactions_hold_back_after_a_restart(file_system, partition, clean):
    write_plain(partition)
    Producer(partition, 1).write(2)
    write_plain(partition)
    if clean:
        partition.log.close(NOW)
    file_system = file_system.crash()
    partition = open_partition(file_system, clean=clean)
    assert offsets(partition) == (1, 4)
    assert partition.has_open_transaction(1, 0)
    partition.append_marker(1, 1, coordinator_epoch=0, committed=True, transaction_version=2, now_ms=NOW)
    assert offsets(partition) == (5, 5)


def test_deleting_the_beginning_of_an_open_transaction_leaves_it_open(file_system, partition):
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


def test_a_marker_needs_the_leader_and_no_replicas_in_sync(partition):
    producer = Producer(partition, 1)
    producer.write()
    partition.update_config(partition.log.config, min_insync_replicas=2)
    partition.update(leader_id=1, leader_epoch=3, partition_epoch=1, replicas=(1, 2), isr=(1,))
    with pytest.raises(KafkaError) as refused:
        write_plain(partition)
    assert refused.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
    producer.end()
    assert offsets(partition) == (2, 2)
    partition.update(leader_id=2, leader_epoch=4, partition_epoch=2, replicas=(1, 2), isr=(1, 2))
    with pytest.raises(KafkaError) as refused:
        producer.end()
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    with pytest.raises(KafkaError) as refused:
        partition.start_verification(1, 5, 0, epoch_per_transaction=True, now_ms=NOW)
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_coordinator_of_the_past_is_fenced(partition):
    producer = Producer(partition, 1)
    producer.write()
    producer.end(coordinator_epoch=5)
    producer.write()
    with pytest.raises(KafkaError) as refused:
        producer.end(coordinator_epoch=4)
    assert refused.value.code is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert offsets(partition) == (2, 3)


def test_markers_are_flushed_as_other_appends_are(file_system):
    partition = open_partition(file_system, flush_messages=1)
    producer = Producer(partition, 1)
    producer.write()
    producer.end()
    assert partition.log.flushed_offset == 2


class Waiter:
    def __init__(self):
        self.told = 0
        self.changed = 0

    def enough(self):
        self.told += 1

    def partition_changed(self):
        self.changed += 1


def test_who_is_held_back_is_told_when_the_oldest_transaction_ends_and_not_before(partition):
    first, second, waiter = Producer(partition, 1), Producer(partition, 2), Waiter()
    first.write()
    second.write()
    assert partition.has_unstable_records
    partition.waiters.tell_when_stable(waiter)
    write_plain(partition, 100)
    second.end()
    assert waiter.told == 0
    assert len(partition.waiters) == 1
    first.end()
    assert (waiter.told, len(partition.waiters), partition.has_unstable_records) == (1, 0, False)


def test_who_is_held_back_is_told_of_changes_unless_it_has_left(partition):
    staying, leaving = Waiter(), Waiter()
    Producer(partition, 1).write()
    partition.waiters.tell_when_stable(staying)
    partition.waiters.tell_when_stable(leaving)
    partition.waiters.remove(leaving)
    partition.delete_records_before(1)
    assert (staying.changed, leaving.changed) == (1, 0)


def test_who_waited_for_bytes_may_wait_for_a_transaction_instead(partition):
    waiter = Waiter()
    partition.waiters.tell(waiter, 10)
    partition.waiters.tell_when_stable(waiter)
    write_plain(partition, 100)
    assert waiter.told == 0
    partition.waiters.tell_stable()
    assert waiter.told == 1


def test_who_waits_again_while_it_is_told_waits_for_the_next(partition):
    class Again(Waiter):
        def enough(self):
            super().enough()
            partition.waiters.tell_when_stable(self)

    waiter = Again()
    partition.waiters.tell_when_stable(waiter)
    partition.waiters.tell_stable()
    assert waiter.told == 1
    partition.waiters.tell_stable()
    assert waiter.told == 2

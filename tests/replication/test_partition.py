"""Leadership, fencing, and the durable and committed offsets of a partition."""

from __future__ import annotations

from typing import Any

import pytest

from moldau.log.memory_files import MemoryFileSystem
from moldau.log.partition_log import Log
from moldau.protocol.errors import ErrorCode, KafkaError
from moldau.protocol.records import Record, build_batch
from moldau.replication.partition import ISOLATION_READ_UNCOMMITTED, Partition

from .partitions import DIRECTORY, NOW, Waiter, append, follow, lead, new_partition, open_partition, plain_batch
from .partitions import refusal_of as refusal

OPERATIONS: dict[str, Any] = {
    "append": append,
    "append with acks=1": lambda partition: append(partition, acks=1),
    "append_marker": lambda partition: partition.append_marker(
        7, 0, coordinator_epoch=0, committed=True, transaction_version=2, now_ms=NOW
    ),
    "start_verification": lambda partition: partition.start_verification(
        7, 0, 0, epoch_per_transaction=True, now_ms=NOW
    ),
    "delete_records_before": lambda partition: partition.delete_records_before(0),
    "check_leader": Partition.check_leader,
}
each_operation = pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)


def append_plain(partition: Partition, acks: int = -1, count: int = 1) -> int:
    """The number of the `count` batches that the fast path appends."""
    return len(partition.append_plain([plain_batch()] * count, acks=acks, now_ms=NOW))


class Device:
    """Counts the flushes that a partition requests. The test completes them."""

    def __init__(self) -> None:
        self.wanted: list[Log] = []

    def flush(self) -> None:
        """Make all appended records durable."""
        log = self.wanted.pop()
        self.wanted.clear()
        log.flush(NOW)


class Acknowledgements:
    """The callbacks of `Partition.when_committed` and `when_acknowledged`, in the order of arrival."""

    def __init__(self, partition: Partition) -> None:
        self._partition = partition
        self.arrived: list[tuple[int, ErrorCode | None]] = []

    def await_committed(self, end_offset: int) -> None:
        self._partition.when_committed(end_offset, self._callback(end_offset))

    def await_acknowledged(self, end_offset: int, acks: int) -> None:
        self._partition.when_acknowledged(end_offset, acks, self._callback(end_offset))

    def _callback(self, end_offset: int) -> Any:
        return lambda error: self.arrived.append((end_offset, None if error is None else error.code))


@pytest.fixture
def device() -> Device:
    return Device()


@pytest.fixture
def durable(device: Device) -> Partition:
    """A partition whose appends are committed when they are durable."""
    return open_partition(request_flush=device.wanted.append, flush_messages=1)


# -- leadership --------------------------------------------------------------------------------------------------------


@each_operation
def test_before_the_controller_names_a_leader_all_requests_are_rejected(operation: str) -> None:
    partition = new_partition()
    assert refusal(operation, partition) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert append_plain(partition) == 0


@each_operation
def test_a_follower_rejects_requests(operation: str) -> None:
    partition = open_partition()
    follow(partition)
    assert refusal(operation, partition) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert append_plain(partition) == append_plain(partition, acks=1) == 0
    assert partition.log.log_end_offset == 0


@each_operation
def test_without_a_leader_all_requests_are_rejected(operation: str) -> None:
    partition = open_partition()
    follow(partition, leader_id=-1, replicas=(1,), isr=())
    assert refusal(operation, partition) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert append_plain(partition) == 0


@each_operation
def test_an_offline_partition_rejects_requests(operation: str) -> None:
    partition = open_partition()
    partition.go_offline()
    assert refusal(operation, partition) is ErrorCode.KAFKA_STORAGE_ERROR
    assert append_plain(partition) == append_plain(partition, acks=1) == 0


@each_operation
def test_a_closed_partition_rejects_requests(operation: str) -> None:
    partition = open_partition()
    partition.close()
    assert refusal(operation, partition) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert append_plain(partition) == 0


def test_a_follower_may_lead_again() -> None:
    partition = open_partition()
    append(partition)
    follow(partition)
    lead(partition, leader_epoch=5, partition_epoch=2)
    assert append(partition).first_offset == 1
    assert append_plain(partition) == 1


def test_records_have_the_leader_epoch_of_their_append() -> None:
    partition = open_partition()
    append(partition)
    lead(partition, leader_epoch=5, partition_epoch=1)
    append(partition)
    append_plain(partition)
    assert [partition.log.epoch_of(offset) for offset in range(3)] == [3, 5, 5]


def test_an_epoch_without_records_is_known() -> None:
    partition = open_partition()
    append(partition, 2)
    lead(partition, leader_epoch=5, partition_epoch=1)
    assert partition.end_offset_for_epoch(5) == (5, 2)
    append(partition)
    assert partition.end_offset_for_epoch(3) == partition.end_offset_for_epoch(4) == (3, 2)
    assert partition.end_offset_for_epoch(5) == (5, 3)
    assert partition.end_offset_for_epoch(6) == (-1, -1)


def test_an_epoch_of_another_leader_is_not_recorded() -> None:
    partition = open_partition()
    append(partition)
    follow(partition, leader_epoch=4)
    assert partition.log.latest_epoch == 3


# -- fencing -----------------------------------------------------------------------------------------------------------


def test_a_client_with_another_leader_epoch_is_rejected() -> None:
    partition = open_partition()
    partition.check_leader(3)
    partition.check_leader(-1)
    assert refusal(partition.check_leader, 2) is ErrorCode.FENCED_LEADER_EPOCH
    assert refusal(partition.check_leader, 4) is ErrorCode.UNKNOWN_LEADER_EPOCH
    lead(partition, leader_epoch=4, partition_epoch=1)
    partition.check_leader(4)
    assert refusal(partition.check_leader, 3) is ErrorCode.FENCED_LEADER_EPOCH
    follow(partition, leader_epoch=5, partition_epoch=2)
    assert refusal(partition.check_leader, 4) is ErrorCode.FENCED_LEADER_EPOCH
    assert refusal(partition.check_leader, 5) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert refusal(partition.check_leader, 6) is ErrorCode.UNKNOWN_LEADER_EPOCH
    assert refusal(partition.check_leader, -1) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_waiting_fetches_are_notified_when_the_leader_or_its_epoch_changes() -> None:
    partition, waiter = open_partition(), Waiter()
    partition.waiters.wait_for_bytes(waiter, 1_000)
    lead(partition, partition_epoch=1, replicas=(1, 2))  # the same leader in the same epoch
    assert waiter.changed == 0
    lead(partition, leader_epoch=4, partition_epoch=2, replicas=(1, 2))
    assert waiter.changed == 1
    follow(partition, leader_epoch=5, partition_epoch=3)
    assert waiter.changed == 2
    partition.close()
    assert (waiter.changed, waiter.notified) == (3, 0)


# -- which replicas must be in sync ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("replicas", "isr", "min_insync_replicas", "enough"),
    [
        ((1,), (1,), 1, True),
        ((1,), (1,), 2, True),  # no more replicas are required than exist
        ((1, 2), (1,), 1, True),
        ((1, 2), (1,), 2, False),
        ((1, 2, 3), (1, 3), 2, True),
        ((1, 2, 3), (1, 3), 3, False),
    ],
)
def test_acks_all_requires_min_insync_replicas(replicas: Any, isr: Any, min_insync_replicas: int, enough: bool) -> None:
    partition = new_partition()
    partition.update_config(partition.log.config, min_insync_replicas=min_insync_replicas)
    lead(partition, replicas=replicas, isr=isr)
    if enough:
        append(partition)
    else:
        assert refusal(append, partition) is ErrorCode.NOT_ENOUGH_REPLICAS
        assert append_plain(partition) == 0
    end_offset = partition.log.log_end_offset
    append(partition, acks=1)
    append(partition, acks=0)
    assert append_plain(partition, acks=1) == 1
    assert partition.log.log_end_offset == end_offset + 3


def test_min_insync_replicas_may_change() -> None:
    partition = open_partition()
    lead(partition, partition_epoch=1, replicas=(1, 2), isr=(1,))
    append(partition)
    partition.update_config(partition.log.config, min_insync_replicas=2)
    assert refusal(append, partition) is ErrorCode.NOT_ENOUGH_REPLICAS
    partition.update_config(partition.log.config, min_insync_replicas=1)
    append(partition)


# -- offsets -----------------------------------------------------------------------------------------------------------


def test_with_one_replica_the_high_watermark_is_the_log_end() -> None:
    partition = open_partition()
    acknowledged: list[Any] = []
    for end_offset in range(1, 4):
        append(partition)
        assert partition.high_watermark == partition.last_stable_offset == end_offset
        partition.when_committed(end_offset, acknowledged.append)
    assert append_plain(partition, count=2) == 2
    assert partition.high_watermark == partition.visible_end_offset(ISOLATION_READ_UNCOMMITTED) == 5
    assert acknowledged == [None, None, None]


def test_an_append_that_must_be_flushed_is_committed_after_the_flush(durable: Any, device: Any) -> None:
    acknowledged = Acknowledgements(durable)
    waiter = Waiter()
    durable.waiters.wait_for_bytes(waiter, 1)
    append(durable, 2)
    acknowledged.await_committed(2)
    assert (durable.high_watermark, durable.log.log_end_offset, device.wanted) == (0, 2, [durable.log])
    assert durable.read(0, 1_000, isolation_level=ISOLATION_READ_UNCOMMITTED, min_one_batch=True).records is None
    assert (acknowledged.arrived, waiter.notified) == ([], 0)
    device.flush()
    assert (durable.high_watermark, waiter.notified) == (2, 1)
    assert acknowledged.arrived == [(2, None)]
    acknowledged.await_committed(2)
    assert acknowledged.arrived == [(2, None)] * 2


def test_acknowledgements_arrive_in_the_order_of_offsets(durable: Any, device: Any) -> None:
    acknowledged = Acknowledgements(durable)
    for _ in range(3):
        append(durable)
    for end_offset in (3, 1, 2):
        acknowledged.await_committed(end_offset)
    device.flush()
    assert [end_offset for end_offset, _ in acknowledged.arrived] == [1, 2, 3]


def test_records_appended_during_a_flush_wait_for_the_next(durable: Any, device: Any) -> None:
    acknowledged = Acknowledgements(durable)
    append(durable)
    acknowledged.await_committed(1)
    flush = durable.log.begin_flush()
    append(durable)
    acknowledged.await_committed(2)
    flush.run()
    durable.log.end_flush(flush, NOW)
    assert (durable.high_watermark, acknowledged.arrived) == (1, [(1, None)])
    assert device.wanted
    device.flush()
    assert (durable.high_watermark, acknowledged.arrived) == (2, [(1, None), (2, None)])


def test_a_callback_that_raises_does_not_stop_the_others(
    durable: Any, device: Any, caplog: pytest.LogCaptureFixture
) -> None:
    acknowledged = Acknowledgements(durable)

    def fail(error: KafkaError | None) -> None:
        raise RuntimeError("a callback has failed")

    append(durable)
    durable.when_committed(1, fail)
    acknowledged.await_committed(1)
    device.flush()
    assert acknowledged.arrived == [(1, None)]
    assert "a callback has failed" in caplog.text


def test_the_fast_path_skips_appends_that_wait_for_a_flush(device: Any) -> None:
    partition = open_partition(request_flush=device.wanted.append, flush_messages=3)
    assert append_plain(partition) == append_plain(partition, acks=1) == 0
    append(partition, 2)  # no flush is due yet
    assert (partition.high_watermark, device.wanted) == (2, [])
    append(partition)
    assert (partition.high_watermark, len(device.wanted)) == (2, 1)


def test_the_old_setting_applies_until_the_flush_has_ended(durable: Any, device: Any) -> None:
    append(durable)
    durable.update_config(new_partition().log.config, min_insync_replicas=1)
    append(durable)
    assert (durable.high_watermark, append_plain(durable)) == (0, 0)
    device.flush()
    assert durable.high_watermark == 2
    assert append_plain(durable) == 1
    assert durable.high_watermark == 3


def lose_leadership(partition: Partition) -> None:
    follow(partition)


@pytest.mark.parametrize(
    ("event", "code"),
    [
        (lose_leadership, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (Partition.go_offline, ErrorCode.KAFKA_STORAGE_ERROR),
        (Partition.close, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (lambda partition: partition.close(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
    ids=["follower", "offline", "removed", "deleted"],
)
def test_requests_that_wait_for_a_flush_fail_when_the_partition_changes_state(
    durable: Any, device: Any, event: Any, code: ErrorCode
) -> None:
    acknowledged = Acknowledgements(durable)
    append(durable)
    append(durable)
    acknowledged.await_committed(2)
    acknowledged.await_committed(1)
    event(durable)
    assert acknowledged.arrived == [(1, code), (2, code)]
    device.flush()
    assert len(acknowledged.arrived) == 2


def test_a_new_epoch_of_the_same_leader_leaves_requests_waiting(durable: Any, device: Any) -> None:
    acknowledged = Acknowledgements(durable)
    append(durable)
    acknowledged.await_committed(1)
    lead(durable, leader_epoch=4, partition_epoch=1)
    assert acknowledged.arrived == []
    device.flush()
    assert acknowledged.arrived == [(1, None)]


def test_records_of_a_killed_process_are_committed_after_their_flush(device: Any) -> None:
    file_system = MemoryFileSystem()
    file_system.make_directory(DIRECTORY)
    append(open_partition(file_system), 3)
    partition = open_partition(file_system, clean=False, request_flush=device.wanted.append, flush_messages=1)
    assert (partition.high_watermark, partition.log.log_end_offset) == (0, 3)
    device.flush()
    assert partition.high_watermark == 3


def test_a_transaction_is_open_for_readers_until_its_marker_is_flushed(durable: Any, device: Any) -> None:
    data = build_batch(
        [Record(0, NOW, None, b"x")], producer_id=7, producer_epoch=0, base_sequence=0, transactional=True
    )
    verification = durable.start_verification(7, 0, 0, epoch_per_transaction=True, now_ms=NOW)
    durable.append(data, acks=-1, now_ms=NOW, verification=verification)
    device.flush()
    assert (durable.last_stable_offset, durable.high_watermark) == (0, 1)
    waiter = Waiter()
    durable.waiters.wait_for_stable(waiter)
    durable.append_marker(7, 1, coordinator_epoch=0, committed=True, transaction_version=2, now_ms=NOW)
    assert (durable.last_stable_offset, durable.high_watermark, waiter.notified) == (0, 1, 0)
    assert durable.has_unstable_records
    device.flush()
    assert (durable.last_stable_offset, durable.high_watermark, waiter.notified) == (2, 2, 1)
    assert not durable.has_unstable_records


def test_records_above_the_high_watermark_cannot_be_deleted(durable: Any, device: Any) -> None:
    append(durable, 2)
    assert refusal(durable.delete_records_before, 1) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert durable.delete_records_before(-1) == 0
    device.flush()
    assert durable.delete_records_before(-1) == 2


def test_acks_1_waits_for_the_flush_as_well(durable: Any, device: Any) -> None:
    acknowledged = Acknowledgements(durable)
    append(durable, acks=1)
    acknowledged.await_acknowledged(1, acks=1)
    acknowledged.await_acknowledged(1, acks=-1)
    assert (durable.durable_offset, durable.committed_offset, acknowledged.arrived) == (0, 0, [])
    device.flush()
    assert (durable.durable_offset, durable.committed_offset) == (1, 1)
    assert acknowledged.arrived == [(1, None)] * 2


# -- several replicas --------------------------------------------------------------------------------------------------


def fetched(partition: Partition, replica_id: int, offset: int | None = None, *, eligible: bool = True) -> None:
    """A follower fetches, from the log end offset by default."""
    end_offset = partition.log.log_end_offset
    partition.follower_fetched(replica_id, end_offset if offset is None else offset, now_ms=NOW, eligible=eligible)
    partition.advance_high_watermark()


def open_replicated(
    min_insync_replicas: int = 1,
    replicas: tuple[int, ...] = (1, 2, 3),
    isr: tuple[int, ...] = (1, 2, 3),
    **options: Any,
) -> Partition:
    partition = new_partition(**options)
    partition.update_config(partition.log.config, min_insync_replicas=min_insync_replicas)
    lead(partition, replicas=replicas, isr=isr)
    return partition


def test_the_high_watermark_follows_the_slowest_in_sync_replica() -> None:
    partition, waiter = open_replicated(), Waiter()
    partition.waiters.wait_for_bytes(waiter, 1)
    append(partition, 4)
    append(partition, 2)
    assert (partition.durable_offset, partition.committed_offset, partition.high_watermark) == (6, -1, 0)
    fetched(partition, 2)
    assert (partition.high_watermark, waiter.notified) == (0, 0)
    fetched(partition, 3, 4)
    assert (partition.committed_offset, partition.high_watermark, waiter.notified) == (4, 4, 1)
    found = partition.read(4, 1_000, isolation_level=ISOLATION_READ_UNCOMMITTED, min_one_batch=True)
    assert found.records is None
    fetched(partition, 3)
    assert (partition.committed_offset, partition.high_watermark) == (6, 6)
    assert partition.uncommitted is None


def test_acks_all_waits_for_the_replicas_and_acks_1_does_not() -> None:
    partition = open_replicated()
    acknowledged = Acknowledgements(partition)
    append(partition)
    acknowledged.await_acknowledged(1, acks=-1)
    append(partition, acks=1)
    acknowledged.await_acknowledged(2, acks=1)
    assert acknowledged.arrived == [(2, None)]
    fetched(partition, 2)
    fetched(partition, 3)
    assert acknowledged.arrived == [(2, None), (1, None)]


def test_the_durable_and_the_committed_offset_are_different(device: Any) -> None:
    partition = open_replicated(request_flush=device.wanted.append, flush_messages=1)
    acknowledged = Acknowledgements(partition)
    append(partition)
    acknowledged.await_acknowledged(1, acks=-1)
    acknowledged.await_acknowledged(1, acks=1)
    fetched(partition, 2)
    fetched(partition, 3)
    # The followers have the record; this broker may still lose it.
    assert (partition.durable_offset, partition.committed_offset, partition.high_watermark) == (0, 0, 0)
    device.flush()
    assert (partition.durable_offset, partition.committed_offset, partition.high_watermark) == (1, 1, 1)
    append(partition)
    acknowledged.await_acknowledged(2, acks=-1)
    acknowledged.await_acknowledged(2, acks=1)
    device.flush()
    assert (partition.durable_offset, partition.committed_offset, partition.high_watermark) == (2, 1, 1)
    assert acknowledged.arrived == [(1, None), (1, None), (2, None)]
    fetched(partition, 2)
    fetched(partition, 3)
    assert partition.high_watermark == 2
    assert acknowledged.arrived == [(1, None), (1, None), (2, None), (2, None)]


def test_the_fast_path_appends_batches_that_are_acknowledged_now_or_by_replicas() -> None:
    alone = open_replicated(isr=(1,))
    assert append_plain(alone) == append_plain(alone, acks=1) == 1
    assert alone.high_watermark == 2
    partition, waiter = open_replicated(), Waiter()
    append(partition)
    partition.waiters.wait_for_bytes(waiter, 1)
    acknowledged = Acknowledgements(partition)
    assert append_plain(partition) == 1
    acknowledged.await_acknowledged(2, -1)
    assert append_plain(partition, acks=1, count=3) == 3
    assert (partition.log.log_end_offset, partition.high_watermark, waiter.notified) == (5, 0, 0)
    assert acknowledged.arrived == []
    fetched(partition, 2)
    fetched(partition, 3)
    assert (partition.high_watermark, waiter.notified) == (5, 1)
    assert acknowledged.arrived == [(2, None)]


def test_the_high_watermark_does_not_advance_with_too_few_in_sync_replicas() -> None:
    partition = open_replicated(min_insync_replicas=2)
    append(partition)
    fetched(partition, 2)
    lead(partition, partition_epoch=1, replicas=(1, 2, 3), isr=(1,))
    append(partition, acks=1)
    assert (partition.committed_offset, partition.high_watermark) == (2, 0)
    assert append_plain(partition) == 0
    fetched(partition, 2)
    assert (partition.committed_offset, partition.high_watermark) == (2, 0)
    lead(partition, partition_epoch=2, replicas=(1, 2, 3), isr=(1, 2))
    assert partition.high_watermark == 2


def test_fewer_required_replicas_advance_the_high_watermark() -> None:
    partition = open_replicated(min_insync_replicas=2, isr=(1,))
    acknowledged = Acknowledgements(partition)
    append(partition, acks=1)
    acknowledged.await_committed(1)
    assert (partition.high_watermark, acknowledged.arrived) == (0, [])
    partition.update_config(partition.log.config, min_insync_replicas=1)
    assert (partition.high_watermark, acknowledged.arrived) == (1, [(1, None)])


def test_a_smaller_isr_commits_the_records_of_its_members() -> None:
    partition = open_replicated()
    acknowledged = Acknowledgements(partition)
    append(partition)
    acknowledged.await_committed(1)
    fetched(partition, 2)
    partition.in_sync.propose((1, 2))  # type: ignore[union-attr]
    partition.advance_high_watermark()
    assert (partition.high_watermark, acknowledged.arrived) == (0, [])
    lead(partition, partition_epoch=0, replicas=(1, 2, 3), isr=(1, 2, 3))  # already known: the proposal stays pending
    assert partition.in_sync.proposed == (1, 2)  # type: ignore[union-attr]
    lead(partition, partition_epoch=1, replicas=(1, 2, 3), isr=(1, 2))
    assert partition.in_sync.proposed is None  # type: ignore[union-attr]
    assert (partition.high_watermark, acknowledged.arrived) == (1, [(1, None)])


def test_a_new_epoch_has_no_positions_and_keeps_the_high_watermark() -> None:
    partition = open_replicated()
    append(partition, 3)
    fetched(partition, 2, 2)
    fetched(partition, 3, 2)
    lead(partition, leader_epoch=4, partition_epoch=1, replicas=(1, 2, 3), isr=(1, 2, 3))
    assert (partition.committed_offset, partition.high_watermark) == (-1, 2)
    fetched(partition, 2, 1)
    fetched(partition, 3, 3)
    assert (partition.committed_offset, partition.high_watermark) == (1, 2)
    fetched(partition, 2)
    assert partition.high_watermark == 3


def test_a_follower_does_not_advance_the_high_watermark(device: Any) -> None:
    partition = open_replicated(request_flush=device.wanted.append, flush_messages=1)
    acknowledged = Acknowledgements(partition)
    append(partition)
    acknowledged.await_acknowledged(1, acks=-1)
    acknowledged.await_acknowledged(1, acks=1)
    follow(partition, replicas=(1, 2, 3))
    assert partition.in_sync is None
    assert acknowledged.arrived == [(1, ErrorCode.NOT_LEADER_OR_FOLLOWER)] * 2
    device.flush()
    partition.update_config(partition.log.config, min_insync_replicas=1)
    assert (partition.durable_offset, partition.high_watermark) == (1, 0)
    lead(partition, leader_epoch=5, partition_epoch=2, replicas=(1, 2, 3), isr=(1,))
    assert partition.high_watermark == 1


def test_a_follower_of_a_fully_committed_log_keeps_its_high_watermark() -> None:
    partition = open_partition()
    append(partition, 2)
    follow(partition, replicas=(1, 2))
    lead(partition, leader_epoch=5, partition_epoch=2, replicas=(1, 2), isr=(1, 2))
    append(partition)
    assert (partition.high_watermark, partition.log.log_end_offset) == (2, 3)


def test_removing_the_last_follower_commits_all_records() -> None:
    partition = open_replicated()
    append(partition)
    lead(partition, partition_epoch=1)
    assert (partition.in_sync, partition.uncommitted, partition.high_watermark) == (None, None, 1)


def test_older_states_are_ignored() -> None:
    partition = open_replicated()
    assert lead(partition, partition_epoch=5, replicas=(1, 2, 3), isr=(1, 2))
    # The metadata log arrives after the response to AlterPartition.
    assert not lead(partition, partition_epoch=4, replicas=(1, 2, 3), isr=(1,))
    assert not follow(partition, leader_epoch=3, partition_epoch=4)
    assert not follow(partition, leader_epoch=2, partition_epoch=6)
    assert not lead(partition, leader_epoch=2, partition_epoch=6)
    assert (partition.leader_id, partition.leader_epoch, partition.partition_epoch) == (1, 3, 5)
    assert partition.isr == partition.in_sync.isr == (1, 2)  # type: ignore[union-attr]
    assert follow(partition, leader_epoch=4, partition_epoch=6)
    assert not lead(partition, leader_epoch=3, partition_epoch=6)
    assert (partition.leader_id, partition.leader_epoch, partition.partition_epoch) == (2, 4, 6)


def test_only_replicas_may_fetch_and_only_from_the_leader() -> None:
    partition = open_replicated()
    assert refusal(fetched, partition, 9) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert refusal(fetched, open_partition(), 2) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    # With a leader epoch, the follower may know a newer state, which this broker will know soon.
    assert refusal(partition.check_follower, 9, 3) is ErrorCode.UNKNOWN_LEADER_EPOCH
    assert refusal(partition.check_follower, 2, 2) is ErrorCode.FENCED_LEADER_EPOCH
    follow(partition)
    assert refusal(fetched, partition, 3) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_excluding_a_candidate_advances_the_high_watermark() -> None:
    partition, moves = open_replicated(isr=(1, 2)), []
    partition.on_high_watermark = lambda: moves.append(partition.high_watermark)
    fetched(partition, 2)
    fetched(partition, 3)
    append(partition)
    fetched(partition, 2)
    assert (partition.high_watermark, moves) == (0, [])
    partition.in_sync.exclude(3)  # type: ignore[union-attr]
    partition.advance_high_watermark()
    assert (partition.high_watermark, moves) == (1, [1])


def test_records_above_the_high_watermark_stay_invisible_after_a_restart() -> None:
    file_system = MemoryFileSystem()
    file_system.make_directory(DIRECTORY)
    append(open_partition(file_system), 3)
    partition, waiter = new_partition(file_system, clean=False), Waiter()
    partition.restore_high_watermark(2)
    lead(partition, replicas=(1, 2), isr=(1, 2))
    partition.waiters.wait_for_bytes(waiter, 1)
    assert (partition.high_watermark, partition.log.log_end_offset) == (2, 3)
    fetched(partition, 2)
    assert (partition.high_watermark, waiter.notified) == (3, 1)


@pytest.mark.parametrize(("checkpoint", "expected"), [(0, 1), (2, 2), (99, 3)])
def test_a_checkpoint_outside_the_log_is_clamped(checkpoint: int, expected: int) -> None:
    partition = open_partition()
    append(partition, 3)
    partition.delete_records_before(1)
    partition.restore_high_watermark(checkpoint)
    assert partition.high_watermark == expected


def test_a_transaction_is_open_for_readers_until_its_marker_is_committed() -> None:
    partition = open_replicated(replicas=(1, 2), isr=(1, 2))
    data = build_batch(
        [Record(0, NOW, None, b"x")], producer_id=7, producer_epoch=0, base_sequence=0, transactional=True
    )
    verification = partition.start_verification(7, 0, 0, epoch_per_transaction=True, now_ms=NOW)
    partition.append(data, acks=-1, now_ms=NOW, verification=verification)
    fetched(partition, 2)
    partition.append_marker(7, 1, coordinator_epoch=0, committed=True, transaction_version=2, now_ms=NOW)
    assert (partition.last_stable_offset, partition.high_watermark) == (0, 1)
    fetched(partition, 2)
    assert (partition.last_stable_offset, partition.high_watermark) == (2, 2)

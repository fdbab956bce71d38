"""A full disk and a broken disk: the errors, the data that is kept, and the notifications."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

import pytest

from moldau.protocol.errors import ErrorCode, KafkaError

NOW = 1_700_000_000_000
Batch = Callable[..., bytes]


def storage_error(call: Callable[[], object]) -> None:
    with pytest.raises(KafkaError) as caught:
        call()
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR


@pytest.fixture
def partition(memory_partition: Any) -> Any:
    return memory_partition


def size_on_disk(partition: Any, name: str = "00000000000000000000.log") -> int:
    size: int = partition.file_system.size(partition.path(name))
    return size


# Full


@pytest.mark.parametrize("room", [0, 1, 16, 61, 70])
def test_a_full_disk_rejects_the_append_and_keeps_everything_else(
    partition: Any, producer_batch: Batch, room: int
) -> None:
    failures: list[OSError] = []
    partition.log.on_failure = lambda _log, error: failures.append(error)
    partition.append(producer_batch(0))
    size = size_on_disk(partition)
    partition.file_system.capacity_bytes = partition.file_system.used_bytes() + room
    for _ in range(3):
        storage_error(lambda: partition.append(producer_batch(1)))
        assert size_on_disk(partition) == size, "what was written in part was cut off"
    assert partition.values() == [b"0000"]
    partition.file_system.capacity_bytes = None
    assert partition.append(producer_batch(1)).first_offset == 1
    assert partition.append(producer_batch(1)).duplicate
    assert failures == []
    partition.reopen(clean=False)
    assert partition.log.repairs == []
    assert partition.values() == [b"0000", b"0001"]


def test_a_disk_that_is_full_from_the_start(partition: Any, batch: Batch) -> None:
    partition.file_system.capacity_bytes = 10
    storage_error(partition.append)
    partition.file_system.capacity_bytes = None
    assert partition.append(batch(b"at last")).first_offset == 0


def test_a_full_disk_at_the_roll_changes_nothing(partition: Any, batch: Batch) -> None:
    partition.configure(segment_bytes=300, index_interval_bytes=0)
    partition.append_values(b"a" * 60, b"b" * 60)
    names, end = partition.names(), partition.log.log_end_offset
    partition.file_system.capacity_bytes = partition.file_system.used_bytes() + 3
    for _ in range(2):
        storage_error(lambda: partition.append(batch(b"c" * 60)))
        assert partition.log.log_end_offset == end
    partition.file_system.capacity_bytes = None
    partition.append(batch(b"c" * 60))
    assert partition.values() == [b"a" * 60, b"b" * 60, b"c" * 60]
    assert len(partition.names()) > len(names)
    partition.reopen()
    assert len(partition.values()) == 3


def test_a_full_disk_at_the_indexes_does_not_fail_appends(partition: Any, batch: Batch) -> None:
    """Index entries wait in memory until there is room; an append that is in the log was successful."""
    partition.configure(index_interval_bytes=0)
    partition.append(batch(b"0"))
    partition.file_system.fail_with = lambda operation, path: (
        errno.ENOSPC if operation == "write" and path.endswith("index") else None
    )
    for number in range(1, 1_100):
        partition.append(batch(b"%d" % number, timestamp=NOW + number))
    partition.file_system.fail_with = None
    assert partition.log.offset_for_timestamp(NOW + 700).offset == 700
    partition.append(batch(b"last"))
    partition.reopen()
    assert partition.log.repairs == []
    assert len(partition.values()) == 1_101
    assert size_on_disk(partition, "00000000000000000000.index") == 1_100 * 8


@pytest.mark.parametrize("operation", ["create", "write"])
def test_a_flush_without_disk_space_is_retried_when_there_is_space(
    partition: Any, batch: Batch, operation: str
) -> None:
    """It writes leader-epoch-checkpoint. No sync has failed: the durable state is known, and the log remains online."""
    partition.log.assign_leader_epoch(3)
    partition.append(batch(b"a"))
    syncs: list[str] = []

    def full(called: str, path: str) -> int | None:
        syncs.extend([path] if called == "sync" else [])
        return errno.ENOSPC if called == operation and "leader-epoch" in path else None

    partition.file_system.fail_with = full
    for _ in range(2):
        storage_error(lambda: partition.log.flush(NOW))
        assert partition.log.recovery_point == 0
        assert partition.log.offline is None
    assert syncs == []
    assert not any(name.endswith(".tmp") for name in partition.names())
    partition.append(batch(b"b"))
    partition.file_system.fail_with = None
    partition.log.flush(NOW)
    assert partition.log.recovery_point == 2
    partition.reopen(clean=False, recovery_point=2)
    assert partition.values() == [b"a", b"b"]
    assert "leader-epoch-checkpoint" in partition.names()


def test_descriptors_that_run_out_are_no_broken_disk(partition: Any, batch: Batch) -> None:
    partition.append(batch(b"a"))
    partition.files.close()
    partition.file_system.fail_with = lambda operation, _path: errno.EMFILE if operation == "open" else None
    storage_error(lambda: partition.append(batch(b"b")))
    storage_error(lambda: partition.fetch(0))
    partition.file_system.fail_with = None
    partition.append(batch(b"b"))
    assert partition.values() == [b"a", b"b"]


def test_a_full_disk_at_a_clean_stop_is_an_unclean_one(partition: Any, batch: Batch) -> None:
    partition.append(batch(b"a"))
    partition.file_system.capacity_bytes = partition.file_system.used_bytes()
    storage_error(lambda: partition.log.close(NOW))
    partition.file_system.capacity_bytes = None
    partition.files.close()
    partition.open(clean=False)
    assert partition.values() == [b"a"]


# Broken


def broken(operation_that_fails: str) -> Callable[[str, str], int | None]:
    return lambda operation, _path: errno.EIO if operation == operation_that_fails else None


OPERATIONS: dict[str, tuple[str, Callable[[Any, Batch], object]]] = {
    "append": ("write", lambda partition, batch: partition.append(batch(b"x"))),
    "own append": ("write", lambda partition, batch: partition.append(batch(b"x"), client=False)),
    "read": ("read", lambda partition, batch: partition.log.offset_for_timestamp(NOW)),
    "roll": ("create", lambda partition, batch: partition.log.roll(NOW)),
    "truncate": ("truncate", lambda partition, batch: partition.log.truncate_to(1, NOW)),
    "start over": ("rename", lambda partition, batch: partition.log.truncate_fully_and_start_at(9, NOW)),
    "flush": ("sync", lambda partition, batch: partition.log.flush(NOW)),
    "close": ("sync", lambda partition, batch: partition.log.close(NOW)),
    "max timestamp": ("read", lambda partition, batch: partition.log.offset_of_max_timestamp()),
    "topic id": ("rename", lambda partition, batch: partition.log.set_topic_id(bytes(16))),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_broken_disk_takes_the_log_offline_and_notifies_its_owner_once(
    partition: Any, batch: Batch, name: str
) -> None:
    operation, call = OPERATIONS[name]
    reported: list[tuple[Any, OSError]] = []
    partition.append_values(b"a", b"b")
    partition.log.on_failure = lambda log, error: reported.append((log, error))
    partition.file_system.fail_with = broken(operation)
    storage_error(lambda: call(partition, batch))
    assert [(log, error.errno) for log, error in reported] == [(partition.log, errno.EIO)]
    partition.file_system.fail_with = None
    for again in (
        lambda: partition.append(batch(b"x")),
        lambda: partition.append(batch(b"x"), client=False),
        lambda: partition.log.append_as_follower(batch(b"x"), now_ms=NOW, leader_epoch=1),
        lambda: partition.fetch(0),
        lambda: partition.log.offset_for_timestamp(NOW),
        lambda: partition.log.offset_of_max_timestamp(),
        lambda: partition.log.truncate_to(0, NOW),
        lambda: partition.log.truncate_fully_and_start_at(0, NOW),
        lambda: partition.log.delete_records_before(1),
        lambda: partition.log.delete_first_segments(1),
        lambda: partition.log.aborted_transactions(0, 5),
        lambda: partition.log.roll(NOW),
        lambda: partition.log.flush(NOW),
    ):
        storage_error(again)
    assert len(reported) == 1
    partition.log.close(NOW)


def test_after_a_failed_sync_nothing_is_believed_to_be_durable(partition: Any, batch: Batch) -> None:
    partition.append(batch(b"a"))
    partition.file_system.fail_with = lambda operation, _path: errno.ENOSPC if operation == "sync" else None
    storage_error(lambda: partition.log.flush(NOW))
    assert partition.log.recovery_point == 0
    storage_error(lambda: partition.append(batch(b"b")))


def test_a_disk_failure_after_a_full_disk_takes_the_directory_offline(partition: Any, batch: Batch) -> None:
    partition.append(batch(b"a"))
    partition.file_system.fail_with = lambda operation, _path: {"write": errno.ENOSPC, "truncate": errno.EIO}.get(
        operation
    )
    storage_error(lambda: partition.append(batch(b"b")))
    partition.file_system.fail_with = None
    storage_error(lambda: partition.append(batch(b"b")))


def test_an_error_during_recovery_truncates_nothing(partition: Any, batch: Batch) -> None:
    partition.append_values(b"a", b"b")
    before = partition.file_system.read_file(partition.path("00000000000000000000.log"))
    partition.file_system.fail_with = broken("read")
    with pytest.raises(OSError) as caught:
        partition.open(clean=False)
    assert caught.value.errno == errno.EIO
    partition.file_system.fail_with = None
    assert partition.file_system.read_file(partition.path("00000000000000000000.log")) == before
    partition.open(clean=False)
    assert partition.values() == [b"a", b"b"]


def test_an_index_that_cannot_be_read_fails_the_append_before_anything_is_written(partition: Any, batch: Batch) -> None:
    partition.append(batch(b"a"))
    partition.reopen(clean=True)
    size = size_on_disk(partition)
    partition.file_system.fail_with = lambda _operation, path: errno.EMFILE if path.endswith(".timeindex") else None
    storage_error(lambda: partition.append(batch(b"b")))
    partition.file_system.fail_with = None
    assert size_on_disk(partition) == size
    assert partition.append(batch(b"b")).first_offset == 1
    assert partition.values() == [b"a", b"b"]

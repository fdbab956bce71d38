"""Retention in a running server: when segments are deleted, which requests notice, and when files are unlinked."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from moldau.log.memory_files import MemoryFileSystem
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from moldau.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from moldau.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from moldau.server.upkeep import retention
from moldau.testing.builders import batch, fetch, fetch_request, produce, values

from .conftest import MakeServer, RunningServer

HOUR_MS = 3_600_000
TOPIC, BROKER = 2, 4
EARLIEST = -2


def log_of(server: RunningServer, topic: str = "t", index: int = 0) -> Any:
    return server.partition(topic, index).log


def append(server: RunningServer, *batches: Any, topic: str = "t", partition: int = 0, roll: bool = True) -> None:
    """Append one batch for each value, each in a separate segment. The last segment is rolled as well."""
    for value in batches:
        with server.wire() as wire:
            assert produce(wire, topic, batch(value), partition=partition).error_code == 0
        if roll:
            server.call(lambda: log_of(server, topic, partition).roll(server.clock()))


def alter(server: RunningServer, kind: Any, name: str, **settings: Any) -> None:
    configs = [AlterableConfig(name=key.replace("_", "."), value=str(value)) for key, value in settings.items()]
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    with server.wire() as wire:
        (answer,) = wire.call(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
    assert answer.error_code == 0, answer


def earliest(server: RunningServer, topic: str = "t", partition: int = 0) -> Any:
    wanted = ListOffsetsPartition(partition_index=partition, timestamp=EARLIEST)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[wanted])])
    with server.wire() as wire:
        return wire.call(request, 7).topics[0].partitions[0].offset


def check(server: RunningServer) -> None:
    server.await_(server.broker.retention.check)


def empty_trash(server: RunningServer) -> None:
    server.await_(server.broker.trash.remove_due)


def files(server: RunningServer, topic: str = "t", partition: int = 0) -> list[Any]:
    (directory,) = Path(server.log_dirs[0]).glob(f"{topic}-{partition}")
    return sorted(path.name for path in directory.iterdir())


def deleted(server: RunningServer, topic: str = "t", partition: int = 0) -> list[Any]:
    return [name for name in files(server, topic, partition) if name.endswith(".deleted")]


def test_expired_records_are_invisible_immediately_and_unlinked_after_a_delay(
    server: RunningServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    server.create_topic("t", retention_ms=HOUR_MS, file_delete_delay_ms=HOUR_MS)
    append(server, b"a", b"b")
    with server.wire() as wire:
        assert produce(wire, "t", batch(b"c", b"d")).base_offset == 2
    check(server)
    assert earliest(server) == 0
    server.clock.advance(HOUR_MS + 60_000)
    check(server)
    assert earliest(server) == 4
    with server.wire() as wire:
        assert fetch(wire, "t", 1).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert fetch(wire, "t", 4).error_code == 0
        assert produce(wire, "t", batch(b"e")).base_offset == 4
        assert values(fetch(wire, "t", 4)) == [b"e"]
    (message,) = [each.getMessage() for each in caplog.records if each.getMessage().startswith("Deleted")]
    assert message.startswith("Deleted 3 segments of t-0 (")
    assert message.endswith("bytes; 3 older than retention.ms=3600000): the log start offset is now 4")
    empty_trash(server)
    assert [name for name in deleted(server) if ".log" in name] == [
        f"{offset:020d}.log.deleted" for offset in (0, 1, 2)
    ]
    server.clock.advance(HOUR_MS)
    empty_trash(server)
    assert deleted(server) == []
    assert len([name for name in files(server) if name.endswith(".log")]) == 1


def test_retention_runs_periodically_with_the_current_settings(make_server: MakeServer) -> None:
    server = make_server(config={"log.initial.task.delay.ms": "0", "log.retention.check.interval.ms": "5"})
    server.create_topic("by-time")
    server.create_topic("by-size")
    server.create_topic("neither", cleanup_policy="")
    for topic in ("by-time", "by-size", "neither"):
        append(server, b"a", b"b", b"c", topic=topic)
    server.clock.advance(60_000)
    alter(server, TOPIC, "by-time", retention_ms=59_000)
    alter(server, TOPIC, "by-size", retention_bytes=log_of(server, "by-size").segments[2].size)
    server.wait_until(lambda: log_of(server, "by-time").log_start_offset == 3)
    server.wait_until(lambda: log_of(server, "by-size").log_start_offset == 2)
    # The defaults of all brokers, those of this broker, and a policy that was empty.
    append(server, b"d", b"e", topic="by-size")
    alter(server, TOPIC, "by-size", retention_bytes=-1)
    alter(server, BROKER, "", log_retention_ms=59_000)
    server.wait_until(lambda: log_of(server, "by-size").log_start_offset == 5)
    assert log_of(server, "neither").log_start_offset == 0
    alter(server, TOPIC, "neither", cleanup_policy="delete", retention_ms=-1)
    alter(server, BROKER, str(server.broker.node_id), log_retention_bytes=0)
    server.wait_until(lambda: log_of(server, "neither").log_start_offset == 3)
    assert [earliest(server, topic) for topic in ("by-time", "by-size", "neither")] == [3, 5, 3]


def test_a_compacted_topic_keeps_old_records(server: RunningServer) -> None:
    server.create_topic("t", retention_ms=0, retention_bytes=0)
    server.create_topic("u", retention_ms=0, retention_bytes=0)
    for topic in ("t", "u"):
        append(server, b"a", topic=topic)
    alter(server, TOPIC, "t", cleanup_policy="compact")
    alter(server, TOPIC, "u", cleanup_policy="compact,delete")
    server.clock.advance(1_000)
    check(server)
    assert (earliest(server, "t"), earliest(server, "u")) == (0, 1)


def test_segment_settings_apply_from_the_next_record_on(server: RunningServer) -> None:
    server.create_topic("t", message_timestamp_type="LogAppendTime")
    append(server, b"a", b"b", roll=False)
    assert len(log_of(server).segments) == 1
    alter(server, TOPIC, "t", segment_ms=HOUR_MS)
    append(server, b"c", roll=False)
    server.clock.advance(2 * HOUR_MS)
    append(server, b"d", roll=False)
    assert [segment.base_offset for segment in log_of(server).segments] == [0, 3]
    alter(server, TOPIC, "t", segment_bytes=1 << 20)
    with server.wire() as wire:
        for _ in range(3):
            assert produce(wire, "t", batch(b"x" * 600_000)).error_code == 0
    assert [segment.base_offset for segment in log_of(server).segments] == [0, 3, 5, 6]
    alter(server, BROKER, "", log_segment_bytes=2 << 20, log_roll_ms=HOUR_MS)
    server.create_topic("u")
    assert log_of(server, "u").config.segment_bytes == 2 << 20
    assert log_of(server, "u").config.segment_ms == HOUR_MS


def test_a_waiting_fetch_below_the_new_log_start_gets_an_error(server: RunningServer) -> None:
    server.create_topic("t", retention_ms=HOUR_MS)
    append(server, b"a", b"b")
    with server.wire() as consumer, server.wire() as at_the_end:
        consumer.send(fetch_request("t", 1, max_wait_ms=25_000, min_bytes=10_000), 12)
        at_the_end.send(fetch_request("t", 2, max_wait_ms=25_000, min_bytes=10_000), 12)
        partition = server.partition("t", 0)
        server.wait_until(lambda: len(partition.waiters) == 2)
        server.clock.advance(2 * HOUR_MS)
        check(server)
        answer = consumer.receive().responses[0].partitions[0]
        assert answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        answer = at_the_end.receive().responses[0].partitions[0]
        assert (answer.error_code, answer.log_start_offset, answer.high_watermark) == (0, 2, 2)


def test_retention_does_not_apply_to_internal_topics(server: RunningServer) -> None:
    from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest

    with server.wire() as wire:
        wire.call(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4)
    config = log_of(server, "__consumer_offsets").config
    assert not config.deletes


def test_the_delay_of_files_is_set_by_topic_and_that_of_partitions_by_broker(server: RunningServer) -> None:
    server.create_topic("t", retention_ms=0)
    server.create_topic("gone")
    append(server, b"a")
    alter(server, TOPIC, "t", file_delete_delay_ms=HOUR_MS)
    alter(server, BROKER, "", log_segment_delete_delay_ms=2 * HOUR_MS)
    server.clock.advance(1_000)
    check(server)
    with server.wire() as wire:
        assert (
            wire.call(DeleteTopicsRequest(topics=[DeleteTopicState(name="gone")], timeout_ms=60_000), 6)
            .responses[0]
            .error_code
            == 0
        )
    empty_trash(server)
    for passed_ms, expected in ((0, (True, True)), (HOUR_MS, (False, True)), (HOUR_MS, (False, False))):
        server.clock.advance(passed_ms)
        empty_trash(server)
        left = bool(deleted(server)), bool(list(Path(server.log_dirs[0]).glob("gone-0.*-delete")))
        assert left == expected


def test_files_are_unlinked_after_their_delay(server: RunningServer) -> None:
    server.create_topic("t", retention_ms=0, file_delete_delay_ms=20)
    append(server, b"a")
    server.clock.advance(1_000)
    check(server)
    server.wait_until(lambda: not deleted(server) and not len(server.broker.trash))
    assert earliest(server) == 1


def test_startup_unlinks_remaining_files_of_the_last_run(server: RunningServer) -> None:
    server.create_topic("t", retention_ms=0)
    server.create_topic("gone")
    append(server, b"a", b"b")
    server.clock.advance(1_000)
    check(server)
    with server.wire() as wire:
        assert (
            wire.call(DeleteTopicsRequest(topics=[DeleteTopicState(name="gone")], timeout_ms=60_000), 6)
            .responses[0]
            .error_code
            == 0
        )
    empty_trash(server)
    assert deleted(server)
    server.restart()
    server.wait_until(lambda: not list(Path(server.log_dirs[0]).glob("gone*")))
    assert deleted(server) == []
    assert earliest(server) == 2
    with server.wire() as wire:
        assert produce(wire, "t", batch(b"c")).base_offset == 2


def test_a_full_disk_has_space_again_after_retention(make_server: MakeServer) -> None:
    disk = MemoryFileSystem()
    server = make_server(log_dirs=["/data"], file_system=disk)
    server.create_topic("t", retention_ms=HOUR_MS, file_delete_delay_ms=1_000)
    append(server, b"x" * 100_000, b"x" * 100_000)
    disk.capacity_bytes = disk.used_bytes() + 50_000
    with server.wire() as wire:
        assert produce(wire, "t", batch(b"y" * 100_000)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        server.clock.advance(2 * HOUR_MS)
        check(server)
        server.clock.advance(1_000)
        empty_trash(server)
        assert produce(wire, "t", batch(b"y" * 100_000)).base_offset == 2
        assert fetch(wire, "t", 1).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert values(fetch(wire, "t", 2)) == [b"y" * 100_000]


class SlowSync:
    """A disk whose directory syncs wait until the test releases them."""

    def __init__(self, disk: Any, path: str) -> None:
        self.begun, self.proceed = threading.Event(), threading.Event()
        self.failure = None
        self.running = self.max_running = 0
        self._lock = threading.Lock()
        disk.fail_with = self._at
        self._path = path

    def _at(self, operation: str, path: str) -> Any:
        if operation in ("sync", "sync directory") and path.startswith(self._path):
            with self._lock:
                self.running += 1
                self.max_running = max(self.max_running, self.running)
            self.begun.set()
            assert self.proceed.wait(60)
            with self._lock:
                self.running -= 1
            return self.failure
        return None


@pytest.fixture
def slow(make_server: MakeServer) -> Iterator[Any]:
    """A server with an expired segment. Its disk blocks in a sync during retention."""
    disk = MemoryFileSystem()
    server = make_server(log_dirs=["/data"], file_system=disk)
    server.create_topic("t", retention_ms=HOUR_MS)
    append(server, b"a", b"b", roll=False)
    server.clock.advance(2 * HOUR_MS)
    sync = SlowSync(disk, "/data/t-0")
    checking = asyncio.run_coroutine_threadsafe(server.broker.retention.check(), server.loop)
    assert sync.begun.wait(60)
    yield server, sync, checking
    sync.proceed.set()


def test_no_segment_is_deleted_before_later_segments_are_durable(slow: Any) -> None:
    server, sync, checking = slow
    assert earliest(server) == 0
    with server.wire() as wire:
        # This record is old as well. It arrived during the sync, so it stays until the next check.
        assert produce(wire, "t", batch(b"c")).base_offset == 2
    sync.proceed.set()
    checking.result(60)
    assert earliest(server) == 2
    check(server)
    assert earliest(server) == 3


def test_retention_waits_for_a_running_flush_of_the_log(make_server: MakeServer) -> None:
    """A concurrent second flush would not wait for the files that the first one syncs."""
    disk = MemoryFileSystem()
    server = make_server(log_dirs=["/data"], file_system=disk)
    server.create_topic("t", retention_ms=HOUR_MS)
    append(server, b"a", roll=False)
    server.clock.advance(2 * HOUR_MS)
    sync = SlowSync(disk, "/data/t-0")
    server.call(lambda: server.broker.group_commit.flush_soon(log_of(server)))
    assert sync.begun.wait(60)
    checking = asyncio.run_coroutine_threadsafe(server.broker.retention.check(), server.loop)
    server.wait_until(lambda: len(log_of(server).segments) == 2)  # rolled and waiting
    sync.proceed.set()
    checking.result(60)
    assert earliest(server) == 1
    assert sync.max_running == 1


def test_a_topic_can_be_deleted_while_the_disk_is_busy(slow: Any, caplog: pytest.LogCaptureFixture) -> None:
    server, sync, checking = slow
    with server.wire() as wire:
        assert (
            wire.call(DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=60_000), 6)
            .responses[0]
            .error_code
            == 0
        )
    sync.proceed.set()
    checking.result(60)
    server.create_topic("t")
    assert earliest(server) == 0
    assert not [each for each in caplog.records if each.levelname == "ERROR"]


def test_a_failed_sync_takes_the_directory_offline_and_deletes_no_segment(slow: Any) -> None:
    server, sync, checking = slow
    sync.failure = errno.EIO
    sync.proceed.set()
    checking.result(60)
    with server.wire() as wire:
        assert fetch(wire, "t").error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert "00000000000000000000.log" in server.server._file_system.list_directory("/data/t-0")[0]


def test_checking_many_partitions_yields_to_other_work(
    make_server: MakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = make_server(file_system=MemoryFileSystem())
    server.create_topic("t", partitions=300)
    monkeypatch.setattr(retention, "SLICE_SECONDS", 0)

    async def turns_of_others() -> Any:
        turns = 0
        look = asyncio.ensure_future(server.broker.retention.check())
        while not look.done():
            turns += 1
            await asyncio.sleep(0)
        return turns

    assert server.await_(turns_of_others) >= 300


def test_an_error_in_one_partition_does_not_prevent_checks_of_others(
    make_server: MakeServer, caplog: pytest.LogCaptureFixture
) -> None:
    disk = MemoryFileSystem()
    server = make_server(log_dirs=["/data"], file_system=disk)
    server.create_topic("t", partitions=3, retention_ms=HOUR_MS)
    for partition in range(3):
        append(server, b"a", partition=partition)
    server.clock.advance(2 * HOUR_MS)
    full = errno.ENOSPC

    def fail(operation: str, path: str) -> Any:
        return full if path.startswith("/data/t-1/") and operation != "read" else None

    server.call(lambda: setattr(disk, "fail_with", fail))
    check(server)
    assert "Cannot flush t-1; the flush is retried" in caplog.text
    assert [earliest(server, partition=partition) for partition in range(3)] == [1, 0, 1]
    server.call(lambda: setattr(disk, "fail_with", None))
    check(server)
    assert earliest(server, partition=1) == 1


def test_after_startup_threads_read_the_timestamps_of_the_first_segments(make_server: MakeServer) -> None:
    disk = MemoryFileSystem()
    server = make_server(log_dirs=["/data"], file_system=disk)
    server.create_topic("t", partitions=3)
    for partition in range(3):
        append(server, b"a", b"b", partition=partition)
    server.restart()
    paths = [f"/data/t-{partition}/00000000000000000000.timeindex" for partition in range(3)]
    server.call(lambda: [disk.evict(path) for path in paths])  # type: ignore[func-returns-value]
    check(server)
    assert set(paths) <= {path for path, _position, _length in disk.read_aheads}
    assert not set(paths) & set(disk.waits), "the loop would have waited"

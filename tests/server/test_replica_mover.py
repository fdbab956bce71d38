"""Moves of replicas between log directories: requests, concurrent use of the partition, and results."""

from __future__ import annotations

import errno
import threading
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from moldau.log.memory_files import MemoryFileSystem
from moldau.log.partition_log import Log
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from moldau.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from moldau.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from moldau.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from moldau.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from moldau.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from moldau.server.concurrency.slices import SlicedFuture
from moldau.server.upkeep import replica_mover
from moldau.testing import Broker
from moldau.testing.builders import batch, fetch, produce, produce_request, values
from moldau.testing.waiting import wait_until
from moldau.testing.wire import WireClient

from .conftest import MakeServer, RunningServer
from .transactional import Transactional
from .transactional import values as committed_values

RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
_BROKER = 4
_SET = 0


def move(wire: WireClient, path: object, topic: str = "t", partitions: Any = (0,), version: int = 2) -> dict[Any, Any]:
    moved = AlterReplicaLogDirTopic(name=topic, partitions=list(partitions))
    request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=str(path), topics=[moved])])
    (result,) = wire.call(request, version).results
    return {partition.partition_index: partition.error_code for partition in result.partitions}


def described(wire: WireClient, topic: str = "t") -> Any:
    """(directory, whether it is a future replica) -> partition index -> (size, lag), both in bytes."""
    found: dict[Any, Any] = {}
    for result in wire.call(DescribeLogDirsRequest(topics=None), 4).results:
        for described_topic in result.topics:
            if described_topic.name == topic:
                for partition in described_topic.partitions:
                    known = found.setdefault((result.log_dir, partition.is_future_key), {})
                    known[partition.partition_index] = (partition.partition_size, partition.offset_lag)
    return found


def throttle(wire: WireClient, rate: Any) -> None:
    config = AlterableConfig(name=RATE, config_operation=_SET, value=str(rate))
    resource = AlterConfigsResource(resource_type=_BROKER, resource_name="", configs=[config])
    (answer,) = wire.call(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
    assert answer.error_code == 0, answer


def where(server: RunningServer, topic: str = "t", index: int = 0) -> Any:
    directory = server.broker.log_manager.directory_of(topic, index)
    assert directory is not None
    return Path(directory.path)


def log_of(server: RunningServer, topic: str = "t", index: int = 0) -> Log:
    log = server.broker.log_manager.get(topic, index)
    assert log is not None
    return log


def wait_moved(server: RunningServer, directory: object, topic: str = "t", index: int = 0) -> None:
    manager = server.broker.log_manager
    server.wait_until(lambda: where(server, topic, index) == Path(str(directory)) and not manager.futures)


def roll(server: RunningServer, topic: str = "t", index: int = 0) -> None:
    server.call(lambda: log_of(server, topic, index).roll(server.broker.now_ms()))


def flush(server: RunningServer, topic: str = "t", index: int = 0) -> None:
    async def run() -> None:
        await server.broker.group_commit.flush(log_of(server, topic, index))

    server.await_(run)


def everything(wire: WireClient, topic: str = "t", partition: int = 0, offset: int = 0) -> Any:
    found: list[Any] = []
    while more := values(fetch(wire, topic, offset=offset + len(found), partition=partition)):
        found += more
    return found


@pytest.fixture
def directories(tmp_path: Path) -> list[Any]:
    return [tmp_path / "a", tmp_path / "b", tmp_path / "c"]


@pytest.fixture
def filled(make_server: MakeServer, directories: Any) -> Any:
    """A server with a partition of three segments, and the two log directories without the partition."""
    server = make_server(log_dirs=directories)
    server.create_topic("t")
    with server.wire() as wire:
        for number in range(90):
            produce(wire, "t", batch(b"%d" % number))
            if number % 40 == 39:
                roll(server)
    return server, [directory for directory in directories if directory != where(server)]


RECORDS = [b"%d" % number for number in range(90)]


@pytest.fixture
def slow(filled: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Like `filled`, but a move takes hours."""
    monkeypatch.setattr(replica_mover, "NEARLY_THERE_BYTES", 0)
    with filled[0].wire() as wire:
        throttle(wire, 1)
    return filled


@pytest.mark.parametrize("version", [1, 2])
def test_a_replica_moves_with_all_of_its_records(filled: Any, version: int) -> None:
    server, (target, _) = filled
    source = where(server)
    with server.wire() as wire:
        assert move(wire, target, version=version) == {0: 0}
        wait_moved(server, target)
        assert described(wire).keys() == {(str(target), False)}
        produce(wire, "t", batch(b"90"))
        assert everything(wire) == [*RECORDS, b"90"]
        assert not (source / "t-0").exists()
        assert list(target.glob("t-0*")) == [target / "t-0"]
        image = server.call(lambda: server.broker.metadata.image)
        registered = image.topics_by_name["t"].partitions[0].directory(server.broker.node_id)
        ids = {d.path: d.directory_id for d in server.broker.log_manager.directories}
        assert registered == ids[str(target)]
    server.restart()
    with server.wire() as wire:
        assert everything(wire) == [*RECORDS, b"90"]
        assert described(wire).keys() == {(str(target), False)}


@pytest.mark.parametrize("configs", [{}, {"flush_messages": 1}])
def test_a_replica_moves_back_and_forth_while_an_idempotent_producer_writes(
    make_server: MakeServer, directories: Any, configs: Any
) -> None:
    server = make_server(log_dirs=directories)
    server.create_topic("t", **configs)
    written = []
    stop = threading.Event()

    def write() -> None:
        with server.wire() as wire:
            for number in count():
                if stop.is_set() or number == 20_000:
                    return
                data = batch(b"%d" % number, producer_id=1000, producer_epoch=0, base_sequence=number)
                answer = produce(wire, "t", data, acks=-1)
                assert (answer.error_code, answer.base_offset) == (0, number)
                written.append(b"%d" % number)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        with server.wire() as wire:
            for _round in range(3):
                for directory in directories:
                    assert move(wire, directory) == {0: 0}
                    wait_moved(server, directory)
                    roll(server)
    finally:
        stop.set()
        writer.join(60)
    assert written
    with server.wire() as wire:
        assert everything(wire) == written
        again = batch(b"again", producer_id=1000, producer_epoch=0, base_sequence=len(written) - 1)
        assert produce(wire, "t", again, acks=-1).base_offset == len(written) - 1  # recognized as a duplicate
    server.restart()
    with server.wire() as wire:
        assert everything(wire) == written


def test_the_lag_of_a_move_decreases_within_a_segment(filled: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka's tools show the lag, and copying a large segment takes long."""
    server, (target, _) = filled
    monkeypatch.setattr(replica_mover, "NEARLY_THERE_BYTES", 0)
    monkeypatch.setattr(replica_mover, "STEP_BYTES", 1)  # no batch is copied completely
    steps = threading.Semaphore(0)
    copying = replica_mover.ReplicaMover._copy

    async def one_step(self: Any, future: Any, copy: Any, **options: Any) -> None:
        await self._loop.run_in_executor(None, steps.acquire)
        await copying(self, future, copy, **options)

    monkeypatch.setattr(replica_mover.ReplicaMover, "_copy", one_step)
    with server.wire() as wire:
        assert move(wire, target) == {0: 0}
        try:
            seen = [described(wire)[str(target), True][0]]
            for _ in range(400):
                steps.release()
                server.wait_until(lambda: steps._value == 0)
                seen.append(described(wire)[str(target), True][0])
        finally:
            steps.release(1 << 20)
        assert seen == sorted(seen, key=lambda shown: (-shown[1], shown[0]))
        first, last = seen[0][1], seen[-1][1]
        assert first == 90
        assert 82 < last < 90
        wait_moved(server, target)
        assert everything(wire) == RECORDS


def test_a_move_is_described_and_a_later_request_replaces_it(slow: Any) -> None:
    server, (second, third) = slow
    first = where(server)
    with server.wire() as wire:
        assert move(wire, second) == {0: 0}
        assert described(wire).keys() == {(str(first), False), (str(second), True)}
        (size, lag) = described(wire)[str(second), True][0]
        assert size < described(wire)[str(first), False][0][0]
        assert lag == 90
        assert move(wire, second) == {0: 0}
        assert len(list(second.glob("t-0.*-future"))) == 1
        assert move(wire, third) == {0: 0}
        assert described(wire).keys() == {(str(first), False), (str(third), True)}
        assert not list(second.glob("t-0.*-future"))
        assert move(wire, first) == {0: 0}
        assert described(wire).keys() == {(str(first), False)}
        assert not list(third.glob("t-0.*-future"))
        throttle(wire, 1 << 40)
        assert move(wire, third) == {0: 0}
        wait_moved(server, third)
        assert everything(wire) == RECORDS


def test_invalid_moves_get_the_errors_of_apache_kafka(filled: Any) -> None:
    server, (target, _) = filled
    with server.wire() as wire:
        assert move(wire, "/nowhere") == {0: ErrorCode.LOG_DIR_NOT_FOUND}
        assert move(wire, target, partitions=[7]) == {7: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        assert move(wire, target, topic="unknown") == {0: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        assert move(wire, target, topic="n" * 249) == {0: ErrorCode.INVALID_TOPIC_EXCEPTION}
        assert move(wire, where(server)) == {0: 0}
        assert not server.broker.log_manager.futures


def test_a_move_continues_after_a_shutdown(slow: Any) -> None:
    server, (target, _) = slow
    source = where(server)
    with server.wire() as wire:
        move(wire, target)
        server.wait_until(lambda: server.broker.log_manager.futures["t", 0].size > 0)
    server.stop()
    (future,) = target.glob("t-0.*-future")
    assert [path.name for path in future.iterdir()] == ["partition.metadata"]
    server.start()
    with server.wire() as wire:
        assert described(wire).keys() == {(str(source), False), (str(target), True)}
        throttle(wire, 1 << 40)
        wait_moved(server, target)
        assert everything(wire) == RECORDS


def test_deleting_a_topic_cancels_the_move_of_its_replica(slow: Any) -> None:
    server, (target, _) = slow
    with server.wire() as wire:
        move(wire, target)
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=1000)
        assert wire.call(request, 6).responses[0].error_code == 0
        assert not server.broker.log_manager.futures
        assert not list(target.glob("t-0.*-future"))
        server.create_topic("t")
        assert everything(wire) == []


def test_a_partition_that_is_deleted_before_its_move_begins_is_unknown(
    filled: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, (target, _) = filled
    later: SlicedFuture[None] = SlicedFuture(server.broker.slices)
    waiting = []

    def assign(partition: Any, directory: object) -> Iterator[Any]:
        waiting.append(partition)
        yield from later.result()

    monkeypatch.setattr(server.broker.replica_mover._assignments, "assign", assign)
    with server.wire() as wire, server.wire() as deleting:
        moved = AlterReplicaLogDirTopic(name="t", partitions=[0])
        wire.send(AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=str(target), topics=[moved])]), 2)
        server.wait_until(lambda: bool(waiting))
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=1000)
        assert deleting.call(request, 6).responses[0].error_code == 0
        server.call(lambda: later.succeed(None))
        assert wire.receive().results[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_records_that_are_deleted_during_a_move_stay_deleted(slow: Any) -> None:
    server, (target, _) = slow
    with server.wire() as wire:
        move(wire, target)
        flush(server)
        partition = DeleteRecordsPartition(partition_index=0, offset=50)
        request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="t", partitions=[partition])], timeout_ms=1000)
        assert wire.call(request, 2).topics[0].partitions[0].low_watermark == 50
        throttle(wire, 1 << 40)
        wait_moved(server, target)
        assert everything(wire, offset=50) == RECORDS[50:]
        assert fetch(wire, "t", offset=49).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    server.restart()
    with server.wire() as wire:
        assert everything(wire, offset=50) == RECORDS[50:]
        assert fetch(wire, "t", offset=49).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert not (target / "t-0" / f"{0:020d}.log").exists()


def on_disk_in_memory(make_server: MakeServer) -> Any:
    disk = MemoryFileSystem()
    server = make_server(log_dirs=["/a", "/b"], file_system=disk)
    server.create_topic("t")
    with server.wire() as wire:
        for record in RECORDS:
            produce(wire, "t", batch(record))
    source = str(where(server))
    return server, disk, source, "/a" if source == "/b" else "/b"


class Assignment:
    """Delays the sync of the metadata log with which the controller assigns a replica to its new directory."""

    def __init__(self, server: RunningServer, disk: Any) -> None:
        self._begun, self._free = threading.Event(), threading.Event()
        server.call(lambda: setattr(disk, "fail_with", self._delay))

    def _delay(self, operation: str, path: str) -> None:
        if operation == "sync" and "__cluster_metadata-0" in path:
            self._begun.set()
            assert self._free.wait(60)

    def wait_begun(self) -> None:
        assert self._begun.wait(60)

    def release(self) -> None:
        self._free.set()


def registered(server: RunningServer) -> Any:
    """The path of the directory to which the metadata assign the replica."""
    image = server.call(lambda: server.broker.metadata.image)
    found = image.topics_by_name["t"].partitions[0].directory(server.broker.node_id)
    (path,) = [each.path for each in server.broker.log_manager.directories if each.directory_id == found]
    return path


def test_other_requests_are_served_while_the_controller_assigns_the_replica(make_server: MakeServer) -> None:
    server, disk, source, target = on_disk_in_memory(make_server)
    assignment = Assignment(server, disk)
    with server.wire() as wire:
        assert move(wire, target) == {0: 0}
        assignment.wait_begun()
        assert produce(wire, "t", batch(b"90")).base_offset == 90
        assert everything(wire) == [*RECORDS, b"90"]
        assert str(where(server)) == source
        assignment.release()
        wait_moved(server, target)
        assert registered(server) == target
        assert everything(wire) == [*RECORDS, b"90"]
    server.restart()
    with server.wire() as wire:
        assert everything(wire) == [*RECORDS, b"90"]


def test_a_move_that_ends_during_its_assignment_leaves_the_replica_where_it_was(make_server: MakeServer) -> None:
    server, disk, source, target = on_disk_in_memory(make_server)
    assignment = Assignment(server, disk)
    with server.wire() as wire:
        assert move(wire, target) == {0: 0}
        assignment.wait_begun()
        manager = server.broker.log_manager
        server.call(lambda: manager.end_move(manager.futures["t", 0]))
        assignment.release()
        server.wait_until(lambda: not server.broker.replica_mover._tasks)
        assert (str(where(server)), registered(server)) == (source, source)
        assert server.call(lambda: not server.broker.group_commit._paused)
        assert move(wire, target) == {0: 0}
        wait_moved(server, target)
        assert registered(server) == target


def test_a_topic_can_be_deleted_while_the_controller_assigns_its_replica(make_server: MakeServer) -> None:
    server, disk, _, target = on_disk_in_memory(make_server)
    assignment = Assignment(server, disk)
    with server.wire() as wire:
        assert move(wire, target) == {0: 0}
        assignment.wait_begun()
        wire.send(DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=60_000), 6)
        server.wait_until(lambda: len(server.broker.metadata.controller._pending) == 2)
        assignment.release()
        assert wire.receive().responses[0].error_code == 0
        server.wait_until(lambda: not server.broker.replica_mover._tasks)
        server.create_topic("t")
        assert produce(wire, "t", batch(b"new")).base_offset == 0
        assert everything(wire) == [b"new"]


def test_a_shutdown_waits_for_the_assignment_and_the_next_startup_resumes_the_move(make_server: MakeServer) -> None:
    server, disk, source, target = on_disk_in_memory(make_server)
    assignment = Assignment(server, disk)
    with server.wire() as wire:
        assert move(wire, target) == {0: 0}
        assignment.wait_begun()
    stopping = threading.Thread(target=server.stop)
    stopping.start()
    broker = server.broker
    server.wait_until(broker.replica_mover._closing.is_set)
    assignment.release()
    stopping.join(60)
    assert str(broker.log_manager.directory_of("t", 0).path) == source
    server.start()
    wait_moved(server, target)
    assert registered(server) == target
    with server.wire() as wire:
        assert everything(wire) == RECORDS


def test_a_full_disk_cancels_only_the_move(make_server: MakeServer) -> None:
    server, disk, source, target = on_disk_in_memory(make_server)

    def fail(operation: str, path: str) -> Any:
        in_copy = path.startswith(f"{target}/t-0.") and path.endswith(".log")
        return errno.ENOSPC if in_copy and operation == "write" else None

    with server.wire() as wire:
        server.call(lambda: setattr(disk, "fail_with", fail))
        assert move(wire, target) == {0: 0}
        server.wait_until(lambda: not server.broker.log_manager.futures)
        assert str(where(server)) == source
        assert everything(wire) == RECORDS
        server.call(lambda: setattr(disk, "fail_with", lambda operation, path: None))
        assert move(wire, target) == {0: 0}
        wait_moved(server, target)
        assert everything(wire) == RECORDS


@pytest.mark.parametrize("operation", ["write", "sync", "rename"])
def test_a_replica_stays_in_its_directory_if_the_target_fails(make_server: MakeServer, operation: str) -> None:
    server, disk, source, target = on_disk_in_memory(make_server)

    def fail(attempted: str, path: str) -> Any:
        name = path.removeprefix(f"{target}/t-0.")
        return errno.EIO if name != path and attempted == operation and "partition.metadata" not in path else None

    with server.wire() as wire:
        server.call(lambda: setattr(disk, "fail_with", fail))
        assert move(wire, target) == {0: 0}
        server.wait_until(lambda: not server.broker.log_manager.futures)
        assert str(where(server)) == source
        produce(wire, "t", batch(b"90"))
        assert everything(wire) == [*RECORDS, b"90"]
        assert move(wire, target) == {0: ErrorCode.KAFKA_STORAGE_ERROR}
        image = server.call(lambda: server.broker.metadata.image)
        registered = image.topics_by_name["t"].partitions[0].directory(server.broker.node_id)
        assert registered == server.directory("t", 0).directory_id


def test_an_open_transaction_continues_in_the_other_directory(make_server: MakeServer, directories: Any) -> None:
    server = make_server(log_dirs=directories, config={"transaction.state.log.num.partitions": "1"})
    server.create_topic("t")
    with server.wire() as wire, server.wire() as other:
        producer = Transactional(other, "transfers")
        assert producer.init() == 0
        for committed in (False, True):
            assert producer.produce("t", "open") == 0
            target = next(directory for directory in directories if directory != where(server))
            assert move(wire, target) == {0: 0}
            wait_moved(server, target)
            assert producer.produce("t", "still open") == 0
            assert committed_values(wire, "t") == []
            assert producer.end(committed=committed) == 0
        assert committed_values(wire, "t") == ["open", "still open"]
    server.restart()
    with server.wire() as wire:
        assert committed_values(wire, "t") == ["open", "still open"]


def test_a_flush_waits_while_the_copy_is_synced(make_server: MakeServer) -> None:
    """No append is acknowledged between the last step of the copy and the swap: it would be only on the old disk."""
    disk = MemoryFileSystem()
    server = make_server(log_dirs=["/a", "/b"], file_system=disk)
    server.create_topic("t", flush_messages=1)
    with server.wire() as wire, server.wire() as other:
        assert produce(wire, "t", batch(b"1"), acks=-1).base_offset == 0
        source = str(where(server))
        target = "/a" if source == "/b" else "/b"
        entered, proceed = threading.Event(), threading.Event()

        def hold(operation: str, path: str) -> None:
            if operation == "sync" and path.startswith(f"{target}/t-0.") and path.endswith("-future"):
                entered.set()
                assert proceed.wait(60)

        server.call(lambda: setattr(disk, "fail_with", hold))
        assert move(wire, target) == {0: 0}
        assert entered.wait(60)
        other.send(produce_request("t", batch(b"2"), acks=-1), 9)
        server.wait_until(lambda: log_of(server).log_end_offset == 2)
        assert values(fetch(wire, "t")) == [b"1"]
        assert server.call(lambda: log_of(server).flushed_offset) == 1
        proceed.set()
        assert other.receive().responses[0].partition_responses[0].base_offset == 1
        assert values(fetch(wire, "t")) == [b"1", b"2"]
        wait_moved(server, target)


def test_moves_continue_after_the_server_is_killed(tmp_path: Path) -> None:
    paths = [str(tmp_path / name) for name in ("a", "b")]
    value = b"v" * 100_000
    with Broker(config={"log.dirs": ",".join(paths)}) as broker:
        with WireClient(broker.bootstrap_servers) as wire:
            topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
            wire.call(CreateTopicsRequest(topics=[topic]), 7)
        written = 0
        for target in (paths * 2)[1:]:
            with WireClient(broker.bootstrap_servers) as wire:
                for _ in range(30):
                    assert produce(wire, "t", batch(value, b"%d" % written), acks=-1).base_offset == 2 * written
                    written += 1
                assert move(wire, target) == {0: 0}
            broker.kill()
            broker.start()
            with WireClient(broker.bootstrap_servers) as wire:
                wait_until(
                    lambda wire=wire, target=target: described(wire).keys() == {(target, False)},  # type: ignore[misc]
                    "the end of the move",
                    state=lambda wire=wire: described(wire),  # type: ignore[misc]
                )
                found = everything(wire)
                assert found[1::2] == [b"%d" % number for number in range(written)]
        assert "Traceback" not in broker.log()

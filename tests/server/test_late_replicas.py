"""Topics that are created without disk space or file descriptors become usable when these are available, without a
restart."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from moldau.log.memory_files import MemoryFileSystem
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from moldau.protocol.messages.delete_topics import DeleteTopicsRequest
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest
from moldau.protocol.messages.init_producer_id import InitProducerIdRequest
from moldau.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from moldau.testing import Broker
from moldau.testing.builders import batch, fetch, produce, values
from moldau.testing.waiting import wait_until
from moldau.testing.wire import WireClient

from .conftest import MakeServer

GROUP, TRANSACTION = 0, 1
STORAGE_ERROR = ErrorCode.KAFKA_STORAGE_ERROR
INTERNAL = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}


def create(wire: WireClient, *names: Any, partitions: int = 1) -> list[Any]:
    topics = [CreatableTopic(name=name, num_partitions=partitions, replication_factor=1) for name in names]
    return [topic.error_code for topic in wire.call(CreateTopicsRequest(topics=topics), 7).topics]


def find(wire: WireClient, kind: Any, key: Any) -> Any:
    return wire.call(FindCoordinatorRequest(key_type=kind, coordinator_keys=[key]), 4).coordinators[0].error_code


def commit(wire: WireClient, group: Any, topic: str = "t") -> Any:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    topics = [OffsetCommitRequestTopic(name=topic, partitions=[partition])]
    answer = wire.call(OffsetCommitRequest(group_id=group, topics=topics), 8)
    return answer.topics[0].partitions[0].error_code


def begin(wire: WireClient, transactional_id: str) -> Any:
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
    return wire.call(request, 4).error_code


def until(answer: Any) -> None:
    """Retry as clients do until the error code is NONE."""
    wait_until(lambda: answer() == ErrorCode.NONE, pause=0.05, state=lambda: ErrorCode(answer()).name)


class RejectingDisk:
    """A disk that rejects operations on paths that contain one of the given strings, while `refuses` is true."""

    def __init__(self, file_system: Any, code: Any, operations: Any, texts: Any) -> None:
        self.refuses = True
        file_system.fail_with = lambda operation, path: (
            code if self.refuses and operation in operations and any(text in path for text in texts) else None
        )


@pytest.mark.parametrize(
    ("code", "operation"),
    [
        (errno.ENOSPC, "directory"),
        (errno.EMFILE, "list"),
        (errno.ENOSPC, "create"),
        (errno.ENOSPC, "write"),
        (errno.EDQUOT, "rename"),
    ],
)
def test_a_partition_that_could_not_be_created_is_created_later(
    make_server: MakeServer, code: Any, operation: str, caplog: pytest.LogCaptureFixture
) -> None:
    file_system = MemoryFileSystem()
    server = make_server(log_dirs=["/data"], file_system=file_system)
    disk = RejectingDisk(file_system, code, {operation}, ["/t-"])
    with server.wire() as wire:
        assert create(wire, "t", partitions=3) == [ErrorCode.NONE]
        refused = produce(wire, "t", batch(b"x"))
        assert refused.error_code == STORAGE_ERROR
        assert "see the server log" in refused.error_message  # type: ignore[operator]
        assert fetch(wire, "t").error_code == STORAGE_ERROR
        disk.refuses = False
        for partition in range(3):
            until(lambda index=partition: produce(wire, "t", batch(b"x"), partition=index).error_code)
            assert values(fetch(wire, "t", partition=partition)) == [b"x"]
    assert "yet; retrying every 1 s" in caplog.text
    assert "None" not in caplog.text
    assert not len(server.broker.publisher.late_replicas)
    server.restart()
    with server.wire() as wire:
        assert values(fetch(wire, "t", partition=2)) == [b"x"]


def test_a_topic_that_was_deleted_before_its_creation_leaves_nothing_behind(make_server: MakeServer) -> None:
    file_system = MemoryFileSystem()
    server = make_server(log_dirs=["/data"], file_system=file_system)
    disk = RejectingDisk(file_system, errno.ENOSPC, {"write"}, ["/t-"])
    with server.wire() as wire:
        assert create(wire, "t", partitions=2) == [ErrorCode.NONE]
        assert (
            wire.call(DeleteTopicsRequest(topic_names=["t"], timeout_ms=60_000), 5).responses[0].error_code
            == ErrorCode.NONE
        )
        assert server.call(lambda: len(server.broker.publisher.late_replicas)) == 0
        disk.refuses = False
        assert create(wire, "t") == [ErrorCode.NONE]
        assert produce(wire, "t", batch(b"x")).error_code == ErrorCode.NONE
    names = file_system.list_directory("/data")[1]
    assert [name for name in names if name.startswith("t-") and not name.endswith("-delete")] == ["t-0"]


@pytest.mark.parametrize(("code", "operation"), [(errno.ENOSPC, "write"), (errno.EMFILE, "list")])
def test_coordinators_recover_without_a_restart(make_server: MakeServer, code: Any, operation: str) -> None:
    """New groups and transactions while their topics cannot be created; existing ones while their logs cannot grow."""
    file_system = MemoryFileSystem()
    server = make_server(log_dirs=["/data"], file_system=file_system, config=INTERNAL)
    disk = RejectingDisk(file_system, code, {operation}, ["/__consumer_offsets-", "/__transaction_state-"])
    with server.wire() as wire:
        assert create(wire, "t") == [ErrorCode.NONE]
        for kind in (GROUP, TRANSACTION):
            find(wire, kind, "one")
        assert commit(wire, "one") != ErrorCode.NONE
        assert begin(wire, "one") != ErrorCode.NONE
        disk.refuses = False
        until(lambda: find(wire, GROUP, "one"))
        until(lambda: commit(wire, "one"))
        until(lambda: find(wire, TRANSACTION, "one"))
        until(lambda: begin(wire, "one"))
        disk.refuses = True
        commit(wire, "one"), commit(wire, "two"), begin(wire, "one"), begin(wire, "two")
        disk.refuses = False
        for name in ("one", "two"):
            until(lambda name=name: commit(wire, name))
            until(lambda name=name: begin(wire, name))


def test_a_full_disk_rejects_a_topic_and_creates_it_when_there_is_space(make_server: MakeServer) -> None:
    file_system = MemoryFileSystem()
    server = make_server(log_dirs=["/data"], file_system=file_system, config=INTERNAL)
    with server.wire() as wire:
        for room in (0, 50, 100, 150, 200, 300, 500):  # the metadata log stops earlier or later
            file_system.capacity_bytes = file_system.used_bytes() + room
            name = f"t{room}"
            (code,) = create(wire, name)
            assert code in (ErrorCode.NONE, STORAGE_ERROR, ErrorCode.TOPIC_ALREADY_EXISTS)
            for kind in (GROUP, TRANSACTION):
                find(wire, kind, name)
            file_system.capacity_bytes = None
            if code != ErrorCode.NONE:
                assert create(wire, name) == [ErrorCode.NONE]
            until(lambda name=name: produce(wire, name, batch(b"x")).error_code)
            until(lambda name=name: find(wire, GROUP, name))
            until(lambda name=name: commit(wire, name, name))
            until(lambda name=name: find(wire, TRANSACTION, name))
            until(lambda name=name: begin(wire, name))
    server.restart()
    with server.wire() as wire:
        assert [values(fetch(wire, f"t{room}")) for room in (0, 500)] == [[b"x"], [b"x"]]


# Real disks and descriptors

CLIENT = """
import sys
from confluent_kafka import Consumer, Producer, TopicPartition
bootstrap, topic = sys.argv[1:]
common = {"bootstrap.servers": bootstrap}
producer = Producer({**common, "transactional.id": "id-of-" + topic})
producer.init_transactions(60)
producer.begin_transaction()
producer.produce(topic, b"one")
producer.commit_transaction(60)
consumer = Consumer({**common, "group.id": "group-of-" + topic, "auto.offset.reset": "earliest"})
consumer.subscribe([topic])
message = None
while message is None or message.error():
    message = consumer.poll(60)
print(message.value().decode())
consumer.commit(message, asynchronous=False)
consumer.close()
"""


def client_writes_and_reads(broker: Any, topic: str) -> None:
    """Run a transaction, a group and a commit with librdkafka."""
    command = [sys.executable, "-c", CLIENT, broker.bootstrap_servers, topic]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
    assert done.stdout == "one\n", done.stderr


@contextlib.contextmanager
def no_descriptors_for(pid: Any) -> Iterator[None]:
    """Make the process run out of file descriptors."""
    limits = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    used = max(int(name) for name in os.listdir(f"/proc/{pid}/fd")) + 1
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (used - used // 2, limits[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="needs prlimit (Linux)")
def test_a_server_without_descriptors_recovers_when_they_are_available() -> None:
    with Broker() as broker, WireClient(broker.bootstrap_servers) as wire:
        assert create(wire, "before") == [ErrorCode.NONE]
        until(lambda: produce(wire, "before", batch(b"x")).error_code)
        # The first request of an API loads a module. Without a descriptor the connection is closed.
        assert find(wire, 99, "x") == ErrorCode.INVALID_REQUEST
        commit(wire, "one"), begin(wire, "one")
        with no_descriptors_for(broker.pid):
            (code,) = create(wire, "t")
            assert code in (ErrorCode.NONE, STORAGE_ERROR)
            assert produce(wire, "t", batch(b"x")).error_code != ErrorCode.NONE
            for kind in (GROUP, TRANSACTION):
                find(wire, kind, "one")
            assert commit(wire, "one") != ErrorCode.NONE
            assert begin(wire, "one") != ErrorCode.NONE
        if code != ErrorCode.NONE:
            assert create(wire, "t") == [ErrorCode.NONE]
        until(lambda: fetch(wire, "t").error_code)
        client_writes_and_reads(broker, "t")
        with no_descriptors_for(broker.pid):
            (code,) = create(wire, "u")
            commit(wire, "group-of-t"), begin(wire, "id-of-t"), commit(wire, "new"), begin(wire, "new")
        if code != ErrorCode.NONE:
            assert create(wire, "u") == [ErrorCode.NONE]
        for name in ("group-of-t", "new"):
            until(lambda name=name: commit(wire, name))
        for name in ("id-of-t", "new"):
            until(lambda name=name: begin(wire, name))
        until(lambda: fetch(wire, "u").error_code)
        client_writes_and_reads(broker, "u")
        assert "refused: None" not in broker.log()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Any]:
    """A file system with a size of four megabytes."""
    mounted = tmp_path / "disk"
    mounted.mkdir()
    if os.geteuid() or shutil.which("mount") is None:
        pytest.skip("only root can mount a file system")
    options = ["-t", "tmpfs", "-o", "size=4m", "none", str(mounted)]
    if subprocess.run(["mount", *options], capture_output=True, check=False).returncode:
        pytest.skip("no file system can be mounted here")
    yield mounted
    subprocess.run(["umount", "-l", str(mounted)], check=True)


def fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(bytes(4096)):
            pass


def test_a_full_disk_is_used_again_when_there_is_space(small_disk: Path) -> None:
    filler = small_disk / "filler"
    with Broker(data_dir=small_disk / "data") as broker, WireClient(broker.bootstrap_servers) as wire:
        for topic in ("t", "u"):
            fill(filler)
            (code,) = create(wire, topic)
            assert code in (ErrorCode.NONE, STORAGE_ERROR)
            assert produce(wire, topic, batch(b"x")).error_code != ErrorCode.NONE
            for kind in (GROUP, TRANSACTION):
                find(wire, kind, f"id-of-{topic}")
            filler.unlink()
            if code != ErrorCode.NONE:
                assert create(wire, topic) == [ErrorCode.NONE]
            client_writes_and_reads(broker, topic)
        assert "refused: None" not in broker.log()

"""Files that a server reads at startup and leaves on disk."""

from __future__ import annotations

import errno
import threading
from pathlib import Path
from random import Random
from typing import Any

import pytest

from moldau.config.broker_config import BrokerConfig, Listener
from moldau.log.memory_files import MemoryFileSystem
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from moldau.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from moldau.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from moldau.server.nodes.server import StartError
from moldau.server.storage.opening import open_storage
from moldau.testing.builders import batch, fetch, produce, values

from .conftest import MakeServer, RunningServer

CHECKPOINTS = ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint", "replication-offset-checkpoint")


def test_a_second_server_on_the_directory_is_refused(server: RunningServer, make_server: MakeServer) -> None:
    with pytest.raises(StartError, match="in use"):
        make_server(log_dirs=server.log_dirs)


def test_a_second_server_on_the_port_is_refused(server: RunningServer, make_server: MakeServer, tmp_path: Path) -> None:
    listeners = f"PLAINTEXT://{server.bootstrap_servers}"
    with pytest.raises(StartError, match="is in use by another server"):
        make_server(log_dirs=[tmp_path / "other"], config={"listeners": listeners})


def test_a_directory_of_another_node_is_refused(server: RunningServer, make_server: MakeServer) -> None:
    server.stop()
    with pytest.raises(StartError, match=r"node\.id"):
        make_server(log_dirs=server.log_dirs, config={"node.id": "77"})


def test_new_partitions_are_spread_over_the_log_directories(make_server: MakeServer, tmp_path: Path) -> None:
    directories = [tmp_path / "a", tmp_path / "b"]
    server = make_server(log_dirs=directories)
    server.create_topic("t", partitions=4)
    assert [len(list(directory.glob("t-*"))) for directory in directories] == [2, 2]
    with server.wire() as wire:
        results = wire.call(DescribeLogDirsRequest(topics=None), 4).results
        assert {r.log_dir: sum(len(t.partitions) for t in r.topics) for r in results} == {
            str(directory): 2 for directory in directories
        }
        for partition in range(4):
            produce(wire, "t", batch(b"%d" % partition), partition=partition)
    # The controller gets to know the directory of each replica.
    ids = {d.path: d.directory_id for d in server.broker.log_manager.directories}
    placed = {index: ids[path] for path in ids for index in range(4) if (Path(path) / f"t-{index}").exists()}

    def assigned() -> dict[Any, Any]:
        partitions = server.broker.metadata.image.topics_by_name["t"].partitions
        return {index: partition.directory(server.broker.node_id) for index, partition in partitions.items()}

    server.wait_until(lambda: assigned() == placed)
    server.restart()
    with server.wire() as wire:
        for partition in range(4):
            assert values(fetch(wire, "t", partition=partition)) == [b"%d" % partition]


def test_a_failed_directory_takes_only_its_partitions_offline(make_server: MakeServer) -> None:
    disk = MemoryFileSystem()
    server = make_server(log_dirs=["/a", "/b"], file_system=disk)
    server.create_topic("t", partitions=2)
    manager = server.broker.log_manager
    broken = next(i for i in range(2) if manager.directory_of("t", i).path == "/b")  # type: ignore[union-attr]
    with server.wire() as wire:
        for partition in range(2):
            assert produce(wire, "t", batch(b"x"), partition=partition).error_code == 0

        def fail(operation: str, path: Any) -> Any:
            return errno.EIO if path.startswith("/b/") and operation == "write" else None

        server.call(lambda: setattr(disk, "fail_with", fail))
        assert produce(wire, "t", batch(b"y"), partition=broken).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert fetch(wire, "t", partition=broken).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert produce(wire, "t", batch(b"y"), partition=1 - broken).base_offset == 1
        codes = {r.log_dir: r.error_code for r in wire.call(DescribeLogDirsRequest(topics=None), 4).results}
        assert codes == {"/a": 0, "/b": ErrorCode.KAFKA_STORAGE_ERROR}
        (topic,) = wire.call(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 12).topics
        offline = {p.partition_index: p.offline_replicas for p in topic.partitions}
        assert offline[broken] == [server.broker.node_id]
        assert offline[1 - broken] == []


def test_a_failed_sync_of_the_metadata_log_takes_its_directory_offline(
    make_server: MakeServer, caplog: pytest.LogCaptureFixture
) -> None:
    disk = MemoryFileSystem(recording=False)
    server = make_server(log_dirs=["/a", "/b"], file_system=disk)
    server.create_topic("t", partitions=2)
    where = {
        server.call(lambda index=index: server.directory("t", index).path): index  # type: ignore[misc]
        for index in range(2)
    }
    with server.wire() as wire:
        for index in range(2):
            assert produce(wire, "t", batch(b"x"), partition=index).error_code == 0
        disk.fail_with = lambda operation, path: (
            errno.EIO if operation == "sync" and path.startswith("/a/__cluster_metadata-0") else None
        )
        topic = CreatableTopic(name="u", num_partitions=1, replication_factor=1)
        answer = wire.call(CreateTopicsRequest(topics=[topic], timeout_ms=1000), 7).topics[0]
        assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        disk.fail_with = None
        assert wire.call(CreateTopicsRequest(topics=[topic], timeout_ms=1000), 7).topics[0].error_code != 0
        assert produce(wire, "t", batch(b"y"), partition=where["/a"]).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert produce(wire, "t", batch(b"y"), partition=where["/b"]).error_code == 0
    assert caplog.text.count("Log directory /a failed and is offline") == 1


def test_the_files_of_a_deleted_topic_are_deleted(make_server: MakeServer) -> None:
    from moldau.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState

    server = make_server(config={"log.segment.delete.delay.ms": "0"})
    server.create_topic("t", partitions=3)
    with server.wire() as wire:
        produce(wire, "t", batch(b"x"))
        wire.call(DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=60_000), 6)
    server.wait_until(lambda: not list(Path(server.log_dirs[0]).glob("t-*")))


def test_a_recreated_topic_is_empty(server: RunningServer) -> None:
    from moldau.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState

    with server.wire() as wire:
        for round_number in range(5):
            server.create_topic("t")
            assert values(fetch(wire, "t")) == []
            assert produce(wire, "t", batch(b"%d" % round_number)).base_offset == 0
            wire.call(DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=60_000), 6)


def test_producer_ids_are_never_assigned_twice(server: RunningServer) -> None:
    from moldau.protocol.messages.init_producer_id import InitProducerIdRequest

    def some(count: int) -> list[Any]:
        with server.wire() as wire:
            return [wire.call(InitProducerIdRequest(transactional_id=None), 4).producer_id for _ in range(count)]

    ids = some(1500)
    server.restart()
    ids += some(10)
    assert len(set(ids)) == len(ids)


def test_a_clean_shutdown_writes_the_checkpoints_of_apache_kafka(server: RunningServer) -> None:
    server.create_topic("t", partitions=2)
    with server.wire() as wire:
        produce(wire, "t", batch(b"a", b"b"), partition=1)
    server.stop()
    (directory,) = map(Path, server.log_dirs)
    written = {name: (directory / name).read_text() for name in CHECKPOINTS}
    assert written == {
        "recovery-point-offset-checkpoint": "0\n2\nt 0 0\nt 1 2\n",
        "log-start-offset-checkpoint": "0\n0\n",
        "replication-offset-checkpoint": "0\n2\nt 0 0\nt 1 2\n",
    }


@pytest.mark.parametrize("which", ["recovery-point-offset-checkpoint", "log-start-offset-checkpoint"])
def test_each_checkpoint_is_written_at_its_own_interval(make_server: MakeServer, which: str) -> None:
    offsets, starts = "log.flush.offset.checkpoint.interval.ms", "log.flush.start.offset.checkpoint.interval.ms"
    often, never = (offsets, starts) if which.startswith("recovery") else (starts, offsets)
    server = make_server(config={often: "10", never: "0"})
    (directory,) = map(Path, server.log_dirs)
    (other,) = set(CHECKPOINTS[:2]) - {which}

    def content() -> Any:
        return (directory / other).read_text() if (directory / other).exists() else None

    before = content()  # the empty checkpoint of a new directory, or none
    assert before in (None, "0\n0\n")
    server.create_topic("t")  # a written checkpoint would contain the topic
    (directory / which).unlink(missing_ok=True)
    server.wait_until((directory / which).exists)
    assert content() == before


def test_a_shutdown_syncs_many_new_partitions_in_parallel(
    make_server: MakeServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from moldau.log.flushing import Flush

    server = make_server()
    server.create_topic("t", partitions=300)
    threads = set()
    changed = threading.Condition()
    run = Flush.run

    def noting(flush: Any) -> None:
        if threading.current_thread().name.startswith("moldau-flush"):
            with changed:
                threads.add(threading.current_thread().name + str(threading.get_ident()))
                changed.notify_all()
                assert changed.wait_for(lambda: len(threads) > 1, 30)
        run(flush)

    monkeypatch.setattr(Flush, "run", noting)
    server.stop()
    assert len(threads) > 1
    caplog.set_level("INFO")
    server.start()
    assert "loaded 300 partitions" in caplog.text.lower()
    assert "recovered" not in caplog.text
    with server.wire() as wire:
        assert produce(wire, "t", batch(b"x"), partition=299).base_offset == 0


def test_a_failed_sync_at_shutdown_leaves_the_directory_unclean(
    make_server: MakeServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from moldau.log.flushing import Flush

    server = make_server()
    server.create_topic("t", partitions=300)
    run = Flush.run
    failed: list[Any] = []

    def failing(flush: Any) -> None:
        if not failed:
            failed.append(flush)
            raise OSError(errno.EIO, "made up by the test")
        run(flush)

    monkeypatch.setattr(Flush, "run", failing)
    server.stop()
    assert failed
    assert "failed and is offline" in caplog.text
    caplog.set_level("INFO")
    server.start()
    assert "after an unclean shutdown" in caplog.text
    with server.wire() as wire:
        assert produce(wire, "t", batch(b"x"), partition=299).base_offset == 0


def test_the_error_names_a_data_directory_that_is_a_file(make_server: MakeServer, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("notes")
    for path in (tmp_path / "file", tmp_path / "file" / "data"):
        with pytest.raises(
            StartError, match=f"^{path} cannot be used: it, or a part of its path, is a file. Name a dir"
        ):
            make_server(log_dirs=[path])
    assert (tmp_path / "file").read_text() == "notes"


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (errno.EACCES, r"Permission denied at .*/data/\.lock\. The user of the server must be able to write there"),
        (errno.EROFS, r"Read-only file system at .*/data/\.lock\. Mount it for writing, or name another directory"),
    ],
)
def test_the_error_names_a_data_directory_that_is_not_writable(make_server: MakeServer, code: Any, words: str) -> None:
    file_system = MemoryFileSystem()
    file_system.fail_with = lambda operation, path: code if path.endswith(".lock") else None
    with pytest.raises(StartError, match=f"^/data cannot be used: {words}"):
        make_server(log_dirs=["/data"], file_system=file_system)


def test_a_seed_determines_the_ids_of_a_new_cluster_and_its_directories() -> None:
    def written(seed: Any) -> list[Any]:
        disk = MemoryFileSystem()
        listeners = [Listener("PLAINTEXT", "localhost", 9092, "PLAINTEXT")]
        config = BrokerConfig({})
        open_storage(config, ["/a", "/b"], listeners, now_ms=0, file_system=disk, rng=Random(seed)).abandon()
        log = disk.read_file("/a/__cluster_metadata-0/00000000000000000000.log")
        return [log, *(disk.read_file(f"/{directory}/meta.properties") for directory in "ab")]

    assert written(1) == written(1)
    assert not set(written(1)) & set(written(2))

"""Directories that do not belong together, or not to this node: startup is refused with a clear error and changes
no file."""

from __future__ import annotations

import errno
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from moldau.config.broker_config import BrokerConfig, Listener
from moldau.log.files import RealFileSystem
from moldau.log.memory_files import MemoryFileSystem
from moldau.metadata.batches import control_batch
from moldau.metadata.metadata_log import LocalVoter, MetadataLog
from moldau.metadata.outcome import Versioned
from moldau.metadata.records import BrokerFeature, NoOpRecord, PartitionRecord, RegisterBrokerRecord, TopicRecord
from moldau.metadata.registrations import Endpoint
from moldau.metadata.settings import MetadataLogSettings
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.control_records import LeaderChangeMessage, Voter
from moldau.protocol.messages.delete_topics import DeleteTopicsRequest
from moldau.protocol.messages.describe_cluster import DescribeClusterRequest
from moldau.protocol.uuid import random_uuid, uuid_from_str
from moldau.server.nodes.server import StartError
from moldau.server.storage.opening import StorageError, open_storage
from moldau.testing.builders import batch, fetch, produce, values
from moldau.testing.wire import WireClient

from ..inspection.directories import Storage
from .conftest import MakeServer, RunningServer

NOW = 1_700_000_000_000
METADATA = "__cluster_metadata-0"


def files(*directories: Any) -> dict[Any, Any]:
    """The content of the directories, except lock files and the producer snapshot of the metadata log. That log has no
    producers, and opening it removes the snapshot."""
    return {
        str(path): path.read_bytes() if path.is_file() else None
        for directory in directories
        for path in sorted(Path(directory).rglob("*"))
        if path.name != ".lock" and not path.match(f"{METADATA}/*.snapshot")
    }


def fill(server: RunningServer, *topics: Any, partitions: int = 1) -> Any:
    for topic in topics:
        server.create_topic(topic, partitions=partitions)
        with server.wire() as wire:
            for index in range(partitions):
                assert produce(wire, topic, batch(b"%d" % index), partition=index).error_code == 0
    return server


@pytest.fixture
def stopped(make_server: MakeServer, tmp_path: Path) -> Any:
    """A stopped server with two log directories and topics in both."""
    server = fill(make_server(log_dirs=[tmp_path / "a", tmp_path / "b"]), "s", "t", partitions=4)
    server.stop()
    return server


def delete(wire: WireClient, *topics: Any) -> None:
    answers = wire.call(DeleteTopicsRequest(topic_names=list(topics), timeout_ms=60_000), 5).responses
    assert [answer.error_code for answer in answers] == [0] * len(topics)


def check_refused(server: RunningServer, directories: Any, words: Any, **config: Any) -> None:
    """Check that a startup with these directories is refused and changes no file in them."""
    server.log_dirs, kept = [str(directory) for directory in directories], server.log_dirs
    everything = {*directories, *kept, *config.values()}
    before = files(*everything)
    server.config, without = {**server.config, **config}, server.config
    try:
        with pytest.raises(StartError, match=words):
            server.start()
    finally:
        server.log_dirs, server.config = kept, without
    assert files(*everything) == before


def check_served(server: RunningServer, partitions: int = 4) -> None:
    with server.wire() as wire:
        for topic in ("s", "t"):
            for index in range(partitions):
                assert values(fetch(wire, topic, partition=index)) == [b"%d" % index]


def test_a_metadata_log_in_another_log_directory_is_refused(stopped: Any) -> None:
    a, b = stopped.log_dirs
    check_refused(
        stopped, [b, a], f"The metadata log is in {a}, not in {b}. List it first in log.dirs: {a}, or set metadata"
    )
    stopped.log_dirs = [b, a]
    stopped.config["metadata.log.dir"] = a
    stopped.start()
    check_served(stopped)


def test_partitions_without_a_metadata_log_are_refused(stopped: Any) -> None:
    a, b = stopped.log_dirs
    check_refused(stopped, [b], r"There are partitions, but no metadata log: .*/b/s-\d, .* and \d+ more|b/t-")
    shutil.rmtree(Path(a) / METADATA)
    check_refused(stopped, [a, b], "if its disk is not mounted, mount it. Nothing was changed")


def test_a_directory_without_meta_properties_is_refused(stopped: Any) -> None:
    for path in stopped.log_dirs:
        properties = Path(path) / "meta.properties"
        kept = properties.read_bytes()
        properties.unlink()
        check_refused(stopped, stopped.log_dirs, f"{path} contains data but no meta.properties")
        properties.write_bytes(kept)
    stopped.start()
    check_served(stopped)


def test_a_log_directory_of_another_cluster_is_refused(stopped: Any, make_server: MakeServer, tmp_path: Path) -> None:
    other = make_server(log_dirs=[tmp_path / "other"])
    other.stop()
    (tmp_path / "new").mkdir()
    check_refused(
        stopped,
        [stopped.log_dirs[0], tmp_path / "new", tmp_path / "other"],
        "Use separate directories for each cluster",
    )


def test_the_metadata_log_of_another_cluster_is_refused(stopped: Any, make_server: MakeServer, tmp_path: Path) -> None:
    other = fill(make_server(log_dirs=[tmp_path / "other"]), "s", "t")
    other.stop()
    shutil.rmtree(Path(stopped.log_dirs[0]) / METADATA)
    shutil.copytree(tmp_path / "other" / METADATA, Path(stopped.log_dirs[0]) / METADATA)
    check_refused(stopped, stopped.log_dirs, "belongs to a quorum with voters node 1 with directory")


def test_a_partition_of_another_topic_with_the_same_name_is_refused(
    stopped: Any, make_server: MakeServer, tmp_path: Path
) -> None:
    other = fill(make_server(log_dirs=[tmp_path / "other"]), "t")
    other.stop()
    (ours,) = (Path(path) / "t-0" for path in stopped.log_dirs if (Path(path) / "t-0").exists())
    ours.rename(tmp_path / "ours")
    shutil.copytree(tmp_path / "other" / "t-0", ours)
    check_refused(
        stopped,
        stopped.log_dirs,
        f"{ours} belongs to a topic with id .*, but t has id .* does not contain the other id",
    )
    shutil.rmtree(ours)
    (tmp_path / "ours").rename(ours)
    stopped.start()
    check_served(stopped)


def test_a_directory_with_only_unknown_partitions_is_refused(make_server: MakeServer, tmp_path: Path) -> None:
    other = fill(make_server(log_dirs=[tmp_path / "other"]), "x", "y")
    other.stop()
    server = make_server(log_dirs=[tmp_path / "data"])
    server.stop()
    for topic in ("x-0", "y-0"):
        shutil.copytree(tmp_path / "other" / topic, tmp_path / "data" / topic)
    check_refused(server, server.log_dirs, "contains none of these partitions: .*/x-0, .*/y-0")


def test_partitions_of_an_interrupted_deletion_are_renamed(make_server: MakeServer, tmp_path: Path) -> None:
    """All topics were deleted and recreated, and the process died before their directories were renamed."""
    server = fill(make_server(log_dirs=[tmp_path / "data"]), "s", "t")
    server.stop()
    for topic in ("s-0", "t-0"):
        shutil.copytree(tmp_path / "data" / topic, tmp_path / topic)
    server.start()
    with server.wire() as wire:
        delete(wire, "s", "t")
    server.create_topic("t")
    server.stop()
    for topic in ("s-0", "t-0"):
        shutil.rmtree(tmp_path / "data" / topic, ignore_errors=True)
        (tmp_path / topic).rename(tmp_path / "data" / topic)
    server.start()
    assert len(list((tmp_path / "data").glob("*-stray"))) == 2
    with server.wire() as wire:
        assert values(fetch(wire, "t")) == []


def test_partitions_of_a_missing_directory_are_offline(
    stopped: Any, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """The directory is missing in log.dirs, or its disk is not mounted. Its partitions are offline until it is back."""
    a, b = stopped.log_dirs
    there = sorted(path.name for path in Path(b).glob("[st]-*"))
    assert len(there) == 4
    before = files(b)
    for directories in ([a], [a, str(tmp_path / "empty")]):
        stopped.log_dirs = directories
        stopped.start()
        with stopped.wire() as wire:
            for topic in ("s", "t"):
                for index in range(4):
                    found = fetch(wire, topic, partition=index)
                    if f"{topic}-{index}" in there:
                        assert found.error_code == ErrorCode.KAFKA_STORAGE_ERROR
                        refusal = produce(wire, topic, batch(b"-"), partition=index).error_code
                        assert refusal == ErrorCode.KAFKA_STORAGE_ERROR
                    else:
                        assert values(found) == [b"%d" % index]
        stopped.stop()
        assert (
            f"{there[0]} is offline: KAFKA_STORAGE_ERROR: it is in the log directory with directory.id=" in caplog.text
        )
        assert "which is missing from log.dirs, or on a disk that is not mounted" in caplog.text
        assert files(b) == before
    stopped.log_dirs = [a, b]
    stopped.start()
    check_served(stopped)


def test_the_metadata_log_can_have_a_separate_directory(make_server: MakeServer, tmp_path: Path) -> None:
    server = make_server(log_dirs=[tmp_path / "a", tmp_path / "b"], config={"metadata.log.dir": str(tmp_path / "m")})
    fill(server, "s", "t", partitions=4)
    with pytest.raises(StartError, match="another broker holds its"):
        make_server(log_dirs=[tmp_path / "m"])
    server.restart()
    check_served(server)
    server.stop()
    assert sorted(path.name for path in (tmp_path / "m").iterdir()) == [
        ".lock",
        METADATA,
        "bootstrap.checkpoint",
        "meta.properties",
        "recovery-point-offset-checkpoint",
    ]
    assert not (tmp_path / "a" / METADATA).exists()
    properties = [(tmp_path / name / "meta.properties").read_text().splitlines() for name in "abm"]
    assert len({line for lines in properties for line in lines if line.startswith("cluster.id")}) == 1
    assert len({line for lines in properties for line in lines if line.startswith("directory.id")}) == 3
    del server.config["metadata.log.dir"]
    check_refused(server, server.log_dirs, "There are partitions, but no metadata log")
    other = make_server(log_dirs=[tmp_path / "other"])
    other.stop()
    check_refused(
        server,
        server.log_dirs,
        "Use separate directories for each cluster",
        **{"metadata.log.dir": str(tmp_path / "other")},
    )


def test_the_node_id_is_read_from_the_directory(make_server: MakeServer, tmp_path: Path) -> None:
    server = fill(make_server(log_dirs=[tmp_path / "a", tmp_path / "b"], config={"node.id": "7"}), "s", "t")
    server.stop()
    del server.config["node.id"]
    server.start()
    check_served(server, partitions=1)
    with server.wire() as wire:
        assert [broker.broker_id for broker in wire.call(DescribeClusterRequest(), 0).brokers] == [7]
    assert server.broker.config.origin("node.id") == f"{tmp_path}/a/meta.properties"
    server.stop()
    with pytest.raises(StartError, match=r"node\.id=7, not to node\.id=1"):
        make_server(log_dirs=server.log_dirs, config={"broker.id": "1"})


# Metadata logs of other software


def open_directory(directory: Any) -> Any:
    listeners = [Listener("PLAINTEXT", "localhost", 9092, "PLAINTEXT")]
    return open_storage(BrokerConfig({}), [str(directory)], listeners, now_ms=NOW, file_system=RealFileSystem())


def append(directory: Any, *records: Any, leader_change: Any = None) -> None:
    """Append records to the metadata log of a directory that is not in use."""
    (line,) = (x for x in (directory / "meta.properties").read_text().splitlines() if x.startswith("directory.id="))
    voter = LocalVoter(1, uuid_from_str(line.partition("=")[2]), Endpoint("CONTROLLER", "localhost", 9093))
    settings = MetadataLogSettings.of(BrokerConfig({}))
    log = MetadataLog.open(RealFileSystem(), str(directory), voter, settings, now_ms=NOW)
    list(log.replay(NOW))
    log.start_epoch(NOW)
    log.append([Versioned(*record) for record in records], NOW)
    log.close(NOW)


@pytest.fixture
def directory(tmp_path: Path) -> Any:
    open_directory(tmp_path / "data").close(NOW)
    return tmp_path / "data"


def check_directory_is_refused(directory: Any, words: Any) -> None:
    before = files(directory)
    with pytest.raises(StorageError, match=words):
        open_directory(directory)
    assert files(directory) == before


def test_a_directory_with_replicas_on_other_brokers_is_refused(directory: Any) -> None:
    topic_id = random_uuid()
    partition = PartitionRecord(
        topic_id=topic_id, partition_id=0, replicas=[1, 2, 3], isr=[1, 2], leader=2, directories=[bytes(16)] * 3
    )
    append(directory, (TopicRecord(name="t", topic_id=topic_id), 0), (partition, 1))
    words = "one node of a larger cluster: each of the brokers 2, 3 has replicas, for example of t-0"
    check_directory_is_refused(directory, words)


def test_a_directory_with_another_active_broker_is_refused(directory: Any) -> None:
    append(directory, (RegisterBrokerRecord(broker_id=2, broker_epoch=1, fenced=False), 3))
    check_directory_is_refused(directory, "broker 2 was active when its metadata was last written")


def test_another_broker_without_replicas_is_accepted(directory: Any) -> None:
    append(directory, (RegisterBrokerRecord(broker_id=2, broker_epoch=1, fenced=True), 3))
    open_directory(directory).close(NOW)


def test_a_larger_quorum_of_static_voters_is_refused(directory: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the last election names the voters."""
    for snapshot in (directory / METADATA).glob("*.checkpoint"):
        snapshot.unlink()
    shutil.rmtree(directory / METADATA)
    (directory / METADATA).mkdir()
    (directory / METADATA / f"{0:020}.log").touch()  # as the first startup of Apache Kafka leaves it
    open_directory(directory).close(NOW)
    change = LeaderChangeMessage(leader_id=2, voters=[Voter(voter_id=number) for number in (3, 1, 2)])
    monkeypatch.setattr("moldau.metadata.metadata_log.control_batch", lambda _, **more: control_batch([change], **more))
    append(directory, (NoOpRecord(), 0))
    monkeypatch.undo()
    check_directory_is_refused(directory, "belongs to a quorum with voters 1, 2, 3; this is node 1")


def test_compaction_gaps_of_other_software_are_accepted_without_a_checkpoint(directory: Any) -> None:
    """If Apache Kafka is killed between the swap of a segment and its checkpoint, it leaves a gap that looks like data
    loss."""
    storage = Storage(RealFileSystem(), str(directory))
    storage.create("compacted", {"cleanup.policy": "compact"})
    for number in range(5):
        storage.append("compacted", b"%d" % number)
        storage.log("compacted").roll(storage.now_ms)
    storage.append("compacted", b"last")
    storage.kill()
    for path in (directory / "compacted-0").glob(f"{2:020}.*"):
        path.unlink()
    shutil.copytree(directory, directory.parent / "ours")

    features = [BrokerFeature(name="share.version", min_supported_version=0, max_supported_version=1)]
    (identity,) = re.findall(r"directory\.id=(\S+)", (directory / "meta.properties").read_text())
    registered = RegisterBrokerRecord(
        broker_id=1, broker_epoch=1, features=features, log_dirs=[uuid_from_str(identity)], fenced=False
    )
    append(directory, (registered, 3))
    for _ in range(2):  # the second time, this broker was the last to register
        storage = Storage(RealFileSystem(), str(directory))
        assert storage.log("compacted").log_end_offset == 6
        assert not storage.log("compacted").repairs
        storage.storage.abandon()

    ours = Storage(RealFileSystem(), str(directory.parent / "ours"))
    assert ours.log("compacted").log_end_offset == 2  # this software would have written a checkpoint
    ours.stop()


def test_a_read_only_directory_is_refused(make_server: MakeServer) -> None:
    disk = MemoryFileSystem()
    server = fill(make_server(log_dirs=["/data"], file_system=disk), "t")
    server.stop()
    disk.fail_with = lambda operation, path: errno.EROFS if operation != "read" else None
    with pytest.raises(StartError, match="/data cannot be used: Read-only file system"):
        server.start()
    disk.fail_with = None
    server.start()
    with server.wire() as wire:
        assert values(fetch(wire, "t")) == [b"0"]

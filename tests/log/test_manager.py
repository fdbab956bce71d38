"""All logs of a broker: directories that are locked and owned, starts after every kind of stop, and failing disks."""

from __future__ import annotations

import errno
import json
import random
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from moldau.log import manager
from moldau.log.broker_loading import LoadReport
from moldau.log.config import LogConfig
from moldau.log.directory import LogDirectoryError
from moldau.log.files import FileSystem, RealFile, RealFileSystem
from moldau.log.manager import LogManager, RetriableLogError
from moldau.log.memory_files import MemoryFileSystem
from moldau.protocol.errors import ErrorCode, KafkaError
from moldau.protocol.uuid import random_uuid, uuid_to_str

NOW = 1_700_000_000_000
CONFIG = LogConfig(segment_bytes=1_000)
Batch = Callable[..., bytes]
Disk = tuple[FileSystem, str]


class Broker:
    """A manager on a file system that outlives it."""

    def __init__(self, file_system: Any, *directories: str) -> None:
        self.file_system = file_system
        self.paths = directories
        self.topic_ids: dict[str, bytes] = {}
        self.manager: LogManager

    def start(self, **arguments: Any) -> LoadReport:
        stray = arguments.pop("is_stray", None)
        self.manager = LogManager(self.paths, file_system=self.file_system, **{"node_id": 1} | arguments)
        self.manager.open()
        return self.manager.load(now_ms=NOW, config_of=lambda topic: CONFIG, is_stray=stray)

    def stop(self) -> None:
        self.manager.close(now_ms=NOW)

    def kill(self) -> None:
        """As after kill -9: written data is kept, and locks are free."""
        self.manager.files.close()
        for directory in self.manager.directories:
            directory.release()
        if isinstance(self.file_system, MemoryFileSystem):
            self.file_system = self.file_system.crash()

    def create(self, topic: str, partition: int = 0, **arguments: Any) -> Any:
        topic_id = self.topic_ids.setdefault(topic, random_uuid())
        return self.manager.get_or_create(topic, topic_id, partition, CONFIG, now_ms=NOW, **arguments)

    def append(self, topic: str, data: bytes, partition: int = 0) -> Any:
        log = self.manager.get(topic, partition)
        assert log is not None
        return log.append(data, now_ms=NOW, leader_epoch=1)

    def text(self, name: str, directory: int = 0) -> str:
        content: bytes = self.file_system.read_file(f"{self.paths[directory]}/{name}")
        return content.decode()

    def directories(self, directory: int = 0) -> list[str]:
        names: list[str] = self.file_system.list_directory(self.paths[directory])[1]
        return sorted(names)


@pytest.fixture
def broker(disk: Disk) -> Broker:
    file_system, root = disk
    return Broker(file_system, f"{root}/one", f"{root}/two")


@pytest.fixture
def single(disk: Disk) -> Broker:
    file_system, root = disk
    return Broker(file_system, f"{root}/data")


@pytest.fixture
def memory_broker() -> Broker:
    return Broker(MemoryFileSystem(), "/one", "/two")


# Opening


def test_new_directories_get_a_cluster_id_and_separate_directory_ids(broker: Broker) -> None:
    report = broker.start()
    assert (report.loaded, report.repairs, report.recovered_directories) == (0, [], [])
    ids = {directory.directory_id for directory in broker.manager.directories}
    assert len(ids) == 2
    for number, directory in enumerate(broker.manager.directories):
        properties = dict(line.split("=") for line in broker.text("meta.properties", number).splitlines())
        assert properties == {
            "version": "1",
            "cluster.id": broker.manager.cluster_id,
            "node.id": "1",
            "directory.id": uuid_to_str(directory.directory_id),
        }


def test_cluster_and_directory_ids_stay(broker: Broker) -> None:
    broker.start(cluster_id="Kafka-like-cluster-id0")
    ids = [directory.directory_id for directory in broker.manager.directories]
    broker.stop()
    broker.start()
    assert broker.manager.cluster_id == "Kafka-like-cluster-id0"
    assert [directory.directory_id for directory in broker.manager.directories] == ids


def test_a_directory_added_later_joins_the_cluster(disk: Disk) -> None:
    file_system, root = disk
    first = Broker(file_system, f"{root}/one")
    first.start()
    first.stop()
    both = Broker(file_system, f"{root}/new", f"{root}/one")
    both.start()
    assert both.manager.cluster_id == first.manager.cluster_id


def test_meta_properties_of_apache_kafka_are_read(single: Broker) -> None:
    single.file_system.make_directory(single.paths[0])
    content = (
        "#\n#Fri Nov 21 12:00:00 CET 2025\ncluster.id=MkU3OEVBNTcwNTJENDM2Qg\ndirectory.id=n2LqgVw8S7y9Ae3jvNrWcA\n"
        "node.id=1\nversion=1\n"
    )
    single.file_system.replace_file(f"{single.paths[0]}/meta.properties", content.encode(), sync=False)
    single.start()
    assert single.manager.cluster_id == "MkU3OEVBNTcwNTJENDM2Qg"
    assert uuid_to_str(single.manager.directories[0].directory_id) == "n2LqgVw8S7y9Ae3jvNrWcA"
    assert single.text("meta.properties") == content


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("version=1\ncluster.id=c\nnode.id=2\n", "node.id=2"),
        ("version=0\ncluster.id=c\nbroker.id=1\n", "version 0"),
        ("", "version None"),
        ("version=1\nnode.id=1\n", "no cluster.id"),
        ("version=1\nnode.id=1\ncluster.id=other\n", "belongs to cluster other"),
        ("version=1\nnode.id=1\ncluster.id=c\ndirectory.id=?\n", "directory.id"),
    ],
)
def test_a_directory_of_another_owner_is_refused_by_name(single: Broker, content: str, message: str) -> None:
    single.file_system.make_directory(single.paths[0])
    single.file_system.replace_file(f"{single.paths[0]}/meta.properties", content.encode(), sync=False)
    with pytest.raises(LogDirectoryError, match=message) as caught:
        single.start(cluster_id="c")
    assert single.paths[0] in str(caught.value)
    single.file_system.unlink(f"{single.paths[0]}/meta.properties")
    single.start(cluster_id="c")


def test_two_directories_of_different_clusters_are_refused(disk: Disk) -> None:
    file_system, root = disk
    for name in ("one", "two"):
        broker = Broker(file_system, f"{root}/{name}")
        broker.start()
        broker.stop()
    with pytest.raises(LogDirectoryError, match="belongs to cluster"):
        Broker(file_system, f"{root}/one", f"{root}/two").start()


def test_a_second_broker_on_the_same_directory_is_refused(broker: Broker) -> None:
    broker.start()
    with pytest.raises(LogDirectoryError, match="in use"):
        Broker(broker.file_system, broker.paths[1]).start()
    broker.stop()
    Broker(broker.file_system, broker.paths[1]).start()


def test_a_refused_startup_releases_all_locks(broker: Broker) -> None:
    blocker = Broker(broker.file_system, broker.paths[1])
    blocker.start()
    with pytest.raises(LogDirectoryError):
        broker.start()
    Broker(broker.file_system, broker.paths[0]).start()


@pytest.mark.parametrize("paths", [[], ["/a", "/a"]])
def test_log_dirs_must_be_some_and_different(paths: list[str]) -> None:
    with pytest.raises(LogDirectoryError, match=r"log\.dirs"):
        LogManager(paths, node_id=1)


def test_a_path_that_cannot_be_a_directory_is_refused_with_a_clear_message(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LogDirectoryError, match="cannot be used"):
        Broker(RealFileSystem(), str(tmp_path / "file" / "data")).start()


def test_one_broken_disk_of_several_does_not_prevent_startup(memory_broker: Broker, batch: Batch) -> None:
    memory_broker.start()
    for partition in range(2):
        memory_broker.create("t", partition)
        memory_broker.append("t", batch(b"x"), partition)
    memory_broker.stop()
    memory_broker.file_system.fail_with = fails_in("/one/", "open", "create", "list")
    report = memory_broker.start()
    assert (report.loaded, len(report.failed)) == (1, 1)
    assert "/one cannot be used" in report.summary()
    assert memory_broker.manager.get("t", 0) is None
    memory_broker.append("t", batch(b"y"), 1)
    memory_broker.stop()
    memory_broker.file_system.fail_with = fails_in("/", "open", "create", "list")
    with pytest.raises(LogDirectoryError, match=r"/one cannot be used.*/two cannot be used"):
        memory_broker.start()
    memory_broker.file_system.fail_with = None
    assert memory_broker.start().loaded == 2


# Partitions


def test_a_partition_is_created_with_its_topic_id_and_found_again(single: Broker, batch: Batch) -> None:
    single.start()
    log = single.create("orders", 3)
    assert single.create("orders", 3) is log
    assert single.manager.get("orders", 3) is log
    assert single.manager.get("orders", 4) is None
    assert single.directories() == ["orders-3"]
    assert single.text("orders-3/partition.metadata") == (
        f"version: 0\ntopic_id: {uuid_to_str(single.topic_ids['orders'])}"
    )
    single.append("orders", batch(b"a"), 3)
    single.stop()
    report = single.start()
    assert (report.loaded, report.repairs, report.recovered_directories) == (1, [], [])
    again = single.manager.get("orders", 3)
    assert again is not None
    assert (again.topic_id, again.log_end_offset) == (single.topic_ids["orders"], 1)


def test_partitions_are_created_in_the_directory_with_the_fewest_or_in_the_requested_one(broker: Broker) -> None:
    broker.start()
    for partition in range(4):
        broker.create("t", partition)
    assert [len(broker.directories(number)) for number in (0, 1)] == [2, 2]
    second = broker.manager.directories[1]
    for partition in range(4, 7):
        broker.create("t", partition, directory_id=second.directory_id)
        assert broker.manager.directory_of("t", partition) is second
    assert [len(broker.directories(number)) for number in (0, 1)] == [2, 5]
    broker.create("t", 7)
    assert broker.manager.directory_of("t", 7) is broker.manager.directories[0]


def test_cordoned_directories_get_no_new_partitions(broker: Broker) -> None:
    broker.start()
    first, second = broker.manager.directories
    assert broker.manager.cordon([first.path])
    assert not broker.manager.cordon([first.path])
    assert broker.manager.cordoned_directories() == [first.directory_id]
    for partition in range(3):
        broker.create("t", partition)
    assert [len(broker.directories(number)) for number in (0, 1)] == [0, 3]
    broker.create("t", 3, directory_id=first.directory_id)  # the metadata already has the replica there
    assert broker.manager.directory_of("t", 3) is first
    assert broker.manager.cordon(["*"])
    with pytest.raises(RetriableLogError, match="all log directories are cordoned"):
        broker.create("t", 4)
    assert broker.manager.cordon([])
    broker.create("t", 4)
    assert broker.manager.directory_of("t", 4) is first
    assert broker.manager.directory_of("t", 0) is second


def test_a_single_directory_is_used_although_it_is_cordoned(single: Broker) -> None:
    single.start()
    single.manager.cordon(["*"])
    single.create("t", 0)
    assert single.directories() == ["t-0"]


def test_the_preferred_directory_of_a_new_partition_is_used_once(broker: Broker) -> None:
    broker.start()
    first, second = broker.manager.directories
    for partition in range(3):
        broker.manager.prefer("t", partition, second)
    for partition in range(4):
        broker.create("t", partition)
    assert [broker.manager.directory_of("t", partition) for partition in range(4)] == [second] * 3 + [first]
    broker.manager.delete("t", 0)
    broker.create("t", 0)
    assert broker.manager.directory_of("t", 0) is first


def test_the_directory_in_the_metadata_takes_precedence_over_a_preferred_one(broker: Broker) -> None:
    broker.start()
    first, second = broker.manager.directories
    broker.manager.prefer("t", 0, second)
    broker.create("t", 0, directory_id=first.directory_id)
    assert broker.manager.directory_of("t", 0) is first


def test_a_deleted_partition_is_renamed_immediately_and_removed_later(single: Broker, batch: Batch) -> None:
    single.start()
    log = single.create("gone")
    single.append("gone", batch(b"x"))
    found = log.read(0, 100, max_offset=1, min_one_batch=True).records
    single.manager.delete("gone", 0)
    single.manager.delete("gone", 0)
    assert single.manager.get("gone", 0) is None
    (retired,) = single.directories()
    assert retired.startswith("gone-0.")
    assert retired.endswith("-delete")
    assert len(found.read()) == len(found), "it is still being sent"
    found.release()
    with pytest.raises(KafkaError):
        log.append(batch(b"y"), now_ms=NOW, leader_epoch=1)
    again = single.create("gone")
    assert again.log_end_offset == 0
    trash = single.manager.take_trash()
    single.manager.remove_trash(trash)
    assert single.directories() == ["gone-0"]
    assert single.manager.take_trash() == []


def test_an_interrupted_deletion_is_completed(single: Broker, batch: Batch) -> None:
    single.start()
    single.create("gone")
    single.append("gone", batch(b"x"))
    single.manager.delete("gone", 0)
    single.kill()
    report = single.start()
    assert report.loaded == 0
    single.manager.remove_trash(single.manager.take_trash())
    assert single.directories() == []


def test_segments_that_retention_deletes_are_in_the_trash(single: Broker, batch: Batch) -> None:
    single.start()
    log = single.create("t")
    for _ in range(5):
        single.append("t", batch(b"x" * 600))
    log.flush(NOW)
    log.delete_records_before(3)
    trash = single.manager.take_trash()
    assert len(trash) == 9
    single.manager.remove_trash(trash)
    assert not [name for name in single.file_system.list_directory(log.directory)[0] if name.endswith(".deleted")]


def test_a_topic_of_the_same_name_with_another_id_becomes_a_stray(single: Broker, batch: Batch) -> None:
    single.start()
    single.create("t")
    single.append("t", batch(b"of the old topic"))
    single.topic_ids.clear()
    log = single.create("t")
    assert log.log_end_offset == 0
    current, stray = single.directories()
    assert current == "t-0"
    assert stray.endswith("-stray")
    single.stop()
    report = single.start()
    assert report.loaded == 1
    assert [path.rpartition("/")[2] for path in report.ignored] == [stray]


def test_partitions_of_unknown_topics_become_strays_at_startup(single: Broker, batch: Batch) -> None:
    single.start()
    for topic in ("kept", "stray", "empty"):
        single.create(topic)
    single.append("stray", batch(b"x"))
    single.stop()
    requested = []

    def is_stray(topic: str, partition: int, topic_id: bytes | None) -> bool:
        requested.append((topic, partition, topic_id))
        return topic != "kept"

    report = single.start(is_stray=is_stray)
    assert report.loaded == 1
    # First by the name; a log that is not known is not opened.
    assert requested[:3] == [(topic, 0, None) for topic in ("empty", "kept", "stray")]
    assert requested[3:] == [("kept", 0, single.topic_ids["kept"])]
    assert len(report.strays) == 2
    assert "set aside 2 strays" in report.summary()
    single.manager.remove_trash(single.manager.take_trash())
    assert [name.partition(".")[0] for name in single.directories()] == ["empty-0", "kept-0", "stray-0"]


def test_an_incomplete_directory_is_completed(single: Broker) -> None:
    single.start()
    single.file_system.make_directory(f"{single.paths[0]}/half-0")
    single.kill()
    assert single.start().loaded == 1
    assert single.manager.get("half", 0).topic_id is None  # type: ignore[union-attr]
    log = single.create("half")
    assert log.topic_id == single.topic_ids["half"]


def test_other_directories_are_ignored(single: Broker) -> None:
    single.start()
    for name in ("lost+found", "__cluster_metadata-0", "moving-0.0123abcd-future", "x-1.y-stray", "-1", "a-b"):
        single.file_system.make_directory(f"{single.paths[0]}/{name}")
    single.file_system.replace_file(f"{single.paths[0]}/bootstrap.checkpoint", b"x", sync=False)
    before = single.directories()
    single.stop()
    report = single.start()
    assert report.loaded == 0
    assert single.directories() == before
    assert len(report.ignored) == 5


def test_one_partition_in_two_directories_is_an_error(broker: Broker) -> None:
    broker.start()
    broker.create("t")
    broker.stop()
    broker.file_system.make_directory(f"{broker.paths[1]}/t-0")
    with pytest.raises(LogDirectoryError, match="both in"):
        broker.start()


def test_long_topic_names_can_be_deleted(single: Broker) -> None:
    single.start()
    single.create("t" * 249)
    single.manager.delete("t" * 249, 0)
    (retired,) = single.directories()
    assert len(retired) <= 255


# Stopping and starting


def test_a_clean_shutdown_leaves_the_files_that_apache_kafka_leaves(single: Broker, batch: Batch) -> None:
    single.start()
    single.create("t", 0)
    single.create("t", 1)
    for _ in range(3):
        single.append("t", batch(b"x" * 600))
    single.manager.get("t", 0).flush(NOW)  # type: ignore[union-attr]
    single.manager.get("t", 0).delete_records_before(1)  # type: ignore[union-attr]
    single.append("t", batch(b"x", b"y"), 1)
    single.manager.get("t", 1).delete_records_before(1)  # type: ignore[union-attr]
    single.manager.close(now_ms=NOW, broker_epoch=77, high_watermarks={("t", 0): 3, ("gone", 0): 9})
    assert json.loads(single.text(".kafka_cleanshutdown")) == {"version": 0, "brokerEpoch": 77}
    assert single.text("recovery-point-offset-checkpoint") == "0\n2\nt 0 3\nt 1 2\n"
    assert single.text("log-start-offset-checkpoint") == "0\n1\nt 1 1\n", "only what the first segment does not say"
    assert single.text("replication-offset-checkpoint") == "0\n1\nt 0 3\n"
    single.start()
    (directory,) = single.manager.directories
    assert (directory.was_clean, directory.previous_broker_epoch) == (True, 77)
    assert single.manager.get("t", 1).log_start_offset == 1  # type: ignore[union-attr]
    assert single.manager.high_watermarks == {("t", 0): 3}
    assert not single.file_system.exists(f"{single.paths[0]}/.kafka_cleanshutdown")


def test_a_clean_shutdown_by_several_threads_is_durable(
    memory_broker: Broker, producer_batch: Batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manager, "_CLOSED_TOGETHER", 7)
    memory_broker.start()
    for partition in range(30):
        memory_broker.create("t", partition)
        for sequence in range(partition % 3 + 1):
            memory_broker.append("t", producer_batch(sequence), partition)
    with ThreadPoolExecutor(4) as executor:
        memory_broker.manager.close(now_ms=NOW, run=executor.map)
    memory_broker.file_system = memory_broker.file_system.crash(random.Random(1))
    report = memory_broker.start()
    assert (report.loaded, report.recovered_directories, report.repairs) == (30, [], [])
    for partition in range(30):
        log = memory_broker.manager.get("t", partition)
        assert log is not None
        assert (log.log_end_offset, log.recovery_point) == (partition % 3 + 1,) * 2
        assert memory_broker.append("t", producer_batch(partition % 3), partition).duplicate


def test_a_clean_shutdown_syncs_each_change_once(memory_broker: Broker, producer_batch: Batch) -> None:
    synced: list[str] = []
    memory_broker.start()
    for partition in (0, 2):
        memory_broker.create("t", partition)
        memory_broker.append("t", producer_batch(0), partition)
    memory_broker.stop()
    memory_broker.start()
    memory_broker.append("t", producer_batch(1), 2)

    def note(operation: str, path: str) -> None:
        if "sync" in operation and "/t-" in path:
            synced.append(path.partition("/t-")[2].removesuffix(".tmp"))

    memory_broker.file_system.fail_with = note
    memory_broker.stop()
    files = ("0.index", "0.log", "0.timeindex", "1.snapshot", "2.snapshot")
    assert sorted(synced) == ["2", *(f"2/{int(name[0]):020}{name[1:]}" for name in files)]


def test_after_a_kill_all_records_exist_and_the_summary_is_one_line(single: Broker, producer_batch: Batch) -> None:
    single.start()
    single.create("t")
    for sequence in range(30):
        single.append("t", producer_batch(sequence))
    single.kill()
    report = single.start()
    assert report.recovered_directories == [single.paths[0]]
    assert report.summary() == (
        f"loaded 1 partitions, recovered {single.paths[0]} after an unclean shutdown, no repairs were needed"
    )
    log = single.manager.get("t", 0)
    assert log is not None
    assert log.log_end_offset == 30
    assert single.append("t", producer_batch(29)).duplicate


def test_repairs_are_reported_in_one_line(single: Broker, batch: Batch) -> None:
    single.start()
    log = single.create("t")
    for _ in range(3):
        single.append("t", batch(b"x"))
    single.kill()
    file = single.file_system.open(f"{log.directory}/00000000000000000000.log")
    file.truncate(file.size() - 3)
    file.close()
    summary = single.start().summary()
    assert "1 repairs" in summary
    assert "at offset 2" in summary
    assert "\n" not in summary


def test_a_startup_that_dies_while_loading_is_not_clean(single: Broker, batch: Batch) -> None:
    single.start()
    single.create("t")
    single.append("t", batch(b"x"))
    single.stop()
    single.start()
    single.kill()
    assert single.start().recovered_directories == [single.paths[0]]


def test_checkpoints_limit_the_next_recovery(single: Broker, batch: Batch) -> None:
    single.start()
    log = single.create("t")
    for _ in range(10):
        single.append("t", batch(b"x" * 600))
    log.flush(NOW)
    log.delete_records_before(4)
    single.manager.flush_checkpoints()
    assert single.text("recovery-point-offset-checkpoint") == "0\n1\nt 0 10\n"
    single.kill()
    single.start()
    again = single.manager.get("t", 0)
    assert again is not None
    assert (again.log_start_offset, again.recovery_point) == (4, 10)


def test_checkpoints_can_be_written_while_the_broker_continues(single: Broker, batch: Batch) -> None:
    single.start()
    log = single.create("t")
    single.append("t", batch(b"a"))
    single.append("t", batch(b"b"))
    log.flush(NOW)
    files = single.manager.begin_checkpoints()
    single.append("t", batch(b"c"))
    files.run()
    single.manager.end_checkpoints(files)
    assert single.text("recovery-point-offset-checkpoint") == "0\n1\nt 0 2\n"
    assert not [n for n in single.file_system.list_directory(single.paths[0])[0] if n.endswith(".tmp")]


def test_a_checkpoint_from_before_a_truncation_is_discarded(single: Broker, batch: Batch) -> None:
    single.start()
    log = single.create("t")
    for _ in range(5):
        single.append("t", batch(b"a"))
    log.flush(NOW)
    files = single.manager.begin_checkpoints()
    log.truncate_to(2, NOW)
    assert single.text("recovery-point-offset-checkpoint") == "0\n1\nt 0 2\n", "written before the cut"
    files.run()
    single.manager.end_checkpoints(files)
    assert single.text("recovery-point-offset-checkpoint") == "0\n1\nt 0 2\n"


def diverged(single: Broker, batch: Batch) -> tuple[Any, Any]:
    """Two logs of five records that are flushed and in the checkpoint."""
    single.start()
    logs = single.create("t"), single.create("u")
    for _ in range(5):
        single.append("t", batch(b"a"))
        single.append("u", batch(b"a"))
    for log in logs:
        log.flush(NOW)
    single.manager.flush_checkpoints()
    return logs


def test_a_truncation_may_be_preceded_by_lower_checkpoints_in_a_thread(single: Broker, batch: Batch) -> None:
    log, other = diverged(single, batch)
    single.manager.clean_offsets["t", 0] = 4
    truncations = {log: 2, other: 3}
    older = single.manager.begin_checkpoints()
    files = single.manager.begin_truncations(truncations)
    assert files is not None
    with ThreadPoolExecutor(1) as threads:
        threads.submit(files.run).result()
        sync_names = single.manager.end_truncation_checkpoints(files, truncations)
        assert sync_names is not None
        threads.submit(sync_names).result()
    lowered = "0\n2\nt 0 2\nu 0 3\n"
    assert single.text("recovery-point-offset-checkpoint") == lowered
    assert single.text("cleaner-offset-checkpoint") == "0\n1\nt 0 2\n"
    older.run()
    single.manager.end_checkpoints(older)
    assert single.text("recovery-point-offset-checkpoint") == lowered, "an older one must not replace it"
    log.on_recovery_point_lowered = other.on_recovery_point_lowered = None  # not needed
    log.truncate_to(2, NOW, sync=False)
    other.truncate_to(3, NOW, sync=False)
    log.flush(NOW)
    assert (log.cut_is_unsynced, other.cut_is_unsynced) == (False, True)


def test_a_truncation_lowers_the_checkpoints_itself_if_they_are_ahead_again(single: Broker, batch: Batch) -> None:
    log, _ = diverged(single, batch)
    files = single.manager.begin_truncations({log: 2})
    assert files is not None
    files.run()
    single.manager.end_truncation_checkpoints(files, {log: 2})
    log.flush(NOW)
    single.manager.flush_checkpoints()
    assert single.text("recovery-point-offset-checkpoint") == "0\n2\nt 0 5\nu 0 5\n"
    log.truncate_to(2, NOW, sync=False)
    assert single.text("recovery-point-offset-checkpoint") == "0\n2\nt 0 2\nu 0 5\n"


def test_another_truncation_discards_the_checkpoints_for_one(single: Broker, batch: Batch) -> None:
    log, other = diverged(single, batch)
    files = single.manager.begin_truncations({log: 2})
    assert files is not None
    files.run()
    other.truncate_to(1, NOW)
    assert single.manager.end_truncation_checkpoints(files, {log: 2}) is None
    log.truncate_to(2, NOW, sync=False)
    assert single.text("recovery-point-offset-checkpoint") == "0\n2\nt 0 2\nu 0 1\n"


def test_a_truncation_above_the_recovery_point_changes_no_checkpoint(single: Broker, batch: Batch) -> None:
    log, _ = diverged(single, batch)
    single.append("t", batch(b"b"))
    assert single.manager.begin_truncations({log: 5}) is None


@pytest.mark.parametrize("content", [b"\0" * 30, b"0\n5\nt 0 1\n", b"7\n0\n", b"0\n1\nt zero 1\n"])
def test_damaged_checkpoints_cause_a_full_recovery(single: Broker, batch: Batch, content: bytes) -> None:
    single.start()
    single.create("t")
    single.append("t", batch(b"x"))
    single.kill()
    for name in ("recovery-point", "log-start", "replication"):
        single.file_system.replace_file(f"{single.paths[0]}/{name}-offset-checkpoint", content, sync=False)
    report = single.start()
    assert len(report.repairs) == 3
    assert single.manager.get("t", 0).log_end_offset == 1  # type: ignore[union-attr]


def test_an_empty_checkpoint_of_apache_kafka_is_no_damage(single: Broker, batch: Batch) -> None:
    single.start()
    single.create("t")
    single.append("t", batch(b"x"))
    single.kill()
    for name in ("recovery-point", "log-start", "replication"):
        single.file_system.replace_file(f"{single.paths[0]}/{name}-offset-checkpoint", b"", sync=False)
    report = single.start()
    assert report.repairs == []
    assert single.manager.get("t", 0).log_end_offset == 1  # type: ignore[union-attr]


def test_a_partition_that_cannot_be_opened_does_not_affect_the_others(single: Broker, batch: Batch) -> None:
    single.start()
    for topic in ("good", "bad"):
        single.create(topic)
        single.append(topic, batch(b"x"))
    single.stop()
    single.file_system.replace_file(f"{single.paths[0]}/bad-0/partition.metadata", b"version: 9\n", sync=False)
    report = single.start()
    assert report.loaded == 1
    assert len(report.failed) == 1
    assert "bad-0" in report.summary()
    assert single.manager.get("good", 0) is not None


def test_startup_recovers_after_a_power_failure(producer_batch: Batch) -> None:
    for seed in range(20):
        broker = Broker(MemoryFileSystem(), "/one", "/two")
        broker.start()
        flushed: dict[int, int] = {}
        for partition in range(4):
            log = broker.create("t", partition)
            for sequence in range(10):
                broker.append("t", producer_batch(sequence), partition)
                if sequence == partition * 2:
                    log.flush(NOW)
                    flushed[partition] = log.flushed_offset
        broker.manager.flush_checkpoints()
        for directory in broker.manager.directories:
            directory.release()
        broker.file_system = broker.file_system.crash(random.Random(seed))
        broker.start()
        for partition, end in flushed.items():
            log = broker.manager.get("t", partition)
            assert log is not None
            assert log.log_end_offset >= end
            assert log.topic_id == broker.topic_ids["t"]
            producers = log.active_producers()
            assert [producer.last_sequence for producer in producers] == [log.log_end_offset - 1]


# Failing disks


def fails_in(path: str, *operations: str, code: int = errno.EIO) -> Callable[[str, str], int | None]:
    return lambda operation, at: code if at.startswith(path) and operation in operations else None


def test_a_failing_directory_takes_its_partitions_offline_and_no_others(memory_broker: Broker, batch: Batch) -> None:
    memory_broker.start()
    logs = [memory_broker.create("t", partition) for partition in range(4)]
    reported: list[tuple[str, list[int]]] = []
    memory_broker.manager.on_directory_failure = lambda directory, error, logs: reported.append(
        (directory.path, sorted(log.partition for log in logs))
    )
    for partition in range(4):
        memory_broker.append("t", batch(b"x"), partition)
    memory_broker.file_system.fail_with = fails_in("/one/", "write")
    with pytest.raises(KafkaError):
        logs[0].append(batch(b"y"), now_ms=NOW, leader_epoch=1)
    memory_broker.file_system.fail_with = None
    assert reported == [("/one", [0, 2])]
    for partition in (0, 2):
        with pytest.raises(KafkaError) as caught:
            memory_broker.append("t", batch(b"y"), partition)
        assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    memory_broker.append("t", batch(b"y"), 1)
    memory_broker.create("t", 4)
    assert memory_broker.manager.directory_of("t", 4).path == "/two"  # type: ignore[union-attr]
    assert [directory.path for directory in memory_broker.manager.online_directories()] == ["/two"]
    memory_broker.manager.delete("t", 0)
    memory_broker.stop()
    assert memory_broker.file_system.exists("/two/.kafka_cleanshutdown")
    assert not memory_broker.file_system.exists("/one/.kafka_cleanshutdown")
    report = memory_broker.start()
    assert report.recovered_directories == ["/one"]
    assert memory_broker.manager.get("t", 2).log_end_offset == 1  # type: ignore[union-attr]


@pytest.mark.parametrize("threads", [1, 4])
def test_a_directory_that_fails_at_shutdown_is_not_marked_clean(
    memory_broker: Broker, batch: Batch, threads: int
) -> None:
    memory_broker.start()
    for partition in range(8):
        memory_broker.create("t", partition)
        memory_broker.append("t", batch(b"x"), partition)
    memory_broker.file_system.fail_with = fails_in("/one/t-4", "sync")
    with ThreadPoolExecutor(threads) as executor:
        memory_broker.manager.close(now_ms=NOW, run=executor.map)
    memory_broker.file_system.fail_with = None
    assert memory_broker.file_system.exists("/two/.kafka_cleanshutdown")
    assert not memory_broker.file_system.exists("/one/.kafka_cleanshutdown")
    report = memory_broker.start()
    assert (report.loaded, report.recovered_directories) == (8, ["/one"])


def test_when_every_directory_is_offline_partitions_cannot_be_created(memory_broker: Broker) -> None:
    memory_broker.start()
    memory_broker.file_system.fail_with = fails_in("/", "directory")
    for topic in ("a", "b", "c"):
        with pytest.raises(KafkaError) as caught:
            memory_broker.create(topic)
        assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert memory_broker.manager.online_directories() == []
    memory_broker.file_system.fail_with = None
    memory_broker.stop()


def test_a_full_disk_creates_no_partition_and_breaks_nothing(memory_broker: Broker) -> None:
    memory_broker.start()
    memory_broker.file_system.capacity_bytes = memory_broker.file_system.used_bytes()
    with pytest.raises(KafkaError) as caught:
        memory_broker.create("t")
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert len(memory_broker.manager.online_directories()) == 2
    memory_broker.file_system.capacity_bytes = None
    assert memory_broker.create("t").topic_id == memory_broker.topic_ids["t"]


def test_a_directory_that_cannot_be_read_at_the_start_is_offline(memory_broker: Broker, batch: Batch) -> None:
    memory_broker.start()
    for partition in range(2):
        memory_broker.create("t", partition)
        memory_broker.append("t", batch(b"x"), partition)
    memory_broker.stop()
    memory_broker.file_system.fail_with = fails_in("/one/t-0", "list")
    report = memory_broker.start()
    assert report.loaded == 1
    assert len(report.failed) == 1
    assert [directory.path for directory in memory_broker.manager.online_directories()] == ["/two"]
    memory_broker.file_system.fail_with = None


def test_checkpoints_that_cannot_be_written_take_the_directory_offline(memory_broker: Broker) -> None:
    memory_broker.start()
    memory_broker.create("t", 0)
    memory_broker.create("t", 1)
    before = memory_broker.file_system.read_file("/one/recovery-point-offset-checkpoint")
    memory_broker.file_system.fail_with = fails_in("/one/", "sync")
    memory_broker.manager.flush_checkpoints()
    memory_broker.file_system.fail_with = None
    assert [directory.path for directory in memory_broker.manager.online_directories()] == ["/two"]
    assert memory_broker.file_system.read_file("/two/recovery-point-offset-checkpoint") != before
    assert memory_broker.file_system.read_file("/one/recovery-point-offset-checkpoint") == before


def test_a_full_disk_at_the_checkpoints_keeps_the_old_ones(memory_broker: Broker, batch: Batch) -> None:
    memory_broker.start()
    memory_broker.create("t", 0)
    memory_broker.manager.flush_checkpoints()
    before = memory_broker.text("recovery-point-offset-checkpoint")
    memory_broker.append("t", batch(b"x"))
    memory_broker.manager.get("t", 0).flush(NOW)  # type: ignore[union-attr]
    memory_broker.file_system.capacity_bytes = memory_broker.file_system.used_bytes() + 3
    memory_broker.manager.flush_checkpoints()
    memory_broker.file_system.capacity_bytes = None
    assert memory_broker.text("recovery-point-offset-checkpoint") == before
    assert len(memory_broker.manager.online_directories()) == 2


# Scale


class Watched(RealFileSystem):
    """Keeps the paths of the files that are opened."""

    def __init__(self) -> None:
        super().__init__(durable=False)
        self.opened: list[str] = []

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> RealFile:
        self.opened.append(path)
        return super().open(path, create=create, read_only=read_only)


def test_a_thousand_partitions_load_with_one_listing_each_and_hold_no_descriptors(tmp_path: Path, batch: Batch) -> None:
    file_system = Watched()
    broker = Broker(file_system, str(tmp_path))
    broker.start()
    data = batch(b"x" * 100)
    for partition in range(1_000):
        broker.create("t", partition)
        broker.append("t", data, partition)
    assert len(broker.manager.files) <= 512
    broker.stop()
    file_system.opened.clear()
    report = broker.start()
    assert report.loaded == 1_000
    assert len(broker.manager.files) == 0
    assert sorted(file_system.opened) == [
        f"{tmp_path}/t-{partition}/00000000000000000000.log" for partition in sorted(range(1_000), key=str)
    ]
    broker.stop()


def test_kill_of_a_real_process_loses_no_acknowledged_batch(tmp_path: Path) -> None:
    """A child appends records and prints their offsets until it is killed. All records whose offsets it printed
    exist."""
    program = f"""
import sys
from moldau.log.config import LogConfig
from moldau.log.manager import LogManager
from moldau.protocol.records import Record, build_batch
manager = LogManager([{str(tmp_path)!r}], node_id=1)
manager.open()
manager.load(now_ms=0, config_of=lambda topic: LogConfig())
log = manager.get_or_create("t", bytes(range(16)), 0, LogConfig(segment_bytes=20_000), now_ms=0)
for sequence in range(100_000):
    batch = build_batch([Record(0, 5, None, b"%d" % sequence)], producer_id=1, producer_epoch=0, base_sequence=sequence)
    print(log.append(batch, now_ms=5, leader_epoch=1).first_offset, flush=True)
"""
    child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    seen = 0
    while seen < 1_500:
        seen = int(child.stdout.readline())
    child.kill()
    rest = [int(line) for line in child.stdout.read().splitlines(keepends=True) if line.endswith("\n")]
    acknowledged = rest[-1] if rest else seen
    child.wait()
    child.stdout.close()
    broker = Broker(RealFileSystem(), str(tmp_path))
    assert broker.start().repairs == []
    log = broker.manager.get("t", 0)
    assert log is not None
    assert log.log_end_offset in (acknowledged + 1, acknowledged + 2)
    (producer,) = log.active_producers()
    assert producer.last_sequence == log.log_end_offset - 1
    broker.stop()


def test_a_recreated_partition_does_not_use_the_checkpoints_of_the_old_one(single: Broker, batch: Batch) -> None:
    """Killed before the next checkpoints, a start took the new records for those that DeleteRecords had deleted."""
    single.start()
    manager = single.manager
    log = single.create("t")
    for number in range(20):
        single.append("t", batch(b"old %d" % number))
    log.delete_records_before(15)
    manager.clean_offsets["t", 0] = 15
    manager.flush_checkpoints()
    files = manager.begin_cleaner_checkpoints()
    files.run()
    manager.end_checkpoints(files)
    being_written = manager.begin_checkpoints()
    being_written.run()
    manager.delete("t", 0)
    single.topic_ids.clear()
    single.create("t")
    manager.end_checkpoints(being_written)
    single.append("t", batch(b"new"))
    for name in ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint", "cleaner-offset-checkpoint"):
        assert "t 0" not in single.text(name)
    if not isinstance(single.file_system, MemoryFileSystem):  # that one would lose the record, which is not flushed
        single.kill()
        single.start()
        found = single.manager.get("t", 0)
        assert found is not None
        assert (found.log_start_offset, found.log_end_offset) == (0, 1)
        assert single.manager.clean_offsets == {}


def test_directories_of_one_name_that_contain_other_files_are_unchanged(broker: Broker) -> None:
    broker.start()
    broker.stop()
    for path in broker.paths:
        broker.file_system.make_directory(f"{path}/t-0")
        broker.file_system.replace_file(f"{path}/t-0/notes.txt", b"x", sync=False)
    report = broker.start()
    assert report.loaded == 0
    assert [text.partition(" ")[0] for text in report.foreign] == [f"{path}/t-0" for path in broker.paths]

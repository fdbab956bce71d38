"""Copies of logs that move to another log directory: how they follow the log, and how a startup treats them."""

from __future__ import annotations

import pytest

from moldau.log.broker_loading import LoadReport
from moldau.log.checkpoints import encode_partition_metadata
from moldau.log.compaction.compact import compact
from moldau.log.config import LogConfig
from moldau.log.directory import LogDirectory, LogDirectoryError
from moldau.log.future_log import FutureLog
from moldau.log.manager import LogManager
from moldau.log.memory_files import MemoryFileSystem
from moldau.log.partition_log import Log
from moldau.protocol.records import Record, build_batch, iter_records

NOW = 1_700_000_000_000
PLAIN = LogConfig(index_interval_bytes=0)
COMPACTED = LogConfig(index_interval_bytes=0, segment_bytes=200, cleanup_policy=("compact",))


class Broker:
    """A manager with a partition in /a, another in /b, and its own metadata."""

    def __init__(self, config: LogConfig = PLAIN) -> None:
        self.disk = MemoryFileSystem()
        self.config = config
        self.home: bytes | None = None
        self.start()
        for topic, directory in (("t", 0), ("other", 1)):
            directory_id = self.manager.directories[directory].directory_id
            self.manager.get_or_create(topic, b"\1" * 16, 0, config, now_ms=NOW, directory_id=directory_id)
        self.home = self.manager.directories[0].directory_id

    def start(self) -> LoadReport:
        self.manager = LogManager(["/a", "/b"], node_id=1, cluster_id="c", file_system=self.disk)
        self.manager.open()
        return self.manager.load(
            now_ms=NOW,
            config_of=lambda topic: self.config,
            directory_id_of=lambda topic, partition: self.home if topic == "t" else None,
        )

    def kill(self) -> LoadReport:
        self.disk = self.disk.crash()
        return self.start()

    @property
    def log(self) -> Log:
        log = self.manager.get("t", 0)
        assert log is not None
        return log

    def append(self, *values: bytes) -> None:
        """A batch for each value; the key is its first byte."""
        for value in values:
            data = build_batch([Record(0, NOW, value[:1], value)])
            self.log.append(data, now_ms=NOW, leader_epoch=0, client=False)

    def begin(self) -> FutureLog:
        return self.manager.begin_move("t", 0, self.manager.directories[1])

    def copy(self, future: FutureLog) -> None:
        """The whole move, up to the swap."""
        while (step := future.begin_copy(100)) is not None:
            step.run()
            future.end_copy(step)
        last = future.begin_last_copy()
        last.run()
        future.end_copy(last, last=True)

    def commit(self, directory: LogDirectory) -> None:
        self.home = directory.directory_id

    def swap(self, future: FutureLog) -> None:
        self.manager.flush_checkpoints({})
        files = self.manager.begin_cleaner_checkpoints()
        files.run()
        self.manager.end_checkpoints(files)
        self.commit(future.directory)
        self.manager.swap(future)

    def values(self) -> list[bytes | None]:
        return [record.value for batch in self.log.batches(0) for record in iter_records(batch)]

    def names(self, directory: str) -> list[str]:
        return sorted(self.disk.list_directory(directory)[1])


@pytest.fixture
def broker() -> Broker:
    return Broker()


def test_after_a_truncation_the_copy_starts_over(broker: Broker) -> None:
    broker.append(b"1", b"2", b"3")
    broker.log.roll(NOW)
    broker.append(b"4")
    future = broker.begin()
    broker.copy(future)
    assert future.is_durable
    broker.log.truncate_to(1, NOW)
    assert not future.is_durable
    broker.append(b"5", b"6")
    broker.copy(future)
    broker.swap(future)
    assert broker.values() == [b"1", b"5", b"6"]
    assert broker.names("/a") == [name for name in broker.names("/a") if name.endswith("-delete")]
    broker.kill()
    assert broker.values() == [b"1", b"5", b"6"]


def test_after_a_flush_the_last_step_is_repeated(broker: Broker) -> None:
    broker.append(b"1")
    future = broker.begin()
    broker.copy(future)
    broker.append(b"2")
    assert future.is_durable
    broker.log.flush(NOW)
    assert not future.is_durable


def test_deleted_segments_are_removed_from_the_copy(broker: Broker) -> None:
    for value in (b"1", b"2", b"3"):
        broker.append(value)
        broker.log.roll(NOW)
    broker.log.flush(NOW)
    future = broker.begin()
    broker.copy(future)
    broker.log.delete_records_before(1)
    broker.copy(future)
    broker.log.delete_records_before(2)
    broker.swap(future)
    files, _directories = broker.disk.list_directory("/b/t-0")
    assert sorted(name for name in files if name.endswith(".log")) == [f"{2:020d}.log"]
    broker.manager.remove_trash(broker.manager.take_trash())
    assert not [name for name in broker.disk.list_directory("/b/t-0")[0] if name.endswith(".deleted")]


def test_the_gaps_of_a_compacted_log_are_no_loss_in_its_new_directory() -> None:
    """The checkpoints of the target directory know how far the log was compacted before it is there."""
    broker = Broker(COMPACTED)
    broker.append(b"a1", b"b1")
    broker.log.roll(NOW)
    broker.append(b"b2", b"c1")
    broker.log.roll(NOW)
    broker.log.flush(NOW)
    _compact(broker)
    broker.manager.clean_offsets["t", 0] = 4
    expected = broker.values()
    assert expected == [b"a1", b"b2", b"c1"]
    assert [segment.base_offset for segment in broker.log.segments] == [0, 2, 4]
    broker.append(b"d1")
    future = broker.begin()
    broker.copy(future)
    broker.swap(future)
    broker.kill()
    assert broker.manager.directory_of("t", 0) is broker.manager.directories[1]
    assert broker.values() == [*expected, b"d1"]
    assert broker.manager.clean_offsets["t", 0] == 4


def _compact(broker: Broker) -> None:
    log = broker.log
    log.prepare_compaction()
    log.flush(NOW)
    cleanable = log.cleanable(None, log.log_end_offset, NOW)
    compaction = log.begin_compaction(cleanable, now_ms=NOW, dedupe_buffer_bytes=1 << 20)
    assert compaction is not None
    result = compact(compaction.job, broker.disk)
    assert compaction.end(result, NOW)


def test_startup_resumes_a_move(broker: Broker) -> None:
    broker.append(b"1")
    future = broker.begin()
    broker.copy(future)
    report = broker.kill()
    assert [(move.topic, move.partition, move.directory.path) for move in broker.manager.interrupted_moves] == [
        ("t", 0, "/b")
    ]
    assert report.failed == []
    assert broker.log.directory == "/a/t-0"


def test_a_complete_copy_becomes_the_log_when_the_log_is_missing(broker: Broker) -> None:
    broker.append(b"1")
    future = broker.begin()
    broker.copy(future)
    broker.commit(future.directory)
    broker.disk.rename("/a/t-0", f"/a/t-0.{'0' * 32}-delete")
    report = broker.kill()
    assert report.repairs[0] == "completed the move of t-0 to /b"
    assert broker.log.directory == "/b/t-0"
    assert broker.values() == [b"1"]


def test_a_copy_that_is_not_known_to_be_complete_is_ignored(broker: Broker) -> None:
    broker.append(b"1")
    future = broker.begin()
    path = future.path
    broker.disk.rename("/a/t-0", f"/a/t-0.{'0' * 32}-delete")
    report = broker.kill()
    assert path in report.ignored
    assert broker.manager.get("t", 0) is None
    assert broker.disk.exists(path)


def test_of_two_directories_of_a_partition_the_metadata_name_one(broker: Broker) -> None:
    broker.append(b"1")
    broker.disk.make_directory("/b/t-0")
    broker.disk.replace_file("/b/t-0/partition.metadata", encode_partition_metadata(b"\1" * 16), sync=True)
    broker.home = b"\7" * 16
    with pytest.raises(LogDirectoryError, match="is both in /b/t-0 and in /a/t-0"):
        broker.kill()
    broker.home = broker.manager.directories[0].directory_id
    report = broker.kill()
    assert broker.log.directory == "/a/t-0"
    (stray,) = report.strays
    assert stray.startswith("/b/t-0.")
    assert stray.endswith("-stray")


def test_a_copy_of_a_deleted_topic_is_removed(broker: Broker) -> None:
    broker.append(b"1")
    future = broker.begin()
    broker.manager.delete("t", 0)
    assert not broker.manager.futures
    assert not broker.disk.exists(future.path)
    trash = broker.manager.take_trash()
    assert len([path for path in trash if path.endswith("-delete")]) == 2


def test_the_lag_decreases_with_the_copied_bytes(broker: Broker) -> None:
    """Not in complete segments: copying a segment of a gigabyte takes long."""
    broker.append(*(b"%03d" % number for number in range(100)))
    broker.log.roll(NOW)
    broker.append(*(b"%03d" % number for number in range(100, 150)))
    future = broker.begin()
    lags = [future.lag]
    while (step := future.begin_copy(500)) is not None:
        step.run()
        future.end_copy(step)
        lags.append(future.lag)
    assert lags == sorted(lags, reverse=True)
    assert (lags[0], lags[-1]) == (150, 0)
    assert len(set(lags)) > 15
    assert all(lag > 50 for lag in lags[: lags.index(50)])
    broker.append(b"more")
    assert future.lag == 1

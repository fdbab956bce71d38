"""The result of loading for each kind of directory, without a manager."""

from __future__ import annotations

import errno
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from moldau.log.broker_loading import InterruptedMove, LoadedLogs, UncleanLog, load_logs
from moldau.log.checkpoints import (
    CLEANER_OFFSET_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    encode_offsets,
    encode_partition_metadata,
)
from moldau.log.config import LogConfig
from moldau.log.descriptors import DescriptorCache
from moldau.log.directory import LogDirectory, LogDirectoryError
from moldau.log.memory_files import MemoryFileSystem

from .conftest import NOW, Partition, make_batch

CONFIG = LogConfig(segment_bytes=1_000)
TOPIC_ID = b"\1" * 16
UNIQUE = "0123456789abcdef" * 2


class Disks:
    """Two log directories as an earlier process left them."""

    def __init__(self, *, clean: bool = True) -> None:
        self.file_system: Any = MemoryFileSystem()
        self.directories = [LogDirectory(self.file_system, path) for path in ("/a", "/b")]
        for directory in self.directories:
            directory.open(1)
            directory.adopt("cluster", 1)
            if clean:
                directory.mark_clean(-1)

    def write(self, path: str, *values: bytes, topic_id: bytes = TOPIC_ID) -> None:
        """A partition's directory with one batch for each value."""
        partition = Partition(self.file_system, path)
        partition.log.set_topic_id(topic_id)
        partition.append_values(*values)
        partition.log.close(NOW)

    def write_file(self, path: str, data: bytes = b"") -> None:
        self.file_system.replace_file(path, data, sync=True)

    def load(self, **arguments: Any) -> LoadedLogs:
        usual: dict[str, Any] = {
            "now_ms": NOW,
            "config_of": lambda topic: CONFIG,
            "is_stray": None,
            "directory_id_of": lambda topic, partition: None,
            "compacted_anywhere": False,
            "progress": None,
        }
        return load_logs(DescriptorCache(self.file_system, 64), self.directories, **usual | arguments)


@pytest.fixture
def disks() -> Disks:
    return Disks()


def test_empty_directories_return_an_empty_result(disks: Disks) -> None:
    loaded = disks.load()
    assert vars(loaded.report) == {
        "loaded": 0,
        "recovered_directories": [],
        "repairs": [],
        "strays": [],
        "failed": [],
        "ignored": [],
        "foreign": [],
        "links": [],
    }
    rest = vars(loaded)
    del rest["report"]
    assert not any(rest.values())


def test_logs_are_returned_with_their_directories(disks: Disks) -> None:
    disks.write("/a/t-0", b"a")
    disks.write("/b/t-1", b"b", b"c")
    loaded = disks.load()
    found = {key: (log.log_end_offset, directory.path) for key, (log, directory) in loaded.logs.items()}
    assert found == {("t", 0): (1, "/a"), ("t", 1): (2, "/b")}
    assert loaded.report.loaded == 2
    assert [directory.partitions for directory in disks.directories] == [0, 0], "the caller counts what it adopts"


def test_checkpoints_are_returned_and_applied(disks: Disks) -> None:
    disks.write("/a/t-0", b"a", b"b", b"c")
    disks.write_file(f"/a/{LOG_START_OFFSET_CHECKPOINT}", encode_offsets({("t", 0): 1, ("removed", 3): 7}))
    disks.write_file(f"/a/{HIGH_WATERMARK_CHECKPOINT}", encode_offsets({("t", 0): 2}))
    disks.write_file(f"/a/{CLEANER_OFFSET_CHECKPOINT}", encode_offsets({("t", 0): 3, ("removed", 4): 8}))
    loaded = disks.load()
    assert loaded.logs["t", 0][0].log_start_offset == 1
    assert loaded.high_watermarks == {("t", 0): 2}
    assert loaded.clean_offsets == {("t", 0): 3}
    assert loaded.in_checkpoints == {("t", 0), ("removed", 3), ("removed", 4)}


def test_a_damaged_checkpoint_is_a_repair(disks: Disks) -> None:
    disks.write_file(f"/a/{HIGH_WATERMARK_CHECKPOINT}", b"damaged")
    assert len(disks.load().report.repairs) == 1


class Progress:
    """Records the reports of loading."""

    def __init__(self) -> None:
        self.unclean: dict[str, Sequence[UncleanLog]] = {}
        self.order: list[str] = []

    def begin(self, unclean: Mapping[str, Sequence[UncleanLog]]) -> None:
        self.unclean = dict(unclean)

    def next(self, path: str) -> None:
        self.order.append(path)


def test_unclean_directories_are_recovered_alternately() -> None:
    disks = Disks(clean=False)
    for path in ("/a/t-0", "/a/t-1", "/b/t-2", "/b/t-3"):
        disks.write(path, b"a", b"b")
    disks.write_file(f"/a/{RECOVERY_POINT_CHECKPOINT}", encode_offsets({("t", 1): 2}))
    file = disks.file_system.open("/b/t-3/00000000000000000000.log")
    file.truncate(file.size() - 1)
    file.close()
    progress = Progress()
    loaded = disks.load(progress=progress)
    assert progress.unclean == {
        "/a": [UncleanLog("/a/t-0", 0), UncleanLog("/a/t-1", 2)],
        "/b": [UncleanLog("/b/t-2", 0), UncleanLog("/b/t-3", 0)],
    }
    assert progress.order == ["/a", "/b", "/a", "/b"]
    assert loaded.report.recovered_directories == ["/a", "/b"]
    assert len(loaded.report.repairs) == 1
    assert loaded.logs["t", 3][0].log_end_offset == 1


def test_strays_are_renamed_by_name_and_by_topic_id(disks: Disks) -> None:
    disks.write("/a/unknown-0", b"a")
    disks.write("/a/t-0", b"a", topic_id=b"\2" * 16)
    disks.write("/a/t-1", b"a")

    def is_stray(topic: str, partition: int, topic_id: bytes | None) -> bool:
        return topic != "t" or topic_id not in (None, TOPIC_ID)

    loaded = disks.load(is_stray=is_stray)
    assert list(loaded.logs) == [("t", 1)]
    assert [path.split(".")[0] for path in loaded.report.strays] == ["/a/unknown-0", "/a/t-0"]
    assert all(path.endswith("-stray") and disks.file_system.exists(path) for path in loaded.report.strays)
    assert disks.load(is_stray=is_stray).report.ignored == sorted(loaded.report.strays)


def test_a_stray_with_other_files_is_only_reported(disks: Disks) -> None:
    disks.file_system.make_directory("/a/backup-2024")
    disks.write_file("/a/backup-2024/letter.txt")
    loaded = disks.load(is_stray=lambda topic, partition, topic_id: True)
    assert loaded.report.foreign == ["/a/backup-2024 (it holds letter.txt, which is not a file of a partition)"]
    assert not loaded.unloadable
    assert disks.file_system.exists("/a/backup-2024/letter.txt")


def test_directories_without_a_partitions_name_are_ignored(disks: Disks) -> None:
    for name in ("lost+found", "t-007", f"t-0.{UNIQUE}-stray"):
        disks.file_system.make_directory(f"/a/{name}")
    disks.file_system.make_directory("/a/__cluster_metadata-0")
    assert disks.load().report.ignored == ["/a/lost+found", f"/a/t-0.{UNIQUE}-stray", "/a/t-007"]


def test_deleted_directories_and_removed_segments_are_trash() -> None:
    disks = Disks(clean=False)
    disks.write(f"/a/gone-0.{UNIQUE}-delete", b"a")
    disks.write("/a/t-0", b"a")
    disks.write_file(f"/a/{LOG_START_OFFSET_CHECKPOINT}", encode_offsets({("t", 0): 9}))
    loaded = disks.load()
    assert loaded.trash[0] == f"/a/gone-0.{UNIQUE}-delete"
    assert "/a/t-0/00000000000000000000.log.deleted" in loaded.trash


def test_a_partition_that_cannot_be_opened_is_returned_with_the_reason(disks: Disks) -> None:
    disks.write("/a/t-0", b"a")
    disks.write("/a/t-1", b"a")
    disks.write_file("/a/t-0/partition.metadata", b"damaged")
    loaded = disks.load()
    assert list(loaded.logs) == [("t", 1)]
    assert list(loaded.unloadable) == [("t", 0)]
    assert loaded.report.failed == [f"/a/t-0: {loaded.unloadable['t', 0]}"]


def test_a_file_with_a_partitions_name_is_returned_with_the_reason(disks: Disks) -> None:
    disks.write_file("/a/t-0")
    loaded = disks.load()
    assert loaded.unloadable == {("t", 0): "/a/t-0: it is a file, but a partition's directory is expected here"}
    assert loaded.report.failed == list(loaded.unloadable.values())


@pytest.mark.parametrize("replica", [0, 1])
def test_of_two_copies_the_metadata_selects_one(disks: Disks, replica: int) -> None:
    disks.write("/a/t-0", b"a")
    disks.write("/b/t-0", b"a", b"b")
    home = disks.directories[replica]
    loaded = disks.load(directory_id_of=lambda topic, partition: home.directory_id)
    assert loaded.logs["t", 0][1] is home
    assert [path[:2] for path in loaded.report.strays] == ["/b" if replica == 0 else "/a"]


def test_two_copies_that_the_metadata_does_not_decide_are_an_error(disks: Disks) -> None:
    disks.write("/a/t-0", b"a")
    disks.write("/b/t-0", b"a")
    with pytest.raises(LogDirectoryError, match="t-0 is both in /b/t-0 and in /a/t-0"):
        disks.load()


def test_an_interrupted_move_is_returned_if_the_log_exists(disks: Disks) -> None:
    disks.write("/a/t-0", b"a")
    disks.write(f"/b/t-0.{UNIQUE}-future", b"a")
    loaded = disks.load()
    assert loaded.interrupted_moves == [InterruptedMove("t", 0, disks.directories[1], f"/b/t-0.{UNIQUE}-future")]


def test_a_future_directory_next_to_its_log_is_trash(disks: Disks) -> None:
    disks.write("/a/t-0", b"a")
    disks.write(f"/a/t-0.{UNIQUE}-future", b"a")
    loaded = disks.load()
    (path,) = loaded.trash
    assert path.startswith("/a/t-0.")
    assert path.endswith("-delete")
    assert disks.file_system.exists(path)


def test_a_move_that_had_reached_the_swap_is_completed(disks: Disks) -> None:
    disks.write(f"/b/t-0.{UNIQUE}-future", b"a", b"b")
    home = disks.directories[1]
    loaded = disks.load(directory_id_of=lambda topic, partition: home.directory_id)
    log, directory = loaded.logs["t", 0]
    assert (log.directory, log.log_end_offset, directory) == ("/b/t-0", 2, home)
    assert loaded.report.repairs == ["completed the move of t-0 to /b"]


def test_a_future_directory_without_a_log_is_ignored_if_the_replica_is_elsewhere(disks: Disks) -> None:
    disks.write(f"/b/t-0.{UNIQUE}-future", b"a")
    assert disks.load().report.ignored == [f"/b/t-0.{UNIQUE}-future"]


def test_a_directory_that_fails_is_offline_with_its_logs(disks: Disks, monkeypatch: pytest.MonkeyPatch) -> None:
    disks.write("/a/t-0", b"a")
    disks.write("/a/t-1", b"a")
    disks.write("/b/t-2", b"a")
    link_target = disks.file_system.link_target

    def failing(path: str) -> str | None:
        if path == "/a/t-1":
            raise OSError(errno.EIO, "the device failed")
        target: str | None = link_target(path)
        return target

    monkeypatch.setattr(disks.file_system, "link_target", failing)
    loaded = disks.load()
    assert [(directory.path, error.errno) for directory, error in loaded.failures] == [("/a", errno.EIO)]
    assert loaded.report.failed == ["/a: the device failed"]
    assert [directory.online for directory in disks.directories] == [False, True]
    assert {key: log.offline for key, (log, _directory) in loaded.logs.items()} == {
        ("t", 0): "the device failed",
        ("t", 2): None,
    }


def test_a_directory_that_was_offline_before_is_reported(disks: Disks) -> None:
    disks.directories[0].online = False
    disks.directories[0].failure = "/a cannot be used"
    loaded = disks.load()
    assert loaded.report.failed == ["/a cannot be used"]
    assert not loaded.failures


@pytest.mark.parametrize(
    ("clean_offsets", "compacted_anywhere", "kept"), [({}, False, 1), ({("t", 0): 5}, False, 6), ({}, True, 6)]
)
def test_a_gap_is_lost_records_unless_compaction_may_have_left_it(
    clean_offsets: dict[tuple[str, int], int], compacted_anywhere: bool, kept: int
) -> None:
    disks = Disks(clean=False)
    partition = Partition(disks.file_system, "/a/t-0")
    partition.append(make_batch(b"a"))
    partition.log.truncate_fully_and_start_at(5, NOW)
    partition.append(make_batch(b"b"))
    partition.log.close(NOW)
    disks.write("/b/t-0", b"a")
    for suffix in (".log", ".index", ".timeindex"):
        name = f"{0:020d}{suffix}"
        disks.write_file(f"/a/t-0/{name}", disks.file_system.read_file(f"/b/t-0/{name}"))
    disks.write_file(f"/a/{CLEANER_OFFSET_CHECKPOINT}", encode_offsets(clean_offsets))
    disks.directories.pop()
    config = LogConfig(cleanup_policy=("compact",))
    loaded = disks.load(config_of=lambda topic: config, compacted_anywhere=compacted_anywhere)
    assert loaded.logs["t", 0][0].log_end_offset == kept


def test_a_directory_without_a_topic_id_and_with_other_files_is_not_a_partition(disks: Disks) -> None:
    disks.file_system.make_directory("/a/t-0")
    disks.write_file("/a/t-0/letter.txt")
    loaded = disks.load()
    assert not loaded.logs
    assert "/a/t-0 blocks the partition" in loaded.unloadable["t", 0]
    assert loaded.report.failed == [loaded.unloadable["t", 0]]


def test_a_topic_id_is_read_from_the_directory(disks: Disks) -> None:
    disks.file_system.make_directory("/a/t-0")
    disks.write_file("/a/t-0/partition.metadata", encode_partition_metadata(TOPIC_ID))
    assert disks.load().logs["t", 0][0].topic_id == TOPIC_ID

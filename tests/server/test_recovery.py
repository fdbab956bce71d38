"""Recovery at startup: read-ahead from all log directories, and progress messages."""

from __future__ import annotations

import errno
import logging
from typing import Any

import pytest

from moldau.log.broker_loading import UncleanLog
from moldau.log.config import LogConfig
from moldau.log.manager import LogManager
from moldau.log.memory_files import MemoryFileSystem
from moldau.protocol.records import Record, build_batch
from moldau.server.storage.recovery import REPORT_SECONDS, WARM_LOGS, Recovery
from moldau.testing.waiting import wait_until

NOW = 1_700_000_000_000
CONFIG = LogConfig()
BATCH = build_batch([Record(0, NOW, None, b"value")])


def crashed(partitions: int = 8, directories: Any = ("/a", "/b")) -> Any:
    """A disk as `kill -9` leaves it, with the same number of partitions in each directory."""
    disk = MemoryFileSystem()
    manager = LogManager(directories, node_id=1, file_system=disk)
    manager.open()
    manager.load(now_ms=NOW, config_of=lambda topic: CONFIG)
    for partition in range(partitions * len(directories)):
        log = manager.get_or_create("t", b"\1" * 16, partition, CONFIG, now_ms=NOW)
        log.append(BATCH, now_ms=NOW, leader_epoch=0)
    return disk.crash()


def unclean(disk: MemoryFileSystem, *directories: Any) -> dict[Any, Any]:
    return {
        directory: [UncleanLog(f"{directory}/{name}", 0) for name in sorted(disk.list_directory(directory)[1])]
        for directory in directories
    }


def logs_read(disk: MemoryFileSystem, directory: Any) -> list[Any]:
    return sorted({path.rpartition("/")[0] for path, _, _ in list(disk.read_aheads) if path.startswith(directory)})


def test_the_next_logs_of_each_directory_are_read_ahead_and_no_more() -> None:
    disk = crashed()
    logs = unclean(disk, "/a", "/b")
    recovery = Recovery(disk, 2)
    recovery.begin(logs)
    try:
        for begun in range(4):
            for directory in logs:
                ahead = [log.path for log in logs[directory][: begun + 2]]
                wait_until(lambda directory=directory, ahead=ahead: logs_read(disk, directory) == ahead)  # type: ignore[misc]
            for directory in logs:
                recovery.next(directory)
    finally:
        recovery.close()
    assert len(logs_read(disk, "/a")) < 8


def test_threads_exit_if_all_data_is_in_memory() -> None:
    disk = crashed(partitions=3 * WARM_LOGS)
    recovery = Recovery(disk, 1)
    logs = unclean(disk, "/a", "/b")
    recovery.begin(logs)
    for _ in range(3 * WARM_LOGS):
        recovery.next("/a")
    wait_until(lambda: sum(thread.is_alive() for thread in recovery._threads) <= 1)
    assert len(logs_read(disk, "/a")) <= WARM_LOGS
    recovery.close()


def test_a_single_directory_is_not_read_ahead() -> None:
    disk = crashed(directories=("/a",))
    recovery = Recovery(disk, 2)
    recovery.begin(unclean(disk, "/a"))
    recovery.close()
    assert disk.read_aheads == []


def test_the_number_of_remaining_partitions_is_logged_periodically(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    disk = crashed(partitions=4)
    recovery = Recovery(disk, 1, clock=lambda: now[0])
    with caplog.at_level(logging.INFO):
        recovery.begin(unclean(disk, "/a", "/b"))
        assert [record.getMessage() for record in caplog.records] == [
            "/a was not shut down cleanly: recovering 4 partitions",
            "/b was not shut down cleanly: recovering 4 partitions",
        ]
        caplog.clear()
        recovery.next("/a")
        recovery.next("/b")
        assert not caplog.records
        now[0] += REPORT_SECONDS
        recovery.next("/a")
        recovery.next("/b")
        assert [record.getMessage() for record in caplog.records] == [
            "Recovering: /a has 3 of 4 partitions left, /b has 4 of 4 partitions left"
        ]
    recovery.close()


@pytest.mark.parametrize("path", ["/b/t-1/", "/b/recovery-point"])
def test_a_directory_that_fails_during_recovery_does_not_affect_others(path: str) -> None:
    disk = crashed()
    in_a = len(disk.list_directory("/a")[1])
    disk.fail_with = lambda operation, found: errno.EIO if found.startswith(path) and operation == "open" else None
    manager = LogManager(["/a", "/b"], node_id=1, file_system=disk)
    manager.open()
    # Without a checkpoint file, recovery does not open it, so create one.
    disk.fail_with, failing = None, disk.fail_with
    disk.replace_file("/b/recovery-point-offset-checkpoint", b"0\n0\n", sync=True)
    disk.fail_with = failing
    recovery = Recovery(disk, 2)
    try:
        report = manager.load(now_ms=NOW, config_of=lambda topic: CONFIG, progress=recovery)
    finally:
        recovery.close()
    assert [directory.online for directory in manager.directories] == [True, False]
    assert any(text.startswith("/b: ") for text in report.failed)
    assert sum(log.offline is None for log in manager.logs()) == in_a
    assert report.recovered_directories == ["/a"]

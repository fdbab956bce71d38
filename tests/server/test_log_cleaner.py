"""The order of compaction, and errors during passes, with files in memory and a worker that tests can block."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import random
import sys
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from moldau.config.broker_config import BrokerConfig, StaticValue
from moldau.log.compaction.compact import compact
from moldau.log.compaction.job import CompactionJob, CompactionResult, CorruptSegmentError, Replacement
from moldau.log.config import LogConfig
from moldau.log.manager import LogManager
from moldau.log.memory_files import MemoryFileSystem
from moldau.log.partition_log import Log
from moldau.protocol.records import Record, build_batch, iter_records
from moldau.server.concurrency.background import Background
from moldau.server.upkeep.compaction_process import WorkerError, WorkerNotStartedError, WorkerProcess
from moldau.server.upkeep.log_cleaner import CleanerSettings, LogChangedError, LogCleaner
from moldau.testing.waiting import WAIT_SECONDS, wait_until_async

NOW = 1_700_000_000_000


class HeldWorker:
    """A worker that waits for a signal from the test before each job. The test can make the job fail."""

    def __init__(self, cleaning: Cleaning) -> None:
        self._cleaning = cleaning
        self._job: asyncio.Future[Exception | None] | None = None

    async def compact(self, job: CompactionJob, on_replacement: Callable[[Replacement], None], /) -> CompactionResult:
        self._job = asyncio.get_running_loop().create_future()
        await self._cleaning.jobs.put((job, self._job))
        failure = await self._job
        if failure is not None:
            raise failure
        return compact(job, self._cleaning.file_system, on_replacement=on_replacement)

    def kill(self) -> None:
        if self._job is not None and not self._job.done():
            self._job.set_result(WorkerError("the process ended with -9"))

    async def close(self) -> None:
        self._cleaning.closed_workers += 1


class Cleaning:
    """A log manager with a cleaner, without the rest of a server."""

    def __init__(self, *, workers: int = 1, backoff_ms: int = 1, journalled: bool = True) -> None:
        self.file_system = MemoryFileSystem(journalled=journalled)
        self.manager = self.open_manager()
        self.settings = CleanerSettings(workers=workers, backoff_ms=backoff_ms)
        self.now_ms = NOW
        self.jobs: asyncio.Queue[tuple[CompactionJob, asyncio.Future[Exception | None]]] = asyncio.Queue()
        self.closed_workers = 0
        self.swaps = 0
        self.unstable: dict[str, int] = {}
        self.cleaner = LogCleaner(
            asyncio.get_running_loop(),
            Background(asyncio.get_running_loop()).executor(1),  # type: ignore[arg-type]
            self.manager,
            lambda: self.now_ms,
            self.settings,
            last_stable_offset=self.last_stable_offset,
            flush=self.flush,
            write_checkpoints=self.write_checkpoints,
            swapped=self.swapped,
            make_worker=lambda: HeldWorker(self),
        )

    def open_manager(self) -> LogManager:
        manager = LogManager(["/data"], node_id=1, file_system=self.file_system)
        manager.open()
        manager.load(now_ms=NOW, config_of=lambda topic: LogConfig(cleanup_policy=("compact",)))
        return manager

    def last_stable_offset(self, topic: str, partition: int) -> int | None:
        log = self.manager.get(topic, partition)
        return None if log is None else self.unstable.get(topic, log.log_end_offset)

    async def flush(self, log: Log) -> None:
        log.flush(self.now_ms)

    async def write_checkpoints(self) -> None:
        self.manager.flush_checkpoints()

    def swapped(self) -> None:
        self.swaps += 1

    def topic(self, name: str, segments: int, **settings: object) -> Log:
        """A compacted topic. Each segment has two records with the same key; only the active segment is empty."""
        config = LogConfig(**{"cleanup_policy": ("compact",), **settings})  # type: ignore[arg-type]
        log = self.manager.get_or_create(name, os.urandom(16), 0, config, now_ms=NOW)
        self.write(log, segments)
        return log

    def write(self, log: Log, segments: int) -> None:
        for _ in range(segments):
            for _ in range(2):
                value = b"%d" % log.log_end_offset
                log.append(build_batch([Record(0, self.now_ms, b"key", value)]), now_ms=self.now_ms, leader_epoch=0)
            log.roll(self.now_ms)

    async def next_job(self) -> tuple[CompactionJob, asyncio.Future[Exception | None]]:
        async with asyncio.timeout(WAIT_SECONDS):
            return await self.jobs.get()

    async def complete_next(self, failure: Exception | None = None) -> CompactionJob:
        """Complete the next job, or make it fail."""
        job, future = await self.next_job()
        future.set_result(failure)
        return job

    async def until(self, condition: Callable[[], bool]) -> None:
        await wait_until_async(condition, pause=0.001)

    async def clean(self, name: str, offset: int) -> None:
        await self.until(lambda: self.manager.clean_offsets.get((name, 0)) == offset)


def values(log: Log) -> list[bytes | None]:
    return [record.value for batch in log.batches(0) for record in iter_records(batch)]


def run(story: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(story(), 3 * WAIT_SECONDS))


def test_a_dirty_log_is_compacted_and_its_checkpoint_is_written() -> None:
    async def story() -> None:
        cleaning = Cleaning()
        log = cleaning.topic("t", 3)
        await cleaning.complete_next()
        await cleaning.clean("t", 6)
        assert values(log) == [b"5"]
        await cleaning.until(lambda: cleaning.file_system.exists("/data/cleaner-offset-checkpoint"))
        await cleaning.cleaner.close()
        assert cleaning.file_system.read_file("/data/cleaner-offset-checkpoint") == b"0\n1\nt 0 6\n"
        assert cleaning.swaps
        cleaning.manager.close(now_ms=NOW)
        assert cleaning.open_manager().clean_offsets == {("t", 0): 6}

    run(story)


def test_the_log_with_the_highest_dirty_ratio_is_compacted_first() -> None:
    async def story() -> None:
        cleaning = Cleaning(backoff_ms=10)
        cleaning.topic("half", 2)
        cleaning.manager.clean_offsets["half", 0] = 2
        cleaning.topic("all", 2)
        cleaning.topic("most", 4)
        cleaning.manager.clean_offsets["most", 0] = 2
        assert [(await cleaning.complete_next()).topic for _ in range(2)] == ["all", "most"]
        await cleaning.cleaner.close()
        assert cleaning.jobs.empty(), "half of it is not more than min.cleanable.dirty.ratio"

    run(story)


def test_an_overdue_log_is_compacted_before_a_dirtier_one() -> None:
    async def story() -> None:
        cleaning = Cleaning(backoff_ms=10)
        cleaning.topic("filthy", 4)
        cleaning.topic("overdue", 4, max_compaction_lag_ms=1000)
        cleaning.manager.clean_offsets["overdue", 0] = 6
        cleaning.now_ms += 2000
        assert [(await cleaning.complete_next()).topic for _ in range(2)] == ["overdue", "filthy"]
        await cleaning.cleaner.close()

    run(story)


def test_topics_without_compaction_or_stable_records_are_not_cleaned() -> None:
    async def story() -> None:
        cleaning = Cleaning(backoff_ms=10)
        cleaning.topic("plain", 3, cleanup_policy=("delete",))
        cleaning.topic("unstable", 3)
        cleaning.unstable["unstable"] = 0
        cleaning.topic("both", 3, cleanup_policy=("compact", "delete"))
        assert (await cleaning.complete_next()).topic == "both"
        await cleaning.clean("both", 6)
        assert cleaning.jobs.empty()
        del cleaning.unstable["unstable"]
        assert (await cleaning.complete_next()).topic == "unstable"
        await cleaning.cleaner.close()

    run(story)


def test_several_workers_compact_several_logs_in_parallel() -> None:
    async def story() -> None:
        cleaning = Cleaning(workers=2, backoff_ms=5)
        for name in ("a", "b", "c"):
            cleaning.topic(name, 2)
        first, second = await cleaning.next_job(), await cleaning.next_job()
        assert first[0].topic != second[0].topic
        assert cleaning.jobs.empty()
        first[1].set_result(None)
        third = await cleaning.next_job()
        assert {first[0].topic, second[0].topic, third[0].topic} == {"a", "b", "c"}
        second[1].set_result(None)
        third[1].set_result(None)
        for name in ("a", "b", "c"):
            await cleaning.clean(name, 4)
        await cleaning.cleaner.close()

    run(story)


def test_a_partition_with_a_corrupt_segment_is_uncleanable_and_the_segment_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story() -> None:
        cleaning = Cleaning()
        bad = cleaning.topic("bad", 3)
        await cleaning.complete_next(CorruptSegmentError(bad.segments[0].path, 70, 1, "its CRC is wrong"))
        await cleaning.until(lambda: ("bad", 0) in cleaning.cleaner.uncleanable)
        assert "Compaction of bad-0 failed; it is not compacted until the server restarts" in caplog.text
        assert bad.segments[0].path in caplog.text
        assert "position 70" in caplog.text
        cleaning.topic("good", 2)
        assert (await cleaning.complete_next()).topic == "good"
        await cleaning.clean("good", 4)
        assert len(values(bad)) == 6
        await cleaning.cleaner.close()

    run(story)


@pytest.mark.parametrize(
    "failure",
    [WorkerError("the process ended with -9"), OSError(errno.ENOSPC, "No space left on device")],
    ids=["died", "full"],
)
def test_a_failed_pass_is_retried(failure: Exception, caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        cleaning = Cleaning()
        log = cleaning.topic("t", 3)
        for _ in range(2):
            await cleaning.complete_next(failure)
        await cleaning.complete_next()
        await cleaning.clean("t", 6)
        assert values(log) == [b"5"]
        assert caplog.text.count("Compaction of t-0 failed and is retried") == 1  # but not for each retry
        await cleaning.cleaner.close()

    run(story)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, 120_795_955),
        ({"log.cleaner.threads": "2"}, 60_397_977),
        ({"log.cleaner.dedupe.buffer.size": "-1"}, 1 << 20),
        ({"log.cleaner.dedupe.buffer.size": "2000000", "log.cleaner.threads": "8"}, 1 << 20),
        ({"log.cleaner.io.buffer.load.factor": "-3"}, 1 << 20),
        ({"log.cleaner.io.buffer.load.factor": "7"}, 134_217_728),
    ],
)
def test_the_map_of_keys_has_a_minimum_size(given: dict[str, str], expected: int) -> None:
    """These settings can be changed to any number while the server runs. Passes must still end."""
    config = BrokerConfig({name: StaticValue(value, "--set") for name, value in given.items()})
    assert CleanerSettings.of(config).dedupe_buffer_bytes == expected


def test_a_pause_cancels_a_pass_before_its_worker_starts(caplog: pytest.LogCaptureFixture) -> None:
    """The caller of the pause does not wait for the whole pass."""

    async def story() -> None:
        cleaning = Cleaning()
        flushing, proceed = asyncio.Event(), asyncio.Event()

        async def slow_flush(log: Log) -> None:
            flushing.set()
            await proceed.wait()
            log.flush(cleaning.now_ms)

        cleaning.cleaner._flush = slow_flush
        log = cleaning.topic("t", 3)
        async with asyncio.timeout(WAIT_SECONDS):
            await flushing.wait()
            pausing = asyncio.create_task(cleaning.cleaner.pause("t", 0))
            await asyncio.sleep(0)
            proceed.set()
            await pausing
        assert cleaning.jobs.empty()
        assert len(values(log)) == 6
        await cleaning.cleaner.resume("t", 0)
        await cleaning.complete_next()
        await cleaning.clean("t", 6)
        assert caplog.text == ""
        await cleaning.cleaner.close()

    run(story)


def test_the_logged_sizes_of_a_pass_exclude_later_appends(caplog: pytest.LogCaptureFixture) -> None:
    """The log grows during the pass, and the growth is not a result of compaction."""

    async def story() -> None:
        cleaning = Cleaning()
        log = cleaning.topic("t", 3)
        before = log.size
        _, future = await cleaning.next_job()
        cleaning.write(log, 2)
        added = log.size - before
        with caplog.at_level(logging.INFO):
            future.set_result(None)
            await cleaning.until(lambda: "Compacted t-0" in caplog.text)
        assert f"{before} to {log.size - added} bytes, 5 records removed, 1 kept" in caplog.text
        await cleaning.cleaner.close()

    run(story)


def test_a_partition_that_repeatedly_kills_workers_is_uncleanable() -> None:
    async def story() -> None:
        cleaning = Cleaning()
        log = cleaning.topic("t", 3)
        for _ in range(3):
            await cleaning.complete_next(WorkerError("the process ended with -9"))
        await cleaning.until(lambda: ("t", 0) in cleaning.cleaner.uncleanable)
        assert len(values(log)) == 6
        await cleaning.cleaner.close()

    run(story)


def test_a_broken_device_takes_its_directory_offline() -> None:
    async def story() -> None:
        cleaning = Cleaning()
        cleaning.topic("t", 3)
        failed: list[str] = []
        cleaning.manager.on_directory_failure = lambda directory, error, logs: failed.append(directory.path)
        await cleaning.complete_next(OSError(errno.EIO, "Input/output error"))
        await cleaning.until(lambda: failed == ["/data"])
        await cleaning.cleaner.close()

    run(story)


def test_a_power_failure_after_a_pass_may_lose_names_of_checkpoints() -> None:
    """A gap that compaction leaves must be before the recovery point at startup, or it is treated as data loss."""

    async def story() -> None:
        cleaning = Cleaning(journalled=False)
        log = cleaning.topic("t", 0, segment_bytes=150)
        cleaning.manager.flush_checkpoints()
        cleaning.file_system.commit_names()
        for keys in ((b"a", b"b"), (b"b", b"c"), (b"d", b"e")):
            for key in keys:
                log.append(build_batch([Record(0, NOW, key, key)]), now_ms=NOW, leader_epoch=0)
            log.roll(NOW)
        await cleaning.complete_next()
        await cleaning.clean("t", 6)
        await cleaning.cleaner.close()
        running = cleaning.file_system
        for seed in range(20):
            cleaning.file_system = running.crash(random.Random(seed))
            found = cleaning.open_manager().get("t", 0)
            assert found is not None
            assert values(found) == [b"a", b"b", b"c", b"d", b"e"]

    run(story)


@pytest.mark.parametrize("which", [1, 2])
def test_a_failed_sync_of_the_directory_is_not_retried(which: int) -> None:
    """This covers the sync before a pass and the one after it."""

    async def story() -> None:
        cleaning = Cleaning()
        cleaning.topic("t", 3)
        failed: list[str] = []
        cleaning.manager.on_directory_failure = lambda directory, error, logs: failed.append(directory.path)
        syncs: list[str] = []

        def broken(operation: str, path: str) -> int | None:
            if (
                operation == "sync"
                and path == "/data/t-0"
                and threading.current_thread() is not threading.main_thread()
            ):
                syncs.append(path)
                return errno.EIO if len(syncs) == which else None
            return None

        cleaning.file_system.fail_with = broken
        if which == 2:
            await cleaning.complete_next()
        await cleaning.until(lambda: failed == ["/data"])
        await cleaning.cleaner.close()
        assert len(syncs) == which

    run(story)


def test_a_process_that_cannot_be_started_does_not_take_the_directory_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        cleaning = Cleaning()
        log = cleaning.topic("t", 3)
        worker = WorkerProcess(durable=True)
        monkeypatch.setattr(sys, "executable", "/no/such/python")
        job, _ = await cleaning.next_job()
        with pytest.raises(WorkerNotStartedError, match="cannot start the process: No such file or directory"):
            await worker.compact(job, lambda replacement: None)
        worker_of_log = cleaning.cleaner._in_progress["t", 0]
        assert worker_of_log is not None
        worker_of_log.kill()
        for _ in range(5):
            await cleaning.complete_next(WorkerNotStartedError("made up by the test"))
        await cleaning.complete_next()
        await cleaning.clean("t", 6)
        assert log.offline is None
        assert not cleaning.cleaner.uncleanable
        await cleaning.cleaner.close()

    run(story)


def test_a_process_that_was_never_started_is_stopped_without_opening_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """The idle cleaner stops its process, even while no file descriptor is available to load a module."""
    monkeypatch.setitem(sys.modules, "moldau.server.concurrency.worker_pipe", None)  # importing it fails

    async def story() -> None:
        worker = WorkerProcess(durable=True)
        worker.kill()
        await worker.close()

    run(story)


def test_a_process_starts_in_a_directory_with_unrelated_modules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The working directory of the server does not affect the imports of the worker."""

    async def story() -> None:
        cleaning = Cleaning()
        cleaning.topic("t", 3)
        for name in ("queue", "pickle", "moldau"):
            (tmp_path / f"{name}.py").write_text("raise ImportError('not mine')")
        monkeypatch.chdir(tmp_path)
        worker = WorkerProcess(durable=False)
        job, _ = await cleaning.next_job()
        with pytest.raises(FileNotFoundError):  # the process works but has no access to the files in memory
            await worker.compact(job, lambda replacement: None)
        await worker.close()
        await cleaning.cleaner.close()

    run(story)


def test_deleting_a_topic_ends_its_pass_without_errors(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        cleaning = Cleaning()
        cleaning.topic("t", 3)
        await cleaning.complete_next()
        await cleaning.clean("t", 6)
        log = cleaning.manager.get("t", 0)
        assert log is not None
        cleaning.write(log, 3)
        await cleaning.next_job()
        cleaning.cleaner.forget("t", 0)
        cleaning.manager.delete("t", 0)
        path = "/data/cleaner-offset-checkpoint"
        await cleaning.until(lambda: cleaning.file_system.read_file(path) == b"0\n0\n")
        cleaning.topic("other", 2)
        assert (await cleaning.complete_next()).topic == "other"
        await cleaning.cleaner.close()
        assert not [record for record in caplog.records if record.levelname in ("WARNING", "ERROR")]

    run(story)


def test_a_log_that_is_truncated_during_a_pass_is_compacted_again() -> None:
    async def story() -> None:
        cleaning = Cleaning()
        log = cleaning.topic("t", 3)
        _job, future = await cleaning.next_job()
        log.truncate_to(3, NOW)
        cleaning.write(log, 2)
        future.set_result(None)
        await cleaning.complete_next()
        await cleaning.clean("t", log.log_end_offset)
        assert values(log) == [b"%d" % (log.log_end_offset - 1)]
        await cleaning.cleaner.close()

    run(story)


def test_truncating_a_log_below_its_checkpoint_moves_the_checkpoint() -> None:
    async def story() -> None:
        cleaning = Cleaning()
        log = cleaning.topic("t", 3)
        await cleaning.complete_next()
        await cleaning.clean("t", 6)
        await cleaning.cleaner.close()
        log.truncate_to(5, NOW)
        assert cleaning.manager.clean_offsets == {("t", 0): 5}
        assert cleaning.file_system.read_file("/data/cleaner-offset-checkpoint") == b"0\n1\nt 0 5\n"

    run(story)


def test_closing_cancels_a_running_pass_and_keeps_the_old_state() -> None:
    async def story() -> None:
        cleaning = Cleaning()
        log = cleaning.topic("t", 3)
        await cleaning.next_job()
        await cleaning.cleaner.close()
        assert cleaning.closed_workers == 1
        assert len(values(log)) == 6
        cleaning.manager.close(now_ms=NOW)
        assert not [name for name in cleaning.file_system.list_directory("/data/t-0")[0] if name.endswith(".cleaned")]

    run(story)


def test_an_idle_worker_is_closed() -> None:
    async def story() -> None:
        cleaning = Cleaning()
        cleaning.topic("t", 3)
        await cleaning.complete_next()
        await cleaning.clean("t", 6)
        await cleaning.until(lambda: cleaning.closed_workers > 0)
        await cleaning.cleaner.close()

    run(story)


def test_settings_take_effect_while_the_cleaner_runs() -> None:
    async def story() -> None:
        cleaning = Cleaning(workers=0)
        cleaning.topic("a", 3)
        cleaning.cleaner.update_settings(CleanerSettings(enabled=False, workers=1, backoff_ms=1))
        cleaning.cleaner.update_settings(CleanerSettings(workers=1, backoff_ms=1, dedupe_buffer_bytes=12_345_678))
        assert (await cleaning.complete_next()).dedupe_buffer_bytes == 12_345_678
        await cleaning.clean("a", 6)
        cleaning.cleaner.update_settings(CleanerSettings(workers=1, backoff_ms=3_600_000))
        cleaning.topic("b", 3)
        cleaning.cleaner.update_settings(CleanerSettings(workers=1, backoff_ms=2, io_bytes_per_second=1e6))
        assert (await cleaning.complete_next()).io_bytes_per_second == 1e6
        await cleaning.clean("b", 6)
        await cleaning.cleaner.close()

    run(story)


def test_compact_now_includes_all_records_at_any_dirty_ratio() -> None:
    async def story() -> None:
        cleaning = Cleaning(workers=0)
        log = cleaning.topic("t", 2, min_cleanable_dirty_ratio=1.0)
        log.append(build_batch([Record(0, NOW, b"key", b"last")]), now_ms=NOW, leader_epoch=0)
        requested = asyncio.ensure_future(cleaning.cleaner.compact_now([log]))
        await cleaning.complete_next()
        await requested
        assert values(log) == [b"last"]
        assert cleaning.manager.clean_offsets["t", 0] == 5
        await cleaning.cleaner.close()

    run(story)


def test_compact_now_waits_for_a_running_pass() -> None:
    async def story() -> None:
        cleaning = Cleaning()
        log = cleaning.topic("t", 2)
        _job, future = await cleaning.next_job()
        requested = asyncio.ensure_future(cleaning.cleaner.compact_now([log]))
        for _ in range(10):
            await asyncio.sleep(0)
        assert cleaning.jobs.empty()
        future.set_result(None)
        await cleaning.complete_next()
        await requested
        await cleaning.cleaner.close()

    run(story)


@pytest.mark.parametrize(
    ("failure", "raised"),
    [
        (CorruptSegmentError("/data/t-0/0.log", 0, 0, "torn"), CorruptSegmentError),
        (OSError(errno.ENOSPC, "full"), OSError),
        (LogChangedError("cut"), LogChangedError),
    ],
    ids=["corrupt", "full", "changed"],
)
def test_compact_now_raises_the_error_of_the_pass(failure: Exception, raised: type[Exception]) -> None:
    async def story() -> None:
        cleaning = Cleaning(workers=0)
        log = cleaning.topic("t", 2)
        requested = asyncio.ensure_future(cleaning.cleaner.compact_now([log]))
        await cleaning.complete_next(failure)
        with pytest.raises(raised):
            await requested
        assert len(values(log)) == 4
        requested = asyncio.ensure_future(cleaning.cleaner.compact_now([log]))
        await cleaning.complete_next()
        await requested
        assert len(values(log)) == 1
        await cleaning.cleaner.close()

    run(story)

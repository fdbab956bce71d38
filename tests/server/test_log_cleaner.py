"""Which log is compacted next, and what follows when a pass goes wrong: files in memory, a worker that tests hold."""

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
from moldau.server.background import Background
from moldau.server.compaction_process import WorkerError, WorkerNotStartedError, WorkerProcess
from moldau.server.log_cleaner import CleanerSettings, LogChangedError, LogCleaner

NOW = 1_700_000_000_000


class HeldWorker:
    """A worker that waits for a word before each job, and may be told to fail."""

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
    """A log manager with a cleaner, and nothing else of a server."""

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
            Background(asyncio.get_running_loop()).lane(1),
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
        """A compacted topic; each segment has two records of the same key, but the active one, which is empty."""
        config = LogConfig(**{"cleanup_policy": ("compact",), **settings})  # type: ignore[arg-type]
        log = self.manager.create(name, os.urandom(16), 0, config, now_ms=NOW)
        self.write(log, segments)
        return log

    def write(self, log: Log, segments: int) -> None:
        for _ in range(segments):
            for _ in range(2):
                value = b"%d" % log.log_end_offset
                log.append(build_batch([Record(0, self.now_ms, b"key", value)]), now_ms=self.now_ms, leader_epoch=0)
            log.roll(self.now_ms)

    async def next_job(self) -> tuple[CompactionJob, asyncio.Future[Exception | None]]:
        async with asyncio.timeout(30):
            return await self.jobs.get()

    async def let(self, failure: Exception | None = None) -> CompactionJob:
        """Let the next job be done, or fail."""
        job, future = await self.next_job()
        future.set_result(failure)
        return job

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(30):
            while not condition():  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.001)

    async def clean(self, name: str, offset: int) -> None:
        await self.until(lambda: self.manager.clean_offsets.get((name, 0)) == offset)


def values(log: Log) -> list[bytes | None]:
    return [record.value for batch in log.batches(0) for record in iter_records(batch)]


def run(story: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(story(), 60))  # type: ignore[arg-type]


def test_a_dirty_log_is_compacted_and_its_checkpoint_written() -> None:
    async def story() -> None:
        cleaning = Cleaning()
        log = cleaning.topic("t", 3)
        await cleaning.let()
        await cleaning.clean("t", 6)
        assert values(log) == [b"5"]
        await cleaning.until(lambda: cleaning.file_system.exists("/data/cleaner-offset-checkpoint"))
        await cleaning.cleaner.close()
        assert cleaning.file_system.read_file("/data/cleaner-offset-checkpoint") == b"0\n1\nt 0 6\n"
        assert cleaning.swaps
        cleaning.manager.close(now_ms=NOW)
        assert cleaning.open_manager().clean_offsets == {("t", 0): 6}

    run(story)


def test_the_filthiest_goes_first() -> None:
    async def story() -> None:
        cleaning = Cleaning(backoff_ms=10)
        cleaning.topic("half", 2)
        cleaning.manager.clean_offsets["half", 0] = 2
        cleaning.topic("all", 2)
        cleaning.topic("most", 4)
        cleaning.manager.clean_offsets["most", 0] = 2
        assert [(await cleaning.let()).topic for _ in range(2)] == ["all", "most"]
        await cleaning.cleaner.close()
        assert cleaning.jobs.empty(), "half of it is not more than min.cleanable.dirty.ratio"

    run(story)


def test_what_is_overdue_goes_before_what_is_filthy() -> None:
    async def story() -> None:
        cleaning = Cleaning(backoff_ms=10)
        cleaning.topic("filthy", 4)
        cleaning.topic("overdue", 4, max_compaction_lag_ms=1000)
        cleaning.manager.clean_offsets["overdue", 0] = 6
        cleaning.now_ms += 2000
        assert [(await cleaning.let()).topic for _ in range(2)] == ["overdue", "filthy"]
        await cleaning.cleaner.close()

    run(story)


def test_topics_that_are_not_compacted_or_not_stable_are_left_alone() -> None:
    async def story() -> None:
        cleaning = Cleaning(backoff_ms=10)
        cleaning.topic("plain", 3, cleanup_policy=("delete",))
        cleaning.topic("unstable", 3)
        cleaning.unstable["unstable"] = 0
        cleaning.topic("both", 3, cleanup_policy=("compact", "delete"))
        assert (await cleaning.let()).topic == "both"
        await cleaning.clean("both", 6)
        assert cleaning.jobs.empty()
        del cleaning.unstable["unstable"]
        assert (await cleaning.let()).topic == "unstable"
        await cleaning.cleaner.close()

    run(story)


def test_several_workers_compact_several_logs_at_once() -> None:
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


def test_a_corrupt_segment_sets_its_partition_aside_and_the_log_says_where(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        cleaning = Cleaning()
        bad = cleaning.topic("bad", 3)
        await cleaning.let(CorruptSegmentError(bad.segments[0].path, 70, 1, "its CRC is wrong"))
        await cleaning.until(lambda: ("bad", 0) in cleaning.cleaner.uncleanable)
        assert "bad-0 is not compacted any more until the next start" in caplog.text
        assert bad.segments[0].path in caplog.text
        assert "position 70" in caplog.text
        cleaning.topic("good", 2)
        assert (await cleaning.let()).topic == "good"
        await cleaning.clean("good", 4)
        assert len(values(bad)) == 6
        await cleaning.cleaner.close()

    run(story)


@pytest.mark.parametrize(
    "failure",
    [WorkerError("the process ended with -9"), OSError(errno.ENOSPC, "No space left on device")],
    ids=["died", "full"],
)
def test_a_pass_that_failed_is_tried_again(failure: Exception, caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        cleaning = Cleaning()
        log = cleaning.topic("t", 3)
        for _ in range(2):
            await cleaning.let(failure)
        await cleaning.let()
        await cleaning.clean("t", 6)
        assert values(log) == [b"5"]
        assert caplog.text.count("t-0 was not compacted, and will be tried again") == 1  # and not each time
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
def test_a_map_of_keys_is_never_so_small_that_passes_do_not_end(given: dict[str, str], expected: int) -> None:
    """These may be changed while the server runs, to any number."""
    config = BrokerConfig({name: StaticValue(value, "--set") for name, value in given.items()})
    assert CleanerSettings.of(config).dedupe_buffer_bytes == expected


def test_a_pause_ends_a_pass_that_has_not_come_to_its_worker_yet(caplog: pytest.LogCaptureFixture) -> None:
    """Whoever wants the log does not wait for the whole pass."""

    async def story() -> None:
        cleaning = Cleaning()
        flushing, go_on = asyncio.Event(), asyncio.Event()

        async def slow_flush(log: Log) -> None:
            flushing.set()
            await go_on.wait()
            log.flush(cleaning.now_ms)

        cleaning.cleaner._flush = slow_flush
        log = cleaning.topic("t", 3)
        async with asyncio.timeout(30):
            await flushing.wait()
            pausing = asyncio.create_task(cleaning.cleaner.pause("t", 0))
            await asyncio.sleep(0)
            go_on.set()
            await pausing
        assert cleaning.jobs.empty()
        assert len(values(log)) == 6
        await cleaning.cleaner.resume("t", 0)
        await cleaning.let()
        await cleaning.clean("t", 6)
        assert caplog.text == ""
        await cleaning.cleaner.close()

    run(story)


def test_what_a_pass_did_is_told_of_what_it_was_given(caplog: pytest.LogCaptureFixture) -> None:
    """The log grows meanwhile, which is not compaction's doing."""

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
        assert f"{before} bytes became {log.size - added}, 5 records were dropped and 1 kept" in caplog.text
        await cleaning.cleaner.close()

    run(story)


def test_a_partition_of_which_workers_die_again_and_again_is_set_aside() -> None:
    async def story() -> None:
        cleaning = Cleaning()
        log = cleaning.topic("t", 3)
        for _ in range(3):
            await cleaning.let(WorkerError("the process ended with -9"))
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
        await cleaning.let(OSError(errno.EIO, "Input/output error"))
        await cleaning.until(lambda: failed == ["/data"])
        await cleaning.cleaner.close()

    run(story)


def test_the_power_fails_after_a_pass_and_names_of_checkpoints_are_lost() -> None:
    """A gap that compaction left must lie before the recovery point that a start finds, or it is taken for a loss."""

    async def story() -> None:
        cleaning = Cleaning(journalled=False)
        log = cleaning.topic("t", 0, segment_bytes=150)
        cleaning.manager.flush_checkpoints()
        cleaning.file_system.commit_names()
        for keys in ((b"a", b"b"), (b"b", b"c"), (b"d", b"e")):
            for key in keys:
                log.append(build_batch([Record(0, NOW, key, key)]), now_ms=NOW, leader_epoch=0)
            log.roll(NOW)
        await cleaning.let()
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
def test_a_failed_sync_of_the_directory_is_not_tried_again(which: int) -> None:
    """The one before a pass, and the one after it."""

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
            await cleaning.let()
        await cleaning.until(lambda: failed == ["/data"])
        await cleaning.cleaner.close()
        assert len(syncs) == which

    run(story)


def test_a_process_that_cannot_be_started_is_no_broken_device(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        cleaning = Cleaning()
        log = cleaning.topic("t", 3)
        worker = WorkerProcess(durable=True)
        monkeypatch.setattr(sys, "executable", "/no/such/python")
        job, _ = await cleaning.next_job()
        with pytest.raises(WorkerNotStartedError, match="could not be started: No such file or directory"):
            await worker.compact(job, lambda replacement: None)
        cleaning.cleaner._in_progress["t", 0].kill()
        for _ in range(5):
            await cleaning.let(WorkerNotStartedError("made up by the test"))
        await cleaning.let()
        await cleaning.clean("t", 6)
        assert log.offline is None
        assert not cleaning.cleaner.uncleanable
        await cleaning.cleaner.close()

    run(story)


def test_a_process_is_started_in_a_directory_with_modules_of_other_people(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the server was started has nothing to say about what the worker imports."""

    async def story() -> None:
        cleaning = Cleaning()
        cleaning.topic("t", 3)
        for name in ("queue", "pickle", "moldau"):
            (tmp_path / f"{name}.py").write_text("raise ImportError('not mine')")
        monkeypatch.chdir(tmp_path)
        worker = WorkerProcess(durable=False)
        job, _ = await cleaning.next_job()
        with pytest.raises(FileNotFoundError):  # it works, and does not have the files, which are in memory
            await worker.compact(job, lambda replacement: None)
        await worker.close()
        await cleaning.cleaner.close()

    run(story)


def test_a_topic_that_is_deleted_meanwhile_ends_the_pass_quietly(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        cleaning = Cleaning()
        cleaning.topic("t", 3)
        await cleaning.let()
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
        assert (await cleaning.let()).topic == "other"
        await cleaning.cleaner.close()
        assert not [record for record in caplog.records if record.levelname in ("WARNING", "ERROR")]

    run(story)


def test_a_log_that_was_cut_meanwhile_is_compacted_again() -> None:
    async def story() -> None:
        cleaning = Cleaning()
        log = cleaning.topic("t", 3)
        _job, future = await cleaning.next_job()
        log.truncate_to(3, NOW)
        cleaning.write(log, 2)
        future.set_result(None)
        await cleaning.let()
        await cleaning.clean("t", log.log_end_offset)
        assert values(log) == [b"%d" % (log.log_end_offset - 1)]
        await cleaning.cleaner.close()

    run(story)


def test_a_log_that_is_cut_below_its_checkpoint_takes_the_checkpoint_along() -> None:
    async def story() -> None:
        cleaning = Cleaning()
        log = cleaning.topic("t", 3)
        await cleaning.let()
        await cleaning.clean("t", 6)
        await cleaning.cleaner.close()
        log.truncate_to(5, NOW)
        assert cleaning.manager.clean_offsets == {("t", 0): 5}
        assert cleaning.file_system.read_file("/data/cleaner-offset-checkpoint") == b"0\n1\nt 0 5\n"

    run(story)


def test_closing_ends_a_pass_that_is_under_way_and_leaves_the_old_state() -> None:
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


def test_a_worker_is_let_go_when_there_is_nothing_to_do() -> None:
    async def story() -> None:
        cleaning = Cleaning()
        cleaning.topic("t", 3)
        await cleaning.let()
        await cleaning.clean("t", 6)
        await cleaning.until(lambda: cleaning.closed_workers > 0)
        await cleaning.cleaner.close()

    run(story)


def test_settings_take_effect_while_it_runs() -> None:
    async def story() -> None:
        cleaning = Cleaning(workers=0)
        cleaning.topic("a", 3)
        cleaning.cleaner.update_settings(CleanerSettings(enabled=False, workers=1, backoff_ms=1))
        cleaning.cleaner.update_settings(CleanerSettings(workers=1, backoff_ms=1, dedupe_buffer_bytes=12_345_678))
        assert (await cleaning.let()).dedupe_buffer_bytes == 12_345_678
        await cleaning.clean("a", 6)
        cleaning.cleaner.update_settings(CleanerSettings(workers=1, backoff_ms=3_600_000))
        cleaning.topic("b", 3)
        cleaning.cleaner.update_settings(CleanerSettings(workers=1, backoff_ms=2, io_bytes_per_second=1e6))
        assert (await cleaning.let()).io_bytes_per_second == 1e6
        await cleaning.clean("b", 6)
        await cleaning.cleaner.close()

    run(story)


def test_compacting_now_takes_all_that_is_there_whatever_the_ratio() -> None:
    async def story() -> None:
        cleaning = Cleaning(workers=0)
        log = cleaning.topic("t", 2, min_cleanable_dirty_ratio=1.0)
        log.append(build_batch([Record(0, NOW, b"key", b"last")]), now_ms=NOW, leader_epoch=0)
        asked = asyncio.ensure_future(cleaning.cleaner.compact_now([log]))
        await cleaning.let()
        await asked
        assert values(log) == [b"last"]
        assert cleaning.manager.clean_offsets["t", 0] == 5
        await cleaning.cleaner.close()

    run(story)


def test_compacting_now_waits_for_the_pass_that_is_under_way() -> None:
    async def story() -> None:
        cleaning = Cleaning()
        log = cleaning.topic("t", 2)
        _job, future = await cleaning.next_job()
        asked = asyncio.ensure_future(cleaning.cleaner.compact_now([log]))
        await asyncio.sleep(0.01)
        assert cleaning.jobs.empty()
        future.set_result(None)
        await cleaning.let()
        await asked
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
def test_compacting_now_tells_what_went_wrong(failure: Exception, raised: type[Exception]) -> None:
    async def story() -> None:
        cleaning = Cleaning(workers=0)
        log = cleaning.topic("t", 2)
        asked = asyncio.ensure_future(cleaning.cleaner.compact_now([log]))
        await cleaning.let(failure)
        with pytest.raises(raised):
            await asked
        assert len(values(log)) == 4
        asked = asyncio.ensure_future(cleaning.cleaner.compact_now([log]))
        await cleaning.let()
        await asked
        assert len(values(log)) == 1
        await cleaning.cleaner.close()

    run(story)

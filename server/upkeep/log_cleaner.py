"""Compaction in a running server: selects the next log, passes it to a worker, and puts the result in place.

As in Apache Kafka, the filthiest log is compacted first: the one with the largest share of bytes written since its last
pass. Logs below `min.cleanable.dirty.ratio` are not compacted. A log that has waited for more than
`max.compaction.lag.ms` comes before all others. When there is nothing to do, the next check is after
`log.cleaner.backoff.ms`.

A pass; only the steps in threads and in the worker take long:

1. Flush the log, and make the checkpoint of the recovery point durable, content and name (thread). The rewritten part
   must lie before the recovery point: recovery takes a gap after it for lost data.
2. Create the job for the cleanable segments (event loop).
3. Compact (worker). Each new segment is put in place as soon as it is complete (event loop).
4. Sync the directory, then write `cleaner-offset-checkpoint` (thread). The checkpoint must never be ahead of the files:
   a tombstone could be removed while an older value remains.

Errors: a corrupt batch excludes its partition from compaction until the next startup, and an error is logged. A full
disk, or a worker that crashed or could not be started, is retried later. If workers crash repeatedly on the same
partition, it is excluded, too. An I/O error of the device, such as a failed sync, takes the log directory offline, as
everywhere. In each case the old segments, or the new ones that were put in place before, are intact.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from ...log.compaction.job import CorruptSegmentError
from ...log.files import NO_DESCRIPTOR_ERRNOS, RealFileSystem
from ...protocol.errors import KafkaError
from ...protocol.named_tuples import NamedTuple
from .compaction_process import InlineWorker, Worker, WorkerError, WorkerNotStartedError, WorkerProcess

if TYPE_CHECKING:
    from ...config.broker_config import BrokerConfig
    from ...log.checkpoints import TopicPartition
    from ...log.compaction.cleanable import Cleanable
    from ...log.compaction.job import CompactionJob, CompactionResult, Replacement
    from ...log.manager import LogManager
    from ...log.partition_log import Log
    from ..concurrency.file_jobs import FileJobs

logger = logging.getLogger(__name__)

_LARGEST_RATE = 1e15  # bytes per second; the default is far larger, and means no limit
_FAILURES_UNTIL_SET_ASIDE = 3
_LOGS_PER_SLICE = 100

# Limits for dynamic settings that are not validated elsewhere.
_MIN_DEDUPE_BUFFER_BYTES = 1 << 20
_SHORTEST_REST_SECONDS = 0.01  # log.cleaner.backoff.ms may be 0; requests have priority


class LogChangedError(Exception):
    """The log was truncated or deleted, or lost segments, during compaction: the result cannot be used."""


class CleanerSettings(NamedTuple):
    """The broker's settings for compaction (`log.cleaner.*`)."""

    enabled: bool = True
    workers: int = 1
    backoff_ms: int = 15_000
    dedupe_buffer_bytes: int = 120_795_955
    """Per worker, including the load factor."""
    io_bytes_per_second: float = 0.0
    """Per worker; 0 means no limit."""

    @classmethod
    def of(cls, config: BrokerConfig) -> CleanerSettings:
        workers = config.int("log.cleaner.threads")
        share = max(workers, 1)
        load_factor = min(config.float("log.cleaner.io.buffer.load.factor"), 1.0)
        buffer = int(config.int("log.cleaner.dedupe.buffer.size") * load_factor)
        rate = config.float("log.cleaner.io.max.bytes.per.second")
        return cls(
            enabled=config.bool("log.cleaner.enable"),
            workers=workers,
            backoff_ms=config.int("log.cleaner.backoff.ms"),
            dedupe_buffer_bytes=max(buffer // share, _MIN_DEDUPE_BUFFER_BYTES),
            io_bytes_per_second=rate / share if rate < _LARGEST_RATE else 0.0,
        )


class LogCleaner:
    """Compacts the logs of a broker, from its startup to its shutdown. Belongs to the broker's event loop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        file_jobs: FileJobs,
        log_manager: LogManager,
        now_ms: Callable[[], int],
        settings: CleanerSettings,
        *,
        last_stable_offset: Callable[[str, int], int | None],
        flush: Callable[[Log], Awaitable[object]],
        write_checkpoints: Callable[[], Awaitable[None]],
        swapped: Callable[[], None],
        make_worker: Callable[[], Worker] | None = None,
    ) -> None:
        """`last_stable_offset`: None if the partition is not served. `swapped`: called when files can be unlinked."""
        self._loop = loop
        self._file_jobs = file_jobs
        self._log_manager = log_manager
        self._now_ms = now_ms
        self._settings = settings
        self._last_stable_offset = last_stable_offset
        self._flush = flush
        self._write_checkpoints = write_checkpoints
        self._swapped = swapped
        self._make_worker = make_worker or self._worker_for_files
        self._worker_tasks: list[asyncio.Task[None]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._in_progress: dict[TopicPartition, Worker | None] = {}  # None: paused
        self._interrupted: set[TopicPartition] = set()
        self._changed = asyncio.Condition()
        self._wake = asyncio.Event()
        self._failures: dict[TopicPartition, int] = {}
        self._not_before: dict[TopicPartition, float] = {}
        self._logged_errors: dict[TopicPartition, str] = {}  # the error of the latest pass
        self._checkpoint_lock = asyncio.Lock()
        self._closed = False
        self.uncleanable: dict[TopicPartition, str] = {}
        """Partitions that are not compacted until the next startup, with the reason."""
        self.last_pass_s = 0.0
        """How long the last pass took, in seconds."""
        self._assign_workers()

    def update_settings(self, settings: CleanerSettings) -> None:
        """Settings apply from the next pass; the number of workers and the backoff apply immediately."""
        if settings != self._settings:
            self._settings = settings
            self._wake.set()
            self._wake = asyncio.Event()
            self._assign_workers()

    def forget(self, topic: str, partition: int) -> None:
        """The partition is about to be deleted: stop its compaction and remove its checkpoint."""
        key = (topic, partition)
        for known in (self.uncleanable, self._failures, self._not_before, self._logged_errors):
            known.pop(key, None)
        worker = self._in_progress.get(key)
        if worker is not None:
            worker.kill()
        if key in self._log_manager.clean_offsets:
            # Written after the deletion: another partition with this name must not inherit the checkpoint.
            self._loop.call_soon(self._start, self.write_checkpoint)

    async def pause(self, topic: str, partition: int) -> None:
        """Stop a pass in progress, and return when the log is not being compacted. None starts before `resume`."""
        key = (topic, partition)
        worker = self._in_progress.get(key)
        if worker is not None:
            self._interrupted.add(key)
            worker.kill()
        async with self._changed:
            await self._changed.wait_for(lambda: key not in self._in_progress)
            self._in_progress[key] = None
        self._interrupted.discard(key)

    async def resume(self, topic: str, partition: int) -> None:
        """Allow compaction of the log again."""
        await self._end_progress((topic, partition))

    async def write_checkpoint(self) -> None:
        """Write the current clean offset of each log."""
        async with self._checkpoint_lock:  # otherwise an older checkpoint could replace a newer one
            files = self._log_manager.begin_cleaner_checkpoints()
            await self._file_jobs.run(files.run)
            self._log_manager.end_checkpoints(files)

    async def close(self) -> None:
        """Stop the passes in progress. Segments that were put in place remain."""
        self._closed = True
        self._wake.set()
        for worker in self._in_progress.values():
            if worker is not None:
                worker.kill()
        # Not cancelled: a flush that has begun must be ended.
        if tasks := [*self._worker_tasks, *self._tasks]:
            await asyncio.wait(tasks)

    async def compact_now(self, logs: Iterable[Log]) -> None:
        """Compact these logs completely, regardless of their dirty ratio. Returns when that is done.

        The active segments are rolled first, so that compaction covers all stable records except those that
        `min.compaction.lag.ms` protects.

        Raises `CorruptSegmentError`, `OSError`, `WorkerError`, `KafkaError`, `LogChangedError`.
        """
        worker = self._make_worker()
        try:
            for log in logs:
                log.roll(self._now_ms())
                await self._compact_whole(worker, log)
        finally:
            await worker.close()

    async def _compact_whole(self, worker: Worker, log: Log) -> None:
        key = (log.topic, log.partition)
        clean_offset: int | None = None
        while True:
            async with self._changed:
                await self._changed.wait_for(lambda: key not in self._in_progress)
                self._in_progress[key] = worker
            try:
                cleanable = self._cleanable(log, clean_offset)
                if cleanable is None or not cleanable.cleanable_bytes:
                    return
                clean_offset = await self._pass(worker, log, cleanable)
            finally:
                await self._end_progress(key)
            if clean_offset is None or clean_offset <= cleanable.first_dirty_offset:
                return

    # Servants: one per worker

    def _assign_workers(self) -> None:
        wanted = self._settings.workers if self._settings.enabled and not self._closed else 0
        self._worker_tasks = [task for task in self._worker_tasks if not task.done()]
        for number in range(len(self._worker_tasks), wanted):
            self._worker_tasks.append(self._loop.create_task(self._serve(number)))

    async def _serve(self, number: int) -> None:
        """Compact one log after the other."""
        worker = self._make_worker()
        idle = True
        try:
            await self._rest()  # startup has other work to do
            while not self._closed and self._settings.enabled and number < self._settings.workers:
                try:
                    found = await self._dirtiest(worker)
                    if found is not None:
                        idle = False
                        await self._clean(worker, *found)
                        continue
                    if idle:
                        await worker.close()  # releases its memory
                except Exception:
                    logger.exception("Compaction failed with an unexpected error; it is retried")
                idle = True
                await self._rest()
        finally:
            await worker.close()

    async def _rest(self) -> None:
        wake = self._wake
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(self._settings.backoff_ms / 1000, _SHORTEST_REST_SECONDS)):
                await wake.wait()

    def _worker_for_files(self) -> Worker:
        file_system = self._log_manager.file_system
        if isinstance(file_system, RealFileSystem):
            return WorkerProcess(durable=file_system.durable)
        return InlineWorker(file_system)

    async def _dirtiest(self, worker: Worker) -> tuple[Log, Cleanable] | None:
        """Select the log to compact next, and mark it as in progress."""
        best: tuple[tuple[bool, float], Log, Cleanable] | None = None
        for number, log in enumerate(self._log_manager.logs(), 1):
            if number % _LOGS_PER_SLICE == 0:
                await asyncio.sleep(0)  # yield to requests
            key = (log.topic, log.partition)
            if not log.config.compacted or key in self._in_progress or key in self.uncleanable:
                continue
            if self._not_before.get(key, 0.0) > self._loop.time() or self._log_manager.get(*key) is not log:
                continue
            try:
                cleanable = self._cleanable(log, self._log_manager.clean_offsets.get(key))
            except KafkaError:
                continue  # the log is offline
            if cleanable is None or not cleanable.due(log.config.min_cleanable_dirty_ratio):
                continue
            rank = (cleanable.overdue_ms > 0, cleanable.dirty_ratio)
            if best is None or rank > best[0]:
                best = rank, log, cleanable
        if best is None:
            return None
        _rank, log, cleanable = best
        if (log.topic, log.partition) in self._in_progress:
            return None  # another servant has taken it between two slices
        self._in_progress[(log.topic, log.partition)] = worker
        return log, cleanable

    def _cleanable(self, log: Log, clean_offset: int | None) -> Cleanable | None:
        last_stable_offset = self._last_stable_offset(log.topic, log.partition)
        if last_stable_offset is None:
            return None
        return log.cleanable(clean_offset, last_stable_offset, self._now_ms())

    # A pass

    async def _clean(self, worker: Worker, log: Log, cleanable: Cleanable) -> None:
        """Run a pass over a log that is in progress, and handle all errors."""
        key = (log.topic, log.partition)
        name = f"{log.topic}-{log.partition}"
        try:
            clean_offset = await self._pass(worker, log, cleanable)
        except CorruptSegmentError as error:
            self.uncleanable[key] = str(error)
            logger.error("Compaction of %s failed; it is not compacted until the server restarts: %s", name, error)
        except (KafkaError, LogChangedError, FileNotFoundError) as error:
            if self._log_manager.get(*key) is log:
                self._try_again(key, logging.WARNING, str(error))
        except OSError as error:
            self._try_again(key, logging.ERROR, error.strerror or str(error))
        except WorkerNotStartedError as error:
            self._try_again(key, logging.ERROR, str(error))
        except WorkerError as error:
            if key in self._interrupted:
                self._postpone(key)
            elif self._log_manager.get(*key) is log and not self._closed:
                self._failed(key, error)
        else:
            self._failures.pop(key, None)
            self._logged_errors.pop(key, None)
            if clean_offset is None or clean_offset <= cleanable.first_dirty_offset:
                self._postpone(key)  # the pass made no progress
        finally:
            await self._end_progress(key)

    def _failed(self, key: TopicPartition, error: WorkerError) -> None:
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        if failures >= _FAILURES_UNTIL_SET_ASIDE:
            self.uncleanable[key] = str(error)
            logger.error(
                "Compaction of %s-%d failed %d times; it is not compacted until the server restarts: %s",
                *key,
                failures,
                error,
            )
        else:
            self._try_again(key, logging.ERROR, str(error))

    def _try_again(self, key: TopicPartition, level: int, reason: str) -> None:
        """Retry after the backoff. A repeated error, such as a full disk, is logged once."""
        if self._logged_errors.get(key) != reason:
            self._logged_errors[key] = reason
            logger.log(level, "Compaction of %s-%d failed and is retried: %s", *key, reason)
        self._postpone(key)

    def _postpone(self, key: TopicPartition) -> None:
        self._not_before[key] = self._loop.time() + self._settings.backoff_ms / 1000

    async def _end_progress(self, key: TopicPartition) -> None:
        self._in_progress.pop(key, None)
        async with self._changed:
            self._changed.notify_all()

    async def _pass(self, worker: Worker, log: Log, cleanable: Cleanable) -> int | None:
        """Run the steps of the module docstring. Returns the new clean offset; None if nothing could be done."""
        log.prepare_compaction()
        await self._flush(log)
        await self._sync_directory(log, log.directory)
        await self._write_checkpoints()
        # Recovery from an older recovery point would take the gaps that the pass leaves for lost data.
        await self._sync_directory(log, log.log_dir)
        compaction = log.begin_compaction(
            cleanable,
            now_ms=self._now_ms(),
            dedupe_buffer_bytes=self._settings.dedupe_buffer_bytes,
            io_bytes_per_second=self._settings.io_bytes_per_second,
        )
        if compaction is None:
            return None
        if self._closed:
            compaction.cancel()
            return None
        if (log.topic, log.partition) in self._interrupted:  # `pause` was called before there was a job to kill
            compaction.cancel()
            raise WorkerError("the pass was canceled before it started")

        def put_in_place(replacement: Replacement) -> None:
            if not compaction.put_in_place(replacement, self._now_ms()):
                raise LogChangedError("segments were truncated or deleted during compaction")
            self._swapped()

        began = self._loop.time()
        try:
            result = await worker.compact(compaction.job, put_in_place)
            complete = compaction.end(result, self._now_ms())
            self.last_pass_s = self._loop.time() - began
        except OSError as error:
            compaction.fail(error)
            raise
        except BaseException:
            with contextlib.suppress(KafkaError):  # the log went offline
                compaction.cancel()
            raise
        if not complete:
            raise LogChangedError("segments were truncated or deleted during compaction")
        self._swapped()
        await self._sync_directory(log, log.directory)
        if self._log_manager.get(log.topic, log.partition) is log and result.clean_offset <= log.flushed_offset:
            self._log_manager.clean_offsets[log.topic, log.partition] = result.clean_offset
            await self.write_checkpoint()
        _log_result(log, compaction.job, result)
        return result.clean_offset

    async def _sync_directory(self, log: Log, directory: str) -> None:
        """Sync the directory. A flush cannot replace this: its sync may still be in progress."""
        try:
            await self._file_jobs.run(partial(self._log_manager.file_system.sync_directory, directory))
        except FileNotFoundError:
            raise  # the log is being deleted
        except OSError as error:
            if error.errno in NO_DESCRIPTOR_ERRNOS:
                raise  # the directory could not be opened, so no sync has failed
            raise log.sync_failed(error) from error

    def _start(self, work: Callable[[], Awaitable[None]]) -> None:
        if self._closed:
            return

        async def run() -> None:
            try:
                await work()
            except Exception:
                logger.exception("Cannot write the cleaner checkpoint; the next pass writes it")

        task = self._loop.create_task(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _log_result(log: Log, job: CompactionJob, result: CompactionResult) -> None:
    statistics = result.statistics
    old = {segment.base_offset: segment.size for segment in job.segments}
    before = sum(old.values())
    replaced = sum(old[base_offset] for new in result.replacements for base_offset in new.old_base_offsets)
    logger.info(
        "Compacted %s-%d up to offset %d in %.1f s: %d to %d bytes, %d records removed, %d kept",
        log.topic,
        log.partition,
        result.clean_offset,
        statistics.seconds,
        before,
        before - replaced + sum(new.size for new in result.replacements),
        statistics.records_dropped,
        statistics.records_kept,
    )

"""Periodic maintenance, separate from requests: checkpoints, due flushes, expired producers.

Threads (`background`) write the files; the event loop only begins and ends each step. `retention` deletes old segments,
and `trash` unlinks deleted files.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ...log.checkpoints import TopicPartition
    from ...log.manager import CheckpointFiles, LogManager
    from ...log.partition_log import Log
    from ..concurrency.file_jobs import FileJobs
    from ..concurrency.timers import Timer, TimerWheel

logger = logging.getLogger(__name__)


class Housekeeping:
    """The periodic work of a broker, from its startup to its shutdown."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        file_jobs: FileJobs,
        timers: TimerWheel,
        log_manager: LogManager,
        now_ms: Callable[[], int],
        flush: Callable[[Log], Awaitable[object]],
        *,
        high_watermarks: Callable[[], Mapping[TopicPartition, int]],
        flush_interval_ms: int,
        checkpoint_interval_ms: int,
        start_offset_checkpoint_interval_ms: int,
        producer_expiration_check_ms: int,
    ) -> None:
        self._loop = loop
        self._file_jobs = file_jobs
        self._timers = timers
        self._log_manager = log_manager
        self._now_ms = now_ms
        self._flush = flush
        self._high_watermarks = high_watermarks
        self._pending: dict[str, Timer] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._running: set[str] = set()
        self._checkpoint_lock = asyncio.Lock()
        self._written_high_watermarks: Mapping[TopicPartition, int] | None = None
        self._closed = False
        # Apache Kafka flushes a rolled segment immediately. Here it is flushed before the recovery points are written.
        looks = [interval_ms for interval_ms in (flush_interval_ms, checkpoint_interval_ms) if interval_ms > 0]
        self._every("flushes", min(looks, default=0), self._flush_due)
        self._every("checkpoints", checkpoint_interval_ms, self.write_checkpoints)
        self._every("start offsets", start_offset_checkpoint_interval_ms, self.write_start_offsets)
        self._every("producers", producer_expiration_check_ms, self._expire_producers)

    def checkpoint_high_watermarks(self, interval_ms: int) -> None:
        """From now on also write the high watermarks at this interval. Useful with replicas on other brokers: after a
        crash, only the records below them are certainly committed."""
        if not self._closed and "high watermarks" not in self._pending:
            self._every("high watermarks", interval_ms, self.write_high_watermarks)

    async def close(self) -> None:
        """Start no more work, and wait for the work in progress."""
        self._closed = True
        for timer in self._pending.values():
            timer.cancel()
        self._pending.clear()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _every(self, name: str, interval_ms: int, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run ``work`` at this interval; never if the interval is 0 or less."""
        if interval_ms <= 0:
            return

        def due() -> None:
            self._start(name, work)
            self._every(name, interval_ms, work)

        self._pending[name] = self._timers.call_after(interval_ms, due)

    def _start(self, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Start ``work`` unless its previous run is still in progress (a slow disk)."""
        if self._closed or name in self._running:
            return

        async def run() -> None:
            try:
                await work()
            except Exception:
                logger.exception("Housekeeping failed with an unexpected error; it is retried")
            finally:
                self._running.discard(name)

        self._running.add(name)
        task = self._loop.create_task(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _flush_due(self) -> None:
        """Flush what is due (mainly sealed segments), so that recovery after an unclean shutdown has little to read."""
        for log in list(self._log_manager.logs()):
            if log.offline is None and log.flush_due(self._now_ms()):
                await self._flush(log)

    async def write_checkpoints(self) -> None:
        """Write the current recovery points and high watermarks."""
        async with self._checkpoint_lock:  # otherwise an older checkpoint could replace a newer one
            await self._write(self._log_manager.begin_checkpoints(self._high_watermarks(), log_start_offsets=False))

    async def write_high_watermarks(self) -> None:
        """Write the current high watermarks, if they have changed."""
        async with self._checkpoint_lock:
            current = self._high_watermarks()
            if current != self._written_high_watermarks:
                files = self._log_manager.begin_checkpoints(current, recovery_points=False, log_start_offsets=False)
                await self._write(files)
                # A truncation in the meantime discards what was written.
                self._written_high_watermarks = current if files.is_in_place else None

    async def write_start_offsets(self) -> None:
        """Write the current log start offsets."""
        await self._write(self._log_manager.begin_checkpoints(recovery_points=False))

    async def _write(self, files: CheckpointFiles) -> None:
        await self._file_jobs.run(files.run)
        self._log_manager.end_checkpoints(files)

    async def _expire_producers(self) -> None:
        now_ms = self._now_ms()
        for number, log in enumerate(list(self._log_manager.logs())):
            log.expire_producers(now_ms)
            if number % 100 == 99:
                await asyncio.sleep(0)  # yield to requests

"""What a server does now and then, off the path of requests: checkpoints, due flushes, the trash, silent producers.

Files are written and unlinked in threads, by way of aiofiles; the loop only begins and ends each step.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from ..protocol.errors import KafkaError

if TYPE_CHECKING:
    from ..log.checkpoints import TopicPartition
    from ..log.flushing import Flush
    from ..log.manager import LogManager
    from ..log.partition_log import Log
    from .timers import Timer, TimerWheel

logger = logging.getLogger(__name__)

_MINUTE_MS = 60_000
# When a server stops.
_FLUSH_THREADS = 16
_FLUSHES_AT_ONCE = 256


class Housekeeping:
    """The periodic work of a broker, from its start to its stop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        timers: TimerWheel,
        log_manager: LogManager,
        now_ms: Callable[[], int],
        *,
        high_watermarks: Callable[[], Mapping[TopicPartition, int]],
        flush_interval_ms: int,
        checkpoint_interval_ms: int,
        producer_expiration_check_ms: int,
    ) -> None:
        self._loop = loop
        self._timers = timers
        self._log_manager = log_manager
        self._now_ms = now_ms
        self._high_watermarks = high_watermarks
        self._pending: dict[str, Timer] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._running: set[str] = set()
        self._trash_wanted = False
        self._closed = False
        self._every("flushes", min(flush_interval_ms, checkpoint_interval_ms), self._flush_due)
        self._every("checkpoints", checkpoint_interval_ms, self._write_checkpoints)
        self._every("producers", producer_expiration_check_ms, self._expire_producers)
        self._every("trash", _MINUTE_MS, self._remove_trash)

    def remove_trash_soon(self) -> None:
        """Something was deleted: unlink its files, in a thread, after what is being answered now."""
        if not self._trash_wanted:
            self._trash_wanted = True
            self._loop.call_soon(self._start, "trash", self._remove_trash)

    async def close(self) -> None:
        """Start nothing more, and wait for what runs."""
        self._closed = True
        for timer in self._pending.values():
            timer.cancel()
        self._pending.clear()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _every(self, name: str, interval_ms: int, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        def due() -> None:
            self._start(name, work)
            self._every(name, interval_ms, work)

        self._pending[name] = self._timers.call_after(interval_ms, due)

    def _start(self, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Begin, unless it has not ended since the last time (a slow disk)."""
        if self._closed or name in self._running:
            return

        async def run() -> None:
            try:
                await work()
            except Exception:
                logger.exception("Housekeeping failed; it is tried again later")
            finally:
                self._running.discard(name)

        self._running.add(name)
        task = self._loop.create_task(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _flush_due(self) -> None:
        """Sync what is due (sealed segments above all), so that an unclean start has little to look at."""
        from aiofiles.base import wrap

        for log in list(self._log_manager.logs()):
            try:
                if not log.flush_due(self._now_ms()):
                    continue
                flush = log.begin_flush()
            except KafkaError:
                continue  # offline or deleted
            if flush is None:
                continue
            try:
                await wrap(flush.run)()
            except OSError as error:
                log.flush_failed(flush, error)
            else:
                log.end_flush(flush, self._now_ms())

    async def flush_names(self) -> None:
        """Sync the logs that have no new records, but new files (they were made, or have a new leader epoch).

        For a stop, which would otherwise wait for the device some times for each of them. In several threads: many
        syncs at once cost a journal little more than one. Logs with new records are left to their closing, which
        syncs their indexes too.
        """
        logs = [log for log in self._log_manager.logs() if log.recovery_point == log.log_end_offset]
        if len(logs) <= _FLUSH_THREADS:
            return  # closing them is as quick
        with ThreadPoolExecutor(_FLUSH_THREADS, thread_name_prefix="moldau-flush") as executor:
            for start in range(0, len(logs), _FLUSHES_AT_ONCE):
                flushes: list[tuple[Log, Flush]] = []
                for log in logs[start : start + _FLUSHES_AT_ONCE]:
                    with contextlib.suppress(KafkaError):  # offline
                        flush = log.begin_flush()
                        if flush is not None:
                            flushes.append((log, flush))
                shares = [[flush for _, flush in flushes[n::_FLUSH_THREADS]] for n in range(_FLUSH_THREADS)]
                runs = [self._loop.run_in_executor(executor, _run_all, share) for share in shares if share]
                failures = dict(failure for failed in await asyncio.gather(*runs) for failure in failed)
                for log, flush in flushes:
                    if flush in failures:
                        log.flush_failed(flush, failures[flush])
                    else:
                        log.end_flush(flush, self._now_ms())

    async def _write_checkpoints(self) -> None:
        """The recovery points, where logs begin, and the high watermarks."""
        from aiofiles.base import wrap

        files = self._log_manager.begin_checkpoints(self._high_watermarks())
        await wrap(files.run)()
        self._log_manager.end_checkpoints(files)

    async def _remove_trash(self) -> None:
        from aiofiles.base import wrap

        self._trash_wanted = False
        trash = self._log_manager.take_trash()
        if trash:
            await wrap(self._log_manager.remove_trash)(trash)

    async def _expire_producers(self) -> None:
        now_ms = self._now_ms()
        for number, log in enumerate(list(self._log_manager.logs())):
            log.expire_producers(now_ms)
            if number % 100 == 99:
                await asyncio.sleep(0)  # requests go first


def _run_all(flushes: Iterable[Flush]) -> list[tuple[Flush, OSError]]:
    """In a thread. Returns those that failed."""
    failures = []
    for flush in flushes:
        try:
            flush.run()
        except OSError as error:
            failures.append((flush, error))
    return failures

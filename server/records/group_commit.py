"""Group commit: one sync makes all pending appends durable.

Appends that must be flushed before they are acknowledged (`flush.messages`) do not wait for the disk on the event loop.
Their partition keeps the records above the high watermark (`replication.uncommitted`) and requests a flush here. The
flush begins at the end of the iteration of the event loop, so that all appends of that iteration share it. Its slow
part runs in a thread. Appends that arrive in the meantime wait for the next flush, which begins in the iteration after
the first one ends: the slower the disk, the more appends share a sync.

* Each log has at most one flush in progress. Two flushes could end in the wrong order: the second would acknowledge
  records of a new segment before the first has synced the segment's directory entry.
* Code that changes the files of a log (a move to another log directory) holds the log: no flush of it begins.
* Different logs are flushed concurrently, by up to `THREADS` threads: a file system's journal commits many syncs
  together.
* A flush that runs out of disk space or file descriptors is retried until it succeeds: in this case no sync has failed.
  Callers continue to wait.
* A failed sync is not retried. It is unknown which data is durable, and after an error the kernel discards the data
  that it could not write. Therefore the log directory goes offline, and all waiting callers get the error.

Housekeeping also flushes this way (`flush`).
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Protocol

from ...log.flushing import FlushPostponedError
from ...protocol.errors import KafkaError

if TYPE_CHECKING:
    from ...log.flushing import Flush
    from ...log.partition_log import Log
    from ..concurrency.background import Background

logger = logging.getLogger(__name__)

THREADS = 16

# A flush that fails because of disk space or file descriptors is retried after this delay. Each failure doubles the
# delay.
_RETRY_SECONDS = 0.1
_LONGEST_RETRY_SECONDS = 2.0


class Durations(Protocol):
    """A histogram; see `metrics.times`."""

    def observe(self, now: float, seconds: float, /) -> None:
        """Count a duration that ends now."""


class GroupCommit:
    """See the module docstring. Belongs to one event loop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        background: Background,
        now_ms: Callable[[], int],
        run_soon: Callable[[Callable[[], None]], None],
    ) -> None:
        """``run_soon`` calls a function at the end of the iteration of the event loop."""
        self._loop = loop
        self._background = background
        self._executor = background.executor(THREADS)
        self._now_ms = now_ms
        self._run_soon = run_soon
        self._waiting: dict[Log, None] = {}  # in the order of the requests
        self._running: dict[Log, list[asyncio.Future[bool]]] = {}  # each with the futures that wait for its end
        self._awaited: dict[Log, list[asyncio.Future[bool]]] = {}  # futures that wait for a flush that has not begun
        self._postponed: dict[Log, tuple[float, asyncio.TimerHandle]] = {}  # the latest delay, and its timer
        self._paused: set[Log] = set()
        self._flushed_without_thread: Log | None = None
        self._beginning = False
        self._idle: asyncio.Event | None = None
        self.durations: Durations | None = None
        """The durations of flushes, if they are measured."""

    def flush_soon(self, log: Log) -> None:
        """Make all records of the log durable soon, including those appended in this iteration of the event loop.

        `Log.on_flushed` reports the end.
        """
        self._waiting[log] = None
        self._begin_soon()

    def flush_without_threads(self, log: Log) -> None:
        """From now on, flush this log on the event loop while the system cannot start any thread. Only the metadata log
        uses this."""
        self._flushed_without_thread = log

    def flush(self, log: Log) -> asyncio.Future[bool]:
        """The same as `flush_soon`, with a future that is done when the flush has ended. Its result: success."""
        future = self._loop.create_future()
        self._awaited.setdefault(log, []).append(future)
        self.flush_soon(log)
        return future

    async def pause(self, log: Log) -> None:
        """Return when no flush of this log is in progress. None begins before `resume`."""
        assert log not in self._paused
        self._paused.add(log)
        awaiting = self._running.get(log)
        if awaiting is not None:
            future: asyncio.Future[bool] = self._loop.create_future()
            awaiting.append(future)
            await future

    def resume(self, log: Log) -> None:
        """Allow flushes of the log again."""
        self._paused.discard(log)
        self._begin_soon()

    async def wait_idle(self) -> None:
        """Return when no flush is pending or in progress. Called before the files are closed."""
        while self._waiting or self._running:
            if self._idle is None:
                self._idle = asyncio.Event()
            self._idle.clear()
            await self._idle.wait()

    async def close(self) -> None:
        """Wait for the flushes in progress. No more flushes may be requested."""
        await self.wait_idle()

    def _begin_soon(self) -> None:
        if not self._beginning:
            self._beginning = True
            self._run_soon(self._begin)

    def _begin(self) -> None:
        self._beginning = False
        for log in list(self._waiting):
            if len(self._running) >= THREADS:
                return
            if log not in self._running and log not in self._paused:
                del self._waiting[log]
                self._start(log)
        if self._idle is not None and not self._waiting and not self._running:
            self._idle.set()

    def _start(self, log: Log) -> None:
        awaiting = self._awaited.pop(log, [])
        try:
            flush = log.begin_flush()
        except KafkaError as error:
            self._try_later(log, error.message or "")
            _done(awaiting, flushed=False)
            return
        if flush is None:  # already flushed by other code
            self._forget_pause(log)
            _done(awaiting, flushed=True)
            return
        self._running[log] = awaiting
        if log is self._flushed_without_thread and not self._background.has_threads:
            future: asyncio.Future[Exception | None] = self._loop.create_future()
            future.set_result(_run(flush))
        else:
            future = self._executor.run(partial(_run, flush))
        future.add_done_callback(partial(self._ended, log, flush, self._loop.time()))

    def _try_later(self, log: Log, reason: str) -> None:
        if log.offline is not None:
            self._forget_pause(log)
            return
        pause = _RETRY_SECONDS
        if log in self._postponed:
            before, timer = self._postponed[log]
            timer.cancel()  # appends may have requested a flush in the meantime
            pause = min(before * 2, _LONGEST_RETRY_SECONDS)
        else:  # logged once, however often the flush is retried
            logger.error("Cannot flush %s-%d; the flush is retried: %s", log.topic, log.partition, reason)
        self._postponed[log] = pause, self._loop.call_later(pause, self.flush_soon, log)

    def _forget_pause(self, log: Log) -> None:
        if log in self._postponed:
            self._postponed.pop(log)[1].cancel()

    def _ended(self, log: Log, flush: Flush, began: float, future: asyncio.Future[Exception | None]) -> None:
        if self.durations is not None:
            now = self._loop.time()
            self.durations.observe(now, now - began)
        awaiting = self._running.pop(log)
        error = future.result()
        if not isinstance(error, FlushPostponedError):
            self._forget_pause(log)
        try:
            if error is None:
                log.end_flush(flush, self._now_ms())
            elif isinstance(error, OSError | FlushPostponedError):
                log.flush_failed(flush, error)
                if isinstance(error, FlushPostponedError):
                    self._try_later(log, str(error))
            else:
                logger.error("A flush failed with an unexpected error", exc_info=error)
                log.flush_failed(flush, OSError(errno.EIO, str(error)))
        except Exception:
            logger.exception("Completing a flush of %s failed with an unexpected error", log)
        _done(awaiting, flushed=error is None)
        self._begin_soon()


def _run(flush: Flush) -> Exception | None:
    """Runs in a thread."""
    try:
        flush.run()
    except Exception as error:  # noqa: BLE001 - handled on the event loop
        return error
    return None


def _done(awaiting: list[asyncio.Future[bool]], *, flushed: bool) -> None:
    for future in awaiting:
        if not future.done():
            future.set_result(flushed)

"""Group commit: one sync for everything that waits to be on the device.

Appends that have to be flushed before they are acknowledged (`flush.messages`) do not wait for the device on the loop.
Their partition holds them back (`replication.held_back`) and asks here for a flush. It begins when the turn of the loop
is over, so that everything which came in that turn shares it, and its slow part runs in a thread. What comes
meanwhile waits for the next one, which begins with the turn after this one's end: the slower the device, the more
appends share a sync.

* A log has one flush under way at a time. Two could end in the wrong order: the second would acknowledge records of a
  new segment before the first has synced the name of its file.
* Whoever changes the files of a log (a move to another log directory) holds it meanwhile: no flush of it begins.
* Different logs are flushed at the same time, by up to `THREADS` threads: a file system's journal commits many syncs
  together.
* A flush that finds no room for what it must write, or no descriptor, is tried again until it does; no sync has failed
  then. Everybody goes on waiting.
* A sync that fails is not tried again. Nobody knows what the device has, and after an error the kernel forgets what it
  could not write; so the log directory goes offline, and everybody who waits is told.

Housekeeping flushes by this way too (`flush`).
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from ..log.flushing import FlushPostponedError
from ..protocol.errors import KafkaError

if TYPE_CHECKING:
    from ..log.flushing import Flush
    from ..log.partition_log import Log
    from .background import Background

logger = logging.getLogger(__name__)

THREADS = 16

# A flush that could not be made, for want of room or descriptors, is tried again after this long, then after twice as
# long, and so on.
_RETRY_SECONDS = 0.1
_LONGEST_RETRY_SECONDS = 2.0


class GroupCommit:
    """See the module's text. Belongs to one loop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        background: Background,
        now_ms: Callable[[], int],
        run_soon: Callable[[Callable[[], None]], None],
    ) -> None:
        """``run_soon`` calls something at the end of the loop's turn."""
        self._loop = loop
        self._lane = background.lane(THREADS)
        self._now_ms = now_ms
        self._run_soon = run_soon
        self._waiting: dict[Log, None] = {}  # in the order in which they asked
        self._running: dict[Log, list[asyncio.Future[None]]] = {}  # each with who awaits its end
        self._awaited: dict[Log, list[asyncio.Future[None]]] = {}  # who awaits a flush that has not begun
        self._postponed: dict[Log, tuple[float, asyncio.TimerHandle]] = {}  # the latest pause, and its end
        self._held: set[Log] = set()
        self._beginning = False
        self._idle: asyncio.Event | None = None

    def flush_soon(self, log: Log) -> None:
        """Have everything that is in the log, and what comes in this turn of the loop, on the device soon. The log says
        when that is so (`Log.on_flushed`)."""
        self._waiting[log] = None
        self._begin_soon()

    def flush(self, log: Log) -> asyncio.Future[None]:
        """The same; done when the flush has ended, also if it has failed."""
        future = self._loop.create_future()
        self._awaited.setdefault(log, []).append(future)
        self.flush_soon(log)
        return future

    async def hold(self, log: Log) -> None:
        """Return when no flush of this log is under way; none begins before `let_go`."""
        assert log not in self._held
        self._held.add(log)
        awaiting = self._running.get(log)
        if awaiting is not None:
            future: asyncio.Future[None] = self._loop.create_future()
            awaiting.append(future)
            await future

    def let_go(self, log: Log) -> None:
        """The log may be flushed again."""
        self._held.discard(log)
        self._begin_soon()

    async def wait_idle(self) -> None:
        """Return when nothing waits or runs: before the files are closed."""
        while self._waiting or self._running:
            if self._idle is None:
                self._idle = asyncio.Event()
            self._idle.clear()
            await self._idle.wait()

    async def close(self) -> None:
        """Wait for what runs; nobody may ask for a flush any more."""
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
            if log not in self._running and log not in self._held:
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
            _done(awaiting)
            return
        if flush is None:  # somebody else has flushed it
            self._forget_pause(log)
            _done(awaiting)
            return
        self._running[log] = awaiting
        future = self._lane.run(partial(_run, flush))
        future.add_done_callback(partial(self._ended, log, flush))

    def _try_later(self, log: Log, reason: str) -> None:
        if log.offline is not None:
            self._forget_pause(log)
            return
        pause = _RETRY_SECONDS
        if log in self._postponed:
            before, timer = self._postponed[log]
            timer.cancel()  # appends may have asked in between
            pause = min(before * 2, _LONGEST_RETRY_SECONDS)
        else:  # told once, however often it is tried
            logger.error("%s-%d could not be flushed and will be later: %s", log.topic, log.partition, reason)
        self._postponed[log] = pause, self._loop.call_later(pause, self.flush_soon, log)

    def _forget_pause(self, log: Log) -> None:
        if log in self._postponed:
            self._postponed.pop(log)[1].cancel()

    def _ended(self, log: Log, flush: Flush, future: asyncio.Future[Exception | None]) -> None:
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
                logger.error("A flush failed by our own fault", exc_info=error)
                log.flush_failed(flush, OSError(errno.EIO, str(error)))
        except Exception:
            logger.exception("The end of a flush of %s failed by our own fault", log)
        _done(awaiting)
        self._begin_soon()


def _run(flush: Flush) -> Exception | None:
    """In a thread."""
    try:
        flush.run()
    except Exception as error:  # noqa: BLE001 - dealt with on the loop
        return error
    return None


def _done(awaiting: list[asyncio.Future[None]]) -> None:
    for future in awaiting:
        if not future.done():
            future.set_result(None)

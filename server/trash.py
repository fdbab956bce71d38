"""What was deleted, segments and whole partitions, is renamed at once, and unlinked here after `file.delete.delay.ms`.

The delay is the topic's, or for partitions that have gone the broker's (`log.segment.delete.delay.ms`). It begins with
`deleted`, or within a minute where nobody calls that. What waits when the server stops is left to the next start, which
unlinks it without a delay.

Unlinking large files takes long, so it is done in a thread.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from heapq import heappop, heappush
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ..log.manager import LogManager
    from .chores import Chores
    from .clock import Clock
    from .timers import Timer, TimerWheel

logger = logging.getLogger(__name__)

_LONGEST_WAIT_MS = 60_000


class Trash:
    """The files that are to be unlinked, each with its time. Begins with those that a start has found."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        chores: Chores,
        timers: TimerWheel,
        log_manager: LogManager,
        now_ms: Clock,
        directory_delay_ms: Callable[[], int],
    ) -> None:
        """`directory_delay_ms`: how long what is no topic's any more is kept."""
        self._loop = loop
        self._chores = chores
        self._timers = timers
        self._log_manager = log_manager
        self._now_ms = now_ms
        self._directory_delay_ms = directory_delay_ms
        self._waiting = [(0, path) for path in log_manager.take_trash()]  # a heap: (unlink at, path)
        self._removing = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._timer: Timer | None = None
        self._wanted = False
        self._closed = False
        self._look_soon()

    def __len__(self) -> int:
        return len(self._waiting)

    def deleted(self) -> None:
        """Something was deleted just now."""
        self._take()
        self._look_soon()

    def add(self, paths: Iterable[str], delay_ms: int) -> None:
        """Files that are no partition's, which are renamed already."""
        until_ms = self._now_ms() + delay_ms
        for path in paths:
            heappush(self._waiting, (until_ms, path))
        self._look_soon()

    async def remove_due(self) -> None:
        """Unlink what has waited long enough; return when it is gone."""
        async with self._removing:
            self._take()
            now_ms = self._now_ms()
            due = []
            while self._waiting and self._waiting[0][0] <= now_ms:
                due.append(heappop(self._waiting)[1])
            if due:
                for problem in await self._chores.run(partial(self._log_manager.remove_trash, due)):
                    logger.warning("What was deleted could not be unlinked, and is left to the next start: %s", problem)

    def _take(self) -> None:
        now_ms = self._now_ms()
        for path in self._log_manager.take_trash():
            delay_ms = self._log_manager.delete_delay_ms(path)
            heappush(self._waiting, (now_ms + (self._directory_delay_ms() if delay_ms is None else delay_ms), path))

    def _look_soon(self) -> None:
        """After what is being answered now."""
        if not self._wanted and not self._closed:
            self._wanted = True
            self._loop.call_soon(self._start)

    async def close(self) -> None:
        """Begin nothing more, and wait for what runs."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            await asyncio.wait([self._task])

    def _start(self) -> None:
        self._wanted = False
        if self._closed:
            return
        if self._task is not None:  # its end looks again
            self._wanted = True
            return
        self._task = self._loop.create_task(self._run())

    async def _run(self) -> None:
        try:
            await self.remove_due()
        except Exception:
            logger.exception("Deleted files could not be unlinked; it is tried again later")
        self._task = None
        if self._wanted:
            self._wanted = False
            self._look_soon()
        elif not self._closed:
            self._wait()

    def _wait(self) -> None:
        """Until something is due; but look now and then, for what was deleted without a word."""
        if self._timer is not None:
            self._timer.cancel()
        wait_ms = _LONGEST_WAIT_MS
        if self._waiting:
            wait_ms = min(wait_ms, max(self._waiting[0][0] - self._now_ms(), 0))
        self._timer = self._timers.call_after(wait_ms, self._look_soon)

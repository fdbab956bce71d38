"""Deleted segments and partitions are renamed immediately, and unlinked here after `file.delete.delay.ms`.

The delay is the topic's; for deleted partitions it is the broker's (`log.segment.delete.delay.ms`). It begins with
`deleted`, or within a minute if `deleted` is not called. Files that still wait at shutdown are unlinked by the next
startup, without a delay.

Unlinking large files takes long, so it is done in a thread.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ..concurrency.clock import Clock
    from ..concurrency.file_jobs import FileJobs
    from ..concurrency.timers import Timer, TimerWheel

logger = logging.getLogger(__name__)

_LONGEST_WAIT_MS = 60_000


class DeletedFiles(Protocol):
    """Renamed files and directories that are to be unlinked."""

    def take_trash(self) -> list[str]:
        """Those that were renamed since the last call."""

    def delete_delay_ms(self, path: str) -> int | None:
        """How long a file must be kept; None if it belongs to no topic."""

    def remove_trash(self, paths: Iterable[str]) -> list[OSError]:
        """Unlink them. Runs in a thread. Returns the errors."""


class Trash:
    """The files to unlink, with their due times. The first ones are those that startup has found."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        file_jobs: FileJobs,
        timers: TimerWheel,
        deleted: DeletedFiles,
        now_ms: Clock,
        directory_delay_ms: Callable[[], int],
    ) -> None:
        """`directory_delay_ms`: the delay for files that belong to no existing topic."""
        self._loop = loop
        self._file_jobs = file_jobs
        self._timers = timers
        self._deleted = deleted
        self._now_ms = now_ms
        self._directory_delay_ms = directory_delay_ms
        self._waiting = [(0, path) for path in deleted.take_trash()]  # a heap: (unlink at, path)
        self._removing = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._timer: Timer | None = None
        self._wanted = False
        self._closed = False
        self._check_soon()

    def __len__(self) -> int:
        return len(self._waiting)

    def deleted(self) -> None:
        """Files have just been deleted (renamed)."""
        self._take()
        self._check_soon()

    def add(self, paths: Iterable[str], delay_ms: int) -> None:
        """Add renamed files that belong to no partition."""
        until_ms = self._now_ms() + delay_ms
        for path in paths:
            heappush(self._waiting, (until_ms, path))
        self._check_soon()

    async def remove_due(self) -> None:
        """Unlink the files whose delay has expired. Returns when they are unlinked."""
        async with self._removing:
            self._take()
            now_ms = self._now_ms()
            due = []
            while self._waiting and self._waiting[0][0] <= now_ms:
                due.append(heappop(self._waiting)[1])
            if due:
                for problem in await self._file_jobs.run(partial(self._deleted.remove_trash, due)):
                    logger.warning("Cannot remove deleted files; the next startup removes them: %s", problem)

    def _take(self) -> None:
        now_ms = self._now_ms()
        for path in self._deleted.take_trash():
            delay_ms = self._deleted.delete_delay_ms(path)
            heappush(self._waiting, (now_ms + (self._directory_delay_ms() if delay_ms is None else delay_ms), path))

    def _check_soon(self) -> None:
        """Check after the current callbacks of the event loop."""
        if not self._wanted and not self._closed:
            self._wanted = True
            self._loop.call_soon(self._start)

    async def close(self) -> None:
        """Start no more work, and wait for the work in progress."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            await asyncio.wait([self._task])

    def _start(self) -> None:
        self._wanted = False
        if self._closed:
            return
        if self._task is not None:  # when it ends, it checks again
            self._wanted = True
            return
        self._task = self._loop.create_task(self._run())

    async def _run(self) -> None:
        try:
            await self.remove_due()
        except Exception:
            logger.exception("Removing deleted files failed with an unexpected error; it is retried")
        self._task = None
        if self._wanted:
            self._wanted = False
            self._check_soon()
        elif not self._closed:
            self._wait()

    def _wait(self) -> None:
        """Set the timer for the next due file, within a limit: some deletions are not reported by `deleted`."""
        if self._timer is not None:
            self._timer.cancel()
        wait_ms = _LONGEST_WAIT_MS
        if self._waiting:
            wait_ms = min(wait_ms, max(self._waiting[0][0] - self._now_ms(), 0))
        self._timer = self._timers.call_after(wait_ms, self._check_soon)

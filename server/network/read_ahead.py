"""Threads that load parts of files into the page cache, so that the event loop does not wait for a disk.

Code that finds a file range missing from memory (`FileRange.cached`, `ColdRead`) passes it to `read` and returns to the
event loop. Its callback is called when the range was read, and uses the range without another check. If memory is so
short that the range was evicted again, the event loop waits for the disk this once, but the reader makes progress.

A job is one system call, which releases the interpreter to the event loop, with as little Python around it as possible.
A thread that is preempted while it holds the interpreter blocks the event loop. A range is held until its job is done,
even if its caller no longer needs it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial

from ...log.descriptors import FileRange
from ..concurrency.background import Background
from ..concurrency.pending import Pending

logger = logging.getLogger(__name__)

THREADS = 4

Done = Callable[[OSError | None], None]


class ReadAhead:
    """See the module docstring. Belongs to one event loop, as do the references to ranges."""

    def __init__(self, background: Background) -> None:
        self._executor = background.executor(THREADS)
        self._unfinished = 0
        self._closing = False
        self._idle = asyncio.Event()
        self.jobs = 0
        """The number of jobs so far."""

    def read(self, file_range: FileRange, done: Done | None = None) -> None:
        """Read a range and call ``done``, with the error if there was one. This object owns the range from now on.

        During shutdown, ``done`` is no longer called.
        """
        if self._closing:
            file_range.release()
            return
        self.jobs += 1
        self._unfinished += 1
        self._executor.run(file_range.read_ahead).add_done_callback(partial(self._finished, file_range, done))

    def read_all(self, ranges: Sequence[FileRange], done: Done) -> None:
        """Like `read` for several ranges: ``done`` gets the first error, if any."""
        pending: Pending[None, OSError] = Pending(lambda results: done(None), done)
        for file_range in ranges:
            self.read(file_range, partial(_end_part, pending, pending.add()))
        pending.start()

    def _finished(self, file_range: FileRange, done: Done | None, future: asyncio.Future[bool]) -> None:
        error = None if future.cancelled() else future.exception()
        if not future.cancelled():
            file_range.was_read_ahead(was_cold=error is None and future.result())
        file_range.release()
        self._unfinished -= 1
        if self._closing:
            if not self._unfinished:
                self._idle.set()
            return
        if error is not None and not isinstance(error, OSError):
            logger.error("Read-ahead failed with an unexpected error", exc_info=error)
            error = None  # the caller reads the range itself then
        if done is not None:
            done(error)

    async def close(self) -> None:
        """Cancel the jobs that have not begun. Wait for the others: a thread cannot be taken out of a system call."""
        self._closing = True
        self._executor.close()
        if self._unfinished:
            await self._idle.wait()


def _end_part(pending: Pending[None, OSError], part: int, error: OSError | None) -> None:
    if error is None:
        pending.complete(part, None)
    else:
        pending.fail(part, error)

"""Threads that bring parts of files into the page cache, so that the event loop does not wait for a disk.

Whoever finds that a file range is not in memory (`FileRange.cached`, `ColdRead`) hands it to `read`, lets others have
the loop, and is called there when it has come. It then uses the range without asking again: should memory be so short
that it is gone already, everybody waits for the disk this once, but its reader gets on.

A job is one system call, which leaves the interpreter to the loop, and as little Python around it as can be: a thread
that is put off the processor while it holds the interpreter keeps the loop waiting. A range is held until its job is
done, whatever becomes of who asked.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial

from ..log.descriptors import FileRange
from .background import Background

logger = logging.getLogger(__name__)

THREADS = 4

Done = Callable[[OSError | None], None]


class ReadAhead:
    """See the module's text. Belongs to one loop, and so do the references of ranges."""

    def __init__(self, background: Background) -> None:
        self._lane = background.lane(THREADS)
        self._unfinished = 0
        self._closing = False
        self._idle = asyncio.Event()
        self.jobs = 0
        """How many there have been."""

    def read(self, file_range: FileRange, done: Done | None = None) -> None:
        """Read a range, which belongs to this object from now on, and call ``done``, with the error if there was one.

        ``done`` is not called any more when the server stops.
        """
        if self._closing:
            file_range.release()
            return
        self.jobs += 1
        self._unfinished += 1
        self._lane.run(file_range.read_ahead).add_done_callback(partial(self._finished, file_range, done))

    def read_all(self, ranges: Sequence[FileRange], done: Done) -> None:
        """The same for several ranges: ``done`` gets the last error there was, if any."""
        missing = len(ranges)
        failure: OSError | None = None

        def count(error: OSError | None) -> None:
            nonlocal missing, failure
            missing -= 1
            failure = error or failure
            if not missing:
                done(failure)

        for file_range in ranges:
            self.read(file_range, count)

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
            logger.error("Reading ahead failed by our own fault", exc_info=error)
            error = None  # who asked reads by himself then
        if done is not None:
            done(error)

    async def close(self) -> None:
        """Drop what has not begun, and wait for what has: a thread cannot be taken out of a system call."""
        self._closing = True
        self._lane.close()
        if self._unfinished:
            await self._idle.wait()

"""Threads that bring parts of files into the page cache, so that the event loop does not wait for a disk.

Whoever finds that a file range is not in memory (`FileRange.cached`, `ColdRead`) hands it to `read`, lets others have
the loop, and is called there when it has come. It then uses the range without asking again: should memory be so short
that it is gone already, everybody waits for the disk this once, but its reader gets on.

The threads are made at the first cold read; most servers never have any. A job is one system call, which leaves the
interpreter to the loop, and as little Python around it as can be: a thread that is put off the processor while it holds
the interpreter keeps the loop waiting. A range is held until its thread is done, whatever becomes of who asked.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue

from ..log.descriptors import FileRange

logger = logging.getLogger(__name__)

THREADS = 4

Done = Callable[[OSError | None], None]


class _Job:
    __slots__ = ("done", "error", "range", "was_cold")

    def __init__(self, file_range: FileRange, done: Done | None) -> None:
        self.range = file_range
        self.done = done
        self.error: Exception | None = None
        self.was_cold = False


class ReadAhead:
    """See the module's text. Belongs to one loop, and so do the references of ranges."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._queue: SimpleQueue[_Job | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
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
        if self._unfinished > len(self._threads) < THREADS:
            thread = threading.Thread(target=self._work, name="moldau-read-ahead", daemon=True)
            self._threads.append(thread)
            thread.start()
        self._queue.put(_Job(file_range, done))

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

    def _work(self) -> None:
        while (job := self._queue.get()) is not None:
            try:
                job.was_cold = job.range.read_ahead()
            except Exception as error:  # noqa: BLE001 - dealt with on the loop
                job.error = error
            self._loop.call_soon_threadsafe(self._finished, job)

    def _finished(self, job: _Job) -> None:
        job.range.was_read_ahead(was_cold=job.was_cold)
        job.range.release()
        self._unfinished -= 1
        if self._closing:
            if not self._unfinished:
                self._idle.set()
            return
        error = job.error
        if error is not None and not isinstance(error, OSError):
            logger.error("Reading ahead failed by our own fault", exc_info=error)
            error = None  # who asked reads by himself then
        if job.done is not None:
            job.done(error)

    async def close(self) -> None:
        """Drop what has not begun, and wait for what has: a thread cannot be taken out of a system call."""
        self._closing = True
        try:
            while (job := self._queue.get_nowait()) is not None:
                job.range.release()
                self._unfinished -= 1
        except Empty:
            pass
        if self._unfinished:
            await self._idle.wait()
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join()
        self._threads.clear()

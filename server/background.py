"""All threads and processes that work beside the event loop are started here.

A system may refuse to start a thread: a limit of processes (`pids.max` of a container, `ulimit -u`), or no memory. That
must not end anything for good, so work is handed over by these rules:

* A `Lane` bounds how many jobs of one kind are under way. The threads belong to all lanes together, so that one thread
  is enough for everything to go on, if slowly.
* A job is in the queue before a thread is started for it, is run exactly once by whichever thread is free first, and
  its future is done only after that. A thread that cannot be started is an error in the log, once, and is tried again
  after a pause that grows from `_RETRY_SECONDS` to `_LONGEST_RETRY_SECONDS`; the jobs wait.
* During a stop, and where there is no thread at all, jobs run on the event loop: a stop needs no thread.

`ThreadPoolExecutor` keeps none of these rules. Its `submit` queues the work before it starts a thread, and raises if
that fails: the caller takes the work for failed, while another thread may run it later, or none ever does. asyncio's
default executor needs one more thread in order to be shut down. So neither is used in a server.

Threads are daemons and idle for ever once they were needed. A thread holds no reference to a job that has ended.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from queue import Empty, SimpleQueue
from typing import Any, Generic, Self, TypeVar

logger = logging.getLogger(__name__)

T = TypeVar("T")
U = TypeVar("U")

_RETRY_SECONDS = 0.1
_LONGEST_RETRY_SECONDS = 2.0

NOT_STARTED_ERRORS = (RuntimeError, MemoryError, OSError)
"""What starting a thread or a process raises where the system refuses. For a thread, Python raises RuntimeError."""


class ProcessNotStartedError(Exception):
    """There is no process; the text says why. Try again later."""


def start_thread(target: Callable[[], None], name: str) -> threading.Thread | None:
    """A daemon thread; None if the system refuses to start one."""
    thread = threading.Thread(target=target, name=name, daemon=True)
    try:
        thread.start()
    except NOT_STARTED_ERRORS as error:
        logger.debug("The thread %s could not be started: %s", name, error)
        return None
    return thread


async def start_process(*command: str, environment: Mapping[str, str] | None = None) -> asyncio.subprocess.Process:
    """A child process with pipes to its standard input and output. Needs no thread where the system has pidfds.

    Raises:
        ProcessNotStartedError: the system refuses.
    """
    _watch_children_without_threads()
    pipe = asyncio.subprocess.PIPE
    try:
        return await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, env=environment)
    except NOT_STARTED_ERRORS as error:
        reason = error.strerror if isinstance(error, OSError) else None
        raise ProcessNotStartedError(f"the process could not be started: {reason or error}") from error


if sys.version_info < (3, 12) and sys.platform == "linux":
    # This version of Python starts a thread for each child process, in order to wait for its end.

    class _PidfdWatcher(asyncio.AbstractChildWatcher):
        """Hears of the end of children by pidfds, in the loop that has started them."""

        def add_child_handler(self, pid: int, callback: Callable[..., object], *args: Any) -> None:
            loop = asyncio.get_running_loop()
            pidfd = os.pidfd_open(pid)
            loop.add_reader(pidfd, self._ended, loop, pidfd, pid, callback, args)

        def _ended(
            self,
            loop: asyncio.AbstractEventLoop,
            pidfd: int,
            pid: int,
            callback: Callable[..., object],
            args: tuple[Any, ...],
        ) -> None:
            loop.remove_reader(pidfd)
            os.close(pidfd)
            _, status = os.waitpid(pid, 0)
            callback(pid, os.waitstatus_to_exitcode(status), *args)

        def remove_child_handler(self, pid: int) -> bool:
            return False  # the transport of asyncio never asks for it

        def attach_loop(self, loop: asyncio.AbstractEventLoop | None) -> None:
            """It uses the loop that is running."""

        def is_active(self) -> bool:
            return True

        def close(self) -> None:
            """There is nothing to close."""

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None:
            """There is nothing to end."""

    def _watch_children_without_threads() -> None:
        if type(asyncio.get_child_watcher()) is not asyncio.ThreadedChildWatcher:
            return  # it was done before, or a program that embeds the server has chosen another one
        try:
            os.close(os.pidfd_open(os.getpid()))
        except OSError:
            return  # an old kernel, or a sandbox
        asyncio.set_child_watcher(_PidfdWatcher())

else:

    def _watch_children_without_threads() -> None:
        """Later versions use pidfds by themselves."""


def map_with_threads(function: Callable[[T], U], items: Iterable[T], threads: int) -> Iterator[U]:
    """``map`` with up to ``threads`` at once. The caller is one of them: if no other can be started, it does all.

    For work that keeps the event loop waiting in any case, as at a stop.
    """
    todo = deque(enumerate(items))
    results: dict[int, U] = {}
    failures: list[BaseException] = []

    def work() -> None:
        while not failures:
            try:
                number, item = todo.popleft()
            except IndexError:
                return
            try:
                results[number] = function(item)
            except BaseException as error:  # noqa: BLE001 - raised by the caller, when all threads have ended
                failures.append(error)

    helpers = []
    for _ in range(min(threads, len(todo)) - 1):
        thread = start_thread(work, "moldau-flush")
        if thread is None:
            break
        helpers.append(thread)
    work()
    for thread in helpers:
        thread.join()
    if failures:
        raise failures[0]
    return (results[number] for number in range(len(results)))


class _Job(Generic[T]):
    __slots__ = ("error", "future", "lane", "result", "work")

    def __init__(self, lane: Lane, work: Callable[[], T], future: asyncio.Future[T]) -> None:
        self.lane = lane
        self.work: Callable[[], T] | None = work
        self.future: asyncio.Future[T] | None = future
        self.result: T | None = None
        self.error: BaseException | None = None

    def perform(self) -> None:
        """In a thread, or on the loop."""
        work, future = self.work, self.future
        self.work = None
        if work is None or future is None or future.cancelled():
            return
        del future  # a traceback must not hold it: the future will hold the traceback
        try:
            self.result = work()
        except BaseException as error:  # noqa: BLE001 - it is the future's
            self.error = error

    def tell(self) -> None:
        """On the loop."""
        future, error, result = self.future, self.error, self.result
        self.future = self.error = self.result = None
        if future is None or future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type]  # a T once it was performed


class Background:
    """The threads of one server. Belongs to its event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._queue: SimpleQueue[_Job[Any] | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._unfinished = 0  # jobs in the queue or under way
        self._retry: asyncio.TimerHandle | None = None
        self._pause = 0.0  # the latest before another attempt to start a thread; 0: the latest attempt succeeded
        self._stopping = False
        self._closed = False
        self._idle: asyncio.Event | None = None

    def lane(self, limit: int) -> Lane:
        """A lane for jobs of one kind, of which at most ``limit`` are under way."""
        return Lane(self, self._loop, limit)

    def start(self) -> None:
        """Have one thread from the beginning: with it everything goes on, whatever limit is reached later."""
        if not self._threads:
            self.lane(1).run(lambda: None)

    def prepare_stop(self) -> None:
        """From now on jobs do not wait for a thread that cannot be started."""
        self._stopping = True
        self._start_threads()

    async def close(self) -> None:
        """Wait for all jobs, then end the threads. Nothing may be handed over any more."""
        self.prepare_stop()
        while self._unfinished:
            self._idle = asyncio.Event()
            await self._idle.wait()
        self._closed = True
        if self._retry is not None:
            self._retry.cancel()
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join()
        self._threads.clear()

    def _hand_over(self, job: _Job[Any]) -> None:
        if self._closed:
            raise RuntimeError("the server has stopped: no thread works for it any more")
        self._unfinished += 1
        self._queue.put(job)
        if self._unfinished > len(self._threads) and (self._retry is None or self._stopping):
            self._start_threads()

    def _start_threads(self) -> None:
        """One for each job that has none. The lanes' limits bound them."""
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        while self._unfinished > len(self._threads):
            thread = start_thread(self._work, f"moldau-background-{len(self._threads) + 1}")
            if thread is None:
                self._not_started()
                return
            self._threads.append(thread)
        if self._pause:
            logger.info("Threads can be started again")
            self._pause = 0.0

    def _not_started(self) -> None:
        if not self._pause:
            logger.error(
                "A thread could not be started: the limit of processes and threads (ulimit -u, pids.max) is reached, "
                "or memory is short. %d jobs wait for %d threads, and starting one is tried again. Raise the limit.",
                self._unfinished,
                len(self._threads),
            )
        self._pause = min(self._pause * 2, _LONGEST_RETRY_SECONDS) if self._pause else _RETRY_SECONDS
        if self._stopping:
            if not self._threads:
                self._loop.call_soon(self._work_on_loop)
        else:
            self._retry = self._loop.call_later(self._pause, self._try_again)

    def _try_again(self) -> None:
        self._retry = None
        self._start_threads()

    def _work(self) -> None:
        """In a thread."""
        while (job := self._queue.get()) is not None:
            job.perform()
            try:
                self._loop.call_soon_threadsafe(self._finished, job)
            except RuntimeError:  # the loop was closed without `close`
                return
            del job

    def _work_on_loop(self) -> None:
        """One job; each end of one and each new one look for the next."""
        try:
            job = self._queue.get_nowait()
        except Empty:
            return
        if job is not None:
            job.perform()
            self._finished(job)
            self._loop.call_soon(self._work_on_loop)

    def _finished(self, job: _Job[Any]) -> None:
        self._unfinished -= 1
        job.lane._ended()
        job.tell()
        if not self._unfinished and self._idle is not None:
            self._idle.set()


class Lane:
    """Jobs of one kind; made by `Background.lane`. Those beyond the limit wait, first come first served."""

    __slots__ = ("_background", "_closed", "_limit", "_loop", "_running", "_waiting")

    def __init__(self, background: Background, loop: asyncio.AbstractEventLoop, limit: int) -> None:
        self._background = background
        self._closed = False
        self._loop = loop
        self._limit = limit
        self._running = 0
        self._waiting: deque[_Job[Any]] = deque()

    def run(self, work: Callable[[], T]) -> asyncio.Future[T]:
        """Run ``work`` in a thread, exactly once; the future has what it returns or raises.

        A cancelled future keeps work that has not begun from being done, and does not wait for work that has.
        """
        job = _Job(self, work, self._loop.create_future())
        future = job.future
        assert future is not None
        if self._closed:
            future.cancel()
        elif self._running < self._limit:
            self._background._hand_over(job)
            self._running += 1
        else:
            self._waiting.append(job)
        return future

    def close(self) -> None:
        """Cancel the jobs that wait for their place, and those that come later; the others end."""
        self._closed = True
        while self._waiting:
            future = self._waiting.popleft().future
            if future is not None:
                future.cancel()

    def _ended(self) -> None:
        """A job has ended: the next one has its place."""
        while self._waiting:
            job = self._waiting.popleft()
            if job.future is not None and not job.future.cancelled():
                self._background._hand_over(job)
                return
        self._running -= 1

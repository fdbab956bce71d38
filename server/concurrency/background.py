"""Starts all threads and processes that work outside of the event loop.

A system may refuse to start a thread: because of a limit of processes (`pids.max` of a container, `ulimit -u`), or
because memory is low. That must not end anything permanently, so jobs follow these rules:

* A `JobExecutor` limits how many jobs of one kind run concurrently. The threads are shared by all executors, so one
  thread is enough for everything to continue, if slowly.
* A job is queued before a thread is started for it. It is run exactly once, by the first free thread, and its future is
  done only after that. If a thread cannot be started, one error is logged, and the start is retried after a pause that
  grows from `_RETRY_SECONDS` to `_LONGEST_RETRY_SECONDS`. The jobs wait.
* During shutdown, if there is no thread at all, jobs run on the event loop: a shutdown needs no thread.

`ThreadPoolExecutor` follows none of these rules. Its `submit` queues the work before it starts a thread, and raises if
the start fails. The caller assumes that the work failed, although another thread may run it later, or never. asyncio's
default executor needs one more thread for its own shutdown. So a server uses neither.

Threads are daemons, and stay idle forever after their first use. A thread holds no reference to a job that has ended.
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
from typing import Any, Generic, Self, TypeVar, TypeVarTuple

logger = logging.getLogger(__name__)

T = TypeVar("T")
U = TypeVar("U")
Ts = TypeVarTuple("Ts")

_RETRY_SECONDS = 0.1
_LONGEST_RETRY_SECONDS = 2.0

_WITHOUT_THREADS = (
    "No thread is running yet. Blocked until then: loading of groups and transactions, flushes (flush.messages, "
    "--durable), decoding and compression of large batches, reads from disk, compaction, and moves of replicas. Other "
    "requests are served."
)

NOT_STARTED_ERRORS = (RuntimeError, MemoryError, OSError)
"""Errors if the system refuses to start a thread or a process. For a thread, Python raises RuntimeError."""


class ProcessNotStartedError(Exception):
    """The process was not started; the text has the reason. Retry later."""


def start_thread(target: Callable[[], None], name: str) -> threading.Thread | None:
    """Start a daemon thread. Returns None if the system refuses."""
    thread = threading.Thread(target=target, name=name, daemon=True)
    try:
        thread.start()
    except NOT_STARTED_ERRORS as error:
        logger.debug("Cannot start thread %s: %s", name, error)
        return None
    return thread


async def start_process(*command: str, environment: Mapping[str, str] | None = None) -> asyncio.subprocess.Process:
    """Start a child process with pipes to its standard input and output. Needs no thread if the system has pidfds.

    Raises:
        ProcessNotStartedError: the system refuses.
    """
    _watch_children_without_threads()
    pipe = asyncio.subprocess.PIPE
    try:
        return await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, env=environment)
    except NOT_STARTED_ERRORS as error:
        reason = error.strerror if isinstance(error, OSError) else None
        raise ProcessNotStartedError(f"cannot start the process: {reason or error}") from error


if sys.version_info < (3, 12) and sys.platform == "linux":
    # This version of Python starts a thread for each child process, to wait for its exit.

    class _PidfdWatcher(asyncio.AbstractChildWatcher):
        """Watches child processes by pidfds, in the event loop that has started them."""

        def add_child_handler(self, pid: int, callback: Callable[[int, int, *Ts], object], *args: *Ts) -> None:
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
            return False  # asyncio's transport never calls it

        def attach_loop(self, loop: asyncio.AbstractEventLoop | None) -> None:
            """No effect: the running loop is used."""

        def is_active(self) -> bool:
            return True

        def close(self) -> None:
            """There is nothing to close."""

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None:
            """There is nothing to close."""

    def _watch_children_without_threads() -> None:
        if type(asyncio.get_child_watcher()) is not asyncio.ThreadedChildWatcher:
            return  # already done, or a program that embeds the server has set another watcher
        try:
            os.close(os.pidfd_open(os.getpid()))
        except OSError:
            return  # an old kernel, or a sandbox
        asyncio.set_child_watcher(_PidfdWatcher())

else:

    def _watch_children_without_threads() -> None:
        """Later versions of Python use pidfds by default."""


def map_with_threads(function: Callable[[T], U], items: Iterable[T], threads: int) -> Iterator[U]:
    """``map`` with up to ``threads`` threads. The caller is one of them: without others, it does all the work.

    For work that blocks the event loop in any case, as during shutdown.
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
    __slots__ = ("error", "executor", "future", "result", "work")

    def __init__(self, executor: JobExecutor, work: Callable[[], T], future: asyncio.Future[T]) -> None:
        self.executor = executor
        self.work: Callable[[], T] | None = work
        self.future: asyncio.Future[T] | None = future
        self.result: T | None = None
        self.error: BaseException | None = None

    def perform(self) -> None:
        """Do the work. Runs in a thread, or on the event loop."""
        work, future = self.work, self.future
        self.work = None
        if work is None or future is None or future.cancelled():
            return
        del future  # a traceback must not hold it: the future will hold the traceback
        try:
            self.result = work()
        except BaseException as error:  # noqa: BLE001 - passed to the future
            self.error = error

    def complete(self) -> None:
        """Pass the outcome to the future. Runs on the event loop."""
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
        self._unfinished = 0  # jobs that are queued or running
        self._retry: asyncio.TimerHandle | None = None
        self._pause = 0.0  # the latest pause before a retry to start a thread; 0: the latest start succeeded
        self._stopping = False
        self._closed = False
        self._idle: asyncio.Event | None = None

    def executor(self, limit: int) -> JobExecutor:
        """Create an executor for jobs of one kind, of which at most ``limit`` run concurrently."""
        return JobExecutor(self, self._loop, limit)

    @property
    def has_threads(self) -> bool:
        """Whether a thread was started. With one thread, all jobs continue, if slowly."""
        return bool(self._threads)

    def start(self) -> None:
        """Start one thread early: with it, all jobs continue, whatever limit is reached later."""
        if not self._threads:
            self.executor(1).run(lambda: None)

    def prepare_stop(self) -> None:
        """From now on, jobs do not wait for a thread that cannot be started."""
        self._stopping = True
        self._start_threads()

    async def close(self) -> None:
        """Wait for all jobs, then end the threads. No more jobs are accepted."""
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

    def _enqueue(self, job: _Job[Any]) -> None:
        if self._closed:
            raise RuntimeError("the server has stopped; its threads accept no more jobs")
        self._unfinished += 1
        self._queue.put(job)
        if self._unfinished > len(self._threads) and (self._retry is None or self._stopping):
            self._start_threads()

    def _start_threads(self) -> None:
        """Start one thread for each job that has none. The limits of the executors bound their number."""
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        started = False
        while self._unfinished > len(self._threads):
            thread = start_thread(self._work, f"moldau-background-{len(self._threads) + 1}")
            if thread is None:
                self._not_started()
                return
            self._threads.append(thread)
            started = True
        if self._pause and started:
            logger.info("Starting threads works again")
            self._pause = 0.0

    def _not_started(self) -> None:
        if not self._pause:
            logger.error(
                "Cannot start a thread: the limit of processes and threads (ulimit -u, pids.max) is reached, "
                "or memory is low. Raise the limit; the start is retried. %s",
                f"Unfinished jobs: {self._unfinished}, threads: {len(self._threads)}."
                if self._threads
                else _WITHOUT_THREADS,
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
        """Run jobs in a thread, until the end of the queue."""
        while (job := self._queue.get()) is not None:
            job.perform()
            try:
                self._loop.call_soon_threadsafe(self._finished, job)
            except RuntimeError:  # the loop was closed without `close`
                return
            del job

    def _work_on_loop(self) -> None:
        """Run one job on the event loop. The end of a job and each new job schedule this again."""
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
        job.executor._ended()
        job.complete()
        if not self._unfinished and self._idle is not None:
            self._idle.set()


class JobExecutor:
    """An executor for jobs of one kind; created by `Background.executor`.

    Jobs beyond the limit wait, first come first served.
    """

    __slots__ = ("_background", "_closed", "_limit", "_loop", "_running", "_waiting")

    def __init__(self, background: Background, loop: asyncio.AbstractEventLoop, limit: int) -> None:
        self._background = background
        self._closed = False
        self._loop = loop
        self._limit = limit
        self._running = 0
        self._waiting: deque[_Job[Any]] = deque()

    def run(self, work: Callable[[], T]) -> asyncio.Future[T]:
        """Run ``work`` in a thread, exactly once. The future gets its result or its exception.

        Canceling the future prevents work that has not begun. It does not wait for work that has begun.
        """
        job = _Job(self, work, self._loop.create_future())
        future = job.future
        assert future is not None
        if self._closed:
            future.cancel()
        elif self._running < self._limit:
            self._background._enqueue(job)
            self._running += 1
        else:
            self._waiting.append(job)
        return future

    def close(self) -> None:
        """Cancel the waiting jobs, and those that are added later. Running jobs continue to their end."""
        self._closed = True
        while self._waiting:
            future = self._waiting.popleft().future
            if future is not None:
                future.cancel()

    def _ended(self) -> None:
        """A job has ended: start the next one in its place."""
        while self._waiting:
            job = self._waiting.popleft()
            if job.future is not None and not job.future.cancelled():
                self._background._enqueue(job)
                return
        self._running -= 1

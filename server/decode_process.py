"""The server's end of the process that looks at large batches (`decode_worker`): started when there is a job, ended
when there was none for `IDLE_SECONDS`, replaced when it dies.

The batches with the fewest declared bytes and records go first, a few at a time; the process gives each its turns. When
it dies, the jobs that it had are done again one by one, so that only the one is refused that it dies of.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from asyncio.subprocess import Process
from collections.abc import Callable
from itertools import count

from ..protocol.errors import ErrorCode, KafkaError
from .background import ProcessNotStartedError
from .decode_jobs import Job, Outcome, declared_records, internal_error, made_error

logger = logging.getLogger(__name__)

IDLE_SECONDS = 10.0
_JOBS_AT_ONCE = 8
_BYTES_AT_ONCE = 8 << 20

Done = Callable[[Outcome], None]


class Decoding:
    """A job that was handed over."""

    __slots__ = ("_cost", "alone", "done", "job", "number", "on_cancel")

    def __init__(self, number: int, job: Job, done: Done, on_cancel: Callable[[Decoding], None]) -> None:
        self.number = number
        self.job: Job | None = job
        self.done: Done | None = done
        self.on_cancel = on_cancel
        self.alone = False  # the process died of this job, or of another one
        self._cost = len(job.batch) + declared_records(job)

    def __lt__(self, other: Decoding) -> bool:
        return (not self.alone, self._cost, self.number) < (not other.alone, other._cost, other.number)

    def cancel(self) -> None:
        """What would come of it is not wanted any more: ``done`` is not called."""
        if self.done is not None:
            self.done = self.job = None
            self.on_cancel(self)

    def complete(self, outcome: Outcome) -> None:
        done, self.done, self.job = self.done, None, None
        if done is None:
            return
        try:
            done(outcome)
        except Exception:
            logger.exception("What came of a look at the records of a batch could not be used")


class DecodeProcess:
    """The process, and the jobs that wait for it. Belongs to the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._numbers = count(1)
        self._waiting: list[Decoding] = []  # a heap
        self._running: dict[int, Decoding] = {}
        self._running_bytes = 0
        self._process: Process | None = None
        self._ending: Process | None = None
        self._task: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._closed = False
        self._is_refused = False  # the system refused to start the process, the last time

    @property
    def pid(self) -> int | None:
        """Of the process, while there is one."""
        return self._process.pid if self._process is not None else None

    def submit(self, job: Job, done: Done) -> Decoding:
        """Do the job; ``done`` is called later."""
        decoding = Decoding(next(self._numbers), job, done, self._cancelled)
        if self._closed:
            self._loop.call_soon(decoding.complete, _stopping())
            return decoding
        heapq.heappush(self._waiting, decoding)
        self._wake.set()
        if self._task is None:
            self._task = self._loop.create_task(self._serve())
        elif self._process is not None:
            self._send_more()
        return decoding

    async def close(self) -> None:
        """End the process; what waits is refused."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    # The task

    async def _serve(self) -> None:
        try:
            while True:
                while self._waiting or self._running or await self._has_work_soon():
                    await self._work()
                await self._end_process()
                if not self._waiting:  # while it ended
                    break
        except Exception:
            logger.exception("The process that looks at large batches is given up; the next batch starts another")
        finally:
            await self._end_process()
            self._task = None
            outcome = _stopping() if self._closed else Outcome(error=internal_error())
            left, self._waiting = [*self._running.values(), *self._waiting], []
            self._running.clear()
            for decoding in left:
                decoding.complete(outcome)

    async def _has_work_soon(self) -> bool:
        self._wake.clear()
        try:
            async with asyncio.timeout(IDLE_SECONDS):
                await self._wake.wait()
        except TimeoutError:
            return False
        return True

    async def _work(self) -> None:
        """Start the process if there is none, and take its next answer."""
        from .worker_pipe import receive, start_worker

        if self._process is None:
            try:
                self._process = await start_worker("moldau.server.decode_worker")
            except ProcessNotStartedError as error:
                self._not_started(str(error))
                return
            if self._is_refused:
                logger.info("The process that looks at large batches could be started again")
                self._is_refused = False
        self._send_more()
        if not self._running:
            return
        try:
            answer = await receive(self._process)
        except (asyncio.IncompleteReadError, ConnectionError):
            await self._died()
            return
        match answer:
            case ("done", int(number), value):
                outcome = Outcome(value)
            case ("refused", int(number), int(code), message, record_errors):
                outcome = Outcome(error=made_error(code, message, record_errors))
            case ("failed", int(number), str(trace)):
                logger.error("Looking at the records of a batch failed with an unexpected error: %s", trace)
                outcome = Outcome(error=internal_error())
            case unknown:
                raise AssertionError(f"the worker says {unknown!r}")
        del answer
        decoding = self._forget(number)
        self._send_more()
        if decoding is not None:
            decoding.complete(outcome)

    def _send_more(self) -> None:
        from .worker_pipe import parts

        assert self._process is not None
        assert self._process.stdin is not None
        while self._waiting:
            decoding = self._waiting[0]
            job = decoding.job
            if job is None:
                heapq.heappop(self._waiting)
                continue
            size = len(job.batch)
            if self._running and (
                decoding.alone
                or any(other.alone for other in self._running.values())
                or len(self._running) >= _JOBS_AT_ONCE
                or self._running_bytes + size > _BYTES_AT_ONCE
            ):
                return
            heapq.heappop(self._waiting)
            self._running[decoding.number] = decoding
            self._running_bytes += size
            for part in parts(("job", decoding.number, job.to_send())):
                self._process.stdin.write(part)

    def _forget(self, number: int) -> Decoding | None:
        decoding = self._running.pop(number, None)
        if decoding is not None and decoding.job is not None:
            self._running_bytes -= len(decoding.job.batch)
        if not self._running:
            self._running_bytes = 0
        return decoding

    def _cancelled(self, decoding: Decoding) -> None:
        if decoding.number in self._running and self._process is not None and self._process.stdin is not None:
            from .worker_pipe import kill, message

            self._process.stdin.write(message(("cancel", decoding.number)))
            del self._running[decoding.number]
            if not self._running and self._task is not None:
                self._running_bytes = 0
                kill(self._process)  # its task waits for an answer that does not come

    async def _died(self) -> None:
        code = await self._end_process()
        running = list(self._running.values())
        self._running.clear()
        self._running_bytes = 0
        wanted = [decoding for decoding in running if decoding.done is not None]
        if wanted:
            logger.error("The process that looks at large batches ended with %s; it is started again", code)
        for decoding in wanted:
            if decoding.alone:
                decoding.complete(Outcome(error=internal_error()))
            else:
                decoding.alone = True
                heapq.heappush(self._waiting, decoding)

    def _not_started(self, reason: str) -> None:
        if not self._is_refused:
            logger.error(
                "There is no process to look at large batches: %s. Such batches are refused until then.", reason
            )
            self._is_refused = True
        refused, self._waiting = self._waiting, []
        for decoding in refused:
            # Clients try again.
            decoding.complete(
                Outcome(error=KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"Large batches cannot be decoded now: {reason}"))
            )

    async def _end_process(self) -> int | None:
        from .worker_pipe import end

        if self._process is not None:
            self._ending, self._process = self._process, None
        if self._ending is None:
            return None
        code = await end(self._ending)  # if this is cancelled, the next call goes on
        self._ending = None
        return code


def _stopping() -> Outcome:
    return Outcome(error=KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "The server stops."))

"""The server's side of the process that checks large batches (`decode_worker`).

The process is started when there is a job, stopped after `IDLE_SECONDS` without one, and restarted after a crash.

A large batch stays in the server. The process reads it piece by piece and returns the recompressed batch in pieces, so
that nothing large is copied in one step. Before a result arrives, the memory of the original batch is freed. There is
one such result at a time: the next one waits in the process until the result has been used.

The batches with the fewest declared bytes and records are sent first, a few at a time; the process switches between
them. After a crash, the jobs of the process are repeated one by one, so that only the job that causes the crash is
rejected.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from asyncio.subprocess import Process
from collections.abc import Callable
from itertools import count
from mmap import mmap
from typing import TYPE_CHECKING

from ...log.validation import LARGE_BYTES, Prepared
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.records import BATCH_OVERHEAD
from ..concurrency.background import ProcessNotStartedError

# Imported now and not when the process is needed: at that time there may be no free file descriptor.
from ..concurrency.worker_pipe import end, kill, message, parts, receive, start_worker
from ..network.huge_frames import free_steps, huge_frame
from .decode_jobs import Job, Outcome, build_error, declared_records, internal_error

if TYPE_CHECKING:
    from ..network.memory import MemoryBudget

logger = logging.getLogger(__name__)

IDLE_SECONDS = 10.0
_MAX_RUNNING_JOBS = 8
_MAX_RUNNING_BYTES = 8 << 20

Done = Callable[[Outcome], None]


class Decoding:
    """A submitted job."""

    __slots__ = (
        "_cost",
        "_result",
        "_result_filled",
        "alone",
        "done",
        "job",
        "max_timestamp",
        "number",
        "on_cancel",
        "size",
    )

    def __init__(self, number: int, job: Job, done: Done, on_cancel: Callable[[Decoding], None]) -> None:
        self.number = number
        self.job: Job | None = job
        self.done: Done | None = done
        self.on_cancel = on_cancel
        self.alone = False  # the process has crashed while this job ran: repeat it without other jobs
        self.size = len(job.batch)
        self._cost = self.size + declared_records(job)
        self._result: bytearray | mmap | None = None  # the recompressed large batch, as it arrives
        self._result_filled = 0
        self.max_timestamp = 0

    def __lt__(self, other: Decoding) -> bool:
        return (not self.alone, self._cost, self.number) < (not other.alone, other._cost, other.number)

    def cancel(self) -> None:
        """The result is no longer needed: ``done`` is not called."""
        if self.done is not None:
            self.done = self.job = None
            self.on_cancel(self)

    @property
    def result_bytes(self) -> int:
        """The size of the buffer for a large result in bytes; 0 until the first part is announced."""
        return len(self._result) if self._result is not None else 0

    def expect(self, size: int, max_timestamp: int) -> None:
        """A large result is about to arrive."""
        self._result = huge_frame(size) or bytearray(size)
        self.max_timestamp = max_timestamp

    def add(self, part: bytes) -> Outcome | None:
        """Add the next part of the result. Returns the outcome when it is complete."""
        assert self._result is not None
        end = self._result_filled + len(part)
        self._result[self._result_filled : end] = part
        self._result_filled = end
        if end < len(self._result):
            return None
        outcome = Outcome(Prepared(self.max_timestamp, (memoryview(self._result),)))
        outcome.held_bytes = end
        return outcome

    def complete(self, outcome: Outcome) -> None:
        done, self.done, self.job = self.done, None, None
        if done is None:
            return
        try:
            done(outcome)
        except Exception:
            logger.exception("Completing the check of a batch's records failed with an unexpected error")


class DecodeProcess:
    """The process and its pending jobs. Belongs to the event loop."""

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
        self.budget: MemoryBudget | None = None
        """The memory budget that large results count against."""
        self._held_bytes = 0  # size of a large result that has not been used yet
        self._result_released = asyncio.Event()
        self._is_refused = False  # the latest start of the process failed

    @property
    def pid(self) -> int | None:
        """The process id, while the process runs."""
        return self._process.pid if self._process is not None else None

    def submit(self, job: Job, done: Done) -> Decoding:
        """Run the job; ``done`` is called later."""
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
        """Stop the process; pending jobs are rejected."""
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
                if not self._waiting:  # submitted while it ended
                    break
        except Exception:
            logger.exception(
                "The process that checks large batches failed with an unexpected error; the next batch starts a new one"
            )
        finally:
            await self._end_process()
            self._task = None
            outcome = _stopping() if self._closed else Outcome(error=internal_error())
            left, self._waiting = [*self._running.values(), *self._waiting], []
            self._running.clear()
            for decoding in left:
                self.release_result(decoding.result_bytes)
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
        """Start the process if it does not run, and handle its next message."""
        if self._process is None:
            try:
                self._process = await start_worker("moldau.server.records.decode_worker")
            except ProcessNotStartedError as error:
                self._not_started(str(error))
                return
            if self._is_refused:
                logger.info("The process that checks large batches was restarted")
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
            case ("read", int(number), int(start), int(end)):
                self._send_piece(number, start, end)
                return
            case ("result", int(number), int(max_timestamp), int(size)):
                await self._expect(number, max_timestamp, size)
                return
            case ("part", int(number), part):
                expecting = self._running.get(number)
                complete = expecting.add(part) if expecting is not None else None
                if complete is None:
                    return
                outcome = complete
            case ("done", int(number), value):
                outcome = Outcome(value)
            case ("refused", int(number), int(code), message, record_errors):
                outcome = Outcome(error=build_error(code, message, record_errors))
            case ("failed", int(number), str(trace)):
                logger.error("Checking the records of a batch failed with an unexpected error: %s", trace)
                outcome = Outcome(error=internal_error())
            case unknown:
                raise AssertionError(f"unexpected message from the worker: {unknown!r}")
        del answer
        decoding = self._forget(number)
        self._send_more()
        if decoding is not None:
            decoding.complete(outcome)

    def _send_more(self) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        while self._waiting:
            decoding = self._waiting[0]
            job = decoding.job
            if job is None:
                heapq.heappop(self._waiting)
                continue
            size = decoding.size
            if self._running and (
                decoding.alone
                or any(other.alone for other in self._running.values())
                or len(self._running) >= _MAX_RUNNING_JOBS
                or self._running_bytes + size > _MAX_RUNNING_BYTES
            ):
                return
            heapq.heappop(self._waiting)
            self._running[decoding.number] = decoding
            self._running_bytes += size
            message = (
                ("job", decoding.number, job.to_send())
                if size <= LARGE_BYTES
                else ("large", decoding.number, job.without_records(), size - BATCH_OVERHEAD)
            )
            for part in parts(message):
                self._process.stdin.write(part)

    def _send_piece(self, number: int, start: int, end: int) -> None:
        """Send a piece of the records of a large batch. If its job was cancelled, the process gets that message."""
        decoding = self._running.get(number)
        if decoding is None or decoding.job is None or self._process is None:
            return
        from pickle import PickleBuffer  # see `worker_pipe`

        assert self._process.stdin is not None
        piece = memoryview(decoding.job.batch)[BATCH_OVERHEAD + start : BATCH_OVERHEAD + end]
        for part in parts(("bytes", number, start, PickleBuffer(piece))):
            self._process.stdin.write(part)

    async def _expect(self, number: int, max_timestamp: int, size: int) -> None:
        """Prepare for the result of a large batch, which replaces the batch."""
        while self._held_bytes:
            self._result_released.clear()
            await self._result_released.wait()
        decoding = self._running.get(number)
        if decoding is None or decoding.job is None:
            return
        for _ in free_steps(decoding.job.batch):
            await asyncio.sleep(0)
        if self._running.get(number) is decoding:  # not cancelled in the meantime
            decoding.expect(size, max_timestamp)
            self._held_bytes += size
            if self.budget is not None:
                self.budget.add(size)

    def release_result(self, size: int) -> None:
        """A large result (`Outcome.held_bytes`) is no longer in use."""
        if not size:
            return
        self._held_bytes -= size
        if not self._held_bytes:
            self._result_released.set()
        if self.budget is not None:
            self.budget.release_kept(size)

    def _forget(self, number: int) -> Decoding | None:
        decoding = self._running.pop(number, None)
        if decoding is not None:
            self._running_bytes -= decoding.size
        if not self._running:
            self._running_bytes = 0
        return decoding

    def _cancelled(self, decoding: Decoding) -> None:
        if decoding.number in self._running and self._process is not None and self._process.stdin is not None:
            self._process.stdin.write(message(("cancel", decoding.number)))
            del self._running[decoding.number]
            self._running_bytes -= decoding.size
            self.release_result(decoding.result_bytes)
            if not self._running and self._task is not None:
                self._running_bytes = 0
                kill(self._process)  # its task waits for a message that will not arrive

    async def _died(self) -> None:
        code = await self._end_process()
        running = list(self._running.values())
        self._running.clear()
        self._running_bytes = 0
        wanted = [decoding for decoding in running if decoding.done is not None]
        if wanted:
            logger.error("The process that checks large batches exited with %s; restarting it", code)
        for decoding in wanted:
            if decoding.result_bytes:
                # The original batch has been freed. Clients retry.
                self.release_result(decoding.result_bytes)
                decoding.complete(
                    Outcome(
                        error=KafkaError(
                            ErrorCode.REQUEST_TIMED_OUT, "The process that checks large batches exited; retry"
                        )
                    )
                )
            elif decoding.alone:
                decoding.complete(Outcome(error=internal_error()))
            else:
                decoding.alone = True
                heapq.heappush(self._waiting, decoding)

    def _not_started(self, reason: str) -> None:
        if not self._is_refused:
            logger.error(
                "Cannot start the process that checks large batches: %s. Large batches are rejected until it starts.",
                reason,
            )
            self._is_refused = True
        refused, self._waiting = self._waiting, []
        for decoding in refused:
            # Clients retry.
            decoding.complete(
                Outcome(
                    error=KafkaError(
                        ErrorCode.REQUEST_TIMED_OUT, f"Large batches cannot be checked now; retry later: {reason}"
                    )
                )
            )

    async def _end_process(self) -> int | None:
        if self._process is not None:
            self._ending, self._process = self._process, None
        if self._ending is None:
            return None
        code = await end(self._ending)  # if this is cancelled, the next call continues
        self._ending = None
        return code


def _stopping() -> Outcome:
    return Outcome(error=KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "The server is shutting down."))

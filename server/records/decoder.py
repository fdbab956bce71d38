"""Checks the records of batches, away from the event loop if that may take long.

There are three places, chosen by the maximum cost of a batch:

* the event loop, for a batch that takes one step (2 ms) and little memory: most batches, at the cost of a call;
* a thread, for a batch of moderate size. The codecs release the interpreter lock. Checking the records does not, but it
  is short;
* the process of `decode_process`, for all other batches; it switches between jobs.

The declarations of a batch are not trusted. The header determines where a job starts, and a job that exceeds the limits
of its place is restarted in the next one. The number of records that the header declares bounds how many are processed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Hashable
from functools import partial
from typing import TypeVar

from ...protocol.record_scan import STEP_ELEMENTS
from ..concurrency.background import JobExecutor
from .decode_jobs import Job, Outcome, attempt, declared_records, internal_error
from .decode_process import DecodeProcess, Decoding, Done

logger = logging.getLogger(__name__)

T = TypeVar("T")

INLINE_BYTES = 16 * 1024
INLINE_DECOMPRESSED_BYTES = 128 * 1024
_THREAD_BYTES = 4 << 20
_THREAD_DECOMPRESSED_BYTES = 4 << 20
_THREAD_STEPS = 6


class Decoder:
    """The three places. Belongs to the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, executor: JobExecutor) -> None:
        self._executor = executor
        self.process = DecodeProcess(loop)
        self._shared: dict[Hashable, _Shared] = {}

    @staticmethod
    def attempt_now(job: Job, max_bytes: int = INLINE_BYTES) -> Outcome | None:
        """Run a small job immediately; None if the job is too large."""
        if len(job.batch) > max_bytes or declared_records(job) > STEP_ELEMENTS:
            return None
        return attempt(job, 1, INLINE_DECOMPRESSED_BYTES)

    def submit(self, job: Job, done: Done) -> Callable[[], None]:
        """Run the job in a thread or in the process, and call ``done`` later. Identical jobs run once.

        Call the returned function to cancel.
        """
        identity = job.identity
        if identity is None:
            return self._begin(job, done)
        shared = self._shared.get(identity)
        if shared is None:
            shared = self._shared[identity] = _Shared(partial(self._shared.pop, identity))
            shared.cancel = self._begin(job, shared.complete)
        return shared.add(done)

    def _begin(self, job: Job, done: Done) -> Callable[[], None]:
        if len(job.batch) <= _THREAD_BYTES and declared_records(job) <= _THREAD_STEPS * STEP_ELEMENTS:
            in_thread = _InThread(self, job, done)
            in_thread.start(self._executor)
            return in_thread.cancel
        return self.process.submit(job, done).cancel

    async def close(self) -> None:
        """Stop the process; its pending jobs are rejected."""
        await self.process.close()


class _Shared:
    """A job with several callers."""

    __slots__ = ("_dones", "_forget", "cancel")

    def __init__(self, forget: Callable[[], object]) -> None:
        self._forget = forget
        self._dones: dict[object, Done] = {}
        self.cancel: Callable[[], None] | None = None

    def add(self, done: Done) -> Callable[[], None]:
        token = object()
        self._dones[token] = done
        return partial(self._remove, token)

    def _remove(self, token: object) -> None:
        if self._dones.pop(token, None) is not None and not self._dones:
            self._forget()
            if self.cancel is not None:
                self.cancel()

    def complete(self, outcome: Outcome) -> None:
        self._forget()
        dones, self._dones = self._dones, {}
        for done in dones.values():
            complete_safely(done, outcome)


class _InThread:
    """A job in a thread. If the job is too large for a thread, it is submitted to the process."""

    __slots__ = ("_decoder", "_decoding", "_done", "_job")

    def __init__(self, decoder: Decoder, job: Job, done: Done) -> None:
        self._decoder = decoder
        self._job: Job | None = job
        self._done: Done | None = done
        self._decoding: Decoding | None = None

    def start(self, executor: JobExecutor) -> None:
        assert self._job is not None
        work = partial(attempt, self._job, _THREAD_STEPS, _THREAD_DECOMPRESSED_BYTES)
        executor.run(work).add_done_callback(self._ended)

    def cancel(self) -> None:
        self._job = self._done = None
        if self._decoding is not None:
            self._decoding.cancel()

    def _ended(self, future: asyncio.Future[Outcome | None]) -> None:
        job, done = self._job, self._done
        self._job = self._done = None
        if done is None or job is None:
            return
        outcome: Outcome | None
        if future.cancelled() or future.exception() is not None:  # `attempt` does not raise
            outcome = Outcome(error=internal_error())
        else:
            outcome = future.result()
        if outcome is None:
            self._decoding = self._decoder.process.submit(job, done)
            return
        complete_safely(done, outcome)


def complete_safely(done: Callable[[T], object], outcome: T) -> None:
    """Call ``done``. An exception is logged, so that other callbacks are still called."""
    try:
        done(outcome)
    except Exception:
        logger.exception("Completing the check of a batch's records failed with an unexpected error")

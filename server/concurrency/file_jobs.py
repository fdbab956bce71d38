"""File work outside of the event loop, through aiofiles: checkpoints, snapshots, directories, files to unlink.

aiofiles passes each call to an executor. By default that is asyncio's own, which needs a thread for its shutdown and
loses work if a thread cannot be started. So aiofiles gets an executor that uses a `JobExecutor` of `background`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from typing import ParamSpec, TypeVar

from .background import JobExecutor

T = TypeVar("T")
P = ParamSpec("P")


class FileJobs:
    """File jobs other than flushes and cold reads. No request waits for them."""

    __slots__ = ("_executor",)

    def __init__(self, executor: JobExecutor) -> None:
        self._executor = ExecutorAdapter(executor)

    async def run(self, work: Callable[[], T]) -> T:
        """Run ``work`` once in a thread, and return or raise its outcome. Work that has not begun can be canceled."""
        from aiofiles.base import wrap  # imported here: it would slow down startup

        result: T = await wrap(work)(executor=self._executor)
        return result


class ExecutorAdapter(Executor):
    """A `JobExecutor` as an executor for `asyncio.AbstractEventLoop.run_in_executor`. Belongs to one event loop."""

    def __init__(self, executor: JobExecutor) -> None:
        self._executor = executor

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        result: Future[T] = Future()
        job = self._executor.run(partial(fn, *args, **kwargs))
        job.add_done_callback(partial(_copy_outcome, result))
        result.add_done_callback(partial(_cancel_too, job))
        return result


def _copy_outcome(result: Future[T], job: asyncio.Future[T]) -> None:
    if result.cancelled():
        if not job.cancelled():
            job.exception()  # the work had begun; its outcome is no longer needed
        return
    if job.cancelled():
        result.cancel()
        return
    error = job.exception()
    if error is not None:
        result.set_exception(error)
    else:
        result.set_result(job.result())


def _cancel_too(job: asyncio.Future[T], result: Future[T]) -> None:
    if result.cancelled():
        job.cancel()

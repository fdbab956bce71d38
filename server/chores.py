"""File work beside the event loop, by way of aiofiles: checkpoints, snapshots, directories, files to be unlinked.

aiofiles hands each call to an executor. Without one it takes asyncio's own, which needs a thread to be shut down and
loses work when a thread cannot be started; so it gets one here that is a lane of `background`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from typing import ParamSpec, TypeVar

from .background import Lane

T = TypeVar("T")
P = ParamSpec("P")


class Chores:
    """Jobs that are neither a flush nor a cold read, and that a request never waits for."""

    __slots__ = ("_executor",)

    def __init__(self, lane: Lane) -> None:
        self._executor = LaneExecutor(lane)

    async def run(self, work: Callable[[], T]) -> T:
        """What ``work`` returns or raises in a thread, run once. Cancelled, it is not begun if it has not been."""
        from aiofiles.base import wrap  # a server's start would pay for it

        result: T = await wrap(work)(executor=self._executor)
        return result


class LaneExecutor(Executor):
    """A lane, as what `asyncio.AbstractEventLoop.run_in_executor` takes. Belongs to the event loop, like the lane."""

    def __init__(self, lane: Lane) -> None:
        self._lane = lane

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        result: Future[T] = Future()
        job = self._lane.run(partial(fn, *args, **kwargs))
        job.add_done_callback(partial(_copy_outcome, result))
        result.add_done_callback(partial(_cancel_too, job))
        return result


def _copy_outcome(result: Future[T], job: asyncio.Future[T]) -> None:
    if result.cancelled():
        if not job.cancelled():
            job.exception()  # the work had begun; its outcome is not wanted any more
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

"""Waiting for a condition that nothing reports: the state of another process, or of another thread.

Most waits of a test are for a response, and need no loop. This module is for the others: what a server does after its
response, files, processes, counters of another thread. The limit is generous, because a test must hold on a busy
machine; the wait ends as soon as the condition holds.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")
Errors = type[Exception] | tuple[type[Exception], ...]

WAIT_SECONDS = 180.0
PAUSE_SECONDS = 0.01


def wait_until(
    condition: Callable[[], T | None],
    what: str = "",
    *,
    seconds: float = WAIT_SECONDS,
    pause: float = PAUSE_SECONDS,
    retry: Errors = (),
    state: Callable[[], object] | None = None,
) -> T:
    """Call ``condition`` every ``pause`` seconds until its result is true, and return that.

    Errors of the types ``retry`` mean that the condition does not hold yet; another error ends the wait. ``what``
    describes the condition in the failure (default: its source), and ``state`` returns what else to show there.

    Raises:
        TimeoutError: the condition has not become true within ``seconds``. The message has the description, the last
            result or error, and the state.
    """
    wait = _Wait(condition, what, seconds, retry, state)
    while not wait.is_over():
        time.sleep(pause)
    return wait.result


async def wait_until_async(
    condition: Callable[[], T | None],
    what: str = "",
    *,
    seconds: float = WAIT_SECONDS,
    pause: float = PAUSE_SECONDS,
    retry: Errors = (),
    state: Callable[[], object] | None = None,
) -> T:
    """`wait_until` for the event loop that runs it. With a ``pause`` of 0, it checks in each iteration of the loop."""
    wait = _Wait(condition, what, seconds, retry, state)
    while not wait.is_over():  # noqa: ASYNC110 - nothing reports it
        await asyncio.sleep(pause)
    return wait.result


class _Wait(Generic[T]):
    """The checks of one condition until a deadline."""

    def __init__(
        self,
        condition: Callable[[], T | None],
        what: str,
        seconds: float,
        retry: Errors,
        state: Callable[[], object] | None,
    ) -> None:
        self._condition = condition
        self._what = what
        self._seconds = seconds
        self._retry = retry
        self._state = state
        self._deadline = time.monotonic() + seconds
        self.result: T

    def is_over(self) -> bool:
        """Check the condition once. Raises TimeoutError if it does not hold in a check that began too late."""
        late = time.monotonic() >= self._deadline
        failure: Exception | None = None
        result: T | None = None
        try:
            result = self._condition()
        except self._retry as error:
            failure = error
        if result:
            self.result = result
            return True
        if late:
            last = f"last result {result!r}" if failure is None else f"last error {failure!r}"
            state = "" if self._state is None else f"\n{self._state()}"
            raise TimeoutError(
                f"not within {self._seconds:g} s: {self._what or _source(self._condition)}; {last}{state}"
            ) from failure
        return False


def _source(condition: Callable[[], object]) -> str:
    """The source of the condition, without line breaks."""
    try:
        return " ".join(inspect.getsource(condition).split())
    except (OSError, TypeError):
        return repr(condition)

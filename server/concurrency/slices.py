"""Long work on the event loop, in slices, so that other connections are served in between.

Some requests cost much more than others: thousands of partitions in one request, all topics of a large cluster in one
response, the first request of an API version, whose code must be compiled. Such work is a generator that yields often
(every tenth of a millisecond or so). Each yielded number is the number of elements (structs, strings, numbers in
arrays) that the work has added to memory since the previous one; 0 is a mere pause.

- The first slice runs immediately, so short work costs no more than a generator. The rest continues in later iterations
  of the loop, in turns: `SLICE_MS` in each iteration for all work together.
- The elements of all work together are bounded. Above `MAX_ELEMENTS`, only the oldest work continues, so that it can
  finish and release its elements, and work that holds at most `FEW_ELEMENTS`. The waiting work has hardly been decoded:
  it holds only the bytes of its frame, which `memory` bounds.
- Work whose connection is closed is closed. Work that must not be left half done continues without the connection
  (`shielded`).
- Work that changes what other work of its kind reads runs one after the other (`exclusively`). Work that waits for the
  others is not resumed before its turn. The exclusive work may always continue, so that it never waits for work that
  waits for it.
- Work that waits for something outside of the slices, such as a sync, is suspended until the result is there
  (`SlicedFuture`). It keeps its elements, and costs nothing meanwhile.
- While work holds many elements, the garbage collector is disabled. Its full collections would visit all elements again
  and again, for a tenth of a second each time. Elements are not garbage, and they are bounded.

This module does not know what the work is. Work must leave shared state consistent whenever it yields.
"""

from __future__ import annotations

import gc
import logging
import math
import time
from collections import deque
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

from ...protocol.steps import freed

if TYPE_CHECKING:
    import asyncio
    from concurrent.futures import Future

    from .timers import TimerWheel

logger = logging.getLogger(__name__)

T = TypeVar("T")

Sliced = Generator[int, None, T]
"""Work in slices that returns a T. Handlers return it for requests that may have long arrays."""

SLICE_MS = 2.0
FIRST_SLICE_MS = 1.0
# The first slice while other work waits for its next one: new requests must not add up to a long iteration.
SHORT_SLICE_MS = 0.25

MAX_ELEMENTS = 100_000
"""Above this total, all work except the oldest waits. An element and its part of the response take about 300 bytes."""

FEW_ELEMENTS = 1000
"""Work that holds at most this many never waits for other work to finish."""


WAITS: Final = -1
"""Yielded in place of a number while other work has what this work needs (`Slices.exclusively`)."""


SUSPENDED: Final = -2
"""Yielded in place of a number to suspend the work until it is resumed (`SlicedFuture`)."""


class Owner(Protocol):
    """The request that the work belongs to."""

    cancelled: bool
    """Its connection is closed."""


class _NoRequest:
    """The owner of work that is always completed."""

    cancelled = False


class Work:
    """A generator and its state."""

    __slots__ = ("elements", "owner", "steps", "suspended", "waits")

    def __init__(self, steps: Sliced[None], owner: Owner) -> None:
        self.steps = steps
        self.owner = owner
        self.elements = 0
        self.waits = False  # until no work is exclusive
        self.suspended = False  # until it is resumed


class Slices:
    """All work of one server that is done in slices."""

    def __init__(
        self,
        call_soon: Callable[[Callable[[], None]], object],
        *,
        clock: Callable[[], float] = time.perf_counter,
        max_elements: int = MAX_ELEMENTS,
    ) -> None:
        """``call_soon`` calls back in the next iteration of the loop. ``clock`` is in seconds."""
        self._call_soon = call_soon
        self.clock = clock
        self._max_elements = max_elements
        self._round: deque[Work] = deque()
        self._ages: dict[Work, None] = {}  # the oldest first
        self.measured: Callable[[Sliced[None]], Sliced[None]] | None = None
        """Wraps new work, to measure it."""
        self._scheduled = False
        self._gc_disabled = False
        self._running: Work | None = None
        self._taken = False  # by exclusive work, which is `_exclusive` once it continues in slices
        self._exclusive: Work | None = None
        self.elements = 0
        """The elements of all unfinished work."""

    def __len__(self) -> int:
        """How many generators wait for their next slice."""
        return len(self._round)

    @property
    def first_slice_ms(self) -> float:
        """The duration of the first slice of new work."""
        return SHORT_SLICE_MS if self._round else FIRST_SLICE_MS

    def begin(self, steps: Sliced[None], owner: Owner, *, immediately: bool = True) -> bool:
        """Begin work, and run its first slice if ``immediately``. Returns whether the work is done."""
        if self.measured is not None:
            steps = self.measured(steps)
        work = Work(steps, owner)
        if immediately and self._run(work, self.clock() + self.first_slice_ms / 1000):
            return True
        self._ages[work] = None
        if not work.suspended:
            self._round.append(work)
            self._schedule()
        return False

    def begin_shielded(self, steps: Sliced[None], *, immediately: bool = False) -> None:
        """Begin work that belongs to no request. It is always completed."""
        self.begin(steps, _NoRequest(), immediately=immediately)

    @property
    def running(self) -> Work | None:
        """The work that is running a step now."""
        return self._running

    def resume(self, work: Work, *, immediately: bool = False) -> None:
        """Resume suspended work in the next iteration or, if ``immediately``, with a slice before this returns."""
        if not work.suspended:
            return
        work.suspended = False
        if immediately and self._may_continue(work) and self._run(work, self.clock() + self.first_slice_ms / 1000):
            del self._ages[work]
            self._schedule()  # other work may have waited for it, as the oldest
        elif not work.suspended:
            self._round.append(work)
            self._schedule()

    def exclusively(self, steps: Sliced[T]) -> Sliced[T]:
        """The same work, run while no other work of this kind is between its first step and its last.

        It must not leave its request pending. While it is suspended, no other work of this kind can begin.
        """
        while self._taken:
            yield WAITS
        self._taken = True
        try:
            while True:
                self._exclusive = self._running
                try:
                    more = next(steps)
                except StopIteration as end:
                    result: T = end.value
                    return result
                yield more
        finally:
            self._taken = False
            self._exclusive = None
            steps.close()

    def shielded(self, steps: Sliced[None]) -> Sliced[None]:
        """The same work, which is completed even if the connection is closed meanwhile."""
        try:
            for more in steps:  # noqa: UP028 - `yield from` would close the steps
                yield more
        except GeneratorExit:
            self.begin_shielded(steps)
            raise

    def close(self) -> None:
        """Close all work during shutdown, except work that is always completed: that is run to its end."""
        while self._round:
            work = self._round.popleft()
            del self._ages[work]
            if not isinstance(work.owner, _NoRequest):
                self._give_up(work)
            elif not self._run(work, math.inf):
                self._ages[work] = None
        while self._ages:  # suspended, and never resumed again; closing one may complete others
            work = next(iter(self._ages))
            del self._ages[work]
            self._give_up(work)
        self._round.clear()  # work that was resumed while other work was closed

    def _give_up(self, work: Work) -> None:
        work.suspended = False
        work.steps.close()
        self._hold(work, -work.elements)

    def _schedule(self) -> None:
        if self._round and not self._scheduled:
            self._scheduled = True
            self._call_soon(self._turn)

    def _turn(self) -> None:
        """Run one slice: of one generator, or of several short ones."""
        self._scheduled = False
        until = self.clock() + SLICE_MS / 1000
        while self._round:
            work = self._next()
            if work is None:
                return
            if self._run(work, until):
                del self._ages[work]
            elif not work.suspended:
                self._round.append(work)
                break
            if self.clock() >= until:
                break
        self._schedule()

    def _next(self) -> Work | None:
        """Remove the work that continues now from the round; None if all waits for the oldest, which is suspended."""
        for _ in range(len(self._round)):
            work = self._round.popleft()
            if self._may_continue(work):
                return work
            self._round.append(work)
        return None

    def _may_continue(self, work: Work) -> bool:
        if work.waits and self._taken:
            return False
        return (
            self.elements <= self._max_elements
            or work.elements <= FEW_ELEMENTS
            or work is next((each for each in self._ages if not each.suspended or each.elements > FEW_ELEMENTS), work)
            or work is self._exclusive  # the oldest may wait for it
        )

    def _run(self, work: Work, until: float) -> bool:
        """Run the work until ``until``, or until it must wait. Returns whether it is done."""
        steps, clock = work.steps, self.clock
        work.waits = False
        outer, self._running = self._running, work
        try:
            if work.owner.cancelled:
                steps.close()
            else:
                for more in steps:
                    if more:
                        if more < 0:
                            work.waits = more == WAITS
                            work.suspended = more == SUSPENDED
                            return False
                        self._hold(work, more)
                        if not self._may_continue(work):
                            return False
                    if clock() >= until:
                        return False
        except Exception:
            logger.exception("A sliced task failed with an unexpected error")
        finally:
            self._running = outer
        self._hold(work, -work.elements)
        return True

    def _hold(self, work: Work, more: int) -> None:
        work.elements += more
        self.elements += more
        if self.elements > FEW_ELEMENTS:
            if not self._gc_disabled and gc.isenabled():
                self._gc_disabled = True
                gc.disable()
        elif self._gc_disabled:
            self._gc_disabled = False
            gc.enable()


class SlicedFuture(Generic[T]):
    """A result that is available later, once, for work that is suspended until then."""

    __slots__ = ("_error", "_immediately", "_result", "_slices", "_work", "is_done")

    def __init__(self, slices: Slices, *, immediately: bool = False) -> None:
        """``immediately``: the work continues before `succeed` or `fail` returns, not in the next iteration.

        If work passes its result to other work in this way, the chain must be finite.
        """
        self._slices = slices
        self._immediately = immediately
        self._work: Work | None = None
        self._result: T | None = None
        self._error: Exception | None = None
        self.is_done = False

    def succeed(self, result: T) -> None:
        """Set the result."""
        self._result = result
        self._end()

    def fail(self, error: Exception) -> None:
        """Set an error instead of a result: the waiting work fails with it."""
        self._error = error
        self._end()

    def end_like(self, job: asyncio.Future[T] | Future[T]) -> None:
        """Take the outcome of a job in a thread that has ended. A cancelled job has none."""
        error = job.exception()
        if error is None:
            self.succeed(job.result())
        else:
            self.fail(error if isinstance(error, Exception) else RuntimeError(str(error)))

    def _end(self) -> None:
        self.is_done = True
        if self._work is not None:
            self._slices.resume(self._work, immediately=self._immediately)

    def result(self) -> Sliced[T]:
        """Wait for the result. May be used once. Raises the error of `fail`."""
        while not self.is_done:
            self._work = self._slices.running
            yield SUSPENDED
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[return-value]  # a T once it succeeded


def outcome(slices: Slices, job: asyncio.Future[T]) -> Sliced[T]:
    """Suspend the work until a job in a thread has ended. If it is canceled, because the server stops, the work is not
    resumed."""
    later: SlicedFuture[T] = SlicedFuture(slices)

    def ended(job: asyncio.Future[T]) -> None:
        if not job.cancelled():
            later.end_like(job)

    job.add_done_callback(ended)
    return (yield from later.result())


def pause(slices: Slices, timers: TimerWheel, milliseconds: float) -> Sliced[None]:
    """Suspend the work for this time."""
    later: SlicedFuture[None] = SlicedFuture(slices)
    timer = timers.call_after(milliseconds, lambda: later.succeed(None))
    try:
        yield from later.result()
    finally:
        timer.cancel()


def within(steps: Sliced[T], limit: int) -> Sliced[tuple[T, int]]:
    """The same work, which fails with `TooManyElementsError` once it has yielded more than ``limit`` elements.

    Returns the result of the work and the number of elements.
    """
    elements = 0
    while True:
        try:
            more = next(steps)
        except StopIteration as end:
            result: T = end.value
            return result, elements
        elements += more
        if elements > limit:
            steps.close()
            raise TooManyElementsError(elements)
        yield more


class TooManyElementsError(Exception):
    """The work has yielded more elements than its limit; ``elements`` is their number so far."""

    def __init__(self, elements: int) -> None:
        super().__init__(elements)
        self.elements = elements


def release(message: object) -> Sliced[None]:
    """Free a message with long arrays in steps: freeing hundreds of thousands of structs takes time, too."""
    for field in getattr(message, "FIELDS", ()):
        items = getattr(message, field.name)
        if not field.is_array or not isinstance(items, list):
            continue
        if field.struct is None and len(items) <= _FEW_NUMBERS:
            continue  # freeing it costs nothing, and it may be in use elsewhere
        nested = field.struct is not None and any(each.is_array for each in field.struct.FIELDS)
        while items and nested:
            yield from release(items[-1])
            items.pop()
            yield 0
        yield from freed(items)


_FEW_NUMBERS = 512

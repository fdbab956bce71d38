"""Long work on the event loop, in slices, so that other connections are served in between.

Some requests cost much more than others: thousands of partitions in one request, all topics of a large cluster in one
answer, the first request of an API version, for which code has to be compiled. Such work is a generator that yields
often (every tenth of a millisecond or so), and yields how many elements (structs, strings, numbers in arrays) it holds
in memory since it last yielded; 0 for a mere pause.

- The first slice runs at once, so that work which turns out to be short costs nothing more than a generator. What is
  left goes on in later turns of the loop, `SLICE_MS` in each turn for all work together, in a round.
- Elements are bounded for all work together: above `MAX_ELEMENTS` only the oldest goes on, so that it can finish and
  release what it holds, and work that holds no more than `FEW_ELEMENTS`. What waits then has hardly been decoded, and
  holds the bytes of its frame alone, which `memory` bounds.
- Work whose connection is gone is closed.
- While work holds many elements, the garbage collector rests: its full collections would look at all of them, again and
  again, for a tenth of a second each time. They are no garbage, and they are bounded.

Nothing here knows what the work is. Work must leave shared state consistent whenever it yields.
"""

from __future__ import annotations

import gc
import logging
import time
from collections import deque
from collections.abc import Callable, Generator
from typing import Protocol, TypeVar

logger = logging.getLogger(__name__)

T = TypeVar("T")

Sliced = Generator[int, None, T]
"""Work in slices that returns a T: what a handler returns whose request may have long arrays."""

SLICE_MS = 2.0
FIRST_SLICE_MS = 1.0
# The same while other work waits for its next slice: new requests must not add up to a long turn.
SHORT_SLICE_MS = 0.25

MAX_ELEMENTS = 100_000
"""Together, before all but the oldest wait. An element and its part of the answer take about 300 bytes."""

FEW_ELEMENTS = 1000
"""Work that holds no more never waits for other work to finish."""


class Owner(Protocol):
    """The request that the work is for."""

    abandoned: bool
    """Its connection is closed."""


class Work:
    """A generator on its way."""

    __slots__ = ("elements", "owner", "steps")

    def __init__(self, steps: Sliced[None], owner: Owner) -> None:
        self.steps = steps
        self.owner = owner
        self.elements = 0


class Slices:
    """All work of one server that is done in slices."""

    def __init__(
        self,
        call_soon: Callable[[Callable[[], None]], object],
        *,
        clock: Callable[[], float] = time.perf_counter,
        max_elements: int = MAX_ELEMENTS,
    ) -> None:
        """``call_soon`` calls back in the next turn of the loop; ``clock`` is in seconds."""
        self._call_soon = call_soon
        self._clock = clock
        self._max_elements = max_elements
        self._round: deque[Work] = deque()
        self._ages: dict[Work, None] = {}  # the oldest first
        self._scheduled = False
        self._collector_rests = False
        self.elements = 0
        """Held by all work that is not done."""

    def __len__(self) -> int:
        """How much work waits for its next slice."""
        return len(self._round)

    def begin(self, steps: Sliced[None], owner: Owner, *, at_once: bool = True) -> bool:
        """Run the first slice, if ``at_once``; whether that was all."""
        work = Work(steps, owner)
        slice_ms = 0.0 if not at_once else SHORT_SLICE_MS if self._round else FIRST_SLICE_MS
        if slice_ms and self._run(work, self._clock() + slice_ms / 1000):
            return True
        self._round.append(work)
        self._ages[work] = None
        self._schedule()
        return False

    def close(self) -> None:
        """Do no more: the server stops."""
        while self._round:
            work = self._round.popleft()
            del self._ages[work]
            work.steps.close()
            self._hold(work, -work.elements)

    def _schedule(self) -> None:
        if self._round and not self._scheduled:
            self._scheduled = True
            self._call_soon(self._turn)

    def _turn(self) -> None:
        """One slice, of one work or of several short ones."""
        self._scheduled = False
        until = self._clock() + SLICE_MS / 1000
        while self._round:
            work = self._next()
            if not self._run(work, until):
                self._round.append(work)
                break
            del self._ages[work]
            if self._clock() >= until:
                break
        self._schedule()

    def _next(self) -> Work:
        """The work that goes on now, taken out of the round."""
        while not self._may_go_on(self._round[0]):
            self._round.rotate(-1)  # not for ever: the oldest may
        return self._round.popleft()

    def _may_go_on(self, work: Work) -> bool:
        return (
            self.elements <= self._max_elements or work.elements <= FEW_ELEMENTS or work is next(iter(self._ages), work)
        )

    def _run(self, work: Work, until: float) -> bool:
        """Go on until then, or until this work alone holds too much; whether it is done."""
        steps, clock = work.steps, self._clock
        try:
            if work.owner.abandoned:
                steps.close()
            else:
                for more in steps:
                    if more:
                        self._hold(work, more)
                        if not self._may_go_on(work):
                            return False
                    if clock() >= until:
                        return False
        except Exception:
            logger.exception("Work in slices failed")
        self._hold(work, -work.elements)
        return True

    def _hold(self, work: Work, more: int) -> None:
        work.elements += more
        self.elements += more
        if self.elements > FEW_ELEMENTS:
            if not self._collector_rests and gc.isenabled():
                self._collector_rests = True
                gc.disable()
        elif self._collector_rests:
            self._collector_rests = False
            gc.enable()


def within(steps: Sliced[T], limit: int) -> Sliced[T]:
    """The same work, which fails with `TooManyElementsError` once it has yielded more than ``limit``."""
    elements = 0
    while True:
        try:
            more = next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
        elements += more
        if elements > limit:
            steps.close()
            raise TooManyElementsError(elements)
        yield more


class TooManyElementsError(Exception):
    """There are more than so many elements."""

    def __init__(self, elements: int) -> None:
        super().__init__(elements)
        self.elements = elements


def completed(steps: Sliced[T]) -> T:
    """The result of work that is short, without a pause."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result


def release(message: object) -> Sliced[None]:
    """Take a message with long arrays apart: to free hundreds of thousands of structs takes its time, too."""
    for field in getattr(message, "FIELDS", ()):
        items = getattr(message, field.name)
        if not field.is_array or not isinstance(items, list):
            continue
        if field.struct is None and len(items) <= _FREED_AT_ONCE:
            continue  # it costs nothing, and may be in use elsewhere
        nested = field.struct is not None and any(each.is_array for each in field.struct.FIELDS)
        while items:
            if nested:
                yield from release(items[-1])
                items.pop()
            else:
                del items[-_FREED_AT_ONCE:]
            yield 0


_FREED_AT_ONCE = 512

"""The time that each request takes on the event loop, for quotas of users and clients (`request_percentage`).

A request is measured while it is decoded, handled and encoded, also in slices. The time for which it waits (for
records, other requests, a disk) does not count, and neither does the work of other threads and processes for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from ..concurrency.slices import Sliced

T = TypeVar("T")


class Spent:
    """The time of one request."""

    __slots__ = ("charge", "seconds")

    def __init__(self) -> None:
        self.seconds = 0.0
        """What was not charged yet."""
        self.charge: Callable[[float], object] | None = None
        """Charges seconds to the client. None until the client is known."""


class LoopTime:
    """Measures the requests of a server; see the module docstring."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """``clock`` is in seconds."""
        self.clock = clock
        self.current: Spent | None = None
        """That of the request that is served now."""
        self._since = 0.0

    def measure(self, work: Callable[[], T]) -> T:
        """Serve a new request."""
        outer = self._enter(Spent())
        try:
            return work()
        finally:
            self._leave(outer)

    def in_slices(self, steps: Sliced[None]) -> Sliced[None]:
        """The same steps. They belong to the request that is served now, if any."""
        return steps if self.current is None else _MeasuredSteps(self, self.current, steps)  # type: ignore[return-value]

    def take(self, spent: Spent) -> float:
        """The seconds of a request that were not charged yet; they are charged now."""
        if spent is self.current:
            now = self.clock()
            spent.seconds += now - self._since
            self._since = now
        seconds, spent.seconds = spent.seconds, 0.0
        return seconds

    def _enter(self, spent: Spent) -> Spent | None:
        now = self.clock()
        outer, self.current = self.current, spent
        if outer is not None:
            outer.seconds += now - self._since
        self._since = now
        return outer

    def _leave(self, outer: Spent | None) -> None:
        now = self.clock()
        spent, self.current = self.current, outer
        assert spent is not None
        spent.seconds += now - self._since
        self._since = now
        if spent.charge is not None:
            spent.charge(self.take(spent))


class _MeasuredSteps:
    """An iterator with the interface of a generator that `Slices` uses."""

    __slots__ = ("_spent", "_steps", "_times")

    def __init__(self, times: LoopTime, spent: Spent, steps: Sliced[None]) -> None:
        self._times = times
        self._spent = spent
        self._steps = steps

    def __iter__(self) -> _MeasuredSteps:
        return self

    def __next__(self) -> int:
        outer = self._times._enter(self._spent)
        try:
            return next(self._steps)
        finally:
            self._times._leave(outer)

    def close(self) -> None:
        """End the steps early."""
        self._steps.close()

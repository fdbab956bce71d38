"""Durations of requests: histograms of the last minutes, from which quantiles are computed when they are requested.

An observation adds one to a bucket; buckets are powers of two of a microsecond. The event loop writes, and the thread
that serves metrics reads. A histogram covers the current window and the one before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from ..context import ServedRequest
    from ..network.connection import Connection
    from ..network.frames import Frame, FrameHandler, InFlight

WINDOW_S: Final = 150.0
QUANTILES: Final = ("0.50", "0.75", "0.95", "0.98", "0.99", "0.999")

SENDS_SAMPLED: Final = 16
"""One response of an API in this many is measured while it is sent."""

_BUCKETS: Final = 40  # the last one begins at six days


class Durations:
    """A histogram of durations."""

    __slots__ = ("_before", "_current", "_until", "count")

    def __init__(self) -> None:
        self._current = [0] * _BUCKETS
        self._before = [0] * _BUCKETS
        self._until = 0.0
        self.count = 0
        """All observations."""

    def observe(self, now: float, seconds: float) -> None:
        """Count a duration that ends now."""
        if now >= self._until:
            self._rotate(now)
        self._current[min(int(seconds * 1e6).bit_length(), _BUCKETS - 1)] += 1
        self.count += 1

    def _rotate(self, now: float) -> None:
        recent = self._current if now < self._until + WINDOW_S else [0] * _BUCKETS
        self._before, self._current = recent, [0] * _BUCKETS
        self._until = now + WINDOW_S

    def quantiles(self, now: float) -> Iterator[tuple[str, float]]:
        """Quantiles and their durations in milliseconds; 0 if there was no observation in the last windows.

        A duration is interpolated in its bucket, so it is at most twice the true one, and at least half of it.
        """
        if now >= self._until + WINDOW_S:
            counts = [0] * _BUCKETS
        elif now >= self._until:
            counts = list(self._current)
        else:
            counts = [a + b for a, b in zip(self._current, self._before, strict=True)]
        total = sum(counts)
        for quantile in QUANTILES:
            yield quantile, _duration_ms(counts, float(quantile) * total) if total else 0.0


def _duration_ms(counts: list[int], rank: float) -> float:
    below = 0
    for bucket, count in enumerate(counts):
        if count and below + count >= rank:
            lowest = float(1 << bucket >> 1)  # and the width of the bucket
            return lowest * (1 + (rank - below) / count) / 1000
        below += count
    return 0.0


class RequestTimes:
    """The durations of the requests of one API."""

    __slots__ = ("local", "remote", "send", "sends_skipped", "skipped", "total")

    def __init__(self) -> None:
        self.total = Durations()
        self.local = Durations()
        """The time on the event loop, until the response or until the request waits."""
        self.remote = Durations()
        """The time for which the request waited: for records, members, other brokers, threads."""
        self.send = Durations()
        """The time until the peer has taken the response, and what was sent before it."""
        self.sends_skipped = SENDS_SAMPLED - 1
        """How many responses were not measured while they were sent, since the last one that was."""
        self.skipped = 0
        """How many requests of a fast path were not measured since the last one that was."""

    def observe(self, began: float, suspended: float, now: float) -> None:
        """A request has its response. ``suspended``: when it began to wait; now, if it did not."""
        self.total.observe(now, now - began)
        self.local.observe(now, suspended - began)
        self.remote.observe(now, now - suspended)

    def observe_sending(
        self, connection: Connection, waiting: InFlight | None, began: float, clock: Callable[[], float]
    ) -> None:
        """Measure how long the response is being sent, for some responses; see `Connection.sends_next`."""
        self.sends_skipped += 1
        if self.sends_skipped < SENDS_SAMPLED or connection.on_sent is not None or not connection.sends_next(waiting):
            return
        self.sends_skipped = 0

        def sent() -> None:
            now = clock()
            self.send.observe(now, now - began)

        connection.on_sent = sent


class MeasuredDispatcher:
    """Serves frames with another dispatcher, and measures the requests of each API."""

    def __init__(self, dispatcher: FrameHandler, clock: Callable[[], float]) -> None:
        self._dispatcher = dispatcher
        self._clock = clock
        self.times: dict[int, RequestTimes] = {}
        """By the key of the API."""
        self.completes_earlier = dispatcher.completes_earlier
        self.finish = dispatcher.finish
        self.refuse = dispatcher.refuse

    def times_of(self, api_key: int) -> RequestTimes:
        """The durations of the requests of an API."""
        times = self.times.get(api_key)
        if times is None:
            times = self.times[api_key] = RequestTimes()
        return times

    def handle(self, connection: Connection, frame: Frame) -> Any:
        """See `frames.FrameHandler`."""
        began = self._clock()
        answer = self._dispatcher.handle(connection, frame)
        if answer is None:
            return None
        now = self._clock()
        times = self.times_of(int.from_bytes(frame[:2], "big"))
        if isinstance(answer, list):
            times.observe(began, now, now)
            times.observe_sending(connection, None, now, self._clock)
        else:
            context: ServedRequest = answer  # type: ignore[assignment]
            if context.parts is not None:
                times.observe(began, now, now)
            else:
                context.on_completed = partial(self._completed, context, times, began, now)
        return answer

    def _completed(self, context: ServedRequest, times: RequestTimes, began: float, suspended: float) -> None:
        now = self._clock()
        times.observe(began, suspended, now)
        times.observe_sending(context.connection, context, now, self._clock)

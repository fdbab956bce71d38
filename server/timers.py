"""Deadlines of parked requests and idle connections: one timer wheel for the whole server.

Most deadlines never fire: a fetch is usually answered before its ``max_wait_ms`` is over. So adding and cancelling
must cost next to nothing however many are waiting. The timers of one moment share a bucket, and the event loop knows
only of the earliest bucket. Adding is two dictionary look-ups, cancelling is one deletion, and nothing wakes up unless
a bucket is due. A bucket whose timers were all cancelled is left to pass when it is due within a second, which costs
a parked fetch nothing; the others are removed when about a half of all buckets are empty.

Apache Kafka's timers (sessions, rebalances, transactions) count whole milliseconds: one that is set at 1000.9 ms for 5
ms expires at 1005, when the clock shows that millisecond, so up to one millisecond early and never a tick late.
`call_at` keeps that rule. `call_after` is for deadlines where fewer wake-ups matter more: they are rounded up to an
even millisecond, so that they never fire early and at most `TICK_MS` late. epoll adds up to one millisecond to both.

**What has arrived goes before what expires.** A process that was stopped (SIGSTOP, a suspended machine), or was busy
for long, finds deadlines that are over, and in its sockets the heartbeats that would have moved them. So a deadline
that has come fires one turn of the loop later: after one more poll, which serves what had arrived by then, and after
what that put off to the end of the turn. It costs a poll that does not wait, and only when something fires.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import Callable

from .event_loop import polls_for_all

logger = logging.getLogger(__name__)

TICK_MS = 2

# A bucket that is due so soon is not worth a count: it passes.
_SOON_MS = 1000

# So many buckets may be empty before it is worth a look at all of them.
_FEW_BUCKETS = 64


class Timer:
    """A deadline that can be cancelled; made by `TimerWheel`."""

    __slots__ = ("_bucket", "_callback")

    def __init__(self, callback: Callable[[], None], bucket: dict[Timer, None]) -> None:
        self._callback: Callable[[], None] | None = callback
        self._bucket: dict[Timer, None] | None = bucket

    def cancel(self) -> None:
        """Forget the deadline. Does nothing when it has fired or was cancelled before."""
        if self._bucket is not None:
            self._bucket.pop(self, None)
            self._bucket = None
            self._callback = None

    def _fire(self) -> None:
        callback = self._callback
        self._bucket = None
        self._callback = None
        if callback is not None:
            callback()


class _DistantTimer(Timer):
    """A timer whose bucket would stay for long: the wheel learns that it is empty."""

    __slots__ = ("_wheel",)

    def __init__(self, callback: Callable[[], None], bucket: dict[Timer, None], wheel: TimerWheel) -> None:
        # Both methods repeat what the base class does, to save two calls.
        self._callback = callback
        self._bucket = bucket
        self._wheel = wheel

    def cancel(self) -> None:
        bucket = self._bucket
        if bucket is not None:
            bucket.pop(self, None)
            self._bucket = None
            self._callback = None
            if not bucket:
                wheel = self._wheel
                wheel._emptied += 1
                if wheel._emptied > wheel._most_emptied:
                    wheel._sweep()


class TimerWheel:
    """Deadlines in buckets, driven by one handle of the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._buckets: dict[int, dict[Timer, None]] = {}  # by the millisecond of the loop's clock
        self._ticks: list[int] = []  # a heap of the keys of _buckets
        self._emptied = 0  # how often a bucket lost its last timer since the last sweep
        self._most_emptied = _FEW_BUCKETS
        self._handle: asyncio.TimerHandle | None = None
        self._handle_tick = 0
        self._due_tick = 0
        self._polls = 0

    def call_after(self, delay_ms: float, callback: Callable[[], None]) -> Timer:
        """Call ``callback()`` once ``delay_ms`` milliseconds have passed, unless the returned timer is cancelled."""
        tick = (int(self._loop.time() * 1000.0 + delay_ms) | 1) + 1  # the next multiple of TICK_MS
        bucket = self._buckets.get(tick)
        if bucket is None:
            bucket = self._new_bucket(tick)
        timer = Timer(callback, bucket) if delay_ms <= _SOON_MS else _DistantTimer(callback, bucket, self)
        bucket[timer] = None
        return timer

    def call_at(self, deadline_ms: int, callback: Callable[[], None]) -> Timer:
        """Call ``callback()`` once the loop's clock shows this millisecond, or at once if it has passed."""
        bucket = self._buckets.get(deadline_ms)
        if bucket is None:
            bucket = self._new_bucket(deadline_ms)
        timer = _DistantTimer(callback, bucket, self)
        bucket[timer] = None
        return timer

    def close(self) -> None:
        """Drop every deadline; none fires afterwards."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        self._buckets.clear()
        self._ticks.clear()

    def _new_bucket(self, tick: int) -> dict[Timer, None]:
        bucket = self._buckets[tick] = {}
        heapq.heappush(self._ticks, tick)
        if self._handle is None or tick < self._handle_tick:
            self._arm(tick)
        return bucket

    def _sweep(self) -> None:
        """Remove the buckets that are empty."""
        self._buckets = {tick: bucket for tick, bucket in self._buckets.items() if bucket}
        self._ticks = list(self._buckets)
        heapq.heapify(self._ticks)
        self._emptied = 0
        self._most_emptied = _FEW_BUCKETS + len(self._buckets) // 2

    def _arm(self, tick: int) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._handle_tick = tick
        self._handle = self._loop.call_at(tick / 1000.0, self._run)

    def _run(self) -> None:
        """Something may be due: see to it when what has arrived until now was served."""
        # The loop's clock may be a hair behind the moment it was armed for.
        self._due_tick = max(int(self._loop.time() * 1000.0), self._handle_tick)
        self._handle = None
        while self._ticks and not self._buckets[self._ticks[0]]:
            del self._buckets[heapq.heappop(self._ticks)]
        if self._ticks and self._ticks[0] <= self._due_tick:
            self._polls = 0
            self._poll_first()
        elif self._ticks:
            self._arm(self._ticks[0])

    def _poll_first(self) -> None:
        self._handle_tick = -1  # nothing is earlier: a deadline that is made meanwhile and has passed need not arm it
        # By `call_at`, not `call_soon`: asyncio runs what is due after what the poll itself has put off.
        self._handle = self._loop.call_at(self._due_tick / 1000.0, self._polled)

    def _polled(self) -> None:
        self._polls += 1
        if self._polls < polls_for_all(self._loop):
            self._poll_first()
            return
        self._handle = None
        while self._ticks and self._ticks[0] <= self._due_tick:
            bucket = self._buckets.pop(heapq.heappop(self._ticks))
            while bucket:  # a callback may cancel its neighbours
                timer = next(iter(bucket))
                del bucket[timer]
                try:
                    timer._fire()
                except Exception:  # the shell's last line: one bad deadline must not stop the others
                    logger.exception("A deadline's callback failed")
        # An empty bucket in front (all cancelled) costs one wake-up. A callback that made a new deadline has armed the
        # handle for that one, though earlier ones may be left.
        if self._ticks and (self._handle is None or self._ticks[0] < self._handle_tick):
            self._arm(self._ticks[0])

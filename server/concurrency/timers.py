"""Deadlines of pending requests and idle connections: one timer wheel for the whole server.

Most deadlines never fire: a fetch usually completes before its ``max_wait_ms`` has passed. So adding and canceling must
cost almost nothing, however many timers are waiting. The timers of one moment share a bucket, and the event loop knows
only the earliest bucket. Adding is two dictionary lookups, canceling is one deletion, and there is no wake-up unless a
bucket is due. A bucket whose timers were all canceled stays until it is due if that is within a second, which costs a
waiting fetch nothing. Other empty buckets are removed when about half of all buckets are empty.

Apache Kafka's timers (sessions, rebalances, transactions) count whole milliseconds: a timer of 5 ms that is set at
1000.9 ms expires at 1005 ms, when the clock shows that millisecond. So it is up to one millisecond early and never a
tick late. `call_at` follows that rule. `call_after` is for deadlines where fewer wake-ups matter more. They are rounded
up to an even millisecond, so that they never fire early and are at most `TICK_MS` late. epoll adds up to one
millisecond to both.

**Received data is served before deadlines expire.** A process that was stopped (SIGSTOP, a suspended machine), or busy
for long, finds deadlines that have passed, and in its sockets the heartbeats that would have moved them. So a deadline
fires one iteration of the event loop later: after one more poll, which serves the data that had arrived by then, and
after the callbacks that this poll postponed to the end of the iteration. This costs one poll without a wait, and only
when something fires.

A hundred thousand deadlines may be due at the same moment. They fire for `FIRE_MS` in each iteration of the loop.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import time
from collections import deque
from collections.abc import Callable

from .event_loop import polls_for_all

logger = logging.getLogger(__name__)

TICK_MS = 2

FIRE_MS = 2.0

# An empty bucket that is due within this time is not counted: it stays until it is due.
_SOON_MS = 1000

# The number of empty buckets from which a sweep of all buckets is worthwhile.
_FEW_BUCKETS = 64


class Timer:
    """A deadline that can be canceled; created by `TimerWheel`."""

    __slots__ = ("_bucket", "_callback")

    def __init__(self, callback: Callable[[], None], bucket: dict[Timer, None]) -> None:
        self._callback: Callable[[], None] | None = callback
        self._bucket: dict[Timer, None] | None = bucket

    def cancel(self) -> None:
        """Cancel the deadline. No effect if it has fired or was canceled before."""
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
    """A timer whose bucket would stay for long. It notifies the wheel when the bucket becomes empty."""

    __slots__ = ("_wheel",)

    def __init__(self, callback: Callable[[], None], bucket: dict[Timer, None], wheel: TimerWheel) -> None:
        # Both methods repeat the code of the base class, to save two calls.
        self._callback = callback
        self._bucket = bucket
        self._wheel = wheel

    def cancel(self) -> None:
        bucket = self._bucket
        if bucket is not None:
            del bucket[self]
            self._bucket = self._callback = None
            if not bucket:
                wheel = self._wheel
                wheel._emptied += 1
                if wheel._emptied > wheel._max_emptied:
                    wheel._sweep()


class TimerWheel:
    """Deadlines in buckets, driven by one handle of the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, clock: Callable[[], float] = time.perf_counter) -> None:
        """``clock``, in seconds, measures how long firing takes. Deadlines use the clock of the loop."""
        self._loop = loop
        self._clock = clock
        self._buckets: dict[int, dict[Timer, None]] = {}  # by the millisecond of the loop's clock
        self._ticks: list[int] = []  # a heap of the keys of _buckets
        self._emptied = 0  # how often a bucket lost its last timer since the last sweep
        self._max_emptied = _FEW_BUCKETS
        self._handle: asyncio.TimerHandle | None = None
        self._handle_tick = 0
        self._due_tick = 0
        self._polls = 0
        self._firing: deque[Timer] = deque()  # due timers, which are in no bucket

    def now_ms(self) -> int:
        """The loop's clock in whole milliseconds, as used by `call_at`."""
        return int(self._loop.time() * 1000.0)

    def call_after(self, delay_ms: float, callback: Callable[[], None]) -> Timer:
        """Call ``callback()`` once ``delay_ms`` milliseconds have passed, unless the returned timer is canceled."""
        tick = (int(self._loop.time() * 1000.0 + delay_ms) | 1) + 1  # the next multiple of TICK_MS
        bucket = self._buckets.get(tick)
        if bucket is None:
            bucket = self._new_bucket(tick)
        timer = Timer(callback, bucket) if delay_ms <= _SOON_MS else _DistantTimer(callback, bucket, self)
        bucket[timer] = None
        return timer

    def call_at(self, deadline_ms: int, callback: Callable[[], None]) -> Timer:
        """Call ``callback()`` once the loop's clock shows this millisecond, or immediately if it has passed."""
        bucket = self._buckets.get(deadline_ms)
        if bucket is None:
            bucket = self._new_bucket(deadline_ms)
        timer = _DistantTimer(callback, bucket, self)
        bucket[timer] = None
        return timer

    def close(self) -> None:
        """Cancel every deadline; none fires afterwards."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        self._buckets.clear()
        self._ticks.clear()
        self._firing.clear()

    def _new_bucket(self, tick: int) -> dict[Timer, None]:
        bucket = self._buckets[tick] = {}
        heapq.heappush(self._ticks, tick)
        if self._handle is None or tick < self._handle_tick:
            self._arm(tick)
        return bucket

    def _sweep(self) -> None:
        """Remove the empty buckets."""
        self._buckets = {tick: bucket for tick, bucket in self._buckets.items() if bucket}
        self._ticks = list(self._buckets)
        heapq.heapify(self._ticks)
        self._emptied = 0
        self._max_emptied = _FEW_BUCKETS + len(self._buckets) // 2

    def _arm(self, tick: int) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._handle_tick = tick
        self._handle = self._loop.call_at(tick / 1000.0, self._run)

    def _run(self) -> None:
        """A bucket may be due: fire it after the data that has arrived so far was served."""
        # The loop's clock may be slightly behind the time for which the handle was armed.
        self._due_tick = max(int(self._loop.time() * 1000.0), self._handle_tick)
        self._handle = None
        self._remove_first_empty()
        if self._ticks and self._ticks[0] <= self._due_tick:
            self._polls = 0
            self._poll_first()
        elif self._ticks:
            self._arm(self._ticks[0])

    def _remove_first_empty(self) -> None:
        """Remove the empty buckets before the first deadline, which would cost a wake-up."""
        while self._ticks and not self._buckets[self._ticks[0]]:
            del self._buckets[heapq.heappop(self._ticks)]

    def _poll_first(self) -> None:
        if self._handle is not None:
            self._handle.cancel()  # a callback that has just fired has added a deadline
        self._handle_tick = -1  # nothing is earlier: a new deadline that has already passed need not arm it
        # `call_at` instead of `call_soon`: asyncio runs due handles after the callbacks that the poll itself has
        # scheduled.
        self._handle = self._loop.call_at(self._due_tick / 1000.0, self._polled)

    def _polled(self) -> None:
        self._polls += 1
        if not self._firing and self._polls < polls_for_all(self._loop):
            self._poll_first()
            return
        self._handle = None
        firing, clock = self._firing, self._clock
        until = clock() + FIRE_MS / 1000
        while True:
            while self._ticks and self._ticks[0] <= self._due_tick and not firing:
                firing.extend(self._buckets.pop(heapq.heappop(self._ticks)))
            if not firing:
                break
            if clock() >= until:
                self._poll_first()
                return
            try:
                firing.popleft()._fire()  # no effect if a neighbor has canceled it
            except Exception:  # the last line of defense: one failing deadline must not stop the others
                logger.exception("A timer callback failed with an unexpected error")
        # A callback that added a deadline has armed the handle for that one, although earlier ones may remain.
        self._remove_first_empty()
        if self._ticks and (self._handle is None or self._ticks[0] < self._handle_tick):
            self._arm(self._ticks[0])

"""Deadlines of parked requests and idle connections: one timer wheel for the whole server.

Most deadlines never fire: a fetch is usually answered before its ``max_wait_ms`` is over. So adding and cancelling
must cost next to nothing however many are waiting. Deadlines are rounded up to a tick; the timers of one tick share a
bucket, and the event loop knows only of the earliest bucket. Adding is two dictionary look-ups, cancelling is one
deletion, and nothing wakes up unless a bucket is due. A timer never fires early and at most one tick late.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import Callable

logger = logging.getLogger(__name__)

TICK_MS = 2


class Timer:
    """A deadline that can be cancelled; made by `TimerWheel.call_after`."""

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


class TimerWheel:
    """Deadlines in buckets of `TICK_MS`, driven by one handle of the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._buckets: dict[int, dict[Timer, None]] = {}
        self._ticks: list[int] = []  # a heap of the keys of _buckets
        self._handle: asyncio.TimerHandle | None = None
        self._handle_tick = 0

    def call_after(self, delay_ms: float, callback: Callable[[], None]) -> Timer:
        """Call ``callback()`` once ``delay_ms`` milliseconds have passed, unless the returned timer is cancelled."""
        tick = int((self._loop.time() * 1000.0 + delay_ms) / TICK_MS) + 1
        bucket = self._buckets.get(tick)
        if bucket is None:
            bucket = self._buckets[tick] = {}
            heapq.heappush(self._ticks, tick)
            if self._handle is None or tick < self._handle_tick:
                self._arm(tick)
        timer = Timer(callback, bucket)
        bucket[timer] = None
        return timer

    def close(self) -> None:
        """Drop every deadline; none fires afterwards."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        self._buckets.clear()
        self._ticks.clear()

    def _arm(self, tick: int) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._handle_tick = tick
        self._handle = self._loop.call_at(tick * TICK_MS / 1000.0, self._run)

    def _run(self) -> None:
        self._handle = None
        # The loop's clock may be a hair behind the moment it was armed for.
        due_tick = max(int(self._loop.time() * 1000.0 / TICK_MS), self._handle_tick)
        while self._ticks and self._ticks[0] <= due_tick:
            bucket = self._buckets.pop(heapq.heappop(self._ticks))
            while bucket:  # a callback may cancel its neighbours
                timer = next(iter(bucket))
                del bucket[timer]
                try:
                    timer._fire()
                except Exception:  # the shell's last line: one bad deadline must not stop the others
                    logger.exception("A deadline's callback failed")
        # An empty bucket in front (all cancelled) costs one wake-up, and frees its memory. A callback that made a new
        # deadline has armed the handle for that one, though earlier ones may be left.
        if self._ticks and (self._handle is None or self._ticks[0] < self._handle_tick):
            self._arm(self._ticks[0])

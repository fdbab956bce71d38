"""Turns of connections: how long a connection may serve its received requests, and which connection is next.

A connection may have sent a hundred requests at the same time, and so may a thousand connections. If each served all of
its requests when it is ready, one iteration of the event loop would take seconds, and a client with one small request
would wait for all of them. So:

- A connection serves requests for `LONE_SLICE_MS`, or for `SLICE_MS` if many connections are ready or waiting. It
  serves at least one request. The remaining requests wait here (`Turns.later`), and reading from this connection is
  paused.
- Waiting connections continue in later iterations of the loop, one slice each, for `TURN_MS` in each iteration in
  total. Data of other connections is served in between: it does not wait for the queue, and does not block it.
- A connection that uses up its slice gets a penalty. A connection that finishes earlier loses one. A connection with a
  penalty is served from the queue, even when it is ready with new requests (`event_loop`). Connections with two
  penalties or more wait in a separate queue, which gets every `_SLOW_SHARE`th turn while others wait. So a client that
  was slow once (the process may have been stopped at that time) does not wait for a thousand clients that are always
  slow. A new connection begins with two penalties, and two short requests remove them: a thousand new connections may
  arrive together, and their behavior is not known yet.

A connection has used up its slice if it took this long by the clock and wants more, and if at least half of the time
was CPU time of the thread. The process may have waited for a CPU during a short request, which is no property of the
connection. If the connection wants no more, it may run for two slices: a request takes longer among many others, whose
memory has displaced its own in the CPU's caches.

Penalties count slices, not used time. With a thousand busy connections, each gets a thousandth of the time, which is
less than the time of the one client that sends a request now and then. The difference is that they always want more.

This module does not know what the callbacks do.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from typing import Final

logger = logging.getLogger(__name__)

Callback = Callable[[], None]

TURN_MS = 2.0
LONE_SLICE_MS = 1.0
SLICE_MS = 0.25

FEW: Final = 16
"""While no more connections are ready, and none wait, each may have a longer slice, and nothing is measured."""

_MAX_PENALTIES = 8
_SLOW = 2
_SLOW_SHARE = 4


class Turns:
    """The connections that continue in later iterations of one event loop."""

    __slots__ = (
        "_again",
        "_call_soon",
        "_checked",
        "_checked_cpu",
        "_cpu_clock",
        "_normal",
        "_scheduled",
        "_slow",
        "_slow_skipped",
        "clock",
        "penalties",
        "slice_s",
    )

    def __init__(
        self,
        call_soon: Callable[[Callback], object],
        *,
        clock: Callable[[], float] = time.perf_counter,
        cpu_clock: Callable[[], float] = time.thread_time,
    ) -> None:
        """``call_soon`` calls back in the next iteration of the loop.

        ``clock`` and ``cpu_clock``, the CPU time of this thread, are in seconds.
        """
        self._call_soon = call_soon
        self.clock = clock
        self._cpu_clock = cpu_clock  # a system call: read only if `clock` shows that something took long
        self._again = -1  # the latest descriptor that wants a later turn, since the measured callback began
        self._checked = 0.0  # both clocks, read at the same moment
        self._checked_cpu = 0.0
        self._normal: deque[tuple[int, Callback]] = deque()  # connections with at most one penalty
        self._slow: deque[tuple[int, Callback]] = deque()
        self._slow_skipped = 0
        self._scheduled = False
        self.penalties: dict[int, int] = {}
        """By descriptor. Connections without penalties have no entry."""
        self.slice_s = LONE_SLICE_MS / 1000
        """How long a connection may continue now, in seconds."""

    def __len__(self) -> int:
        """How many callbacks wait."""
        return len(self._normal) + len(self._slow)

    def opened(self, fd: int) -> None:
        """Register the descriptor of a new connection, whose behavior is not known yet."""
        self.penalties[fd] = _SLOW

    def closed(self, fd: int) -> None:
        """The connection of this descriptor is closed. Its waiting callbacks are called nevertheless."""
        self.penalties.pop(fd, None)

    def begin(self, ready: int) -> bool:
        """Begin with ``ready`` ready connections. Returns whether each of them is to be measured (`record`)."""
        busy = ready > FEW or self._scheduled
        self.slice_s = (SLICE_MS if busy else LONE_SLICE_MS) / 1000
        return busy

    def start(self) -> float:
        """Begin a series of measured callbacks (`record`). Returns the time."""
        self._checked = now = self.clock()
        self._checked_cpu = self._cpu_clock()
        self._again = -1
        return now

    def record(self, fd: int, began: float, now: float) -> None:
        """The connection of this descriptor was served from ``began`` to ``now``, the current time."""
        penalties = self.penalties.get(fd, 0)
        if now - began >= SLICE_MS / 1000:
            if self._ran(began, now) >= SLICE_MS / 1000 * (0.5 if fd == self._again else 2):
                self.penalties[fd] = min(penalties + 1, _MAX_PENALTIES)
        elif penalties > 1:
            self.penalties[fd] = penalties - 1
        elif penalties:
            del self.penalties[fd]
        self._again = -1

    def _ran(self, began: float, now: float) -> float:
        """How many of these seconds the thread had a CPU. Callbacks before this one were too short to have waited."""
        cpu = self._cpu_clock()
        waited = (now - self._checked) - (cpu - self._checked_cpu)
        self._checked, self._checked_cpu = now, cpu
        return now - began - waited

    def later(self, fd: int, callback: Callback, *, disconnected: bool = False) -> None:
        """Call ``callback`` in a later turn, for the connection of this descriptor.

        ``disconnected``: its peer is disconnected, so it may wait behind all others.
        """
        self._again = fd
        (self._slow if disconnected or self.penalties.get(fd, 0) >= _SLOW else self._normal).append((fd, callback))
        self._schedule()

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._call_soon(self._turn)

    def _turn(self) -> None:
        """Call each waiting callback once, as far as there is time."""
        self._scheduled = False
        waiting = len(self)
        self.slice_s = max(SLICE_MS, min(LONE_SLICE_MS, TURN_MS / waiting)) / 1000
        now = self.start()
        until = now + TURN_MS / 1000
        for _ in range(waiting):
            fd, callback = self._next()
            try:
                callback()
            except Exception:  # like the event loop: log it and continue with the others
                logger.exception("Exception in callback %r", callback)
            began, now = now, self.clock()
            self.record(fd, began, now)
            if now >= until:
                break
        if self:
            self._schedule()

    def _next(self) -> tuple[int, Callback]:
        if self._normal and (not self._slow or self._slow_skipped < _SLOW_SHARE - 1):
            self._slow_skipped += 1
            return self._normal.popleft()
        self._slow_skipped = 0
        return self._slow.popleft()

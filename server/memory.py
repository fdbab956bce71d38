"""The bound on bytes of requests that have arrived in part (``queued.max.request.bytes``), for all connections
together.

A connection that is receiving a large frame reserves what it holds before it grows. When the bound is reached, it must
stop reading and is resumed, first come first served, as memory is given back. Memory that is held by frames which all
wait for the rest of themselves would never come back, so the connection that has held memory longest may always grow:
it finishes, and then the next one is the oldest. A peer that stops sending while others wait for memory loses its
connection after `STALL_MS`, or one silent client could hold everybody's memory.

A part of the bound is only for frames of up to `SMALL_FRAME_BYTES`, which is what producers send: a few peers that
declare huge frames and stop half way can keep each other waiting, but not those.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Protocol

from .timers import Timer, TimerWheel

STALL_MS = 10_000
SMALL_FRAME_BYTES = 2 * 1024 * 1024
RESERVE_DIVISOR = 4  # a quarter is for small frames alone


class Holder(Protocol):
    """A connection as the budget sees it."""

    def resume_reading(self) -> None:
        """Memory came back: go on reading."""

    def close_stalled(self) -> None:
        """Close: this peer holds memory that others wait for, and sends nothing."""


class _Share:
    """What frames of one kind hold: the first of ``held`` has held memory longest."""

    __slots__ = ("held", "limit", "used")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self.held: dict[Holder, int] = {}

    def is_oldest(self, holder: Holder) -> bool:
        return not self.held or next(iter(self.held)) is holder


class MemoryBudget:
    """Who holds how many bytes, and who waits for some. A limit below 1 is none."""

    def __init__(self, limit_bytes: int, timers: TimerWheel, clock: Callable[[], float]) -> None:
        self._limit = limit_bytes if limit_bytes > 0 else sys.maxsize
        reserve = self._limit // RESERVE_DIVISOR
        self._small = _Share(reserve)
        self._large = _Share(self._limit - reserve)
        self._timers = timers
        self._clock = clock  # seconds
        self._progress: dict[Holder, float] = {}
        self._waiting: dict[Holder, None] = {}
        self._stall_timer: Timer | None = None

    @property
    def used_bytes(self) -> int:
        """Bytes held by all connections."""
        return self._small.used + self._large.used

    def grow(self, holder: Holder, size: int, frame_size: int) -> bool:
        """Reserve ``size`` more bytes for ``holder``, which receives a frame of ``frame_size`` bytes.

        False means: stop reading until `Holder.resume_reading`.
        """
        small = frame_size <= SMALL_FRAME_BYTES
        share = self._small if small else self._large
        fits = share.used + size <= share.limit or (small and self.used_bytes + size <= self._limit)
        if not fits and not share.is_oldest(holder):
            self._waiting[holder] = None
            self._watch_for_stalls()
            return False
        share.held[holder] = share.held.get(holder, 0) + size
        share.used += size
        self._progress[holder] = self._clock()
        return True

    def progress(self, holder: Holder) -> None:
        """Note that the peer sent something."""
        self._progress[holder] = self._clock()

    def release(self, holder: Holder) -> None:
        """Give back all that ``holder`` has (its frame is complete, or it is closed)."""
        if self._let_go(holder) and self._waiting:
            self._resume_waiting()

    def keep(self, holder: Holder) -> int:
        """What ``holder`` has becomes that of a request being served: counted until `give_back`, and nobody's.

        Such a request ends by itself, so it is not looked at when somebody must be the oldest, or has stalled.
        """
        held = self._let_go(holder)
        self._large.used += held
        return held

    def give_back(self, size: int) -> None:
        """A request that was kept is done with."""
        self._large.used -= size
        if size and self._waiting:
            self._resume_waiting()

    def _let_go(self, holder: Holder) -> int:
        self._waiting.pop(holder, None)
        self._progress.pop(holder, None)
        for share in (self._small, self._large):
            held = share.held.pop(holder, 0)
            if held:
                share.used -= held
                return held
        return 0

    def _resume_waiting(self) -> None:
        waiting = list(self._waiting)
        self._waiting.clear()
        for holder in waiting:  # each asks again by grow(), and waits again if it must
            holder.resume_reading()

    def _watch_for_stalls(self) -> None:
        if self._stall_timer is None:
            self._stall_timer = self._timers.call_after(STALL_MS, self._close_stalled)

    def _close_stalled(self) -> None:
        self._stall_timer = None
        if not self._waiting:
            return
        oldest = self._clock() - STALL_MS / 1000
        held = [*self._small.held, *self._large.held]
        stalled = [h for h in held if h not in self._waiting and self._progress.get(h, 0.0) <= oldest]
        for holder in stalled:
            holder.close_stalled()
        if self._waiting:
            self._watch_for_stalls()

"""The bound on bytes of requests that have arrived in part (``queued.max.request.bytes``), for all connections
together.

A connection that is receiving a large frame reserves what it holds before it grows. When the bound is reached, it must
stop reading and is resumed, first come first served, as memory is given back. Memory that is held by frames which all
wait for the rest of themselves would never come back, so the connection that has held memory longest may always grow:
it finishes, and then the next one is the oldest.

While a connection waits, those that hold memory must hurry, or a client that sends nothing, or a byte now and then,
could keep all of it. In each interval of `STALL_MS` a peer must send its share, `1 / INTERVALS`, of what was missing
when the wait began, or it loses its connection. So what is held comes back after `INTERVALS` intervals at the latest,
however many peers keep to the least rate. And once a connection has waited for `STALL_MS`, new frames queue behind it
instead of taking what is given back. While no connection waits, a slow link takes the time it takes.

A part of the bound is only for frames of up to `SMALL_FRAME_BYTES`, which is what producers send: a few peers that
declare huge frames and stop half way can keep each other waiting, but not those.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Protocol

from .timers import Timer, TimerWheel

STALL_MS = 10_000
INTERVALS = 12  # two minutes, in which a link of 1 Mbit/s brings 15 MB
SMALL_FRAME_BYTES = 2 * 1024 * 1024
RESERVE_DIVISOR = 4  # a quarter is for small frames alone


class Holder(Protocol):
    """A connection as the budget sees it."""

    def resume_reading(self) -> None:
        """Memory came back: go on reading."""

    def close_stalled(self) -> None:
        """Close: this peer holds memory that others wait for, and sends too little."""


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
        self._missing: dict[Holder, int] = {}  # bytes of its frame that have not arrived
        self._waiting: dict[Holder, _Share] = {}  # in the order in which they are resumed
        self._since: dict[Holder, float] = {}  # when the wait began; kept while a waiting one asks again
        self._hurried: dict[Holder, tuple[int, int]] = {}  # what was missing at first, and intervals since
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
        if (not fits and not share.is_oldest(holder)) or (self._waiting and self._must_queue(holder, share)):
            self._waiting[holder] = share
            self._since.setdefault(holder, self._clock())
            self._hurried.pop(holder, None)  # it cannot send now: what it must bring counts from when it can
            self._watch_for_stalls()
            return False
        if self._since:
            self._since.pop(holder, None)
        if holder not in share.held:
            self._missing[holder] = frame_size
        share.held[holder] = share.held.get(holder, 0) + size
        share.used += size
        return True

    def progress(self, holder: Holder, missing: int) -> None:
        """Note that the peer sent something, and how many bytes of its frame have not arrived."""
        self._missing[holder] = missing

    def _must_queue(self, holder: Holder, share: _Share) -> bool:
        """Whether this is a new frame, and an earlier one has waited for long."""
        if holder in share.held:
            return False
        first = next((other for other, its_share in self._waiting.items() if its_share is share), holder)
        return first is not holder and self._clock() - self._since[first] >= STALL_MS / 1000

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
        self._since.pop(holder, None)
        self._missing.pop(holder, None)
        self._hurried.pop(holder, None)
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
            self._look_at_holders()
            self._stall_timer = self._timers.call_after(STALL_MS, self._close_stalled)

    def _close_stalled(self) -> None:
        self._stall_timer = None
        if not self._waiting:
            self._hurried.clear()
            return
        for holder in self._look_at_holders():
            holder.close_stalled()
        if self._waiting and self._stall_timer is None:
            self._stall_timer = self._timers.call_after(STALL_MS, self._close_stalled)

    def _look_at_holders(self) -> list[Holder]:
        """At the end of each interval: which of those that can send have sent too little."""
        stalled = []
        for holder in [*self._small.held, *self._large.held]:
            if holder in self._waiting:
                continue
            missing = self._missing[holder]
            at_first, intervals = self._hurried.get(holder, (missing, -1))
            intervals += 1
            self._hurried[holder] = at_first, intervals
            if missing * INTERVALS > at_first * (INTERVALS - intervals):
                stalled.append(holder)
        return stalled

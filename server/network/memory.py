"""The limit on the memory of partially received requests (``queued.max.request.bytes``), for all connections together.

A connection that receives a large frame reserves memory before its buffer grows. When the limit is reached, it must
stop reading. Waiting connections are resumed, first come first served, as memory is returned. If all memory were held
by frames that wait for their remaining bytes, none would be returned. So the connection that has held memory longest
may always grow: it finishes, and then the next one is the oldest. It waits only for large requests that are being
served (`keep`), because they end by themselves. The limit must hold with one frame of the largest size. So the frames
other than the oldest together have only the memory that such a frame leaves, or a quarter of the limit.

While a connection waits, connections that hold memory must make progress. Otherwise, a client that sends nothing, or a
byte now and then, could keep all of the memory. In each interval of `STALL_MS`, a peer must send its share, `1 /
INTERVALS`, of the bytes that were missing when the wait began. Otherwise its connection is closed. So held memory is
returned after `INTERVALS` intervals at the latest, however many peers send at the minimum rate. And once a connection
has waited for `STALL_MS`, new frames queue behind it instead of taking returned memory. While no connection waits, a
slow peer may take any time.

A part of the limit is reserved for frames of up to `SMALL_FRAME_BYTES`, the usual size of produce requests. A few peers
that declare huge frames and stop half way can block each other, but not small frames.

Peers that are not authenticated could otherwise hold all of it with tokens that they do not complete. They have a part
of their own, for which they do not wait: a connection that would exceed it is closed. Most tokens do not need it: only
frames above 8 kB count, which do not arrive at once.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Protocol

from ..concurrency.timers import Timer, TimerWheel

STALL_MS = 10_000
INTERVALS = 12  # two minutes, in which a link of 1 Mbit/s transfers 15 MB
SMALL_FRAME_BYTES = 2 * 1024 * 1024
RESERVE_DIVISOR = 4  # a quarter is reserved for small frames
UNAUTHENTICATED_DIVISOR = 16  # the most that peers hold before they are authenticated


class Holder(Protocol):
    """A connection as the budget sees it."""

    def resume_reading(self) -> None:
        """Memory is available: resume reading."""

    def close_stalled(self) -> None:
        """Close: the peer holds memory that other connections wait for, and sends too little."""


class _Share:
    """The memory of the frames of one kind. The first holder in ``held`` has held memory longest."""

    __slots__ = ("held", "kept", "limit", "limit_of_others", "receiving", "used")

    def __init__(self, limit: int, limit_of_others: int) -> None:
        self.limit = limit
        self.limit_of_others = limit_of_others  # all except the oldest
        self.used = 0
        self.receiving = 0  # the sum of `held`
        self.held: dict[Holder, int] = {}
        self.kept = 0  # number of requests of such frames that are being served

    def is_oldest(self, holder: Holder) -> bool:
        return not self.held or next(iter(self.held)) is holder

    def fits(self, holder: Holder, size: int) -> bool:
        if self.used + size > self.limit:
            return False
        if self.is_oldest(holder):
            return True
        return self.receiving - next(iter(self.held.values())) + size <= self.limit_of_others


class MemoryBudget:
    """The bytes that each connection holds, and the connections that wait. A limit below 1 means no limit."""

    def __init__(
        self, limit_bytes: int, timers: TimerWheel, clock: Callable[[], float], *, largest_frame: int = 0
    ) -> None:
        self._limit = limit_bytes if limit_bytes > 0 else sys.maxsize
        reserve = self._limit // RESERVE_DIVISOR
        large = self._limit - reserve
        self._small = _Share(reserve, reserve)
        self._large = _Share(large, max(reserve, large - largest_frame))
        self._unauthenticated: dict[Holder, int] = {}
        self._timers = timers
        self._clock = clock  # seconds
        self._missing: dict[Holder, int] = {}  # bytes of the holder's frame that have not arrived
        self._waiting: dict[Holder, _Share] = {}  # in the order in which they are resumed
        self._since: dict[Holder, float] = {}  # when the wait began; kept while a waiting holder retries
        self._watched: dict[Holder, tuple[int, int]] = {}  # bytes missing at first, and intervals since then
        self._stall_timer: Timer | None = None

    @property
    def used_bytes(self) -> int:
        """Bytes held by all connections."""
        return self._small.used + self._large.used + sum(self._unauthenticated.values())

    def grow(self, holder: Holder, size: int, frame_size: int) -> bool:
        """Reserve ``size`` more bytes for ``holder``, which receives a frame of ``frame_size`` bytes.

        Returns False if the holder must stop reading until `Holder.resume_reading`.
        """
        small = frame_size <= SMALL_FRAME_BYTES
        share = self._small if small else self._large
        fits = share.fits(holder, size) or (small and self.used_bytes + size <= self._limit)
        if (not fits and (share.kept or not share.is_oldest(holder))) or (
            self._waiting and self._must_queue(holder, share)
        ):
            self._waiting[holder] = share
            self._since.setdefault(holder, self._clock())
            self._watched.pop(holder, None)  # the peer cannot send now; its share counts from when it can
            self._watch_for_stalls()
            return False
        if self._since:
            self._since.pop(holder, None)
        if holder not in share.held:
            self._missing[holder] = frame_size
        share.held[holder] = share.held.get(holder, 0) + size
        share.used += size
        share.receiving += size
        return True

    def grow_unauthenticated(self, holder: Holder, size: int) -> bool:
        """Reserve ``size`` more bytes for a peer that is not authenticated. Returns False if too much is held."""
        held = self._unauthenticated.get(holder, 0)
        others = sum(self._unauthenticated.values()) - held
        if others and others + held + size > self._limit // UNAUTHENTICATED_DIVISOR:
            return False
        self._unauthenticated[holder] = held + size
        return True

    def progress(self, holder: Holder, missing: int) -> None:
        """Note that the peer has sent data: ``missing`` bytes of its frame have not arrived."""
        self._missing[holder] = missing

    def _must_queue(self, holder: Holder, share: _Share) -> bool:
        """Whether this is a new frame, and an earlier one has waited for `STALL_MS`."""
        if holder in share.held:
            return False
        first = next((other for other, its_share in self._waiting.items() if its_share is share), holder)
        return first is not holder and self._clock() - self._since[first] >= STALL_MS / 1000

    def release(self, holder: Holder) -> None:
        """Return all memory of ``holder``: its frame is complete, or its connection is closed."""
        if self._remove(holder) and self._waiting:
            self._resume_waiting()

    def keep(self, holder: Holder) -> int:
        """Assign the memory of ``holder`` to a request being served. Returns its bytes, counted until `release_kept`.

        Such a request ends without further input. So its memory has no holder that could be the oldest or stalled.
        """
        held = self._remove(holder)
        self._large.used += held
        self._large.kept += held > SMALL_FRAME_BYTES
        return held

    def release_kept(self, size: int) -> None:
        """Return the memory of a request that was kept, or of data that was added."""
        self._large.used -= size
        self._large.kept -= size > SMALL_FRAME_BYTES
        if size and self._waiting:
            self._resume_waiting()

    def add(self, size: int) -> None:
        """Count, until `release_kept`, data that was created from a request and is held instead of it, or with it."""
        self._large.used += size
        self._large.kept += size > SMALL_FRAME_BYTES

    def _remove(self, holder: Holder) -> int:
        self._waiting.pop(holder, None)
        self._since.pop(holder, None)
        self._missing.pop(holder, None)
        self._watched.pop(holder, None)
        if self._unauthenticated and holder in self._unauthenticated:
            return self._unauthenticated.pop(holder)
        for share in (self._small, self._large):
            held = share.held.pop(holder, 0)
            if held:
                share.used -= held
                share.receiving -= held
                return held
        return 0

    def _resume_waiting(self) -> None:
        waiting = list(self._waiting)
        self._waiting.clear()
        for holder in waiting:  # each retries by grow(), and waits again if it must
            holder.resume_reading()

    def _watch_for_stalls(self) -> None:
        if self._stall_timer is None:
            self._look_at_holders()
            self._stall_timer = self._timers.call_after(STALL_MS, self._close_stalled)

    def _close_stalled(self) -> None:
        self._stall_timer = None
        if not self._waiting:
            self._watched.clear()
            return
        for holder in self._look_at_holders():
            holder.close_stalled()
        if self._waiting and self._stall_timer is None:
            self._stall_timer = self._timers.call_after(STALL_MS, self._close_stalled)

    def _look_at_holders(self) -> list[Holder]:
        """At the end of each interval: the holders that can send, but have sent too little."""
        stalled = []
        for holder in [*self._small.held, *self._large.held]:
            if holder in self._waiting:
                continue
            missing = self._missing[holder]
            at_first, intervals = self._watched.get(holder, (missing, -1))
            intervals += 1
            self._watched[holder] = at_first, intervals
            if missing * INTERVALS > at_first * (INTERVALS - intervals):
                stalled.append(holder)
        return stalled

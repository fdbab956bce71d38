"""Those who wait for more bytes of a partition.

A fetch with ``min_bytes`` waits for so many bytes, and a thousand of them may wait on one partition. An append must not
pay for those that it does not help: it adds to one number and compares that with the lowest one somebody waits for.

Who reads only what was committed is not helped by bytes while a transaction is open, but by the marker that ends it.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Protocol

_NOBODY = 1 << 63
# So many entries of waiters that have left are kept in the heap before it is made anew.
_MAX_STALE = 8


class Waiter(Protocol):
    """Somebody who waits for records of a partition."""

    def enough(self) -> None:
        """What was asked for has come: as many bytes as `Waiters.tell` was given, or what `Waiters.tell_when_stable`
        waits for. Told once."""

    def partition_changed(self) -> None:
        """The partition has gone, has a new leader epoch or lost records: ask again, and be told why."""


class Waiters:
    """The waiters of one partition."""

    __slots__ = ("_entries", "_heap", "_held_back", "_lowest", "_waiting", "appended_bytes")

    def __init__(self) -> None:
        self.appended_bytes = 0
        """Of all appends since the partition is served. It only grows."""
        self._waiting: dict[Waiter, int] = {}  # the number of its entry in the heap; 0 for those who were told
        # What `appended_bytes` has to reach, lowest first, with old entries of waiters that have left or asked again.
        self._heap: list[tuple[int, int, Waiter]] = []
        self._entries = 0
        self._lowest = _NOBODY
        self._held_back: dict[Waiter, None] = {}  # those who wait for a transaction to end

    def __len__(self) -> int:
        return len(self._waiting) + len(self._held_back)

    def tell(self, waiter: Waiter, size: int) -> None:
        """Call ``waiter.enough`` when ``size`` (at least 1) more bytes have come, instead of what was said before."""
        self._entries += 1
        self._waiting[waiter] = self._entries
        if len(self._heap) > 2 * len(self._waiting) + _MAX_STALE:
            self._heap = [entry for entry in self._heap if self._waiting.get(entry[2]) == entry[1]]
            heapify(self._heap)
        heappush(self._heap, (self.appended_bytes + size, self._entries, waiter))
        self._lowest = self._heap[0][0]

    def tell_when_stable(self, waiter: Waiter) -> None:
        """Call ``waiter.enough`` when the last stable offset has moved, and not before, whatever comes."""
        self.remove(waiter)
        self._held_back[waiter] = None

    def remove(self, waiter: Waiter) -> None:
        """Tell it no more; unknown waiters are fine."""
        self._waiting.pop(waiter, None)
        if self._held_back:
            self._held_back.pop(waiter, None)
        if not self._waiting:  # nothing may keep those alive who have left an idle partition
            self._heap.clear()
            self._lowest = _NOBODY

    def appended(self, size: int) -> None:
        """So many bytes have come."""
        self.appended_bytes += size
        while self.appended_bytes >= self._lowest:
            _, number, waiter = heappop(self._heap)
            self._lowest = self._heap[0][0] if self._heap else _NOBODY
            if self._waiting.get(waiter) == number:
                self._waiting[waiter] = 0
                waiter.enough()

    def tell_stable(self) -> None:
        """An open transaction has ended, and the last stable offset has moved."""
        if self._held_back:
            told, self._held_back = self._held_back, {}
            for waiter in told:
                waiter.enough()

    def tell_changed(self) -> None:
        """Call `Waiter.partition_changed` of everybody."""
        for waiter in (*self._waiting, *self._held_back):
            waiter.partition_changed()

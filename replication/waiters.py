"""Requests that wait for more bytes of a partition.

A fetch with ``min_bytes`` waits for this number of bytes, and a thousand fetches may wait for one partition. An append
must not spend time on waiters that it does not complete: it adds to one number and compares it with the lowest
threshold.

While a transaction is open, more bytes do not help readers of committed records. They wait for the marker that ends it.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Any, Protocol

_NO_THRESHOLD = 1 << 63
# The number of stale entries in the heap before it is rebuilt.
_MAX_STALE = 8


class Waiter(Protocol):
    """A request that waits for records of a partition."""

    def enough(self) -> None:
        """The condition of `Waiters.wait_for_bytes` or `Waiters.wait_for_stable` is met. Called once."""

    def partition_changed(self) -> None:
        """The partition is no longer served, has a new leader epoch or lost records: retry to get the error."""


class Waiters:
    """The waiters of one partition."""

    __slots__ = ("_entries", "_heap", "_lowest", "_waiting", "_waiting_for_stable", "appended_bytes")

    def __init__(self) -> None:
        self.appended_bytes = 0
        """The total size of all appends since the partition has been served. It never decreases."""
        self._waiting: dict[Waiter, list[Any] | None] = {}  # the heap entry; None after the notification
        # [the threshold of `appended_bytes`, the entry's number, the waiter], lowest first. Stale entries, of waiters
        # that were removed or have a new threshold, have None as the waiter. So each waiter is freed when it is
        # removed, and not thousands at the same time.
        self._heap: list[list[Any]] = []
        self._entries = 0
        self._lowest = _NO_THRESHOLD
        self._waiting_for_stable: dict[Waiter, None] = {}  # waiting for a transaction to end

    def __len__(self) -> int:
        return len(self._waiting) + len(self._waiting_for_stable)

    def wait_for_bytes(self, waiter: Waiter, size: int) -> None:
        """Call ``waiter.enough`` after ``size`` (at least 1) more bytes. Replaces the waiter's earlier condition."""
        self._entries += 1
        old = self._waiting.get(waiter)
        if old is not None:
            old[2] = None
        if len(self._heap) > 2 * len(self._waiting) + _MAX_STALE:
            self._heap = [entry for entry in self._heap if entry[2] is not None]
            heapify(self._heap)
        entry = self._waiting[waiter] = [self.appended_bytes + size, self._entries, waiter]
        heappush(self._heap, entry)
        self._lowest = self._heap[0][0]

    def wait_for_stable(self, waiter: Waiter) -> None:
        """Call ``waiter.enough`` when the last stable offset has moved, regardless of appended bytes."""
        self.remove(waiter)
        self._waiting_for_stable[waiter] = None

    def remove(self, waiter: Waiter) -> None:
        """Stop notifying a waiter. Unknown waiters are ignored."""
        entry = self._waiting.pop(waiter, None)
        if entry is not None:
            entry[2] = None
        if self._waiting_for_stable:
            self._waiting_for_stable.pop(waiter, None)
        if not self._waiting:  # stale entries must not keep removed waiters of an idle partition alive
            self._heap.clear()
            self._lowest = _NO_THRESHOLD

    def appended(self, size: int) -> None:
        """``size`` bytes were appended."""
        self.appended_bytes += size
        while self.appended_bytes >= self._lowest:
            waiter = heappop(self._heap)[2]
            self._lowest = self._heap[0][0] if self._heap else _NO_THRESHOLD
            if waiter is not None:
                self._waiting[waiter] = None
                waiter.enough()

    def notify_stable(self) -> None:
        """An open transaction has ended, and the last stable offset has moved."""
        if self._waiting_for_stable:
            notified, self._waiting_for_stable = self._waiting_for_stable, {}
            for waiter in notified:
                waiter.enough()

    def notify_changed(self) -> None:
        """Call `Waiter.partition_changed` of all waiters."""
        for waiter in (*self._waiting, *self._waiting_for_stable):
            waiter.partition_changed()

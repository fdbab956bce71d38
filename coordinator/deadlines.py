"""Deadlines of a shard: sessions, rebalances, timeouts of transactions. The caller owns the clock and asks for the next
one. A deadline belongs to a key (a group ID or a transactional ID) and has a name that is unique for the key.

Most deadlines are moved before they are due: each heartbeat moves its member's. So moving one is a change in a
dictionary; its entry in the heap stays, and is pushed again for the later time when it is popped. An earlier time adds
an entry.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from .outcome import Now, Outcome

Action = Callable[[Now], Outcome]

# The number of entries of canceled deadlines in the heap before it is rebuilt.
_MAX_STALE = 64


class Due(NamedTuple):
    """A deadline that is due: the key that it belongs to, and what to decide."""

    key: str
    action: Action


class _Deadline:
    __slots__ = ("action", "at", "queued_at")

    def __init__(self, at: int, action: Action) -> None:
        self.at = at
        self.action = action
        self.queued_at = at  # the time of its valid entry in the heap: never later than `at`


class Deadlines:
    """Named deadlines of keys, in milliseconds of the monotonic clock."""

    __slots__ = ("_deadlines", "_entries", "_heap")

    def __init__(self) -> None:
        self._deadlines: dict[tuple[str, Hashable], _Deadline] = {}
        self._heap: list[tuple[int, int, tuple[str, Hashable]]] = []
        self._entries = 0  # makes entries of the same time comparable

    def __len__(self) -> int:
        return len(self._deadlines)

    def set(self, key: str, name: Hashable, at_ms: int, action: Action) -> None:
        """Call ``action(now)`` at ``at_ms``. Replaces the deadline with this name."""
        full_name = (key, name)
        deadline = self._deadlines.get(full_name)
        if deadline is None:
            self._deadlines[full_name] = _Deadline(at_ms, action)
            self._push(at_ms, full_name)
            return
        deadline.action = action
        deadline.at = at_ms
        if at_ms < deadline.queued_at:
            deadline.queued_at = at_ms
            self._push(at_ms, full_name)

    def move(self, key: str, name: Hashable, at_ms: int) -> bool:
        """Move an existing deadline; returns whether there is one."""
        full_name = (key, name)
        deadline = self._deadlines.get(full_name)
        if deadline is None:
            return False
        deadline.at = at_ms
        if at_ms < deadline.queued_at:
            deadline.queued_at = at_ms
            self._push(at_ms, full_name)
        return True

    def cancel(self, key: str, name: Hashable) -> None:
        """Remove a deadline; it need not exist."""
        self._deadlines.pop((key, name), None)
        if len(self._heap) > 2 * len(self._deadlines) + _MAX_STALE:
            self._heap = [entry for entry in self._heap if self._is_current(entry)]
            heapify(self._heap)

    def take(self, key: str, name: Hashable) -> Action | None:
        """Remove a deadline and return its action; None if there is no such deadline."""
        deadline = self._deadlines.get((key, name))
        self.cancel(key, name)
        return None if deadline is None else deadline.action

    def is_set(self, key: str, name: Hashable) -> bool:
        """Whether there is such a deadline."""
        return (key, name) in self._deadlines

    def next(self) -> int | None:
        """The time of the next deadline; None if there is none."""
        heap = self._heap
        while heap:
            at, _, full_name = heap[0]
            deadline = self._deadlines.get(full_name)
            if deadline is None or deadline.queued_at != at:
                heappop(heap)
            elif deadline.at > at:
                heappop(heap)
                deadline.queued_at = deadline.at
                self._push(deadline.at, full_name)
            else:
                return at
        return None

    def earliest(self) -> int | None:
        """A lower bound of `next`, in constant time. None if there is no deadline."""
        return self._heap[0][0] if self._heap else None

    def pop_due(self, monotonic_ms: int) -> Due | None:
        """Remove and return the first due deadline; None if none is due."""
        at = self.next()
        if at is None or at > monotonic_ms:
            return None
        _, _, full_name = heappop(self._heap)
        return Due(full_name[0], self._deadlines.pop(full_name).action)

    def _push(self, at: int, full_name: tuple[str, Hashable]) -> None:
        self._entries += 1
        heappush(self._heap, (at, self._entries, full_name))

    def _is_current(self, entry: tuple[int, int, tuple[str, Hashable]]) -> bool:
        deadline = self._deadlines.get(entry[2])
        return deadline is not None and deadline.queued_at == entry[0]

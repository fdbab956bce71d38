"""Deadlines of a shard: sessions, rebalances, whatever has to end. The shell owns the clock and asks for the next one.

Most deadlines are moved before they come: each heartbeat moves its member's. So moving one is a change in a
dictionary; its entry in the heap stays where it is, and is put back for the later time when it comes up. Setting one to
an earlier time adds an entry.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from .outcome import Now, Outcome

Action = Callable[[Now], Outcome]

# So many entries of cancelled deadlines are kept in the heap before it is made anew.
_MAX_STALE = 64


class Due(NamedTuple):
    """A deadline that has come: what it belongs to, and what to decide."""

    group_id: str
    action: Action


class _Deadline:
    __slots__ = ("action", "at", "queued_at")

    def __init__(self, at: int, action: Action) -> None:
        self.at = at
        self.action = action
        self.queued_at = at  # of its entry in the heap that counts: never later than `at`


class Deadlines:
    """Named deadlines of groups, in milliseconds of the monotonic clock."""

    __slots__ = ("_deadlines", "_entries", "_heap")

    def __init__(self) -> None:
        self._deadlines: dict[tuple[str, Hashable], _Deadline] = {}
        self._heap: list[tuple[int, int, tuple[str, Hashable]]] = []
        self._entries = 0  # makes entries of the same time comparable

    def __len__(self) -> int:
        return len(self._deadlines)

    def set(self, group_id: str, name: Hashable, at_ms: int, action: Action) -> None:
        """Call ``action(now)`` once ``at_ms`` has come, instead of what was set under this name before."""
        key = (group_id, name)
        deadline = self._deadlines.get(key)
        if deadline is None:
            self._deadlines[key] = _Deadline(at_ms, action)
            self._push(at_ms, key)
            return
        deadline.action = action
        deadline.at = at_ms
        if at_ms < deadline.queued_at:
            deadline.queued_at = at_ms
            self._push(at_ms, key)

    def move(self, group_id: str, name: Hashable, at_ms: int) -> bool:
        """Move a deadline that is set; whether there is one."""
        key = (group_id, name)
        deadline = self._deadlines.get(key)
        if deadline is None:
            return False
        deadline.at = at_ms
        if at_ms < deadline.queued_at:
            deadline.queued_at = at_ms
            self._push(at_ms, key)
        return True

    def cancel(self, group_id: str, name: Hashable) -> None:
        """Forget it; unknown ones are fine."""
        self._deadlines.pop((group_id, name), None)
        if len(self._heap) > 2 * len(self._deadlines) + _MAX_STALE:
            self._heap = [entry for entry in self._heap if self._is_current(entry)]
            heapify(self._heap)

    def take(self, group_id: str, name: Hashable) -> Action | None:
        """What would be decided when it comes, which it then does not; None when there is no such deadline."""
        deadline = self._deadlines.get((group_id, name))
        self.cancel(group_id, name)
        return None if deadline is None else deadline.action

    def is_set(self, group_id: str, name: Hashable) -> bool:
        """Whether such a deadline is to come."""
        return (group_id, name) in self._deadlines

    def next(self) -> int | None:
        """When to ask for what is due, at the latest; None while nothing is set."""
        heap = self._heap
        while heap:
            at, _, key = heap[0]
            deadline = self._deadlines.get(key)
            if deadline is None or deadline.queued_at != at:
                heappop(heap)
            elif deadline.at > at:
                heappop(heap)
                deadline.queued_at = deadline.at
                self._push(deadline.at, key)
            else:
                return at
        return None

    def earliest(self) -> int | None:
        """A time before which nothing comes, quickly; `next` knows better. None while nothing is set."""
        return self._heap[0][0] if self._heap else None

    def pop_due(self, monotonic_ms: int) -> Due | None:
        """The first deadline that has come, which is no longer set then; None when there is no more."""
        at = self.next()
        if at is None or at > monotonic_ms:
            return None
        _, _, key = heappop(self._heap)
        return Due(key[0], self._deadlines.pop(key).action)

    def _push(self, at: int, key: tuple[str, Hashable]) -> None:
        self._entries += 1
        heappush(self._heap, (at, self._entries, key))

    def _is_current(self, entry: tuple[int, int, tuple[str, Hashable]]) -> bool:
        deadline = self._deadlines.get(entry[2])
        return deadline is not None and deadline.queued_at == entry[0]

"""The limit on responses that peers do not read, for all connections together.

Each connection holds few of them (`connection`), but there may be many connections. A connection is counted if it waits
for its peer, or for an earlier response, and holds more than a little. When the total exceeds `MAX_BYTES`, the
connection whose peer has accepted nothing for the longest time is closed, then the next one, until the total is within
the limit. A peer that reads, however slowly, comes after all that do not. File ranges take no memory and do not count.
The last connection stays open: one response may be larger than the limit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

MAX_BYTES = 64 * 1024 * 1024


class Holder(Protocol):
    """A connection that holds unread responses."""

    def close_unread(self) -> None:
        """Close: the peer does not read its responses, and there are too many of them. Its `count` is 0 after that."""


class UnreadResponses:
    """The bytes of unread responses that each connection holds."""

    def __init__(self, call_soon: Callable[[Callable[[], None]], object], max_bytes: int = MAX_BYTES) -> None:
        self._call_soon = call_soon
        self._max_bytes = max_bytes
        self._held: dict[Holder, int] = {}  # the first one's peer has accepted nothing for the longest time
        self._is_closing = False
        self.used_bytes = 0
        """The total of all connections."""

    def count(self, holder: Holder, size: int, *, progress: bool) -> None:
        """Note that ``holder`` has ``size`` bytes now. ``progress``: its peer has just accepted some."""
        before = self._held.pop(holder, 0) if progress or not size else self._held.get(holder, 0)
        if size:
            self._held[holder] = size
        self.used_bytes += size - before
        if self.used_bytes > self._max_bytes and not self._is_closing:
            # Later: the holder is still running.
            self._is_closing = True
            self._call_soon(self._close_some)

    def _close_some(self) -> None:
        self._is_closing = False
        while self.used_bytes > self._max_bytes and len(self._held) > 1:
            next(iter(self._held)).close_unread()

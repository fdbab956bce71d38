"""Throttles of replication (KIP-73): while partitions are moved, their copies must not use the whole network.

A broker has two throttles, each with a rate: for what it sends as leader, and for what it fetches as follower. A topic
names the replicas that are throttled. Replicas that are in sync are not delayed, because producers wait for them, but
their bytes count.

The rate is measured over the current second and the ten seconds before it. Times are milliseconds of a monotonic clock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

UNLIMITED: Final = 0x7FFF_FFFF_FFFF_FFFF

_WINDOW_MS: Final = 1000
_WINDOWS: Final = 11

_EVERY_REPLICA: Final = "*"


class Throttle:
    """Measures bytes, and compares their rate with a limit."""

    __slots__ = ("_began_ms", "_sum", "_windows", "bytes_per_second")

    def __init__(self) -> None:
        self.bytes_per_second = UNLIMITED
        self._windows: deque[tuple[int, int]] = deque()  # (the beginning, bytes), oldest first
        self._sum = 0
        self._began_ms = 0

    @property
    def is_limited(self) -> bool:
        """Whether there is a limit. Without one, nothing needs to be recorded."""
        return self.bytes_per_second < UNLIMITED

    def record(self, size: int, now_ms: int) -> None:
        """This many bytes of throttled replicas were sent or received."""
        self._expire(now_ms)
        begin = now_ms - now_ms % _WINDOW_MS
        self._sum += size
        if self._windows and self._windows[-1][0] == begin:
            self._windows[-1] = (begin, self._windows[-1][1] + size)
            return
        if not self._windows:
            self._began_ms = begin
        self._windows.append((begin, size))

    def is_exceeded(self, now_ms: int) -> bool:
        """Whether the measured rate is above the limit."""
        if not self.is_limited:
            return False
        self._expire(now_ms)
        return self._sum * 1000 > self.bytes_per_second * self._elapsed_ms(now_ms)

    def _elapsed_ms(self, now_ms: int) -> int:
        """The measured time: at least one window, so that the first bytes are not a high rate."""
        began_ms = max(self._began_ms, now_ms - now_ms % _WINDOW_MS - (_WINDOWS - 1) * _WINDOW_MS)
        return max(_WINDOW_MS, now_ms - began_ms)

    def _expire(self, now_ms: int) -> None:
        oldest = now_ms - now_ms % _WINDOW_MS - (_WINDOWS - 1) * _WINDOW_MS
        while self._windows and self._windows[0][0] < oldest:
            self._sum -= self._windows.popleft()[1]


def is_throttled(replicas: str | None, partition: int, broker_id: int) -> bool:
    """Whether the value of ``leader.replication.throttled.replicas``, or of the setting for followers, has this
    replica."""
    if not replicas:
        return False
    entries: Iterable[str] = (entry.strip() for entry in replicas.split(","))
    wanted = f"{partition}:{broker_id}"
    return any(entry in (wanted, _EVERY_REPLICA) for entry in entries)

"""The time of day as the server sees it. Tests may move it forward; deadlines are counted by the loop's own clock.

What goes by it: timestamps of `LogAppendTime`, how far a record's own timestamp may be off, retention, `segment.ms` of
records without timestamps, `file.delete.delay.ms`, when producers, committed offsets and transactional ids expire.
"""

from __future__ import annotations

import time
from collections.abc import Callable

Clock = Callable[[], int]
"""Milliseconds since the epoch."""


def wall_clock() -> int:
    """The machine's."""
    return time.time_ns() // 1_000_000


class MovableClock:
    """The machine's clock, and how far a test has moved it ahead."""

    __slots__ = ("ahead_ms",)

    def __init__(self) -> None:
        self.ahead_ms = 0

    def __call__(self) -> int:
        return time.time_ns() // 1_000_000 + self.ahead_ms

    def advance(self, ms: int) -> None:
        """From now on it is later by so much."""
        self.ahead_ms += ms

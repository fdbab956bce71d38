"""The time of day of the server. Tests may move it forward. Deadlines use the event loop's own clock.

The time of day determines: timestamps of `LogAppendTime`, the allowed difference of a record's own timestamp,
retention, `segment.ms` of records without timestamps, `file.delete.delay.ms`, and when producers, committed offsets and
transactional ids expire.
"""

from __future__ import annotations

import time
from collections.abc import Callable

Clock = Callable[[], int]
"""Milliseconds since the epoch."""


def wall_clock() -> int:
    """The time of day of the machine."""
    return time.time_ns() // 1_000_000


class MovableClock:
    """The machine's clock, plus the time by which a test has moved it ahead."""

    __slots__ = ("ahead_ms",)

    def __init__(self) -> None:
        self.ahead_ms = 0

    def __call__(self) -> int:
        return time.time_ns() // 1_000_000 + self.ahead_ms

    def advance(self, ms: int) -> None:
        """Move the clock ahead by ``ms`` milliseconds."""
        self.ahead_ms += ms

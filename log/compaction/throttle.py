"""Limits the bytes per second: how long to pause after each piece."""

from __future__ import annotations


class Throttle:
    """`pause` returns how long to wait after `count` more bytes.

    Unused capacity of an idle time is not saved, except for that of a tenth of a second.
    """

    __slots__ = ("_bytes_per_second", "_paid_until")

    def __init__(self, bytes_per_second: float) -> None:
        """0 means no limit."""
        self._bytes_per_second = bytes_per_second
        self._paid_until: float | None = None

    def pause(self, count: int, now: float) -> float:
        """The seconds to wait from `now` on. `now` is monotonic, in seconds."""
        if self._bytes_per_second <= 0:
            return 0.0
        begin = now if self._paid_until is None else max(self._paid_until, now - 0.1)
        self._paid_until = begin + count / self._bytes_per_second
        return max(0.0, self._paid_until - now)

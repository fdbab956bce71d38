"""So many bytes a second: how long to pause after each piece."""

from __future__ import annotations


class Throttle:
    """Bytes are paid for with time: `pause` says how long to wait after `count` bytes more.

    What was not used up in a quiet time is not saved for later, but for a tenth of a second's worth.
    """

    __slots__ = ("_bytes_per_second", "_paid_until")

    def __init__(self, bytes_per_second: float) -> None:
        """0: as fast as it goes."""
        self._bytes_per_second = bytes_per_second
        self._paid_until: float | None = None

    def pause(self, count: int, now: float) -> float:
        """Seconds to wait from `now` on. `now` is a time in seconds that never goes back."""
        if self._bytes_per_second <= 0:
            return 0.0
        begin = now if self._paid_until is None else max(self._paid_until, now - 0.1)
        self._paid_until = begin + count / self._bytes_per_second
        return max(0.0, self._paid_until - now)

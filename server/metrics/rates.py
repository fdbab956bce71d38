"""Rates and shares over the last half minute, from counters that are read at each scrape."""

from __future__ import annotations

from collections import deque
from typing import Final

WINDOW_S: Final = 30.0
_MIN_INTERVAL_S: Final = 1.0
_MAX_SAMPLES: Final = 64


class Rates:
    """The changes of counters per second. Frequent scrapes do not shorten the window."""

    def __init__(self) -> None:
        self._samples: dict[str, deque[tuple[float, float]]] = {}

    def per_second(self, name: str, value: float, now: float) -> float:
        """The rate of a counter that has this value now; 0 at its first reading."""
        samples = self._samples.setdefault(name, deque(maxlen=_MAX_SAMPLES))
        while len(samples) > 1 and samples[1][0] <= now - WINDOW_S:
            samples.popleft()
        if not samples:
            samples.append((now, value))
            return 0.0
        began, first = samples[0]
        rate = (value - first) / (now - began) if now > began else 0.0
        if now - samples[-1][0] >= _MIN_INTERVAL_S:
            samples.append((now, value))
        return max(0.0, rate)

"""A line over time, as the points of an SVG."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

_WIDTH: Final = 720
_HEIGHT: Final = 120


class Sample(NamedTuple):
    """A value at a time."""

    time_ms: int
    value: float


class Chart(NamedTuple):
    """The points of a line in a box of ``width`` by ``height``, and those of the area below it."""

    line: str
    area: str
    width: int
    height: int
    highest: float
    from_ms: int
    to_ms: int


def chart(samples: Sequence[Sample]) -> Chart | None:
    """A chart of at least two samples."""
    if len(samples) < 2:
        return None
    start, end = samples[0].time_ms, samples[-1].time_ms
    highest = max(sample.value for sample in samples)

    def points() -> Iterator[str]:
        for sample in samples:
            x = (sample.time_ms - start) / max(1, end - start) * _WIDTH
            y = _HEIGHT - sample.value / max(1, highest) * (_HEIGHT - 8) - 2
            yield f"{x:.1f},{y:.1f}"

    line = " ".join(points())
    area = f"0,{_HEIGHT} {line} {_WIDTH},{_HEIGHT}"
    return Chart(line, area, _WIDTH, _HEIGHT, highest, start, end)

"""The lag of groups over the last hour, kept in the memory of the console.

A sample is the sum over all partitions with a committed offset. Groups that no longer exist are forgotten.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from typing import Final, NamedTuple

from ..cli.cluster import Cluster
from ..cli.group_client import GroupClient, TopicPartition
from ..cli.group_offsets import LogOffsets

INTERVAL_S: Final = 10.0
SPAN_MS: Final = 3_600_000
# More groups are not sampled in the background; a group's own page adds a sample.
_MAX_GROUPS: Final = 200
_CHART_WIDTH: Final = 720
_CHART_HEIGHT: Final = 120


class Sample(NamedTuple):
    """A sum of lags at a time."""

    time_ms: int
    lag: int


class LagHistory:
    """Samples by group."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._samples: dict[str, deque[Sample]] = {}

    def add(self, group: str, lag: int, now_ms: int) -> None:
        with self._lock:
            samples = self._samples.setdefault(group, deque())
            samples.append(Sample(now_ms, lag))
            while samples[0].time_ms < now_ms - SPAN_MS:
                samples.popleft()

    def keep(self, groups: set[str]) -> None:
        """Forget other groups."""
        with self._lock:
            for group in self._samples.keys() - groups:
                del self._samples[group]

    def of(self, group: str) -> list[Sample]:
        with self._lock:
            return list(self._samples.get(group, ()))

    def sample(self, cluster: Cluster, now_ms: int) -> None:
        """Add a sample of each group. Raises Failure and PeerError."""
        client = GroupClient(cluster)
        groups = [each.group_id for each in client.list()]
        self.keep(set(groups))
        for group, lag in total_lags(cluster, client, groups[:_MAX_GROUPS]).items():
            if lag is not None:
                self.add(group, lag, now_ms)


def total_lags(cluster: Cluster, client: GroupClient, groups: list[str]) -> dict[str, int | None]:
    """The lag of each group over all its partitions; None for a group without committed offsets."""
    committed = {group: client.committed(group) for group in groups}
    wanted: set[TopicPartition] = {partition for offsets in committed.values() for partition in offsets}
    ends = LogOffsets(cluster, lambda _: None).ends(sorted(wanted))
    found: dict[str, int | None] = {}
    for group, offsets in committed.items():
        lags = [
            max(0, end - each.offset) for partition, each in offsets.items() if (end := ends[partition]) is not None
        ]
        found[group] = sum(lags) if lags else None
    return found


class Chart(NamedTuple):
    """The points of a line in a box of `_CHART_WIDTH` by `_CHART_HEIGHT`, for an SVG."""

    line: str
    area: str
    width: int
    height: int
    highest: int
    from_ms: int
    to_ms: int


def chart(samples: list[Sample]) -> Chart | None:
    """A chart of at least two samples."""
    if len(samples) < 2:
        return None
    start, end = samples[0].time_ms, samples[-1].time_ms
    highest = max(sample.lag for sample in samples)

    def points() -> Iterator[str]:
        for sample in samples:
            x = (sample.time_ms - start) / max(1, end - start) * _CHART_WIDTH
            y = _CHART_HEIGHT - sample.lag / max(1, highest) * (_CHART_HEIGHT - 8) - 2
            yield f"{x:.1f},{y:.1f}"

    line = " ".join(points())
    area = f"0,{_CHART_HEIGHT} {line} {_CHART_WIDTH},{_CHART_HEIGHT}"
    return Chart(line, area, _CHART_WIDTH, _CHART_HEIGHT, highest, start, end)

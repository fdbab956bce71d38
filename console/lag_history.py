"""The lag of groups over the last hour, kept in the memory of the console.

A sample is the sum over all partitions with a committed offset. Groups that no longer exist are forgotten.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Final

from ..cli.cluster import Cluster
from ..cli.group_client import GroupClient, TopicPartition
from ..cli.group_offsets import LogOffsets
from .chart import Sample

INTERVAL_S: Final = 10.0
SPAN_MS: Final = 3_600_000
# More groups are not sampled in the background; a group's own page adds a sample.
_MAX_GROUPS: Final = 200


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

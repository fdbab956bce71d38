"""The records per second of topics over the last hour, kept in the memory of the console.

Kafka's protocol has no rates, but the end offsets of partitions, which grow by one per record; markers of transactions
count as records. A topic has one counter, which grows by what its end offsets have grown since the sample before, so
partitions that are added, or that have no leader for a while, do not look like records. A topic that was deleted and
created again starts from zero; topics that no longer exist are forgotten.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, NamedTuple

from ..cli.cluster import LATEST_OFFSET, Cluster
from ..protocol.messages.metadata import MetadataResponseTopic
from .chart import Sample

SPAN_MS: Final = 3_600_000
WINDOW_MS: Final = 60_000
"""A rate is the average of this time, if there are samples of it."""
_MIN_SPAN_MS: Final = 1000
# More partitions are not sampled in the background; the screen of topics adds samples of the topics that it shows.
_MAX_PARTITIONS: Final = 2000


class Rate(NamedTuple):
    """An average over a time."""

    per_s: float
    span_ms: int


@dataclass
class _Counter:
    """What is known of one topic."""

    topic_id: bytes
    ends: dict[int, int]
    samples: deque[Sample] = field(default_factory=deque)


class TopicRates:
    """Samples by topic. Threads share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counters: dict[str, _Counter] = {}

    def add(self, topic: str, topic_id: bytes, ends: Mapping[int, int], now_ms: int) -> None:
        """A sample: the end offsets of the partitions whose leaders have responded."""
        with self._lock:
            counter = self._counters.get(topic)
            if counter is None or counter.topic_id != topic_id:
                counter = self._counters[topic] = _Counter(topic_id, {})
            grown = sum(max(0, end - counter.ends.get(partition, end)) for partition, end in ends.items())
            counter.ends |= ends
            samples = counter.samples
            value = samples[-1].value + grown if samples else 0
            if len(samples) > 1:
                before, last = samples[-2], samples[-1]
                # A topic that is idle needs two samples only: when that began, and when it was seen last. Pages that
                # are loaded often add no samples.
                if before.value == last.value == value or last.time_ms - before.time_ms < _MIN_SPAN_MS:
                    samples.pop()
            samples.append(Sample(now_ms, value))
            while len(samples) > 1 and samples[1].time_ms <= now_ms - SPAN_MS:
                samples.popleft()

    def keep(self, topics: set[str]) -> None:
        """Forget other topics."""
        with self._lock:
            for topic in self._counters.keys() - topics:
                del self._counters[topic]

    def rate(self, topic: str) -> Rate | None:
        """The rate of the last minute; of a longer time if there are no samples in it; None without two samples."""
        with self._lock:
            counter = self._counters.get(topic)
            samples = list(counter.samples) if counter is not None else []
        if len(samples) < 2:
            return None
        last = samples[-1]
        older = [each for each in samples[:-1] if each.time_ms <= last.time_ms - _MIN_SPAN_MS]
        if not older:
            return None
        recent = [each for each in older if each.time_ms >= last.time_ms - WINDOW_MS]
        first = recent[0] if recent else older[-1]
        span_ms = last.time_ms - first.time_ms
        return Rate(1000 * (last.value - first.value) / span_ms, span_ms)

    def history(self, topic: str) -> list[Sample]:
        """The rate between samples, at the time of the later one."""
        with self._lock:
            counter = self._counters.get(topic)
            samples = list(counter.samples) if counter is not None else []
        found: list[Sample] = []
        for before, after in pairwise(samples):
            span_ms = after.time_ms - before.time_ms
            if span_ms < _MIN_SPAN_MS:
                continue  # the last two samples
            rate = 1000 * (after.value - before.value) / span_ms
            # The line is flat between two samples, and does not rise before the time to which the rate belongs.
            found += [Sample(before.time_ms, rate), Sample(after.time_ms, rate)]
        return found

    def sample(self, cluster: Cluster, now_ms: int) -> None:
        """Add a sample of each topic. Raises Failure and PeerError."""
        topics = [each for each in cluster.topics(None) if each.error_code == 0]
        self.keep({each.name or "" for each in topics})
        self.add_ends(cluster, _first(sorted(topics, key=lambda each: (each.is_internal, each.name or ""))), now_ms)

    def add_ends(self, cluster: Cluster, topics: Iterable[MetadataResponseTopic], now_ms: int) -> None:
        """Request the end offsets of these topics, and add them. Raises Failure and PeerError."""
        topics = list(topics)
        ends: dict[str, dict[int, int]] = {}
        for (name, partition), position in cluster.positions(topics, LATEST_OFFSET).items():
            ends.setdefault(name, {})[partition] = position.offset
        for topic in topics:
            name = topic.name or ""
            if name in ends:
                self.add(name, topic.topic_id, ends[name], now_ms)


def _first(topics: Iterable[MetadataResponseTopic]) -> Iterable[MetadataResponseTopic]:
    """The first topics, with `_MAX_PARTITIONS` partitions altogether."""
    remaining = _MAX_PARTITIONS
    for topic in topics:
        remaining -= len(topic.partitions)
        if remaining < 0:
            return
        yield topic

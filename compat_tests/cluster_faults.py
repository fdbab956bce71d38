"""Faults of brokers with three replicas, while clients continue: the mode ``faults`` of `cluster_kills`.

Each of three brokers in turn is killed, paused beyond its session, paused and then killed, or cut off from another
broker. Two replicas must be in sync. The next fault waits until all are in sync again, so one broker at a time may lack
records.
"""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Callable
from typing import Final

from moldau.compat_tests.cluster_load import Load
from moldau.testing.cluster import Cluster

SESSION_S: Final = 3.0
BEYOND_SESSION_S: Final = SESSION_S + 1.5
BROKERS: Final = 3
KINDS: Final = ("killed", "paused", "paused and killed", "cut")

_CONFIG: Final = {"replica.lag.time.max.ms": 3000}
"""A leader that is cut off from a follower goes on without it after this time."""


def cluster_for_faults() -> Cluster:
    """With a short session: a paused broker has lost its leaderships after `BEYOND_SESSION_S`."""
    return Cluster(brokers=BROKERS, session_timeout=SESSION_S, config=_CONFIG, timeout_s=120)


class Faults:
    """The faults so far, by kind."""

    def __init__(self, cluster: Cluster, load: Load) -> None:
        self._cluster = cluster
        self._load = load
        self.counts: Counter[str] = Counter()
        causes = (self._kill, self._pause, self._pause_and_kill, self._cut)
        self._causes: dict[str, Callable[[int], None]] = dict(zip(KINDS, causes, strict=True))
        # All pairs of a kind and a broker follow: there are four kinds, and three brokers.
        self._next = zip(itertools.cycle(KINDS), itertools.cycle(range(1, BROKERS + 1)), strict=False)

    def cause_next(self) -> None:
        """Return when the fault has ended."""
        kind, broker = next(self._next)
        self._causes[kind](broker)
        self.counts[kind] += 1

    def _kill(self, broker: int) -> None:
        self._cluster.kill(broker)
        self._cluster.start(broker)

    def _pause(self, broker: int) -> None:
        self._cluster.pause(broker)
        self._wait()
        self._cluster.resume(broker)

    def _pause_and_kill(self, broker: int) -> None:
        self._cluster.pause(broker)
        self._wait()
        self._cluster.kill(broker)
        self._cluster.start(broker)

    def _cut(self, broker: int) -> None:
        self._cluster.cut(broker, broker % BROKERS + 1)
        self._wait()
        self._cluster.heal()

    def _wait(self) -> None:
        until = time.monotonic() + BEYOND_SESSION_S
        while time.monotonic() < until:
            self._load.check_alive()
            time.sleep(0.05)

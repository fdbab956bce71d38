"""The servers that the suite can start, behind one interface."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from moldau.testing import Cluster


class Server(Protocol):
    """A started server: the same address and data from the first start to the last stop."""

    @property
    def bootstrap_servers(self) -> str:
        """``host:port``."""

    def start(self) -> object:
        """Start it again; returns when it responds."""

    def stop(self) -> None:
        """Stop it cleanly."""

    def restart(self) -> None:
        """Stop it cleanly and start it again."""

    def kill(self) -> None:
        """``kill -9``; ``start`` restarts it."""

    def log(self) -> str:
        """Its log."""


def start_server(*, apache: bool, config: Mapping[str, str], brokers: int = 1) -> AbstractContextManager[Server]:
    """Apache Kafka or Moldau with these settings, and a data directory that is removed at the end.

    With several ``brokers``, a cluster of Moldau, of which clients know the first one.
    """
    if apache:
        from moldau.testing.apache_kafka import ApacheKafka

        return ApacheKafka(config)
    return _moldau(config) if brokers == 1 else _cluster(config, brokers)


@contextmanager
def _moldau(config: Mapping[str, str]) -> Iterator[Server]:
    """A Moldau broker. Its log must not contain a traceback, whatever its clients did."""
    from moldau.testing import Broker

    with Broker(config=config) as broker:
        yield broker
        log = broker.log()
    _expect_no_traceback(log)


class _ClusterServer:
    """A cluster as one server: all its brokers are started, stopped and killed together."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    @property
    def bootstrap_servers(self) -> str:
        """The address of the first broker."""
        return self._cluster.broker(self._cluster.broker_ids[0]).address

    def start(self) -> None:
        self._cluster.start_all()

    def stop(self) -> None:
        first, *others = self._cluster.broker_ids
        for broker_id in (*others, first):
            self._cluster.stop(broker_id)

    def restart(self) -> None:
        self.stop()
        self.start()

    def kill(self) -> None:
        for broker_id in self._cluster.broker_ids:
            self._cluster.kill(broker_id)

    def log(self) -> str:
        return self._cluster.log()


@contextmanager
def _cluster(config: Mapping[str, str], brokers: int) -> Iterator[Server]:
    """A cluster of Moldau. Its logs must not contain a traceback."""
    from moldau.testing import Cluster

    with Cluster(brokers, config=config) as cluster:
        yield _ClusterServer(cluster)
        log = cluster.log()
    _expect_no_traceback(log)


def _expect_no_traceback(log: str) -> None:
    if "Traceback" in log:
        raise AssertionError(f"the server has logged internal errors:\n{around_tracebacks(log)}")


def around_tracebacks(log: str, before: int = 20, after: int = 60, at_most: int = 5) -> str:
    """The first tracebacks of a log, each with the lines before and after it."""
    lines = log.splitlines()
    shown: list[str] = []
    end = 0
    places = [number for number, line in enumerate(lines) if "Traceback" in line]
    for place in places[:at_most]:
        start = max(end, place - before)
        if start > end:
            shown.append(f"... {start - end} lines ...")
        end = max(end, place + after)
        shown += lines[start:end]
    return "\n".join([*shown, f"({len(places)} tracebacks in {len(lines)} lines)"])

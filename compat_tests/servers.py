"""The two servers that the suite can start, behind one interface."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Protocol


class Server(Protocol):
    """A server that we started: the same address and data from the first start to the last stop."""

    @property
    def bootstrap_servers(self) -> str:
        """``host:port``."""

    def start(self) -> object:
        """Start it again; returns when it answers."""

    def stop(self) -> None:
        """Stop it cleanly."""

    def restart(self) -> None:
        """Stop it cleanly and start it again."""

    def kill(self) -> None:
        """``kill -9``; ``start`` brings it back."""


def start_server(*, apache: bool, config: Mapping[str, str]) -> AbstractContextManager[Server]:
    """Apache Kafka or Moldau with these settings, and a data directory that is removed at the end."""
    if apache:
        from moldau.compat_tests.apache import ApacheKafka

        return ApacheKafka(config)
    from moldau.testing import Broker

    return Broker(config=config)

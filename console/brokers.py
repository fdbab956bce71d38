"""The connections of the console to its cluster.

The pages of the console are served by threads, and a connection serves one request at a time. So a thread borrows a
cluster (its connections) for the length of a page, and returns it. Connections that the broker has closed, that have
failed, or that are old are not used again: a broker that restarts, and a cluster whose brokers move, are found by the
next page.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from ..cli.client import connect
from ..cli.client_security import PLAINTEXT, Security
from ..cli.cluster import Cluster
from ..cli.connection import PeerError
from ..cli.failure import Failure

CLIENT_ID: Final = "moldau-console"
# The addresses of brokers, which a cluster keeps, are at most this old.
_MAX_AGE_S: Final = 60.0
_MAX_IDLE: Final = 8


class Brokers:
    """A pool of connections to one cluster."""

    def __init__(self, bootstrap_server: str, security: Security = PLAINTEXT) -> None:
        self.bootstrap_server = bootstrap_server
        self.security = security
        self._lock = threading.Lock()
        self._idle: deque[tuple[float, Cluster]] = deque()
        self._is_closed = False

    @contextmanager
    def cluster(self) -> Iterator[Cluster]:
        """A cluster for one page. Raises Failure if no broker is reachable; PeerError becomes Failure."""
        opened_at, cluster = self._take()
        is_usable = False
        try:
            yield cluster
            is_usable = True
        except PeerError as problem:
            raise Failure(f"{self.bootstrap_server}: {problem}") from problem
        except Failure:
            is_usable = True  # the server has refused something, and the connection is as before
            raise
        finally:
            if is_usable:
                self._put(opened_at, cluster)
            else:
                cluster.close()

    def open(self) -> Cluster:
        """A cluster that the caller closes, for streams. Raises Failure."""
        return Cluster(connect(self.bootstrap_server, security=self.security, client_id=CLIENT_ID))

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, deque()
        for _, cluster in idle:
            cluster.close()

    def _take(self) -> tuple[float, Cluster]:
        while True:
            with self._lock:
                if not self._idle:
                    break
                opened_at, cluster = self._idle.pop()
            if time.monotonic() - opened_at < _MAX_AGE_S and cluster.is_open():
                return opened_at, cluster
            cluster.close()
        return time.monotonic(), self.open()

    def _put(self, opened_at: float, cluster: Cluster) -> None:
        with self._lock:
            if len(self._idle) < _MAX_IDLE and not self._is_closed:
                self._idle.append((opened_at, cluster))
                return
        cluster.close()

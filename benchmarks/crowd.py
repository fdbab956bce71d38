"""Connections of a few hundred or thousand idle clients that stay open while one client is busy.

The busy client may be one of them, alternately.

Each has requested the API versions, as every client does first, so the server has accepted and served it. Then it may
have sent one more request that stays pending: a Fetch that waits.
"""

from __future__ import annotations

import resource
import selectors
import socket
import struct
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

CONNECTIONS_PER_ADDRESS = 1_000
"""After this number the next source address is used, of which the loopback interface has many. One address has 28,000
ports; but the ports of closed connections stay in use for a minute, and the kernel's search for a free one becomes slow
long before there is none."""

_BIND_ADDRESS_NO_PORT = 24
"""IP_BIND_ADDRESS_NO_PORT of linux/in.h, which Python does not define: choose the port by the whole connection."""

SPARE_DESCRIPTORS = 500
"""For all other open files of this process, or of the server."""

RECEIVE_SECONDS = 30

_RECEIVE_BYTES = 1 << 16


class CrowdError(Exception):
    """An idle connection received a response or was closed."""


def max_connections() -> int:
    """The maximum number of connections of this process, and of a server with the same limit of open files."""
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard - SPARE_DESCRIPTORS


class Crowd:
    """``size`` connections to ``bootstrap_servers``, open until the end of the ``with`` block.

    They are opened one after the other, each after the response to the previous one. A server's queue of new
    connections is short (Apache Kafka: 50), and a connection that does not fit into it is retried after a second.
    """

    def __init__(
        self, bootstrap_servers: str, size: int, greeting: bytes, request_of: Callable[[int], bytes] | None = None
    ) -> None:
        """``greeting`` is a frame that is answered immediately; ``request_of`` creates each member's pending frame."""
        host, port = bootstrap_servers.rsplit(":", 1)
        self._address = (host, int(port))
        self._size = size
        self._greeting = greeting
        self._request_of = request_of
        self._sockets: list[socket.socket] = []

    def check(self) -> None:
        """Raise CrowdError if a connection was closed, or received an unexpected response."""
        answered = self.answered()
        if answered:
            raise CrowdError(f"{answered} of {self._size} idle connections were answered or closed")

    def answered(self) -> int:
        """The number of connections that have an unread response or were closed."""
        with selectors.DefaultSelector() as selector:
            for each in self._sockets:
                selector.register(each, selectors.EVENT_READ)
            return len(selector.select(0))

    def take_turns(self, request: bytes, seconds: float) -> list[float]:
        """Send ``request`` on one connection after the other, each after the response to the previous one. Returns the
        latencies in microseconds."""
        took = []
        clock = time.perf_counter
        end = clock() + seconds
        while True:
            for member in self._sockets:
                began = clock()
                member.sendall(request)
                _receive_frame(member)
                ended = clock()
                took.append((ended - began) * 1e6)
                if ended >= end:
                    return took

    def close(self) -> None:
        """Close all connections."""
        while self._sockets:
            self._sockets.pop().close()

    def __enter__(self) -> Self:
        try:
            for number in range(self._size):
                self._join(number)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _join(self, number: int) -> None:
        member = socket.socket()
        self._sockets.append(member)
        greet(member, self._address, number, self._greeting)
        if self._request_of is not None:
            member.sendall(self._request_of(number))


def greet(member: socket.socket, address: tuple[str, int], number: int, greeting: bytes) -> None:
    """Connect one of many clients, and receive its first response. ``number`` selects its source address."""
    # The kernel's timeout: with Python's own, Python polls before every send and receive.
    member.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", RECEIVE_SECONDS, 0))
    member.setsockopt(socket.IPPROTO_IP, _BIND_ADDRESS_NO_PORT, 1)
    member.bind((f"127.0.0.{2 + number // CONNECTIONS_PER_ADDRESS}", 0))
    member.connect(address)
    member.sendall(greeting)
    _receive_frame(member)


def _receive_frame(member: socket.socket) -> None:
    """Receive the single pending response, most likely in one piece."""
    received = member.recv(_RECEIVE_BYTES)
    while len(received) < 4 or len(received) < 4 + int.from_bytes(received[:4], "big"):
        piece = member.recv(_RECEIVE_BYTES)
        if not piece:
            raise CrowdError("the server closed a connection")
        received += piece

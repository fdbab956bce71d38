"""Connections that are held open by a few hundred or thousand clients that do nothing, while one is busy.

The busy one may be one of them, each in its turn.

Each has asked for the API versions, as every client does first, so the server has accepted it and served it. Then it
may have sent one request more, which is not to be answered: a Fetch that waits.
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
"""Then the next source address, of which the loopback interface has many. One has 28,000 ports; but the ports of closed
connections stay taken for a minute, and the kernel's search for a free one becomes slow long before there is none."""

_BIND_ADDRESS_NO_PORT = 24
"""IP_BIND_ADDRESS_NO_PORT of linux/in.h, which Python has no name for: choose the port by the whole connection."""

SPARE_DESCRIPTORS = 500
"""For all else that this process, or the server, has open."""

RECEIVE_SECONDS = 30

_RECEIVE_BYTES = 1 << 16


class CrowdError(Exception):
    """Somebody of the crowd was not as idle as it had to be."""


def most_connections() -> int:
    """How many connections this process may hold, and a server with the same limit of open files."""
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard - SPARE_DESCRIPTORS


class Crowd:
    """``size`` connections to ``bootstrap_servers``, open until the end of the ``with`` block.

    Opened one after the other, each answered before the next one comes: a server's queue of new connections is short
    (Apache Kafka: 50), and who does not get into it tries again after a second.
    """

    def __init__(
        self, bootstrap_servers: str, size: int, greeting: bytes, request_of: Callable[[int], bytes] | None = None
    ) -> None:
        """``greeting`` is a frame that is answered; ``request_of`` gives each member's frame that waits."""
        host, port = bootstrap_servers.rsplit(":", 1)
        self._address = (host, int(port))
        self._size = size
        self._greeting = greeting
        self._request_of = request_of
        self._sockets: list[socket.socket] = []

    def check(self) -> None:
        """Raise CrowdError if a connection was closed, or got an answer that it was not to get."""
        with selectors.DefaultSelector() as selector:
            for each in self._sockets:
                selector.register(each, selectors.EVENT_READ)
            spoken_to = len(selector.select(0))
        if spoken_to:
            raise CrowdError(f"{spoken_to} of {self._size} idle connections were answered or closed")

    def take_turns(self, request: bytes, seconds: float) -> list[float]:
        """Send ``request`` by one connection after the other, each when the one before has its answer; how long each
        took, in microseconds."""
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
        """Hang up."""
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
    """Connect one of many, and have its first frame answered. ``number`` tells it from the others."""
    # The kernel's timeout: with one of its own, Python asks before every send and receive whether it may.
    member.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", RECEIVE_SECONDS, 0))
    member.setsockopt(socket.IPPROTO_IP, _BIND_ADDRESS_NO_PORT, 1)
    member.bind((f"127.0.0.{2 + number // CONNECTIONS_PER_ADDRESS}", 0))
    member.connect(address)
    member.sendall(greeting)
    _receive_frame(member)


def _receive_frame(member: socket.socket) -> None:
    """Receive the one answer that is outstanding, most likely in one piece."""
    received = member.recv(_RECEIVE_BYTES)
    while len(received) < 4 or len(received) < 4 + int.from_bytes(received[:4], "big"):
        piece = member.recv(_RECEIVE_BYTES)
        if not piece:
            raise CrowdError("the server closed a connection")
        received += piece

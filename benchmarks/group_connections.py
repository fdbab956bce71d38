"""The connections of group members: one each, served by a single thread, with at most one pending request.

The response to a JoinGroup waits until all members have joined, so members cannot share a connection: servers respond
to the requests of a connection one after the other.
"""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Iterator
from types import TracebackType
from typing import Any, NamedTuple, Self

from ..protocol.api import response_class, response_header_version
from ..protocol.codec import decode, decode_at
from ..protocol.messages.api_versions import ApiVersionsRequest
from ..protocol.messages.headers import ResponseHeader
from ..protocol.schema import Request
from . import load
from .crowd import greet, max_connections
from .row import Server

PATIENCE_SECONDS = 60.0
"""The maximum time without any response."""

_RECEIVE_BYTES = 1 << 18
_GREETING = load.frame(ApiVersionsRequest(), 0)


class _PendingRequest(NamedTuple):
    api_key: int
    version: int


class GroupConnections:
    """``count`` connections to ``server``, open until the end of the ``with`` block, identified by number."""

    def __init__(self, server: Server, count: int) -> None:
        if count > max_connections():
            raise RuntimeError(f"{count} connections are more than this process may open")
        host, port = server.bootstrap_servers.rsplit(":", 1)
        self._address = (host, int(port))
        self._count = count
        self._sockets: list[socket.socket] = []
        self._received: list[bytearray] = []
        self._pending: list[_PendingRequest | None] = []
        self._selector = selectors.DefaultSelector()

    def __len__(self) -> int:
        return self._count

    def ask(self, number: int, request: Request, version: int) -> None:
        """Send a request; `answers` returns its response."""
        assert self._pending[number] is None, "one request at a time"
        self._pending[number] = _PendingRequest(request.API_KEY, version)
        self._sockets[number].sendall(load.frame(request, version))

    def call(self, number: int, request: Request, version: int) -> Any:
        """Send a request while no other is pending, and wait for its response."""
        self.ask(number, request, version)
        while True:
            for _number, answer in self.answers():
                return answer

    def answers(self, seconds: float | None = None) -> Iterator[tuple[int, Any]]:
        """The received responses with their connection numbers; empty if none is received within ``seconds``."""
        ready = self._selector.select(PATIENCE_SECONDS if seconds is None else max(seconds, 0))
        if not ready and seconds is None:
            waiting = sum(1 for pending in self._pending if pending is not None)
            raise TimeoutError(f"{waiting} requests had no response within {PATIENCE_SECONDS:g} s")
        for key, _events in ready:
            number: int = key.data
            received = self._received[number]
            piece = self._sockets[number].recv(_RECEIVE_BYTES)
            if not piece:
                raise ConnectionError("the server closed a member's connection")
            received += piece
            end = 4 + int.from_bytes(received[:4], "big")
            if len(received) < max(end, 5):
                continue
            pending, self._pending[number] = self._pending[number], None
            if pending is None or len(received) > end:
                raise ConnectionError("a response without a request")
            self._received[number] = bytearray()
            header_version = response_header_version(pending.api_key, pending.version)
            _header, start = decode_at(ResponseHeader, received, header_version, 4)
            yield number, decode(response_class(pending.api_key), received, pending.version, start)

    def __enter__(self) -> Self:
        try:
            for number in range(self._count):
                connection = socket.socket()
                self._sockets.append(connection)
                greet(connection, self._address, number, _GREETING)
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._received.append(bytearray())
                self._pending.append(None)
                self._selector.register(connection, selectors.EVENT_READ, number)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._selector.close()
        while self._sockets:
            self._sockets.pop().close()


class DelayQueue:
    """Actions that members repeat after a delay: the numbers of the members, in the order of their due times."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._due: list[tuple[float, int]] = []

    def later(self, number: int) -> None:
        self._due.append((time.monotonic() + self._seconds, number))

    def seconds_left(self) -> float | None:
        """The time until the next member is due; None if there is none."""
        return self._due[0][0] - time.monotonic() if self._due else None

    def pop_due(self) -> list[int]:
        """The members that are due. All have the same delay, so the first ones are those that have waited longest."""
        now = time.monotonic()
        count = next((at for at, (due, _number) in enumerate(self._due) if due > now), len(self._due))
        due, self._due = self._due[:count], self._due[count:]
        return [number for _due, number in due]

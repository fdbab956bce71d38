"""A proxy in front of a correct server that has one defect: a mutation of requests or responses.

    with MutatingProxy(broker.bootstrap_servers, mutation) as proxy:
        Target(proxy.address)

The proxy parses frames. It decodes the requests and responses of the mutation's APIs, applies the mutation, and encodes
them again. All other bytes pass unchanged, including those that are not frames. Each connection of a client has its own
connection to the server, and two threads.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections import deque
from collections.abc import Callable, Collection
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from moldau.protocol.api import (
    ApiKey,
    request_class,
    request_header_version,
    response_class,
    response_header_version,
)
from moldau.protocol.codec import decode_at, encode
from moldau.protocol.errors import EncodeError, ErrorCode, MalformedMessage, UnsupportedVersion
from moldau.protocol.messages.api_versions import ApiVersionsRequest
from moldau.protocol.messages.headers import RequestHeader, ResponseHeader

_UNSUPPORTED_VERSION: Final = ErrorCode.UNSUPPORTED_VERSION.to_bytes(2, "big")
_LARGEST_FRAME: Final = 64 << 20
_NOT_CODED: Final = (MalformedMessage, EncodeError, UnsupportedVersion, ValueError)


class CloseConnection(Exception):  # noqa: N818 - not an error
    """Raised by a mutation: both connections are closed."""


class Exchange:
    """A request whose response is pending."""

    def __init__(self, api_key: int, version: int, correlation_id: int, frame: bytes, memory: dict[Any, Any]) -> None:
        self.api_key = api_key
        self.version = version
        self.correlation_id = correlation_id
        self.memory = memory
        """What a mutation remembers, for all connections of the proxy."""
        self.forged: Any = None
        """The response of a mutation, which replaces that of the server."""
        self._frame = frame

    @property
    def header(self) -> RequestHeader:
        return decode_at(RequestHeader, self._frame, request_header_version(self.api_key, self.version), 0)[0]

    @property
    def request(self) -> Any:
        """A new copy of the request that the client has sent. Raises MalformedMessage, UnsupportedVersion."""
        _, at = decode_at(RequestHeader, self._frame, request_header_version(self.api_key, self.version), 0)
        return decode_at(request_class(self.api_key), self._frame, self.version, at)[0]


class Mutation(NamedTuple):
    """One defect, and the cases that have to fail because of it."""

    id: str
    title: str
    cases: tuple[str, ...]
    """IDs of cases, or what IDs begin with (`produce.acks`). At least one of them must fail."""
    apis: Collection[ApiKey] = tuple(ApiKey)
    on_request: Callable[[Exchange, Any], Any] | None = None
    """Changes a request in place. If it returns a response, the server never sees the request."""
    on_response: Callable[[Exchange, Any], None] | None = None
    """Changes a response in place."""
    on_frame: Callable[[Exchange, bytes], bytes] | None = None
    """Returns the bytes of a response, including its header and without its length."""
    swaps_responses: bool = False
    """A response waits for the next one if there is another pending request, and is sent after it."""
    keeps_open: bool = False
    """A connection that the server closes remains open."""
    closes_all: bool = False
    """If the server closes one connection, all others are closed too."""


class MutatingProxy:
    """Listens on a free port from the constructor to `close`."""

    def __init__(self, server: str, mutation: Mutation) -> None:
        self._server = server
        self._mutation = mutation
        self._memory: dict[Any, Any] = {}
        self._links: set[_Link] = set()
        self._lock = threading.Lock()
        self._closed = False
        self.changed = 0
        """The number of frames and connections that the mutation has changed so far."""
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._accept, name="mutating-proxy", daemon=True)
        self._thread.start()

    def _accept(self) -> None:
        host, _, port = self._server.rpartition(":")
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection((host, int(port)))
            except OSError:
                client.close()
                continue
            link = _Link(self, self._mutation, client, server, self._memory)
            with self._lock:
                self._links.add(link)
            if self._closed:
                link.close()
            link.start()

    def removed(self, link: _Link) -> None:
        with self._lock:
            self._links.discard(link)

    def close_others(self, link: _Link) -> None:
        with self._lock:
            others = [each for each in self._links if each is not link]
        for other in others:
            other.close()

    def close(self) -> None:
        self._closed = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()
        with self._lock:
            links = list(self._links)
        for link in links:
            link.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Link:
    """A client's connection and the one to the server."""

    def __init__(
        self,
        proxy: MutatingProxy,
        mutation: Mutation,
        client: socket.socket,
        server: socket.socket,
        memory: dict[Any, Any],
    ) -> None:
        self._proxy = proxy
        self._mutation = mutation
        self._client = client
        self._server = server
        self._memory = memory
        self._pending: deque[Exchange] = deque()
        self._lock = threading.Lock()
        self._client_has_closed = False
        for each in (client, server):
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def start(self) -> None:
        requests = threading.Thread(target=self._pass_requests, name="mutating-proxy-requests", daemon=True)
        responses = threading.Thread(target=self._pass_responses, args=(requests,), name="responses", daemon=True)
        requests.start()
        responses.start()

    def close(self) -> None:
        """Both threads see the end of their connections, and close the sockets."""
        for each in (self._client, self._server):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    # From the client to the server

    def _pass_requests(self) -> None:
        try:
            while (frame := _receive_frame(self._client, self._server)) is not None:
                _send_frame(self._server, self._mutated_request(frame))
        except CloseConnection:
            self._proxy.changed += 1
            self.close()
        except OSError:
            self.close()
        self._client_has_closed = True
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_WR)

    def _mutated_request(self, frame: bytes) -> bytes:
        if len(frame) < 8:
            return frame
        api_key, version = int.from_bytes(frame[:2], "big", signed=True), int.from_bytes(frame[2:4], "big")
        exchange = Exchange(api_key, version, int.from_bytes(frame[4:8], "big", signed=True), frame, self._memory)
        change = self._mutation.on_request
        result = frame
        if change is not None and api_key in self._mutation.apis:
            with contextlib.suppress(*_NOT_CODED):
                request = exchange.request
                exchange.forged = change(exchange, request)
                if exchange.forged is None:
                    header = encode(exchange.header, request_header_version(api_key, version))
                    result = header + encode(request, version)
                    self._proxy.changed += result != frame
                else:
                    # The server responds in its order, so that the forged response takes its place.
                    result = _other_request(exchange.correlation_id)
                    self._proxy.changed += 1
        with self._lock:
            self._pending.append(exchange)
        return result

    # From the server to the client

    def _pass_responses(self, requests: threading.Thread) -> None:
        waiting: bytes | None = None
        try:
            while (frame := _receive_frame(self._server, self._client)) is not None:
                exchange, more = self._exchange_of(frame)
                if exchange is not None:
                    frame = self._mutated_response(exchange, frame)
                if waiting is not None:
                    _send_frame(self._client, frame)
                    frame, waiting = waiting, None
                elif self._mutation.swaps_responses and more:
                    waiting = frame
                    self._proxy.changed += 1
                    continue
                _send_frame(self._client, frame)
        except CloseConnection:
            self._proxy.changed += 1
            self.close()
        except OSError:
            self.close()
        if not self._client_has_closed:
            if self._mutation.keeps_open:
                self._proxy.changed += 1
                requests.join()
            if self._mutation.closes_all:
                self._proxy.changed += 1
                self._proxy.close_others(self)
        self.close()
        requests.join()
        self._client.close()
        self._server.close()
        self._proxy.removed(self)

    def _exchange_of(self, frame: bytes) -> tuple[Exchange | None, bool]:
        """The exchange of a response, and whether others are pending. Those before it have no response (acks=0)."""
        correlation_id = int.from_bytes(frame[:4], "big", signed=True)
        with self._lock:
            if all(each.correlation_id != correlation_id for each in self._pending):
                return None, False
            while (exchange := self._pending.popleft()).correlation_id != correlation_id:
                pass
            return exchange, bool(self._pending)

    def _mutated_response(self, exchange: Exchange, frame: bytes) -> bytes:
        mutation, version = self._mutation, exchange.version
        if exchange.api_key not in mutation.apis:
            return frame
        result = frame
        # AttributeError: a mutation has changed the shared default of a struct, which is not in this version.
        with contextlib.suppress(*_NOT_CODED, AttributeError):
            header_version = response_header_version(exchange.api_key, version)
            if exchange.forged is not None:
                header = encode(ResponseHeader(correlation_id=exchange.correlation_id), header_version)
                return header + encode(exchange.forged, version)
            if mutation.on_response is not None:
                _, at = decode_at(ResponseHeader, frame, header_version, 0)
                if exchange.api_key == ApiKey.API_VERSIONS and frame[at : at + 2] == _UNSUPPORTED_VERSION:
                    version = 0
                response, _ = decode_at(response_class(exchange.api_key), frame, version, at)
                mutation.on_response(exchange, response)
                result = frame[:at] + encode(response, version)
        if mutation.on_frame is not None:
            result = mutation.on_frame(exchange, result)
        self._proxy.changed += result != frame
        return result


def _other_request(correlation_id: int) -> bytes:
    version = 0
    header = RequestHeader(
        request_api_key=ApiKey.API_VERSIONS, request_api_version=version, correlation_id=correlation_id, client_id=None
    )
    return encode(header, request_header_version(ApiKey.API_VERSIONS, version)) + encode(ApiVersionsRequest(), version)


def _send_frame(to: socket.socket, frame: bytes) -> None:
    to.sendall(len(frame).to_bytes(4, "big") + frame)


def _receive_frame(source: socket.socket, to: socket.socket) -> bytes | None:
    """The next frame; None at the end of the connection. Bytes that are not a frame pass to the other side."""
    length = _receive(source, 4)
    size = int.from_bytes(length, "big", signed=True)
    if len(length) == 4 and 0 <= size <= _LARGEST_FRAME:
        frame = _receive(source, size)
        if len(frame) == size:
            return frame
        length += frame
    to.sendall(length)
    while piece := source.recv(65_536):
        to.sendall(piece)
    return None


def _receive(source: socket.socket, size: int) -> bytes:
    """These many bytes, or fewer at the end of the connection."""
    data = bytearray()
    while len(data) < size:
        piece = source.recv(min(size - len(data), 1 << 20))
        if not piece:
            break
        data += piece
    return bytes(data)

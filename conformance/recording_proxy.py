"""A proxy between a real client and the server under test, which records what both send for the report of a case.

    with RecordingProxy(target, recorder) as proxy:
        ...  # a client with the bootstrap server `proxy.address`

The proxy has an address for each broker that the server names in its responses (Metadata, FindCoordinator and others),
and replaces the names with these addresses, so that the client uses the proxy for all its connections. Nothing else is
changed. A response that Moldau would encode with other bytes, for example with fields that are not in the protocol,
passes unchanged: what the client thinks of it is part of the test. The client then connects to the server itself, and
these connections are not recorded.

The connections to the server have the security of the target: the proxy does TLS and SASL, and the client needs no
settings for them. If the server limits the time of an authenticated session (KIP-368), a connection of the proxy ends
with it, and the client opens another one.
"""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from ..protocol.api import ApiKey, response_class, response_header_version
from ..protocol.codec import decode_at, encode
from ..protocol.errors import EncodeError, MalformedMessage, UnsupportedVersion
from ..protocol.messages.headers import ResponseHeader
from .exchange import BYTES_PER_RESPONSE, Recorder
from .target import Target

A = TypeVar("A")
T = TypeVar("T")

_CONNECT_SECONDS: Final = 30.0
_PIECE: Final = 1 << 18
_COORDINATORS: Final = 4
"""The first version of FindCoordinator with several coordinators."""
_NOT_CODED: Final = (MalformedMessage, EncodeError, UnsupportedVersion, ValueError)
_WITH_ENDPOINTS: Final = (ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE)
"""Their responses may name the new leader of a partition (KIP-951)."""


class RecordingProxy:
    """Listens from the constructor to `close`."""

    def __init__(self, target: Target, recorder: Recorder) -> None:
        self._target = target
        self._recorder = recorder
        self._listeners: dict[str, socket.socket] = {}
        self._links: set[_Link] = set()
        self._lock = threading.Lock()
        self._closed = False
        self.address = self.address_for(target.address)
        """For the client, instead of the address of the server."""

    def address_for(self, server: str) -> str:
        """The address of the proxy for an address of a broker. Raises ConnectionError if the proxy is closed."""
        with self._lock:
            if self._closed:
                raise ConnectionError("the proxy is closed")
            listener = self._listeners.get(server)
            if listener is None:
                listener = self._listeners[server] = socket.create_server(("127.0.0.1", 0), backlog=64)
                threading.Thread(
                    target=self._accept, args=(listener, server), name="recording-proxy", daemon=True
                ).start()
        return f"127.0.0.1:{listener.getsockname()[1]}"

    def _accept(self, listener: socket.socket, server: str) -> None:
        with listener:
            while True:
                try:
                    client, _ = listener.accept()
                except OSError:
                    return
                if self._closed:
                    client.close()
                    return
                threading.Thread(
                    target=self._connect, args=(client, server), name="recording-proxy-requests", daemon=True
                ).start()

    def _connect(self, client: socket.socket, server: str) -> None:
        try:
            # The exchanges of TLS and SASL are not those of the client.
            upstream = self._target.connect(
                Recorder(), lambda: _CONNECT_SECONDS * self._target.patience, address=server
            ).detach()
        except (OSError, MalformedMessage):
            client.close()  # as if the server had refused the connection
            return
        security = self._target.security
        secured = security.tls is not None or security.authenticate is not None
        link = _Link(self, client, upstream, self._recorder, secured=secured)
        with self._lock:
            self._links.add(link)
            closed = self._closed
        if closed:
            link.end()
        link.run()
        with self._lock:
            self._links.discard(link)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            # Each thread closes its listener.
            addresses = [listener.getsockname() for listener in self._listeners.values()]
            self._listeners.clear()
            links = list(self._links)
        for address in addresses:
            # This ends the wait for a connection on every system.
            with contextlib.suppress(OSError):
                socket.create_connection(address, timeout=1).close()
        for link in links:
            link.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Link:
    """A client's connection and the one to the server."""

    def __init__(
        self, proxy: RecordingProxy, client: socket.socket, server: socket.socket, recorder: Recorder, *, secured: bool
    ) -> None:
        self._client = _Duplex(client)
        self._server = _Duplex(server)
        self._recorder = recorder
        self._number = recorder.new_connection()
        self._pending: dict[bytes, tuple[int, int]] = {}
        """API and version of the requests without a response, by correlation ID."""
        self._rewriting = _Rewriting(proxy.address_for, always=secured)

    def run(self) -> None:
        """Pass frames until both sides have closed the connection."""
        responses = threading.Thread(target=self._pass_responses, name="recording-proxy-responses", daemon=True)
        responses.start()
        with contextlib.suppress(OSError):
            _pass(self._client, self._server, self._request)
        self._server.end_of_stream()
        responses.join()
        self._client.close()
        self._server.close()

    def end(self) -> None:
        """Both threads see the end of their connections."""
        self._client.shutdown()
        self._server.shutdown()

    def _request(self, frame: bytes) -> bytes:
        self._recorder.add(self._number, True, frame)
        if len(frame) >= 8:
            api_key, version = int.from_bytes(frame[:2], "big", signed=True), int.from_bytes(frame[2:4], "big")
            self._pending[frame[4:8]] = api_key, version
        return frame

    def _pass_responses(self) -> None:
        with contextlib.suppress(OSError):
            _pass(self._server, self._client, self._response)
        # The server has closed the connection, so no further request can reach it.
        self.end()

    def _response(self, frame: bytes) -> bytes:
        api_key, version = self._pending.pop(frame[:4], (-1, -1))
        self._recorder.add(self._number, False, frame, api_key, version)
        return self._rewriting.of(api_key, version, frame)


class _Rewriting:
    """Replaces the addresses of brokers in responses."""

    def __init__(self, address_for: Callable[[str], str], *, always: bool) -> None:
        """`always`: also in responses that are not encoded as Moldau does it, because the client cannot use the
        addresses of the server."""
        self._address_for = address_for
        self._always = always

    def of(self, api_key: int, version: int, frame: bytes) -> bytes:
        if api_key not in (ApiKey.METADATA, ApiKey.FIND_COORDINATOR, ApiKey.DESCRIBE_CLUSTER, *_WITH_ENDPOINTS):
            return frame
        try:
            _, at = decode_at(ResponseHeader, frame, response_header_version(api_key, version), 0)
            response, _ = decode_at(response_class(api_key), frame, version, at)
            brokers = [each for each in _brokers(api_key, version, response) if each.host and each.port > 0]
            if not brokers or (not self._always and encode(response, version) != frame[at:]):
                return frame
            for broker in brokers:
                host = f"[{broker.host}]" if ":" in broker.host else broker.host
                broker.host, _, port = self._address_for(f"{host}:{broker.port}").rpartition(":")
                broker.port = int(port)
            return frame[:at] + encode(response, version)
        except _NOT_CODED:
            return frame


def _brokers(api_key: int, version: int, response: Any) -> list[Any]:
    """The parts of a response that have a host and a port."""
    if api_key == ApiKey.FIND_COORDINATOR:
        return list(response.coordinators) if version >= _COORDINATORS else [response]
    return list(response.node_endpoints if api_key in _WITH_ENDPOINTS else response.brokers)


def _pass(source: _Duplex, to: _Duplex, change: Callable[[bytes], bytes]) -> None:
    """Pass frames until the end of the connection; what is not a frame passes unchanged."""
    while len(length := source.receive(4)) == 4:
        size = int.from_bytes(length, "big", signed=True)
        if not 0 <= size <= BYTES_PER_RESPONSE:
            break
        frame = source.receive(size)
        if len(frame) < size:
            to.send(length + frame)
            return
        frame = change(frame)
        to.send(len(frame).to_bytes(4, "big") + frame)
    to.send(length)
    while piece := source.receive(_PIECE, whole=False):
        to.send(piece)


class _Duplex:
    """A socket that one thread reads and another one writes. OpenSSL does not allow this to happen at the same time."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setblocking(False)
        self._socket = sock
        self._lock = threading.Lock()

    def receive(self, size: int, *, whole: bool = True) -> bytes:
        """So many bytes, or fewer at the end of the connection or if they need not be the `whole`. Raises OSError."""
        data = bytearray()
        while len(data) < size:
            piece = self._try(self._socket.recv, min(size - len(data), _PIECE))
            data += piece
            if not piece or not whole:
                break
        return bytes(data)

    def send(self, data: bytes) -> None:
        """Send all bytes. Raises OSError."""
        left = memoryview(data)
        while left:
            left = left[self._try(self._socket.send, left, writes=True) :]

    def _try(self, operation: Callable[[A], T], argument: A, *, writes: bool = False) -> T:
        while True:
            try:
                with self._lock:
                    return operation(argument)
            except ssl.SSLWantReadError:
                writes = False
            except ssl.SSLWantWriteError:
                writes = True
            except BlockingIOError:
                pass
            ready = select.poll()
            ready.register(self._socket, select.POLLOUT if writes else select.POLLIN)
            ready.poll()

    def end_of_stream(self) -> None:
        """Close the sending half."""
        self._shutdown(socket.SHUT_WR)

    def shutdown(self) -> None:
        """Both directions see the end of the connection."""
        self._shutdown(socket.SHUT_RDWR)

    def _shutdown(self, how: int) -> None:
        with contextlib.suppress(OSError):
            # Not `SSLSocket.shutdown`, after which bytes that are received are no longer decrypted.
            socket.socket.shutdown(self._socket, how)

    def close(self) -> None:
        self._socket.close()

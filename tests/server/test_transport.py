"""Connections over transports other than plain sockets: they need only the guarantees of `transport.Transport`."""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import ssl
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from moldau.log.descriptors import FileRange
from moldau.protocol.records import Buffer
from moldau.security.key_stores import key_store
from moldau.server.network import transport
from moldau.server.network.connection import FULL, MAX_IN_FLIGHT, MEMORY
from moldau.server.network.sending import READ_BYTES
from moldau.server.network.tls import TlsSecurity, server_context
from moldau.server.network.transport import PIECE_BYTES, PlainTransport, SendFirst, Transport, send_by_reading
from moldau.testing.authority import Authority
from moldau.testing.builders import batch, fetch, fetch_request, produce, produce_request, values
from moldau.testing.waiting import wait_until
from moldau.testing.wire import WireClient

from .test_network import Fixture, frame, receive

EVERYTHING = 50_000_000


class IrregularTransport:
    """Receives all available data, so that the selector reports nothing more, and passes data on in irregular pieces.

    It must send something before it returns the first data, and the kernel does not accept that immediately.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._hidden = bytearray()
        self._sizes = itertools.cycle([1, 70_000, 3, 5, 200_000, 4, 1_000, 9])
        self._blocks = itertools.cycle([False, True, False])
        self._greets = True

    def receive_into(self, buffer: memoryview, /) -> int:
        if not self._hidden:
            with contextlib.suppress(BlockingIOError):
                while data := self._sock.recv(1 << 20):
                    self._hidden += data
                if not self._hidden:
                    return 0
            if not self._hidden:
                raise BlockingIOError
        if self._greets:
            self._greets = False
            raise SendFirst
        size = min(next(self._sizes), len(self._hidden), len(buffer))
        buffer[:size] = self._hidden[:size]
        del self._hidden[:size]
        return size

    def send(self, data: Buffer, flags: int, /) -> int:
        if next(self._blocks):
            raise BlockingIOError
        return self._sock.send(memoryview(data)[: next(self._sizes)], flags)

    def send_file(self, file_range: FileRange, start: int, length: int, /) -> int:
        return send_by_reading(self.send, file_range, start, length)

    def pending(self) -> int:
        return len(self._hidden)

    def close(self) -> None:
        self._sock.close()


Client = Callable[[str], WireClient]


@pytest.fixture(params=["plain", "odd", "tls 1.2", "tls 1.3"])
def connect(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Client:
    """Make servers use a transport. Returns a function that connects to them."""
    if request.param == "plain":
        return WireClient
    if request.param == "odd":
        monkeypatch.setitem(transport.TRANSPORTS, "PLAINTEXT", IrregularTransport)
        return WireClient
    authority = Authority()
    version = {"tls 1.2": "TLSv1.2", "tls 1.3": "TLSv1.3"}[request.param]
    store = key_store(authority.server().pem.encode(), None, None)
    context = server_context(store, trusted=None, client_auth="none", versions=(version,), ciphers=None)
    security = TlsSecurity(context, None)
    monkeypatch.setitem(transport.TRANSPORTS, "PLAINTEXT", lambda sock: security.accept(sock)[0])
    client_side = ssl.create_default_context(cadata=authority.certificate)

    def connect(address: str) -> WireClient:
        wire = WireClient(address)
        wire._socket = client_side.wrap_socket(wire._socket, server_hostname="127.0.0.1")
        return wire

    return connect


@pytest.fixture
def client(connect: Client, make_server: Any) -> Iterator[tuple[Any, WireClient]]:
    """A server whose sockets accept little data at a time, and a client."""
    server = make_server(config={"socket.send.buffer.bytes": "200000", "message.max.bytes": "10000000"})
    server.wire = lambda: connect(server.bootstrap_servers)
    with server.wire() as wire:
        yield server, wire


def read_all(wire: WireClient, topic: str = "t", offset: int = 0) -> list[bytes | None]:
    return values(fetch(wire, topic, offset, max_bytes=EVERYTHING, partition_max_bytes=EVERYTHING))


def test_produced_records_are_fetched(client: tuple[Any, WireClient]) -> None:
    server, wire = client
    server.create_topic("t")
    # Small batches for the fast path, one that is larger than the receive buffer, and very large ones.
    payload = [os.urandom(size) for size in [100] * 50 + [READ_BYTES] + [700_000] * 4 + [3_000_000, 9_000_000]]
    for value in payload:
        assert produce(wire, "t", batch(value)).error_code == 0
    assert read_all(wire) == payload
    assert read_all(wire, offset=52) == payload[52:]


def test_requests_that_are_sent_together_are_served_in_order(client: tuple[Any, WireClient]) -> None:
    server, wire = client
    server.create_topic("t")
    payload = [os.urandom(size) for size in [100, 200, 70_000] * 40]
    for value in payload:
        wire.send(produce_request("t", batch(value)), 9)
    for offset in range(len(payload)):
        assert wire.receive().responses[0].partition_responses[0].base_offset == offset
    for offset in range(0, len(payload), 10):
        wire.send(fetch_request("t", offset, max_bytes=EVERYTHING, partition_max_bytes=EVERYTHING), 12)
    for offset in range(0, len(payload), 10):
        assert values(wire.receive().responses[0].partitions[0]) == payload[offset:]


def test_a_fetch_can_wait_for_records(client: tuple[Any, WireClient]) -> None:
    server, wire = client
    server.create_topic("t")
    with server.wire() as other:
        for number in range(3):
            wire.send(fetch_request("t", number, max_wait_ms=30_000), 12)
            assert produce(other, "t", batch(b"%d" % number)).error_code == 0
            assert values(wire.receive().responses[0].partitions[0]) == [b"%d" % number]


def test_requests_sent_before_a_disconnect_are_served(client: tuple[Any, WireClient]) -> None:
    server, wire = client
    server.create_topic("t")
    with server.wire() as leaving:
        for number in range(300):
            leaving.send(produce_request("t", batch(b"%d" % number), acks=0), 9, answered=False)
    # The server may not even have accepted the connection yet.
    expected = [b"%d" % number for number in range(300)]
    wait_until(lambda: read_all(wire) == expected, state=lambda: read_all(wire))
    server.wait_until(lambda: len(server.network.connections) == 1)


def test_a_paused_connection_resumes_with_data_in_the_transport(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The peer sends nothing more, and the transport has received all data from the socket."""
    monkeypatch.setitem(transport.TRANSPORTS, "PLAINTEXT", IrregularTransport)
    count = 2 * MAX_IN_FLIGHT + 10
    with Fixture() as fixture, fixture.connect() as sock:
        sock.sendall(frame(b"wait") * count)
        for answered in range(count):
            fixture.wait_until(lambda answered=answered: len(fixture.dispatcher.pending) > answered)
            fixture.call(lambda answered=answered: fixture.dispatcher.pending[answered].reply(b"x"))
        assert receive(sock, count) == [b"x"] * count


@pytest.mark.parametrize("first", [FULL, MEMORY])
def test_a_connection_resumes_reading_when_no_reason_to_pause_remains(first: int) -> None:
    with Fixture() as fixture, fixture.connect() as sock:
        sock.sendall(frame(b"hello"))
        assert receive(sock) == b"hello"
        (connection,) = fixture.network.connections
        second = (FULL | MEMORY) ^ first
        fixture.call(lambda: [connection._wait_for(reason) for reason in (FULL, MEMORY)])
        sock.sendall(frame(b"read"))
        fixture.call(lambda: connection._wait_no_more_for(first))
        assert not fixture.call(lambda: connection._reading)
        fixture.call(lambda: connection._wait_no_more_for(second))
        assert receive(sock) == b"read"


# -- files -------------------------------------------------------------------------------------------------------------


class Bytes:
    """A file range in memory."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def read(self, start: int, length: int) -> bytes:
        return self.data[start : start + length]


@pytest.mark.parametrize("window", [1, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 3 * PIECE_BYTES])
def test_a_file_range_is_sent_as_far_as_the_peer_accepts_it(window: int) -> None:
    taken = bytearray()

    def send(data: Buffer, _flags: int) -> int:
        room = window - len(taken)
        if not room:
            raise BlockingIOError
        taken.extend(data[:room])
        return min(room, len(data))

    data = os.urandom(2 * PIECE_BYTES + 100)
    file_range: Any = Bytes(data)
    length = len(data) - 7
    assert send_by_reading(send, file_range, 7, length) == min(window, length)
    assert taken == data[7:][:window]
    if window < length:
        with pytest.raises(BlockingIOError):
            send_by_reading(send, file_range, 7 + window, 1)


def test_a_short_read_of_a_file_range_is_an_error() -> None:
    file_range: Any = Bytes(b"only this")
    with pytest.raises(OSError, match="short read of a file range"):
        send_by_reading(lambda data, _flags: len(data), file_range, 0, 100)


# -- listeners ---------------------------------------------------------------------------------------------------------


def test_a_plain_socket_is_a_transport() -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        plain: Transport = PlainTransport(ours)
        assert plain.send(b"out", 0) == 3
        assert theirs.recv(10) == b"out"
        theirs.sendall(b"in")
        buffer = memoryview(bytearray(10))
        assert plain.receive_into(buffer) == 2
        assert plain.pending() == 0
        plain.close()
        assert theirs.recv(1) == b""

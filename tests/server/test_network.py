"""Connections with real sockets and a dispatcher of the test."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import socket
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from moldau.log.descriptors import FileRange, OpenFile
from moldau.log.files import RealFileSystem
from moldau.server.concurrency import turns
from moldau.server.concurrency.background import Background
from moldau.server.concurrency.event_loop import new_event_loop
from moldau.server.concurrency.timers import TimerWheel
from moldau.server.network import listeners, memory, unserved
from moldau.server.network.connection import MAX_HELD_BYTES, MAX_IN_FLIGHT, PEER, ROUND_BYTES
from moldau.server.network.listeners import Network
from moldau.server.network.sending import READ_BYTES
from moldau.server.network.unserved import RECEIVE_BYTES
from moldau.testing.waiting import WAIT_SECONDS, wait_until_async


class PendingRequest:
    """A request in flight, like `ServedRequest`."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self.parts: Any = None
        self.completes_earlier = True
        self.held_bytes = 0
        self.keeps_request = False
        self.kept_bytes = 0
        self.cancelled = False

    def reply(self, body: Any) -> None:
        if self.kept_bytes:
            self.connection.release_memory(self.kept_bytes)
        self.parts = [frame(body)]
        self.connection.response_ready(self)

    def cancel(self) -> None:
        self.cancelled = True

    def complete_early(self) -> None:
        pass


class Dispatcher:
    """Echoes frames, except those that begin with a command."""

    def __init__(self) -> None:
        self.frames: list[Any] = []
        self.pending: list[Any] = []
        self.file_range: Any = None

    def completes_earlier(self, data: Any) -> bool:
        return True

    def handle(self, connection: Any, data: Any) -> Any:
        data = bytes(data)
        self.frames.append(data)
        if data.startswith(b"wait"):
            pending = PendingRequest(connection)
            pending.keeps_request = data.startswith(b"wait and keep")
            if data.startswith(b"wait and reply"):
                pending.reply(b"x" * 10_000)
                return pending.parts
            self.pending.append(pending)
            return pending
        if data.startswith(b"big"):
            return [frame(b"x" * 1_000_000)]
        if data.startswith(b"raise"):
            raise RuntimeError("made up by the test")
        if data.startswith(b"silent"):
            return None
        if data.startswith(b"close"):
            connection.close("requested")
            return None
        if data.startswith(b"file"):
            file_range = self.file_range()
            return [struct.pack(">i", len(file_range) + 2), b"<", file_range, b">"]
        return [frame(data)]


def frame(body: Any) -> bytes:
    return struct.pack(">i", len(body)) + bytes(body)


class Fixture:
    """A network with an event loop in a separate thread."""

    def __init__(self, *, loop_factory: Any = None, **limits: Any) -> None:
        self.loop_factory = loop_factory
        self.dispatcher = Dispatcher()
        self.limits = {
            "max_request_bytes": 50_000_000,
            "queued_max_request_bytes": 100_000_000,
            "max_idle_ms": 60_000,
            "backlog": 1200,
        } | limits
        self.started = threading.Event()

    def __enter__(self) -> Any:
        self.thread = threading.Thread(target=self._run_loop)
        self.thread.start()
        assert self.started.wait(60)
        return self

    def _run_loop(self) -> None:
        with asyncio.Runner(loop_factory=self.loop_factory) as runner:
            runner.run(self._run())

    async def _run(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.stopping = asyncio.Event()
        background = Background(self.loop)
        self.network = Network(self.loop, TimerWheel(self.loop), self.dispatcher, background, **self.limits)  # type: ignore[arg-type]
        listener = self.network.listen("PLAINTEXT", "127.0.0.1", 0)
        listener.start()
        self.port = listener.port
        self.started.set()
        await self.stopping.wait()
        await self.network.close(1.0)
        await background.close()

    def call(self, function: Any) -> Any:
        """Run ``function`` on the event loop and wait for the result."""

        async def run() -> Any:
            return function()

        return asyncio.run_coroutine_threadsafe(run(), self.loop).result(60)

    def wait_until(self, condition: Any) -> Any:
        """Wait until the condition holds on the event loop, and return its result."""
        return asyncio.run_coroutine_threadsafe(wait_until_async(condition, pause=0.002), self.loop).result()

    def connect(self) -> Any:
        sock = socket.create_connection(("127.0.0.1", self.port), 60)
        sock.settimeout(60)
        return sock

    def __exit__(self, *_: Any) -> None:
        self.loop.call_soon_threadsafe(self.stopping.set)
        self.thread.join(60)
        assert not self.thread.is_alive()


@pytest.fixture
def fixture() -> Iterator[Any]:
    with Fixture() as fixture:
        yield fixture


def test_a_listener_may_refuse_connections_until_it_starts(fixture: Any) -> None:
    def bound() -> Any:
        return fixture.network.listen("LATER", "127.0.0.1", 0, refuse_until_start=True)

    first = fixture.call(bound)
    address = ("127.0.0.1", first.port)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address, 60)
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(address)
    fixture.call(first.start)
    socket.create_connection(address, 60).close()


def test_a_listener_whose_address_is_taken_before_it_starts_fails(fixture: Any) -> None:
    listener = fixture.call(lambda: fixture.network.listen("LATER", "127.0.0.1", 0, refuse_until_start=True))
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", listener.port))
        other.listen()
        with pytest.raises(OSError, match="in use"):
            fixture.call(listener.start)


def receive(sock: Any, count: int = 1) -> Any:
    answers = []
    for _ in range(count):
        (size,) = struct.unpack(">i", receive_exactly(sock, 4))
        answers.append(receive_exactly(sock, size))
    return answers[0] if count == 1 else answers


def receive_exactly(sock: Any, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        piece = sock.recv(size - len(data))
        assert piece, "the server closed the connection"
        data += piece
    return bytes(data)


def is_closed(sock: Any) -> Any:
    try:
        return sock.recv(1) == b""
    except ConnectionError:
        return True


def test_one_frame_gets_a_response(fixture: Fixture) -> None:
    with fixture.connect() as sock:
        sock.sendall(frame(b"hello"))
        assert receive(sock) == b"hello"


def test_pipelined_frames_get_responses_in_order(fixture: Fixture) -> None:
    with fixture.connect() as sock:
        sock.sendall(b"".join(frame(b"%d" % i) for i in range(1000)))
        assert receive(sock, 1000) == [b"%d" % i for i in range(1000)]


def test_a_frame_may_arrive_byte_by_byte(fixture: Fixture) -> None:
    with fixture.connect() as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in frame(b"slowly") + frame(b"again"):
            sock.sendall(bytes([byte]))
        assert receive(sock, 2) == [b"slowly", b"again"]


@pytest.mark.parametrize(
    "size", [0, 1, 65_535, 65_536, 65_537, RECEIVE_BYTES - 4, RECEIVE_BYTES, RECEIVE_BYTES + 1, 3_000_000]
)
def test_frames_of_any_size_are_received(fixture: Fixture, size: Any) -> None:
    body = os.urandom(size)
    with fixture.connect() as sock:
        sender = threading.Thread(target=sock.sendall, args=(frame(b"a") + frame(body) + frame(b"z"),))
        sender.start()
        assert receive(sock, 3) == [b"a", body, b"z"]
        sender.join()


def test_a_pending_request_delays_later_responses(fixture: Fixture) -> None:
    with fixture.connect() as sock:
        sock.sendall(frame(b"1") + frame(b"wait") + frame(b"3") + frame(b"silent") + frame(b"5"))
        assert receive(sock) == b"1"
        fixture.wait_until(lambda: len(fixture.dispatcher.frames) == 5)
        fixture.call(lambda: fixture.dispatcher.pending[0].reply(b"2"))
        assert receive(sock, 3) == [b"2", b"3", b"5"]


def test_responses_are_sent_in_order_even_if_the_second_is_ready_first(fixture: Fixture) -> None:
    with fixture.connect() as sock:
        sock.sendall(frame(b"wait 1") + frame(b"wait 2"))
        fixture.wait_until(lambda: len(fixture.dispatcher.pending) == 2)
        first, second = fixture.dispatcher.pending
        fixture.call(lambda: second.reply(b"2"))
        fixture.call(lambda: first.reply(b"1"))
        assert receive(sock, 2) == [b"1", b"2"]


def test_the_number_of_requests_in_flight_is_limited(fixture: Fixture) -> None:
    with fixture.connect() as sock:
        sock.sendall(b"".join(frame(b"wait %d" % i) for i in range(MAX_IN_FLIGHT + 50)))
        fixture.wait_until(lambda: len(fixture.dispatcher.pending) == MAX_IN_FLIGHT)
        for i in range(MAX_IN_FLIGHT + 50):
            fixture.wait_until(lambda i=i: len(fixture.dispatcher.pending) > i)
            assert len(fixture.dispatcher.pending) <= MAX_IN_FLIGHT + i
            fixture.call(lambda i=i: fixture.dispatcher.pending[i].reply(b"%d" % i))
        assert receive(sock, MAX_IN_FLIGHT + 50) == [b"%d" % i for i in range(MAX_IN_FLIGHT + 50)]


def test_pending_requests_are_cancelled_when_their_peer_disconnects(fixture: Fixture) -> None:
    with fixture.connect() as sock:
        sock.sendall(frame(b"wait"))
        fixture.wait_until(lambda: fixture.dispatcher.pending)
    fixture.wait_until(lambda: fixture.dispatcher.pending[0].cancelled)
    fixture.wait_until(lambda: not fixture.network.connections)


def test_a_shutdown_cancels_all_pending_requests_before_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection with many pending requests cancels them in a later turn."""
    monkeypatch.setattr(turns, "TURN_MS", 0.0)  # one connection in each iteration of the event loop
    with Fixture() as fixture, contextlib.ExitStack() as clients:
        for _ in range(8):
            clients.enter_context(fixture.connect()).sendall(frame(b"wait") * 50)
        fixture.wait_until(lambda: len(fixture.dispatcher.pending) == 8 * 50)
        closed = asyncio.run_coroutine_threadsafe(fixture.network.close(0), fixture.loop)
        closed.result(60)
        assert all(pending.cancelled for pending in fixture.dispatcher.pending)


needs_epoll = pytest.mark.skipif(not hasattr(select, "epoll"), reason="epoll is Linux's")


@pytest.fixture
def direct() -> Iterator[Any]:
    """A network with the server's event loop, which detects disconnects of peers from which it does not read."""
    with Fixture(loop_factory=new_event_loop, queued_max_request_bytes=1_000_000) as fixture:
        yield fixture


@needs_epoll
@pytest.mark.parametrize("reset", [False, True], ids=["closed", "reset"])
@pytest.mark.parametrize("size", [10, 20_000], ids=["many", "large"])
def test_a_disconnect_is_detected_with_the_maximum_in_flight(direct: Fixture, size: int, reset: bool) -> None:
    with direct.connect() as sock:
        sock.sendall(frame(b"wait".ljust(size)) * MAX_IN_FLIGHT)
        expected = min(MAX_IN_FLIGHT, MAX_HELD_BYTES // size + 1)
        direct.wait_until(lambda: len(direct.dispatcher.pending) == expected)
        if reset:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    direct.wait_until(lambda: not direct.network.connections)
    assert all(pending.cancelled for pending in direct.dispatcher.pending)


@needs_epoll
def test_requests_sent_before_a_disconnect_are_served_after_pending_ones(direct: Fixture) -> None:
    with direct.connect() as sock:
        sock.sendall(frame(b"wait") * (2 * MAX_IN_FLIGHT + 10))
        direct.wait_until(lambda: len(direct.dispatcher.pending) == MAX_IN_FLIGHT)
        sock.sendall(frame(b"silent"))
    direct.wait_until(lambda: not direct.network.connections)
    assert direct.dispatcher.frames == [b"wait"] * (2 * MAX_IN_FLIGHT + 10) + [b"silent"]


@needs_epoll
def test_a_disconnect_is_detected_while_a_connection_waits_for_memory(direct: Fixture) -> None:
    # The first connection has all memory for large frames; the second waits and has none.
    with direct.connect() as holder, direct.connect() as waiting:
        holder.sendall(struct.pack(">i", 5_000_000) + bytes(1_500_000))
        direct.wait_until(lambda: direct.network.budget.used_bytes > 750_000)
        waiting.sendall(struct.pack(">i", 4_000_000) + bytes(100_000))
        direct.wait_until(lambda: direct.network.budget._waiting)
        waiting.close()
        direct.wait_until(lambda: len(direct.network.connections) == 1)
        holder.sendall(bytes(3_500_000))
        assert receive(holder) == bytes(5_000_000)


@pytest.mark.parametrize("length", [-1, -(2**31), 2**31 - 1, 50_000_001])
def test_an_invalid_frame_length_closes_the_connection(
    fixture: Fixture, length: int, caplog: pytest.LogCaptureFixture
) -> None:
    with fixture.connect() as sock:
        sock.sendall(struct.pack(">i", length) + b"x" * 100)
        assert is_closed(sock)
    assert str(length) in caplog.text
    assert "127.0.0.1" in caplog.text


def test_responses_before_a_close_by_the_dispatcher_are_sent(fixture: Fixture) -> None:
    with fixture.connect() as sock:
        sock.sendall(frame(b"good") + frame(b"close") + frame(b"not seen"))
        assert receive(sock) == b"good"
        assert is_closed(sock)
    assert fixture.dispatcher.frames == [b"good", b"close"]


def test_the_server_stops_reading_from_a_peer_that_does_not_read(fixture: Fixture) -> None:
    body = b"x" * 60_000
    with fixture.connect() as sock, fixture.connect() as other:
        sock.setblocking(False)
        sent = 0
        stalled = 0
        data = frame(body)
        while stalled < 50:
            try:
                sent += sock.send(data[sent % len(data) :])
                stalled = 0
            except BlockingIOError:
                stalled += 1
                other.sendall(frame(b"still there?"))  # other connections are served
                assert receive(other) == b"still there?"
        (stuck,) = [c for c in fixture.network.connections if c._waits_for & PEER]
        assert fixture.call(lambda: stuck._sending.bytes_in_memory() + len(stuck._rest)) < 2_000_000
        # When the peer reads again, it receives all responses.
        sock.setblocking(True)
        sock.settimeout(60)
        complete = sent // len(data)
        assert receive(sock, complete) == [body] * complete


def test_a_file_range_is_sent_between_buffers(fixture: Fixture, tmp_path: Path) -> None:
    content = os.urandom(5_000_000)
    path = tmp_path / "segment"
    path.write_bytes(content)
    opened = []

    class Owner:
        open_file: OpenFile | None = None

    def make() -> Any:
        file = OpenFile(RealFileSystem().open(str(path)), Owner())  # type: ignore[arg-type]
        opened.append(file)
        file_range = FileRange(file, 1_000, 4_000_000)
        file.release()  # now only the range refers to it
        return file_range

    fixture.dispatcher.file_range = make
    with fixture.connect() as sock:
        sock.sendall(frame(b"file") + frame(b"after"))
        assert receive(sock) == b"<" + content[1_000:4_001_000] + b">"
        assert receive(sock) == b"after"
    fixture.wait_until(lambda: opened[0].references == 0)


def test_a_short_read_of_a_file_range_closes_the_connection(
    fixture: Fixture, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "segment"
    path.write_bytes(b"only this")

    class Owner:
        open_file: OpenFile | None = None

    fixture.dispatcher.file_range = lambda: FileRange(OpenFile(RealFileSystem().open(str(path)), Owner()), 0, 100)  # type: ignore[arg-type]
    with fixture.connect() as sock:
        sock.sendall(frame(b"file"))
        while sock.recv(1000):
            pass
    assert "short read of a file range" in caplog.text


def test_silent_connections_do_not_affect_others(fixture: Fixture) -> None:
    silent = [fixture.connect() for _ in range(200)]
    with fixture.connect() as sock:
        sock.sendall(frame(b"hello"))
        assert receive(sock) == b"hello"
    for sock in silent:
        sock.close()
    fixture.wait_until(lambda: not fixture.network.connections)


def test_declared_lengths_reserve_no_memory(fixture: Fixture) -> None:
    peers = [fixture.connect() for _ in range(50)]
    for peer in peers:
        peer.sendall(struct.pack(">i", 40_000_000) + b"x" * 1000)
    fixture.wait_until(lambda: sum(c._frame is not None for c in fixture.network.connections) == 50)
    assert fixture.network.budget.used_bytes <= 50 * 65_536
    for peer in peers:
        peer.close()
    fixture.wait_until(lambda: fixture.network.budget.used_bytes == 0)


def test_frames_above_the_total_limit_wait_for_each_other_and_all_arrive() -> None:
    with Fixture(queued_max_request_bytes=1_000_000) as fixture:
        body = os.urandom(900_000)
        peers = [fixture.connect() for _ in range(6)]
        senders = [threading.Thread(target=peer.sendall, args=(frame(body),)) for peer in peers]
        for sender in senders:
            sender.start()
        for peer in peers:
            assert receive(peer) == body
        for sender in senders:
            sender.join()
        assert fixture.call(lambda: fixture.network.budget.used_bytes) == 0


def test_idle_connections_are_closed() -> None:
    with Fixture(max_idle_ms=50) as fixture, fixture.connect() as sock:
        assert is_closed(sock)


def test_a_connection_with_a_pending_request_is_not_idle() -> None:
    with Fixture() as fixture, fixture.connect() as sock:
        sock.sendall(frame(b"wait"))
        fixture.wait_until(lambda: fixture.dispatcher.pending)

        def check_idle() -> None:
            fixture.network.max_idle_ms = -1  # any idle time is too long
            (connection,) = fixture.network.connections
            connection._check_idle()

        fixture.call(check_idle)
        fixture.call(lambda: fixture.dispatcher.pending[0].reply(b"at last"))
        assert receive(sock) == b"at last"
        fixture.call(check_idle)
        assert is_closed(sock)


@pytest.mark.parametrize("count", [2, MAX_IN_FLIGHT - 1])
def test_requests_in_flight_are_cancelled_when_the_network_is_closed(count: Any) -> None:
    with Fixture(loop_factory=new_event_loop) as fixture:
        clients = [fixture.connect() for _ in range(20)]
        for client in clients:
            client.sendall(frame(b"wait") * count)
        fixture.wait_until(lambda: len(fixture.dispatcher.pending) == 20 * count)
    assert all(pending.cancelled for pending in fixture.dispatcher.pending)
    for client in clients:
        client.close()


def test_closing_sends_completed_responses() -> None:
    with Fixture() as fixture:
        sock = fixture.connect()
        sock.sendall(frame(b"x" * 1000))
        assert receive(sock) == b"x" * 1000
    assert is_closed(sock)
    sock.close()


def test_large_responses_are_created_at_the_rate_at_which_they_are_read(fixture: Fixture) -> None:
    with fixture.connect() as sock:
        sock.sendall(frame(b"big") * 300)
        fixture.wait_until(lambda: any(c._waits_for & PEER for c in fixture.network.connections))
        (connection,) = fixture.network.connections
        assert fixture.call(lambda: connection._sending.bytes_in_memory()) <= ROUND_BYTES + 1_000_004
        assert len(fixture.dispatcher.frames) < 50  # the capacity of the sockets' buffers
        for _ in range(300):
            assert len(receive(sock)) == 1_000_000


def test_requests_for_large_file_ranges_are_served_at_the_rate_at_which_they_are_read(
    fixture: Fixture, tmp_path: Path
) -> None:
    content = os.urandom(5_000_000)
    path = tmp_path / "segment"
    path.write_bytes(content)

    class Owner:
        open_file: OpenFile | None = None

    file = OpenFile(RealFileSystem().open(str(path)), Owner())  # type: ignore[arg-type]
    fixture.dispatcher.file_range = lambda: FileRange(file, 0, len(content))
    with fixture.connect() as sock:
        sock.sendall(frame(b"file") * 300)
        fixture.wait_until(lambda: any(c._waits_for & PEER for c in fixture.network.connections))
        assert len(fixture.dispatcher.frames) == 1
        for _ in range(300):
            assert receive(sock) == b"<" + content + b">"
    fixture.call(file.release)


def test_responses_behind_a_pending_request_are_limited(fixture: Fixture) -> None:
    with fixture.connect() as sock:
        sock.sendall(frame(b"wait") + frame(b"big") * 50 + frame(b"end"))
        fixture.wait_until(lambda: fixture.dispatcher.pending)
        (connection,) = fixture.network.connections
        fixture.wait_until(lambda: not connection._reading)
        assert fixture.call(lambda: connection._held_bytes) <= MAX_HELD_BYTES + 1_000_004
        assert len(fixture.dispatcher.frames) < 5
        fixture.call(lambda: fixture.dispatcher.pending[0].reply(b"first"))
        assert receive(sock) == b"first"
        for _ in range(50):
            assert len(receive(sock)) == 1_000_000
        assert receive(sock) == b"end"
        assert fixture.call(lambda: connection._held_bytes) == 0


def test_completed_responses_behind_a_pending_request_are_limited(fixture: Fixture) -> None:
    with fixture.connect() as sock:
        sock.sendall(frame(b"wait") * 4)
        fixture.wait_until(lambda: len(fixture.dispatcher.pending) == 4)
        (connection,) = fixture.network.connections
        first, *others = fixture.dispatcher.pending
        for pending in others:
            fixture.call(lambda pending=pending: pending.reply(b"x" * 500_000))
        sock.sendall(frame(b"more"))
        assert fixture.call(lambda: connection._held_bytes) >= 1_500_000
        fixture.wait_until(lambda: not connection._reading)
        assert len(fixture.dispatcher.frames) == 4
        fixture.call(lambda: first.reply(b"first"))
        assert [len(body) for body in receive(sock, 5)] == [5, 500_000, 500_000, 500_000, 4]
        assert fixture.call(lambda: connection._held_bytes) == 0


def test_a_response_that_completes_during_dispatch_is_counted_once(fixture: Fixture) -> None:
    with fixture.connect() as sock:
        sock.sendall(frame(b"wait") + frame(b"wait and reply") * 20)
        fixture.wait_until(lambda: len(fixture.dispatcher.frames) == 21)
        (connection,) = fixture.network.connections
        assert fixture.call(lambda: connection._held_bytes) < 20 * 10_100
        fixture.call(lambda: fixture.dispatcher.pending[0].reply(b"first"))
        assert len(receive(sock, 21)) == 21
        assert fixture.call(lambda: connection._held_bytes) == 0


def test_unread_responses_are_limited_for_all_connections_together(
    fixture: Fixture, caplog: pytest.LogCaptureFixture
) -> None:
    """Connections of peers that do not read are closed, first those that have not read for the longest time."""
    fixture.network.unread._max_bytes = 8_000_000
    fixture.network._send_buffer_bytes = 65_536  # the default buffer may hold all initial responses of a connection
    with contextlib.ExitStack() as stack:
        silent = []
        for number in range(40):
            silent.append(stack.enter_context(fixture.connect()))
            silent[-1].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            silent[-1].sendall(frame(b"big") * 20)
            fixture.wait_until(lambda number=number: len(fixture.dispatcher.frames) > number)
        fixture.wait_until(lambda: all(c._waits_for & PEER for c in fixture.network.connections))
        connections = fixture.network.connections
        unsent, counted = fixture.call(
            lambda: (sum(c._sending.bytes_in_memory() for c in connections), fixture.network.unread.used_bytes)
        )
        assert unsent == counted <= 8_000_000
        assert 0 < len(connections) < 40
        assert "does not read its responses" in caplog.text
        other = stack.enter_context(fixture.connect())
        other.sendall(frame(b"big") * 20)
        assert [len(body) for body in receive(other, 20)] == [1_000_000] * 20
    fixture.wait_until(lambda: not fixture.network.connections)
    assert fixture.call(lambda: fixture.network.unread.used_bytes) == 0


def test_requests_in_progress_do_not_count_as_unread_responses(fixture: Fixture) -> None:
    """A large batch that is being decoded waits for the server: there is no response to read yet."""
    fixture.network.unread._max_bytes = 1_000_000
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(fixture.connect()) for _ in range(4)]
        for client in clients:
            client.sendall(frame(b"wait and keep" + bytes(900_000)))
        fixture.wait_until(lambda: len(fixture.dispatcher.pending) == 4)
        assert fixture.call(lambda: fixture.network.unread.used_bytes) == 0
        fixture.call(lambda: [pending.reply(b"done") for pending in fixture.dispatcher.pending])
        for client in clients:
            assert receive(client) == b"done"


@needs_epoll
def test_received_requests_that_wait_are_limited_for_all_connections_together(
    direct: Fixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If much data waits, connections receive less at a time; the remaining data stays in the sockets."""
    monkeypatch.setattr(unserved, "MAX_BYTES", 500_000)
    count = 20
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(direct.connect()) for _ in range(count)]
        for client in clients:
            client.sendall(frame(b"wait") * MAX_IN_FLIGHT + frame(bytes(1000)) * 200)
        direct.wait_until(lambda: len(direct.dispatcher.pending) == count * MAX_IN_FLIGHT)
        kept, counted = direct.call(
            lambda: (sum(len(c._rest) for c in direct.network.connections), direct.network.unserved.kept_bytes)
        )
        assert 0 < kept == counted
        assert kept <= 500_000 + RECEIVE_BYTES + count * unserved.SMALL_BYTES
        direct.call(lambda: [pending.reply(b"") for pending in direct.dispatcher.pending])
        for client in clients:
            assert [len(body) for body in receive(client, MAX_IN_FLIGHT + 200)[MAX_IN_FLIGHT:]] == [1000] * 200
        assert direct.call(lambda: direct.network.unserved.kept_bytes) == 0
        clients[0].sendall(frame(b"wait") * MAX_IN_FLIGHT + frame(bytes(1000)) * 20)
        direct.wait_until(lambda: direct.network.unserved.kept_bytes > 0)
    direct.wait_until(lambda: not direct.network.connections)
    assert direct.call(lambda: direct.network.unserved.kept_bytes) == 0


def test_large_requests_behind_a_pending_one_stay_in_the_socket(fixture: Fixture) -> None:
    with fixture.connect() as sock:
        body = b"wait" + bytes(600_000)
        sender = threading.Thread(target=sock.sendall, args=(frame(body) * 20,))
        sender.start()
        fixture.wait_until(lambda: len(fixture.dispatcher.pending) == 2)
        (connection,) = fixture.network.connections
        fixture.wait_until(lambda: not connection._reading)
        assert len(fixture.dispatcher.pending) == 2  # the second request exceeded the limit
        for i in range(20):
            fixture.wait_until(lambda i=i: len(fixture.dispatcher.pending) > i)
            fixture.call(lambda i=i: fixture.dispatcher.pending[i].reply(b"%d" % i))
        assert receive(sock, 20) == [b"%d" % i for i in range(20)]
        sender.join()


def test_an_error_in_the_dispatcher_closes_only_its_connection(
    fixture: Fixture, caplog: pytest.LogCaptureFixture
) -> None:
    with fixture.connect() as sock, fixture.connect() as other:
        sock.sendall(frame(b"good") + frame(b"raise") + frame(b"not seen"))
        assert receive(sock) == b"good"
        assert is_closed(sock)
        other.sendall(frame(b"raise" + bytes(100_000)))  # a large frame with a separate buffer
        assert is_closed(other)
    assert fixture.dispatcher.frames[:2] == [b"good", b"raise"]
    assert "made up by the test" in caplog.text
    fixture.wait_until(lambda: not fixture.network.connections and fixture.network.budget.used_bytes == 0)
    with fixture.connect() as sock:
        sock.sendall(frame(b"still there?"))
        assert receive(sock) == b"still there?"


@pytest.mark.parametrize("then", [b"", b"close"])
@pytest.mark.parametrize("length", [1_000, 200_000])
def test_a_truncated_file_closes_the_connection(
    fixture: Fixture, tmp_path: Path, caplog: pytest.LogCaptureFixture, then: bytes, length: int
) -> None:
    """The length has been sent already. With ``close``, the error occurs while the last responses are sent."""
    path = tmp_path / "segment"
    path.write_bytes(b"short")
    opened = []

    class Owner:
        open_file: OpenFile | None = None

    def make() -> Any:
        file = OpenFile(RealFileSystem().open(str(path)), Owner())  # type: ignore[arg-type]
        opened.append(file)
        file_range = FileRange(file, 0, length)
        file.release()
        return file_range

    fixture.dispatcher.file_range = make
    with fixture.connect() as sock:
        sock.sendall(frame(b"file") + (frame(then) if then else b""))
        received = b""
        while piece := sock.recv(100):
            received += piece
    # A small range is read before it is sent, so none of it is sent.
    assert received == struct.pack(">i", length + 2) + (b"<" if length <= READ_BYTES else b"<short")
    fixture.wait_until(lambda: opened[0].references == 0)
    if not then:
        assert "short read of a file range" in caplog.text


def test_kept_requests_count_in_the_budget_until_they_complete() -> None:
    with (
        Fixture(queued_max_request_bytes=1_000_000) as fixture,
        fixture.connect() as first,
        fixture.connect() as second,
    ):
        first.sendall(frame(b"wait and keep" + bytes(900_000)))
        fixture.wait_until(lambda: fixture.dispatcher.pending)
        assert fixture.call(lambda: fixture.network.budget.used_bytes) >= 900_000
        small = frame(b"a" + bytes(70_000))
        second.sendall(small)  # accepted, because it is the oldest request that is still arriving
        assert len(receive(second)) == 70_001
        fixture.call(lambda: fixture.dispatcher.pending[0].reply(b"done"))
        assert receive(first) == b"done"
        assert fixture.call(lambda: fixture.network.budget.used_bytes) == 0


def test_requests_that_wait_for_the_memory_of_a_kept_request_continue_after_it() -> None:
    with Fixture(queued_max_request_bytes=1_000_000) as fixture:
        first, oldest, third = (fixture.connect() for _ in range(3))
        with first, oldest, third:
            first.sendall(frame(b"wait and keep" + bytes(900_000)))
            fixture.wait_until(lambda: fixture.dispatcher.pending)
            oldest.sendall(struct.pack(">i", 300_000) + b"half")
            fixture.wait_until(lambda: any(c._frame is not None for c in fixture.network.connections))
            third.sendall(frame(b"third" + bytes(600_000)))
            fixture.wait_until(lambda: len(fixture.network.budget._waiting) == 1)
            fixture.call(lambda: fixture.dispatcher.pending[0].reply(b"done"))
            assert receive(third) == b"third" + bytes(600_000)


def test_the_memory_of_a_kept_request_is_released_after_its_connection_closes() -> None:
    with Fixture(queued_max_request_bytes=1_000_000) as fixture:
        with fixture.connect() as sock:
            sock.sendall(frame(b"wait and keep" + bytes(900_000)))
            fixture.wait_until(lambda: fixture.dispatcher.pending)
        (pending,) = fixture.dispatcher.pending
        fixture.wait_until(lambda: pending.cancelled)
        assert fixture.call(lambda: fixture.network.budget.used_bytes) >= 900_000  # still in progress
        fixture.call(lambda: pending.reply(b"not received"))
        assert fixture.call(lambda: fixture.network.budget.used_bytes) == 0


def option_of(fixture: Fixture, client: Any, option: Any, *size: Any) -> Any:
    """A TCP option at the server's end of the client's connection."""
    assert ask(client, b"hello") == b"hello"
    port = client.getsockname()[1]

    def look() -> Any:
        (connection,) = [each for each in fixture.network.connections if each.peer.endswith(f":{port}")]
        with socket.socket(fileno=os.dup(connection.fd)) as sock:
            return sock.getsockopt(socket.IPPROTO_TCP, option, *size)

    return fixture.call(look)


def congestion_control(fixture: Fixture, client: Any) -> Any:
    """The congestion control at the server's end of the client's connection."""
    return option_of(fixture, client, socket.TCP_CONGESTION, 16).rstrip(b"\0")


def ask(client: Any, body: Any) -> Any:
    client.sendall(frame(body))
    return receive(client)


needs_congestion_control = pytest.mark.skipif(
    not hasattr(socket, "TCP_CONGESTION"), reason="the system does not let a process choose"
)


@needs_congestion_control
def test_a_local_connection_is_never_paced(fixture: Fixture) -> None:
    with fixture.connect() as client:
        assert congestion_control(fixture, client) == b"reno"


@needs_congestion_control
def test_a_remote_connection_has_the_congestion_control_of_the_system(fixture: Fixture) -> None:
    with socket.socket() as plain:
        default = plain.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0")
    with socket.create_connection(("127.0.0.1", fixture.port), 10, source_address=("127.0.0.2", 0)) as client:
        assert congestion_control(fixture, client) == default


@needs_congestion_control
def test_a_connection_works_if_the_kernel_rejects_the_congestion_control(
    fixture: Fixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listeners, "LOCAL_CONGESTION_CONTROL", b"missing")
    with fixture.connect() as client:
        assert congestion_control(fixture, client) != b"missing"


@pytest.mark.skipif(not hasattr(socket, "TCP_NOTSENT_LOWAT"), reason="the system has no such bound")
def test_many_connections_share_the_limit_on_unsent_bytes(fixture: Fixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listeners, "UNSENT_BYTES", 10 * listeners.MIN_UNSENT_BYTES)
    monkeypatch.setattr(listeners, "MAX_UNSENT_BYTES", 5 * listeners.MIN_UNSENT_BYTES)
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(fixture.connect()) for _ in range(20)]
        bounds = [option_of(fixture, client, socket.TCP_NOTSENT_LOWAT) for client in clients]
    none = bounds[0]
    shares = [listeners.UNSENT_BYTES // count for count in range(3, 11)]
    assert bounds == [none, none, *shares, *[listeners.MIN_UNSENT_BYTES] * 10]
    assert none not in shares


def test_slow_peers_do_not_starve_a_producer(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(memory, "STALL_MS", 50)
    size = memory.SMALL_FRAME_BYTES + 1_000_000
    with Fixture(max_request_bytes=size, queued_max_request_bytes=2 * size * 4 // 3) as fixture:
        drips = [fixture.connect() for _ in range(2)]
        for sock in drips:
            sock.sendall(struct.pack(">i", size) + bytes(size - 500_000))
        fixture.wait_until(lambda: fixture.network.budget.used_bytes >= 2 * size)
        producer = fixture.connect()
        producer.settimeout(0.01)
        frame = memoryview(struct.pack(">i", size) + bytes(size))
        answer = b""
        dripping = list(drips)
        end = time.monotonic() + WAIT_SECONDS
        while time.monotonic() < end:  # in each round, each slow peer sends a byte
            for sock in list(dripping):
                try:
                    sock.send(b"x")
                except OSError:
                    dripping.remove(sock)
            with contextlib.suppress(TimeoutError):
                if frame:
                    frame = frame[producer.send(frame) :]
                else:
                    answer = producer.recv(100)
                    break
        assert answer
        assert "too slowly" in caplog.text
        for sock in (*drips, producer):
            sock.close()


def test_short_connections_leave_no_timers_behind(fixture: Fixture) -> None:
    fixture.connect().close()
    for _ in range(600):
        fixture.connect().close()
    fixture.wait_until(lambda: not fixture.network.connections)
    assert fixture.call(lambda: len(fixture.network.timers._buckets)) < 100

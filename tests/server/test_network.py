"""The connection against real sockets, with a dispatcher of the test's own."""

import asyncio
import contextlib
import os
import select
import socket
import struct
import threading

import pytest

from moldau.log.descriptors import FileRange, OpenFile
from moldau.log.files import RealFileSystem
from moldau.server import memory, network
from moldau.server.background import Background
from moldau.server.connection import MAX_HELD_BYTES, MAX_IN_FLIGHT, READ_BYTES, ROUND_BYTES, SCRATCH_BYTES
from moldau.server.event_loop import new_event_loop
from moldau.server.network import Network
from moldau.server.timers import TimerWheel


class Parked:
    """A request in flight, as `RequestContext` is one."""

    def __init__(self, connection):
        self.connection = connection
        self.parts = None
        self.hurries_others = True
        self.held_bytes = 0
        self.keeps_request = False
        self.kept_bytes = 0
        self.abandoned = False

    def reply(self, body):
        if self.kept_bytes:
            self.connection.give_back(self.kept_bytes)
        self.parts = [frame(body)]
        self.connection.answered(self)

    def abandon(self):
        self.abandoned = True

    def hurry(self):
        pass


class Dispatcher:
    """Echoes, except for frames that begin with a command."""

    def __init__(self):
        self.frames = []
        self.parked = []
        self.file_range = None

    def handle(self, connection, data):
        self.frames.append(bytes(data))
        if data.startswith(b"park"):
            parked = Parked(connection)
            parked.keeps_request = data.startswith(b"park and keep")
            self.parked.append(parked)
            return parked
        if data.startswith(b"big"):
            return [frame(b"x" * 1_000_000)]
        if data.startswith(b"raise"):
            raise RuntimeError("made up by the test")
        if data.startswith(b"silent"):
            return None
        if data.startswith(b"close"):
            connection.close("asked for")
            return None
        if data.startswith(b"file"):
            file_range = self.file_range()
            return [struct.pack(">i", len(file_range) + 2), b"<", file_range, b">"]
        return [frame(data)]


def frame(body):
    return struct.pack(">i", len(body)) + bytes(body)


class Fixture:
    """A network in a loop of its own thread."""

    def __init__(self, *, loop_factory=None, **limits):
        self.loop_factory = loop_factory
        self.dispatcher = Dispatcher()
        self.limits = {
            "max_request_bytes": 50_000_000,
            "queued_max_request_bytes": 100_000_000,
            "max_idle_ms": 60_000,
            "backlog": 1200,
        } | limits
        self.started = threading.Event()

    def __enter__(self):
        self.thread = threading.Thread(target=self._run_loop)
        self.thread.start()
        assert self.started.wait(10)
        return self

    def _run_loop(self):
        with asyncio.Runner(loop_factory=self.loop_factory) as runner:
            runner.run(self._run())

    async def _run(self):
        self.loop = asyncio.get_running_loop()
        self.stopping = asyncio.Event()
        background = Background(self.loop)
        self.network = Network(self.loop, TimerWheel(self.loop), self.dispatcher, background, **self.limits)
        listener = self.network.listen("PLAINTEXT", "127.0.0.1", 0)
        listener.start()
        self.port = listener.port
        self.started.set()
        await self.stopping.wait()
        await self.network.close(1.0)
        await background.close()

    def call(self, function):
        """Run on the loop and wait for the result."""

        async def run():
            return function()

        return asyncio.run_coroutine_threadsafe(run(), self.loop).result(10)

    def wait_until(self, condition):
        """Give the loop turns until the condition holds there; fails after a bounded number of them."""

        async def run():
            for _ in range(2000):
                if condition():
                    return True
                await asyncio.sleep(0.005)
            return False

        assert asyncio.run_coroutine_threadsafe(run(), self.loop).result(30)

    def connect(self):
        sock = socket.create_connection(("127.0.0.1", self.port), 10)
        sock.settimeout(10)
        return sock

    def __exit__(self, *_):
        self.loop.call_soon_threadsafe(self.stopping.set)
        self.thread.join(20)
        assert not self.thread.is_alive()


@pytest.fixture
def fixture():
    with Fixture() as fixture:
        yield fixture


def receive(sock, count=1):
    answers = []
    for _ in range(count):
        (size,) = struct.unpack(">i", receive_exactly(sock, 4))
        answers.append(receive_exactly(sock, size))
    return answers[0] if count == 1 else answers


def receive_exactly(sock, size):
    data = bytearray()
    while len(data) < size:
        piece = sock.recv(size - len(data))
        assert piece, "the server closed the connection"
        data += piece
    return bytes(data)


def is_closed(sock):
    try:
        return sock.recv(1) == b""
    except ConnectionError:
        return True


def test_answers_one_frame(fixture):
    with fixture.connect() as sock:
        sock.sendall(frame(b"hello"))
        assert receive(sock) == b"hello"


def test_answers_pipelined_frames_in_order(fixture):
    with fixture.connect() as sock:
        sock.sendall(b"".join(frame(b"%d" % i) for i in range(1000)))
        assert receive(sock, 1000) == [b"%d" % i for i in range(1000)]


def test_a_frame_may_arrive_byte_by_byte(fixture):
    with fixture.connect() as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in frame(b"slowly") + frame(b"again"):
            sock.sendall(bytes([byte]))
        assert receive(sock, 2) == [b"slowly", b"again"]


@pytest.mark.parametrize(
    "size", [0, 1, 65_535, 65_536, 65_537, SCRATCH_BYTES - 4, SCRATCH_BYTES, SCRATCH_BYTES + 1, 3_000_000]
)
def test_frames_of_any_size(fixture, size):
    body = os.urandom(size)
    with fixture.connect() as sock:
        sender = threading.Thread(target=sock.sendall, args=(frame(b"a") + frame(body) + frame(b"z"),))
        sender.start()
        assert receive(sock, 3) == [b"a", body, b"z"]
        sender.join()


def test_a_parked_request_holds_back_the_answers_behind_it(fixture):
    with fixture.connect() as sock:
        sock.sendall(frame(b"1") + frame(b"park") + frame(b"3") + frame(b"silent") + frame(b"5"))
        assert receive(sock) == b"1"
        fixture.wait_until(lambda: len(fixture.dispatcher.frames) == 5)
        fixture.call(lambda: fixture.dispatcher.parked[0].reply(b"2"))
        assert receive(sock, 3) == [b"2", b"3", b"5"]


def test_parked_requests_are_answered_in_order_even_when_the_second_is_ready_first(fixture):
    with fixture.connect() as sock:
        sock.sendall(frame(b"park 1") + frame(b"park 2"))
        fixture.wait_until(lambda: len(fixture.dispatcher.parked) == 2)
        first, second = fixture.dispatcher.parked
        fixture.call(lambda: second.reply(b"2"))
        fixture.call(lambda: first.reply(b"1"))
        assert receive(sock, 2) == [b"1", b"2"]


def test_requests_in_flight_are_bounded(fixture):
    with fixture.connect() as sock:
        sock.sendall(b"".join(frame(b"park %d" % i) for i in range(MAX_IN_FLIGHT + 50)))
        fixture.wait_until(lambda: len(fixture.dispatcher.parked) == MAX_IN_FLIGHT)
        for i in range(MAX_IN_FLIGHT + 50):
            fixture.wait_until(lambda i=i: len(fixture.dispatcher.parked) > i)
            assert len(fixture.dispatcher.parked) <= MAX_IN_FLIGHT + i
            fixture.call(lambda i=i: fixture.dispatcher.parked[i].reply(b"%d" % i))
        assert receive(sock, MAX_IN_FLIGHT + 50) == [b"%d" % i for i in range(MAX_IN_FLIGHT + 50)]


def test_a_peer_that_goes_away_abandons_its_parked_requests(fixture):
    with fixture.connect() as sock:
        sock.sendall(frame(b"park"))
        fixture.wait_until(lambda: fixture.dispatcher.parked)
    fixture.wait_until(lambda: fixture.dispatcher.parked[0].abandoned)
    fixture.wait_until(lambda: not fixture.network.connections)


needs_epoll = pytest.mark.skipif(not hasattr(select, "epoll"), reason="epoll is Linux's")


@pytest.fixture
def direct():
    """In the loop of the server, which notices the end of peers that are not read from."""
    with Fixture(loop_factory=new_event_loop, queued_max_request_bytes=1_000_000) as fixture:
        yield fixture


@needs_epoll
@pytest.mark.parametrize("reset", [False, True], ids=["closed", "reset"])
@pytest.mark.parametrize("size", [10, 20_000], ids=["many", "large"])
def test_a_peer_that_goes_away_with_as_much_in_flight_as_it_may_have_is_noticed(direct, size, reset):
    with direct.connect() as sock:
        sock.sendall(frame(b"park".ljust(size)) * MAX_IN_FLIGHT)
        expected = min(MAX_IN_FLIGHT, MAX_HELD_BYTES // size + 1)
        direct.wait_until(lambda: len(direct.dispatcher.parked) == expected)
        if reset:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    direct.wait_until(lambda: not direct.network.connections)
    assert all(parked.abandoned for parked in direct.dispatcher.parked)


@needs_epoll
def test_what_a_peer_sent_before_it_went_away_is_served_behind_what_waited(direct):
    with direct.connect() as sock:
        sock.sendall(frame(b"park") * (2 * MAX_IN_FLIGHT + 10))
        direct.wait_until(lambda: len(direct.dispatcher.parked) == MAX_IN_FLIGHT)
        sock.sendall(frame(b"silent"))
    direct.wait_until(lambda: not direct.network.connections)
    assert direct.dispatcher.frames == [b"park"] * (2 * MAX_IN_FLIGHT + 10) + [b"silent"]


@needs_epoll
def test_a_peer_that_goes_away_while_it_waits_for_memory_is_noticed(direct):
    # The first holds all memory for large frames; the second waits before it has any.
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
def test_an_absurd_length_closes_the_connection(fixture, length, caplog):
    with fixture.connect() as sock:
        sock.sendall(struct.pack(">i", length) + b"x" * 100)
        assert is_closed(sock)
    assert str(length) in caplog.text
    assert "127.0.0.1" in caplog.text


def test_the_dispatcher_may_close_and_answers_before_it_go_out(fixture):
    with fixture.connect() as sock:
        sock.sendall(frame(b"good") + frame(b"close") + frame(b"not seen"))
        assert receive(sock) == b"good"
        assert is_closed(sock)
    assert fixture.dispatcher.frames == [b"good", b"close"]


def test_a_peer_that_does_not_read_is_not_read_from(fixture):
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
                other.sendall(frame(b"still there?"))  # everybody else is served meanwhile
                assert receive(other) == b"still there?"
        (stuck,) = [c for c in fixture.network.connections if c._writing]
        assert fixture.call(lambda: sum(map(len, stuck._out)) + len(stuck._rest)) < 2_000_000
        # When it reads again, it gets everything.
        sock.setblocking(True)
        sock.settimeout(10)
        complete = sent // len(data)
        assert receive(sock, complete) == [body] * complete


def test_a_file_range_is_sent_between_buffers(fixture, tmp_path):
    content = os.urandom(5_000_000)
    path = tmp_path / "segment"
    path.write_bytes(content)
    opened = []

    class Owner:
        open_file = None

    def make():
        file = OpenFile(RealFileSystem().open(str(path)), Owner())
        opened.append(file)
        file_range = FileRange(file, 1_000, 4_000_000)
        file.release()  # only the range holds it now
        return file_range

    fixture.dispatcher.file_range = make
    with fixture.connect() as sock:
        sock.sendall(frame(b"file") + frame(b"after"))
        assert receive(sock) == b"<" + content[1_000:4_001_000] + b">"
        assert receive(sock) == b"after"
    fixture.wait_until(lambda: opened[0].references == 0)


def test_a_file_range_that_comes_up_short_closes_the_connection(fixture, tmp_path, caplog):
    path = tmp_path / "segment"
    path.write_bytes(b"only this")

    class Owner:
        open_file = None

    fixture.dispatcher.file_range = lambda: FileRange(OpenFile(RealFileSystem().open(str(path)), Owner()), 0, 100)
    with fixture.connect() as sock:
        sock.sendall(frame(b"file"))
        while sock.recv(1000):
            pass
    assert "came up short" in caplog.text


def test_silent_connections_cost_nothing_and_the_others_are_served(fixture):
    silent = [fixture.connect() for _ in range(200)]
    with fixture.connect() as sock:
        sock.sendall(frame(b"hello"))
        assert receive(sock) == b"hello"
    for sock in silent:
        sock.close()
    fixture.wait_until(lambda: not fixture.network.connections)


def test_declared_lengths_reserve_no_memory(fixture):
    peers = [fixture.connect() for _ in range(50)]
    for peer in peers:
        peer.sendall(struct.pack(">i", 40_000_000) + b"x" * 1000)
    fixture.wait_until(lambda: sum(c._frame is not None for c in fixture.network.connections) == 50)
    assert fixture.network.budget.used_bytes <= 50 * 65_536
    for peer in peers:
        peer.close()
    fixture.wait_until(lambda: fixture.network.budget.used_bytes == 0)


def test_frames_over_the_common_bound_wait_for_each_other_and_all_arrive():
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
        assert fixture.network.budget.used_bytes == 0


def test_idle_connections_are_closed():
    with Fixture(max_idle_ms=50) as fixture, fixture.connect() as sock:
        assert is_closed(sock)


def test_a_connection_that_waits_for_its_answer_is_not_idle():
    with Fixture() as fixture, fixture.connect() as sock:
        sock.sendall(frame(b"park"))
        fixture.wait_until(lambda: fixture.dispatcher.parked)

        def be_late():
            fixture.network.max_idle_ms = -1  # any time is too long
            (connection,) = fixture.network.connections
            connection._check_idle()

        fixture.call(be_late)
        fixture.call(lambda: fixture.dispatcher.parked[0].reply(b"at last"))
        assert receive(sock) == b"at last"
        fixture.call(be_late)
        assert is_closed(sock)


def test_closing_sends_the_answers_that_are_on_their_way():
    with Fixture() as fixture:
        sock = fixture.connect()
        sock.sendall(frame(b"x" * 1000))
        assert receive(sock) == b"x" * 1000
    assert is_closed(sock)
    sock.close()


def test_small_requests_with_large_answers_are_made_as_they_are_read(fixture):
    with fixture.connect() as sock:
        sock.sendall(frame(b"big") * 300)
        fixture.wait_until(lambda: any(c._writing for c in fixture.network.connections))
        (connection,) = fixture.network.connections
        assert fixture.call(lambda: sum(map(len, connection._out))) <= ROUND_BYTES + 1_000_004
        assert len(fixture.dispatcher.frames) < 50  # what the sockets' buffers take
        for _ in range(300):
            assert len(receive(sock)) == 1_000_000


def test_answers_held_back_by_a_parked_request_are_bounded(fixture):
    with fixture.connect() as sock:
        sock.sendall(frame(b"park") + frame(b"big") * 50 + frame(b"end"))
        fixture.wait_until(lambda: fixture.dispatcher.parked)
        (connection,) = fixture.network.connections
        fixture.wait_until(lambda: not connection._reading)
        assert fixture.call(lambda: connection._held_bytes) <= MAX_HELD_BYTES + 1_000_004
        assert len(fixture.dispatcher.frames) < 5
        fixture.call(lambda: fixture.dispatcher.parked[0].reply(b"first"))
        assert receive(sock) == b"first"
        for _ in range(50):
            assert len(receive(sock)) == 1_000_000
        assert receive(sock) == b"end"
        assert fixture.call(lambda: connection._held_bytes) == 0


def test_large_requests_behind_a_parked_one_wait_in_the_socket(fixture):
    with fixture.connect() as sock:
        body = b"park" + bytes(600_000)
        sender = threading.Thread(target=sock.sendall, args=(frame(body) * 20,))
        sender.start()
        fixture.wait_until(lambda: len(fixture.dispatcher.parked) == 2)
        (connection,) = fixture.network.connections
        fixture.wait_until(lambda: not connection._reading)
        assert len(fixture.dispatcher.parked) == 2  # the second went over the bound
        for i in range(20):
            fixture.wait_until(lambda i=i: len(fixture.dispatcher.parked) > i)
            fixture.call(lambda i=i: fixture.dispatcher.parked[i].reply(b"%d" % i))
        assert receive(sock, 20) == [b"%d" % i for i in range(20)]
        sender.join()


def test_a_dispatcher_that_raises_costs_one_connection(fixture, caplog):
    with fixture.connect() as sock, fixture.connect() as other:
        sock.sendall(frame(b"good") + frame(b"raise") + frame(b"not seen"))
        assert receive(sock) == b"good"
        assert is_closed(sock)
        other.sendall(frame(b"raise" + bytes(100_000)))  # a large frame of its own buffer
        assert is_closed(other)
    assert fixture.dispatcher.frames[:2] == [b"good", b"raise"]
    assert "made up by the test" in caplog.text
    fixture.wait_until(lambda: not fixture.network.connections and fixture.network.budget.used_bytes == 0)
    with fixture.connect() as sock:
        sock.sendall(frame(b"still there?"))
        assert receive(sock) == b"still there?"


@pytest.mark.parametrize("then", [b"", b"close"])
@pytest.mark.parametrize("length", [1_000, 200_000])
def test_a_file_that_was_cut_closes_the_connection(fixture, tmp_path, caplog, then, length):
    """The length was promised. With ``close`` it is found out while the last answers go out."""
    path = tmp_path / "segment"
    path.write_bytes(b"short")
    opened = []

    class Owner:
        open_file = None

    def make():
        file = OpenFile(RealFileSystem().open(str(path)), Owner())
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
    # A small range is not sent at all: it was to be read before.
    assert received == struct.pack(">i", length + 2) + (b"<" if length <= READ_BYTES else b"<short")
    fixture.wait_until(lambda: opened[0].references == 0)
    if not then:
        assert "came up short" in caplog.text


def test_requests_that_are_kept_count_until_they_are_answered():
    with (
        Fixture(queued_max_request_bytes=1_000_000) as fixture,
        fixture.connect() as first,
        fixture.connect() as second,
    ):
        first.sendall(frame(b"park and keep" + bytes(900_000)))
        fixture.wait_until(lambda: fixture.dispatcher.parked)
        assert fixture.call(lambda: fixture.network.budget.used_bytes) >= 900_000
        small = frame(b"a" + bytes(70_000))
        second.sendall(small)  # the oldest that is still arriving, so it may
        assert len(receive(second)) == 70_001
        fixture.call(lambda: fixture.dispatcher.parked[0].reply(b"done"))
        assert receive(first) == b"done"
        assert fixture.call(lambda: fixture.network.budget.used_bytes) == 0


def test_what_waits_for_the_memory_of_a_kept_request_goes_on_after_it():
    with Fixture(queued_max_request_bytes=1_000_000) as fixture:
        first, oldest, third = (fixture.connect() for _ in range(3))
        with first, oldest, third:
            first.sendall(frame(b"park and keep" + bytes(900_000)))
            fixture.wait_until(lambda: fixture.dispatcher.parked)
            oldest.sendall(struct.pack(">i", 300_000) + b"half")
            fixture.wait_until(lambda: any(c._frame is not None for c in fixture.network.connections))
            third.sendall(frame(b"third" + bytes(600_000)))
            fixture.wait_until(lambda: len(fixture.network.budget._waiting) == 1)
            fixture.call(lambda: fixture.dispatcher.parked[0].reply(b"done"))
            assert receive(third) == b"third" + bytes(600_000)


def test_bytes_of_a_kept_request_are_given_back_when_its_connection_goes():
    with Fixture(queued_max_request_bytes=1_000_000) as fixture:
        with fixture.connect() as sock:
            sock.sendall(frame(b"park and keep" + bytes(900_000)))
            fixture.wait_until(lambda: fixture.dispatcher.parked)
        (parked,) = fixture.dispatcher.parked
        fixture.wait_until(lambda: parked.abandoned)
        assert fixture.call(lambda: fixture.network.budget.used_bytes) >= 900_000  # still being worked on
        fixture.call(lambda: parked.reply(b"nobody hears it"))
        assert fixture.call(lambda: fixture.network.budget.used_bytes) == 0


def congestion_control(fixture, client):
    """What the server's end of the client's connection uses."""
    assert ask(client, b"hello") == b"hello"

    def look():
        (connection,) = fixture.network.connections
        with socket.socket(fileno=os.dup(connection.fd)) as sock:
            return sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0")

    return fixture.call(look)


def ask(client, body):
    client.sendall(frame(body))
    return receive(client)


needs_congestion_control = pytest.mark.skipif(
    not hasattr(socket, "TCP_CONGESTION"), reason="the system does not let a process choose"
)


@needs_congestion_control
def test_a_connection_that_stays_on_this_machine_is_never_paced(fixture):
    with fixture.connect() as client:
        assert congestion_control(fixture, client) == b"reno"


@needs_congestion_control
def test_a_connection_between_two_addresses_has_the_congestion_control_of_the_system(fixture):
    with socket.socket() as plain:
        default = plain.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0")
    with socket.create_connection(("127.0.0.1", fixture.port), 10, source_address=("127.0.0.2", 0)) as client:
        assert congestion_control(fixture, client) == default


@needs_congestion_control
def test_a_kernel_that_refuses_the_congestion_control_serves_the_connection_with_its_own(fixture, monkeypatch):
    monkeypatch.setattr(network, "LOCAL_CONGESTION_CONTROL", b"missing")
    with fixture.connect() as client:
        assert congestion_control(fixture, client) != b"missing"


def test_peers_that_drip_do_not_starve_a_producer(monkeypatch, caplog):
    monkeypatch.setattr(memory, "STALL_MS", 50)
    size = memory.SMALL_FRAME_BYTES + 1_000_000
    with Fixture(queued_max_request_bytes=2 * size * 4 // 3) as fixture:
        drips = [fixture.connect() for _ in range(2)]
        for sock in drips:
            sock.sendall(struct.pack(">i", size) + bytes(size - 500_000))
        fixture.wait_until(lambda: fixture.network.budget.used_bytes >= 2 * size)
        producer = fixture.connect()
        producer.settimeout(0.01)
        frame = memoryview(struct.pack(">i", size) + bytes(size))
        answer = b""
        dripping = list(drips)
        for _ in range(1000):  # each round a byte of each peer that drips
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


def test_short_connections_leave_no_timers_behind(fixture):
    fixture.connect().close()
    for _ in range(600):
        fixture.connect().close()
    fixture.wait_until(lambda: not fixture.network.connections)
    assert fixture.call(lambda: len(fixture.network.timers._buckets)) < 100

"""Links over connections in memory, with a clock that the test moves; and over TCP, with real peers."""

from __future__ import annotations

import asyncio
import itertools
import socket
import struct
from collections import deque
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest

from moldau.protocol.api import ApiKey, request_class, request_header_version, response_header_version
from moldau.protocol.codec import decode_at, encode
from moldau.protocol.errors import ErrorCode, KafkaError
from moldau.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from moldau.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from moldau.protocol.messages.headers import RequestHeader, ResponseHeader
from moldau.protocol.messages.metadata import MetadataRequest, MetadataResponse
from moldau.protocol.schema import Response, Versions
from moldau.server.concurrency.background import Background
from moldau.server.concurrency.event_loop import EndOfIteration, new_event_loop, readiness_of, turns_of
from moldau.server.concurrency.timers import TimerWheel
from moldau.server.network.conversation import FrameReader, PeerError
from moldau.server.network.dialing import Address, is_connected_to_itself
from moldau.server.network.links import Link, LinkError, Links, LinkSettings
from moldau.testing.apache_kafka import ApacheKafka
from moldau.testing.memory_dialer import MemoryEnd, MemoryNetwork
from moldau.testing.waiting import wait_until_async

from .conftest import RunningServer
from .test_timers import FakeLoop

PEER = Address("peer", 9092)
VERSIONS = Versions(0, 13)


class ScriptedPeer:
    """The other end of a connection: decodes requests, and responds when the test calls it."""

    def __init__(self, end: MemoryEnd) -> None:
        self.end = end
        self._data = b""

    def requests(self) -> list[tuple[RequestHeader, Any]]:
        """The complete requests that have arrived."""
        self._data += self.end.take()
        found = []
        while len(self._data) >= 4 and len(self._data) >= 4 + (length := struct.unpack(">i", self._data[:4])[0]):
            frame, self._data = self._data[4 : 4 + length], self._data[4 + length :]
            key, version = struct.unpack(">hh", frame[:4])
            header, offset = decode_at(RequestHeader, frame, request_header_version(key, version), 0)
            found.append((header, decode_at(request_class(key), frame, version, offset)[0]))
        return found

    def respond(self, header: RequestHeader, response: Response, *, version: int | None = None) -> None:
        version = header.request_api_version if version is None else version
        self.end.send(response_frame(header, response, version))

    def negotiate(self, *apis: tuple[int, int, int]) -> None:
        [(header, request)] = self.requests()
        assert isinstance(request, ApiVersionsRequest)
        assert request.client_software_name == "moldau"
        self.respond(header, versions_of(*apis))


def response_frame(header: RequestHeader, response: Response, version: int) -> bytes:
    head = ResponseHeader(correlation_id=header.correlation_id)
    key = header.request_api_key
    payload = encode(head, response_header_version(key, version)) + encode(response, version)
    return struct.pack(">i", len(payload)) + payload


def versions_of(*apis: tuple[int, int, int]) -> ApiVersionsResponse:
    listed = apis or ((ApiKey.METADATA, 0, 13), (ApiKey.FIND_COORDINATOR, 0, 6), (ApiKey.API_VERSIONS, 0, 4))
    keys = [ApiVersion(api_key=key, min_version=low, max_version=high) for key, low, high in listed]
    return ApiVersionsResponse(api_keys=keys)


class SteppedLinks:
    """Links over connections in memory. A test runs their callbacks, and moves their clock."""

    def __init__(self, *, capacity: int) -> None:
        self.loop = FakeLoop()
        self.timers = TimerWheel(self.loop)  # type: ignore[arg-type]
        self._callbacks: deque[Callable[[], None]] = deque()
        self.network = MemoryNetwork(self._callbacks.append, capacity=capacity)
        self.links = Links(self.network, self.timers, self._callbacks.append, Random(1))

    def run(self) -> None:
        """Run until only time or another event can continue."""
        while self._callbacks:
            self._callbacks.popleft()()

    def advance(self, milliseconds: float) -> None:
        for _ in range(int(milliseconds // 2)):
            self.loop.advance(2)
            self.run()


class Simulation(SteppedLinks):
    """A link to scripted peers, in steps."""

    def __init__(self, settings: LinkSettings, *, capacity: int = 64 * 1024) -> None:
        super().__init__(capacity=capacity)
        self.peers: list[ScriptedPeer] = []
        self.link = self.links.open(PEER, "broker-1", settings)
        self.results: list[Any] = []

    def listen(self) -> None:
        self.network.listen(PEER, lambda end: self.peers.append(ScriptedPeer(end)))

    def send(self, name: str = "t", versions: Versions | int = VERSIONS, *, timeout_ms: float | None = None) -> Any:
        place = len(self.results)
        self.results.append(None)

        def done(response: Any, error: Exception | None) -> None:
            assert self.results[place] is None
            self.results[place] = error or response

        outgoing = self.link.send(
            FindCoordinatorRequest(coordinator_keys=[name]), versions, done, timeout_ms=timeout_ms
        )
        assert self.results[place] is None
        return outgoing

    def connect(self) -> ScriptedPeer:
        """Let the link connect to a peer that records its requests."""
        self.listen()
        self.send()
        self.run()
        peer = self.peers[-1]
        peer.negotiate((ApiKey.FIND_COORDINATOR, 0, 5), (ApiKey.API_VERSIONS, 0, 4))
        self.run()
        [(header, _)] = peer.requests()
        peer.respond(header, FindCoordinatorResponse())
        self.run()
        assert self.results.pop() == FindCoordinatorResponse()
        return peer


@pytest.fixture
def simulation() -> Simulation:
    return Simulation(LinkSettings(backoff_ms=50, max_backoff_ms=400, setup_timeout_ms=1000))


def error_of(result: Any) -> LinkError:
    assert isinstance(result, LinkError)
    return result


# -- requests and responses ------------------------------------------------------------------------------------------


def test_requests_are_sent_after_api_versions_in_the_highest_version_of_both_sides(simulation: Simulation) -> None:
    simulation.listen()
    simulation.send("a")
    simulation.send("b", Versions(4, 4))
    simulation.run()
    [peer] = simulation.peers
    peer.negotiate((ApiKey.FIND_COORDINATOR, 2, 5))
    simulation.run()
    (first, request), (second, other) = peer.requests()
    assert (first.request_api_version, second.request_api_version) == (5, 4)
    assert (request.coordinator_keys, other.coordinator_keys) == (["a"], ["b"])
    assert first.client_id == "broker-1"
    assert simulation.results == [None, None]
    peer.respond(first, FindCoordinatorResponse(throttle_time_ms=1))
    simulation.run()
    assert simulation.results == [FindCoordinatorResponse(throttle_time_ms=1), None]
    peer.respond(second, FindCoordinatorResponse(throttle_time_ms=2))
    simulation.run()
    assert simulation.results[1] == FindCoordinatorResponse(throttle_time_ms=2)
    assert simulation.link.waiting == 0


def test_the_version_of_api_versions_falls_back_to_that_of_the_peer(simulation: Simulation) -> None:
    simulation.listen()
    simulation.send()
    simulation.run()
    [peer] = simulation.peers
    [(header, _)] = peer.requests()
    assert header.request_api_version == 4
    refusal = versions_of((ApiKey.API_VERSIONS, 0, 2))
    refusal.error_code = ErrorCode.UNSUPPORTED_VERSION
    peer.respond(header, refusal, version=0)
    simulation.run()
    [(header, _)] = peer.requests()
    assert header.request_api_version == 2
    peer.respond(header, versions_of())
    simulation.run()
    [(header, _)] = peer.requests()
    assert header.request_api_key == ApiKey.FIND_COORDINATOR


def test_a_peer_that_refuses_every_version_of_api_versions_is_a_failure(simulation: Simulation) -> None:
    simulation.listen()
    simulation.send()
    simulation.run()
    [peer] = simulation.peers
    for _ in range(2):
        [(header, _)] = peer.requests()
        refusal = versions_of()
        refusal.error_code = ErrorCode.UNSUPPORTED_VERSION
        peer.respond(header, refusal, version=0)
        simulation.run()
    assert "UNSUPPORTED_VERSION" in str(error_of(simulation.results[0]))
    assert peer.end._has_ended


@pytest.mark.parametrize("offered", [(0, 3), (7, 9)])
def test_a_request_without_a_common_version_fails_and_others_do_not(
    simulation: Simulation, offered: tuple[int, int]
) -> None:
    peer = simulation.connect()
    simulation.network.stop_listening(PEER)
    simulation.run()
    simulation.listen()
    simulation.send(versions=Versions(4, 6))
    simulation.send(versions=Versions(*offered))
    simulation.run()
    peer = simulation.peers[-1]
    peer.negotiate((ApiKey.FIND_COORDINATOR, *offered))
    simulation.run()
    error = simulation.results[0]
    assert isinstance(error, KafkaError)
    assert error.code is ErrorCode.UNSUPPORTED_VERSION
    assert "FindCoordinator" in str(error)
    if offered == (0, 3):
        assert isinstance(simulation.results[1], KafkaError)  # version 3 cannot represent several keys
    assert simulation.link.waiting == (offered == (7, 9) and len(peer.requests()))


def test_a_canceled_request_is_not_sent_and_its_response_is_ignored(simulation: Simulation) -> None:
    peer = simulation.connect()
    unsent = simulation.send("unsent")
    unsent.cancel()
    sent = simulation.send("sent")
    simulation.send("kept")
    simulation.run()
    sent.cancel()
    (first, request), (second, _) = peer.requests()
    assert request.coordinator_keys == ["sent"]
    peer.respond(first, FindCoordinatorResponse())
    peer.respond(second, FindCoordinatorResponse(throttle_time_ms=3))
    simulation.run()
    assert simulation.results == [None, None, FindCoordinatorResponse(throttle_time_ms=3)]


def test_the_number_of_requests_in_flight_is_limited() -> None:
    simulation = Simulation(LinkSettings(max_in_flight=2, max_waiting=3))
    peer = simulation.connect()
    for name in "abcd":
        simulation.send(name)
    simulation.run()
    assert "3 requests wait" in str(error_of(simulation.results[3]))
    assert not error_of(simulation.results[3]).maybe_processed
    requests = peer.requests()
    assert [request.coordinator_keys for _, request in requests] == [["a"], ["b"]]
    peer.respond(requests[0][0], FindCoordinatorResponse())
    simulation.run()
    assert [request.coordinator_keys for _, request in peer.requests()] == [["c"]]


def test_a_peer_that_does_not_read_limits_the_encoded_requests(simulation: Simulation) -> None:
    peer = simulation.connect()
    long = "x" * 10_000
    for _ in range(300):
        simulation.send(long)
    simulation.run()
    assert simulation.link.waiting == 300
    assert len(simulation.link._output) < 1024 * 1024 + 20_000
    received = 0
    while received < 300:
        requests = peer.requests()
        assert requests
        for header, _ in requests:
            peer.respond(header, FindCoordinatorResponse())
        received += len(requests)
        simulation.run()
    assert simulation.results == [FindCoordinatorResponse()] * 300


@pytest.mark.parametrize("piece", [1, 3, 1000])
def test_responses_arrive_in_any_pieces(simulation: Simulation, piece: int) -> None:
    peer = simulation.connect()
    simulation.send()
    simulation.send()
    simulation.run()
    data = b"".join(response_frame(header, FindCoordinatorResponse(), 5) for header, _ in peer.requests())
    for at in range(0, len(data), piece):
        peer.end.send(data[at : at + piece])
        simulation.run()
    assert simulation.results == [FindCoordinatorResponse()] * 2


def test_an_error_in_a_callback_does_not_affect_other_requests(
    simulation: Simulation, caplog: pytest.LogCaptureFixture
) -> None:
    peer = simulation.connect()

    def done(response: Any, error: Exception | None) -> None:
        raise ZeroDivisionError

    simulation.link.send(FindCoordinatorRequest(), 4, done)
    simulation.send()
    simulation.run()
    for header, _ in peer.requests():
        peer.respond(header, FindCoordinatorResponse())
    simulation.run()
    assert simulation.results == [FindCoordinatorResponse()]
    assert "ZeroDivisionError" in caplog.text


# -- failures ----------------------------------------------------------------------------------------------------------


def test_a_refused_connection_fails_the_requests_that_wait_and_the_next_attempt_is_later(
    simulation: Simulation,
) -> None:
    simulation.send()
    simulation.run()
    assert "Connection refused" in str(error_of(simulation.results[0]))
    assert not error_of(simulation.results[0]).maybe_processed
    assert simulation.link.is_pausing
    simulation.listen()
    simulation.send()
    simulation.run()
    assert simulation.peers == []
    simulation.advance(62)
    assert len(simulation.peers) == 1
    assert simulation.results[1] is None


def test_pauses_double_up_to_their_limit(simulation: Simulation) -> None:
    started = simulation.loop.now
    attempts: list[float] = []
    while len(attempts) < 7:
        waiting = len(simulation.results)
        simulation.send()
        while simulation.results[waiting] is None:
            simulation.advance(2)
        attempts.append((simulation.loop.now - started) * 1000)
    pauses = [after - before for before, after in itertools.pairwise(attempts)]
    for pause, nominal in zip(pauses, [50, 100, 200, 400, 400, 400], strict=True):
        assert nominal * 0.8 - 4 <= pause <= nominal * 1.2 + 4


def test_a_lost_connection_fails_the_sent_requests_and_the_next_one_sends_the_rest() -> None:
    simulation = Simulation(LinkSettings(max_in_flight=1))
    peer = simulation.connect()
    simulation.send("sent")
    simulation.send("waits")
    simulation.run()
    peer.end.reset()
    simulation.run()
    assert error_of(simulation.results[0]).maybe_processed
    assert simulation.results[1] is None
    peer = simulation.peers[1]  # without a pause: the previous connection has worked
    peer.negotiate()
    simulation.run()
    [(header, request)] = peer.requests()
    assert request.coordinator_keys == ["waits"]
    peer.respond(header, FindCoordinatorResponse())
    simulation.run()
    assert simulation.results[1] == FindCoordinatorResponse()


def test_a_peer_that_accepts_and_disconnects_is_not_retried_without_a_pause(simulation: Simulation) -> None:
    accepted = []

    def accept(end: MemoryEnd) -> None:
        accepted.append(end)
        end.close()

    simulation.network.listen(PEER, accept)
    for expected in (1, 1, 1):
        simulation.send()
        simulation.run()
        assert len(accepted) == expected
    simulation.advance(1000)
    assert 2 <= len(accepted) <= 4
    assert all("connection" in str(error_of(result)) for result in simulation.results)


def test_a_cut_address_is_refused_until_it_is_healed(simulation: Simulation) -> None:
    simulation.connect()
    simulation.send("in flight")
    simulation.run()
    simulation.links.cut([PEER])
    simulation.run()
    assert error_of(simulation.results[0]).maybe_processed
    simulation.send("cut")
    simulation.run()
    assert "the connection is cut" in str(error_of(simulation.results[1]))
    assert len(simulation.peers) == 1
    simulation.links.cut([])
    simulation.send("healed")
    simulation.advance(1000)
    peer = simulation.peers[1]
    peer.negotiate()
    simulation.run()
    [(_, request)] = peer.requests()
    assert request.coordinator_keys == ["healed"]


def test_an_idle_connection_that_the_peer_closes_is_no_failure(simulation: Simulation) -> None:
    peer = simulation.connect()
    peer.end.close()
    simulation.run()
    assert not simulation.link.is_connected
    assert not simulation.link.is_pausing
    simulation.advance(1000)
    assert len(simulation.peers) == 1  # it does not reconnect before it has a request
    simulation.send()
    simulation.run()
    assert len(simulation.peers) == 2


def test_a_timeout_of_a_sent_request_closes_the_connection(simulation: Simulation) -> None:
    peer = simulation.connect()
    simulation.send("slow", timeout_ms=100)
    simulation.send("behind")
    simulation.run()
    simulation.advance(98)
    assert simulation.results == [None, None]
    simulation.advance(6)
    first, second = map(error_of, simulation.results)
    assert first.timed_out
    assert first.maybe_processed
    assert "FindCoordinator within 100 ms" in str(first)
    assert not second.timed_out
    assert second.maybe_processed
    assert peer.end._has_ended


def test_a_timeout_includes_the_time_to_connect(simulation: Simulation) -> None:
    simulation.network.cut(PEER)
    simulation.send("short", timeout_ms=100)
    simulation.send("long", timeout_ms=5000)
    simulation.advance(106)
    assert error_of(simulation.results[0]).timed_out
    assert not error_of(simulation.results[0]).maybe_processed
    assert simulation.results[1] is None
    simulation.advance(1000)
    assert "not connected within 1000 ms" in str(error_of(simulation.results[1]))
    assert not error_of(simulation.results[1]).timed_out


def test_a_peer_that_never_lists_its_versions_is_a_failed_connection(simulation: Simulation) -> None:
    simulation.listen()
    simulation.send()
    simulation.advance(990)
    assert simulation.results == [None]
    simulation.advance(20)
    assert "not connected" in str(error_of(simulation.results[0]))
    assert simulation.peers[0].end._has_ended


def _wrong_id(header: RequestHeader) -> bytes:
    header.correlation_id += 7
    return response_frame(header, FindCoordinatorResponse(), 5)


def _too_long(header: RequestHeader) -> bytes:
    data = response_frame(header, FindCoordinatorResponse(), 5) + b"\0"
    return struct.pack(">i", len(data) - 4) + data[4:]


def _cut_short(header: RequestHeader) -> bytes:
    data = response_frame(header, FindCoordinatorResponse(), 5)[:-2]
    return struct.pack(">i", len(data) - 4) + data[4:]


@pytest.mark.parametrize(
    "malformed",
    [
        _wrong_id,
        _too_long,
        _cut_short,
        lambda header: b"\xff\xff\xff\xff",
        lambda header: b"\x7f\xff\xff\xff",
        lambda header: b"\0\0\0\0",
        lambda header: b"HTTP/1.1 400 Bad Request\r\n\r\n",
    ],
)
def test_a_malformed_response_closes_the_connection(
    simulation: Simulation, malformed: Callable[[RequestHeader], bytes], caplog: pytest.LogCaptureFixture
) -> None:
    peer = simulation.connect()
    simulation.send()
    simulation.run()
    [(header, _)] = peer.requests()
    peer.end.send(malformed(header))
    simulation.run()
    assert error_of(simulation.results[0]).maybe_processed
    assert "violates the protocol" in str(simulation.results[0])
    assert caplog.text.count("violates the protocol") == 1
    assert peer.end._has_ended


def test_a_response_to_no_request_closes_the_connection(simulation: Simulation) -> None:
    peer = simulation.connect()
    peer.end.send(b"\0\0\0\4\0\0\0\7")
    simulation.run()
    assert peer.end._has_ended
    assert simulation.link.waiting == 0


def test_closing_fails_everything_once(simulation: Simulation) -> None:
    peer = simulation.connect()
    simulation.send("sent")
    simulation.run()
    simulation.send("unsent")
    simulation.links.close()
    simulation.send("late")
    simulation.run()
    assert [error_of(result).maybe_processed for result in simulation.results] == [True, False, False]
    assert peer.end._has_ended
    simulation.advance(1000)
    assert len(simulation.peers) == 1


def test_a_callback_may_close_the_link_and_send_more(simulation: Simulation) -> None:
    peer = simulation.connect()
    order: list[str] = []

    def first(response: Any, error: Exception | None) -> None:
        order.append("first")
        simulation.send("from the callback")
        simulation.link.close()

    simulation.link.send(FindCoordinatorRequest(), 4, first)
    simulation.send("second")
    simulation.run()
    for header, _ in peer.requests():
        peer.respond(header, FindCoordinatorResponse())
    simulation.run()
    assert order == ["first"]
    assert [error_of(result).maybe_processed for result in simulation.results] == [True, False]


def test_a_link_follows_its_peer_to_another_address(simulation: Simulation) -> None:
    peer = simulation.connect()
    other: list[ScriptedPeer] = []
    simulation.network.listen(Address("peer", 9999), lambda end: other.append(ScriptedPeer(end)))
    simulation.link.move(PEER)
    assert simulation.link.is_connected
    simulation.link.move(Address("peer", 9999))
    assert peer.end._has_ended
    simulation.send()
    simulation.run()
    other[0].negotiate()


def test_no_request_is_lost_or_completed_twice_whatever_fails() -> None:
    """Random faults; each request is completed exactly once (`Simulation.send` checks that), and none hangs."""
    for seed in range(60):
        rng = Random(seed)
        simulation = Simulation(
            LinkSettings(backoff_ms=10, max_backoff_ms=40, setup_timeout_ms=200, max_in_flight=3), capacity=300
        )
        simulation.listen()
        for _ in range(120):
            match rng.randrange(8):
                case 0 | 1 | 2:
                    simulation.send("x" * rng.randrange(200), timeout_ms=rng.choice([None, 20, 300]))
                case 3:
                    if simulation.peers:
                        rng.choice(simulation.peers).end.reset()
                case 4:
                    simulation.network.cut(PEER)
                case 5:
                    simulation.network.heal(PEER)
                case _:
                    simulation.advance(rng.randrange(2, 60))
            _serve(simulation, rng)
        simulation.network.heal(PEER)
        for _ in range(100):
            simulation.advance(20)
            _serve(simulation, rng)
        assert None not in simulation.results, seed
        assert simulation.link.waiting == 0


def _serve(simulation: Simulation, rng: Random) -> None:
    simulation.run()
    for peer in simulation.peers[-1:]:
        try:
            for header, request in peer.requests():
                is_first = isinstance(request, ApiVersionsRequest)
                peer.respond(header, versions_of() if is_first else FindCoordinatorResponse())
        except (OSError, BlockingIOError):
            pass  # the connection was reset, or the link does not read
    simulation.run()


# -- frames ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("piece", [1, 7, 64, 100_000])
def test_frames_of_any_size_are_assembled_from_any_pieces(piece: int) -> None:
    rng = Random(piece)
    sizes = (0, 1, 5, 63, 64, 65, 200, 1000, 3, 70_000 if piece > 1 else 500)
    frames = [rng.randbytes(size) for size in (*sizes, *reversed(sizes))]
    data = b"".join(struct.pack(">i", len(frame)) + frame for frame in frames)
    reader = FrameReader(memoryview(bytearray(64)), 100_000)
    found: list[bytearray] = []
    at = 0
    while at < len(data):
        with reader.space() as space:
            count = min(len(space), piece, len(data) - at)
            space[:count] = data[at : at + count]
        at += count
        found += reader.received(count)
    assert found == frames


def test_the_memory_of_a_frame_grows_with_the_received_bytes() -> None:
    reader = FrameReader(memoryview(bytearray(64)), 1 << 30)
    with reader.space() as space:
        space[:4] = struct.pack(">i", 1 << 29)
    assert list(reader.received(4)) == []
    for _ in range(10):
        with reader.space() as space:
            count = len(space)
        assert list(reader.received(count)) == []
    assert len(reader._frame) <= 64 << 10
    with reader.space() as space:
        assert len(space) <= 64 << 10


def test_the_memory_of_a_frame_is_not_copied_if_the_peer_has_sent_one_of_this_length() -> None:
    reader = FrameReader(memoryview(bytearray(64)), 1 << 20)
    for sent in range(2):
        with reader.space() as space:
            space[:10] = struct.pack(">i", 5000) + b"first."
        assert list(reader.received(10)) == []
        with reader.space() as space:
            assert len(space) == (64 if sent == 0 else 4994)
            space[:64] = b"x" * 64
        found = list(reader.received(64))
        while not found:
            with reader.space() as space:
                count = len(space)
                space[:] = b"y" * count
            found = list(reader.received(min(count, 5000 - reader._filled)))
        assert bytes(found[0]) == b"first." + b"x" * 64 + b"y" * 4930


def test_a_frame_above_the_limit_is_an_error() -> None:
    reader = FrameReader(memoryview(bytearray(64)), 10)
    with reader.space() as space:
        space[:4] = struct.pack(">i", 11)
    with pytest.raises(PeerError, match="11 bytes; the limit is 10"):
        list(reader.received(4))


# -- real peers --------------------------------------------------------------------------------------------------------


class TcpNode:
    """Links of an event loop, over TCP."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.timers = TimerWheel(loop)
        self.background = Background(loop)
        self.links = Links.over_tcp(
            loop, readiness_of(loop), turns_of(loop), self.timers, self.background, EndOfIteration(loop.call_soon),
            Random(1),
        )  # fmt: skip

    async def call(self, link: Link, request: Any, versions: Versions | int, timeout_ms: float = 60_000) -> Any:
        future = asyncio.get_running_loop().create_future()

        def done(response: Any, error: Exception | None) -> None:
            if error is None:
                future.set_result(response)
            else:
                future.set_exception(error)

        link.send(request, versions, done, timeout_ms=timeout_ms)
        return await future

    async def close(self) -> None:
        self.links.close()
        self.timers.close()
        await self.background.close()


def on_tcp(test: Callable[[TcpNode], Any]) -> None:
    async def main() -> None:
        node = TcpNode()
        try:
            await test(node)
        finally:
            await node.close()

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(main())


def _address(bootstrap_servers: str) -> Address:
    host, _, port = bootstrap_servers.rpartition(":")
    return Address(host, int(port))


async def _talk_to(node: TcpNode, address: Address) -> None:
    """Some requests to a server, several in flight."""
    link = node.links.open(address, "test")
    topic = CreatableTopic(name="links", num_partitions=3, replication_factor=1)
    created = await node.call(link, CreateTopicsRequest(topics=[topic], timeout_ms=30_000), Versions(5, 7))
    assert [each.error_code for each in created.topics] == [0]
    calls = [node.call(link, MetadataRequest(topics=None), Versions(1, 13)) for _ in range(50)]
    for response in await asyncio.gather(*calls):
        assert isinstance(response, MetadataResponse)
        assert [broker.port for broker in response.brokers] == [address.port]
    with pytest.raises(KafkaError, match="UNSUPPORTED_VERSION"):
        await node.call(link, MetadataRequest(topics=None), Versions(99, 99))
    assert link.peer is not None
    assert link.peer.versions[ApiKey.METADATA][1] == 13


def test_talks_to_moldau_by_name_and_by_address(server: RunningServer) -> None:
    address = _address(server.bootstrap_servers)

    async def test(node: TcpNode) -> None:
        await _talk_to(node, address)
        by_name = node.links.open(Address("localhost", address.port), "test")
        response = await node.call(by_name, MetadataRequest(topics=[]), Versions(4, 13))
        assert response.cluster_id

    on_tcp(test)


def test_reconnects_after_a_restart_of_the_peer(server: RunningServer) -> None:
    async def test(node: TcpNode) -> None:
        link = node.links.open(_address(server.bootstrap_servers), "test")
        await node.call(link, MetadataRequest(topics=[]), 9)
        await asyncio.get_running_loop().run_in_executor(None, server.stop)
        with pytest.raises(LinkError):
            await node.call(link, MetadataRequest(topics=[]), 9)
        server.config["listeners"] = f"PLAINTEXT://{link.address}"
        await asyncio.get_running_loop().run_in_executor(None, server.start)
        await wait_until_async(lambda: not link.is_pausing, pause=0)
        await node.call(link, MetadataRequest(topics=[]), 9)

    on_tcp(test)


@pytest.mark.slow
def test_talks_to_apache_kafka() -> None:
    with ApacheKafka() as kafka:

        async def test(node: TcpNode) -> None:
            await _talk_to(node, _address(kafka.bootstrap_servers))

        on_tcp(test)


@pytest.fixture
def unused_port() -> Iterator[int]:
    """A port that is bound, so that no other process uses it, but on which nothing listens."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        yield sock.getsockname()[1]


def test_a_port_without_a_listener_refuses(unused_port: int) -> None:
    async def test(node: TcpNode) -> None:
        for host in ("127.0.0.1", "localhost"):
            with pytest.raises(LinkError, match="refused"):
                await node.call(node.links.open(Address(host, unused_port), "test"), MetadataRequest(), 9)

    on_tcp(test)


@pytest.mark.parametrize("host", ["no-such-host.invalid", "x" * 300, "a..b"])
def test_a_name_without_an_address_is_a_failure_of_the_connection(host: str) -> None:
    async def test(node: TcpNode) -> None:
        with pytest.raises(LinkError, match="cannot connect"):
            await node.call(node.links.open(Address(host, 9092), "test"), MetadataRequest(), 9)

    on_tcp(test)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_an_attempt_can_be_canceled_at_any_time(unused_port: int, host: str) -> None:
    async def test(node: TcpNode) -> None:
        link = node.links.open(Address(host, unused_port), "test")
        results: list[Exception | None] = []
        link.send(MetadataRequest(), 9, lambda response, error: results.append(error))
        await asyncio.sleep(0)
        link.close()
        await asyncio.sleep(0)
        assert len(results) == 1
        assert isinstance(results[0], LinkError)

    on_tcp(test)


def test_a_connection_to_itself_is_recognized() -> None:
    with socket.socket() as sock, socket.socket() as listening, socket.socket() as other:
        sock.bind(("127.0.0.1", 0))
        sock.connect(sock.getsockname())
        assert is_connected_to_itself(sock)
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        other.connect(listening.getsockname())
        assert not is_connected_to_itself(other)

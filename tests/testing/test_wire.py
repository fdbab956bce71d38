"""Single requests: the given bytes are sent, and the received bytes are returned."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator

import pytest

from moldau.protocol.codec import decode_at, encode
from moldau.protocol.errors import ErrorCode, KafkaError, MalformedMessage
from moldau.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from moldau.protocol.messages.headers import RequestHeader, ResponseHeader
from moldau.protocol.messages.metadata import MetadataRequest, MetadataResponse
from moldau.protocol.schema import Response
from moldau.testing.wire import WireClient


class Peer:
    """The other end of the connection, played by the test, which supplies every response."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.stream = connection.makefile("rb")

    def receive(self, header_version: int) -> tuple[RequestHeader, bytes]:
        """The header of the next request, and the bytes of its body."""
        frame = self.receive_frame()
        header, offset = decode_at(RequestHeader, frame, header_version, 0)
        return header, frame[offset:]

    def receive_frame(self) -> bytes:
        return self.stream.read(int.from_bytes(self.stream.read(4), "big"))

    def answer(
        self, correlation_id: int, response: Response, version: int, header_version: int, more: bytes = b""
    ) -> None:
        header = encode(ResponseHeader(correlation_id=correlation_id), header_version)
        self.answer_bytes(header + encode(response, version) + more)

    def answer_bytes(self, payload: bytes) -> None:
        self.connection.sendall(len(payload).to_bytes(4, "big") + payload)


@pytest.fixture
def pair() -> Iterator[tuple[WireClient, Peer]]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        host, port = listener.getsockname()
        with WireClient(f"{host}:{port}", client_id="me") as wire:
            connection, _ = listener.accept()
            peer = Peer(connection)
            with connection, peer.stream:
                yield wire, peer


METADATA = MetadataResponse(cluster_id="the one", controller_id=3)


def test_a_request_carries_its_header(pair: tuple[WireClient, Peer]) -> None:
    wire, peer = pair
    request = MetadataRequest(topics=None)

    first = wire.send(request, 12)
    second = wire.send(request, 8)

    for correlation_id, version, header_version in ((first, 12, 2), (second, 8, 1)):
        header, body = peer.receive(header_version)
        assert (header.request_api_key, header.request_api_version) == (3, version)
        assert (header.correlation_id, header.client_id) == (correlation_id, "me")
        assert body == encode(request, version)
    assert first != second


def test_responses_are_decoded_in_the_order_of_the_requests(pair: tuple[WireClient, Peer]) -> None:
    wire, peer = pair
    versions = ApiVersionsResponse(api_keys=[ApiVersion(api_key=3, min_version=0, max_version=13)])
    ids = [wire.send(MetadataRequest(topics=None), 12), wire.send(ApiVersionsRequest(), 3)]
    peer.answer(ids[0], METADATA, 12, 1)
    peer.answer(ids[1], versions, 3, 0)

    assert wire.receive() == METADATA
    assert wire.receive() == versions


@pytest.mark.parametrize(
    ("advertised", "chosen"),
    [(13, 13), (99, 13), (7, 7)],
)
def test_the_version_is_the_highest_that_both_sides_know(
    pair: tuple[WireClient, Peer], advertised: int, chosen: int
) -> None:
    wire, peer = pair
    advertises(peer, wire, advertised)

    assert wire.highest_version(MetadataRequest()) == chosen
    # Requested once: a second request would wait forever.
    assert wire.highest_version(MetadataRequest()) == chosen


def test_an_api_that_the_server_does_not_have_is_an_error(pair: tuple[WireClient, Peer]) -> None:
    wire, peer = pair
    peer.answer(0, ApiVersionsResponse(), 0, 0)

    with pytest.raises(KafkaError, match="Metadata") as refusal:
        wire.call(MetadataRequest())

    assert refusal.value.code == ErrorCode.UNSUPPORTED_VERSION


def advertises(peer: Peer, wire: WireClient, max_version: int) -> None:
    """Send the response to the first request of this connection before the request arrives."""
    api = ApiVersion(api_key=MetadataRequest.API_KEY, min_version=0, max_version=max_version)
    peer.answer(0, ApiVersionsResponse(api_keys=[api]), 0, 0)


@pytest.mark.parametrize(
    ("spoil", "error"),
    [
        (lambda peer: peer.answer(7, METADATA, 12, 1), ConnectionError),
        (lambda peer: peer.answer(0, METADATA, 12, 1, more=b"\0"), ConnectionError),
        (lambda peer: peer.answer_bytes(b"\0\0\0\0\0" + b"\xff" * 20), MalformedMessage),
        (lambda peer: peer.connection.sendall(b"\0\0\0\x10half"), TimeoutError),
    ],
    ids=["another request's answer", "more bytes than the answer", "no answer at all", "half an answer"],
)
def test_an_invalid_response_is_an_error(
    pair: tuple[WireClient, Peer], spoil: Callable[[Peer], None], error: type[Exception]
) -> None:
    wire, peer = pair
    wire._socket.settimeout(0.2)
    wire.send(MetadataRequest(topics=None), 12)
    spoil(peer)

    with pytest.raises(error):
        wire.receive()


def test_the_end_of_the_connection_is_an_error(pair: tuple[WireClient, Peer]) -> None:
    wire, peer = pair
    peer.connection.sendall(b"\0\0\0\x10half")
    peer.connection.shutdown(socket.SHUT_WR)

    with pytest.raises(ConnectionError, match="4 of 16 bytes"):
        wire.receive_frame()


def test_any_bytes_can_be_sent(pair: tuple[WireClient, Peer]) -> None:
    wire, peer = pair
    wire.send_frame(b"abc")
    wire.send_bytes(b"\0\0\0\x02de")

    assert peer.receive_frame() == b"abc"
    assert peer.receive_frame() == b"de"


def test_a_closed_connection_and_data_are_distinguished(pair: tuple[WireClient, Peer]) -> None:
    wire, peer = pair
    peer.connection.sendall(b"x")
    assert not wire.closed_by_server()
    peer.connection.shutdown(socket.SHUT_WR)
    assert wire.closed_by_server()

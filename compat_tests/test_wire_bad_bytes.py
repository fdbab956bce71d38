"""Bytes that are not a valid request: the connection is closed, and all others are served.

Each test ends by asking the same server something ordinary over another connection.
"""

import os
import random
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from moldau.protocol.api import ApiKey
from moldau.protocol.messages.api_versions import ApiVersionsRequest
from moldau.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from moldau.protocol.records import build_batch
from moldau.testing import topic_requests as w
from moldau.testing.topic_requests import Topic
from moldau.testing.wire import WireClient


@pytest.fixture
def wire(bootstrap_servers: str) -> Iterator[WireClient]:
    """A connection to spoil; afterwards the server must serve another."""
    with WireClient(bootstrap_servers) as client:
        yield client
    with WireClient(bootstrap_servers) as other:
        assert other.call(ApiVersionsRequest(), 0).error_code == 0


@pytest.fixture
def topic(bootstrap_servers: str, topic_name: Callable[[], str]) -> Topic:
    return w.create_topic(bootstrap_servers, topic_name())


def test_random_bytes(bootstrap_servers: str) -> None:
    """For any bytes, the connection is closed or waits for more; the server continues."""
    chance = random.Random(20_260_917)
    for _ in range(60):
        with WireClient(bootstrap_servers) as wire:
            wire.send_frame(chance.randbytes(chance.randrange(1, 200)))
            assert wire.closed_by_server()
    with WireClient(bootstrap_servers) as other:
        assert other.call(ApiVersionsRequest(), 0).error_code == 0


def test_a_real_request_cut_short(bootstrap_servers: str, topic: Topic) -> None:
    """Every prefix of a request, in a frame as long as the prefix."""
    whole = w.payload(MetadataRequest(topics=[MetadataRequestTopic(name=topic.name)]), 9)
    for length in range(len(whole)):
        with WireClient(bootstrap_servers) as wire:
            wire.send_frame(whole[:length])
            assert wire.closed_by_server(), length


def test_bytes_after_a_request_are_ignored(wire: WireClient) -> None:
    """Java's parsers read the fields that they know, and ignore the rest of the frame."""
    wire.send_frame(w.payload(MetadataRequest(topics=[]), 9, correlation_id=3) + b"more")
    assert wire.receive_frame()[:4] == (3).to_bytes(4, "big")


def test_a_request_in_single_bytes(wire: WireClient) -> None:
    body = w.payload(MetadataRequest(topics=[]), 9, correlation_id=8)
    for byte in len(body).to_bytes(4, "big") + body:
        wire.send_bytes(bytes([byte]))
    assert wire.receive_frame()[:4] == (8).to_bytes(4, "big")


def test_half_a_request_and_an_end(bootstrap_servers: str) -> None:
    for half in (b"\x00", b"\x00\x00\x00", b"\x00\x00\x00\x20", b"\x00\x00\x00\x20\x00\x03\x00\x09"):
        with WireClient(bootstrap_servers) as wire:
            wire.send_bytes(half)
    with WireClient(bootstrap_servers) as other:
        assert other.call(ApiVersionsRequest(), 0).error_code == 0


@pytest.mark.parametrize("length", [2**31 - 1, 104_857_601, -1, -(2**31)])
def test_impossible_lengths(wire: WireClient, length: int) -> None:
    """Over socket.request.max.bytes, which is 104,857,600, or below zero."""
    wire.send_bytes(struct.pack(">i", length))
    assert wire.closed_by_server()


def test_an_empty_frame(wire: WireClient) -> None:
    wire.send_frame(b"")
    assert wire.closed_by_server()


@pytest.mark.parametrize("count", [2**31 - 1, 1_000_000, 1_000])
def test_arrays_that_promise_too_much(wire: WireClient, count: int) -> None:
    """A count larger than what follows: no memory may be taken for it."""
    wire.send_frame(w.header(ApiKey.METADATA, 8) + struct.pack(">i", count) + b"\x00\x01t")
    assert wire.closed_by_server()


@pytest.mark.parametrize("count", [-1, -2, -(2**31)])
def test_negative_arrays(wire: WireClient, count: int) -> None:
    """The topics of ListOffsets, which may not be null."""
    wire.send_frame(w.header(ApiKey.LIST_OFFSETS, 5) + struct.pack(">ib", -1, 0) + struct.pack(">i", count))
    assert wire.closed_by_server()


@pytest.mark.parametrize("count", [-1, -2, -(2**31)])
def test_any_negative_length_of_a_nullable_array_is_null(wire: WireClient, topic: Topic, count: int) -> None:
    """Metadata 8: null topics are all topics."""
    wire.send_frame(w.header(ApiKey.METADATA, 8, correlation_id=4) + struct.pack(">i", count) + b"\x00\x00\x00")
    frame = wire.receive_frame()
    assert topic.name.encode() in frame


@pytest.mark.parametrize("length", [b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\xff\xff", b"\x80", b"\x7f"])
def test_compact_strings_that_promise_too_much(wire: WireClient, length: bytes) -> None:
    """Metadata 9: an array of one topic, whose name claims to be longer than the frame, or whose length never ends."""
    wire.send_frame(w.header(ApiKey.METADATA, 9) + b"\x02" + length)
    assert wire.closed_by_server()


def test_null_where_none_may_be(wire: WireClient) -> None:
    """Metadata 8: a topic's name may be null since version 10 only."""
    wire.send_frame(w.header(ApiKey.METADATA, 8) + b"\x00\x00\x00\x01" + b"\xff\xff" + b"\x00\x00\x00")
    assert wire.closed_by_server()


def test_http(wire: WireClient) -> None:
    wire.send_bytes(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert wire.closed_by_server()


def test_tls_to_a_plaintext_port(wire: WireClient) -> None:
    wire.send_bytes(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(600))
    assert wire.closed_by_server()


def test_requests_before_a_broken_one_are_answered(wire: WireClient) -> None:
    wire.send(MetadataRequest(topics=[]), 9)
    wire.send(ApiVersionsRequest(), 0)
    wire.send_frame(b"\xff" * 20)
    assert wire.receive().topics == []
    assert wire.receive().error_code == 0
    assert wire.closed_by_server()


def test_a_client_that_closes_its_half(wire: WireClient, bootstrap_servers: str) -> None:
    """Answers that are on their way may come or not; the server must let go of the connection."""
    import socket

    host, _, port = bootstrap_servers.rpartition(":")
    with socket.create_connection((host, int(port)), 20) as raw:
        body = w.payload(ApiVersionsRequest(), 0)
        raw.sendall(len(body).to_bytes(4, "big") + body)
        raw.shutdown(socket.SHUT_WR)
        while raw.recv(65_536):
            pass


def test_a_reader_that_never_reads(wire: WireClient, topic: Topic, bootstrap_servers: str) -> None:
    """Requests whose responses are not read: the server stops reading that connection, and serves all others.

    The answers together are far more than the buffers of both sides; the writer is stopped by its own full buffer,
    which is how it can see that the server has stopped reading.
    """
    with WireClient(bootstrap_servers) as producer:
        for _ in range(4):
            assert w.produce(producer, topic.name, build_batch(w.records(os.urandom(900_000)))).error_code == 0
    body = w.payload(w.fetch_request(topic.name, {0: 0}), 12)
    fetch = len(body).to_bytes(4, "big") + body
    with WireClient(bootstrap_servers, timeout_s=0.5) as deaf:
        assert _sent_until_full(deaf, fetch) > 0
        assert wire.call(ApiVersionsRequest(), 0).error_code == 0


def _sent_until_full(wire: WireClient, data: bytes) -> int:
    """How often ``data`` could be sent before the server stopped reading."""
    for count in range(1_000_000):
        try:
            wire.send_bytes(data)
        except TimeoutError:
            return count
    raise AssertionError("the server reads without end what it cannot answer")


def test_many_connections_that_say_nothing_or_little(wire: WireClient, bootstrap_servers: str) -> None:
    """Some of them declare 20 MB and send 1 kB of it: Apache Kafka allocates the memory immediately, so they must be
    few."""
    with ExitStack() as connections:
        for number in range(300):
            silent = connections.enter_context(WireClient(bootstrap_servers))
            if number % 60 == 0:
                silent.send_bytes(struct.pack(">i", 20_000_000) + bytes(1_000))
        for _ in range(10):
            assert wire.call(ApiVersionsRequest(), 0).error_code == 0


def test_a_large_request_in_pieces(wire: WireClient, topic: Topic) -> None:
    """Far beyond any socket buffer, below socket.request.max.bytes; refused by the topic's limit, not by the
    connection."""
    batch = build_batch(w.records(bytes(20_000_000)))
    assert w.produce(wire, topic.name, batch).error_code == 10  # MESSAGE_TOO_LARGE
    assert wire.call(ApiVersionsRequest(), 0).error_code == 0

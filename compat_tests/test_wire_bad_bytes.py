"""Clients that never read, and hundreds of connections: all others are served.

The conformance cases `protocol.malformed`, `protocol.frame` and `protocol.connections` have the rest. These are not
cases because a server without such limits would run out of memory, and disturb all programs on its machine.
"""

import os
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from moldau.protocol.messages.api_versions import ApiVersionsRequest
from moldau.protocol.records import build_batch
from moldau.testing import topic_requests as w
from moldau.testing.topic_requests import Topic
from moldau.testing.wire import WireClient


@pytest.fixture
def wire(bootstrap_servers: str) -> Iterator[WireClient]:
    """A connection that a test may break; afterwards the server must serve another one."""
    with WireClient(bootstrap_servers) as client:
        yield client
    with WireClient(bootstrap_servers) as other:
        assert other.call(ApiVersionsRequest(), 0).error_code == 0


@pytest.fixture
def topic(bootstrap_servers: str, topic_name: Callable[[], str]) -> Topic:
    return w.create_topic(bootstrap_servers, topic_name())


def test_a_reader_that_never_reads(wire: WireClient, topic: Topic, bootstrap_servers: str) -> None:
    """Requests whose responses are not read: the server stops reading that connection, and serves all others.

    The responses are much larger than the buffers of both sides. The writer notices that the server has stopped reading
    when its own buffer is full.
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
    """The number of times that ``data`` could be sent before the server stopped reading."""
    for count in range(1_000_000):
        try:
            wire.send_bytes(data)
        except TimeoutError:
            return count
    raise AssertionError("the server reads requests without end although it cannot send the responses")


def test_many_connections_that_send_no_or_few_bytes(wire: WireClient, bootstrap_servers: str) -> None:
    """Some of them declare 20 MB and send 1 kB of it: Apache Kafka allocates the memory immediately, so they must be
    few."""
    with ExitStack() as connections:
        for number in range(300):
            silent = connections.enter_context(WireClient(bootstrap_servers))
            if number % 60 == 0:
                silent.send_bytes(struct.pack(">i", 20_000_000) + bytes(1_000))
        for _ in range(10):
            assert wire.call(ApiVersionsRequest(), 0).error_code == 0

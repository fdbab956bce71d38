"""Fetches that wait for records: their memory use, and their response to an error."""

from __future__ import annotations

import tracemalloc

import pytest

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.fetch import FetchRequest
from moldau.server.handlers import fetch as handler
from moldau.server.network.connection import MAX_IN_FLIGHT
from moldau.testing.builders import FETCH_VERSION, batch, fetch_request, produce

from .conftest import RunningServer

CONNECTIONS = 10
FEW = 5  # per connection; one-time allocations have happened after these
BYTES_FOR_EACH = 1400


def waiting_fetch(partition: int) -> FetchRequest:
    return fetch_request("t", partition=partition, max_wait_ms=600_000, min_bytes=10**9)


def test_a_waiting_fetch_uses_little_memory(server: RunningServer) -> None:
    """A thousand connections may have a hundred waiting fetches each."""
    server.create_topic("t", partitions=10)

    def waiting() -> int:
        return sum(len(connection._in_flight) for connection in server.network.connections)

    wires = [server.wire() for _ in range(CONNECTIONS)]
    try:
        for wire in wires:
            for number in range(FEW):
                wire.send(waiting_fetch(number), FETCH_VERSION)
        server.wait_until(lambda: waiting() == CONNECTIONS * FEW)
        many = MAX_IN_FLIGHT - 1 - FEW
        tracemalloc.start()
        try:
            for wire in wires:
                for number in range(many):
                    wire.send(waiting_fetch(number % 10), FETCH_VERSION)
            server.wait_until(lambda: waiting() == CONNECTIONS * (FEW + many))
            held, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    finally:
        for wire in wires:
            wire.close()
    assert held / (CONNECTIONS * many) < BYTES_FOR_EACH


def test_a_waiting_fetch_that_fails_names_its_partitions(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It responds like a fetch that fails immediately: versions without a top-level error need the partitions."""
    server.create_topic("t", partitions=2)
    version = 6
    with server.wire() as wire, server.wire() as producer:
        request = fetch_request("t", partition=1, max_wait_ms=600_000, min_bytes=1)
        wire.send(request, version)
        server.wait_until(lambda: any(len(each.waiters) for each in server.broker.replicas))
        monkeypatch.setattr(handler._Read, "respond", lambda read: 1 // 0)
        produce(producer, "t", batch(b"x"), partition=1)
        answer = wire.receive()
    (topic,) = answer.responses
    (partition,) = topic.partitions
    assert (topic.topic, partition.partition_index) == ("t", 1)
    assert partition.error_code == ErrorCode.UNKNOWN_SERVER_ERROR

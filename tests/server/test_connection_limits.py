"""Limits on connections: of the server, of a listener, and of an address."""

from __future__ import annotations

from typing import Any

import pytest

from moldau.config.checks import check_broker_config
from moldau.config.definition import ConfigError
from moldau.config.sources import load
from moldau.protocol.messages.api_versions import ApiVersionsRequest
from moldau.server.network.connection_limits import ConnectionLimits, Limits
from moldau.testing.config_requests import alter
from moldau.testing.wire import WireClient

from .conftest import RunningServer

CLUSTER_DEFAULT = (4, "")
"""The type and the name of the resource of all brokers."""


def is_served(wire: WireClient) -> bool:
    return int(wire.call(ApiVersionsRequest(), 0).error_code) == 0


def test_connections_above_the_limit_of_an_address_are_closed(
    make_server: Any, caplog: pytest.LogCaptureFixture
) -> None:
    server: RunningServer = make_server(config={"max.connections.per.ip": "2"})
    with server.wire() as first, server.wire() as second:
        assert is_served(first)
        assert is_served(second)
        with server.wire() as third:
            assert third.closed_by_server()
        assert is_served(first)
        first.close()
        server.wait_until(lambda: len(server.network.connections) == 1)
        with server.wire() as third:
            assert is_served(third)
    assert "Closing a connection from 127.0.0.1 (PLAINTEXT): it has 2 ('max.connections.per.ip')" in caplog.text


def test_an_override_of_an_address(make_server: Any) -> None:
    server: RunningServer = make_server(
        config={"max.connections.per.ip": "1", "max.connections.per.ip.overrides": "10.0.0.1:5, 127.0.0.1:2"}
    )
    with server.wire() as first, server.wire() as second, server.wire() as third:
        assert is_served(first)
        assert is_served(second)
        assert third.closed_by_server()


def test_with_the_maximum_connections_wait(make_server: Any) -> None:
    server: RunningServer = make_server(config={"max.connections": "1"})
    first = server.wire()
    assert is_served(first)
    with server.wire() as second:
        second.send(ApiVersionsRequest(), 0)
        server.wait_until(lambda: server.network.listeners[0]._waits)
        assert len(server.network.connections) == 1
        first.close()
        assert second.receive().error_code == 0


def test_the_limit_of_a_listener_is_its_own(make_server: Any) -> None:
    server: RunningServer = make_server(
        config={
            "listeners": "A://127.0.0.1:0,B://127.0.0.1:0",
            "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT",
            "listener.name.a.max.connections": "1",
        }
    )
    a, b = (f"{host}:{port}" for host, port in server.server.addresses)
    with WireClient(a) as first, WireClient(a) as second, WireClient(b) as other, WireClient(b) as another:
        assert is_served(first)
        second.send(ApiVersionsRequest(), 0)
        assert is_served(other)
        assert is_served(another)
        assert len(server.network.connections) == 3
        first.close()
        assert second.receive().error_code == 0


def test_the_limit_of_the_server_does_not_concern_other_brokers(make_server: Any) -> None:
    server: RunningServer = make_server(
        config={
            "listeners": "CLIENTS://127.0.0.1:0,BROKERS://127.0.0.1:0",
            "listener.security.protocol.map": "CLIENTS:PLAINTEXT,BROKERS:PLAINTEXT",
            "inter.broker.listener.name": "BROKERS",
            "max.connections": "1",
        }
    )
    clients, brokers = (f"{host}:{port}" for host, port in server.server.addresses)
    with WireClient(clients) as first, WireClient(clients) as second:
        assert is_served(first)
        second.send(ApiVersionsRequest(), 0)
        server.wait_until(lambda: server.network.listeners[0]._waits)
        with WireClient(brokers) as broker, WireClient(brokers) as another:
            assert is_served(broker)
            assert is_served(another)
            first.close()  # the brokers' connections count: there is no room for a client yet
            server.wait_until(lambda: len(server.network.connections) == 2)
            assert server.network.listeners[0]._waits
        assert second.receive().error_code == 0


@pytest.mark.parametrize(("protected", "waits"), [("BROKERS", False), (None, True)])
def test_the_rate_of_the_server_does_not_concern_other_brokers(protected: str | None, waits: bool) -> None:
    counts = ConnectionLimits()
    counts.apply(Limits(rate=1, protected=protected))
    for _ in range(100):
        counts.accepted("CLIENTS", 1000)
    assert counts.wait_ms("CLIENTS", 1000) > 0
    assert (counts.wait_ms("BROKERS", 1000) > 0) is waits


def test_the_limit_can_be_changed(make_server: Any) -> None:
    server: RunningServer = make_server(config={"max.connections": "1"})
    with server.wire() as first, server.wire() as second:
        assert is_served(first)
        second.send(ApiVersionsRequest(), 0)
        server.wait_until(lambda: server.network.listeners[0]._waits)
        alter(first, *CLUSTER_DEFAULT, ("max.connections", 0, "2"))
        assert second.receive().error_code == 0


@pytest.mark.parametrize(
    "name", ["max.connection.creation.rate", "listener.name.plaintext.max.connection.creation.rate"]
)
def test_new_connections_above_the_rate_wait(make_server: Any, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    server: RunningServer = make_server(config={name: "1"})
    counts = server.network.counts
    waits: list[int] = []
    wait_ms = counts.wait_ms

    def noted(listener: str, now_ms: int) -> int:
        waits.append(wait_ms(listener, now_ms))
        return waits[-1]

    def flood() -> None:
        for _ in range(100_000):
            counts.accepted("PLAINTEXT", int(server.loop.time() * 1000))

    monkeypatch.setattr(counts, "wait_ms", noted)
    with server.wire() as first:
        assert is_served(first)
        assert set(waits) == {0}  # a burst passes
        server.call(flood)
        with server.wire() as second:
            second.send(ApiVersionsRequest(), 0)
            server.wait_until(lambda: waits[-1] == 1000)
            assert len(server.network.connections) == 1
            server.call(lambda: counts.apply(Limits()))
            assert second.receive().error_code == 0


def test_numbers_return_to_zero(make_server: Any) -> None:
    server: RunningServer = make_server(config={"max.connections": "2"})
    for _ in range(20):
        with server.wire() as wire:
            assert is_served(wire)
    server.wait_until(lambda: not server.network.connections)
    assert server.network.counts._total == 0
    assert server.network.counts._of_addresses == {}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ("max.connections.per.ip.overrides=10.0.0.1", "is not ADDRESS:LIMIT"),
        ("max.connections.per.ip.overrides=localhost:5", "is not an IP address"),
        ("listener.name.plaintext.max.connections=many", "listener.name.plaintext.max.connections"),
    ],
)
def test_invalid_limits_prevent_startup(settings: str, words: str) -> None:
    config = load(overrides=[settings, "listeners=PLAINTEXT://127.0.0.1:0", "log.dirs=/nowhere"])
    with pytest.raises(ConfigError, match=words):
        check_broker_config(config)

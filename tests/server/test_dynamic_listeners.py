"""Listeners that are added and removed by dynamic settings."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.api_versions import ApiVersionsRequest
from moldau.protocol.messages.metadata import MetadataRequest
from moldau.testing.authority import Authority
from moldau.testing.clients.java import JavaClient
from moldau.testing.wire import WireClient

from .test_listener_reload import Reloading, jaas, login

MAP = "listener.security.protocol.map"
A = "PLAINTEXT://127.0.0.1:0"
ADDED = {"listeners": f"{A},B://127.0.0.1:0", MAP: "PLAINTEXT:PLAINTEXT,B:PLAINTEXT,C:SASL_PLAINTEXT,D:SSL"}
REMOVED = {"listeners": A}


class Listening(Reloading):
    """A server that is configured over the listener PLAINTEXT."""

    def address(self, name: str) -> str | None:
        """The address of a listener; None if it does not exist."""
        listeners = self.running.call(lambda: list(self.running.network.listeners))
        return next((f"{each.host}:{each.port}" for each in listeners if each.name == name), None)

    def names(self) -> list[str]:
        return list(self.running.call(lambda: [each.name for each in self.running.network.listeners]))


@pytest.fixture
def listening(make_server: Any, tmp_path: Path) -> Listening:
    return Listening(make_server(), tmp_path)


def brokers(address: str) -> list[str]:
    """The addresses of the brokers for the clients of a listener."""
    with WireClient(address) as wire:
        return [f"{each.host}:{each.port}" for each in wire.call(MetadataRequest(topics=None), 9).brokers]


def is_refused(address: str) -> bool:
    host, port = address.split(":")
    try:
        socket.create_connection((host, int(port)), timeout=60).close()
    except ConnectionRefusedError:
        return True
    return False


def test_a_listener_is_added_and_removed(listening: Listening) -> None:
    assert listening.alter(ADDED, validate_only=True) == (0, "")
    assert listening.names() == ["PLAINTEXT"]
    assert listening.alter(ADDED) == (0, "")
    address = listening.address("B")
    assert address is not None
    assert brokers(address) == [address]
    listening.running.restart()
    assert listening.names() == ["PLAINTEXT", "B"]
    address = listening.address("B")
    assert address is not None
    with WireClient(address) as wire:
        assert wire.call(ApiVersionsRequest(), 0).error_code == 0
        assert listening.alter(REMOVED) == (0, "")
        assert wire.closed_by_server()
    assert is_refused(address)
    assert listening.alter({"listeners": None, MAP: None}) == (0, "")
    listening.running.restart()
    assert listening.names() == ["PLAINTEXT"]


def test_the_connection_that_removes_its_listener_gets_its_response(listening: Listening) -> None:
    assert listening.alter(ADDED) == (0, "")
    first, address = listening.running.wire, listening.address("B")
    assert address is not None
    listening.running.wire = lambda: WireClient(address)
    try:
        assert listening.alter(REMOVED) == (0, "")
    finally:
        listening.running.wire = first
    assert listening.names() == ["PLAINTEXT"]


def test_a_listener_with_security_and_its_settings(make_server: Any, tmp_path: Path) -> None:
    server = Listening(make_server(), tmp_path)
    listeners = {"listeners": f"{A},C://127.0.0.1:0,D://127.0.0.1:0", MAP: ADDED[MAP]}
    store = Authority().server().write(tmp_path / "server.pem")
    settings = listeners | {
        "listener.name.c.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.c.plain.sasl.jaas.config": jaas(alice="secret"),
        "listener.name.d.ssl.keystore.location": str(store),
    }
    code, message = server.alter(settings | {"listener.name.d.ssl.keystore.location": "/missing"})
    assert (code, "/missing cannot be read" in message) == (ErrorCode.INVALID_REQUEST, True)
    code, message = server.alter({k: v for k, v in settings.items() if "jaas" not in k})
    assert (code, "listener.name.c.plain.sasl.jaas.config: it is missing" in message) == (42, True)
    assert server.names() == ["PLAINTEXT"]
    assert server.alter(settings) == (0, "")
    address = server.address("C")
    assert address is not None
    assert login(address, "alice", "secret") == 0
    assert server.names() == ["PLAINTEXT", "C", "D"]
    # Its settings change like those of the others.
    assert server.alter({"listener.name.c.plain.sasl.jaas.config": jaas(alice="new")}) == (0, "")
    assert login(address, "alice", "secret") == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert login(address, "alice", "new") == 0
    # Those of a listener that was removed are not read any more.
    assert server.alter({"listeners": f"{A},C://127.0.0.1:0"}) == (0, "")
    assert server.alter({"listener.name.d.ssl.keystore.location": "/missing"}) == (0, "")
    server.running.restart()
    assert server.names() == ["PLAINTEXT", "C"]
    address = server.address("C")
    assert address is not None
    assert login(address, "alice", "new") == 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"listeners": "B://127.0.0.1:0", MAP: ADDED[MAP]}, "so PLAINTEXT cannot be removed"),
        ({"listeners": f"{A},E://127.0.0.1:0"}, "listener.security.protocol.map has no protocol for E"),
        ({"listeners": f"{A},B://127.0.0.1:0", MAP: "PLAINTEXT:PLAINTEXT,B:TLS"}, "is not one of PLAINTEXT, SSL"),
        ({MAP: "PLAINTEXT:SASL_PLAINTEXT"}, "Security protocol cannot be updated for existing listener PLAINTEXT"),
        ({"listeners": f"{A},PLAINTEXT://127.0.0.2:0"}, "the names of the listeners must be unique"),
        ({"listeners": f"{A},SSL://192.0.2.1:0"}, "ssl.keystore.location: it is missing"),
        ({"listeners": f"{A},B://192.0.2.1:0", MAP: ADDED[MAP]}, "Cannot listen on B://192.0.2.1:0"),
    ],
)
def test_listeners_that_are_refused(listening: Listening, changes: Mapping[str, str], message: str) -> None:
    code, text = listening.alter(changes)
    assert (code, message in text) == (ErrorCode.INVALID_REQUEST, True), text
    assert listening.names() == ["PLAINTEXT"]


def test_an_address_in_use(listening: Listening, caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        code, text = listening.alter({"listeners": f"{A},B://127.0.0.1:{port}", MAP: ADDED[MAP]})
        assert (code, "Address already in use" in text) == (ErrorCode.INVALID_REQUEST, True)
    assert listening.alter(ADDED) == (0, "")
    address = listening.address("B")
    assert address is not None
    # A listener with the address of one that is removed in the same request.
    moved = {"listeners": f"{A},X://{address}", MAP: "PLAINTEXT:PLAINTEXT,X:PLAINTEXT"}
    assert listening.alter(moved) == (0, "")
    assert brokers(address) == [address]
    listening.running.stop()
    with socket.create_server(("127.0.0.1", int(address.rpartition(":")[2]))):
        listening.running.start()
        assert listening.names() == ["PLAINTEXT"]
    assert f"Cannot add the listener X://{address}" in caplog.text


@pytest.mark.slow
def test_kafka_configs_and_kafka_python(listening: Listening, tmp_path: Path) -> None:
    from kafka import KafkaConsumer, KafkaProducer

    properties = tmp_path / "listener.properties"
    settings = {
        "listeners": f"{A},C://127.0.0.1:0",
        MAP: ADDED[MAP],
        "listener.name.c.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.c.plain.sasl.jaas.config": jaas(alice="secret"),
    }
    properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    java = JavaClient(listening.running.bootstrap_servers)

    def configs(*arguments: str) -> None:
        result = java.tool(
            "kafka.admin.ConfigCommand",
            ["--bootstrap-server", listening.running.bootstrap_servers, "--entity-type", "brokers",
             "--entity-name", str(listening.running.broker.node_id), "--alter", *arguments],
        )  # fmt: skip
        assert result.exit_code == 0, result

    configs("--add-config-file", str(properties))
    options = {
        "bootstrap_servers": listening.address("C"),
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": "alice",
        "sasl_plain_password": "secret",
    }
    producer = KafkaProducer(**options)
    producer.send("t", b"one").get(60)
    producer.close()
    consumer = KafkaConsumer("t", auto_offset_reset="earliest", group_id="g", **options)
    assert next(consumer).value == b"one"
    consumer.close()
    configs("--delete-config", "listeners")
    assert listening.names() == ["PLAINTEXT"]

"""Clients over TLS: kafka-python, librdkafka, and Apache Kafka's console tools, with a client certificate each.

Moldau only: these are the configurations of clients, and Apache Kafka accepts them by definition.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from moldau.compat_tests.conftest import OpenClient
from moldau.protocol.messages.api_versions import ApiVersionsRequest
from moldau.testing import Broker
from moldau.testing.authority import Authority
from moldau.testing.clients.java import JavaClient
from moldau.testing.waiting import wait_until
from moldau.testing.wire import WireClient


class Secure(NamedTuple):
    """A broker with a listener that requires certificates, and the files of a client."""

    broker: Broker
    address: str
    authority: Path
    client: Path
    properties: Path


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secure]:
    folder = tmp_path_factory.mktemp("tls")
    authority = Authority()
    authority_file = folder / "authority.pem"
    authority_file.write_text(authority.certificate)
    server = folder / "server.p12"
    server.write_bytes(authority.server().pkcs12("outer"))
    client = authority.issue("alice").write(folder / "client.pem")
    properties = folder / "client.properties"
    properties.write_text(
        "security.protocol=SSL\n"
        f"ssl.truststore.type=PEM\nssl.truststore.location={authority_file}\n"
        f"ssl.keystore.type=PEM\nssl.keystore.location={client}\n"
    )
    config = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0",
        "ssl.keystore.location": str(server),
        "ssl.keystore.password": "outer",
        "ssl.truststore.location": str(authority_file),
        "ssl.client.auth": "required",
    }
    with Broker(config=config) as broker:
        yield Secure(broker, broker.address_of("SSL"), authority_file, client, properties)
        assert "Traceback" not in broker.log()


def test_kafka_python(secure: Secure) -> None:
    from kafka import KafkaConsumer, KafkaProducer

    options = {
        "bootstrap_servers": secure.address,
        "security_protocol": "SSL",
        "ssl_cafile": str(secure.authority),
        "ssl_certfile": str(secure.client),
        "ssl_keyfile": str(secure.client),
    }
    producer = KafkaProducer(**options)
    for number in range(100):
        producer.send("kafka-python", b"%d" % number)
    producer.flush()
    producer.close()
    consumer = KafkaConsumer("kafka-python", auto_offset_reset="earliest", group_id="g", **options)
    received = [next(consumer).value for _ in range(100)]
    consumer.close()
    assert received == [b"%d" % number for number in range(100)]


def test_librdkafka(secure: Secure) -> None:
    from confluent_kafka import Consumer, Producer

    options = {
        "bootstrap.servers": secure.address,
        "security.protocol": "ssl",
        "ssl.ca.location": str(secure.authority),
        "ssl.certificate.location": str(secure.client),
        "ssl.key.location": str(secure.client),
    }
    producer = Producer(options)
    values = [b"%d" % number * 10_000 for number in range(100)]
    for value in values:
        producer.produce("librdkafka", value)
    assert producer.flush(60) == 0
    consumer = Consumer({**options, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["librdkafka"])
    received: list[bytes] = []
    while len(received) < len(values):
        for message in consumer.consume(len(values), 60):
            assert message.error() is None, message.error()
            received.append(message.value())
    consumer.close()
    assert received == values


def test_console_tools(secure: Secure, client_of: OpenClient) -> None:
    java = client_of("java")
    assert isinstance(java, JavaClient)
    produced = java.tool(
        "org.apache.kafka.tools.ConsoleProducer",
        ["--bootstrap-server", secure.address, "--topic", "java", "--command-config", str(secure.properties)],
        "one\ntwo\nthree\n",
    )
    assert produced.exit_code == 0, produced
    consumed = java.tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        ["--bootstrap-server", secure.address, "--topic", "java", "--command-config", str(secure.properties),
         "--from-beginning", "--max-messages", "3", "--timeout-ms", "60000"],
    )  # fmt: skip
    assert consumed.stdout.split() == ["one", "two", "three"], consumed
    listed = java.tool(
        "org.apache.kafka.tools.TopicCommand",
        ["--bootstrap-server", secure.address, "--list", "--command-config", str(secure.properties)],
    )
    assert "java" in listed.stdout.split()


def test_a_client_without_a_certificate_is_refused(secure: Secure) -> None:
    context = ssl.create_default_context(cafile=str(secure.authority))
    with WireClient(secure.address) as wire, pytest.raises((ssl.SSLError, ConnectionError)):
        request_over_tls(wire, context)
    reason = "the client has no certificate, and ssl.client.auth is required"
    wait_until(lambda: reason in secure.broker.log())  # the client may receive the alert first


def request_over_tls(wire: WireClient, context: ssl.SSLContext) -> None:
    wire._socket = context.wrap_socket(wire._socket, server_hostname="127.0.0.1")
    wire.call(ApiVersionsRequest(), 0)

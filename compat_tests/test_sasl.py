"""Clients over SASL_SSL: kafka-python, librdkafka and Java, with PLAIN and SCRAM; kafka-configs and kafka-acls.

Moldau only: these are the configurations of clients, and Apache Kafka accepts them by definition.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from moldau.compat_tests.conftest import OpenClient
from moldau.testing import Broker
from moldau.testing.authority import Authority
from moldau.testing.clients.java import JavaClient

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
MODULES = {"PLAIN": PLAIN, "SCRAM-SHA-256": SCRAM, "SCRAM-SHA-512": SCRAM}
PASSWORD = "p,a=s s"


class Secure(NamedTuple):
    """A broker with a listener for SASL_SSL, and the certificate of its authority."""

    broker: Broker
    address: str
    authority: Path
    folder: Path

    def properties(self, mechanism: str, password: str = PASSWORD) -> str:
        """The path of a Java client's settings."""
        path = self.folder / f"{mechanism}.properties"
        path.write_text(
            "security.protocol=SASL_SSL\n"
            f"ssl.truststore.type=PEM\nssl.truststore.location={self.authority}\n"
            f"sasl.mechanism={mechanism}\n"
            f'sasl.jaas.config={MODULES[mechanism]} required username="alice" password="{password}";\n'
        )
        return str(path)


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory, client_of: OpenClient) -> Iterator[Secure]:
    folder = tmp_path_factory.mktemp("sasl")
    authority = Authority()
    authority_file = folder / "authority.pem"
    authority_file.write_text(authority.certificate)
    name = "listener.name.sasl_ssl"
    config = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SASL_SSL://127.0.0.1:0",
        "ssl.keystore.location": str(authority.server().write(folder / "server.pem")),
        f"{name}.sasl.enabled.mechanisms": ",".join(MODULES),
        f"{name}.plain.sasl.jaas.config": f'{PLAIN} required user_alice="{PASSWORD}" user_bob="{PASSWORD}";',
        f"{name}.scram-sha-256.sasl.jaas.config": f"{SCRAM} required;",
        f"{name}.scram-sha-512.sasl.jaas.config": f"{SCRAM} required;",
        f"{name}.connections.max.reauth.ms": "3600000",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS;User:alice",
    }
    java = client_of("java")
    assert isinstance(java, JavaClient)
    with Broker(config=config) as broker:
        # One credential per request: a request may contain a user once.
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            result = java.tool(
                "kafka.admin.ConfigCommand",
                ["--bootstrap-server", broker.bootstrap_servers, "--alter", "--entity-type", "users",
                 "--entity-name", "alice", "--add-config", f"{mechanism}=[iterations=4096,password={PASSWORD}]"],
            )  # fmt: skip
            assert result.exit_code == 0, result
        yield Secure(broker, broker.address_of("SASL_SSL"), authority_file, folder)
        assert "Traceback" not in broker.log()
        assert PASSWORD not in broker.log()


@pytest.mark.parametrize("mechanism", MODULES)
def test_kafka_python(secure: Secure, mechanism: str) -> None:
    from kafka import KafkaConsumer, KafkaProducer

    options = {
        "bootstrap_servers": secure.address,
        "security_protocol": "SASL_SSL",
        "ssl_cafile": str(secure.authority),
        "sasl_mechanism": mechanism,
        "sasl_plain_username": "alice",
        "sasl_plain_password": PASSWORD,
    }
    topic = f"kafka-python-{mechanism}"
    producer = KafkaProducer(**options)
    producer.send(topic, b"one").get(60)
    producer.close()
    consumer = KafkaConsumer(topic, auto_offset_reset="earliest", group_id="g", **options)
    assert next(consumer).value == b"one"
    consumer.close()


@pytest.mark.parametrize("mechanism", MODULES)
def test_librdkafka(secure: Secure, mechanism: str) -> None:
    from confluent_kafka import Consumer, Producer

    options = {
        "bootstrap.servers": secure.address,
        "security.protocol": "sasl_ssl",
        "ssl.ca.location": str(secure.authority),
        "sasl.mechanism": mechanism,
        "sasl.username": "alice",
        "sasl.password": PASSWORD,
    }
    topic = f"librdkafka-{mechanism}"
    producer = Producer(options)
    producer.produce(topic, b"one")
    assert producer.flush(60) == 0
    consumer = Consumer({**options, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    message = consumer.poll(60)
    consumer.close()
    assert message is not None
    assert (message.error(), message.value()) == (None, b"one")


@pytest.mark.parametrize("mechanism", MODULES)
def test_console_tools(secure: Secure, client_of: OpenClient, mechanism: str) -> None:
    java = client_of("java")
    assert isinstance(java, JavaClient)
    common = ["--bootstrap-server", secure.address, "--topic", f"java-{mechanism}"]
    settings = ["--command-config", secure.properties(mechanism)]
    produced = java.tool("org.apache.kafka.tools.ConsoleProducer", [*common, *settings], "one\n")
    assert produced.exit_code == 0, produced
    consumed = java.tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        [*common, *settings, "--from-beginning", "--max-messages", "1", "--timeout-ms", "60000"],
    )
    assert consumed.stdout.split() == ["one"], consumed


def test_a_wrong_password_is_reported(secure: Secure, client_of: OpenClient) -> None:
    java = client_of("java")
    assert isinstance(java, JavaClient)
    for mechanism, text in (("PLAIN", "Invalid username or password"), ("SCRAM-SHA-256", "invalid credentials")):
        settings = ["--command-config", secure.properties(mechanism, "wrong")]
        listed = java.tool(
            "org.apache.kafka.tools.TopicCommand", ["--bootstrap-server", secure.address, "--list", *settings]
        )
        assert listed.exit_code == 1
        assert text in listed.stdout + listed.stderr


def test_users_are_described_by_kafka_configs(secure: Secure, client_of: OpenClient) -> None:
    java = client_of("java")
    assert isinstance(java, JavaClient)
    described = java.tool(
        "kafka.admin.ConfigCommand",
        ["--bootstrap-server", secure.broker.bootstrap_servers, "--describe", "--entity-type", "users"],
    )
    assert "SCRAM credential configs for user-principal 'alice' are" in described.stdout
    assert "SCRAM-SHA-256=iterations=4096" in described.stdout


def test_acls_of_kafka_acls(secure: Secure, client_of: OpenClient) -> None:
    from confluent_kafka import Consumer, Producer

    java = client_of("java")
    assert isinstance(java, JavaClient)

    def acls(*arguments: str) -> str:
        result = java.tool(
            "org.apache.kafka.tools.AclCommand",
            ["--bootstrap-server", secure.address, "--command-config", secure.properties("PLAIN"), *arguments],
        )
        assert result.exit_code == 0, result
        return result.stdout

    options = {
        "bootstrap.servers": secure.address,
        "security.protocol": "sasl_ssl",
        "ssl.ca.location": str(secure.authority),
        "sasl.mechanism": "PLAIN",
        "sasl.username": "bob",
        "sasl.password": PASSWORD,
    }

    def produce() -> list[str | None]:
        errors: list[str | None] = []
        producer = Producer(options)
        producer.produce("acls-a", b"x", on_delivery=lambda error, _: errors.append(error and error.name()))
        assert producer.flush(60) == 0
        return errors

    assert produce() == ["TOPIC_AUTHORIZATION_FAILED"]
    acls(
        "--add",
        "--allow-principal",
        "User:bob",
        "--producer",
        "--topic",
        "acls-",
        "--resource-pattern-type",
        "prefixed",
    )
    acls("--add", "--allow-principal", "User:bob", "--consumer", "--topic", "acls-a", "--group", "acls")
    assert produce() == [None]
    consumer = Consumer({**options, "group.id": "acls", "auto.offset.reset": "earliest"})
    consumer.subscribe(["acls-a"])
    message = consumer.poll(60)
    assert message is not None
    assert (message.error(), message.value()) == (None, b"x")
    consumer.close()
    listed = acls("--list", "--topic", "acls-a", "--resource-pattern-type", "match")
    assert "ResourcePattern(resourceType=TOPIC, name=acls-, patternType=PREFIXED)" in listed
    assert "(principal=User:bob, host=*, operation=WRITE, permissionType=ALLOW)" in listed
    acls("--remove", "--force", "--topic", "acls-", "--resource-pattern-type", "prefixed")
    assert produce() == ["TOPIC_AUTHORIZATION_FAILED"]
    other = Consumer({**options, "group.id": "other", "auto.offset.reset": "earliest"})
    other.subscribe(["acls-a"])
    message = other.poll(60)
    assert message is not None
    assert message.error().name() == "GROUP_AUTHORIZATION_FAILED"
    other.close()

"""`Broker` with TLS, users and ACLs, and the settings of its clients."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from moldau.protocol.messages.metadata import MetadataRequest
from moldau.testing import Broker, BrokerError
from moldau.testing.wire import WireClient

PASSWORD = 'p,a=s s"w\\ord'
ACLS = [
    "alice all topic orders",
    "alice read group a- --prefix",
    "bob describe topic orders",
    "bob write topic orders --deny",
]


@pytest.fixture(scope="module")
def secured() -> Iterator[Broker]:
    with Broker(tls=True, users={"alice": PASSWORD, "bob": "secret"}, acls=ACLS) as broker:
        yield broker
        assert "Traceback" not in broker.log()
        assert PASSWORD not in broker.log()


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_kafka_python(secured: Broker, mechanism: str) -> None:
    from kafka import KafkaConsumer, KafkaProducer

    settings = secured.client_config("alice", client="kafka-python", mechanism=mechanism)
    producer = KafkaProducer(**settings)
    producer.send("orders", mechanism.encode()).get(60)
    producer.close()
    consumer = KafkaConsumer("orders", group_id=f"a-{mechanism}", auto_offset_reset="earliest", **settings)
    assert any(record.value == mechanism.encode() for record in consumer)
    consumer.close()


def test_confluent_kafka_and_acls(secured: Broker) -> None:
    from confluent_kafka import Producer

    def produce(user: str) -> list[str | None]:
        errors: list[str | None] = []
        producer = Producer(secured.client_config(user))
        producer.produce("orders", b"x", on_delivery=lambda error, _: errors.append(error and error.name()))
        assert producer.flush(60) == 0
        return errors

    assert produce("alice") == [None]
    assert produce("bob") == ["TOPIC_AUTHORIZATION_FAILED"]


@pytest.mark.slow  # the quick tests of other Pythons have no aiokafka
def test_aiokafka(secured: Broker) -> None:
    from aiokafka import AIOKafkaProducer

    async def send() -> int:
        producer = AIOKafkaProducer(**secured.client_config("alice", client="aiokafka"))
        await producer.start()
        try:
            return int((await producer.send_and_wait("orders", b"x")).offset)
        finally:
            await producer.stop()

    assert asyncio.run(send()) >= 0


def test_the_settings_of_java_and_spark(secured: Broker) -> None:
    java = secured.client_config("alice", client="java", mechanism="PLAIN")
    assert java == {
        "bootstrap.servers": secured.bootstrap_servers,
        "security.protocol": "SASL_SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(secured.ca_file),
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
        'username="alice" password="p,a=s s\\"w\\\\ord";',
    }
    spark = secured.client_config("alice", client="spark", mechanism="PLAIN")
    assert spark == {f"kafka.{name}": value for name, value in java.items()}


@pytest.mark.parametrize(
    ("user", "arguments"),
    [("carol", {}), (None, {}), ("alice", {"client": "perl"}), ("alice", {"mechanism": "GSSAPI"})],
)
def test_unknown_users_clients_and_mechanisms(secured: Broker, user: str | None, arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="is not one of"):
        secured.client_config(user, **arguments)


@pytest.mark.parametrize("thread", [False, True])
def test_a_restart_keeps_the_address(thread: bool) -> None:
    with Broker(users={"alice": "secret"}, thread=thread) as broker:
        address = broker.bootstrap_servers
        broker.restart()
        assert broker.bootstrap_servers == address
        settings = broker.client_config("alice", client="kafka-python")
        assert settings["security_protocol"] == "SASL_PLAINTEXT"
        broker.reset()  # the broker's own requests need no user
        with WireClient(address) as wire, pytest.raises(ConnectionError):
            wire.call(MetadataRequest(topics=None), 12)


def test_tls_without_users() -> None:
    from confluent_kafka.admin import AdminClient

    with Broker(tls=True, thread=True) as broker:
        settings = broker.client_config()
        assert settings["security.protocol"] == "ssl"
        assert AdminClient(settings).list_topics(timeout=60).brokers
        with pytest.raises(ValueError, match="the broker has none"):
            broker.client_config("alice")


def test_arguments_that_exclude_each_other() -> None:
    with pytest.raises(ValueError, match="acls need users"):
        Broker(acls=["alice all topic orders"])
    with pytest.raises(ValueError, match="listeners"):
        Broker(tls=True, config={"listeners": "PLAINTEXT://127.0.0.1:0"})
    for acl in ("alice all", "alice fly topic t", "alice read tropic t", "alice read topic t u", "a read topic t --x"):
        with pytest.raises(ValueError, match="is no ACL"):
            Broker(users={"alice": "secret"}, acls=[acl])
    with Broker(thread=True) as broker:
        with pytest.raises(BrokerError, match="no security"):
            broker.client_config("alice")
        with pytest.raises(BrokerError, match="no TLS"):
            broker.ca_file  # noqa: B018

"""`Cluster` with TLS, users and ACLs: clients connect to all of its brokers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from moldau.protocol.messages.metadata import MetadataRequest
from moldau.testing import BrokerError, Cluster
from moldau.testing.wire import WireClient

PASSWORD = "secret"
PARTITIONS = 3


@pytest.fixture(scope="module")
def secured() -> Iterator[Cluster]:
    acls = ["alice all topic orders", "alice read group a", "bob describe topic orders"]
    with Cluster(brokers=3, tls=True, users={"alice": PASSWORD, "bob": PASSWORD}, acls=acls) as cluster:
        cluster.create_topic("orders", [1, 2, 3])
        yield cluster
        assert "Traceback" not in cluster.log()


def test_confluent_kafka_produces_to_every_broker(secured: Cluster) -> None:
    from confluent_kafka import Producer

    def produce(user: str) -> list[str | None]:
        errors: list[str | None] = []
        producer = Producer(secured.client_config(user))
        for partition in range(PARTITIONS):
            producer.produce(
                "orders", user, partition=partition, on_delivery=lambda error, _: errors.append(error and error.name())
            )
        assert producer.flush(60) == 0
        return errors

    assert produce("alice") == [None] * PARTITIONS
    assert produce("bob") == ["TOPIC_AUTHORIZATION_FAILED"] * PARTITIONS


def test_kafka_python_consumes_after_a_restart_of_a_broker(secured: Cluster) -> None:
    from kafka import KafkaConsumer, KafkaProducer

    settings = secured.client_config("alice", client="kafka-python", mechanism="SCRAM-SHA-512")
    producer = KafkaProducer(**settings)
    for partition in range(PARTITIONS):
        producer.send("orders", b"from kafka-python", partition=partition).get(60)
    producer.close()
    secured.stop(3)
    secured.start(3)
    secured.await_leader("orders", 2, 3)
    consumer = KafkaConsumer("orders", group_id="a", auto_offset_reset="earliest", **settings)
    missing = set(range(PARTITIONS))
    for record in consumer:
        if record.value == b"from kafka-python":
            missing.discard(record.partition)
        if not missing:
            break
    consumer.close()


def test_clients_need_a_user(secured: Cluster) -> None:
    assert secured.client_config("alice")["bootstrap.servers"] == secured.bootstrap_servers
    for address in secured.bootstrap_servers.split(","):
        with WireClient(address) as wire, pytest.raises(ConnectionError):
            wire.call(MetadataRequest(topics=None), 12)


def test_arguments_that_exclude_each_other() -> None:
    with pytest.raises(ValueError, match="listeners"):
        Cluster(tls=True, config={"listeners": "PLAINTEXT://127.0.0.1:0"})
    with pytest.raises(ValueError, match="acls need users"):
        Cluster(acls=["alice all topic orders"])
    cluster = Cluster(brokers=1)
    try:
        with pytest.raises(BrokerError, match="no security"):
            cluster.client_config("alice")
        with pytest.raises(BrokerError, match="no TLS"):
            cluster.ca_file  # noqa: B018
    finally:
        cluster.close()

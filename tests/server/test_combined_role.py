"""A broker of Apache Kafka whose controller is in a broker of Moldau (`process.roles=broker,controller`).

Moldau is node 1, Apache Kafka's broker is node 2. Clients use both: each broker leads one of two partitions, and
coordinates some of the groups and transactions.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Position
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.structs import OffsetAndMetadata

from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest
from moldau.testing import Cluster
from moldau.testing.controllers import ApacheBroker
from moldau.testing.joined_brokers import cluster_id_of
from moldau.testing.waiting import wait_until
from moldau.testing.wire import WireClient

pytestmark = pytest.mark.slow

MOLDAU = 1
APACHE = 2
GROUP, TRANSACTION = 0, 1
TIMEOUT_S = 180
_numbers = itertools.count()
# Whichever broker requests the creation of an internal topic, each of them gets partitions of it.
CONFIG = {"offsets.topic.num.partitions": "4", "transaction.state.log.num.partitions": "4"}


class Mixed:
    """Both brokers, and the addresses of both."""

    def __init__(self, moldau: Cluster, apache: ApacheBroker) -> None:
        self.moldau = moldau
        self.apache = apache
        self.addresses = [moldau.bootstrap_servers, apache.bootstrap_servers]

    def create(self) -> str:
        """A topic with a partition on each broker."""
        name = f"topic-{next(_numbers)}"
        self.moldau.create_topic(name, [MOLDAU, APACHE])
        return name

    def key(self, kind: int, coordinator: int) -> str:
        """A group, or transactional id, that this broker coordinates. The internal topic is created on demand."""
        for number in itertools.count():
            name = f"name-{next(_numbers)}-{number}"
            if self._coordinator(kind, name) == coordinator:
                return name
        raise AssertionError

    def _coordinator(self, kind: int, name: str) -> int:
        with WireClient(self.addresses[0]) as wire:

            def found() -> int | None:
                request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[name])
                (coordinator,) = wire.call(request).coordinators
                return None if coordinator.error_code else coordinator.node_id

            return wait_until(found)


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mixed]:
    with Cluster(brokers=1, config=CONFIG) as moldau:
        broker = moldau.broker(MOLDAU)
        _, controller = broker.addresses
        folder = tmp_path_factory.mktemp("apache")
        with ApacheBroker(controller, cluster_id_of(broker.data_dir), folder, APACHE, **CONFIG) as apache:
            yield Mixed(moldau, apache)


def produce_with_kafka_python(mixed: Mixed, topic: str, *values: str) -> None:
    producer = KafkaProducer(bootstrap_servers=mixed.addresses, acks="all")
    sent = [producer.send(topic, value.encode(), partition=partition) for value in values for partition in (0, 1)]
    for each in sent:
        each.get(timeout=TIMEOUT_S)
    producer.close()


def produce_with_confluent(mixed: Mixed, topic: str, *values: str) -> None:
    producer = Producer({"bootstrap.servers": ",".join(mixed.addresses), "enable.idempotence": True})
    errors: list[Any] = []
    for value in values:
        for partition in (0, 1):
            producer.produce(topic, value, partition=partition, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(TIMEOUT_S) == 0
    assert errors == [None] * 2 * len(values)


def read_with_kafka_python(mixed: Mixed, topic: str, count: int) -> list[list[str]]:
    """This many committed records of each partition."""
    consumer = KafkaConsumer(
        bootstrap_servers=mixed.addresses, auto_offset_reset="earliest", isolation_level="read_committed"
    )
    consumer.assign([TopicPartition(topic, 0), TopicPartition(topic, 1)])
    found: list[list[str]] = [[], []]
    for record in itertools.islice(consumer, 2 * count):
        found[record.partition].append(record.value.decode())
    consumer.close()
    return found


def read_with_confluent(mixed: Mixed, topic: str, count: int, group: str = "unused") -> list[list[str]]:
    consumer = Consumer(
        {
            "bootstrap.servers": ",".join(mixed.addresses),
            "group.id": group,
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    consumer.assign([Position(topic, 0, 0), Position(topic, 1, 0)])
    found: list[list[str]] = [[], []]

    def complete() -> bool:
        for message in consumer.consume(2 * count, timeout=1):
            assert message.error() is None, message.error()
            found[message.partition()].append(message.value().decode())
        return sum(map(len, found)) >= 2 * count

    wait_until(complete)
    consumer.close()
    return found


@pytest.mark.parametrize("produce", [produce_with_kafka_python, produce_with_confluent])
def test_records_of_both_brokers_are_read(mixed: Mixed, produce: Any) -> None:
    topic = mixed.create()
    produce(mixed, topic, "a", "b", "c")
    expected = [["a", "b", "c"]] * 2
    assert read_with_kafka_python(mixed, topic, 3) == expected
    assert read_with_confluent(mixed, topic, 3) == expected


@pytest.mark.parametrize("coordinator", [MOLDAU, APACHE])
def test_a_group_reads_from_both_brokers_and_commits(mixed: Mixed, coordinator: int) -> None:
    topic, group = mixed.create(), mixed.key(GROUP, coordinator)
    produce_with_kafka_python(mixed, topic, "a", "b")
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=mixed.addresses,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    records = list(itertools.islice(consumer, 4))
    assert sorted((record.partition, record.value) for record in records) == [
        (0, b"a"),
        (0, b"b"),
        (1, b"a"),
        (1, b"b"),
    ]
    consumer.commit()
    consumer.close()
    other = Consumer({"bootstrap.servers": ",".join(mixed.addresses), "group.id": group})
    committed = other.committed([Position(topic, 0), Position(topic, 1)], timeout=TIMEOUT_S)
    assert [each.offset for each in committed] == [2, 2]
    other.close()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("coordinator", [MOLDAU, APACHE])
def test_a_group_of_librdkafka_reads_from_both_brokers(mixed: Mixed, coordinator: int, protocol: str) -> None:
    topic, group = mixed.create(), mixed.key(GROUP, coordinator)
    produce_with_confluent(mixed, topic, "a", "b")
    config = {
        "bootstrap.servers": ",".join(mixed.addresses),
        "group.id": group,
        "group.protocol": protocol,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    consumer = Consumer(config)
    consumer.subscribe([topic])
    found: list[tuple[int, bytes]] = []

    def complete() -> bool:
        for message in consumer.consume(4, timeout=1):
            assert message.error() is None, message.error()
            found.append((message.partition(), message.value()))
        return len(found) >= 4

    wait_until(complete)
    assert sorted(found) == [(0, b"a"), (0, b"b"), (1, b"a"), (1, b"b")]
    assert all(each.error is None for each in consumer.commit(asynchronous=False))
    consumer.close()


@pytest.mark.parametrize("coordinator", [MOLDAU, APACHE])
def test_a_transaction_spans_both_brokers(mixed: Mixed, coordinator: int) -> None:
    """The coordinator of the group whose offsets are in the transaction is the other broker."""
    topic = mixed.create()
    group = mixed.key(GROUP, APACHE if coordinator == MOLDAU else MOLDAU)
    producer = Producer(
        {"bootstrap.servers": ",".join(mixed.addresses), "transactional.id": mixed.key(TRANSACTION, coordinator)}
    )
    consumer = Consumer({"bootstrap.servers": ",".join(mixed.addresses), "group.id": group})
    producer.init_transactions(TIMEOUT_S)
    for value, ends in (("a", True), ("b", False), ("c", True)):
        producer.begin_transaction()
        for partition in (0, 1):
            producer.produce(topic, value, partition=partition)
        offsets = [Position(topic, 0, ord(value)), Position(topic, 1, ord(value))]
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), TIMEOUT_S)
        if ends:
            producer.commit_transaction(TIMEOUT_S)
        else:
            producer.abort_transaction(TIMEOUT_S)
    assert read_with_kafka_python(mixed, topic, 2) == [["a", "c"]] * 2
    assert read_with_confluent(mixed, topic, 2) == [["a", "c"]] * 2
    committed = consumer.committed([Position(topic, 0), Position(topic, 1)], timeout=TIMEOUT_S)
    assert [each.offset for each in committed] == [ord("c")] * 2
    consumer.close()


@pytest.mark.parametrize("coordinator", [MOLDAU, APACHE])
def test_kafka_python_commits_a_transaction_on_both_brokers(mixed: Mixed, coordinator: int) -> None:
    topic, group = mixed.create(), mixed.key(GROUP, coordinator)
    producer = KafkaProducer(
        bootstrap_servers=mixed.addresses, transactional_id=mixed.key(TRANSACTION, coordinator), acks="all"
    )
    producer.init_transactions()
    for value, ends in ((b"a", True), (b"b", False), (b"c", True)):
        producer.begin_transaction()
        for partition in (0, 1):
            producer.send(topic, value, partition=partition)
        offset = OffsetAndMetadata(value[0], "", -1)
        producer.send_offsets_to_transaction({TopicPartition(topic, 0): offset}, group)
        if ends:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
    producer.close()
    assert read_with_confluent(mixed, topic, 2) == [["a", "c"]] * 2
    consumer = KafkaConsumer(bootstrap_servers=mixed.addresses, group_id=group)
    wait_until(lambda: consumer.committed(TopicPartition(topic, 0)) == ord("c"))
    consumer.close()

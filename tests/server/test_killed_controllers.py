"""Three controllers of Apache Kafka, of which the active one is killed again and again, under clients of a broker.

The controllers are static voters (kraft.version 0). The broker is Moldau's, and finds them by
`controller.quorum.voters`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from moldau.protocol.messages.describe_quorum import DescribeQuorumRequest, PartitionData, TopicData
from moldau.protocol.messages.init_producer_id import InitProducerIdRequest
from moldau.testing import Broker
from moldau.testing.apache_kafka import ApacheKafka, Quorum, free_ports, new_id
from moldau.testing.waiting import wait_until
from moldau.testing.wire import WireClient

from .test_joins_apache import format_directory

pytestmark = pytest.mark.full

ROUNDS = 6
NODE = 2
METADATA_LOG = TopicData(topic_name="__cluster_metadata", partitions=[PartitionData(partition_index=0)])


class ApacheController(ApacheKafka):
    """One of several controllers of Apache Kafka."""

    def __init__(self, node_id: int, voters: dict[int, str], cluster_id: str, parent: Path) -> None:
        super().__init__(
            {"process.roles": "controller", "node.id": str(node_id), "broker.session.timeout.ms": "9000"},
            quorum=Quorum.STATIC,
            parent=parent,
            cluster_id=cluster_id,
        )
        self._address = voters[node_id]
        self._voters = ",".join(f"{voter}@{address}" for voter, address in voters.items())

    def _write_properties(self, controller_port: int) -> None:
        super()._write_properties(controller_port)
        settings = dict(line.split("=", 1) for line in self.properties.read_text().splitlines())
        listeners = f"CONTROLLER://{self._address}"
        settings |= {
            "listeners": listeners,
            "advertised.listeners": listeners,
            "controller.quorum.voters": self._voters,
        }
        del settings["inter.broker.listener.name"]
        self.properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))


@pytest.fixture(scope="module")
def controllers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[int, ApacheController]]:
    voters = {100 + number: f"127.0.0.1:{port}" for number, port in enumerate(free_ports(3))}
    cluster_id, parent = new_id(), tmp_path_factory.mktemp("controllers")
    with ExitStack() as stack:
        made = {node_id: ApacheController(node_id, voters, cluster_id, parent) for node_id in voters}
        for controller in made.values():
            stack.callback(controller.close)
            controller.prepare()
        for started in [controller.launch() for controller in made.values()]:
            assert started.wait(90), "a controller did not start"
        yield made


@pytest.fixture(scope="module")
def broker(controllers: dict[int, ApacheController], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    first = controllers[100]
    directory = tmp_path_factory.mktemp("broker") / "data"
    format_directory(first, directory)
    settings = {
        "process.roles": "broker",
        "node.id": str(NODE),
        "controller.quorum.voters": first._voters,
        "broker.heartbeat.interval.ms": "500",
    }
    with Broker(config=settings, data_dir=directory, timeout_s=120) as started:
        yield started


class Writer:
    """An idempotent producer that sends consecutive numbers, in a thread, until it is stopped."""

    def __init__(self, address: str, topic: str) -> None:
        self._producer = Producer({"bootstrap.servers": address, "enable.idempotence": True, "linger.ms": 1})
        self._topic = topic
        self._stop = threading.Event()
        self.acknowledged: list[int] = []
        self.errors: list[KafkaError] = []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            self._producer.produce(self._topic, str(number).encode(), partition=0, on_delivery=self._delivered)
            number += 1
            self._producer.poll(0.002)
        self._producer.flush(60)

    def _delivered(self, error: KafkaError | None, message: Any) -> None:
        if error is not None:
            self.errors.append(error)
        else:
            self.acknowledged.append(int(message.value()))

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()


def active(wire: WireClient) -> int | None:
    """The active controller, which has answered this request itself."""
    response = wire.call(DescribeQuorumRequest(topics=[METADATA_LOG]))
    return None if response.error_code else response.topics[0].partitions[0].leader_id


def is_another_active(wire: WireClient, killed: int) -> bool:
    return active(wire) not in (None, killed)


def has_more(values: list[int], count: int) -> bool:
    return len(values) > count


def create(wire: WireClient, name: str) -> None:
    """Create a topic, as a client that retries: every error must be retriable."""

    def created() -> bool:
        topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
        response = wire.call(CreateTopicsRequest(topics=[topic], timeout_ms=5000))
        code = ErrorCode(response.topics[0].error_code)
        assert code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS) or code.retriable, response
        return not code.retriable

    wait_until(created)


def new_producer_id(wire: WireClient) -> int:
    def allocated() -> int | None:
        response = wire.call(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000))
        code = ErrorCode(response.error_code)
        assert not code or code.retriable, response
        return None if code else response.producer_id

    return wait_until(allocated)


def read(address: str, topic: str, count: int) -> list[int]:
    consumer = Consumer({"bootstrap.servers": address, "group.id": "unused", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    values: list[int] = []

    def enough() -> bool:
        for message in consumer.consume(10_000, timeout=1):
            assert message.error() is None, message.error()
            values.append(int(message.value()))
        return len(values) >= count

    wait_until(enough)
    consumer.close()
    return values


def test_clients_of_a_broker_survive_the_death_of_controllers(
    controllers: dict[int, ApacheController], broker: Broker
) -> None:
    address = broker.bootstrap_servers
    with WireClient(address) as wire:
        create(wire, "numbers")
        writer = Writer(address, "numbers")
        producer_ids = [new_producer_id(wire)]
        try:
            for number in range(ROUNDS):
                killed = wait_until(lambda: active(wire))
                acknowledged = len(writer.acknowledged)
                controllers[killed].kill()
                wait_until(partial(is_another_active, wire, killed))
                create(wire, f"topic-{number}")
                producer_ids.append(new_producer_id(wire))
                wait_until(partial(has_more, writer.acknowledged, acknowledged))
                assert controllers[killed].launch().wait(90)
        finally:
            writer.stop()
        assert len(set(producer_ids)) == ROUNDS + 1
        for number in range(ROUNDS):
            create(wire, f"topic-{number}")  # they exist
    assert not writer.errors
    assert writer.acknowledged == list(range(len(writer.acknowledged)))
    assert read(address, "numbers", len(writer.acknowledged)) == writer.acknowledged
    broker.restart()  # a controlled shutdown, with the last controller
    assert read(address, "numbers", len(writer.acknowledged)) == writer.acknowledged

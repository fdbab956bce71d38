"""Three controllers of Apache Kafka, of which the active one is killed again and again, under clients of a broker.

The controllers are static voters (kraft.version 0). The broker is Moldau's, and finds them by
`controller.quorum.voters`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from moldau.protocol.messages.init_producer_id import InitProducerIdRequest
from moldau.testing import Broker
from moldau.testing.apache_controllers import ApacheControllers
from moldau.testing.waiting import wait_until
from moldau.testing.wire import WireClient

pytestmark = pytest.mark.full

ROUNDS = 6
NODE = 2


@pytest.fixture(scope="module")
def controllers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheControllers]:
    with ApacheControllers(3, tmp_path_factory.mktemp("controllers")) as started:
        yield started


@pytest.fixture(scope="module")
def broker(controllers: ApacheControllers) -> Iterator[Broker]:
    with controllers.broker(NODE) as started:
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


def is_another_active(controllers: ApacheControllers, wire: WireClient, killed: int) -> bool:
    return controllers.active(wire) != killed


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


def test_clients_of_a_broker_survive_the_death_of_controllers(controllers: ApacheControllers, broker: Broker) -> None:
    address = broker.bootstrap_servers
    with WireClient(address) as wire:
        create(wire, "numbers")
        writer = Writer(address, "numbers")
        producer_ids = [new_producer_id(wire)]
        try:
            for number in range(ROUNDS):
                killed = controllers.active(wire)
                acknowledged = len(writer.acknowledged)
                controllers.kill(killed)
                wait_until(partial(is_another_active, controllers, wire, killed))
                create(wire, f"topic-{number}")
                producer_ids.append(new_producer_id(wire))
                wait_until(partial(has_more, writer.acknowledged, acknowledged))
                assert controllers.launch(killed).wait(90)
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

"""What counting costs: CPU time of the client's process per record, without and with counting.

    python -m moldau.spark_integration.audit.cost

CPU time is measured instead of elapsed time, because the machine may be busy, and for the whole process, so that the
threads of the clients and of the audit connection are included. The two variants alternate, and the minimum counts.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

from ...testing import Broker
from .book import Book, Rule
from .counting import Audit
from .page import Owner

RECORDS = 50_000
ROUNDS = 7
_VALUE = b"x" * 100

_Work = Callable[[str, str, Audit | None], None]


def main() -> None:
    """Measure, and print a table."""
    print(f"{'CPU of the client, us per record':40} {'alone':>8} {'counting':>8} {'more':>8}")
    print(f"{'the books alone':40} {'':>8} {'':>8} {_book_us():8.2f}")
    with Broker() as broker:
        address = broker.bootstrap_servers
        for topic in ("confluent", "python"):
            _create_topic(address, topic)
        for name, topic, work in (
            ("confluent-kafka producer", "confluent", _confluent_produce),
            ("confluent-kafka consumer, consume(500)", "confluent", _confluent_consume),
            ("confluent-kafka consumer, poll()", "confluent", _confluent_poll),
            ("kafka-python producer", "python", _python_produce),
            ("kafka-python consumer, poll()", "python", _python_poll),
            ("kafka-python consumer, iterated", "python", _python_iterate),
        ):
            alone, counting = _measure(address, topic, work)
            print(f"{name:40} {alone:8.2f} {counting:8.2f} {counting - alone:8.2f}")
            sys.stdout.flush()


def _book_us() -> float:
    best = float("inf")
    for _ in range(ROUNDS):
        book = Book(Owner("producer", "cost"), Rule(), 0)
        count = book.count
        began = time.process_time()
        for offset in range(RECORDS):
            count("orders", 3, offset, 1_767_614_400_000)
        best = min(best, time.process_time() - began)
    return best / RECORDS * 1e6


def _measure(address: str, topic: str, work: _Work) -> tuple[float, float]:
    best = [float("inf"), float("inf")]
    for _ in range(ROUNDS):
        for number, counts in enumerate((False, True)):
            audit = Audit(address) if counts else None
            began = time.process_time()
            work(address, topic, audit)
            best[number] = min(best[number], time.process_time() - began)
            if audit is not None:
                audit.close()
    return best[0] / RECORDS * 1e6, best[1] / RECORDS * 1e6


def _create_topic(address: str, topic: str) -> None:
    from kafka.admin import KafkaAdminClient, NewTopic

    admin = KafkaAdminClient(bootstrap_servers=address)
    admin.create_topics([NewTopic(name=topic, num_partitions=1, replication_factor=1)])
    admin.close()


def _confluent_produce(address: str, topic: str, audit: Audit | None) -> None:
    from confluent_kafka import Producer

    bare = Producer({"bootstrap.servers": address, "linger.ms": 5, "queue.buffering.max.messages": 2 * RECORDS})
    producer: Any = bare if audit is None else audit.producer(bare)
    for n in range(RECORDS):
        # A realistic application has a delivery callback.
        producer.produce(topic, value=_VALUE, on_delivery=_ignore if audit is None else None)
        if n % 1000 == 0:
            producer.poll(0)
    producer.flush()


def _ignore(_error: object, _message: object) -> None:
    """The cheapest delivery callback."""


def _confluent_consume(address: str, topic: str, audit: Audit | None) -> None:
    consumer = _confluent_consumer(address, topic, audit)
    left = RECORDS
    while left > 0:
        left -= len(consumer.consume(500, 1.0))
    consumer.close()


def _confluent_poll(address: str, topic: str, audit: Audit | None) -> None:
    consumer = _confluent_consumer(address, topic, audit)
    left = RECORDS
    while left > 0:
        left -= consumer.poll(1.0) is not None
    consumer.close()


def _confluent_consumer(address: str, topic: str, audit: Audit | None) -> Any:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": address, "group.id": "cost", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    return consumer if audit is None else audit.consumer(consumer, group="cost")


def _python_produce(address: str, topic: str, audit: Audit | None) -> None:
    from kafka import KafkaProducer

    producer: Any = KafkaProducer(bootstrap_servers=address, linger_ms=5)
    if audit is not None:
        producer = audit.producer(producer)
    for _ in range(RECORDS):
        producer.send(topic, _VALUE)
    producer.flush()
    producer.close()


def _python_poll(address: str, topic: str, audit: Audit | None) -> None:
    consumer = _python_consumer(address, topic, audit)
    left = RECORDS
    while left > 0:
        left -= sum(map(len, consumer.poll(timeout_ms=1000).values()))
    consumer.close()


def _python_iterate(address: str, topic: str, audit: Audit | None) -> None:
    consumer = _python_consumer(address, topic, audit)
    for _ in range(RECORDS):
        next(consumer)
    consumer.close()


def _python_consumer(address: str, topic: str, audit: Audit | None) -> Any:
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(bootstrap_servers=address, group_id=None, enable_auto_commit=False)
    consumer.assign([TopicPartition(topic, 0)])
    consumer.seek_to_beginning()
    return consumer if audit is None else audit.consumer(consumer, group="cost")


if __name__ == "__main__":
    main()

"""Readers for the tests of exactly-once writing: of committed records, and of all records in the log."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Found:
    """A record as returned to a reader."""

    partition: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def committed(bootstrap_servers: str, topic: str, partitions: int = 1) -> list[Found]:
    """All records that a read_committed reader sees, partition by partition."""
    return _read(bootstrap_servers, topic, partitions, "read_committed")


def everything(bootstrap_servers: str, topic: str, partitions: int = 1) -> list[Found]:
    """All records that were ever written, including those of aborted transactions."""
    return _read(bootstrap_servers, topic, partitions, "read_uncommitted")


def _read(bootstrap_servers: str, topic: str, partitions: int, isolation_level: str) -> list[Found]:
    from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "reading",
            "enable.auto.commit": False,
            "isolation.level": isolation_level,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in range(partitions)])
        found: list[Found] = []
        at_end: set[int] = set()
        while len(at_end) < partitions:
            message = consumer.poll(120)
            assert message is not None, f"{topic} was not read to the end"
            if message.error() is None:
                headers = tuple(message.headers() or ())
                found.append(Found(message.partition(), message.key(), message.value(), headers))
            elif message.error().code() == KafkaError._PARTITION_EOF:
                at_end.add(message.partition())
            else:
                raise KafkaException(message.error())
        return sorted(found, key=lambda record: record.partition)
    finally:
        consumer.close()


@contextmanager
def watching(bootstrap_servers: str, topics: Sequence[str]) -> Iterator[Callable[[], bool]]:
    """A function that returns whether a transaction is open, so that the last stable offset is below the end."""
    from confluent_kafka import Consumer, TopicPartition

    consumers = [
        Consumer({"bootstrap.servers": bootstrap_servers, "group.id": "watching", "isolation.level": level})
        for level in ("read_committed", "read_uncommitted")
    ]

    def has_open_transaction() -> bool:
        for topic in topics:
            ends = [consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=120)[1] for consumer in consumers]
            if ends[0] < ends[1]:
                return True
        return False

    try:
        yield has_open_transaction
    finally:
        for consumer in consumers:
            consumer.close()

"""Python's Kafka clients at work, each run in a separate process so that its time includes no other work.

    python -m moldau.benchmarks.clients CLIENT {produce,consume} BOOTSTRAP TOPIC RECORDS [SETTING=VALUE ...]

CLIENT is confluent-kafka, kafka-python or aiokafka; the first one accepts settings. Records have 1,000 bytes and are
produced to partition 0, or consumed from its beginning. The partition is assigned, without a group. Settings are the
client's defaults. Prints one line of JSON: records, seconds. Connecting is excluded: the clock starts when the first
record is acknowledged, or when the first records have been received, and these are not counted.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import time
from collections.abc import Callable, Mapping
from typing import Any

SIZE = 1000

_PATIENCE_SECONDS = 10.0

Counted = tuple[int, float]
"""The number of records, and the time in seconds."""


Settings = Mapping[str, str]
"""Settings of librdkafka, over its defaults."""


def produce_with_confluent_kafka(
    bootstrap_servers: str, topic: str, records: int, settings: Settings | None = None
) -> Counted:
    """librdkafka waits 5 ms for batches of up to 1 MB, and for all replicas."""
    from confluent_kafka import Producer

    failures: list[Any] = []

    def delivered(error: Any, message: Any) -> None:
        if error is not None:
            failures.append(error)

    producer = Producer({"bootstrap.servers": bootstrap_servers, **(settings or {})})
    value = os.urandom(SIZE)
    producer.produce(topic, value, partition=0, on_delivery=delivered)
    producer.flush()
    started = time.perf_counter()
    for _ in range(records):
        while True:
            try:
                producer.produce(topic, value, partition=0, on_delivery=delivered)
                break
            except BufferError:  # its queue is full
                producer.poll(0.01)
        producer.poll(0)
    left = producer.flush()
    seconds = time.perf_counter() - started
    if failures or left:
        raise RuntimeError(f"{left + len(failures)} records were not delivered: {failures[:1]}")
    return records, seconds


def consume_with_confluent_kafka(
    bootstrap_servers: str, topic: str, records: int, settings: Settings | None = None
) -> Counted:
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    # It requires a group id even without a group.
    own = {"bootstrap.servers": bootstrap_servers, "group.id": "none", "enable.auto.commit": False}
    consumer = Consumer({**own, **(settings or {})})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])

    def poll() -> int:
        messages = consumer.consume(1000, timeout=_PATIENCE_SECONDS)
        for message in messages:
            if message.error():
                raise RuntimeError(str(message.error()))
            assert len(message.value()) == SIZE
        return len(messages)

    counted = _count(poll, records)
    consumer.close()
    return counted


def produce_with_kafka_python(bootstrap_servers: str, topic: str, records: int) -> Counted:
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=bootstrap_servers)
    value = os.urandom(SIZE)
    producer.send(topic, value, partition=0).get()
    failures: list[BaseException] = []
    started = time.perf_counter()
    for _ in range(records):
        producer.send(topic, value, partition=0).add_errback(failures.append)
    producer.flush()
    seconds = time.perf_counter() - started
    producer.close()
    if failures:
        raise RuntimeError(f"{len(failures)} records were not delivered: {failures[0]!r}")
    return records, seconds


def consume_with_kafka_python(bootstrap_servers: str, topic: str, records: int) -> Counted:
    from kafka import KafkaConsumer, TopicPartition

    partition = TopicPartition(topic, 0)
    consumer = KafkaConsumer(bootstrap_servers=bootstrap_servers)
    consumer.assign([partition])
    consumer.seek_to_beginning(partition)

    def poll() -> int:
        found = consumer.poll(timeout_ms=int(_PATIENCE_SECONDS * 1000)).get(partition, [])
        for record in found:
            assert len(record.value) == SIZE
        return len(found)

    counted = _count(poll, records)
    consumer.close()
    return counted


async def produce_with_aiokafka(bootstrap_servers: str, topic: str, records: int) -> Counted:
    from aiokafka import AIOKafkaProducer

    value = os.urandom(SIZE)
    async with AIOKafkaProducer(bootstrap_servers=bootstrap_servers) as producer:
        await producer.send_and_wait(topic, value, partition=0)
        started = time.perf_counter()
        sent = [await producer.send(topic, value, partition=0) for _ in range(records)]
        await producer.flush()
        seconds = time.perf_counter() - started
        for future in sent:
            future.result()  # raises if the record was not delivered
    return records, seconds


async def consume_with_aiokafka(bootstrap_servers: str, topic: str, records: int) -> Counted:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    partition = TopicPartition(topic, 0)
    async with AIOKafkaConsumer(bootstrap_servers=bootstrap_servers) as consumer:
        consumer.assign([partition])
        await consumer.seek_to_beginning(partition)

        async def poll() -> int:
            found = (await consumer.getmany(timeout_ms=int(_PATIENCE_SECONDS * 1000))).get(partition, [])
            for record in found:
                assert len(record.value) == SIZE
            return _some(len(found))

        left = records - await poll()
        counted = 0
        started = time.perf_counter()
        while counted < left:
            counted += await poll()
        return counted, time.perf_counter() - started


def _count(poll: Callable[[], int], records: int) -> Counted:
    """Poll until there are ``records`` records, without those of the first poll."""
    left = records - _some(poll())
    counted = 0
    started = time.perf_counter()
    while counted < left:
        counted += _some(poll())
    return counted, time.perf_counter() - started


def _some(records: int) -> int:
    if not records:
        raise RuntimeError(f"no records were received for {_PATIENCE_SECONDS:g} s")
    return records


_WORK: dict[tuple[str, str], Callable[..., Counted]] = {
    ("confluent-kafka", "produce"): produce_with_confluent_kafka,
    ("confluent-kafka", "consume"): consume_with_confluent_kafka,
    ("kafka-python", "produce"): produce_with_kafka_python,
    ("kafka-python", "consume"): consume_with_kafka_python,
    ("aiokafka", "produce"): lambda *arguments: asyncio.run(produce_with_aiokafka(*arguments)),
    ("aiokafka", "consume"): lambda *arguments: asyncio.run(consume_with_aiokafka(*arguments)),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("client", choices=sorted({client for client, _ in _WORK}))
    parser.add_argument("work", choices=("produce", "consume"))
    parser.add_argument("bootstrap_servers")
    parser.add_argument("topic")
    parser.add_argument("records", type=int)
    parser.add_argument("settings", nargs="*")
    given = parser.parse_args()
    arguments = [given.bootstrap_servers, given.topic, given.records]
    if given.settings:
        arguments.append(dict(setting.split("=", 1) for setting in given.settings))
    counted, seconds = _WORK[given.client, given.work](*arguments)
    print(json.dumps({"records": counted, "seconds": seconds}))


if __name__ == "__main__":
    main()

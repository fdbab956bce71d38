"""An idempotent producer that continues while brokers fail, and what it must find afterwards. Needs confluent-kafka."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Self

from confluent_kafka import Consumer, Producer, TopicPartition

from .waiting import wait_until

_TIMEOUT_S = 180


class ProducerLoad:
    """An idempotent producer in a thread that sends numbers to all partitions of a topic, until the block ends."""

    def __init__(self, addresses: list[str], topic: str, partitions: int) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": ",".join(addresses),
                "enable.idempotence": True,
                "linger.ms": 1,
                "message.timeout.ms": 300_000,
                "reconnect.backoff.max.ms": 200,
                "queue.buffering.max.messages": 1000,
                "log_level": 0,
            }
        )
        self._topic = topic
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.errors: list[object] = []
        """Records that were not delivered."""
        self.acknowledged: list[list[int]] = [[] for _ in range(partitions)]
        """The numbers by partition, in the order of their acknowledgments."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        pending = self._producer.flush(_TIMEOUT_S)
        if pending:
            raise TimeoutError(f"{pending} records of {self._topic} were not acknowledged")

    def wait_for_more(self, partitions: Iterable[int]) -> None:
        """Return when records of these partitions have been acknowledged after this call."""
        before = {partition: len(self.acknowledged[partition]) for partition in partitions}
        wait_until(lambda: all(len(self.acknowledged[partition]) > count for partition, count in before.items()))

    def _run(self) -> None:
        for number in itertools.count():
            for partition in range(len(self.acknowledged)):
                with suppress(BufferError):  # the queue is full of records of a broker that was killed
                    self._producer.produce(self._topic, str(number), partition=partition, on_delivery=self._delivered)
            self._producer.poll(0.005)
            if self._stop.is_set():
                return

    def _delivered(self, error: object, message: Any) -> None:
        if error is not None:
            self.errors.append(error)
        else:
            self.acknowledged[message.partition()].append(int(message.value()))


def read_all(address: str, topic: str, partition: int, count: int) -> list[int]:
    """All records of a partition, at least this many."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": "unused", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, partition, 0)])
    values: list[int] = []

    def complete() -> bool:
        values.extend(int(message.value()) for message in consumer.consume(10_000, timeout=1))
        return len(values) >= count

    wait_until(complete, f"{count} records of {topic}-{partition}")
    consumer.close()
    return values

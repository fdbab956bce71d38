"""Transactional producers with kafka-python: see ``transactor``."""

import logging
from collections.abc import Mapping, Sequence
from threading import Thread
from typing import Any

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import InvalidProducerEpochError, KafkaError, ProducerFencedError
from kafka.structs import OffsetAndMetadata

from moldau.testing.clients.transactor import READY_SECONDS, Options, Refused, Transactor, serve

COMMIT_SECONDS = 20
"""Long enough for a restart of the server; then the request is lost."""


class KafkaPythonTransactor(Transactor):
    """Its calls wait forever, so the driver has a deadline.

    One wait has no end: kafka-python 3.0.12 takes a transactional request from its queue, and forgets it when the
    connection to the coordinator is refused just then (``Sender._maybe_send_pending_request``: what an exception leaves
    by ``break`` is retried only without a node). The outcome of the commit is then unknown, and another producer with
    this transactional id continues, as after a restart of the program.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self._producer = _open(options)
        self._has_lost_commit = False
        if options.group_id is not None:
            self._consumer = KafkaConsumer(
                options.source,
                bootstrap_servers=options.bootstrap_servers,
                group_id=options.group_id,
                enable_auto_commit=False,
                auto_offset_reset="earliest",
                isolation_level="read_committed",
                fetch_max_wait_ms=100,
            )
            self._consumer.partitions_for_topic(options.source)  # before it joins: see group_member_kafka_python

    def begin(self) -> None:
        self._producer.begin_transaction()

    def produce(self, topic: str, partition: int, values: Sequence[str]) -> None:
        sent = [self._producer.send(topic, value.encode(), partition=partition) for value in values]
        self._producer.flush(READY_SECONDS)
        for each in sent:
            each.get(READY_SECONDS)

    def pipe(self, target: str, count: int) -> None:
        left = count
        offsets: dict[Any, Any] = {}
        while left:
            for partition, records in self._consumer.poll(timeout_ms=500, max_records=left).items():
                for record in records:
                    self._producer.send(target, record.value + b"-piped", partition=partition.partition)
                left -= len(records)
                offsets[partition] = OffsetAndMetadata(records[-1].offset + 1, "", -1)
        self._producer.send_offsets_to_transaction(offsets, self._consumer.group_metadata())

    def commit(self) -> None:
        errors: list[BaseException] = []

        def commit() -> None:
            try:
                self._producer.commit_transaction()
            except BaseException as error:  # noqa: BLE001 - raised below
                errors.append(error)

        committing = Thread(target=commit, daemon=True)
        committing.start()
        committing.join(COMMIT_SECONDS)
        if committing.is_alive():
            self._has_lost_commit = True
            raise Refused("UNKNOWN", f"no response to the commit within {COMMIT_SECONDS} s")
        if errors:
            raise errors[0]

    def abort(self) -> None:
        if self._has_lost_commit:
            self._producer.close(0)
            self._producer = _open(self._options)
            self._has_lost_commit = False
        else:
            self._producer.abort_transaction()


def _open(options: Options) -> KafkaProducer:
    producer = KafkaProducer(
        bootstrap_servers=options.bootstrap_servers,
        transactional_id=options.transactional_id,
        transaction_timeout_ms=options.timeout_ms,
        compression_type=None if options.codec == "none" else options.codec,
        reconnect_backoff_max_ms=500,
    )
    producer.init_transactions()
    return producer


def read(address: str, topics: Sequence[str], committed: bool) -> Mapping[str, Mapping[int, Sequence[str]]]:
    """Up to the ends that the client says are there when it begins."""
    consumer = KafkaConsumer(
        bootstrap_servers=address,
        group_id=None,
        auto_offset_reset="earliest",
        isolation_level="read_committed" if committed else "read_uncommitted",
        fetch_max_wait_ms=50,
    )
    found: dict[str, dict[int, list[str]]] = {
        topic: {partition: [] for partition in consumer.partitions_for_topic(topic)} for topic in topics
    }
    partitions = [TopicPartition(topic, partition) for topic, each in found.items() for partition in each]
    consumer.assign(partitions)
    ends = consumer.end_offsets(partitions)
    while any(consumer.position(each) < end for each, end in ends.items()):
        for partition, records in consumer.poll(timeout_ms=500).items():
            found[partition.topic][partition.partition] += [record.value.decode() for record in records]
    consumer.close()
    return found


def refusal(error: Exception) -> Refused | None:
    """In the words of ``transactor``."""
    if isinstance(error, (ProducerFencedError, InvalidProducerEpochError)):
        return Refused("FENCED", str(error))
    if isinstance(error, KafkaError):
        return Refused("RETRIABLE" if error.retriable else type(error).__name__, str(error))
    return None


if __name__ == "__main__":
    logging.disable()
    serve(KafkaPythonTransactor, read, refusal)

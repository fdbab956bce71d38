"""Transactional producers with confluent-kafka, which is librdkafka: see ``transactor``."""

from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition

from moldau.testing.clients.transactor import READY_SECONDS, Options, Refused, Transactor, serve

_FENCED = (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)


class ConfluentTransactor(Transactor):
    """Each call has its own time to come to an end."""

    def __init__(self, options: Options) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": options.bootstrap_servers,
                "transactional.id": options.transactional_id,
                "transaction.timeout.ms": options.timeout_ms,
                "compression.codec": options.codec,
                "linger.ms": 0,
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
            }
        )
        self._producer.init_transactions(READY_SECONDS)
        if options.group_id is not None:
            self._consumer = Consumer(
                {
                    "bootstrap.servers": options.bootstrap_servers,
                    "group.id": options.group_id,
                    "enable.auto.commit": False,
                    "auto.offset.reset": "earliest",
                    "isolation.level": "read_committed",
                    "fetch.wait.max.ms": 100,
                    "log_level": 0,
                }
            )
            self._consumer.subscribe([options.source])

    def begin(self) -> None:
        self._producer.begin_transaction()

    def produce(self, topic: str, partition: int, values: Sequence[str]) -> None:
        errors: list[KafkaError] = []

        def delivered(error: KafkaError | None, message: Any) -> None:
            if error is not None:
                errors.append(error)

        for value in values:
            self._producer.produce(topic, value.encode(), partition=partition, on_delivery=delivered)
        assert self._producer.flush(READY_SECONDS) == 0, "not all records are acknowledged"
        if errors:
            raise KafkaException(errors[0])

    def pipe(self, target: str, count: int) -> None:
        left = count
        while left:
            for message in self._consumer.consume(left, timeout=0.1):
                assert message.error() is None, message.error()
                self._producer.produce(target, message.value() + b"-piped", partition=message.partition())
                left -= 1
        offsets = self._consumer.position(self._consumer.assignment())
        known = [each for each in offsets if each.offset >= 0]
        self._producer.send_offsets_to_transaction(known, self._consumer.consumer_group_metadata(), READY_SECONDS)

    def commit(self) -> None:
        self._producer.commit_transaction(READY_SECONDS)

    def abort(self) -> None:
        self._producer.abort_transaction(READY_SECONDS)


def read(address: str, topics: Sequence[str], committed: bool) -> Mapping[str, Mapping[int, Sequence[str]]]:
    """Up to the ends that the client says are there when it begins."""
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "never-joined",
            "enable.auto.commit": False,
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 50,
            "log_level": 0,
        }
    )
    found: dict[str, dict[int, list[str]]] = {}
    for topic in topics:
        metadata = consumer.list_topics(topic, READY_SECONDS).topics[topic]
        found[topic] = {partition: [] for partition in metadata.partitions}
    wanted = {(topic, partition) for topic, partitions in found.items() for partition in partitions}
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for topic, partition in sorted(wanted)])
    while wanted:
        for message in consumer.consume(500, timeout=0.1):
            error = message.error()
            if error is None:
                found[message.topic()][message.partition()].append(message.value().decode())
            elif error.code() == KafkaError._PARTITION_EOF:
                wanted.discard((message.topic(), message.partition()))
            else:
                raise KafkaException(error)
    consumer.close()
    return found


def refusal(error: Exception) -> Refused | None:
    """In the words of ``transactor``."""
    if isinstance(error, SystemError) and isinstance(error.__cause__, KafkaException):
        error = error.__cause__  # a fatal error that is raised in flush while it calls the producer back
    if not isinstance(error, KafkaException):
        return None
    kafka_error: KafkaError = error.args[0]
    if kafka_error.code() in _FENCED:
        return Refused("FENCED", str(kafka_error))
    if kafka_error.txn_requires_abort():
        return Refused("ABORTABLE", str(kafka_error))
    if kafka_error.retriable():
        return Refused("RETRIABLE", str(kafka_error))
    return Refused(kafka_error.name(), str(kafka_error))


if __name__ == "__main__":
    serve(ConfluentTransactor, read, refusal)

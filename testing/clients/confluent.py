"""confluent-kafka: the Python binding of librdkafka."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from moldau.protocol.errors import ErrorCode
from moldau.testing.client import (
    DEADLINE_SECONDS,
    Client,
    ClientError,
    Delivered,
    DescribedGroup,
    Feature,
    Received,
    Record,
    Stream,
    ThreadStream,
)

_TIMESTAMP_TYPES = {1: "CreateTime", 2: "LogAppendTime"}

_END_OF_TIME = -1  # offsets_for_times returns the end of the partition if no record is late enough


class ConfluentClient(Client):
    """Producer, Consumer and AdminClient of librdkafka."""

    name = "confluent-kafka"
    without: ClassVar[Mapping[Feature, str]] = {}

    def __init__(self, bootstrap_servers: str) -> None:
        super().__init__(bootstrap_servers)
        self._admin = AdminClient({"bootstrap.servers": bootstrap_servers})

    def produce(
        self,
        topic: str,
        records: Sequence[Record],
        *,
        codec: str = "none",
        acks: str = "all",
        idempotent: bool = False,
        max_request_size: int = 1_048_576,
        linger_ms: int = 5,
        give_up_ms: int = 30_000,
        request_timeout_ms: int | None = None,
    ) -> list[Delivered]:
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap_servers,
                "compression.codec": codec,
                "acks": acks,
                "enable.idempotence": idempotent,
                "message.max.bytes": max_request_size,
                "linger.ms": linger_ms,
                "delivery.timeout.ms": give_up_ms,
                # For this long it does not report that a topic does not exist.
                "topic.metadata.propagation.max.ms": 1_000,
                **_request_timeout(request_timeout_ms),
            }
        )
        delivered: list[Delivered | KafkaError | None] = [None] * len(records)

        def report(index: int) -> Callable[[KafkaError | None, Any], None]:
            def on_delivery(error: KafkaError | None, message: Any) -> None:
                offset = -1 if error or message.offset() is None or message.offset() < 0 else message.offset()
                delivered[index] = error or Delivered(message.partition(), offset)

            return on_delivery

        with _errors():
            for index, record in enumerate(records):
                timestamp = {} if record.timestamp_ms is None else {"timestamp": record.timestamp_ms}
                producer.produce(
                    topic,
                    value=record.value,
                    key=record.key,
                    headers=list(record.headers),
                    partition=record.partition,
                    on_delivery=report(index),
                    **timestamp,
                )
            left = producer.flush(DEADLINE_SECONDS)
            assert left == 0, f"{left} records neither delivered nor failed"
        return [_delivered(result) for result in delivered]

    def read(
        self, topic: str, partition: int, start: int | None = None, *, fetch_max_bytes: int | None = None
    ) -> list[Received]:
        limits = {"fetch.max.bytes": fetch_max_bytes, "fetch.message.max.bytes": fetch_max_bytes}
        if fetch_max_bytes is not None:
            limits |= {"message.max.bytes": fetch_max_bytes}
        with _errors(), self._consumer(**(limits if fetch_max_bytes else {})) as consumer:
            where = TopicPartition(topic, partition, OFFSET_BEGINNING if start is None else start)
            # In this order: a read from the beginning before it knows the leader is retried after half a second.
            first, end = consumer.get_watermark_offsets(where, timeout=DEADLINE_SECONDS)
            consumer.assign([where])
            position = first if start is None else start
            received: list[Received] = []
            deadline = time.monotonic() + DEADLINE_SECONDS
            while position < end or (start is not None and start > end):
                assert time.monotonic() < deadline, f"{len(received)} records, position {position}"
                # consume() waits until it has the requested number.
                for message in consumer.consume(max(1, min(1_000, end - position)), timeout=1):
                    _raise(message.error())
                    received.append(_received(message))
                    position = message.offset() + 1
        return received

    def offset_for_time(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        with _errors(), self._consumer() as consumer:
            (found,) = consumer.offsets_for_times([TopicPartition(topic, partition, timestamp_ms)], DEADLINE_SECONDS)
            _raise(found.error)
            return None if found.offset == _END_OF_TIME else int(found.offset)

    def offsets(self, topic: str, partition: int) -> tuple[int, int]:
        with _errors(), self._consumer() as consumer:
            first, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=DEADLINE_SECONDS)
            return first, end

    def commit_offset(self, group: str, topic: str, partition: int, offset: int) -> None:
        with _errors(), self._consumer(**{"group.id": group}) as consumer:
            for each in consumer.commit(offsets=[TopicPartition(topic, partition, offset)], asynchronous=False):
                _raise(each.error)

    def committed_offset(self, group: str, topic: str, partition: int) -> int | None:
        with _errors(), self._consumer(**{"group.id": group}) as consumer:
            (found,) = consumer.committed([TopicPartition(topic, partition)], DEADLINE_SECONDS)
            _raise(found.error)
            return int(found.offset) if found.offset >= 0 else None

    def open_stream(self, topic: str, partitions: int) -> Stream:
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap_servers,
                "enable.idempotence": True,
                "linger.ms": 5,
                "reconnect.backoff.max.ms": 500,
            }
        )

        def send(partition: int, value: bytes, done: Callable[[str | None], None]) -> None:
            def on_delivery(error: KafkaError | None, _: Any) -> None:
                done(None if error is None else error.str())

            producer.produce(topic, value=value, partition=partition, on_delivery=on_delivery)
            producer.poll(0)

        def flush() -> None:
            left = producer.flush(DEADLINE_SECONDS)
            assert left == 0, f"{left} records neither delivered nor failed"

        return ThreadStream(partitions, send, flush, lambda: None, wait=lambda: producer.poll(0.1))

    def send_create_topic(self, topic: str, partitions: int, configs: Mapping[str, str]) -> None:
        new = NewTopic(topic, partitions, 1, config=dict(configs))
        with _errors():
            self._admin.create_topics([new])[topic].result(DEADLINE_SECONDS)

    def topics(self) -> dict[str, int]:
        with _errors():
            listed = self._admin.list_topics(timeout=DEADLINE_SECONDS).topics
        return {name: len(found.partitions) for name, found in listed.items()}

    def delete_topic(self, topic: str) -> None:
        with _errors():
            self._admin.delete_topics([topic])[topic].result(DEADLINE_SECONDS)

    def create_partitions(self, topic: str, total: int) -> None:
        with _errors():
            self._admin.create_partitions([NewPartitions(topic, total)])[topic].result(DEADLINE_SECONDS)

    def topic_configs(self, topic: str) -> dict[str, str | None]:
        resource = ConfigResource(ResourceType.TOPIC, topic)
        with _errors():
            described = self._admin.describe_configs([resource])[resource].result(DEADLINE_SECONDS)
        return {key: entry.value for key, entry in described.items()}

    def set_topic_config(self, topic: str, key: str, value: str) -> None:
        entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        with _errors():
            self._admin.incremental_alter_configs([resource])[resource].result(DEADLINE_SECONDS)

    def delete_records(self, topic: str, partition: int, before_offset: int) -> int:
        where = TopicPartition(topic, partition, before_offset)
        with _errors():
            return int(self._admin.delete_records([where])[where].result(DEADLINE_SECONDS).low_watermark)

    def groups(self) -> list[str]:
        with _errors():
            listed = self._admin.list_consumer_groups().result(DEADLINE_SECONDS)
        for error in listed.errors or []:
            _raise(error.args[0])
        return [each.group_id for each in listed.valid]

    def describe_group(self, group: str) -> DescribedGroup:
        with _errors():
            found = self._admin.describe_consumer_groups([group])[group].result(DEADLINE_SECONDS)
        name = found.state.name.replace("REBALANCING", "REBALANCE")  # librdkafka's name of two states
        return DescribedGroup(name.title().replace("_", ""), len(found.members))

    def delete_group(self, group: str) -> None:
        with _errors():
            self._admin.delete_consumer_groups([group])[group].result(DEADLINE_SECONDS)

    @contextmanager
    def _consumer(self, **settings: int | str | None) -> Iterator[Any]:
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap_servers,
                "group.id": "never-joined",  # the constructor requires one; assign() does not use it
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 50,  # closing waits for the fetch that is on its way
                "auto.offset.reset": "error",
                "allow.auto.create.topics": False,
                **settings,
            }
        )
        try:
            yield consumer
        finally:
            consumer.close()


def _request_timeout(milliseconds: int | None) -> dict[str, int]:
    # request.timeout.ms is the server's deadline; that of the client is the one of the socket.
    return {} if milliseconds is None else {"request.timeout.ms": milliseconds, "socket.timeout.ms": milliseconds}


def _received(message: Any) -> Received:
    kind, timestamp_ms = message.timestamp()
    return Received(
        partition=message.partition(),
        offset=message.offset(),
        timestamp_ms=timestamp_ms,
        timestamp_type=_TIMESTAMP_TYPES[kind],
        key=message.key(),
        value=message.value(),
        headers=tuple(message.headers() or ()),
    )


def _delivered(result: Delivered | KafkaError | None) -> Delivered:
    if not isinstance(result, Delivered):
        _raise(result)
        raise AssertionError("a record was flushed without a delivery report")
    return result


def _raise(error: KafkaError | None) -> None:
    if error is not None:
        raise ClientError(_name(error), error.str()) from None


# librdkafka's local errors (negative codes) for errors that the response cannot carry.
_LOCAL_NAMES = {
    KafkaError._UNKNOWN_TOPIC: "UNKNOWN_TOPIC_OR_PARTITION",
    KafkaError._UNKNOWN_PARTITION: "UNKNOWN_TOPIC_OR_PARTITION",
    KafkaError._AUTO_OFFSET_RESET: "OFFSET_OUT_OF_RANGE",
}


def _name(error: KafkaError) -> str:
    code = error.code()
    return ErrorCode(code).name if code > 0 else _LOCAL_NAMES.get(code, error.name())


@contextmanager
def _errors() -> Iterator[None]:
    try:
        yield
    except KafkaException as exception:
        error = exception.args[0]
        raise ClientError(_name(error), error.str()) from exception

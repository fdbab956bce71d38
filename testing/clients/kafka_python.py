"""kafka-python: the pure Python client, in its third generation."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any, ClassVar

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition, errors
from kafka.errors import BrokerResponseError, KafkaError
from kafka.structs import OffsetAndMetadata

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

_TIMESTAMP_TYPES = {0: "CreateTime", 1: "LogAppendTime"}


class KafkaPythonClient(Client):
    """KafkaProducer, KafkaConsumer and KafkaAdminClient."""

    name = "kafka-python"
    without: ClassVar[Mapping[Feature, str]] = {
        Feature.NULL_HEADERS: "send() accepts only bytes as header values",
        Feature.NULL_KEY_AND_VALUE: "send() requires a key or a value",
    }

    def __init__(self, bootstrap_servers: str) -> None:
        super().__init__(bootstrap_servers)
        self._admin_client: Any = None
        self._offset_reader: Any = None

    def close(self) -> None:
        if self._admin_client is not None:
            self._admin_client.close()
        if self._offset_reader is not None:
            self._offset_reader.close(autocommit=False)

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
        with (
            _errors(),
            closing(
                KafkaProducer(
                    bootstrap_servers=self.bootstrap_servers,
                    compression_type=None if codec == "none" else codec,
                    acks=acks if acks == "all" else int(acks),
                    enable_idempotence=idempotent,
                    max_request_size=max_request_size,
                    batch_size=262_144,
                    linger_ms=linger_ms,
                    max_block_ms=give_up_ms,
                    **({} if request_timeout_ms is None else {"request_timeout_ms": request_timeout_ms}),
                )
            ) as producer,
        ):
            futures = [
                producer.send(
                    topic,
                    value=record.value,
                    key=record.key,
                    headers=list(record.headers),
                    partition=record.partition,
                    timestamp_ms=record.timestamp_ms,
                )
                for record in records
            ]
            producer.flush(DEADLINE_SECONDS)
            results = [future.get(timeout=DEADLINE_SECONDS) for future in futures]
        return [Delivered(result.partition, result.offset) for result in results]

    def read(
        self, topic: str, partition: int, start: int | None = None, *, fetch_max_bytes: int | None = None
    ) -> list[Received]:
        limits = {"fetch_max_bytes": fetch_max_bytes, "max_partition_fetch_bytes": fetch_max_bytes}
        where = TopicPartition(topic, partition)
        with _errors(), self._consumer(**(limits if fetch_max_bytes else {})) as consumer:
            consumer.assign([where])
            end = consumer.end_offsets([where])[where]
            if start is None:
                consumer.seek_to_beginning(where)
            else:
                consumer.seek(where, start)
            received: list[Received] = []
            deadline = time.monotonic() + DEADLINE_SECONDS
            # Past the end no record comes, but the client must poll once to see its error.
            while consumer.position(where) < end or (start is not None and start > end):
                assert time.monotonic() < deadline, f"{len(received)} records, position {consumer.position(where)}"
                polled = consumer.poll(timeout_ms=1_000)
                received += [_received(record) for record in polled.get(where, [])]
        return received

    def offset_for_time(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        where = TopicPartition(topic, partition)
        with _errors():
            found = self._offset_consumer.offsets_for_times({where: timestamp_ms})[where]
        return None if found is None else found.offset

    def offsets(self, topic: str, partition: int) -> tuple[int, int]:
        where = TopicPartition(topic, partition)
        with _errors():
            return self._offset_consumer.beginning_offsets([where])[where], self._offset_consumer.end_offsets([where])[
                where
            ]

    def open_stream(self, topic: str, partitions: int) -> Stream:
        producer = KafkaProducer(
            bootstrap_servers=self.bootstrap_servers,
            enable_idempotence=True,
            acks="all",
            linger_ms=5,
            reconnect_backoff_max_ms=500,
        )

        def send(partition: int, value: bytes, done: Callable[[str | None], None]) -> None:
            future = producer.send(topic, value=value, partition=partition)
            future.add_callback(lambda _: done(None))
            future.add_errback(lambda error: done(repr(error)))

        return ThreadStream(partitions, send, lambda: producer.flush(DEADLINE_SECONDS), producer.close)

    def send_create_topic(self, topic: str, partitions: int, configs: Mapping[str, str]) -> None:
        wanted = {"num_partitions": partitions, "replication_factor": 1, "configs": dict(configs)}
        with _errors():
            self._admin.create_topics({topic: wanted})

    def topics(self) -> dict[str, int]:
        with _errors():
            return {found["name"]: len(found["partitions"]) for found in self._admin.describe_topics()}

    def delete_topic(self, topic: str) -> None:
        with _errors():
            self._admin.delete_topics([topic])

    def create_partitions(self, topic: str, total: int) -> None:
        with _errors():
            self._admin.create_partitions({topic: total})

    def topic_configs(self, topic: str) -> dict[str, str | None]:
        from kafka.admin import ConfigResource

        with _errors():
            described = self._admin.describe_configs([ConfigResource("TOPIC", topic)], config_filter="all")
        return {key: entry["value"] for key, entry in described["topic"][topic].items()}

    def set_topic_config(self, topic: str, key: str, value: str) -> None:
        from kafka.admin import ConfigResource

        with _errors():
            altered = self._admin.alter_configs([ConfigResource("TOPIC", topic, {key: value})], raise_on_unknown=False)
        if altered["topic"][topic] != "OK":
            raise ClientError("INVALID_CONFIG", altered["topic"][topic])

    def delete_records(self, topic: str, partition: int, before_offset: int) -> int:
        where = TopicPartition(topic, partition)
        with _errors():
            low_watermark = self._admin.delete_records({where: before_offset})[where]["low_watermark"]
        assert isinstance(low_watermark, int)
        return low_watermark

    def commit_offset(self, group: str, topic: str, partition: int, offset: int) -> None:
        where = TopicPartition(topic, partition)
        with _errors(), self._consumer(group_id=group) as consumer:
            consumer.assign([where])
            consumer.commit({where: OffsetAndMetadata(offset, "", -1)})

    def committed_offset(self, group: str, topic: str, partition: int) -> int | None:
        where = TopicPartition(topic, partition)
        with _errors(), self._consumer(group_id=group) as consumer:
            consumer.assign([where])
            offset: int | None = consumer.committed(where)
            return offset

    def groups(self) -> list[str]:
        with _errors():
            return [each["group_id"] for each in self._admin.list_groups()]

    def describe_group(self, group: str) -> DescribedGroup:
        with _errors():
            found = self._admin.describe_groups([group])[group]
        if found["error"] is not None:
            raise ClientError("OTHER", found["error"])
        return DescribedGroup(found["group_state"], len(found["members"]))

    def delete_group(self, group: str) -> None:
        with _errors():
            name = self._admin.delete_groups([group])[group]  # of the class of its error, or OK
        if name != "OK":
            raise ClientError(ErrorCode(getattr(errors, name).errno).name)

    @property
    def _admin(self) -> Any:
        if self._admin_client is None:
            self._admin_client = KafkaAdminClient(bootstrap_servers=self.bootstrap_servers)
        return self._admin_client

    @property
    def _offset_consumer(self) -> Any:
        """A consumer that does not read records; it is used to look up offsets."""
        if self._offset_reader is None:
            self._offset_reader = self._new_consumer()
        return self._offset_reader

    def _new_consumer(self, **settings: int | str | None) -> Any:
        return KafkaConsumer(
            bootstrap_servers=self.bootstrap_servers,
            enable_auto_commit=False,
            fetch_max_wait_ms=50,  # close() waits for the fetch that is on its way
            auto_offset_reset="none",
            allow_auto_create_topics=False,
            **settings,
        )

    @contextmanager
    def _consumer(self, **settings: int | str | None) -> Iterator[Any]:
        consumer = self._new_consumer(**settings)
        try:
            yield consumer
        finally:
            consumer.close(autocommit=False)


def _received(record: Any) -> Received:
    return Received(
        partition=record.partition,
        offset=record.offset,
        timestamp_ms=record.timestamp,
        timestamp_type=_TIMESTAMP_TYPES[record.timestamp_type],
        key=record.key,
        value=record.value,
        headers=tuple(record.headers),
    )


@contextmanager
def _errors() -> Iterator[None]:
    try:
        yield
    except BrokerResponseError as error:
        raise ClientError(ErrorCode(type(error).errno).name, str(error)) from error
    except KafkaError as error:
        raise ClientError(type(error).__name__, str(error)) from error
    except ValueError as error:  # what the client checks itself
        raise ClientError("ValueError", str(error)) from error

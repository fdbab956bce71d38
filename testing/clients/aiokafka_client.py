"""aiokafka: the asyncio client. Its coroutines run on one event loop in a dedicated thread."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, ClassVar, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import BrokerResponseError, KafkaError

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

_Result = TypeVar("_Result")


class AiokafkaClient(Client):
    """AIOKafkaProducer, AIOKafkaConsumer and AIOKafkaAdminClient."""

    name = "aiokafka"
    without: ClassVar[Mapping[Feature, str]] = {
        Feature.NULL_KEY_AND_VALUE: "send() asserts that there is a key or a value",
        Feature.INCREMENTAL_CONFIGS: "alter_configs() is the older AlterConfigs, which replaces them all",
        Feature.DELETE_GROUPS: "its AIOKafkaAdminClient cannot delete groups",
    }

    def __init__(self, bootstrap_servers: str) -> None:
        super().__init__(bootstrap_servers)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="aiokafka", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

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
        async def work() -> list[Delivered]:
            producer = AIOKafkaProducer(
                bootstrap_servers=self.bootstrap_servers,
                compression_type=None if codec == "none" else codec,
                acks=acks if acks == "all" else int(acks),
                enable_idempotence=idempotent,
                max_request_size=max_request_size,
                max_batch_size=max(262_144, max_request_size),
                linger_ms=linger_ms,
                request_timeout_ms=request_timeout_ms or give_up_ms,
            )
            async with producer:
                futures = [
                    await producer.send(
                        topic,
                        value=record.value,
                        key=record.key,
                        headers=list(record.headers),
                        partition=record.partition,
                        timestamp_ms=record.timestamp_ms,
                    )
                    for record in records
                ]
                results = await asyncio.gather(*futures)
            # acks=0 has no response: the future is done, and its result is None.
            return [
                Delivered(record.partition, -1 if result is None else result.offset)
                for record, result in zip(records, results, strict=True)
            ]

        return self._run(work())

    def read(
        self, topic: str, partition: int, start: int | None = None, *, fetch_max_bytes: int | None = None
    ) -> list[Received]:
        limits = {"fetch_max_bytes": fetch_max_bytes, "max_partition_fetch_bytes": fetch_max_bytes}
        where = TopicPartition(topic, partition)

        async def work() -> list[Received]:
            async with self._consumer(**(limits if fetch_max_bytes else {})) as consumer:
                consumer.assign([where])
                end = (await consumer.end_offsets([where]))[where]
                if start is None:
                    await consumer.seek_to_beginning(where)
                else:
                    consumer.seek(where, start)
                received: list[Received] = []
                while await consumer.position(where) < end or (start is not None and start > end):
                    polled = await consumer.getmany(where, timeout_ms=1_000)
                    received += [_received(record) for record in polled.get(where, [])]
            return received

        return self._run(work())

    def offset_for_time(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        where = TopicPartition(topic, partition)

        async def work() -> int | None:
            async with self._consumer() as consumer:
                consumer.assign([where])
                found = (await consumer.offsets_for_times({where: timestamp_ms}))[where]
                return None if found is None else found.offset

        return self._run(work())

    def offsets(self, topic: str, partition: int) -> tuple[int, int]:
        where = TopicPartition(topic, partition)

        async def work() -> tuple[int, int]:
            async with self._consumer() as consumer:
                consumer.assign([where])
                first = await consumer.beginning_offsets([where])
                last = await consumer.end_offsets([where])
                return first[where], last[where]

        return self._run(work())

    def commit_offset(self, group: str, topic: str, partition: int, offset: int) -> None:
        where = TopicPartition(topic, partition)

        async def work() -> None:
            async with self._consumer(group_id=group) as consumer:
                consumer.assign([where])
                await consumer.commit({where: offset})

        self._run(work())

    def committed_offset(self, group: str, topic: str, partition: int) -> int | None:
        where = TopicPartition(topic, partition)

        async def work() -> int | None:
            async with self._consumer(group_id=group) as consumer:
                consumer.assign([where])
                offset: int | None = await consumer.committed(where)
                return offset

        return self._run(work())

    def open_stream(self, topic: str, partitions: int) -> Stream:
        async def start() -> AIOKafkaProducer:
            producer = AIOKafkaProducer(
                bootstrap_servers=self.bootstrap_servers, enable_idempotence=True, acks="all", linger_ms=5
            )
            await producer.start()
            return producer

        producer = self._run(start())

        async def send_one(partition: int, value: bytes, done: Callable[[str | None], None]) -> None:
            future = await producer.send(topic, value=value, partition=partition)
            future.add_done_callback(lambda done_: done(repr(done_.exception()) if done_.exception() else None))

        def send(partition: int, value: bytes, done: Callable[[str | None], None]) -> None:
            self._run(send_one(partition, value, done))

        return ThreadStream(partitions, send, lambda: self._run(producer.flush()), lambda: self._run(producer.stop()))

    def send_create_topic(self, topic: str, partitions: int, configs: Mapping[str, str]) -> None:
        async def work() -> None:
            async with self._admin() as admin:
                new = NewTopic(topic, partitions, 1, topic_configs=dict(configs))
                for _, code, message, *_ in (await admin.create_topics([new])).topic_errors:
                    _raise(code, message)

        self._run(work())

    def topics(self) -> dict[str, int]:
        async def work() -> dict[str, int]:
            async with self._admin() as admin:
                return {found["topic"]: len(found["partitions"]) for found in await admin.describe_topics()}

        return self._run(work())

    def delete_topic(self, topic: str) -> None:
        async def work() -> None:
            async with self._admin() as admin:
                for _, code, *_ in (await admin.delete_topics([topic])).topic_error_codes:
                    _raise(code, None)

        self._run(work())

    def create_partitions(self, topic: str, total: int) -> None:
        async def work() -> None:
            async with self._admin() as admin:
                response = await admin.create_partitions({topic: NewPartitions(total_count=total)})
                for _, code, message, *_ in response.topic_errors:
                    _raise(code, message)

        self._run(work())

    def topic_configs(self, topic: str) -> dict[str, str | None]:
        async def work() -> dict[str, str | None]:
            async with self._admin() as admin:
                described = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
                code, message, _, _, entries, *_ = described[0].resources[0]
                _raise(code, message)
                return {entry[0]: entry[1] for entry in entries}

        return self._run(work())

    def set_topic_config(self, topic: str, key: str, value: str) -> None:
        async def work() -> None:
            async with self._admin() as admin:
                altered = await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {key: value})])
                code, message, *_ = altered[0].resources[0]
                _raise(code, message)

        self._run(work())

    def delete_records(self, topic: str, partition: int, before_offset: int) -> int:
        where = TopicPartition(topic, partition)

        async def work() -> int:
            async with self._admin() as admin:
                return int((await admin.delete_records({where: RecordsToDelete(before_offset)}))[where])

        return self._run(work())

    def groups(self) -> list[str]:
        async def work() -> list[str]:
            async with self._admin() as admin:
                return [name for name, *_ in await admin.list_consumer_groups()]

        return self._run(work())

    def describe_group(self, group: str) -> DescribedGroup:
        async def work() -> DescribedGroup:
            async with self._admin() as admin:
                (response,) = await admin.describe_consumer_groups([group])
                ((code, _, state, _, _, members, *_),) = response.groups
                _raise(code, None)
                return DescribedGroup(state, len(members))

        return self._run(work())

    def _run(self, work: Coroutine[Any, Any, _Result]) -> _Result:
        with _errors():
            bounded = asyncio.wait_for(work, DEADLINE_SECONDS)
            try:
                return asyncio.run_coroutine_threadsafe(bounded, self._loop).result()
            except TimeoutError as error:
                raise AssertionError(f"aiokafka has not finished within {DEADLINE_SECONDS:g} s") from error

    @asynccontextmanager
    async def _consumer(self, **settings: int | str | None) -> AsyncIterator[AIOKafkaConsumer]:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self.bootstrap_servers,
            enable_auto_commit=False,
            fetch_max_wait_ms=50,  # stop() waits for the fetch that is on its way
            auto_offset_reset="none",
            request_timeout_ms=10_000,
            **settings,
        )
        async with consumer:
            yield consumer

    @asynccontextmanager
    async def _admin(self) -> AsyncIterator[AIOKafkaAdminClient]:
        admin = AIOKafkaAdminClient(bootstrap_servers=self.bootstrap_servers)
        try:
            await admin.start()
            yield admin
        finally:
            await admin.close()


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


def _raise(code: int, message: str | None) -> None:
    if code:
        raise ClientError(ErrorCode(code).name, message or "")


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

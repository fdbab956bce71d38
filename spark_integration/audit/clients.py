"""Counting clients: wrappers of kafka-python, confluent-kafka and aiokafka that keep all methods of the client.

Methods that are not wrapped are passed through to the client. A way of sending that cannot be counted is rejected,
because an incomplete count is worse than none.

A producer's record is counted by its delivery report, or in a transaction by the commit. A record that failed is not
counted. A consumer's record is counted when it is returned to the application.

Counts are sent in calls of the application, never in a callback: kafka-python runs callbacks in the thread that would
have to send.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self

if TYPE_CHECKING:
    from .counting import Counter


def counting_producer(client: Any, counter: Counter) -> Any:
    """A producer that counts, with the methods of ``client``."""
    if _is_async(client, "send"):
        return AiokafkaProducer(client, counter)
    if hasattr(client, "produce"):
        return ConfluentProducer(client, counter)
    if hasattr(client, "send"):
        return KafkaPythonProducer(client, counter)
    raise _unknown(client, "producer")


def counting_consumer(client: Any, counter: Counter) -> Any:
    """A consumer that counts, with the methods of ``client``."""
    if _is_async(client, "getone"):
        return AiokafkaConsumer(client, counter)
    if hasattr(client, "consume"):
        return ConfluentConsumer(client, counter)
    if hasattr(client, "poll") and hasattr(client, "partitions_for_topic"):
        return KafkaPythonConsumer(client, counter)
    raise _unknown(client, "consumer")


def _is_async(client: Any, method: str) -> bool:
    return asyncio.iscoroutinefunction(getattr(client, method, None))


def _unknown(client: Any, kind: str) -> TypeError:
    return TypeError(
        f"{type(client).__qualname__} is not a {kind} of kafka-python, confluent-kafka or aiokafka: count with "
        "Audit.counter(), whose count() takes the topic, partition, offset and timestamp of any record"
    )


class _Counting:
    """A proxy for the client, with a counter."""

    def __init__(self, client: Any, counter: Counter) -> None:
        self._client = client
        self._counter = counter

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)


class _Closing(_Counting, ABC):
    @abstractmethod
    def close(self, *arguments: Any, **options: Any) -> Any:
        """Close the client, after all of its records are counted."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Transactional(_Closing):
    """Both libraries name the methods the same. A failed commit leaves the transaction, and its count, open."""

    def begin_transaction(self) -> None:
        self._client.begin_transaction()
        self._counter.begin()

    def commit_transaction(self, *arguments: Any) -> None:
        # Serve all delivery reports before the commit.
        self._client.flush()
        self._client.commit_transaction(*arguments)
        self._counter.commit()

    def abort_transaction(self, *arguments: Any) -> None:
        self._client.abort_transaction(*arguments)
        self._counter.abort()


# -- kafka-python ------------------------------------------------------------------------------------------------------


class KafkaPythonProducer(_Transactional):
    """``KafkaProducer``. A record is counted by a callback of its future."""

    def send(self, *arguments: Any, **options: Any) -> Any:
        self._counter.send_if_due()
        future = self._client.send(*arguments, **options)
        future.add_callback(self._delivered)
        return future

    def flush(self, timeout: float | None = None) -> None:
        self._client.flush(timeout)
        self._counter.flush()

    def close(self, *arguments: Any, **options: Any) -> None:
        self._client.close(*arguments, **options)
        self._counter.close()

    def _delivered(self, metadata: Any) -> None:
        self._counter.count(metadata.topic, metadata.partition, metadata.offset, metadata.timestamp)


class KafkaPythonConsumer(_Closing):
    """``KafkaConsumer``, polled or iterated."""

    def poll(self, *arguments: Any, **options: Any) -> Any:
        self._counter.send_if_due()
        polled = self._client.poll(*arguments, **options)
        if polled:
            self._counter.count_all(_of_batches(polled))
        return polled

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        record = next(self._client)
        self._counter.count(record.topic, record.partition, record.offset, record.timestamp)
        self._counter.send_if_due()
        return record

    def close(self, *arguments: Any, **options: Any) -> None:
        self._client.close(*arguments, **options)
        self._counter.close()


def _of_batches(polled: dict[Any, list[Any]]) -> Iterator[tuple[str, int, int, int]]:
    for (topic, partition), records in polled.items():
        for record in records:
            yield topic, partition, record.offset, record.timestamp


# -- confluent-kafka ---------------------------------------------------------------------------------------------------


class ConfluentProducer(_Transactional):
    """``Producer`` and ``SerializingProducer``. A record is counted when its delivery report is served."""

    def produce(self, *arguments: Any, **options: Any) -> None:
        self._counter.send_if_due()
        if len(arguments) > 4:
            raise TypeError("pass on_delivery to a counting producer as a keyword argument")
        name = "callback" if "callback" in options else "on_delivery"
        callback = options.get(name)
        options[name] = self._delivered if callback is None else self._delivered_and(callback)
        self._client.produce(*arguments, **options)

    def produce_batch(self, *arguments: Any, **options: Any) -> NoReturn:
        raise TypeError("a counting producer has no produce_batch: only some of its delivery reports could be counted")

    def poll(self, *arguments: Any, **options: Any) -> Any:
        self._counter.send_if_due()
        return self._client.poll(*arguments, **options)

    def flush(self, *arguments: Any, **options: Any) -> Any:
        remaining = self._client.flush(*arguments, **options)
        self._counter.flush()
        return remaining

    def close(self, *arguments: Any, **options: Any) -> Any:
        self._client.flush()
        closed = self._client.close(*arguments, **options) if hasattr(self._client, "close") else None
        self._counter.close()
        return closed

    def __len__(self) -> int:
        return len(self._client)

    def _delivered(self, error: Any, message: Any) -> None:
        if error is None:
            self._counter.count(message.topic(), message.partition(), _placed(message.offset()), message.timestamp()[1])

    def _delivered_and(self, callback: Any) -> Any:
        def delivered(error: Any, message: Any) -> None:
            self._delivered(error, message)
            callback(error, message)

        return delivered


class ConfluentConsumer(_Closing):
    """``Consumer`` and ``DeserializingConsumer``, polled for one record or several."""

    def poll(self, *arguments: Any, **options: Any) -> Any:
        self._counter.send_if_due()
        message = self._client.poll(*arguments, **options)
        if message is not None and message.error() is None:
            self._counter.count(message.topic(), message.partition(), message.offset(), message.timestamp()[1])
        return message

    def consume(self, *arguments: Any, **options: Any) -> Any:
        self._counter.send_if_due()
        messages = self._client.consume(*arguments, **options)
        if messages:
            self._counter.count_all(_of_messages(messages))
        return messages

    def close(self, *arguments: Any, **options: Any) -> None:
        self._client.close(*arguments, **options)
        self._counter.close()


def _of_messages(messages: Iterable[Any]) -> Iterator[tuple[str, int, int, int]]:
    for message in messages:
        if message.error() is None:
            yield message.topic(), message.partition(), message.offset(), message.timestamp()[1]


def _placed(offset: int | None) -> int:
    """The offset, or -1 for librdkafka's special values of an unknown offset."""
    return -1 if offset is None or offset < 0 else offset


# -- aiokafka ----------------------------------------------------------------------------------------------------------


class _Async(_Counting):
    async def stop(self) -> None:
        """Stop the client and close its books. A thread waits for the audit topic."""
        await self._client.stop()
        await asyncio.to_thread(self._counter.close)

    async def __aenter__(self) -> Self:
        await self._client.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()


class AiokafkaProducer(_Async):
    """``AIOKafkaProducer``. A record is counted by a callback of its future."""

    async def send(self, *arguments: Any, **options: Any) -> Any:
        self._counter.send_if_due()
        future = await self._client.send(*arguments, **options)
        future.add_done_callback(self._delivered)
        return future

    async def send_and_wait(self, *arguments: Any, **options: Any) -> Any:
        return await (await self.send(*arguments, **options))

    async def send_batch(self, *arguments: Any, **options: Any) -> NoReturn:
        raise TypeError("a counting producer has no send_batch: the timestamps in a built batch are unknown")

    async def flush(self) -> None:
        await self._client.flush()
        await asyncio.to_thread(self._counter.flush)

    async def begin_transaction(self) -> None:
        await self._client.begin_transaction()
        self._counter.begin()

    async def commit_transaction(self) -> None:
        await self._client.flush()
        await self._client.commit_transaction()
        self._counter.commit()

    async def abort_transaction(self) -> None:
        await self._client.abort_transaction()
        self._counter.abort()

    def transaction(self) -> _Transaction:
        return _Transaction(self)

    def _delivered(self, future: asyncio.Future[Any]) -> None:
        if future.cancelled() or future.exception() is not None:
            return
        metadata = future.result()
        self._counter.count(metadata.topic, metadata.partition, metadata.offset, metadata.timestamp)


class _Transaction:
    """``async with producer.transaction()``: commits at the end of the block, aborts on an exception."""

    def __init__(self, producer: AiokafkaProducer) -> None:
        self._producer = producer

    async def __aenter__(self) -> Self:
        await self._producer.begin_transaction()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            await self._producer.commit_transaction()
        else:
            await self._producer.abort_transaction()


class AiokafkaConsumer(_Async):
    """``AIOKafkaConsumer``: one record, several, or all of them in a loop."""

    async def getone(self, *arguments: Any) -> Any:
        record = await self._client.getone(*arguments)
        self._counter.count(record.topic, record.partition, record.offset, record.timestamp)
        self._counter.send_if_due()
        return record

    async def getmany(self, *arguments: Any, **options: Any) -> Any:
        self._counter.send_if_due()
        polled = await self._client.getmany(*arguments, **options)
        if polled:
            self._counter.count_all(_of_batches(polled))
        return polled

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        record = await anext(self._client)
        self._counter.count(record.topic, record.partition, record.offset, record.timestamp)
        self._counter.send_if_due()
        return record

"""Transactional producers with aiokafka: see ``transactor``. Its event loop runs in a dedicated thread."""

import asyncio
import logging
import threading
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import InvalidProducerEpoch, KafkaError, ProducerFenced

from moldau.testing.clients.transactor import READY_SECONDS, Options, Refused, Transactor, serve

_Result = TypeVar("_Result")

_loop = asyncio.new_event_loop()


def _run(what: Coroutine[Any, Any, _Result]) -> _Result:
    return asyncio.run_coroutine_threadsafe(what, _loop).result(READY_SECONDS)


class AiokafkaTransactor(Transactor):
    """It does not track the group's generation, so offsets are sent for the group only."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._producer: Any = None
        self._consumer: Any = None
        _run(self._open(options))

    async def _open(self, options: Options) -> None:
        self._producer = AIOKafkaProducer(
            bootstrap_servers=options.bootstrap_servers,
            transactional_id=options.transactional_id,
            transaction_timeout_ms=options.timeout_ms,
            compression_type=None if options.codec == "none" else options.codec,
        )
        await self._producer.start()
        if options.group_id is not None:
            self._consumer = AIOKafkaConsumer(
                options.source,
                bootstrap_servers=options.bootstrap_servers,
                group_id=options.group_id,
                enable_auto_commit=False,
                auto_offset_reset="earliest",
                isolation_level="read_committed",
                fetch_max_wait_ms=100,
            )
            await self._consumer.start()

    def begin(self) -> None:
        _run(self._producer.begin_transaction())

    def produce(self, topic: str, partition: int, values: Sequence[str]) -> None:
        async def produced() -> None:
            sent = [await self._producer.send(topic, value.encode(), partition=partition) for value in values]
            await asyncio.gather(*sent)

        _run(produced())

    def pipe(self, target: str, count: int) -> None:
        async def piped() -> None:
            left = count
            offsets: dict[Any, int] = {}
            while left:
                found = await self._consumer.getmany(timeout_ms=500, max_records=left)
                for partition, records in found.items():
                    for record in records:
                        await self._producer.send(target, record.value + b"-piped", partition=partition.partition)
                    left -= len(records)
                    offsets[partition] = records[-1].offset + 1
            await self._producer.send_offsets_to_transaction(offsets, self._options.group_id)

        _run(piped())

    def commit(self) -> None:
        _run(self._producer.commit_transaction())

    def abort(self) -> None:
        _run(self._producer.abort_transaction())


def read(address: str, topics: Sequence[str], committed: bool) -> Mapping[str, Mapping[int, Sequence[str]]]:
    """Up to the ends that the client says are there when it begins."""

    async def records() -> dict[str, dict[int, list[str]]]:
        consumer = AIOKafkaConsumer(
            *topics,
            bootstrap_servers=address,
            auto_offset_reset="earliest",
            isolation_level="read_committed" if committed else "read_uncommitted",
            fetch_max_wait_ms=50,
        )
        await consumer.start()
        found: dict[str, dict[int, list[str]]] = {
            topic: {partition: [] for partition in consumer.partitions_for_topic(topic)} for topic in topics
        }
        partitions = [TopicPartition(topic, partition) for topic, each in found.items() for partition in each]
        # The offsets that this client asks for are those of read_uncommitted, and come without an open transaction.
        ends = await consumer.end_offsets(partitions)
        for partition in partitions:
            await consumer.seek_to_beginning(partition)
        while True:
            for partition, batch in (await consumer.getmany(timeout_ms=200)).items():
                found[partition.topic][partition.partition] += [record.value.decode() for record in batch]
            at = {partition: await consumer.position(partition) for partition in partitions}
            stable = {partition: consumer.last_stable_offset(partition) for partition in partitions}
            limits = {
                partition: ends[partition] if not committed else min(ends[partition], stable[partition] or 0)
                for partition in partitions
            }
            if all(at[partition] >= limits[partition] for partition in partitions) and (
                not committed or all(each is not None for each in stable.values())
            ):
                break
        await consumer.stop()
        return found

    return _run(records())


def refusal(error: Exception) -> Refused | None:
    """In the words of ``transactor``."""
    if isinstance(error, (ProducerFenced, InvalidProducerEpoch)):
        return Refused("FENCED", str(error))
    if isinstance(error, KafkaError):
        return Refused("RETRIABLE" if error.retriable else type(error).__name__, str(error))
    return None


if __name__ == "__main__":
    logging.disable()
    threading.Thread(target=_loop.run_forever, daemon=True).start()
    serve(AiokafkaTransactor, read, refusal)

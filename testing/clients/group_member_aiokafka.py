"""A member of a consumer group with aiokafka: see ``group_member``."""

import asyncio
import logging
import threading
from collections.abc import Iterable
from typing import Any

from aiokafka import AIOKafkaConsumer
from aiokafka.abc import ConsumerRebalanceListener
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.errors import KafkaError

from moldau.testing.clients.group_member import Options, begin, report, report_consumed, reported


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc] # of a package without types
    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer

    def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
        report("revoked", partitions=[each.partition for each in revoked])

    def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
        # There is no public way to ask for the generation.
        generation = self._consumer._coordinator.generation
        report("assigned", partitions=[each.partition for each in assigned], generation=generation)


async def _run(options: Options, leaving: threading.Event) -> None:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=options.bootstrap_servers,
        group_id=options.group_id,
        group_instance_id=options.instance_id,
        partition_assignment_strategy=[RangePartitionAssignor],
        session_timeout_ms=options.session_timeout_ms,
        heartbeat_interval_ms=options.heartbeat_interval_ms,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        fetch_max_wait_ms=100,
    )
    consumer.subscribe([options.topic], listener=_Listener(consumer))
    with reported(KafkaError):
        await consumer.start()
    uncommitted = False
    while not leaving.is_set():
        with reported(KafkaError):
            batches = await consumer.getmany(timeout_ms=100)
        report_consumed((each.partition, each.offset) for records in batches.values() for each in records)
        if not batches and not uncommitted:
            continue
        try:
            await consumer.commit()
        except KafkaError as error:
            uncommitted = True
            report("refused", reason=str(error))
        else:
            uncommitted = False
            report("committed")
    await consumer.stop()
    report("left")


def main() -> None:
    """Be a member until the standard input ends."""
    options, leaving = begin()
    logging.disable()
    asyncio.run(_run(options, leaving))


if __name__ == "__main__":
    main()

"""A member of a consumer group with kafka-python: see ``group_member``."""

import logging
from collections.abc import Iterable
from typing import Any

from kafka import KafkaConsumer
from kafka.consumer.subscription_state import ConsumerRebalanceListener
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.errors import KafkaConnectionError, KafkaError

from moldau.testing.clients.group_member import begin, report, report_consumed, reported


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc] # of a package without types
    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer

    def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
        partitions = [each.partition for each in assigned]
        report("assigned", partitions=partitions, generation=self._consumer.group_metadata().generation_id)

    def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
        report("revoked", partitions=[each.partition for each in revoked])

    def on_partitions_lost(self, lost: Iterable[Any]) -> None:
        report("lost", partitions=[each.partition for each in lost])


def main() -> None:
    """Be a member until the standard input ends."""
    options, leaving = begin()
    logging.disable()
    consumer = KafkaConsumer(
        bootstrap_servers=options.bootstrap_servers,
        group_id=options.group_id,
        group_instance_id=options.instance_id,
        partition_assignment_strategy=[RangePartitionAssignor],
        session_timeout_ms=options.session_timeout_ms,
        heartbeat_interval_ms=options.heartbeat_interval_ms,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        fetch_max_wait_ms=100,
        reconnect_backoff_max_ms=500,
    )
    consumer.subscribe([options.topic], listener=_Listener(consumer))
    # A leader that joins before it knows the topic rejoins when it does, and kafka-python 3.0.12 drops the response to
    # that if a poll times out before it: the member then sends no more heartbeats, and its session expires.
    consumer.partitions_for_topic(options.topic)
    uncommitted = False
    while not leaving.is_set():
        try:
            with reported(KafkaError):
                batches = consumer.poll(timeout_ms=100)
        except KafkaConnectionError:
            # kafka-python raises it if the server restarts during some of its requests. The next poll connects.
            continue
        report_consumed((each.partition, each.offset) for records in batches.values() for each in records)
        if not batches and not uncommitted:
            continue
        try:
            consumer.commit()
        except KafkaError as error:
            uncommitted = True
            report("refused", reason=str(error))
        else:
            uncommitted = False
            report("committed")
    consumer.close()
    report("left")


if __name__ == "__main__":
    main()

"""Consume, transform, produce: each record of the source is in the target once. With kafka-python.

Copy it and put your own work into `transform`. Start any number of instances, each with a different name, and restart
an instance that has died with the same name.
"""

from __future__ import annotations

import argparse
import faulthandler
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.consumer.fetcher import ConsumerRecord
from kafka.errors import KafkaError
from kafka.structs import OffsetAndMetadata

BATCH_RECORDS = 500  # per transaction: more records are cheaper, but become visible later
TRANSACTION_SECONDS = 10  # the server aborts a transaction that takes longer


def transform(value: bytes | None) -> bytes | None:
    """The work. It is repeated for records of an aborted transaction, so it must have no other effects."""
    return value and value.upper()


def main() -> None:
    options = parse_options()
    instance = f"{options.group}-{options.instance}"
    producer = KafkaProducer(
        bootstrap_servers=options.bootstrap_server,
        transactional_id=instance,
        transaction_timeout_ms=TRANSACTION_SECONDS * 1000,
    )
    consumer = KafkaConsumer(
        bootstrap_servers=options.bootstrap_server,
        group_id=options.group,
        # A restarted instance gets the same partitions immediately. Otherwise its old name
        # stays in the group for a session.
        group_instance_id=instance,
        # The transaction commits them.
        enable_auto_commit=False,
        # Also makes the consumer wait for offsets that are in an open transaction of another producer.
        isolation_level="read_committed",
        auto_offset_reset="earliest",
    )
    # Aborts the open transaction of this instance if it died, and fences it if it only seems to be dead. This happens
    # before any record is read: then each offset is known to be committed or not.
    with limited_time():
        producer.init_transactions()
    consumer.subscribe([options.source])
    # A member that joins before it knows the topic joins twice, which may make kafka-python 3.0.12 lose the group.
    consumer.partitions_for_topic(options.source)
    stopping = threading.Event()
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, lambda *_: stopping.set())
    while not stopping.is_set():
        batches = consumer.poll(timeout_ms=500, max_records=BATCH_RECORDS)
        if not batches:
            continue
        with limited_time():
            done = process(consumer, producer, batches, options.target)
        if done:
            print(f"{instance}: {sum(map(len, batches.values()))} records", flush=True)
    consumer.close()
    producer.close()


def process(
    consumer: KafkaConsumer,
    producer: KafkaProducer,
    batches: dict[TopicPartition, list[ConsumerRecord]],
    target: str,
) -> bool:
    """One transaction. If it is aborted, the consumer is reset to its position before, and reads the same again."""
    try:
        producer.begin_transaction()
        sent = [
            producer.send(target, key=record.key, value=transform(record.value))
            for records in batches.values()
            for record in records
        ]
        producer.flush()
        for each in sent:
            each.get()  # raises if this record has failed: commit_transaction may not notice it
        offsets = {
            partition: OffsetAndMetadata(records[-1].offset + 1, "", -1) for partition, records in batches.items()
        }
        # The consumer's metadata and not only its group: a consumer that was removed from the group cannot commit.
        producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
        producer.commit_transaction()
    except KafkaError:
        producer.abort_transaction()  # raises if the program must end, as when another process uses its name
        for partition, records in batches.items():
            consumer.seek(partition, records[0].offset)
        return False
    return True


@contextmanager
def limited_time() -> Iterator[None]:
    """Ends the process if it takes too long; a supervisor must restart it.

    While the server is unavailable, kafka-python 3.0 may lose one of its own requests, and waits forever.
    """
    faulthandler.dump_traceback_later(TRANSACTION_SECONDS, exit=True)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Copy a topic to another one in upper case, exactly once.")
    parser.add_argument("--bootstrap-server", default="127.0.0.1:9092", metavar="HOST:PORT", help="(%(default)s)")
    parser.add_argument("--source", default="words", metavar="TOPIC", help="(%(default)s)")
    parser.add_argument("--target", default="loud-words", metavar="TOPIC", help="(%(default)s)")
    parser.add_argument("--group", default="louder", help="the group of all instances (%(default)s)")
    parser.add_argument("--instance", default="1", help="the name of this instance, which must be unique (%(default)s)")
    return parser.parse_args()


if __name__ == "__main__":
    main()

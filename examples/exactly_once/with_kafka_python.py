"""Consume, transform, produce: each record of the source is in the target once. With kafka-python.

Copy it and put your own work into `transform`. Start as many instances as you like, each with a name of its own, and
start one that has died again under the same name.
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

BATCH_RECORDS = 500  # of a transaction: the more there are, the cheaper each is, and the later it is seen
TRANSACTION_SECONDS = 10  # the server aborts what takes longer


def transform(value: bytes | None) -> bytes | None:
    """The work. It is done again for records whose transaction came to nothing, so it must not do anything else."""
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
        # Comes back to the same partitions at once. Without it, its name stays in the group for a session more.
        group_instance_id=instance,
        # The transaction commits them.
        enable_auto_commit=False,
        # Also has the consumer wait for offsets that are in a transaction of somebody else.
        isolation_level="read_committed",
        auto_offset_reset="earliest",
    )
    # Aborts what this instance had open when it died, and fences it if it only seems to be dead. Before anything is
    # read: then there is no offset that is not known to be committed or not.
    with limited_time():
        producer.init_transactions()
    consumer.subscribe([options.source])
    # A member that joins before it knows the topic joins twice, and kafka-python 3.0.12 may lose the group by that.
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
    """One transaction. If it is aborted, the consumer is back where it was, and reads the same again."""
    try:
        producer.begin_transaction()
        sent = [
            producer.send(target, key=record.key, value=transform(record.value))
            for records in batches.values()
            for record in records
        ]
        producer.flush()
        for each in sent:
            each.get()  # raises if this one has failed: commit_transaction may not know it
        offsets = {
            partition: OffsetAndMetadata(records[-1].offset + 1, "", -1) for partition, records in batches.items()
        }
        # The consumer's metadata and not only its group: who was put out of the group cannot commit any more.
        producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
        producer.commit_transaction()
    except KafkaError:
        producer.abort_transaction()  # raises if there is no way on: above all, if another one has this instance's name
        for partition, records in batches.items():
            consumer.seek(partition, records[0].offset)
        return False
    return True


@contextmanager
def limited_time() -> Iterator[None]:
    """Ends the process if it takes too long; whoever started it has to start it again.

    While the server is away, kafka-python 3.0 may lose a request of its own, and waits for the answer for ever.
    """
    faulthandler.dump_traceback_later(TRANSACTION_SECONDS, exit=True)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Copy a topic into another one in capitals, exactly once.")
    parser.add_argument("--bootstrap-server", default="127.0.0.1:9092", metavar="HOST:PORT", help="(%(default)s)")
    parser.add_argument("--source", default="words", metavar="TOPIC", help="(%(default)s)")
    parser.add_argument("--target", default="loud-words", metavar="TOPIC", help="(%(default)s)")
    parser.add_argument("--group", default="louder", help="all instances are in it (%(default)s)")
    parser.add_argument("--instance", default="1", help="which one this is; no two at the same time (%(default)s)")
    return parser.parse_args()


if __name__ == "__main__":
    main()

"""Consume, transform, produce: each record of the source is in the target once. With confluent-kafka.

Copy it and put your own work into `transform`. Start any number of instances, each with a different name, and restart
an instance that has died with the same name.
"""

from __future__ import annotations

import argparse
import signal
import threading
from collections.abc import Callable

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

BATCH_RECORDS = 500  # per transaction: more records are cheaper, but become visible later
BATCH_SECONDS = 0.5


def transform(value: bytes | None) -> bytes | None:
    """The work. It is repeated for records of an aborted transaction, so it must have no other effects."""
    return value and value.upper()


def main() -> None:
    options = parse_options()
    instance = f"{options.group}-{options.instance}"
    producer = Producer(
        {
            "bootstrap.servers": options.bootstrap_server,
            "transactional.id": instance,
            # By default librdkafka forgets the brokers when it has lost all of them, and then may wait for the group's
            # coordinator forever (https://github.com/confluentinc/librdkafka/issues/5511).
            "metadata.recovery.strategy": "none",
        }
    )
    consumer = Consumer(
        {
            "bootstrap.servers": options.bootstrap_server,
            "group.id": options.group,
            # A restarted instance gets the same partitions immediately. Otherwise its old name
            # stays in the group for a session.
            "group.instance.id": instance,
            # The transaction commits them.
            "enable.auto.commit": False,
            # Also makes the consumer wait for offsets that are in an open transaction of another producer.
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
        }
    )
    # Aborts the open transaction of this instance if it died, and fences it if it only seems to be dead. This happens
    # before any record is read: then each offset is known to be committed or not.
    until_answered(producer.init_transactions)
    consumer.subscribe([options.source])
    stopping = threading.Event()
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, lambda *_: stopping.set())
    while not stopping.is_set():
        messages = consumer.consume(BATCH_RECORDS, BATCH_SECONDS)
        if not messages:
            continue
        if process(consumer, producer, messages, options.target):
            print(f"{instance}: {len(messages)} records", flush=True)
    consumer.close()


def process(consumer: Consumer, producer: Producer, messages: list[Message], target: str) -> bool:
    """One transaction. If it is aborted, the consumer is reset to its position before, and reads the same again."""
    for message in messages:
        if message.error() is not None:
            raise KafkaException(message.error())
    first = {(message.topic(), message.partition()): message.offset() for message in reversed(messages)}
    last = {(message.topic(), message.partition()): message.offset() for message in messages}
    try:
        producer.begin_transaction()
        for message in messages:
            producer.produce(target, key=message.key(), value=transform(message.value()))
        offsets = [TopicPartition(topic, partition, offset + 1) for (topic, partition), offset in last.items()]
        # The consumer's metadata and not only its group: a consumer that was removed from the group cannot commit.
        group = consumer.consumer_group_metadata()
        until_answered(lambda: producer.send_offsets_to_transaction(offsets, group))
        until_answered(producer.commit_transaction)
    except KafkaException as error:
        if not error.args[0].txn_requires_abort():
            raise  # most important: another process uses this instance's name
        until_answered(producer.abort_transaction)
        for (topic, partition), offset in first.items():
            consumer.seek(TopicPartition(topic, partition, offset))
        return False
    return True


def until_answered(call: Callable[[], object]) -> None:
    """Repeat a call until there is a response: without one the outcome is unknown, and the call is idempotent."""
    while True:
        try:
            call()
        except KafkaException as error:
            if not error.args[0].retriable():
                raise
        else:
            return


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

"""Consume, transform, produce: each record of the source is in the target once. With confluent-kafka.

Copy it and put your own work into `transform`. Start as many instances as you like, each with a name of its own, and
start one that has died again under the same name.
"""

from __future__ import annotations

import argparse
import signal
import threading
from collections.abc import Callable

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

BATCH_RECORDS = 500  # of a transaction: the more there are, the cheaper each is, and the later it is seen
BATCH_SECONDS = 0.5


def transform(value: bytes | None) -> bytes | None:
    """The work. It is done again for records whose transaction came to nothing, so it must not do anything else."""
    return value and value.upper()


def main() -> None:
    options = parse_options()
    instance = f"{options.group}-{options.instance}"
    producer = Producer(
        {
            "bootstrap.servers": options.bootstrap_server,
            "transactional.id": instance,
            # By default librdkafka forgets the brokers when it has lost all of them, and then may wait for the group's
            # coordinator for ever (https://github.com/confluentinc/librdkafka/issues/5511).
            "metadata.recovery.strategy": "none",
        }
    )
    consumer = Consumer(
        {
            "bootstrap.servers": options.bootstrap_server,
            "group.id": options.group,
            # Comes back to the same partitions at once. Without it, its name stays in the group for a session more.
            "group.instance.id": instance,
            # The transaction commits them.
            "enable.auto.commit": False,
            # Also has the consumer wait for offsets that are in a transaction of somebody else.
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
        }
    )
    # Aborts what this instance had open when it died, and fences it if it only seems to be dead. Before anything is
    # read: then there is no offset that is not known to be committed or not.
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
    """One transaction. If it is aborted, the consumer is back where it was, and reads the same again."""
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
        # The consumer's metadata and not only its group: who was put out of the group cannot commit any more.
        group = consumer.consumer_group_metadata()
        until_answered(lambda: producer.send_offsets_to_transaction(offsets, group))
        until_answered(producer.commit_transaction)
    except KafkaException as error:
        if not error.args[0].txn_requires_abort():
            raise  # above all: another one has this instance's name now
        until_answered(producer.abort_transaction)
        for (topic, partition), offset in first.items():
            consumer.seek(TopicPartition(topic, partition, offset))
        return False
    return True


def until_answered(call: Callable[[], object]) -> None:
    """Call again while there is no answer: nobody knows whether it was done, and doing it twice is doing it once."""
    while True:
        try:
            call()
        except KafkaException as error:
            if not error.args[0].retriable():
                raise
        else:
            return


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

"""Read every flight back with kafka-python, and compare the records with the file.

Requirements: the same records (key, value, timestamp) and no others; all flights of a plane in one partition, in the
order of the file. Flights without a plane's registration have no key, so they are in any partition and order.
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Iterator

from flights import FLIGHTS, argument_parser, read_flights
from kafka import KafkaConsumer, TopicPartition
from kafka.consumer.fetcher import ConsumerRecord
from rich.progress import track

Content = tuple[bytes, int]  # value, timestamp


def main() -> None:
    options = argument_parser("Compare the topic of the flights with the file.").parse_args()
    partition_of: dict[bytes, int] = {}
    received: defaultdict[bytes | None, list[Content]] = defaultdict(list)
    for record in track(read_topic(options.bootstrap_server, options.topic), "reading back", total=FLIGHTS):
        if record.key is not None and partition_of.setdefault(record.key, record.partition) != record.partition:
            sys.exit(f"plane {record.key.decode()} is in partitions {partition_of[record.key]} and {record.partition}")
        received[record.key].append((record.value, record.timestamp))

    expected: defaultdict[bytes | None, list[Content]] = defaultdict(list)
    for flight in track(read_flights(), "comparing", total=FLIGHTS):
        expected[flight.key].append((flight.value, flight.timestamp_ms))

    for key in expected.keys() | received.keys():
        same = Counter(expected[key]) == Counter(received[key]) if key is None else expected[key] == received[key]
        if not same:
            plane = "no registration" if key is None else key.decode()
            sys.exit(f"{plane}: {len(expected[key])} flights in the file, {len(received[key])} others in the topic")
    count = sum(map(len, received.values()))
    print(f"{count:,} flights of {len(partition_of):,} planes in the topic match the file")


def read_topic(bootstrap_server: str, topic: str) -> Iterator[ConsumerRecord]:
    """Every current record of the topic. No consumer group: partitions are assigned, no offsets are committed."""
    consumer = KafkaConsumer(bootstrap_servers=bootstrap_server, group_id=None, enable_auto_commit=False)
    try:
        numbers = consumer.partitions_for_topic(topic)
        if not numbers:
            sys.exit(f"there is no topic {topic}: python produce.py creates it")
        partitions = [TopicPartition(topic, number) for number in sorted(numbers)]
        consumer.assign(partitions)
        consumer.seek_to_beginning()
        ends = consumer.end_offsets(partitions)
        while any(consumer.position(partition) < ends[partition] for partition in partitions):
            for records in consumer.poll(timeout_ms=1000).values():
                yield from records
    finally:
        consumer.close()


if __name__ == "__main__":
    main()

"""Create the topic of the flights and produce all flights, with confluent-kafka."""

from __future__ import annotations

import sys

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from flights import FLIGHTS, PARTITIONS, argument_parser, make_topic, read_flights
from rich.progress import track


def main() -> None:
    options = argument_parser("Produce the flights of 2013.").parse_args()
    if not make_topic(options.bootstrap_server, options.topic, PARTITIONS):
        topic = options.topic
        sys.exit(f"the topic {topic} exists already: `moldau topics delete {topic}`, or use --topic")
    produced = produce(options.bootstrap_server, options.topic)
    print(f"{produced:,} flights are in the topic {options.topic}")


def produce(bootstrap_server: str, topic: str) -> int:
    """Produce all flights and wait for their acknowledgements; returns how many were acknowledged."""
    producer = Producer({"bootstrap.servers": bootstrap_server, "enable.idempotence": True, "compression.type": "gzip"})
    acknowledged = 0

    def count(error: KafkaError | None, message: Message) -> None:
        nonlocal acknowledged
        if error is not None:
            raise KafkaException(error)
        acknowledged += 1

    for flight in track(read_flights(), "producing", total=FLIGHTS):
        while True:
            try:
                producer.produce(
                    topic, key=flight.key, value=flight.value, timestamp=flight.timestamp_ms, on_delivery=count
                )
                break
            except BufferError:
                producer.poll(0.1)  # its queue is full: serve some delivery reports
        producer.poll(0)
    producer.flush()
    return acknowledged


if __name__ == "__main__":
    main()

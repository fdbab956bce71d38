"""Create the topics, fill those of the weather and the planes, and replay the flights in the order of event time.

The replay sends a quarter of an hour of events, waits until all of them are acknowledged, and only then begins the next
quarter. So a reader of all partitions that has seen an event of some quarter has seen every event of earlier ones, in
all partitions. Therefore a watermark of a few hours is safe here. Otherwise, a lead of one partition of some
milliseconds would be hours at this speed.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from itertools import groupby

import events
from confluent_kafka import KafkaError, KafkaException, Message, Producer
from events import Record
from rich.progress import Progress
from topics import (
    TopicExistsError,
    Topics,
    add_period_options,
    add_server_options,
    add_speed_option,
    make_topics,
    period_of,
)

# Called with the time up to which all events were sent, and their number so far.
OnSent = Callable[[datetime, int], None]

SLICE = timedelta(minutes=15)

# As in any registry, some records had to be corrected: one of this many keys is sent twice, the first time wrong.
CORRECTED = 10


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add_server_options(parser)
    add_period_options(parser)
    add_speed_option(parser)
    options = parser.parse_args()
    period, topics = period_of(parser, options), Topics.named(options.prefix)
    try:
        make_topics(options.bootstrap_server, topics)
    except TopicExistsError as error:
        sys.exit(str(error))
    produce_reference(options.bootstrap_server, topics)
    hours = (period.end - period.start) / events.HOUR
    with Progress() as progress:
        task = progress.add_task("replaying", total=hours)

        def on_sent(until: datetime, sent: int) -> None:
            progress.update(task, completed=(until - period.start) / events.HOUR, description=f"{until:%d %B %H:%M}")

        sent = replay(options.bootstrap_server, topics, events.events(period), options.speed, on_sent)
    print(f"{sent:,} events are in the topic {topics.flights}")


def produce_reference(bootstrap_server: str, topics: Topics) -> int:
    """Fill the topics of the weather and the planes; returns the number of records."""
    producer = _Producer(bootstrap_server)
    for topic, records in ((topics.weather, list(events.weather())), (topics.planes, list(events.planes()))):
        for record in _with_corrections(records):
            producer.send(topic, record)
    producer.wait_all_acknowledged()
    return producer.acknowledged


def replay(
    bootstrap_server: str,
    topics: Topics,
    records: Iterable[Record],
    hours_per_second: float,
    on_sent: OnSent = lambda until, sent: None,
) -> int:
    """Send the events, which are in the order of event time, at this speed (0: no delays); returns their number."""
    producer = _Producer(bootstrap_server)
    began = time.monotonic()
    first: datetime | None = None
    for moment, of_slice in groupby(records, key=_slice_of):
        first = first or moment
        if hours_per_second:
            due = began + (moment - first) / events.HOUR / hours_per_second
            time.sleep(max(0.0, due - time.monotonic()))
        for record in of_slice:
            producer.send(topics.flights, record)
        producer.wait_all_acknowledged()
        on_sent(moment + SLICE, producer.acknowledged)
    return producer.acknowledged


def _slice_of(record: Record) -> datetime:
    return record.timestamp - (record.timestamp - datetime.min.replace(tzinfo=UTC)) % SLICE


def _with_corrections(records: list[Record]) -> Iterable[Record]:
    """A table with corrections: some keys occur twice, and the second value counts."""
    for record in records[::CORRECTED]:
        wrong = {name: 1 if isinstance(value, int | float) else value for name, value in record.value.items()}
        yield record._replace(value=wrong)
    yield from records


class _Producer:
    """A producer without duplicates and losses, which raises errors of deliveries."""

    def __init__(self, bootstrap_server: str) -> None:
        self.acknowledged = 0
        self._producer = Producer(
            {"bootstrap.servers": bootstrap_server, "enable.idempotence": True, "compression.type": "lz4"}
        )

    def send(self, topic: str, record: Record) -> None:
        while True:
            try:
                self._producer.produce(
                    topic,
                    key=record.key,
                    value=record.value_bytes,
                    timestamp=record.timestamp_ms,
                    on_delivery=self._delivered,
                )
                break
            except BufferError:
                self._producer.poll(0.1)  # its queue is full: serve some delivery reports
        self._producer.poll(0)

    def wait_all_acknowledged(self) -> None:
        self._producer.flush()

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            raise KafkaException(error)
        self.acknowledged += 1


if __name__ == "__main__":
    main()

"""What a task of a replay does, on whichever machine it runs: it sends the records of its Kafka partitions, in order.

An idempotent producer keeps the order and stores nothing twice while it lives. A second one knows nothing of the first:
when a task is tried again, or a replay is resumed, what the first has stored is the beginning of the same sequence, and
is told from the end of the partition. The last record that is there is compared with the row that it must be.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby, islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from confluent_kafka import Message, Producer

_ANSWER_S = 30.0
_NO_ROOM_S = 0.5


class ArchivedRow(Protocol):
    """A row of the archive as it is given to a task."""

    partition: int
    offset: int
    timestamp_ms: int
    key: bytearray | None
    value: bytearray | None
    headers: list[Any] | None


@dataclass(frozen=True, slots=True)
class Destination:
    """Where the records go. ``bases``: of each partition, the offset at which the first of them is."""

    topic: str
    bases: Mapping[int, int]
    resume: bool
    # Of librdkafka.
    producer: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Sent:
    """What became of one partition: records that were there already, records sent, and what went wrong."""

    partition: int
    found: int
    sent: int
    problem: str = ""


class _RefusedError(Exception):
    """A partition cannot be filled any further; the text says why."""


def send_partitions(rows: Iterable[ArchivedRow], destination: Destination) -> Iterator[Sent]:
    """Send rows that are sorted by partition and offset, and contain all of each partition that they contain."""
    for partition, rows_of_partition in groupby(rows, key=attrgetter("partition")):
        yield _send_partition(partition, rows_of_partition, destination)


def _send_partition(partition: int, rows: Iterator[ArchivedRow], destination: Destination) -> Sent:
    from confluent_kafka import KafkaException

    found, outcome = 0, _Outcome()
    try:
        if destination.resume or _is_tried_again():
            found = _skip_stored(partition, rows, destination)
        _send(partition, rows, destination, outcome)
    except _RefusedError as problem:
        return Sent(partition, found, outcome.stored, f"partition {partition}: {problem}")
    except KafkaException as error:
        return Sent(partition, found, outcome.stored, f"partition {partition}: {error.args[0].str()}")
    return Sent(partition, found, outcome.stored)


class _Outcome:
    """What the producer has been told of its records."""

    def __init__(self) -> None:
        self.stored = 0
        self._refusal = ""
        self._end = ""
        self._unexplained = ""

    @property
    def problem(self) -> str:
        """Why not everything was stored: what has ended the producer, or else the first record that was not taken."""
        return self._end or self._refusal or self._unexplained

    def on_delivery(self, error: Any, _message: Message) -> None:
        if error is None:
            self.stored += 1
        elif not self._refusal:
            self._refusal = f"the server has not taken a record: {error.str()} ({error.name().lstrip('_')})"

    @contextmanager
    def ended_by_fatal_error(self) -> Iterator[None]:
        """Around every call of the producer, which may raise what has ended it.

        confluent-kafka raises in the middle of its other reports; one of these then fails with a SystemError. It may
        even lose what it raised: then a report that is still to come says why.
        """
        from confluent_kafka import KafkaException

        try:
            yield
        except (KafkaException, SystemError) as error:
            cause = error if isinstance(error, KafkaException) else error.__cause__
            if isinstance(cause, KafkaException):
                self._end = self._end or f"the producer has ended: {cause.args[0].str()}"
            elif cause is None:
                self._unexplained = f"the producer has ended: {error}"
            else:
                raise


def _send(partition: int, rows: Iterator[ArchivedRow], destination: Destination, outcome: _Outcome) -> None:
    from confluent_kafka import Producer

    producer = Producer(dict(destination.producer))
    for row in rows:
        with outcome.ended_by_fatal_error():
            while not _is_taken(producer, partition, row, destination.topic, outcome):
                producer.poll(_NO_ROOM_S)
            producer.poll(0)
        if outcome.problem:
            # What was not sent yet must not be stored behind what failed.
            producer.purge(in_flight=False)
            break
    _wait_answered(producer, outcome)
    if outcome.problem:
        raise _RefusedError(outcome.problem)


def _wait_answered(producer: Producer, outcome: _Outcome) -> None:
    """Return when there is a report of each record.

    After a fatal error librdkafka may put records back into its queue that were on their way, and leave them there for
    `message.timeout.ms`: so the queue is purged until nothing is left.
    """
    left = True
    while left:
        with outcome.ended_by_fatal_error():
            left = producer.flush(_NO_ROOM_S) > 0
        if outcome.problem:
            producer.purge(in_flight=False)


def _is_taken(producer: Producer, partition: int, row: ArchivedRow, topic: str, outcome: _Outcome) -> bool:
    """Give a record to the producer; False while it has no room."""
    try:
        producer.produce(
            topic,
            partition=partition,
            key=_bytes(row.key),
            value=_bytes(row.value),
            headers=_headers(row),
            timestamp=row.timestamp_ms,
            on_delivery=outcome.on_delivery,
        )
    except BufferError:
        return False
    return True


def _skip_stored(partition: int, rows: Iterator[ArchivedRow], destination: Destination) -> int:
    """Pass over the rows that the partition has already, and return how many they are."""
    from confluent_kafka import Consumer, TopicPartition

    # Nothing is committed, and no group is joined; librdkafka wants a name for one all the same.
    settings = {name: value for name, value in destination.producer.items() if not _is_for_producers(name)}
    consumer = Consumer({**settings, "group.id": "moldau-replay", "enable.auto.commit": False})
    try:
        base = destination.bases[partition]
        where = TopicPartition(destination.topic, partition)
        _, end = consumer.get_watermark_offsets(where, timeout=_ANSWER_S)
        if end <= base:
            return 0
        stored = end - base
        last_row = next(islice(rows, stored - 1, None), None)
        if last_row is None:
            raise _RefusedError(
                f"{destination.topic} has {stored} records there, and the archive fewer: it holds others too"
            )
        consumer.assign([TopicPartition(destination.topic, partition, end - 1)])
        message = consumer.poll(_ANSWER_S)
        if message is None or message.error():
            raise _RefusedError(f"the record at offset {end - 1} of {destination.topic} cannot be read")
        if not _is_stored_as(last_row, message):
            raise _RefusedError(
                f"the record at offset {end - 1} of {destination.topic} is not the one of the archive (offset "
                f"{last_row.offset} there): it was not filled by this replay"
            )
        return int(stored)
    finally:
        consumer.close()


def _is_stored_as(row: ArchivedRow, message: Message) -> bool:
    _, timestamp_ms = message.timestamp()
    content = (message.key(), message.value(), timestamp_ms, list(message.headers() or []))
    return content == (_bytes(row.key), _bytes(row.value), row.timestamp_ms, _headers(row))


def _headers(row: ArchivedRow) -> list[tuple[str, bytes | None]]:
    return [(header.key, _bytes(header.value)) for header in row.headers or ()]


def _bytes(value: bytearray | None) -> bytes | None:
    return None if value is None else bytes(value)


_FOR_PRODUCERS = (
    "enable.idempotence",
    "enable.gapless.guarantee",
    "compression.type",
    "linger.ms",
    "batch.size",
    "message.max.bytes",
    "queue.buffering.max.kbytes",
)


def _is_for_producers(name: str) -> bool:
    return name in _FOR_PRODUCERS


def _is_tried_again() -> bool:
    """Spark has run this task before: its worker was lost."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return context is not None and context.attemptNumber() > 0

"""A task of a replay, which may run on any machine: it sends the records of its Kafka partitions, in order.

An idempotent producer keeps the order and stores no duplicates as long as it exists. A second producer has no
information about the first. When a task is retried or a replay is resumed, the records that the first producer has
stored are a prefix of the same sequence, whose length follows from the end of the partition. The last stored record is
compared with its row.
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
    """A row of the archive as it is passed to a task."""

    partition: int
    offset: int
    timestamp_ms: int
    key: bytearray | None
    value: bytearray | None
    headers: list[Any] | None


@dataclass(frozen=True, slots=True)
class Destination:
    """Where the records go. ``bases``: for each partition, the offset of its first record."""

    topic: str
    bases: Mapping[int, int]
    resume: bool
    # Settings of librdkafka.
    producer: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Sent:
    """The result for one partition: the records found, the records sent, and the problem, if any."""

    partition: int
    found: int
    sent: int
    problem: str = ""


class _RefusedError(Exception):
    """No more records can be sent to a partition; the text states the reason."""


def send_partitions(rows: Iterable[ArchivedRow], destination: Destination) -> Iterator[Sent]:
    """Send rows that are sorted by partition and offset, and that include all rows of each of their partitions."""
    for partition, rows_of_partition in groupby(rows, key=attrgetter("partition")):
        yield _send_partition(partition, rows_of_partition, destination)


def _send_partition(partition: int, rows: Iterator[ArchivedRow], destination: Destination) -> Sent:
    from confluent_kafka import KafkaException

    found, outcome = 0, _Outcome()
    try:
        if destination.resume or _is_task_retry():
            found = _skip_stored(partition, rows, destination)
        _send(partition, rows, destination, outcome)
    except _RefusedError as problem:
        return Sent(partition, found, outcome.stored, f"partition {partition}: {problem}")
    except KafkaException as error:
        return Sent(partition, found, outcome.stored, f"partition {partition}: {error.args[0].str()}")
    return Sent(partition, found, outcome.stored)


class _Outcome:
    """The delivery reports of the producer."""

    def __init__(self) -> None:
        self.stored = 0
        self._refusal = ""
        self._end = ""
        self._unexplained = ""

    @property
    def problem(self) -> str:
        """Why some records were not stored: the error that ended the producer, or else the first rejected record."""
        return self._end or self._refusal or self._unexplained

    def on_delivery(self, error: Any, _message: Message) -> None:
        if error is None:
            self.stored += 1
        elif not self._refusal:
            self._refusal = f"the server rejected a record: {error.str()} ({error.name().lstrip('_')})"

    @contextmanager
    def ended_by_fatal_error(self) -> Iterator[None]:
        """Wraps every call of the producer, which may raise the error that has ended the producer.

        confluent-kafka raises this error while it delivers other reports; one of these then fails with a SystemError.
        The error may even be lost. Then a later report states the reason.
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
            while not _try_produce(producer, partition, row, destination.topic, outcome):
                producer.poll(_NO_ROOM_S)
            producer.poll(0)
        if outcome.problem:
            # Records that were not sent yet must not be stored after the failed one.
            producer.purge(in_flight=False)
            break
    _wait_answered(producer, outcome)
    if outcome.problem:
        raise _RefusedError(outcome.problem)


def _wait_answered(producer: Producer, outcome: _Outcome) -> None:
    """Return when each record has a report.

    After a fatal error, librdkafka may put records that were in flight back into its queue, and leave them there for
    `message.timeout.ms`. So the queue is purged until it is empty.
    """
    left = True
    while left:
        with outcome.ended_by_fatal_error():
            left = producer.flush(_NO_ROOM_S) > 0
        if outcome.problem:
            producer.purge(in_flight=False)


def _try_produce(producer: Producer, partition: int, row: ArchivedRow, topic: str, outcome: _Outcome) -> bool:
    """Pass a record to the producer; False while the producer has no room."""
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
    """Skip the rows that are already in the partition, and return their number."""
    from confluent_kafka import Consumer, TopicPartition

    # No offsets are committed and no group is joined, but librdkafka requires a group id.
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
                f"{destination.topic} has {stored} records there, more than the archive: some are not from it"
            )
        consumer.assign([TopicPartition(destination.topic, partition, end - 1)])
        message = consumer.poll(_ANSWER_S)
        if message is None or message.error():
            raise _RefusedError(f"the record at offset {end - 1} of {destination.topic} cannot be read")
        if not _is_stored_as(last_row, message):
            raise _RefusedError(
                f"the record at offset {end - 1} of {destination.topic} is not the archived one (archived offset "
                f"{last_row.offset}): the topic was not filled by this replay"
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


def _is_task_retry() -> bool:
    """Whether Spark has run this task before, for example on a lost executor."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return context is not None and context.attemptNumber() > 0

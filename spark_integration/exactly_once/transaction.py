"""A task, which may run on any machine: it writes a writer's part of a batch, unless the part is already written.

The order makes it exact. First the transactional id is initialized. From then on, no other task with this part (of a
dead driver, or one that Spark has replaced) can commit, and earlier commits are visible. Only then is the last marker
read. Then the part is either already written, or it is not and no other task will write it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

from .errors import ExactlyOnceError
from .history import HistoryReader
from .marker import Batch, Content, Marker, Part, check_same, standing
from .producer import TransactionalProducer
from .rows import SinkRow
from .settings import ClientSettings


@dataclass(frozen=True, slots=True)
class Job:
    """The parameters of all tasks of a batch."""

    batch: Batch
    batches_topic: str
    settings: ClientSettings


@dataclass(frozen=True, slots=True)
class PartWritten:
    """The result of a part: rows written now, rows that were already written, or the problem."""

    writer: int
    written: int = 0
    found: int = 0
    problem: str = ""


def write_part(partition: int, rows: Iterable[SinkRow], job: Job) -> Iterator[PartWritten]:
    """Write the rows of one of Spark's partitions, if there are any, as the part of one writer.

    Permanent errors are returned as values, so that Spark does not retry the task.
    """
    rows = iter(rows)
    first = next(rows, None)
    if first is None:
        return
    writer = partition if job.batch.split == "content" else first[-1]
    try:
        if writer is None or not 0 <= writer < job.batch.writers:
            raise ExactlyOnceError(
                f"a row names the writer {writer}, but the query has {job.batch.writers}, numbered from 0"
            )
        yield _write_part(writer, chain([first], rows), job)
    except ExactlyOnceError as error:
        yield PartWritten(-1 if writer is None else writer, problem=str(error))


def _write_part(writer: int, rows: Iterator[SinkRow], job: Job) -> PartWritten:
    producer = TransactionalProducer(job.settings, f"{job.batch.query_name}-{writer}")
    producer.initialize()
    with HistoryReader(job.settings, job.batches_topic) as history:
        last = history.last(writer)
    if last is not None and standing(last, job.batch) is Part.WRITTEN:
        return _compare(writer, last, rows, job.batch)
    return PartWritten(writer, written=_send(writer, rows, job, producer).rows)


def _compare(writer: int, last: Marker, rows: Iterator[SinkRow], batch: Batch) -> PartWritten:
    content = Content()
    for row in rows:
        content = content.and_row(row[-2])
    check_same(last, content, batch, writer)
    return PartWritten(writer, found=last.content.rows)


def _send(writer: int, rows: Iterator[SinkRow], job: Job, producer: TransactionalProducer) -> Content:
    """All rows and the marker, in one transaction."""
    producer.begin()
    try:
        content = Content()
        for key, value, headers, topic, partition, row_hash, named_writer in rows:
            if named_writer is not None and named_writer != writer:
                raise ExactlyOnceError(
                    f"one of Spark's partitions has rows of the writers {writer} and {named_writer}: all rows of a "
                    "partition must name the same writer"
                )
            if topic is None:
                raise ExactlyOnceError(
                    "a row has no topic: its column topic is null. Set it, or name a topic with topic="
                )
            plain = [(name, _bytes(header)) for name, header in headers or ()]
            producer.send(topic, partition, _bytes(key), _bytes(value), plain)
            content = content.and_row(row_hash)
        marker = Marker.of(job.batch, content)
        producer.send(job.batches_topic, writer, b"%d" % writer, marker.to_json(), ())
        producer.commit()
    except BaseException:
        # Also when reading the rows fails.
        producer.abort()
        raise
    return content


def _bytes(value: bytearray | None) -> bytes | None:
    return None if value is None else bytes(value)

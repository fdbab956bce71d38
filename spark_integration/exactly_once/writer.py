"""The driver's part: it sees to it that the batch is the query's next one, and hands the parts to tasks.

What was written before is looked at whenever a batch may have run before: at a query's start, and after anything but
a batch that was whole. Otherwise a batch is new, since Spark counts on only when the one before is done.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING

from moldau.spark_integration.options import HasBootstrapServers
from moldau.spark_integration.tasks import use_this_python

from .errors import ExactlyOnceError
from .history import DEFAULT_WRITERS, HistoryReader, find_history, make_history
from .marker import Batch, Content, Marker, Part, Split, check_same, standing
from .rows import SinkRow, sink_rows, split_by_content
from .settings import ClientSettings, check_given
from .transaction import Job, PartWritten, write_part

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_logger = logging.getLogger(__name__)

# Spark's name of the property that says which query calls; the id is the checkpoint's.
_QUERY_ID = "sql.streaming.queryId"

_QUERY_NAME = re.compile(r"[A-Za-z0-9._-]{1,200}")


class ExactlyOnceWriter:
    """Writes each row of a streaming query to Kafka exactly once: an argument for ``foreachBatch``.

    ``broker``: an address ``HOST:PORT``, or something that has one.
    ``query_name``: a name that no other query has, of letters, digits, ``.``, ``_`` and ``-``. Transactional ids are
    made of it.
    ``topic``: where all rows go; without it each row names a topic in its column ``topic``.
    ``writers``: into how many transactions a batch is split, 4 by default. It stays for the life of the query. With 1 a
    batch becomes visible as a whole.
    ``writer_column``: a column that numbers the writers from 0, with one number in each of Spark's partitions. Then
    nothing is shuffled.
    ``first_batch``: the number of the first batch that this writer gets, for a checkpoint that had another sink before.
    ``transaction_timeout_ms``: how long writing a part may take. Readers of a query that has died wait at most as long.
    ``client``: settings of librdkafka (``security.protocol``, ``compression.type``, ...), for all clients of the
    writer.
    ``batches_topic``: where it is kept what was written, ``_batches-<query_name>`` by default.

    A ValueError says what is wrong with these. What is found out later is an :class:`ExactlyOnceError`, which ends
    the query.
    """

    def __init__(
        self,
        broker: HasBootstrapServers | str,
        query_name: str,
        *,
        topic: str | None = None,
        writers: int | None = None,
        writer_column: str | None = None,
        first_batch: int = 0,
        transaction_timeout_ms: int = 300_000,
        client: Mapping[str, str] | None = None,
        batches_topic: str | None = None,
    ) -> None:
        if not _QUERY_NAME.fullmatch(query_name):
            raise ValueError(f"query_name {query_name!r}: up to 200 letters, digits, '.', '_' and '-' are a name")
        if writers is not None and writers < 1:
            raise ValueError(f"writers={writers}: there has to be at least one")
        if transaction_timeout_ms < 1000:
            raise ValueError(f"transaction_timeout_ms={transaction_timeout_ms}: no batch is written in less than 1000")
        check_given(client or {}, transaction_timeout_ms)
        self._query_name = query_name
        self._topic = topic
        self._writers = writers
        self._writer_column = writer_column
        self._split: Split = "content" if writer_column is None else "column"
        self._first_batch = first_batch
        self._batches_topic = batches_topic or f"_batches-{query_name}"
        address = broker if isinstance(broker, str) else broker.bootstrap_servers
        self._settings = ClientSettings(address, transaction_timeout_ms, dict(client or {}))
        _check_known_to_librdkafka(self._settings)
        # The last batch that was whole, and the number of writers then.
        self._whole: Batch | None = None

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        """What ``foreachBatch`` calls. When this returns, each row of the batch is in Kafka once."""
        query_id = frame.sparkSession.sparkContext.getLocalProperty(_QUERY_ID)
        if query_id is None:
            raise ExactlyOnceError(
                "this is not a batch of a streaming query: give the writer to foreachBatch, or call it there"
            )
        whole, self._whole = self._whole, None
        known: dict[int, Marker] = {}
        if whole is not None and (whole.query_id, whole.number + 1) == (query_id, batch_id):
            batch = Batch(self._query_name, query_id, batch_id, whole.writers, self._split)
        else:
            batch, known = self._look_back(query_id, batch_id)
        rows = sink_rows(frame, self._topic, self._writer_column)
        parts = self._write(rows, Job(batch, self._batches_topic, self._settings))
        _check_parts(parts, known, batch)
        _logger.info(
            "%s: batch %d is written: %d rows now, %d were there already",
            self._query_name,
            batch_id,
            sum(part.written for part in parts),
            sum(part.found for part in parts),
        )
        self._whole = batch

    def _look_back(self, query_id: str, number: int) -> tuple[Batch, dict[int, Marker]]:
        """The batch with its number of writers, and its markers so far. ExactlyOnceError if it must not be written."""
        there = find_history(self._settings, self._batches_topic)
        if there is None:
            if number > self._first_batch:
                raise ExactlyOnceError(
                    f"the checkpoint of {self._query_name} is at batch {number}, and there is no topic "
                    f"{self._batches_topic} that says what was written before. If it was deleted, look how much of "
                    f"this batch was written. To begin with this batch, give first_batch={number}"
                )
            there = self._writers or DEFAULT_WRITERS
            make_history(self._settings, self._batches_topic, there)
        batch = Batch(self._query_name, query_id, number, there, self._split)
        known: dict[int, Marker] = {}
        with HistoryReader(self._settings, self._batches_topic) as history:
            for writer in range(there):
                last = history.last(writer)
                if last is not None and standing(last, batch) is Part.WRITTEN:
                    known[writer] = last
        if self._writers not in (None, there):
            raise ExactlyOnceError(self._other_writers(batch, there, bool(known)))
        return batch, known

    def _other_writers(self, batch: Batch, there: int, begun: bool) -> str:
        text = (
            f"{self._query_name} was begun with {there} writers, and this is {self._writers}: writers={there} goes on. "
        )
        if begun:
            return f"{text}(Batch {batch.number} is written in part, and only they can finish it)"
        return (
            f"{text}Nothing of batch {batch.number} is written yet, so it can also go on under another query_name, "
            f"with first_batch={batch.number}"
        )

    def _write(self, rows: DataFrame, job: Job) -> list[PartWritten]:
        use_this_python(rows.sparkSession)
        split = split_by_content(rows, job.batch.writers) if self._split == "content" else rows
        parts: list[PartWritten] = split.rdd.mapPartitionsWithIndex(partial(_task, job)).collect()
        return parts


def _task(job: Job, writer: int, rows: Iterable[SinkRow]) -> Iterator[PartWritten]:
    return write_part(writer, rows, job)


def _check_parts(parts: list[PartWritten], known: Mapping[int, Marker], batch: Batch) -> None:
    """ExactlyOnceError unless every part is written, by a writer that has only this one."""
    problems = sorted({part.problem for part in parts if part.problem})
    if problems:
        raise ExactlyOnceError(problems[0] + (f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""))
    writers = Counter(part.writer for part in parts)
    for writer, count in writers.items():
        if count > 1:
            raise ExactlyOnceError(
                f"{count} of Spark's partitions have the number {writer}: each needs a writer of its own"
            )
    for writer, marker in known.items():
        if writer not in writers:
            check_same(marker, Content(), batch, writer)


def _check_known_to_librdkafka(settings: ClientSettings) -> None:
    try:
        from confluent_kafka import KafkaException, Producer
    except ImportError as error:
        raise ValueError("confluent-kafka is not installed: pip install confluent-kafka") from error
    try:
        Producer(settings.producer("checked"))
    except KafkaException as error:
        raise ValueError(f"librdkafka does not take these settings: {error.args[0].str()}") from error

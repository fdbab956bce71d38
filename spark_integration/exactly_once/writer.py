"""The driver's part: it checks that the batch is the query's next one, and passes the parts to tasks.

The markers are read whenever a batch may have run before: at the start of a query, and after any batch that did not
complete. Otherwise a batch is new, since Spark increases the number only after the previous batch is complete.
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
from .history import DEFAULT_WRITERS, HistoryReader, create_history, find_history
from .marker import Batch, Content, Marker, Part, Split, check_same, standing
from .rows import SinkRow, sink_rows, split_by_content
from .settings import ClientSettings, check_given
from .transaction import Job, PartWritten, write_part

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_logger = logging.getLogger(__name__)

# Spark's name of the property with the id of the running query, which is stored in the checkpoint.
_QUERY_ID = "sql.streaming.queryId"

_QUERY_NAME = re.compile(r"[A-Za-z0-9._-]{1,200}")


class ExactlyOnceWriter:
    """Writes each row of a streaming query to Kafka exactly once: an argument for ``foreachBatch``.

    ``broker``: an address ``HOST:PORT``, or an object with one.
    ``query_name``: a name that no other query has, of letters, digits, ``.``, ``_`` and ``-``. Transactional ids are
    derived from it.
    ``topic``: the topic of all rows; without it each row names a topic in its column ``topic``.
    ``writers``: the number of transactions into which a batch is split, 4 by default. It is fixed for the life of the
    query. With 1, a batch becomes visible as a whole.
    ``writer_column``: a column that contains the number of the writer, from 0; it must be constant within each of
    Spark's partitions. Then no rows are shuffled.
    ``first_batch``: the number of this writer's first batch, for a checkpoint that previously had another sink.
    ``transaction_timeout_ms``: the time limit for writing a part, and for how long a crashed query blocks readers.
    ``client``: settings of librdkafka (``security.protocol``, ``compression.type``, ...), for all clients of the
    writer.
    ``batches_topic``: the topic of the markers, ``_batches-<query_name>`` by default.

    Invalid arguments raise a ValueError. Later errors are an :class:`ExactlyOnceError`, which ends the query.
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
            raise ValueError(f"query_name {query_name!r}: it must be up to 200 letters, digits, '.', '_' and '-'")
        if writers is not None and writers < 1:
            raise ValueError(f"writers={writers}: it must be at least one")
        if transaction_timeout_ms < 1000:
            raise ValueError(f"transaction_timeout_ms={transaction_timeout_ms}: it must be at least 1000")
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
        # The last batch that was complete, and its number of writers.
        self._whole: Batch | None = None

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        """Called by ``foreachBatch``. When this returns, each row of the batch is in Kafka once."""
        query_id = frame.sparkSession.sparkContext.getLocalProperty(_QUERY_ID)
        if query_id is None:
            raise ExactlyOnceError(
                "this is not a batch of a streaming query: pass the writer to foreachBatch, or call it there"
            )
        whole, self._whole = self._whole, None
        known: dict[int, Marker] = {}
        if whole is not None and (whole.query_id, whole.number + 1) == (query_id, batch_id):
            batch = Batch(self._query_name, query_id, batch_id, whole.writers, self._split)
        else:
            batch, known = self._find_previous(query_id, batch_id)
        rows = sink_rows(frame, self._topic, self._writer_column)
        parts = self._write(rows, Job(batch, self._batches_topic, self._settings))
        _check_parts(parts, known, batch)
        _logger.info(
            "%s: batch %d is written: %d rows now, %d earlier",
            self._query_name,
            batch_id,
            sum(part.written for part in parts),
            sum(part.found for part in parts),
        )
        self._whole = batch

    def _find_previous(self, query_id: str, number: int) -> tuple[Batch, dict[int, Marker]]:
        """The batch with its number of writers, and its known markers. ExactlyOnceError if it must not be written."""
        there = find_history(self._settings, self._batches_topic)
        if there is None:
            if number > self._first_batch:
                raise ExactlyOnceError(
                    f"the checkpoint of {self._query_name} is at batch {number}, but the topic {self._batches_topic} "
                    "with the markers of written batches does not exist. If it was deleted, check how much of this "
                    f"batch was written. To begin with this batch, use first_batch={number}"
                )
            there = self._writers or DEFAULT_WRITERS
            create_history(self._settings, self._batches_topic, there)
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
            f"{self._query_name} was started with {there} writers, but now has {self._writers}: continue with "
            f"writers={there}. "
        )
        if begun:
            return f"{text}(Batch {batch.number} is partly written, and only they can complete it)"
        return (
            f"{text}No part of batch {batch.number} is written yet, so another query_name is possible, too, "
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
    """ExactlyOnceError unless every part is written, each by a different writer."""
    problems = sorted({part.problem for part in parts if part.problem})
    if problems:
        raise ExactlyOnceError(problems[0] + (f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""))
    writers = Counter(part.writer for part in parts)
    for writer, count in writers.items():
        if count > 1:
            raise ExactlyOnceError(
                f"{count} of Spark's partitions have the number {writer}: each needs a separate writer"
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
        raise ValueError(f"librdkafka rejects these settings: {error.args[0].str()}") from error

"""Spark reads committed records (`kafka.isolation.level=read_committed`); three of ten transactions are aborted.

Every offset matters. Aborted records and markers occupy offsets but are not rows, so Spark must find the right row from
any offset, and reach the end of a partition even if there is no record.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from moldau.spark_integration import kafka_options
from moldau.testing.client import Client, Record

from .streams import PARTITIONS, FileSink, numbers_of
from .support import load, read_stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ..fixtures import RunUntil
    from .conftest import MakeTopic

TRANSACTIONS = 60
CODECS = ("none", "lz4", "zstd")

# (number, partition, offset) of a record.
Row = tuple[int, int, int]


class Writers:
    """Transactional producers of one topic, each with a different codec, and the rows that they have written.

    The records of an aborted transaction are delivered before the abort: aborting unsent records would prove nothing.
    """

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        from confluent_kafka import Producer

        self.committed: list[Row] = []
        self.aborted: list[Row] = []
        self.end_offsets = dict.fromkeys(range(PARTITIONS), 0)
        self._topic = topic
        self._next = 0
        self._open: dict[int, list[Row]] = {}
        name = f"writers-{uuid4().hex[:12]}"
        self._producers = [
            Producer(
                {
                    "bootstrap.servers": bootstrap_servers,
                    "transactional.id": f"{name}-{writer}",
                    "compression.type": codec,
                    "linger.ms": 0,
                }
            )
            for writer, codec in enumerate(CODECS)
        ]
        for producer in self._producers:
            producer.init_transactions(30)

    def begin(self, writer: int) -> None:
        self._producers[writer].begin_transaction()
        self._open[writer] = []

    def write(self, writer: int, *partitions: int, count: int = 5) -> None:
        """Write ``count`` records to each of the partitions; they are in the log when this returns."""
        producer, rows = self._producers[writer], self._open[writer]
        before = len(rows)
        for partition in partitions:
            for _ in range(count):
                number, self._next = self._next, self._next + 1

                def delivered(error: Any, message: Any, number: int = number) -> None:
                    assert error is None, error
                    rows.append((number, message.partition(), message.offset()))

                producer.produce(self._topic, b"%d" % number, partition=partition, on_delivery=delivered)
                self.end_offsets[partition] += 1
        assert producer.flush(120) == 0
        assert len(rows) == before + count * len(partitions)

    def end(self, writer: int, *, commit: bool) -> None:
        """End the transaction: a marker goes to each partition that was written to."""
        producer, rows = self._producers[writer], self._open.pop(writer)
        if commit:
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)
        (self.committed if commit else self.aborted).extend(rows)
        for partition in {partition for _, partition, _ in rows}:
            self.end_offsets[partition] += 1

    def one(self, writer: int, *partitions: int, commit: bool) -> None:
        self.begin(writer)
        self.write(writer, *partitions)
        self.end(writer, commit=commit)

    def three_of_ten_aborted(self, first: int = 0) -> None:
        """Transactions of several partitions, two of them open at any time. The partitions end with markers: an abort
        marker, a commit marker, and one of each."""
        for number in range(first, first + TRANSACTIONS):
            self.begin(number % 3)
            self.write(number % 3, number % PARTITIONS, (number + 1) % PARTITIONS)
            if number > first:
                self.write((number - 1) % 3, number % PARTITIONS, count=2)
                self.end((number - 1) % 3, commit=is_committed(number - 1))
        self.end((first + TRANSACTIONS - 1) % 3, commit=is_committed(first + TRANSACTIONS - 1))
        self.one(0, 0, 2, commit=False)
        self.one(1, 1, commit=True)
        self.begin(0)
        self.begin(1)
        self.write(0, 2)
        self.write(1, 2)
        self.end(0, commit=True)
        self.end(1, commit=False)


def is_committed(transaction: int) -> bool:
    return transaction % 10 not in (2, 5, 9)


@pytest.fixture
def topic(make_topic: MakeTopic) -> str:
    return make_topic(PARTITIONS)


@pytest.fixture
def writers(bootstrap_servers: str, topic: str) -> Writers:
    return Writers(bootstrap_servers, topic)


def options_of(
    bootstrap_servers: str, topic: str, isolation_level: str = "read_committed", **more: Any
) -> dict[str, str]:
    # Data loss is an error: a missing offset must not be treated as an offset without a row.
    return kafka_options(
        bootstrap_servers, topic, fail_on_data_loss=True, client={"isolation.level": isolation_level}, **more
    )


def rows_of(frame: DataFrame) -> list[Row]:
    return sorted(tuple(row) for row in numbers_of(frame).collect())


def within(rows: list[Row], first: Mapping[int, int], end: Mapping[int, int]) -> list[Row]:
    return sorted(row for row in rows if first[row[1]] <= row[2] < end[row[1]])


@pytest.mark.parametrize(
    "more", [{}, {"minPartitions": "17"}, {"kafka.fetch.max.bytes": "1", "kafka.max.poll.records": "3"}]
)
def test_a_batch_has_the_committed_rows_at_their_offsets(
    spark: SparkSession, bootstrap_servers: str, topic: str, writers: Writers, more: dict[str, str]
) -> None:
    writers.three_of_ten_aborted()

    committed = load(spark, {**options_of(bootstrap_servers, topic), **more})
    everything = load(spark, {**options_of(bootstrap_servers, topic, "read_uncommitted"), **more})

    assert rows_of(committed) == sorted(writers.committed)
    assert rows_of(everything) == sorted(writers.committed + writers.aborted)
    assert committed.count() == len(writers.committed)


def test_a_batch_may_begin_and_end_anywhere(
    spark: SparkSession, bootstrap_servers: str, topic: str, writers: Writers
) -> None:
    """In the middle of an aborted transaction, at a marker, after the last record."""
    writers.three_of_ten_aborted()
    aborted = {partition: [row[2] for row in writers.aborted if row[1] == partition] for partition in range(PARTITIONS)}
    taken = {(row[1], row[2]) for row in writers.committed + writers.aborted}
    markers = {
        partition: [offset for offset in range(writers.end_offsets[partition]) if (partition, offset) not in taken]
        for partition in range(PARTITIONS)
    }
    last = {partition: end - 1 for partition, end in writers.end_offsets.items()}
    assert all(markers[partition][-1] == last[partition] for partition in last), "the partitions end with markers"

    for first, end in [
        ({p: aborted[p][2] for p in aborted}, {p: aborted[p][-2] for p in aborted}),
        ({p: markers[p][1] for p in markers}, {p: markers[p][-3] for p in markers}),
        ({p: markers[p][3] + 1 for p in markers}, {p: markers[p][-3] + 1 for p in markers}),
        (last, writers.end_offsets),
        ({p: markers[p][0] for p in markers}, {p: markers[p][0] + 1 for p in markers}),
    ]:
        options = options_of(bootstrap_servers, topic, starting_offsets=first, ending_offsets=end)
        assert rows_of(load(spark, options)) == within(writers.committed, first, end), (first, end)


def test_an_open_transaction_hides_later_records_until_it_ends(
    spark: SparkSession, bootstrap_servers: str, client: Client, topic: str, writers: Writers
) -> None:
    writers.one(0, *range(PARTITIONS), commit=True)
    writers.one(1, *range(PARTITIONS), commit=False)
    before = list(writers.committed)
    writers.begin(2)
    writers.write(2, 0, 1)
    client.produce(topic, [Record(b"1000", partition=0), Record(b"1002", partition=2)])
    writers.one(0, 1, 2, commit=True)
    options = options_of(bootstrap_servers, topic)
    plain = [(1000, 0, 17), (1002, 2, 12)]

    visible = [row for row in writers.committed if row in before or row[1] == 2]
    assert rows_of(load(spark, options)) == sorted([*visible, plain[1]])
    writers.end(2, commit=True)
    assert rows_of(load(spark, options)) == sorted(writers.committed + plain)


def test_a_stream_has_the_committed_rows_once_with_any_batches(
    spark: SparkSession, bootstrap_servers: str, topic: str, writers: Writers, tmp_path: Path
) -> None:
    """Batches of 80 offsets begin and end in the middle of transactions, and at markers."""
    writers.three_of_ten_aborted()
    options = options_of(bootstrap_servers, topic, starting_offsets="earliest")
    sink = FileSink(spark, tmp_path)

    query = sink.run(read_stream(spark, {**options, "maxOffsetsPerTrigger": "80"}))

    progress = query.recentProgress
    assert sink.rows("number int, partition int, offset long") == sorted(writers.committed, key=repr)
    assert sum(report["numInputRows"] for report in progress) == len(writers.committed)
    assert len(progress) >= sum(writers.end_offsets.values()) // 80
    assert end_offsets(query, topic) == writers.end_offsets


def test_a_stream_follows_transactions_while_they_end(
    spark: SparkSession, bootstrap_servers: str, topic: str, writers: Writers, tmp_path: Path, run_until: RunUntil
) -> None:
    options = options_of(bootstrap_servers, topic, starting_offsets="earliest")
    sink = FileSink(spark, tmp_path)
    query = sink.start(numbers_of(read_stream(spark, options)))

    writers.three_of_ten_aborted()
    progress = run_until(query, offsets={topic: writers.end_offsets})
    assert progress.end_offsets == {topic: writers.end_offsets}
    assert progress.rows == len(writers.committed)

    # Only an aborted transaction: it has no row, but the query advances past it.
    writers.one(2, *range(PARTITIONS), commit=False)
    progress = run_until(query, offsets={topic: writers.end_offsets})
    assert progress.rows == len(writers.committed)

    # The stream stops at the offset of the open transaction, and another query continues from there.
    stable = dict(writers.end_offsets)
    writers.begin(0)
    writers.write(0, *range(PARTITIONS))
    writers.one(1, 0, 1, commit=True)
    run_until(query)
    query.stop()
    assert end_offsets(query, topic) == stable
    query = sink.start(numbers_of(read_stream(spark, options)))
    writers.end(0, commit=True)
    writers.three_of_ten_aborted(first=TRANSACTIONS)
    progress = run_until(query, offsets={topic: writers.end_offsets})

    assert progress.end_offsets == {topic: writers.end_offsets}
    assert sink.rows("number int, partition int, offset long") == sorted(writers.committed, key=repr)


def end_offsets(query: Any, topic: str) -> dict[int, int]:
    """The end offsets of the last batch of a query."""
    offsets = query.lastProgress["sources"][0]["endOffset"]
    by_topic = json.loads(offsets) if isinstance(offsets, str) else offsets  # Spark 3 returns parsed JSON
    return {int(partition): end for partition, end in by_topic[topic].items()}

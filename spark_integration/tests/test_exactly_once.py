"""Exactly-once writing to Kafka, with Spark: a read_committed reader sees each row of a query once.

A batch is repeated because Spark's commit of it is removed, because a part of it could not be written, or because all
processes were killed with -9 (``test_exactly_once_kill``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from moldau.spark_integration import kafka_options
from moldau.spark_integration.exactly_once import ExactlyOnceWriter
from moldau.testing.client import Client, Record

from .exactly_once_reading import Found, committed, everything
from .streams import DEADLINE_S
from .support import ODD_CONTENT, Content, content, frame_of, read_stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from .conftest import MakeTopic

PARTITIONS = 3


class Query:
    """A query that copies a topic, with a name and a checkpoint. Each ``run`` continues where the last one ended."""

    def __init__(self, spark: SparkSession, address: str, source: str, folder: Path) -> None:
        self.name = f"query-{uuid4().hex[:12]}"
        self.checkpoint = folder / self.name
        self._spark = spark
        self._address = address
        self._source = source

    def run(
        self,
        topic: str | None,
        *,
        rows: Callable[[DataFrame], DataFrame] | None = None,
        source: Mapping[str, str] | None = None,
        **arguments: Any,
    ) -> None:
        """Write all current records."""
        options = kafka_options(self._address, self._source, starting_offsets="earliest", include_headers=True)
        frame = (rows or without_place)(read_stream(self._spark, {**options, **(source or {})}))
        # librdkafka caches for half a minute that a topic does not exist.
        client = {"topic.metadata.propagation.max.ms": "500", "compression.type": "lz4"}
        writer = ExactlyOnceWriter(self._address, self.name, topic=topic, client=client, **arguments)
        started = (
            frame.writeStream.foreachBatch(writer)
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        try:
            assert started.awaitTermination(DEADLINE_S), "the query did not end"
        finally:
            started.stop()

    @property
    def batches(self) -> list[int]:
        """The batches that Spark has committed."""
        return sorted(int(path.name) for path in (self.checkpoint / "commits").iterdir() if path.name.isdecimal())

    def forget_last(self) -> None:
        """Simulate a driver that died after the last batch was written and before Spark has committed it."""
        last = self.batches[-1]
        (self.checkpoint / "commits" / str(last)).unlink()
        (self.checkpoint / "commits" / f".{last}.crc").unlink()


@pytest.fixture
def source(client: Client, make_topic: MakeTopic) -> str:
    """A topic with all kinds of records."""
    topic = make_topic(PARTITIONS)
    produce(client, topic, content(300))
    return topic


@pytest.fixture
def query(spark: SparkSession, bootstrap_servers: str, source: str, tmp_path: Path) -> Query:
    return Query(spark, bootstrap_servers, source, tmp_path)


def produce(client: Client, topic: str, rows: list[Content]) -> None:
    client.produce(topic, [Record(row[1], row[0], row[2], partition=n % PARTITIONS) for n, row in enumerate(rows)])


def without_place(frame: DataFrame) -> DataFrame:
    """The rows of a source, without partition and offset."""
    return frame.drop("topic", "partition")


def contents(found: list[Found]) -> Counter[Content]:
    return Counter((record.key, record.value, record.headers) for record in found)


def test_a_repeated_batch_writes_no_duplicates(
    query: Query, bootstrap_servers: str, client: Client, source: str, make_topic: MakeTopic
) -> None:
    topic, first, second = make_topic(PARTITIONS), content(300), content(100)

    query.run(topic)
    query.forget_last()
    query.run(topic)
    assert contents(everything(bootstrap_servers, topic, PARTITIONS)) == Counter(first)
    produce(client, source, second)
    query.run(topic)
    query.forget_last()
    query.run(topic)

    assert query.batches == [0, 1]
    assert contents(committed(bootstrap_servers, topic, PARTITIONS)) == Counter(first + second)
    # No records were written and aborted, either.
    assert contents(everything(bootstrap_servers, topic, PARTITIONS)) == Counter(first + second)


@pytest.mark.full
def test_a_partly_written_batch_is_completed(
    query: Query, bootstrap_servers: str, client: Client, make_topic: MakeTopic
) -> None:
    there, later = make_topic(), f"spark-{uuid4().hex[:12]}"

    def rows(frame: DataFrame) -> DataFrame:
        # A single row goes to a missing topic: some writers have no such row, and can commit.
        chosen = frame.where("cast(value as string) like 'value-%'")
        return chosen.selectExpr(
            "value", "headers", f"if(value = cast('value-9' as binary), '{later}', '{there}') topic"
        )

    with pytest.raises(Exception, match=f"the server rejected a row for {later}.*create the topic"):
        query.run(None, rows=rows, writers=8)
    begun = committed(bootstrap_servers, there)
    client.create_topic(later)
    query.run(None, rows=rows, writers=8)

    expected = Counter((value, headers) for _, value, headers in content(300)[len(ODD_CONTENT) :])
    found = committed(bootstrap_servers, there) + committed(bootstrap_servers, later)
    assert 0 < len(begun) < len(found), "at first no part was written, or all of them"
    assert Counter((record.value, record.headers) for record in found) == expected
    assert {record.value for record in committed(bootstrap_servers, later)} == {b"value-9"}


def test_rows_go_to_their_topics_and_partitions_and_by_key_where_sparks_own_sink_puts_them(
    spark: SparkSession, query: Query, bootstrap_servers: str, make_topic: MakeTopic
) -> None:
    by_partition, by_key, of_spark = make_topic(PARTITIONS), make_topic(7), make_topic(7)

    def rows(frame: DataFrame) -> DataFrame:
        return frame.selectExpr(
            "string(key) key",
            "value",
            f"if(partition = 0, '{by_key}', '{by_partition}') topic",
            "if(partition = 0, null, partition) partition",
        )

    query.run(None, rows=rows)
    keyed: list[Content] = [row for row in content(300)[::PARTITIONS] if row[0]]
    frame_of(spark, keyed).select("key", "value").write.format("kafka").options(
        **kafka_options(bootstrap_servers, of_spark)
    ).save()

    found = committed(bootstrap_servers, by_key, 7)
    assert len(found) == len(content(300)[::PARTITIONS])
    assert {(r.key, r.partition) for r in found if r.key} == {
        (r.key, r.partition) for r in committed(bootstrap_servers, of_spark, 7)
    }
    named = committed(bootstrap_servers, by_partition, PARTITIONS)
    assert Counter((record.partition, record.value) for record in named) == Counter(
        (number % PARTITIONS, row[1]) for number, row in enumerate(content(300)) if number % PARTITIONS
    )


def test_the_rows_of_a_key_keep_their_order(
    spark: SparkSession, bootstrap_servers: str, client: Client, make_topic: MakeTopic, tmp_path: Path
) -> None:
    source, topic = make_topic(PARTITIONS), make_topic(2)
    # Partitioned by key, as by producers.
    client.produce(source, [Record(b"%d" % n, b"key-%d" % (n % 9), partition=n % 9 % PARTITIONS) for n in range(900)])

    Query(spark, bootstrap_servers, source, tmp_path).run(topic)

    of_key: dict[bytes | None, list[int]] = {}
    for record in committed(bootstrap_servers, topic, 2):
        of_key.setdefault(record.key, []).append(int(record.value or b""))
    assert of_key == {b"key-%d" % n: list(range(n, 900, 9)) for n in range(9)}


@pytest.mark.full
def test_spark_may_split_a_repeated_batch_differently(
    query: Query, bootstrap_servers: str, make_topic: MakeTopic
) -> None:
    topic = make_topic()

    query.run(topic)
    query.forget_last()
    query.run(topic, source={"minPartitions": "11"})

    assert contents(everything(bootstrap_servers, topic)) == Counter(content(300))


@pytest.mark.full
def test_a_column_can_assign_sparks_partitions_to_writers(
    query: Query, bootstrap_servers: str, make_topic: MakeTopic
) -> None:
    topic = make_topic()

    def numbered(frame: DataFrame) -> DataFrame:
        return frame.selectExpr("key", "value", "headers", "partition writer")

    # The order of the source's partitions varies, so Spark's partition ids are not suitable.
    query.run(topic, writer_column="writer", rows=numbered)
    query.forget_last()
    query.run(topic, writer_column="writer", rows=numbered)
    assert contents(everything(bootstrap_servers, topic)) == Counter(content(300))

    query.forget_last()
    with pytest.raises(Exception, match=r"is not the same as when it ran before.*two of Spark's partitions"):
        query.run(topic, writer_column="writer", rows=numbered, source={"minPartitions": "11"})
    with pytest.raises(Exception, match="writer 2 had 102 rows then and has 0 rows now"):
        query.run(topic, writer_column="writer", rows=lambda frame: numbered(frame.where("partition < 2")))
    with pytest.raises(Exception, match="was partly written by 4 writers with writer_column"):
        query.run(topic)
    assert contents(everything(bootstrap_servers, topic)) == Counter(content(300))


def test_different_rows_in_a_repeated_batch_are_detected(
    query: Query, bootstrap_servers: str, make_topic: MakeTopic
) -> None:
    topic = make_topic()

    def random(frame: DataFrame) -> DataFrame:
        return frame.selectExpr("key", "concat(string(value), string(rand())) value")

    query.run(topic, rows=random)
    query.forget_last()
    with pytest.raises(Exception, match="The input of the writer is not deterministic"):
        query.run(topic, rows=random)


def test_a_single_writer_does_not_need_deterministic_input(
    query: Query, bootstrap_servers: str, make_topic: MakeTopic
) -> None:
    topic = make_topic()

    def random(frame: DataFrame) -> DataFrame:
        return frame.where("rand() < 0.5").selectExpr("key", "string(rand()) value")

    query.run(topic, rows=random, writers=1)
    once = contents(everything(bootstrap_servers, topic))
    query.forget_last()
    query.run(topic, rows=random, writers=1)

    assert contents(everything(bootstrap_servers, topic)) == once


def test_a_deleted_checkpoint_is_detected_before_any_row_is_written(
    query: Query, bootstrap_servers: str, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    query.run(topic)
    query.checkpoint.rename(query.checkpoint.with_suffix(".deleted"))

    with pytest.raises(Exception, match="has a different checkpoint than before"):
        query.run(topic)

    assert contents(everything(bootstrap_servers, topic)) == Counter(content(300))


@pytest.mark.full
def test_another_number_of_writers_and_a_missing_history_are_detected(
    query: Query, bootstrap_servers: str, client: Client, source: str, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    query.run(topic, writers=2)

    query.forget_last()
    with pytest.raises(Exception, match=r"was started with 2 writers, but now has 3.*is partly written"):
        query.run(topic, writers=3)
    query.run(topic, writers=2)
    produce(client, source, content(20))
    with pytest.raises(Exception, match=r"No part of batch 1 is written yet.*with first_batch=1"):
        query.run(topic, writers=3)
    client.delete_topic(f"_batches-{query.name}")
    with pytest.raises(Exception, match=f"the topic _batches-{query.name} .*does not exist.*use first_batch=1"):
        query.run(topic)
    query.run(topic, first_batch=1)

    assert contents(committed(bootstrap_servers, topic)) == Counter(content(300) + content(20))


def test_unsuitable_columns_are_named(query: Query, make_topic: MakeTopic) -> None:
    topic = make_topic()
    for given, columns, said in [
        (topic, ["key"], "the rows have no column value; they have key"),
        (None, ["value"], "the rows have no topic"),
        (topic, ["int(offset) value"], "the column value is int, but must be string or binary"),
        (topic, ["value", "offset partition"], "the column partition is bigint, but must be int"),
        (
            topic,
            ["value", "string(offset) writer"],
            "the column writer must contain the number of the writer, but is string",
        ),
    ]:
        column = "writer" if columns[-1].endswith(" writer") else None
        with pytest.raises(Exception, match=said):
            query.run(given, writer_column=column, rows=lambda frame, columns=columns: frame.selectExpr(*columns))  # type: ignore[misc]


def test_a_frame_that_is_not_a_batch_of_a_query_is_rejected(spark: SparkSession, bootstrap_servers: str) -> None:
    with pytest.raises(Exception, match="pass the writer to foreachBatch"):
        ExactlyOnceWriter(bootstrap_servers, "no-query", topic="any")(frame_of(spark, ODD_CONTENT), 0)

"""Structured Streaming over Kafka: every record exactly once, across queries, checkpoints and restarts."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from moldau.compat_tests.client import Client, Record
from moldau.compat_tests.clients import open_client
from moldau.spark_integration import kafka_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from moldau.compat_tests.servers import Server

    from .conftest import MakeTopic

PARTITIONS = 3

# A query that does not get there in this time hangs.
DEADLINE_S = 120


def produce(client: Client, topic: str, numbers: range) -> None:
    """One record for each number, spread over the partitions."""
    client.produce(topic, [Record(b"%d" % n, b"%d" % (n % 7), partition=n % PARTITIONS) for n in numbers])


def read_stream(spark: SparkSession, options: dict[str, str]) -> DataFrame:
    return spark.readStream.format("kafka").options(**options).load()


class FileSink:
    """A folder of JSON lines that queries append to, each with the same checkpoint: what exactly-once is checked on."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self._files = str(folder / "files")
        self._checkpoint = str(folder / "checkpoint")

    def run(self, source: DataFrame) -> StreamingQuery:
        """Write all that is there now, and return the finished query."""
        rows = source.selectExpr("int(string(value)) number", "partition", "offset")
        query = (
            rows.writeStream.format("json")
            .option("path", self._files)
            .option("checkpointLocation", self._checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(DEADLINE_S), "the query did not end"
        return query

    def numbers(self) -> list[int]:
        rows = self._spark.read.schema("number int, partition int, offset long").json(self._files).collect()
        return sorted(row.number for row in rows)


def rows_read(query: StreamingQuery) -> list[int]:
    """The number of rows of each batch that had any."""
    return [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]


@pytest.fixture
def sink(spark: SparkSession, tmp_path: Path) -> FileSink:
    return FileSink(spark, tmp_path)


def test_a_query_goes_on_where_the_checkpoint_ends(
    spark: SparkSession, bootstrap_servers: str, client: Client, make_topic: MakeTopic, sink: FileSink
) -> None:
    topic = make_topic(PARTITIONS)
    source = read_stream(spark, kafka_options(bootstrap_servers, topic, starting_offsets="earliest"))

    produce(client, topic, range(1000))
    first = sink.run(source)
    produce(client, topic, range(1000, 1300))
    second = sink.run(source)
    third = sink.run(source)

    assert [sum(rows_read(query)) for query in (first, second, third)] == [1000, 300, 0]
    assert sink.numbers() == list(range(1300))


def test_a_limited_trigger_reads_everything_in_several_batches(
    spark: SparkSession, bootstrap_servers: str, client: Client, make_topic: MakeTopic, sink: FileSink
) -> None:
    topic = make_topic(PARTITIONS)
    produce(client, topic, range(300))
    options = kafka_options(bootstrap_servers, topic, starting_offsets="earliest")

    query = sink.run(read_stream(spark, {**options, "maxOffsetsPerTrigger": "120"}))

    assert len(rows_read(query)) == 3
    assert max(rows_read(query)) <= 120
    assert sink.numbers() == list(range(300))


def test_a_query_starts_at_a_timestamp(
    spark: SparkSession, bootstrap_servers: str, client: Client, make_topic: MakeTopic, sink: FileSink
) -> None:
    topic = make_topic(1, {"retention.ms": "-1"})
    first_ms = 1_357_034_400_000
    client.produce(topic, [Record(b"%d" % n, timestamp_ms=first_ms + 1000 * n) for n in range(100)])

    sink.run(read_stream(spark, kafka_options(bootstrap_servers, topic, starting_timestamp_ms=first_ms + 59_001)))

    assert sink.numbers() == list(range(60, 100))


def test_a_running_query_sees_what_is_produced_meanwhile(
    spark: SparkSession, bootstrap_servers: str, client: Client, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic, copy = make_topic(PARTITIONS), make_topic(2)
    produce(client, topic, range(100))
    query = (
        read_stream(spark, kafka_options(bootstrap_servers, topic, starting_offsets="earliest"))
        .select("key", "value")
        .writeStream.format("kafka")
        .options(**kafka_options(bootstrap_servers, copy))
        .option("checkpointLocation", str(tmp_path))
        .start()
    )
    try:
        query.processAllAvailable()
        produce(client, topic, range(100, 250))
        query.processAllAvailable()
    finally:
        query.stop()

    copied = [record for partition in range(2) for record in client.read(copy, partition)]
    assert Counter((record.key, record.value) for record in copied) == Counter(
        (b"%d" % (n % 7), b"%d" % n) for n in range(250)
    )


def test_a_query_survives_restarts_of_the_server(spark: SparkSession, own_server: Server, sink: FileSink) -> None:
    topic = "spark-restarts"
    source = read_stream(spark, kafka_options(own_server, topic, starting_offsets="earliest"))
    with open_client("confluent-kafka", own_server.bootstrap_servers) as client:
        client.create_topic(topic, PARTITIONS)
        produce(client, topic, range(500))
        sink.run(source)

        own_server.restart()
        produce(client, topic, range(500, 800))
        sink.run(source)
        own_server.kill()
        own_server.start()
        produce(client, topic, range(800, 900))
        sink.run(source)

    assert sink.numbers() == list(range(900))


def test_deleted_records_are_an_error_unless_the_loss_is_accepted(
    spark: SparkSession, bootstrap_servers: str, client: Client, make_topic: MakeTopic, sink: FileSink
) -> None:
    topic = make_topic(PARTITIONS)
    options = kafka_options(bootstrap_servers, topic, starting_offsets="earliest")
    produce(client, topic, range(30))
    sink.run(read_stream(spark, options))
    produce(client, topic, range(30, 90))
    client.delete_records(topic, 0, 20)  # the numbers 30, 33, ... 57 of partition 0 are gone unread

    with pytest.raises(
        Exception, match="Some data may have been lost because they are not available in Kafka any more"
    ):
        sink.run(read_stream(spark, options))
    sink.run(read_stream(spark, kafka_options(bootstrap_servers, topic, fail_on_data_loss=False)))

    assert sink.numbers() == sorted(set(range(90)) - set(range(30, 60, 3)))

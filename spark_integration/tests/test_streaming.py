"""Structured Streaming over Kafka: every record exactly once, across batches, queries and checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from moldau.spark_integration import kafka_options
from moldau.testing.client import Client, Record

from .streams import PARTITIONS, FileSink, numbers_of, produce, rows_read
from .support import group_names, read_stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ..fixtures import RunUntil
    from .conftest import MakeTopic


@pytest.fixture
def sink(spark: SparkSession, tmp_path: Path) -> FileSink:
    return FileSink(spark, tmp_path)


def test_a_query_continues_where_the_checkpoint_ends(
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


def test_available_now_reads_the_existing_records_in_limited_batches(
    spark: SparkSession, bootstrap_servers: str, client: Client, make_topic: MakeTopic, sink: FileSink
) -> None:
    topic = make_topic(PARTITIONS)
    produce(client, topic, range(300))
    options = kafka_options(bootstrap_servers, topic, starting_offsets="earliest")

    query = sink.run(read_stream(spark, {**options, "maxOffsetsPerTrigger": "120"}))

    assert len(rows_read(query)) == 3
    assert max(rows_read(query)) <= 120
    assert sink.numbers() == list(range(300))


def test_a_trigger_waits_for_enough_records_but_not_forever(
    spark: SparkSession,
    bootstrap_servers: str,
    client: Client,
    make_topic: MakeTopic,
    sink: FileSink,
    run_until: RunUntil,
) -> None:
    topic = make_topic(PARTITIONS)
    produce(client, topic, range(30))
    options = kafka_options(bootstrap_servers, topic, starting_offsets="earliest")
    source = read_stream(spark, {**options, "minOffsetsPerTrigger": "100", "maxTriggerDelay": "1h"})

    query = sink.start(numbers_of(source))
    run_until(query, rows=30)  # the first batch reads the existing records
    produce(client, topic, range(30, 90))
    run_until(query)
    assert sink.numbers() == list(range(30)), "60 of 100 required records do not start a batch"
    produce(client, topic, range(90, 140))
    progress = run_until(query, rows=140)
    query.stop()
    patient = {**options, "minOffsetsPerTrigger": "100", "maxTriggerDelay": "1ms"}
    produce(client, topic, range(140, 150))
    impatient = run_until(sink.start(numbers_of(read_stream(spark, patient))), rows=10)

    assert [report.numInputRows for report in progress if report.numInputRows] == [30, 110]
    assert impatient.rows == 10
    assert sink.numbers() == list(range(150))


@pytest.mark.parametrize("way", ["timestamp", "timestamps", "offsets"])
def test_a_query_starts_at_the_requested_offsets(
    spark: SparkSession, bootstrap_servers: str, client: Client, make_topic: MakeTopic, sink: FileSink, way: str
) -> None:
    topic = make_topic(2, {"retention.ms": "-1"})
    first_ms = 1_357_034_400_000
    client.produce(topic, [Record(b"%d" % n, partition=n // 100, timestamp_ms=first_ms + 1000 * n) for n in range(200)])
    options, expected = {
        "timestamp": (
            kafka_options(bootstrap_servers, topic, starting_timestamp_ms=first_ms + 59_001),
            [*range(60, 100), *range(100, 200)],
        ),
        "timestamps": (
            kafka_options(
                bootstrap_servers,
                topic,
                starting_timestamp_ms={0: first_ms + 500_000, 1: first_ms + 150_000},
                no_record_since_timestamp="latest",
            ),
            [*range(150, 200)],
        ),
        "offsets": (
            kafka_options(bootstrap_servers, topic, starting_offsets={0: 98, 1: -1}),
            [98, 99],
        ),
    }[way]

    sink.run(read_stream(spark, options))

    assert sink.numbers() == expected


def test_from_the_latest_offset_a_query_reads_records_after_its_start(
    spark: SparkSession,
    bootstrap_servers: str,
    client: Client,
    make_topic: MakeTopic,
    sink: FileSink,
    run_until: RunUntil,
) -> None:
    topic = make_topic(PARTITIONS)
    produce(client, topic, range(50))

    query = sink.start(numbers_of(read_stream(spark, kafka_options(bootstrap_servers, topic))))
    run_until(query)
    produce(client, topic, range(50, 80))
    progress = run_until(query, offsets={topic: {0: 27, 1: 27, 2: 26}})

    assert progress.end_offsets == {topic: {0: 27, 1: 27, 2: 26}}
    assert sink.numbers() == list(range(50, 80))


def test_the_batches_of_foreach_batch_contain_each_record_once(
    spark: SparkSession,
    bootstrap_servers: str,
    client: Client,
    make_topic: MakeTopic,
    tmp_path: Path,
    run_until: RunUntil,
) -> None:
    topic = make_topic(PARTITIONS)
    produce(client, topic, range(100))
    batches: dict[int, list[tuple[int, int, int]]] = {}

    def keep(frame: DataFrame, batch_id: int) -> None:
        rows = numbers_of(frame).collect()
        assert batch_id not in batches
        batches[batch_id] = [tuple(row) for row in rows]

    options = kafka_options(bootstrap_servers, topic, starting_offsets="earliest")
    source = read_stream(spark, {**options, "maxOffsetsPerTrigger": "60"})
    writer = source.writeStream.foreachBatch(keep).option("checkpointLocation", str(tmp_path))
    query = writer.start()
    run_until(query, rows=100)
    query.stop()
    produce(client, topic, range(100, 120))
    run_until(writer.start(), rows=20)

    assert list(batches) == list(range(3))
    assert max(len(rows) for rows in batches.values()) <= 60
    assert sorted(row for rows in batches.values() for row in rows) == sorted(
        (n, n % PARTITIONS, n // PARTITIONS) for n in range(120)
    )


@pytest.mark.usefixtures("old_offset_fetching")
def test_a_query_that_joins_a_group_reads_the_same(
    spark: SparkSession,
    bootstrap_servers: str,
    client: Client,
    make_topic: MakeTopic,
    sink: FileSink,
    run_until: RunUntil,
) -> None:
    topic = make_topic(PARTITIONS)
    produce(client, topic, range(100))
    options = kafka_options(bootstrap_servers, topic, starting_offsets="earliest")

    query = sink.start(numbers_of(read_stream(spark, {**options, "groupIdPrefix": topic})))
    run_until(query, rows=100)
    groups = [group for group in group_names(bootstrap_servers) if group.startswith(topic)]
    produce(client, topic, range(100, 150))
    run_until(query, rows=150)

    assert len(groups) == 1
    assert sink.numbers() == list(range(150))

"""Queries with state: windows closed by a watermark, deduplication, stream joins; exact rows, over restarts.

Event times are the records' timestamps, which the tests choose, so the tests do not depend on a clock. A run of a query
ends with a batch without data, in which the watermark of the last records takes effect.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from moldau.spark_integration import kafka_options
from moldau.testing.client import Client, Record

from .streams import PARTITIONS, FileSink, numbers_of, produce
from .support import read_stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from .conftest import MakeTopic

# The start of a minute, far from now: the topics keep old records.
START_S = 1_357_034_400
FOR_EVER = {"retention.ms": "-1"}


def event(seconds: int, value: str, *, key: str = "", partition: int = 0) -> Record:
    """A record with a timestamp ``seconds`` after the start."""
    return Record(value.encode(), key.encode(), timestamp_ms=(START_S + seconds) * 1000, partition=partition)


def events_of(spark: SparkSession, bootstrap_servers: str, topic: str) -> DataFrame:
    options = kafka_options(bootstrap_servers, topic, starting_offsets="earliest")
    return read_stream(spark, options).selectExpr("string(key) key", "string(value) value", "timestamp")


@pytest.fixture
def sink(spark: SparkSession, tmp_path: Path) -> FileSink:
    return FileSink(spark, tmp_path)


def test_windows_are_counted_after_the_watermark_and_late_records_are_dropped(
    spark: SparkSession, bootstrap_servers: str, client: Client, make_topic: MakeTopic, sink: FileSink
) -> None:
    from pyspark.sql.functions import window

    topic = make_topic(2, FOR_EVER)
    counts = (
        events_of(spark, bootstrap_servers, topic)
        .withWatermark("timestamp", "30 seconds")
        .groupBy("key", window("timestamp", "1 minute"))
        .count()
        .selectExpr(f"unix_seconds(window.start) - {START_S} start", "key", "count")
    )
    schema = "start int, key string, count int"

    # The newest record is at 150 s: windows before 120 s are complete.
    client.produce(topic, [event(n, "", key="ab"[n % 20 // 10], partition=n % 2) for n in range(0, 151, 10)])
    sink.run_rows(counts)
    assert sink.rows(schema) == [(0, "a", 3), (0, "b", 3), (60, "a", 3), (60, "b", 3)]

    # 59 s: too late. 125 s: out of order, but in time. The last record closes all windows before 300 s.
    client.produce(topic, [event(59, "", key="a"), event(125, "", key="a", partition=1), event(335, "", key="c")])
    sink.run_rows(counts)
    assert sink.rows(schema) == [
        (0, "a", 3),
        (0, "b", 3),
        (120, "a", 3),
        (120, "b", 2),
        (60, "a", 3),
        (60, "b", 3),
    ]


def test_duplicates_are_dropped_within_batches_between_them_and_over_restarts(
    spark: SparkSession, bootstrap_servers: str, client: Client, make_topic: MakeTopic, sink: FileSink
) -> None:
    topic = make_topic(PARTITIONS)
    options = {**kafka_options(bootstrap_servers, topic, starting_offsets="earliest"), "maxOffsetsPerTrigger": "150"}
    distinct = numbers_of(read_stream(spark, options)).dropDuplicates(["number"]).select("number")

    produce(client, topic, range(100))
    produce(client, topic, range(100))
    sink.run_rows(distinct)
    produce(client, topic, range(50, 130))
    produce(client, topic, range(120, 130))
    sink.run_rows(distinct)

    assert sink.numbers() == list(range(130))


@pytest.mark.full
def test_two_streams_are_joined_and_unmatched_rows_are_emitted_after_the_watermark(
    spark: SparkSession, bootstrap_servers: str, client: Client, make_topic: MakeTopic, sink: FileSink
) -> None:
    from pyspark.sql.functions import expr

    orders, payments = make_topic(2, FOR_EVER), make_topic(1, FOR_EVER)
    ordered = events_of(spark, bootstrap_servers, orders).selectExpr("value id", "timestamp ordered")
    paid = events_of(spark, bootstrap_servers, payments).selectExpr("value paid_id", "timestamp paid")
    joined = (
        ordered.withWatermark("ordered", "10 seconds")
        .join(
            paid.withWatermark("paid", "10 seconds"),
            expr("id = paid_id and paid between ordered and ordered + interval 1 minute"),
            "leftOuter",
        )
        .selectExpr("id", f"unix_seconds(paid) - {START_S} paid")
    )

    # Even orders are paid after 5 s; 1, 6, 11, 16 after two minutes, which is too late; the others are never paid.
    client.produce(orders, [event(10 * n, f"{n:02}", partition=n % 2) for n in range(20)])
    client.produce(payments, [event(10 * n + 5, f"{n:02}") for n in range(0, 10, 2)])
    sink.run_rows(joined)
    # The watermark is that of the slower stream, at 75 s: order 1 at 10 s can no longer have a match, the others can.
    found = [(f"{n:02}", 10 * n + 5) for n in range(0, 10, 2)]
    assert sink.rows("id string, paid int") == sorted([*found, ("01", None)], key=repr)

    late = [event(10 * n + 120, f"{n:02}") for n in range(1, 20, 5)]
    client.produce(payments, [event(10 * n + 5, f"{n:02}") for n in range(10, 20, 2)] + late)
    client.produce(payments, [event(1000, "the end")])
    client.produce(orders, [event(1000, "the end is open")])
    sink.run_rows(joined)
    assert sink.rows("id string, paid int") == sorted(
        [(f"{n:02}", 10 * n + 5 if n % 2 == 0 else None) for n in range(20)], key=repr
    )

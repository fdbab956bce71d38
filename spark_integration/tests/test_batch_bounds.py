"""Spark's batch source: partitions, start and end, and the number of splits; the rows are always exact."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal
from uuid import uuid4

import pytest

from moldau.spark_integration import kafka_options
from moldau.testing.client import Client, Record

from .support import load, numbered, produce_numbered, values

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from moldau.spark_integration.options import Offsets, Timestamps, Topics

    from .conftest import MakeTopic

FIRST_MS = 1_357_034_400_000
AFTER_ALL_MS = FIRST_MS + 1_000_000


@pytest.fixture(scope="module")
def topic_names() -> tuple[str, str]:
    unique = uuid4().hex[:8]
    return f"spark-{unique}-a", f"spark-{unique}-b"


@pytest.fixture(scope="module")
def topics(bootstrap_servers: str, topic_names: tuple[str, str]) -> tuple[str, str]:
    """Two topics, ``a`` with three partitions and ``b`` with one; ``p:n`` in each, n up to 20, a second apart."""
    from moldau.testing.clients import open_client

    a, b = topic_names
    with open_client("confluent-kafka", bootstrap_servers) as client:
        client.create_topic(a, 3, {"retention.ms": "-1"})
        produce_numbered(client, a, partitions=3, count=20, first_ms=FIRST_MS)
        client.create_topic(b, 1, {"retention.ms": "-1"})
        client.produce(b, [Record(b"b:%d" % n, timestamp_ms=FIRST_MS + 1000 * n) for n in range(20)])
    return a, b


def b_values(numbers: range) -> list[bytes]:
    return [b"b:%d" % n for n in numbers]


ALL = {0: range(20), 1: range(20), 2: range(20)}


def test_one_topic_several_topics_a_pattern_and_assigned_partitions(
    spark: SparkSession, bootstrap_servers: str, topics: tuple[str, str]
) -> None:
    a, b = topics
    chosen: dict[str, Topics] = {
        "one": a,
        "several": [a, b],
        "pattern": re.compile(re.escape(a[:-1]) + "[ab]"),
        "narrow pattern": re.compile(re.escape(a[:-1]) + "b"),
        "partitions": {a: [0, 2], b: [0]},
    }

    read = {name: values(load(spark, kafka_options(bootstrap_servers, which))) for name, which in chosen.items()}

    everything = sorted(numbered(ALL) + b_values(range(20)))
    assert read == {
        "one": numbered(ALL),
        "several": everything,
        "pattern": everything,
        "narrow pattern": sorted(b_values(range(20))),
        "partitions": sorted(numbered({0: range(20), 2: range(20)}) + b_values(range(20))),
    }


@pytest.mark.parametrize(
    ("start", "end", "slices"),
    [
        ("earliest", "latest", ALL),
        ("earliest", {0: 0, 1: 1, 2: -1}, {1: range(1), 2: range(20)}),
        ({0: 5, 1: -2, 2: 20}, {0: 7, 1: 20, 2: -1}, {0: range(5, 7), 1: range(20)}),
        ({0: 18, 1: 19, 2: 20}, "latest", {0: range(18, 20), 1: range(19, 20)}),
    ],
)
def test_offsets_limit_the_rows(
    spark: SparkSession,
    bootstrap_servers: str,
    topics: tuple[str, str],
    start: Offsets,
    end: Offsets,
    slices: dict[int, range],
) -> None:
    rows = load(spark, kafka_options(bootstrap_servers, topics[0], starting_offsets=start, ending_offsets=end))

    assert values(rows) == numbered(slices)


@pytest.mark.parametrize(
    ("start_ms", "end_ms", "slices"),
    [
        (FIRST_MS + 4_001, FIRST_MS + 12_000, {0: range(5, 12), 1: range(5, 12), 2: range(5, 12)}),
        (FIRST_MS + 19_000, AFTER_ALL_MS, {0: range(19, 20), 1: range(19, 20), 2: range(19, 20)}),
        ({0: 1, 1: FIRST_MS + 500, 2: FIRST_MS + 19_000}, None, {0: range(20), 1: range(1, 20), 2: range(19, 20)}),
        (None, {0: FIRST_MS, 1: FIRST_MS + 1, 2: AFTER_ALL_MS}, {1: range(1), 2: range(20)}),
    ],
)
def test_timestamps_limit_the_rows(
    spark: SparkSession,
    bootstrap_servers: str,
    topics: tuple[str, str],
    start_ms: Timestamps | None,
    end_ms: Timestamps | None,
    slices: dict[int, range],
) -> None:
    options = kafka_options(bootstrap_servers, topics[0], starting_timestamp_ms=start_ms, ending_timestamp_ms=end_ms)

    assert values(load(spark, options)) == numbered(slices)


def test_a_timestamp_for_each_partition_of_several_topics(
    spark: SparkSession, bootstrap_servers: str, topics: tuple[str, str]
) -> None:
    a, b = topics
    since = {a: {0: FIRST_MS + 18_000, 1: FIRST_MS + 19_000, 2: FIRST_MS + 17_500}, b: {0: FIRST_MS + 16_000}}

    rows = load(spark, kafka_options(bootstrap_servers, [a, b], starting_timestamp_ms=since))

    assert values(rows) == sorted(
        numbered({0: range(18, 20), 1: range(19, 20), 2: range(18, 20)}) + b_values(range(16, 20))
    )


@pytest.mark.parametrize("start_ms", [AFTER_ALL_MS, {0: FIRST_MS + 18_000, 1: AFTER_ALL_MS, 2: FIRST_MS}])
def test_no_record_since_the_timestamp_is_an_error_unless_latest_is_chosen(
    spark: SparkSession, bootstrap_servers: str, topics: tuple[str, str], start_ms: Timestamps
) -> None:
    def read(strategy: Literal["error", "latest"] | None) -> list[bytes]:
        options = kafka_options(
            bootstrap_servers, topics[0], starting_timestamp_ms=start_ms, no_record_since_timestamp=strategy
        )
        return values(load(spark, {**options, "fetchOffset.numRetries": "1", "fetchOffset.retryIntervalMs": "1"}))

    with pytest.raises(Exception, match="No offset matched from request"):
        read(None)
    with pytest.raises(Exception, match="No offset matched from request"):
        read("error")
    assert read("latest") == ([] if start_ms == AFTER_ALL_MS else numbered({0: range(18, 20), 2: range(20)}))


def test_more_splits_than_partitions_return_the_same_rows(
    spark: SparkSession, bootstrap_servers: str, topics: tuple[str, str]
) -> None:
    whole = load(spark, kafka_options(bootstrap_servers, topics[0]))
    pieces = load(spark, {**kafka_options(bootstrap_servers, topics[0]), "minPartitions": "12"})

    assert whole.rdd.getNumPartitions() == 3
    assert pieces.rdd.getNumPartitions() == 12
    assert values(pieces) == values(whole) == numbered(ALL)


def test_splits_of_a_few_records_return_the_same_rows(
    spark: SparkSession, bootstrap_servers: str, topics: tuple[str, str]
) -> None:
    """In Spark 4.0.0 a batch from the earliest to the latest ignores the limit; with explicit offsets it applies."""
    if spark.version.startswith("3."):
        pytest.skip("maxRecordsPerPartition was added in Spark 4")
    options = kafka_options(
        bootstrap_servers, topics[0], starting_offsets={0: 0, 1: 3, 2: 20}, ending_offsets={0: 20, 1: 20, 2: 20}
    )

    rows = load(spark, {**options, "maxRecordsPerPartition": "7"})

    sizes = sorted(len(piece) for piece in rows.select("offset").rdd.glom().collect())
    assert max(sizes) <= 7
    assert sum(sizes) == 37
    assert values(rows) == numbered({0: range(20), 1: range(3, 20)})


def test_a_missing_partition_is_an_error(
    spark: SparkSession, bootstrap_servers: str, client: Client, make_topic: MakeTopic
) -> None:
    topic = make_topic(1)
    client.produce(topic, [Record(b"0:0")])

    refusal = "startingOffsets contains specific offsets" if spark.version.startswith("3.") else "Partitions specified"
    with pytest.raises(Exception, match=refusal):
        load(spark, kafka_options(bootstrap_servers, topic, starting_offsets={0: 0, 1: 0})).count()

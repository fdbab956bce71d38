"""Spark's batch source: it reads the content of the topic exactly, row by row and column by column."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from moldau.spark_integration import kafka_options
from moldau.testing.client import CODECS, Client, Record

from .support import (
    content,
    frame_of,
    group_names,
    load,
    multiset,
    numbered,
    produce_numbered,
    received_content,
    row_content,
    values,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from .conftest import MakeTopic


@pytest.mark.parametrize("partitions", [1, 6])
def test_written_rows_are_read_unchanged(
    spark: SparkSession, bootstrap_servers: str, make_topic: MakeTopic, partitions: int
) -> None:
    topic = make_topic(partitions)
    options = kafka_options(bootstrap_servers, topic, include_headers=True)
    written = content(2000)

    frame_of(spark, written).write.format("kafka").options(**options).save()

    assert multiset(load(spark, options)) == Counter(written)


@pytest.mark.parametrize("codec", CODECS)
def test_spark_and_another_client_read_each_others_records_with_each_codec(
    spark: SparkSession, bootstrap_servers: str, client: Client, make_topic: MakeTopic, codec: str
) -> None:
    topic = make_topic(3)
    options = kafka_options(
        bootstrap_servers, topic, include_headers=True, client={"compression.type": codec, "linger.ms": "20"}
    )
    by_spark, by_client = content(500), content(200)

    frame_of(spark, by_spark, partitions=2).write.format("kafka").options(**options).save()
    client.produce(topic, [Record(value, key, headers, partition=2) for key, value, headers in by_client], codec=codec)

    for partition in range(2):
        received = client.read(topic, partition)
        assert Counter(map(received_content, received)) == Counter(by_spark[partition::2])
        assert [record.offset for record in received] == list(range(len(by_spark[partition::2])))
    rows = load(spark, options).collect()
    assert Counter(map(row_content, rows)) == Counter(by_spark + by_client)
    in_order = sorted((row for row in rows if row.partition == 2), key=lambda row: row.offset)
    assert [(row.offset, row_content(row)) for row in in_order] == list(enumerate(by_client))


def test_each_column_can_be_selected_alone(
    spark: SparkSession, bootstrap_servers: str, client: Client, make_topic: MakeTopic
) -> None:
    topic = make_topic(2, {"retention.ms": "-1"})
    stamps_ms = [1, 2, 1_357_034_400_123, 1_357_034_400_122, 1_700_000_000_999]
    client.produce(topic, [Record(b"v%d" % n, b"k", (), stamp, partition=n % 2) for n, stamp in enumerate(stamps_ms)])
    rows = load(spark, kafka_options(bootstrap_servers, topic))
    whole = {
        "key": [b"k"] * 5,
        "value": [b"v0", b"v1", b"v2", b"v3", b"v4"],
        "topic": [topic] * 5,
        "partition": [0, 0, 0, 1, 1],
        "offset": [0, 0, 1, 1, 2],
        "timestampType": [0] * 5,
    }

    assert {
        column: sorted(
            row[0] if isinstance(row[0], int | str) else bytes(row[0]) for row in rows.select(column).collect()
        )
        for column in whole
    } == whole
    assert sorted(row.ms for row in rows.selectExpr("unix_millis(timestamp) ms").collect()) == sorted(stamps_ms)
    assert rows.count() == 5
    assert [tuple(row) for row in rows.select("offset", "partition").where("string(value) = 'v4'").collect()] == [
        (2, 0)
    ]


def test_log_append_time_is_shown_as_such(spark: SparkSession, bootstrap_servers: str, make_topic: MakeTopic) -> None:
    topic = make_topic(1, {"message.timestamp.type": "LogAppendTime"})
    options = kafka_options(bootstrap_servers, topic)
    before = datetime.now(UTC)

    frame_of(spark, content(10)).write.format("kafka").options(**options).save()

    rows = load(spark, options).selectExpr("unix_millis(timestamp) ms", "timestampType").collect()
    assert [row.timestampType for row in rows] == [1] * len(content(10))
    assert all(int(before.timestamp() * 1000) <= row.ms <= datetime.now(UTC).timestamp() * 1000 for row in rows)


def test_headers_are_null_if_a_record_has_none_and_absent_unless_requested(
    spark: SparkSession, bootstrap_servers: str, client: Client, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    headers = (("a", b"1"), ("a", None), ("", b""), ("b", b"\xff"), ("a", b"1"))
    client.produce(topic, [Record(b"with", headers=headers), Record(b"without")])

    rows = load(spark, kafka_options(bootstrap_servers, topic, include_headers=True)).orderBy("offset").collect()
    plain = load(spark, kafka_options(bootstrap_servers, topic))

    assert [row_content(row)[1:] for row in rows] == [(b"with", headers), (b"without", ())]
    assert rows[1].headers is None
    assert plain.columns == ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]


def test_deleted_records_are_not_read(
    spark: SparkSession, bootstrap_servers: str, client: Client, make_topic: MakeTopic
) -> None:
    topic = make_topic(2)
    produce_numbered(client, topic, partitions=2, count=20)
    assert client.delete_records(topic, 0, 15) == 15

    assert values(load(spark, kafka_options(bootstrap_servers, topic))) == numbered({0: range(15, 20), 1: range(20)})


def test_an_empty_topic_has_no_rows(spark: SparkSession, bootstrap_servers: str, make_topic: MakeTopic) -> None:
    assert load(spark, kafka_options(bootstrap_servers, make_topic(3))).collect() == []


def test_reading_an_unknown_topic_fails_and_does_not_create_it(
    spark: SparkSession, bootstrap_servers: str, client: Client
) -> None:
    with pytest.raises(Exception, match="UnknownTopicOrPartition"):
        load(spark, kafka_options(bootstrap_servers, "spark-nowhere")).count()

    assert "spark-nowhere" not in client.topics()


@pytest.mark.usefixtures("old_offset_fetching")
def test_the_old_offset_fetching_joins_a_group_and_reads_the_same(
    spark: SparkSession, bootstrap_servers: str, client: Client, make_topic: MakeTopic
) -> None:
    topic = make_topic(3, {"retention.ms": "-1"})
    first_ms = 1_357_034_400_000
    produce_numbered(client, topic, partitions=3, count=20, first_ms=first_ms)

    everything = load(spark, {**kafka_options(bootstrap_servers, topic), "groupIdPrefix": f"{topic}-all"})
    since = kafka_options(
        bootstrap_servers, topic, starting_timestamp_ms=first_ms + 1, ending_offsets={0: 7, 1: -1, 2: 1}
    )
    some = load(spark, {**since, "groupIdPrefix": f"{topic}-some"})

    assert values(everything) == numbered({0: range(20), 1: range(20), 2: range(20)})
    assert values(some) == numbered({0: range(1, 7), 1: range(1, 20)})
    joined = {group for group in group_names(bootstrap_servers) if group.startswith(topic)}
    assert {group[: len(topic) + 4] for group in joined} == {f"{topic}-all", f"{topic}-som"}

"""Spark's sink, batch and streaming: another client finds exactly the rows, in the topics and partitions they name."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from moldau.spark_integration import kafka_options
from moldau.testing.client import Client, Record

from .support import ODD_CONTENT, Content, content, frame_of, load, multiset, read_stream, received_content

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ..fixtures import RunUntil
    from .conftest import MakeTopic

LARGE = [b"%d" % n * 3_000_000 for n in range(3)]


def save(frame: DataFrame, options: dict[str, str]) -> None:
    frame.write.format("kafka").options(**options).save()


def contents(client: Client, topic: str, partition: int = 0) -> Counter[Content]:
    return Counter(map(received_content, client.read(topic, partition)))


def test_each_row_goes_to_the_topic_that_it_names(
    spark: SparkSession, bootstrap_servers: str, client: Client, make_topic: MakeTopic
) -> None:
    topics = [make_topic() for _ in range(3)]
    rows = content(300)
    frame = frame_of(spark, rows, partitions=3)
    named = frame.selectExpr("key", "value", "headers", f"array({', '.join(map(repr, topics))})[partition] topic")

    save(named, {"kafka.bootstrap.servers": bootstrap_servers})

    assert [contents(client, topic) for topic in topics] == [Counter(rows[number::3]) for number in range(3)]


def test_the_topic_of_the_options_takes_precedence_over_that_of_the_row(
    spark: SparkSession, bootstrap_servers: str, client: Client, make_topic: MakeTopic
) -> None:
    named, given = make_topic(), make_topic()

    save(
        frame_of(spark, ODD_CONTENT).selectExpr("key", "value", "headers", f"'{named}' topic"),
        kafka_options(bootstrap_servers, given),
    )

    assert contents(client, named) == Counter()
    assert contents(client, given) == Counter(ODD_CONTENT)


def test_a_row_without_a_topic_fails_the_job(spark: SparkSession, bootstrap_servers: str) -> None:
    rows = frame_of(spark, ODD_CONTENT[:1]).selectExpr("key", "value", "string(null) topic")

    with pytest.raises(Exception, match=r"null topic present in the data|contains a null topic"):
        save(rows, {"kafka.bootstrap.servers": bootstrap_servers})


def test_rows_go_to_the_partition_that_they_name_or_else_by_their_key(
    spark: SparkSession, bootstrap_servers: str, client: Client, make_topic: MakeTopic
) -> None:
    topic = make_topic(3)
    rows: list[Content] = [(b"key-%d" % (n % 5), b"%d" % n, ()) for n in range(90)]
    frame = frame_of(spark, rows, partitions=3)

    save(frame.where("partition = 2"), kafka_options(bootstrap_servers, topic))
    save(frame.where("partition != 2").drop("partition"), kafka_options(bootstrap_servers, topic))

    by_partition = [client.read(topic, partition) for partition in range(3)]
    named = {b"%d" % n for n in range(2, 90, 3)}
    assert {record.value for record in by_partition[2]} >= named
    assert Counter(received_content(record) for found in by_partition for record in found) == Counter(rows)
    of_key: dict[bytes | None, set[int]] = {}
    for record in (record for found in by_partition for record in found if record.value not in named):
        of_key.setdefault(record.key, set()).add(record.partition)
    assert {key: len(partitions) for key, partitions in of_key.items()} == {b"key-%d" % n: 1 for n in range(5)}


def test_large_values_arrive_unchanged(
    spark: SparkSession, bootstrap_servers: str, client: Client, make_topic: MakeTopic
) -> None:
    topic = make_topic(1, {"max.message.bytes": "10000000"})
    options = kafka_options(bootstrap_servers, topic, client={"max.request.size": "10000000"})
    rows: list[Content] = [(b"large", value, ()) for value in LARGE]

    save(frame_of(spark, rows), options)

    assert contents(client, topic) == Counter(rows)
    assert multiset(load(spark, {**options, "includeHeaders": "true"})) == Counter(rows)


def test_a_message_too_large_for_the_topic_fails_the_job(
    spark: SparkSession, bootstrap_servers: str, client: Client, make_topic: MakeTopic
) -> None:
    topic = make_topic(1, {"max.message.bytes": "10000"})

    with pytest.raises(Exception, match="RecordTooLarge"):
        save(frame_of(spark, [(None, b"x" * 20_000, ())]), kafka_options(bootstrap_servers, topic))

    assert client.offsets(topic, 0) == (0, 0)


def test_a_stream_writes_keys_values_headers_and_partitions_to_several_topics(
    spark: SparkSession,
    bootstrap_servers: str,
    client: Client,
    make_topic: MakeTopic,
    tmp_path: Path,
    run_until: RunUntil,
) -> None:
    source, targets = make_topic(4), [make_topic(2), make_topic(2)]
    before, added = content(200), content(100)

    def produce(rows: list[Content]) -> None:
        client.produce(source, [Record(row[1], row[0], row[2], partition=n % 4) for n, row in enumerate(rows)])

    produce(before)
    query = (
        read_stream(spark, kafka_options(bootstrap_servers, source, starting_offsets="earliest", include_headers=True))
        .selectExpr(
            "key",
            "value",
            "headers",
            f"if(partition < 2, '{targets[0]}', '{targets[1]}') topic",
            "partition % 2 partition",
        )
        .writeStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .option("checkpointLocation", str(tmp_path))
        .start()
    )
    run_until(query)
    produce(added)
    run_until(query, rows=len(before) + len(added))

    for partition in range(4):
        assert contents(client, targets[partition // 2], partition % 2) == Counter(
            before[partition::4] + added[partition::4]
        )

"""Spark's batch source and sink: what is written is what is read, row for row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from moldau.compat_tests.client import Client, Received, Record
from moldau.spark_integration import kafka_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from .conftest import MakeTopic

SCHEMA = "key binary, value binary, headers array<struct<key: string, value: binary>>, partition int"

# (key, value, headers): what can be null is null somewhere, and a header's key comes twice.
Content = tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]

ODD_CONTENT: list[Content] = [
    (None, None, ()),
    (b"", b"", ()),
    (None, b"no key", (("h", b"1"), ("h", b"2"), ("null", None), ("", b""))),
    (b"a tombstone", None, (("h", b"\x00\xff"),)),
    (b"\x00\xff\xfe", b"not UTF-8 \xff", (("ключ", "значение".encode()),)),
    (b"big", b"x" * 900_000, ()),
]


def content(count: int) -> list[Content]:
    """``count`` rows besides the odd ones: few keys, every fourth row twice, every tenth without a key."""
    plain: list[Content] = [
        (None if n % 10 == 0 else b"key-%d" % (n % 7), b"value-%d" % (n - n % 4 // 3), (("n", b"%d" % (n % 3)),))
        for n in range(count)
    ]
    return [*ODD_CONTENT, *plain]


def write(spark: SparkSession, options: dict[str, str], rows: Iterable[Content], partitions: int | None = None) -> None:
    """Write the rows with Spark; row n to partition n modulo ``partitions`` where that is given."""
    data = [
        (key, value, list(headers), None if partitions is None else number % partitions)
        for number, (key, value, headers) in enumerate(rows)
    ]
    spark.createDataFrame(data, SCHEMA).write.format("kafka").options(**options).save()


def load(spark: SparkSession, options: dict[str, str]) -> DataFrame:
    return spark.read.format("kafka").options(**options).load()


def multiset(frame: DataFrame) -> Counter[Content]:
    return Counter(map(row_content, frame.collect()))


def row_content(row: Any) -> Content:
    headers = tuple((header.key, as_bytes(header.value)) for header in row.headers or ())
    return as_bytes(row.key), as_bytes(row.value), headers


def as_bytes(value: bytearray | None) -> bytes | None:
    """Spark hands out bytearray, which cannot be counted."""
    return None if value is None else bytes(value)


def received_content(record: Received) -> Content:
    return record.key, record.value, record.headers


def numbered(client: Client, topic: str, partitions: int, count: int, first_ms: int = 0) -> None:
    """``count`` records in each partition: values ``partition:n``, timestamps one second apart from ``first_ms``."""
    records = [
        Record(b"%d:%d" % (partition, n), partition=partition, timestamp_ms=first_ms + 1000 * n if first_ms else None)
        for partition in range(partitions)
        for n in range(count)
    ]
    client.produce(topic, records)


def values(frame: DataFrame) -> list[bytes]:
    return sorted(bytes(row.value) for row in frame.select("value").collect())


def expected(slices: dict[int, range]) -> list[bytes]:
    return sorted(b"%d:%d" % (partition, n) for partition, numbers in slices.items() for n in numbers)


@pytest.mark.parametrize("partitions", [1, 6])
def test_rows_come_back_exactly(
    spark: SparkSession, bootstrap_servers: str, make_topic: MakeTopic, partitions: int
) -> None:
    topic = make_topic(partitions)
    options = kafka_options(bootstrap_servers, topic, include_headers=True)
    written = content(2000)

    write(spark, options, written)

    assert multiset(load(spark, options)) == Counter(written)


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_rows_come_back_exactly_through_each_codec(
    spark: SparkSession, bootstrap_servers: str, make_topic: MakeTopic, codec: str
) -> None:
    topic = make_topic(2)
    options = kafka_options(bootstrap_servers, topic, include_headers=True, client={"compression.type": codec})
    written = content(500)

    write(spark, options, written)

    assert multiset(load(spark, options)) == Counter(written)


def test_another_client_reads_what_spark_wrote(
    spark: SparkSession, bootstrap_servers: str, client: Client, make_topic: MakeTopic
) -> None:
    topic = make_topic(3)
    written = content(500)

    write(spark, kafka_options(bootstrap_servers, topic), written, partitions=3)

    for partition in range(3):
        received = client.read(topic, partition)
        assert Counter(map(received_content, received)) == Counter(written[partition::3])
        assert [record.offset for record in received] == list(range(len(written[partition::3])))


def test_spark_reads_what_another_client_wrote(
    spark: SparkSession, bootstrap_servers: str, client: Client, make_topic: MakeTopic
) -> None:
    topic = make_topic(3)
    written = content(500)
    client.produce(
        topic,
        [Record(value, key, headers, partition=n % 3) for n, (key, value, headers) in enumerate(written)],
        codec="lz4",
    )

    rows = load(spark, kafka_options(bootstrap_servers, topic, include_headers=True)).collect()

    assert Counter(map(row_content, rows)) == Counter(written)
    for partition in range(3):
        in_order = sorted((row for row in rows if row.partition == partition), key=lambda row: row.offset)
        assert [row_content(row) for row in in_order] == written[partition::3]
        assert [row.offset for row in in_order] == list(range(len(in_order)))


def test_timestamps_are_those_of_the_records(
    spark: SparkSession, bootstrap_servers: str, client: Client, make_topic: MakeTopic
) -> None:
    topic = make_topic(1, {"retention.ms": "-1"})
    stamps_ms = [1, 2, 1_357_034_400_123, 1_357_034_400_122, 1_700_000_000_999]
    client.produce(topic, [Record(b"%d" % stamp, timestamp_ms=stamp) for stamp in stamps_ms])

    rows = load(spark, kafka_options(bootstrap_servers, topic)).selectExpr(
        "value", "unix_millis(timestamp) ms", "timestampType"
    )

    assert [(bytes(row.value), row.ms, row.timestampType) for row in rows.collect()] == [
        (b"%d" % stamp, stamp, 0) for stamp in stamps_ms
    ]


def test_log_append_time_is_shown_as_such(spark: SparkSession, bootstrap_servers: str, make_topic: MakeTopic) -> None:
    topic = make_topic(1, {"message.timestamp.type": "LogAppendTime"})
    options = kafka_options(bootstrap_servers, topic)
    before = datetime.now(UTC)

    write(spark, options, content(10))

    rows = load(spark, options).selectExpr("unix_millis(timestamp) ms", "timestampType").collect()
    assert {row.timestampType for row in rows} == {1}
    assert all(int(before.timestamp() * 1000) <= row.ms <= datetime.now(UTC).timestamp() * 1000 for row in rows)


def test_offsets_bound_what_is_read(
    spark: SparkSession, bootstrap_servers: str, client: Client, make_topic: MakeTopic
) -> None:
    topic = make_topic(3)
    numbered(client, topic, partitions=3, count=20)

    some = load(
        spark,
        kafka_options(
            bootstrap_servers,
            topic,
            starting_offsets={0: 5, 1: -2, 2: 20},
            ending_offsets={0: 7, 1: 20, 2: -1},
        ),
    )
    rest = load(spark, kafka_options(bootstrap_servers, topic, starting_offsets={0: 18, 1: 19, 2: 20}))

    assert values(some) == expected({0: range(5, 7), 1: range(20)})
    assert values(rest) == expected({0: range(18, 20), 1: range(19, 20)})


def test_timestamps_bound_what_is_read(
    spark: SparkSession, bootstrap_servers: str, client: Client, make_topic: MakeTopic
) -> None:
    topic = make_topic(2, {"retention.ms": "-1"})
    first_ms = 1_357_034_400_000
    numbered(client, topic, partitions=2, count=20, first_ms=first_ms)

    between = load(
        spark,
        kafka_options(
            bootstrap_servers, topic, starting_timestamp_ms=first_ms + 4_001, ending_timestamp_ms=first_ms + 12_000
        ),
    )

    assert values(between) == expected({0: range(5, 12), 1: range(5, 12)})


def test_deleted_records_are_not_read(
    spark: SparkSession, bootstrap_servers: str, client: Client, make_topic: MakeTopic
) -> None:
    topic = make_topic(2)
    numbered(client, topic, partitions=2, count=20)
    assert client.delete_records(topic, 0, 15) == 15

    assert values(load(spark, kafka_options(bootstrap_servers, topic))) == expected({0: range(15, 20), 1: range(20)})


def test_an_empty_topic_has_no_rows(spark: SparkSession, bootstrap_servers: str, make_topic: MakeTopic) -> None:
    assert load(spark, kafka_options(bootstrap_servers, make_topic(3))).count() == 0


def test_reading_an_unknown_topic_fails_and_does_not_make_it(
    spark: SparkSession, bootstrap_servers: str, client: Client
) -> None:
    with pytest.raises(Exception, match="UnknownTopicOrPartition"):
        load(spark, kafka_options(bootstrap_servers, "spark-nowhere")).count()

    assert "spark-nowhere" not in client.topics()


def test_a_message_too_large_for_the_topic_fails_the_job(
    spark: SparkSession, bootstrap_servers: str, client: Client, make_topic: MakeTopic
) -> None:
    topic = make_topic(1, {"max.message.bytes": "10000"})

    with pytest.raises(Exception, match="RecordTooLarge"):
        write(spark, kafka_options(bootstrap_servers, topic), [(None, b"x" * 20_000, ())])

    assert client.offsets(topic, 0) == (0, 0)

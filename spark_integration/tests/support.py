"""Shared by these tests: rows as values that can be counted, and records that can be identified."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from moldau.protocol.messages.list_groups import ListGroupsRequest
from moldau.protocol.messages.metadata import MetadataRequest
from moldau.spark_integration.fixtures import TEST_CONF
from moldau.testing.client import Client, Received, Record
from moldau.testing.wire import WireClient

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# (key, value, headers) of a record.
Content = tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]

SCHEMA = "key binary, value binary, headers array<struct<key: string, value: binary>>, partition int"

# Each nullable field is null once, and a header key occurs twice.
ODD_CONTENT: list[Content] = [
    (None, None, ()),
    (b"", b"", ()),
    (None, b"no key", (("h", b"1"), ("h", b"2"), ("null", None), ("", b""))),
    (b"a tombstone", None, (("h", b"\x00\xff"),)),
    (b"\x00\xff\xfe", b"not UTF-8 \xff", (("ключ", "значение".encode()),)),
    (b"big", b"x" * 900_000, ()),
]


def content(count: int) -> list[Content]:
    """``ODD_CONTENT`` and ``count`` more rows: few keys, every fourth row twice, every tenth without a key."""
    plain: list[Content] = [
        (None if n % 10 == 0 else b"key-%d" % (n % 7), b"value-%d" % (n - n % 4 // 3), (("n", b"%d" % (n % 3)),))
        for n in range(count)
    ]
    return [*ODD_CONTENT, *plain]


def driver_conf(spark: SparkSession, warehouse: Path) -> dict[str, str]:
    """The settings for a driver in a separate process: those of the tests, and the jars that this session has resolved,
    so that they are not resolved again."""
    return {**TEST_CONF, "spark.jars": spark.conf.get("spark.jars") or "", "spark.sql.warehouse.dir": str(warehouse)}


def command_options(spark: SparkSession, warehouse: Path) -> list[str]:
    """``driver_conf`` as options of the commands."""
    conf = driver_conf(spark, warehouse)
    settings = [f"--spark-config={name}={value}" for name, value in conf.items() if name != "spark.master"]
    return ["--master", conf["spark.master"], *settings]


def frame_of(spark: SparkSession, rows: Iterable[Content], partitions: int | None = None) -> DataFrame:
    """The rows in the format of the sink; row n is for partition n modulo ``partitions`` if given."""
    data = [
        (key, value, list(headers), None if partitions is None else number % partitions)
        for number, (key, value, headers) in enumerate(rows)
    ]
    return spark.createDataFrame(data, SCHEMA)


def load(spark: SparkSession, options: Mapping[str, str]) -> DataFrame:
    return spark.read.format("kafka").options(**options).load()


def read_stream(spark: SparkSession, options: Mapping[str, str]) -> DataFrame:
    return spark.readStream.format("kafka").options(**options).load()


def multiset(frame: DataFrame) -> Counter[Content]:
    return Counter(map(row_content, frame.collect()))


def row_content(row: Any) -> Content:
    headers = tuple((header.key, as_bytes(header.value)) for header in row.headers or ())
    return as_bytes(row.key), as_bytes(row.value), headers


def as_bytes(value: bytearray | None) -> bytes | None:
    """Convert Spark's bytearray, which is not hashable."""
    return None if value is None else bytes(value)


def received_content(record: Received) -> Content:
    return record.key, record.value, record.headers


def produce_numbered(client: Client, topic: str, partitions: int, count: int, first_ms: int = 0) -> None:
    """``count`` records in each partition: values ``partition:n``, timestamps one second apart from ``first_ms``."""
    records = [
        Record(b"%d:%d" % (partition, n), partition=partition, timestamp_ms=first_ms + 1000 * n if first_ms else None)
        for partition in range(partitions)
        for n in range(count)
    ]
    client.produce(topic, records)


def values(frame: DataFrame) -> list[bytes]:
    return sorted(bytes(row.value) for row in frame.select("value").collect())


def numbered(slices: Mapping[int, Iterable[int]]) -> list[bytes]:
    """The values of ``produce_numbered``, in the order of ``values``: the chosen numbers of each partition."""
    return sorted(b"%d:%d" % (partition, n) for partition, numbers in slices.items() for n in numbers)


def group_names(bootstrap_servers: str) -> list[str]:
    """All groups of the cluster: each broker knows those that it coordinates."""
    with WireClient(bootstrap_servers) as wire:
        brokers = wire.call(MetadataRequest(topics=[])).brokers
    addresses = [f"{broker.host}:{broker.port}" for broker in brokers]
    names = []
    for address in addresses if len(addresses) > 1 else [bootstrap_servers]:
        with WireClient(address) as wire:
            names += [group.group_id for group in wire.call(ListGroupsRequest()).groups]
    return names

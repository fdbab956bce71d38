"""For the tests of archives: records with unusual content, and rows that can be compared with a topic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from moldau.testing.client import Client, Headers, Record

from ..archive_pieces import read_archive

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TYPES = {0: "CreateTime", 1: "LogAppendTime"}

# Nullable and empty fields, a duplicate header key, timestamps that decrease and that are far in the past and future.
ODD_RECORDS = (
    Record(None, None, (), 1_600_000_000_000, 0),
    Record(b"", b"", (("", b""),), 1_600_000_000_001, 0),
    Record(b"no key", None, (("h", b"1"), ("h", b"2"), ("h", b"1"), ("null", None)), 1_500_000_000_000, 0),
    Record(None, b"a tombstone", (("h", b"\x00\xff"),), 1_600_000_086_400, 1),
    Record(b"not UTF-8 \xff", b"\x00\xff\xfe", (("ключ", "значение".encode()),), 1, 1),
    Record(b"before 1970", b"k", (), -86_400_001, 1),
    Record(b"x" * 900_000, b"big", (), 1_700_000_000_000, 2),
    Record(b"before 1900", b"k", (), -3_000_000_000_000, 2),
)


class Row(NamedTuple):
    """A record, as read from an archive or by a client."""

    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: str | None
    key: bytes | None
    value: bytes | None
    headers: Headers


def archive_rows(spark: SparkSession, folder: str) -> list[Row]:
    """The archive's rows, in the order of their partitions and offsets."""
    columns = ["partition", "offset", "unix_millis(timestamp) ms", "timestampType", "key", "value", "headers"]
    found = read_archive(spark, folder).selectExpr(*columns).orderBy("partition", "offset").collect()
    return [
        Row(
            row.partition,
            row.offset,
            row.ms,
            _TYPES.get(row.timestampType),
            _bytes(row.key),
            _bytes(row.value),
            tuple((header.key, _bytes(header.value)) for header in row.headers or ()),
        )
        for row in found
    ]


def topic_rows(client: Client, topic: str, partitions: int) -> list[Row]:
    """The records of a topic, as read by a client other than Spark."""
    return [
        Row(
            record.partition,
            record.offset,
            record.timestamp_ms,
            record.timestamp_type,
            record.key,
            record.value,
            record.headers,
        )
        for partition in range(partitions)
        for record in client.read(topic, partition)
    ]


def without_offsets(rows: list[Row]) -> list[Any]:
    """The rows without their offsets, for comparisons that ignore offsets."""
    return [row._replace(offset=0) for row in rows]


def _bytes(value: bytearray | None) -> bytes | None:
    return None if value is None else bytes(value)

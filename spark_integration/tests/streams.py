"""Shared by the tests of streams: numbered records, and a folder to which queries append."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from moldau.testing.client import Client, Record

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

PARTITIONS = 3

# A query that takes longer hangs.
DEADLINE_S = 400


def produce(client: Client, topic: str, numbers: range, partitions: int = PARTITIONS) -> None:
    """Produce one record for each number, spread over the partitions."""
    client.produce(topic, [Record(b"%d" % n, b"%d" % (n % 7), partition=n % partitions) for n in numbers])


class FileSink:
    """A folder of JSON lines to which queries with one checkpoint append. It shows what was written exactly once."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self.files = str(folder / "files")
        self.checkpoint = str(folder / "checkpoint")

    def start(self, rows: DataFrame, name: str | None = None, **trigger: bool | str) -> StreamingQuery:
        """Start a query that writes the rows, batch after batch."""
        writer = rows.writeStream.format("json").option("path", self.files)
        if name is not None:
            writer = writer.queryName(name)
        writer = writer.option("checkpointLocation", self.checkpoint)
        return (writer.trigger(**trigger) if trigger else writer).start()

    def run(self, source: DataFrame) -> StreamingQuery:
        """Write the numbers of all current records, and return the finished query."""
        return self.run_rows(numbers_of(source))

    def run_rows(self, rows: DataFrame) -> StreamingQuery:
        query = self.start(rows, availableNow=True)
        assert query.awaitTermination(DEADLINE_S), "the query did not end"
        return query

    def numbers(self) -> list[int]:
        return sorted(row[0] for row in self.rows("number int"))

    def rows(self, schema: str) -> list[tuple[Any, ...]]:
        """The output of all queries, in order."""
        return sorted((tuple(row) for row in self._spark.read.schema(schema).json(self.files).collect()), key=repr)


def numbers_of(source: DataFrame) -> DataFrame:
    return source.selectExpr("int(string(value)) number", "partition", "offset")


def rows_read(query: StreamingQuery) -> list[int]:
    """The number of rows of each batch that had any."""
    return [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]

"""Pieces as Spark writes and reads them: Parquet files, partitioned by date (UTC) and Kafka partition.

The counts of a piece in the manifest are taken from the written files, not from the rows that were passed to Spark.
Reading the files once also proves that they can be read.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .archive_layout import ArchiveError, Layout, publish
from .archive_manifest import Manifest, PartitionRange, Piece, check_files, load_existing

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

COLUMNS = ("key", "value", "headers", "timestamp", "timestampType", "offset", "date", "partition")
_PARTITIONED_BY = ("date", "partition")
_CODEC = "zstd"

# Kafka's batch header, and the maximum size of the other fields of a record.
_BATCH_OVERHEAD_BYTES = 61
_RECORD_OVERHEAD_BYTES = 40
_HEADER_OVERHEAD_BYTES = 10

# Timestamps in microseconds and the Gregorian calendar for all years: older Sparks reject some years by default.
_WRITE_SETTINGS = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
}


def kafka_date() -> Column:
    """The date of a record's timestamp in UTC, independent of the session's time zone."""
    from pyspark.sql import functions as F  # noqa: N812

    return F.expr("date_from_unix_date(cast(floor(unix_micros(timestamp) / 86400000000D) as int))")


def write_piece(
    spark: SparkSession, frame: DataFrame, layout: Layout, first_batch: int, last_batch: int, max_file_records: int = 0
) -> tuple[Piece, Path] | None:
    """Write the rows to a temporary folder. Returns the resulting piece and the folder; None if there are no rows.

    ``spark`` is a session whose settings may be changed. Rows stay in their task; within a file they are in the order
    of their offsets.
    """
    for name, value in _WRITE_SETTINGS.items():
        spark.conf.set(name, value)
    temporary = layout.temporary(first_batch)
    (
        frame.sortWithinPartitions(*_PARTITIONED_BY, "offset")
        .write.partitionBy(*_PARTITIONED_BY)
        .option("compression", _CODEC)
        .option("maxRecordsPerFile", max_file_records)
        .parquet(str(temporary))
    )
    files = {
        str(path.relative_to(temporary)): path.stat().st_size
        for folder, _, names in os.walk(temporary)
        for path in (Path(folder, name) for name in names)
        if path.suffix == ".parquet" and not path.name.startswith((".", "_"))
    }
    if not files:
        return None
    # The result has few rows; a streaming session would use 200 tasks for them.
    counting = spark.newSession()
    counting.conf.set("spark.sql.shuffle.partitions", "1")
    written = counting.read.schema(frame.schema).parquet(str(temporary))
    name = layout.piece(first_batch, last_batch).name
    return _counted(written, name, first_batch, last_batch, dict(sorted(files.items()))), temporary


def publish_piece(layout: Layout, temporary: Path, piece: Piece) -> None:
    """Rename a written piece to its final name. It belongs to the archive when a manifest names it."""
    publish(temporary, layout.data / piece.name)


def _counted(written: DataFrame, name: str, first_batch: int, last_batch: int, files: Mapping[str, int]) -> Piece:
    from pyspark.sql import functions as F  # noqa: N812

    unfit = F.sum(unfit_rows(written).cast("int")) if "parsed" in written.columns else F.lit(0)
    counts = (
        written.groupBy("partition")
        .agg(
            F.count("*").alias("records"),
            F.min("offset").alias("first_offset"),
            F.max("offset").alias("last_offset"),
            F.expr("unix_millis(min(timestamp))").alias("oldest_ms"),
            F.expr("unix_millis(max(timestamp))").alias("newest_ms"),
            F.max(record_bytes()).alias("largest"),
            unfit.alias("unfit"),
        )
        .collect()
    )
    ranges = {row.partition: PartitionRange(row.records, row.first_offset, row.last_offset) for row in counts}
    return Piece(
        name=name,
        first_batch=first_batch,
        last_batch=last_batch,
        records=sum(row.records for row in counts),
        unfit=sum(row.unfit for row in counts),
        oldest_ms=min(row.oldest_ms for row in counts),
        newest_ms=max(row.newest_ms for row in counts),
        largest_record_bytes=max(row.largest for row in counts),
        partitions=dict(sorted(ranges.items())),
        files=files,
    )


def unfit_rows(frame: DataFrame) -> Column:
    """A condition for rows whose value does not match the schema."""
    return frame["value"].isNotNull() & frame["parsed"].isNull()


def record_bytes() -> Column:
    """The maximum size in bytes of a record that is alone in a batch, uncompressed."""
    from pyspark.sql import functions as F  # noqa: N812

    return F.expr(
        f"{_BATCH_OVERHEAD_BYTES + _RECORD_OVERHEAD_BYTES}"
        " + coalesce(octet_length(key), 0) + coalesce(octet_length(value), 0)"
        f" + coalesce(aggregate(headers, 0, (sum, header) -> sum + {_HEADER_OVERHEAD_BYTES} + octet_length(header.key)"
        " + coalesce(octet_length(header.value), 0)), 0)"
    )


def read_pieces(spark: SparkSession, layout: Layout, manifest: Manifest, pieces: Sequence[Piece]) -> DataFrame:
    """The rows of these pieces, of which there must be at least one."""
    from pyspark.sql.types import StructType

    assert manifest.row_schema is not None, "an archive with pieces has a schema"
    schema = StructType.fromJson(dict(manifest.row_schema))
    folders = [str(layout.data / piece.name) for piece in pieces]
    found = (
        spark.read.schema(schema)
        .option("basePath", str(layout.data))
        .option("datetimeRebaseMode", "CORRECTED")
        .parquet(*folders)
    )
    return found.select(*schema.names)


def read_archive(spark: SparkSession, folder: str | os.PathLike[str]) -> DataFrame:
    """The rows of an archive: the records that its manifest names, each once, in no particular order."""
    layout = Layout(Path(folder).absolute())
    manifest = load_existing(layout)
    check_files(layout, manifest)
    if not manifest.pieces:
        raise ArchiveError(f"the archive {layout.root} is empty")
    return read_pieces(spark, layout, manifest, manifest.pieces)


def schema_json(frame: DataFrame) -> dict[str, Any]:
    """The frame's schema as stored in the manifest: every column is nullable, as in the files."""
    from pyspark.sql.types import StructField, StructType

    nullable = StructType([StructField(each.name, each.dataType, True) for each in frame.schema.fields])
    document: dict[str, Any] = nullable.jsonValue()
    return document

"""Assigns rows to writers, in Spark, before the rows are passed to the tasks.

Rows have the columns of Spark's own Kafka sink: ``value`` and optionally ``key``, ``headers``, ``topic`` and
``partition``. Other columns are ignored. ``row_hash`` is added: a hash of all columns that are written.

A row's writer is a function of the row. So a repeated batch is split in the same way, even if Spark's partitions,
settings or cluster have changed. Rows that name the same Kafka partition, and rows with the same key, are written by
the same writer, in the order in which it receives them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .errors import ExactlyOnceError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

# Key, value, headers, topic, partition; a hash of these; and the number of the writer, if a column contains it.
SinkRow = tuple[
    bytearray | None,
    bytearray | None,
    "list[tuple[str, bytearray | None]] | None",
    "str | None",
    "int | None",
    int,
    "int | None",
]

_BYTES = ("string", "binary")
_HEADERS = "array<struct<key:string,value:binary>>"
_TYPES = {
    "key": _BYTES,
    "value": _BYTES,
    "headers": (_HEADERS,),
    "topic": ("string",),
    "partition": ("int",),
}
_NUMBERS = ("tinyint", "smallint", "int", "bigint")
_CASTS = {"key": "binary", "value": "binary", "headers": _HEADERS, "topic": "string", "partition": "int"}


def sink_rows(frame: DataFrame, topic: str | None, writer_column: str | None) -> DataFrame:
    """The columns of ``SinkRow``, in its order; ``topic`` takes precedence over a row's own topic.

    ExactlyOnceError if a column is missing or has the wrong type.
    """
    from pyspark.sql import functions

    types = {field.name: field.dataType.simpleString() for field in frame.schema.fields}
    if "value" not in types:
        raise ExactlyOnceError(f"the rows have no column value; they have {', '.join(types) or 'no columns'}")
    if topic is None and "topic" not in types:
        raise ExactlyOnceError("the rows have no topic: name a topic with topic=, or add a column topic")
    for name, allowed in _TYPES.items():
        if name in types and types[name] not in allowed and not (name == "topic" and topic is not None):
            raise ExactlyOnceError(
                f"the column {name} is {types[name]}, but must be {' or '.join(allowed)}, as for Spark's own sink"
            )

    if writer_column is not None and types.get(writer_column) not in _NUMBERS:
        raise ExactlyOnceError(
            f"the column {writer_column} must contain the number of the writer, but is "
            f"{types.get(writer_column, 'missing')}: it must be {' or '.join(_NUMBERS)}"
        )

    def column(name: str) -> Column:
        if name == "topic" and topic is not None:
            return functions.lit(topic)
        found = frame[name] if name in types else functions.lit(None)
        return found.cast(_CASTS[name]).alias(name)

    writer = functions.lit(None) if writer_column is None else frame[writer_column]
    written = frame.select(*(column(name).alias(name) for name in _TYPES), writer.cast("bigint").alias("writer"))
    # The hash function skips nulls. So whether a column is null is hashed as well.
    nulls = [functions.col(name).isNull() for name in _TYPES]
    row_hash = functions.xxhash64(*(functions.col(name) for name in _TYPES), *nulls).alias("row_hash")
    return written.select(*_TYPES, row_hash, "writer")


def split_by_content(rows: DataFrame, writers: int) -> DataFrame:
    """One partition of Spark's for each writer, with the rows of that writer."""
    from pyspark.sql import functions

    col = functions.col
    place = (
        functions.when(col("partition").isNotNull(), functions.xxhash64(col("topic"), col("partition")))
        .when(col("key").isNotNull(), functions.xxhash64(col("topic"), col("key")))
        .otherwise(col("row_hash"))
    )
    return rows.repartition(writers, place)

"""Which row is written by which writer, decided by Spark before the rows are handed out.

Rows have the columns of Spark's own Kafka sink: ``value``, and where they are there ``key``, ``headers``, ``topic`` and
``partition``; others are left alone. ``row_hash`` is added, of all that is written.

A row's writer is a function of the row, so that a batch that runs again is split in the same way, whatever became of
Spark's partitions, its settings and its cluster in the meantime. Rows for one partition of Kafka that name it, and
rows with one key, are written by one writer, in the order in which it is given them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .errors import ExactlyOnceError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

# Key, value, headers, topic, partition; a hash of these; and the number of the writer, where a column has it.
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
    """The columns of ``SinkRow``, in its order; ``topic`` comes before a row's own.

    ExactlyOnceError where a column is missing or is of another type.
    """
    from pyspark.sql import functions

    types = {field.name: field.dataType.simpleString() for field in frame.schema.fields}
    if "value" not in types:
        raise ExactlyOnceError(f"the rows have no column value; they have {', '.join(types) or 'none at all'}")
    if topic is None and "topic" not in types:
        raise ExactlyOnceError("where shall the rows go? Name a topic with topic=, or give them a column topic")
    for name, allowed in _TYPES.items():
        if name in types and types[name] not in allowed and not (name == "topic" and topic is not None):
            raise ExactlyOnceError(
                f"the column {name} is {types[name]}, and has to be {' or '.join(allowed)}, as for Spark's own sink"
            )

    if writer_column is not None and types.get(writer_column) not in _NUMBERS:
        raise ExactlyOnceError(
            f"the column {writer_column} shall have the number of the writer, and is "
            f"{types.get(writer_column, 'not there')}: it has to be {' or '.join(_NUMBERS)}"
        )

    def column(name: str) -> Column:
        if name == "topic" and topic is not None:
            return functions.lit(topic)
        found = frame[name] if name in types else functions.lit(None)
        return found.cast(_CASTS[name]).alias(name)

    writer = functions.lit(None) if writer_column is None else frame[writer_column]
    written = frame.select(*(column(name).alias(name) for name in _TYPES), writer.cast("bigint").alias("writer"))
    # A hash passes over nulls: whether there is one is hashed as well, so that a null is not an absent neighbour.
    nulls = [functions.col(name).isNull() for name in _TYPES]
    row_hash = functions.xxhash64(*(functions.col(name) for name in _TYPES), *nulls).alias("row_hash")
    return written.select(*_TYPES, row_hash, "writer")


def split_by_content(rows: DataFrame, writers: int) -> DataFrame:
    """One partition of Spark's for each writer, with the rows that fall to it."""
    from pyspark.sql import functions

    col = functions.col
    place = (
        functions.when(col("partition").isNotNull(), functions.xxhash64(col("topic"), col("partition")))
        .when(col("key").isNotNull(), functions.xxhash64(col("topic"), col("key")))
        .otherwise(col("row_hash"))
    )
    return rows.repartition(writers, place)

"""One row for each offset: the counts of the log and of every tier, joined in one shuffle.

    log        one row for each record, from Spark's Kafka source, up to the last stable offset
    producers  one row for each offset of their pages: acknowledged records
    consumers  the same, by group: records that were returned to the application
    archives   one row for each row of their Parquet files

A record is late when an earlier record of its partition is newer than the end of its window by more than the watermark:
a job that reads record by record would already have balanced the window. Lateness does not depend on when the audit
runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ..archive_pieces import read_archive
from ..options import kafka_options
from .ledger import Ledger
from .plan import Plan
from .report import SERVER
from .request import AuditError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


def offset_rows(spark: SparkSession, plan: Plan, ledger: Ledger) -> DataFrame:
    """Columns: topic, partition, offset, window_start, late, log (the record is in the log), content, newest; and for
    the n-th tier its count ``n``, whether the offset is ``missing`` there, and ``behind``."""
    from pyspark.sql import functions as F  # noqa: N812

    if not plan.bounds:
        raise AuditError("no topic can be audited" + "".join(f"\n{note}" for note in plan.notes))
    names = plan.tier_names
    rows = _log(spark, plan)
    for each in _claims(spark, plan, ledger):
        rows = rows.unionByName(each, allowMissingColumns=True)
    counts = [F.count(F.when(F.col("tier") == name, 1)).alias(f"n{index}") for index, name in enumerate(names)]
    offsets = rows.groupBy("topic", "partition", "offset").agg(
        F.count(F.when(F.col("tier") == SERVER, 1)).alias("log"),
        F.max("timestamp_ms").alias("timestamp_ms"),
        F.min("claimed_window").alias("claimed_window"),
        F.max("content").alias("content"),
        F.coalesce(F.bool_or("late"), F.lit(False)).alias("late"),
        *counts,
    )
    window = F.coalesce(_floor("timestamp_ms", plan.window_ms), F.col("claimed_window"))
    offsets = offsets.withColumn("window_start", window).join(
        F.broadcast(_beginnings(spark, plan)), ["topic", "partition"]
    )
    # Records that the server has deleted cannot be missing, and uncommitted records are undecided.
    offsets = offsets.where("offset >= log_start and (offset < log_end or offset >= high_watermark)")
    offsets = _in_range(plan, offsets)
    for index in range(len(names)):
        offsets = offsets.withColumn(
            f"missing{index}",
            F.expr(f"log = 1 and n{index} = 0 and offset >= from_offset{index} and window_start >= from_window{index}"),
        ).withColumn(f"behind{index}", F.expr(f"missing{index} and offset > last{index}"))
    return offsets


def _log(spark: SparkSession, plan: Plan) -> DataFrame:
    """The records of the server, reduced to the columns that are needed."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812

    options = kafka_options(
        plan.request.bootstrap_servers,
        {topic: list(bounds) for topic, bounds in plan.bounds.items()},
        starting_offsets={
            topic: {partition: each.start for partition, each in bounds.items()}
            for topic, bounds in plan.bounds.items()
        },
        ending_offsets={
            topic: {partition: each.end for partition, each in bounds.items()} for topic, bounds in plan.bounds.items()
        },
        include_headers=True,
        fail_on_data_loss=True,
        client={"isolation.level": "read_committed", **plan.request.client},
    )
    timestamp_ms = F.expr("unix_millis(timestamp)")
    records = (
        spark.read.format("kafka")
        .options(**options)
        .load()
        .select("topic", "partition", "offset", timestamp_ms.alias("timestamp_ms"), _content().alias("content"))
    )
    before = Window.partitionBy("topic", "partition").orderBy("offset").rowsBetween(Window.unboundedPreceding, -1)
    newest_before = F.max("timestamp_ms").over(before)
    over_after = _floor("timestamp_ms", plan.window_ms) + plan.window_ms + plan.request.watermark_ms
    return records.withColumn("late", newest_before > over_after).withColumn("tier", F.lit(SERVER))


def _content() -> Column:
    """A hash that is equal for equal records. It covers which fields are null, since the hash function skips nulls."""
    from pyspark.sql import functions as F  # noqa: N812

    return F.expr(
        "xxhash64(key is null, key, value is null, value, headers, if(timestampType = 1, 0L, unix_millis(timestamp)))"
    )


def _claims(spark: SparkSession, plan: Plan, ledger: Ledger) -> Iterator[DataFrame]:
    """The counts of the other tiers: a row for each time that they have counted an offset."""
    from pyspark.sql import functions as F  # noqa: N812

    if ledger.runs is not None:
        yield (
            _in_range(plan, ledger.runs)
            .where(F.col("topic").isin(list(plan.bounds)))
            .select(
                "topic",
                "partition",
                F.expr("explode(sequence(first, last))").alias("offset"),
                "tier",
                F.col("window_start").alias("claimed_window"),
            )
        )
    for archive in plan.archives:
        if archive.manifest.pieces:
            archived = read_archive(spark, archive.folder).withColumn("topic", F.lit(archive.manifest.topic))
            # Records after the fixed ends belong to the next audit.
            known = archived.join(F.broadcast(_beginnings(spark, plan)), ["topic", "partition"]).where(
                "offset < log_end"
            )
            yield known.select(
                "topic",
                "partition",
                "offset",
                F.lit(archive.tier).alias("tier"),
                _floor(F.expr("unix_millis(timestamp)"), plan.window_ms).alias("claimed_window"),
            )


def _beginnings(spark: SparkSession, plan: Plan) -> DataFrame:
    """By partition its ends, and the beginning of each tier there; null if the tier does not count the topic."""
    schema = "topic string, partition int, log_start long, log_end long, high_watermark long"
    for index in range(len(plan.tier_names)):
        schema += f", from_offset{index} long, from_window{index} long, last{index} long"
    rows: list[tuple[Any, ...]] = []
    for topic, bounds in plan.bounds.items():
        for partition, each in bounds.items():
            row: list[Any] = [topic, partition, each.log_start, each.end, each.high_watermark]
            for name in plan.tier_names:
                summary = plan.tiers[topic].get(name)
                if summary is None:
                    row += [None, None, None]
                else:
                    offset, window = summary.beginning(partition)
                    row += [offset, -(1 << 63) if window is None else window, summary.last_offset(partition)]
            rows.append(tuple(row))
    return spark.createDataFrame(rows, schema)


def _in_range(plan: Plan, rows: DataFrame) -> DataFrame:
    """The rows of the requested windows."""
    if plan.first_window_ms is not None:
        rows = rows.where(f"window_start >= {plan.first_window_ms}")
    if plan.last_window_ms is not None:
        rows = rows.where(f"window_start <= {plan.last_window_ms}")
    return rows


def _floor(column: Column | str, window_ms: int) -> Column:
    from pyspark.sql import functions as F  # noqa: N812

    timestamp = F.col(column) if isinstance(column, str) else column
    return timestamp - F.pmod(timestamp, F.lit(window_ms))

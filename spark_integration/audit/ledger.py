"""The counts as Spark reads them: pages, and the summary of each tier before any record is compared.

A tier's name is ``producer``, ``consumer <group>`` or ``archive`` (``archive <folder>`` if a topic has several
archives).

A tier's ``Beginning`` is the point from which it must account for a partition. A group that began at the end of a topic
has not lost the earlier records, and a producer that has been counting since yesterday has not counted older ones. So a
partition is compared from the first offset that the tier has counted in it. A partition in which it has counted nothing
is compared from the window in which the tier began elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..options import kafka_options
from .cluster import Bounds
from .page import SPARK_SCHEMA, VERSION
from .report import PRODUCER
from .request import AuditError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

DEFAULT_WINDOW_MS = 60_000


@dataclass(frozen=True, slots=True)
class Seen:
    """A tier's counts in a partition: the first offset and its window, and the last offset."""

    first_offset: int
    first_window: int
    last_offset: int


@dataclass(slots=True)
class TierSummary:
    """A tier's counts in a topic."""

    first_window: int
    from_earliest: bool = False
    partitions: dict[int, Seen] = field(default_factory=dict)
    # By partition, the first window with records whose offsets the tier does not know.
    unplaced: dict[int, int] = field(default_factory=dict)

    def beginning(self, partition: int) -> tuple[int, int | None]:
        """The first offset and the first window (None: any) for which the tier must account in a partition."""
        seen = self.partitions.get(partition)
        if partition in self.unplaced:
            return 0, min(self.unplaced[partition], self.first_window if seen is None else seen.first_window)
        if seen is None or self.from_earliest:
            return 0, min((each.first_window for each in self.partitions.values()), default=self.first_window)
        return seen.first_offset, None

    def last_offset(self, partition: int) -> int:
        seen = self.partitions.get(partition)
        return -1 if seen is None else seen.last_offset


@dataclass(frozen=True, slots=True)
class Ledger:
    """All pages in their last revision, and their summary by topic and tier."""

    # Columns: topic, partition, tier, window_start, first, last. None if there are no counts.
    runs: DataFrame | None
    topics: Mapping[str, dict[str, TierSummary]]
    # By topic and window: the number of records that were delivered without an offset.
    unplaced: Mapping[tuple[str, int], int]
    longest_window_ms: int
    notes: tuple[str, ...] = ()


def empty_ledger() -> Ledger:
    """The ledger without counts: an archive can still be compared with the log."""
    return Ledger(None, {}, {}, DEFAULT_WINDOW_MS)


@contextmanager
def read_ledger(
    spark: SparkSession,
    bootstrap_servers: str,
    audit_topic: str,
    bounds: Mapping[int, Bounds],
    client: Mapping[str, str],
    window_ms: int | None,
) -> Iterator[Ledger]:
    """The books in the audit topic; AuditError if they do not match windows of ``window_ms``.

    They are cached in Spark's memory inside a ``with`` block.
    """
    from pyspark.sql import functions as F  # noqa: N812

    options = kafka_options(
        bootstrap_servers,
        {audit_topic: list(bounds)},
        starting_offsets={audit_topic: {partition: each.start for partition, each in bounds.items()}},
        ending_offsets={audit_topic: {partition: each.end for partition, each in bounds.items()}},
        # The topic may be compacted or truncated at the same time.
        fail_on_data_loss=False,
        client=client,
    )
    # There are few rows, but each scan would have as many tasks as Spark uses for a shuffle.
    tasks = spark.sparkContext.defaultParallelism
    messages = (
        spark.read.format("kafka")
        .options(**options)
        .load()
        .where("value is not null")
        .select(F.from_json(F.col("value").cast("string"), SPARK_SCHEMA).alias("message"))
        .select("message.*")
        .coalesce(tasks)
        .cache()
    )
    pages = (
        messages.where(f"version = {VERSION} and kind = 'page'")
        .groupBy("instance", "page")
        .agg(F.expr("max_by(struct(*), revision)").alias("last"))
        .select("last.*")
        .withColumn("tier", F.expr(f"if(tier = 'producer', '{PRODUCER}', concat('consumer ', `group`))"))
        .coalesce(tasks)
        .cache()
    )
    try:
        summaries = _summarized(pages)
        window = _window({length for row in summaries for length in row.lengths}, window_ms)
        floor = F.expr(f"window_start - pmod(window_start, {window})")
        runs = pages.select(
            "topic", "partition", "tier", floor.alias("window_start"), F.explode("offsets").alias("run")
        )
        unplaced = []
        if any(row.unplaced_window is not None for row in summaries):
            by_window = pages.where("unplaced > 0").groupBy("topic", floor.alias("window"))
            unplaced = by_window.agg(F.sum("unplaced")).collect()
        yield Ledger(
            runs.selectExpr("topic", "partition", "tier", "window_start", "run[0] first", "run[1] last"),
            _by_topic(summaries, window),
            {(topic, start): count for topic, start, count in unplaced},
            window,
            tuple(_notes(messages)),
        )
    finally:
        pages.unpersist()
        messages.unpersist()


def _window(lengths: Iterable[int], wanted: int | None) -> int:
    """The window length that is balanced: a multiple of the window lengths of all counts."""
    lengths = sorted(lengths)
    window = wanted if wanted is not None else max(lengths, default=DEFAULT_WINDOW_MS)
    for length in lengths:
        if window % length:
            raise AuditError(
                f"windows of {window / 1000:g} s cannot be balanced, because records were counted in windows of "
                f"{length / 1000:g} s: choose a multiple of that with --window"
            )
    return window


def _summarized(pages: DataFrame) -> list[Row]:
    """One row for each topic, tier and partition."""
    from pyspark.sql import functions as F  # noqa: N812

    ends = pages.withColumn("first", F.expr("array_min(transform(offsets, run -> run[0]))")).withColumn(
        "last", F.expr("array_max(transform(offsets, run -> run[1]))")
    )
    rows: list[Row] = (
        ends.groupBy("topic", "tier", "partition")
        .agg(
            F.expr("collect_set(window_end - window_start)").alias("lengths"),
            F.min("window_start").alias("oldest_window"),
            F.expr("bool_or(from_earliest)").alias("from_earliest"),
            F.min("first").alias("first_offset"),
            F.expr("min_by(window_start, first)").alias("first_window"),
            F.max("last").alias("last_offset"),
            F.expr("min(window_start) filter (where unplaced > 0)").alias("unplaced_window"),
        )
        .collect()
    )
    return rows


def _by_topic(rows: Iterable[Row], window: int) -> dict[str, dict[str, TierSummary]]:
    topics: dict[str, dict[str, TierSummary]] = {}
    for row in rows:
        oldest = row.oldest_window - row.oldest_window % window
        summary = topics.setdefault(row.topic, {}).setdefault(row.tier, TierSummary(oldest))
        summary.first_window = min(summary.first_window, oldest)
        summary.from_earliest |= bool(row.from_earliest)
        if row.first_offset is not None:
            first_window = row.first_window - row.first_window % window
            summary.partitions[row.partition] = Seen(row.first_offset, first_window, row.last_offset)
        if row.unplaced_window is not None:
            summary.unplaced[row.partition] = row.unplaced_window - row.unplaced_window % window
    return topics


def _notes(messages: DataFrame) -> Iterator[str]:
    """Notes about unreadable messages, and about clients whose books are not closed: running or crashed ones."""
    readable = f"version = {VERSION} and kind in ('page', 'closed')"
    rows = (
        messages.selectExpr("instance", "kind", f"coalesce({readable}, false) readable")
        .groupBy("instance", "readable")
        .agg({"*": "count", "kind": "min"})  # "closed" is before "page"
        .where("not readable or `min(kind)` = 'page'")
        .collect()
    )
    unreadable = sum(row["count(1)"] for row in rows if not row.readable)
    if unreadable:
        yield f"{unreadable} messages of the audit topic are not counts of version {VERSION}, and were ignored"
    still_open = sorted(row.instance for row in rows if row.readable)
    if still_open:
        shown = ", ".join(still_open[:5]) + (f" and {len(still_open) - 5} more" if len(still_open) > 5 else "")
        yield (
            f"{len(still_open)} books are not closed, because their clients are running or crashed; counts that these "
            f"have not sent are not included: {shown}"
        )

"""The counts as Spark reads them: pages, and what they say of each tier before any record is compared.

The name of a tier in the books is ``producer``, ``consumer <group>`` or ``archive`` (``archive <folder>`` where a
topic has several).

A tier's ``Beginning`` says from where on it has to account for a partition. A group that began at the end of a topic
has not lost what was there before; a producer that counts since yesterday has not counted what is older. So a
partition is compared from the first offset that the tier has counted in it, and one of which it has counted nothing
from the window on in which the tier began elsewhere.
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


def consumer_tier(group: str) -> str:
    """The tier of a group of consumers."""
    return f"consumer {group}"


@dataclass(frozen=True, slots=True)
class Seen:
    """What a tier has counted of a partition: its first offset with the window of that, and its last offset."""

    first_offset: int
    first_window: int
    last_offset: int


@dataclass(slots=True)
class TierSummary:
    """What a tier has counted of a topic."""

    first_window: int
    from_earliest: bool = False
    partitions: dict[int, Seen] = field(default_factory=dict)
    # By partition, the first window with records of which the tier does not know the offsets.
    unplaced: dict[int, int] = field(default_factory=dict)

    def beginning(self, partition: int) -> tuple[int, int | None]:
        """From which offset and from which window on (None: any) the tier has to account for a partition."""
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
    """All pages in their last revision, and what is in them by topic and tier."""

    # Columns: topic, partition, tier, window_start, first, last. None when nobody has counted.
    runs: DataFrame | None
    topics: Mapping[str, dict[str, TierSummary]]
    # By topic and window: records that were delivered without an offset.
    unplaced: Mapping[tuple[str, int], int]
    longest_window_ms: int
    notes: tuple[str, ...] = ()


def empty_ledger() -> Ledger:
    """Where nobody counts: an archive can still be compared with the log."""
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
    """The books as they are in the audit topic; AuditError if they do not fit windows of ``window_ms``.

    They are kept in Spark's memory for the length of a ``with`` block.
    """
    from pyspark.sql import functions as F  # noqa: N812

    options = kafka_options(
        bootstrap_servers,
        {audit_topic: list(bounds)},
        starting_offsets={audit_topic: {partition: each.start for partition, each in bounds.items()}},
        ending_offsets={audit_topic: {partition: each.end for partition, each in bounds.items()}},
        # Compaction and retention are free to work on the topic meanwhile.
        fail_on_data_loss=False,
        client=client,
    )
    # Few rows: without this, each look at them would be as many tasks as Spark takes for a shuffle.
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
    """The length of the windows that are balanced: those that were counted in must fit into it."""
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
    """What could not be read, and the clients that have not closed their books: they are running, or they died."""
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
        yield f"{unreadable} messages of the audit topic are not counts of version {VERSION}, and were left out"
    still_open = sorted(row.instance for row in rows if row.readable)
    if still_open:
        shown = ", ".join(still_open[:5]) + (f" and {len(still_open) - 5} more" if len(still_open) > 5 else "")
        yield (
            f"{len(still_open)} books are not closed, because their clients run or died; what these have counted since "
            f"they last sent is not here: {shown}"
        )

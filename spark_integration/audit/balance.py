"""Balances the books: finds the discrepancies of every offset, and adds them up by window.

A record may be acknowledged but not in the log, in the log but not read, or read twice. These are determined per offset
and never from sums, so they do not cancel out. Only records without an offset (acks=0) are compared as sums.

A record in the log that no producer has counted is ``double`` when a counted record of the topic has the same key,
value, headers and timestamp (without the timestamp, if the server sets it). It is then the retry of a producer that is
not idempotent.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .cluster import AuditCluster, explained
from .ledger import Ledger
from .offsets import offset_rows
from .plan import Plan, make_plan, open_ledger
from .report import PRODUCER, SERVER, Books, Kind, Places, Reader, Report, balanced, runs_of, without
from .request import AuditRequest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

# The maximum number of offsets that are looked up to locate the records of findings.
_PLACES_LIMIT = 10_000

# Topic and start of the window.
_Place = tuple[str, int]


# From a topic, its newest timestamp and the sum of its end offsets: the time before which a window must have ended.
ClosedBefore = Callable[[str, int, int], int]


def audit(spark: SparkSession, request: AuditRequest, closed_before: ClosedBefore | None = None) -> Report:
    """Balance the books. AuditError if that is not possible.

    A window is over when it ended at least the watermark ago, unless ``closed_before`` decides otherwise.
    """
    if closed_before is None:
        now_ms = time.time_ns() // 1_000_000

        def closed_before(_topic: str, _newest_ms: int, _end: int) -> int:
            return now_ms - request.watermark_ms

    cluster = AuditCluster(request.bootstrap_servers, request.client)
    with explained(), open_ledger(spark, cluster, request) as ledger:
        plan = make_plan(cluster, request, ledger)
        return _balanced(plan, ledger, offset_rows(spark, plan, ledger), closed_before)


def _balanced(plan: Plan, ledger: Ledger, offsets: DataFrame, closed_before: ClosedBefore) -> Report:
    from pyspark.sql import functions as F  # noqa: N812

    names = plan.tier_names
    has_producers = PRODUCER in names
    sums = [
        F.sum("log").alias("server"),
        F.sum(F.col("late").cast("int")).alias("late"),
        F.max("timestamp_ms").alias("newest"),
    ]
    if has_producers:
        sums.append(F.expr("sum(greatest(n0 - log, 0))").alias("lost"))
        sums.append(F.expr("sum(int(missing0))").alias("extra"))
    readers = " + ".join(f"n{index}" for index in range(int(has_producers), len(names))) or "0"
    by_producer = "n0 = 0 and" if has_producers else ""
    sums.append(F.expr(f"sum(int({by_producer} log = 0 and {readers} > 0))").alias("vanished"))
    for index in range(len(names)):
        sums += [
            F.sum(f"n{index}").alias(f"count{index}"),
            F.expr(f"sum(int(missing{index}))").alias(f"missing{index}"),
            F.expr(f"sum(int(behind{index}))").alias(f"behind{index}"),
            F.expr(f"sum(greatest(n{index} - 1, 0))").alias(f"double{index}"),
        ]
    rows = offsets.groupBy("topic", "window_start").agg(*sums).collect()
    found = {(row.topic, row.window_start): row for row in rows}
    places: dict[_Place, dict[tuple[Kind, str], Places]] = {}
    twins: dict[_Place, _Twins] = {}
    if any(_is_unbalanced(row, len(names), has_producers) for row in rows):
        twins = _twins(offsets) if has_producers and any(row.extra for row in rows) else {}
        places = _places(offsets, names, has_producers)
    for key, found_twins in twins.items():
        _separate_twins(places.setdefault(key, {}), found_twins.places)
    limits = _closed_before(plan, rows, closed_before)
    windows = []
    unplaced = {key: count for key, count in ledger.unplaced.items() if _in_range(plan, *key)}
    for key in sorted({*found, *unplaced}):
        books = _books(plan, key, found.get(key), unplaced.get(key, 0), twins[key].count if key in twins else 0)
        windows.append(balanced(books, places.get(key, {}), is_closed=books.window_end <= limits[books.topic]))
    return Report(tuple(windows), tuple(plan.notes))


def _closed_before(plan: Plan, rows: Sequence[Row], closed_before: ClosedBefore) -> dict[str, int]:
    """By topic, the time at which a window must have ended to be over."""
    newest_ms = dict.fromkeys(plan.bounds, -1)
    for row in rows:
        newest_ms[row.topic] = max(newest_ms[row.topic], -1 if row.newest is None else row.newest)
    return {
        topic: closed_before(topic, newest_ms[topic], sum(each.end for each in bounds.values()))
        for topic, bounds in plan.bounds.items()
    }


def _in_range(plan: Plan, topic: str, window_start: int) -> bool:
    first, last = plan.first_window_ms, plan.last_window_ms
    return topic in plan.bounds and (first is None or window_start >= first) and (last is None or window_start <= last)


def _is_unbalanced(row: Row, tiers: int, has_producers: bool) -> bool:
    columns = ["late", "vanished", *(["lost", "extra"] if has_producers else [])]
    columns += [f"{name}{index}" for name in ("missing", "double") for index in range(tiers)]
    return any(row[column] for column in columns)


def _books(plan: Plan, key: tuple[str, int], row: Row | None, unplaced: int, twins: int) -> Books:
    topic, window_start = key
    tiers = plan.tiers[topic]
    names = plan.tier_names

    def number(column: str) -> int:
        return 0 if row is None else int(row[column] or 0)

    producer = number("count0") + unplaced if PRODUCER in tiers else None
    extra = number("extra") if PRODUCER in tiers else 0
    return Books(
        topic=topic,
        window_start=window_start,
        window_end=window_start + plan.window_ms,
        server=number("server"),
        late=number("late"),
        producer=producer,
        lost=number("lost") if PRODUCER in tiers else 0,
        unplaced=unplaced,
        doubled=twins,
        uncounted=extra - twins,
        vanished=number("vanished"),
        readers={
            name: Reader(
                number(f"count{index}"), number(f"missing{index}"), number(f"behind{index}"), number(f"double{index}")
            )
            for index, name in enumerate(names)
            if name != PRODUCER and name in tiers
        },
    )


@dataclass(frozen=True, slots=True)
class _Twins:
    """Records in the log that no producer has counted and that are equal to one that was counted."""

    count: int
    places: Places


def _twins(offsets: DataFrame) -> dict[_Place, _Twins]:
    from pyspark.sql import functions as F  # noqa: N812

    extra = offsets.where("missing0")
    counted = offsets.where("log = 1 and n0 > 0").select("topic", "content")
    same = counted.join(F.broadcast(extra.select("topic", "content").distinct()), ["topic", "content"]).distinct()
    twins = extra.join(F.broadcast(same), ["topic", "content"], "left_semi")
    some = F.slice(F.collect_list(F.struct("partition", "offset")), 1, _PLACES_LIMIT)
    found: dict[_Place, _Twins] = {}
    for row in twins.groupBy("topic", "window_start").agg(F.count("*").alias("twins"), some.alias("some")).collect():
        partitions: dict[int, list[int]] = {}
        for place in row.some:
            partitions.setdefault(place.partition, []).append(place.offset)
        places = {partition: runs_of(found) for partition, found in sorted(partitions.items())}
        found[row.topic, row.window_start] = _Twins(row.twins, places)
    return found


def _separate_twins(places: dict[tuple[Kind, str], Places], twins: Places) -> None:
    """Remove twins from the uncounted records: a record is reported as one of the two."""
    uncounted = places.pop((Kind.UNCOUNTED, SERVER), {})
    others = {partition: without(runs, twins.get(partition, ())) for partition, runs in uncounted.items()}
    places[Kind.UNCOUNTED, SERVER] = {partition: runs for partition, runs in others.items() if runs}
    places[Kind.DOUBLE, SERVER] = twins


def _places(
    offsets: DataFrame, names: Sequence[str], has_producers: bool
) -> dict[_Place, dict[tuple[Kind, str], Places]]:
    """The places of the records of the findings, if they are few enough to be useful."""
    kinds: list[tuple[tuple[Kind, str], str]] = [((Kind.LATE, SERVER), "late")]
    if has_producers:
        kinds += [((Kind.MISSING, SERVER), "n0 > log"), ((Kind.UNCOUNTED, SERVER), "missing0")]
    for index in range(int(has_producers), len(names)):
        kinds += [((Kind.MISSING, names[index]), f"missing{index}"), ((Kind.DOUBLE, names[index]), f"n{index} > 1")]
    marks = [f"({condition}) as mark{number}" for number, (_, condition) in enumerate(kinds)]
    marked = offsets.selectExpr("topic", "partition", "offset", "window_start", *marks)
    some = marked.where(" or ".join(f"mark{number}" for number in range(len(kinds)))).limit(_PLACES_LIMIT).collect()
    collected: dict[tuple[str, int], dict[tuple[Kind, str], dict[int, list[int]]]] = {}
    for row in some:
        window = collected.setdefault((row.topic, row.window_start), {})
        for number, (kind, _) in enumerate(kinds):
            if row[f"mark{number}"]:
                window.setdefault(kind, {}).setdefault(row.partition, []).append(row.offset)
    return {
        key: {
            kind: {partition: runs_of(found) for partition, found in sorted(partitions.items())}
            for kind, partitions in window.items()
        }
        for key, window in collected.items()
    }

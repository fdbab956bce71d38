"""The whole pipeline in one program: a server, the topics, Spark, the replay, the check, and a plot of the result."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import check
import events
import pipeline
import plot
import produce
from check import AirportHour
from events import AIRPORTS, Period
from pipeline import Queries
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn
from rich.table import Table
from topics import (
    TopicExistsError,
    Topics,
    add_period_options,
    add_server_options,
    add_speed_option,
    make_topics,
    period_of,
)

from moldau.spark_integration import SparkUnavailableError, session
from moldau.testing import Broker

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

POOR_VISIBILITY_MILES = 3
LOOK_EVERY_S = 0.5

console = Console()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    add_server_options(parser, default=None)
    add_period_options(parser)
    add_speed_option(parser)
    default = Path(__file__).parent / "out"
    parser.add_argument("--out", type=Path, default=default, help="the output folder (default: out, in this folder)")
    options = parser.parse_args()
    period, topics, out = period_of(parser, options), Topics.named(options.prefix), options.out
    began = time.monotonic()
    _remove_last_run(out)
    with _server(options.bootstrap_server) as address:
        try:
            rows = run(address, topics, period, options.speed, out)
        except (SparkUnavailableError, TopicExistsError) as error:
            sys.exit(str(error))
    picture = out / "delays.svg"
    plot.draw(rows, period, picture)
    console.print(table(rows))
    console.print(f"picture  {_shown(picture)}\nParquet  {_shown(pipeline.table_folder(out))}")
    console.print(f"{time.monotonic() - began:.0f} seconds")


def run(address: str, topics: Topics, period: Period, speed: float, out: Path) -> Sequence[AirportHour]:
    """All steps from the topics to the check; returns the rows of the result. Exits if the check fails."""
    make_topics(address, topics)
    count = produce.produce_reference(address, topics)
    records = events.events(period)
    console.print(f"server   {address}, {count:,} records of weather and planes")
    with console.status("Spark is starting"), _words_of_spark_into(out / "spark.log"):
        spark = session("flights demo", pipeline.SPARK_CONF)
    with spark:
        spark.sparkContext.setLogLevel("WARN")
        queries = pipeline.start(spark, address, topics, out, pipeline.EVERY_TWO_SECONDS)
        console.print(f"Spark    {spark.version}, its output is in {_shown(out / 'spark.log')}")
        follow(queries, address, topics, records, speed)
        dropped, batches = _dropped_rows(queries), [len(_batches(query)) for query in queries]
        table_rows = check.from_parquet(spark, pipeline.table_folder(out))
    upserts = list(check.from_topic(address, topics.delays))
    expected = check.from_files(period)
    wrong = [
        *check.differences("the topic", expected, check.newest(upserts)),
        *check.differences("Parquet", expected, table_rows),
    ]
    if wrong:
        late = f"\n{dropped} rows were too late for the watermark" if dropped else ""
        sys.exit("\n".join(wrong) + late)
    console.print(
        f"check    {len(expected):,} rows, the same in all three: the files,\n"
        f"         the topic ({len(upserts):,} records of {batches[0]} batches), Parquet ({batches[1]} batches);\n"
        f"         {dropped} rows were too late for the watermark"
    )
    return expected


def follow(queries: Queries, address: str, topics: Topics, records: Sequence[events.Record], speed: float) -> None:
    """Replay the events, and show the progress of the replay and both streams, until the streams are complete."""
    columns = TextColumn("{task.description:8}"), BarColumn(40), TaskProgressColumn(), TextColumn("{task.fields[said]}")
    with Progress(*columns, console=console) as progress:
        replayed = progress.add_task("replay", total=len(records), said="")
        streams = [progress.add_task(name, total=len(records), said="") for name in ("topic", "Parquet")]
        looked = 0.0

        def look() -> None:
            nonlocal looked
            looked = time.monotonic()
            for query, task in zip(queries, streams, strict=True):
                progress.update(task, completed=_rows_read(query), said=_printed(query))

        def on_sent(until: datetime, sent: int) -> None:
            local = until.astimezone(events.NEW_YORK)
            progress.update(replayed, completed=sent, said=f"{sent:,} events, {local:%d %B %H:%M}")
            if time.monotonic() - looked > LOOK_EVERY_S:
                look()

        produce.replay(address, topics, records, speed, on_sent)
        while any(_rows_read(query) < len(records) for query in queries):
            time.sleep(LOOK_EVERY_S)
            look()
        for query in queries:
            # Also the batch without events, in which the watermark closes the last hours.
            query.processAllAvailable()
            query.stop()
        look()


def table(rows: Sequence[AirportHour]) -> Table:
    """A summary per airport."""
    shown = Table(
        title="Departures",
        caption=f"late: {pipeline.DELAYED_MINUTES} minutes or more; poor sight: mean delay with a visibility under "
        f"{POOR_VISIBILITY_MILES} miles; seat-days: how late the planes left, times their seats",
    )
    shown.add_column("airport", no_wrap=True)
    for heading in ("departed", "cancelled", "late", "mean delay", "poor sight", "seat-days"):
        shown.add_column(heading, justify="right", no_wrap=True)
    for airport in AIRPORTS:
        mine = [row for row in rows if row.airport == airport]
        poor = [row for row in mine if _poor_sight(row)]
        departures = sum(row.departures for row in mine)
        shown.add_row(
            airport,
            f"{departures:,}",
            f"{sum(row.cancelled for row in mine):,}",
            f"{sum(row.delayed for row in mine) / max(departures, 1):.0%}",
            _mean_delay(mine),
            _mean_delay(poor),
            f"{sum(row.seat_minutes for row in mine) / 60 / 24:,.0f}",
        )
    return shown


def _poor_sight(row: AirportHour) -> bool:
    return row.visibility_miles is not None and row.visibility_miles < POOR_VISIBILITY_MILES


def _mean_delay(rows: Sequence[AirportHour]) -> str:
    departures = sum(row.departures for row in rows)
    return f"{sum(row.delay_minutes for row in rows) / departures:.1f} min" if departures else "-"


def _rows_read(query: StreamingQuery) -> int:
    """The offset up to which the stream has read the topic of the flights; raises the query's error."""
    failure = query.exception()
    if failure is not None:
        raise failure
    last = query.lastProgress
    if not last or not last["sources"][0]["endOffset"]:
        return 0
    ends = json.loads(last["sources"][0]["endOffset"])
    return sum(offset for partitions in ends.values() for offset in partitions.values())


def _printed(query: StreamingQuery) -> str:
    """The position of the watermark: older hours are closed."""
    last = query.lastProgress
    watermark = last["eventTime"].get("watermark") if last else None
    if watermark is None or watermark.startswith("1970"):
        return ""
    local = events.parse_time(watermark).astimezone(events.NEW_YORK)
    return f"{last['batchId'] + 1} batches, watermark {local:%d %B %H:%M}"


def _batches(query: StreamingQuery) -> set[int]:
    return {progress["batchId"] for progress in query.recentProgress}


def _dropped_rows(queries: Queries) -> int:
    reports = [report for query in queries for report in query.recentProgress]
    return sum(state["numRowsDroppedByWatermark"] for report in reports for state in report["stateOperators"])


@contextmanager
def _server(given: str | None) -> Iterator[str]:
    """The address of the given server, or of one that runs during the demo."""
    if given:
        yield given
    else:
        with Broker() as broker:
            yield broker.bootstrap_servers


@contextmanager
def _words_of_spark_into(path: Path) -> Iterator[None]:
    """Redirect the output of Spark's JVM to a file, if it is started here; it keeps the files it started with."""
    sys.stderr.flush()
    kept = os.dup(2)
    with path.open("wb") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    except SparkUnavailableError:
        os.write(kept, path.read_bytes())
        raise
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def _remove_last_run(out: Path) -> None:
    """Checkpoints of deleted topics would make the streams start at offsets that do not exist."""
    for name in ("checkpoints", "airport_hours"):
        shutil.rmtree(out / name, ignore_errors=True)
    out.mkdir(parents=True, exist_ok=True)


def _shown(path: Path) -> str:
    """The path relative to the current directory, if it is below."""
    here = Path.cwd()
    return str(path.resolve().relative_to(here) if path.resolve().is_relative_to(here) else path)


if __name__ == "__main__":
    main()

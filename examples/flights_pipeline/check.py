"""Compares Spark's results with the files: every row of both results, with a plain loop over the files.

The loop shares no code with the pipeline: it does not use Kafka, Spark or the events. Rows are equal if every column
is, numbers to the last bit, since only integers are added up.

The topic may contain any number of versions of a row, and those of a repeated batch twice. It is read as a table: each
record replaces the row of its key, and the last one is compared. The Parquet table must contain each row exactly once.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from events import Period, parse_time, read_table, time_text
from kafka import KafkaConsumer, TopicPartition
from pipeline import DELAYED_MINUTES, SPARK_CONF, spark_schema, table_folder
from topics import Topics, add_period_options, add_server_options, period_of

from moldau.spark_integration import SparkUnavailableError, session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class AirportHour(NamedTuple):
    """A row of the result, as defined in ``contracts/airport_hour.json``."""

    airport: str
    hour: str
    departures: int
    cancelled: int
    delayed: int
    delay_minutes: int
    longest_delay: int | None
    seat_minutes: int
    wind_mph: float | None
    precipitation_inches: float | None
    visibility_miles: float | None


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add_server_options(parser)
    add_period_options(parser)
    parser.add_argument("--out", type=Path, default=Path("out"), help="the folder of the Parquet table")
    options = parser.parse_args()
    expected = from_files(period_of(parser, options))
    if not table_folder(options.out).exists():
        sys.exit(f"there is no Parquet table in {options.out}: python pipeline.py creates it")
    try:
        spark = session("flights check", SPARK_CONF)
    except SparkUnavailableError as error:
        sys.exit(str(error))
    with spark:
        table = from_parquet(spark, table_folder(options.out))
    records = list(from_topic(options.bootstrap_server, Topics.named(options.prefix).delays))
    wrong = [*differences("the topic", expected, newest(records)), *differences("Parquet", expected, table)]
    if wrong:
        sys.exit("\n".join(wrong))
    print(f"{len(expected):,} rows, the same in the files, the topic ({len(records):,} records) and Parquet")


def from_files(period: Period) -> list[AirportHour]:
    """The expected rows: one loop over the flights, with the weather and the planes."""
    weather = {(row["origin"], row["time_hour"]): row for row in read_table("weather")}
    seats = {row["tailnum"]: int(row["seats"]) for row in read_table("planes")}
    rows: dict[tuple[str, datetime], AirportHour] = {}
    for flight in read_table("flights"):
        departed = flight["dep_delay"] != "NA"
        delay = int(flight["dep_delay"]) if departed else 0
        scheduled = parse_time(flight["time_hour"]) + timedelta(minutes=int(flight["minute"]))
        moment = scheduled + timedelta(minutes=delay)
        if not period.start <= moment < period.end:
            continue
        hour = moment.replace(minute=0)
        row = rows.get((flight["origin"], hour)) or _without_flights(flight["origin"], hour, weather)
        rows[flight["origin"], hour] = row._replace(
            departures=row.departures + departed,
            cancelled=row.cancelled + (not departed),
            delayed=row.delayed + (departed and delay >= DELAYED_MINUTES),
            delay_minutes=row.delay_minutes + delay,
            longest_delay=_longest(row.longest_delay, delay) if departed else row.longest_delay,
            seat_minutes=row.seat_minutes + max(delay, 0) * seats.get(flight["tailnum"], 0),
        )
    return sorted(rows.values())


def from_topic(bootstrap_server: str, topic: str) -> Iterator[AirportHour]:
    """Every current record of the topic, with those of a key in their order."""
    # Without a group: the partitions are not shared, and no offsets are committed.
    consumer = KafkaConsumer(bootstrap_servers=bootstrap_server, group_id=None, enable_auto_commit=False)
    try:
        partitions = [TopicPartition(topic, number) for number in sorted(consumer.partitions_for_topic(topic) or ())]
        consumer.assign(partitions)
        consumer.seek_to_beginning()
        ends = consumer.end_offsets(partitions)
        while any(consumer.position(partition) < ends[partition] for partition in partitions):
            for records in consumer.poll(timeout_ms=1000).values():
                for record in records:
                    yield AirportHour(**json.loads(record.value))
    finally:
        consumer.close()


def newest(records: Iterable[AirportHour]) -> list[AirportHour]:
    """The table that results from upserts."""
    return list({(record.airport, record.hour): record for record in records}.values())


def from_parquet(spark: SparkSession, folder: Path) -> list[AirportHour]:
    """Every row of the Parquet table, including unexpected duplicates."""
    rows = spark.read.schema(spark_schema("airport_hour")).parquet(str(folder)).collect()
    return [AirportHour(**row.asDict() | {"hour": time_text(row["hour"].astimezone())}) for row in rows]


def differences(name: str, expected: Iterable[AirportHour], found: Iterable[AirportHour], show: int = 5) -> list[str]:
    """The differences as sentences; empty if there are none."""
    should, has = Counter(expected), Counter(found)
    said = [f"{name} lacks {row}" for row in sorted(should - has, key=_row_key)]
    said += [f"{name} has {row}, which it should not" for row in sorted(has - should, key=_row_key)]
    return said if len(said) <= show else [*said[:show], f"{name}: and {len(said) - show:,} more"]


def _row_key(row: AirportHour) -> tuple[str, str]:
    return row.hour, row.airport


def _longest(so_far: int | None, delay: int) -> int:
    return delay if so_far is None else max(so_far, delay)


def _without_flights(airport: str, hour: datetime, weather: Mapping[tuple[str, str], Mapping[str, str]]) -> AirportHour:
    text = time_text(hour)
    observed = weather.get((airport, text), {})
    wind, precipitation, visibility = (
        None if observed.get(name, "NA") == "NA" else float(observed[name])
        for name in ("wind_speed", "precip", "visib")
    )
    return AirportHour(airport, text, 0, 0, 0, 0, None, 0, wind, precipitation, visibility)


if __name__ == "__main__":
    main()

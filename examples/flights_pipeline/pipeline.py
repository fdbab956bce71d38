"""Spark: flights joined with the weather and the planes, and counted per airport and hour, into a topic and Parquet.

    flights ──┐                                ┌── update ── topic: every hour that changed, repeatedly
              ├─ join ─ watermark, one hour ───┤
    weather ──┤         windows                └── append ── Parquet: every hour once, when it is complete
    planes  ──┘

The two results have the same content at different times. The topic contains an hour as soon as its first flight is
known, and later its newer versions: it is a table of upserts, in which the newest record of a key counts. The Parquet
table contains an hour after the watermark has passed it, which is some hours of flights later.

Repeated batches: Spark records what a batch is going to read, runs it, and then commits it. An interrupted batch is run
again. Its records are written to the topic twice (the sink is at-least-once), after the first copy and before those of
any later batch, so the newest record of each key is still right. Parquet accepts a batch once: the sink keeps a list of
its batches.
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from events import HOUR, LATENESS, contract
from topics import Topics, add_server_options, missing_topics

from moldau.spark_integration import SparkUnavailableError, kafka_options, session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

# For a small machine and small batches: only the quick compiler and no code generation per query halve the time.
SPARK_CONF = {
    "spark.master": "local[2]",
    "spark.driver.memory": "700m",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.numRecentProgressUpdates": "10000",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}

# The windows of an hour begin with the hours of UTC.
WINDOW = f"{HOUR.total_seconds():.0f} seconds"
WATERMARK = f"{LATENESS.total_seconds():.0f} seconds"

# The cost of a batch hardly depends on its size, and there are two streams for two cores.
EVERY_TWO_SECONDS: Mapping[str, Any] = {"processingTime": "2 seconds"}

# From here on a departure counts as delayed in the statistics of the United States.
DELAYED_MINUTES = 15


class Queries(NamedTuple):
    """The two streams; both read the flights, independently of each other."""

    live: StreamingQuery
    final: StreamingQuery


def main() -> None:
    parser = argparse.ArgumentParser(description="Count the departures of each airport and hour.")
    add_server_options(parser)
    parser.add_argument("--out", type=Path, default=Path("out"), help="the folder of Parquet and checkpoints")
    parser.add_argument("--once", action="store_true", help="end when all current records are read")
    options = parser.parse_args()
    topics = Topics.named(options.prefix)
    missing = missing_topics(options.bootstrap_server, topics)
    if missing:
        sys.exit(f"there is no topic {missing[0]}: python produce.py creates it")
    try:
        spark = session("flights pipeline", SPARK_CONF)
    except SparkUnavailableError as error:
        sys.exit(str(error))
    with spark:
        spark.sparkContext.setLogLevel("ERROR")
        trigger = {"availableNow": True} if options.once else EVERY_TWO_SECONDS
        queries = start(spark, options.bootstrap_server, topics, options.out, trigger)
        if options.once:
            for query in queries:
                query.awaitTermination()
        else:
            print(f"writing to the topic {topics.delays} and to {table_folder(options.out)}; Ctrl-C ends it")
            run_until_interrupted(queries)


def run_until_interrupted(queries: Queries) -> None:
    """Wait for Ctrl-C, and raise a stream's error."""
    interrupted = threading.Event()
    # Replaces pyspark's handler, which ends the current call to the JVM with a different exception.
    signal.signal(signal.SIGINT, lambda number, frame: interrupted.set())
    while not interrupted.wait(0.5):
        for query in queries:
            failure = query.exception()
            if failure is not None:
                raise failure
    for query in queries:
        query.stop()


def start(
    spark: SparkSession, bootstrap_server: str, topics: Topics, out: Path, trigger: Mapping[str, Any] | None = None
) -> Queries:
    """Start both streams, or continue them from their checkpoints in ``out``."""
    # Read once, here: changes in these two topics are only visible after a restart.
    weather = latest(spark, bootstrap_server, topics.weather, "weather").cache()
    planes = latest(spark, bootstrap_server, topics.planes, "plane").cache()
    options = kafka_options(bootstrap_server, topics.flights, starting_offsets="earliest")
    flights = values(spark.readStream.format("kafka").options(**options).load(), "flight")
    hours = airport_hours(flights, weather, planes)

    def stream(name: str, rows: DataFrame, mode: str) -> Any:
        checkpoint = str((out / "checkpoints" / name).absolute())
        writer = rows.writeStream.queryName(name).outputMode(mode).option("checkpointLocation", checkpoint)
        return writer.trigger(**trigger) if trigger else writer

    live = stream("live", upserts(hours), "update").format("kafka")
    final = stream("final", hours, "append").format("parquet")
    return Queries(
        live.options(**kafka_options(bootstrap_server, topics.delays)).start(),
        final.start(str(table_folder(out).absolute())),
    )


def table_folder(out: Path) -> Path:
    """The folder of the Parquet table."""
    return out / "airport_hours"


def latest(spark: SparkSession, bootstrap_server: str, topic: str, contract_name: str) -> DataFrame:
    """A topic as a table: the newest value of each key, without deleted keys."""
    from pyspark.sql import functions as F  # noqa: N812 - its usual name

    records = spark.read.format("kafka").options(**kafka_options(bootstrap_server, topic)).load()
    # All records of a key are in one partition, where the newest has the highest offset.
    newest = records.groupBy("key").agg(F.max_by("value", "offset").alias("value"))
    return values(newest.where("value IS NOT NULL"), contract_name)


def values(records: DataFrame, contract_name: str) -> DataFrame:
    """The JSON values of Kafka records as columns."""
    from pyspark.sql import functions as F  # noqa: N812

    parsed = F.from_json(F.col("value").cast("string"), spark_schema(contract_name))
    return records.select(parsed.alias("value")).select("value.*")


def airport_hours(flights: DataFrame, weather: DataFrame, planes: DataFrame) -> DataFrame:
    """One row for each airport and hour with a departure or a cancellation. This function does not depend on streams.

    The clock's events are kept until the counts exist: Spark would move an earlier filter before the watermark, which
    would then not see them.
    """
    from pyspark.sql import functions as F  # noqa: N812

    departed, cancelled = F.col("kind") == "departed", F.col("kind") == "cancelled"
    minutes_late = F.greatest("delay_minutes", F.lit(0))
    joined = (
        flights.withWatermark("event_time", WATERMARK)
        .withColumn("weather_hour", F.date_trunc("hour", "event_time"))
        .join(
            F.broadcast(weather.withColumnsRenamed({"airport": "weather_airport", "hour": "observed"})),
            (F.col("airport") == F.col("weather_airport")) & (F.col("weather_hour") == F.col("observed")),
            "left",
        )
        .join(F.broadcast(planes), "tail_number", "left")
    )
    counted = joined.groupBy("airport", F.window("event_time", WINDOW)).agg(
        F.count_if(departed).alias("departures"),
        F.count_if(cancelled).alias("cancelled"),
        F.count_if(F.col("delay_minutes") >= DELAYED_MINUTES).alias("delayed"),
        F.coalesce(F.sum("delay_minutes"), F.lit(0)).alias("delay_minutes"),
        F.max("delay_minutes").alias("longest_delay"),
        F.sum(minutes_late * F.coalesce("seats", F.lit(0))).alias("seat_minutes"),
        # One observation for all rows of the group.
        *(F.max(name).alias(name) for name in ("wind_mph", "precipitation_inches", "visibility_miles")),
    )
    return (
        counted.where("departures + cancelled > 0")
        .withColumn("hour", F.col("window.start"))
        .select(*contract("airport_hour")["properties"])
    )


def upserts(hours: DataFrame) -> DataFrame:
    """The rows as records of a table: the key identifies the row, the value is its current content."""
    from pyspark.sql import functions as F  # noqa: N812

    hour = F.date_format("hour", "yyyy-MM-dd'T'HH:mm:ss'Z'")
    row = F.struct(*(hour.alias(name) if name == "hour" else F.col(name) for name in hours.columns))
    return hours.select(
        F.concat_ws("|", "airport", hour).alias("key"), F.to_json(row, {"ignoreNullFields": "false"}).alias("value")
    )


def spark_schema(contract_name: str) -> str:
    """The columns of a contract as Spark declares them."""
    columns = []
    for name, described in contract(contract_name)["properties"].items():
        kind = described["type"][0] if isinstance(described["type"], list) else described["type"]
        columns.append(f"{name} {_SPARK_TYPES[kind, described.get('format')]}")
    return ", ".join(columns)


_SPARK_TYPES = {
    ("string", None): "string",
    ("string", "date-time"): "timestamp",
    ("integer", None): "bigint",
    ("number", None): "double",
}


if __name__ == "__main__":
    main()

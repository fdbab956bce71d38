"""Count the flights of each carrier with Spark, from one topic to another, and compare with the file.

Spark's own Kafka source reads the topic in one batch, Spark's own Kafka sink writes the counts: the key is the carrier,
the value the count. Then the counts are read back, and must be equal to those of a plain loop over the file.
"""

from __future__ import annotations

import sys
from collections import Counter
from typing import TYPE_CHECKING

from flights import argument_parser, make_topic, read_flights
from rich.console import Console
from rich.table import Table

from moldau.spark_integration import SparkUnavailableError, kafka_options, session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPARK_CONF = {
    "spark.master": "local[2]",
    "spark.driver.memory": "700m",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
}


def main() -> None:
    parser = argument_parser("Count the flights of each carrier with Spark.")
    parser.add_argument("--counts-topic", default="flights-by-carrier", help="the topic of the counts (%(default)s)")
    options = parser.parse_args()
    try:
        spark = session("flights", SPARK_CONF)
    except SparkUnavailableError as error:
        sys.exit(str(error))
    make_topic(options.bootstrap_server, options.counts_topic, partitions=1)
    with spark:
        write_counts(spark, options.bootstrap_server, options.topic, options.counts_topic)
        counted = read_counts(spark, options.bootstrap_server, options.counts_topic)

    expected = Counter(flight.carrier for flight in read_flights())
    show(expected, counted)
    if counted != expected:
        sys.exit("the counts differ from those of the file")
    print(f"{counted.total():,} flights of {len(counted)} carriers: Spark's counts match the file")


def write_counts(spark: SparkSession, bootstrap_server: str, topic: str, counts_topic: str) -> None:
    flights = spark.read.format("kafka").options(**kafka_options(bootstrap_server, topic)).load()
    carriers = flights.selectExpr("get_json_object(string(value), '$.carrier') AS carrier")
    counts = carriers.groupBy("carrier").count().selectExpr("carrier AS key", "string(count) AS value")
    counts.write.format("kafka").options(**kafka_options(bootstrap_server, counts_topic)).save()


def read_counts(spark: SparkSession, bootstrap_server: str, counts_topic: str) -> Counter[str]:
    """The newest count of each carrier: each run of this program writes all counts."""
    records = spark.read.format("kafka").options(**kafka_options(bootstrap_server, counts_topic)).load()
    rows = records.selectExpr("string(key) carrier", "int(string(value)) flights", "partition", "offset").collect()
    # A carrier is a key, so its counts are in one partition, where the newest has the highest offset.
    return Counter({row.carrier: row.flights for row in sorted(rows, key=lambda row: row.offset)})


def show(expected: Counter[str], counted: Counter[str]) -> None:
    table = Table("carrier")
    for heading in ("in the file", "counted by Spark"):
        table.add_column(heading, justify="right")
    for carrier, flights in expected.most_common():
        table.add_row(carrier, f"{flights:,}", f"{counted[carrier]:,}")
    Console().print(table)


if __name__ == "__main__":
    main()

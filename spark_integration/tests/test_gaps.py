"""Offsets without a record, and deleted records: Spark reports only the latter as a loss.

Apache Kafka cannot create a gap on request, so these tests run only against Moldau, with a separate broker.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from moldau.spark_integration import kafka_options
from moldau.testing import Broker
from moldau.testing.client import Client, Record
from moldau.testing.clients import open_client

from .streams import FileSink, numbers_of
from .support import load, read_stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ..fixtures import RunUntil

TOPIC = "gaps"


@pytest.fixture
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    if request.config.getoption("apache") or request.config.getoption("bootstrap_server"):
        pytest.skip("gaps are created by moldau.testing.Broker")
    with Broker() as started:
        yield started


@pytest.fixture
def client(broker: Broker) -> Iterator[Client]:
    with open_client("confluent-kafka", broker.bootstrap_servers) as opened:
        opened.create_topic(TOPIC, 1)
        yield opened


def produce(client: Client, numbers: range) -> None:
    client.produce(TOPIC, [Record(b"%d" % n) for n in numbers])


def test_gaps_are_not_a_loss(
    spark: SparkSession, broker: Broker, client: Client, tmp_path: Path, run_until: RunUntil
) -> None:
    sink = FileSink(spark, tmp_path)
    options = kafka_options(broker, TOPIC, starting_offsets="earliest", fail_on_data_loss=True)
    broker.insert_offset_gap(TOPIC, 0, 7)
    produce(client, range(10))
    broker.insert_offset_gap(TOPIC, 0, 1000)
    produce(client, range(10, 15))
    broker.insert_offset_gap(TOPIC, 0, 3)

    offsets = [(n, 7 + n + (1000 if n >= 10 else 0)) for n in range(15)]
    read = numbers_of(load(spark, options)).select("number", "offset")
    assert sorted(tuple(row) for row in read.collect()) == offsets
    pieces = numbers_of(load(spark, {**options, "minPartitions": "5"})).select("number", "offset")
    assert sorted(tuple(row) for row in pieces.collect()) == offsets

    query = sink.start(numbers_of(read_stream(spark, {**options, "maxOffsetsPerTrigger": "300"})))
    run_until(query, offsets={TOPIC: {0: 1025}})
    broker.insert_offset_gap(TOPIC, 0, 50)
    produce(client, range(15, 20))
    progress = run_until(query, rows=20)

    assert progress.end_offsets == {TOPIC: {0: 1080}}
    assert sink.numbers() == list(range(20))


def test_deleted_records_are_a_loss(
    spark: SparkSession, broker: Broker, client: Client, tmp_path: Path, run_until: RunUntil
) -> None:
    sink = FileSink(spark, tmp_path)
    strict = numbers_of(read_stream(spark, kafka_options(broker, TOPIC, starting_offsets="earliest")))
    lenient = numbers_of(read_stream(spark, kafka_options(broker, TOPIC, fail_on_data_loss=False)))
    produce(client, range(10))
    query = sink.start(strict)
    run_until(query, rows=10)
    query.stop()

    produce(client, range(10, 20))
    broker.trim(TOPIC, 0, 15)

    with pytest.raises(Exception, match="Some data may have been lost"):
        run_until(sink.start(strict))
    run_until(sink.start(lenient))
    assert sink.numbers() == [*range(10), *range(15, 20)]

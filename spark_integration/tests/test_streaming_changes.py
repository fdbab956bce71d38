"""What happens to a running query when its topics change: they grow, lose records, are deleted and created again."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from moldau.spark_integration import kafka_options
from moldau.testing.client import Client
from moldau.testing.full_run import first_of

from .streams import PARTITIONS, FileSink, numbers_of, produce
from .support import read_stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ..fixtures import RunUntil
    from .conftest import MakeTopic

LOSS = "Some data may have been lost because they are not available in Kafka any more"


@pytest.fixture
def sink(spark: SparkSession, tmp_path: Path) -> FileSink:
    return FileSink(spark, tmp_path)


def test_new_partitions_are_read_from_their_beginning(
    spark: SparkSession,
    bootstrap_servers: str,
    client: Client,
    make_topic: MakeTopic,
    sink: FileSink,
    run_until: RunUntil,
) -> None:
    topic = make_topic(2)
    produce(client, topic, range(20), partitions=2)
    query = sink.start(
        numbers_of(read_stream(spark, kafka_options(bootstrap_servers, topic, starting_offsets="earliest")))
    )
    run_until(query, rows=20)

    client.create_partitions(topic, 5)
    produce(client, topic, range(20, 120), partitions=5)
    progress = run_until(query, rows=120)

    assert progress.end_offsets == {topic: {0: 30, 1: 30, 2: 20, 3: 20, 4: 20}}
    assert sink.numbers() == list(range(120))


def test_new_topics_that_match_the_pattern_are_read_from_their_beginning(
    spark: SparkSession, bootstrap_servers: str, client: Client, sink: FileSink, run_until: RunUntil
) -> None:
    prefix = f"spark-{uuid4().hex[:12]}"
    options = kafka_options(bootstrap_servers, re.compile(f"{prefix}-[ab]"), starting_offsets="earliest")
    client.create_topic(f"{prefix}-a", 2)
    produce(client, f"{prefix}-a", range(20), partitions=2)
    query = sink.start(numbers_of(read_stream(spark, options)))
    run_until(query, rows=20)

    for topic, numbers in ((f"{prefix}-b", range(20, 50)), (f"{prefix}-c", range(50, 60))):
        client.create_topic(topic, 1)
        produce(client, topic, numbers, partitions=1)
    produce(client, f"{prefix}-a", range(60, 70), partitions=2)
    progress = run_until(query, rows=60)

    assert progress.end_offsets == {f"{prefix}-a": {0: 15, 1: 15}, f"{prefix}-b": {0: 30}}
    assert sink.numbers() == [*range(50), *range(60, 70)]


def test_deleted_records_are_an_error_unless_the_loss_is_accepted(
    spark: SparkSession, bootstrap_servers: str, client: Client, make_topic: MakeTopic, sink: FileSink
) -> None:
    topic = make_topic(PARTITIONS)
    options = kafka_options(bootstrap_servers, topic, starting_offsets="earliest")
    produce(client, topic, range(30))
    sink.run(read_stream(spark, options))
    produce(client, topic, range(30, 90))
    client.delete_records(topic, 0, 20)  # the numbers 30, 33, ... 57 of partition 0 are deleted unread

    with pytest.raises(Exception, match=LOSS):
        sink.run(read_stream(spark, options))
    sink.run(read_stream(spark, kafka_options(bootstrap_servers, topic, fail_on_data_loss=False)))

    assert sink.numbers() == sorted(set(range(90)) - set(range(30, 60, 3)))


@pytest.mark.parametrize("reads", first_of(["running", "stopped"]))
def test_a_topic_created_again_is_an_error_unless_the_loss_is_accepted(
    spark: SparkSession,
    bootstrap_servers: str,
    client: Client,
    make_topic: MakeTopic,
    sink: FileSink,
    run_until: RunUntil,
    reads: str,
) -> None:
    topic = make_topic(PARTITIONS)
    produce(client, topic, range(90))
    strict = numbers_of(read_stream(spark, kafka_options(bootstrap_servers, topic, starting_offsets="earliest")))
    query = sink.start(strict)
    run_until(query, rows=90)
    if reads == "stopped":
        query.stop()

    client.delete_topic(topic)
    client.create_topic(topic, PARTITIONS)
    produce(client, topic, range(90, 120))
    with pytest.raises(Exception, match=LOSS):
        run_until(query if reads == "running" else sink.start(strict), rows=200)

    # The checkpoint is at 30 in each partition. The new topic has not reached that offset, so its records are skipped.
    lenient = kafka_options(bootstrap_servers, topic, fail_on_data_loss=False)
    query = sink.start(numbers_of(read_stream(spark, lenient)))
    run_until(query)
    produce(client, topic, range(120, 150))
    run_until(query, rows=30)

    assert sink.numbers() == [*range(90), *range(120, 150)]

"""Spark and a cluster of Moldau whose partitions are on four brokers: a stream from one topic to another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from moldau.spark_integration import kafka_options
from moldau.testing import Cluster

from .support import content, frame_of, load, multiset, read_stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from .conftest import MakeTopic

BROKERS = 4

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    if request.config.getoption("bootstrap_server") or request.config.getoption("apache"):
        pytest.skip("starts its own cluster of Moldau")
    with Cluster(brokers=BROKERS, config={"auto.create.topics.enable": False}) as started:
        yield started


@pytest.fixture(scope="module")
def bootstrap_servers(cluster: Cluster) -> str:
    """One broker: the clients find the others."""
    return cluster.broker(1).address


def test_a_stream_copies_a_topic_whose_partitions_are_on_all_brokers(
    spark: SparkSession, cluster: Cluster, bootstrap_servers: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    source, copy = make_topic(2 * BROKERS), make_topic(2 * BROKERS)
    leaders = {cluster.await_leader(topic, each) for topic in (source, copy) for each in range(2 * BROKERS)}
    assert leaders == set(cluster.broker_ids)
    reading = kafka_options(bootstrap_servers, source, include_headers=True, starting_offsets="earliest")
    writing = kafka_options(bootstrap_servers, copy, include_headers=True)
    written = content(2000)

    frame_of(spark, written, partitions=2 * BROKERS).write.format("kafka").options(
        **kafka_options(bootstrap_servers, source, include_headers=True)
    ).save()
    stream = read_stream(spark, {**reading, "maxOffsetsPerTrigger": "700"})
    query = (
        stream.select("key", "value", "headers", "partition")
        .writeStream.format("kafka")
        .options(**writing)
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()

    assert multiset(load(spark, writing)) == Counter(written)

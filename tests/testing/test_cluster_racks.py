"""Consumers read from a follower in their rack (KIP-392), with each kind of client."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, TopicPartition
from kafka import KafkaProducer

from moldau.protocol.api import ApiKey
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from moldau.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from moldau.testing import Cluster
from moldau.testing.waiting import wait_until
from moldau.testing.wire import WireClient

SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
LEADER, FOLLOWER = 1, 2


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Two brokers in racks `a` and `b`, and a topic with two records, which broker 1 leads."""
    with Cluster(brokers=2, racks=["a", "b"], config={"replica.selector.class": SELECTOR}) as running:
        running.create_topic("orders", [[LEADER, FOLLOWER]], config={"min.insync.replicas": 2})
        running.await_isr("orders", 0, {LEADER, FOLLOWER})
        producer = KafkaProducer(bootstrap_servers=running.bootstrap_servers, acks="all")
        for value in (b"first", b"second"):
            producer.send("orders", value).get(timeout=60)
        producer.close()
        # The leader knows the positions of the follower from its latest fetch, which comes soon.
        wait_until(lambda: fetch(running, LEADER, "b", 2, max_wait_ms=0)[0] == FOLLOWER)
        yield running


def fetch(
    cluster: Cluster, broker_id: int, rack: str, offset: int = 0, *, max_wait_ms: int = 60_000
) -> tuple[int, int, int]:
    """The preferred replica, the error code, and the number of bytes of records."""
    with WireClient(cluster.broker(broker_id).address) as wire:
        found = wire.call(MetadataRequest(topics=[MetadataRequestTopic(name="orders")]))
        wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
        topic = FetchTopic(topic_id=found.topics[0].topic_id, partitions=[wanted])
        request = FetchRequest(max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=1 << 20, rack_id=rack, topics=[topic])
        response = wire.call(request)
    (partition,) = response.responses[0].partitions
    return partition.preferred_read_replica, partition.error_code, len(partition.records or b"")


@pytest.mark.parametrize("offset", [0, 1, 2])
def test_the_leader_names_the_follower_in_the_rack_without_waiting(cluster: Cluster, offset: int) -> None:
    assert fetch(cluster, LEADER, "b", offset) == (FOLLOWER, ErrorCode.NONE, 0)


@pytest.mark.parametrize("rack", ["", "a", "c"])
def test_the_leader_responds_with_records_to_consumers_in_other_racks(cluster: Cluster, rack: str) -> None:
    preferred, error, size = fetch(cluster, LEADER, rack)
    assert (preferred, error) == (-1, ErrorCode.NONE)
    assert size > 0


def test_the_follower_responds_with_records(cluster: Cluster) -> None:
    # The high watermark of the follower rises with its next fetch.
    wait_until(lambda: fetch(cluster, FOLLOWER, "b")[2] == fetch(cluster, LEADER, "a")[2])


def test_an_offset_out_of_range_is_an_error_of_the_leader(cluster: Cluster) -> None:
    assert fetch(cluster, LEADER, "b", 99) == (-1, ErrorCode.OFFSET_OUT_OF_RANGE, 0)


def test_librdkafka_reads_from_the_follower(cluster: Cluster) -> None:
    requests = cluster.broker(FOLLOWER).requests
    requests.clear()
    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "readers", "client.rack": "b", "client.id": "in-b"}
    )
    consumer.assign([TopicPartition("orders", 0, 0)])
    assert [message.value() for message in consumer.consume(2, timeout=60)] == [b"first", b"second"]
    found = requests.wait_for(ApiKey.FETCH, client_id="in-b")
    assert found.request.rack_id == "b"
    consumer.close()

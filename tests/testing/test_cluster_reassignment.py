"""Partitions move to other brokers while clients continue (KIP-455)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from moldau.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from moldau.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from moldau.testing import Cluster
from moldau.testing.waiting import wait_until
from moldau.testing.wire import WireClient


@pytest.fixture(scope="module")
def running() -> Iterator[Cluster]:
    with Cluster(brokers=3) as cluster:
        yield cluster


@pytest.fixture
def cluster(running: Cluster) -> Cluster:
    """A topic whose only replica is on broker 2."""
    running.reset()
    running.create_topic("orders", [2])
    return running


def reassign(cluster: Cluster, replicas: list[int] | None) -> int:
    """Returns the error code. None cancels a reassignment."""
    wanted = ReassignablePartition(partition_index=0, replicas=replicas)
    topic = ReassignableTopic(name="orders", partitions=[wanted])
    with WireClient(cluster.broker(1).address) as wire:
        response = wire.call(AlterPartitionReassignmentsRequest(topics=[topic], timeout_ms=60_000))
    assert response.error_code == ErrorCode.NONE
    return int(response.responses[0].partitions[0].error_code)


def ongoing(cluster: Cluster) -> list[tuple[list[int], list[int], list[int]]]:
    """Replicas, added and removed ones of the reassignments in progress."""
    with WireClient(cluster.broker(1).address) as wire:
        response = wire.call(ListPartitionReassignmentsRequest(topics=None, timeout_ms=60_000))
    return [
        (each.replicas, each.adding_replicas, each.removing_replicas)
        for topic in response.topics
        for each in topic.partitions
    ]


def state(cluster: Cluster, broker_id: int) -> tuple[int, list[int], set[int]]:
    """Leader, replicas and in-sync replicas, as this broker knows them."""
    with WireClient(cluster.broker(broker_id).address) as wire:
        response = wire.call(MetadataRequest(topics=[MetadataRequestTopic(name="orders")]))
    (partition,) = response.topics[0].partitions
    return partition.leader_id, partition.replica_nodes, set(partition.isr_nodes)


def await_state(cluster: Cluster, leader: int, replicas: list[int]) -> None:
    wait_until(lambda: all(state(cluster, each) == (leader, replicas, set(replicas)) for each in cluster.broker_ids))


def has_files(cluster: Cluster, broker_id: int) -> bool:
    return (cluster.broker(broker_id).data_dir / "orders-0").exists()


def produce(cluster: Cluster, *values: bytes) -> None:
    producer = KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, acks="all", enable_idempotence=True)
    for sent in [producer.send("orders", value) for value in values]:
        sent.get(timeout=60)
    producer.close()


def consume(cluster: Cluster, count: int) -> list[bytes]:
    consumer = KafkaConsumer(bootstrap_servers=cluster.bootstrap_servers)
    consumer.assign([TopicPartition("orders", 0)])
    consumer.seek_to_beginning()
    values = [record.value for record in itertools.islice(consumer, count)]
    consumer.close()
    return values


def test_a_partition_moves_with_its_records_and_leaves_no_files(cluster: Cluster) -> None:
    values = [b"before-%d" % number for number in range(50)]
    produce(cluster, *values)
    assert reassign(cluster, [3, 1]) == ErrorCode.NONE
    await_state(cluster, 3, [3, 1])
    assert ongoing(cluster) == []
    wait_until(lambda: not has_files(cluster, 2))
    produce(cluster, b"after")
    assert consume(cluster, 51) == [*values, b"after"]


def test_a_reassignment_waits_for_the_new_replica_and_can_be_canceled(cluster: Cluster) -> None:
    produce(cluster, b"record")
    cluster.cut(2, 3)
    assert reassign(cluster, [3]) == ErrorCode.NONE
    assert ongoing(cluster) == [([3, 2], [3], [2])]
    wait_until(lambda: has_files(cluster, 3))
    assert reassign(cluster, None) == ErrorCode.NONE
    await_state(cluster, 2, [2])
    wait_until(lambda: not has_files(cluster, 3))
    assert reassign(cluster, None) == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    cluster.heal()
    assert consume(cluster, 1) == [b"record"]


def test_a_reassignment_ends_when_the_new_replica_can_fetch(cluster: Cluster) -> None:
    cluster.cut(2, 3)
    assert reassign(cluster, [3]) == ErrorCode.NONE
    produce(cluster, b"meanwhile")
    cluster.heal()
    await_state(cluster, 3, [3])
    assert consume(cluster, 1) == [b"meanwhile"]


def test_the_preferred_leader_changes_with_the_order_of_the_replicas(cluster: Cluster) -> None:
    assert reassign(cluster, [2, 3]) == ErrorCode.NONE
    await_state(cluster, 2, [2, 3])
    assert reassign(cluster, [3, 2]) == ErrorCode.NONE
    wait_until(lambda: state(cluster, 1)[1] == [3, 2])
    assert ongoing(cluster) == []

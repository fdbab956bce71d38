"""A cluster in states that no user wants: contradictory reassignments, a throttle of 0, a partition without a live
replica. The other partitions are served, and no record is lost."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from moldau.testing import Cluster
from moldau.testing.config_requests import BROKER, DELETE, SET, TOPIC, alter
from moldau.testing.waiting import wait_until
from moldau.testing.wire import WireClient

from .test_cluster_reassignment import await_state, consume, ongoing, produce, reassign

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def running() -> Iterator[Cluster]:
    with Cluster(brokers=3, session_timeout=3.0) as cluster:
        yield cluster


@pytest.fixture
def cluster(running: Cluster) -> Cluster:
    running.reset()
    return running


def test_the_last_of_contradictory_reassignments_counts(cluster: Cluster) -> None:
    cluster.create_topic("orders", [2])
    produce(cluster, b"a", b"b")
    cluster.cut(2, 3)
    for invalid in ([3, 3], [9], []):
        assert reassign(cluster, invalid) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert reassign(cluster, [3]) == ErrorCode.NONE
    assert ongoing(cluster) == [([3, 2], [3], [2])]
    assert reassign(cluster, [1]) == ErrorCode.NONE
    cluster.heal()
    await_state(cluster, 1, [1])
    assert consume(cluster, 2) == [b"a", b"b"]
    assert reassign(cluster, None) == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


def test_a_throttle_of_0_does_not_stop_clients(cluster: Cluster) -> None:
    cluster.create_topic("orders", [2])
    produce(cluster, *[b"x" * 1000] * 20)
    with WireClient(cluster.broker(2).address) as wire:
        assert alter(wire, TOPIC, "orders", ("leader.replication.throttled.replicas", SET, "*")) == "NONE"
        assert alter(wire, BROKER, "2", ("leader.replication.throttled.rate", SET, "-1")) == "INVALID_REQUEST"
        assert alter(wire, BROKER, "2", ("leader.replication.throttled.rate", SET, "0")) == "NONE"
    produce(cluster, b"served")
    assert reassign(cluster, [3]) == ErrorCode.NONE
    produce(cluster, b"still served")
    with WireClient(cluster.broker(2).address) as wire:
        assert alter(wire, BROKER, "2", ("leader.replication.throttled.rate", DELETE, None)) == "NONE"
    await_state(cluster, 3, [3])
    assert consume(cluster, 22)[-2:] == [b"served", b"still served"]


def test_a_partition_without_a_live_replica_returns_with_its_records(cluster: Cluster) -> None:
    cluster.create_topic("orders", [[2, 3]])
    cluster.create_topic("payments", [1])
    cluster.await_isr("orders", 0, {2, 3})
    produce(cluster, b"a", b"b")
    cluster.kill(3)
    cluster.kill(2)

    def errors() -> dict[str | None, int]:
        topics = [MetadataRequestTopic(name=name) for name in ("orders", "payments")]
        with WireClient(cluster.broker(1).address) as wire:
            response = wire.call(MetadataRequest(topics=topics))
        return {topic.name: topic.partitions[0].error_code for topic in response.topics}

    wait_until(lambda: errors() == {"orders": ErrorCode.LEADER_NOT_AVAILABLE, "payments": ErrorCode.NONE})
    cluster.start_all()
    cluster.await_isr("orders", 0, {2, 3})
    assert consume(cluster, 2) == [b"a", b"b"]

"""Replication throttles with a rate of 0, on three brokers of Moldau, or of Apache Kafka with ``--apache``.

A rate is exceeded if it was, in the last eleven seconds. A leader counts each response to a follower, also an empty
one; so it never sends records to a throttled replica while followers fetch. A follower counts what it has received; so
it receives one response every eleven seconds. Replicas in sync are not delayed.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from moldau.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from moldau.protocol.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from moldau.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from moldau.protocol.records import build_batch
from moldau.testing import Cluster
from moldau.testing import topic_requests as w
from moldau.testing.apache_cluster import ApacheCluster
from moldau.testing.config_requests import BROKER, DELETE, SET, TOPIC, alter, describe
from moldau.testing.waiting import wait_until
from moldau.testing.wire import WireClient

pytestmark = pytest.mark.full

BATCH_BYTES = 900_000  # one in each response: the limit is replica.fetch.max.bytes, 1 MiB
LEADER_RATE, FOLLOWER_RATE = "leader.replication.throttled.rate", "follower.replication.throttled.rate"
LEADER_REPLICAS, FOLLOWER_REPLICAS = "leader.replication.throttled.replicas", "follower.replication.throttled.replicas"


class Servers:
    """Three brokers, and requests to one of them."""

    def __init__(self, cluster: Cluster | ApacheCluster) -> None:
        self._cluster = cluster

    def wire(self, broker: int) -> WireClient:
        return WireClient(self._cluster.broker(broker).bootstrap_servers)

    def create_topic(self, name: str, replicas: list[int]) -> None:
        assignment = CreatableReplicaAssignment(partition_index=0, broker_ids=replicas)
        wanted = CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=[assignment])
        with self.wire(1) as wire:
            (created,) = wire.call(CreateTopicsRequest(topics=[wanted], timeout_ms=60_000), 7).topics
        assert created.error_code == 0, created
        w.wait_for_topic(self._cluster.broker(1).bootstrap_servers, name, 1)

    def produce(self, broker: int, topic: str) -> None:
        with self.wire(broker) as wire:
            answer = w.produce(wire, topic, build_batch(w.records(bytes(BATCH_BYTES))))
        assert answer.error_code == 0, answer

    def alter(self, broker: int, kind: int, name: str, key: str, value: str | None) -> str:
        """Change a setting; the broker knows it on return."""
        with self.wire(broker) as wire:
            error = alter(wire, kind, name, (key, DELETE if value is None else SET, value))
            if error == "NONE" and value is not None:
                wait_until(lambda: [each.value for each in describe(wire, kind, name, [key]).configs] == [value])
        return error

    def add_replica(self, topic: str, replicas: list[int]) -> None:
        moved = ReassignableTopic(name=topic, partitions=[ReassignablePartition(partition_index=0, replicas=replicas)])
        with self.wire(1) as wire:
            response = wire.call(AlterPartitionReassignmentsRequest(topics=[moved]))
        assert response.responses[0].partitions[0].error_code == 0, response

    def in_sync(self, topic: str) -> set[int]:
        with self.wire(1) as wire:
            (found,) = wire.call(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), 12).topics
        return set(found.partitions[0].isr_nodes)

    def replicated_bytes(self, broker: int, topic: str) -> int:
        folder = Path(self._cluster.broker(broker).data_dir) / f"{topic}-0"
        return sum(path.stat().st_size for path in folder.glob("*.log"))


@pytest.fixture
def servers(request: pytest.FixtureRequest) -> Iterator[Servers]:
    if request.config.getoption("bootstrap_server"):
        pytest.skip("starts its own servers")
    with ApacheCluster() if request.config.getoption("apache") else Cluster() as cluster:
        yield Servers(cluster)


def test_a_rate_of_0_stops_a_leader_and_lets_a_follower_receive_one_response_every_eleven_seconds(
    servers: Servers,
) -> None:
    led, followed = "throttled-leader", "throttled-follower"
    servers.create_topic(led, [1, 2])
    servers.create_topic(followed, [2, 1])
    for _ in range(3):
        servers.produce(1, led)
        servers.produce(2, followed)
    assert servers.alter(1, BROKER, "1", LEADER_RATE, "-1") == "INVALID_REQUEST"
    assert servers.alter(1, TOPIC, led, LEADER_REPLICAS, "*") == "NONE"
    assert servers.alter(1, BROKER, "1", LEADER_RATE, "0") == "NONE"
    assert servers.alter(3, TOPIC, followed, FOLLOWER_REPLICAS, "*") == "NONE"
    assert servers.alter(3, BROKER, "3", FOLLOWER_RATE, "0") == "NONE"
    servers.produce(1, led)  # the replica in sync is not delayed, and the responses to it count
    for topic, replicas in ((led, [1, 2, 3]), (followed, [2, 1, 3])):
        servers.add_replica(topic, replicas)
    wait_until(lambda: servers.replicated_bytes(3, followed) > BATCH_BYTES, "the first response to the follower")
    first = servers.replicated_bytes(3, followed)
    wait_until(lambda: servers.replicated_bytes(3, followed) > first, "the second response to the follower")
    assert (servers.replicated_bytes(3, led), servers.in_sync(led)) == (0, {1, 2})
    assert servers.alter(1, BROKER, "1", LEADER_RATE, None) == "NONE"
    assert servers.alter(3, BROKER, "3", FOLLOWER_RATE, None) == "NONE"
    for topic in (led, followed):
        wait_until(lambda topic=topic: servers.in_sync(topic) == {1, 2, 3}, topic)  # type: ignore[misc]

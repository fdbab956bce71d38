"""Transactions whose coordinator and partitions are on different brokers.

Two servers, each with its own controller, whose metadata is changed so that each knows the other as broker `OTHER`. One
coordinates transactions; the other leads the partitions. Between them are real connections.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from moldau.log.memory_files import MemoryFileSystem
from moldau.metadata.outcome import Versioned
from moldau.metadata.records import (
    BrokerEndpoint,
    PartitionChangeRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)
from moldau.metadata.registrations import UNASSIGNED_DIRECTORY
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from moldau.protocol.messages.describe_cluster import DescribeClusterRequest
from moldau.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest
from moldau.protocol.messages.join_group import JoinGroupRequest
from moldau.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from moldau.protocol.messages.offset_delete import OffsetDeleteRequest
from moldau.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from moldau.testing.wire import WireClient

from .conftest import RunningServer
from .transactional import Transactional, error_of, values

OTHER = 77
CONFIG = {
    "transaction.state.log.num.partitions": "2",
    "offsets.topic.num.partitions": "2",
    "request.timeout.ms": "2000",
}


class Cluster(NamedTuple):
    coordinator: RunningServer
    leader: RunningServer
    coordinator_wire: WireClient
    leader_wire: WireClient
    producer: Transactional

    def produce(self, *texts: str, topic: str = "t", version: int | None = None) -> int:
        """Produce to the leader."""
        batch = self.producer.batch(topic, *texts)
        default = 12 if self.producer.v2 else 11
        return error_of(self.leader_wire.call(self.producer.request(topic, batch), version or default))

    def wait_until_ended(self) -> None:
        self.coordinator.wait_until(lambda: self.coordinator.broker.transactions.has_ended("p"))


def register(server: RunningServer, other: str) -> None:
    """Register a broker at this address, and wait until the registration is in effect."""
    host, _, port = other.rpartition(":")
    endpoint = BrokerEndpoint(name="PLAINTEXT", host=host, port=int(port), security_protocol=0)
    server.append_metadata(
        lambda end_offset: Versioned(
            RegisterBrokerRecord(
                broker_id=OTHER, incarnation_id=b"i" * 16, broker_epoch=end_offset, end_points=[endpoint], fenced=False
            ),
            3,
        )
    )

    def registered() -> bool:
        broker = server.broker.metadata.image.brokers.get(OTHER)
        return broker is not None and broker.listeners["PLAINTEXT"].port == int(port)

    server.wait_until(registered)


def move_to_other(server: RunningServer, topic: str) -> None:
    """Make the other broker the leader, and the only replica, of all partitions of a topic."""
    registered = server.broker.metadata.image.topics_by_name[topic]
    for index in registered.partitions:
        record = PartitionChangeRecord(
            partition_id=index,
            topic_id=registered.topic_id,
            leader=OTHER,
            isr=[OTHER],
            replicas=[OTHER],
            directories=[UNASSIGNED_DIRECTORY],
        )
        server.append_metadata(lambda end_offset, record=record: Versioned(record, 2))  # type: ignore[misc]
    server.wait_until(
        lambda: all(
            partition.leader == OTHER
            for partition in server.broker.metadata.image.topics_by_name[topic].partitions.values()
        )
    )


def find(wire: WireClient, key_type: int, key: str) -> Any:
    (found,) = wire.call(FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key]), 6).coordinators
    return found


@pytest.fixture(params=[False, True], ids=["v1", "v2"])
def v2(request: Any) -> Any:
    """Whether the client supports transaction.version 2."""
    return request.param


@pytest.fixture
def cluster(v2: bool) -> Iterator[Cluster]:
    servers = [RunningServer([f"/data-{name}"], CONFIG, MemoryFileSystem()) for name in "ab"]
    try:
        coordinator, leader = (server.start() for server in servers)
        with coordinator.wire() as coordinator_wire, leader.wire() as leader_wire:
            for server, wire in ((coordinator, coordinator_wire), (leader, leader_wire)):
                server.create_topic("t")
                assert find(wire, 0, "g").error_code == 0
                assert find(wire, 1, "p").error_code == 0
            # Later, so that no partition is placed on the other broker, which would not know the topic.
            register(coordinator, leader.bootstrap_servers)
            register(leader, coordinator.bootstrap_servers)
            for topic in ("t", "__consumer_offsets"):
                move_to_other(coordinator, topic)
            move_to_other(leader, "__transaction_state")
            producer = Transactional(coordinator_wire, "p", v2=v2)
            assert producer.init() == 0
            yield Cluster(coordinator, leader, coordinator_wire, leader_wire, producer)
    finally:
        for server in servers:
            server.stop()


@pytest.mark.parametrize("committed", [True, False])
def test_a_transaction_ends_in_a_partition_of_another_broker(cluster: Cluster, committed: bool) -> None:
    if not cluster.producer.v2:
        assert cluster.producer.add("t") == {("t", 0): 0}
    assert cluster.produce("first", "second") == 0
    assert cluster.producer.state() == "Ongoing"
    assert values(cluster.leader_wire, "t") == []
    assert cluster.producer.end(committed=committed) == 0
    cluster.wait_until_ended()
    assert values(cluster.leader_wire, "t") == (["first", "second"] if committed else [])
    assert values(cluster.leader_wire, "t", committed=False) == ["first", "second"]


def test_transactions_follow_each_other(cluster: Cluster) -> None:
    expected = []
    for number in range(5):
        if not cluster.producer.v2:
            while cluster.producer.add("t") == {("t", 0): ErrorCode.CONCURRENT_TRANSACTIONS}:
                cluster.wait_until_ended()
        assert cluster.produce(f"record {number}") == 0
        assert cluster.producer.end(committed=bool(number % 2)) == 0
        if number % 2:
            expected.append(f"record {number}")
    cluster.wait_until_ended()
    assert values(cluster.leader_wire, "t") == expected


@pytest.mark.parametrize("v2", [False], ids=["v1"], indirect=True)
@pytest.mark.parametrize(
    ("version", "error"), [(10, ErrorCode.INVALID_TXN_STATE), (11, ErrorCode.TRANSACTION_ABORTABLE)]
)
def test_a_partition_that_was_not_added_is_rejected(cluster: Cluster, version: int, error: ErrorCode) -> None:
    assert cluster.produce("lost", version=version) == error
    assert values(cluster.leader_wire, "t", committed=False) == []


@pytest.mark.parametrize("v2", [True], ids=["v2"], indirect=True)
def test_a_fenced_producer_cannot_add_partitions(cluster: Cluster) -> None:
    other = Transactional(cluster.coordinator_wire, "p")
    assert other.init() == 0
    assert cluster.produce("lost") == ErrorCode.INVALID_PRODUCER_EPOCH
    assert values(cluster.leader_wire, "t", committed=False) == []


def test_offsets_take_effect_on_the_group_coordinator_of_another_broker(cluster: Cluster) -> None:
    producer = cluster.producer
    if not producer.v2:
        assert producer.add_offsets("g") == 0
    on_leader = Transactional(cluster.leader_wire, "p", v2=producer.v2)
    on_leader.producer_id, on_leader.epoch = producer.producer_id, producer.epoch
    assert on_leader.commit_offset("g", "t", 42) == 0

    def committed() -> int:
        topics = [OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=topics)])
        (group,) = cluster.leader_wire.call(request, 8).groups
        return int(group.topics[0].partitions[0].committed_offset)

    assert committed() == -1
    assert producer.commit() == 0
    cluster.wait_until_ended()
    assert committed() == 42


def test_markers_are_retried_until_the_leader_has_another_address(cluster: Cluster) -> None:
    if not cluster.producer.v2:
        cluster.producer.add("t")
    assert cluster.produce("record") == 0
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        register(cluster.coordinator, f"127.0.0.1:{unused.getsockname()[1]}")
        assert cluster.producer.commit() == 0
        assert cluster.producer.state() == "PrepareCommit"
        assert values(cluster.leader_wire, "t") == []
        register(cluster.coordinator, cluster.leader.bootstrap_servers)
        cluster.wait_until_ended()
    assert values(cluster.leader_wire, "t") == ["record"]


def test_markers_wait_while_the_leader_is_not_registered(cluster: Cluster) -> None:
    if not cluster.producer.v2:
        cluster.producer.add("t")
    assert cluster.produce("record") == 0
    image = cluster.coordinator.broker.metadata.image
    record = UnregisterBrokerRecord(broker_id=OTHER, broker_epoch=image.brokers[OTHER].epoch)
    cluster.coordinator.append_metadata(lambda end_offset: Versioned(record))
    cluster.coordinator.wait_until(lambda: OTHER not in cluster.coordinator.broker.metadata.image.brokers)
    assert cluster.producer.commit() == 0
    assert cluster.producer.state() == "PrepareCommit"
    register(cluster.coordinator, cluster.leader.bootstrap_servers)
    cluster.wait_until_ended()
    assert values(cluster.leader_wire, "t") == ["record"]


def test_a_producer_retries_while_the_coordinator_is_unreachable(cluster: Cluster) -> None:
    cluster.coordinator.stop()
    version = 12 if cluster.producer.v2 else 11
    assert cluster.produce("record", version=version) == ErrorCode.NOT_ENOUGH_REPLICAS
    assert values(cluster.leader_wire, "t", committed=False) == []


def test_clients_find_both_brokers(cluster: Cluster) -> None:
    for wire, other, transaction, group in (
        (cluster.coordinator_wire, cluster.leader, 1, OTHER),
        (cluster.leader_wire, cluster.coordinator, OTHER, 1),
    ):
        port = int(other.bootstrap_servers.rpartition(":")[2])
        metadata = wire.call(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 12)
        assert [broker.node_id for broker in metadata.brokers] == [1, OTHER]
        assert metadata.brokers[1].port == port
        assert [each.leader_id for each in metadata.topics[0].partitions] == [group]
        cluster_view = wire.call(DescribeClusterRequest(), 1)
        assert sorted((broker.broker_id, broker.port == port) for broker in cluster_view.brokers) == [
            (1, False),
            (OTHER, True),
        ]
        assert find(wire, 1, "p").node_id == transaction
        assert find(wire, 0, "g").node_id == group
        assert (find(wire, 0, "g").port == port) is (group == OTHER)


def test_requests_for_partitions_and_coordinators_of_the_other_broker_are_rejected(cluster: Cluster) -> None:
    producer = cluster.producer
    answer = cluster.coordinator_wire.call(producer.request("t", producer.batch("t", "x")), 11)
    assert error_of(answer) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    port = int(cluster.leader.bootstrap_servers.rpartition(":")[2])
    assert answer.responses[0].partition_responses[0].current_leader.leader_id == OTHER  # KIP-951
    assert [(node.node_id, node.port) for node in answer.node_endpoints] == [(OTHER, port)]
    topic_id = cluster.coordinator.broker.metadata.image.topics_by_name["t"].topic_id
    wanted = FetchTopic(topic_id=topic_id, partitions=[FetchPartition(partition_max_bytes=1000)])
    fetched = cluster.coordinator_wire.call(FetchRequest(max_wait_ms=60_000, min_bytes=1, topics=[wanted]), 16)
    (partition,) = fetched.responses[0].partitions
    assert (partition.error_code, partition.current_leader.leader_id) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, OTHER)
    assert [(node.node_id, node.port) for node in fetched.node_endpoints] == [(OTHER, port)]
    elsewhere = Transactional(cluster.leader_wire, "p", v2=producer.v2)
    elsewhere.producer_id, elsewhere.epoch = producer.producer_id, producer.epoch
    assert elsewhere.commit() == ErrorCode.NOT_COORDINATOR
    group_elsewhere = OffsetFetchRequest(
        groups=[
            OffsetFetchRequestGroup(group_id="g", topics=[OffsetFetchRequestTopics(name="t", partition_indexes=[0])])
        ]
    )
    (group,) = cluster.coordinator_wire.call(group_elsewhere, 8).groups
    assert group.error_code == ErrorCode.NOT_COORDINATOR


def test_what_is_invalid_is_reported_by_every_broker(cluster: Cluster) -> None:
    """Whether it coordinates the group or not. A valid request is NOT_COORDINATOR."""
    for wire in (cluster.coordinator_wire, cluster.leader_wire):
        empty = wire.call(OffsetDeleteRequest(group_id="", topics=[]))
        assert empty.error_code == ErrorCode.INVALID_GROUP_ID
    join = JoinGroupRequest(group_id="g", session_timeout_ms=1, rebalance_timeout_ms=1000, protocol_type="consumer")
    heartbeat = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=0)
    wire = cluster.coordinator_wire
    assert wire.call(join).error_code == ErrorCode.INVALID_SESSION_TIMEOUT
    rejected = wire.call(heartbeat)
    assert rejected.error_code == ErrorCode.INVALID_REQUEST
    assert rejected.error_message == "RebalanceTimeoutMs must be provided in first request."
    join.session_timeout_ms = heartbeat.rebalance_timeout_ms = 10_000
    heartbeat.subscribed_topic_names, heartbeat.topic_partitions = ["t"], []
    assert wire.call(join).error_code == ErrorCode.NOT_COORDINATOR
    assert wire.call(heartbeat).error_code == ErrorCode.NOT_COORDINATOR

from __future__ import annotations

from typing import Any

from moldau.metadata import periodic_elections
from moldau.metadata.brokers import fence_broker, unfence_broker
from moldau.metadata.outcome import Versioned
from moldau.metadata.periodic_elections import elect_preferred_leaders, elect_unclean_leaders
from moldau.metadata.records import ConfigRecord, PartitionChangeRecord
from moldau.metadata.registrations import NO_LEADER, RECOVERING
from moldau.protocol.steps import completed

from .lookups import partition_of

Cluster = Any


def leaders(cluster: Cluster, topic: str = "t") -> dict[int, int]:
    return {index: partition.leader for index, partition in cluster.image.topics_by_name[topic].partitions.items()}


def preferred(cluster: Cluster, topic: str = "t") -> dict[int, int]:
    partitions = cluster.image.topics_by_name[topic].partitions
    return {index: partition.replicas[0] for index, partition in partitions.items()}


def fence(cluster: Cluster, broker_id: int) -> None:
    cluster.commit(fence_broker(cluster.image, broker_id, cluster.context))


def unfence(cluster: Cluster, broker_id: int) -> None:
    cluster.commit(unfence_broker(cluster.image, broker_id, cluster.context))


def set_isr(cluster: Cluster, index: int, *isr: int, topic: str = "t") -> None:
    topic_id = cluster.image.topics_by_name[topic].topic_id
    record = PartitionChangeRecord(topic_id=topic_id, partition_id=index, isr=list(isr))
    cluster.commit([Versioned(record, 2)])


def balance(cluster: Cluster) -> int:
    return int(cluster.do(completed(elect_preferred_leaders(cluster.image, cluster.context))))


def elect_unclean(cluster: Cluster) -> int:
    return int(cluster.do(completed(elect_unclean_leaders(cluster.image, cluster.context))))


def with_failed_broker(new_cluster: type[Cluster]) -> Cluster:
    """Broker 2 was fenced and is active again, in no in-sync set."""
    cluster = new_cluster(1, 2)
    cluster.create("t", partitions=4, replication_factor=2)
    fence(cluster, 2)
    unfence(cluster, 2)
    return cluster


def test_leaderships_return_to_preferred_replicas_that_are_in_sync(new_cluster: type[Cluster]) -> None:
    cluster = with_failed_broker(new_cluster)
    assert set(leaders(cluster).values()) == {1}
    assert cluster.delta.unclean_elections == 0
    assert balance(cluster) == 0, "broker 2 is not in sync"
    moved = next(index for index, broker_id in preferred(cluster).items() if broker_id == 2)
    set_isr(cluster, moved, 1, 2)
    epoch = partition_of(cluster.image, "t", moved).leader_epoch
    assert balance(cluster) == 1
    assert leaders(cluster)[moved] == 2
    assert partition_of(cluster.image, "t", moved).leader_epoch == epoch + 1
    assert partition_of(cluster.image, "t", moved).isr == (1, 2)
    assert balance(cluster) == 0


def test_a_fenced_preferred_replica_is_not_elected(new_cluster: type[Cluster]) -> None:
    cluster = with_failed_broker(new_cluster)
    for index in leaders(cluster):
        set_isr(cluster, index, 1, 2)
    fence(cluster, 2)
    assert balance(cluster) == 0
    assert set(leaders(cluster).values()) == {1}


def test_a_decision_has_a_limited_number_of_elections(new_cluster: type[Cluster], monkeypatch: Any) -> None:
    cluster = with_failed_broker(new_cluster)
    for index in leaders(cluster):
        set_isr(cluster, index, 1, 2)
    monkeypatch.setattr(periodic_elections, "MAX_ELECTIONS", 1)
    assert [balance(cluster), balance(cluster), balance(cluster)] == [1, 1, 0]
    assert leaders(cluster) == preferred(cluster)


def leaderless(new_cluster: type[Cluster]) -> Cluster:
    """Only broker 1 is in sync, and fenced. Broker 2 is active."""
    cluster = with_failed_broker(new_cluster)
    fence(cluster, 1)
    assert set(leaders(cluster).values()) == {NO_LEADER}
    return cluster


def test_unclean_leaders_are_elected_where_the_topic_permits_it_meanwhile(new_cluster: type[Cluster]) -> None:
    cluster = leaderless(new_cluster)
    assert elect_unclean(cluster) == 0
    config = ConfigRecord(resource_type=2, resource_name="t", name="unclean.leader.election.enable", value="true")
    cluster.commit([Versioned(config)])
    assert elect_unclean(cluster) == 4
    assert cluster.delta.unclean_elections == 4
    assert set(leaders(cluster).values()) == {2}
    assert {each.leader_recovery_state for each in cluster.image.topics_by_name["t"].partitions.values()} == {
        RECOVERING
    }
    assert elect_unclean(cluster) == 0


def test_without_an_active_replica_there_is_no_unclean_leader(new_cluster: type[Cluster]) -> None:
    cluster = new_cluster(1, 2)
    cluster.create("t", partitions=1, replication_factor=2, unclean_leader_election_enable="true")
    fence(cluster, 1)
    fence(cluster, 2)
    assert leaders(cluster) == {0: NO_LEADER}
    assert elect_unclean(cluster) == 0

"""``moldau cluster drain``: which replicas go where, and a broker that has no partitions afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from moldau.cli.drain_broker import Move, Partition, Plan, plan
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.describe_cluster import DescribeClusterRequest
from moldau.protocol.messages.unregister_broker import UnregisterBrokerRequest
from moldau.testing import Cluster
from moldau.testing.wire import WireClient

from .conftest import Run

NO_RACKS = {1: None, 2: None, 3: None, 4: None}


def moved(
    replicas: list[tuple[int, ...]], broker: int, racks: dict[int, str | None] | None = None
) -> list[tuple[int, ...]]:
    partitions = [Partition("t", index, each) for index, each in enumerate(replicas)]
    planned = plan(partitions, broker, racks or NO_RACKS)
    assert not planned.reductions
    assert not planned.stuck
    return [move.replicas for move in planned.moves]


def test_replicas_go_to_the_brokers_with_the_fewest() -> None:
    assert moved([(1,), (1,), (1,), (2,)], 1) == [(3,), (4,), (2,)]


def test_the_new_replica_has_the_position_of_the_old_one() -> None:
    assert moved([(2, 1, 3)], 1) == [(2, 4, 3)]


def test_a_rack_without_a_replica_is_preferred() -> None:
    racks: dict[int, str | None] = {1: "a", 2: "b", 3: "b", 4: "c"}
    assert moved([(1, 2), (4,), (4,)], 1, racks) == [(4, 2)]


def test_brokers_that_are_not_active_get_no_replicas() -> None:
    assert moved([(1,)], 1, {1: None, 4: None}) == [(4,)]


def test_a_broker_that_does_not_run_can_be_drained() -> None:
    assert moved([(1, 2)], 1, {2: None, 3: None}) == [(3, 2)]


def test_a_partition_with_a_replica_on_every_broker_can_only_lose_it() -> None:
    partitions = [Partition("t", index, each) for index, each in enumerate([(1,), (3, 1, 2), (1,)])]
    planned = plan(partitions, 1, {1: None, 2: None, 3: None})
    assert [move.replicas for move in planned.moves] == [(2,), (3,)]
    assert planned.reductions == [Move(partitions[1], (3, 2))]
    assert not planned.stuck


def test_the_last_replica_is_not_removed() -> None:
    """The other replica is on a broker that is not active."""
    partition = Partition("t", 0, (1, 2))
    assert plan([partition], 1, {1: None}) == Plan([], [], [partition])


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=3) as running:
        running.create_topic("orders", [[3, 1], [1, 3], [2, 1]])
        yield running


def described(run: Run, cluster: Cluster, topic: str) -> list[dict[str, Any]]:
    (found,) = run("topics", "describe", topic, "--json", "-b", cluster.broker(1).address).json()
    partitions: list[dict[str, Any]] = found["partitions"]
    return partitions


def replicas(run: Run, cluster: Cluster) -> list[list[int]]:
    return [partition["replicas"] for partition in described(run, cluster, "orders")]


def test_a_drained_broker_has_no_partitions(run: Run, cluster: Cluster) -> None:
    address = cluster.broker(1).address
    shown = run("cluster", "drain", "3", "--dry-run", "--json", "-b", address).json()
    assert [(each["partition"], each["from"], each["to"]) for each in shown] == [
        (0, [3, 1], [2, 1]),
        (1, [1, 3], [1, 2]),
    ]
    assert replicas(run, cluster) == [[3, 1], [1, 3], [2, 1]]
    drained = run("cluster", "drain", "3", "-b", address)
    assert (drained.code, drained.err) == (0, "")
    assert "Broker 3 has no partitions." in drained.lines
    assert "2 of 2 partitions are moved." in drained.lines
    assert replicas(run, cluster) == [[2, 1], [1, 2], [2, 1]]
    assert "Broker 3 has no partitions." in run("cluster", "drain", "3", "-b", address).lines


def test_what_cannot_move_stays_until_the_user_accepts_fewer_replicas(run: Run, cluster: Cluster) -> None:
    address = cluster.broker(2).address
    cluster.create_topic("everywhere", [[2, 3, 1]])
    cluster.create_topic("single", [2])
    drained = run("cluster", "drain", "2", "-b", address)
    assert drained.code == 1
    assert "broker 2 keeps everywhere-0 (2,3,1)" in drained.err
    assert "--reduce-replicas" in drained.err
    assert described(run, cluster, "everywhere")[0]["replicas"] == [2, 3, 1]
    assert described(run, cluster, "single")[0]["replicas"] in ([1], [3])
    reduced = run("cluster", "drain", "2", "--reduce-replicas", "-b", address)
    assert (reduced.code, reduced.err) == (0, "")
    assert described(run, cluster, "everywhere")[0]["replicas"] == [3, 1]
    assert reduced.lines[-1].endswith("kafka-cluster.sh unregister --id 2")
    cluster.stop(2)
    with WireClient(cluster.broker(1).address) as wire:

        def registered() -> dict[int, bool]:
            brokers = wire.call(DescribeClusterRequest(include_fenced_brokers=True)).brokers
            return {broker.broker_id: broker.is_fenced for broker in brokers}

        assert registered() == {1: False, 2: True, 3: False}
        assert {broker.broker_id for broker in wire.call(DescribeClusterRequest()).brokers} == {1, 3}
        assert wire.call(UnregisterBrokerRequest(broker_id=2)).error_code == ErrorCode.NONE
        assert registered() == {1: False, 3: False}
        assert wire.call(UnregisterBrokerRequest(broker_id=2)).error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
    cluster.start(2)  # it registers again, without partitions
    cluster.create_topic("again", [[2, 1]])
    cluster.await_isr("again", 0, {1, 2})


def test_an_unknown_broker_is_rejected(run: Run, cluster: Cluster) -> None:
    result = run("cluster", "drain", "9", "-b", cluster.broker(1).address)
    assert result.code == 1
    assert "unknown broker 9; the cluster has: 1, 2, 3" in result.err


def test_options_follow_the_name_of_the_command(run: Run) -> None:
    result = run("cluster", "--json", "drain", "3")
    assert result.code == 2
    assert "Options of drain must follow its name." in result.err

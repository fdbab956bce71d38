"""``moldau cluster drain``: which replicas go where, and a broker that has no partitions afterwards."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from moldau.cli.drain_broker import Partition, plan
from moldau.cli.failure import Failure
from moldau.testing import Cluster

from .conftest import Run

NO_RACKS = {1: None, 2: None, 3: None, 4: None}


def moved(
    replicas: list[tuple[int, ...]], broker: int, racks: dict[int, str | None] | None = None
) -> list[tuple[int, ...]]:
    partitions = [Partition("t", index, each) for index, each in enumerate(replicas)]
    return [move.replicas for move in plan(partitions, broker, racks or NO_RACKS)]


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


def test_nothing_moves_if_a_partition_has_a_replica_on_every_broker() -> None:
    with pytest.raises(Failure, match=r"cannot move t-1 \(4 replicas\)"):
        moved([(1,), (1, 2, 3, 4)], 1)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=3) as running:
        running.create_topic("orders", [[3, 1], [1, 3], [2, 1]])
        yield running


def replicas(run: Run, cluster: Cluster) -> list[list[int]]:
    (topic,) = run("topics", "describe", "orders", "--json", "-b", cluster.broker(1).address).json()
    return [partition["replicas"] for partition in topic["partitions"]]


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
    assert drained.lines[-1] == "Broker 3 has no partitions."
    assert "2 of 2 partitions are moved." in drained.lines
    assert replicas(run, cluster) == [[2, 1], [1, 2], [2, 1]]
    assert run("cluster", "drain", "3", "-b", address).lines[-1] == "Broker 3 has no partitions."


def test_an_unknown_broker_is_rejected(run: Run, cluster: Cluster) -> None:
    result = run("cluster", "drain", "9", "-b", cluster.broker(1).address)
    assert result.code == 1
    assert "unknown broker 9; the cluster has: 1, 2, 3" in result.err


def test_options_follow_the_name_of_the_command(run: Run) -> None:
    result = run("cluster", "--json", "drain", "3")
    assert result.code == 2
    assert "Options of drain must follow its name." in result.err

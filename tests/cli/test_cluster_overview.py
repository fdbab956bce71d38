"""``moldau cluster`` with three brokers: what it reports while a broker is down, a replica moves, and a directory is
cordoned."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from moldau.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from moldau.testing import Cluster
from moldau.testing.waiting import wait_until
from moldau.testing.wire import WireClient

from .conftest import Run


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=3, log_dirs=2, racks=["a", "b", "c"], session_timeout=3.0) as running:
        running.create_topic("orders", [[1, 2, 3], [2, 3, 1]], config={"min.insync.replicas": 2})
        running.create_topic("single", [3])
        for partition in (0, 1):
            running.await_isr("orders", partition, {1, 2, 3})
        yield running


def overview(run: Run, cluster: Cluster) -> dict[str, Any]:
    described: dict[str, Any] = run("cluster", "--json", "-b", cluster.broker(1).address).json()
    return described


def shown(run: Run, cluster: Cluster) -> list[list[str]]:
    return [line.split() for line in run("cluster", "-b", cluster.broker(1).address).lines]


def reassign(cluster: Cluster, replicas: list[int] | None) -> None:
    partition = ReassignablePartition(partition_index=0, replicas=replicas)
    topic = ReassignableTopic(name="single", partitions=[partition])
    with WireClient(cluster.broker(1).address) as wire:
        response = wire.call(AlterPartitionReassignmentsRequest(topics=[topic], timeout_ms=60_000))
    assert response.responses[0].partitions[0].error_code == ErrorCode.NONE


def test_brokers_and_directories(run: Run, cluster: Cluster) -> None:
    described = overview(run, cluster)
    brokers = {broker["id"]: broker for broker in described["brokers"]}
    assert [(each["id"], each["state"], each["is_broker"]) for each in described["controllers"]] == [
        (1, "active", True)
    ]
    facts = ("rack", "leaders", "replicas", "not_in_sync")
    assert [[brokers[number][fact] for fact in facts] for number in (1, 2, 3)] == [
        ["a", 1, 2, 0],
        ["b", 1, 2, 0],
        ["c", 1, 3, 0],
    ]
    for number, broker in brokers.items():
        paths = [directory["path"] for directory in broker["directories"]]
        assert paths == sorted(map(str, cluster.broker(number).log_dirs))
    assert (described["problems"], described["reassignments"]) == ([], [])


def test_a_cordoned_directory(run: Run, cluster: Cluster) -> None:
    path = str(cluster.broker(2).log_dirs[1])

    def cordon(value: str) -> None:
        config = AlterableConfig(name="cordoned.log.dirs", config_operation=0, value=value)
        resource = AlterConfigsResource(resource_type=4, resource_name="2", configs=[config])
        with WireClient(cluster.broker(2).address) as wire:
            (response,) = wire.call(IncrementalAlterConfigsRequest(resources=[resource])).responses
        assert response.error_code == ErrorCode.NONE

    cordon(path)
    wait_until(lambda: ["2", path, "cordoned"] in [line[:3] for line in shown(run, cluster)])
    cordon("")


def test_a_reassignment_in_progress(run: Run, cluster: Cluster) -> None:
    cluster.cut(2, 3)
    reassign(cluster, [2])
    described = overview(run, cluster)
    assert described["reassignments"] == [
        {"topic": "single", "partition": 0, "replicas": [2, 3], "adding": [2], "removing": [3]}
    ]
    assert "single" not in [
        problem["topic"] for problem in described["problems"]
    ]  # nothing is lost: it has one replica
    assert ["single", "0", "2,3", "2", "3"] in shown(run, cluster)
    reassign(cluster, None)
    cluster.heal()
    assert overview(run, cluster)["reassignments"] == []


def test_a_broker_that_is_down(run: Run, cluster: Cluster) -> None:
    for partition in (0, 1):
        cluster.await_isr("orders", partition, {1, 2, 3})
    cluster.stop(3)
    wait_until(lambda: overview(run, cluster)["at_min_isr"] == 2)
    described = overview(run, cluster)
    assert (described["partitions"], described["partitions_without_leader"], described["below_min_isr"]) == (3, 1, 0)
    (down,) = [broker for broker in described["brokers"] if broker["id"] == 3]
    assert (down["fenced"], down["leaders"], down["not_in_sync"], down["directories"]) == (True, 0, 2, None)
    lines = shown(run, cluster)
    assert ["orders", "0", "1", "1,2,3", "1,2", "2", "at", "min", "ISR,", "under-replicated"] in lines
    assert ["3", "partitions:", "1", "offline,", "2", "at", "min", "ISR,", "2", "under-replicated"] in lines
    cluster.start(3)
    wait_until(lambda: not overview(run, cluster)["problems"])

"""``moldau cluster`` with three brokers: what it reports while a broker is down, a replica moves, and a directory is
cordoned."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from moldau.cli import describe_cluster
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
    assert (described["partitions"], described["partitions_without_leader"], described["below_min_isr"]) == (3, 1, 1)
    (down,) = [broker for broker in described["brokers"] if broker["id"] == 3]
    assert (down["fenced"], down["leaders"], down["not_in_sync"], down["directories"]) == (True, 0, 3, None)
    lines = shown(run, cluster)
    assert ["orders", "0", "1", "1,2,3", "1,2", "2", "at", "min", "ISR,", "under-replicated"] in lines
    assert [
        "3",
        "partitions:",
        "1",
        "offline,",
        "1",
        "below",
        "min",
        "ISR,",
        "2",
        "at",
        "min",
        "ISR,",
        "3",
        "under-replicated",
    ] in lines
    cluster.start(3)
    wait_until(lambda: not overview(run, cluster)["problems"])


@pytest.fixture
def without_controller(cluster: Cluster) -> Cluster:
    """Broker 1, which is also the controller, is down from here on. The others consider it active, because only the
    controller fences brokers."""
    if cluster.broker(1).running:
        cluster.kill(1)
    return cluster


def test_a_controller_that_is_down(run: Run, without_controller: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    other = without_controller.broker(2).address
    result = run("cluster", "--json", "-b", other)
    assert (result.code, result.err) == (0, "")
    described = result.json()
    assert (described["controller"], described["controller_responds"], described["reassignments"]) == (
        None,
        False,
        None,
    )
    assert [(each["id"], each["responds"]) for each in described["brokers"]] == [(1, False), (2, True), (3, True)]
    assert [len(each["directories"] or ()) for each in described["brokers"]] == [0, 2, 2]
    assert (described["software"], described["partitions"], described["problems"]) == ("Moldau", 3, [])
    capsys.readouterr()
    describe_cluster.show(described)
    lines = capsys.readouterr().out.splitlines()
    assert lines[3].startswith("controller  does not respond: ")
    assert [line.split()[-6:-4] for line in lines if line.startswith("     1  ")] == [["no", "response"]]
    first = described["brokers"][0]
    assert lines[-1].startswith("Broker 1 does not respond, which the states above do not consider. It leads ")
    assert f"in sync in {first['replicas'] - first['not_in_sync']} partition" in lines[-1]


def test_errors_name_the_broker_that_does_not_respond(run: Run, without_controller: Cluster) -> None:
    one, other = without_controller.broker(1).address, without_controller.broker(2).address
    result = run("configs", "describe", "broker", "1", "-b", other)
    assert (result.code, result.err.splitlines()[0]) == (1, f"moldau: broker 1 at {one}: connection refused")
    (described,) = run("topics", "describe", "orders", "--json", "-b", other).json()
    assert [each["first_offset"] for each in described["partitions"]] == [None, 0]

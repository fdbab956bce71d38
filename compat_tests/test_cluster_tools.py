"""Kafka's own command-line tools on a cluster of three brokers with replicas."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from moldau.testing import Cluster
from moldau.testing.clients.java import JavaClient, ToolResult
from moldau.testing.requirements import require_kafka_jars
from moldau.testing.waiting import wait_until

Tool = Callable[..., str]

SESSION_TIMEOUT_S = 3.0


@pytest.fixture(scope="module")
def running(request: pytest.FixtureRequest) -> Iterator[tuple[Cluster, JavaClient]]:
    if any(request.config.getoption(option) for option in ("apache", "bootstrap_server")):
        pytest.skip("starts its own servers")
    require_kafka_jars()
    with Cluster(brokers=3, session_timeout=SESSION_TIMEOUT_S) as cluster, JavaClient("127.0.0.1:1") as java:
        yield cluster, java


@pytest.fixture
def cluster(running: tuple[Cluster, JavaClient]) -> Cluster:
    running[0].reset()
    return running[0]


@pytest.fixture
def tool(running: tuple[Cluster, JavaClient], cluster: Cluster) -> Tool:
    """``tool("TopicCommand", "--list")``: the output of a tool, which must succeed."""

    def run(name: str, *arguments: str) -> str:
        command = ["--bootstrap-server", cluster.broker(1).address, *arguments]
        result: ToolResult = running[1].tool(f"org.apache.kafka.tools.{name}", command)
        assert result.exit_code == 0, result
        return result.stdout

    return run


@pytest.fixture
def reassign(tool: Tool, tmp_path: Path) -> Callable[..., str]:
    """``reassign([3, 1], "--execute")``: the tool for reassignments, for partition 0 of `orders`."""

    def run(replicas: list[int], *arguments: str) -> str:
        file = tmp_path / "reassignment.json"
        wanted = [{"topic": "orders", "partition": 0, "replicas": replicas}]
        file.write_text(json.dumps({"version": 1, "partitions": wanted}))
        return tool("reassign.ReassignPartitionsCommand", "--reassignment-json-file", str(file), *arguments)

    return run


def test_a_partition_is_reassigned_and_verified(cluster: Cluster, reassign: Callable[..., str], tool: Tool) -> None:
    cluster.create_topic("orders", [[1, 2]])
    begun = reassign([3, 2], "--execute", "--throttle", "1000000000")
    assert "Successfully started partition reassignment for orders-0" in begun
    wait_until(lambda: "orders-0 is completed" in reassign([3, 2], "--verify", "--preserve-throttles"))
    ended = reassign([3, 2], "--verify")
    assert "Clearing broker-level throttles on brokers 1,2,3" in ended
    assert "Clearing topic-level throttles on topic orders" in ended
    cluster.await_isr("orders", 0, {2, 3})
    described = tool("TopicCommand", "--describe", "--topic", "orders")
    assert "Leader: 3\tReplicas: 3,2\tIsr: " in described
    assert "throttled" not in described


def test_a_reassignment_is_listed_and_canceled(cluster: Cluster, reassign: Callable[..., str], tool: Tool) -> None:
    cluster.create_topic("orders", [2])
    cluster.cut(2, 3)
    reassign([3], "--execute")
    assert "orders-0: replicas: 3,2. adding: 3. removing: 2." in tool("reassign.ReassignPartitionsCommand", "--list")
    assert "still in progress" in reassign([3], "--verify")
    assert "Successfully cancelled partition reassignment for: orders-0" in reassign([3], "--cancel")
    assert "No partition reassignments found" in tool("reassign.ReassignPartitionsCommand", "--list")
    assert "Leader: 2\tReplicas: 2\tIsr: 2" in tool("TopicCommand", "--describe", "--topic", "orders")


def test_a_dead_replica_is_shown_as_under_replicated(cluster: Cluster, tool: Tool) -> None:
    cluster.create_topic("orders", [[1, 2, 3]], config={"min.insync.replicas": 2})
    cluster.await_isr("orders", 0, {1, 2, 3})
    assert "orders" not in tool("TopicCommand", "--describe", "--under-replicated-partitions")
    cluster.kill(3)
    cluster.await_isr("orders", 0, {1, 2})
    for option in ("--under-replicated-partitions", "--at-min-isr-partitions"):
        shown = tool("TopicCommand", "--describe", option)
        assert "Topic: orders\tPartition: 0\tLeader: 1\tReplicas: 1,2,3\tIsr: 1,2" in shown
    assert "orders" not in tool("TopicCommand", "--describe", "--under-min-isr-partitions")

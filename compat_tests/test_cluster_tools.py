"""Kafka's own command-line tools on a cluster of three brokers with replicas."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from moldau.protocol.records import Record, build_batch
from moldau.testing import Cluster, jvm
from moldau.testing.builders import produce_request
from moldau.testing.clients.java import JavaClient, ToolResult
from moldau.testing.dump_tool import COMPLAINTS
from moldau.testing.requirements import require_kafka_jars
from moldau.testing.waiting import wait_until
from moldau.testing.wire import WireClient

Tool = Callable[..., str]

LONG_AGO_MS = 3_600_000

SESSION_TIMEOUT_S = 3.0


@pytest.fixture(scope="module")
def running(request: pytest.FixtureRequest) -> Iterator[tuple[Cluster, JavaClient]]:
    if any(request.config.getoption(option) for option in ("apache", "bootstrap_server")):
        pytest.skip("starts its own servers")
    require_kafka_jars()
    config = {"transaction.partition.verification.enable": False}  # one test writes a hanging transaction
    with (
        Cluster(brokers=3, config=config, session_timeout=SESSION_TIMEOUT_S) as cluster,
        JavaClient("127.0.0.1:1") as java,
    ):
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


def test_a_replica_that_leaves_a_minimal_in_sync_set_may_lead_later(cluster: Cluster, tool: Tool) -> None:
    """Eligible leader replicas (KIP-966), which a new cluster has as in Apache Kafka."""
    finalized = [line for line in tool("FeatureCommand", "describe").splitlines() if "eligible.leader" in line]
    assert "FinalizedVersionLevel: 1" in finalized[0]
    cluster.create_topic("orders", [[1, 2, 3]], config={"min.insync.replicas": 2})
    cluster.await_isr("orders", 0, {1, 2, 3})
    cluster.broker(3).stop()
    cluster.await_isr("orders", 0, {1, 2})
    cluster.broker(2).stop()
    cluster.await_isr("orders", 0, {1})
    shown = tool("TopicCommand", "--describe", "--topic", "orders")
    assert "Isr: 1\tElr: 2\tLastKnownElr:" in shown
    cluster.broker(2).start()
    cluster.await_isr("orders", 0, {1, 2})
    assert "Elr: \t" in tool("TopicCommand", "--describe", "--topic", "orders")


def test_a_broker_that_was_stopped_for_good_is_unregistered(
    cluster: Cluster, running: tuple[Cluster, JavaClient]
) -> None:
    def cluster_tool(command: str, *arguments: str) -> str:
        options = [command, "--bootstrap-server", cluster.broker(1).address, *arguments]
        result: ToolResult = running[1].tool("org.apache.kafka.tools.ClusterTool", options)
        assert result.exit_code == 0, result
        return result.stdout

    def listed() -> dict[str, str]:
        """The state of each broker."""
        rows = [line.split() for line in cluster_tool("list-endpoints", "--include-fenced-brokers").splitlines()[1:]]
        return {row[0]: row[-2] for row in rows if row}

    assert listed() == {"1": "unfenced", "2": "unfenced", "3": "unfenced"}
    cluster.stop(3)
    assert listed() == {"1": "unfenced", "2": "unfenced", "3": "fenced"}
    assert "Broker 3 is no longer registered." in cluster_tool("unregister", "--id", "3")
    assert listed() == {"1": "unfenced", "2": "unfenced"}
    cluster.start(3)
    assert listed() == {"1": "unfenced", "2": "unfenced", "3": "unfenced"}


def verifiable(cluster: Cluster, name: str, *arguments: str) -> list[dict[str, Any]]:
    """What one of Kafka's verifiable clients prints. It sends and commits the rest when its process ends."""
    options = ("--bootstrap-server", cluster.broker(1).address, "--topic", "orders", *arguments)
    ended = subprocess.run(
        jvm.command(f"org.apache.kafka.tools.{name}", *options), capture_output=True, text=True, check=True
    )
    return [json.loads(line) for line in ended.stdout.splitlines() if line.startswith("{")]


def test_a_verifiable_consumer_reads_from_other_leaders_what_a_verifiable_producer_wrote(cluster: Cluster) -> None:
    cluster.create_topic("orders", [[1, 2, 3], [2, 3, 1], [3, 1, 2]], config={"min.insync.replicas": 2})
    produced = verifiable(cluster, "VerifiableProducer", "--max-messages", "600", "--acks", "-1")
    written = {(each["partition"], each["offset"]) for each in produced if each["name"] == "producer_send_success"}
    assert len(written) == 600
    cluster.kill(3)
    for partition in range(3):
        cluster.await_isr("orders", partition, {1, 2})
    consumed = verifiable(
        cluster, "VerifiableConsumer", "--group-id", "verifying", "--max-messages", "600", "--verbose"
    )
    read = [(each["partition"], each["offset"]) for each in consumed if each["name"] == "record_data"]
    assert (len(read), set(read)) == (600, written)


def test_hanging_transactions_are_found_on_leaders_and_followers(cluster: Cluster, tool: Tool) -> None:
    cluster.create_topic("orders", [[1, 2]], config={"message.timestamp.before.max.ms": LONG_AGO_MS * 2})
    timestamp = int(time.time() * 1000) - LONG_AGO_MS
    records = build_batch(
        [Record(0, timestamp, None, b"hanging")],
        producer_id=4711,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )
    with WireClient(cluster.broker(1).address) as wire:
        request = produce_request("orders", records, acks=-1)
        request.transactional_id = "unknown"
        answer = wire.call(request, 11).responses[0].partition_responses[0]
        assert answer.error_code == 0, answer
    for broker in (1, 2):
        found = tool("TransactionsCommand", "find-hanging", "--broker-id", str(broker)).splitlines()
        assert [line.split()[:4] for line in found[1:] if line.strip()] == [["orders", "0", "4711", "0"]], found
    tool("TransactionsCommand", "abort", "--topic", "orders", "--partition", "0", "--start-offset", "0")
    for broker in (1, 2):
        wait_until(
            lambda broker=broker: "4711" not in tool("TransactionsCommand", "find-hanging", "--broker-id", str(broker))  # type: ignore[misc]
        )


def test_the_quorum_lists_brokers_without_a_lag(cluster: Cluster, tool: Tool) -> None:
    cluster.create_topic("orders", [1])

    def rows() -> list[list[str]] | None:
        lines = tool("MetadataQuorumCommand", "describe", "--replication").splitlines()
        found = [[row[0], row[3], row[-1]] for row in map(str.split, lines[1:])]
        return found if all(lag == "0" for _, lag, _ in found) else None

    assert wait_until(rows) == [["1", "0", "Leader"], ["2", "0", "Observer"], ["3", "0", "Observer"]]


def test_replicas_are_equal_for_kafkas_verification_and_dump_tools(
    cluster: Cluster, running: tuple[Cluster, JavaClient]
) -> None:
    cluster.create_topic("orders", [[1, 2, 3]])
    verifiable(cluster, "VerifiableProducer", "--max-messages", "300", "--acks", "-1")
    command = jvm.command(
        "org.apache.kafka.tools.ReplicaVerificationTool",
        *("--broker-list", cluster.broker(1).address, "--topics-include", "orders", "--report-interval-ms", "100"),
    )
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as verification:
        try:
            assert verification.stdout is not None
            reports = (line for line in verification.stdout if "max lag is" in line)
            assert "max lag is 0 for partition orders-0 at offset 300 among 1 partitions" in next(
                line for line in reports if "at offset 300" in line
            )
        finally:
            verification.kill()
    dumps = []
    for broker in (1, 2, 3):
        file = cluster.broker(broker).data_dir / "orders-0" / f"{0:020}.log"
        result = running[1].tool(
            "org.apache.kafka.tools.DumpLogSegments", ["--files", str(file), "--print-data-log", "--deep-iteration"]
        )
        assert not COMPLAINTS.search(result.stdout + result.stderr), result
        dumps.append([line for line in result.stdout.splitlines() if not line.startswith("Dumping ")])
    assert sum("offset: " in line for line in dumps[0]) >= 300
    assert dumps[0] == dumps[1] == dumps[2]

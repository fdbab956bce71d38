"""Log directories of brokers in a cluster: moves with Kafka's tools, and directories that fail or vanish.

Three brokers with two log directories each.
"""

from __future__ import annotations

import json
import resource
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kafka import KafkaProducer

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from moldau.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from moldau.testing import Cluster
from moldau.testing.clients.java import JavaClient, ToolResult
from moldau.testing.requirements import require_kafka_jars
from moldau.testing.waiting import wait_until
from moldau.testing.wire import WireClient

pytestmark = pytest.mark.slow

SESSION_TIMEOUT_S = 3.0
SEGMENT_BYTES = 1 << 20
VALUE = b"x" * 100_000
ROLLS = 2 * SEGMENT_BYTES // len(VALUE)
"""So many records need a new segment."""

Tool = Callable[..., str]


@pytest.fixture(scope="module")
def running(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    if any(request.config.getoption(option) for option in ("apache", "bootstrap_server")):
        pytest.skip("starts its own servers")
    config = {"log.segment.bytes": SEGMENT_BYTES, "replica.lag.time.max.ms": 2000}
    with Cluster(brokers=3, log_dirs=2, config=config, session_timeout=SESSION_TIMEOUT_S) as cluster:
        yield cluster


@pytest.fixture
def cluster(running: Cluster) -> Cluster:
    running.reset()
    return running


@pytest.fixture(scope="module")
def java() -> Iterator[JavaClient]:
    require_kafka_jars()
    with JavaClient("127.0.0.1:1") as client:
        yield client


@pytest.fixture
def tool(cluster: Cluster, java: JavaClient) -> Tool:
    """``tool("TopicCommand", "--list")``: the output of a tool, which must succeed."""

    def run(name: str, *arguments: str) -> str:
        command = ["--bootstrap-server", cluster.broker(3).address, *arguments]
        result: ToolResult = java.tool(f"org.apache.kafka.tools.{name}", command)
        assert result.exit_code == 0, result
        return result.stdout

    return run


@pytest.fixture
def reassign(tool: Tool, tmp_path: Path) -> Callable[..., str]:
    """``reassign({3: directory, 1: None}, "--execute")``: the tool for reassignments, for partition 0 of `orders`."""

    def run(replicas: dict[int, Path | None], *arguments: str) -> str:
        directories = ["any" if each is None else str(each) for each in replicas.values()]
        partition = {"topic": "orders", "partition": 0, "replicas": list(replicas), "log_dirs": directories}
        file = tmp_path / "reassignment.json"
        file.write_text(json.dumps({"version": 1, "partitions": [partition]}))
        return tool("reassign.ReassignPartitionsCommand", "--reassignment-json-file", str(file), *arguments)

    return run


def produce(cluster: Cluster, topic: str, count: int, value: bytes = VALUE) -> None:
    """Produce records, all of which are acknowledged by all in-sync replicas."""
    addresses = [broker.address for broker in map(cluster.broker, cluster.broker_ids) if broker.responds]
    producer = KafkaProducer(bootstrap_servers=addresses, acks="all", retries=10_000, enable_idempotence=True)
    for sent in [producer.send(topic, value, partition=0) for _ in range(count)]:
        sent.get(timeout=60)
    producer.close()


def directory_of(cluster: Cluster, broker_id: int, topic: str = "orders") -> Path | None:
    """The log directory in which the broker has the replica."""
    with WireClient(cluster.broker(broker_id).address) as wire:
        for result in wire.call(DescribeLogDirsRequest(topics=None)).results:
            if any(described.name == topic for described in result.topics):
                return Path(result.log_dir)
    return None


def error_of(cluster: Cluster, broker_id: int, directory: Path) -> int:
    with WireClient(cluster.broker(broker_id).address) as wire:
        results = wire.call(DescribeLogDirsRequest(topics=[])).results
    return {result.log_dir: int(result.error_code) for result in results}[str(directory)]


def create_in(cluster: Cluster, topic: str, replicas: list[int], directory: Path, reassign: Callable[..., str]) -> None:
    """Create `orders`, whose first replica is in this directory."""
    cluster.create_topic(topic, [replicas])
    cluster.await_isr(topic, 0, set(replicas))
    wanted: dict[int, Path | None] = dict.fromkeys(replicas)
    reassign({**wanted, replicas[0]: directory}, "--execute")
    wait_until(lambda: directory_of(cluster, replicas[0], topic) == directory)


def segments(directory: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in (directory / "orders-0").glob("*.log")}


def await_equal_replicas(cluster: Cluster, broker_ids: set[int]) -> None:
    """All replicas of `orders` are in sync and have the same records."""
    cluster.await_isr("orders", 0, broker_ids)

    def contents() -> set[bytes]:
        found = {broker_id: directory_of(cluster, broker_id) for broker_id in broker_ids}
        return {
            b"".join(text for _, text in sorted(segments(directory).items()))
            for directory in found.values()
            if directory is not None
        }

    wait_until(lambda: len(contents()) == 1)


def test_a_replica_moves_to_another_broker_and_into_a_certain_directory(
    cluster: Cluster, reassign: Callable[..., str], tool: Tool
) -> None:
    cluster.create_topic("orders", [[1, 2]])
    produce(cluster, "orders", 3)

    def complete(replicas: dict[int, Path | None]) -> None:
        assert "Successfully started partition reassignment" in reassign(replicas, "--execute")
        done = ["orders-0 is completed"]
        done += [f"orders-0-{broker_id} completed" for broker_id, directory in replicas.items() if directory]
        wait_until(lambda: (verified := reassign(replicas, "--verify")) and all(text in verified for text in done))

    for target in cluster.broker(3).log_dirs:
        complete({3: target, 2: None})
        assert directory_of(cluster, 3) == target
        complete({1: None, 2: None})
    assert '"partition":"orders-0","size":' in tool("LogDirsCommand", "--describe", "--topic-list", "orders")


def test_a_replica_is_created_in_the_directory_that_was_chosen_before(
    cluster: Cluster, reassign: Callable[..., str]
) -> None:
    cluster.create_topic("orders", [[1, 2]])
    target = max(cluster.broker(3).log_dirs, key=lambda each: len(list(each.glob("*-*"))))  # not where it would be
    assert move(cluster, 3, "orders", target) == ErrorCode.REPLICA_NOT_AVAILABLE
    before = len(cluster.broker(3).log())
    reassign({3: None, 2: None}, "--execute")
    wait_until(lambda: "orders-0 is completed" in reassign({3: None, 2: None}, "--verify"))
    assert directory_of(cluster, 3) == target
    assert "Moving orders-0" not in cluster.broker(3).log()[before:]


def test_replicas_move_between_the_directories_of_their_brokers_while_clients_write(
    cluster: Cluster, reassign: Callable[..., str]
) -> None:
    cluster.create_topic("orders", [[1, 2, 3]])
    cluster.await_isr("orders", 0, {1, 2, 3})
    produce(cluster, "orders", ROLLS)
    targets: dict[int, Path | None] = {}
    for broker_id in (1, 2, 3):
        present = directory_of(cluster, broker_id)
        targets[broker_id] = next(each for each in cluster.broker(broker_id).log_dirs if each != present)
    reassign(targets, "--execute")
    produce(cluster, "orders", ROLLS)
    wait_until(lambda: "orders-0-3 completed successfully" in reassign(targets, "--verify"))
    wait_until(lambda: {broker_id: directory_of(cluster, broker_id) for broker_id in targets} == targets)
    await_equal_replicas(cluster, {1, 2, 3})


@pytest.mark.parametrize("leader", [1, 2])
def test_another_broker_leads_when_a_log_directory_fails(
    cluster: Cluster, reassign: Callable[..., str], tool: Tool, tmp_path: Path, leader: int
) -> None:
    """Broker 1 has its controller in the same process, broker 2 sends heartbeats to it."""
    other = 3 - leader
    failing = cluster.broker(leader).log_dirs[1]
    create_in(cluster, "orders", [leader, 3], failing, reassign)
    cluster.create_topic("payments", [[leader, other]])
    here = directory_of(cluster, leader, "payments")
    if here == failing:
        remaining = cluster.broker(leader).log_dirs[0]
        assert move(cluster, leader, "payments", remaining) == ErrorCode.NONE
        wait_until(lambda: directory_of(cluster, leader, "payments") == remaining)
    away = tmp_path / "away"
    away.mkdir()
    move_entries(failing, away)
    produce(cluster, "orders", ROLLS)  # the new segment cannot be created
    cluster.await_leader("orders", 0, 3)
    cluster.await_isr("orders", 0, {3})
    assert error_of(cluster, leader, failing) == ErrorCode.KAFKA_STORAGE_ERROR
    assert cluster.leader_of("payments") == leader
    produce(cluster, "payments", 1)
    assert "Topic: orders\tPartition: 0\tLeader: 3" in tool(
        "TopicCommand", "--describe", "--under-replicated-partitions"
    )
    cluster.stop(leader)
    move_entries(failing, tmp_path)  # what the server has created in the meantime
    move_entries(away, failing)
    cluster.start(leader)
    await_equal_replicas(cluster, {leader, 3})


def move_entries(source: Path, target: Path) -> None:
    """Move the files of a broker to another directory, without those of the other brokers, which are in a directory of
    the first broker's."""
    for entry in list(source.iterdir()):
        if entry.name != "brokers":
            shutil.move(entry, target)


def move(cluster: Cluster, broker_id: int, topic: str, directory: Path) -> int:
    """Let a broker move its replica. Returns the error code."""
    wanted = AlterReplicaLogDir(path=str(directory), topics=[AlterReplicaLogDirTopic(name=topic, partitions=[0])])
    with WireClient(cluster.broker(broker_id).address) as wire:
        (result,) = wire.call(AlterReplicaLogDirsRequest(dirs=[wanted])).results
    code: int = result.partitions[0].error_code
    return code


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_follower_whose_partition_directory_has_vanished_copies_it_again(cluster: Cluster, end: str) -> None:
    cluster.create_topic("orders", [[2, 3]])
    cluster.await_isr("orders", 0, {2, 3})
    produce(cluster, "orders", ROLLS)
    directory = directory_of(cluster, 3)
    assert directory is not None
    getattr(cluster, end)(3)
    shutil.rmtree(directory / "orders-0")
    produce(cluster, "orders", 1)
    cluster.start(3)
    assert directory_of(cluster, 3) == directory
    await_equal_replicas(cluster, {2, 3})


@pytest.mark.skipif(sys.platform != "linux", reason="limits the size of the files of another process")
def test_a_follower_with_a_full_disk_leaves_the_in_sync_set_until_there_is_space(cluster: Cluster) -> None:
    """A limit of the size of files has the effect of a full disk: a write is incomplete, and later ones fail."""
    cluster.create_topic("orders", [[2, 3]], config={"segment.bytes": 64 << 20})
    cluster.await_isr("orders", 0, {2, 3})
    produce(cluster, "orders", 1)
    unlimited = resource.prlimit(cluster.broker(3).pid, resource.RLIMIT_FSIZE)
    resource.prlimit(cluster.broker(3).pid, resource.RLIMIT_FSIZE, (SEGMENT_BYTES, unlimited[1]))
    produce(cluster, "orders", 3 * ROLLS)  # acknowledged when the in-sync set is smaller
    cluster.await_isr("orders", 0, {2})
    cluster.create_topic("payments", [[3, 2]])
    produce(cluster, "payments", 1)  # broker 3 leads what fits
    resource.prlimit(cluster.broker(3).pid, resource.RLIMIT_FSIZE, unlimited)
    await_equal_replicas(cluster, {2, 3})

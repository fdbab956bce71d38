"""Several log directories: their reported contents, and moves of replicas between them with Kafka's tools.

A dedicated server with three log directories.
"""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from moldau.compat_tests.conftest import OpenClient
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from moldau.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from moldau.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from moldau.protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from moldau.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from moldau.testing import Broker
from moldau.testing.apache_kafka import ApacheKafka
from moldau.testing.builders import batch, fetch, produce, values
from moldau.testing.clients.java import JavaClient, ToolResult
from moldau.testing.servers import Server
from moldau.testing.topic_requests import create_topic
from moldau.testing.waiting import wait_until
from moldau.testing.wire import WireClient

RECORDS_MAX = 100_000
BROKER = 4
SET = 0


@pytest.fixture(scope="module")
def directories(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    parent = tmp_path_factory.mktemp("disks")
    return [parent / name for name in ("a", "b", "c")]


@pytest.fixture(scope="module")
def jbod(new_server: Callable[..., AbstractContextManager[Server]], directories: list[Path]) -> Iterator[Server]:
    with new_server({"log.dirs": ",".join(map(str, directories))}) as started:
        yield started


@pytest.fixture
def wire(jbod: Server) -> Iterator[WireClient]:
    with WireClient(jbod.bootstrap_servers) as client:
        yield client


def replicas(wire: WireClient, topic: str) -> dict[tuple[str, bool], list[int]]:
    """(directory, is it a copy on its way) -> partition indexes."""
    found: dict[tuple[str, bool], list[int]] = {}
    for result in wire.call(DescribeLogDirsRequest(topics=None), 4).results:
        assert result.error_code == 0
        assert result.total_bytes >= result.usable_bytes > 0
        for reported in result.topics:
            for partition in reported.partitions if reported.name == topic else ():
                found.setdefault((result.log_dir, partition.is_future_key), []).append(partition.partition_index)
    return {place: sorted(indexes) for place, indexes in found.items()}


def alter(wire: WireClient, path: str, topic: str, partition: int = 0) -> int:
    moved = AlterReplicaLogDirTopic(name=topic, partitions=[partition])
    (result,) = wire.call(AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=[moved])]), 2).results
    code: int = result.partitions[0].error_code
    return code


def test_new_partitions_spread_over_the_directories(
    jbod: Server, wire: WireClient, topic_name: Callable[[], str], directories: list[Path]
) -> None:
    topic = topic_name()
    create_topic(jbod.bootstrap_servers, topic, partitions=6)
    found = replicas(wire, topic)
    assert {path for path, _future in found} == set(map(str, directories))
    assert sorted(index for indexes in found.values() for index in indexes) == list(range(6))


def test_only_the_requested_partitions(
    jbod: Server, wire: WireClient, topic_name: Callable[[], str], directories: list[Path]
) -> None:
    topic = topic_name()
    create_topic(jbod.bootstrap_servers, topic, partitions=3)
    requested = [
        DescribableLogDirTopic(topic=topic, partitions=[1, 7]),
        DescribableLogDirTopic(topic="?", partitions=[0]),
    ]
    results = wire.call(DescribeLogDirsRequest(topics=requested), 4).results
    assert sorted(result.log_dir for result in results) == sorted(map(str, directories))
    reported = [
        (t.name, p.partition_index, p.offset_lag) for result in results for t in result.topics for p in t.partitions
    ]
    assert reported == [(topic, 1, 0)]
    assert all(not result.topics for result in wire.call(DescribeLogDirsRequest(topics=[]), 4).results)


def test_replicas_that_cannot_be_moved(
    jbod: Server, wire: WireClient, topic_name: Callable[[], str], directories: list[Path]
) -> None:
    topic = topic_name()
    create_topic(jbod.bootstrap_servers, topic)
    assert alter(wire, "/nowhere", topic) == ErrorCode.LOG_DIR_NOT_FOUND
    for path in map(str, directories):
        assert alter(wire, path, topic, 7) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert alter(wire, path, topic_name()) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert alter(wire, path, "n" * 249) == ErrorCode.INVALID_TOPIC_EXCEPTION
    ((current, _),) = replicas(wire, topic)
    assert alter(wire, current, topic) == ErrorCode.NONE


def wait_moved(wire: WireClient, topic: str, path: str) -> None:
    wait_until(lambda: replicas(wire, topic) == {(path, False): [0]}, f"the replica is in {path} and nowhere else")


def set_cordoned(wire: WireClient, value: str) -> int:
    config = AlterableConfig(name="cordoned.log.dirs", config_operation=SET, value=value)
    resource = AlterConfigsResource(resource_type=BROKER, resource_name="1", configs=[config])
    (response,) = wire.call(IncrementalAlterConfigsRequest(resources=[resource])).responses
    code: int = response.error_code
    return code


def creation_error(wire: WireClient, topic: str, partitions: int, *, more: bool = False) -> int:
    """Create a topic, or give it more partitions."""
    if more:
        wanted = CreatePartitionsTopic(name=topic, count=partitions, assignments=None)
        (result,) = wire.call(CreatePartitionsRequest(topics=[wanted], timeout_ms=60_000)).results
        code: int = result.error_code
        return code
    created = CreatableTopic(name=topic, num_partitions=partitions, replication_factor=1)
    (created_result,) = wire.call(CreateTopicsRequest(topics=[created], timeout_ms=60_000)).topics
    return int(created_result.error_code)


def cordoned(wire: WireClient) -> set[str]:
    return {result.log_dir for result in wire.call(DescribeLogDirsRequest(topics=[]), 5).results if result.is_cordoned}


@pytest.fixture
def uncordoned(wire: WireClient) -> Iterator[None]:
    yield
    assert set_cordoned(wire, "") == ErrorCode.NONE
    wait_until(lambda: not cordoned(wire))


@pytest.mark.usefixtures("uncordoned")
def test_a_cordoned_directory_gets_no_replicas(
    wire: WireClient, topic_name: Callable[[], str], directories: list[Path]
) -> None:
    before, topic = topic_name(), topic_name()
    first, second, third = map(str, directories)
    assert creation_error(wire, before, 3) == ErrorCode.NONE
    assert set_cordoned(wire, f"{first},{second}") == ErrorCode.NONE
    wait_until(lambda: cordoned(wire) == {first, second})
    assert creation_error(wire, topic, 3) == ErrorCode.NONE
    wait_until(lambda: replicas(wire, topic) == {(third, False): [0, 1, 2]}, state=lambda: replicas(wire, topic))
    assert alter(wire, second, topic) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert alter(wire, first, before) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert len(replicas(wire, before)) == 3  # replicas stay in a cordoned directory
    assert set_cordoned(wire, second) == ErrorCode.NONE
    wait_until(lambda: cordoned(wire) == {second})
    assert alter(wire, first, topic) == ErrorCode.NONE
    moved = {(third, False): [1, 2], (first, False): [0]}
    wait_until(lambda: replicas(wire, topic) == moved, state=lambda: replicas(wire, topic))


@pytest.mark.usefixtures("uncordoned")
def test_no_partitions_are_created_if_all_directories_are_cordoned(
    wire: WireClient, topic_name: Callable[[], str], directories: list[Path]
) -> None:
    before, topic = topic_name(), topic_name()
    assert creation_error(wire, before, 1) == ErrorCode.NONE
    assert set_cordoned(wire, "*") == ErrorCode.NONE
    wait_until(lambda: cordoned(wire) == set(map(str, directories)))
    # The controller knows it with the next heartbeat.
    wait_until(lambda: creation_error(wire, topic_name(), 1) == ErrorCode.INVALID_REPLICATION_FACTOR)
    assert creation_error(wire, topic, 1) == ErrorCode.INVALID_REPLICATION_FACTOR
    assert creation_error(wire, before, 2, more=True) == ErrorCode.INVALID_REPLICATION_FACTOR
    assert set_cordoned(wire, str(directories[0])) == ErrorCode.NONE
    wait_until(lambda: creation_error(wire, topic, 1) == ErrorCode.NONE)
    wait_until(lambda: creation_error(wire, before, 2, more=True) == ErrorCode.NONE)


@pytest.mark.usefixtures("uncordoned")
def test_only_log_directories_can_be_cordoned(wire: WireClient, directories: list[Path]) -> None:
    for value in ("/nowhere", f"{directories[0]},/nowhere", f"*,{directories[0]}"):
        assert set_cordoned(wire, value) == ErrorCode.INVALID_REQUEST
    assert not cordoned(wire)


class Writer:
    """An idempotent producer with acks=all that runs until it is stopped; every record is acknowledged."""

    def __init__(self, jbod: Server, topic: str, producer_id: int) -> None:
        self.values: list[bytes] = []
        self.failure: BaseException | None = None
        self._server = jbod
        self._topic = topic
        self._producer_id = producer_id
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Writer":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(60)
        assert self.failure is None, self.failure

    def _run(self) -> None:
        try:
            with WireClient(self._server.bootstrap_servers) as wire:
                while not self._stop.is_set() and len(self.values) < RECORDS_MAX:
                    value = b"%d" % len(self.values) * 50
                    data = batch(value, producer_id=self._producer_id, producer_epoch=0, base_sequence=len(self.values))
                    answer = produce(wire, self._topic, data, acks=-1)
                    assert (answer.error_code, answer.base_offset) == (0, len(self.values))
                    self.values.append(value)
        except BaseException as failure:  # noqa: BLE001 - raised at the end
            self.failure = failure


def everything(wire: WireClient, topic: str) -> list[bytes | None]:
    found: list[bytes | None] = []
    while more := values(fetch(wire, topic, offset=len(found))):
        found += more
    return found


Tool = Callable[..., ToolResult]


@pytest.fixture
def tool(client_of: OpenClient, jbod: Server) -> Tool:
    java = client_of("java")
    assert isinstance(java, JavaClient)

    def run(name: str, *arguments: str) -> ToolResult:
        arguments = ("--bootstrap-server", jbod.bootstrap_servers, *arguments)
        result = java.tool(f"org.apache.kafka.tools.{name}", list(arguments))
        assert result.exit_code == 0, result
        return result

    return run


def test_kafka_reassign_partitions_moves_a_replica_that_is_written_to(
    jbod: Server, wire: WireClient, tool: Tool, topic_name: Callable[[], str], directories: list[Path], tmp_path: Path
) -> None:
    topic = topic_name()
    create_topic(jbod.bootstrap_servers, topic, configs={"segment.bytes": "1048576"})
    broker_id = 1
    file = tmp_path / "plan.json"
    with Writer(jbod, topic, producer_id=77_000) as writer:
        ((current, _),) = replicas(wire, topic)
        for path in [*(path for path in map(str, directories) if path != current), current]:
            plan = {"topic": topic, "partition": 0, "replicas": [broker_id], "log_dirs": [path]}
            file.write_text(json.dumps({"version": 1, "partitions": [plan]}))
            plan_file = ("--reassignment-json-file", str(file))
            done = tool("reassign.ReassignPartitionsCommand", *plan_file, "--execute")
            assert f"Successfully started moving log directory to {path}" in done.stdout, done
            wait_moved(wire, topic, path)
            verified = tool("reassign.ReassignPartitionsCommand", *plan_file, "--verify")
            assert "completed successfully" in verified.stdout, verified
            reported = directories_of(tool("LogDirsCommand", "--describe", "--topic-list", topic))
            assert {each: [p["partition"] for p in found] for each, found in reported.items() if found} == {
                path: [f"{topic}-0"]
            }
            (described,) = reported[path]
            assert described["isFuture"] is False
            assert described["offsetLag"] == 0
            assert described["size"] > 0
    assert everything(wire, topic) == writer.values
    jbod.restart()
    with WireClient(jbod.bootstrap_servers) as again:
        assert everything(again, topic) == writer.values
        assert replicas(again, topic) == {(path, False): [0]}


def directories_of(result: ToolResult) -> dict[str, list[dict[str, Any]]]:
    (broker,) = json.loads(next(line for line in result.stdout.splitlines() if line.startswith("{")))["brokers"]
    return {directory["logDir"]: directory["partitions"] for directory in broker["logDirs"]}


def set_rate(wire: WireClient, rate: int) -> None:
    """Of moves, in bytes per second."""
    config = AlterableConfig(
        name="replica.alter.log.dirs.io.max.bytes.per.second", config_operation=SET, value=str(rate)
    )
    resource = AlterConfigsResource(resource_type=BROKER, resource_name="", configs=[config])
    (answer,) = wire.call(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
    assert answer.error_code == 0, answer


def begin_move(wire: WireClient, topic: str, path: str) -> None:
    """So slowly that the server is killed first."""
    set_rate(wire, 100_000)
    wait_until(lambda: alter(wire, path, topic) == ErrorCode.NONE, "the move is taken")
    wait_until(lambda: (path, True) in replicas(wire, topic), "the move is shown")


@pytest.mark.slow
@pytest.mark.parametrize(
    "kill", [pytest.param(True, id="kill"), pytest.param(False, id="stop", marks=pytest.mark.full)]
)
@pytest.mark.usefixtures("both_servers")
def test_each_server_continues_the_moves_of_the_other(
    kill: bool, topic_name: Callable[[], str], tmp_path: Path
) -> None:
    topic = topic_name()
    config = {"log.dirs": f"{tmp_path / 'a'},{tmp_path / 'b'}", "node.id": "1"}
    records: list[bytes | None] = [b"%d" % number + b"x" * 100_000 for number in range(50)]
    with Broker(config=config) as moldau:
        create_topic(moldau.bootstrap_servers, topic)
        with WireClient(moldau.bootstrap_servers) as wire:
            for record in records:
                assert produce(wire, topic, batch(record), acks=-1).error_code == 0
            ((source, _),) = replicas(wire, topic)
            (target,) = {str(tmp_path / name) for name in ("a", "b")} - {source}
            begin_move(wire, topic, target)
        if kill:
            moldau.kill()
    with ApacheKafka(config, data_dir=tmp_path / "a") as apache, WireClient(apache.bootstrap_servers) as wire:
        set_rate(wire, 1 << 40)
        wait_moved(wire, topic, target)
        assert everything(wire, topic) == records
        begin_move(wire, topic, source)
        if kill:
            apache.kill()
    with Broker(config=config) as moldau, WireClient(moldau.bootstrap_servers) as wire:
        set_rate(wire, 1 << 40)
        wait_moved(wire, topic, source)
        assert everything(wire, topic) == records

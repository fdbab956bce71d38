"""A Moldau broker joins a cluster whose controller is Apache Kafka's.

The controller's process is also a broker (node 1). Moldau is node 2.
"""

import itertools
import json
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from moldau.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from moldau.protocol.messages.describe_cluster import DescribeClusterRequest
from moldau.protocol.messages.describe_quorum import DescribeQuorumRequest, PartitionData, TopicData
from moldau.protocol.messages.init_producer_id import InitProducerIdRequest
from moldau.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from moldau.server.cluster.membership import clock_problem
from moldau.testing import Broker, BrokerError
from moldau.testing.apache_kafka import ApacheKafka, free_ports, new_id
from moldau.testing.clients import open_client
from moldau.testing.clients.java import JavaClient, ToolResult
from moldau.testing.joined_brokers import format_directory, joined_broker
from moldau.testing.waiting import wait_until
from moldau.testing.wire import WireClient

from .conftest import RunningServer

NODE = 2
_numbers = itertools.count()


@pytest.fixture(scope="module")
def apache() -> Iterator[ApacheKafka]:
    with ApacheKafka() as kafka:
        yield kafka


def properties_of(path: Path) -> dict[str, str]:
    lines = path.read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))


def joining(apache: ApacheKafka, directory: Path, **config: str) -> Broker:
    return joined_broker(directory, NODE, {"controller.quorum.bootstrap.servers": apache.controllers}, **config)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The log directory of Moldau's broker."""
    return tmp_path_factory.mktemp("joined") / "data"


@pytest.fixture(scope="module")
def broker(apache: ApacheKafka, directory: Path) -> Iterator[Broker]:
    format_directory(apache.cluster_id, directory, NODE)
    with joining(apache, directory) as started:
        yield started


@pytest.fixture
def topic(apache: ApacheKafka, broker: Broker) -> str:
    """A new topic whose only replica is on Moldau, created through Apache Kafka's broker."""
    name = f"topic-{next(_numbers)}"
    create_on(apache.bootstrap_servers, name)
    with WireClient(broker.bootstrap_servers) as wire:
        wait_until(lambda: name in topics(wire))
    return name


def create_on(address: str, name: str) -> None:
    assignment = CreatableReplicaAssignment(partition_index=0, broker_ids=[NODE])
    requested = CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=[assignment])
    with WireClient(address) as wire:
        response = wire.call(CreateTopicsRequest(topics=[requested], timeout_ms=20_000))
    assert [result.error_code for result in response.topics] == [ErrorCode.NONE], response


def topics(wire: WireClient) -> dict[str, int]:
    """The leader of partition 0, by topic."""
    response = wire.call(MetadataRequest(topics=None))
    return {topic.name: topic.partitions[0].leader_id for topic in response.topics if topic.partitions}


def wait_for_leader(apache: ApacheKafka, topic: str, leader: int) -> None:
    with WireClient(apache.bootstrap_servers) as wire:
        wait_until(lambda: topics(wire)[topic] == leader)


def test_both_brokers_see_each_other(apache: ApacheKafka, broker: Broker) -> None:
    for address in (apache.bootstrap_servers, broker.bootstrap_servers):
        with WireClient(address) as wire:
            assert sorted(each.broker_id for each in wire.call(DescribeClusterRequest()).brokers) == [1, NODE]


def test_a_topic_on_this_broker_is_written_and_read(broker: Broker, topic: str) -> None:
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers, acks="all")
    sent = [producer.send(topic, str(number).encode(), partition=0) for number in range(100)]
    assert [each.get(timeout=120).offset for each in sent] == list(range(100))
    producer.close()
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest")
    consumer.assign([TopicPartition(topic, 0)])
    consumer.seek_to_beginning()
    values = [int(next(consumer).value) for _ in range(100)]
    consumer.close()
    assert values == list(range(100))


def test_requests_for_the_controller_are_forwarded(apache: ApacheKafka, broker: Broker) -> None:
    name = f"topic-{next(_numbers)}"
    create_on(broker.bootstrap_servers, name)
    with WireClient(broker.bootstrap_servers) as wire, WireClient(apache.bootstrap_servers) as other:
        assert topics(wire)[name] == NODE  # the response came after the change was applied
        deleted = wire.call(DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=20_000))
        assert [each.error_code for each in deleted.responses] == [ErrorCode.NONE]
        wait_until(lambda: name not in topics(wire) and name not in topics(other))


def test_the_quorum_lists_this_broker_as_an_observer(broker: Broker) -> None:
    metadata_log = TopicData(topic_name="__cluster_metadata", partitions=[PartitionData(partition_index=0)])
    with WireClient(broker.bootstrap_servers) as wire:
        response = wire.call(DescribeQuorumRequest(topics=[metadata_log]))
    (partition,) = response.topics[0].partitions
    assert partition.leader_id == 1
    assert NODE in [observer.replica_id for observer in partition.observers]


def producer_id(wire: WireClient, request: InitProducerIdRequest) -> int:
    """Waits until the broker has a block of producer ids."""

    def allocated() -> int | None:
        response = wire.call(request)
        return None if response.error_code else response.producer_id

    return wait_until(allocated)


def test_producer_ids_come_from_the_controller(apache: ApacheKafka, broker: Broker) -> None:
    ids = []
    for address in (apache.bootstrap_servers, broker.bootstrap_servers):
        with WireClient(address) as wire:
            request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
            ids.append(producer_id(wire, request))
    assert ids[0] // 1000 != ids[1] // 1000


def test_a_missing_topic_is_created_on_demand(broker: Broker) -> None:
    name = f"topic-{next(_numbers)}"
    with WireClient(broker.bootstrap_servers) as wire:
        response = wire.call(MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=True))
        assert [each.error_code for each in response.topics] == [ErrorCode.NONE]


def test_data_and_leadership_survive_restarts(apache: ApacheKafka, broker: Broker, topic: str) -> None:
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers, acks="all")
    producer.send(topic, b"before", partition=0).get(timeout=120)
    producer.close()
    for stop in (broker.stop, broker.kill):
        stop()
        wait_for_leader(apache, topic, -1)
        broker.start()
        wait_for_leader(apache, topic, NODE)
        consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap_servers)
        consumer.assign([TopicPartition(topic, 0)])
        consumer.seek_to_beginning()
        assert next(consumer).value == b"before"
        consumer.close()


@pytest.mark.slow
@pytest.mark.parametrize("leader", [1, pytest.param(NODE, marks=pytest.mark.full)])
def test_replicas_of_both_brokers_are_in_sync_and_equal(
    apache: ApacheKafka, broker: Broker, directory: Path, leader: int
) -> None:
    name = f"topic-{next(_numbers)}"
    assignment = CreatableReplicaAssignment(partition_index=0, broker_ids=[leader, 3 - leader])
    requested = CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=[assignment])
    with WireClient(apache.bootstrap_servers) as apache_wire, WireClient(broker.bootstrap_servers) as wire:
        response = apache_wire.call(CreateTopicsRequest(topics=[requested], timeout_ms=20_000))
        assert [result.error_code for result in response.topics] == [ErrorCode.NONE], response
        wait_until(lambda: topics(wire).get(name) == topics(apache_wire).get(name) == leader)
        producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers, acks="all", retries=10_000)
        sent = [producer.send(name, str(number).encode(), partition=0) for number in range(50)]
        assert [each.get(timeout=60).offset for each in sent] == list(range(50))
        logs = [path / f"{name}-0" / "00000000000000000000.log" for path in (apache.data_dir, directory)]
        assert logs[0].read_bytes() == logs[1].read_bytes()
        broker.kill()
        wait_until(lambda: in_sync(apache_wire, name) == {1})
        assert topics(apache_wire)[name] == 1
        assert producer.send(name, b"meanwhile", partition=0).get(timeout=60).offset == 50
        broker.start()
        wait_until(lambda: in_sync(apache_wire, name) == {1, NODE})
        assert producer.send(name, b"after", partition=0).get(timeout=60).offset == 51
        producer.close()
        assert logs[0].read_bytes() == logs[1].read_bytes()


def in_sync(wire: WireClient, topic: str) -> set[int]:
    response = wire.call(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]))
    return set(response.topics[0].partitions[0].isr_nodes)


def test_another_cluster_is_refused(apache: ApacheKafka, tmp_path: Path) -> None:
    format_directory(new_id(), tmp_path / "data", NODE)
    with pytest.raises(BrokerError, match="belongs to another cluster"):
        joining(apache, tmp_path / "data").start()


def test_a_directory_that_is_not_formatted_is_refused(apache: ApacheKafka, tmp_path: Path) -> None:
    with pytest.raises(BrokerError, match="is not formatted"):
        joining(apache, tmp_path / "data").start()
    assert not (tmp_path / "data" / "meta.properties").exists()


# Invalid input


def refused(apache: ApacheKafka, directory: Path, **config: str) -> str:
    """The message of a broker that cannot join."""
    settings = {"initial.broker.registration.timeout.ms": "1500"} | {
        name.replace("_", "."): value for name, value in config.items()
    }
    with pytest.raises(BrokerError) as failure:
        joining(apache, directory, **settings).start()
    return str(failure.value)


def test_a_listener_of_a_broker_is_not_a_controller(apache: ApacheKafka, tmp_path: Path) -> None:
    format_directory(apache.cluster_id, tmp_path / "data", NODE)
    address = apache.bootstrap_servers
    message = refused(apache, tmp_path / "data", controller_quorum_bootstrap_servers=address)
    assert "no controller is known" in message
    assert "not a listener of a controller" in message
    assert f"Check that the controllers run at {address} (controller.quorum.bootstrap.servers)" in message


def test_controllers_that_cannot_be_reached_are_named(apache: ApacheKafka, tmp_path: Path) -> None:
    format_directory(apache.cluster_id, tmp_path / "data", NODE)
    address = f"127.0.0.1:{free_ports(1)[0]}"
    message = refused(apache, tmp_path / "data", controller_quorum_bootstrap_servers=address)
    assert f"{address} " in message
    assert "Connection refused" in message
    assert "initial.broker.registration.timeout.ms" in message


def test_a_node_id_in_use_is_refused(apache: ApacheKafka, broker: Broker, tmp_path: Path) -> None:
    format_directory(apache.cluster_id, tmp_path / "data", NODE)
    message = refused(apache, tmp_path / "data")
    assert f"Broker {NODE} is registered, and its session has not expired (DUPLICATE_BROKER_REGISTRATION)" in message
    with WireClient(broker.bootstrap_servers) as wire:
        assert len(wire.call(DescribeClusterRequest()).brokers) == 2  # the broker that was there first still runs


def test_two_processes_do_not_share_a_directory(apache: ApacheKafka, broker: Broker) -> None:
    assert f"{broker.data_dir} is in use" in refused(apache, broker.data_dir)


def test_the_directory_of_a_controller_is_not_that_of_a_broker(apache: ApacheKafka, tmp_path: Path) -> None:
    directory = tmp_path / "data"
    with Broker(config={"node.id": NODE}, data_dir=directory):
        pass
    properties = directory / "meta.properties"
    own, cluster_id = properties_of(properties)["cluster.id"], properties_of(apache.data_dir / "meta.properties")
    properties.write_text(properties.read_text().replace(own, cluster_id["cluster.id"]))
    assert "is the log of a controller with this node.id, and not a copy" in refused(apache, directory)


@pytest.mark.parametrize(
    ("ahead_ms", "words"), [(3_600_000, "3600 s ahead of"), (-61_000, "61 s behind"), (59_000, None), (-59_000, None)]
)
def test_a_clock_that_differs_from_the_controller_is_noticed(ahead_ms: int, words: str | None) -> None:
    now_ms = 1_700_000_000_000
    problem = clock_problem(now_ms + ahead_ms, now_ms)
    assert problem is None if words is None else words in (problem or "")


# Apache Kafka's tools


@pytest.fixture(scope="module")
def java(apache: ApacheKafka, broker: Broker) -> Iterator[JavaClient]:
    """Runs the tools, all in one JVM."""
    with open_client("java", broker.bootstrap_servers) as client:
        assert isinstance(client, JavaClient)
        yield client


@pytest.fixture(params=["moldau", "apache"])
def tool(
    request: pytest.FixtureRequest, java: JavaClient, apache: ApacheKafka, broker: Broker
) -> Callable[..., ToolResult]:
    """Runs a tool against one of the brokers, which must describe the other one, too."""
    address = broker.bootstrap_servers if request.param == "moldau" else apache.bootstrap_servers

    def run(name: str, *arguments: str) -> ToolResult:
        server = ["--bootstrap-server", address]
        # The option follows a command of ClusterTool; elsewhere it precedes the command.
        full = [*arguments, *server] if name == "ClusterTool" else [*server, *arguments]
        result = java.tool(name if name.startswith("kafka.") else f"org.apache.kafka.tools.{name}", full)
        assert result.exit_code == 0, result
        return result

    return run


def test_kafka_cluster_lists_both_brokers(tool: Callable[..., ToolResult], apache: ApacheKafka, broker: Broker) -> None:
    assert apache.cluster_id in tool("ClusterTool", "cluster-id").stdout
    rows = [line.split() for line in tool("ClusterTool", "list-endpoints").stdout.splitlines()[1:]]
    expected = {1: apache.bootstrap_servers, NODE: broker.bootstrap_servers}
    assert {int(row[0]): f"{row[1]}:{row[2]}" for row in rows} == expected
    assert {tuple(row[4:6]) for row in rows} == {("unfenced", "broker")}


def test_kafka_metadata_quorum_lists_this_broker_without_a_lag(tool: Callable[..., ToolResult]) -> None:
    rows = [line.split() for line in tool("MetadataQuorumCommand", "describe", "--replication").stdout.splitlines()]
    replicas = {row[0]: row for row in rows if row and row[0].isdigit()}
    assert {node: row[-1] for node, row in replicas.items()} == {"1": "Leader", str(NODE): "Observer"}
    assert int(replicas[str(NODE)][2]) > 0
    status = tool("MetadataQuorumCommand", "describe", "--status").stdout
    assert re.search(rf'CurrentObservers:\s+\[{{"id": {NODE}, ', status), status


def test_kafka_features_describes_the_finalized_features(tool: Callable[..., ToolResult]) -> None:
    described = tool("FeatureCommand", "describe").stdout
    for feature, level in (("metadata.version", "4.3-IV0"), ("group.version", "1"), ("transaction.version", "2")):
        assert re.search(rf"Feature: {feature}\s.*FinalizedVersionLevel: {level}\s", described), described


def test_kafka_topics_shows_where_partitions_are(tool: Callable[..., ToolResult], topic: str) -> None:
    described = tool("TopicCommand", "--describe", "--topic", topic).stdout
    assert re.search(rf"Partition: 0\s+Leader: {NODE}\s+Replicas: {NODE}\s+Isr: {NODE}\s", described), described


def test_kafka_log_dirs_describes_this_broker(tool: Callable[..., ToolResult], topic: str, broker: Broker) -> None:
    output = tool("LogDirsCommand", "--describe", "--broker-list", f"1,{NODE}", "--topic-list", topic).stdout
    brokers = {each["broker"]: each["logDirs"] for each in json.loads(output.splitlines()[-1])["brokers"]}
    assert brokers.keys() == {1, NODE}
    (directory,) = brokers[NODE]
    assert directory["logDir"] == str(broker.data_dir)
    assert [each["partition"] for each in directory["partitions"]] == [f"{topic}-0"]
    assert not any(each["partitions"] for each in brokers[1])


def test_kafka_configs_changes_topics_and_brokers(tool: Callable[..., ToolResult], topic: str, broker: Broker) -> None:
    kafka_configs = "kafka.admin.ConfigCommand"
    tool(kafka_configs, "--alter", "--entity-type", "topics", "--entity-name", topic, "--add-config", "retention.ms=7")
    described = partial(tool, kafka_configs, "--describe", "--entity-type", "topics", "--entity-name", topic)
    wait_until(lambda: "retention.ms=7" in described().stdout)
    name = ("--entity-type", "brokers", "--entity-name", str(NODE))
    tool(kafka_configs, "--alter", *name, "--add-config", "log.cleaner.backoff.ms=12345")
    wait_until(lambda: "log.cleaner.backoff.ms=12345" in tool(kafka_configs, "--describe", *name).stdout)
    tool(kafka_configs, "--alter", *name, "--delete-config", "log.cleaner.backoff.ms")


# Another broker, which the controller still lists as an observer when it has stopped: after the other tests


def test_replicas_are_assigned_to_directories_of_which_one_fails(apache: ApacheKafka, tmp_path: Path) -> None:
    """The broker chooses the directories and reports them. The controller removes the leaders in the failed one."""
    directories = [tmp_path / "a", tmp_path / "b"]
    for directory in directories:
        format_directory(apache.cluster_id, directory, NODE + 1)
    settings = {
        "process.roles": "broker",
        "node.id": str(NODE + 1),
        "controller.quorum.bootstrap.servers": apache.controllers,
        "broker.heartbeat.interval.ms": "500",
    }
    server = RunningServer(directories, settings).start()
    try:
        name = f"topic-{next(_numbers)}"
        assignments = [CreatableReplicaAssignment(partition_index=index, broker_ids=[NODE + 1]) for index in range(4)]
        requested = CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=assignments)
        with WireClient(apache.bootstrap_servers) as wire:
            wire.call(CreateTopicsRequest(topics=[requested], timeout_ms=20_000))
            wait_until(lambda: set(leaders(wire, name).values()) == {NODE + 1})
            broker = server.broker
            manager = broker.log_manager
            ids = {str(directory.path): directory.directory_id for directory in manager.directories}

            def assigned() -> dict[int, bytes]:
                topic = broker.metadata.image.topics_by_name.get(name)
                partitions = topic.partitions if topic is not None else {}  # it may have caught up later
                return {index: registration.directory(NODE + 1) for index, registration in partitions.items()}

            wait_until(lambda: sorted(server.call(assigned).values()) == sorted([*ids.values()] * 2))
            failed = next(each for each in manager.directories if each.directory_id == ids[str(directories[1])])
            gone = {
                index for index, directory_id in server.call(assigned).items() if directory_id == failed.directory_id
            }
            server.call(lambda: manager.directory_failed(failed, OSError(5, "Input/output error")))
            expected = {index: -1 if index in gone else NODE + 1 for index in range(4)}
            wait_until(lambda: leaders(wire, name) == expected)
    finally:
        server.stop()


def leaders(wire: WireClient, topic: str) -> dict[int, int]:
    response = wire.call(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]))
    return {partition.partition_index: partition.leader_id for partition in response.topics[0].partitions}

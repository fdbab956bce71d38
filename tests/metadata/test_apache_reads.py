"""Apache Kafka reads the metadata of Moldau: its tools print it, and its server continues where Moldau stopped."""

import json
import re
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

from moldau.config.broker_config import BrokerConfig, StaticValue
from moldau.log.files import RealFileSystem
from moldau.log.manager import LogManager
from moldau.metadata.quorum import Endpoint, Metadata
from moldau.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from moldau.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from moldau.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from moldau.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from moldau.protocol.messages.describe_quorum import DescribeQuorumRequest, PartitionData, TopicData
from moldau.protocol.messages.metadata import MetadataRequest
from moldau.protocol.uuid import uuid_from_str, uuid_to_str
from moldau.testing import jvm, requirements
from moldau.testing.apache_kafka import ApacheKafka
from moldau.testing.wire import WireClient

from .lookups import partition_of

NOW = 1_700_000_000_000


class Node:
    """A Moldau node on a data directory: its lock, `meta.properties`, and the metadata."""

    def __init__(self, directory: Path, *, port: int = 9092, controller_port: int = 9093, **settings: int) -> None:
        self._directory = str(directory)
        self._settings = {name.replace("_", "."): StaticValue(str(value), "test") for name, value in settings.items()}
        self._port, self._controller_port = port, controller_port

    def __enter__(self) -> Metadata:
        file_system = RealFileSystem()
        self._manager = LogManager([self._directory], node_id=1, file_system=file_system)
        self._manager.open()
        self._metadata = Metadata.open(
            file_system,
            self._directory,
            BrokerConfig(self._settings),
            node_id=1,
            cluster_id=self._manager.cluster_id,
            directory_ids=[directory.directory_id for directory in self._manager.directories],
            listeners=[Endpoint("PLAINTEXT", "127.0.0.1", self._port)],
            controller_endpoint=Endpoint("CONTROLLER", "127.0.0.1", self._controller_port),
            now_ms=NOW,
        )
        return self._metadata

    def __exit__(self, *exception: object) -> None:
        self._metadata.close(NOW)
        self._manager.close(now_ms=NOW)


def create(metadata: Metadata, name: str, partitions: int = 1, **configs: str) -> None:
    topic = CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=1,
        configs=[CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()],
    )
    response = metadata.request(CreateTopicsRequest(topics=[topic]), now_ms=NOW)
    assert response.topics[0].error_code == 0


def allocate_producer_ids(metadata: Metadata) -> AllocateProducerIdsResponse:
    request = AllocateProducerIdsRequest(broker_id=1, broker_epoch=metadata.broker_epoch)
    response: AllocateProducerIdsResponse = metadata.request(request, now_ms=NOW)
    return response


def run_tool(name: str, *arguments: str) -> str:
    command = jvm.command(name, *arguments, options=["-Dorg.slf4j.simpleLogger.defaultLogLevel=error"])
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "xception" not in done.stdout + done.stderr
    return done.stdout


def dump(*paths: Path) -> list[dict[str, Any]]:
    """The records that DumpLogSegments prints. Every printed batch is checked."""
    files = ",".join(str(path) for path in paths)
    output = run_tool("org.apache.kafka.tools.DumpLogSegments", "--cluster-metadata-decoder", "--files", files)
    records = []
    for line in output.splitlines():
        if line.startswith("baseOffset"):
            assert "isvalid: true" in line
        payload = re.search(r"payload: (\{.*\})", line)
        control = re.search(r"\b(LeaderChange|KRaftVersion|KRaftVoters|SnapshotHeader|SnapshotFooter):? (\{.*\})", line)
        if payload:
            records.append(json.loads(payload[1]))
        elif control:
            records.append({"type": control[1], "data": json.loads(control[2])})
        else:
            assert not line.startswith("|"), line
    return records


def test_the_tools_of_apache_kafka_print_the_written_records(tmp_path: Path) -> None:
    requirements.require_kafka_jars()
    with Node(tmp_path) as metadata:
        create(metadata, "alpha", 3, retention_ms="5000")
        create(metadata, "beta")
        allocate_producer_ids(metadata)
        metadata.request(DeleteTopicsRequest(topics=[DeleteTopicState(name="beta")]), now_ms=NOW)
        alpha, cluster_id = metadata.image.topics_by_name["alpha"], metadata.cluster_id
        directory_id = metadata.image.brokers[1].directories[0]
        start_count = metadata.image.offset
    log = tmp_path / "__cluster_metadata-0"
    records = dump(log / f"{0:020d}.log")
    assert Counter(record["type"] for record in records) == {
        "LeaderChange": 1,
        "KRaftVersion": 1,
        "KRaftVoters": 1,
        "BEGIN_TRANSACTION_RECORD": 1,
        "FEATURE_LEVEL_RECORD": 3,
        "END_TRANSACTION_RECORD": 1,
        "REGISTER_CONTROLLER_RECORD": 1,
        "REGISTER_BROKER_RECORD": 1,
        "BROKER_REGISTRATION_CHANGE_RECORD": 4,
        "TOPIC_RECORD": 2,
        "CONFIG_RECORD": 1,
        "PARTITION_RECORD": 4,
        "PRODUCER_IDS_RECORD": 1,
        "REMOVE_TOPIC_RECORD": 1,
        "PARTITION_CHANGE_RECORD": 3,
    }
    assert len(records) == start_count + 1 + 5  # the controlled shutdown, three partitions, the fence
    (partition, *_) = (record for record in records if record["type"] == "PARTITION_RECORD")
    assert partition == {
        "type": "PARTITION_RECORD",
        "version": 2,
        "data": {
            "partitionId": 0,
            "topicId": uuid_to_str(alpha.topic_id),
            "replicas": [1],
            "isr": [1],
            "removingReplicas": [],
            "addingReplicas": [],
            "leader": 1,
            "leaderEpoch": 0,
            "partitionEpoch": 0,
            "directories": [uuid_to_str(directory_id)],
        },
    }
    header, version, voters, footer = dump(log / f"{0:020d}-{0:010d}.checkpoint")
    assert (header["type"], footer["type"]) == ("SnapshotHeader", "SnapshotFooter")
    assert version["data"]["kRaftVersion"] == 1
    assert voters["data"]["voters"][0]["voterDirectoryId"] == uuid_to_str(directory_id)
    bootstrap = dump(tmp_path / "bootstrap.checkpoint")
    assert [record["type"] for record in bootstrap] == [
        "SnapshotHeader",
        *["FEATURE_LEVEL_RECORD"] * 3,
        "SnapshotFooter",
    ]

    with Node(tmp_path) as metadata:
        metadata.write_snapshot(NOW)
    _, snapshot = sorted(log.glob("*.checkpoint"))
    kinds = Counter(record["type"] for record in dump(snapshot))
    assert kinds["PARTITION_RECORD"] == 3
    assert kinds["KRaftVoters"] == kinds["REGISTER_BROKER_RECORD"] == kinds["CONFIG_RECORD"] == 1

    properties = tmp_path / "server.properties"
    settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": "127.0.0.1:9093",
        "log.dirs": str(tmp_path),
    }
    properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    output = run_tool("kafka.tools.StorageTool", "info", "-c", str(properties))
    assert f"cluster.id={cluster_id}" in output
    assert f"directory.id={uuid_to_str(directory_id)}" in output


class ApacheKafkaOnOurDirectory(ApacheKafka):
    """Apache Kafka on a directory that it did not format."""

    def _format(self, controller_port: int) -> None:
        listeners = dict(re.findall(r"(\w+)://127\.0\.0\.1:(\d+)", self.properties.read_text()))
        self.node = Node(
            self.data_dir,
            port=int(listeners["PLAINTEXT"]),
            controller_port=int(listeners["CONTROLLER"]),
            metadata_max_retention_bytes=0,
        )
        with self.node as metadata:
            create(metadata, "alpha", 3, retention_ms="5000", cleanup_policy="compact")
            metadata.write_snapshot(NOW)
            create(metadata, "a.b")
            allocate_producer_ids(metadata)
            self.image = metadata.image
        with self.node as metadata:  # a second run, so that it finds partitions that had no leader in between
            metadata.write_snapshot(NOW)
            assert len(metadata.clean(NOW)) == 2  # the log starts at the last snapshot
            create(metadata, "gamma")


def test_apache_kafka_and_moldau_continue_each_others_metadata() -> None:
    with ApacheKafkaOnOurDirectory() as server:
        with WireClient(server.bootstrap_servers) as client:
            found = client.call(MetadataRequest(topics=None), 12)
            assert found.cluster_id == server.image.cluster_id
            topics = {topic.name: topic for topic in found.topics}
            assert set(topics) == {"alpha", "a.b", "gamma"}
            assert topics["alpha"].topic_id == server.image.topics_by_name["alpha"].topic_id
            assert {(p.partition_index, p.leader_id, p.error_code) for p in topics["alpha"].partitions} == {
                (index, 1, 0) for index in range(3)
            }
            # Increased after Moldau's first shutdown, at its second startup, after its second shutdown, and at Apache
            # Kafka's startup.
            assert {partition.leader_epoch for partition in topics["alpha"].partitions} == {4}
            requested = [DescribeConfigsResource(resource_type=2, resource_name="alpha", configuration_keys=None)]
            (described,) = client.call(DescribeConfigsRequest(resources=requested), 4).results
            configs = {config.name: (config.value, config.config_source) for config in described.configs}
            assert configs["retention.ms"] == ("5000", 1)
            assert configs["cleanup.policy"] == ("compact", 1)
            partitions = [TopicData(topic_name="__cluster_metadata", partitions=[PartitionData(partition_index=0)])]
            described_quorum = client.call(DescribeQuorumRequest(topics=partitions), 2).topics[0].partitions[0]
            assert described_quorum.leader_epoch == 3
            wanted = CreatableTopic(name="by-apache", num_partitions=2, replication_factor=1)
            created = client.call(CreateTopicsRequest(topics=[wanted]), 7).topics[0]
            assert created.error_code == 0
        server.stop()
        with server.node as metadata:
            assert set(metadata.image.topics_by_name) == {"alpha", "a.b", "gamma", "by-apache"}
            assert metadata.image.topics_by_name["by-apache"].topic_id == created.topic_id
            assert partition_of(metadata.image, "by-apache", 1).leader == 1
            assert partition_of(metadata.image, "alpha", 0).leader_epoch == 6
            assert metadata.image.epoch == 4
            assert metadata.repairs == []
            assert allocate_producer_ids(metadata).producer_id_start >= 1000


def test_directories_formatted_by_apache_kafka_are_read() -> None:
    with ApacheKafka() as server:
        with WireClient(server.bootstrap_servers) as client:
            wanted = CreatableTopic(name="by-apache", num_partitions=2, replication_factor=1)
            topic_id = client.call(CreateTopicsRequest(topics=[wanted]), 7).topics[0].topic_id
        for stop in (server.stop, server.kill):
            stop()
            with Node(server.data_dir) as metadata:
                assert metadata.image.topics_by_name["by-apache"].topic_id == topic_id
                assert {p.leader for p in metadata.image.topics_by_name["by-apache"].partitions.values()} == {1}
                assert metadata.image.features["eligible.leader.replicas.version"] == 1
                levels = {"metadata.version": 30, "kraft.version": 1, "group.version": 1, "transaction.version": 2}
                levels["eligible.leader.replicas.version"] = 1
                assert metadata.finalized_features == levels
                properties = (server.data_dir / "meta.properties").read_text()
                (directory_id,) = re.findall(r"directory.id=(\S+)", properties)
                assert metadata.image.brokers[1].directories == (uuid_from_str(directory_id),)
            if stop == server.stop:
                server.start()

"""Kafka's own command-line tools against the server under test.

They run in the JVM of the Java client, because starting a JVM for each takes longer than what it does. Consumer groups
are not tested here: the console consumer gets a fixed partition.
"""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from moldau.compat_tests.conftest import MakeTopic, OpenClient
from moldau.compat_tests.scenarios import KEEP, T0, numbered
from moldau.testing.client import Record
from moldau.testing.clients.java import JavaClient, ToolResult
from moldau.testing.topic_requests import wait_for_no_topic, wait_for_topic
from moldau.testing.waiting import wait_until

Tool = Callable[..., ToolResult]


@pytest.fixture
def java(client_of: OpenClient) -> JavaClient:
    client = client_of("java")
    assert isinstance(client, JavaClient)
    return client


@pytest.fixture
def tool(java: JavaClient, bootstrap_servers: str) -> Tool:
    """``tool("TopicCommand", "--list", stdin="", code=0)``: run it against the server, and check its exit code."""

    def run(name: str, *arguments: str, stdin: str = "", code: int = 0) -> ToolResult:
        main_class = name if name.startswith("kafka.") else f"org.apache.kafka.tools.{name}"
        result = java.tool(main_class, ["--bootstrap-server", bootstrap_servers, *arguments], stdin)
        assert result.exit_code == code, result
        return result

    return run


def test_topic_command(tool: Tool, topic_name: Callable[[], str], bootstrap_servers: str) -> None:
    topic = topic_name()
    created = tool("TopicCommand", "--create", "--topic", topic, "--partitions", "3", "--config", "retention.ms=60000")
    assert f"Created topic {topic}." in created.stdout
    wait_for_topic(bootstrap_servers, topic, 3)
    assert topic in tool("TopicCommand", "--list").stdout.split()

    described = tool("TopicCommand", "--describe", "--topic", topic).stdout
    assert re.search(rf"Topic: {topic}\s+TopicId: \S{{22}}\s+PartitionCount: 3\s+ReplicationFactor: 1", described)
    assert "retention.ms=60000" in described
    assert len(re.findall(r"Partition: \d\s+Leader: (\d+)\s+Replicas: \1\s+Isr: \1", described)) == 3

    tool("TopicCommand", "--alter", "--topic", topic, "--partitions", "5")
    wait_for_topic(bootstrap_servers, topic, 5)
    assert "PartitionCount: 5" in tool("TopicCommand", "--describe", "--topic", topic).stdout

    tool("TopicCommand", "--delete", "--topic", topic)
    wait_for_no_topic(bootstrap_servers, topic)
    tool("TopicCommand", "--describe", "--topic", topic, code=1)


def test_topic_command_without_partitions_or_replicas_takes_the_defaults(
    tool: Tool, topic_name: Callable[[], str], bootstrap_servers: str
) -> None:
    topic = topic_name()
    tool("TopicCommand", "--create", "--topic", topic)
    wait_for_topic(bootstrap_servers, topic, 1)


def test_topic_command_refusals(tool: Tool, make_topic: MakeTopic, topic_name: Callable[[], str]) -> None:
    topic = make_topic()
    assert "already exists" in tool("TopicCommand", "--create", "--topic", topic, code=1).stdout
    tool("TopicCommand", "--create", "--if-not-exists", "--topic", topic)
    refused = tool("TopicCommand", "--create", "--topic", topic_name(), "--replication-factor", "100", code=1)
    assert "InvalidReplicationFactorException" in refused.stdout + refused.stderr
    refused = tool("TopicCommand", "--create", "--topic", topic_name(), "--partitions", "0", code=1)
    assert "must be" in refused.stdout + refused.stderr


def test_under_replicated_and_unavailable_partitions(tool: Tool, make_topic: MakeTopic) -> None:
    topic = make_topic(2)
    for question in ("--under-replicated-partitions", "--unavailable-partitions", "--under-min-isr-partitions"):
        assert topic not in tool("TopicCommand", "--describe", question).stdout


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_console_producer_and_consumer(tool: Tool, make_topic: MakeTopic, codec: str) -> None:
    topic = make_topic(1)
    lines = [f"key {number}|value {number}" for number in range(100)]
    options = ["--reader-property", "parse.key=true", "--reader-property", "key.separator=|"]
    tool("ConsoleProducer", "--topic", topic, "--compression-codec", codec, *options, stdin="\n".join(lines) + "\n")

    shown = ("--formatter-property", "print.key=true", "--formatter-property", "key.separator=|")
    consume = ("consumer.ConsoleConsumer", "--topic", topic, "--partition", "0")
    everything = tool(*consume, "--offset", "earliest", "--max-messages", "100", *shown)
    assert everything.stdout.splitlines() == lines
    from_offset = tool(*consume, "--offset", "97", "--max-messages", "3", *shown)
    assert from_offset.stdout.splitlines() == lines[97:]
    assert "Processed a total of 3 messages" in from_offset.stderr
    nothing_more = tool(*consume, "--offset", "100", "--timeout-ms", "200")
    assert nothing_more.stdout == ""


def test_console_consumer_shows_timestamps_and_headers(tool: Tool, java: JavaClient, make_topic: MakeTopic) -> None:
    topic = make_topic(2, KEEP)
    java.produce(topic, [Record(value=b"value", partition=1, timestamp_ms=T0, headers=(("a", b"1"), ("b", None)))])
    properties = [f"print.{what}=true" for what in ("timestamp", "headers", "partition", "offset", "key")]
    options = [part for each in properties for part in ("--formatter-property", each)]
    where = ("--topic", topic, "--partition", "1", "--offset", "0", "--max-messages", "1")
    shown = tool("consumer.ConsoleConsumer", *where, *options).stdout
    assert shown.split("\t") == [f"CreateTime:{T0}", "Partition:1", "Offset:0", "a:1,b:null", "null", "value\n"]


def test_get_offset_shell(tool: Tool, java: JavaClient, make_topic: MakeTopic) -> None:
    topic = make_topic(2, KEEP)
    java.produce(topic, [Record(value=b"-", partition=1, timestamp_ms=T0 + n) for n in (0, 5, 3)])

    def offsets(*options: str) -> set[str]:
        return set(tool("GetOffsetShell", "--topic", topic, *options).stdout.split())

    assert offsets() == {f"{topic}:0:0", f"{topic}:1:3"}
    assert offsets("--time", "-2") == {f"{topic}:0:0", f"{topic}:1:0"}
    assert offsets("--time", "earliest", "--partitions", "1") == {f"{topic}:1:0"}
    assert offsets("--time", "max-timestamp", "--partitions", "1") == {f"{topic}:1:1"}
    assert offsets("--time", str(T0 + 4), "--partitions", "1") == {f"{topic}:1:1"}


def test_delete_records_command(tool: Tool, java: JavaClient, make_topic: MakeTopic, tmp_path: Path) -> None:
    topic = make_topic(1)
    java.produce(topic, numbered(10))
    file = tmp_path / "offsets.json"
    file.write_text(json.dumps({"version": 1, "partitions": [{"topic": topic, "partition": 0, "offset": 4}]}))
    assert "low_watermark: 4" in tool("DeleteRecordsCommand", "--offset-json-file", str(file)).stdout
    assert java.offsets(topic, 0) == (4, 10)


def test_log_dirs_command(tool: Tool, java: JavaClient, make_topic: MakeTopic) -> None:
    topic = make_topic(2)
    java.produce(topic, numbered(10, size=1_000))
    answer = tool("LogDirsCommand", "--describe", "--topic-list", topic).stdout
    brokers = json.loads(next(line for line in answer.splitlines() if line.startswith("{")))["brokers"]
    directories = [directory for broker in brokers for directory in broker["logDirs"]]
    found = {each["partition"]: each for directory in directories for each in directory["partitions"]}
    assert set(found) == {f"{topic}-0", f"{topic}-1"}
    assert found[f"{topic}-0"]["size"] > 10_000
    assert found[f"{topic}-1"]["size"] == 0
    assert {directory["error"] for directory in directories} == {None}


def test_config_command_for_topics(tool: Tool, make_topic: MakeTopic) -> None:
    topic = make_topic(1)
    command = ("kafka.admin.ConfigCommand", "--entity-type", "topics", "--entity-name", topic)
    tool(*command, "--alter", "--add-config", "retention.ms=5000,cleanup.policy=[delete,compact]")
    wait_until(lambda: "retention.ms=5000" in tool(*command, "--describe").stdout, "the new configs")
    described = tool(*command, "--describe").stdout
    assert "cleanup.policy=delete,compact" in described
    assert "segment.bytes" not in described
    assert "segment.bytes=1073741824" in tool(*command, "--describe", "--all").stdout
    tool(*command, "--alter", "--delete-config", "retention.ms")
    wait_until(lambda: "retention.ms" not in tool(*command, "--describe").stdout, "the default again")
    refused = tool(*command, "--alter", "--add-config", "retention.ms=soon", code=1)
    assert "InvalidConfigurationException" in refused.stdout + refused.stderr


def test_config_command_for_brokers(tool: Tool, java: JavaClient) -> None:
    broker = str(java.call("describe_cluster")["controller"])
    command = ("kafka.admin.ConfigCommand", "--entity-type", "brokers")
    everything = tool(*command, "--entity-name", broker, "--describe", "--all").stdout
    assert "log.segment.bytes=1073741824" in everything
    assert "auto.create.topics.enable=false" in everything
    tool(*command, "--entity-default", "--describe")


def test_config_command_for_groups(tool: Tool, topic_name: Callable[[], str]) -> None:
    group = topic_name()
    command = ("kafka.admin.ConfigCommand", "--entity-type", "groups", "--entity-name", group)
    assert "session" not in tool(*command, "--describe").stdout
    changed = tool(
        *command, "--alter", "--add-config", "consumer.session.timeout.ms=50000,share.isolation.level=read_committed"
    )
    assert changed.stdout.strip() == f"Completed updating config for group {group}."
    expected = (
        "consumer.session.timeout.ms=50000 sensitive=false synonyms={DYNAMIC_GROUP_CONFIG:consumer.session.timeout.ms="
        "50000, DEFAULT_CONFIG:group.consumer.session.timeout.ms=45000}"
    )
    wait_until(lambda: expected in tool(*command, "--describe").stdout, "the new configs")
    assert "share.isolation.level=read_committed" in tool(*command, "--describe").stdout
    everything = tool(*command, "--describe", "--all").stdout
    assert "consumer.heartbeat.interval.ms=5000" in everything
    assert "share.auto.offset.reset=latest" in everything
    tool(*command, "--alter", "--delete-config", "consumer.session.timeout.ms")
    wait_until(lambda: "consumer.session" not in tool(*command, "--describe").stdout, "the default again")
    refused = tool(*command, "--alter", "--add-config", "consumer.session.timeout.ms=44999", code=1)
    assert "InvalidConfigurationException" in refused.stdout + refused.stderr


def test_broker_api_versions_command(tool: Tool, bootstrap_servers: str) -> None:
    """This client can use every API that the server advertises, except those that it has dropped itself."""
    answer = tool("BrokerApiVersionsCommand").stdout
    assert any(line.startswith(bootstrap_servers) for line in answer.splitlines())
    assert re.search(r"Produce\(0\): 0 to 13 \[usable: 13\]", answer)
    assert re.search(r"Fetch\(1\): 4 to 18 \[usable: 18\]", answer)
    assert re.search(r"ApiVersions\(18\): 0 to 4 \[usable: 4\]", answer)
    served = [line for line in answer.splitlines() if ": UNSUPPORTED" not in line]
    assert [line for line in served if re.search(r"\(\d+\):", line) and "usable" not in line] == []


def test_cluster_tool(java: JavaClient, bootstrap_servers: str) -> None:
    result = java.tool("org.apache.kafka.tools.ClusterTool", ["cluster-id", "--bootstrap-server", bootstrap_servers])
    assert result.exit_code == 0, result
    assert result.stdout.strip() == f"Cluster ID: {java.call('describe_cluster')['cluster_id']}"
    arguments = ["list-endpoints", "--bootstrap-server", bootstrap_servers]
    result = java.tool("org.apache.kafka.tools.ClusterTool", arguments)
    assert result.exit_code == 0, result
    assert bootstrap_servers.rpartition(":")[2] in result.stdout


def test_metadata_quorum_command(tool: Tool) -> None:
    status = tool("MetadataQuorumCommand", "describe", "--status").stdout
    leader = re.search(r"LeaderId:\s+(\d+)\n", status)
    assert leader is not None
    node = leader[1]
    assert re.search(r"HighWatermark:\s+\d+", status)
    assert re.search(rf'CurrentVoters:\s+\[\{{"id": {node}', status)
    replication = tool("MetadataQuorumCommand", "describe", "--replication").stdout.splitlines()
    assert replication[0].split()[:3] == ["NodeId", "DirectoryId", "LogEndOffset"]
    assert replication[1].split()[0] == node
    assert replication[1].split()[-1] == "Leader"


def test_feature_command(tool: Tool) -> None:
    answer = tool("FeatureCommand", "describe").stdout
    assert re.search(
        r"Feature: metadata.version\s+SupportedMinVersion: \S+\s+SupportedMaxVersion: \S+\s+Finalized", answer
    )


def test_feature_command_changes_the_protocol_of_consumer_groups(tool: Tool) -> None:
    def level() -> str:
        shown = tool("FeatureCommand", "describe").stdout
        found = re.search(
            r"Feature: group.version\s+SupportedMinVersion: 0\s+SupportedMaxVersion: 1\s+FinalizedVersionLevel: (\d+)",
            shown,
        )
        assert found, shown
        return found[1]

    assert level() == "1"
    refused = tool("FeatureCommand", "upgrade", "--feature", "group.version=2", code=1)
    assert refused.stdout.startswith("Could not upgrade group.version to 2. ")
    assert refused.stderr.strip() == "1 out of 1 operation(s) failed."
    possible = tool("FeatureCommand", "disable", "--feature", "group.version", "--dry-run")
    assert possible.stdout.strip() == "group.version can be disabled."
    assert level() == "1"
    down = tool("FeatureCommand", "downgrade", "--feature", "group.version=0")
    assert down.stdout.strip() == "group.version was downgraded to 0."
    assert level() == "0"
    up = tool("FeatureCommand", "upgrade", "--feature", "group.version=1")
    assert up.stdout.strip() == "group.version was upgraded to 1."
    assert level() == "1"


def test_feature_command_changes_the_level_of_transactions(tool: Tool) -> None:
    def level() -> str:
        shown = tool("FeatureCommand", "describe").stdout
        found = re.search(r"Feature: transaction.version\s+.*MaxVersion: 2\s+FinalizedVersionLevel: (\d+)", shown)
        assert found, shown
        return found[1]

    assert level() == "2"
    down = tool("FeatureCommand", "downgrade", "--feature", "transaction.version=1")
    assert down.stdout.strip() == "transaction.version was downgraded to 1."
    assert level() == "1"
    up = tool("FeatureCommand", "upgrade", "--feature", "transaction.version=2")
    assert up.stdout.strip() == "transaction.version was upgraded to 2."
    assert level() == "2"


def test_leader_election_command(tool: Tool, make_topic: MakeTopic) -> None:
    topic = make_topic(1)
    command = ("LeaderElectionCommand", "--election-type", "preferred", "--topic", topic, "--partition", "0")
    assert "Valid replica already elected" in tool(*command).stdout


def test_reassign_partitions_command(tool: Tool) -> None:
    assert "No partition reassignments found" in tool("reassign.ReassignPartitionsCommand", "--list").stdout


def test_acl_command_on_a_server_without_security(tool: Tool) -> None:
    refused = tool("AclCommand", "--list", code=1)
    assert "SecurityDisabledException" in refused.stdout + refused.stderr


def test_producer_performance(tool: Tool, java: JavaClient, make_topic: MakeTopic) -> None:
    topic = make_topic(3)
    options = ("--topic", topic, "--num-records", "20000", "--record-size", "100", "--throughput", "-1")
    answer = tool("ProducerPerformance", *options).stdout
    assert answer.splitlines()[-1].startswith("20000 records sent")
    assert sum(java.offsets(topic, partition)[1] for partition in range(3)) == 20_000

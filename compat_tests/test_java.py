"""The Java client against the server under test: the scenarios, and what only its Admin can ask."""

import re
import time
from collections.abc import Callable

import pytest

from moldau.compat_tests.conftest import MakeTopic, OpenClient
from moldau.compat_tests.scenarios import KEEP, T0, ClientScenarios, error_code, numbered
from moldau.testing.client import Record
from moldau.testing.clients.java import JavaClient
from moldau.testing.topic_requests import wait_for_no_topic
from moldau.testing.waiting import wait_until

UUID = re.compile(r"[A-Za-z0-9_-]{22}")


class TestJava(ClientScenarios):
    client_name = "java"
    unknown_topic_codes = ("REQUEST_TIMED_OUT",)


@pytest.fixture
def java(client_of: OpenClient) -> JavaClient:
    client = client_of("java")
    assert isinstance(client, JavaClient)
    return client


@pytest.fixture
def broker_id(java: JavaClient) -> int:
    return int(java.call("describe_cluster")["controller"])


def test_describe_cluster(java: JavaClient, bootstrap_servers: str) -> None:
    cluster = java.call("describe_cluster")
    assert UUID.fullmatch(cluster["cluster_id"])
    assert bootstrap_servers in cluster["nodes"]


def test_describe_topic(java: JavaClient, make_topic: MakeTopic) -> None:
    described = java.call("describe_topic", topic=make_topic(3, client=java), partition=0)
    assert UUID.fullmatch(described["topic_id"])
    assert described["internal"] is False
    leaders = [partition[1] for partition in described["partitions"]]
    assert described["partitions"] == [[n, leader, [leader], [leader]] for n, leader in enumerate(leaders)]
    assert len(leaders) == 3
    cluster = java.call("describe_cluster")
    assert len(cluster["nodes"]) > 1 or set(leaders) == {cluster["controller"]}


def test_create_topic_with_assignment(java: JavaClient, topic_name: Callable[[], str], broker_id: int) -> None:
    topic = topic_name()
    created = java.call("create_topic_with_assignment", topic=topic, partition=0, assignment=[[broker_id], [broker_id]])
    assert (created["partitions"], created["replication_factor"]) == (2, 1)
    assert created["configs"] > 20  # the response contains the configs of the topic (KIP-525)


@pytest.mark.parametrize("assignment", [[[987]], [[0, 0]], [[]]], ids=["unknown broker", "twice the same", "none"])
def test_create_topic_with_an_invalid_assignment(
    java: JavaClient, topic_name: Callable[[], str], broker_id: int, assignment: list[list[int]]
) -> None:
    replicas = [[broker_id if each == 0 else each for each in partition] for partition in assignment]

    def create() -> object:
        return java.call("create_topic_with_assignment", topic=topic_name(), partition=0, assignment=replicas)

    assert error_code(create) == "INVALID_REPLICA_ASSIGNMENT"


def test_delete_topic_by_id(java: JavaClient, make_topic: MakeTopic, bootstrap_servers: str) -> None:
    topic = make_topic(1, client=java)
    java.call("delete_topic_by_id", topic=topic, partition=0)
    wait_for_no_topic(bootstrap_servers, topic)
    assert topic not in java.topics()


def test_list_offsets(java: JavaClient, make_topic: MakeTopic) -> None:
    topic = make_topic(1, KEEP, client=java)
    assert java.call("list_offsets", topic=topic, partition=0) == {
        "earliest": [0, -1],
        "latest": [0, -1],
        "max_timestamp": [-1, -1],
        "earliest_local": [0, -1],
        "latest_tiered": [-1, -1],
    }
    java.produce(topic, [Record(value=b"-", timestamp_ms=when) for when in (T0, T0 + 9, T0 + 4, T0 + 9)], codec="lz4")
    java.delete_records(topic, 0, 1)
    assert java.call("list_offsets", topic=topic, partition=0) == {
        "earliest": [1, -1],
        "latest": [4, -1],
        "max_timestamp": [1, T0 + 9],
        "earliest_local": [1, -1],
        "latest_tiered": [-1, -1],
    }


_FOR_EVER = str(2**63 - 1)

# The value of each config, its type, and the broker's config that it comes from.
TOPIC_DEFAULTS = {
    "cleanup.policy": ("delete", "LIST", "log.cleanup.policy"),
    "compression.gzip.level": ("-1", "INT", "compression.gzip.level"),
    "compression.lz4.level": ("9", "INT", "compression.lz4.level"),
    "compression.type": ("producer", "STRING", "compression.type"),
    "compression.zstd.level": ("3", "INT", "compression.zstd.level"),
    "delete.retention.ms": ("86400000", "LONG", "log.cleaner.delete.retention.ms"),
    "file.delete.delay.ms": ("60000", "LONG", "log.segment.delete.delay.ms"),
    "flush.messages": (_FOR_EVER, "LONG", "log.flush.interval.messages"),
    "flush.ms": (_FOR_EVER, "LONG", None),
    "follower.replication.throttled.replicas": ("", "LIST", None),
    "index.interval.bytes": ("4096", "INT", "log.index.interval.bytes"),
    "leader.replication.throttled.replicas": ("", "LIST", None),
    "local.retention.bytes": ("-2", "LONG", "log.local.retention.bytes"),
    "local.retention.ms": ("-2", "LONG", "log.local.retention.ms"),
    "max.compaction.lag.ms": (_FOR_EVER, "LONG", "log.cleaner.max.compaction.lag.ms"),
    "message.timestamp.after.max.ms": ("3600000", "LONG", "log.message.timestamp.after.max.ms"),
    "message.timestamp.before.max.ms": (_FOR_EVER, "LONG", "log.message.timestamp.before.max.ms"),
    "message.timestamp.type": ("CreateTime", "STRING", "log.message.timestamp.type"),
    "min.cleanable.dirty.ratio": ("0.5", "DOUBLE", "log.cleaner.min.cleanable.ratio"),
    "min.compaction.lag.ms": ("0", "LONG", "log.cleaner.min.compaction.lag.ms"),
    "preallocate": ("false", "BOOLEAN", "log.preallocate"),
    "remote.log.copy.disable": ("false", "BOOLEAN", None),
    "remote.log.delete.on.disable": ("false", "BOOLEAN", None),
    "remote.storage.enable": ("false", "BOOLEAN", None),
    "retention.bytes": ("-1", "LONG", "log.retention.bytes"),
    "segment.bytes": ("1073741824", "INT", "log.segment.bytes"),
    "segment.index.bytes": ("10485760", "INT", "log.index.size.max.bytes"),
    "segment.jitter.ms": ("0", "LONG", None),
    "segment.ms": ("604800000", "LONG", None),
    "unclean.leader.election.enable": ("false", "BOOLEAN", "unclean.leader.election.enable"),
}


def test_describe_topic_configs(java: JavaClient, make_topic: MakeTopic) -> None:
    topic = make_topic(1, {"retention.ms": "1234567", "max.message.bytes": "99999"}, client=java)
    configs = java.call("describe_configs", type="TOPIC", name=topic)
    retention = configs["retention.ms"]
    assert (retention["value"], retention["source"]) == ("1234567", "DYNAMIC_TOPIC_CONFIG")
    # The broker's retention is set in hours, and the synonym of retention.ms is that in milliseconds, which is unset.
    assert retention["synonyms"] == [["retention.ms", "1234567", "DYNAMIC_TOPIC_CONFIG"]]
    assert configs["max.message.bytes"]["synonyms"] == [
        ["max.message.bytes", "99999", "DYNAMIC_TOPIC_CONFIG"],
        ["message.max.bytes", "1048588", "DEFAULT_CONFIG"],
    ]
    for key, (value, kind, synonym) in TOPIC_DEFAULTS.items():
        config = configs[key]
        synonyms = [] if synonym is None else [[synonym, value, "DEFAULT_CONFIG"]]
        assert (key, config["value"], config["source"], config["type"], config["synonyms"]) == (
            key, value, "DEFAULT_CONFIG", kind, synonyms)  # fmt: skip
    assert set(configs) == {*TOPIC_DEFAULTS, "retention.ms", "max.message.bytes", "min.insync.replicas"}
    # With eligible leader replicas, Apache Kafka sets this one for the whole cluster when it is formatted.
    assert configs["min.insync.replicas"]["value"] == "1"
    assert configs["min.insync.replicas"]["source"] in ("DEFAULT_CONFIG", "DYNAMIC_DEFAULT_BROKER_CONFIG")
    assert [key for key, entry in configs.items() if not entry["documented"]] == []
    assert [key for key, entry in configs.items() if entry["read_only"] or entry["sensitive"]] == []


def test_describe_broker_configs(java: JavaClient, broker_id: int, bootstrap_servers: str) -> None:
    configs = java.call("describe_configs", type="BROKER", name=str(broker_id))
    for key in (
        "advertised.listeners",
        "default.replication.factor",
        "num.partitions",
        "log.dirs",
        "message.max.bytes",
    ):
        assert key in configs
    assert configs["auto.create.topics.enable"]["value"] == "false"
    assert configs["auto.create.topics.enable"]["source"] == "STATIC_BROKER_CONFIG"
    assert configs["log.retention.ms"]["value"] is None
    assert (configs["num.partitions"]["value"], configs["num.partitions"]["source"]) == ("1", "DEFAULT_CONFIG")
    assert configs["message.max.bytes"]["read_only"] is False
    assert configs["log.dirs"]["read_only"] is True
    assert len(configs) > 150


def test_describe_configs_of_an_unknown_topic(java: JavaClient, topic_name: Callable[[], str]) -> None:
    def describe() -> object:
        return java.call("describe_configs", type="TOPIC", name=topic_name())

    assert error_code(describe) == "UNKNOWN_TOPIC_OR_PARTITION"


def test_append_subtract_and_delete_a_config(java: JavaClient, make_topic: MakeTopic) -> None:
    topic = make_topic(1, client=java)

    def alter(how: str, key: str, value: str | None) -> None:
        java.call("alter_config", type="TOPIC", name=topic, key=key, value=value, how=how)

    def policy() -> set[str]:
        return set(str(java.topic_configs(topic)["cleanup.policy"]).split(","))

    alter("APPEND", "cleanup.policy", "compact")
    wait_until(lambda: policy() == {"delete", "compact"}, "delete,compact")
    alter("SUBTRACT", "cleanup.policy", "delete")
    wait_until(lambda: policy() == {"compact"}, "compact")
    alter("DELETE", "cleanup.policy", None)
    wait_until(lambda: policy() == {"delete"}, "the default again")
    assert error_code(lambda: alter("APPEND", "retention.ms", "5")) == "INVALID_CONFIG"
    assert error_code(lambda: alter("SET", "no.such.config", "5")) == "INVALID_CONFIG"


def test_a_default_for_all_brokers_shows_in_topics(java: JavaClient, make_topic: MakeTopic) -> None:
    topic = make_topic(1, client=java)

    def alter(how: str, value: str | None) -> None:
        java.call("alter_config", type="BROKER", name="", key="log.retention.ms", value=value, how=how)

    def retention() -> dict[str, object]:
        entry = java.call("describe_configs", type="TOPIC", name=topic)["retention.ms"]
        assert isinstance(entry, dict)
        return entry

    alter("SET", "7654321")
    try:
        wait_until(lambda: retention()["value"] == "7654321", "the new default")
        assert retention()["source"] == "DYNAMIC_DEFAULT_BROKER_CONFIG"
    finally:
        alter("DELETE", None)
    wait_until(lambda: retention()["value"] == "604800000", "the old default")


def test_list_config_resources(java: JavaClient, make_topic: MakeTopic, broker_id: int) -> None:
    topic = make_topic(1, client=java)
    resources = java.call("list_config_resources")
    assert ["TOPIC", topic] in resources
    assert ["BROKER", str(broker_id)] in resources


def test_describe_log_dirs(java: JavaClient, make_topic: MakeTopic) -> None:
    topic = make_topic(2, client=java)
    java.produce(topic, numbered(100, partition=1, size=1_000))
    sizes = {where: size for replicas in java.call("describe_log_dirs").values() for where, size in replicas.items()}
    assert sizes[f"{topic}-0"] == [0, 0]
    assert sizes[f"{topic}-1"][0] > 100_000
    assert sizes[f"{topic}-1"][1] == 0


def test_describe_producers(java: JavaClient, make_topic: MakeTopic) -> None:
    topic = make_topic(1, client=java)
    java.produce(topic, numbered(1))  # not idempotent: no producer
    assert java.call("describe_producers", topic=topic, partition=0) == []
    java.produce(topic, numbered(25), idempotent=True)
    ((producer_id, epoch, last_sequence, in_transaction),) = java.call("describe_producers", topic=topic, partition=0)
    assert producer_id >= 0
    assert (epoch, last_sequence, in_transaction) == (0, 24, False)


def test_producer_ids_differ(java: JavaClient, make_topic: MakeTopic) -> None:
    topic = make_topic(1, client=java)
    for _ in range(3):
        java.produce(topic, numbered(1), idempotent=True)
    producers = java.call("describe_producers", topic=topic, partition=0)
    assert len({producer_id for producer_id, *_ in producers}) == 3


def test_describe_quorum(java: JavaClient) -> None:
    quorum = java.call("describe_quorum")
    assert quorum["leader_id"] >= 0
    assert quorum["voters"] == [quorum["leader_id"]]
    assert quorum["leader_epoch"] > 0
    assert quorum["high_watermark"] > 0


def test_describe_features(java: JavaClient) -> None:
    features = java.call("describe_features")
    assert features["finalized"]["metadata.version"] >= 7
    assert {"metadata.version", "kraft.version"} <= set(features["supported"])


def test_elect_leaders(java: JavaClient, make_topic: MakeTopic) -> None:
    topic = make_topic(2, client=java)
    for kind in ("PREFERRED", "UNCLEAN"):
        elected = java.call("elect_leaders", topic=topic, partition=1, type=kind)
        assert elected == {f"{topic}-1": "ELECTION_NOT_NEEDED"}
    elected = java.call("elect_leaders", topic=topic, partition=7, type="PREFERRED")
    assert elected == {f"{topic}-7": "UNKNOWN_TOPIC_OR_PARTITION"}


def test_no_reassignments(java: JavaClient) -> None:
    assert java.call("list_reassignments") == 0


def test_a_server_without_security(java: JavaClient) -> None:
    assert error_code(lambda: java.call("describe_acls")) == "SECURITY_DISABLED"
    assert java.call("describe_client_quotas") == 0
    assert java.call("describe_scram_users") == 0


def test_timestamp_too_far_in_the_future(java: JavaClient, make_topic: MakeTopic) -> None:
    topic = make_topic(1, {"message.timestamp.after.max.ms": "60000"}, client=java)
    late = Record(value=b"-", timestamp_ms=int(time.time() * 1000) + 3_600_000)
    assert error_code(lambda: java.produce(topic, [late])) == "INVALID_TIMESTAMP"
    java.produce(topic, [Record(value=b"-", timestamp_ms=int(time.time() * 1000) + 30_000)])


def test_record_without_key_in_a_compacted_topic(java: JavaClient, make_topic: MakeTopic) -> None:
    topic = make_topic(1, {"cleanup.policy": "compact"}, client=java)
    assert error_code(lambda: java.produce(topic, [Record(value=b"no key")])) == "INVALID_RECORD"
    java.produce(topic, [Record(key=b"key", value=b"value")])
    assert [record.key for record in java.read(topic, 0)] == [b"key"]


def test_more_insync_replicas_than_replicas_are_not_waited_for(java: JavaClient, make_topic: MakeTopic) -> None:
    topic = make_topic(1, {"min.insync.replicas": "2"}, client=java)
    assert [each.offset for each in java.produce(topic, numbered(1), acks="all")] == [0]


@pytest.mark.parametrize("target", ["none", "uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_topic_that_recompresses(java: JavaClient, make_topic: MakeTopic, bootstrap_servers: str, target: str) -> None:
    from moldau.testing.client import CODECS
    from moldau.testing.topic_requests import stored_batches

    if target == "none":
        assert error_code(lambda: make_topic(1, {"compression.type": target}, client=java)) == "INVALID_CONFIG"
        return
    topic = make_topic(1, {"compression.type": target}, client=java)
    sent = numbered(100, size=200)
    for codec in CODECS:
        java.produce(topic, sent, codec=codec, linger_ms=100)
    stored = {CODECS[batch.codec] for batch in stored_batches(bootstrap_servers, topic)}
    assert stored == {"none" if target == "uncompressed" else target}
    assert [record.value for record in java.read(topic, 0)] == [record.value for record in sent] * len(CODECS)

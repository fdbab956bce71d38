"""The same admin requests in the same order to Apache Kafka and to this controller return the same responses.

Of error messages and topic ids, only their presence is compared. The order of results is not compared, because Apache
Kafka shuffles some of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from moldau.metadata.alter_configs import alter_configs, incremental_alter_configs
from moldau.metadata.brokers import unregister_broker
from moldau.metadata.create_partitions import create_partitions
from moldau.metadata.create_topics import create_topics
from moldau.metadata.delete_topics import delete_topics
from moldau.metadata.elect_leaders import elect_leaders
from moldau.metadata.outcome import Outcome
from moldau.metadata.reassignments import alter_partition_reassignments, list_partition_reassignments
from moldau.metadata.update_features import update_features
from moldau.protocol.codec import decode, encode
from moldau.protocol.errors import KafkaError
from moldau.protocol.messages import alter_configs as legacy
from moldau.protocol.messages import incremental_alter_configs as incremental
from moldau.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from moldau.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from moldau.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from moldau.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from moldau.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from moldau.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from moldau.protocol.messages.unregister_broker import UnregisterBrokerRequest
from moldau.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from moldau.protocol.schema import Request, Struct
from moldau.testing.apache_kafka import ApacheKafka
from moldau.testing.topic_requests import wait_for_no_topic, wait_for_topic
from moldau.testing.wire import WireClient

from .config_requests import alter, change

TOPIC, BROKER, GROUP = 2, 4, 32
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3


class Controller:
    """The controller's decisions for requests, without a server."""

    def __init__(self, cluster: Any) -> None:
        self.cluster = cluster

    def request(self, request: Request, version: int) -> Any:
        image, context = self.cluster.image, self.cluster.context
        decide: dict[type, Callable[[Any], Outcome[Any]]] = {
            CreateTopicsRequest: lambda r: create_topics(image, r, context),
            DeleteTopicsRequest: lambda r: delete_topics(image, r, context),
            CreatePartitionsRequest: lambda r: create_partitions(image, r, context),
            legacy.AlterConfigsRequest: lambda r: alter_configs(image, r, context),
            incremental.IncrementalAlterConfigsRequest: lambda r: incremental_alter_configs(image, r, context),
            ElectLeadersRequest: lambda r: elect_leaders(image, r, context),
            AlterPartitionReassignmentsRequest: lambda r: alter_partition_reassignments(image, r, context),
            ListPartitionReassignmentsRequest: lambda r: Outcome(list_partition_reassignments(image, r), []),
            UpdateFeaturesRequest: lambda r: update_features(image, r, version, context),
            UnregisterBrokerRequest: lambda r: unregister_broker(image, r, context),
        }
        try:
            outcome = decide[type(request)](request)
        except KafkaError as error:
            return error
        if outcome.records:
            self.cluster.commit(outcome.records)
        response = outcome.response
        return decode(type(response), encode(response, version), version)


def normalized(value: Any, name: str = "") -> Any:
    """A response without throttle times, error messages, values of topic ids, and the order of lists."""
    if isinstance(value, Struct):
        fields = {field: getattr(value, field) for field in type(value).__slots__ if field not in IGNORED}
        return {field: normalized(content, field) for field, content in fields.items()}
    if isinstance(value, list):
        return sorted((normalized(element) for element in value), key=repr)
    return value != bytes(16) if name == "topic_id" else value


IGNORED = {"unknown_tagged_fields", "throttle_time_ms", "error_message"}


def differences(expected: Any, found: Any, path: str = "") -> Iterator[str]:
    if isinstance(expected, dict) and isinstance(found, dict):
        for field in expected:
            yield from differences(expected[field], found[field], f"{path}.{field}")
    elif isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        for number, (wanted, got) in enumerate(zip(expected, found, strict=True)):
            yield from differences(wanted, got, f"{path}[{number}]")
    elif expected != found:
        yield f"{path}: Apache Kafka {expected!r}, here {found!r}"


def unexplained(value: Any) -> Iterator[str]:
    """Errors without a message, and messages without an error."""
    if isinstance(value, Struct):
        message, code = getattr(value, "error_message", None), getattr(value, "error_code", None)
        if hasattr(value, "error_message") and bool(message) != bool(code):
            yield f"{code}: {message!r}"
        for field in type(value).__slots__:
            yield from unexplained(getattr(value, field))
    elif isinstance(value, list):
        for element in value:
            yield from unexplained(element)


def topics(*wanted: CreatableTopic, validate_only: bool = False) -> CreateTopicsRequest:
    return CreateTopicsRequest(topics=list(wanted), timeout_ms=10_000, validate_only=validate_only)


def topic(
    name: str, partitions: int = 1, factor: int = 1, *assignments: tuple[int, list[int]], **configs: str | None
) -> Any:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        assignments=[CreatableReplicaAssignment(partition_index=p, broker_ids=ids) for p, ids in assignments],
        configs=[CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()],
    )


def partitions(name: str, count: int, *assignments: list[int], validate_only: bool = False) -> CreatePartitionsRequest:
    assigned = [CreatePartitionsAssignment(broker_ids=ids) for ids in assignments] or None
    wanted = CreatePartitionsTopic(name=name, count=count, assignments=assigned)
    return CreatePartitionsRequest(topics=[wanted], timeout_ms=10_000, validate_only=validate_only)


def reassign(
    name: str, *wanted: tuple[int, list[int] | None], allow: bool = True
) -> AlterPartitionReassignmentsRequest:
    moving = [ReassignablePartition(partition_index=index, replicas=replicas) for index, replicas in wanted]
    topics = [ReassignableTopic(name=name, partitions=moving)]
    return AlterPartitionReassignmentsRequest(topics=topics, timeout_ms=10_000, allow_replication_factor_change=allow)


def features(*updates: tuple[str, int, int], validate_only: bool = True) -> UpdateFeaturesRequest:
    return UpdateFeaturesRequest(
        feature_updates=[
            FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind) for name, level, kind in updates
        ],
        validate_only=validate_only,
    )


def elect(kind: int, *wanted: tuple[str, list[int]]) -> ElectLeadersRequest:
    requested = [TopicPartitions(topic=name, partitions=indexes) for name, indexes in wanted]
    return ElectLeadersRequest(election_type=kind, topic_partitions=requested, timeout_ms=10_000)


def delete(*names: str) -> DeleteTopicsRequest:
    return DeleteTopicsRequest(topics=[DeleteTopicState(name=name) for name in names], timeout_ms=10_000)


THROTTLED = "leader.replication.throttled.replicas"


def replicas(start: int, end: int) -> str:
    return ",".join(f"{number}:1" for number in range(start, end))


STORY: list[tuple[str, Request, int]] = [
    ("a topic", topics(topic("alpha", 3)), 7),
    ("it is there", topics(topic("alpha", 3)), 7),
    ("it is there, version 2", topics(topic("alpha", 3)), 2),
    ("defaults", topics(topic("defaults", -1, -1)), 5),
    ("two, one bad", topics(topic("beta"), topic("bad/name")), 7),
    ("twice in one request", topics(topic("twice"), topic("other"), topic("twice")), 7),
    ("validate only", topics(topic("never", 4), validate_only=True), 7),
    ("names", topics(*(topic(name) for name in ("", ".", "..", "a b", "x" * 249, "x" * 250, "ü", "a\n"))), 7),
    ("collision", topics(topic("a.b_c")), 7),
    ("collision again", topics(topic("a_b.c"), topic("a.b.c"), topic("a-b-c")), 7),
    ("the metadata log", topics(topic("__cluster_metadata")), 7),
    ("an internal topic", topics(topic("__consumer_offsets", 1)), 7),
    ("numbers", topics(topic("n1", 0), topic("n2", -2), topic("n3", 1, 0), topic("n4", 1, -2), topic("n5", 1, 2)), 7),
    ("too many", topics(topic("many", 10_001)), 7),
    ("configs", topics(topic("configured", 1, 1, retention_ms="1000", cleanup_policy="compact,delete")), 7),
    ("unknown config", topics(topic("c1", 1, 1, no_such="1"), topic("c2", 1, 1, retention_ms=None)), 7),
    ("bad configs", topics(topic("c3", 1, 1, segment_bytes="10"), topic("c4", 1, 1, retention_ms="abc")), 7),
    ("bad pairs", topics(topic("c5", 1, 1, min_compaction_lag_ms="10", max_compaction_lag_ms="5")), 7),
    ("blanks in configs", topics(topic("c6", 1, 1, retention_ms=" 5000 ", cleanup_policy="compact, delete")), 7),
    ("assignment", topics(topic("assigned", -1, -1, (0, [1]), (1, [1]))), 7),
    ("assignment and numbers", topics(topic("a1", 1, -1, (0, [1])), topic("a2", -1, 1, (0, [1]))), 7),
    ("assignment with a gap", topics(topic("a3", -1, -1, (0, [1]), (2, [1]))), 7),
    ("assignment twice", topics(topic("a4", -1, -1, (0, [1]), (0, [1]))), 7),
    ("assignment of others", topics(topic("a5", -1, -1, (0, [2])), topic("a6", -1, -1, (0, []))), 7),
    ("assignment of one twice", topics(topic("a7", -1, -1, (0, [1, 1]))), 7),
    ("no topics", topics(), 7),
    ("more partitions", partitions("alpha", 5), 3),
    ("as many", partitions("alpha", 5), 3),
    ("fewer", partitions("alpha", 2), 3),
    ("none", partitions("alpha", 0), 3),
    ("of no topic", partitions("nothing", 2), 3),
    ("assigned partitions", partitions("alpha", 6, [1]), 3),
    ("too few assigned", partitions("alpha", 8, [1]), 3),
    ("badly assigned", partitions("alpha", 7, [7]), 3),
    ("wider assigned", partitions("alpha", 7, [1, 1]), 3),
    ("partitions, validate only", partitions("alpha", 9, validate_only=True), 3),
    ("twice", CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="alpha", count=8)] * 2), 3),
    ("alter a topic", alter((TOPIC, "alpha", {"retention.ms": "7000", "cleanup.policy": "compact"})), 2),
    ("alter, unknown", alter((TOPIC, "alpha", {"no.such": "1"})), 2),
    ("alter, null", alter((TOPIC, "alpha", {"retention.ms": None})), 2),
    ("alter no topic", alter((TOPIC, "nothing", {"retention.ms": "1"}), (TOPIC, "", {}), (TOPIC, "a b", {})), 2),
    ("alter, validate only", alter((TOPIC, "alpha", {}), validate_only=True), 2),
    # Neither one resource twice nor two of unknown types: for these Apache Kafka 4.3.1 fails and sends no response.
    ("alter what has no configs", alter((77, "x", {})), 2),
    ("alter this broker", alter((BROKER, "1", {"log.retention.ms": "70000"})), 2),
    ("alter another broker", alter((BROKER, "2", {"log.retention.ms": "1"}), (BROKER, "x", {"a": "1"})), 2),
    ("alter all brokers", alter((BROKER, "", {"log.retention.ms": "90000"})), 2),
    ("alter a fixed one", alter((BROKER, "", {"log.dirs": "/x"}), (BROKER, "1", {"node.id": "2"})), 2),
    ("alter by the broker's defaults", topics(topic("inherits")), 7),
    ("alter, per broker only", alter((BROKER, "", {"listeners": "PLAINTEXT://:1"})), 2),
    ("alter to what is no number", alter((BROKER, "", {"log.retention.ms": "x"})), 2),
    ("forget what all brokers had", alter((BROKER, "", {}), (BROKER, "1", {})), 2),
    ("set", change((TOPIC, "alpha", [("retention.ms", SET, "9000")])), 1),
    ("append", change((TOPIC, "alpha", [("cleanup.policy", APPEND, "delete")])), 1),
    ("append again", change((TOPIC, "alpha", [("cleanup.policy", APPEND, "delete")])), 1),
    ("subtract", change((TOPIC, "alpha", [("cleanup.policy", SUBTRACT, "compact,delete")])), 1),
    ("append to a default", change((TOPIC, "beta", [("cleanup.policy", APPEND, "compact")])), 1),
    ("append nonsense", change((TOPIC, "beta", [("cleanup.policy", APPEND, "nonsense")])), 1),
    ("append to no list", change((TOPIC, "beta", [("retention.ms", APPEND, "1")])), 1),
    ("append to nothing known", change((TOPIC, "beta", [("no.such", APPEND, "1")])), 1),
    ("delete", change((TOPIC, "alpha", [("retention.ms", DELETE, None)])), 1),
    ("delete what is not set", change((TOPIC, "alpha", [("retention.ms", DELETE, None)])), 1),
    ("delete what is not known", change((TOPIC, "alpha", [("no.such", DELETE, None)])), 1),
    ("a key twice", change((TOPIC, "alpha", [("retention.ms", SET, "1"), ("retention.ms", SET, "2")])), 1),
    ("set to null", change((TOPIC, "alpha", [("retention.ms", SET, None)])), 1),
    ("set of no topic", change((TOPIC, "nothing", [("retention.ms", SET, "1")])), 1),
    ("set, validate only", change((TOPIC, "beta", [("retention.ms", SET, "1")]), validate_only=True), 1),
    ("a resource twice", change((TOPIC, "alpha", []), (TOPIC, "alpha", [])), 1),
    ("set of all brokers", change((BROKER, "", [("log.cleaner.threads", SET, "2")])), 1),
    ("append of a broker", change((BROKER, "", [("log.cleanup.policy", APPEND, "compact")])), 1),
    ("append of a broker to no list", change((BROKER, "", [("log.retention.ms", APPEND, "1")])), 1),
    ("append of a broker to what is unknown", change((BROKER, "", [("no.such", APPEND, "1")])), 1),
    ("a topic with the brokers' defaults", topics(topic("inherits2")), 7),
    ("a long value", change((TOPIC, "beta", [(THROTTLED, SET, replicas(10_000, 14_000))])), 1),
    ("a value too long", change((TOPIC, "beta", [(THROTTLED, APPEND, replicas(20_000, 21_000))])), 1),
    ("unknown kind of resource", change((TOPIC, "beta", []), (64, "x", [])), 1),
    ("group: set", change((GROUP, "g", [("consumer.session.timeout.ms", SET, "60000")])), 1),
    ("group: set again", change((GROUP, "g", [("consumer.session.timeout.ms", SET, "60000")])), 1),
    ("group: below the broker's limit", change((GROUP, "g", [("consumer.session.timeout.ms", SET, "44999")])), 1),
    ("group: above the broker's limit", change((GROUP, "g", [("consumer.session.timeout.ms", SET, "60001")])), 1),
    ("group: no number", change((GROUP, "g", [("consumer.heartbeat.interval.ms", SET, "soon")])), 1),
    ("group: out of range", change((GROUP, "g", [("consumer.heartbeat.interval.ms", SET, "0")])), 1),
    ("group: assignments immediately", change((GROUP, "g", [("consumer.assignment.interval.ms", SET, "0")])), 1),
    ("group: assignments too rarely", change((GROUP, "g", [("consumer.assignment.interval.ms", SET, "15001")])), 1),
    ("group: unknown", change((GROUP, "g", [("consumer.nap.ms", SET, "1")])), 1),
    ("group: of share groups", change((GROUP, "g", [("share.auto.offset.reset", SET, "by_duration:PT1H")])), 1),
    ("group: of share groups, wrong", change((GROUP, "g", [("share.auto.offset.reset", SET, "none")])), 1),
    ("group: of share groups, too long", change((GROUP, "g", [("share.record.lock.duration.ms", SET, "60001")])), 1),
    ("group: of share groups, too often", change((GROUP, "g", [("share.delivery.count.limit", SET, "1")])), 1),
    ("group: of share groups, isolation", change((GROUP, "g", [("share.isolation.level", SET, "READ_COMMITTED")])), 1),
    ("group: of streams groups", change((GROUP, "g", [("streams.num.standby.replicas", SET, "2")])), 1),
    ("group: of streams groups, too many", change((GROUP, "g", [("streams.num.standby.replicas", SET, "3")])), 1),
    ("group: append", change((GROUP, "g", [("consumer.session.timeout.ms", APPEND, "1")])), 1),
    ("group: append to nothing known", change((GROUP, "g", [("no.such", APPEND, "1")])), 1),
    ("group: delete", change((GROUP, "g", [("share.auto.offset.reset", DELETE, None)])), 1),
    ("group: delete what is not known", change((GROUP, "g", [("no.such", DELETE, None)])), 1),
    ("group: the empty name", change((GROUP, "", [("consumer.session.timeout.ms", SET, "60000")])), 1),
    ("group: the empty name, nothing", change((GROUP, "", [])), 1),
    ("group: nothing", change((GROUP, "g", [])), 1),
    ("group: null", change((GROUP, "g", [("consumer.session.timeout.ms", SET, None)])), 1),
    ("group: alter", alter((GROUP, "g", {"consumer.heartbeat.interval.ms": "6000"})), 2),
    ("group: alter to what cannot be", alter((GROUP, "g", {"consumer.heartbeat.interval.ms": "1"})), 2),
    ("group: alter to nothing", alter((GROUP, "g", {}), (GROUP, "", {})), 2),
    ("elect the preferred", elect(0, ("alpha", [0, 1, 99]), ("nothing", [0])), 2),
    ("elect any replica", elect(1, ("alpha", [0])), 2),
    ("elect everywhere", ElectLeadersRequest(election_type=1, topic_partitions=None), 2),
    ("elect nowhere", ElectLeadersRequest(election_type=0, topic_partitions=[]), 2),
    ("elect in version 0", elect(0, ("alpha", [0])), 0),
    ("reassign to where it is", reassign("alpha", (0, [1])), 1),
    ("reassign to another", reassign("alpha", (0, [2]), (1, [1, 2]), (2, []), (3, [1, 1]), (99, [1])), 1),
    ("reassign no topic", reassign("nothing", (0, [1])), 1),
    ("cancel what does not move", reassign("alpha", (0, None)), 1),
    ("reassign to a list as long", reassign("alpha", (0, [1]), allow=False), 1),
    ("reassign nothing", AlterPartitionReassignmentsRequest(topics=[]), 1),
    ("what moves", ListPartitionReassignmentsRequest(topics=None), 0),
    (
        "what of it moves",
        ListPartitionReassignmentsRequest(
            topics=[
                ListPartitionReassignmentsTopics(name="alpha", partition_indexes=[0, 99]),
                ListPartitionReassignmentsTopics(name="nothing", partition_indexes=[0]),
            ]
        ),
        0,
    ),
    ("features: as it is", features(("metadata.version", 30, 1)), 2),
    ("features: as it is, version 1", features(("metadata.version", 30, 1)), 1),
    ("features: beyond", features(("metadata.version", 99, 1)), 2),
    ("features: below by an upgrade", features(("metadata.version", 29, 1)), 2),
    ("features: below", features(("metadata.version", 29, 2)), 2),
    ("features: below, unsafely", features(("metadata.version", 29, 3)), 2),
    ("features: negative", features(("metadata.version", -1, 1)), 2),
    ("features: kraft.version as it is", features(("kraft.version", 1, 1)), 2),
    ("features: kraft.version down", features(("kraft.version", 0, 2)), 2),
    ("features: unknown", features(("no.such.feature", 1, 1)), 2),
    ("features: unknown kind of update", features(("metadata.version", 30, 9)), 2),
    ("features: none", features(), 2),
    ("features: group.version up", features(("group.version", 1, 1), validate_only=False), 2),
    ("features: group.version as it is", features(("group.version", 1, 1), validate_only=False), 2),
    ("features: group.version beyond", features(("group.version", 2, 1)), 2),
    ("features: group.version down by an upgrade", features(("group.version", 0, 1)), 2),
    ("features: group.version down", features(("group.version", 0, 2)), 2),
    ("features: group.version down, unsafely", features(("group.version", 0, 3), validate_only=False), 2),
    ("features: group.version down again", features(("group.version", 0, 2), validate_only=False), 2),
    ("features: group.version to a downgrade upwards", features(("group.version", 1, 2)), 2),
    ("features: transaction.version up", features(("transaction.version", 2, 1), validate_only=False), 2),
    ("features: transaction.version beyond", features(("transaction.version", 3, 1)), 2),
    ("features: transaction.version down one", features(("transaction.version", 1, 2), validate_only=False), 2),
    ("features: transaction.version down by an upgrade", features(("transaction.version", 0, 1)), 2),
    ("features: transaction.version down", features(("transaction.version", 0, 2), validate_only=False), 2),
    (
        "features: group.version and a level that cannot be",
        features(("group.version", 1, 1), ("metadata.version", 99, 1), validate_only=False),
        2,
    ),
    ("unregister an unknown broker", UnregisterBrokerRequest(broker_id=77), 0),
    ("delete topics", delete("beta", "nothing"), 6),
    ("delete one twice", delete("alpha", "alpha"), 6),
    ("delete no topic", DeleteTopicsRequest(topics=[DeleteTopicState(name=None)], timeout_ms=10_000), 6),
    (
        "delete by a name and an id",
        DeleteTopicsRequest(topics=[DeleteTopicState(name="a", topic_id=b"\1" * 16)], timeout_ms=10_000),
        6,
    ),
    (
        "delete by an unknown id",
        DeleteTopicsRequest(topics=[DeleteTopicState(topic_id=b"\1" * 16)], timeout_ms=10_000),
        6,
    ),
    ("delete by names alone", DeleteTopicsRequest(topic_names=["configured", "nothing"], timeout_ms=10_000), 5),
    ("delete without messages", DeleteTopicsRequest(topic_names=["nothing"], timeout_ms=10_000), 3),
    ("create it again", topics(topic("beta")), 7),
]


@pytest.fixture(scope="module")
def apache() -> Iterator[str]:
    with ApacheKafka() as server:
        yield server.bootstrap_servers


def test_the_controller_responds_like_apache_kafka(apache: str, cluster: Any) -> None:
    ours = Controller(cluster)
    wrong: list[str] = []
    with WireClient(apache) as connection:
        # New clusters of Apache Kafka enable eligible leader replicas, which fixes min.insync.replicas. New clusters
        # of Moldau do not.
        connection.call(features(("eligible.leader.replicas.version", 0, 2), validate_only=False), 2)
        connection.call(change((BROKER, "", [("min.insync.replicas", DELETE, None)])), 1)
        for title, request, version in STORY:
            expected = connection.call(request, version)
            found = ours.request(request, version)
            if isinstance(found, KafkaError):
                if f"'error_code': {int(found.code)}" not in repr(normalized(expected)):
                    wrong.append(f"{title}: Apache Kafka {expected}, here {found.code!r}")
            else:
                wrong += [f"{title}: {each}" for each in differences(normalized(expected), normalized(found))]
                if version >= 5 or not isinstance(request, DeleteTopicsRequest):  # no messages before version 5
                    wrong += [f"{title}: {each}" for each in unexplained(found)]
            _settle(apache, request, expected)
    assert not wrong, "\n" + "\n".join(wrong)


def _settle(bootstrap_servers: str, request: Request, response: Any) -> None:
    """Wait until brokers of Apache Kafka have applied a change. They validate some requests with their own state."""
    if isinstance(request, CreateTopicsRequest) and not request.validate_only:
        for created in response.topics:
            if created.error_code == 0:
                wait_for_topic(bootstrap_servers, created.name, max(created.num_partitions, 1))
    if isinstance(request, DeleteTopicsRequest):
        for deleted in response.responses:
            if deleted.error_code == 0:
                wait_for_no_topic(bootstrap_servers, deleted.name)

"""Metadata: the brokers, and the topics with their partitions, leaders and IDs."""

from __future__ import annotations

from typing import Any

from ...protocol.api import ApiKey
from ...protocol.errors import ErrorCode
from ...protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ...protocol.messages.describe_cluster import DescribeClusterRequest
from ...protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ...protocol.uuid import ZERO_UUID
from ..case import Layer, Level, case, needs, versions_of
from ..check import Check, Topic

NOT_REQUESTED = -(2**31)
# Bits by AclOperation: READ 3, WRITE 4, CREATE 5, DELETE 6, ALTER 7, DESCRIBE 8, CLUSTER_ACTION 9,
# DESCRIBE_CONFIGS 10, ALTER_CONFIGS 11, IDEMPOTENT_WRITE 12.
TOPIC_OPERATIONS = sum(1 << operation for operation in (3, 4, 5, 6, 7, 8, 10, 11))
CLUSTER_OPERATIONS = sum(1 << operation for operation in (5, 7, 8, 9, 10, 11, 12))
UNKNOWN_ID = bytes(range(50, 66))


def by_name(*names: str) -> list[MetadataRequestTopic]:
    return [MetadataRequestTopic(name=name) for name in names]


def by_id(*topic_ids: bytes) -> list[MetadataRequestTopic]:
    return [MetadataRequestTopic(topic_id=topic_id, name=None) for topic_id in topic_ids]


def metadata(c: Check, topics: list[MetadataRequestTopic] | None, version: int, **options: Any) -> Any:
    """The response; topics are never created by it, from version 4."""
    return c.call(MetadataRequest(topics=topics, allow_auto_topic_creation=version < 4, **options), version)


def same_topic(c: Check, found: Any, topic: Topic, partitions: int, version: int) -> None:
    """Compare the description of a topic that is led by the broker at the address."""
    node = c.target.node_id
    c.error(found.error_code, ErrorCode.NONE, "topics[0].error_code")
    c.equal(found.name, topic.name, "topics[0].name")
    c.equal(found.is_internal, False, "topics[0].is_internal")
    c.equal(found.topic_id, topic.topic_id if version >= 10 else ZERO_UUID, "topics[0].topic_id")
    ordered = sorted(found.partitions, key=lambda each: int(each.partition_index))
    if c.target.highest_version(ApiKey.CREATE_TOPICS) is None:
        partitions = max(partitions, len(ordered))  # Metadata has created the topic, with the server's number
    c.equal([each.partition_index for each in ordered], list(range(partitions)), "the partitions")
    for each in ordered:
        which = f"of partition {each.partition_index}"
        c.error(each.error_code, ErrorCode.NONE, f"error_code {which}")
        c.equal(each.leader_id, node, f"leader_id {which}")
        c.equal(each.replica_nodes, [node], f"replica_nodes {which}")
        c.equal(each.isr_nodes, [node], f"isr_nodes {which}")
        c.equal(each.offline_replicas, [], f"offline_replicas {which}")
        c.equal(each.leader_epoch, 0 if version >= 7 else -1, f"leader_epoch {which}")
    c.equal(found.topic_authorized_operations, NOT_REQUESTED, "topic_authorized_operations (not requested)")


@case(
    "metadata.exchange",
    "a topic is described with its partitions and their leader",
    source="Protocol: Metadata",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.METADATA),
)
def exchange(c: Check, version: int) -> None:
    """Sends: Metadata about a new topic with three partitions, created on the broker at the address.

    Expects: all brokers with their addresses; since version 1 a controller and since version 2 a cluster ID; the
    topic, not internal, with its ID since version 10; partitions 0 to 2, whose leader, replicas and in-sync replicas
    are this broker, with leader epoch 0 since version 7.

    Why: clients connect to the addresses, send requests to the leaders, and identify topics by their IDs.
    """
    topic = c.topic(3)
    response = metadata(c, by_name(topic.name), version)
    addresses = {
        each.node_id: f"[{each.host}]:{each.port}" if ":" in each.host else f"{each.host}:{each.port}"
        for each in response.brokers
    }
    c.equal(addresses, dict(c.target.brokers), "brokers")
    c.equal(len(response.brokers), len(addresses), "brokers (number; a broker must not occur twice)")
    if version >= 1:
        known = response.controller_id in addresses or response.controller_id == -1
        c.true(known, "controller_id", expected="one of the brokers, or -1", actual=response.controller_id)
    if version >= 2:
        c.equal(response.cluster_id, c.target.cluster_id, "cluster_id")
        c.true(response.cluster_id, "cluster_id", expected="a name", actual=response.cluster_id)
    if version >= 3:
        c.true(
            response.throttle_time_ms >= 0, "throttle_time_ms", expected="0 or more", actual=response.throttle_time_ms
        )
    if 8 <= version <= 10:
        c.equal(response.cluster_authorized_operations, NOT_REQUESTED, "cluster_authorized_operations (not requested)")
    if version >= 13:
        c.error(response.error_code, ErrorCode.NONE)
    c.equal(len(response.topics), 1, "topics (number)")
    same_topic(c, response.topics[0], topic, 3, version)


@case(
    "metadata.all-topics",
    "all topics, or none, are described",
    source="Protocol: Metadata",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.METADATA),
)
def all_topics(c: Check, version: int) -> None:
    """Sends: Metadata with topics null (in version 0 empty), and since version 1 with an empty list.

    Expects: null returns all topics, each once, among them two new ones with one and two partitions; the empty list
    returns no topics, and the brokers.

    Why: consumers with a pattern and admin clients list topics like this; many clients begin with an empty list.
    """
    one, two = c.topic(1), c.topic(2)
    everything = metadata(c, [] if version == 0 else None, version).topics
    names = [each.name for each in everything]
    c.equal(len(names), len(set(names)), "topics (a name must not occur twice)")
    found = {each.name: each for each in everything}
    for topic, partitions in ((one, 1), (two, 2)):
        c.true(topic.name in found, "topics", expected=f"{topic.name} among them", actual=names)
        same_topic(c, found[topic.name], topic, partitions, version)
    if version >= 1:
        nothing = metadata(c, [], version)
        c.equal(nothing.topics, [], "topics for an empty list")
        c.equal({each.node_id for each in nothing.brokers}, set(c.target.brokers), "brokers for an empty list")


@case(
    "metadata.unknown-topic",
    "a topic that does not exist has its own error",
    source="Protocol: Metadata",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.METADATA, 4),
)
def unknown_topic(c: Check, version: int) -> None:
    """Sends: Metadata about a topic that exists and one that does not, which must not be created.

    Expects: the existing one is described; the other has UNKNOWN_TOPIC_OR_PARTITION and no partitions; afterwards it
    still does not exist.

    Why: a missing topic must not hide the others, and is not created if the client forbids it (KIP-204).
    """
    topic, missing = c.topic(), c.topic_name("missing")
    for _ in range(2):
        response = metadata(c, by_name(missing, topic.name), version)
        found = {each.name: each for each in response.topics}
        c.equal(sorted(found), sorted([missing, topic.name]), "the names in topics")
        same_topic(c, found[topic.name], topic, 1, version)
        c.error(found[missing].error_code, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "error_code of the missing topic")
        c.equal(found[missing].partitions, [], "partitions of the missing topic")
        c.equal(found[missing].topic_id, ZERO_UUID, "topic_id of the missing topic")


@case(
    "metadata.invalid-name",
    "names that no topic can have are rejected",
    source="Protocol: Metadata",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.METADATA),
)
def invalid_name(c: Check, version: int) -> None:
    """Sends: Metadata about the names "not a name!", "", "." and a name of 250 letters.

    Expects: INVALID_TOPIC_EXCEPTION and no partitions for each of them.

    Why: clients retry after UNKNOWN_TOPIC_OR_PARTITION, and would do so forever.
    """
    names = ["not a name!", "", ".", "a" * 250]
    found = metadata(c, by_name(*names), version).topics
    c.equal(sorted(each.name for each in found), sorted(names), "the names in topics")
    for each in found:
        c.error(each.error_code, ErrorCode.INVALID_TOPIC_EXCEPTION, f"error_code of {each.name[:20]!r}")
        c.equal(each.partitions, [], f"partitions of {each.name[:20]!r}")


@case(
    "metadata.topic-id",
    "topics are described by their IDs",
    source="KIP-516",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.METADATA, 12),
)
def topic_id(c: Check, version: int) -> None:
    """Sends: Metadata about two topic IDs without names, one of which is unknown.

    Expects: the topic with its name and ID; for the other UNKNOWN_TOPIC_ID, the ID of the request, a null name and no
    partitions.

    Why: a consumer knows the ID that it was assigned, and looks up the name.
    """
    topic = c.topic(2)
    found = {each.topic_id: each for each in metadata(c, by_id(topic.topic_id, UNKNOWN_ID), version).topics}
    c.equal(set(found), {topic.topic_id, UNKNOWN_ID}, "the topic IDs in topics")
    same_topic(c, found[topic.topic_id], topic, 2, version)
    unknown = found[UNKNOWN_ID]
    c.error(unknown.error_code, ErrorCode.UNKNOWN_TOPIC_ID, "error_code of the unknown ID")
    c.equal(unknown.name, None, "name of the unknown ID")
    c.equal(unknown.partitions, [], "partitions of the unknown ID")


@case(
    "metadata.topic-id-too-early",
    "topic IDs in requests are rejected before version 12",
    source="KIP-516",
    layer=Layer.WIRE,
    level=Level.APACHE,
    versions=versions_of(ApiKey.METADATA, 10, 11),
)
def topic_id_too_early(c: Check, version: int) -> None:
    """Sends: Metadata version 10 or 11 about a topic ID with a null name; the fields exist, but were never supported.

    Expects: INVALID_REQUEST for the topic, and no partitions.

    Why: Apache Kafka could not process such requests before version 12.
    """
    topic = c.topic()
    (found,) = metadata(c, by_id(topic.topic_id), version).topics
    c.error(found.error_code, ErrorCode.INVALID_REQUEST, "topics[0].error_code")
    c.equal(found.partitions, [], "topics[0].partitions")


@case(
    "metadata.same-topic-twice",
    "a topic that is named twice is described once",
    source="Apache Kafka's behavior",
    layer=Layer.WIRE,
    level=Level.APACHE,
    needs=needs(ApiKey.METADATA, 12),
    variants={"name": (False,), "id": (True,)},
)
def same_topic_twice(c: Check, use_id: bool) -> None:
    """Sends: Metadata version 12 with the same topic twice, by name or by ID.

    Expects: one description of it.

    Why: clients put the entries into a map, and some count them.
    """
    topic = c.topic()
    twice = by_id(topic.topic_id, topic.topic_id) if use_id else by_name(topic.name, topic.name)
    found = metadata(c, twice, 12).topics
    c.equal([each.name for each in found], [topic.name], "the names in topics")
    same_topic(c, found[0], topic, 1, 12)


@case(
    "metadata.several-topics",
    "each topic has its own description",
    source="Protocol: Metadata",
    needs=needs(ApiKey.METADATA, 9),
)
def several_topics(c: Check) -> None:
    """Sends: Metadata about three of four new topics, which have one, two, three and four partitions.

    Expects: exactly these three, each with its own number of partitions and its own ID.

    Why: a client that gets the partitions of another topic sends records to partitions that do not exist.
    """
    version = c.version(ApiKey.METADATA)
    topics = [c.topic(number) for number in (1, 2, 3, 4)]
    requested = (topics[3], topics[0], topics[2])
    found = {each.name: each for each in metadata(c, by_name(*[each.name for each in requested]), version).topics}
    c.equal(sorted(found), sorted(each.name for each in requested), "the names in topics")
    for partitions, topic in ((4, topics[3]), (1, topics[0]), (3, topics[2])):
        same_topic(c, found[topic.name], topic, partitions, version)


@case(
    "metadata.topic-operations",
    "the allowed operations of a topic are returned if requested",
    source="KIP-430",
    layer=Layer.WIRE,
    level=Level.SHOULD,
    versions=versions_of(ApiKey.METADATA, 8),
)
def topic_operations(c: Check, version: int) -> None:
    """Sends: Metadata with include_topic_authorized_operations.

    Expects: bits for operations on topics only, among them DESCRIBE (8); all of them if nothing is forbidden.

    Why: admin clients show what their user may do.
    """
    topic = c.topic()
    response = metadata(c, by_name(topic.name), version, include_topic_authorized_operations=True)
    operations = response.topics[0].topic_authorized_operations
    if c.target.security.authenticate is None:
        c.equal(operations, TOPIC_OPERATIONS, "topics[0].topic_authorized_operations")
    else:
        usual = operations & ~TOPIC_OPERATIONS == 0 and operations & 1 << 8
        c.true(usual, "topics[0].topic_authorized_operations", expected="bits of topics, with 8", actual=operations)


@case(
    "metadata.cluster-operations",
    "the allowed operations of the cluster are returned if requested",
    source="KIP-430",
    layer=Layer.WIRE,
    level=Level.SHOULD,
    versions=versions_of(ApiKey.METADATA, 8, 10),
)
def cluster_operations(c: Check, version: int) -> None:
    """Sends: Metadata versions 8 to 10 with include_cluster_authorized_operations.

    Expects: bits for operations on the cluster only; all of them if nothing is forbidden.

    Why: admin clients show what their user may do.
    """
    operations = metadata(c, [], version, include_cluster_authorized_operations=True).cluster_authorized_operations
    if c.target.security.authenticate is None:
        c.equal(operations, CLUSTER_OPERATIONS, "cluster_authorized_operations")
    else:
        usual = operations >= 0 and operations & ~CLUSTER_OPERATIONS == 0
        c.true(usual, "cluster_authorized_operations", expected="bits of the cluster", actual=operations)


@case(
    "metadata.recreated-topic",
    "a topic that is created again has another ID",
    source="KIP-516",
    needs=needs(ApiKey.METADATA, 12, ApiKey.DELETE_TOPICS, 6),
)
def recreated_topic(c: Check) -> None:
    """Sends: DeleteTopics of a topic with two partitions, CreateTopics with the same name and three partitions, and
    Metadata by name and by both IDs.

    Expects: the name has a new ID and three partitions; the old ID is UNKNOWN_TOPIC_ID.

    Why: with the ID, clients notice that the old offsets do not belong to the new topic.
    """
    old = c.topic(2)
    with c.setup("deleting the topic"):
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=old.name)], timeout_ms=30_000)
        c.error(c.call(request, 6).responses[0].error_code, ErrorCode.NONE, "DeleteTopics error_code")
        missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        c.until(lambda: metadata(c, by_name(old.name), 12).topics[0].error_code == missing, "the end of the topic")
    new = c.topic(3, name=old.name)
    c.true(new.topic_id not in (old.topic_id, ZERO_UUID), "the new topic ID", expected="another", actual=new.topic_id)
    same_topic(c, metadata(c, by_name(old.name), 12).topics[0], new, 3, 12)
    found = {each.topic_id: each for each in metadata(c, by_id(old.topic_id, new.topic_id), 12).topics}
    c.equal(set(found), {old.topic_id, new.topic_id}, "the topic IDs in topics")
    c.error(found[old.topic_id].error_code, ErrorCode.UNKNOWN_TOPIC_ID, "error_code of the old ID")
    same_topic(c, found[new.topic_id], new, 3, 12)


@case(
    "metadata.internal-topic",
    "the topic of committed offsets is internal",
    source="Protocol: Metadata",
    level=Level.SHOULD,
    needs=needs(ApiKey.FIND_COORDINATOR, 0),
    versions=versions_of(ApiKey.METADATA, 1),
)
def internal_topic(c: Check, version: int) -> None:
    """Sends: FindCoordinator, with which servers create `__consumer_offsets`; then Metadata about it, and about a new
    topic.

    Expects: is_internal is true for the first, and false for the second.

    Why: consumers with a pattern and mirroring tools omit internal topics.
    """
    c.coordinator(c.name("group"))
    topic = c.topic()
    found = {each.name: each for each in metadata(c, by_name("__consumer_offsets", topic.name), version).topics}
    c.equal(sorted(found), sorted(["__consumer_offsets", topic.name]), "the names in topics")
    if found["__consumer_offsets"].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        c.not_applicable("the server has no topic __consumer_offsets")
    c.equal(found["__consumer_offsets"].is_internal, True, "is_internal of __consumer_offsets")
    same_topic(c, found[topic.name], topic, 1, version)


# DescribeCluster


@case(
    "metadata.describe-cluster.exchange",
    "the cluster is described with its brokers",
    source="KIP-700",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.DESCRIBE_CLUSTER),
)
def describe_cluster(c: Check, version: int) -> None:
    """Sends: DescribeCluster.

    Expects: no error, the cluster ID and the brokers of Metadata, one of them as controller; since version 1 the
    endpoint type of brokers (1); since version 2 no fenced brokers, because they were not requested; no operations.

    Why: admin clients take the addresses of brokers and the controller from this response.
    """
    response = c.call(DescribeClusterRequest(), version)
    c.error(response.error_code, ErrorCode.NONE)
    c.true(not response.error_message, "error_message", expected="none", actual=response.error_message)
    c.equal(response.cluster_id, c.target.cluster_id, "cluster_id")
    addresses = {
        each.broker_id: f"[{each.host}]:{each.port}" if ":" in each.host else f"{each.host}:{each.port}"
        for each in response.brokers
    }
    c.equal(addresses, dict(c.target.brokers), "brokers")
    c.equal(len(response.brokers), len(addresses), "brokers (number; a broker must not occur twice)")
    racks = {each.node_id: each.rack for each in metadata(c, [], c.version(ApiKey.METADATA)).brokers}
    c.equal({each.broker_id: each.rack for each in response.brokers}, racks, "the racks, compared with Metadata")
    c.true(response.controller_id in addresses, "controller_id", expected="a broker", actual=response.controller_id)
    c.equal(response.endpoint_type, 1, "endpoint_type")
    c.equal([each.broker_id for each in response.brokers if each.is_fenced], [], "fenced brokers")
    c.equal(response.cluster_authorized_operations, NOT_REQUESTED, "cluster_authorized_operations (not requested)")
    c.true(response.throttle_time_ms >= 0, "throttle_time_ms", expected="0 or more", actual=response.throttle_time_ms)


@case(
    "metadata.describe-cluster.operations",
    "DescribeCluster returns the allowed operations if requested",
    source="KIP-700",
    layer=Layer.WIRE,
    level=Level.SHOULD,
    versions=versions_of(ApiKey.DESCRIBE_CLUSTER),
)
def describe_cluster_operations(c: Check, version: int) -> None:
    """Sends: DescribeCluster with include_cluster_authorized_operations.

    Expects: bits for operations on the cluster only; all of them if nothing is forbidden.

    Why: admin clients show what their user may do.
    """
    request = DescribeClusterRequest(include_cluster_authorized_operations=True)
    operations = c.call(request, version).cluster_authorized_operations
    if c.target.security.authenticate is None:
        c.equal(operations, CLUSTER_OPERATIONS, "cluster_authorized_operations")
    else:
        usual = operations >= 0 and operations & ~CLUSTER_OPERATIONS == 0
        c.true(usual, "cluster_authorized_operations", expected="bits of the cluster", actual=operations)


@case(
    "metadata.describe-cluster.endpoint-type",
    "a broker rejects questions for the endpoints of controllers",
    source="KIP-919",
    layer=Layer.WIRE,
    level=Level.SHOULD,
    versions=versions_of(ApiKey.DESCRIBE_CLUSTER, 1),
    variants={
        "controllers": (2, ErrorCode.MISMATCHED_ENDPOINT_TYPE),
        "0": (0, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
        "3": (3, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
    },
)
def endpoint_type(c: Check, version: int, kind: int, expected: ErrorCode) -> None:
    """Sends: DescribeCluster to a broker for the endpoint type of controllers (2), and for types that do not exist.

    Expects: MISMATCHED_ENDPOINT_TYPE or UNSUPPORTED_ENDPOINT_TYPE, with a message and without brokers.

    Why: an admin client that was given the address of a broker as that of a controller reports it to its user.
    """
    response = c.call(DescribeClusterRequest(endpoint_type=kind), version)
    c.error(response.error_code, expected)
    c.true(response.error_message, "error_message", expected="a reason", actual=response.error_message)
    c.equal(response.brokers, [], "brokers")

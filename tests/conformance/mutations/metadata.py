"""Defects of Metadata, DescribeTopicPartitions, DescribeCluster and FindCoordinator."""

from __future__ import annotations

from typing import Any

from moldau.protocol.api import ApiKey
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.metadata import MetadataRequestTopic

from ..mutating_proxy import Exchange, Mutation
from .changes import (
    ZERO_ID,
    always,
    another_id,
    apply,
    becomes,
    each,
    empty,
    in_request,
    in_response,
    inverted,
    last_twice,
    plus,
    shifted,
    upper,
    without_last,
)

METADATA, PARTITIONS = ApiKey.METADATA, ApiKey.DESCRIBE_TOPIC_PARTITIONS
CLUSTER, COORDINATOR = ApiKey.DESCRIBE_CLUSTER, ApiKey.FIND_COORDINATOR


def _all_topics_for_none(exchange: Exchange, request: Any) -> None:
    """An empty list is taken for null, as in version 0."""
    if exchange.version >= 1 and request.topics == []:
        request.topics = None


def _no_topics_for_all(exchange: Exchange, request: Any) -> None:
    if exchange.version >= 1 and request.topics is None:
        request.topics = []


def _all_topics(exchange: Exchange, request: Any) -> None:
    if request.topics:
        request.topics = None


def _by_name_only(exchange: Exchange, request: Any) -> None:
    request.topics = [
        MetadataRequestTopic(name=topic.name or "unknown") if any(topic.topic_id) else topic
        for topic in request.topics or []
    ]


def _names_swapped(exchange: Exchange, response: Any) -> None:
    """Each topic has the partitions of another topic."""
    partitions = [topic.partitions for topic in response.topics]
    for topic, others in zip(response.topics, partitions[::-1], strict=True):
        topic.partitions = others


def _partition_errors(exchange: Exchange, response: Any) -> None:
    for topic in response.topics:
        if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            topic.error_code = ErrorCode.LEADER_NOT_AVAILABLE


def _unknown_topics_missing(exchange: Exchange, response: Any) -> None:
    response.topics = [topic for topic in response.topics if not topic.error_code]


def _without_cursor(exchange: Exchange, response: Any) -> None:
    response.next_cursor = None


def _coordinators(field: str, change: Any) -> Any:
    """The fields of version 4 and later are those of an array."""

    def on_response(exchange: Exchange, response: Any) -> None:
        apply(response, f"coordinators.{field}" if exchange.version >= 4 else field, change)

    return on_response


def _group_for_transaction(exchange: Exchange, request: Any) -> None:
    request.key_type = 0


def _last_key_missing(exchange: Exchange, response: Any) -> None:
    response.coordinators = response.coordinators[:-1]


def _keys_swapped(exchange: Exchange, response: Any) -> None:
    keys = [each.key for each in response.coordinators]
    for coordinator, key in zip(response.coordinators, keys[::-1], strict=True):
        coordinator.key = key


def _coordinator_error_hidden(exchange: Exchange, response: Any) -> None:
    for found in response.coordinators if exchange.version >= 4 else [response]:
        found.error_code = 0


def _without_last_replica(exchange: Exchange, response: Any) -> None:
    for partition in each(response, "topics.partitions"):
        partition.replica_nodes = partition.replica_nodes[:-1]


METADATA_MUTATIONS = [
    in_response(
        "metadata.topic-id.zero", "topics have no ID from version 10 on",
        METADATA, "topics.topic_id", always(ZERO_ID), "metadata.topic-id",
    ),
    in_response(
        "metadata.topic-id.other", "topics have the ID of another topic",
        METADATA, "topics.topic_id", another_id,
        "metadata.exchange", "metadata.created-topic", "metadata.describe-cluster",
    ),
    in_response(
        "metadata.topic.name", "names of topics are in upper case",
        METADATA, "topics.name", upper, "metadata.exchange", "metadata.created-topic", "metadata.describe-cluster",
    ),
    in_response(
        "metadata.topic.internal", "each topic is internal",
        METADATA, "topics.is_internal", inverted,
        "metadata.exchange", "metadata.created-topic", "metadata.describe-cluster",
    ),
    in_response(
        "metadata.topic.operations", "topics have authorized operations that the request does not ask for",
        METADATA, "topics.topic_authorized_operations", becomes({-0x80000000: 0}),
        "metadata.exchange", "metadata.created-topic", "metadata.describe-cluster",
    ),
    in_request(
        "metadata.topic.operations-missing", "include_topic_authorized_operations is ignored",
        METADATA, "include_topic_authorized_operations", always(False), "metadata.topic-operations",
    ),
    in_request(
        "metadata.cluster.operations-missing", "include_cluster_authorized_operations is ignored",
        METADATA, "include_cluster_authorized_operations", always(False), "metadata.cluster-operations",
    ),
    in_response(
        "metadata.leader.none", "partitions have no leader",
        METADATA, "topics.partitions.leader_id", always(-1),
        "metadata.exchange", "metadata.created-topic", "metadata.describe-cluster",
    ),
    in_response(
        "metadata.leader.other", "the leader of partitions is another broker",
        METADATA, "topics.partitions.leader_id", plus(1),
        "metadata.exchange", "metadata.created-topic", "metadata.describe-cluster",
    ),
    in_response(
        "metadata.leader-epoch.missing", "partitions have no leader epoch from version 7 on",
        METADATA, "topics.partitions.leader_epoch", always(-1),
        "metadata.exchange", "metadata.created-topic", "metadata.describe-cluster",
    ),
    in_response(
        "metadata.leader-epoch.plus-one", "the leader epoch of partitions is one too high",
        METADATA, "topics.partitions.leader_epoch", plus(1),
        "metadata.exchange", "metadata.created-topic", "metadata.describe-cluster",
    ),
    in_response(
        "metadata.replicas.missing", "partitions have no replicas",
        METADATA, "topics.partitions.replica_nodes", empty,
        "metadata.exchange", "metadata.created-topic", "metadata.describe-cluster",
    ),
    in_response(
        "metadata.isr.missing", "partitions have no in-sync replicas",
        METADATA, "topics.partitions.isr_nodes", empty,
        "metadata.exchange", "metadata.created-topic", "metadata.describe-cluster",
    ),
    in_response(
        "metadata.offline", "partitions have offline replicas",
        METADATA, "topics.partitions.offline_replicas", always([0]),
        "metadata.exchange", "metadata.created-topic", "metadata.describe-cluster",
    ),
    in_response(
        "metadata.partition.missing", "the last partition is missing",
        METADATA, "topics.partitions", lambda old: old[:-1] if len(old) > 1 else old, "metadata.created-topic",
    ),
    in_response(
        "metadata.partition.twice", "the last partition is listed twice",
        METADATA, "topics.partitions", last_twice, "metadata.created-topic",
    ),
    in_response(
        "metadata.partition.from-one", "the numbers of partitions start with 1",
        METADATA, "topics.partitions.partition_index", plus(1),
        "metadata.exchange", "metadata.created-topic", "metadata.describe-cluster",
    ),
    in_response(
        "metadata.partition.error", "partitions have an error",
        METADATA, "topics.partitions.error_code", always(ErrorCode.LEADER_NOT_AVAILABLE),
        "metadata.exchange", "metadata.created-topic", "metadata.describe-cluster",
    ),
    in_response(
        "metadata.unknown.hidden", "an unknown topic has no error",
        METADATA, "topics.error_code", becomes({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: 0}), "metadata.unknown-topic",
    ),
    Mutation(
        "metadata.unknown.other", "an unknown topic has the error of a topic without leaders",
        ("metadata.unknown-topic",), (METADATA,), on_response=_partition_errors,
    ),
    Mutation(
        "metadata.unknown.missing", "topics with an error are missing",
        ("metadata.unknown-topic",), (METADATA,), on_response=_unknown_topics_missing,
    ),
    in_response(
        "metadata.unknown-id.hidden", "an unknown topic ID has no error",
        METADATA, "topics.error_code", becomes({ErrorCode.UNKNOWN_TOPIC_ID: 0}), "metadata.topic-id",
    ),
    in_response(
        "metadata.invalid-name", "an invalid name has the error of an unknown topic",
        METADATA, "topics.error_code",
        becomes({ErrorCode.INVALID_TOPIC_EXCEPTION: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}), "metadata.invalid-name",
    ),
    Mutation(
        "metadata.by-id", "topics cannot be requested by ID",
        ("metadata.topic-id",), (METADATA,), on_request=_by_name_only,
    ),
    Mutation(
        "metadata.none-is-all", "a request without topics has all topics as its response",
        ("metadata.all-topics", "metadata.several-topics", "metadata.exchange"),
        (METADATA,), on_request=_all_topics_for_none,
    ),
    Mutation(
        "metadata.all-is-none", "a request for all topics has none as its response",
        ("metadata.all-topics", "metadata.several-topics", "metadata.exchange"),
        (METADATA,), on_request=_no_topics_for_all,
    ),
    Mutation(
        "metadata.names-ignored", "the names of a request are ignored, and all topics are returned",
        ("metadata.all-topics", "metadata.several-topics", "metadata.exchange"), (METADATA,), on_request=_all_topics,
    ),
    Mutation(
        "metadata.topics-swapped", "two topics have the partitions of each other",
        ("metadata.several-topics", "metadata.all-topics"), (METADATA,), on_response=_names_swapped,
    ),
    in_request(
        "metadata.auto-creation.always", "an unknown topic is created although the request forbids it",
        METADATA, "allow_auto_topic_creation", always(True), "metadata.unknown-topic",
    ),
    in_request(
        "metadata.auto-creation.never", "allow_auto_topic_creation is ignored",
        METADATA, "allow_auto_topic_creation", always(False), "metadata.auto-creation", versions=range(4, 14),
    ),
    in_response(
        "metadata.cluster-id.missing", "there is no cluster ID",
        METADATA, "cluster_id", always(None),
        "metadata.exchange", "metadata.created-topic", "metadata.describe-cluster",
    ),
    in_response(
        "metadata.cluster-id.empty", "the cluster ID is empty",
        METADATA, "cluster_id", always(""), "metadata.exchange", "metadata.created-topic", "metadata.describe-cluster",
    ),
    in_response(
        "metadata.controller.unknown", "the controller is not one of the brokers",
        METADATA, "controller_id", plus(1000),
        "metadata.exchange", "metadata.created-topic", "metadata.describe-cluster",
    ),
    in_response(
        "metadata.brokers.port", "the ports of brokers are one too high",
        METADATA, "brokers.port", plus(1), "metadata.exchange", "metadata.created-topic", "metadata.describe-cluster",
    ),
    in_response(
        "metadata.brokers.missing", "the last broker is missing",
        METADATA, "brokers", without_last, "metadata.exchange", "metadata.created-topic", "metadata.describe-cluster",
    ),
    in_response(
        "metadata.brokers.host", "the hosts of brokers are empty",
        METADATA, "brokers.host", always(""),
        "metadata.exchange", "metadata.created-topic", "metadata.describe-cluster",
    ),
]  # fmt: skip

TOPIC_PARTITION_MUTATIONS = [
    in_request(
        "topic-partitions.limit", "response_partition_limit is ignored",
        PARTITIONS, "response_partition_limit", always(2000), "metadata.topic-partitions",
    ),
    in_request(
        "topic-partitions.cursor.ignored", "the cursor of a request is ignored",
        PARTITIONS, "cursor", always(None), "metadata.topic-partitions",
    ),
    Mutation(
        "topic-partitions.cursor.missing", "the response has no cursor",
        ("metadata.topic-partitions",), (PARTITIONS,), on_response=_without_cursor,
    ),
    in_response(
        "topic-partitions.cursor.partition", "the partition of the cursor is one too high",
        PARTITIONS, "next_cursor.partition_index", plus(1), "metadata.topic-partitions",
    ),
    in_response(
        "topic-partitions.topic-id", "topics have no ID",
        PARTITIONS, "topics.topic_id", always(ZERO_ID), "metadata.topic-partitions",
    ),
    in_response(
        "topic-partitions.unknown", "an unknown topic has no error",
        PARTITIONS, "topics.error_code", becomes({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: 0}),
        "metadata.topic-partitions",
    ),
    in_response(
        "topic-partitions.partition", "the last partition is missing",
        PARTITIONS, "topics.partitions", without_last, "metadata.topic-partitions",
    ),
    in_response(
        "topic-partitions.leader", "the leader of partitions is another broker",
        PARTITIONS, "topics.partitions.leader_id", plus(1), "metadata.topic-partitions",
    ),
    in_response(
        "topic-partitions.leader-epoch", "partitions have no leader epoch",
        PARTITIONS, "topics.partitions.leader_epoch", always(-1), "metadata.topic-partitions",
    ),
    in_response(
        "topic-partitions.isr", "the in-sync replicas are other brokers",
        PARTITIONS, "topics.partitions.isr_nodes", shifted, "metadata.topic-partitions",
    ),
    Mutation(
        "topic-partitions.replicas", "the last replica is missing",
        ("metadata.topic-partitions",), (PARTITIONS,), on_response=_without_last_replica,
    ),
]  # fmt: skip

CLUSTER_MUTATIONS = [
    in_response(
        "cluster.cluster-id", "DescribeCluster has another cluster ID than Metadata",
        CLUSTER, "cluster_id", upper, "metadata.describe-cluster",
    ),
    in_response(
        "cluster.controller", "the controller is not one of the brokers",
        CLUSTER, "controller_id", plus(1000), "metadata.describe-cluster",
    ),
    in_response(
        "cluster.brokers.missing", "the last broker is missing",
        CLUSTER, "brokers", without_last, "metadata.describe-cluster",
    ),
    in_response(
        "cluster.brokers.port", "the ports of brokers are one too high",
        CLUSTER, "brokers.port", plus(1), "metadata.describe-cluster",
    ),
    in_response(
        "cluster.brokers.id", "the IDs of brokers are one too high",
        CLUSTER, "brokers.broker_id", plus(1), "metadata.describe-cluster",
    ),
    in_response(
        "cluster.brokers.fenced", "running brokers are fenced in version 2",
        CLUSTER, "brokers.is_fenced", always(True), "metadata.describe-cluster",
    ),
    in_response(
        "cluster.operations", "there are authorized operations that the request does not ask for",
        CLUSTER, "cluster_authorized_operations", becomes({-0x80000000: 0}), "metadata.describe-cluster",
    ),
    in_request(
        "cluster.operations.missing", "include_cluster_authorized_operations is ignored",
        CLUSTER, "include_cluster_authorized_operations", always(False), "metadata.describe-cluster",
    ),
    in_response(
        "cluster.endpoint-type.other", "the endpoint type of the response is that of controllers",
        CLUSTER, "endpoint_type", becomes({1: 2}), "metadata.describe-cluster",
    ),
    in_request(
        "cluster.endpoint-type.ignored", "the endpoint type of a request is ignored",
        CLUSTER, "endpoint_type", always(1), "metadata.describe-cluster",
    ),
]  # fmt: skip

COORDINATOR_MUTATIONS = [
    Mutation(
        "coordinator.node", "the coordinator is not one of the brokers",
        ("groups.find-coordinator", "transactions.find-coordinator"),
        (COORDINATOR,), on_response=_coordinators("node_id", plus(1)),
    ),
    Mutation(
        "coordinator.port", "the coordinator has another port",
        ("groups.find-coordinator", "transactions.find-coordinator"),
        (COORDINATOR,), on_response=_coordinators("port", plus(1)),
    ),
    Mutation(
        "coordinator.host", "the coordinator has no host",
        ("groups.find-coordinator", "transactions.find-coordinator"),
        (COORDINATOR,), on_response=_coordinators("host", always("")),
    ),
    Mutation(
        "coordinator.error-message", "a success has an error message",
        ("groups.find-coordinator", "transactions.find-coordinator"),
        (COORDINATOR,), on_response=_coordinators("error_message", always("NONE!")),
    ),
    Mutation(
        "coordinator.key", "the keys of two coordinators are swapped",
        ("groups.find-coordinator", "transactions.find-coordinator"), (COORDINATOR,), on_response=_keys_swapped,
    ),
    Mutation(
        "coordinator.key-missing", "the last of the requested keys is missing",
        ("groups.find-coordinator", "transactions.find-coordinator"), (COORDINATOR,), on_response=_last_key_missing,
    ),
    Mutation(
        "coordinator.error-hidden", "errors are hidden",
        ("groups.find-coordinator", "transactions.find-coordinator"),
        (COORDINATOR,), on_response=_coordinator_error_hidden,
    ),
    Mutation(
        "coordinator.key-type", "the key type is ignored: each key is that of a group",
        ("groups.find-coordinator", "transactions.find-coordinator"), (COORDINATOR,), on_request=_group_for_transaction,
    ),
]  # fmt: skip

MUTATIONS = METADATA_MUTATIONS + TOPIC_PARTITION_MUTATIONS + CLUSTER_MUTATIONS + COORDINATOR_MUTATIONS

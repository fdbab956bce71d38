"""What all brokers of a cluster have to agree on, and requests that any of them accepts."""

from __future__ import annotations

from typing import Any

from ...protocol.api import ApiKey
from ...protocol.errors import ErrorCode
from ...protocol.messages.api_versions import ApiVersionsRequest
from ...protocol.messages.create_partitions import CreatePartitionsRequest
from ...protocol.messages.create_topics import CreateTopicsRequest
from ...protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ...protocol.messages.describe_cluster import DescribeClusterRequest
from ...protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from ...protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from .. import configs as k
from .. import topic_admin as t
from ..case import Layer, Level, case, needs, versions_of
from ..check import Check, Topic
from ..target import CLIENT_ID


def metadata_from(c: Check, node_id: int, topic: Topic, version: int) -> Any:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic.name)], allow_auto_topic_creation=version < 4)
    return c.call(request, version, to=c.to_broker(node_id))


@case(
    "brokers.metadata.same",
    "all brokers have the same metadata",
    source="Protocol: Metadata",
    layer=Layer.CLUSTER,
    versions=versions_of(ApiKey.METADATA, 1),
)
def metadata(c: Check, version: int) -> None:
    """Sends: Metadata of a topic with a partition on each broker, to each broker.

    Expects: from each the same brokers with their addresses, the cluster ID, and the topic with its ID, leaders, leader
    epochs, replicas and in-sync replicas.

    Why: clients send each request for metadata to another broker, and use the latest response.
    """
    leaders = list(c.target.brokers)
    topic = c.topic(len(leaders), leaders=leaders)
    found = {}
    for node_id in leaders:
        response = metadata_from(c, node_id, topic, version)
        (described,) = response.topics
        c.error(described.error_code, ErrorCode.NONE, f"error_code from broker {node_id}")
        partitions = sorted(
            (each.partition_index, each.leader_id, each.leader_epoch, each.replica_nodes, each.isr_nodes)
            for each in described.partitions
        )
        brokers = {each.node_id: f"{each.host}:{each.port}" for each in response.brokers}
        found[node_id] = brokers, response.cluster_id, described.topic_id, partitions
    brokers, _, _, partitions = found[c.target.node_id]
    c.equal(brokers, dict(c.target.brokers), "brokers (node_id, host and port)")
    placed = [(index, leader, [leader], [leader]) for index, leader in enumerate(leaders)]
    actual = [(index, leader, replicas, isr) for index, leader, _, replicas, isr in partitions]
    c.equal(actual, placed, "partitions (index, leader, replicas, in-sync replicas)")
    for node_id in c.target.other_ids:
        c.equal(found[node_id], found[c.target.node_id], f"brokers, cluster ID, topic ID and partitions from {node_id}")


@case(
    "brokers.describe-cluster.same",
    "all brokers describe the same cluster",
    source="KIP-700",
    layer=Layer.CLUSTER,
    versions=versions_of(ApiKey.DESCRIBE_CLUSTER),
)
def describe_cluster(c: Check, version: int) -> None:
    """Sends: DescribeCluster to each broker.

    Expects: from each the same cluster ID and brokers with their addresses; the controller is one of them.

    Why: tools and clients that rebootstrap take one broker's response for the whole cluster.
    """
    for node_id in c.target.brokers:
        response = c.call(DescribeClusterRequest(), version, to=c.to_broker(node_id))
        c.error(response.error_code, ErrorCode.NONE)
        found = {each.broker_id: f"{each.host}:{each.port}" for each in response.brokers}
        c.equal(found, dict(c.target.brokers), f"brokers according to broker {node_id}")
        c.equal(response.cluster_id, c.target.cluster_id, f"cluster_id according to broker {node_id}")
        c.true(
            response.controller_id in found,
            "controller_id",
            expected="one of the brokers",
            actual=response.controller_id,
        )


@case(
    "brokers.topic-partitions.same",
    "all brokers describe the same partitions",
    source="KIP-966",
    layer=Layer.CLUSTER,
    versions=versions_of(ApiKey.DESCRIBE_TOPIC_PARTITIONS),
)
def topic_partitions(c: Check, version: int) -> None:
    """Sends: DescribeTopicPartitions of a topic with a partition on each broker, to each broker.

    Expects: from each the same topic ID, leaders, leader epochs, replicas and in-sync replicas.

    Why: `kafka-topics --describe` asks any broker.
    """
    leaders = list(c.target.brokers)
    topic = c.topic(len(leaders), leaders=leaders)
    for node_id in leaders:
        request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name=topic.name)])
        (described,) = c.call(request, version, to=c.to_broker(node_id)).topics
        c.error(described.error_code, ErrorCode.NONE, f"error_code from broker {node_id}")
        c.equal(described.topic_id, topic.topic_id, f"topic_id from broker {node_id}")
        found = [
            (each.partition_index, each.leader_id, each.leader_epoch, each.replica_nodes, each.isr_nodes)
            for each in described.partitions
        ]
        placed = [(index, leader, 0, [leader], [leader]) for index, leader in enumerate(leaders)]
        c.equal(found, placed, f"partitions (index, leader, epoch, replicas, in-sync) from broker {node_id}")


@case(
    "brokers.features.same",
    "all brokers have the same finalized features",
    source="KIP-584",
    layer=Layer.CLUSTER,
    level=Level.SHOULD,
    versions=versions_of(ApiKey.API_VERSIONS, 3),
)
def features(c: Check, version: int) -> None:
    """Sends: ApiVersions to each broker.

    Expects: the same finalized features with the same levels.

    Why: a client chooses protocols, such as that of its transactions, by the features of any broker.
    """
    for node_id in c.target.brokers:
        request = ApiVersionsRequest(client_software_name=CLIENT_ID, client_software_version="1")
        response = c.call(request, version, to=c.to_broker(node_id))
        found = {each.name: each.max_version_level for each in response.finalized_features}
        c.equal(found, dict(c.target.features), f"finalized_features of broker {node_id}")


@case(
    "brokers.admin.any",
    "topics are created, changed and deleted through any broker",
    source="KIP-590",
    layer=Layer.CLUSTER,
    needs=needs(
        ApiKey.CREATE_TOPICS,
        2,
        ApiKey.CREATE_PARTITIONS,
        0,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        0,
        ApiKey.DELETE_TOPICS,
        1,
    ),
)
def admin(c: Check) -> None:
    """Sends: to each broker CreateTopics, CreatePartitions, IncrementalAlterConfigs and DeleteTopics of a topic; after
    each change Metadata or DescribeConfigs to all brokers.

    Expects: no errors; all brokers have each change after a while.

    Why: an administrator's client does not know which broker is the controller.
    """
    for node_id in c.target.brokers:
        wire = c.to_broker(node_id)
        name = c.topic_name()
        wanted = t.creatable(name, -1, -1, assignments={0: [node_id]})
        (created,) = c.call(CreateTopicsRequest(topics=[wanted], timeout_ms=t.TIMEOUT_MS), to=wire).topics
        c.error(created.error_code, ErrorCode.NONE, f"CreateTopics error_code of broker {node_id}")
        topic = c.topic_ready(name)
        c.known_everywhere(topic)

        more = t.partitions_topic(name, 2, [[c.target.node_id]])
        (changed,) = c.call(CreatePartitionsRequest(topics=[more], timeout_ms=t.TIMEOUT_MS), to=wire).results
        c.error(changed.error_code, ErrorCode.NONE, f"CreatePartitions error_code of broker {node_id}")
        c.known_everywhere(topic, 2)

        resource = k.Resource(k.TOPIC, name)
        altered = k.alter(c, resource, ("retention.ms", k.SET, "1234567"), to=wire)
        c.error(altered.error_code, ErrorCode.NONE, f"IncrementalAlterConfigs error_code of broker {node_id}")
        for other in c.target.brokers:
            c.until(
                lambda other=other, resource=resource: _retention(c, resource, other) == "1234567",  # type: ignore[misc]
                f"the changed retention.ms at broker {other}",
            )

        version = c.version(ApiKey.DELETE_TOPICS)
        request = DeleteTopicsRequest(timeout_ms=t.TIMEOUT_MS)
        if version >= t.DELETE_BY_ID:
            request.topics = [DeleteTopicState(name=name)]
        else:
            request.topic_names = [name]
        (deleted,) = c.call(request, version, to=wire).responses
        c.error(deleted.error_code, ErrorCode.NONE, f"DeleteTopics error_code of broker {node_id}")
        for other in c.target.brokers:
            c.until(
                lambda other=other, topic=topic: _is_missing(c, topic, other),  # type: ignore[misc]
                f"the deletion of the topic at broker {other}",
            )


def _retention(c: Check, resource: k.Resource, node_id: int) -> str | None:
    described = k.describe(c, resource, ["retention.ms"], to=c.to_broker(node_id))
    return next((each.value for each in described.configs), None)


def _is_missing(c: Check, topic: Topic, node_id: int) -> bool:
    (found,) = metadata_from(c, node_id, topic, c.version(ApiKey.METADATA)).topics
    return bool(found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


@case(
    "brokers.configs.other",
    "only a broker itself describes and changes its configs",
    source="KIP-226",
    layer=Layer.CLUSTER,
    level=Level.SHOULD,
    needs=needs(ApiKey.DESCRIBE_CONFIGS, 1, ApiKey.ALTER_CONFIGS, 0, ApiKey.INCREMENTAL_ALTER_CONFIGS, 0),
)
def configs(c: Check) -> None:
    """Sends: DescribeConfigs, IncrementalAlterConfigs and AlterConfigs (dry runs) for another broker of the cluster.

    Expects: INVALID_REQUEST with a message for each; the broker itself accepts the request.

    Why: each broker knows only its own static settings, and could neither show nor check those of another one.
    """
    other = c.target.other_ids[0]
    resource = k.Resource(k.BROKER, str(other))
    change = ("log.retention.ms", k.SET, "3600000")
    results = {
        "DescribeConfigs": k.describe(c, resource),
        "IncrementalAlterConfigs": k.alter(c, resource, change, validate_only=True),
        "AlterConfigs": k.replace(c, resource, {"log.retention.ms": "3600000"}, validate_only=True),
    }
    for api, result in results.items():
        c.error(result.error_code, ErrorCode.INVALID_REQUEST, f"{api} error_code")
        c.true(result.error_message, f"{api} error_message", expected="a message", actual=result.error_message)
    own = k.describe(c, resource, ["node.id"], to=c.to_broker(other))
    c.error(own.error_code, ErrorCode.NONE, "DescribeConfigs error_code of the broker itself")
    c.equal([each.value for each in own.configs], [str(other)], "its node.id")

"""One request of each API that changes nothing, and whose response depends only on the request.

For cases about headers and framing, which send the same request twice in two forms and compare the responses. Requests
that would change something are about a name that does not exist, or only validate.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from ..protocol.api import ApiKey
from ..protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from ..protocol.messages.alter_configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
from ..protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ..protocol.messages.api_versions import ApiVersionsRequest
from ..protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from ..protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ..protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ..protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ..protocol.messages.delete_groups import DeleteGroupsRequest
from ..protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ..protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ..protocol.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from ..protocol.messages.describe_cluster import DescribeClusterRequest
from ..protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ..protocol.messages.describe_groups import DescribeGroupsRequest
from ..protocol.messages.describe_producers import DescribeProducersRequest
from ..protocol.messages.describe_producers import TopicRequest as ProducersTopic
from ..protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from ..protocol.messages.describe_transactions import DescribeTransactionsRequest
from ..protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from ..protocol.messages.end_txn import EndTxnRequest
from ..protocol.messages.find_coordinator import FindCoordinatorRequest
from ..protocol.messages.heartbeat import HeartbeatRequest
from ..protocol.messages.incremental_alter_configs import AlterableConfig as IncrementalConfig
from ..protocol.messages.incremental_alter_configs import AlterConfigsResource as IncrementalResource
from ..protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from ..protocol.messages.init_producer_id import InitProducerIdRequest
from ..protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ..protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from ..protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ..protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from ..protocol.messages.list_transactions import ListTransactionsRequest
from ..protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ..protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ..protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from ..protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ..protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ..protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from ..protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ..protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from ..protocol.schema import Request
from .check import Topic
from .partitions import fetch_request
from .record_batches import batch

TOPIC_RESOURCE: Final = 2


class Scene(NamedTuple):
    """What the requests are about."""

    topic: Topic
    """It has one partition, and one record in it."""
    missing: Topic
    """It does not exist."""
    group: str
    """A group or transactional ID without members, offsets and transactions."""


class Harmless(NamedTuple):
    request: Callable[[Scene, int], Request]
    """The request for a version."""
    lowest: int
    """The first flexible version."""
    coordinator: int | None = None
    """The kind of the coordinator that it must be sent to (0: group, 1: transaction)."""


def _produce(scene: Scene, version: int) -> Request:
    data = PartitionProduceData(index=0, records=batch(b"value", timestamp=1_700_000_000_000))
    identity: dict[str, Any] = {"topic_id": scene.missing.topic_id} if version >= 13 else {"name": scene.missing.name}
    return ProduceRequest(acks=-1, timeout_ms=5_000, topic_data=[TopicProduceData(partition_data=[data], **identity)])


def _list_offsets(scene: Scene, version: int) -> Request:
    partition = ListOffsetsPartition(partition_index=0, timestamp=-1)
    return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=scene.topic.name, partitions=[partition])])


def _offset_commit(scene: Scene, version: int) -> Request:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
    identity: dict[str, Any] = {"topic_id": scene.topic.topic_id} if version >= 10 else {"name": scene.topic.name}
    topic = OffsetCommitRequestTopic(partitions=[partition], **identity)
    return OffsetCommitRequest(
        group_id=scene.group, generation_id_or_member_epoch=5, member_id="no-such-member", topics=[topic]
    )


def _offset_fetch(scene: Scene, version: int) -> Request:
    identity: dict[str, Any] = {"topic_id": scene.topic.topic_id} if version >= 10 else {"name": scene.topic.name}
    topic = OffsetFetchRequestTopics(partition_indexes=[0], **identity)
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=scene.group, topics=[topic])])


def _find_coordinator(scene: Scene, version: int) -> Request:
    if version >= 4:
        return FindCoordinatorRequest(coordinator_keys=[scene.group])
    return FindCoordinatorRequest(key=scene.group)


def _join_group(scene: Scene, version: int) -> Request:
    return JoinGroupRequest(
        group_id=scene.group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id="no-such-member",
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )


def _sync_group(scene: Scene, version: int) -> Request:
    assignment = SyncGroupRequestAssignment(member_id="no-such-member", assignment=b"")
    return SyncGroupRequest(group_id=scene.group, generation_id=1, member_id="no-such-member", assignments=[assignment])


def _create_topics(scene: Scene, version: int) -> Request:
    config = CreatableTopicConfig(name="retention.ms", value="1000")
    topic = CreatableTopic(name=scene.topic.name, num_partitions=1, replication_factor=1, configs=[config])
    return CreateTopicsRequest(topics=[topic], timeout_ms=20_000, validate_only=True)


def _delete_topics(scene: Scene, version: int) -> Request:
    if version >= 6:
        return DeleteTopicsRequest(topics=[DeleteTopicState(name=scene.missing.name)], timeout_ms=20_000)
    return DeleteTopicsRequest(topic_names=[scene.missing.name], timeout_ms=20_000)


def _delete_records(scene: Scene, version: int) -> Request:
    partition = DeleteRecordsPartition(partition_index=0, offset=0)
    topic = DeleteRecordsTopic(name=scene.topic.name, partitions=[partition])
    return DeleteRecordsRequest(topics=[topic], timeout_ms=20_000)


def _offset_for_leader_epoch(scene: Scene, version: int) -> Request:
    partition = OffsetForLeaderPartition(partition=0, leader_epoch=0)
    topic = OffsetForLeaderTopic(topic=scene.topic.name, partitions=[partition])
    return OffsetForLeaderEpochRequest(replica_id=-1, topics=[topic])


def _txn_offset_commit(scene: Scene, version: int) -> Request:
    partition = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
    topic = TxnOffsetCommitRequestTopic(name=scene.missing.name, partitions=[partition])
    return TxnOffsetCommitRequest(
        transactional_id=scene.group,
        group_id=scene.group,
        producer_id=4_000_000_000,
        producer_epoch=0,
        topics=[topic],
    )


def _describe_configs(scene: Scene, version: int) -> Request:
    resource = DescribeConfigsResource(
        resource_type=TOPIC_RESOURCE, resource_name=scene.topic.name, configuration_keys=["retention.ms"]
    )
    return DescribeConfigsRequest(resources=[resource])


def _alter_configs(scene: Scene, version: int) -> Request:
    config = AlterableConfig(name="retention.ms", value="1000")
    resource = AlterConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=scene.topic.name, configs=[config])
    return AlterConfigsRequest(resources=[resource], validate_only=True)


def _incremental_alter_configs(scene: Scene, version: int) -> Request:
    config = IncrementalConfig(name="retention.ms", config_operation=0, value="1000")
    resource = IncrementalResource(resource_type=TOPIC_RESOURCE, resource_name=scene.topic.name, configs=[config])
    return IncrementalAlterConfigsRequest(resources=[resource], validate_only=True)


def _create_partitions(scene: Scene, version: int) -> Request:
    topic = CreatePartitionsTopic(name=scene.topic.name, count=3, assignments=None)
    return CreatePartitionsRequest(topics=[topic], timeout_ms=20_000, validate_only=True)


def _alter_partition_reassignments(scene: Scene, version: int) -> Request:
    topic = ReassignableTopic(
        name=scene.topic.name, partitions=[ReassignablePartition(partition_index=0, replicas=None)]
    )
    return AlterPartitionReassignmentsRequest(topics=[topic], timeout_ms=20_000)


REQUESTS: Final[Mapping[ApiKey, Harmless]] = {
    ApiKey.PRODUCE: Harmless(_produce, 9),
    ApiKey.FETCH: Harmless(lambda scene, version: fetch_request(scene.topic, {0: 0}, version=version), 12),
    ApiKey.LIST_OFFSETS: Harmless(_list_offsets, 6),
    ApiKey.METADATA: Harmless(
        lambda scene, version: MetadataRequest(topics=[MetadataRequestTopic(name=scene.topic.name)]), 9
    ),
    ApiKey.OFFSET_COMMIT: Harmless(_offset_commit, 8, 0),
    ApiKey.OFFSET_FETCH: Harmless(_offset_fetch, 8, 0),
    ApiKey.FIND_COORDINATOR: Harmless(_find_coordinator, 3, 0),
    ApiKey.JOIN_GROUP: Harmless(_join_group, 6, 0),
    ApiKey.HEARTBEAT: Harmless(
        lambda scene, version: HeartbeatRequest(group_id=scene.group, generation_id=1, member_id="no-such-member"),
        4,
        0,
    ),
    ApiKey.LEAVE_GROUP: Harmless(
        lambda scene, version: LeaveGroupRequest(
            group_id=scene.group, members=[MemberIdentity(member_id="no-such-member")]
        ),
        4,
        0,
    ),
    ApiKey.SYNC_GROUP: Harmless(_sync_group, 4, 0),
    ApiKey.DESCRIBE_GROUPS: Harmless(lambda scene, version: DescribeGroupsRequest(groups=[scene.group]), 5, 0),
    ApiKey.DELETE_GROUPS: Harmless(lambda scene, version: DeleteGroupsRequest(groups_names=[scene.group]), 2, 0),
    ApiKey.API_VERSIONS: Harmless(
        lambda scene, version: ApiVersionsRequest(client_software_name="name", client_software_version="1"), 3
    ),
    ApiKey.CREATE_TOPICS: Harmless(_create_topics, 5),
    ApiKey.DELETE_TOPICS: Harmless(_delete_topics, 4),
    ApiKey.DELETE_RECORDS: Harmless(_delete_records, 2),
    ApiKey.INIT_PRODUCER_ID: Harmless(
        lambda scene, version: InitProducerIdRequest(transactional_id="", transaction_timeout_ms=1_000), 2
    ),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: Harmless(_offset_for_leader_epoch, 4),
    ApiKey.ADD_OFFSETS_TO_TXN: Harmless(
        lambda scene, version: AddOffsetsToTxnRequest(
            transactional_id=scene.group, producer_id=4_000_000_000, producer_epoch=0, group_id=scene.group
        ),
        3,
        1,
    ),
    ApiKey.END_TXN: Harmless(
        lambda scene, version: EndTxnRequest(
            transactional_id=scene.group, producer_id=4_000_000_000, producer_epoch=0, committed=True
        ),
        3,
        1,
    ),
    ApiKey.TXN_OFFSET_COMMIT: Harmless(_txn_offset_commit, 3, 0),
    ApiKey.DESCRIBE_CONFIGS: Harmless(_describe_configs, 4),
    ApiKey.ALTER_CONFIGS: Harmless(_alter_configs, 2),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: Harmless(_incremental_alter_configs, 1),
    ApiKey.CREATE_PARTITIONS: Harmless(_create_partitions, 2),
    ApiKey.ELECT_LEADERS: Harmless(
        lambda scene, version: ElectLeadersRequest(
            topic_partitions=[TopicPartitions(topic=scene.topic.name, partitions=[0])], timeout_ms=20_000
        ),
        2,
    ),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: Harmless(_alter_partition_reassignments, 0),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: Harmless(
        lambda scene, version: ListPartitionReassignmentsRequest(
            topics=[ListPartitionReassignmentsTopics(name=scene.topic.name, partition_indexes=[0])], timeout_ms=20_000
        ),
        0,
    ),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: Harmless(
        lambda scene, version: DescribeClientQuotasRequest(
            components=[ComponentData(entity_type="client-id", match_type=0, match=scene.group)]
        ),
        1,
    ),
    ApiKey.UPDATE_FEATURES: Harmless(
        lambda scene, version: UpdateFeaturesRequest(
            feature_updates=[FeatureUpdateKey(feature="no.such.feature", max_version_level=1, upgrade_type=1)],
            validate_only=version >= 1,
            timeout_ms=20_000,
        ),
        0,
    ),
    ApiKey.DESCRIBE_CLUSTER: Harmless(lambda scene, version: DescribeClusterRequest(), 0),
    ApiKey.DESCRIBE_PRODUCERS: Harmless(
        lambda scene, version: DescribeProducersRequest(
            topics=[ProducersTopic(name=scene.topic.name, partition_indexes=[0])]
        ),
        0,
    ),
    ApiKey.DESCRIBE_TRANSACTIONS: Harmless(
        lambda scene, version: DescribeTransactionsRequest(transactional_ids=[scene.group]), 0, 1
    ),
    ApiKey.LIST_TRANSACTIONS: Harmless(
        lambda scene, version: ListTransactionsRequest(producer_id_filters=[4_000_000_000]), 0
    ),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: Harmless(
        lambda scene, version: ConsumerGroupHeartbeatRequest(
            group_id=scene.group, member_id="no-such-member", member_epoch=5, rebalance_timeout_ms=10_000
        ),
        0,
        0,
    ),
    ApiKey.CONSUMER_GROUP_DESCRIBE: Harmless(
        lambda scene, version: ConsumerGroupDescribeRequest(group_ids=[scene.group]), 0, 0
    ),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: Harmless(
        lambda scene, version: DescribeTopicPartitionsRequest(topics=[TopicRequest(name=scene.topic.name)]), 0
    ),
}

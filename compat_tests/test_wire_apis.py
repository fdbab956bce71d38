"""An ordinary request of every version of the APIs whose cases in `moldau.conformance` do not have each version yet."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from moldau.protocol.api import ApiKey, request_class
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.alter_configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
from moldau.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from moldau.protocol.messages.api_versions import ApiVersionsRequest
from moldau.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from moldau.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from moldau.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from moldau.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from moldau.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from moldau.protocol.messages.describe_acls import DescribeAclsRequest
from moldau.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest
from moldau.protocol.messages.describe_cluster import DescribeClusterRequest
from moldau.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from moldau.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from moldau.protocol.messages.describe_producers import DescribeProducersRequest
from moldau.protocol.messages.describe_producers import TopicRequest as ProducersTopic
from moldau.protocol.messages.describe_quorum import DescribeQuorumRequest, PartitionData, TopicData
from moldau.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from moldau.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest
from moldau.protocol.messages.incremental_alter_configs import AlterableConfig as IncrementalConfig
from moldau.protocol.messages.incremental_alter_configs import AlterConfigsResource as IncrementalResource
from moldau.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from moldau.protocol.messages.init_producer_id import InitProducerIdRequest
from moldau.protocol.messages.list_config_resources import ListConfigResourcesRequest
from moldau.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from moldau.protocol.messages.unregister_broker import UnregisterBrokerRequest
from moldau.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from moldau.protocol.records import build_batch
from moldau.protocol.schema import Request, Struct
from moldau.testing import topic_requests as w
from moldau.testing.topic_requests import Topic
from moldau.testing.wire import WireClient

APACHE_4_3 = {
    ApiKey.PRODUCE: (0, 13), ApiKey.FETCH: (4, 18), ApiKey.LIST_OFFSETS: (1, 11), ApiKey.METADATA: (0, 13),
    ApiKey.OFFSET_COMMIT: (2, 10), ApiKey.OFFSET_FETCH: (1, 10), ApiKey.FIND_COORDINATOR: (0, 6),
    ApiKey.JOIN_GROUP: (0, 9), ApiKey.HEARTBEAT: (0, 4), ApiKey.LEAVE_GROUP: (0, 5), ApiKey.SYNC_GROUP: (0, 5),
    ApiKey.DESCRIBE_GROUPS: (0, 6), ApiKey.LIST_GROUPS: (0, 5), ApiKey.SASL_HANDSHAKE: (0, 1),
    ApiKey.API_VERSIONS: (0, 4), ApiKey.CREATE_TOPICS: (2, 7), ApiKey.DELETE_TOPICS: (1, 6),
    ApiKey.DELETE_RECORDS: (0, 2), ApiKey.INIT_PRODUCER_ID: (0, 5), ApiKey.OFFSET_FOR_LEADER_EPOCH: (2, 4),
    ApiKey.ADD_PARTITIONS_TO_TXN: (0, 5), ApiKey.ADD_OFFSETS_TO_TXN: (0, 4), ApiKey.END_TXN: (0, 5),
    ApiKey.WRITE_TXN_MARKERS: (1, 2), ApiKey.TXN_OFFSET_COMMIT: (0, 5), ApiKey.DESCRIBE_ACLS: (1, 3),
    ApiKey.CREATE_ACLS: (1, 3), ApiKey.DELETE_ACLS: (1, 3), ApiKey.DESCRIBE_CONFIGS: (1, 4),
    ApiKey.ALTER_CONFIGS: (0, 2), ApiKey.ALTER_REPLICA_LOG_DIRS: (1, 2), ApiKey.DESCRIBE_LOG_DIRS: (1, 5),
    ApiKey.SASL_AUTHENTICATE: (0, 2), ApiKey.CREATE_PARTITIONS: (0, 3), ApiKey.CREATE_DELEGATION_TOKEN: (1, 3),
    ApiKey.RENEW_DELEGATION_TOKEN: (1, 2), ApiKey.EXPIRE_DELEGATION_TOKEN: (1, 2),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: (1, 3), ApiKey.DELETE_GROUPS: (0, 2), ApiKey.ELECT_LEADERS: (0, 2),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (0, 1), ApiKey.ALTER_PARTITION_REASSIGNMENTS: (0, 1),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: (0, 0), ApiKey.OFFSET_DELETE: (0, 0),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: (0, 1), ApiKey.ALTER_CLIENT_QUOTAS: (0, 1),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: (0, 0), ApiKey.ALTER_USER_SCRAM_CREDENTIALS: (0, 0),
    ApiKey.DESCRIBE_QUORUM: (0, 2), ApiKey.UPDATE_FEATURES: (0, 2), ApiKey.DESCRIBE_CLUSTER: (0, 2),
    ApiKey.DESCRIBE_PRODUCERS: (0, 0), ApiKey.UNREGISTER_BROKER: (0, 0), ApiKey.DESCRIBE_TRANSACTIONS: (0, 0),
    ApiKey.LIST_TRANSACTIONS: (0, 2), ApiKey.CONSUMER_GROUP_HEARTBEAT: (0, 1),
    ApiKey.CONSUMER_GROUP_DESCRIBE: (0, 1), ApiKey.LIST_CONFIG_RESOURCES: (0, 1),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: (0, 0), ApiKey.SHARE_GROUP_HEARTBEAT: (1, 1),
    ApiKey.SHARE_GROUP_DESCRIBE: (1, 1), ApiKey.SHARE_FETCH: (1, 2), ApiKey.SHARE_ACKNOWLEDGE: (1, 2),
    ApiKey.ADD_RAFT_VOTER: (0, 1), ApiKey.REMOVE_RAFT_VOTER: (0, 0),
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: (0, 0), ApiKey.READ_SHARE_GROUP_STATE: (0, 0),
    ApiKey.WRITE_SHARE_GROUP_STATE: (0, 1), ApiKey.DELETE_SHARE_GROUP_STATE: (0, 0),
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: (0, 1), ApiKey.STREAMS_GROUP_HEARTBEAT: (0, 0),
    ApiKey.STREAMS_GROUP_DESCRIBE: (0, 0), ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: (0, 1),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: (0, 0), ApiKey.DELETE_SHARE_GROUP_OFFSETS: (0, 0),
}  # fmt: skip


class Scene(NamedTuple):
    """What ordinary requests are about: a topic with a record in partition 0, an empty one to lose, free names."""

    topic: Topic
    lost: Topic
    broker_id: int
    new_name: Callable[[], str]


class Ordinary(NamedTuple):
    """A request of each version, and the error codes that may stand anywhere in its answer besides NONE."""

    request: Callable[[Scene, int], Request]
    codes: tuple[ErrorCode, ...] = ()


def _find_coordinator(scene: Scene, version: int) -> Request:
    return FindCoordinatorRequest(key="group") if version < 4 else FindCoordinatorRequest(coordinator_keys=["group"])


def _create_topics(scene: Scene, version: int) -> Request:
    return CreateTopicsRequest(topics=[CreatableTopic(name=scene.new_name(), num_partitions=1, replication_factor=1)])


def _delete_topics(scene: Scene, version: int) -> Request:
    if version < 6:
        return DeleteTopicsRequest(topic_names=[scene.lost.name], timeout_ms=5_000)
    return DeleteTopicsRequest(topics=[DeleteTopicState(name=scene.lost.name)], timeout_ms=5_000)


def _create_partitions(scene: Scene, version: int) -> Request:
    # validate_only, so that the same topic serves every version
    topic = CreatePartitionsTopic(name=scene.topic.name, count=3, assignments=None)
    return CreatePartitionsRequest(topics=[topic], timeout_ms=5_000, validate_only=True)


def _describe_configs(scene: Scene, version: int) -> Request:
    resource = DescribeConfigsResource(resource_type=2, resource_name=scene.topic.name, configuration_keys=None)
    return DescribeConfigsRequest(resources=[resource], include_synonyms=True)


def _alter_configs(scene: Scene, version: int) -> Request:
    config = AlterableConfig(name="retention.bytes", value="-1")
    return AlterConfigsRequest(
        resources=[AlterConfigsResource(resource_type=2, resource_name=scene.topic.name, configs=[config])]
    )


def _incremental_alter_configs(scene: Scene, version: int) -> Request:
    config = IncrementalConfig(name="retention.bytes", config_operation=0, value="-1")
    return IncrementalAlterConfigsRequest(
        resources=[IncrementalResource(resource_type=2, resource_name=scene.topic.name, configs=[config])]
    )


def _elect_leaders(scene: Scene, version: int) -> Request:
    partitions = TopicPartitions(topic=scene.topic.name, partitions=[0])
    return ElectLeadersRequest(topic_partitions=[partitions], timeout_ms=5_000)


def _alter_partition_reassignments(scene: Scene, version: int) -> Request:
    partition = ReassignablePartition(partition_index=0, replicas=None)
    return AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic(name=scene.topic.name, partitions=[partition])], timeout_ms=5_000
    )


def _describe_producers(scene: Scene, version: int) -> Request:
    return DescribeProducersRequest(topics=[ProducersTopic(name=scene.topic.name, partition_indexes=[0])])


def _describe_quorum(scene: Scene, version: int) -> Request:
    partition = PartitionData(partition_index=0)
    return DescribeQuorumRequest(topics=[TopicData(topic_name="__cluster_metadata", partitions=[partition])])


_CREATION = AclCreation(
    resource_type=2,
    resource_name="t",
    resource_pattern_type=3,
    principal="User:a",
    host="*",
    operation=3,
    permission_type=3,
)
_FILTER = DeleteAclsFilter(
    resource_type_filter=2,
    resource_name_filter="t",
    pattern_type_filter=3,
    principal_filter=None,
    host_filter=None,
    operation=1,
    permission_type=1,
)

ORDINARY = {
    # A server without groups has no coordinator, and Apache Kafka has none at first.
    ApiKey.FIND_COORDINATOR: Ordinary(_find_coordinator, (ErrorCode.COORDINATOR_NOT_AVAILABLE,)),
    ApiKey.CREATE_TOPICS: Ordinary(_create_topics),
    ApiKey.DELETE_TOPICS: Ordinary(_delete_topics, (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,)),
    ApiKey.INIT_PRODUCER_ID: Ordinary(
        lambda scene, version: InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1_000),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,),  # until the broker has its first block of ids; clients ask again
    ),
    ApiKey.DESCRIBE_ACLS: Ordinary(
        lambda scene, version: DescribeAclsRequest(
            resource_type_filter=1,
            resource_name_filter=None,
            principal_filter=None,
            host_filter=None,
            operation=1,
            permission_type=1,
        ),
        (ErrorCode.SECURITY_DISABLED,),
    ),
    ApiKey.CREATE_ACLS: Ordinary(
        lambda scene, version: CreateAclsRequest(creations=[_CREATION]), (ErrorCode.SECURITY_DISABLED,)
    ),
    ApiKey.DELETE_ACLS: Ordinary(
        lambda scene, version: DeleteAclsRequest(filters=[_FILTER]), (ErrorCode.SECURITY_DISABLED,)
    ),
    ApiKey.DESCRIBE_CONFIGS: Ordinary(_describe_configs),
    ApiKey.ALTER_CONFIGS: Ordinary(_alter_configs),
    ApiKey.DESCRIBE_LOG_DIRS: Ordinary(lambda scene, version: DescribeLogDirsRequest(topics=None)),
    ApiKey.CREATE_PARTITIONS: Ordinary(_create_partitions),
    ApiKey.ELECT_LEADERS: Ordinary(_elect_leaders, (ErrorCode.ELECTION_NOT_NEEDED,)),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: Ordinary(_incremental_alter_configs),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: Ordinary(
        _alter_partition_reassignments, (ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,)
    ),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: Ordinary(
        lambda scene, version: ListPartitionReassignmentsRequest(topics=None, timeout_ms=5_000)
    ),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: Ordinary(lambda scene, version: DescribeClientQuotasRequest()),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: Ordinary(
        lambda scene, version: DescribeUserScramCredentialsRequest(users=None)
    ),
    ApiKey.DESCRIBE_QUORUM: Ordinary(_describe_quorum),
    ApiKey.UPDATE_FEATURES: Ordinary(
        lambda scene, version: UpdateFeaturesRequest(
            feature_updates=[FeatureUpdateKey(feature="no.such.feature", max_version_level=1)]
        ),
        (ErrorCode.INVALID_UPDATE_VERSION,),
    ),
    ApiKey.DESCRIBE_PRODUCERS: Ordinary(_describe_producers),
    ApiKey.UNREGISTER_BROKER: Ordinary(
        lambda scene, version: UnregisterBrokerRequest(broker_id=98_765), (ErrorCode.BROKER_ID_NOT_REGISTERED,)
    ),
    ApiKey.LIST_CONFIG_RESOURCES: Ordinary(lambda scene, version: ListConfigResourcesRequest()),
}

EVERY_VERSION = [(api, version) for api in ORDINARY for version in range(APACHE_4_3[api][0], APACHE_4_3[api][1] + 1)]


@pytest.fixture(scope="module")
def scene(bootstrap_servers: str) -> Scene:
    numbers = iter(range(1_000))
    prefix = f"wire-apis-{id(numbers):x}"

    def new_name() -> str:
        return f"{prefix}-{next(numbers)}"

    with WireClient(bootstrap_servers) as wire:
        topic = w.create_topic(bootstrap_servers, new_name(), 2)
        assert w.produce(wire, topic.name, build_batch(w.records(b"first"))).error_code == 0
        broker_id = wire.call(DescribeClusterRequest(), 0).controller_id
    return Scene(topic, w.create_topic(bootstrap_servers, new_name()), broker_id, new_name)


@pytest.fixture
def wire(bootstrap_servers: str) -> Iterator[WireClient]:
    with WireClient(bootstrap_servers) as client:
        yield client


def advertised(wire: WireClient) -> dict[int, tuple[int, int]]:
    """The table that the server advertises."""
    return {each.api_key: (each.min_version, each.max_version) for each in wire.call(ApiVersionsRequest(), 0).api_keys}


def error_codes(struct: Struct) -> Iterator[ErrorCode]:
    """Every error code in a response, wherever it stands."""
    for field in struct.FIELDS:
        value = getattr(struct, field.name)
        if field.name.endswith("error_code"):
            yield ErrorCode(value)
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, Struct):
                yield from error_codes(each)


def test_every_api_of_the_table_is_served(wire: WireClient) -> None:
    assert set(ORDINARY) - set(advertised(wire)) == set()


@pytest.mark.parametrize(
    ("api", "version"), EVERY_VERSION, ids=[f"{api.message_name}-{version}" for api, version in EVERY_VERSION]
)
def test_ordinary_request(wire: WireClient, scene: Scene, api: ApiKey, version: int) -> None:
    """The answer can be decoded, uses up its frame, and has no error but the one that belongs to this server."""
    ordinary = ORDINARY[api]
    response = wire.call(ordinary.request(scene, version), version)
    assert set(error_codes(response)) <= {ErrorCode.NONE, *ordinary.codes}, response


def test_every_request_has_an_ordinary_form() -> None:
    """The table above is complete: no version of a message that this package declares is left out."""
    for api in ORDINARY:
        assert request_class(api).STABLE_VERSIONS.highest == APACHE_4_3[api][1], api

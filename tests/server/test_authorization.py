"""Authorization of every API: without an ACL, with exactly the needed ACLs, and denied."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from moldau.log.verification import DISABLED
from moldau.protocol.acl import AclOperation as Can
from moldau.protocol.acl import AclResource as On
from moldau.protocol.api import ApiKey
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    alter_client_quotas,
    alter_configs,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    alter_user_scram_credentials,
    consumer_group_describe,
    consumer_group_heartbeat,
    create_acls,
    create_partitions,
    create_topics,
    delete_acls,
    delete_groups,
    delete_records,
    delete_topics,
    describe_acls,
    describe_client_quotas,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_quorum,
    describe_topic_partitions,
    describe_transactions,
    describe_user_scram_credentials,
    elect_leaders,
    end_txn,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    sync_group,
    txn_offset_commit,
    unregister_broker,
    update_features,
    write_txn_markers,
)
from moldau.security.acls import AclPattern, AclPermission
from moldau.server.apis import APIS
from moldau.server.authorizer import STANDARD_AUTHORIZER, java_host
from moldau.server.handlers.fetch import MANY_PARTITIONS
from moldau.server.nodes.node_server import StartError
from moldau.server.requests.authorization import CHECKS
from moldau.server.requests.fetch_fast_path import FetchFastPath
from moldau.testing.acl_requests import acl_filter, add_acl, remove_acls
from moldau.testing.builders import batch, fetch_request, produce, produce_request, values
from moldau.testing.builders import fetch as fetch_records
from moldau.testing.waiting import wait_until
from moldau.testing.wire import WireClient

from .test_sasl import CONFIG, Sasl, authenticate, handshake

TOPIC_AUTH = ErrorCode.TOPIC_AUTHORIZATION_FAILED
GROUP_AUTH = ErrorCode.GROUP_AUTHORIZATION_FAILED
CLUSTER_AUTH = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
TXN_AUTH = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
NOTHING = -0x80000000
NAMES = {On.TOPIC: "t", On.GROUP: "g", On.TRANSACTIONAL_ID: "x", On.CLUSTER: "kafka-cluster"}


class Secured(Sasl):
    """A server with ACLs. ANONYMOUS, of the plaintext listener, is a super user; alice is not."""

    def acl(
        self,
        operation: Can,
        kind: On,
        name: str | None = None,
        *,
        permission: AclPermission = AclPermission.ALLOW,
        principal: str = "User:alice",
        pattern: AclPattern = AclPattern.LITERAL,
    ) -> None:
        name = NAMES[kind] if name is None else name
        with WireClient(self.plain) as wire:
            add_acl(wire, operation, kind, name, permission=permission, principal=principal, pattern=pattern)

    def clear(self) -> None:
        """Remove all ACLs."""
        with WireClient(self.plain) as wire:
            remove_acls(wire)

    def login(self, user: str = "alice") -> WireClient:
        wire = self.wire()
        handshake(wire)
        assert authenticate(wire, f"\0{user}\0{user}-secret".encode()).error_code == 0
        return wire

    def count_acls(self) -> int:
        return len(self.running.broker.metadata.image.access_control_entries)


SETTINGS = CONFIG | {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ANONYMOUS;User:admin"}


@pytest.fixture(scope="module")
def module_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    from .conftest import RunningServer

    running = RunningServer([tmp_path_factory.mktemp("authorization")], SETTINGS).start()
    try:
        for topic in ("t", "u"):
            running.create_topic(topic)
        with running.wire() as wire:  # creates the topics of the coordinators
            for key_type in (0, 1):
                wait_until(partial(has_coordinator, wire, key_type))
        yield Secured(running)
    finally:
        running.stop()


def has_coordinator(wire: WireClient, key_type: int) -> bool:
    request = find_coordinator.FindCoordinatorRequest(coordinator_keys=["g"], key_type=key_type)
    return errors_in(wire.call(request, 4)) == {0}


@pytest.fixture
def secured(module_server: Secured) -> Secured:
    """A server with the topics t and u, and without ACLs."""
    module_server.clear()
    return module_server


def test_every_api_has_a_check() -> None:
    assert set(CHECKS) == {api.key for api in APIS}


def errors_in(value: Any) -> set[int]:
    """All error codes in a response."""
    found: set[int] = set()
    if isinstance(value, list):
        for each in value:
            found |= errors_in(each)
    elif hasattr(value, "__slots__") or hasattr(value, "__dict__"):
        for name in dir(value):
            if name.startswith("_") or name[0].isupper():
                continue
            field = getattr(value, name)
            if name in ("error_code", "partition_error_code"):
                found.add(field)
            elif isinstance(field, list) or (hasattr(type(field), "__slots__") and not isinstance(field, (str, bytes))):
                found |= errors_in(field)
    return found


CONFIG_OF_TOPIC: dict[str, Any] = {"resource_type": 2, "resource_name": "t"}
CONFIG_OF_BROKER: dict[str, Any] = {"resource_type": 4, "resource_name": ""}
CONFIG_OF_GROUP: dict[str, Any] = {"resource_type": 32, "resource_name": "g"}

# A request, its version, the error when refused, and the operations of which each is needed.
CASES: list[tuple[Any, int, int, list[tuple[Can, On]]]] = [
    (produce_request("t", batch(b"x")), 9, TOPIC_AUTH, [(Can.WRITE, On.TOPIC)]),
    (fetch_request("t", 0), 12, TOPIC_AUTH, [(Can.READ, On.TOPIC)]),
    (
        list_offsets.ListOffsetsRequest(
            topics=[
                list_offsets.ListOffsetsTopic(
                    name="t", partitions=[list_offsets.ListOffsetsPartition(partition_index=0, timestamp=-1)]
                )
            ]
        ),
        5, TOPIC_AUTH, [(Can.DESCRIBE, On.TOPIC)],
    ),
    (
        metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(name="t")]),
        9, TOPIC_AUTH, [(Can.DESCRIBE, On.TOPIC)],
    ),
    (
        offset_commit.OffsetCommitRequest(
            group_id="g",
            topics=[
                offset_commit.OffsetCommitRequestTopic(
                    name="t", partitions=[offset_commit.OffsetCommitRequestPartition(partition_index=0)]
                )
            ],
        ),
        8, TOPIC_AUTH, [(Can.READ, On.GROUP), (Can.READ, On.TOPIC)],
    ),
    (
        offset_fetch.OffsetFetchRequest(
            group_id="g", topics=[offset_fetch.OffsetFetchRequestTopic(name="t", partition_indexes=[0])]
        ),
        7, TOPIC_AUTH, [(Can.DESCRIBE, On.GROUP), (Can.DESCRIBE, On.TOPIC)],
    ),
    (
        offset_fetch.OffsetFetchRequest(
            groups=[
                offset_fetch.OffsetFetchRequestGroup(
                    group_id="g", topics=[offset_fetch.OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
                )
            ]
        ),
        8, TOPIC_AUTH, [(Can.DESCRIBE, On.GROUP), (Can.DESCRIBE, On.TOPIC)],
    ),
    (find_coordinator.FindCoordinatorRequest(key="g"), 3, GROUP_AUTH, [(Can.DESCRIBE, On.GROUP)]),
    (find_coordinator.FindCoordinatorRequest(coordinator_keys=["g"]), 4, GROUP_AUTH, [(Can.DESCRIBE, On.GROUP)]),
    (
        find_coordinator.FindCoordinatorRequest(coordinator_keys=["x"], key_type=1),
        4, TXN_AUTH, [(Can.DESCRIBE, On.TRANSACTIONAL_ID)],
    ),
    (
        join_group.JoinGroupRequest(
            group_id="g", session_timeout_ms=10_000, protocol_type="consumer",
            protocols=[join_group.JoinGroupRequestProtocol(name="range", metadata=b"")],
        ),
        4, GROUP_AUTH, [(Can.READ, On.GROUP)],
    ),
    (heartbeat.HeartbeatRequest(group_id="g", member_id="m"), 4, GROUP_AUTH, [(Can.READ, On.GROUP)]),
    (leave_group.LeaveGroupRequest(group_id="g", member_id="m"), 2, GROUP_AUTH, [(Can.READ, On.GROUP)]),
    (sync_group.SyncGroupRequest(group_id="g", member_id="m"), 4, GROUP_AUTH, [(Can.READ, On.GROUP)]),
    (describe_groups.DescribeGroupsRequest(groups=["g"]), 5, GROUP_AUTH, [(Can.DESCRIBE, On.GROUP)]),
    (
        create_topics.CreateTopicsRequest(
            topics=[create_topics.CreatableTopic(name="t", num_partitions=1, replication_factor=1)], validate_only=True
        ),
        5, TOPIC_AUTH, [(Can.CREATE, On.TOPIC)],
    ),
    (delete_topics.DeleteTopicsRequest(topic_names=["t"], timeout_ms=0), 5, TOPIC_AUTH, [(Can.DELETE, On.TOPIC)]),
    (
        delete_records.DeleteRecordsRequest(
            topics=[
                delete_records.DeleteRecordsTopic(
                    name="t", partitions=[delete_records.DeleteRecordsPartition(partition_index=0, offset=0)]
                )
            ]
        ),
        2, TOPIC_AUTH, [(Can.DELETE, On.TOPIC)],
    ),
    (
        init_producer_id.InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=1000),
        4, TXN_AUTH, [(Can.WRITE, On.TRANSACTIONAL_ID)],
    ),
    (
        init_producer_id.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000),
        4, CLUSTER_AUTH, [(Can.IDEMPOTENT_WRITE, On.CLUSTER)],
    ),
    (
        offset_for_leader_epoch.OffsetForLeaderEpochRequest(
            topics=[
                offset_for_leader_epoch.OffsetForLeaderTopic(
                    topic="t",
                    partitions=[offset_for_leader_epoch.OffsetForLeaderPartition(partition=0, leader_epoch=0)],
                )
            ]
        ),
        4, TOPIC_AUTH, [(Can.DESCRIBE, On.TOPIC)],
    ),
    (
        add_partitions_to_txn.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="x", v3_and_below_producer_id=1,
            v3_and_below_topics=[add_partitions_to_txn.AddPartitionsToTxnTopic(name="t", partitions=[0])],
        ),
        3, TOPIC_AUTH, [(Can.WRITE, On.TRANSACTIONAL_ID), (Can.WRITE, On.TOPIC)],
    ),
    (
        add_offsets_to_txn.AddOffsetsToTxnRequest(transactional_id="x", producer_id=1, group_id="g"),
        3, GROUP_AUTH, [(Can.WRITE, On.TRANSACTIONAL_ID), (Can.READ, On.GROUP)],
    ),
    (
        end_txn.EndTxnRequest(transactional_id="x", producer_id=1, committed=True),
        3, TXN_AUTH, [(Can.WRITE, On.TRANSACTIONAL_ID)],
    ),
    (
        write_txn_markers.WriteTxnMarkersRequest(
            markers=[
                write_txn_markers.WritableTxnMarker(
                    producer_id=1, topics=[write_txn_markers.WritableTxnMarkerTopic(name="t", partition_indexes=[9])]
                )
            ]
        ),
        1, CLUSTER_AUTH, [(Can.ALTER, On.CLUSTER)],
    ),
    (
        txn_offset_commit.TxnOffsetCommitRequest(
            transactional_id="x", group_id="g", producer_id=1,
            topics=[
                txn_offset_commit.TxnOffsetCommitRequestTopic(
                    name="t", partitions=[txn_offset_commit.TxnOffsetCommitRequestPartition(partition_index=0)]
                )
            ],
        ),
        3, TOPIC_AUTH, [(Can.WRITE, On.TRANSACTIONAL_ID), (Can.READ, On.GROUP), (Can.READ, On.TOPIC)],
    ),
    (describe_acls.DescribeAclsRequest(**acl_filter()), 3, CLUSTER_AUTH, [(Can.DESCRIBE, On.CLUSTER)]),
    (
        create_acls.CreateAclsRequest(
            creations=[
                create_acls.AclCreation(
                    resource_type=2, resource_name="", principal="User:x", host="*", operation=3, permission_type=3
                )
            ]
        ),
        3, CLUSTER_AUTH, [(Can.ALTER, On.CLUSTER)],
    ),
    (
        delete_acls.DeleteAclsRequest(
            filters=[delete_acls.DeleteAclsFilter(**(acl_filter() | {"principal_filter": "User:nobody"}))]
        ),
        3, CLUSTER_AUTH, [(Can.ALTER, On.CLUSTER)],
    ),
    (
        describe_configs.DescribeConfigsRequest(
            resources=[describe_configs.DescribeConfigsResource(**CONFIG_OF_TOPIC, configuration_keys=None)]
        ),
        4, TOPIC_AUTH, [(Can.DESCRIBE_CONFIGS, On.TOPIC)],
    ),
    (
        describe_configs.DescribeConfigsRequest(
            resources=[describe_configs.DescribeConfigsResource(**CONFIG_OF_GROUP, configuration_keys=None)]
        ),
        4, GROUP_AUTH, [(Can.DESCRIBE_CONFIGS, On.GROUP)],
    ),
    (
        describe_configs.DescribeConfigsRequest(
            resources=[describe_configs.DescribeConfigsResource(**CONFIG_OF_BROKER, configuration_keys=None)]
        ),
        4, CLUSTER_AUTH, [(Can.DESCRIBE_CONFIGS, On.CLUSTER)],
    ),
    (
        alter_configs.AlterConfigsRequest(
            resources=[alter_configs.AlterConfigsResource(**CONFIG_OF_TOPIC)], validate_only=True
        ),
        2, TOPIC_AUTH, [(Can.ALTER_CONFIGS, On.TOPIC)],
    ),
    (
        incremental_alter_configs.IncrementalAlterConfigsRequest(
            resources=[incremental_alter_configs.AlterConfigsResource(**CONFIG_OF_BROKER)], validate_only=True
        ),
        1, CLUSTER_AUTH, [(Can.ALTER_CONFIGS, On.CLUSTER)],
    ),
    (
        alter_replica_log_dirs.AlterReplicaLogDirsRequest(
            dirs=[
                alter_replica_log_dirs.AlterReplicaLogDir(
                    path="/nowhere",
                    topics=[alter_replica_log_dirs.AlterReplicaLogDirTopic(name="t", partitions=[0])],
                )
            ]
        ),
        2, CLUSTER_AUTH, [(Can.ALTER, On.CLUSTER)],
    ),
    (describe_log_dirs.DescribeLogDirsRequest(topics=None), 4, CLUSTER_AUTH, [(Can.DESCRIBE, On.CLUSTER)]),
    (
        create_partitions.CreatePartitionsRequest(
            topics=[create_partitions.CreatePartitionsTopic(name="t", count=1, assignments=None)], validate_only=True
        ),
        3, TOPIC_AUTH, [(Can.ALTER, On.TOPIC)],
    ),
    (delete_groups.DeleteGroupsRequest(groups_names=["g"]), 2, GROUP_AUTH, [(Can.DELETE, On.GROUP)]),
    (elect_leaders.ElectLeadersRequest(topic_partitions=[]), 2, CLUSTER_AUTH, [(Can.ALTER, On.CLUSTER)]),
    (
        alter_partition_reassignments.AlterPartitionReassignmentsRequest(topics=[]),
        0, CLUSTER_AUTH, [(Can.ALTER, On.CLUSTER)],
    ),
    (
        list_partition_reassignments.ListPartitionReassignmentsRequest(
            topics=[
                list_partition_reassignments.ListPartitionReassignmentsTopics(name="missing", partition_indexes=[0])
            ]
        ),
        0, CLUSTER_AUTH, [(Can.DESCRIBE, On.CLUSTER)],
    ),
    (
        offset_delete.OffsetDeleteRequest(
            group_id="g",
            topics=[
                offset_delete.OffsetDeleteRequestTopic(
                    name="t", partitions=[offset_delete.OffsetDeleteRequestPartition(partition_index=0)]
                )
            ],
        ),
        0, TOPIC_AUTH, [(Can.DELETE, On.GROUP), (Can.READ, On.TOPIC)],
    ),
    (
        alter_client_quotas.AlterClientQuotasRequest(
            entries=[
                alter_client_quotas.EntryData(
                    entity=[alter_client_quotas.EntityData(entity_type="user", entity_name="x")]
                )
            ]
        ),
        1, CLUSTER_AUTH, [(Can.ALTER_CONFIGS, On.CLUSTER)],
    ),
    (describe_client_quotas.DescribeClientQuotasRequest(), 1, CLUSTER_AUTH, [(Can.DESCRIBE_CONFIGS, On.CLUSTER)]),
    (
        describe_user_scram_credentials.DescribeUserScramCredentialsRequest(users=None),
        0, CLUSTER_AUTH, [(Can.DESCRIBE, On.CLUSTER)],
    ),
    (
        alter_user_scram_credentials.AlterUserScramCredentialsRequest(
            deletions=[alter_user_scram_credentials.ScramCredentialDeletion(name="nobody", mechanism=1)]
        ),
        0, CLUSTER_AUTH, [(Can.ALTER, On.CLUSTER)],
    ),
    (describe_quorum.DescribeQuorumRequest(), 2, CLUSTER_AUTH, [(Can.DESCRIBE, On.CLUSTER)]),
    (update_features.UpdateFeaturesRequest(validate_only=True), 1, CLUSTER_AUTH, [(Can.ALTER, On.CLUSTER)]),
    (
        describe_producers.DescribeProducersRequest(
            topics=[describe_producers.TopicRequest(name="t", partition_indexes=[0])]
        ),
        0, TOPIC_AUTH, [(Can.READ, On.TOPIC)],
    ),
    (unregister_broker.UnregisterBrokerRequest(broker_id=99), 0, CLUSTER_AUTH, [(Can.ALTER, On.CLUSTER)]),
    (
        describe_transactions.DescribeTransactionsRequest(transactional_ids=["x"]),
        0, TXN_AUTH, [(Can.DESCRIBE, On.TRANSACTIONAL_ID)],
    ),
    (
        consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
            group_id="g", member_id="AAAAAAAAAAAAAAAAAAAAAA", member_epoch=5, rebalance_timeout_ms=1000,
            subscribed_topic_names=["t"], topic_partitions=[],
        ),
        1, TOPIC_AUTH, [(Can.READ, On.GROUP), (Can.DESCRIBE, On.TOPIC)],
    ),
    (
        consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
            group_id="g", member_id="AAAAAAAAAAAAAAAAAAAAAA", member_epoch=5, rebalance_timeout_ms=1000,
            subscribed_topic_regex="t", topic_partitions=[],
        ),
        1, GROUP_AUTH, [(Can.READ, On.GROUP)],
    ),
    (
        consumer_group_describe.ConsumerGroupDescribeRequest(group_ids=["g"]),
        0, GROUP_AUTH, [(Can.DESCRIBE, On.GROUP)],
    ),
    (
        list_config_resources.ListConfigResourcesRequest(resource_types=[2]),
        1, CLUSTER_AUTH, [(Can.DESCRIBE_CONFIGS, On.CLUSTER)],
    ),
    (
        describe_topic_partitions.DescribeTopicPartitionsRequest(
            topics=[describe_topic_partitions.TopicRequest(name="t")]
        ),
        0, TOPIC_AUTH, [(Can.DESCRIBE, On.TOPIC)],
    ),
]  # fmt: skip
AUTHORIZATION_ERRORS = {TOPIC_AUTH, GROUP_AUTH, CLUSTER_AUTH, TXN_AUTH}


def name_of(value: Any) -> str:
    """A part of the name of a test."""
    return ApiKey(value.API_KEY).name if hasattr(value, "API_KEY") else ""


@pytest.mark.parametrize(("request_", "version", "error", "needed"), CASES, ids=name_of)
def test_needed_acls(secured: Secured, request_: Any, version: int, error: int, needed: list[tuple[Can, On]]) -> None:
    def found(wire: WireClient) -> set[int]:
        return errors_in(wire.call(request_, version)) & AUTHORIZATION_ERRORS

    if request_.API_KEY == ApiKey.OFFSET_DELETE:  # the error of a group that does not exist would come first
        with WireClient(secured.plain) as wire:
            committed = offset_commit.OffsetCommitRequestPartition(partition_index=0)
            topic = offset_commit.OffsetCommitRequestTopic(name="u", partitions=[committed])
            assert errors_in(wire.call(offset_commit.OffsetCommitRequest(group_id="g", topics=[topic]), 8)) == {0}
    with secured.login() as wire:
        assert len(found(wire)) == 1  # without an ACL
        for operation, kind in needed[:-1]:
            secured.acl(operation, kind)
        assert found(wire) == {error}  # without the last one
        secured.acl(*needed[-1])
        assert found(wire) == set()
        secured.acl(*needed[-1], permission=AclPermission.DENY)
        assert found(wire) == {error}


def test_the_cases_are_complete() -> None:
    """The other APIs need nothing, or omit what the client may not see; they have their own tests."""
    without_errors = {"SASL_HANDSHAKE", "SASL_AUTHENTICATE", "API_VERSIONS", "DESCRIBE_CLUSTER", "LIST_GROUPS",
                      "LIST_TRANSACTIONS", "CREATE_DELEGATION_TOKEN", "RENEW_DELEGATION_TOKEN",
                      "EXPIRE_DELEGATION_TOKEN", "DESCRIBE_DELEGATION_TOKEN",
                      "GET_TELEMETRY_SUBSCRIPTIONS", "PUSH_TELEMETRY"}  # fmt: skip
    tested = {ApiKey(request.API_KEY).name for request, *_ in CASES}
    assert tested | without_errors == {key.name for key in CHECKS}


@pytest.mark.parametrize("unknown", [0, 99])
def test_a_resource_of_an_unknown_type_does_not_permit_the_others(secured: Secured, unknown: int) -> None:
    of_unknown: dict[str, Any] = {"resource_type": unknown, "resource_name": ""}
    retention: dict[str, Any] = {"name": "retention.ms", "value": "1234567"}
    changed = [incremental_alter_configs.AlterableConfig(**retention)]
    replaced = [alter_configs.AlterableConfig(**retention)]
    described = [
        describe_configs.DescribeConfigsResource(**fields, configuration_keys=None)
        for fields in (CONFIG_OF_TOPIC, of_unknown, CONFIG_OF_BROKER)
    ]
    incremental, legacy = incremental_alter_configs.AlterConfigsResource, alter_configs.AlterConfigsResource
    with secured.login() as wire:
        for request, version in (
            (
                incremental_alter_configs.IncrementalAlterConfigsRequest(
                    resources=[incremental(**CONFIG_OF_TOPIC, configs=changed), incremental(**of_unknown)]
                ),
                1,
            ),
            (
                alter_configs.AlterConfigsRequest(
                    resources=[legacy(**CONFIG_OF_TOPIC, configs=replaced), legacy(**of_unknown)]
                ),
                2,
            ),
        ):
            errors = [each.error_code for each in wire.call(request, version).responses]
            assert errors == [TOPIC_AUTH, ErrorCode.INVALID_REQUEST]
        results = wire.call(describe_configs.DescribeConfigsRequest(resources=described), 4).results
        assert [(each.error_code, each.configs) for each in results] == [(ErrorCode.INVALID_REQUEST, [])] * 3
    assert not [each for each in secured.running.broker.metadata.image.configs if each.name == "t"]


def test_some_topics_of_a_request_are_refused(secured: Secured) -> None:
    secured.acl(Can.ALL, On.TOPIC, "u")
    with secured.login() as wire:
        request = produce_request("t", batch(b"x"))
        request.topic_data += produce_request("u", batch(b"y")).topic_data
        response = wire.call(request, 9)
        errors = {topic.name: topic.partition_responses[0].error_code for topic in response.responses}
        assert errors == {"t": TOPIC_AUTH, "u": 0}
        fetching = fetch_request("t", 0)
        fetching.topics += fetch_request("u", 0).topics
        response = wire.call(fetching, 12)
        assert response.error_code == 0
        errors = {topic.topic: topic.partitions[0].error_code for topic in response.responses}
        assert errors == {"t": TOPIC_AUTH, "u": 0}
        topics = wire.call(metadata.MetadataRequest(topics=None), 9).topics
        assert [topic.name for topic in topics] == ["u"]
        described = wire.call(describe_topic_partitions.DescribeTopicPartitionsRequest(), 0).topics
        assert [topic.name for topic in described] == ["u"]


def test_the_oldest_metadata_request_does_not_describe_all_topics_if_one_is_refused(secured: Secured) -> None:
    secured.acl(Can.DESCRIBE, On.TOPIC, "u")
    with secured.login() as wire:
        named = metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(name="t")])
        assert [(topic.name, topic.error_code) for topic in wire.call(named, 0).topics] == [("t", TOPIC_AUTH)]


@pytest.mark.parametrize("name", ["t", "missing"])
def test_the_existence_of_a_topic_is_not_revealed(secured: Secured, name: str) -> None:
    with secured.login() as wire:
        request = metadata.MetadataRequest(
            topics=[metadata.MetadataRequestTopic(name=name)], allow_auto_topic_creation=True
        )
        (topic,) = wire.call(request, 9).topics
        assert (topic.error_code, topic.topic_id, topic.partitions) == (TOPIC_AUTH, bytes(16), [])
    assert "missing" not in secured.running.broker.metadata.image.topics_by_name


def test_the_cursor_of_a_page_of_topics_reveals_no_topic(secured: Secured) -> None:
    """A page that begins with a topic that the client may not describe begins with the next one."""
    names = ("cursor-a", "cursor-b", "cursor-c")
    for name in names:
        secured.running.create_topic(name, partitions=2)
    for name in ("cursor-a", "cursor-c"):
        secured.acl(Can.DESCRIBE, On.TOPIC, name)
    pages = []
    with secured.login() as wire:
        for name in ("cursor-b", "cursor-bb", "cursor-d", "t"):
            request = describe_topic_partitions.DescribeTopicPartitionsRequest(
                response_partition_limit=1,
                cursor=describe_topic_partitions.Cursor(topic_name=name, partition_index=0),
            )
            page = wire.call(request, 0)
            following = page.next_cursor and (page.next_cursor.topic_name, page.next_cursor.partition_index)
            pages.append(([topic.name for topic in page.topics], following))
    assert pages == [(["cursor-c"], ("cursor-c", 1))] * 2 + [([], None)] * 2


def test_operations_on_a_topic_that_does_not_exist_are_described(secured: Secured) -> None:
    """As in Apache Kafka: the client may describe it, so it learns which operations it may perform."""
    secured.acl(Can.WRITE, On.TOPIC, "missing")
    with secured.login() as wire:
        request = metadata.MetadataRequest(
            topics=[metadata.MetadataRequestTopic(name=name) for name in ("missing", "hidden")],
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=True,
        )
        found = {each.name: each for each in wire.call(request, 9).topics}
    assert found["missing"].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert found["missing"].topic_authorized_operations == 1 << Can.WRITE | 1 << Can.DESCRIBE
    assert found["hidden"].topic_authorized_operations == NOTHING


def test_the_producers_of_an_invalid_name_are_an_invalid_topic(secured: Secured) -> None:
    names = ("t", "an invalid name", "u")
    secured.acl(Can.READ, On.TOPIC, "u")
    with secured.login() as wire:
        topics = [describe_producers.TopicRequest(name=name, partition_indexes=[0]) for name in names]
        response = wire.call(describe_producers.DescribeProducersRequest(topics=topics), 0)
    assert [(each.name, each.partitions[0].error_code) for each in response.topics] == list(
        zip(names, (TOPIC_AUTH, ErrorCode.INVALID_TOPIC_EXCEPTION, 0), strict=True)
    )


def test_nothing_is_told_about_a_group_with_a_topic_that_may_not_be_described(secured: Secured) -> None:
    joining = consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
        group_id="hidden", member_id="AAAAAAAAAAAAAAAAAAAAAA", member_epoch=0, rebalance_timeout_ms=60_000,
        subscribed_topic_names=["t"], topic_partitions=[],
    )  # fmt: skip
    request = consumer_group_describe.ConsumerGroupDescribeRequest(
        group_ids=["hidden"], include_authorized_operations=True
    )
    with WireClient(secured.plain) as wire:
        assert wire.call(joining, 1).error_code == 0
    secured.acl(Can.DESCRIBE, On.GROUP, "hidden")
    with secured.login() as wire:
        (refused,) = wire.call(request, 1).groups
        assert refused.error_message
        assert refused == consumer_group_describe.DescribedGroup(
            group_id="hidden", error_code=TOPIC_AUTH, error_message=refused.error_message
        )
        secured.acl(Can.DESCRIBE, On.TOPIC, "t")
        (described,) = wire.call(request, 1).groups
    assert (described.error_code, len(described.members)) == (0, 1)
    assert described.authorized_operations == 1 << Can.DESCRIBE


def test_auto_creation_needs_create(secured: Secured) -> None:
    secured.acl(Can.DESCRIBE, On.TOPIC, "made")
    request = metadata.MetadataRequest(
        topics=[metadata.MetadataRequestTopic(name="made")], allow_auto_topic_creation=True
    )
    with secured.login() as wire:
        assert wire.call(request, 9).topics[0].error_code == TOPIC_AUTH
        secured.acl(Can.CREATE, On.TOPIC, "made")
        assert wire.call(request, 9).topics[0].error_code == 0


def test_a_prefix(secured: Secured) -> None:
    secured.acl(Can.READ, On.GROUP, "app-", pattern=AclPattern.PREFIXED)
    with secured.login() as wire:
        for group, error in (("app-1", ErrorCode.UNKNOWN_MEMBER_ID), ("ap", GROUP_AUTH)):
            assert wire.call(heartbeat.HeartbeatRequest(group_id=group, member_id="m"), 4).error_code == error


def test_without_acks_a_refused_write_closes_the_connection(secured: Secured) -> None:
    secured.running.create_topic("unanswered")
    secured.acl(Can.WRITE, On.TOPIC, "unanswered")
    request = produce_request("t", batch(b"x"), acks=0)
    request.topic_data += produce_request("unanswered", batch(b"y")).topic_data
    with secured.login() as wire:
        wire.send(request, 9, answered=False)
        assert wire.closed_by_server()
    with WireClient(secured.plain) as plain:
        assert values(fetch_records(plain, "unanswered", 0)) == [b"y"]


def test_the_fast_path_ends_when_acls_change(secured: Secured) -> None:
    secured.running.create_topic("fast")
    secured.acl(Can.WRITE, On.TOPIC, "fast")
    with secured.login() as wire, WireClient(secured.plain) as plain:
        for _ in range(5):
            assert produce(wire, "fast", batch(b"x")).error_code == 0
        secured.acl(Can.WRITE, On.TOPIC, "fast", permission=AclPermission.DENY)
        for _ in range(3):
            assert produce(wire, "fast", batch(b"denied")).error_code == TOPIC_AUTH
        secured.clear()
        assert produce(wire, "fast", batch(b"denied")).error_code == TOPIC_AUTH
        assert values(fetch_records(plain, "fast", 0)) == [b"x"] * 5


def test_the_fast_path_appends_to_no_transaction_whose_id_was_not_checked(secured: Secured) -> None:
    """Plain records need no ACL for the transactional id of their request, but it taught the fast path."""
    secured.running.create_topic("shared")
    secured.acl(Can.WRITE, On.TOPIC, "shared")

    def sent(wire: WireClient, records: bytes) -> int:
        request = produce_request("shared", records)
        request.transactional_id = "x"
        (response,) = wire.call(request, 9).responses[0].partition_responses
        return int(response.error_code)

    def in_transaction(sequence: int) -> bytes:
        return batch(b"y", transactional=True, producer_id=6, producer_epoch=0, base_sequence=sequence)

    server, first = secured.running, in_transaction(0)
    partition = server.partition("shared", 0)  # with the transaction of another client
    server.call(lambda: partition.append(first, acks=1, now_ms=server.broker.now_ms(), verification=DISABLED))
    with secured.login() as wire:
        for _ in range(3):
            assert sent(wire, batch(b"plain")) == 0
        assert sent(wire, in_transaction(1)) == TXN_AUTH
        secured.acl(Can.WRITE, On.TRANSACTIONAL_ID, "x")
        assert [sent(wire, in_transaction(sequence)) for sequence in (1, 2, 3)] == [0, 0, 0]
        (connection,) = (each for each in server.network.connections if each.authentication.principal == "User:alice")
        assert connection.produce_fast_path is not None
        (entries,) = connection.produce_fast_path._entries.values()
        assert [entry.transactional for entry in entries.values()] == [True]


class Session:
    """A fetch session of a connection, over topics by name."""

    def __init__(self, wire: WireClient) -> None:
        self.wire = wire
        self.session_id = self._epoch = 0

    def fetch(self, *topics: str, max_wait_ms: int = 0) -> dict[str, Any]:
        """The next request, which names only these topics. Returns the partition of each topic in the response."""
        request = fetch_request("t", max_wait_ms=max_wait_ms)
        request.topics = [each for topic in topics for each in fetch_request(topic).topics]
        request.session_id, request.session_epoch = self.session_id, self._epoch
        response = self.wire.call(request, 12)
        assert response.error_code == 0
        self.session_id, self._epoch = response.session_id, self._epoch + 1
        return {topic.topic: topic.partitions[0] for topic in response.responses}


def errors_of(partitions: dict[str, Any]) -> dict[str, int]:
    return {topic: partition.error_code for topic, partition in partitions.items()}


def test_a_fetch_session_has_refused_partitions_until_an_acl_allows_them(secured: Secured) -> None:
    for topic in ("session-1", "session-2"):
        secured.running.create_topic(topic)
        with WireClient(secured.plain) as plain:
            assert produce(plain, topic, batch(b"x")).error_code == 0
    secured.acl(Can.READ, On.TOPIC, "session-1")
    with secured.login() as wire:
        session = Session(wire)
        assert errors_of(session.fetch("session-1", "session-2")) == {"session-1": 0, "session-2": TOPIC_AUTH}
        assert session.session_id != 0
        for _ in range(2):
            assert errors_of(session.fetch()) == {"session-1": 0, "session-2": TOPIC_AUTH}
        secured.acl(Can.READ, On.TOPIC, "session-2")
        found = session.fetch()
        assert errors_of(found) == {"session-1": 0, "session-2": 0}
        assert values(found["session-2"]) == [b"x"]
        secured.acl(Can.READ, On.TOPIC, "session-1", permission=AclPermission.DENY)
        assert errors_of(session.fetch()) == {"session-1": TOPIC_AUTH, "session-2": 0}
        assert errors_of(session.fetch("missing")) == {"session-1": TOPIC_AUTH, "session-2": 0, "missing": TOPIC_AUTH}


def test_a_fetch_session_of_many_partitions_is_authorized(secured: Secured) -> None:
    secured.running.create_topic("many")
    secured.acl(Can.READ, On.TOPIC, "many")
    names = [f"absent-{number}" for number in range(2 * MANY_PARTITIONS)]
    with secured.login() as wire:
        session = Session(wire)
        for topics in (["many", *names], []):
            assert errors_of(session.fetch(*topics)) == dict.fromkeys(names, TOPIC_AUTH) | (
                {"many": 0} if topics else {}
            )


def test_a_session_of_another_user_gives_no_access(secured: Secured) -> None:
    for topic in ("of-alice", "of-bob"):
        secured.running.create_topic(topic)
    secured.acl(Can.READ, On.TOPIC, "of-alice")
    secured.acl(Can.READ, On.TOPIC, "of-bob", principal="User:bob")
    with secured.login() as alice, secured.login("bob") as bob:
        session = Session(alice)
        assert errors_of(session.fetch("of-alice", "of-bob")) == {"of-alice": 0, "of-bob": TOPIC_AUTH}
        session.wire = bob
        assert errors_of(session.fetch()) == {"of-alice": TOPIC_AUTH, "of-bob": 0}
        session.wire = alice
        assert errors_of(session.fetch()) == {"of-alice": 0, "of-bob": TOPIC_AUTH}


def test_ids_of_topics_are_refused_only_if_there_is_such_a_topic(secured: Secured) -> None:
    known = secured.running.broker.metadata.image.topics_by_name["t"].topic_id
    with secured.login() as wire:
        for topic_id, error in ((known, TOPIC_AUTH), (bytes(15) + b"\7", ErrorCode.UNKNOWN_TOPIC_ID)):
            request = fetch_request("t")
            request.topics[0].topic_id = topic_id
            for version in (13, 18):
                assert wire.call(request, version).responses[0].partitions[0].error_code == error


def test_the_fast_path_of_a_consumer_ends_when_acls_change(secured: Secured, monkeypatch: pytest.MonkeyPatch) -> None:
    served: list[bool] = []
    serve = FetchFastPath.serve

    def counted(self: Any, *args: Any) -> Any:
        parts = serve(self, *args)
        served.append(parts is not None)
        return parts

    monkeypatch.setattr(FetchFastPath, "serve", counted)
    secured.running.create_topic("fast-fetch")
    with WireClient(secured.plain) as plain:
        assert produce(plain, "fast-fetch", batch(b"x")).error_code == 0
    secured.acl(Can.READ, On.TOPIC, "fast-fetch")
    with secured.login() as wire:
        for _ in range(5):
            assert values(fetch_records(wire, "fast-fetch")) == [b"x"]
        assert served == [True] * 4
        secured.acl(Can.READ, On.TOPIC, "fast-fetch", permission=AclPermission.DENY)
        for _ in range(3):
            assert fetch_records(wire, "fast-fetch").error_code == TOPIC_AUTH
        assert served[4:] == [False] * 2


def test_long_names_are_neither_cached_nor_logged(secured: Secured, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="kafka.authorizer.logger")  # commands silence the logger "kafka"
    authorizer = secured.running.broker.authorizer
    assert authorizer is not None
    for number, length in enumerate((255, 256, 30_000)):
        decide = partial(authorizer.allows, "User:alice", f"10.0.0.{number}", Can.READ, On.GROUP, "x" * length)
        for _ in range(2):
            assert not secured.running.call(decide)
    assert {len(key[-1]) for key in authorizer._cache if key[0] == "User:alice"} == {255}
    lines = [record.message for record in caplog.records if record.name == "kafka.authorizer.logger"]
    assert ["moldau acls add" in line for line in lines] == [True, False, False]
    assert "... (30000 characters)" in lines[-1]
    assert max(map(len, lines)) < 1000


def test_users_are_separate(secured: Secured) -> None:
    secured.acl(Can.WRITE, On.TOPIC, principal="User:bob")
    with secured.login("bob") as bob, secured.login("alice") as alice:
        assert produce(bob, "t", batch(b"x")).error_code == 0
        assert produce(alice, "t", batch(b"x")).error_code == TOPIC_AUTH
    secured.clear()
    secured.acl(Can.WRITE, On.TOPIC, principal="User:*")
    with secured.login("alice") as alice:
        assert produce(alice, "t", batch(b"x")).error_code == 0


def test_groups_are_listed_as_far_as_they_may_be_described(secured: Secured) -> None:
    with WireClient(secured.plain) as plain:
        for group in ("one", "two"):
            commit = offset_commit.OffsetCommitRequest(
                group_id=group,
                topics=[
                    offset_commit.OffsetCommitRequestTopic(
                        name="t", partitions=[offset_commit.OffsetCommitRequestPartition(partition_index=0)]
                    )
                ],
            )
            assert errors_in(plain.call(commit, 8)) == {0}

    def listed(wire: WireClient) -> set[str]:
        return {group.group_id for group in wire.call(list_groups.ListGroupsRequest(), 4).groups}

    with secured.login() as wire:
        assert listed(wire) == set()
        secured.acl(Can.READ, On.GROUP, "one")
        assert listed(wire) == {"one"}
        secured.acl(Can.DESCRIBE, On.CLUSTER)
        assert listed(wire) >= {"one", "two"}
        assert wire.call(list_transactions.ListTransactionsRequest(), 0).transaction_states == []


@pytest.mark.parametrize("more", [0, 30])
def test_a_regular_expression_selects_the_topics_that_may_be_described(secured: Secured, more: int) -> None:
    """Few topics are matched at once, many in steps."""
    prefix = f"regex{more}-"
    for number in range(3 + more):
        secured.running.create_topic(f"{prefix}{number}")
    secured.acl(Can.READ, On.GROUP, prefix, pattern=AclPattern.PREFIXED)
    secured.acl(Can.DESCRIBE, On.TOPIC, prefix, pattern=AclPattern.PREFIXED)
    secured.acl(Can.DESCRIBE, On.TOPIC, f"{prefix}1", permission=AclPermission.DENY)
    request = consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
        group_id=f"{prefix}group", member_id="A" * 22, member_epoch=0, rebalance_timeout_ms=60_000,
        subscribed_topic_regex="regex.*", topic_partitions=[],
    )  # fmt: skip
    with secured.login() as wire:
        response = wire.call(request, 1)
        assert response.error_code == 0, response
        topics = secured.running.broker.metadata.image.topics_by_id
        assigned = {topics[each.topic_id].name for each in response.assignment.topic_partitions}
    assert assigned == {f"{prefix}{number}" for number in range(3 + more) if number != 1}


def test_idempotent_producers_need_to_write_to_some_topic(secured: Secured) -> None:
    request = init_producer_id.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
    with secured.login() as wire:
        assert wire.call(request, 4).error_code == CLUSTER_AUTH
        secured.acl(Can.WRITE, On.TOPIC, "some")
        assert wire.call(request, 4).error_code == 0


def test_the_settings_of_a_created_topic_need_describe_configs(secured: Secured) -> None:
    secured.acl(Can.CREATE, On.CLUSTER)
    with secured.login() as wire:
        for name, error in (("shown-1", TOPIC_AUTH), ("shown-2", 0)):
            request = create_topics.CreateTopicsRequest(
                topics=[create_topics.CreatableTopic(name=name, num_partitions=3, replication_factor=1)]
            )
            if not error:
                secured.acl(Can.DESCRIBE_CONFIGS, On.TOPIC, name)
            (topic,) = wire.call(request, 7).topics
            assert (topic.error_code, topic.topic_config_error_code) == (0, error)
            assert topic.num_partitions == (-1 if error else 3)
            assert (topic.configs == []) is bool(error)
            assert topic.topic_id != bytes(16)


def test_the_metadata_log_is_no_topic_that_a_client_could_create(secured: Secured) -> None:
    names = ("__cluster_metadata", "new")
    topics = [create_topics.CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names]
    with secured.login() as wire:
        response = wire.call(create_topics.CreateTopicsRequest(topics=topics, timeout_ms=60_000), 7)
    assert {each.name: each.error_code for each in response.topics} == {
        "__cluster_metadata": ErrorCode.INVALID_REQUEST,
        "new": TOPIC_AUTH,
    }
    assert "new" not in secured.running.broker.metadata.image.topics_by_name


def test_topics_are_deleted_by_id_without_telling_their_names(secured: Secured) -> None:
    topic_id = secured.running.create_topic("secret")
    request = delete_topics.DeleteTopicsRequest(
        topics=[delete_topics.DeleteTopicState(topic_id=topic_id)], timeout_ms=60_000
    )
    with secured.login() as wire:
        (refused,) = wire.call(request, 6).responses
        assert (refused.name, refused.topic_id, refused.error_code) == (None, topic_id, TOPIC_AUTH)
        secured.acl(Can.DESCRIBE, On.TOPIC, "secret")
        (refused,) = wire.call(request, 6).responses
        assert (refused.name, refused.error_code) == ("secret", TOPIC_AUTH)
        secured.acl(Can.DELETE, On.TOPIC, "secret")
        (deleted,) = wire.call(request, 6).responses
        assert (deleted.name, deleted.error_code) == ("secret", 0)


def test_authorized_operations(secured: Secured) -> None:
    secured.acl(Can.READ, On.TOPIC)
    secured.acl(Can.DELETE, On.GROUP)

    def bits(*operations: Can) -> int:
        return sum(1 << operation for operation in operations)

    with secured.login() as wire:
        request = metadata.MetadataRequest(
            topics=[metadata.MetadataRequestTopic(name="t")], include_topic_authorized_operations=True
        )
        assert wire.call(request, 9).topics[0].topic_authorized_operations == bits(Can.READ, Can.DESCRIBE)
        of_group = describe_groups.DescribeGroupsRequest(groups=["g"], include_authorized_operations=True)
        assert wire.call(of_group, 5).groups[0].authorized_operations == bits(Can.DELETE, Can.DESCRIBE)
        of_cluster = describe_cluster.DescribeClusterRequest(include_cluster_authorized_operations=True)
        assert wire.call(of_cluster, 0).cluster_authorized_operations == 0
        secured.acl(Can.ALTER, On.CLUSTER)
        assert wire.call(of_cluster, 0).cluster_authorized_operations == bits(Can.ALTER, Can.DESCRIBE)


def test_replicas_need_cluster_action(secured: Secured) -> None:
    secured.acl(Can.READ, On.TOPIC)
    request = fetch_request("t", 0)
    request.replica_id = 1
    with secured.login() as wire:
        assert wire.call(request, 12).responses[0].partitions[0].error_code == TOPIC_AUTH


# -- ACLs --------------------------------------------------------------------------------------------------------------


def creation(**fields: Any) -> create_acls.AclCreation:
    values_: dict[str, Any] = {
        "resource_type": 2, "resource_name": "t", "resource_pattern_type": 3, "principal": "User:a", "host": "*",
        "operation": 3, "permission_type": 3,
    }  # fmt: skip
    return create_acls.AclCreation(**(values_ | fields))


def test_acls_are_created_once(secured: Secured) -> None:
    with WireClient(secured.plain) as wire:
        for _ in range(2):
            results = wire.call(create_acls.CreateAclsRequest(creations=[creation(), creation()]), 3).results
            assert [result.error_code for result in results] == [0, 0]
    assert secured.count_acls() == 1


@pytest.mark.parametrize(
    "fields",
    [
        {"resource_name": ""},
        {"resource_type": 4, "resource_name": "other"},
        {"resource_type": 99},
        {"resource_type": 1},
        {"resource_pattern_type": 1},
        {"resource_pattern_type": 2},
        {"operation": 1},
        {"operation": 99},
        {"permission_type": 1},
        {"principal": "alice"},
    ],
)
def test_invalid_acls_are_refused_alone(secured: Secured, fields: dict[str, Any]) -> None:
    with WireClient(secured.plain) as wire:
        request = create_acls.CreateAclsRequest(creations=[creation(**fields), creation()])
        results = wire.call(request, 3).results
        assert [result.error_code for result in results] == [ErrorCode.INVALID_REQUEST, 0]
    assert secured.count_acls() == 1


@pytest.mark.parametrize("field", ["resource_type", "resource_pattern_type", "operation", "permission_type"])
def test_an_unknown_code_closes_the_connection(secured: Secured, field: str) -> None:
    with WireClient(secured.plain) as wire:
        wire.send(create_acls.CreateAclsRequest(creations=[creation(**{field: 0})]), 3)
        assert wire.closed_by_server()
    assert secured.count_acls() == 0


def test_acls_are_described_and_deleted_by_filters(secured: Secured) -> None:
    secured.acl(Can.READ, On.TOPIC, "t")
    secured.acl(Can.WRITE, On.TOPIC, "t")
    secured.acl(Can.READ, On.GROUP, "t")
    with WireClient(secured.plain) as wire:
        request = describe_acls.DescribeAclsRequest(**(acl_filter() | {"resource_type_filter": 2}))
        (resource,) = wire.call(request, 3).resources
        assert (resource.resource_type, resource.resource_name, resource.pattern_type) == (2, "t", 3)
        assert {acl.operation for acl in resource.acls} == {Can.READ, Can.WRITE}
        chosen = delete_acls.DeleteAclsFilter(**(acl_filter() | {"operation": Can.READ}))
        (result,) = wire.call(delete_acls.DeleteAclsRequest(filters=[chosen]), 3).filter_results
        assert {(acl.resource_type, acl.operation) for acl in result.matching_acls} == {(2, 3), (3, 3)}
    assert secured.count_acls() == 1


@pytest.mark.parametrize("field", ["resource_type_filter", "pattern_type_filter", "operation", "permission_type"])
def test_a_deletion_with_an_unknown_code_is_refused_alone(secured: Secured, field: str) -> None:
    secured.acl(Can.WRITE, On.TOPIC)
    invalid = delete_acls.DeleteAclsFilter(**(acl_filter() | {field: 99}))
    valid = delete_acls.DeleteAclsFilter(**(acl_filter() | {"principal_filter": "User:nobody"}))
    with WireClient(secured.plain) as wire:
        results = wire.call(delete_acls.DeleteAclsRequest(filters=[invalid, valid]), 3).filter_results
    assert [each.error_code for each in results] == [ErrorCode.INVALID_REQUEST, 0]
    assert secured.count_acls() == 1


def test_acls_survive_a_restart(make_server: Any) -> None:
    secured = Secured(make_server(config=SETTINGS))
    secured.running.create_topic("t")
    secured.acl(Can.WRITE, On.TOPIC)
    secured = Secured(secured.running.restart())
    with secured.login() as wire:
        assert produce(wire, "t", batch(b"x")).error_code == 0
        assert fetch_records(wire, "t", 0).error_code == TOPIC_AUTH


def test_everyone_is_allowed_where_no_acl_is_found(make_server: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="kafka.authorizer.logger")  # commands silence the logger "kafka"
    secured = Secured(make_server(config=SETTINGS | {"allow.everyone.if.no.acl.found": "true"}))
    secured.running.create_topic("t")
    with secured.login() as wire:
        assert produce(wire, "t", batch(b"x")).error_code == 0
        secured.acl(Can.WRITE, On.TOPIC, principal="User:bob")
        for _ in range(10):
            assert produce(wire, "t", batch(b"x")).error_code == TOPIC_AUTH
    lines = [record.message for record in caplog.records if record.name == "kafka.authorizer.logger"]
    assert lines == [
        "Principal = User:alice is Denied operation = WRITE from host = 127.0.0.1 on resource = Topic:LITERAL:t "
        "for request = Produce with resourceRefCount = 1 based on rule DefaultDeny; "
        "to allow it: moldau acls add User:alice write topic t"
    ]


def test_a_directory_with_acls_and_without_an_authorizer_prevents_startup(
    make_server: Any, caplog: pytest.LogCaptureFixture
) -> None:
    secured = Secured(make_server(config=SETTINGS))
    secured.acl(Can.WRITE, On.TOPIC)
    for name in ("authorizer.class.name", "super.users"):
        del secured.running.config[name]
    with pytest.raises(StartError, match=r"The metadata has ACLs, but authorizer.class.name is not set.*StandardAuth"):
        secured.running.restart()
    secured.running.config["moldau.allow.unenforced.acls"] = "true"
    secured.running.start()
    assert "every client would have full access (moldau.allow.unenforced.acls)" in caplog.text


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("::ffff:127.0.0.1", "127.0.0.1"),
        ("::1", "0:0:0:0:0:0:0:1"),
        ("2001:db8::ff00:42:8329", "2001:db8:0:0:0:ff00:42:8329"),
        ("fe80::1%eth0", "fe80:0:0:0:0:0:0:1%eth0"),
    ],
)
def test_hosts_are_written_as_in_java(address: str, expected: str) -> None:
    assert java_host(address) == expected


def test_refused_elements_are_where_apache_kafka_has_them(secured: Secured) -> None:
    """First, last, or in the order of the request; `test_authorization_apache` compares all APIs."""
    secured.acl(Can.ALL, On.TOPIC, "t")
    secured.acl(Can.READ, On.GROUP)
    secured.acl(Can.DESCRIBE, On.GROUP, "h")
    names = ["u", "t", "v"]
    with secured.login() as wire:
        committed = offset_commit.OffsetCommitRequest(
            group_id="g",
            topics=[
                offset_commit.OffsetCommitRequestTopic(
                    name=name, partitions=[offset_commit.OffsetCommitRequestPartition(partition_index=0)]
                )
                for name in names
            ],
        )
        assert [topic.name for topic in wire.call(committed, 8).topics] == ["u", "v", "t"]
        described = describe_producers.DescribeProducersRequest(
            topics=[describe_producers.TopicRequest(name=name, partition_indexes=[0]) for name in names]
        )
        assert [topic.name for topic in wire.call(described, 0).topics] == names
        listed = metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(name=name) for name in names])
        assert [topic.name for topic in wire.call(listed, 9).topics] == ["t", "u", "v"]
        keys = ["i", "h", "k", "g"]
        found = wire.call(find_coordinator.FindCoordinatorRequest(coordinator_keys=keys), 4).coordinators
        assert [each.key for each in found] == keys
        assert [each.error_code for each in found] == [GROUP_AUTH, 0, GROUP_AUTH, 0]


def test_a_client_that_may_describe_a_missing_topic_learns_that_it_cannot_be_deleted(secured: Secured) -> None:
    secured.acl(Can.DESCRIBE, On.TOPIC, "missing")
    secured.acl(Can.DESCRIBE, On.TOPIC, "u")
    with secured.login() as wire:
        for version in (5, 6):
            names = ["hidden", "missing", "u"]
            request = delete_topics.DeleteTopicsRequest(timeout_ms=10_000)
            if version == 5:
                request.topic_names = names
            else:
                request.topics = [delete_topics.DeleteTopicState(name=name) for name in names]
            errors = {each.name: each.error_code for each in wire.call(request, version).responses}
            assert errors == {
                "hidden": TOPIC_AUTH, "missing": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "u": TOPIC_AUTH
            }  # fmt: skip

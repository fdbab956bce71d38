"""CreateTopics, DeleteTopics and CreatePartitions: the exact responses and records of each request."""

from __future__ import annotations

from typing import Any

import pytest

from moldau.config.broker_config import BrokerConfig, StaticValue
from moldau.metadata.create_partitions import create_partitions
from moldau.metadata.create_topics import auto_create_request, create_topics
from moldau.metadata.delete_topics import delete_topics
from moldau.metadata.reassignments import alter_partition_reassignments
from moldau.metadata.records import ConfigRecord, PartitionRecord, RemoveTopicRecord, TopicRecord
from moldau.metadata.topic_names import invalid_reason
from moldau.protocol.errors import ErrorCode, KafkaError
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
from moldau.protocol.uuid import ZERO_UUID

Cluster = Any


def topic(name: str, partitions: int = 1, factor: int = 1, configs: dict[str, str | None] | None = None) -> Any:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
    )


def assigned(name: str, *replicas: tuple[int, list[int]]) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=-1,
        replication_factor=-1,
        assignments=[CreatableReplicaAssignment(partition_index=p, broker_ids=ids) for p, ids in replicas],
    )


def create(cluster: Cluster, *topics: CreatableTopic, validate_only: bool = False) -> Any:
    request = CreateTopicsRequest(topics=list(topics), validate_only=validate_only)
    return create_topics(cluster.image, request, cluster.context)


def errors(outcome: Any) -> dict[str, str]:
    response = outcome.response
    results = getattr(response, "topics", None) or getattr(response, "responses", None) or response.results
    return {result.name: ErrorCode(result.error_code).name for result in results}


# CreateTopics


def test_a_topic_is_written_as_topic_config_and_partition_records(cluster: Cluster) -> None:
    outcome = create(cluster, topic("alpha", 2, 1, {"retention.ms": "1000", "cleanup.policy": "compact"}))
    (result,) = outcome.response.topics
    assert (result.name, result.error_code, result.error_message) == ("alpha", 0, None)
    assert (result.num_partitions, result.replication_factor) == (2, 1)
    topic_id, directory = result.topic_id, cluster.image.brokers[1].directories[0]
    assert [record for record, _ in outcome.records] == [
        TopicRecord(name="alpha", topic_id=topic_id),
        ConfigRecord(resource_type=2, resource_name="alpha", name="retention.ms", value="1000"),
        ConfigRecord(resource_type=2, resource_name="alpha", name="cleanup.policy", value="compact"),
        *(
            PartitionRecord(
                topic_id=topic_id,
                partition_id=partition,
                replicas=[1],
                isr=[1],
                leader=1,
                leader_epoch=0,
                partition_epoch=0,
                directories=[directory],
            )
            for partition in (0, 1)
        ),
    ]
    assert [version for _, version in outcome.records] == [0, 0, 0, 2, 2]


def test_the_response_has_every_config_with_its_source(new_cluster: type[Cluster]) -> None:
    cluster = new_cluster(1, settings={"log.retention.hours": "2", "compression.type": "zstd"})
    (result,) = create(cluster, topic("alpha", configs={"segment.bytes": "2000000"})).response.topics
    configs = {config.name: (config.value, config.config_source) for config in result.configs}
    assert configs["segment.bytes"] == ("2000000", 1)
    assert configs["retention.ms"] == ("7200000", 4)
    assert configs["compression.type"] == ("zstd", 4)
    assert configs["cleanup.policy"] == ("delete", 5)
    assert "internal.segment.bytes" not in configs
    assert list(configs) == sorted(configs)
    assert not any(config.read_only or config.is_sensitive for config in result.configs)


def test_defaults_come_from_the_broker(new_cluster: type[Cluster]) -> None:
    cluster = new_cluster(1, 2, 3, settings={"num.partitions": "5", "default.replication.factor": "2"})
    (result,) = create(cluster, topic("alpha", -1, -1)).response.topics
    assert (result.num_partitions, result.replication_factor) == (5, 2)


def test_validate_only_writes_no_records(cluster: Cluster) -> None:
    outcome = create(cluster, topic("alpha", 3), topic("no/name"), validate_only=True)
    assert errors(outcome) == {"alpha": "NONE", "no/name": "INVALID_TOPIC_EXCEPTION"}
    assert outcome.response.topics[0].num_partitions == 3
    assert outcome.records == []


def test_an_invalid_topic_does_not_prevent_others(cluster: Cluster) -> None:
    cluster.create("there")
    outcome = create(cluster, topic("there"), topic("new"), topic("zero", 0))
    assert errors(outcome) == {"there": "TOPIC_ALREADY_EXISTS", "new": "NONE", "zero": "INVALID_PARTITIONS"}
    assert [record.name for record, _ in outcome.records if isinstance(record, TopicRecord)] == ["new"]


def test_a_topic_that_is_named_twice_is_not_created(cluster: Cluster) -> None:
    outcome = create(cluster, topic("a"), topic("b"), topic("a"))
    assert errors(outcome) == {"b": "NONE", "a": "INVALID_REQUEST"}
    assert len(outcome.response.topics) == 2


def test_the_metadata_topic_cannot_be_created(cluster: Cluster) -> None:
    assert errors(create(cluster, topic("__cluster_metadata"))) == {"__cluster_metadata": "INVALID_REQUEST"}


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "a\n", "x" * 250, "ü", "a\0"])
def test_invalid_topic_names_are_rejected(cluster: Cluster, name: str) -> None:
    assert invalid_reason(name) is not None
    assert errors(create(cluster, topic(name))) == {name: "INVALID_TOPIC_EXCEPTION"}


@pytest.mark.parametrize("name", ["a", "A-Z_0.9", "...", "x" * 249, "-", "_"])
def test_valid_topic_names_are_accepted(cluster: Cluster, name: str) -> None:
    assert invalid_reason(name) is None
    assert errors(create(cluster, topic(name))) == {name: "NONE"}


def test_names_that_differ_only_in_dots_and_underscores_collide(cluster: Cluster) -> None:
    cluster.create("a.b_c")
    outcome = create(cluster, topic("a_b.c"), topic("a-b-c"), topic("a.b_c"))
    assert errors(outcome) == {
        "a_b.c": "INVALID_TOPIC_EXCEPTION",
        "a-b-c": "NONE",
        "a.b_c": "TOPIC_ALREADY_EXISTS",
    }
    assert "a.b_c" in outcome.response.topics[0].error_message


@pytest.mark.parametrize(
    ("partitions", "factor", "error"),
    [
        (0, 1, "INVALID_PARTITIONS"),
        (-2, 1, "INVALID_PARTITIONS"),
        (1, 0, "INVALID_REPLICATION_FACTOR"),
        (1, -2, "INVALID_REPLICATION_FACTOR"),
        (1, 2, "INVALID_REPLICATION_FACTOR"),
    ],
)
def test_invalid_numbers_of_partitions_and_replicas_are_rejected(
    cluster: Cluster, partitions: int, factor: int, error: str
) -> None:
    assert errors(create(cluster, topic("a", partitions, factor))) == {"a": error}


def test_too_many_partitions_in_one_request_are_rejected(cluster: Cluster) -> None:
    with pytest.raises(KafkaError) as refused:
        create(cluster, topic("a", 9_000), topic("b", 1_001))
    assert refused.value.code is ErrorCode.POLICY_VIOLATION
    with pytest.raises(KafkaError) as refused:
        create(cluster, topic("a", 10_000))  # with the topic's record there are 10,001
    assert refused.value.code is ErrorCode.POLICY_VIOLATION
    assert errors(create(cluster, topic("a", 9_999))) == {"a": "NONE"}


@pytest.mark.parametrize(
    "configs",
    [
        {"no.such.config": "1"},
        {"retention.ms": "soon"},
        {"segment.bytes": "1000"},
        {"retention.ms": None},
        {"cleanup.policy": "delete,nothing"},
        {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"},
    ],
)
def test_invalid_topic_configs_are_rejected(cluster: Cluster, configs: dict[str, str | None]) -> None:
    outcome = create(cluster, topic("a", configs=configs))
    assert errors(outcome) == {"a": "INVALID_CONFIG"}
    assert any(key in outcome.response.topics[0].error_message for key in configs)


def test_an_assignment_sets_the_replicas(new_cluster: type[Cluster]) -> None:
    cluster = new_cluster(1, 2, 3)
    outcome = create(cluster, assigned("a", (1, [3, 1]), (0, [2, 3])))
    assert errors(outcome) == {"a": "NONE"}
    (result,) = outcome.response.topics
    assert (result.num_partitions, result.replication_factor) == (2, 2)
    cluster.commit(outcome.records)
    assert cluster.image.partition("a", 0).replicas == (2, 3)
    assert cluster.image.partition("a", 1).leader == 3
    assert cluster.image.partition("a", 1).directories == (
        cluster.image.brokers[3].directories[0],
        cluster.image.brokers[1].directories[0],
    )


@pytest.mark.parametrize(
    ("replicas", "error"),
    [
        ([(0, [4])], "INVALID_REPLICA_ASSIGNMENT"),
        ([(0, [])], "INVALID_REPLICA_ASSIGNMENT"),
        ([(0, [1, 1])], "INVALID_REPLICA_ASSIGNMENT"),
        ([(0, [1]), (0, [2])], "INVALID_REPLICA_ASSIGNMENT"),
        ([(0, [1]), (2, [2])], "INVALID_REPLICA_ASSIGNMENT"),
        ([(1, [1])], "INVALID_REPLICA_ASSIGNMENT"),
        ([(0, [1]), (1, [1, 2])], "INVALID_REPLICA_ASSIGNMENT"),
    ],
)
def test_invalid_assignments_are_rejected(
    new_cluster: type[Cluster], replicas: list[tuple[int, list[int]]], error: str
) -> None:
    assert errors(create(new_cluster(1, 2), assigned("a", *replicas))) == {"a": error}


def test_a_limit_of_replicas_applies_to_topics_and_moves(new_cluster: type[Cluster]) -> None:
    """`serve --brokers`: a follower would never get a record, and `acks=all` would wait for it forever."""
    cluster = new_cluster(1, 2, settings={"moldau.max.replicas": "1", "offsets.topic.replication.factor": "2"})
    two = CreatableTopic(name="a", num_partitions=1, replication_factor=2)
    outcome = create(cluster, two, assigned("b", (0, [1, 2])), assigned("c", (0, [1])))
    refused = "INVALID_REPLICATION_FACTOR"
    assert errors(outcome) == {"a": refused, "b": refused, "c": "NONE"}
    assert "at most 1 replica(s), not 2" in outcome.response.topics[0].error_message
    cluster.commit(outcome.records)
    for replicas in ([2], [1, 2]):
        wanted = ReassignablePartition(partition_index=0, replicas=replicas)
        request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name="c", partitions=[wanted])])
        moved = alter_partition_reassignments(cluster.image, request, cluster.context)
        assert moved.response.responses[0].partitions[0].error_code == ErrorCode.INVALID_REPLICATION_FACTOR
        assert moved.records == []
    (internal,) = auto_create_request(["__consumer_offsets"], cluster.context.config).topics
    assert internal.replication_factor == 1


def test_an_assignment_excludes_counts_of_partitions_and_replicas(cluster: Cluster) -> None:
    by_count, by_factor = assigned("a", (0, [1])), assigned("b", (0, [1]))
    by_count.num_partitions = 1
    by_factor.replication_factor = 1
    assert errors(create(cluster, by_count, by_factor)) == {"a": "INVALID_REQUEST", "b": "INVALID_REQUEST"}


def test_automatically_created_topics_have_the_settings_of_the_broker() -> None:
    static = {
        "offsets.topic.num.partitions": "4",
        "offsets.topic.segment.bytes": "2000000",
        "transaction.state.log.min.isr": "1",
    }
    config = BrokerConfig({name: StaticValue(value, "test") for name, value in static.items()})
    names = ["mine", "__consumer_offsets", "__transaction_state", "__share_group_state"]
    mine, offsets, transactions, shares = auto_create_request(names, config).topics
    assert (mine.num_partitions, mine.replication_factor, mine.configs) == (-1, -1, [])
    assert offsets.num_partitions == 4
    assert {c.name: c.value for c in offsets.configs} == {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": "2000000",
    }
    found = {c.name: c.value for c in transactions.configs}
    assert (found["cleanup.policy"], found["unclean.leader.election.enable"]) == ("compact", "false")
    assert (found["compression.type"], found["min.insync.replicas"]) == ("uncompressed", "1")
    assert {c.name: c.value for c in shares.configs}["retention.ms"] == "-1"


# DeleteTopics


def delete(cluster: Cluster, *topics: DeleteTopicState, names: tuple[str, ...] = ()) -> Any:
    request = DeleteTopicsRequest(topics=list(topics), topic_names=list(names))
    return delete_topics(cluster.image, request, cluster.context)


def test_topics_are_deleted_by_name_and_by_id(cluster: Cluster) -> None:
    a, b, c = (cluster.create(name).topic_id for name in "abc")
    outcome = delete(cluster, DeleteTopicState(name="a"), DeleteTopicState(topic_id=b), names=("c",))
    assert [(r.name, r.topic_id, r.error_code) for r in outcome.response.responses] == [
        ("b", b, 0),
        ("c", c, 0),
        ("a", a, 0),
    ]
    assert [record for record, _ in outcome.records] == [RemoveTopicRecord(topic_id=i) for i in (b, c, a)]
    cluster.commit(outcome.records)
    assert not cluster.image.topics_by_id


def test_deleting_unknown_topics_fails(cluster: Cluster) -> None:
    outcome = delete(cluster, DeleteTopicState(name="a"), DeleteTopicState(topic_id=b"\7" * 16))
    assert [(r.name, r.topic_id, ErrorCode(r.error_code).name) for r in outcome.response.responses] == [
        (None, b"\7" * 16, "UNKNOWN_TOPIC_ID"),
        ("a", ZERO_UUID, "UNKNOWN_TOPIC_OR_PARTITION"),
    ]
    assert outcome.records == []


def test_a_topic_that_is_named_twice_is_not_deleted(cluster: Cluster) -> None:
    a = cluster.create("a").topic_id
    for requested in (
        [DeleteTopicState(name="a"), DeleteTopicState(name="a")],
        [DeleteTopicState(topic_id=a), DeleteTopicState(topic_id=a)],
        [DeleteTopicState(topic_id=a), DeleteTopicState(name="a")],
        [DeleteTopicState(name="a", topic_id=a)],
        [DeleteTopicState()],
    ):
        outcome = delete(cluster, *requested)
        assert [r.error_code for r in outcome.response.responses] == [ErrorCode.INVALID_REQUEST]
        assert outcome.records == []


def test_topics_are_not_deleted_if_deletion_is_disabled(new_cluster: type[Cluster]) -> None:
    cluster = new_cluster(1, settings={"delete.topic.enable": "false"})
    cluster.create("a")
    with pytest.raises(KafkaError) as refused:
        delete(cluster, DeleteTopicState(name="a"))
    assert refused.value.code is ErrorCode.TOPIC_DELETION_DISABLED


# CreatePartitions


def grow(cluster: Cluster, *wanted: tuple[str, int, list[list[int]] | None], validate_only: bool = False) -> Any:
    topics = [
        CreatePartitionsTopic(
            name=name,
            count=count,
            assignments=None
            if assignments is None
            else [CreatePartitionsAssignment(broker_ids=ids) for ids in assignments],
        )
        for name, count, assignments in wanted
    ]
    request = CreatePartitionsRequest(topics=topics, validate_only=validate_only)
    return create_partitions(cluster.image, request, cluster.context)


def test_new_partitions_have_the_replication_factor_of_the_topic(new_cluster: type[Cluster]) -> None:
    cluster = new_cluster(1, 2, 3)
    cluster.create("a", 2, 2)
    outcome = grow(cluster, ("a", 4, None))
    assert errors(outcome) == {"a": "NONE"}
    assert [record.partition_id for record, _ in outcome.records] == [2, 3]
    assert all(len(record.replicas) == 2 for record, _ in outcome.records)
    cluster.commit(outcome.records)
    assert len(cluster.image.topics_by_name["a"].partitions) == 4
    assert [change.partition for change in cluster.delta.partitions] == [2, 3]


def test_new_partitions_follow_their_assignment(new_cluster: type[Cluster]) -> None:
    cluster = new_cluster(1, 2, 3)
    cluster.create("a", 1, 2)
    cluster.commit(grow(cluster, ("a", 3, [[3, 1], [2, 3]])).records)
    assert cluster.image.partition("a", 1).replicas == (3, 1)
    assert cluster.image.partition("a", 2).leader == 2


def test_invalid_partition_counts_are_rejected(new_cluster: type[Cluster]) -> None:
    cluster = new_cluster(1, 2)
    cluster.create("a", 3)
    cluster.create("b", 1)
    cluster.create("c", 1)
    outcome = grow(
        cluster,
        ("a", 3, None),
        ("b", 0, None),
        ("nothing", 2, None),
        ("c", 3, [[1]]),
    )
    assert errors(outcome) == {
        "a": "INVALID_PARTITIONS",
        "b": "INVALID_PARTITIONS",
        "nothing": "UNKNOWN_TOPIC_OR_PARTITION",
        "c": "INVALID_REPLICA_ASSIGNMENT",
    }
    assert outcome.records == []
    for replicas in ([9], [], [1, 2], [1, 1]):
        assert errors(grow(cluster, ("a", 4, [replicas]))) == {"a": "INVALID_REPLICA_ASSIGNMENT"}


def test_a_topic_that_is_named_twice_gets_no_partitions(cluster: Cluster) -> None:
    cluster.create("a")
    outcome = grow(cluster, ("a", 2, None), ("a", 3, None))
    assert errors(outcome) == {"a": "INVALID_REQUEST"}
    assert len(outcome.response.results) == 1


def test_validate_only_creates_no_partitions(cluster: Cluster) -> None:
    cluster.create("a")
    outcome = grow(cluster, ("a", 2, None), validate_only=True)
    assert errors(outcome) == {"a": "NONE"}
    assert outcome.records == []


def test_too_many_new_partitions_in_one_request_are_rejected(cluster: Cluster) -> None:
    cluster.create("a")
    assert errors(grow(cluster, ("a", 10_002, None))) == {"a": "POLICY_VIOLATION"}
    assert errors(grow(cluster, ("a", 10_001, None))) == {"a": "NONE"}

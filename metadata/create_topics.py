"""CreateTopics (19): new topics with their partitions and configs.

* Each topic succeeds or fails separately. The successful topics are written in one batch.
* -1 for partitions or replication factor means the broker's `num.partitions`, `default.replication.factor`. A manual
  assignment requires -1 for both, numbers its partitions 0, 1, ..., and names registered brokers.
* Configs are validated with the table of topic settings. The response contains all effective configs and their sources.
* `validate_only` returns the same response and writes nothing.
* A duplicate name is rejected, with one result; `__cluster_metadata` is rejected.
* A request for more than 10,000 partitions is rejected as a whole.

The records of a topic: TopicRecord, ConfigRecords, PartitionRecords. Auto-creation by Metadata, and coordinators'
topics, use the same path with a request that is built here (`auto_create_request`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ..protocol.steps import Steps, completed, freed
from .assignment import check_replica_count, new_partition_record, validate_manual_assignment
from .image import TOPIC_RESOURCE
from .outcome import MAX_RECORDS_PER_REQUEST, Outcome, Versioned, too_many_records
from .placement import place
from .records import ConfigRecord, TopicRecord
from .topic_names import (
    CLUSTER_METADATA,
    CONSUMER_OFFSETS,
    SHARE_GROUP_STATE,
    TRANSACTION_STATE,
    has_collision_characters,
    unify_collision_characters,
    validate_topic_name,
)

if TYPE_CHECKING:
    from ..config.sources import BrokerConfig
    from .context import ControllerContext
    from .image import MetadataImage

MAX_PARTITIONS_PER_REQUEST: Final = 10_000


_PARTITIONS_PER_STEP: Final = 50
"""The number of partitions that are created in one step."""


def create_topics(
    image: MetadataImage, request: CreateTopicsRequest, context: ControllerContext
) -> Outcome[CreateTopicsResponse]:
    """Decide on a CreateTopicsRequest. Raises POLICY_VIOLATION if the whole request is too large."""
    return completed(create_topics_in_steps(image, request, context))


def create_topics_in_steps(
    image: MetadataImage, request: CreateTopicsRequest, context: ControllerContext
) -> Steps[Outcome[CreateTopicsResponse]]:
    """The same in steps."""
    yield from _check_partition_count(request, context)
    counts = Counter(topic.name for topic in request.topics)
    yield 0
    records: list[Versioned] = []
    results: list[CreatableTopicResult] = []
    for topic in request.topics:
        if counts[topic.name] > 1 or topic.name == CLUSTER_METADATA:
            yield 0
            continue
        try:
            result = yield from _create_topic(image, topic, context, records)
        except KafkaError as error:
            result = _refused(topic.name, error)
        results.append(result)
        yield 1 + len(result.configs or ())
    for name, count in counts.items():
        if count > 1:
            results.append(
                _refused(name, KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name in the request."))
            )
        elif name == CLUSTER_METADATA:
            message = f"{CLUSTER_METADATA} is the metadata log, which cannot be created"
            results.append(_refused(name, KafkaError(ErrorCode.INVALID_REQUEST, message)))
        else:
            continue
        yield 1
    is_too_much = len(records) > MAX_RECORDS_PER_REQUEST
    if is_too_much or request.validate_only:
        yield from freed(records)
    if is_too_much:
        raise too_many_records()
    return Outcome(CreateTopicsResponse(topics=results), records)


def auto_create_request(names: Iterable[str], broker: BrokerConfig) -> CreateTopicsRequest:
    """The request with which a broker itself creates topics: for a client that used them, or for a coordinator.

    Coordinators' topics get the partitions, replication factor and configs that they need.
    """
    return CreateTopicsRequest(topics=[_auto_creatable_topic(name, broker) for name in names])


def _auto_creatable_topic(name: str, broker: BrokerConfig) -> CreatableTopic:
    if name not in _INTERNAL_TOPIC_SETTINGS:
        return CreatableTopic(name=name, num_partitions=-1, replication_factor=-1)
    partitions, replication_factor, configs = _INTERNAL_TOPIC_SETTINGS[name]
    # A value that is the name of a broker setting is replaced by that setting's value.
    values = {key: str(broker.int(value)) if "." in value else value for key, value in configs.items()}
    return CreatableTopic(
        name=name,
        num_partitions=broker.int(partitions),
        replication_factor=min(broker.int(replication_factor), broker.int("moldau.max.replicas")),
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in values.items()],
    )


_INTERNAL_TOPIC_SETTINGS: Final = {
    CONSUMER_OFFSETS: (
        "offsets.topic.num.partitions",
        "offsets.topic.replication.factor",
        {
            "cleanup.policy": "compact",
            "segment.bytes": "offsets.topic.segment.bytes",
            "compression.type": "producer",
        },
    ),
    TRANSACTION_STATE: (
        "transaction.state.log.num.partitions",
        "transaction.state.log.replication.factor",
        {
            "unclean.leader.election.enable": "false",
            "compression.type": "uncompressed",
            "cleanup.policy": "compact",
            "min.insync.replicas": "transaction.state.log.min.isr",
            "segment.bytes": "transaction.state.log.segment.bytes",
        },
    ),
    SHARE_GROUP_STATE: (
        "share.coordinator.state.topic.num.partitions",
        "share.coordinator.state.topic.replication.factor",
        {
            "cleanup.policy": "delete",
            "compression.type": "producer",
            "segment.bytes": "share.coordinator.state.topic.segment.bytes",
            "min.insync.replicas": "share.coordinator.state.topic.min.isr",
            "retention.ms": "-1",
        },
    ),
}
"""For each coordinator's topic: the broker settings for partitions and replication factor, and its configs."""


def _check_partition_count(request: CreateTopicsRequest, context: ControllerContext) -> Steps[None]:
    total = 0
    for topic in request.topics:
        if topic.assignments:
            total += len(topic.assignments)
        elif topic.num_partitions == -1:
            total += context.default_partitions
        else:
            total += max(topic.num_partitions, 0)
        yield 0
    if total > MAX_PARTITIONS_PER_REQUEST:
        message = f"A request can create at most {MAX_PARTITIONS_PER_REQUEST} partitions; this one has {total}."
        raise KafkaError(ErrorCode.POLICY_VIOLATION, message)


def _create_topic(
    image: MetadataImage, topic: CreatableTopic, context: ControllerContext, records: list[Versioned]
) -> Steps[CreatableTopicResult]:
    """Add the topic's records, unless the topic is rejected."""
    _check_name(image, topic.name)
    configs = _checked_configs(image, topic, context)
    assignments = yield from _assignments(image, topic, context)
    topic_id = context.random_uuid()
    records.append(Versioned(TopicRecord(name=topic.name, topic_id=topic_id)))
    records += [
        Versioned(ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name=topic.name, name=name, value=value))
        for name, value in configs.items()
    ]
    for first in range(0, len(assignments), _PARTITIONS_PER_STEP):
        if first:
            yield _PARTITIONS_PER_STEP
        records += [
            new_partition_record(image, topic_id, partition, replicas)
            for partition, replicas in enumerate(assignments[first : first + _PARTITIONS_PER_STEP], first)
        ]
    return CreatableTopicResult(
        name=topic.name,
        topic_id=topic_id,
        error_message=None,
        num_partitions=len(assignments),
        replication_factor=len(assignments[0]),
        configs=[
            CreatableTopicConfigs(
                name=entry.name,
                value=None if entry.is_sensitive else entry.value,
                read_only=entry.is_read_only,
                config_source=entry.source,
                is_sensitive=entry.is_sensitive,
            )
            for entry in context.effective_topic_configs(image, configs)
        ],
    )


def _check_name(image: MetadataImage, name: str) -> None:
    if name in image.topics_by_name:
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    validate_topic_name(name)
    if has_collision_characters(name):
        colliding = image.colliding_topics.get(unify_collision_characters(name))
        if colliding:
            message = f"'{name}' collides with topic '{min(colliding)}': metric names do not distinguish '.' and '_'."
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, message)


def _checked_configs(image: MetadataImage, topic: CreatableTopic, context: ControllerContext) -> dict[str, str]:
    nulls = [config.name for config in topic.configs if config.value is None]
    if nulls:
        message = f"These configs have no value: {', '.join(nulls)}"
        raise KafkaError(ErrorCode.INVALID_CONFIG, message)
    configs = {config.name: config.value for config in topic.configs if config.value is not None}
    context.check_topic_configs(image, configs)
    return configs


def _assignments(
    image: MetadataImage, topic: CreatableTopic, context: ControllerContext
) -> Steps[list[tuple[int, ...]]]:
    """The replicas of partition 0, 1, ..."""
    if topic.assignments:
        manual = yield from _manual_assignments(image, topic)
        check_replica_count(len(manual[0]), context.max_replicas)
        return manual
    if topic.replication_factor < -1 or topic.replication_factor == 0:
        message = f"The replication factor {topic.replication_factor} is neither positive nor -1 (the default)."
        raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, message)
    if topic.num_partitions < -1 or topic.num_partitions == 0:
        message = f"The number of partitions {topic.num_partitions} is neither positive nor -1 (the default)."
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, message)
    partitions = context.default_partitions if topic.num_partitions == -1 else topic.num_partitions
    factor = context.default_replication_factor if topic.replication_factor == -1 else topic.replication_factor
    check_replica_count(factor, context.max_replicas)
    try:
        return place(image.brokers.values(), partitions, factor, context.random_below(max(len(image.brokers), 1)))
    except KafkaError as error:
        message = f"Cannot place {factor} replica(s) of a partition: {error.message}"
        raise KafkaError(error.code, message) from None


def _manual_assignments(image: MetadataImage, topic: CreatableTopic) -> Steps[list[tuple[int, ...]]]:
    if topic.replication_factor != -1:
        message = "With an assignment of replicas, the replication factor has to be -1."
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)
    if topic.num_partitions != -1:
        message = "With an assignment of replicas, the number of partitions has to be -1."
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)
    found: dict[int, tuple[int, ...]] = {}
    replication_factor: int | None = None
    for assignment in topic.assignments:
        partition = assignment.partition_index
        if partition in found:
            message = f"Partition {partition} is assigned more than once."
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
        validate_manual_assignment(image, assignment.broker_ids, replication_factor, partition)
        replication_factor = len(assignment.broker_ids)
        found[partition] = tuple(assignment.broker_ids)
        yield 0
    if set(found) != set(range(len(found))):
        message = "The assigned partitions have to be numbered 0, 1, 2, ... without a gap."
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
    return [found[partition] for partition in range(len(found))]


def _refused(name: str, error: KafkaError) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=error.code, error_message=error.message)

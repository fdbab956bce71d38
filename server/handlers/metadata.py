"""Metadata (API key 3): brokers, topics, leaders; the second request of every client.

- Versions 0 to 13. In version 0, an empty list of topics means all topics. Since version 1, null means all topics, and
  an empty list means none.
- A missing topic is created if the client allows it (always below version 4) and ``auto.create.topics.enable`` is on.
  The same response describes it.
- Since version 10, topics can be requested by id; since version 12, without a name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...metadata.auto_create import missing_topics
from ...metadata.topic_names import INTERNAL_TOPICS
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ...protocol.steps import each
from ...protocol.uuid import ZERO_UUID
from . import authorized_operations
from .authorized_operations import NOT_REQUESTED
from .brokers import controller_id, node_endpoints
from .topic_state import leader_error, offline_replicas

if TYPE_CHECKING:
    from ...metadata.image import MetadataImage
    from ...metadata.registrations import TopicImage
    from ..broker import Broker
    from ..concurrency.slices import Sliced
    from ..context import RequestContext


_MISSING_PER_STEP = 100
"""The maximum number of topics that are created by one change of the metadata."""


def handle(broker: Broker, context: RequestContext, request: MetadataRequest) -> Sliced[MetadataResponse]:
    """Describe the cluster and the requested topics."""
    version = context.api_version
    include_operations = request.include_topic_authorized_operations
    wanted = request.topics
    if wanted is None or (version == 0 and not wanted):
        image = broker.metadata.image
        topics: list[MetadataResponseTopic] = []
        for topic in image.topics_by_name.values():
            described = yield from _describe(broker, context, image, topic, include_operations)
            topics.append(described)
    else:
        auto_create = version < 4 or request.allow_auto_topic_creation
        topics = yield from _describe_named(
            broker, context, wanted, auto_create=auto_create, include_operations=include_operations
        )
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=node_id, host=host, port=port, rack=rack)
            for node_id, host, port, rack in node_endpoints(broker, context)
        ],
        cluster_id=broker.cluster_id,
        controller_id=controller_id(broker),
        topics=topics,
        cluster_authorized_operations=authorized_operations.of_cluster(broker, context)
        if request.include_cluster_authorized_operations
        else NOT_REQUESTED,
    )


def failed(request: MetadataRequest, error: KafkaError) -> Sliced[MetadataResponse]:
    """The error for every named topic and, since version 13, for the request."""

    def refused(topic: MetadataRequestTopic) -> MetadataResponseTopic:
        return MetadataResponseTopic(name=topic.name or "", topic_id=topic.topic_id, error_code=error.code)

    topics = yield from each(refused, request.topics or ())
    return MetadataResponse(error_code=error.code, topics=topics)


def _describe_named(
    broker: Broker,
    context: RequestContext,
    wanted: list[MetadataRequestTopic],
    *,
    auto_create: bool,
    include_operations: bool,
) -> Sliced[list[MetadataResponseTopic]]:
    keys: dict[bytes | str, None] = {}
    missing: dict[str, None] = {}
    with_id = nameless = False
    for topic in wanted:
        yield 0
        if topic.topic_id != ZERO_UUID:
            if not with_id:
                with_id = True  # as in Apache Kafka: with one id, names are ignored
                keys.clear()
            keys[topic.topic_id] = None
        elif topic.name is None:
            nameless = True
        elif not with_id:
            keys[topic.name] = None
            if topic.name not in broker.metadata.image.topics_by_name:
                missing[topic.name] = None
    if with_id:
        missing.clear()
        if context.api_version < 12:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Topic ids require version 12 or above.")
    elif nameless:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "A topic has neither a name nor an id.")
    errors: dict[str, ErrorCode] = {}
    names = list(missing)
    for first in range(0, len(names), _MISSING_PER_STEP):
        some = names[first : first + _MISSING_PER_STEP]
        if auto_create and broker.auto_create_topics:
            if broker.mutation_quotas is not None:
                some = broker.mutation_quotas.limit_auto_creation(context, some)
            errors |= yield from broker.create_missing_topics(some, context.origin())
        else:
            unknown, invalid = missing_topics(broker.metadata.image, some)
            errors |= invalid | dict.fromkeys(unknown, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        yield 0
    image = broker.metadata.image
    answer: list[MetadataResponseTopic] = []
    for key in keys:
        yield 0
        found = image.topics_by_name.get(key) if isinstance(key, str) else image.topics_by_id.get(key)
        if found is not None:
            answer.append((yield from _describe(broker, context, image, found, include_operations)))
        elif isinstance(key, bytes):
            answer.append(MetadataResponseTopic(name=None, topic_id=key, error_code=ErrorCode.UNKNOWN_TOPIC_ID))
        else:
            error = errors.get(key, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            operations = authorized_operations.of_topic(broker, context, key) if include_operations else NOT_REQUESTED
            answer.append(
                MetadataResponseTopic(
                    name=key,
                    error_code=error,
                    is_internal=key in INTERNAL_TOPICS,
                    topic_authorized_operations=operations,
                )
            )
    return answer


def _describe(
    broker: Broker, context: RequestContext, image: MetadataImage, topic: TopicImage, include_operations: bool
) -> Sliced[MetadataResponseTopic]:
    partitions = []
    for index, partition in sorted(topic.partitions.items()):
        yield 1
        partitions.append(
            MetadataResponsePartition(
                error_code=leader_error(partition),
                partition_index=index,
                leader_id=partition.leader,
                leader_epoch=partition.leader_epoch,
                replica_nodes=list(partition.replicas),
                isr_nodes=list(partition.isr),
                offline_replicas=offline_replicas(broker, image, topic, index, partition),
            )
        )
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=partitions,
        topic_authorized_operations=authorized_operations.of_topic(broker, context, topic.name)
        if include_operations
        else NOT_REQUESTED,
    )

"""DescribeTopicPartitions (API key 75): topics with their eligible leader replicas, in pages (KIP-966).

- Version 0. Topics are sorted by name. A page holds at most ``response_partition_limit`` partitions, bounded by
  ``max.request.partition.size.limit``. The cursor has the beginning of the next page.
- If no topics are named, all topics are described.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

from ...metadata.topic_names import INTERNAL_TOPICS, invalid_reason
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
    TopicRequest,
)
from ...protocol.steps import each, each_once, in_order
from . import authorized_operations
from .topic_state import leader_error, offline_replicas

if TYPE_CHECKING:
    from ..broker import Broker
    from ..concurrency.slices import Sliced
    from ..context import RequestContext


def handle(
    broker: Broker, context: RequestContext, request: DescribeTopicPartitionsRequest
) -> Sliced[DescribeTopicPartitionsResponse]:
    """Describe one page."""
    image = broker.metadata.image
    cursor = request.cursor
    if cursor is not None and cursor.partition_index < 0:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "The cursor's partition index is negative.")
    named = yield from each_once(topic.name for topic in request.topics)
    if cursor is not None and named and cursor.topic_name not in named:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "The requested topics do not include the topic of the cursor.")
    names = yield from in_order(named or list(image.topics_by_name))
    if cursor is not None:
        del names[: bisect_left(names, cursor.topic_name)]
    room = max(1, min(request.response_partition_limit, broker.config.int("max.request.partition.size.limit")))
    response = DescribeTopicPartitionsResponse()
    for name in names:
        yield 0
        if room == 0:
            response.next_cursor = Cursor(topic_name=name, partition_index=0)
            break
        topic = image.topics_by_name.get(name)
        if topic is None:
            response.topics.append(
                DescribeTopicPartitionsResponseTopic(
                    name=name,
                    error_code=ErrorCode.INVALID_TOPIC_EXCEPTION
                    if invalid_reason(name)
                    else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    is_internal=name in INTERNAL_TOPICS,
                    topic_authorized_operations=authorized_operations.of_topic(broker, context, name),
                )
            )
            continue
        first = cursor.partition_index if cursor is not None and cursor.topic_name == name else 0
        indexes = [index for index in sorted(topic.partitions) if index >= first]
        described = DescribeTopicPartitionsResponseTopic(
            name=name,
            topic_id=topic.topic_id,
            is_internal=name in INTERNAL_TOPICS,
            topic_authorized_operations=authorized_operations.of_topic(broker, context, name),
        )
        response.topics.append(described)
        for index in indexes[:room]:
            yield 1
            partition = topic.partitions[index]
            described.partitions.append(
                DescribeTopicPartitionsResponsePartition(
                    error_code=leader_error(partition),
                    partition_index=index,
                    leader_id=partition.leader,
                    leader_epoch=partition.leader_epoch,
                    replica_nodes=list(partition.replicas),
                    isr_nodes=list(partition.isr),
                    eligible_leader_replicas=list(partition.elr),
                    last_known_elr=list(partition.last_known_elr),
                    offline_replicas=offline_replicas(broker, image, topic, index, partition),
                )
            )
        if len(indexes) > room:
            response.next_cursor = Cursor(topic_name=name, partition_index=indexes[room])
            break
        room -= len(indexes)
    return response


def failed(request: DescribeTopicPartitionsRequest, error: KafkaError) -> Sliced[DescribeTopicPartitionsResponse]:
    """The error for every named topic."""

    def refused(topic: TopicRequest) -> DescribeTopicPartitionsResponseTopic:
        return DescribeTopicPartitionsResponseTopic(name=topic.name, error_code=error.code)

    return DescribeTopicPartitionsResponse(topics=(yield from each(refused, request.topics)))

"""OffsetForLeaderEpoch (API key 23): the end offset of a leader epoch of a partition (KIP-101, KIP-279, KIP-320).

- Versions 2 to 4. A client whose position is beyond that offset has read records that were lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...protocol.errors import KafkaError
from ...protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from ...protocol.steps import each

if TYPE_CHECKING:
    from ..broker import Broker
    from ..concurrency.slices import Sliced
    from ..context import RequestContext


def handle(
    broker: Broker, context: RequestContext, request: OffsetForLeaderEpochRequest
) -> Sliced[OffsetForLeaderEpochResponse]:
    """Look up every partition."""
    response = OffsetForLeaderEpochResponse()
    for topic in request.topics:
        yield 0
        topic_response = OffsetForLeaderTopicResult(topic=topic.topic)
        response.topics.append(topic_response)
        for wanted in topic.partitions:
            yield 0
            result = EpochEndOffset(partition=wanted.partition)
            topic_response.partitions.append(result)
            try:
                partition = broker.replicas.partition_by_key(topic.topic, wanted.partition)
                if partition is None:
                    raise KafkaError(broker.replicas.missing_partition_error(topic.topic, wanted.partition))
                partition.check_leader(wanted.current_leader_epoch)
                result.leader_epoch, result.end_offset = partition.end_offset_for_epoch(wanted.leader_epoch)
            except KafkaError as error:
                result.error_code = error.code
    return response


def failed(request: OffsetForLeaderEpochRequest, error: KafkaError) -> Sliced[OffsetForLeaderEpochResponse]:
    """The same error for every partition."""

    def refused(wanted: OffsetForLeaderPartition) -> EpochEndOffset:
        return EpochEndOffset(partition=wanted.partition, error_code=error.code)

    response = OffsetForLeaderEpochResponse()
    for topic in request.topics:
        partitions = yield from each(refused, topic.partitions)
        response.topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=partitions))
        yield 1
    return response

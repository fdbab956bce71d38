"""DeleteRecords (API key 21): advance the start of a partition (KIP-107).

- Versions 0 to 2. The offset -1 means the high watermark. The response has the low watermark, which is the new first
  offset.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...metadata.topic_names import INTERNAL_TOPICS
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from ...protocol.steps import each

if TYPE_CHECKING:
    from ..broker import Broker
    from ..concurrency.slices import Sliced
    from ..context import RequestContext

_NO_LOW_WATERMARK = -1


def handle(broker: Broker, context: RequestContext, request: DeleteRecordsRequest) -> Sliced[DeleteRecordsResponse]:
    """Delete records from every named partition."""
    response = DeleteRecordsResponse()
    for topic in request.topics:
        yield 0
        topic_response = DeleteRecordsTopicResult(name=topic.name)
        response.topics.append(topic_response)
        for wanted in topic.partitions:
            yield 0
            result = DeleteRecordsPartitionResult(
                partition_index=wanted.partition_index, low_watermark=_NO_LOW_WATERMARK
            )
            topic_response.partitions.append(result)
            try:
                if topic.name in INTERNAL_TOPICS:
                    raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
                partition = broker.replicas.partition_by_key(topic.name, wanted.partition_index)
                if partition is None:
                    raise KafkaError(broker.replicas.missing_partition_error(topic.name, wanted.partition_index))
                result.low_watermark = partition.delete_records_before(wanted.offset)
            except KafkaError as error:
                result.error_code = error.code
    return response


def failed(request: DeleteRecordsRequest, error: KafkaError) -> Sliced[DeleteRecordsResponse]:
    """The same error for every partition."""

    def refused(wanted: DeleteRecordsPartition) -> DeleteRecordsPartitionResult:
        return DeleteRecordsPartitionResult(
            partition_index=wanted.partition_index, low_watermark=_NO_LOW_WATERMARK, error_code=error.code
        )

    response = DeleteRecordsResponse()
    for topic in request.topics:
        partitions = yield from each(refused, topic.partitions)
        response.topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=partitions))
        yield 1
    return response

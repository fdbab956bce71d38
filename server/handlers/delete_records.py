"""DeleteRecords (API key 21): move the start of a partition up (KIP-107).

- Versions 0 to 2. -1 means up to the high watermark. The answer is the low watermark, the new first offset.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...metadata.topic_names import INTERNAL_TOPICS
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

if TYPE_CHECKING:
    from ..broker import Broker
    from ..request import RequestContext
    from ..slices import Sliced

_NO_LOW_WATERMARK = -1


def handle(broker: Broker, context: RequestContext, request: DeleteRecordsRequest) -> Sliced[DeleteRecordsResponse]:
    """Delete from every partition that is named."""
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
                    raise KafkaError(broker.replicas.why_absent(topic.name, wanted.partition_index))
                result.low_watermark = partition.delete_records_before(wanted.offset)
            except KafkaError as error:
                result.error_code = error.code
    return response


def failed(request: DeleteRecordsRequest, error: KafkaError) -> DeleteRecordsResponse:
    """The same error for every partition."""
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[
                    DeleteRecordsPartitionResult(
                        partition_index=wanted.partition_index, low_watermark=_NO_LOW_WATERMARK, error_code=error.code
                    )
                    for wanted in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )

"""DescribeProducers (API key 61): the idempotent producers of a partition, and their transactions (KIP-664).

- Version 0.
- Leaders and followers respond.
- It finds a transaction that began long ago and that is unknown to its coordinator. Such a transaction would stall all
  ``read_committed`` consumers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...metadata.topic_names import validate_topic_name
from ...protocol.errors import KafkaError
from ...protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from ...protocol.steps import each

if TYPE_CHECKING:
    from ..broker import Broker
    from ..concurrency.slices import Sliced
    from ..context import RequestContext


def handle(
    broker: Broker, context: RequestContext, request: DescribeProducersRequest
) -> Sliced[DescribeProducersResponse]:
    """List the producers of every named partition."""
    response = DescribeProducersResponse()
    for topic in request.topics:
        yield 0
        topic_response = TopicResponse(name=topic.name)
        response.topics.append(topic_response)
        for index in dict.fromkeys(topic.partition_indexes):
            yield 0
            result = PartitionResponse(partition_index=index)
            topic_response.partitions.append(result)
            try:
                validate_topic_name(topic.name)
                partition = broker.replicas.partition_by_key(topic.name, index)
                if partition is None:
                    raise KafkaError(broker.replicas.missing_partition_error(topic.name, index))
                partition.check_leader(or_follower=True)
                result.active_producers = [
                    ProducerState(
                        producer_id=producer.producer_id,
                        producer_epoch=producer.epoch,
                        last_sequence=producer.last_sequence,
                        last_timestamp=producer.last_timestamp,
                        coordinator_epoch=producer.coordinator_epoch,
                        current_txn_start_offset=producer.transaction_first_offset,
                    )
                    for producer in partition.log.active_producers()
                ]
                yield len(result.active_producers)
            except KafkaError as error:
                result.error_code = error.code
                result.error_message = error.message
    return response


def failed(request: DescribeProducersRequest, error: KafkaError) -> Sliced[DescribeProducersResponse]:
    """The same error for every partition."""

    def refused(index: int) -> PartitionResponse:
        return PartitionResponse(partition_index=index, error_code=error.code, error_message=error.message)

    response = DescribeProducersResponse()
    for topic in request.topics:
        partitions = yield from each(refused, topic.partition_indexes)
        response.topics.append(TopicResponse(name=topic.name, partitions=partitions))
        yield 1
    return response

"""DeleteRecords (API key 21): advance the start of a partition (KIP-107).

- Versions 0 to 2. The offset -1 means the high watermark. The response has the low watermark, which is the new first
  offset.
- The response waits until the replicas on all live brokers have deleted the records too, for at most the request's
  ``timeout_ms``. Then the partition has REQUEST_TIMED_OUT; the deletion remains in effect.
"""

from __future__ import annotations

from functools import partial
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
from ..concurrency.slices import SlicedFuture

if TYPE_CHECKING:
    from ...replication.partition import Partition
    from ..broker import Broker
    from ..concurrency.slices import Sliced
    from ..context import RequestContext

_NO_LOW_WATERMARK = -1


def handle(broker: Broker, context: RequestContext, request: DeleteRecordsRequest) -> Sliced[DeleteRecordsResponse]:
    """Delete records from every named partition."""
    response = DeleteRecordsResponse()
    replicating: list[tuple[Partition, int, DeleteRecordsPartitionResult]] = []
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
                offset = partition.delete_records_before(wanted.offset)
                if partition.in_sync is None:
                    result.low_watermark = partition.log.log_start_offset
                    continue
                result.low_watermark = partition.low_watermark(broker.replication.is_live)
                if result.low_watermark < offset:
                    replicating.append((partition, offset, result))
            except KafkaError as error:
                result.error_code = error.code
    if replicating:
        yield from _wait_for_followers(broker, replicating, request.timeout_ms)
    return response


def _wait_for_followers(
    broker: Broker, replicating: list[tuple[Partition, int, DeleteRecordsPartitionResult]], timeout_ms: int
) -> Sliced[None]:
    """Wait until the low watermarks have reached these offsets."""
    is_live = broker.replication.is_live
    done: SlicedFuture[None] = SlicedFuture(broker.slices)
    outstanding = len(replicating)

    def settled(partition: Partition, result: DeleteRecordsPartitionResult, error: KafkaError | None) -> None:
        nonlocal outstanding
        if done.is_done:
            return  # timed out
        result.error_code = ErrorCode.NONE if error is None else error.code
        result.low_watermark = _NO_LOW_WATERMARK if error is not None else partition.low_watermark(is_live)
        outstanding -= 1
        if not outstanding:
            done.succeed(None)

    for partition, offset, result in replicating:
        result.error_code = ErrorCode.REQUEST_TIMED_OUT
        # The handler may have been suspended since it deleted the records.
        try:
            partition.check_leader()
        except KafkaError as error:
            settled(partition, result, error)
        else:
            partition.when_deleted(offset, partial(settled, partition, result))
            partition.review_deletions(is_live)
        yield 0
    timer = broker.timers.call_after(max(0, timeout_ms), partial(_expire, done))
    try:
        yield from done.result()
    finally:
        timer.cancel()


def _expire(done: SlicedFuture[None]) -> None:
    if not done.is_done:
        done.succeed(None)


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

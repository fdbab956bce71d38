"""WriteTxnMarkers (API key 27): from a transaction coordinator to the leaders of its transaction's partitions (KIP-98).

- Versions 1 and 2. A producer appears in the response once. Each partition succeeds or fails independently:
  UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER, INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED.
- Administrators also send it, to end a transaction that its coordinator has forgotten (KIP-664).
- Version 2 has the transaction.version with which the transaction ends. With 2, the epoch must have been bumped
  (KIP-1228).
"""

from __future__ import annotations

from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from ..concurrency.pending import Pending
from ..context import DEFERRED, Deferred

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..broker import Broker
    from ..concurrency.slices import Sliced
    from ..context import RequestContext


def handle(broker: Broker, context: RequestContext, request: WriteTxnMarkersRequest) -> Sliced[Deferred]:
    """Write every marker. The response follows when all are below the high watermark, or rejected."""
    pending: Pending[ErrorCode, KafkaError] = Pending(
        lambda codes: context.reply_in_slices(_respond(request, iter(codes)))
    )
    for marker in request.markers:
        for topic in marker.topics:
            for index in topic.partition_indexes:
                _write(broker, marker, topic.name, index, partial(_end_part, pending, pending.add()))
                yield 0
    pending.start()
    return DEFERRED


def _end_part(pending: Pending[ErrorCode, KafkaError], part: int, error: KafkaError | None) -> None:
    pending.complete(part, ErrorCode.NONE if error is None else error.code)


def _write(
    broker: Broker, marker: WritableTxnMarker, topic: str, index: int, written: Callable[[KafkaError | None], None]
) -> None:
    if marker.producer_id < 0 or marker.producer_epoch < 0:
        # Apache Kafka has no more specific code for this error.
        written(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR))
        return
    broker.markers.write(
        topic,
        index,
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        coordinator_epoch=marker.coordinator_epoch,
        committed=marker.transaction_result,
        transaction_version=marker.transaction_version,
        written=written,
    )


def failed(request: WriteTxnMarkersRequest, error: KafkaError) -> Sliced[WriteTxnMarkersResponse]:
    """The same error for every partition."""
    return _respond(request, repeat(error.code))


def _respond(request: WriteTxnMarkersRequest, results: Iterator[ErrorCode]) -> Sliced[WriteTxnMarkersResponse]:
    """``results`` are in the order of the partitions of the request."""
    codes: dict[int, dict[str, dict[int, ErrorCode]]] = {}
    for marker in request.markers:
        of_producer = codes.setdefault(marker.producer_id, {})
        for topic in marker.topics:
            of_topic = of_producer.setdefault(topic.name, {})
            for index in topic.partition_indexes:
                of_topic[index] = next(results)
                yield 0
    response = WriteTxnMarkersResponse()
    for producer_id, of_producer in codes.items():
        result = WritableTxnMarkerResult(producer_id=producer_id)
        response.markers.append(result)
        for name, of_topic in of_producer.items():
            topic_result = WritableTxnMarkerTopicResult(name=name)
            result.topics.append(topic_result)
            for index, code in of_topic.items():
                topic_result.partitions.append(WritableTxnMarkerPartitionResult(partition_index=index, error_code=code))
                yield 1
    return response

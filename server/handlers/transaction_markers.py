"""WriteTxnMarkers (API key 27): from a transaction coordinator to who leads the partitions of its transaction (KIP-98).

- Versions 1 and 2. A producer stands in the answer once. Each partition succeeds or fails by itself:
  UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER, INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED.
- Administrators send it too, to end a transaction whose coordinator has forgotten it (KIP-664).
- Version 2 says by which transaction.version the transaction ends: with 2 the epoch must have been bumped (KIP-1228).
"""

from __future__ import annotations

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
from ..markers import write_marker
from ..request import PARKED, Parked

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..broker import Broker
    from ..request import RequestContext

    _Codes = dict[tuple[int, str, int], ErrorCode]


def handle(
    broker: Broker, context: RequestContext, request: WriteTxnMarkersRequest
) -> WriteTxnMarkersResponse | Parked:
    """Write every marker; answer when all are below the high watermark, or refused."""
    return _Writing(broker, context, request).run()


class _Writing:
    """The markers of one request, and what became of them."""

    __slots__ = ("_broker", "_codes", "_context", "_missing", "_parked", "_request")

    def __init__(self, broker: Broker, context: RequestContext, request: WriteTxnMarkersRequest) -> None:
        self._broker = broker
        self._context = context
        self._request = request
        self._codes: _Codes = {}
        self._missing = 1  # as long as `run` is at work
        self._parked = False

    def run(self) -> WriteTxnMarkersResponse | Parked:
        """Write them all."""
        for marker in self._request.markers:
            for topic in marker.topics:
                for index in topic.partition_indexes:
                    self._write(marker, topic.name, index)
        self._missing -= 1
        if self._missing:
            self._parked = True
            return PARKED
        return self._answer()

    def _write(self, marker: WritableTxnMarker, topic: str, index: int) -> None:
        if marker.producer_id < 0 or marker.producer_epoch < 0:
            # Apache Kafka has no other word for it.
            self._note(marker, topic, index, ErrorCode.UNKNOWN_SERVER_ERROR)
            return

        def written(error: KafkaError | None) -> None:
            self._note(marker, topic, index, ErrorCode.NONE if error is None else error.code)
            self._missing -= 1
            if self._parked and not self._missing:
                self._context.reply(self._answer())

        self._missing += 1
        try:
            write_marker(
                self._broker,
                topic,
                index,
                producer_id=marker.producer_id,
                producer_epoch=marker.producer_epoch,
                coordinator_epoch=marker.coordinator_epoch,
                committed=marker.transaction_result,
                transaction_version=marker.transaction_version,
                written=written,
            )
        except KafkaError as error:
            written(error)

    def _note(self, marker: WritableTxnMarker, topic: str, index: int, code: ErrorCode) -> None:
        self._codes[marker.producer_id, topic, index] = code

    def _answer(self) -> WriteTxnMarkersResponse:
        return _answer(self._request, lambda marker, topic, index: self._codes[marker.producer_id, topic, index])


def failed(request: WriteTxnMarkersRequest, error: KafkaError) -> WriteTxnMarkersResponse:
    """The same error for every partition."""
    return _answer(request, lambda marker, topic, index: error.code)


def _answer(
    request: WriteTxnMarkersRequest, result_of: Callable[[WritableTxnMarker, str, int], ErrorCode]
) -> WriteTxnMarkersResponse:
    codes: dict[int, dict[str, dict[int, ErrorCode]]] = {}
    for marker in request.markers:
        of_producer = codes.setdefault(marker.producer_id, {})
        for topic in marker.topics:
            of_topic = of_producer.setdefault(topic.name, {})
            for index in topic.partition_indexes:
                of_topic[index] = result_of(marker, topic.name, index)
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(
                        name=name,
                        partitions=[
                            WritableTxnMarkerPartitionResult(partition_index=index, error_code=code)
                            for index, code in of_topic.items()
                        ],
                    )
                    for name, of_topic in of_producer.items()
                ],
            )
            for producer_id, of_producer in codes.items()
        ]
    )

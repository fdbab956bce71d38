"""Produce (API key 0): record batches go to the log of their partition as they are.

- Versions 3 to 13; 0 to 2 are advertised and refused by closing the connection, as Apache Kafka does (librdkafka
  before 2.11 turns compression off when the minimum is higher, KAFKA-18659). By topic id from version 13 on
  (KIP-516).
- ``acks`` 1 and -1 are answered when the records are appended and, with -1, on every in-sync replica; 0 is not
  answered, and an error closes the connection, which is all that such a client can be told.
- Each partition succeeds or fails by itself. Records are looked at only where `Log.append` says so; batches that have
  to be recompressed (``compression.type``) go to a thread, and later appends of that partition wait behind them.
- Transactional batches are refused: the transaction coordinator is not there yet (docs/known_gaps.md).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ...log.validation import InvalidRecordBatchError
from ...protocol.compression import Codec
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from ...protocol.records import ATTRIBUTES_POSITION, CODEC_MASK, TRANSACTIONAL_MASK
from ..request import PARKED, Parked
from .topic_state import LEADER_ERRORS

if TYPE_CHECKING:
    from ...replication.partition import Partition
    from ..broker import Broker
    from ..request import RequestContext

logger = logging.getLogger(__name__)

Buffer = bytes | bytearray | memoryview

ACKS = frozenset({-1, 0, 1})


def handle(broker: Broker, context: RequestContext, request: ProduceRequest) -> ProduceResponse | Parked | None:
    """Append to every partition that is named; answer when all have their result."""
    produce = _Produce(broker, context, request)
    produce.run()
    if produce.waiting_for:
        context.keeps_request = True  # its records lie in the queues
        return PARKED
    return produce.answer()


def failed(request: ProduceRequest, error: KafkaError) -> ProduceResponse:
    """The same error for every partition."""
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[
                    PartitionProduceResponse(
                        index=partition.index, error_code=error.code, base_offset=-1, error_message=error.message
                    )
                    for partition in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
    )


class _Produce:
    """One produce request and the results of its partitions."""

    __slots__ = (
        "_broker",
        "_context",
        "_failed_leaders",
        "_first_error",
        "_request",
        "_started",
        "response",
        "waiting_for",
    )

    def __init__(self, broker: Broker, context: RequestContext, request: ProduceRequest) -> None:
        self._broker = broker
        self._context = context
        self._request = request
        self._started = False
        self._first_error: PartitionProduceResponse | None = None
        self._failed_leaders: set[int] = set()
        self.response = ProduceResponse()
        self.waiting_for = 0

    def run(self) -> None:
        """Append what can be appended now; queue the rest."""
        by_id = self._context.api_version >= 13
        for topic in self._request.topic_data:
            key = topic.topic_id if by_id else topic.name
            topic_response = TopicProduceResponse(name=topic.name, topic_id=topic.topic_id)
            self.response.responses.append(topic_response)
            for data in topic.partition_data:
                result = PartitionProduceResponse(index=data.index, base_offset=-1)
                topic_response.partition_responses.append(result)
                partition = self._broker.replicas.partition_by_key(key, data.index)
                try:
                    if partition is None:
                        raise KafkaError(self._broker.replicas.why_absent(key, data.index))
                    records = self._check(data.records)
                    if self._broker.appends.must_queue(partition, records):
                        self._queue(partition, records, result)
                    else:
                        self._append(partition, records, result)
                except KafkaError as error:
                    self._fail(result, error, partition)
        self._started = True

    def _check(self, records: Buffer | None) -> Buffer:
        """What the log does not check, because it depends on the request."""
        if self._request.acks not in ACKS:
            raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks must be 0, 1 or -1, not {self._request.acks}.")
        if records is None:
            records = b""
        if len(records) > ATTRIBUTES_POSITION + 1:
            attributes = records[ATTRIBUTES_POSITION + 1]
            if attributes & CODEC_MASK == Codec.ZSTD and self._context.api_version < 7:
                raise KafkaError(
                    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
                    "Produce requests with version 7 or newer may hold zstd; older ones may not.",
                )
            if attributes & TRANSACTIONAL_MASK:
                if self._request.transactional_id is None:
                    raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
                raise KafkaError(
                    ErrorCode.INVALID_TXN_STATE,
                    "Transactions are not supported by this server yet: unset 'transactional.id'.",
                )
        return records

    def _append(
        self, partition: Partition, records: Buffer, result: PartitionProduceResponse, *, validated: bool = False
    ) -> None:
        info = partition.append(records, acks=self._request.acks, now_ms=self._broker.now_ms(), validated=validated)
        result.base_offset = info.first_offset
        result.log_append_time_ms = info.log_append_time_ms
        result.log_start_offset = info.log_start_offset

    def _queue(self, partition: Partition, records: Buffer, result: PartitionProduceResponse) -> None:
        self.waiting_for += 1

        def append(prepared: Buffer, *, validated: bool) -> None:
            self._append(partition, prepared, result, validated=validated)

        def done(error: KafkaError | None) -> None:
            if error is not None:
                self._fail(result, error, partition)
            self.waiting_for -= 1
            if self._started and not self.waiting_for:
                self._finish()

        self._broker.appends.submit(partition, records, append, done)

    def _fail(self, result: PartitionProduceResponse, error: KafkaError, partition: Partition | None) -> None:
        if error.code is ErrorCode.KAFKA_STORAGE_ERROR:
            self._broker.storage_failed(error)
        result.error_code = error.code
        result.error_message = error.message
        result.base_offset = -1
        if isinstance(error, InvalidRecordBatchError):
            result.record_errors = [
                BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=message)
                for index, message in error.record_errors
            ]
            if partition is not None:
                result.log_start_offset = partition.log.log_start_offset
        if error.code in LEADER_ERRORS and partition is not None and self._context.api_version >= 10:
            result.current_leader = LeaderIdAndEpoch(leader_id=partition.leader_id, leader_epoch=partition.leader_epoch)
            self._failed_leaders.add(partition.leader_id)
        if self._first_error is None:
            self._first_error = result

    def answer(self) -> ProduceResponse | None:
        """The response; nothing for ``acks=0``, where an error closes the connection."""
        if self._request.acks == 0:
            if self._first_error is not None:
                code = ErrorCode(self._first_error.error_code)
                self._context.connection.close(
                    f"a produce request with acks=0 failed with {code.name}", level=logging.INFO
                )
            return None
        if self._failed_leaders:
            self.response.node_endpoints = [
                NodeEndpoint(node_id=node_id, host=host, port=port, rack=rack)
                for node_id, host, port, rack in self._broker.node_endpoints(self._context)
                if node_id in self._failed_leaders
            ]
        return self.response

    def _finish(self) -> None:
        answer = self.answer()
        if answer is None:
            self._context.reply_nothing()
        else:
            self._context.reply(answer)

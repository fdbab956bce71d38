"""Produce (API key 0): record batches are appended unchanged to the log of their partition.

- Versions 3 to 13; 0 to 2 are advertised, but such requests close the connection, as in Apache Kafka (librdkafka before
  2.11 disables compression if the minimum is higher, KAFKA-18659). By topic id since version 13 (KIP-516).
- With ``acks`` 1, the response follows when the records are appended; with -1, when they are on every in-sync replica,
  or with REQUEST_TIMED_OUT after the request's ``timeout_ms``. The records then remain in the log.
  With 0, there is no response, and an error closes the connection, because such a client cannot be notified otherwise.
- With ``flush.messages``, the response also waits until the records are flushed (``acks=0`` still has no response).
- Each partition succeeds or fails independently. Records are parsed only where `Log.append` requires it. Batches that
  must be recompressed (``compression.type``) go to a thread, and later appends of that partition wait behind them.
- The coordinators' topics reject records (INVALID_TOPIC_EXCEPTION) from all clients except those with the client id
  ``__admin_client``, as in Apache Kafka, whose own tools use it.
- The first transactional batch of a transaction and partition waits for the transaction coordinator, and the request
  waits with it (KIP-890; see `verification`). Version 12 adds the partition to the transaction; older clients have
  added it before. TRANSACTION_ABORTABLE since version 11, INVALID_TXN_STATE before. If the coordinator has no result
  now, the error is NOT_ENOUGH_REPLICAS, which every client retries.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from ...coordinator.outcome import Producer
from ...log.validation import InvalidRecordBatchError
from ...metadata.topic_names import INTERNAL_TOPICS
from ...protocol.compression import Codec
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from ...protocol.records import ATTRIBUTES_POSITION, BATCH_OVERHEAD, CODEC_MASK, HEADER, TRANSACTIONAL_MASK, Buffer
from ...protocol.steps import completed
from ...protocol.uuid import uuid_to_str
from ...replication.partition import ACKS_ALL
from ..concurrency.pending import Pending
from ..context import DEFERRED, Deferred
from ..coordination.verification import ClientSupport, of_produce
from .brokers import node_endpoints
from .topic_state import LEADER_ERRORS, current_leader

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ...log.partition_log import WrittenAhead
    from ...log.verification import Verification
    from ...replication.partition import Partition
    from ...replication.replicas import TopicKey
    from ..broker import Broker
    from ..concurrency.slices import Sliced
    from ..concurrency.timers import Timer
    from ..context import RequestContext
    from ..coordination.verification import Verified

logger = logging.getLogger(__name__)


MANY_PARTITIONS = 50
"""A request for more partitions takes more than 2 ms, and is served in slices."""
APPENDS_PER_STEP = 5

ACKS = frozenset({-1, 0, 1})
_ADMIN_CLIENT_ID = "__admin_client"

# Errors that Apache Kafka expects, and does not count as failed produce requests.
_EXPECTED = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)

# Errors that a producer may not know, or not retry. NOT_ENOUGH_REPLICAS does not even trigger a metadata request.
_RETRIED_AS_NOT_ENOUGH_REPLICAS = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


def handle(
    broker: Broker, context: RequestContext, request: ProduceRequest
) -> ProduceResponse | Deferred | Sliced[ProduceResponse | Deferred | None] | None:
    """Append to every named partition. The response follows when all partitions have their result."""
    if len(request.topic_data) > 1 or (request.topic_data and len(request.topic_data[0].partition_data) > 1):
        named = 0
        for topic in request.topic_data:
            named += 1 + len(topic.partition_data)
        if named > MANY_PARTITIONS:
            return _handle_long(broker, context, request)
    batches = _transactional_batches(request.topic_data)
    if batches:
        return context.run(broker.slices, _handle_transactional(broker, context, request, batches))
    produce = _Produce(broker, context, request)
    completed(produce.append())
    return produce.end()


def _handle_long(
    broker: Broker, context: RequestContext, request: ProduceRequest
) -> Sliced[ProduceResponse | Deferred | None]:
    """Like `handle`, for many partitions in slices.

    All of it is done even if the client disconnects, as it may with ``acks=0``.
    """
    batches: list[_TransactionalBatch] = []
    for topic in request.topic_data:
        for first in range(0, len(topic.partition_data), MANY_PARTITIONS):
            some = TopicProduceData(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_data=topic.partition_data[first : first + MANY_PARTITIONS],
            )
            batches += _transactional_batches([some])
            yield 0
    if batches:
        return context.run(broker.slices, _handle_transactional(broker, context, request, batches))
    produce = _Produce(broker, context, request)
    yield from broker.slices.shielded(produce.append())
    return produce.end()


def _handle_transactional(
    broker: Broker, context: RequestContext, request: ProduceRequest, batches: list[_TransactionalBatch]
) -> Sliced[ProduceResponse | Deferred | None]:
    """Like `handle`, after the transaction of these batches was verified, behind earlier requests of its id."""
    produce = _Produce(broker, context, request)
    producers = {batch.producer for batch in batches if batch.producer.id >= 0}
    transactional_id = request.transactional_id
    if transactional_id is None:
        produce.refusal = KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    elif len(producers) > 1:
        produce.refusal = KafkaError(
            ErrorCode.INVALID_PRODUCER_ID_MAPPING, "Transactional records contained more than one producer ID"
        )
    if transactional_id is None or len(producers) != 1:
        yield from produce.append()
        return produce.end()
    (producer,) = producers
    client_support = of_produce(context.api_version)
    verifications = broker.verifications
    turn = verifications.enter(transactional_id)
    if turn is not None:
        yield from turn.result()
    try:
        partitions = produce.partitions_of(batches)
        produce.verified = yield from verifications.verify(
            context, transactional_id, producer, partitions, client_support, retries=True
        )
        yield from produce.append()
    finally:
        verifications.leave(transactional_id)
    return produce.end()


class _TransactionalBatch(NamedTuple):
    """The partition of a transactional batch, and the fields of its header."""

    key: str | bytes
    partition_index: int
    producer: Producer
    first_sequence: int


def _transactional_batches(topics: Iterable[TopicProduceData]) -> list[_TransactionalBatch]:
    found = []
    for topic in topics:
        for data in topic.partition_data:
            records = data.records
            if records is not None and _is_transactional(records):
                *_, producer_id, producer_epoch, first_sequence, _ = HEADER.unpack_from(records)
                found.append(
                    _TransactionalBatch(
                        topic.name or topic.topic_id, data.index, Producer(producer_id, producer_epoch), first_sequence
                    )
                )
    return found


def _is_transactional(records: Buffer) -> bool:
    return len(records) >= BATCH_OVERHEAD and bool(records[ATTRIBUTES_POSITION + 1] & TRANSACTIONAL_MASK)


def has_transactional_records(topic: TopicProduceData) -> bool:
    """Whether a batch for the topic is transactional."""
    return any(data.records is not None and _is_transactional(data.records) for data in topic.partition_data)


def failed(request: ProduceRequest, error: KafkaError) -> Sliced[ProduceResponse]:
    """The same error for every partition."""
    response = ProduceResponse()
    for topic in request.topic_data:
        answer = TopicProduceResponse(name=topic.name, topic_id=topic.topic_id)
        response.responses.append(answer)
        for partition in topic.partition_data:
            answer.partition_responses.append(
                PartitionProduceResponse(
                    index=partition.index, error_code=error.code, base_offset=-1, error_message=error.message
                )
            )
            yield 1
    return response


def not_replicated(broker: Broker, context: RequestContext, partition: Partition, error: KafkaError) -> ProduceResponse:
    """The response to a request for one partition whose records were appended, but not acknowledged, because of
    ``error``: for the fast path."""
    return _Produce(broker, context, ProduceRequest(acks=ACKS_ALL)).not_replicated(partition, error)


class _Produce:
    """One produce request and the results of its partitions."""

    __slots__ = (
        "_broker",
        "_context",
        "_failed_leaders",
        "_first_error",
        "_pending",
        "_replicating",
        "_request",
        "_response",
        "_timer",
        "refusal",
        "verified",
    )

    def __init__(self, broker: Broker, context: RequestContext, request: ProduceRequest) -> None:
        self._broker = broker
        self._context = context
        self._request = request
        self._first_error: PartitionProduceResponse | None = None
        self._failed_leaders: set[int] = set()
        self._pending: Pending[None, KafkaError] | None = None  # the partitions that have no result yet
        self._response = ProduceResponse()
        self._replicating: dict[int, PartitionProduceResponse] | None = None  # parts that wait for other replicas
        self._timer: Timer | None = None
        self.refusal: KafkaError | None = None
        """The error of all partitions, if any."""
        self.verified: Verified | None = None
        """The result of the transaction verification, if there was one."""

    # -- transactions --------------------------------------------------------------------------------------------------

    def partitions_of(self, batches: list[_TransactionalBatch]) -> list[tuple[Partition, int]]:
        """The partitions that may be written to, with the first sequences. `append` finds the errors of the others."""
        partitions = []
        for batch in batches:
            partition = self._broker.replicas.partition_by_key(batch.key, batch.partition_index)
            if partition is not None and (
                partition.topic not in INTERNAL_TOPICS or self._context.client_id == _ADMIN_CLIENT_ID
            ):
                partitions.append((partition, batch.first_sequence))
        return partitions

    def _verification_of(self, partition: Partition) -> Verification | None:
        """The transaction verification that the log requires.

        Raises:
            KafkaError: the transaction coordinator rejected the partition.
        """
        if self.verified is None:
            return None
        error = self.verified.errors.get(partition)
        if error is None:
            return self.verified.verifications.get(partition)
        if error.code is ErrorCode.INVALID_TXN_STATE:
            raise KafkaError(error.code, "Partition was not added to the transaction")
        if error.code in _RETRIED_AS_NOT_ENOUGH_REPLICAS or (
            error.code is ErrorCode.CONCURRENT_TRANSACTIONS
            and of_produce(self._context.api_version) < ClientSupport.ADDING
        ):
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                "Unable to verify the partition has been added to the transaction. "
                f"Underlying error: {error.code.name}",
            )
        raise error

    # -- appending -----------------------------------------------------------------------------------------------------

    def append(self) -> Sliced[None]:
        """Append what can be appended now, and queue the rest. Yields after some partitions."""
        pause = APPENDS_PER_STEP
        by_id = self._context.api_version >= 13
        for topic in self._request.topic_data:
            key = topic.topic_id if by_id else topic.name
            topic_response = TopicProduceResponse(name=topic.name, topic_id=topic.topic_id)
            self._response.responses.append(topic_response)
            if not topic.partition_data:
                yield 1
            for data in topic.partition_data:
                pause -= 1
                if pause < 0:
                    yield APPENDS_PER_STEP
                    pause = APPENDS_PER_STEP - 1
                result = PartitionProduceResponse(index=data.index, base_offset=-1)
                topic_response.partition_responses.append(result)
                partition = self._broker.replicas.partition_by_key(key, data.index)
                try:
                    if self.refusal is not None:
                        raise self.refusal
                    if partition is None:
                        raise _absent(self._broker.replicas.missing_partition_error(key, data.index), key, data.index)
                    if partition.topic in INTERNAL_TOPICS and self._context.client_id != _ADMIN_CLIENT_ID:
                        raise KafkaError(
                            ErrorCode.INVALID_TOPIC_EXCEPTION,
                            f"Only its coordinator may write to the internal topic {partition.topic}.",
                        )
                    partition.traffic.produces += 1
                    records = self._check(data.records)
                    verification = self._verification_of(partition)
                    if self._broker.appends.must_queue(partition, records):
                        self._queue(partition, records, result, verification)
                    else:
                        self._append(partition, records, result, verification)
                except KafkaError as error:
                    self._fail(result, error, partition, size=len(data.records or b""))
                    if partition is None:
                        self._add_leader(result, error, None, key)

    def _check(self, records: Buffer | None) -> Buffer:
        """Check what the log does not check, because it depends on the request."""
        if self._request.acks not in ACKS:
            raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks must be 0, 1 or -1, not {self._request.acks}.")
        if records is None:
            records = b""
        if len(records) > ATTRIBUTES_POSITION + 1:
            attributes = records[ATTRIBUTES_POSITION + 1]
            if attributes & CODEC_MASK == Codec.ZSTD and self._context.api_version < 7:
                raise KafkaError(
                    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
                    "zstd requires produce request version 7 or above.",
                )
        return records

    def _append(
        self,
        partition: Partition,
        records: Buffer,
        result: PartitionProduceResponse,
        verification: Verification | None,
        *,
        validated: bool = False,
        ahead: WrittenAhead | None = None,
    ) -> None:
        try:
            info = partition.append(
                records,
                acks=self._request.acks,
                now_ms=self._broker.now_ms(),
                validated=validated,
                verification=verification,
                ahead=ahead,
            )
        except KafkaError as error:
            if error.code not in _EXPECTED:
                result.log_start_offset = partition.log.log_start_offset
            raise
        result.base_offset = info.first_offset
        result.log_append_time_ms = info.log_append_time_ms
        result.log_start_offset = info.log_start_offset
        if partition.uncommitted is not None and self._request.acks != 0:
            pending = self._await_partitions()
            part = pending.add()
            acknowledged = self._acknowledged
            if partition.in_sync is not None and self._request.acks == ACKS_ALL:
                self._limit_wait(part, result)
                acknowledged = self._replicated
            partition.when_acknowledged(
                info.last_offset + 1, self._request.acks, partial(acknowledged, partition, result, pending, part)
            )

    def _limit_wait(self, part: int, result: PartitionProduceResponse) -> None:
        """This part waits for other replicas, for as long as the request permits."""
        if self._replicating is None:
            self._replicating = {}
            self._timer = self._broker.timers.call_after(max(0, self._request.timeout_ms), self._timed_out)
        self._replicating[part] = result

    def _timed_out(self) -> None:
        pending, self._timer = self._pending, None
        waiting, self._replicating = self._replicating, {}
        if pending is None or not waiting:
            return
        for part, result in waiting.items():
            result.error_code = ErrorCode.REQUEST_TIMED_OUT
            if self._first_error is None:
                self._first_error = result
            pending.complete(part, None)

    def _replicated(
        self,
        partition: Partition,
        result: PartitionProduceResponse,
        pending: Pending[None, KafkaError],
        part: int,
        error: KafkaError | None,
    ) -> None:
        if self._replicating is not None and self._replicating.pop(part, None) is not None:
            self._acknowledged(partition, result, pending, part, error)

    def _await_partitions(self) -> Pending[None, KafkaError]:
        if self._pending is None:
            self._pending = Pending(self._reply)
        return self._pending

    def _acknowledged(
        self,
        partition: Partition,
        result: PartitionProduceResponse,
        pending: Pending[None, KafkaError],
        part: int,
        error: KafkaError | None,
    ) -> None:
        """The records of a partition are acknowledged. With an error, it is unknown whether they ever will be."""
        if error is not None:
            result.log_append_time_ms = result.log_start_offset = -1
            self._fail(result, error, partition)
        pending.complete(part, None)

    def _queue(
        self,
        partition: Partition,
        records: Buffer,
        result: PartitionProduceResponse,
        verification: Verification | None,
    ) -> None:
        pending = self._await_partitions()
        part = pending.add()
        size = len(records)

        def append(prepared: Buffer, *, validated: bool, ahead: WrittenAhead | None = None) -> None:
            self._append(partition, prepared, result, verification, validated=validated, ahead=ahead)

        def done(error: KafkaError | None) -> None:
            if error is not None:
                self._fail(result, error, partition, size=size)
            pending.complete(part, None)

        self._broker.appends.submit(partition, records, append, done, verification)

    def _fail(
        self, result: PartitionProduceResponse, error: KafkaError, partition: Partition | None, *, size: int = 0
    ) -> None:
        """``size``: of the records, if they may be too large."""
        if error.code is ErrorCode.KAFKA_STORAGE_ERROR:
            self._broker.appends.storage_failed(error)
        if partition is not None:
            if error.code is ErrorCode.MESSAGE_TOO_LARGE:
                partition.traffic.bytes_rejected += size
            elif error.code not in _EXPECTED:
                partition.traffic.failed_produces += 1
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
        if partition is not None:
            self._add_leader(result, error, partition, partition.topic)
        if self._first_error is None:
            self._first_error = result

    def _add_leader(
        self, result: PartitionProduceResponse, error: KafkaError, partition: Partition | None, key: TopicKey
    ) -> None:
        """Name the leader, after an error for which the client looks for it (KIP-951)."""
        if error.code not in LEADER_ERRORS or self._context.api_version < 10:
            return
        leader = current_leader(self._broker, partition, key, result.index)
        if leader is not None:
            result.current_leader = LeaderIdAndEpoch(leader_id=leader[0], leader_epoch=leader[1])
            self._failed_leaders.add(leader[0])

    def not_replicated(self, partition: Partition, error: KafkaError) -> ProduceResponse:
        """See the function of this name."""
        result = PartitionProduceResponse(index=partition.index, base_offset=-1, log_start_offset=-1)
        topic = TopicProduceResponse(partition_responses=[result])
        if self._context.api_version >= 13:
            topic.topic_id = partition.topic_id
        else:
            topic.name = partition.topic
        self._response.responses.append(topic)
        self._fail(result, error, partition)
        response = self._finish_response()
        assert response is not None
        return response

    # -- responding ----------------------------------------------------------------------------------------------------

    def end(self) -> ProduceResponse | Deferred | None:
        """The response, if every partition has its result. Otherwise it is sent when all have theirs."""
        if self._pending is None or not self._pending.is_outstanding:
            self._pending = None  # it refers to this object: a reference cycle
            if self._timer is not None:
                self._timer.cancel()
            return self._finish_response()
        self._context.keeps_request = True  # its records are in the queues
        self._pending.start()
        return DEFERRED

    def _reply(self, results: list[None]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        answer = self._finish_response()
        if answer is None:
            self._context.reply_nothing()
        else:
            self._context.reply(answer)

    def _finish_response(self) -> ProduceResponse | None:
        """The response; None for ``acks=0``, where an error closes the connection."""
        if self._request.acks == 0:
            if self._first_error is not None:
                code = ErrorCode(self._first_error.error_code)
                self._context.close_connection(
                    f"a produce request with acks=0 failed with {code.name}", level=logging.INFO
                )
            return None
        if self._failed_leaders:
            self._response.node_endpoints = [
                NodeEndpoint(node_id=node_id, host=host, port=port, rack=rack)
                for node_id, host, port, rack in node_endpoints(self._broker, self._context)
                if node_id in self._failed_leaders
            ]
        return self._response


def _absent(code: ErrorCode, topic: str | bytes, index: int) -> KafkaError:
    """The error of an append to a partition that this broker does not serve."""
    if code is not ErrorCode.KAFKA_STORAGE_ERROR:
        return KafkaError(code)
    name = topic if isinstance(topic, str) else uuid_to_str(topic)
    return KafkaError(code, f"Cannot open or create the log of {name}-{index}; see the server log.")

"""Produce (API key 0): record batches go to the log of their partition as they are.

- Versions 3 to 13; 0 to 2 are advertised and refused by closing the connection, as Apache Kafka does (librdkafka
  before 2.11 turns compression off when the minimum is higher, KAFKA-18659). By topic id from version 13 on
  (KIP-516).
- ``acks`` 1 and -1 are answered when the records are appended and, with -1, on every in-sync replica; 0 is not
  answered, and an error closes the connection, which is all that such a client can be told.
- With ``flush.messages`` it is answered when the records have been flushed, too (``acks=0`` as ever not at all).
- Each partition succeeds or fails by itself. Records are looked at only where `Log.append` says so; batches that have
  to be recompressed (``compression.type``) go to a thread, and later appends of that partition wait behind them.
- Coordinators' topics are refused (INVALID_TOPIC_EXCEPTION) to all but a client that calls itself ``__admin_client``,
  as Apache Kafka has it for its own tools.
- The first transactional batch of a transaction and partition waits for the transaction coordinator, and the request
  with it (KIP-890; see `server.verification`). Version 12 adds the partition to the transaction, older ones have added
  it before; TRANSACTION_ABORTABLE since version 11, INVALID_TXN_STATE before. What the coordinator cannot say now is
  NOT_ENOUGH_REPLICAS, which every client retries.
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
    TopicProduceResponse,
)
from ...protocol.records import ATTRIBUTES_POSITION, BATCH_OVERHEAD, CODEC_MASK, HEADER, TRANSACTIONAL_MASK
from ...protocol.uuid import uuid_to_str
from ..request import PARKED, Parked
from ..verification import Knows, of_produce
from .topic_state import LEADER_ERRORS

if TYPE_CHECKING:
    from ...log.verification import Verification
    from ...replication.partition import Partition
    from ..broker import Broker
    from ..request import RequestContext
    from ..verification import Verified

logger = logging.getLogger(__name__)

Buffer = bytes | bytearray | memoryview

ACKS = frozenset({-1, 0, 1})
_ADMIN_CLIENT_ID = "__admin_client"

# What a producer may not know, or not retry. This error does not even make it ask for metadata.
_RETRIED_AS_NOT_ENOUGH_REPLICAS = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


def handle(broker: Broker, context: RequestContext, request: ProduceRequest) -> ProduceResponse | Parked | None:
    """Append to every partition that is named; answer when all have their result."""
    produce = _Produce(broker, context, request)
    batches = _transactional_batches(request)
    if not batches:
        produce.run()
    else:
        produce.run_transactional(batches)
    if produce.is_waiting:
        context.keeps_request = True  # its records lie in the queues
        return PARKED
    return produce.answer()


class _TransactionalBatch(NamedTuple):
    """Where a transactional batch is to go, and what its header says."""

    key: str | bytes
    partition_index: int
    producer: Producer
    first_sequence: int


def _transactional_batches(request: ProduceRequest) -> list[_TransactionalBatch]:
    found = []
    for topic in request.topic_data:
        for data in topic.partition_data:
            records = data.records
            if (
                records is not None
                and len(records) >= BATCH_OVERHEAD
                and records[ATTRIBUTES_POSITION + 1] & TRANSACTIONAL_MASK
            ):
                *_, producer_id, producer_epoch, first_sequence, _ = HEADER.unpack_from(records)
                found.append(
                    _TransactionalBatch(
                        topic.name or topic.topic_id, data.index, Producer(producer_id, producer_epoch), first_sequence
                    )
                )
    return found


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
        "_knows",
        "_parked",
        "_refusal",
        "_request",
        "_started",
        "_verified",
        "_waiting_for",
        "response",
    )

    def __init__(self, broker: Broker, context: RequestContext, request: ProduceRequest) -> None:
        self._broker = broker
        self._context = context
        self._request = request
        self._started = False  # every partition was looked at
        self._parked = False  # the answer is given by `_finish`
        self._first_error: PartitionProduceResponse | None = None
        self._failed_leaders: set[int] = set()
        self._waiting_for = 0  # partitions
        self._refusal: KafkaError | None = None  # of all partitions
        self._knows = Knows.NOTHING
        self._verified: Verified | None = None
        self.response = ProduceResponse()

    @property
    def is_waiting(self) -> bool:
        """Whether the answer comes later."""
        self._parked = not self._started or self._waiting_for > 0
        return self._parked

    # -- transactions --------------------------------------------------------------------------------------------------

    def run_transactional(self, batches: list[_TransactionalBatch]) -> None:
        """The same as `run` once the batches' transactions are known to be open."""
        producers = {batch.producer for batch in batches if batch.producer.id >= 0}
        transactional_id = self._request.transactional_id
        if transactional_id is None:
            self._refusal = KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        elif len(producers) > 1:
            self._refusal = KafkaError(
                ErrorCode.INVALID_PRODUCER_ID_MAPPING, "Transactional records contained more than one producer ID"
            )
        if self._refusal is not None or not producers:
            self.run()
            return
        assert transactional_id is not None
        (producer,) = producers
        self._knows = of_produce(self._context.api_version)
        self._broker.verifications.enter(transactional_id, lambda: self._verify(transactional_id, producer, batches))

    def _verify(self, transactional_id: str, producer: Producer, batches: list[_TransactionalBatch]) -> bool:
        """Ask for the transaction, and append; whether that is done when this returns."""
        verifications = self._broker.verifications
        through = returned = False

        def verified(answer: Verified) -> None:
            nonlocal through
            through = True
            self._verified = answer
            if not self._parked:
                self.run()
                return
            self._run_late()
            if returned:
                verifications.leave(transactional_id)

        try:
            verifications.verify(
                self._context,
                transactional_id,
                producer,
                self._partitions_of(batches),
                self._knows,
                verified,
                retries=True,
            )
        except Exception:
            if not self._parked:
                raise
            self._context.fault()
            return True
        returned = True
        return through

    def _partitions_of(self, batches: list[_TransactionalBatch]) -> list[tuple[Partition, int]]:
        """Of those that may be written to; why the others may not is found out by `run`."""
        partitions = []
        for batch in batches:
            partition = self._broker.replicas.partition_by_key(batch.key, batch.partition_index)
            if partition is not None and (
                partition.topic not in INTERNAL_TOPICS or self._context.client_id == _ADMIN_CLIENT_ID
            ):
                partitions.append((partition, batch.first_sequence))
        return partitions

    def _run_late(self) -> None:
        try:
            self.run()
        except Exception:  # noqa: BLE001 - our own mistakes fail one request alone
            self._context.fault()
            return
        if not self._waiting_for:
            self._finish()

    def _verification_of(self, partition: Partition) -> Verification | None:
        """What the log wants to see.

        Raises:
            KafkaError: the transaction coordinator said no.
        """
        if self._verified is None:
            return None
        error = self._verified.errors.get(partition)
        if error is None:
            return self._verified.verifications.get(partition)
        if error.code is ErrorCode.INVALID_TXN_STATE:
            raise KafkaError(error.code, "Partition was not added to the transaction")
        if error.code in _RETRIED_AS_NOT_ENOUGH_REPLICAS or (
            error.code is ErrorCode.CONCURRENT_TRANSACTIONS and self._knows < Knows.ADDING
        ):
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                "Unable to verify the partition has been added to the transaction. "
                f"Underlying error: {error.code.name}",
            )
        raise error

    # -- appending -----------------------------------------------------------------------------------------------------

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
                    if self._refusal is not None:
                        raise self._refusal
                    if partition is None:
                        raise _absent(self._broker.replicas.why_absent(key, data.index), key, data.index)
                    if partition.topic in INTERNAL_TOPICS and self._context.client_id != _ADMIN_CLIENT_ID:
                        raise KafkaError(
                            ErrorCode.INVALID_TOPIC_EXCEPTION, f"{partition.topic} is written by its coordinator alone."
                        )
                    records = self._check(data.records)
                    verification = self._verification_of(partition)
                    if self._broker.appends.must_queue(partition, records):
                        self._queue(partition, records, result, verification)
                    else:
                        self._append(partition, records, result, verification)
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
        return records

    def _append(
        self,
        partition: Partition,
        records: Buffer,
        result: PartitionProduceResponse,
        verification: Verification | None,
        *,
        validated: bool = False,
    ) -> None:
        info = partition.append(
            records,
            acks=self._request.acks,
            now_ms=self._broker.now_ms(),
            validated=validated,
            verification=verification,
        )
        result.base_offset = info.first_offset
        result.log_append_time_ms = info.log_append_time_ms
        result.log_start_offset = info.log_start_offset
        if partition.held_back is not None and self._request.acks != 0:
            self._waiting_for += 1
            partition.when_committed(info.last_offset + 1, partial(self._committed, partition, result))

    def _committed(self, partition: Partition, result: PartitionProduceResponse, error: KafkaError | None) -> None:
        """The records of a partition are safe, or nobody knows whether they ever will be."""
        if error is not None:
            result.log_append_time_ms = result.log_start_offset = -1
            self._fail(result, error, partition)
        self._partition_done()

    def _partition_done(self) -> None:
        self._waiting_for -= 1
        if self._started and self._parked and not self._waiting_for:
            self._finish()

    def _queue(
        self,
        partition: Partition,
        records: Buffer,
        result: PartitionProduceResponse,
        verification: Verification | None,
    ) -> None:
        self._waiting_for += 1

        def append(prepared: Buffer, *, validated: bool) -> None:
            self._append(partition, prepared, result, verification, validated=validated)

        def done(error: KafkaError | None) -> None:
            if error is not None:
                self._fail(result, error, partition)
            self._partition_done()

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


def _absent(code: ErrorCode, topic: str | bytes, index: int) -> KafkaError:
    """Why a partition cannot be appended to that this broker does not serve."""
    if code is not ErrorCode.KAFKA_STORAGE_ERROR:
        return KafkaError(code)
    name = topic if isinstance(topic, str) else uuid_to_str(topic)
    return KafkaError(code, f"The log of {name}-{index} could not be opened or made; the server's log says why.")

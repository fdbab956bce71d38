"""TxnOffsetCommit (API key 28): offsets of a group that become valid when the transaction commits (KIP-98, KIP-447).

- Versions 0 to 5. Topics have names. Missing partitions get their errors here, each independently:
  UNKNOWN_TOPIC_OR_PARTITION.
- More than `PARTITIONS_PER_STEP` partitions are several changes of the group, as with OffsetCommit, in one transaction.
- First, the transaction coordinator verifies that the group's partition of `__consumer_offsets` belongs to the
  transaction (KIP-890; see `server.coordination.verification`). Version 5 adds the partition; older clients have added
  it with AddOffsetsToTxn. TRANSACTION_ABORTABLE since version 4.
- Up to version 1, COORDINATOR_NOT_AVAILABLE replaces COORDINATOR_LOAD_IN_PROGRESS, which those clients do not know.
"""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy
from functools import partial
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING

from ...coordinator.outcome import Producer
from ...metadata.topic_names import CONSUMER_OFFSETS
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from ...protocol.records import NO_SEQUENCE
from ...protocol.steps import completed, each
from ..concurrency.pending import Pending
from ..context import DEFERRED, Deferred
from ..coordination.callers import Part
from ..coordination.verification import of_txn_offset_commit
from .offset_partitions import each_topic_once, in_pieces, some_of, take_missing

if TYPE_CHECKING:
    from ...log.verification import Verification
    from ...metadata.image import MetadataImage
    from ...replication.partition import Partition
    from ..broker import Broker
    from ..concurrency.slices import Sliced
    from ..context import RequestContext

_LOADING_KNOWN_SINCE = 2

# Errors of the log, or on the way to the coordinator, as errors of a group coordinator.
_AS_COORDINATOR = {
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
}


def handle(
    broker: Broker, context: RequestContext, request: TxnOffsetCommitRequest
) -> Sliced[TxnOffsetCommitResponse | Deferred]:
    """The response follows when the offsets are in the log. They are invisible until the transaction commits."""
    refused = yield from _leave_known(broker.metadata.image, request)
    pieces = yield from in_pieces(request.topics)
    if not pieces:
        return TxnOffsetCommitResponse(topics=refused)
    commit = _Commit(broker, context, request, refused, pieces)
    try:
        partition = yield from _partition_of(broker, request.group_id)
    except KafkaError as error:
        return (yield from commit.failed(error))
    return context.run(broker.slices, _verify_and_commit(broker, context, request, partition, commit))


def _verify_and_commit(
    broker: Broker, context: RequestContext, request: TxnOffsetCommitRequest, partition: Partition, commit: _Commit
) -> Sliced[TxnOffsetCommitResponse | Deferred]:
    verified = yield from broker.verifications.verify(
        context,
        request.transactional_id,
        Producer(request.producer_id, request.producer_epoch),
        [(partition, NO_SEQUENCE)],
        of_txn_offset_commit(context.api_version),
    )
    if partition in verified.errors:
        return (yield from commit.failed(verified.errors[partition]))
    yield from commit.run(verified.verifications.get(partition))
    return DEFERRED


_Pending = Pending[TxnOffsetCommitResponse, KafkaError]


class _Commit:
    """The partitions for the coordinator, in pieces, and the partitions that were rejected here."""

    __slots__ = ("_broker", "_context", "_pieces", "_refused", "_request")

    def __init__(
        self,
        broker: Broker,
        context: RequestContext,
        request: TxnOffsetCommitRequest,
        refused: list[TxnOffsetCommitResponseTopic],
        pieces: list[list[TxnOffsetCommitRequestTopic]],
    ) -> None:
        self._broker = broker
        self._context = context
        self._request = request
        self._refused = refused
        self._pieces = pieces

    def run(self, verification: Verification | None) -> Sliced[None]:
        """Commit all pieces, then respond. Each piece is a change of the group, and succeeds or fails independently."""
        pending: _Pending = Pending(self._respond)
        for number, topics in enumerate(self._pieces):
            if number:
                yield 0
            self._run(pending, topics, verification)
        pending.start()

    def _run(
        self, pending: _Pending, topics: list[TxnOffsetCommitRequestTopic], verification: Verification | None
    ) -> None:
        piece = copy(self._request)
        piece.topics = topics
        caller = Part(self._context, pending, lambda error: _failed_as_coordinator(topics, error))
        self._broker.groups.run(
            piece.group_id,
            caller,
            lambda shard, now: shard.commit_transactional_offsets(caller, piece, now),
            verification=verification,
        )

    def failed(self, error: KafkaError) -> Sliced[TxnOffsetCommitResponse]:
        """The response with this error for each partition that the coordinator would have received."""
        answers = yield from each(lambda topics: _failed_as_coordinator(topics, error), self._pieces)
        return (yield from self._merged(answers))

    def _merged(self, answers: list[TxnOffsetCommitResponse]) -> Sliced[TxnOffsetCommitResponse]:
        """The coordinator's results behind the partitions that were rejected here. Each topic appears once."""
        answered = (topic for answer in answers for topic in answer.topics)
        topics = yield from each_topic_once(chain(self._refused, answered), attrgetter("name"))
        if self._context.api_version < _LOADING_KNOWN_SINCE:
            for topic in topics:
                for partition in topic.partitions:
                    if partition.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                        partition.error_code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        return TxnOffsetCommitResponse(topics=topics)

    def _respond(self, answers: list[TxnOffsetCommitResponse]) -> None:
        steps = self._merged(answers)
        if self._context.is_long:
            self._context.reply_in_slices(steps)
        else:
            self._context.reply(completed(steps))


def _partition_of(broker: Broker, group_id: str) -> Sliced[Partition]:
    if not group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)
    index = yield from broker.groups.partition_of(group_id)
    partition = broker.replicas.partition_by_key(CONSUMER_OFFSETS, index)
    if partition is None:
        raise KafkaError(ErrorCode.NOT_COORDINATOR)
    return partition


def _leave_known(image: MetadataImage, request: TxnOffsetCommitRequest) -> Sliced[list[TxnOffsetCommitResponseTopic]]:
    """Keep only existing partitions in the request. Returns the results of the others."""
    known = []
    refused = []
    for topic in request.topics:
        found = image.topics_by_name.get(topic.name)
        missing = yield from take_missing(topic, {} if found is None else found.partitions)
        for some in some_of(missing):
            refused.append(_refused(topic.name, some, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            yield 0
        if topic.partitions:
            known.append(topic)
    request.topics = known
    return refused


def _refused(
    name: str, partitions: Iterable[TxnOffsetCommitRequestPartition], error: ErrorCode
) -> TxnOffsetCommitResponseTopic:
    return TxnOffsetCommitResponseTopic(
        name=name, partitions=[_refused_partition(error, partition) for partition in partitions]
    )


def _refused_partition(
    error: ErrorCode, partition: TxnOffsetCommitRequestPartition
) -> TxnOffsetCommitResponsePartition:
    return TxnOffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=error)


def _failed_as_coordinator(topics: list[TxnOffsetCommitRequestTopic], error: KafkaError) -> TxnOffsetCommitResponse:
    code = _AS_COORDINATOR.get(error.code, error.code)
    return TxnOffsetCommitResponse(topics=[_refused(topic.name, topic.partitions, code) for topic in topics])


def failed(request: TxnOffsetCommitRequest, error: KafkaError) -> Sliced[TxnOffsetCommitResponse]:
    """The same error for every partition."""
    response = TxnOffsetCommitResponse()
    for topic in request.topics:
        partitions = yield from each(partial(_refused_partition, error.code), topic.partitions)
        response.topics.append(TxnOffsetCommitResponseTopic(name=topic.name, partitions=partitions))
        yield 1
    return response

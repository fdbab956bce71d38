"""TxnOffsetCommit (API key 28): offsets of a group that count when the transaction commits (KIP-98, KIP-447).

- Versions 0 to 5. Topics go by name. Partitions that do not exist are answered here, each by itself:
  UNKNOWN_TOPIC_OR_PARTITION.
- The transaction coordinator is asked first whether the group's partition of `__consumer_offsets` belongs to the
  transaction (KIP-890; see `server.verification`): version 5 adds it, for older ones AddOffsetsToTxn has done so.
  TRANSACTION_ABORTABLE since version 4.
- Up to version 1 COORDINATOR_NOT_AVAILABLE stands for COORDINATOR_LOAD_IN_PROGRESS, which those clients do not know.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING

from ...coordinator.outcome import Producer
from ...metadata.topic_names import CONSUMER_OFFSETS
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from ...protocol.records import NO_SEQUENCE
from ..request import PARKED, Parked
from ..verification import Verified, of_txn_offset_commit
from .offset_partitions import BesideRefused, each_topic_once, some_of, take_missing

if TYPE_CHECKING:
    from ...metadata.image import MetadataImage
    from ...replication.partition import Partition
    from ..broker import Broker
    from ..request import RequestContext
    from ..slices import Sliced

_LOADING_KNOWN_SINCE = 2

# What the log or the way to the coordinator may come to, in the words of a group coordinator.
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
) -> Sliced[TxnOffsetCommitResponse | Parked]:
    """Answered when the offsets are in the log; nobody sees them before the transaction commits."""
    refused = yield from _leave_known(broker.metadata.image, request)
    if not request.topics:
        return TxnOffsetCommitResponse(topics=refused)
    caller = BesideRefused(
        context,
        lambda response: _merged(refused, response, context.api_version),
        failed=lambda error: _failed_as_coordinator(request, error),
    )
    try:
        partition = _partition_of(broker, request.group_id)
    except KafkaError as error:
        caller.fail(error)
        return PARKED

    def verified(answer: Verified) -> None:
        error = answer.errors.get(partition)
        if error is not None:
            caller.fail(error)
            return
        broker.groups.run(
            request.group_id,
            caller,
            lambda shard, now: shard.commit_transactional_offsets(caller, request, now),
            verification=answer.verifications.get(partition),
        )

    broker.verifications.verify(
        context,
        request.transactional_id,
        Producer(request.producer_id, request.producer_epoch),
        [(partition, NO_SEQUENCE)],
        of_txn_offset_commit(context.api_version),
        verified,
    )
    return PARKED


def _partition_of(broker: Broker, group_id: str) -> Partition:
    if not group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)
    partition = broker.replicas.partition_by_key(CONSUMER_OFFSETS, broker.groups.partition_of(group_id))
    if partition is None:
        raise KafkaError(ErrorCode.NOT_COORDINATOR)
    return partition


def _leave_known(image: MetadataImage, request: TxnOffsetCommitRequest) -> Sliced[list[TxnOffsetCommitResponseTopic]]:
    """Leave the partitions in the request that there are; returns the answers to the others."""
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
        name=name,
        partitions=[
            TxnOffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=error)
            for partition in partitions
        ],
    )


def _merged(
    refused: Sequence[TxnOffsetCommitResponseTopic], response: TxnOffsetCommitResponse, api_version: int
) -> TxnOffsetCommitResponse:
    """The coordinator's answer behind what was refused here; each topic stands there once."""
    response.topics = each_topic_once((*refused, *response.topics), attrgetter("name"))
    if api_version < _LOADING_KNOWN_SINCE:
        for topic in response.topics:
            for partition in topic.partitions:
                if partition.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                    partition.error_code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    return response


def _failed_as_coordinator(request: TxnOffsetCommitRequest, error: KafkaError) -> TxnOffsetCommitResponse:
    return failed(request, KafkaError(_AS_COORDINATOR.get(error.code, error.code), error.message))


def failed(request: TxnOffsetCommitRequest, error: KafkaError) -> TxnOffsetCommitResponse:
    """The same error for every partition."""
    return TxnOffsetCommitResponse(
        topics=[_refused(topic.name, topic.partitions, error.code) for topic in request.topics]
    )

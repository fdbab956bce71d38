"""TxnOffsetCommit (versions 0-5): offsets that are committed together with a transaction (KIP-98).

- The records belong to the producer's transaction. Until it ends, the offsets are pending; see `store`.
- The group decides whether the member may commit, as for OffsetCommit. A request without a member and a generation (all
  clients before KIP-447, version 3) is always accepted. A rebalance in progress is no error, and a commit does not
  extend the session.
- ILLEGAL_GENERATION is also the error for a member epoch (KIP-848) that is not the member's, and for a generation of a
  group that does not exist. Without a generation, a missing group is created.
- Metadata that is too large rejects its partition alone, as for OffsetCommit.

That the transaction is open and contains the group's partition is verified before (KIP-890), and finally checked by the
log. Records contain the ID of the current topic; Apache Kafka omits it here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...coordinator.outcome import Outcome, Producer, Record
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.txn_offset_commit import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from ...protocol.uuid import ZERO_UUID
from ..records import OffsetCommitKey, OffsetCommitValue
from .commit import VERSION, utf16_length

if TYPE_CHECKING:
    from ...coordinator.outcome import Caller, Now
    from ...protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
    from ..group import CheckPartition
    from ..states import GroupStates


def handle_txn_offset_commit(states: GroupStates, caller: Caller, request: TxnOffsetCommitRequest, now: Now) -> Outcome:
    """Commits one record of the transaction for each partition."""
    if not request.group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)
    if request.producer_id < 0:
        raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if request.producer_epoch < 0:
        raise KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH)
    check = _check_member(states, caller, request)
    max_metadata = states.config.offset_metadata_max_bytes
    records = []
    topics = []
    for topic in request.topics:
        topic_id = states.topics.id_of(topic.name)
        if topic_id is None and check is not None:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        partitions = []
        for partition in topic.partitions:
            index = partition.partition_index
            metadata = partition.committed_metadata or ""
            if metadata and utf16_length(metadata) > max_metadata:
                error = ErrorCode.OFFSET_METADATA_TOO_LARGE
                partitions.append(TxnOffsetCommitResponsePartition(partition_index=index, error_code=error))
                continue
            if check is not None and check(topic.name, index) is not ErrorCode.NONE:
                raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
            key = OffsetCommitKey(group=request.group_id, topic=topic.name, partition=index)
            value = OffsetCommitValue(
                offset=partition.committed_offset,
                leader_epoch=partition.committed_leader_epoch,
                metadata=metadata,
                commit_timestamp=now.epoch_ms,
                topic_id=ZERO_UUID if topic_id is None else topic_id,
            )
            records.append(Record(key, value, VERSION))
            partitions.append(TxnOffsetCommitResponsePartition(partition_index=index))
        topics.append(TxnOffsetCommitResponseTopic(name=topic.name, partitions=partitions))
    producer = Producer(request.producer_id, request.producer_epoch)
    return Outcome(records, [(caller, TxnOffsetCommitResponse(topics=topics))], producer=producer)


def _check_member(states: GroupStates, caller: Caller, request: TxnOffsetCommitRequest) -> CheckPartition | None:
    group = states.groups.get(request.group_id)
    if group is None:
        if request.generation_id < 0:
            return None
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
    try:
        return group.check_offset_commit(
            request.member_id,
            request.group_instance_id,
            request.generation_id,
            transactional=True,
            api_version=caller.api_version,
        )
    except KafkaError as error:
        if error.code is ErrorCode.STALE_MEMBER_EPOCH:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION, error.message) from error
        raise

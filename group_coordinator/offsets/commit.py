"""OffsetCommit (versions 2-10).

- The group decides whether the member may commit; if it rejects one partition, no offset is committed.
- A commit without a member (a generation below 0) creates a missing group: the replay of its first offset does this.
  Otherwise the error is GROUP_ID_NOT_FOUND, before version 9 ILLEGAL_GENERATION.
- Metadata above `offset.metadata.max.bytes`, counted in UTF-16 units like in Apache Kafka, is OFFSET_METADATA_TOO_LARGE
  for that partition alone. Offsets are not checked and may be negative.
- With a retention time (versions 2-4), the record has version 1, which contains an expiration time. All other records
  have version 4, which contains the topic ID.

The server checks which topics exist, and fills in their IDs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ...coordinator.outcome import Outcome, Record
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ...protocol.records import time_after
from ...protocol.uuid import ZERO_UUID
from ..records import OffsetCommitKey, OffsetCommitValue

if TYPE_CHECKING:
    from ...coordinator.outcome import Caller, Now
    from ...protocol.messages.offset_commit import OffsetCommitRequest
    from ..group import CheckPartition
    from ..states import GroupStates

_GROUP_ID_NOT_FOUND_SINCE: Final = 9

_VERSION_WITH_EXPIRY: Final = 1
VERSION: Final = 4
"""The version of the records."""


def handle_offset_commit(states: GroupStates, caller: Caller, request: OffsetCommitRequest, now: Now) -> Outcome:
    """Commits one record for each partition."""
    check = _check_member(states, caller, request, now)
    retention_ms = request.retention_time_ms
    expire_timestamp = -1 if retention_ms == -1 else time_after(now.epoch_ms, retention_ms)
    version = VERSION if retention_ms == -1 else _VERSION_WITH_EXPIRY
    # Fields that this version of the record lacks must not be in the state either: a restart would lose them.
    has_topic_id = version == VERSION
    max_metadata = states.config.offset_metadata_max_bytes
    records = []
    topics = []
    for topic in request.topics:
        partitions = []
        for partition in topic.partitions:
            index = partition.partition_index
            metadata = partition.committed_metadata or ""
            if metadata and utf16_length(metadata) > max_metadata:
                error = ErrorCode.OFFSET_METADATA_TOO_LARGE
                partitions.append(OffsetCommitResponsePartition(partition_index=index, error_code=error))
                continue
            if check is not None and (refused := check(topic.name, index)) is not ErrorCode.NONE:
                raise KafkaError(refused)
            key = OffsetCommitKey(group=request.group_id, topic=topic.name, partition=index)
            value = OffsetCommitValue(
                offset=partition.committed_offset,
                leader_epoch=partition.committed_leader_epoch,
                metadata=metadata,
                commit_timestamp=now.epoch_ms,
                expire_timestamp=expire_timestamp,
                topic_id=topic.topic_id if has_topic_id else ZERO_UUID,
            )
            records.append(Record(key, value, version))
            partitions.append(OffsetCommitResponsePartition(partition_index=index))
        topics.append(OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=partitions))
    return Outcome(records, [(caller, OffsetCommitResponse(topics=topics))])


def _check_member(states: GroupStates, caller: Caller, request: OffsetCommitRequest, now: Now) -> CheckPartition | None:
    group = states.groups.get(request.group_id)
    if group is None:
        if request.generation_id_or_member_epoch < 0:
            return None
        names_group = caller.api_version >= _GROUP_ID_NOT_FOUND_SINCE
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND if names_group else ErrorCode.ILLEGAL_GENERATION)
    check = group.check_offset_commit(
        request.member_id,
        request.group_instance_id,
        request.generation_id_or_member_epoch,
        transactional=False,
        api_version=caller.api_version,
    )
    group.committed(request.member_id, now)
    return check


def utf16_length(text: str) -> int:
    """The length as Java counts it, and as in `offset.metadata.max.bytes`."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2

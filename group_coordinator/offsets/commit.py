"""OffsetCommit (versions 2-10).

- Whether the member may commit is the group's to say; where it says no for one partition, nothing is committed.
- A group that does not exist is made by a commit from outside of any membership (a generation below 0): the replay of
  its first offset makes it. Otherwise it is GROUP_ID_NOT_FOUND, before version 9 ILLEGAL_GENERATION.
- Metadata above `offset.metadata.max.bytes`, counted in UTF-16 units as Apache Kafka does, is
  OFFSET_METADATA_TOO_LARGE for that partition alone. Offsets are taken as they are, also negative ones.
- A retention time (versions 2-4) makes a record of version 1, which has a time of expiry. All others have version 4,
  with the topic's id.

Which topics exist, and their ids, is the server's to know.
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
"""Of the records."""


def handle_offset_commit(states: GroupStates, caller: Caller, request: OffsetCommitRequest, now: Now) -> Outcome:
    """One record for each partition that is committed."""
    check = _check_member(states, caller, request, now)
    retention_ms = request.retention_time_ms
    expire_timestamp = -1 if retention_ms == -1 else time_after(now.epoch_ms, retention_ms)
    version = VERSION if retention_ms == -1 else _VERSION_WITH_EXPIRY
    # What this version of the record cannot hold must not be in the state either: a restart would lose it.
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
    """As Java counts it, and with it `offset.metadata.max.bytes`."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2

"""OffsetDelete (version 0).

- Offsets of subscribed topics are kept: GROUP_SUBSCRIBED_TO_TOPIC for each of their partitions. If the topics of the
  members are unknown (another protocol type), the whole request is rejected with NON_EMPTY_GROUP.
- The deletion of a missing offset is no error and creates no record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...coordinator.outcome import Outcome
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.offset_delete import (
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from .tombstones import Tombstones

if TYPE_CHECKING:
    from ...coordinator.outcome import Caller, Now
    from ...protocol.messages.offset_delete import OffsetDeleteRequest
    from ..states import GroupStates


def handle_offset_delete(states: GroupStates, caller: Caller, request: OffsetDeleteRequest, now: Now) -> Outcome:
    """Deletes the existing offsets, by one tombstone each."""
    if not request.group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)
    group = states.groups.get(request.group_id)
    if group is None:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
    group.check_offset_delete()
    offsets = states.offsets
    tombstones = Tombstones(request.group_id)
    topics = []
    for topic in request.topics:
        error = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if group.is_subscribed_to(topic.name) else ErrorCode.NONE
        indexes = dict.fromkeys(partition.partition_index for partition in topic.partitions)
        for index in indexes if error is ErrorCode.NONE else ():
            if offsets.has(request.group_id, topic.name, index) or offsets.is_pending(
                request.group_id, topic.name, index
            ):
                tombstones.add(topic.name, index)
        partitions = [OffsetDeleteResponsePartition(partition_index=index, error_code=error) for index in indexes]
        topics.append(OffsetDeleteResponseTopic(name=topic.name, partitions=partitions))
    return Outcome(tombstones.records, [(caller, OffsetDeleteResponse(topics=topics))])

"""OffsetDelete (version 0).

- Offsets of topics that a member reads are kept: GROUP_SUBSCRIBED_TO_TOPIC for each of their partitions. A group with
  members whose topics are not known (another protocol type) is NON_EMPTY_GROUP as a whole.
- An offset that is not there is deleted without an error and without a record.
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
    """One tombstone for each offset that there is."""
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

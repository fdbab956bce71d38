"""OffsetDelete (version 0), and the offsets of deleted topics.

- Offsets of topics that a member reads are kept: GROUP_SUBSCRIBED_TO_TOPIC for each of their partitions. A group with
  members whose topics are not known (another protocol type) is NON_EMPTY_GROUP as a whole.
- An offset that is not there is deleted without an error and without a record.
- When a topic is deleted, its offsets are deleted in all groups, whoever reads it. Offsets carry the topic's id since
  Kafka 4.1, so those of a new topic with the old name stay. An old one stays with them: it is pending and was overtaken
  by a commit for the new topic, or such a commit is pending itself. Nobody is told of it (`fetch`), and it expires.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ...coordinator.outcome import NOTHING, Outcome
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.offset_delete import (
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from .sweep import Sweep
from .tombstones import PAUSE_MS, RETRY_MS, Tombstones

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ...coordinator.outcome import Answer, Caller, Now
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


def delete_offsets_of_topics(states: GroupStates, names: Sequence[str], now: Now) -> Outcome:
    """These topics are gone: so are their offsets, group by group and in slices."""
    deadline = ("offsets of deleted topics", tuple(names))

    def delete(group_id: str, now: Now) -> Outcome:
        tombstones = Tombstones(group_id)
        for name, index in _offsets_of_deleted(states, group_id, names):
            if tombstones.full:
                states.deadlines.set(group_id, deadline, now.monotonic_ms + PAUSE_MS, partial(delete, group_id))
                break
            tombstones.add(name, index)
        if not tombstones.records:
            return NOTHING

        def refused(error: KafkaError) -> Sequence[Answer]:
            states.deadlines.set(group_id, deadline, now.monotonic_ms + RETRY_MS, partial(delete, group_id))
            return ()

        return Outcome(tombstones.records, refused=refused)

    def look(group_id: str, now: Now) -> bool:
        return next(_offsets_of_deleted(states, group_id, names), None) is not None

    return Sweep(states, deadline, look=look, visit=delete).start(now)


def _offsets_of_deleted(states: GroupStates, group_id: str, names: Sequence[str]) -> Iterator[tuple[str, int]]:
    offsets = states.offsets
    for name in names:
        present_id = states.topics.id_of(name)
        found = [*offsets.partitions(group_id, name), *offsets.pending_of_topic(group_id, name)]
        # A tombstone takes all there is of the partition, so there must be nothing of the topic that is there now.
        kept = {index for index, one in found if one.topic_id == present_id}
        indexes = dict.fromkeys(index for index, _ in found if index not in kept)
        yield from ((name, index) for index in indexes)

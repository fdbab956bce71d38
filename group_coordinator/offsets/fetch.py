"""OffsetFetch of one group (versions 1-10).

- No topics (None) stands for all offsets of the group. A missing group has none, which is no error.
- A missing offset is -1 with leader epoch -1 and empty metadata. So is an offset of a topic with the same name and
  another ID than in the request, or than that of the current topic. Apache Kafka returns the latter until its deletion.
- `require_stable`: UNSTABLE_OFFSET_COMMIT for a partition for which an open transaction has committed an offset.
- An unknown member, or one with another epoch, is an error of the whole group.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.offset_fetch import (
    OffsetFetchRequestTopics,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from ...protocol.uuid import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Generator

    from ...protocol.messages.offset_fetch import OffsetFetchRequestGroup
    from ..states import GroupStates
    from .store import CommittedOffset


def fetch_offsets(
    states: GroupStates, request: OffsetFetchRequestGroup, *, require_stable: bool
) -> Generator[int, None, OffsetFetchResponseGroup]:
    """The offsets by topic; topics have the IDs of the request.

    A group may have very many, so this yields after each. The state may change in between.
    """
    group_id = request.group_id
    group = states.groups.get(group_id)
    if group is not None:
        try:
            group.check_offset_fetch(request.member_id, request.member_epoch)
        except KafkaError as error:
            return OffsetFetchResponseGroup(group_id=group_id, error_code=error.code)
    offsets = states.offsets

    unstable = require_stable and offsets.has_pending(group_id)
    topics: list[OffsetFetchResponseTopics] = []
    for_all = request.topics is None
    wanted = request.topics or []
    if for_all:
        wanted = [OffsetFetchRequestTopics(name=name) for name in offsets.topics(group_id)]
    for topic in wanted:
        name, topic_id = topic.name, topic.topic_id
        present_id = states.topics.id_of(name)
        partitions = []
        for index in offsets.indexes(group_id, name) if for_all else dict.fromkeys(topic.partition_indexes):
            yield 0
            committed = offsets.get(group_id, name, index)
            if for_all and (committed is None or committed.is_of_another_topic(present_id)):
                continue
            if unstable and offsets.is_pending(group_id, name, index):
                partitions.append(_unstable(index))
            else:
                partitions.append(_partition(index, committed, topic_id, present_id))
        if partitions or not for_all:
            topics.append(OffsetFetchResponseTopics(name=name, topic_id=topic_id, partitions=partitions))
            yield len(partitions) if for_all else 0
    return OffsetFetchResponseGroup(group_id=group_id, topics=topics)


def _partition(
    index: int, committed: CommittedOffset | None, topic_id: bytes, present_id: bytes | None
) -> OffsetFetchResponsePartitions:
    if (
        committed is None
        or committed.is_of_another_topic(present_id)
        or (topic_id != ZERO_UUID and committed.is_of_another_topic(topic_id))
    ):
        return OffsetFetchResponsePartitions(partition_index=index, committed_offset=-1, metadata="")
    return OffsetFetchResponsePartitions(
        partition_index=index,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
    )


def _unstable(index: int) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=index, committed_offset=-1, metadata="", error_code=ErrorCode.UNSTABLE_OFFSET_COMMIT
    )

"""Replays the records of committed offsets.

An offset may occur before the record of its group, because of compaction, and a group that only commits has no record.
Both begin as a *simple* group: a classic group without a protocol type.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..classic.group import group_or_simple_group
from ..records import OFFSET_KEYS, LegacyOffsetCommitValue, OffsetCommitValue
from .store import CommittedOffset, pack_offset

if TYPE_CHECKING:
    from ...coordinator.outcome import Record
    from ..states import GroupStates


def replay(states: GroupStates, record: Record, *, producer_id: int) -> None:
    """Commit or delete the offset of one partition."""
    key, value = record.key, record.value
    assert isinstance(key, OFFSET_KEYS)
    group_id = key.group
    if value is None:
        states.offsets.remove(group_id, key.topic, key.partition)
        return
    if group_id not in states.groups:
        group_or_simple_group(states, group_id)
    if isinstance(value, OffsetCommitValue):
        packed = pack_offset(
            value.offset,
            value.leader_epoch,
            value.metadata,
            value.commit_timestamp,
            value.expire_timestamp,
            value.topic_id,
        )
    else:
        assert isinstance(value, LegacyOffsetCommitValue)
        packed = CommittedOffset(value.offset, -1, value.metadata, value.commit_timestamp).packed()
    if producer_id < 0:
        states.offsets.put(group_id, key.topic, key.partition, packed)
    else:
        states.offsets.put_pending(producer_id, group_id, key.topic, key.partition, packed)


def replay_end_transaction(states: GroupStates, producer_id: int, *, committed: bool) -> None:
    """Apply or discard the offsets of a transaction."""
    states.offsets.end_transaction(producer_id, committed=committed)

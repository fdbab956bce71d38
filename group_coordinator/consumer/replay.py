"""Replays the records of consumer groups.

Replay accepts any sequence of records. The log may have been compacted: a record of a member may occur without the
group's record, a tombstone without an earlier record, and records of a deleted group among those of its successor. A
record of a missing group creates the group, a tombstone of an unknown object has no effect, and only the tombstone of
the group itself removes the group.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..records import (
    AssignedTopicPartitions,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)
from .group import ConsumerGroup
from .member import (
    LEAVING_EPOCH,
    NONE_ASSIGNED,
    AssignedPartitions,
    Assignment,
    ConsumerGroupMember,
    MemberState,
)
from .subscriptions import ResolvedRegex
from .timeouts import forget_member, start_members

if TYPE_CHECKING:
    from ...coordinator.outcome import Now, Record
    from ..states import GroupStates


def replay(states: GroupStates, record: Record) -> None:
    """Apply one record."""
    value: Any = record.value  # of the type that belongs to the key: ensured by the codec
    match record.key:
        case ConsumerGroupMetadataKey(group_id=group_id):
            _replay_group(states, group_id, value)
        case ConsumerGroupPartitionMetadataKey(group_id=group_id):
            _replay_partition_metadata(states, group_id, exists=value is not None)
        case ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id):
            _replay_member(states, group_id, member_id, value)
        case ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id):
            _replay_target_epoch(states, group_id, value)
        case ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id):
            _replay_target(states, group_id, member_id, value)
        case ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id):
            _replay_current(states, group_id, member_id, value)
        case ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex):
            _replay_regex(states, group_id, regex, value)


def _replay_group(states: GroupStates, group_id: str, value: ConsumerGroupMetadataValue | None) -> None:
    if value is None:
        gone = states.find(group_id, ConsumerGroup)
        if gone is not None:
            for member_id in gone.members:
                forget_member(states, group_id, member_id)
            del states.groups[group_id]
        return
    group = _existing_or_new(states, group_id)
    group.group_epoch = value.epoch
    group.metadata_hash = value.metadata_hash


def _replay_partition_metadata(states: GroupStates, group_id: str, *, exists: bool) -> None:
    group = _existing_or_new(states, group_id) if exists else states.find(group_id, ConsumerGroup)
    if group is not None:
        group.has_partition_metadata = exists


def _replay_member(
    states: GroupStates, group_id: str, member_id: str, value: ConsumerGroupMemberMetadataValue | None
) -> None:
    if value is None:
        group = states.find(group_id, ConsumerGroup)
        if group is not None:
            group.remove_member(member_id)
            forget_member(states, group_id, member_id)
        return
    group = _existing_or_new(states, group_id)
    group.update_member(
        replace(
            group.members.get(member_id) or ConsumerGroupMember(member_id),
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            subscribed_topic_names=frozenset(value.subscribed_topic_names),
            subscribed_topic_regex=value.subscribed_topic_regex,
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            server_assignor=value.server_assignor,
            classic_member_metadata=value.classic_member_metadata,
        )
    )


def _replay_target_epoch(
    states: GroupStates, group_id: str, value: ConsumerGroupTargetAssignmentMetadataValue | None
) -> None:
    if value is None:
        group = states.find(group_id, ConsumerGroup)
        if group is not None:
            group.target_assignment_epoch = 0
            group.target_assignment_timestamp_ms = 0
        return
    group = _existing_or_new(states, group_id)
    group.target_assignment_epoch = value.assignment_epoch
    group.target_assignment_timestamp_ms = value.assignment_timestamp


def _replay_target(
    states: GroupStates, group_id: str, member_id: str, value: ConsumerGroupTargetAssignmentMemberValue | None
) -> None:
    if value is None:
        group = states.find(group_id, ConsumerGroup)
        if group is not None:
            group.set_target(member_id, None)
        return
    assignment: Assignment = {
        topic.topic_id: frozenset(topic.partitions) for topic in value.topic_partitions if topic.partitions
    }
    _existing_or_new(states, group_id).set_target(member_id, assignment)


def _replay_current(
    states: GroupStates, group_id: str, member_id: str, value: ConsumerGroupCurrentMemberAssignmentValue | None
) -> None:
    if value is None:
        group = states.find(group_id, ConsumerGroup)
        member = None if group is None else group.members.get(member_id)
        if group is not None and member is not None:
            group.update_member(
                replace(
                    member,
                    member_epoch=LEAVING_EPOCH,
                    previous_member_epoch=LEAVING_EPOCH,
                    state=MemberState.STABLE,
                    assigned_partitions=NONE_ASSIGNED,
                    partitions_pending_revocation=NONE_ASSIGNED,
                )
            )
        return
    group = _existing_or_new(states, group_id)
    group.update_member(
        replace(
            group.members.get(member_id) or ConsumerGroupMember(member_id),
            member_epoch=value.member_epoch,
            previous_member_epoch=value.previous_member_epoch,
            state=MemberState(value.state),
            assigned_partitions=_assigned(value.assigned_partitions, value.member_epoch),
            partitions_pending_revocation=_assigned(value.partitions_pending_revocation, value.member_epoch),
        )
    )


def _replay_regex(
    states: GroupStates, group_id: str, regex: str, value: ConsumerGroupRegularExpressionValue | None
) -> None:
    if value is None:
        group = states.find(group_id, ConsumerGroup)
        if group is not None:
            group.resolve_regex(regex, None)
        return
    resolved = ResolvedRegex(frozenset(value.topics), value.version, value.timestamp)
    _existing_or_new(states, group_id).resolve_regex(regex, resolved)


def _existing_or_new(states: GroupStates, group_id: str) -> ConsumerGroup:
    # A group of another kind is replaced: it was converted when these records were written.
    group = states.find(group_id, ConsumerGroup)
    if group is None:
        group = states.groups[group_id] = ConsumerGroup(group_id, states.topics)
    return group


def _assigned(topics: Sequence[AssignedTopicPartitions], member_epoch: int) -> AssignedPartitions:
    assigned = {}
    for topic in topics:
        epochs = topic.assignment_epochs
        if epochs is None or len(epochs) != len(topic.partitions):
            # Written before KIP-1251: only the member's epoch is known, and it is the strictest.
            epochs = [member_epoch] * len(topic.partitions)
        if topic.partitions:
            assigned[topic.topic_id] = dict(zip(topic.partitions, epochs, strict=True))
    return assigned


def loaded(states: GroupStates, now: Now) -> None:
    """Start a full session for every member of a loaded group, and a little more (`first_sessions`)."""
    started = 0
    for group in states.all_of(ConsumerGroup):
        start_members(states, group, now, first_index=started)
        started += len(group.members)

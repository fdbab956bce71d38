"""The state of a consumer group as records; replay.py applies them."""

from __future__ import annotations

from collections.abc import Iterable

from ...coordinator.outcome import Record
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
    TargetTopicPartition,
)
from .member import AssignedPartitions, Assignment, ConsumerGroupMember
from .subscriptions import ResolvedRegex


def group_record(group_id: str, epoch: int, metadata_hash: int) -> Record:
    """The group's epoch, and the hash of its topics' metadata."""
    return Record(
        ConsumerGroupMetadataKey(group_id=group_id),
        ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash),
    )


def member_record(group_id: str, member: ConsumerGroupMember) -> Record:
    """The identity and the subscription of the member."""
    return Record(
        ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id),
        ConsumerGroupMemberMetadataValue(
            instance_id=member.instance_id,
            rack_id=member.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=sorted(member.subscribed_topic_names),
            subscribed_topic_regex=member.subscribed_topic_regex,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            server_assignor=member.server_assignor,
            classic_member_metadata=member.classic_member_metadata,
        ),
    )


def target_epoch_record(group_id: str, assignment_epoch: int, timestamp_ms: int) -> Record:
    """The group epoch that the target assignment was computed for, and when."""
    return Record(
        ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id),
        ConsumerGroupTargetAssignmentMetadataValue(
            assignment_epoch=assignment_epoch, assignment_timestamp=timestamp_ms
        ),
    )


def target_record(group_id: str, member_id: str, assignment: Assignment) -> Record:
    """The target assignment of the member."""
    return Record(
        ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id),
        ConsumerGroupTargetAssignmentMemberValue(
            topic_partitions=[
                TargetTopicPartition(topic_id=topic_id, partitions=sorted(partitions))
                for topic_id, partitions in assignment.items()
            ]
        ),
    )


def current_record(group_id: str, member: ConsumerGroupMember) -> Record:
    """The partitions that the member has, and those that it must still revoke."""
    return Record(
        ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id),
        ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=member.member_epoch,
            previous_member_epoch=member.previous_member_epoch,
            state=member.state,
            assigned_partitions=_with_epochs(member.assigned_partitions),
            partitions_pending_revocation=_with_epochs(member.partitions_pending_revocation),
        ),
    )


def regex_record(group_id: str, regex: str, resolved: ResolvedRegex) -> Record:
    """The topics that a regular expression matched."""
    return Record(
        ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex),
        ConsumerGroupRegularExpressionValue(
            topics=sorted(resolved.topics), version=resolved.version, timestamp=resolved.timestamp_ms
        ),
    )


def member_tombstones(group_id: str, member_id: str) -> list[Record]:
    """Delete all records of a member."""
    return [
        Record(ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None),
        Record(ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None),
        Record(ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None),
    ]


def regex_tombstone(group_id: str, regex: str) -> Record:
    """Delete a regular expression that no member subscribes with."""
    return Record(ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex), None)


def partition_metadata_tombstone(group_id: str) -> Record:
    """Delete the topics' metadata, which Kafka before 4.1 kept in the log."""
    return Record(ConsumerGroupPartitionMetadataKey(group_id=group_id), None)


def group_tombstones(
    group_id: str, member_ids: Iterable[str], regexes: Iterable[str], *, has_partition_metadata: bool
) -> list[Record]:
    """Delete all records of a group. Records that others depend on come last, because the log may be truncated."""
    member_ids = list(member_ids)
    records = [
        *(
            Record(ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=one), None)
            for one in member_ids
        ),
        *(Record(ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=one), None) for one in member_ids),
        Record(ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), None),
        *(Record(ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=one), None) for one in member_ids),
        *(regex_tombstone(group_id, regex) for regex in regexes),
    ]
    if has_partition_metadata:
        records.append(partition_metadata_tombstone(group_id))
    records.append(Record(ConsumerGroupMetadataKey(group_id=group_id), None))
    return records


def _with_epochs(assigned: AssignedPartitions) -> list[AssignedTopicPartitions]:
    topics = []
    for topic_id, epochs in assigned.items():
        partitions = sorted(epochs)
        topics.append(
            AssignedTopicPartitions(
                topic_id=topic_id,
                partitions=partitions,
                assignment_epochs=[epochs[partition] for partition in partitions],
            )
        )
    return topics

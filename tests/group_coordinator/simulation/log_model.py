"""An independent, simple replay of the log, with which the state of the shard is compared.

It keeps the history of each offset: an acknowledged commit must be there, or must have been replaced by a later one.
The offsets of a transaction wait for its marker, and are then ordered by their positions in the log. Rules that concern
only records are checked when they are appended.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from moldau.coordinator.outcome import Record
from moldau.group_coordinator import records
from moldau.protocol.records import RecordBatch, iter_batches, iter_records

OffsetOf = tuple[str, str, int]
"""Group, topic, partition."""

ABORT, COMMIT = b"\0\0\0\0", b"\0\0\0\1"
"""Keys of markers: a version and a type (KIP-98)."""


@dataclass
class LoggedGroup:
    """The current records of one group."""

    classic: records.GroupMetadataValue | None = None
    epoch: int | None = None
    members: set[str] = field(default_factory=set)
    targets: set[str] = field(default_factory=set)
    """Members with a target assignment."""
    target_epoch: int | None = None
    regexes: set[str] = field(default_factory=set)
    current: dict[str, records.ConsumerGroupCurrentMemberAssignmentValue] = field(default_factory=dict)
    life: int = 0
    """Counts the groups with this ID: a group that is deleted and re-created is a new one."""
    highest_epoch: int = -1
    """The highest generation or epoch in this life."""
    classic_members: frozenset[str] = frozenset()
    """The members of the classic group when it was deleted. If the next group has one of them, it is the same group,
    converted to a consumer group."""

    converted_at: int = -1
    """The generation in which the classic group became a consumer group; -1 while it did not."""

    @property
    def exists(self) -> bool:
        return self.classic is not None or self.epoch is not None

    def reset(self) -> None:
        self.life += 1
        self.highest_epoch = -1
        self.converted_at = -1
        self.classic_members = frozenset()


class LogModel:
    """The state in the log of a shard."""

    def __init__(self) -> None:
        self.offsets: dict[OffsetOf, records.OffsetCommitValue] = {}
        self.groups: dict[str, LoggedGroup] = {}
        self.committed_at: dict[tuple[OffsetOf, int], tuple[int, int]] = {}
        """The key is group, topic and partition, with a committed offset, which is unique. The value is the log offset
        after the record, and the producer of its transaction or -1."""
        self.pending: dict[int, dict[OffsetOf, tuple[int, records.OffsetCommitValue]]] = {}
        """By producer with an open transaction: the log offset after the record, and its value."""
        self.deleted: list[tuple[OffsetOf, records.OffsetCommitValue, bool]] = []
        """Offsets that the last batch has deleted, and whether they were pending."""
        self._places: dict[OffsetOf, int] = {}  # the log offsets of the committed ones
        self.end_offset = 0

    def replay(self, data: bytes) -> None:
        """Replay a batch.

        Raises:
            AssertionError: the batch violates a rule.
        """
        self.deleted.clear()
        (batch,) = iter_batches(data)
        touched = set()
        if batch.is_control:
            self._take_marker(batch)
            return
        assert batch.is_transactional == (batch.producer_id >= 0)
        for record in iter_records(batch):
            assert record.key is not None
            decoded = records.decode_record(record.key, record.value)
            assert decoded is not None
            assert records.encode_record(decoded) == (record.key, record.value)
            self.end_offset = record.offset + 1
            group_id = self._take(decoded, batch.producer_id)
            if group_id is not None:
                touched.add(group_id)
        for group_id in sorted(touched):
            self._check(group_id)

    def _take(self, record: Record, producer_id: int) -> str | None:
        value: Any = record.value
        match record.key:
            case records.OffsetCommitKey(group=group_id, topic=topic, partition=partition):
                self._take_offset((group_id, topic, partition), value, producer_id)
                return None
            case _ if producer_id >= 0:
                raise AssertionError(f"{record} is part of a transaction")
            case records.GroupMetadataKey(group=group_id):
                self._take_classic(self._group(group_id), value)
            case records.ConsumerGroupMetadataKey(group_id=group_id):
                self._take_epoch(self._group(group_id), value)
            case records.ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id):
                _take_name(self._group(group_id).members, member_id, value)
            case records.ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id):
                self._take_current(group_id, member_id, value)
            case records.ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id):
                self._group(group_id).target_epoch = None if value is None else value.assignment_epoch
            case records.ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id):
                _take_name(self._group(group_id).targets, member_id, value)
            case records.ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex):
                _take_name(self._group(group_id).regexes, regex, value)
            case _:
                raise AssertionError(record)
        return group_id

    def _group(self, group_id: str) -> LoggedGroup:
        return self.groups.setdefault(group_id, LoggedGroup())

    def _take_classic(self, group: LoggedGroup, value: records.GroupMetadataValue | None) -> None:
        if value is None:
            # A simple group has no record, and gets a tombstone nevertheless.
            members = group.classic.members if group.classic is not None else ()
            group.classic_members = frozenset(member.member_id for member in members)
        elif not group.exists and not value.members:
            group.reset()  # a consumer group that becomes a classic one has members
        group.classic = value

    def _take_epoch(self, group: LoggedGroup, value: records.ConsumerGroupMetadataValue | None) -> None:
        if value is not None and not group.exists and not group.classic_members:
            group.reset()
        if value is not None and group.epoch is None and group.classic_members:
            group.converted_at = value.epoch
        group.epoch = None if value is None else value.epoch

    def _take_offset(self, of: OffsetOf, value: records.OffsetCommitValue | None, producer_id: int) -> None:
        if value is None:
            deleted = [(of, one.pop(of)[1], True) for one in self.pending.values() if of in one]
            if of in self.offsets:
                deleted.append((of, self.offsets.pop(of), False))
            assert deleted, f"{of} is deleted, but did not exist"
            self.deleted += deleted
            return
        self.committed_at[of, value.offset] = self.end_offset, producer_id
        if producer_id >= 0:
            self.pending.setdefault(producer_id, {})[of] = self.end_offset, value
        else:
            self.offsets[of] = value
            self._places[of] = self.end_offset

    def _take_marker(self, batch: RecordBatch) -> None:
        (record,) = iter_records(batch)
        self.end_offset = record.offset + 1
        assert record.key in (ABORT, COMMIT)
        for of, (place, value) in self.pending.pop(batch.producer_id, {}).items():
            if record.key == COMMIT and (of not in self.offsets or place > self._places[of]):
                self.offsets[of] = value
                self._places[of] = place

    def is_pending(self, of: OffsetOf) -> bool:
        """Whether an open transaction has committed it."""
        return any(of in one for one in self.pending.values())

    def _take_current(
        self, group_id: str, member_id: str, value: records.ConsumerGroupCurrentMemberAssignmentValue | None
    ) -> None:
        current = self._group(group_id).current
        if value is None:
            current.pop(member_id, None)
            return
        before = current.get(member_id)
        # The epoch decreases only if the member joins, rejoins or leaves temporarily.
        assert before is None or value.member_epoch >= min(before.member_epoch, 1) or value.member_epoch in (0, -2), (
            f"{member_id} of {group_id}: its epoch goes from {before.member_epoch} to {value.member_epoch}"
        )
        current[member_id] = value

    def _check(self, group_id: str) -> None:
        group = self.groups[group_id]
        assert group.classic is None or group.epoch is None, f"{group_id} uses both protocols"
        assert group.targets <= group.members, f"{group_id}: a target assignment has no member"
        assert set(group.current) <= group.members, f"{group_id}: an assignment has no member"
        if group.epoch is None:
            # Compaction keeps records without a tombstone, which would restore the group.
            left = [group.members, group.regexes, group.target_epoch]
            assert not any(left), f"{group_id} is no longer a consumer group, but has {left}"
        if not group.exists:
            group.reset()
            return
        if group.epoch is not None and group.classic_members:
            if not group.classic_members & group.members:
                group.reset()
            group.classic_members = frozenset()
        epoch = group.epoch if group.classic is None else group.classic.generation
        assert epoch is not None
        assert epoch >= group.highest_epoch, f"{group_id}: the epoch goes from {group.highest_epoch} to {epoch}"
        group.highest_epoch = epoch
        owners: dict[tuple[bytes, int], str] = {}
        for member_id, value in group.current.items():
            assert value.member_epoch <= epoch
            for topic in (*value.assigned_partitions, *value.partitions_pending_revocation):
                for partition in topic.partitions:
                    other = owners.setdefault((topic.topic_id, partition), member_id)
                    assert other == member_id, f"{group_id}: {other} and {member_id} both have {partition}"

    def offsets_of(self, group_id: str) -> Mapping[tuple[str, int], records.OffsetCommitValue]:
        """What the group has committed."""
        return {(topic, index): value for (group, topic, index), value in self.offsets.items() if group == group_id}


def _take_name(names: set[str], name: str, value: object) -> None:
    if value is None:
        names.discard(name)
    else:
        names.add(name)

"""A consumer group (KIP-848): its epoch, its members, their target and current assignments.

The members send their subscriptions, and the coordinator assigns. There are three epochs, each derived from the one
before:

* the group epoch grows with every change of the members, their subscriptions or the topics' metadata;
* the target assignment's epoch is the group epoch that the target was computed for;
* a member's epoch is that of the target assignment that it has reached.

The state is derived from them and not stored:

| state | when |
| --- | --- |
| EMPTY | there are no members |
| ASSIGNING | the group epoch is ahead of the target assignment |
| RECONCILING | a member has not reached the target assignment |
| STABLE | every member has |
| DEAD | never, because a deleted group does not exist; the name is Kafka's |

Everything except soft state comes from records and is changed only by replay.py. No partition has two owners: a member
remains the owner of a partition (`owner_of`) until its record no longer contains it.
"""

from __future__ import annotations

import enum
from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, ClassVar, Final

from ...coordinator.outcome import Now, Record
from ...protocol.errors import ErrorCode, KafkaError
from ..group import CheckPartition
from . import as_records
from .member import NO_PARTITIONS, SESSION, AssignedPartitions, Assignment, ConsumerGroupMember, MemberState
from .subscriptions import ResolvedRegex, Subscriptions

if TYPE_CHECKING:
    from ..states import Topics

# The first version of OffsetCommit whose generation is a member epoch.
_OFFSET_COMMIT_WITH_MEMBER_EPOCH: Final = 9


FIRST_EPOCH: Final = 1
"""The epoch of a new group. Not 0, which is the epoch of joining members: no member may remain in it."""


class ConsumerGroupState(enum.Enum):
    """The value is the name that clients see."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


class ConsumerGroup:
    """One consumer group."""

    type: ClassVar[str] = "consumer"

    __slots__ = (
        "_assignors",
        "_classic_protocols",
        "_owners",
        "_topics",
        "classic_members",
        "group_epoch",
        "group_id",
        "has_partition_metadata",
        "members",
        "metadata_hash",
        "metadata_version",
        "regexes_refreshed_ms",
        "regexes_version",
        "static_members",
        "subscriptions",
        "target_assignment",
        "target_assignment_epoch",
        "target_assignment_timestamp_ms",
    )

    def __init__(self, group_id: str, topics: Topics) -> None:
        self.group_id = group_id
        self.group_epoch = FIRST_EPOCH
        self.metadata_hash = 0
        self.target_assignment_epoch = 0
        self.target_assignment_timestamp_ms = 0
        """When the target assignment was computed, in wall-clock time; 0 if unknown."""
        self.members: dict[str, ConsumerGroupMember] = {}
        self.static_members: dict[str, str] = {}
        """Member IDs by instance ID."""
        self.target_assignment: dict[str, Assignment] = {}
        """Target assignments by member ID. A member without an entry has no partitions."""
        self.subscriptions = Subscriptions()
        self.classic_members = 0
        """The number of members that use the classic protocol."""
        self.has_partition_metadata = False
        """Whether the log contains a record of the topics' metadata, which Kafka before 4.1 wrote."""
        self.metadata_version: int | None = None
        """The version of the topics that `metadata_hash` was compared with; None requires a comparison. Soft state."""
        self.regexes_version: int | None = None
        """The version of the topics that the regular expressions were matched with. Soft state."""
        self.regexes_refreshed_ms: int | None = None
        """When all of them were matched, by the monotonic clock; None for never. Soft state."""
        self._topics = topics
        self._assignors: dict[str, int] = {}
        self._classic_protocols: dict[str, int] = {}
        self._owners: dict[bytes, dict[int, str]] = {}

    # -- properties ----------------------------------------------------------------------------------------------------

    @property
    def protocol_type(self) -> str:
        """Always ``consumer``."""
        return "consumer"

    @property
    def state(self) -> ConsumerGroupState:
        """The state of the group; checks every member unless the group is assigning."""
        if not self.members:
            return ConsumerGroupState.EMPTY
        epoch = self.target_assignment_epoch
        if self.group_epoch > epoch:
            return ConsumerGroupState.ASSIGNING
        if all(member.is_reconciled_to(epoch) for member in self.members.values()):
            return ConsumerGroupState.STABLE
        return ConsumerGroupState.RECONCILING

    @property
    def state_name(self) -> str:
        """The state as clients see it."""
        return self.state.value

    @property
    def is_empty(self) -> bool:
        """See `Group`."""
        return not self.members

    def session_deadline(self, member_id: str) -> Hashable:
        """See `Group`."""
        return SESSION, member_id

    @property
    def classic_protocols(self) -> Mapping[str, int]:
        """Each protocol of members that use the classic protocol, with the number of these members."""
        return self._classic_protocols

    def member(self, member_id: str) -> ConsumerGroupMember:
        """The member with this ID.

        Raises:
            KafkaError: UNKNOWN_MEMBER_ID.
        """
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {self.group_id}."
            )
        return member

    def static_member(self, instance_id: str | None) -> ConsumerGroupMember | None:
        """The member with this instance ID."""
        if instance_id is None:
            return None
        member_id = self.static_members.get(instance_id)
        return None if member_id is None else self.members.get(member_id)

    def target_of(self, member_id: str) -> Assignment:
        """The target assignment of the member."""
        return self.target_assignment.get(member_id, NO_PARTITIONS)

    def owner_of(self, topic_id: bytes, partition: int) -> str | None:
        """The member that has the partition or has not revoked it yet."""
        partitions = self._owners.get(topic_id)
        return None if partitions is None else partitions.get(partition)

    def preferred_assignor(
        self, old: ConsumerGroupMember | None = None, new: ConsumerGroupMember | None = None
    ) -> str | None:
        """The assignor that most members prefer, with ``new`` counted instead of ``old``; None without preferences."""
        counts = self._assignors
        if old is not new:
            counts = counts.copy()
            _exchange(counts, _assignors_of(old), _assignors_of(new))
        return max(sorted(counts), key=counts.__getitem__) if counts else None

    def supports_classic_protocols(self, protocol_type: str, names: set[str]) -> bool:
        """Whether a member with these classic protocols may join: all classic members must support one of them."""
        if protocol_type != self.protocol_type:
            return False
        if not self.members:
            return bool(names)
        return any(self._classic_protocols.get(name, 0) == self.classic_members for name in names)

    def waits_for_release(self, member: ConsumerGroupMember) -> bool:
        """Whether another member still has a partition of the member's target assignment."""
        if member.state is not MemberState.UNRELEASED_PARTITIONS:
            return False
        for topic_id, partitions in self.target_of(member.member_id).items():
            assigned = member.assigned_partitions.get(topic_id, {})
            if any(one not in assigned and self.owner_of(topic_id, one) is not None for one in partitions):
                return True
        return False

    def forget_checks(self) -> None:
        """The results of the last checks of the topics were not written: check again."""
        self.metadata_version = self.regexes_version = self.regexes_refreshed_ms = None

    # -- what every group answers --------------------------------------------------------------------------------------

    def check_offset_commit(
        self,
        member_id: str,
        group_instance_id: str | None,
        generation_or_epoch: int,
        *,
        transactional: bool,
        api_version: int,
    ) -> CheckPartition | None:
        """Whether such a member may commit.

        An earlier epoch of the member is accepted for partitions that it has had since then (KIP-1251): no other member
        can have had them in between, so a commit that was sent before a rebalance is correct.

        Raises:
            KafkaError: UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH, ILLEGAL_GENERATION (a member of the classic protocol),
                UNSUPPORTED_VERSION.
        """
        # Tools, and consumers with manual assignment.
        if generation_or_epoch < 0 and not self.members:
            return None
        if transactional and generation_or_epoch == -1 and not member_id and group_instance_id is None:
            return None
        member = self.member(member_id)
        classic = member.uses_classic_protocol
        if not transactional and not classic and api_version < _OFFSET_COMMIT_WITH_MEMBER_EPOCH:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                "OffsetCommit version 9 or above must be used by members using the consumer group protocol",
            )
        if generation_or_epoch == member.member_epoch:
            return None
        stale = ErrorCode.ILLEGAL_GENERATION if classic else ErrorCode.STALE_MEMBER_EPOCH
        if generation_or_epoch > member.member_epoch:
            what = "generation id" if classic else "member epoch"
            raise KafkaError(
                stale,
                f"Received {what} {generation_or_epoch} is newer than current member epoch {member.member_epoch}.",
            )

        def check(topic: str, partition: int) -> ErrorCode:
            topic_id = self._topics.id_of(topic)
            assigned_at = None if topic_id is None else member.assignment_epoch(topic_id, partition)
            return stale if assigned_at is None or generation_or_epoch < assigned_at else ErrorCode.NONE

        return check

    def committed(self, member_id: str, now: Now) -> None:
        """A commit does not extend the session: members send heartbeats independently."""

    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Whether such a member may fetch offsets. A request without a member is accepted.

        Raises:
            KafkaError: UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH, ILLEGAL_GENERATION (a member of the classic protocol).
        """
        if member_id is None and member_epoch < 0:
            return
        member = self.member(member_id or "")
        if member_epoch == member.member_epoch:
            return
        if member.uses_classic_protocol:
            raise KafkaError(
                ErrorCode.ILLEGAL_GENERATION,
                f"The received generation id {member_epoch} does not match the expected member epoch "
                f"{member.member_epoch}.",
            )
        raise KafkaError(
            ErrorCode.STALE_MEMBER_EPOCH,
            f"The received member epoch {member_epoch} does not match the expected member epoch {member.member_epoch}.",
        )

    def check_offset_delete(self) -> None:
        """Offsets of topics without subscribers may be deleted in every state."""

    def check_delete(self) -> None:
        """Raises NON_EMPTY_GROUP while there are members."""
        if self.members:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member reads this topic."""
        return topic in self.subscriptions

    def expiration_base_ms(self, commit_timestamp_ms: int) -> int | None:
        """Retention counts from the commit. The caller skips topics that members subscribe to."""
        return commit_timestamp_ms

    def records(self) -> list[Record]:
        """See `Group`."""
        group_id = self.group_id
        return [
            *(as_records.member_record(group_id, member) for member in self.members.values()),
            as_records.group_record(group_id, self.group_epoch, self.metadata_hash),
            *(as_records.regex_record(group_id, *resolved) for resolved in self.subscriptions.resolved.items()),
            *(as_records.target_record(group_id, *target) for target in self.target_assignment.items()),
            as_records.target_epoch_record(group_id, self.target_assignment_epoch, self.target_assignment_timestamp_ms),
            *(as_records.current_record(group_id, member) for member in self.members.values()),
        ]

    def tombstones(self) -> list[Record]:
        """The records that delete the group."""
        return as_records.group_tombstones(
            self.group_id,
            self.members,
            self.subscriptions.resolved,
            has_partition_metadata=self.has_partition_metadata,
        )

    # -- changes, by replay --------------------------------------------------------------------------------------------

    def update_member(self, member: ConsumerGroupMember) -> None:
        """Add a member, or replace its previous value."""
        old = self.members.get(member.member_id)
        self.members[member.member_id] = member
        self._exchange(old, member)
        if old is not None and old.instance_id != member.instance_id:
            self._forget_instance(old)
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id

    def remove_member(self, member_id: str) -> None:
        """Remove a member and its partitions."""
        old = self.members.pop(member_id, None)
        if old is not None:
            self._exchange(old, None)
            self._forget_instance(old)

    def set_target(self, member_id: str, assignment: Assignment | None) -> None:
        """Set or remove the target assignment of a member."""
        if assignment is None:
            self.target_assignment.pop(member_id, None)
        else:
            self.target_assignment[member_id] = assignment

    def resolve_regex(self, regex: str, resolved: ResolvedRegex | None) -> None:
        """Set or remove the matches of a regular expression."""
        self.subscriptions.resolve(regex, resolved)

    def _forget_instance(self, member: ConsumerGroupMember) -> None:
        # Another member may have taken over the instance ID before this one's tombstone.
        if member.instance_id is not None and self.static_members.get(member.instance_id) == member.member_id:
            del self.static_members[member.instance_id]

    def _exchange(self, old: ConsumerGroupMember | None, new: ConsumerGroupMember | None) -> None:
        self.subscriptions.exchange(old, new)
        _exchange(self._assignors, _assignors_of(old), _assignors_of(new))
        _exchange(self._classic_protocols, _classic_protocols_of(old), _classic_protocols_of(new))
        if old is not None:
            self.classic_members -= old.uses_classic_protocol
            self._release(old.member_id, old.assigned_partitions)
            self._release(old.member_id, old.partitions_pending_revocation)
        if new is not None:
            self.classic_members += new.uses_classic_protocol
            self._own(new.member_id, new.assigned_partitions)
            self._own(new.member_id, new.partitions_pending_revocation)

    def _own(self, member_id: str, assigned: AssignedPartitions) -> None:
        for topic_id, partitions in assigned.items():
            self._owners.setdefault(topic_id, {}).update(dict.fromkeys(partitions, member_id))

    def _release(self, member_id: str, assigned: AssignedPartitions) -> None:
        for topic_id, partitions in assigned.items():
            owners = self._owners.get(topic_id)
            if owners is None:
                continue
            for partition in partitions:
                if owners.get(partition) == member_id:
                    del owners[partition]
            if not owners:
                del self._owners[topic_id]


def _assignors_of(member: ConsumerGroupMember | None) -> tuple[str, ...]:
    return () if member is None or member.server_assignor is None else (member.server_assignor,)


def _classic_protocols_of(member: ConsumerGroupMember | None) -> tuple[str, ...]:
    if member is None or member.classic_member_metadata is None:
        return ()
    # A request may name a protocol twice; the member counts once.
    return tuple(dict.fromkeys(protocol.name for protocol in member.classic_member_metadata.supported_protocols))


def _exchange(counts: dict[str, int], old: tuple[str, ...], new: tuple[str, ...]) -> None:
    if old == new:
        return
    for name in new:
        counts[name] = counts.get(name, 0) + 1
    for name in old:
        left = counts.get(name, 0) - 1
        if left > 0:
            counts[name] = left
        else:
            counts.pop(name, None)

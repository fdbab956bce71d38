"""A member of a consumer group (KIP-848), and how far it has come towards its target assignment.

A member's value never changes; every change makes another member, which the records carry: one record says who it is
and what it subscribes to, another what it has now.

| state | the member | left when |
| --- | --- | --- |
| STABLE | has all that its member epoch gives it | the group has a newer target assignment, or it subscribes to less |
| UNREVOKED_PARTITIONS | must give up partitions | a heartbeat shows that it owns none of them |
| UNRELEASED_PARTITIONS | shall get partitions that others still have | the others gave them up |
| UNKNOWN | was written by a newer coordinator in a state not known here | it gave up everything |
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from ..records import ClassicMemberMetadata

AssignedPartitions = Mapping[bytes, Mapping[int, int]]
"""Topic id -> partition -> the member epoch at which the partition was assigned (KIP-1251)."""

Assignment = Mapping[bytes, frozenset[int]]
"""Topic id -> partitions; a topic without partitions is not in it."""

NO_PARTITIONS: Final[Assignment] = {}
NONE_ASSIGNED: Final[AssignedPartitions] = {}

JOINING_EPOCH: Final = 0
LEAVING_EPOCH: Final = -1
LEAVING_STATIC_EPOCH: Final = -2
"""A static member leaves for a while: its partitions stay with its instance id until the session ends."""


class MemberState(enum.IntEnum):
    """Where a member's reconciliation stands; the number is that of the record."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127

    @classmethod
    def _missing_(cls, value: object) -> MemberState:
        return cls.UNKNOWN


@dataclass(frozen=True, slots=True)
class ConsumerGroupMember:
    """Who a member is, what it subscribes to, and what it has."""

    member_id: str
    member_epoch: int = 0
    previous_member_epoch: int = -1
    state: MemberState = MemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: frozenset[str] = frozenset()
    subscribed_topic_regex: str | None = ""
    """As it was sent and as the records have it; `regex` says whether there is one."""
    server_assignor: str | None = None
    assigned_partitions: AssignedPartitions = field(default_factory=dict)
    partitions_pending_revocation: AssignedPartitions = field(default_factory=dict)
    classic_member_metadata: ClassicMemberMetadata | None = None
    """Of a member that speaks the classic protocol, in a group that is being migrated."""

    @property
    def regex(self) -> str | None:
        """The regular expression it subscribes by; the empty string means none."""
        return self.subscribed_topic_regex or None

    @property
    def uses_classic_protocol(self) -> bool:
        """Whether it joins and syncs as members of classic groups do."""
        return self.classic_member_metadata is not None

    def is_reconciled_to(self, target_assignment_epoch: int) -> bool:
        """Whether it has all that the target assignment of this epoch gives it."""
        return self.state is MemberState.STABLE and self.member_epoch == target_assignment_epoch

    def assignment_epoch(self, topic_id: bytes, partition: int) -> int | None:
        """The member epoch at which it was given this partition; None when it has not got it."""
        for partitions in (self.assigned_partitions.get(topic_id), self.partitions_pending_revocation.get(topic_id)):
            if partitions is not None and partition in partitions:
                return partitions[partition]
        return None

    def at_epoch(
        self,
        member_epoch: int,
        state: MemberState,
        assigned_partitions: AssignedPartitions,
        partitions_pending_revocation: AssignedPartitions = NONE_ASSIGNED,
    ) -> ConsumerGroupMember:
        """The member one step further; the epoch that it had is kept, because its client may not know the new one."""
        return replace(
            self,
            member_epoch=member_epoch,
            previous_member_epoch=self.member_epoch,
            state=state,
            assigned_partitions=assigned_partitions,
            partitions_pending_revocation=partitions_pending_revocation,
        )

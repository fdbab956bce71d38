"""A member of a consumer group (KIP-848), and the state of its reconciliation.

A member is immutable; every change creates a new value, which is written as records: one with its identity and
subscription, another with its current assignment.

| state | the member | left when |
| --- | --- | --- |
| STABLE | has the full assignment of its epoch | the group has a newer target assignment, or it subscribes to less |
| UNREVOKED_PARTITIONS | must revoke partitions | a heartbeat shows that it owns none of them |
| UNRELEASED_PARTITIONS | waits for partitions that other members still have | the others have revoked them |
| UNKNOWN | was written by a newer coordinator in an unknown state | it has revoked all partitions |
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from ..records import ClassicMemberMetadata

AssignedPartitions = Mapping[bytes, Mapping[int, int]]
"""Topic ID -> partition -> the member epoch at which the partition was assigned (KIP-1251)."""

Assignment = Mapping[bytes, frozenset[int]]
"""Topic ID -> partitions; topics without partitions are omitted."""

NO_PARTITIONS: Final[Assignment] = {}
NONE_ASSIGNED: Final[AssignedPartitions] = {}

JOINING_EPOCH: Final = 0
LEAVING_EPOCH: Final = -1
LEAVING_STATIC_EPOCH: Final = -2
"""A static member leaves temporarily: its partitions stay with its instance ID until the session expires."""

SESSION: Final = "consumer session"
"""Part of the deadline's name. Different from that of classic members, because a group may change its kind."""


class MemberState(enum.IntEnum):
    """The state of a member's reconciliation; the number is that of the record."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127

    @classmethod
    def _missing_(cls, value: object) -> MemberState:
        return cls.UNKNOWN


@dataclass(frozen=True, slots=True)
class ConsumerGroupMember:
    """The identity, the subscription and the current assignment of a member."""

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
    """As in the request and the records; see `regex`."""
    server_assignor: str | None = None
    assigned_partitions: AssignedPartitions = field(default_factory=dict)
    partitions_pending_revocation: AssignedPartitions = field(default_factory=dict)
    classic_member_metadata: ClassicMemberMetadata | None = None
    """Of a member that uses the classic protocol, in a group that is being migrated."""

    @property
    def regex(self) -> str | None:
        """The regular expression that it subscribes with; the empty string means none."""
        return self.subscribed_topic_regex or None

    @property
    def uses_classic_protocol(self) -> bool:
        """Whether it joins and syncs like members of classic groups."""
        return self.classic_member_metadata is not None

    def is_reconciled_to(self, target_assignment_epoch: int) -> bool:
        """Whether it has its full target assignment of this epoch."""
        return self.state is MemberState.STABLE and self.member_epoch == target_assignment_epoch

    def assignment_epoch(self, topic_id: bytes, partition: int) -> int | None:
        """The member epoch at which it got this partition; None if it does not have it."""
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
        """The member in another epoch. The previous epoch is kept, because the client may not know the new one."""
        return replace(
            self,
            member_epoch=member_epoch,
            previous_member_epoch=self.member_epoch,
            state=state,
            assigned_partitions=assigned_partitions,
            partitions_pending_revocation=partitions_pending_revocation,
        )

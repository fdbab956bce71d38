"""A classic group: its members, its generation, and its waiting callers.

This is data with its own bookkeeping. The modules of the requests and `rebalance` decide how it changes. See `state`
for the states.

A group without a protocol type and without members is a simple group: it never had members and exists because offsets
were committed under its name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from ...protocol.errors import ErrorCode, KafkaError
from .protocols import CONSUMER_PROTOCOL_TYPE, ProtocolCounts, select_protocol, subscribed_topics
from .record import group_record, group_tombstone
from .state import ClassicGroupState

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    from ...coordinator.deadlines import Deadlines
    from ...coordinator.outcome import Caller, Now, Record
    from ..group import CheckPartition, Group
    from ..states import GroupStates
    from .member import ClassicMember

_EMPTY = ClassicGroupState.EMPTY


def group_or_simple_group(states: GroupStates, group_id: str) -> Group:
    """The group of this name. If there is none, a simple group is created: a commit needs no members."""
    group = states.groups.get(group_id)
    if group is None:
        group = states.groups[group_id] = ClassicGroup(group_id, states.deadlines)
    return group


class ClassicGroup:
    """A simple group, or a group whose members use the classic protocol."""

    type: ClassVar[str] = "classic"

    __slots__ = (
        "_deadlines",
        "_subscribed_topics",
        "_subscriptions",
        "awaiting_join_count",
        "current_state_timestamp_ms",
        "generation_id",
        "group_id",
        "is_initial_rebalance",
        "leader_id",
        "member_was_added",
        "members",
        "pending_members",
        "pending_sync_members",
        "protocol_counts",
        "protocol_name",
        "protocol_type",
        "state",
        "static_members",
    )

    def __init__(self, group_id: str, deadlines: Deadlines) -> None:
        """An empty group, which keeps its deadlines in ``deadlines``."""
        self.group_id = group_id
        self.state = _EMPTY
        self.current_state_timestamp_ms = -1
        """When it entered this state; -1 if unknown, because old versions of the record do not contain it."""
        self.generation_id = 0
        self.protocol_type = ""
        self.protocol_name: str | None = None
        self.leader_id: str | None = None
        self.members: dict[str, ClassicMember] = {}
        self.static_members: dict[str, str] = {}
        """Member ids by instance id."""
        self.pending_members: dict[str, None] = {}
        """IDs that were given to new members, which must retry with them (KIP-394); the oldest is first."""
        self.pending_sync_members: set[str] = set()
        """The members that have not sent SyncGroup in this generation yet."""
        self.protocol_counts = ProtocolCounts()
        self.awaiting_join_count = 0
        self.is_initial_rebalance = False
        """The rebalance began with an empty group: it waits for members that have not joined yet."""
        self.member_was_added = False
        """Since the last check of the initial rebalance: it may wait longer."""
        self._deadlines = deadlines
        self._subscriptions: list[bytes] | None = None  # of the generation, not parsed yet
        self._subscribed_topics: frozenset[str] | None = None

    def __repr__(self) -> str:
        return f"<ClassicGroup {self.group_id!r} {self.state.value}, generation {self.generation_id}>"

    # -- what every group answers --------------------------------------------------------------------------------------

    @property
    def state_name(self) -> str:
        """``Empty``, ``PreparingRebalance``, ``CompletingRebalance`` or ``Stable``."""
        return self.state.value

    @property
    def is_empty(self) -> bool:
        """See `Group`."""
        return self.state is _EMPTY

    def session_deadline(self, member_id: str) -> Hashable | None:
        """See `Group`."""
        member = self.members[member_id]
        return None if member.stays_alive_by_waiting else member.session

    def check_offset_commit(
        self,
        member_id: str,
        group_instance_id: str | None,
        generation_or_epoch: int,
        *,
        transactional: bool,
        api_version: int,
    ) -> CheckPartition | None:
        """See `Group`. A commit without a member and a generation is accepted by a group without members."""
        if generation_or_epoch < 0 and self.state is _EMPTY:
            return None
        if generation_or_epoch >= 0 or member_id or group_instance_id is not None:
            self.check_member(member_id, group_instance_id)
            if generation_or_epoch != self.generation_id:
                raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        elif not transactional:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        if not transactional and self.state is ClassicGroupState.COMPLETING_REBALANCE:
            # A member of the new generation that has not fetched its assignment yet.
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
        return None

    def committed(self, member_id: str, now: Now) -> None:
        """A commit extends the session like a heartbeat. A member without a session deadline has a request that waits;
        its session begins when that is answered."""
        if self.state is _EMPTY or self.state is ClassicGroupState.COMPLETING_REBALANCE:
            return
        member = self.members.get(member_id)
        if member is not None:
            self._deadlines.move(self.group_id, member.session, now.monotonic_ms + member.session_timeout_ms)

    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Always allowed."""

    def check_offset_delete(self) -> None:
        """See `Group`: the topics of consumers are known, those of other protocol types are not."""
        if self.state is not _EMPTY and not self.uses_consumer_protocol:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)

    def check_delete(self) -> None:
        """See `Group`."""
        if self.state is not _EMPTY:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)

    def is_subscribed_to(self, topic: str) -> bool:
        """See `Group`. If the subscriptions of consumers cannot be parsed, this is true for every topic."""
        topics = self.subscribed_topics()
        return self.uses_consumer_protocol if topics is None else topic in topics

    def expiration_base_ms(self, commit_timestamp_ms: int) -> int | None:
        """See `Group` (KIP-211).

        The retention of a simple group's offsets counts from their commit, that of a group without members from the
        time when it lost them. While the group has members, only offsets of topics without a subscriber expire: the
        caller checks `is_subscribed_to`.
        """
        if not self.protocol_type:
            return commit_timestamp_ms
        if self.state is _EMPTY:
            return commit_timestamp_ms if self.current_state_timestamp_ms == -1 else self.current_state_timestamp_ms
        if self.state is ClassicGroupState.STABLE and self.subscribed_topics() is not None:
            return commit_timestamp_ms
        return None

    def records(self) -> list[Record]:
        """See `Group`. A group with members must have chosen a protocol."""
        return [group_record(self)]

    def tombstones(self) -> list[Record]:
        """See `Group`."""
        return [group_tombstone(self.group_id)]

    # -- what members subscribe to -------------------------------------------------------------------------------------

    @property
    def uses_consumer_protocol(self) -> bool:
        """Whether the members' metadata are consumer subscriptions."""
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    def subscribed_topics(self) -> frozenset[str] | None:
        """The topics of the generation's members; None if unknown."""
        if self._subscriptions is not None:
            self._subscribed_topics = subscribed_topics(self._subscriptions)
            self._subscriptions = None
        return self._subscribed_topics

    def note_subscriptions(self) -> None:
        """A generation has begun. Its subscriptions are parsed on demand, because loading replays many generations."""
        self._subscriptions = self._subscribed_topics = None
        if self.uses_consumer_protocol:
            name = self.protocol_name
            if name is not None:
                self._subscriptions = [member.protocols.get(name, b"") for member in self.members.values()]
            elif not self.members:
                self._subscriptions = []

    # -- members -------------------------------------------------------------------------------------------------------

    def check_member(self, member_id: str, group_instance_id: str | None) -> None:
        """Raise UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID unless there is such a member."""
        if group_instance_id is not None:
            current = self.static_members.get(group_instance_id)
            if current is None:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
            if current != member_id:
                raise KafkaError(ErrorCode.FENCED_INSTANCE_ID)
        if member_id not in self.members:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)

    def supports(self, protocol_type: str, protocols: dict[str, bytes]) -> bool:
        """Whether a client that supports these protocols can be a member."""
        if self.state is _EMPTY:
            return bool(protocol_type) and bool(protocols)
        return protocol_type == self.protocol_type and self.protocol_counts.any_common(len(self.members), protocols)

    def add(self, member: ClassicMember, protocol_type: str, caller: Caller | None = None) -> None:
        """Add a member that the group `supports`; ``caller`` waits for the generation."""
        if not self.members:
            self.protocol_type = protocol_type
        assert protocol_type == self.protocol_type
        if member.group_instance_id is not None:
            assert member.group_instance_id not in self.static_members
            self.static_members[member.group_instance_id] = member.member_id
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        self.protocol_counts.add(member.protocols)
        self.set_awaiting_join(member, caller)
        self.pending_members.pop(member.member_id, None)

    def remove(self, member_id: str) -> ClassicMember | None:
        """Remove a member or a pending member. Its waiting callers must have been removed before."""
        self.pending_members.pop(member_id, None)
        self.pending_sync_members.discard(member_id)
        member = self.members.pop(member_id, None)
        if member is None:
            return None
        assert member.awaiting_join is None
        self.protocol_counts.remove(member.protocols)
        # A log may hold two members of one instance id, of which the last one counts.
        instance_id = member.group_instance_id
        if instance_id is not None and self.static_members.get(instance_id) == member_id:
            del self.static_members[instance_id]
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        return member

    def replace(self, old: ClassicMember, new: ClassicMember) -> None:
        """A static member rejoins with another member ID. The old member has no waiting callers."""
        instance_id = new.group_instance_id
        assert instance_id is not None
        assert self.static_members[instance_id] == old.member_id
        assert old.awaiting_join is None
        assert new.awaiting_join is None
        del self.members[old.member_id]
        self.protocol_counts.remove(old.protocols)
        self.members[new.member_id] = new
        self.protocol_counts.add(new.protocols)
        self.static_members[instance_id] = new.member_id
        if self.leader_id == old.member_id:
            self.leader_id = new.member_id
        if old.member_id in self.pending_sync_members:
            self.pending_sync_members.remove(old.member_id)
            self.pending_sync_members.add(new.member_id)

    def set_members(self, members: Iterable[ClassicMember]) -> None:
        """Replace all members. Their waiting callers stay the same."""
        self.members = {member.member_id: member for member in members}
        self.static_members = {}
        self.protocol_counts = ProtocolCounts()
        self.awaiting_join_count = 0
        for member in self.members.values():
            self.protocol_counts.add(member.protocols)
            self.awaiting_join_count += member.awaiting_join is not None
            if member.group_instance_id is not None:
                self.static_members[member.group_instance_id] = member.member_id
        self.pending_members = {one: None for one in self.pending_members if one not in self.members}
        self.pending_sync_members.intersection_update(self.members)

    def set_protocols(self, member: ClassicMember, protocols: dict[str, bytes]) -> None:
        """Replace the protocols of a member with their metadata."""
        self.protocol_counts.remove(member.protocols)
        member.protocols = protocols
        self.protocol_counts.add(protocols)

    def set_awaiting_join(self, member: ClassicMember, caller: Caller | None) -> Caller | None:
        """Set the caller that waits for the response to the member's JoinGroup; returns the previous one."""
        before = member.awaiting_join
        member.awaiting_join = caller
        self.awaiting_join_count += (caller is not None) - (before is not None)
        return before

    # -- the generation ------------------------------------------------------------------------------------------------

    @property
    def all_joined(self) -> bool:
        """Whether all members and pending members of the next generation have sent JoinGroup."""
        return self.awaiting_join_count == len(self.members) and not self.pending_members

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance timeout of its members."""
        return max(0, *(member.rebalance_timeout_ms for member in self.members.values())) if self.members else 0

    def select_protocol(self) -> str:
        """The protocol that the members vote for. The group must have members."""
        candidates = self.protocol_counts.supported_by(len(self.members))
        return select_protocol(candidates, (member.protocols for member in self.members.values()))

    def elect_joined_leader(self) -> bool:
        """Replace a leader that did not join by the first member that did; False if no member has joined."""
        if self.leader_id is not None and self.members[self.leader_id].awaiting_join is not None:
            return True
        joined = (member.member_id for member in self.members.values() if member.awaiting_join is not None)
        leader_id = next(joined, None)
        if leader_id is None:
            return False
        self.leader_id = leader_id
        return True

    def move_to(self, state: ClassicGroupState, now: Now) -> None:
        """Enter another state now."""
        self.state = state
        self.current_state_timestamp_ms = now.epoch_ms

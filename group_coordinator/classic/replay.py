"""Classic groups from the log.

A record holds a generation: its members with their metadata for the protocol that was chosen, and their assignments.
Without members it is an empty one; a tombstone ends the group.

While the shard serves, records are replayed onto groups whose members already exist, with more state than a record
contains: waiting callers, other supported protocols. That state stays; the fields of the record are replaced. Replaying
a log from its start therefore gives the same generations as writing it.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from ..first_sessions import first_session_ms
from ..records import GroupMetadataKey, GroupMetadataValue
from .group import ClassicGroup
from .member import ClassicMember
from .rebalance import begin, cancel_deadlines, set_session
from .state import ClassicGroupState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...coordinator.outcome import Caller, Now, Record
    from ..records import MemberMetadata
    from ..states import GroupStates


def replay(states: GroupStates, record: Record) -> None:
    """Take a generation, or the end of a group, into the state."""
    key, value = record.key, record.value
    assert isinstance(key, GroupMetadataKey)
    group = states.find(key.group, ClassicGroup)
    if value is None:
        # A group that has become a consumer group has this tombstone, too.
        if group is not None:
            cancel_deadlines(states, group)
            del states.groups[key.group]
        return
    assert isinstance(value, GroupMetadataValue)
    if group is None:
        group = states.groups[key.group] = ClassicGroup(key.group, states.deadlines)
    _take_generation(group, value)


def _take_generation(group: ClassicGroup, value: GroupMetadataValue) -> None:
    if group.state is ClassicGroupState.PREPARING_REBALANCE and value.generation == group.generation_id:
        # A rebalance has begun already, to a generation after this one: it continues.
        for metadata in value.members:
            member = group.members.get(metadata.member_id)
            if member is not None:
                member.assignment = metadata.assignment
        return
    group.protocol_type = value.protocol_type
    group.protocol_name = value.protocol
    group.generation_id = value.generation
    group.set_members([_member(group, metadata, value.protocol or "") for metadata in value.members])
    group.leader_id = value.leader if value.leader in group.members else None
    group.is_initial_rebalance = False
    group.state = ClassicGroupState.STABLE if group.members else ClassicGroupState.EMPTY
    group.current_state_timestamp_ms = value.current_state_timestamp
    group.note_subscriptions()


def _member(group: ClassicGroup, metadata: MemberMetadata, protocol_name: str) -> ClassicMember:
    """The existing member if the record has its protocol metadata and instance ID; otherwise a new one."""
    # Version 0 of the record had no rebalance timeout: it was the session timeout.
    rebalance_timeout_ms = metadata.session_timeout if metadata.rebalance_timeout == -1 else metadata.rebalance_timeout
    member = group.members.get(metadata.member_id)
    if (
        member is None
        or member.protocols.get(protocol_name) != metadata.subscription
        or member.group_instance_id != metadata.group_instance_id
    ):
        return ClassicMember(
            metadata.member_id,
            metadata.group_instance_id,
            client_id=metadata.client_id,
            client_host=metadata.client_host,
            rebalance_timeout_ms=rebalance_timeout_ms,
            session_timeout_ms=metadata.session_timeout,
            protocols={protocol_name: metadata.subscription},
            assignment=metadata.assignment,
        )
    member.client_id = metadata.client_id
    member.client_host = metadata.client_host
    member.rebalance_timeout_ms = rebalance_timeout_ms
    member.session_timeout_ms = metadata.session_timeout
    member.assignment = metadata.assignment
    return member


def loaded(states: GroupStates, now: Now) -> None:
    """Start a full session for every member of a loaded group, and a little more (`first_sessions`).

    A group that exceeds `group.max.size` since the setting was changed starts a rebalance, which not all members can
    join. So does a group without a leader: it was a consumer group, and its rebalance has not ended
    (`migration.downgrade`).
    """
    index = itertools.count()
    for group in states.all_of(ClassicGroup):
        for member in group.members.values():
            set_session(states, group, member, now, first_session_ms(member.session_timeout_ms, next(index)))
        if len(group.members) > states.config.group_max_size or (group.members and group.leader_id is None):
            begin(states, group, now)


def waiting_callers(states: GroupStates) -> Sequence[Caller]:
    """Remove and return all callers that wait for a JoinGroup or SyncGroup response."""
    callers: list[Caller] = []
    for group in states.all_of(ClassicGroup):
        for member in group.members.values():
            if (joining := group.set_awaiting_join(member, None)) is not None:
                callers.append(joining)
            if member.awaiting_sync is not None:
                callers.append(member.awaiting_sync)
                member.awaiting_sync = None
    return callers

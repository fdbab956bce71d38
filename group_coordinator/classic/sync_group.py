"""SyncGroup of classic groups.

Every member of a new generation requests its assignment. The leader sends the assignments of all members. Then the
generation is written, and all waiting requests are answered. Members that the leader omitted get an empty assignment;
assignments for unknown members are ignored. If the generation cannot be written, a new rebalance begins.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...coordinator.outcome import NOTHING, Outcome
from ...protocol.errors import ErrorCode, KafkaError
from .group import ClassicGroup
from .rebalance import begin, has_synced, keep_alive
from .record import group_record
from .replies import sync_refused, synced
from .state import ClassicGroupState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...coordinator.outcome import Caller, Now, Reply
    from ...protocol.messages.sync_group import SyncGroupRequest
    from ..states import GroupStates


def handle_sync_group(states: GroupStates, caller: Caller, request: SyncGroupRequest, now: Now) -> Outcome:
    """The caller is answered now, or when the leader has sent the assignments.

    Raises:
        KafkaError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION, INCONSISTENT_GROUP_PROTOCOL,
            REBALANCE_IN_PROGRESS.
    """
    group = states.find(request.group_id, ClassicGroup)
    if group is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
    _check(group, request)
    member = group.members[request.member_id]
    has_synced(states, group, member)
    if group.state is ClassicGroupState.STABLE:
        return Outcome(replies=[synced(group, member.assignment, caller)])
    replies: list[Reply] = []
    if member.awaiting_sync is not None:
        replies.append(sync_refused(member.awaiting_sync, ErrorCode.REBALANCE_IN_PROGRESS))
    member.awaiting_sync = caller
    if group.leader_id != member.member_id:
        return Outcome(replies=replies) if replies else NOTHING
    assignments = {assignment.member_id: assignment.assignment for assignment in request.assignments}
    return _assign(states, group, assignments, replies, now)


def _check(group: ClassicGroup, request: SyncGroupRequest) -> None:
    group.check_member(request.member_id, request.group_instance_id)
    if request.generation_id != group.generation_id:
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
    if request.protocol_type not in (None, group.protocol_type):
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if request.protocol_name not in (None, group.protocol_name):
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if group.state is ClassicGroupState.PREPARING_REBALANCE:
        raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)


def _assign(
    states: GroupStates, group: ClassicGroup, assignments: dict[str, bytes], replies: list[Reply], now: Now
) -> Outcome:
    """The generation with its assignments. When it is replayed, the members have them and the group is stable."""
    for member in group.members.values():
        if member.awaiting_sync is not None:
            replies.append(synced(group, assignments.get(member.member_id, b""), member.awaiting_sync))
            member.awaiting_sync = None
            # Its session may have ended while the request waited.
            keep_alive(states, group, member, now)

    def refused(error: KafkaError) -> Sequence[Reply]:
        outcome = begin(states, group, now)
        # The group has members, and none has joined yet: there are no records and no waiting callers.
        assert not outcome.records
        return outcome.replies

    return Outcome(records=[group_record(group, assignments)], replies=replies, refused=refused)

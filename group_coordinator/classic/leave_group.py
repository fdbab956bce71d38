"""LeaveGroup of classic groups: members leave, or are removed by an administrator.

A member is named by its member ID, which must match its instance ID if that is given too, or by its instance ID alone
(KIP-345). Administrators remove static members by instance ID, because these do not leave when their client stops.
Each member gets its own error code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...coordinator.outcome import Outcome
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.leave_group import LeaveGroupResponse, MemberResponse
from .group import ClassicGroup
from .member import session_name
from .rebalance import rebalance, remove_member, with_replies
from .state import ClassicGroupState

if TYPE_CHECKING:
    from ...coordinator.outcome import Caller, Now, Reply
    from ...protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
    from ..states import GroupStates


def handle_leave_group(states: GroupStates, caller: Caller, request: LeaveGroupRequest, now: Now) -> Outcome:
    """The caller is answered with one error for each member."""
    group = states.find(request.group_id, ClassicGroup)
    replies: list[Reply] = []
    members = []
    for identity in request.members:
        error = ErrorCode.NONE
        try:
            if group is None:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
            replies += _leave(states, group, identity)
        except KafkaError as refusal:
            error = refusal.code
        members.append(
            MemberResponse(member_id=identity.member_id, group_instance_id=identity.group_instance_id, error_code=error)
        )
    replies.append((caller, LeaveGroupResponse(members=members)))
    left = any(member.error_code == ErrorCode.NONE for member in members)
    # A pending member that leaves an empty group changes nothing.
    if group is None or group.state is ClassicGroupState.EMPTY or not left:
        return Outcome(replies=replies)
    return with_replies(replies, rebalance(states, group, now))


def _leave(states: GroupStates, group: ClassicGroup, identity: MemberIdentity) -> list[Reply]:
    member_id, instance_id = identity.member_id, identity.group_instance_id
    if member_id in group.pending_members:
        group.remove(member_id)
        states.deadlines.cancel(group.group_id, session_name(member_id))
        return []
    if not member_id and instance_id is not None:
        member_id = group.static_members.get(instance_id, "")
    group.check_member(member_id, instance_id)
    return remove_member(states, group, group.members[member_id])

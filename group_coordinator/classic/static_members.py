"""A static member rejoins without its member ID (KIP-345).

It gets a new member ID and replaces the member with its instance ID. If that one is still running, it is fenced: all
its requests get FENCED_INSTANCE_ID.

In a stable group this causes no rebalance: the member keeps the assignment of the replaced one, as long as the group
would choose the same protocol now. The new member ID is written immediately, with its generation.

If the leader rejoins like this, it must not assign again. Since version 9 (KIP-814), the response says that it leads
and must skip the assignment, so that it continues to watch the topics. Older versions have no such field; their
response contains the leader's old member ID, so that the client takes another member for the leader.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...coordinator.outcome import Outcome
from ...protocol.errors import ErrorCode
from ...protocol.messages.join_group import JoinGroupResponse
from .member import ClassicMember
from .rebalance import fail_waiting_callers, keep_alive, rebalance, with_replies
from .record import group_record
from .replies import generation_members
from .state import ClassicGroupState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...coordinator.outcome import Caller, Now, Reply
    from ...protocol.errors import KafkaError
    from ...protocol.messages.join_group import JoinGroupRequest
    from ..states import GroupStates
    from .group import ClassicGroup

_SKIP_ASSIGNMENT_SINCE = 9


def replace_static_member(
    states: GroupStates,
    group: ClassicGroup,
    before: ClassicMember,
    member_id: str,
    caller: Caller,
    request: JoinGroupRequest,
    protocols: dict[str, bytes],
    now: Now,
) -> Outcome:
    """A member with this new ID replaces the old one."""
    fenced = fail_waiting_callers(group, before, ErrorCode.FENCED_INSTANCE_ID)
    leader_before = group.leader_id
    member = ClassicMember(
        member_id,
        before.group_instance_id,
        client_id=before.client_id,
        client_host=before.client_host,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        session_timeout_ms=request.session_timeout_ms,
        protocols=protocols,
        assignment=before.assignment,
    )
    _replace(states, group, before, member, now)
    if group.state is not ClassicGroupState.STABLE or group.select_protocol() != group.protocol_name:
        # While the group waits for its assignments, the leader may know only the old ID and would assign nothing to
        # the new one.
        group.set_awaiting_join(member, caller)
        return with_replies(fenced, rebalance(states, group, now))

    def refused(error: KafkaError) -> Sequence[Reply]:
        _replace(states, group, member, before, now)
        return fenced

    skips = caller.api_version >= _SKIP_ASSIGNMENT_SINCE
    is_leader = group.leader_id == member_id
    reply = JoinGroupResponse(
        generation_id=group.generation_id,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=(group.leader_id if skips else leader_before) or "",
        skip_assignment=skips and is_leader,
        member_id=member_id,
        members=generation_members(group) if skips and is_leader else [],
    )
    return Outcome(records=[group_record(group)], replies=[*fenced, (caller, reply)], refused=refused)


def _replace(states: GroupStates, group: ClassicGroup, old: ClassicMember, new: ClassicMember, now: Now) -> None:
    group.replace(old, new)
    states.deadlines.cancel(group.group_id, old.session)
    keep_alive(states, group, new, now)

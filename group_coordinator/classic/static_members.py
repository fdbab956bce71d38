"""A static member comes back without its member id (KIP-345).

It is given a new member id and takes the place of the member of its instance id. That one, if it still lives somewhere,
is fenced: whatever it asks from now on is answered with FENCED_INSTANCE_ID.

In a stable group this is no reason for a rebalance: the member has the assignment of the one before, as long as the
group would choose the same protocol now. The new member id is written at once, with the generation it is in.

If the leader comes back so, it must not assign anew. From version 9 on (KIP-814) it is told that it leads and that it
is to skip the assignment, so that it goes on to watch the topics. Clients of older versions know no such word; they are
told of the leader's former member id, and think that another one leads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...coordinator.outcome import Outcome
from ...protocol.errors import ErrorCode
from ...protocol.messages.join_group import JoinGroupResponse
from .answers import generation_members
from .member import ClassicMember
from .rebalance import keep_alive, rebalance, take_waiting, with_answers
from .record import group_record
from .state import ClassicGroupState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...coordinator.outcome import Answer, Caller, Now
    from ...protocol.errors import KafkaError
    from ...protocol.messages.join_group import JoinGroupRequest
    from ..states import GroupStates
    from .group import ClassicGroup

_SKIP_ASSIGNMENT_SINCE = 9


def take_place(
    states: GroupStates,
    group: ClassicGroup,
    before: ClassicMember,
    member_id: str,
    caller: Caller,
    request: JoinGroupRequest,
    protocols: dict[str, bytes],
    now: Now,
) -> Outcome:
    """A member with this new id takes the place of the one before."""
    fenced = take_waiting(group, before, ErrorCode.FENCED_INSTANCE_ID)
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
        # In a group that waits for its assignments the leader may have been told of the old id already, and would
        # assign nothing to the new one.
        group.set_awaiting_join(member, caller)
        return with_answers(fenced, rebalance(states, group, now))

    def refused(error: KafkaError) -> Sequence[Answer]:
        _replace(states, group, member, before, now)
        return fenced

    skips = caller.api_version >= _SKIP_ASSIGNMENT_SINCE
    is_leader = group.leader_id == member_id
    answer = JoinGroupResponse(
        generation_id=group.generation_id,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=(group.leader_id if skips else leader_before) or "",
        skip_assignment=skips and is_leader,
        member_id=member_id,
        members=generation_members(group) if skips and is_leader else [],
    )
    return Outcome(records=[group_record(group)], answers=[*fenced, (caller, answer)], refused=refused)


def _replace(states: GroupStates, group: ClassicGroup, old: ClassicMember, new: ClassicMember, now: Now) -> None:
    group.replace(old, new)
    states.deadlines.cancel(group.group_id, old.session)
    keep_alive(states, group, new, now)

"""Heartbeat of classic groups: extends the member's session and reports a rebalance.

This is the most frequent request of a group. It moves one deadline, whatever the size of the group.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...coordinator.outcome import Outcome
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.heartbeat import HeartbeatResponse
from .group import ClassicGroup
from .rebalance import keep_alive
from .state import ClassicGroupState

if TYPE_CHECKING:
    from ...coordinator.outcome import Caller, Now
    from ...protocol.messages.heartbeat import HeartbeatRequest
    from ..states import GroupStates


def handle_heartbeat(states: GroupStates, caller: Caller, request: HeartbeatRequest, now: Now) -> Outcome:
    """The caller is answered immediately.

    Raises:
        KafkaError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION.
    """
    group = states.groups.get(request.group_id)
    if not isinstance(group, ClassicGroup):  # as `states.find`, without a call: this is the most frequent request
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
    group.check_member(request.member_id, request.group_instance_id)
    if request.generation_id != group.generation_id:
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
    keep_alive(states, group, group.members[request.member_id], now)
    rebalancing = group.state is ClassicGroupState.PREPARING_REBALANCE
    error = ErrorCode.REBALANCE_IN_PROGRESS if rebalancing else ErrorCode.NONE
    return Outcome(replies=[(caller, HeartbeatResponse(error_code=error))])

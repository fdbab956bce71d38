"""Ends a member's session early: for tests, which then need not wait for it.

The deadline of the session is removed, and its action runs now.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..coordinator.outcome import Outcome
from ..protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ..coordinator.deadlines import Action
    from ..coordinator.outcome import Now
    from .states import GroupStates


def end_session(states: GroupStates, group_id: str, member: str) -> Action:
    """The action that ends the session of a member, which is given by its member ID or its instance ID.

    Raises:
        KafkaError: GROUP_ID_NOT_FOUND, UNKNOWN_MEMBER_ID; REBALANCE_IN_PROGRESS for a classic member whose request
            waits, because it has no session.
    """
    group = states.groups.get(group_id)
    if group is None:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} does not exist.")
    member_id = member if member in group.members else group.static_members.get(member)
    if member_id is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"{member} is not a member of group {group_id}.")
    name = group.session_deadline(member_id)
    if name is None:
        raise KafkaError(
            ErrorCode.REBALANCE_IN_PROGRESS,
            f"{member} waits for a rebalance of group {group_id}, during which it has no session.",
        )

    def end(now: Now) -> Outcome:
        action = states.deadlines.take(group_id, name)
        return Outcome() if action is None else action(now)

    return end

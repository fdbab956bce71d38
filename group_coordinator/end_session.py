"""The end of a member's session before its time: for tests, which need not wait for it then.

The deadline of the session is taken, and what it would have decided is decided now. Members of both protocols have one,
each named in its own way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..coordinator.outcome import Outcome
from ..protocol.errors import ErrorCode, KafkaError
from .classic.group import ClassicGroup
from .classic.member import session_name
from .consumer.timeouts import SESSION

if TYPE_CHECKING:
    from collections.abc import Hashable

    from ..coordinator.deadlines import Action
    from ..coordinator.outcome import Now
    from .states import GroupStates


def end_session(states: GroupStates, group_id: str, member: str) -> Action:
    """What is to be decided for a member, who goes by its member id or its instance id.

    Raises:
        KafkaError: GROUP_ID_NOT_FOUND, UNKNOWN_MEMBER_ID; REBALANCE_IN_PROGRESS for a classic member whose request is
            waiting, which is why it has no session that could end.
    """
    group = states.groups.get(group_id)
    if group is None:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"There is no group {group_id}.")
    member_id = member if member in group.members else group.static_members.get(member)
    if member_id is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"{member} is no member of the group {group_id}.")
    name: Hashable = (SESSION, member_id)
    if isinstance(group, ClassicGroup):
        if group.members[member_id].lives_by_waiting:
            raise KafkaError(
                ErrorCode.REBALANCE_IN_PROGRESS,
                f"{member} waits for the group {group_id}: it has no session meanwhile.",
            )
        name = session_name(member_id)

    def end(now: Now) -> Outcome:
        action = states.deadlines.take(group_id, name)
        return Outcome() if action is None else action(now)

    return end

"""ListGroups (versions 0-5) of one shard.

Filters are compared without case. One that names no state (version 4) or no type (version 5) that there is excludes
what it is compared with: it is not refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..protocol.messages.list_groups import ListedGroup

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .states import GroupStates


def list_groups(states: GroupStates, states_filter: Sequence[str], types_filter: Sequence[str]) -> list[ListedGroup]:
    """The groups in any of these states and of any of these types; none of either is all."""
    wanted_states = {state.strip().lower() for state in states_filter}
    wanted_types = {group_type.lower() for group_type in types_filter}
    return [
        ListedGroup(
            group_id=group.group_id,
            protocol_type=group.protocol_type,
            group_state=group.state_name,
            group_type=group.type.value,
        )
        for group in states.groups.values()
        if (not wanted_states or group.state_name.lower() in wanted_states)
        and (not wanted_types or group.type.value in wanted_types)
    ]

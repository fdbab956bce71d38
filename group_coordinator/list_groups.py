"""ListGroups (versions 0-5) of one shard.

Filters are compared without case. A filter with only unknown states (version 4) or types (version 5) matches no group;
it is not an error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ..protocol.messages.list_groups import ListedGroup

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from .states import GroupStates


_GROUPS_PER_STEP: Final = 100


def list_groups(
    states: GroupStates, states_filter: Collection[str], types_filter: Collection[str]
) -> Iterator[list[ListedGroup]]:
    """The groups in any of these states and of any of these types, in lists of some; an empty filter matches all."""
    wanted_states = {state.strip().lower() for state in states_filter}
    wanted_types = {group_type.lower() for group_type in types_filter}
    group_ids = list(states.groups)
    for first in range(0, len(group_ids), _GROUPS_PER_STEP):
        some = (states.groups.get(group_id) for group_id in group_ids[first : first + _GROUPS_PER_STEP])
        yield [
            ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type,
                group_state=group.state_name,
                group_type=group.type,
            )
            for group in some
            if group is not None
            and (not wanted_states or group.state_name.lower() in wanted_states)
            and (not wanted_types or group.type in wanted_types)
        ]

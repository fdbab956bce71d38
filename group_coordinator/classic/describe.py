"""DescribeGroups of classic groups.

- A group that does not exist or is of another kind is GROUP_ID_NOT_FOUND since version 6 (KIP-1043). Older versions
  show it in the state Dead.
- Metadata is shown only for stable groups: before, the protocol is not chosen yet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...protocol.errors import ErrorCode
from ...protocol.messages.describe_groups import DescribedGroup, DescribedGroupMember
from .group import ClassicGroup
from .state import ClassicGroupState

if TYPE_CHECKING:
    from ..states import GroupStates

_NOT_FOUND_SINCE = 6


def describe_group(states: GroupStates, group_id: str, api_version: int) -> DescribedGroup:
    """The group with its members."""
    group = states.find(group_id, ClassicGroup)
    if group is None:
        described = DescribedGroup(group_id=group_id, group_state=ClassicGroupState.DEAD.value)
        if api_version >= _NOT_FOUND_SINCE:
            described.error_code = ErrorCode.GROUP_ID_NOT_FOUND
            described.error_message = states.not_found_message(group_id, ClassicGroup)
        return described
    protocol_name = group.protocol_name if group.state is ClassicGroupState.STABLE else None
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state_name,
        protocol_type=group.protocol_type,
        protocol_data=protocol_name or "",
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=b"" if protocol_name is None else member.protocols[protocol_name],
                member_assignment=member.assignment,
            )
            for member in group.members.values()
        ],
    )

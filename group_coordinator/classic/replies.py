"""The responses to JoinGroup and SyncGroup."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...protocol.errors import ErrorCode
from ...protocol.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from ...protocol.messages.sync_group import SyncGroupResponse

if TYPE_CHECKING:
    from ...coordinator.outcome import Caller, Reply
    from .group import ClassicGroup
    from .member import ClassicMember

# Since this version a JoinGroup response may have no protocol (KIP-559); before, an empty name stands for none.
_NULL_PROTOCOL_SINCE = 7


def joined(group: ClassicGroup, member: ClassicMember, caller: Caller) -> Reply:
    """The member's generation. The leader gets the list of all members, because it assigns."""
    is_leader = group.leader_id == member.member_id
    return caller, JoinGroupResponse(
        generation_id=group.generation_id,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=group.leader_id or "",
        member_id=member.member_id,
        members=generation_members(group) if is_leader else [],
    )


def generation_members(group: ClassicGroup) -> list[JoinGroupResponseMember]:
    """All members, with the metadata of the generation's protocol."""
    name = group.protocol_name
    assert name is not None
    return [
        JoinGroupResponseMember(
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            metadata=member.protocols[name],
        )
        for member in group.members.values()
    ]


def join_refused(caller: Caller, error: ErrorCode, member_id: str = "") -> Reply:
    """An error, and the member ID with which the client should retry."""
    return caller, JoinGroupResponse(
        error_code=error,
        member_id=member_id,
        protocol_name=None if caller.api_version >= _NULL_PROTOCOL_SINCE else "",
    )


def synced(group: ClassicGroup, assignment: bytes, caller: Caller) -> Reply:
    """The member's assignment."""
    return caller, SyncGroupResponse(
        protocol_type=group.protocol_type, protocol_name=group.protocol_name, assignment=assignment
    )


def sync_refused(caller: Caller, error: ErrorCode) -> Reply:
    """An error; there is no assignment."""
    return caller, SyncGroupResponse(error_code=error)

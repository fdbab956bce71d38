"""JoinGroup of classic groups.

A member enters the group or requests a rebalance. The response is sent with the next generation. `state` lists the
responses by state of the group.

- Since version 4 (KIP-394), a new member first gets a member ID and must retry with it. Until then it is a pending
  member. Otherwise a client that retries after a timeout would be two members, and the group would wait for the first.
- A static member (KIP-345) may have lost its member ID: see `static_members`.
- The group's protocol type is that of its first member. A member must support a protocol that all others support.
- `group.max.size` limits the number of members. While the group prepares a rebalance, only the members that have joined
  count. If the limit was lowered below the size of the group, the last members to join are rejected.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...coordinator.outcome import Outcome
from ...protocol.errors import ErrorCode, KafkaError
from ..delete_groups import check_not_being_deleted
from .group import ClassicGroup
from .member import ClassicMember, protocols_of, session_name
from .rebalance import (
    NEW_MEMBER_JOIN_TIMEOUT_MS,
    add_pending_member,
    complete_if_all_joined,
    rebalance,
    remove_member,
    set_session,
    with_replies,
)
from .replies import join_refused, joined
from .state import ClassicGroupState
from .static_members import replace_static_member

if TYPE_CHECKING:
    from ...coordinator.outcome import Caller, Now, Reply
    from ...protocol.messages.join_group import JoinGroupRequest
    from ..config import GroupConfig
    from ..states import GroupStates

_MEMBER_ID_REQUIRED_SINCE = 4


def handle_join_group(states: GroupStates, caller: Caller, request: JoinGroupRequest, now: Now) -> Outcome:
    """The caller is answered now, or when the rebalance ends.

    Raises:
        KafkaError: COORDINATOR_LOAD_IN_PROGRESS, INVALID_SESSION_TIMEOUT, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID,
            INCONSISTENT_GROUP_PROTOCOL.
    """
    check_not_being_deleted(states, request.group_id)
    config = states.config
    check_request(config, caller, request)
    group = states.find(request.group_id, ClassicGroup)
    if group is None:
        if request.group_id in states.groups:
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if request.member_id:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        group = ClassicGroup(request.group_id, states.deadlines)
    if not _has_room(group, request.member_id, config.group_max_size):
        return _reject_for_size(states, group, caller, request.member_id, now)
    protocols = protocols_of(request.protocols)
    if not group.supports(request.protocol_type, protocols):
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    # The group is created here, not earlier: a rejected request must not leave a group.
    states.groups[request.group_id] = group
    if not request.member_id:
        return _join_without_id(states, group, caller, request, protocols, now)
    if request.member_id in group.pending_members and request.group_instance_id is None:
        return _add_member(states, group, caller, request, request.member_id, protocols, now)
    group.check_member(request.member_id, request.group_instance_id)
    return _join_again(states, group, group.members[request.member_id], caller, request, protocols, now)


def check_request(config: GroupConfig, caller: Caller, request: JoinGroupRequest) -> None:
    """The checks for every group. A request without a rebalance timeout gets one.

    Raises:
        KafkaError: INVALID_SESSION_TIMEOUT.
    """
    if not config.group_min_session_timeout_ms <= request.session_timeout_ms <= config.group_max_session_timeout_ms:
        raise KafkaError(ErrorCode.INVALID_SESSION_TIMEOUT)
    if caller.api_version == 0:
        request.rebalance_timeout_ms = request.session_timeout_ms


def _has_room(group: ClassicGroup, member_id: str, max_size: int) -> bool:
    if group.state is ClassicGroupState.EMPTY:
        return True
    member = group.members.get(member_id)
    if group.state is ClassicGroupState.PREPARING_REBALANCE:
        return (member is not None and member.awaiting_join is not None) or group.awaiting_join_count < max_size
    return member is not None or len(group.members) < max_size


def _reject_for_size(states: GroupStates, group: ClassicGroup, caller: Caller, member_id: str, now: Now) -> Outcome:
    replies = []
    member = group.members.get(member_id)
    if member is not None:
        replies += remove_member(states, group, member)
    elif member_id in group.pending_members:
        group.remove(member_id)
        states.deadlines.cancel(group.group_id, session_name(member_id))
    replies.append(join_refused(caller, ErrorCode.GROUP_MAX_SIZE_REACHED))
    return with_replies(replies, complete_if_all_joined(states, group, now))


def _join_without_id(
    states: GroupStates,
    group: ClassicGroup,
    caller: Caller,
    request: JoinGroupRequest,
    protocols: dict[str, bytes],
    now: Now,
) -> Outcome:
    instance_id = request.group_instance_id
    member_id = f"{caller.client_id if instance_id is None else instance_id}-{states.new_uuid()}"
    if instance_id is not None:
        before = group.static_members.get(instance_id)
        if before is not None:
            return replace_static_member(
                states, group, group.members[before], member_id, caller, request, protocols, now
            )
    elif caller.api_version >= _MEMBER_ID_REQUIRED_SINCE:
        add_pending_member(states, group, member_id, now, request.session_timeout_ms)
        return Outcome(replies=[join_refused(caller, ErrorCode.MEMBER_ID_REQUIRED, member_id)])
    return _add_member(states, group, caller, request, member_id, protocols, now)


def _add_member(
    states: GroupStates,
    group: ClassicGroup,
    caller: Caller,
    request: JoinGroupRequest,
    member_id: str,
    protocols: dict[str, bytes],
    now: Now,
) -> Outcome:
    member = ClassicMember(
        member_id,
        request.group_instance_id,
        client_id=caller.client_id,
        client_host=caller.client_host,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        session_timeout_ms=request.session_timeout_ms,
        protocols=protocols,
    )
    member.is_new = True
    group.add(member, request.protocol_type, caller)
    if group.is_initial_rebalance:
        group.member_was_added = True
    set_session(states, group, member, now, NEW_MEMBER_JOIN_TIMEOUT_MS)
    return rebalance(states, group, now)


def _join_again(
    states: GroupStates,
    group: ClassicGroup,
    member: ClassicMember,
    caller: Caller,
    request: JoinGroupRequest,
    protocols: dict[str, bytes],
    now: Now,
) -> Outcome:
    wants_rebalance = (
        group.state is ClassicGroupState.PREPARING_REBALANCE
        or (group.state is ClassicGroupState.STABLE and group.leader_id == member.member_id)
        or not member.has_protocols(protocols)
    )
    if not wants_rebalance:
        # The response may have been lost, or another client of the group joined first.
        return Outcome(replies=[joined(group, member, caller)])
    group.set_protocols(member, protocols)
    member.rebalance_timeout_ms = request.rebalance_timeout_ms
    member.session_timeout_ms = request.session_timeout_ms
    replies: list[Reply] = []
    before = group.set_awaiting_join(member, caller)
    if before is not None:
        replies.append(join_refused(before, ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))
    return with_replies(replies, rebalance(states, group, now))

"""SyncGroup, Heartbeat and LeaveGroup of members that use the classic protocol in a consumer group.

The coordinator replaces the leader. JoinGroup is answered immediately: there is no barrier, the generation is the
member's own epoch, and no member leads. SyncGroup returns the member's current assignment. When that changes, the next
heartbeat reports a rebalance, and the member joins again. Its subscription contains its owned partitions, so that no
partition that it still reads is assigned to another member.

| the member | Heartbeat | SyncGroup |
| --- | --- | --- |
| has its target assignment | NONE | the assignment |
| is behind the target assignment | REBALANCE_IN_PROGRESS | REBALANCE_IN_PROGRESS |
| must revoke partitions | REBALANCE_IN_PROGRESS | the assignment without them |
| waits for partitions of other members | NONE | the assignment without them |
| waits for partitions that are free now | REBALANCE_IN_PROGRESS | the assignment without them |
| is in a group of only classic members that needs a new target | REBALANCE_IN_PROGRESS | the assignment |

A member that is late is fenced: see `classic_timeouts`. JoinGroup is in `classic_join`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...coordinator.outcome import Outcome
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.heartbeat import HeartbeatResponse
from ...protocol.messages.leave_group import LeaveGroupResponse, MemberResponse
from ...protocol.messages.sync_group import SyncGroupResponse
from ..consumer.group import ConsumerGroup
from ..consumer.leaving import remove_members
from ..consumer.member import MemberState
from ..consumer.metadata_hash import metadata_hash
from ..consumer.target_assignment import may_assign
from ..consumer.timeouts import start_session, times_of
from . import classic_timeouts
from .consumer_protocol import write_assignment

if TYPE_CHECKING:
    from ...coordinator.outcome import Caller, Now
    from ...protocol.messages.heartbeat import HeartbeatRequest
    from ...protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
    from ...protocol.messages.sync_group import SyncGroupRequest
    from ..consumer.member import ConsumerGroupMember
    from ..records import ClassicMemberMetadata
    from ..states import GroupStates


def handle_sync_group(states: GroupStates, caller: Caller, request: SyncGroupRequest, now: Now) -> Outcome:
    """The caller is answered immediately. Assignments in the request are ignored, because there is no leader.

    Raises:
        KafkaError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION, INCONSISTENT_GROUP_PROTOCOL,
            REBALANCE_IN_PROGRESS.
    """
    group = _group(states, request.group_id)
    member = _member(group, request.member_id, request.group_instance_id)
    classic = _classic_metadata(member)
    _check_generation(member, request.generation_id)
    protocol = classic.supported_protocols[0]
    if request.protocol_type not in (None, group.protocol_type) or request.protocol_name not in (None, protocol.name):
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    # A member that must revoke partitions has joined for this already, and joins again when it has revoked them.
    if _is_behind(group, member) and member.state is not MemberState.UNREVOKED_PARTITIONS:
        classic_timeouts.wait_for_join(states, group.group_id, member, now)
        raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
    classic_timeouts.has_synced(states, group.group_id, member.member_id)
    start_session(states, group.group_id, member.member_id, classic.session_timeout_ms, now)
    response = SyncGroupResponse(
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignment=write_assignment(states.topics, member.assigned_partitions, protocol.metadata),
    )
    return Outcome(replies=[(caller, response)])


def handle_heartbeat(states: GroupStates, caller: Caller, request: HeartbeatRequest, now: Now) -> Outcome:
    """The caller is answered immediately.

    Raises:
        KafkaError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION.
    """
    group = _group(states, request.group_id)
    member = _member(group, request.member_id, request.group_instance_id)
    classic = _classic_metadata(member)
    _check_generation(member, request.generation_id)
    start_session(states, group.group_id, member.member_id, classic.session_timeout_ms, now)
    error = ErrorCode.NONE
    if _has_to_join(group, member) or _needs_join_for_assignment(states, group, now):
        error = ErrorCode.REBALANCE_IN_PROGRESS
        classic_timeouts.wait_for_join(states, group.group_id, member, now)
    return Outcome(replies=[(caller, HeartbeatResponse(error_code=error))])


def handle_leave_group(states: GroupStates, caller: Caller, request: LeaveGroupRequest, now: Now) -> Outcome:
    """The caller is answered with one error for each member. Members of the consumer protocol may be among them."""
    group = _group(states, request.group_id)
    leaving: dict[str, ConsumerGroupMember] = {}
    responses = []
    for identity in request.members:
        error = ErrorCode.NONE
        try:
            member = _leaving_member(group, identity)
            leaving[member.member_id] = member
        except KafkaError as refusal:
            error = refusal.code
        responses.append(
            MemberResponse(member_id=identity.member_id, group_instance_id=identity.group_instance_id, error_code=error)
        )
    reply = caller, LeaveGroupResponse(members=responses)
    if not leaving:
        return Outcome(replies=[reply])
    for member_id in leaving:
        classic_timeouts.cancel(states, group.group_id, member_id)
    return remove_members(states, group, [*leaving.values()], now, [reply])


def _leaving_member(group: ConsumerGroup, identity: MemberIdentity) -> ConsumerGroupMember:
    member_id = identity.member_id
    if not member_id and identity.group_instance_id is not None:
        # Administrators remove static members by instance ID alone.
        member_id = group.static_members.get(identity.group_instance_id, "")
    return _member(group, member_id, identity.group_instance_id)


def _group(states: GroupStates, group_id: str) -> ConsumerGroup:
    group = states.find(group_id, ConsumerGroup)
    assert group is not None
    return group


def _member(group: ConsumerGroup, member_id: str, instance_id: str | None) -> ConsumerGroupMember:
    if instance_id is None:
        return group.member(member_id)
    member = group.static_member(instance_id)
    if member is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
    if member.member_id != member_id:
        raise KafkaError(ErrorCode.FENCED_INSTANCE_ID)
    return member


def _classic_metadata(member: ConsumerGroupMember) -> ClassicMemberMetadata:
    if member.classic_member_metadata is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
    return member.classic_member_metadata


def _check_generation(member: ConsumerGroupMember, generation_id: int) -> None:
    if generation_id != member.member_epoch:
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION)


def _is_behind(group: ConsumerGroup, member: ConsumerGroupMember) -> bool:
    return member.member_epoch < group.target_assignment_epoch


def _has_to_join(group: ConsumerGroup, member: ConsumerGroupMember) -> bool:
    match member.state:
        case MemberState.UNREVOKED_PARTITIONS:
            return True
        case MemberState.UNRELEASED_PARTITIONS:
            return _is_behind(group, member) or not group.waits_for_release(member)
        case _:
            return _is_behind(group, member)


def _needs_join_for_assignment(states: GroupStates, group: ConsumerGroup, now: Now) -> bool:
    """Whether a new assignment is due, and there is no member of the consumer protocol whose heartbeat would cause it.

    Such a group exists where the policy allows no downgrade. Apache Kafka does not change it until a member joins for
    another reason; until then, the partitions of removed members are not read.
    """
    if group.classic_members < len(group.members) or not (
        group.target_assignment_epoch < group.group_epoch or _topics_have_changed(states, group)
    ):
        return False
    interval_ms = times_of(states, group.group_id).assignment_interval_ms
    return may_assign(group.target_assignment_timestamp_ms, interval_ms, now.epoch_ms)


def _topics_have_changed(states: GroupStates, group: ConsumerGroup) -> bool:
    version = states.topics.version
    if group.metadata_version == version:
        return False
    if metadata_hash(group.subscriptions.topics(), states.topics) != group.metadata_hash:
        return True
    group.metadata_version = version
    return False

"""ConsumerGroupHeartbeat (API key 68), versions 0-1: the only request of members of consumer groups.

* Epoch 0 joins or rejoins. It also creates the group. An empty classic group of that name is replaced; one with members
  is upgraded if possible (`migration.upgrade`).
* Epoch -1 leaves; with epoch -2, a static member leaves temporarily and may rejoin within its session.
* Any other epoch must be the member's. The previous epoch is accepted if the member owns only its assigned
  partitions: a response was lost. All others are fenced and must rejoin without partitions.
* Null fields have not changed since the last heartbeat.
* The response contains the assignment if it has changed, if the member joins, and if the request has all fields.
* A static member (KIP-345) keeps its partitions during a restart: after it left with -2, a member with the same
  instance ID replaces it and gets its target assignment. If it has not left, the new one gets UNRELEASED_INSTANCE_ID.

Since version 1, clients create their member IDs (KIP-1082) and may subscribe with a regular expression.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from ...coordinator.outcome import Outcome
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from ..delete_groups import check_not_being_deleted
from ..kind import Converted
from . import as_records
from .advance import advance
from .group import ConsumerGroup
from .leaving import leave_temporarily, remove_members
from .member import JOINING_EPOCH, LEAVING_EPOCH, LEAVING_STATIC_EPOCH, AssignedPartitions, ConsumerGroupMember
from .reconciliation import OwnedPartitions
from .request_checks import check_member_epoch, check_request
from .timeouts import start_session, times_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...coordinator.outcome import Caller, Now, Record, Reply
    from ...protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
    from ..states import GroupStates


def handle_consumer_group_heartbeat(
    states: GroupStates, caller: Caller, request: ConsumerGroupHeartbeatRequest, now: Now
) -> Outcome:
    """Decide one heartbeat.

    Raises:
        KafkaError: COORDINATOR_LOAD_IN_PROGRESS, INVALID_REQUEST, UNSUPPORTED_ASSIGNOR, UNSUPPORTED_VERSION,
            GROUP_ID_NOT_FOUND, UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH, UNRELEASED_INSTANCE_ID, FENCED_INSTANCE_ID,
            GROUP_MAX_SIZE_REACHED, INVALID_REGULAR_EXPRESSION.
    """
    check_not_being_deleted(states, request.group_id)
    check_request(states.config, request, caller.api_version)
    if request.member_epoch in (LEAVING_EPOCH, LEAVING_STATIC_EPOCH):
        return _leave(states, caller, request, now)
    return _join_or_stay(states, caller, request, now)


# -- leaving -----------------------------------------------------------------------------------------------------------


def _leave(states: GroupStates, caller: Caller, request: ConsumerGroupHeartbeatRequest, now: Now) -> Outcome:
    group = _existing_group(states, request.group_id, f"Group {request.group_id} not found.")
    reply = (
        caller,
        ConsumerGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch),
    )
    if request.instance_id is None:
        return remove_members(states, group, [group.member(request.member_id)], now, [reply])
    member = _static_member(group, request.instance_id, request.member_id)
    if request.member_epoch == LEAVING_STATIC_EPOCH:
        return Outcome(leave_temporarily(group, member), [reply])
    return remove_members(states, group, [member], now, [reply])


def _existing_group(states: GroupStates, group_id: str, otherwise: str) -> ConsumerGroup:
    group = states.find(group_id, ConsumerGroup)
    if group is None:
        message = states.not_found_message(group_id, ConsumerGroup) if group_id in states.groups else otherwise
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, message)
    return group


def _static_member(group: ConsumerGroup, instance_id: str, member_id: str) -> ConsumerGroupMember:
    """The member with this instance ID, which must have this member ID."""
    member = group.static_member(instance_id)
    if member is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if member.member_id != member_id:
        raise KafkaError(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by member {member.member_id}.",
        )
    return member


# -- joining and staying -----------------------------------------------------------------------------------------------


def _join_or_stay(states: GroupStates, caller: Caller, request: ConsumerGroupHeartbeatRequest, now: Now) -> Outcome:
    joins = request.member_epoch == JOINING_EPOCH
    converted: Converted[ConsumerGroup] | None = None
    if joins:
        converted = _group_to_join(states, request.group_id, now)
        group, records = converted.group, [*converted.records]
        _check_has_room(states, group, request.member_id)
    else:
        group = _existing_group(states, request.group_id, f"Consumer group {request.group_id} not found.")
        records = []
    owned = _owned(request)
    member_id = request.member_id or states.new_uuid()
    before = _member_before(group, request, member_id, owned, records)
    updated = _apply_request_fields(before or ConsumerGroupMember(member_id), request, caller)
    member = advance(states, caller, group, before, updated, owned=owned, now=now, records=records)

    times = times_of(states, request.group_id)
    start_session(states, request.group_id, member_id, times.session_timeout_ms, now)
    response = ConsumerGroupHeartbeatResponse(
        member_id=member_id,
        member_epoch=member.member_epoch,
        heartbeat_interval_ms=times.heartbeat_interval_ms,
    )
    if joins or _is_full(request) or (before is not None and member.assigned_partitions != before.assigned_partitions):
        response.assignment = _assignment(member.assigned_partitions)
    replies: list[Reply] = [(caller, response)]
    if converted is not None:
        replies += converted.release()
    return Outcome(records, replies, refused=partial(_refused, group)) if records else Outcome((), replies)


def _refused(group: ConsumerGroup, error: KafkaError) -> Sequence[Reply]:
    group.forget_checks()
    return ()


def _group_to_join(states: GroupStates, group_id: str, now: Now) -> Converted[ConsumerGroup]:
    group = states.groups.get(group_id)
    if group is None:
        return Converted(ConsumerGroup(group_id, states.topics))
    if isinstance(group, ConsumerGroup):
        return Converted(group)
    return states.kinds.convert(states, group, ConsumerGroup, now)


def _check_has_room(states: GroupStates, group: ConsumerGroup, member_id: str) -> None:
    most = states.config.consumer_max_size
    if len(group.members) >= most and member_id not in group.members:
        raise KafkaError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The consumer group has reached its maximum capacity of {most} members.",
        )


def _member_before(
    group: ConsumerGroup,
    request: ConsumerGroupHeartbeatRequest,
    member_id: str,
    owned: OwnedPartitions | None,
    records: list[Record],
) -> ConsumerGroupMember | None:
    """The member before this request, or the member that it replaces; None for a new member."""
    joins = request.member_epoch == JOINING_EPOCH
    if request.instance_id is None:
        member = group.members.get(member_id) if joins else group.member(member_id)
        if member is not None:
            check_member_epoch(member, request.member_epoch, owned)
        return member
    if not joins:
        member = _static_member(group, request.instance_id, member_id)
        check_member_epoch(member, request.member_epoch, owned)
        return member
    replaced = group.static_member(request.instance_id)
    if replaced is None:
        return group.members.get(member_id)
    if replaced.member_epoch != LEAVING_STATIC_EPOCH and not replaced.uses_classic_protocol:
        raise KafkaError(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"Static member {member_id} with instance id {request.instance_id} cannot join the group because the "
            f"instance id is owned by {replaced.member_id} member.",
        )
    member = replace(replaced, member_id=member_id, member_epoch=JOINING_EPOCH, previous_member_epoch=JOINING_EPOCH)
    records += replacement_records(group, replaced, member)
    return member


def replacement_records(
    group: ConsumerGroup, replaced: ConsumerGroupMember, member: ConsumerGroupMember
) -> list[Record]:
    """A static member replaces the one with the same instance ID and gets its target assignment."""
    group_id = group.group_id
    records = (
        [] if replaced.member_id == member.member_id else as_records.member_tombstones(group_id, replaced.member_id)
    )
    return [
        *records,
        as_records.member_record(group_id, member),
        as_records.target_record(group_id, member.member_id, group.target_of(replaced.member_id)),
        as_records.current_record(group_id, member),
    ]


def _apply_request_fields(
    member: ConsumerGroupMember, request: ConsumerGroupHeartbeatRequest, caller: Caller
) -> ConsumerGroupMember:
    """The member with the fields of the heartbeat applied; the same object if nothing has changed."""
    changed: dict[str, Any] = {}
    if request.instance_id is not None and request.instance_id != member.instance_id:
        changed["instance_id"] = request.instance_id
    if request.rack_id is not None and request.rack_id != member.rack_id:
        changed["rack_id"] = request.rack_id
    if request.rebalance_timeout_ms not in (-1, member.rebalance_timeout_ms):
        changed["rebalance_timeout_ms"] = request.rebalance_timeout_ms
    if request.server_assignor is not None and request.server_assignor != member.server_assignor:
        changed["server_assignor"] = request.server_assignor
    if request.subscribed_topic_names is not None:
        names = frozenset(request.subscribed_topic_names)
        if names != member.subscribed_topic_names:
            changed["subscribed_topic_names"] = names
    regex = request.subscribed_topic_regex
    if regex is not None and regex != member.subscribed_topic_regex:
        changed["subscribed_topic_regex"] = regex
    if caller.client_id != member.client_id:
        changed["client_id"] = caller.client_id
    if caller.client_host != member.client_host:
        changed["client_host"] = caller.client_host
    if member.classic_member_metadata is not None:
        # A member that sends this request no longer uses the classic protocol.
        changed["classic_member_metadata"] = None
    return replace(member, **changed) if changed else member


def _owned(request: ConsumerGroupHeartbeatRequest) -> OwnedPartitions | None:
    if request.topic_partitions is None:
        return None
    # A topic may occur twice. The partitions of all entries are owned; ignoring one would give a partition two owners.
    owned: dict[bytes, set[int]] = {}
    for topic in request.topic_partitions:
        owned.setdefault(topic.topic_id, set()).update(topic.partitions)
    return {topic_id: frozenset(partitions) for topic_id, partitions in owned.items()}


def _is_full(request: ConsumerGroupHeartbeatRequest) -> bool:
    return (
        request.rebalance_timeout_ms != -1
        and (request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None)
        and request.topic_partitions is not None
    )


def _assignment(assigned: AssignedPartitions) -> Assignment:
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, partitions=sorted(partitions))
            for topic_id, partitions in assigned.items()
        ]
    )

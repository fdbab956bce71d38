"""ConsumerGroupHeartbeat (API key 68), versions 0-1: the one request of members of consumer groups.

* Epoch 0 joins (again). It is the first sign of a group, too. An empty classic group of that name gives way; one with
  members is upgraded, if it can be (`migration.upgrade`).
* Epoch -1 leaves; -2 is a static member that leaves and may come back within its session.
* Any other epoch must be the member's. One behind is good while the member shows that it owns nothing it has not got:
  it has lost an answer. Others are fenced, and have to join anew without partitions.
* Null fields are those that have not changed since the last heartbeat.
* The assignment is in the answer when it has changed, when the member joins, and when it sends all its fields.
* A static member (KIP-345) keeps its partitions through a restart: whoever comes with its instance id after it left
  with -2 takes its place, target and all. While it has not left, the newcomer gets UNRELEASED_INSTANCE_ID.

Since version 1 clients make their member ids (KIP-1082) and may subscribe by regular expression.
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
from ..classic.group import ClassicGroup
from ..classic.rebalance import take_waiting
from . import as_records
from .advance import advance
from .group import ConsumerGroup
from .leaving import leave_for_a_while, remove_members
from .member import JOINING_EPOCH, LEAVING_EPOCH, LEAVING_STATIC_EPOCH, AssignedPartitions, ConsumerGroupMember
from .reconciliation import OwnedPartitions
from .request_checks import check_member_epoch, check_request
from .timeouts import start_members, start_session, times_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...coordinator.outcome import Answer, Caller, Now, Record
    from ...protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
    from ..states import GroupStates


def handle_consumer_group_heartbeat(
    states: GroupStates, caller: Caller, request: ConsumerGroupHeartbeatRequest, now: Now
) -> Outcome:
    """Decide one heartbeat.

    Raises:
        KafkaError: INVALID_REQUEST, UNSUPPORTED_ASSIGNOR, UNSUPPORTED_VERSION, GROUP_ID_NOT_FOUND, UNKNOWN_MEMBER_ID,
            FENCED_MEMBER_EPOCH, UNRELEASED_INSTANCE_ID, FENCED_INSTANCE_ID, GROUP_MAX_SIZE_REACHED,
            INVALID_REGULAR_EXPRESSION.
    """
    check_request(states.config, request, caller.api_version)
    if request.member_epoch in (LEAVING_EPOCH, LEAVING_STATIC_EPOCH):
        return _leave(states, caller, request, now)
    return _join_or_stay(states, caller, request, now)


# -- leaving -----------------------------------------------------------------------------------------------------------


def _leave(states: GroupStates, caller: Caller, request: ConsumerGroupHeartbeatRequest, now: Now) -> Outcome:
    group = _existing_group(states, request.group_id, f"Group {request.group_id} not found.")
    answer = (
        caller,
        ConsumerGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch),
    )
    if request.instance_id is None:
        return remove_members(states, group, [group.member(request.member_id)], now, [answer])
    member = _static_member(group, request.instance_id, request.member_id)
    if request.member_epoch == LEAVING_STATIC_EPOCH:
        return Outcome(leave_for_a_while(group, member), [answer])
    return remove_members(states, group, [member], now, [answer])


def _existing_group(states: GroupStates, group_id: str, otherwise: str) -> ConsumerGroup:
    group = states.groups.get(group_id)
    if group is None:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, otherwise)
    if not isinstance(group, ConsumerGroup):
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
    return group


def _static_member(group: ConsumerGroup, instance_id: str, member_id: str) -> ConsumerGroupMember:
    """The member with this instance id, which must be the one that says so."""
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
    records: list[Record] = []
    answers: list[Answer] = []
    joins = request.member_epoch == JOINING_EPOCH
    if joins:
        group = _group_to_join(states, request.group_id, now, records)
        _check_has_room(states, group, request.member_id)
    else:
        group = _existing_group(states, request.group_id, f"Consumer group {request.group_id} not found.")
    owned = _owned(request)
    member_id = request.member_id or states.new_uuid()
    before = _member_before(group, request, member_id, owned, records)
    told = _with_what_it_tells(before or ConsumerGroupMember(member_id), request, caller)
    member = advance(states, group, before, told, owned=owned, now=now, records=records)

    times = times_of(states, request.group_id)
    start_session(states, request.group_id, member_id, times.session_timeout_ms, now)
    response = ConsumerGroupHeartbeatResponse(
        member_id=member_id,
        member_epoch=member.member_epoch,
        heartbeat_interval_ms=times.heartbeat_interval_ms,
    )
    if joins or _is_full(request) or (before is not None and member.assigned_partitions != before.assigned_partitions):
        response.assignment = _assignment(member.assigned_partitions)
    answers.append((caller, response))
    classic_group = states.groups.get(request.group_id)
    if isinstance(classic_group, ClassicGroup):
        # It is a consumer group from here on. Whoever waits for its rebalance has to join anew.
        for classic_member in classic_group.members.values():
            answers += take_waiting(classic_group, classic_member, ErrorCode.REBALANCE_IN_PROGRESS)
    return Outcome(records, answers, partial(_refused, group)) if records else Outcome((), answers)


def _refused(group: ConsumerGroup, error: KafkaError) -> Sequence[Answer]:
    group.forget_checks()
    return ()


def _group_to_join(states: GroupStates, group_id: str, now: Now, records: list[Record]) -> ConsumerGroup:
    group = states.groups.get(group_id)
    if isinstance(group, ConsumerGroup):
        return group
    if group is None:
        return ConsumerGroup(group_id, states.topics)
    assert isinstance(group, ClassicGroup)
    if not group.members:
        records += group.tombstones()
        return ConsumerGroup(group_id, states.topics)
    from ..migration.upgrade import upgrade

    upgraded, upgrade_records = upgrade(states, group)
    records += upgrade_records
    start_members(states, upgraded, now)
    return upgraded


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
    """The member as it was, or in whose place it comes; None when it is new."""
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
    """A static member takes the place of the one with the same instance id, and its target assignment."""
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


def _with_what_it_tells(
    member: ConsumerGroupMember, request: ConsumerGroupHeartbeatRequest, caller: Caller
) -> ConsumerGroupMember:
    """The member with every field that the heartbeat has; itself when they say nothing new."""
    told: dict[str, Any] = {}
    if request.instance_id is not None and request.instance_id != member.instance_id:
        told["instance_id"] = request.instance_id
    if request.rack_id is not None and request.rack_id != member.rack_id:
        told["rack_id"] = request.rack_id
    if request.rebalance_timeout_ms not in (-1, member.rebalance_timeout_ms):
        told["rebalance_timeout_ms"] = request.rebalance_timeout_ms
    if request.server_assignor is not None and request.server_assignor != member.server_assignor:
        told["server_assignor"] = request.server_assignor
    if request.subscribed_topic_names is not None:
        names = frozenset(request.subscribed_topic_names)
        if names != member.subscribed_topic_names:
            told["subscribed_topic_names"] = names
    regex = request.subscribed_topic_regex
    if regex is not None and regex != member.subscribed_topic_regex:
        told["subscribed_topic_regex"] = regex
    if caller.client_id != member.client_id:
        told["client_id"] = caller.client_id
    if caller.client_host != member.client_host:
        told["client_host"] = caller.client_host
    if member.classic_member_metadata is not None:
        # Whoever sends this request does not speak the classic protocol any more.
        told["classic_member_metadata"] = None
    return replace(member, **told) if told else member


def _owned(request: ConsumerGroupHeartbeatRequest) -> OwnedPartitions | None:
    if request.topic_partitions is None:
        return None
    # A topic may be there twice. What any of its entries has is owned: taking it for given up would give it two owners.
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

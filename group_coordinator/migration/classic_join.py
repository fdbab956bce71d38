"""JoinGroup of members that speak the classic protocol in a consumer group.

- The member subscribes by its first protocol's metadata: a consumer's are all alike. So is what it owns.
- It must speak a protocol that all other classic members speak. That has no meaning while the coordinator assigns, but
  the group may become a classic one again.
- A new dynamic member is first given an id, from version 4 on (KIP-394). Nothing is kept of it until it comes again.
- A static member that has lost its id takes the place of the one with its instance id, whatever that one speaks. If it
  was the last one to speak the consumer protocol, the group becomes a classic one: see `downgrade`.
- The answer comes at once. It has the member's epoch as generation, and names no leader and no members.
- A group that nobody is in gives way to a classic one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from ...coordinator.outcome import Outcome
from ...protocol.errors import ErrorCode, KafkaError, MalformedMessage
from ...protocol.messages.join_group import JoinGroupResponse
from ..classic import join_group
from ..classic.answers import join_refused
from ..classic.group import ClassicGroup
from ..classic.rebalance import release
from ..classic.record import new_group_record
from ..consumer.advance import advance
from ..consumer.group import ConsumerGroup
from ..consumer.heartbeat import replacement_records
from ..consumer.member import JOINING_EPOCH, ConsumerGroupMember
from ..consumer.timeouts import start_session
from ..records import ClassicMemberMetadata, ClassicProtocol, ConsumerGroupMetadataKey
from .classic_timeouts import wait_for_sync
from .consumer_protocol import read_subscription, with_topic_ids
from .downgrade import allows_downgrade_by_replacing, downgrade_by_replacing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...coordinator.outcome import Answer, Caller, Now, Record
    from ...protocol.messages.consumer_protocol import ConsumerProtocolSubscription
    from ...protocol.messages.join_group import JoinGroupRequest
    from ..consumer.reconciliation import OwnedPartitions
    from ..states import GroupStates

_MEMBER_ID_REQUIRED_SINCE = 4


class _Joining(NamedTuple):
    """A member that joins."""

    before: ConsumerGroupMember | None
    """As it was; with its new id if it takes the place of another, None if it is new."""
    replaced: ConsumerGroupMember | None
    """The member in whose place it comes."""
    member: ConsumerGroupMember
    """With everything that it tells; `before` itself when that is nothing new."""
    owned: OwnedPartitions


def handle_join_group(states: GroupStates, caller: Caller, request: JoinGroupRequest, now: Now) -> Outcome:
    """The caller is answered at once, unless the group becomes a classic one.

    Raises:
        KafkaError: INVALID_SESSION_TIMEOUT, INCONSISTENT_GROUP_PROTOCOL, GROUP_MAX_SIZE_REACHED, UNKNOWN_MEMBER_ID,
            FENCED_INSTANCE_ID; UNKNOWN_SERVER_ERROR for a subscription that cannot be read.
    """
    group = states.groups[request.group_id]
    assert isinstance(group, ConsumerGroup)
    if not group.members:
        return _join_empty_group(states, group, caller, request, now)
    join_group.check_request(states.config, caller, request)
    member_id = request.member_id or states.new_uuid()
    _check_may_join(states, group, member_id, request)
    must_come_again = caller.api_version >= _MEMBER_ID_REQUIRED_SINCE
    if must_come_again and not request.member_id and request.group_instance_id is None:
        return Outcome(answers=[join_refused(caller, ErrorCode.MEMBER_ID_REQUIRED, member_id)])
    joining = _joining(states, group, member_id, caller, request)
    replaced = group.static_member(request.group_instance_id)
    if replaced is not None and allows_downgrade_by_replacing(states, group, replaced):
        return _downgrade(states, group, replaced, joining, caller, now)
    return _join(states, group, joining, caller, request, now)


def _check_may_join(states: GroupStates, group: ConsumerGroup, member_id: str, request: JoinGroupRequest) -> None:
    config = states.config
    if not config.allows_upgrade and not config.allows_downgrade:
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if len(group.members) >= config.consumer_max_size and member_id not in group.members:
        raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED)
    if not group.supports_classic_protocols(request.protocol_type, {protocol.name for protocol in request.protocols}):
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)


def _joining(
    states: GroupStates, group: ConsumerGroup, member_id: str, caller: Caller, request: JoinGroupRequest
) -> _Joining:
    instance_id = request.group_instance_id
    replaced = None
    if instance_id is None:
        before = group.members.get(member_id)
    elif request.member_id:
        before = group.static_member(instance_id)
        if before is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        if before.member_id != member_id:
            raise KafkaError(ErrorCode.FENCED_INSTANCE_ID)
    else:
        before = replaced = group.static_member(instance_id)
        if replaced is not None:
            before = replace(
                replaced, member_id=member_id, member_epoch=JOINING_EPOCH, previous_member_epoch=JOINING_EPOCH
            )
    try:
        subscription = read_subscription(request.protocols[0].metadata)
    except MalformedMessage as error:
        # What Apache Kafka answers: it has no error for this.
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"The subscription cannot be read: {error.reason}.") from error
    member = _with_what_it_tells(before or ConsumerGroupMember(member_id), subscription, caller, request)
    owned = with_topic_ids(states.topics, ((one.topic, one.partitions) for one in subscription.owned_partitions))
    return _Joining(before, replaced, member, owned)


def _with_what_it_tells(
    member: ConsumerGroupMember, subscription: ConsumerProtocolSubscription, caller: Caller, request: JoinGroupRequest
) -> ConsumerGroupMember:
    told = replace(
        member,
        instance_id=request.group_instance_id if request.group_instance_id is not None else member.instance_id,
        rack_id=subscription.rack_id or member.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        subscribed_topic_names=frozenset(subscription.topics),
        subscribed_topic_regex="",
        client_id=caller.client_id,
        client_host=caller.client_host,
        classic_member_metadata=ClassicMemberMetadata(
            session_timeout_ms=request.session_timeout_ms,
            supported_protocols=[
                ClassicProtocol(name=protocol.name, metadata=protocol.metadata) for protocol in request.protocols
            ],
        ),
    )
    return member if told == member else told


def _join(
    states: GroupStates, group: ConsumerGroup, joining: _Joining, caller: Caller, request: JoinGroupRequest, now: Now
) -> Outcome:
    records: list[Record] = []
    if joining.replaced is not None:
        assert joining.before is not None
        records += replacement_records(group, joining.replaced, joining.before)
    member = advance(states, group, joining.before, joining.member, owned=joining.owned, now=now, records=records)
    start_session(states, group.group_id, member.member_id, request.session_timeout_ms, now)
    wait_for_sync(states, group.group_id, member.member_id, request.rebalance_timeout_ms, now)

    def refused(error: KafkaError) -> Sequence[Answer]:
        group.forget_checks()
        return ()

    return Outcome(records, [_joined(member, caller)], refused)


def _downgrade(
    states: GroupStates,
    group: ConsumerGroup,
    replaced: ConsumerGroupMember,
    joining: _Joining,
    caller: Caller,
    now: Now,
) -> Outcome:
    """The member would be one of a group of classic members: it is one of a classic group.

    It has the assignment of the member before, and reads on, if that is what the group would give it now.
    """
    records: list[Record] = []
    member = advance(states, group, joining.before, joining.member, owned=joining.owned, now=now, records=records)
    has_changed = any(isinstance(record.key, ConsumerGroupMetadataKey) for record in records)
    is_stale = has_changed or group.target_assignment_epoch < group.group_epoch
    if is_stale:
        member = joining.member
    group.forget_checks()
    return downgrade_by_replacing(states, group, replaced, member, [_joined(member, caller)], now, rebalance=is_stale)


def _joined(member: ConsumerGroupMember, caller: Caller) -> Answer:
    assert member.classic_member_metadata is not None
    return caller, JoinGroupResponse(
        generation_id=member.member_epoch,
        protocol_type="consumer",
        protocol_name=member.classic_member_metadata.supported_protocols[0].name,
        leader="",
        member_id=member.member_id,
    )


def _join_empty_group(
    states: GroupStates, group: ConsumerGroup, caller: Caller, request: JoinGroupRequest, now: Now
) -> Outcome:
    """The member is the first one of a classic group, which takes the place of the consumer group at once.

    That changes nothing that counts: nobody is in either, and the offsets stay. The records that say so follow. The
    new group is among them before it has a generation: without a group nobody would find the offsets after a restart.
    """
    group_id = group.group_id
    del states.groups[group_id]
    try:
        outcome = join_group.handle_join_group(states, caller, request, now)
    finally:
        classic_group = states.groups.setdefault(group_id, group)
    if not isinstance(classic_group, ClassicGroup):
        return outcome

    def refused(error: KafkaError) -> Sequence[Answer]:
        answers = [] if outcome.refused is None else [*outcome.refused(error)]
        answers += release(states, classic_group, error.code)
        states.groups[group_id] = group
        return answers

    return Outcome([*group.tombstones(), new_group_record(group_id, now), *outcome.records], outcome.answers, refused)

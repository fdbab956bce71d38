"""JoinGroup of members that use the classic protocol in a consumer group.

- The metadata of the member's first protocol contains its subscription and its owned partitions: a consumer sends the
  same for all protocols.
- It must support a protocol that all other classic members support. This matters only if the group becomes a classic
  group again.
- Since version 4 (KIP-394), a new dynamic member first gets a member ID. It has no state until it retries.
- A static member that has lost its member ID replaces the one with its instance ID, whatever protocol that one uses. If
  that was the last member of the consumer protocol, the group becomes a classic group: see `downgrade`.
- The response is sent immediately. Its generation is the member's epoch; it names no leader and no members.
- An empty group is replaced by a classic group.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from ...coordinator.outcome import Outcome
from ...protocol.errors import ErrorCode, KafkaError, MalformedMessage
from ...protocol.messages.join_group import JoinGroupResponse
from ..classic import join_group
from ..classic.group import ClassicGroup
from ..classic.rebalance import release
from ..classic.record import new_group_record
from ..classic.replies import join_refused
from ..consumer.advance import advance
from ..consumer.group import ConsumerGroup
from ..consumer.heartbeat import replacement_records
from ..consumer.member import JOINING_EPOCH, ConsumerGroupMember
from ..consumer.timeouts import start_session
from ..delete_groups import check_not_being_deleted
from ..records import ClassicMemberMetadata, ClassicProtocol, ConsumerGroupMetadataKey
from .classic_timeouts import wait_for_sync
from .consumer_protocol import read_subscription, with_topic_ids
from .downgrade import allows_downgrade_by_replacing, downgrade_by_replacing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...coordinator.outcome import Caller, Now, Record, Reply
    from ...protocol.messages.consumer_protocol import ConsumerProtocolSubscription
    from ...protocol.messages.join_group import JoinGroupRequest
    from ..consumer.reconciliation import OwnedPartitions
    from ..group import Group
    from ..states import GroupStates

_MEMBER_ID_REQUIRED_SINCE = 4


class _Joining(NamedTuple):
    """A member that joins."""

    before: ConsumerGroupMember | None
    """Its previous value; with its new ID if it replaces another member, None for a new member."""
    replaced: ConsumerGroupMember | None
    """The member that it replaces."""
    member: ConsumerGroupMember
    """With the fields of the request applied; `before` itself if nothing has changed."""
    owned: OwnedPartitions


def handle_join_group(states: GroupStates, caller: Caller, request: JoinGroupRequest, now: Now) -> Outcome:
    """The caller is answered immediately, unless the group becomes a classic group.

    Raises:
        KafkaError: COORDINATOR_LOAD_IN_PROGRESS, INVALID_SESSION_TIMEOUT, INCONSISTENT_GROUP_PROTOCOL,
            GROUP_MAX_SIZE_REACHED, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID; UNKNOWN_SERVER_ERROR for a subscription that
            cannot be read.
    """
    check_not_being_deleted(states, request.group_id)
    group = states.find(request.group_id, ConsumerGroup)
    assert group is not None
    if not group.members:
        return join_empty_group(states, group, caller, request, now)
    join_group.check_request(states.config, caller, request)
    member_id = request.member_id or states.new_uuid()
    _check_may_join(states, group, member_id, request)
    needs_member_id = caller.api_version >= _MEMBER_ID_REQUIRED_SINCE
    if needs_member_id and not request.member_id and request.group_instance_id is None:
        return Outcome(replies=[join_refused(caller, ErrorCode.MEMBER_ID_REQUIRED, member_id)])
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
        # The same error as Apache Kafka's, which has no specific one.
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"Cannot decode the subscription: {error.reason}.") from error
    member = _apply_request_fields(before or ConsumerGroupMember(member_id), subscription, caller, request)
    owned = with_topic_ids(states.topics, ((one.topic, one.partitions) for one in subscription.owned_partitions))
    return _Joining(before, replaced, member, owned)


def _apply_request_fields(
    member: ConsumerGroupMember, subscription: ConsumerProtocolSubscription, caller: Caller, request: JoinGroupRequest
) -> ConsumerGroupMember:
    updated = replace(
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
    return member if updated == member else updated


def _join(
    states: GroupStates, group: ConsumerGroup, joining: _Joining, caller: Caller, request: JoinGroupRequest, now: Now
) -> Outcome:
    records: list[Record] = []
    if joining.replaced is not None:
        assert joining.before is not None
        records += replacement_records(group, joining.replaced, joining.before)
    member = advance(
        states, caller, group, joining.before, joining.member, owned=joining.owned, now=now, records=records
    )
    start_session(states, group.group_id, member.member_id, request.session_timeout_ms, now)
    wait_for_sync(states, group.group_id, member.member_id, request.rebalance_timeout_ms, now)

    def refused(error: KafkaError) -> Sequence[Reply]:
        group.forget_checks()
        return ()

    return Outcome(records, [_joined(member, caller)], refused=refused)


def _downgrade(
    states: GroupStates,
    group: ConsumerGroup,
    replaced: ConsumerGroupMember,
    joining: _Joining,
    caller: Caller,
    now: Now,
) -> Outcome:
    """The member would be in a group of only classic members: the group becomes a classic group.

    The member keeps the assignment of the replaced member if the group would assign the same now.
    """
    records: list[Record] = []
    member = advance(
        states, caller, group, joining.before, joining.member, owned=joining.owned, now=now, records=records
    )
    has_changed = any(isinstance(record.key, ConsumerGroupMetadataKey) for record in records)
    is_stale = has_changed or group.target_assignment_epoch < group.group_epoch
    if is_stale:
        member = joining.member
    group.forget_checks()
    return downgrade_by_replacing(states, group, replaced, member, [_joined(member, caller)], now, rebalance=is_stale)


def _joined(member: ConsumerGroupMember, caller: Caller) -> Reply:
    assert member.classic_member_metadata is not None
    return caller, JoinGroupResponse(
        generation_id=member.member_epoch,
        protocol_type="consumer",
        protocol_name=member.classic_member_metadata.supported_protocols[0].name,
        leader="",
        member_id=member.member_id,
    )


def join_empty_group(states: GroupStates, group: Group, caller: Caller, request: JoinGroupRequest, now: Now) -> Outcome:
    """The member is the first one of a classic group, which replaces an empty group of another kind immediately.

    This is safe before its records are written: both groups are empty, and the offsets stay. The records contain the
    new group even before it has a generation: without a group, a restart would not find the offsets.
    """
    group_id = group.group_id
    del states.groups[group_id]
    try:
        outcome = join_group.handle_join_group(states, caller, request, now)
    finally:
        states.groups.setdefault(group_id, group)
    classic_group = states.find(group_id, ClassicGroup)
    if classic_group is None:
        return outcome

    def refused(error: KafkaError) -> Sequence[Reply]:
        replies = [] if outcome.refused is None else [*outcome.refused(error)]
        replies += release(states, classic_group, error.code)
        states.groups[group_id] = group
        return replies

    records = [*group.tombstones(), new_group_record(group_id, now), *outcome.records]
    return Outcome(records, outcome.replies, refused=refused)

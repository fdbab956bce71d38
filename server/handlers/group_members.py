"""The requests of group members: JoinGroup, SyncGroup, Heartbeat, LeaveGroup (API keys 11, 14, 12, 13) and
ConsumerGroupHeartbeat (68).

- JoinGroup 0 to 9, SyncGroup 0 to 5, Heartbeat 0 to 4, LeaveGroup 0 to 5: the classic protocol.
- ConsumerGroupHeartbeat 0 to 1: the consumer protocol (KIP-848), while the feature group.version is at 1.
- The coordinator of the group decides (`group_coordinator`); nothing is decided here. LeaveGroup before version 3 names
  one member, and is told of its error as that of the request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from ...protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ...protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from ...protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from ...protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from ..callers import Rewritten
from ..group_settings import serves_consumer_protocol
from ..request import PARKED, Parked

if TYPE_CHECKING:
    from ..broker import Broker
    from ..request import RequestContext

_BATCHED_LEAVE_SINCE = 3
_NULL_PROTOCOL_SINCE = 7
_PROTOCOL_IN_SYNC_SINCE = 5


def handle_join_group(broker: Broker, context: RequestContext, request: JoinGroupRequest) -> Parked:
    """Answered when the rebalance is through."""
    _check_group_id(request.group_id)
    broker.groups.run(request.group_id, context, lambda shard, now: shard.join_group(context, request, now))
    return PARKED


def failed_join_group(request: JoinGroupRequest, error: KafkaError) -> JoinGroupResponse:
    """The error, and the member id as it was said."""
    return JoinGroupResponse(error_code=error.code, member_id=request.member_id, protocol_name="")


def handle_sync_group(broker: Broker, context: RequestContext, request: SyncGroupRequest) -> Parked:
    """Answered when the leader has handed in the assignments."""
    if context.api_version >= _PROTOCOL_IN_SYNC_SINCE and None in (request.protocol_type, request.protocol_name):
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    _check_group_id(request.group_id)
    broker.groups.run(request.group_id, context, lambda shard, now: shard.sync_group(context, request, now))
    return PARKED


def failed_sync_group(request: SyncGroupRequest, error: KafkaError) -> SyncGroupResponse:
    """The error, and no assignment."""
    return SyncGroupResponse(error_code=error.code)


def handle_heartbeat(broker: Broker, context: RequestContext, request: HeartbeatRequest) -> Parked:
    """A sign of life of a classic member."""
    _check_group_id(request.group_id)
    broker.groups.run(request.group_id, context, lambda shard, now: shard.heartbeat(context, request, now))
    return PARKED


def failed_heartbeat(request: HeartbeatRequest, error: KafkaError) -> HeartbeatResponse:
    """The error. While the group is loaded, the member is taken at its word: clients give up at the error for that."""
    is_loading = error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return HeartbeatResponse(error_code=ErrorCode.NONE if is_loading else error.code)


def handle_leave_group(broker: Broker, context: RequestContext, request: LeaveGroupRequest) -> Parked:
    """Members leave."""
    _check_group_id(request.group_id)
    if context.api_version >= _BATCHED_LEAVE_SINCE:
        broker.groups.run(request.group_id, context, lambda shard, now: shard.leave_group(context, request, now))
        return PARKED
    request.members = [MemberIdentity(member_id=request.member_id)]
    caller = Rewritten(context, _leave_of_one)
    broker.groups.run(request.group_id, caller, lambda shard, now: shard.leave_group(caller, request, now))
    return PARKED


def _leave_of_one(response: LeaveGroupResponse) -> LeaveGroupResponse:
    error_code = response.error_code or (response.members[0].error_code if response.members else 0)
    return LeaveGroupResponse(error_code=error_code)


def failed_leave_group(request: LeaveGroupRequest, error: KafkaError) -> LeaveGroupResponse:
    """The error."""
    return LeaveGroupResponse(error_code=error.code)


def handle_consumer_group_heartbeat(
    broker: Broker, context: RequestContext, request: ConsumerGroupHeartbeatRequest
) -> Parked:
    """A member of a consumer group says what it has, and is told what it shall have."""
    if not serves_consumer_protocol(broker.config, broker.metadata.image.features):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    broker.groups.run(
        request.group_id, context, lambda shard, now: shard.consumer_group_heartbeat(context, request, now)
    )
    return PARKED


def failed_consumer_group_heartbeat(
    request: ConsumerGroupHeartbeatRequest, error: KafkaError
) -> ConsumerGroupHeartbeatResponse:
    """The error."""
    return ConsumerGroupHeartbeatResponse(error_code=error.code, error_message=error.message)


def _check_group_id(group_id: str) -> None:
    if not group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)

"""Requests of group members: JoinGroup, SyncGroup, Heartbeat, LeaveGroup (API keys 11, 14, 12, 13) and
ConsumerGroupHeartbeat (68).

- JoinGroup 0 to 9, SyncGroup 0 to 5, Heartbeat 0 to 4, LeaveGroup 0 to 5: the classic protocol.
- ConsumerGroupHeartbeat 0 to 1: the consumer protocol (KIP-848), while the feature group.version is at 1.
- The coordinator of the group decides (`group_coordinator`); nothing is decided here.
- What is invalid in every state is reported by every broker, also by one that does not coordinate the group, as in
  Apache Kafka.
- LeaveGroup before version 3 names one member, and its response has the member's error as the error of the request.
  With more than 250 members, LeaveGroup is several changes of the group, each of which succeeds or fails independently.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import TYPE_CHECKING

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from ...protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ...protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from ...protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from ...protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from ..concurrency.pending import Pending
from ..context import DEFERRED, Deferred
from ..coordination.callers import Part, Rewritten
from ..coordination.group_settings import serves_consumer_protocol

if TYPE_CHECKING:
    from ...coordinator.runtime import Decide
    from ...group_coordinator.shard import GroupShard
    from ..broker import Broker
    from ..concurrency.slices import Sliced
    from ..context import RequestContext

_MEMBERS_PER_STEP = 250
"""The maximum number of members that leave by one change of a group."""

_BATCHED_LEAVE_SINCE = 3
_NULL_PROTOCOL_SINCE = 7
_PROTOCOL_IN_SYNC_SINCE = 5


def handle_join_group(
    broker: Broker, context: RequestContext, request: JoinGroupRequest
) -> Deferred | Sliced[Deferred]:
    """The response follows when the rebalance is complete."""
    _check_group_id(request.group_id)
    if not broker.groups.serves(request.group_id):
        from ...group_coordinator.classic import join_group  # imported here: see group_admin

        join_group.check_request(broker.groups.config, context, request)
    return _when_looked_up(
        broker, context, request.group_id, None, lambda shard, now: shard.serve(context, request, now)
    )


def failed_join_group_in(version: int) -> Callable[[JoinGroupRequest, KafkaError], JoinGroupResponse]:
    """The error, and the member id of the request. There is no protocol, which older versions cannot express."""
    protocol_name = None if version >= _NULL_PROTOCOL_SINCE else ""

    def failed(request: JoinGroupRequest, error: KafkaError) -> JoinGroupResponse:
        return JoinGroupResponse(error_code=error.code, member_id=request.member_id, protocol_name=protocol_name)

    return failed


def handle_sync_group(broker: Broker, context: RequestContext, request: SyncGroupRequest) -> Deferred:
    """The response follows when the leader has sent the assignments."""
    if context.api_version >= _PROTOCOL_IN_SYNC_SINCE and None in (request.protocol_type, request.protocol_name):
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    _check_group_id(request.group_id)
    broker.groups.run(request.group_id, context, lambda shard, now: shard.serve(context, request, now))
    return DEFERRED


def failed_sync_group(request: SyncGroupRequest, error: KafkaError) -> SyncGroupResponse:
    """The error, and no assignment."""
    return SyncGroupResponse(error_code=error.code)


def handle_heartbeat(broker: Broker, context: RequestContext, request: HeartbeatRequest) -> Deferred:
    """Extend the session of a member of a classic group."""
    _check_group_id(request.group_id)
    broker.groups.run(request.group_id, context, lambda shard, now: shard.serve(context, request, now))
    return DEFERRED


def failed_heartbeat(request: HeartbeatRequest, error: KafkaError) -> HeartbeatResponse:
    """The error. While the group is being loaded, there is none: clients fail on COORDINATOR_LOAD_IN_PROGRESS."""
    is_loading = error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return HeartbeatResponse(error_code=ErrorCode.NONE if is_loading else error.code)


def handle_leave_group(
    broker: Broker, context: RequestContext, request: LeaveGroupRequest
) -> Deferred | Sliced[Deferred]:
    """Remove members from a group."""
    _check_group_id(request.group_id)
    if len(request.members) > _MEMBERS_PER_STEP:
        return _leave_in_pieces(broker, context, request)
    if context.api_version >= _BATCHED_LEAVE_SINCE:
        broker.groups.run(request.group_id, context, lambda shard, now: shard.serve(context, request, now))
        return DEFERRED
    request.members = [MemberIdentity(member_id=request.member_id)]
    caller = Rewritten(context, _leave_of_one)
    broker.groups.run(request.group_id, caller, lambda shard, now: shard.serve(caller, request, now))
    return DEFERRED


def _leave_of_one(response: LeaveGroupResponse) -> LeaveGroupResponse:
    error_code = response.error_code or (response.members[0].error_code if response.members else 0)
    return LeaveGroupResponse(error_code=error_code)


def _leave_in_pieces(broker: Broker, context: RequestContext, request: LeaveGroupRequest) -> Sliced[Deferred]:
    """Remove many members, by several changes of the group."""
    pieces = []
    for first in range(0, len(request.members), _MEMBERS_PER_STEP):
        piece = copy(request)
        piece.members = request.members[first : first + _MEMBERS_PER_STEP]
        pieces.append(piece)
    pending: Pending[LeaveGroupResponse, KafkaError] = Pending(lambda answers: context.reply(_leave_of_all(answers)))
    for piece in pieces:
        _leave_piece(broker, context, pending, piece)
        yield 0
    pending.start()
    return DEFERRED


def _leave_piece(
    broker: Broker, context: RequestContext, pending: Pending[LeaveGroupResponse, KafkaError], piece: LeaveGroupRequest
) -> None:
    def failed(error: KafkaError) -> LeaveGroupResponse:
        members = [
            MemberResponse(member_id=one.member_id, group_instance_id=one.group_instance_id, error_code=error.code)
            for one in piece.members
        ]
        return LeaveGroupResponse(error_code=error.code, members=members)

    caller = Part(context, pending, failed)
    broker.groups.run(piece.group_id, caller, lambda shard, now: shard.serve(caller, piece, now))


def _leave_of_all(answers: list[LeaveGroupResponse]) -> LeaveGroupResponse:
    """The response to all pieces. It has an error of the request, which clients retry, only if every piece has one."""
    if all(answer.error_code for answer in answers):
        return LeaveGroupResponse(error_code=answers[0].error_code)
    return LeaveGroupResponse(members=[member for answer in answers for member in answer.members])


def failed_leave_group(request: LeaveGroupRequest, error: KafkaError) -> LeaveGroupResponse:
    """The error."""
    return LeaveGroupResponse(error_code=error.code)


def handle_consumer_group_heartbeat(
    broker: Broker, context: RequestContext, request: ConsumerGroupHeartbeatRequest
) -> Deferred | Sliced[Deferred]:
    """A member of a consumer group reports its state, and the response has its assignment."""
    if not serves_consumer_protocol(broker.config, broker.metadata.image.features):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    if not broker.groups.serves(request.group_id):
        from ...group_coordinator.consumer import request_checks  # as above

        request_checks.check_request(broker.groups.config, request, context.api_version)
    return _when_looked_up(
        broker,
        context,
        request.group_id,
        request.subscribed_topic_regex,
        lambda shard, now: shard.serve(context, request, now),
    )


def _when_looked_up(
    broker: Broker, context: RequestContext, group_id: str, regex: str | None, decide: Decide[GroupShard]
) -> Deferred | Sliced[Deferred]:
    """Run ``decide`` when the regular expressions that it needs have been looked up."""
    looking_up = broker.groups.looking_up(context, group_id, regex)
    if looking_up is not None:
        return _look_up(broker, context, group_id, looking_up, decide)
    broker.groups.run(group_id, context, decide)
    return DEFERRED


def _look_up(
    broker: Broker, context: RequestContext, group_id: str, steps: Sliced[object], decide: Decide[GroupShard]
) -> Sliced[Deferred]:
    kept = yield from steps
    broker.groups.run(group_id, context, decide)
    del kept  # its memory counted until here
    return DEFERRED


def failed_consumer_group_heartbeat(
    request: ConsumerGroupHeartbeatRequest, error: KafkaError
) -> ConsumerGroupHeartbeatResponse:
    """The error."""
    return ConsumerGroupHeartbeatResponse(error_code=error.code, error_message=error.message)


def _check_group_id(group_id: str) -> None:
    if not group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)

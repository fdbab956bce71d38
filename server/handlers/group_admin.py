"""What people and tools ask of groups: DescribeGroups, ConsumerGroupDescribe, ListGroups, DeleteGroups (API keys 15,
69, 16, 42).

- DescribeGroups 0 to 6, ConsumerGroupDescribe 0 to 1, ListGroups 0 to 5, DeleteGroups 0 to 2.
- Each group of a request succeeds or fails by itself, and is answered once, however often it is named. ListGroups
  answers for all groups of this broker, and fails while one of its partitions of `__consumer_offsets` loads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from ...protocol.messages.consumer_group_describe import DescribedGroup as DescribedConsumerGroup
from ...protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from ...protocol.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from ...protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from ..callers import Gathering
from ..group_settings import serves_consumer_protocol
from ..request import PARKED, Parked
from . import authorized_operations

if TYPE_CHECKING:
    from ..broker import Broker
    from ..request import RequestContext
    from ..slices import Sliced

_ERROR_MESSAGE_SINCE = 6


def handle_describe_groups(
    broker: Broker, context: RequestContext, request: DescribeGroupsRequest
) -> Sliced[DescribeGroupsResponse | Parked]:
    """Classic groups with their members."""
    groups = []
    for group_id in dict.fromkeys(request.groups):
        try:
            group = broker.groups.read(group_id).describe_group(group_id, api_version=context.api_version)
        except KafkaError as error:
            group = _failed_group(group_id, error)
        yield len(group.members)
        if context.api_version < _ERROR_MESSAGE_SINCE:
            group.error_message = None
        if request.include_authorized_operations and not group.error_code:
            group.authorized_operations = authorized_operations.GROUP
        groups.append(group)
    return broker.groups.when_safe(context, DescribeGroupsResponse(groups=groups), request.groups)


def failed_describe_groups(request: DescribeGroupsRequest, error: KafkaError) -> DescribeGroupsResponse:
    """The same error for every group."""
    return DescribeGroupsResponse(groups=[_failed_group(group_id, error) for group_id in request.groups])


def _failed_group(group_id: str, error: KafkaError) -> DescribedGroup:
    return DescribedGroup(group_id=group_id, error_code=error.code)


def handle_consumer_group_describe(
    broker: Broker, context: RequestContext, request: ConsumerGroupDescribeRequest
) -> Sliced[ConsumerGroupDescribeResponse | Parked]:
    """Consumer groups with their members and assignments."""
    groups = []
    for group_id in dict.fromkeys(request.group_ids):
        try:
            if not serves_consumer_protocol(broker.config, broker.metadata.image.features):
                raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
            if not group_id:
                raise KafkaError(ErrorCode.INVALID_GROUP_ID)
            group = broker.groups.read(group_id).describe_consumer_group(group_id)
        except KafkaError as error:
            group = _failed_consumer_group(group_id, error)
        yield len(group.members)
        if request.include_authorized_operations and not group.error_code:
            group.authorized_operations = authorized_operations.GROUP
        groups.append(group)
    return broker.groups.when_safe(context, ConsumerGroupDescribeResponse(groups=groups), request.group_ids)


def failed_consumer_group_describe(
    request: ConsumerGroupDescribeRequest, error: KafkaError
) -> ConsumerGroupDescribeResponse:
    """The same error for every group."""
    return ConsumerGroupDescribeResponse(
        groups=[_failed_consumer_group(group_id, error) for group_id in request.group_ids]
    )


def _failed_consumer_group(group_id: str, error: KafkaError) -> DescribedConsumerGroup:
    return DescribedConsumerGroup(group_id=group_id, error_code=error.code, error_message=error.message)


def handle_list_groups(
    broker: Broker, context: RequestContext, request: ListGroupsRequest
) -> Sliced[ListGroupsResponse | Parked]:
    """The groups of this broker."""
    states_filter, types_filter = set(request.states_filter), set(request.types_filter)
    groups = []
    for shard in broker.groups.read_all():
        yield 0
        for some in shard.list_groups(states_filter, types_filter):
            groups += some
            yield len(some)
    return broker.groups.when_safe(context, ListGroupsResponse(groups=groups))


def failed_list_groups(request: ListGroupsRequest, error: KafkaError) -> ListGroupsResponse:
    """The error, and no groups."""
    return ListGroupsResponse(error_code=error.code)


def handle_delete_groups(
    broker: Broker, context: RequestContext, request: DeleteGroupsRequest
) -> Sliced[Parked | DeleteGroupsResponse]:
    """Delete each of the groups, if it has no members."""
    # A group that is named twice is deleted once.
    group_ids = list(dict.fromkeys(request.groups_names))
    if not group_ids:
        return DeleteGroupsResponse()
    gathering = Gathering(context, len(group_ids), lambda parts: DeleteGroupsResponse(results=parts))
    for index, group_id in enumerate(group_ids):
        _delete(broker, gathering, index, group_id)
        yield 0
    return PARKED


def _delete(broker: Broker, gathering: Gathering, index: int, group_id: str) -> None:
    caller = gathering.caller(index, lambda error: DeletableGroupResult(group_id=group_id, error_code=error.code))
    broker.groups.run(group_id, caller, lambda shard, now: shard.delete_group(caller, group_id, now))


def failed_delete_groups(request: DeleteGroupsRequest, error: KafkaError) -> DeleteGroupsResponse:
    """The same error for every group."""
    return DeleteGroupsResponse(
        results=[DeletableGroupResult(group_id=group_id, error_code=error.code) for group_id in request.groups_names]
    )

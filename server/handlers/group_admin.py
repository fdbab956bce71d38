"""Administration of groups: DescribeGroups, ConsumerGroupDescribe, ListGroups, DeleteGroups (API keys 15, 69, 16, 42).

- DescribeGroups 0 to 6, ConsumerGroupDescribe 0 to 1, ListGroups 0 to 5, DeleteGroups 0 to 2.
- Each group of a request succeeds or fails independently, and is returned once, however often it is named.
- ListGroups lists all groups of this broker. It fails while one of the broker's partitions of `__consumer_offsets` is
  loading.
"""

from __future__ import annotations

from functools import partial
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
from ...protocol.steps import each, each_once
from ..concurrency.pending import Pending
from ..context import DEFERRED, Deferred
from ..coordination.callers import Part
from ..coordination.group_settings import serves_consumer_protocol
from . import authorized_operations

if TYPE_CHECKING:
    from ...coordinator.outcome import Caller
    from ..broker import Broker
    from ..concurrency.slices import Sliced
    from ..context import RequestContext

_ERROR_MESSAGE_SINCE = 6


def handle_describe_groups(
    broker: Broker, context: RequestContext, request: DescribeGroupsRequest
) -> Sliced[DescribeGroupsResponse | Deferred]:
    """Describe classic groups with their members."""
    from ...group_coordinator.classic.kind import CLASSIC  # imported here: handlers are loaded without the coordinator

    groups = []
    for group_id in (yield from each_once(request.groups)):
        try:
            group = broker.groups.read(group_id).describe(CLASSIC, group_id, api_version=context.api_version)
        except KafkaError as error:
            group = _failed_group(error, group_id)
        yield len(group.members)
        if context.api_version < _ERROR_MESSAGE_SINCE:
            group.error_message = None
        if request.include_authorized_operations and not group.error_code:
            group.authorized_operations = authorized_operations.of_group(broker, context, group.group_id)
        groups.append(group)
    return broker.groups.when_committed(context, DescribeGroupsResponse(groups=groups), request.groups)


def failed_describe_groups(request: DescribeGroupsRequest, error: KafkaError) -> Sliced[DescribeGroupsResponse]:
    """The same error for every group."""
    return DescribeGroupsResponse(groups=(yield from each(partial(_failed_group, error), request.groups)))


def _failed_group(error: KafkaError, group_id: str) -> DescribedGroup:
    return DescribedGroup(group_id=group_id, error_code=error.code)


def handle_consumer_group_describe(
    broker: Broker, context: RequestContext, request: ConsumerGroupDescribeRequest
) -> Sliced[ConsumerGroupDescribeResponse | Deferred]:
    """Describe consumer groups with their members and assignments."""
    from ...group_coordinator.consumer.kind import CONSUMER  # as above

    groups = []
    for group_id in (yield from each_once(request.group_ids)):
        try:
            if not serves_consumer_protocol(broker.config, broker.metadata.image.features):
                raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
            if not group_id:
                raise KafkaError(ErrorCode.INVALID_GROUP_ID)
            group = broker.groups.read(group_id).describe(CONSUMER, group_id, api_version=context.api_version)
        except KafkaError as error:
            group = _failed_consumer_group(error, group_id)
        yield len(group.members)
        if request.include_authorized_operations and not group.error_code:
            group.authorized_operations = authorized_operations.of_group(broker, context, group.group_id)
        groups.append(group)
    return broker.groups.when_committed(context, ConsumerGroupDescribeResponse(groups=groups), request.group_ids)


def failed_consumer_group_describe(
    request: ConsumerGroupDescribeRequest, error: KafkaError
) -> Sliced[ConsumerGroupDescribeResponse]:
    """The same error for every group."""
    groups = yield from each(partial(_failed_consumer_group, error), request.group_ids)
    return ConsumerGroupDescribeResponse(groups=groups)


def _failed_consumer_group(error: KafkaError, group_id: str) -> DescribedConsumerGroup:
    return DescribedConsumerGroup(group_id=group_id, error_code=error.code, error_message=error.message)


def handle_list_groups(
    broker: Broker, context: RequestContext, request: ListGroupsRequest
) -> Sliced[ListGroupsResponse | Deferred]:
    """List the groups of this broker."""
    states_filter, types_filter = set(request.states_filter), set(request.types_filter)
    groups = []
    for shard in broker.groups.read_all():
        yield 0
        for some in shard.list_groups(states_filter, types_filter):
            groups += some
            yield len(some)
    return broker.groups.when_committed(context, ListGroupsResponse(groups=groups))


def failed_list_groups(request: ListGroupsRequest, error: KafkaError) -> ListGroupsResponse:
    """The error, without groups."""
    return ListGroupsResponse(error_code=error.code)


def handle_delete_groups(
    broker: Broker, context: RequestContext, request: DeleteGroupsRequest
) -> Sliced[Deferred | DeleteGroupsResponse]:
    """Delete each named group that has no members."""
    # A group that is named twice is deleted once.
    group_ids = list(dict.fromkeys(request.groups_names))
    if not group_ids:
        return DeleteGroupsResponse()
    pending: Pending[DeletableGroupResult, KafkaError] = Pending(
        lambda results: context.reply(DeleteGroupsResponse(results=results))
    )
    for group_id in group_ids:
        _delete(broker, Part(context, pending, partial(_not_deleted, group_id=group_id)), group_id)
        yield 0
    pending.start()
    return DEFERRED


def _delete(broker: Broker, caller: Caller, group_id: str) -> None:
    broker.groups.run(group_id, caller, lambda shard, now: shard.delete_group(caller, group_id, now))


def failed_delete_groups(request: DeleteGroupsRequest, error: KafkaError) -> Sliced[DeleteGroupsResponse]:
    """The same error for every group."""
    results = yield from each(partial(_not_deleted, error), request.groups_names)
    return DeleteGroupsResponse(results=results)


def _not_deleted(error: KafkaError, group_id: str) -> DeletableGroupResult:
    return DeletableGroupResult(group_id=group_id, error_code=error.code)

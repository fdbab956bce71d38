"""ElectLeaders, AlterPartitionReassignments, ListPartitionReassignments (API keys 43, 45, 46).

The controller decides.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ...protocol.errors import KafkaError
from ...protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from ...protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from ...protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..broker import Broker
    from ..concurrency.slices import Sliced
    from ..context import RequestContext

_ERROR_OF_REQUEST_SINCE: Final = 1
"""The version of ElectLeaders whose response has an error of the request."""


def handle_elect_leaders(
    broker: Broker, context: RequestContext, request: ElectLeadersRequest
) -> Sliced[ElectLeadersResponse]:
    """Elect the preferred leaders or, with a loss of data, any live replica."""
    deadline_ms = broker.timers.now_ms() + request.timeout_ms
    return broker.controller.request(request, context.api_version, context.origin(deadline_ms))


def failed_elect_leaders_in(version: int) -> Callable[[ElectLeadersRequest, KafkaError], Sliced[ElectLeadersResponse]]:
    """The error for the whole request, which version 0 cannot express, and for every named partition."""

    def failed(request: ElectLeadersRequest, error: KafkaError) -> Sliced[ElectLeadersResponse]:
        return _failed_election(request, error, error.code if version >= _ERROR_OF_REQUEST_SINCE else 0)

    return failed


def _failed_election(request: ElectLeadersRequest, error: KafkaError, code: int) -> Sliced[ElectLeadersResponse]:
    response = ElectLeadersResponse(error_code=code)
    for topic in request.topic_partitions or ():
        result = ReplicaElectionResult(topic=topic.topic)
        response.replica_election_results.append(result)
        yield 1
        for index in topic.partitions:
            result.partition_result.append(
                PartitionResult(partition_id=index, error_code=error.code, error_message=error.message)
            )
            yield 1
    return response


def handle_alter_partition_reassignments(
    broker: Broker, context: RequestContext, request: AlterPartitionReassignmentsRequest
) -> Sliced[AlterPartitionReassignmentsResponse]:
    """Move replicas."""
    deadline_ms = broker.timers.now_ms() + request.timeout_ms
    return broker.controller.request(request, context.api_version, context.origin(deadline_ms))


def failed_alter_partition_reassignments(
    request: AlterPartitionReassignmentsRequest, error: KafkaError
) -> Sliced[AlterPartitionReassignmentsResponse]:
    """The error for the whole request, and for every named partition."""
    response = AlterPartitionReassignmentsResponse(error_code=error.code, error_message=error.message)
    for topic in request.topics:
        result = ReassignableTopicResponse(name=topic.name)
        response.responses.append(result)
        yield 1
        for partition in topic.partitions:
            result.partitions.append(
                ReassignablePartitionResponse(
                    partition_index=partition.partition_index, error_code=error.code, error_message=error.message
                )
            )
            yield 1
    return response


def handle_list_partition_reassignments(
    broker: Broker, context: RequestContext, request: ListPartitionReassignmentsRequest
) -> Sliced[ListPartitionReassignmentsResponse]:
    """List the replicas that are being moved."""
    deadline_ms = broker.timers.now_ms() + request.timeout_ms
    return broker.controller.request(request, context.api_version, context.origin(deadline_ms))


def failed_list_partition_reassignments(
    request: ListPartitionReassignmentsRequest, error: KafkaError
) -> Sliced[ListPartitionReassignmentsResponse]:
    """The error for the whole request, with the requested partitions, as in Apache Kafka."""
    response = ListPartitionReassignmentsResponse(error_code=error.code, error_message=error.message)
    for topic in request.topics or ():
        requested = OngoingTopicReassignment(name=topic.name)
        response.topics.append(requested)
        yield 1
        for index in topic.partition_indexes:
            requested.partitions.append(OngoingPartitionReassignment(partition_index=index))
            yield 1
    return response

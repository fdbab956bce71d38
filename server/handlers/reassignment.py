"""ElectLeaders, AlterPartitionReassignments, ListPartitionReassignments (API keys 43, 45, 46): controller's work."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...protocol.errors import KafkaError
from ...protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
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
)

if TYPE_CHECKING:
    from ..broker import Broker
    from ..request import RequestContext


def handle_elect_leaders(broker: Broker, context: RequestContext, request: ElectLeadersRequest) -> ElectLeadersResponse:
    """Elect the preferred leaders, or with a loss of data any that is alive."""
    try:
        return broker.metadata.elect_leaders(request, now_ms=broker.now_ms())
    except KafkaError as error:
        if context.api_version > 0:
            raise
        response = failed_elect_leaders(request, error)
        response.error_code = 0  # version 0 tells of partitions alone
        return response


def failed_elect_leaders(request: ElectLeadersRequest, error: KafkaError) -> ElectLeadersResponse:
    """The error for the whole request, and for every partition that was named."""
    return ElectLeadersResponse(
        error_code=error.code,
        replica_election_results=[
            ReplicaElectionResult(
                topic=topic.topic,
                partition_result=[
                    PartitionResult(partition_id=index, error_code=error.code, error_message=error.message)
                    for index in topic.partitions
                ],
            )
            for topic in request.topic_partitions or []
        ],
    )


def handle_alter_partition_reassignments(
    broker: Broker, context: RequestContext, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    """Move replicas."""
    return broker.metadata.alter_partition_reassignments(request, now_ms=broker.now_ms())


def failed_alter_partition_reassignments(
    request: AlterPartitionReassignmentsRequest, error: KafkaError
) -> AlterPartitionReassignmentsResponse:
    """The error for the whole request."""
    return AlterPartitionReassignmentsResponse(error_code=error.code, error_message=error.message)


def handle_list_partition_reassignments(
    broker: Broker, context: RequestContext, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    """List what is moving."""
    return broker.metadata.list_partition_reassignments(request)


def failed_list_partition_reassignments(
    request: ListPartitionReassignmentsRequest, error: KafkaError
) -> ListPartitionReassignmentsResponse:
    """The error for the whole request."""
    return ListPartitionReassignmentsResponse(error_code=error.code, error_message=error.message)

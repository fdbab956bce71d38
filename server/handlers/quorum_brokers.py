"""What brokers send to the active controller: API keys 56, 62, 63, 67, 73.

BrokerRegistration, BrokerHeartbeat, AlterPartition, AllocateProducerIds, AssignReplicasToDirs. The controller decides.
A response is sent when the change is durable.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from ...protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from ...protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest, AssignReplicasToDirsResponse
from ...protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from ...protocol.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse

if TYPE_CHECKING:
    from ...protocol.errors import KafkaError
    from ..concurrency.slices import Sliced
    from ..context import RequestContext
    from ..controller_node import ControllerNode


def handle_broker_registration(
    node: ControllerNode, context: RequestContext, request: BrokerRegistrationRequest
) -> Sliced[BrokerRegistrationResponse]:
    """Versions 0 to 4: a broker starts."""
    return node.controller.request(request, context.api_version, context.origin())


def failed_broker_registration(request: BrokerRegistrationRequest, error: KafkaError) -> BrokerRegistrationResponse:
    """The error for the whole request."""
    return BrokerRegistrationResponse(error_code=error.code)


def handle_broker_heartbeat(
    node: ControllerNode, context: RequestContext, request: BrokerHeartbeatRequest
) -> Sliced[BrokerHeartbeatResponse]:
    """Versions 0 to 2: a broker is alive. Its arrival counts, not the time at which the controller decides on it."""
    node.contact(request.broker_id, request.broker_epoch, context.connection_probe())
    return node.controller.request(request, context.api_version, context.origin())


def failed_broker_heartbeat(request: BrokerHeartbeatRequest, error: KafkaError) -> BrokerHeartbeatResponse:
    """The error for the whole request."""
    return BrokerHeartbeatResponse(error_code=error.code)


def handle_alter_partition(
    node: ControllerNode, context: RequestContext, request: AlterPartitionRequest
) -> Sliced[Any]:
    """Versions 2 and 3: a leader proposes in-sync sets."""
    return node.controller.request(request, context.api_version, context.origin())


def failed_alter_partition(request: AlterPartitionRequest, error: KafkaError) -> AlterPartitionResponse:
    """The error for the whole request."""
    return AlterPartitionResponse(error_code=error.code)


def handle_allocate_producer_ids(
    node: ControllerNode, context: RequestContext, request: AllocateProducerIdsRequest
) -> Sliced[AllocateProducerIdsResponse]:
    """Version 0: a block of producer ids for a broker."""
    return node.controller.request(request, context.api_version, context.origin())


def failed_allocate_producer_ids(request: AllocateProducerIdsRequest, error: KafkaError) -> AllocateProducerIdsResponse:
    """The error for the whole request."""
    return AllocateProducerIdsResponse(error_code=error.code)


def handle_assign_replicas_to_dirs(
    node: ControllerNode, context: RequestContext, request: AssignReplicasToDirsRequest
) -> Sliced[AssignReplicasToDirsResponse]:
    """Version 0: a broker reports in which of its directories replicas are."""
    return node.controller.request(request, context.api_version, context.origin())


def failed_assign_replicas_to_dirs(
    request: AssignReplicasToDirsRequest, error: KafkaError
) -> AssignReplicasToDirsResponse:
    """The error for the whole request."""
    return AssignReplicasToDirsResponse(error_code=error.code)

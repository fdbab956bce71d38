"""DescribeCluster, DescribeQuorum, UpdateFeatures, UnregisterBroker (API keys 60, 55, 57, 64)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.describe_cluster import DescribeClusterBroker, DescribeClusterRequest, DescribeClusterResponse
from ...protocol.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from ...protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from ...protocol.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
from . import authorized_operations
from .brokers import controller_id, fenced_endpoints, node_endpoints

if TYPE_CHECKING:
    from ..broker import Broker
    from ..concurrency.slices import Sliced
    from ..context import RequestContext

_BROKERS = 1
_CONTROLLERS = 2


def handle_describe_cluster(
    broker: Broker, context: RequestContext, request: DescribeClusterRequest
) -> DescribeClusterResponse:
    """Versions 0 to 2: cluster id, controller and brokers (KIP-700, KIP-919), also fenced ones (KIP-1073)."""
    if request.endpoint_type != _BROKERS:
        if request.endpoint_type == _CONTROLLERS:
            raise KafkaError(ErrorCode.MISMATCHED_ENDPOINT_TYPE, "The request was sent to an endpoint of type BROKER.")
        raise KafkaError(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"Unknown endpoint type {request.endpoint_type}.")
    brokers = [
        DescribeClusterBroker(broker_id=node_id, host=host, port=port, rack=rack)
        for node_id, host, port, rack in node_endpoints(broker, context)
    ]
    if request.include_fenced_brokers:
        brokers += [
            DescribeClusterBroker(broker_id=node_id, host=host, port=port, rack=rack, is_fenced=True)
            for node_id, host, port, rack in fenced_endpoints(broker, context)
        ]
        brokers.sort(key=lambda each: each.broker_id)
    return DescribeClusterResponse(
        cluster_id=broker.cluster_id,
        controller_id=controller_id(broker),
        brokers=brokers,
        cluster_authorized_operations=authorized_operations.of_cluster(broker, context)
        if request.include_cluster_authorized_operations
        else authorized_operations.NOT_REQUESTED,
    )


def failed_describe_cluster(request: DescribeClusterRequest, error: KafkaError) -> DescribeClusterResponse:
    """The error for the whole request."""
    return DescribeClusterResponse(error_code=error.code, error_message=error.message, endpoint_type=_BROKERS)


def handle_describe_quorum(
    broker: Broker, context: RequestContext, request: DescribeQuorumRequest
) -> Sliced[DescribeQuorumResponse]:
    """Versions 0 to 2: the voters of the metadata log (KIP-595)."""
    return broker.controller.request(request, context.api_version, context.origin())


def failed_describe_quorum(request: DescribeQuorumRequest, error: KafkaError) -> DescribeQuorumResponse:
    """The error for the whole request."""
    return DescribeQuorumResponse(error_code=error.code, error_message=error.message)


def handle_update_features(
    broker: Broker, context: RequestContext, request: UpdateFeaturesRequest
) -> Sliced[UpdateFeaturesResponse]:
    """Versions 0 to 2: change finalized feature levels (KIP-584)."""
    deadline_ms = broker.timers.now_ms() + request.timeout_ms
    return broker.controller.request(request, context.api_version, context.origin(deadline_ms))


def failed_update_features(request: UpdateFeaturesRequest, error: KafkaError) -> UpdateFeaturesResponse:
    """The error for the whole request."""
    return UpdateFeaturesResponse(error_code=error.code, error_message=error.message)


def handle_unregister_broker(
    broker: Broker, context: RequestContext, request: UnregisterBrokerRequest
) -> Sliced[UnregisterBrokerResponse]:
    """Version 0: unregister a broker that was removed permanently."""
    return broker.controller.request(request, context.api_version, context.origin())


def failed_unregister_broker(request: UnregisterBrokerRequest, error: KafkaError) -> UnregisterBrokerResponse:
    """The error for the whole request."""
    return UnregisterBrokerResponse(error_code=error.code, error_message=error.message)

"""ApiVersions and DescribeCluster (API keys 18, 60) on a controller listener."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...metadata.observer_reads import controller_endpoints
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.describe_cluster import DescribeClusterBroker, DescribeClusterRequest, DescribeClusterResponse
from ..controller_apis import CONTROLLER_APIS
from . import api_versions, authorized_operations

if TYPE_CHECKING:
    from ...protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
    from ..context import RequestContext
    from ..controller_node import ControllerNode

_BROKERS = 1
_CONTROLLERS = 2

failed_api_versions = api_versions.failed


def handle_api_versions(
    node: ControllerNode, context: RequestContext, request: ApiVersionsRequest
) -> ApiVersionsResponse:
    """Versions 0 to 4: list the APIs of this listener, and the features."""
    return api_versions.response_with(CONTROLLER_APIS, node.metadata, context, request)


def handle_describe_cluster(
    node: ControllerNode, context: RequestContext, request: DescribeClusterRequest
) -> DescribeClusterResponse:
    """Versions 0 to 2: the controllers of the cluster (KIP-919)."""
    if request.endpoint_type != _CONTROLLERS:
        if request.endpoint_type == _BROKERS:
            text = "The request was sent to an endpoint of type CONTROLLER."
            raise KafkaError(ErrorCode.MISMATCHED_ENDPOINT_TYPE, text)
        raise KafkaError(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"Unknown endpoint type {request.endpoint_type}.")
    return DescribeClusterResponse(
        endpoint_type=_CONTROLLERS,
        cluster_id=node.cluster_id,
        controller_id=node.node_id,
        brokers=[
            DescribeClusterBroker(broker_id=node_id, host=host, port=port)
            for node_id, host, port in controller_endpoints(node.metadata.image)
        ],
        cluster_authorized_operations=authorized_operations.CLUSTER
        if request.include_cluster_authorized_operations
        else authorized_operations.NOT_REQUESTED,
    )


def failed_describe_cluster(request: DescribeClusterRequest, error: KafkaError) -> DescribeClusterResponse:
    """The error for the whole request."""
    return DescribeClusterResponse(error_code=error.code, error_message=error.message)

"""ApiVersions (API key 18): the APIs that this server supports, and its features.

- Versions 0 to 4, the first request of most clients. The response to an unknown version has version 0, the error
  UNSUPPORTED_VERSION and all keys, so that a newer client can fall back (KIP-511).
- Since version 3, the format of the client's name and version is checked, and they are kept with the connection.
- Forwarded APIs have the versions that the active controller supports, too.
- GetTelemetrySubscriptions and PushTelemetry are listed if metrics are served (`handlers.telemetry`).
- Features whose lowest version is 0 are omitted below version 4, because older parsers fail on them (KAFKA-17011).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from ...metadata.features import SUPPORTED_FEATURES
from ...protocol.api import ApiKey
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from ..apis import APIS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ...metadata.broker_metadata import BrokerMetadata
    from ..apis import Api
    from ..broker import Broker
    from ..context import RequestContext
    from ..controller_client import ControllerClient

TELEMETRY: Final = frozenset({ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY})
"""APIs that are advertised only if metrics are served."""

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(broker: Broker, context: RequestContext, request: ApiVersionsRequest) -> ApiVersionsResponse:
    """List the APIs and the features."""
    return response_with(_advertised(_usable(broker.controller), broker), broker.metadata, context, request)


def response_with(
    apis: Iterable[Api], metadata: BrokerMetadata, context: RequestContext, request: ApiVersionsRequest
) -> ApiVersionsResponse:
    """The response of a listener that serves these APIs."""
    if context.api_version >= 3:
        if not is_valid_software(request):
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        context.set_client_software(request.client_software_name, request.client_software_version)
    image = metadata.image
    return ApiVersionsResponse(
        api_keys=_api_keys(apis),
        supported_features=[
            SupportedFeatureKey(name=name, min_version=versions.minimum, max_version=versions.maximum)
            for name, versions in sorted(SUPPORTED_FEATURES.items())
            if versions.minimum > 0 or context.api_version >= 4
        ],
        finalized_features_epoch=image.offset,
        finalized_features=[
            FinalizedFeatureKey(name=name, min_version_level=level, max_version_level=level)
            for name, level in sorted(metadata.finalized_features.items())
        ],
    )


def is_valid_software(request: ApiVersionsRequest) -> bool:
    """Whether the name and the version of the client have the required format."""
    texts = (request.client_software_name, request.client_software_version)
    return all(_SOFTWARE.fullmatch(text) for text in texts)


def _usable(controller: ControllerClient) -> Iterable[Api]:
    """The APIs without the versions that a remote controller, which decides their requests, does not support."""
    for api in APIS:
        versions = controller.versions(api.key)
        if versions is None:
            yield api
            continue
        lowest, highest = max(api.min_version, versions.lowest), min(api.max_version, versions.highest)
        if lowest <= highest:
            yield api._replace(min_version=lowest, max_version=highest)


def failed(request: ApiVersionsRequest, error: KafkaError) -> ApiVersionsResponse:
    """The error, without the lists."""
    return ApiVersionsResponse(error_code=error.code)


def _advertised(apis: Iterable[Api], node: object) -> Iterable[Api]:
    """These APIs, without those for the metrics of clients if the node does not serve them. A controller never does."""
    if getattr(node, "telemetry", None) is not None:
        return apis
    return (api for api in apis if api.key not in TELEMETRY)


def unsupported_version_response(apis: Iterable[Api], node: object) -> ApiVersionsResponse:
    """The response of a node to an unknown version of this API, to be sent in version 0."""
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=_api_keys(_advertised(apis, node)))


def _api_keys(apis: Iterable[Api]) -> list[ApiVersion]:
    return [ApiVersion(api_key=api.key, min_version=api.min_version, max_version=api.max_version) for api in apis]

"""AlterConfigs and IncrementalAlterConfigs of a broker with remote controllers: checked here, then forwarded.

A controller of Apache Kafka trusts the brokers to have checked the form of a request, and the configs of brokers. Only
the resources without an error are forwarded. The response has all of them, in the order of the request.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...metadata.alter_configs import check_before_forwarding
from ...protocol.errors import ErrorCode
from ...protocol.messages import alter_configs as legacy
from ...protocol.messages import incremental_alter_configs as incremental
from ...protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from ...protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

if TYPE_CHECKING:
    from ...metadata.context import ControllerContext
    from ...metadata.image import ConfigResource, MetadataImage
    from ...metadata.outcome import ApiError
    from ...protocol.schema import Request
    from ..concurrency.slices import Sliced

ConfigsRequest = AlterConfigsRequest | IncrementalAlterConfigsRequest


def forward_checked(
    image: MetadataImage,
    context: ControllerContext,
    request: ConfigsRequest,
    forward: Callable[[Request], Sliced[Any]],
    refused: tuple[ConfigResource, ApiError] | None = None,
) -> Sliced[Any]:
    """The response to a request, whose valid resources are forwarded by `forward`. ``refused``: one that is not valid
    for another reason."""
    errors = yield from check_before_forwarding(image, request, context)
    if refused is not None:
        changed: list[Any] = list(request.resources)
        for index, each in enumerate(changed):
            if not errors[index].code and (each.resource_type, each.resource_name) == refused[0]:
                errors[index] = refused[1]
            yield 0
    if not any(error.code for error in errors):
        return (yield from forward(request))
    resources: list[Any] = list(request.resources)
    valid = [resource for resource, error in zip(resources, errors, strict=True) if not error.code]
    forwarded: dict[tuple[int, str], Any] = {}
    if valid:
        response = yield from forward(type(request)(resources=valid, validate_only=request.validate_only))
        forwarded = {(each.resource_type, each.resource_name): each for each in response.responses}
    is_legacy = isinstance(request, AlterConfigsRequest)
    result: Any = legacy.AlterConfigsResourceResponse if is_legacy else incremental.AlterConfigsResourceResponse
    responses = []
    for resource, error in zip(resources, errors, strict=True):
        found = forwarded.get((resource.resource_type, resource.resource_name))
        if found is not None:
            responses.append(found)
        else:
            responses.append(
                result(
                    error_code=error.code or ErrorCode.UNKNOWN_SERVER_ERROR,  # the response omits it
                    error_message=error.message,
                    resource_type=resource.resource_type,
                    resource_name=resource.resource_name,
                )
            )
        yield 1
    if is_legacy:
        return AlterConfigsResponse(responses=responses)
    return IncrementalAlterConfigsResponse(responses=responses)

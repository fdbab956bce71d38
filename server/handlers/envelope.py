"""Envelope (API key 58): the request of a client that a broker forwards to the active controller (KIP-590).

- Version 0. The envelope has the client's request with its header as it arrived, the client's principal and address.
- The broker needs CLUSTER_ACTION on the cluster. The request inside is authorized for the client.
- The response has the response to the client, with its header.
- An API that brokers do not forward, or a version that is not served, is UNSUPPORTED_VERSION of the envelope; bytes
  that cannot be parsed are INVALID_REQUEST.
"""

from __future__ import annotations

import ipaddress
import logging
import struct
from collections.abc import Callable
from types import GeneratorType
from typing import TYPE_CHECKING, Any, cast

from ...protocol.codec import decode_at
from ...protocol.errors import ErrorCode, KafkaError, MalformedMessage
from ...protocol.messages.default_principal import DefaultPrincipalData
from ...protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from ..controller_apis import FORWARDABLE
from ..controller_client import Origin

if TYPE_CHECKING:
    from ..concurrency.slices import Sliced
    from ..context import RequestContext
    from ..controller_node import ControllerNode

_HEADER = struct.Struct(">hhi")
_LENGTH_BYTES = 4
_VERSION_BYTES = 2


class ForwardedRequest:
    """The context of a client's request in an envelope, for the handlers of the APIs that brokers forward."""

    def __init__(self, api_version: int, listener_name: str, principal: DefaultPrincipalData, client_host: str) -> None:
        self.api_version = api_version
        self.listener_name = listener_name
        self.principal = f"{principal.type}:{principal.name}"
        self.may_manage_tokens = not principal.token_authenticated
        """The broker has checked the rest."""
        self.client_host = client_host
        self.acl_epoch = 0
        self.amendments: list[Callable[[Any], None]] | None = None

    def amend(self, change: Callable[[Any], None]) -> None:
        """See `ServedRequest`."""
        self.amendments = [*(self.amendments or ()), change]

    def close_connection(self, reason: str, *, level: int = logging.WARNING) -> None:
        """The connection is that of a broker, which has other clients."""
        raise KafkaError(ErrorCode.INVALID_REQUEST, reason)

    def origin(self, deadline_ms: int | None = None) -> Origin:
        """See `RequestContext`."""
        return Origin(self.principal, self.client_host, deadline_ms)


def handle(node: ControllerNode, context: RequestContext, request: EnvelopeRequest) -> Sliced[EnvelopeResponse]:
    """Serve the request in the envelope."""
    data = request.request_data
    try:
        key, version, correlation_id = _HEADER.unpack_from(data)
        forwarded = ForwardedRequest(
            version, context.listener_name, _principal(request), _client_host(request.client_host_address)
        )
    except (struct.error, ValueError, MalformedMessage) as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from None
    route = (yield from node.dispatcher.route_of(key, version)) if key in FORWARDABLE else None
    if route is None:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    try:
        _, offset = node.decode_client_id(data, route.header_version)
        message, _ = route.decode(data, offset)
    except MalformedMessage as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from None
    try:
        answer: Any = yield from _steps(lambda: node.dispatcher.call(cast("RequestContext", forwarded), route, message))
        for change in forwarded.amendments or ():
            change(answer)
    except KafkaError as error:
        failure = error
        answer = yield from _steps(lambda: route.failed(message, failure))
    parts = yield from route.encode_in_slices(correlation_id, answer)
    return EnvelopeResponse(response_data=b"".join(cast("list[bytes]", parts))[_LENGTH_BYTES:])


def failed(request: EnvelopeRequest, error: KafkaError) -> EnvelopeResponse:
    """The error of the envelope."""
    return EnvelopeResponse(error_code=error.code)


def _steps(make: Callable[[], Any]) -> Sliced[Any]:
    answer = make()
    return (yield from answer) if type(answer) is GeneratorType else answer


def _principal(request: EnvelopeRequest) -> DefaultPrincipalData:
    data = request.request_principal
    if data is None:
        raise ValueError("the envelope has no principal")
    version = int.from_bytes(data[:_VERSION_BYTES], "big")
    principal, _ = decode_at(DefaultPrincipalData, data, version, _VERSION_BYTES)
    return principal


def _client_host(address: bytes) -> str:
    return f"/{ipaddress.ip_address(bytes(address))}"

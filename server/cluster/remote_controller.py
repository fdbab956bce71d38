"""The `ControllerClient` of a broker whose controllers are remote (KIP-590).

A request of a client is forwarded in an Envelope, with the principal and the address of the client. A request of the
broker itself is sent as it is.

A version of an API that the active controller does not have is not advertised to clients, as by Apache Kafka's brokers,
and fails with UNSUPPORTED_VERSION. (Apache Kafka's brokers then close the connection of the client.)

Like Apache Kafka's brokers, this client returns the controller's response, which may arrive before this broker has
applied the change. There is one exception: it waits until created topics are in the image, because what created them
uses them next.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any, Final

from ...protocol.api import ApiKey, request_header_version, response_class, response_header_version
from ...protocol.codec import decode_at, encode
from ...protocol.errors import ErrorCode, KafkaError, MalformedMessage, error_name
from ...protocol.messages.alter_configs import AlterConfigsRequest
from ...protocol.messages.default_principal import DefaultPrincipalData
from ...protocol.messages.envelope import EnvelopeRequest
from ...protocol.messages.headers import RequestHeader, ResponseHeader
from ...protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from ..concurrency.slices import SlicedFuture
from ..controller_client import FORWARDED
from .forwarded_configs import forward_checked
from .peers import Unanswered

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...metadata.followed import FollowedMetadata
    from ...metadata.image import MetadataDelta, MetadataImage
    from ...protocol.schema import Request, Versions
    from ..concurrency.slices import Sliced, Slices
    from ..concurrency.timers import TimerWheel
    from ..controller_client import Origin
    from .controller_channel import ControllerChannel

_TIMEOUT_MS: Final = 30_000
"""How long a request waits for a controller if it has no deadline: `request.timeout.ms` of Apache Kafka's brokers."""

_CREATION_MS: Final = 5000
"""The same for missing topics that a client or a coordinator needs, while clients wait, which retry. Apache Kafka's
brokers do not wait."""

_EXISTS: Final = frozenset({ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS})

_APPLIED_MS: Final = 2000
"""How long a response waits for created topics to be in the image. Usually it takes 30 ms."""


class RemoteController:
    """See the module docstring."""

    def __init__(
        self,
        metadata: FollowedMetadata,
        forwarding: ControllerChannel,
        own: ControllerChannel,
        slices: Slices,
        timers: TimerWheel,
        controller_versions: Callable[[int], Versions | None],
    ) -> None:
        """`forwarding` and `own` are the channels for requests of clients, and of the broker itself.
        `controller_versions`: see `Peer.versions`."""
        self._metadata = metadata
        self._forwarding = forwarding
        self._own = own
        self._slices = slices
        self._timers = timers
        self._controller_versions = controller_versions
        self._waiting: list[tuple[Callable[[MetadataImage], bool], SlicedFuture[None]]] = []
        metadata.subscribe(self._applied)

    def versions(self, api_key: int) -> Versions | None:
        """See `ControllerClient`."""
        return self._controller_versions(api_key) if api_key in FORWARDED else None

    def request(self, request: Request, version: int, origin: Origin | None) -> Sliced[Any]:
        """See `ControllerClient`."""
        supported = self.versions(request.API_KEY)
        if origin is not None and supported is not None and version not in supported:
            raise _unsupported(request, version)
        creates_topics = request.API_KEY == ApiKey.CREATE_TOPICS
        timeout_ms = _CREATION_MS if creates_topics else _TIMEOUT_MS
        if origin is not None and origin.deadline_ms is not None:
            timeout_ms = origin.deadline_ms - self._timers.now_ms()
            if timeout_ms <= 0:
                raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "The request timed out before it was forwarded.")
        if origin is None:
            response = yield from self._send(self._own, request, version, timeout_ms)
        elif isinstance(request, AlterConfigsRequest | IncrementalAlterConfigsRequest):
            response = yield from forward_checked(
                self._metadata.image,
                self._metadata.context,
                request,
                lambda valid: self._forward(valid, version, origin, timeout_ms),
            )
        else:
            response = yield from self._forward(request, version, origin, timeout_ms)
        if creates_topics and not getattr(request, "validate_only", False):
            yield from self._until_created([topic.name for topic in response.topics if topic.error_code in _EXISTS])
        return response

    def _send(self, channel: ControllerChannel, request: Request, version: int, timeout_ms: int) -> Sliced[Any]:
        later: SlicedFuture[Any] = SlicedFuture(self._slices)
        channel.request(request, later.succeed, timeout_ms=timeout_ms, version=version)
        response = yield from later.result()
        if isinstance(response, Unanswered):
            if response.is_final:
                raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, response.problem)
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"The controller did not respond: {response.problem}.")
        return response

    def _forward(self, request: Request, version: int, origin: Origin, timeout_ms: int) -> Sliced[Any]:
        envelope = EnvelopeRequest(
            request_data=_encode(request, version),
            request_principal=_encode_principal(origin.principal),
            client_host_address=_packed_address(origin.client_host),
        )
        answer = yield from self._send(self._forwarding, envelope, 0, timeout_ms)
        if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
            raise _unsupported(request, version)  # the controller has changed since the version was checked
        if answer.error_code:
            # As Apache Kafka's brokers: the error is between broker and controller, and not the client's.
            raise KafkaError(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                f"The controller rejected the forwarded request: {error_name(answer.error_code)}.",
            )
        try:
            return _decode(request.API_KEY, version, answer.response_data or b"")
        except MalformedMessage as error:
            raise KafkaError(
                ErrorCode.UNKNOWN_SERVER_ERROR, f"The controller's response is invalid: {error}."
            ) from None

    # Created topics

    def _until_created(self, names: list[str]) -> Sliced[None]:
        def exist(image: MetadataImage) -> bool:
            return all(name in image.topics_by_name for name in names)

        if exist(self._metadata.image):
            return
        later: SlicedFuture[None] = SlicedFuture(self._slices)
        waiting = (exist, later)
        self._waiting.append(waiting)
        timer = self._timers.call_after(_APPLIED_MS, lambda: later.succeed(None))
        try:
            yield from later.result()
        finally:
            timer.cancel()
            if waiting in self._waiting:
                self._waiting.remove(waiting)

    def _applied(self, delta: MetadataDelta, image: MetadataImage) -> None:
        if delta.created_topics and self._waiting:
            for waiting in list(self._waiting):
                if waiting[0](image):
                    self._waiting.remove(waiting)
                    waiting[1].succeed(None)


def _unsupported(request: Request, version: int) -> KafkaError:
    name = ApiKey(request.API_KEY).message_name
    return KafkaError(
        ErrorCode.UNSUPPORTED_VERSION, f"The controller of the cluster does not support version {version} of {name}."
    )


def _encode(request: Request, version: int) -> bytes:
    """A request as a client sends it: header and body. The correlation id is that of the response, too."""
    header = RequestHeader(
        request_api_key=request.API_KEY, request_api_version=version, correlation_id=0, client_id="moldau"
    )
    return encode(header, request_header_version(request.API_KEY, version)) + encode(request, version)


def _decode(api_key: int, version: int, data: bytes) -> Any:
    _, offset = decode_at(ResponseHeader, data, response_header_version(api_key, version), 0)
    response, _ = decode_at(response_class(api_key), data, version, offset)
    return response


def _encode_principal(principal: str) -> bytes:
    kind, _, name = principal.partition(":")
    return (0).to_bytes(2, "big") + encode(DefaultPrincipalData(type=kind, name=name), 0)


def _packed_address(client_host: str) -> bytes:
    """The 4 or 16 bytes of an address that is written ``/127.0.0.1``."""
    host = client_host.removeprefix("/").partition("%")[0]
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.inet_pton(family, host)

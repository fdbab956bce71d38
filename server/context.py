"""Per-request context for handlers, and how to respond asynchronously."""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable, Iterable
from types import GeneratorType
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from ..log.descriptors import FileRange
from ..protocol.errors import KafkaError
from .controller_client import Origin

if TYPE_CHECKING:
    import asyncio

    from ..config.broker_config import BrokerConfig
    from ..protocol.schema import Message
    from .apis import Api
    from .concurrency.slices import Sliced, Slices
    from .network.connection import Connection
    from .network.frames import InFlight, Part

_SOFTWARE_LENGTH: Final = 64
"""The protocol has no limit for the name or the version of a client, and each connection keeps them."""

R = TypeVar("R")


class Deferred(enum.Enum):
    """The type of `DEFERRED`."""

    DEFERRED = "deferred"


#: What a handler returns when it will call `RequestContext.reply` later.
DEFERRED: Final = Deferred.DEFERRED


class Route(Protocol):
    """One version of one API, and how its responses are built; see `requests.dispatch`."""

    api: Api
    version: int
    failed: Callable[..., Any]
    """The response to a `KafkaError`."""

    def fault(self, context: ServedRequest, /) -> Message | Sliced[Message]:
        """The response to the current exception, which is not a client error."""

    def encode_or_fail(self, context: ServedRequest, response: Message, /) -> list[Part] | None:
        """The frame of a response; None if the connection had to be closed."""


class MutationQuotas(Protocol):
    """Quotas on the creation and deletion of partitions, and what was throttled; see `requests.client_quotas`."""

    throttled: dict[tuple[str, str, str], tuple[int, int]]
    """Throttled requests and milliseconds, by key of the quota, user and client id, which are empty if they make no
    difference."""

    def limit_mutations(self, context: Any, request: Any) -> None:
        """Refuse the topics for which the client has no quota left. Called after the authorization."""

    def limit_auto_creation(self, context: RequestContext, names: list[str], /) -> list[str]:
        """The topics of these for whose automatic creation the client has quota left, which it uses."""


class DynamicListeners(Protocol):
    """Listeners whose settings can change; see `nodes.listener_reload`."""

    def concerns(self, names: Iterable[str], /) -> bool:
        """Whether a change of settings with these names is to be checked."""

    def check(self, config: BrokerConfig, /) -> asyncio.Future[str | None]:
        """Why these settings cannot be used, or None."""

    def reload(self, config: BrokerConfig, /) -> asyncio.Future[None]:
        """Use these settings."""


class RequestTimes(Protocol):
    """The durations of the requests of one API; see `metrics.times`."""

    skipped: int
    """How many requests of a fast path were not measured since the last one that was."""

    def observe(self, began: float, suspended: float, now: float, /) -> None:
        """A request has its response. ``suspended``: when it began to wait; now, if it did not."""

    def observe_sending(
        self, connection: Connection, waiting: InFlight | None, began: float, clock: Callable[[], float], /
    ) -> None:
        """Measure how long a response is being sent."""


class RequestContext(Protocol):
    """One request, as its handler may use it: the client, and how to respond later."""

    api_version: int
    request: Any
    """The decoded request, for error responses. A handler may replace it with its own representation."""
    is_long: bool
    """The response is encoded in slices, whenever it is ready."""
    keeps_request: bool
    """The memory of the request is in use until the response."""
    cancelled: bool
    """The client has disconnected."""
    on_cancel: Callable[[], None] | None
    """Called when the client disconnects while the request is pending."""
    on_complete_early: Callable[[], None] | None
    """Completes the pending request early, if that is possible."""

    @property
    def client_id(self) -> str:
        """The client id, as the client sent it."""

    @property
    def principal(self) -> str:
        """The principal of the client, as ``User:name``."""

    @property
    def may_manage_tokens(self) -> bool:
        """See `network.authentication.Authentication`."""

    @property
    def listener_name(self) -> str:
        """The listener that received the request."""

    @property
    def local_address(self) -> tuple[str, int]:
        """The host and port that the client connected to."""

    @property
    def client_host(self) -> str:
        """The peer's address as Kafka writes it: ``/127.0.0.1``."""

    @property
    def client_port(self) -> int:
        """The peer's port."""

    @property
    def client_software(self) -> str:
        """The name and the version of the client, with a space between them; empty if they are unknown."""

    @property
    def connection_id(self) -> int:
        """What `Turns` knows the client's connection by."""

    def connection_probe(self) -> Callable[[], bool]:
        """Returns a function: is the connection open? It may be called after the request is completed."""

    def origin(self, deadline_ms: int | None = None) -> Origin:
        """The client, for a request to the controller that its request causes. ``deadline_ms``: see `Origin`."""

    def set_client_software(self, name: str, version: str) -> None:
        """Keep the name and the version of the client with its connection. Log lines about the connection show them."""

    def close_connection(self, reason: str, *, level: int = logging.WARNING) -> None:
        """Close the client's connection, and log the reason."""

    def reply(self, response: Message) -> None:
        """Send the response of a pending request, once. A canceled request gets no response."""

    def reply_with(self, make: Callable[[], Message]) -> None:
        """Respond with the result of ``make``. If it raises, respond with the API's response for the error."""

    def reply_nothing(self) -> None:
        """Complete a pending request that needs no response (``acks=0``), so that later responses can leave."""

    def fail(self, error: KafkaError) -> None:
        """Respond with the API's response for this error, once."""

    def fault(self) -> None:
        """Respond with an internal error for the current exception, once."""

    def reply_in_slices(self, answer: Message | Sliced[Message | Deferred]) -> None:
        """Respond to a pending request in slices, with this message or with the result of these steps. If the result is
        DEFERRED, the request stays pending."""

    def run(self, slices: Slices, steps: Sliced[R]) -> R | Deferred:
        """Return the result of these steps of a handler if they finish without a pause, otherwise DEFERRED.

        After DEFERRED the steps continue alongside other requests of the connection, and finish even if the client
        disconnects. Their result is the response.
        """


class ServedRequest:
    """A request in the dispatcher: the `RequestContext` of its handler, and its place in the order of responses."""

    __slots__ = (
        "acl_epoch",
        "amendments",
        "api_version",
        "cancelled",
        "client_id",
        "connection",
        "correlation_id",
        "held_bytes",
        "is_long",
        "keeps_request",
        "kept_bytes",
        "on_cancel",
        "on_complete_early",
        "on_completed",
        "parts",
        "request",
        "route",
    )

    def __init__(
        self,
        connection: Connection,
        route: Route | None,
        correlation_id: int,
        client_id: str | None = None,
        request: Message | None = None,
    ) -> None:
        """Without a route, `read` supplies the missing parts before a handler receives this context."""
        self.connection = connection
        self.route: Any = route
        self.api_version = route.version if route is not None else -1
        self.correlation_id = correlation_id
        self.client_id = client_id or ""
        self.request: Any = request
        self.parts: list[Part] | None = None  # the encoded response, when it is ready
        self.cancelled = False  # the connection is closed
        self.is_long = False  # its response is encoded in slices, whenever it is ready
        # The epoch of the ACLs that allowed all of the request; -1 if a part was refused (`requests.authorization`).
        self.acl_epoch = 0
        self.amendments: list[Callable[[Any], None]] | None = None  # changes of the response before it is encoded
        self.on_cancel: Callable[[], None] | None = None
        self.on_complete_early: Callable[[], None] | None = None  # completes the request early, if that is possible
        self.on_completed: Callable[[], None] | None = None  # called when the pending request has its response
        # What the connection counts while the request is pending: see `frames.InFlight`.
        self.held_bytes = 0
        self.keeps_request = False
        self.kept_bytes = 0

    def read(self, route: Route, client_id: str | None, request: Message) -> None:
        """The request has been decoded."""
        self.route = route
        self.api_version = route.version
        self.client_id = client_id or ""
        self.request = request

    @property
    def completes_earlier(self) -> bool:
        """Whether pending requests before this one should complete early, so that its response can leave; see
        `Connection`."""
        return self.route is not None and not self.route.api.may_wait_behind

    @property
    def principal(self) -> str:
        return self.connection.authentication.principal

    @property
    def may_manage_tokens(self) -> bool:
        return self.connection.authentication.may_manage_tokens

    @property
    def listener_name(self) -> str:
        return self.connection.listener_name

    @property
    def local_address(self) -> tuple[str, int]:
        return self.connection.local_address

    @property
    def client_host(self) -> str:
        return self.connection.client_host

    @property
    def client_port(self) -> int:
        return int(self.connection.peer.rpartition(":")[2])

    @property
    def client_software(self) -> str:
        return self.connection.client_software

    @property
    def connection_id(self) -> int:
        return self.connection.fd

    def connection_probe(self) -> Callable[[], bool]:
        connection = self.connection
        return lambda: not connection.closed

    def origin(self, deadline_ms: int | None = None) -> Origin:
        return Origin(self.principal, self.client_host, deadline_ms)

    def set_client_software(self, name: str, version: str) -> None:
        self.connection.client_software = f"{name[:_SOFTWARE_LENGTH]} {version[:_SOFTWARE_LENGTH]}"

    def close_connection(self, reason: str, *, level: int = logging.WARNING) -> None:
        self.connection.close(reason, level=level)

    def reply(self, response: Message) -> None:
        assert self.parts is None, "a request has one response"
        if self.kept_bytes:
            self.release_memory()
        if self.cancelled:
            return
        if self.is_long:
            self.reply_in_slices(response)
            return
        parts = self.route.encode_or_fail(self, response)
        if parts is not None:
            self._complete(parts)

    def amend(self, change: Callable[[Any], None]) -> None:
        """Change the response before it is encoded, on each path that builds it."""
        if self.amendments is None:
            self.amendments = []
        self.amendments.append(change)

    def apply_amendments(self, response: Message) -> None:
        """The response is about to be encoded."""
        amendments, self.amendments = self.amendments, None
        for change in amendments or ():
            change(response)

    def reply_in_slices(self, answer: Message | Sliced[Message | Deferred]) -> None:
        self.connection.reply_in_slices(self, answer)

    def run(self, slices: Slices, steps: Sliced[R]) -> R | Deferred:
        try:
            next(steps)
        except StopIteration as end:
            result: R = end.value
            return result
        self.keeps_request = True
        slices.begin_shielded(self._respond_in_steps(steps), immediately=True)
        return DEFERRED

    def _respond_in_steps(self, steps: Sliced[Any]) -> Sliced[None]:
        try:
            answer = yield from steps
        except KafkaError as error:
            self.fail(error)
        except Exception:  # noqa: BLE001 - an internal error fails only this request
            self.fault()
        else:
            if answer is None:
                self.reply_nothing()
            elif answer is not DEFERRED:
                self.reply(answer)

    def reply_encoded(self, parts: list[Part]) -> None:
        """Respond with a frame that is already encoded."""
        self.release_memory()
        if not self.cancelled:
            self._complete(parts)

    def fail(self, error: KafkaError) -> None:
        self._respond_with(self.route.failed(self.request, error))

    def fault(self) -> None:
        self._respond_with(self.route.fault(self))

    def _respond_with(self, answer: Message | Sliced[Message]) -> None:
        if type(answer) is not GeneratorType:
            self.reply(answer)  # type: ignore[arg-type]
        elif self.cancelled:
            self.release_memory()
        else:
            self.reply_in_slices(answer)

    def reply_with(self, make: Callable[[], Message]) -> None:
        if self.cancelled:
            self.release_memory()
            return
        try:
            response: Message | Sliced[Message] = make()
        except KafkaError as error:
            response = self.route.failed(self.request, error)
        except Exception:  # noqa: BLE001 - an internal error fails only this request
            response = self.route.fault(self)
        self._respond_with(response)

    def reply_nothing(self) -> None:
        self.release_memory()
        if not self.cancelled:
            self._complete([])

    def complete_early(self) -> None:
        """Complete the request now if possible: the server stops, or a later response is ready."""
        if self.on_complete_early is not None:
            self.on_complete_early()

    def cancel(self) -> None:
        """The connection is closed: release the files of the response, and call `on_cancel`."""
        self.cancelled = True
        if self.on_cancel is not None:
            self.on_cancel()
            self.on_cancel = None
        self.on_complete_early = (
            None  # it refers to this context: the cycle would keep both in memory until a full collection
        )
        for part in self.parts or ():
            if isinstance(part, FileRange):
                part.release()

    def _complete(self, parts: list[Part]) -> None:
        self.on_cancel = None
        self.on_complete_early = None
        self.parts = parts
        if self.on_completed is not None:
            self.on_completed()
        self.connection.response_ready(self)

    def release_memory(self) -> None:
        """Release the memory of the request, which is no longer in use."""
        if self.kept_bytes:
            size, self.kept_bytes = self.kept_bytes, 0
            self.connection.release_memory(size)

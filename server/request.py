"""What a handler is told of a request besides its message, and how it answers later."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from ..log.descriptors import FileRange
from ..protocol.api import ApiKey
from ..protocol.errors import KafkaError

if TYPE_CHECKING:
    from ..protocol.schema import Message
    from .connection import Connection, Part
    from .dispatch import Route
    from .slices import Sliced


class Parked(enum.Enum):
    """The type of `PARKED`."""

    PARKED = "parked"


#: What a handler returns when it will call `RequestContext.reply` later.
PARKED: Final = Parked.PARKED


class RequestContext:
    """One request: who asks, over which listener, in which version; and its place in the order of answers."""

    __slots__ = (
        "abandoned",
        "api_version",
        "client_id",
        "connection",
        "correlation_id",
        "held_bytes",
        "keeps_request",
        "kept_bytes",
        "on_abandon",
        "on_hurry",
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
        """Without a route, what is missing comes by `read` before any handler sees this."""
        self.connection = connection
        self.route: Any = route
        self.api_version = route.version if route is not None else -1
        self.correlation_id = correlation_id
        self.client_id = client_id or ""
        self.request: Any = request
        self.parts: list[Part] | None = None  # the encoded answer, once there is one
        self.abandoned = False  # the connection is gone
        self.on_abandon: Callable[[], None] | None = None
        self.on_hurry: Callable[[], None] | None = None  # for who can answer at once
        # What the connection counts while the request waits: see `connection.InFlight`.
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
    def hurries_others(self) -> bool:
        """Whether its answer is worth that requests before it are answered earlier (see `Connection`)."""
        return self.route is not None and self.route.api.key is not ApiKey.METADATA

    @property
    def principal(self) -> str:
        """Who asks, as ``User:name``."""
        return self.connection.principal

    @property
    def listener_name(self) -> str:
        """The listener that the request came in by."""
        return self.connection.listener_name

    @property
    def local_address(self) -> tuple[str, int]:
        """The host and port that the client connected to."""
        return self.connection.local_address

    @property
    def client_host(self) -> str:
        """The peer's address as Kafka writes it: ``/127.0.0.1``."""
        return self.connection.client_host

    def reply(self, response: Message) -> None:
        """Answer a request that was parked (or is about to be), once. Nobody is told when it was abandoned."""
        assert self.parts is None, "a request is answered once"
        if self.kept_bytes:
            self.give_back()
        if self.abandoned:
            return
        parts = self.route.encode_or_fail(self, response)
        if parts is not None:
            self._answered(parts)

    def go_on(self, steps: Sliced[Message]) -> None:
        """Answer a request that was parked with what these steps return, in slices."""
        self.connection.go_on(self, steps)

    def reply_encoded(self, parts: list[Part]) -> None:
        """Answer with a frame that is encoded already."""
        self.give_back()
        if not self.abandoned:
            self._answered(parts)

    def fail(self, error: KafkaError) -> None:
        """Answer with what the API has for this error, once."""
        self.reply(self.route.failed(self.request, error))

    def fault(self) -> None:
        """Answer that the present exception, a mistake of ours, made it fail, once."""
        self.reply(self.route.fault(self))

    def reply_with(self, make: Callable[[], Message]) -> None:
        """Answer with what ``make`` returns. What it raises becomes the answer that the API has for errors."""
        if self.abandoned:
            self.give_back()
            return
        try:
            response = make()
        except KafkaError as error:
            response = self.route.failed(self.request, error)
        except Exception:  # noqa: BLE001 - our own mistakes fail one request alone
            response = self.route.fault(self)
        self.reply(response)

    def reply_nothing(self) -> None:
        """A parked request turned out to want no answer (``acks=0``): give its place up."""
        self.give_back()
        if not self.abandoned:
            self._answered([])

    def hurry(self) -> None:
        """Answer now, if whoever parked the request can: the server stops, or a later answer is ready."""
        if self.on_hurry is not None:
            self.on_hurry()

    def abandon(self) -> None:
        """The connection is gone: release what the answer holds, and tell whoever parked the request."""
        self.abandoned = True
        if self.on_abandon is not None:
            self.on_abandon()
            self.on_abandon = None
        for part in self.parts or ():
            if isinstance(part, FileRange):
                part.release()

    def _answered(self, parts: list[Part]) -> None:
        self.on_abandon = None
        self.on_hurry = None
        self.parts = parts
        self.connection.answered(self)

    def give_back(self) -> None:
        """The bytes of the request are not in use any more."""
        if self.kept_bytes:
            size, self.kept_bytes = self.kept_bytes, 0
            self.connection.give_back(size)

"""What a handler is told of a request besides its message, and how it answers later."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ..log.descriptors import FileRange

if TYPE_CHECKING:
    from ..protocol.schema import Message
    from .connection import Connection, Part
    from .dispatch import Route


class Parked(enum.Enum):
    """The type of `PARKED`."""

    PARKED = "parked"


#: What a handler returns when it will call `RequestContext.reply` later.
PARKED: Final = Parked.PARKED


class RequestContext:
    """One request: who asks, over which listener, in which version; and its place in the order of answers."""

    __slots__ = (
        "_route",
        "abandoned",
        "api_version",
        "client_id",
        "connection",
        "correlation_id",
        "on_abandon",
        "parts",
    )

    def __init__(self, connection: Connection, route: Route, correlation_id: int, client_id: str | None) -> None:
        self.connection = connection
        self._route = route
        self.api_version = route.version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.parts: list[Part] | None = None  # the encoded answer, once there is one
        self.abandoned = False  # the connection is gone
        self.on_abandon: Callable[[], None] | None = None

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

    def reply(self, response: Message) -> None:
        """Answer a request that was parked. Only once, and not when it was abandoned."""
        assert self.parts is None, "a request is answered once"
        if self.abandoned:
            return
        self.on_abandon = None
        self.parts = self._route.encode_answer(self.correlation_id, response)
        self.connection.answered(self)

    def reply_nothing(self) -> None:
        """A parked request turned out to want no answer (``acks=0``): give its place up."""
        if not self.abandoned:
            self.on_abandon = None
            self.parts = []
            self.connection.answered(self)

    def abandon(self) -> None:
        """The connection is gone: release what the answer holds, and tell whoever parked the request."""
        self.abandoned = True
        if self.on_abandon is not None:
            self.on_abandon()
            self.on_abandon = None
        for part in self.parts or ():
            if isinstance(part, FileRange):
                part.release()

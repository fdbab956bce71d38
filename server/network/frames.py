"""Requests and responses as a connection sees them: bytes in, parts out, and a place in the order of responses."""

from __future__ import annotations

from mmap import mmap
from typing import TYPE_CHECKING, Any, Protocol

from ...log.descriptors import FileRange
from ...protocol.records import Buffer

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...protocol.errors import KafkaError
    from .connection import Connection

Frame = bytes | bytearray | mmap
"""A request without its length field."""
Part = Buffer | FileRange
"""A piece of a response."""


class InFlight(Protocol):
    """A request's place in the order of responses."""

    parts: list[Part] | None
    held_bytes: int  # bytes of the request or the response, while it waits
    keeps_request: bool  # the bytes of the request stay in use until it is complete
    kept_bytes: int  # the part of these bytes that `MemoryBudget.keep` counts

    def cancel(self) -> None:
        """The connection is closed, and the response is no longer needed."""

    def complete_early(self) -> None:
        """Respond now with the available data if that makes sense: at shutdown, or if a later response is ready."""


class AnsweredRequest:
    """A complete response in the queue of requests in flight. It waits for its turn."""

    __slots__ = ("held_bytes", "keeps_request", "kept_bytes", "parts")

    def __init__(self, parts: list[Part], size: int) -> None:
        self.parts: list[Part] | None = parts
        self.held_bytes = size
        self.keeps_request = False
        self.kept_bytes = 0

    def cancel(self) -> None:
        for part in self.parts or ():
            if isinstance(part, FileRange):
                part.release()

    def complete_early(self) -> None:
        """No effect: the response is complete and only waits for its turn."""


class PendingRequest(InFlight, Protocol):
    """A pending request, which is completed later (`Connection.response_ready`)."""

    @property
    def completes_earlier(self) -> bool:
        """Whether earlier requests are completed early when its response is ready."""


class FrameHandler(Protocol):
    """Serves the frames of connections (`requests.dispatch.Dispatcher`)."""

    def handle(self, connection: Connection, frame: Frame) -> InFlight | list[Part] | None:
        """Serve one request.

        Returns the parts of the response, None if there is no response (``acks=0``), or the place of a request that is
        completed later. May close the connection.
        """

    def completes_earlier(self, frame: Frame) -> bool:
        """Whether requests before this one are answered early, because its response is ready. For a request that was
        served."""

    def finish(self, context: Any, answer: Any) -> None:
        """Complete a pending request in slices; see `RequestContext.reply_in_slices`."""

    def refuse(self, frame: Frame, error: KafkaError, respond: Callable[[list[Part] | None], None]) -> None:
        """Build the response with an error to a request that is not served, and call ``respond`` with it in a later
        iteration; None if there is no such response."""


class Gate(Protocol):
    """Serves the frames of a connection until its peer is authenticated, and passes requests on to the dispatcher."""

    passed: bool
    """Whether the last frame was passed on."""

    def handle(self, connection: Connection, frame: Frame) -> InFlight | list[Part] | None:
        """See `FrameHandler.handle`."""


class FetchFastPathPort(Protocol):
    """Serves the repeated fetches of one connection."""

    def serve(self, route: Any, correlation_id: int, frame: Frame) -> list[Part] | None:
        """The response; None if the request must take the slow path."""

    def learn(self, route: Any, frame: Frame, offset: int, request: Any, response: Any) -> None:
        """Remember a request that took the slow path, if similar requests can be served here."""


class ProduceFastPathPort(Protocol):
    """Takes requests of one connection from the receive buffer without a copy, and serves them together."""

    taken: list[Any]
    waiting: list[InFlight]
    """The places of requests that `serve` has served, and that wait for other replicas, in order. The connection takes
    them out."""

    def offer(self, buffer: memoryview, start: int, end: int) -> bool:
        """Take the request in ``buffer[start:end]``, if it is one for the fast path. Returns whether it was taken."""

    def serve(self, connection: Connection) -> bytes:
        """Serve the taken requests, up to the first that must take the slow path. Returns the responses of the first
        ones; the others are in `waiting`."""

    def pop_unserved(self) -> tuple[int, int]:
        """Remove the first of the remaining requests. Returns where it begins and ends."""

    def learn(self, route: Any, frame: Frame, request: Any, response: Any) -> None:
        """Remember a request that took the slow path, if similar requests can be taken."""

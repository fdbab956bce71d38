"""Requests to the active controller over one connection, which follows the controller when it changes.

A request that the controller cannot process because it is not active (NOT_CONTROLLER), or whose connection was lost,
is sent again when there is a controller, until its deadline. When another controller becomes active, requests that wait
for the response of the previous one are sent again, too: it may be suspended. So each request must be safe to repeat,
as Apache Kafka's brokers assume as well. A request waits while no controller is known.

Responses on a connection are in order. A slow request must not delay a heartbeat, so each kind of request has its own
channel.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from ...protocol.errors import ErrorCode
from .peers import Connect, Done, Unanswered

if TYPE_CHECKING:
    from ...metadata.observer import Address
    from ...protocol.schema import Request, Versions
    from ..concurrency.timers import Timer, TimerWheel
    from .peers import Peer

_RETRY_MS: Final = 20
"""The pause before a request is sent again to the same controller; it doubles with each attempt."""

_MAX_RETRY_MS: Final = 320


class _PendingRequest:
    """A request without a response."""

    __slots__ = ("attempts", "deadline", "done", "request", "version")

    def __init__(self, request: Request, version: int | None, done: Done) -> None:
        self.request = request
        self.version = version
        self.done = done
        self.attempts = 0
        self.deadline: Timer | None = None


class ControllerChannel:
    """See the module docstring."""

    def __init__(
        self,
        connect: Connect,
        controller: Callable[[], Address | None],
        timers: TimerWheel,
        *,
        client_id: str,
        request_timeout_ms: int,
    ) -> None:
        """`controller` returns the address of the active controller, as far as it is known."""
        self._connect = connect
        self._controller = controller
        self._timers = timers
        self._client_id = client_id
        self._timeout_ms = request_timeout_ms
        self._address: Address | None = None
        self._peer: Peer | None = None
        self._pending: dict[_PendingRequest, None] = {}
        self._waiting: list[_PendingRequest] = []  # for a controller to become known
        self._closed = False

    def request(self, request: Request, done: Done, *, timeout_ms: int, version: int | None = None) -> None:
        """Send a request. `done` receives the response, or `Unanswered` after `timeout_ms`."""
        pending = _PendingRequest(request, version, done)
        if self._closed:
            self._timers.call_after(0, lambda: done(Unanswered("the server stops")))
            return
        self._pending[pending] = None
        pending.deadline = self._timers.call_after(timeout_ms, lambda: self._expired(pending))
        self._send(pending)

    def versions(self, api_key: int) -> Versions | None:
        """The versions of an API that the controller supports; see `Peer.versions`."""
        return None if self._peer is None else self._peer.versions(api_key)

    def controller_changed(self) -> None:
        """The controller may have become known, or have changed: send what waits for it, or for its predecessor."""
        address = self._controller()
        if self._peer is not None and address is not None and address != self._address:
            self._peer.close()  # the requests on it are repeated
            self._peer = None
        waiting, self._waiting = self._waiting, []
        for pending in waiting:
            self._send(pending)

    def close(self) -> None:
        """Close the connection; requests without a response are `Unanswered`."""
        self._closed = True
        pending, self._pending = self._pending, {}
        self._waiting.clear()
        if self._peer is not None:
            self._peer.close()
        for each in pending:
            self._complete(each, Unanswered("the server stops"))

    def _send(self, pending: _PendingRequest) -> None:
        if pending not in self._pending:
            return
        address = self._controller()
        if address is None:
            self._waiting.append(pending)
            return
        if self._peer is None or address != self._address:
            if self._peer is not None:
                self._peer.close()
            self._peer, self._address = self._connect(address, self._client_id), address
        pending.attempts += 1
        self._peer.request(
            pending.request,
            lambda response: self._answered(pending, response),
            timeout_ms=self._timeout_ms,
            version=pending.version,
        )

    def _answered(self, pending: _PendingRequest, response: Any) -> None:
        if pending not in self._pending:
            return
        if response.is_final if isinstance(response, Unanswered) else not _is_from_inactive(response):
            del self._pending[pending]
            self._complete(pending, response)
            return
        pause_ms = min(_RETRY_MS << min(pending.attempts - 1, 10), _MAX_RETRY_MS)
        self._timers.call_after(pause_ms, lambda: self._send(pending))

    def _expired(self, pending: _PendingRequest) -> None:
        if pending in self._pending:
            del self._pending[pending]
            where = f"the controller at {self._address} did not respond" if self._address else "no controller is known"
            self._complete(pending, Unanswered(where))

    def _complete(self, pending: _PendingRequest, response: Any) -> None:
        if pending.deadline is not None:
            pending.deadline.cancel()
        pending.done(response)


def _is_from_inactive(response: Any) -> bool:
    """Whether a controller that is not active has responded."""
    code = getattr(response, "error_code", None)
    if code is not None:
        return bool(code == ErrorCode.NOT_CONTROLLER)
    topics: Any = getattr(response, "topics", None)
    return bool(topics) and all(topic.error_code == ErrorCode.NOT_CONTROLLER for topic in topics)

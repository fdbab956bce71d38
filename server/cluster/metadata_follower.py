"""Follows the metadata log of remote controllers: sends the requests of the observer, and applies the responses.

One request is in flight at a time. The next one is sent when the previous response has been applied completely, so
memory is bounded. A response is applied in slices, and a thread syncs a snapshot. The observer decides where a request
goes, and how long to wait after a failure.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ...metadata.batches import MetadataLogError
from ...metadata.observer import ObserverError
from ..concurrency.slices import outcome
from .peers import Connect, Unanswered

if TYPE_CHECKING:
    import asyncio

    from ...metadata.followed import FollowedMetadata
    from ...metadata.observer import Address
    from ..concurrency.clock import Clock
    from ..concurrency.slices import Sliced, Slices
    from ..concurrency.timers import Timer, TimerWheel
    from .peers import Peer

logger = logging.getLogger(__name__)

_QUIET_MS: Final = 1000
"""Failures for a shorter time are part of every election and restart, and are not logged."""


T = TypeVar("T")

RunInThread = Callable[[Callable[[], Any]], "asyncio.Future[Any]"]
"""Runs a function in a thread."""


class MetadataFollower:
    """See the module docstring."""

    def __init__(
        self,
        metadata: FollowedMetadata,
        connect: Connect,
        timers: TimerWheel,
        slices: Slices,
        now_ms: Clock,
        run_in_thread: RunInThread,
        *,
        request_timeout_ms: int,
        on_applied: Callable[[], None],
        on_end: Callable[[str], None],
    ) -> None:
        """`on_applied` is called after every response. `on_end` is called with the reason if the log cannot be followed
        any longer."""
        self._metadata = metadata
        self._observer = metadata.observer
        self._connect = connect
        self._timers = timers
        self._slices = slices
        self._now_ms = now_ms
        self._run_in_thread = run_in_thread
        self._timeout_ms = request_timeout_ms
        self._on_applied = on_applied
        self._on_end = on_end
        self._client_id = f"raft-client-{metadata.node_id}"
        self._peers: dict[Address, Peer] = {}
        self._timer: Timer | None = None
        self._closed = False
        self._failing_since_ms: int | None = None
        self._logged: str | None = None

    def start(self) -> None:
        """Send the first request."""
        self._send()

    def close(self) -> None:
        """Send nothing more, and ignore what arrives."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        for peer in self._peers.values():
            peer.close()

    @property
    def problem(self) -> str | None:
        """Why the log cannot be followed at the moment."""
        return self._observer.problem

    def _send(self) -> None:
        self._timer = None
        observer = self._observer
        address = observer.destination
        peer = self._peers.get(address)
        if peer is None:
            for other in [each for each in self._peers if each != observer.leader_address]:
                self._peers.pop(other).close()
            peer = self._peers[address] = self._connect(address, self._client_id)
        timeout_ms = self._timeout_ms + observer.extra_wait_ms
        peer.request(observer.request(), self._answered, timeout_ms=timeout_ms)

    def _answered(self, response: Any) -> None:
        if self._closed:
            return
        if isinstance(response, Unanswered):
            self._observer.failed(response.problem)
            self._next()
            return
        self._slices.begin_shielded(self._apply(response), immediately=True)

    def _apply(self, response: Any) -> Sliced[None]:
        try:
            yield from self._metadata.handle(response, self._now_ms(), self._blocking)
        except (ObserverError, MetadataLogError) as error:
            self._closed = True
            self._on_end(str(error))
            return
        if self._closed:
            return
        self._on_applied()
        self._next()

    def _blocking(self, function: Callable[[], T]) -> Sliced[T]:
        return outcome(self._slices, self._run_in_thread(function))

    def _next(self) -> None:
        self._report()
        pause_ms = self._observer.pause_ms
        if pause_ms:
            self._timer = self._timers.call_after(pause_ms, self._send)
        else:
            self._send()

    def _report(self) -> None:
        """Log a lasting problem once, and its end."""
        problem, now_ms = self._observer.problem, self._timers.now_ms()
        if not self._observer.pause_ms:
            if self._logged is not None:
                logger.info("Following the metadata log of %s again", self._observer.destination)
            self._failing_since_ms = self._logged = None
            return
        if self._failing_since_ms is None:
            self._failing_since_ms = now_ms
        text = problem or "no controller is active: an election is in progress"
        if now_ms - self._failing_since_ms >= _QUIET_MS and self._logged is None:
            self._logged = text
            logger.warning("Cannot follow the metadata log (%s); retrying", text)

"""Registers this broker with the active controller and sends its heartbeats: the I/O of `metadata.lifecycle`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ...metadata.features import CORDONED_DIRECTORIES_SINCE
from ...metadata.lifecycle import State
from .peers import Unanswered

if TYPE_CHECKING:
    from ...metadata.followed import FollowedMetadata
    from ...metadata.lifecycle import BrokerLifecycle
    from ..concurrency.timers import Timer, TimerWheel
    from .controller_channel import ControllerChannel

logger = logging.getLogger(__name__)


class BrokerHeartbeats:
    """See the module docstring."""

    def __init__(
        self,
        lifecycle: BrokerLifecycle,
        metadata: FollowedMetadata,
        channel: ControllerChannel,
        timers: TimerWheel,
        *,
        request_timeout_ms: int,
        cordoned: Callable[[], Sequence[bytes]],
        on_end: Callable[[str], None],
    ) -> None:
        """`cordoned` returns the ids of the cordoned log directories. `on_end` is called with the reason if this broker
        cannot be part of the cluster any longer."""
        self.lifecycle = lifecycle
        self._metadata = metadata
        self._channel = channel
        self._timers = timers
        self._timeout_ms = request_timeout_ms
        self._cordoned = cordoned
        self._on_end = on_end
        self._timer: Timer | None = None
        self._closed = False
        self._logged: str | None = None
        self._state = lifecycle.state
        self._waiting: list[tuple[frozenset[State], asyncio.Future[None]]] = []

    def start(self) -> None:
        """Send the registration."""
        self._schedule()

    def close(self) -> None:
        """Send nothing more, and ignore what arrives."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        for _, future in self._waiting:
            future.cancel()

    async def wait_for(self, *states: State) -> State:
        """Return when the lifecycle has reached one of these states, or FAILED."""
        wanted = frozenset((*states, State.FAILED))
        if self.lifecycle.state not in wanted:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((wanted, future))
            await future
        return self.lifecycle.state

    def ready(self) -> None:
        """The partitions exist: the broker can be unfenced."""
        self.lifecycle.ready(self._timers.now_ms())
        self._schedule()

    def begin_shutdown(self) -> None:
        """Ask the controller to move the leaderships."""
        self.lifecycle.begin_shutdown(self._timers.now_ms())
        self._changed()

    def directory_failed(self, directory_id: bytes) -> None:
        """Report a failed log directory."""
        self.lifecycle.directory_failed(directory_id, self._timers.now_ms())
        self._schedule()

    def directories_cordoned(self) -> None:
        """Report which log directories are cordoned."""
        self.lifecycle.directories_cordoned(self._timers.now_ms())
        self._schedule()

    def replayed(self) -> None:
        """The committed metadata has changed."""
        image = self._metadata.image
        registration = image.brokers.get(self._metadata.node_id)
        self.lifecycle.finalized_features = image.features
        self.lifecycle.replayed(registration, image.offset, self._timers.now_ms())
        self._changed()

    def _schedule(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        next_ms = self.lifecycle.next_ms
        if next_ms is not None and not self._closed:
            self._timer = self._timers.call_at(next_ms, self._send)

    def _send(self) -> None:
        self._timer = None
        is_supported = self._metadata.image.metadata_version >= CORDONED_DIRECTORIES_SINCE
        cordoned = self._cordoned() if is_supported else None
        request = self.lifecycle.request(self._metadata.applied_offset, cordoned)
        self._channel.request(request, self._answered, timeout_ms=self._timeout_ms)

    def _answered(self, response: Any) -> None:
        if self._closed:
            return
        now_ms = self._timers.now_ms()
        lifecycle = self.lifecycle
        if isinstance(response, Unanswered):
            lifecycle.failed(response.problem, now_ms)
        else:
            lifecycle.handle(response, now_ms)
        self._changed()

    def _changed(self) -> None:
        lifecycle = self.lifecycle
        self._metadata.registered(lifecycle.broker_epoch)
        self._report()
        if lifecycle.state is not self._state:
            self._state = lifecycle.state
            logger.info("Broker %d is in state %s", self._metadata.node_id, lifecycle.state.value)
        waiting, self._waiting = self._waiting, []
        for states, future in waiting:
            if lifecycle.state not in states:
                self._waiting.append((states, future))
            elif not future.done():
                future.set_result(None)
        if lifecycle.state is State.FAILED:
            self.close()
            self._on_end(lifecycle.error or "")
            return
        self._schedule()

    def _report(self) -> None:
        """Log a problem once, and its end."""
        problem = self.lifecycle.problem
        if problem is not None and problem != self._logged:
            logger.warning("%s; retrying", problem)
        elif problem is None and self._logged is not None:
            logger.info("The controller accepts requests of this broker again")
        self._logged = problem

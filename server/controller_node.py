"""An active controller as the handlers of its listener see it: the log, the sessions of brokers, waiting fetches.

Belongs to one event loop. The decisions are those of `metadata/`; this module keeps their time: it looks for expired
sessions, and completes fetches that wait for a change of the metadata.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from ..metadata.controller import RemoteBrokers
from ..metadata.observer_reads import Observers
from ..metadata.sessions import LOOKS_PER_TIMEOUT, BrokerSessions
from ..protocol.errors import ErrorCode, KafkaError
from .cluster.periodic_elections import PeriodicElections

if TYPE_CHECKING:
    from ..config.broker_config import BrokerConfig
    from ..log.files import FileSystem
    from ..metadata.image import MetadataDelta, MetadataImage
    from ..metadata.quorum import Metadata
    from ..metadata.registrations import Endpoint
    from ..protocol.messages.fetch import FetchResponse
    from .authorizer import Authorizer
    from .concurrency.background import JobExecutor
    from .concurrency.clock import Clock
    from .concurrency.slices import Sliced, SlicedFuture, Slices
    from .concurrency.timers import Timer, TimerWheel
    from .concurrency.turns import Turns
    from .context import MutationQuotas, RequestContext
    from .controller_client import LocalController
    from .network.frames import Frame, Part

logger = logging.getLogger(__name__)

T = TypeVar("T")


class Route(Protocol):
    """One version of an API, for requests in envelopes."""

    header_version: int

    @property
    def decode(self) -> Callable[[Frame, int], tuple[Any, int]]:
        """The request at a position."""

    @property
    def handle(self) -> Callable[[Any, RequestContext, Any], Any]:
        """The handler of the API."""

    @property
    def failed(self) -> Callable[[Any, KafkaError], Any]:
        """The response to a request that failed as a whole."""

    def encode_in_slices(self, correlation_id: int, answer: Any) -> Sliced[list[Part]]:
        """The frame of a response."""


class Routes(Protocol):
    """What an envelope needs of the dispatcher."""

    def route_of(self, key: int, version: int) -> Sliced[Route | None]:
        """The route of an API; None if this version is not served."""

    def call(self, context: RequestContext, route: Route, request: Any) -> Any:
        """The result of the handler of a request inside another one, or of its authorization."""


class ControllerNode:
    """See the module docstring."""

    has_own_configs = False
    """See `Broker`: the broker that forwards a request has checked its name."""

    def __init__(
        self,
        config: BrokerConfig,
        timers: TimerWheel,
        turns: Turns,
        slices: Slices,
        controller: LocalController,
        metadata: Metadata,
        now_ms: Clock,
        threads: JobExecutor,
        file_system: FileSystem,
        dispatcher: Routes,
        decode_client_id: Callable[[Frame, int], tuple[str | None, int]],
        *,
        endpoint: Endpoint,
        authorizer: Authorizer | None = None,
    ) -> None:
        """``endpoint`` is the address that brokers connect to. ``threads`` read pieces of snapshots."""
        self.config = config
        self.timers = timers
        self.slices = slices
        self.controller = controller
        self.metadata = metadata
        self.now_ms = now_ms
        self.file_system = file_system
        self.dispatcher = dispatcher
        self.authorizer = authorizer
        self.mutation_quotas: MutationQuotas | None = None
        """The broker that a client is connected to limits it."""
        self.decode_client_id = decode_client_id
        self.endpoint = endpoint
        self.node_id = metadata.node_id
        self.cluster_id = metadata.cluster_id
        self.fetch_max_bytes = config.int("controller.quorum.fetch.max.bytes")
        self.snapshot_max_bytes = config.int("controller.quorum.fetch.snapshot.max.bytes")
        self.observers = Observers()
        self._turns = turns
        self._threads = threads
        self._local_broker = metadata.node_id if "broker" in config.roles else None
        self._sessions = BrokerSessions(config.int("broker.session.timeout.ms"), self._local_broker)
        self._sessions.is_connected = self._is_connected
        self._connections: dict[int, tuple[int, Callable[[], bool]]] = {}  # epoch and connection of the last heartbeat
        self._waiting: dict[_WaitingFetch, None] = {}  # in the order of their arrival
        self._fencing = False
        self._left: asyncio.Future[None] | None = None
        self._timer: Timer | None = None
        self._elections = PeriodicElections(timers, slices, controller, metadata.controller.context, config)

    def start(self) -> None:
        """Begin the sessions of registered brokers. To be called before the first request."""
        controller = self.metadata.controller
        controller.remote = RemoteBrokers(self._sessions, self.observers, self.timers.now_ms)
        self._sessions.begin(controller.image.brokers.values(), self.timers.now_ms())
        self.metadata.subscribe(self._changed)
        self._look_later()
        self._elections.start()

    def close(self) -> None:
        """Stop looking for expired sessions and for elections, and complete the waiting fetches."""
        self._elections.close()
        if self._timer is not None:
            self._timer.cancel()
        self._wake_fetches()

    def in_thread(self, work: Callable[[], T], result: SlicedFuture[T]) -> None:
        """Run ``work`` in a thread; its outcome becomes the result."""
        self._threads.run(work).add_done_callback(partial(_copy_outcome, result))

    # Sessions

    def contact(self, broker_id: int, broker_epoch: int, is_open: Callable[[], bool]) -> None:
        """A heartbeat has arrived. ``is_open``: whether its connection is."""
        broker = self.metadata.controller.image.brokers.get(broker_id)
        if broker is not None and broker.epoch == broker_epoch and broker_id != self._local_broker:
            self._sessions.contact(broker_id, broker_epoch, self.timers.now_ms())
            self._connections[broker_id] = broker_epoch, is_open

    def _is_connected(self, broker_id: int, broker_epoch: int) -> bool | None:
        epoch, is_open = self._connections.get(broker_id, (-1, None))
        return is_open() if is_open is not None and epoch == broker_epoch else None

    def _look_later(self) -> None:
        self._timer = self.timers.call_after(self._sessions.timeout_ms / LOOKS_PER_TIMEOUT, self._look)

    def _look(self) -> None:
        """Fence the broker whose session has expired first, if there is one."""
        self._look_later()
        if self._fencing:
            return  # a device that does not respond must not collect decisions
        self._sessions.notice_disconnections(self.timers.now_ms())
        if self._sessions.expired(self.timers.now_ms()) is not None:
            self._fencing = True
            self.slices.begin_shielded(self._fence())

    def _fence(self) -> Sliced[None]:
        try:
            fenced = yield from self.controller.decide(self.metadata.controller.fence_expired)
            if fenced is not None:
                logger.warning("Fenced broker %d: no heartbeat, or no connection", fenced)
        except KafkaError as error:
            logger.error("Cannot fence a broker whose session has expired: %s", error.message)
        finally:
            self._fencing = False

    async def brokers_left(self, timeout_s: float) -> None:
        """Return when all brokers of other processes are fenced, or after the timeout."""
        if not self._has_unfenced_brokers():
            return
        left = self._left = asyncio.get_running_loop().create_future()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await left

    def _has_unfenced_brokers(self) -> bool:
        brokers = self.metadata.image.brokers.values()
        return any(not broker.fenced and broker.id != self._local_broker for broker in brokers)

    # Fetches that wait for a change

    def wait_for_change(self, context: RequestContext, max_wait_ms: int, make: Callable[[], FetchResponse]) -> None:
        """Respond with ``make`` after the next change of the metadata, or after ``max_wait_ms``."""
        fetch = _WaitingFetch(context, make, lambda fetch: self._waiting.pop(fetch, None))
        self._waiting[fetch] = None
        fetch.timer = self.timers.call_after(max_wait_ms, fetch.finish)
        context.on_cancel = fetch.forget
        context.on_complete_early = fetch.finish

    def _changed(self, delta: MetadataDelta, image: MetadataImage) -> None:
        self._wake_fetches()
        if self._left is not None and not self._left.done() and not self._has_unfenced_brokers():
            self._left.set_result(None)

    def _wake_fetches(self) -> None:
        for fetch in list(self._waiting):
            self._turns.later(fetch.connection_id, fetch.finish)


class _WaitingFetch:
    """A fetch at the end of the log."""

    __slots__ = ("_context", "_forget", "_make", "timer")

    def __init__(
        self, context: RequestContext, make: Callable[[], FetchResponse], forget: Callable[[_WaitingFetch], None]
    ) -> None:
        self._context = context
        self._make = make
        self._forget: Callable[[_WaitingFetch], None] | None = forget
        self.timer: Timer | None = None

    @property
    def connection_id(self) -> int:
        return self._context.connection_id

    def finish(self) -> None:
        """Respond, once."""
        if self._forget is not None:
            self.forget()
            self._context.reply_with(self._make)

    def forget(self) -> None:
        """The request no longer needs a response."""
        if self._forget is not None:
            self._forget(self)
            self._forget = None
        if self.timer is not None:
            self.timer.cancel()


def _copy_outcome(result: SlicedFuture[T], job: asyncio.Future[T]) -> None:
    if job.cancelled():
        result.fail(KafkaError(ErrorCode.NOT_CONTROLLER, "The controller stops"))
    else:
        result.end_like(job)

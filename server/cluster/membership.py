"""The membership of this broker in a cluster with remote controllers: it joins, and leaves.

    membership = Membership(...)
    await membership.catch_up()     register; the image contains the registration: logs can be loaded
    await membership.serve()        the broker is unfenced: clients can be served
    await membership.leave()        a controlled shutdown: the controller has moved the leaderships
    membership.close()

`failed` is set if the broker cannot be part of the cluster any longer. Each kind of request to the controller has its
own connection, as in Apache Kafka's brokers, because responses on a connection are in order: heartbeats, forwarded
requests of clients, and requests of the broker itself. The metadata log is followed over another one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from ...metadata.features import KEPT_FEATURES
from ...metadata.followed import REGISTERED_FEATURES, FollowedMetadata
from ...metadata.lifecycle import BrokerDescription, BrokerLifecycle, LifecycleSettings, State
from .broker_heartbeats import BrokerHeartbeats
from .controller_channel import ControllerChannel
from .metadata_follower import MetadataFollower
from .remote_controller import RemoteController

if TYPE_CHECKING:
    from ...config.broker_config import BrokerConfig
    from ...metadata.broker_metadata import BrokerMetadata
    from ...metadata.registrations import Endpoint
    from ..concurrency.clock import Clock
    from ..concurrency.slices import Slices
    from ..concurrency.timers import TimerWheel
    from ..storage.joining import JoiningStorage
    from .metadata_follower import RunInThread
    from .peers import Connect

logger = logging.getLogger(__name__)

_FORWARDING_TIMEOUT_MS: Final = 30_000
"""The timeout of a single attempt to forward a request. The request itself may have a shorter one."""


_CLOCK_DIFFERENCE_MS: Final = 60_000


class MembershipError(Exception):
    """The broker cannot join the cluster. The message is for the user."""


class Membership:
    """See the module docstring."""

    def __init__(
        self,
        config: BrokerConfig,
        opened: JoiningStorage,
        listeners: Iterable[Endpoint],
        connect: Connect,
        timers: TimerWheel,
        slices: Slices,
        now_ms: Clock,
        run_in_thread: RunInThread,
        *,
        incarnation_id: bytes,
    ) -> None:
        self.slices = slices
        self.metadata = metadata = opened.metadata
        self._log_manager = opened.storage.log_manager
        self._timers = timers
        self._now_ms = now_ms
        self._controllers = _configured(config)
        self._node_id = metadata.node_id
        timeout_ms = config.int("controller.quorum.request.timeout.ms")
        self._heartbeat_ms = config.int("broker.heartbeat.interval.ms")

        def channel(timeout_ms: int) -> ControllerChannel:
            return ControllerChannel(
                connect,
                lambda: metadata.observer.leader_address,
                timers,
                client_id=str(self._node_id),
                request_timeout_ms=timeout_ms,
            )

        self._heartbeat_channel = channel(timeout_ms)
        self._forwarding_channel = channel(_FORWARDING_TIMEOUT_MS)
        self._own_channel = channel(_FORWARDING_TIMEOUT_MS)
        self._channels = (self._heartbeat_channel, self._forwarding_channel, self._own_channel)
        directories = self._log_manager.online_directories()
        description = BrokerDescription(
            self._node_id,
            metadata.cluster_id,
            incarnation_id,
            tuple(listeners),
            REGISTERED_FEATURES,
            tuple(directory.directory_id for directory in directories),
            config.optional_str("broker.rack"),
        )
        lifecycle = BrokerLifecycle(
            description,
            LifecycleSettings(self._heartbeat_ms, config.int("initial.broker.registration.timeout.ms")),
            timers.now_ms(),
            previous_broker_epoch=opened.previous_broker_epoch,
        )
        self.heartbeats = BrokerHeartbeats(
            lifecycle,
            metadata,
            self._heartbeat_channel,
            timers,
            request_timeout_ms=max(self._heartbeat_ms, timeout_ms),
            cordoned=self._log_manager.cordoned_directories,
            on_end=self._end,
        )
        self.follower = MetadataFollower(
            metadata,
            connect,
            timers,
            slices,
            now_ms,
            run_in_thread,
            request_timeout_ms=timeout_ms,
            on_applied=self._applied,
            on_end=self._end,
        )
        self._leader = metadata.observer.leader_address
        self._started = False
        self.failed: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """The reason why the broker cannot be part of the cluster any longer."""

    def controller(self, metadata: BrokerMetadata) -> RemoteController:
        """The client of the controllers, for a broker with this metadata."""
        assert isinstance(metadata, FollowedMetadata)
        return RemoteController(
            metadata,
            self._forwarding_channel,
            self._own_channel,
            self.slices,
            self._timers,
            # Heartbeats are sent to each controller as soon as it is active; the other channels connect on demand.
            self._heartbeat_channel.versions,
        )

    async def catch_up(self) -> None:
        """Register, and return when the image contains the registration. Raises MembershipError."""
        self.follower.start()
        self.heartbeats.start()
        await self._reach(State.RECOVERY)
        problem = clock_problem(self.metadata.image.timestamp_ms, self._now_ms())  # that of the registration
        if problem is not None:
            logger.warning(problem)
        kept = sorted(name for name in self.metadata.image.features if name in KEPT_FEATURES)
        if kept:
            logger.warning(
                "The cluster has finalized %s, which Moldau does not implement: its clients cannot use these features "
                "on this broker. For a mixed cluster, lower them with kafka-features.sh downgrade --feature %s=0",
                ", ".join(kept),
                kept[0],
            )

    async def serve(self) -> None:
        """The partitions exist: return when the broker is unfenced. Raises MembershipError."""
        self.heartbeats.ready()
        await self._reach(State.RUNNING)

    async def _reach(self, state: State) -> None:
        reached = asyncio.ensure_future(self.heartbeats.wait_for(state))
        waiting: list[asyncio.Future[Any]] = [reached, self.failed]
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        if self.failed.done():
            reached.cancel()
            raise MembershipError(self.failed.result())

    async def leave(self, timeout_s: float) -> None:
        """Ask the controller to move the leaderships, and return when it has done so, or after the timeout."""
        if self.failed.done():
            return
        self.heartbeats.begin_shutdown()
        try:
            async with asyncio.timeout(timeout_s):
                await self._reach(State.SHUTTING_DOWN)
        except TimeoutError:
            logger.warning("The controller has not granted the shutdown within %g s; stopping without it", timeout_s)
        except MembershipError as error:
            logger.warning("Stopping without the controller: %s", error)

    def directory_failed(self, directory_id: bytes) -> None:
        """A log directory has failed: report it with the next heartbeat, which is sent now."""
        self.heartbeats.directory_failed(directory_id)

    def directories_cordoned(self) -> None:
        """Other log directories are cordoned: report them with the next heartbeat, which is sent now."""
        self.heartbeats.directories_cordoned()

    def close(self) -> None:
        """Send nothing more."""
        self.heartbeats.close()
        self.follower.close()
        for channel in self._channels:
            channel.close()
        if not self.failed.done():
            self.failed.cancel()

    def _applied(self) -> None:
        leader = self.metadata.observer.leader_address
        if leader != self._leader:
            self._leader = leader
            for channel in self._channels:
                channel.controller_changed()
        self.heartbeats.replayed()

    def _end(self, reason: str) -> None:
        if self.failed.done():
            return
        problem = self.follower.problem
        if problem and problem not in reason:
            reason = f"{reason} ({problem}). Check that the controllers run at {self._controllers}"
        self.failed.set_result(reason)


def _configured(config: BrokerConfig) -> str:
    """Where the controllers are, according to the settings."""
    for name in ("controller.quorum.bootstrap.servers", "controller.quorum.voters"):
        servers = config.list(name)
        if servers:
            return f"{','.join(servers)} ({name})"
    return "their addresses"


def clock_problem(controller_ms: int, now_ms: int) -> str | None:
    """What is wrong with the clocks, if the controller has just written this timestamp."""
    ahead_ms = controller_ms - now_ms
    if abs(ahead_ms) < _CLOCK_DIFFERENCE_MS:
        return None
    return (
        f"The clock of the active controller is {abs(ahead_ms) // 1000} s "
        f"{'ahead of' if ahead_ms > 0 else 'behind'} that of this broker, so timestamps of records, and retention by "
        "time, differ between brokers. Synchronize the clocks"
    )

"""The server: opens the data, listens, and closes everything in the right order.

`Server` belongs to one event loop and can be embedded, as in `moldau.testing`. `main.run` runs it as a process.

Startup: bind the listeners, lock and load the log directories, replay the metadata, create the partitions, accept
connections. Because the listeners come first, a port that is in use is reported immediately, and early clients wait in
the kernel's queue. Shutdown is the reverse: acknowledged data is flushed and the directory is marked clean, so that the
next startup needs no recovery.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any

from ...config.broker_config import BrokerConfig, Listener
from ...config.definition import ConfigError
from ...security.quotas import KEYS_OF_CLIENTS, QuotaIndex, Window
from ..broker import Broker
from ..requests.dispatch import Dispatcher
from ..requests.load_ahead import LoadAhead, modules_of_requests
from ..storage.opening import Storage, StorageError, open_storage
from .node_server import (
    CLOSE_GRACE_SECONDS,
    NodeServer,
    StartError,
    advertised_address,
    limit_connections,
    require_authorizer,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from ...metadata.image import MetadataDelta, MetadataImage
    from ..cluster.membership import Membership
    from ..metrics.server import MetricsServer
    from ..network.link_security import LinkSecurity
    from ..network.links import Links
    from ..network.listeners import Network, Security
    from .controller_listener import ControllerListener
    from .dynamic_listeners import DynamicListeners
    from .listener_reload import ListenerReload

__all__ = ["Server", "StartError"]

logger = logging.getLogger(__name__)

# Threads that flush the logs at shutdown, as many as for group commit: the journal commits pending syncs together. A
# shutdown with 1,000 new partitions took 9 s with one thread, 3 s with two, and 1 s with 16.
CLOSING_THREADS = 16


_LISTENERS = frozenset({"listeners", "listener.security.protocol.map"})
"""The settings by which listeners are added and removed."""
LEAVE_SECONDS = 10.0
"""How long a shutdown waits for the controllers of the cluster to move the leaderships of this broker."""


class Server(NodeServer):
    """A broker and its controller, with their listening sockets."""

    broker: Broker | None = None
    _storage: Storage | None = None
    _joining: Storage | None = None  # locked, but without logs
    _membership: Membership | None = None
    _links: Links | None = None  # to controllers and other brokers
    _to_brokers: LinkSecurity | None = None
    _controller_listener: ControllerListener | None = None
    _metrics: MetricsServer | None = None
    _dynamic_listeners: DynamicListeners | None = None
    brokers: Collection[int] | None = None
    """The ids of the brokers that the cluster may have, if this node is the controller of others; None: any."""

    async def start(self) -> None:
        """Return when the server accepts requests.

        Raises:
            StartError: an address is in use or not local, or a directory is in use or damaged beyond repair.
        """
        loop = asyncio.get_running_loop()
        config = self.config
        dispatcher = Dispatcher()
        network = self._create_network(loop, dispatcher)
        assert self._timers is not None
        assert self._background is not None
        try:
            # A client whose connection is accepted, and which gets no response, may not look for another leader.
            self._bind(config.listeners, refuse_until_start=config.has_peers)
            self._bind_metrics()
            if config.has_peers:
                from .outgoing_security import to_brokers  # a single node does not need it

                self._to_brokers = self._outgoing(to_brokers)
            if config.has_remote_controllers:
                await self._join()
            else:
                if config.serves_brokers:
                    self._bind_controller(loop)
                self._storage = self._open(self._open_storage)
            membership = self._membership
            assert self._storage is not None
            require_authorizer(config, self._storage.metadata.image)
            self.broker = Broker(
                config,
                loop,
                self._timers,
                self._storage,
                network.read_ahead,
                self._background,
                advertised=self._advertised_to_clients(),
                clock=self._clock,
                rng=self._rng,
                slices=None if membership is None else membership.slices,
                remote=None if membership is None else membership.controller,
                links=self._links,
                to_brokers=self._to_brokers,
                pace=network.pace,
            )
            self.broker.decoder.process.budget = network.budget
            self.broker.load()
            if membership is not None:
                self.broker.publisher.on_directory_failed = membership.directory_failed
                self.broker.on_directories_cordoned = membership.directories_cordoned
                await self._wait(membership.serve())
            else:
                self._watch_directories(self.broker)
        except BaseException:
            await self._abort_startup(self._storage or self._joining)
            raise
        dispatcher.serve(self.broker)
        if self.broker.authorizer is not None:
            self.broker.authorizer.on_changed = network.forget_fast_paths
        _watch_quotas(self.broker, dispatcher, network)
        self.broker.on_config_changed = self._config_changed
        if self._has_other_listeners(self.broker.config):
            await self.dynamic_listeners().load(self.broker.config)
        elif self._reload is not None:
            await self._reload.load(self.broker.config)
        self.broker.listener_reload = _Listeners(self)
        if self._users is not None:
            metadata = self.broker.metadata
            self._users.image = lambda: metadata.image
        self._serve_brokers(self.broker)
        self._expire_tokens(self.broker.controller, self.broker.slices)
        if self._metrics is not None:
            self._metrics.source.serve(self.broker, dispatcher, network)
        try:
            self._accept()
        except BaseException:
            await self._abort_startup(self._storage)
            raise
        LoadAhead(self._timers, modules_of_requests()).start()

    def _watch_directories(self, broker: Broker) -> None:
        """Let the controller of this process know failed and cordoned log directories."""
        metadata, controller = broker.metadata, broker.controller

        def report() -> None:
            from ...metadata.quorum import Metadata
            from ..controller_client import LocalController
            from ..upkeep import own_directories

            assert isinstance(metadata, Metadata)
            assert isinstance(controller, LocalController)
            own_directories.report(metadata, controller, broker.log_manager, broker.slices)

        def changed(delta: MetadataDelta, image: MetadataImage) -> None:
            if delta.has_new_features:
                report()  # the metadata may support cordoned directories now

        broker.publisher.on_directory_failed = lambda directory_id: report()
        broker.on_directories_cordoned = report
        if broker.log_manager.cordoned_directories():
            report()
            metadata.subscribe(changed)

    def _config_changed(self, config: BrokerConfig) -> None:
        limit_connections(self.network, config)
        if self._dynamic_listeners is not None or self._has_other_listeners(config):
            self.dynamic_listeners().reload(config)
        elif self._reload is not None:
            self._reload.reload(config)

    @property
    def reload(self) -> ListenerReload | None:
        """The listeners and links whose settings can change, if there are any."""
        return self._reload

    def _has_other_listeners(self, config: BrokerConfig) -> bool:
        """Whether listeners must be added or removed."""
        try:
            return {each.name for each in config.listeners} != {each.name for each in self.network.listeners}
        except ConfigError as error:
            logger.error("The listeners stay the same: %s", error.message)
            return False

    def dynamic_listeners(self) -> DynamicListeners:
        """Adds and removes listeners."""
        if self._dynamic_listeners is None:
            from .dynamic_listeners import DynamicListeners  # few servers need it
            from .listener_security import security_of

            assert self._background is not None
            assert self.broker is not None
            users, metadata = self._known_users(), self.broker.metadata
            users.image = lambda: metadata.image

            def new_security(config: BrokerConfig, listener: Listener, reload: ListenerReload) -> Security:
                return security_of(config, listener, users, lambda: self.network.timers, reload)

            self._dynamic_listeners = DynamicListeners(
                self.config, self.network, self._background.executor(1), self._changing(), new_security
            )
        return self._dynamic_listeners

    @property
    def membership_lost(self) -> asyncio.Future[str] | None:
        """Completed with the reason if the broker cannot be part of its cluster any longer; None without a cluster."""
        return None if self._membership is None else self._membership.failed

    async def _join(self) -> None:
        """Join the cluster of remote controllers."""
        from ..cluster.joining import Joining  # a server with its own controller does not need it
        from .outgoing_security import to_controllers

        assert self._background is not None
        assert self._timers is not None
        try:
            joining = Joining(
                self.config,
                self._log_dirs,
                self._listening_on(),
                file_system=self._file_system,
                background=self._background,
                timers=self._timers,
                clock=self._clock,
                rng=self._rng,
                security=self._outgoing(to_controllers),
            )
            self._membership = joining.membership
            self._links = joining.links
            self._joining = joining.storage
            await self._wait(joining.run())
        except StorageError as error:
            self._joining = None  # it was abandoned
            raise StartError(str(error)) from error
        self._storage, self._joining = joining.storage, None

    @property
    def metrics_address(self) -> str | None:
        """`HOST:PORT` of the metrics, if they are served."""
        return None if self._metrics is None else self._metrics.address

    def _bind_metrics(self) -> None:
        """Serve and push metrics, if the settings say so: from now on, so that the startup can be watched."""
        wanted = ("moldau.metrics.listener", "moldau.metrics.otlp.endpoint")
        if not any(self.config.optional_str(name) for name in wanted):
            return
        from ..metrics.listener import MetricsError  # other servers do not need it
        from ..metrics.server import MetricsServer

        try:
            self._metrics = MetricsServer(self.config)
        except MetricsError as error:
            raise StartError(str(error)) from None

    def _outgoing(
        self, security_of: Callable[[BrokerConfig, Callable[[], ListenerReload]], LinkSecurity]
    ) -> LinkSecurity:
        """The security of links to other nodes. Raises StartError."""
        try:
            return security_of(self.config, self._changing)
        except ConfigError as error:
            raise StartError(error.message) from None

    async def _wait(self, steps: Coroutine[Any, Any, None]) -> None:
        from ..cluster.membership import MembershipError

        try:
            await steps
        except MembershipError as error:
            raise StartError(str(error)) from error

    def _bind_controller(self, loop: asyncio.AbstractEventLoop) -> None:
        from .controller_listener import ControllerListener  # a controller that serves no other broker does not need it

        self._controller_listener = ControllerListener(self.config, partial(self._new_network, loop), self._security_of)

    def _serve_brokers(self, broker: Broker) -> None:
        if self._controller_listener is not None:
            from ...metadata.quorum import Metadata
            from ..controller_client import LocalController

            assert isinstance(broker.metadata, Metadata)
            assert isinstance(broker.controller, LocalController)
            self._controller_listener.serve(
                broker.metadata,
                broker.controller,
                broker.slices,
                self._clock,
                broker.background,
                self._file_system,
                broker.authorizer,
            )

    async def brokers_left(self) -> None:
        """If this node is the controller of other brokers: return when they have stopped, or after a while."""
        if self._controller_listener is not None and self._controller_listener.node is not None:
            await self._controller_listener.node.brokers_left(LEAVE_SECONDS)

    async def stop(self) -> None:
        """Complete the pending requests, flush, and close; the next startup finds a clean directory."""
        if self._token_expiry is not None:
            self._token_expiry.close()
        if self._dynamic_listeners is not None:
            self._dynamic_listeners.close()
        if self._metrics is not None:
            self._metrics.source.stopping()
        if self._membership is not None:
            await self._membership.leave(LEAVE_SECONDS)
        if self._background is not None:
            self._background.prepare_stop()
        if self.broker is not None:
            await self.broker.coordinators.close()
        if self._controller_listener is not None:
            # Before the broker is closed, which waits for requests to its controller.
            flushed = None if self.broker is None else self.broker.group_commit.wait_idle
            await self._controller_listener.close(CLOSE_GRACE_SECONDS, flushed)
        if self._network is not None:
            # Records that are being flushed will be acknowledged, however slow the disk is.
            flushed = None if self.broker is None else self.broker.group_commit.wait_idle
            await self._network.close(CLOSE_GRACE_SECONDS, flushed)
        if self._metrics is not None:
            await self._metrics.push_last()
        if self._membership is not None:
            self._membership.close()
        if self.broker is not None:
            await self.broker.close()
        if self._background is not None:
            await self._background.close()
        if self._storage is not None:
            high_watermarks = None if self.broker is None else self.broker.replicas.high_watermarks()
            self._storage.close(self._clock(), high_watermarks, threads=CLOSING_THREADS)
        if self._timers is not None:
            self._timers.close()
        if self._metrics is not None:
            self._metrics.close()

    def disconnect(self) -> None:
        """Stop receiving and sending immediately, as in a crash. `stop` must be called afterwards."""
        if self._network is not None:
            self._network.disconnect()

    async def _close_parts(self) -> None:
        if self._metrics is not None:
            self._metrics.close()
        if self._controller_listener is not None:
            await self._controller_listener.close(0)
        if self._membership is not None:
            self._membership.close()
            if self.broker is None:
                self._membership.slices.close()  # a response of the controllers may be applied in slices
        if self.broker is not None:
            await self.broker.coordinators.close()
            await self.broker.close()

    def _open_storage(self) -> Storage:
        return open_storage(
            self.config,
            self._log_dirs,
            self._listening_on(),
            now_ms=self._clock(),
            file_system=self._file_system,
            rng=self._rng,
            allow_non_empty=self._allow_non_empty,
            controller_endpoint=None if self._controller_listener is None else self._controller_listener.endpoint,
            brokers=self.brokers,
        )

    def _listening_on(self) -> list[Listener]:
        """The listeners with their actual ports, as they are registered in the metadata."""
        return [
            Listener(listener.name, *advertised_address(self.config, listener, bound), listener.security_protocol)
            for listener, bound in zip(self.config.listeners, self.network.listeners, strict=True)
        ]

    def _advertised_to_clients(self) -> dict[str, tuple[str, int]]:
        ports = {listener.name: listener.port for listener in self.network.listeners}
        return {
            name: (listener.host, listener.port or ports.get(name, 0))
            for name, listener in self.config.advertised_listeners.items()
        }


class _Listeners:
    """The listeners of a server, as handlers change them; see `context.DynamicListeners`."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def concerns(self, names: Iterable[str]) -> bool:
        """See the protocol."""
        names, reload = list(names), self._server.reload
        return not _LISTENERS.isdisjoint(names) or (reload is not None and reload.concerns(names))

    def check(self, config: BrokerConfig) -> asyncio.Future[str | None]:
        """See the protocol."""
        return self._server.dynamic_listeners().check(config)

    def reload(self, config: BrokerConfig) -> asyncio.Future[None]:
        """See the protocol."""
        return self._server.dynamic_listeners().reload(config)


def _watch_quotas(broker: Broker, dispatcher: Dispatcher, network: Network) -> None:
    """Client quotas are in effect when the response to the request that sets them is sent."""

    def load(image: MetadataImage) -> None:
        index = QuotaIndex(image.client_quotas)
        network.limit_addresses(index.rates_of_addresses())
        if not index.has_any(KEYS_OF_CLIENTS):
            dispatcher.quotas = broker.mutation_quotas = None
        else:
            if dispatcher.quotas is None:
                from ..requests.client_quotas import ClientQuotas  # few servers have quotas

                window = Window(
                    broker.config.int("quota.window.num"), 1000 * broker.config.int("quota.window.size.seconds")
                )
                burst_s = broker.config.int("controller.quota.window.num") * broker.config.int(
                    "controller.quota.window.size.seconds"
                )
                dispatcher.quotas = broker.mutation_quotas = ClientQuotas(broker, window, burst_s)
            dispatcher.quotas.load(index)
        times = dispatcher.loop_time = None if dispatcher.quotas is None else dispatcher.quotas.loop_time
        broker.slices.measured = None if times is None else times.in_slices
        network.forget_fast_paths()

    def apply(delta: MetadataDelta, image: MetadataImage) -> None:
        if delta.before.client_quotas is not delta.after.client_quotas:
            load(image)

    broker.metadata.subscribe(apply)
    if broker.metadata.image.client_quotas:
        load(broker.metadata.image)

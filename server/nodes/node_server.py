"""What the servers of brokers and of controllers share: inputs, listeners, and the failures of a startup."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from random import Random, SystemRandom
from typing import TYPE_CHECKING, Final

from ...config.broker_config import BrokerConfig, Listener
from ...config.connection_overrides import parse_overrides
from ...config.definition import ConfigError
from ...log.files import FileSystem, RealFileSystem
from ...security.quotas import Window
from ..concurrency.background import Background
from ..concurrency.clock import Clock, wall_clock
from ..concurrency.event_loop import turns_of
from ..concurrency.timers import TimerWheel
from ..network.connection_limits import Limits
from ..network.listeners import PLAINTEXT, Network
from ..storage.opening import StorageError

if TYPE_CHECKING:
    import asyncio
    from typing import Protocol, TypeVar

    from ...metadata.image import MetadataImage
    from ..concurrency.slices import Slices
    from ..controller_client import ControllerClient
    from ..network.frames import FrameHandler
    from ..network.listeners import Listener as BoundListener
    from ..network.listeners import Security
    from ..upkeep.token_expiry import TokenExpiry
    from .listener_reload import ListenerReload
    from .listener_security import Users

    class _Abandoned(Protocol):
        def abandon(self) -> None: ...

    _Storage = TypeVar("_Storage")

logger = logging.getLogger(__name__)

# How long a shutdown waits for peers that do not read their responses, and for waiting fetches.
CLOSE_GRACE_SECONDS = 0.5
_UNENFORCED_ACLS: Final = "moldau.allow.unenforced.acls"


class StartError(Exception):
    """The server cannot start; the message states the reason and what to do."""


class NodeServer:
    """A node with its listening sockets. It belongs to one event loop.

    ``log_dirs`` are the data directories. The config's ``log.dirs`` is ignored, so that an ephemeral server can use
    other directories.
    """

    def __init__(
        self,
        config: BrokerConfig,
        log_dirs: list[str],
        *,
        durable: bool = True,
        file_system: FileSystem | None = None,
        clock: Clock = wall_clock,
        rng: Random | None = None,
        allow_non_empty: bool = False,
    ) -> None:
        """``clock`` and ``rng`` are the only inputs besides the event loop, the files and the requests; the defaults
        are the machine's. ``allow_non_empty``: see `open_storage`."""
        self.config = config
        self._log_dirs = log_dirs
        self._allow_non_empty = allow_non_empty
        self._clock = clock
        self._rng = rng or SystemRandom()
        self._file_system = file_system or RealFileSystem(durable=durable)
        self._timers: TimerWheel | None = None
        self._background: Background | None = None
        self._network: Network | None = None
        self._users: Users | None = None
        self._reload: ListenerReload | None = None
        self._token_expiry: TokenExpiry | None = None

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Host and port of every listener, after `start` has bound it. A port of 0 is replaced by the actual port."""
        return [(listener.host, listener.port) for listener in self._network.listeners] if self._network else []

    @property
    def bootstrap_servers(self) -> str:
        """The first listener as ``HOST:PORT``."""
        host, port = self.addresses[0]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    @property
    def network(self) -> Network:
        """The connections of a started server."""
        assert self._network is not None, "not started"
        return self._network

    def _create_network(self, loop: asyncio.AbstractEventLoop, handler: FrameHandler) -> Network:
        """Create the timers, the threads and the network, without listeners."""
        self._timers = TimerWheel(loop, clock=turns_of(loop).clock)
        self._background = Background(loop)
        self._background.start()
        self._network = self._new_network(loop, handler)
        return self._network

    def _new_network(self, loop: asyncio.AbstractEventLoop, handler: FrameHandler) -> Network:
        """A network with its own limits."""
        config = self.config
        assert self._timers is not None
        assert self._background is not None
        network = Network(
            loop,
            self._timers,
            handler,
            self._background,
            max_request_bytes=config.int("socket.request.max.bytes"),
            queued_max_request_bytes=config.int("queued.max.request.bytes"),
            max_idle_ms=config.int("connections.max.idle.ms"),
            backlog=self._chosen("socket.listen.backlog.size"),
            send_buffer_bytes=self._chosen("socket.send.buffer.bytes"),
            receive_buffer_bytes=self._chosen("socket.receive.buffer.bytes"),
            authentication_timeout_ms=config.int("moldau.authentication.timeout.ms"),
            pace=None if self._network is None else self._network.pace,
        )
        limit_connections(network, config)
        return network

    def _chosen(self, name: str) -> int:
        """A socket setting if it is set explicitly, otherwise -1 for the kernel's default.

        Linux tunes buffers better than Kafka's fixed defaults. A backlog of 50 drops connections at busy moments, and
        each of those clients waits a second before it retries.
        """
        return self.config.int(name) if self.config.origin(name) != "default" else -1

    def _bind(self, listeners: Iterable[Listener], *, refuse_until_start: bool = False) -> None:
        """Bind the listeners. Raises StartError."""
        for listener in listeners:
            bind(self.network, listener, self._security_of(listener), refuse_until_start=refuse_until_start)

    def _security_of(self, listener: Listener) -> Security:
        """The security of a listener of this node. Raises StartError."""
        if listener.security_protocol == "PLAINTEXT":
            return PLAINTEXT
        from .listener_security import security_of  # a server without security does not need it

        users, reload = self._known_users(), self._changing()
        try:
            return security_of(self.config, listener, users, lambda: self.network.timers, reload)
        except ConfigError as error:
            raise StartError(error.message) from None

    def _known_users(self) -> Users:
        from .listener_security import Users  # a server without security does not need it

        if self._users is None:
            assert self._background is not None
            self._users = Users(self.config, self._clock, self._rng.randbytes, self._background.executor)
        return self._users

    def _changing(self) -> ListenerReload:
        """The listeners and links whose settings can change."""
        from .listener_reload import ListenerReload  # a server without security does not need it

        if self._reload is None:
            assert self._background is not None
            self._reload = ListenerReload(self._background.executor(1))
        return self._reload

    def _expire_tokens(self, controller: ControllerClient, slices: Slices) -> None:
        """Remove expired delegation tokens at intervals, if there may be any and this node is their controller."""
        from ..controller_client import LocalController

        if self.config.token_secret is None or not isinstance(controller, LocalController):
            return
        from ..upkeep.token_expiry import TokenExpiry  # few servers have tokens

        interval_ms = self.config.int("delegation.token.expiry.check.interval.ms")
        self._token_expiry = TokenExpiry(self.network.timers, slices, controller, self._clock, interval_ms)

    def _accept(self) -> None:
        """Accept connections. Raises StartError."""
        for listener in self.network.listeners:
            with _start_errors(listener.host, listener.port):
                listener.start()

    def _open(self, open_directories: Callable[[], _Storage]) -> _Storage:
        """Open the storage. Raises StartError."""
        try:
            return open_directories()
        except StorageError as error:
            raise StartError(str(error)) from error
        except OSError as error:
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            advice = "Free some space; no data was lost" if full else "Check the disk and the permissions"
            raise StartError(
                f"Cannot use the data in {', '.join(self._log_dirs)}: {error.strerror or error}. "
                f"{advice}, then start the server again."
            ) from error

    async def _abort_startup(self, storage: _Abandoned | None) -> None:
        """Close everything without a flush. `_close_parts` closes what needs the network to be closed first."""
        assert self._timers is not None
        assert self._background is not None
        self._background.prepare_stop()
        await self.network.close(0)
        await self._close_parts()
        await self._background.close()
        if storage is not None:
            storage.abandon()
        self._timers.close()

    async def _close_parts(self) -> None:
        """Close the parts of the node that an aborted startup has created."""


def require_authorizer(config: BrokerConfig, image: MetadataImage) -> None:
    """Raises StartError if the metadata has ACLs that this node would not enforce."""
    if config.str("authorizer.class.name") or not image.access_control_entries:
        return
    problem = "The metadata has ACLs, but authorizer.class.name is not set, so every client would have full access"
    if not config.bool(_UNENFORCED_ACLS):
        raise StartError(
            f"{problem}. Set it to org.apache.kafka.metadata.authorizer.StandardAuthorizer. To start nevertheless, for "
            f"example in order to read the data, set {_UNENFORCED_ACLS}=true"
        )
    logger.warning("%s (%s)", problem, _UNENFORCED_ACLS)


def bind(
    network: Network, listener: Listener, security: Security = PLAINTEXT, *, refuse_until_start: bool = False
) -> None:
    """Bind a listener. Raises StartError."""
    with _start_errors(listener.host, listener.port):
        network.listen(listener.name, listener.host, listener.port, security, refuse_until_start=refuse_until_start)


@contextmanager
def _start_errors(host: str, port: int) -> Iterator[None]:
    """Translates errors of listening on this address into StartError."""
    try:
        yield
    except OSError as error:
        where = f"{host or '*'}:{port}"
        if error.errno == errno.EADDRINUSE:
            raise StartError(
                f"{where} is in use by another server. "
                "Stop it, or use another address with --listen HOST:PORT (port 0 selects a free port)."
            ) from None
        if error.errno == errno.EACCES:
            raise StartError(f"No permission to listen on {where}; use a port above 1023.") from None
        raise StartError(f"Cannot listen on {where}: {error.strerror or error}.") from None


def advertised_address(config: BrokerConfig, configured: Listener, bound: BoundListener) -> tuple[str, int]:
    """Host and actual port at which other nodes connect to a listener."""
    address = config.advertised_listeners.get(configured.name, configured)
    host = address.host if address.host not in ("", "0.0.0.0", "::") else os.uname().nodename
    return host, address.port or bound.port


def limit_connections(network: Network, config: BrokerConfig) -> None:
    """Apply the settings that limit the number of connections. An invalid dynamic setting changes nothing."""
    own: dict[str, dict[str, int]] = {"max.connections": {}, "max.connection.creation.rate": {}}
    try:
        for listener in config.listeners:
            settings = config.for_listener(listener.name)
            for name, values in own.items():
                if settings.is_own(name):
                    values[listener.name] = settings.int(name)
        of_addresses = parse_overrides(config.str("max.connections.per.ip.overrides"))
    except ConfigError as error:
        logger.warning("%s", error)
        return
    network.set_limits(
        Limits(
            config.int("max.connections"),
            own["max.connections"],
            config.int("max.connections.per.ip"),
            of_addresses,
            config.int("max.connection.creation.rate"),
            own["max.connection.creation.rate"],
            Window(config.int("quota.window.num"), 1000 * config.int("quota.window.size.seconds")),
            config.inter_broker_listener_name if len(config.listeners) > 1 else None,
        )
    )

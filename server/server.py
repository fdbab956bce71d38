"""The server: opens the data, listens, and closes everything in the right order.

`Server` belongs to one event loop and can be embedded, as in `moldau.testing`. `main.run` runs it as a process.

Startup: bind the listeners, lock and load the log directories, replay the metadata, create the partitions, accept
connections. Because the listeners come first, a port that is in use is reported immediately, and early clients wait in
the kernel's queue. Shutdown is the reverse: acknowledged data is flushed and the directory is marked clean, so that the
next startup needs no recovery.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
from collections.abc import Coroutine
from random import Random, SystemRandom
from typing import TYPE_CHECKING, Any

from ..config.broker_config import BrokerConfig, Listener
from ..log.files import FileSystem, RealFileSystem
from .broker import Broker
from .concurrency.background import Background
from .concurrency.clock import Clock, wall_clock
from .concurrency.event_loop import turns_of
from .concurrency.timers import TimerWheel
from .network.listeners import Network, UnsupportedProtocol
from .network.transport import TRANSPORTS
from .requests.dispatch import Dispatcher
from .requests.load_ahead import LoadAhead, modules_of_requests
from .storage.opening import Storage, StorageError, open_storage

if TYPE_CHECKING:
    from .cluster.membership import Membership

logger = logging.getLogger(__name__)

# How long a shutdown waits for peers that do not read their responses, and for waiting fetches.
CLOSE_GRACE_SECONDS = 0.5

# Threads that flush the logs at shutdown, as many as for group commit: the journal commits pending syncs together. A
# shutdown with 1,000 new partitions took 9 s with one thread, 3 s with two, and 1 s with 16.
CLOSING_THREADS = 16


LEAVE_SECONDS = 10.0
"""How long a shutdown waits for the controllers of the cluster to move the leaderships of this broker."""


class StartError(Exception):
    """The server cannot start; the message states the reason and what to do."""


class Server:
    """A broker and its controller, with their listening sockets.

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
        self._allow_non_empty = allow_non_empty
        self._clock = clock
        self._rng = rng or SystemRandom()
        self._log_dirs = log_dirs
        self._file_system = file_system or RealFileSystem(durable=durable)
        self._timers: TimerWheel | None = None
        self._background: Background | None = None
        self._network: Network | None = None
        self._storage: Storage | None = None
        self._joining: Storage | None = None  # locked, but without logs
        self._membership: Membership | None = None
        self.broker: Broker | None = None

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

    async def start(self) -> None:
        """Return when the server accepts requests.

        Raises:
            StartError: an address is in use or not local, or a directory is in use or damaged beyond repair.
        """
        loop = asyncio.get_running_loop()
        self._timers = TimerWheel(loop, clock=turns_of(loop).clock)
        dispatcher = Dispatcher()
        config = self.config
        self._background = Background(loop)
        self._background.start()
        self._network = Network(
            loop,
            self._timers,
            dispatcher,
            self._background,
            max_request_bytes=config.int("socket.request.max.bytes"),
            queued_max_request_bytes=config.int("queued.max.request.bytes"),
            max_idle_ms=config.int("connections.max.idle.ms"),
            backlog=self._chosen("socket.listen.backlog.size"),
            send_buffer_bytes=self._chosen("socket.send.buffer.bytes"),
            receive_buffer_bytes=self._chosen("socket.receive.buffer.bytes"),
        )
        try:
            for listener in config.listeners:
                bind(self._network, listener)
            if config.has_remote_controllers:
                await self._join()
            else:
                self._storage = self._open_storage(self._clock())
            membership = self._membership
            assert self._storage is not None
            self.broker = Broker(
                config,
                loop,
                self._timers,
                self._storage,
                self._network.read_ahead,
                self._background,
                advertised=self._advertised(),
                clock=self._clock,
                rng=self._rng,
                slices=None if membership is None else membership.slices,
                remote=None if membership is None else membership.controller,
            )
            self.broker.decoder.process.budget = self._network.budget
            self.broker.load()
            if membership is not None:
                self.broker.publisher.on_directory_failed = membership.directory_failed
                await self._wait(membership.serve())
        except BaseException:
            await self._abort()
            raise
        dispatcher.serve(self.broker)
        for accepting in self._network.listeners:
            accepting.start()
        LoadAhead(self._timers, modules_of_requests()).start()

    @property
    def membership_lost(self) -> asyncio.Future[str] | None:
        """Completed with the reason if the broker cannot be part of its cluster any longer; None without a cluster."""
        return None if self._membership is None else self._membership.failed

    async def _join(self) -> None:
        """Join the cluster of remote controllers."""
        from .cluster.joining import Joining  # a server with its own controller does not need it

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
            )
            self._membership = joining.membership
            self._joining = joining.storage
            await self._wait(joining.run())
        except StorageError as error:
            self._joining = None  # it was abandoned
            raise StartError(str(error)) from error
        self._storage, self._joining = joining.storage, None

    async def _wait(self, steps: Coroutine[Any, Any, None]) -> None:
        from .cluster.membership import MembershipError

        try:
            await steps
        except MembershipError as error:
            raise StartError(str(error)) from error

    async def stop(self) -> None:
        """Complete the pending requests, flush, and close; the next startup finds a clean directory."""
        if self._membership is not None:
            await self._membership.leave(LEAVE_SECONDS)
        if self._background is not None:
            self._background.prepare_stop()
        if self.broker is not None:
            await self.broker.coordinators.close()
        if self._network is not None:
            # Records that are being flushed will be acknowledged, however slow the disk is.
            flushed = None if self.broker is None else self.broker.group_commit.wait_idle
            await self._network.close(CLOSE_GRACE_SECONDS, flushed)
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

    def disconnect(self) -> None:
        """Stop receiving and sending immediately, as in a crash. `stop` must be called afterwards."""
        if self._network is not None:
            self._network.disconnect()

    async def _abort(self) -> None:
        assert self._network is not None
        assert self._timers is not None
        assert self._background is not None
        self._background.prepare_stop()
        await self._network.close(0)
        if self._membership is not None:
            self._membership.close()
        if self.broker is not None:
            await self.broker.coordinators.close()
            await self.broker.close()
        await self._background.close()
        storage = self._storage or self._joining
        if storage is not None:
            storage.abandon()
        self._timers.close()

    def _open_storage(self, now_ms: int) -> Storage:
        try:
            return open_storage(
                self.config,
                self._log_dirs,
                self._listening_on(),
                now_ms=now_ms,
                file_system=self._file_system,
                rng=self._rng,
                allow_non_empty=self._allow_non_empty,
            )
        except StorageError as error:
            raise StartError(str(error)) from error
        except OSError as error:
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            advice = "Free some space; no data was lost" if full else "Check the disk and the permissions"
            raise StartError(
                f"Cannot use the data in {', '.join(self._log_dirs)}: {error.strerror or error}. "
                f"{advice}, then start the server again."
            ) from error

    def _chosen(self, name: str) -> int:
        """A socket setting if it is set explicitly, otherwise -1 for the kernel's default.

        Linux tunes buffers better than Kafka's fixed defaults. A backlog of 50 drops connections at busy moments, and
        each of those clients waits a second before it retries.
        """
        return self.config.int(name) if self.config.origin(name) != "default" else -1

    def _listening_on(self) -> list[Listener]:
        """The listeners with their actual ports, as they are registered in the metadata."""
        assert self._network is not None
        advertised = self.config.advertised_listeners
        listening = []
        for configured, bound in zip(self.config.listeners, self._network.listeners, strict=True):
            address = advertised.get(configured.name, configured)
            host = address.host if address.host not in ("", "0.0.0.0", "::") else os.uname().nodename
            listening.append(Listener(configured.name, host, address.port or bound.port, configured.security_protocol))
        return listening

    def _advertised(self) -> dict[str, tuple[str, int]]:
        assert self._network is not None
        ports = {listener.name: listener.port for listener in self._network.listeners}
        return {
            name: (listener.host, listener.port or ports.get(name, 0))
            for name, listener in self.config.advertised_listeners.items()
        }


def bind(network: Network, listener: Listener) -> None:
    """Bind a listener. Raises StartError."""
    try:
        network.listen(listener.name, listener.host, listener.port, listener.security_protocol)
    except OSError as error:
        where = f"{listener.host or '*'}:{listener.port}"
        if error.errno == errno.EADDRINUSE:
            raise StartError(
                f"{where} is in use by another server. "
                "Stop it, or use another address with --listen HOST:PORT (port 0 selects a free port)."
            ) from None
        if error.errno == errno.EACCES:
            raise StartError(f"No permission to listen on {where}; use a port above 1023.") from None
        raise StartError(f"Cannot listen on {where}: {error.strerror or error}.") from None
    except UnsupportedProtocol:
        raise StartError(
            f"The listener {listener.name} uses {listener.security_protocol}, "
            f"and only {', '.join(TRANSPORTS)} is supported yet."
        ) from None

"""The server of a node that is only a controller (`process.roles=controller`): the only voter of its quorum.

Brokers register with it, fetch the metadata log, and forward requests to it. Startup and shutdown have the order of
`server.Server`. While the controller does not run, brokers continue to serve the partitions that they lead, but nothing
can be changed.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
from random import Random, SystemRandom
from typing import TYPE_CHECKING

from ..log.files import FileSystem, RealFileSystem
from ..metadata.registrations import Endpoint
from .concurrency.background import Background
from .concurrency.clock import Clock, wall_clock
from .concurrency.event_loop import EndOfIteration, turns_of
from .concurrency.file_jobs import FileJobs
from .concurrency.slices import Slices
from .concurrency.timers import TimerWheel
from .controller_apis import CONTROLLER_APIS
from .controller_client import LocalController
from .controller_node import ControllerNode
from .network.listeners import Network
from .records.group_commit import GroupCommit
from .requests.dispatch import Dispatcher, decode_client_id
from .server import CLOSE_GRACE_SECONDS, StartError, bind
from .storage.controller_storage import ControllerStorage, open_controller_storage
from .storage.opening import SECURITY_PROTOCOLS, StorageError
from .upkeep.metadata_snapshots import MetadataSnapshots
from .upkeep.trash import Trash

if TYPE_CHECKING:
    from ..config.broker_config import BrokerConfig

logger = logging.getLogger(__name__)

_THREADS = 4
"""Maximum number of concurrent reads of snapshots."""


class ControllerServer:
    """A controller with its listening sockets. Like `server.Server`, it belongs to one event loop."""

    broker = None
    membership_lost = None

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
        """See `Server`."""
        self.config = config
        self._log_dirs = log_dirs
        self._clock = clock
        self._rng = rng or SystemRandom()
        self._file_system = file_system or RealFileSystem(durable=durable)
        self._allow_non_empty = allow_non_empty
        self._timers: TimerWheel | None = None
        self._background: Background | None = None
        self._network: Network | None = None
        self._storage: ControllerStorage | None = None
        self._group_commit: GroupCommit | None = None
        self._slices: Slices | None = None
        self._snapshots: MetadataSnapshots | None = None
        self._trash: Trash | None = None
        self.node: ControllerNode | None = None

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Host and port of every listener, after `start` has bound it."""
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
        """Return when the server accepts requests. Raises StartError."""
        loop = asyncio.get_running_loop()
        config = self.config
        self._timers = timers = TimerWheel(loop, clock=turns_of(loop).clock)
        self._background = background = Background(loop)
        background.start()
        dispatcher = Dispatcher(CONTROLLER_APIS)
        self._network = network = Network(
            loop,
            timers,
            dispatcher,
            background,
            max_request_bytes=config.int("socket.request.max.bytes"),
            queued_max_request_bytes=config.int("queued.max.request.bytes"),
            max_idle_ms=config.int("connections.max.idle.ms"),
            backlog=-1,
        )
        try:
            for listener in config.controller_listeners:
                bind(network, listener)
            self._storage = self._open_storage()
            turns = turns_of(loop)
            self._slices = slices = Slices(loop.call_soon, clock=turns.clock)
            run_soon = EndOfIteration(loop.call_soon)
            self._group_commit = group_commit = GroupCommit(loop, background, self._clock, run_soon)
            metadata = self._storage.metadata
            self.node = ControllerNode(
                config,
                timers,
                turns,
                slices,
                LocalController(metadata, slices, group_commit, self._clock, timers),
                metadata,
                self._clock,
                background.executor(_THREADS),
                self._file_system,
                dispatcher,
                decode_client_id,
                endpoint=self._endpoint(),
            )
            self.node.start()
            file_jobs = FileJobs(background.executor(_THREADS))
            delay_ms = metadata.settings.delete_delay_ms
            self._trash = Trash(loop, file_jobs, timers, self._storage, self._clock, lambda: delay_ms)
            self._snapshots = MetadataSnapshots(
                loop,
                file_jobs,
                timers,
                metadata,
                self._storage,
                self._clock,
                self._trash,
                group_commit.flush,
                slices,
            )
        except BaseException:
            await self._abort()
            raise
        dispatcher.serve_node(self.node)
        for accepting in network.listeners:
            accepting.start()

    async def stop(self) -> None:
        """Complete the pending requests, flush, and close."""
        if self._background is not None:
            self._background.prepare_stop()
        if self.node is not None:
            self.node.close()
        if self._network is not None:
            flushed = None if self._group_commit is None else self._group_commit.wait_idle
            await self._network.close(CLOSE_GRACE_SECONDS, flushed)
        if self._snapshots is not None:
            await self._snapshots.close()
        if self._trash is not None:
            await self._trash.close()
        if self._group_commit is not None and self._storage is not None and self._slices is not None:
            if self._storage.metadata.is_changing:
                await self._group_commit.flush(self._storage.metadata.log)
            await self._group_commit.wait_idle()
            self._slices.close()
            await self._group_commit.close()
        if self._background is not None:
            await self._background.close()
        if self._storage is not None:
            self._storage.close(self._clock())
        if self._timers is not None:
            self._timers.close()

    async def _abort(self) -> None:
        assert self._network is not None
        assert self._timers is not None
        assert self._background is not None
        self._background.prepare_stop()
        await self._network.close(0)
        await self._background.close()
        if self._storage is not None:
            self._storage.abandon()
        self._timers.close()

    def _open_storage(self) -> ControllerStorage:
        try:
            return open_controller_storage(
                self.config,
                self._log_dirs,
                self._endpoint(),
                now_ms=self._clock(),
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

    def _endpoint(self) -> Endpoint:
        """The first listener, as brokers connect to it."""
        configured, bound = self.config.controller_listeners[0], self.network.listeners[0]
        address = self.config.advertised_listeners.get(configured.name, configured)
        host = address.host if address.host not in ("", "0.0.0.0", "::") else os.uname().nodename
        protocol = SECURITY_PROTOCOLS[configured.security_protocol]
        return Endpoint(configured.name, host, address.port or bound.port, protocol)

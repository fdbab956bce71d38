"""The server of a node that is only a controller (`process.roles=controller`): the only voter of its quorum.

Brokers register with it, fetch the metadata log, and forward requests to it. Startup and shutdown have the order of
`server.Server`. While the controller does not run, brokers continue to serve the partitions that they lead, but nothing
can be changed.
"""

from __future__ import annotations

import asyncio

from ..metadata.registrations import Endpoint
from .concurrency.event_loop import EndOfIteration, turns_of
from .concurrency.file_jobs import FileJobs
from .concurrency.slices import Slices
from .controller_apis import CONTROLLER_APIS
from .controller_client import LocalController
from .controller_node import ControllerNode
from .node_server import CLOSE_GRACE_SECONDS, NodeServer, advertised_address
from .records.group_commit import GroupCommit
from .requests.dispatch import Dispatcher, decode_client_id
from .storage.controller_storage import ControllerStorage, open_controller_storage
from .storage.opening import SECURITY_PROTOCOLS
from .upkeep.metadata_snapshots import MetadataSnapshots
from .upkeep.trash import Trash

_THREADS = 4
"""Maximum number of concurrent reads of snapshots."""


class ControllerServer(NodeServer):
    """A controller with its listening sockets."""

    broker = None
    membership_lost = None

    node: ControllerNode | None = None
    _storage: ControllerStorage | None = None
    _group_commit: GroupCommit | None = None
    _slices: Slices | None = None
    _snapshots: MetadataSnapshots | None = None
    _trash: Trash | None = None

    async def start(self) -> None:
        """Return when the server accepts requests. Raises StartError."""
        loop = asyncio.get_running_loop()
        config = self.config
        dispatcher = Dispatcher(CONTROLLER_APIS)
        self._create_network(loop, dispatcher)
        assert self._timers is not None
        assert self._background is not None
        timers, background = self._timers, self._background
        try:
            self._bind(config.controller_listeners)
            self._storage = self._open(self._open_storage)
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
            await self._abort_startup(self._storage)
            raise
        dispatcher.serve_node(self.node)
        self._accept()

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

    def _open_storage(self) -> ControllerStorage:
        return open_controller_storage(
            self.config,
            self._log_dirs,
            self._endpoint(),
            now_ms=self._clock(),
            file_system=self._file_system,
            rng=self._rng,
            allow_non_empty=self._allow_non_empty,
        )

    def _endpoint(self) -> Endpoint:
        """The first listener, as brokers connect to it."""
        configured = self.config.controller_listeners[0]
        host, port = advertised_address(self.config, configured, self.network.listeners[0])
        return Endpoint(configured.name, host, port, SECURITY_PROTOCOLS[configured.security_protocol])

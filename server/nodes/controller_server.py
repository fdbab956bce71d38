"""The server of a node that is only a controller (`process.roles=controller`): the only voter of its quorum.

Brokers register with it, fetch the metadata log, and forward requests to it. Startup and shutdown have the order of
`server.Server`. While the controller does not run, brokers continue to serve the partitions that they lead, but nothing
can be changed.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from ...metadata.image import BROKER_RESOURCE
from ..concurrency.event_loop import EndOfIteration, turns_of
from ..concurrency.file_jobs import FileJobs
from ..concurrency.slices import Slices
from ..controller_client import LocalController
from ..records.group_commit import GroupCommit
from ..storage.controller_storage import ControllerStorage, open_controller_storage
from ..upkeep.metadata_snapshots import MetadataSnapshots
from ..upkeep.trash import Trash
from .controller_listener import ControllerListener
from .node_server import CLOSE_GRACE_SECONDS, NodeServer, require_authorizer

if TYPE_CHECKING:
    from ...metadata.image import MetadataDelta, MetadataImage
    from ..authorizer import Authorizer
    from .listener_reload import ListenerReload

_THREADS = 4
"""Maximum number of concurrent file operations."""


class ControllerServer(NodeServer):
    """A controller with its listening sockets."""

    broker = None
    membership_lost = None

    _listener: ControllerListener | None = None
    _storage: ControllerStorage | None = None
    _group_commit: GroupCommit | None = None
    _slices: Slices | None = None
    _snapshots: MetadataSnapshots | None = None
    _trash: Trash | None = None

    async def start(self) -> None:
        """Return when the server accepts requests. Raises StartError."""
        loop = asyncio.get_running_loop()
        config = self.config
        try:
            self._listener = listener = ControllerListener(
                config, partial(self._create_network, loop), self._security_of
            )
            assert self._timers is not None
            assert self._background is not None
            timers, background = self._timers, self._background
            self._storage = self._open(self._open_storage)
            turns = turns_of(loop)
            self._slices = slices = Slices(loop.call_soon, clock=turns.clock)
            run_soon = EndOfIteration(loop.call_soon)
            self._group_commit = group_commit = GroupCommit(loop, background, self._clock, run_soon)
            metadata = self._storage.metadata
            require_authorizer(config, metadata.image)
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
        controller = LocalController(metadata, slices, group_commit, self._clock, timers)
        if self._users is not None:
            self._users.image = lambda: metadata.image
        authorizer: Authorizer | None = None
        if config.str("authorizer.class.name"):
            from ..authorizer import new_authorizer  # a controller without ACLs does not need it

            authorizer = new_authorizer(config, metadata, timers, loop.time, listener.network.pace)
        self._expire_tokens(controller, slices)
        if self._reload is not None:
            await self._reload.load(metadata.broker_config)
            metadata.subscribe(partial(self._apply, self._reload))
        listener.serve(metadata, controller, slices, self._clock, background, self._file_system, authorizer)

    def _apply(self, reload: ListenerReload, delta: MetadataDelta, _image: MetadataImage) -> None:
        """A committed change: settings of this node may have new certificates."""
        if self._storage is not None and any(resource.type == BROKER_RESOURCE for resource in delta.configs):
            reload.reload(self._storage.metadata.broker_config)

    async def stop(self) -> None:
        """Complete the pending requests, flush, and close."""
        if self._token_expiry is not None:
            self._token_expiry.close()
        if self._background is not None:
            self._background.prepare_stop()
        if self._listener is not None:
            flushed = None if self._group_commit is None else self._group_commit.wait_idle
            await self._listener.close(CLOSE_GRACE_SECONDS, flushed)
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
        assert self._listener is not None
        return open_controller_storage(
            self.config,
            self._log_dirs,
            self._listener.endpoint,
            now_ms=self._clock(),
            file_system=self._file_system,
            rng=self._rng,
            allow_non_empty=self._allow_non_empty,
        )

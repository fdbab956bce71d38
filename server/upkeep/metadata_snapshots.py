"""Snapshots of the metadata in the running server: a snapshot is written when it is due, then old files are deleted.

A snapshot is due when the log has grown by `metadata.log.max.record.bytes.between.snapshots`, which is checked with
every change, or after `metadata.log.max.snapshot.interval.ms`, which is checked periodically. The snapshot is encoded
from the immutable image on the event loop, in slices, while changes continue. Threads do the file I/O, including the
flush of the log.

A snapshot does not contain the deleted topics. Startup looks for them in the log when a power failure has brought their
directories back (`ownership`). Therefore the names in the log directories are synced before the snapshot is
completed. No snapshot is written while a log directory is offline, or while the broker still deletes topics.

A full or failing disk leaves the existing files unchanged. The error is logged once, and the snapshot is retried later.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from ...protocol.errors import ErrorCode, KafkaError
from ..controller_client import until_done

if TYPE_CHECKING:
    from ...log.directory import LogDirectory
    from ...log.partition_log import Log
    from ...metadata.broker_metadata import BrokerMetadata
    from ...metadata.image import MetadataDelta, MetadataImage
    from ...metadata.snapshots import SnapshotFile
    from ..concurrency.clock import Clock
    from ..concurrency.file_jobs import FileJobs
    from ..concurrency.slices import Sliced, Slices
    from ..concurrency.timers import Timer, TimerWheel
    from .trash import Trash

logger = logging.getLogger(__name__)

SLICE_SECONDS = 0.001
"""How long a slice of encoding blocks the event loop."""

_LOOK_MS = 60_000


class LogDirectories(Protocol):
    """The log directories of a node."""

    @property
    def directories(self) -> Sequence[LogDirectory]:
        """All of them; also those that are offline."""

    def sync_names(self) -> None:
        """Make the names of partitions durable. Runs in a thread. Raises OSError."""


class MetadataSnapshots:
    """Runs from the server's startup to its shutdown."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        file_jobs: FileJobs,
        timers: TimerWheel,
        metadata: BrokerMetadata,
        log_directories: LogDirectories,
        now_ms: Clock,
        trash: Trash,
        flush: Callable[[Log], Awaitable[bool]],
        slices: Slices,
    ) -> None:
        """``flush`` makes a log durable; see `GroupCommit.flush`."""
        self._loop = loop
        self._file_jobs = file_jobs
        self._timers = timers
        self._metadata = metadata
        self._log_directories = log_directories
        self._now_ms = now_ms
        self._trash = trash
        self._flush = flush
        self._slices = slices
        interval_ms = metadata.settings.snapshot_interval_ms
        self._check_ms = min(_LOOK_MS, interval_ms) if interval_ms > 0 else _LOOK_MS
        self._problem: str | None = None
        self._not_before_ms = 0
        self._working = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._begun: asyncio.Future[SnapshotFile] | None = None  # waits for pending changes
        self._closed = False
        metadata.subscribe(self._changed)
        self._timer: Timer = timers.call_after(0, self._check)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is being written."""
        return self._task is None

    async def close(self) -> None:
        """Start no more work. A snapshot in progress is discarded: the shutdown writes another one."""
        self._closed = True
        self._timer.cancel()
        if self._begun is not None:
            self._begun.cancel()  # the changes may wait for a device that does not respond
        if self._task is not None:
            await asyncio.wait([self._task])

    def _changed(self, delta: MetadataDelta, image: MetadataImage) -> None:
        if self._task is None and self._metadata.snapshot_reason(self._now_ms()) is not None:
            self._start()

    def _check(self) -> None:
        if self._task is None:
            self._start()
        self._timer = self._timers.call_after(self._check_ms, self._check)

    def _start(self) -> None:
        if not self._closed and self._now_ms() >= self._not_before_ms:
            self._task = self._loop.create_task(self._run())

    async def _run(self) -> None:
        try:
            await self.work()
        except Exception:
            logger.exception("Maintenance of the metadata log failed with an unexpected error; it is retried")
            self._not_before_ms = self._now_ms() + _LOOK_MS
        finally:
            self._task = None

    async def work(self) -> None:
        """Write a snapshot if one is due, and delete old files."""
        async with self._working:
            await self._work()

    async def _work(self) -> None:
        try:
            reason = self._metadata.snapshot_reason(self._now_ms())
            if reason is not None and all(directory.online for directory in self._log_directories.directories):
                await self._write_snapshot(reason)
            for done in self._metadata.clean(self._now_ms()):
                logger.info("Metadata log: %s", done)
        except (KafkaError, OSError) as error:
            self._not_before_ms = self._now_ms() + _LOOK_MS
            if self._problem is None:
                logger.error(
                    "Cannot write a metadata snapshot (%s). The log and the latest snapshot are unchanged; "
                    "retrying every %d s",
                    error.message if isinstance(error, KafkaError) else error,
                    _LOOK_MS // 1000,
                )
            self._problem = str(error)
        else:
            if self._problem is not None:
                logger.info("Maintenance of the metadata log works again")
            self._problem = None
        if deleted := self._metadata.take_trash():
            self._trash.add(deleted, self._metadata.settings.delete_delay_ms)

    async def _begin(self) -> SnapshotFile:
        """Begin a snapshot once every pending change is committed. No other change is decided in the meantime.

        Raises:
            asyncio.CancelledError: the server stops.
        """
        begun: asyncio.Future[SnapshotFile] = self._loop.create_future()
        self._begun = begun

        def steps() -> Sliced[None]:
            try:
                while (change := self._metadata.last_pending) is not None:
                    yield from until_done(change, self._slices)
                while self._metadata.is_changing:
                    yield 0
                if not begun.done():
                    begun.set_result(self._metadata.begin_snapshot(self._now_ms()))
            except (KafkaError, OSError) as error:
                begun.set_exception(error)
            finally:
                if not begun.done():
                    begun.cancel()  # the server stops, or the step has failed with an unexpected error

        self._slices.begin_shielded(self._slices.exclusively(steps()), immediately=True)
        return await begun

    async def _write_snapshot(self, reason: str) -> None:
        snapshot = await self._begin()
        try:
            if not await self._flush(self._metadata.log):
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the metadata log could not be flushed")
            until = self._loop.time() + SLICE_SECONDS
            while snapshot.encode():
                if snapshot.wants_to_write:
                    await self._file_jobs.run(snapshot.write)
                elif self._loop.time() >= until:
                    await asyncio.sleep(0)  # yield to requests
                else:
                    continue
                if self._closed:
                    await self._file_jobs.run(snapshot.discard)
                    return
                until = self._loop.time() + SLICE_SECONDS
            # Partitions that were deleted before the snapshot was begun have been renamed already.
            await self._file_jobs.run(self._log_directories.sync_names)
            await self._file_jobs.run(snapshot.finish)
        except BaseException:
            await self._file_jobs.run(snapshot.discard)
            raise
        self._metadata.end_snapshot(snapshot, self._now_ms())
        logger.info("Wrote metadata snapshot %s (%d bytes): %s", snapshot.id.file_name, snapshot.size, reason)

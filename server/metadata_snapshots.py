"""Snapshots of the metadata in the running server: when one is due it is written, and then what is too old goes.

A snapshot is due when the log has grown by `metadata.log.max.record.bytes.between.snapshots`, which is looked at with
every change, or after `metadata.log.max.snapshot.interval.ms`, which is looked at now and then. It is encoded from the
immutable image on the loop, in slices, while changes go on; the device is left to a thread.

A snapshot no longer tells which topics were deleted, which a start asks the log of directories that a loss of power has
brought back (`ownership`). So the names in the log directories are on the device before the snapshot, and while one of
them is offline there is none.

A disk that is full, or fails, leaves what there was before. That is told once, and tried again later.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from ..protocol.errors import KafkaError

if TYPE_CHECKING:
    from ..log.manager import LogManager
    from ..metadata.image import MetadataDelta, MetadataImage
    from ..metadata.quorum import Metadata
    from .chores import Chores
    from .clock import Clock
    from .timers import Timer, TimerWheel
    from .trash import Trash

logger = logging.getLogger(__name__)

SLICE_SECONDS = 0.001
"""How long encoding keeps the loop at a time."""

_LOOK_MS = 60_000


class MetadataSnapshots:
    """From the server's start to its stop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        chores: Chores,
        timers: TimerWheel,
        metadata: Metadata,
        log_manager: LogManager,
        now_ms: Clock,
        trash: Trash,
    ) -> None:
        self._loop = loop
        self._chores = chores
        self._timers = timers
        self._metadata = metadata
        self._log_manager = log_manager
        self._now_ms = now_ms
        self._trash = trash
        interval_ms = metadata.settings.snapshot_interval_ms
        self._look_ms = min(_LOOK_MS, interval_ms) if interval_ms > 0 else _LOOK_MS
        self._problem: str | None = None
        self._not_before_ms = 0
        self._working = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        metadata.subscribe(self._changed)
        self._timer: Timer = timers.call_after(0, self._look)

    @property
    def is_idle(self) -> bool:
        """Nothing is being written."""
        return self._task is None

    async def close(self) -> None:
        """Begin nothing more. A snapshot that is being written is given up: a stop writes its own."""
        self._closed = True
        self._timer.cancel()
        if self._task is not None:
            await asyncio.wait([self._task])

    def _changed(self, delta: MetadataDelta, image: MetadataImage) -> None:
        if self._task is None and self._metadata.snapshot_reason(self._now_ms()) is not None:
            self._start()

    def _look(self) -> None:
        if self._task is None:
            self._start()
        self._timer = self._timers.call_after(self._look_ms, self._look)

    def _start(self) -> None:
        if not self._closed and self._now_ms() >= self._not_before_ms:
            self._task = self._loop.create_task(self._run())

    async def _run(self) -> None:
        try:
            await self.work()
        except Exception:
            logger.exception("The metadata log could not be looked after; it is tried again later")
            self._not_before_ms = self._now_ms() + _LOOK_MS
        finally:
            self._task = None

    async def work(self) -> None:
        """Write a snapshot if one is due, and let go of what is too old."""
        async with self._working:
            await self._work()

    async def _work(self) -> None:
        try:
            reason = self._metadata.snapshot_reason(self._now_ms())
            if reason is not None and all(directory.online for directory in self._log_manager.directories):
                await self._write_snapshot(reason)
            for done in self._metadata.clean(self._now_ms()):
                logger.info("Metadata log: %s", done)
        except (KafkaError, OSError) as error:
            self._not_before_ms = self._now_ms() + _LOOK_MS
            if self._problem is None:
                logger.error(
                    "No snapshot of the metadata could be written (%s). The log and the last one stay as they are; "
                    "it is tried again every %d s",
                    error.message if isinstance(error, KafkaError) else error,
                    _LOOK_MS // 1000,
                )
            self._problem = str(error)
        else:
            if self._problem is not None:
                logger.info("The metadata log is looked after again")
            self._problem = None
        if deleted := self._metadata.take_trash():
            self._trash.add(deleted, self._metadata.settings.delete_delay_ms)

    async def _write_snapshot(self, reason: str) -> None:
        snapshot = self._metadata.begin_snapshot(self._now_ms())
        try:
            until = self._loop.time() + SLICE_SECONDS
            while snapshot.encode():
                if snapshot.wants_to_write:
                    await self._chores.run(snapshot.write)
                elif self._loop.time() >= until:
                    await asyncio.sleep(0)  # requests go first
                else:
                    continue
                if self._closed:
                    await self._chores.run(snapshot.discard)
                    return
                until = self._loop.time() + SLICE_SECONDS
            # Partitions that were deleted before it was begun have been renamed.
            await self._chores.run(self._log_manager.sync_names)
            await self._chores.run(snapshot.finish)
        except BaseException:
            await self._chores.run(snapshot.discard)
            raise
        self._metadata.end_snapshot(snapshot, self._now_ms())
        logger.info(
            "Wrote the snapshot %s of the metadata (%d bytes): %s", snapshot.id.file_name, snapshot.size, reason
        )

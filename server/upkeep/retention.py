"""Retention in the running server: every `log.retention.check.interval.ms` the old segments of all partitions are
deleted (`log.retention` decides which segments are old).

The check runs in slices, because there may be thousands of partitions. A partition without old segments costs some
microseconds. After startup the largest timestamp of a first segment is only in its time index: threads read these
indexes ahead, for a group of partitions at a time.

Before segments are deleted, the data that replaces them must be durable: the names of the following files and the
snapshot of producers. Otherwise a power failure could lose more records than retention allows. Usually this data is
durable already, because sealed segments are flushed. If not, it is flushed with `group_commit`. Then the decision is
made again, because the log has changed in the meantime.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from ...log.retention import OldSegments, count_segments, explain
from ...protocol.errors import KafkaError

if TYPE_CHECKING:
    from ...log.files import FileSystem
    from ...log.partition_log import Log
    from ...replication.partition import Partition
    from ...replication.replicas import Replicas
    from ..concurrency.clock import Clock
    from ..concurrency.file_jobs import FileJobs
    from ..concurrency.timers import Timer, TimerWheel
    from .trash import Trash

logger = logging.getLogger(__name__)

SLICE_SECONDS = 0.001
"""How long a slice of the check blocks the event loop, except for the deletion in one partition."""

_GROUP = 256
# The last entry of a time index.
_ENTRY_BYTES = 12


class Retention:
    """Runs periodically, from the server's startup to its shutdown."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        file_jobs: FileJobs,
        timers: TimerWheel,
        replicas: Replicas,
        trash: Trash,
        file_system: FileSystem,
        now_ms: Clock,
        flush: Callable[[Log], Awaitable[object]],
        *,
        initial_delay_ms: int,
        interval_ms: int,
    ) -> None:
        """`flush` makes a log durable, with `GroupCommit`, because a log has at most one flush in progress."""
        self._loop = loop
        self._file_jobs = file_jobs
        self._timers = timers
        self._replicas = replicas
        self._trash = trash
        self._file_system = file_system
        self._now_ms = now_ms
        self._flush = flush
        self._interval_ms = interval_ms
        self._checking = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self._timer: Timer = timers.call_after(initial_delay_ms, self._due)

    async def close(self) -> None:
        """Start no more work, and wait for the work in progress: at most the deletion in one partition."""
        self._closed = True
        self._timer.cancel()
        if self._task is not None:
            await asyncio.wait([self._task])

    def _due(self) -> None:
        self._task = self._loop.create_task(self._run())

    async def _run(self) -> None:
        try:
            await self.check()
        except Exception:
            logger.exception("Retention failed with an unexpected error; it is retried")
        finally:
            self._task = None
            if not self._closed:
                self._timer = self._timers.call_after(self._interval_ms, self._due)

    async def check(self) -> None:
        """Check every partition, and delete its old segments."""
        async with self._checking:
            until = self._loop.time() + SLICE_SECONDS
            partitions = list(self._replicas)
            for start in range(0, len(partitions), _GROUP):
                group = partitions[start : start + _GROUP]
                await self._read_ahead(group)
                for partition in group:
                    if self._loop.time() >= until:
                        await asyncio.sleep(0)  # yield to requests
                        until = self._loop.time() + SLICE_SECONDS
                    if self._closed:
                        return
                    try:
                        found = partition.log.find_old_segments(partition.high_watermark, self._now_ms())
                        if found:
                            await self._delete(partition, found)
                    except KafkaError as error:
                        if self._is_served(partition):
                            logger.error("Cannot delete old segments: %s", error.message)

    def _is_served(self, partition: Partition) -> bool:
        """Whether the partition is still served. It may have been deleted, or its directory may have failed."""
        return (
            self._replicas.partition_by_key(partition.topic_id, partition.index) is partition and not partition.offline
        )

    async def _delete(self, partition: Partition, found: list[OldSegments]) -> None:
        log = partition.log
        count = count_segments(found)
        all_of_them = count == len(log.segments)
        if all_of_them:
            log.roll(self._now_ms())
        end = log.segments[count].base_offset
        if all_of_them or log.recovery_point < end:
            await self._flush(log)
        # The log may have changed in the meantime. Records that were appended since then stay until the next check.
        limit = min(partition.high_watermark, log.recovery_point, log.segments.active.base_offset)
        log_start_offset = log.log_start_offset
        found = log.find_old_segments(limit, self._now_ms())
        if not found:
            return
        log.delete_first_segments(count_segments(found))
        logger.info(
            "Deleted %d segments of %s-%d (%d bytes; %s): the log start offset is now %d",
            count_segments(found),
            partition.topic,
            partition.index,
            sum(old.size for old in found),
            explain(found, log_start_offset=log_start_offset, config=log.config),
            log.log_start_offset,
        )
        partition.log_start_moved()
        self._trash.deleted()

    async def _read_ahead(self, partitions: Sequence[Partition]) -> None:
        """Read the entries of time indexes that the check needs into memory, unless they have been read before."""
        paths = []
        for partition in partitions:
            log = partition.log
            segment = log.segments[0]
            if (
                log.config.deletes
                and log.config.retention_ms >= 0
                and segment.size
                and not segment.knows_max_timestamp
                and not partition.offline
            ):
                paths.append(segment.time_index.path)
        if paths:
            await self._file_jobs.run(partial(_read_last_entries, self._file_system, paths))


def _read_last_entries(file_system: FileSystem, paths: Sequence[str]) -> None:
    """Runs in a thread. Errors are ignored: the check meets them again."""
    for path in paths:
        with contextlib.suppress(OSError):
            file = file_system.open(path)
            try:
                file.read_ahead(max(file.size() - _ENTRY_BYTES, 0), _ENTRY_BYTES)
            finally:
                file.close()

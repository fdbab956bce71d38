"""Truncates the logs of followers. The event loop does not wait for the device:

1. A thread writes checkpoints of recovery points that are not ahead of the truncated logs, and syncs them.
2. The state of the producers before the truncation is read in slices (`Log.prepare_truncation`).
3. The files are truncated, on the event loop.
4. A flush of each log syncs that (`records.group_commit`). Its follower requests nothing before it has ended.

If records are appended to a log in between, because the broker leads the partition now, or because the flush was
postponed, the append waits for the device (`Log.truncate_to`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from ...replication.following import Next
from ..concurrency.slices import outcome

if TYPE_CHECKING:
    import asyncio

    from ...log.manager import LogManager
    from ...log.partition_log import Log
    from ...replication.following import Following
    from ..concurrency.background import JobExecutor
    from ..concurrency.clock import Clock
    from ..concurrency.slices import Sliced, Slices
    from ..concurrency.timers import TimerWheel

Truncated = Callable[["Following", Next], None]


class Truncations:
    """See the module docstring."""

    def __init__(
        self,
        slices: Slices,
        timers: TimerWheel,
        now_ms: Clock,
        log_manager: LogManager,
        executor: JobExecutor,
        flush: Callable[[Log], asyncio.Future[bool]],
    ) -> None:
        self._slices = slices
        self._timers = timers
        self._now_ms = now_ms
        self._log_manager = log_manager
        self._executor = executor
        self._flush = flush

    def run(self, followed: Iterable[Following], max_pause_ms: int, truncated: Truncated) -> Sliced[None]:
        """Perform the truncations of these partitions, and return when they are durable. ``truncated`` is called with
        the outcome of each."""
        waiting = [each for each in followed if each.truncation is not None]
        yield from self._lower_checkpoints(waiting)
        flushes: list[asyncio.Future[bool]] = []
        for following in waiting:
            prepared = yield from following.prepare_truncation()
            if following.truncation is None:
                continue
            step = following.truncate(
                now_ms=self._timers.now_ms(),
                wall_ms=self._now_ms(),
                max_pause_ms=max_pause_ms,
                sync=False,
                prepared=prepared,
            )
            truncated(following, step)
            if following.partition.log.cut_is_unsynced:
                flushes.append(self._flush(following.partition.log))
            yield 0
        for flush in flushes:
            yield from outcome(self._slices, flush)

    def _lower_checkpoints(self, followed: Iterable[Following]) -> Sliced[None]:
        offsets = {each.partition.log: each.truncation.offset for each in followed if each.truncation is not None}
        files = self._log_manager.begin_truncations(offsets)
        if files is None:
            return
        yield from self._in_thread(files.run)
        sync_names = self._log_manager.end_truncation_checkpoints(files, offsets)
        if sync_names is not None:
            try:
                yield from self._in_thread(sync_names)
            except OSError as error:
                for log in offsets:
                    log.fail(error)

    def _in_thread(self, work: Callable[[], None]) -> Sliced[Any]:
        return outcome(self._slices, self._executor.run(work))

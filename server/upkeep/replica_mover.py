"""Moves of replicas between the log directories of a broker (KIP-113), while clients write to them and read.

`log.future_log` defines what a move does to the files, and `log.manager` the swap. This module runs the moves:

1. `move` creates the `-future` directory immediately. DescribeLogDirs reports it; the next startup resumes the move.
2. A move waits for one of `num.replica.alter.log.dirs.threads`, by default as many as there are log directories. From
   then on the log cleaner does not compact the log.
3. The log is copied in steps, each in a thread, until little is missing.
4. Flushes of the log are held. The last step makes all data durable, and the checkpoints of the target directory get
   entries for the log. Appends that need a flush wait in the meantime; readers and other writers do not wait.
5. The controller assigns the replica to the new directory (KIP-858). Its response may take long. When the assignment is
   durable, the last bytes are copied on the event loop, and the directories are renamed. If that is no longer possible,
   the controller assigns the replica to the old directory again, before flushes continue: a startup that finds only the
   copy uses it if the metadata names its directory.
6. Both log directories are synced. Then flushes continue, and the old directory is scheduled for removal.

An I/O error takes the device's log directory offline, as everywhere, and ends the move. A full disk ends the move with
an error in the log. A clean shutdown leaves an empty `-future` directory, so that the next startup restarts the move,
also in Apache Kafka: a clean shutdown must not leave a partial segment.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from ...log.future_log import CopyError
from ...protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ...log.directory import LogDirectory
    from ...log.future_log import Copy, FutureLog
    from ...log.manager import LogManager
    from ...replication.partition import Partition
    from ...replication.replicas import Replicas
    from ..concurrency.background import Background
    from ..concurrency.slices import Sliced
    from ..records.group_commit import GroupCommit
    from .directory_assignments import DirectoryAssignments
    from .housekeeping import Housekeeping
    from .log_cleaner import LogCleaner
    from .trash import Trash

logger = logging.getLogger(__name__)

STEP_BYTES = 8 << 20
"""The most bytes that one step copies and syncs."""

NEARLY_THERE_BYTES = 4 << 20
"""Flushes are held when no more bytes than this are missing."""

ON_LOOP_BYTES = 128 << 10
"""The most bytes that are copied on the event loop. For a log that grows quickly, each attempt doubles the limit."""

_ATTEMPTS = 7
_THROTTLE_STEP_SECONDS = 0.1
_NO_LIMIT = 1 << 62


class _MoveEndedError(Exception):
    """The move was replaced or cancelled, its partition was deleted, or the server is shutting down."""


class ReplicaMover:
    """See the module docstring. Belongs to the broker's event loop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        background: Background,
        log_manager: LogManager,
        replicas: Replicas,
        *,
        group_commit: GroupCommit,
        housekeeping: Housekeeping,
        log_cleaner: LogCleaner,
        trash: Trash,
        assignments: DirectoryAssignments,
        threads: int,
        bytes_per_second: Callable[[], int],
    ) -> None:
        """``bytes_per_second`` is the current throttle of all moves together."""
        self._loop = loop
        self._manager = log_manager
        self._replicas = replicas
        self._group_commit = group_commit
        self._housekeeping = housekeeping
        self._log_cleaner = log_cleaner
        self._trash = trash
        self._assignments = assignments
        self._bytes_per_second = bytes_per_second
        self._tasks: set[asyncio.Task[None]] = set()
        self._slots = asyncio.Semaphore(threads)
        self._executor = background.executor(threads)
        self._not_before = 0.0  # the throttle: the earliest time of the next step, on the event loop's clock
        self._closing = asyncio.Event()

    def move(self, partition: Partition, directory: LogDirectory) -> Sliced[None]:
        """Move a replica to one of this broker's log directories.

        This replaces a move to another directory. A move to the replica's current directory only ends the other move.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR, UNKNOWN_TOPIC_OR_PARTITION.
        """
        key = (partition.topic, partition.index)
        if not (yield from self._assign_present(partition)):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if partition.offline:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{partition.topic}-{partition.index} is offline")
        future = self._manager.futures.get(key)
        if future is not None:
            if future.directory is directory:
                return
            self._manager.end_move(future)
            self._trash.deleted()
        if self._manager.directory_of(*key) is not directory:
            self._begin(partition, directory)

    def resume(self) -> Sliced[None]:
        """Restart the moves that were in progress when the previous process ended."""
        found, self._manager.interrupted_moves = self._manager.interrupted_moves, []
        for topic, index, directory, path in found:
            partition = self._replicas.partition_by_key(topic, index)
            if partition is None or partition.offline or not directory.online:
                continue
            try:
                if not (yield from self._assign_present(partition)) or partition.offline:
                    continue
                if (topic, index) not in self._manager.futures:
                    self._begin(partition, directory)
                self._manager.retire(topic, index, directory, path)
                self._trash.deleted()
            except (KafkaError, OSError) as error:
                logger.error("The move of %s-%d to %s cannot be resumed: %s", topic, index, directory.path, error)

    async def close(self) -> None:
        """End all moves; the next startup restarts them."""
        self._closing.set()
        if self._tasks:
            await asyncio.wait(self._tasks)
        for future in list(self._manager.futures.values()):
            self._discard_copy(future)

    def _discard_copy(self, future: FutureLog) -> None:
        """Replace an incomplete copy with an empty directory."""
        key = (future.log.topic, future.log.partition)
        log_dir = future.directory
        self._manager.end_move(future)
        try:
            self._manager.end_move(self._manager.begin_move(*key, log_dir), keep=True)
        except KafkaError as error:
            logger.error(
                "The move of %s-%d to %s will not be resumed by the next startup: %s", *key, log_dir.path, error.message
            )

    def _assign_present(self, partition: Partition) -> Sliced[bool]:
        """Report the replica's current directory to the controller, before a copy exists that could be taken for it.

        Returns whether the partition still exists: it may be deleted, or its directory may fail, in the meantime.
        """
        current = self._manager.directory_of(partition.topic, partition.index)
        if current is not None and not partition.offline:
            yield from self._assignments.assign(partition, current)
        return self._replicas.partition_by_key(partition.topic, partition.index) is partition

    def _begin(self, partition: Partition, directory: LogDirectory) -> None:
        if self._closing.is_set():
            return  # the server stopped while a request to the controller was pending
        current = self._manager.directory_of(partition.topic, partition.index)
        assert current is not None
        future = self._manager.begin_move(partition.topic, partition.index, directory)
        logger.info("Moving %s-%d from %s to %s", partition.topic, partition.index, current.path, directory.path)
        task = self._loop.create_task(self._run(partition, future))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, partition: Partition, future: FutureLog) -> None:
        name = f"{partition.topic}-{partition.index}"
        target = future.directory.path
        try:
            await self._move(partition, future)
        except _MoveEndedError:
            return  # the code that ended the move has logged it
        except CopyError as failure:
            if self._manager.futures.get((partition.topic, partition.index)) is not future:
                return  # its files have been deleted
            logger.error("Moving %s to %s failed: %s", name, target, self._manager.move_failed(future, failure).message)
        except KafkaError as error:
            logger.error("Moving %s to %s failed: %s", name, target, error.message)
        except Exception:
            logger.exception("Moving %s to %s failed with an unexpected error", name, target)
        else:
            logger.info("Moved %s to %s", name, target)
            return
        # If the log's own directory has failed, the copy may be the only data that a later startup finds.
        self._manager.end_move(future, keep=future.log.offline is not None)
        self._trash.deleted()

    async def _move(self, partition: Partition, future: FutureLog) -> None:
        """Steps 2 to 6 of the module docstring."""
        cleaner = self._log_cleaner
        await self._wait_for_slot()
        try:
            self._check(future)
            await cleaner.pause(partition.topic, partition.index)
            try:
                while True:
                    await self._catch_up(future)
                    if await self._swap(partition, future):
                        return
            finally:
                await cleaner.resume(partition.topic, partition.index)
        finally:
            self._slots.release()

    async def _wait_for_slot(self) -> None:
        """Wait for one of the slots, or for the shutdown."""
        turn = asyncio.ensure_future(self._slots.acquire())
        closing = asyncio.ensure_future(self._closing.wait())
        await asyncio.wait([turn, closing], return_when=asyncio.FIRST_COMPLETED)
        closing.cancel()
        if not turn.done():
            turn.cancel()
            raise _MoveEndedError

    def _check(self, future: FutureLog) -> None:
        """Raise if the move must not continue."""
        key = (future.log.topic, future.log.partition)
        if self._closing.is_set() or self._manager.futures.get(key) is not future:
            raise _MoveEndedError
        if not future.directory.online:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{future.directory.path} is offline")

    async def _catch_up(self, future: FutureLog) -> None:
        """Copy until little is missing."""
        while True:
            self._check(future)
            if future.missing_bytes() <= NEARLY_THERE_BYTES:
                return
            rate = self._bytes_per_second()
            step_bytes = min(STEP_BYTES, max(int(rate * _THROTTLE_STEP_SECONDS), 1))
            copy = future.begin_copy(step_bytes)
            if copy is None:
                return
            await self._copy(future, copy)
            await self._throttle(copy.bytes, rate)

    async def _throttle(self, copied_bytes: int, rate: int) -> None:
        if rate >= _NO_LIMIT:
            return
        now = self._loop.time()
        self._not_before = max(self._not_before, now) + copied_bytes / max(rate, 1)
        try:
            async with asyncio.timeout(self._not_before - now):
                await self._closing.wait()
        except TimeoutError:
            return

    async def _copy(self, future: FutureLog, copy: Copy, *, last: bool = False) -> None:
        try:
            await self._executor.run(copy.run)
        except BaseException:
            copy.release()
            raise
        if last:
            # Before the copy counts as complete: the move may have been cancelled in the meantime.
            self._check(future)
        future.end_copy(copy, last=last)
        self._check(future)

    async def _swap(self, partition: Partition, future: FutureLog) -> bool:
        """Steps 4 to 6. Returns false if the log grows too fast."""
        log = future.log
        group_commit = self._group_commit
        await group_commit.pause(log)
        try:
            for attempt in range(_ATTEMPTS):
                self._check(future)
                await self._copy(future, future.begin_last_copy(), last=True)
                if not attempt:
                    await self._write_checkpoints()
                    continue  # the next step syncs their names, which must not be durable before the log's
                if await self._rename(partition, future, ON_LOOP_BYTES << attempt):
                    return True
            return False
        finally:
            future.postpone_swap()
            group_commit.resume(log)

    async def _write_checkpoints(self) -> None:
        await self._housekeeping.write_checkpoints()
        await self._housekeeping.write_start_offsets()
        await self._log_cleaner.write_checkpoint()

    async def _rename(self, partition: Partition, future: FutureLog, max_missing_bytes: int) -> bool:
        """Steps 5 and 6. Returns false if too many bytes are missing, or if data of the copy is not durable."""
        if not _is_ready(future, max_missing_bytes):
            return False
        source = self._manager.directory_of(partition.topic, partition.index)
        assert source is not None
        retired: str | None = None
        try:
            await self._assign(partition, future)
            self._check(future)
            if _is_ready(future, max_missing_bytes):
                retired = self._manager.swap(future)
        finally:
            if retired is None:
                await self._assign_back(partition, source)
        if retired is None:
            return False
        for directory in (source, future.directory):
            if directory.online:
                try:
                    await self._executor.run(partial(self._manager.file_system.sync_directory, directory.path))
                except OSError as error:
                    self._manager.directory_failed(directory, error)
        if source.online and future.directory.online:
            self._manager.add_trash(retired)
            self._trash.deleted()
        return True

    async def _assign(self, partition: Partition, future: FutureLog) -> None:
        try:
            await self._assignments.assigned(partition, future.directory)
        except KafkaError:
            self._check(future)  # the error may be the result of a shutdown, or of a deletion of the topic
            raise

    async def _assign_back(self, partition: Partition, source: LogDirectory) -> None:
        """The replica stays in its directory, although the controller may have assigned it to the target."""
        if not source.online or self._replicas.partition_by_key(partition.topic, partition.index) is not partition:
            return
        try:
            await self._assignments.assigned(partition, source)
        except KafkaError as error:
            name = f"{partition.topic}-{partition.index}"
            logger.error("Cannot report that %s is still in %s: %s", name, source.path, error)


def _is_ready(future: FutureLog, max_missing_bytes: int) -> bool:
    """Whether the copy may replace the log, and at most this many bytes are missing."""
    return future.is_durable and future.missing_bytes() <= max_missing_bytes

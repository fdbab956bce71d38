"""Moves of replicas between the log directories of a broker (KIP-113), while they are written to and read.

What a move does to the files is in `log.future_log`, the swap in `log.manager`. Here is its course:

1. `move` makes the `-future` directory at once: DescribeLogDirs shows it, and a start goes on with the move.
2. Moves wait for one of `num.replica.alter.log.dirs.threads`, as many as there are log directories by default. The log
   cleaner leaves the log alone from then on.
3. It is copied in steps, each in a thread, up to where little is missing.
4. Flushes of the log are held. The last step brings everything to the device, and the checkpoints of the target
   directory learn of the log. What was appended meanwhile waits with its flush; readers and other writers do not wait.
5. On the loop: the last bytes are copied, the controller is told (KIP-858), the directories are renamed.
6. Both log directories are synced, then flushes may go on, and the old directory waits for its removal.

A device that fails takes its directory offline, as everywhere, and ends the move. A full disk ends the move and says
so. A clean stop leaves an empty `-future` directory, so that whoever starts next, Apache Kafka too, begins it anew:
half of a segment is nothing that a clean stop may leave.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING

from ..log.future_log import CopyError
from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    DirectoryData,
    PartitionData,
    TopicData,
)

if TYPE_CHECKING:
    from ..log.directory import LogDirectory
    from ..log.future_log import Copy, FutureLog
    from ..replication.partition import Partition
    from .broker import Broker

logger = logging.getLogger(__name__)

STEP_BYTES = 8 << 20
"""What a step copies at most, and syncs."""

NEARLY_THERE_BYTES = 4 << 20
"""When so little is missing flushes are held."""

ON_LOOP_BYTES = 128 << 10
"""What may be copied on the loop. A log that grows quickly is allowed twice as much with each attempt."""

_ATTEMPTS = 7
_THROTTLE_STEP_SECONDS = 0.1
_NO_LIMIT = 1 << 62


class _MoveEndedError(Exception):
    """The move was replaced or given up, its partition deleted, or the server stops."""


class ReplicaMover:
    """See the module's text. Belongs to the broker's event loop."""

    def __init__(self, broker: Broker, threads: int) -> None:
        self._broker = broker
        self._manager = broker.log_manager
        self._tasks: set[asyncio.Task[None]] = set()
        self._turns = asyncio.Semaphore(threads)
        self._lane = broker.background.lane(threads)
        self._not_before = 0.0  # the throttle: the loop's time at which the next step may begin
        self._closing = asyncio.Event()

    def move(self, partition: Partition, directory: LogDirectory) -> None:
        """Move a replica to one of this broker's log directories. It takes the place of a move to another one; one to
        the directory that the replica is in just ends that.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        key = (partition.topic, partition.index)
        if partition.offline:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{partition.topic}-{partition.index} is offline")
        future = self._manager.futures.get(key)
        if future is not None:
            if future.directory is directory:
                return
            self._manager.end_move(future)
            self._broker.trash.deleted()
        if self._manager.directory_of(*key) is not directory:
            self._begin(partition, directory)

    def go_on(self) -> None:
        """Begin the moves anew that were under way when the process before ended."""
        found, self._manager.interrupted_moves = self._manager.interrupted_moves, []
        for topic, index, directory, path in found:
            partition = self._broker.replicas.partition_by_key(topic, index)
            if partition is None or partition.offline or not directory.online:
                continue
            try:
                if (topic, index) not in self._manager.futures:
                    self._begin(partition, directory)
                self._manager.retire(topic, index, directory, path)
                self._broker.trash.deleted()
            except (KafkaError, OSError) as error:
                logger.error("The move of %s-%d to %s does not go on: %s", topic, index, directory.path, error)

    async def close(self) -> None:
        """End all moves; the next start goes on with them."""
        self._closing.set()
        if self._tasks:
            await asyncio.wait(self._tasks)
        for future in list(self._manager.futures.values()):
            self._leave(future)

    def _leave(self, future: FutureLog) -> None:
        """Leave an empty directory in the place of a copy that is not whole."""
        key = (future.log.topic, future.log.partition)
        log_dir = future.directory
        self._manager.end_move(future)
        try:
            self._manager.end_move(self._manager.begin_move(*key, log_dir), keep=True)
        except KafkaError as error:
            logger.error("The next start does not go on moving %s-%d to %s: %s", *key, log_dir.path, error.message)

    def _begin(self, partition: Partition, directory: LogDirectory) -> None:
        current = self._manager.directory_of(partition.topic, partition.index)
        assert current is not None
        # Nobody may take the copy for the log before it is one.
        self._assign(partition, current)
        future = self._manager.begin_move(partition.topic, partition.index, directory)
        logger.info("Moving %s-%d from %s to %s", partition.topic, partition.index, current.path, directory.path)
        task = self._broker.loop.create_task(self._run(partition, future))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, partition: Partition, future: FutureLog) -> None:
        name = f"{partition.topic}-{partition.index}"
        target = future.directory.path
        try:
            await self._move(partition, future)
        except _MoveEndedError:
            return  # whoever ended it has said so
        except CopyError as failure:
            if self._manager.futures.get((partition.topic, partition.index)) is not future:
                return  # its files are gone
            logger.error("%s is not moved to %s: %s", name, target, self._manager.move_failed(future, failure).message)
        except KafkaError as error:
            logger.error("%s is not moved to %s: %s", name, target, error.message)
        except Exception:
            logger.exception("%s is not moved to %s, by our own fault", name, target)
        else:
            logger.info("Moved %s to %s", name, target)
            return
        # If the log's own directory has failed, the copy may be what a later start is left with.
        self._manager.end_move(future, keep=future.log.offline is not None)
        self._broker.trash.deleted()

    async def _move(self, partition: Partition, future: FutureLog) -> None:
        """Steps 2 to 6 of the module's text."""
        cleaner = self._broker.log_cleaner
        await self._wait_turn()
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
            self._turns.release()

    async def _wait_turn(self) -> None:
        """For a turn, or for the end."""
        turn = asyncio.ensure_future(self._turns.acquire())
        closing = asyncio.ensure_future(self._closing.wait())
        await asyncio.wait([turn, closing], return_when=asyncio.FIRST_COMPLETED)
        closing.cancel()
        if not turn.done():
            turn.cancel()
            raise _MoveEndedError

    def _check(self, future: FutureLog) -> None:
        """Is this still to be done?"""
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
            rate = self._broker.config.int("replica.alter.log.dirs.io.max.bytes.per.second")
            step_bytes = min(STEP_BYTES, max(int(rate * _THROTTLE_STEP_SECONDS), 1))
            copy = future.begin_copy(step_bytes)
            if copy is None:
                return
            await self._copy(future, copy)
            await self._throttle(copy.bytes, rate)

    async def _throttle(self, copied_bytes: int, rate: int) -> None:
        if rate >= _NO_LIMIT:
            return
        now = self._broker.loop.time()
        self._not_before = max(self._not_before, now) + copied_bytes / max(rate, 1)
        try:
            async with asyncio.timeout(self._not_before - now):
                await self._closing.wait()
        except TimeoutError:
            return

    async def _copy(self, future: FutureLog, copy: Copy, *, last: bool = False) -> None:
        try:
            await self._lane.run(copy.run)
        except BaseException:
            copy.release()
            raise
        if last:
            # Before the copy counts as whole: it may have been given up meanwhile.
            self._check(future)
        future.end_copy(copy, last=last)
        self._check(future)

    async def _swap(self, partition: Partition, future: FutureLog) -> bool:
        """Steps 4 to 6. False if the log grows too fast for it."""
        log = future.log
        group_commit = self._broker.group_commit
        await group_commit.hold(log)
        try:
            for attempt in range(_ATTEMPTS):
                self._check(future)
                await self._copy(future, future.begin_last_copy(), last=True)
                if not attempt:
                    await self._write_checkpoints()
                    continue  # the next step syncs their names, which must not come to the device after the log's
                if future.is_durable and future.missing_bytes() <= ON_LOOP_BYTES << attempt:
                    await self._rename(partition, future)
                    return True
            return False
        finally:
            future.put_off()
            group_commit.let_go(log)

    async def _write_checkpoints(self) -> None:
        await self._broker.housekeeping.write_checkpoints()
        await self._broker.housekeeping.write_start_offsets()
        await self._broker.log_cleaner.write_checkpoint()

    async def _rename(self, partition: Partition, future: FutureLog) -> None:
        source = self._manager.directory_of(partition.topic, partition.index)
        assert source is not None
        retired = self._manager.swap(future, lambda directory: self._assign(partition, directory))
        for directory in (source, future.directory):
            if directory.online:
                try:
                    await self._lane.run(partial(self._manager.file_system.sync_directory, directory.path))
                except OSError as error:
                    self._manager.directory_failed(directory, error)
        if source.online and future.directory.online:
            self._manager.throw_away(retired)
            self._broker.trash.deleted()

    def _assign(self, partition: Partition, directory: LogDirectory) -> None:
        """Have it in the metadata in which directory the replica is."""
        metadata = self._broker.metadata
        topic = metadata.image.topics_by_id.get(partition.topic_id)
        registration = None if topic is None else topic.partitions.get(partition.index)
        if registration is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if registration.directory(metadata.node_id) == directory.directory_id:
            return
        request = AssignReplicasToDirsRequest(
            broker_id=metadata.node_id,
            broker_epoch=metadata.broker_epoch,
            directories=[
                DirectoryData(
                    id=directory.directory_id,
                    topics=[
                        TopicData(
                            topic_id=partition.topic_id, partitions=[PartitionData(partition_index=partition.index)]
                        )
                    ],
                )
            ],
        )
        response = metadata.assign_replicas_to_directories(request, now_ms=self._broker.now_ms())
        code = response.error_code or response.directories[0].topics[0].partitions[0].error_code
        if code:
            raise KafkaError(ErrorCode(code))

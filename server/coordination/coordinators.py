"""The hosting of coordinators: a runtime for each partition of a coordinator's topic that this broker leads.

A group or a transactional id belongs to the partition that it hashes to, as in Apache Kafka, so that tools and other
brokers find it. Loading reads the partition's log in pieces, in a thread, and replays them on the event loop in slices
of `SLICE_MS`. Meanwhile requests for that partition fail with a retriable error; other partitions are not affected.

This module has what all coordinators share and what their state machines must not know: the event loop, the clock, the
metadata and the log. What is specific to one kind of coordinator is in its subclass: `groups`, `transactions`.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Collection, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from ...coordinator.outcome import Caller, Now
from ...coordinator.runtime import CoordinatorRuntime, Decide, Shard, State
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.records import (
    ATTRIBUTES_POSITION,
    TRANSACTIONAL_MASK,
    InvalidRecordsError,
    RecordBatch,
    iter_batches,
)
from ..concurrency.pending import Pending
from ..context import DEFERRED, Deferred
from .callers import Part

if TYPE_CHECKING:
    from ...metadata.image import MetadataDelta, MetadataImage
    from ...protocol.schema import Message
    from ...replication.partition import Partition
    from ..concurrency.clock import Clock
    from ..concurrency.slices import Sliced
    from ..concurrency.timers import Timer
    from ..context import RequestContext
    from .on_demand import Services

logger = logging.getLogger(__name__)

_FEW_KEYS = 16
"""With more keys, `when_committed` checks all shards: to find the shard of a key takes two microseconds."""

SLICE_MS = 1.5
"""How long a slice of loading blocks the event loop."""

_RETRY_MS = 1000
_LONGEST_RETRY_MS = 60_000
"""Maximum delay before a partition that could not be read is loaded again. Each failure doubles the delay."""

_LOAD_TIMES = 50

S = TypeVar("S", bound=Shard)
M = TypeVar("M", bound="Message")


def partition_of(key: str, partitions: int) -> int:
    """The partition of a coordinator's topic that a group or transactional id belongs to.

    Java's String.hashCode over UTF-16 code units, without its sign bit, modulo the number of partitions.
    """
    # Names may be 32 kB long: such names are not worth caching.
    return (_remembered if len(key) <= _REMEMBERED_LENGTH else _partition_of)(key, partitions)


def _partition_of(key: str, partitions: int) -> int:
    encoded = key.encode("utf-16-be", "surrogatepass")
    value = 0
    for position in range(0, len(encoded), 2):
        value = (31 * value + (encoded[position] << 8 | encoded[position + 1])) & 0xFFFF_FFFF
    # The smallest integer has no absolute value in Java; Kafka takes 0.
    signed = value - (1 << 32) if value & 0x8000_0000 else value
    return (0 if signed == -(1 << 31) else abs(signed)) % partitions


_REMEMBERED_LENGTH = 256
_remembered = lru_cache(maxsize=16384)(_partition_of)


class Writer:
    """The partition of a runtime in one leader epoch; see `coordinator.runtime.PartitionWriter`.

    In a later epoch it rejects all records: they were decided without those that another leader may have written.
    """

    __slots__ = ("_leader_epoch", "_now_ms", "_partition")

    def __init__(self, partition: Partition, now_ms: Clock) -> None:
        self._partition = partition
        self._leader_epoch = partition.leader_epoch
        self._now_ms = now_ms

    @property
    def max_batch_bytes(self) -> int:
        return self._partition.log.config.max_message_bytes

    @property
    def high_watermark(self) -> int:
        return self._partition.high_watermark

    def append(self, batch: bytes, *, verification: Any = None) -> int:
        # acks=all. The records are not validated: the coordinator wrote them. Records on behalf of a producer have no
        # sequence numbers, which clients must not omit.
        self._check_epoch()
        transactional = bool(batch[ATTRIBUTES_POSITION + 1] & TRANSACTIONAL_MASK)
        info = self._partition.append(
            batch,
            acks=-1,
            now_ms=self._now_ms(),
            validated=True,
            client=not transactional,
            verification=verification,
        )
        return info.last_offset + 1

    def append_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        *,
        coordinator_epoch: int,
        committed: bool,
        transaction_version: int,
    ) -> int:
        self._check_epoch()
        info = self._partition.append_marker(
            producer_id,
            producer_epoch,
            coordinator_epoch=coordinator_epoch,
            committed=committed,
            transaction_version=transaction_version,
            now_ms=self._now_ms(),
        )
        return info.last_offset + 1

    def _check_epoch(self) -> None:
        if self._partition.leader_epoch != self._leader_epoch:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)


class HostedRuntime(Generic[S]):
    """A runtime of one leader epoch, with its timer."""

    __slots__ = ("armed_for", "leader_epoch", "partition", "runtime", "timer")

    def __init__(self, partition: Partition, runtime: CoordinatorRuntime[S]) -> None:
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.runtime = runtime
        self.timer: Timer | None = None
        self.armed_for = 0


class Coordinators(ABC, Generic[S]):
    """The runtimes of this broker for one kind of coordinator, by partition of its topic."""

    topic: ClassVar[str]
    """The coordinator's topic."""

    absent: ClassVar[ErrorCode] = ErrorCode.COORDINATOR_NOT_AVAILABLE
    """The error while the topic does not exist."""

    def __init__(self, services: Services, *, codec: int = 0, load_bytes: int = 5 << 20) -> None:
        self._services = services
        self._codec = codec
        self._load_bytes = load_bytes
        self._hosted: dict[int, HostedRuntime[S]] = {}
        self.load_times: deque[float] = deque(maxlen=_LOAD_TIMES)
        """How long the latest loads of partitions took, in seconds."""
        self._partitions = 0
        self._closed = False
        self._due: deque[HostedRuntime[S]] = deque()  # the first one is ticking or about to tick
        self._to_load: list[HostedRuntime[S]] = []
        self._load_failures: dict[int, int] = {}  # by partition, consecutive failures
        self._loader: asyncio.Task[None] | None = None
        self.watchers: list[Callable[[], None]] = []
        """Called whenever something may have changed: tests wait this way (`steering`)."""

    @abstractmethod
    def make_shard(self, partition: Partition) -> S:
        """A new state machine for this partition."""

    def deleted(self, names: list[str]) -> None:
        """Called when topics were deleted and the same change did not re-create them."""

    def shards(self) -> list[S]:
        """The loaded shards. Another thread may call this."""
        return [each.runtime.shard for each in list(self._hosted.values()) if each.runtime.state is State.ACTIVE]

    def runtimes(self) -> Iterator[CoordinatorRuntime[S]]:
        """The runtimes that are not closed."""
        return (hosted.runtime for hosted in self._hosted.values() if hosted.runtime.state is not State.CLOSED)

    # -- requests ------------------------------------------------------------------------------------------------------

    def run(self, key: str, caller: Caller, decide: Decide[S], *, verification: object = None) -> None:
        """Decide a request for one group or transactional id; the caller is completed now or later.

        ``verification``: see `CoordinatorRuntime.run`.
        """
        try:
            hosted = self.hosted_of(key)
        except KafkaError as error:
            caller.fail(error)
            return
        hosted.runtime.run(key, caller, decide, verification=verification)
        self._arm(hosted)

    def read(self, key: str) -> S:
        """The shard of a group or transactional id, for reading.

        Raises:
            KafkaError: NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS.
        """
        return self.hosted_of(key).runtime.read(key)

    def read_all(self) -> list[S]:
        """Every shard of this broker.

        Raises:
            KafkaError: COORDINATOR_LOAD_IN_PROGRESS while one of the shards loads.
        """
        return [runtime.read() for runtime in self.runtimes()]

    def when_committed(self, context: RequestContext, response: M, keys: Collection[str] | None = None) -> M | Deferred:
        """The response of a handler that has read the shards of these groups or transactional ids (default: all).

        What the response reports must be durable, so the response may have to wait for the high watermark.
        """
        if keys is None or len(keys) > _FEW_KEYS:
            unsafe = [runtime for runtime in self.runtimes() if runtime.has_uncommitted]
        else:
            hosted = {partition_of(key, self._partitions) for key in keys} if self._partitions else set()
            found = [self._hosted[index].runtime for index in hosted if index in self._hosted]
            unsafe = [runtime for runtime in found if runtime.has_uncommitted]
        if not unsafe:
            return response
        context.is_long = True  # the response may be long: these handlers build it in slices
        pending: Pending[M, KafkaError] = Pending(lambda safe: context.reply(response), context.fail)
        for runtime in unsafe:
            runtime.respond_when_committed(Part(context, pending), response)
        pending.start()
        return DEFERRED

    def partition_of(self, key: str) -> Sliced[int]:
        """The partition that a group or transactional id belongs to. The topic is created if it does not exist yet.

        Raises:
            KafkaError: COORDINATOR_NOT_AVAILABLE: the topic could not be created.
        """
        partitions = self._partitions or self._partitions_in_image()
        if not partitions:
            error = yield from self._services.create_topic(self.topic)
            partitions = self._partitions_in_image()
            if not partitions:
                reason = error or ErrorCode.UNKNOWN_SERVER_ERROR
                raise KafkaError(
                    ErrorCode.COORDINATOR_NOT_AVAILABLE, f"Cannot create the topic {self.topic}: {reason.name}."
                )
        return partition_of(key, partitions)

    def other_coordinator(self, key: str) -> int | None:
        """The other broker that coordinates a group or transactional id. None: this broker, or none is known."""
        topic = self._services.image().topics_by_name.get(self.topic)
        if topic is None or not topic.partitions:
            return None
        leader = topic.partitions[partition_of(key, len(topic.partitions))].leader
        return leader if leader >= 0 and leader != self._services.node_id else None

    def _partitions_in_image(self) -> int:
        topic = self._services.image().topics_by_name.get(self.topic)
        return 0 if topic is None else len(topic.partitions)

    def runtime_of(self, key: str) -> CoordinatorRuntime[S]:
        """The runtime of a group or transactional id: for tests and tools.

        Raises:
            KafkaError: NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE.
        """
        return self.hosted_of(key).runtime

    def serves(self, key: str) -> bool:
        """Whether this broker coordinates a group or transactional id, and has loaded it."""
        try:
            return self.hosted_of(key).runtime.state is State.ACTIVE
        except KafkaError:
            return False

    def hosted_of(self, key: str) -> HostedRuntime[S]:
        """The hosted runtime with its timer for a group or transactional id.

        Raises:
            KafkaError: NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE.
        """
        if not self._partitions:
            raise KafkaError(self.absent if not self._closed else ErrorCode.NOT_COORDINATOR)
        hosted = self._hosted.get(partition_of(key, self._partitions))
        if hosted is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        return hosted

    # -- deadlines -----------------------------------------------------------------------------------------------------

    def _arm(self, hosted: HostedRuntime[S]) -> None:
        """Arm the timer of a runtime. To be called after each call of the runtime."""
        if self.watchers:
            for watcher in list(self.watchers):
                watcher()
        if hosted.timer is not None:
            earliest = hosted.runtime.shard.deadlines.earliest()
            if earliest is None or hosted.armed_for <= earliest:
                return  # an earlier timer checks what is due by then
        deadline = hosted.runtime.next_deadline()
        if deadline is None or (hosted.timer is not None and hosted.armed_for <= deadline):
            return
        if hosted.timer is not None:
            hosted.timer.cancel()
        hosted.armed_for = deadline
        hosted.timer = self._services.timers.call_at(deadline, lambda: self._tick(hosted))

    def _tick(self, hosted: HostedRuntime[S]) -> None:
        """Decide what is due. If many partitions are due, each iteration of the event loop serves one of them."""
        hosted.timer = None
        self._due.append(hosted)
        if len(self._due) == 1:
            self._tick_first()

    def _tick_first(self) -> None:
        hosted = self._due[0]
        try:
            if self._hosted.get(hosted.partition.index) is hosted:
                hosted.runtime.tick()
                self._arm(hosted)
        finally:
            self._due.popleft()
            if self._due:
                self._services.loop.call_soon(self._tick_first)

    # -- partitions follow the metadata --------------------------------------------------------------------------------

    def load(self) -> None:
        """Load the partitions that this broker leads. Called at startup."""
        topic = self._services.image().topics_by_name.get(self.topic)
        if topic is not None:
            self._partitions = len(topic.partitions)
            for index in topic.partitions:
                self.follow(index)

    def apply(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Apply a committed change of the metadata; the broker's partitions are already up to date."""
        if not (delta.partitions or delta.deleted_topics or delta.created_topics):
            return
        topic = image.topics_by_name.get(self.topic)
        self._partitions = 0 if topic is None else len(topic.partitions)
        for deleted in delta.deleted_topics:
            if deleted.name == self.topic:
                for index in list(self._hosted):
                    self._give_up(index)
        if topic is not None:
            for change in delta.partitions:
                if change.topic_id == topic.topic_id:
                    self.follow(change.partition)
        gone = [deleted.name for deleted in delta.deleted_topics if deleted.name not in image.topics_by_name]
        if gone:
            self.deleted(gone)

    def follow(self, index: int) -> None:
        """Start or stop coordinating, depending on whether this broker leads the partition.

        In a new leader epoch the partition is loaded again, even if this broker led it before: several changes of the
        metadata may arrive together, and another broker may have led in between.
        """
        services = self._services
        partition = services.replicas.partition_by_key(self.topic, index)
        hosted = self._hosted.get(index)
        leads = partition is not None and not partition.offline and partition.leader_id == services.node_id
        if hosted is not None and not (
            leads and hosted.partition is partition and hosted.leader_epoch == partition.leader_epoch
        ):
            self._give_up(index)
            hosted = None
        if leads and hosted is None and not self._closed:
            assert partition is not None
            self._host(partition)

    def now(self) -> Now:
        """Both clocks."""
        return Now(self._services.now_ms(), self._services.timers.now_ms())

    def _host(self, partition: Partition) -> None:
        name = f"{partition.topic}-{partition.index}"
        runtime = CoordinatorRuntime(
            name,
            self.make_shard(partition),
            Writer(partition, self._services.now_ms),
            self.now,
            request_flush=lambda: self._services.run_soon(lambda: self.flush(hosted)),
            failed=lambda: self._load_again(hosted),
            codec=self._codec,
        )
        hosted = HostedRuntime(partition, runtime)
        self._hosted[partition.index] = hosted
        partition.on_high_watermark = lambda: self._committed(hosted)
        if partition.log.log_start_offset == partition.log.log_end_offset:
            self._activate(hosted)
            return
        self._to_load.append(hosted)
        if self._loader is None:
            self._loader = self._services.loop.create_task(self._load_all())

    def flush(self, hosted: HostedRuntime[S]) -> None:
        """Write the pending decisions, and arm the timer for what follows from them."""
        hosted.runtime.flush()
        self._arm(hosted)

    def _committed(self, hosted: HostedRuntime[S]) -> None:
        """The high watermark has moved: pending responses may be sent."""
        hosted.runtime.high_watermark_changed()
        self._arm(hosted)

    def _activate(self, hosted: HostedRuntime[S]) -> None:
        hosted.runtime.activate()
        self._arm(hosted)

    def _load_again(self, hosted: HostedRuntime[S]) -> None:
        index = hosted.partition.index
        if self._hosted.get(index) is hosted:
            self._give_up(index)
            self.follow(index)

    def _give_up(self, index: int) -> None:
        hosted = self._hosted.pop(index, None)
        if hosted is not None:
            if hosted.timer is not None:
                hosted.timer.cancel()
            hosted.partition.on_high_watermark = None
            hosted.runtime.close()

    async def close(self) -> None:
        """Close all runtimes: pending requests fail, so that clients look for the coordinator again."""
        self._closed = True
        for index in list(self._hosted):
            self._give_up(index)
        self._to_load.clear()
        if self._loader is not None:
            self._loader.cancel()
            await asyncio.wait([self._loader])

    # -- loading -------------------------------------------------------------------------------------------------------

    async def _load_all(self) -> None:
        """Load one partition after the other, because their slices would add up; the smallest partition comes first."""
        try:
            while self._to_load:
                hosted = min(self._to_load, key=lambda one: one.partition.log.size)
                self._to_load.remove(hosted)
                await self._load(hosted)
        finally:
            self._loader = None

    async def _load(self, hosted: HostedRuntime[S]) -> None:
        """Replay the log of a partition, then serve its groups or transactional ids."""
        runtime = hosted.runtime
        started = self._services.loop.time()
        try:
            await self._replay(hosted)
        except asyncio.CancelledError:
            raise
        except (OSError, KafkaError, InvalidRecordsError) as error:
            if runtime.state is State.LOADING:
                failures = self._load_failures[hosted.partition.index] = (
                    self._load_failures.get(hosted.partition.index, 0) + 1
                )
                delay_ms = min(_RETRY_MS << min(failures - 1, 10), _LONGEST_RETRY_MS)
                logger.error("Cannot load %s; retrying in %d s: %s", runtime.name, delay_ms // 1000, error)
                self._services.timers.call_after(delay_ms, lambda: self._load_again(hosted))
            return
        except Exception:
            logger.exception("Loading %s failed with an unexpected error; requests for it are rejected", runtime.name)
            runtime.close()
            return
        self._load_failures.pop(hosted.partition.index, None)
        if runtime.state is State.LOADING:
            seconds = self._services.loop.time() - started
            self.load_times.append(seconds)
            logger.info("%s: loaded %d records in %.1f s", runtime.name, runtime.loaded_records, seconds)
            self._activate(hosted)

    async def _replay(self, hosted: HostedRuntime[S]) -> None:
        runtime, log = hosted.runtime, hosted.partition.log
        end_offset = log.log_end_offset
        runtime.load_offset = log.log_start_offset
        while runtime.load_offset < end_offset and runtime.state is State.LOADING:
            data = await self._read(hosted, end_offset)
            if not data:
                return
            steps = _steps(runtime, data, end_offset)
            while not self._run_slice(steps) and runtime.state is State.LOADING:  # noqa: ASYNC110 - a yield
                await asyncio.sleep(0)

    def _run_slice(self, steps: Iterator[Any]) -> bool:
        """Continue for `SLICE_MS`. Returns whether all steps are done."""
        clock = self._services.loop.time
        until = clock() + SLICE_MS / 1000
        return all(clock() < until for _ in steps)

    async def _read(self, hosted: HostedRuntime[S], end_offset: int) -> bytes:
        """Whole batches from the load offset, read in a thread: they may have to come from the disk.

        Empty if the rest of the log was compacted away.
        """
        offset = hosted.runtime.load_offset
        found = hosted.partition.log.read(offset, self._load_bytes, max_offset=end_offset, min_one_batch=True)
        if found.records is None:
            return b""
        try:
            return await self._services.file_jobs.run(found.records.read)
        finally:
            found.records.release()


def _steps(runtime: CoordinatorRuntime[Any], data: bytes, end_offset: int) -> Iterator[Any]:
    """Replay these batches, with a yield at regular intervals."""
    before = runtime.load_offset
    for batch in iter_batches(data):
        if batch.next_offset > before:
            yield from _load(runtime, batch)
        if batch.next_offset >= end_offset:
            return
    if runtime.load_offset == before:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"no complete batch at offset {before}")


def _load(runtime: CoordinatorRuntime[Any], batch: RecordBatch) -> Iterator[None]:
    if not batch.has_valid_crc():
        raise InvalidRecordsError(f"the CRC of the batch at offset {batch.base_offset} does not match")
    yield from runtime.load(batch)

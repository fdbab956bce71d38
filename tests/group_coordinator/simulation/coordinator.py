"""The coordinator in memory: the real runtime and shard, with a log that is a list of batches.

It replaces `server/coordination/groups.py` and the handlers. The simulation decides when an iteration of the event loop
ends, when loading continues, when records are committed, and when the coordinator restarts.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from moldau.coordinator.outcome import Now
from moldau.coordinator.runtime import CoordinatorRuntime, State
from moldau.group_coordinator.config import GroupConfig
from moldau.group_coordinator.shard import GroupShard
from moldau.group_coordinator.states import GroupStates
from moldau.protocol.errors import ErrorCode, KafkaError
from moldau.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from moldau.protocol.messages.delete_groups import DeleteGroupsRequest
from moldau.protocol.messages.heartbeat import HeartbeatRequest
from moldau.protocol.messages.join_group import JoinGroupRequest
from moldau.protocol.messages.leave_group import LeaveGroupRequest
from moldau.protocol.messages.offset_commit import OffsetCommitRequest
from moldau.protocol.messages.offset_delete import OffsetDeleteRequest
from moldau.protocol.messages.sync_group import SyncGroupRequest
from moldau.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from moldau.protocol.records import RecordBatch, iter_batches

from ...coordinator.markers import build_marker

if TYPE_CHECKING:
    from .calls import Call
    from .topics import TopicTable


class Clock:
    """Both clocks. They move only when the simulation moves them."""

    def __init__(self) -> None:
        self.monotonic_ms = 0

    def __call__(self) -> Now:
        return Now(1_700_000_000_000 + self.monotonic_ms, self.monotonic_ms)


class MemoryLog:
    """See `coordinator.runtime.PartitionWriter`. Appends can be rejected, and the high watermark can stall."""

    max_batch_bytes = 1 << 20

    def __init__(self, appended: Callable[[bytes], None], rejected: Callable[[], None]) -> None:
        self.batches: list[bytes] = []
        self.end_offset = 0
        self.high_watermark = 0
        self.rejection: ErrorCode | None = None
        self.is_stalled = False
        self._producer_epochs: dict[int, int] = {}
        self._appended = appended
        self._rejected = rejected

    def append(self, batch: bytes, *, verification: object = None) -> int:
        if self.rejection is not None:
            self._rejected()
            raise KafkaError(self.rejection)
        batch = struct.pack(">q", self.end_offset) + batch[8:]
        (header,) = iter_batches(batch)
        assert header.has_valid_crc()
        if header.producer_id >= 0:
            self._check_producer(header)
        self.batches.append(batch)
        self.end_offset += header.record_count
        if not self.is_stalled:
            self.high_watermark = self.end_offset
        self._appended(batch)
        return self.end_offset

    def append_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        *,
        coordinator_epoch: int,
        committed: bool,
        transaction_version: int,
    ) -> int:
        marker = build_marker(producer_id, producer_epoch, coordinator_epoch=coordinator_epoch, committed=committed)
        return self.append(marker)

    def _check_producer(self, header: RecordBatch) -> None:
        """A marker bumps the epoch (KIP-890). Later batches with an older epoch are rejected."""
        if header.producer_epoch < self._producer_epochs.get(header.producer_id, 0):
            raise KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH)
        self._producer_epochs[header.producer_id] = header.producer_epoch

    def release(self) -> None:
        """All in-sync replicas have all records."""
        self.is_stalled = False
        self.high_watermark = self.end_offset

    def truncate(self) -> None:
        """Remove the uncommitted records."""
        while self.end_offset > self.high_watermark:
            (header,) = iter_batches(self.batches.pop())
            self.end_offset -= header.record_count
        assert self.end_offset == self.high_watermark
        self.is_stalled = False
        self._producer_epochs.clear()
        for batch in self.batches:
            for header in iter_batches(batch):
                if header.producer_id >= 0:
                    self._check_producer(header)


class Coordinator:
    """The shard of all groups, with its log."""

    def __init__(
        self,
        config: GroupConfig,
        topics: TopicTable,
        log: MemoryLog,
        clock: Clock,
        new_uuid: Callable[[], str],
    ) -> None:
        self.config = config
        self.topics = topics
        self.log = log
        self.clock = clock
        self.request_flush = False
        self.has_failed = False
        self._new_uuid = new_uuid
        self._loading: Iterator[None] = iter(())
        self.start()

    @property
    def states(self) -> GroupStates:
        return self.runtime.shard.states

    @property
    def is_active(self) -> bool:
        return self.runtime.state is State.ACTIVE

    # -- startup and shutdown ------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to load the log."""
        states = GroupStates(self.config, self.topics, new_uuid=self._new_uuid)
        self.request_flush = False
        self.runtime: CoordinatorRuntime[GroupShard] = CoordinatorRuntime(
            "__consumer_offsets-0",
            GroupShard(states),
            self.log,
            self.clock,
            request_flush=self._flush_requested,
            failed=self._failed,
        )
        self._loading = self._load(list(self.log.batches))

    def _load(self, batches: list[bytes]) -> Iterator[None]:
        for data in batches:
            (batch,) = iter_batches(data)
            yield from self.runtime.load(batch)

    def continue_loading(self) -> None:
        """Run one slice of loading."""
        if next(self._loading, self) is self:
            self.runtime.activate()

    def load(self) -> None:
        """Load the whole log."""
        while self.runtime.state is State.LOADING:
            self.continue_loading()

    def resign(self) -> None:
        """The partition has another leader: all pending requests fail."""
        self.runtime.close()

    # -- the loop ------------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """The iteration of the event loop ends."""
        self.request_flush = False
        self.runtime.flush()

    def tick(self) -> None:
        """Process expired deadlines."""
        self.runtime.tick()

    def topics_changed(self, deleted: list[str]) -> None:
        """The metadata has changed."""
        if self.is_active and deleted:
            self.runtime.decide("", self.runtime.shard.delete_offsets_of_topics(deleted))

    def _flush_requested(self) -> None:
        self.request_flush = True

    def _failed(self) -> None:
        self.has_failed = True

    # -- requests ------------------------------------------------------------------------------------------------------

    def deliver(self, call: Call) -> None:
        """Do what the handlers do. The response may be deferred."""
        runtime = self.runtime
        match call.request:
            case JoinGroupRequest() as join:
                runtime.run(join.group_id, call, lambda shard, now: shard.serve(call, join, now))
            case SyncGroupRequest() as sync:
                runtime.run(sync.group_id, call, lambda shard, now: shard.serve(call, sync, now))
            case HeartbeatRequest() as heartbeat:
                runtime.run(heartbeat.group_id, call, lambda shard, now: shard.serve(call, heartbeat, now))
            case LeaveGroupRequest() as leave:
                runtime.run(leave.group_id, call, lambda shard, now: shard.serve(call, leave, now))
            case ConsumerGroupHeartbeatRequest() as beat:
                runtime.run(beat.group_id, call, lambda shard, now: shard.serve(call, beat, now))
            case OffsetCommitRequest() as commit:
                self._resolve(commit)
                runtime.run(commit.group_id, call, lambda shard, now: shard.commit_offsets(call, commit, now))  # type: ignore[arg-type]
            case TxnOffsetCommitRequest() as commit:
                commit.topics = [topic for topic in commit.topics if self.topics.id_of(topic.name) is not None]
                runtime.run(
                    commit.group_id, call, lambda shard, now: shard.commit_transactional_offsets(call, commit, now)
                )
            case OffsetDeleteRequest() as delete:
                runtime.run(delete.group_id, call, lambda shard, now: shard.delete_offsets(call, delete, now))
            case DeleteGroupsRequest(groups_names=[group_id]):
                runtime.run(group_id, call, lambda shard, now: shard.delete_group(call, group_id, now))
            case _:
                raise AssertionError(call.request)

    def end_transaction(self, producer_id: int, producer_epoch: int, *, committed: bool) -> None:
        """Write a marker.

        Raises:
            KafkaError: the append was rejected.
        """
        self.runtime.end_transaction(
            producer_id, producer_epoch, coordinator_epoch=0, committed=committed, transaction_version=2
        )

    def _resolve(self, request: OffsetCommitRequest) -> None:
        """Add the missing name or ID of each topic, and remove topics that do not exist: the handlers do this."""
        known = []
        for topic in request.topics:
            name = topic.name or self.topics.name_of(topic.topic_id)
            topic_id = None if name is None else self.topics.id_of(name)
            if name is not None and topic_id is not None:
                topic.name, topic.topic_id = name, topic_id
                known.append(topic)
        request.topics = known

"""A broker's part, in memory: a real runtime with a real shard, over a log that is a list of batches.

What `server/coordination/groups.py` and the handlers do around them is done here in the order that the simulation asks
for: when the turn of the loop ends, when loading goes on, when records become safe, and when
it all stops and begins again.
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
    """Both clocks, which stand still until they are moved."""

    def __init__(self) -> None:
        self.monotonic_ms = 0

    def __call__(self) -> Now:
        return Now(1_700_000_000_000 + self.monotonic_ms, self.monotonic_ms)


class MemoryLog:
    """See `coordinator.runtime.PartitionWriter`. Appends can be rejected, and the high watermark can stall."""

    max_batch_bytes = 1 << 20

    def __init__(self, appended: Callable[[bytes], None], refused: Callable[[], None]) -> None:
        self.batches: list[bytes] = []
        self.end_offset = 0
        self.high_watermark = 0
        self.refusal: ErrorCode | None = None
        self.is_stalled = False
        self._producer_epochs: dict[int, int] = {}
        self._appended = appended
        self._refused = refused

    def append(self, batch: bytes, *, verification: object = None) -> int:
        if self.refusal is not None:
            self._refused()
            raise KafkaError(self.refusal)
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
        """A marker raises the epoch (KIP-890); what comes in the name of an older one is too late."""
        if header.producer_epoch < self._producer_epochs.get(header.producer_id, 0):
            raise KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH)
        self._producer_epochs[header.producer_id] = header.producer_epoch

    def release(self) -> None:
        """The other replicas have everything."""
        self.is_stalled = False
        self.high_watermark = self.end_offset

    def truncate(self) -> None:
        """Forget what the other replicas do not have."""
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

    # -- its life ------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to load what the log has."""
        states = GroupStates(self.config, self.topics, new_uuid=self._new_uuid)
        self.request_flush = False
        self.runtime: CoordinatorRuntime[GroupShard] = CoordinatorRuntime(
            "__consumer_offsets-0",
            GroupShard(states),
            self.log,
            self.clock,
            request_flush=self._note_wants_flush,
            failed=self._note_failure,
        )
        self._loading = self._load(list(self.log.batches))

    def _load(self, batches: list[bytes]) -> Iterator[None]:
        for data in batches:
            (batch,) = iter_batches(data)
            yield from self.runtime.load(batch)

    def go_on_loading(self) -> None:
        """One slice."""
        if next(self._loading, self) is self:
            self.runtime.activate()

    def load(self) -> None:
        """To the end."""
        while self.runtime.state is State.LOADING:
            self.go_on_loading()

    def resign(self) -> None:
        """The partition has another leader: all waiting callers are answered."""
        self.runtime.close()

    # -- the loop ------------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """The turn of the loop ends."""
        self.request_flush = False
        self.runtime.flush()

    def tick(self) -> None:
        """Time has passed."""
        self.runtime.tick()

    def topics_changed(self, deleted: list[str]) -> None:
        """The metadata have changed."""
        if self.is_active and deleted:
            self.runtime.decide("", self.runtime.shard.delete_offsets_of_topics(deleted))

    def _note_wants_flush(self) -> None:
        self.request_flush = True

    def _note_failure(self) -> None:
        self.has_failed = True

    # -- requests ------------------------------------------------------------------------------------------------------

    def deliver(self, call: Call) -> None:
        """As the handlers do; the caller is answered now or later."""
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
            KafkaError: it is not there.
        """
        self.runtime.end_transaction(
            producer_id, producer_epoch, coordinator_epoch=0, committed=committed, transaction_version=2
        )

    def _resolve(self, request: OffsetCommitRequest) -> None:
        """A topic has a name and an id in the coordinator; those that are not there do not come so far."""
        known = []
        for topic in request.topics:
            name = topic.name or self.topics.name_of(topic.topic_id)
            topic_id = None if name is None else self.topics.id_of(name)
            if name is not None and topic_id is not None:
                topic.name, topic.topic_id = name, topic_id
                known.append(topic)
        request.topics = known

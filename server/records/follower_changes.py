"""What a follower does not know yet: its fetch session, without the partitions in which nothing has changed.

A follower names a partition only when its position has changed, and the response has only partitions that have changed.
So most requests are about a few of thousands of partitions. The others are *settled*: the follower is in sync, has
every record, and knows the high watermark and the log start offset. A settled partition is observed and not looked at.
A partition that was read and cannot be settled, like that of a replica that may join the in-sync set, is looked at by
each request; it is observed as well, because a request that waits must learn of its next records. Records that a
throttle withholds do not end the wait.

A request from a follower says that it is caught up in all settled partitions. That is noted for a partition when it is
no longer settled, before its log end counts (`Follower.repeated`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ...protocol.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...replication.partition import Partition
    from ...replication.replicas import Replicas
    from .fetch_session import PartitionKey, SessionPartition


class WaitingForChanges(Protocol):
    """The pending request of the session."""

    def look(self) -> None:
        """There may be enough bytes, or a partition has an error."""


class _Settled:
    """The observer of a partition for one session, which may have settled it."""

    __slots__ = ("changes", "partition", "wanted")

    def __init__(self, changes: FollowerChanges, partition: Partition, wanted: SessionPartition) -> None:
        self.changes = changes
        self.partition = partition
        self.wanted = wanted

    def appended(self, size: int) -> None:
        changes = self.changes
        changes.touch(self)
        if not changes.withholds(self.partition, changes.replica_id):
            changes.appended(size)

    def moved(self) -> None:
        self.changes.touch(self)

    def lost(self) -> None:
        self.changes.touch(self)
        self.changes.lost()


class FollowerChanges:
    """See the module docstring."""

    __slots__ = (
        "_noted_ms",
        "_observed",
        "_replica_epoch",
        "_replicas",
        "appended_bytes",
        "has_lost",
        "replica_id",
        "unsettled",
        "waiting",
        "withholds",
    )

    def __init__(
        self,
        replica_id: int,
        replicas: Replicas,
        unsettled: dict[PartitionKey, SessionPartition],
        withholds: Callable[[Partition, int], bool],
    ) -> None:
        """``withholds``: whether a throttle keeps the records of a partition from a replica now."""
        self.replica_id = replica_id
        self.withholds = withholds
        self._replicas = replicas
        self._replica_epoch = -1
        self._noted_ms = -1
        self._observed: dict[PartitionKey, _Settled] = {}
        self.unsettled = unsettled
        """The partitions to look at, in the order in which they will be served."""
        self.appended_bytes = 0
        """The size of appends since `begin_read`."""
        self.has_lost = False
        """Whether a partition has changed in another way since then."""
        self.waiting: WaitingForChanges | None = None

    # -- requests ------------------------------------------------------------------------------------------------------

    def add(self, key: PartitionKey, wanted: SessionPartition) -> None:
        """The request names this partition."""
        self.unsettled[key] = wanted

    def forget(self, key: PartitionKey) -> None:
        """The session no longer has this partition."""
        self.unsettled.pop(key, None)
        self._end(key)

    def look_at_all(self) -> None:
        """No partition is settled any longer."""
        for settled in self._observed.values():
            self.touch(settled)

    def noted(self, now_ms: int, replica_epoch: int) -> None:
        """A request with this broker epoch is about to be noted (`Partition.follower_fetched`)."""
        if replica_epoch != self._replica_epoch:
            self.look_at_all()
            self._replica_epoch = replica_epoch
        self._noted_ms = now_ms

    def begin_read(self) -> None:
        """The unsettled partitions are read from now on."""
        self.appended_bytes = 0
        self.has_lost = False

    def settle(self, wanted: SessionPartition) -> None:
        """Observe this partition, which was read: a request that waits must learn of its next records. Do not look at
        it again before it changes, if it can be settled now."""
        key = (wanted.topic, wanted.index)
        if self.unsettled.get(key) is not wanted:
            return
        partition = self._replicas.partition_by_key(wanted.topic, wanted.index)
        if partition is None:
            return
        observed = self._observed.get(key)
        if observed is None or observed.partition is not partition:
            self._end(key)
            self._observe(key, partition, wanted)
        if self._is_settled(partition, wanted):
            del self.unsettled[key]

    def move_to_end(self, key: PartitionKey) -> None:
        """Serve this partition last."""
        wanted = self.unsettled.pop(key, None)
        if wanted is not None:
            self.unsettled[key] = wanted

    def close(self) -> None:
        """The session has ended."""
        for key in list(self._observed):
            self._end(key)

    def _is_settled(self, partition: Partition, wanted: SessionPartition) -> bool:
        end_offset = partition.log.log_end_offset
        in_sync = partition.in_sync
        if (
            wanted.fetch_offset != end_offset
            or wanted.known_high_watermark != partition.high_watermark
            or wanted.known_log_start_offset != partition.log.log_start_offset
            or in_sync is None
            or self.replica_id not in in_sync.isr
        ):
            return False
        try:
            follower = partition.check_follower(self.replica_id, wanted.current_leader_epoch).follower(self.replica_id)
            diverging = partition.diverging_epoch(wanted.fetch_offset, wanted.last_fetched_epoch)
        except KafkaError:
            return False
        return diverging is None and follower is not None and follower.end_offset == end_offset

    def _observe(self, key: PartitionKey, partition: Partition, wanted: SessionPartition) -> None:
        for other in list(partition.observers):
            # An earlier session of the follower. It looks at the partition again if it is still used.
            if isinstance(other, _Settled) and other.changes.replica_id == self.replica_id:
                other.changes.touch(other)
                other.changes._end((other.wanted.topic, other.wanted.index))
        observed = self._observed[key] = _Settled(self, partition, wanted)
        partition.observers.append(observed)

    def _end(self, key: PartitionKey) -> None:
        observed = self._observed.pop(key, None)
        if observed is not None:
            observed.partition.observers.remove(observed)

    # -- changes of partitions -----------------------------------------------------------------------------------------

    def touch(self, settled: _Settled) -> None:
        """The partition is not settled any longer."""
        wanted = settled.wanted
        key = (wanted.topic, wanted.index)
        if key in self.unsettled:
            return
        self.unsettled[key] = wanted
        in_sync = settled.partition.in_sync
        follower = None if in_sync is None else in_sync.follower(self.replica_id)
        if follower is not None:
            follower.repeated(self._noted_ms)

    def appended(self, size: int) -> None:
        """This many bytes were appended to a partition."""
        self.appended_bytes += size
        if self.waiting is not None:
            self.waiting.look()

    def lost(self) -> None:
        """A partition may have an error now."""
        self.has_lost = True
        if self.waiting is not None:
            self.waiting.look()

"""One partition that this broker has a replica of: leader epoch, in-sync replicas, high watermark, and who waits.

The log stores bytes; this module decides who may write and how far a reader may see. One replica is the simplest
case: the leader is the only member of the ISR, so the high watermark is the log end offset as soon as the append
returns.

Readers that found too little park a `Waiter` here and are told of every append. A waiter is told, it does not look:
what happens to it then (when enough bytes have come) is its owner's business.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..log.config import LogConfig
from ..log.partition_log import AppendInfo, FetchData, Log
from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.messages.fetch import EpochEndOffset
from .waiters import Waiters

ACKS_ALL = -1
# A fetch of a plain consumer and of a follower: where each may read to.
ISOLATION_READ_UNCOMMITTED = 0
ISOLATION_READ_COMMITTED = 1
ISOLATION_LEVELS = frozenset({ISOLATION_READ_UNCOMMITTED, ISOLATION_READ_COMMITTED})
NO_LEADER_EPOCH = -1
_NO_LIMIT = 0x7FFF_FFFF_FFFF_FFFF


Buffer = bytes | bytearray | memoryview


class Partition:
    """A replica of a topic's partition on this broker."""

    __slots__ = (
        "_flushes_appends",
        "index",
        "isr",
        "leader_epoch",
        "leader_id",
        "local_id",
        "log",
        "min_insync_replicas",
        "offline",
        "partition_epoch",
        "replicas",
        "topic",
        "topic_id",
        "waiters",
    )

    def __init__(self, topic: str, topic_id: bytes, index: int, local_id: int, log: Log) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.local_id = local_id
        self.log = log
        self.leader_id = -1
        self.leader_epoch = NO_LEADER_EPOCH
        self.partition_epoch = -1
        self.replicas: tuple[int, ...] = ()
        self.isr: tuple[int, ...] = ()
        self.min_insync_replicas = 1
        self.offline = False  # its log directory failed
        self.waiters = Waiters()
        self._flushes_appends = False
        self.update_config(log.config, min_insync_replicas=1)

    def update_config(self, config: LogConfig, *, min_insync_replicas: int) -> None:
        """Take over the topic's settings."""
        self.min_insync_replicas = min_insync_replicas
        self._flushes_appends = config.flush_messages < _NO_LIMIT or config.flush_ms < _NO_LIMIT
        if config is not self.log.config:
            self.log.update_config(config)

    # -- leadership ----------------------------------------------------------------------------------------------------

    def update(
        self,
        *,
        leader_id: int,
        leader_epoch: int,
        partition_epoch: int,
        replicas: tuple[int, ...],
        isr: tuple[int, ...],
    ) -> None:
        """Take over what the controller decided."""
        changed = leader_id != self.leader_id or leader_epoch != self.leader_epoch
        self.leader_id = leader_id
        self.partition_epoch = partition_epoch
        self.replicas = replicas
        self.isr = isr
        if leader_epoch != self.leader_epoch:
            self.leader_epoch = leader_epoch
            if leader_id == self.local_id:
                self.log.assign_leader_epoch(leader_epoch)
        if changed:
            self.waiters.tell_changed()

    def check_leader(self, current_leader_epoch: int = NO_LEADER_EPOCH) -> None:
        """Raise unless this broker leads, in the epoch that the client knows (KIP-320)."""
        if self.offline:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"The log directory of {self.topic}-{self.index} is offline."
            )
        if self.leader_id != self.local_id:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if current_leader_epoch != NO_LEADER_EPOCH and current_leader_epoch != self.leader_epoch:
            fenced = current_leader_epoch < self.leader_epoch
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH if fenced else ErrorCode.UNKNOWN_LEADER_EPOCH)

    # -- offsets -------------------------------------------------------------------------------------------------------

    @property
    def high_watermark(self) -> int:
        """The offset up to which records are on every in-sync replica."""
        return self.log.log_end_offset

    @property
    def last_stable_offset(self) -> int:
        """The offset below which no transaction is open."""
        return self.log.log_end_offset

    def visible_end_offset(self, isolation_level: int) -> int:
        """Where a reader of this isolation level must stop."""
        return self.last_stable_offset if isolation_level == ISOLATION_READ_COMMITTED else self.high_watermark

    # -- records -------------------------------------------------------------------------------------------------------

    def append(self, records: Buffer, *, acks: int, now_ms: int, validated: bool = False) -> AppendInfo:
        """Append a client's batches as leader.

        Raises:
            KafkaError: NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS, KAFKA_STORAGE_ERROR, or what `Log.append` refuses.
        """
        if self.leader_id != self.local_id or self.offline:
            self.check_leader()
        if acks == ACKS_ALL and self._lacks_replicas():
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"The size of the current ISR {list(self.isr)} of {self.topic}-{self.index} is less than "
                f"min.insync.replicas={self.min_insync_replicas}.",
            )
        info = self.log.append(records, now_ms=now_ms, leader_epoch=self.leader_epoch, validated=validated)
        if self._flushes_appends and self.log.flush_due(now_ms):
            self.log.flush(now_ms)
        if not info.duplicate:
            self.waiters.appended(len(records))
        return info

    def append_plain(self, batches: Sequence[Buffer], *, acks: int, now_ms: int) -> list[AppendInfo]:
        """Append the first of these batches, as many as `Log.append_plain` takes; none where `append` has to be asked,
        because it would refuse the first one or treat it specially.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR: they are in the log and could not be flushed. They may not be acknowledged,
                nor appended again.
        """
        if self.leader_id != self.local_id or self.offline or (acks == ACKS_ALL and self._lacks_replicas()):
            return []
        try:
            appended = self.log.append_plain(batches, now_ms=now_ms, leader_epoch=self.leader_epoch)
        except KafkaError:
            return []
        if appended and self._flushes_appends and self.log.flush_due(now_ms):
            self.log.flush(now_ms)
        if appended and not appended[0].duplicate:
            self.waiters.appended(sum(map(len, batches[: len(appended)])))
        return appended

    def _lacks_replicas(self) -> bool:
        # More in-sync replicas than there are replicas are not waited for: a topic of one replica takes acks=all.
        return len(self.isr) < min(self.min_insync_replicas, len(self.replicas))

    def read(
        self, offset: int, max_bytes: int, *, isolation_level: int, min_one_batch: bool, wait: bool = True
    ) -> FetchData:
        """What a consumer may see from ``offset`` on, as a range of the segment file.

        Raises:
            KafkaError: OFFSET_OUT_OF_RANGE (below the log start or above the visible end), KAFKA_STORAGE_ERROR.
            ColdRead: without ``wait``, where finding it would wait for the device.
        """
        return self.log.read(
            offset,
            max_bytes,
            max_offset=self.visible_end_offset(isolation_level),
            min_one_batch=min_one_batch,
            wait=wait,
        )

    def diverging_epoch(self, fetch_offset: int, last_fetched_epoch: int) -> EpochEndOffset | None:
        """Where the reader's history leaves ours, if it does (KIP-320, KIP-595)."""
        if last_fetched_epoch < 0:
            return None
        epoch, end_offset = self.end_offset_for_epoch(last_fetched_epoch)
        if end_offset == -1:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"Nothing is known of leader epoch {last_fetched_epoch}.")
        if epoch < last_fetched_epoch or end_offset < fetch_offset:
            return EpochEndOffset(epoch=epoch, end_offset=end_offset)
        return None

    def end_offset_for_epoch(self, leader_epoch: int) -> tuple[int, int]:
        """The largest epoch up to ``leader_epoch`` and the offset where it ends; (-1, -1) when it is unknown."""
        if leader_epoch == self.leader_epoch:
            return leader_epoch, self.log.log_end_offset
        return self.log.end_offset_for_epoch(leader_epoch)

    def delete_records_before(self, offset: int) -> int:
        """Move the log start offset up (-1: to the high watermark); returns the new low watermark.

        Raises:
            KafkaError: OFFSET_OUT_OF_RANGE, POLICY_VIOLATION (a topic that is only compacted), NOT_LEADER_OR_FOLLOWER.
        """
        self.check_leader()
        if self.log.config.cleanup_policy == ("compact",):
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"Records of {self.topic}-{self.index} cannot be deleted: its cleanup.policy is compact alone.",
            )
        target = self.high_watermark if offset == -1 else offset
        if target < 0 or target > self.high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"The offset {offset} of {self.topic}-{self.index} is not between 0 and its high watermark "
                f"{self.high_watermark}.",
            )
        self.log.delete_records_before(target)
        self.waiters.tell_changed()
        return self.log.log_start_offset

    def go_offline(self) -> None:
        """Its log directory failed: refuse everything until the next start."""
        self.offline = True
        self.waiters.tell_changed()

    def close(self) -> None:
        """The partition leaves this broker: everybody who waits must ask again."""
        self.leader_id = -1
        self.waiters.tell_changed()

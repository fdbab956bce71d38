"""One partition that this broker has a replica of: leader epoch, in-sync replicas, high watermark, and who waits.

The log stores bytes; this module decides who may write and how far a reader may see. One replica is the simplest
case: the leader is the only member of the ISR, so the high watermark is the log end offset as soon as the append
returns. But where ``flush.messages`` makes a flush due, it stays before that append until the flush has ended
(`HeldBack`), and so does whoever waits for the append (`when_committed`).

Readers of what was committed stop at the last stable offset: where the oldest open transaction begins, or at the high
watermark when none is open.

Readers that found too little park a `Waiter` here and are told of every append. A waiter is told, it does not look:
what happens to it then (when enough bytes have come) is its owner's business. Those who are held back by an open
transaction are told when its marker has come.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..log.config import LogConfig
from ..log.partition_log import AppendInfo, FetchData, Log
from ..log.producer_state import MARKER_BATCH_SIZE, EndTransactionMarker
from ..log.verification import Verification
from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.messages.fetch import EpochEndOffset
from .held_back import HeldBack, Told
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
        "_open_transactions",
        "_wants_flush",
        "held_back",
        "index",
        "isr",
        "leader_epoch",
        "leader_id",
        "local_id",
        "log",
        "min_insync_replicas",
        "offline",
        "on_high_watermark",
        "partition_epoch",
        "replicas",
        "topic",
        "topic_id",
        "waiters",
    )

    def __init__(
        self,
        topic: str,
        topic_id: bytes,
        index: int,
        local_id: int,
        log: Log,
        wants_flush: Callable[[Log], None] | None = None,
    ) -> None:
        """``wants_flush`` is asked for a flush that begins soon; None: appends flush by themselves, and wait for it."""
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
        self._open_transactions = log.producers.open_transactions
        self._wants_flush = wants_flush
        self._flushes_appends = False
        self.held_back: HeldBack | None = None
        """What is being flushed and may not be seen before; None nearly always, but with ``flush.messages``."""
        self.on_high_watermark: Callable[[], None] | None = None
        """Told when the high watermark has moved at the end of a flush, after everybody who waited for it."""
        log.on_flushed = self.flushed
        self.update_config(log.config, min_insync_replicas=1)
        if wants_flush is not None and self._flushes_appends and log.flush_messages_reached:
            # The process before died; what it left unflushed is in the page cache, and perhaps nowhere else.
            self.held_back = HeldBack(max(log.flushed_offset, log.log_start_offset))
            self.held_back.add(log.log_end_offset, log.size)  # at most so much: who waits for it is told
            wants_flush(log)

    def update_config(self, config: LogConfig, *, min_insync_replicas: int) -> None:
        """Take over the topic's settings."""
        self.min_insync_replicas = min_insync_replicas
        # What is held back stays so until its flush has ended.
        self._flushes_appends = config.flush_messages < _NO_LIMIT or self.held_back is not None
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
            if leader_id != self.local_id:
                self._refuse_held_back(ErrorCode.NOT_LEADER_OR_FOLLOWER)

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
        """The offset up to which records are on every in-sync replica, and flushed where that was asked for."""
        held_back = self.held_back
        return self.log.log_end_offset if held_back is None else held_back.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """The offset below which no transaction is open."""
        if self.held_back is not None:
            return self._held_stable_offset(self.held_back)
        if self._open_transactions:
            # Records of an open transaction may be deleted: then what is left of the log begins in the midst of it.
            return max(next(iter(self._open_transactions)), self.log.log_start_offset)
        return self.log.log_end_offset

    def _held_stable_offset(self, held_back: HeldBack) -> int:
        """A transaction whose marker is held back is open for readers."""
        first = [held_back.first_ending, next(iter(self._open_transactions), None)]
        lowest = min([offset for offset in first if offset is not None], default=_NO_LIMIT)
        return min(held_back.high_watermark, max(lowest, self.log.log_start_offset))

    @property
    def has_unstable_records(self) -> bool:
        """Whether an open transaction keeps the last stable offset where it is, whatever is appended."""
        return bool(self._open_transactions) or (self.held_back is not None and self.held_back.first_ending is not None)

    def visible_end_offset(self, isolation_level: int) -> int:
        """Where a reader of this isolation level must stop."""
        return self.last_stable_offset if isolation_level == ISOLATION_READ_COMMITTED else self.high_watermark

    # -- records -------------------------------------------------------------------------------------------------------

    def append(
        self,
        records: Buffer,
        *,
        acks: int,
        now_ms: int,
        client: bool = True,
        validated: bool = False,
        verification: Verification | None = None,
    ) -> AppendInfo:
        """Append a client's batch as leader; or without ``client`` a coordinator's, in the name of a producer.

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
        info = self.log.append(
            records,
            now_ms=now_ms,
            leader_epoch=self.leader_epoch,
            client=client,
            validated=validated,
            verification=verification,
        )
        if self._flushes_appends:
            self._hold_back(info, len(records), now_ms)
        elif not info.duplicate:
            self.waiters.appended(len(records))
        return info

    def append_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        *,
        coordinator_epoch: int,
        committed: bool,
        transaction_version: int,
        now_ms: int,
    ) -> AppendInfo:
        """Append the marker that ends a producer's transaction. How many replicas are in sync does not matter: as long
        as the transaction is open, readers of what was committed wait for it.

        Raises:
            KafkaError: NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR, INVALID_PRODUCER_EPOCH,
                TRANSACTION_COORDINATOR_FENCED.
        """
        self.check_leader()
        log = self.log
        oldest = next(iter(self._open_transactions), None)
        first_offset: int | None = None
        if self._flushes_appends:
            opened = (first for first, opener in self._open_transactions.items() if opener == producer_id)
            first_offset = next(opened, None)
        info = log.append_marker(
            producer_id,
            producer_epoch,
            EndTransactionMarker(committed, coordinator_epoch),
            transaction_version=transaction_version,
            now_ms=now_ms,
            leader_epoch=self.leader_epoch,
        )
        if self._flushes_appends:
            self._hold_back(info, MARKER_BATCH_SIZE, now_ms, ends_from=first_offset)
            if self.held_back is not None:
                return info
        else:
            self.waiters.appended(MARKER_BATCH_SIZE)
        if oldest is not None and next(iter(self._open_transactions), None) != oldest:
            self.waiters.tell_stable()
        return info

    def has_open_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether the producer's transaction of this epoch has records here and no marker."""
        return self.log.has_open_transaction(producer_id, producer_epoch)

    def start_verification(
        self, producer_id: int, producer_epoch: int, first_sequence: int, *, epoch_per_transaction: bool, now_ms: int
    ) -> Verification | None:
        """What `append` needs for the first batch of a transaction, once the coordinator has confirmed it; None where
        the transaction is open here already (KIP-890). ``epoch_per_transaction``: the client raises its epoch with each
        transaction (Produce since version 12, TxnOffsetCommit since 5).

        Raises:
            KafkaError: INVALID_PRODUCER_EPOCH, or as `check_leader`.
        """
        self.check_leader()
        return self.log.start_verification(
            producer_id, producer_epoch, first_sequence, epoch_per_transaction=epoch_per_transaction, now_ms=now_ms
        )

    def append_plain(self, batches: Sequence[Buffer], *, acks: int, now_ms: int) -> list[AppendInfo]:
        """Append the first of these batches, as many as `Log.append_plain` takes; none where `append` has to be asked,
        because it would refuse the first one or treat it specially, or have it wait to be flushed.
        """
        if (
            self.leader_id != self.local_id
            or self.offline
            or self._flushes_appends
            or (acks == ACKS_ALL and self._lacks_replicas())
        ):
            return []
        try:
            appended = self.log.append_plain(batches, now_ms=now_ms, leader_epoch=self.leader_epoch)
        except KafkaError:
            return []
        if appended and not appended[0].duplicate:
            self.waiters.appended(sum(map(len, batches[: len(appended)])))
        return appended

    # -- flushed before it counts --------------------------------------------------------------------------------------

    @property
    def flushes_appends(self) -> bool:
        """Whether appends may have to be flushed before they count."""
        return self._flushes_appends

    def when_committed(self, end_offset: int, told: Told) -> None:
        """Call ``told`` when everything before ``end_offset`` is below the high watermark: now, or when that has moved;
        or with the error if this broker cannot wait for it any more."""
        held_back = self.held_back
        if held_back is None or end_offset <= held_back.high_watermark:
            told(None)
        else:
            held_back.wait(end_offset, told)

    def _hold_back(self, info: AppendInfo, size: int, now_ms: int, *, ends_from: int | None = None) -> None:
        """These records were appended; ``ends_from``: the transaction that began there ends with them."""
        if info.duplicate:
            return
        held_back = self.held_back
        is_due = held_back is None and self.log.flush_messages_reached
        if is_due:
            held_back = self.held_back = HeldBack(info.first_offset)
        if held_back is None:
            self.waiters.appended(size)
            return
        held_back.add(info.last_offset + 1, size)
        if ends_from is not None:
            held_back.add_ending(ends_from, info.last_offset)
        if is_due:
            self._ask_for_flush(now_ms)

    def _ask_for_flush(self, now_ms: int) -> None:
        if self._wants_flush is None:
            self.log.flush(now_ms)
        else:
            self._wants_flush(self.log)

    def flushed(self) -> None:
        """More of the log is on the device: move the high watermark, and tell those who waited for it."""
        held_back = self.held_back
        if held_back is None:
            return
        log = self.log
        stable = self.last_stable_offset
        if log.flush_messages_reached:
            assert self._wants_flush is not None, "a flush that was waited for has left nothing behind"
            high_watermark = log.flushed_offset
            self._wants_flush(log)
        else:
            high_watermark = log.log_end_offset
            self.held_back = None
            self.update_config(log.config, min_insync_replicas=self.min_insync_replicas)
        size = held_back.move(high_watermark)
        # Who is told below may append the next records at once.
        if size:
            self.waiters.appended(size)
        if self.last_stable_offset != stable:
            self.waiters.tell_stable()
        held_back.tell()
        if self.on_high_watermark is not None:
            self.on_high_watermark()

    def _refuse_held_back(self, code: ErrorCode) -> None:
        if self.held_back is not None:
            self.held_back.refuse(KafkaError(code, f"{self.topic}-{self.index} was lost while it was being flushed."))

    def _lacks_replicas(self) -> bool:
        # More in-sync replicas than there are replicas are not waited for: a topic of one replica takes acks=all.
        return len(self.isr) < min(self.min_insync_replicas, len(self.replicas))

    def read(
        self, offset: int, max_bytes: int, *, isolation_level: int, min_one_batch: bool, wait: bool = True
    ) -> FetchData:
        """What a consumer may see from ``offset`` on, as a range of the segment file, and what in it was aborted.

        Raises:
            KafkaError: OFFSET_OUT_OF_RANGE (below the log start or above the visible end), KAFKA_STORAGE_ERROR.
            ColdRead: without ``wait``, where finding it would wait for the device.
        """
        committed = isolation_level == ISOLATION_READ_COMMITTED
        return self.log.read(
            offset,
            max_bytes,
            max_offset=self.last_stable_offset if committed else self.high_watermark,
            min_one_batch=min_one_batch,
            wait=wait,
            committed=committed,
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
        self._refuse_held_back(ErrorCode.KAFKA_STORAGE_ERROR)

    def close(self, code: ErrorCode = ErrorCode.NOT_LEADER_OR_FOLLOWER) -> None:
        """The partition leaves this broker: everybody who waits must ask again. ``code`` is why."""
        self.leader_id = -1
        self.waiters.tell_changed()
        self._refuse_held_back(code)

"""One partition with a replica on this broker: leadership, durable and committed offsets, and waiting requests.

The log stores bytes. This module decides who may write, and how far readers may read. Four offsets matter:

* the log end offset: the end of the appended records;
* the durable offset: if ``flush.messages`` makes a flush due, it stays before the append until the flush has ended
  (`AwaitedFlush`); otherwise it is the log end offset;
* the committed offset: every in-sync replica has the records before it, and on this broker they are durable;
* the high watermark: consumers read up to it. It follows the committed offset, and does not decrease within a leader
  epoch. It does not move while fewer replicas are in sync than ``min.insync.replicas``.

With one replica, the simplest case, all four are equal as soon as the append returns, and there is no object except the
log: `in_sync` and `uncommitted` are None.

Consumers with ``read_committed`` stop at the last stable offset: the beginning of the oldest open transaction, or the
high watermark if no transaction is open.

A fetch that finds too few records registers a `Waiter` here. It is notified when enough bytes are below the high
watermark. If an open transaction blocks it, it is notified when the marker of that transaction is. Fetches of followers
read to the log end, so they are notified of appends (`replica_waiters`).

A follower appends what its leader has sent, and truncates its log where it diverges (`following` decides when). It
takes over the leader's high watermark as far as it has the records. Apart from truncation, its high watermark does not
decrease: the records below it were committed, and a new leader has all of them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from ..log.config import LogConfig
from ..log.partition_log import AppendInfo, FetchData, Log, WrittenAhead
from ..log.producer_state import MARKER_BATCH_SIZE, CompletedTransaction, EndTransactionMarker
from ..log.truncation import PreparedTruncation
from ..log.verification import Verification
from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.records import InvalidRecordsError, iter_batches
from .in_sync import NO_BROKER_EPOCH, UNKNOWN_OFFSET, InSyncReplicas
from .observer import Observer
from .traffic import UNCOUNTED
from .uncommitted import AwaitedFlush, OffsetWaiters, OnAcknowledged, UncommittedRecords
from .waiters import Waiters

logger = logging.getLogger(__name__)

ACKS_ALL = -1
ACKS_ONE = 1
# Fetches of consumers, and of followers: the isolation level limits how far they read.
ISOLATION_READ_UNCOMMITTED = 0
ISOLATION_READ_COMMITTED = 1
ISOLATION_LEVELS = frozenset({ISOLATION_READ_UNCOMMITTED, ISOLATION_READ_COMMITTED})
NO_LEADER_EPOCH = -1
_NO_LIMIT = 0x7FFF_FFFF_FFFF_FFFF


Buffer = bytes | bytearray | memoryview


class Partition:
    """The replica of a partition on this broker."""

    __slots__ = (
        "_awaited_flush",
        "_commits_later",
        "_deletions",
        "_flushes_appends",
        "_is_writable",
        "_lacks_replicas",
        "_open_transactions",
        "_request_flush",
        "in_sync",
        "index",
        "isr",
        "leader_epoch",
        "leader_id",
        "local_id",
        "log",
        "min_insync_replicas",
        "observers",
        "offline",
        "on_high_watermark",
        "partition_epoch",
        "replica_waiters",
        "replicas",
        "topic",
        "topic_id",
        "traffic",
        "uncommitted",
        "waiters",
    )

    def __init__(
        self,
        topic: str,
        topic_id: bytes,
        index: int,
        local_id: int,
        log: Log,
        request_flush: Callable[[Log], None] | None = None,
    ) -> None:
        """``request_flush`` requests a flush that begins soon; None: appends flush synchronously."""
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
        self.offline = False  # its log directory has failed
        self.traffic = UNCOUNTED
        """The counters of the topic. `Replicas` sets them."""
        self.waiters = Waiters()
        self.replica_waiters: Waiters | None = None
        """The waiting fetches of followers, while this broker leads and there are other replicas; otherwise None."""
        self.observers: list[Observer] = []
        """Those that follow each change: the sessions of followers, or the fetcher of this broker."""
        self._open_transactions = log.producers.open_transactions
        self._request_flush = request_flush
        # `_derive` computes these four, so that appends need not.
        self._is_writable = self._lacks_replicas = self._flushes_appends = self._commits_later = False
        self._awaited_flush: AwaitedFlush | None = None
        self._deletions: OffsetWaiters | None = None  # deletions of records that followers have not repeated yet
        self.in_sync: InSyncReplicas | None = None
        """The followers, while this broker leads and there are other replicas; otherwise None."""
        self.uncommitted: UncommittedRecords | None = None
        """The records above the high watermark; None: the high watermark is the log end offset."""
        self.on_high_watermark: Callable[[], None] | None = None
        """Called when the high watermark has moved after an append returned, after the callbacks that waited for it."""
        log.on_flushed = self.flushed
        self.update_config(log.config, min_insync_replicas=1)
        if request_flush is not None and self._flushes_appends and log.flush_messages_reached:
            # The previous process crashed. Records that it did not flush may only be in the page cache.
            self._awaited_flush = AwaitedFlush(max(log.flushed_offset, log.log_start_offset))
            self.restore_high_watermark(self._awaited_flush.durable_offset)
            request_flush(log)

    def update_config(self, config: LogConfig, *, min_insync_replicas: int) -> None:
        """Apply the topic's settings."""
        self.min_insync_replicas = min_insync_replicas
        if config is not self.log.config:
            self.log.update_config(config)
        self._derive()
        if self.in_sync is not None:
            self.advance_high_watermark()

    def restore_high_watermark(self, offset: int) -> None:
        """Called at startup: records above ``offset`` may never have been committed.

        If other brokers have replicas, call this with the high watermark of the last checkpoint, before `become_leader`
        or `become_follower`.
        """
        log = self.log
        offset = min(max(offset, log.log_start_offset), self.high_watermark)
        if offset < log.log_end_offset:
            uncommitted = self.uncommitted = UncommittedRecords(offset)
            uncommitted.add(log.log_end_offset, log.size)  # an upper bound; fetches may wake up early
            try:
                for transaction in log.transactions_ended_since(offset):
                    uncommitted.add_ending(transaction.first_offset, transaction.last_offset)
            except KafkaError as error:  # any transaction may have its marker above the high watermark
                logger.error("%s-%d: reading its uncommitted records failed: %s", self.topic, self.index, error.message)
                uncommitted.add_ending(log.log_start_offset, log.log_end_offset - 1)

    def _derive(self) -> None:
        # Appends that wait for a flush wait until it has ended, whatever the current setting is.
        self._flushes_appends = self.log.config.flush_messages < _NO_LIMIT or self._awaited_flush is not None
        self._commits_later = self._flushes_appends or self.in_sync is not None
        self._is_writable = self.leader_id == self.local_id and not self.offline
        # The required number of in-sync replicas is at most the number of replicas: one replica suffices for acks=all.
        self._lacks_replicas = len(self.isr) < min(self.min_insync_replicas, len(self.replicas))

    # -- leadership ----------------------------------------------------------------------------------------------------

    def become_leader(
        self, *, leader_epoch: int, partition_epoch: int, replicas: tuple[int, ...], isr: tuple[int, ...], now_ms: int
    ) -> bool:
        """The controller has made this broker the leader, or has changed the replicas or the ISR in the same epoch.

        Returns False, and changes nothing, if this is older than the known state.
        """
        if self._is_outdated(leader_epoch, partition_epoch):
            return False
        changed = self.leader_id != self.local_id or leader_epoch != self.leader_epoch
        is_known = partition_epoch == self.partition_epoch
        if not changed and len(isr) != len(self.isr):
            if len(isr) < len(self.isr):
                self.traffic.isr_shrinks += 1
            else:
                self.traffic.isr_expands += 1
        if leader_epoch != self.leader_epoch:
            self.log.assign_leader_epoch(leader_epoch)
        self._set_leadership(self.local_id, leader_epoch, partition_epoch, replicas, isr)
        if len(replicas) == 1:
            self.in_sync = None
            self._end_replica_waiters()
        elif self.in_sync is None or changed:
            if self.replica_waiters is None:
                self.replica_waiters = Waiters()
            # Positions of followers from another epoch are meaningless: the followers may have to truncate their logs.
            self.in_sync = InSyncReplicas(
                self.local_id, replicas, isr, epoch_start=self.log.log_end_offset, now_ms=now_ms
            )
        elif not is_known:  # a known state must not settle a newer proposal
            self.in_sync.update(replicas, isr)
        self._derive()
        if changed:
            self._notify_changed()
        self.advance_high_watermark()
        return True

    def become_follower(
        self,
        *,
        leader_id: int,
        leader_epoch: int,
        partition_epoch: int,
        replicas: tuple[int, ...],
        isr: tuple[int, ...],
    ) -> bool:
        """The controller has made another broker the leader, or none (-1).

        Waiting produce requests fail with NOT_LEADER_OR_FOLLOWER. Returns False, and changes nothing, if this is older
        than the known state.
        """
        if self._is_outdated(leader_epoch, partition_epoch):
            return False
        changed = leader_id != self.leader_id or leader_epoch != self.leader_epoch
        self._set_leadership(leader_id, leader_epoch, partition_epoch, replicas, isr)
        self.in_sync = None
        self._end_replica_waiters()
        if self.uncommitted is None and len(replicas) > 1:
            self.uncommitted = UncommittedRecords(
                self.high_watermark
            )  # from now on the leader decides which records are committed
        self._derive()
        if changed:
            self._notify_changed()
            self._fail_waiting(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return True

    def _notify_changed(self) -> None:
        self.waiters.notify_changed()
        if self.replica_waiters is not None:
            self.replica_waiters.notify_changed()
        for observer in self.observers:
            observer.lost()

    def _end_replica_waiters(self) -> None:
        """This broker has no followers any longer."""
        ended, self.replica_waiters = self.replica_waiters, None
        if ended is not None:
            ended.notify_changed()

    def _is_outdated(self, leader_epoch: int, partition_epoch: int) -> bool:
        # The controller's response to a change of the ISR may arrive before its record in the metadata log.
        return partition_epoch < self.partition_epoch or leader_epoch < self.leader_epoch

    def _set_leadership(
        self, leader_id: int, leader_epoch: int, partition_epoch: int, replicas: tuple[int, ...], isr: tuple[int, ...]
    ) -> None:
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        self.partition_epoch = partition_epoch
        self.replicas = replicas
        self.isr = isr
        self._notify_moved()

    def _notify_moved(self) -> None:
        for observer in self.observers:
            observer.moved()

    def check_leader(self, current_leader_epoch: int = NO_LEADER_EPOCH, *, or_follower: bool = False) -> None:
        """Raise unless this broker leads, in the client's leader epoch (KIP-320).

        A wrong epoch is reported first, as in Apache Kafka: a client with a later one retries, because this broker may
        be about to lead.

        ``or_follower``: the partition may also be read here if this broker follows (KIP-392).
        """
        if self.offline:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"The log directory of {self.topic}-{self.index} is offline."
            )
        if current_leader_epoch != NO_LEADER_EPOCH and current_leader_epoch != self.leader_epoch:
            fenced = current_leader_epoch < self.leader_epoch
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH if fenced else ErrorCode.UNKNOWN_LEADER_EPOCH)
        if self.leader_id != self.local_id and not or_follower:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def check_follower(self, replica_id: int, current_leader_epoch: int = NO_LEADER_EPOCH) -> InSyncReplicas:
        """Return the in-sync replicas, if this broker leads and has this follower.

        Raises:
            KafkaError: as `check_leader`. For an unknown replica, UNKNOWN_LEADER_EPOCH: the follower may know a newer
                state, and retries. Without a leader epoch, NOT_LEADER_OR_FOLLOWER.
        """
        self.check_leader(current_leader_epoch)
        in_sync = self.in_sync
        if in_sync is None or in_sync.follower(replica_id) is None:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER
                if current_leader_epoch == NO_LEADER_EPOCH
                else ErrorCode.UNKNOWN_LEADER_EPOCH,
                f"Broker {replica_id} is not one of the replicas {list(self.replicas)} of {self.topic}-{self.index}.",
            )
        return in_sync

    def follower_fetched(
        self,
        replica_id: int,
        offset: int,
        *,
        now_ms: int,
        eligible: bool,
        current_leader_epoch: int = NO_LEADER_EPOCH,
        broker_epoch: int = NO_BROKER_EPOCH,
        log_start_offset: int = UNKNOWN_OFFSET,
    ) -> None:
        """A follower fetches from ``offset`` on, so it has all records before it. ``eligible``: see
        `InSyncReplicas.fetched`. ``broker_epoch``, ``log_start_offset``: those of the follower. After all positions of
        a request are updated, call `advance_high_watermark` and `review_deletions`.

        Raises:
            KafkaError: as `check_follower`.
        """
        self.check_follower(replica_id, current_leader_epoch).fetched(
            replica_id,
            offset,
            broker_epoch=broker_epoch,
            leader_end_offset=self.log.log_end_offset,
            high_watermark=self.high_watermark,
            now_ms=now_ms,
            eligible=eligible,
            log_start_offset=log_start_offset,
        )

    # -- offsets -------------------------------------------------------------------------------------------------------

    @property
    def durable_offset(self) -> int:
        """The offset up to which records are durable on this broker, if flushing was requested."""
        awaited = self._awaited_flush
        return self.log.log_end_offset if awaited is None else awaited.durable_offset

    @property
    def awaits_flush(self) -> bool:
        """Whether records must not be acknowledged, to clients or to a leader, before a flush has ended."""
        awaited = self._awaited_flush
        return awaited is not None and awaited.durable_offset < self.log.log_end_offset and not self.offline

    @property
    def committed_offset(self) -> int:
        """For the leader: the offset up to which every in-sync replica has the records, and this broker durably. Less
        than the high watermark while the positions of followers are unknown."""
        in_sync = self.in_sync
        return self.durable_offset if in_sync is None else in_sync.committed_offset(self.durable_offset)

    @property
    def high_watermark(self) -> int:
        """The offset up to which consumers may read."""
        uncommitted = self.uncommitted
        return self.log.log_end_offset if uncommitted is None else uncommitted.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """The offset below which no transaction is open."""
        if self.uncommitted is not None:
            return self._lagging_stable_offset(self.uncommitted)
        if self._open_transactions:
            # The first records of an open transaction may be deleted: then the log begins within the transaction.
            return max(next(iter(self._open_transactions)), self.log.log_start_offset)
        return self.log.log_end_offset

    def _lagging_stable_offset(self, uncommitted: UncommittedRecords) -> int:
        """A transaction whose marker is above the high watermark is open for readers."""
        first = [uncommitted.first_ending, next(iter(self._open_transactions), None)]
        lowest = min([offset for offset in first if offset is not None], default=_NO_LIMIT)
        return min(uncommitted.high_watermark, max(lowest, self.log.log_start_offset))

    @property
    def has_unstable_records(self) -> bool:
        """Whether an open transaction keeps the last stable offset from moving, whatever is appended."""
        return bool(self._open_transactions) or (
            self.uncommitted is not None and self.uncommitted.first_ending is not None
        )

    def visible_end_offset(self, isolation_level: int) -> int:
        """The offset at which a reader with this isolation level must stop."""
        return self.last_stable_offset if isolation_level == ISOLATION_READ_COMMITTED else self.high_watermark

    # -- writing -------------------------------------------------------------------------------------------------------

    def may_append(self, acks: int) -> bool:
        """Whether this broker accepts records: it leads, its log directory is online, and there are enough in-sync
        replicas for ``acks=all``."""
        return self._is_writable and (acks != ACKS_ALL or not self._lacks_replicas)

    def acknowledges_appends(self, acks: int) -> bool:
        """Whether an append is acknowledged when it returns: it waits for no flush, and with ``acks=all`` for no other
        replicas."""
        return not self._flushes_appends and (acks != ACKS_ALL or (self._commits_alone and self.uncommitted is None))

    def append(
        self,
        records: Buffer,
        *,
        acks: int,
        now_ms: int,
        client: bool = True,
        validated: bool = False,
        verification: Verification | None = None,
        ahead: WrittenAhead | None = None,
    ) -> AppendInfo:
        """Append a client's batch as leader; without ``client``, a coordinator's batch on behalf of a producer.

        ``ahead``: see `Log.write_ahead`.

        Raises:
            KafkaError: NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS, KAFKA_STORAGE_ERROR, or an error of `Log.append`.
        """
        if not self.may_append(acks):
            self.check_leader()
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
            ahead=ahead,
        )
        if not info.duplicate:
            traffic = self.traffic
            traffic.messages_in += info.last_offset + 1 - info.first_offset
            traffic.bytes_in += len(records)
            if self._commits_later:
                self._track_uncommitted(info.first_offset, info.last_offset + 1, len(records), now_ms)
            else:
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
        """Append the marker that ends a producer's transaction. The number of in-sync replicas does not matter:
        while the transaction is open, readers of committed records wait for it.

        Raises:
            KafkaError: NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR, INVALID_PRODUCER_EPOCH,
                TRANSACTION_COORDINATOR_FENCED.
        """
        self.check_leader()
        log = self.log
        oldest = next(iter(self._open_transactions), None)
        first_offset: int | None = None
        if self._commits_later:
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
        if self._commits_later:
            self._track_uncommitted(
                info.first_offset, info.last_offset + 1, MARKER_BATCH_SIZE, now_ms, ends_from=first_offset
            )
            if self.uncommitted is not None:
                return info
        else:
            self.waiters.appended(MARKER_BATCH_SIZE)
        if oldest is not None and next(iter(self._open_transactions), None) != oldest:
            self.waiters.notify_stable()
        return info

    def has_open_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether the producer's transaction of this epoch has records here but no marker."""
        return self.log.has_open_transaction(producer_id, producer_epoch)

    def start_verification(
        self, producer_id: int, producer_epoch: int, first_sequence: int, *, epoch_per_transaction: bool, now_ms: int
    ) -> Verification | None:
        """Return what `append` needs for the first batch of a transaction, once the coordinator has confirmed it.

        None if the transaction is already open here (KIP-890). ``epoch_per_transaction``: the client bumps its epoch
        with each transaction (Produce since version 12, TxnOffsetCommit since 5).

        Raises:
            KafkaError: INVALID_PRODUCER_EPOCH, or as `check_leader`.
        """
        self.check_leader()
        return self.log.start_verification(
            producer_id, producer_epoch, first_sequence, epoch_per_transaction=epoch_per_transaction, now_ms=now_ms
        )

    def waits_for_replicas(self, acks: int) -> bool:
        """Whether appends are acknowledged when other replicas have them, with `when_acknowledged`."""
        return acks == ACKS_ALL and self.in_sync is not None

    def append_plain(self, batches: Sequence[Buffer], *, acks: int, now_ms: int) -> list[AppendInfo]:
        """Append the first of these batches, as many as `Log.append_plain` accepts.

        Returns an empty list if `append` must be used: it would reject the first batch or handle it specially, or the
        append would only be acknowledged after a flush. If it is acknowledged by other replicas (`waits_for_replicas`),
        use `when_acknowledged`.
        """
        if not self.may_append(acks) or (
            self._commits_later and not self.acknowledges_appends(acks) and not self.waits_for_replicas(acks)
        ):
            return []
        try:
            appended = self.log.append_plain(batches, now_ms=now_ms, leader_epoch=self.leader_epoch)
        except KafkaError:
            return []
        if appended and not appended[0].duplicate:
            size = sum(map(len, batches[: len(appended)]))
            traffic = self.traffic
            traffic.messages_in += appended[-1].last_offset + 1 - appended[0].first_offset
            traffic.bytes_in += size
            if self._commits_later:
                self._track_uncommitted(appended[0].first_offset, appended[-1].last_offset + 1, size, now_ms)
            else:
                self.waiters.appended(size)
        return appended

    # -- when records count --------------------------------------------------------------------------------------------

    def when_acknowledged(self, end_offset: int, acks: int, callback: OnAcknowledged) -> None:
        """Call ``callback`` when a produce request whose records end before ``end_offset`` may be completed.

        With ``acks=all`` this is when they are committed, otherwise when they are durable here. The call may happen now
        or later. It has an error if this broker is no longer the leader.
        """
        if acks == ACKS_ALL:
            self.when_committed(end_offset, callback)
            return
        awaited = self._awaited_flush
        if awaited is None or end_offset <= awaited.durable_offset:
            callback(None)
        else:
            awaited.waiters.add(end_offset, callback)

    def when_committed(self, end_offset: int, callback: OnAcknowledged) -> None:
        """Call ``callback`` when everything before ``end_offset`` is below the high watermark: now or later. The call
        has an error if this broker is no longer the leader."""
        uncommitted = self.uncommitted
        if uncommitted is None or end_offset <= uncommitted.high_watermark:
            callback(None)
        else:
            uncommitted.waiters.add(end_offset, callback)

    def _track_uncommitted(
        self, first_offset: int, end_offset: int, size: int, now_ms: int, *, ends_from: int | None = None
    ) -> None:
        """These records were appended. ``ends_from``: the first offset of the transaction that ends with them."""
        if self.replica_waiters is not None:
            self.replica_waiters.appended(size)
        for observer in self.observers:
            observer.appended(size)
        must_flush = self._awaited_flush is None and self.log.flush_messages_reached
        if must_flush:
            self._awaited_flush = AwaitedFlush(first_offset)
        uncommitted = self.uncommitted
        if uncommitted is None:
            if self._awaited_flush is None and self._commits_alone:
                self.waiters.appended(size)
                return
            uncommitted = self.uncommitted = UncommittedRecords(first_offset)
        uncommitted.add(end_offset, size)
        if ends_from is not None:
            uncommitted.add_ending(ends_from, end_offset - 1)
        if must_flush:
            self._flush_or_request(now_ms)

    @property
    def _commits_alone(self) -> bool:
        """Whether records that are durable on this broker are committed."""
        in_sync = self.in_sync
        return in_sync is None or (in_sync.is_alone and not self._lacks_replicas)

    def _flush_or_request(self, now_ms: int) -> None:
        if self._request_flush is None:
            self.log.flush(now_ms)
        else:
            self._request_flush(self.log)

    def flushed(self) -> None:
        """More of the log is durable."""
        awaited = self._awaited_flush
        if awaited is None:
            return
        log = self.log
        if log.flush_messages_reached:
            assert self._request_flush is not None, "no records are unflushed after an awaited flush"
            awaited.durable_offset = max(awaited.durable_offset, log.flushed_offset)
            self._request_flush(log)
        else:
            awaited.durable_offset = log.log_end_offset
            self._awaited_flush = None
            self._derive()
        # Callbacks may append the next records immediately.
        durable_offset = awaited.durable_offset
        self.advance_high_watermark()
        awaited.waiters.reach(durable_offset)

    def advance_high_watermark(self) -> None:
        """Move the high watermark to the committed offset, and call the callbacks that waited for it.

        Must be called after any change that affects the committed offset.
        """
        uncommitted = self.uncommitted
        if uncommitted is None or not self._decides_high_watermark:
            return
        stable = self.last_stable_offset
        high_watermark = max(uncommitted.high_watermark, self.committed_offset)
        moved = high_watermark > uncommitted.high_watermark
        size = uncommitted.move(high_watermark)
        if high_watermark == self.log.log_end_offset:
            self.uncommitted = None
        if moved:
            self._notify_moved()
        # Callbacks may append the next records immediately.
        if size:
            self.waiters.appended(size)
        if self.last_stable_offset != stable:
            self.waiters.notify_stable()
        uncommitted.waiters.reach(high_watermark)
        if moved and self.on_high_watermark is not None:
            self.on_high_watermark()

    @property
    def _decides_high_watermark(self) -> bool:
        """Whether this broker may move the high watermark: not as a follower, and not while the ISR is too small. A
        too small ISR might lose records that a consumer has read (KIP-966)."""
        return len(self.replicas) <= 1 if self.in_sync is None else not self._lacks_replicas

    def _fail_waiting(self, code: ErrorCode) -> None:
        error = KafkaError(
            code, f"{self.topic}-{self.index} was closed or failed before the records were committed; they may be lost."
        )
        if self._awaited_flush is not None:
            self._awaited_flush.waiters.fail_all(error)
        if self._deletions is not None:
            deletions, self._deletions = self._deletions, None
            deletions.fail_all(error)
        if self.uncommitted is not None:
            self.uncommitted.waiters.fail_all(error)

    # -- following -----------------------------------------------------------------------------------------------------

    def append_as_follower(self, records: Buffer, *, high_watermark: int, log_start_offset: int, now_ms: int) -> None:
        """Append what the leader has sent, and take over its high watermark and its log start offset.

        Raises:
            KafkaError: CORRUPT_MESSAGE, OFFSET_OUT_OF_RANGE, KAFKA_STORAGE_ERROR, as `Log.append_as_follower`.
        """
        log = self.log
        if len(records) and log.log_end_offset == log.log_start_offset:
            self._begin_with_whole_batch(records, now_ms)
        uncommitted = self.uncommitted
        assert uncommitted is not None, "not a follower"
        first_offset = log.log_end_offset
        if len(records):
            ended: list[CompletedTransaction] = []
            log.append_as_follower(records, now_ms=now_ms, leader_epoch=self.leader_epoch, ended=ended)
            if log.log_end_offset > first_offset:
                uncommitted.add(log.log_end_offset, len(records))
                for transaction in ended:
                    uncommitted.add_ending(transaction.first_offset, transaction.last_offset)
                if self._awaited_flush is None and self._flushes_appends and log.flush_messages_reached:
                    self._awaited_flush = AwaitedFlush(first_offset)
                    self._flush_or_request(now_ms)
        reached = max(uncommitted.high_watermark, min(high_watermark, log.log_end_offset))
        if reached > uncommitted.high_watermark:
            stable = self.last_stable_offset
            self.waiters.appended(uncommitted.move(reached))
            if self.last_stable_offset != stable:
                self.waiters.notify_stable()
        start = min(log_start_offset, reached)
        if start > log.log_start_offset:
            log.delete_records_before(start)

    def _begin_with_whole_batch(self, records: Buffer, now_ms: int) -> None:
        """The leader's log start offset may lie within a batch, because of DeleteRecords. An empty log that begins
        there gets the whole batch, so it must begin with it. The log start offset is raised again after the append."""
        offset = self.log.log_end_offset
        try:
            batch = next(iter_batches(records), None)
        except InvalidRecordsError:
            return  # the append rejects it
        if (
            batch is not None
            and 0 <= batch.base_offset < offset <= batch.last_offset
            and batch.partition_leader_epoch <= self.leader_epoch
            and batch.has_valid_crc()
        ):
            self.restart_as_follower(batch.base_offset, now_ms)

    def truncate_as_follower(
        self, offset: int, now_ms: int, *, sync: bool = True, prepared: PreparedTruncation | None = None
    ) -> None:
        """Remove the records from ``offset`` on: the leader does not have them. Without ``sync``, the log must be
        flushed before records are appended, or the append waits for the device. ``prepared`` is the result of
        `Log.prepare_truncation`."""
        self.log.truncate_to(offset, now_ms, sync=sync, prepared=prepared)
        self._truncated()

    def restart_as_follower(self, offset: int, now_ms: int, *, sync: bool = True) -> None:
        """Remove all records: the next one is the leader's first, at ``offset``. For ``sync``, see
        `truncate_as_follower`."""
        self.log.truncate_fully_and_start_at(offset, now_ms, sync=sync)
        self.uncommitted = UncommittedRecords(offset)
        self._truncated()

    def _truncated(self) -> None:
        end_offset = self.log.log_end_offset
        uncommitted = self.uncommitted
        assert uncommitted is not None, "not a follower"
        uncommitted.truncate(end_offset)
        awaited = self._awaited_flush
        if awaited is not None:
            awaited.durable_offset = min(awaited.durable_offset, end_offset)
        self._notify_changed()

    # -- reading -------------------------------------------------------------------------------------------------------

    @property
    def may_miss_committed_records(self) -> bool:
        """Whether this leader does not know yet which records of earlier epochs are committed. Its high watermark may
        be lower than one that consumers have seen from an earlier leader (KIP-207)."""
        in_sync = self.in_sync
        return in_sync is not None and self.high_watermark < in_sync.epoch_start

    def read_as_leader(self, offset: int, max_bytes: int, *, min_one_batch: bool, wait: bool = True) -> FetchData:
        """The records that a follower may read from ``offset`` on: up to the log end. Raises as `read`."""
        log = self.log
        return log.read(offset, max_bytes, max_offset=log.log_end_offset, min_one_batch=min_one_batch, wait=wait)

    def read(
        self, offset: int, max_bytes: int, *, isolation_level: int, min_one_batch: bool, wait: bool = True
    ) -> FetchData:
        """The records that a consumer may read from ``offset`` on, as a file range, and the aborted transactions.

        Raises:
            KafkaError: OFFSET_OUT_OF_RANGE (below the log start or above the visible end), KAFKA_STORAGE_ERROR.
            ColdRead: without ``wait``, if the lookup would have to wait for the disk.
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

    def diverging_epoch(self, fetch_offset: int, last_fetched_epoch: int) -> tuple[int, int] | None:
        """The epoch and its end offset from which the reader's log diverges, if it does (KIP-320, KIP-595)."""
        if last_fetched_epoch < 0:
            return None
        epoch, end_offset = self.end_offset_for_epoch(last_fetched_epoch)
        if end_offset == -1:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"Unknown leader epoch {last_fetched_epoch}.")
        if epoch < last_fetched_epoch or end_offset < fetch_offset:
            return epoch, end_offset
        return None

    def end_offset_for_epoch(self, leader_epoch: int) -> tuple[int, int]:
        """The largest epoch up to ``leader_epoch`` and the offset where it ends; (-1, -1) if it is unknown."""
        if leader_epoch == self.leader_epoch:
            return leader_epoch, self.log.log_end_offset
        return self.log.end_offset_for_epoch(leader_epoch)

    def delete_records_before(self, offset: int) -> int:
        """Raise the log start offset (-1: to the high watermark). Returns the offset that was meant. The followers
        repeat it: see `low_watermark`.

        Raises:
            KafkaError: OFFSET_OUT_OF_RANGE, POLICY_VIOLATION (a topic that is only compacted), NOT_LEADER_OR_FOLLOWER.
        """
        self.check_leader()
        if self.log.config.cleanup_policy == ("compact",):
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"Records of {self.topic}-{self.index} cannot be deleted: its cleanup.policy is only compact.",
            )
        target = self.high_watermark if offset == -1 else offset
        if target < 0 or target > self.high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"The offset {offset} of {self.topic}-{self.index} is not between 0 and its high watermark "
                f"{self.high_watermark}.",
            )
        self.log.delete_records_before(target)
        self._notify_changed()
        return target

    def log_start_moved(self) -> None:
        """The oldest segments were deleted because of the topic's retention."""
        self.waiters.notify_changed()
        self._notify_moved()

    def low_watermark(self, is_live: Callable[[int], bool]) -> int:
        """The offset before which no replica on a live broker has records. `UNKNOWN_OFFSET` while the log start offset
        of a follower is unknown."""
        start = self.log.log_start_offset
        return start if self.in_sync is None else self.in_sync.low_watermark(start, is_live)

    def when_deleted(self, offset: int, callback: OnAcknowledged) -> None:
        """Call ``callback`` when the low watermark has reached ``offset``, which it has not yet. The call has an error
        if this broker is no longer the leader."""
        if self._deletions is None:
            self._deletions = OffsetWaiters()
        self._deletions.add(offset, callback)

    def review_deletions(self, is_live: Callable[[int], bool]) -> None:
        """Call the callbacks of `when_deleted` whose offset is reached. Must be called after any change that affects
        the low watermark."""
        deletions = self._deletions
        if deletions is not None:
            deletions.reach(self.low_watermark(is_live))
            if deletions.is_empty:
                self._deletions = None

    def go_offline(self) -> None:
        """The log directory has failed: reject all requests until the next startup."""
        self.offline = True
        self._derive()
        self._notify_changed()
        self._fail_waiting(ErrorCode.KAFKA_STORAGE_ERROR)

    def close(self, code: ErrorCode = ErrorCode.NOT_LEADER_OR_FOLLOWER) -> None:
        """The partition is no longer served here because of ``code``: all waiting requests end."""
        self.leader_id = -1
        self._derive()
        self._notify_changed()
        self._fail_waiting(code)

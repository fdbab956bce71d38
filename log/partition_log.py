"""The log of one partition: append, read, look up, truncate, flush.

A log is a sequence of segments. The last one, the active segment, receives the appends; when it is full or old, a new
segment begins at the next offset (`roll`). Appends assign consecutive offsets; compaction may leave gaps.

Invariants between two calls:

* `log_start_offset` <= `log_end_offset`, and every batch in between is complete in the files, with the offsets that its
  append returned.
* Bytes beyond a segment's `size` were never acknowledged; the next append overwrites them. Between two calls they exist
  only while a batch is written ahead; a roll, a truncation and a clean shutdown remove them.
* `producers` and `leader_epochs` are equal to the result of replaying the batches.
* Everything before `flushed_offset` is durable. It is also the recovery point: after an unclean shutdown, loading
  trusts the segments that end before it, and reads the others batch by batch.

An append that fails raises a `KafkaError` and leaves the log unchanged. After ENOSPC, the written part of the batch is
truncated, and the next append may succeed. Any other failure of the device takes the log offline: `on_failure` notifies
the owner, and from then on every call raises KAFKA_STORAGE_ERROR.

The log does not know the high watermark: how far consumers may read is an argument of `read`. It does not decide what
retention deletes or compaction rewrites; it provides the operations for both. It has no clock, thread or lock: `now_ms`
is an argument, and all methods except `Flush.run` are called from one thread.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from struct import Struct

from ..protocol.checksum import crc32c
from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.records import (
    ATTRIBUTES_POSITION,
    BATCH_OVERHEAD,
    CODEC_MASK,
    HEADER,
    LOG_OVERHEAD,
    MAGIC,
    NO_TIMESTAMP,
    TRANSACTIONAL_MASK,
    InvalidRecordsError,
    RecordBatch,
    increment_sequence,
    iter_batches,
)
from ..protocol.steps import Steps, completed
from .checkpoints import encode_partition_metadata
from .compaction.cleanable import Cleanable, find_cleanable
from .compaction.job import Replacement
from .compaction.running import Compaction, begin_compaction
from .compaction.swap import begin_swap, discard, put_in_place
from .config import LogConfig
from .descriptors import DescriptorCache, FileRange
from .files import TRANSIENT_ERRNOS, Buffer, join
from .flushing import Flush, FlushFailure, FlushPostponedError, failure_of
from .leader_epochs import LeaderEpochs
from .lookup import Next, TimestampAndOffset, next_search, next_search_for_largest
from .names import LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA
from .producer_snapshots import ProducerSnapshots
from .producer_state import (
    MARKER_BATCH_SIZE,
    CompletedTransaction,
    EndTransactionMarker,
    ProducerEntry,
    ProducerState,
    RetainedBatch,
    build_end_transaction_marker,
)
from .retention import OldSegments, find_old_segments
from .segment import MAX_GROUP, MAX_RELATIVE_OFFSET, NO_LIMIT, Segment
from .segments import Segments
from .transaction_index import AbortedTransaction, TransactionIndex
from .truncation import PreparedTruncation
from .validation import validate_client_batch, with_timestamps
from .verification import Verification

_PREFIX = Struct(">qii")
_PREFIX_SIZE = 16
# More buffers than this are joined before they are written: a system call takes 1,024 at most.
_MAX_BUFFERS = 512
_MAX_SEQUENCE = 0x7FFF_FFFF
_NO_COORDINATOR = -1
# The attributes that the fast path accepts in a client's batch: a codec and the transactional bit.
_PLAIN_ATTRIBUTES = CODEC_MASK | TRANSACTIONAL_MASK
_LARGEST_CODEC = 4
# For a batch that is written ahead: the bytes of a step, and the number of attempts.
_STEP_AHEAD = 1 << 20
_ATTEMPTS_AHEAD = 3


class AppendInfo:
    """The result of an append."""

    __slots__ = ("duplicate", "first_offset", "last_offset", "log_append_time_ms", "log_start_offset")

    def __init__(
        self,
        first_offset: int,
        last_offset: int,
        log_append_time_ms: int,
        log_start_offset: int,
        duplicate: bool = False,
    ) -> None:
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.log_append_time_ms = log_append_time_ms
        """In ms, if the topic has LogAppendTime; otherwise -1. For a duplicate, the timestamp of the original batch."""
        self.log_start_offset = log_start_offset
        self.duplicate = duplicate
        """The batch repeats one of the producer's last five: nothing was written; the offsets are the original's."""

    def __repr__(self) -> str:
        return f"AppendInfo({', '.join(f'{name}={getattr(self, name)}' for name in self.__slots__)})"


class WrittenAhead:
    """The body of a batch that was written beyond the end of the log; see `Log.write_ahead`."""

    __slots__ = ("crc", "cuts", "position", "segment")

    def __init__(self, crc: int) -> None:
        self.crc = crc
        """The expected CRC of the batch."""
        self.segment: Segment | None = None
        self.position = -1
        self.cuts = -1


# The fields of a batch that are recorded after the write: first and last offset, largest timestamp, size, producer id
# and epoch, first and last sequence, transactional. A plain tuple, because one is created for every batch.
_Unwritten = tuple[int, int, int, int, int, int, int, int, bool]


class FetchData:
    """The result of a read. `records` is None if there is nothing to send; otherwise it must be released."""

    __slots__ = ("aborted_transactions", "first_batch_too_large", "records")

    def __init__(
        self,
        records: FileRange | None,
        first_batch_too_large: bool = False,
        aborted_transactions: Sequence[AbortedTransaction] = (),
    ) -> None:
        self.records = records
        self.first_batch_too_large = first_batch_too_large
        """There are records, but the first batch exceeds `max_bytes`, and `min_one_batch` was False."""
        self.aborted_transactions = aborted_transactions
        """The transactions that a read_committed consumer must skip."""


_NOTHING = FetchData(None)
_TOO_LARGE = FetchData(None, True)


class Log:
    """See the module docstring. Created by `partition_loading.load_log` or a `LogManager`."""

    __slots__ = (
        "_ahead",
        "_compaction",
        "_config",
        "_cut_is_unsynced",
        "_cuts",
        "_directory_dirty",
        "_last_flush_ms",
        "_offline",
        "_parent_dirty",
        "_synced_end_offset",
        "_unsynced_paths",
        "directory",
        "files",
        "flushed_offset",
        "header_only",
        "leader_epochs",
        "log_end_offset",
        "log_start_offset",
        "on_failure",
        "on_flushed",
        "on_recovery_point_lowered",
        "partition",
        "producers",
        "repairs",
        "segments",
        "snapshots",
        "topic",
        "topic_id",
    )

    def __init__(
        self,
        files: DescriptorCache,
        directory: str,
        topic: str,
        partition: int,
        config: LogConfig,
        *,
        topic_id: bytes | None,
        segments: Segments,
        producers: ProducerState,
        snapshots: ProducerSnapshots,
        leader_epochs: LeaderEpochs,
        log_start_offset: int,
        log_end_offset: int,
        flushed_offset: int,
        now_ms: int,
        repairs: list[str],
        was_synced: bool,
    ) -> None:
        """``was_synced``: a clean shutdown has synced all files, and loading has repaired none."""
        self.files = files
        self.directory = directory
        self.topic = topic
        self.partition = partition
        self.topic_id = topic_id
        """None if the directory does not contain it: the broker that created it died before it wrote the ID."""
        self.segments = segments
        self.producers = producers
        self.snapshots = snapshots
        self.leader_epochs = leader_epochs
        self.log_start_offset = log_start_offset
        """The first offset that may be read. Batches before it may still be in the files."""
        self.log_end_offset = log_end_offset
        """The offset of the next record."""
        # Where the log ended when its indexes were synced.
        self._synced_end_offset = log_end_offset if was_synced else -1
        self.flushed_offset = flushed_offset
        """Everything before it is durable."""
        self.repairs = repairs
        """One text for each repair that loading made; empty after a clean shutdown."""
        self.on_failure: Callable[[Log, OSError], None] | None = None
        """Called once, when the device fails and the log goes offline."""
        self.on_flushed: Callable[[], None] | None = None
        """Called whenever more of the log is durable."""
        self.on_recovery_point_lowered: Callable[[Log], None] | None = None
        """Called before a truncation below the recovery point: the checkpoint must not be ahead of the files."""
        self._last_flush_ms = now_ms
        self._ahead: WrittenAhead | None = None
        self._cuts = 0  # the number of truncations: a flush that began before the latest one guarantees nothing
        self._cut_is_unsynced = False  # a power failure could restore what the latest truncation has removed
        self._directory_dirty = False  # names of files have changed since the directory was synced
        self._parent_dirty = False  # the name of the directory has changed since its parent was synced
        self._unsynced_paths: list[str] = []  # small files that were written since the last flush
        self._offline: str | None = None
        self._compaction: Compaction | None = None  # the running one
        self._config = config
        self.update_config(config)

    @property
    def log_dir(self) -> str:
        """The log directory that contains the partition's directory."""
        return self.directory.rpartition("/")[0]

    @property
    def offline(self) -> str | None:
        """The reason why the log no longer accesses its files: a failure, or it is closed. None while it is online."""
        return self._offline

    @property
    def cuts(self) -> int:
        """The number of truncations and changes of the directory. While it is the same, the log has only grown."""
        return self._cuts

    @property
    def cut_is_unsynced(self) -> bool:
        """Whether a truncation has not been synced yet. The next flush does that; so does an append before it, which
        then waits for the device."""
        return self._cut_is_unsynced

    @property
    def trash(self) -> list[str]:
        """Paths of files without any reference: the owner removes the paths from the list and unlinks the files."""
        return self.segments.trash

    # Configuration

    @property
    def config(self) -> LogConfig:
        return self._config

    def update_config(self, config: LogConfig) -> None:
        """Apply a new configuration from the next append on."""
        self._config = config
        # None of the topic's settings depends on a record, so that checking the batch headers is sufficient.
        self.header_only = (
            config.message_timestamp_type == "CreateTime"
            and config.compression_type == "producer"
            and not config.compacted
            and not config.validate_records
        )
        self._schedule_roll(self.segments.active)

    # Appending

    def append(
        self,
        records: Buffer,
        *,
        now_ms: int,
        leader_epoch: int,
        client: bool = True,
        validated: bool = False,
        verification: Verification | None = None,
        ahead: WrittenAhead | None = None,
    ) -> AppendInfo:
        """Append as the leader: assign offsets and the leader epoch. The input is never changed.

        With `client`, `records` is one batch from a client. All checks of Apache Kafka that the header allows are done.
        Without it, the records were created by this broker: one or more batches, which may be control batches; batches
        with a producer id have no sequence numbers. `validated`: the batch was returned by `recompress`, which checked
        its records. `verification`: the result of `start_verification` for the batch's transaction. `ahead`: the result
        of `write_ahead` for the batch.

        Raises `KafkaError` with CORRUPT_MESSAGE, INVALID_RECORD, MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE,
        INVALID_TIMESTAMP, UNSUPPORTED_COMPRESSION_TYPE, OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH,
        INVALID_TXN_STATE, or KAFKA_STORAGE_ERROR; the log is unchanged. Individually rejected records are listed in
        `InvalidRecordBatchError.record_errors`.
        """
        if self._offline is not None:
            raise self._offline_error()
        if not client:
            return self._append_own(records, now_ms, leader_epoch, verification)
        if ahead is None:
            appended = self.append_plain(
                (records,),
                now_ms=now_ms,
                leader_epoch=leader_epoch,
                validated=validated,
                verification=verification,
            )
            if appended:
                return appended[0]
        # The batch is unusual or invalid: check it again, in Apache Kafka's order.
        config = self._config
        crc = ahead.crc if ahead is not None else None
        batch = validate_client_batch(records, config, now_ms=now_ms, validated=validated, crc=crc)
        size = batch.size
        duplicate = self._check_state(batch, verification)
        if duplicate is not None:
            return self._duplicate(duplicate)
        last_sequence = increment_sequence(batch.base_sequence, batch.last_offset_delta)
        max_timestamp = batch.max_timestamp
        rest: tuple[Buffer, ...] = (batch.data[_PREFIX_SIZE:],)
        if config.message_timestamp_type == "LogAppendTime":
            max_timestamp = now_ms
            header = with_timestamps(batch, now_ms, log_append_time=True)
            rest = (header[_PREFIX_SIZE:], batch.data[BATCH_OVERHEAD:])
        first_offset = self.log_end_offset
        last_offset = first_offset + batch.last_offset_delta
        segment = self._segment_for(size, max_timestamp, last_offset, now_ms)
        prefix = _PREFIX.pack(first_offset, size - LOG_OVERHEAD, leader_epoch)
        buffers: tuple[Buffer, ...] = (prefix, *rest)
        unwritten_size = size
        if ahead is not None and self._is_in_place(ahead) and ahead.segment is segment:
            # Only the header is missing.
            buffers = (prefix, rest[0][: BATCH_OVERHEAD - _PREFIX_SIZE])
            unwritten_size = BATCH_OVERHEAD
            self._ahead = None
        (info,) = self._write(
            segment,
            buffers,
            unwritten_size,
            (
                (
                    first_offset,
                    last_offset,
                    max_timestamp,
                    size,
                    batch.producer_id,
                    batch.producer_epoch,
                    batch.base_sequence,
                    last_sequence,
                    bool(batch.attributes & TRANSACTIONAL_MASK),
                ),
            ),
            now_ms=now_ms,
            leader_epoch=leader_epoch,
        )
        if config.message_timestamp_type == "LogAppendTime":
            info.log_append_time_ms = now_ms
        return info

    def _check_state(self, batch: RecordBatch, verification: Verification | None) -> RetainedBatch | None:
        """The checks of a client's batch that depend on the log. Returns the original batch if this is a duplicate."""
        size = batch.size
        if size > self._config.segment_bytes:
            raise KafkaError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"Message batch size is {size} bytes in append to partition {self.topic}-{self.partition}, "
                f"which exceeds the maximum configured segment size of {self._config.segment_bytes}.",
            )
        if batch.producer_id < 0:
            return None
        return self.producers.check(
            batch.producer_id,
            batch.producer_epoch,
            batch.base_sequence,
            increment_sequence(batch.base_sequence, batch.last_offset_delta),
            bool(batch.attributes & TRANSACTIONAL_MASK),
            verification,
        )

    def write_ahead(
        self,
        records: Buffer,
        *,
        now_ms: int,
        crc: int,
        verification: Verification | None = None,
    ) -> Generator[int, None, WrittenAhead]:
        """Write the body of a large batch beyond the end of the log, in steps of about 1 ms; `append` then writes the
        header. The records must have been validated if the topic requires it. `crc`: the expected CRC of the batch.

        Only bytes of the file beyond the segment's size change. If another batch is appended between two steps, or the
        log is truncated or moved, writing begins again. After a few attempts, and if `append` is going to reject the
        batch, `append` does all of the work. A batch that was written ahead and will not be appended must be discarded
        (`discard_ahead`); closing the generator also discards it.
        """
        ahead = WrittenAhead(crc)
        if self._cut_is_unsynced:
            return ahead
        try:
            for _ in range(_ATTEMPTS_AHEAD):
                if (yield from self._write_ahead(ahead, records, now_ms, verification)):
                    break
        except BaseException:
            self.discard_ahead(ahead)
            raise
        return ahead

    def _write_ahead(
        self, ahead: WrittenAhead, records: Buffer, now_ms: int, verification: Verification | None
    ) -> Generator[int, None, bool]:
        """Returns False if writing must begin again."""
        try:
            self.check_online()
            batch = validate_client_batch(records, self._config, now_ms=now_ms, validated=True, crc=ahead.crc)
            if self._check_state(batch, verification) is not None or self._ahead is not None:
                return True
            last_offset = self.log_end_offset + batch.last_offset_delta
            max_timestamp = now_ms if self._config.message_timestamp_type == "LogAppendTime" else batch.max_timestamp
            segment = self._segment_for(batch.size, max_timestamp, last_offset, now_ms)
        except KafkaError:
            return True  # `append` raises the same error
        self._ahead = ahead
        ahead.segment, ahead.position, ahead.cuts = segment, segment.size, self._cuts
        try:
            for start in range(BATCH_OVERHEAD, batch.size, _STEP_AHEAD):
                piece = batch.data[start : start + _STEP_AHEAD]
                segment.write_ahead(piece, start)
                yield 0
                if not self._is_in_place(ahead):
                    self.discard_ahead(ahead)
                    return False
        except OSError:
            self.discard_ahead(ahead)
        return True

    def _is_in_place(self, ahead: WrittenAhead) -> bool:
        """Whether the bytes that were written ahead are where the next batch begins."""
        segment = ahead.segment
        return (
            segment is not None
            and self._ahead is ahead
            and self._offline is None
            and segment is self.segments.active
            and segment.size == ahead.position
            and ahead.cuts == self._cuts
        )

    def discard_ahead(self, ahead: WrittenAhead | None = None) -> None:
        """Truncate a batch that was written ahead and not appended: this one, or any."""
        if self._ahead is None or (ahead is not None and self._ahead is not ahead):
            return
        segment = self._ahead.segment
        self._ahead = None
        if self._offline is None and segment is not None and segment is self.segments.active:
            try:
                segment.discard_tail()
            except OSError as error:
                self._append_failed(segment, error)

    def append_plain(
        self,
        batches: Sequence[Buffer],
        *,
        now_ms: int,
        leader_epoch: int,
        validated: bool = False,
        verification: Verification | None = None,
    ) -> list[AppendInfo]:
        """The fast path: append the first of these clients' batches, as long as they are plain and valid, in one write.

        It checks only the header and the CRC of a batch, and batches that arrived together cost one system call. It
        stops, without an error, before a batch that is unusual or invalid; `append` handles that batch. It also stops
        where one write is not possible: at the end of a segment, or where the sequence numbers of an idempotent
        producer are not consecutive. So the result may have fewer entries than `batches`, or none. `validated`,
        `verification`: see `append`.

        Raises `KafkaError` if no batch was appended: the error of `ProducerState.check` for the first batch, or
        KAFKA_STORAGE_ERROR.
        """
        if self._offline is not None:
            raise self._offline_error()
        if not self.header_only and not (validated and self._config.message_timestamp_type == "CreateTime"):
            return []
        config = self._config
        largest = min(config.max_message_bytes, config.segment_bytes)
        latest = now_ms + config.message_timestamp_after_max_ms
        earliest = now_ms - config.message_timestamp_before_max_ms
        segment = self.segments.active
        room, latest_timestamp, largest_offset = segment.limits(now_ms, config.segment_bytes)
        offset = self.log_end_offset
        total = 0
        buffers: list[Buffer] = []
        unwritten: list[_Unwritten] = []
        previous_producer_id, previous_epoch, expected_sequence = -1, -1, -1
        previous_transactional = False
        for records in batches:
            size = len(records)
            if size < BATCH_OVERHEAD:
                break
            (
                base_offset,
                length,
                _epoch,
                magic,
                crc,
                attributes,
                offset_delta,
                base_timestamp,
                max_timestamp,
                producer_id,
                producer_epoch,
                first_sequence,
                count,
            ) = HEADER.unpack_from(records)
            if not (
                length + LOG_OVERHEAD == size
                and base_offset == 0
                and magic == MAGIC
                and size <= largest
                and not attributes & ~_PLAIN_ATTRIBUTES
                and attributes & CODEC_MASK <= _LARGEST_CODEC
                and 0 < count == offset_delta + 1
                and base_timestamp <= max_timestamp <= latest
                and (base_timestamp >= earliest or base_timestamp == NO_TIMESTAMP)
                and (producer_id < 0 or first_sequence >= 0)
                and crc32c((view := memoryview(records))[ATTRIBUTES_POSITION:]) == crc
            ):
                break
            transactional = bool(attributes & TRANSACTIONAL_MASK)
            last_sequence = (first_sequence + offset_delta) & _MAX_SEQUENCE  # 0 follows the largest number
            last_offset = offset + offset_delta
            must_roll = total + size > room or max_timestamp > latest_timestamp or last_offset > largest_offset
            if not unwritten:
                if producer_id >= 0:
                    duplicate = self.producers.check(
                        producer_id, producer_epoch, first_sequence, last_sequence, transactional, verification
                    )
                    if duplicate is not None:
                        return [self._duplicate(duplicate)]
                if must_roll:
                    segment = self._roll(now_ms)
                if not segment.size or segment.nearly_full:
                    room = 0  # the first batch of a segment determines its age, so it is written alone
            elif (
                must_roll
                or producer_id != previous_producer_id
                or (producer_id >= 0 and (producer_epoch != previous_epoch or first_sequence != expected_sequence))
                or transactional is not previous_transactional
                or len(unwritten) == MAX_GROUP
            ):
                break
            buffers.append(_PREFIX.pack(offset, length, leader_epoch))
            buffers.append(view[_PREFIX_SIZE:])
            unwritten.append(
                (
                    offset,
                    last_offset,
                    max_timestamp,
                    size,
                    producer_id,
                    producer_epoch,
                    first_sequence,
                    last_sequence,
                    transactional,
                )
            )
            total += size
            offset = last_offset + 1
            previous_producer_id, previous_epoch, previous_transactional = producer_id, producer_epoch, transactional
            expected_sequence = (last_sequence + 1) & _MAX_SEQUENCE
        if not unwritten:
            return []
        return self._write(segment, buffers, total, unwritten, now_ms=now_ms, leader_epoch=leader_epoch)

    def _segment_for(self, size: int, max_timestamp: int, last_offset: int, now_ms: int) -> Segment:
        """The active segment, or a new one if the batch must not go to the active one."""
        segment = self.segments.active
        if segment.must_roll(size, max_timestamp, last_offset, now_ms, self._config.segment_bytes):
            return self._roll(now_ms)
        return segment

    def _write(
        self,
        segment: Segment,
        buffers: Sequence[Buffer],
        size: int,
        unwritten: Sequence[_Unwritten],
        *,
        now_ms: int,
        leader_epoch: int,
    ) -> list[AppendInfo]:
        """Write checked batches and update the state: all of them or, with KAFKA_STORAGE_ERROR, none."""
        if self._cut_is_unsynced:
            self._sync_cut_first()
        empty = not segment.size
        try:
            segment.prepare_to_note()
            segment.write(buffers, size)
        except OSError as error:
            raise self._append_failed(segment, error) from error
        if leader_epoch != self.leader_epochs.latest:
            self.leader_epochs.assign(leader_epoch, self.log_end_offset)
        index_interval_bytes = self._config.index_interval_bytes
        log_start_offset = self.log_start_offset
        due = False
        infos = []
        for first, last, max_timestamp, batch_size, producer_id, epoch, first_sequence, last_sequence, txn in unwritten:
            if segment.note_batch(first, last, max_timestamp, batch_size, index_interval_bytes):
                due = True
            if producer_id >= 0:
                self.producers.update(
                    producer_id, epoch, first_sequence, last_sequence, first, last, max_timestamp, txn
                )
            infos.append(AppendInfo(first, last, -1, log_start_offset))
        self.log_end_offset = last + 1
        if empty:
            self._first_batch(segment, unwritten[0][2], now_ms)
        if due:
            self._persist_indexes(segment)
        return infos

    def _duplicate(self, batch: RetainedBatch) -> AppendInfo:
        return AppendInfo(batch.first_offset, batch.last_offset, batch.timestamp, self.log_start_offset, True)

    def _append_own(
        self, records: Buffer, now_ms: int, leader_epoch: int, verification: Verification | None
    ) -> AppendInfo:
        batches = self._whole_batches(records)
        if not batches or sum(batch.size for batch in batches) != len(records):
            raise KafkaError(ErrorCode.INVALID_RECORD, "The records are not one or more complete batches")
        next_offset = self.log_end_offset
        for batch in batches:
            if batch.size > self._config.max_message_bytes:
                raise KafkaError(
                    ErrorCode.MESSAGE_TOO_LARGE,
                    f"The record batch size in the append to {self.topic}-{self.partition} is {batch.size} bytes which "
                    f"exceeds the maximum configured value of {self._config.max_message_bytes}.",
                )
            if batch.producer_id >= 0 and not batch.is_control:
                self.producers.check_own(batch.producer_id, batch.producer_epoch, batch.is_transactional, verification)
            batch.base_offset = next_offset
            batch.partition_leader_epoch = leader_epoch
            next_offset = batch.next_offset
        return self._append_batches(batches, now_ms, None)

    def append_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        marker: EndTransactionMarker,
        *,
        transaction_version: int,
        now_ms: int,
        leader_epoch: int,
    ) -> AppendInfo:
        """End the producer's transaction. A marker is never too large: it must be possible to end every transaction.

        Raises `KafkaError` with INVALID_PRODUCER_EPOCH or TRANSACTION_COORDINATOR_FENCED (`ProducerState.check_marker`)
        or KAFKA_STORAGE_ERROR.
        """
        self.check_online()
        self.producers.check_marker(producer_id, producer_epoch, marker.coordinator_epoch, transaction_version)
        offset = self.log_end_offset
        data = build_end_transaction_marker(
            producer_id,
            producer_epoch,
            marker,
            offset=offset,
            leader_epoch=leader_epoch,
            now_ms=now_ms,
            log_append_time=self._config.message_timestamp_type == "LogAppendTime",
        )
        segment = self._segment_for(MARKER_BATCH_SIZE, now_ms, offset, now_ms)
        # It is not a batch of the producer: it has no sequence numbers.
        batch = (offset, offset, now_ms, MARKER_BATCH_SIZE, -1, -1, -1, -1, False)
        (info,) = self._write(segment, (data,), MARKER_BATCH_SIZE, (batch,), now_ms=now_ms, leader_epoch=leader_epoch)
        ended = self.producers.end_transaction(producer_id, producer_epoch, marker, offset, now_ms)
        if ended is not None and ended.aborted:
            self._note_aborted(segment, ended)
        return info

    def append_as_follower(
        self,
        records: Buffer,
        *,
        now_ms: int,
        leader_epoch: int,
        ended: list[CompletedTransaction] | None = None,
    ) -> AppendInfo:
        """Append the leader's batches with their offsets and epochs; an incomplete last batch is ignored.

        Batches of an epoch later than `leader_epoch`, and all batches after them, are ignored too: their sender is not
        the leader of the fetch's epoch (KAFKA-18723). The transactions that the batches end are added to `ended`.
        Raises CORRUPT_MESSAGE, and OFFSET_OUT_OF_RANGE for batches that do not begin at or after `log_end_offset`, or
        that overlap.
        """
        if self._offline is not None:
            raise self._offline_error()
        batches = []
        next_offset = self.log_end_offset
        for batch in self._whole_batches(records):
            if batch.partition_leader_epoch > leader_epoch:
                break
            if batch.base_offset < next_offset:
                raise KafkaError(
                    ErrorCode.OFFSET_OUT_OF_RANGE,
                    f"Unexpected offset in append to {self.topic}-{self.partition}: the batch of offsets "
                    f"{batch.base_offset} to {batch.last_offset} starts before the next offset {next_offset}.",
                )
            next_offset = batch.next_offset
            batches.append(batch)
        if not batches:
            return AppendInfo(-1, -1, -1, self.log_start_offset)
        return self._append_batches(batches, now_ms, ended)

    def _whole_batches(self, records: Buffer) -> list[RecordBatch]:
        try:
            batches = list(iter_batches(records))
        except InvalidRecordsError as error:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from None
        for batch in batches:
            if not batch.has_valid_crc() or batch.last_offset_delta < 0:
                raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"Record is corrupt (stored crc = {batch.crc}).")
        return batches

    def _append_batches(
        self, batches: list[RecordBatch], now_ms: int, all_ended: list[CompletedTransaction] | None
    ) -> AppendInfo:
        """Write batches whose offsets and epochs are set in their headers, not in their bytes."""
        if self._cut_is_unsynced:
            self._sync_cut_first()
        config = self._config
        size = sum(batch.size for batch in batches)
        first_offset, last_offset = batches[0].base_offset, batches[-1].last_offset
        segment = self.segments.active
        if size > MAX_RELATIVE_OFFSET:
            raise KafkaError(ErrorCode.RECORD_LIST_TOO_LARGE, f"{size} bytes do not fit into a segment")
        max_timestamp = max(batch.max_timestamp for batch in batches)
        if segment.must_roll(size, max_timestamp, last_offset, now_ms, config.segment_bytes):
            # The offsets that a follower receives may be far beyond its log end offset, after a compacted gap.
            is_far = last_offset - self.log_end_offset > MAX_RELATIVE_OFFSET
            segment = self._roll(now_ms, first_offset if is_far else self.log_end_offset)
        empty = not segment.size
        buffers: list[Buffer] = []
        for batch in batches:
            buffers.append(_PREFIX.pack(batch.base_offset, batch.batch_length, batch.partition_leader_epoch))
            buffers.append(batch.data[_PREFIX_SIZE:])
        try:
            segment.write(tuple(buffers) if len(buffers) <= _MAX_BUFFERS else (b"".join(buffers),), size)
        except OSError as error:
            raise self._append_failed(segment, error) from error
        due = False
        for batch in batches:
            if batch.partition_leader_epoch != self.leader_epochs.latest:
                self.leader_epochs.assign(batch.partition_leader_epoch, batch.base_offset)
            due |= segment.note_batch(
                batch.base_offset, batch.last_offset, batch.max_timestamp, batch.size, config.index_interval_bytes
            )
            if empty:
                self._first_batch(segment, batch.max_timestamp, now_ms)
                empty = False
            self.log_end_offset = batch.next_offset
            ended = self.producers.replay(batch, batch if batch.is_control else None)
            if ended is not None:
                if all_ended is not None:
                    all_ended.append(ended)
                if ended.aborted:
                    self._note_aborted(segment, ended)
        if due:
            self._persist_indexes(segment)
        return AppendInfo(first_offset, last_offset, -1, self.log_start_offset)

    def _note_aborted(self, segment: Segment, completed: CompletedTransaction) -> None:
        try:
            segment.transaction_index.append(
                AbortedTransaction(
                    completed.producer_id,
                    completed.first_offset,
                    completed.last_offset,
                    self.producers.last_stable_offset_after(completed),
                )
            )
        except OSError as error:
            # The marker is in the log and its index entry is not: only recovery can repair that.
            self.fail(error)
            raise self._offline_error() from error

    # Rolling

    def roll(self, now_ms: int) -> None:
        """Begin a new segment, unless the active one is empty."""
        self.check_online()
        if self.segments.active.size:
            segment = self._roll(now_ms)
            # All records may be durable already: then a flush would not include the new snapshot.
            self._unsynced_paths.append(self.snapshots.path(segment.base_offset))

    def _roll(self, now_ms: int, base_offset: int | None = None) -> Segment:
        """Seal the active segment and begin one at the log end offset (or at a later `base_offset`).

        On failure nothing has changed: the next append retries it.
        """
        self.discard_ahead()
        if self._cut_is_unsynced:
            self._sync_cut_first()  # of the segment that is sealed now
        base_offset = self.log_end_offset if base_offset is None else base_offset
        active = self.segments.active
        with self.storage_errors():
            if active.size:
                active.seal()
            self.snapshots.take(base_offset, self.producers, sync=False)
        active.forget_files()
        active.forget_recent_batches()
        segment = self._new_segment(base_offset, now_ms)
        if active.size:
            self.segments.add(segment)
        else:
            with self.storage_errors(fatal=True):
                self.segments.replace_active(segment)
        return segment

    def _new_segment(self, base_offset: int, now_ms: int) -> Segment:
        self._directory_dirty = True
        return Segment(
            self.files,
            self.directory,
            base_offset,
            size=0,
            max_index_bytes=self._config.segment_index_bytes,
            created_ms=now_ms,
            new=True,
        )

    def _first_batch(self, segment: Segment, max_timestamp: int, now_ms: int) -> None:
        self._directory_dirty = True  # the files were just created; a flush may have run since the roll
        segment.first_timestamp = max_timestamp
        segment.created_ms = now_ms
        self._schedule_roll(segment)

    def _schedule_roll(self, segment: Segment) -> None:
        """Set the time of the next roll: by timestamps, or by the clock if there are none."""
        if not segment.size:
            return
        config = self._config
        segment_ms = config.largest_segment_ms
        jitter = min(config.segment_jitter_ms, segment_ms)
        if jitter > 0:
            # A hash instead of a random number: it is the same after a restart.
            jitter = crc32c(f"{self.topic}-{self.partition}-{segment.base_offset}".encode()) % (jitter + 1)
        wait_ms = segment_ms - jitter
        if segment.first_timestamp >= 0:
            segment.roll_after_timestamp = segment.first_timestamp + wait_ms
            segment.roll_after_ms = NO_LIMIT
        else:
            segment.roll_after_timestamp = NO_LIMIT
            segment.roll_after_ms = segment.created_ms + wait_ms

    def _persist_indexes(self, segment: Segment) -> None:
        try:
            segment.persist_indexes()
        except OSError as error:
            # The batch is in the log. If the disk is full, the entries stay in memory until the next attempt.
            if error.errno not in TRANSIENT_ERRNOS:
                raise self._storage_failed(error) from error

    # Reading

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        max_offset: int,
        min_one_batch: bool,
        wait: bool = True,
        committed: bool = False,
    ) -> FetchData:
        """The batches from the one with `offset` on, up to `max_offset` (exclusive) and about `max_bytes`.

        The range begins with a complete batch, which may begin before `offset`, and may end in the middle of a batch.
        With `min_one_batch` the first batch is complete even if it exceeds `max_bytes`. Raises OFFSET_OUT_OF_RANGE
        outside of [`log_start_offset`, `log_end_offset`], CORRUPT_MESSAGE, KAFKA_STORAGE_ERROR. Without `wait`, raises
        `ColdRead` if finding the batches would wait for the device; the batches themselves are never read. With
        `committed`, also finds the aborted transactions; `max_offset` is then the last stable offset.
        """
        if self._offline is not None:
            raise self._offline_error()
        log_end_offset = self.log_end_offset
        if offset < self.log_start_offset or offset > log_end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"Received request for offset {offset} for partition {self.topic}-{self.partition}, "
                f"but we only have log segments from {self.log_start_offset} up to {log_end_offset}.",
            )
        if offset >= max_offset or offset == log_end_offset:
            return _NOTHING
        try:
            found = self.segments.find(offset, max_offset, log_end_offset, wait=wait)
            if found is None:
                return _NOTHING
            segment, position, batch_size, end = found
            length = min(max_bytes, end - position)
            if length < batch_size:
                if end - position < batch_size:
                    return _NOTHING
                if not min_one_batch:
                    return _TOO_LARGE
                length = batch_size
            if committed:
                aborted = self._aborted_transactions(segment, offset, position + length, max_offset, wait)
                return FetchData(segment.range(position, length), False, aborted)
            return FetchData(segment.range(position, length))
        except OSError as error:
            raise self._storage_failed(error) from error
        except InvalidRecordsError as error:
            raise self._corrupt(error) from error

    def batches(self, offset: int, end_offset: int | None = None) -> Iterator[RecordBatch]:
        """Iterates over complete batches from the one with `offset` on, for replaying and for tools.

        Raises `OSError` and `InvalidRecordsError`.
        """
        return self.segments.batches(offset, self.log_end_offset if end_offset is None else end_offset)

    def aborted_transactions(self, offset: int, end_offset: int) -> list[AbortedTransaction]:
        """The aborted transactions that a read_committed consumer of [offset, end_offset) must skip."""
        self.check_online()
        with self.storage_errors():
            return _collect(self._transaction_indexes(offset), offset, end_offset, wait=True)

    def _aborted_transactions(
        self, segment: Segment, offset: int, end: int, max_offset: int, wait: bool
    ) -> Sequence[AbortedTransaction]:
        """Those from `offset` to the position `end` in this segment, and few others."""
        if segment is self.segments.active:  # the usual case; it usually has no aborted transactions
            if not segment.transaction_index.count:
                return ()
            indexes = [segment.transaction_index]
        else:
            indexes = self._transaction_indexes(segment.base_offset)
            if not indexes:
                return ()
        upper_bound = segment.upper_bound(end, wait=wait)
        if upper_bound is None:
            upper_bound = self.segments.end_of(self.segments.number_of(segment.base_offset))
        return _collect(indexes, offset, max_offset if upper_bound is None else min(upper_bound, max_offset), wait=wait)

    def _transaction_indexes(self, offset: int) -> list[TransactionIndex]:
        """The transaction's marker may be in a later segment than its records."""
        return [
            segment.transaction_index
            for segment in self.segments.starting_at(offset)
            if segment.transaction_index.count
        ]

    # Looking up

    def next_search(self, timestamp: int | None, start_offset: int) -> Next:
        """The next batch that may have the first record from `start_offset` (and `log_start_offset`) on with this
        timestamp or a later one, in ms; None: with the largest timestamp. See `log.lookup`."""
        self.check_online()
        with self.storage_errors():
            if timestamp is None:
                return next_search_for_largest(self.segments, start_offset)
            return next_search(self.segments, timestamp, max(start_offset, self.log_start_offset))

    def offset_for_timestamp(self, timestamp: int) -> TimestampAndOffset | None:
        """The first record from `log_start_offset` on with this timestamp or a later one; None if there is none.

        Exact: the records of the batch are read immediately. `timestamp` is in ms, and none of the special values of
        ListOffsets.
        """
        return self._search(timestamp)

    def offset_of_max_timestamp(self) -> TimestampAndOffset | None:
        """The first record with the largest timestamp; None for a log without records or without timestamps.

        Exact within the batch, as `offset_for_timestamp`.
        """
        return self._search(None)

    def _search(self, timestamp: int | None) -> TimestampAndOffset | None:
        offset = 0
        while (search := self.next_search(timestamp, offset)) is not None:
            if isinstance(search, int):
                offset = search
                continue
            header = search.header
            found = completed(search.steps())
            if found is not None:
                return TimestampAndOffset(*found, header.partition_leader_epoch)
            offset = header.next_offset
        return None

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return self.segments.size

    @property
    def latest_epoch(self) -> int:
        """The latest leader epoch; -1 if unknown."""
        return self.leader_epochs.latest

    def assign_leader_epoch(self, epoch: int, start_offset: int | None = None) -> None:
        """This broker leads in `epoch` from the log end offset on; called before the first record of the epoch."""
        self.leader_epochs.assign(epoch, self.log_end_offset if start_offset is None else start_offset)

    def epoch_of(self, offset: int) -> int:
        """The leader epoch of `offset`; -1 if unknown."""
        return self.leader_epochs.epoch_of(offset)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(the largest epoch up to `epoch`, its end offset); (-1, -1) if unknown."""
        return self.leader_epochs.end_offset(epoch, self.log_end_offset)

    def active_producers(self) -> list[ProducerEntry]:
        """For DescribeProducers."""
        return list(self.producers)

    def expire_producers(self, now_ms: int) -> None:
        """Remove producers that were inactive for too long; to be called periodically.

        As in Apache Kafka, the timestamp of their last batch counts. Loading does not expire producers: a producer of
        old data that retries across a restart must still be recognized.
        """
        self.producers.expire(now_ms, self._config.producer_id_expiration_ms)

    def has_open_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether the producer's transaction of this epoch has records in this log and no marker."""
        return self.producers.has_open_transaction(producer_id, producer_epoch)

    def start_verification(
        self, producer_id: int, producer_epoch: int, first_sequence: int, *, epoch_per_transaction: bool, now_ms: int
    ) -> Verification | None:
        """What `append` needs for the first batch of a transaction after the coordinator has confirmed it; None if the
        transaction is already open in this log. See the module `verification`.

        Raises INVALID_PRODUCER_EPOCH.
        """
        return self.producers.start_verification(
            producer_id, producer_epoch, first_sequence, epoch_per_transaction=epoch_per_transaction, now_ms=now_ms
        )

    def first_unstable_offset(self) -> int | None:
        """The first offset of the oldest open transaction; None if there is none."""
        return self.producers.first_open_transaction()

    def transactions_ended_since(self, offset: int) -> list[CompletedTransaction]:
        """The transactions that began in this log and have their markers at `offset` or later, in the order of the
        markers. Reads the headers of the batches from the latest producer snapshot before `offset` on, if there may be
        such markers.

        Raises CORRUPT_MESSAGE, KAFKA_STORAGE_ERROR.
        """
        self.check_online()
        if all(entry.coordinator_epoch == _NO_COORDINATOR for entry in self.producers):
            return []  # there is no marker in the log
        with self.storage_errors():
            rest = self.segments.producer_batches(offset, self.log_end_offset)
            if not any(header.is_control for header, _batch in rest):
                return []
            state = ProducerState()
            self.snapshots.restore(state, self.segments, self.segments[0].base_offset, offset)
            replayed = (
                state.replay(header, batch)
                for header, batch in self.segments.producer_batches(offset, self.log_end_offset)
                if header.base_offset >= offset
            )
            return [ended for ended in replayed if ended is not None]

    # Truncating

    def lower_recovery_point(self, offset: int) -> None:
        """The checkpoint on the device has been lowered to `offset` for a truncation: `truncate_to` need not do it."""
        self.flushed_offset = min(self.flushed_offset, offset)

    def prepare_truncation(self, offset: int) -> Steps[PreparedTruncation | None]:
        """Restore the producers before the batch with `offset`, for `truncate_to`, in steps. The log may change in
        between: then the result has no effect. None if there is nothing to prepare, or if the log cannot be read."""
        if self._offline is not None or not self.segments[0].base_offset <= offset < self.log_end_offset:
            return None
        prepared = PreparedTruncation(offset, self.log_end_offset, self._cuts, ProducerState())
        try:
            problems = yield from self.snapshots.restoring(
                prepared.producers, self.segments, self.segments[0].base_offset, offset
            )
        except (OSError, KafkaError):  # files that were replaced; a device that fails will also fail the truncation
            return None
        return None if problems else prepared

    def truncate_to(
        self, offset: int, now_ms: int, *, sync: bool = True, prepared: PreparedTruncation | None = None
    ) -> None:
        """Remove the batch with `offset` and everything after it, as a follower does that diverged from its leader.

        Without `sync`, the next flush syncs the truncation (`cut_is_unsynced`). If the recovery point is higher than
        `offset`, its checkpoint is lowered first, which waits for the device in either case. Without a `prepared`
        truncation (`prepare_truncation`), this reads the batches after the latest producer snapshot.
        """
        self.check_online()
        is_prepared = prepared is not None and prepared[:3] == (offset, self.log_end_offset, self._cuts)
        self.discard_ahead()
        if offset >= self.log_end_offset:
            self.leader_epochs.truncate_from_end(self.log_end_offset)
            return
        if offset < self.segments[0].base_offset:
            self.truncate_fully_and_start_at(offset, now_ms, sync=sync)
            return
        with self.storage_errors(fatal=True):
            self._cuts += 1
            self._lower_flushed_offset(offset)
            while self.segments.active.base_offset > offset:
                self.segments.remove_last()
            active = self.segments.active
            active.truncate_to(offset)
            active.find_first_timestamp()
            self._cut(sync=sync)
            self.log_end_offset = active.next_offset()
            self.log_start_offset = min(self.log_start_offset, self.log_end_offset)
            self.leader_epochs.truncate_from_end(self.log_end_offset)
            self.snapshots.drop(lambda snapshot: snapshot > self.log_end_offset)
            if prepared is not None and is_prepared:
                self.producers.become(prepared.producers)
            else:
                first_offset = self.segments[0].base_offset
                self.snapshots.restore(self.producers, self.segments, first_offset, self.log_end_offset)
            self._schedule_roll(active)

    def truncate_fully_and_start_at(
        self, offset: int, now_ms: int, log_start_offset: int | None = None, *, sync: bool = True
    ) -> None:
        """Remove everything; the next record has `offset`. `sync`: see `truncate_to`."""
        self.check_online()
        self.discard_ahead()
        with self.storage_errors(fatal=True):
            self._cuts += 1
            self._lower_flushed_offset(offset)
            segment = self._new_segment(offset, now_ms)
            self.segments.replace_all(segment)
            if offset:
                segment.make_files()  # only the name of the file contains the log end offset
            self._cut(sync=sync)
            self.log_end_offset = offset
            self.log_start_offset = offset if log_start_offset is None else log_start_offset
            self.leader_epochs.clear()
            self.producers.clear()
            self.snapshots.drop(lambda snapshot: True)

    def _lower_flushed_offset(self, offset: int) -> None:
        """Called before files are truncated: offsets from `offset` on will be written again, and are not durable."""
        if self._compaction is not None:
            self._compaction.stale = True
        if offset < self.flushed_offset:
            self.flushed_offset = offset
            if self.on_recovery_point_lowered is not None:
                self.on_recovery_point_lowered(self)

    def _cut(self, *, sync: bool) -> None:
        """The files were truncated. This must be synced before anything is appended. Otherwise a power failure could
        restore the truncated batches in front of those that were appended later."""
        if sync:
            self._sync_cut()
        else:
            self._cut_is_unsynced = True

    def _sync_cut(self) -> None:
        active = self.segments.active
        if active.on_disk:
            self.files.open(active).file.sync()
        self.files.file_system.sync_directory(self.directory)
        self._directory_dirty = self._cut_is_unsynced = False

    def _sync_cut_first(self) -> None:
        """Records must be written before a flush has synced the truncation: for example, this broker leads now."""
        with self.storage_errors(fatal=True):
            self._sync_cut()

    def delete_records_before(self, offset: int) -> None:
        """Move the log start offset to `offset`, and delete the segments before it.

        A segment is kept if the next one is not durable: a power failure could remove the names and the producer
        snapshot that contain the log end offset. Retention deletes it later.

        Raises OFFSET_OUT_OF_RANGE beyond the log end offset. An offset below the log start offset has no effect.
        """
        self.check_online()
        if offset > self.log_end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"Cannot increment the log start offset to {offset} of partition {self.topic}-{self.partition} "
                f"since it is larger than the log end offset {self.log_end_offset}",
            )
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self.leader_epochs.truncate_from_start(offset)
            count = self.segments.number_of(offset)
            while count and self.segments[count].base_offset >= self.flushed_offset:
                count -= 1
            self.delete_first_segments(count)

    def find_old_segments(self, high_watermark: int, now_ms: int) -> list[OldSegments]:
        """The segments that retention would delete now; see the module `retention`. If that is all, `roll` first."""
        self.check_online()
        with self.storage_errors():
            return find_old_segments(
                self.segments,
                log_start_offset=self.log_start_offset,
                log_end_offset=self.log_end_offset,
                high_watermark=high_watermark,
                config=self._config,
                now_ms=now_ms,
            )

    def delete_first_segments(self, count: int) -> None:
        """Delete the `count` oldest segments, never the active one, as retention decided. Ranges in flight stay valid.

        The log start offset moves to the first remaining segment.
        """
        self.check_online()
        count = min(count, len(self.segments) - 1)
        if count <= 0:
            return
        with self.storage_errors():
            # Without the others, only its name contains the log end offset.
            self.segments[count].make_files()
        self.log_start_offset = max(self.log_start_offset, self.segments[count].base_offset)
        self.leader_epochs.truncate_from_start(self.log_start_offset)
        with self.storage_errors(fatal=True):
            self.segments.remove_first(count)
            first = self.segments[0].base_offset
            self.snapshots.drop(lambda snapshot: snapshot < first)
        self._directory_dirty = True

    # Compaction

    def cleanable(self, clean_offset: int | None, last_stable_offset: int, now_ms: int) -> Cleanable:
        """What a compaction pass would find now; `clean_offset`: the end of the last pass, None if there was none."""
        self.check_online()
        with self.storage_errors():
            return find_cleanable(
                self.segments,
                self._config,
                clean_offset=clean_offset,
                log_start_offset=self.log_start_offset,
                last_stable_offset=last_stable_offset,
                now_ms=now_ms,
            )

    def prepare_compaction(self) -> None:
        """To be called before the flush at the beginning of a pass: only durable records may be rewritten.

        Creates the files of the active segment if necessary: when the last batches before it are compacted away, only
        the name of its file contains the log end offset.
        """
        self.check_online()
        with self.storage_errors():
            self._directory_dirty |= self.segments.active.make_files()

    def begin_compaction(
        self, cleanable: Cleanable, *, now_ms: int, dedupe_buffer_bytes: int, io_bytes_per_second: float = 0.0
    ) -> Compaction | None:
        """A pass over what is cleanable and flushed: its job is for `compact`, in another process.

        None if there is nothing to do, or another pass has not ended. Each pass must be ended, canceled or failed.
        """
        self.check_online()
        if self._compaction is not None:
            return None
        with self.storage_errors():
            self._compaction = begin_compaction(
                self,
                cleanable,
                now_ms=now_ms,
                dedupe_buffer_bytes=dedupe_buffer_bytes,
                io_bytes_per_second=io_bytes_per_second,
            )
        return self._compaction

    def replace_segments(self, number: int, replacement: Replacement, now_ms: int) -> None:
        """Put a compacted segment in the place of those it was made of, from `number` on (`Compaction`)."""
        with self.storage_errors():
            begin_swap(self.files.file_system, self.directory, replacement.base_offset)
        with self.storage_errors(fatal=True):
            put_in_place(
                self.segments,
                number,
                replacement,
                self.files,
                self.directory,
                max_index_bytes=self._config.segment_index_bytes,
                now_ms=now_ms,
            )
            self._directory_dirty = True
            replaced = {offset for offset in replacement.old_base_offsets if offset != replacement.base_offset}
            self.snapshots.drop(lambda snapshot: snapshot in replaced)

    def end_compaction(self, compaction: Compaction) -> None:
        """Remove the files that a pass left, and allow the next pass. No effect if the pass has ended."""
        if self._compaction is compaction:
            self._compaction = None
            if self._offline is None:
                with self.storage_errors():
                    discard(self.files.file_system, self.directory)

    # Flushing

    @property
    def recovery_point(self) -> int:
        """Segments that end before it are not read after an unclean shutdown."""
        return self.flushed_offset

    @property
    def flush_messages_reached(self) -> bool:
        """Whether the number of unflushed records requires a flush after the next append (`flush.messages`)."""
        return self.log_end_offset - self.flushed_offset >= self._config.flush_messages

    def flush_due(self, now_ms: int) -> bool:
        """Whether `flush.messages`, `flush.ms`, or a segment that was sealed since the last flush requires a flush."""
        unflushed = self.log_end_offset - self.flushed_offset
        return unflushed > 0 and (
            unflushed >= self._config.flush_messages
            or now_ms - self._last_flush_ms >= self._config.flush_ms
            or self.flushed_offset < self.segments.active.base_offset
        )

    def begin_flush(self, up_to: int | None = None) -> Flush | None:
        """What must be synced so that everything before `up_to` (by default the log end offset) is durable.

        None if it is already. Otherwise `run` it, in any thread, then call `end_flush` or `flush_failed`. Only one
        flush may run at a time: a second one would not wait for the first one's syncs, for example of new file names.
        """
        self.check_online()
        up_to = self.log_end_offset if up_to is None else min(up_to, self.log_end_offset)
        self._directory_dirty |= self._cut_is_unsynced
        dirty = self._directory_dirty or self._parent_dirty or self._unsynced_paths or self.leader_epochs.dirty
        if up_to <= self.flushed_offset and not dirty:
            return None
        flush = Flush(self.files.file_system, up_to, self._cuts)
        try:
            with self.storage_errors():
                if up_to > self.flushed_offset:
                    flush.add_segments(self.files, self.segments, self.flushed_offset)
                    # After its records are deleted, only a snapshot may contain the start of an open transaction.
                    unflushed = [offset for offset in self.snapshots.offsets if offset >= self.flushed_offset]
                    flush.add_paths(map(self.snapshots.path, unflushed))
                if self._cut_is_unsynced and self.segments.active.on_disk:
                    flush.add_file(self.files, self.segments.active)
        except BaseException:
            flush.release()
            raise
        flush.add_paths(self._unsynced_paths)
        self._unsynced_paths = []
        if self.leader_epochs.dirty:
            flush.add_replacement(join(self.directory, LEADER_EPOCH_CHECKPOINT), self.leader_epochs.encode())
            self.leader_epochs.dirty = False
        if self._directory_dirty:
            flush.add_directory(self.directory)
            self._directory_dirty = False
        if self._parent_dirty:
            flush.add_directory(self.log_dir)
            self._parent_dirty = False
        return flush

    def end_flush(self, flush: Flush, now_ms: int) -> None:
        """The flush has run."""
        flush.release()
        # If the log was truncated during the flush, and has grown again, the flush guarantees nothing.
        if flush.cuts == self._cuts:
            self.flushed_offset = max(self.flushed_offset, flush.offset)
            self._cut_is_unsynced = False
        self._last_flush_ms = now_ms
        if self.on_flushed is not None:
            self.on_flushed()

    def flush_failed(self, flush: Flush, failure: FlushFailure) -> KafkaError:
        """The flush raised. After any `OSError` the state of the device is unknown, so the log goes offline. The work
        of a postponed flush is left to the next one."""
        flush.release()
        if not isinstance(failure, FlushPostponedError):
            return self.sync_failed(failure)
        self._unsynced_paths += flush.paths
        self.leader_epochs.dirty |= flush.replaces_files
        self._directory_dirty |= self.directory in flush.directories
        self._parent_dirty |= self.log_dir in flush.directories
        text = f"{self.topic}-{self.partition} in {self.directory} could not be flushed: {failure}"
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, text)

    def sync_failed(self, error: OSError) -> KafkaError:
        """The same for a sync that is not part of a flush."""
        self.fail(error)
        return self._offline_error()

    def flush(self, now_ms: int) -> None:
        """All three steps; waits for the device."""
        flush = self.begin_flush()
        if flush is not None:
            self._run(flush)
            self.end_flush(flush, now_ms)

    def _run(self, flush: Flush) -> None:
        failure = failure_of(flush)
        if failure is not None:
            raise self.flush_failed(flush, failure) from failure

    # The directory, and closing

    def set_topic_id(self, topic_id: bytes) -> None:
        """Create `partition.metadata`."""
        path = join(self.directory, PARTITION_METADATA)
        with self.storage_errors():
            self.files.file_system.replace_file(path, encode_partition_metadata(topic_id), sync=False)
        self.topic_id = topic_id
        self.note_unsynced_topic_id()

    def note_unsynced_topic_id(self) -> None:
        """A power failure may destroy `partition.metadata`: the next flush syncs it."""
        self._unsynced_paths.append(join(self.directory, PARTITION_METADATA))
        self._directory_dirty = True

    def note_unsynced_names(self, *, parent: bool) -> None:
        """Names of files may not be durable, because a process that died created them; or, with `parent`, the name of
        the directory, because it was just created. The next flush syncs them."""
        self._directory_dirty = True
        self._parent_dirty = self._parent_dirty or parent

    def begin_close(self) -> Flush | None:
        """A clean shutdown: complete the indexes and write the producer snapshot. Run the returned flush, then call
        `end_close` or `flush_failed`. None if everything is durable."""
        self.discard_ahead()
        if self._offline is not None:
            return None
        with self.storage_errors():
            active = self.segments.active
            # Even if every append was flushed, the active segment's indexes were never synced. Recovery does not sync
            # indexes that it finds complete: the process that has written them may not have synced them.
            dirty = (
                self.flushed_offset < self.log_end_offset
                or self.log_end_offset != self._synced_end_offset
                or self._cuts > 0  # the log may have grown to its old end again
            )
            if active.size:
                active.seal()
            # The name may be durable before the content: the directory is not marked clean before both are.
            if self.snapshots.take(self.log_end_offset, self.producers, sync=False):
                self._unsynced_paths.append(self.snapshots.path(self.log_end_offset))
                self._directory_dirty = True
            flush = self.begin_flush()
            if dirty and active.on_disk:
                flush = flush or Flush(self.files.file_system, self.flushed_offset, self._cuts)
                try:
                    flush.add_indexes(active)
                except OSError:
                    flush.release()
                    raise
        return flush

    def end_close(self, flush: Flush | None, now_ms: int) -> None:
        """The flush has run. The log must not be used afterwards."""
        if flush is not None:
            self.end_flush(flush, now_ms)
        self.abandon()

    def close(self, now_ms: int) -> None:
        """Both steps; waits for the device."""
        flush = self.begin_close()
        if flush is not None:
            self._run(flush)
        self.end_close(flush, now_ms)

    def abandon(self) -> None:
        """Close the descriptors and write nothing: the partition is being deleted."""
        self.take_offline("the log is closed")

    def moved_to(self, directory: str) -> None:
        """The directory was renamed; the descriptors of ranges stay valid."""
        self.directory = directory
        self.snapshots.directory = directory
        for segment in self.segments:
            segment.moved_to(directory)

    def switch_directory(self, directory: str) -> None:
        """Switch to an identical copy in another log directory (`FutureLog`).

        Everything before `flushed_offset` must be durable in the copy too, and so must the new name before the next
        flush ends.
        """
        old = self.directory
        self._ahead = None  # the copy ends where the segment does
        self._cuts += 1  # a flush that has begun before syncs the old files
        if self._compaction is not None:
            self._compaction.stale = True
        self.moved_to(directory)
        self._directory_dirty = True
        self.leader_epochs.dirty = True
        self._unsynced_paths = [join(directory, path.removeprefix(old + "/")) for path in self._unsynced_paths]

    # Failure

    def _append_failed(self, segment: Segment, error: OSError) -> KafkaError:
        """A write failed: truncate what it left, so that the file contains only complete batches."""
        if error.errno in TRANSIENT_ERRNOS:
            try:
                segment.discard_tail()
            except OSError as second:
                if second.errno not in TRANSIENT_ERRNOS:
                    error = second
        return self._storage_failed(error)

    def _storage_failed(self, error: OSError) -> KafkaError:
        if error.errno not in TRANSIENT_ERRNOS:
            self.fail(error)
        return KafkaError(
            ErrorCode.KAFKA_STORAGE_ERROR,
            f"{self.topic}-{self.partition} in {self.directory}: {error.strerror or error}",
        )

    def fail(self, error: OSError) -> None:
        """The device failed: the log is offline from now on, and the owner is notified."""
        if self._offline is None:
            self._offline = error.strerror or str(error)
            if self.on_failure is not None:
                self.on_failure(self, error)

    def take_offline(self, reason: str) -> None:
        """Raise KAFKA_STORAGE_ERROR from now on and access no files: the log directory failed, or the log is closed."""
        if self._offline is None:
            self._offline = reason
        self.segments.forget_files()

    def check_online(self) -> None:
        """Raise KAFKA_STORAGE_ERROR if the log is offline."""
        if self._offline is not None:
            raise self._offline_error()

    def _offline_error(self) -> KafkaError:
        return KafkaError(
            ErrorCode.KAFKA_STORAGE_ERROR,
            f"{self.topic}-{self.partition} in {self.directory} is offline: {self._offline}",
        )

    @contextmanager
    def storage_errors(self, *, fatal: bool = False) -> Iterator[None]:
        """Translates the errors of files into `KafkaError`. `fatal`: any failure takes the log offline, because the
        steps cannot be undone."""
        try:
            yield
        except OSError as error:
            if fatal:
                self.fail(error)
            raise self._storage_failed(error) from error
        except InvalidRecordsError as error:
            raise self._corrupt(error) from error

    def _corrupt(self, error: InvalidRecordsError) -> KafkaError:
        return KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{self.topic}-{self.partition} in {self.directory}: {error}")

    def __repr__(self) -> str:
        return (
            f"Log({self.topic}-{self.partition}, {self.log_start_offset} to {self.log_end_offset}, "
            f"{len(self.segments)} segments)"
        )


def _collect(indexes: list[TransactionIndex], offset: int, upper_bound: int, *, wait: bool) -> list[AbortedTransaction]:
    """The aborted transactions for a reader of [offset, upper_bound), from the indexes of its segment on."""
    found: list[AbortedTransaction] = []
    for index in indexes:
        aborted, complete = index.collect(offset, upper_bound, wait=wait)
        found += aborted
        if complete:
            break
    return found

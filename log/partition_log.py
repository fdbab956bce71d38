"""The log of one partition: append, read, look up, cut, flush.

A log is a sequence of segments. The last one, the active segment, takes the appends; when it is full or old a new one
is begun at the next offset (`roll`). Offsets grow without a gap as batches are appended; compaction may leave gaps.

What holds at every moment between two calls:

* `log_start_offset` <= `log_end_offset`, and every batch in between is wholly in the files, with the offsets that its
  append was answered with.
* Bytes beyond a segment's `size` were never acknowledged; the next append overwrites them.
* `producers` and `leader_epochs` are what replaying the batches would give.
* Everything before `flushed_offset` is on the device. That is the recovery point, too: an unclean start trusts the
  segments that end before it, and reads the others batch by batch.

An append that fails leaves the log as it was, and says why with a `KafkaError`. A full disk (ENOSPC) is not the end:
what was written of the batch is cut off, and the next append may succeed. Any other failure of the device takes the log
offline: `on_failure` tells the owner, and every call is answered KAFKA_STORAGE_ERROR from then on.

It knows no high watermark: how far consumers may read is an argument of `read`. It does not decide what to delete
(retention) or to rewrite (compaction); it offers what they need. There is no clock, no thread, no lock: `now_ms` is an
argument, and all calls but `Flush.run` come from one thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
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
from .checkpoints import encode_partition_metadata
from .compaction.cleanable import Cleanable, find_cleanable
from .compaction.job import CompactionJob, CompactionResult, Replacement, SegmentFiles
from .compaction.swap import Compaction, begin_swap, discard, put_in_place
from .config import LogConfig
from .descriptors import DescriptorCache, FileRange
from .files import TRANSIENT_ERRNOS, Buffer, join
from .flushing import Flush, FlushFailure, FlushPostponedError, failure_of
from .leader_epochs import LeaderEpochs
from .lookup import Next, TimestampAndOffset, next_search, next_search_for_largest
from .names import LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA
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
from .snapshots import ProducerSnapshots
from .transaction_index import AbortedTransaction, TransactionIndex
from .validation import validate_client_batch, with_timestamps
from .verification import Verification

_PREFIX = Struct(">qii")
_PREFIX_SIZE = 16
# More buffers than this are joined before they are written: a system call takes 1,024 at most.
_MAX_BUFFERS = 512
_MAX_SEQUENCE = 0x7FFF_FFFF
# What a client's batch may have in its attributes without a closer look: a codec and the transactional bit.
_PLAIN_ATTRIBUTES = CODEC_MASK | TRANSACTIONAL_MASK
_LARGEST_CODEC = 4


class AppendInfo:
    """What an append did."""

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
        """When the topic has LogAppendTime, otherwise -1. For a duplicate, the timestamp of the batch it repeats."""
        self.log_start_offset = log_start_offset
        self.duplicate = duplicate
        """The batch is one of the producer's last five, sent again: nothing was written, these are its offsets then."""

    def __repr__(self) -> str:
        return f"AppendInfo({', '.join(f'{name}={getattr(self, name)}' for name in self.__slots__)})"


# What is to be accounted for when a batch has been written: first and last offset, largest timestamp, size, producer id
# and epoch, first and last sequence, transactional. A plain tuple: one is made for every batch.
_Unwritten = tuple[int, int, int, int, int, int, int, int, bool]


class FetchData:
    """What a read found. `records` is None when there is nothing to send; otherwise it must be released."""

    __slots__ = ("aborted_transactions", "first_batch_too_large", "records")

    def __init__(
        self,
        records: FileRange | None,
        first_batch_too_large: bool = False,
        aborted_transactions: Sequence[AbortedTransaction] = (),
    ) -> None:
        self.records = records
        self.first_batch_too_large = first_batch_too_large
        """There are records, but the first batch has more than `max_bytes`, and `min_one_batch` was not asked for."""
        self.aborted_transactions = aborted_transactions
        """What the reader must leave out, if it wants only what was committed."""


_NOTHING = FetchData(None)
_TOO_LARGE = FetchData(None, True)


class Log:
    """See the module's text. Made by `loader.load_log` or a `LogManager`."""

    __slots__ = (
        "_compaction",
        "_config",
        "_cuts",
        "_directory_dirty",
        "_last_flush_ms",
        "_loaded_end_offset",
        "_offline",
        "_parent_dirty",
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
    ) -> None:
        self.files = files
        self.directory = directory
        self.topic = topic
        self.partition = partition
        self.topic_id = topic_id
        """None when the directory does not say: it was made by a broker that died before it could."""
        self.segments = segments
        self.producers = producers
        self.snapshots = snapshots
        self.leader_epochs = leader_epochs
        self.log_start_offset = log_start_offset
        """The first offset that may be read. Batches before it may still be in the files."""
        self.log_end_offset = log_end_offset
        self._loaded_end_offset = log_end_offset
        """The offset that the next record will get."""
        self.flushed_offset = flushed_offset
        """Everything before it is on the device."""
        self.repairs = repairs
        """What loading found broken and repaired, in words; empty after a clean stop."""
        self.on_failure: Callable[[Log, OSError], None] | None = None
        """Told once when the device fails and the log goes offline."""
        self.on_flushed: Callable[[], None] | None = None
        """Told whenever more of the log is on the device."""
        self.on_recovery_point_lowered: Callable[[Log], None] | None = None
        """Told before the log is cut below its recovery point: the checkpoint must not be ahead of the files."""
        self._last_flush_ms = now_ms
        self._cuts = 0  # how often the log was cut: a flush that had begun before promises nothing
        self._directory_dirty = False  # names of files have changed since the directory was synced
        self._parent_dirty = False  # so has the directory's own name
        self._unsynced_paths: list[str] = []  # small files that were written since
        self._offline: str | None = None
        self._compaction: Compaction | None = None  # that is under way
        self._config = config
        self.update_config(config)

    @property
    def log_dir(self) -> str:
        """The log directory that holds the partition's."""
        return self.directory.rpartition("/")[0]

    @property
    def offline(self) -> str | None:
        """Why no file is touched any more: its directory failed, or it was closed. None while it is served."""
        return self._offline

    @property
    def cuts(self) -> int:
        """How often the log was cut, or went on in other files: before it grew, and nothing else."""
        return self._cuts

    @property
    def trash(self) -> list[str]:
        """Files that nothing refers to any more: the owner takes their names out and unlinks them."""
        return self.segments.trash

    # Configuration

    @property
    def config(self) -> LogConfig:
        return self._config

    def update_config(self, config: LogConfig) -> None:
        """From the next append on."""
        self._config = config
        # Nothing in the topic's settings depends on a record, so that batches can be judged by their headers.
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
    ) -> AppendInfo:
        """Append as the leader: assign offsets and the leader epoch. The input is never changed.

        A client's `records` are one batch, with everything checked that Apache Kafka checks and the header tells.
        Without `client` they are our own: one or more batches, control batches among them; in the name of a producer
        they have no sequence numbers. `validated`: the batch comes from `recompress`, its records were checked there.
        `verification`: what `start_verification` gave for the batch's transaction.

        Raises `KafkaError` with CORRUPT_MESSAGE, INVALID_RECORD, MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE,
        INVALID_TIMESTAMP, UNSUPPORTED_COMPRESSION_TYPE (the log is as before; the last four refuse what was sent),
        OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE, or KAFKA_STORAGE_ERROR. Records that
        were refused one by one are named in `InvalidRecordBatchError.record_errors`.
        """
        if self._offline is not None:
            raise self._offline_error()
        if not client:
            return self._append_own(records, now_ms, leader_epoch, verification)
        appended = self.append_plain(
            (records,),
            now_ms=now_ms,
            leader_epoch=leader_epoch,
            validated=validated,
            verification=verification,
        )
        if appended:
            return appended[0]
        # Something is special about the batch, or wrong with it: look again, in Apache Kafka's order.
        config = self._config
        batch = validate_client_batch(records, config, now_ms=now_ms, validated=validated)
        size = batch.size
        if size > config.segment_bytes:
            raise KafkaError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"Message batch size is {size} bytes in append to partition {self.topic}-{self.partition}, "
                f"which exceeds the maximum configured segment size of {config.segment_bytes}.",
            )
        last_sequence = increment_sequence(batch.base_sequence, batch.last_offset_delta)
        if batch.producer_id >= 0:
            duplicate = self.producers.check(
                batch.producer_id,
                batch.producer_epoch,
                batch.base_sequence,
                last_sequence,
                bool(batch.attributes & TRANSACTIONAL_MASK),
                verification,
            )
            if duplicate is not None:
                return self._duplicate(duplicate)
        max_timestamp = batch.max_timestamp
        rest: tuple[Buffer, ...] = (batch.data[_PREFIX_SIZE:],)
        if config.message_timestamp_type == "LogAppendTime":
            max_timestamp = now_ms
            header = with_timestamps(batch, now_ms, log_append_time=True)
            rest = (header[_PREFIX_SIZE:], batch.data[BATCH_OVERHEAD:])
        first_offset = self.log_end_offset
        last_offset = first_offset + batch.last_offset_delta
        segment = self._segment_for(size, max_timestamp, last_offset, now_ms)
        (info,) = self._write(
            segment,
            (_PREFIX.pack(first_offset, size - LOG_OVERHEAD, leader_epoch), *rest),
            size,
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

    def append_plain(
        self,
        batches: Sequence[Buffer],
        *,
        now_ms: int,
        leader_epoch: int,
        validated: bool = False,
        verification: Verification | None = None,
    ) -> list[AppendInfo]:
        """Append the first of these clients' batches, as many as are well in every respect, with one write.

        This is the hot path: a batch is judged by its header and its CRC, and several that arrived together cost one
        system call. It stops, without a word, before a batch that is special or wrong; `append` knows what to do with
        that. It also stops where one write cannot do: at the end of a segment, or where the sequence of an idempotent
        producer does not simply go on. So less than all may be appended, or nothing. `validated`, `verification`: see
        `append`.

        Raises `KafkaError` where nothing was appended: what `ProducerState.check` says of the first batch, or
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
        segment: Segment | None = None
        room = 0
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
            last_sequence = (first_sequence + offset_delta) & _MAX_SEQUENCE  # after the largest comes 0
            last_offset = offset + offset_delta
            if segment is None:
                if producer_id >= 0:
                    duplicate = self.producers.check(
                        producer_id, producer_epoch, first_sequence, last_sequence, transactional, verification
                    )
                    if duplicate is not None:
                        return [self._duplicate(duplicate)]
                segment = self._segment_for(size, max_timestamp, last_offset, now_ms)
                # The first batch of a segment decides how long it lasts, so it goes alone.
                room = config.segment_bytes - segment.size if segment.size and not segment.nearly_full else 0
            elif (
                total + size > room
                or max_timestamp > segment.roll_after_timestamp
                or last_offset - segment.base_offset > MAX_RELATIVE_OFFSET
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
        if segment is None:
            return []
        return self._write(segment, buffers, total, unwritten, now_ms=now_ms, leader_epoch=leader_epoch)

    def _segment_for(self, size: int, max_timestamp: int, last_offset: int, now_ms: int) -> Segment:
        """The active segment, or a new one if this batch does not belong into it any more."""
        segment = self.segments.active
        if (
            segment.size + size > self._config.segment_bytes
            or max_timestamp > segment.roll_after_timestamp
            or now_ms > segment.roll_after_ms
            or segment.full
            or last_offset - segment.base_offset > MAX_RELATIVE_OFFSET
        ) and segment.size:
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
        """Write batches that were checked, and account for them: all or, with KAFKA_STORAGE_ERROR, none."""
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
            raise KafkaError(ErrorCode.INVALID_RECORD, "The records are not one or more whole batches")
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
        return self._append_batches(batches, now_ms)

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
        """End the producer's transaction. A marker is never too large: what is open must be brought to an end.

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
        # It is no batch of the producer's: no sequence numbers to remember.
        batch = (offset, offset, now_ms, MARKER_BATCH_SIZE, -1, -1, -1, -1, False)
        (info,) = self._write(segment, (data,), MARKER_BATCH_SIZE, (batch,), now_ms=now_ms, leader_epoch=leader_epoch)
        completed = self.producers.end_transaction(producer_id, producer_epoch, marker, offset, now_ms)
        if completed is not None and completed.aborted:
            self._note_aborted(segment, completed)
        return info

    def append_as_follower(self, records: Buffer, *, now_ms: int, leader_epoch: int) -> AppendInfo:
        """Append what the leader sent: whole batches with their offsets and epochs; a last one cut off is left out.

        Batches of an epoch later than `leader_epoch`, and all after them, are left out too: whoever sent them was not
        the leader that was asked (KAFKA-18723). Raises CORRUPT_MESSAGE, and OFFSET_OUT_OF_RANGE for batches that do not
        begin at or after `log_end_offset`, or do not follow one another.
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
                    f"{batch.base_offset} to {batch.last_offset} begins before the next offset {next_offset}.",
                )
            next_offset = batch.next_offset
            batches.append(batch)
        if not batches:
            return AppendInfo(-1, -1, -1, self.log_start_offset)
        return self._append_batches(batches, now_ms)

    def _whole_batches(self, records: Buffer) -> list[RecordBatch]:
        try:
            batches = list(iter_batches(records))
        except InvalidRecordsError as error:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from None
        for batch in batches:
            if not batch.has_valid_crc() or batch.last_offset_delta < 0:
                raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"Record is corrupt (stored crc = {batch.crc}).")
        return batches

    def _append_batches(self, batches: list[RecordBatch], now_ms: int) -> AppendInfo:
        """Write batches whose offsets and epochs are set in their headers, not in their bytes."""
        config = self._config
        size = sum(batch.size for batch in batches)
        first_offset, last_offset = batches[0].base_offset, batches[-1].last_offset
        segment = self.segments.active
        if size > MAX_RELATIVE_OFFSET:
            raise KafkaError(ErrorCode.RECORD_LIST_TOO_LARGE, f"{size} bytes do not fit into a segment")
        if segment.size and (
            segment.size + size > config.segment_bytes
            or max(batch.max_timestamp for batch in batches) > segment.roll_after_timestamp
            or now_ms > segment.roll_after_ms
            or segment.full
        ):
            segment = self._roll(now_ms)
        if last_offset - segment.base_offset > MAX_RELATIVE_OFFSET:
            # A follower may be sent offsets far beyond its own end: what lay between was compacted away.
            segment = self._roll(now_ms, first_offset)
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
            completed = self.producers.replay(batch, batch if batch.is_control else None)
            if completed is not None and completed.aborted:
                self._note_aborted(segment, completed)
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
            # The marker is in the log and the index is not: only reading the log again can mend that.
            self._go_offline(error)
            raise self._offline_error() from error

    # Rolling

    def roll(self, now_ms: int) -> None:
        """Begin a new segment, unless the active one is empty."""
        self.check_online()
        if self.segments.active.size:
            segment = self._roll(now_ms)
            # All records may be on the device already: then a flush would not look at the snapshot that was taken.
            self._unsynced_paths.append(self.snapshots.path(segment.base_offset))

    def _roll(self, now_ms: int, base_offset: int | None = None) -> Segment:
        """Seal the active segment and begin one at the log's end (or at a later `base_offset`).

        On failure nothing has changed: the next append tries the same again.
        """
        base_offset = self.log_end_offset if base_offset is None else base_offset
        active = self.segments.active
        with self._storage():
            if active.size:
                active.seal()
            self.snapshots.take(base_offset, self.producers, sync=False)
        active.forget_files()
        active.forget_recent_batches()
        segment = self._new_segment(base_offset, now_ms)
        if active.size:
            self.segments.add(segment)
        else:
            with self._storage(fatal=True):
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
        self._directory_dirty = True  # now the files are there; a flush may have run since the roll
        segment.first_timestamp = max_timestamp
        segment.created_ms = now_ms
        self._schedule_roll(segment)

    def _schedule_roll(self, segment: Segment) -> None:
        """When a batch that comes later begins a new segment: by timestamps, or by the clock if there are none."""
        if not segment.size:
            return
        config = self._config
        segment_ms = config.largest_segment_ms
        jitter = min(config.segment_jitter_ms, segment_ms)
        if jitter > 0:
            # Spread over the partitions, and the same after a restart; no dice are rolled down here.
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
            # The batch is in the log. Without room the entries wait in memory for the next time.
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
        """The batches from the one with `offset` on, up to `max_offset` (not included) and about `max_bytes`.

        The range begins with a whole batch, which may begin before `offset`, and may end in the middle of one. With
        `min_one_batch` a first batch larger than `max_bytes` comes whole. Raises OFFSET_OUT_OF_RANGE outside of
        [`log_start_offset`, `log_end_offset`], CORRUPT_MESSAGE, KAFKA_STORAGE_ERROR. Without `wait` it raises
        `ColdRead` where finding the batches would wait for the device; their own bytes are not looked at either way.
        With `committed` it finds the aborted transactions, too; `max_offset` is the last stable offset then.
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
        """Whole batches from the one with `offset` on, read one by one: for replaying and for tools.

        Raises `OSError` and `InvalidRecordsError` as they come.
        """
        return self.segments.batches(offset, self.log_end_offset if end_offset is None else end_offset)

    def aborted_transactions(self, offset: int, end_offset: int) -> list[AbortedTransaction]:
        """What a reader of [offset, end_offset) that wants only committed records must leave out."""
        self.check_online()
        with self._storage():
            return _collect(self._transaction_indexes(offset), offset, end_offset, wait=True)

    def _aborted_transactions(
        self, segment: Segment, offset: int, end: int, max_offset: int, wait: bool
    ) -> Sequence[AbortedTransaction]:
        """Those that matter from `offset` to the position `end` in this segment, and hardly more."""
        if segment is self.segments.active:  # most readers are here, and it has none mostly
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
        with self._storage():
            if timestamp is None:
                return next_search_for_largest(self.segments, start_offset)
            return next_search(self.segments, timestamp, max(start_offset, self.log_start_offset))

    def offset_for_timestamp(self, timestamp: int) -> TimestampAndOffset | None:
        """The first record from `log_start_offset` on with this timestamp or a later one; None if there is none.

        Exact: the batch that has it is looked into, here and now. `timestamp` is in ms, not one of ListOffsets' special
        values.
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
            steps = search.steps()
            while True:
                try:
                    next(steps)
                except StopIteration as end:
                    found: tuple[int, int] | None = end.value
                    break
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
        """The latest leader epoch; -1 if none is known."""
        return self.leader_epochs.latest

    def assign_leader_epoch(self, epoch: int, start_offset: int | None = None) -> None:
        """This broker leads in `epoch` from the log's end on: it is known before the first record of it."""
        self.leader_epochs.assign(epoch, self.log_end_offset if start_offset is None else start_offset)

    def epoch_of(self, offset: int) -> int:
        """The leader epoch that `offset` was written in; -1 if it is not known."""
        return self.leader_epochs.epoch_of(offset)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(the largest epoch up to `epoch`, where it ended); (-1, -1) if it is not known."""
        return self.leader_epochs.end_offset(epoch, self.log_end_offset)

    def active_producers(self) -> list[ProducerEntry]:
        """For DescribeProducers."""
        return list(self.producers)

    def expire_producers(self, now_ms: int) -> None:
        """Forget producers that have been silent for too long; to be called now and then.

        As in Apache Kafka the time is that of their last batch's timestamp. It is not done when the log is loaded: a
        producer of old data that retries over a restart must still be recognized.
        """
        self.producers.expire(now_ms, self._config.producer_id_expiration_ms)

    def has_open_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether the producer's transaction of this epoch has records here and no marker."""
        return self.producers.has_open_transaction(producer_id, producer_epoch)

    def start_verification(
        self, producer_id: int, producer_epoch: int, first_sequence: int, *, epoch_per_transaction: bool, now_ms: int
    ) -> Verification | None:
        """What `append` needs for the first batch of a transaction, once the coordinator has confirmed it; None where
        the transaction is open here already. See the module `verification`.

        Raises INVALID_PRODUCER_EPOCH.
        """
        return self.producers.start_verification(
            producer_id, producer_epoch, first_sequence, epoch_per_transaction=epoch_per_transaction, now_ms=now_ms
        )

    def first_unstable_offset(self) -> int | None:
        """The first offset of the oldest open transaction; None without one."""
        return self.producers.first_open_transaction()

    # Cutting

    def truncate_to(self, offset: int, now_ms: int) -> None:
        """Drop the batch with `offset` and everything after it, as a follower does that has parted from its leader."""
        self.check_online()
        if offset >= self.log_end_offset:
            self.leader_epochs.truncate_from_end(self.log_end_offset)
            return
        if offset < self.segments[0].base_offset:
            self.truncate_fully_and_start_at(offset, now_ms)
            return
        with self._storage(fatal=True):
            self._cuts += 1
            self._lower_flushed_offset(offset)
            while self.segments.active.base_offset > offset:
                self.segments.remove_last()
            active = self.segments.active
            active.truncate_to(offset)
            active.find_first_timestamp()
            self._sync_cut()
            self.log_end_offset = active.next_offset()
            self.log_start_offset = min(self.log_start_offset, self.log_end_offset)
            self.leader_epochs.truncate_from_end(self.log_end_offset)
            self.snapshots.drop(lambda snapshot: snapshot > self.log_end_offset)
            first_offset = self.segments[0].base_offset
            self.snapshots.restore(self.producers, self.segments, first_offset, self.log_end_offset)
            self._schedule_roll(active)

    def truncate_fully_and_start_at(self, offset: int, now_ms: int, log_start_offset: int | None = None) -> None:
        """Drop everything; the next record gets `offset`."""
        self.check_online()
        with self._storage(fatal=True):
            self._cuts += 1
            self._lower_flushed_offset(offset)
            segment = self._new_segment(offset, now_ms)
            self.segments.replace_all(segment)
            if offset:
                segment.make_files()  # its name is all that says where the log goes on
            self._sync_cut()
            self.log_end_offset = offset
            self.log_start_offset = offset if log_start_offset is None else log_start_offset
            self.leader_epochs.clear()
            self.producers.clear()
            self.snapshots.drop(lambda snapshot: True)

    def _lower_flushed_offset(self, offset: int) -> None:
        """Before the files are cut: nobody may think later that what is written anew was on the device."""
        if self._compaction is not None:
            self._compaction.stale = True
        if offset < self.flushed_offset:
            self.flushed_offset = offset
            if self.on_recovery_point_lowered is not None:
                self.on_recovery_point_lowered(self)

    def _sync_cut(self) -> None:
        """Have the cut on the device before anything is appended after it.

        Otherwise a loss of power could bring back what was cut off, in front of what was appended since.
        """
        active = self.segments.active
        if active.on_disk:
            self.files.open(active).file.sync()
        self.files.file_system.sync_directory(self.directory)
        self._directory_dirty = False

    def delete_records_before(self, offset: int) -> None:
        """Records before `offset` are gone for readers; segments that lie wholly before it are deleted.

        Not yet where what follows them is not on the device: a loss of power could take the names and the snapshot of
        producers that say where the log goes on. Retention deletes those later.

        Raises OFFSET_OUT_OF_RANGE beyond the log's end. An offset that is passed already changes nothing.
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
        """What retention would delete now; see the module `retention`. Where that is all, `roll` first."""
        self.check_online()
        with self._storage():
            return find_old_segments(
                self.segments,
                log_start_offset=self.log_start_offset,
                log_end_offset=self.log_end_offset,
                high_watermark=high_watermark,
                config=self._config,
                now_ms=now_ms,
            )

    def delete_first_segments(self, count: int) -> None:
        """Drop the `count` oldest segments, never the active one: what retention decided. Ranges in flight stay whole.

        The log start offset moves up to what is left.
        """
        self.check_online()
        count = min(count, len(self.segments) - 1)
        if count <= 0:
            return
        with self._storage():
            # Its name is what says where the log goes on, once the others are gone.
            self.segments[count].make_files()
        self.log_start_offset = max(self.log_start_offset, self.segments[count].base_offset)
        self.leader_epochs.truncate_from_start(self.log_start_offset)
        with self._storage(fatal=True):
            self.segments.remove_first(count)
            first = self.segments[0].base_offset
            self.snapshots.drop(lambda snapshot: snapshot < first)
        self._directory_dirty = True

    # Compaction

    def cleanable(self, clean_offset: int | None, last_stable_offset: int, now_ms: int) -> Cleanable:
        """What compaction would find now; `clean_offset`: where its last pass ended, None if there was none."""
        self.check_online()
        with self._storage():
            return find_cleanable(
                self.segments,
                self._config,
                clean_offset=clean_offset,
                log_start_offset=self.log_start_offset,
                last_stable_offset=last_stable_offset,
                now_ms=now_ms,
            )

    def prepare_compaction(self) -> None:
        """To be called before the flush that a pass begins with: only what is on the device may be rewritten.

        The active segment gets its files if it has none: when the last batches before it are compacted away, its name
        is all that says where the log ends.
        """
        self.check_online()
        with self._storage():
            self._directory_dirty |= self.segments.active.make_files()

    def begin_compaction(
        self, cleanable: Cleanable, *, now_ms: int, dedupe_buffer_bytes: int, io_bytes_per_second: float = 0.0
    ) -> Compaction | None:
        """A pass over what is cleanable and flushed: its job is for `compact`, in another process.

        None if there is nothing to do, or another pass has not ended. Each pass is ended by `end_compaction` or
        `abandon_compaction`.
        """
        self.check_online()
        if self._compaction is not None:
            return None
        segments = self.segments
        count = segments.number_of(cleanable.first_uncleanable_offset)
        while count and (segments.end_of(count - 1) or 0) > self.flushed_offset:
            count -= 1
        sealed = [segments[number] for number in range(count)]
        if not sealed or segments[count].base_offset <= cleanable.first_dirty_offset:
            return None
        config = self._config
        with self._storage():
            job = CompactionJob(
                directory=self.directory,
                topic=self.topic,
                partition=self.partition,
                segments=tuple(
                    SegmentFiles(
                        base_offset=segment.base_offset,
                        size=segment.size,
                        end_offset=segments[number + 1].base_offset,
                        modified_ms=self.files.file_system.modified_ms(segment.path),
                    )
                    for number, segment in enumerate(sealed)
                ),
                later_segments=tuple(
                    segments[number].base_offset
                    for number in range(count, len(segments))
                    if segments[number].transaction_index.count
                ),
                first_dirty_offset=cleanable.first_dirty_offset,
                now_ms=now_ms,
                delete_retention_ms=config.delete_retention_ms,
                segment_bytes=config.segment_bytes,
                segment_index_bytes=config.segment_index_bytes,
                index_interval_bytes=config.index_interval_bytes,
                dedupe_buffer_bytes=dedupe_buffer_bytes,
                io_bytes_per_second=io_bytes_per_second,
                last_batches={
                    entry.producer_id: (entry.epoch, entry.batches[-1].last_offset if entry.batches else -1)
                    for entry in self.producers
                },
            )
        self._compaction = Compaction(job, sealed)
        return self._compaction

    def put_in_place(self, compaction: Compaction, replacement: Replacement, now_ms: int) -> bool:
        """Let a compacted segment take the place of those it was made of; they come in the order of their offsets.

        False if the log has changed so that neither this one nor any later one of the pass may be: see the module
        `compaction.swap`. Nothing has changed then.
        """
        self.check_online()
        number = compaction.locate(replacement, self.segments)
        if number is None:
            compaction.placed += not compaction.stale  # retention was faster
            return not compaction.stale
        with self._storage():
            begin_swap(self.files.file_system, self.directory, replacement.base_offset)
        with self._storage(fatal=True):
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
        compaction.placed += 1
        return True

    def end_compaction(self, compaction: Compaction, result: CompactionResult, now_ms: int) -> bool:
        """The pass is over: put in place what is not yet. Whether all of it is.

        The next pass may begin at `result.clean_offset` when the log has been flushed, and not before: the names of
        the files are not on the device yet.
        """
        try:
            for replacement in result.replacements[compaction.placed :]:
                if not self.put_in_place(compaction, replacement, now_ms):
                    break
        finally:
            self.abandon_compaction(compaction)
        return not compaction.stale

    def abandon_compaction(self, compaction: Compaction) -> None:
        """The pass failed, or its result is of no use: remove what it left. What is in place stays."""
        if self._compaction is compaction:
            self._compaction = None
            if self._offline is None:
                with self._storage():
                    discard(self.files.file_system, self.directory)

    def compaction_failed(self, compaction: Compaction, error: OSError) -> None:
        """A file could not be read or written. A full disk is no harm; after anything else the log is offline."""
        self.abandon_compaction(compaction)
        if error.errno not in TRANSIENT_ERRNOS and not isinstance(error, FileNotFoundError):
            self._go_offline(error)

    # Flushing

    @property
    def recovery_point(self) -> int:
        """Segments that end before it need no look after an unclean stop."""
        return self.flushed_offset

    @property
    def flush_messages_reached(self) -> bool:
        """Have so many records come since the last flush that the next append waits for one (`flush.messages`)?"""
        return self.log_end_offset - self.flushed_offset >= self._config.flush_messages

    def flush_due(self, now_ms: int) -> bool:
        """Do `flush.messages`, `flush.ms`, or a segment that was sealed since, call for a flush?"""
        unflushed = self.log_end_offset - self.flushed_offset
        return unflushed > 0 and (
            unflushed >= self._config.flush_messages
            or now_ms - self._last_flush_ms >= self._config.flush_ms
            or self.flushed_offset < self.segments.active.base_offset
        )

    def begin_flush(self, up_to: int | None = None) -> Flush | None:
        """What must be synced so that everything before `up_to` (by default the log's end) is on the device.

        None if it is already. Otherwise `run` it, in a thread if you like, then call `end_flush` or `flush_failed`.
        Only one at a time: a second one would not wait for what the first has taken upon itself, new names of files
        above all.
        """
        self.check_online()
        up_to = self.log_end_offset if up_to is None else min(up_to, self.log_end_offset)
        dirty = self._directory_dirty or self._parent_dirty or self._unsynced_paths or self.leader_epochs.dirty
        if up_to <= self.flushed_offset and not dirty:
            return None
        flush = Flush(self.files.file_system, up_to, self._cuts)
        try:
            with self._storage():
                if up_to > self.flushed_offset:
                    flush.add_segments(self.files, self.segments, self.flushed_offset)
                    # An older one may be all that says where an open transaction began, once its records are deleted.
                    unflushed = [offset for offset in self.snapshots.offsets if offset >= self.flushed_offset]
                    flush.add_paths(map(self.snapshots.path, unflushed))
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
        # The log may have been cut meanwhile, and grown again; then nothing is promised.
        if flush.cuts == self._cuts:
            self.flushed_offset = max(self.flushed_offset, flush.offset)
        self._last_flush_ms = now_ms
        if self.on_flushed is not None:
            self.on_flushed()

    def flush_failed(self, flush: Flush, failure: FlushFailure) -> KafkaError:
        """The flush raised. After an `OSError` what the device has is not known any more, so the log goes offline,
        whatever the error; what a postponed flush took upon itself is left to the next one."""
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
        """The same for a sync that is part of no flush."""
        self._go_offline(error)
        return self._offline_error()

    def flush(self, now_ms: int) -> None:
        """All three steps at once; waits for the device."""
        flush = self.begin_flush()
        if flush is not None:
            self._run(flush)
            self.end_flush(flush, now_ms)

    def _run(self, flush: Flush) -> None:
        failure = failure_of(flush)
        if failure is not None:
            raise self.flush_failed(flush, failure) from failure

    # The directory, and the end

    def set_topic_id(self, topic_id: bytes) -> None:
        """Write `partition.metadata` into a directory that has none."""
        path = join(self.directory, PARTITION_METADATA)
        with self._storage():
            self.files.file_system.replace_file(path, encode_partition_metadata(topic_id), sync=False)
        self.topic_id = topic_id
        self._unsynced_paths.append(path)
        self._directory_dirty = True

    def note_unsynced_names(self, *, parent: bool) -> None:
        """Names of files may not be on the device: they were made by a process that died; or, with `parent`, the
        directory's own name is not, because it was just made. The next flush sees to it."""
        self._directory_dirty = True
        self._parent_dirty = self._parent_dirty or parent

    def begin_close(self) -> Flush | None:
        """A clean stop: indexes complete, producers written. What it returns is to be run, then `end_close`, or
        `flush_failed`; None if all of it is on the device."""
        if self._offline is not None:
            return None
        with self._storage():
            active = self.segments.active
            # With a flush on every append nothing is unflushed, but the active segment's indexes were never synced.
            dirty = self.flushed_offset < self.log_end_offset or self.log_end_offset != self._loaded_end_offset
            if active.size:
                active.seal()
            # Its name may be there before its content: the directory is not marked clean before both are.
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
        """It has run. No calls after this."""
        if flush is not None:
            self.end_flush(flush, now_ms)
        self.abandon()

    def close(self, now_ms: int) -> None:
        """Both steps at once; waits for the device."""
        flush = self.begin_close()
        if flush is not None:
            self._run(flush)
        self.end_close(flush, now_ms)

    def abandon(self) -> None:
        """Close the descriptors and write nothing: the partition is being deleted."""
        self.take_offline("the log is closed")

    def moved_to(self, directory: str) -> None:
        """The directory was renamed; descriptors that ranges hold stay valid."""
        self.directory = directory
        self.snapshots.directory = directory
        for segment in self.segments:
            segment.moved_to(directory)

    def go_on_in(self, directory: str) -> None:
        """Go on with a copy in another log directory, which is the same in every byte (`FutureLog`).

        What was flushed of the log must be on the device in the copy too, and so must the change of names, before the
        next flush ends.
        """
        old = self.directory
        self._cuts += 1  # a flush that has begun before is of the old files
        if self._compaction is not None:
            self._compaction.stale = True
        self.moved_to(directory)
        self._directory_dirty = True
        self.leader_epochs.dirty = True
        self._unsynced_paths = [join(directory, path.removeprefix(old + "/")) for path in self._unsynced_paths]

    # Failure

    def _append_failed(self, segment: Segment, error: OSError) -> KafkaError:
        """A write failed: cut off what it left, so that nothing but whole batches is in the file."""
        if error.errno in TRANSIENT_ERRNOS:
            try:
                segment.discard_tail()
            except OSError as second:
                if second.errno not in TRANSIENT_ERRNOS:
                    error = second
        return self._storage_failed(error)

    def _storage_failed(self, error: OSError) -> KafkaError:
        if error.errno not in TRANSIENT_ERRNOS:
            self._go_offline(error)
        return KafkaError(
            ErrorCode.KAFKA_STORAGE_ERROR,
            f"{self.topic}-{self.partition} in {self.directory}: {error.strerror or error}",
        )

    def _go_offline(self, error: OSError) -> None:
        if self._offline is None:
            self._offline = error.strerror or str(error)
            if self.on_failure is not None:
                self.on_failure(self, error)

    def take_offline(self, reason: str) -> None:
        """The log directory failed elsewhere: answer KAFKA_STORAGE_ERROR from now on, and touch no file."""
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
    def _storage(self, *, fatal: bool = False) -> Iterator[None]:
        """Turns what files do into `KafkaError`s. `fatal`: there is no way back from the middle of this."""
        try:
            yield
        except OSError as error:
            if fatal:
                self._go_offline(error)
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
    """What the indexes of the segment with `offset` and of later ones have for a reader of [offset, upper_bound)."""
    found: list[AbortedTransaction] = []
    for index in indexes:
        aborted, complete = index.collect(offset, upper_bound, wait=wait)
        found += aborted
        if complete:
            break
    return found

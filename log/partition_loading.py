"""Opening a partition's directory: quickly after a clean shutdown, with recovery after an unclean one.

After a clean shutdown, the names of the files, the tail of the last segment and the latest producer snapshot are
sufficient.

After an unclean shutdown, each segment that ends at or after the recovery point is read batch by batch. The log ends
before the first batch that is incomplete, has a wrong CRC, or does not follow the previous one; everything after it is
truncated, and later segments are removed. Indexes, producer state, the index of aborted transactions and leader epochs
are rebuilt. A segment that ends exactly at the recovery point is read too: its indexes may have been completed after
the last flush. `Log.repairs` describes each repair.

Leftovers are removed in any case: files that were about to be deleted, indexes without a log, and incomplete results of
compaction. Complete results are put in place, as in Apache Kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from zlib import crc32

from ..protocol.records import (
    BATCH_OVERHEAD,
    HEADER,
    LOG_OVERHEAD,
    CorruptBatchError,
    InvalidRecordsError,
    RecordBatch,
    UnsupportedMagicError,
    read_batch_header,
)
from .checkpoints import CorruptCheckpointError, decode_leader_epochs, decode_partition_metadata
from .config import LogConfig
from .descriptors import DescriptorCache
from .files import FileSystem, join
from .leader_epochs import LeaderEpochs
from .names import (
    CLEANED,
    LEADER_EPOCH_CHECKPOINT,
    LOG,
    OFFSET_INDEX,
    PARTITION_METADATA,
    PRODUCER_SNAPSHOT,
    SEGMENT_SUFFIXES,
    SWAP,
    TIME_INDEX,
    TRANSACTION_INDEX,
    is_leftover,
    offset_file_name,
    parse_offset_file_name,
)
from .partition_log import Log
from .producer_snapshots import ProducerSnapshots
from .producer_state import ProducerState
from .segment import MAX_RELATIVE_OFFSET, Segment
from .segments import Segments
from .transaction_index import AbortedTransaction

_READ_BYTES = 1 << 20
_HEADERS_BYTES = 64 << 10
_MAX_OFFSET = 0x7FFF_FFFF_FFFF_FFFF


def load_log(
    files: DescriptorCache,
    directory: str,
    topic: str,
    partition: int,
    config: LogConfig,
    *,
    clean: bool,
    now_ms: int,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    compacted_until: int | None = None,
) -> Log:
    """The log in `directory`, which must exist; an empty one is a new log that begins at `log_start_offset`.

    `clean`: the directory was left by a clean shutdown. `recovery_point` and `log_start_offset` are those of the
    checkpoints. `compacted_until`: compaction has left no gap after this offset or the recovery point; None if unknown.
    `OSError` propagates: the caller decides about the log directory.
    """
    loader = _Loader(files, directory, topic, partition, config, clean, now_ms, recovery_point, log_start_offset)
    if compacted_until is None:
        compacted_until = _MAX_OFFSET if config.compacted else 0
    loader.last_gap_offset = max(compacted_until, recovery_point)
    return loader.load()


class _Loader:
    """One call of `load_log`: its arguments, and the state so far."""

    def __init__(
        self,
        files: DescriptorCache,
        directory: str,
        topic: str,
        partition: int,
        config: LogConfig,
        clean: bool,
        now_ms: int,
        recovery_point: int,
        log_start_offset: int,
    ) -> None:
        self.files = files
        self.file_system = files.file_system
        self.directory = directory
        self.topic = topic
        self.partition = partition
        self.config = config
        self.clean = clean
        self.now_ms = now_ms
        self.recovery_point = recovery_point
        self.last_gap_offset = recovery_point
        """Up to here a gap between two segments is no loss: the records were durable, or compaction removed them."""
        self.log_start_offset = log_start_offset
        self.repairs: list[str] = []
        self.trash: list[str] = []
        self.segments: list[Segment] = []
        self.producers = ProducerState()
        self._recovered = False

    def load(self) -> Log:
        names, _directories = self.file_system.list_directory(self.directory)
        names = clear_leftovers(self.file_system, self.directory, names)
        topic_id = self._topic_id(names)
        self.leader_epochs = self._leader_epochs(names)
        self._find_segments(names)
        if not self.clean:
            self._recover()
        self._check_indexes()
        log_end_offset = self._log_end_offset()
        if log_end_offset < self.log_start_offset:
            self._start_over(log_end_offset)
            log_end_offset = self.log_start_offset
        if not self.segments:
            self.segments.append(self._segment(self.log_start_offset, new=True))
            if self.log_start_offset and self.segments[0].make_files():
                self._sync(None)  # only their name contains the log end offset: from now on no checkpoint does
            log_end_offset = self.log_start_offset
        self.leader_epochs.truncate_from_end(log_end_offset)
        log_start_offset = max(self.log_start_offset, self.segments[0].base_offset)
        self.leader_epochs.truncate_from_start(log_start_offset)
        segments = Segments(self.segments)
        segments.trash = self.trash
        if not self.clean:
            self._complete_leader_epochs(segments, log_start_offset)
        # From the first segment on, not from the log start: a producer whose records were deleted may still be known.
        first_offset = segments[0].base_offset
        self._drop_snapshots(first_offset, log_end_offset)
        if not self._recovered:
            self.repairs += self.snapshots.restore(
                self.producers, segments, first_offset, log_end_offset, complete=self.clean
            )
        self._open_active()
        segments.forget_files()
        log = Log(
            self.files,
            self.directory,
            self.topic,
            self.partition,
            self.config,
            topic_id=topic_id,
            segments=segments,
            producers=self.producers,
            snapshots=self.snapshots,
            leader_epochs=self.leader_epochs,
            log_start_offset=log_start_offset,
            log_end_offset=log_end_offset,
            flushed_offset=log_end_offset if self.clean else min(self.recovery_point, log_end_offset),
            now_ms=self.now_ms,
            repairs=self.repairs,
            was_synced=self.clean and not self.repairs,
        )
        if not self.clean and log.size:
            log.note_unsynced_names(parent=False)
        if not self.clean and topic_id is not None:
            log.note_unsynced_topic_id()  # a process that was killed may have written it
        return log

    # The small files

    def _topic_id(self, names: list[str]) -> bytes | None:
        if PARTITION_METADATA not in names:
            return None
        path = join(self.directory, PARTITION_METADATA)
        try:
            return decode_partition_metadata(self.file_system.read_file(path), path)
        except CorruptCheckpointError as error:
            if self.clean:
                raise
            self.repairs.append(str(error))
            # Otherwise it would remain until the topic's id is known, possibly beyond a clean shutdown.
            self.file_system.unlink(path)
            self.file_system.sync_directory(self.directory)
            return None

    def _leader_epochs(self, names: list[str]) -> LeaderEpochs:
        if LEADER_EPOCH_CHECKPOINT not in names:
            return LeaderEpochs()
        path = join(self.directory, LEADER_EPOCH_CHECKPOINT)
        data = self.file_system.read_file(path)
        try:
            return LeaderEpochs(decode_leader_epochs(data, path)) if data else LeaderEpochs()
        except CorruptCheckpointError as error:
            self.repairs.append(str(error))
            self.recovery_point = 0  # the batches contain the epochs, if all of them are read
            self.clean = False
            return LeaderEpochs()

    def _complete_leader_epochs(self, segments: Segments, log_start_offset: int) -> None:
        """Read earlier epochs from the batches: if the log start offset is from an older checkpoint, deleted records
        are readable again, but their epochs were removed immediately.
        """
        entries = self.leader_epochs.entries
        if not entries or entries[0][1] <= log_start_offset:
            return
        earlier = LeaderEpochs()
        for header in segments.headers(log_start_offset, entries[0][1]):
            if header.partition_leader_epoch < 0:
                return  # written before leader epochs existed
            earlier.assign(header.partition_leader_epoch, max(header.base_offset, log_start_offset))
        self.leader_epochs.extend_to_start(earlier)

    # Segments

    def _segment(self, base_offset: int, *, new: bool, size: int = 0) -> Segment:
        return Segment(
            self.files,
            self.directory,
            base_offset,
            size=size,
            max_index_bytes=self.config.segment_index_bytes,
            created_ms=self.now_ms,
            new=new,
        )

    def _find_segments(self, names: list[str]) -> None:
        self._indexes: dict[int, set[str]] = {}
        by_offset: dict[int, list[str]] = {}
        snapshots: list[int] = []
        for name in names:
            parsed = parse_offset_file_name(name)
            if parsed is None:
                continue
            offset, suffix = parsed
            if suffix == PRODUCER_SNAPSHOT:
                snapshots.append(offset)
            elif suffix in SEGMENT_SUFFIXES:
                by_offset.setdefault(offset, []).append(suffix)
        self.snapshots = ProducerSnapshots(self.file_system, self.directory, snapshots)
        for base_offset in sorted(by_offset):
            suffixes = by_offset[base_offset]
            if LOG in suffixes:
                path = join(self.directory, offset_file_name(base_offset, LOG))
                self.segments.append(self._segment(base_offset, new=False, size=self.file_system.size(path)))
                self._indexes[base_offset] = {OFFSET_INDEX, TIME_INDEX}.intersection(suffixes)
                if TRANSACTION_INDEX not in suffixes:
                    self.segments[-1].transaction_index.is_missing()
            else:
                for suffix in suffixes:
                    self.file_system.unlink(join(self.directory, offset_file_name(base_offset, suffix)))

    def _end_of(self, number: int) -> int | None:
        """The end offset of segment `number`, from the name of the next one; None for the last."""
        return self.segments[number + 1].base_offset if number + 1 < len(self.segments) else None

    def _check_indexes(self) -> None:
        """Rebuild missing indexes."""
        for segment in self.segments:
            if segment.size and self._indexes.get(segment.base_offset) != {OFFSET_INDEX, TIME_INDEX}:
                problem = reindex(segment, self.config.index_interval_bytes)
                self.repairs.append(
                    f"rebuilt the indexes of {segment.path}" + (f"; truncated it: {problem}" if problem else "")
                )

    def _log_end_offset(self) -> int:
        if not self.segments:
            return self.log_start_offset
        last = self.segments[-1]
        try:
            return last.next_offset()
        except InvalidRecordsError as error:
            # The directory was marked clean, so the files were changed afterwards.
            self.repairs.append(f"{last.path}: {error}")
            self.clean = False
            self.recovery_point = min(self.recovery_point, last.base_offset)
            self._recover()
            return self.segments[-1].next_offset() if self.segments else self.log_start_offset

    def _start_over(self, log_end_offset: int) -> None:
        self.repairs.append(
            f"deleted all segments: they end at offset {log_end_offset}, before the log start offset "
            f"{self.log_start_offset}"
        )
        for segment in self.segments:
            self.trash += segment.mark_deleted()
        self.segments.clear()
        self._sync(None)
        self.leader_epochs.clear()
        self.producers.clear()

    def _open_active(self) -> None:
        """Read the timestamp of the active segment's first batch, from which its age is counted."""
        active = self.segments[-1]
        try:
            active.find_first_timestamp()
        except InvalidRecordsError as error:
            self.repairs.append(f"{active.path}: {error}")

    # Recovery

    def _recover(self) -> None:
        """Read every segment that may not be durable. Afterwards the producer state is that at the log end offset."""
        first = 0
        while first < len(self.segments):
            end = self._end_of(first)
            if end is None or end >= self.recovery_point:
                break
            first += 1
        if first == len(self.segments):
            return
        start = self.segments[first].base_offset
        self.snapshots.drop(lambda snapshot: snapshot > start)  # their records may be lost, or be overwritten
        before = Segments(self.segments[:first]) if first else None
        self.repairs += self.snapshots.restore(self.producers, before, self.segments[0].base_offset, start)
        self.leader_epochs.truncate_from_end(start)  # replaced from the batches: the file may precede a truncation
        next_offset: int | None = None
        for number in range(first, len(self.segments)):
            segment = self.segments[number]
            # A gap means that the end of the previous segment is lost, unless compaction removed it.
            if next_offset is not None and (
                segment.base_offset < next_offset or segment.base_offset > max(next_offset, self.last_gap_offset)
            ):
                self._remove_segments_from(number, f"no segment begins at offset {next_offset}")
                break
            if number > first:
                self.snapshots.take(segment.base_offset, self.producers, sync=False)
            whole = self._recover_segment(segment)
            next_offset = self._recovered_end
            if not whole:
                self._remove_segments_from(number + 1, "they follow the truncated batches")
                break
        self._recovered = True

    def _recover_segment(self, segment: Segment) -> bool:
        """Truncate a segment before the first invalid batch. Returns whether all batches are valid."""
        self._recovered_end = segment.base_offset
        size = segment.size
        aborted: list[AbortedTransaction] = []

        def visit(batch: RecordBatch) -> None:
            self._recovered_end = batch.next_offset
            if batch.partition_leader_epoch != self.leader_epochs.latest:
                self.leader_epochs.assign(batch.partition_leader_epoch, batch.base_offset)
            completed = self.producers.replay(batch, batch if batch.is_control else None)
            if completed is not None and completed.aborted:
                aborted.append(
                    AbortedTransaction(
                        completed.producer_id,
                        completed.first_offset,
                        completed.last_offset,
                        self.producers.last_stable_offset_after(completed),
                    )
                )

        problem = reindex(segment, self.config.index_interval_bytes, visit)
        if segment.transaction_index.rebuild(aborted):
            self._sync(None)
        self._indexes[segment.base_offset] = {OFFSET_INDEX, TIME_INDEX}
        if problem is None:
            return True
        self.repairs.append(
            f"truncated {segment.path} by {size - segment.size} bytes at offset {self._recovered_end}: {problem}"
        )
        self._sync(segment)
        return False

    def _drop_snapshots(self, start: int, end: int) -> None:
        """Keep only useful snapshots: at the base offset of a segment, and the latest one up to the log end offset."""
        bases = {segment.base_offset for segment in self.segments}
        latest = max((offset for offset in self.snapshots.offsets if start <= offset <= end), default=None)
        self.snapshots.drop(lambda offset: not start <= offset <= end or (offset not in bases and offset != latest))

    def _remove_segments_from(self, number: int, reason: str) -> None:
        removed = self.segments[number:]
        if not removed:
            return
        self.repairs.append(
            f"removed {len(removed)} segments of {self.topic}-{self.partition} from offset "
            f"{removed[0].base_offset} on: {reason}"
        )
        for segment in removed:
            self.trash += segment.mark_deleted()
        del self.segments[number:]
        self._sync(None)

    def _sync(self, segment: Segment | None) -> None:
        """Sync truncations and removals: otherwise a power failure could restore the old batches after new ones."""
        if segment is not None:
            self.files.open(segment).file.sync()
        self.file_system.sync_directory(self.directory)


def clear_leftovers(file_system: FileSystem, directory: str, names: list[str]) -> list[str]:
    """Remove or complete what was in progress when the broker stopped; returns the remaining names.

    Compaction writes `.cleaned` files, renames them to `.swap` when all are complete, then removes the old segments.
    A `.swap` at or after a `.cleaned` belongs to a split that was not completed. Files without a name of Kafka's are
    kept; the snapshots of the metadata log, which have other suffixes, are among them.
    """
    leftovers = {name: parse_offset_file_name(name) for name in names if is_leftover(name)}
    cleaned = [parsed[0] for name, parsed in leftovers.items() if name.endswith(CLEANED) and parsed is not None]
    first_cleaned = min(cleaned, default=None)
    kept: list[str] = []
    swaps: list[str] = []
    undone: list[str] = []
    removed: list[str] = []
    for name in names:
        if name not in leftovers:
            kept.append(name)
            continue
        parsed = leftovers[name]
        if name.endswith(SWAP) and parsed is not None and (first_cleaned is None or parsed[0] < first_cleaned):
            swaps.append(name)
        elif name.endswith(SWAP):
            undone.append(name)
        else:
            removed.append(name)
    # `.swap` files first, because the `.cleaned` files are the evidence that they are incomplete; of those the `.log`
    # first: if this startup crashes in between, the next one must not treat the rest as a complete segment.
    for name in sorted(undone, key=lambda name: not name.endswith(LOG + SWAP)) + removed:
        file_system.unlink(join(directory, name))
    return _complete_swap(file_system, directory, kept, swaps) if swaps else kept


def _complete_swap(file_system: FileSystem, directory: str, names: list[str], swaps: list[str]) -> list[str]:
    first, end = None, 0
    for name in swaps:
        offset, suffix = parse_offset_file_name(name) or (0, "")
        if suffix == LOG + SWAP:
            # One without batches replaces at least the segment of its name.
            end = max(end, offset + 1, _next_offset(file_system, join(directory, name)))
            first = offset if first is None else min(first, offset)
    kept = []
    for name in names:
        parsed = parse_offset_file_name(name)
        replaced = parsed is not None and parsed[1] in SEGMENT_SUFFIXES
        if replaced and parsed is not None and first is not None and first <= parsed[0] < end:
            file_system.unlink(join(directory, name))
        else:
            kept.append(name)
    for name in swaps:
        target = name[: -len(SWAP)]
        file_system.rename(join(directory, name), join(directory, target))
        if target not in kept:
            kept.append(target)
    return kept


def _next_offset(file_system: FileSystem, path: str) -> int:
    """The offset after the last batch of a segment's file; 0 without a batch. Only headers are read."""
    file = file_system.open(path)
    try:
        size = file.size()
        chunk, start = b"", 0
        position = next_offset = 0
        while position + BATCH_OVERHEAD <= size:
            if position + BATCH_OVERHEAD > start + len(chunk):
                chunk, start = file.read_at(position, _HEADERS_BYTES), position
            try:
                header = read_batch_header(chunk, position - start)
            except InvalidRecordsError:
                break  # recovery or a reader reports it
            next_offset = header.next_offset
            position += header.size
        return next_offset
    finally:
        file.close()


def reindex(
    segment: Segment, index_interval_bytes: int, visit: Callable[[RecordBatch], None] | None = None
) -> str | None:
    """Read a complete segment, rebuild its indexes, and truncate it before the first invalid batch.

    `visit` is called with every valid batch in order. Returns why the first invalid batch is invalid; None if there is
    none. Raises `UnsupportedMagicError` for a segment written before Kafka 0.11. After that and after `OSError` the
    segment is unchanged.
    """
    size = segment.size
    segment.reset_indexes()
    problem = None
    segment.size = 0
    next_offset = segment.base_offset
    try:
        for batch, _position in whole_batches(segment, size):
            _check_batch(batch, segment.base_offset, next_offset)
            next_offset = batch.next_offset
            if segment.note_batch(
                batch.base_offset, batch.last_offset, batch.max_timestamp, batch.size, index_interval_bytes
            ):
                segment.persist_indexes()
            if visit is not None:
                visit(batch)
    except UnsupportedMagicError as error:
        if _is_legacy_message(segment, segment.size, size):
            segment.size = size
            raise
        problem = str(error)
    except InvalidRecordsError as error:
        problem = str(error)
    except OSError:
        segment.size = size
        raise
    if segment.size < size:
        segment.cut(segment.size)
    segment.seal()
    segment.bytes_since_index_entry = 0
    return problem


def whole_batches(segment: Segment, size: int) -> Iterator[tuple[RecordBatch, int]]:
    """The batches in the first `size` bytes with their positions, read in large pieces; only lengths are checked."""
    position = 0
    with segment.range(0, size) as file:
        chunk, start = memoryview(b""), 0
        while position < size:
            have = start + len(chunk) - position
            need = BATCH_OVERHEAD if have < BATCH_OVERHEAD else read_batch_header(chunk, position - start).size
            if position + need > size:
                if need == BATCH_OVERHEAD:
                    read_batch_header(file.read(position))  # raises; recognizes short messages of older formats
                raise CorruptBatchError(f"the batch at position {position} is truncated")
            if have < need:
                data = file.read(position, max(need, _READ_BYTES))
                if len(data) < need:
                    raise CorruptBatchError(f"the file ends before the batch at position {position} does")
                chunk, start = memoryview(data), position
                continue
            batch = RecordBatch(*HEADER.unpack_from(chunk, position - start))
            batch.data = chunk[position - start : position - start + need]
            yield batch, position
            position += need


def _check_batch(batch: RecordBatch, base_offset: int, next_offset: int) -> None:
    if not batch.has_valid_crc():
        raise CorruptBatchError(f"the CRC of the batch at offset {batch.base_offset} does not match")
    if batch.base_offset < next_offset or batch.last_offset_delta < 0:
        raise CorruptBatchError(f"the batch at offset {batch.base_offset} does not follow offset {next_offset}")
    if batch.last_offset - base_offset > MAX_RELATIVE_OFFSET:
        raise CorruptBatchError(f"offset {batch.last_offset} is too far from the segment's base offset {base_offset}")


def _is_legacy_message(segment: Segment, position: int, size: int) -> bool:
    """Whether this is a message of format 0 or 1, according to its CRC-32, and not a torn batch with such a magic."""
    with segment.range(0, size) as file:
        start = file.read(position, LOG_OVERHEAD + 4)
        length = int.from_bytes(start[8:12], "big", signed=True)
        data = file.read(position + LOG_OVERHEAD + 4, max(length - 4, 0))
    return len(data) == length - 4 and crc32(data) == int.from_bytes(start[12:], "big")

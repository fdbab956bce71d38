"""The check of one partition's directory: every batch, and all data that is derived from the batches.

Each segment is read once for all checks: batches (length, CRC, offsets, epochs, counts), both indexes, the producers
with the snapshots and the index of aborted transactions, the leader epochs. Memory is bounded by the directory's
largest index and by its producers.

Data that startup rebuilds is not compared: after an unclean shutdown, the indexes, snapshots and epochs of the segments
that end at or after the recovery point.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from struct import Struct

from ..log.batch_inspection import PIECE_BYTES, Damage, Progress, inspect_batches
from ..log.checkpoints import (
    CorruptCheckpointError,
    decode_leader_epochs,
    decode_partition_metadata,
    encode_partition_metadata,
)
from ..log.files import FileSystem, join
from ..log.leader_epochs import LeaderEpochs
from ..log.names import (
    CLEANED,
    DELETED,
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
    is_partition_file,
    offset_file_name,
    parse_offset_file_name,
)
from ..log.producer_state import CorruptSnapshotError, ProducerState
from ..log.segment import MAX_RELATIVE_OFFSET
from ..log.transaction_index import AbortedTransaction
from ..protocol.compression import DEFAULT_MAX_SIZE, CodecUnavailableError, CompressionError
from ..protocol.records import (
    LOG_APPEND_TIME,
    NO_LEADER_EPOCH,
    InvalidRecordsError,
    RecordBatch,
    iter_records,
)
from ..protocol.uuid import uuid_to_str
from .finding import Finding, Kind, Remedy, Severity
from .indexes import OffsetIndexCheck, TimeIndexCheck

_ABORTED_ENTRY = Struct(">hqqqq")
_MAX_FINDINGS_PER_KIND = 20
_LONG_GAP = 1 << 20

ERROR, WARNING, NOTE = Severity.ERROR, Severity.WARNING, Severity.NOTE


@dataclass(frozen=True, slots=True)
class Known:
    """Facts about a partition from outside of its directory; None if unknown."""

    clean: bool | None = None
    """The log directory was left by a clean shutdown."""
    compacted: bool | None = None
    recovery_point: int | None = None
    log_start_offset: int | None = None
    high_watermark: int | None = None
    topic_id: bytes | None = None
    leader_epoch: int | None = None
    """The latest leader epoch of the partition: no batch may have a later one."""


@dataclass(slots=True)
class Totals:
    """The amount of data that was checked."""

    partitions: int = 0
    segments: int = 0
    batches: int = 0
    records: int = 0
    """Decoded records; 0 unless the check was deep."""
    bytes: int = 0


class PartitionInspection:
    """One check of one directory; `run` once. Afterwards the public fields have the results."""

    def __init__(
        self,
        file_system: FileSystem,
        directory: str,
        name: str,
        known: Known,
        *,
        deep: bool,
        totals: Totals,
        progress: Progress,
        is_own_file: Callable[[str], bool] = lambda _name: False,
    ) -> None:
        """`name` is `<topic>-<partition>`. `is_own_file` returns whether another file belongs to the directory."""
        self._files = file_system
        self._directory = directory
        self._name = name
        self._known = known
        self._deep = deep
        self._totals = totals
        self._progress = progress
        self._is_own_file = is_own_file
        self._found: list[Finding] = []
        self._counts: Counter[tuple[str, Kind]] = Counter()
        self._producers = ProducerState()
        self._aborted: list[AbortedTransaction] = []
        self._producers_known = True
        """The producer state is complete: the log was read from its beginning, or from a snapshot."""
        self.whole = True
        """No batch was missing or damaged so far."""
        self.damaged = False
        """A batch was damaged, or out of order."""
        self._next_offset: int | None = None
        self._epoch = NO_LEADER_EPOCH
        self._epochs_seen = LeaderEpochs()
        self.first_offset = 0
        self.log_end_offset = 0

    def run(self) -> list[Finding]:
        """All findings, in the order of the files. An `OSError` is a finding too."""
        try:
            self._run()
        except OSError as error:
            self._add(ERROR, Kind.UNREADABLE, error.filename or "", f"cannot be read: {error.strerror or error}")
        self._totals.partitions += 1
        for (path, kind), count in self._counts.items():
            if count > _MAX_FINDINGS_PER_KIND:
                text = f"{count - _MAX_FINDINGS_PER_KIND} more of this kind"
                self._found.append(Finding(ERROR, kind, path, text, self._name))
        return self._found

    def _add(
        self,
        severity: Severity,
        kind: Kind,
        name: str,
        text: str,
        *,
        position: int | None = None,
        offset: int | None = None,
        remedy: Remedy | None = None,
    ) -> None:
        path = name if name.startswith(self._directory) else join(self._directory, name)
        self._counts[path, kind] += 1
        if self._counts[path, kind] <= _MAX_FINDINGS_PER_KIND:
            self._found.append(Finding(severity, kind, path, text, self._name, position, offset, remedy))

    # The directory

    def _run(self) -> None:
        names, directories = self._files.list_directory(self._directory)
        segments: dict[int, set[str]] = {}
        snapshots: list[int] = []
        for name in sorted(names):
            parsed = parse_offset_file_name(name)
            if is_leftover(name):
                self._add(
                    NOTE, Kind.LEFTOVER, name, _leftover(name), remedy=Remedy.REMOVE if _is_removable(name) else None
                )
            elif parsed is not None and parsed[1] in SEGMENT_SUFFIXES:
                segments.setdefault(parsed[0], set()).add(parsed[1])
            elif parsed is not None and parsed[1] == PRODUCER_SNAPSHOT:
                snapshots.append(parsed[0])
            elif parsed is not None and is_partition_file(name):
                self._add(NOTE, Kind.LEFTOVER, name, "removed by a repair; it is not used")
            elif not is_partition_file(name) and not self._is_own_file(name):
                self._add(
                    NOTE, Kind.UNKNOWN, name, "is not a file of a partition; it prevents the removal of the directory"
                )
        for name in directories:
            text = "a directory that is not used; it prevents the removal of the partition's directory"
            self._add(NOTE, Kind.UNKNOWN, name, text)
        for base_offset in sorted(segments):
            if LOG not in segments[base_offset]:
                for suffix in sorted(segments.pop(base_offset)):
                    name = offset_file_name(base_offset, suffix)
                    self._add(WARNING, Kind.LEFTOVER, name, "belongs to no segment", remedy=Remedy.REMOVE)
        self._inspect_topic_id(names)
        self._read_leader_epochs(names)
        self._snapshots = snapshots
        self._bases = sorted(segments)
        self._begin()
        for number, base_offset in enumerate(self._bases):
            self._inspect_segment(number, base_offset, segments[base_offset])
        self._finish()

    def _inspect_topic_id(self, names: list[str]) -> None:
        expected = self._known.topic_id
        remedy = Remedy.TOPIC_ID if expected is not None else None
        if PARTITION_METADATA not in names:
            if expected is not None:
                self._add(
                    WARNING, Kind.TOPIC, PARTITION_METADATA, "is missing, so the topic id is unknown", remedy=remedy
                )
            return
        path = join(self._directory, PARTITION_METADATA)
        data = self._files.read_file(path)
        try:
            topic_id = decode_partition_metadata(data, path)
        except CorruptCheckpointError:
            self._add(ERROR, Kind.TOPIC, PARTITION_METADATA, "has no topic id", remedy=remedy)
            return
        if expected is not None and topic_id != expected:
            self._add(
                ERROR,
                Kind.TOPIC,
                PARTITION_METADATA,
                f"has topic id {uuid_to_str(topic_id)}, the metadata log {uuid_to_str(expected)}: "
                f"startup sets the directory aside as a stray, of an older topic of this name or of another cluster",
            )
        elif data.rstrip(b"\n") != encode_partition_metadata(topic_id):
            self._add(WARNING, Kind.TOPIC, PARTITION_METADATA, "is not in Kafka's format", remedy=remedy)

    # Files besides the segments

    def _read_leader_epochs(self, names: list[str]) -> None:
        self._epochs: list[tuple[int, int]] | None = None
        if LEADER_EPOCH_CHECKPOINT not in names:
            return
        path = join(self._directory, LEADER_EPOCH_CHECKPOINT)
        data = self._files.read_file(path)
        try:
            entries = decode_leader_epochs(data, path) if data else []
        except CorruptCheckpointError as error:
            self._epochs_wrong(f"cannot be read: {error.args[0].removeprefix(path).strip()}")
            return
        parsed = LeaderEpochs(entries)
        if parsed.entries != entries or (data and parsed.encode() != data):
            self._epochs_wrong("its epochs and offsets do not increase, or it is not in Kafka's format")
            return
        self._epochs = entries

    def _epochs_wrong(self, text: str) -> None:
        self._add(WARNING, Kind.EPOCH, LEADER_EPOCH_CHECKPOINT, text, remedy=Remedy.LEADER_EPOCHS)

    def _begin(self) -> None:
        """Find the first segment that startup recovers, and load the producers before the first segment."""
        known = self._known
        bases = self._bases
        self._first_unsettled = len(bases)
        if known.clean is None:
            self._first_unsettled = max(0, len(bases) - 1)
        elif not known.clean:
            point = known.recovery_point or 0
            self._first_unsettled = next(
                (number for number in range(len(bases)) if number + 1 == len(bases) or bases[number + 1] >= point), 0
            )
        self.first_offset = self._bases[0] if self._bases else 0
        self._epoch_number = -1
        self._snapshots_left = list(self._snapshots)
        if self.first_offset and known.compacted is False:
            self._producers_known = False
            if self.first_offset in self._snapshots_left:
                try:
                    self._producers.load_snapshot(self._files.read_file(self._snapshot_path(self.first_offset)))
                    self._producers_known = True
                except CorruptSnapshotError:
                    self._producers_known = False

    def _snapshot_path(self, offset: int) -> str:
        return join(self._directory, offset_file_name(offset, PRODUCER_SNAPSHOT))

    # A segment

    def _inspect_segment(self, number: int, base_offset: int, suffixes: set[str]) -> None:
        name = offset_file_name(base_offset, LOG)
        path = join(self._directory, name)
        self._totals.segments += 1
        settled = number < self._first_unsettled
        is_last = number + 1 == len(self._bases)
        if self._next_offset is None:
            self._next_offset = base_offset
        elif base_offset != self._next_offset:
            self._gap(name, 0, self._next_offset, base_offset, "no segment starts where the previous one ends")
        self._next_offset = max(base_offset, self._next_offset)
        offsets = times = None
        if settled:
            if OFFSET_INDEX in suffixes:
                offsets = OffsetIndexCheck(self._read(base_offset, OFFSET_INDEX), base_offset)
            if TIME_INDEX in suffixes:
                times = TimeIndexCheck(self._read(base_offset, TIME_INDEX), base_offset)
        self._aborted = []
        largest = -1
        end = base_offset
        last_end = 0
        damaged = False
        interesting_position = offsets.next_position if offsets is not None else 1 << 63
        interesting_offset = times.next_offset if times is not None else 1 << 63
        longest_gap = 0
        indexed_until = 0
        file = self._files.open(path, read_only=True)
        try:
            size = file.size()
            self._totals.bytes += size
            for item in inspect_batches(file, size, base_offset, self._progress):
                if isinstance(item, Damage):
                    self._damage(name, item, size, is_last=is_last, settled=settled)
                    damaged = True
                    continue
                position, batch = item
                if batch.last_offset - base_offset > MAX_RELATIVE_OFFSET:
                    self._bad(name, position, batch, f"is too far from the segment's first offset {base_offset}")
                self._inspect_batch(name, position, batch, settled)
                if position >= interesting_position and offsets is not None:
                    offsets.add_batch(position, batch)
                    interesting_position = offsets.next_position
                    longest_gap = max(longest_gap, position - indexed_until)
                    indexed_until = position
                if batch.last_offset >= interesting_offset and times is not None:
                    times.add_batch(batch, largest)
                    interesting_offset = times.next_offset
                if batch.max_timestamp > largest:
                    largest = batch.max_timestamp
                end = max(end, batch.next_offset)
                last_end = position + batch.size
        finally:
            file.close()
        if damaged or not settled:
            return
        if last_end and (offsets is None or times is None):
            missing = " and ".join(suffix for suffix in (OFFSET_INDEX, TIME_INDEX) if suffix not in suffixes)
            self._add(WARNING, Kind.OFFSET_INDEX, name, f"has no {missing}", remedy=Remedy.INDEXES)
        if offsets is not None:
            offsets.finish(last_end)
            self._index_result(base_offset, OFFSET_INDEX, Kind.OFFSET_INDEX, offsets.problem)
            longest_gap = max(longest_gap, last_end - indexed_until)
            if offsets.problem is None and longest_gap > _LONG_GAP:
                text = f"has no entry for {longest_gap} bytes of the log, which slows down lookups"
                self._add(NOTE, Kind.OFFSET_INDEX, offset_file_name(base_offset, OFFSET_INDEX), text)
        if times is not None:
            times.finish(largest)
            self._index_result(base_offset, TIME_INDEX, Kind.TIME_INDEX, times.problem)
            if times.inside_batch and times.problem is None:
                text = "has offsets inside batches, as written by Kafka before 3.8; this is harmless"
                self._add(NOTE, Kind.TIME_INDEX, offset_file_name(base_offset, TIME_INDEX), text)
        self._inspect_aborted(base_offset, TRANSACTION_INDEX in suffixes)

    def _read(self, base_offset: int, suffix: str) -> bytes:
        return self._files.read_file(join(self._directory, offset_file_name(base_offset, suffix)))

    def _index_result(self, base_offset: int, suffix: str, kind: Kind, problem: str | None) -> None:
        if problem is not None:
            name = offset_file_name(base_offset, suffix)
            self._add(WARNING, kind, name, f"does not match the segment: {problem}", remedy=Remedy.INDEXES)

    def _damage(self, name: str, damage: Damage, size: int, *, is_last: bool, settled: bool) -> None:
        length = damage.end - damage.position
        at = self._next_offset
        self.whole = False
        self.damaged = True
        self._next_offset = None
        if is_last and damage.is_tail and not settled and damage.is_empty:
            text = f"{length} bytes at the end are zeros: preallocated, or never written; startup truncates them"
            self._add(NOTE, Kind.TAIL, name, text, position=damage.position, offset=at)
        elif is_last and damage.is_tail and not settled:
            text = (
                f"{damage.reason}: the last {length} bytes are not a complete batch. A crash can cause this in "
                f"unflushed data; startup truncates it"
            )
            self._add(WARNING, Kind.TAIL, name, text, position=damage.position, offset=at, remedy=Remedy.TRUNCATE)
        else:
            text = f"{damage.reason}: {length} bytes are damaged, and " + (
                "no valid batch follows in the segment"
                if damage.is_tail
                else f"the next valid batch is at position {damage.end}"
            )
            if not settled and self._known.clean is False:
                text += ". Startup would truncate the log here"
            self._add(ERROR, Kind.BATCH, name, text, position=damage.position, offset=at, remedy=Remedy.TRUNCATE)

    def _bad(self, name: str, position: int, batch: RecordBatch, text: str) -> None:
        """A batch at an incorrect position."""
        self.whole = False
        self.damaged = True
        words = f"offset {batch.base_offset} {text}"
        self._add(ERROR, Kind.BATCH, name, words, position=position, offset=batch.base_offset, remedy=Remedy.TRUNCATE)

    def _gap(self, name: str, position: int, expected: int, found: int, text: str) -> None:
        if found < expected:
            self.whole = False
            self.damaged = True
            words = f"starts at offset {found}, but the previous one ends at {expected}: they overlap"
            self._add(ERROR, Kind.GAP, name, words, position=position, offset=found, remedy=Remedy.TRUNCATE)
            return
        if self._known.compacted:
            return
        self.whole = False
        words = f"the offsets {expected} to {found - 1} are missing: {text}"
        if self._known.compacted is None:
            words += ". This is normal for a compacted topic; whether the topic is compacted is unknown"
            self._add(NOTE, Kind.GAP, name, words, position=position, offset=expected)
        else:
            words += ". Those records are lost, unless the topic was compacted once"
            self._add(ERROR, Kind.GAP, name, words, position=position, offset=expected)

    def _inspect_batch(self, name: str, position: int, batch: RecordBatch, settled: bool) -> None:
        """Check offsets, counts, epochs, producers, and with `deep` also the records."""
        self._totals.batches += 1
        expected = self._next_offset
        base_offset = batch.base_offset
        if expected is not None and base_offset != expected:
            if base_offset < expected:
                self._bad(name, position, batch, f"comes after offset {expected - 1}")
            else:
                self._gap(name, position, expected, base_offset, "the previous batch ends with them")
        self._next_offset = max(batch.next_offset, expected or 0)
        count = batch.record_count
        if not 0 <= count <= batch.last_offset_delta + 1 or (
            count != batch.last_offset_delta + 1 and self._known.compacted is False
        ):
            text = f"has {count} records for {batch.last_offset_delta + 1} offsets"
            self._add(ERROR, Kind.RECORDS, name, text, position=position, offset=base_offset)
        epoch = batch.partition_leader_epoch
        if epoch != self._epoch or self._epoch_number + 1 < len(self._epochs or ()):
            self._inspect_epoch(name, position, batch, settled)
        if self._snapshots_left and self._snapshots_left[0] <= base_offset:
            self._inspect_snapshots(base_offset, settled)
        if batch.producer_id >= 0:
            completed = self._producers.replay(batch, batch if batch.is_control else None)
            if completed is not None and completed.aborted:
                stable = self._producers.last_stable_offset_after(completed)
                self._aborted.append(
                    AbortedTransaction(completed.producer_id, completed.first_offset, completed.last_offset, stable)
                )
        if self._deep:
            self._inspect_records(name, position, batch)

    def _inspect_epoch(self, name: str, position: int, batch: RecordBatch, settled: bool) -> None:
        """Compare the epoch of a batch with earlier batches, the latest epoch, and the checkpoint."""
        epoch, offset = batch.partition_leader_epoch, batch.base_offset
        entries = self._epochs if settled else None
        recorded = start = None
        moved = False
        if entries is not None:
            while self._epoch_number + 1 < len(entries) and entries[self._epoch_number + 1][1] <= offset:
                self._epoch_number += 1
                moved = True
            if self._epoch_number >= 0:
                recorded, start = entries[self._epoch_number]
        latest = self._known.leader_epoch
        if latest is None and entries:
            latest = entries[-1][0]
        if epoch < self._epoch or epoch < NO_LEADER_EPOCH or (latest is not None and epoch > latest):
            text = f"has leader epoch {epoch}, the previous one {self._epoch}"
            if latest is not None:
                text += f", the latest is {latest}"
            text += ". The CRC does not cover this field; the records are intact"
            remedy = None if recorded is None or recorded < self._epoch else Remedy.BATCH_EPOCH
            self._add(ERROR, Kind.EPOCH, name, text, position=position, offset=offset, remedy=remedy)
            return
        self._epoch = epoch
        self._epochs_seen.assign(epoch, offset)
        if entries is None or (recorded is None and offset < (self._known.log_start_offset or 0)):
            return  # the epochs of deleted records are not needed
        if recorded != epoch and not (recorded is None and epoch == NO_LEADER_EPOCH):
            self._epochs_wrong(
                f"says {'nothing' if recorded is None else recorded} for offset {offset}, where a batch has {epoch}"
            )
            self._epochs = None
        elif moved and self._epoch_number and start != offset and self._known.compacted is False:
            self._epochs_wrong(f"says that epoch {recorded} begins at offset {start}, where no batch does")

    def _inspect_records(self, name: str, position: int, batch: RecordBatch) -> None:
        if len(batch.data) < batch.size or batch.size > DEFAULT_MAX_SIZE:
            text = f"a batch of {batch.size} bytes is too large to check its records (limit {PIECE_BYTES})"
            self._add(NOTE, Kind.RECORDS, name, text, position=position, offset=batch.base_offset)
            return
        previous = batch.base_offset - 1
        largest = -1
        problem = None
        try:
            for record in iter_records(batch):
                if record.offset <= previous or record.offset > batch.last_offset:
                    problem = f"offset {record.offset} follows {previous} in a batch that ends with {batch.last_offset}"
                previous = record.offset
                largest = max(largest, record.timestamp)
        except CodecUnavailableError as error:
            self._add(NOTE, Kind.RECORDS, name, str(error), position=position, offset=batch.base_offset)
            return
        except (InvalidRecordsError, CompressionError) as error:
            problem = str(error)
        self._totals.records += max(0, batch.record_count)
        if problem is not None:
            text = f"the CRC matches, but the records cannot be decoded: {problem}"
            self._add(ERROR, Kind.RECORDS, name, text, position=position, offset=batch.base_offset)
        elif batch.record_count and batch.timestamp_type != LOG_APPEND_TIME and largest != batch.max_timestamp:
            text = f"its header has max timestamp {batch.max_timestamp}, but the largest timestamp is {largest}"
            self._add(NOTE, Kind.RECORDS, name, text, position=position, offset=batch.base_offset)

    # Data derived from the batches

    def _inspect_snapshots(self, until: int, settled: bool) -> None:
        """The snapshots up to `until`, which no batch has reached yet."""
        while self._snapshots_left and self._snapshots_left[0] <= until:
            offset = self._snapshots_left.pop(0)
            problem = self._snapshot_problem(offset)
            if problem is not None and (settled or self._known.clean is not False):
                name = offset_file_name(offset, PRODUCER_SNAPSHOT)
                self._add(WARNING, Kind.SNAPSHOT, name, problem, offset=offset, remedy=Remedy.PRODUCERS)

    def _snapshot_problem(self, offset: int) -> str | None:
        found = ProducerState()
        try:
            found.load_snapshot(self._files.read_file(self._snapshot_path(offset)))
        except CorruptSnapshotError as error:
            return str(error)
        for entry in found:
            if entry.last_offset >= offset or entry.transaction_first_offset >= offset:
                return f"producer {entry.producer_id} has written offset {entry.last_offset}, which is not before it"
        # It is unknown which batches of a producer were removed by compaction.
        if not self.whole or self._known.compacted is not False:
            return None
        for entry in found:
            known = self._producers.producers.get(entry.producer_id)
            if known is None:
                if self._producers_known:
                    return f"has producer {entry.producer_id}, which has no batch in the log"
                continue
            stored = (entry.epoch, entry.last_sequence, entry.last_offset)
            true = (known.epoch, known.last_sequence, known.last_offset)
            if stored != true and (self._producers_known or known.batches):
                return (
                    f"producer {entry.producer_id} is at epoch, sequence and offset {true} in the log, "
                    f"and at {stored} in the snapshot"
                )
            start = max(self.first_offset, self._known.log_start_offset or 0)
            first, stored_first = known.transaction_first_offset, entry.transaction_first_offset
            if (
                first != stored_first
                and max(first, stored_first) >= start
                and (self._producers_known or stored_first >= start)
            ):
                return (
                    f"the open transaction of producer {entry.producer_id} begins at {first} in the log, "
                    f"and at {stored_first} in the snapshot (-1: none)"
                )
        for known in self._producers:
            if known.transaction_first_offset >= 0 and known.producer_id not in found.producers:
                return f"does not contain the open transaction of producer {known.producer_id}"
        return None

    def _inspect_aborted(self, base_offset: int, there: bool) -> None:
        """`.txnindex`; absent is the same as empty."""
        name = offset_file_name(base_offset, TRANSACTION_INDEX)
        data = self._read(base_offset, TRANSACTION_INDEX) if there else b""
        problem = None
        entries: list[AbortedTransaction] = []
        if len(data) % _ABORTED_ENTRY.size:
            problem = f"its size of {len(data)} bytes is not a multiple of {_ABORTED_ENTRY.size}"
        for version, *fields in _ABORTED_ENTRY.iter_unpack(
            data[: len(data) // _ABORTED_ENTRY.size * _ABORTED_ENTRY.size]
        ):
            entry = AbortedTransaction(*fields)
            if version or not (
                entry.first_offset <= entry.last_offset and (not entries or entries[-1].last_offset < entry.last_offset)
            ):
                problem = problem or f"entry {len(entries)} is invalid"
            entries.append(entry)
        if problem is None and self.whole and self._known.compacted is False:
            if not self._producers_known:
                entries = [entry for entry in entries if entry.first_offset >= self.first_offset]
            if entries != self._aborted:
                problem = f"has {len(entries)} aborted transactions, the log {len(self._aborted)}"
                if len(entries) == len(self._aborted):
                    number = next(n for n, entry in enumerate(entries) if entry != self._aborted[n])
                    problem = f"entry {number} is {tuple(entries[number])}, in the log {tuple(self._aborted[number])}"
        elif problem is None and self._known.compacted and self._bases:
            later = [base for base in self._bases if base > base_offset]
            end = later[0] if later else 1 << 63
            if any(not base_offset <= entry.last_offset < end for entry in entries):
                problem = "has transactions that end in another segment"
        if problem is not None:
            text = f"does not fit the segment: {problem}. It affects read_committed consumers"
            self._add(WARNING, Kind.TRANSACTION_INDEX, name, text, remedy=Remedy.PRODUCERS)

    def _finish(self) -> None:
        end = self._next_offset if self._next_offset is not None else max(self._bases, default=0)
        known = self._known
        if not self._bases:
            end = known.log_start_offset or 0
        self.log_end_offset = end
        # After an unclean shutdown, startup removes the snapshots of the segments that it recovers.
        self._inspect_snapshots(end, self._first_unsettled == len(self._bases))
        if self.whole:
            for offset in self._snapshots_left:
                name = offset_file_name(offset, PRODUCER_SNAPSHOT)
                text = f"has offset {offset}, but the log ends at {end}"
                self._add(WARNING, Kind.SNAPSHOT, name, text, offset=offset, remedy=Remedy.PRODUCERS)
            if known.clean and len(self._producers) and not self._snapshots:
                text = "there is no producer snapshot: startup would lose the producer state and accept duplicates"
                self._add(WARNING, Kind.SNAPSHOT, "", text, remedy=Remedy.PRODUCERS)
        self._finish_epochs(end)
        if self.whole:
            self._finish_checkpoints(end)

    def _finish_epochs(self, end: int) -> None:
        seen = self._epochs_seen.entries
        if self._epochs is None:
            path = join(self._directory, LEADER_EPOCH_CHECKPOINT)
            if seen and self._first_unsettled and not self._files.exists(path):
                self._epochs_wrong("is missing")
            return
        if self._epochs and self.whole and self._known.clean:
            if self._epochs[-1][1] > end:
                self._epochs_wrong(
                    f"epoch {self._epochs[-1][0]} starts at offset {self._epochs[-1][1]}, after the end {end}"
                )
            first, start = self._epochs[0][1], max(self.first_offset, self._known.log_start_offset or 0)
            if first < start:
                text = f"starts at offset {first}, but the log at {start}; check whether segments were removed manually"
                self._add(NOTE, Kind.EPOCH, LEADER_EPOCH_CHECKPOINT, text)
            elif first > start and seen and seen[0][1] == self.first_offset:
                text = (
                    f"the log starts at offset {start}, its leader epochs at {first}. If that was the log start "
                    f"offset, deleted records reappear"
                )
                self._add(WARNING, Kind.CHECKPOINT, self._directory, text, offset=first, remedy=Remedy.CHECKPOINT)

    def _finish_checkpoints(self, end: int) -> None:
        known = self._known
        point, start, mark = known.recovery_point, known.log_start_offset, known.high_watermark
        directory = self._directory
        if start is not None and start > end:
            text = (
                f"the checkpointed log start offset is {start}, but the log ends at {end}: startup deletes all records"
            )
            self._add(ERROR, Kind.CHECKPOINT, directory, text, offset=start, remedy=Remedy.CHECKPOINT)
            return
        end = max(end, start or 0)
        if point is not None and point > end:
            text = f"the log ends at {end}, but was flushed up to {point}: the records in between are lost"
            severity = WARNING if known.clean else ERROR
            self._add(severity, Kind.CHECKPOINT, directory, text, offset=point, remedy=Remedy.CHECKPOINT)
        elif known.clean and point is not None and point != end:
            text = f"the log ends at {end} after a clean shutdown, but its recovery point is {point}"
            self._add(WARNING, Kind.CHECKPOINT, directory, text, offset=point, remedy=Remedy.CHECKPOINT)
        if mark is not None and mark > end:
            text = f"the log ends at {end}, but its high watermark was {mark}: the records in between are lost"
            severity = WARNING if known.clean else ERROR
            self._add(severity, Kind.CHECKPOINT, directory, text, offset=mark, remedy=Remedy.CHECKPOINT)
        elif mark is not None and known.clean and mark != end:
            text = f"the high watermark is {mark}, the log ends at {end}; a leader without followers advances it"
            self._add(NOTE, Kind.CHECKPOINT, directory, text, offset=mark)


def _leftover(name: str) -> str:
    if name.endswith(DELETED):
        return "a deleted file; startup removes it"
    if name.endswith(CLEANED):
        return "a file of an unfinished compaction; startup removes it"
    if name.endswith(SWAP):
        return "a file of a finished compaction that was not swapped in; startup does that"
    return "an incomplete temporary file; startup removes it"


def _is_removable(name: str) -> bool:
    return not name.endswith(SWAP)


__all__ = ["Known", "PartitionInspection", "Totals"]

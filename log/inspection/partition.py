"""One partition's directory: every batch, and everything that is made from the batches, compared with them.

One reading of each segment feeds all checks: batches (length, CRC, offsets, epochs, counts), both indexes, the
producers and with them the snapshots and the index of aborted transactions, the leader epochs. Memory is bounded by the
directory's largest index and by its producers.

What a start makes anew is not compared: after an unclean stop, the indexes, snapshots and epochs of the segments that
end at or past the recovery point.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from struct import Struct

from ...protocol.compression import DEFAULT_MAX_SIZE, CodecUnavailableError, CompressionError
from ...protocol.records import (
    LOG_APPEND_TIME,
    NO_LEADER_EPOCH,
    InvalidRecordsError,
    RecordBatch,
    iter_records,
)
from ...protocol.uuid import uuid_to_str
from ..checkpoints import (
    CorruptCheckpointError,
    decode_leader_epochs,
    decode_partition_metadata,
    encode_partition_metadata,
)
from ..files import FileSystem, join
from ..leader_epochs import LeaderEpochs
from ..names import (
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
from ..producer_state import CorruptSnapshotError, ProducerState
from ..segment import MAX_RELATIVE_OFFSET
from ..transaction_index import AbortedTransaction
from .batches import PIECE_BYTES, Damage, Progress, inspect_batches
from .finding import Finding, Kind, Remedy, Severity
from .indexes import OffsetIndexCheck, TimeIndexCheck

_ABORTED_ENTRY = Struct(">hqqqq")
_MAX_FINDINGS_OF_A_KIND = 20
_LONG_WAY = 1 << 20

ERROR, WARNING, NOTE = Severity.ERROR, Severity.WARNING, Severity.NOTE


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a partition from outside of its directory. None: it is not known."""

    clean: bool | None = None
    """The log directory was left by a clean stop."""
    compacted: bool | None = None
    recovery_point: int | None = None
    log_start_offset: int | None = None
    high_watermark: int | None = None
    topic_id: bytes | None = None
    leader_epoch: int | None = None
    """The latest of the partition's leaders: no batch has a later one."""


@dataclass(slots=True)
class Totals:
    """What was looked at."""

    partitions: int = 0
    segments: int = 0
    batches: int = 0
    records: int = 0
    """Decoded; none unless the inspection was deep."""
    bytes: int = 0


class PartitionInspection:
    """One inspection of one directory; `run` once. The fields after it are what was learned."""

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
        """`name` is `<topic>-<partition>`. `is_own_file` says of further files that they belong here."""
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
        """All producers are those of the batches: the log was read from its beginning, or from a snapshot."""
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
        """Everything that was found, in the order of the files. An `OSError` is a finding too."""
        try:
            self._run()
        except OSError as error:
            self._add(ERROR, Kind.UNREADABLE, error.filename or "", f"cannot be read: {error.strerror or error}")
        self._totals.partitions += 1
        for (path, kind), count in self._counts.items():
            if count > _MAX_FINDINGS_OF_A_KIND:
                text = f"{count - _MAX_FINDINGS_OF_A_KIND} more of this kind"
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
        if self._counts[path, kind] <= _MAX_FINDINGS_OF_A_KIND:
            self._found.append(Finding(severity, kind, path, text, self._name, position, offset, remedy))

    # The directory

    def _run(self) -> None:
        names, directories = self._files.list_directory(self._directory)
        segments: dict[int, set[str]] = {}
        snapshots: list[int] = []
        for name in sorted(names):
            parsed = parse_offset_file_name(name)
            if is_leftover(name):
                self._add(NOTE, Kind.LEFTOVER, name, _leftover(name), remedy=Remedy.REMOVE if _is_waste(name) else None)
            elif parsed is not None and parsed[1] in SEGMENT_SUFFIXES:
                segments.setdefault(parsed[0], set()).add(parsed[1])
            elif parsed is not None and parsed[1] == PRODUCER_SNAPSHOT:
                snapshots.append(parsed[0])
            elif parsed is not None and is_partition_file(name):
                self._add(NOTE, Kind.LEFTOVER, name, "what a repair has cut off; nothing reads it")
            elif not is_partition_file(name) and not self._is_own_file(name):
                self._add(NOTE, Kind.UNKNOWN, name, "no file of a partition; with it, the directory is never removed")
        for name in directories:
            text = "a directory, which nothing reads; with it, the directory around it is never removed"
            self._add(NOTE, Kind.UNKNOWN, name, text)
        for base_offset in sorted(segments):
            if LOG not in segments[base_offset]:
                for suffix in sorted(segments.pop(base_offset)):
                    name = offset_file_name(base_offset, suffix)
                    self._add(WARNING, Kind.LEFTOVER, name, "there is no segment to it", remedy=Remedy.REMOVE)
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
                self._add(WARNING, Kind.TOPIC, PARTITION_METADATA, "is missing: the topic id is unknown", remedy=remedy)
            return
        path = join(self._directory, PARTITION_METADATA)
        data = self._files.read_file(path)
        try:
            topic_id = decode_partition_metadata(data, path)
        except CorruptCheckpointError:
            self._add(ERROR, Kind.TOPIC, PARTITION_METADATA, "names no topic id", remedy=remedy)
            return
        if expected is not None and topic_id != expected:
            self._add(
                ERROR,
                Kind.TOPIC,
                PARTITION_METADATA,
                f"names the topic id {uuid_to_str(topic_id)}, the metadata log {uuid_to_str(expected)}: "
                f"a start sets the directory aside as a stray, of an older topic of this name or of another cluster",
            )
        elif data.rstrip(b"\n") != encode_partition_metadata(topic_id):
            self._add(WARNING, Kind.TOPIC, PARTITION_METADATA, "is not written as Kafka writes it", remedy=remedy)

    # What is there beside the segments

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
            self._epochs_wrong("its epochs and offsets do not grow, or it is not written as Kafka writes it")
            return
        self._epochs = entries

    def _epochs_wrong(self, text: str) -> None:
        self._add(WARNING, Kind.EPOCH, LEADER_EPOCH_CHECKPOINT, text, remedy=Remedy.LEADER_EPOCHS)

    def _begin(self) -> None:
        """Where the segments begin that a start reads, and the producers before the first one."""
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
            self._gap(name, 0, self._next_offset, base_offset, "no segment begins where the one before ends")
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
        longest_way = 0
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
                    offsets.see(position, batch)
                    interesting_position = offsets.next_position
                    longest_way = max(longest_way, position - indexed_until)
                    indexed_until = position
                if batch.last_offset >= interesting_offset and times is not None:
                    times.see(batch, largest)
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
            longest_way = max(longest_way, last_end - indexed_until)
            if offsets.problem is None and longest_way > _LONG_WAY:
                text = f"has no entry for {longest_way} bytes of the log: to find an offset there, all of them are read"
                self._add(NOTE, Kind.OFFSET_INDEX, offset_file_name(base_offset, OFFSET_INDEX), text)
        if times is not None:
            times.finish(largest)
            self._index_result(base_offset, TIME_INDEX, Kind.TIME_INDEX, times.problem)
            if times.inside_batch and times.problem is None:
                text = "names offsets inside of batches, as Kafka before 3.8 did; that does no harm"
                self._add(NOTE, Kind.TIME_INDEX, offset_file_name(base_offset, TIME_INDEX), text)
        self._inspect_aborted(base_offset, TRANSACTION_INDEX in suffixes)

    def _read(self, base_offset: int, suffix: str) -> bytes:
        return self._files.read_file(join(self._directory, offset_file_name(base_offset, suffix)))

    def _index_result(self, base_offset: int, suffix: str, kind: Kind, problem: str | None) -> None:
        if problem is not None:
            name = offset_file_name(base_offset, suffix)
            self._add(WARNING, kind, name, f"does not fit the segment: {problem}", remedy=Remedy.INDEXES)

    def _damage(self, name: str, damage: Damage, size: int, *, is_last: bool, settled: bool) -> None:
        length = damage.end - damage.position
        at = self._next_offset
        self.whole = False
        self.damaged = True
        self._next_offset = None
        if is_last and damage.is_tail and not settled and damage.is_empty:
            text = f"{length} bytes at the end are zeros: room made in advance, or never written; a start cuts them off"
            self._add(NOTE, Kind.TAIL, name, text, position=damage.position, offset=at)
        elif is_last and damage.is_tail and not settled:
            text = (
                f"{damage.reason}: the last {length} bytes are no whole batch. A crash leaves that where nothing had "
                f"been flushed; a start cuts it off"
            )
            self._add(WARNING, Kind.TAIL, name, text, position=damage.position, offset=at, remedy=Remedy.TRUNCATE)
        else:
            text = f"{damage.reason}: {length} bytes are damaged, and " + (
                "nothing whole follows in the segment" if damage.is_tail else f"go on at position {damage.end}"
            )
            if not settled and self._known.clean is False:
                text += ". A start would cut the log here, with all that follows"
            self._add(ERROR, Kind.BATCH, name, text, position=damage.position, offset=at, remedy=Remedy.TRUNCATE)

    def _bad(self, name: str, position: int, batch: RecordBatch, text: str) -> None:
        """A batch whose place is wrong."""
        self.whole = False
        self.damaged = True
        words = f"offset {batch.base_offset} {text}"
        self._add(ERROR, Kind.BATCH, name, words, position=position, offset=batch.base_offset, remedy=Remedy.TRUNCATE)

    def _gap(self, name: str, position: int, expected: int, found: int, text: str) -> None:
        if found < expected:
            self.whole = False
            self.damaged = True
            words = f"begins at offset {found}, and the one before ends at {expected}: they overlap"
            self._add(ERROR, Kind.GAP, name, words, position=position, offset=found, remedy=Remedy.TRUNCATE)
            return
        if self._known.compacted:
            return
        self.whole = False
        words = f"the offsets {expected} to {found - 1} are missing: {text}"
        if self._known.compacted is None:
            words += ". On a compacted topic that is as it should be; whether this is one is not known"
            self._add(NOTE, Kind.GAP, name, words, position=position, offset=expected)
        else:
            words += ". Those records are lost, unless the topic was compacted once"
            self._add(ERROR, Kind.GAP, name, words, position=position, offset=expected)

    def _inspect_batch(self, name: str, position: int, batch: RecordBatch, settled: bool) -> None:
        """Offsets, counts, epochs, producers, and records if the inspection is deep."""
        self._totals.batches += 1
        expected = self._next_offset
        base_offset = batch.base_offset
        if expected is not None and base_offset != expected:
            if base_offset < expected:
                self._bad(name, position, batch, f"comes after offset {expected - 1}")
            else:
                self._gap(name, position, expected, base_offset, "the batch before ends with them")
        self._next_offset = max(batch.next_offset, expected or 0)
        count = batch.record_count
        if not 0 <= count <= batch.last_offset_delta + 1 or (
            count != batch.last_offset_delta + 1 and self._known.compacted is False
        ):
            text = f"says it has {count} records for {batch.last_offset_delta + 1} offsets"
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
        """The epoch of a batch beside those before it, the latest one, and what the checkpoint says."""
        epoch, offset = batch.partition_leader_epoch, batch.base_offset
        entries = self._epochs if settled else None
        told = start = None
        moved = False
        if entries is not None:
            while self._epoch_number + 1 < len(entries) and entries[self._epoch_number + 1][1] <= offset:
                self._epoch_number += 1
                moved = True
            if self._epoch_number >= 0:
                told, start = entries[self._epoch_number]
        latest = self._known.leader_epoch
        if latest is None and entries:
            latest = entries[-1][0]
        if epoch < self._epoch or epoch < NO_LEADER_EPOCH or (latest is not None and epoch > latest):
            text = f"has the leader epoch {epoch}, the one before it {self._epoch}"
            if latest is not None:
                text += f", and the latest was {latest}"
            text += ". That field lies outside of the CRC; the records are whole"
            remedy = None if told is None or told < self._epoch else Remedy.BATCH_EPOCH
            self._add(ERROR, Kind.EPOCH, name, text, position=position, offset=offset, remedy=remedy)
            return
        self._epoch = epoch
        self._epochs_seen.assign(epoch, offset)
        if entries is None or (told is None and offset < (self._known.log_start_offset or 0)):
            return  # of what was deleted, nobody needs to know the epoch
        if told != epoch and not (told is None and epoch == NO_LEADER_EPOCH):
            self._epochs_wrong(
                f"says {'nothing' if told is None else told} for offset {offset}, where a batch has {epoch}"
            )
            self._epochs = None
        elif moved and self._epoch_number and start != offset and self._known.compacted is False:
            self._epochs_wrong(f"says that epoch {told} begins at offset {start}, where no batch does")

    def _inspect_records(self, name: str, position: int, batch: RecordBatch) -> None:
        if len(batch.data) < batch.size or batch.size > DEFAULT_MAX_SIZE:
            text = (
                f"a batch of {batch.size} bytes: too large to look at its records (only {PIECE_BYTES} are read at once)"
            )
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
            text = f"the CRC is right, but the records cannot be read: {problem}"
            self._add(ERROR, Kind.RECORDS, name, text, position=position, offset=batch.base_offset)
        elif batch.record_count and batch.timestamp_type != LOG_APPEND_TIME and largest != batch.max_timestamp:
            text = f"its header says that the largest timestamp is {batch.max_timestamp}, and it is {largest}"
            self._add(NOTE, Kind.RECORDS, name, text, position=position, offset=batch.base_offset)

    # What is made from the batches

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
        # What compaction has dropped of a producer that went on later, nobody can tell.
        if not self.whole or self._known.compacted is not False:
            return None
        for entry in found:
            known = self._producers.producers.get(entry.producer_id)
            if known is None:
                if self._producers_known:
                    return f"has producer {entry.producer_id}, of which the log has nothing"
                continue
            said = (entry.epoch, entry.last_sequence, entry.last_offset)
            true = (known.epoch, known.last_sequence, known.last_offset)
            if said != true and (self._producers_known or known.batches):
                return (
                    f"producer {entry.producer_id} is at epoch, sequence and offset {true} in the log, "
                    f"and at {said} in the snapshot"
                )
            start = max(self.first_offset, self._known.log_start_offset or 0)
            first, first_said = known.transaction_first_offset, entry.transaction_first_offset
            if (
                first != first_said
                and max(first, first_said) >= start
                and (self._producers_known or first_said >= start)
            ):
                return (
                    f"the open transaction of producer {entry.producer_id} begins at {first} in the log, "
                    f"and at {first_said} in the snapshot (-1: none)"
                )
        for known in self._producers:
            if known.transaction_first_offset >= 0 and known.producer_id not in found.producers:
                return f"lacks the open transaction of producer {known.producer_id}"
        return None

    def _inspect_aborted(self, base_offset: int, there: bool) -> None:
        """`.txnindex`; absent is the same as empty."""
        name = offset_file_name(base_offset, TRANSACTION_INDEX)
        data = self._read(base_offset, TRANSACTION_INDEX) if there else b""
        problem = None
        entries: list[AbortedTransaction] = []
        if len(data) % _ABORTED_ENTRY.size:
            problem = f"its size of {len(data)} bytes is no multiple of {_ABORTED_ENTRY.size}"
        for version, *fields in _ABORTED_ENTRY.iter_unpack(
            data[: len(data) // _ABORTED_ENTRY.size * _ABORTED_ENTRY.size]
        ):
            entry = AbortedTransaction(*fields)
            if version or not (
                entry.first_offset <= entry.last_offset and (not entries or entries[-1].last_offset < entry.last_offset)
            ):
                problem = problem or f"entry {len(entries)} makes no sense"
            entries.append(entry)
        if problem is None and self.whole and self._known.compacted is False:
            if not self._producers_known:
                entries = [entry for entry in entries if entry.first_offset >= self.first_offset]
            if entries != self._aborted:
                problem = f"it has {len(entries)} aborted transactions, and the log {len(self._aborted)}"
                if len(entries) == len(self._aborted):
                    number = next(n for n, entry in enumerate(entries) if entry != self._aborted[n])
                    problem = f"entry {number} is {tuple(entries[number])}, in the log {tuple(self._aborted[number])}"
        elif problem is None and self._known.compacted and self._bases:
            later = [base for base in self._bases if base > base_offset]
            end = later[0] if later else 1 << 63
            if any(not base_offset <= entry.last_offset < end for entry in entries):
                problem = "it has transactions that end in another segment"
        if problem is not None:
            text = f"does not fit the segment: {problem}. Consumers that read only what was committed go by it"
            self._add(WARNING, Kind.TRANSACTION_INDEX, name, text, remedy=Remedy.PRODUCERS)

    def _finish(self) -> None:
        end = self._next_offset if self._next_offset is not None else max(self._bases, default=0)
        known = self._known
        if not self._bases:
            end = known.log_start_offset or 0
        self.log_end_offset = end
        # After an unclean stop a start drops the snapshots of what it reads again.
        self._inspect_snapshots(end, self._first_unsettled == len(self._bases))
        if self.whole:
            for offset in self._snapshots_left:
                name = offset_file_name(offset, PRODUCER_SNAPSHOT)
                text = f"is of offset {offset}, and the log ends at {end}"
                self._add(WARNING, Kind.SNAPSHOT, name, text, offset=offset, remedy=Remedy.PRODUCERS)
            if known.clean and len(self._producers) and not self._snapshots:
                text = (
                    "there is no producer snapshot: a start would forget the producers, and take their retries for news"
                )
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
                    f"epoch {self._epochs[-1][0]} begins at offset {self._epochs[-1][1]}, after the end {end}"
                )
            first, start = self._epochs[0][1], max(self.first_offset, self._known.log_start_offset or 0)
            if first < start:
                text = f"begins at offset {first}, and the log at {start}: were segments removed by hand?"
                self._add(NOTE, Kind.EPOCH, LEADER_EPOCH_CHECKPOINT, text)
            elif first > start and seen and seen[0][1] == self.first_offset:
                text = (
                    f"the log begins at offset {start}, and its leader epochs at {first}. If that was its log start "
                    f"offset, records come back that were deleted"
                )
                self._add(WARNING, Kind.CHECKPOINT, self._directory, text, offset=first, remedy=Remedy.CHECKPOINT)

    def _finish_checkpoints(self, end: int) -> None:
        known = self._known
        point, start, mark = known.recovery_point, known.log_start_offset, known.high_watermark
        directory = self._directory
        if start is not None and start > end:
            text = (
                f"its checkpoint has the log start offset {start}, and the log ends at {end}: a start deletes all of it"
            )
            self._add(ERROR, Kind.CHECKPOINT, directory, text, offset=start, remedy=Remedy.CHECKPOINT)
            return
        end = max(end, start or 0)
        if point is not None and point > end:
            text = f"the log ends at {end}, and up to {point} everything had been flushed: those records are lost"
            severity = WARNING if known.clean else ERROR
            self._add(severity, Kind.CHECKPOINT, directory, text, offset=point, remedy=Remedy.CHECKPOINT)
        elif known.clean and point is not None and point != end:
            text = f"the log ends at {end} after a clean stop, and its recovery point is {point}"
            self._add(WARNING, Kind.CHECKPOINT, directory, text, offset=point, remedy=Remedy.CHECKPOINT)
        if mark is not None and mark > end:
            text = f"the log ends at {end}, and its high watermark was {mark}: those records are lost"
            severity = WARNING if known.clean else ERROR
            self._add(severity, Kind.CHECKPOINT, directory, text, offset=mark, remedy=Remedy.CHECKPOINT)
        elif mark is not None and known.clean and mark != end:
            text = f"the high watermark is {mark}, and the log ends at {end}; a leader without followers moves it there"
            self._add(NOTE, Kind.CHECKPOINT, directory, text, offset=mark)


def _leftover(name: str) -> str:
    if name.endswith(DELETED):
        return "was to be deleted; a start removes it"
    if name.endswith(CLEANED):
        return "a compaction that was not finished; a start removes it"
    if name.endswith(SWAP):
        return "a compaction that was finished, but not put in place; a start does that"
    return "a file that was being written; a start removes it"


def _is_waste(name: str) -> bool:
    return not name.endswith(SWAP)


__all__ = ["Known", "PartitionInspection", "Totals"]

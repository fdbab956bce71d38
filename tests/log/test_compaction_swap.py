"""Compacted segments replace old ones: while the log is in use, and when the process dies during the swap."""

from __future__ import annotations

import errno
import random
from collections.abc import Sequence
from typing import Any

import pytest

from moldau.log.compaction.compact import compact
from moldau.log.compaction.job import CompactionResult
from moldau.log.compaction.running import Compaction
from moldau.log.files import FileSystem
from moldau.log.memory_files import MemoryFileSystem, SimulatedCrash
from moldau.log.names import CLEANED, DELETED, SWAP
from moldau.log.partition_log import Log
from moldau.log.producer_state import EndTransactionMarker
from moldau.log.verification import DISABLED
from moldau.protocol.errors import ErrorCode, KafkaError
from moldau.protocol.records import Record
from moldau.testing.full_run import in_full_run

from .conftest import NOW, Partition, make_batch

BUFFER = 1 << 20
Kept = tuple[int, bytes | None, bytes | None]


def write(partition: Partition, *pairs: tuple[bytes, bytes | None], **fields: Any) -> None:
    """One batch for each record, one segment for each call."""
    if partition.log.segments.active.size:
        partition.log.roll(NOW)
    for key, value in pairs:
        partition.append(make_batch(Record(0, NOW, key, value), **fields))


def begin(log: Log, clean_offset: int | None = None) -> Compaction:
    log.prepare_compaction()
    log.flush(NOW)
    cleanable = log.cleanable(clean_offset, log.log_end_offset, NOW)
    compaction = log.begin_compaction(cleanable, now_ms=NOW, dedupe_buffer_bytes=BUFFER)
    assert compaction is not None
    return compaction


def run(compaction: Compaction, file_system: FileSystem) -> CompactionResult:
    return compact(compaction.job, file_system)


def compact_whole(partition: Partition) -> CompactionResult:
    compaction = begin(partition.log)
    result = run(compaction, partition.file_system)
    assert compaction.end(result, NOW)
    return result


def kept(partition: Partition) -> list[Kept]:
    return [(record.offset, record.key, record.value) for record in partition.records()]


def leftovers(partition: Partition) -> list[str]:
    return [name for name in partition.names() if name.endswith((CLEANED, SWAP))]


@pytest.fixture
def compacted(partition: Partition) -> Partition:
    """Three sealed segments of two records each, with much that is superseded, and an active one."""
    partition.configure(cleanup_policy=("compact",), segment_bytes=300)
    write(partition, (b"a", b"1"), (b"b", b"1"))
    write(partition, (b"a", b"2"), (b"c", b"1"))
    write(partition, (b"b", b"2"), (b"c", b"2"))
    write(partition, (b"a", b"3"))
    return partition


ALL = [
    (0, b"a", b"1"),
    (1, b"b", b"1"),
    (2, b"a", b"2"),
    (3, b"c", b"1"),
    (4, b"b", b"2"),
    (5, b"c", b"2"),
    (6, b"a", b"3"),
]
COMPACTED = [ALL[2], ALL[4], ALL[5], ALL[6]]


def test_readers_find_the_remaining_records_at_their_offsets(compacted: Partition) -> None:
    compact_whole(compacted)
    assert kept(compacted) == COMPACTED
    assert compacted.log.log_end_offset == 7
    for offset in range(8):
        assert [entry for entry in COMPACTED if entry[0] >= offset] == [
            (record.offset, record.key, record.value) for record in compacted.records(offset)
        ]
    assert not leftovers(compacted)


def test_a_start_finds_the_compacted_log(compacted: Partition) -> None:
    compact_whole(compacted)
    for clean in (True, False):
        compacted.reopen(clean=clean, recovery_point=7)
        assert kept(compacted) == COMPACTED
        assert compacted.log.log_end_offset == 7
        assert not compacted.log.repairs


def test_a_range_that_is_being_sent_keeps_the_old_file(compacted: Partition) -> None:
    before = compacted.fetch(0)
    found = compacted.log.read(0, 1 << 20, max_offset=7, min_one_batch=True).records
    assert found is not None
    compact_whole(compacted)
    compacted.log.files.file_system.unlink(next(path for path in compacted.log.trash if ".log" in path))
    with found:
        assert found.read() == before


def test_old_files_wait_in_the_trash(compacted: Partition) -> None:
    compact_whole(compacted)
    assert compacted.log.trash
    assert all(path.endswith(DELETED) and compacted.file_system.exists(path) for path in compacted.log.trash)


def test_appends_and_rolls_continue_while_a_pass_runs(compacted: Partition) -> None:
    compaction = begin(compacted.log)
    write(compacted, (b"d", b"1"))
    result = run(compaction, compacted.file_system)
    write(compacted, (b"e", b"1"))
    assert compaction.end(result, NOW)
    assert kept(compacted) == [*COMPACTED, (7, b"d", b"1"), (8, b"e", b"1")]


def test_there_is_one_pass_at_a_time(compacted: Partition) -> None:
    compaction = begin(compacted.log)
    cleanable = compacted.log.cleanable(None, 7, NOW)
    assert compacted.log.begin_compaction(cleanable, now_ms=NOW, dedupe_buffer_bytes=BUFFER) is None
    compaction.cancel()
    assert begin(compacted.log)


def test_only_durable_records_are_rewritten(compacted: Partition) -> None:
    """An unclean start takes a gap past the recovery point for a loss."""
    cleanable = compacted.log.cleanable(None, 7, NOW)
    assert compacted.log.begin_compaction(cleanable, now_ms=NOW, dedupe_buffer_bytes=BUFFER) is None
    flush = compacted.log.begin_flush(4)
    assert flush is not None
    flush.run()
    compacted.log.end_flush(flush, NOW)
    compaction = compacted.log.begin_compaction(cleanable, now_ms=NOW, dedupe_buffer_bytes=BUFFER)
    assert compaction is not None
    assert [segment.base_offset for segment in compaction.job.segments] == [0, 2]


@pytest.mark.parametrize("policy", ["compact", "delete"])
def test_gaps_before_the_recovery_point_are_no_loss(compacted: Partition, policy: str) -> None:
    """Nor if the topic is no longer compacted."""
    write(compacted, (b"b", b"3"), (b"c", b"3"))
    write(compacted, (b"d", b"1"))
    compact_whole(compacted)
    compacted.log.flush(NOW)
    compacted.configure(cleanup_policy=(policy,))
    before = kept(compacted)
    compacted.reopen(clean=False, recovery_point=compacted.log.recovery_point)
    assert kept(compacted) == before
    assert compacted.log.log_end_offset == 10


@pytest.mark.parametrize("clean", [True, False])
def test_the_end_of_the_log_is_kept_when_all_records_before_it_are_compacted_away(
    partition: Partition, clean: bool
) -> None:
    partition.configure(cleanup_policy=("compact",), delete_retention_ms=0)
    write(partition, (b"a", b"1"), (b"a", None))
    partition.log.roll(NOW)
    assert not partition.log.segments.active.on_disk
    for _ in range(3):
        compact_whole(partition)
        partition.now_ms += 1000
    assert partition.log.log_end_offset == 2
    partition.reopen(clean=clean, recovery_point=2)
    assert partition.log.log_end_offset == 2
    assert partition.append(make_batch(Record(0, NOW, b"b", b"1"))).first_offset == 2


def test_snapshots_of_removed_segments_are_removed(compacted: Partition) -> None:
    assert compacted.log.snapshots.offsets == [2, 4, 6]
    result = compact_whole(compacted)
    gone = {
        offset
        for replacement in result.replacements
        for offset in replacement.old_base_offsets
        if offset != replacement.base_offset
    }
    assert gone
    assert compacted.log.snapshots.offsets == [offset for offset in (2, 4, 6) if offset not in gone]


def test_the_time_index_may_name_a_batch_that_compaction_has_emptied(partition: Partition) -> None:
    """The batch stays for its producer's sequence, with the largest timestamp and no record."""
    partition.configure(cleanup_policy=("compact",))
    partition.append(make_batch(Record(0, NOW, b"b", b"1")))
    partition.append(make_batch(Record(0, NOW + 500, b"a", b"1"), producer_id=7, producer_epoch=0, base_sequence=0))
    write(partition, (b"a", b"2"))
    write(partition, (b"c", b"1"))
    compact_whole(partition)
    assert [batch.record_count for batch in partition.log.batches(0)] == [1, 0, 1, 1]
    assert partition.log.offset_of_max_timestamp() is None
    found = partition.log.offset_for_timestamp(NOW)
    assert found is not None
    assert found.offset == 0
    assert partition.log.offset_for_timestamp(NOW + 1) is None


def test_a_hole_after_a_power_failure_in_a_compacted_log_is_distinguished_from_compaction(compacted: Partition) -> None:
    """Records that a sealed segment lost at its end are lost, and all after them, unless the producers are unknown."""
    compacted.log.flush(NOW)
    for _ in range(2):
        write(compacted, (b"x", b"1"), (b"y", b"1"))
    sealed = compacted.log.segments[-2]
    compacted.log.abandon()
    for _header, last in sealed.scan(0):
        position = last
    compacted.cut(sealed.path.rpartition("/")[2], position)
    compacted.open(clean=False, recovery_point=7)
    assert compacted.log.log_end_offset == 11
    compacted.open(clean=False, recovery_point=7, compacted_until=0)
    assert compacted.log.log_end_offset == 8
    assert "no segment begins at offset 8" in compacted.log.repairs[0]


# Other changes of the log during a pass


def test_segments_that_retention_deleted_are_omitted(compacted: Partition) -> None:
    compacted.configure(segment_bytes=100)  # every segment stays one
    compaction = begin(compacted.log)
    result = run(compaction, compacted.file_system)
    assert result.replacements[0].old_base_offsets == (0,)
    compacted.log.delete_first_segments(1)
    assert compaction.end(result, NOW)
    assert kept(compacted) == COMPACTED
    assert not leftovers(compacted)


def test_a_replacement_of_a_removed_segment_is_discarded_with_all_later_ones(compacted: Partition) -> None:
    compaction = begin(compacted.log)
    result = run(compaction, compacted.file_system)
    assert len(result.replacements[0].old_base_offsets) > 1
    compacted.log.delete_first_segments(1)
    assert not compaction.end(result, NOW)
    assert kept(compacted) == ALL[2:]
    assert not leftovers(compacted)


def test_the_result_is_discarded_when_the_log_was_truncated(compacted: Partition) -> None:
    compaction = begin(compacted.log)
    result = run(compaction, compacted.file_system)
    compacted.log.truncate_to(5, NOW)
    write(compacted, (b"x", b"1"), (b"y", b"1"))
    assert not compaction.end(result, NOW)
    assert kept(compacted) == [*ALL[:5], (5, b"x", b"1"), (6, b"y", b"1")]
    assert not leftovers(compacted)


def test_an_offline_or_deleted_log_rejects_the_result(compacted: Partition) -> None:
    compaction = begin(compacted.log)
    result = run(compaction, compacted.file_system)
    compacted.log.abandon()
    with pytest.raises(KafkaError) as caught:
        compaction.end(result, NOW)
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert leftovers(compacted), "its files are no longer touched; the next startup removes them"


# Failures


def fails(file_system: MemoryFileSystem, operation: str, number: int, error: int) -> None:
    """The `number`th operation of this kind fails, from 0 on."""
    left = [number]

    def answer(found: str, path: str) -> int | None:
        if found == operation:
            left[0] -= 1
            if left[0] == -1:
                return error
        return None

    file_system.fail_with = answer


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_rename_that_fails_before_the_swap_has_begun_leaves_the_old_segments(
    compacted: Partition, number: int
) -> None:
    if not isinstance(compacted.file_system, MemoryFileSystem):
        pytest.skip("only the twin fails on demand")
    compaction = begin(compacted.log)
    result = run(compaction, compacted.file_system)
    fails(compacted.file_system, "rename", number, errno.ENOSPC)
    with pytest.raises(KafkaError):
        compaction.end(result, NOW)
    compacted.file_system.fail_with = None
    assert kept(compacted) == ALL
    assert not leftovers(compacted)
    compact_whole(compacted)
    assert kept(compacted) == COMPACTED


def test_a_device_failure_during_the_swap_takes_the_log_offline_and_startup_completes_it(
    compacted: Partition,
) -> None:
    if not isinstance(compacted.file_system, MemoryFileSystem):
        pytest.skip("only the twin fails on demand")
    compaction = begin(compacted.log)
    result = run(compaction, compacted.file_system)
    fails(compacted.file_system, "rename", 5, errno.EIO)
    with pytest.raises(KafkaError):
        compaction.end(result, NOW)
    compacted.file_system.fail_with = None
    with pytest.raises(KafkaError):
        compacted.fetch(0)
    compacted.reopen(clean=False, recovery_point=compacted.log.recovery_point)
    check_between(compacted, ALL, COMPACTED)


@pytest.mark.parametrize(("error", "offline"), [(errno.ENOSPC, False), (errno.ENOENT, False), (errno.EIO, True)])
def test_a_pass_that_fails_to_write_leaves_no_files(compacted: Partition, error: int, offline: bool) -> None:
    compaction = begin(compacted.log)
    run(compaction, compacted.file_system)
    assert leftovers(compacted)
    compaction.fail(OSError(error, "it failed"))
    assert not leftovers(compacted)
    if offline:
        with pytest.raises(KafkaError):
            compacted.fetch(0)
    else:
        assert kept(compacted) == ALL


def filled() -> Partition:
    partition = Partition(MemoryFileSystem(), "/data/topic-0")
    partition.configure(cleanup_policy=("compact",), segment_bytes=300)
    for number in range(12):
        write(partition, (b"%d" % (number % 5), b"%d" % number), (b"x", b"%d" % number))
    return partition


@pytest.mark.parametrize("tenths", range(10))
def test_a_full_disk_while_compacting_leaves_the_old_state(tenths: int) -> None:
    roomy = filled()
    compaction = begin(roomy.log)
    before = roomy.file_system.used_bytes()
    run(compaction, roomy.file_system)
    needed = roomy.file_system.used_bytes() - before
    partition = filled()
    file_system = partition.file_system
    before_pass = kept(partition)
    compaction = begin(partition.log)
    file_system.capacity_bytes = file_system.used_bytes() + needed * tenths // 10
    with pytest.raises(OSError) as caught:
        run(compaction, file_system)
    assert caught.value.errno == errno.ENOSPC
    compaction.fail(caught.value)
    assert kept(partition) == before_pass
    assert not leftovers(partition)
    file_system.capacity_bytes = None
    compact_whole(partition)
    assert len(kept(partition)) < len(before_pass)


# Crashes


def check_between(partition: Partition, before: Sequence[Kept], after: Sequence[Kept]) -> None:
    """The log is complete, and in some state between `before` and `after`."""
    found = kept(partition)
    assert set(after) <= set(found) <= set(before)
    assert [entry[0] for entry in found] == sorted({entry[0] for entry in found})
    assert latest(found) == latest(before)
    assert partition.log.log_end_offset == before[-1][0] + 1
    assert not leftovers(partition)
    base = -1
    for segment in partition.log.segments:
        assert segment.base_offset > base
        base = segment.base_offset
        offsets = [header.last_offset for header, _position in segment.scan(0)]
        assert all(segment.base_offset <= offset for offset in offsets)
        for offset in offsets:
            assert segment.locate(offset) is not None


def latest(entries: Sequence[Kept]) -> dict[bytes | None, bytes]:
    values: dict[bytes | None, bytes] = {}
    for _offset, key, value in entries:
        if value is None:
            values.pop(key, None)
        else:
            values[key] = value
    return values


def prepared(seed: int) -> tuple[Partition, list[Kept]]:
    """A log of many small segments, flushed except for its end, and its contents."""
    dice = random.Random(seed)
    partition = Partition(MemoryFileSystem(), "/data/topic-0")
    partition.file_system.sync_directory("/data/topic-0")
    partition.configure(cleanup_policy=("compact",), segment_bytes=dice.choice([200, 400, 900]))
    for _ in range(dice.randint(20, 40)):
        key = b"k%d" % dice.randint(0, 5)
        partition.append(make_batch(Record(0, NOW, key, dice.choice([b"", None, dice.randbytes(20)]))))
    partition.log.flush(NOW)
    return partition, kept(partition)


@pytest.mark.parametrize("power_lost", [False, True], ids=["killed", "power lost"])
@pytest.mark.parametrize("seed", [0, *in_full_run(*range(1, 6))])
def test_a_crash_at_each_change_of_a_pass_leaves_the_old_or_the_new_segments(seed: int, power_lost: bool) -> None:
    changes = 0
    after: list[Kept] = []
    whole, _before = prepared(seed)
    compact_whole(whole)
    after = kept(whole)
    while True:
        partition, before = prepared(seed)
        partition.file_system.operations_left = changes
        through = False
        try:
            compact_whole(partition)
            through = True
        except SimulatedCrash:
            pass
        partition.file_system = partition.file_system.crash(random.Random(changes) if power_lost else None)
        # And again while the start clears up, a few changes later each time.
        for later in range(changes % 5, 30, 5):
            partition.file_system.operations_left = later
            try:
                partition.open(clean=False, recovery_point=partition.log.flushed_offset)
                break
            except SimulatedCrash:
                partition.file_system = partition.file_system.crash(random.Random(later) if power_lost else None)
        partition.file_system.operations_left = None
        partition.open(clean=False, recovery_point=partition.log.flushed_offset)
        check_between(partition, before, after)
        # The next pass has the same result.
        compact_whole(partition)
        assert kept(partition) == after
        if through:
            break
        changes += 1
    assert changes > 30


class CompactedHistory:
    """Appends, transactions, rolls, flushes, passes, retention and crashes from a seed, and the records that must
    remain."""

    STEPS = ("append", "transaction", "roll", "flush", "compact", "delete", "restart")
    WEIGHTS = (40, 8, 6, 3, 6, 1, 1)

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.partition = Partition(MemoryFileSystem(), "/data/topic-0")
        self.partition.file_system.sync_directory("/data/topic-0")
        self.partition.configure(
            cleanup_policy=("compact",), segment_bytes=self.dice.choice([300, 600, 2000]), index_interval_bytes=100
        )
        self.acknowledged: dict[int, tuple[bytes, bytes | None]] = {}
        self.aborted: set[int] = set()
        self.undecided: list[int] = []
        self.clean_offset: int | None = None
        self.recovery_point = 0
        self.producer_epoch = 0
        self.sequence = 0
        self.start_offset = 0
        self.promised_end = 0

    @property
    def log(self) -> Log:
        return self.partition.log

    def run(self, steps: int) -> None:
        try:
            for _ in range(steps):
                getattr(self, self.dice.choices(self.STEPS, self.WEIGHTS)[0])()
        except SimulatedCrash:
            return

    def record(self) -> tuple[bytes, bytes | None]:
        value = None if self.dice.random() < 0.2 else self.dice.randbytes(self.dice.randint(0, 30))
        return b"k%d" % self.dice.randint(0, 8), value

    def append(self) -> None:
        records = [self.record() for _ in range(self.dice.randint(1, 4))]
        end = self.log.log_end_offset
        self.acknowledged.update(enumerate(records, end))
        self.partition.append(make_batch(*(Record(0, NOW, key, value) for key, value in records)))
        self.promised_end = self.log.log_end_offset

    def transaction(self) -> None:
        end = self.log.log_end_offset
        records = [self.record() for _ in range(self.dice.randint(1, 3))]
        self.acknowledged.update(enumerate(records, end))
        self.undecided = list(range(end, end + len(records)))
        self.partition.append(
            make_batch(
                *(Record(0, NOW, key, value) for key, value in records),
                producer_id=5,
                producer_epoch=self.producer_epoch,
                base_sequence=self.sequence,
                transactional=True,
            ),
            verification=DISABLED,
        )
        self.sequence += len(records)
        if self.dice.random() < 0.4:
            self.append()
        if self.dice.random() < 0.3:
            self.roll()
        if self.dice.random() < 0.3:
            self.compact()
        committed = self.dice.random() < 0.5
        if not committed:
            self.aborted.update(self.undecided)
        self.log.append_marker(
            5,
            self.producer_epoch,
            EndTransactionMarker(committed, 0),
            transaction_version=1,
            now_ms=NOW,
            leader_epoch=1,
        )
        self.undecided = []

    def roll(self) -> None:
        self.log.roll(NOW)

    def flush(self) -> None:
        self.log.flush(NOW)
        self.recovery_point = self.log.recovery_point

    def compact(self) -> None:
        log = self.log
        log.prepare_compaction()
        log.flush(NOW)
        self.recovery_point = log.recovery_point
        first_unstable = log.first_unstable_offset()
        stable = log.log_end_offset if first_unstable is None else first_unstable
        cleanable = log.cleanable(self.clean_offset, stable, self.partition.now_ms)
        compaction = log.begin_compaction(
            cleanable, now_ms=self.partition.now_ms, dedupe_buffer_bytes=self.dice.choice([2000, BUFFER])
        )
        if compaction is None:
            return
        if self.dice.random() < 0.2:
            self.append()
        result = run(compaction, self.partition.file_system)
        if self.dice.random() < 0.2:
            self.delete()
        if compaction.end(result, NOW):
            self.partition.file_system.sync_directory(self.partition.directory)
            self.clean_offset = result.clean_offset
        self.partition.now_ms += self.dice.choice([0, 1000, 90_000_000])

    def delete(self) -> None:
        if self.log.flushed_offset > self.log.log_start_offset and self.log.first_unstable_offset() is None:
            self.start_offset = self.dice.randint(self.log.log_start_offset, self.log.flushed_offset)
            self.log.delete_records_before(self.start_offset)

    def restart(self) -> None:
        self.partition.reopen(log_start_offset=self.start_offset)
        self.recovery_point = self.log.recovery_point

    def crash(self, power_lost: bool) -> None:
        file_system = self.partition.file_system
        self.partition.file_system = file_system.crash(self.dice if power_lost else None)
        self.partition.open(
            clean=False,
            recovery_point=self.recovery_point,
            log_start_offset=self.start_offset,
            compacted_until=self.clean_offset or 0,
        )
        self.check(power_lost)
        end = self.promised_end = self.log.log_end_offset
        self.acknowledged = {offset: record for offset, record in self.acknowledged.items() if offset < end}
        self.aborted = {offset for offset in self.aborted if offset < end}
        # A transaction whose marker was lost or never written is aborted now.
        first = self.log.first_unstable_offset()
        self.undecided = []
        for entry in self.log.producers:
            self.producer_epoch = entry.epoch
            self.sequence = entry.last_sequence + 1
        if first is not None:
            self.aborted.update(
                offset
                for batch in self.log.batches(first)
                if batch.is_transactional and not batch.is_control and batch.base_offset >= first
                for offset in range(batch.base_offset, batch.next_offset)
            )
            self.log.append_marker(
                5,
                self.producer_epoch,
                EndTransactionMarker(False, 0),
                transaction_version=1,
                now_ms=NOW,
                leader_epoch=1,
            )

    def check(self, power_lost: bool = False) -> None:
        """All records were written, and a reader of committed records finds the last value of every key."""
        log = self.log
        end, start = log.log_end_offset, log.log_start_offset
        assert end >= (self.recovery_point if power_lost else self.promised_end)
        aborted: set[int] = set()
        ranges = log.aborted_transactions(start, end)
        found: list[Kept] = []
        for batch in log.batches(start):
            assert batch.has_valid_crc()
            if batch.is_transactional and not batch.is_control:
                aborted.update(
                    offset
                    for entry in ranges
                    if entry.producer_id == batch.producer_id
                    and entry.first_offset <= batch.base_offset < entry.last_offset
                    for offset in range(batch.base_offset, batch.next_offset)
                )
        for record in self.partition.records(start):
            if record.offset in self.acknowledged:
                assert self.acknowledged[record.offset] == (record.key, record.value)
                if record.offset not in aborted and record.offset not in self.open_offsets():
                    found.append((record.offset, record.key, record.value))
        expected = [
            (offset, key, value)
            for offset, (key, value) in sorted(self.acknowledged.items())
            if start <= offset < end and offset not in self.aborted and offset not in self.open_offsets()
        ]
        assert latest(found) == latest(expected)
        assert not leftovers(self.partition)

    def open_offsets(self) -> set[int]:
        first = self.log.first_unstable_offset()
        if first is None:
            return set()
        return {
            offset
            for batch in self.log.batches(first)
            if batch.is_transactional and not batch.is_control and batch.base_offset >= first
            for offset in range(batch.base_offset, batch.next_offset)
        }


@pytest.mark.parametrize("power_lost", [False, True], ids=["killed", "power lost"])
@pytest.mark.parametrize("seed", range(60))
def test_histories_with_crashes_keep_the_latest_value_of_every_key(seed: int, power_lost: bool) -> None:
    history = CompactedHistory(seed)
    for _ in range(4):
        history.partition.file_system.operations_left = history.dice.randint(0, 400)
        history.run(80)
        history.crash(power_lost)
    history.run(40)
    history.check()

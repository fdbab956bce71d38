"""A partition whose sealed segments are compacted, the records that a reader finds, and seeded histories."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple

import pytest

from moldau.log.compaction import cleaned_segment, parts, reading
from moldau.log.compaction.compact import compact
from moldau.log.compaction.job import CompactionJob, CompactionResult, SegmentFiles
from moldau.log.names import CLEANED, SEGMENT_SUFFIXES, offset_file_name
from moldau.log.verification import DISABLED
from moldau.protocol import compression, paged_bytes
from moldau.protocol.compression import Codec
from moldau.protocol.records import Record, RecordBatch, build_batch, iter_batches, iter_records

NOW = 1_700_000_000_000
RETENTION_MS = 1_000


class Compactor:
    """Compacts a partition: makes the job as a log would, and puts the result in place while the log is closed."""

    def __init__(self, partition: Any) -> None:
        self.partition = partition
        self.clean_offset = 0
        self.delete_retention_ms = RETENTION_MS
        self.dedupe_buffer_bytes = 1 << 20
        self.last_batches = True
        """Whether producers are still known."""

    def roll(self) -> None:
        """All appended records are in sealed segments then."""
        self.partition.log.roll(self.partition.now_ms)

    def job(self, **changes: Any) -> CompactionJob:
        partition = self.partition
        log = partition.log
        stable = log.first_unstable_offset()
        limit = log.log_end_offset if stable is None else stable
        ends = [segment.base_offset for segment in log.segments][1:]
        sealed = [(s, end) for s, end in zip(log.segments, ends, strict=False) if end <= limit]
        config = partition.config
        job = CompactionJob(
            directory=partition.directory,
            topic="topic",
            partition=0,
            segments=tuple(
                SegmentFiles(s.base_offset, s.size, end, partition.file_system.modified_ms(s.path)) for s, end in sealed
            ),
            later_segments=tuple(segment.base_offset for segment in log.segments)[len(sealed) :],
            first_dirty_offset=self.clean_offset,
            now_ms=partition.now_ms,
            delete_retention_ms=self.delete_retention_ms,
            segment_bytes=config.segment_bytes,
            segment_index_bytes=config.segment_index_bytes,
            index_interval_bytes=config.index_interval_bytes,
            dedupe_buffer_bytes=self.dedupe_buffer_bytes,
            io_bytes_per_second=0,
            last_batches={p.producer_id: (p.epoch, p.last_offset) for p in log.active_producers()}
            if self.last_batches
            else {},
        )
        return job._replace(**changes)

    def compact(self, **changes: Any) -> CompactionResult:
        """One pass over all sealed segments, put in place."""
        job = self.job(**changes)
        result = compact(job, self.partition.file_system)
        self.put_in_place(result)
        self.clean_offset = result.clean_offset
        return result

    def put_in_place(self, result: CompactionResult) -> None:
        partition = self.partition
        stable = partition.log.first_unstable_offset()
        rolled = not partition.log.segments.active.size
        partition.log.close(partition.now_ms)
        partition.files.close()
        for replacement in result.replacements:
            for base_offset in replacement.old_base_offsets:
                for suffix in SEGMENT_SUFFIXES:
                    path = partition.path(offset_file_name(base_offset, suffix))
                    if partition.file_system.exists(path):
                        partition.file_system.unlink(path)
            for suffix in SEGMENT_SUFFIXES:
                path = partition.path(offset_file_name(replacement.base_offset, suffix))
                if partition.file_system.exists(path + CLEANED):
                    partition.file_system.rename(path + CLEANED, path)
        partition.open(clean=True)
        if rolled:
            self.roll()  # a segment without batches is on no disk
        assert partition.log.first_unstable_offset() == stable
        assert not [name for name in partition.names() if name.endswith(CLEANED)]

    def batches(self) -> list[RecordBatch]:
        """All batches of the log, from its first offset."""
        found: list[RecordBatch] = []
        for segment in self.partition.log.segments:
            if segment.on_disk:
                data = self.partition.file_system.read_file(segment.path)
                assert len(data) >= segment.size
                found += iter_batches(data[: segment.size])
        assert all(batch.has_valid_crc() for batch in found)
        return found

    def records(self) -> list[Record]:
        """All records with data, aborted ones too."""
        return [record for batch in self.batches() if not batch.is_control for record in iter_records(batch)]

    def contents(self) -> list[tuple[int, bytes | None, bytes | None]]:
        return [(record.offset, record.key, record.value) for record in self.records()]

    def reader(self) -> dict[bytes, bytes]:
        """The final value of each key for a reader of the committed records from the beginning."""
        log = self.partition.log
        aborted = log.aborted_transactions(0, log.log_end_offset)
        found: dict[bytes, bytes] = {}
        for batch in self.batches():
            if batch.is_control or any(
                batch.is_transactional
                and entry.producer_id == batch.producer_id
                and entry.first_offset <= batch.base_offset < entry.last_offset
                for entry in aborted
            ):
                continue
            stable = log.first_unstable_offset()
            if stable is not None and batch.base_offset >= stable:
                break
            for record in iter_records(batch):
                assert record.key is not None
                if record.value is None:
                    found.pop(record.key, None)
                else:
                    found[record.key] = record.value
        return found


@pytest.fixture
def compactor(partition: Any) -> Compactor:
    """Of an empty partition, on both file systems."""
    return Compactor(partition)


@pytest.fixture
def real_compactor(real_partition: Any) -> Compactor:
    """Of an empty partition in a real directory."""
    return Compactor(real_partition)


@pytest.fixture
def memory_compactor(memory_partition: Any) -> Compactor:
    """Of an empty partition on the in-memory twin."""
    return Compactor(memory_partition)


@contextmanager
def small_parts() -> Iterator[None]:
    """Batches of more than 100 bytes are large, records of more than 50 bytes are long, and pieces are shorter."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(reading, "LARGE_BYTES", 100)
        monkeypatch.setattr(parts, "LARGE_BYTES", 100)
        monkeypatch.setattr(parts, "LONG_RECORD_BYTES", 50)
        monkeypatch.setattr(reading, "_PIECE_BYTES", 100)
        monkeypatch.setattr(compression, "PIECE_BYTES", 30)
        monkeypatch.setattr(paged_bytes, "WINDOW_BYTES", 64)
        monkeypatch.setattr(cleaned_segment, "WINDOW_BYTES", 64)
        yield


@pytest.fixture
def in_parts() -> Iterator[None]:
    with small_parts():
        yield


@pytest.fixture(name="small_parts")
def _small_parts() -> Callable[[], AbstractContextManager[None]]:
    return small_parts


class Step(NamedTuple):
    """One append of a history."""

    own: bool
    """By the broker itself: markers."""
    epoch: int
    data: bytes


class History:
    """Seeded appends of several producers to a few keys, with transactions, tombstones, codecs and a moving clock."""

    def __init__(
        self, seed: int, *, codecs: tuple[int, ...] = tuple(Codec), keys: int = 12, transactions: bool = True
    ) -> None:
        self.dice = random.Random(seed)
        self.codecs = codecs
        self.keys = keys
        self.producers = [-1, -1, 1, 2, 3, 4] if transactions else [-1, 1, 2]
        """-1 is none, 3 and 4 are transactional."""
        self.now_ms = NOW
        self.leader_epoch = 0
        self.sequences = dict.fromkeys((1, 2, 3, 4), 0)
        self.open_transactions: set[int] = set()

    def steps(self, count: int) -> Iterator[Step]:
        for _ in range(count):
            yield self.step()

    def step(self) -> Step:
        dice = self.dice
        self.now_ms += dice.randint(0, 20)
        self.leader_epoch += dice.random() < 0.05
        if self.open_transactions and dice.random() < 0.25:
            return self.end_transaction(dice.choice(sorted(self.open_transactions)))
        producer_id = dice.choice(self.producers)
        records = [self.record() for _ in range(dice.randint(1, 6))]
        if producer_id < 0:
            return Step(False, self.leader_epoch, build_batch(records, codec=dice.choice(self.codecs)))
        sequence = self.sequences[producer_id]
        self.sequences[producer_id] = sequence + len(records)
        if producer_id >= 3:
            self.open_transactions.add(producer_id)
        data = build_batch(
            records,
            codec=dice.choice(self.codecs),
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=sequence,
            transactional=producer_id >= 3,
        )
        return Step(False, self.leader_epoch, data)

    def record(self) -> Record:
        dice = self.dice
        key = b"key %d" % dice.randrange(self.keys)
        if dice.random() < 0.1:
            key *= 30  # longer than keys that are stored unchanged, with a length of two bytes
        value = dice.choice([None, dice.randbytes(dice.randint(0, 20)), b"value " * dice.randint(0, 60)])
        headers = (("header", dice.choice([None, b"x"])),) * dice.choice([0, 0, 0, 1, 2])
        return Record(0, self.now_ms + dice.choice([0, 0, 0, -700, 3]), key, value, headers)

    def end_transaction(self, producer_id: int, *, commit: bool | None = None) -> Step:
        self.open_transactions.discard(producer_id)
        commit = self.dice.random() < 0.5 if commit is None else commit
        record = Record(0, self.now_ms, struct.pack(">hh", 0, int(commit)), struct.pack(">hi", 0, 4))
        marker = build_batch([record], producer_id=producer_id, producer_epoch=0, transactional=True, control=True)
        return Step(True, self.leader_epoch, marker)

    def end_transactions(self) -> list[Step]:
        return [self.end_transaction(producer_id) for producer_id in sorted(self.open_transactions)]

    def append_to(self, partition: Any, step: Step) -> None:
        partition.now_ms = self.now_ms
        partition.append(step.data, leader_epoch=step.epoch, client=not step.own, verification=DISABLED)


@pytest.fixture
def history() -> type[History]:
    return History


@pytest.fixture
def compactor_of() -> type[Compactor]:
    return Compactor

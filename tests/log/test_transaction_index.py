"""Aborted transactions are found for each range of a log that a fetch may return, in memory and on disk."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from typing import Any

import pytest

from moldau.log.config import LogConfig
from moldau.log.descriptors import ColdRead, DescriptorCache
from moldau.log.memory_files import MemoryFileSystem
from moldau.log.partition_loading import load_log
from moldau.log.partition_log import Log
from moldau.log.producer_state import EndTransactionMarker, read_end_transaction_marker
from moldau.log.transaction_index import AbortedTransaction, TransactionIndex
from moldau.log.verification import DISABLED
from moldau.protocol.records import Record, build_batch, iter_batches, iter_records

NOW = 1_700_000_000_000
PATH = "/data/00000000000000000000.txnindex"


def some_entries(seed: int, count: int) -> list[AbortedTransaction]:
    """Transactions that overlap: markers and last stable offsets come in order, the first records need not."""
    dice = random.Random(seed)
    entries = []
    last_offset = last_stable_offset = 0
    for number in range(count):
        last_offset += dice.randint(1, 30)
        last_stable_offset = dice.randint(last_stable_offset, last_offset + 1)
        entries.append(AbortedTransaction(number, dice.randint(0, last_offset - 1), last_offset, last_stable_offset))
    return entries


def expected(entries: list[AbortedTransaction], start: int, end: int) -> tuple[list[AbortedTransaction], bool]:
    found = []
    for entry in entries:
        if entry.last_offset >= start:
            if entry.first_offset < end:
                found.append(entry)
            if entry.last_stable_offset >= end:
                return found, True
    return found, False


def an_index(file_system: Any, *, new: bool) -> TransactionIndex:
    return TransactionIndex(DescriptorCache(file_system, 4), PATH, new=new)


@pytest.mark.parametrize("count", [1, 100, 257, 1_000])
def test_the_transactions_of_a_range_are_found_in_memory_and_in_the_file(count: int) -> None:
    file_system = MemoryFileSystem()
    file_system.make_directory("/data")
    entries = some_entries(count, count)
    written = an_index(file_system, new=True)
    assert (written.count, written.entries(), written.collect(0, 100)) == (0, [], ([], False))
    for entry in entries:
        written.append(entry)
    read = an_index(file_system, new=False)
    assert read.count == written.count == count
    assert read.entries() == written.entries() == entries
    dice = random.Random(count)
    for _ in range(300):
        start = dice.randint(0, entries[-1].last_offset + 2)
        end = start + dice.choice([1, 10, 200, 100_000])
        assert written.collect(start, end) == read.collect(start, end) == expected(entries, start, end)


def test_an_entry_has_apache_kafkas_bytes_and_an_incomplete_one_is_ignored() -> None:
    file_system = MemoryFileSystem()
    file_system.make_directory("/data")
    index = an_index(file_system, new=True)
    index.append(AbortedTransaction(7, 3, 9, 5))
    index.append(AbortedTransaction(8, 5, 10, 11))
    data = struct.pack(">hqqqqhqqqq", 0, 7, 3, 9, 5, 0, 8, 5, 10, 11)
    assert file_system.read_file(PATH) == data
    file_system.replace_file(PATH, data[:-1], sync=False)
    cut = an_index(file_system, new=False)
    assert cut.entries() == [(7, 3, 9, 5)]
    cut.append(AbortedTransaction(8, 5, 10, 11))
    assert file_system.read_file(PATH) == data


@pytest.mark.parametrize("new", [True, False], ids=["in memory", "from the file"])
def test_truncation_removes_the_markers_from_an_offset_on(new: bool) -> None:
    file_system = MemoryFileSystem()
    file_system.make_directory("/data")
    entries = some_entries(5, 300)
    index = an_index(file_system, new=True)
    for entry in entries:
        index.append(entry)
    if not new:
        index = an_index(file_system, new=False)
    cut = entries[200].last_offset
    index.truncate_to(cut)
    assert index.entries() == entries[:200]
    assert index.collect(0, 1 << 60) == (entries[:200], False)
    index.truncate_to(cut)
    index.append(AbortedTransaction(1, 1, cut, cut + 1))
    assert index.collect(cut, cut + 1) == ([(1, 1, cut, cut + 1)], True)
    assert an_index(file_system, new=False).count == 201


def test_rebuilding_writes_only_differences() -> None:
    file_system = MemoryFileSystem()
    file_system.make_directory("/data")
    entries = some_entries(6, 3)
    index = an_index(file_system, new=True)
    assert not index.rebuild([])
    assert index.rebuild(entries)
    assert not an_index(file_system, new=False).rebuild(entries)
    assert index.entries() == entries
    assert index.rebuild(entries[:1])
    assert index.entries() == entries[:1]
    assert index.rebuild([])
    assert (index.count, file_system.exists(PATH)) == (0, False)


def test_a_read_that_is_not_cached_is_reported_instead_of_waiting() -> None:
    file_system = MemoryFileSystem()
    file_system.make_directory("/data")
    entries = some_entries(7, 10)
    an_index(file_system, new=True).rebuild(entries)
    index = an_index(file_system, new=False)
    file_system.evict(PATH)
    with pytest.raises(ColdRead) as cold:
        index.collect(0, 100, wait=False)
    with cold.value.range as file_range:
        assert (file_range.position, file_range.length) == (0, 10 * 34)
        file_range.read_ahead()
    assert index.collect(0, 100, wait=False) == expected(entries, 0, 100)


# Through the log, as a consumer sees it


class Consumer:
    """Reads committed records as clients do, with the list of aborted transactions (producer and first offset)."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.counts: list[int] = []  # the number of aborted transactions in each response

    def values(self, start: int, last_stable_offset: int, max_bytes: int) -> Iterator[bytes | None]:
        offset = start
        while offset < last_stable_offset:
            found = self.log.read(offset, max_bytes, max_offset=last_stable_offset, min_one_batch=True, committed=True)
            assert found.records is not None
            self.counts.append(len(found.aborted_transactions))
            with found.records as records:
                data = records.read()
            begins = sorted((entry.first_offset, entry.producer_id) for entry in found.aborted_transactions)
            aborted: set[int] = set()
            for batch in iter_batches(data):
                while begins and begins[0][0] <= batch.last_offset:
                    aborted.add(begins.pop(0)[1])
                offset = batch.next_offset
                if batch.is_control:
                    marker = read_end_transaction_marker(batch)
                    assert marker is not None
                    if not marker.committed:
                        aborted.discard(batch.producer_id)
                elif not (batch.is_transactional and batch.producer_id in aborted):
                    yield from (record.value for record in iter_records(batch) if record.offset >= start)


class Producers:
    """A log with transactions of several producers, and the committed records of each."""

    def __init__(self, seed: int, steps: int) -> None:
        self.dice = random.Random(seed)
        self.file_system: Any = MemoryFileSystem()
        self.file_system.make_directory("/data")
        self.config = LogConfig(segment_bytes=self.dice.choice([2_000, 20_000]), index_interval_bytes=200)
        self.log = self.open()
        self.written: list[tuple[int, int, bytes]] = []  # offset, producer id, value
        self.open_since: dict[int, int] = {}
        self.aborted: list[tuple[int, int, int]] = []  # producer id, first offset, offset of the marker
        self.sequences: dict[int, int] = {}
        for _ in range(steps):
            self.step()

    def open(self) -> Log:
        return load_log(DescriptorCache(self.file_system, 8), "/data", "t", 0, self.config, clean=True, now_ms=NOW)

    def step(self) -> None:
        producer_id = self.dice.choice([-1, 1, 2, 3])
        offset = self.log.log_end_offset
        if producer_id in self.open_since and self.dice.random() < 0.3:
            marker = EndTransactionMarker(self.dice.random() < 0.6, 0)
            self.log.append_marker(producer_id, 0, marker, transaction_version=1, now_ms=NOW, leader_epoch=0)
            first_offset = self.open_since.pop(producer_id)
            if not marker.committed:
                self.aborted.append((producer_id, first_offset, offset))
            return
        value = b"%d" % offset
        sequence = self.sequences.get(producer_id, 0) if producer_id >= 0 else -1
        data = build_batch(
            [Record(0, NOW, None, value)],
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=sequence,
            transactional=producer_id >= 0,
        )
        self.log.append(data, now_ms=NOW, leader_epoch=0, verification=DISABLED)
        self.written.append((offset, producer_id, value))
        if producer_id >= 0:
            self.sequences[producer_id] = sequence + 1
            self.open_since.setdefault(producer_id, offset)

    @property
    def last_stable_offset(self) -> int:
        return min([*self.open_since.values(), self.log.log_end_offset])

    def committed(self, start: int) -> list[bytes]:
        return [
            value
            for offset, producer_id, value in self.written
            if start <= offset < self.last_stable_offset
            and not any(known == producer_id and first <= offset < end for known, first, end in self.aborted)
        ]


@pytest.mark.parametrize("reopened", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_a_consumer_sees_exactly_the_committed_records_from_any_start(seed: int, reopened: bool) -> None:
    producers = Producers(seed, 400)
    if reopened:
        producers.log.close(NOW)
        producers.log = producers.open()
    consumer = Consumer(producers.log)
    for start in (0, *producers.dice.sample(range(producers.last_stable_offset), 10)):
        max_bytes = producers.dice.choice([1, 300, 1_000, 1 << 20])
        found = list(consumer.values(start, producers.last_stable_offset, max_bytes))
        assert found == producers.committed(start)


@pytest.mark.parametrize("reopened", [False, True])
def test_a_small_read_returns_few_aborted_transactions(reopened: bool) -> None:
    producers = Producers(99, 3_000)
    if reopened:
        producers.log.close(NOW)
        producers.log = producers.open()
    assert len(producers.aborted) > 100
    consumer = Consumer(producers.log)
    assert list(consumer.values(0, producers.last_stable_offset, 1)) == producers.committed(0)
    # 200 bytes of log between two entries of the index hold three batches.
    assert max(consumer.counts) <= 3 + 4


def test_a_log_without_aborted_transactions_is_not_searched_for_them() -> None:
    producers = Producers(3, 0)
    for number in range(50):
        data = build_batch([Record(0, NOW, None, b"%d" % number * 50)])
        producers.log.append(data, now_ms=NOW, leader_epoch=0)
    producers.log.close(NOW)
    log = producers.open()
    assert len(log.segments) > 1
    looked: list[str] = []
    size = producers.file_system.size

    def noted_size(path: str) -> int:
        looked.append(path)
        return int(size(path))

    producers.file_system.size = noted_size
    found = log.read(0, 100, max_offset=50, min_one_batch=True, committed=True)
    assert found.records is not None
    found.records.release()
    assert found.aborted_transactions == ()
    assert not [path for path in looked if path.endswith(".txnindex")]

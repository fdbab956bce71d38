"""A power failure at any moment during flushes of appends loses no record that was acknowledged or visible.

A seeded history of a partition with `flush.messages=1`: appends, transactions, rolls, new leader epochs, deletions, and
flushes. Other steps may run between the begin, the run and the end of a flush, as with a thread. The history uses the
in-memory file system, once with the guarantees of a journaling file system for names and once with only those of POSIX.
After each step the power may fail in a copy of the disk, and at some change it fails in the original. The next startup
must find

* all records that were acknowledged, and all records that were below the high watermark at any time;
* no record that was not appended.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from moldau.log.config import LogConfig
from moldau.log.flushing import Flush
from moldau.log.manager import LogManager
from moldau.log.memory_files import MemoryFileSystem, SimulatedCrash
from moldau.log.partition_log import Log
from moldau.log.verification import DISABLED
from moldau.protocol.errors import KafkaError
from moldau.protocol.records import Record, build_batch, iter_records
from moldau.replication.partition import Partition

NOW = 1_700_000_000_000
TOPIC_ID = b"\1" * 16


class History:
    """The requests to a partition, its acknowledgements, and the limit of visible records."""

    STEPS: tuple[str, ...] = ("append", "write_in_transaction", "end_transaction", "begin", "run_flush", "end")
    STEPS += ("roll", "delete", "lead", "checkpoint", "look")
    WEIGHTS: tuple[int, ...] = (14, 4, 4, 10, 10, 10, 2, 1, 1, 2, 6)

    def __init__(self, seed: int, *, journalled: bool, flush_messages: int = 1) -> None:
        self.dice = random.Random(f"{seed} {journalled} {flush_messages}")
        self.file_system: Any = MemoryFileSystem(journalled=journalled)
        self.file_system.make_directory("/data")
        self.file_system.sync_directory("")
        self.config = LogConfig(
            segment_bytes=self.dice.choice([400, 900, 3_000]), index_interval_bytes=0, flush_messages=flush_messages
        )
        self.values: list[bytes] = []
        """The values of all records that were ever appended, by offset."""
        self.promised = 0
        """The end offset of the acknowledged or visible records."""
        self.acknowledged: list[KafkaError | None] = []
        self.start()

    def start(self) -> None:
        self.manager = LogManager(["/data"], node_id=1, cluster_id="c", file_system=self.file_system)
        self.manager.open()
        self.manager.load(now_ms=NOW, config_of=lambda topic: self.config)
        log = self.manager.get("t", 0)
        if log is None:
            log = self.manager.get_or_create("t", TOPIC_ID, 0, self.config, now_ms=NOW)
        self.wanted: list[Log] = []
        self.flush: Flush | None = None
        self.has_run = False
        self.partition = Partition("t", TOPIC_ID, 0, 1, log, self.wanted.append)
        self.leader_epoch = log.latest_epoch + 1
        self.lead()
        self.epochs = {entry.producer_id: entry.epoch for entry in log.producers}
        self.sequences = {entry.producer_id: entry.last_sequence + 1 for entry in log.producers}

    def run(self, steps: int) -> None:
        try:
            for _ in range(steps):
                getattr(self, self.dice.choices(self.STEPS, self.WEIGHTS)[0])()
                if self.config.flush_messages == 1:
                    self.promised = max(self.promised, self.partition.high_watermark)
                assert self.partition.last_stable_offset <= self.partition.high_watermark
        except SimulatedCrash:
            return

    # The steps

    def append(self) -> None:
        self._append([self.dice.randbytes(self.dice.randint(0, 90))] * self.dice.randint(1, 3), -1)

    def write_in_transaction(self) -> None:
        self._append([b"t"] * self.dice.randint(1, 2), self.dice.choice([5, 6]))

    def _append(self, values: list[bytes], producer_id: int) -> None:
        sequence = self.sequences.get(producer_id, 0) if producer_id >= 0 else -1
        data = build_batch(
            [Record(0, NOW, None, value) for value in values],
            producer_id=producer_id,
            producer_epoch=self.epochs.get(producer_id, 0) if producer_id >= 0 else -1,
            base_sequence=sequence,
            transactional=producer_id >= 0,
        )
        offset = self.partition.log.log_end_offset
        self.values[offset:] = values
        info = self.partition.append(data, acks=-1, now_ms=NOW, verification=DISABLED)
        assert info.first_offset == offset
        if producer_id >= 0:
            self.sequences[producer_id] = sequence + len(values)
        self._acknowledge(info.last_offset + 1)

    def end_transaction(self) -> None:
        producer_id = self.dice.choice([5, 6])
        offset = self.partition.log.log_end_offset
        self.values[offset:] = [b"marker"]
        info = self.partition.append_marker(
            producer_id,
            self.epochs.get(producer_id, 0),
            coordinator_epoch=0,
            committed=self.dice.random() < 0.5,
            transaction_version=1,
            now_ms=NOW,
        )
        self._acknowledge(info.last_offset + 1)

    def _acknowledge(self, end_offset: int) -> None:
        def acknowledged(error: KafkaError | None) -> None:
            assert error is None
            assert end_offset <= self.partition.high_watermark
            if self.config.flush_messages == 1:
                self.promised = max(self.promised, end_offset)
            self.acknowledged.append(error)

        self.partition.when_committed(end_offset, acknowledged)

    def begin(self) -> None:
        if self.flush is None and self.wanted:
            self.wanted.clear()
            self.flush = self.partition.log.begin_flush()
            self.has_run = False

    def run_flush(self) -> None:
        if self.flush is not None and not self.has_run:
            self.flush.run()
            self.has_run = True

    def end(self) -> None:
        if self.flush is not None and self.has_run:
            flush, self.flush = self.flush, None
            self.partition.log.end_flush(flush, NOW)

    def roll(self) -> None:
        self.partition.log.roll(NOW)

    def delete(self) -> None:
        self.partition.delete_records_before(self.dice.randint(0, self.partition.high_watermark))

    def lead(self) -> None:
        self.leader_epoch += 1
        self.partition.become_leader(
            leader_epoch=self.leader_epoch, partition_epoch=0, replicas=(1,), isr=(1,), now_ms=NOW
        )

    def checkpoint(self) -> None:
        self.manager.flush_checkpoints({("t", 0): self.partition.high_watermark})

    def look(self) -> None:
        """Simulate a power failure on a copy of the disk."""
        survivor = self.file_system.crash(self.dice)
        survivor.operations_left = None
        found = LogManager(["/data"], node_id=1, cluster_id="c", file_system=survivor)
        found.open()
        found.load(now_ms=NOW, config_of=lambda topic: self.config)
        self.check(found.get("t", 0))

    # The crash, and the conditions after it

    def crash(self) -> None:
        self.file_system = self.file_system.crash(self.dice)
        self.start()
        self.check(self.partition.log)
        del self.values[self.partition.log.log_end_offset :]

    def check(self, log: Log | None) -> None:
        if log is None:
            assert self.promised == 0, "the partition is lost"
            return
        assert log.log_end_offset >= self.promised, "something is lost that was promised"
        for batch in log.batches(log.log_start_offset):
            assert batch.has_valid_crc()
            for record in iter_records(batch):
                value = b"marker" if batch.is_control else record.value
                assert value == self.values[record.offset]


@pytest.mark.parametrize("journalled", [True, False], ids=["journal", "posix"])
@pytest.mark.parametrize("seed", range(60))
def test_no_acknowledged_or_visible_record_is_lost_in_a_power_failure(seed: int, journalled: bool) -> None:
    history = History(seed, journalled=journalled)
    for _ in range(3):
        history.file_system.operations_left = history.dice.randint(0, 120)
        history.run(80)
        history.crash()


@pytest.mark.parametrize("journalled", [True, False], ids=["journal", "posix"])
def test_a_power_failure_at_each_change_loses_no_record(journalled: bool) -> None:
    """One history, stopped after one change, after two, and so on, until it completes."""
    changes = 0
    while True:
        history = History(3, journalled=journalled)
        history.file_system.operations_left = changes
        history.run(90)
        through = history.file_system.operations_left > 0
        history.crash()
        if through:
            break
        changes += 1
    assert changes > 50
    assert history.promised > 10
    assert len(history.acknowledged) > 10


@pytest.mark.parametrize("seed", range(20))
def test_all_appends_are_acknowledged_at_any_timing_of_flushes(seed: int) -> None:
    history = History(seed, journalled=True, flush_messages=1 + seed % 4)
    history.run(200)
    while history.wanted or history.flush is not None:
        history.begin()
        history.run_flush()
        history.end()
    partition = history.partition
    assert partition.uncommitted is None
    assert partition.high_watermark == partition.log.log_end_offset
    assert partition.log.log_end_offset - partition.log.flushed_offset < 1 + seed % 4


def test_a_waiter_is_notified_when_records_of_a_killed_process_are_flushed() -> None:
    class Waiter:
        notified = False

        def enough(self) -> None:
            self.notified = True

        def partition_changed(self) -> None:
            raise AssertionError("nothing has changed")

    history = History(1, journalled=True)
    history.append()
    history.file_system = history.file_system.crash()
    history.start()
    assert history.partition.high_watermark == 0
    waiter = Waiter()
    history.partition.waiters.wait_for_bytes(waiter, 1)
    history.begin()
    history.run_flush()
    history.end()
    assert history.partition.high_watermark == history.partition.log.log_end_offset > 0
    assert waiter.notified

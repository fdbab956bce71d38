"""Crashes at any moment, from a seed: what was acknowledged durably is there, and what is there agrees with itself.

A seeded history of appends, rolls, cuts, deletions and flushes runs against the in-memory twin until the process dies
in the middle of some change. Then either only the process was lost (`kill -9`) or the power was, and with it any
combination of what had not been synced. The next start must find a log that

* is a prefix of what was appended (from the log start on), and after `kill -9` all of it;
* has everything that was flushed;
* has indexes, producers, leader epochs and times that are exactly what its batches give.
"""

from __future__ import annotations

import random
from typing import Any, NamedTuple

import pytest

from moldau.log.config import LogConfig
from moldau.log.descriptors import DescriptorCache
from moldau.log.loader import load_log
from moldau.log.memory_files import MemoryFileSystem, SimulatedCrash
from moldau.log.partition_log import Log
from moldau.log.producer_state import ProducerState
from moldau.protocol.compression import Codec
from moldau.protocol.records import Record, build_batch, iter_records

NOW = 1_700_000_000_000
DIRECTORY = "/data/topic-0"


class Batch(NamedTuple):
    """A batch that was asked for: its offsets, and the value of its records."""

    first_offset: int
    last_offset: int
    value: bytes


class History:
    """What was asked of a log and what it answered: the truth that the next start is compared with."""

    STEPS = ("append", "roll", "flush", "cut", "delete", "lead", "stop")
    WEIGHTS = (30, 2, 4, 1, 1, 2, 1)

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.file_system: Any = MemoryFileSystem()
        self.file_system.make_directory(DIRECTORY)
        self.file_system.sync_directory(DIRECTORY)
        self.acknowledged: list[Batch] = []
        self.in_flight: Batch | None = None
        self.cut_in_flight: int | None = None
        self.durable_end = 0  # the end of what was acknowledged as flushed
        self.recovery_point = 0  # as the checkpoint on disk has it
        self.log_start_offset = 0  # as the checkpoint on disk has it
        self.leader_epoch = 0
        self.start(clean=True)

    def start(self, *, clean: bool) -> None:
        config = LogConfig(
            segment_bytes=self.dice.choice([600, 900, 3_000]), index_interval_bytes=self.dice.choice([0, 200])
        )
        self.log: Log = load_log(
            DescriptorCache(self.file_system, 3),
            DIRECTORY,
            "topic",
            0,
            config,
            clean=clean,
            now_ms=NOW,
            recovery_point=self.recovery_point,
            log_start_offset=self.log_start_offset,
        )
        self.log.on_recovery_point_lowered = self._lower_recovery_point
        self.sequences = {producer.producer_id: producer.last_sequence + 1 for producer in self.log.producers}

    def _lower_recovery_point(self, log: Log) -> None:
        self.recovery_point = min(self.recovery_point, log.recovery_point)

    def run(self, steps: int) -> None:
        """Until the process dies, or for so many steps."""
        try:
            for _ in range(steps):
                getattr(self, self.dice.choices(self.STEPS, self.WEIGHTS)[0])()
        except SimulatedCrash:
            return

    # The steps

    def append(self) -> None:
        count = self.dice.randint(1, 4)
        value = self.dice.randbytes(self.dice.randint(0, 90))
        producer_id = self.dice.choice([-1, 3, 4])
        sequence = self.sequences.get(producer_id, 0) if producer_id >= 0 else -1
        timestamp = NOW + self.dice.randint(-50, 50)
        data = build_batch(
            [Record(0, timestamp + index, b"%d" % index, value) for index in range(count)],
            codec=self.dice.choice(list(Codec)),
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=sequence,
        )
        self.in_flight = Batch(self.log.log_end_offset, self.log.log_end_offset + count - 1, value)
        info = self.log.append(data, now_ms=NOW, leader_epoch=self.leader_epoch)
        assert (info.duplicate, info.first_offset) == (False, self.in_flight.first_offset)
        self.acknowledged.append(self.in_flight)
        self.in_flight = None
        if producer_id >= 0:
            self.sequences[producer_id] = sequence + count

    def roll(self) -> None:
        self.log.roll(NOW)

    def flush(self) -> None:
        self.log.flush(NOW)
        self.durable_end = self.log.flushed_offset
        if self.dice.random() < 0.5:
            self.recovery_point = self.log.recovery_point

    def cut(self) -> None:
        if self.acknowledged:
            offset = self.dice.choice(self.acknowledged[-6:]).first_offset
            if offset >= self.log.log_start_offset:
                self.cut_in_flight = offset
                self.log.truncate_to(offset, NOW)
                self.cut_in_flight = None
                self.durable_end = min(self.durable_end, offset)
                self.acknowledged = [batch for batch in self.acknowledged if batch.last_offset < offset]
                self.sequences = {entry.producer_id: entry.last_sequence + 1 for entry in self.log.producers}

    def delete(self) -> None:
        if self.log.flushed_offset > self.log.log_start_offset:
            self.log_start_offset = self.dice.randint(self.log.log_start_offset, self.log.flushed_offset)
            self.log.delete_records_before(self.log_start_offset)

    def lead(self) -> None:
        self.leader_epoch += 1
        self.log.assign_leader_epoch(self.leader_epoch)

    def stop(self) -> None:
        self.log.close(NOW)
        self.durable_end = self.recovery_point = self.log.log_end_offset
        self.start(clean=True)

    # The crash, and what must hold after it

    def crash(self, power_loss: random.Random | None) -> None:
        self.file_system = self.file_system.crash(power_loss)
        self.start(clean=False)
        check_agreement(self.log)
        asked = [*self.acknowledged, *([self.in_flight] if self.in_flight is not None else [])]
        asked = [batch for batch in asked if batch.last_offset >= self.log.log_start_offset]
        found = stored(self.log)
        assert found == asked[: len(found)], "what is left is no prefix of what was asked for"
        expected_end = self.durable_end
        if power_loss is None and self.acknowledged:
            expected_end = self.acknowledged[-1].last_offset + 1
        if self.cut_in_flight is not None:
            expected_end = min(expected_end, self.cut_in_flight)
        assert self.log.log_end_offset >= expected_end, "something is lost that was promised"
        self.acknowledged = [batch for batch in asked if batch.last_offset < self.log.log_end_offset]
        self.in_flight = self.cut_in_flight = None
        self.durable_end = min(self.durable_end, self.log.log_end_offset)


def stored(log: Log) -> list[Batch]:
    found = []
    for batch in log.batches(log.log_start_offset):
        values = {record.value for record in iter_records(batch)}
        (value,) = values
        assert value is not None
        found.append(Batch(batch.base_offset, batch.last_offset, value))
    return found


def check_agreement(log: Log) -> None:
    """Everything that is kept beside the batches is what the batches give."""
    producers = ProducerState()
    epochs: dict[int, int] = {}
    largest = -1
    end = log.segments[0].base_offset
    for batch in log.batches(end):
        assert batch.has_valid_crc()
        assert batch.base_offset == end, "a gap"
        end = batch.next_offset
        producers.replay(batch, None)
        largest = max(largest, batch.max_timestamp)
        epochs.setdefault(batch.partition_leader_epoch, batch.base_offset)
        if end > log.log_start_offset:
            assert log.epoch_of(max(batch.base_offset, log.log_start_offset)) == batch.partition_leader_epoch
    assert end == log.log_end_offset
    for known in producers:
        # The log may know more, of records that are deleted, and never anything else.
        entry = log.producers.producers[known.producer_id]
        assert entry.batches[-1] == known.batches[-1]
    for offset in range(log.log_start_offset, log.log_end_offset):
        found = log.read(offset, 1, max_offset=log.log_end_offset, min_one_batch=True).records
        assert found is not None
        with found:
            header = found.read(0, 27)
        first, last = int.from_bytes(header[:8], "big"), int.from_bytes(header[23:27], "big")
        assert first <= offset <= first + last
    assert max(segment.max_timestamp for segment in log.segments) == largest
    for segment in log.segments:
        on_disk = log.files.file_system.size(segment.path) if segment.on_disk else 0
        assert on_disk == segment.size, "bytes lie beyond the end"


@pytest.mark.parametrize("power_lost", [False, True], ids=["killed", "power lost"])
@pytest.mark.parametrize("seed", range(200))
def test_after_a_crash_at_any_change_a_prefix_is_left_that_agrees_with_itself(seed: int, power_lost: bool) -> None:
    history = History(seed)
    dice = random.Random(f"{seed} {power_lost}")
    for _ in range(4):
        history.file_system.operations_left = dice.randint(0, 80)
        history.run(60)
        history.crash(dice if power_lost else None)
    history.run(10)
    check_agreement(history.log)


@pytest.mark.parametrize("power_lost", [False, True], ids=["killed", "power lost"])
def test_a_crash_at_each_change_in_turn(power_lost: bool) -> None:
    """One history, cut short after one change, after two, ... until it is through."""
    changes = 0
    while True:
        history = History(12)
        history.file_system.operations_left = changes
        history.run(50)
        through = history.file_system.operations_left > 0
        history.crash(random.Random(changes) if power_lost else None)
        if through:
            break
        changes += 1
    assert changes > 50


@pytest.mark.parametrize("seed", range(20))
def test_a_crash_while_recovering_from_a_crash(seed: int) -> None:
    history = History(seed)
    dice = random.Random(seed)
    history.run(60)
    history.file_system = history.file_system.crash(dice)
    for _ in range(5):
        history.file_system.operations_left = dice.randint(0, 12)
        try:
            history.start(clean=False)
        except SimulatedCrash:
            history.file_system = history.file_system.crash(dice)
    history.file_system.operations_left = None
    history.crash(dice)


@pytest.mark.parametrize("seed", range(25))
def test_a_clean_stop_survives_a_loss_of_power_right_after_it(seed: int) -> None:
    history = History(seed)
    history.run(60)
    before = (stored(history.log), history.log.leader_epochs.entries, history.sequences)
    history.log.close(NOW)
    history.file_system = history.file_system.crash(random.Random(seed))
    history.start(clean=True)
    check_agreement(history.log)
    assert history.log.repairs == []
    assert (stored(history.log), history.log.leader_epochs.entries, history.sequences) == before

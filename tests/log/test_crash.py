"""Crashes at any moment, from a seed: durably acknowledged records are kept, and all files are consistent.

A seeded history of appends, rolls, cuts, deletions and flushes runs against the in-memory twin until the process dies
in the middle of some change. Then either only the process was lost (`kill -9`) or the power was, and with it any
combination of what had not been synced. The next start must find a log that

* is a prefix of what was appended (from the log start on), and after `kill -9` all of it;
* has everything that was flushed;
* has indexes, producers, leader epochs and times that are exactly what its batches give;
* knows each open transaction, also one whose records were deleted, and which have been aborted.
"""

from __future__ import annotations

import random
from typing import Any, NamedTuple

import pytest

from moldau.log.config import LogConfig
from moldau.log.descriptors import DescriptorCache
from moldau.log.memory_files import MemoryFileSystem, SimulatedCrash
from moldau.log.partition_loading import load_log
from moldau.log.partition_log import Log
from moldau.log.producer_state import EndTransactionMarker, ProducerState, read_end_transaction_marker
from moldau.log.verification import DISABLED
from moldau.protocol.compression import Codec
from moldau.protocol.records import Record, build_batch, iter_records
from moldau.testing.full_run import in_full_run

NOW = 1_700_000_000_000
DIRECTORY = "/data/topic-0"


class Batch(NamedTuple):
    """A batch of a request: its offsets, the value of its records, and its role in a transaction."""

    first_offset: int
    last_offset: int
    value: bytes
    transaction: tuple[int, str] | None = None  # producer id; "write", "commit" or "abort"


class History:
    """The requests to a log and its responses, with which the next startup is compared."""

    STEPS: tuple[str, ...] = (
        "append",
        "write_in_transaction",
        "end_transaction",
        "roll",
        "flush",
        "cut",
        "delete",
        "lead",
        "stop",
    )
    WEIGHTS: tuple[int, ...] = (24, 8, 6, 2, 4, 1, 1, 2, 1)

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.file_system: Any = MemoryFileSystem()
        self.file_system.make_directory(DIRECTORY)
        self.file_system.sync_directory(DIRECTORY)
        self.acknowledged: list[Batch] = []
        self.in_flight: Batch | None = None
        self.cut_in_flight: int | None = None
        self.restorable: list[Batch] | None = None  # what a power failure may restore: a cut is not synced yet
        self.durable_end = 0  # the end of the records that were acknowledged as flushed
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
        self._continue_sequences()

    def _continue_sequences(self) -> None:
        self.sequences = {entry.producer_id: entry.last_sequence + 1 for entry in self.log.producers}
        self.epochs = {entry.producer_id: entry.epoch for entry in self.log.producers}

    def _lower_recovery_point(self, log: Log) -> None:
        self.recovery_point = min(self.recovery_point, log.recovery_point)

    def run(self, steps: int) -> None:
        """Until the process dies, or for so many steps."""
        try:
            for _ in range(steps):
                getattr(self, self.dice.choices(self.STEPS, self.WEIGHTS)[0])()
                if not self.log.cut_is_unsynced:
                    self.restorable = None
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

    def write_in_transaction(self) -> None:
        producer_id = self.dice.choice([5, 6])
        count = self.dice.randint(1, 3)
        value = self.dice.randbytes(self.dice.randint(0, 90))
        sequence = self.sequences.get(producer_id, 0)
        data = build_batch(
            [Record(0, NOW, b"%d" % index, value) for index in range(count)],
            producer_id=producer_id,
            producer_epoch=self.epochs.get(producer_id, 0),
            base_sequence=sequence,
            transactional=True,
        )
        end = self.log.log_end_offset
        self.in_flight = Batch(end, end + count - 1, value, (producer_id, "write"))
        info = self.log.append(data, now_ms=NOW, leader_epoch=self.leader_epoch, verification=DISABLED)
        assert (info.duplicate, info.first_offset) == (False, end)
        self.acknowledged.append(self.in_flight)
        self.in_flight = None
        self.sequences[producer_id] = sequence + count

    def end_transaction(self) -> None:
        """Producer 5 has one epoch for all its transactions, 6 a new one for each (KIP-890)."""
        producer_id = self.dice.choice([5, 6])
        committed = self.dice.random() < 0.5
        end = self.log.log_end_offset
        epoch = self.epochs.get(producer_id, 0) + (producer_id == 6)
        self.in_flight = Batch(end, end, b"", (producer_id, "commit" if committed else "abort"))
        self.log.append_marker(
            producer_id,
            epoch,
            EndTransactionMarker(committed, 0),
            transaction_version=2 if producer_id == 6 else 1,
            now_ms=NOW,
            leader_epoch=self.leader_epoch,
        )
        self.acknowledged.append(self.in_flight)
        self.in_flight = None
        if producer_id == 6:
            self.sequences[producer_id] = 0
        self.epochs[producer_id] = epoch

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
                if self.restorable is None:
                    self.restorable = list(self.acknowledged)
                self.log.truncate_to(offset, NOW, sync=self.dice.random() < 0.5)
                self.cut_in_flight = None
                self.durable_end = min(self.durable_end, offset)
                self.acknowledged = [batch for batch in self.acknowledged if batch.last_offset < offset]
                self._continue_sequences()

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
        requested = [*self.acknowledged, *([self.in_flight] if self.in_flight is not None else [])]
        visible = [batch for batch in requested if batch.last_offset >= self.log.log_start_offset]
        found = stored(self.log)
        if power_loss is not None and self.restorable is not None and found != visible[: len(found)]:
            requested = self.restorable
            visible = [batch for batch in requested if batch.last_offset >= self.log.log_start_offset]
        assert found == visible[: len(found)], "the remaining batches are not a prefix of the requested ones"
        expected_end = self.durable_end
        if power_loss is None and self.acknowledged:
            expected_end = self.acknowledged[-1].last_offset + 1
        if self.cut_in_flight is not None:
            expected_end = min(expected_end, self.cut_in_flight)
        assert self.log.log_end_offset >= expected_end, "something is lost that was promised"
        self.acknowledged = [batch for batch in requested if batch.last_offset < self.log.log_end_offset]
        self.check_transactions()
        self.in_flight = self.cut_in_flight = self.restorable = None
        self.durable_end = min(self.durable_end, self.log.log_end_offset)

    def check_transactions(self) -> None:
        """The open ones and the aborted ones are those of the history."""
        opened: dict[int, int] = {}
        aborted: list[tuple[int, int, int, int]] = []
        for batch in self.acknowledged:
            producer_id, kind = batch.transaction or (0, "")
            if kind == "write":
                opened.setdefault(producer_id, batch.first_offset)
            elif kind and producer_id in opened:
                first_offset = opened.pop(producer_id)
                if kind == "abort":
                    end = batch.first_offset
                    aborted.append((producer_id, first_offset, end, min([*opened.values(), end + 1])))
        log = self.log
        assert log.producers.open_transactions == {first: producer_id for producer_id, first in opened.items()}
        assert list(log.producers.open_transactions) == sorted(opened.values())
        expected = [entry for entry in aborted if entry[2] >= log.log_start_offset]
        assert log.aborted_transactions(log.log_start_offset, log.log_end_offset) == expected


def stored(log: Log) -> list[Batch]:
    found = []
    for batch in log.batches(log.log_start_offset):
        transaction = (batch.producer_id, "write") if batch.is_transactional else None
        values = {record.value for record in iter_records(batch)}
        if batch.is_control:
            marker = read_end_transaction_marker(batch)
            assert marker is not None
            transaction = (batch.producer_id, "commit" if marker.committed else "abort")
            values = {b""}
        (value,) = values
        assert value is not None
        found.append(Batch(batch.base_offset, batch.last_offset, value, transaction))
    return found


def check_agreement(log: Log) -> None:
    """All state that is derived from the batches matches the batches."""
    producers = ProducerState()
    epochs: dict[int, int] = {}
    largest = -1
    end = log.segments[0].base_offset
    for batch in log.batches(end):
        assert batch.has_valid_crc()
        assert batch.base_offset == end, "a gap"
        end = batch.next_offset
        producers.replay(batch, batch if batch.is_control else None)
        largest = max(largest, batch.max_timestamp)
        epochs.setdefault(batch.partition_leader_epoch, batch.base_offset)
        if end > log.log_start_offset:
            assert log.epoch_of(max(batch.base_offset, log.log_start_offset)) == batch.partition_leader_epoch
    assert end == log.log_end_offset
    for known in producers:
        # The log may have more state, of deleted records, but no other.
        entry = log.producers.producers[known.producer_id]
        assert entry.epoch == known.epoch
        assert not known.batches or entry.batches[-1] == known.batches[-1]
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
@pytest.mark.parametrize("seed", [*range(80), *in_full_run(*range(80, 200))])
def test_after_a_crash_at_any_change_a_consistent_prefix_remains(seed: int, power_lost: bool) -> None:
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
def test_a_clean_shutdown_survives_an_immediate_power_failure(seed: int) -> None:
    history = History(seed)
    history.run(60)
    # An epoch without a record is not kept: the next leader has a later one.
    epochs = [entry for entry in history.log.leader_epochs.entries if entry[1] < history.log.log_end_offset]
    before = (stored(history.log), epochs, history.sequences)
    history.log.close(NOW)
    history.file_system = history.file_system.crash(random.Random(seed))
    history.start(clean=True)
    check_agreement(history.log)
    assert history.log.repairs == []
    assert (stored(history.log), history.log.leader_epochs.entries, history.sequences) == before
    history.check_transactions()

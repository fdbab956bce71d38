"""All operations on logs, together, from a seed. After each crash the logs are compared with a list.

There are three partitions of a log manager, with `replication.Partition` on top, as in the server. Every step does
something with one of them: an append (plain, idempotent, transactional, with any codec), a repeated batch, a read, a
lookup by time, a flush in its three parts, a roll, a truncation, retention, DeleteRecords, a part of a compaction pass,
a new leader epoch, a change of settings, an hour that passes. Some steps affect all partitions: checkpoints, a clean
shutdown, a kill of the process, a power failure. Kills and power failures also happen during any other step, and
during the recovery from the previous one.

The file system is in memory and loses or tears unsynced data, or it is a real one, where processes are killed without
power failures.

The simulation compares records (with headers and timestamps), log start offset, high watermark and last stable offset,
aborted transactions, producers (the last batch is a duplicate, the next sequence is accepted) and leader epochs.
`moldau log verify` must find no errors in the files.

    python -m tests.simulation.simulation --seed 7 --steps 300        replays a failure
    python -m tests.simulation.simulation --seeds 1000 --steps 600    runs for long, and stops at the first failure
"""

from __future__ import annotations

import argparse
import hashlib
import random
import sys
from collections import Counter
from contextlib import suppress
from typing import Any

from moldau.inspection.finding import Severity
from moldau.inspection.log_directories import inspect
from moldau.log.compaction.compact import compact
from moldau.log.compaction.job import CompactionResult
from moldau.log.compaction.running import Compaction
from moldau.log.config import LogConfig
from moldau.log.files import FileSystem
from moldau.log.flushing import Flush
from moldau.log.manager import LogManager
from moldau.log.memory_files import MemoryFileSystem, SimulatedCrash
from moldau.log.partition_log import Log
from moldau.log.producer_state import read_end_transaction_marker
from moldau.log.retention import count_segments
from moldau.log.verification import DISABLED
from moldau.protocol.compression import Codec
from moldau.protocol.errors import KafkaError
from moldau.protocol.records import Record, RecordBatch, build_batch, iter_batches, iter_records
from moldau.replication.partition import ISOLATION_READ_COMMITTED, ISOLATION_READ_UNCOMMITTED, Partition

from .model import Batch, History, Kept, Pass, check_contents

NOW = 1_700_000_000_000
NEVER = 0x7FFF_FFFF_FFFF_FFFF
NODE = 1
KEYS = [b"key %d" % number for number in range(12)]
IDEMPOTENT = (3, 4)
TRANSACTIONAL = (5, 6)
"""Producer 5 has one epoch for all its transactions, producer 6 a new one for each (KIP-890)."""


class SimulationError(AssertionError):
    """The state differs from the expected one. The message has the command that reproduces it."""


class Subject:
    """One partition: the log under test, its expected state, and its operations in progress."""

    def __init__(self, topic: str, topic_id: bytes, config: LogConfig) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.config = config
        self.history = History()
        self.view: list[Kept] = []
        """The expected records of the log, without deleted ones."""
        self.in_flight: Batch | None = None
        self.cut_in_flight: int | None = None
        self.start_limit = 0
        """The maximum log start offset. It exceeds that of the history while records are being deleted."""
        self.flushed_from = 0
        """A high watermark above this offset has been flushed while `flush.messages` is 1."""
        self.leader_epoch = 0
        self.partition: Partition
        self.wanted: list[Log] = []
        self.flush: Flush | None = None
        self.flush_has_run = False
        self.compaction: Compaction | None = None
        self.result: CompactionResult | None = None
        self.clean_offset: int | None = None
        self.swapping = False
        """Whether a compacted segment is being swapped in."""

    @property
    def log(self) -> Log:
        return self.partition.log

    def note_promises(self) -> None:
        history = self.history
        history.promised = max(history.promised, self.log.flushed_offset)
        if self.config.flush_messages == 1 and self.partition.high_watermark > self.flushed_from:
            history.promised = max(history.promised, self.partition.high_watermark)


class Simulation:
    """A simulation; see the docstring of the module. `run` raises `SimulationError` if a check fails."""

    STEPS: dict[str, int] = {  # noqa: RUF012
        "append": 30,
        "append_idempotent": 12,
        "write_in_transaction": 10,
        "end_transaction": 9,
        "send_again": 4,
        "read": 10,
        "look_up_time": 3,
        "flush": 5,
        "begin_flush": 10,
        "run_flush": 10,
        "end_flush": 10,
        "roll": 3,
        "cut": 2,
        "retain": 3,
        "delete_records": 2,
        "begin_compaction": 6,
        "compact": 6,
        "interrupt_compaction": 1,
        "put_in_place": 8,
        "end_compaction": 4,
        "lead": 2,
        "configure": 3,
        "pass_time": 4,
        "checkpoint": 3,
        "empty_trash": 2,
        "arm": 4,
        "crash_now": 1,
        "stop": 1,
    }

    def __init__(self, seed: int, file_system: FileSystem | None = None, root: str = "/data") -> None:
        self.seed = seed
        self.dice = random.Random(f"simulation {seed}")
        self.root = root
        self.file_system: Any = file_system
        if file_system is None:
            self.file_system = MemoryFileSystem(journalled=self.dice.random() < 0.5)
            self.file_system.make_directory(root)
            self.file_system.sync_directory("")
        self.in_memory = file_system is None
        self.group_commit = self.dice.random() < 0.7
        self.now_ms = NOW
        self.step = 0
        self.armed = False
        self.power_fails = False
        self.counts: Counter[str] = Counter()
        self.digest = hashlib.sha256()
        policies = [("delete",), ("compact",), ("compact", "delete")]
        self.subjects = [
            Subject(f"t{number}", bytes([number + 1]) * 16, self._config(policy))
            for number, policy in enumerate(policies)
        ]
        self._start()

    # Running

    def run(self, steps: int) -> None:
        """Run ``steps`` steps, a crash, and a clean shutdown. Raises `SimulationError`."""
        names, weights = list(self.STEPS), list(self.STEPS.values())
        name = "the start"
        try:
            for self.step in range(1, steps + 1):
                name = self.dice.choices(names, weights)[0]
                self.counts[name] += 1
                self._take(name)
            self.step, name = steps, "the crash at the end"
            self._crash(power_lost=False)
            self.stop()
        except Exception as error:
            raise SimulationError(
                f"seed {self.seed}, step {self.step} ({name}): {error!r}\n"
                f"See it again: python -m tests.simulation.simulation --seed {self.seed} --steps {self.step}"
                + ("" if self.in_memory else " --directory NEW_DIRECTORY")
            ) from error

    def _take(self, name: str) -> None:
        subject = self.dice.choice(self.subjects)
        try:
            getattr(self, name)(subject)
        except SimulatedCrash:
            self.counts["crash in " + name] += 1
            self._crash(power_lost=self.power_fails)
            return
        for one in self.subjects:
            one.note_promises()
            partition, log = one.partition, one.log
            assert log.log_end_offset == one.history.end_offset, f"{log} ends elsewhere than {one.history.end_offset}"
            assert log.log_start_offset <= partition.last_stable_offset <= partition.high_watermark
            assert partition.high_watermark <= log.log_end_offset
        said = f"{name} {subject.topic} {subject.log.log_start_offset} {subject.log.log_end_offset} {subject.log.size}"
        self.digest.update(said.encode())

    def _start(self) -> None:
        """Start the logs as the server does."""
        self.manager = LogManager([self.root], node_id=NODE, cluster_id="simulation", file_system=self.file_system)
        self.manager.open()
        configs = {subject.topic: subject.config for subject in self.subjects}
        self.report = self.manager.load(now_ms=self.now_ms, config_of=configs.__getitem__)
        assert not self.report.failed, self.report.failed
        for subject in self.subjects:
            log = self.manager.get_or_create(subject.topic, subject.topic_id, 0, subject.config, now_ms=self.now_ms)
            subject.wanted = []
            subject.flush = subject.compaction = subject.result = None
            subject.clean_offset = self.manager.clean_offsets.get((subject.topic, 0))
            request_flush = subject.wanted.append if self.group_commit else None
            subject.partition = Partition(subject.topic, subject.topic_id, 0, NODE, log, request_flush)
            subject.flushed_from = log.log_end_offset
            self.lead(subject)

    # Appending

    def append(self, subject: Subject) -> None:
        self._append(subject, -1, transactional=False)

    def append_idempotent(self, subject: Subject) -> None:
        self._append(subject, self.dice.choice(IDEMPOTENT), transactional=False)

    def write_in_transaction(self, subject: Subject) -> None:
        self._append(subject, self.dice.choice(TRANSACTIONAL), transactional=True)

    def _append(self, subject: Subject, producer_id: int, *, transactional: bool) -> None:
        known = subject.history.producers().get(producer_id)
        epoch = -1 if producer_id < 0 else 0 if known is None else known.epoch
        sequence = -1 if producer_id < 0 else 0 if known is None else known.last_sequence + 1
        offset = subject.log.log_end_offset
        stamped = subject.config.message_timestamp_type == "LogAppendTime"
        records = []
        for number in range(self.dice.randint(1, 4)):
            timestamp = self.now_ms + self.dice.randint(-20_000, 1_000)
            records.append(self._record(subject, offset + number, self.now_ms if stamped else timestamp))
        batch = Batch(tuple(records), producer_id, epoch, sequence, subject.leader_epoch, transactional)
        subject.in_flight = batch
        data = self._bytes_of(batch, self.dice.choice(list(Codec)))
        info = subject.partition.append(data, acks=-1, now_ms=self.now_ms, verification=DISABLED)
        assert (info.duplicate, info.first_offset) == (False, offset)
        self._appended(subject)

    def _record(self, subject: Subject, offset: int, timestamp: int) -> Kept:
        dice = self.dice
        key = None if not subject.config.compacted and dice.random() < 0.2 else dice.choice(KEYS)
        value = None if dice.random() < 0.15 else dice.randbytes(dice.randint(0, 60))
        headers = ((f"h{dice.randint(0, 9)}", dice.choice([None, b"", b"x"])),) if dice.random() < 0.2 else ()
        return Kept(offset, timestamp, key, value, headers)

    @staticmethod
    def _bytes_of(batch: Batch, codec: Codec) -> bytes:
        return build_batch(
            [Record(0, kept.timestamp, kept.key, kept.value, kept.headers) for kept in batch.records],
            codec=codec,
            producer_id=batch.producer_id,
            producer_epoch=batch.producer_epoch,
            base_sequence=batch.base_sequence,
            transactional=batch.transactional,
        )

    def end_transaction(self, subject: Subject) -> None:
        producer_id = self.dice.choice(TRANSACTIONAL)
        known = subject.history.producers().get(producer_id)
        epoch = (0 if known is None else known.epoch) + (producer_id == 6)
        committed = self.dice.random() < 0.6
        marker = "commit" if committed else "abort"
        kept = Kept(subject.log.log_end_offset, self.now_ms, None, None, (), marker)
        subject.in_flight = Batch((kept,), producer_id, epoch, -1, subject.leader_epoch, False)
        info = subject.partition.append_marker(
            producer_id,
            epoch,
            coordinator_epoch=0,
            committed=committed,
            transaction_version=2 if producer_id == 6 else 1,
            now_ms=self.now_ms,
        )
        assert info.first_offset == kept.offset
        self._appended(subject)

    def _appended(self, subject: Subject) -> None:
        batch, subject.in_flight = subject.in_flight, None
        assert batch is not None
        history = subject.history
        history.batches.append(batch)
        subject.view += batch.records
        if subject.config.flush_messages == 1:

            def on_committed(error: KafkaError | None) -> None:
                # The current setting applies: it may have changed while the batch waited.
                if error is None and subject.config.flush_messages == 1:
                    history.promised = max(history.promised, batch.end_offset)

            subject.partition.when_committed(batch.end_offset, on_committed)

    def send_again(self, subject: Subject) -> None:
        """A producer has not received the response for its last batch and sends it again."""
        for producer in subject.history.producers().values():
            if producer.last_batch is not None:
                self._check_duplicate(subject, producer.last_batch)

    def _check_duplicate(self, subject: Subject, batch: Batch) -> None:
        if subject.config.compacted and any(kept.key is None for kept in batch.records):
            return  # the topic was not compacted when the batch was written; now the batch would be rejected
        data = self._bytes_of(batch, Codec.NONE)
        info = subject.partition.append(data, acks=-1, now_ms=self.now_ms, verification=DISABLED)
        assert info.duplicate, f"the last batch of producer {batch.producer_id} was taken twice"
        assert info.last_offset == batch.end_offset - 1, "the response to a duplicate has other offsets"

    # Reading

    def read(self, subject: Subject) -> None:
        partition, log = subject.partition, subject.log
        level = self.dice.choice([ISOLATION_READ_COMMITTED, ISOLATION_READ_UNCOMMITTED])
        end = partition.visible_end_offset(level)
        offset = self.dice.randint(log.log_start_offset, max(end, log.log_start_offset))
        max_bytes = self.dice.choice([1, 300, 2_000, 1 << 20])
        found = partition.read(offset, max_bytes, isolation_level=level, min_one_batch=True)
        expected = [kept for kept in subject.view if offset <= kept.offset < end]
        if found.records is None:
            assert not expected, f"a read from {offset} found nothing of {expected[0].offset} to {end}"
            return
        with found.records:
            batches = list(iter_batches(found.records.read()))
        assert batches
        assert batches[-1].next_offset <= end
        records = [kept for batch in batches for kept in _records_of(batch)]
        got = [kept for kept in records if kept.offset >= offset]
        assert got == expected[: len(got)], f"a read from {offset} found {got}"
        later = expected[len(got) : len(got) + 1]
        assert not later or later[0].offset >= batches[-1].next_offset
        if level == ISOLATION_READ_COMMITTED:
            listed = {(entry.producer_id, entry.first_offset) for entry in found.aborted_transactions}
            _opened, aborted = subject.history.transactions()
            assert listed <= {(entry.producer_id, entry.first_offset) for entry in aborted}
            in_range = range(max(offset, batches[0].base_offset), batches[-1].next_offset)
            _check_aborted(subject, listed, in_range)

    def look_up_time(self, subject: Subject) -> None:
        timestamp = self.now_ms + self.dice.randint(-100_000, 2_000)
        start = subject.log.log_start_offset
        found = subject.log.offset_for_timestamp(timestamp)
        first = next((kept for kept in subject.view if kept.offset >= start and kept.timestamp >= timestamp), None)
        assert (None if found is None else (found.timestamp, found.offset)) == (
            None if first is None else (first.timestamp, first.offset)
        )

    # Flushing

    def flush(self, subject: Subject) -> None:
        """Complete a running flush first: a log has one flush at a time."""
        self.end_flush_whole(subject)
        subject.log.flush(self.now_ms)

    def end_flush_whole(self, subject: Subject) -> None:
        self.run_flush(subject)
        self.end_flush(subject)

    def begin_flush(self, subject: Subject) -> None:
        # Without group commit, appends flush synchronously, and no other flush may be running.
        if subject.flush is None and self.group_commit and (subject.wanted or self.dice.random() < 0.2):
            subject.wanted.clear()
            subject.flush = subject.log.begin_flush()
            subject.flush_has_run = False

    def run_flush(self, subject: Subject) -> None:
        if subject.flush is not None and not subject.flush_has_run:
            subject.flush.run()
            subject.flush_has_run = True

    def end_flush(self, subject: Subject) -> None:
        if subject.flush is not None and subject.flush_has_run:
            flush, subject.flush = subject.flush, None
            subject.log.end_flush(flush, self.now_ms)

    def settle(self, subject: Subject) -> None:
        """Flush until all pending appends have been acknowledged."""
        self.end_flush_whole(subject)
        while subject.wanted:
            self.begin_flush(subject)
            self.end_flush_whole(subject)

    # Operations on segments

    def roll(self, subject: Subject) -> None:
        subject.log.roll(self.now_ms)

    def cut(self, subject: Subject) -> None:
        """Follow another leader for a short time. That leader does not have the end of this log."""
        history, partition = subject.history, subject.partition
        lowest = max(subject.log.log_start_offset, history.compacted_until)
        borders = [batch.first_offset for batch in history.batches[-6:] if batch.first_offset >= lowest]
        if not borders or partition.uncommitted is not None:
            return
        offset = self.dice.choice(borders)
        subject.cut_in_flight = offset
        subject.leader_epoch += 1
        subject.partition.become_follower(
            leader_id=NODE + 1, leader_epoch=subject.leader_epoch, partition_epoch=0, replicas=(NODE,), isr=(NODE,)
        )
        subject.log.truncate_to(offset, self.now_ms)
        subject.cut_in_flight = None
        history.cut(offset)
        subject.flushed_from = min(subject.flushed_from, offset)
        subject.view = [kept for kept in subject.view if kept.offset < offset]
        self.lead(subject)

    def retain(self, subject: Subject) -> None:
        """Like the server: the data after deleted segments must be durable first."""
        log, partition = subject.log, subject.partition
        count = count_segments(log.find_old_segments(partition.high_watermark, self.now_ms))
        if not count:
            return
        if count == len(log.segments):
            log.roll(self.now_ms)
        self.flush(subject)
        limit = min(partition.high_watermark, log.recovery_point, log.segments.active.base_offset)
        found = log.find_old_segments(limit, self.now_ms)
        if found:
            self.counts["segments deleted"] += count_segments(found)
            subject.start_limit = log.log_end_offset
            log.delete_first_segments(count_segments(found))
            subject.start_limit = subject.history.start_offset = log.log_start_offset

    def delete_records(self, subject: Subject) -> None:
        partition = subject.partition
        if subject.config.cleanup_policy == ("compact",):
            return
        offset = self.dice.randint(subject.log.log_start_offset, partition.high_watermark)
        subject.start_limit = max(subject.start_limit, offset)
        partition.delete_records_before(offset)
        subject.start_limit = subject.history.start_offset = subject.log.log_start_offset

    # Compaction, in the steps of a pass in the server

    def begin_compaction(self, subject: Subject) -> None:
        log = subject.log
        if subject.compaction is not None or not subject.config.compacted:
            return
        log.prepare_compaction()
        self.flush(subject)
        self.file_system.sync_directory(log.directory)
        self.checkpoint(subject)
        self.file_system.sync_directory(self.root)
        cleanable = log.cleanable(subject.clean_offset, subject.partition.last_stable_offset, self.now_ms)
        buffer = self.dice.choice([208 * 3, 208 * 6, 1 << 20])
        subject.compaction = log.begin_compaction(cleanable, now_ms=self.now_ms, dedupe_buffer_bytes=buffer)
        if subject.compaction is not None:
            job = subject.compaction.job
            end = job.segments[-1].end_offset
            subject.history.passes.append(Pass(end, self.now_ms, job.delete_retention_ms))

    def compact(self, subject: Subject) -> None:
        if subject.compaction is not None and subject.result is None:
            try:
                subject.result = compact(subject.compaction.job, self.file_system)
            except FileNotFoundError:  # retention has unlinked the files already
                self._abandon(subject)
                return
            self.counts["records compacted away"] += subject.result.statistics.records_dropped

    def interrupt_compaction(self, subject: Subject) -> None:
        """The worker dies during compaction."""
        if subject.compaction is not None and subject.result is None:
            left = self.dice.randint(0, 3)

            def count_down(done: int, total: int) -> None:
                nonlocal left
                left -= 1
                if left < 0:
                    raise InterruptedError

            with suppress(InterruptedError, FileNotFoundError):
                compact(subject.compaction.job, self.file_system, on_progress=count_down)
            self._abandon(subject)

    def put_in_place(self, subject: Subject) -> None:
        compaction, result = subject.compaction, subject.result
        if compaction is None or result is None or compaction.placed >= len(result.replacements):
            return
        subject.swapping = True
        if not compaction.put_in_place(result.replacements[compaction.placed], self.now_ms):
            self._abandon(subject)
        subject.swapping = False
        self._look_again(subject)

    def end_compaction(self, subject: Subject) -> None:
        compaction, result = subject.compaction, subject.result
        if compaction is None or result is None:
            return
        log = subject.log
        subject.swapping = True
        complete = compaction.end(result, self.now_ms)
        subject.swapping = False
        subject.compaction = subject.result = None
        self._look_again(subject)
        self.file_system.sync_directory(log.directory)
        if complete and result.clean_offset <= log.flushed_offset:
            subject.clean_offset = self.manager.clean_offsets[subject.topic, 0] = result.clean_offset
            files = self.manager.begin_cleaner_checkpoints()
            files.run()
            self.manager.end_checkpoints(files)
            self.counts["passes"] += 1

    def _abandon(self, subject: Subject) -> None:
        compaction, subject.compaction, subject.result = subject.compaction, None, None
        assert compaction is not None
        compaction.cancel()

    def _look_again(self, subject: Subject) -> None:
        log = subject.log
        subject.view = contents(log)
        check_contents(subject.history, subject.view, log.log_start_offset, log.log_end_offset, self.now_ms)

    # Other operations

    def lead(self, subject: Subject) -> None:
        subject.leader_epoch = max(subject.leader_epoch, subject.log.latest_epoch) + 1
        subject.partition.become_leader(
            leader_epoch=subject.leader_epoch, partition_epoch=0, replicas=(NODE,), isr=(NODE,), now_ms=self.now_ms
        )

    def configure(self, subject: Subject) -> None:
        was_compacted = subject.config.compacted
        policies = [subject.config.cleanup_policy, ("compact", "delete")]
        if not was_compacted:
            policies.append(("compact",))
        subject.config = self._config(self.dice.choice(policies))
        subject.flushed_from = subject.log.log_end_offset
        subject.partition.update_config(subject.config, min_insync_replicas=1)

    def _config(self, cleanup_policy: tuple[str, ...]) -> LogConfig:
        choice = self.dice.choice
        return LogConfig(
            segment_bytes=choice([700, 1_500, 4_000]),
            segment_ms=choice([NEVER, NEVER, 3_600_000]),
            index_interval_bytes=choice([0, 200, 4_096]),
            flush_messages=choice([NEVER, NEVER, 1, 1, 4]),
            retention_ms=choice([-1, 5 * 3_600_000]),
            retention_bytes=choice([-1, -1, 3_000]),
            cleanup_policy=cleanup_policy,
            message_timestamp_type=choice(["CreateTime", "CreateTime", "LogAppendTime"]),
            min_compaction_lag_ms=choice([0, 0, 60_000]),
            delete_retention_ms=choice([0, 1, 3_600_000]),
            producer_id_expiration_ms=NEVER,
        )

    def pass_time(self, subject: Subject) -> None:
        self.now_ms += self.dice.choice([1, 1_000, 60_000, 3_600_000])

    def checkpoint(self, subject: Subject) -> None:
        self.manager.flush_checkpoints(self._high_watermarks())

    def _high_watermarks(self) -> dict[tuple[str, int], int]:
        return {(one.topic, 0): one.partition.high_watermark for one in self.subjects}

    def empty_trash(self, subject: Subject) -> None:
        self.manager.remove_trash(self.manager.take_trash())

    # Crashes

    def arm(self, subject: Subject) -> None:
        """Make the process die at one of the next changes to the file system."""
        if self.in_memory:
            self.power_fails = self.dice.random() < 0.6
            self.file_system.operations_left = self.dice.randint(0, 60)

    def crash_now(self, subject: Subject) -> None:
        self._crash(power_lost=self.in_memory and self.dice.random() < 0.6)

    def _crash(self, *, power_lost: bool) -> None:
        """Kill the process, possibly with a power failure. Then start again and compare with the expected state."""
        self.counts["power lost" if power_lost else "killed"] += 1
        self._die(power_lost)
        while True:
            if self.in_memory and self.dice.random() < 0.15:
                self.file_system.operations_left = self.dice.randint(0, 25)
            try:
                self._start()
                self.file_system.operations_left = None
                break
            except SimulatedCrash:
                self.counts["crash in a recovery"] += 1
                again = self.dice.random() < 0.5
                power_lost |= again
                self._die(again)
        for subject in self.subjects:
            self._check(subject, power_lost)
        if self.dice.random() < 0.25:
            self._examine()

    def _die(self, power_lost: bool) -> None:
        if self.in_memory:
            self.file_system = self.file_system.crash(self.dice if power_lost else None)
        else:
            self.manager.files.close()
            for directory in self.manager.directories:
                directory.release()

    def stop(self, subject: Subject | None = None) -> None:
        """A clean shutdown, after which all data is durable, and the next startup."""
        for one in self.subjects:
            self.settle(one)
            if one.compaction is not None:
                self._abandon(one)
        self.manager.close(now_ms=self.now_ms, high_watermarks=self._high_watermarks())
        for one in self.subjects:
            one.history.promised = one.history.end_offset
        self._inspect(self.file_system)
        self._start()
        for one in self.subjects:
            self._check(one, power_lost=False)

    def _check(self, subject: Subject, power_lost: bool) -> None:
        """Compare the state after startup with the expected state. It is the expected state from now on."""
        log, history = subject.log, subject.history
        before = subject.view
        if subject.in_flight is not None:
            history.batches.append(subject.in_flight)
        start, end = log.log_start_offset, log.log_end_offset
        expected_end = history.promised if power_lost else history.end_offset
        if subject.in_flight is not None:
            expected_end = min(expected_end, subject.in_flight.first_offset)
        if subject.cut_in_flight is not None:
            expected_end = min(expected_end, subject.cut_in_flight)
        limit = max(history.start_offset, subject.start_limit)
        assert end >= expected_end, f"{subject.topic} ends at {end}: {expected_end} was promised"
        assert end <= max(history.end_offset, limit), f"{subject.topic} ends at {end}, beyond {history.end_offset}"
        assert start <= limit, f"{subject.topic} begins at {start}: {limit} was the limit"
        history.batches = [batch for batch in history.batches if batch.end_offset <= end]
        last = history.batches[-1].end_offset if history.batches else 0
        # The remaining records may end before the log start offset of a checkpoint. Then the log starts again there
        # without producers.
        was_reset = power_lost and start == end and not log.producers.producers
        assert end in (last, history.start_offset) or was_reset, f"a batch is there in part: {last} instead of {end}"
        if was_reset:
            history.batches = []
        subject.view = contents(log)
        check_contents(history, subject.view, start, end, self.now_ms)
        if not power_lost and subject.in_flight is None and subject.cut_in_flight is None and not subject.swapping:
            old = [kept for kept in before if kept.offset >= max(start, history.start_offset)]
            new = [kept for kept in subject.view if kept.offset >= max(start, history.start_offset)]
            assert new == old, "a process that was killed has lost records"
        if subject.cut_in_flight is not None:
            # The truncation may be only in the page cache. Until the next flush, a power failure would undo it, with
            # all consequences: docs/known_gaps.md.
            log.flush(self.now_ms)
        history.deleted_until = max(history.deleted_until, limit)
        history.start_offset = subject.start_limit = start
        history.promised = min(history.promised, end)
        subject.in_flight = subject.cut_in_flight = None
        subject.swapping = False
        subject.flushed_from = log.log_end_offset
        self._check_state(subject)

    def _check_state(self, subject: Subject) -> None:
        """Check that the state that is stored next to the batches agrees with the batches."""
        log, history, partition = subject.log, subject.history, subject.partition
        opened, aborted = history.transactions()
        assert log.producers.open_transactions == opened, f"open: {log.producers.open_transactions}, not {opened}"
        assert list(log.producers.open_transactions) == sorted(opened)
        if partition.uncommitted is None:
            assert partition.high_watermark == log.log_end_offset
            stable = max(min(opened, default=log.log_end_offset), log.log_start_offset)
            assert partition.last_stable_offset == stable
        listed = log.aborted_transactions(log.log_start_offset, log.log_end_offset)
        known = {tuple(entry) for entry in aborted}
        assert {tuple(entry) for entry in listed} <= known, f"aborted transactions that never were: {listed}"
        pairs = {(entry.producer_id, entry.first_offset) for entry in listed}
        _check_aborted(subject, pairs, range(log.log_start_offset, log.log_end_offset))
        self._check_producers(subject)
        epochs = {record.offset: batch.leader_epoch for batch in history.batches for record in batch.records}
        for kept in subject.view:
            if kept.offset < history.deleted_until:
                continue  # deleted and restored by a crash: their epochs were deleted with them, as in Apache Kafka
            found, written = log.epoch_of(kept.offset), epochs[kept.offset]
            assert found == written, f"offset {kept.offset} of leader epoch {written} is said to be of {found}"

    def _check_producers(self, subject: Subject) -> None:
        for producer_id, producer in subject.history.producers().items():
            entry = subject.log.producers.producers.get(producer_id)
            assert entry is not None, f"producer {producer_id} is forgotten"
            assert (entry.epoch, entry.last_sequence) == (producer.epoch, producer.last_sequence)
            if producer.last_batch is not None:
                self._check_duplicate(subject, producer.last_batch)

    def _examine(self) -> None:
        """Shut a copy down cleanly and check it with `moldau log verify`."""
        if self.in_memory:
            copy = self.file_system.crash(None)
            manager = LogManager([self.root], node_id=NODE, cluster_id="simulation", file_system=copy)
            manager.open()
            configs = {subject.topic: subject.config for subject in self.subjects}
            manager.load(now_ms=self.now_ms, config_of=configs.__getitem__)
            ends = {(log.topic, log.partition): log.log_end_offset for log in manager.logs()}
            manager.close(now_ms=self.now_ms, high_watermarks=ends)
            self._inspect(copy)

    def _inspect(self, file_system: Any) -> None:
        found = inspect(file_system, [self.root], deep=True).findings
        bad = [f"{finding.path}: {finding.text}" for finding in found if finding.severity is not Severity.NOTE]
        assert not bad, "; ".join(bad)

    def close(self) -> None:
        """Close the files of a real file system."""
        self.manager.close(now_ms=self.now_ms)


def contents(log: Log) -> list[Kept]:
    """All records of a log, including markers and aborted records."""
    start = log.log_start_offset
    found = []
    for batch in log.batches(start):
        assert batch.has_valid_crc()
        found += [kept for kept in _records_of(batch) if kept.offset >= start]
    return found


def _records_of(batch: RecordBatch) -> list[Kept]:
    if not batch.record_count:
        return []
    if batch.is_control:
        marker = read_end_transaction_marker(batch)
        assert marker is not None
        said = "commit" if marker.committed else "abort"
        return [Kept(batch.base_offset, batch.max_timestamp, None, None, (), said)]
    return [
        Kept(record.offset, record.timestamp, record.key, record.value, tuple(record.headers))
        for record in iter_records(batch)
    ]


def _check_aborted(subject: Subject, listed: set[tuple[int, int]], offsets: range) -> None:
    """Check that the reader gets every aborted transaction with records in these offsets."""
    _opened, aborted = subject.history.transactions()
    there = {kept.offset for kept in subject.view if kept.offset in offsets}
    for transaction in aborted:
        if (transaction.producer_id, transaction.first_offset) in listed:
            continue
        for batch in subject.history.batches:
            if (
                batch.transactional
                and batch.producer_id == transaction.producer_id
                and transaction.first_offset <= batch.first_offset < transaction.last_offset
            ):
                left = [kept.offset for kept in batch.records if kept.offset in there]
                assert not left, f"the reader does not learn that {left} were aborted ({transaction})"


def simulate(seed: int, steps: int) -> Simulation:
    """One run on the in-memory file system."""
    simulation = Simulation(seed)
    simulation.run(steps)
    return simulation


def main() -> int:
    parser = argparse.ArgumentParser(description="Random histories of logs, with crashes, beside a list.")
    parser.add_argument("--seed", type=int, default=0, help="the first one")
    parser.add_argument("--seeds", type=int, default=1, help="how many, one after the other")
    parser.add_argument("--steps", type=int, default=500, help="in each")
    parser.add_argument("--directory", help="a new one for each seed is made in it, on the real file system")
    options = parser.parse_args()
    total: Counter[str] = Counter()
    for seed in range(options.seed, options.seed + options.seeds):
        if options.directory:
            from moldau.log.files import RealFileSystem

            file_system = RealFileSystem(durable=False)
            root = f"{options.directory}/{seed}"
            file_system.make_directory(root)
            simulation = Simulation(seed, file_system, root)
            simulation.run(options.steps)
            simulation.close()
        else:
            simulation = simulate(seed, options.steps)
        total += simulation.counts
        print(f"seed {seed}: {options.steps} steps, {simulation.digest.hexdigest()[:16]}", flush=True)
    print(", ".join(f"{name} {count}" for name, count in sorted(total.items())))
    return 0


if __name__ == "__main__":
    sys.exit(main())

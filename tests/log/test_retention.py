"""Which segments are old: a table of cases, random cases compared with a model, and histories of a log."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from moldau.log.config import LogConfig
from moldau.log.producer_state import EndTransactionMarker
from moldau.log.retention import OldSegments, Reason, count_segments, explain, find_old_segments
from moldau.log.verification import DISABLED
from moldau.protocol.errors import ErrorCode, KafkaError

NOW = 1_700_000_000_000
Batch = Callable[..., bytes]
BaseOffsets = Callable[[Any], list[int]]
START, SIZE, TIME = Reason.LOG_START_OFFSET, Reason.SIZE, Reason.TIME


@dataclass
class FakeSegment:
    base_offset: int
    size: int
    timestamp: int
    looks: int = 0

    def largest_timestamp(self) -> int:
        self.looks += 1
        return self.timestamp


Old = tuple[Reason, int, int]
"""Why segments are deleted, how many, and their size."""


def segments(*ages_ms: int, size: int = 100) -> list[FakeSegment]:
    """Segments of ten offsets each; the last one is active."""
    return [FakeSegment(10 * number, size, NOW - age_ms) for number, age_ms in enumerate(ages_ms)]


def old(log: list[FakeSegment], *, start: int = 0, until: int | None = None, **config: Any) -> list[Old]:
    end = log[-1].base_offset + (10 if log[-1].size else 0)
    found = find_old_segments(
        log,
        log_start_offset=start,
        log_end_offset=end,
        high_watermark=end if until is None else until,
        config=LogConfig(**{"retention_ms": -1} | config),
        now_ms=NOW,
    )
    return [(each.reason, each.segment_count, each.size) for each in found]


HOURS = 3_600_000
DELETE, COMPACT, BOTH, NOTHING = ("delete",), ("compact",), ("compact", "delete"), ()


@pytest.mark.parametrize(
    ("what", "log", "arguments", "expected"),
    [
        ("nothing is old", segments(9, 5, 1), {"retention_ms": 10}, []),
        ("exactly as old as allowed", segments(10, 5, 1), {"retention_ms": 10}, []),
        ("one ms older", segments(11, 5, 1), {"retention_ms": 10}, [(TIME, 1, 100)]),
        ("the active one too", segments(40, 30, 20), {"retention_ms": 10}, [(TIME, 3, 300)]),
        ("an empty active one stays", [*segments(9, 8), FakeSegment(20, 0, -1)], {"retention_ms": 0}, [(TIME, 2, 200)]),
        ("nothing but an empty one", [FakeSegment(7, 0, -1)], {"retention_ms": 0, "retention_bytes": 0}, []),
        ("a young one keeps those behind it", segments(40, 5, 40, 1), {"retention_ms": 10}, [(TIME, 1, 100)]),
        ("no limit of time", segments(9 * HOURS, 1), {}, []),
        ("a retention of nothing", segments(1, 1), {"retention_ms": 0}, [(TIME, 2, 200)]),
        ("nothing is older than now", segments(0, 0), {"retention_ms": 0}, []),
        ("records of the future", segments(-HOURS, 9 * HOURS, 0), {"retention_ms": HOURS}, []),
        ("not beyond the high watermark", segments(40, 30, 20), {"retention_ms": 10, "until": 19}, [(TIME, 1, 100)]),
        ("up to the high watermark", segments(40, 30, 20), {"retention_ms": 10, "until": 20}, [(TIME, 2, 200)]),
        ("the active one reaches it", segments(40, 30, 20), {"retention_ms": 10, "until": 29}, [(TIME, 2, 200)]),
        ("as large as allowed", segments(1, 1, 1), {"retention_bytes": 300}, []),
        ("a segment too much, less one byte", segments(1, 1, 1), {"retention_bytes": 201}, []),
        ("a segment too much", segments(1, 1, 1), {"retention_bytes": 200}, [(SIZE, 1, 100)]),
        ("two too much", segments(1, 1, 1), {"retention_bytes": 99}, [(SIZE, 2, 200)]),
        ("no bytes at all", segments(1, 1, 1), {"retention_bytes": 0}, [(SIZE, 3, 300)]),
        ("no limit of size", segments(1, 1, 1), {"retention_bytes": -1}, []),
        ("size, up to the high watermark", segments(1, 1, 1), {"retention_bytes": 0, "until": 10}, [(SIZE, 1, 100)]),
        ("before the log start", segments(1, 1, 1), {"start": 20}, [(START, 2, 200)]),
        ("in the middle of a segment", segments(1, 1, 1), {"start": 19}, [(START, 1, 100)]),
        ("the log start is the end", segments(1, 1, 1), {"start": 30}, [(START, 2, 200)]),
        ("the log start beyond it", segments(1, 1, 1), {"start": 20, "until": 15}, [(START, 1, 100)]),
        (
            "for all three reasons",
            segments(*[50] * 6, 1),
            {"start": 20, "retention_bytes": 300, "retention_ms": 40},
            [(START, 2, 200), (SIZE, 2, 200), (TIME, 2, 200)],
        ),
        (
            "what is before the log start counts no more",
            segments(1, 1, 1),
            {"start": 10, "retention_bytes": 200},
            [(START, 1, 100)],
        ),
        ("compact alone", segments(50, 50), {"cleanup_policy": COMPACT, "retention_ms": 0, "retention_bytes": 0}, []),
        ("no policy", segments(50, 50), {"cleanup_policy": NOTHING, "retention_ms": 0, "retention_bytes": 0}, []),
        ("compact and a log start", segments(50, 50), {"cleanup_policy": COMPACT, "start": 12}, [(START, 1, 100)]),
        ("no policy and a log start", segments(50, 50), {"cleanup_policy": NOTHING, "start": 12}, [(START, 1, 100)]),
        ("compact and delete", segments(50, 1), {"cleanup_policy": BOTH, "retention_ms": 10}, [(TIME, 1, 100)]),
    ],
)  # fmt: skip
def test_old_segments(what: str, log: list[FakeSegment], arguments: dict[str, Any], expected: list[Old]) -> None:
    assert old(log, **arguments) == expected, what


def test_only_necessary_segments_are_checked() -> None:
    log = segments(30, 20, 5, 30, 30, 1)
    assert old(log, retention_ms=10) == [(TIME, 2, 200)]
    assert [segment.looks for segment in log] == [1, 1, 1, 0, 0, 0]


def test_the_reasons_are_described() -> None:
    found = [OldSegments(START, 2, 200), OldSegments(SIZE, 1, 100), OldSegments(TIME, 3, 300)]
    assert count_segments(found) == 6
    assert (
        explain(found, log_start_offset=25, config=LogConfig(retention_ms=7, retention_bytes=8))
        == "2 before the log start offset 25, 1 over retention.bytes=8, 3 older than retention.ms=7"
    )


Described = tuple[int, int, int, int]  # base offset, end, size, timestamp


def model(log: list[Described], start: int, high_watermark: int, config: LogConfig, now_ms: int) -> list[Described]:
    """The remaining segments after deleting one at a time."""
    rules: list[Callable[[list[Described]], bool]] = [lambda left: left[0][1] <= start and len(left) > 1]
    if "delete" in config.cleanup_policy:
        if config.retention_bytes >= 0:
            rules.append(lambda left: sum(each[2] for each in left[1:]) >= config.retention_bytes)
        if config.retention_ms >= 0:
            rules.append(lambda left: now_ms - left[0][3] > config.retention_ms)
    for rule in rules:
        while log and log[0][1] <= high_watermark and (len(log) > 1 or log[0][2]) and rule(log):
            log = log[1:]
    return log


@pytest.mark.parametrize("seed", range(40))
def test_retention_of_random_logs_matches_the_model(seed: int) -> None:
    dice = random.Random(seed)
    for _ in range(200):
        count = dice.randint(1, 7)
        bounds = sorted(dice.sample(range(60), count + 1))
        log = [FakeSegment(base, dice.choice([0, 1, 50, 100]), NOW - dice.randint(-5, 30)) for base in bounds[:-1]]
        if not log[-1].size:
            bounds[-1] = bounds[-2]
        config = LogConfig(
            cleanup_policy=dice.choice([DELETE, DELETE, BOTH, COMPACT, NOTHING]),
            retention_ms=dice.choice([-1, 0, 5, 20]),
            retention_bytes=dice.choice([-1, -1, 0, 50, 150, 300]),
        )
        start, high_watermark = dice.randint(bounds[0], bounds[-1]), dice.randint(0, bounds[-1])
        left = model(
            [
                (segment.base_offset, end, segment.size, segment.timestamp)
                for segment, end in zip(log, bounds[1:], strict=True)
            ],
            start,
            high_watermark,
            config,
            NOW,
        )
        found = find_old_segments(
            log,
            log_start_offset=start,
            log_end_offset=bounds[-1],
            high_watermark=high_watermark,
            config=config,
            now_ms=NOW,
        )
        assert count_segments(found) == len(log) - len(left)
        gone = iter(log)
        assert [each.size for each in found] == [
            sum(next(gone).size for _ in range(each.segment_count)) for each in found
        ]


# On a log


def retain(partition: Any) -> list[tuple[Reason, int]]:
    """Delete old segments, as the server does."""
    log = partition.log
    found = log.find_old_segments(log.log_end_offset, partition.now_ms)
    if count_segments(found) == len(log.segments):
        log.roll(partition.now_ms)
    log.delete_first_segments(count_segments(found))
    return [(each.reason, each.segment_count) for each in found]


def test_expired_records_are_deleted_with_all_their_files(
    partition: Any, batch: Batch, producer_batch: Batch, segments_of: BaseOffsets
) -> None:
    partition.configure(retention_ms=1_000)
    for epoch in range(3):
        partition.leader_epoch = epoch
        partition.append(producer_batch(0, producer_id=7 + epoch, transactional=True), verification=DISABLED)
        partition.log.append_marker(
            7 + epoch,
            0,
            EndTransactionMarker(False, 0),
            transaction_version=1,
            now_ms=partition.now_ms,
            leader_epoch=epoch,
        )
        partition.log.roll(partition.now_ms)
        partition.now_ms += 600
    assert [name for name in partition.names() if name.endswith((".txnindex", ".snapshot"))] == [
        "00000000000000000000.txnindex",
        "00000000000000000002.snapshot",
        "00000000000000000002.txnindex",
        "00000000000000000004.snapshot",
        "00000000000000000004.txnindex",
        "00000000000000000006.snapshot",
    ]
    assert retain(partition) == [(TIME, 2)]
    assert segments_of(partition.log) == [4, 6]
    assert (partition.log.log_start_offset, partition.log.log_end_offset) == (4, 6)
    assert partition.log.leader_epochs.entries == [(2, 4)]
    assert sorted({name.partition(".")[0] for name in partition.names() if not name.endswith(".deleted")}) == [
        "00000000000000000004",
        "00000000000000000006",
    ]
    assert partition.log.aborted_transactions(0, 6) == [
        found for found in partition.log.aborted_transactions(4, 6) if found.producer_id == 9
    ]
    assert {entry.producer_id for entry in partition.log.active_producers()} == {7, 8, 9}, (
        "they go on with their numbers"
    )
    with pytest.raises(KafkaError) as caught:
        partition.fetch(3)
    assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert retain(partition) == []


@pytest.mark.parametrize("stopped", ["clean", "killed"])
def test_a_completely_expired_log_continues_at_its_end_offset(
    partition: Any, producer_batch: Batch, segments_of: BaseOffsets, stopped: str
) -> None:
    partition.configure(retention_ms=1_000)
    for sequence in range(5):
        partition.append(producer_batch(sequence))
    partition.now_ms += 1_001
    assert retain(partition) == [(TIME, 1)]
    assert segments_of(partition.log) == [5]
    assert (partition.log.log_start_offset, partition.log.log_end_offset) == (5, 5)
    assert partition.values() == []
    partition.reopen(clean=stopped == "clean")
    assert (partition.log.log_start_offset, partition.log.log_end_offset) == (5, 5)
    assert partition.log.repairs == []
    assert partition.append(producer_batch(5)).first_offset == 5
    assert partition.append(producer_batch(5)).duplicate


def test_records_without_timestamps_use_the_modification_time(partition: Any, batch: Batch) -> None:
    partition.configure(retention_ms=1_000)
    partition.append(batch(timestamp=-1))
    partition.log.roll(partition.now_ms)
    partition.append(batch(timestamp=-1))
    modified_ms = partition.file_system.modified_ms(partition.log.segments[0].path)
    partition.now_ms = modified_ms + 1_000
    assert retain(partition) == []
    partition.now_ms = partition.file_system.modified_ms(partition.log.segments[1].path) + 1_001
    assert retain(partition) == [(TIME, 2)]
    assert partition.log.log_start_offset == 2


def test_a_compacted_log_loses_only_records_before_its_start(partition: Any, batch: Batch) -> None:
    for _ in range(3):
        partition.append(batch(b"x"))
        partition.log.roll(partition.now_ms)
    partition.configure(cleanup_policy=("compact",), retention_ms=0, retention_bytes=0)
    partition.now_ms += 10
    assert retain(partition) == []
    # As a start finds it after a crash: the checkpoint is there, and the segments before it are, too.
    partition.reopen(log_start_offset=2)
    assert retain(partition) == [(START, 2)]
    assert partition.log.log_start_offset == 2


def test_changed_settings_apply_to_the_next_check(partition: Any, batch: Batch) -> None:
    for _ in range(3):
        partition.append(batch())
        partition.log.roll(partition.now_ms)
    partition.now_ms += 10
    for settings, expected in (
        ({}, []),
        ({"retention_bytes": partition.log.size - len(batch())}, [(SIZE, 1)]),
        ({"cleanup_policy": ("compact",), "retention_ms": 5}, []),
        ({"cleanup_policy": ("delete",)}, [(TIME, 2)]),
    ):
        partition.configure(**settings)
        assert retain(partition) == expected


class History:
    """A log and its expected contents: (offset, timestamp, value), and where segments begin."""

    STEPS = ("append", "roll", "wait", "configure", "delete", "retain", "stop", "kill")
    WEIGHTS = (30, 6, 8, 3, 1, 8, 1, 1)

    def __init__(self, partition: Any, batch: Batch, seed: int) -> None:
        self.dice = random.Random(seed)
        self.partition = partition
        self.batch = batch
        self.records: list[tuple[int, int, bytes]] = []
        self.end = 0
        self.start = 0

    def step(self) -> None:
        dice, partition = self.dice, self.partition
        match dice.choices(self.STEPS, self.WEIGHTS)[0]:
            case "append":
                timestamp, value = partition.now_ms - dice.randint(0, 300), b"%d" % self.end * dice.randint(1, 9)
                partition.append(self.batch(value, timestamp=timestamp))
                self.records.append((self.end, timestamp, value))
                self.end += 1
            case "roll":
                partition.log.roll(partition.now_ms)
            case "wait":
                partition.now_ms += dice.randint(1, 400)
            case "configure":
                partition.configure(
                    retention_ms=dice.choice([-1, 0, 200, 1_000]),
                    retention_bytes=dice.choice([-1, -1, 0, 300, 1_000]),
                    cleanup_policy=dice.choice([DELETE, DELETE, NOTHING]),
                )
            case "delete":
                self.start = dice.randint(self.start, self.end)
                partition.log.delete_records_before(self.start)
            case "retain":
                self.retain()
            case kind:
                partition.reopen(clean=kind == "stop", log_start_offset=self.start)

    def retain(self) -> None:
        log = self.partition.log
        bases = [segment.base_offset for segment in log.segments]
        described = [
            (base, end, sum(61 + self.size_of(each) for each in held), max((each[1] for each in held), default=-1))
            for base, end in zip(bases, [*bases[1:], self.end], strict=True)
            for held in [[each for each in self.stored if base <= each[0] < end]]
        ]
        expected = [each[0] for each in model(described, self.start, self.end, log.config, self.partition.now_ms)]
        retain(self.partition)
        left = [segment.base_offset for segment in log.segments]
        assert left == (expected or [self.end])
        self.start = max(self.start, left[0])

    @property
    def stored(self) -> list[tuple[int, int, bytes]]:
        """Those in the files, also before the log start."""
        return [each for each in self.records if each[0] >= self.partition.log.segments[0].base_offset]

    def size_of(self, record: tuple[int, int, bytes]) -> int:
        return len(self.batch(record[2], timestamp=record[1])) - 61

    def check(self) -> None:
        log = self.partition.log
        assert (log.log_start_offset, log.log_end_offset) == (self.start, self.end)
        assert self.partition.values() == [each[2] for each in self.records if each[0] >= self.start]


def run_history(partition: Any, batch: Batch, seed: int) -> None:
    history = History(partition, batch, seed)
    partition.configure(segment_bytes=400)
    for _ in range(150):
        history.step()
        history.check()


@pytest.mark.parametrize("seed", range(40))
def test_retention_of_histories_matches_the_model(memory_partition: Any, batch: Batch, seed: int) -> None:
    run_history(memory_partition, batch, seed)


@pytest.mark.parametrize("seed", range(3))
def test_histories_on_a_real_disk(real_partition: Any, batch: Batch, seed: int) -> None:
    run_history(real_partition, batch, seed)

"""Moldau's log and Apache Kafka's own: the same files, the same results, and each opens the files of the other."""

from __future__ import annotations

import random
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from moldau.log.config import LogConfig
from moldau.log.partition_log import Log
from moldau.log.producer_state import EndTransactionMarker
from moldau.log.retention import count_segments
from moldau.log.validation import InvalidRecordBatchError
from moldau.log.verification import DISABLED, Verification
from moldau.protocol.checksum import crc32c
from moldau.protocol.compression import Codec
from moldau.protocol.errors import KafkaError
from moldau.protocol.records import Record, build_batch, iter_batches

NOW = 1_700_000_000_000
Batch = Callable[..., bytes]


@pytest.fixture
def kafka(apache_log: Any) -> Any:
    return apache_log


@pytest.fixture
def ours(real_partition: Any) -> Any:
    return real_partition


def describe(log: Any, records: list[Record]) -> list[str]:
    """Our log in the words of KafkaLog.java."""

    def word(data: bytes | None) -> str:
        return "null" if data is None else "x" + data.hex()

    lines = [f"offsets {log.log_start_offset} {log.log_end_offset}"]
    lines += [f"segment {s.base_offset} {s.size} {s.max_timestamp}" for s in log.segments]
    for p in sorted(log.active_producers(), key=lambda producer: producer.producer_id):
        lines.append(
            f"producer {p.producer_id} {p.epoch} {p.last_sequence} {p.last_offset} {p.last_timestamp} "
            f"{p.coordinator_epoch} {p.transaction_first_offset}"
        )
    lines += [f"epoch {epoch} {offset}" for epoch, offset in log.leader_epochs.entries]
    lines += [f"record {r.offset} {r.timestamp} {word(r.key)} {word(r.value)}" for r in records]
    return lines


def end_marker(producer_id: int, *, commit: bool, epoch: int = 0) -> bytes:
    record = Record(0, NOW, struct.pack(">hh", 0, int(commit)), struct.pack(">hi", 0, 4))
    return build_batch([record], producer_id=producer_id, producer_epoch=epoch, transactional=True, control=True)


class Script:
    """A seeded series of appends, each ours and Apache Kafka's to do."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.epoch = 0
        self.sequences = {1: 0, 2: 0, 3: 0}
        self.in_transaction = False

    def next(self) -> tuple[str, int, bytes]:
        """("append" or "own", leader epoch, batch)"""
        dice = self.dice
        self.epoch += dice.random() < 0.1
        count = dice.randint(1, 5)
        records = [
            Record(
                0,
                NOW + dice.randint(-1_000, 1_000),
                dice.choice([None, b"key %d" % dice.randint(0, 9)]),
                dice.choice([None, dice.randbytes(dice.randint(0, 80)), b"value " * dice.randint(0, 60)]),
                ((("header", dice.choice([None, b"x"])),) * dice.randint(0, 2)),
            )
            for _ in range(count)
        ]
        codec = dice.choice(list(Codec))
        kind = dice.choices(["plain", "idempotent", "transactional", "marker"], [4, 4, 3, 2])[0]
        if kind == "plain" or (kind == "marker" and not self.in_transaction):
            return "append", self.epoch, build_batch(records, codec=codec)
        if kind == "marker":
            self.in_transaction = False
            return "own", self.epoch, end_marker(3, commit=dice.random() < 0.4)
        producer_id = dice.choice([1, 2]) if kind == "idempotent" else 3
        self.in_transaction = self.in_transaction or producer_id == 3
        sequence = self.sequences[producer_id]
        self.sequences[producer_id] = sequence + count
        return (
            "append",
            self.epoch,
            build_batch(
                records,
                codec=codec,
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=sequence,
                transactional=producer_id == 3,
            ),
        )


def append_to(ours: Any, kind: str, epoch: int, data: bytes) -> str:
    """Append to Moldau's log. Returns the result in the format of KafkaLog.java."""
    try:
        info = ours.log.append(data, now_ms=NOW, leader_epoch=epoch, client=kind == "append", verification=DISABLED)
    except InvalidRecordBatchError as error:
        return f"error {error.code.name} {','.join(str(index) for index, _ in error.record_errors)}"
    except KafkaError as error:
        return f"error {error.code.name}"
    return f"ok {info.first_offset} {info.last_offset} {info.log_append_time_ms}"


def files(directory: str, *suffixes: str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(Path(directory).iterdir()) if path.suffix in suffixes}


@pytest.mark.parametrize("seed", range(4))
def test_the_same_appends_make_the_same_files(kafka: Any, ours: Any, tmp_path: Path, seed: int) -> None:
    script = Script(seed)
    config = LogConfig(segment_bytes=script.dice.choice([4_000, 20_000]), index_interval_bytes=500)
    ours.configure(segment_bytes=config.segment_bytes, index_interval_bytes=config.index_interval_bytes)
    theirs = str(tmp_path / "theirs" / "topic-0")
    kafka.open(theirs, config)
    for _ in range(150):
        kind, epoch, data = script.next()
        assert append_to(ours, kind, epoch, data) == kafka.ask(kind, epoch, data.hex())
    assert describe(ours.log, ours.records()) == kafka.ask_lines("describe")
    for timestamp in [*range(NOW - 1_005, NOW + 1_005, 67), -3]:
        found = ours.log.offset_of_max_timestamp() if timestamp == -3 else ours.log.offset_for_timestamp(timestamp)
        answer = "none" if found is None else f"{found.timestamp} {found.offset} {found.leader_epoch}"
        assert answer == kafka.ask("time", timestamp)
    for epoch in range(-1, script.epoch + 2):
        assert " ".join(map(str, ours.log.end_offset_for_epoch(epoch))) == kafka.ask("epoch", epoch)
    for start in range(0, ours.log.log_end_offset, 41):
        for end in (start + 10, ours.log.log_end_offset):
            aborted = [" ".join(map(str, found[:3])) for found in ours.log.aborted_transactions(start, end)]
            # This method of Apache Kafka begins at the log start; its fetches omit transactions that ended before them.
            theirs_too = [line for line in kafka.ask_lines("aborted", start, end) if int(line.split()[2]) >= start]
            assert aborted == theirs_too
    kafka.close()
    ours.log.close(NOW)
    for suffix in (".log", ".index", ".timeindex", ".txnindex"):
        assert files(ours.directory, suffix) == files(theirs, suffix), suffix
    epochs = "leader-epoch-checkpoint"
    assert Path(ours.directory, epochs).read_text() == Path(theirs, epochs).read_text()
    assert sorted(files(ours.directory, ".snapshot")) == sorted(files(theirs, ".snapshot"))


@pytest.mark.parametrize("clean", [True, False])
def test_apache_kafka_opens_logs_of_moldau(kafka: Any, ours: Any, clean: bool, producer_batch: Batch) -> None:
    script = Script(7)
    config = LogConfig(segment_bytes=6_000, index_interval_bytes=500)
    ours.configure(segment_bytes=6_000, index_interval_bytes=500)
    for _ in range(120):
        assert append_to(ours, *script.next()).startswith("ok")
    expected = describe(ours.log, ours.records())
    end = ours.log.log_end_offset
    if clean:
        ours.log.close(NOW)
    else:
        ours.files.close()
    kafka.open(ours.directory, config, clean=clean, recovery_point=end if clean else 0)
    assert kafka.ask_lines("describe") == expected
    assert kafka.ask("append", 50, producer_batch(0, producer_id=9).hex()) == f"ok {end} {end} -1"
    assert kafka.ask("append", 50, producer_batch(0, producer_id=9).hex()) == f"ok {end} {end} {NOW}"
    kafka.close()
    ours.open(clean=True)
    assert ours.log.repairs == []
    assert ours.log.log_end_offset == end + 1
    assert ours.append(producer_batch(0, producer_id=9)).duplicate


@pytest.mark.parametrize("clean", [True, False])
def test_moldau_opens_logs_of_apache_kafka(
    kafka: Any, ours: Any, tmp_path: Path, clean: bool, producer_batch: Batch
) -> None:
    script = Script(8)
    config = LogConfig(segment_bytes=6_000, index_interval_bytes=500)
    theirs = str(tmp_path / "theirs" / "topic-0")
    kafka.open(theirs, config)
    for _ in range(120):
        kind, epoch, data = script.next()
        assert kafka.ask(kind, epoch, data.hex()).startswith("ok")
    expected = kafka.ask_lines("describe")
    if clean:
        kafka.close()
    else:
        # As it lies there when the process is killed: with preallocated indexes, and no snapshot of the end.
        shutil.copytree(theirs, tmp_path / "killed" / "topic-0")
        kafka.close()
        theirs = str(tmp_path / "killed" / "topic-0")
    ours.directory = theirs
    ours.config = ours.config._replace(segment_bytes=6_000, index_interval_bytes=500)
    ours.open(clean=clean)
    assert ours.log.repairs == []
    assert describe(ours.log, ours.records()) == expected
    end = ours.log.log_end_offset
    assert ours.append(producer_batch(0, producer_id=9), leader_epoch=50).first_offset == end
    ours.log.close(NOW)
    kafka.open(theirs, config, clean=True, recovery_point=end + 1)
    assert kafka.ask_lines("describe")[0] == f"offsets 0 {end + 1}"
    kafka.close()


def with_crc(batch: bytes | bytearray) -> bytes:
    fixed = bytearray(batch)
    fixed[17:21] = crc32c(memoryview(fixed)[21:]).to_bytes(4, "big")
    return bytes(fixed)


def patched(batch: bytes, position: int, layout: str, value: int) -> bytes:
    data = bytearray(batch)
    struct.pack_into(layout, data, position, value)
    return with_crc(data)


def unusual_appends() -> dict[str, bytes]:
    """Batches that are odd, late, early, too large, damaged or forged."""
    two = build_batch([Record(0, NOW, b"k", b"one"), Record(0, NOW + 5, b"k", b"two")])

    def timed(*times: int, **fields: Any) -> bytes:
        return build_batch([Record(0, time, b"k", b"v") for time in times], **fields)

    def produced(sequence: int, *, producer_id: int = 5, epoch: int = 0, count: int = 1, **fields: Any) -> bytes:
        return timed(*[NOW] * count, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, **fields)

    return {
        "nothing": b"",
        "eleven bytes": b"\0" * 11,
        "zeros": b"\0" * 100,
        "header only": two[:61],
        "cut off": two[:-1],
        "two batches": two + two,
        "a batch and a piece": two + two[:40],
        "a batch and few bytes": two + b"\0" * 11,
        "a batch and a bad length": two + b"\0" * 12,
        "magic 0": two[:16] + b"\0" + two[17:],
        "magic 1": two[:16] + b"\1" + two[17:],
        "magic 3": two[:16] + b"\3" + two[17:],
        "magic -1": two[:16] + b"\xff" + two[17:],
        "negative length": two[:8] + b"\xff\xff\xff\xff" + two[12:],
        "length 13": two[:8] + b"\0\0\0\x0d" + two[12:],
        "huge length": two[:8] + b"\x7f\xff\xff\xff" + two[12:],
        "wrong crc": two[:17] + b"\0\0\0\0" + two[21:],
        "changed record": two[:-2] + b"??",
        "base offset 5": patched(two, 0, ">q", 5),
        "negative base offset": patched(two, 0, ">q", -1),
        "leader epoch 99": patched(two, 12, ">i", 99),
        "control": patched(two, 21, ">h", 0x20),
        "delete horizon bit": patched(two, 21, ">h", 0x40),
        "unused bit": patched(two, 21, ">h", 0x80),
        "second attribute byte": patched(two, 21, ">h", 0x0100),
        "LogAppendTime": patched(two, 21, ">h", 0x08),
        "LogAppendTime of the future": timed(NOW, log_append_time_ms=NOW + 10**8),
        "count 0": patched(two, 57, ">i", 0),
        "count -1": patched(two, 57, ">i", -1),
        "count 3": patched(two, 57, ">i", 3),
        "last offset delta 2": patched(two, 23, ">i", 2),
        "last offset delta -1": patched(two, 23, ">i", -1),
        "no timestamps": timed(-1, -1),
        "timestamp 0": timed(0),
        "long ago": timed(NOW - 10**10, NOW),
        "an hour ahead": timed(NOW, NOW + 3_600_000),
        "more than an hour ahead": timed(NOW, NOW + 3_600_001, NOW, NOW + 10**9),
        "largest timestamp too small": timed(NOW, NOW + 9, max_timestamp=NOW - 100),
        "largest timestamp missing": timed(NOW, NOW + 9, max_timestamp=-1),
        "largest timestamp of the far future": timed(NOW, NOW + 9, max_timestamp=NOW + 10**12),
        "falling timestamps": timed(NOW + 9, NOW, NOW - 9),
        "null key": build_batch([Record(0, NOW, b"k", b"v"), Record(0, NOW, None, b"v"), Record(0, NOW, None, None)]),
        "null key in gzip": build_batch([Record(0, NOW, None, b"v" * 99)], codec=Codec.GZIP),
        "large": build_batch([Record(0, NOW, b"k", bytes(2_000))]),
        "small when compressed": build_batch([Record(0, NOW, b"k", bytes(2_000))], codec=Codec.ZSTD),
        "first sequence 7": produced(7),
        "gap": produced(9),
        "next": produced(8, count=3),
        "again": produced(8, count=3),
        "part of it again": produced(8, count=2),
        "new epoch, wrong start": produced(11, epoch=1),
        "new epoch": produced(0, epoch=1),
        "old epoch": produced(11),
        "old duplicate": produced(8, count=3),
        "no sequence": produced(-1, producer_id=6),
        "negative sequence": produced(-5, producer_id=6),
        "negative epoch": produced(0, producer_id=6, epoch=-1),
        "negative epoch, gap": produced(50, producer_id=6, epoch=-1),
        "producer id -2": produced(0, producer_id=-2),
        "sequence wraps": produced(2**31 - 2, producer_id=8, count=4),
        "after the wrap": produced(2, producer_id=8),
        "transactional": produced(0, producer_id=10, transactional=True),
        "plain in a transaction": produced(1, producer_id=10),
        "transactional continues": produced(1, producer_id=10, transactional=True),
        "transactional without a producer": timed(NOW, transactional=True),
    }


CONFIGS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "LogAppendTime": {"message_timestamp_type": "LogAppendTime"},
    "compacted": {"cleanup_policy": ("compact",)},
    "narrow limits": {"message_timestamp_before_max_ms": 1_000, "message_timestamp_after_max_ms": 5},
    "small messages": {"max_message_bytes": 300},
    "small segments": {"segment_bytes": 300, "max_message_bytes": 5_000},
    "lz4": {"compression_type": "lz4"},
    "uncompressed": {"compression_type": "uncompressed"},
}

DELIBERATE = {"huge length": "error INVALID_RECORD"}
"""Where our answer is another on purpose: Apache Kafka's length overflows there: UNKNOWN_SERVER_ERROR."""

FORGED = ("negative epoch", "negative epoch, gap", "transactional without a producer")
"""Batches that no client sends. Apache Kafka stores them unchanged, but cannot recompress them."""


@pytest.mark.parametrize("name", CONFIGS)
def test_unusual_appends_have_the_same_results_as_in_apache_kafka(
    kafka: Any, ours: Any, tmp_path: Path, name: str
) -> None:
    config = LogConfig(**CONFIGS[name])
    ours.configure(**CONFIGS[name])
    theirs = str(tmp_path / "theirs" / "topic-0")
    kafka.open(theirs, config)
    recompressed = config.compression_type != "producer"
    appends = {what: data for what, data in unusual_appends().items() if not (recompressed and what in FORGED)}
    answers = {what: append_to(ours, "append", 3, data) for what, data in appends.items()}
    expected = {what: kafka.ask("append", 3, data.hex()) for what, data in appends.items()}
    assert answers == expected | DELIBERATE
    description, kafkas_description = describe(ours.log, ours.records()), kafka.ask_lines("describe")
    kafka.close()
    ours.log.close(NOW)
    # Apache Kafka rolls for a batch before it finds that it must refuse it, and we do not: segments may differ.
    same = [line for line in description if not line.startswith("segment")]
    assert same == [line for line in kafkas_description if not line.startswith("segment")]
    if not recompressed:  # the codecs are other libraries: the same records, in other bytes
        assert b"".join(files(ours.directory, ".log").values()) == b"".join(files(theirs, ".log").values())


# Transactions


class Transactions:
    """A seeded series of verifications, appends and markers of few producers, well and badly behaved, on both logs."""

    def __init__(self, kafka: Any, ours: Any, seed: int) -> None:
        self.kafka = kafka
        self.ours = ours
        self.dice = random.Random(seed)
        self.leader_epoch = 0
        self.coordinator_epoch = 0
        self.epochs = dict.fromkeys(range(5), 0)
        self.sequences = dict.fromkeys(range(5), 0)
        self.directory = ""
        self.verifications: list[tuple[int, Verification]] = []  # by producer id; in the order of Kafka's numbers
        self.answers: set[str] = set()

    STEPS = ("verify", "append", "own", "marker", "roll", "delete", "reopen", "read")
    WEIGHTS = (10, 20, 8, 12, 2, 1, 1, 6)

    def run(self, steps: int) -> None:
        for _ in range(steps):
            step = self.dice.choices(self.STEPS, self.WEIGHTS)[0]
            both = getattr(self, step)()
            if both is not None:
                mine, theirs = both
                assert mine == theirs, step
                self.answers.add(f"{step} {mine}".rstrip(" 0123456789-"))
            # Where records of an open transaction were deleted up to the middle of a batch, Apache Kafka's is where the
            # batch begins, before the log does.
            stable = int(self.kafka.ask("stable"))
            assert self.last_stable_offset() == max(stable, self.ours.log.log_start_offset)

    def last_stable_offset(self) -> int:
        log: Log = self.ours.log
        first = log.first_unstable_offset()
        return log.log_end_offset if first is None else max(first, log.log_start_offset)

    def _producer(self) -> tuple[int, int, int]:
        """Id, epoch and sequence: mostly as they should be."""
        producer_id = self.dice.randrange(5)
        epoch = self.epochs[producer_id] + self.dice.choices([0, -1, 1], [12, 1, 1])[0]
        sequence = self.sequences[producer_id] + self.dice.choices([0, -1, 1, 5], [12, 1, 1, 1])[0]
        return producer_id, max(epoch, 0), max(sequence, 0)

    def _verification(self, producer_id: int) -> tuple[Verification | None, list[int]]:
        """An earlier verification, in most cases the latest of this producer; and its number for Apache Kafka."""
        numbers = [number for number, (known, _) in enumerate(self.verifications) if known == producer_id]
        if not numbers or self.dice.random() < 0.2:
            return None, []
        number = numbers[-1] if self.dice.random() < 0.8 else self.dice.randrange(len(self.verifications))
        return self.verifications[number][1], [number]

    def verify(self) -> tuple[str, str]:
        producer_id, epoch, sequence = self._producer()
        if producer_id == 4:  # its plain batches must not depend on verifications
            sequence = 2**31 - 1
        epoch_per_transaction = producer_id % 2 == 1
        try:
            found = self.ours.log.start_verification(
                producer_id, epoch, sequence, epoch_per_transaction=epoch_per_transaction, now_ms=NOW
            )
        except KafkaError as error:
            mine = f"error {error.code.name}"
        else:
            known = [known for _, known in self.verifications]
            if found is None:
                mine = "open"
            else:
                if found not in known:
                    self.verifications.append((producer_id, found))
                    known.append(found)
                mine = str(known.index(found))
        return mine, self.kafka.ask("verify", producer_id, sequence, epoch, str(epoch_per_transaction).lower())

    def append(self, *, client: bool = True) -> tuple[str, str]:
        """Producer 4 forgets the transactional bit now and then."""
        producer_id, epoch, sequence = self._producer()
        count = self.dice.randint(1, 3)
        data = build_batch(
            [Record(0, NOW, b"key", self.dice.randbytes(20)) for _ in range(count)],
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence if client else -1,
            transactional=producer_id != 4 or self.dice.random() < 0.7,
        )
        verification, number = self._verification(producer_id)
        try:
            info = self.ours.log.append(
                data, now_ms=NOW, leader_epoch=self.leader_epoch, client=client, verification=verification
            )
        except KafkaError as error:
            mine = f"error {error.code.name}"
        else:
            mine = f"ok {info.first_offset} {info.last_offset} {info.log_append_time_ms}"
            self.epochs[producer_id] = epoch
            self.sequences[producer_id] = sequence + count if client else 0
        theirs = self.kafka.ask("append" if client else "own", self.leader_epoch, data.hex(), *number)
        return mine, theirs.rstrip()  # records that are refused would follow

    def own(self) -> tuple[str, str]:
        return self.append(client=False)

    def marker(self) -> tuple[str, str]:
        producer_id, epoch, _ = self._producer()
        version = 2 if producer_id % 2 == 1 else self.dice.choice([0, 1])
        epoch += version == 2
        self.coordinator_epoch += self.dice.random() < 0.05
        coordinator_epoch = self.coordinator_epoch - (self.dice.random() < 0.1)
        committed = self.dice.random() < 0.5
        try:
            info = self.ours.log.append_marker(
                producer_id,
                epoch,
                EndTransactionMarker(committed, coordinator_epoch),
                transaction_version=version,
                now_ms=NOW,
                leader_epoch=self.leader_epoch,
            )
        except KafkaError as error:
            mine = f"error {error.code.name}"
        else:
            mine = f"ok {info.first_offset} {info.last_offset} {info.log_append_time_ms}"
            if epoch != self.epochs[producer_id]:
                self.epochs[producer_id], self.sequences[producer_id] = epoch, 0
        kind = "COMMIT" if committed else "ABORT"
        return mine, self.kafka.ask(
            "marker", self.leader_epoch, producer_id, epoch, kind, coordinator_epoch, version
        ).rstrip()

    def roll(self) -> None:
        self.leader_epoch += 1
        self.ours.log.roll(NOW)
        self.kafka.ask("roll")

    def delete(self) -> None:
        """It keeps some records: without any, Apache Kafka drops open transactions at the next startup."""
        offset = self.dice.randint(self.ours.log.log_start_offset, self.ours.log.log_end_offset)
        if offset == self.ours.log.log_end_offset:
            return
        self.ours.log.delete_records_before(offset)
        self.kafka.ask("delete", offset)

    def reopen(self) -> None:
        """Open the log after a clean stop, which ends verifications."""
        start = self.ours.log.log_start_offset
        self.ours.reopen(log_start_offset=start)
        self.kafka.close()
        self.kafka.open(self.directory, self.ours.config, recovery_point=self.ours.log.log_end_offset, start=start)

    def read(self) -> None:
        """As many bytes, and every aborted transaction among them that Apache Kafka names; it may name later ones."""
        log = self.ours.log
        if log.log_start_offset == log.log_end_offset:
            return
        offset = self.dice.randrange(log.log_start_offset, log.log_end_offset)
        max_bytes = self.dice.choice([1, 200, 1 << 20])
        theirs, *named = self.kafka.ask_lines("committed", offset, max_bytes)
        data, aborted = self._read(offset, max_bytes)
        # It reads less where it has a segment's end that we have not, or has forgotten the position to stop at.
        size = int(theirs)
        assert size == len(data) or 0 < size < len(data)
        if size == len(data):
            assert aborted <= set(named)
        end = max((batch.next_offset for batch in iter_batches(data[:size])), default=0)
        assert {line for line in named if int(line.split()[1]) < end} <= aborted

    def _read(self, offset: int, max_bytes: int) -> tuple[bytes, set[str]]:
        end = self.last_stable_offset()
        found = self.ours.log.read(offset, max_bytes, max_offset=end, min_one_batch=True, committed=True)
        aborted = {f"{aborted.producer_id} {aborted.first_offset}" for aborted in found.aborted_transactions}
        if found.records is None:
            return b"", aborted
        with found.records as records:
            return records.read(), aborted


@pytest.mark.parametrize("seed", range(8))
def test_transactions_begin_and_end_as_in_apache_kafka(kafka: Any, ours: Any, tmp_path: Path, seed: int) -> None:
    """Verification, epochs, sequence numbers, coordinators' epochs, the last stable offset, aborted transactions."""
    settings = {"segment_bytes": 1 << 20, "index_interval_bytes": 300}
    ours.configure(**settings)
    transactions = Transactions(kafka, ours, seed)
    transactions.directory = str(tmp_path / "theirs" / "topic-0")
    assert kafka.ask("verifying", "true") == "true"
    try:
        kafka.open(transactions.directory, ours.config)
        transactions.run(400)
        assert transactions.answers >= {
            "verify open",
            "append ok",
            "append error INVALID_TXN_STATE",
            "append error OUT_OF_ORDER_SEQUENCE_NUMBER",
            "own ok",
            "own error INVALID_TXN_STATE",
            "marker ok",
            "marker error TRANSACTION_COORDINATOR_FENCED",
        }
        # A segment that was begun and has no record yet is a file of Apache Kafka's and none of ours: not after a stop.
        # An append that is refused may leave the leader's epoch noted at the end.
        expected = [line for line in kafka.ask_lines("describe") if not line.startswith("segment")]
        at_the_end = f" {ours.log.log_end_offset}"
        expected = [line for line in expected if not (line.startswith("epoch") and line.endswith(at_the_end))]
        assert [line for line in describe(ours.log, ours.records()) if not line.startswith("segment")] == expected
        kafka.close()
        ours.log.close(NOW)
    finally:
        assert kafka.ask("verifying", "false") == "false"
    for suffix in (".log", ".txnindex"):
        mine = b"".join(files(ours.directory, suffix).values())
        theirs = b"".join(files(transactions.directory, suffix).values())
        # Of other segments, more or less was deleted at the beginning.
        shorter = min(len(mine), len(theirs))
        assert mine[len(mine) - shorter :] == theirs[len(theirs) - shorter :], suffix


# Apache Kafka's dump tool


@pytest.mark.parametrize("seed", range(12))
def test_old_segments_are_those_of_apache_kafka(kafka: Any, ours: Any, tmp_path: Path, seed: int) -> None:
    script = Script(seed)
    dice = script.dice
    config = LogConfig(
        segment_bytes=dice.choice([600, 2_000]),
        cleanup_policy=dice.choice([("delete",), ("delete",), ("delete",), ()]),
        retention_ms=dice.choice([-1, 0, 500, 1_500]),
        retention_bytes=dice.choice([-1, 0, 1_000, 3_000]),
    )
    ours.config = config
    ours.log.update_config(config)
    theirs = str(tmp_path / "theirs" / "topic-0")
    kafka.open(theirs, config)
    at = NOW
    for _ in range(6):
        for _ in range(dice.randint(0, 12)):
            kind, epoch, data = script.next()
            assert append_to(ours, kind, epoch, data) == kafka.ask(kind, epoch, data.hex())
        if dice.random() < 0.3 and ours.log.segments.active.size:
            ours.log.roll(at)
            kafka.ask("roll")
        if dice.random() < 0.2:
            offset = dice.randint(ours.log.log_start_offset, ours.log.log_end_offset)
            ours.log.delete_records_before(offset)
            kafka.ask("delete", offset)
        at += dice.choice([0, 1, 400, 1_000])
        found = ours.log.find_old_segments(ours.log.log_end_offset, at)
        if count_segments(found) == len(ours.log.segments):
            ours.log.roll(at)
        ours.log.delete_first_segments(count_segments(found))
        kafka.ask("now", at)
        kafka.ask("retain")
        assert describe(ours.log, ours.records()) == kafka.ask_lines("describe")
    kafka.close()
    ours.log.close(NOW)
    if ours.log.segments.active.on_disk:  # without an append, Moldau creates no files unless all others were deleted
        left = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
        assert sorted(files(ours.directory, *left)) == sorted(files(theirs, *left))
    # ... and each continues at the offset of the other, though there may be no record left.
    start, end = ours.log.log_start_offset, ours.log.log_end_offset
    kafka.open(ours.directory, config, recovery_point=end, start=start)
    assert kafka.ask_lines("describe")[0] == f"offsets {start} {end}"
    kafka.close()
    ours.directory = theirs
    ours.open(recovery_point=end, log_start_offset=start)
    assert (ours.log.log_start_offset, ours.log.log_end_offset) == (start, end)


def test_the_dump_tool_would_complain(dump_segments: Any, ours: Any) -> None:
    ours.configure(index_interval_bytes=0)
    for number in range(5):
        ours.append(build_batch([Record(0, NOW + number, b"k", b"v")]))
    ours.log.close(NOW)
    ours.damage("00000000000000000000.index", 3, b"\x02")
    ours.damage("00000000000000000000.timeindex", 7, b"\x77")
    paths = [ours.path(f"00000000000000000000.{kind}") for kind in ("index", "timeindex")]
    with pytest.raises(AssertionError, match="Mismatches in"):
        dump_segments(paths)


@pytest.mark.parametrize("stopped", ["clean", "killed and recovered"])
def test_apaches_dump_tool_has_no_complaint(dump_segments: Any, ours: Any, stopped: str) -> None:
    script = Script(3)
    ours.configure(segment_bytes=8_000, index_interval_bytes=300)
    for _ in range(160):
        assert append_to(ours, *script.next()).startswith("ok")
    # Runs of one codec too, so that each has its own segments.
    for codec in Codec:
        for number in range(40):
            records = [Record(0, NOW + number, b"k", b"value %d " % number * 20)] * 3
            ours.append(build_batch(records, codec=codec), leader_epoch=script.epoch)
    if stopped != "clean":
        ours.reopen(clean=False)
    ours.log.close(NOW)
    count = ours.log.log_end_offset
    paths = {
        suffix: sorted(str(path) for path in Path(ours.directory).iterdir() if path.suffix == suffix)
        for suffix in (".log", ".index", ".timeindex", ".snapshot", ".txnindex")
    }
    assert all(paths.values())
    output = dump_segments(paths[".log"], "--deep-iteration", "--print-data-log")
    assert output.count("\n| offset: ") + output.count("\n|offset: ") == count
    for name in ("none", "gzip", "snappy", "lz4", "zstd"):
        assert f"compresscodec: {name}" in output
    output = dump_segments(paths[".index"] + paths[".timeindex"])
    assert "offset: " in output
    assert "position: " in output
    assert "timestamp: " in output
    output = dump_segments(paths[".index"] + paths[".timeindex"], "--index-sanity-check")
    assert output.count("passed sanity check") == len(paths[".timeindex"]) + sum(
        Path(path).stat().st_size > 0 for path in paths[".index"]
    )
    output = dump_segments(paths[".snapshot"] + paths[".txnindex"])
    assert "producerId: 1 producerEpoch: 0" in output
    assert "lastStableOffset: " in output

"""Moldau's compaction and Apache Kafka's cleaner: the same histories and passes result in the same files."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import pytest

from moldau.protocol.compression import Codec
from moldau.protocol.records import CODEC_MASK, RecordBatch, iter_batches, iter_records

ENTRY_BYTES = 24  # of Apache Kafka's map
PLAIN = (Codec.NONE,)
ALL = tuple(Codec)
LOG_APPEND_TIME = {"message_timestamp_type": "LogAppendTime"}


def header(batch: RecordBatch) -> tuple[object, ...]:
    """All fields except those that depend on the compressed bytes."""
    return tuple(
        getattr(batch, name)
        for name in RecordBatch.__mro__[1].__slots__  # type: ignore[attr-defined]
        if not (batch.attributes & CODEC_MASK and name in ("crc", "batch_length"))
    )


def batches(path: Path) -> list[tuple[tuple[object, ...], list[object]]]:
    """Headers and records of a `.log`."""
    found = list(iter_batches(path.read_bytes()))
    assert all(batch.has_valid_crc() for batch in found)
    return [(header(batch), list(iter_records(batch))) for batch in found]


def files(directory: str, suffix: str) -> dict[str, bytes]:
    """By name, those that are not empty."""
    found = {path.name: path.read_bytes() for path in sorted(Path(directory).iterdir()) if path.suffix == suffix}
    return {name: data for name, data in found.items() if data}


def append(kafka: Any, compactor: Any, events: Any, step: Any) -> None:
    events.append_to(compactor.partition, step)
    kafka.ask("now", events.now_ms)
    answer = kafka.ask("own" if step.own else "append", step.epoch, step.data.hex())
    assert answer.startswith("ok"), answer


@pytest.mark.parametrize(
    ("seed", "codecs", "segment_bytes", "settings", "limits"),
    [
        (0, PLAIN, 20_000, {}, None),
        (4, PLAIN, 3_000, LOG_APPEND_TIME, None),
        (5, ALL, 20_000, {}, None),
        (8, ALL, 3_000, LOG_APPEND_TIME, None),
        (1, PLAIN, 20_000, {}, "in_parts"),
        (2, ALL, 3_000, LOG_APPEND_TIME, "in_parts"),
        *(
            pytest.param(seed, codecs, segment_bytes, {}, None, marks=pytest.mark.full)
            for seed, codecs, segment_bytes in product(range(10, 14), (PLAIN, ALL), (3_000, 20_000))
        ),
    ],
)
def test_the_same_passes_make_the_same_files(
    apache_log: Any,
    real_compactor: Any,
    history: Any,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    seed: int,
    codecs: tuple[Codec, ...],
    segment_bytes: int,
    settings: dict[str, Any],
    limits: str | None,
) -> None:
    """Log, indexes and aborted transactions, byte for byte; of compressed batches, their content."""
    if limits:
        request.getfixturevalue(limits)
    compactor = real_compactor
    partition = compactor.partition
    events = history(seed, codecs=codecs, transactions=not settings)
    dice = events.dice
    partition.configure(segment_bytes=segment_bytes, segment_index_bytes=10_000, index_interval_bytes=300, **settings)
    theirs = str(tmp_path / "theirs" / "topic-0")
    more = {"delete.retention.ms": compactor.delete_retention_ms, "segment.index.bytes": 10_000}
    apache_log.open(theirs, partition.config, **more)
    for number in range(8):
        for step in events.steps(dice.randint(5, 60)):
            append(apache_log, compactor, events, step)
        if number == 5:
            for step in events.end_transactions():
                append(apache_log, compactor, events, step)
        apache_log.ask("roll")
        compactor.roll()
        if number >= 5:
            events.now_ms = partition.now_ms = partition.now_ms + dice.choice([500, 3_000])
        if not any(segment.end_offset > compactor.clean_offset for segment in compactor.job().segments):
            continue  # an open transaction keeps the cleaner from all that is dirty
        apache_log.ask("now", partition.now_ms)
        clean_offset = int(apache_log.ask("clean", compactor.clean_offset, 100_000 * ENTRY_BYTES))
        compactor.compact()
        assert compactor.clean_offset == clean_offset
        assert compactor.reader()
        logs = files(partition.directory, ".log")
        assert logs.keys() == files(theirs, ".log").keys()
        for name in logs:
            assert batches(Path(partition.directory, name)) == batches(Path(theirs, name)), (number, name)
        assert files(partition.directory, ".txnindex") == files(theirs, ".txnindex"), number
        if codecs == PLAIN:
            assert logs == files(theirs, ".log")
    apache_log.close()
    if codecs == PLAIN:
        partition.log.close(partition.now_ms)
        for suffix in (".index", ".timeindex"):
            assert files(partition.directory, suffix) == files(theirs, suffix), suffix


def test_apache_kafka_reads_the_compacted_log(
    apache_log: Any, dump_segments: Any, real_compactor: Any, history: Any
) -> None:
    """Its dump tool has no complaint, and its log opens on the directory with the same records."""
    compactor = real_compactor
    partition = compactor.partition
    partition.configure(segment_bytes=6_000, index_interval_bytes=200)
    events = history(42)
    for _pass in range(4):
        for step in events.steps(120):
            events.append_to(partition, step)
        compactor.roll()
        compactor.compact()
    partition.log.close(partition.now_ms)
    contents = compactor.contents()
    paths = {
        suffix: sorted(str(path) for path in Path(partition.directory).iterdir() if path.suffix == suffix)
        for suffix in (".log", ".index", ".timeindex", ".snapshot", ".txnindex")
    }
    assert all(paths.values())
    output = dump_segments(paths[".log"], "--deep-iteration", "--print-data-log", compacted=True)
    assert "deleteHorizonMs: OptionalLong[" in output
    indexes = paths[".index"] + paths[".timeindex"]
    output = dump_segments(indexes, "--index-sanity-check", compacted=True)
    assert output.count("passed sanity check") == len(paths[".timeindex"]) + sum(
        Path(path).stat().st_size > 0 for path in paths[".index"]
    )
    dump_segments(indexes + paths[".snapshot"] + paths[".txnindex"], compacted=True)
    apache_log.open(partition.directory, partition.config, recovery_point=partition.log.log_end_offset)
    described = [line.split() for line in apache_log.ask_lines("describe")]
    apache_log.close()
    assert ["offsets", "0", str(partition.log.log_end_offset)] in described
    found = [(int(words[1]), words[3]) for words in described if words[0] == "record"]
    keys = {(offset, "x" + key.hex()) for offset, key, _value in contents}
    assert keys <= set(found)  # markers are records too
    assert len(found) == len(keys) + sum(batch.is_control and batch.record_count for batch in compactor.batches())

"""Batches that are processed in parts: the result is that of small ones, and memory is bounded."""

from __future__ import annotations

import pickle
import random
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from moldau.log.compaction.compact import compact
from moldau.log.compaction.job import CompactionResult
from moldau.log.compaction.records import note_keys
from moldau.log.verification import DISABLED
from moldau.protocol.compression import DEFAULT_MAX_SIZE, Codec
from moldau.protocol.records import (
    BATCH_OVERHEAD,
    CODEC_MASK,
    Record,
    RecordBatch,
    build_batch,
    iter_batches,
    iter_records,
)
from moldau.testing.full_run import first_of

NOW = 1_700_000_000_000
MEGABYTE = 1 << 20
RECORDS = 300_000
LITTLE = 24 * MEGABYTE
needs_proc = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc shows the memory of a process")


def contents(compactor: Any, **changes: Any) -> tuple[dict[str, list[object]], object]:
    """Of a pass whose result is not put in place: the batches and the index of each new segment, and its other results.

    Compressed bytes may differ, and with them the positions in an index.
    """
    partition = compactor.partition
    result = compact(compactor.job(**changes), partition.file_system)
    found: dict[str, list[object]] = {}
    for name in sorted(partition.names()):
        if ".log.cleaned" in name:
            data = partition.file_system.read_file(partition.path(name))
            found[name] = [described(batch) for batch in iter_batches(data)]
    statistics = result.statistics
    numbers = (statistics.records_kept, statistics.records_dropped, statistics.map_entries)
    return found, (result.clean_offset, numbers, [each.old_base_offsets for each in result.replacements])


def described(batch: RecordBatch) -> object:
    assert batch.has_valid_crc()
    records = list(iter_records(batch))
    if batch.attributes & CODEC_MASK:
        batch.crc = batch.batch_length = 0
    return repr(batch), records


@pytest.mark.parametrize("seed", range(12))
def test_parts_make_no_difference(memory_compactor: Any, history: Any, small_parts: Any, seed: int) -> None:
    """Not for any history, for any part of it that is clean, and for maps that are too small."""
    partition = memory_compactor.partition
    events = history(seed)
    dice = events.dice
    settings = {"message_timestamp_type": "LogAppendTime"} if seed % 4 == 3 else {}
    partition.configure(segment_bytes=20_000, index_interval_bytes=200, **settings)
    for step in [*events.steps(200), *events.end_transactions()]:
        events.append_to(partition, step)
        if dice.random() < 0.02:
            memory_compactor.roll()
    memory_compactor.roll()
    end = partition.log.log_end_offset
    for _pass in range(2):  # the second one finds delete horizons
        for _job in range(4):
            job = {
                "first_dirty_offset": dice.choice([0, end, dice.randrange(end)]),
                "dedupe_buffer_bytes": dice.choice([208 * 3, 208 * 8, 1 << 20]),
                "now_ms": partition.now_ms + dice.choice([0, 5_000]),
            }
            expected = contents(memory_compactor, **job)
            with small_parts():
                assert contents(memory_compactor, **job) == expected, job
        memory_compactor.compact()


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("is_latest", [True, False])
def test_a_long_record_between_short_ones(real_compactor: Any, codec: Codec, is_latest: bool) -> None:
    """A new base timestamp changes the length of the head of each record. The rest of the long one is only copied."""
    partition = real_compactor.partition
    partition.configure(max_message_bytes=20 * MEGABYTE)
    value = random.Random(1).randbytes(3 * MEGABYTE)
    records = [
        Record(0, NOW, b"first", b"old"),
        Record(1, NOW + 5, b"a", b"1"),
        Record(2, NOW + 100_000, b"long key" * 10_000, value),
        Record(3, NOW + 300_000, b"b", b"2"),
        Record(4, NOW + 7, b"long", value[1:]),
    ]
    newer = [Record(5, NOW, b"first", b"new"), *([] if is_latest else [Record(6, NOW, b"long", b"new")])]
    partition.append(build_batch(records, codec=codec))
    partition.append(build_batch(newer))
    real_compactor.roll()
    real_compactor.compact()
    kept = [record for record in records[1:] if is_latest or record.key != b"long"] + newer
    assert real_compactor.records() == kept
    header = real_compactor.batches()[0]
    assert (header.base_timestamp, header.max_timestamp) == (NOW + 5, NOW + 300_000)
    assert (header.base_offset, header.last_offset_delta, header.codec) == (0, 4, codec)


@pytest.mark.parametrize("step", [1, 63, 64, 100, 8191, 8192, 1_000_000])
@pytest.mark.parametrize("first", [0, 8_000, 1_040_000, 134_000_000, 2_000_000_000])
def test_offsets_of_any_length(first: int, step: int) -> None:
    """The loop for many records knows the bytes of an offset that are those of the previous one."""
    records = [Record(first + step * number, NOW, b"%d" % number, b"v" if number % 3 else None) for number in range(99)]
    data = build_batch(records, keep_offsets=True)[BATCH_OVERHEAD:]
    latest: dict[bytes, int] = {}
    last = note_keys(data, 0, len(data), len(records), 2**40, latest)
    assert last == records[-1].offset
    assert latest == {record.key: (2**40 + record.offset) << 1 | (record.value is None) for record in records}


def test_a_batch_that_has_grown_beyond_the_limit_of_produce(real_compactor: Any) -> None:
    """Offset deltas and a delete horizon make tiny records longer than they were produced."""
    records = [Record(0, NOW, b"a", b"1"), Record(1, NOW, b"b", bytes(DEFAULT_MAX_SIZE))]
    append(real_compactor, records, Codec.GZIP)
    append(real_compactor, [Record(2, NOW, b"a", b"2")], Codec.NONE)
    result = real_compactor.compact()
    assert result.statistics.records_dropped == 1
    assert [batch.record_count for batch in real_compactor.batches()] == [1, 1]


_IN_A_PROCESS = """
import pickle, sys
from pathlib import Path
from moldau.log.compaction.compact import compact
from moldau.log.compaction.job import CompactionResult
from moldau.log.files import RealFileSystem

def peak_kb():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM:"))

job = pickle.load(sys.stdin.buffer)
before = peak_kb()
result = compact(job, RealFileSystem())
sys.stdout.buffer.write(pickle.dumps((result, peak_kb() - before)))
"""


def compacted(compactor: Any, **changes: Any) -> tuple[CompactionResult, int]:
    """A pass in another process, put in place: its result, and the growth of the process in bytes."""
    command = [sys.executable, "-c", _IN_A_PROCESS]
    job = pickle.dumps(compactor.job(**changes))
    result, kilobytes = pickle.loads(subprocess.run(command, input=job, stdout=subprocess.PIPE, check=True).stdout)
    compactor.put_in_place(result)
    return result, kilobytes * 1024


def many_records(key: Callable[[int], bytes], value: bytes | None = b"v") -> list[Record]:
    return [Record(number, NOW, key(number), value) for number in range(RECORDS)]


def distinct(number: int) -> bytes:
    return number.to_bytes(3, "big")


@needs_proc
@pytest.mark.parametrize("codec", first_of([Codec.ZSTD, Codec.NONE]), ids=lambda codec: codec.name)
def test_many_tiny_records_of_one_key_take_little_memory(real_compactor: Any, codec: Codec) -> None:
    append(real_compactor, many_records(lambda _: b"key"), codec)
    assert compacted(real_compactor)[1] < LITTLE
    assert real_compactor.contents() == [(RECORDS - 1, b"key", b"v")]


@pytest.mark.slow
@needs_proc
def test_many_tiny_records_for_which_the_map_has_no_room_take_little_memory(real_compactor: Any) -> None:
    append(real_compactor, many_records(distinct), Codec.ZSTD)
    result, growth = compacted(real_compactor, dedupe_buffer_bytes=208 * 1000)
    assert growth < LITTLE
    assert (result.clean_offset, result.replacements) == (1000, ())


@pytest.mark.slow
@needs_proc
def test_many_tiny_records_that_get_a_delete_horizon_take_little_memory(real_compactor: Any) -> None:
    """Each of them has another timestamp delta then."""
    records = many_records(distinct, None)
    append(real_compactor, records, Codec.ZSTD)
    real_compactor.clean_offset = RECORDS
    newer = [Record(RECORDS + number, NOW, distinct(number * 3), b"w") for number in range(1000)]
    append(real_compactor, newer, Codec.NONE)
    assert compacted(real_compactor)[1] < LITTLE
    superseded = {record.key for record in newer}
    assert real_compactor.records() == [record for record in records if record.key not in superseded] + newer
    assert real_compactor.batches()[0].delete_horizon_ms is not None


def append(compactor: Any, records: list[Record], codec: Codec) -> None:
    compactor.partition.configure(max_message_bytes=20 * MEGABYTE)
    compactor.partition.append(build_batch(records, codec=codec), verification=DISABLED)
    compactor.roll()

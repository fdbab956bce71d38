"""Reading: the correct bytes, not more than requested, and valid despite concurrent changes of the log."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from moldau.protocol.errors import ErrorCode, KafkaError
from moldau.protocol.records import Record, build_batch, iter_batches

NOW = 1_700_000_000_000
Batch = Callable[..., bytes]


def fill(partition: Any, batch: Batch, count: int, *, size: int = 100, records: int = 3) -> int:
    """`count` batches of `records` records each; the size of one batch."""
    for number in range(count):
        partition.append(batch(*[b"%06d-%d" % (number, index) + b"." * size for index in range(records)]))
    return len(batch(*[b"%06d-%d" % (0, index) + b"." * size for index in range(records)]))


def test_an_empty_log_has_no_records(partition: Any) -> None:
    assert partition.log.read(0, 100, max_offset=0, min_one_batch=True).records is None


@pytest.mark.parametrize("offset", [-1, 1, 2**40])
def test_outside_of_the_log_is_out_of_range(partition: Any, offset: int) -> None:
    with pytest.raises(KafkaError) as caught:
        partition.log.read(offset, 100, max_offset=0, min_one_batch=True)
    assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize("reopened", [False, True])
@pytest.mark.parametrize("index_interval_bytes", [0, 1_000, 1 << 20])
def test_every_offset_is_found_in_its_batch(
    partition: Any, batch: Batch, reopened: bool, index_interval_bytes: int
) -> None:
    partition.configure(segment_bytes=20_000, index_interval_bytes=index_interval_bytes)
    fill(partition, batch, 150)
    if reopened:
        partition.reopen()
    for offset in range(450):
        first = next(iter_batches(partition.fetch(offset, 1)))
        assert first.base_offset == offset // 3 * 3
    assert len(partition.records()) == 450


def test_the_last_batches_of_a_busy_segment_are_found_without_reading(memory_partition: Any, batch: Batch) -> None:
    fill(memory_partition, batch, 2_000, size=1, records=1)
    operations: list[str] = []
    memory_partition.file_system.fail_with = lambda operation, _path: operations.append(operation)
    found = memory_partition.log.read(1_990, 1 << 20, max_offset=2_000, min_one_batch=True).records
    assert operations == []
    assert [b.base_offset for b in iter_batches(found.read())] == list(range(1_990, 2_000))
    found.release()
    memory_partition.file_system.fail_with = None
    for offset in range(0, 2_000, 7):
        assert next(iter_batches(memory_partition.fetch(offset, 1))).base_offset == offset


def test_a_range_has_about_max_bytes_and_begins_with_a_complete_batch(partition: Any, batch: Batch) -> None:
    size = fill(partition, batch, 10)
    assert len(partition.fetch(0, size * 3)) == size * 3
    assert len(partition.fetch(0, size * 3 + 17)) == size * 3 + 17, "the rest of a batch is the client's to drop"
    assert len(partition.fetch(0, size)) == size
    assert len(partition.fetch(28, 1 << 20)) == size


def test_a_batch_larger_than_max_bytes_is_returned_completely_or_not_at_all(partition: Any, batch: Batch) -> None:
    size = fill(partition, batch, 2)
    assert len(partition.fetch(0, 10)) == size
    found = partition.log.read(0, size - 1, max_offset=6, min_one_batch=False)
    assert (found.records, found.first_batch_too_large) == (None, True)
    found = partition.log.read(0, size, max_offset=6, min_one_batch=False)
    assert len(found.records) == size
    found.records.release()


def test_readers_stop_at_max_offset(partition: Any, batch: Batch) -> None:
    partition.configure(segment_bytes=3_000, index_interval_bytes=0)
    size = fill(partition, batch, 30)
    for batches in range(31):
        limit = batches * 3
        seen = 0
        offset = 0
        while data := partition.fetch(offset, max_offset=limit):
            offset = list(iter_batches(data))[-1].next_offset
            seen += len(data)
        assert (offset, seen) == (limit, batches * size)
    assert partition.fetch(6, max_offset=3) == b""
    assert partition.fetch(6, max_offset=6) == b""


def test_reading_continues_in_the_next_segment(
    partition: Any, batch: Batch, segments_of: Callable[[Any], list[int]]
) -> None:
    partition.configure(segment_bytes=2_000)
    fill(partition, batch, 20)
    assert len(segments_of(partition.log)) > 3
    offset, batches = 0, []
    while offset < 60:
        found = list(iter_batches(partition.fetch(offset)))
        batches += found
        offset = found[-1].next_offset
    assert [b.base_offset for b in batches] == list(range(0, 60, 3))


def test_offsets_that_compaction_removed_lead_to_the_next_batch(partition: Any) -> None:
    for base_offset, last in ((0, 4), (10, 14), (40, 40)):
        data = build_batch([Record(0, NOW, b"k", b"v")], base_offset=base_offset, last_offset_delta=last - base_offset)
        partition.log.append_as_follower(data, now_ms=NOW, leader_epoch=5)
    for reopened in (False, True):
        if reopened:
            partition.reopen()
        for offset, base_offset in ((0, 0), (4, 0), (5, 10), (9, 10), (14, 10), (15, 40), (40, 40)):
            assert next(iter_batches(partition.fetch(offset))).base_offset == base_offset


def test_a_range_remains_complete_when_its_segment_is_deleted(partition: Any, batch: Batch) -> None:
    partition.configure(segment_bytes=1_000)
    fill(partition, batch, 10)
    found = partition.log.read(0, 1 << 20, max_offset=30, min_one_batch=True).records
    partition.log.delete_records_before(25)
    for path in partition.log.trash:
        partition.file_system.unlink(path)
    partition.files.close()
    assert len(found.read()) == len(found)
    assert next(iter_batches(found.read())).base_offset == 0
    found.release()


def test_a_range_stays_valid_when_the_log_is_truncated_and_grows_again(partition: Any, batch: Batch) -> None:
    size = fill(partition, batch, 4)
    found = partition.log.read(6, 1 << 20, max_offset=12, min_one_batch=True).records
    before = found.read()
    partition.log.truncate_to(3, NOW)
    partition.append(batch(b"something else, and longer than what was there before" * 10))
    assert found.read() == before
    assert len(before) == size * 2
    found.release()
    assert len(partition.records()) == 4
    partition.reopen()
    assert len(partition.records()) == 4


def test_a_range_remains_complete_when_its_descriptor_is_evicted(partition: Any, batch: Batch) -> None:
    partition.max_open_files = 2
    partition.reopen()
    partition.configure(segment_bytes=1_000)
    fill(partition, batch, 30)
    ranges = [partition.log.read(offset, 500, max_offset=90, min_one_batch=True).records for offset in range(0, 90, 9)]
    for offset, found in zip(range(0, 90, 9), ranges, strict=True):
        assert next(iter_batches(found.read())).base_offset == offset
        found.release()
    assert len(partition.files) <= 2


def test_idle_partitions_hold_no_descriptors(memory_partition: Any, batch: Batch) -> None:
    fill(memory_partition, batch, 5)
    memory_partition.reopen()
    assert memory_partition.file_system.open_files == 0
    memory_partition.fetch(0)
    memory_partition.log.roll(NOW)
    assert memory_partition.file_system.open_files == 0


def test_a_damaged_batch_header_is_corrupt_message(partition: Any, batch: Batch) -> None:
    size = fill(partition, batch, 5)
    partition.reopen()
    partition.damage("00000000000000000000.log", size + 8, b"\0\0\0\0")
    assert next(iter_batches(partition.fetch(0, size))).base_offset == 0
    with pytest.raises(KafkaError) as caught:
        partition.fetch(9)
    assert caught.value.code == ErrorCode.CORRUPT_MESSAGE


def test_batches_are_read_one_by_one(partition: Any, batch: Batch) -> None:
    partition.configure(segment_bytes=1_000)
    fill(partition, batch, 10)
    assert [b.base_offset for b in partition.log.batches(7)] == list(range(6, 30, 3))
    assert [b.base_offset for b in partition.log.batches(0, 12)] == [0, 3, 6, 9]


def test_random_reads_agree_with_a_list_of_batches(partition: Any, batch: Batch) -> None:
    seed = random.Random(11)
    partition.configure(segment_bytes=8_000, index_interval_bytes=600)
    stored: list[bytes] = []
    first_offset: list[int] = []
    for _ in range(120):
        count = seed.randint(1, 6)
        info = partition.append(batch(*[seed.randbytes(seed.randint(0, 300)) for _ in range(count)]))
        first_offset.append(info.first_offset)
        stored.append(partition.fetch(info.first_offset))
    for _ in range(400):
        offset = seed.randrange(partition.log.log_end_offset)
        number = max(i for i, base in enumerate(first_offset) if base <= offset)
        max_bytes = seed.choice([1, 100, 1_000, 5_000])
        data = partition.fetch(offset, max_bytes)
        expected = b"".join(stored[number:])
        assert expected.startswith(data)
        assert len(data) >= len(stored[number])
        assert len(data) <= max(max_bytes, len(stored[number]))

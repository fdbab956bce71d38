"""Large batches, whose bodies are written in steps beyond the end of the log before they are appended."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from moldau.log.partition_log import WrittenAhead
from moldau.protocol.checksum import crc32c
from moldau.protocol.errors import ErrorCode
from moldau.protocol.records import ATTRIBUTES_POSITION, LOG_APPEND_TIME, iter_batches

NOW = 1_700_000_000_000
LARGE = b"".join(number.to_bytes(4, "big") for number in range(900_000))
"""3.6 MB: several steps."""

Batch = Callable[..., bytes]


@pytest.fixture(autouse=True)
def _large_batches_are_allowed(partition: Any) -> None:
    partition.configure(max_message_bytes=10_000_000)


def begin(partition: Any, data: bytes) -> Any:
    """The steps of writing this batch ahead."""
    return partition.log.write_ahead(data, now_ms=NOW, crc=crc32c(data[ATTRIBUTES_POSITION:]))


def finish(steps: Any, between: Callable[[], object] = lambda: None) -> WrittenAhead:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            ahead: WrittenAhead = end.value
            return ahead
        between()


def file_size(partition: Any) -> int:
    size: int = partition.log.segments.active.open_file.file.size()
    return size


@pytest.mark.parametrize(
    "changes", [{}, {"message_timestamp_type": "LogAppendTime"}], ids=["CreateTime", "LogAppendTime"]
)
def test_writing_ahead_stores_the_same_bytes_as_an_append(
    partition: Any, batch: Batch, changes: dict[str, str]
) -> None:
    partition.configure(**changes)
    data = batch(LARGE)
    partition.append(data)
    (together,) = iter_batches(partition.fetch(0))
    ahead = finish(begin(partition, data))
    assert file_size(partition) == 2 * len(data)
    assert partition.log.log_end_offset == 1
    assert partition.log.size == len(data)
    info = partition.append(data, ahead=ahead)
    assert (info.first_offset, info.last_offset) == (1, 1)
    (second,) = iter_batches(partition.fetch(1))
    assert second.has_valid_crc()
    assert (second.base_offset, second.partition_leader_epoch) == (1, 1)
    assert bytes(second.data[16:]) == bytes(together.data[16:])
    if changes:
        assert (second.timestamp_type, second.max_timestamp, info.log_append_time_ms) == (LOG_APPEND_TIME, NOW, NOW)
    partition.append(batch(b"behind"))
    partition.reopen(clean=False)
    assert partition.values() == [LARGE, LARGE, b"behind"]


def test_records_appended_in_the_meantime_come_first(partition: Any, batch: Batch) -> None:
    steps = begin(partition, data := batch(LARGE))
    next(steps)
    partition.append(batch(b"between"))
    ahead = finish(steps)
    partition.append(data, ahead=ahead)
    partition.reopen(clean=False)
    assert partition.values() == [b"between", LARGE]


def test_a_batch_that_is_always_overtaken_is_appended_in_one_step(partition: Any, batch: Batch) -> None:
    steps = begin(partition, data := batch(LARGE))
    others = 0

    def append_another() -> None:
        nonlocal others
        partition.append(batch(b"%d" % others))
        others += 1

    ahead = finish(steps, append_another)
    assert 0 < others < 10
    partition.append(data, ahead=ahead)
    assert partition.values() == [*(b"%d" % number for number in range(others)), LARGE]


@pytest.mark.parametrize("count", [1, 2, 100])
@pytest.mark.parametrize("end", ["close", "discard", "clean stop", "crash", "roll", "cut"])
def test_records_that_are_not_appended_are_not_part_of_the_log(
    partition: Any, batch: Batch, count: int, end: str
) -> None:
    partition.append(batch(b"before"))
    size = partition.log.size
    steps = begin(partition, batch(LARGE))
    ahead = None
    for _ in range(count):
        try:
            next(steps)
        except StopIteration as stop:
            ahead = stop.value
            break
    assert file_size(partition) > size
    if end == "close":
        steps.close()
        if ahead is None:
            assert file_size(partition) == size
    elif end == "discard":
        partition.log.discard_ahead(ahead)
        assert file_size(partition) == size
    elif end == "roll":
        partition.log.roll(NOW)
        assert partition.log.segments[0].size == size
    elif end == "cut":
        partition.log.truncate_to(0, NOW)
        partition.append(batch(b"before"))
    elif end == "clean stop":
        partition.reopen()
    else:
        partition.log.take_offline("killed")
        partition.reopen(clean=False)
    assert partition.values() == [b"before"]
    partition.append(batch(b"behind"))
    steps.close()
    partition.reopen(clean=end != "crash")
    assert partition.values() == [b"before", b"behind"]


def test_a_rejected_batch_is_not_written_ahead(partition: Any, batch: Batch) -> None:
    data = batch(LARGE)
    partition.append(batch(b"before"))
    size = partition.log.size
    wrong_crc = partition.log.write_ahead(data, now_ms=NOW, crc=crc32c(b"another"))
    ahead = finish(wrong_crc)
    assert file_size(partition) == size
    assert partition.refused(data, ahead=ahead).code is ErrorCode.CORRUPT_MESSAGE
    partition.configure(max_message_bytes=len(data) - 1)
    ahead = finish(begin(partition, data))
    assert file_size(partition) == size
    assert partition.refused(data, ahead=ahead).code is ErrorCode.MESSAGE_TOO_LARGE


def test_a_batch_that_a_producer_repeats_is_not_written_ahead(
    partition: Any, producer_batch: Batch, batch: Batch
) -> None:
    data = batch(LARGE, producer_id=7, producer_epoch=0, base_sequence=0)
    first = partition.append(data, ahead=finish(begin(partition, data)))
    size = file_size(partition)
    ahead = finish(begin(partition, data))
    assert file_size(partition) == size
    again = partition.append(data, ahead=ahead)
    assert again.duplicate
    assert again.first_offset == first.first_offset


def test_a_batch_that_does_not_fit_begins_a_segment(partition: Any, batch: Batch) -> None:
    data = batch(LARGE)
    partition.configure(segment_bytes=2 * len(data) - 1)
    for _ in range(3):
        partition.append(data, ahead=finish(begin(partition, data)))
    assert [segment.base_offset for segment in partition.log.segments] == [0, 1, 2]
    assert [segment.size for segment in partition.log.segments] == [len(data)] * 3
    partition.reopen()
    assert partition.values() == [LARGE] * 3

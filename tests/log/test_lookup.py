"""Finding offsets by time, exactly, also inside of compressed batches."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from moldau.log.lookup import BatchSearch, TimestampAndOffset
from moldau.protocol.compression import DEFAULT_MAX_SIZE, Codec
from moldau.protocol.errors import ErrorCode, KafkaError
from moldau.protocol.records import Record, build_batch

NOW = 1_700_000_000_000
Batch = Callable[..., bytes]


def timed_batch(*timestamps: int, codec: Codec = Codec.NONE, **fields: Any) -> bytes:
    return build_batch([Record(0, time, None, b"v" * 20) for time in timestamps], codec=codec, **fields)


@pytest.mark.parametrize("codec", list(Codec))
def test_the_first_record_with_the_timestamp_or_a_later_one(partition: Any, codec: Codec) -> None:
    partition.append(timed_batch(NOW, NOW + 10, NOW + 20, codec=codec))
    partition.leader_epoch = 4
    partition.append(timed_batch(NOW + 15, NOW + 30, NOW + 25, codec=codec))
    expected = {
        NOW - 1: (NOW, 0, 1),
        NOW: (NOW, 0, 1),
        NOW + 1: (NOW + 10, 1, 1),
        NOW + 20: (NOW + 20, 2, 1),
        NOW + 21: (NOW + 30, 4, 4),
        NOW + 30: (NOW + 30, 4, 4),
    }
    for timestamp, answer in expected.items():
        assert partition.log.offset_for_timestamp(timestamp) == TimestampAndOffset(*answer)
    assert partition.log.offset_for_timestamp(NOW + 31) is None
    assert partition.log.offset_of_max_timestamp() == TimestampAndOffset(NOW + 30, 4, 4)


def test_an_empty_log_has_no_timestamps(partition: Any) -> None:
    assert partition.log.offset_for_timestamp(0) is None
    assert partition.log.offset_of_max_timestamp() is None


def test_records_without_timestamps_have_no_largest(partition: Any, batch: Batch) -> None:
    partition.append(batch(timestamp=-1))
    assert partition.log.offset_of_max_timestamp() is None
    assert partition.log.offset_for_timestamp(NOW) is None


def test_the_first_of_several_largest_timestamps_is_found(partition: Any) -> None:
    partition.append(timed_batch(NOW, NOW + 5, NOW + 5, codec=Codec.ZSTD))
    partition.append(timed_batch(NOW + 5))
    assert partition.log.offset_of_max_timestamp() == TimestampAndOffset(NOW + 5, 1, 1)


def test_records_before_the_log_start_are_not_found(partition: Any) -> None:
    partition.append(timed_batch(NOW, NOW + 1, NOW + 2, NOW + 3))
    partition.append(timed_batch(NOW + 1))
    partition.log.delete_records_before(2)
    assert partition.log.offset_for_timestamp(NOW) == TimestampAndOffset(NOW + 2, 2, 1)
    partition.log.delete_records_before(4)
    assert partition.log.offset_for_timestamp(NOW) == TimestampAndOffset(NOW + 1, 4, 1)
    assert partition.log.offset_for_timestamp(NOW + 2) is None


def test_log_append_time_is_found(partition: Any, batch: Batch) -> None:
    partition.configure(message_timestamp_type="LogAppendTime")
    for number in range(3):
        partition.now_ms = NOW + number * 100
        partition.append(batch(b"a", b"b", timestamp=5))
    assert partition.log.offset_for_timestamp(NOW + 1) == TimestampAndOffset(NOW + 100, 2, 1)
    assert partition.log.offset_of_max_timestamp() == TimestampAndOffset(NOW + 200, 4, 1)


def test_a_header_that_overstates_its_largest_timestamp_does_no_harm(partition: Any) -> None:
    partition.append(timed_batch(NOW, NOW + 5, max_timestamp=NOW + 900))
    partition.append(timed_batch(NOW + 7))
    assert partition.log.offset_for_timestamp(NOW + 6) == TimestampAndOffset(NOW + 7, 2, 1)
    assert partition.log.offset_of_max_timestamp() == TimestampAndOffset(NOW + 5, 1, 1)


def test_a_batch_that_cannot_be_decoded_is_corrupt_message(partition: Any) -> None:
    partition.append(timed_batch(NOW, codec=Codec.GZIP))
    partition.damage("00000000000000000000.log", -12, b"\xff" * 6)
    for look in (lambda: partition.log.offset_for_timestamp(NOW), partition.log.offset_of_max_timestamp):
        with pytest.raises(KafkaError) as caught:
            look()
        assert caught.value.code == ErrorCode.CORRUPT_MESSAGE


def test_a_stored_batch_may_be_larger_than_what_produce_accepts() -> None:
    """Offset deltas and a delete horizon make a batch larger after Produce has accepted it."""
    large = Record(0, NOW, None, bytes(DEFAULT_MAX_SIZE + 1_000_000))
    stored = build_batch([large, Record(1, NOW + 5, None, b"")], codec=Codec.ZSTD)
    found = []

    def search() -> Iterator[None]:
        found.append((yield from BatchSearch(stored, NOW + 1, 0, "the batch").steps()))

    assert list(search())
    assert found == [(NOW + 5, 1)]


@pytest.mark.parametrize("reopened", ["no", "clean", "killed"])
@pytest.mark.parametrize("seed", [1, 2])
def test_random_times_agree_with_reading_every_record(partition: Any, seed: int, reopened: str) -> None:
    dice = random.Random(seed)
    partition.configure(segment_bytes=6_000, index_interval_bytes=dice.choice([0, 300, 2_000]))
    for number in range(150):
        times = [NOW + number * 10 + dice.randint(-300, 300) for _ in range(dice.randint(1, 4))]
        partition.append(timed_batch(*times, codec=dice.choice(list(Codec))))
    if reopened != "no":
        partition.reopen(clean=reopened == "clean")
    partition.log.delete_records_before(dice.randrange(100))
    records = partition.records()
    for _ in range(200):
        target = NOW + dice.randint(-400, 1_900)
        expected = next((record for record in records if record.timestamp >= target), None)
        found = partition.log.offset_for_timestamp(target)
        if expected is None:
            assert found is None
        else:
            assert (found.timestamp, found.offset) == (expected.timestamp, expected.offset)
    largest = partition.log.offset_of_max_timestamp()
    first = max(records, key=lambda record: record.timestamp)
    assert (largest.timestamp, largest.offset) == (first.timestamp, first.offset)

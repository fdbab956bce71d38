"""Random histories, compacted repeatedly, compared with a simple model."""

from __future__ import annotations

import random
from typing import Any

import pytest

from moldau.protocol.compression import Codec
from moldau.protocol.records import Record, build_batch
from moldau.testing.full_run import first_of

NOW = 1_700_000_000_000


@pytest.mark.parametrize("seed", range(24))
def test_readers_see_the_same_after_every_pass(
    memory_compactor: Any, real_compactor: Any, history: Any, seed: int
) -> None:
    """In the end, only the latest record of each key remains."""
    compactor = real_compactor if seed % 8 == 0 else memory_compactor
    partition = compactor.partition
    events = history(seed)
    dice = events.dice
    partition.configure(segment_bytes=dice.choice([5_000, 20_000]), index_interval_bytes=200)
    compactor.delete_retention_ms = dice.choice([0, 100, 5_000])
    compactor.dedupe_buffer_bytes = dice.choice([208 * 3, 208 * 20, 1 << 20])
    for _round in range(8):
        for step in events.steps(dice.randint(1, 60)):
            events.append_to(partition, step)
        if dice.random() < 0.5:
            compactor.roll()
        before, records = compactor.reader(), compactor.contents()
        compactor.compact()
        assert compactor.reader() == before
        assert set(compactor.contents()) <= set(records)
    for step in events.end_transactions():
        events.append_to(partition, step)
    compactor.roll()
    before, end = compactor.reader(), partition.log.log_end_offset
    compactor.dedupe_buffer_bytes = 1 << 20
    for _pass in range(10):
        compactor.compact()
        events.now_ms = partition.now_ms = partition.now_ms + 5_000
        if compactor.clean_offset == end and not compactor.compact().replacements:
            break
    else:
        pytest.fail("it never settles")
    assert compactor.reader() == before
    assert partition.log.log_end_offset == end
    assert {key: value for _offset, key, value in compactor.contents()} == before
    assert len(compactor.contents()) == len(before)
    open_batches: set[int] = set()
    for batch in compactor.batches():
        if not batch.is_control:
            open_batches.add(batch.producer_id)
        elif batch.record_count:
            assert batch.producer_id in open_batches, "a marker outlived its transaction"
            open_batches.discard(batch.producer_id)


def test_a_map_that_is_too_small_needs_more_passes(memory_compactor: Any, history: Any) -> None:
    partition = memory_compactor.partition
    events = history(1, codecs=(Codec.NONE,), keys=100)
    for step in events.steps(100):
        events.append_to(partition, step)
    for step in events.end_transactions():
        events.append_to(partition, step)
    memory_compactor.roll()
    before = memory_compactor.reader()
    memory_compactor.dedupe_buffer_bytes = 208 * 10
    passes = 0
    while memory_compactor.clean_offset < partition.log.log_end_offset:
        clean_offset = memory_compactor.clean_offset
        result = memory_compactor.compact()
        assert result.statistics.map_entries <= 10
        assert memory_compactor.clean_offset > clean_offset
        assert memory_compactor.reader() == before
        passes += 1
    assert passes > 5


@pytest.mark.slow
@pytest.mark.parametrize("codec", first_of([Codec.NONE, Codec.LZ4]))
@pytest.mark.full
def test_a_million_updates_of_ten_thousand_keys(real_compactor: Any, codec: Codec) -> None:
    """In several passes, as they come."""
    partition = real_compactor.partition
    partition.configure(segment_bytes=8 << 20)
    real_compactor.dedupe_buffer_bytes = 16 << 20
    dice = random.Random(3)
    model: dict[bytes, tuple[int, bytes]] = {}
    offset = 0
    for number in range(10_000):
        records = [
            Record(0, NOW + number, b"key %d" % dice.randrange(10_000), b"update %d" % (offset + index))
            for index in range(100)
        ]
        partition.append(build_batch(records, codec=codec))
        for record in records:
            assert record.key is not None
            assert record.value is not None
            model[record.key] = (offset, record.value)
            offset += 1
        if number % 2_500 == 2_499:
            real_compactor.roll()
            real_compactor.compact()
            assert real_compactor.contents() == [
                (at, key, value) for key, (at, value) in sorted(model.items(), key=lambda item: item[1])
            ]
    assert offset == 1_000_000
    assert len(real_compactor.contents()) == 10_000

"""`Log.prepare_truncation`: the producers before a truncation are read in steps, and only if the log stays as it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from moldau.log.producer_snapshots import BATCHES_PER_STEP
from moldau.log.producer_state import ProducerState
from moldau.protocol.steps import completed

NOW = 1_700_000_000_000

Batch = Callable[..., bytes]


def fill(partition: Any, producer_batch: Batch, count: int) -> None:
    for sequence in range(count):
        partition.append(producer_batch(sequence))


def snapshot(producers: ProducerState) -> bytes:
    return producers.encode_snapshot()


@pytest.mark.parametrize("offset", [1, 5, 7, 11])
def test_a_prepared_truncation_restores_the_same_producers(partition: Any, producer_batch: Batch, offset: int) -> None:
    partition.configure(segment_bytes=len(producer_batch(0)) * 5)
    fill(partition, producer_batch, offset)
    before = snapshot(partition.log.producers)
    for sequence in range(offset, 12):
        partition.append(producer_batch(sequence))
    partition.log.truncate_to(offset, NOW, prepared=completed(partition.log.prepare_truncation(offset)))
    assert partition.log.log_end_offset == offset
    assert snapshot(partition.log.producers) == before
    assert partition.append(producer_batch(offset - 1)).duplicate
    assert not partition.append(producer_batch(offset)).duplicate


def test_a_prepared_truncation_reads_no_batches(
    partition: Any, producer_batch: Batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(partition, producer_batch, 6)
    prepared = completed(partition.log.prepare_truncation(4))
    replayed: list[object] = []
    monkeypatch.setattr(ProducerState, "replay", lambda _state, header, _batch: replayed.append(header))
    partition.log.truncate_to(4, NOW, prepared=prepared)
    assert replayed == []
    partition.log.truncate_to(2, NOW)
    assert len(replayed) == 2


def test_each_step_reads_a_bounded_number_of_batches(partition: Any) -> None:
    for _ in range(4 * BATCHES_PER_STEP):
        partition.append_values(b"value")
    assert len(list(partition.log.prepare_truncation(4 * BATCHES_PER_STEP - 1))) == 3


def test_a_batch_that_contains_the_offset_is_not_kept(partition: Any, producer_batch: Batch) -> None:
    partition.append(producer_batch(0, 2))
    partition.append(producer_batch(2, 2))
    partition.log.truncate_to(3, NOW, prepared=completed(partition.log.prepare_truncation(3)))
    assert partition.log.log_end_offset == 2
    (producer,) = partition.log.active_producers()
    assert producer.last_offset == 1


def test_an_append_in_between_makes_the_preparation_void(partition: Any, producer_batch: Batch) -> None:
    """So does a truncation, even if the log then ends where it did."""
    fill(partition, producer_batch, 6)
    prepared = completed(partition.log.prepare_truncation(4))
    partition.log.truncate_to(2, NOW)
    for sequence in range(4):
        partition.append(producer_batch(sequence, producer_id=8))
    partition.log.truncate_to(4, NOW, prepared=prepared)
    assert {producer.producer_id for producer in partition.log.active_producers()} == {7, 8}

    prepared = completed(partition.log.prepare_truncation(3))
    partition.append(producer_batch(2, producer_id=8))
    partition.log.truncate_to(4, NOW)  # the offset of a different truncation
    partition.append(producer_batch(0, producer_id=9))
    partition.log.truncate_to(4, NOW, prepared=prepared)
    assert {producer.producer_id for producer in partition.log.active_producers()} == {7, 8}


def test_nothing_is_prepared_at_the_end_of_the_log(partition: Any, producer_batch: Batch) -> None:
    fill(partition, producer_batch, 3)
    assert completed(partition.log.prepare_truncation(3)) is None


def test_a_closed_log_is_not_prepared(partition: Any, producer_batch: Batch) -> None:
    fill(partition, producer_batch, 3)
    steps = partition.log.prepare_truncation(2)
    partition.log.close(NOW)
    assert completed(steps) is None

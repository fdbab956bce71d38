"""The search by timestamp finds the same as a scan of all records."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.protocol import record_search
from moldau.protocol.record_scan import STEP_ELEMENTS
from moldau.protocol.record_search import search
from moldau.protocol.records import BATCH_OVERHEAD, InvalidRecordsError, Record, build_batch, iter_batches
from moldau.protocol.steps import completed

LOWEST, HIGHEST = -(1 << 63), (1 << 63) - 1
NOW = 1_700_000_000_000
T = TypeVar("T")

times = st.integers(LOWEST, HIGHEST) | st.integers(NOW - 70, NOW + 70) | st.integers(NOW, NOW + 5000) | st.just(-1)
some_records = st.lists(
    st.builds(
        Record,
        st.just(0),
        times,
        st.none() | st.binary(max_size=20),
        st.none() | st.binary(max_size=300),
        st.lists(st.tuples(st.text(max_size=9), st.none() | st.binary(max_size=9)), max_size=2).map(tuple),
    ),
    min_size=1,
    max_size=60,
)


def pieces_of(body: bytes, piece_bytes: int) -> Iterator[bytes]:
    for start in range(0, len(body), piece_bytes):
        yield body[start : start + piece_bytes]


few_records = st.sampled_from((0, record_search._FEW_RECORDS))
"""Batches with more records have a lookup table for skipped records."""


def found_in(
    records: list[Record], piece_bytes: int, few: int, *, timestamp: int | None, first: int = 0
) -> tuple[int, int] | None:
    body, base = body_and_base(records)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(record_search, "_FEW_RECORDS", few)
        steps = search(pieces_of(body, piece_bytes), len(records), base, timestamp=timestamp, first_delta=first)
        return completed(steps)


def body_and_base(records: list[Record]) -> tuple[bytes, int]:
    batch = next(iter_batches(build_batch(records)))
    return bytes(batch.data[BATCH_OVERHEAD:]), batch.base_timestamp


@settings(max_examples=400, deadline=None)
@given(some_records, st.integers(1, 700), few_records, times, st.integers(0, 70))
def test_it_finds_the_same_as_a_scan_of_all_records(
    records: list[Record], piece_bytes: int, few: int, timestamp: int, first: int
) -> None:
    expected = [
        (record.timestamp, index)
        for index, record in enumerate(records)
        if record.timestamp >= timestamp and index >= first
    ]
    found = found_in(records, piece_bytes, few, timestamp=timestamp, first=first)
    assert found == (expected[0] if expected else None)


@settings(max_examples=400, deadline=None)
@given(some_records, st.integers(1, 700), few_records)
def test_it_finds_the_first_of_the_largest(records: list[Record], piece_bytes: int, few: int) -> None:
    largest = max(records, key=lambda record: record.timestamp)
    index = next(index for index, record in enumerate(records) if record.timestamp == largest.timestamp)
    assert found_in(records, piece_bytes, few, timestamp=None) == (largest.timestamp, index)


@pytest.mark.parametrize("piece_bytes", [1, 7, 1000])
def test_bytes_that_are_not_the_records_are_rejected(piece_bytes: int) -> None:
    body, base = body_and_base([Record(0, NOW, b"k", b"v" * 100)] * 3)
    with pytest.raises(InvalidRecordsError, match="truncated"):
        completed(search(pieces_of(body[:-1], piece_bytes), 3, base, timestamp=NOW + 1))
    with pytest.raises(InvalidRecordsError, match="truncated"):
        completed(search(pieces_of(body, piece_bytes), 4, base, timestamp=NOW + 1))
    with pytest.raises(InvalidRecordsError, match="bytes follow"):
        completed(search(pieces_of(body, piece_bytes), 2, base, timestamp=NOW + 1))
    with pytest.raises(InvalidRecordsError, match="invalid record length"):
        completed(search(pieces_of(b"\x02" + body, piece_bytes), 3, base, timestamp=NOW + 1))


def test_it_yields_after_a_bounded_number_of_records_and_bytes() -> None:
    body, base = body_and_base([Record(0, NOW)] * (20 * STEP_ELEMENTS))
    assert sum(1 for _ in search(pieces_of(body, 1 << 17), 20 * STEP_ELEMENTS, base, timestamp=NOW + 1)) >= 4
    body, base = body_and_base([Record(0, NOW, None, bytes(20 << 20))])
    assert sum(1 for _ in search(pieces_of(body, 1 << 17), 1, base, timestamp=NOW + 1)) >= 10


@pytest.mark.parametrize("step", [1, 1000])
def test_increasing_timestamps_do_not_need_a_table_each(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    tables = 0
    made = record_search._passed

    def counted(lowest: int, highest: int) -> bytes:
        nonlocal tables
        tables += 1
        return made(lowest, highest)

    monkeypatch.setattr(record_search, "_passed", counted)
    records = [Record(0, NOW + step * number) for number in range(3000)]
    body, base = body_and_base(records)
    found = completed(search(iter([body]), len(records), base + 2000 * step, timestamp=None))
    assert found == (NOW + 4999 * step, 2999)
    assert tables <= 130

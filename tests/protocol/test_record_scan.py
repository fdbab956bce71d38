"""The scan of a batch's records finds the same as `iter_records`, and lets its caller run other tasks in between."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.protocol import compression, record_scan
from moldau.protocol.compression import Codec, CompressionError, decompress_pieces
from moldau.protocol.record_scan import STEP_ELEMENTS, RecordScan
from moldau.protocol.records import (
    BATCH_OVERHEAD,
    InvalidRecordsError,
    Record,
    RecordBatch,
    build_batch,
    iter_batches,
    iter_records,
)

LOWEST, HIGHEST = -(1 << 63), (1 << 63) - 1
NOW = 1_700_000_000_000

records_of_all_kinds = st.lists(
    st.builds(
        Record,
        st.just(0),
        st.integers(LOWEST, HIGHEST) | st.integers(NOW, NOW + 5000) | st.just(-1),
        st.none() | st.binary(max_size=200),
        st.none() | st.binary(max_size=300),
        st.lists(st.tuples(st.text(max_size=90), st.none() | st.binary(max_size=90)), max_size=3).map(tuple),
    ),
    min_size=1,
    max_size=40,
)


def batch_of(data: bytes) -> RecordBatch:
    return next(iter_batches(data))


def scan(batch: RecordBatch, piece_bytes: int, **limits: object) -> tuple[RecordScan, list[tuple[int, int, int, bool]]]:
    odd: list[tuple[int, int, int, bool]] = []

    def pieces() -> Iterator[bytes]:
        for piece in decompress_pieces(batch.codec, batch.data[BATCH_OVERHEAD:]):
            for start in range(0, len(piece), piece_bytes):
                yield piece[start : start + piece_bytes]

    def on_odd(index: int, offset_delta: int, timestamp: int, has_key: bool) -> bool:
        odd.append((index, offset_delta, timestamp, has_key))
        return False

    limits = {"lowest": LOWEST, "highest": HIGHEST, **limits}
    found = RecordScan(pieces(), batch.record_count, batch.base_timestamp, on_odd=on_odd, **limits)  # type: ignore[arg-type]
    for _ in found.steps():
        pass
    return found, odd


@settings(max_examples=150, deadline=None)
@given(
    records_of_all_kinds,
    st.sampled_from(list(Codec)),
    st.integers(1, 300),
    st.integers(NOW, NOW + 5000),
    st.sampled_from([0, 100, 1000]),
)
def test_the_scan_finds_the_same_as_iter_records(
    records: list[Record], codec: Codec, piece_bytes: int, highest: int, long_record_bytes: int
) -> None:
    batch = batch_of(build_batch(records, codec=codec))
    decoded = list(iter_records(batch))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record_scan, "LONG_RECORD_BYTES", long_record_bytes)
        found, odd = scan(batch, piece_bytes, lowest=0, highest=highest, key_required=True)
    largest = max(decoded, key=lambda record: record.timestamp)
    assert (found.largest, found.delta_of_largest) == (largest.timestamp, largest.offset)
    assert found.is_sequential
    assert odd == [
        (number, record.offset, record.timestamp, record.key is not None)
        for number, record in enumerate(decoded)
        if not 0 <= record.timestamp <= highest or record.key is None
    ]


@settings(max_examples=300, deadline=None)
@given(records_of_all_kinds, st.data(), st.integers(1, 300), st.sampled_from([0, 100, 1000]))
def test_the_scan_rejects_the_same_as_iter_records(
    records: list[Record], data: st.DataObject, size: int, long_record_bytes: int
) -> None:
    damaged = bytearray(build_batch(records))
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(BATCH_OVERHEAD, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    batch = batch_of(bytes(damaged))
    batch.data = batch.data[: data.draw(st.integers(BATCH_OVERHEAD, len(damaged)))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record_scan, "LONG_RECORD_BYTES", long_record_bytes)
        try:
            list(iter_records(batch))
        except InvalidRecordsError:
            with pytest.raises(InvalidRecordsError):
                scan(batch, size)
        else:
            scan(batch, size)


@pytest.mark.parametrize("codec", list(Codec))
def test_records_may_span_several_pieces(monkeypatch: pytest.MonkeyPatch, codec: Codec) -> None:
    monkeypatch.setattr(compression, "PIECE_BYTES", 50)
    records = [
        Record(number, NOW + number, b"k" * (number % 9), b"v" * (number * 7 % 200), (("h", b"x" * number),))
        for number in range(100)
    ]
    batch = batch_of(build_batch(records, codec=codec))
    assert list(iter_records(batch)) == records
    cut_off = batch_of(build_batch(records, codec=codec))
    cut_off.record_count = 101
    with pytest.raises(InvalidRecordsError, match="truncated"):
        list(iter_records(cut_off))
    cut_off.record_count = 99
    with pytest.raises(InvalidRecordsError, match="bytes follow"):
        list(iter_records(cut_off))


@pytest.mark.parametrize("what", ["records", "headers"])
def test_the_scan_yields_after_a_bounded_number_of_records_and_headers(what: str) -> None:
    if what == "records":
        batch = batch_of(build_batch([Record(0, NOW)] * (3 * STEP_ELEMENTS), codec=Codec.GZIP))
    else:
        batch = batch_of(build_batch([Record(0, NOW, None, None, (("", None),) * (3 * STEP_ELEMENTS))]))
    found = RecordScan(
        decompress_pieces(batch.codec, batch.data[BATCH_OVERHEAD:]),
        batch.record_count,
        batch.base_timestamp,
        lowest=0,
        highest=HIGHEST,
        on_odd=lambda *_: False,
    )
    assert sum(1 for _ in found.steps()) == 3


def test_no_more_records_are_scanned_than_the_header_declares() -> None:
    batch = batch_of(build_batch([Record(0, NOW)] * 1_000_000, codec=Codec.GZIP))
    batch.record_count = 3
    with pytest.raises(InvalidRecordsError, match="bytes follow"):
        next(iter(scan(batch, record_scan.STEP_ELEMENTS)))


def test_a_damaged_end_of_the_compressed_bytes_is_detected() -> None:
    batch = batch_of(build_batch([Record(0, NOW, None, b"x" * 100)] * 10, codec=Codec.GZIP))
    batch.data = batch.data[:-4]
    with pytest.raises(CompressionError):
        scan(batch, 1000)


def test_a_record_of_many_pieces_is_not_buffered() -> None:
    size = 32 * 1024 * 1024
    batch = batch_of(build_batch([Record(0, NOW, b"k", bytes(size))], codec=Codec.GZIP))
    found = RecordScan(
        decompress_pieces(batch.codec, batch.data[BATCH_OVERHEAD:]),
        1,
        batch.base_timestamp,
        lowest=LOWEST,
        highest=HIGHEST,
        on_odd=lambda *_: False,
    )
    tracemalloc.start()
    try:
        steps = sum(1 for _ in found.steps())
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 * 1024 * 1024
    assert steps > 10

"""Reuse of buffers for large frames."""

from __future__ import annotations

from moldau.server.network.spare_frames import MAX_SPARE_BYTES, MAX_SPARES, SpareFrames


def test_a_buffer_of_similar_size_is_reused() -> None:
    spares = SpareFrames()
    frame = bytearray(1_000_000)
    spares.keep(frame)
    assert spares.take(100_000) is None  # most of the buffer would be unused
    assert spares.take(1_500_000) is None
    taken = spares.take(999_000)
    assert taken is frame
    assert len(taken) == 999_000
    assert spares.take(999_000) is None
    spares.keep(taken)
    larger = spares.take(1_020_000)
    assert larger is frame
    assert len(larger) == 1_020_000


def test_a_buffer_with_a_view_is_not_reused() -> None:
    spares = SpareFrames()
    frame = bytearray(100_000)
    view = memoryview(frame)[10:20]
    spares.keep(frame)
    assert spares.take(100_000) is None
    view.release()
    spares.keep(frame)
    assert spares.take(100_000) is frame


def test_the_number_and_size_of_spare_buffers_are_limited() -> None:
    spares = SpareFrames()
    spares.keep(bytearray(MAX_SPARE_BYTES + 1))
    assert spares.take(MAX_SPARE_BYTES) is None
    for size in range(100_000, 100_000 + MAX_SPARES + 3):
        spares.keep(bytearray(size))
    kept = 0
    while spares.take(100_000) is not None:
        kept += 1
    assert kept == MAX_SPARES

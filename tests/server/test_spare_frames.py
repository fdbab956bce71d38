"""Buffers of large frames, used again."""

from moldau.server.spare_frames import MAX_SPARE_BYTES, MAX_SPARES, SpareFrames


def test_a_buffer_of_about_the_size_is_used_again():
    spares = SpareFrames()
    frame = bytearray(1_000_000)
    spares.keep(frame)
    assert spares.take(100_000) is None  # most of it would lie idle
    assert spares.take(1_500_000) is None
    taken = spares.take(999_000)
    assert taken is frame
    assert len(taken) == 999_000
    assert spares.take(999_000) is None
    spares.keep(taken)
    larger = spares.take(1_020_000)
    assert larger is frame
    assert len(larger) == 1_020_000


def test_a_buffer_that_somebody_looks_at_is_not_used_again():
    spares = SpareFrames()
    frame = bytearray(100_000)
    view = memoryview(frame)[10:20]
    spares.keep(frame)
    assert spares.take(100_000) is None
    view.release()
    spares.keep(frame)
    assert spares.take(100_000) is frame


def test_there_are_few_and_none_is_huge():
    spares = SpareFrames()
    spares.keep(bytearray(MAX_SPARE_BYTES + 1))
    assert spares.take(MAX_SPARE_BYTES) is None
    for size in range(100_000, 100_000 + MAX_SPARES + 3):
        spares.keep(bytearray(size))
    kept = 0
    while spares.take(100_000) is not None:
        kept += 1
    assert kept == MAX_SPARES

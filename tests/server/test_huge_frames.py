"""Buffers of tens of megabytes whose memory is freed in pieces."""

from __future__ import annotations

import mmap
from typing import Any

import pytest

from moldau.server.network.huge_frames import free_steps, huge_frame

SIZE = 20_000_000

needs_advice = pytest.mark.skipif(not hasattr(mmap, "MADV_DONTNEED"), reason="needs a system with madvise")


@needs_advice
def test_the_memory_of_a_part_is_freed_and_the_rest_is_unchanged() -> None:
    frame = huge_frame(SIZE)
    assert frame is not None
    frame[:] = b"x" * SIZE
    begin, end = 70, SIZE - 3000
    steps = list(free_steps(memoryview(frame)[begin:end]))
    assert steps == [0, 0, 0]
    assert frame[:begin] == b"x" * begin
    assert frame[end:] == b"x" * 3000
    left = bytes(frame).count(b"x")
    assert left < 4 * mmap.PAGESIZE


@needs_advice
def test_no_memory_is_freed_if_the_position_of_the_part_is_unknown() -> None:
    frame = huge_frame(SIZE)
    assert frame is not None
    frame[:] = b"x" * SIZE
    assert not list(free_steps(memoryview(frame)[SIZE // 2 :]))
    assert bytes(frame).count(b"x") == SIZE


@pytest.mark.parametrize("form", [bytes, bytearray, memoryview])
def test_other_buffers_are_not_freed(form: Any) -> None:
    data = form(b"x" * 5_000_000)
    assert not list(free_steps(data))
    assert bytes(data) == b"x" * 5_000_000

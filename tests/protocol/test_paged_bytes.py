"""Bytes that are read in windows behave like bytes."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.protocol import paged_bytes
from moldau.protocol.compression import Codec, CompressionError, compress, decompress, decompress_pieces
from moldau.protocol.paged_bytes import WINDOW_BYTES, PagedBytes


class Reader:
    def __init__(self, data: Any) -> None:
        self.data = data
        self.reads: list[Any] = []

    def __call__(self, start: Any, end: Any) -> Any:
        assert 0 <= start < end <= len(self.data)
        assert end - start <= paged_bytes.WINDOW_BYTES
        self.reads.append((start, end))
        return self.data[start:end]


@given(st.data())
def test_slices_and_items_are_equal_to_those_of_the_bytes(data: Any) -> None:
    content = bytes(range(200))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(paged_bytes, "WINDOW_BYTES", data.draw(st.integers(1, 50)))
        begin = data.draw(st.integers(0, 200))
        expected = content[begin:]
        paged = PagedBytes(Reader(content), begin, len(content))
        for _ in range(data.draw(st.integers(0, 10))):
            start, stop = data.draw(st.integers(-5, 250)), data.draw(st.integers(-5, 250))
            assert bytes(paged[start:stop]) == expected[start:stop]
            if 0 <= start < len(expected):
                assert paged[start] == expected[start]
            else:
                with pytest.raises(IndexError):
                    paged[len(expected) + abs(start)]
            rest = paged.rest(max(start, 0))
            assert len(rest) == len(expected[max(start, 0) :])
            assert bytes(rest[:]) == expected[max(start, 0) :]


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("kind", ["random", "same", "short", "members", "cut off"])
def test_a_stream_is_decompressed_as_from_bytes(codec: Codec, kind: str) -> None:
    dice = random.Random(1)
    data = {"same": bytes(5_000_000), "short": b"abc"}.get(kind) or dice.randbytes(1_500_000)
    compressed = compress(codec, data)
    if kind == "members" and codec in (Codec.GZIP, Codec.ZSTD):
        compressed += compress(codec, b"") * 50_000 + compress(codec, b"more")
        data += b"more"
    if kind == "cut off":
        compressed = compressed[:-1000]
    reader = Reader(compressed)
    paged = PagedBytes(reader, 0, len(compressed))
    if kind == "cut off" and codec is not Codec.NONE:
        with pytest.raises(CompressionError):
            decompress(codec, compressed)
        with pytest.raises(CompressionError):
            list(decompress_pieces(codec, paged))
        return
    assert b"".join(decompress_pieces(codec, paged)) == bytes(decompress(codec, compressed))
    if codec not in (Codec.ZSTD,):
        # Each byte once, from the beginning to the end.
        assert len(reader.reads) <= len(compressed) // WINDOW_BYTES * 3 + 3


def test_a_sequential_read_reads_each_window_once() -> None:
    reader = Reader(bytes(3 * WINDOW_BYTES + 5))
    paged = PagedBytes(reader, 0, len(reader.data))
    for position in range(0, len(paged), 100_000):
        paged[position : position + 100_000]
    assert [start for start, _ in reader.reads] == [0, WINDOW_BYTES, 2 * WINDOW_BYTES, 3 * WINDOW_BYTES]

"""The four codecs: round trips, data from other implementations, and the limited cost of hostile bytes."""

from __future__ import annotations

import os
import random
import sys
import time
import tracemalloc
import zlib
from contextlib import suppress

import cramjam
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.protocol import compression
from moldau.protocol.compression import (
    PIECE_BYTES,
    WHOLE_BYTES,
    Codec,
    CodecUnavailableError,
    CompressionError,
    DecompressedTooLargeError,
    buffer_bytes,
    compress,
    compressor,
    decompress,
    decompress_pieces,
)
from moldau.protocol.paged_bytes import WINDOW_BYTES, PagedBytes
from moldau.protocol.runtime import varint

CODECS = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
SAMPLES = {
    "empty": b"",
    "one byte": b"x",
    "text": b"a record of a few words, " * 4,
    "repetitive": b"\x00" * 1_000_000,
    "random": os.urandom(300_000),
    "mixed": b"".join(os.urandom(100) + b"." * 900 for _ in range(400)),
}


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("sample", SAMPLES)
def test_compressed_bytes_are_restored(codec: Codec, sample: str) -> None:
    data = SAMPLES[sample]
    for form in (data, bytearray(data), memoryview(data)):
        compressed = compress(codec, form)
        assert bytes(decompress(codec, compressed)) == data
        assert bytes(decompress(codec, memoryview(bytearray(compressed)))) == data


@pytest.mark.parametrize(
    ("codec", "levels"),
    [(Codec.GZIP, [1, 6, 9, -1]), (Codec.LZ4, [1, 9, 17]), (Codec.ZSTD, [-5, 1, 3, 22])],
)
def test_every_level_of_the_topic_configuration_works(codec: Codec, levels: list[int]) -> None:
    data = SAMPLES["mixed"]
    sizes = set()
    for level in levels:
        compressed = compress(codec, data, level)
        assert bytes(decompress(codec, compressed)) == data
        sizes.add(len(compressed))
    assert len(sizes) > 1, "the level makes no difference"


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(CODECS), st.binary(max_size=5_000), st.integers(1, 60))
def test_any_bytes_survive_a_round_trip(codec: Codec, data: bytes, times: int) -> None:
    assert bytes(decompress(codec, compress(codec, data * times))) == data * times


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(CODECS), st.binary(max_size=300))
def test_any_bytes_decompress_or_are_rejected(codec: Codec, data: bytes) -> None:
    with suppress(CompressionError):
        decompress(codec, data, 10_000)


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(CODECS), st.data())
def test_damaged_bytes_decompress_or_are_rejected(codec: Codec, data: st.DataObject) -> None:
    damaged = bytearray(compress(codec, b"records of a batch, " * 50))
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    del damaged[data.draw(st.integers(0, len(damaged))) :]
    with suppress(CompressionError):
        decompress(codec, damaged, 100_000)


@pytest.mark.parametrize("codec", CODECS)
def test_truncated_bytes_are_rejected(codec: Codec) -> None:
    whole = compress(codec, SAMPLES["text"])
    for length in range(len(whole)):
        if codec == Codec.SNAPPY and length == 16:
            continue  # a frame without blocks
        with pytest.raises(CompressionError):
            decompress(codec, whole[:length])


@pytest.mark.parametrize("codec", CODECS)
def test_the_limit_is_exact(codec: Codec) -> None:
    compressed = compress(codec, bytes(100_000))
    assert len(decompress(codec, compressed, 100_000)) == 100_000
    with pytest.raises(CompressionError, match="more than"):
        decompress(codec, compressed, 99_999)


@pytest.mark.parametrize("codec", CODECS)
def test_a_bomb_costs_no_more_memory_than_the_limit(codec: Codec) -> None:
    import tracemalloc

    bomb = compress(codec, bytes(200_000_000))
    tracemalloc.start()
    try:
        with pytest.raises(CompressionError):
            decompress(codec, bomb, 1_000_000)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 3_000_000 + len(bomb)


def test_a_declared_size_is_not_trusted() -> None:
    snappy_of_4_gb = b"\xff\xff\xff\xff\x0f" + b"\x00" * 20
    with pytest.raises(CompressionError, match="cannot hold"):
        decompress(Codec.SNAPPY, snappy_of_4_gb)
    zstd = bytearray(compress(Codec.ZSTD, b"a" * 100))
    with pytest.raises(CompressionError):  # a content size of 2**64 - 1, but no blocks
        decompress(Codec.ZSTD, bytes(zstd[:4]) + b"\xe0" + b"\xff" * 8 + b"\x01\x00\x00")


def test_consecutive_gzip_members_are_one_stream_and_padding_is_ignored() -> None:
    members = compress(Codec.GZIP, b"first ") + compress(Codec.GZIP, b"second")
    assert decompress(Codec.GZIP, members) == b"first second"
    assert decompress(Codec.GZIP, members + b"\x00" * 20) == b"first second"
    with pytest.raises(CompressionError):
        decompress(Codec.GZIP, members + members[:15])


def test_zlib_without_a_gzip_header_is_rejected() -> None:
    with pytest.raises(CompressionError):
        decompress(Codec.GZIP, zlib.compress(b"raw"))


def test_snappy_has_the_framing_of_snappy_java() -> None:
    compressed = compress(Codec.SNAPPY, bytes(40_000))
    assert compressed[:16] == b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
    first = int.from_bytes(compressed[16:20], "big")
    assert cramjam.snappy.decompress_raw(compressed[20 : 20 + first]).read() == bytes(32 * 1024)


def test_snappy_without_a_frame_and_two_frames_are_read() -> None:
    assert decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(b"raw " * 100))) == b"raw " * 100
    two = compress(Codec.SNAPPY, b"first ") + compress(Codec.SNAPPY, b"second")
    assert decompress(Codec.SNAPPY, two) == b"first second"


def test_lz4_is_written_with_independent_blocks_of_64_kb() -> None:
    compressed = compress(Codec.LZ4, SAMPLES["mixed"])
    assert int.from_bytes(compressed[:4], "little") == 0x184D2204
    flags, descriptor = compressed[4], compressed[5]
    assert flags >> 6 == 1, "frame version 1"
    assert flags & 0x20, "blocks must be independent: Java reads no others"
    assert descriptor >> 4 == 4, "64 kB"


@pytest.mark.parametrize("content_checksum", [True, False])
def test_lz4_with_checksums_is_read(content_checksum: bool) -> None:
    compressor = cramjam.lz4.Compressor(content_checksum=content_checksum, block_linked=False)
    compressor.compress(SAMPLES["mixed"])
    assert decompress(Codec.LZ4, bytes(compressor.finish())) == SAMPLES["mixed"]


def test_lz4_with_linked_blocks_is_rejected_as_in_java() -> None:
    compressor = cramjam.lz4.Compressor(block_linked=True)
    compressor.compress(SAMPLES["mixed"])
    with pytest.raises(CompressionError, match="dependent"):
        decompress(Codec.LZ4, bytes(compressor.finish()))


def test_zstd_of_several_frames_and_of_unknown_size_is_read() -> None:
    stream = cramjam.zstd.Compressor()
    for part in (b"first ", SAMPLES["mixed"], b" second"):
        stream.compress(part)
        stream.flush()
    first = bytes(stream.finish())
    both = compress(Codec.ZSTD, b"zeroth ") + first
    assert decompress(Codec.ZSTD, compress(Codec.ZSTD, b"x" * 300) + both[: -len(first)]) == b"x" * 300 + b"zeroth "
    skippable = (0x184D2A50).to_bytes(4, "little") + (3).to_bytes(4, "little") + b"abc"
    assert decompress(Codec.ZSTD, skippable + compress(Codec.ZSTD, b"y")) == b"y"


@pytest.mark.parametrize("codec", [5, 6, 7, -1])
def test_an_unknown_codec_is_rejected(codec: int) -> None:
    with pytest.raises(CompressionError, match="unknown compression codec"):
        compress(codec, b"")
    with pytest.raises(CompressionError, match="unknown compression codec"):
        decompress(codec, b"")


def test_the_codec_none_does_not_change_bytes() -> None:
    assert compress(Codec.NONE, b"as they are") == b"as they are"
    assert decompress(Codec.NONE, b"as they are") == b"as they are"


def test_the_error_about_a_missing_library_states_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cramjam", None)
    with pytest.raises(CodecUnavailableError, match="pip install cramjam"):
        compress(Codec.ZSTD, b"x")
    assert decompress(Codec.GZIP, compress(Codec.GZIP, b"needs no library")) == b"needs no library"


def test_codecs_are_not_imported_before_they_are_used() -> None:
    import subprocess

    code = "import sys, moldau.protocol.records; print('cramjam' in sys.modules, 'crc32c' in sys.modules)"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert output.stdout.split() == ["False", "False"]
    assert compression.DEFAULT_MAX_SIZE == 128 * 1024 * 1024


@pytest.mark.parametrize("codec", [Codec.NONE, *CODECS])
@pytest.mark.parametrize("sample", SAMPLES)
def test_pieces_are_small_and_add_up_to_the_whole(codec: Codec, sample: str) -> None:
    data = SAMPLES[sample]
    pieces = list(decompress_pieces(codec, compress(codec, data)))
    assert b"".join(pieces) == data
    assert all(0 < len(piece) <= PIECE_BYTES for piece in pieces)


@pytest.mark.parametrize("codec", CODECS)
def test_pieces_are_rejected_if_the_whole_is(codec: Codec) -> None:
    whole = compress(codec, bytes(300_000))
    assert sum(map(len, decompress_pieces(codec, whole, 300_000))) == 300_000
    with pytest.raises(DecompressedTooLargeError):
        list(decompress_pieces(codec, whole, 299_999))
    for length in (0, 1, 5, len(whole) // 2, len(whole) - 1):
        with pytest.raises(CompressionError):
            list(decompress_pieces(codec, whole[:length]))


@pytest.mark.parametrize("codec", [Codec.NONE, *CODECS])
@pytest.mark.parametrize("sample", SAMPLES)
def test_bytes_compressed_piece_by_piece_are_restored(codec: Codec, sample: str) -> None:
    data = SAMPLES[sample]
    writer = compressor(codec)
    parts = [writer.add(data[start : start + 50_000]) for start in range(0, len(data), 50_000)]
    assert bytes(decompress(codec, b"".join((*parts, writer.finish())))) == data


def test_only_the_first_lz4_frame_is_read_as_in_java() -> None:
    frame = compress(Codec.LZ4, b"first " * 100)
    for rest in (b"x", b"\x00" * 4, frame, compress(Codec.LZ4, b"second"), b"\x04\x22\x4d\x18"):
        assert decompress(Codec.LZ4, frame + rest) == b"first " * 100
        assert b"".join(decompress_pieces(Codec.LZ4, frame + rest)) == b"first " * 100


def test_lz4_with_a_content_checksum_and_a_wrong_one_is_read_as_in_java() -> None:
    writer = cramjam.lz4.Compressor(0, content_checksum=True, block_linked=False)
    writer.compress(b"some words " * 20_000)
    frame = bytearray(bytes(writer.finish()))
    assert frame[4] & 0x04
    for _ in range(2):
        assert decompress(Codec.LZ4, frame) == b"some words " * 20_000
        assert b"".join(decompress_pieces(Codec.LZ4, frame)) == b"some words " * 20_000
        frame[-1] ^= 0xFF
    frame[6] ^= 0xFF
    with pytest.raises(CompressionError, match="checksum of the frame header"):
        decompress(Codec.LZ4, frame)


def many_small_units(codec: Codec, count: int) -> bytes:
    """Compressed bytes that are split into as many parts as the format allows, with little content each."""
    match codec:
        case Codec.GZIP | Codec.ZSTD:
            return compress(codec, b"") * count
        case Codec.SNAPPY:
            return compress(codec, b"") + b"\x00\x00\x00\x01\x00" * count
        case _:
            return bytes.fromhex("04224d18604082") + b"\x01\x00\x00\x80x" * count + bytes(4)


@pytest.mark.parametrize("codec", CODECS)
def test_many_empty_members_frames_and_blocks_take_linear_time(codec: Codec) -> None:
    def seconds(count: int) -> float:
        data = many_small_units(codec, count)
        best = float("inf")
        for _ in range(3):
            start = time.thread_time()
            decompress(codec, data)
            list(decompress_pieces(codec, data))
            best = min(best, time.thread_time() - start)
        return best

    # 16 times the work; a quadratic algorithm would take 256 times as long.
    assert seconds(64_000) < 80 * seconds(4_000)


@pytest.mark.parametrize("codec", CODECS)
def test_the_size_of_the_buffer_for_pieces_is_known(codec: Codec) -> None:
    assert buffer_bytes(codec, compress(codec, bytes(50_000_000))) <= WHOLE_BYTES
    assert buffer_bytes(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(bytes(50_000_000)))) == 50_000_000
    assert buffer_bytes(Codec.ZSTD, zstd_with_window(bytes(50_000_000), 27)) == 50_000_000
    assert buffer_bytes(Codec.ZSTD, zstd_with_window(bytes(50_000_000), 24)) == 1 << 24


# -- large frames and blocks are streams --

BOUNDS = {"WHOLE_BYTES": 2000, "_SNAPPY_GROUP_INPUT": 1000, "PIECE_BYTES": 1000}
"""So that small inputs count as large."""


def zstd_with_window(data: bytes, window_log: int) -> bytes:
    """A frame that does not declare its size."""
    parameters = zstandard.ZstdCompressionParameters(window_log=window_log, compression_level=1)
    stream = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    return stream.compress(data) + stream.flush()


def in_pages(data: bytes) -> PagedBytes:
    return PagedBytes(lambda start, end: data[start:end], 0, len(data))


def snappy_elements(elements: list[tuple[int, int]], dice: random.Random) -> tuple[bytes, int]:
    """Raw snappy of (length, offset) in any possible form; offset 0 is a literal. Also returns its size."""
    parts: list[bytes] = []
    size = 0
    for length, wanted in elements:
        offset = min(wanted, size)
        if not offset:
            extra = dice.randint(2 if length <= 1 << 16 else 4, 4) if length > 60 or dice.random() < 0.3 else 0
            tag = 59 + extra if extra else length - 1
            parts += bytes((tag << 2,)), (length - 1).to_bytes(4, "little")[:extra], dice.randbytes(length)
        else:
            length = min(length, 64)
            forms = [3]
            if offset < 1 << 16:
                forms.append(2)
                if offset < 1 << 11 and 4 <= length <= 11:
                    forms.append(1)
            match dice.choice(forms):
                case 1:
                    parts.append(bytes((offset >> 8 << 5 | length - 4 << 2 | 1, offset & 0xFF)))
                case form:
                    parts.append(bytes((length - 1 << 2 | form,)) + offset.to_bytes(2 * form - 2, "little"))
        size += length
    return varint(size) + b"".join(parts), size


@pytest.mark.parametrize("framed", [False, True])
@pytest.mark.parametrize("seed", range(20))
def test_a_large_snappy_block_is_read_as_by_the_library(seed: int, framed: bool) -> None:
    dice = random.Random(seed)
    offsets = [0, 50, 3000, 200_000]  # the last ones are far
    elements = [(dice.randint(1, dice.choice((10, 500))), dice.randint(0, dice.choice(offsets))) for _ in range(2000)]
    elements.append((500, 0))  # the library does not accept a short literal in a long form at the end
    raw, size = snappy_elements(elements, dice)
    data = compress(Codec.SNAPPY, b"")[:16] + len(raw).to_bytes(4, "big") + raw if framed else raw
    whole = bytes(cramjam.snappy.decompress_raw(raw))
    with pytest.MonkeyPatch.context() as patch:
        for name, value in BOUNDS.items():
            patch.setattr(compression, name, value)
        for view in (data, in_pages(data)):
            pieces = list(decompress_pieces(Codec.SNAPPY, view, size))
            assert b"".join(pieces) == whole
            assert all(0 < len(piece) <= 1000 for piece in pieces)
        with pytest.raises(DecompressedTooLargeError):
            list(decompress_pieces(Codec.SNAPPY, data, size - 1))
        cut = dice.randrange(len(raw))
        with pytest.raises(CompressionError):
            list(decompress_pieces(Codec.SNAPPY, raw[:cut]))
        for _ in range(5):  # any output is possible, but no other exception
            damaged = bytearray(raw)
            damaged[dice.randrange(len(raw))] ^= 1 << dice.randrange(8)
            with suppress(CompressionError):
                list(decompress_pieces(Codec.SNAPPY, bytes(damaged)))


@pytest.mark.parametrize("window_log", [10, 17, 21, 25])
@pytest.mark.parametrize("declared", [False, True])
def test_large_zstd_frames_are_read_as_a_stream(window_log: int, declared: bool) -> None:
    dice = random.Random(window_log)
    unit = dice.randbytes(3_000_000)
    data = unit + bytes(2_000_000) + unit[::-1] + unit + dice.randbytes(1000)
    frame = bytes(cramjam.zstd.compress(data, 3)) if declared else zstd_with_window(data, window_log)
    skippable = bytes.fromhex("502a4d18") + (9_000_000).to_bytes(4, "little") + bytes(9_000_000)
    small = compress(Codec.ZSTD, b"small")
    for packed, content in (
        (frame, data),
        (small + frame + skippable + small + small, b"small" + data + b"smallsmall"),
    ):
        for view in (packed, in_pages(packed)):
            pieces = list(decompress_pieces(Codec.ZSTD, view, len(content)))
            assert b"".join(pieces) == content
            assert all(0 < len(piece) <= PIECE_BYTES for piece in pieces)
        with pytest.raises(DecompressedTooLargeError):
            list(decompress_pieces(Codec.ZSTD, packed, len(content) - 1))
    for cut in (len(frame) - 1, len(frame) // 2):
        with pytest.raises(CompressionError, match="truncated"):
            list(decompress_pieces(Codec.ZSTD, frame[:cut]))


def test_references_too_far_back_are_rejected() -> None:
    far = zstd_with_window(random.Random(1).randbytes(20_000_000), 25)
    list(decompress_pieces(Codec.ZSTD, far, max_window=1 << 25))
    with pytest.raises(CompressionError, match="refers to more than 16777216 bytes back"):
        list(decompress_pieces(Codec.ZSTD, far, max_window=1 << 24))
    raw, _size = snappy_elements([(10_000_000, 0), (60, 9_500_000)], random.Random(1))
    list(decompress_pieces(Codec.SNAPPY, raw))
    with pytest.raises(CompressionError, match="too far back"):
        list(decompress_pieces(Codec.SNAPPY, raw, max_window=9_000_000))


@pytest.mark.parametrize("codec", [Codec.SNAPPY, Codec.ZSTD])
def test_large_frames_and_blocks_are_never_completely_in_memory(codec: Codec) -> None:
    data = random.Random(1).randbytes(40_000_000)
    packed = bytes(cramjam.snappy.compress_raw(data)) if codec == Codec.SNAPPY else compress(codec, data)
    largest = 0

    def read(start: int, end: int) -> bytes:
        nonlocal largest
        largest = max(largest, end - start)
        return packed[start:end]

    tracemalloc.start()
    try:
        for _piece in decompress_pieces(codec, PagedBytes(read, 0, len(packed)), max_window=WHOLE_BYTES):
            pass
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < WHOLE_BYTES
    assert largest <= WINDOW_BYTES


def test_a_missing_library_for_large_zstd_frames_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(CodecUnavailableError, match="pip install zstandard"):
        list(decompress_pieces(Codec.ZSTD, compress(Codec.ZSTD, bytes(10_000_000))))

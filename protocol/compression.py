"""The four compression codecs of record batches, as Kafka's Java client frames them.

What is compressed is the records of one batch, everything after its 61-byte header; which codec is in the lowest three
bits of the batch's attributes (KIP-98, zstd KIP-110, levels KIP-390). Every codec is bounded on reading: nothing is
allocated beyond `max_size`, and for lz4, snappy and zstd the output is sized from the framing before anything is
decompressed, so bytes that promise much and hold little cost little.

    gzip     RFC 1952; several members one after another are read as one (as java.util.zip does)
    snappy   the frame of the `snappy-java` library ("xerial"), blocks of 32 kB when written:
                 82 'S' 'N' 'A' 'P' 'P' 'Y' 00 | version int32 | compatible int32 | (length int32 | raw snappy)*
             Read as well: raw snappy without a frame (other clients), and frames one after another.
    lz4      LZ4 frames with independent blocks of 64 kB when written. Java refuses linked blocks, so we do too.
             Read as well: other block sizes, content size, block and content checksums.
    zstd     zstd frames.

Nothing here knows about batches, and no codec library is imported before the first batch that needs it.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import types

Buffer = bytes | bytearray | memoryview
"""What is compressed and decompressed: anything that holds bytes."""

DEFAULT_MAX_SIZE = 128 * 1024 * 1024
"""Bytes that one batch may decompress to, unless the caller says otherwise. Apache Kafka has no such limit; with its
default `message.max.bytes` of 1 MB, a batch that honestly reaches this is 128 times smaller compressed."""


class Codec(IntEnum):
    """Compression codecs by the id in a batch's attributes; names as in the topic config `compression.type`."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class CompressionError(ValueError):
    """Compressed bytes that are malformed, or larger than the caller's limit when decompressed."""


class CodecUnavailableError(RuntimeError):
    """The library behind a codec is not installed; the message says how to get it."""


def compress(codec: int, data: Buffer, level: int | None = None) -> bytes:
    """`data` compressed as Kafka's Java client would frame it.

    `level` is what `compression.gzip.level`, `compression.lz4.level` and `compression.zstd.level` say; None is the
    codec's default in Kafka (gzip -1, lz4 9, zstd 3), and snappy has none.
    """
    if codec == Codec.GZIP:
        return _compress_gzip(data, level)
    if codec == Codec.SNAPPY:
        return _compress_snappy(data)
    if codec == Codec.LZ4:
        return _compress_lz4(data, level)
    if codec == Codec.ZSTD:
        return _compress_zstd(data, level)
    if codec == Codec.NONE:
        return bytes(data)
    raise CompressionError(f"unknown compression codec {codec}")


def decompress(codec: int, data: Buffer, max_size: int = DEFAULT_MAX_SIZE) -> bytes | bytearray | memoryview:
    """`data` decompressed; `data` itself for `Codec.NONE`.

    Raises `CompressionError` for malformed bytes and for output over `max_size` bytes.
    """
    if codec == Codec.GZIP:
        return _decompress_gzip(data, max_size)
    if codec == Codec.SNAPPY:
        return _decompress_snappy(data, max_size)
    if codec == Codec.LZ4:
        return _decompress_lz4(data, max_size)
    if codec == Codec.ZSTD:
        return _decompress_zstd(data, max_size)
    if codec == Codec.NONE:
        return data
    raise CompressionError(f"unknown compression codec {codec}")


def _cramjam() -> types.ModuleType:
    try:
        import cramjam
    except ImportError as error:
        raise CodecUnavailableError("snappy, lz4 and zstd need the package cramjam: pip install cramjam") from error
    return cramjam


def _too_large(max_size: int) -> CompressionError:
    return CompressionError(f"decompresses to more than {max_size} bytes")


def _decompress_bounded(module: str, data: Buffer, bound: int, max_size: int) -> bytearray:
    """Decompress by this module of cramjam what cannot hold more than ``bound`` bytes."""
    output = bytearray(min(bound, max_size))
    cramjam = _cramjam()
    try:
        written = getattr(cramjam, module).decompress_into(data, output)
    except cramjam.DecompressionError as error:
        if bound > max_size:
            raise _too_large(max_size) from None
        raise CompressionError(f"{module}: {error}") from None
    del output[written:]
    return output


# gzip: zlib of the standard library. It was measured faster than cramjam's at compressing, and stops at a limit.


def _compress_gzip(data: Buffer, level: int | None) -> bytes:
    import zlib

    compressor = zlib.compressobj(zlib.Z_DEFAULT_COMPRESSION if level is None else level, zlib.DEFLATED, 31)
    return compressor.compress(data) + compressor.flush()


def _decompress_gzip(data: Buffer, max_size: int) -> bytes:
    import zlib

    parts: list[bytes] = []
    room = max_size
    rest: Buffer = data
    while len(rest):
        if parts and bytes(rest[:2]) != b"\x1f\x8b":
            break  # What is no further member is padding, as for java.util.zip.
        member = zlib.decompressobj(31)
        try:
            # One byte more than allowed, so that exactly `max_size` bytes pass and one more is noticed.
            part = member.decompress(rest, room + 1)
        except zlib.error as error:
            raise CompressionError(f"gzip: {error}") from None
        if len(part) > room:
            raise _too_large(max_size)
        if not member.eof:
            raise CompressionError("gzip: the stream ends too early")
        parts.append(part)
        room -= len(part)
        rest = member.unused_data
    if not parts:
        raise CompressionError("gzip: no data")
    return parts[0] if len(parts) == 1 else b"".join(parts)


# snappy

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + (1).to_bytes(4, "big") + (1).to_bytes(4, "big")
_XERIAL_BLOCK_SIZE = 32 * 1024
# A copy of at most 64 bytes takes at least 2 bytes of input, so no honest block grows more than 32 times.
_SNAPPY_MAX_RATIO = 32


def _compress_snappy(data: Buffer) -> bytes:
    compress_raw = _cramjam().snappy.compress_raw
    view = memoryview(data)
    parts: list[bytes] = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK_SIZE):
        block = bytes(compress_raw(view[start : start + _XERIAL_BLOCK_SIZE]))
        parts.append(len(block).to_bytes(4, "big"))
        parts.append(block)
    return b"".join(parts)


def _decompress_snappy(data: Buffer, max_size: int) -> bytearray:
    view = memoryview(data)
    if bytes(view[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return _decompress_snappy_block(view, max_size)
    output = bytearray()
    position = 0
    end = len(view)
    while position < end:
        if bytes(view[position : position + len(_XERIAL_MAGIC)]) == _XERIAL_MAGIC:
            position += len(_XERIAL_HEADER)
            if position > end:
                raise CompressionError("snappy: the stream header is cut off")
            continue
        length = int.from_bytes(view[position : position + 4], "big")
        position += 4
        if position + length > end:
            raise CompressionError("snappy: a block reaches past the end of the stream")
        output += _decompress_snappy_block(view[position : position + length], max_size - len(output))
        position += length
    return output


def _decompress_snappy_block(block: memoryview, room: int) -> bytearray:
    size = shift = 0
    for index in range(5):
        if index == len(block):
            raise CompressionError("snappy: a block has no length")
        byte = block[index]
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    else:
        raise CompressionError("snappy: a block's length is no varint")
    if size > len(block) * _SNAPPY_MAX_RATIO:
        raise CompressionError(f"snappy: {len(block)} bytes cannot hold {size}")
    if size > room:
        raise _too_large(room)
    output = bytearray(size)
    cramjam = _cramjam()
    try:
        written = cramjam.snappy.decompress_raw_into(block, output)
    except cramjam.DecompressionError as error:
        raise CompressionError(f"snappy: {error}") from None
    if written != size:
        raise CompressionError(f"snappy: a block of {size} bytes held {written}")
    return output


# lz4

_LZ4_MAGIC = 0x184D2204
_LZ4_DEFAULT_LEVEL = 9
# A match adds at most 255 bytes of output for each byte of its length, and a sequence has a token and an offset too.
_LZ4_MAX_RATIO = 255
_SKIPPABLE_MAGIC = range(0x184D2A50, 0x184D2A60)


def _compress_lz4(data: Buffer, level: int | None) -> bytes:
    # Kafka's default level 9 stands for lz4's fast compressor, every other level for the slow one (KIP-390).
    level = 0 if level is None or level == _LZ4_DEFAULT_LEVEL else level
    compressor = _cramjam().lz4.Compressor(level, content_checksum=False, block_linked=False)
    compressor.compress(bytes(data))
    return bytes(compressor.finish())


def _decompress_lz4(data: Buffer, max_size: int) -> bytearray:
    return _decompress_bounded("lz4", data, _lz4_output_bound(memoryview(data)), max_size)


def _lz4_output_bound(view: memoryview) -> int:
    """The most bytes these frames can hold, from their block headers.

    magic uint32le | FLG | BD | [content size 8] | header checksum | blocks | end mark 0 uint32le | [checksum 4]
    block: size uint32le (highest bit: stored uncompressed) | data | [checksum 4]
    """
    bound = position = 0
    end = len(view)
    while position < end:
        if position + 7 > end:
            raise CompressionError("lz4: the frame header is cut off")
        magic = int.from_bytes(view[position : position + 4], "little")
        if magic != _LZ4_MAGIC:
            raise CompressionError(f"lz4: no frame begins with {magic:08x}")
        flags, descriptor = view[position + 4], view[position + 5]
        if flags >> 6 != 1:
            raise CompressionError(f"lz4: unknown frame version {flags >> 6}")
        if not flags & 0x20:
            raise CompressionError("lz4: dependent blocks are not supported")
        block_size_id = descriptor >> 4 & 7
        if block_size_id < 4:
            raise CompressionError(f"lz4: unknown block size {block_size_id}")
        max_block_size = 1 << (8 + 2 * block_size_id)
        block_trailer = 4 if flags & 0x10 else 0
        position += 7 + (8 if flags & 0x08 else 0)
        while True:
            if position + 4 > end:
                raise CompressionError("lz4: the frame has no end mark")
            size = int.from_bytes(view[position : position + 4], "little")
            position += 4
            if size == 0:
                break
            if size & 0x8000_0000:
                size &= 0x7FFF_FFFF
                bound += size
            else:
                bound += min(max_block_size, size * _LZ4_MAX_RATIO)
            if size > max_block_size:
                raise CompressionError("lz4: a block is larger than the frame's block size")
            position += size + block_trailer
        position += 4 if flags & 0x04 else 0
        if position > end:
            raise CompressionError("lz4: the frame is cut off")
    if not end:
        raise CompressionError("lz4: no data")
    return bound


# zstd

_ZSTD_MAGIC = 0xFD2FB528
_ZSTD_DEFAULT_LEVEL = 3
_ZSTD_MAX_BLOCK_SIZE = 128 * 1024


def _compress_zstd(data: Buffer, level: int | None) -> bytes:
    return bytes(_cramjam().zstd.compress(data, _ZSTD_DEFAULT_LEVEL if level is None else level))


def _decompress_zstd(data: Buffer, max_size: int) -> bytearray:
    return _decompress_bounded("zstd", data, _zstd_output_bound(memoryview(data)), max_size)


def _zstd_output_bound(view: memoryview) -> int:
    """The most bytes these frames can hold, from their block headers (RFC 8878, section 3.1.1).

    magic uint32le | descriptor | [window 1] | [dictionary id] | [content size] | blocks | [checksum 4]
    block: header uint24le (bit 0: last, bits 1-2: type, from bit 3: size) | data
    """
    bound = position = 0
    end = len(view)
    while position < end:
        magic = int.from_bytes(view[position : position + 4], "little")
        if magic in _SKIPPABLE_MAGIC:
            position += 8 + int.from_bytes(view[position + 4 : position + 8], "little")
            continue
        if magic != _ZSTD_MAGIC or position + 5 > end:
            raise CompressionError(f"zstd: no frame begins with {magic:08x}")
        descriptor = view[position + 4]
        single_segment = descriptor & 0x20
        position += 5 + (not single_segment) + (0, 1, 2, 4)[descriptor & 3]
        content_size_length = (1 if single_segment else 0, 2, 4, 8)[descriptor >> 6]
        content_size = int.from_bytes(view[position : position + content_size_length], "little")
        content_size += 256 if content_size_length == 2 else 0
        position += content_size_length
        frame_bound = 0
        last = False
        while not last:
            if position + 3 > end:
                raise CompressionError("zstd: the frame is cut off")
            header = int.from_bytes(view[position : position + 3], "little")
            last = bool(header & 1)
            block_type, size = header >> 1 & 3, header >> 3
            if size > _ZSTD_MAX_BLOCK_SIZE or block_type == 3:
                raise CompressionError("zstd: a block header is malformed")
            position += 3 + (1 if block_type == 1 else size)
            frame_bound += _ZSTD_MAX_BLOCK_SIZE if block_type == 2 else size
        bound += min(frame_bound, content_size) if content_size_length else frame_bound
        position += 4 if descriptor & 0x04 else 0
    if position > end:
        raise CompressionError("zstd: the frame is cut off")
    if not end:
        raise CompressionError("zstd: no data")
    return bound

"""The four compression codecs of record batches, as Kafka's Java client frames them.

What is compressed is the records of one batch, everything after its 61-byte header; which codec is in the lowest three
bits of the batch's attributes (KIP-98, zstd KIP-110, levels KIP-390). Every codec is bounded on reading: nothing is
allocated beyond `max_size`, and for lz4, snappy and zstd the output is sized from the framing before anything is
decompressed, so bytes that promise much and hold little cost little. The time is linear in the bytes that go in and
come out, however they are cut into members, frames and blocks.

`decompress` gives the whole, `decompress_pieces` one piece after another. The buffer behind the pieces is small, with
two exceptions: a zstd frame and snappy without a frame are decompressed whole, because the library has no other way
(`buffer_bytes` is the size).

    gzip     RFC 1952; several members one after another are read as one (as java.util.zip does)
    snappy   the frame of the `snappy-java` library ("xerial"), blocks of 32 kB when written:
                 82 'S' 'N' 'A' 'P' 'P' 'Y' 00 | version int32 | compatible int32 | (length int32 | raw snappy)*
             Read as well: raw snappy without a frame (other clients), and frames one after another.
    lz4      LZ4 frames with independent blocks of 64 kB when written. Java refuses linked blocks, so we do too.
             Read as well: other block sizes, content size, block and content checksums (the content size and the
             content checksum are not checked, as in Java). The first frame counts; what follows it is ignored, as Java
             ignores it.
    zstd     zstd frames.

Nothing here knows about batches, and no codec library is imported before the first batch that needs it.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import types
    from typing import Any

Buffer = bytes | bytearray | memoryview
"""What is compressed and decompressed: anything that holds bytes."""

DEFAULT_MAX_SIZE = 128 * 1024 * 1024
"""Bytes that one batch may decompress to, unless the caller says otherwise. Apache Kafka has no such limit; with its
default `message.max.bytes` of 1 MB, a batch that honestly reaches this is 128 times smaller compressed."""


PIECE_BYTES = 128 * 1024
"""The largest piece of `decompress_pieces`."""


class Codec(IntEnum):
    """Compression codecs by the id in a batch's attributes; names as in the topic config `compression.type`."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class CompressionError(ValueError):
    """Compressed bytes that are malformed, or larger than the caller's limit when decompressed."""


class DecompressedTooLargeError(CompressionError):
    """More bytes than the caller allowed come out of these."""


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


def compressor(codec: int, level: int | None = None) -> Compressor:
    """What compresses piece by piece. The result is not always byte for byte that of `compress`."""
    if codec == Codec.NONE:
        return Compressor()
    if codec == Codec.GZIP:
        return _GzipCompressor(level)
    if codec == Codec.SNAPPY:
        return _SnappyCompressor()
    if codec == Codec.LZ4:
        return _CramjamCompressor(_lz4_compressor(level))
    if codec == Codec.ZSTD:
        return _CramjamCompressor(_cramjam().zstd.Compressor(_ZSTD_DEFAULT_LEVEL if level is None else level))
    raise CompressionError(f"unknown compression codec {codec}")


class Compressor:
    """Compresses piece by piece; this one leaves everything as it is."""

    def add(self, piece: bytes) -> bytes:
        """What is to be written after this piece; often nothing yet."""
        return piece

    def finish(self) -> bytes:
        """The rest."""
        return b""


def decompress(codec: int, data: Buffer, max_size: int = DEFAULT_MAX_SIZE) -> bytes | bytearray | memoryview:
    """`data` decompressed; `data` itself for `Codec.NONE`.

    Raises `CompressionError` for malformed bytes, and `DecompressedTooLargeError` for output over `max_size` bytes.
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


def decompress_pieces(codec: int, data: Buffer, max_size: int = DEFAULT_MAX_SIZE) -> Iterator[bytes]:
    """What `decompress` returns, in pieces of up to `PIECE_BYTES`, none of them empty.

    Raises what `decompress` raises, perhaps after some pieces.
    """
    if codec == Codec.NONE:
        return _cut(memoryview(data))
    if codec == Codec.GZIP:
        return _gzip_pieces(memoryview(data), max_size)
    if codec == Codec.SNAPPY:
        return _snappy_pieces(memoryview(data), max_size)
    if codec == Codec.LZ4:
        return _lz4_pieces(memoryview(data), max_size)
    if codec == Codec.ZSTD:
        return _zstd_pieces(memoryview(data), max_size)
    raise CompressionError(f"unknown compression codec {codec}")


def buffer_bytes(codec: int, data: Buffer, max_size: int = DEFAULT_MAX_SIZE) -> int:
    """How large a buffer `decompress_pieces` may need, at most, rounded up for small ones."""
    view = memoryview(data)
    needed = _LARGEST_LZ4_BLOCK
    if codec == Codec.ZSTD:
        needed = max(needed, max((bound for _start, _end, bound in _zstd_frames(view)), default=0))
    elif codec == Codec.SNAPPY and bytes(view[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        needed = max(needed, _snappy_size(view))
    return min(needed, max_size)


def _cut(view: memoryview) -> Iterator[bytes]:
    for start in range(0, len(view), PIECE_BYTES):
        yield bytes(view[start : start + PIECE_BYTES])


def _cramjam() -> types.ModuleType:
    try:
        import cramjam
    except ImportError as error:
        raise CodecUnavailableError("snappy, lz4 and zstd need the package cramjam: pip install cramjam") from error
    return cramjam


def _too_large(max_size: int) -> CompressionError:
    return DecompressedTooLargeError(f"decompresses to more than {max_size} bytes")


# A large bytearray is filled with zeros when it is made; of anonymous memory only what is written takes room.
_BYTEARRAY_BYTES = 1 << 20


def _decompress_bounded(module: str, data: Buffer, bound: int, max_size: int) -> bytearray | memoryview:
    """Decompress by this module of cramjam what cannot hold more than ``bound`` bytes."""
    cramjam = _cramjam()
    size = min(bound, max_size)
    output: bytearray | memoryview
    if size <= _BYTEARRAY_BYTES:
        output = bytearray(size)
    else:
        from mmap import mmap

        output = memoryview(mmap(-1, size))
    try:
        written = getattr(cramjam, module).decompress_into(data, output)
    except cramjam.DecompressionError as error:
        if bound > max_size:
            raise _too_large(max_size) from None
        raise CompressionError(f"{module}: {error}") from None
    if isinstance(output, memoryview):
        return output[:written]
    del output[written:]
    return output


# gzip: zlib of the standard library. It was measured faster than cramjam's at compressing, and stops at a limit.


def _compress_gzip(data: Buffer, level: int | None) -> bytes:
    import zlib

    compressor = zlib.compressobj(zlib.Z_DEFAULT_COMPRESSION if level is None else level, zlib.DEFLATED, 31)
    return compressor.compress(data) + compressor.flush()


class _GzipCompressor(Compressor):
    def __init__(self, level: int | None) -> None:
        import zlib

        self._compressor = zlib.compressobj(zlib.Z_DEFAULT_COMPRESSION if level is None else level, zlib.DEFLATED, 31)

    def add(self, piece: bytes) -> bytes:
        return self._compressor.compress(piece)

    def finish(self) -> bytes:
        return self._compressor.flush()


def _decompress_gzip(data: Buffer, max_size: int) -> bytes:
    """Nearly always there is one member, which this takes in one call."""
    import zlib

    if not len(data):
        raise CompressionError("gzip: no data")
    member = zlib.decompressobj(31)
    try:
        # One byte more than allowed, so that exactly `max_size` bytes pass and one more is noticed.
        part = member.decompress(data, max_size + 1)
    except zlib.error as error:
        raise CompressionError(f"gzip: {error}") from None
    if len(part) > max_size:
        raise _too_large(max_size)
    if not member.eof:
        raise CompressionError("gzip: the stream ends too early")
    rest = memoryview(data)[len(data) - len(member.unused_data) :]
    if not _is_gzip(rest):
        return part
    return b"".join((part, *_gzip_pieces(rest, max_size - len(part))))


def _is_gzip(view: memoryview) -> bool:
    return bytes(view[:2]) == b"\x1f\x8b"


# What is given to zlib at once. It copies what it does not use (the rest of a member's output, the next member), so it
# is given little: first for members that hold nothing, then more.
_FIRST_GZIP_INPUT = 256
_GZIP_INPUT = 16 * 1024


def _gzip_pieces(view: memoryview, max_size: int) -> Iterator[bytes]:
    import zlib

    position, end, room = 0, len(view), max_size
    first = True
    parts: list[bytes] = []  # of many members that are too short for a piece
    parts_size = 0
    # What follows the first member and is no member itself is padding, as for java.util.zip.
    while first or _is_gzip(view[position : position + 2]):
        first = False
        member = zlib.decompressobj(31)
        size = _FIRST_GZIP_INPUT
        given: Buffer = b""
        while not member.eof:
            if not len(given):
                given = view[position : position + size]
                position += len(given)
                size = min(size * 4, _GZIP_INPUT)
            at_end = not len(given)
            try:
                part = member.decompress(given, PIECE_BYTES)
            except zlib.error as error:
                raise CompressionError(f"gzip: {error}") from None
            if len(part) > room:
                raise _too_large(max_size)
            if at_end and not part and not member.eof:
                raise CompressionError("gzip: the stream ends too early" if end else "gzip: no data")
            room -= len(part)
            given = member.unconsumed_tail
            if parts_size + len(part) > PIECE_BYTES:
                yield b"".join(parts)
                parts, parts_size = [], 0
            if part:
                parts.append(part)
                parts_size += len(part)
        position -= len(member.unused_data)
    if parts:
        yield b"".join(parts)


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


class _SnappyCompressor(Compressor):
    def __init__(self) -> None:
        self._rest = b""
        self._header = _XERIAL_HEADER

    def add(self, piece: bytes) -> bytes:
        data = self._rest + piece
        whole = len(data) - len(data) % _XERIAL_BLOCK_SIZE
        self._rest = data[whole:]
        return self._compress(data[:whole])

    def finish(self) -> bytes:
        return self._compress(self._rest)

    def _compress(self, data: bytes) -> bytes:
        compressed = _compress_snappy(data)[len(_XERIAL_HEADER) :]
        header, self._header = self._header, b""
        return header + compressed


def _decompress_snappy(data: Buffer, max_size: int) -> bytearray | memoryview:
    view = memoryview(data)
    if bytes(view[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return _decompress_snappy_block(view, max_size)
    output = bytearray()
    for block in _snappy_blocks(view, max_size):
        output += block
    return output


def _snappy_pieces(view: memoryview, max_size: int) -> Iterator[bytes]:
    if bytes(view[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        yield from _cut(memoryview(_decompress_snappy_block(view, max_size)))
        return
    piece = bytearray()
    for block in _snappy_blocks(view, max_size):
        if len(piece) + len(block) > PIECE_BYTES:
            if piece:
                yield bytes(piece)
                piece.clear()
            if len(block) > PIECE_BYTES:
                yield from _cut(memoryview(block))
                continue
        piece += block
    if piece:
        yield bytes(piece)


def _snappy_blocks(view: memoryview, max_size: int) -> Iterator[bytearray | memoryview]:
    position = 0
    end = len(view)
    room = max_size
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
        block = _decompress_snappy_block(view[position : position + length], room)
        room -= len(block)
        position += length
        yield block


def _snappy_size(block: memoryview) -> int:
    """How many bytes raw snappy says it holds."""
    size = shift = 0
    for index in range(5):
        if index == len(block):
            raise CompressionError("snappy: a block has no length")
        byte = block[index]
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return size
    raise CompressionError("snappy: a block's length is no varint")


def _decompress_snappy_block(block: memoryview, room: int) -> bytearray | memoryview:
    size = _snappy_size(block)
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


_LARGEST_LZ4_BLOCK = 4 << 20
_LZ4_GROUP_BYTES = 1 << 20
_LZ4_END_MARK_BYTES = 4


# The library keeps what it has compressed; it is taken out after so much input.
_FLUSH_BYTES = 1 << 20


class _CramjamCompressor(Compressor):
    def __init__(self, compressor: Any) -> None:
        self._compressor = compressor
        self._unflushed = 0

    def add(self, piece: bytes) -> bytes:
        self._compressor.compress(piece)
        self._unflushed += len(piece)
        if self._unflushed < _FLUSH_BYTES:
            return b""
        self._unflushed = 0
        return bytes(self._compressor.flush())

    def finish(self) -> bytes:
        return bytes(self._compressor.finish())


def _lz4_compressor(level: int | None) -> Any:
    # Kafka's default level 9 stands for lz4's fast compressor, every other level for the slow one (KIP-390).
    level = 0 if level is None or level == _LZ4_DEFAULT_LEVEL else level
    return _cramjam().lz4.Compressor(level, content_checksum=False, block_linked=False)


def _compress_lz4(data: Buffer, level: int | None) -> bytes:
    compressor = _lz4_compressor(level)
    compressor.compress(bytes(data))
    return bytes(compressor.finish())


def _decompress_lz4(data: Buffer, max_size: int) -> bytearray | memoryview:
    view = memoryview(data)
    frame = _Lz4Frame(view)
    if frame.promises:
        return bytearray().join(_lz4_pieces(view, max_size))
    blocks = list(frame.blocks())
    bound = sum(block_bound for _start, _end, block_bound in blocks)
    end = blocks[-1][1] if blocks else frame.begin
    return _decompress_bounded("lz4", view[: end + _LZ4_END_MARK_BYTES], bound, max_size)


def _lz4_pieces(view: memoryview, max_size: int) -> Iterator[bytes]:
    """The blocks do not depend on each other: a few at a time make a frame."""
    frame = _Lz4Frame(view)
    header = frame.plain_header()
    room = max_size
    start = end = bound = 0
    blocks = frame.blocks()
    block: tuple[int, int, int] | None = (0, 0, 0)
    while block is not None:
        block = next(blocks, None)
        if end and (block is None or bound + block[2] > _LZ4_GROUP_BYTES):
            output = _decompress_bounded(
                "lz4", b"".join((header, view[start:end], bytes(_LZ4_END_MARK_BYTES))), bound, room
            )
            room -= len(output)
            yield from _cut(memoryview(output))
            end = bound = 0
        if block is not None:
            if not end:
                start = block[0]
            end = block[1]
            bound += block[2]


class _Lz4Frame:
    """The first frame, and where its blocks are.

    magic uint32le | FLG | BD | [content size 8] | header checksum | blocks | end mark 0 uint32le | [checksum 4]
    block: size uint32le (highest bit: stored uncompressed) | data | [checksum 4]
    """

    __slots__ = ("_descriptor", "_flags", "_max_block_size", "_view", "begin", "promises")

    def __init__(self, view: memoryview) -> None:
        if not len(view):
            raise CompressionError("lz4: no data")
        if len(view) < 7:
            raise CompressionError("lz4: the frame header is cut off")
        magic = int.from_bytes(view[:4], "little")
        if magic != _LZ4_MAGIC:
            raise CompressionError(f"lz4: no frame begins with {magic:08x}")
        flags, descriptor = view[4], view[5]
        if flags >> 6 != 1:
            raise CompressionError(f"lz4: unknown frame version {flags >> 6}")
        if not flags & 0x20:
            raise CompressionError("lz4: dependent blocks are not supported")
        if flags & 0x03 or descriptor & 0x8F:
            raise CompressionError("lz4: reserved bits of the frame header are set")
        block_size_id = descriptor >> 4 & 7
        if block_size_id < 4:
            raise CompressionError(f"lz4: unknown block size {block_size_id}")
        self.promises = bool(flags & 0x0C)
        """Whether the frame has a content size or a content checksum."""
        begin = 7 + (8 if flags & 0x08 else 0)
        if len(view) < begin:
            raise CompressionError("lz4: the frame header is cut off")
        if view[begin - 1] != _lz4_header_checksum(bytes(view[4 : begin - 1])):
            raise CompressionError("lz4: the checksum of the frame header is wrong")
        self._view = view
        self.begin = begin
        """Where the first block is."""
        self._flags = flags
        self._descriptor = descriptor
        self._max_block_size = 1 << (8 + 2 * block_size_id)

    def plain_header(self) -> bytes:
        """The header without content size and content checksum."""
        descriptor = bytes((self._flags & ~0x0C, self._descriptor))
        return _LZ4_MAGIC.to_bytes(4, "little") + descriptor + bytes((_lz4_header_checksum(descriptor),))

    def blocks(self) -> Iterator[tuple[int, int, int]]:
        """Start, end, and the most bytes that it can hold, of each block."""
        view, position = self._view, self.begin
        end = len(view)
        trailer = 4 if self._flags & 0x10 else 0
        max_block_size = self._max_block_size
        while True:
            if position + 4 > end:
                raise CompressionError("lz4: the frame has no end mark")
            start = position
            size = int.from_bytes(view[position : position + 4], "little")
            position += 4
            if size == 0:
                break
            if size & 0x8000_0000:
                size &= 0x7FFF_FFFF
                bound = size
            else:
                bound = min(max_block_size, size * _LZ4_MAX_RATIO)
            if size > max_block_size:
                raise CompressionError("lz4: a block is larger than the frame's block size")
            position += size + trailer
            yield start, position, bound
        if position + (4 if self._flags & 0x04 else 0) > end:
            raise CompressionError("lz4: the frame is cut off")


def _lz4_header_checksum(descriptor: bytes) -> int:
    """The second byte of the descriptor's xxHash-32, which is computed here for up to 15 bytes."""
    mask = 0xFFFF_FFFF
    value = 374761393 + len(descriptor)
    position = 0
    while position + 4 <= len(descriptor):
        value = value + int.from_bytes(descriptor[position : position + 4], "little") * 3266489917 & mask
        value = (value << 17 | value >> 15) * 668265263 & mask
        position += 4
    for byte in descriptor[position:]:
        value = value + byte * 374761393 & mask
        value = (value << 11 | value >> 21) * 2654435761 & mask
    value = (value ^ value >> 15) * 2246822519 & mask
    value = (value ^ value >> 13) * 3266489917 & mask
    return (value ^ value >> 16) >> 8 & 0xFF


# zstd

_ZSTD_MAGIC = 0xFD2FB528
_ZSTD_DEFAULT_LEVEL = 3
_ZSTD_MAX_BLOCK_SIZE = 128 * 1024


def _compress_zstd(data: Buffer, level: int | None) -> bytes:
    return bytes(_cramjam().zstd.compress(data, _ZSTD_DEFAULT_LEVEL if level is None else level))


def _decompress_zstd(data: Buffer, max_size: int) -> bytearray | memoryview:
    view = memoryview(data)
    bound = sum(bound for _start, _end, bound in _zstd_frames(view))
    return _decompress_bounded("zstd", view, bound, max_size)


_ZSTD_GROUP_BYTES = 1 << 20


def _zstd_pieces(view: memoryview, max_size: int) -> Iterator[bytes]:
    """Frames do not depend on each other: small ones are taken together, a large one by itself."""
    room = max_size
    start = end = bound = 0
    for frame_start, frame_end, frame_bound in _zstd_frames(view):
        if end and bound + frame_bound > _ZSTD_GROUP_BYTES:
            output = _decompress_bounded("zstd", view[start:end], bound, room)
            room -= len(output)
            yield from _cut(memoryview(output))
            start, bound = frame_start, 0
        end = frame_end
        bound += frame_bound
    yield from _cut(memoryview(_decompress_bounded("zstd", view[start:end], bound, room)))


def _zstd_frames(view: memoryview) -> Iterator[tuple[int, int, int]]:
    """Start, end, and the most bytes that it can hold, of each frame, from its block headers (RFC 8878, section 3.1.1).

    magic uint32le | descriptor | [window 1] | [dictionary id] | [content size] | blocks | [checksum 4]
    block: header uint24le (bit 0: last, bits 1-2: type, from bit 3: size) | data
    """
    position = 0
    end = len(view)
    if not end:
        raise CompressionError("zstd: no data")
    while position < end:
        start = position
        magic = int.from_bytes(view[position : position + 4], "little")
        if magic in _SKIPPABLE_MAGIC:
            position += 8 + int.from_bytes(view[position + 4 : position + 8], "little")
            if position > end:
                raise CompressionError("zstd: the frame is cut off")
            yield start, position, 0
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
        bound = 0
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
            bound += _ZSTD_MAX_BLOCK_SIZE if block_type == 2 else size
        position += 4 if descriptor & 0x04 else 0
        if position > end:
            raise CompressionError("zstd: the frame is cut off")
        yield start, position, min(bound, content_size) if content_size_length else bound

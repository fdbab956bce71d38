"""The four compression codecs of record batches, with the framing of Kafka's Java client.

The records of one batch, everything after its 61-byte header, are compressed together. The lowest three bits of the
batch's attributes contain the codec (KIP-98, zstd KIP-110, levels KIP-390). Every codec is bounded when reading: no
memory beyond `max_size` is allocated. For lz4, snappy and zstd the output is sized from the framing before
decompression, so bytes that declare a large size but contain little cost little. The time is linear in the input and
output bytes, for any number of members, frames and blocks.

`decompress` returns the whole, `decompress_pieces` one piece after another. The pieces need only a small buffer: a
large zstd frame or snappy block is decompressed as a stream, which holds the window that the compressed bytes may refer
to (`buffer_bytes` is the size). `decompress` uses a library that decompresses them as a whole; another one streams
zstd.

    gzip     RFC 1952; several consecutive members are read as one (as by java.util.zip)
    snappy   the frame of the `snappy-java` library ("xerial"), blocks of 32 kB when written:
                 82 'S' 'N' 'A' 'P' 'P' 'Y' 00 | version int32 | compatible int32 | (length int32 | raw snappy)*
                 Also read: raw snappy without a frame (other clients), and consecutive frames.
    lz4      LZ4 frames with independent blocks of 64 kB when written. Linked blocks are rejected, as in Java.
             Also read: other block sizes, content size, block and content checksums (the content size and the
             content checksum are not verified, as in Java). Only the first frame is read; following bytes are
             ignored, as in Java.
    zstd     zstd frames.

This module does not depend on batches, and imports a codec library only for the first batch that needs it.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import TYPE_CHECKING

from .named_tuples import NamedTuple
from .paged_bytes import PagedBytes

if TYPE_CHECKING:
    import types
    from typing import Any

Buffer = bytes | bytearray | memoryview
"""Input of compression and decompression: any object with bytes."""
View = memoryview | PagedBytes

DEFAULT_MAX_SIZE = 128 * 1024 * 1024
"""The default limit of a batch's decompressed bytes. Apache Kafka has no such limit; with its default
`message.max.bytes` of 1 MB, a legitimate batch that reaches this limit is 128 times smaller compressed."""

STORED_MAX_SIZE = 3 * DEFAULT_MAX_SIZE
"""The limit for a batch in a log or in a response. Produce accepts `DEFAULT_MAX_SIZE`; in the smallest record, of 7
bytes, the offset delta of the server and the timestamp delta from a delete horizon take up to 13 bytes more."""

PIECE_BYTES = 128 * 1024
"""The largest piece of `decompress_pieces`."""

WHOLE_BYTES = 8 << 20
"""The maximum size of zstd frames and snappy blocks that `decompress_pieces` decompresses as a whole."""


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
    """The decompressed size exceeds the caller's limit."""


class CodecUnavailableError(RuntimeError):
    """The library of a codec is not installed; the message says how to install it."""


def compress(codec: int, data: Buffer, level: int | None = None) -> bytes:
    """`data` compressed with the framing of Kafka's Java client.

    `level` is the value of `compression.gzip.level`, `compression.lz4.level` or `compression.zstd.level`. None is the
    codec's default in Kafka (gzip -1, lz4 9, zstd 3); snappy has no level.
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
    """A compressor for a sequence of pieces. The result is not always byte for byte that of `compress`."""
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
    """Compresses piece by piece; this base class leaves the bytes unchanged."""

    def add(self, piece: bytes) -> bytes:
        """The output after this piece; often empty."""
        return piece

    def finish(self) -> bytes:
        """The rest of the output."""
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


def decompress_pieces(
    codec: int, data: Buffer | PagedBytes, max_size: int = DEFAULT_MAX_SIZE, max_window: int = DEFAULT_MAX_SIZE
) -> Iterator[bytes]:
    """The result of `decompress`, in pieces of up to `PIECE_BYTES`, none of them empty.

    Raises the errors of `decompress`, possibly after some pieces. Also rejects a large zstd frame or snappy block that
    refers to bytes more than ``max_window`` bytes back, which is at least `WHOLE_BYTES`.
    """
    view = data if isinstance(data, PagedBytes) else memoryview(data)
    if codec == Codec.NONE:
        return _cut(view)
    if codec == Codec.GZIP:
        return _gzip_pieces(view, max_size)
    if codec == Codec.SNAPPY:
        return _snappy_pieces(view, max_size, max_window)
    if codec == Codec.LZ4:
        return _lz4_pieces(view, max_size)
    if codec == Codec.ZSTD:
        return _zstd_pieces(view, max_size, max_window)
    raise CompressionError(f"unknown compression codec {codec}")


def buffer_bytes(codec: int, data: Buffer, max_size: int = DEFAULT_MAX_SIZE) -> int:
    """The maximum size of the buffer that `decompress_pieces` needs, rounded up for small ones."""
    view = memoryview(data)
    needed = _LARGEST_LZ4_BLOCK
    if codec == Codec.ZSTD:
        needed = max(needed, *(min(frame.bound, max(frame.window, WHOLE_BYTES)) for frame in _zstd_frames(view)))
    elif codec == Codec.SNAPPY:
        needed = max(needed, max((_snappy_size(view[start:end])[0] for start, end in _snappy_blocks(view)), default=0))
    return min(needed, max_size)


def _cut(view: View) -> Iterator[bytes]:
    for start in range(0, len(view), PIECE_BYTES):
        yield bytes(view[start : start + PIECE_BYTES])


def _cramjam() -> types.ModuleType:
    try:
        import cramjam
    except ImportError as error:
        raise CodecUnavailableError("snappy, lz4 and zstd require the package cramjam: pip install cramjam") from error
    return cramjam


def _too_large(max_size: int) -> CompressionError:
    return DecompressedTooLargeError(f"decompresses to more than {max_size} bytes")


# A new large bytearray is filled with zeros; anonymous memory only takes space for written pages.
_BYTEARRAY_BYTES = 1 << 20


def _decompress_bounded(module: str, data: Buffer, bound: int, max_size: int) -> bytearray | memoryview:
    """Decompress input of at most ``bound`` decompressed bytes with this module of cramjam."""
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


# gzip: zlib of the standard library. In measurements it compressed faster than cramjam's, and it stops at a limit.


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
    """Usually there is one member, which is decompressed in one call."""
    import zlib

    if not len(data):
        raise CompressionError("gzip: no data")
    member = zlib.decompressobj(31)
    try:
        # One byte more than the limit, so that exactly `max_size` bytes pass and one more is detected.
        part = member.decompress(data, max_size + 1)
    except zlib.error as error:
        raise CompressionError(f"gzip: {error}") from None
    if len(part) > max_size:
        raise _too_large(max_size)
    if not member.eof:
        raise CompressionError("gzip: the stream is truncated")
    rest = memoryview(data)[len(data) - len(member.unused_data) :]
    if not _is_gzip(rest):
        return part
    return b"".join((part, *_gzip_pieces(rest, max_size - len(part))))


def _is_gzip(view: memoryview) -> bool:
    return bytes(view[:2]) == b"\x1f\x8b"


# The input of one call of zlib. zlib copies what it does not use (the rest of a member's output, the next member), so
# the input is small: first small enough for empty members, then larger.
_FIRST_GZIP_INPUT = 256
_GZIP_INPUT = 16 * 1024


def _gzip_pieces(view: View, max_size: int) -> Iterator[bytes]:
    import zlib

    position, end, room = 0, len(view), max_size
    first = True
    parts: list[bytes] = []  # output of members that are too short for a piece
    parts_size = 0
    # Bytes after the first member that are not a member are padding, as for java.util.zip.
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
                raise CompressionError("gzip: the stream is truncated" if end else "gzip: no data")
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
_SNAPPY_LONGEST_SIZE = 5  # bytes of the varint
# A copy of at most 64 bytes takes at least 2 bytes of input, so a valid block grows at most by a factor of 32.
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
    if not _is_xerial(view):
        return _decompress_snappy_block(view, max_size)
    output = bytearray()
    for start, end in _snappy_blocks(view):
        output += _decompress_snappy_block(view[start:end], max_size - len(output))
    return output


def _is_xerial(view: View) -> bool:
    return bytes(view[: len(_XERIAL_MAGIC)]) == _XERIAL_MAGIC


def _snappy_pieces(view: View, max_size: int, max_window: int) -> Iterator[bytes]:
    room = max_size
    piece = bytearray()  # output of blocks that are too short for a piece
    for start, end in _snappy_blocks(view):
        size = _checked_snappy_size(view, start, end, room)
        room -= size
        if len(piece) + size > PIECE_BYTES and piece:
            yield bytes(piece)
            piece.clear()
        if max(size, end - start) > WHOLE_BYTES:
            yield from _snappy_stream(view, start, end, size, max_window)
        elif size > PIECE_BYTES:
            yield from _cut(memoryview(_decompress_snappy_block(view[start:end], size)))
        else:
            piece += _decompress_snappy_block(view[start:end], size)
    if piece:
        yield bytes(piece)


def _snappy_blocks(view: View) -> Iterator[tuple[int, int]]:
    """Start and end of each block. Without a frame there is one block."""
    position = 0
    end = len(view)
    if not _is_xerial(view):
        yield position, end
        return
    while position < end:
        if bytes(view[position : position + len(_XERIAL_MAGIC)]) == _XERIAL_MAGIC:
            position += len(_XERIAL_HEADER)
            if position > end:
                raise CompressionError("snappy: the stream header is truncated")
            continue
        length = int.from_bytes(view[position : position + 4], "big")
        position += 4
        if position + length > end:
            raise CompressionError("snappy: a block extends past the end of the stream")
        yield position, position + length
        position += length


def _snappy_size(block: memoryview) -> tuple[int, int]:
    """The declared decompressed size of raw snappy, and the length of that declaration in bytes."""
    size = shift = 0
    for index in range(_SNAPPY_LONGEST_SIZE):
        if index == len(block):
            raise CompressionError("snappy: a block has no length")
        byte = block[index]
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return size, index + 1
    raise CompressionError("snappy: a block's length is not a varint")


def _checked_snappy_size(view: View, start: int, end: int, room: int) -> int:
    """The declared size of this block, if it is possible."""
    size, _ = _snappy_size(view[start : min(start + _SNAPPY_LONGEST_SIZE, end)])
    if size > (end - start) * _SNAPPY_MAX_RATIO:
        raise CompressionError(f"snappy: {end - start} bytes cannot hold {size}")
    if size > room:
        raise _too_large(room)
    return size


def _decompress_snappy_block(block: memoryview, room: int) -> bytearray:
    size = _checked_snappy_size(block, 0, len(block), room)
    output = bytearray(size)
    cramjam = _cramjam()
    try:
        written = cramjam.snappy.decompress_raw_into(block, output)
    except cramjam.DecompressionError as error:
        raise CompressionError(f"snappy: {error}") from None
    if written != size:
        raise CompressionError(f"snappy: a block of {size} bytes contained {written}")
    return output


# A large block is a stream of elements: a tag and its operands.
#
#     literal     length - 1 (6 bits) | 00, the bytes; length - 1 from 60 to 63: it is in the next 1 to 4 bytes
#     copy        offset (3 bits) | length - 4 (3 bits) | 01, offset (8 bits)
#     copy        length - 1 (6 bits) | 10, offset uint16le
#     copy        length - 1 (6 bits) | 11, offset uint32le
#
# The library decompresses groups of elements, each after a literal with the preceding 64 kB. References to bytes that
# are farther back are replaced by these bytes; encoders with blocks of 64 kB never write them.

_SNAPPY_GROUP_INPUT = 128 * 1024
_SNAPPY_NEAR = 64 * 1024
_SNAPPY_SHORT_LITERAL = 60
_SNAPPY_SHORT_ELEMENT = 1 + _SNAPPY_SHORT_LITERAL
_SNAPPY_OTHER = 1 << 30  # ends the loop over short elements
_SNAPPY_ADVANCES = tuple(
    (2 + (tag >> 2) if tag >> 2 < _SNAPPY_SHORT_LITERAL else _SNAPPY_OTHER, 2, 3, _SNAPPY_OTHER)[tag & 3]
    for tag in range(256)
)
"""By tag: the size of the element in bytes."""
_SNAPPY_LENGTHS = tuple(
    ((tag >> 2) + 1 if tag >> 2 < _SNAPPY_SHORT_LITERAL else 0, (tag >> 2 & 7) + 4, (tag >> 2) + 1, 0)[tag & 3]
    for tag in range(256)
)
"""By tag: the decompressed size; 0 if the advance is `_SNAPPY_OTHER`."""


class _Past:
    """The last decompressed bytes, up to a limit."""

    def __init__(self, size: int) -> None:
        from mmap import mmap

        self._ring = mmap(-1, size)
        self._size = size
        self.total = 0

    def add(self, data: memoryview) -> None:
        position = self.total % self._size
        first = data[: self._size - position]
        self._ring[position : position + len(first)] = first
        self._ring[: len(data) - len(first)] = data[len(first) :]
        self.total += len(data)

    def at(self, start: int, size: int) -> bytes:
        """``size`` bytes from ``start`` on, counted from the beginning of the output."""
        if start < max(0, self.total - self._size):
            raise CompressionError("snappy: a copy of bytes that are too far back")
        position = start % self._size
        first = self._ring[position : position + size]
        return first + self._ring[: size - len(first)]


def _snappy_stream(view: View, start: int, end: int, size: int, max_window: int) -> Iterator[bytes]:
    """Yield the ``size`` bytes of a large block."""
    from .runtime import varint

    past = _Past(min(max(size, WHOLE_BYTES), max_window))
    position = start + _snappy_size(view[start : min(start + _SNAPPY_LONGEST_SIZE, end)])[1]
    while position < end:
        chunk = bytes(view[position : min(position + _SNAPPY_GROUP_INPUT, end)])
        elements, made, taken, literal = _snappy_group(chunk, past, is_last=position + len(chunk) == end)
        position += taken
        if position + literal > end:
            raise CompressionError("snappy: a block is truncated")
        if past.total + made + literal > size:
            raise CompressionError(f"snappy: a block of {size} bytes contains more")
        if made:
            near = min(past.total, _SNAPPY_NEAR)
            before = _snappy_literal(past.at(past.total - near, near)) if near else b""
            group = b"".join((varint(near + made), before, elements))
            output = memoryview(_decompress_snappy_block(memoryview(group), near + made))[near:]
            past.add(output)
            yield from _cut(output)
        for first in range(position, position + literal, PIECE_BYTES):
            piece = bytes(view[first : min(first + PIECE_BYTES, position + literal)])
            past.add(memoryview(piece))
            yield piece
        position += literal
    if past.total != size:
        raise CompressionError(f"snappy: a block of {size} bytes contained {past.total}")


def _snappy_group(chunk: bytes, past: _Past, *, is_last: bool) -> tuple[bytes, int, int, int]:
    """Decompress the elements at the beginning of ``chunk``. Returns the output, the sizes of the output and of the
    elements in bytes, and the length of a final literal that extends beyond the chunk: its tag is consumed.

    ``is_last``: no bytes follow the chunk.
    """
    advances, lengths = _SNAPPY_ADVANCES, _SNAPPY_LENGTHS
    near = min(past.total, _SNAPPY_NEAR)
    end = len(chunk) if is_last else len(chunk) - _SNAPPY_SHORT_ELEMENT
    parts: list[bytes] = []
    copied = index = made = literal = 0
    while not literal:
        while index < end:
            tag = chunk[index]
            index += advances[tag]
            made += lengths[tag]
        if index < _SNAPPY_OTHER:
            break
        index -= _SNAPPY_OTHER
        tag = chunk[index]
        if tag & 3:
            offset, length = int.from_bytes(chunk[index + 1 : index + 5], "little"), (tag >> 2) + 1
            if offset > near + made:
                parts += chunk[copied:index], _snappy_literal(past.at(past.total + made - offset, length))
                copied = index + 5
            index += 5
            made += length
            continue
        begin = index + 2 + (tag >> 2) - _SNAPPY_SHORT_LITERAL
        length = int.from_bytes(chunk[index + 1 : begin], "little") + 1
        if begin + length > len(chunk):
            parts.append(chunk[copied:index])
            copied = index = begin
            literal = length
        else:
            if length <= _SNAPPY_SHORT_LITERAL:  # the library does not accept it at the end of a group
                parts += chunk[copied:index], _snappy_literal(chunk[begin : begin + length])
                copied = begin + length
            index = begin + length
            made += length
    if index > len(chunk):
        raise CompressionError("snappy: a block is truncated")
    parts.append(chunk[copied:index])
    return b"".join(parts), made, index, literal


def _snappy_literal(data: bytes) -> bytes:
    """An element with a literal of up to 16 MB."""
    last = len(data) - 1
    tag = bytes((last << 2,)) if last < _SNAPPY_SHORT_LITERAL else bytes((62 << 2,)) + last.to_bytes(3, "little")
    return tag + data


# lz4

_LZ4_MAGIC = 0x184D2204
_LZ4_DEFAULT_LEVEL = 9
# A match adds at most 255 bytes of output for each byte of its length, and a sequence has a token and an offset too.
_LZ4_MAX_RATIO = 255
_SKIPPABLE_MAGIC = range(0x184D2A50, 0x184D2A60)


_LARGEST_LZ4_BLOCK = 4 << 20
_LZ4_GROUP_BYTES = 1 << 20
_LZ4_END_MARK_BYTES = 4


# The library buffers its output; the output is fetched after this many bytes of input.
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
    # Kafka's default level 9 selects lz4's fast compressor, every other level the slow one (KIP-390).
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


def _lz4_pieces(view: View, max_size: int) -> Iterator[bytes]:
    """Blocks are independent: a few at a time are decompressed as a frame."""
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
    """The first frame, and the positions of its blocks.

    magic uint32le | FLG | BD | [content size 8] | header checksum | blocks | end mark 0 uint32le | [checksum 4]
    block: size uint32le (highest bit: stored uncompressed) | data | [checksum 4]
    """

    __slots__ = ("_descriptor", "_flags", "_max_block_size", "_view", "begin", "promises")

    def __init__(self, view: View) -> None:
        if not len(view):
            raise CompressionError("lz4: no data")
        if len(view) < 7:
            raise CompressionError("lz4: the frame header is truncated")
        magic = int.from_bytes(view[:4], "little")
        if magic != _LZ4_MAGIC:
            raise CompressionError(f"lz4: unknown frame magic {magic:08x}")
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
            raise CompressionError("lz4: the frame header is truncated")
        if view[begin - 1] != _lz4_header_checksum(bytes(view[4 : begin - 1])):
            raise CompressionError("lz4: the checksum of the frame header does not match")
        self._view = view
        self.begin = begin
        """Where the first block begins."""
        self._flags = flags
        self._descriptor = descriptor
        self._max_block_size = 1 << (8 + 2 * block_size_id)

    def plain_header(self) -> bytes:
        """The header without content size and content checksum."""
        descriptor = bytes((self._flags & ~0x0C, self._descriptor))
        return _LZ4_MAGIC.to_bytes(4, "little") + descriptor + bytes((_lz4_header_checksum(descriptor),))

    def blocks(self) -> Iterator[tuple[int, int, int]]:
        """Start, end and maximum decompressed size of each block."""
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
            raise CompressionError("lz4: the frame is truncated")


def _lz4_header_checksum(descriptor: bytes) -> int:
    """The second byte of the descriptor's xxHash-32, implemented here for up to 15 bytes."""
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
    bound = sum(frame.bound for frame in _zstd_frames(view))
    return _decompress_bounded("zstd", view, bound, max_size)


_ZSTD_GROUP_BYTES = 1 << 20
_ZSTD_STREAM_INPUT = 2 * _ZSTD_MAX_BLOCK_SIZE


def _zstd_pieces(view: View, max_size: int, max_window: int) -> Iterator[bytes]:
    """Frames are independent: small ones are decompressed together, a large one separately."""
    room = max_size
    start = end = bound = 0
    for frame in _zstd_frames(view):
        if end and max(bound + frame.bound, frame.end - start) > _ZSTD_GROUP_BYTES:
            output = _decompress_bounded("zstd", view[start:end], bound, room)
            room -= len(output)
            yield from _cut(memoryview(output))
            end = 0
        if max(frame.end - frame.start, min(frame.bound, room)) > WHOLE_BYTES:
            for piece in _zstd_stream(view, frame, max_window):
                room -= len(piece)
                if room < 0:
                    raise _too_large(max_size)
                yield from _cut(memoryview(piece))
            continue
        if not end:
            start, bound = frame.start, 0
        end = frame.end
        bound += frame.bound
    if end:
        yield from _cut(memoryview(_decompress_bounded("zstd", view[start:end], bound, room)))


class _ZstdFrame(NamedTuple):
    start: int
    blocks: int
    """Where the first block begins; the end of the frame if it is skippable."""
    end: int
    bound: int
    """The maximum decompressed size."""
    window: int
    """The maximum distance of a reference, in bytes."""


def _zstd_frames(view: View) -> Iterator[_ZstdFrame]:
    """The frames, from the headers of their blocks (RFC 8878, section 3.1.1).

    magic uint32le | descriptor | [window 1] | [dictionary id] | [content size] | blocks | [checksum 4]
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
                raise CompressionError("zstd: the frame is truncated")
            yield _ZstdFrame(start, position, position, 0, 0)
            continue
        if magic != _ZSTD_MAGIC or position + 6 > end:
            raise CompressionError(f"zstd: unknown frame magic {magic:08x}")
        descriptor, window_descriptor = view[position + 4], view[position + 5]
        single_segment = descriptor & 0x20
        position += 5 + (not single_segment) + (0, 1, 2, 4)[descriptor & 3]
        content_size_length = (1 if single_segment else 0, 2, 4, 8)[descriptor >> 6]
        content_size = int.from_bytes(view[position : position + content_size_length], "little")
        content_size += 256 if content_size_length == 2 else 0
        position += content_size_length
        window = (8 + (window_descriptor & 7) << (window_descriptor >> 3)) << 7
        blocks = position
        bound = 0
        for block_end, block_bound in _zstd_blocks(view, blocks):
            position = block_end
            bound += block_bound
        position += 4 if descriptor & 0x04 else 0
        if position > end:
            raise CompressionError("zstd: the frame is truncated")
        if content_size_length:
            bound = min(bound, content_size)
        yield _ZstdFrame(start, blocks, position, bound, content_size if single_segment else window)


def _zstd_blocks(view: View, position: int) -> Iterator[tuple[int, int]]:
    """End and maximum decompressed size of each block from this position to the last block of the frame.

    header uint24le (bit 0: last, bits 1-2: type, from bit 3: size) | data
    """
    end = len(view)
    last = False
    while not last:
        if position + 3 > end:
            raise CompressionError("zstd: the frame is truncated")
        header = int.from_bytes(view[position : position + 3], "little")
        last = bool(header & 1)
        block_type, size = header >> 1 & 3, header >> 3
        if size > _ZSTD_MAX_BLOCK_SIZE or block_type == 3:
            raise CompressionError("zstd: a block header is malformed")
        position += 3 + (1 if block_type == 1 else size)
        yield position, _ZSTD_MAX_BLOCK_SIZE if block_type == 2 else size


def _zstd_stream(view: View, frame: _ZstdFrame, max_window: int) -> Iterator[bytes]:
    """The content of a large frame: blocks are decompressed together while they contain at most one piece."""
    if frame.blocks == frame.end:
        return
    if min(frame.window, frame.bound) > max_window:
        raise CompressionError(f"zstd: a frame refers to more than {max_window} bytes back")
    try:
        import zstandard
    except ImportError as error:
        raise CodecUnavailableError("large zstd frames require the package zstandard: pip install zstandard") from error
    stream = zstandard.ZstdDecompressor().decompressobj()
    start = end = frame.start
    bound = 0
    try:
        for block_end, block_bound in _zstd_blocks(view, frame.blocks):
            if bound + block_bound > PIECE_BYTES or block_end - start > _ZSTD_STREAM_INPUT:
                if piece := stream.decompress(view[start:end]):
                    yield piece
                start, bound = end, 0
            end = block_end
            bound += block_bound
        if piece := stream.decompress(view[start : frame.end]):
            yield piece
    except zstandard.ZstdError as error:
        raise CompressionError(f"zstd: {error}") from None
    if not stream.eof:
        raise CompressionError("zstd: the frame is truncated")

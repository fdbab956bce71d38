"""The functions that generated encoders and decoders call for less common cases.

Varints above 127, tagged fields, limits, and errors. `compiler.py` describes when generated code calls them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator
from typing import Any, Final

from .errors import EncodeError, MalformedMessage, UnsupportedVersion

MAX_ARRAY_LENGTH: Final = 1_000_000
MAX_TAGGED_FIELDS: Final = 10_000
MAX_STRING_LENGTH: Final = 0x7FFF

ONE_BYTE: Final = [bytes((value,)) for value in range(256)]


def varint_tail(buf: bytes, pos: int, first: int) -> tuple[int, int]:
    """The unsigned varint whose first byte `first` (above 127) was read and that continues at `pos`; and its end."""
    value = first & 0x7F
    for shift in (7, 14, 21):
        byte = buf[pos]
        pos += 1
        if byte < 0x80:
            return value | byte << shift, pos
        value |= (byte & 0x7F) << shift
    if buf[pos] > 7:
        raise MalformedMessage("a varint above 2147483647", pos)
    return value | buf[pos] << 28, pos + 1


def read_unknown_tags(buf: bytes, pos: int, count: int) -> tuple[dict[int, bytes], int]:
    """The tagged fields of a struct that declares none; `count` is the first byte of their number."""
    if count > 127:
        count, pos = varint_tail(buf, pos, count)
        check_tag_count(count, pos)
    tags = {}
    for _ in range(count):
        tag = buf[pos]
        pos += 1
        if tag > 127:
            tag, pos = varint_tail(buf, pos, tag)
        length = buf[pos]
        pos += 1
        if length > 127:
            length, pos = varint_tail(buf, pos, length)
        end = pos + length
        if end > len(buf):
            raise past_the_end(buf, pos, end)
        tags[tag] = bytes(buf[pos:end])
        pos = end
    return tags, pos


def check_tag_count(count: int, pos: int) -> None:
    if count > MAX_TAGGED_FIELDS:
        raise MalformedMessage(f"{count} tagged fields, more than the limit of {MAX_TAGGED_FIELDS}", pos)


def check_count(field: str, count: int, element_size: int, buf: bytes, pos: int) -> None:
    """Reject an array that does not fit into this frame, before memory is allocated for it."""
    if count > MAX_ARRAY_LENGTH:
        raise MalformedMessage(f"{field} has {count} elements, more than the limit of {MAX_ARRAY_LENGTH}", pos)
    if count * element_size > len(buf) - pos:
        raise MalformedMessage(
            f"{field} has {count} elements of at least {element_size} bytes, and {len(buf) - pos} bytes remain", pos
        )


def past_the_end(buf: bytes, pos: int, end: int) -> MalformedMessage:
    return MalformedMessage(f"a length reaches to {end}, past the end of the frame at {len(buf)}", min(pos, len(buf)))


def null_field(field: str, pos: int) -> MalformedMessage:
    return MalformedMessage(f"{field} is null, but is not nullable", pos)


def long_string_field(field: str, length: int, pos: int) -> MalformedMessage:
    return MalformedMessage(f"{field} has {length} bytes, more than the limit of {MAX_STRING_LENGTH}", pos)


def wrong_tag(message: str, tag: int, pos: int) -> MalformedMessage:
    return MalformedMessage(f"{message} has no tag {tag} in this version", pos)


def wrong_tag_size(field: str, pos: int, end: int) -> MalformedMessage:
    return MalformedMessage(f"{field} ends at {pos}, its tag says {end}", pos)


def malformed(message: str, buf: bytes, pos: int, error: Exception) -> MalformedMessage:
    """The error for an exception inside a decoder."""
    if isinstance(error, UnicodeDecodeError):
        return MalformedMessage(f"{message} has a string that is not UTF-8", pos)
    return MalformedMessage(f"{message} ends early: the frame has {len(buf)} bytes", min(pos, len(buf)))


def varint(value: int) -> bytes:
    """An unsigned varint."""
    if value < 0x80:
        return ONE_BYTE[value]
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def long_string(data: bytes) -> tuple[int, bytes]:
    """A compact string of 127 bytes or more: the first byte of its length, and the rest of the length with the data."""
    length = len(data) + 1
    if length > MAX_STRING_LENGTH + 1:
        raise EncodeError(f"a string of {length - 1} bytes is longer than the limit of {MAX_STRING_LENGTH}")
    return length & 0x7F | 0x80, varint(length >> 7) + data


def string_part(text: str) -> bytes:
    """A compact string, including its length."""
    data = text.encode()
    length = len(data) + 1
    if length > 127:
        length, data = long_string(data)
    return ONE_BYTE[length] + data


def tag_section(
    struct_name: str, known: list[tuple[int, bytes]], own: tuple[int, ...], unknown: dict[int, bytes] | None
) -> tuple[int, bytes]:
    """The tagged fields of a struct: the first byte of their number, and the rest.

    `own` are the tags that this version of the struct declares: an unknown field must not have one of them.
    """
    if unknown:
        for tag in unknown:
            if tag in own:
                raise EncodeError(f"{struct_name}: tag {tag} is a known field in this version")
            if not 0 <= tag <= 0x7FFFFFFF:
                raise EncodeError(f"{struct_name}: invalid tag {tag}")
        known = sorted(known + list(unknown.items()))
    parts: list[bytes] = []
    for tag, value in known:
        parts += (varint(tag), varint(len(value)), value)
    count = len(known)
    if count > MAX_TAGGED_FIELDS:
        raise EncodeError(f"{struct_name}: {count} tagged fields, more than the limit of {MAX_TAGGED_FIELDS}")
    section = b"".join(parts)
    return (count, section) if count < 0x80 else (count & 0x7F | 0x80, varint(count >> 7) + section)


def not_in_version(field: str, message: str, version: int) -> UnsupportedVersion:
    return UnsupportedVersion(f"{message} v{version} has no {field}, and its value is not the default")


def tags_not_in_version(struct_name: str, message: str, version: int) -> UnsupportedVersion:
    return UnsupportedVersion(f"{message} v{version} is not flexible, and {struct_name} has unknown tagged fields")


def read_numbers(formats: ArrayFormats, size: int, count: int, buf: bytes, pos: int) -> Generator[int, None, list[Any]]:
    """An array of numbers of `size` bytes each, in parts. They are already counted, so it yields zeros."""
    if count <= _NUMBERS_PER_PIECE:
        return list(formats[count](buf, pos))
    numbers: list[Any] = []
    for first in range(0, count, _NUMBERS_PER_PIECE):
        numbers += formats[min(_NUMBERS_PER_PIECE, count - first)](buf, pos + first * size)
        yield 0
    return numbers


_NUMBERS_PER_PIECE: Final = 4096


class ArrayFormats(dict[int, Callable[..., Any]]):
    """For one fixed-size type: the pre-bound reader or writer of n such values, created on first use."""

    def __init__(self, code: str, method: str) -> None:
        super().__init__()
        self.code = code
        self.method = method

    def __missing__(self, count: int) -> Callable[..., Any]:
        function: Callable[..., Any] = getattr(struct.Struct(f">{count}{self.code}"), self.method)
        if count <= 64:
            self[count] = function
        return function

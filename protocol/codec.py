"""Converts messages to bytes and back: the interface to the compiled code.

    parts: list[bytes] = []
    encode_parts(response, 12, parts)
    request, end = decode_at(FetchRequest, frame, 12, offset)

The first use of a version of a message compiles it (a fraction of a millisecond to a few, see `compiler.py`). After
that it is a dictionary lookup.
"""

from __future__ import annotations

from mmap import mmap
from typing import Any, TypeVar

from .compiler import (
    Decoder,
    Encoder,
    SlicedDecoder,
    SlicedEncoder,
    compile_decoder,
    compile_encoder,
    compile_sliced_decoder,
    compile_sliced_encoder,
)
from .explain import explain
from .schema import Message

M = TypeVar("M", bound=Message)

_decoders: dict[tuple[type[Message], int], Decoder] = {}
_encoders: dict[tuple[type[Message], int], Encoder] = {}
_sliced_decoders: dict[tuple[type[Message], int], SlicedDecoder] = {}
_sliced_encoders: dict[tuple[type[Message], int], SlicedEncoder] = {}


def decoder(cls: type[Message], version: int) -> Decoder:
    """The function `decode(buf, offset) -> (message, end)` of a message's version.

    Raises UnsupportedVersion if there is no such version.
    """
    try:
        return _decoders[cls, version]
    except KeyError:
        function = _decoders[cls, version] = compile_decoder(cls, version)
        return function


def encoder(cls: type[Message], version: int) -> Encoder:
    """The function `encode(message, parts)` of a message's version.

    Raises UnsupportedVersion if there is no such version.
    """
    try:
        return _encoders[cls, version]
    except KeyError:
        function = _encoders[cls, version] = compile_encoder(cls, version)
        return function


def sliced_decoder(cls: type[Message], version: int) -> SlicedDecoder:
    """Like `decoder`; the function returns a generator that yields the number of elements since its last yield."""
    try:
        return _sliced_decoders[cls, version]
    except KeyError:
        function = _sliced_decoders[cls, version] = compile_sliced_decoder(cls, version)
        return function


def sliced_encoder(cls: type[Message], version: int) -> SlicedEncoder:
    """Like `encoder`; the function returns a generator that yields the number of elements since its last yield."""
    try:
        return _sliced_encoders[cls, version]
    except KeyError:
        function = _sliced_encoders[cls, version] = compile_sliced_encoder(cls, version)
        return function


def decode(cls: type[M], buf: bytes | bytearray | mmap, version: int, offset: int = 0) -> M:
    """The message that starts at `offset` of `buf`; the following bytes are ignored.

    Raises MalformedMessage, or UnsupportedVersion if there is no such version.
    """
    message: M = decoder(cls, version)(buf, offset)[0]
    return message


def decode_at(cls: type[M], buf: bytes | bytearray | mmap, version: int, offset: int) -> tuple[M, int]:
    """Like `decode`; also returns the offset at which the message ends."""
    return decoder(cls, version)(buf, offset)


def encode(message: Message, version: int) -> bytes:
    """The bytes of a message.

    Raises UnsupportedVersion if the version does not exist or cannot represent a value that was set, and EncodeError
    for a value that no version can represent. Records must be bytes-like here; otherwise use `encode_parts`.
    """
    parts: list[Any] = []
    encoder(type(message), version)(message, parts)
    try:
        return b"".join(parts)
    except TypeError as error:
        raise explain(type(message), version, message, error) from error


def encode_parts(message: Message, version: int, parts: list[Any]) -> None:
    """Append the buffers of a message to `parts`; the objects given as records are appended unchanged.

    Raises the errors of `encode`, possibly after some buffers were appended.
    """
    encoder(type(message), version)(message, parts)

"""Messages to bytes and back: the way in to the compiled code.

    parts: list[bytes] = []
    encode_parts(response, 12, parts)
    request, end = decode_at(FetchRequest, frame, 12, offset)

The first use of a message in a version compiles it (a fraction of a millisecond to a few, see `compiler.py`); after
that it is a lookup in a dictionary.
"""

from __future__ import annotations

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

    Raises UnsupportedVersion when there is no such version.
    """
    try:
        return _decoders[cls, version]
    except KeyError:
        function = _decoders[cls, version] = compile_decoder(cls, version)
        return function


def encoder(cls: type[Message], version: int) -> Encoder:
    """The function `encode(message, parts)` of a message's version.

    Raises UnsupportedVersion when there is no such version.
    """
    try:
        return _encoders[cls, version]
    except KeyError:
        function = _encoders[cls, version] = compile_encoder(cls, version)
        return function


def sliced_decoder(cls: type[Message], version: int) -> SlicedDecoder:
    """As `decoder`; the function returns a generator that yields the number of elements decoded since it last did."""
    try:
        return _sliced_decoders[cls, version]
    except KeyError:
        function = _sliced_decoders[cls, version] = compile_sliced_decoder(cls, version)
        return function


def sliced_encoder(cls: type[Message], version: int) -> SlicedEncoder:
    """As `encoder`; the function returns a generator that yields the number of elements encoded since it last did."""
    try:
        return _sliced_encoders[cls, version]
    except KeyError:
        function = _sliced_encoders[cls, version] = compile_sliced_encoder(cls, version)
        return function


def decode(cls: type[M], buf: bytes | bytearray, version: int, offset: int = 0) -> M:
    """The message that starts at `offset` of `buf`; what follows it is not looked at.

    Raises MalformedMessage, or UnsupportedVersion when there is no such version.
    """
    message: M = decoder(cls, version)(buf, offset)[0]
    return message


def decode_at(cls: type[M], buf: bytes | bytearray, version: int, offset: int) -> tuple[M, int]:
    """As `decode`, with the offset at which the message ends."""
    return decoder(cls, version)(buf, offset)


def encode(message: Message, version: int) -> bytes:
    """The bytes of a message.

    Raises UnsupportedVersion when the version does not exist or cannot carry a value that was set, and EncodeError for
    a value that no version could carry. Records must be bytes-like here; use `encode_parts` for anything else.
    """
    parts: list[Any] = []
    encoder(type(message), version)(message, parts)
    try:
        return b"".join(parts)
    except TypeError as error:
        raise explain(type(message), version, message, error) from error


def encode_parts(message: Message, version: int, parts: list[Any]) -> None:
    """Appends the buffers that make up a message to `parts`; the objects given as records are appended as they are.

    Raises as `encode` does, and may then have appended something already.
    """
    encoder(type(message), version)(message, parts)

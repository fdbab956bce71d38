"""Turns declarations into straight-line Python, one function per message, version and direction.

The generated functions are what a person would write by hand for exactly that version: nested structs are inlined into
their loops, neighbours of fixed size (and the first byte of whatever length follows them) are read or written by one
pre-bound `struct.Struct`, and no field of another version is looked at. `python -m moldau.protocol FetchRequest 12`
prints them; tracebacks show their lines under names such as `<moldau FetchRequest v12 decode>`.

    decode(buf, pos) -> (message, end)
    encode(message, parts) -> None      appends buffers to parts

Both have a sliced form, a generator that does the same with pauses, for messages whose arrays may be long. It yields
after about `STEP` elements of arrays (and of tagged fields) how many there were since the last time. The decoder counts
an array of numbers before it makes it, so that the caller can refuse to go on.

What the code relies on, and what a reader of it should know:

* Lengths. Flexible versions (KIP-482) write lengths as unsigned varints, plus one where null is possible (0 is null).
  Nearly all lengths are below 127, so the first byte of a varint is read along with the fixed fields before it, and
  only a value above 127 takes the long way (`varint_tail`), which is also where limits are checked.
* Reading past the end. `pos` never goes back. A string that claims more than the frame has makes a short slice and
  moves `pos` beyond the end, where the next read fails or the last check of the function does. So strings need no check
  of their own, and nothing is allocated beyond what the frame holds.
* Array counts above 127 are checked before the loop: at most MAX_ARRAY_LENGTH elements, and the least that they can
  take must fit into what is left of the frame. Smaller counts run into the end by themselves.
* Everything that malformed bytes can raise inside a decoder (struct.error, IndexError, UnicodeDecodeError) leaves it as
  MalformedMessage.
* What Apache Kafka's readers accept, we accept: tags in any order, the last one winning; any negative length as null;
  varints that are longer than needed. We are stricter in three things: invalid UTF-8 (Apache Kafka replaces it), a tag
  whose declared size is not what its value takes (there, the size of a known tag is not looked at), and the limits on
  arrays and tags.
* A value that does not fit (a null, an int out of range) is not looked for while encoding: it makes `pack` or `len`
  fail, and only then is the message searched for the culprit (`explain.py`).
"""

from __future__ import annotations

import linecache
from collections.abc import Callable, Generator
from typing import Any

from .decoder import DecoderWriter
from .encoder import EncoderWriter
from .errors import UnsupportedVersion
from .schema import Message

Decoder = Callable[[Any, int], tuple[Any, int]]
Encoder = Callable[[Any, list[Any]], None]
SlicedDecoder = Callable[[Any, int], Generator[int, None, tuple[Any, int]]]
SlicedEncoder = Callable[[Any, list[Any]], Generator[int, None, None]]


def compile_decoder(cls: type[Message], version: int) -> Decoder:
    source, names = decoder_source(cls, version)
    function: Decoder = compile_function("decode", source, f"<moldau {cls.__name__} v{version} decode>", names)
    return function


def compile_encoder(cls: type[Message], version: int) -> Encoder:
    source, names = encoder_source(cls, version)
    function: Encoder = compile_function("encode", source, f"<moldau {cls.__name__} v{version} encode>", names)
    return function


def compile_sliced_decoder(cls: type[Message], version: int) -> SlicedDecoder:
    _check_version(cls, version)
    source, names = DecoderWriter(cls, version, sliced=True).write()
    filename = f"<moldau {cls.__name__} v{version} sliced decode>"
    function: SlicedDecoder = compile_function("decode", source, filename, names)
    return function


def compile_sliced_encoder(cls: type[Message], version: int) -> SlicedEncoder:
    _check_version(cls, version)
    source, names = EncoderWriter(cls, version, sliced=True).write()
    filename = f"<moldau {cls.__name__} v{version} sliced encode>"
    function: SlicedEncoder = compile_function("encode", source, filename, names)
    return function


def compile_function(name: str, source: str, filename: str, names: dict[str, Any]) -> Any:
    """The function `name` that `source` defines; tracebacks and debuggers find its source under `filename`."""
    exec(compile(source, filename, "exec"), names)
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    return names[name]


def decoder_source(cls: type[Message], version: int) -> tuple[str, dict[str, Any]]:
    """The source of the decoder, and the names that it uses."""
    _check_version(cls, version)
    return DecoderWriter(cls, version).write()


def encoder_source(cls: type[Message], version: int) -> tuple[str, dict[str, Any]]:
    """The source of the encoder, and the names that it uses."""
    _check_version(cls, version)
    return EncoderWriter(cls, version).write()


def _check_version(cls: type[Message], version: int) -> None:
    if version not in cls.VERSIONS:
        raise UnsupportedVersion(f"{cls.__name__} has no version {version} (it has {cls.VERSIONS})")

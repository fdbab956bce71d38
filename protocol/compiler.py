"""Turns declarations into straight-line Python, one function per message, version and direction.

The generated functions are like hand-written code for exactly that version. Nested structs are inlined into their
loops. Adjacent fields of fixed size (and the first byte of the following length) are read or written by one pre-bound
`struct.Struct`. Fields of other versions cost nothing. `python -m moldau.protocol FetchRequest 12` prints the
functions; tracebacks show their lines under names such as `<moldau FetchRequest v12 decode>`.

    decode(buf, pos) -> (message, end)
    encode(message, parts) -> None      appends buffers to parts

Both have a sliced form for messages whose arrays may be long: a generator that does the same with pauses. After about
`STEP` elements of arrays (and tagged fields) it yields their number since the last yield. The decoder counts an array
of numbers before it creates the array, so that the caller can stop in time.

Design of the generated code:

* Lengths. Flexible versions (KIP-482) write lengths as unsigned varints, plus one where null is possible (0 is null).
  Nearly all lengths are below 127, so the first byte of a varint is read together with the fixed fields before it. Only
  a value above 127 takes the slow path (`varint_tail`), which also checks the limits.
* Reading past the end. `pos` never decreases. A string whose length exceeds the frame makes a short slice and moves
  `pos` beyond the end, where the next read or the final check of the function fails. So strings need no separate check,
  and no memory is allocated beyond the size of the frame.
* Array counts above 127 are checked before the loop: at most MAX_ARRAY_LENGTH elements, whose minimum size must fit
  into the rest of the frame. Smaller counts fail at the end of the frame.
* All exceptions that malformed bytes can cause in a decoder (struct.error, IndexError, UnicodeDecodeError) are
  converted to MalformedMessage.
* Input that Apache Kafka accepts is accepted: tags in any order, of which the last one wins; any negative length as
  null; varints that are longer than needed. There are three exceptions: invalid UTF-8 (Apache Kafka replaces it), a tag
  whose declared size differs from the size of its value (Apache Kafka ignores the size of a known tag), and the limits
  on arrays and tags.
* Invalid values (a null, an int out of range) are not checked while encoding: they make `pack` or `len` fail, and only
  then is the message searched for the invalid value (`explain.py`).
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
    """The function `name` defined by `source`; tracebacks and debuggers find its source under `filename`."""
    exec(compile(source, filename, "exec"), names)
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    return names[name]


def decoder_source(cls: type[Message], version: int) -> tuple[str, dict[str, Any]]:
    """The source of the decoder, and the global names that it uses."""
    _check_version(cls, version)
    return DecoderWriter(cls, version).write()


def encoder_source(cls: type[Message], version: int) -> tuple[str, dict[str, Any]]:
    """The source of the encoder, and the global names that it uses."""
    _check_version(cls, version)
    return EncoderWriter(cls, version).write()


def _check_version(cls: type[Message], version: int) -> None:
    if version not in cls.VERSIONS:
        raise UnsupportedVersion(f"{cls.__name__} has no version {version} (it has {cls.VERSIONS})")

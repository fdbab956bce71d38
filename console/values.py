"""How bytes of keys, values and headers are shown: as JSON, text, or hex.

Nothing here produces HTML: templates escape what they show. JSON is indented without being written again, so that
numbers, duplicate names and escapes look as they were sent. Characters that a browser would not show, or that would
change the direction of the text around them, are replaced with visible ones.
"""

from __future__ import annotations

import json
import re
import zlib
from dataclasses import dataclass, replace
from typing import Any, Final

from .decoders import FormatError, as_text, decode
from .schema_registry import SchemaRegistry

PREVIEW_CHARACTERS: Final = 240
SHOWN_BYTES: Final = 64 << 10
"""A value is shown up to this size; all of it can be downloaded."""
_HEX_BYTES: Final = 4096
_HEX_PREVIEW_BYTES: Final = 40
_DECOMPRESSED_BYTES: Final = 4 << 20

FORMATS: Final = ("auto", "JSON", "text", "MessagePack", "CBOR", "gzip", "hex")
"""How keys and values can be shown; MessagePack and CBOR cannot be recognized, so they have to be chosen."""

# Everything of Unicode's categories Cc and Cf that matters: controls, and those that change directions.
_INVISIBLE: Final[dict[int, int | str | None]] = {
    **{code: 0x2400 + code for code in range(0x20) if code not in (9, 10, 13)},
    **dict.fromkeys((*range(127, 160), *range(8234, 8239), *range(8294, 8298), 8206, 8207), "�"),
}
_JSON_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{},:]|[^\s\[\]{},:"]+')


@dataclass(frozen=True)
class Shown:
    """Bytes as they are shown. ``kind`` names what they are: ``null``, ``empty``, ``JSON``, ``text``, ``binary``."""

    kind: str
    text: str
    size: int
    preview: str = ""
    """The beginning, in one line."""
    is_cut: bool = False
    note: str | None = None


def show(data: bytes | None, form: str = "auto", registry: SchemaRegistry | None = None) -> Shown:
    """The bytes in a format of `FORMATS`. If they do not have it, they are shown as with ``auto``, with a note.

    With a registry, ``auto`` decodes values that have the id of a schema.
    """
    if data is None:
        return Shown("null", "", 0)
    if not data:
        return Shown("empty", "", 0)
    try:
        return _of_registry(bytes(data), form, registry) or _show_as(bytes(data), form)
    except FormatError as error:
        return replace(_auto(bytes(data)), note=str(error))


def visible(text: str) -> str:
    """Text without characters that hide or reorder others; lone surrogates, which UTF-8 cannot encode, are replaced."""
    return text.translate(_INVISIBLE).encode("utf-8", "replace").decode("utf-8")


def _show_as(data: bytes, form: str) -> Shown:
    match form:
        case "text":
            return _text(data, data.decode("utf-8", "replace"))
        case "hex":
            return _binary(data)
        case "MessagePack" | "CBOR":
            return _object(form, decode(data, form), len(data))
        case "JSON":
            found = _json(data)
            if found is None:
                raise FormatError("the bytes are not valid JSON")
            return found
        case "gzip":
            return _compressed(data)
        case _:
            return _auto(data)


def _of_registry(data: bytes, form: str, registry: SchemaRegistry | None) -> Shown | None:
    """What a serializer of a registry has written. Raises FormatError if it cannot be decoded."""
    decoded = registry.decode(data) if registry is not None and form == "auto" else None
    return None if decoded is None else _object(decoded.label, decoded.value, len(data))


def _object(kind: str, value: Any, size: int) -> Shown:
    text = as_text(value)
    flat = " ".join(text[: 8 * PREVIEW_CHARACTERS].split())
    return Shown(kind, visible(text[:SHOWN_BYTES]), size, _preview(flat), len(text) > SHOWN_BYTES)


def _auto(data: bytes) -> Shown:
    if data[:2] == b"\x1f\x8b":
        try:
            return _compressed(data)
        except FormatError:
            return _binary(data)
    found = _json(data)
    if found is not None:
        return found
    if len(data) > 5 and data[0] == 0:
        schema_id = int.from_bytes(data[1:5], "big")
        if 0 < schema_id < 1_000_000:
            return replace(
                _binary(data), note=f"may have schema {schema_id} of a registry, which is decoded with --registry"
            )
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return _binary(data)
    controls = sum(1 for character in text[:1000] if character < " " and character not in "\t\n\r")
    return _binary(data) if controls * 10 > len(text[:1000]) else _text(data, text)


def _text(data: bytes, text: str) -> Shown:
    return Shown("text", visible(text[:SHOWN_BYTES]), len(data), _preview(text), len(text) > SHOWN_BYTES)


def _json(data: bytes) -> Shown | None:
    """JSON, indented; None if the bytes are something else."""
    try:
        text = data.decode("utf-8")
        json.loads(text)
    except (ValueError, RecursionError):
        return None
    shown = indented(text[: 2 * SHOWN_BYTES])
    is_cut = len(shown) > SHOWN_BYTES or len(text) > 2 * SHOWN_BYTES
    return Shown("JSON", visible(shown[:SHOWN_BYTES]), len(data), _preview(text), is_cut)


def _preview(text: str) -> str:
    line = " ".join(visible(text[: 4 * PREVIEW_CHARACTERS]).split())
    return line if len(line) <= PREVIEW_CHARACTERS else line[:PREVIEW_CHARACTERS] + "…"


def indented(text: str) -> str:
    """JSON text with line breaks and indentation; the tokens are unchanged."""
    parts: list[str] = []
    depth = 0
    tokens = _JSON_TOKEN.findall(text)
    for position, token in enumerate(tokens):
        if token in ("{", "["):
            parts.append(token)
            if position + 1 < len(tokens) and tokens[position + 1] not in ("}", "]"):
                depth += 1
                parts.append("\n" + "  " * depth)
        elif token in ("}", "]"):
            if position and tokens[position - 1] not in ("{", "["):
                depth = max(0, depth - 1)
                parts.append("\n" + "  " * depth)
            parts.append(token)
        elif token == ",":
            parts.append(",\n" + "  " * depth)
        elif token == ":":
            parts.append(": ")
        else:
            parts.append(token)
    return "".join(parts)


def _binary(data: bytes) -> Shown:
    preview = data[:_HEX_PREVIEW_BYTES].hex(" ") + ("…" if len(data) > _HEX_PREVIEW_BYTES else "")
    return Shown("binary", _hex_dump(data[:_HEX_BYTES]), len(data), preview, len(data) > _HEX_BYTES)


def _compressed(data: bytes) -> Shown:
    """What gzip has compressed. Raises FormatError."""
    inner = _auto(_gunzip(data))
    return replace(inner, kind=f"gzip, {inner.kind}", size=len(data))


def _hex_dump(data: bytes) -> str:
    lines = []
    for start in range(0, len(data), 16):
        part = data[start : start + 16]
        characters = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in part)
        lines.append(f"{start:08x}  {part.hex(' '):<47}  {characters}")
    return "\n".join(lines)


def _gunzip(data: bytes) -> bytes:
    try:
        return zlib.decompressobj(wbits=31).decompress(data, _DECOMPRESSED_BYTES)
    except zlib.error as error:
        raise FormatError(f"the bytes are not gzip: {error}") from None

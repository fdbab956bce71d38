"""Values in MessagePack and CBOR as plain objects, which JSON can show.

What JSON does not have is written with a name: ``{"$bytes": "00ff"}``, ``{"$extension": 5, "$bytes": "…"}``,
``{"$tag": 32, "$value": …}``. Names of members that are not text become text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

_MAX_DEPTH: Final = 100


class FormatError(ValueError):
    """The bytes do not have the format that was chosen."""


def decode(data: bytes, form: str) -> Any:
    """The bytes as an object: ``MessagePack`` or ``CBOR``. Raises FormatError."""
    return plain(_message_pack(data) if form == "MessagePack" else _cbor(data))


def as_text(value: Any) -> str:
    """An object of `decode` as indented JSON."""
    return json.dumps(value, indent=2, ensure_ascii=False)


def _message_pack(data: bytes) -> Any:
    import msgpack

    try:
        return msgpack.unpackb(data, raw=False, strict_map_key=False, unicode_errors="surrogateescape")
    except (ValueError, TypeError, msgpack.exceptions.UnpackException) as error:
        raise FormatError(f"the bytes are not MessagePack: {error or type(error).__name__}") from None


def _cbor(data: bytes) -> Any:
    from io import BytesIO

    import cbor2

    stream = BytesIO(data)
    try:
        value = cbor2.load(stream)
        rest = len(data) - stream.tell()
    except (cbor2.CBORError, ValueError, TypeError, RecursionError) as error:
        raise FormatError(f"the bytes are not CBOR: {error}") from None
    if rest:
        raise FormatError(f"the bytes are not CBOR: {rest} bytes follow the first value")
    return value


def plain(value: Any) -> Any:
    """An object of a decoder's library with the types of JSON only. Raises FormatError."""
    return _plain(value, 0)


def _plain(value: Any, depth: int) -> Any:
    if depth > _MAX_DEPTH:
        raise FormatError(f"the value is nested in more than {_MAX_DEPTH} levels")
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (bytes, bytearray)):
        return {"$bytes": bytes(value).hex()}
    if isinstance(value, Mapping):
        return {_name(name, depth): _plain(each, depth + 1) for name, each in value.items()}
    if type(value).__name__ == "ExtType":
        return {"$extension": value.code, "$bytes": value.data.hex()}
    if type(value).__name__ == "CBORTag":
        return {"$tag": value.tag, "$value": _plain(value.value, depth + 1)}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(each, depth + 1) for each in value]
    return str(value)  # times, decimals, undefined, addresses


def _name(name: Any, depth: int) -> str:
    return name if isinstance(name, str) else json.dumps(_plain(name, depth + 1), ensure_ascii=False)

"""Finds the invalid value of a message that could not be encoded.

Encoders do not check values; `struct.pack`, `len` and `str.encode` do. When one of them fails, the message is searched
field by field for the value that cannot be encoded. This is slow, and only happens after an internal error.
"""

from __future__ import annotations

from typing import Any

from .errors import EncodeError
from .schema import Field, Message, Struct

_RANGES = {
    "int8": (-(2**7), 2**7 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "uint16": (0, 2**16 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "int64": (-(2**63), 2**63 - 1),
}


def explain(cls: type[Message], version: int, message: Any, error: Exception) -> EncodeError:
    """The error to raise instead of `error`, which occurred in an encoder."""
    name = f"{cls.__name__} v{version}"
    found = _search_struct(cls, version, message, "")
    return EncodeError(f"{name}: {found or error}")


def _search_struct(cls: type[Struct], version: int, value: Any, path: str) -> str | None:
    if not isinstance(value, cls):
        return f"{path or 'the message'} is {_show(value)}, not a {cls.__name__}"
    for field in cls.FIELDS:
        if version in field.versions:
            found = _search_field(field, version, value, f"{path}.{field.name}" if path else field.name)
            if found:
                return found
    return None


def _search_field(field: Field, version: int, owner: Struct, path: str) -> str | None:
    try:
        value = getattr(owner, field.name)
    except AttributeError:
        return f"{path} is not set"
    if value is None:
        return None if version in field.nullable else f"{path} is null, but is not nullable"
    if not field.is_array:
        return _search_value(field, version, value, path)
    if not isinstance(value, list | tuple):
        return f"{path} is {_show(value)}, not a list"
    for index, item in enumerate(value):
        found = _search_value(field, version, item, f"{path}[{index}]")
        if found:
            return found
    return None


def _search_value(field: Field, version: int, value: Any, path: str) -> str | None:
    if field.struct is not None:
        return _search_struct(field.struct, version, value, path)
    if field.type in _RANGES:
        lowest, highest = _RANGES[field.type]
        if not isinstance(value, int):
            return f"{path} is {_show(value)}, not an integer"
        return None if lowest <= value <= highest else f"{path} is {value}, which does not fit into {field.type}"
    if field.type == "string":
        return _search_string(value, path)
    if field.type == "uuid":
        good = isinstance(value, bytes | bytearray | memoryview) and len(value) == 16
        return None if good else f"{path} is {_show(value)}, not the 16 bytes of a uuid"
    if field.type == "bytes":
        good = isinstance(value, bytes | bytearray | memoryview)
        return None if good else f"{path} is {_show(value)}, not bytes"
    if field.type == "records":
        return None if hasattr(value, "__len__") else f"{path} is {_show(value)}, which has no length"
    if field.type == "bool":
        return None if value in (True, False) else f"{path} is {_show(value)}, not a boolean"
    if field.type == "float64":
        return None if isinstance(value, int | float) else f"{path} is {_show(value)}, not a number"
    return None


def _search_string(value: Any, path: str) -> str | None:
    if not isinstance(value, str):
        return f"{path} is {_show(value)}, not a string"
    try:
        length = len(value.encode())
    except UnicodeEncodeError:
        return f"{path} contains a lone surrogate, which UTF-8 cannot represent"
    return None if length <= 0x7FFF else f"{path} has {length} bytes, more than the limit of 32767"


def _show(value: Any) -> str:
    """The type and the beginning of a value: enough to find it, but not enough to reveal a key."""
    text = repr(value) if isinstance(value, int | float | str) else ""
    return f"a {type(value).__name__}{f' ({text[:40]})' if text else ''}"

"""JSON as Avro's binary encoding: the inverse of how the console shows Avro values.

Values are written as they are shown, so that a shown value can be edited and sent again: times, dates and decimals as
text, bytes as ``{"$bytes": "00ff"}`` (or a string of characters up to U+00FF, as in Avro's own JSON encoding). A value
of a union is that of the first branch that it fits; ``{"branch": value}``, as in Avro's own JSON encoding, selects one.
Numbers are accepted for times and dates, too. A member that is missing has the default of its field.

Errors name the place in the value: ``customer.name: 7 is not a string``.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any, Final
from uuid import UUID

from ..protocol.records import encode_varint
from .decoders import FormatError

_MAX_DEPTH: Final = 100
_MAX_SHOWN: Final = 60
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_PRIMITIVES: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "string", "bytes"})


def encode(schema: Any, value: Any, named: Mapping[str, Any]) -> bytes:
    """The value, an object of JSON, with a schema that fastavro has parsed; ``named`` has its named types.

    Raises FormatError.
    """
    parts: list[bytes] = []
    _Encoder(named, parts.append).encode(schema, value, "", 0)
    return b"".join(parts)


class _Encoder:
    """Appends the parts of an encoding."""

    def __init__(self, named: Mapping[str, Any], append: Callable[[bytes], None]) -> None:
        self._named = named
        self._append = append

    def encode(self, schema: Any, value: Any, path: str, depth: int) -> None:
        if depth > _MAX_DEPTH:
            raise FormatError(f"the value is nested in more than {_MAX_DEPTH} levels")
        if isinstance(schema, list):
            self._union(schema, value, path, depth)
            return
        schema = self._resolved(schema)
        kind = schema["type"]
        if not isinstance(kind, str):
            self.encode(kind, value, path, depth + 1)
            return
        if "logicalType" in schema:
            value = _plain_of_logical(schema, value, path)
        match kind:
            case "record" | "error":
                self._record(schema, value, path, depth)
            case "array":
                items = _require(value, list, "an array", path)
                self._blocks(items)
                for index, each in enumerate(items):
                    self.encode(schema["items"], each, f"{path}[{index}]", depth + 1)
                if items:
                    self._append(b"\0")
            case "map":
                members = _require(value, dict, "an object", path)
                self._blocks(members)
                for name, each in members.items():
                    self._bytes(_utf8(name, path))
                    self.encode(schema["values"], each, _inside(path, name), depth + 1)
                if members:
                    self._append(b"\0")
            case "enum":
                if value not in schema["symbols"]:
                    raise _wrong(path, value, f"one of {', '.join(schema['symbols'][:20])}")
                self._append(encode_varint(schema["symbols"].index(value)))
            case "fixed":
                data = _bytes_of(value, path)
                if len(data) != schema["size"]:
                    raise FormatError(
                        f"{_at(path)}the fixed {schema['name']} has {schema['size']} bytes, not {len(data)}"
                    )
                self._append(data)
            case _:
                self._primitive(kind, value, path)

    def _resolved(self, schema: Any) -> Any:
        if not isinstance(schema, str):
            return schema
        return {"type": schema} if schema in _PRIMITIVES else self._named[schema]

    def _record(self, schema: Any, value: Any, path: str, depth: int) -> None:
        members = dict(_require(value, dict, f"an object (record {schema['name']})", path))
        for field in schema["fields"]:
            name = field["name"]
            where = _inside(path, name)
            if name in members:
                self.encode(field["type"], members.pop(name), where, depth + 1)
            elif "default" in field:
                self.encode(field["type"], field["default"], where, depth + 1)
            else:
                raise FormatError(f"{_at(path)}the field {name!r} is missing, and has no default")
        if members:
            known = ", ".join(field["name"] for field in schema["fields"][:20])
            raise FormatError(
                f"{_at(path)}{next(iter(members))!r} is no field of {schema['name']}; its fields are {known}"
            )

    def _union(self, branches: list[Any], value: Any, path: str, depth: int) -> None:
        problems: list[FormatError] = []
        chosen = [(index, branch, value) for index, branch in enumerate(branches)]
        if isinstance(value, dict) and len(value) == 1:
            ((tag, inner),) = value.items()
            chosen += [(index, branch, inner) for index, branch in enumerate(branches) if self._name(branch) == tag]
        for index, branch, candidate in chosen:
            parts: list[bytes] = [encode_varint(index)]
            try:
                _Encoder(self._named, parts.append).encode(branch, candidate, path, depth + 1)
            except FormatError as problem:
                if self._name(branch) != "null":
                    problems.append(problem)
                continue
            for part in parts:
                self._append(part)
            return
        if len(problems) == 1:
            raise problems[0]
        raise _wrong(path, value, f"of any type of the union {', '.join(map(self._name, branches))}")

    def _name(self, branch: Any) -> str:
        """The name by which a value selects a branch."""
        schema = self._resolved(branch)
        return str(schema.get("name", schema["type"])) if isinstance(schema, dict) else "union"

    def _primitive(self, kind: str, value: Any, path: str) -> None:
        match kind:
            case "null":
                if value is not None:
                    raise _wrong(path, value, "null")
            case "boolean":
                self._append(b"\1" if _require(value, bool, "true or false", path) else b"\0")
            case "int" | "long":
                bits = 32 if kind == "int" else 64
                number = _require(value, int, f"an {kind}" if kind == "int" else "a long", path)
                if not -(1 << bits - 1) <= number < 1 << bits - 1:
                    raise FormatError(f"{_at(path)}{number} does not fit into {bits} bits")
                self._append(encode_varint(number))
            case "float" | "double":
                if isinstance(value, bool) or not isinstance(value, (int, float)):
                    raise _wrong(path, value, "a number")
                try:
                    self._append(struct.pack("<f" if kind == "float" else "<d", value))
                except (OverflowError, struct.error):
                    raise FormatError(f"{_at(path)}{value} does not fit into a {kind}") from None
            case "string":
                self._bytes(_utf8(_require(value, str, "a string", path), path))
            case "bytes":
                self._bytes(_bytes_of(value, path))
            case _:
                raise FormatError(f"the schema has the unknown type {kind!r}")

    def _blocks(self, items: Any) -> None:
        """The count of the only block of an array or a map; without items, the end."""
        self._append(encode_varint(len(items)))

    def _bytes(self, data: bytes) -> None:
        self._append(encode_varint(len(data)))
        self._append(data)


def _plain_of_logical(schema: Any, value: Any, path: str) -> Any:
    """The value of the type below a logical type; values that are written as the type below are left unchanged."""
    logical = schema["logicalType"]
    if not isinstance(value, (str, int, float)) or isinstance(value, bool):
        return value
    try:
        if logical == "decimal":
            return {"$bytes": _decimal(schema, value).hex()}
        if not isinstance(value, str):
            return value
        if logical == "uuid" and schema["type"] == "fixed":
            return {"$bytes": UUID(value).hex}
        if logical == "date":
            return date.fromisoformat(value).toordinal() - _EPOCH.toordinal()
        kind, _, unit = logical.rpartition("-")
        if unit not in ("millis", "micros"):
            return value
        step = timedelta(milliseconds=1) if unit == "millis" else timedelta(microseconds=1)
        if kind == "time":
            moment = time.fromisoformat(value)
            return (
                timedelta(
                    hours=moment.hour, minutes=moment.minute, seconds=moment.second, microseconds=moment.microsecond
                )
                // step
            )
        if kind in ("timestamp", "local-timestamp"):
            instant = datetime.fromisoformat(value)
            return ((instant if instant.tzinfo else instant.replace(tzinfo=UTC)) - _EPOCH) // step
    except (ValueError, OverflowError, InvalidOperation):
        raise _wrong(path, value, f"a {logical}") from None
    return value


def _decimal(schema: Any, value: str | float) -> bytes:
    """The unscaled number in two's complement. Raises ValueError, InvalidOperation."""
    number = Decimal(str(value))
    if not number.is_finite():
        raise ValueError("not finite")
    unscaled = number.scaleb(int(schema.get("scale", 0)))
    if unscaled != unscaled.to_integral_value() or len(unscaled.as_tuple().digits) > 10_000:
        raise ValueError("too many digits")
    whole = int(unscaled)
    size = schema["size"] if schema["type"] == "fixed" else (whole if whole >= 0 else ~whole).bit_length() // 8 + 1
    return whole.to_bytes(size, "big", signed=True)


def _utf8(text: str, path: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise FormatError(f"{_at(path)}half of a surrogate pair is not a character") from None


def _bytes_of(value: Any, path: str) -> bytes:
    text = value.get("$bytes") if isinstance(value, dict) and len(value) == 1 else None
    try:
        if isinstance(text, str):
            return bytes.fromhex(text)
        if isinstance(value, str):
            return value.encode("latin-1")
    except ValueError:
        pass
    raise _wrong(path, value, 'bytes, such as {"$bytes": "00ff"}')


def _require(value: Any, kind: type, what: str, path: str) -> Any:
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise _wrong(path, value, what)
    return value


def _wrong(path: str, value: Any, what: str) -> FormatError:
    text = "NaN" if isinstance(value, float) and math.isnan(value) else json.dumps(value, ensure_ascii=False)
    text = text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"
    return FormatError(f"{_at(path)}{text} is not {what}")


def _at(path: str) -> str:
    return f"{path}: " if path else ""


def _inside(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name

"""Which records a search shows: those that contain a text, or for which an expression is true.

Expressions are a small language of their own, which is parsed here and cannot call anything:

    value.id == 7 and key startswith "order-"
    value.lines[0].count > 2 or not headers.source == "web"

- Fields: ``value``, ``key``, ``headers.NAME``, ``partition``, ``offset``, ``timestamp``, ``size``. Keys and values are
  JSON if they can be, otherwise text. ``.name`` and ``["name"]`` are members of objects, ``[0]`` elements of arrays.
- Operators: ``== != < <= > >= contains startswith endswith``, ``and``, ``or``, ``not``, parentheses.
- A field that is missing equals nothing, and is less or greater than nothing. Alone, a field is true if it exists and
  is neither null nor false.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from ..protocol.records import BATCH_OVERHEAD, Record, RecordBatch
from .decoders import FormatError, decode
from .failures import BadRequest
from .schema_registry import SchemaRegistry

_MAX_LENGTH: Final = 2000
_MAX_DEPTH: Final = 50
_FIELDS: Final = ("value", "key", "headers", "partition", "offset", "timestamp", "size")
_TOKEN: Final = re.compile(
    r"\s*(?:(?P<number>-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)|(?P<string>\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*')"
    r"|(?P<name>[A-Za-z_][\w-]*)|(?P<sign>==|!=|<=|>=|[<>()\[\].]))"
)
_END: Final = ("end", "")


class FilterError(BadRequest):
    """An expression that cannot be parsed; the message says where."""


class _Missing:
    """The value of a field that a record does not have."""


_MISSING: Final = _Missing()


class _Fields:
    """The fields of one record, decoded when they are used."""

    def __init__(self, partition: int, record: Record, form: str, registry: SchemaRegistry | None) -> None:
        self._partition = partition
        self._record = record
        self._form = form
        self._registry = registry
        self._decoded: dict[str, Any] = {}

    def get(self, name: str) -> Any:
        if name not in self._decoded:
            self._decoded[name] = self._decode(name)
        return self._decoded[name]

    def _decode(self, name: str) -> Any:
        record = self._record
        match name:
            case "value":
                return _decoded(record.value, self._form, self._registry)
            case "key":
                return _decoded(record.key, "auto", self._registry)
            case "headers":
                return {header: _decoded(value) for header, value in record.headers}
            case "partition":
                return self._partition
            case "offset":
                return record.offset
            case "timestamp":
                return record.timestamp
        return len(record.value or b"")


Value = Callable[[_Fields], Any]


class Filter(ABC):
    """Decides about records. ``may_match`` rules out whole batches without decoding them."""

    @abstractmethod
    def matches(self, partition: int, record: Record) -> bool: ...

    def may_match(self, batch: RecordBatch) -> bool:
        return True


class TextFilter(Filter):
    """Records that contain a text in the key, the value or a header; case does not matter."""

    def __init__(self, text: str) -> None:
        self._text = text.lower()
        self._bytes = self._text.encode("utf-8", "surrogateescape")
        self._is_ascii = text.isascii()

    def matches(self, partition: int, record: Record) -> bool:
        if self._is_in(record.value) or self._is_in(record.key):
            return True
        return any(self._text in name.lower() or self._is_in(value) for name, value in record.headers)

    def may_match(self, batch: RecordBatch) -> bool:
        # The bytes of uncompressed records are in the batch as they are.
        return bool(batch.codec) or not self._is_ascii or self._bytes in bytes(batch.data[BATCH_OVERHEAD:]).lower()

    def _is_in(self, data: bytes | None) -> bool:
        if not data:
            return False
        if self._is_ascii:
            return self._bytes in data.lower()
        # Other letters have no simple lower case in bytes, and may be escaped in JSON.
        text = data.decode("utf-8", "replace")
        if "\\u" in text:
            try:
                text = json.dumps(json.loads(text), ensure_ascii=False)
            except (ValueError, RecursionError):
                return self._text in text.lower()
        return self._text in text.lower()


class ExpressionFilter(Filter):
    """Records for which an expression is true. Raises `FilterError`.

    Values are decoded as ``form`` if that is MessagePack or CBOR, or else with the schemas of a registry.
    """

    def __init__(self, text: str, form: str = "auto", registry: SchemaRegistry | None = None) -> None:
        self._value = _Parser(text).parse()
        self._registry = registry
        self._form = form

    def matches(self, partition: int, record: Record) -> bool:
        return _is_true(self._value(_Fields(partition, record, self._form, self._registry)))


class _Parser:
    """Recursive descent, one method per level of precedence; each returns a function of a record's fields."""

    def __init__(self, text: str) -> None:
        if len(text) > _MAX_LENGTH:
            raise FilterError(f"the expression has more than {_MAX_LENGTH} characters")
        self._text = text
        self._position = 0
        self._depth = 0
        self._next: tuple[str, str] = _END
        self._start = 0
        self._advance()

    def parse(self) -> Value:
        found = self._or()
        if self._next != _END:
            raise self._error("`and`, `or` or the end")
        return found

    def _or(self) -> Value:
        parts = [self._and()]
        while self._take("name", "or"):
            parts.append(self._and())
        return parts[0] if len(parts) == 1 else lambda fields: any(_is_true(part(fields)) for part in parts)

    def _and(self) -> Value:
        parts = [self._not()]
        while self._take("name", "and"):
            parts.append(self._not())
        return parts[0] if len(parts) == 1 else lambda fields: all(_is_true(part(fields)) for part in parts)

    def _not(self) -> Value:
        if self._take("name", "not"):
            self._descend()
            inner = self._not()
            self._depth -= 1
            return lambda fields: not _is_true(inner(fields))
        return self._comparison()

    def _comparison(self) -> Value:
        left = self._operand()
        if self._next[1] not in _OPERATORS:
            return left
        operator = _OPERATORS[self._next[1]]
        self._advance()
        right = self._operand()
        return lambda fields: operator(left(fields), right(fields))

    def _operand(self) -> Value:
        if self._take("sign", "("):
            self._descend()
            inner = self._or()
            self._depth -= 1
            if not self._take("sign", ")"):
                raise self._error("`)`")
            return inner
        kind, text = self._next
        if kind in ("number", "string"):
            literal = self._literal()
            return lambda fields: literal
        if kind == "name" and text in ("true", "false", "null"):
            self._advance()
            constant = {"true": True, "false": False, "null": None}[text]
            return lambda fields: constant
        if kind == "name" and text in _FIELDS:
            self._advance()
            return self._path(text)
        if kind == "name" and text not in ("and", "or", "not"):
            raise FilterError(
                f"{text!r} at character {self._start + 1} is no field; the fields are {', '.join(_FIELDS)}, "
                "and texts are in quotation marks"
            )
        raise self._error("a field, a number or a text")

    def _path(self, field: str) -> Value:
        steps: list[str | int] = []
        while True:
            if self._take("sign", "."):
                if self._next[0] != "name":
                    raise self._error("a name")
                steps.append(self._next[1])
                self._advance()
            elif self._take("sign", "["):
                literal = self._literal() if self._next[0] in ("number", "string") else None
                if not isinstance(literal, (str, int)):
                    raise self._error("a whole number or a name in quotation marks")
                steps.append(literal)
                if not self._take("sign", "]"):
                    raise self._error("`]`")
            else:
                return lambda fields: _member(fields.get(field), steps)

    def _literal(self) -> str | int | float:
        kind, text = self._next
        self._advance()
        if kind == "string":
            return re.sub(r"\\(.)", r"\1", text[1:-1])
        return int(text) if re.fullmatch(r"-?\d+", text) else float(text)

    def _take(self, kind: str, text: str) -> bool:
        if self._next != (kind, text):
            return False
        self._advance()
        return True

    def _advance(self) -> None:
        self._start = self._position + len(self._text[self._position :]) - len(self._text[self._position :].lstrip())
        if self._start == len(self._text):
            self._next = _END
            return
        found = _TOKEN.match(self._text, self._position)
        if found is None:
            raise FilterError(f"{self._text[self._start]!r} at character {self._start + 1} is not understood")
        self._position = found.end()
        assert found.lastgroup is not None
        self._next = found.lastgroup, found.group(found.lastgroup)

    def _descend(self) -> None:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise FilterError("the expression has too many parentheses")

    def _error(self, expected: str) -> FilterError:
        if self._next == _END:
            return FilterError(f"the expression ends where {expected} is expected")
        return FilterError(f"{expected} is expected at character {self._start + 1}, instead of {self._next[1]!r}")


def _decoded(data: bytes | None, form: str = "auto", registry: SchemaRegistry | None = None) -> Any:
    """What the bytes contain in this form, or else as JSON, or else as text."""
    if data is None:
        return None
    if form in ("MessagePack", "CBOR"):
        with suppress(FormatError):
            return decode(bytes(data), form)
    if registry is not None:
        with suppress(FormatError):
            decoded = registry.decode(bytes(data))
            if decoded is not None:
                return decoded.value
    text = bytes(data).decode("utf-8", "replace")
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _member(value: Any, steps: list[str | int]) -> Any:
    for step in steps:
        if isinstance(step, str) and isinstance(value, dict):
            value = value.get(step, _MISSING)
        elif isinstance(step, int) and isinstance(value, list) and -len(value) <= step < len(value):
            value = value[step]
        else:
            return _MISSING
    return value


def _is_true(value: Any) -> bool:
    return value is not _MISSING and value is not None and value is not False


def _equal(left: Any, right: Any) -> bool:
    if left is _MISSING or right is _MISSING or isinstance(left, bool) != isinstance(right, bool):
        return False
    return bool(left == right)


def _ordered(compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    def check(left: Any, right: Any) -> bool:
        if isinstance(left, str) and isinstance(right, str):
            return compare(left, right)
        numbers = (int, float)
        if isinstance(left, bool) or isinstance(right, bool):
            return False
        return isinstance(left, numbers) and isinstance(right, numbers) and compare(left, right)

    return check


def _contains(left: Any, right: Any) -> bool:
    if isinstance(left, list):
        return any(_equal(each, right) for each in left)
    return isinstance(right, str) and isinstance(left, (str, dict)) and right in left


_OPERATORS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "==": _equal,
    "!=": lambda left, right: not _equal(left, right),
    "<": _ordered(lambda left, right: left < right),
    "<=": _ordered(lambda left, right: left <= right),
    ">": _ordered(lambda left, right: left > right),
    ">=": _ordered(lambda left, right: left >= right),
    "contains": _contains,
    "startswith": lambda left, right: isinstance(left, str) and isinstance(right, str) and left.startswith(right),
    "endswith": lambda left, right: isinstance(left, str) and isinstance(right, str) and left.endswith(right),
}


def filter_of(mode: str, text: str, form: str = "auto", registry: SchemaRegistry | None = None) -> Filter | None:
    """The filter of a form; None without a text. Raises `FilterError`."""
    if not text.strip():
        return None
    return ExpressionFilter(text, form, registry) if mode == "where" else TextFilter(text)

"""Shared by the writers of decoders and encoders: lines of Python, and the properties of fields in a version."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from .schema import Field, Message, Struct, parse_versions

FORMAT_CODES: Final = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "int64": "q",
    "float64": "d",
    "uuid": "16s",
}


STEP: Final = 256
"""The sliced form of a codec yields after this many elements: 0.1 or 0.2 ms."""

_RESERVED = (
    *("message", "buf", "pos", "end", "n", "t", "present", "parts", "append", "data", "tail", "item", "error"),
    *("left",),
)
"""Local variables of generated code that are not named after a struct."""


def snake_case(name: str) -> str:
    """`FetchTopic` -> `fetch_topic`, `KRaftVersion` -> `kraft_version`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


class SourceWriter:
    """Shared by both directions: lines, indentation, names, and the properties of fields in this version."""

    def __init__(self, cls: type[Message], version: int, *, sliced: bool = False) -> None:
        self.cls = cls
        self.sliced = sliced
        self.message = cls.__name__
        self.version = version
        self.flexible = version in cls.FLEXIBLE_VERSIONS
        self.lines: list[str] = []
        self.indent = 0
        self.depth = 0
        self.names: dict[str, Any] = {}
        self.locals = dict.fromkeys(_RESERVED, 1)

    def line(self, text: str) -> None:
        self.lines.append("    " * self.indent + text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        self.line(head)
        self.indent += 1
        yield
        self.indent -= 1

    def count_element(self) -> None:
        """At the head of a loop over elements: let the sliced form yield from time to time."""
        if self.sliced:
            self.line("left -= 1")
            self.yield_if_due()

    def yield_if_due(self) -> None:
        with self.block("if left < 0:"):
            self.line(f"yield {STEP} - left")
            self.line(f"left = {STEP}")

    def name(self, name: str, value: Any) -> str:
        self.names[name] = value
        return name

    def call(self, function: Callable[..., Any]) -> str:
        return self.name(function.__name__, function)

    def local(self, cls: type[Struct]) -> str:
        """A new local variable for a struct: `fetch_topic`, or `fetch_topic_2` if the function has the former."""
        name = snake_case(cls.__name__)
        count = self.locals[name] = self.locals.get(name, 0) + 1
        return name if count == 1 else f"{name}_{count}"

    def source(self) -> str:
        return "\n".join(self.lines) + "\n"

    def is_compact(self, field: Field) -> bool:
        if field.flexible is not None:
            return self.version in parse_versions(field.flexible)
        return self.flexible

    def fields(self, cls: type[Struct]) -> tuple[list[Field], list[Field], list[Field]]:
        """The fields of a struct in this version: in sequence, tagged (by tag), and absent."""
        sequence, tagged, absent = [], [], []
        for field in cls.FIELDS:
            if self.version not in field.versions:
                absent.append(field)
            elif field.tag is None:
                sequence.append(field)
            else:
                tagged.append(field)
        return sequence, sorted(tagged, key=lambda field: field.tag or 0), absent

    def min_size(self, cls: type[Struct]) -> int:
        """The minimum size of a struct in bytes."""
        size = 1 if self.flexible else 0
        for field in self.fields(cls)[0]:
            if field.is_array or field.type in ("string", "bytes", "records"):
                size += 1 if self.is_compact(field) else 2 if field.type == "string" and not field.is_array else 4
            elif field.type != "struct":
                size += struct.calcsize(">" + FORMAT_CODES[field.type])
            elif self.version in field.nullable:
                size += 1
            else:
                assert field.struct is not None
                size += self.min_size(field.struct)
        return size

    def default(self, field: Field) -> str:
        """An expression for the value of a missing field."""
        if field.is_mutable:
            return "[]" if field.is_array else f"{self.class_name(field.struct)}()"
        value = field.make_default()
        if isinstance(value, Struct):
            return self.name(f"{snake_case(type(value).__name__)}_default", value)
        return self.name("ZERO_UUID", value) if field.type == "uuid" else repr(value)

    def class_name(self, cls: type[Struct] | None) -> str:
        assert cls is not None
        return self.name(cls.__name__, cls)

"""Writes the source of encoders; `compiler.py` describes the design."""

from __future__ import annotations

import struct
from functools import partial
from typing import Any

from .explain import explain
from .runtime import (
    ONE_BYTE,
    ArrayFormats,
    long_string,
    not_in_version,
    string_part,
    tag_section,
    tags_not_in_version,
    varint,
)
from .schema import Field, Message, Struct
from .source import FORMAT_CODES, STEP, SourceWriter

_ARRAY_WRITERS = {type: ArrayFormats(FORMAT_CODES[type], "pack") for type in ("int8", "int16", "int32", "int64")}


class EncoderWriter(SourceWriter):
    """Writes `encode`. `run` collects format codes and expressions until a value of variable size follows."""

    def __init__(self, cls: type[Message], version: int, *, sliced: bool = False) -> None:
        super().__init__(cls, version, sliced=sliced)
        self.run: list[tuple[str, str]] = []
        self.append = "append"

    def write(self) -> tuple[str, dict[str, Any]]:
        with self.block("def encode(message, parts):"):
            self.line("append = parts.append")
            if self.sliced:
                self.line(f"left = {STEP}")
            with self.block("try:"):
                self.struct(self.cls, "message")
                self.flush()
                if self.sliced:
                    self.line(f"yield {STEP} - left")
                if self.lines[-1].endswith("try:"):
                    self.line("pass")
            self.names["struct_error"] = struct.error
            self.names["explain"] = partial(explain, self.cls, self.version)
            with self.block("except (struct_error, AttributeError, TypeError, ValueError) as error:"):
                self.line("raise explain(message, error) from error")
        return self.source(), self.names

    def flush(self) -> None:
        """Write the collected fields."""
        if not self.run:
            return
        codes = "".join(code for code, _ in self.run)
        values = ", ".join(value for _, value in self.run)
        self.run.clear()
        if codes == "B":
            self.line(f"{self.append}({self.name('ONE_BYTE', ONE_BYTE)}[{values}])")
            return
        writer = self.name(f"write_{codes}", struct.Struct(f">{codes}").pack)
        self.line(f"{self.append}({writer}({values}))")

    def struct(self, cls: type[Struct], source: str) -> None:
        sequence, tagged, absent = self.fields(cls)
        for field in absent:
            if not field.ignorable:
                with self.block(f"if {self.differs(field, f'{source}.{field.name}')}:"):
                    label = f"{cls.__name__}.{field.name}"
                    self.line(f"raise {self.call(not_in_version)}({label!r}, {self.message!r}, {self.version})")
        for field in sequence:
            self.value(field, f"{source}.{field.name}")
        self.tags(cls, source, tagged)

    def differs(self, field: Field, value: str) -> str:
        """A condition that is true if the value is not the field's default."""
        if field.default is None:
            return f"{value} is not None"
        if field.is_array or field.type == "bytes":
            return f"{value} is None or {value}" if field.nullable else value
        if field.type == "bool":
            return f"not {value}" if field.default else value
        if field.type != "struct":
            return f"{value} != {self.default(field)}"
        # Structs in tagged fields are nearly always the shared default.
        assert field.struct is not None
        shared = self.default(field) if not field.is_mutable else self.class_name(field.struct) + "()"
        return f"{value} is not {shared} and {value} != {shared}" if not field.is_mutable else f"{value} != {shared}"

    def value(self, field: Field, source: str) -> None:
        if field.is_array:
            self.array(field, source)
        elif field.type == "string":
            self.string(field, source, self.version in field.nullable)
        elif field.type in ("bytes", "records"):
            self.bytes(field, source)
        elif field.type != "struct":
            self.fixed(field, source)
        else:
            assert field.struct is not None
            value = self.local(field.struct)
            self.line(f"{value} = {source}")
            if self.version not in field.nullable:
                self.struct(field.struct, value)
                return
            self.flush()
            with self.block(f"if {value} is None:"):
                self.line(f"{self.append}({self.null(field)!r})")
            with self.block("else:"):
                self.run.append(("b", "1"))
                self.struct(field.struct, value)
                self.flush()

    def null(self, field: Field) -> bytes:
        return b"\0" if field.tag is not None else b"\xff"

    def fixed(self, field: Field, source: str) -> None:
        if field.type == "uuid":
            with self.block(f"if len({source}) != 16:"):
                self.line("raise ValueError('a uuid has 16 bytes')")
        # Encoded as a number, because "?" would accept null as false.
        self.run.append(("b" if field.type == "bool" else FORMAT_CODES[field.type], source))

    def string(self, field: Field, source: str, nullable: bool) -> None:
        compact = self.is_compact(field)
        if nullable:
            self.line(f"data = {source}")
            with self.block("if data is None:"):
                self.line(f"n = {0 if compact else -1}")
                self.line("data = b''")
            with self.block("else:"):
                self.line("data = data.encode()")
                self.string_length(compact)
        else:
            self.line(f"data = {source}.encode()")
            self.string_length(compact)
        self.run.append(("B" if compact else "h", "n"))
        self.flush()
        self.line(f"{self.append}(data)")

    def string_length(self, compact: bool) -> None:
        self.line("n = len(data) + 1" if compact else "n = len(data)")
        if compact:
            with self.block("if n > 127:"):
                self.line(f"n, data = {self.call(long_string)}(data)")

    def bytes(self, field: Field, source: str) -> None:
        """Bytes and records are separate parts, of any type."""
        compact = self.is_compact(field)
        self.line(f"data = {source}")
        if self.version in field.nullable:
            empty = "n = 0" if compact else "n = -1"
            with self.block("if data is None:"):
                self.line(empty)
                self.line("data = b''")
            with self.block("else:"):
                self.line("n = len(data) + 1" if compact else "n = len(data)")
        else:
            self.line("n = len(data) + 1" if compact else "n = len(data)")
        self.count(compact)
        self.line(f"{self.append}(data)")

    def count(self, compact: bool) -> None:
        """Write `n`, the length or count, together with the fields collected before it."""
        if not compact:
            self.run.append(("i", "n"))
            self.flush()
            return
        self.run.append(("B", "n if n < 128 else n & 127 | 128"))
        self.flush()
        with self.block("if n > 127:"):
            self.line(f"{self.append}({self.call(varint)}(n >> 7))")

    def array(self, field: Field, source: str) -> None:
        compact = self.is_compact(field)
        self.depth += 1
        items = f"items_{self.depth}"
        self.line(f"{items} = {source}")
        if self.version in field.nullable:
            with self.block(f"if {items} is None:"):
                self.line("n = 0" if compact else "n = -1")
                self.line(f"{items} = ()")
            with self.block("else:"):
                self.line(f"n = len({items}) + 1" if compact else f"n = len({items})")
        else:
            self.line(f"n = len({items}) + 1" if compact else f"n = len({items})")
        self.count(compact)
        self.elements(field, items)
        self.depth -= 1

    def elements(self, field: Field, items: str) -> None:
        if field.type in _ARRAY_WRITERS:
            writers = self.name(f"write_{field.type}s", _ARRAY_WRITERS[field.type])
            with self.block(f"if {items}:"):
                self.line(f"{self.append}({writers}[len({items})](*{items}))")
            return
        if field.type == "struct":
            assert field.struct is not None
            item = self.local(field.struct)
            with self.block(f"for {item} in {items}:"):
                before = len(self.lines)
                self.count_element()
                self.struct(field.struct, item)
                self.flush()
                if len(self.lines) == before:
                    self.line("pass")
            return
        with self.block(f"for item in {items}:"):
            self.count_element()
            if field.type == "uuid":
                with self.block("if len(item) != 16:"):
                    self.line("raise ValueError('a uuid has 16 bytes')")
                self.line(f"{self.append}(item)")
            elif self.is_compact(field):
                self.line(f"{self.append}({self.call(string_part)}(item))")
            else:
                self.string(Field("string", "0+", flexible=field.flexible), "item", nullable=False)

    def tags(self, cls: type[Struct], source: str, tagged: list[Field]) -> None:
        if not self.flexible:
            with self.block(f"if {source}.unknown_tagged_fields:"):
                error = f"{self.call(tags_not_in_version)}({cls.__name__!r}, {self.message!r}, {self.version})"
                self.line(f"raise {error}")
            return
        conditions = [self.differs(field, f"{source}.{field.name}") for field in tagged]
        self.line("t = 0")
        with self.block(f"if {' or '.join([f'{source}.unknown_tagged_fields', *conditions])}:"):
            self.depth += 1
            tags = f"tags_{self.depth}"
            self.line(f"{tags} = []")
            outer_run, self.run = self.run, []
            for field, condition in zip(tagged, conditions, strict=True):
                with self.block(f"if {condition}:"):
                    self.tag(field, f"{source}.{field.name}", tags)
            self.run = outer_run
            own = tuple(field.tag for field in tagged)
            section = f"{self.call(tag_section)}({cls.__name__!r}, {tags}, {own}, {source}.unknown_tagged_fields)"
            self.line(f"t, tail = {section}")
            self.depth -= 1
        self.run.append(("B", "t"))
        self.flush()
        with self.block("if t:"):
            self.line(f"{self.append}(tail)")

    def tag(self, field: Field, source: str, tags: str) -> None:
        """The value of a tagged field, encoded separately because its length precedes it."""
        outer = self.append
        value = f"value_{self.depth}"
        self.append = f"append_{self.depth}"
        self.line(f"{value} = []")
        self.line(f"{self.append} = {value}.append")
        self.value(field, source)
        self.flush()
        self.line(f"{tags}.append(({field.tag}, b''.join({value})))")
        self.append = outer

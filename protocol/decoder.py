"""Writes the source of decoders; `compiler.py` describes the design."""

from __future__ import annotations

import struct
from typing import Any

from .runtime import (
    MAX_STRING_LENGTH,
    MAX_TAGGED_FIELDS,
    ArrayFormats,
    check_count,
    check_tag_count,
    long_string_field,
    malformed,
    null_field,
    past_the_end,
    read_numbers,
    read_unknown_tags,
    varint_tail,
    wrong_tag,
    wrong_tag_size,
)
from .schema import Field, Message, Struct
from .source import FORMAT_CODES, STEP, SourceWriter

_ARRAY_READERS = {type: ArrayFormats(FORMAT_CODES[type], "unpack_from") for type in ("int8", "int16", "int32", "int64")}


class DecoderWriter(SourceWriter):
    """Writes `decode`. `run` collects targets and format codes until a field of variable size needs `pos`."""

    def __init__(self, cls: type[Message], version: int, *, sliced: bool = False) -> None:
        super().__init__(cls, version, sliced=sliced)
        self.run: list[tuple[str, str]] = []

    def write(self) -> tuple[str, dict[str, Any]]:
        with self.block("def decode(buf, pos):"):
            if self.sliced:
                self.line(f"left = {STEP}")
            with self.block("try:"):
                target = self.struct(self.cls)
                self.flush()
                with self.block("if pos > len(buf):"):
                    self.line(f"raise {self.call(past_the_end)}(buf, pos, pos)")
                if self.sliced:
                    self.line(f"yield {STEP} - left")
                self.line(f"return {target}, pos")
            self.names["struct_error"] = struct.error
            with self.block("except (struct_error, IndexError, UnicodeDecodeError) as error:"):
                self.line(f"raise {self.call(malformed)}({self.message!r}, buf, pos, error) from error")
        return self.source(), self.names

    def flush(self) -> None:
        """Write the read of the collected fields."""
        if not self.run:
            return
        codes = "".join(code for _, code in self.run)
        targets = ", ".join(target for target, _ in self.run)
        self.run.clear()
        if codes == "B":
            self.line(f"{targets} = buf[pos]")
            self.line("pos += 1")
            return
        reader = self.name(f"read_{codes.replace('?', 'x')}", struct.Struct(f">{codes}").unpack_from)
        self.line(f"{targets}{'' if ', ' in targets else ','} = {reader}(buf, pos)")
        self.line(f"pos += {struct.calcsize('>' + codes)}")

    def struct(self, cls: type[Struct]) -> str:
        """Write the read of a struct into a local variable, and return its name; the last run may still be open."""
        target = self.local(cls)
        self.names["new"] = object.__new__
        self.line(f"{target} = new({self.class_name(cls)})")
        sequence, tagged, absent = self.fields(cls)
        for field in absent + tagged:
            self.line(f"{target}.{field.name} = {self.default(field)}")
        for field in sequence:
            self.value(field, f"{target}.{field.name}")
        self.tags(cls, target, tagged)
        return target

    def value(self, field: Field, target: str, in_tag: bool = False) -> None:
        if field.is_array:
            self.array(field, target)
        elif field.type in ("string", "bytes", "records"):
            self.sized(field, target)
        elif field.type != "struct":
            self.run.append((target, FORMAT_CODES[field.type]))
        else:
            assert field.struct is not None
            if self.version not in field.nullable:
                value = self.struct(field.struct)
                self.line(f"{target} = {value}")
                return
            # Null is a negative byte; as a tagged field, a varint below 1.
            self.run.append(("present", "B" if in_tag else "b"))
            self.flush()
            with self.block(f"if present {'>' if in_tag else '>='} 0:"):
                value = self.struct(field.struct)
                self.flush()
                self.line(f"{target} = {value}")
            with self.block("else:"):
                self.line(f"{target} = None")

    def length(self, field: Field, code: str, limit: str) -> str:
        """Write the read of a length or count into `n`, plus one in the compact form. `limit`: lines for large ones."""
        compact = self.is_compact(field)
        self.run.append(("n", "B" if compact else code))
        self.flush()
        if compact or limit:
            with self.block("if n > 127:"):
                if compact:
                    self.line(f"n, pos = {self.call(varint_tail)}(buf, pos, n)")
                if limit:
                    self.line(limit)
        return "n - 1" if compact else "n"

    def nulls(self, field: Field, target: str) -> None:
        """The branch for a null length; the branch for other lengths comes before it."""
        with self.block("else:"):
            if self.version in field.nullable:
                self.line(f"{target} = None")
            else:
                self.line(f"raise {self.call(null_field)}({self.label(field)}, pos)")

    def label(self, field: Field) -> str:
        return repr(f"{self.message}.{field.name}")

    def sized(self, field: Field, target: str) -> None:
        """A string, bytes or records."""
        compact = self.is_compact(field)
        limit = ""
        if field.type == "string" and compact:
            check = f"{self.call(long_string_field)}({self.label(field)}, n - 1, pos)"
            limit = f"if n > {MAX_STRING_LENGTH + 1}: raise {check}"
        length = self.length(field, "h" if field.type == "string" else "i", limit)
        with self.block("if n:" if compact else "if n >= 0:"):
            self.line(f"end = pos + {length}")
            self.line(f"{target} = {self.slice(field)}")
            self.line("pos = end")
        self.nulls(field, target)

    def slice(self, field: Field) -> str:
        if field.type == "string":
            return "buf[pos:end].decode()"
        if field.type == "bytes":
            return "bytes(buf[pos:end])"
        self.names["memoryview"] = memoryview
        return "memoryview(buf)[pos:end]"

    def array(self, field: Field, target: str) -> None:
        compact = self.is_compact(field)
        if field.type == "struct":
            assert field.struct is not None
            least = self.min_size(field.struct)
        elif field.type == "string":
            least = 1 if compact else 2
        else:
            least = struct.calcsize(">" + FORMAT_CODES[field.type])
        count = "n - 1" if compact else "n"
        check = f"{self.call(check_count)}({self.label(field)}, {count}, {max(least, 1)}, buf, pos)"
        self.length(field, "i", check)
        with self.block("if n:" if compact else "if n >= 0:"):
            self.elements(field, target, count)
        self.nulls(field, target)

    def elements(self, field: Field, target: str, count: str) -> None:
        if field.type in _ARRAY_READERS:
            readers = self.name(f"read_{field.type}s", _ARRAY_READERS[field.type])
            size = struct.calcsize(">" + FORMAT_CODES[field.type])
            if self.sliced:
                # Counted before they are created, and read in parts.
                self.line(f"left -= {count}")
                self.yield_if_due()
                self.line(f"{target} = yield from {self.call(read_numbers)}({readers}, {size}, {count}, buf, pos)")
            else:
                self.line(f"{target} = list({readers}[{count}](buf, pos))")
            self.line(f"pos += {size} * ({count})" if size > 1 else f"pos += {count}")
            return
        self.depth += 1
        items = f"items_{self.depth}"
        self.line(f"{target} = {items} = []")
        with self.block(f"for _ in range({count}):"):
            self.count_element()
            if field.type == "struct":
                assert field.struct is not None
                value = self.struct(field.struct)
                self.flush()
                self.line(f"{items}.append({value})")
            elif field.type == "uuid":
                self.run.append(("item", "16s"))
                self.flush()
                self.line(f"{items}.append(item)")
            else:
                element = Field("string", "0+", flexible=field.flexible)
                element.name = f"an element of {field.name}"
                self.sized(element, "item")
                self.line(f"{items}.append(item)")
        self.depth -= 1

    def tags(self, cls: type[Struct], target: str, tagged: list[Field]) -> None:
        if not self.flexible:
            self.line(f"{target}.unknown_tagged_fields = None")
            return
        self.run.append(("t", "B"))
        self.flush()
        # A tag that this struct knows in a different version is also an error in Apache Kafka.
        foreign = [field.tag for field in cls.FIELDS if field.tag is not None and self.version not in field.versions]
        if not tagged and not foreign:
            with self.block("if t:"):
                reader = self.call(read_unknown_tags)
                if self.sliced:
                    self.line("end = pos")
                self.line(f"{target}.unknown_tagged_fields, pos = {reader}(buf, pos, t)")
                if self.sliced:
                    self.line(f"left -= min((pos - end) // 2, {MAX_TAGGED_FIELDS})")
            with self.block("else:"):
                self.line(f"{target}.unknown_tagged_fields = None")
            return
        self.depth += 1
        unknown, tag, end = (f"{name}_{self.depth}" for name in ("unknown", "tag", "end"))
        self.line(f"{unknown} = None")
        with self.block("if t:"):
            with self.block("if t > 127:"):
                self.line(f"t, pos = {self.call(varint_tail)}(buf, pos, t)")
                self.line(f"{self.call(check_tag_count)}(t, pos)")
            if self.sliced:
                self.line("left -= t")
            with self.block("for _ in range(t):"):
                self.varint(tag)
                self.varint(end)
                self.line(f"{end} += pos")
                with self.block(f"if {end} > len(buf):"):
                    self.line(f"raise {self.call(past_the_end)}(buf, pos, {end})")
                word = "if"
                for field in tagged:
                    with self.block(f"{word} {tag} == {field.tag}:"):
                        self.value(field, f"{target}.{field.name}", in_tag=True)
                        self.flush()
                        with self.block(f"if pos != {end}:"):
                            self.line(f"raise {self.call(wrong_tag_size)}({self.label(field)}, pos, {end})")
                    word = "elif"
                if foreign:
                    numbers = ", ".join(map(str, foreign))
                    with self.block(f"{word} {tag} in ({numbers},):"):
                        self.line(f"raise {self.call(wrong_tag)}({cls.__name__!r}, {tag}, pos)")
                with self.block("else:"):
                    with self.block(f"if {unknown} is None:"):
                        self.line(f"{unknown} = {{}}")
                    self.line(f"{unknown}[{tag}] = bytes(buf[pos:{end}])")
                    self.line(f"pos = {end}")
        self.line(f"{target}.unknown_tagged_fields = {unknown}")
        self.depth -= 1

    def varint(self, target: str) -> None:
        self.line(f"{target} = buf[pos]")
        self.line("pos += 1")
        with self.block(f"if {target} > 127:"):
            self.line(f"{target}, pos = {self.call(varint_tail)}(buf, pos, {target})")

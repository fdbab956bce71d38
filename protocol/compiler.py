"""Turns declarations into straight-line Python, one function per message, version and direction.

The generated functions are what a person would write by hand for exactly that version: nested structs are inlined into
their loops, neighbours of fixed size (and the first byte of whatever length follows them) are read or written by one
pre-bound `struct.Struct`, and no field of another version is looked at. `python -m moldau.protocol FetchRequest 12`
prints them; tracebacks show their lines under names such as `<moldau FetchRequest v12 decode>`.

    decode(buf, pos) -> (message, end)
    encode(message, parts) -> None      appends buffers to parts

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
  varints that are longer than needed. We are stricter in three things that no client does: invalid UTF-8, a tag whose
  declared size is not what its value takes, and the limits on arrays and tags.
* A value that does not fit (a null, an int out of range) is not looked for while encoding: it makes `pack` or `len`
  fail, and only then is the message searched for the culprit (`explain.py`).
"""

from __future__ import annotations

import linecache
import re
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from .errors import UnsupportedVersion
from .runtime import (
    MAX_STRING_LENGTH,
    ONE_BYTE,
    ArrayFormats,
    check_count,
    check_tag_count,
    long_string,
    long_string_field,
    malformed,
    not_in_version,
    null_field,
    past_the_end,
    read_unknown_tags,
    string_part,
    tag_section,
    tags_not_in_version,
    varint,
    varint_tail,
    wrong_tag,
    wrong_tag_size,
)
from .schema import Field, Message, Struct, parse_versions

Decoder = Callable[[Any, int], tuple[Any, int]]
Encoder = Callable[[Any, list[Any]], None]


def compile_decoder(cls: type[Message], version: int) -> Decoder:
    source, names = decoder_source(cls, version)
    function: Decoder = compile_function("decode", source, f"<moldau {cls.__name__} v{version} decode>", names)
    return function


def compile_encoder(cls: type[Message], version: int) -> Encoder:
    source, names = encoder_source(cls, version)
    function: Encoder = compile_function("encode", source, f"<moldau {cls.__name__} v{version} encode>", names)
    return function


def compile_function(name: str, source: str, filename: str, names: dict[str, Any]) -> Any:
    """The function `name` that `source` defines; tracebacks and debuggers find its source under `filename`."""
    exec(compile(source, filename, "exec"), names)
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    return names[name]


def decoder_source(cls: type[Message], version: int) -> tuple[str, dict[str, Any]]:
    """The source of the decoder, and the names that it uses."""
    _check_version(cls, version)
    return _DecoderWriter(cls, version).write()


def encoder_source(cls: type[Message], version: int) -> tuple[str, dict[str, Any]]:
    """The source of the encoder, and the names that it uses."""
    _check_version(cls, version)
    return _EncoderWriter(cls, version).write()


def _check_version(cls: type[Message], version: int) -> None:
    if version not in cls.VERSIONS:
        raise UnsupportedVersion(f"{cls.__name__} has no version {version} (it has {cls.VERSIONS})")


# The writers of source. ---------------------------------------------------------------------------------------------

_FIXED = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "int64": "q",
    "float64": "d",
    "uuid": "16s",
}
_READERS = {type: ArrayFormats(_FIXED[type], "unpack_from") for type in ("int8", "int16", "int32", "int64")}
_WRITERS = {type: ArrayFormats(_FIXED[type], "pack") for type in ("int8", "int16", "int32", "int64")}


def snake_case(name: str) -> str:
    """`FetchTopic` -> `fetch_topic`, `KRaftVersion` -> `kraft_version`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


class _Writer:
    """What both directions share: lines, indentation, names, and which facts hold in this version."""

    def __init__(self, cls: type[Message], version: int) -> None:
        self.cls = cls
        self.message = cls.__name__
        self.version = version
        self.flexible = version in cls.FLEXIBLE_VERSIONS
        self.lines: list[str] = []
        self.indent = 0
        self.depth = 0
        self.names: dict[str, Any] = {}
        self.locals: dict[str, int] = {}

    def line(self, text: str) -> None:
        self.lines.append("    " * self.indent + text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        self.line(head)
        self.indent += 1
        yield
        self.indent -= 1

    def name(self, name: str, value: Any) -> str:
        self.names[name] = value
        return name

    def call(self, function: Callable[..., Any]) -> str:
        return self.name(function.__name__, function)

    def local(self, cls: type[Struct]) -> str:
        """A new local variable for a struct: `fetch_topic`, and `fetch_topic_2` where the function has one already."""
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

    def least_size(self, cls: type[Struct]) -> int:
        """The fewest bytes that a struct can take."""
        size = 1 if self.flexible else 0
        for field in self.fields(cls)[0]:
            if field.is_array or field.type in ("string", "bytes", "records"):
                size += 1 if self.is_compact(field) else 2 if field.type == "string" and not field.is_array else 4
            elif field.type != "struct":
                size += struct.calcsize(">" + _FIXED[field.type])
            elif self.version in field.nullable:
                size += 1
            else:
                assert field.struct is not None
                size += self.least_size(field.struct)
        return size

    def default(self, field: Field) -> str:
        """An expression for the value of a field that is not there."""
        if field.is_mutable:
            return "[]" if field.is_array else f"{self.class_name(field.struct)}()"
        value = field.make_default()
        if isinstance(value, Struct):
            return self.name(f"{snake_case(type(value).__name__)}_default", value)
        return self.name("ZERO_UUID", value) if field.type == "uuid" else repr(value)

    def class_name(self, cls: type[Struct] | None) -> str:
        assert cls is not None
        return self.name(cls.__name__, cls)


class _DecoderWriter(_Writer):
    """Writes `decode`. `run` collects targets and format codes until something of variable size needs `pos`."""

    def __init__(self, cls: type[Message], version: int) -> None:
        super().__init__(cls, version)
        self.run: list[tuple[str, str]] = []

    def write(self) -> tuple[str, dict[str, Any]]:
        with self.block("def decode(buf, pos):"):
            with self.block("try:"):
                target = self.struct(self.cls)
                self.flush()
                with self.block("if pos > len(buf):"):
                    self.line(f"raise {self.call(past_the_end)}(buf, pos, pos)")
                self.line(f"return {target}, pos")
            self.names["struct_error"] = struct.error
            with self.block("except (struct_error, IndexError, UnicodeDecodeError) as error:"):
                self.line(f"raise {self.call(malformed)}({self.message!r}, buf, pos, error) from error")
        return self.source(), self.names

    def flush(self) -> None:
        """Reads what was collected."""
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
        """Reads a struct into a local variable, and returns its name; the last run may still be open."""
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
            self.run.append((target, _FIXED[field.type]))
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
        """Reads a length or count into `n`; for the compact form n is one more. `limit` are lines for large ones."""
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
        """The branch for a length that says null; the branch for anything else stands before it."""
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
            least = self.least_size(field.struct)
        elif field.type == "string":
            least = 1 if compact else 2
        else:
            least = struct.calcsize(">" + _FIXED[field.type])
        count = "n - 1" if compact else "n"
        check = f"{self.call(check_count)}({self.label(field)}, {count}, {max(least, 1)}, buf, pos)"
        self.length(field, "i", check)
        with self.block("if n:" if compact else "if n >= 0:"):
            self.elements(field, target, count)
        self.nulls(field, target)

    def elements(self, field: Field, target: str, count: str) -> None:
        if field.type in _READERS:
            readers = self.name(f"read_{field.type}s", _READERS[field.type])
            size = struct.calcsize(">" + _FIXED[field.type])
            self.line(f"{target} = list({readers}[{count}](buf, pos))")
            self.line(f"pos += {size} * ({count})" if size > 1 else f"pos += {count}")
            return
        self.depth += 1
        items = f"items_{self.depth}"
        self.line(f"{target} = {items} = []")
        with self.block(f"for _ in range({count}):"):
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
        # A tag that this struct knows, but not in this version, is an error in Apache Kafka too.
        foreign = [field.tag for field in cls.FIELDS if field.tag is not None and self.version not in field.versions]
        if not tagged and not foreign:
            with self.block("if t:"):
                reader = self.call(read_unknown_tags)
                self.line(f"{target}.unknown_tagged_fields, pos = {reader}(buf, pos, t)")
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


class _EncoderWriter(_Writer):
    """Writes `encode`. `run` collects format codes and expressions until something of variable size must follow."""

    def __init__(self, cls: type[Message], version: int) -> None:
        super().__init__(cls, version)
        self.run: list[tuple[str, str]] = []
        self.append = "append"

    def write(self) -> tuple[str, dict[str, Any]]:
        from .explain import explain

        with self.block("def encode(message, parts):"):
            self.line("append = parts.append")
            with self.block("try:"):
                self.struct(self.cls, "message")
                self.flush()
                if self.lines[-1].endswith("try:"):
                    self.line("pass")
            self.names["struct_error"] = struct.error
            self.names["explain"] = partial(explain, self.cls, self.version)
            with self.block("except (struct_error, AttributeError, TypeError, ValueError) as error:"):
                self.line("raise explain(message, error) from error")
        return self.source(), self.names

    def flush(self) -> None:
        """Writes what was collected."""
        if not self.run:
            return
        codes = "".join(code for code, _ in self.run)
        values = ", ".join(value for _, value in self.run)
        self.run.clear()
        if codes == "B":
            self.line(f"{self.append}({self.name('ONE_BYTE', ONE_BYTE)}[{values}])")
            return
        writer = self.name(f"write_{codes.replace('?', 'x')}", struct.Struct(f">{codes}").pack)
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
        """A condition: the value is not the field's default."""
        if field.default is None:
            return f"{value} is not None"
        if field.is_array or field.type == "bytes":
            return f"{value} is None or {value}" if field.nullable else value
        if field.type == "bool":
            return f"not {value}" if field.default else value
        if field.type != "struct":
            return f"{value} != {self.default(field)}"
        # Structs in tagged fields are nearly always the shared default itself.
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
        self.run.append((_FIXED[field.type], source))

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
        """Bytes and records: a part of their own, whatever they are."""
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
        """Writes `n`, the length or count, with whatever was collected before it."""
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
        if field.type in _WRITERS:
            writers = self.name(f"write_{field.type}s", _WRITERS[field.type])
            with self.block(f"if {items}:"):
                self.line(f"{self.append}({writers}[len({items})](*{items}))")
            return
        if field.type == "struct":
            assert field.struct is not None
            item = self.local(field.struct)
            with self.block(f"for {item} in {items}:"):
                before = len(self.lines)
                self.struct(field.struct, item)
                self.flush()
                if len(self.lines) == before:
                    self.line("pass")
            return
        with self.block(f"for item in {items}:"):
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
        """The value of a tagged field, encoded apart because its length comes first."""
        outer = self.append
        value = f"value_{self.depth}"
        self.append = f"append_{self.depth}"
        self.line(f"{value} = []")
        self.line(f"{self.append} = {value}.append")
        self.value(field, source)
        self.flush()
        self.line(f"{tags}.append(({field.tag}, b''.join({value})))")
        self.append = outer

"""Protobuf schemas: compiled by protoc (the package grpcio-tools), compared as descriptors.

A schema is the text of a ``.proto`` file, or a FileDescriptorProto in base64, which is what confluent-kafka's
serializer registers. Both become descriptors, so they share one id if they say the same.

protoc runs as a child process: it is the reference implementation, and a crash or a hanging compilation of an odd
schema must not be the registry's.

Compatible is what keeps the wire format readable (Protobuf's page "Updating A Message Type"): fields come and go,
scalar types stay within their group, and messages are not removed.
"""

from __future__ import annotations

import base64
import binascii
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ..console.protobuf_files import ImportedFileError, linked, well_known
from .parsed import Parsed, SchemaError

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto

_MAIN: Final = "schema.proto"
_TIMEOUT_S: Final = 20.0

# Types within a group have one encoding, so that a reader gets the value or a part of it.
_GROUPS: Final = (
    {"int32", "uint32", "int64", "uint64", "bool", "enum"},
    {"sint32", "sint64"},
    {"string", "bytes"},
    {"fixed32", "sfixed32"},
    {"fixed64", "sfixed64"},
)
_TOKEN: Final = re.compile(
    r"""//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|(?P<token>[A-Za-z_]\w*|[{=])""", re.DOTALL
)
_DECLARATIONS: Final = frozenset({("message", "{"), ("enum", "{"), ("service", "{"), ("group", "=")})
"""A keyword, and what stands after the name that it declares."""
_LENGTH_DELIMITED: Final = frozenset({"string", "bytes", "message"})


class ProtobufSchema(Parsed):
    """A compiled file."""

    def __init__(self, text: str, references: Iterable[tuple[str, str]] = ()) -> None:
        """``references`` are names and texts of imported files, each after those that it imports itself.

        Raises SchemaError.
        """
        imported: dict[str, FileDescriptorProto] = {}
        for name, each in references:
            if name not in imported:
                imported[name] = _file(name, each, imported)
        self.file = _file(_MAIN, text, imported)
        self.text = self.normalized = text
        self.serialized = base64.b64encode(self.file.SerializeToString(deterministic=True)).decode()
        self.identity = self.serialized
        self._declared = _declared_in_file(self.file)

    def may_equal(self, text: str) -> bool:
        """Each protoc is a process, so a registry that starts must not compile all schemas to find an equal one."""
        return _declared_in(text) == self._declared

    def problems_reading(self, written: Parsed) -> list[str]:
        assert isinstance(written, ProtobufSchema)
        return list(_compare_messages(_messages(self.file), _messages(written.file)))


def _file(name: str, text: str, imported: Mapping[str, FileDescriptorProto]) -> FileDescriptorProto:
    file = _from_base64(text) or _compiled(text, imported)
    file.name = name
    file.ClearField("source_code_info")
    for message in file.message_type:
        _clear_default_names(message)
    _link(file, imported)
    return file


def _from_base64(text: str) -> FileDescriptorProto | None:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.message import DecodeError

    try:
        return FileDescriptorProto.FromString(base64.b64decode(text, validate=True)) if text else None
    except (binascii.Error, ValueError, DecodeError):
        return None


def _declared_in(text: str) -> set[str]:
    """The names of messages, enums and services, nested ones as well, in a text or a descriptor."""
    file = _from_base64(text)
    if file is not None:
        return _declared_in_file(file)
    tokens = [match["token"] for match in _TOKEN.finditer(text) if match["token"]]
    triples = zip(tokens, tokens[1:], tokens[2:], strict=False)
    return {name for keyword, name, after in triples if (keyword, after) in _DECLARATIONS}


def _declared_in_file(file: FileDescriptorProto) -> set[str]:
    found = {*(each.name for each in file.enum_type), *(each.name for each in file.service)}
    for message in _messages(file).values():
        if not message.options.map_entry:
            found |= {message.name, *(each.name for each in message.enum_type)}
    return found


def _compiled(text: str, imported: Mapping[str, FileDescriptorProto]) -> FileDescriptorProto:
    serialized = tuple(each.SerializeToString(deterministic=True) for each in imported.values())
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    return FileDescriptorProto.FromString(_run_protoc(text, serialized))


@lru_cache(maxsize=1000)
def _run_protoc(text: str, imported: tuple[bytes, ...]) -> bytes:
    """The serialized FileDescriptorProto of a file. Raises SchemaError."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

    with tempfile.TemporaryDirectory(prefix="moldau-protoc-") as folder:
        directory = Path(folder)
        try:
            (directory / _MAIN).write_text(text, encoding="utf-8")
        except UnicodeEncodeError:
            raise SchemaError("it contains characters that UTF-8 cannot encode") from None
        files = [FileDescriptorProto.FromString(each) for each in imported]
        known = {each.name for each in files}
        for name in sorted({name for each in files for name in each.dependency} - known):
            files.insert(0, _well_known(name))
        command = [sys.executable, "-m", "grpc_tools.protoc", f"--proto_path={directory}"]
        if files:
            (directory / "imported.set").write_bytes(FileDescriptorSet(file=files).SerializeToString())
            command.append(f"--descriptor_set_in={directory / 'imported.set'}")
        command += [f"--descriptor_set_out={directory / 'out.set'}", _MAIN]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False, cwd=folder)
        except subprocess.TimeoutExpired:
            raise SchemaError(f"protoc did not compile it within {_TIMEOUT_S:g} seconds") from None
        if done.returncode:
            lines = done.stderr.replace(f"{directory}/", "").strip().splitlines()
            raise SchemaError("; ".join(lines[:5]) or f"protoc ended with {done.returncode}")
        (file,) = FileDescriptorSet.FromString((directory / "out.set").read_bytes()).file
    return file.SerializeToString(deterministic=True)


def _well_known(name: str) -> FileDescriptorProto:
    """Raises SchemaError."""
    try:
        return well_known(name)
    except ImportedFileError as problem:
        raise SchemaError(str(problem)) from None


def _link(file: FileDescriptorProto, imported: Mapping[str, FileDescriptorProto]) -> None:
    """Raises SchemaError if a type is missing, or the descriptor is damaged."""
    try:
        linked(file, imported)
    except (ImportedFileError, TypeError, KeyError) as problem:
        raise SchemaError(str(problem)) from None


def _clear_default_names(message: DescriptorProto) -> None:
    """Remove the JSON names that follow from the names; protoc writes them, its generated code does not."""
    for field in (*message.field, *message.extension):
        if field.json_name == re.sub("_+(.?)", lambda match: match[1].upper(), field.name):
            field.ClearField("json_name")
    for nested in message.nested_type:
        _clear_default_names(nested)


def _messages(file: FileDescriptorProto) -> dict[str, DescriptorProto]:
    """All messages by their names within the package; entries of maps as well."""

    def walk(messages: Iterable[DescriptorProto], prefix: str) -> Iterator[tuple[str, DescriptorProto]]:
        for message in messages:
            yield prefix + message.name, message
            yield from walk(message.nested_type, f"{prefix}{message.name}.")

    return dict(walk(file.message_type, ""))


def _compare_messages(new: Mapping[str, DescriptorProto], old: Mapping[str, DescriptorProto]) -> Iterator[str]:
    for name, message in old.items():
        if name in new:
            yield from _compare_fields(name, new[name], message)
        else:
            yield f"MESSAGE_REMOVED at {name}: the new schema does not have this message"


def _compare_fields(name: str, new: DescriptorProto, old: DescriptorProto) -> Iterator[str]:
    fields, had = {each.number: each for each in new.field}, {each.number: each for each in old.field}
    for number, field in sorted(fields.items()):
        path = f"{name}.{field.name}"
        if number in had:
            yield from _compare_field(path, field, had[number])
        elif _label(field) == "required":
            yield f"REQUIRED_FIELD_ADDED at {path}: old values do not have it"
    for number, field in sorted(had.items()):
        if number not in fields and _label(field) == "required":
            yield f"REQUIRED_FIELD_REMOVED at {name}.{field.name}: the field was required"
        if number not in fields and _real_oneof(field) is not None:
            yield f"ONEOF_FIELD_REMOVED at {name}.{field.name}: a oneof has lost this field"
    moved: dict[int, list[str]] = {}
    for number, field in fields.items():
        oneof = _real_oneof(field)
        if oneof is not None and number in had and _real_oneof(had[number]) is None:
            moved.setdefault(oneof, []).append(field.name)
    for oneof, names in sorted(moved.items()):
        existed = any(_real_oneof(had[number]) is not None for number in fields.keys() & had.keys()
                      if _real_oneof(fields[number]) == oneof)  # fmt: skip
        if len(names) > 1 or existed:
            path = f"{name}.{new.oneof_decl[oneof].name}"
            yield f"MULTIPLE_FIELDS_MOVED_TO_ONEOF at {path}: {', '.join(names)} may be set together in old values"


def _compare_field(path: str, new: FieldDescriptorProto, old: FieldDescriptorProto) -> Iterator[str]:
    kind, had = _type(new), _type(old)
    if kind != had and not any(kind in group and had in group for group in _GROUPS):
        yield f"FIELD_TYPE_CHANGED at {path}: {had} became {kind}"
    elif kind == "message" and _relative(new) != _relative(old):
        yield f"FIELD_NAMED_TYPE_CHANGED at {path}: {old.type_name.lstrip('.')} became {new.type_name.lstrip('.')}"
    labels = _label(new), _label(old)
    if "required" in labels and labels[0] != labels[1]:
        yield f"FIELD_LABEL_CHANGED at {path}: {labels[1]} became {labels[0]}"
    elif "repeated" in labels and labels[0] != labels[1] and kind not in _LENGTH_DELIMITED:
        yield f"FIELD_NUMERIC_LABEL_CHANGED at {path}: {labels[1]} became {labels[0]}"


def _relative(field: FieldDescriptorProto) -> str:
    """The name of the type without a package, which may change."""
    return field.type_name.rpartition(".")[2]


def _type(field: FieldDescriptorProto) -> str:
    return _enum_name(field, "type", "TYPE_")


def _label(field: FieldDescriptorProto) -> str:
    return _enum_name(field, "label", "LABEL_")


def _enum_name(field: Any, member: str, prefix: str) -> str:
    values = field.DESCRIPTOR.fields_by_name[member].enum_type.values_by_number
    return str(values[getattr(field, member)].name.removeprefix(prefix).lower())


def _real_oneof(field: FieldDescriptorProto) -> int | None:
    """The index of the field's oneof; not the one that proto3 makes for an optional field."""
    return field.oneof_index if field.HasField("oneof_index") and not field.proto3_optional else None

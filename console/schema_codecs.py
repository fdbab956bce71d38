"""Schemas of a registry as functions that read and write values: Avro, JSON Schema and Protobuf.

Values are objects of JSON, as the console shows them. Protobuf has a path of its message type before the message:
zigzag varints, first their number; a single 0 stands for the first type.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from functools import cache
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ..protocol.records import encode_varint, read_varint
from .avro_encoding import encode as encode_avro
from .decoders import FormatError
from .protobuf_files import linked
from .registry_client import NotFoundError, RegistryClient, UnreachableError

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor

_MAX_SHOWN_TYPES: Final = 20


class Codec(NamedTuple):
    """What a schema does."""

    read: Callable[[bytes], Any]
    """Raises any error for bytes that do not have the schema."""
    write: Callable[[str, str], bytes]
    """The bytes of a text of JSON, for a message type of Protobuf (empty: the first one). Raises FormatError."""


def avro(client: RegistryClient, fields: Any) -> Codec:
    """The codec of a schema as the registry describes it. Raises any error for a schema that cannot be used."""
    from fastavro import parse_schema, schemaless_reader

    named: dict[str, Any] = {}
    for _, each in client.references(fields):
        parse_schema(json.loads(each), named_schemas=named)
    schema = parse_schema(json.loads(fields["schema"]), named_schemas=named)

    def read(data: bytes) -> Any:
        stream = BytesIO(data)
        value = schemaless_reader(stream, schema, None)
        if stream.tell() != len(data):
            raise ValueError(f"{len(data) - stream.tell()} bytes follow the value")
        return value

    def write(text: str, _message: str) -> bytes:
        return encode_avro(schema, _object(text), named)

    return Codec(read, write)


def json_schema(client: RegistryClient, fields: Any) -> Codec:
    """Like `avro`. Values are validated when they are written, and stay as they were typed."""
    from jsonschema.exceptions import best_match
    from jsonschema.validators import Draft7Validator, validator_for
    from referencing import Registry
    from referencing.exceptions import Unresolvable
    from referencing.jsonschema import DRAFT7

    @cache
    def validator() -> Any:
        schema = json.loads(fields["schema"])
        referred = [(name, DRAFT7.create_resource(json.loads(each))) for name, each in client.references(fields)]
        return validator_for(schema, default=Draft7Validator)(schema, registry=Registry().with_resources(referred))

    def write(text: str, _message: str) -> bytes:
        value = _object(text)
        try:
            problem = best_match(validator().iter_errors(value))
        except Unresolvable as missing:
            raise FormatError(f"the schema refers to {missing.ref!r}, which it does not have") from None
        except NotFoundError as missing:
            raise FormatError(f"the schema refers to {missing}, which the registry does not have") from None
        except (UnreachableError, ValueError) as failure:
            raise FormatError(str(failure)) from None
        if problem is not None:
            raise FormatError(f"{problem.json_path}: {problem.message}".removeprefix("$: "))
        return text.encode()

    return Codec(json.loads, write)


def protobuf(client: RegistryClient, fields: Any) -> Codec:
    """Like `avro`, for a schema that was requested with ``format=serialized``."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.json_format import MessageToDict, ParseDict, ParseError
    from google.protobuf.message_factory import GetMessageClass

    def file_of(name: str, text: str) -> FileDescriptorProto:
        file = FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
        file.name = name
        return file

    imported = {name: file_of(name, text) for name, text in client.references(fields, "?format=serialized")}
    descriptor = linked(file_of("moldau-schema.proto", fields["schema"]), imported)
    types = [*descriptor.message_types_by_name.values()]

    def read(data: bytes) -> Any:
        path, start = _message_path(data)
        message_type = types[path[0]]
        for index in path[1:]:
            message_type = message_type.nested_types[index]
        message = GetMessageClass(message_type).FromString(data[start:])
        return MessageToDict(message, preserving_proto_field_name=True)

    def write(text: str, name: str) -> bytes:
        path, message_type = _message_type(types, name)
        message = GetMessageClass(message_type)()
        try:
            ParseDict(_object(text), message)
            data = bytes(message.SerializeToString(deterministic=True))
        except (ParseError, TypeError, ValueError, AttributeError) as problem:
            raise FormatError(f"{message_type.full_name}: {problem}") from None
        return (b"\0" if path == [0] else b"".join(map(encode_varint, (len(path), *path)))) + data

    return Codec(read, write)


def _object(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as problem:
        raise FormatError(f"it is not valid JSON: {problem}") from None


def _message_path(data: bytes) -> tuple[list[int], int]:
    """Which message of the file the value has, and where the value begins. Raises ValueError, IndexError."""
    count, position = read_varint(data, 0)
    if count == 0:
        return [0], position
    if not 0 < count <= 100:
        raise ValueError(f"the path of the message type has {count} steps")
    path = []
    for _ in range(count):
        index, position = read_varint(data, position)
        if index < 0:
            raise ValueError(f"the path of the message type has the negative step {index}")
        path.append(index)
    return path, position


def _message_type(types: Sequence[Descriptor], name: str) -> tuple[list[int], Descriptor]:
    """The path and the type of a message, by its full name or the end of it. Raises FormatError."""
    known: list[tuple[list[int], Descriptor]] = []

    def visit(found: Sequence[Descriptor], path: list[int]) -> None:
        for index, each in enumerate(found):
            if not each.GetOptions().map_entry:
                known.append(([*path, index], each))
            visit(each.nested_types, [*path, index])

    visit(types, [])
    if not known:
        raise FormatError("the schema has no message type")
    for path, each in known:
        if not name or each.full_name == name or each.full_name.endswith(f".{name}"):
            return path, each
    names = ", ".join(each.full_name for _, each in known[:_MAX_SHOWN_TYPES])
    raise FormatError(f"the schema has no message type {name!r}; it has {names}")

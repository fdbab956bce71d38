"""Values that a serializer of a schema registry has written: their schemas, and what they contain.

Such a value begins with a zero byte and the id of its schema (4 bytes, big-endian). Avro follows in binary, JSON as
text, and Protobuf after the path of its message type: zigzag varints, first their number; a single 0 stands for the
first type. The registry is any one with Confluent's REST API, for example ``moldau registry``.

A schema of an id never changes, so it is requested once. A failure is remembered for a moment only, so that a page
of records does not wait for an unreachable registry again and again, and a schema that is registered later is found.
"""

from __future__ import annotations

import base64
import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from io import BytesIO
from typing import Any, Final, NamedTuple
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from ..protocol.records import read_varint
from .decoders import FormatError, plain
from .protobuf_files import linked

HEADER_BYTES: Final = 5
_TIMEOUT_S: Final = 3.0
_FAILURE_S: Final = 5.0
_MAX_SCHEMAS: Final = 5000
_MAX_REFERENCES: Final = 200
_KINDS: Final = {"AVRO": "Avro", "JSON": "JSON Schema", "PROTOBUF": "Protobuf"}


class Decoded(NamedTuple):
    """A value as an object of JSON, and the schema with which it was written."""

    value: Any
    kind: str
    """``Avro``, ``JSON Schema`` or ``Protobuf``."""
    schema_id: int
    versions: tuple[tuple[str, int], ...]
    """The subjects that have the schema, each with its version."""

    @property
    def label(self) -> str:
        where = ", ".join(f"{subject} version {version}" for subject, version in self.versions[:3])
        return f"{self.kind}, schema {self.schema_id}" + (f": {where}" if where else "")


class _Schema(NamedTuple):
    kind: str
    versions: tuple[tuple[str, int], ...]
    read: Callable[[bytes], Any]
    """Raises any error for bytes that do not have the schema."""


class SchemaRegistry:
    """Decodes values with the schemas of one registry. Threads share it."""

    def __init__(self, url: str) -> None:
        """``url`` may contain a user and a password, for a registry with basic authentication."""
        parts = urlsplit(url)
        self.url = urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path.rstrip("/"), "", ""))
        self._headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
        if parts.username is not None:
            login = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            self._headers["Authorization"] = "Basic " + base64.b64encode(login.encode()).decode()
        self._lock = threading.Lock()
        self._schemas: dict[int, _Schema] = {}
        self._failures: dict[int | None, tuple[float, str]] = {}

    def decode(self, data: bytes) -> Decoded | None:
        """The content of framed bytes; None if they are not framed. Raises FormatError, which says what is wrong."""
        if len(data) < HEADER_BYTES or data[0]:
            return None
        schema_id = int.from_bytes(data[1:HEADER_BYTES], "big")
        schema = self._schema(schema_id)
        try:
            value = plain(schema.read(data[HEADER_BYTES:]))
        except FormatError:
            raise
        except Exception as problem:  # noqa: BLE001 - the decoders raise many types for bytes of any content
            name = "" if type(problem) is ValueError else type(problem).__name__
            reason = ": ".join(filter(None, (name, str(problem))))
            raise FormatError(f"the bytes do not have {schema.kind} schema {schema_id}: {reason}") from None
        return Decoded(value, schema.kind, schema_id, schema.versions)

    def _schema(self, schema_id: int) -> _Schema:
        with self._lock:
            found = self._schemas.get(schema_id)
            if found is not None:
                return found
            for key in (schema_id, None):
                until, reason = self._failures.get(key, (0.0, ""))
                if time.monotonic() < until:
                    raise FormatError(reason)
            # Other threads wait for this request: they mostly need the same schema.
            try:
                schema = self._load(schema_id)
            except _UnreachableError as problem:
                raise self._failed(None, str(problem)) from None
            except FormatError as problem:
                raise self._failed(schema_id, str(problem)) from None
            if len(self._schemas) >= _MAX_SCHEMAS:
                self._schemas.clear()
            self._schemas[schema_id] = schema
            return schema

    def _failed(self, key: int | None, reason: str) -> FormatError:
        if len(self._failures) >= _MAX_SCHEMAS:
            self._failures.clear()
        self._failures[key] = (time.monotonic() + _FAILURE_S, reason)
        return FormatError(reason)

    def _load(self, schema_id: int) -> _Schema:
        try:
            fields = self._get(f"/schemas/ids/{schema_id}")
            kind = fields.get("schemaType") or "AVRO"
            if kind == "PROTOBUF":
                fields = self._get(f"/schemas/ids/{schema_id}?format=serialized")
            listed = self._get(f"/schemas/ids/{schema_id}/versions")
            versions = tuple((str(each["subject"]), int(each["version"])) for each in listed)
        except _NotFoundError:
            raise FormatError(f"the registry {self.url} has no schema {schema_id}") from None
        if kind not in _KINDS:
            raise FormatError(f"schema {schema_id} has the type {kind}, which the console does not know")
        try:
            read = {"AVRO": self._avro, "JSON": self._json, "PROTOBUF": self._protobuf}[kind](fields)
        except (FormatError, _UnreachableError):
            raise
        except _NotFoundError as missing:
            raise FormatError(f"schema {schema_id} refers to {missing}, which the registry does not have") from None
        except Exception as problem:  # noqa: BLE001 - the parsers raise many types for a schema of any content
            raise FormatError(f"schema {schema_id} cannot be used: {problem}") from None
        return _Schema(_KINDS[kind], versions, read)

    def _avro(self, fields: Any) -> Callable[[bytes], Any]:
        from fastavro import parse_schema, schemaless_reader

        named: dict[str, Any] = {}
        for _, each in self._references(fields, ""):
            parse_schema(json.loads(each), named_schemas=named)
        schema = parse_schema(json.loads(fields["schema"]), named_schemas=named)

        def read(data: bytes) -> Any:
            stream = BytesIO(data)
            value = schemaless_reader(stream, schema, None)
            if stream.tell() != len(data):
                raise ValueError(f"{len(data) - stream.tell()} bytes follow the value")
            return value

        return read

    def _json(self, _fields: Any) -> Callable[[bytes], Any]:
        return json.loads

    def _protobuf(self, fields: Any) -> Callable[[bytes], Any]:
        from google.protobuf.descriptor_pb2 import FileDescriptorProto
        from google.protobuf.json_format import MessageToDict
        from google.protobuf.message_factory import GetMessageClass

        def file_of(name: str, text: str) -> FileDescriptorProto:
            file = FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
            file.name = name
            return file

        imported = {name: file_of(name, text) for name, text in self._references(fields, "?format=serialized")}
        descriptor = linked(file_of("moldau-schema.proto", fields["schema"]), imported)

        def read(data: bytes) -> Any:
            path, start = _message_path(data)
            types = [*descriptor.message_types_by_name.values()]
            message_type = types[path[0]]
            for index in path[1:]:
                message_type = message_type.nested_types[index]
            message = GetMessageClass(message_type).FromString(data[start:])
            return MessageToDict(message, preserving_proto_field_name=True)

        return read

    def _references(self, fields: Any, query: str) -> list[tuple[str, str]]:
        """Names and schemas of all references, each after those that it refers to itself."""
        found: dict[str, str] = {}

        def visit(each: Any, depth: int) -> None:
            for reference in each.get("references") or ():
                name = reference["name"]
                if name in found:
                    continue
                if depth > 20 or len(found) >= _MAX_REFERENCES:
                    raise FormatError("the schema has too many references")
                subject = quote(reference["subject"], safe="")
                try:
                    referred = self._get(f"/subjects/{subject}/versions/{reference['version']}{query}")
                except _NotFoundError:
                    raise _NotFoundError(f"{reference['subject']} version {reference['version']}") from None
                visit(referred, depth + 1)
                found[name] = referred["schema"]

        visit(fields, 0)
        return list(found.items())

    def _get(self, path: str) -> Any:
        request = urllib.request.Request(self.url + path, headers=self._headers)
        try:
            with _OPENER.open(request, timeout=_TIMEOUT_S) as response:
                return json.load(response)
        except urllib.error.HTTPError as error:
            with error:
                if error.code == 404:
                    raise _NotFoundError(path) from None
                reason = error.read(2000).decode("utf-8", "replace").strip()
            raise _UnreachableError(f"the registry {self.url} responds {error.code}: {reason}") from None
        except (OSError, ValueError) as error:
            reason = str(getattr(error, "reason", error))
            raise _UnreachableError(f"the registry {self.url} cannot be reached: {reason}") from None


class _NotFoundError(Exception):
    """The registry does not have what was requested."""


class _UnreachableError(Exception):
    """The registry does not respond, or refuses to."""


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


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect would send the password to another host."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


_OPENER: Final = urllib.request.build_opener(_NoRedirects)

"""Values of the serializers of a schema registry: their schemas, what they contain, and how they are written.

Such a value begins with a zero byte and the id of its schema (4 bytes, big-endian). Avro follows in binary, JSON as
text, and Protobuf after the path of its message type (`schema_codecs`).

A schema of an id never changes, so it is requested once. A failure is remembered for a moment only, so that a page
of records does not wait for an unreachable registry again and again, and a schema that is registered later is found.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from .decoders import FormatError, as_text, plain
from .registry_client import NotFoundError, RegistryClient, UnreachableError
from .schema_codecs import Codec, avro, json_schema, protobuf

HEADER_BYTES: Final = 5
_FAILURE_S: Final = 5.0
_MAX_SCHEMAS: Final = 5000
KINDS: Final = {"AVRO": "Avro", "JSON": "JSON Schema", "PROTOBUF": "Protobuf"}
_CODECS: Final[dict[str, Callable[[RegistryClient, Any], Codec]]] = {
    "AVRO": avro,
    "JSON": json_schema,
    "PROTOBUF": protobuf,
}


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
    codec: Codec


class SchemaRegistry:
    """Reads and writes values with the schemas of one registry. Threads share it."""

    def __init__(self, url: str) -> None:
        """``url`` may contain a user and a password, for a registry with basic authentication."""
        self.client = RegistryClient(url)
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
            value = plain(schema.codec.read(data[HEADER_BYTES:]))
        except FormatError:
            raise
        except Exception as problem:  # noqa: BLE001 - the decoders raise many types for bytes of any content
            name = "" if type(problem) is ValueError else type(problem).__name__
            reason = ": ".join(filter(None, (name, str(problem))))
            raise FormatError(f"the bytes do not have {schema.kind} schema {schema_id}: {reason}") from None
        return Decoded(value, schema.kind, schema_id, schema.versions)

    def subjects(self) -> list[str]:
        """All subjects. Raises FormatError if the registry does not respond."""
        with self._lock:
            until, reason = self._failures.get(None, (0.0, ""))
        if time.monotonic() < until:
            raise FormatError(reason)
        try:
            return sorted(map(str, self.client.get("/subjects")))
        except NotFoundError:
            raise FormatError(f"{self.client.url} is not a schema registry: it has no /subjects") from None
        except UnreachableError as problem:
            with self._lock:
                raise self._failed(None, str(problem)) from None

    def editable(self, data: bytes) -> tuple[str, str, int] | None:
        """JSON, a subject and its version from which `encode` produces exactly these bytes; None if there are none."""
        try:
            decoded = self.decode(data)
            if decoded is None or not decoded.versions:
                return None
            subject, version = decoded.versions[0]
            is_text = decoded.kind == KINDS["JSON"]
            text = data[HEADER_BYTES:].decode() if is_text else as_text(decoded.value)
            is_same = "\r" not in text and self.encode(text, subject, str(version)) == data
        except (FormatError, UnicodeDecodeError):
            return None
        return (text, subject, version) if is_same else None

    def encode(self, text: str, subject: str, version: str = "latest", message: str = "") -> bytes:
        """JSON as a serializer would write it with a version of a subject: a number, or ``latest``.

        ``message`` is the message type of Protobuf, by default the first one. Raises FormatError.
        """
        try:
            schema_id = int(self.client.version(subject, version)["id"])
        except NotFoundError:
            where = f"the registry {self.client.url} has no"
            raise FormatError(
                f"{where} subject {subject!r}" if version == "latest" else f"{where} version {version} of {subject!r}"
            ) from None
        except UnreachableError as problem:
            raise FormatError(str(problem)) from None
        schema = self._schema(schema_id)
        try:
            data = schema.codec.write(text, message)
        except FormatError as problem:
            raise FormatError(f"it does not have {schema.kind} schema {schema_id}: {problem}") from None
        return b"\0" + schema_id.to_bytes(HEADER_BYTES - 1, "big") + data

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
            except UnreachableError as problem:
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
            fields = self.client.get(f"/schemas/ids/{schema_id}")
            kind = fields.get("schemaType") or "AVRO"
            if kind == "PROTOBUF":
                fields = self.client.get(f"/schemas/ids/{schema_id}?format=serialized")
            listed = self.client.get(f"/schemas/ids/{schema_id}/versions")
            versions = tuple((str(each["subject"]), int(each["version"])) for each in listed)
        except NotFoundError:
            raise FormatError(f"the registry {self.client.url} has no schema {schema_id}") from None
        if kind not in KINDS:
            raise FormatError(f"schema {schema_id} has the type {kind}, which the console does not know")
        try:
            codec = _CODECS[kind](self.client, fields)
        except (FormatError, UnreachableError):
            raise
        except NotFoundError as missing:
            raise FormatError(f"schema {schema_id} refers to {missing}, which the registry does not have") from None
        except Exception as problem:  # noqa: BLE001 - the parsers raise many types for a schema of any content
            raise FormatError(f"schema {schema_id} cannot be used: {problem}") from None
        return _Schema(KINDS[kind], versions, codec)

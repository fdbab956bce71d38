"""The records of the topic ``_schemas``, in the format of Confluent's registry.

Keys and values are JSON. Compaction compares keys byte by byte, so their members have a fixed order.

    SCHEMA          {"keytype":"SCHEMA","subject":"s","version":1,"magic":1}
                    {"subject":"s","version":1,"id":1,"schemaType":"JSON","references":[...],"schema":"...",
                     "deleted":false}; schemaType only if it is not AVRO, references only if there are any;
                    deleted: a soft delete; no value: a permanent delete
    CONFIG          {"keytype":"CONFIG","subject":null,"magic":0}    {"compatibilityLevel":"BACKWARD"}
    MODE            {"keytype":"MODE","subject":null,"magic":0}      {"mode":"READWRITE"}
    DELETE_SUBJECT  {"keytype":"DELETE_SUBJECT","subject":"s","magic":0}   {"subject":"s","version":3}
                    a soft delete of all versions up to this one
    NOOP            {"keytype":"NOOP","magic":0}, ignored

The subject null is the global setting. Records of other kinds are ignored.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

Entry = tuple[bytes, bytes | None]
"""The key and the value of a record."""

AVRO: Final = "AVRO"


@dataclass(frozen=True, slots=True)
class Reference:
    """A schema that another one imports under ``name``."""

    name: str
    subject: str
    version: int

    def as_json(self) -> dict[str, Any]:
        return {"name": self.name, "subject": self.subject, "version": self.version}


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema as it was registered. Without a subject: the same one has the same id in all subjects."""

    kind: str
    """AVRO, JSON or PROTOBUF."""
    text: str
    references: tuple[Reference, ...] = ()


@dataclass(frozen=True, slots=True)
class Version:
    """A schema as a version of a subject."""

    subject: str
    version: int
    id: int
    schema: Schema
    deleted: bool = False


def schema_key(subject: str, version: int) -> bytes:
    return _json({"keytype": "SCHEMA", "subject": subject, "version": version, "magic": 1})


def schema_entry(version: Version) -> Entry:
    """The record of a version; soft-deleted if the version is."""
    schema = version.schema
    value: dict[str, Any] = {"subject": version.subject, "version": version.version, "id": version.id}
    if schema.kind != AVRO:
        value["schemaType"] = schema.kind
    if schema.references:
        value["references"] = [each.as_json() for each in schema.references]
    value |= {"schema": schema.text, "deleted": version.deleted}
    return schema_key(version.subject, version.version), _json(value)


def setting_entry(kind: str, subject: str | None, value: str | None) -> Entry:
    """The record of a ``CONFIG`` or ``MODE``; ``value`` None removes it."""
    member = "compatibilityLevel" if kind == "CONFIG" else "mode"
    key = _json({"keytype": kind, "subject": subject, "magic": 0})
    return key, None if value is None else _json({member: value})


def delete_subject_entry(subject: str, version: int) -> Entry:
    return (
        _json({"keytype": "DELETE_SUBJECT", "subject": subject, "magic": 0}),
        _json({"subject": subject, "version": version}),
    )


def parse_references(value: Any) -> tuple[Reference, ...]:
    """References from JSON. Raises ValueError."""
    if value is None:
        return ()
    if not isinstance(value, list):
        raise ValueError("references is not a list")
    references = []
    for each in value:
        if not isinstance(each, dict):
            raise ValueError("a reference is not an object")
        name, subject, version = each.get("name"), each.get("subject"), each.get("version")
        if not (isinstance(name, str) and isinstance(subject, str) and type(version) is int):
            raise ValueError("a reference needs a name, a subject and a version")
        references.append(Reference(name, subject, version))
    return tuple(references)


def parse_version(value: dict[str, Any]) -> Version:
    """A version from the value of a SCHEMA record. Raises ValueError, KeyError."""
    subject, version, schema_id, text = value["subject"], value["version"], value["id"], value["schema"]
    if not (isinstance(subject, str) and isinstance(text, str) and type(version) is int and type(schema_id) is int):
        raise ValueError("a member has the wrong type")
    schema = Schema(str(value.get("schemaType") or AVRO), text, parse_references(value.get("references")))
    return Version(subject, version, schema_id, schema, value.get("deleted") is True)


def _json(value: dict[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()

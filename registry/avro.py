"""Avro schemas: parsing with fastavro, and the resolution rules of Avro's specification ("Schema Resolution").

fastavro gives all names with their namespaces. Named types of references are known when a schema is parsed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from .parsed import Parsed, SchemaError

_PROMOTIONS: Final[Mapping[str, frozenset[str]]] = {
    "long": frozenset({"int"}),
    "float": frozenset({"int", "long"}),
    "double": frozenset({"int", "long", "float"}),
    "string": frozenset({"bytes"}),
    "bytes": frozenset({"string"}),
}
"""Reader's type to writer's types that it can also read."""
_PRIMITIVES: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
_NAMED: Final = frozenset({"record", "error", "enum", "fixed"})
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*")


class AvroSchema(Parsed):
    """A parsed Avro schema."""

    def __init__(self, text: str, references: Sequence[str] = ()) -> None:
        """``references`` are the texts of the schemas that it uses, each after those that it uses itself.

        Raises SchemaError.
        """
        self.names: dict[str, Any] = {}
        for reference in references:
            if not _names_of(reference) & self.names.keys():
                _parse(_load(reference), self.names)
        raw = _simplified(_load(text))
        self.root = _parse(raw, self.names)
        self.text = json.dumps(raw, separators=(",", ":"), ensure_ascii=False)
        self.identity = json.dumps(raw, sort_keys=True)
        self.normalized = self.text

    def problems_reading(self, written: Parsed) -> list[str]:
        assert isinstance(written, AvroSchema)
        resolution = _Resolution(self.names, written.names)
        resolution.compare(self.root, written.root, "")
        return resolution.problems


def _load(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as problem:
        # A primitive type may be written as its bare name.
        if text.strip() in _PRIMITIVES:
            return text.strip()
        raise SchemaError(f"it is not JSON: {problem}") from None


def _parse(raw: Any, names: dict[str, Any]) -> Any:
    from fastavro.schema import SchemaParseException, UnknownType, parse_schema

    if not isinstance(raw, (str, dict, list)):
        raise SchemaError("an Avro schema is a name, an object or a list")
    try:
        parsed = parse_schema(raw, names, _write_hint=False)
    except UnknownType as unknown:
        raise SchemaError(f"unknown type {unknown.name!r}") from None
    except KeyError as missing:
        raise SchemaError(f"{missing} is missing") from None
    except (SchemaParseException, TypeError, AttributeError, ValueError) as problem:
        raise SchemaError(str(problem)) from None
    _check(parsed)
    return parsed


def _names_of(text: str) -> set[str]:
    """The full name of the schema in a text, if it has one."""
    raw = _load(text)
    if not isinstance(raw, dict) or not isinstance(raw.get("name"), str):
        return set()
    name, namespace = raw["name"], raw.get("namespace")
    return {name if "." in name or not namespace else f"{namespace}.{name}"}


def _check(schema: Any) -> None:
    """What fastavro accepts and the specification forbids."""
    if isinstance(schema, list):
        if any(isinstance(each, list) for each in schema):
            raise SchemaError("a union must not contain a union")
        kinds = [
            each if isinstance(each, str) else each.get("name") or each.get("type") for each in map(_plain, schema)
        ]
        if len(set(map(str, kinds))) < len(kinds):
            raise SchemaError(f"a union contains a type twice: {kinds}")
        for each in schema:
            _check(each)
    if not isinstance(schema, dict):
        return
    kind = schema["type"]
    if isinstance(kind, str) and kind in _NAMED and not _NAME.fullmatch(schema["name"]):
        raise SchemaError(f"{schema['name']!r} is not a valid name")
    if kind in ("record", "error"):
        fields = [each["name"] for each in schema["fields"]]
        if len(set(fields)) < len(fields):
            raise SchemaError(f"the record {schema['name']} has two fields of one name")
        for field in schema["fields"]:
            if not isinstance(field["name"], str) or not _NAME.fullmatch(field["name"]) or "." in field["name"]:
                raise SchemaError(f"{field['name']!r} is not a valid name of a field")
            _check(field["type"])
    elif kind == "fixed" and not (type(schema["size"]) is int and schema["size"] >= 0):
        raise SchemaError(f"the size of {schema['name']} is not a number of bytes")
    elif kind == "array":
        _check(schema["items"])
    elif kind == "map":
        _check(schema["values"])
    elif isinstance(kind, (dict, list)):
        _check(kind)


def _simplified(raw: Any) -> Any:
    """``{"type": "string"}`` as ``"string"``, as Avro's own library writes it."""
    if isinstance(raw, list):
        return [_simplified(each) for each in raw]
    if not isinstance(raw, dict):
        return raw
    if len(raw) == 1 and isinstance(raw.get("type"), str) and raw["type"] in _PRIMITIVES:
        return raw["type"]
    simple = dict(raw)
    for member in ("type", "items", "values"):
        if isinstance(simple.get(member), (dict, list)):
            simple[member] = _simplified(simple[member])
    if isinstance(simple.get("fields"), list):
        simple["fields"] = [
            {**each, "type": _simplified(each["type"])} if isinstance(each, dict) and "type" in each else each
            for each in simple["fields"]
        ]
    return simple


def _plain(schema: Any) -> Any:
    """A schema without the object around a primitive type, such as a logical type."""
    while isinstance(schema, dict) and (isinstance(schema["type"], (dict, list)) or schema["type"] in _PRIMITIVES):
        schema = schema["type"]
    return schema


class _Resolution:
    """One comparison of a reader's with a writer's schema."""

    def __init__(self, reader_names: Mapping[str, Any], writer_names: Mapping[str, Any]) -> None:
        self._reader_names = reader_names
        self._writer_names = writer_names
        self._seen: set[tuple[str, str]] = set()
        self.problems: list[str] = []

    def compare(self, reader: Any, writer: Any, path: str) -> None:
        """Add what a reader cannot read, with its path in the reader's schema."""
        reader = self._resolved(reader, self._reader_names)
        writer = self._resolved(writer, self._writer_names)
        if isinstance(writer, list):
            for each in writer:
                self.compare(reader, each, path)
        elif isinstance(reader, list):
            if not any(self._can_read(each, writer) for each in reader):
                self._add("MISSING_UNION_BRANCH", path, f"no branch of the reader's union can read {_kind(writer)}")
        else:
            self._compare_types(reader, writer, path)

    def _compare_types(self, reader: Any, writer: Any, path: str) -> None:
        kind, written = _kind(reader), _kind(writer)
        if kind != written:
            if written not in _PROMOTIONS.get(kind, ()):
                self._add("TYPE_MISMATCH", path, f"the reader's type {kind} cannot read {written}")
            return
        if kind == "array":
            self.compare(reader["items"], writer["items"], f"{path}/items")
        elif kind == "map":
            self.compare(reader["values"], writer["values"], f"{path}/values")
        elif kind in _NAMED:
            pair = (reader["name"], writer["name"])
            if pair in self._seen:
                return
            self._seen.add(pair)
            if not _same_name(reader, writer):
                self._add("NAME_MISMATCH", f"{path}/name", f"{reader['name']} is not {writer['name']} or its alias")
            if kind == "enum":
                self._compare_enums(reader, writer, path)
            elif kind == "fixed":
                if reader["size"] != writer["size"]:
                    self._add("FIXED_SIZE_MISMATCH", f"{path}/size", f"{reader['size']} is not {writer['size']}")
            else:
                self._compare_records(reader, writer, path)

    def _compare_enums(self, reader: Any, writer: Any, path: str) -> None:
        missing = [each for each in writer["symbols"] if each not in reader["symbols"]]
        if missing and reader.get("default") not in reader["symbols"]:
            self._add("MISSING_ENUM_SYMBOLS", f"{path}/symbols", f"the reader has no {', '.join(missing)}")

    def _compare_records(self, reader: Any, writer: Any, path: str) -> None:
        written = {each["name"]: each for each in writer["fields"]}
        for index, field in enumerate(reader["fields"]):
            where = f"{path}/fields/{index}"
            match = next(
                (written[each] for each in (field["name"], *field.get("aliases", ())) if each in written), None
            )
            if match is not None:
                self.compare(field["type"], match["type"], f"{where}/type")
            elif "default" not in field:
                reason = f"the field '{field['name']}' has no default value and is missing in the writer's schema"
                self._add("READER_FIELD_MISSING_DEFAULT_VALUE", where, reason)

    def _can_read(self, reader: Any, writer: Any) -> bool:
        """Whether a branch of a union reads this type; types in progress are taken as readable."""
        attempt = _Resolution(self._reader_names, self._writer_names)
        attempt._seen = set(self._seen)
        attempt.compare(reader, writer, "")
        return not attempt.problems

    def _resolved(self, schema: Any, names: Mapping[str, Any]) -> Any:
        schema = _plain(schema)
        return names.get(schema, schema) if isinstance(schema, str) else schema

    def _add(self, kind: str, path: str, reason: str) -> None:
        self.problems.append(f"{kind} at {path or '/'}: {reason}")


def _kind(schema: Any) -> str:
    kind = schema if isinstance(schema, str) else schema["type"]
    return "record" if kind == "error" else str(kind)


def _same_name(reader: Any, writer: Any) -> bool:
    """Names match without their namespaces, or by an alias of the reader."""
    if reader["name"].rpartition(".")[2] == writer["name"].rpartition(".")[2]:
        return True
    namespace = reader["name"].rpartition(".")[0]
    aliases = [each if "." in each or not namespace else f"{namespace}.{each}" for each in reader.get("aliases", ())]
    return writer["name"] in aliases

"""What the registry does for each request, on the state that the topic gives.

Reads come from memory, so they are served while no broker is reachable. If a read finds nothing, the registry first
catches up with the topic, because another registry may have written. Writes are decided on the newest state
(`SchemasTopic.write`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

from .errors import (
    RegistryError,
    invalid_schema,
    invalid_version,
    not_permitted,
    schema_not_found,
    subject_not_found,
    version_not_found,
)
from .parsed import Parsed, SchemaError
from .protobuf import ProtobufSchema
from .records import Entry, Reference, Schema, Version, delete_subject_entry, schema_entry, schema_key, setting_entry
from .schemas import KINDS, LEVELS, incompatibilities, parse
from .state import State
from .topic import SchemasTopic

T = TypeVar("T")

MODES: Final = ("READWRITE", "READONLY", "READONLY_OVERRIDE", "IMPORT")
_DEFAULT_LEVEL: Final = "BACKWARD"
_DEFAULT_MODE: Final = "READWRITE"
_MAX_VERSION: Final = 2**31 - 1
_MAX_PARSED: Final = 5000
_NOT_FOUND: Final = range(40400, 40500)


class Registry:
    """The registry of one topic."""

    def __init__(self, state: State, topic: SchemasTopic) -> None:
        self._state = state
        self._topic = topic
        self._parsed: dict[Schema, Parsed] = {}

    def read(self, query: Callable[[State], T]) -> T:
        """The result of a query; repeated after catching up if it finds nothing. Raises RegistryError."""
        try:
            with self._topic.changed:
                return query(self._state)
        except RegistryError as problem:
            if problem.code not in _NOT_FOUND:
                raise
        self._topic.catch_up()
        with self._topic.changed:
            return query(self._state)

    # Reading

    def schema(self, schema_id: int, form: str = "") -> dict[str, Any]:
        """The schema of an id. ``form`` "serialized" gives a Protobuf schema as a descriptor in base64."""

        def query(state: State) -> Schema:
            schema = state.schema(schema_id)
            if schema is None:
                raise schema_not_found(schema_id)
            return schema

        return self._shown(self.read(query), form)

    def versions_with_id(self, schema_id: int, *, with_deleted: bool) -> list[Version]:
        def query(state: State) -> list[Version]:
            if state.schema(schema_id) is None:
                raise schema_not_found(schema_id)
            return state.versions_with_id(schema_id, with_deleted=with_deleted)

        return self.read(query)

    def subjects(self, *, with_deleted: bool) -> list[str]:
        return self.read(lambda state: state.subjects(with_deleted=with_deleted))

    def all_versions(self, *, with_deleted: bool, latest_only: bool) -> list[Version]:
        def query(state: State) -> list[Version]:
            found = []
            for subject in state.subjects(with_deleted=with_deleted):
                versions = state.versions(subject, with_deleted=with_deleted)
                found += versions[-1:] if latest_only else versions
            return found

        return self.read(query)

    def versions(self, subject: str, *, with_deleted: bool) -> list[int]:
        def query(state: State) -> list[int]:
            return [each.version for each in _versions(state, subject, with_deleted=with_deleted)]

        return self.read(query)

    def version(self, subject: str, version: str, *, with_deleted: bool, form: str = "") -> dict[str, Any]:
        found = self.read(lambda state: _version(state, subject, version, with_deleted=with_deleted))
        return self.shown_version(found, form)

    def referenced_by(self, subject: str, version: str) -> list[int]:
        """The ids of schemas that refer to this version."""

        def query(state: State) -> list[int]:
            return _referenced_by(state, _version(state, subject, version, with_deleted=True))

        return self.read(query)

    def shown_version(self, version: Version, form: str = "") -> dict[str, Any]:
        """A version as the REST API shows it."""
        named = {"subject": version.subject, "version": version.version, "id": version.id}
        return named | self._shown(version.schema, form)

    def _shown(self, schema: Schema, form: str) -> dict[str, Any]:
        text = schema.text
        if form == "serialized" and schema.kind == "PROTOBUF":
            with self._topic.changed:
                parsed = self._parse(self._state, schema)
            assert isinstance(parsed, ProtobufSchema)
            text = parsed.serialized
        shown: dict[str, Any] = {} if schema.kind == "AVRO" else {"schemaType": schema.kind}
        if schema.references:
            shown["references"] = [each.as_json() for each in schema.references]
        return shown | {"schema": text}

    # Registering

    def look_up(self, subject: str, schema: Schema, *, normalize: bool, with_deleted: bool) -> dict[str, Any]:
        """The version of a subject that has this schema."""

        def query(state: State) -> Version:
            parsed = self._checked(state, schema)
            for version in reversed(_versions(state, subject, with_deleted=with_deleted)):
                if self._is_same(state, version.schema, schema, parsed):
                    return version
            raise schema_not_found()

        return self.shown_version(self.read(query))

    def register(
        self,
        subject: str,
        schema: Schema,
        *,
        normalize: bool = False,
        schema_id: int | None = None,
        version: int | None = None,
    ) -> dict[str, Any]:
        """Add a schema to a subject, unless it is there. ``schema_id`` and ``version`` are for the mode IMPORT."""
        _check_subject(subject)

        def decide() -> tuple[Sequence[Entry], Version]:
            state = self._state
            parsed = self._checked(state, schema)
            same = [
                each for each in reversed(state.versions(subject)) if self._is_same(state, each.schema, schema, parsed)
            ]
            if same and schema_id is None:
                return [], same[0]
            mode = self._mode(state, subject)
            _check_writable(mode, subject)
            if mode == "IMPORT":
                new = self._imported(state, subject, schema, parsed, schema_id, version)
            elif schema_id is not None:
                raise not_permitted(f"Subject {subject} is not in import mode")
            else:
                problems = self._incompatibilities(state, subject, parsed, state.versions(subject))
                if problems:
                    raise RegistryError(
                        409,
                        f'Schema being registered is incompatible with an earlier schema for subject "{subject}", '
                        f"details: [{'; '.join(problems)}]",
                    )
                stored = replace(schema, text=parsed.normalized if normalize else parsed.text)
                new_id = self._id_of(state, schema, parsed) or state.next_id
                new = Version(subject, _next_version(state, subject), new_id, stored)
            return [schema_entry(new)], new

        return self.shown_version(self._topic.write(decide))

    def _imported(
        self,
        state: State,
        subject: str,
        schema: Schema,
        parsed: Parsed,
        schema_id: int | None,
        version: int | None,
    ) -> Version:
        """A version with the id that another registry has given it."""
        if schema_id is None:
            raise not_permitted(f"Subject {subject} is in import mode, so a schema needs its id")
        known = state.schema(schema_id)
        if known is not None and not self._is_same(state, known, schema, parsed):
            raise not_permitted(f"Overwrite new schema with id {schema_id} is not permitted.")
        number = _next_version(state, subject) if version is None else version
        existing = state.version(subject, number)
        if existing is not None and existing.id != schema_id:
            raise not_permitted(f"Subject {subject} already has a version {number} with another schema")
        return Version(subject, number, schema_id, replace(schema, text=parsed.text))

    def test_compatibility(self, subject: str, schema: Schema, version: str | None, *, normalize: bool) -> list[str]:
        """Why a schema is not compatible with a version, or with those that the level demands; empty if it is."""

        def query(state: State) -> list[str]:
            parsed = self._checked(state, schema)
            earlier = state.versions(subject)
            if version is not None:
                earlier = [_version(state, subject, version, with_deleted=False)]
            return self._incompatibilities(state, subject, parsed, earlier)

        return self.read(query)

    # Deleting

    def delete_subject(self, subject: str, *, permanent: bool) -> list[int]:
        """Delete all versions, at first softly; returns their numbers."""

        def decide() -> tuple[Sequence[Entry], list[int]]:
            state = self._state
            versions = _versions(state, subject, with_deleted=True)
            live = [each for each in versions if not each.deleted]
            _check_writable(self._mode(state, subject), subject)
            if permanent:
                if live:
                    raise RegistryError(
                        40405, f"Subject '{subject}' was not deleted first before being permanently deleted"
                    )
                return [(schema_key(subject, each.version), None) for each in versions], [
                    each.version for each in versions
                ]
            if not live:
                raise RegistryError(
                    40404, f"Subject '{subject}' was soft deleted. Set permanent=true to delete permanently"
                )
            for each in live:
                _check_not_referenced(state, each)
            entries = [delete_subject_entry(subject, live[-1].version)]
            entries += [setting_entry("CONFIG", subject, None)] if subject in state.compatibility else []
            entries += [setting_entry("MODE", subject, None)] if subject in state.modes else []
            return entries, [each.version for each in live]

        return self._topic.write(decide)

    def delete_version(self, subject: str, version: str, *, permanent: bool) -> int:
        """Delete one version, at first softly; returns its number."""

        def decide() -> tuple[Sequence[Entry], int]:
            state = self._state
            found = _version(state, subject, version, with_deleted=version != "latest" or permanent)
            _check_writable(self._mode(state, subject), subject)
            name = f"Subject '{subject}' Version {found.version}"
            if permanent and not found.deleted:
                raise RegistryError(40407, f"{name} was not deleted first before being permanently deleted")
            if permanent:
                return [(schema_key(subject, found.version), None)], found.version
            if found.deleted:
                raise RegistryError(40406, f"{name} was soft deleted. Set permanent=true to delete permanently")
            _check_not_referenced(state, found)
            return [schema_entry(replace(found, deleted=True))], found.version

        return self._topic.write(decide)

    # Settings

    def compatibility(self, subject: str | None, *, default_to_global: bool = False) -> str:
        def query(state: State) -> str:
            if subject is None or subject in state.compatibility or default_to_global:
                return self._level(state, subject)
            raise RegistryError(40408, f"Subject '{subject}' does not have subject-level compatibility configured")

        return self.read(query)

    def set_compatibility(self, subject: str | None, level: str) -> None:
        if level not in LEVELS:
            raise RegistryError(42203, f"Invalid compatibility level. Valid values are {', '.join(LEVELS)}")
        self._set("CONFIG", subject, level)

    def delete_compatibility(self, subject: str | None) -> str:
        """Remove a level; returns it."""
        return self._remove("CONFIG", subject, self.compatibility(subject))

    def mode(self, subject: str | None, *, default_to_global: bool = False) -> str:
        def query(state: State) -> str:
            if subject is None or subject in state.modes or default_to_global:
                return self._mode(state, subject)
            raise RegistryError(40409, f"Subject '{subject}' does not have subject-level mode configured")

        return self.read(query)

    def set_mode(self, subject: str | None, mode: str, *, force: bool) -> None:
        """Set a mode. IMPORT needs a subject (or registry) without versions, or ``force``."""
        if mode not in MODES:
            raise RegistryError(42204, f"Invalid mode. Valid values are {', '.join(MODES)}")
        if subject is not None:
            _check_subject(subject)

        def decide() -> tuple[Sequence[Entry], None]:
            state = self._state
            used = state.subjects() if subject is None else state.versions(subject)
            if mode == "IMPORT" and used and not force:
                raise not_permitted("Cannot import since found existing subjects; force=true does so nevertheless")
            return [setting_entry("MODE", subject, mode)], None

        self._topic.write(decide)

    def delete_mode(self, subject: str | None) -> str:
        """Remove a mode; returns it."""
        return self._remove("MODE", subject, self.mode(subject))

    def _set(self, kind: str, subject: str | None, value: str) -> None:
        if subject is not None:
            _check_subject(subject)

        def decide() -> tuple[Sequence[Entry], None]:
            _check_writable(self._mode(self._state, subject), subject)
            return [setting_entry(kind, subject, value)], None

        self._topic.write(decide)

    def _remove(self, kind: str, subject: str | None, value: str) -> str:
        self._topic.write(lambda: ([setting_entry(kind, subject, None)], None))
        return value

    def _level(self, state: State, subject: str | None) -> str:
        return state.compatibility.get(subject) or state.compatibility.get(None) or _DEFAULT_LEVEL

    def _mode(self, state: State, subject: str | None) -> str:
        everywhere = state.modes.get(None) or _DEFAULT_MODE
        return everywhere if everywhere == "READONLY_OVERRIDE" else state.modes.get(subject) or everywhere

    # Schemas

    def _checked(self, state: State, schema: Schema) -> Parsed:
        """A schema that a client has sent. Raises RegistryError if it is not valid."""
        if schema.kind not in KINDS:
            raise invalid_schema(f"the schema type {schema.kind!r} is unknown; it is one of {', '.join(KINDS)}")
        for each in schema.references:
            if (found := state.version(each.subject, each.version)) is None or found.deleted:
                reason = f'No schema reference found for subject "{each.subject}" and version {each.version}'
                raise invalid_schema(reason)
        try:
            return self._parse(state, schema)
        except SchemaError as problem:
            raise invalid_schema(str(problem)) from None

    def _parse(self, state: State, schema: Schema) -> Parsed:
        """Raises SchemaError."""
        if schema not in self._parsed:
            parsed = parse(schema, self._imported_by(state, schema))
            if len(self._parsed) >= _MAX_PARSED:
                self._parsed.clear()
            self._parsed[schema] = parsed
        return self._parsed[schema]

    def _imported_by(self, state: State, schema: Schema) -> list[tuple[str, str]]:
        """The names and texts of all references, each after its own references."""
        found: dict[str, str] = {}

        def add(references: Sequence[Reference]) -> None:
            for each in references:
                version = state.version(each.subject, each.version)
                if version is None:
                    raise SchemaError(f"the version {each.version} of {each.subject!r}, to which it refers, is deleted")
                if each.name not in found:
                    add(version.schema.references)
                    found[each.name] = version.schema.text

        add(schema.references)
        return list(found.items())

    def _is_same(self, state: State, stored: Schema, schema: Schema, parsed: Parsed) -> bool:
        if stored.kind != schema.kind or stored.references != schema.references:
            return False
        if stored.text in (schema.text, parsed.text):
            return True
        if not parsed.may_equal(stored.text):
            return False
        try:
            return self._parse(state, stored).identity == parsed.identity
        except SchemaError:  # another registry has accepted it
            return False

    def _id_of(self, state: State, schema: Schema, parsed: Parsed) -> int | None:
        """The id that a schema has in any subject."""
        for schema_id in state.ids():
            known = state.schema(schema_id)
            if known is not None and self._is_same(state, known, schema, parsed):
                return schema_id
        return None

    def _incompatibilities(self, state: State, subject: str, parsed: Parsed, earlier: Sequence[Version]) -> list[str]:
        def parsed_version(version: Version) -> Callable[[], Parsed]:
            return lambda: self._parse(state, version.schema)

        level = self._level(state, subject)
        try:
            return incompatibilities(level, parsed, [(each.version, parsed_version(each)) for each in earlier[::-1]])
        except SchemaError as problem:
            return [f"an earlier version cannot be read: {problem}"]


def _check_subject(subject: str) -> None:
    if not subject or any(ord(each) < 32 for each in subject):
        raise RegistryError(42208, f"The subject {subject!r} is empty or contains control characters")
    if subject.startswith(":."):
        raise RegistryError(42208, f"The subject {subject!r} has a context; this registry has only the default context")


def _check_writable(mode: str, subject: str | None) -> None:
    if mode in ("READONLY", "READONLY_OVERRIDE"):
        raise not_permitted(
            "The registry is in read-only mode" if subject is None else f"Subject {subject} is in read-only mode"
        )


def _check_not_referenced(state: State, version: Version) -> None:
    if _referenced_by(state, version):
        key = f"{{magic=1,keytype=SCHEMA,subject={version.subject},version={version.version}}}"
        raise RegistryError(42206, f"One or more references exist to the schema {key}.")


def _referenced_by(state: State, version: Version) -> list[int]:
    return sorted(
        {
            each.id
            for each in state.all_versions()
            if not each.deleted
            and any((ref.subject, ref.version) == (version.subject, version.version) for ref in each.schema.references)
        }
    )


def _next_version(state: State, subject: str) -> int:
    versions = state.versions(subject, with_deleted=True)
    return versions[-1].version + 1 if versions else 1


def _versions(state: State, subject: str, *, with_deleted: bool) -> list[Version]:
    versions = state.versions(subject, with_deleted=with_deleted)
    if not versions:
        raise subject_not_found(subject)
    return versions


def _version(state: State, subject: str, version: str, *, with_deleted: bool) -> Version:
    """A version by its number, or ``latest`` or -1."""
    is_number = version.isascii() and version.isdecimal()
    if version not in ("latest", "-1") and not (is_number and 1 <= int(version[:11]) <= _MAX_VERSION):
        raise invalid_version(version)
    versions = _versions(state, subject, with_deleted=with_deleted)
    if not is_number:
        return versions[-1]
    for each in versions:
        if each.version == int(version):
            return each
    raise version_not_found(version)

"""What the records of ``_schemas`` say: subjects with their versions, ids, and settings.

A pure state machine: `State.apply` replays one record, in the order of the topic. Two states that have applied the same
records are equal.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from .records import Schema, Version, parse_version

logger = logging.getLogger(__name__)


class State:
    """The registry at one offset of its topic."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget everything: the state before the first record."""
        self._subjects: dict[str, dict[int, Version]] = {}
        self._by_id: dict[int, dict[tuple[str, int], Version]] = {}
        self._highest_id = 0
        self.compatibility: dict[str | None, str] = {}
        """Levels by subject; None is the global one."""
        self.modes: dict[str | None, str] = {}

    def apply(self, key: bytes | None, value: bytes | None, offset: int) -> None:
        """Replay a record. One that is not understood is logged and ignored, as other programs may write there."""
        try:
            parsed_key = json.loads(key or b"null")
            parsed_value = json.loads(value) if value else None
            self._apply(parsed_key, parsed_value)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as problem:
            logger.warning("the record at offset %d of the schemas topic is ignored: %s", offset, problem)

    def _apply(self, key: dict[str, Any], value: dict[str, Any] | None) -> None:
        match key["keytype"]:
            case "SCHEMA" if value is None:
                self._remove(key["subject"], key["version"])
            case "SCHEMA":
                assert value is not None
                version = parse_version(value)
                self._remove(version.subject, version.version)
                self._add(version)
            case "DELETE_SUBJECT" if value is not None:
                for version in self.versions(value["subject"]):
                    if version.version <= value["version"]:
                        self._add(replace(version, deleted=True))
            case "CONFIG":
                _set(self.compatibility, key["subject"], (value or {}).get("compatibilityLevel"))
            case "MODE":
                _set(self.modes, key["subject"], (value or {}).get("mode"))

    def _add(self, version: Version) -> None:
        self._subjects.setdefault(version.subject, {})[version.version] = version
        self._by_id.setdefault(version.id, {})[version.subject, version.version] = version
        self._highest_id = max(self._highest_id, version.id)

    def _remove(self, subject: str, number: int) -> None:
        removed = self._subjects.get(subject, {}).pop(number, None)
        if removed is None:
            return
        if not self._subjects[subject]:
            del self._subjects[subject]
        del self._by_id[removed.id][subject, number]
        if not self._by_id[removed.id]:
            del self._by_id[removed.id]

    @property
    def next_id(self) -> int:
        """An id that no schema has or had."""
        return self._highest_id + 1

    def subjects(self, *, with_deleted: bool = False) -> list[str]:
        """The subjects with versions, sorted."""
        return sorted(each for each in self._subjects if self.versions(each, with_deleted=with_deleted))

    def versions(self, subject: str, *, with_deleted: bool = False) -> list[Version]:
        """The versions of a subject in their order; none if the subject does not exist."""
        versions = self._subjects.get(subject, {})
        return [versions[each] for each in sorted(versions) if with_deleted or not versions[each].deleted]

    def version(self, subject: str, number: int) -> Version | None:
        """A version, also if it is soft-deleted."""
        return self._subjects.get(subject, {}).get(number)

    def all_versions(self) -> Iterator[Version]:
        """All versions, also soft-deleted ones."""
        for versions in self._subjects.values():
            yield from versions.values()

    def ids(self) -> list[int]:
        """The ids in use, the smallest first."""
        return sorted(self._by_id)

    def schema(self, schema_id: int) -> Schema | None:
        """The schema with this id. A soft-deleted one is found, because records with its id still exist."""
        return next((each.schema for each in self._by_id.get(schema_id, {}).values()), None)

    def versions_with_id(self, schema_id: int, *, with_deleted: bool = False) -> list[Version]:
        """The versions of all subjects with this id."""
        found = self._by_id.get(schema_id, {})
        return [found[each] for each in sorted(found) if with_deleted or not found[each].deleted]


def _set(settings: dict[str | None, str], subject: str | None, value: str | None) -> None:
    if value is None:
        settings.pop(subject, None)
    else:
        settings[subject] = value

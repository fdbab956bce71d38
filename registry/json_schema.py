"""JSON Schema: validity by the `jsonschema` package, and which changes of a schema are compatible.

No specification has rules for the evolution of JSON Schema. The question is the same as for Avro: is each value that
was valid with the old schema valid with the new one? The rules are those of Confluent's documentation of JSON Schema
compatibility: types may widen, bounds may loosen, required properties may become optional. Whether a property may
be added depends on the content model of the object: an open one (``additionalProperties`` is not false) may have had
any value under the new name, a closed one had none.

A change that the rules do not cover, such as another ``pattern``, is incompatible: a registry should refuse what it
cannot decide.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from .parsed import Parsed, SchemaError

_ANNOTATIONS: Final = frozenset(
    {"$schema", "$id", "$comment", "title", "description", "default", "examples", "readOnly", "writeOnly", "deprecated"}
)
_LIMITS: Final[Mapping[str, int]] = {
    "maximum": 1, "exclusiveMaximum": 1, "maxLength": 1, "maxItems": 1, "maxProperties": 1,
    "minimum": -1, "exclusiveMinimum": -1, "minLength": -1, "minItems": -1, "minProperties": -1,
}  # fmt: skip
"""Keyword to the direction in which it may move: 1 up, -1 down."""
_NOT_COVERED: Final = frozenset(
    {
        "additionalItems", "contains", "dependencies", "dependentRequired", "dependentSchemas", "else", "if",
        "maxContains", "minContains", "multipleOf", "not", "pattern", "patternProperties", "prefixItems",
        "propertyNames", "then", "unevaluatedItems", "unevaluatedProperties", "uniqueItems", "$dynamicRef",
        "$recursiveRef",
    }
)  # fmt: skip
"""Keywords that restrict values, and have no rule of their own. Others, such as ``format``, are annotations."""
_MAX_DEPTH: Final = 100


class JsonSchema(Parsed):
    """A parsed JSON Schema."""

    def __init__(self, text: str, references: Mapping[str, str] | None = None) -> None:
        """``references`` are the texts of the schemas that it uses, by name. Raises SchemaError."""
        self.root = _load(text)
        self.references = {name: _load(each) for name, each in (references or {}).items()}
        self.text = text
        self.normalized = json.dumps(self.root, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        self.identity = self.normalized
        for reference in _references_in(self.root):
            self.resolved({"$ref": reference})

    def problems_reading(self, written: Parsed) -> list[str]:
        assert isinstance(written, JsonSchema)
        comparison = _Comparison(self, written)
        comparison.compare(self.root, written.root, "#")
        return comparison.problems

    def resolved(self, schema: Any) -> Any:
        """A schema without its outer ``$ref``. Raises SchemaError if it leads nowhere."""
        for _ in range(_MAX_DEPTH):
            if not isinstance(schema, dict) or not isinstance(schema.get("$ref"), str):
                return schema
            schema = self._find(schema["$ref"])
        raise SchemaError("a $ref refers to itself")

    def _find(self, reference: str) -> Any:
        document, _, fragment = reference.partition("#")
        root = self.root if not document or document == _id(self.root) else self.references.get(document)
        if root is None:
            root = next((each for each in self.references.values() if _id(each) == document), None)
        if root is None:
            raise SchemaError(f"{reference!r} is neither in the schema nor one of its references")
        found = root
        for part in filter(None, fragment.split("/")):
            name = part.replace("~1", "/").replace("~0", "~")
            if isinstance(found, list) and name.isdecimal() and int(name) < len(found):
                found = found[int(name)]
            elif isinstance(found, dict) and name in found:
                found = found[name]
            else:
                raise SchemaError(f"{reference!r} refers to nothing")
        return found


def _load(text: str) -> Any:
    from jsonschema.exceptions import SchemaError as NotValid
    from jsonschema.validators import Draft7Validator, validator_for

    try:
        root = json.loads(text)
    except ValueError as problem:
        raise SchemaError(f"it is not JSON: {problem}") from None
    if not isinstance(root, (dict, bool)):
        raise SchemaError("a JSON Schema is an object or a boolean")
    if isinstance(root, bool):
        return root
    try:
        validator_for(root, default=Draft7Validator).check_schema(root)
    except NotValid as problem:
        where = "/".join(map(str, problem.absolute_path))
        raise SchemaError(f"{problem.message} (at #/{where})") from None
    return root


def _id(schema: Any) -> str | None:
    return schema.get("$id") if isinstance(schema, dict) else None


def _references_in(schema: Any) -> list[str]:
    if isinstance(schema, list):
        return [each for item in schema for each in _references_in(item)]
    if not isinstance(schema, dict):
        return []
    own = [schema["$ref"]] if isinstance(schema.get("$ref"), str) else []
    return own + [each for name, item in schema.items() if name not in ("enum", "const", "default", "examples")
                  for each in _references_in(item)]  # fmt: skip


class _Comparison:
    """Whether each value of the old schema is a value of the new one."""

    def __init__(self, new: JsonSchema, old: JsonSchema) -> None:
        self._new = new
        self._old = old
        self._seen: set[tuple[int, int]] = set()
        self.problems: list[str] = []

    def compare(self, new: Any, old: Any, path: str) -> None:
        new, old = self._new.resolved(new), self._old.resolved(old)
        new, old = {} if new is True else new, {} if old is True else old
        if _without_annotations(new) == _without_annotations(old) == {} or old is False:
            return
        if new is False:
            self._add("TYPE_NARROWED", path, "the new schema accepts nothing")
            return
        pair = (id(new), id(old))
        if pair in self._seen:
            return
        self._seen.add(pair)
        self._compare_types(new, old, path)
        self._compare_values(new, old, path)
        self._compare_limits(new, old, path)
        self._compare_objects(new, old, path)
        if "items" in new and isinstance(new["items"], (dict, bool)) and isinstance(old.get("items", {}), (dict, bool)):
            self.compare(new["items"], old.get("items", {}), f"{path}/items")
        elif new.get("items") != old.get("items") and "items" in new:
            self._add("ITEMS_CHANGED", path, "the schemas of the items differ")
        self._compare_combinations(new, old, path)
        for name in sorted(new.keys() & _NOT_COVERED):
            if new[name] != old.get(name) and not _accepts_all(name, new[name], old.get(name)):
                self._add("KEYWORD_CHANGED", f"{path}/{name}", f"{name} was added or changed")

    def _compare_types(self, new: Any, old: Any, path: str) -> None:
        if "type" not in new:
            return
        wanted = _types(new)
        # A value of a combination or an enum has the types of its parts, which are compared there.
        narrowed = [
            each for each in _types(old) if each not in wanted and not (each == "integer" and "number" in wanted)
        ]
        if "type" not in old:
            self._add("TYPE_NARROWED", path, "the new schema restricts the type")
        elif narrowed:
            self._add("TYPE_CHANGED", path, f"the new schema does not accept {', '.join(narrowed)}")

    def _compare_values(self, new: Any, old: Any, path: str) -> None:
        wanted = _values(new)
        if wanted is None:
            return
        had = _values(old)
        if had is None:
            self._add("ENUM_ADDED", path, "the new schema restricts the values")
        elif missing := [each for each in had if _canonical(each) not in map(_canonical, wanted)]:
            self._add("ENUM_NARROWED", path, f"the new schema does not accept {json.dumps(missing)}")

    def _compare_limits(self, new: Any, old: Any, path: str) -> None:
        for name, direction in _LIMITS.items():
            if name not in new or new[name] == old.get(name):
                continue
            if isinstance(new[name], bool) or isinstance(old.get(name), bool):  # the exclusiveMaximum of draft 4
                if new[name] is not False:
                    self._add("LIMIT_CHANGED", f"{path}/{name}", f"{name} was added")
            elif name not in old:
                self._add("LIMIT_ADDED", f"{path}/{name}", f"{name} was added")
            elif (new[name] - old[name]) * direction < 0:
                self._add("LIMIT_NARROWED", f"{path}/{name}", f"{name} changed from {old[name]} to {new[name]}")

    def _compare_objects(self, new: Any, old: Any, path: str) -> None:
        properties, had = new.get("properties", {}), old.get("properties", {})
        others, other_had = new.get("additionalProperties", True), old.get("additionalProperties", True)
        for name, schema in properties.items():
            where = f"{path}/properties/{name}"
            if name in had:
                self.compare(schema, had[name], where)
            elif other_had is False or schema is True or schema == {}:
                continue
            elif other_had is True or other_had == {}:
                self._add("PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL", where, f"old values may have any '{name}'")
            else:
                self.compare(schema, other_had, where)
        for name, schema in had.items():
            if name not in properties and self._old.resolved(schema) is not False:
                where = f"{path}/properties/{name}"
                if others is False:
                    self._add("PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL", where, f"old values may have '{name}'")
                elif others is not True:
                    self.compare(others, schema, where)
        if others is False and other_had is not False:
            self._add("ADDITIONAL_PROPERTIES_REMOVED", path, "old values may have additional properties")
        elif isinstance(others, dict):
            self.compare(others, other_had, f"{path}/additionalProperties")
        for name in new.get("required", ()):
            default = "default" in _mapping(self._new.resolved(properties.get(name, {})))
            if name not in old.get("required", ()) and not default:
                self._add("REQUIRED_ATTRIBUTE_ADDED", f"{path}/required", f"old values may not have '{name}'")

    def _compare_combinations(self, new: Any, old: Any, path: str) -> None:
        for name in ("anyOf", "oneOf"):
            if name not in new:
                continue
            # A value of the old schema was one of its alternatives; without any, it is compared itself.
            had = old.get("oneOf") or old.get("anyOf") or [{**old}]
            for index, each in enumerate(had):
                if not any(self._accepts(option, each) for option in new[name]):
                    self._add("SUM_TYPE_NARROWED", f"{path}/{name}", f"no alternative accepts the old one {index}")
        for index, each in enumerate(new.get("allOf", ())):
            if not any(self._accepts(each, part) for part in (*old.get("allOf", ()), old)):
                self._add("PRODUCT_TYPE_EXTENDED", f"{path}/allOf/{index}", "the new schema restricts old values")
        for name in ("anyOf", "oneOf"):
            # What was not a combination in the new schema must accept each alternative.
            if name in old and not (new.keys() & {"anyOf", "oneOf"}) and "type" in new:
                for each in old[name]:
                    if not self._accepts(new, each):
                        self._add(
                            "SUM_TYPE_NARROWED", f"{path}/{name}", "the new schema does not accept an alternative"
                        )

    def _accepts(self, new: Any, old: Any) -> bool:
        attempt = _Comparison(self._new, self._old)
        attempt._seen = set(self._seen)
        attempt.compare(new, old, "")
        return not attempt.problems

    def _add(self, kind: str, path: str, reason: str) -> None:
        self.problems.append(f"{kind} at {path}: {reason}")


def _accepts_all(keyword: str, new: Any, old: Any) -> bool:
    """Whether a keyword accepts what it accepted with its old value."""
    if keyword == "multipleOf" and type(new) is int and type(old) is int:
        return old % new == 0
    return keyword == "uniqueItems" and new is False


def _types(schema: Any) -> Sequence[str]:
    kind = schema.get("type", ())
    return [kind] if isinstance(kind, str) else list(kind)


def _values(schema: Any) -> list[Any] | None:
    if "const" in schema:
        return [schema["const"]]
    return list(schema["enum"]) if "enum" in schema else None


def _canonical(value: Any) -> str:
    """A value of JSON; Python takes True for 1."""
    return json.dumps(value, sort_keys=True)


def _mapping(schema: Any) -> Mapping[str, Any]:
    return schema if isinstance(schema, dict) else {}


def _without_annotations(schema: Any) -> Any:
    return (
        {name: each for name, each in schema.items() if name not in _ANNOTATIONS}
        if isinstance(schema, dict)
        else schema
    )

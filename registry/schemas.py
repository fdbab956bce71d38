"""The kinds of schemas: parsing one with its references, and the compatibility levels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from .avro import AvroSchema
from .json_schema import JsonSchema
from .parsed import Parsed, SchemaError
from .protobuf import ProtobufSchema
from .records import Schema

KINDS: Final = ("AVRO", "JSON", "PROTOBUF")
LEVELS: Final = (
    "BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE", "NONE",
)  # fmt: skip
"""The compatibility levels. BACKWARD: the new schema reads old values; FORWARD: the old schema reads new ones; FULL:
both; with the last version, or with all versions if transitive."""


def parse(schema: Schema, imported: Sequence[tuple[str, str]]) -> Parsed:
    """A schema with the names and texts of its references, each after its own references. Raises SchemaError."""
    try:
        parsed = _parse(schema, imported)
        (parsed.text + parsed.normalized).encode()
    except RecursionError:
        raise SchemaError("it is nested too deeply") from None
    except UnicodeEncodeError:
        raise SchemaError("it has half of a surrogate pair, which is not a character") from None
    return parsed


def _parse(schema: Schema, imported: Sequence[tuple[str, str]]) -> Parsed:
    if schema.kind == "AVRO":
        return AvroSchema(schema.text, [text for _, text in imported])
    if schema.kind == "JSON":
        return JsonSchema(schema.text, dict(imported))
    return ProtobufSchema(schema.text, imported)


def incompatibilities(level: str, new: Parsed, earlier: Iterable[tuple[int, Callable[[], Parsed]]]) -> list[str]:
    """Why ``new`` is not compatible with earlier versions, the newest of which comes first; empty if it is."""
    if level == "NONE":
        return []
    for version, parsed in earlier:
        old = parsed()
        problems = []
        if type(new) is not type(old):
            problems = ["the schema type is another one"]
        else:
            if level.startswith(("BACKWARD", "FULL")):
                problems += [f"BACKWARD: {each}" for each in new.problems_reading(old)]
            if level.startswith(("FORWARD", "FULL")):
                problems += [f"FORWARD: {each}" for each in old.problems_reading(new)]
        if problems:
            return [*problems, f"compared with version {version}, compatibility level {level}"]
        if not level.endswith("TRANSITIVE"):
            break
    return []

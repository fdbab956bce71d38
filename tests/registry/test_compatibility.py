"""Which changes of a schema a reader can live with: (new schema, old schema, the first problem or None)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from moldau.registry.avro import AvroSchema
from moldau.registry.json_schema import JsonSchema
from moldau.registry.parsed import Parsed, SchemaError
from moldau.registry.protobuf import ProtobufSchema
from moldau.registry.records import Schema
from moldau.registry.schemas import incompatibilities, parse


def record(*fields: Any, name: str = "R", **members: Any) -> Any:
    return {"type": "record", "name": name, "fields": list(fields), **members}


def field(name: str, kind: Any, **members: Any) -> Any:
    return {"name": name, "type": kind, **members}


def enum(*symbols: str, **members: Any) -> Any:
    return {"type": "enum", "name": "E", "symbols": list(symbols), **members}


def tree(*fields: Any) -> Any:
    return record(field("next", ["null", "R"]), *fields)


AVRO = [
    ("long", "int", None),
    ("int", "long", "TYPE_MISMATCH"),
    ("double", "float", None),
    ("string", "bytes", None),
    ("bytes", "string", None),
    (["null", "string"], "string", None),
    ("string", ["null", "string"], "TYPE_MISMATCH"),
    (["null", "int"], ["null", "string"], "MISSING_UNION_BRANCH"),
    (["null", "long"], ["null", "int"], None),
    ({"type": "array", "items": "long"}, {"type": "array", "items": "int"}, None),
    ({"type": "map", "values": "int"}, {"type": "map", "values": "long"}, "TYPE_MISMATCH at /values"),
    (record(field("a", "int"), field("b", "int")), record(field("a", "int")), "READER_FIELD_MISSING_DEFAULT_VALUE"),
    (record(field("a", "int"), field("b", "int", default=1)), record(field("a", "int")), None),
    (record(field("a", "int")), record(field("a", "int"), field("b", "int")), None),
    (record(field("b", "int", aliases=["a"])), record(field("a", "int")), None),
    (record(name="S"), record(), "NAME_MISMATCH"),
    (record(name="S", aliases=["R"]), record(), None),
    (record(namespace="x"), record(namespace="y"), None),
    (enum("A", "B"), enum("A"), None),
    (enum("A"), enum("A", "B"), "MISSING_ENUM_SYMBOLS"),
    (enum("A", default="A"), enum("A", "B"), None),
    ({"type": "fixed", "name": "F", "size": 3}, {"type": "fixed", "name": "F", "size": 4}, "FIXED_SIZE_MISMATCH"),
    (tree(), tree(field("x", "int")), None),
    (tree(field("x", "int")), tree(), "READER_FIELD_MISSING_DEFAULT_VALUE"),
    ({"type": "int", "logicalType": "date"}, "int", None),
]


@pytest.mark.parametrize(("new", "old", "problem"), AVRO)
def test_an_avro_reader_reads_what_the_specification_says(new: Any, old: Any, problem: str | None) -> None:
    check(AvroSchema(json.dumps(new)), AvroSchema(json.dumps(old)), problem)


CLOSED = {"type": "object", "additionalProperties": False}
OPEN = {"type": "object"}
JSON = [
    ({"type": "number"}, {"type": "integer"}, None),
    ({"type": "integer"}, {"type": "number"}, "TYPE_CHANGED"),
    ({"type": ["string", "null"]}, {"type": "string"}, None),
    ({}, {"type": "string"}, None),
    ({"type": "string"}, {}, "TYPE_NARROWED"),
    ({"type": "string", "title": "x"}, {"type": "string"}, None),
    ({"maximum": 5}, {"maximum": 4}, None),
    ({"maximum": 3}, {"maximum": 4}, "LIMIT_NARROWED"),
    ({"minLength": 1}, {}, "LIMIT_ADDED"),
    ({"enum": ["a", "b"]}, {"enum": ["a"]}, None),
    ({"enum": ["a"]}, {"enum": ["a", "b"]}, "ENUM_NARROWED"),
    ({"enum": [1]}, {"enum": [True]}, "ENUM_NARROWED"),
    ({**CLOSED, "properties": {"a": {"type": "string"}}}, CLOSED, None),
    ({**OPEN, "properties": {"a": {"type": "string"}}}, OPEN, "PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL"),
    (OPEN, {**OPEN, "properties": {"a": {"type": "string"}}}, None),
    (CLOSED, {**CLOSED, "properties": {"a": {"type": "string"}}}, "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL"),
    (CLOSED, OPEN, "ADDITIONAL_PROPERTIES_REMOVED"),
    ({**OPEN, "required": ["a"]}, OPEN, "REQUIRED_ATTRIBUTE_ADDED"),
    (OPEN, {**OPEN, "required": ["a"]}, None),
    ({"items": {"type": "number"}}, {"items": {"type": "integer"}}, None),
    ({"oneOf": [{"type": "string"}, {"type": "number"}]}, {"oneOf": [{"type": "string"}]}, None),
    ({"oneOf": [{"type": "string"}]}, {"oneOf": [{"type": "string"}, {"type": "number"}]}, "SUM_TYPE_NARROWED"),
    ({"pattern": "a"}, {"pattern": "b"}, "KEYWORD_CHANGED"),
    ({"type": "string", "format": "date", "x-owner": "a"}, {"type": "string", "x-owner": "b"}, None),
    ({"multipleOf": 2}, {"multipleOf": 4}, None),
    ({"multipleOf": 4}, {"multipleOf": 2}, "KEYWORD_CHANGED"),
    ({"uniqueItems": False}, {}, None),
    ({"uniqueItems": True}, {}, "KEYWORD_CHANGED"),
    ({"$ref": "#/$defs/n", "$defs": {"n": {"type": "number"}}}, {"type": "integer"}, None),
]


@pytest.mark.parametrize(("new", "old", "problem"), JSON)
def test_a_json_schema_accepts_values_of_the_old_one(new: Any, old: Any, problem: str | None) -> None:
    check(JsonSchema(json.dumps(new)), JsonSchema(json.dumps(old)), problem)


ONEOF = "message M { oneof o { int32 a = 1; int32 b = 2; } }"
PROTOBUF = [
    ("message M { int32 a = 1; string b = 2; }", "message M { int32 a = 1; }", None),
    ("message M { }", "message M { int32 a = 1; }", None),
    ("message M { int64 b = 1; }", "message M { int32 a = 1; }", None),
    ("message M { sint32 a = 1; }", "message M { int32 a = 1; }", "FIELD_TYPE_CHANGED at M.a"),
    ("message M { bytes a = 1; }", "message M { string a = 1; }", None),
    ("message M { repeated int32 a = 1; }", "message M { int32 a = 1; }", "FIELD_NUMERIC_LABEL_CHANGED"),
    ("message M { repeated string a = 1; }", "message M { string a = 1; }", None),
    ("message N { }", "message M { }", "MESSAGE_REMOVED at M"),
    (ONEOF, "message M { int32 a = 1; int32 b = 2; }", "MULTIPLE_FIELDS"),
    ("message M { oneof o { int32 a = 1; } }", "message M { int32 a = 1; }", None),
    ("message M { oneof o { int32 a = 1; } }", ONEOF, "ONEOF_FIELD_REMOVED"),
]  # fmt: skip


@pytest.mark.parametrize(("new", "old", "problem"), PROTOBUF)
def test_a_protobuf_reader_reads_the_wire_format_of_the_old_schema(new: str, old: str, problem: str | None) -> None:
    syntax = 'syntax = "proto3"; '
    check(ProtobufSchema(syntax + new), ProtobufSchema(syntax + old), problem)


def check(new: Parsed, old: Parsed, problem: str | None) -> None:
    problems = new.problems_reading(old)
    assert (problems == []) == (problem is None), problems
    assert problem is None or problems[0].startswith(problem)


@pytest.mark.parametrize(
    ("level", "is_compatible"),
    [
        ("NONE", True),
        ("BACKWARD", True),
        ("BACKWARD_TRANSITIVE", False),
        ("FORWARD", False),
        ("FORWARD_TRANSITIVE", False),
        ("FULL", False),
        ("FULL_TRANSITIVE", False),
    ],
)
def test_each_level_compares_in_its_directions_and_with_its_versions(level: str, is_compatible: bool) -> None:
    oldest, old, new = AvroSchema('"double"'), AvroSchema('"int"'), AvroSchema('"long"')

    problems = incompatibilities(level, new, [(2, lambda: old), (1, lambda: oldest)])

    assert (problems == []) == is_compatible


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "3", "null", '"nothing"', "[[]]", '["int", "int"]', '{"type": "array"}',
        pytest.param("[" * 50_000, id="deep"),
        '{"type": "record", "name": "1a", "fields": []}', '{"type": "fixed", "name": "F", "size": "x"}',
        '{"type": "record", "name": "R", "fields": 3}', '{"name": "R", "fields": []}',
        '{"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}, {"name": "a", "type": "int"}]}',
    ],
)  # fmt: skip
def test_an_invalid_avro_schema_is_explained(text: str) -> None:
    with pytest.raises(SchemaError):
        parse(Schema("AVRO", text), [])


def test_a_protobuf_text_and_its_descriptor_are_one_schema() -> None:
    text = ProtobufSchema(
        'syntax = "proto3"; import "google/protobuf/timestamp.proto"; message M { int32 some_a = 1; }'
    )

    assert ProtobufSchema(text.serialized).identity == text.identity


@pytest.mark.parametrize(
    ("text", "is_possible"),
    [
        ('syntax="proto3";// message X {\nmessage M{map<string, N> m=1;message N{} enum E{Z=0;}} service S{}', True),
        ('syntax = "proto3"; message M { map<string,N> m = 1; message N {} /* { */ enum E { Z = 0; } }', False),
        ('syntax = "proto3"; message M {} message N { string message = 1; } enum E { Z = 0; } service S {}', True),
        ("not a schema", False),
    ],
)
def test_a_protobuf_schema_with_other_names_is_another_one(text: str, is_possible: bool) -> None:
    schema = ProtobufSchema(
        """syntax = 'proto3';
        message M { map<string, N> m = 1; message N { string message = 1; } enum E { Z = 0; } }
        service S { option deprecated = true; }"""
    )

    assert schema.may_equal(schema.serialized)
    assert schema.may_equal(text) is is_possible


@pytest.mark.parametrize("text", ["message", 'syntax = "proto3"; message M { int32 a = 1; int32 b = 1; }', "AAAA"])
def test_an_invalid_protobuf_schema_is_explained(text: str) -> None:
    with pytest.raises(SchemaError):
        ProtobufSchema(text)

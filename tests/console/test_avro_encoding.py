"""JSON as Avro: the encoding is that of fastavro, and mistakes are explained with their place."""

from __future__ import annotations

import datetime
import io
import json
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

pytest.importorskip("starlette", reason="needs pip install 'moldau[console]'")
pytest.importorskip("fastavro", reason="needs pip install 'moldau[registry]'")

import fastavro

from moldau.console.avro_encoding import encode
from moldau.console.decoders import FormatError, as_text, plain

CUSTOMER = {"type": "record", "name": "shop.Customer", "fields": [{"name": "name", "type": "string"}]}


def parsed(schema: Any) -> tuple[Any, dict[str, Any]]:
    named: dict[str, Any] = {}
    return fastavro.parse_schema(schema, named_schemas=named), named


def logical(kind: str, logical_type: str, /, **others: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": logical_type, **others}


ZONE = datetime.UTC
MOMENT = datetime.datetime(2026, 1, 31, 12, 0, 0, 123456, tzinfo=ZONE)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ("null", None),
        ("boolean", True),
        ("int", -(2**31)),
        ("long", 2**63 - 1),
        ("float", 0.5),
        ("double", 1e300),
        ("double", 7),
        ("string", "Zürich"),
        ("bytes", b"\x00\xff"),
        ({"type": "array", "items": "int"}, [1, 2, 3]),
        ({"type": "array", "items": "int"}, []),
        ({"type": "map", "values": ["null", "long"]}, {"a": None, "b": 7}),
        ({"type": "map", "values": "long"}, {}),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B"),
        ({"type": "fixed", "name": "F", "size": 2}, b"ab"),
        (CUSTOMER, {"name": "Anna"}),
        (["null", "int", "string"], "7"),
        (["null", "int", "string"], 7),
        (["string", CUSTOMER], {"name": "Anna"}),
        ({"type": "array", "items": [CUSTOMER, "string"]}, ["x", {"name": "Anna"}]),
        (logical("int", "date"), datetime.date(1969, 12, 31)),
        (logical("int", "time-millis"), datetime.time(23, 59, 59, 999000)),
        (logical("long", "time-micros"), datetime.time(1, 2, 3, 4)),
        (logical("long", "timestamp-millis"), MOMENT.replace(microsecond=123000)),
        (logical("long", "timestamp-micros"), MOMENT),
        (logical("long", "timestamp-micros"), datetime.datetime(1905, 1, 1, tzinfo=ZONE)),
        (logical("long", "local-timestamp-micros"), MOMENT.replace(tzinfo=None)),
        (logical("bytes", "decimal", precision=10, scale=2), Decimal("-1.27")),
        (logical("bytes", "decimal", precision=10, scale=2), Decimal("127.00")),
        (logical("fixed", "decimal", precision=10, scale=3, name="D", size=6), Decimal("-0.001")),
        (logical("string", "uuid"), UUID("12345678-1234-5678-1234-567812345678")),
    ],
    ids=str,
)
def test_what_is_shown_is_encoded_as_it_was(schema: Any, value: Any) -> None:
    known, named = parsed(schema)
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, known, value)
    stream.seek(0)
    shown = as_text(plain(fastavro.schemaless_reader(stream, known, None)))
    assert encode(known, json.loads(shown), named) == stream.getvalue()


def test_defaults_fill_missing_fields_and_names_refer_to_types() -> None:
    fields = [
        {"name": "buyer", "type": CUSTOMER},
        {"name": "seller", "type": ["null", "shop.Customer"], "default": None},
        {"name": "count", "type": "int", "default": 3},
        {"name": "raw", "type": "bytes", "default": "\u00ff"},
    ]
    schema, named = parsed({"type": "record", "name": "Order", "fields": fields})
    assert encode(schema, {"buyer": {"name": "A"}}, named) == b"\x02A" + b"\x00" + b"\x06" + b"\x02\xff"
    other = {"buyer": {"name": "A"}, "seller": {"name": "B"}, "count": 0, "raw": ""}
    assert encode(schema, other, named) == b"\x02A" + b"\x02\x02B" + b"\x00" + b"\x00"


def test_the_branch_of_a_union_can_be_selected() -> None:
    schema, named = parsed(["null", "int", "long", CUSTOMER, {"type": "map", "values": "string"}])
    assert encode(schema, 7, named) == b"\x02\x0e"
    assert encode(schema, {"long": 7}, named) == b"\x04\x0e"
    assert encode(schema, {"shop.Customer": {"name": "A"}}, named) == b"\x06\x02A"
    assert encode(schema, {"name": "A"}, named) == b"\x06\x02A"
    assert encode(schema, {"other": "A"}, named) == b"\x08\x02\x0aother\x02A\x00"


ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "customer", "type": ["null", CUSTOMER]},
        {"name": "counts", "type": {"type": "array", "items": "int"}},
        {"name": "day", "type": logical("int", "date")},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}},
        {"name": "price", "type": logical("bytes", "decimal", precision=5, scale=2)},
        {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 2}},
    ],
}
RIGHT: dict[str, Any] = {
    "customer": None,
    "counts": [],
    "day": "2026-01-31",
    "state": "NEW",
    "price": "1.10",
    "hash": "ab",
}


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"customer": {"name": 7}}, "customer.name: 7 is not a string"),
        ({"customer": {}}, "customer: the field 'name' is missing, and has no default"),
        ({"customer": {"name": "A", "age": 7}}, "customer: 'age' is no field of shop.Customer; its fields are name"),
        ({"customer": {"name": "\ud800"}}, "customer.name: half of a surrogate pair is not a character"),
        ({"counts": [1, "2"]}, 'counts[1]: "2" is not an int'),
        ({"counts": [True]}, "counts[0]: true is not an int"),
        ({"counts": [2**31]}, "counts[0]: 2147483648 does not fit into 32 bits"),
        ({"counts": {}}, "counts: {} is not an array"),
        ({"day": "tomorrow"}, 'day: "tomorrow" is not a date'),
        ({"day": None}, "day: null is not an int"),
        ({"state": "OLD"}, 'state: "OLD" is not one of NEW, PAID'),
        ({"state": []}, "state: [] is not one of NEW, PAID"),
        ({"price": "1.105"}, 'price: "1.105" is not a decimal'),
        ({"price": "much"}, 'price: "much" is not a decimal'),
        ({"price": "NaN"}, 'price: "NaN" is not a decimal'),
        ({"hash": "abc"}, "hash: the fixed Hash has 2 bytes, not 3"),
        ({"hash": {"$bytes": "xy"}}, 'hash: {"$bytes": "xy"} is not bytes'),
        ({"hash": "€€"}, 'hash: "€€" is not bytes'),
    ],
    ids=lambda value: None if isinstance(value, dict) else value[:30],
)
def test_what_does_not_have_the_schema_is_explained(changed: dict[str, Any], problem: str) -> None:
    schema, named = parsed(ORDER)
    encode(schema, RIGHT, named)
    with pytest.raises(FormatError) as raised:
        encode(schema, {**RIGHT, **changed}, named)
    assert str(raised.value).startswith(problem)


@pytest.mark.parametrize("value", [[], "x" * 1000, 7, {"a": 1, "b": 2}])
def test_no_branch_of_a_union_fits(value: Any) -> None:
    schema, named = parsed(["null", "boolean", CUSTOMER])
    with pytest.raises(FormatError, match=r"is not of any type of the union null, boolean, shop\.Customer") as raised:
        encode(schema, value, named)
    assert len(str(raised.value)) < 150


def test_deep_nesting_is_a_problem_of_the_value() -> None:
    schema, named = parsed(
        {"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"], "default": None}]}
    )
    value: Any = None
    for _ in range(300):
        value = {"next": value}
    with pytest.raises(FormatError, match=r"nested in more than 100 levels|not of any type"):
        encode(schema, value, named)

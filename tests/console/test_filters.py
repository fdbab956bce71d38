"""The expressions of a search, and the search for a text."""

from __future__ import annotations

import pytest

from moldau.console.filters import ExpressionFilter, FilterError, TextFilter
from moldau.protocol.compression import Codec
from moldau.protocol.records import Record, build_batch, iter_batches

RECORD = Record(
    17,
    1_700_000_000_000,
    b"order-7",
    b'{"id": 7, "name": "Z\\u00fcrich", "lines": [{"count": 2}, {"count": 5}], "paid": true, "note": null, "a b": 1.5}',
    [("source", b"web"), ("trace-id", b"00ff")],
)


@pytest.mark.parametrize(
    "expression",
    [
        "value.id == 7",
        "value.id == 7.0",
        "value.id != 8",
        "value.id >= 7 and value.id < 8",
        "value.id == 8 or value.id == 7",
        "value.id == 7 or value.id == 8 and value.id == 9",
        "not (value.id == 8)",
        "not not value.id == 7",
        'value["a b"] > 1',
        "value.lines[1].count == 5",
        "value.lines[-1].count == 5",
        "value.paid",
        "value.paid == true",
        "value.note == null",
        "not value.note",
        "not value.missing",
        "value.missing != 7",
        'value.name == "Zürich"',
        'value.name contains "ür"',
        'key startswith "order-"',
        "key endswith '7'",
        'value contains "id"',
        'headers.source == "web"',
        'headers.trace-id == "00ff"',
        "partition == 3",
        "offset > 16 and timestamp <= 1700000000000",
        "size > 50",
        r"key == 'order\-7'",
    ],
)
def test_expressions_that_are_true(expression: str) -> None:
    assert ExpressionFilter(expression).matches(3, RECORD)


@pytest.mark.parametrize(
    "expression",
    [
        'value.id == "7"',
        "value.id == true",
        "value.paid == 1",
        "value.paid > 0",
        'value.id > "6"',
        "value.missing == null",
        "value.missing < 1",
        "value.lines[2].count == 5",
        "value.id.deeper == 7",
        "value.note",
        "key.id == 7",
        "headers.none",
        "value contains 7",
        "not value.paid",
    ],
)
def test_expressions_that_are_not(expression: str) -> None:
    assert not ExpressionFilter(expression).matches(3, RECORD)


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("", "the expression ends where a field, a number or a text is expected"),
        ("value.id ==", "the expression ends where"),
        ("value.id = 7", "'=' at character 10 is not understood"),
        ("value.id == 7 8", "`and`, `or` or the end is expected at character 15, instead of '8'"),
        ("name == 7", "'name' at character 1 is no field"),
        ("(value.id == 7", "`)`"),
        ("value[", "a whole number or a name"),
        ("value[1.5]", "a whole number or a name"),
        ("value.", "a name"),
        ("and", "a field, a number or a text is expected at character 1"),
        ("__import__('os')", "is no field"),
        ("value.id == 'x", "is not understood"),
        ("(" * 100 + "value", "too many parentheses"),
        ("not " * 100 + "value", "too many parentheses"),
        ("value or " * 1000 + "value", "more than 2000 characters"),
    ],
)
def test_expressions_that_cannot_be_parsed(expression: str, message: str) -> None:
    with pytest.raises(FilterError) as raised:
        ExpressionFilter(expression)
    assert message in raised.value.message


def test_values_that_are_no_json_are_text() -> None:
    for value in (b"\xff\x00", b'{"broken', b"[" * 100_000, b"9" * 10_000, None, b""):
        record = Record(0, 0, None, value)
        assert not ExpressionFilter("value.id == 7").matches(0, record)
        assert not ExpressionFilter('value contains "q" or key == 1').matches(0, record)
        assert not TextFilter("q").matches(0, record)


@pytest.mark.parametrize("text", ["ORDER", "zürich", "WEB", "Trace-ID", '"paid": TRUE', "00FF"])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_a_text_is_found_everywhere_in_a_record(text: str, codec: Codec) -> None:
    wanted = TextFilter(text)
    (batch,) = iter_batches(build_batch([RECORD], codec=codec))
    assert wanted.matches(0, RECORD)
    assert wanted.may_match(batch)


def test_batches_in_which_a_text_cannot_be_are_not_decoded() -> None:
    (batch,) = iter_batches(build_batch([RECORD]))
    assert not TextFilter("nowhere").may_match(batch)

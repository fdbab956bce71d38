"""The screens of schemas, and records that are sent with a schema."""

from __future__ import annotations

import json
from collections.abc import Callable
from html import unescape
from typing import Any
from urllib.parse import quote

import pytest

pytest.importorskip("starlette", reason="needs pip install 'moldau[console]'")

from moldau.console.schema_registry import SchemaRegistry as Decoder
from moldau.console.schemas import Line, compare
from moldau.protocol.records import Record

from .conftest import Console
from .test_groups import offsets as cells
from .test_messages import NewTopic, Send
from .test_schema_registry import ORDER_BYTES, ORDER_VALUE, PROTO, framed, order_schema, register
from .test_send import FORM, raw, sent

V1 = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}
V2 = {**V1, "fields": [*V1["fields"], {"name": "b", "type": "string", "default": "<b>"}]}


def test_subjects_are_listed_and_found(decoding: Console, registry: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    first = register(registry, f"{topic}-value", V1)
    second = register(registry, f"{topic}-value", V2)
    assert second != first
    register(registry, f"{topic}/<b>", PROTO, "PROTOBUF")
    page = decoding.get(f"/schemas?q={topic}")
    assert "<b>" not in page.text
    assert [[row[0], row[1], row[2], row[4]] for row in cells(page.text)] == [
        [f"{topic}-value", "Avro", "2", topic],
        [f"{topic}/<b>", "Protobuf", "1", "–"],
    ]
    assert "BACKWARD" in page.text
    assert "No subject has" in decoding.get("/schemas?q=nothing-has-this").text


def test_a_subject_is_shown_with_what_has_changed(decoding: Console, registry: str, new_topic: NewTopic) -> None:
    subject = f"{new_topic()}-value"
    register(registry, subject, V1)
    register(registry, subject, V2)
    page = unescape(decoding.get(f"/schemas/subject?subject={subject}").text)
    assert '"default": "<b>"' in page
    assert "From version 1 to version 2" in page
    assert '<ins>+       "name": "b",</ins>' in page
    assert "BACKWARD (of all subjects)" in page
    same = decoding.get(f"/schemas/subject?subject={subject}&version=1&against=1").text
    assert "From version" not in same
    older = unescape(decoding.get(f"/schemas/subject?subject={subject}&version=1&against=2").text)
    assert '<del>-       "name": "b",</del>' in older


def test_references_lead_to_their_schemas(decoding: Console, registry: str, new_topic: NewTopic) -> None:
    subject = f"{new_topic()}-value"
    order = order_schema(registry, subject)
    page = decoding.get(f"/schemas/subject?subject={subject}").text
    assert f'href="/schemas/subject?subject={quote(subject + "/customer", safe="")}&amp;version=1"' in page
    referred = decoding.get(f"/schemas/subject?subject={subject}/customer").text
    assert "Used by schemas" in referred
    assert f"<dd>{order}" in referred


@pytest.mark.parametrize("query", ["subject=nothing", "subject=", "subject=nothing&version=x", "subject=%3Cb%3E"])
def test_a_schema_that_does_not_exist_is_explained(decoding: Console, query: str) -> None:
    page = decoding.get(f"/schemas/subject?{query}")
    assert page.status in (404, 502)
    assert "the registry" in page.text.lower()
    assert "<b>" not in page.text


def test_without_a_registry_the_pages_say_how_to_get_one(console: Console) -> None:
    page = console.get("/schemas")
    assert page.status == 200
    assert "moldau registry" in page.text
    assert console.get("/schemas/subject?subject=x").status == 404


def test_a_registry_that_cannot_be_reached_is_explained(
    new_console: Callable[..., Console], new_topic: NewTopic, unused_port: int
) -> None:
    console = new_console(registry=Decoder(f"http://user:secret@127.0.0.1:{unused_port}"))
    for path in ("/schemas", "/schemas/subject?subject=x", f"/topics/{new_topic()}/send"):
        page = console.get(path)
        assert "cannot be reached" in page.text, path
        assert "secret" not in page.text


def test_a_comparison_has_the_lines_around_a_change() -> None:
    old = "\n".join("abcdefghij")
    assert compare(old, old.replace("e", "E")) == [
        Line("@", "@@ -2,7 +2,7 @@"),
        *(Line(" ", each) for each in "bcd"),
        Line("-", "e"),
        Line("+", "E"),
        *(Line(" ", each) for each in "fgh"),
    ]
    assert compare(old, old) == []
    assert compare("", "x\n" * 6000) is None


def test_a_record_is_sent_with_a_schema_and_copied(decoding: Console, registry: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    schema_id = order_schema(registry, f"{topic}-value")
    answer = decoding.post(
        f"/topics/{topic}/send",
        {**FORM, "value_form": "schema", "value": json.dumps(ORDER_VALUE), "value_subject": f"{topic}-value"},
    )
    place = sent(answer)
    assert raw(decoding, topic, place, "value") == framed(schema_id, ORDER_BYTES)
    form = unescape(decoding.get(answer.headers["location"]).text)
    assert "<option selected>schema</option>" in form
    assert '"name": "Anna"' in form
    assert f'name="value_subject" value="{topic}-value"' in form
    assert 'name="value_version" value="1"' in form


def test_a_version_and_a_message_type_are_chosen(decoding: Console, registry: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    first = register(registry, f"{topic}-key", V1)
    register(registry, f"{topic}-key", V2)
    proto = register(registry, f"{topic}-value", PROTO, "PROTOBUF")
    fields = {
        **FORM,
        "key_form": "schema",
        "key": '{"a": 7}',
        "key_subject": f"{topic}-key",
        "key_version": "1",
        "value_form": "schema",
        "value": '{"count": 7}',
        "value_subject": f"{topic}-value",
        "value_message": "Order.Line",
    }
    place = sent(decoding.post(f"/topics/{topic}/send", fields))
    assert raw(decoding, topic, place, "key") == framed(first, b"\x0e")
    assert raw(decoding, topic, place, "value") == framed(proto, b"\x04\x02\x00\x08\x07")


def test_a_copy_keeps_bytes_that_the_schema_writes_differently(
    decoding: Console, registry: str, new_topic: NewTopic, send: Send
) -> None:
    topic = new_topic()
    proto = register(registry, f"{topic}-value", PROTO, "PROTOBUF")
    json_id = register(registry, f"{topic}-key", {"type": "object"}, "JSON")
    # The path [0] may be written in full; the JSON has its own spaces.
    send(topic, [Record(0, 1_700_000_000_000, framed(json_id, b'{"a":  1}'), framed(proto, b"\x02\x00\x0a\x02hi"))])
    form = unescape(decoding.get(f"/topics/{topic}/send?from=0:0").text)
    assert framed(proto, b"\x02\x00\x0a\x02hi").hex(" ") in form
    assert '{"a":  1}' in form


JSON_SCHEMA = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "object",
    "properties": {"lines": {"type": "array", "items": {"$ref": "line.json"}}},
}


@pytest.mark.parametrize(
    ("kind", "fields", "problem"),
    [
        ("avro", {"value": "{"}, "the value cannot be encoded: it does not have Avro schema"),
        ("avro", {"value": "{"}, "it is not valid JSON"),
        ("avro", {"value": '{"a": "x"}'}, 'a: "x" is not an int'),
        ("avro", {"value_subject": "nothing"}, "has no subject 'nothing'"),
        ("avro", {"value_version": "9"}, "has no version 9 of"),
        ("avro", {"value_version": "new"}, "the version 'new' is not a number"),
        ("avro", {"value_subject": ""}, "the subject of the schema of the value is missing"),
        ("json", {"value": '{"lines": [{"count": "x"}]}'}, "$.lines[0].count: 'x' is not of type 'integer'"),
        ("json", {"value": "[]"}, "[] is not of type 'object'"),
        ("proto", {"value": '{"texts": 1}'}, 'Other: Message type "Other" has no field named "texts"'),
        ("proto", {"value": "7"}, "Other: "),
        ("proto", {"value_message": "Line.Other"}, "it has Other, Order, Order.Line"),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else None,
)
def test_a_value_that_does_not_have_the_schema_is_explained_and_kept(
    decoding: Console, registry: str, new_topic: NewTopic, kind: str, fields: dict[str, Any], problem: str
) -> None:
    topic = new_topic()
    match kind:
        case "avro":
            register(registry, f"{topic}-value", V1)
        case "json":
            line = {"type": "object", "properties": {"count": {"type": "integer"}}}
            register(registry, f"{topic}-line", line, "JSON")
            reference = {"name": "line.json", "subject": f"{topic}-line", "version": 1}
            register(registry, f"{topic}-value", JSON_SCHEMA, "JSON", [reference])
        case _:
            register(registry, f"{topic}-value", PROTO, "PROTOBUF")
    form = {**FORM, "value_form": "schema", "value": "{}", "value_subject": f"{topic}-value", **fields}
    answer = decoding.post(f"/topics/{topic}/send", form)
    page = unescape(answer.text)
    assert (answer.status, problem in page) == (422, True), page
    assert form["value"] in page


def test_a_schema_needs_a_registry(console: Console, new_topic: NewTopic) -> None:
    topic = new_topic()
    answer = console.post(f"/topics/{topic}/send", {**FORM, "value_form": "schema"})
    assert (answer.status, "without --registry" in answer.text) == (422, True)
    assert "<option>schema</option>" not in console.get(f"/topics/{topic}/send").text

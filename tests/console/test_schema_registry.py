"""Records of confluent-kafka's serializers in a console with ``--registry``."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest

pytest.importorskip("starlette", reason="needs pip install 'moldau[console]'")

from moldau.cli.main import main
from moldau.console.decoders import FormatError
from moldau.console.schema_registry import SchemaRegistry as Decoder
from moldau.protocol.records import Record

from .conftest import Console

NewTopic = Callable[..., str]
Send = Callable[..., int]

CUSTOMER = {"type": "record", "name": "Customer", "namespace": "shop", "fields": [{"name": "name", "type": "string"}]}
ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "int"},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "customer", "type": "shop.Customer"},
    ],
}
ORDER_BYTES = bytes([14, 0, 8]) + b"Anna"
ORDER_VALUE = {"id": 7, "day": "1970-01-01", "customer": {"name": "Anna"}}
PROTO = """
syntax = "proto3";
import "google/protobuf/timestamp.proto";
message Other { string text = 1; }
message Order { message Line { int32 count = 1; } google.protobuf.Timestamp at = 1; repeated Line lines = 2; }
"""


def register(registry: str, subject: str, schema: Any, kind: str = "AVRO", references: Any = ()) -> int:
    connection = http.client.HTTPConnection(registry.removeprefix("http://"), timeout=60)
    text = schema if isinstance(schema, str) else json.dumps(schema)
    body = {"schema": text, "schemaType": kind, "references": list(references)}
    connection.request("POST", f"/subjects/{quote(subject, safe='')}/versions", json.dumps(body))
    answer = json.load(connection.getresponse())
    connection.close()
    return int(answer["id"])


def framed(schema_id: int, data: bytes) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + data


def order_schema(registry: str, subject: str) -> int:
    register(registry, f"{subject}/customer", CUSTOMER)
    reference = {"name": "shop.Customer", "subject": f"{subject}/customer", "version": 1}
    return register(registry, subject, ORDER, references=[reference])


def test_avro_is_shown_searched_and_exported(decoding: Console, registry: str, new_topic: NewTopic, send: Send) -> None:
    topic = new_topic()
    schema_id = order_schema(registry, f"{topic}-value")
    value = framed(schema_id, ORDER_BYTES)
    send(topic, [Record(0, 1_700_000_000_000, b"plain", value), Record(1, 1_700_000_000_001, value, b'{"id": 8}')])

    page = decoding.get(f"/topics/{topic}/0/0").text
    assert f"Avro, schema {schema_id}: {topic}-value version 1" in page
    assert "&#34;name&#34;: &#34;Anna&#34;" in page
    assert "&#34;Anna&#34;" in decoding.get(f"/topics/{topic}").text
    assert "00000000  00 00" in decoding.get(f"/topics/{topic}/0/0?format=hex").text
    expression = quote('value.customer.name == "Anna" and value.day == "1970-01-01"')
    found = decoding.get(f"/api/topics/{topic}/records?mode=where&text={expression}")
    (line,) = found.text.splitlines()
    record = json.loads(line)
    assert record["value_decoded"] == ORDER_VALUE
    versions = [{"subject": f"{topic}-value", "version": 1}]
    assert record["value_schema"] == {"id": schema_id, "type": "Avro", "versions": versions}
    key = json.loads(decoding.get(f"/api/topics/{topic}/records").text.splitlines()[1])
    assert key["key_decoded"] == ORDER_VALUE
    assert "value_decoded" not in key
    assert '""name"": ""Anna""' in decoding.get(f"/api/topics/{topic}/records?as=csv").text


def test_exported_lines_can_be_sent_again(
    decoding: Console, registry: str, new_topic: NewTopic, send: Send, bootstrap_servers: str, tmp_path: Any
) -> None:
    topic, copy = new_topic(), new_topic()
    value = framed(order_schema(registry, f"{topic}-value"), ORDER_BYTES)
    send(topic, [Record(0, 1_700_000_000_000, None, value)])
    lines = tmp_path / "lines"
    lines.write_text(decoding.get(f"/api/topics/{topic}/records").text)

    with pytest.raises(SystemExit) as exited:
        main(["produce", copy, str(lines), "--json", "-b", bootstrap_servers])

    assert exited.value.code == 0
    assert decoding.get(f"/topics/{copy}/0/0?raw=value").body == value


def test_protobuf_and_json_schema_are_decoded(registry: str) -> None:
    decoder = Decoder(registry)
    json_id = register(registry, "json", {"type": "object"}, "JSON")
    proto_id = register(registry, "proto", PROTO, "PROTOBUF")

    as_json = decoder.decode(framed(json_id, b'{"a": [1, null]}'))
    first = decoder.decode(framed(proto_id, b"\0\x0a\x02hi"))
    order = decoder.decode(framed(proto_id, b"\x02\x02\x0a\x02\x08\x01\x12\x02\x08\x05"))
    line = decoder.decode(framed(proto_id, b"\x04\x02\0\x08\x07"))

    assert as_json is not None
    assert (as_json.kind, as_json.value) == ("JSON Schema", {"a": [1, None]})
    assert first is not None
    assert (first.kind, first.value) == ("Protobuf", {"text": "hi"})
    assert order is not None
    assert order.value == {"at": "1970-01-01T00:00:01Z", "lines": [{"count": 5}]}
    assert line is not None
    assert line.value == {"count": 7}
    assert decoder.decode(b"{}") is None


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "EOFError"),
        (ORDER_BYTES + b"x", "1 bytes follow the value"),
        (b"\xff" * 30, "the bytes do not have Avro schema"),
    ],
    ids=["short", "long", "random"],
)
def test_bytes_that_do_not_have_their_schema_are_explained(registry: str, data: bytes, problem: str) -> None:
    schema_id = order_schema(registry, "wrong-value")

    with pytest.raises(FormatError, match=problem):
        Decoder(registry).decode(framed(schema_id, data))


def test_an_unknown_schema_is_explained_where_the_value_is(decoding: Console, new_topic: NewTopic, send: Send) -> None:
    topic = new_topic()
    send(topic, [Record(0, 1_700_000_000_000, None, framed(999_999, b"<b>"))])

    page = decoding.get(f"/topics/{topic}/0/0")

    assert page.status == 200
    assert "has no schema 999999" in page.text
    assert "00 00 0f 42 3f" in page.text


def test_a_registry_that_cannot_be_reached_is_explained_and_asked_again_later(
    new_console: Callable[..., Console], new_topic: NewTopic, send: Send, unused_port: int
) -> None:
    topic = new_topic()
    send(topic, [Record(number, 1_700_000_000_000, None, framed(number + 1, b"x")) for number in range(50)])
    console = new_console(registry=Decoder(f"http://user:secret@127.0.0.1:{unused_port}"))

    page = console.get(f"/topics/{topic}")

    assert page.status == 200
    assert page.text.count(f"the registry http://127.0.0.1:{unused_port} cannot be reached") == 50
    assert "secret" not in page.text
    (line, *_) = console.get(f"/api/topics/{topic}/records").text.splitlines()
    assert "cannot be reached" in json.loads(line)["value_problem"]


def test_a_wrong_address_of_the_registry_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exited:
        main(["console", "--registry", "localhost:8081"])

    assert exited.value.code == 2
    assert "is not http://HOST:PORT" in capsys.readouterr().err

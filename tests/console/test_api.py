"""The HTTP API: exports, events, and the produce route of REST v3; values in MessagePack and CBOR."""

from __future__ import annotations

import base64
import csv
import io
import json
import re
import time
from collections.abc import Callable
from html import unescape
from typing import Any

import pytest

from moldau.console.decoders import FormatError, decode
from moldau.protocol.records import Record, iter_records
from moldau.testing.topic_requests import stored_batches

from .conftest import Answer, Console
from .test_messages import NewTopic, Send, numbered
from .test_streams import found, stream

cbor2 = pytest.importorskip("cbor2", reason="needs pip install 'moldau[console]'")
msgpack = pytest.importorskip("msgpack", reason="needs pip install 'moldau[console]'")


def lines(answer: Answer) -> list[Any]:
    assert answer.status == 200, answer.text
    return [json.loads(line) for line in answer.text.splitlines()]


def places_of(records: list[Any]) -> list[tuple[int, int]]:
    return [(record["partition"], record["offset"]) for record in records]


def test_a_topic_is_exported_partition_by_partition(console: Console, new_topic: NewTopic, send: Send) -> None:
    topic = new_topic(2)
    send(topic, numbered(3))
    send(topic, [Record(0, 1_700_000_000_123, b"\xff", None, [("h", b"\xfe"), ("n", None)])], partition=1)
    answer = console.get(f"/api/topics/{topic}/records")
    records = lines(answer)
    assert places_of(records) == [(0, 0), (0, 1), (0, 2), (1, 0)]
    assert records[-1] == {
        "topic": topic,
        "partition": 1,
        "offset": 0,
        "timestamp": 1_700_000_000_123,
        "time": "2023-11-14T22:13:20.123+00:00",
        "timestamp_type": "CreateTime",
        "key_base64": "/w==",
        "value": None,
        "headers": [{"name": "h", "value_base64": "/g=="}, {"name": "n", "value": None}],
    }
    assert answer.headers["content-disposition"] == f'attachment; filename="{topic}.jsonl"'


@pytest.mark.parametrize(
    ("query", "offsets"),
    [
        ("limit=2", [9, 8]),
        ("at=offset&offset=7", [7, 8, 9]),
        ("at=time&time=1700000000065", [7, 8, 9]),
        ("at=beginning&limit=2", [0, 1]),
        ("at=beginning&text=v3", [3]),
        ("mode=where&text=offset%20%3E%208", [9]),
    ],
)
def test_a_part_of_a_topic_is_exported(
    console: Console, new_topic: NewTopic, send: Send, query: str, offsets: list[int]
) -> None:
    topic = new_topic()
    send(topic, numbered(10))
    assert [each["offset"] for each in lines(console.get(f"/api/topics/{topic}/records?{query}"))] == offsets


def test_a_table_has_a_line_per_record(console: Console, new_topic: NewTopic, send: Send) -> None:
    topic = new_topic()
    send(topic, [Record(0, 1, b"\xff", b'a "b",\n c', [("h", b"x")]), Record(0, 2, None, "ü".encode())])
    answer = console.get(f"/api/topics/{topic}/records?as=csv")
    first, second = csv.DictReader(io.StringIO(answer.text))
    assert (first["key"], first["value"]) == ("base64:/w==", 'a "b",\n c')
    assert json.loads(first["headers"]) == [{"name": "h", "value": "x"}]
    assert (second["key"], second["value"], second["headers"]) == ("", "ü", "")


def test_the_page_of_a_topic_leads_to_its_export(console: Console, new_topic: NewTopic, send: Send) -> None:
    topic = new_topic()
    send(topic, numbered(30))
    page = console.get(f"/topics/{topic}?limit=20&cursor=0:25").text
    (address,) = re.findall(r'href="(/api/[^"]*cursor=[^"&]*)" download>JSON lines', page)
    assert [each["offset"] for each in lines(console.get(unescape(address)))] == list(range(24, 4, -1))


def test_errors_of_the_api_are_json(console: Console, new_topic: NewTopic) -> None:
    for accept in ("application/x-ndjson", "text/event-stream"):
        answer = console.get("/api/topics/no-such-topic/records", Accept=accept)
        assert answer.status == 404
        assert "does not exist" in answer.json()["error"]
    topic = new_topic()
    for query, status in (
        ("limit=x", 400),
        ("as=xml", 400),
        ("mode=regex", 400),
        ("mode=where&text=(", 400),
        ("partition=7", 404),
    ):
        answer = console.get(f"/api/topics/{topic}/records?{query}")
        assert (answer.status, bool(answer.json()["error"])) == (status, True), query
    assert console.get(f"/api/topics/{topic}/records?from=x", Accept="text/event-stream").status == 400
    assert console.get("/api/nowhere").status == 404


def test_a_cluster_that_is_not_reachable_is_no_mistake_of_the_request(
    new_console: Callable[..., Console], unused_port: int
) -> None:
    console = new_console(f"127.0.0.1:{unused_port}")
    assert console.get("/api/topics/t/records").status == 502
    # EventSource does not connect again after another status than 200.
    with stream(console, "/api/topics/t/records", Accept="text/event-stream") as events:
        name, data = events.next()
        assert (name, "cannot reach" in data["text"]) == ("problem", True)
        assert events.next() == ("end", None)
    answer = console.get("/v3/clusters")
    assert (answer.status, answer.json()["error_code"]) == (502, 502)
    assert "cannot reach" in answer.json()["message"]


def test_the_newest_records_are_complete_if_a_page_of_them_takes_too_long(
    console: Console, new_topic: NewTopic, send: Send, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("moldau.console.record_pages._BUDGET_S", 0.0)
    topic = new_topic()
    for number in range(8):
        now_ms = time.time_ns() // 1_000_000  # Apache Kafka soon deletes records of the past
        send(topic, [Record(0, now_ms, None, b"v%d" % number + bytes(900_000))])
    records = lines(console.get(f"/api/topics/{topic}/records?limit=7"))
    assert [each["offset"] for each in records] == [7, 6, 5, 4, 3, 2, 1]
    assert [each["offset"] for each in lines(console.get(f"/api/topics/{topic}/records?limit=1&text=v2"))] == [2]


def test_topics_are_listed(console: Console, new_topic: NewTopic) -> None:
    topic = new_topic(2)
    assert {"name": topic, "partitions": 2, "internal": False} in console.get("/api/topics").json()


def test_events_are_records_and_continue(console: Console, new_topic: NewTopic, send: Send) -> None:
    topic = new_topic()
    path = f"/api/topics/{topic}/records"
    with stream(console, f"{path}?from=0:0", Accept="text/event-stream") as events:
        send(topic, numbered(2))
        assert [events.next_data()["offset"] for _ in range(2)] == [0, 1]
    send(topic, numbered(1))
    with stream(console, path, Accept="text/event-stream", Last_Event_ID="0:2") as events:
        assert events.next_data()["offset"] == 2
    # The record at offset 2 has an earlier timestamp than that at 1; the order of a partition is that of the offsets.
    for query, offset in (("at=beginning", 0), ("at=offset&offset=1", 1)):
        with stream(console, f"{path}?{query}", Accept="text/event-stream") as events:
            assert events.next_data()["offset"] == offset


# -- REST v3 --


@pytest.fixture
def rest(console: Console) -> Callable[[str, Any], Answer]:
    """``rest(topic, body)``: the response to a produce request."""
    (cluster,) = console.get("/v3/clusters").json()["data"]

    def post(topic: str, body: Any) -> Answer:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        path = f"/v3/clusters/{cluster['cluster_id']}/topics/{topic}/records"
        return console.request("POST", path, data, {"Content-Type": "application/json"})

    return post


def test_a_record_is_produced_by_rest(
    rest: Callable[[str, Any], Answer], new_topic: NewTopic, bootstrap_servers: str
) -> None:
    topic = new_topic(2)
    body = {
        "partition_id": 1,
        "headers": [{"name": "h", "value": base64.b64encode(b"\x00").decode()}],
        "key": {"type": "BINARY", "data": "AP8="},
        "value": {"type": "JSON", "data": {"id": 1, "name": "ü"}},
        "timestamp": "2023-11-14T22:13:20.123Z",
    }
    answer = rest(topic, body)
    report = answer.json()
    assert answer.status == 200, report
    assert (report["error_code"], report["partition_id"], report["offset"]) == (200, 1, 0)
    assert report["value"] == {"type": "JSON", "size": len('{"id":1,"name":"ü"}'.encode())}
    (batch,) = stored_batches(bootstrap_servers, topic, 1)
    (record,) = iter_records(batch)
    assert (record.key, record.value) == (b"\x00\xff", '{"id":1,"name":"ü"}'.encode())
    assert record.timestamp == 1_700_000_000_123
    assert list(record.headers) == [("h", b"\x00")]


def test_a_body_of_several_records_has_a_report_of_each(
    rest: Callable[[str, Any], Answer], new_topic: NewTopic
) -> None:
    bodies = [
        {"value": {"type": "STRING", "data": "a"}},
        {"value": {"type": "AVRO", "data": "b"}},
        {"value": {"type": "STRING", "data": "c"}},
    ]
    answer = rest(new_topic(), "".join(json.dumps(body) for body in bodies).encode())
    assert [report["error_code"] for report in lines(answer)] == [200, 422, 200]
    assert "AVRO" in lines(answer)[1]["message"]


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        (b"", 400, "empty"),
        (b'{"value": ', 400, "not a sequence of JSON objects"),
        (b"[" * 100_000, 400, "nested too deeply"),
        (b"[]", 422, "not a JSON object"),
        (b'{"value": 5}', 422, "the value is not"),
        (b'{"value": {"type": "BINARY", "data": "?"}}', 422, "not base64"),
        (b'{"partition_id": 99, "value": {"type": "STRING", "data": "a"}}', 422, "has no partition 99"),
        (b'{"partition_id": true}', 422, "partition_id is not a number"),
        (b'{"headers": {"a": "b"}}', 422, "the headers are not a list"),
        (b'{"timestamp": "yesterday"}', 422, "not a time"),
        (b'{"vaule": {"type": "STRING", "data": "a"}}', 422, "unknown members: vaule"),
        (b'{"value": {"schema_id": 1, "data": "a"}}', 422, "unknown members: schema_id"),
        (b'{"value": {"type": "STRING", "data": "\\ud800"}}', 422, "not a character"),
        (b'{"headers": [{"name": "\\ud800", "value": null}]}', 422, "the name of a header has half"),
        (b'{"value": {"type": "JSON", "data": NaN}}', 400, "NaN is not JSON"),
        (b'{"value": {"type": "JSON", "data": 1e999}}', 422, "too large for JSON"),
    ],
)
def test_a_wrong_body_is_explained(
    rest: Callable[[str, Any], Answer], new_topic: NewTopic, body: bytes, status: int, message: str
) -> None:
    answer = rest(new_topic(), body)
    assert (answer.status, answer.json()["error_code"]) == (status, status)
    assert message in answer.json()["message"]


def test_unknown_topics_and_clusters(console: Console, rest: Callable[[str, Any], Answer]) -> None:
    assert rest("no-such-topic", {}).json()["error_code"] == 40403
    answer = console.request("POST", "/v3/clusters/other/topics/x/records", b"{}")
    assert answer.status == 404
    answer = console.get("/v3/clusters/other/topics")
    assert (answer.status, answer.json()["error_code"]) == (404, 404)


# -- Formats --


@pytest.mark.parametrize(
    ("form", "data", "expected"),
    [
        ("MessagePack", msgpack.packb({"a": [1, None, b"\xff"], 5: 1.5}), {"a": [1, None, {"$bytes": "ff"}], "5": 1.5}),
        ("MessagePack", msgpack.packb(msgpack.ExtType(5, b"\x01")), {"$extension": 5, "$bytes": "01"}),
        ("CBOR", cbor2.dumps({"a": [1, None, b"\xff"], 5: 1.5}), {"a": [1, None, {"$bytes": "ff"}], "5": 1.5}),
        ("CBOR", cbor2.dumps(cbor2.CBORTag(4711, "x")), {"$tag": 4711, "$value": "x"}),
    ],
)
def test_objects_of_other_formats(form: str, data: bytes, expected: Any) -> None:
    assert decode(data, form) == expected


@pytest.mark.parametrize("form", ["MessagePack", "CBOR"])
@pytest.mark.parametrize(
    "data",
    [
        b"\xc1",
        b"\xdf\xff\xff\xff\xff",
        b"\x9b\x7f\xff\xff\xff\xff\xff\xff\xff",
        b"\x81" * 5000,
        b"\x01\x02",
        b"\x5b\x7f",
    ],
)
def test_bytes_that_do_not_have_the_format(form: str, data: bytes) -> None:
    with pytest.raises(FormatError, match=f"not {form}|nested"):
        decode(data, form)


def test_the_format_of_a_topic_is_remembered_and_searched(console: Console, new_topic: NewTopic, send: Send) -> None:
    topic = new_topic()
    send(topic, [Record(0, 1, None, msgpack.packb({"id": number, "name": "<b>"})) for number in range(3)])
    send(topic, [Record(0, 2, None, b"\xc1")])
    assert "MessagePack" not in console.get(f"/topics/{topic}").text.replace("<option>MessagePack", "")
    for address in (f"/topics/{topic}?format=MessagePack", f"/topics/{topic}"):
        page = unescape(console.get(address).text)
        assert '{ "id": 2, "name": "<b>" }' in page
        assert "the bytes are not MessagePack" in page
    assert '"id": 1' in unescape(console.get(f"/topics/{topic}/0/1").text)
    assert found(console, topic, "mode=where&text=value.id%3D%3D1&format=MessagePack")[0] == [(0, 1)]

"""Sending records: by a form, as JSON lines, and copies of existing records."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import unescape
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from kafka.partitioner.default import murmur2 as kafka_pythons_murmur2

from moldau.console.producing import murmur2
from moldau.protocol.records import Record, iter_records
from moldau.testing.topic_requests import stored_batches

from .conftest import Answer, Console
from .test_messages import NewTopic, Send

FORM = {
    "mode": "form",
    "key_form": "text",
    "value_form": "text",
    "key": "k",
    "value": "v",
    "headers": "",
    "partition": "",
}


@pytest.mark.parametrize("key", [b"", b"a", b"ab", b"abc", b"abcd", b"order-17", bytes(range(256))])
def test_keys_select_the_partition_that_clients_select(key: bytes) -> None:
    assert murmur2(key) == kafka_pythons_murmur2(key) & 0xFFFF_FFFF


def sent(answer: Answer) -> tuple[int, int]:
    """The partition and offset that the console leads to after sending."""
    assert answer.status == 303, answer.text
    ((partition, offset),) = [
        place.split(":") for place in parse_qs(urlsplit(answer.headers["location"]).query)["sent"]
    ]
    return int(partition), int(offset)


def raw(console: Console, topic: str, place: tuple[int, int], part: str) -> bytes:
    return console.get(f"/topics/{topic}/{place[0]}/{place[1]}?raw={part}").body


@pytest.mark.parametrize(
    ("fields", "key", "value"),
    [
        ({}, b"k", b"v"),
        ({"key_form": "null"}, b"", b"v"),
        ({"value": "a\r\nb\r\n", "key": "Zürich"}, "Zürich".encode(), b"a\nb\n"),
        ({"value_form": "hex", "value": "00 ff\r\n10"}, b"k", b"\x00\xff\x10"),
        ({"value_form": "JSON", "value": '{"a": 1.0}'}, b"k", b'{"a": 1.0}'),
        ({"value_form": "null"}, b"k", b""),
    ],
)
def test_a_form_becomes_a_record(
    console: Console, new_topic: NewTopic, fields: dict[str, str], key: bytes, value: bytes
) -> None:
    topic = new_topic()
    place = sent(console.post(f"/topics/{topic}/send", {**FORM, **fields}))
    assert place == (0, 0)
    assert raw(console, topic, place, "key") == key
    assert raw(console, topic, place, "value") == value


def test_headers_are_text_bytes_or_null(console: Console, new_topic: NewTopic, bootstrap_servers: str) -> None:
    topic = new_topic()
    headers = 'trace: abc: d\r\n{"name": "bytes", "hex": "00ff"}\r\n{"name": "none", "hex": null}\r\n\r\nempty:'
    sent(console.post(f"/topics/{topic}/send", {**FORM, "headers": headers}))
    (batch,) = stored_batches(bootstrap_servers, topic)
    (record,) = iter_records(batch)
    assert list(record.headers) == [("trace", b"abc: d"), ("bytes", b"\x00\xff"), ("none", None), ("empty", b"")]


def test_a_record_goes_to_the_partition_of_its_key_or_the_chosen_one(console: Console, new_topic: NewTopic) -> None:
    topic = new_topic(4)
    for key in ("a", "b", "customer-7"):
        expected = (kafka_pythons_murmur2(key.encode()) & 0x7FFF_FFFF) % 4
        assert sent(console.post(f"/topics/{topic}/send", {**FORM, "key": key}))[0] == expected
    assert sent(console.post(f"/topics/{topic}/send", {**FORM, "partition": "3"}))[0] == 3


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"value_form": "JSON", "value": "{"}, "the value is not valid JSON"),
        ({"value_form": "hex", "value": "0g"}, "the value is not hex"),
        ({"headers": "no colon"}, "line 1 of the headers is not NAME: VALUE"),
        ({"headers": "a: b\n{"}, "line 2 of the headers is not {"),
        ({"partition": "9"}, "has no partition 9"),
        ({"mode": "lines", "lines": ""}, "there are no lines"),
        ({"mode": "lines", "lines": '{"value": "a"}\n{"vlaue": "b"}'}, "line 2: unknown field 'vlaue'"),
        ({"value": "x" * 1_100_000}, "larger than the topic's max.message.bytes"),
        ({"key_form": "XML"}, "is no form of a key"),
    ],
    ids=lambda value: value if isinstance(value, str) else ",".join(value),
)
def test_a_mistake_is_explained_and_the_form_is_kept(
    console: Console, new_topic: NewTopic, fields: dict[str, str], problem: str
) -> None:
    topic = new_topic()
    answer = console.post(f"/topics/{topic}/send", {**FORM, "headers": "kept: yes", **fields})
    assert answer.status == 422
    assert problem in unescape(answer.text)
    assert ("kept: yes" in answer.text) == ("headers" not in fields)
    assert console.get(f"/topics/{topic}").text.count('class="record"') == 0


def test_lines_are_sent_in_their_order(console: Console, new_topic: NewTopic) -> None:
    topic = new_topic(2)
    lines = (
        '{"key": "a", "value": {"id": 1}, "partition": 1}\r\n\r\n'
        '{"key_base64": "AP8=", "value": "second", "partition": 0, "timestamp": 1700000000000}\r\n'
        '{"value": null, "headers": {"h": "x"}, "partition": 1}\r\n'
    )
    answer = console.post(f"/topics/{topic}/send", {"mode": "lines", "lines": lines})
    assert sent(answer) == (1, 1)
    assert "3 records were sent" in console.get(answer.headers["location"]).text
    assert raw(console, topic, (1, 0), "value") == b'{"id": 1}'
    assert raw(console, topic, (0, 0), "key") == b"\x00\xff"


def submitted(page: str) -> dict[str, str]:
    """The fields of the first form of a page, as a browser submits them unchanged."""
    form = page[page.index('<form method="post"') :].partition("</form>")[0]
    fields: dict[str, Any] = {}
    for name, text in re.findall(r'<textarea[^>]* name="(\w+)"[^>]*>(.*?)</textarea>', form, re.DOTALL):
        fields[name] = unescape(text).removeprefix("\n").replace("\n", "\r\n")
    for name, options in re.findall(r'<select[^>]* name="(\w+)".*?>(<option.*?)</select>', form, re.DOTALL):
        chosen = re.search(r"<option(?: value=\"(\d*)\")? selected>([^<]*)", options)
        fields[name] = "" if chosen is None else chosen.group(1) or chosen.group(2)
    return {"mode": "form", **fields}


@pytest.mark.parametrize(
    "data",
    [
        None,
        b"",
        b"text",
        "Zürich\n\tx".encode(),
        b"\nfirst",
        b"\r\n",
        bytes(range(256)),
        b"</textarea><script>1</script>",
    ],
)
def test_a_copy_that_is_sent_again_unchanged_is_equal(
    console: Console, new_topic: NewTopic, send: Send, bootstrap_servers: str, data: bytes | None
) -> None:
    topic = new_topic()
    headers = [("h", data), ("h", b" x "), ("a: b", b"c"), ("", b"y"), ("{", b"z"), (" n\n", None)]
    send(topic, [Record(0, 1_700_000_000_000, data, data, headers)])
    page = console.get(f"/topics/{topic}/send?from=0:0").text
    sent(console.post(f"/topics/{topic}/send", submitted(page)))
    first, second = (next(iter(iter_records(batch))) for batch in stored_batches(bootstrap_servers, topic))
    assert (second.key, second.value) == (first.key, first.value)
    assert list(second.headers) == list(first.headers)


def test_a_console_for_reading_has_no_form(
    new_console: Callable[..., Console], new_topic: NewTopic, send: Send
) -> None:
    topic = new_topic()
    send(topic, [Record(0, 1_700_000_000_000, b"k", b"v")])
    console = new_console(read_only=True)
    assert "/send" not in console.get(f"/topics/{topic}").text
    assert "/send" not in console.get(f"/topics/{topic}/0/0").text
    assert console.post(f"/topics/{topic}/send", FORM).status == 403

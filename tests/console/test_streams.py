"""A search and the live end of a topic, as server-sent events."""

from __future__ import annotations

import http.client
import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

import pytest

from moldau.cli.client import connect
from moldau.cli.cluster import Cluster
from moldau.console.fetching import load_topic
from moldau.console.filters import TextFilter
from moldau.console.tail import SHOWN, Tail
from moldau.protocol.records import Record
from moldau.testing import Broker

from .conftest import Console
from .test_messages import NewTopic, Send, numbered, places


class Events:
    """The events of one response."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self._response = response
        self.id = ""

    def next(self) -> tuple[str, Any]:
        """The name and the data of the next event; comments are skipped. ("end", None) at the end of the response."""
        fields: dict[str, str] = {}
        while True:
            line = self._response.readline().decode()
            if not line:
                return "end", None
            if line == "\n":
                if "data" in fields:
                    self.id = fields.get("id", self.id)
                    return fields["event"], json.loads(fields["data"])
                fields = {}
            name, _, value = line.rstrip("\n").partition(": ")
            fields[name] = value

    def next_data(self) -> Any:
        """The data of the next event without a name."""
        while not (line := self._response.readline().decode()).startswith("data: "):
            assert line, "the response has ended"
        return json.loads(line.removeprefix("data: "))


@contextmanager
def stream(console: Console, path: str, **headers: str) -> Iterator[Events]:
    connection = http.client.HTTPConnection("127.0.0.1", console.port, timeout=60)
    try:
        connection.request("GET", path, headers={name.replace("_", "-"): value for name, value in headers.items()})
        response = connection.getresponse()
        assert response.status == 200, response.read()
        assert response.headers["content-type"].startswith("text/event-stream")
        yield Events(response)
    finally:
        connection.close()


def found(console: Console, topic: str, query: str) -> tuple[list[tuple[int, int]], dict[str, Any]]:
    """The records that a search finds, and its last step."""
    rows: list[tuple[int, int]] = []
    with stream(console, f"/topics/{topic}/search/events?{query}") as events:
        while True:
            name, data = events.next()
            assert name == "step", data
            rows += places(data["html"])
            if data["done"]:
                assert events.next() == ("end", None)
                return rows, data


def test_a_text_is_found_newest_first_with_progress(console: Console, new_topic: NewTopic, send: Send) -> None:
    topic = new_topic(2)
    for partition in range(2):
        for start in range(0, 3000, 500):
            send(topic, numbered(500, 1_700_000_000_000 + start), partition=partition)
    send(topic, [Record(0, 1_700_000_500_000, None, b"x", [("h", b"v77")])])
    rows, last = found(console, topic, "text=V77&partition=0")
    assert rows[0] == (0, 3000)
    assert [offset % 500 for _, offset in rows[1:]] == [77] * 6
    assert [offset for _, offset in rows] == sorted((offset for _, offset in rows), reverse=True)
    assert (last["scanned"], last["total"], last["found"]) == (3001, 3001, 7)
    assert len(found(console, topic, "text=v77")[0]) == 13


def test_a_search_forwards_begins_at_an_offset_and_ends_at_its_limit(
    console: Console, new_topic: NewTopic, send: Send
) -> None:
    topic = new_topic()
    send(topic, numbered(100))
    rows, last = found(console, topic, "text=v&at=offset&offset=40&limit=3")
    assert rows == [(0, 40), (0, 41), (0, 42)]
    assert last["found"] == 3


def test_a_search_by_an_expression(console: Console, new_topic: NewTopic, send: Send) -> None:
    topic = new_topic()
    send(topic, [Record(0, 1, b"%d" % number, b'{"id": %d}' % number) for number in range(20)])
    query = f"mode=where&text={quote('value.id >= 5 and key < 7 and partition == 0')}"
    assert found(console, topic, query)[0] == [(0, 6), (0, 5)]


def test_a_search_reads_large_and_compacted_logs(console: Console, new_topic: NewTopic, send: Send) -> None:
    topic = new_topic()
    for number in range(10):
        send(topic, [Record(0, 1, b"k%d" % number, b"x" * 900_000)])
    assert found(console, topic, "text=k3")[0] == [(0, 3)]


def test_a_wrong_expression_is_explained_where_it_was_typed(console: Console, new_topic: NewTopic) -> None:
    topic = new_topic()
    for page in ("search", "live"):
        answer = console.get(f"/topics/{topic}/{page}?mode=where&text=value.id+%3D+7")
        assert answer.status == 200
        assert "&#39;=&#39; at character 10 is not understood" in answer.text
        assert 'aria-invalid="true"' in answer.text
        assert "data-search" not in answer.text
        assert "data-live" not in answer.text


def test_a_problem_is_an_event(console: Console) -> None:
    with stream(console, "/topics/no-such-topic/search/events?text=x") as events:
        name, data = events.next()
        assert name == "problem"
        assert "does not exist" in data["text"]
    with stream(console, "/topics/no-such-topic/live/events") as events:
        assert events.next()[0] == "problem"


def test_new_records_arrive_and_a_page_continues_where_it_was(
    console: Console, new_topic: NewTopic, send: Send
) -> None:
    topic = new_topic(2)
    send(topic, numbered(10))
    with stream(console, f"/topics/{topic}/live/events") as events:
        assert events.next() == ("open", {})
        assert events.id == "0:10,1:0"
        send(topic, [Record(0, 1, b"<b>", b"first")], partition=1)
        name, data = events.next()
        assert (name, places(data["html"]), data["omitted"]) == ("records", [(1, 0)], 0)
        assert "&lt;b&gt;" in data["html"]
        assert events.id == "0:10,1:1"
    send(topic, [Record(0, 2, b"", b"while away")])
    with stream(console, f"/topics/{topic}/live/events", Last_Event_ID="0:10,1:1") as events:
        assert events.next() == ("open", {})
        assert places(events.next()[1]["html"]) == [(0, 10)]


def test_a_live_page_shows_what_matches(console: Console, new_topic: NewTopic, send: Send) -> None:
    topic = new_topic()
    with stream(console, f"/topics/{topic}/live/events?text=v7") as events:
        events.next()
        send(topic, numbered(10))
        assert places(events.next()[1]["html"]) == [(0, 7)]


@pytest.fixture
def tail(bootstrap_servers: str) -> Iterator[Callable[..., Tail]]:
    opened: list[Tail] = []

    def start(topic: str, wanted: TextFilter | None = None, offset: int = 0) -> Tail:
        cluster = Cluster(connect(bootstrap_servers))
        opened.append(Tail(cluster, load_topic(cluster, topic), {0: offset}, wanted, committed=False))
        return opened[-1]

    yield start
    for each in opened:
        each.close()


def test_a_tail_in_the_middle_of_a_batch_counts_the_rest_of_it(
    tail: Callable[..., Tail], new_topic: NewTopic, send: Send
) -> None:
    """So it continues after it has jumped near the end."""
    topic = new_topic()
    send(topic, numbered(500))
    send(topic, numbered(100))
    update = tail(topic, offset=450).next()
    assert (len(update.rows), update.omitted, update.positions) == (50, 100, {0: 600})


def test_a_tail_counts_the_records_that_it_omits(tail: Callable[..., Tail], new_topic: NewTopic, send: Send) -> None:
    topic = new_topic()
    for _ in range(20):
        send(topic, numbered(10))
    update = tail(topic).next()
    assert [row.record.offset for row in update.rows] == list(range(150, 200))
    assert (update.omitted, update.positions) == (150, {0: 200})
    matching = tail(topic, TextFilter("v3")).next()
    assert [row.record.offset for row in matching.rows] == list(range(3, 200, 10))
    assert matching.omitted == 0


def test_a_tail_that_is_far_behind_continues_near_the_end(
    tail: Callable[..., Tail], new_topic: NewTopic, send: Send
) -> None:
    topic = new_topic()
    for _ in range(8):
        send(topic, [Record(0, 1, None, b"%0200d" % number) for number in range(4000)])
    follower = tail(topic)
    omitted, shown = 0, []
    while follower.positions[0] < 32_000:
        update = follower.next()
        omitted += update.omitted
        shown += [row.record.offset for row in update.rows]
    assert shown[-SHOWN:] == list(range(32_000 - SHOWN, 32_000))
    assert omitted + len(shown) == 32_000


def test_a_live_page_says_that_the_broker_is_not_reachable_and_continues_after_its_return(
    new_console: Callable[..., Console],
) -> None:
    from moldau.testing.builders import batch, produce
    from moldau.testing.topic_requests import create_topic
    from moldau.testing.wire import WireClient

    with Broker(thread=True) as broker:
        create_topic(broker.bootstrap_servers, "events")
        console = new_console(broker.bootstrap_servers)
        with stream(console, "/topics/events/live/events") as events:
            assert events.next() == ("open", {})
            broker.stop()
            name, data = events.next()
            assert name == "problem"
            assert data["text"]
            assert events.next() == ("end", None)
            position = events.id
        answer = console.get("/topics/events")
        assert answer.status == 502
        assert re.search(r"cannot reach 127.0.0.1:\d+", answer.text)
        broker.start()
        with WireClient(broker.bootstrap_servers) as wire:
            produce(wire, "events", batch(b"back"))
        assert places(console.get("/topics/events").text) == [(0, 0)]
        with stream(console, "/topics/events/live/events", Last_Event_ID=position) as events:
            assert events.next() == ("open", {})
            assert places(events.next()[1]["html"]) == [(0, 0)]

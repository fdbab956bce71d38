"""Groups: lag, members, history, and the reset of offsets with a preview."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from html import unescape
from urllib.parse import quote

import pytest

from moldau.cli.client import connect
from moldau.cli.cluster import Cluster
from moldau.cli.group_client import GroupClient, TopicPartition
from moldau.console.chart import Sample, chart
from moldau.console.lag_history import SPAN_MS, LagHistory
from moldau.testing.waiting import wait_until

from .conftest import Console
from .test_messages import NewTopic, Send, numbered


@pytest.fixture
def commit(bootstrap_servers: str) -> Iterator[Callable[..., None]]:
    """``commit(group, topic, {partition: offset})``: commit offsets without joining the group."""
    cluster = Cluster(connect(bootstrap_servers))

    def send_commit(group: str, topic: str, offsets: dict[int, int]) -> None:
        wanted = {TopicPartition(topic, partition): offset for partition, offset in offsets.items()}
        assert GroupClient(cluster).commit(group, wanted) == {}

    yield send_commit
    cluster.close()


def offsets(page: str) -> list[list[str]]:
    """The cells of the rows of the first table of a page."""
    table = page[page.index("<tbody>") : page.index("</tbody>")]
    return [
        [
            unescape(re.sub(r"<[^>]*>", "", cell)).strip()
            for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL)
        ]
        for row in re.findall(r"<tr>(.*?)</tr>", table, re.DOTALL)
    ]


def test_a_group_is_shown_with_its_lag(
    console: Console, new_topic: NewTopic, send: Send, commit: Callable[..., None]
) -> None:
    topic = new_topic(2)
    send(topic, numbered(10))
    commit(f"g-{topic}", topic, {0: 3, 1: 0})
    page = console.get(f"/groups?q=g-{topic}").text
    assert offsets(page) == [[f"g-{topic}", "Empty", "classic", offsets(page)[0][3], "7"]]
    group = console.get(f"/group?id=g-{topic}").text
    assert [row[:5] for row in offsets(group)] == [[topic, "0", "3", "10", "7"], [topic, "1", "0", "0", "0"]]
    assert "The group has no members" in group


def test_a_reset_is_shown_before_it_is_done(
    console: Console, new_topic: NewTopic, send: Send, commit: Callable[..., None]
) -> None:
    topic = new_topic(2)
    group = f"g-{topic}"
    send(topic, numbered(10))
    commit(group, topic, {0: 5, 1: 0})
    plan = console.get(f"/group/reset?id={group}&way=shift&value=-2&topic={topic}").text
    assert offsets(plan) == [[topic, "0", "5", "3", "reads 2 again"], [topic, "1", "0", "0", "unchanged"]]
    assert "using the first offset 0" in plan
    (text,) = re.findall(r'<textarea name="offsets" hidden>\n(.*?)</textarea>', plan, re.DOTALL)
    assert offsets(console.get(f"/group?id={group}").text)[0][2] == "5"
    answer = console.post("/group/reset", {"id": group, "offsets": unescape(text)})
    assert answer.status == 303
    after = console.get(answer.headers["location"]).text
    assert "The offsets were reset" in after
    assert offsets(after)[0][2] == "3"


@pytest.mark.parametrize(
    ("way", "value", "new", "effect"),
    [
        ("earliest", "", "0", "reads 5 again"),
        ("latest", "", "10", "skips 5"),
        ("offset", "6", "6", "skips 1"),
        ("time", "1700000000065", "7", "skips 2"),
        ("shift", "+1", "6", "skips 1"),
    ],
)
def test_ways_to_reset(
    console: Console,
    new_topic: NewTopic,
    send: Send,
    commit: Callable[..., None],
    way: str,
    value: str,
    new: str,
    effect: str,
) -> None:
    topic = new_topic()
    send(topic, numbered(10))
    commit(f"g-{topic}", topic, {0: 5})
    plan = console.get(f"/group/reset?id=g-{topic}&way={way}&value={quote(value)}").text
    assert offsets(plan) == [[topic, "0", "5", new, effect]]


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("way=sideways", "is no way to reset"),
        ("way=offset&value=x", "not a number"),
        ("way=shift&value=--3", "not a number"),
        ("way=time&value=", "neither milliseconds"),
        ("way=latest&topic=none", "no committed offsets in none"),
    ],
)
def test_a_wrong_reset_is_explained(
    console: Console, new_topic: NewTopic, commit: Callable[..., None], query: str, text: str
) -> None:
    topic = new_topic()
    commit(f"g-{topic}", topic, {0: 0})
    answer = console.get(f"/group/reset?id=g-{topic}&{query}")
    status = 404 if "no committed offsets" in text else 400
    assert (answer.status, text in unescape(answer.text)) == (status, True)


@pytest.fixture
def member(bootstrap_servers: str) -> Iterator[Callable[[str, str], None]]:
    """``member(group, topic)``: a consumer that has joined."""
    confluent_kafka = pytest.importorskip("confluent_kafka")
    joined = []

    def join(group: str, topic: str) -> None:
        settings = {"bootstrap.servers": bootstrap_servers, "group.id": group, "client.id": "<b>reader</b>"}
        consumer = confluent_kafka.Consumer({**settings, "auto.offset.reset": "earliest"})
        joined.append(consumer)
        consumer.subscribe([topic])
        wait_until(lambda: consumer.poll(0.1) is not None)

    yield join
    for consumer in joined:
        consumer.close()


def test_members_own_their_offsets(
    console: Console, new_topic: NewTopic, send: Send, commit: Callable[..., None], member: Callable[[str, str], None]
) -> None:
    topic = new_topic()
    send(topic, numbered(10))
    group = f"g-{topic}"
    commit(group, topic, {0: 5})
    member(group, topic)
    page = console.get(f"/group?id={group}").text
    assert "&lt;b&gt;reader&lt;/b&gt;" in page
    assert f'<span class="badge">{topic}-0</span>' in page
    assert "Stable" in page
    plan = console.get(f"/group/reset?id={group}&way=earliest").text
    assert "The group has members" in plan
    answer = console.post("/group/reset", {"id": group, "offsets": f"{topic},0,0"})
    assert answer.status == 502
    assert "members have joined the group" in answer.text
    answer = console.post("/group/delete", {"id": group})
    assert "the group has members" in answer.text


def test_a_group_without_members_is_deleted(console: Console, new_topic: NewTopic, commit: Callable[..., None]) -> None:
    topic = new_topic()
    group = f"g <b> ü {topic}"
    commit(group, topic, {0: 0})
    assert "g &lt;b&gt; ü" in console.get(f"/group?id={quote(group)}").text
    assert console.post("/group/delete", {"id": group}).status == 303
    answer = console.get(f"/group?id={quote(group)}")
    assert answer.status == 404
    assert "does not exist" in answer.text


def test_the_history_has_an_hour_of_the_groups_that_exist() -> None:
    history = LagHistory()
    for minute in range(90):
        history.add("a", minute, minute * 60_000)
    history.add("b", 1, 0)
    samples = history.of("a")
    assert (samples[0].value, samples[-1].value) == (29, 89)
    assert samples[-1].time_ms - samples[0].time_ms == SPAN_MS
    history.keep({"b"})
    assert history.of("a") == []
    assert history.of("b") == [Sample(0, 1)]


def test_a_chart_has_a_point_per_sample() -> None:
    assert chart([Sample(0, 1)]) is None
    drawn = chart([Sample(0, 0), Sample(5000, 100), Sample(10_000, 50)])
    assert drawn is not None
    assert drawn.line == "0.0,118.0 360.0,6.0 720.0,62.0"
    assert drawn.highest == 100
    flat = chart([Sample(0, 0), Sample(0, 0)])
    assert flat is not None
    assert flat.line == "0.0,118.0 0.0,118.0"


def test_the_lag_is_drawn_when_there_are_two_samples(
    console: Console, new_topic: NewTopic, send: Send, commit: Callable[..., None]
) -> None:
    topic = new_topic()
    commit(f"g-{topic}", topic, {0: 0})
    console.get(f"/group?id=g-{topic}")
    send(topic, numbered(10))
    page = console.get(f"/group?id=g-{topic}").text
    assert "<polyline" in page
    assert "at most 10" in page

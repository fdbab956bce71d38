"""Creating, changing, emptying and deleting topics."""

from __future__ import annotations

from collections.abc import Callable
from html import unescape
from uuid import uuid4

import pytest

from moldau.testing.topic_requests import wait_for_no_topic, wait_for_topic
from moldau.testing.waiting import wait_until

from .conftest import Console
from .test_groups import offsets as cells
from .test_messages import NewTopic, Send, numbered, places


@pytest.fixture
def name() -> str:
    return f"new.topic_{uuid4().hex[:8]}"


def test_a_topic_is_created_with_its_settings(console: Console, bootstrap_servers: str, name: str) -> None:
    fields = {"name": name, "partitions": "3", "replicas": "1", "settings": "cleanup.policy = compact\r\n\r\n"}
    answer = console.post("/create-topic", fields)
    assert answer.status == 303, answer.text
    wait_for_topic(bootstrap_servers, name, 3)
    assert "The topic was created" in console.get(answer.headers["location"]).text
    rows = cells(console.get(f"/topics/{name}/settings").text)
    assert rows[0][1:3] == ["compact", "topic"]
    assert rows[0][0].startswith("cleanup.policy")
    assert len(rows) > 20


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"name": "a b"}, "INVALID_TOPIC_EXCEPTION"),
        ({"name": ""}, "INVALID_TOPIC_EXCEPTION"),
        ({"partitions": "0"}, "is not from 1 to 1000000"),
        ({"partitions": "many"}, "is not a number"),
        ({"replicas": "7"}, "INVALID_REPLICATION_FACTOR"),
        ({"settings": "retention"}, "line 1 of the settings is not KEY=VALUE"),
        ({"settings": "no.such.setting=1"}, "no.such.setting"),
    ],
)
def test_a_mistake_is_explained_and_the_form_is_kept(
    console: Console, name: str, fields: dict[str, str], problem: str
) -> None:
    answer = console.post("/create-topic", {"name": name, "settings": "retention.ms=77000", **fields})
    assert answer.status == 422
    assert problem in unescape(answer.text)
    assert ("retention.ms=77000" in answer.text) == ("settings" not in fields)


def test_a_topic_that_exists_is_not_created_again(console: Console, new_topic: NewTopic) -> None:
    answer = console.post("/create-topic", {"name": new_topic()})
    assert "a topic of this name exists already" in answer.text


def test_a_setting_is_changed_and_reset(console: Console, new_topic: NewTopic) -> None:
    path = f"/topics/{new_topic()}/settings"
    answer = console.post(path, {"action": "set", "key": "retention.ms", "value": "60000"})
    assert answer.status == 303, answer.text
    wait_until(lambda: cells(console.get(path).text)[0][1:3] == ["60000", "topic"])
    answer = console.post(path, {"action": "reset", "key": "retention.ms", "value": ""})
    assert answer.status == 303, answer.text
    wait_until(lambda: cells(console.get(path).text)[0][2] != "topic")


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"action": "set", "key": "retention.ms", "value": "soon"}, "retention.ms"),
        ({"action": "partitions", "count": "1"}, "INVALID_PARTITIONS"),
        ({"action": "partitions", "count": ""}, "is not a number"),
        ({"action": "delete", "confirmed": "other"}, "type the name of the topic"),
        ({"action": "explode"}, "is no change of a topic"),
    ],
    ids=lambda value: value if isinstance(value, str) else value["action"],
)
def test_a_refused_change_is_explained(
    console: Console, new_topic: NewTopic, fields: dict[str, str], problem: str
) -> None:
    answer = console.post(f"/topics/{new_topic()}/settings", fields)
    status = 502 if problem in ("retention.ms", "INVALID_PARTITIONS") else 400
    assert (answer.status, problem in unescape(answer.text)) == (status, True), answer.text


def test_partitions_are_added_and_records_and_topics_deleted(
    console: Console, new_topic: NewTopic, send: Send, bootstrap_servers: str
) -> None:
    topic = new_topic()
    path = f"/topics/{topic}/settings"
    send(topic, numbered(5))
    assert console.post(path, {"action": "partitions", "count": "3"}).status == 303
    wait_for_topic(bootstrap_servers, topic, 3)
    assert places(console.get(f"/topics/{topic}").text)[0] == (0, 4)
    answer = console.post(path, {"action": "empty"})
    assert answer.status == 303, answer.text
    assert "All records were deleted" in console.get(answer.headers["location"]).text
    assert places(console.get(f"/topics/{topic}").text) == []
    assert cells(console.get(f"/topics/{topic}/partitions").text)[0][:4] == ["0", "5", "5", "0"]
    assert console.post(path, {"action": "delete", "confirmed": topic}).status == 303
    wait_for_no_topic(bootstrap_servers, topic)
    assert "does not exist" in console.get(f"/topics/{topic}").text


def test_a_console_for_reading_has_no_buttons(new_console: Callable[..., Console], new_topic: NewTopic) -> None:
    console = new_console(read_only=True)
    page = console.get(f"/topics/{new_topic()}/settings").text
    assert "<form" not in page
    assert "retention.ms" in page
    assert "/create-topic" not in console.get("/topics").text

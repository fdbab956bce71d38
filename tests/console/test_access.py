"""ACLs, users and quotas in the console."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from html import unescape
from uuid import uuid4

import pytest

from moldau.testing import Broker
from moldau.testing.waiting import wait_until

from .conftest import Console
from .test_groups import offsets as cells

ACL = {
    "action": "add",
    "principal": "alice",
    "permission": "allow",
    "operation": "read",
    "resource": "topic",
    "pattern": "literal",
    "name": "events",
    "host": "*",
}


@pytest.fixture
def name() -> str:
    return f"user-{uuid4().hex[:8]}"


def rows(console: Console, path: str) -> list[list[str]]:
    page = console.get(path).text
    return cells(page) if "<tbody>" in page else []


def test_a_user_without_acls_learns_which_ones_are_missing() -> None:
    config = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}
    with Broker(config=config) as broker, closing(Console(broker.bootstrap_servers)) as console:
        for path in ("/topics", "/groups"):
            assert "Those that the user of the console may not describe are not listed." in console.get(path).text
        for path, operation in (("/acls", "describe"), ("/users", "describe"), ("/quotas", "describe-configs")):
            assert f"needs an ACL that allows {operation} on the cluster." in console.get(path).text
        answer = console.post("/acls", ACL)
        assert answer.status == 422
        assert "needs an ACL that allows alter on the cluster." in answer.text


def test_acls_are_added_explained_and_removed(secured_console: Console) -> None:
    secured = secured_console
    answer = secured.post("/acls", ACL)
    assert answer.status == 303, answer.text
    assert "The ACL was added" in secured.get(answer.headers["location"]).text
    secured.post("/acls", {**ACL, "resource": "group", "pattern": "prefixed", "name": "app-", "permission": "deny"})
    secured.post("/acls", {**ACL, "principal": "User:<b>", "resource": "cluster", "operation": "describe", "name": ""})
    wait_until(lambda: len(rows(secured, "/acls")) == 3)
    assert [row[:6] for row in rows(secured, "/acls?q=alice")] == [
        ["User:alice", "allow", "read", "topic", "events", "*"],
        ["User:alice", "deny", "read", "group", "app- and names that begin so", "*"],
    ]
    assert [row[:6] for row in rows(secured, "/acls?q=cluster")] == [
        ["User:<b>", "allow", "describe", "cluster", "kafka-cluster", "*"]
    ]
    assert "<b>" not in secured.get("/acls").text

    def explained(query: str) -> str:
        return unescape(secured.get(f"/acls?{query}").text)

    question = "ask_principal=alice&ask_operation=describe&ask_resource=topic&ask_name="
    assert "Allowed by: ALLOW User:alice READ TOPIC:LITERAL:events from *" in explained(f"{question}events")
    assert "Denied, because no ACL allows it." in explained(f"{question}other")
    assert "the operation 'fly' is not one of" in explained("ask_principal=alice&ask_operation=fly")

    removed = secured.post("/acls", {**ACL, "action": "remove"})
    assert removed.status == 303, removed.text
    wait_until(lambda: len(rows(secured, "/acls")) == 2)
    again = secured.post("/acls", {**ACL, "action": "remove"})
    assert again.status == 422
    assert "there is no such ACL: ALLOW User:alice READ TOPIC:LITERAL:events from *" in unescape(again.text)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"principal": " "}, "the principal is missing"),
        ({"name": ""}, "the name of the topic is missing"),
        ({"operation": "fly"}, "the operation 'fly' is not one of"),
        ({"action": "explode"}, "the action 'explode' is not one of add, remove"),
        ({"resource": "cluster", "name": "other"}, "INVALID_REQUEST"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else None,
)
def test_a_wrong_acl_is_explained_and_the_form_is_kept(
    secured_console: Console, fields: dict[str, str], problem: str
) -> None:
    answer = secured_console.post("/acls", {**ACL, "host": "10.1.2.3", **fields})
    assert answer.status == 422
    assert problem in unescape(answer.text)
    assert 'value="10.1.2.3"' in answer.text


def test_a_server_without_an_authorizer_is_explained(console: Console) -> None:
    page = console.get("/acls")
    assert page.status == 200
    assert "The server has no authorizer" in page.text
    assert "Add an ACL" not in page.text
    assert "SECURITY_DISABLED" in console.post("/acls", ACL).text


def test_users_are_set_and_removed_and_passwords_are_not_shown(console: Console, name: str) -> None:
    fields = {"action": "set", "name": name, "password": "s3cret-word", "mechanism": "SCRAM-SHA-256"}
    answer = console.post("/users", {**fields, "iterations": "5000"})
    assert answer.status == 303, answer.text
    wait_until(lambda: [name, "SCRAM-SHA-256", "5\u202f000"] in [row[:3] for row in rows(console, "/users")])
    refused = console.post("/users", {**fields, "iterations": "1"})
    assert refused.status == 422
    assert "is not from 4096 to 16384" in refused.text
    assert "s3cret-word" not in refused.text
    assert f'value="{name}"' in refused.text
    removal = {"action": "remove", "name": name, "mechanism": "SCRAM-SHA-256"}
    assert console.post("/users", removal).status == 303
    wait_until(lambda: name not in console.get("/users").text)
    again = console.post("/users", removal)
    assert (again.status, "there is no such credential" in again.text) == (422, True)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"name": ""}, "the name of the user is missing"),
        ({"password": ""}, "the password is missing"),
        ({"mechanism": "PLAIN"}, "the mechanism 'PLAIN' is not one of SCRAM-SHA-256, SCRAM-SHA-512"),
        ({"iterations": "many"}, "is not a number"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else None,
)
def test_a_wrong_user_is_explained(console: Console, fields: dict[str, str], problem: str) -> None:
    right = {"action": "set", "name": "x", "password": "x", "mechanism": "SCRAM-SHA-256", "iterations": "4096"}
    answer = console.post("/users", {**right, **fields})
    assert (answer.status, problem in unescape(answer.text)) == (422, True), answer.text


def test_quotas_are_set_and_removed(console: Console, name: str) -> None:
    quota = {"action": "set", "key": "producer_byte_rate", "value": "1000000", "user": name, "client_id": "*"}
    answer = console.post("/quotas", quota)
    assert answer.status == 303, answer.text
    entity = f"client-id *, user {name}"
    expected = [entity, "producer_byte_rate", "1000000", "bytes/s"]
    wait_until(lambda: expected in [row[:4] for row in rows(console, "/quotas")])
    assert console.post("/quotas", {**quota, "action": "remove"}).status == 303
    wait_until(lambda: entity not in console.get("/quotas").text)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"user": ""}, "name a user, a client id, or both"),
        ({"value": "much"}, "the value 'much' is not a number above 0"),
        ({"value": "-1"}, "the value '-1' is not a number above 0"),
        ({"value": "inf"}, "the value 'inf' is not a number above 0"),
        ({"key": "speed"}, "the key 'speed' is not one of"),
        ({"key": "connection_creation_rate"}, "INVALID_REQUEST"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else None,
)
def test_a_wrong_quota_is_explained(console: Console, fields: dict[str, str], problem: str) -> None:
    answer = console.post(
        "/quotas", {"action": "set", "key": "producer_byte_rate", "value": "7", "user": "nobody", **fields}
    )
    assert (answer.status, problem in unescape(answer.text)) == (422, True), answer.text


def test_a_console_for_reading_only_lists(new_console: Callable[..., Console], name: str) -> None:
    console = new_console(read_only=True)
    for path in ("/acls", "/users", "/quotas"):
        page = console.get(path)
        assert page.status == 200
        assert 'method="post"' not in page.text

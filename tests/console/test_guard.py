"""Which requests the console refuses."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from .conftest import Console

pytest.importorskip("starlette", reason="needs pip install 'moldau[console]'")

from starlette.routing import Route

from moldau.console.app import routes
from moldau.console.guard import is_this_machine


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.1:8080", "localhost:80", "[::1]:8080", "127.8.8.8"])
def test_names_of_this_machine(host: str) -> None:
    assert is_this_machine(host)


@pytest.mark.parametrize("host", ["", "evil.example", "127.0.0.1.evil.example", "0.0.0.0", "10.0.0.1:80", "[", "a:b:c"])
def test_other_names(host: str) -> None:
    assert not is_this_machine(host)


def test_a_host_that_an_attacker_points_to_this_machine_is_refused(console: Console) -> None:
    answer = console.get("/topics", Host="evil.example")
    assert answer.status == 421
    assert "evil.example" in answer.text


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_a_page_of_another_site_changes_nothing(console: Console, headers: dict[str, str]) -> None:
    answer = console.request("POST", "/topics", b"", headers)
    assert answer.status == 403
    assert "another site" in answer.text


def test_a_console_for_reading_changes_nothing(new_console: Callable[..., Console]) -> None:
    console = new_console(read_only=True)
    answer = console.post("/topics", {"name": "x"})
    assert answer.status == 403
    assert "--read-only" in answer.text
    assert "read-only" in console.get("/topics").text


def test_every_route_that_changes_something_is_refused_for_reading(new_console: Callable[..., Console]) -> None:
    console = new_console(read_only=True)
    changing = [
        (method, re.sub(r"{[^}]*}", "1", route.path))
        for route in routes()
        if isinstance(route, Route)
        for method in sorted((route.methods or set()) - {"GET", "HEAD"})
    ]
    assert len(changing) >= 12
    for method, path in changing:
        answer = console.request(method, path, b"", {"Origin": console.address})
        assert (answer.status, "--read-only" in answer.text) == (403, True), (method, path)


def test_every_route_names_its_methods() -> None:
    """Without methods, Starlette passes GET only to functions, but all methods to other endpoints."""
    methods = {method for route in routes() if isinstance(route, Route) for method in route.methods or {"missing"}}
    assert methods == {"GET", "HEAD", "POST"}


def test_no_page_of_a_console_for_reading_has_a_form_that_changes_something(
    new_console: Callable[..., Console], new_topic: Callable[..., str], bootstrap_servers: str
) -> None:
    console = new_console(read_only=True)
    topic = new_topic()
    paths = ["/", "/topics", "/groups", "/transactions", "/clients", "/schemas", "/acls", "/users", "/quotas"]
    paths += [f"/topics/{topic}{suffix}" for suffix in ("", "/search", "/live", "/partitions", "/settings")]
    for path in paths:
        page = console.get(path)
        assert (page.status, 'method="post"' in page.text) == (200, False), path
    for path in ("/create-topic", f"/topics/{topic}/send"):  # links to them from a console that may change something
        page = console.get(path)
        assert (page.status, "<form" in page.text, "--read-only" in page.text) == (403, False, True), path
    confluent_kafka = pytest.importorskip("confluent_kafka")
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap_servers, "group.id": f"read-{topic}"})
    consumer.commit(offsets=[confluent_kafka.TopicPartition(topic, 0, 0)], asynchronous=False)
    consumer.close()
    page = console.get(f"/group/reset?id=read-{topic}&way=latest")
    assert (page.status, 'method="post"' in page.text) == (200, False)


def test_a_token_is_needed_and_the_link_with_it_sets_a_cookie(new_console: Callable[..., Console]) -> None:
    console = new_console(token="secret-token")
    assert console.get("/topics").status == 401
    assert console.get("/topics?token=wrong").status == 401
    assert console.get("/topics", Authorization="Bearer wrong").status == 401
    assert console.get("/topics", Authorization="Bearer secret-token").status == 200
    link = console.get("/topics?token=secret-token")
    assert (link.status, link.headers["location"]) == (303, "/topics")
    cookie = link.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert console.get("/topics", Cookie=cookie.split(";")[0]).status == 200
    # With a token, the console has other names than those of this machine.
    assert console.get("/topics", Host="console.example", Authorization="Bearer secret-token").status == 200


@pytest.mark.parametrize("path", ["/topics", "/nowhere", "/static/console.js", "/static/none.css"])
def test_every_response_has_a_policy_against_foreign_content(console: Console, path: str) -> None:
    headers = console.get(path).headers
    assert headers["content-security-policy"].startswith("default-src 'self';")
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"


def test_an_origin_that_is_no_address_and_a_form_with_too_many_fields_are_refused(console: Console) -> None:
    assert console.request("POST", "/users", b"", {"Origin": "http://["}).status == 403
    answer = console.request("POST", "/users", b"&".join([b"a=1"] * 1001), {"Origin": console.address})
    assert (answer.status, "more than 1000 fields" in answer.text) == (400, True)

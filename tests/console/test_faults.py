"""The screen of faults, with the control of a server."""

from __future__ import annotations

from collections.abc import Callable
from html import unescape

import pytest

from moldau.protocol.errors import ErrorCode
from moldau.testing.builders import batch, produce
from moldau.testing.wire import WireClient

from .conftest import Console
from .test_groups import offsets as cells

ADD = {"action": "add", "kind": "error", "error": "NOT_LEADER_OR_FOLLOWER", "api": "Produce", "topic": "events"}


@pytest.fixture
def console(new_console: Callable[..., Console], controlled: tuple[str, int]) -> Console:
    pytest.importorskip("starlette", reason="needs pip install 'moldau[console]'")
    from moldau.console.faults import Control

    address, port = controlled
    return new_console(address, control=Control("127.0.0.1", port))


def test_a_fault_affects_requests_until_it_is_removed(console: Console, controlled: tuple[str, int]) -> None:
    assert 'href="/faults"' in console.get("/topics").text
    answer = console.post("/faults", {**ADD, "times": "5"})
    assert answer.status == 303, answer.text
    with WireClient(controlled[0]) as wire:
        assert produce(wire, "events", batch(b"a")).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        text = "respond with an error NOT_LEADER_OR_FOLLOWER to Produce requests for the topic events 5 times"
        ((fault, triggered, _remove),) = cells(console.get("/faults").text)
        assert (fault, triggered) == (text, "1")
        page = console.get("/faults").text
        number = page.split('name="fault" value="')[1].partition('"')[0]
        assert console.post("/faults", {"action": "remove", "fault": number}).status == 303
        assert produce(wire, "events", batch(b"a")).error_code == 0
    assert "has added no faults" in console.get("/faults").text


def test_all_faults_are_removed(console: Console) -> None:
    for kind in ("delay", "blackhole"):
        fields = {"action": "add", "kind": kind, "milliseconds": "5", "api": "Fetch", "client_id": "absent"}
        assert console.post("/faults", fields).status == 303
    assert len(cells(console.get("/faults").text)) == 2
    assert console.post("/faults", {"action": "clear"}).status == 303
    assert "has added no faults" in console.get("/faults").text


def test_the_clock_is_moved_and_retention_applied(console: Console) -> None:
    assert console.post("/faults", {"action": "advance", "seconds": "7200"}).status == 303
    assert "The server is 2 h ahead" in console.get("/faults?done=advance").text
    assert console.post("/faults", {"action": "retention"}).status == 303


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({**ADD, "kind": "explode"}, "is no kind of a fault"),
        ({**ADD, "error": "NO_SUCH_ERROR"}, "NO_SUCH_ERROR"),
        ({**ADD, "kind": "delay", "milliseconds": ""}, "is not a number"),
        ({"action": "advance", "seconds": "-1"}, "is not a number"),
        ({"action": "expire", "group": "none", "member": "none"}, "COORDINATOR_NOT_AVAILABLE"),
        ({"action": "dance"}, "is no action"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_wrong_action_is_explained(console: Console, fields: dict[str, str], problem: str) -> None:
    answer = console.post("/faults", fields)
    status = 502 if problem in ("NO_SUCH_ERROR", "COORDINATOR_NOT_AVAILABLE") else 400
    assert (answer.status, problem in unescape(answer.text)) == (status, True), answer.text


def test_a_console_without_control_has_no_faults(
    new_console: Callable[..., Console], controlled: tuple[str, int]
) -> None:
    console = new_console(controlled[0])
    assert "/faults" not in console.get("/topics").text
    assert console.get("/faults").status == 404
    assert console.post("/faults", ADD).status == 404

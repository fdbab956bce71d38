"""The generator of many small requests: which connection sends which request, and that every response is checked."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from moldau.benchmarks.group_load import ANY_ANSWER, HEARTBEAT_VERSION, Pair, pair
from moldau.protocol.codec import decode_at
from moldau.protocol.messages.headers import RequestHeader
from moldau.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

from .generators import Stub, compiled, refused, run_generator

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the benchmarks use epoll and /proc")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled("group_load", tmp_path_factory.mktemp("programs"))


class Coordinator(Stub):
    """Accepts heartbeats, and sends the configured responses; without a response it disconnects."""

    def __init__(self, answer: Callable[[HeartbeatRequest], HeartbeatResponse | None]) -> None:
        super().__init__()
        self.heard: list[list[str]] = []
        """The members of each connection, in the order of their requests."""
        self._answer = answer

    def serve(self, connection: socket.socket) -> None:
        heard: list[str] = []
        self.heard.append(heard)
        with connection.makefile("rb") as frames:
            while size := frames.read(4):
                frame = frames.read(int.from_bytes(size, "big"))
                header, start = decode_at(RequestHeader, frame, 2, 0)
                request, _ = decode_at(HeartbeatRequest, frame, HEARTBEAT_VERSION, start)
                heard.append(request.member_id)
                answer = self._answer(request)
                if answer is None:
                    return
                encoded = bytearray(pair(request, answer, HEARTBEAT_VERSION).answer)
                encoded[4:8] = header.correlation_id.to_bytes(4, "big", signed=True)
                connection.sendall(encoded)


def heartbeat(member_id: str) -> HeartbeatRequest:
    return HeartbeatRequest(group_id="group", generation_id=1, member_id=member_id)


def heartbeats(*members: str) -> list[Pair]:
    return [pair(heartbeat(member), HeartbeatResponse(), HEARTBEAT_VERSION) for member in members]


def given(pairs: Sequence[Pair]) -> bytes:
    return b"".join(each.request + each.answer for each in pairs)


def run(program: Path, coordinator: Coordinator, pairs: Sequence[Pair], *options: object) -> dict[str, Any]:
    return run_generator(program, given(pairs), coordinator.address, *options)


@pytest.fixture
def content() -> Iterator[Coordinator]:
    with Coordinator(lambda _request: HeartbeatResponse()) as coordinator:
        yield coordinator


def test_each_connection_sends_its_own_requests_in_turn(program: Path, content: Coordinator) -> None:
    pairs = heartbeats("a", "b", "c", "d", "e")
    result = run(program, content, pairs, "--connections", 2, "--requests", 40)
    assert result["requests"] == 40
    assert result["bytes_sent"] == 40 * len(pairs[0].request)
    assert result["bytes_received"] == 40 * len(pairs[0].answer)
    first, second = sorted(content.heard)
    assert first == (["a", "c", "e"] * 14)[: len(first)]
    assert second == (["b", "d"] * 20)[: len(second)]
    assert len(first) + len(second) == 40


def test_stops_at_the_time_limit(program: Path, content: Coordinator) -> None:
    result = run(program, content, heartbeats("a"), "--seconds", 0.2)
    assert result["seconds"] >= 0.2
    assert result["requests"] > 2


@pytest.mark.parametrize(
    "wrong", [HeartbeatResponse(error_code=27), HeartbeatResponse(throttle_time_ms=1)], ids=["error", "throttled"]
)
def test_an_unexpected_response_is_a_failure(program: Path, wrong: HeartbeatResponse) -> None:
    def answer(request: HeartbeatRequest) -> HeartbeatResponse:
        return wrong if request.member_id == "b" else HeartbeatResponse()

    with Coordinator(answer) as coordinator, pytest.raises(subprocess.CalledProcessError) as failed:
        run(program, coordinator, heartbeats("a", "b", "c"), "--requests", 10)
    assert failed.value.returncode == 1
    assert b"answer 2 is another one" in failed.value.stderr


def test_any_response_is_accepted_if_none_is_expected(program: Path) -> None:
    pairs = [Pair(each.request, ANY_ANSWER) for each in heartbeats("a")]
    with Coordinator(lambda _request: HeartbeatResponse(error_code=27)) as coordinator:
        assert run(program, coordinator, pairs, "--requests", 10)["requests"] == 10


def test_a_closed_connection_is_a_failure(program: Path) -> None:
    with Coordinator(lambda _request: None) as coordinator, pytest.raises(subprocess.CalledProcessError) as failed:
        run(program, coordinator, heartbeats("a"), "--requests", 10)
    assert failed.value.returncode == 1
    assert b"closed" in failed.value.stderr or b"reset" in failed.value.stderr


@pytest.mark.parametrize(
    ("options", "members"),
    [
        ((), "ab"),
        (("--requests", "1", "--seconds", "1"), "ab"),
        (("--requests", "0"), "ab"),
        (("--requests", "1", "--connections", "3"), "ab"),
        (("--nonsense",), "ab"),
        (("--requests", "1"), ""),
    ],
)
def test_invalid_arguments_are_rejected(program: Path, options: tuple[str, ...], members: str) -> None:
    refused(program, given(heartbeats(*members)), *options)


def test_a_request_without_a_response_is_rejected(program: Path) -> None:
    (lonely,) = heartbeats("a")
    assert b"without its answer" in refused(program, lonely.request, "--requests", "1")

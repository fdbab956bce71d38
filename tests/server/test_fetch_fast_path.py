"""The fast path for fetches returns the same responses as the slow path and leaves the session in the same state.

The first request of a connection takes the slow path, so tests compare with a new connection for each request.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from moldau.log.descriptors import ColdRead
from moldau.log.verification import DISABLED
from moldau.protocol.api import ApiKey, request_header_version
from moldau.protocol.codec import encode
from moldau.protocol.messages.delete_topics import DeleteTopicsRequest
from moldau.protocol.messages.fetch import FetchPartition, ForgottenTopic
from moldau.protocol.messages.headers import RequestHeader
from moldau.server.requests.fetch_fast_path import MAX_UNUSED, FetchFastPath
from moldau.testing.builders import batch, fetch, fetch_request, produce, values
from moldau.testing.wire import WireClient

from .conftest import RunningServer

VERSIONS = range(4, 19)
READ_COMMITTED = 1
TOPIC = "topic"


@pytest.fixture
def fast_responses(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The number of requests that the fast path served."""
    counted = []
    serve = FetchFastPath.serve

    def counting(self: Any, *args: Any) -> Any:
        parts = serve(self, *args)
        if parts is not None:
            counted.append(parts)
        return parts

    monkeypatch.setattr(FetchFastPath, "serve", counting)
    return counted


def frame_of(request: Any, version: int, correlation_id: int = 0, client_id: str = "consumer") -> Any:
    header = RequestHeader(
        request_api_key=ApiKey.FETCH,
        request_api_version=version,
        correlation_id=correlation_id,
        client_id=client_id,
    )
    return encode(header, request_header_version(ApiKey.FETCH, version)) + encode(request, version)


def named(request: Any, version: int, topic_id: Any) -> Any:
    """The request with topics by name or by id, as the version requires."""
    for topic in (*request.topics, *request.forgotten_topics_data):
        if version >= 13:
            topic.topic, topic.topic_id = "", topic_id
        else:
            topic.topic_id = bytes(16)
    return request


def answer_to(wire: WireClient, frame: Any) -> Any:
    wire.send_frame(frame)
    return wire.receive_frame()


@pytest.fixture
def topic(server: RunningServer) -> Any:
    """A topic of two partitions on a server that has served a fetch: the very first fetch takes another path."""
    topic_id = server.create_topic(TOPIC, 2)
    with server.wire() as wire:
        fetch(wire, TOPIC)
    return topic_id


def fill(server: RunningServer) -> Any:
    """Append batches of many sizes and transactions: committed ones, aborted ones, and an open one at the end."""
    partition = server.partition(TOPIC, 0)
    pick = random.Random(0)

    def append(*payload: Any, **options: Any) -> None:
        partition.append(batch(*payload, **options), acks=1, now_ms=server.broker.now_ms(), verification=DISABLED)

    def some() -> None:
        for _ in range(20):
            append(*[b"v" * pick.choice((1, 90, 20_000, 70_000)) for _ in range(pick.randrange(1, 4))])

    def fill() -> None:
        some()
        for epoch, committed in enumerate((True, False, None)):
            transaction = {"producer_id": 7, "producer_epoch": epoch, "transactional": True}
            append(b"of a transaction", base_sequence=0, **transaction)
            some()
            if committed is not None:
                partition.append_marker(
                    7,
                    epoch + 1,
                    coordinator_epoch=0,
                    committed=committed,
                    transaction_version=2,
                    now_ms=server.broker.now_ms(),
                )

    server.call(fill)
    return server.call(lambda: partition.log.log_end_offset)


class Traffic:
    """Fetches as consumers of one partition send them, most of them ordinary, some with random oddities."""

    def __init__(self, seed: Any, version: int, end_offset: int) -> None:
        self.random = random.Random(seed)
        self.version = version
        self.end_offset = end_offset
        self.usual = self.options()

    def options(self) -> dict[Any, Any]:
        pick = self.random
        return {
            "min_bytes": pick.choice((0, 1, 1, 1, 30_000)),
            "max_bytes": pick.choice((1 << 20, 1 << 20, 1000, 0)),
            "partition_max_bytes": pick.choice((1 << 20, 100_000, 10)),
            "isolation_level": pick.choice((0, READ_COMMITTED)),
        }

    def request(self) -> Any:
        pick = self.random
        if pick.random() < 0.04:
            self.usual = self.options()
        options = dict(self.usual)
        isolation_level = options.pop("isolation_level")
        request = fetch_request(TOPIC, pick.randrange(self.end_offset), **options)
        request.isolation_level = isolation_level
        (wanted,) = request.topics[0].partitions
        odd = pick.random()
        if odd < 0.03:
            wanted.fetch_offset = pick.choice((-1, self.end_offset, self.end_offset + 1))
        elif odd < 0.06:
            request.topics[0].partitions.append(FetchPartition(partition=1, partition_max_bytes=1000))
        elif odd < 0.08:
            wanted.partition = pick.choice((1, 77))
        elif odd < 0.10:
            wanted.current_leader_epoch = pick.choice((0, 0, 3))
        elif odd < 0.12 and self.version >= 12:
            wanted.last_fetched_epoch = 0
        elif odd < 0.14 and self.version < 15:
            request.replica_id = 1
        elif odd < 0.16 and self.version >= 11:
            request.rack_id = "r"
        elif odd < 0.17:
            request.isolation_level = 9
        return request


@pytest.mark.parametrize("version", VERSIONS)
def test_the_fast_path_returns_the_same_responses_as_the_slow_path(
    server: RunningServer, fast_responses: Any, version: Any
) -> None:
    topic_id = server.create_topic(TOPIC, 2)
    traffic = Traffic(version, version, fill(server))
    requests = 300
    with server.wire() as wire:
        for number in range(requests):
            client_id = "another" if number % 50 == 49 else "consumer"
            frame = frame_of(named(traffic.request(), version, topic_id), version, number, client_id)
            if version >= 12 and number % 40 == 39:
                frame = frame[:-1] + b"\x01\x63\x02xx"  # an unknown tagged field
            answer = answer_to(wire, frame)
            taken = len(fast_responses)
            with server.wire() as another:
                assert answer == answer_to(another, frame), number
            assert len(fast_responses) == taken
    # Many take the slow path because of aborted transactions and the limits of partitions.
    assert len(fast_responses) > 60 if version >= 7 else not fast_responses


@pytest.mark.parametrize("version", range(7, 19))
def test_a_session_continues_as_on_the_slow_path(server: RunningServer, fast_responses: Any, version: int) -> None:
    topic_id = server.create_topic(TOPIC, 2)
    traffic = Traffic(version, version, fill(server))
    pick = random.Random(version)
    session_ids = [0, 0]
    epoch = 0

    def state(session_id: int) -> Any:
        session = server.broker.fetch_sessions.get(session_id)
        if session is None:
            return None
        return session.epoch, [
            [getattr(wanted, name) for name in type(wanted).__slots__] for wanted in session.partitions.values()
        ]

    with server.wire() as wire:
        for number in range(400):
            request = traffic.request()
            request.session_epoch = epoch + (pick.random() < 0.03)
            if epoch and pick.random() < 0.05:
                request.topics.clear()  # clients send this if nothing has changed
            elif pick.random() < 0.15:
                request.forgotten_topics_data = [ForgottenTopic(topic=TOPIC, partitions=[1])]
            named(request, version, topic_id)
            answers = []
            for which, session_id in enumerate(session_ids):
                request.session_id = session_id
                frame = frame_of(request, version, number)
                if which == 0:
                    answer = answer_to(wire, frame)
                else:
                    with server.wire() as another:
                        answer = answer_to(another, frame)
                start = 4 + (version >= 12) + 4 + 2  # correlation id, tags, throttle time, error
                found = int.from_bytes(answer[start : start + 4], "big")
                if not epoch:
                    session_ids[which] = found
                answers.append(answer[:start] + answer[start + 4 :])
                assert found in (session_ids[which], 0)
            assert answers[0] == answers[1], number
            states = [server.call(lambda session_id=session_id: state(session_id)) for session_id in session_ids]  # type: ignore[misc]
            assert states[0] == states[1], number
            epoch = 0 if states[0] is None else states[0][0]
            if pick.random() < 0.02:
                epoch = 0  # the consumer starts again
                session_ids = [0, 0]
    assert len(fast_responses) > 40


def test_a_session_that_another_connection_has_continued_is_rejected(
    server: RunningServer, topic: str, fast_responses: Any
) -> None:
    with server.wire() as wire, server.wire() as another:
        for _ in range(4):
            produce(wire, TOPIC, batch(b"x"))

        def ask(connection: Any, epoch: Any, *, session_id: int = 0, partitions: Any = (0,), offset: int = 0) -> Any:
            request = fetch_request(TOPIC, offset)
            request.session_id, request.session_epoch = session_id, epoch
            request.topics[0].partitions = [
                FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1000) for index in partitions
            ]
            return connection.call(request, 12)

        session_id = ask(wire, 0).session_id
        for epoch in (1, 2, 3):
            ask(wire, epoch, session_id=session_id, offset=epoch)
        assert len(fast_responses) == 2
        assert ask(another, 4, session_id=session_id, partitions=(0, 1)).error_code == 0
        assert ask(wire, 4, session_id=session_id).error_code == 71  # INVALID_FETCH_SESSION_EPOCH
        (answered,) = ask(wire, 5, session_id=session_id).responses  # the session has two partitions now
        assert [data.partition_index for data in answered.partitions] == [0]
        assert len(fast_responses) == 2
        assert ask(another, -1, session_id=session_id).session_id == 0
        assert ask(wire, 6, session_id=session_id).error_code == 70  # FETCH_SESSION_ID_NOT_FOUND


def test_a_topic_that_was_deleted_and_recreated_is_found(
    server: RunningServer, topic: str, fast_responses: Any
) -> None:
    with server.wire() as wire:
        produce(wire, TOPIC, batch(b"old"))
        for _ in range(3):
            assert values(fetch(wire, TOPIC)) == [b"old"]
        wire.call(DeleteTopicsRequest(topic_names=[TOPIC], timeout_ms=1000), 5)
        assert fetch(wire, TOPIC).error_code == 3
        server.create_topic(TOPIC)
        produce(wire, TOPIC, batch(b"new"))
        for _ in range(3):
            assert values(fetch(wire, TOPIC)) == [b"new"]
    assert len(fast_responses) == 5


def test_cold_data_takes_the_slow_path_and_no_file_is_held(
    server: RunningServer, topic: str, fast_responses: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = server.partition(TOPIC, 0)
    with server.wire() as wire:
        produce(wire, TOPIC, batch(b"x"))
        produce(wire, TOPIC, batch(b"y"))
        for _ in range(3):
            fetch(wire, TOPIC)
        assert len(fast_responses) == 2
        fast_responses.clear()
        read = type(partition).read
        found: list[Any] = []

        def cold_once(self: Any, *args: Any, **options: Any) -> Any:
            fetched = read(self, *args, **options)
            if not found:
                found.append(fetched.records)
                raise ColdRead(fetched.records)  # type: ignore[arg-type]
            return fetched

        monkeypatch.setattr(type(partition), "read", cold_once)
        assert values(fetch(wire, TOPIC)) == [b"x", b"y"]
        assert not fast_responses
        with pytest.raises(ValueError, match="was released"):
            _ = found[0].fd
        # Less than the client requests; this is released as well.
        request = fetch_request(TOPIC, 0, min_bytes=100)
        wire.call(request, 12)
        for offset in (0, 1):
            request.topics[0].partitions[0].fetch_offset = offset
            wire.call(request, 12)
        assert len(fast_responses) == 1
        fast_responses.clear()
    open_file = partition.log.segments.active.open_file
    assert server.call(lambda: open_file.references) == 1  # type: ignore[union-attr]


def test_an_overlong_encoding_of_a_length_takes_the_slow_path(
    server: RunningServer, topic: str, fast_responses: Any
) -> None:
    with server.wire() as wire:
        for _ in range(300):
            produce(wire, TOPIC, batch(b"x"))
        for offset in (0, 0, 256, 5):
            frame = frame_of(fetch_request(TOPIC, offset), 12)
            name = frame.index(b"\2\6topic")
            answer = answer_to(wire, frame[:name] + b"\x82\0" + frame[name + 1 :])
            with server.wire() as another:
                assert answer == answer_to(another, frame)
    assert not fast_responses


def test_the_fast_path_ends_for_a_client_that_never_repeats_a_request(
    server: RunningServer, topic: str, fast_responses: Any
) -> None:
    with server.wire() as wire:
        produce(wire, TOPIC, batch(b"x"))
        for number in range(MAX_UNUSED + 1):
            fetch(wire, TOPIC, max_bytes=1000 + number)
        fetch(wire, TOPIC, max_bytes=1000 + MAX_UNUSED)
    assert not fast_responses


def test_the_fast_path_continues_for_a_client_that_repeats_requests(
    server: RunningServer, topic: str, fast_responses: Any
) -> None:
    with server.wire() as wire:
        produce(wire, TOPIC, batch(b"x"))
        for number in range(3 * MAX_UNUSED):
            fetch(wire, TOPIC, max_bytes=1000 + number)
            fetch(wire, TOPIC, max_bytes=1000 + number)
    assert len(fast_responses) == 3 * MAX_UNUSED


def test_a_new_limit_of_response_sizes_takes_effect_immediately(
    server: RunningServer, topic: str, fast_responses: Any
) -> None:
    with server.wire() as wire:
        for _ in range(10):
            produce(wire, TOPIC, batch(b"x" * 1000))
        for _ in range(2):
            whole = len(fetch(wire, TOPIC).records)  # type: ignore[arg-type]
        server.call(lambda: setattr(server.broker, "fetch_max_bytes", 2500))
        assert len(fetch(wire, TOPIC).records) == 2500 < whole  # type: ignore[arg-type]
    assert len(fast_responses) == 2

"""Errors in the middle of requests: no client hangs, no resource leaks, and other clients are served."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import GeneratorType
from typing import Any

import pytest

from moldau.log.descriptors import FileRange
from moldau.protocol.api import request_class
from moldau.protocol.compression import Codec
from moldau.protocol.errors import ErrorCode, KafkaError
from moldau.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from moldau.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from moldau.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from moldau.protocol.messages.metadata import MetadataRequest
from moldau.protocol.samples import Samples
from moldau.protocol.steps import completed
from moldau.server.apis import APIS
from moldau.server.requests.dispatch import Route
from moldau.testing.builders import batch, fetch, fetch_request, produce, produce_request, values

from .conftest import RunningServer


def partition_of(server: RunningServer, topic: str = "t", index: int = 0) -> Any:
    return server.partition(topic, index)


def open_references(server: RunningServer, topic: str = "t", index: int = 0) -> Any:
    """The number of references to the active segment's open file, without that of the cache."""
    log = partition_of(server, topic, index).log
    open_file = log.segments.active.open_file
    return 0 if open_file is None else open_file.references - 1


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.key.name)
def test_every_version_of_every_api_has_an_error_response(api: Any) -> None:
    for version in range(max(api.min_version, api.lowest_served), api.max_version + 1):
        route = Route(api, version)
        for seed in range(5):
            request = Samples(seed, null_probability=0).message(request_class(api.key), version)
            if api.key.name in ("FIND_COORDINATOR", "ELECT_LEADERS") and not _can_fail(request, version):
                continue
            answer = route.failed(request, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "why"))
            if isinstance(answer, GeneratorType):
                answer = completed(answer)
            route.encode_response(1, answer)


def _can_fail(request: Any, version: int) -> Any:
    """Whether the response has a place for an error. Two APIs have no error except for each requested item."""
    return version > 0 and bool(getattr(request, "coordinator_keys", True) or version < 4)


def test_random_requests_of_every_api_and_version_get_a_response(
    server: RunningServer, caplog: pytest.LogCaptureFixture
) -> None:
    """Random requests, most of them invalid: each gets a response, and none is an internal error."""
    server.create_topic("t")
    for seed in range(3):
        for api in APIS:
            for version in range(max(api.min_version, api.lowest_served), api.max_version + 1):
                request = Samples(seed).message(request_class(api.key), version)
                if isinstance(request, FetchRequest):
                    request.max_wait_ms = min(request.max_wait_ms, 5)
                if getattr(request, "acks", 1) == 0:
                    request.acks = 1  # type: ignore[attr-defined]
                with server.wire() as wire:
                    wire.call(request, version)
    assert "failed with an unexpected error" not in caplog.text


class UnexpectedError(RuntimeError):
    pass


def wait_for_waiter(server: RunningServer, topic: str = "t") -> None:
    server.wait_until(lambda: partition_of(server, topic).waiters)


def test_a_waiting_fetch_that_fails_gets_an_error_and_its_connection_stays_open(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    server.create_topic("t")
    partition = partition_of(server)
    with server.wire() as consumer, server.wire() as producer:
        consumer.send(fetch_request("t", max_wait_ms=20_000), 12)
        wait_for_waiter(server)

        def broken(*_: Any, **__: Any) -> None:
            raise UnexpectedError

        monkeypatch.setattr(type(partition), "read", broken)
        produce(producer, "t", batch(b"x"))
        answer = consumer.receive()
        assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        monkeypatch.undo()
        assert values(fetch(consumer, "t")) == [b"x"]
    assert "failed with an unexpected error" in caplog.text


def test_a_waiting_fetch_whose_response_cannot_be_encoded_gets_an_error(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.create_topic("t")
    with server.wire() as consumer, server.wire() as producer:
        consumer.send(fetch_request("t", max_wait_ms=20_000), 12)
        wait_for_waiter(server)
        encode = Route.encode_response
        broken: list[Any] = []

        def once(route: Any, correlation_id: int, response: Any) -> Any:
            if route.api.key.name == "FETCH" and not broken:
                broken.append(response)
                response.responses[0].partitions[0].high_watermark = "not a number"
            return encode(route, correlation_id, response)

        monkeypatch.setattr(Route, "encode_response", once)
        produce(producer, "t", batch(b"x"))
        assert consumer.receive().error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert values(fetch(consumer, "t")) == [b"x"]


def test_ranges_that_were_read_are_released_when_a_later_partition_fails(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.create_topic("t", partitions=2)
    with server.wire() as wire:
        produce(wire, "t", batch(b"x"))
        partition = partition_of(server)
        read = type(partition).read

        def broken(self: Any, *args: Any, **options: Any) -> Any:
            if self.index == 1:
                raise UnexpectedError
            return read(self, *args, **options)

        monkeypatch.setattr(type(partition), "read", broken)
        both = [FetchPartition(partition=i, partition_max_bytes=1000) for i in (0, 1)]
        request = FetchRequest(max_bytes=1000, min_bytes=1, topics=[FetchTopic(topic="t", partitions=both)])
        answer = wire.call(request, 12)
        assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert [p.error_code for p in answer.responses[0].partitions] == [ErrorCode.UNKNOWN_SERVER_ERROR] * 2
    assert open_references(server) == 0


def test_a_range_is_released_with_its_last_reference(server: RunningServer) -> None:
    server.create_topic("t")
    with server.wire() as wire:
        produce(wire, "t", batch(b"x"))

    def read() -> None:
        found = partition_of(server).read(0, 1000, isolation_level=0, min_one_batch=True)
        assert isinstance(found.records, FileRange)
        assert open_references(server) == 1

    server.call(read)
    assert server.call(lambda: open_references(server)) == 0


def test_a_shutdown_completes_waiting_fetches(server: RunningServer, monkeypatch: pytest.MonkeyPatch) -> None:
    # The grace period is for peers that do not read. If the shutdown waited for it here, the test would fail.
    monkeypatch.setattr("moldau.server.nodes.server.CLOSE_GRACE_SECONDS", 600)
    server.create_topic("t")
    with server.wire() as consumer:
        consumer.send(fetch_request("t", max_wait_ms=60_000), 12)
        wait_for_waiter(server)
        server.stop()
        assert len(consumer.receive().responses[0].partitions[0].records) == 0
        assert consumer.closed_by_server()


# -- appends that go through a thread ----------------------------------------------------------------------------------


@pytest.fixture
def blocked(server: RunningServer) -> Iterator[Any]:
    """The threads of the codecs are blocked until the event is set."""
    release = threading.Event()
    started = threading.Barrier(3)

    def wait() -> None:
        started.wait(60)
        release.wait(60)

    for _ in range(2):
        server.call(lambda: server.broker._codecs.run(wait))
    started.wait(60)
    yield release
    release.set()


def test_pending_appends_fail_when_their_topic_is_deleted(server: RunningServer, blocked: Any) -> None:
    server.create_topic("t", compression_type="zstd")
    server.create_topic("u")
    with server.wire() as producer, server.wire() as admin:
        producer.send(produce_request("t", batch(b"x" * 10_000)), 9)
        producer.send(produce_request("t", batch(b"small")), 9)
        server.wait_until(lambda: len(server.broker.appends._queues) == 1)
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=1000)
        assert admin.call(request, 6).responses[0].error_code == 0
        assert produce(admin, "u", batch(b"others go on")).error_code == 0
        blocked.set()
        for _ in range(2):
            answer = producer.receive().responses[0].partition_responses[0]
            assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert server.call(lambda: len(server.broker.appends._queues)) == 0


def test_a_pending_append_completes_after_its_producer_disconnects(server: RunningServer, blocked: Any) -> None:
    server.create_topic("t", compression_type="zstd")
    with server.wire() as producer:
        producer.send(produce_request("t", batch(b"x" * 100_000)), 9)
        server.wait_until(lambda: len(server.broker.appends._queues) == 1)
    blocked.set()
    server.wait_until(lambda: not server.broker.appends._queues)
    server.wait_until(lambda: server.network.budget.used_bytes == 0)
    with server.wire() as wire:
        assert values(fetch(wire, "t")) == [b"x" * 100_000]


def test_an_append_whose_callback_raises_does_not_block_later_appends(
    server: RunningServer, blocked: Any, caplog: pytest.LogCaptureFixture
) -> None:
    server.create_topic("t", compression_type="zstd")
    partition = partition_of(server)
    done: list[Any] = []

    def unreachable(_error: Any) -> None:
        raise UnexpectedError

    def append(prepared: Any, *, validated: Any) -> None:
        partition.append(prepared, acks=1, now_ms=server.broker.now_ms(), validated=validated)

    def submit() -> None:
        queues = server.broker.appends
        queues.submit(partition, batch(b"x" * 10_000), append, unreachable)  # type: ignore[arg-type]
        queues.submit(partition, b"malformed", append, done.append)  # type: ignore[arg-type]
        queues.submit(partition, batch(b"y"), append, done.append)  # type: ignore[arg-type]

    server.call(submit)
    blocked.set()
    server.wait_until(lambda: not server.broker.appends._queues)
    assert [error and error.code for error in done] == [ErrorCode.INVALID_RECORD, None]
    assert "Completing an append failed" in caplog.text
    with server.wire() as wire:
        assert values(fetch(wire, "t")) == [b"x" * 10_000, b"y"]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_a_partition_may_occur_twice_in_a_request(server: RunningServer, codec: Codec) -> None:
    server.create_topic("t", compression_type="lz4")
    twice = produce_request("t", batch(b"a" * 10_000, codec=codec))
    twice.topic_data[0].partition_data.append(produce_request("t", batch(b"b")).topic_data[0].partition_data[0])
    with server.wire() as wire:
        answer = wire.call(twice, 9)
        assert [p.base_offset for p in answer.responses[0].partition_responses] == [0, 1]
        assert values(fetch(wire, "t")) == [b"a" * 10_000, b"b"]


# -- applying metadata changes -----------------------------------------------------------------------------------------


def test_an_error_in_one_topic_does_not_prevent_changes_of_others(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    create = type(server.broker.log_manager).get_or_create

    def broken(self: Any, topic: str, *args: Any, **options: Any) -> Any:
        if topic == "bad":
            raise UnexpectedError
        return create(self, topic, *args, **options)

    monkeypatch.setattr(type(server.broker.log_manager), "get_or_create", broken)
    topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in ("a", "bad", "z")]
    with server.wire() as wire:
        wire.call(CreateTopicsRequest(topics=topics), 7)
        assert produce(wire, "a", batch(b"x")).error_code == 0
        assert produce(wire, "z", batch(b"x")).error_code == 0
        # The cluster has the partition, and this broker does not: clients try again.
        assert produce(wire, "bad", batch(b"x")).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert "Updating the partitions of bad failed" in caplog.text
    monkeypatch.undo()
    server.restart()
    with server.wire() as wire:
        assert produce(wire, "bad", batch(b"x")).error_code == 0


def test_a_partition_that_cannot_be_deleted_does_not_keep_the_others(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("a", "b"):
        server.create_topic(name, partitions=2)
    delete = type(server.broker.log_manager).delete

    def broken(self: Any, topic: str, index: int) -> Any:
        if (topic, index) == ("a", 0):
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "made up by the test")
        return delete(self, topic, index)

    monkeypatch.setattr(type(server.broker.log_manager), "delete", broken)
    with server.wire() as wire:
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=n) for n in ("a", "b")], timeout_ms=1000)
        assert [r.error_code for r in wire.call(request, 6).responses] == [0, 0]
        assert wire.call(MetadataRequest(topics=None), 12).topics == []
    assert server.call(lambda: list(server.broker.replicas)) == []
    assert "made up by the test" in caplog.text


def test_housekeeping_does_not_run_twice_at_the_same_time(server: RunningServer) -> None:
    housekeeping = server.broker.housekeeping
    release = []
    runs = []

    async def slow() -> None:
        import asyncio

        event = asyncio.Event()
        release.append(event)
        runs.append(1)
        await event.wait()

    server.call(lambda: housekeeping._start("slow", slow))
    server.wait_until(lambda: runs)
    server.call(lambda: housekeeping._start("slow", slow))
    server.call(lambda: release[0].set())
    server.wait_until(lambda: "slow" not in housekeeping._running)
    assert len(runs) == 1
    server.call(lambda: housekeeping._start("slow", slow))
    server.wait_until(lambda: len(runs) == 2)
    server.call(lambda: release[1].set())

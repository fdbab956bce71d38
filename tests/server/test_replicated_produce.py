"""Produce requests with acks=all that wait for a follower: the fast path responds as the slow path does.

The follower is a missing broker; the test moves its position. The first request of a connection takes the slow path.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from moldau.protocol.api import ApiKey, request_header_version
from moldau.protocol.codec import encode
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.headers import RequestHeader
from moldau.protocol.messages.metadata import MetadataRequest
from moldau.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from moldau.server.concurrency.timers import Timer
from moldau.testing.builders import batch
from moldau.testing.wire import WireClient

from .conftest import RunningServer

ABSENT = 77
LONG_MS = 600_000


class Replicated:
    """A topic whose partition has a follower in its in-sync set."""

    def __init__(self, server: RunningServer) -> None:
        self.server = server
        self.topic_id = server.create_topic("t")
        self.partition = server.partition()
        self.epoch = 0x1234_5678  # its bytes are unlikely in a response
        server.call(self.lead)

    def lead(self) -> None:
        """This broker leads in the next epoch."""
        self.epoch += 1
        node_id = self.server.broker.node_id
        self.partition.become_leader(
            leader_epoch=self.epoch,
            partition_epoch=self.epoch,
            replicas=(node_id, ABSENT),
            isr=(node_id, ABSENT),
            now_ms=0,
        )

    def follow(self) -> None:
        """The other broker leads."""
        self.epoch += 1
        node_id = self.server.broker.node_id
        self.partition.become_follower(
            leader_id=ABSENT,
            leader_epoch=self.epoch,
            partition_epoch=self.epoch,
            replicas=(node_id, ABSENT),
            isr=(node_id, ABSENT),
        )

    def await_end(self, offset: int) -> None:
        """Return when the records before this offset are appended."""
        self.server.wait_until(lambda: self.partition.log.log_end_offset >= offset)

    def replicate(self, offset: int | None = None) -> None:
        """The follower has the records before this offset, or all of them."""

        def fetched() -> None:
            end = self.partition.log.log_end_offset if offset is None else offset
            self.partition.follower_fetched(ABSENT, end, now_ms=0, eligible=True)
            self.partition.advance_high_watermark()

        self.server.call(fetched)

    def frame(
        self,
        version: int,
        correlation_id: int,
        *,
        acks: int = -1,
        timeout_ms: int = LONG_MS,
        value: bytes = b"x",
        **options: Any,
    ) -> bytes:
        """A request with its length."""
        data = PartitionProduceData(index=0, records=batch(value, **options))
        topic = TopicProduceData(name="t", partition_data=[data])
        if version >= 13:
            topic = TopicProduceData(topic_id=self.topic_id, partition_data=[data])
        request = ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=[topic])
        header = RequestHeader(
            request_api_key=ApiKey.PRODUCE, request_api_version=version, correlation_id=correlation_id, client_id="p"
        )
        data_bytes = encode(header, request_header_version(ApiKey.PRODUCE, version)) + encode(request, version)
        return len(data_bytes).to_bytes(4, "big") + data_bytes

    def learn(self, wire: WireClient, version: int = 9, **options: Any) -> None:
        """Send a request that takes the slow path, and receive its response."""
        end = self.partition.log.log_end_offset
        wire.send_bytes(self.frame(version, 1, **options))
        self.await_end(end + 1)
        self.replicate()
        wire.receive_frame()

    def names(self) -> list[str]:
        """The kinds of requests in flight, on all connections. To be called on the event loop."""
        return [type(each).__name__ for connection in self.server.network.connections for each in connection._in_flight]

    def places(self) -> list[str]:
        """See `names`."""
        return self.server.call(self.names)


@pytest.fixture
def replicated(server: RunningServer) -> Replicated:
    return Replicated(server)


def test_neighboring_requests_wait_in_one_place_and_are_answered_in_order(replicated: Replicated) -> None:
    with replicated.server.wire() as wire:
        replicated.learn(wire)
        wire.send_bytes(b"".join(replicated.frame(9, number) for number in range(100, 110)))
        replicated.await_end(11)
        assert set(replicated.places()) == {"_Replicating"}
        assert len(replicated.places()) < 10
        replicated.replicate()
        answers = [wire.receive_frame() for _ in range(10)]
        assert [int.from_bytes(answer[:4], "big") for answer in answers] == list(range(100, 110))
        assert replicated.places() == []


def test_a_request_is_answered_when_its_last_record_is_replicated(replicated: Replicated) -> None:
    with replicated.server.wire() as wire:
        replicated.learn(wire)
        for number in (100, 101):
            wire.send_bytes(replicated.frame(9, number, value=b"y" * 70_000))  # each is received alone
            replicated.await_end(number - 98)
        assert replicated.places() == ["_Replicating"] * 2
        replicated.replicate(1)
        assert replicated.places() == ["_Replicating"] * 2
        replicated.replicate(2)
        assert int.from_bytes(wire.receive_frame()[:4], "big") == 100
        assert replicated.places() == ["_Replicating"]
        replicated.replicate(3)
        assert int.from_bytes(wire.receive_frame()[:4], "big") == 101


class Deadlines:
    """The timers of a broker. The test fires the deadlines of requests."""

    def __init__(self, server: RunningServer) -> None:
        self._server = server
        self._timers = server.broker.timers
        self.due: list[tuple[Timer, Callable[[], None]]] = []
        broker: Any = server.broker
        broker.timers = self

    def __getattr__(self, name: str) -> Any:
        return getattr(self._timers, name)

    def call_after(self, delay_ms: float, callback: Callable[[], None]) -> Timer:
        timer = self._timers.call_after(delay_ms, callback)
        if delay_ms == LONG_MS:
            self.due.append((timer, callback))
        return timer

    def fire(self) -> None:
        """The latest deadline has passed."""
        timer, callback = self.due[-1]
        self._server.call(timer.cancel)
        self._server.call(callback)


@pytest.mark.parametrize("version", [7, 8, 9, 10, 12, 13])
@pytest.mark.parametrize("end", ["replicated", "timed out", "another leader", "another leader and back", "offline"])
def test_the_response_is_that_of_the_slow_path(replicated: Replicated, version: int, end: str) -> None:
    server, partition = replicated.server, replicated.partition
    deadlines = Deadlines(server)
    answers: list[bytes] = []
    for place in ("ServedRequest", "_Replicating"):
        with server.wire() as wire:
            if place == "_Replicating":
                replicated.learn(wire, version)
            first = partition.log.log_end_offset
            wire.send_bytes(replicated.frame(version, 7))
            replicated.await_end(first + 1)
            assert replicated.places() == [place]
            match end:
                case "replicated":
                    replicated.replicate()
                case "timed out":
                    deadlines.fire()
                case "another leader":
                    server.call(replicated.follow)
                case "another leader and back":
                    server.call(replicated.follow)
                    server.call(replicated.lead)
                case "offline":
                    server.call(partition.go_offline)
            answer = wire.receive_frame()
        server.wait_until(lambda: not server.network.connections)
        for number, size in ((first, 8), (replicated.epoch - 1, 4), (replicated.epoch, 4)):
            answer = answer.replace(number.to_bytes(size, "big"), bytes(size))
        answers.append(answer)
        partition.offline = False
        server.call(replicated.lead)
        replicated.replicate()
    assert answers[0] == answers[1]


def test_a_request_that_has_timed_out_is_not_answered_again(replicated: Replicated) -> None:
    deadlines = Deadlines(replicated.server)
    with replicated.server.wire() as wire:
        replicated.learn(wire)
        wire.send_bytes(replicated.frame(9, 100))
        replicated.await_end(2)
        deadlines.fire()
        wire.receive_frame()
        replicated.replicate()
        wire.send_bytes(replicated.frame(9, 101))
        replicated.await_end(3)
        replicated.replicate()
        assert int.from_bytes(wire.receive_frame()[:4], "big") == 101


def test_requests_behind_a_waiting_one_are_answered_after_it(replicated: Replicated) -> None:
    """One with acks=1, and one that takes the slow path."""
    with replicated.server.wire() as wire:
        replicated.learn(wire)
        replicated.learn(wire, acks=1)
        wire.send_bytes(replicated.frame(9, 100))
        replicated.await_end(3)
        wire.send_bytes(replicated.frame(9, 101, acks=1))
        replicated.await_end(4)
        wire.send(MetadataRequest(topics=[]), 9)
        replicated.server.wait_until(lambda: len(replicated.names()) == 3)
        assert replicated.places()[:2] == ["_Replicating", "AnsweredRequest"]
        replicated.replicate()
        answers = [wire.receive_frame() for _ in range(3)]
    assert [int.from_bytes(answer[:4], "big") for answer in answers[:2]] == [100, 101]


def test_a_repeated_batch_is_answered_with_its_offset_when_it_is_replicated(replicated: Replicated) -> None:
    producer: dict[str, Any] = {"producer_id": 5, "producer_epoch": 0}
    offset = (1).to_bytes(8, "big")
    with replicated.server.wire() as wire:
        replicated.learn(wire, **producer, base_sequence=0)
        wire.send_bytes(replicated.frame(9, 100, **producer, base_sequence=1))
        replicated.await_end(2)
        with replicated.server.wire() as other:
            other.send_bytes(replicated.frame(9, 200, **producer, base_sequence=1))
            replicated.server.wait_until(lambda: len(replicated.names()) == 2)
            replicated.replicate()
            assert offset in wire.receive_frame()
            assert offset in other.receive_frame()
            wire.send_bytes(replicated.frame(9, 101, **producer, base_sequence=1))
            again = wire.receive_frame()
    assert int.from_bytes(again[:4], "big") == 101
    assert offset in again
    assert replicated.partition.log.log_end_offset == 2


def test_a_closed_connection_leaves_its_records(replicated: Replicated) -> None:
    with replicated.server.wire() as wire:
        replicated.learn(wire)
        wire.send_bytes(replicated.frame(9, 100))
        replicated.await_end(2)
    replicated.server.wait_until(lambda: not replicated.server.network.connections)
    replicated.replicate()
    assert replicated.partition.high_watermark == 2


def test_without_followers_in_sync_requests_are_answered_immediately(replicated: Replicated) -> None:
    node_id = replicated.server.broker.node_id

    def shrink() -> None:
        replicated.partition.become_leader(
            leader_epoch=replicated.epoch,
            partition_epoch=replicated.epoch + 1,
            replicas=(node_id, ABSENT),
            isr=(node_id,),
            now_ms=0,
        )

    with replicated.server.wire() as wire:
        replicated.learn(wire)
        replicated.server.call(shrink)
        wire.send_bytes(replicated.frame(9, 100))
        assert int.from_bytes(wire.receive_frame()[:4], "big") == 100


def test_with_too_few_replicas_in_sync_requests_are_rejected(replicated: Replicated) -> None:
    with replicated.server.wire() as wire:
        replicated.learn(wire)
        log = replicated.partition.log
        replicated.server.call(lambda: replicated.partition.update_config(log.config, min_insync_replicas=3))
        node_id = replicated.server.broker.node_id
        replicated.server.call(
            lambda: replicated.partition.become_leader(
                leader_epoch=replicated.epoch + 1,
                partition_epoch=replicated.epoch + 1,
                replicas=(node_id, ABSENT),
                isr=(node_id,),
                now_ms=0,
            )
        )
        wire.send_bytes(replicated.frame(9, 100))
        answer = wire.receive_frame()
        assert ErrorCode.NOT_ENOUGH_REPLICAS.to_bytes(2, "big") in answer
        assert log.log_end_offset == 1

"""Requests of coordinators to other brokers: to Moldau, to Apache Kafka, and to brokers in memory that fail."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from moldau.config.broker_config import BrokerConfig, StaticValue
from moldau.coordinator.outcome import Producer
from moldau.metadata.registrations import BrokerRegistration, Endpoint
from moldau.protocol.api import ApiKey
from moldau.protocol.errors import ErrorCode, KafkaError
from moldau.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest
from moldau.protocol.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)
from moldau.server.concurrency.event_loop import EndOfIteration
from moldau.server.coordination.broker_links import BrokerLinks
from moldau.server.coordination.remote_markers import RemoteMarkers
from moldau.server.coordination.remote_verification import Codes, RemoteVerification
from moldau.server.network.links import LinkSettings
from moldau.testing.apache_kafka import ApacheKafka
from moldau.testing.waiting import wait_until
from moldau.testing.wire import WireClient

from .conftest import RunningServer
from .test_links import PEER, ScriptedPeer, Simulation, TcpNode, on_tcp
from .transactional import Transactional, values

PEER_ID = 5


def image_with(host: str, port: int) -> Any:
    """The metadata with one other broker."""
    listeners = {"PLAINTEXT": Endpoint("PLAINTEXT", host, port)}
    return SimpleNamespace(brokers={PEER_ID: BrokerRegistration(PEER_ID, 0, bytes(16), listeners, {})})


def config_with(**settings: str) -> BrokerConfig:
    return BrokerConfig({name.replace("_", "."): StaticValue(text, "test") for name, text in settings.items()})


# -- real brokers ------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["moldau", pytest.param("apache", marks=pytest.mark.slow)])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A broker with the topic t, which has three partitions."""
    if request.param == "apache":
        with ApacheKafka() as kafka:
            _create_topic(kafka.bootstrap_servers)
            yield kafka.bootstrap_servers
    else:
        server = RunningServer([tmp_path / "data"]).start()
        try:
            _create_topic(server.bootstrap_servers)
            yield server.bootstrap_servers
        finally:
            server.stop()


def _create_topic(address: str) -> None:
    with WireClient(address) as wire:
        topic = CreatableTopic(name="t", num_partitions=3, replication_factor=1)
        assert wire.call(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 7).topics[0].error_code == 0


class Asking:
    """The requests of a coordinator on another broker, awaited."""

    def __init__(self, node: TcpNode, address: str) -> None:
        host, _, port = address.rpartition(":")
        run_soon = EndOfIteration(asyncio.get_running_loop().call_soon)
        self._brokers = BrokerLinks(node.links, 1, lambda: image_with(host, int(port)), config_with())
        self._markers = RemoteMarkers(self._brokers, run_soon)
        self._verification = RemoteVerification(self._brokers, run_soon)

    async def write(
        self, producer: Transactional, *partitions: int, epoch: int, committed: bool, version: int
    ) -> list[KafkaError | None]:
        futures = []
        for index in partitions:
            future: asyncio.Future[KafkaError | None] = asyncio.get_running_loop().create_future()
            futures.append(future)
            self._markers.write(
                PEER_ID, "t", index, producer_id=producer.producer_id, producer_epoch=epoch, coordinator_epoch=0,
                committed=committed, transaction_version=version, written=future.set_result,
            )  # fmt: skip
        return list(await asyncio.gather(*futures))

    async def ask(
        self, transactional_id: str, producer: Producer, *partitions: int, verify_only: bool
    ) -> Codes | KafkaError:
        future: asyncio.Future[Codes | KafkaError] = asyncio.get_running_loop().create_future()
        self._verification.ask(
            PEER_ID, transactional_id, producer, [("t", index) for index in partitions], verify_only=verify_only,
            verified=future.set_result,
        )  # fmt: skip
        return await future


def asking(address: str, test: Callable[[Asking], Coroutine[Any, Any, None]]) -> None:
    on_tcp(lambda node: test(Asking(node, address)))


def codes(errors: list[KafkaError | None]) -> list[ErrorCode | None]:
    return [None if error is None else error.code for error in errors]


def open_transaction(wire: WireClient, transactional_id: str) -> Transactional:
    """An open transaction with a record in partitions 0 and 1, of a client without transaction.version 2."""
    find = FindCoordinatorRequest(key_type=1, coordinator_keys=[transactional_id])
    producer = Transactional(wire, transactional_id, v2=False)

    def is_initialized() -> bool:
        return wire.call(find, 6).coordinators[0].error_code == 0 and producer.init() == 0

    wait_until(is_initialized)  # Apache Kafka creates the coordinator's topic in the background
    assert set(producer.add("t", partitions=[0, 1]).values()) == {0}
    for partition in (0, 1):
        assert producer.produce("t", transactional_id, partition=partition) == 0
    return producer


def test_markers_end_transactions_and_may_be_repeated(address: str) -> None:
    with WireClient(address, timeout_s=120) as wire:
        first, second = open_transaction(wire, "first"), open_transaction(wire, "second")

        async def test(asking: Asking) -> None:
            results = await asyncio.gather(
                asking.write(first, 0, 1, epoch=first.epoch, committed=True, version=1),
                asking.write(second, 0, 1, 99, epoch=second.epoch + 1, committed=False, version=2),
            )
            assert codes(results[0]) == [None, None]
            assert codes(results[1]) == [None, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
            assert codes(await asking.write(first, 0, epoch=first.epoch, committed=True, version=1)) == [None]
            repeated = await asking.write(second, 0, epoch=second.epoch + 1, committed=False, version=2)
            assert codes(repeated) == [None]
            older = await asking.write(second, 0, epoch=second.epoch, committed=False, version=1)
            assert codes(older) == [ErrorCode.INVALID_PRODUCER_EPOCH]

        asking(address, test)
        assert [values(wire, "t", partition=index) for index in (0, 1)] == [["first"], ["first"]]


def test_a_coordinator_verifies_and_adds_partitions(address: str) -> None:
    with WireClient(address, timeout_s=120) as wire:
        producer = open_transaction(wire, "p")
        known, older = Producer(producer.producer_id, producer.epoch), Producer(producer.producer_id + 1000, 0)

        async def test(asking: Asking) -> None:
            assert await asking.ask("p", known, 0, 1, verify_only=True) == {("t", 0): 0, ("t", 1): 0}
            assert await asking.ask("p", known, 0, 2, verify_only=True) == {
                ("t", 0): ErrorCode.NONE,
                ("t", 2): ErrorCode.TRANSACTION_ABORTABLE,
            }
            added, other, unknown = await asyncio.gather(
                asking.ask("p", known, 2, verify_only=False),
                asking.ask("p", older, 0, verify_only=True),
                asking.ask("unknown", known, 0, verify_only=True),
            )
            assert added == {("t", 2): ErrorCode.NONE}
            assert other == unknown == {("t", 0): ErrorCode.INVALID_PRODUCER_ID_MAPPING}
            assert await asking.ask("p", known, 2, verify_only=True) == {("t", 2): ErrorCode.NONE}

        asking(address, test)


# -- brokers that fail -------------------------------------------------------------------------------------------------


class Markers:
    """Markers to a scripted broker."""

    def __init__(self) -> None:
        self.simulation = Simulation(LinkSettings())
        self.simulation.listen()
        self.image = image_with(*PEER)
        self.brokers = BrokerLinks(self.simulation.links, 1, lambda: self.image, config_with(request_timeout_ms="500"))
        self.markers = RemoteMarkers(self.brokers, self.simulation.links.later)  # type: ignore[arg-type]
        self.results: dict[tuple[int, int], list[ErrorCode | None]] = {}

    def write(self, producer_id: int, index: int, *, epoch: int = 0) -> None:
        written = self.results.setdefault((producer_id, index), [])
        self.markers.write(
            PEER_ID, "t", index, producer_id=producer_id, producer_epoch=epoch, coordinator_epoch=0, committed=True,
            transaction_version=2, written=lambda error: written.append(None if error is None else error.code),
        )  # fmt: skip

    def connect(self) -> ScriptedPeer:
        self.simulation.run()
        peer = self.simulation.peers[-1]
        peer.negotiate((ApiKey.WRITE_TXN_MARKERS, 1, 2))
        self.simulation.run()
        return peer


def response_of(request: Any, code: int = 0) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=[
                            WritableTxnMarkerPartitionResult(partition_index=index, error_code=code)
                            for index in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in request.markers
        ]
    )


def test_markers_of_one_iteration_share_a_request() -> None:
    markers = Markers()
    for producer_id in (1, 2):
        for index in (0, 1):
            markers.write(producer_id, index)
    markers.write(1, 0, epoch=1)  # the response cannot distinguish it from the first one
    peer = markers.connect()
    (first, one), (second, two) = peer.requests()
    assert first.client_id == "broker-1-txn-marker-sender"
    assert [(marker.producer_id, marker.topics[0].partition_indexes) for marker in one.markers] == [
        (1, [0, 1]),
        (2, [0, 1]),
    ]
    assert [(marker.producer_id, marker.producer_epoch) for marker in two.markers] == [(1, 1)]
    peer.respond(first, response_of(one))
    peer.respond(second, response_of(two, ErrorCode.TRANSACTION_COORDINATOR_FENCED))
    markers.simulation.run()
    fenced = ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert markers.results == {(1, 0): [None, fenced], (1, 1): [None], (2, 0): [None], (2, 1): [None]}


def test_partitions_that_the_response_omits_are_not_written() -> None:
    markers = Markers()
    markers.write(1, 0)
    markers.write(1, 1)
    peer = markers.connect()
    [(header, request)] = peer.requests()
    response = response_of(request, 32_000)  # an error code of a newer version
    del response.markers[0].topics[0].partitions[1]
    peer.respond(header, response)
    markers.simulation.run()
    assert markers.results == {(1, 0): [ErrorCode.UNKNOWN_SERVER_ERROR], (1, 1): [ErrorCode.UNKNOWN_SERVER_ERROR]}


def test_each_marker_of_a_lost_connection_or_a_slow_broker_fails_once() -> None:
    markers = Markers()
    markers.write(1, 0)
    peer = markers.connect()
    peer.requests()
    peer.end.reset()
    markers.simulation.run()
    assert markers.results == {(1, 0): [ErrorCode.NETWORK_EXCEPTION]}
    markers.write(1, 0)
    markers.simulation.advance(100)
    markers.connect()
    markers.simulation.advance(600)  # longer than request.timeout.ms
    assert markers.results == {(1, 0): [ErrorCode.NETWORK_EXCEPTION] * 2}


def test_a_broker_without_a_registration_or_the_listener_is_not_available() -> None:
    markers = Markers()
    markers.image = SimpleNamespace(brokers={})
    markers.write(1, 0)
    markers.simulation.run()
    markers.image = image_with(*PEER)
    brokers = BrokerLinks(
        markers.simulation.links, 1, lambda: markers.image, config_with(inter_broker_listener_name="INTERNAL")
    )
    assert brokers.link(PEER_ID, "test") is None
    assert markers.results == {(1, 0): [ErrorCode.BROKER_NOT_AVAILABLE]}
    assert markers.simulation.peers == []


def test_the_link_of_an_unregistered_broker_is_closed() -> None:
    markers = Markers()
    markers.write(1, 0)
    peer = markers.connect()
    markers.image = SimpleNamespace(brokers={})
    assert markers.brokers.link(PEER_ID, "txn-marker-sender") is None
    markers.simulation.run()
    assert peer.end._has_ended
    assert markers.results == {(1, 0): [ErrorCode.NETWORK_EXCEPTION]}

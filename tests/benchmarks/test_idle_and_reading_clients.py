"""The other clients of a measurement: idle connections, and a consumer that only reads."""

from collections.abc import Iterator

import pytest

from moldau.benchmarks import load
from moldau.benchmarks.crowd import Crowd, CrowdError
from moldau.benchmarks.reader import Reader
from moldau.benchmarks.rows.lifetime import API_VERSIONS
from moldau.protocol.errors import KafkaError
from moldau.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from moldau.testing import Broker
from moldau.testing.builders import fetch_request, produce
from moldau.testing.waiting import wait_until
from moldau.testing.wire import WireClient


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def wire(broker: Broker) -> Iterator[WireClient]:
    with WireClient(broker.bootstrap_servers) as wire:
        yield wire


def new_topic(wire: WireClient, name: str) -> str:
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    (created,) = wire.call(CreateTopicsRequest(topics=[topic])).topics
    assert created.error_code == 0
    return name


def test_an_undisturbed_crowd(broker: Broker) -> None:
    with Crowd(broker.bootstrap_servers, 20, API_VERSIONS) as crowd:
        crowd.check()


def test_a_crowd_detects_that_the_server_has_exited() -> None:
    with Broker() as broker, Crowd(broker.bootstrap_servers, 3, API_VERSIONS) as crowd:
        broker.kill()
        with pytest.raises(CrowdError, match="3 of 3 idle connections"):
            crowd.check()


def test_a_crowd_detects_a_response(broker: Broker, wire: WireClient) -> None:
    topic = new_topic(wire, "waited-for")

    waiting = load.frame(fetch_request(topic, max_wait_ms=60_000), load.FETCH_VERSION)
    with Crowd(broker.bootstrap_servers, 5, API_VERSIONS, lambda _number: waiting) as crowd:
        crowd.check()
        produce(wire, topic, load.batch_of(1, 10))
        # The producer's response is sent before those to the consumers, whose arrival cannot be observed.
        wait_until(lambda: crowd.answered() == 5, "the responses to all consumers", pause=0.001)
        with pytest.raises(CrowdError, match="5 of 5"):
            crowd.check()


def test_a_reader_follows_the_log(broker: Broker, wire: WireClient) -> None:
    topic = new_topic(wire, "to-be-read")
    batch = load.batch_of(300, 1000)
    batches = 8
    for _ in range(batches):
        assert produce(wire, topic, batch).error_code == 0
    offsets, size = [], 0
    with Reader(broker.bootstrap_servers, topic) as reader:
        while reader.offset < batches * 300:
            size += reader.read()
            offsets.append(reader.offset)
        reader.offset = 300
        assert reader.read() == (offsets[0] // 300) * len(batch)
    assert all(offset % 300 == 0 for offset in offsets)
    assert len(offsets) > 1  # several batches fit into a response, but not all of them
    assert size == batches * len(batch)


def test_a_reader_of_a_topic_that_does_not_exist(broker: Broker) -> None:
    with Reader(broker.bootstrap_servers, "nowhere") as reader, pytest.raises(KafkaError):
        reader.read()

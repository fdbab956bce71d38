"""`Cluster.move_leader`: other brokers lead a partition while clients use it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Message, Producer

from moldau.testing import BrokerError, Cluster
from moldau.testing.builders import fetch, values
from moldau.testing.wire import WireClient

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=3) as running:
        yield running


@pytest.mark.parametrize(
    ("replicas", "moves"),
    [
        pytest.param([1], [2, 3, 1], id="one replica"),
        pytest.param([1, 2], [2, 3, 2, 1], id="two replicas"),
    ],
)
def test_a_producer_follows_the_leader(cluster: Cluster, replicas: list[int], moves: list[int]) -> None:
    topic = f"moved-{len(replicas)}"
    cluster.create_topic(topic, [replicas])
    delivered: list[bytes] = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True})

    def produced(error: object, message: Message) -> None:
        assert error is None, error
        value = message.value()
        assert isinstance(value, bytes)
        delivered.append(value)

    sent = []
    for number, broker_id in enumerate(moves):
        sent.append(b"%d" % number)
        producer.produce(topic, sent[-1], partition=0, on_delivery=produced)
        assert producer.flush(60) == 0
        cluster.move_leader(topic, 0, broker_id)
        assert cluster.leader_of(topic) == broker_id
    assert delivered == sent
    with WireClient(cluster.broker(moves[-1]).address) as wire:
        assert values(fetch(wire, topic)) == sent


def test_the_present_leader_stays(cluster: Cluster) -> None:
    cluster.create_topic("stays", [[2, 3]])
    cluster.move_leader("stays", 0, 2)
    assert cluster.leader_of("stays") == 2


def test_unknown_brokers_and_partitions(cluster: Cluster) -> None:
    cluster.create_topic("known", [1])
    with pytest.raises(BrokerError, match="there is no broker 4"):
        cluster.move_leader("known", 0, 4)
    with pytest.raises(BrokerError, match="known-1 has no leader, or does not exist"):
        cluster.move_leader("known", 1, 2)

"""`Cluster`: brokers that are killed, paused, stopped and cut off, as clients see them."""

from __future__ import annotations

import errno
import itertools
import socket
import threading
from collections.abc import Iterator

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from moldau.testing import BrokerError, Cluster
from moldau.testing.config_requests import BROKER, DELETE, SET, alter
from moldau.testing.waiting import wait_until
from moldau.testing.wire import WireClient

# A broker that does not respond is fenced after this time. A busy machine may fence others, too, for a moment: tests
# wait for leaders.
SESSION_TIMEOUT_S = 3.0


@pytest.fixture(scope="module")
def running() -> Iterator[Cluster]:
    with Cluster(brokers=3, session_timeout=SESSION_TIMEOUT_S) as cluster:
        yield cluster


@pytest.fixture
def cluster(running: Cluster) -> Cluster:
    """A whole cluster with a topic whose partition N - 1 is led by broker N."""
    running.reset()
    running.create_topic("orders", [1, 2, 3])
    return running


def produce(cluster: Cluster, value: str, *partitions: int, idempotent: bool = True) -> None:
    """A client asks brokers that respond: kafka-python waits long for the first one that it has chosen."""
    responding = [broker.address for broker in map(cluster.broker, cluster.broker_ids) if broker.responds]
    producer = KafkaProducer(bootstrap_servers=responding, acks="all", retries=10_000, enable_idempotence=idempotent)
    for sent in [producer.send("orders", value.encode(), partition=partition) for partition in partitions]:
        sent.get(timeout=60)
    producer.close()


def consume(cluster: Cluster, partition: int, count: int) -> list[str]:
    consumer = KafkaConsumer(bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest")
    consumer.assign([TopicPartition("orders", partition)])
    consumer.seek_to_beginning()
    values = [record.value.decode() for record in itertools.islice(consumer, count)]
    consumer.close()
    return values


def wait_until_leaderless(cluster: Cluster, partition: int) -> None:
    def has_no_leader() -> bool:
        try:
            cluster.leader_of("orders", partition)
        except BrokerError:
            return True
        return False

    wait_until(has_no_leader)


def test_every_broker_leads_partitions_and_every_address_leads_to_all(cluster: Cluster) -> None:
    assert len(set(cluster.bootstrap_servers.split(","))) == 3
    assert cluster.broker_ids == [1, 2, 3]
    assert [cluster.leader_of("orders", partition) for partition in (0, 1, 2)] == [1, 2, 3]
    produce(cluster, "a", 0, 1, 2)
    assert [consume(cluster, partition, 1) for partition in (0, 1, 2)] == [["a"]] * 3


def test_partitions_of_a_new_topic_are_spread(cluster: Cluster) -> None:
    cluster.create_topic("spread", 6)
    leaders = [cluster.leader_of("spread", partition) for partition in range(6)]
    assert sorted(leaders) == [1, 1, 2, 2, 3, 3]


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_a_broker_ends_and_starts_again_while_the_others_serve(cluster: Cluster, end: str) -> None:
    produce(cluster, "before", 0, 1)
    getattr(cluster, end)(2)
    produce(cluster, "meanwhile", 0, 2)
    cluster.start(2)
    assert cluster.await_leader("orders", 1, 2) == 2
    produce(cluster, "after", 1)
    assert consume(cluster, 1, 2) == ["before", "after"]


def test_the_controller_ends_and_starts_again_while_the_others_serve(cluster: Cluster) -> None:
    cluster.kill(1)
    # An idempotent producer needs an id. A broker that has none left requests ids from the controller.
    produce(cluster, "meanwhile", 1, 2, idempotent=False)
    cluster.start(1)
    cluster.await_leader("orders", 0, 1)
    cluster.create_topic("later", [3, 2, 1])


def test_a_paused_broker_loses_its_leaderships_until_it_continues(cluster: Cluster) -> None:
    produce(cluster, "before", 1)
    cluster.pause(2)
    wait_until_leaderless(cluster, 1)
    produce(cluster, "meanwhile", 0, 2)
    cluster.resume(2)
    cluster.await_leader("orders", 1, 2)
    assert consume(cluster, 1, 1) == ["before"]


def test_a_broker_that_cannot_serve_yet_refuses_connections(cluster: Cluster) -> None:
    """librdkafka looks for another leader only after that, or after ten seconds without a response."""
    cluster.stop(2)
    cluster.pause(1)  # the controller
    host, _, port = cluster.broker(2).address.rpartition(":")

    def is_bound() -> bool:
        with socket.socket() as other:
            try:
                other.bind((host, int(port)))
            except OSError as error:
                return error.errno == errno.EADDRINUSE
        return False

    starting = threading.Thread(target=cluster.start, args=[2])
    starting.start()
    try:
        wait_until(is_bound)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((host, int(port)), timeout=60)
    finally:
        cluster.resume(1)
        starting.join()
    produce(cluster, "after", 1)


def test_a_broker_that_is_cut_off_from_the_controller_is_fenced_until_it_is_healed(cluster: Cluster) -> None:
    cluster.cut(1, 3)
    wait_until_leaderless(cluster, 2)
    cluster.heal()
    cluster.await_leader("orders", 2, 3)
    produce(cluster, "after", 2)
    assert consume(cluster, 2, 1) == ["after"]


def test_a_group_finds_its_offsets_after_a_crash_of_all_brokers(cluster: Cluster) -> None:
    produce(cluster, "a", 0)
    consumer = KafkaConsumer(
        "orders",
        bootstrap_servers=cluster.bootstrap_servers,
        auto_offset_reset="earliest",
        group_id="readers",
        enable_auto_commit=False,
    )
    assert next(consumer).value == b"a"
    consumer.commit()
    for broker_id in cluster.broker_ids:
        cluster.kill(broker_id)
    cluster.start_all()
    assert consumer.committed(TopicPartition("orders", 0)) == 1
    consumer.close()


def test_a_reset_deletes_what_a_client_creates_meanwhile(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    last = cluster.broker(3)
    reset_last = last.reset

    def reset_and_create() -> None:
        reset_last()
        monkeypatch.undo()
        cluster.create_topic("late")

    monkeypatch.setattr(last, "reset", reset_and_create)
    cluster.reset()
    assert not KafkaConsumer(bootstrap_servers=cluster.bootstrap_servers).topics()


def test_configs_of_a_broker_are_changed_at_that_broker(cluster: Cluster) -> None:
    for broker_id in cluster.broker_ids:
        with WireClient(cluster.broker(broker_id).address) as wire:
            assert alter(wire, BROKER, str(broker_id), ("log.cleaner.threads", SET, "2")) == "NONE"
            assert alter(wire, BROKER, str(broker_id), ("log.cleaner.threads", DELETE, None)) == "NONE"
            other = broker_id % 3 + 1
            assert alter(wire, BROKER, str(other), ("log.cleaner.threads", SET, "2")) == "INVALID_REQUEST"


def test_what_does_not_exist_is_named(cluster: Cluster) -> None:
    with pytest.raises(BrokerError, match="there is no broker 4; the cluster has 1, 2, 3"):
        cluster.kill(4)
    with pytest.raises(BrokerError, match="missing-0 has no leader, or does not exist"):
        cluster.leader_of("missing")
    with pytest.raises(BrokerError, match="orders-0 has broker 2 as leader"):
        cluster.await_leader("orders", 0, 2, timeout=0.1)

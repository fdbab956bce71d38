"""Partitions with three replicas, two of which must be in sync: brokers are killed, stopped and paused, and nothing
that was acknowledged is lost."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest
from moldau.testing import Cluster
from moldau.testing.wire import WireClient

pytestmark = pytest.mark.slow

SESSION_TIMEOUT_S = 3.0
ALL = {1, 2, 3}


@pytest.fixture(scope="module")
def running() -> Iterator[Cluster]:
    factors = {"offsets.topic.replication.factor": 3, "transaction.state.log.replication.factor": 3}
    minimum = {"transaction.state.log.min.isr": 2, "min.insync.replicas": 2}
    with Cluster(brokers=3, session_timeout=SESSION_TIMEOUT_S, config={**factors, **minimum}) as cluster:
        yield cluster


@pytest.fixture
def cluster(running: Cluster) -> Cluster:
    """A whole cluster with a topic whose partition is led by broker 2."""
    running.reset()
    running.create_topic("orders", [[2, 3, 1]])
    running.await_isr("orders", 0, ALL)
    return running


def produce(cluster: Cluster, *values: str) -> list[tuple[int, str]]:
    """The offset and the value of each record, all of which were acknowledged by at least two replicas."""
    responding = [broker.address for broker in map(cluster.broker, cluster.broker_ids) if broker.responds]
    producer = KafkaProducer(bootstrap_servers=responding, acks="all", retries=10_000, enable_idempotence=True)
    sent = [producer.send("orders", value.encode(), partition=0) for value in values]
    offsets = [each.get(timeout=60).offset for each in sent]
    producer.close()
    return list(zip(offsets, values, strict=True))


def consume(cluster: Cluster, count: int) -> list[tuple[int, str]]:
    consumer = KafkaConsumer(bootstrap_servers=cluster.bootstrap_servers)
    consumer.assign([TopicPartition("orders", 0)])
    consumer.seek_to_beginning()
    records = [(record.offset, record.value.decode()) for record in itertools.islice(consumer, count)]
    consumer.close()
    return records


def texts(prefix: str, count: int) -> list[str]:
    return [f"{prefix}-{number}" for number in range(count)]


def coordinator_of(cluster: Cluster, group: str) -> int:
    with WireClient(cluster.broker(1).address) as wire:
        (found,) = wire.call(FindCoordinatorRequest(key_type=0, coordinator_keys=[group])).coordinators
    return int(found.node_id)


@pytest.mark.parametrize("end", ["kill", "stop", "pause"])
def test_another_replica_continues_with_everything_that_was_acknowledged(cluster: Cluster, end: str) -> None:
    acknowledged = produce(cluster, *texts("before", 20))
    getattr(cluster, end)(2)
    acknowledged += produce(cluster, *texts("meanwhile", 20))
    assert cluster.leader_of("orders") in (1, 3)
    assert consume(cluster, 40) == acknowledged
    if end == "pause":
        cluster.resume(2)
    else:
        cluster.start(2)
    cluster.await_isr("orders", 0, ALL)
    acknowledged += produce(cluster, *texts("after", 20))
    assert consume(cluster, 60) == acknowledged


def test_confluent_kafka_produces_through_a_failover(cluster: Cluster) -> None:
    delivered: list[tuple[int, str]] = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all", "enable.idempotence": True})

    def produced(error: object, message: object) -> None:
        assert error is None, error
        delivered.append((message.offset(), message.value().decode()))  # type: ignore[attr-defined]

    for text in texts("before", 20):
        producer.produce("orders", text.encode(), partition=0, on_delivery=produced)
    assert producer.flush(60) == 0
    cluster.kill(cluster.leader_of("orders"))
    for text in texts("after", 20):
        producer.produce("orders", text.encode(), partition=0, on_delivery=produced)
    assert producer.flush(60) == 0
    assert [text for _, text in delivered] == texts("before", 20) + texts("after", 20)
    assert consume(cluster, 40) == delivered


def test_a_group_keeps_its_offsets_when_its_coordinator_dies(cluster: Cluster) -> None:
    produce(cluster, *texts("record", 4))
    # The coordinator of this group is not broker 1.
    group = next(name for name in texts("readers", 100) if coordinator_of(cluster, name) != 1)
    settings = {
        "bootstrap.servers": cluster.bootstrap_servers,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    consumer = Consumer(settings)
    consumer.subscribe(["orders"])
    read = consumer.consume(2, timeout=60)
    assert [message.value() for message in read] == [b"record-0", b"record-1"]
    consumer.commit(message=read[-1], asynchronous=False)
    consumer.close()
    cluster.kill(coordinator_of(cluster, group))
    consumer = Consumer(settings)
    consumer.subscribe(["orders"])
    read = consumer.consume(2, timeout=60)
    assert [message.value() for message in read] == [b"record-2", b"record-3"]
    consumer.close()


def delete_records(cluster: Cluster, offset: int, timeout_ms: int) -> tuple[int, int]:
    """Ask the leader, broker 2. Returns the error code and the low watermark."""
    wanted = DeleteRecordsPartition(partition_index=0, offset=offset)
    topic = DeleteRecordsTopic(name="orders", partitions=[wanted])
    with WireClient(cluster.broker(2).address) as wire:
        response = wire.call(DeleteRecordsRequest(topics=[topic], timeout_ms=timeout_ms))
    (result,) = response.topics[0].partitions
    return result.error_code, result.low_watermark


def test_records_are_deleted_when_all_followers_have_deleted_them(cluster: Cluster) -> None:
    produce(cluster, *texts("record", 4))
    cluster.cut(2, 3)
    assert delete_records(cluster, 3, timeout_ms=10) == (ErrorCode.REQUEST_TIMED_OUT, 0)
    cluster.heal()
    assert delete_records(cluster, 3, timeout_ms=60_000) == (ErrorCode.NONE, 3)

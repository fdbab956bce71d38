"""Partitions with three replicas, two of which must be in sync: brokers are killed, stopped and paused, and nothing
that was acknowledged is lost."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaException, Producer
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest
from moldau.testing import Cluster
from moldau.testing.retriable_steps import retried
from moldau.testing.waiting import wait_until
from moldau.testing.wire import WireClient

pytestmark = pytest.mark.slow

SESSION_TIMEOUT_S = 3.0
ALL = {1, 2, 3}


@pytest.fixture(scope="module")
def running() -> Iterator[Cluster]:
    with Cluster(brokers=3, session_timeout=SESSION_TIMEOUT_S, config={"min.insync.replicas": 2}) as cluster:
        yield cluster


@pytest.fixture
def cluster(running: Cluster) -> Cluster:
    """A whole cluster with a topic whose partition is led by broker 2."""
    running.reset()
    running.create_topic("orders", [[2, 3, 1]])
    running.await_isr("orders", 0, ALL)
    return running


def responding(cluster: Cluster) -> list[str]:
    """The addresses of brokers that respond: kafka-python may wait for one that is paused until it gives up."""
    return [broker.address for broker in map(cluster.broker, cluster.broker_ids) if broker.responds]


def produce(cluster: Cluster, *values: str) -> list[tuple[int, str]]:
    """The offset and the value of each record, all of which were acknowledged by at least two replicas."""
    producer = KafkaProducer(bootstrap_servers=responding(cluster), acks="all", retries=10_000, enable_idempotence=True)
    sent = [producer.send("orders", value.encode(), partition=0) for value in values]
    offsets = [each.get(timeout=60).offset for each in sent]
    producer.close()
    return list(zip(offsets, values, strict=True))


def consume(cluster: Cluster, count: int) -> list[tuple[int, str]]:
    consumer = KafkaConsumer(bootstrap_servers=responding(cluster))
    consumer.assign([TopicPartition("orders", 0)])
    consumer.seek_to_beginning()
    records = [(record.offset, record.value.decode()) for record in itertools.islice(consumer, count)]
    consumer.close()
    return records


def texts(prefix: str, count: int) -> list[str]:
    return [f"{prefix}-{number}" for number in range(count)]


GROUP, TRANSACTION = 0, 1


def coordinator_of(cluster: Cluster, key_type: int, key: str) -> int:
    """Of a group, or of a transactional id."""
    with WireClient(cluster.broker(1).address) as wire:

        def found() -> int | None:
            (answer,) = wire.call(FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])).coordinators
            return None if answer.error_code else int(answer.node_id) + 1

        return wait_until(found) - 1


def coordinated_by(cluster: Cluster, broker_id: int, key_type: int) -> str:
    """A group or a transactional id with this coordinator."""
    return next(key for key in texts("key", 100) if coordinator_of(cluster, key_type, key) == broker_id)


@pytest.mark.parametrize("end", ["kill", "stop", pytest.param("pause", marks=pytest.mark.full)])
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


@pytest.mark.full
def test_a_follower_with_a_corrupt_log_copies_it_again(cluster: Cluster) -> None:
    """The log was not flushed before the follower was killed, so its recovery reads every batch."""
    acknowledged = [each for number in range(3) for each in produce(cluster, *texts(f"{number}", 10))]
    cluster.await_isr("orders", 0, ALL)
    cluster.kill(3)
    (path,) = cluster.broker(3).data_dir.glob("orders-0/*.log")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    cluster.start(3)
    cluster.await_isr("orders", 0, ALL)
    assert path.read_bytes() == (cluster.broker(2).data_dir / "orders-0" / path.name).read_bytes()
    cluster.move_leader("orders", 0, 3)
    assert consume(cluster, 30) == acknowledged


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


def commit_transaction(producer: Producer, value: str) -> None:
    """Commit a transaction with one record, as a client of a cluster with failures does."""
    while True:
        producer.begin_transaction()
        try:
            producer.produce("orders", value.encode(), partition=0)
            retried(lambda: producer.commit_transaction(60))
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            retried(lambda: producer.abort_transaction(60))
        else:
            return


def test_a_group_and_transactions_continue_when_their_coordinator_dies(cluster: Cluster) -> None:
    """Broker 3 coordinates a group of kafka-python and transactions of confluent-kafka, and leads nothing else."""
    group, transactional_id = coordinated_by(cluster, 3, GROUP), coordinated_by(cluster, 3, TRANSACTION)
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "transactional.id": transactional_id,
            "reconnect.backoff.max.ms": 100,  # otherwise it asks for the new coordinator after up to 10 s
        }
    )
    retried(lambda: producer.init_transactions(60))

    def join() -> KafkaConsumer:
        return KafkaConsumer(
            "orders",
            bootstrap_servers=cluster.bootstrap_servers,
            group_id=group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            session_timeout_ms=60_000,
        )

    consumer = join()
    read = []
    for number, text in enumerate(texts("payment", 6)):
        if number == 3:
            cluster.kill(3)
        commit_transaction(producer, text)
        read.append(next(consumer).value.decode())
        consumer.commit()
    assert read == texts("payment", 6)
    assert {coordinator_of(cluster, GROUP, group), coordinator_of(cluster, TRANSACTION, transactional_id)} <= {1, 2}
    consumer.close()
    commit_transaction(producer, "last")
    consumer = join()
    assert next(consumer).value == b"last"  # the committed offset is known
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

"""Old records are deleted by the server's periodic checks, and clients continue with the remaining ones.

A dedicated server, which checks ten times a second.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager

import pytest

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from moldau.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from moldau.protocol.records import Record, build_batch
from moldau.testing import topic_requests as w
from moldau.testing.servers import Server
from moldau.testing.topic_requests import Topic
from moldau.testing.waiting import wait_until
from moldau.testing.wire import WireClient

CONFIG = {
    "log.initial.task.delay.ms": "0",
    "log.retention.check.interval.ms": "100",
    "log.segment.delete.delay.ms": "100",
}
HOUR_MS = 3_600_000
TOPIC, BROKER = 2, 4
EARLIEST, LATEST = -2, -1
SMALL_SEGMENTS = {"internal.segment.bytes": "200", "retention.ms": "-1"}
VALUE = b"x" * 80  # a batch of it has a segment for itself


@pytest.fixture(scope="module")
def address(new_server: Callable[..., AbstractContextManager[Server]]) -> Iterator[str]:
    with new_server(CONFIG) as started:
        yield started.bootstrap_servers


@pytest.fixture
def wire(address: str) -> Iterator[WireClient]:
    with WireClient(address) as client:
        yield client


MakeTopic = Callable[..., Topic]


@pytest.fixture
def make_topic(address: str, topic_name: Callable[[], str]) -> MakeTopic:
    """``make_topic(configs)``."""

    def make(configs: Mapping[str, str]) -> Topic:
        return w.create_topic(address, topic_name(), configs=configs)

    return make


def write(wire: WireClient, topic: Topic, *ages_ms: int) -> None:
    """A batch for each age."""
    for age_ms in ages_ms:
        assert w.produce(wire, topic.name, batch_of(age_ms)).error_code == 0


def batch_of(age_ms: int) -> bytes:
    return build_batch([Record(timestamp=int(time.time() * 1000) - age_ms, key=b"k", value=VALUE)])


def alter(wire: WireClient, kind: int, name: str, **settings: str) -> None:
    configs = [AlterableConfig(name=key.replace("_", "."), value=value) for key, value in settings.items()]
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    (answer,) = wire.call(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
    assert answer.error_code == 0, answer


def position(wire: WireClient, topic: Topic, timestamp: int) -> tuple[int, int]:
    """Offset and leader epoch."""
    requested = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic.name, partitions=[requested])])
    (found,) = wire.call(request, 7).topics[0].partitions
    assert found.error_code == 0
    return found.offset, found.leader_epoch


def wait_for_start(wire: WireClient, topic: Topic, offset: int) -> None:
    wait_until(lambda: position(wire, topic, EARLIEST)[0] >= offset, f"the beginning of {topic.name} at {offset}")
    assert position(wire, topic, EARLIEST)[0] == offset


def test_when_all_records_have_expired_the_partition_continues_at_its_end(
    wire: WireClient, make_topic: MakeTopic
) -> None:
    topic = make_topic({"retention.ms": str(HOUR_MS)})
    write(wire, topic, 2 * HOUR_MS, 3 * HOUR_MS)
    wait_for_start(wire, topic, 2)
    assert position(wire, topic, LATEST) == (2, 0)
    assert w.fetch(wire, topic.name, 0).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    answer = w.fetch(wire, topic.name, 2)
    assert (answer.error_code, answer.log_start_offset, answer.high_watermark) == (0, 2, 2)
    write(wire, topic, 0)
    assert position(wire, topic, LATEST)[0] == 3
    assert position(wire, topic, EARLIEST) == (2, 0)


def test_a_young_record_keeps_all_behind_it(wire: WireClient, make_topic: MakeTopic) -> None:
    topic = make_topic(SMALL_SEGMENTS)
    write(wire, topic, 2 * HOUR_MS, 2 * HOUR_MS, 0, 2 * HOUR_MS, 0)
    alter(wire, TOPIC, topic.name, retention_ms=str(HOUR_MS))
    wait_for_start(wire, topic, 2)
    alter(wire, TOPIC, topic.name, retention_ms="1")
    wait_for_start(wire, topic, 5)


def test_a_partition_keeps_at_least_retention_bytes(wire: WireClient, make_topic: MakeTopic) -> None:
    topic = make_topic(SMALL_SEGMENTS)
    write(wire, topic, *[0] * 6)
    size = len(batch_of(0))
    alter(wire, TOPIC, topic.name, retention_bytes=str(3 * size - 1))
    wait_for_start(wire, topic, 3)
    alter(wire, TOPIC, topic.name, retention_bytes=str(size))
    wait_for_start(wire, topic, 5)
    alter(wire, TOPIC, topic.name, retention_bytes="0")
    wait_for_start(wire, topic, 6)


def test_policies(wire: WireClient, make_topic: MakeTopic) -> None:
    """Topics without the policy `delete` keep their records until the policy changes."""
    old = {**SMALL_SEGMENTS, "retention.ms": "1", "retention.bytes": "0", "min.compaction.lag.ms": str(9 * HOUR_MS)}
    topics = {policy: make_topic({**old, "cleanup.policy": policy}) for policy in ("compact", "", "compact,delete")}
    for topic in topics.values():
        write(wire, topic, 2 * HOUR_MS, HOUR_MS)
    probe = make_topic({**old, "cleanup.policy": "delete"})
    for _ in range(3):  # checks all of them, more than once
        write(wire, probe, HOUR_MS)
        wait_for_start(wire, probe, position(wire, probe, LATEST)[0])
    assert [position(wire, topics[policy], EARLIEST)[0] for policy in ("compact", "")] == [0, 0]
    for policy in ("compact", ""):
        alter(wire, TOPIC, topics[policy].name, cleanup_policy="delete")
        wait_for_start(wire, topics[policy], 2)


def test_defaults_of_all_brokers_change_while_they_run(wire: WireClient, make_topic: MakeTopic) -> None:
    topic = make_topic({"internal.segment.bytes": "200"})
    try:
        alter(wire, BROKER, "", log_retention_ms=str(3 * HOUR_MS))
        write(wire, topic, 2 * HOUR_MS, 0)
        probe = make_topic({"retention.ms": "1"})
        write(wire, probe, HOUR_MS)
        wait_for_start(wire, probe, 1)
        assert position(wire, topic, EARLIEST)[0] == 0
        alter(wire, BROKER, "", log_retention_ms=str(HOUR_MS))
        wait_for_start(wire, topic, 1)
    finally:
        remove = AlterableConfig(name="log.retention.ms", config_operation=1, value=None)
        resource = AlterConfigsResource(resource_type=BROKER, resource_name="", configs=[remove])
        wire.call(IncrementalAlterConfigsRequest(resources=[resource]), 1)


def _kafka_python(address: str, topic: str) -> Iterator[int]:
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(
        bootstrap_servers=address,
        group_id=None,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        max_partition_fetch_bytes=1,
        max_poll_records=1,
        fetch_min_bytes=1,
    )
    try:
        consumer.assign([TopicPartition(topic, 0)])
        consumer.seek(TopicPartition(topic, 0), 0)
        for record in consumer:
            yield record.offset
    finally:
        consumer.close()


def _confluent_kafka(address: str, topic: str) -> Iterator[int]:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "none",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "max.partition.fetch.bytes": 1,
            "queued.min.messages": 1,
            "fetch.queue.backoff.ms": 10,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        while True:
            message = consumer.poll(120)
            assert message is not None
            assert message.error() is None, message.error()
            yield message.offset()
    finally:
        consumer.close()


@pytest.mark.parametrize("offsets_of", [_kafka_python, _confluent_kafka])
def test_a_consumer_overtaken_by_retention_continues_with_the_remaining_records(
    address: str, wire: WireClient, make_topic: MakeTopic, offsets_of: Callable[[str, str], Iterator[int]]
) -> None:
    """It has read some records; the next ones are deleted, except those that it has already fetched."""
    topic = make_topic(SMALL_SEGMENTS)
    write(wire, topic, *[2 * HOUR_MS] * 200)
    write(wire, topic, *[0] * 5)
    offsets = offsets_of(address, topic.name)
    assert [next(offsets) for _ in range(3)] == [0, 1, 2]
    alter(wire, TOPIC, topic.name, retention_ms=str(HOUR_MS))
    wait_for_start(wire, topic, 200)
    read = [2]
    while read[-1] < 204:
        read.append(next(offsets))
    offsets.close()  # type: ignore[attr-defined]
    fetched = read.index(200)
    assert read[:fetched] == list(range(2, 2 + fetched)), "what it had fetched, in order"
    assert read[fetched:] == [200, 201, 202, 203, 204]

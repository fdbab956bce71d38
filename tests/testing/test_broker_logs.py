"""Logs without their beginning, and logs with gaps, which a server otherwise needs days to create."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import pytest

from moldau.protocol.errors import ErrorCode, KafkaError
from moldau.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from moldau.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from moldau.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from moldau.protocol.records import iter_batches, iter_records
from moldau.testing import Broker, BrokerError
from moldau.testing.builders import batch, fetch, produce
from moldau.testing.wire import WireClient

TOPIC = "t"
EARLIEST, LATEST = -2, -1


def create_topic(broker: Broker, partitions: int = 1) -> None:
    topic = CreatableTopic(name=TOPIC, num_partitions=partitions, replication_factor=1)
    with WireClient(broker.bootstrap_servers) as wire:
        (answer,) = wire.call(CreateTopicsRequest(topics=[topic], timeout_ms=10_000)).topics
    assert answer.error_code == ErrorCode.NONE


def append(broker: Broker, *values: bytes, partition: int = 0) -> int:
    """The offset of the first."""
    with WireClient(broker.bootstrap_servers) as wire:
        answer = produce(wire, TOPIC, batch(*values), partition=partition)
    assert answer.error_code == ErrorCode.NONE
    return int(answer.base_offset)


def records(broker: Broker, offset: int = 0, partition: int = 0) -> list[tuple[int, bytes | None]]:
    with WireClient(broker.bootstrap_servers) as wire:
        answer = fetch(wire, TOPIC, offset, partition=partition)
    assert answer.error_code == ErrorCode.NONE
    return [
        (record.offset, record.value)
        for found in iter_batches(cast(bytes, answer.records or b""))
        for record in iter_records(found)
        if record.offset >= offset
    ]


def offset_of(broker: Broker, timestamp: int, partition: int = 0) -> int:
    wanted = ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=TOPIC, partitions=[wanted])])
    with WireClient(broker.bootstrap_servers) as wire:
        return int(wire.call(request).topics[0].partitions[0].offset)


@pytest.fixture(params=["process", "thread"])
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    with Broker(thread=request.param == "thread") as started:
        create_topic(started, partitions=2)
        yield started


def test_a_trimmed_partition_begins_later_and_the_others_where_they_did(broker: Broker) -> None:
    append(broker, b"a", b"b", b"c", b"d")
    append(broker, b"other", partition=1)

    assert broker.trim(TOPIC, 0, 3) == 3

    assert [offset_of(broker, EARLIEST, partition) for partition in (0, 1)] == [3, 0]
    assert records(broker, 3) == [(3, b"d")]
    assert records(broker, 0, partition=1) == [(0, b"other")]
    with WireClient(broker.bootstrap_servers) as wire:
        assert fetch(wire, TOPIC, 2).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_trimming_all_leaves_the_end_where_it_was(broker: Broker) -> None:
    append(broker, b"a", b"b")

    assert broker.trim(TOPIC, 0, -1) == 2

    assert (offset_of(broker, EARLIEST), offset_of(broker, LATEST)) == (2, 2)
    assert append(broker, b"c") == 2


def test_trimming_a_missing_partition_is_an_error(broker: Broker) -> None:
    append(broker, b"a")

    with pytest.raises(KafkaError) as beyond:
        broker.trim(TOPIC, 0, 2)
    with pytest.raises(KafkaError) as nowhere:
        broker.trim(TOPIC, 2, 0)

    assert beyond.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert nowhere.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert records(broker) == [(0, b"a")]


def test_a_partition_continues_after_a_gap(broker: Broker) -> None:
    append(broker, b"a", b"b")
    address = broker.bootstrap_servers

    assert broker.insert_offset_gap(TOPIC, 0, 10) == 12
    assert broker.bootstrap_servers == address
    assert (offset_of(broker, EARLIEST), offset_of(broker, LATEST)) == (0, 12)
    assert append(broker, b"c") == 12
    assert broker.insert_offset_gap(TOPIC, 0) == 14
    assert append(broker, b"d") == 14

    assert records(broker) == [(0, b"a"), (1, b"b"), (12, b"c"), (14, b"d")]
    assert records(broker, 5) == [(12, b"c"), (14, b"d")]
    assert append(broker, b"other", partition=1) == 0


def test_a_partition_can_begin_and_end_with_a_gap(broker: Broker) -> None:
    assert broker.insert_offset_gap(TOPIC, 0, 2**31 - 1) == 2**31 - 1
    assert append(broker, b"a") == 2**31 - 1
    assert broker.insert_offset_gap(TOPIC, 0, 3) == 2**31 + 3

    assert records(broker) == [(2**31 - 1, b"a")]
    assert records(broker, 2**31) == []
    assert offset_of(broker, LATEST) == 2**31 + 3


def test_a_gap_outlives_a_kill() -> None:
    with Broker() as broker:
        create_topic(broker)
        append(broker, b"a")
        broker.insert_offset_gap(TOPIC, 0, 5)
        append(broker, b"b")

        broker.kill()
        broker.start()

        assert records(broker) == [(0, b"a"), (6, b"b")]
        assert append(broker, b"c") == 7


def test_a_consumer_reads_over_gaps_to_the_end(broker: Broker) -> None:
    from kafka import KafkaConsumer, TopicPartition

    append(broker, b"a", b"b")
    broker.insert_offset_gap(TOPIC, 0, 100)
    append(broker, b"c")
    broker.insert_offset_gap(TOPIC, 0, 100)
    partition = TopicPartition(TOPIC, 0)
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap_servers, group_id=None, enable_auto_commit=False)
    try:
        consumer.assign([partition])
        consumer.seek_to_beginning()

        found = []
        while consumer.position(partition) < 203:
            for polled in consumer.poll(timeout_ms=1000).values():
                found += [(record.offset, record.value) for record in polled]
        assert found == [(0, b"a"), (1, b"b"), (102, b"c")]
        assert consumer.position(partition) == consumer.end_offsets([partition])[partition] == 203
    finally:
        consumer.close()


def test_an_impossible_gap_leaves_the_broker_unchanged(broker: Broker) -> None:
    append(broker, b"a")

    for topic, partition, count, words in ((TOPIC, 0, 0, "1 to"), (TOPIC, 2, 1, "t-2"), ("no", 0, 1, "no-0")):
        with pytest.raises(ValueError, match=words):
            broker.insert_offset_gap(topic, partition, count)

    assert records(broker) == [(0, b"a")]
    assert append(broker, b"b") == 1


def test_a_truncated_log_has_a_new_leader_epoch_from_there_on(broker: Broker) -> None:
    append(broker, b"a")
    append(broker, b"b")
    append(broker, b"c")

    assert broker.truncate(TOPIC, 0, 1, [b"B", b"C", b"D"]) == 4
    assert append(broker, b"e") == 4

    assert records(broker) == [(0, b"a"), (1, b"B"), (2, b"C"), (3, b"D"), (4, b"e")]
    wanted = OffsetForLeaderPartition(partition=0, current_leader_epoch=-1, leader_epoch=0)
    topic = OffsetForLeaderTopic(topic=TOPIC, partitions=[wanted])
    with WireClient(broker.bootstrap_servers) as wire:
        (found,) = wire.call(OffsetForLeaderEpochRequest(replica_id=-1, topics=[topic])).topics[0].partitions
    assert (found.error_code, found.leader_epoch, found.end_offset) == (0, 0, 1)


def test_a_log_can_lose_all_or_no_records(broker: Broker) -> None:
    append(broker, b"a", b"b")

    assert broker.truncate(TOPIC, 0, 2) == 2
    assert records(broker) == [(0, b"a"), (1, b"b")]
    assert broker.truncate(TOPIC, 0, 1) == 0  # both are in one batch
    assert records(broker) == []
    assert append(broker, b"c") == 0
    for topic, partition, offset, words in ((TOPIC, 0, 2, "0 to 1, not 2"), (TOPIC, 2, 0, "t-2")):
        with pytest.raises(ValueError, match=words):
            broker.truncate(topic, partition, offset)


@pytest.mark.parametrize("thread", [False, True])
def test_an_ephemeral_broker_has_no_data_to_make_a_gap_in(thread: bool) -> None:
    with Broker(ephemeral=True, thread=thread) as broker:
        create_topic(broker)
        with pytest.raises(BrokerError, match="ephemeral"):
            broker.insert_offset_gap(TOPIC, 0)
        assert append(broker, b"a") == 0

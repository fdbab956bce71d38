"""Produce and Fetch through real sockets, request by request."""

from __future__ import annotations

import threading
import time

import pytest

from moldau.protocol.compression import Codec
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.fetch import FetchPartition
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest
from moldau.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from moldau.protocol.messages.metadata import MetadataRequest
from moldau.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from moldau.protocol.messages.produce import PartitionProduceData
from moldau.protocol.records import iter_batches
from moldau.server.network.connection import PEER
from moldau.testing.builders import batch, fetch, fetch_request, produce, produce_request, values

from .conftest import RunningServer


def test_produced_records_are_fetched(server: RunningServer) -> None:
    server.create_topic("t")
    with server.wire() as wire:
        assert produce(wire, "t", batch(b"a", b"b")).base_offset == 0
        assert produce(wire, "t", batch(b"c")).base_offset == 2
        partition = fetch(wire, "t")
        assert values(partition) == [b"a", b"b", b"c"]
        assert partition.high_watermark == 3
        assert partition.last_stable_offset == 3
        assert partition.log_start_offset == 0


def test_a_fetch_in_the_middle_of_a_batch_returns_the_batch(server: RunningServer) -> None:
    server.create_topic("t")
    with server.wire() as wire:
        produce(wire, "t", batch(b"a", b"b", b"c"))
        assert values(fetch(wire, "t", 2)) == [b"a", b"b", b"c"]


def test_a_fetch_at_the_end_is_empty_and_beyond_it_out_of_range(server: RunningServer) -> None:
    server.create_topic("t")
    with server.wire() as wire:
        produce(wire, "t", batch(b"a"))
        at_end = fetch(wire, "t", 1)
        assert (at_end.error_code, len(at_end.records)) == (0, 0)  # type: ignore[arg-type]
        assert fetch(wire, "t", 2).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert fetch(wire, "t", -5).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_batch_larger_than_the_limits_is_returned_completely(server: RunningServer) -> None:
    server.create_topic("t")
    with server.wire() as wire:
        produce(wire, "t", batch(b"x" * 100_000))
        produce(wire, "t", batch(b"y" * 100_000))
        assert values(fetch(wire, "t", max_bytes=10, partition_max_bytes=10)) == [b"x" * 100_000]


def test_an_append_completes_a_waiting_fetch(server: RunningServer) -> None:
    server.create_topic("t")
    with server.wire() as consumer, server.wire() as producer:
        consumer.send(fetch_request("t", max_wait_ms=600_000), 12)
        server.wait_until(lambda: server.partition("t", 0).waiters)
        produce(producer, "t", batch(b"now"))
        assert values(consumer.receive().responses[0].partitions[0]) == [b"now"]
        assert not server.call(lambda: len(server.partition("t", 0).waiters))


def test_a_waiting_fetch_waits_for_min_bytes(server: RunningServer) -> None:
    server.create_topic("t")
    with server.wire() as consumer, server.wire() as producer:
        first = batch(b"x" * 100)
        consumer.send(fetch_request("t", max_wait_ms=600_000, min_bytes=len(first) + 1), 12)
        server.wait_until(lambda: server.partition("t", 0).waiters)
        produce(producer, "t", first)
        assert server.call(lambda: len(server.partition("t", 0).waiters)) == 1
        produce(producer, "t", batch(b"y"))
        assert values(consumer.receive().responses[0].partitions[0]) == [b"x" * 100, b"y"]


def test_a_waiting_fetch_completes_empty_when_it_times_out(server: RunningServer) -> None:
    server.create_topic("t")
    with server.wire() as wire:
        started = time.monotonic()
        assert len(fetch(wire, "t", max_wait_ms=150).records) == 0  # type: ignore[arg-type]
        assert time.monotonic() - started >= 0.15


def test_a_waiting_fetch_completes_when_its_topic_is_deleted(server: RunningServer) -> None:
    from moldau.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState

    server.create_topic("t")
    with server.wire() as consumer, server.wire() as admin:
        consumer.send(fetch_request("t", max_wait_ms=600_000), 12)
        server.wait_until(lambda: server.partition("t", 0).waiters)
        assert (
            admin.call(DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=60_000), 6)
            .responses[0]
            .error_code
            == 0
        )
        answer = consumer.receive().responses[0].partitions[0]
        assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_waiting_fetch_is_removed_when_its_consumer_disconnects(server: RunningServer) -> None:
    server.create_topic("t")
    with server.wire() as consumer:
        consumer.send(fetch_request("t", max_wait_ms=600_000), 12)
        server.wait_until(lambda: server.partition("t", 0).waiters)
    server.wait_until(lambda: not server.partition("t", 0).waiters)


def test_requests_behind_a_waiting_fetch_are_served_and_complete_in_order(server: RunningServer) -> None:
    server.create_topic("t")
    with server.wire() as wire:
        wire.send(fetch_request("t", max_wait_ms=600_000), 12)
        wire.send(produce_request("t", batch(b"a")), 9)
        assert values(wire.receive().responses[0].partitions[0]) == [b"a"]
        assert wire.receive().responses[0].partition_responses[0].base_offset == 0


def test_a_later_response_completes_a_waiting_fetch(server: RunningServer) -> None:
    server.create_topic("t")
    end = ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])
    commit = OffsetCommitRequestPartition(partition_index=0, committed_offset=7)  # completes in this iteration
    offsets = [OffsetCommitRequestTopic(name="t", partitions=[commit])]
    with server.wire() as wire:
        wire.call(FindCoordinatorRequest(coordinator_keys=["g"]), 4)
        for request, version in (
            (ListOffsetsRequest(topics=[end]), 7),
            (OffsetCommitRequest(group_id="g", topics=offsets), 9),
        ):
            wire.send(fetch_request("t", max_wait_ms=600_000), 12)
            wire.send(request, version)
            assert len(wire.receive().responses[0].partitions[0].records) == 0
            assert wire.receive().topics[0].partitions[0].error_code == 0


def test_a_metadata_response_does_not_complete_a_waiting_fetch(server: RunningServer) -> None:
    server.create_topic("t")
    server.create_topic("u")
    with server.wire() as consumer, server.wire() as producer:
        consumer.send(fetch_request("t", max_wait_ms=600_000), 12)
        consumer.send(MetadataRequest(topics=[]), 9)
        consumer.send(fetch_request("u", max_wait_ms=600_000), 12)
        server.wait_until(lambda: server.partition("u", 0).waiters)  # metadata was served
        produce(producer, "t", batch(b"a"))
        assert values(consumer.receive().responses[0].partitions[0]) == [b"a"]
        assert len(consumer.receive().brokers) == 1


def test_consecutive_waiting_fetches_do_not_complete_each_other(server: RunningServer) -> None:
    server.create_topic("t")
    server.create_topic("u")
    with server.wire() as consumer, server.wire() as producer:
        consumer.send(fetch_request("t", max_wait_ms=600_000), 12)
        consumer.send(fetch_request("u", max_wait_ms=600_000), 12)
        server.wait_until(lambda: server.partition("u", 0).waiters)
        assert server.call(lambda: len(server.partition("t", 0).waiters)) == 1
        produce(producer, "u", batch(b"a"))
        assert len(consumer.receive().responses[0].partitions[0].records) == 0
        assert values(consumer.receive().responses[0].partitions[0]) == [b"a"]


def test_acks_0_gets_no_response_and_the_next_request_does(server: RunningServer) -> None:
    server.create_topic("t")
    with server.wire() as wire:
        for value in (b"a", b"b"):
            wire.send(produce_request("t", batch(value), acks=0), 9, answered=False)
        assert values(fetch(wire, "t")) == [b"a", b"b"]


def test_an_error_with_acks_0_closes_the_connection(server: RunningServer) -> None:
    with server.wire() as wire:
        wire.send(produce_request("nowhere", batch(b"a"), acks=0), 9, answered=False)
        wire.send(produce_request("nowhere", batch(b"a")), 9)
        with pytest.raises(ConnectionError):
            wire.receive()


@pytest.mark.parametrize("acks", [2, -2, 100])
def test_invalid_acks_are_rejected(server: RunningServer, acks: int) -> None:
    server.create_topic("t")
    with server.wire() as wire:
        assert produce(wire, "t", batch(b"a"), acks=acks).error_code == ErrorCode.INVALID_REQUIRED_ACKS


def test_acks_all_requires_min_insync_replicas(server: RunningServer) -> None:
    server.create_topic("t", min_insync_replicas=2)
    with server.wire() as wire:
        # There is one replica, so more cannot be required.
        assert produce(wire, "t", batch(b"a"), acks=-1).error_code == 0
        partition = server.partition("t", 0)
        server.call(
            lambda: partition.become_leader(
                leader_epoch=partition.leader_epoch,
                partition_epoch=partition.partition_epoch + 1,
                replicas=(1, 2, 3),
                isr=(1,),
                now_ms=server.broker.now_ms(),
            )
        )
        refused = produce(wire, "t", batch(b"a"), acks=-1)
        assert refused.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        assert (refused.base_offset, refused.log_start_offset) == (-1, 0)
        assert produce(wire, "t", batch(b"a"), acks=1).error_code == 0


def test_each_partition_succeeds_or_fails_independently(server: RunningServer) -> None:
    server.create_topic("t", partitions=2)
    request = produce_request("t", batch(b"good"))
    request.topic_data[0].partition_data += [
        PartitionProduceData(index=1, records=batch(b"bad")[:-1] + b"\xff"),
        PartitionProduceData(index=2, records=batch(b"nowhere")),
    ]
    with server.wire() as wire:
        answers = wire.call(request, 9).responses[0].partition_responses
    assert [answer.error_code for answer in answers] == [
        ErrorCode.NONE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_compression_type_recompresses_in_order(server: RunningServer, codec: Codec) -> None:
    """Threads recompress large batches, and small ones follow. Offsets keep the order of arrival."""
    server.create_topic("t", compression_type=codec.name.lower())
    expected = []
    with server.wire() as wire:
        for number in range(30):
            value = b"%d " % number * (20_000 if number % 3 == 0 else 10)
            expected.append(value)
            wire.send(produce_request("t", batch(value)), 9)
        offsets = [wire.receive().responses[0].partition_responses[0].base_offset for _ in range(30)]
        assert offsets == list(range(30))
        partition = fetch(wire, "t", max_bytes=50_000_000, partition_max_bytes=50_000_000)
        assert values(partition) == expected
        assert {b.codec for b in iter_batches(partition.records)} == {codec}  # type: ignore[arg-type]


def test_many_consumers_can_wait_for_one_partition(server: RunningServer) -> None:
    server.create_topic("t")
    consumers = [server.wire() for _ in range(50)]
    for consumer in consumers:
        consumer.send(fetch_request("t", max_wait_ms=600_000), 12)
    server.wait_until(lambda: len(server.partition("t", 0).waiters) == 50)
    with server.wire() as producer:
        produce(producer, "t", batch(b"to all"))
    for consumer in consumers:
        assert values(consumer.receive().responses[0].partitions[0]) == [b"to all"]
        consumer.close()


def test_records_survive_a_restart(server: RunningServer) -> None:
    server.create_topic("t", partitions=3)
    with server.wire() as wire:
        for partition in range(3):
            produce(wire, "t", batch(b"%d" % partition), partition=partition)
    server.restart()
    with server.wire() as wire:
        for partition in range(3):
            assert values(fetch(wire, "t", partition=partition)) == [b"%d" % partition]
            assert produce(wire, "t", batch(b"more"), partition=partition).base_offset == 1


def test_a_topic_can_be_deleted_during_a_fetch(server: RunningServer) -> None:
    """The range of the segment stays readable until it is sent, although its file has been deleted."""
    from moldau.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState

    server.create_topic("t")
    payload = [bytes([i]) * 900_000 for i in range(30)]
    with server.wire() as wire, server.wire() as admin:
        for value in payload:
            assert produce(wire, "t", batch(value)).error_code == 0
        limit = 50_000_000
        wire.send(fetch_request("t", max_bytes=limit, partition_max_bytes=limit), 12)
        server.wait_until(lambda: any(c._waits_for & PEER for c in server.network.connections))
        assert (
            admin.call(DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=60_000), 6)
            .responses[0]
            .error_code
            == 0
        )
        received = []
        reader = threading.Thread(target=lambda: received.append(wire.receive()))
        reader.start()
        reader.join(60)
        assert values(received[0].responses[0].partitions[0]) == payload


def move_away(server: RunningServer, topic: str) -> None:
    """Make broker 77 the leader of partition 0."""
    partition = server.partition(topic, 0)
    server.call(
        lambda: partition.become_follower(
            leader_id=77,
            leader_epoch=partition.leader_epoch + 1,
            partition_epoch=partition.partition_epoch + 1,
            replicas=(1, 77),
            isr=(1, 77),
        )
    )


@pytest.mark.parametrize("version", range(3, 13))
def test_every_version_of_produce_reports_a_moved_partition(server: RunningServer, version: int) -> None:
    server.create_topic("t")
    move_away(server, "t")
    with server.wire() as wire:
        answer = wire.call(produce_request("t", batch(b"a")), version).responses[0].partition_responses[0]
    assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert answer.current_leader.leader_id == (77 if version >= 10 else -1)


@pytest.mark.parametrize("version", range(4, 19))
def test_every_version_of_fetch_reports_a_moved_partition(server: RunningServer, version: int) -> None:
    topic_id = server.create_topic("t")
    leader_epoch = server.partition("t", 0).leader_epoch
    move_away(server, "t")
    request = fetch_request("t")
    request.topics[0].topic_id = topic_id
    with server.wire() as wire:
        answer = wire.call(request, version).responses[0].partitions[0]
        if version >= 11:  # consumers may read from a follower (KIP-392), unless they know an earlier leader
            assert answer.error_code == ErrorCode.NONE
            request.topics[0].partitions[0].current_leader_epoch = leader_epoch
            answer = wire.call(request, version).responses[0].partitions[0]
            assert answer.error_code == ErrorCode.FENCED_LEADER_EPOCH
        else:
            assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert answer.current_leader.leader_id == (77 if version >= 16 else -1)  # as Apache Kafka: with the endpoints


def test_a_fetch_of_several_partitions_waits_for_their_total_bytes(server: RunningServer) -> None:
    server.create_topic("t", 3)
    one = batch(b"x" * 100)
    request = fetch_request("t", max_wait_ms=600_000, min_bytes=4 * len(one))
    request.topics[0].partitions = [
        FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20) for index in range(3)
    ]
    with server.wire() as consumer, server.wire() as producer:
        consumer.send(request, 12)
        partitions = [server.partition("t", index) for index in range(3)]
        server.wait_until(lambda: all(partition.waiters for partition in partitions))
        for index in (0, 0, 2):
            produce(producer, "t", one, partition=index)
        assert server.call(lambda: [len(partition.waiters) for partition in partitions]) == [1, 1, 1]
        produce(producer, "t", one, partition=1)
        answer = consumer.receive().responses[0].partitions
        assert [len(values(each)) for each in answer] == [2, 1, 1]

"""Fetch and ListOffsets with transactions: records for read_committed consumers, and when they wake."""

from __future__ import annotations

import time
from typing import Any

import pytest

from moldau.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from moldau.protocol.messages.fetch import FetchPartition
from moldau.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from moldau.protocol.records import Record, build_batch
from moldau.testing.builders import batch, fetch, fetch_request, produce, values
from moldau.testing.wire import WireClient

from .conftest import RunningServer

READ_COMMITTED = 1
LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3


def partition_of(server: RunningServer, topic: str = "t", index: int = 0) -> Any:
    return server.partition(topic, index)


class Producer:
    """Writes transactions directly to a partition of the server, each with a new epoch."""

    def __init__(self, server: RunningServer, producer_id: int = 1, topic: str = "t", index: int = 0) -> None:
        self.server = server
        self.partition = partition_of(server, topic, index)
        self.producer_id = producer_id
        self.epoch = self.sequence = 0

    def write(self, *values: Any, timestamp: int | None = None) -> Any:
        return self.server.call(lambda: self._write(values, timestamp or self.server.broker.now_ms()))

    def _write(self, values: Any, timestamp: int) -> Any:
        data = build_batch(
            [Record(0, timestamp, None, value) for value in values],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=self.sequence,
            transactional=True,
        )
        now_ms = self.server.broker.now_ms()
        verification = self.partition.start_verification(
            self.producer_id, self.epoch, self.sequence, epoch_per_transaction=True, now_ms=now_ms
        )
        info = self.partition.append(data, acks=-1, now_ms=now_ms, verification=verification)
        self.sequence += len(values)
        return info.first_offset

    def end(self, *, committed: bool = True, coordinator_epoch: int = 2) -> Any:
        self.epoch += 1
        self.sequence = 0

        def append() -> Any:
            return self.partition.append_marker(
                self.producer_id,
                self.epoch,
                coordinator_epoch=coordinator_epoch,
                committed=committed,
                transaction_version=2,
                now_ms=self.server.broker.now_ms(),
            )

        return self.server.call(append).first_offset


def committed_request(topic: str = "t", offset: int = 0, **options: Any) -> Any:
    request = fetch_request(topic, offset, **options)
    request.isolation_level = READ_COMMITTED
    return request


def fetch_committed(wire: WireClient, topic: str = "t", offset: int = 0, **options: Any) -> Any:
    answer = wire.call(committed_request(topic, offset, **options), 12)
    return answer.responses[0].partitions[0]


def aborted(partition: Any) -> list[Any]:
    return [(entry.producer_id, entry.first_offset) for entry in partition.aborted_transactions]


def wait_until_waiting(server: RunningServer, topic: str = "t", index: int = 0) -> None:
    server.wait_until(lambda: partition_of(server, topic, index).waiters)


def is_waiting(server: RunningServer, topic: str = "t", index: int = 0) -> Any:
    """Whether a fetch waits, after the event loop has done its pending work."""
    for _ in range(3):
        server.call(lambda: None)
    return server.call(lambda: len(partition_of(server, topic, index).waiters)) > 0


def test_open_transactions_are_invisible_and_aborted_ones_are_listed(server: RunningServer) -> None:
    server.create_topic("t")
    first, second = Producer(server, 1), Producer(server, 2)
    with server.wire() as wire:
        produce(wire, "t", batch(b"plain"))
        first.write(b"aborted")
        second.write(b"committed")
        first.end(committed=False)
        second.end()
        first.write(b"open")
        found = fetch_committed(wire)
        assert values(found)[:3] == [b"plain", b"aborted", b"committed"]
        assert len(values(found)) == 5, "with two markers"
        assert aborted(found) == [(1, 1)]
        assert (found.high_watermark, found.last_stable_offset) == (6, 5)
        assert aborted(fetch_committed(wire, offset=4)) == []

        found = fetch(wire, "t")
        assert values(found)[-1] == b"open"
        assert found.aborted_transactions is None
        assert (found.high_watermark, found.last_stable_offset) == (6, 5)


def test_a_reader_at_the_last_stable_offset_gets_no_records(server: RunningServer) -> None:
    server.create_topic("t")
    Producer(server).write(b"open")
    with server.wire() as wire:
        for offset in (0, 1):
            found = fetch_committed(wire, offset=offset)
            assert (found.error_code, len(found.records), aborted(found)) == (0, 0, [])


def test_a_marker_wakes_a_waiting_reader(server: RunningServer) -> None:
    server.create_topic("t")
    producer = Producer(server)
    with server.wire() as consumer:
        consumer.send(committed_request(max_wait_ms=60_000), 12)
        wait_until_waiting(server)
        producer.write(b"a")
        assert is_waiting(server)
        producer.write(b"b" * 10_000)
        assert is_waiting(server)
        producer.end()
        found = consumer.receive().responses[0].partitions[0]
        assert values(found)[:2] == [b"a", b"b" * 10_000]
        assert not is_waiting(server)


def test_a_marker_wakes_a_reader_that_arrived_during_the_transaction(server: RunningServer) -> None:
    server.create_topic("t")
    first, second = Producer(server, 1), Producer(server, 2)
    first.write(b"a")
    second.write(b"b")
    with server.wire() as consumer, server.wire() as producer:
        consumer.send(committed_request(max_wait_ms=60_000), 12)
        wait_until_waiting(server)
        produce(producer, "t", batch(b"plain"))
        second.end()
        assert is_waiting(server), "the oldest is still open"
        first.end(committed=False)
        found = consumer.receive().responses[0].partitions[0]
        assert values(found)[:3] == [b"a", b"b", b"plain"]
        assert aborted(found) == [(1, 0)]


def test_a_marker_that_releases_less_than_min_bytes_wakes_no_reader(server: RunningServer) -> None:
    server.create_topic("t")
    first, second = Producer(server, 1), Producer(server, 2)
    first.write(b"x" * 100)
    second.write(b"y" * 10_000)
    with server.wire() as consumer:
        consumer.send(committed_request(max_wait_ms=60_000, min_bytes=5_000), 12)
        wait_until_waiting(server)
        first.end()
        assert is_waiting(server), "up to the second there are some hundred bytes"
        second.end()
        assert len(values(consumer.receive().responses[0].partitions[0])) == 4


def test_min_bytes_without_transactions_is_the_total_of_all_partitions(server: RunningServer) -> None:
    server.create_topic("t", partitions=2)
    one = batch(b"x" * 100)
    request = committed_request(max_wait_ms=60_000, min_bytes=2 * len(one))
    request.topics[0].partitions.append(FetchPartition(partition=1, partition_max_bytes=1 << 20))
    with server.wire() as consumer, server.wire() as producer:
        consumer.send(request, 12)
        wait_until_waiting(server)
        produce(producer, "t", one)
        assert is_waiting(server)
        produce(producer, "t", one, partition=1)
        assert [len(p.records) for p in consumer.receive().responses[0].partitions] == [len(one)] * 2


def test_a_transaction_in_one_partition_does_not_delay_another(server: RunningServer) -> None:
    server.create_topic("t", partitions=2)
    open_transaction = Producer(server, 1, "t", 0)
    request = committed_request(max_wait_ms=60_000)
    request.topics[0].partitions.append(FetchPartition(partition=1, partition_max_bytes=1 << 20))
    with server.wire() as consumer, server.wire() as producer:
        consumer.send(request, 12)
        wait_until_waiting(server)
        open_transaction.write(b"open")
        assert is_waiting(server)
        produce(producer, "t", batch(b"plain"), partition=1)
        open_one, plain = consumer.receive().responses[0].partitions
        assert (len(open_one.records), values(plain)) == (0, [b"plain"])
    assert not is_waiting(server)
    assert not is_waiting(server, index=1)


def test_a_reader_behind_a_transaction_completes_when_it_times_out(server: RunningServer) -> None:
    server.create_topic("t")
    Producer(server).write(b"open")
    with server.wire() as wire:
        started = time.monotonic()
        found = fetch_committed(wire, max_wait_ms=150)
        assert (found.error_code, len(found.records)) == (0, 0)
        assert time.monotonic() - started >= 0.15
    assert not is_waiting(server)


def test_a_reader_behind_a_transaction_is_removed_when_it_disconnects(server: RunningServer) -> None:
    server.create_topic("t")
    producer = Producer(server)
    producer.write(b"open")
    with server.wire() as consumer:
        consumer.send(committed_request(max_wait_ms=60_000), 12)
        wait_until_waiting(server)
    server.wait_until(lambda: not partition_of(server).waiters)
    producer.end()


def test_a_reader_in_a_session_wakes_and_gets_aborted_transactions(server: RunningServer) -> None:
    server.create_topic("t")
    producer = Producer(server)
    with server.wire() as consumer:
        request = committed_request()
        request.session_epoch = 0
        session_id = consumer.call(request, 12).session_id
        assert session_id > 0
        producer.write(b"a")
        request = committed_request(max_wait_ms=60_000)
        request.session_id, request.session_epoch, request.topics = session_id, 1, []
        consumer.send(request, 12)
        wait_until_waiting(server)
        producer.end(committed=False)
        (topic,) = consumer.receive().responses
        assert aborted(topic.partitions[0]) == [(1, 0)]


def test_open_and_aborted_transactions_are_known_after_a_restart(server: RunningServer) -> None:
    server.create_topic("t")
    first, second = Producer(server, 1), Producer(server, 2)
    first.write(b"aborted")
    first.end(committed=False)
    second.write(b"open")
    server.restart()
    with server.wire() as wire:
        found = fetch_committed(wire)
        assert aborted(found) == [(1, 0)]
        assert (found.high_watermark, found.last_stable_offset) == (3, 2)


def list_offset(wire: WireClient, timestamp: int, *, isolation_level: int, version: int = 7) -> Any:
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation_level,
        topics=[ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(partition_index=0, timestamp=timestamp)])],
    )
    (found,) = wire.call(request, version).topics[0].partitions
    assert found.error_code == 0
    return found.offset, found.timestamp


@pytest.mark.parametrize("version", [2, 7, 11])
def test_offsets_of_committed_records_end_at_the_last_stable_offset(server: RunningServer, version: int) -> None:
    server.create_topic("t")
    producer = Producer(server)
    now_ms = server.broker.now_ms()
    with server.wire() as wire:
        produce(wire, "t", build_batch([Record(0, now_ms, None, b"plain")]))
        producer.write(b"open", timestamp=now_ms + 10)
        for isolation_level, latest in ((0, 2), (READ_COMMITTED, 1)):
            options = {"isolation_level": isolation_level, "version": version}
            assert list_offset(wire, LATEST, **options) == (latest, -1)
            assert list_offset(wire, EARLIEST, **options) == (0, -1)
            assert list_offset(wire, now_ms, **options) == (0, now_ms)
            by_time = list_offset(wire, now_ms + 10, **options)
            assert by_time == ((1, now_ms + 10) if latest == 2 else (-1, -1))
            if version >= 7:
                assert list_offset(wire, MAX_TIMESTAMP, **options) == by_time
        producer.end()
        assert list_offset(wire, LATEST, isolation_level=READ_COMMITTED, version=version) == (3, -1)


def test_producers_are_described_with_their_open_transactions(server: RunningServer) -> None:
    server.create_topic("t")
    first, second = Producer(server, 1), Producer(server, 2)
    first.write(b"a", b"b")
    second.write(b"c")
    second.end()
    request = DescribeProducersRequest(topics=[TopicRequest(name="t", partition_indexes=[0])])
    with server.wire() as wire:
        (partition,) = wire.call(request, 0).topics[0].partitions
    assert [
        (p.producer_id, p.producer_epoch, p.last_sequence, p.coordinator_epoch, p.current_txn_start_offset)
        for p in partition.active_producers
    ] == [(1, 0, 1, -1, 0), (2, 1, -1, 2, -1)]

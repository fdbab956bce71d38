"""Fetch sessions of followers: the leader looks at the partitions that have changed, and at no others.

The follower is a missing broker in the in-sync set of all partitions; the test sends its requests.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.api_versions import ApiVersionsRequest
from moldau.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from moldau.replication.partition import Partition
from moldau.testing.builders import batch, produce, values
from moldau.testing.config_requests import BROKER, DELETE, SET, TOPIC, alter
from moldau.testing.wire import WireClient

from .conftest import RunningServer

ABSENT = 77
EPOCH = 5
VERSION = 17
LONG_MS = 600_000
PARTITIONS = 3


class Follower:
    """A follower of the partitions of a topic, with a session."""

    def __init__(self, server: RunningServer, topic_id: bytes, wire: WireClient, partitions: int) -> None:
        self.server = server
        self.topic_id = topic_id
        self.wire = wire
        self.offsets = dict.fromkeys(range(partitions), 0)
        self.session_id = 0
        self.session_epoch = 0
        self.replica_epoch = -1

    def send(self, *named: int, max_wait_ms: int = 0, forget: tuple[int, ...] = (), leader_epoch: int = EPOCH) -> None:
        """A request that names these partitions; the first one names all."""
        wanted = [
            FetchPartition(
                partition=index,
                current_leader_epoch=leader_epoch,
                fetch_offset=self.offsets[index],
                log_start_offset=0,
                partition_max_bytes=1_000_000,
            )
            for index in (named if self.session_epoch else self.offsets)
        ]
        request = FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            replica_state=ReplicaState(replica_id=ABSENT, replica_epoch=self.replica_epoch),
            session_id=self.session_id,
            session_epoch=self.session_epoch,
            topics=[FetchTopic(topic_id=self.topic_id, partitions=wanted)] if wanted else [],
            forgotten_topics_data=[ForgottenTopic(topic_id=self.topic_id, partitions=list(forget))] if forget else [],
        )
        self.session_epoch += 1
        self.wire.send(request, VERSION)

    def receive(self) -> dict[int, PartitionData]:
        response = self.wire.receive()
        assert response.error_code == ErrorCode.NONE
        self.session_id = response.session_id
        return {data.partition_index: data for topic in response.responses for data in topic.partitions}

    def fetch(self, *named: int, **options: Any) -> dict[int, PartitionData]:
        """Fetch without waiting."""
        self.send(*named, **options)
        return self.receive()

    @property
    def changes(self) -> Any:
        return self.server.broker.fetch_sessions._sessions[self.session_id].changes

    def unsettled(self) -> list[int]:
        return self.server.call(lambda: [index for _, index in self.changes.unsettled])

    def await_waiting(self) -> None:
        self.server.wait_until(lambda: self.changes.waiting is not None)

    def begin(self) -> None:
        """All partitions are settled."""
        self.begin_with([])

    def begin_with(self, unsettled: list[int]) -> None:
        """All partitions but these are settled."""
        self.fetch()
        assert self.fetch() == {}
        assert self.unsettled() == unsettled


def lead(partition: Partition, leader_epoch: int = EPOCH, isr: tuple[int, ...] | None = None) -> None:
    local_id = partition.local_id
    partition.become_leader(
        leader_epoch=leader_epoch,
        partition_epoch=partition.partition_epoch + 1,
        replicas=(local_id, ABSENT),
        isr=isr or (local_id, ABSENT),
        now_ms=0,
    )


@pytest.fixture
def topic_id(server: RunningServer) -> bytes:
    topic_id = server.create_topic("t", PARTITIONS)
    for index in range(PARTITIONS):
        server.call(partial(lead, server.partition("t", index)))
    return topic_id


def append(server: RunningServer, index: int, value: bytes = b"x") -> None:
    with server.wire() as wire:
        assert produce(wire, "t", batch(value), partition=index, acks=1).error_code == ErrorCode.NONE


def test_an_idle_session_looks_at_no_partition(server: RunningServer, topic_id: bytes) -> None:
    with server.wire() as wire:
        follower = Follower(server, topic_id, wire, PARTITIONS)
        follower.begin()
        reads = server.partition().traffic.fetches
        assert follower.fetch() == {}
        assert server.partition().traffic.fetches == reads


def test_records_and_high_watermarks_are_served_once(server: RunningServer, topic_id: bytes) -> None:
    with server.wire() as wire:
        follower = Follower(server, topic_id, wire, PARTITIONS)
        follower.begin()
        follower.send(max_wait_ms=LONG_MS)
        follower.await_waiting()
        append(server, 1, b"first")
        found = follower.receive()
        assert list(found) == [1]
        assert (values(found[1]), found[1].high_watermark) == ([b"first"], 0)
        assert values(follower.fetch()[1]) == [b"first"]  # the follower has not appended it: the same again
        follower.offsets[1] = 1
        found = follower.fetch(1)
        assert list(found) == [1]
        assert (values(found[1]), found[1].high_watermark) == ([], 1)
        assert follower.fetch() == {}
        assert follower.unsettled() == []
        append(server, 1, b"second")
        append(server, 2, b"other")
        assert {index: values(data) for index, data in follower.fetch().items()} == {1: [b"second"], 2: [b"other"]}


def test_another_request_ends_the_wait(server: RunningServer, topic_id: bytes) -> None:
    """The follower has a new partition to fetch."""
    with server.wire() as wire:
        follower = Follower(server, topic_id, wire, PARTITIONS)
        follower.begin()
        follower.send(max_wait_ms=LONG_MS)
        follower.await_waiting()
        wire.send(ApiVersionsRequest(), 0)
        assert follower.receive() == {}
        assert wire.receive().error_code == ErrorCode.NONE


def test_records_behind_the_limit_follow(server: RunningServer, topic_id: bytes) -> None:
    with server.wire() as wire:
        follower = Follower(server, topic_id, wire, PARTITIONS)
        follower.begin()
        for index in range(PARTITIONS):
            append(server, index, b"x" * 700_000)
        server.call(lambda: setattr(server.broker, "fetch_max_bytes", 1_000_000))
        served: list[int] = []
        for _ in range(PARTITIONS):
            (found,) = [index for index, data in follower.fetch(*served[-1:]).items() if len(data.records or b"")]
            served.append(found)
            follower.offsets[found] = 1
        assert sorted(served) == list(range(PARTITIONS))


def test_a_new_leader_epoch_ends_the_wait(server: RunningServer, topic_id: bytes) -> None:
    with server.wire() as wire:
        follower = Follower(server, topic_id, wire, PARTITIONS)
        follower.begin()
        follower.send(max_wait_ms=LONG_MS)
        follower.await_waiting()
        server.call(lambda: lead(server.partition("t", 2), EPOCH + 1))
        found = follower.receive()
        assert {index: data.error_code for index, data in found.items()} == {2: ErrorCode.FENCED_LEADER_EPOCH}
        assert follower.fetch(2, leader_epoch=EPOCH + 1)[2].error_code == ErrorCode.NONE
        follower.fetch()
        assert follower.unsettled() == []


def test_a_replica_outside_the_in_sync_set_is_looked_at(server: RunningServer, topic_id: bytes) -> None:
    """It may join at any of its requests."""
    with server.wire() as wire:
        follower = Follower(server, topic_id, wire, PARTITIONS)
        follower.begin()
        partition = server.partition("t", 0)
        server.call(lambda: lead(partition, isr=(partition.local_id,)))
        for _ in range(2):
            follower.fetch()
            assert follower.unsettled() == [0]
        server.call(lambda: lead(partition))
        follower.fetch()
        assert follower.unsettled() == []


def test_a_replica_outside_the_in_sync_set_waits_for_records(server: RunningServer, topic_id: bytes) -> None:
    """It has never been in it: the session has not settled the partition before."""
    with server.wire() as wire:
        partition = server.partition("t", 0)
        server.call(lambda: lead(partition, isr=(partition.local_id,)))
        follower = Follower(server, topic_id, wire, PARTITIONS)
        follower.fetch()
        follower.send(max_wait_ms=LONG_MS)
        follower.await_waiting()
        append(server, 0, b"awaited")
        assert values(follower.receive()[0]) == [b"awaited"]


def test_records_that_a_throttle_withholds_do_not_end_the_wait(server: RunningServer, topic_id: bytes) -> None:
    with server.wire() as wire:
        partition = server.partition("t", 0)
        server.call(lambda: lead(partition, isr=(partition.local_id,)))
        follower = Follower(server, topic_id, wire, PARTITIONS)
        follower.begin_with([0])
        changes = follower.changes
        server.call(lambda: setattr(changes, "withholds", lambda withheld, _replica: withheld is partition))
        follower.send(max_wait_ms=LONG_MS)
        follower.await_waiting()
        append(server, 0)
        assert server.call(lambda: changes.waiting is not None and not changes.appended_bytes)
        append(server, 1, b"awaited")
        assert values(follower.receive()[1]) == [b"awaited"]


def test_an_empty_response_to_a_follower_exceeds_a_rate_of_0(server: RunningServer, topic_id: bytes) -> None:
    throttling = server.broker.replication.throttling
    partition = server.partition("t", 0)
    with server.wire() as wire:
        node = str(server.broker.node_id)
        assert alter(wire, TOPIC, "t", ("leader.replication.throttled.replicas", SET, "*")) == "NONE"
        assert alter(wire, BROKER, node, ("leader.replication.throttled.rate", SET, "0")) == "NONE"
        server.wait_until(lambda: throttling.counts(partition))
        server.call(lambda: lead(partition, isr=(partition.local_id,)))
        follower = Follower(server, topic_id, wire, PARTITIONS)
        assert not server.call(lambda: throttling.withholds(partition, ABSENT))
        follower.fetch()
        append(server, 0, b"withheld")
        assert values(follower.fetch().get(0, PartitionData())) == []
        assert alter(wire, BROKER, node, ("leader.replication.throttled.rate", DELETE, None)) == "NONE"
        server.wait_until(lambda: not throttling.counts(partition))
        assert values(follower.fetch()[0]) == [b"withheld"]


def test_the_log_start_offset_is_told(server: RunningServer, topic_id: bytes) -> None:
    with server.wire() as wire:
        follower = Follower(server, topic_id, wire, PARTITIONS)
        append(server, 0)
        follower.offsets[0] = 1
        follower.begin()
        partition = server.partition("t", 0)

        def deleted() -> None:
            partition.log.delete_records_before(1)
            partition.log_start_moved()

        server.call(deleted)
        assert {index: data.log_start_offset for index, data in follower.fetch().items()} == {0: 1}


def test_a_forgotten_partition_is_not_served(server: RunningServer, topic_id: bytes) -> None:
    with server.wire() as wire:
        follower = Follower(server, topic_id, wire, PARTITIONS)
        follower.begin()
        assert follower.fetch(forget=(0,)) == {}
        append(server, 0)
        append(server, 1)
        assert list(follower.fetch()) == [1]
        assert server.call(lambda: server.partition("t", 0).observers) == []


def test_a_new_session_replaces_the_observers_of_the_earlier_one(server: RunningServer, topic_id: bytes) -> None:
    with server.wire() as first, server.wire() as second:
        earlier = Follower(server, topic_id, first, PARTITIONS)
        earlier.begin()
        later = Follower(server, topic_id, second, PARTITIONS)
        later.begin()
        assert [len(server.partition("t", index).observers) for index in range(PARTITIONS)] == [1] * PARTITIONS
        assert sorted(earlier.unsettled()) == list(range(PARTITIONS))
        append(server, 1, b"both")
        assert values(later.fetch()[1]) == values(earlier.fetch()[1]) == [b"both"]


def test_an_ended_session_observes_nothing(server: RunningServer, topic_id: bytes) -> None:
    with server.wire() as wire:
        follower = Follower(server, topic_id, wire, PARTITIONS)
        follower.begin()
        follower.session_epoch = 0
        follower.fetch()
        assert not any(server.partition("t", index).observers for index in range(PARTITIONS))


def test_requests_for_settled_partitions_keep_the_follower_in_sync(server: RunningServer, topic_id: bytes) -> None:
    with server.wire() as wire:
        follower = Follower(server, topic_id, wire, PARTITIONS)
        follower.begin()
        partition = server.partition("t", 0)
        assert partition.in_sync is not None
        known = partition.in_sync.follower(ABSENT)
        assert known is not None

        def caught_up_long_ago() -> None:
            known.caught_up_ms = -LONG_MS

        server.call(caught_up_long_ago)
        before = server.call(server.broker.timers.now_ms)
        follower.fetch()
        append(server, 0)
        assert known.caught_up_ms >= before


def test_an_earlier_life_of_the_follower_is_not_caught_up(server: RunningServer, topic_id: bytes) -> None:
    with server.wire() as wire:
        follower = Follower(server, topic_id, wire, PARTITIONS)
        follower.begin()
        replication = server.broker.replication
        server.call(lambda: setattr(replication, "is_stale", lambda broker_id, epoch: True))
        found = follower.fetch()
        assert {data.error_code for data in found.values()} == {ErrorCode.NOT_LEADER_OR_FOLLOWER}
        assert len(found) == PARTITIONS

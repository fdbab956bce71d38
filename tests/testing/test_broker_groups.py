"""The guarantees of the broker for tests about groups: tests wait for them and expire sessions without a sleep."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from moldau.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from moldau.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest
from moldau.protocol.messages.heartbeat import HeartbeatRequest
from moldau.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from moldau.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from moldau.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from moldau.testing import Broker, BrokerError
from moldau.testing.builders import batch, produce
from moldau.testing.wire import WireClient

NONE, UNKNOWN_MEMBER_ID = 0, 25


@pytest.fixture(params=["process", "thread"])
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    with Broker(thread=request.param == "thread") as started:
        with WireClient(started.bootstrap_servers) as wire:
            wire.call(CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=2, replication_factor=1)]))
            wire.call(FindCoordinatorRequest(coordinator_keys=["g"]))
        yield started


class Member:
    """A member of the group ``g`` that joins when `join` is called."""

    def __init__(self, broker: Broker, instance_id: str | None = None) -> None:
        self.wire = WireClient(broker.bootstrap_servers)
        self.instance_id = instance_id
        self.member_id = ""

    def join(self) -> None:
        """Join an empty group, without the assignment of the leader."""
        request = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=60_000,
            rebalance_timeout_ms=60_000,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="opaque",
            protocols=[JoinGroupRequestProtocol(name="p", metadata=b"")],
        )
        answer = self.wire.call(request, 5)
        if not self.member_id and self.instance_id is None:
            request.member_id = answer.member_id
            answer = self.wire.call(request, 5)
        assert answer.error_code == NONE
        self.member_id = answer.member_id

    def sync(self) -> None:
        """As the leader of the first generation: the group is stable then."""
        assignment = SyncGroupRequestAssignment(member_id=self.member_id, assignment=b"all")
        request = SyncGroupRequest(
            group_id="g",
            generation_id=1,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            assignments=[assignment],
        )
        assert self.wire.call(request, 4).error_code == NONE

    def heartbeat(self) -> int:
        request = HeartbeatRequest(group_id="g", generation_id=1, member_id=self.member_id)
        return int(self.wire.call(request, 4).error_code)


def test_member_of_a_consumer_group_that_rejoins_has_its_partitions_immediately(broker: Broker) -> None:
    """Without TEST_CONFIG the first assignment would be empty: the last target assignment is less than a second old."""

    def heartbeat(epoch: int) -> ConsumerGroupHeartbeatResponse:
        request = ConsumerGroupHeartbeatRequest(
            group_id="kip-848",
            member_id="the-member",
            member_epoch=epoch,
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=["t"],
            topic_partitions=[],
        )
        answer: ConsumerGroupHeartbeatResponse = wire.call(request, 1)
        assert answer.error_code == NONE
        return answer

    joining, leaving = 0, -1
    with WireClient(broker.bootstrap_servers) as wire:
        for _ in range(3):
            assignment = heartbeat(joining).assignment
            assert assignment is not None
            assert [each.partitions for each in assignment.topic_partitions] == [[0, 1]]
            heartbeat(leaving)


@pytest.fixture
def member(broker: Broker) -> Iterator[Member]:
    made = Member(broker)
    yield made
    made.wire.close()


def commit(broker: Broker, *offsets: int) -> None:
    """For the partitions of ``t`` in their order, from outside of the group."""
    partitions = [
        OffsetCommitRequestPartition(partition_index=index, committed_offset=offset, committed_metadata="")
        for index, offset in enumerate(offsets)
    ]
    request = OffsetCommitRequest(group_id="g", topics=[OffsetCommitRequestTopic(name="t", partitions=partitions)])
    with WireClient(broker.bootstrap_servers) as wire:
        answer = wire.call(request, 8)
    assert [partition.error_code for partition in answer.topics[0].partitions] == [NONE] * len(offsets)


def produce_to(broker: Broker, *counts: int) -> None:
    """So many records to each partition of ``t``."""
    with WireClient(broker.bootstrap_servers) as wire:
        for partition, count in enumerate(counts):
            if count:
                assert produce(wire, "t", batch(*[b"-"] * count), partition=partition).error_code == NONE


class Waiting:
    """A call that waits in a thread."""

    def __init__(self, call: Callable[[], None]) -> None:
        self._error: BaseException | None = None
        self._call = call
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    @property
    def done(self) -> bool:
        return not self._thread.is_alive()

    def end(self) -> None:
        """Return when the call has returned, and raise what it has raised."""
        self._thread.join(60)
        assert self.done
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            self._call()
        except BaseException as error:  # noqa: BLE001 - end() raises it
            self._error = error


# -- await_group_stable --


def test_a_group_is_awaited_until_it_is_stable(broker: Broker, member: Member) -> None:
    waiting = Waiting(lambda: broker.await_group_stable("g"))
    member.join()
    assert not waiting.done
    member.sync()
    waiting.end()
    # It returns immediately if the group is stable already.
    broker.await_group_stable("g", members=1)


def test_a_group_with_fewer_members_is_not_the_one_that_is_awaited(broker: Broker, member: Member) -> None:
    member.join()
    member.sync()
    with pytest.raises(BrokerError, match=rf"after 0.05 s the group g is Stable and has 1 members: {member.member_id}"):
        broker.await_group_stable("g", members=2, timeout=0.05)


def test_a_missing_group_can_be_awaited(broker: Broker) -> None:
    with pytest.raises(BrokerError, match=r"after 0.05 s the group missing does not exist"):
        broker.await_group_stable("missing", timeout=0.05)


def test_several_threads_can_wait_at_the_same_time(broker: Broker, member: Member) -> None:
    waiting = [Waiting(lambda: broker.await_group_stable("g", members=1)) for _ in range(3)]
    other = Waiting(lambda: broker.await_group_stable("missing", timeout=0.2))
    member.join()
    member.sync()
    for each in waiting:
        each.end()
    with pytest.raises(BrokerError, match="missing"):
        other.end()


def test_a_group_is_awaited_after_a_restart(broker: Broker, member: Member) -> None:
    member.join()
    member.sync()
    broker.restart()
    broker.await_group_stable("g", members=1)


def test_a_pending_wait_fails_when_the_broker_dies() -> None:
    with Broker() as broker:
        waiting = Waiting(lambda: broker.await_group_stable("g"))
        broker.kill()
        with pytest.raises(BrokerError, match=r"exited|not running"):
            waiting.end()
        broker.start()


def test_a_pending_wait_fails_when_the_broker_stops(broker: Broker) -> None:
    waiting = Waiting(lambda: broker.await_group_stable("g"))
    broker.stop()
    with pytest.raises(BrokerError, match=r"exited|stopped|not running"):
        waiting.end()


# -- await_lag_zero --


def test_a_lag_is_awaited_until_everything_is_committed(broker: Broker) -> None:
    produce_to(broker, 3, 1)
    waiting = Waiting(lambda: broker.await_lag_zero("g", "t"))
    commit(broker, 3)
    assert not waiting.done
    commit(broker, 3, 1)
    waiting.end()
    produce_to(broker, 1)
    with pytest.raises(BrokerError, match=r"after 0.05 s the group g lags behind: t-0 by 1 records"):
        broker.await_lag_zero("g", "t", timeout=0.05)


def test_a_topic_without_records_is_no_lag(broker: Broker) -> None:
    broker.await_lag_zero("g", "t")


def test_records_that_were_trimmed_are_no_lag(broker: Broker) -> None:
    produce_to(broker, 3)
    broker.trim("t", 0, -1)
    broker.await_lag_zero("g", "t")


def test_the_lag_of_a_missing_topic(broker: Broker) -> None:
    with pytest.raises(BrokerError, match="UNKNOWN_TOPIC_OR_PARTITION: Topic missing does not exist"):
        broker.await_lag_zero("g", "missing")


# -- expire_member --


def test_an_expired_member_is_out_of_the_group(broker: Broker, member: Member) -> None:
    member.join()
    member.sync()
    assert member.heartbeat() == NONE
    broker.expire_member("g", member.member_id)
    assert member.heartbeat() == UNKNOWN_MEMBER_ID
    with pytest.raises(BrokerError, match="g is Empty and has 0 members"):
        broker.await_group_stable("g", timeout=0.05)


def test_a_static_member_is_expired_by_its_instance_id(broker: Broker) -> None:
    member = Member(broker, instance_id="worker-1")
    member.join()
    member.sync()
    broker.expire_member("g", "worker-1")
    assert member.heartbeat() == UNKNOWN_MEMBER_ID
    member.wire.close()


def test_an_unknown_member_cannot_be_expired(broker: Broker, member: Member) -> None:
    with pytest.raises(BrokerError, match="GROUP_ID_NOT_FOUND"):
        broker.expire_member("g", "somebody")
    member.join()
    with pytest.raises(BrokerError, match="somebody is not a member of group g"):
        broker.expire_member("g", "somebody")


def test_a_consumer_is_awaited_and_expired_and_rejoins(broker: Broker) -> None:
    """With a real client, of the newer protocol: it notices, and joins again."""
    from confluent_kafka import Consumer

    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "g",
            "group.protocol": "consumer",
            "group.instance.id": "worker-1",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(["t"])
    produce_to(broker, 5, 5)
    read = 0
    while read < 10:
        read += len(consumer.consume(10, timeout=1))
    broker.await_group_stable("g", members=1)
    consumer.commit(asynchronous=False)
    broker.await_lag_zero("g", "t")
    broker.expire_member("g", "worker-1")
    stable = Waiting(lambda: broker.await_group_stable("g", members=1))
    while not stable.done:
        consumer.poll(0.1)
    stable.end()
    consumer.close()

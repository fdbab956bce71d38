"""The same scenario in clusters whose controller and two brokers are each Apache Kafka or Moldau.

A `Story` has what clients see: error codes, offsets, epochs, replicas and records. It must be the same in all eight
combinations as when all nodes are Apache Kafka. That one runs twice: a difference between its stories is a fault of
this test. Each broker is stopped once and returns, while a transaction and a group have their coordinator in one of
the two brokers; so each coordinator is stopped at least once.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from moldau.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest
from moldau.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from moldau.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from moldau.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from moldau.protocol.records import RecordBatch, build_batch, iter_records
from moldau.testing import topic_requests as w
from moldau.testing.group_requests import (
    ConsumerMember,
    code,
    commit,
    commit_request,
    committed,
    settle,
    wait_for_coordinator,
)
from moldau.testing.routed_wire import RoutedWire
from moldau.testing.topic_requests import Topic
from moldau.testing.waiting import wait_until
from moldau.testing.wire import WireClient

from .swapped_cluster import BROKERS, Nodes, SwappedCluster
from .transaction_wire import Producer, consume, describe, wait_for_coordinators

REPLICAS = [[1, 2], [2, 1]]
PARTITIONS = (0, 1)
GROUP = "group"
TRANSACTIONAL_ID = "transactions"
TIMESTAMP = 1_700_000_000_000
LOADING = ("COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS", "NOT_COORDINATOR")
NOT_YET = (*LOADING, "NOT_LEADER_OR_FOLLOWER", "CONCURRENT_TRANSACTIONS")
PREFERRED = 0
ASSIGNMENTS = "new assignments at the new coordinator"


class Story:
    """What clients see of one cluster, in order."""

    def __init__(self, cluster: SwappedCluster) -> None:
        self.lines: list[tuple[str, Any]] = []
        self._cluster = cluster
        self._values = itertools.count()
        self._orders = self._payments = Topic("", b"")

    def run(self) -> list[tuple[str, Any]]:
        self._create_topics()
        wait_for_coordinators(self._cluster.address(1))
        wait_for_coordinator(self._cluster.address(1))
        self._wait_for_states(leaders=BROKERS, in_sync=BROKERS)
        self._produce("at the start")
        with RoutedWire(self._cluster.address(1)) as wire:
            producer = Producer(wire, TRANSACTIONAL_ID).begin()
        member = self._joined_member()
        for stopped, is_committed in ((2, True), (1, False)):
            self._write_in_transaction(producer, "before the stop")
            self._commit_offsets(stopped)
            self._cluster.stop(stopped)
            self._without(stopped, producer, member, is_committed=is_committed)
            self._cluster.start(stopped)
            self._with_again(stopped)
        self._compare_logs()
        return self.lines

    def _record(self, what: str, value: Any) -> None:
        self.lines.append((what, value))

    # -- the states between the stops --

    def _create_topics(self) -> None:
        topics = []
        for name, minimum in (("orders", 2), ("payments", 1)):
            # The timestamps of the records are in the past.
            config = {"min.insync.replicas": str(minimum), "retention.ms": "-1"}
            (created,) = self._cluster.create_topic(name, REPLICAS, via=2, **config).topics
            self._record(f"{name} is created", (created.num_partitions, created.replication_factor))
            topics.append(Topic(name, created.topic_id))
        self._orders, self._payments = topics

    def _without(self, stopped: int, producer: Producer, member: ConsumerMember, *, is_committed: bool) -> None:
        """One broker leads all partitions."""
        (left,) = self._cluster.running
        self._wait_for_states(leaders=(left, left), in_sync=(left,))
        with WireClient(self._cluster.address(left)) as wire:
            for partition in PARTITIONS:
                refused = self._append(wire, partition, acks=-1)
                assert refused[0] == "NOT_ENOUGH_REPLICAS"
                self._record(f"acks=all without {stopped} in {partition}", refused)
                self._record(f"acks=1 without {stopped} in {partition}", self._append(wire, partition, acks=1))
                self._record(f"orders-{partition} without {stopped}", self._read(wire, self._orders, partition))
            self._record(f"election without {stopped}", self._elect(wire))
            self._end_transaction(wire, producer, is_committed=is_committed)
        self._continue_group(left, member)

    def _with_again(self, returned: int) -> None:
        other = 3 - returned
        self._wait_for_states(leaders=(other, other), in_sync=BROKERS)
        self._produce(f"after the return of {returned}")
        with WireClient(self._cluster.address(returned)) as wire:
            self._record(f"election after the return of {returned}", self._elect(wire))
        self._wait_for_states(leaders=BROKERS, in_sync=BROKERS)
        self._produce(f"after the election of {returned}")
        self._read_all(f"after the election of {returned}")

    def _wait_for_states(self, leaders: tuple[int, ...], in_sync: tuple[int, ...]) -> None:
        """Wait until all running brokers know these leaders and in-sync replicas, and serve accordingly."""
        running = self._cluster.running
        offline = sorted(set(BROKERS) - set(running))
        for topic in (self._orders, self._payments):

            def are_known(topic: Topic = topic) -> list[Any] | None:
                states = [self._states(node_id, topic) for node_id in running]
                expected = [(leader, sorted(in_sync), offline) for leader in leaders]
                known = [(state[1], state[4], state[5]) for state in states[0]]
                return states[0] if known == expected and all(each == states[0] for each in states) else None

            shown = [self._states(node_id, topic) for node_id in running]
            found = wait_until(are_known, f"{topic.name}: leaders {leaders}, in-sync {in_sync}; first {shown}")
            self._record(f"state of {topic.name}", found)
        self._cluster.catch_up()

    def _states(self, node_id: int, topic: Topic) -> list[Any]:
        """Error, leader, leader epoch, replicas, in-sync and offline replicas, by partition."""
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic.name)], allow_auto_topic_creation=False)
        with WireClient(self._cluster.address(node_id)) as wire:
            (found,) = wire.call(request, 12).topics
        return [
            (
                code(each.error_code),
                each.leader_id,
                each.leader_epoch,
                each.replica_nodes,
                sorted(each.isr_nodes),
                sorted(each.offline_replicas),
            )
            for each in sorted(found.partitions, key=lambda each: each.partition_index)
        ]

    # -- records --

    def _append(self, wire: WireClient, partition: int, acks: int) -> Any:
        record = w.records(b"%d" % next(self._values), timestamp=TIMESTAMP)
        answer = w.produce(wire, "orders", build_batch(record), partition=partition, acks=acks)
        leader = answer.current_leader
        return (
            code(answer.error_code),
            answer.base_offset,
            answer.log_start_offset,
            (leader.leader_id, leader.leader_epoch),
        )

    def _produce(self, when: str) -> None:
        """Produce to each partition at both brokers, one of which does not lead it."""
        for partition in PARTITIONS:
            answers = []
            for node_id in BROKERS:
                with WireClient(self._cluster.address(node_id)) as wire:
                    answers.append(self._append(wire, partition, acks=-1))
            assert sorted(each[0] for each in answers) == ["NONE", "NOT_LEADER_OR_FOLLOWER"], answers
            self._record(f"produced to {partition} {when}", answers)

    def _read_all(self, when: str) -> None:
        """Read each partition from its leader."""
        for partition in PARTITIONS:
            leader = REPLICAS[partition][0]
            with WireClient(self._cluster.address(leader)) as wire:
                for topic in (self._orders, self._payments):
                    self._record(f"{topic.name}-{partition} {when}", self._read(wire, topic, partition))
                epoch = self._states(leader, self._orders)[partition][2]
                for fetched in (epoch - 1, epoch, epoch + 1):
                    request = w.fetch_request("orders", {partition: 0})
                    request.topics[0].partitions[0].current_leader_epoch = fetched
                    ((answer,),) = [each.partitions for each in wire.call(request, 12).responses]
                    self._record(f"fetch with epoch {fetched} {when}", code(answer.error_code))
                for asked in range(epoch + 2):
                    self._record(f"end of epoch {asked} {when}", self._end_of_epoch(wire, partition, asked))

    def _read(self, wire: WireClient, topic: Topic, partition: int) -> Any:
        """Offsets and batches of a partition, at its leader."""
        data = w.fetch(wire, topic.name, 0, partition=partition)
        listed = []
        for timestamp in (-1, -2, -3, TIMESTAMP, TIMESTAMP + 1):
            wanted = ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
            request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic.name, partitions=[wanted])])
            ((found,),) = [each.partitions for each in wire.call(request, 7).topics]
            if topic is self._orders or timestamp < 0:  # the others depend on the time at which the test runs
                listed.append((timestamp, code(found.error_code), found.offset, found.leader_epoch))
        return (
            code(data.error_code),
            (data.high_watermark, data.last_stable_offset, data.log_start_offset),
            listed,
            [_batch(each) for each in w.batches_of(data)],
        )

    def _end_of_epoch(self, wire: WireClient, partition: int, epoch: int) -> Any:
        wanted = OffsetForLeaderPartition(partition=partition, leader_epoch=epoch)
        request = OffsetForLeaderEpochRequest(
            replica_id=-1, topics=[OffsetForLeaderTopic(topic="orders", partitions=[wanted])]
        )
        ((found,),) = [each.partitions for each in wire.call(request, 4).topics]
        return code(found.error_code), found.leader_epoch, found.end_offset

    def _elect(self, wire: WireClient) -> Any:
        """Let the preferred replicas lead."""
        wanted = [TopicPartitions(topic=name, partitions=list(PARTITIONS)) for name in ("orders", "payments")]
        request = ElectLeadersRequest(election_type=PREFERRED, topic_partitions=wanted, timeout_ms=60_000)
        answer = wire.call(request, 2)
        found = sorted(
            (result.topic, each.partition_id, code(each.error_code))
            for result in answer.replica_election_results
            for each in result.partition_result
        )
        return code(answer.error_code), found

    def _compare_logs(self) -> None:
        """Both brokers have the same bytes, also of the coordinators' topics."""
        data = [(topic, partition) for topic in ("orders", "payments") for partition in PARTITIONS]
        for topic, partition in [*data, ("__consumer_offsets", 0), ("__transaction_state", 0)]:

            def equal_logs(topic: str = topic, partition: int = partition) -> bytes | None:
                one, other = (self._cluster.log(node_id, topic, partition) for node_id in BROKERS)
                return one if one == other else None

            wait_until(equal_logs, f"equal logs of {topic}-{partition}, which are not empty")

    # -- a transaction --

    @contextmanager
    def _routed(self, producer: Producer) -> Iterator[RoutedWire]:
        with RoutedWire(self._cluster.address(self._cluster.running[0])) as wire:
            producer.wire = wire
            yield wire

    def _write_in_transaction(self, producer: Producer, when: str) -> None:
        with self._routed(producer):
            for partition in PARTITIONS:
                self._record(f"transactional record {when}", self._write(producer, partition))

    def _write(self, producer: Producer, partition: int) -> str:
        value = b"%d" % next(self._values)
        return _when_ready(lambda: producer.produce(self._payments, value, partition=partition), NOT_YET)

    def _end_transaction(self, wire: WireClient, producer: Producer, *, is_committed: bool) -> None:
        """On the only broker, which is the coordinator now, and leads all partitions."""
        state = _when_ready(lambda: code(describe(wire, TRANSACTIONAL_ID).error_code), LOADING)
        self._record(
            "the transaction at the new coordinator", (state, describe(wire, TRANSACTIONAL_ID).transaction_state)
        )
        producer.wire = wire
        for partition in PARTITIONS:
            self._record("transactional record at the new coordinator", self._write(producer, partition))
        epoch = producer.epoch
        self._record("the transaction ends", producer.end(committed=is_committed))
        ended = producer.wait_for_state("CompleteCommit" if is_committed else "CompleteAbort")
        self._record("the transaction has ended", (producer.epoch - epoch, ended.producer_epoch - epoch))
        for partition in PARTITIONS:
            self._record("committed records", consume(wire, self._payments, partition=partition))

    # -- a group --

    def _joined_member(self) -> ConsumerMember:
        """A member that owns both partitions, and whose connection is closed."""
        with ConsumerMember(self._cluster.address(self._coordinator()), GROUP, self._orders) as member:
            answer = member.join()
            assert answer.error_code == 0, code(answer.error_code)
            settle(member)
            self._record("the member", (member.epoch, member.partitions))
            return member

    def _coordinator(self) -> int:
        with WireClient(self._cluster.address(self._cluster.running[0])) as wire:

            def found() -> int | None:
                (answer,) = wire.call(FindCoordinatorRequest(coordinator_keys=[GROUP]), 4).coordinators
                return int(answer.node_id) if answer.error_code == 0 else None

            return wait_until(found, "the coordinator of the group")

    def _commit_offsets(self, stopped: int) -> None:
        with WireClient(self._cluster.address(self._coordinator())) as wire:
            request = commit_request("alone", self._orders, {0: stopped, 1: stopped + 1})
            self._record("offsets", commit(wire, request))

    def _continue_group(self, left: int, joined: ConsumerMember) -> None:
        """The member and the committed offsets are there at the new coordinator."""
        address = self._cluster.address(left)
        with ConsumerMember(address, GROUP, self._orders, member_id=joined.member_id) as member:
            member.epoch, member.owned = joined.epoch, joined.owned
            error = _when_ready(lambda: code(member.heartbeat(owned=True).error_code), LOADING)
            settle(member)
            self._record("the member at the new coordinator", (error, member.partitions))
            changes = member.epoch - joined.epoch
            if self._cluster.nodes.has_different_brokers:
                # Known gap: the hashes of the topics differ, so the group may get a new assignment.
                assert changes in (0, 1)
            else:
                self._record(ASSIGNMENTS, changes)
            joined.epoch = member.epoch
            self._record("offsets at the new coordinator", committed(member.wire, "alone", "orders", PARTITIONS))


def _when_ready(request: Callable[[], str], transient: tuple[str, ...]) -> str:
    """The error of the first response that is not one of these."""

    def answer() -> str | None:
        error = request()
        return None if error in transient else error

    return wait_until(answer, f"a response without {transient}")


def _batch(batch: RecordBatch) -> Any:
    records = [(record.offset, record.value) for record in iter_records(batch) if not batch.is_control]
    kind = (batch.is_transactional, batch.is_control, batch.producer_epoch, batch.base_sequence)
    return batch.base_offset, batch.last_offset, batch.partition_leader_epoch, kind, records


def story_of(nodes: Nodes, factory: pytest.TempPathFactory) -> list[tuple[str, Any]]:
    with SwappedCluster(nodes, factory.mktemp(str(nodes))) as cluster:
        return Story(cluster).run()


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, Any]]:
    """The story of Apache Kafka."""
    return story_of(Nodes(controller=False, first=False, second=False), tmp_path_factory)


ALL = [Nodes(*each) for each in itertools.product((False, True), repeat=3)]
IN_CI = Nodes(controller=False, first=True, second=False)


@pytest.mark.parametrize(
    "nodes",
    [
        pytest.param(each, id=str(each), marks=pytest.mark.full if each == IN_CI else pytest.mark.extended)
        for each in ALL
    ],
)
def test_the_story_is_that_of_apache_kafka(
    nodes: Nodes, expected: list[tuple[str, Any]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    found = story_of(nodes, tmp_path_factory)
    if nodes.has_different_brokers:
        expected = [line for line in expected if line[0] != ASSIGNMENTS]
    different = [(one, other) for one, other in zip(expected, found, strict=True) if one != other]
    assert not different, "\n".join(f"Apache Kafka: {one}\nthis cluster: {other}" for one, other in different)

"""Partitions with replicas on several brokers: followers, elections, moves, and the fencing of old leader epochs."""

from __future__ import annotations

from typing import Any

from ...protocol.api import ApiKey
from ...protocol.errors import ErrorCode
from ...protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ...protocol.messages.create_topics import CreateTopicsRequest
from ...protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from ...protocol.messages.fetch import ReplicaState
from ...protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ...protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from ...protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from .. import partitions as p
from .. import topic_admin as t
from ..case import Layer, case, needs, versions_of
from ..check import Check, Topic, code
from ..exchange import Connection
from ..outcome import InconclusiveError
from ..record_batches import batch
from .brokers_leaders import FETCH_LEADER, PRODUCE_LEADER

NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER
NO_FOLLOWERS = (ErrorCode.INVALID_REPLICATION_FACTOR, ErrorCode.POLICY_VIOLATION)
"""What a server responds that has a single replica of each partition."""
FOLLOWER_FETCH = 11
"""The first version with which consumers may read from followers (KIP-392)."""
REPLICA_STATE = 15
"""The first version of Fetch with the replica in `replica_state` (KIP-903)."""
MOVES = needs(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, ApiKey.ELECT_LEADERS, 1)


def replicated(c: Check, *replicas: int) -> Topic:
    """A topic whose partition has these replicas, which are all in sync. Without replication, the case ends."""
    name = c.topic_name()
    wanted = t.creatable(name, -1, -1, assignments={0: replicas})
    (created,) = c.call(CreateTopicsRequest(topics=[wanted], timeout_ms=t.TIMEOUT_MS)).topics
    if created.error_code in NO_FOLLOWERS:
        c.not_applicable(f"the server creates no topics with {len(replicas)} replicas: {created.error_message}")
    if created.error_code:
        raise InconclusiveError(f"the topic {name} was not created: {code(created.error_code)}")
    topic = c.topic_ready(name)
    c.known_everywhere(topic)
    in_sync(c, topic, *replicas)
    return topic


def pair(c: Check) -> tuple[Topic, int]:
    """A topic led by the broker at the address with a follower, and the follower."""
    follower = c.target.other_ids[0]
    return replicated(c, c.target.node_id, follower), follower


def partition_of(c: Check, topic: Topic) -> Any:
    (partition,) = t.metadata_of(c, topic.name).partitions
    return partition


def in_sync(c: Check, topic: Topic, *replicas: int) -> None:
    """Wait until exactly these brokers have replicas, and all of them are in sync."""

    def are() -> bool:
        found = partition_of(c, topic)
        return sorted(found.isr_nodes) == sorted(found.replica_nodes) == sorted(replicas)

    c.until(are, f"the in-sync replicas {sorted(replicas)}")


def reassign(c: Check, topic: Topic, *replicas: int) -> None:
    """AlterPartitionReassignments without an error, and wait for its end."""
    wanted = ReassignablePartition(partition_index=0, replicas=list(replicas))
    topics = [ReassignableTopic(name=topic.name, partitions=[wanted])]
    response = c.call(AlterPartitionReassignmentsRequest(topics=topics, timeout_ms=t.TIMEOUT_MS))
    c.error(response.error_code, ErrorCode.NONE, "AlterPartitionReassignments error_code")
    ((partition,),) = [each.partitions for each in response.responses]
    c.error(partition.error_code, ErrorCode.NONE, "error_code of the partition")
    in_sync(c, topic, *replicas)


def lead(c: Check, topic: Topic, leader: int, *followers: int) -> int:
    """Make a replica the preferred leader and elect it; returns the new leader epoch, which all brokers know then."""
    reassign(c, topic, leader, *followers)
    request = ElectLeadersRequest(
        election_type=0,
        topic_partitions=[TopicPartitions(topic=topic.name, partitions=[0])],
        timeout_ms=t.TIMEOUT_MS,
    )
    response = c.call(request)
    c.error(response.error_code, ErrorCode.NONE, "ElectLeaders error_code")
    ((result,),) = [each.partition_result for each in response.replica_election_results]
    c.error(result.error_code, (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED), "error_code of the election")
    return led_by(c, topic, leader)


def led_by(c: Check, topic: Topic, leader: int) -> int:
    """Wait until all brokers know this leader, and it serves the partition; returns the leader epoch."""

    def epoch() -> tuple[int] | None:
        found = {node_id: _leader_at(c, topic, node_id) for node_id in c.target.brokers}
        leaders = {leader for leader, _ in found.values()}
        epochs = {epoch for _, epoch in found.values()}
        return (epochs.pop(),) if leaders == {leader} and len(epochs) == 1 else None

    def serves(wire: Connection) -> bool:
        return p.list_offset(c, topic, p.LATEST, to=wire).error_code == ErrorCode.NONE

    (found,) = c.until(epoch, f"the leader {leader} at all brokers")
    c.until(lambda: serves(c.to_broker(leader)), f"that broker {leader} leads the partition")
    for node_id in c.target.brokers:
        if node_id != leader:
            c.until(lambda node_id=node_id: not serves(c.to_broker(node_id)), f"that broker {node_id} does not")  # type: ignore[misc]
    return found


def _leader_at(c: Check, topic: Topic, node_id: int) -> tuple[int, int]:
    request = t.metadata_request(c, topic.name)
    (found,) = c.call(request, to=c.to_broker(node_id)).topics
    return next(((each.leader_id, each.leader_epoch) for each in found.partitions), (-1, -1))


def listed(c: Check, topic: Topic, wire: Connection, epoch: int) -> int:
    """The error of ListOffsets with a current leader epoch."""
    requested = ListOffsetsPartition(partition_index=0, current_leader_epoch=epoch, timestamp=p.LATEST)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic.name, partitions=[requested])])
    return int(c.call(request, to=wire).topics[0].partitions[0].error_code)


def epoch_end(c: Check, topic: Topic, wire: Connection, epoch: int, current: int = -1) -> tuple[int, int, int]:
    """OffsetForLeaderEpoch: error, epoch and end offset."""
    requested = OffsetForLeaderPartition(partition=0, current_leader_epoch=current, leader_epoch=epoch)
    request = OffsetForLeaderEpochRequest(
        replica_id=-1, topics=[OffsetForLeaderTopic(topic=topic.name, partitions=[requested])]
    )
    answer = c.call(request, to=wire).topics[0].partitions[0]
    return answer.error_code, answer.leader_epoch, answer.end_offset


def fetched(c: Check, topic: Topic, wire: Connection, epoch: int) -> tuple[Any, Any]:
    """Fetch with a current leader epoch: the response, and its partition."""
    version = c.version(ApiKey.FETCH)
    request = p.fetch_request(topic, {0: 0}, version=version)
    request.topics[0].partitions[0].current_leader_epoch = epoch
    response = c.call(request, version, to=wire)
    return response, response.responses[0].partitions[0]


@case(
    "brokers.replicas.produce",
    "records with acks=all are on the followers",
    source="KIP-392",
    layer=Layer.CLUSTER,
    needs=needs(ApiKey.PRODUCE, 3, ApiKey.FETCH, FOLLOWER_FETCH),
)
def produce(c: Check) -> None:
    """Sends: Produce with acks=all to the leader of a partition with two replicas; then Fetch to the follower, until it
    knows the high watermark.

    Expects: no errors; the follower returns the records.

    Why: a record that is acknowledged survives the loss of the leader, and consumers may read from a replica nearby.
    """
    topic, follower = pair(c)
    answer = p.produce(c, topic, batch(b"a", b"b"))
    c.error(answer.error_code, ErrorCode.NONE, "Produce error_code")

    def read() -> list[int]:
        data = p.fetch(c, topic, to=c.to_broker(follower))
        c.error(data.error_code, ErrorCode.NONE, "Fetch error_code of the follower")
        return [each.record_count for each in p.batches_of(data)]

    c.equal(c.until(read, "records from the follower"), [2], "records of the batches from the follower")


@case(
    "brokers.replicas.follower",
    "a follower rejects what only the leader may do",
    source="Protocol: Produce, Fetch, ListOffsets; KIP-392",
    layer=Layer.CLUSTER,
    needs=needs(ApiKey.PRODUCE, 3, ApiKey.FETCH, 4, ApiKey.LIST_OFFSETS, 1, ApiKey.OFFSET_FOR_LEADER_EPOCH, 2),
)
def follower_rejects(c: Check) -> None:
    """Sends: Produce, ListOffsets, OffsetForLeaderEpoch, and Fetch 10, which is too old to read from followers, to the
    follower of a partition.

    Expects: NOT_LEADER_OR_FOLLOWER for each; Produce and Fetch name the leader in the versions that have it.

    Why: a follower may lack the latest records, and what it stored itself would be lost.
    """
    topic, follower = pair(c)
    wire = c.to_broker(follower)
    version = c.version(ApiKey.PRODUCE)
    response = c.call(p.produce_request(topic, {0: batch(b"value")}, version=version), version, to=wire)
    (answer,) = response.responses[0].partition_responses
    c.error(answer.error_code, NOT_LEADER, "Produce error_code")
    if version >= PRODUCE_LEADER:
        c.equal(answer.current_leader.leader_id, c.target.node_id, "current_leader.leader_id of Produce")
    c.error(p.list_offset(c, topic, p.LATEST, to=wire).error_code, NOT_LEADER, "ListOffsets error_code")
    c.error(epoch_end(c, topic, wire, 0)[0], NOT_LEADER, "OffsetForLeaderEpoch error_code")
    if c.target.supports(ApiKey.FETCH, FOLLOWER_FETCH - 1):
        data = p.fetch(c, topic, version=FOLLOWER_FETCH - 1, to=wire)
        c.error(data.error_code, NOT_LEADER, "Fetch error_code")


@case(
    "brokers.replicas.stranger",
    "a leader does not replicate to a broker without a replica",
    source="KIP-903",
    layer=Layer.CLUSTER,
    versions=versions_of(ApiKey.FETCH, REPLICA_STATE),
)
def stranger(c: Check, version: int) -> None:
    """Sends: Fetch as a replica, with the ID of a broker that has none of the partition, to its leader.

    Expects: an error, and no records: UNKNOWN_LEADER_EPOCH or NOT_LEADER_OR_FOLLOWER.

    Why: the leader advances the high watermark by the fetches of followers; one that does not exist would acknowledge
    records that have no copy.
    """
    topic = c.topic()
    p.append(c, topic, batch(b"value"))
    request = p.fetch_request(topic, {0: 0}, version=version)
    request.replica_state = ReplicaState(replica_id=c.target.other_ids[0], replica_epoch=-1)
    response = c.call(request, version)
    c.error(response.error_code, ErrorCode.NONE)
    (answer,) = response.responses[0].partitions
    c.error(answer.error_code, (ErrorCode.UNKNOWN_LEADER_EPOCH, NOT_LEADER), "error_code of the partition")
    c.equal(bytes(answer.records or b""), b"", "records")


@case(
    "brokers.replicas.election",
    "the preferred leader is elected, and keeps all records",
    source="KIP-183 and KIP-460",
    layer=Layer.CLUSTER,
    needs=(*MOVES, *needs(ApiKey.PRODUCE, 3, ApiKey.OFFSET_FOR_LEADER_EPOCH, 2)),
)
def election(c: Check) -> None:
    """Sends: Produce; AlterPartitionReassignments, which exchanges leader and follower, and ElectLeaders; Produce and
    ListOffsets to the new leader; OffsetForLeaderEpoch for the epochs of both.

    Expects: the follower becomes the leader with a higher epoch, and has all records; each epoch ends where its records
    do.

    Why: operators move leaders while clients read and write.
    """
    topic, follower = pair(c)
    first = partition_of(c, topic).leader_epoch
    c.error(p.produce(c, topic, batch(b"a", b"b")).error_code, ErrorCode.NONE, "Produce error_code of the first leader")
    epoch = lead(c, topic, follower, c.target.node_id)
    c.true(epoch > first, "leader_epoch", expected=f"above {first}", actual=epoch)
    wire = c.to_broker(follower)
    answer = p.produce(c, topic, batch(b"c"), to=wire)
    c.error(answer.error_code, ErrorCode.NONE, "Produce error_code of the new leader")
    c.equal(answer.base_offset, 2, "base_offset at the new leader")
    c.equal(p.values(c, topic, to=wire), [b"a", b"b", b"c"], "the values of the partition")
    c.equal(epoch_end(c, topic, wire, first), (0, first, 2), "the end of the first epoch (error, epoch, offset)")
    c.equal(epoch_end(c, topic, wire, epoch), (0, epoch, 3), "the end of the new epoch (error, epoch, offset)")


@case(
    "brokers.replicas.fencing",
    "requests with an old leader epoch are fenced, and the old leader names the new one",
    source="KIP-320, KIP-951",
    layer=Layer.CLUSTER,
    needs=(
        *MOVES,
        *needs(ApiKey.FETCH, FETCH_LEADER, ApiKey.LIST_OFFSETS, 4, ApiKey.OFFSET_FOR_LEADER_EPOCH, 2),
        *needs(ApiKey.PRODUCE, PRODUCE_LEADER),
    ),
)
def fencing(c: Check) -> None:
    """Sends: after another replica has become the leader, Fetch, ListOffsets and OffsetForLeaderEpoch to it with the
    previous, the current and a later epoch; Produce to the old leader.

    Expects: FENCED_LEADER_EPOCH, no error, and UNKNOWN_LEADER_EPOCH; the old leader responds NOT_LEADER_OR_FOLLOWER
    with the new leader and its epoch. With FENCED_LEADER_EPOCH, Fetch has them, too.

    Why: a consumer that has missed a change of the leader must find out whether its position still exists.
    """
    topic, follower = pair(c)
    first = partition_of(c, topic).leader_epoch
    epoch = lead(c, topic, follower, c.target.node_id)
    wire = c.to_broker(follower)
    expected = {
        epoch - 1: ErrorCode.FENCED_LEADER_EPOCH,
        epoch: ErrorCode.NONE,
        epoch + 1: ErrorCode.UNKNOWN_LEADER_EPOCH,
    }
    for current, error in expected.items():
        response, partition = fetched(c, topic, wire, current)
        c.error(partition.error_code, error, f"Fetch error_code with epoch {current}")
        if error is ErrorCode.FENCED_LEADER_EPOCH:
            named = (partition.current_leader.leader_id, partition.current_leader.leader_epoch)
            c.equal(named, (follower, epoch), "current_leader (leader_id, leader_epoch) of Fetch")
            c.equal([each.node_id for each in response.node_endpoints], [follower], "node_endpoints of Fetch")
        c.error(listed(c, topic, wire, current), error, f"ListOffsets error_code with epoch {current}")
        found = epoch_end(c, topic, wire, first, current)[0]
        c.error(found, error, f"OffsetForLeaderEpoch error_code with epoch {current}")
    version = c.version(ApiKey.PRODUCE)
    rejected = c.call(p.produce_request(topic, {0: batch(b"value")}, version=version), version)
    (answer,) = rejected.responses[0].partition_responses
    c.error(answer.error_code, NOT_LEADER, "Produce error_code of the old leader")
    named = (answer.current_leader.leader_id, answer.current_leader.leader_epoch)
    c.equal(named, (follower, epoch), "current_leader (leader_id, leader_epoch) of Produce")


@case(
    "brokers.replicas.move",
    "a partition moves to another broker with its records",
    source="KIP-455",
    layer=Layer.CLUSTER,
    needs=(*MOVES, *needs(ApiKey.PRODUCE, 3, ApiKey.FETCH, 4)),
)
def move(c: Check) -> None:
    """Sends: AlterPartitionReassignments, which moves the only replica of a partition with records to another broker;
    ListPartitionReassignments at the end.

    Expects: the other broker becomes the only replica and the leader, and has the records; the first broker responds
    NOT_LEADER_OR_FOLLOWER; no reassignment is in progress.

    Why: this is how a cluster grows and shrinks.
    """
    other = c.target.other_ids[0]
    pair(c)  # only a server with followers can copy the records
    topic = replicated(c, c.target.node_id)
    p.append(c, topic, batch(b"a", b"b"))
    reassign(c, topic, other)
    led_by(c, topic, other)
    c.equal(p.values(c, topic, to=c.to_broker(other)), [b"a", b"b"], "the values of the partition")
    c.error(p.list_offset(c, topic, p.LATEST).error_code, NOT_LEADER, "ListOffsets error_code of the first broker")
    response = c.call(ListPartitionReassignmentsRequest(topics=None, timeout_ms=t.TIMEOUT_MS))
    found = [each.name for each in response.topics if each.name == topic.name]
    c.equal(found, [], "the topic in ListPartitionReassignments")


@case(
    "brokers.replicas.grow",
    "a partition gets a second replica, which becomes in sync",
    source="KIP-455",
    layer=Layer.CLUSTER,
    needs=(*MOVES, *needs(ApiKey.PRODUCE, 3, ApiKey.FETCH, FOLLOWER_FETCH)),
)
def grow(c: Check) -> None:
    """Sends: AlterPartitionReassignments, which adds a replica on another broker to a partition with records, and then
    removes it.

    Expects: both brokers are in sync, and the leader and its epoch's records remain; then the first one is alone.

    Why: operators change the replication factor of topics that are in use.
    """
    other = c.target.other_ids[0]
    pair(c)  # only a server with followers can copy the records
    topic = replicated(c, c.target.node_id)
    p.append(c, topic, batch(b"a", b"b"))
    reassign(c, topic, c.target.node_id, other)
    c.equal(partition_of(c, topic).leader_id, c.target.node_id, "leader_id with two replicas")
    reassign(c, topic, c.target.node_id)
    c.equal(partition_of(c, topic).leader_id, c.target.node_id, "leader_id with one replica")
    c.equal(p.values(c, topic), [b"a", b"b"], "the values of the partition")

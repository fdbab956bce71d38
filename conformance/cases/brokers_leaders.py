"""Requests for a partition to a broker that does not lead it, and has no replica of it."""

from __future__ import annotations

from typing import Any

from ...protocol.api import ApiKey
from ...protocol.errors import ErrorCode
from ...protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ...protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from ...protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from ...protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ...protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from .. import partitions as p
from ..case import Layer, Level, case, needs, versions_of
from ..check import Check, Topic
from ..record_batches import batch

NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER
PRODUCE_LEADER = 10
FETCH_LEADER = 16
"""The first versions whose responses have the leader (KIP-951)."""


def elsewhere(c: Check) -> tuple[Topic, int]:
    """A topic that another broker leads, and that broker."""
    leader = c.target.other_ids[0]
    return c.topic(leaders=[leader]), leader


def names_leader(c: Check, response: Any, partition: Any, leader: int) -> None:
    """The response has the leader of the partition, its epoch and its address."""
    found = (partition.current_leader.leader_id, partition.current_leader.leader_epoch)
    c.equal(found, (leader, 0), "current_leader (leader_id, leader_epoch)")
    nodes = [(each.node_id, f"{each.host}:{each.port}") for each in response.node_endpoints]
    c.equal(nodes, [(leader, c.target.brokers[leader])], "node_endpoints (node_id, host and port)")


@case(
    "brokers.not-leader.produce",
    "a broker rejects records for a partition that another one leads",
    source="Protocol: Produce, KIP-951",
    layer=Layer.CLUSTER,
    versions=versions_of(ApiKey.PRODUCE, 3),
)
def produce(c: Check, version: int) -> None:
    """Sends: Produce for a partition that another broker leads; ListOffsets to its leader.

    Expects: NOT_LEADER_OR_FOLLOWER without an offset; since version 10 the leader, its epoch and its address. The
    partition has no records.

    Why: a producer with old metadata finds the leader by this error, and the response saves a request for metadata.
    """
    topic, leader = elsewhere(c)
    response = c.call(p.produce_request(topic, {0: batch(b"value")}, version=version), version)
    (answer,) = response.responses[0].partition_responses
    c.error(answer.error_code, NOT_LEADER)
    p.no_offset(c, answer)
    if version >= PRODUCE_LEADER:
        names_leader(c, response, answer, leader)
    c.equal(p.end_offset(c, topic, to=c.to_broker(leader)), 0, "the end offset of the partition")


@case(
    "brokers.not-leader.produce-without-response",
    "without a response, the connection is closed",
    source="Protocol: Produce",
    layer=Layer.CLUSTER,
    level=Level.SHOULD,
    needs=needs(ApiKey.PRODUCE, 3),
)
def produce_without_response(c: Check) -> None:
    """Sends: Produce with acks=0 for a partition that another broker leads.

    Expects: the connection is closed.

    Why: a producer that waits for no response has no other way to notice that it must find the leader.
    """
    topic, _ = elsewhere(c)
    version = c.version(ApiKey.PRODUCE)
    connection = c.connect()
    connection.send(p.produce_request(topic, {0: batch(b"value")}, version=version, acks=0), version)
    c.closed(connection)


@case(
    "brokers.not-leader.fetch",
    "a broker rejects the fetch of a partition that another one leads",
    source="Protocol: Fetch, KIP-951",
    layer=Layer.CLUSTER,
    versions=versions_of(ApiKey.FETCH, 4),
)
def fetch(c: Check, version: int) -> None:
    """Sends: Fetch of a partition with a record that another broker leads, which may wait for a minute.

    Expects: NOT_LEADER_OR_FOLLOWER without records and offsets; since version 16 the leader, its epoch and its address.

    Why: a consumer with old metadata finds the leader by this error, and must not wait for records that never come.
    """
    topic, leader = elsewhere(c)
    p.append(c, topic, batch(b"value"), to=c.to_broker(leader))
    request = p.fetch_request(topic, {0: 0}, version=version, max_wait_ms=60_000, min_bytes=1)
    response = c.call(request, version)
    (answer,) = response.responses[0].partitions
    c.error(answer.error_code, NOT_LEADER)
    c.equal((answer.high_watermark, bytes(answer.records or b"")), (-1, b""), "high_watermark and records")
    if version >= FETCH_LEADER:
        names_leader(c, response, answer, leader)


@case(
    "brokers.not-leader.list-offsets",
    "a broker rejects ListOffsets for a partition that another one leads",
    source="Protocol: ListOffsets",
    layer=Layer.CLUSTER,
    versions=versions_of(ApiKey.LIST_OFFSETS, 1),
)
def list_offsets(c: Check, version: int) -> None:
    """Sends: ListOffsets of the end of a partition that another broker leads.

    Expects: NOT_LEADER_OR_FOLLOWER, and no offset.

    Why: only the leader knows the end of the partition; a consumer that seeks to another one loses or repeats records.
    """
    topic, _ = elsewhere(c)
    requested = ListOffsetsTopic(name=topic.name, partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])
    response = c.call(ListOffsetsRequest(replica_id=-1, topics=[requested]), version)
    (answer,) = response.topics[0].partitions
    c.error(answer.error_code, NOT_LEADER)
    c.equal(answer.offset, -1, "offset")


@case(
    "brokers.not-leader.epoch-end",
    "a broker rejects OffsetForLeaderEpoch for a partition that another one leads",
    source="KIP-320",
    layer=Layer.CLUSTER,
    versions=versions_of(ApiKey.OFFSET_FOR_LEADER_EPOCH),
)
def epoch_end(c: Check, version: int) -> None:
    """Sends: OffsetForLeaderEpoch of epoch 0 for a partition that another broker leads.

    Expects: NOT_LEADER_OR_FOLLOWER, epoch -1 and end offset -1.

    Why: the end of an epoch on another broker may be before records that are committed.
    """
    topic, _ = elsewhere(c)
    requested = OffsetForLeaderTopic(topic=topic.name, partitions=[OffsetForLeaderPartition(partition=0)])
    response = c.call(OffsetForLeaderEpochRequest(replica_id=-1, topics=[requested]), version)
    (answer,) = response.topics[0].partitions
    c.error(answer.error_code, NOT_LEADER)
    c.equal((answer.leader_epoch, answer.end_offset), (-1, -1), "leader_epoch and end_offset")


@case(
    "brokers.not-leader.delete-records",
    "a broker rejects DeleteRecords for a partition that another one leads",
    source="KIP-107",
    layer=Layer.CLUSTER,
    versions=versions_of(ApiKey.DELETE_RECORDS),
)
def delete_records(c: Check, version: int) -> None:
    """Sends: DeleteRecords of all records of a partition that another broker leads; ListOffsets to its leader.

    Expects: NOT_LEADER_OR_FOLLOWER, and low watermark -1. The records still exist.

    Why: the client repeats the request at the leader; an error is better than a deletion that does not take place.
    """
    topic, leader = elsewhere(c)
    p.append(c, topic, batch(b"value"), to=c.to_broker(leader))
    requested = DeleteRecordsTopic(name=topic.name, partitions=[DeleteRecordsPartition(partition_index=0, offset=-1)])
    response = c.call(DeleteRecordsRequest(topics=[requested], timeout_ms=30_000), version)
    (answer,) = response.topics[0].partitions
    c.error(answer.error_code, NOT_LEADER)
    c.equal(answer.low_watermark, -1, "low_watermark")
    start = p.end_offset(c, topic, timestamp=p.EARLIEST, to=c.to_broker(leader))
    c.equal(start, 0, "the first offset of the partition")


@case(
    "brokers.not-leader.describe-producers",
    "a broker rejects DescribeProducers for a partition that another one leads",
    source="KIP-664",
    layer=Layer.CLUSTER,
    level=Level.SHOULD,
    versions=versions_of(ApiKey.DESCRIBE_PRODUCERS),
)
def describe_producers(c: Check, version: int) -> None:
    """Sends: DescribeProducers for a partition that another broker leads.

    Expects: NOT_LEADER_OR_FOLLOWER, and no producers.

    Why: a tool that looks for hanging transactions must not take a wrong broker for a partition without producers.
    """
    topic, _ = elsewhere(c)
    response = c.call(DescribeProducersRequest(topics=[TopicRequest(name=topic.name, partition_indexes=[0])]), version)
    (answer,) = response.topics[0].partitions
    c.error(answer.error_code, NOT_LEADER)
    c.equal(answer.active_producers, [], "active_producers")


@case(
    "brokers.not-leader.mixed",
    "each partition of a request is served or rejected independently",
    source="Protocol: Produce and Fetch",
    layer=Layer.CLUSTER,
    needs=needs(ApiKey.PRODUCE, 3, ApiKey.FETCH, 4),
)
def mixed(c: Check) -> None:
    """Sends: Produce and then Fetch for two partitions, of which another broker leads the first.

    Expects: NOT_LEADER_OR_FOLLOWER for the first; the record of the second is stored and returned.

    Why: after a leader has moved, requests of clients with old metadata are still right for most of their partitions.
    """
    topic = c.topic(2, leaders=[c.target.other_ids[0], c.target.node_id])
    version = c.version(ApiKey.PRODUCE)
    response = c.call(p.produce_request(topic, {0: batch(b"a"), 1: batch(b"b")}, version=version), version)
    answers = {each.index: each for each in response.responses[0].partition_responses}
    c.equal(sorted(answers), [0, 1], "partitions of the Produce response")
    c.error(answers[0].error_code, NOT_LEADER, "Produce error_code of partition 0")
    c.error(answers[1].error_code, ErrorCode.NONE, "Produce error_code of partition 1")
    version = c.version(ApiKey.FETCH)
    fetched = c.call(p.fetch_request(topic, {0: 0, 1: 0}, version=version), version)
    found = {each.partition_index: each for each in fetched.responses[0].partitions}
    c.equal(sorted(found), [0, 1], "partitions of the Fetch response")
    c.error(found[0].error_code, NOT_LEADER, "Fetch error_code of partition 0")
    c.error(found[1].error_code, ErrorCode.NONE, "Fetch error_code of partition 1")
    c.equal([each.record_count for each in p.batches_of(found[1])], [1], "records of the batches of partition 1")


@case(
    "brokers.log-dirs",
    "a broker describes its own replicas only",
    source="KIP-113",
    layer=Layer.CLUSTER,
    level=Level.SHOULD,
    versions=versions_of(ApiKey.DESCRIBE_LOG_DIRS),
)
def log_dirs(c: Check, version: int) -> None:
    """Sends: DescribeLogDirs of a topic with two partitions to the two brokers that lead one of them each.

    Expects: from each broker its own partition.

    Why: tools add up the sizes that all brokers report.
    """
    brokers = [c.target.node_id, c.target.other_ids[0]]
    topic = c.topic(2, leaders=brokers)
    wanted = DescribableLogDirTopic(topic=topic.name, partitions=[0, 1])
    for partition, node_id in enumerate(brokers):
        response = c.call(DescribeLogDirsRequest(topics=[wanted]), version, to=c.to_broker(node_id))
        found = [
            each.partition_index
            for directory in response.results
            for described in directory.topics
            if described.name == topic.name
            for each in described.partitions
        ]
        c.equal(found, [partition], f"partitions that broker {node_id} describes")

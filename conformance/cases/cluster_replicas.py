"""ElectLeaders, AlterPartitionReassignments and ListPartitionReassignments (KIP-183, KIP-455, KIP-460)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...protocol.api import ApiKey
from ...protocol.errors import ErrorCode
from ...protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ...protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from ...protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from .. import partitions as p
from .. import topic_admin as t
from ..case import Layer, Level, case, needs, versions_of
from ..check import Check
from ..record_batches import batch

PREFERRED, UNCLEAN = 0, 1
NONE = int(ErrorCode.NONE)
UNKNOWN = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
NOT_NEEDED = int(ErrorCode.ELECTION_NOT_NEEDED)

Codes = dict[tuple[str, int], int]
"""The error code of each partition."""


def elect(
    c: Check,
    topics: Mapping[str, Sequence[int]],
    *,
    election: int = PREFERRED,
    version: int | None = None,
    timeout_ms: int = t.TIMEOUT_MS,
) -> tuple[Any, Codes]:
    wanted = [TopicPartitions(topic=name, partitions=list(indexes)) for name, indexes in topics.items()]
    request = ElectLeadersRequest(election_type=election, topic_partitions=wanted, timeout_ms=timeout_ms)
    response = c.call(request, version)
    results = [(each.topic, one) for each in response.replica_election_results for one in each.partition_result]
    codes = {(topic, each.partition_id): each.error_code for topic, each in results}
    c.equal(len(codes), len(results), "results (number of different partitions)")
    for topic, each in results:
        if each.error_code and not response.error_code:
            c.true(each.error_message, f"error_message of {topic}", expected="a message", actual=each.error_message)
    return response, codes


@case(
    "cluster.elect.exchange",
    "a partition with its preferred leader needs no election",
    source="KIP-183 and KIP-460",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.ELECT_LEADERS),
)
def elect_exchange(c: Check, version: int) -> None:
    """Sends: ElectLeaders of the preferred leader, for both partitions of a topic.

    Expects: since version 1, no error of the response; ELECTION_NOT_NEEDED with a message for both partitions, whose
    leader and leader epoch are unchanged.

    Why: tools balance leaders by this request, and treat this result as success.
    """
    topic = c.topic(2)
    before = [(each.leader_id, each.leader_epoch) for each in t.metadata_of(c, topic.name).partitions]
    response, found = elect(c, {topic.name: [0, 1]}, version=version)
    if version >= 1:
        c.error(response.error_code, ErrorCode.NONE)
    c.equal(found, {(topic.name, 0): NOT_NEEDED, (topic.name, 1): NOT_NEEDED}, "results (partition and error_code)")
    after = [(each.leader_id, each.leader_epoch) for each in t.metadata_of(c, topic.name).partitions]
    c.equal(after, before, "leader_id and leader_epoch of the partitions")


@case(
    "cluster.elect.unknown",
    "partitions that do not exist are rejected",
    source="KIP-183",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.ELECT_LEADERS),
)
def elect_unknown(c: Check, version: int) -> None:
    """Sends: ElectLeaders of a topic that does not exist, and of partitions 0, 77 and -1 of a topic with one partition.

    Expects: since version 1, no error of the response; UNKNOWN_TOPIC_OR_PARTITION with a message for those that do not
    exist, and ELECTION_NOT_NEEDED for the other.

    Why: each partition succeeds or fails independently; partitions of a plan may have been deleted since.
    """
    topic, missing = c.topic(), c.name("no-such-topic")
    response, found = elect(c, {missing: [0], topic.name: [0, 77, -1]}, version=version)
    if version >= 1:
        c.error(response.error_code, ErrorCode.NONE)
    expected = {
        (missing, 0): UNKNOWN,
        (topic.name, 0): NOT_NEEDED,
        (topic.name, 77): UNKNOWN,
        (topic.name, -1): UNKNOWN,
    }
    c.equal(found, expected, "results (partition and error_code)")


@case(
    "cluster.elect.unclean",
    "a partition with a leader needs no unclean election",
    source="KIP-460",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.ELECT_LEADERS, 1),
)
def elect_unclean(c: Check, version: int) -> None:
    """Sends: ElectLeaders of any live replica for a partition that has a leader, and Produce before and after it.

    Expects: ELECTION_NOT_NEEDED; the records are in the log.

    Why: an unclean election may lose records, so it must not take place unless there is no leader.
    """
    topic = c.topic()
    p.append(c, topic, batch(b"before"))
    response, found = elect(c, {topic.name: [0]}, election=UNCLEAN, version=version)
    c.error(response.error_code, ErrorCode.NONE)
    c.equal(found, {(topic.name, 0): NOT_NEEDED}, "results (partition and error_code)")
    p.append(c, topic, batch(b"after"))
    c.equal(p.values(c, topic), [b"before", b"after"], "the values of the partition")


@case(
    "cluster.elect.unknown-type",
    "a type of elections that does not exist is rejected",
    source="KIP-460",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.ELECT_LEADERS, 1),
    variants={"2": (2,), "5": (5,), "minus-1": (-1,)},
)
def elect_unknown_type(c: Check, version: int, election: int) -> None:
    """Sends: ElectLeaders with an `election_type` other than 0 and 1.

    Expects: INVALID_REQUEST, of the response and of the partition.

    Why: it must not be taken for one of the two types, one of which may lose records.
    """
    topic = c.topic()
    response, found = elect(c, {topic.name: [0]}, election=election, version=version)
    c.error(response.error_code, ErrorCode.INVALID_REQUEST)
    c.equal(found, {(topic.name, 0): int(ErrorCode.INVALID_REQUEST)}, "results (partition and error_code)")


@case(
    "cluster.elect.none",
    "an empty list of partitions stands for none",
    source="KIP-183",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.ELECT_LEADERS),
)
def elect_none(c: Check, version: int) -> None:
    """Sends: ElectLeaders with an empty list of topics.

    Expects: no error, and no results.

    Why: only null stands for all partitions; a plan without partitions must have no effect.
    """
    response, _ = elect(c, {}, version=version)
    if version >= 1:
        c.error(response.error_code, ErrorCode.NONE)
    c.equal(response.replica_election_results, [], "replica_election_results")


@case(
    "cluster.elect.timeout",
    "a timeout that has already passed is reported",
    source="KIP-183",
    needs=needs(ApiKey.ELECT_LEADERS, 2),
    level=Level.APACHE,
)
def elect_timeout(c: Check) -> None:
    """Sends: ElectLeaders with `timeout_ms` 0.

    Expects: REQUEST_TIMED_OUT, of the response and of the partition.

    Why: the client repeats the request, which is harmless.
    """
    topic = c.topic()
    response, found = elect(c, {topic.name: [0]}, timeout_ms=0)
    c.error(response.error_code, ErrorCode.REQUEST_TIMED_OUT)
    c.equal(found, {(topic.name, 0): int(ErrorCode.REQUEST_TIMED_OUT)}, "results (partition and error_code)")


Replicas = list[int] | None
OWN = -7
"""Stands for the broker at the address in the replicas below."""


def reassign(
    c: Check,
    topics: Mapping[str, Mapping[int, Replicas]],
    *,
    version: int | None = None,
    timeout_ms: int = t.TIMEOUT_MS,
    allow_factor_change: bool = True,
) -> tuple[Any, Codes]:
    request = AlterPartitionReassignmentsRequest(
        timeout_ms=timeout_ms,
        allow_replication_factor_change=allow_factor_change,
        topics=[
            ReassignableTopic(
                name=name,
                partitions=[
                    ReassignablePartition(partition_index=index, replicas=replicas)
                    for index, replicas in partitions.items()
                ],
            )
            for name, partitions in topics.items()
        ],
    )
    response = c.call(request, version)
    results = [(each.name, one) for each in response.responses for one in each.partitions]
    codes = {(name, each.partition_index): each.error_code for name, each in results}
    c.equal(len(codes), len(results), "responses (number of different partitions)")
    for name, each in results:
        if each.error_code == NONE:
            c.true(
                not each.error_message,
                f"error_message of {name}, which has no error",
                expected="none",
                actual=each.error_message,
            )
    return response, codes


def ongoing(c: Check, topics: Mapping[str, Sequence[int]] | None) -> dict[str, list[int]]:
    wanted = None
    if topics is not None:
        wanted = [
            ListPartitionReassignmentsTopics(name=name, partition_indexes=list(indexes))
            for name, indexes in topics.items()
        ]
    response = c.call(ListPartitionReassignmentsRequest(topics=wanted, timeout_ms=t.TIMEOUT_MS), 0)
    c.error(response.error_code, ErrorCode.NONE, "ListPartitionReassignments error_code")
    c.true(
        not response.error_message,
        "ListPartitionReassignments error_message",
        expected="none",
        actual=response.error_message,
    )
    return {each.name: [one.partition_index for one in each.partitions] for each in response.topics}


@case(
    "cluster.reassign.exchange",
    "a partition is reassigned to the replicas that it has",
    source="KIP-455",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.ALTER_PARTITION_REASSIGNMENTS),
    needs=needs(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0),
)
def reassign_exchange(c: Check, version: int) -> None:
    """Sends: AlterPartitionReassignments of both partitions of a topic to the broker that they are on, with a record in
    one of them; then ListPartitionReassignments.

    Expects: no errors; in version 1 the request's `allow_replication_factor_change`; the list does not have the topic;
    replicas, leaders and the record are unchanged.

    Why: a tool applies a plan of which most partitions are already in their place.
    """
    topic = c.topic(2)
    node = c.target.node_id
    p.append(c, topic, batch(b"value"), partition=1)
    response, found = reassign(c, {topic.name: {0: [node], 1: [node]}}, version=version)
    c.error(response.error_code, ErrorCode.NONE)
    c.true(not response.error_message, "error_message", expected="none", actual=response.error_message)
    if version >= 1:
        c.equal(response.allow_replication_factor_change, True, "allow_replication_factor_change")
    c.equal(found, {(topic.name, 0): NONE, (topic.name, 1): NONE}, "responses (partition and error_code)")
    c.until(lambda: topic.name not in ongoing(c, {topic.name: [0, 1]}), "no ongoing reassignments of the topic")
    c.equal(t.shape(c, topic.name), [(index, node, [node], [node]) for index in (0, 1)], "partitions in Metadata")
    c.equal(p.values(c, topic, partition=1), [b"value"], "the values of partition 1")


@case(
    "cluster.reassign.unknown",
    "partitions that do not exist are rejected",
    source="KIP-455",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.ALTER_PARTITION_REASSIGNMENTS),
)
def reassign_unknown(c: Check, version: int) -> None:
    """Sends: AlterPartitionReassignments of a topic that does not exist, and of partitions 0 and 77 of a topic with one
    partition.

    Expects: no error of the response; UNKNOWN_TOPIC_OR_PARTITION for those that do not exist, no error for the other.

    Why: each partition succeeds or fails independently; partitions of a plan may have been deleted since.
    """
    topic, missing = c.topic(), c.name("no-such-topic")
    node = c.target.node_id
    response, found = reassign(c, {missing: {0: [node], 1: None}, topic.name: {0: [node], 77: [node]}}, version=version)
    c.error(response.error_code, ErrorCode.NONE)
    expected = {(missing, 0): UNKNOWN, (missing, 1): UNKNOWN, (topic.name, 0): NONE, (topic.name, 77): UNKNOWN}
    c.equal(found, expected, "responses (partition and error_code)")
    t.missing(c, missing)


@case(
    "cluster.reassign.cancel-none",
    "without a reassignment there is none to cancel",
    source="KIP-455",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.ALTER_PARTITION_REASSIGNMENTS),
)
def cancel_none(c: Check, version: int) -> None:
    """Sends: AlterPartitionReassignments with null replicas, which cancels a reassignment, for a partition without one.

    Expects: no error of the response; NO_REASSIGNMENT_IN_PROGRESS for the partition.

    Why: a tool that cancels a plan learns which partitions had already completed.
    """
    topic = c.topic()
    response, found = reassign(c, {topic.name: {0: None}}, version=version)
    c.error(response.error_code, ErrorCode.NONE)
    expected = {(topic.name, 0): int(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)}
    c.equal(found, expected, "responses (partition and error_code)")


@case(
    "cluster.reassign.replicas",
    "replicas that are impossible are rejected",
    source="KIP-455",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.ALTER_PARTITION_REASSIGNMENTS),
    variants={
        "none": ([],),
        "unknown-broker": ([t.NO_BROKER],),
        "unknown-beside-known": ([OWN, t.NO_BROKER],),
        "twice-a-broker": ([OWN, OWN],),
        "negative": ([-1],),
    },
)
def reassign_replicas(c: Check, version: int, replicas: list[int]) -> None:
    """Sends: AlterPartitionReassignments to no broker, to one that does not exist, or twice to the same.

    Expects: no error of the response; INVALID_REPLICA_ASSIGNMENT with a message for the partition, which stays where it
    is.

    Why: a reassignment to a broker that does not exist would never complete.
    """
    topic = c.topic()
    node = c.target.node_id
    placed = [node if each == OWN else each for each in replicas]
    response, found = reassign(c, {topic.name: {0: placed}}, version=version)
    c.error(response.error_code, ErrorCode.NONE)
    expected = {(topic.name, 0): int(ErrorCode.INVALID_REPLICA_ASSIGNMENT)}
    c.equal(found, expected, "responses (partition and error_code)")
    message = response.responses[0].partitions[0].error_message
    c.true(message, "error_message of the partition", expected="a message", actual=message)
    c.equal(t.shape(c, topic.name), [(0, node, [node], [node])], "partitions in Metadata")


@case(
    "cluster.reassign.factor",
    "the response repeats whether the replication factor may change",
    source="KIP-455",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 1),
)
def reassign_factor(c: Check, version: int) -> None:
    """Sends: AlterPartitionReassignments with `allow_replication_factor_change` false, to the broker of the partition.

    Expects: no errors, and `allow_replication_factor_change` false.

    Why: the client sees whether the server knows the field; an older server would change the factor.
    """
    topic = c.topic()
    response, found = reassign(c, {topic.name: {0: [c.target.node_id]}}, version=version, allow_factor_change=False)
    c.error(response.error_code, ErrorCode.NONE)
    c.equal(response.allow_replication_factor_change, False, "allow_replication_factor_change")
    c.equal(found, {(topic.name, 0): NONE}, "responses (partition and error_code)")


@case(
    "cluster.reassign.timeout",
    "a timeout that has already passed is reported",
    source="KIP-455",
    needs=needs(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0),
    level=Level.APACHE,
)
def reassign_timeout(c: Check) -> None:
    """Sends: AlterPartitionReassignments with `timeout_ms` 0.

    Expects: REQUEST_TIMED_OUT, of the response and of the partition.

    Why: the client repeats the request, which is harmless.
    """
    topic = c.topic()
    response, found = reassign(c, {topic.name: {0: [c.target.node_id]}}, timeout_ms=0)
    c.error(response.error_code, ErrorCode.REQUEST_TIMED_OUT)
    c.equal(found, {(topic.name, 0): int(ErrorCode.REQUEST_TIMED_OUT)}, "responses (partition and error_code)")


@case(
    "cluster.reassign.none",
    "a request without topics has an empty response",
    source="KIP-455",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.ALTER_PARTITION_REASSIGNMENTS),
)
def reassign_none(c: Check, version: int) -> None:
    """Sends: AlterPartitionReassignments without topics.

    Expects: no error, and no topics.

    Why: a generic client serializes an empty list like any other, and waits for the response.
    """
    response, _ = reassign(c, {}, version=version)
    c.error(response.error_code, ErrorCode.NONE)
    c.equal(response.responses, [], "responses")


@case(
    "cluster.reassign.list",
    "only ongoing reassignments are listed",
    source="KIP-455",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.LIST_PARTITION_REASSIGNMENTS),
    variants={"named": (True, True), "unknown": (True, False), "none": (False, False), "all": (None, False)},
)
def list_reassignments(c: Check, version: int, named: bool | None, known: bool) -> None:
    """Sends: ListPartitionReassignments of a topic without reassignments, of one that does not exist, of an empty list,
    and of all topics (null).

    Expects: no error and no message; the list does not have the topic, and is empty if topics are named.

    Why: tools poll this request until a reassignment is complete.
    """
    topic = c.topic()
    if named is None:
        c.equal(topic.name in ongoing(c, None), False, "whether the topic is in the list")
    elif not named:
        c.equal(ongoing(c, {}), {}, "topics")
    else:
        c.equal(ongoing(c, {topic.name if known else c.name("no-such-topic"): [0, 77]}), {}, "topics")

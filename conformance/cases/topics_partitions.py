"""CreatePartitions: more partitions for topics that exist (KIP-195)."""

from __future__ import annotations

from ...protocol.api import ApiKey
from ...protocol.errors import ErrorCode
from ...protocol.messages.create_partitions import CreatePartitionsRequest
from .. import partitions as p
from .. import topic_admin as t
from ..case import Layer, Level, case, needs, versions_of
from ..check import Check
from ..record_batches import batch

ADD = needs(ApiKey.CREATE_PARTITIONS, 3)


@case(
    "topics.partitions.exchange",
    "partitions are added to a topic",
    source="KIP-195",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.CREATE_PARTITIONS),
)
def exchange(c: Check, version: int) -> None:
    """Sends: CreatePartitions with the new total of three for a topic of one partition, whose broker is assigned.

    Expects: no error and no message; three partitions with this broker. The first one keeps its record, and the third
    one takes records from offset 0.

    Why: this is the only way to let more consumers share the work of a topic, and it must not disturb producers.
    """
    topic = c.topic()
    node = c.target.node_id
    p.append(c, topic, batch(b"old"))
    result = t.add_partitions(c, topic.name, 3, assignments=[[node], [node]], version=version)
    c.error(result.error_code, ErrorCode.NONE)
    c.true(not result.error_message, "error_message", expected="none", actual=result.error_message)
    grown = c.topic_ready(topic.name, 3)
    c.equal(grown.topic_id, topic.topic_id, "topic_id in Metadata")
    c.equal(t.shape(c, topic.name), [(index, node, [node], [node]) for index in range(3)], "partitions in Metadata")
    c.equal(p.values(c, grown), [b"old"], "records of partition 0")
    c.equal(p.append(c, grown, batch(b"new"), partition=2), 0, "base offset of the first record of partition 2")
    c.equal(p.values(c, grown, partition=1), [], "records of partition 1")


@case(
    "topics.partitions.without-assignment",
    "the server chooses the brokers of new partitions",
    source="KIP-195",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.CREATE_PARTITIONS),
)
def without_assignment(c: Check, version: int) -> None:
    """Sends: CreatePartitions with a new total of four, without an assignment, for a topic of two partitions.

    Expects: no error; four partitions with one replica each.

    Why: tools leave the choice of brokers to the server.
    """
    topic = c.topic(2)
    result = t.add_partitions(c, topic.name, 4, version=version)
    c.error(result.error_code, ErrorCode.NONE)
    c.until(lambda: len(t.metadata_of(c, topic.name).partitions) == 4, "four partitions in Metadata")
    found = t.shape(c, topic.name)
    c.equal([index for index, *_ in found], [0, 1, 2, 3], "partitions in Metadata")
    c.equal([len(replicas) for _, _, replicas, _ in found], [1] * 4, "replicas of the partitions")


@case(
    "topics.partitions.count",
    "a number of partitions that does not exceed the present one is rejected",
    source="KIP-195",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.CREATE_PARTITIONS),
    variants={"same": (2,), "fewer": (1,), "none": (0,), "negative": (-1,)},
)
def too_few(c: Check, version: int, count: int) -> None:
    """Sends: CreatePartitions with a total of two or fewer for a topic of two partitions.

    Expects: INVALID_PARTITIONS with a message; the topic keeps its two partitions.

    Why: partitions cannot be removed, and a program that requests it must not believe that it happened.
    """
    topic = c.topic(2)
    result = t.add_partitions(c, topic.name, count, version=version)
    c.error(result.error_code, ErrorCode.INVALID_PARTITIONS)
    c.true(result.error_message, "error_message", expected="a message", actual=result.error_message)
    c.equal(len(t.shape(c, topic.name)), 2, "partitions in Metadata")


@case(
    "topics.partitions.unknown-topic",
    "a topic that does not exist is rejected",
    source="KIP-195",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.CREATE_PARTITIONS),
)
def unknown_topic(c: Check, version: int) -> None:
    """Sends: CreatePartitions for a topic that does not exist, and one that does.

    Expects: UNKNOWN_TOPIC_OR_PARTITION for the first, which is not created; the second one grows.

    Why: each topic of the request succeeds or fails independently.
    """
    topic = c.topic()
    name = c.name("no-such-topic")
    request = CreatePartitionsRequest(
        topics=[t.partitions_topic(name, 2), t.partitions_topic(topic.name, 2)], timeout_ms=t.TIMEOUT_MS
    )
    results = {each.name: each.error_code for each in c.call(request, version).results}
    c.equal(
        results,
        {name: int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), topic.name: int(ErrorCode.NONE)},
        "results (name and error_code)",
    )
    c.until(lambda: len(t.metadata_of(c, topic.name).partitions) == 2, "two partitions in Metadata")
    t.missing(c, name)


@case(
    "topics.partitions.validate-only",
    "a dry run adds nothing",
    source="KIP-195",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.CREATE_PARTITIONS),
)
def validate_only(c: Check, version: int) -> None:
    """Sends: CreatePartitions with `validate_only`: with a new total of 5, then with the present number.

    Expects: no error, then INVALID_PARTITIONS; the topic keeps its partition. The same request without `validate_only`
    and a total of 2 leads to two partitions.

    Why: a tool previews a change of many topics.
    """
    topic = c.topic()
    result = t.add_partitions(c, topic.name, 5, version=version, validate_only=True)
    c.error(result.error_code, ErrorCode.NONE, "error_code with 5 partitions")
    result = t.add_partitions(c, topic.name, 1, version=version, validate_only=True)
    c.error(result.error_code, ErrorCode.INVALID_PARTITIONS, "error_code with 1 partition")
    result = t.add_partitions(c, topic.name, 2, version=version)
    c.error(result.error_code, ErrorCode.NONE, "error_code without validate_only")
    c.until(lambda: len(t.metadata_of(c, topic.name).partitions) > 1, "more than one partition in Metadata")
    c.equal(len(t.shape(c, topic.name)), 2, "partitions in Metadata")


OWN = -1
"""Stands for the broker at the address in the assignments below."""


@case(
    "topics.partitions.assignment",
    "assignments that are impossible are rejected",
    source="KIP-195",
    needs=ADD,
    variants={
        "too-short": ([[OWN]],),
        "too-long": ([[OWN], [OWN], [OWN]],),
        "empty": ([],),
        "no-broker": ([[OWN], []],),
        "unknown-broker": ([[OWN], [t.NO_BROKER]],),
        "twice-a-broker": ([[OWN], [OWN, OWN]],),
        "more-replicas": ([[OWN, t.NO_BROKER], [OWN, t.NO_BROKER]],),
    },
)
def invalid_assignment(c: Check, assignments: list[list[int]]) -> None:
    """Sends: CreatePartitions that adds two partitions, with an assignment that does not fit them or the cluster.

    Expects: INVALID_REPLICA_ASSIGNMENT with a message; the topic keeps its partition.

    Why: a partition without live replicas cannot take records, and producers would hash keys to it.
    """
    topic = c.topic()
    placed = [[c.target.node_id if each == OWN else each for each in brokers] for brokers in assignments]
    result = t.add_partitions(c, topic.name, 3, assignments=placed)
    c.error(result.error_code, ErrorCode.INVALID_REPLICA_ASSIGNMENT)
    c.true(result.error_message, "error_message", expected="a message", actual=result.error_message)
    c.equal(len(t.shape(c, topic.name)), 1, "partitions in Metadata")


@case(
    "topics.partitions.duplicate",
    "a topic that is named twice is rejected, and the others grow",
    source="KIP-195",
    layer=Layer.WIRE,
    level=Level.APACHE,
    versions=versions_of(ApiKey.CREATE_PARTITIONS),
)
def duplicate(c: Check, version: int) -> None:
    """Sends: CreatePartitions with one topic twice, with different totals, and another topic.

    Expects: one result for each name: INVALID_REQUEST for the first, which is unchanged; no error for the other.

    Why: the server cannot know which of the two totals is meant, and partitions cannot be removed again.
    """
    twice, once = c.topic(), c.topic()
    entries = [(twice.name, 2), (once.name, 2), (twice.name, 3)]
    request = CreatePartitionsRequest(
        topics=[t.partitions_topic(name, count) for name, count in entries], timeout_ms=t.TIMEOUT_MS
    )
    results = c.call(request, version).results
    c.equal(sorted(each.name for each in results), sorted([twice.name, once.name]), "results (names)")
    codes = {each.name: each.error_code for each in results}
    c.error(codes[twice.name], ErrorCode.INVALID_REQUEST, "error_code of the name that occurs twice")
    c.error(codes[once.name], ErrorCode.NONE, "error_code of the other name")
    c.until(lambda: len(t.metadata_of(c, once.name).partitions) == 2, "two partitions of the other topic in Metadata")
    c.equal(len(t.shape(c, twice.name)), 1, "partitions of the topic that is named twice")

"""DescribeLogDirs and AlterReplicaLogDirs: where replicas are, and how large they are (KIP-113, KIP-827)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...protocol.api import ApiKey
from ...protocol.errors import ErrorCode
from ...protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from ...protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from .. import partitions as p
from ..case import Layer, Level, case, needs, versions_of
from ..check import Check, Topic
from ..record_batches import batch

Sizes = dict[tuple[str, int], int]

UNKNOWN_BYTES = (-1, -1)
"""KIP-827: the server does not know the size of the volume, for example because it stores in memory."""


def describe(
    c: Check, topics: Mapping[str, Sequence[int]] | None, version: int | None = None
) -> tuple[list[Any], Sizes]:
    """The directories, and the size of each partition. A partition is in one directory, without a pending move."""
    wanted = None
    if topics is not None:
        wanted = [DescribableLogDirTopic(topic=name, partitions=list(indexes)) for name, indexes in topics.items()]
    version = c.version(ApiKey.DESCRIBE_LOG_DIRS) if version is None else version
    response = c.call(DescribeLogDirsRequest(topics=wanted), version)
    if version >= 3:
        c.error(response.error_code, ErrorCode.NONE)
    sizes: Sizes = {}
    for each in response.results:
        for topic in each.topics:
            for partition in topic.partitions:
                where = (topic.name, partition.partition_index)
                c.equal(where in sizes, False, f"whether {where} is in several directories")
                sizes[where] = partition.partition_size
                if topics and topic.name in topics:
                    state = (partition.offset_lag, partition.is_future_key)
                    c.equal(state, (0, False), f"offset_lag and is_future_key of {where}")
    return response.results, sizes


def directory(c: Check, topic: Topic) -> str:
    """The path of the directory in which partition 0 of a topic is."""
    results, _ = describe(c, {topic.name: [0]})
    found = [each.log_dir for each in results if any(named.name == topic.name for named in each.topics)]
    c.equal(len(found), 1, f"directories with {topic.name} (number)")
    return str(found[0])


def move(
    c: Check, directories: Mapping[str, Mapping[str, Sequence[int]]], version: int | None = None
) -> dict[tuple[str, int], int]:
    """AlterReplicaLogDirs, and the error code of each partition."""
    request = AlterReplicaLogDirsRequest(
        dirs=[
            AlterReplicaLogDir(
                path=path,
                topics=[AlterReplicaLogDirTopic(name=name, partitions=list(each)) for name, each in topics.items()],
            )
            for path, topics in directories.items()
        ]
    )
    found = [
        ((topic.topic_name, each.partition_index), each.error_code)
        for topic in c.call(request, version).results
        for each in topic.partitions
    ]
    c.equal(len(dict(found)), len(found), "results (number of different partitions)")
    return dict(found)


@case(
    "log-dirs.describe.exchange",
    "a partition is in one directory, and its size grows with its records",
    source="KIP-113 and KIP-827",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.DESCRIBE_LOG_DIRS),
)
def exchange(c: Check, version: int) -> None:
    """Sends: DescribeLogDirs of partitions 0 and 1 of a topic with three; Produce to partition 1; DescribeLogDirs.

    Expects: the directories have paths and no errors. Exactly these two partitions are in them, each in one, with lag
    0 and not as future replica; size 0, then the size of the batch for partition 1. Since version 4, the size of the
    volume and its usable bytes, both -1 if unknown; since version 5, that the directory is not cordoned.

    Why: tools for moving partitions and for planning of capacity rely on these sizes.
    """
    topic = c.topic(3)
    wanted = {topic.name: [0, 1]}
    results, sizes = describe(c, wanted, version)
    c.equal(sizes, {(topic.name, 0): 0, (topic.name, 1): 0}, "partition_size before Produce")
    data = batch(b"x" * 1_000, b"y")
    p.append(c, topic, data, partition=1)
    results, sizes = describe(c, wanted, version)
    c.equal(sizes, {(topic.name, 0): 0, (topic.name, 1): len(data)}, "partition_size after Produce")
    c.true(results, "results", expected="at least one directory", actual=results)
    paths = [each.log_dir for each in results]
    c.equal(len(set(paths)), len(paths), "results (number of different paths)")
    for each in results:
        c.error(each.error_code, ErrorCode.NONE, f"error_code of {each.log_dir}")
        c.true(each.log_dir, "log_dir", expected="a path", actual=each.log_dir)
        if version >= 4:
            c.true(
                0 < each.usable_bytes <= each.total_bytes or (each.total_bytes, each.usable_bytes) == UNKNOWN_BYTES,
                f"total_bytes and usable_bytes of {each.log_dir}",
                expected="positive numbers, the second not above the first, or -1 for both",
                actual=(each.total_bytes, each.usable_bytes),
            )
        if version >= 5:
            c.equal(each.is_cordoned, False, f"is_cordoned of {each.log_dir}")


@case(
    "log-dirs.describe.unknown",
    "partitions that the broker does not have are omitted",
    source="KIP-113",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.DESCRIBE_LOG_DIRS),
)
def unknown(c: Check, version: int) -> None:
    """Sends: DescribeLogDirs of a topic that does not exist, and of partitions 0 and 77 of a topic with one partition.

    Expects: no error, and only partition 0 of the second topic.

    Why: a client asks each broker for all partitions, and learns which of them the broker has.
    """
    topic = c.topic()
    _, sizes = describe(c, {c.name("no-such-topic"): [0], topic.name: [0, 77]}, version)
    c.equal(sizes, {(topic.name, 0): 0}, "partitions (and partition_size)")


@case(
    "log-dirs.describe.none",
    "an empty list of topics stands for none",
    source="KIP-113",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.DESCRIBE_LOG_DIRS),
)
def none(c: Check, version: int) -> None:
    """Sends: DescribeLogDirs with an empty list of topics, while there is a topic.

    Expects: the directories, without topics.

    Why: a tool that only needs the directories and their volumes does not transfer thousands of partitions.
    """
    c.topic()
    results, sizes = describe(c, {}, version)
    c.true(results, "results", expected="at least one directory", actual=results)
    c.equal(sizes, {}, "partitions (and partition_size)")


@case(
    "log-dirs.describe.all",
    "null topics stand for all",
    source="KIP-113",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.DESCRIBE_LOG_DIRS),
)
def everything(c: Check, version: int) -> None:
    """Sends: Produce to partition 1 of a topic with two; DescribeLogDirs with null topics.

    Expects: both partitions of the topic, with their sizes.

    Why: this is how tools find the largest partitions of a broker.
    """
    topic = c.topic(2)
    data = batch(b"value")
    p.append(c, topic, data, partition=1)
    _, sizes = describe(c, None, version)
    found = {where: size for where, size in sizes.items() if where[0] == topic.name}
    c.equal(found, {(topic.name, 0): 0, (topic.name, 1): len(data)}, "partitions (and partition_size) of the topic")


@case(
    "log-dirs.move.exchange",
    "a replica can be assigned to the directory in which it is",
    source="KIP-113",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.ALTER_REPLICA_LOG_DIRS),
    needs=needs(ApiKey.DESCRIBE_LOG_DIRS, 1),
)
def move_nowhere(c: Check, version: int) -> None:
    """Sends: AlterReplicaLogDirs of a partition with a record to the directory in which it is.

    Expects: one result, without error; the partition is still in this directory, with its record.

    Why: a tool that applies a plan a second time must not disturb replicas that are already in their place.
    """
    topic = c.topic()
    data = batch(b"value")
    p.append(c, topic, data)
    path = directory(c, topic)
    found = move(c, {path: {topic.name: [0]}}, version)
    c.equal(found, {(topic.name, 0): int(ErrorCode.NONE)}, "results (partition and error_code)")
    c.equal(directory(c, topic), path, "the directory of partition 0")
    c.equal(describe(c, {topic.name: [0]})[1], {(topic.name, 0): len(data)}, "partition_size")
    c.equal(p.values(c, topic), [b"value"], "the values of partition 0")


@case(
    "log-dirs.move.unknown-directory",
    "a path that is not a log directory is rejected",
    source="KIP-113",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.ALTER_REPLICA_LOG_DIRS),
    variants={"absolute": ("/no/such/directory",), "relative": ("data",), "empty": ("",)},
)
def unknown_directory(c: Check, version: int, path: str) -> None:
    """Sends: AlterReplicaLogDirs to a path that is not a log directory of the broker, for a partition that exists, one
    that does not, and a topic that does not.

    Expects: LOG_DIR_NOT_FOUND for each of the three partitions.

    Why: the server must not create directories because of a misspelled path.
    """
    topic, missing = c.topic(), c.name("no-such-topic")
    found = move(c, {path: {topic.name: [0, 77], missing: [0]}}, version)
    expected = dict.fromkeys([(topic.name, 0), (topic.name, 77), (missing, 0)], int(ErrorCode.LOG_DIR_NOT_FOUND))
    c.equal(found, expected, "results (partition and error_code)")


@case(
    "log-dirs.move.unknown-partition",
    "partitions that do not exist are rejected, and the others are not",
    source="KIP-113",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.ALTER_REPLICA_LOG_DIRS),
    needs=needs(ApiKey.DESCRIBE_LOG_DIRS, 1),
)
def unknown_partition(c: Check, version: int) -> None:
    """Sends: AlterReplicaLogDirs to a log directory of the broker, for a partition that exists, one that does not, and
    a topic that does not.

    Expects: no error for the first, UNKNOWN_TOPIC_OR_PARTITION for the others.

    Why: each partition succeeds or fails independently, so that a tool can report which moves have begun.
    """
    topic, missing = c.topic(), c.name("no-such-topic")
    found = move(c, {directory(c, topic): {topic.name: [0, 77], missing: [0]}}, version)
    expected = {
        (topic.name, 0): int(ErrorCode.NONE),
        (topic.name, 77): int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (missing, 0): int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    }
    c.equal(found, expected, "results (partition and error_code)")


@case(
    "log-dirs.move.twice",
    "of several directories for a partition, the last one counts",
    source="KIP-113",
    needs=needs(ApiKey.ALTER_REPLICA_LOG_DIRS, 2, ApiKey.DESCRIBE_LOG_DIRS, 1),
    level=Level.APACHE,
    variants={"unknown-last": (False, ErrorCode.LOG_DIR_NOT_FOUND), "unknown-first": (True, ErrorCode.NONE)},
)
def twice(c: Check, unknown_first: bool, expected: ErrorCode) -> None:
    """Sends: AlterReplicaLogDirs with one partition under its own directory and under one that does not exist, in both
    orders.

    Expects: one result, that of the last directory: no error, or LOG_DIR_NOT_FOUND.

    Why: two results for one partition could not be distinguished.
    """
    topic = c.topic()
    paths = [directory(c, topic), "/no/such/directory"]
    if unknown_first:
        paths.reverse()
    found = move(c, {path: {topic.name: [0]} for path in paths})
    c.equal(found, {(topic.name, 0): int(expected)}, "results (partition and error_code)")


@case(
    "log-dirs.move.none",
    "a request without directories has an empty response",
    source="KIP-113",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.ALTER_REPLICA_LOG_DIRS),
)
def move_none(c: Check, version: int) -> None:
    """Sends: AlterReplicaLogDirs without directories.

    Expects: a response without topics.

    Why: a generic client serializes an empty list like any other, and waits for the response.
    """
    c.equal(move(c, {}, version), {}, "results")

"""DescribeTopicPartitions: topics page by page, with their eligible leader replicas."""

from __future__ import annotations

from typing import Any

from ...protocol.api import ApiKey
from ...protocol.errors import ErrorCode
from ...protocol.messages.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest, TopicRequest
from ...protocol.uuid import ZERO_UUID
from ..case import Layer, Level, case, needs, versions_of
from ..check import Check
from .metadata import TOPIC_OPERATIONS

SOURCE = "KIP-966"
DESCRIBE = needs(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0)


def describe(c: Check, names: list[str], limit: int = 2_000, cursor: tuple[str, int] | None = None) -> Any:
    """One page; a cursor is the topic and partition that it begins with."""
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in names], response_partition_limit=limit
    )
    if cursor is not None:
        request.cursor = Cursor(topic_name=cursor[0], partition_index=cursor[1])
    return c.call(request, 0)


def entries(page: Any) -> list[tuple[str, int]]:
    """Topic and partition of all partitions, in the order of the response."""
    return [(each.name, partition.partition_index) for each in page.topics for partition in each.partitions]


def next_of(page: Any) -> tuple[str, int] | None:
    cursor = page.next_cursor
    return None if cursor is None else (cursor.topic_name, cursor.partition_index)


@case(
    "metadata.topic-partitions.exchange",
    "a topic is described with its partitions",
    source=SOURCE,
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.DESCRIBE_TOPIC_PARTITIONS),
)
def exchange(c: Check, version: int) -> None:
    """Sends: DescribeTopicPartitions about a new topic with three partitions.

    Expects: name, ID, not internal, the allowed operations; partitions 0 to 2 with the broker at the address as
    leader, replica and in-sync replica, leader epoch 0, no eligible leader replicas and no offline replicas; no cursor.

    Why: `kafka-topics --describe` and admin clients since Apache Kafka 3.8 use it instead of Metadata.
    """
    topic = c.topic(3)
    response = c.call(DescribeTopicPartitionsRequest(topics=[TopicRequest(name=topic.name)]), version)
    c.equal(response.next_cursor, None, "next_cursor")
    c.equal(len(response.topics), 1, "topics (number)")
    (found,) = response.topics
    c.error(found.error_code, ErrorCode.NONE, "topics[0].error_code")
    c.equal(found.name, topic.name, "topics[0].name")
    c.equal(found.topic_id, topic.topic_id, "topics[0].topic_id")
    c.equal(found.is_internal, False, "topics[0].is_internal")
    if c.target.security.authenticate is None:
        c.equal(found.topic_authorized_operations, TOPIC_OPERATIONS, "topics[0].topic_authorized_operations")
    c.equal([each.partition_index for each in found.partitions], [0, 1, 2], "the partitions")
    node = c.target.node_id
    for each in found.partitions:
        which = f"of partition {each.partition_index}"
        c.error(each.error_code, ErrorCode.NONE, f"error_code {which}")
        c.equal(each.leader_id, node, f"leader_id {which}")
        c.equal(each.leader_epoch, 0, f"leader_epoch {which}")
        c.equal(each.replica_nodes, [node], f"replica_nodes {which}")
        c.equal(each.isr_nodes, [node], f"isr_nodes {which}")
        c.equal(each.offline_replicas, [], f"offline_replicas {which}")
        c.equal(each.eligible_leader_replicas or [], [], f"eligible_leader_replicas {which}")
        c.equal(each.last_known_elr or [], [], f"last_known_elr {which}")


@case(
    "metadata.topic-partitions.unknown-topic",
    "a topic that does not exist has its own error",
    source=SOURCE,
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.DESCRIBE_TOPIC_PARTITIONS),
)
def unknown_topic(c: Check, version: int) -> None:
    """Sends: DescribeTopicPartitions about a topic that does not exist and one that does.

    Expects: UNKNOWN_TOPIC_OR_PARTITION, no partitions and no ID for the first; the second is described.

    Why: an admin client reports the error for this topic only.
    """
    topic, missing = c.topic(), c.topic_name("missing")
    request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name=missing), TopicRequest(name=topic.name)])
    found = {each.name: each for each in c.call(request, version).topics}
    c.equal(sorted(found), sorted([missing, topic.name]), "the names in topics")
    c.error(found[missing].error_code, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "error_code of the missing topic")
    c.equal(found[missing].partitions, [], "partitions of the missing topic")
    c.equal(found[missing].topic_id, ZERO_UUID, "topic_id of the missing topic")
    c.error(found[topic.name].error_code, ErrorCode.NONE, "error_code of the other topic")
    c.equal([each.partition_index for each in found[topic.name].partitions], [0], "partitions of the other topic")


@case(
    "metadata.topic-partitions.pages",
    "the pages of a listing contain each partition once, in order",
    source=SOURCE,
    needs=DESCRIBE,
    variants={"1": (1,), "2": (2,), "3": (3,), "5": (5,), "6": (6,), "7": (7,)},
)
def pages(c: Check, limit: int) -> None:
    """Sends: DescribeTopicPartitions about three topics with three, one and two partitions, with a limit of partitions
    per response, repeated with the cursor of each response.

    Expects: topics in the order of their names, partitions in order, full pages except for the last; the cursor is the
    next partition, and null at the end.

    Why: clients with thousands of partitions read them page by page, and must neither miss one nor loop.
    """
    prefix = c.name("pages")
    sizes = {"a": 3, "b": 1, "c": 2}
    topics = []
    for letter, partitions in sizes.items():
        c.delete_later(f"{prefix}-{letter}")
        topics.append(c.topic(partitions, name=f"{prefix}-{letter}"))
    expected = [
        (topic.name, index) for topic, size in zip(topics, sizes.values(), strict=True) for index in range(size)
    ]
    names = [topic.name for topic in reversed(topics)]
    at, cursor = 0, None
    while True:
        page = describe(c, names, limit, cursor)
        c.equal(entries(page), expected[at : at + limit], f"the page that begins with {cursor}")
        at += limit
        cursor = next_of(page)
        c.equal(cursor, expected[at] if at < len(expected) else None, "next_cursor")
        if cursor is None:
            return


@case(
    "metadata.topic-partitions.cursor",
    "a response begins at the cursor",
    source=SOURCE,
    needs=DESCRIBE,
    variants={"0": (0, [0, 1, 2]), "1": (1, [1, 2]), "2": (2, [2]), "behind-last": (3, [])},
)
def begins_at_cursor(c: Check, index: int, expected: list[int]) -> None:
    """Sends: DescribeTopicPartitions about a topic with three partitions and a cursor in it.

    Expects: the partitions from the cursor, and no further cursor.

    Why: a client that repeats a request after an error relies on the cursor that it has.
    """
    topic = c.topic(3)
    page = describe(c, [topic.name], cursor=(topic.name, index))
    c.error(page.topics[0].error_code, ErrorCode.NONE, "topics[0].error_code")
    c.equal(entries(page), [(topic.name, each) for each in expected], "the partitions")
    c.equal(next_of(page), None, "next_cursor")


@case(
    "metadata.topic-partitions.cursor-invalid",
    "a cursor that is not in the requested topics is rejected",
    source=SOURCE,
    layer=Layer.WIRE,
    level=Level.APACHE,
    needs=DESCRIBE,
    variants={"negative": ("", -1), "other-topic": ("no-such-topic", 0)},
)
def invalid_cursor(c: Check, name: str, index: int) -> None:
    """Sends: DescribeTopicPartitions about one topic with a cursor of partition -1, or of another topic.

    Expects: INVALID_REQUEST for the topic, and no partitions.

    Why: a client with a wrong cursor would otherwise miss partitions without noticing.
    """
    topic = c.topic(3)
    page = describe(c, [topic.name], cursor=(name or topic.name, index))
    c.equal([each.name for each in page.topics], [topic.name], "the names in topics")
    c.error(page.topics[0].error_code, ErrorCode.INVALID_REQUEST, "topics[0].error_code")
    c.equal(entries(page), [], "the partitions")


@case(
    "metadata.topic-partitions.limit-too-small",
    "a limit below 1 means 1",
    source=SOURCE,
    layer=Layer.WIRE,
    level=Level.APACHE,
    needs=DESCRIBE,
    variants={"0": (0,), "minus-1": (-1,)},
)
def limit_too_small(c: Check, limit: int) -> None:
    """Sends: DescribeTopicPartitions about a topic with three partitions, with a limit of 0 or -1.

    Expects: partition 0, and a cursor at partition 1.

    Why: with an empty page the client would repeat the request forever.
    """
    topic = c.topic(3)
    page = describe(c, [topic.name], limit)
    c.equal(entries(page), [(topic.name, 0)], "the partitions")
    c.equal(next_of(page), (topic.name, 1), "next_cursor")


@case(
    "metadata.topic-partitions.all-topics",
    "an empty list of topics means all topics",
    source=SOURCE,
    needs=DESCRIBE,
)
def all_topics(c: Check) -> None:
    """Sends: DescribeTopicPartitions without topics and a cursor at the first of two new topics, with a limit of 3.

    Expects: the three partitions of the first one; with the cursor at the second one, its partition first.

    Why: admin clients list all topics like this.
    """
    first = c.topic(3)
    page = describe(c, [], 3, (first.name, 0))
    c.equal(entries(page), [(first.name, index) for index in range(3)], "the partitions")
    second = c.topic(1)
    page = describe(c, [], 1, (second.name, 0))
    c.equal(entries(page), [(second.name, 0)], "the partitions")


@case(
    "metadata.topic-partitions.same-topic-twice",
    "a topic that is named twice is described once",
    source=SOURCE,
    layer=Layer.WIRE,
    level=Level.APACHE,
    needs=DESCRIBE,
)
def same_topic_twice(c: Check) -> None:
    """Sends: DescribeTopicPartitions with the same topic twice.

    Expects: its partitions once.

    Why: clients put the entries into a map, and some count them.
    """
    topic = c.topic(2)
    c.equal(entries(describe(c, [topic.name] * 2)), [(topic.name, 0), (topic.name, 1)], "the partitions")

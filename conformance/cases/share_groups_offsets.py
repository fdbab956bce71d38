"""The start offsets of share groups: described, altered and deleted (KIP-932)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...protocol.api import ApiKey
from ...protocol.errors import ErrorCode
from ...protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from ...protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from ...protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from .. import share_group as s
from ..case import Layer, case, needs, versions_of
from ..check import Check, Topic
from ..share_group import ACCEPT, FEATURES, RECORDS, ShareMember

SOURCE = "KIP-932: Administration"
NEEDS = (
    *RECORDS,
    *needs(
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
        0,
        ApiKey.ALTER_SHARE_GROUP_OFFSETS,
        0,
        ApiKey.DELETE_SHARE_GROUP_OFFSETS,
        0,
    ),
)


def described(
    c: Check, group: str, topics: Mapping[str, Sequence[int]] | None = None, version: int | None = None
) -> Any:
    """DescribeShareGroupOffsets of one group; without topics all of them."""
    requested = None
    if topics is not None:
        requested = [
            DescribeShareGroupOffsetsRequestTopic(topic_name=name, partitions=list(each))
            for name, each in topics.items()
        ]
    wanted = DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=requested)
    answer = c.call(DescribeShareGroupOffsetsRequest(groups=[wanted]), version, to=c.coordinator(group))
    c.equal([each.group_id for each in answer.groups], [group], "groups (group_id)")
    return answer.groups[0]


def start_offsets(c: Check, group: str) -> dict[str, dict[int, int]]:
    """The start offsets of a group, by topic and partition, without an error."""
    found = described(c, group)
    c.error(found.error_code, ErrorCode.NONE, "DescribeShareGroupOffsets error_code")
    return {
        topic.topic_name: {each.partition_index: each.start_offset for each in topic.partitions}
        for topic in found.topics
    }


def alter(c: Check, group: str, topic: str, offsets: Mapping[int, int]) -> Any:
    """AlterShareGroupOffsets for partitions of one topic."""
    partitions = [
        AlterShareGroupOffsetsRequestPartition(partition_index=index, start_offset=offset)
        for index, offset in offsets.items()
    ]
    wanted = AlterShareGroupOffsetsRequestTopic(topic_name=topic, partitions=partitions)
    return c.call(AlterShareGroupOffsetsRequest(group_id=group, topics=[wanted]), to=c.coordinator(group))


def delete(c: Check, group: str, *topics: str) -> Any:
    """DeleteShareGroupOffsets for topics."""
    wanted = [DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in topics]
    return c.call(DeleteShareGroupOffsetsRequest(group_id=group, topics=wanted), to=c.coordinator(group))


def member_with_offsets(c: Check) -> tuple[Topic, ShareMember]:
    """A topic with five records, and the member of a share group that has accepted the first two of them.

    Its session is closed: this stores the new start offset, which may otherwise wait for the next acknowledgment.
    """
    topic, (member,) = s.member_with_records(c, 5)
    with c.setup("a share group that has accepted two of five records"):
        member.acquire_until(topic, [0, 1, 2, 3, 4])
        c.equal(member.acknowledged(topic, {0: [(0, 1, [ACCEPT])]}), {0: 0}, "error_code of the acceptance")
        c.error(member.close(topic).error_code, ErrorCode.NONE, "error_code of the last fetch")
        c.until(lambda: start_offsets(c, member.group) == {topic.name: {0: 2}}, "start offset 2")
    return topic, member


def emptied(c: Check, member: ShareMember) -> None:
    """The only member leaves, as a step of the setup."""
    with c.setup("an empty share group"):
        c.error(member.heartbeat(member_epoch=-1).error_code, ErrorCode.NONE, "error_code of the last heartbeat")


@case(
    "share-groups.offsets.describe.exchange",
    "DescribeShareGroupOffsets returns start offsets and lags",
    source="KIP-932 and KIP-1226",
    layer=Layer.WIRE,
    features=FEATURES,
    needs=NEEDS,
    versions=versions_of(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS),
    alters_configs=True,
)
def exchange(c: Check, version: int) -> None:
    """Sends: DescribeShareGroupOffsets of a group that has accepted two of five records, for all topics; then for a
    topic that exists, and one that does not.

    Expects: the topic with its ID, start offset 2, leader epoch 0, and since version 1 lag 3; start offset -1 for the
    unknown topic.

    Why: operators see from it whether a share group keeps up.
    """
    topic, member = member_with_offsets(c)
    unknown = c.name("unknown")
    for requested in (None, {topic.name: [0], unknown: [0]}):
        found = described(c, member.group, requested, version)
        c.error(found.error_code, ErrorCode.NONE)
        topics = {each.topic_name: each for each in found.topics}
        c.equal(set(topics), {topic.name} if requested is None else {topic.name, unknown}, "topics (topic_name)")
        c.equal(topics[topic.name].topic_id, topic.topic_id, "topic_id")
        entries = {each.partition_index: each for each in topics[topic.name].partitions}
        c.equal(sorted(entries), [0], "partitions (partition_index)")
        shown = entries[0].error_code, entries[0].start_offset, entries[0].leader_epoch
        c.equal(shown, (0, 2, 0), "error_code, start_offset and leader_epoch of partition 0")
        if version >= 1:
            c.equal(entries[0].lag, 3, "lag of partition 0")
        if requested is not None:
            c.equal(
                [each.start_offset for each in topics[unknown].partitions], [-1], "start_offset of an unknown topic"
            )


@case(
    "share-groups.offsets.describe.unknown-group",
    "DescribeShareGroupOffsets of an unknown group has no topics",
    source=SOURCE,
    layer=Layer.WIRE,
    features=FEATURES,
    needs=NEEDS,
    versions=versions_of(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS),
)
def describe_unknown(c: Check, version: int) -> None:
    """Sends: DescribeShareGroupOffsets of a group that does not exist, for all topics.

    Expects: the group without topics, and no error.

    Why: a group without members has no offsets yet.
    """
    found = described(c, c.name("unknown"), None, version)
    c.error(found.error_code, ErrorCode.NONE)
    c.equal(found.topics, [], "topics")


@case(
    "share-groups.offsets.alter.exchange",
    "AlterShareGroupOffsets moves the start offset of an empty group",
    source=SOURCE,
    layer=Layer.WIRE,
    features=FEATURES,
    needs=NEEDS,
    versions=versions_of(ApiKey.ALTER_SHARE_GROUP_OFFSETS),
    alters_configs=True,
)
def alter_exchange(c: Check, version: int) -> None:
    """Sends: a member joins and leaves without fetching; AlterShareGroupOffsets to 3; a new member fetches.

    Expects: no error, topic ID and partition in the response; start offset 3; the new member acquires records 3 and 4.

    Why: operators skip records, or have them processed again.
    """
    topic, (member,) = s.member_with_records(c, 5)
    emptied(c, member)
    answer = alter(c, member.group, topic.name, {0: 3})
    c.error(answer.error_code, ErrorCode.NONE)
    c.equal([(each.topic_name, each.topic_id) for each in answer.responses], [tuple(topic)], "responses (topics)")
    found = [(each.partition_index, each.error_code) for each in answer.responses[0].partitions]
    c.equal(found, [(0, 0)], "responses[0].partitions")
    c.equal(start_offsets(c, member.group), {topic.name: {0: 3}}, "the start offset")
    other = ShareMember(c, member.group, topic)
    s.joined(c, other)
    c.equal(other.acquire_until(topic, [3, 4]).deliveries, {3: 1, 4: 1}, "acquired_records")


@case(
    "share-groups.offsets.alter.after-delivery",
    "AlterShareGroupOffsets moves the start offset of a group that has accepted records",
    source=SOURCE,
    features=FEATURES,
    needs=NEEDS,
    variants={"forward": (4,), "back": (0,)},
    alters_configs=True,
)
def alter_after_delivery(c: Check, offset: int) -> None:
    """Sends: AlterShareGroupOffsets for a group that has accepted two of five records, and whose member has left.

    Expects: no error, and the new start offset with a lag that counts from it.

    Why: operators skip records, or have them processed again.
    """
    topic, member = member_with_offsets(c)
    emptied(c, member)
    answer = alter(c, member.group, topic.name, {0: offset})
    c.error(answer.error_code, ErrorCode.NONE)
    found = [(each.partition_index, each.error_code) for one in answer.responses for each in one.partitions]
    c.equal(found, [(0, 0)], "responses[0].partitions")
    c.equal(start_offsets(c, member.group), {topic.name: {0: offset}}, "the start offset")
    if c.version(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS) >= 1:
        c.equal(described(c, member.group).topics[0].partitions[0].lag, 5 - offset, "lag")


@case(
    "share-groups.offsets.alter.rejected",
    "AlterShareGroupOffsets rejects groups with members, and unknown partitions",
    source=SOURCE,
    layer=Layer.WIRE,
    features=FEATURES,
    needs=NEEDS,
    versions=versions_of(ApiKey.ALTER_SHARE_GROUP_OFFSETS),
    alters_configs=True,
)
def alter_rejected(c: Check, version: int) -> None:
    """Sends: AlterShareGroupOffsets of a group with a member; after it has left, for partition 77 and an unknown topic.

    Expects: NON_EMPTY_GROUP with a message; UNKNOWN_TOPIC_OR_PARTITION twice; the start offset stays 2.

    Why: a change under a running application would be undone by its next acknowledgment.
    """
    topic, member = member_with_offsets(c)
    answer = alter(c, member.group, topic.name, {0: 4})
    c.error(answer.error_code, ErrorCode.NON_EMPTY_GROUP, "error_code with a member")
    c.true(answer.error_message, "error_message", expected="a message", actual=answer.error_message)
    emptied(c, member)
    for name, partition in ((topic.name, 77), (c.name("unknown"), 0)):
        answer = alter(c, member.group, name, {partition: 1})
        found = [
            (one.topic_name, each.partition_index, each.error_code)
            for one in answer.responses
            for each in one.partitions
        ]
        c.equal(found, [(name, partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)], "responses")
    c.equal(start_offsets(c, member.group), {topic.name: {0: 2}}, "the start offset")


@case(
    "share-groups.offsets.delete.exchange",
    "DeleteShareGroupOffsets removes a topic from an empty group",
    source=SOURCE,
    layer=Layer.WIRE,
    features=FEATURES,
    needs=NEEDS,
    versions=versions_of(ApiKey.DELETE_SHARE_GROUP_OFFSETS),
    alters_configs=True,
)
def delete_exchange(c: Check, version: int) -> None:
    """Sends: DeleteShareGroupOffsets for the topic of a group whose member has left, and for an unknown topic.

    Expects: no error for the topic, with its ID; UNKNOWN_TOPIC_OR_PARTITION for the other one; no longer any offsets.

    Why: operators remove what a group no longer reads.
    """
    topic, member = member_with_offsets(c)
    emptied(c, member)
    unknown = c.name("unknown")
    answer = delete(c, member.group, topic.name, unknown)
    c.error(answer.error_code, ErrorCode.NONE)
    found = {each.topic_name: (each.error_code, each.topic_id) for each in answer.responses}
    expected = {topic.name: (0, topic.topic_id), unknown: (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, bytes(16))}
    c.equal(found, expected, "error_code and topic_id by topic")
    c.equal(start_offsets(c, member.group), {}, "the start offsets")


@case(
    "share-groups.offsets.delete.rejected",
    "DeleteShareGroupOffsets rejects groups with members, and unknown groups",
    source=SOURCE,
    layer=Layer.WIRE,
    features=FEATURES,
    needs=NEEDS,
    versions=versions_of(ApiKey.DELETE_SHARE_GROUP_OFFSETS),
    alters_configs=True,
)
def delete_rejected(c: Check, version: int) -> None:
    """Sends: DeleteShareGroupOffsets of a group with a member, and of a group that does not exist.

    Expects: NON_EMPTY_GROUP and GROUP_ID_NOT_FOUND, each with a message; the start offset stays 2.

    Why: the offsets of a running application must not disappear.
    """
    topic, member = member_with_offsets(c)
    for group, code in (
        (member.group, ErrorCode.NON_EMPTY_GROUP),
        (c.name("unknown"), ErrorCode.GROUP_ID_NOT_FOUND),
    ):
        answer = delete(c, group, topic.name)
        c.error(answer.error_code, code)
        c.true(answer.error_message, "error_message", expected="a message", actual=answer.error_message)
    c.equal(start_offsets(c, member.group), {topic.name: {0: 2}}, "the start offset")

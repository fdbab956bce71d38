"""OffsetDelete: offsets of topics that no member reads (KIP-496)."""

from __future__ import annotations

from ...protocol.api import ApiKey
from ...protocol.errors import ErrorCode
from ...testing.group_requests import subscription
from .. import committed_offsets as o
from ..case import Layer, Level, case, needs, versions_of
from ..check import Check
from ..classic_group import ClassicGroup
from .groups_describe import join_consumer_group

DELETE = needs(ApiKey.OFFSET_DELETE, 0, ApiKey.OFFSET_COMMIT, 2, ApiKey.OFFSET_FETCH, 1)
SUBSCRIBED = int(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)


@case(
    "offsets.delete.exchange",
    "offsets of the requested partitions are deleted",
    source="KIP-496",
    layer=Layer.WIRE,
    needs=DELETE,
    versions=versions_of(ApiKey.OFFSET_DELETE),
)
def exchange(c: Check, version: int) -> None:
    """Sends: OffsetDelete for partitions 0 and 2 of one topic and 0 of another; offsets are committed for all.

    Expects: an entry without an error for each; only the offset of partition 1 is left.

    Why: a user removes the offsets of topics that a group no longer reads, as they keep its lag alarm on.
    """
    first, second = c.topic(3), c.topic()
    group = ClassicGroup(c)
    o.committed_before(c, group.wire, o.commit_request(group.id, first, {0: 4, 1: 5, 2: 6}))
    o.committed_before(c, group.wire, o.commit_request(group.id, second, {0: 7}))
    answer = o.delete(c, group.wire, group.id, {first.name: [0, 2], second.name: [0]})
    c.error(answer.error_code, ErrorCode.NONE)
    c.equal(o.deleted(c, answer), {first.name: {0: 0, 2: 0}, second.name: {0: 0}}, "error codes by topic and partition")
    c.equal(o.offsets(c, group.wire, group.id, first, [0, 1, 2]), {0: -1, 1: 5, 2: -1}, "offsets of the first topic")
    c.equal(o.offsets(c, group.wire, group.id, second, [0]), {0: -1}, "offsets of the second topic")


@case(
    "offsets.delete.unknown-group",
    "offsets of a group that does not exist cannot be deleted",
    source="KIP-496",
    layer=Layer.WIRE,
    needs=DELETE,
    versions=versions_of(ApiKey.OFFSET_DELETE),
)
def unknown_group(c: Check, version: int) -> None:
    """Sends: OffsetDelete for a group that does not exist.

    Expects: GROUP_ID_NOT_FOUND for the request, and no topics.

    Why: a user with a typing error in the name must see it.
    """
    topic = c.topic()
    group = ClassicGroup(c)
    answer = o.delete(c, group.wire, group.id, {topic.name: [0]})
    c.error(answer.error_code, ErrorCode.GROUP_ID_NOT_FOUND)
    c.equal(answer.topics, [], "topics")


@case(
    "offsets.delete.unknown-partition",
    "a partition that does not exist is rejected; one without an offset is not",
    source="KIP-496",
    layer=Layer.WIRE,
    needs=DELETE,
    versions=versions_of(ApiKey.OFFSET_DELETE),
)
def unknown_partition(c: Check, version: int) -> None:
    """Sends: OffsetDelete for a partition with an offset, one without, one that the topic does not have, and for a
    topic that does not exist.

    Expects: no error for the first two; UNKNOWN_TOPIC_OR_PARTITION for the others.

    Why: a request that is repeated must not fail; a mistyped topic must.
    """
    topic = c.topic(2)
    missing = c.name("missing")
    group = ClassicGroup(c)
    o.committed_before(c, group.wire, o.commit_request(group.id, topic, {0: 4}))
    answer = o.delete(c, group.wire, group.id, {topic.name: [0, 1, 77], missing: [0]})
    c.error(answer.error_code, ErrorCode.NONE)
    unknown = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    expected = {topic.name: {0: 0, 1: 0, 77: unknown}, missing: {0: unknown}}
    c.equal(o.deleted(c, answer), expected, "error codes by topic and partition")
    c.equal(o.offsets(c, group.wire, group.id, topic, [0]), {0: -1}, "offsets afterwards")


@case(
    "offsets.delete.subscribed",
    "offsets of topics that members read are kept",
    source="KIP-496",
    needs=(*DELETE, *needs(ApiKey.JOIN_GROUP, 5)),
)
def subscribed(c: Check) -> None:
    """Sends: OffsetDelete for a topic that a member reads, and for one that no member reads; again after it has left.

    Expects: GROUP_SUBSCRIBED_TO_TOPIC, and no error for the other topic; then no error.

    Why: a consumer that loses its offset while it runs would begin again with `auto.offset.reset`.
    """
    topic, other = c.topic(), c.topic()
    group = ClassicGroup(c)
    group.keep()
    member = group.member(protocols={"range": subscription(topic.name)})
    group.complete(member)
    for each in (topic, other):
        request = o.commit_request(group.id, each, {0: 4}, member_id=member.member_id, generation=member.generation)
        o.committed_before(c, group.wire, request)
    answer = o.delete(c, group.wire, group.id, {topic.name: [0], other.name: [0]})
    c.error(answer.error_code, ErrorCode.NONE)
    expected = {topic.name: {0: SUBSCRIBED}, other.name: {0: 0}}
    c.equal(o.deleted(c, answer), expected, "error codes by topic and partition")
    c.equal(o.offsets(c, group.wire, group.id, topic, [0]), {0: 4}, "offsets of the topic that is read")
    c.equal(o.offsets(c, group.wire, group.id, other, [0]), {0: -1}, "offsets of the other topic")
    c.error(member.left(), ErrorCode.NONE, "LeaveGroup error_code")
    answer = o.delete(c, group.wire, group.id, {topic.name: [0]})
    c.equal(o.deleted(c, answer), {topic.name: {0: 0}}, "error codes after the member has left")
    c.equal(o.offsets(c, group.wire, group.id, topic, [0]), {0: -1}, "offsets after the member has left")


@case(
    "offsets.delete.subscribed-by-consumer-group",
    "offsets of topics that members with the consumer protocol read are kept",
    source="KIP-496, KIP-848",
    features={"group.version": 1},
    needs=(*DELETE, *needs(ApiKey.CONSUMER_GROUP_HEARTBEAT, 0)),
)
def subscribed_by_consumer_group(c: Check) -> None:
    """Sends: OffsetDelete for a topic to which a member with ConsumerGroupHeartbeat is subscribed, and for another one.

    Expects: GROUP_SUBSCRIBED_TO_TOPIC, and no error for the other topic.

    Why: as for classic groups.
    """
    topic, other = c.topic(), c.topic()
    group = ClassicGroup(c)
    for each in (topic, other):
        o.committed_before(c, group.wire, o.commit_request(group.id, each, {0: 4}))
    join_consumer_group(c, group, topic.name)
    answer = o.delete(c, group.wire, group.id, {topic.name: [0], other.name: [0]})
    c.error(answer.error_code, ErrorCode.NONE)
    expected = {topic.name: {0: SUBSCRIBED}, other.name: {0: 0}}
    c.equal(o.deleted(c, answer), expected, "error codes by topic and partition")
    c.equal(o.offsets(c, group.wire, group.id, topic, [0]), {0: 4}, "offsets of the topic that is read")


@case(
    "offsets.delete.other-protocol-type",
    "offsets of a group whose members are no consumers are kept",
    source="KIP-496",
    needs=(*DELETE, *needs(ApiKey.JOIN_GROUP, 5)),
)
def other_protocol_type(c: Check) -> None:
    """Sends: OffsetDelete for a group with a member of the protocol type "connect"; again after it has left.

    Expects: NON_EMPTY_GROUP for the request; then no error.

    Why: the server cannot read which topics such members use.
    """
    topic = c.topic()
    group = ClassicGroup(c)
    o.committed_before(c, group.wire, o.commit_request(group.id, topic, {0: 4}))
    member = group.member(protocol_type="connect", protocols={"default": b""})
    group.complete(member)
    answer = o.delete(c, group.wire, group.id, {topic.name: [0]})
    c.error(answer.error_code, ErrorCode.NON_EMPTY_GROUP)
    c.equal(o.offsets(c, group.wire, group.id, topic, [0]), {0: 4}, "offsets with a member")
    c.error(member.left(), ErrorCode.NONE, "LeaveGroup error_code")
    answer = o.delete(c, group.wire, group.id, {topic.name: [0]})
    c.error(answer.error_code, ErrorCode.NONE, "error_code after the member has left")
    c.equal(o.deleted(c, answer), {topic.name: {0: 0}}, "error codes by topic and partition")


@case(
    "offsets.delete.no-topics",
    "a request without topics deletes nothing",
    source="KIP-496",
    level=Level.APACHE,
    needs=DELETE,
)
def no_topics(c: Check) -> None:
    """Sends: OffsetDelete with an empty array of topics, for a group with an offset.

    Expects: no error, no topics, and the offset is left.

    Why: it does not mean all topics.
    """
    topic = c.topic()
    group = ClassicGroup(c)
    o.committed_before(c, group.wire, o.commit_request(group.id, topic, {0: 4}))
    answer = o.delete(c, group.wire, group.id, {})
    c.error(answer.error_code, ErrorCode.NONE)
    c.equal(answer.topics, [], "topics")
    c.equal(o.offsets(c, group.wire, group.id, topic, [0]), {0: 4}, "offsets afterwards")


@case(
    "offsets.delete.one-entry-for-each-topic",
    "a topic has one entry, also if one of its partitions is rejected",
    source="KIP-496",
    layer=Layer.WIRE,
    level=Level.APACHE,
    needs=DELETE,
)
def one_entry_for_each_topic(c: Check) -> None:
    """Sends: OffsetDelete for a partition with an offset, and for one that the topic does not have.

    Expects: one entry for the topic, with both partitions.

    Why: a client that looks up the topic in the response finds one entry only, and would miss partitions of others.
    """
    topic = c.topic()
    group = ClassicGroup(c)
    o.committed_before(c, group.wire, o.commit_request(group.id, topic, {0: 4}))
    answer = o.delete(c, group.wire, group.id, {topic.name: [77, 0]})
    c.equal([each.name for each in answer.topics], [topic.name], "topics (name)")
    unknown = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    c.equal(o.deleted(c, answer), {topic.name: {0: 0, 77: unknown}}, "error codes by topic and partition")

"""Produce: topics and partitions that do not exist, several of them in one request, and new topics."""

from __future__ import annotations

from ...protocol.api import ApiKey
from ...protocol.errors import ErrorCode
from ...protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ...protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from .. import partitions as p
from ..case import Layer, Level, case, needs, versions_of
from ..check import Check, Topic
from ..record_batches import batch, changed

PRODUCE = needs(ApiKey.PRODUCE, 9)


@case(
    "produce.unknown-topic",
    "a topic that does not exist is rejected",
    source="Protocol: Produce, and KIP-516",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.PRODUCE),
)
def unknown_topic(c: Check, version: int) -> None:
    """Sends: Produce to a topic that does not exist, since version 13 with an unknown ID, and to one that exists.

    Expects: UNKNOWN_TOPIC_OR_PARTITION, since version 13 UNKNOWN_TOPIC_ID, and no base offset; the batch for the other
    topic is appended.

    Why: a producer refreshes its metadata after this error.
    """
    topic, missing = c.topic(), Topic(c.topic_name("missing"), bytes(range(90, 106)))
    request = p.produce_request(missing, {0: batch(b"bad")}, version=version)
    request.topic_data += p.produce_request(topic, {0: batch(b"good")}, version=version).topic_data
    found = {
        each.topic_id if version >= 13 else each.name: each.partition_responses
        for each in c.call(request, version).responses
    }
    this, other = (topic.topic_id, missing.topic_id) if version >= 13 else (topic.name, missing.name)
    c.equal(set(found), {this, other}, "the topics of the response")
    ((bad,), (good,)) = found[other], found[this]
    expected = ErrorCode.UNKNOWN_TOPIC_ID if version >= 13 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    c.error(bad.error_code, expected, "error_code of the missing topic")
    p.no_offset(c, bad, "base_offset of the missing topic")
    c.equal((good.error_code, good.base_offset), (0, 0), "error_code and base_offset of the other topic")
    c.equal(p.values(c, topic), [b"good"], "the values of the other topic")


@case(
    "produce.partitions",
    "each partition has its own result",
    source="Protocol: Produce",
    needs=PRODUCE,
    variants={"by-name": (12,), "newest": (None,)},
)
def partitions(c: Check, highest: int | None) -> None:
    """Sends: one Produce to partitions 2, 0, 9 and 1 of a topic and partition 0 of another, in which the batch for 0
    has a wrong CRC, and 9 does not exist.

    Expects: no error, CORRUPT_MESSAGE, UNKNOWN_TOPIC_OR_PARTITION, no error and no error; each value in its partition.

    Why: a producer batches many partitions into one request, and retries those that failed only.
    """
    version = c.version(ApiKey.PRODUCE, highest)
    one, other = c.topic(3), c.topic()
    p.append(c, one, batch(b"before"), partition=2)
    batches: dict[int, bytes | None] = {
        2: batch(b"2"),
        0: changed(batch(b"0"), len(batch(b"0")) - 1, b"\x7f", with_crc=False),
        9: batch(b"9"),
        1: batch(b"1"),
    }
    request = p.produce_request(one, batches, version=version)
    request.topic_data += p.produce_request(other, {0: batch(b"other")}, version=version).topic_data
    names = {topic.topic_id: topic.name for topic in (one, other)}
    found = {
        (names.get(each.topic_id, "?") if version >= 13 else each.name, part.index): (
            ErrorCode(part.error_code).name,
            part.base_offset,
        )
        for each in c.call(request, version).responses
        for part in each.partition_responses
    }
    expected = {
        (one.name, 2): ("NONE", 1),
        (one.name, 0): ("CORRUPT_MESSAGE", -1),
        (one.name, 9): ("UNKNOWN_TOPIC_OR_PARTITION", -1),
        (one.name, 1): ("NONE", 0),
        (other.name, 0): ("NONE", 0),
    }
    c.equal(found, expected, "error and base_offset by partition")
    values = [p.values(c, one, partition=index) for index in range(3)]
    c.equal(values, [[], [b"1"], [b"before", b"2"]], "the values of the partitions")
    c.equal(p.values(c, other), [b"other"], "the values of the other topic")


@case(
    "produce.nothing",
    "a request without topics gets a response",
    source="Protocol: Produce",
    layer=Layer.WIRE,
    level=Level.APACHE,
    versions=versions_of(ApiKey.PRODUCE),
)
def nothing(c: Check, version: int) -> None:
    """Sends: Produce without topics.

    Expects: a response without topics.

    Why: a response is due for every request with acks other than 0.
    """
    response = c.call(ProduceRequest(acks=-1, timeout_ms=1_000), version)
    c.equal(response.responses, [], "responses")


@case(
    "produce.new-topic",
    "errors between the creation of a topic and its first leader are retriable",
    source="Protocol: Produce",
    needs=needs(ApiKey.PRODUCE, 9, ApiKey.CREATE_TOPICS, 2),
)
def new_topic(c: Check) -> None:
    """Sends: CreateTopics, and immediately Produce by name, repeated until it succeeds.

    Expects: at most UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER or LEADER_NOT_AVAILABLE before the success, and
    base offset 0 with it.

    Why: producers retry after these errors, and report others to their users.
    """
    name = c.topic_name()
    with c.setup("creating a topic"):
        wanted = c.led_here(CreatableTopic(name=name, num_partitions=1, replication_factor=1))
        (created,) = c.call(CreateTopicsRequest(topics=[wanted], timeout_ms=30_000)).topics
        c.error(created.error_code, ErrorCode.NONE, "CreateTopics error_code")
    version = c.version(ApiKey.PRODUCE, 12)
    allowed = {
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
    }

    def produced() -> bool:
        data = PartitionProduceData(index=0, records=batch(b"-"))
        topic = TopicProduceData(name=name, partition_data=[data])
        response = c.call(ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic]), version)
        answer = response.responses[0].partition_responses[0]
        c.error(answer.error_code, allowed)
        if answer.error_code:
            p.no_offset(c, answer)
        else:
            c.equal(answer.base_offset, 0, "base_offset")
        return bool(answer.error_code == ErrorCode.NONE)

    c.until(produced, "the first record")


@case(
    "produce.acks.none-stored",
    "records of acks=0 are stored in each version",
    source="Protocol: Produce",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.PRODUCE),
)
def acks_none_stored(c: Check, version: int) -> None:
    """Sends: Produce with acks=0, Produce with acks=-1 and Produce with acks=0 on one connection, to one partition.

    Expects: one response, with base offset 1; all three records are stored in order.

    Why: without a response, this order is all that such a producer can rely on.
    """
    topic = c.topic()
    for number, acks in enumerate((0, -1, 0)):
        request = p.produce_request(topic, {0: batch(b"%d" % number)}, version=version, acks=acks)
        c.wire.send(request, version, answered=acks != 0)
    answer = c.wire.receive().responses[0].partition_responses[0]
    c.equal((answer.error_code, answer.base_offset), (0, 1), "error_code and base_offset")
    c.equal(p.values(c, topic), [b"0", b"1", b"2"], "the values")

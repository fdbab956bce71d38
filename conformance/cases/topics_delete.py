"""DeleteTopics: by name and by topic ID."""

from __future__ import annotations

from ...protocol.api import ApiKey
from ...protocol.errors import ErrorCode
from ...protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ...protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ...protocol.uuid import ZERO_UUID
from .. import partitions as p
from .. import topic_admin as t
from ..case import Layer, Level, case, needs, versions_of
from ..check import Check
from ..record_batches import batch

DELETE = needs(ApiKey.DELETE_TOPICS, t.DELETE_BY_ID)
UNKNOWN_ID = b"\x07" * 16


@case(
    "topics.delete.exchange",
    "topics are deleted by name",
    source="Protocol: DeleteTopics",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.DELETE_TOPICS),
)
def exchange(c: Check, version: int) -> None:
    """Sends: DeleteTopics with two of three topics.

    Expects: both names without error, since version 5 without a message, since version 6 with their topic IDs; Metadata
    no longer has them, and still has the third.

    Why: a tool that deletes a topic reports for each name what happened to it.
    """
    topics = sorted(c.topic() for _ in range(3))
    kept, *deleted = topics
    results = t.delete(c, *(each.name for each in deleted), version=version)
    c.equal([each.name for each in results], [each.name for each in deleted], "responses (names)")
    for result, topic in zip(results, deleted, strict=True):
        c.error(result.error_code, ErrorCode.NONE, f"error_code of {topic.name}")
        if version >= 5:
            c.true(
                not result.error_message, f"error_message of {topic.name}", expected="none", actual=result.error_message
            )
        if version >= 6:
            c.equal(result.topic_id, topic.topic_id, f"topic_id of {topic.name}")
        t.until_missing(c, topic.name)
    c.equal(t.metadata_of(c, kept.name).topic_id, kept.topic_id, "topic_id of the third topic in Metadata")


@case(
    "topics.delete.unknown",
    "a topic that does not exist is rejected",
    source="Protocol: DeleteTopics",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.DELETE_TOPICS),
)
def unknown(c: Check, version: int) -> None:
    """Sends: DeleteTopics with a name that does not exist, and one that does.

    Expects: UNKNOWN_TOPIC_OR_PARTITION for the first, since version 5 with a message, since version 6 with the topic ID
    of zeros; the other is deleted.

    Why: scripts that delete topics ignore this error, and no other.
    """
    topic = c.topic()
    name = c.name("no-such-topic")
    results = {each.name: each for each in t.delete(c, name, topic.name, version=version)}
    c.equal(sorted(results), sorted([name, topic.name]), "responses (names)")
    c.error(results[name].error_code, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "error_code of the unknown name")
    if version >= 5:
        c.true(results[name].error_message, "error_message", expected="a message", actual=results[name].error_message)
    if version >= 6:
        c.equal(results[name].topic_id, ZERO_UUID, "topic_id of the unknown name")
    c.error(results[topic.name].error_code, ErrorCode.NONE, "error_code of the known name")
    t.until_missing(c, topic.name)


@case(
    "topics.delete.by-id",
    "a topic is deleted by its ID",
    source="KIP-516",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.DELETE_TOPICS, t.DELETE_BY_ID),
)
def by_id(c: Check, version: int) -> None:
    """Sends: DeleteTopics with the ID of one of two topics, without a name.

    Expects: no error, with name and ID; the other topic remains.

    Why: a tool that deletes by ID cannot hit a topic that was created again under the same name.
    """
    topic, other = c.topic(), c.topic()
    results = t.delete(c, ids=[topic.topic_id], version=version)
    c.equal([(each.name, each.topic_id) for each in results], [tuple(topic)], "responses (name, topic_id)")
    c.error(results[0].error_code, ErrorCode.NONE)
    c.true(not results[0].error_message, "error_message", expected="none", actual=results[0].error_message)
    t.until_missing(c, topic.name)
    c.equal(t.metadata_of(c, other.name).topic_id, other.topic_id, "topic_id of the other topic in Metadata")


@case(
    "topics.delete.unknown-id",
    "a topic ID that does not exist is rejected",
    source="KIP-516",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.DELETE_TOPICS, t.DELETE_BY_ID),
)
def unknown_id(c: Check, version: int) -> None:
    """Sends: DeleteTopics with a random topic ID, and the ID of a topic that exists.

    Expects: UNKNOWN_TOPIC_ID with a message, this ID and no name for the first; the other is deleted.

    Why: the client finds out which of its IDs is unknown only by the ID in the response.
    """
    topic = c.topic()
    results = {each.topic_id: each for each in t.delete(c, ids=[UNKNOWN_ID, topic.topic_id], version=version)}
    c.equal(sorted(results), sorted([UNKNOWN_ID, topic.topic_id]), "responses (topic IDs)")
    c.error(results[UNKNOWN_ID].error_code, ErrorCode.UNKNOWN_TOPIC_ID, "error_code of the unknown ID")
    c.equal(results[UNKNOWN_ID].name, None, "name of the unknown ID")
    message = results[UNKNOWN_ID].error_message
    c.true(message, "error_message of the unknown ID", expected="a message", actual=message)
    c.error(results[topic.topic_id].error_code, ErrorCode.NONE, "error_code of the known ID")
    t.until_missing(c, topic.name)


@case(
    "topics.delete.ambiguous",
    "a topic is named either by its name or by its ID",
    source="KIP-516",
    needs=DELETE,
    level=Level.APACHE,
    variants={"name-and-id": (True,), "neither": (False,)},
)
def ambiguous(c: Check, both: bool) -> None:
    """Sends: DeleteTopics with an entry that has a name and the topic's ID, or neither.

    Expects: INVALID_REQUEST for the entry; the topic remains.

    Why: if name and ID are those of two topics, the server would delete one of which the user does not think.
    """
    topic = c.topic()
    entry = DeleteTopicState(name=topic.name, topic_id=topic.topic_id) if both else DeleteTopicState()
    request = DeleteTopicsRequest(topics=[entry], timeout_ms=t.TIMEOUT_MS)
    (result,) = c.call(request, t.DELETE_BY_ID).responses
    c.error(result.error_code, ErrorCode.INVALID_REQUEST)
    c.equal((result.name, result.topic_id), (entry.name, entry.topic_id), "name and topic_id")
    c.equal(t.metadata_of(c, topic.name).topic_id, topic.topic_id, "topic_id in Metadata")


@case(
    "topics.delete.duplicate-name",
    "a topic that is named twice is rejected, and the others are deleted",
    source="Protocol: DeleteTopics",
    layer=Layer.WIRE,
    level=Level.APACHE,
    versions=versions_of(ApiKey.DELETE_TOPICS),
)
def duplicate_name(c: Check, version: int) -> None:
    """Sends: DeleteTopics with one name twice, and another name.

    Expects: INVALID_REQUEST for the name that occurs twice, whose topic remains; the other is deleted.

    Why: a list with a name twice is the result of a defect, and a deletion cannot be undone.
    """
    twice, once = c.topic(), c.topic()
    results = {each.name: each for each in t.delete(c, twice.name, once.name, twice.name, version=version)}
    c.equal(sorted(results), sorted([twice.name, once.name]), "responses (different names)")
    c.error(results[twice.name].error_code, ErrorCode.INVALID_REQUEST, "error_code of the name that occurs twice")
    c.error(results[once.name].error_code, ErrorCode.NONE, "error_code of the other name")
    t.until_missing(c, once.name)
    c.equal(t.metadata_of(c, twice.name).topic_id, twice.topic_id, "topic_id in Metadata")


@case(
    "topics.delete.duplicate-id",
    "a topic that is named once by name and once by ID is rejected",
    source="KIP-516",
    needs=DELETE,
    level=Level.APACHE,
    variants={"name-and-id": (True,), "id-and-id": (False,)},
)
def duplicate_id(c: Check, by_name: bool) -> None:
    """Sends: DeleteTopics with an entry of the topic's ID, and a second entry of its name or the same ID.

    Expects: INVALID_REQUEST for it; the topic remains.

    Why: a list with a topic twice is the result of a defect, and a deletion cannot be undone.
    """
    topic = c.topic()
    first = DeleteTopicState(name=topic.name) if by_name else DeleteTopicState(topic_id=topic.topic_id)
    entries = [first, DeleteTopicState(topic_id=topic.topic_id)]
    results = c.call(DeleteTopicsRequest(topics=entries, timeout_ms=t.TIMEOUT_MS), t.DELETE_BY_ID).responses
    c.equal({each.error_code for each in results}, {int(ErrorCode.INVALID_REQUEST)}, "error codes")
    c.equal(t.metadata_of(c, topic.name).topic_id, topic.topic_id, "topic_id in Metadata")


@case(
    "topics.delete.none",
    "a request without topics has an empty response",
    source="Protocol: DeleteTopics",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.DELETE_TOPICS),
)
def no_topics(c: Check, version: int) -> None:
    """Sends: DeleteTopics without topics.

    Expects: a response without topics.

    Why: an empty list must never mean all topics here, as it does in other requests.
    """
    topic = c.topic()
    c.equal(t.delete(c, version=version), [], "responses")
    c.equal(t.metadata_of(c, topic.name).topic_id, topic.topic_id, "topic_id of a topic in Metadata")


@case(
    "topics.delete.timeout",
    "a timeout that has already passed deletes nothing",
    source="Protocol: DeleteTopics",
    needs=DELETE,
    level=Level.APACHE,
    variants={"0": (0,), "minus-1": (-1,)},
)
def timeout(c: Check, timeout_ms: int) -> None:
    """Sends: DeleteTopics with a `timeout_ms` that is not positive.

    Expects: REQUEST_TIMED_OUT for the topic, which remains.

    Why: a deletion cannot be undone, so it must not happen after the client has been informed of a failure.
    """
    topic = c.topic()
    (result,) = t.delete(c, topic.name, timeout_ms=timeout_ms)
    c.error(result.error_code, ErrorCode.REQUEST_TIMED_OUT)
    c.equal(t.metadata_of(c, topic.name).topic_id, topic.topic_id, "topic_id in Metadata")


@case(
    "topics.delete.create-again",
    "a topic that is created again under its name is a different topic",
    source="KIP-516",
    needs=(*DELETE, *needs(ApiKey.METADATA, 12, ApiKey.CREATE_TOPICS, 7)),
)
def create_again(c: Check) -> None:
    """Sends: Produce to a topic with two partitions; DeleteTopics; CreateTopics with the same name and one partition.

    Expects: a different topic ID, one partition with leader epoch 0 and without records; UNKNOWN_TOPIC_ID for the
    first ID in Metadata.

    Why: a client that knows the first topic must not read or write the second one by mistake.
    """
    first = c.topic(2)
    p.append(c, first, batch(b"of the first topic"))
    (deleted,) = t.delete(c, first.name)
    c.error(deleted.error_code, ErrorCode.NONE, "DeleteTopics error_code")
    t.until_missing(c, first.name)
    created = t.create(c, c.led_here(t.creatable(first.name)))[first.name]
    c.error(created.error_code, ErrorCode.NONE, "CreateTopics error_code")
    second = c.topic_ready(first.name)
    c.true(
        second.topic_id not in (first.topic_id, ZERO_UUID),
        "topic_id of the second topic",
        expected="neither zeros nor that of the first topic",
        actual=second.topic_id,
    )
    c.equal([each.leader_epoch for each in t.metadata_of(c, first.name).partitions], [0], "leader epochs")
    c.equal(p.values(c, second), [], "records of the second topic")
    request = MetadataRequest(topics=[MetadataRequestTopic(topic_id=first.topic_id, name=None)])
    (found,) = c.call(request, 12).topics
    c.error(found.error_code, ErrorCode.UNKNOWN_TOPIC_ID, "Metadata error_code of the first topic_id")

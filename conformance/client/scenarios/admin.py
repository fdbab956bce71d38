"""Scenarios of administration: what the client reports as done is done."""

from __future__ import annotations

from ....protocol.api import ApiKey
from ....protocol.errors import ErrorCode
from ...case import Level
from ..adapter import JobError
from ..scenario import scenario
from ..scene import Scene


def _names(*codes: ErrorCode) -> dict[str, tuple[ErrorCode]]:
    return {code.name.lower().replace("_", "-"): (code,) for code in codes}


@scenario("admin.normal", "a broker without faults", source="KIP-4")
def normal(s: Scene) -> None:
    """Broker: has no faults.

    Job: create a topic with 2 partitions, increase them to 4, list the topics, and delete the topic.

    Expects: each job does what it reports.
    """
    s.admin("create_topic", topic="created", partitions=2)
    s.admin("create_partitions", topic="created", total=4)
    s.equal(s.admin("list_topics")["topics"].get("created"), 4, "the partitions of the topic")
    s.admin("delete_topic", topic="created")
    s.equal(s.topics(), [], "the topics that the broker has")


@scenario("admin.delete-records", "records are deleted", source="KIP-107")
def delete_records(s: Scene) -> None:
    """Broker: has no faults.

    Job: delete the records before offset 7 of 20, and consume from there.

    Expects: the client reports 7 as the first offset, and consumes the rest.
    """
    topic = s.topic()
    s.fill(topic, [f"value-{number}" for number in range(20)])
    s.equal(s.admin("delete_records", topic=topic, partition=0, offset=7)["offset"], 7, "the first offset")
    s.equal([each.offset for each in s.consume(topic, start=7)], [*range(7, 20)], "the offsets of the records")


@scenario(
    "admin.retriable",
    "CreateTopics fails at first",
    level=Level.SHOULD,
    source="Protocol: Error Codes",
    variants=_names(ErrorCode.NOT_CONTROLLER, ErrorCode.THROTTLING_QUOTA_EXCEEDED),
)
def retriable(s: Scene, error: ErrorCode) -> None:
    """Broker: responds to the first CreateTopics request with a retriable error.

    Job: create a topic.

    Expects: the client tries again, and the topic exists; or it reports this error.
    """
    fault = s.faults.error(ApiKey.CREATE_TOPICS, error, times=1)
    try:
        s.admin("create_topic", topic="created", partitions=2)
    except JobError as reported:
        s.happened(fault)
        s.equal(reported.code, error.name, "the job's error")
        return
    s.happened(fault)
    s.equal(s.topics(), ["created"], "the topics that the broker has")


@scenario(
    "admin.rejected",
    "an error that no retry repairs",
    source="Protocol: Error Codes",
    variants=_names(ErrorCode.POLICY_VIOLATION, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
)
def rejected(s: Scene, error: ErrorCode) -> None:
    """Broker: responds to all CreateTopics requests with an error that is not retriable.

    Job: create a topic.

    Expects: the client reports this error.
    """
    s.faults.error(ApiKey.CREATE_TOPICS, error)
    s.error_of("the job's error", [error.name], lambda: s.admin("create_topic", topic="created", partitions=2))


@scenario("admin.existing", "a topic exists already", source="KIP-4")
def existing(s: Scene) -> None:
    """Broker: has the topic.

    Job: create the topic.

    Expects: the client reports TOPIC_ALREADY_EXISTS.
    """
    topic = s.topic()
    expected = ["TOPIC_ALREADY_EXISTS"]
    s.error_of("the job's error", expected, lambda: s.admin("create_topic", topic=topic, partitions=1))


@scenario("admin.lost-response", "the response to CreateTopics is lost", source="Protocol: Network")
def lost_response(s: Scene) -> None:
    """Broker: creates the topic, and closes the connection without a response.

    Job: create a topic.

    Expects: the client reports the topic as created, or an error such as TOPIC_ALREADY_EXISTS; it does not hang.
    """
    fault = s.faults.disconnect(ApiKey.CREATE_TOPICS, when="after", times=1)
    try:
        s.admin("create_topic", topic="created", partitions=2)
    except JobError:
        s.happened(fault)
    s.equal(s.topics(), ["created"], "the topics that the broker has")

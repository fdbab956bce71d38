"""Metadata: a new topic is described as CreateTopics has reported it."""

from __future__ import annotations

from typing import Any

from ...protocol.api import ApiKey
from ...protocol.errors import ErrorCode
from ...protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ...protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ..case import case, needs, versions_of
from ..check import Check

_PARTITIONS = 3
_TOPIC_ID = 10


@case(
    "metadata.created-topic",
    "a new topic has the ID and the partitions that CreateTopics reported",
    source="KIP-516",
    needs=needs(ApiKey.CREATE_TOPICS, 7),
    versions=versions_of(ApiKey.METADATA),
)
def created_topic(c: Check, version: int) -> None:
    """Sends: CreateTopics for a topic with three partitions; then Metadata until the topic is known and has leaders.

    Expects: the name, the partitions 0, 1 and 2 once each, each led by a known broker, and not an internal topic; from
    version 10 on the topic ID of CreateTopics.

    Why: a client sends requests with this ID to these leaders; another ID would be that of a deleted topic.
    """
    topic = c.topic_name()
    wanted = CreatableTopic(name=topic, num_partitions=_PARTITIONS, replication_factor=1)
    with c.setup(f"creating the topic {topic}"):
        (created,) = c.call(CreateTopicsRequest(topics=[wanted], timeout_ms=30_000), 7).topics
        c.error(created.error_code, ErrorCode.NONE, "CreateTopics error_code")
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=version < 4)

    def known() -> Any:
        (found,) = c.call(request, version).topics
        has_leaders = found.partitions and all(not each.error_code for each in found.partitions)
        return found if has_leaders and not found.error_code else None

    found = c.until(known, f"the partitions of {topic} and their leaders in Metadata")
    c.equal(found.name, topic, "topics[0].name")
    c.equal(sorted(each.partition_index for each in found.partitions), [0, 1, 2], "partition_index of the partitions")
    strangers = {each.leader_id for each in found.partitions} - set(c.target.brokers)
    c.equal(strangers, set(), "leaders that are not brokers")
    if version >= 1:
        c.equal(found.is_internal, False, "topics[0].is_internal")
    if version >= _TOPIC_ID:
        c.equal(found.topic_id, created.topic_id, "topics[0].topic_id")

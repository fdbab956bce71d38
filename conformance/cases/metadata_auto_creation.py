"""Metadata: topics that are created because a client asks for them."""

from __future__ import annotations

from typing import Any

from ...protocol.api import ApiKey
from ...protocol.errors import ErrorCode
from ...protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ...protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ..case import Level, case, needs, versions_of
from ..check import Check
from ..outcome import NotApplicableError

_BROKER = 4
_SETTING = "auto.create.topics.enable"
_NOT_YET = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE)


def _creates_topics(c: Check) -> bool:
    resource = DescribeConfigsResource(
        resource_type=_BROKER, resource_name=str(c.target.node_id), configuration_keys=[_SETTING]
    )
    (result,) = c.call(DescribeConfigsRequest(resources=[resource])).results
    return any(each.name == _SETTING and each.value == "true" for each in result.configs)


@case(
    "metadata.auto-creation",
    "an unknown topic is created if server and client allow it",
    source="KIP-204 and Protocol: Metadata",
    level=Level.SHOULD,
    needs=needs(ApiKey.DESCRIBE_CONFIGS, 1),
    versions=versions_of(ApiKey.METADATA),
)
def auto_creation(c: Check, version: int) -> None:
    """Sends: Metadata for a topic that does not exist, with allow_auto_topic_creation (from version 4 on), repeatedly.

    Expects: UNKNOWN_TOPIC_OR_PARTITION or LEADER_NOT_AVAILABLE until the topic exists; then its partitions. The case
    does not apply if the server's `auto.create.topics.enable` is not true.

    Why: producers of many applications rely on it; without it they wait until their metadata request times out.
    """
    if not _creates_topics(c):
        raise NotApplicableError(f"{_SETTING} is not true")
    topic = c.topic_name()
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=True)

    def created() -> Any:
        (found,) = c.call(request, version).topics
        c.equal(found.name, topic, "topics[0].name")
        if found.error_code:
            c.error(found.error_code, _NOT_YET, "topics[0].error_code")
            return None
        return found

    found = c.until(created, f"the topic {topic}")
    numbers = sorted(each.partition_index for each in found.partitions)
    c.true(numbers, "topics[0].partitions", expected="at least one", actual=numbers)
    c.equal(numbers, list(range(len(numbers))), "partition_index of the partitions")

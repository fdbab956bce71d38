"""Changes a response to Metadata into what it was at an earlier time, for tests of clients.

A client that has such metadata uses topic IDs, leaders and partitions that changed since. Real clusters have it too: a
broker learns of a change later than the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...metadata.topic_names import INTERNAL_TOPICS
from ...protocol.errors import ErrorCode
from ...protocol.messages.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic
from ...protocol.uuid import ZERO_UUID

if TYPE_CHECKING:
    from ...metadata.image import MetadataImage
    from ...metadata.registrations import TopicImage


def make_stale(response: MetadataResponse, request: Any, image: MetadataImage, only: str | None) -> None:
    """Describe the topics, or `only` one of them, as `image` has them."""
    requested = getattr(request, "topics", None)
    if not requested:
        kept = [each for each in response.topics if only not in (None, each.name)]
        old = [topic for topic in image.topics_by_name.values() if only in (None, topic.name)]
        response.topics = kept + [_described(topic) for topic in old]
        return
    response.topics = [
        each if only not in (None, _name(each, image)) else _stale(each, image) for each in response.topics
    ]


def _name(topic: MetadataResponseTopic, image: MetadataImage) -> str | None:
    found = image.topics_by_id.get(topic.topic_id)
    return topic.name if found is None else found.name


def _stale(topic: MetadataResponseTopic, image: MetadataImage) -> MetadataResponseTopic:
    found = image.topics_by_id.get(topic.topic_id)
    if found is None and topic.name is not None:
        found = image.topics_by_name.get(topic.name)
    if found is not None:
        return _described(found)
    if topic.name is None:
        return MetadataResponseTopic(name=None, topic_id=topic.topic_id, error_code=ErrorCode.UNKNOWN_TOPIC_ID)
    return MetadataResponseTopic(name=topic.name, topic_id=ZERO_UUID, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def _described(topic: TopicImage) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=[
            MetadataResponsePartition(
                partition_index=index,
                leader_id=partition.leader,
                leader_epoch=partition.leader_epoch,
                replica_nodes=list(partition.replicas),
                isr_nodes=list(partition.isr),
            )
            for index, partition in sorted(topic.partitions.items())
        ],
    )

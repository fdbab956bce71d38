"""CreateTopics, DeleteTopics and CreatePartitions (API keys 19, 20, 37): the controller decides.

- CreateTopics 2 to 7, DeleteTopics 1 to 6 (by name, or by id from 6 on), CreatePartitions 0 to 3.
- Here the controller is in the same process: when the answer leaves, the partitions are there, and can be written to.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from ...protocol.errors import KafkaError
from ...protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from ...protocol.messages.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from ...protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...metadata.image import MetadataImage
    from ..broker import Broker
    from ..request import RequestContext
    from ..slices import Sliced

_DELETED_AT_ONCE = 20
"""So many topics are deleted by one change of the metadata, which takes some milliseconds."""


def handle_create_topics(broker: Broker, context: RequestContext, request: CreateTopicsRequest) -> CreateTopicsResponse:
    """Make topics, or only check whether they could be made."""
    return broker.metadata.create_topics(request, now_ms=broker.now_ms())


def failed_create_topics(request: CreateTopicsRequest, error: KafkaError) -> CreateTopicsResponse:
    """The same error for every topic."""
    return CreateTopicsResponse(
        topics=[
            CreatableTopicResult(name=topic.name, error_code=error.code, error_message=error.message)
            for topic in request.topics
        ]
    )


def handle_delete_topics(
    broker: Broker, context: RequestContext, request: DeleteTopicsRequest
) -> Sliced[DeleteTopicsResponse]:
    """Delete topics, some at a time; below version 6 they come as bare names."""
    topics = request.topics
    if context.api_version < 6:
        topics = [DeleteTopicState(name=name) for name in request.topic_names]
    response = DeleteTopicsResponse()
    for some in _some_topics(broker.metadata.image, topics):
        part = DeleteTopicsRequest(topics=some, timeout_ms=request.timeout_ms)
        try:
            answer = broker.metadata.delete_topics(part, now_ms=broker.now_ms())
        except KafkaError as error:
            answer = failed_delete_topics(part, error)
        response.responses += answer.responses
        yield 0
    return response


def _some_topics(image: MetadataImage, topics: list[DeleteTopicState]) -> Iterator[list[DeleteTopicState]]:
    """The topics in several lists. Those that are named twice are refused, so they stay together."""

    def key(topic: DeleteTopicState) -> bytes | str | None:
        found = None if topic.name is None else image.topics_by_name.get(topic.name)
        return found.topic_id if found is not None else topic.name or topic.topic_id

    counts = Counter(map(key, topics))
    together = [topic for topic in topics if counts[key(topic)] > 1]
    if together:
        yield together
    single = [topic for topic in topics if counts[key(topic)] == 1]
    for first in range(0, len(single), _DELETED_AT_ONCE):
        yield single[first : first + _DELETED_AT_ONCE]


def failed_delete_topics(request: DeleteTopicsRequest, error: KafkaError) -> DeleteTopicsResponse:
    """The same error for every topic."""
    topics = [(topic.name, topic.topic_id) for topic in request.topics] + [
        (name, bytes(16)) for name in request.topic_names
    ]
    return DeleteTopicsResponse(
        responses=[
            DeletableTopicResult(name=name, topic_id=topic_id, error_code=error.code, error_message=error.message)
            for name, topic_id in topics
        ]
    )


def handle_create_partitions(
    broker: Broker, context: RequestContext, request: CreatePartitionsRequest
) -> CreatePartitionsResponse:
    """Add partitions to topics."""
    return broker.metadata.create_partitions(request, now_ms=broker.now_ms())


def failed_create_partitions(request: CreatePartitionsRequest, error: KafkaError) -> CreatePartitionsResponse:
    """The same error for every topic."""
    return CreatePartitionsResponse(
        results=[
            CreatePartitionsTopicResult(name=topic.name, error_code=error.code, error_message=error.message)
            for topic in request.topics
        ]
    )

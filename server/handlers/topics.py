"""CreateTopics, DeleteTopics and CreatePartitions (API keys 19, 20, 37): the controller decides.

- CreateTopics 2 to 7, DeleteTopics 1 to 6 (by name, or by id since version 6), CreatePartitions 0 to 3.
- With a controller in the same process, new partitions exist and can be written to when the response is sent.
"""

from __future__ import annotations

from collections import Counter
from itertools import chain
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
from ...protocol.steps import each

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...metadata.image import MetadataImage
    from ..broker import Broker
    from ..concurrency.slices import Sliced
    from ..context import RequestContext

_BY_NAME_OR_ID = 6
"""The version of DeleteTopics since which a topic has a name or an id."""

_DELETIONS_PER_STEP = 10
"""The maximum number of topics that are deleted by one change of the metadata, which takes some milliseconds."""


def handle_create_topics(
    broker: Broker, context: RequestContext, request: CreateTopicsRequest
) -> Sliced[CreateTopicsResponse]:
    """Create topics, or only check whether they could be created."""
    if broker.mutation_quotas is not None:
        broker.mutation_quotas.limit_mutations(context, request)
    deadline_ms = broker.timers.now_ms() + request.timeout_ms
    return broker.controller.request(request, context.api_version, context.origin(deadline_ms))


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
    """Delete topics, some at a time. Below version 6, the request has only names."""
    if broker.mutation_quotas is not None:
        broker.mutation_quotas.limit_mutations(context, request)
    topics = request.topics
    if context.api_version < _BY_NAME_OR_ID:
        topics = [DeleteTopicState(name=name) for name in request.topic_names]
    response = DeleteTopicsResponse()
    origin = context.origin(broker.timers.now_ms() + request.timeout_ms)
    for some in _some_topics(broker.metadata.image, topics):
        part = DeleteTopicsRequest(topics=some, timeout_ms=request.timeout_ms)
        try:
            answer = yield from broker.controller.request(part, _BY_NAME_OR_ID, origin)
        except KafkaError as error:
            answer = yield from failed_delete_topics(part, error)
        response.responses += answer.responses
        yield 0
    return response


def _some_topics(image: MetadataImage, topics: list[DeleteTopicState]) -> Iterator[list[DeleteTopicState]]:
    """The topics in several lists. Topics that are named twice are rejected, so they stay together."""

    def key(topic: DeleteTopicState) -> bytes | str | None:
        found = None if topic.name is None else image.topics_by_name.get(topic.name)
        return found.topic_id if found is not None else topic.name or topic.topic_id

    counts = Counter(map(key, topics))
    together = [topic for topic in topics if counts[key(topic)] > 1]
    if together:
        yield together
    single = [topic for topic in topics if counts[key(topic)] == 1]
    for first in range(0, len(single), _DELETIONS_PER_STEP):
        yield single[first : first + _DELETIONS_PER_STEP]


def failed_delete_topics(request: DeleteTopicsRequest, error: KafkaError) -> Sliced[DeleteTopicsResponse]:
    """The same error for every topic."""

    def refused(topic: DeleteTopicState) -> DeletableTopicResult:
        return DeletableTopicResult(
            name=topic.name, topic_id=topic.topic_id, error_code=error.code, error_message=error.message
        )

    by_name = (DeleteTopicState(name=name) for name in request.topic_names)
    return DeleteTopicsResponse(responses=(yield from each(refused, chain(request.topics, by_name))))


def handle_create_partitions(
    broker: Broker, context: RequestContext, request: CreatePartitionsRequest
) -> Sliced[CreatePartitionsResponse]:
    """Add partitions to topics."""
    if broker.mutation_quotas is not None:
        broker.mutation_quotas.limit_mutations(context, request)
    deadline_ms = broker.timers.now_ms() + request.timeout_ms
    return broker.controller.request(request, context.api_version, context.origin(deadline_ms))


def failed_create_partitions(request: CreatePartitionsRequest, error: KafkaError) -> CreatePartitionsResponse:
    """The same error for every topic."""
    return CreatePartitionsResponse(
        results=[
            CreatePartitionsTopicResult(name=topic.name, error_code=error.code, error_message=error.message)
            for topic in request.topics
        ]
    )

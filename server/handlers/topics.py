"""CreateTopics, DeleteTopics and CreatePartitions (API keys 19, 20, 37): the controller decides.

- CreateTopics 2 to 7, DeleteTopics 1 to 6 (by name, or by id from 6 on), CreatePartitions 0 to 3.
- Here the controller is in the same process: when the answer leaves, the partitions are there, and can be written to.
"""

from __future__ import annotations

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
    from ..broker import Broker
    from ..request import RequestContext


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


def handle_delete_topics(broker: Broker, context: RequestContext, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    """Delete topics; below version 6 they come as bare names."""
    if context.api_version < 6:
        request = DeleteTopicsRequest(
            topics=[DeleteTopicState(name=name) for name in request.topic_names], timeout_ms=request.timeout_ms
        )
    return broker.metadata.delete_topics(request, now_ms=broker.now_ms())


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

"""What an interrupted run may leave: topics and groups that were created while their cases ended."""

from __future__ import annotations

import contextlib
import time

from ..protocol.api import ApiKey
from ..protocol.errors import KafkaError, MalformedMessage
from ..protocol.messages.delete_groups import DeleteGroupsRequest
from ..protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ..protocol.messages.list_groups import ListGroupsRequest
from ..protocol.messages.metadata import MetadataRequest
from .exchange import Connection, Recorder
from .target import RESPONSE_SECONDS, Target

_TIMEOUT_MS = 10_000


def remove(target: Target, prefix: str) -> None:
    """Delete the topics and groups whose names begin with `prefix`. Failures are ignored."""
    deadline = time.monotonic() + RESPONSE_SECONDS * target.patience
    with (
        contextlib.suppress(OSError, KafkaError, MalformedMessage),
        target.connect(Recorder(), lambda: max(deadline - time.monotonic(), 0.01)) as connection,
    ):
        _remove_groups(target, prefix, connection)
        _remove_topics(target, prefix, connection)


def _remove_groups(target: Target, prefix: str, connection: Connection) -> None:
    listing, deleting = target.highest_version(ApiKey.LIST_GROUPS), target.highest_version(ApiKey.DELETE_GROUPS)
    if listing is None or deleting is None:
        return
    found = connection.call(ListGroupsRequest(), listing).groups
    groups = [group.group_id for group in found if group.group_id.startswith(prefix)]
    if groups:
        connection.call(DeleteGroupsRequest(groups_names=groups), deleting)


def _remove_topics(target: Target, prefix: str, connection: Connection) -> None:
    listing, deleting = target.highest_version(ApiKey.METADATA), target.highest_version(ApiKey.DELETE_TOPICS)
    if listing is None or deleting is None:
        return
    found = connection.call(MetadataRequest(topics=None if listing else []), listing).topics
    topics = [topic.name for topic in found if topic.name is not None and topic.name.startswith(prefix)]
    if topics:
        request = DeleteTopicsRequest(timeout_ms=_TIMEOUT_MS)
        if deleting >= 6:
            request.topics = [DeleteTopicState(name=topic) for topic in topics]
        else:
            request.topic_names = topics
        connection.call(request, deleting)

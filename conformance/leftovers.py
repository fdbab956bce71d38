"""What a run may leave: topics and groups of cases that were interrupted, or that ended before a response."""

from __future__ import annotations

import time
from typing import Final

from ..protocol.api import ApiKey
from ..protocol.errors import ErrorCode, KafkaError, MalformedMessage
from ..protocol.messages.delete_groups import DeleteGroupsRequest
from ..protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ..protocol.messages.list_groups import ListGroupsRequest
from ..protocol.messages.metadata import MetadataRequest
from .exchange import Connection, Recorder
from .target import RESPONSE_SECONDS, Target

_TIMEOUT_MS: Final = 10_000
_DELETED: Final = frozenset(
    {ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.REQUEST_TIMED_OUT}
)
"""REQUEST_TIMED_OUT: the topic is deleted later."""


def remove(target: Target, prefix: str) -> bool:
    """Delete the topics and groups whose names begin with `prefix`. False if the server does not do that."""
    deadline = time.monotonic() + RESPONSE_SECONDS * target.patience

    def remaining() -> float:
        return max(deadline - time.monotonic(), 0.01)

    try:
        with target.connect(Recorder(), remaining) as connection:
            connection.extra_bytes = lambda: True
            removed = [_remove_groups(target, prefix, connection)]
            for address in target.other_brokers():  # each broker has the groups that it coordinates
                with target.connect(Recorder(), remaining, address=address) as other:
                    other.extra_bytes = lambda: True
                    removed.append(_remove_groups(target, prefix, other))
            return _remove_topics(target, prefix, connection) and all(removed)
    except (OSError, KafkaError, MalformedMessage):
        return False


def _remove_groups(target: Target, prefix: str, connection: Connection) -> bool:
    listing, deleting = target.highest_version(ApiKey.LIST_GROUPS), target.highest_version(ApiKey.DELETE_GROUPS)
    if listing is None or deleting is None:
        return True  # cases that create groups have no way to delete them
    found = connection.call(ListGroupsRequest(), listing).groups
    groups = [group.group_id for group in found if group.group_id.startswith(prefix)]
    if not groups:
        return True
    deleted = connection.call(DeleteGroupsRequest(groups_names=groups), deleting).results
    return all(each.error_code in _DELETED for each in deleted)


def _remove_topics(target: Target, prefix: str, connection: Connection) -> bool:
    listing, deleting = target.highest_version(ApiKey.METADATA), target.highest_version(ApiKey.DELETE_TOPICS)
    if listing is None or deleting is None:
        return True
    found = connection.call(MetadataRequest(topics=None if listing else []), listing).topics
    topics = [topic.name for topic in found if topic.name is not None and topic.name.startswith(prefix)]
    if not topics:
        return True
    request = DeleteTopicsRequest(timeout_ms=_TIMEOUT_MS)
    if deleting >= 6:
        request.topics = [DeleteTopicState(name=topic) for topic in topics]
    else:
        request.topic_names = topics
    deleted = connection.call(request, deleting).responses
    return all(each.error_code in _DELETED for each in deleted)

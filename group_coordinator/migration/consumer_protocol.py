"""The messages between members of the classic protocol in groups of consumers: subscriptions and assignments.

The coordinator of a classic group forwards these bytes without parsing. If members of both protocols are in one group,
it translates between them, so it must parse and write them. They begin with their version:

    version    int16
    message    ConsumerProtocolSubscription or ConsumerProtocolAssignment

An unknown newer version is parsed as the newest known one: new fields are only added at the end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from ...protocol.codec import decode_at, encode
from ...protocol.errors import MalformedMessage
from ...protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    ResponseTopicPartition,
)
from ...protocol.schema import Message

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ..consumer.member import Assignment
    from ..states import Topics

M = TypeVar("M", bound=Message)


def read_subscription(data: bytes) -> ConsumerProtocolSubscription:
    """The subscription of a member, with its owned partitions.

    Raises:
        MalformedMessage: the bytes are not a subscription.
    """
    return _read(ConsumerProtocolSubscription, data)


def read_assignment(data: bytes) -> ConsumerProtocolAssignment:
    """The assignment that a leader computed for a member.

    Raises:
        MalformedMessage: the bytes are not an assignment.
    """
    return _read(ConsumerProtocolAssignment, data)


def write_assignment(topics: Topics, assignment: Mapping[bytes, Iterable[int]], subscription: bytes) -> bytes:
    """An assignment in the version of the client's subscription. Deleted topics are omitted."""
    message = ConsumerProtocolAssignment(
        assigned_partitions=[
            ResponseTopicPartition(topic=name, partitions=sorted(partitions))
            for topic_id, partitions in assignment.items()
            if (name := topics.name_of(topic_id)) is not None
        ]
    )
    # A client may have sent any number; no version is older than 0.
    version = min(max(_version(subscription), 0), ConsumerProtocolAssignment.VERSIONS.highest)
    return version.to_bytes(2, "big") + encode(message, version)


def with_topic_ids(topics: Topics, partitions_by_name: Iterable[tuple[str, Iterable[int]]]) -> Assignment:
    """Partitions by topic ID. Deleted topics are omitted."""
    by_id: dict[bytes, set[int]] = {}
    for name, partitions in partitions_by_name:
        topic_id = topics.id_of(name)
        if topic_id is not None:
            by_id.setdefault(topic_id, set()).update(partitions)
    return {topic_id: frozenset(partitions) for topic_id, partitions in by_id.items() if partitions}


def _read(cls: type[M], data: bytes) -> M:
    version = _version(data)
    if version < 0:
        raise MalformedMessage(f"{cls.__name__} has no version", 0)
    message, _ = decode_at(cls, data, min(version, cls.VERSIONS.highest), 2)
    return message


def _version(data: bytes) -> int:
    """The version in the first two bytes; -1 if they are missing."""
    return int.from_bytes(data[:2], "big", signed=True) if len(data) >= 2 else -1

"""What members of the classic protocol say to each other in groups of consumers: subscriptions and assignments.

The coordinator of a classic group hands these bytes on without looking. When members of both protocols are in one
group it speaks for each to the other, so it has to read and to write them. They begin with their version:

    version    int16
    message    ConsumerProtocolSubscription or ConsumerProtocolAssignment

One of a version that is not known yet is read as the newest that is: fields are only ever added at the end.
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
    """What a member subscribes to and owns.

    Raises:
        MalformedMessage: this is something else.
    """
    return _read(ConsumerProtocolSubscription, data)


def read_assignment(data: bytes) -> ConsumerProtocolAssignment:
    """What a member was assigned by its leader.

    Raises:
        MalformedMessage: this is something else.
    """
    return _read(ConsumerProtocolAssignment, data)


def write_assignment(topics: Topics, assignment: Mapping[bytes, Iterable[int]], subscription: bytes) -> bytes:
    """An assignment in the version that the client subscribes in. Topics that are gone are left out."""
    message = ConsumerProtocolAssignment(
        assigned_partitions=[
            ResponseTopicPartition(topic=name, partitions=sorted(partitions))
            for topic_id, partitions in assignment.items()
            if (name := topics.name_of(topic_id)) is not None
        ]
    )
    # Whatever a client may have sent: no version is older than 0.
    version = min(max(_version(subscription), 0), ConsumerProtocolAssignment.VERSIONS.highest)
    return version.to_bytes(2, "big") + encode(message, version)


def with_topic_ids(topics: Topics, partitions_by_name: Iterable[tuple[str, Iterable[int]]]) -> Assignment:
    """Partitions by topic id. Topics that are gone are left out."""
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
    """What the first two bytes say; -1 when they are not there."""
    return int.from_bytes(data[:2], "big", signed=True) if len(data) >= 2 else -1

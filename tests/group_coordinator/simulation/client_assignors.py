"""The client-side assignors that the leader of a classic group runs, and the encoding of their input and output.

There are two: ``range``, which assigns a contiguous range of each topic to each member, and ``cooperative-sticky``,
which preserves the assignment, and assigns no partition in the generation in which another member revokes it (KIP-429).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from moldau.protocol.codec import decode_at, encode
from moldau.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    ResponseTopicPartition,
    TopicPartition,
)

RANGE = "range"
COOPERATIVE = "cooperative-sticky"

Partition = tuple[str, int]


class Subscription(NamedTuple):
    topics: frozenset[str]
    owned: frozenset[Partition]
    generation: int


def subscription_bytes(subscription: Subscription, version: int) -> bytes:
    message = ConsumerProtocolSubscription(
        topics=sorted(subscription.topics),
        owned_partitions=[
            TopicPartition(topic=topic, partitions=indexes) for topic, indexes in _by_topic(subscription.owned)
        ],
        generation_id=subscription.generation,
    )
    return struct.pack(">h", version) + encode(message, version)


def subscription_of(data: bytes) -> Subscription:
    version = min(struct.unpack_from(">h", data)[0], 3)
    message, _ = decode_at(ConsumerProtocolSubscription, data, version, 2)
    owned = frozenset((topic.topic, index) for topic in message.owned_partitions for index in topic.partitions)
    return Subscription(frozenset(message.topics), owned, message.generation_id)


def assignment_bytes(partitions: Iterable[Partition]) -> bytes:
    message = ConsumerProtocolAssignment(
        assigned_partitions=[
            ResponseTopicPartition(topic=topic, partitions=indexes) for topic, indexes in _by_topic(partitions)
        ]
    )
    return struct.pack(">h", 1) + encode(message, 1)


def assignment_of(data: bytes) -> frozenset[Partition]:
    """Empty data is an empty assignment."""
    if not data:
        return frozenset()
    version = min(struct.unpack_from(">h", data)[0], 3)
    message, _ = decode_at(ConsumerProtocolAssignment, data, version, 2)
    return frozenset((topic.topic, index) for topic in message.assigned_partitions for index in topic.partitions)


def assign(
    protocol: str, members: Mapping[str, Subscription], partition_counts: Mapping[str, int]
) -> dict[str, set[Partition]]:
    """Partitions by member."""
    return (_assign_sticky if protocol == COOPERATIVE else _assign_range)(members, partition_counts)


def _assign_range(
    members: Mapping[str, Subscription], partition_counts: Mapping[str, int]
) -> dict[str, set[Partition]]:
    assigned: dict[str, set[Partition]] = {member: set() for member in members}
    for topic, count in sorted(partition_counts.items()):
        readers = sorted(member for member, subscription in members.items() if topic in subscription.topics)
        for index in range(count if readers else 0):
            assigned[readers[index * len(readers) // count]].add((topic, index))
    return assigned


def _assign_sticky(
    members: Mapping[str, Subscription], partition_counts: Mapping[str, int]
) -> dict[str, set[Partition]]:
    partitions = [(topic, index) for topic, count in sorted(partition_counts.items()) for index in range(count)]
    owners = _owners(members)
    quota = -(-len(partitions) // max(len(members), 1))
    assigned: dict[str, set[Partition]] = {member: set() for member in members}
    unassigned = []
    for partition in partitions:
        owner = owners.get(partition)
        if owner is not None and partition[0] in members[owner].topics and len(assigned[owner]) < quota:
            assigned[owner].add(partition)
        else:
            unassigned.append(partition)
    given = []
    for partition in unassigned:
        readers = [member for member in sorted(members) if partition[0] in members[member].topics]
        if readers:
            reader = min(readers, key=lambda member: len(assigned[member]))
            assigned[reader].add(partition)
            given.append((partition, reader))
    for partition, reader in given:
        if owners.get(partition, reader) != reader:
            assigned[reader].remove(partition)  # until its owner has revoked it
    return assigned


def _owners(members: Mapping[str, Subscription]) -> dict[Partition, str]:
    """The owner of each partition. If two members claim one, the claim of the later generation counts."""
    owners: dict[Partition, str] = {}
    for member, subscription in sorted(members.items(), key=lambda item: (item[1].generation, item[0])):
        owners.update(dict.fromkeys(subscription.owned, member))
    return owners


def _by_topic(partitions: Iterable[Partition]) -> list[tuple[str, list[int]]]:
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        topics.setdefault(topic, []).append(index)
    return list(topics.items())

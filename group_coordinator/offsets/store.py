"""The committed offsets of a shard: group -> topic -> partition -> offset, and the pending ones of open transactions.

A shard may have millions of them, so an offset is one `bytes` value. It takes 80 bytes of memory and is not tracked by
the garbage collector; it is converted to a `CommittedOffset` on access. Topic names are shared by all groups.

An offset that a transaction commits (TxnOffsetCommit) is *pending* until the transaction ends. Then it is applied,
unless a later record in the log has set another offset for the partition: of two records the later one wins, whenever
their transactions end. A deletion also deletes pending offsets.

An index by topic contains the groups with offsets of the topic, so that the deletion of a topic visits only these.

This only stores what `replay` puts here; it has no rules about commits and expiration.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from ...protocol.uuid import ZERO_UUID

# offset, commit timestamp, expire timestamp, leader epoch, topic id; the metadata follows.
_PACKED: Final = struct.Struct("=qqqi16s")


class CommittedOffset(NamedTuple):
    """The offset that a group has committed for a partition."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    commit_timestamp_ms: int = -1
    expire_timestamp_ms: int = -1
    """The expiration time that an old client has set; -1 otherwise."""
    topic_id: bytes = ZERO_UUID
    """The ID of its topic; zero in records of Apache Kafka before 4.1, and in those of its transactions."""

    def is_of_another_topic(self, present_id: bytes | None) -> bool:
        """Whether it was committed for another topic than the current one with the same name, if there is one.

        The deletion of a topic deletes its offsets, but not while the shard is loading, nor if the log rejects it, nor
        if the server is killed before. A new topic with the same name must not be read from an old offset.
        """
        return self.topic_id not in (ZERO_UUID, present_id)

    def packed(self) -> bytes:
        """The form of `pack_offset`."""
        return pack_offset(*self)


def pack_offset(
    offset: int, leader_epoch: int, metadata: str, commit_timestamp_ms: int, expire_timestamp_ms: int, topic_id: bytes
) -> bytes:
    """The fields of a `CommittedOffset` in the form of the store."""
    packed = _PACKED.pack(offset, commit_timestamp_ms, expire_timestamp_ms, leader_epoch, topic_id)
    return packed + metadata.encode() if metadata else packed


class _Pending:
    """A pending offset. An overtaken one will not be applied, but is still pending."""

    __slots__ = ("packed", "sequence", "superseded")

    def __init__(self, packed: bytes, sequence: int) -> None:
        self.packed = packed
        self.sequence = sequence
        self.superseded = False


_PartitionKey = tuple[str, str, int]  # group, topic, partition


class OffsetStore:
    """Offsets of all groups. All methods accept names of groups and topics that do not exist."""

    __slots__ = (
        "_by_group",
        "_count",
        "_counts",
        "_groups_by_topic",
        "_pending_by_group",
        "_pending_by_producer",
        "_sequence",
    )

    def __init__(self) -> None:
        self._by_group: dict[str, dict[str, dict[int, bytes]]] = {}
        self._groups_by_topic: dict[str, dict[str, int]] = {}  # offsets of the group, with pending ones
        self._counts: dict[str, int] = {}
        self._count = 0
        # The same `_Pending` objects by producer, and by group, topic and partition.
        self._pending_by_producer: dict[int, dict[_PartitionKey, _Pending]] = {}
        self._pending_by_group: dict[str, dict[tuple[str, int], dict[int, _Pending]]] = {}
        self._sequence = 0

    def __len__(self) -> int:
        """The number of committed offsets, without pending ones."""
        return self._count

    # -- committed offsets ---------------------------------------------------------------------------------------------

    def put(self, group_id: str, topic: str, partition: int, packed: bytes) -> None:
        """Set the committed offset, in the form of `pack_offset`."""
        partitions = self._by_group.get(group_id, _NO_TOPICS).get(topic)
        if partitions is not None and partition in partitions:
            partitions[partition] = packed
        else:
            self._put(group_id, topic, partition, packed)
        if self._pending_by_group and group_id in self._pending_by_group:
            for pending in self._pending_by_group[group_id].get((topic, partition), {}).values():
                pending.superseded = True

    def _put(self, group_id: str, topic: str, partition: int, packed: bytes) -> None:
        topics = self._by_group.get(group_id)
        if topics is None:
            topics = self._by_group[group_id] = {}
            self._counts[group_id] = 0
        partitions = topics.get(topic)
        if partitions is None:
            partitions = topics[sys.intern(topic)] = {}
        if partition not in partitions:
            self._counts[group_id] += 1
            self._count += 1
            self._note(group_id, topic)
        partitions[partition] = packed

    def _note(self, group_id: str, topic: str) -> None:
        groups = self._groups_by_topic.get(topic)
        if groups is None:
            groups = self._groups_by_topic[sys.intern(topic)] = {}
        groups[group_id] = groups.get(group_id, 0) + 1

    def _forget(self, group_id: str, topic: str) -> None:
        groups = self._groups_by_topic[topic]
        groups[group_id] -= 1
        if not groups[group_id]:
            del groups[group_id]
            if not groups:
                del self._groups_by_topic[topic]

    def get(self, group_id: str, topic: str, partition: int) -> CommittedOffset | None:
        """The committed offset of the partition."""
        packed = self._by_group.get(group_id, _NO_TOPICS).get(topic, _NO_PARTITIONS).get(partition)
        return None if packed is None else _unpack(packed)

    def has(self, group_id: str, topic: str, partition: int) -> bool:
        """Whether the partition has a committed offset."""
        return partition in self._by_group.get(group_id, _NO_TOPICS).get(topic, _NO_PARTITIONS)

    def remove(self, group_id: str, topic: str, partition: int) -> None:
        """Remove the committed offset of the partition, and pending ones."""
        topics = self._by_group.get(group_id)
        if topics is not None:
            partitions = topics.get(topic)
            if partitions is not None and partitions.pop(partition, None) is not None:
                self._count -= 1
                self._counts[group_id] -= 1
                self._forget(group_id, topic)
                if not partitions:
                    del topics[topic]
                if not topics:
                    del self._by_group[group_id], self._counts[group_id]
        if group_id in self._pending_by_group:
            for producer_id in list(self._pending_by_group[group_id].get((topic, partition), ())):
                del self._pending_by_producer[producer_id][group_id, topic, partition]
                self._forget_pending(group_id, topic, partition, producer_id)

    def count(self, group_id: str) -> int:
        """The number of offsets that the group has committed."""
        return self._counts.get(group_id, 0)

    def topics(self, group_id: str) -> list[str]:
        """The topics that the group has committed offsets for."""
        return list(self._by_group.get(group_id, _NO_TOPICS))

    def has_topic(self, topic: str) -> bool:
        """Whether any group has offsets of the topic, committed or pending."""
        return topic in self._groups_by_topic

    def groups(self, topic: str) -> list[str]:
        """The groups that have offsets of the topic, committed or pending."""
        return list(self._groups_by_topic.get(topic, ()))

    def indexes(self, group_id: str, topic: str) -> list[int]:
        """The partitions of the topic that the group has committed offsets for."""
        return list(self._by_group.get(group_id, _NO_TOPICS).get(topic, _NO_PARTITIONS))

    def partitions(self, group_id: str, topic: str) -> Iterator[tuple[int, CommittedOffset]]:
        """The group's offsets of one topic, which must not change during the iteration."""
        for partition, packed in self._by_group.get(group_id, _NO_TOPICS).get(topic, _NO_PARTITIONS).items():
            yield partition, _unpack(packed)

    # -- pending offsets -----------------------------------------------------------------------------------------------

    def put_pending(self, producer_id: int, group_id: str, topic: str, partition: int, packed: bytes) -> None:
        """Commit as part of the open transaction of this producer."""
        self._sequence += 1
        pending = _Pending(packed, self._sequence)
        if (group_id, topic, partition) not in self._pending_by_producer.get(producer_id, ()):
            self._note(group_id, topic)
        self._pending_by_producer.setdefault(producer_id, {})[group_id, topic, partition] = pending
        of_group = self._pending_by_group.setdefault(group_id, {})
        of_group.setdefault((topic, partition), {})[producer_id] = pending

    def is_pending(self, group_id: str, topic: str, partition: int) -> bool:
        """Whether an open transaction has committed an offset of the partition."""
        return group_id in self._pending_by_group and (topic, partition) in self._pending_by_group[group_id]

    def has_pending(self, group_id: str) -> bool:
        """Whether open transactions have committed offsets of the group."""
        return group_id in self._pending_by_group

    def pending(self, group_id: str) -> list[tuple[str, int]]:
        """The topics and partitions of the group for which open transactions have committed offsets."""
        return list(self._pending_by_group.get(group_id, ()))

    def pending_of_topic(self, group_id: str, topic: str) -> list[tuple[int, CommittedOffset]]:
        """The offsets of open transactions for one topic; a partition may occur several times."""
        return [
            (partition, _unpack(pending.packed))
            for (name, partition), by_producer in self._pending_by_group.get(group_id, {}).items()
            if name == topic
            for pending in by_producer.values()
        ]

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """The producer's open transaction has ended."""
        for (group_id, topic, partition), ended in self._pending_by_producer.pop(producer_id, {}).items():
            self._forget_pending(group_id, topic, partition, producer_id)
            if not committed or ended.superseded:
                continue
            self._put(group_id, topic, partition, ended.packed)
            for other in self._pending_by_group.get(group_id, {}).get((topic, partition), {}).values():
                if other.sequence < ended.sequence:
                    other.superseded = True

    def _forget_pending(self, group_id: str, topic: str, partition: int, producer_id: int) -> None:
        of_group = self._pending_by_group[group_id]
        of_partition = of_group[topic, partition]
        del of_partition[producer_id]
        self._forget(group_id, topic)
        if not of_partition:
            del of_group[topic, partition]
        if not of_group:
            del self._pending_by_group[group_id]


_NO_TOPICS: Mapping[str, dict[int, bytes]] = {}
_NO_PARTITIONS: Mapping[int, bytes] = {}


def _unpack(packed: bytes) -> CommittedOffset:
    offset, commit_timestamp_ms, expire_timestamp_ms, leader_epoch, topic_id = _PACKED.unpack_from(packed)
    metadata = packed[_PACKED.size :].decode() if len(packed) > _PACKED.size else ""
    return CommittedOffset(offset, leader_epoch, metadata, commit_timestamp_ms, expire_timestamp_ms, topic_id)

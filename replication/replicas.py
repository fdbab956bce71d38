"""The partitions with replicas on this broker, by topic name and by topic id."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ..protocol.errors import ErrorCode
from .partition import Partition
from .traffic import Traffic

TopicKey = bytes | str  # the topic id, or the name


class Replicas:
    """Partitions by topic and index. Partitions whose log directory failed are included, and reject requests."""

    def __init__(self, exists: Callable[[TopicKey, int], bool]) -> None:
        """``exists`` returns whether the cluster has a partition, on any broker."""
        self._exists = exists
        # One inner dictionary per topic, under its name and under its id.
        self._topics: dict[TopicKey, dict[int, Partition]] = {}
        self._offline: set[tuple[TopicKey, int]] = set()
        self.traffic: dict[bytes, Traffic] = {}
        """The counters of each topic, by topic id."""
        self.removed_traffic = Traffic()
        """The sums of the counters of topics that this broker no longer has."""

    def add(self, partition: Partition) -> None:
        """Serve this partition from now on."""
        partitions = self._topics.get(partition.topic_id)
        if partitions is None:
            partitions = self._topics[partition.topic_id] = {}
            self._topics[partition.topic] = partitions
        partitions[partition.index] = partition
        traffic = self.traffic.get(partition.topic_id)
        if traffic is None:
            traffic = self.traffic[partition.topic_id] = Traffic()
        partition.traffic = traffic
        if self._offline:
            self._offline.discard((partition.topic, partition.index))
            self._offline.discard((partition.topic_id, partition.index))

    def add_offline(self, topic: str, topic_id: bytes, index: int) -> None:
        """Add a partition whose log could not be opened."""
        self._topics.setdefault(topic, self._topics.setdefault(topic_id, {}))
        self._offline.add((topic, index))
        self._offline.add((topic_id, index))

    def remove(self, topic: str, topic_id: bytes, index: int) -> Partition | None:
        """Stop serving the partition. Returns it; the caller must close it."""
        self._offline.discard((topic, index))
        self._offline.discard((topic_id, index))
        partitions = self._topics.get(topic_id)
        if partitions is None:
            return None
        partition = partitions.pop(index, None)
        if not partitions and not any(key == topic_id for key, _ in self._offline):
            del self._topics[topic_id]
            traffic = self.traffic.pop(topic_id, None)
            if traffic is not None:
                self.removed_traffic.add(traffic)
            # Another topic with the same name may have been created in the meantime.
            if self._topics.get(topic) is partitions:
                del self._topics[topic]
        return partition

    def partition_by_key(self, topic: TopicKey, index: int) -> Partition | None:
        """The partition, or None: `missing_partition_error` returns the reason."""
        partitions = self._topics.get(topic)
        return None if partitions is None else partitions.get(index)

    def missing_partition_error(self, topic: TopicKey, index: int) -> ErrorCode:
        """The error for a partition that `partition_by_key` does not have."""
        if (topic, index) in self._offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if self._exists(topic, index):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if isinstance(topic, bytes) and topic not in self._topics:
            return ErrorCode.UNKNOWN_TOPIC_ID
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def high_watermarks(self) -> dict[tuple[str, int], int]:
        """The high watermark of each partition, for the checkpoint."""
        return {(partition.topic, partition.index): partition.high_watermark for partition in self}

    def last_stable_offset(self, topic: str, index: int) -> int | None:
        """The last stable offset of a partition; None if the partition is missing."""
        partition = self.partition_by_key(topic, index)
        return None if partition is None else partition.last_stable_offset

    @property
    def offline_count(self) -> int:
        """The number of partitions whose logs could not be opened."""
        return len(self._offline) // 2  # by name and by id

    def topics(self) -> list[dict[int, Partition]]:
        """The partitions of each topic. Another thread may call this."""
        return [partitions for key, partitions in self._topics.copy().items() if isinstance(key, bytes)]

    def __iter__(self) -> Iterator[Partition]:
        for key, partitions in self._topics.items():
            if isinstance(key, bytes):
                yield from partitions.values()

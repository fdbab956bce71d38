"""The topics of the simulated cluster: created, extended and deleted while groups read them."""

from __future__ import annotations

from collections.abc import Set

from moldau.group_coordinator.consumer.regexes import compiled


class TopicTable:
    """See `group_coordinator.states.Topics`."""

    def __init__(self) -> None:
        self.version = 0
        self._ids: dict[str, bytes] = {}
        self._names: dict[bytes, str] = {}
        self._counts: dict[str, int] = {}
        self._created = 0

    def id_of(self, name: str) -> bytes | None:
        return self._ids.get(name)

    def name_of(self, topic_id: bytes) -> str | None:
        return self._names.get(topic_id)

    def partition_count(self, name: str) -> int:
        return self._counts.get(name, 0)

    def names(self) -> Set[str]:
        return self._ids.keys()

    def matching(self, regex: str) -> frozenset[str]:
        return compiled(regex).matching(self.names())

    def ids(self) -> dict[str, bytes]:
        """By name."""
        return dict(self._ids)

    def create(self, name: str, partitions: int) -> None:
        """A topic of this name gets another id each time."""
        assert name not in self._ids
        self._created += 1
        topic_id = self._created.to_bytes(16, "big")
        self._ids[name] = topic_id
        self._names[topic_id] = name
        self._counts[name] = partitions
        self.version += 1

    def grow(self, name: str) -> None:
        self._counts[name] += 1
        self.version += 1

    def delete(self, name: str) -> None:
        del self._names[self._ids.pop(name)]
        del self._counts[name]
        self.version += 1

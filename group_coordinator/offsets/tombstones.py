"""Records that delete offsets, as many as go together.

A group may have more offsets than one batch can delete, and more than one turn of the loop should. So whatever deletes
offsets takes a slice of them, and goes on `PAUSE_MS` later with those that are left: what was deleted is gone from the
store by then.
"""

from __future__ import annotations

from typing import Final

from ...coordinator.outcome import Record
from ..records import OffsetCommitKey

PAUSE_MS: Final = 5
"""Between two slices, for everybody else."""

RETRY_MS: Final = 1000
"""After a slice that the log has refused: what refuses one, as a full disk, refuses the next as well."""

SLICE: Final = 250
"""So many offsets take about a millisecond."""

_SLICE_BYTES: Final = 64 * 1024
"""Of keys: a group's name may have 32 kB, a batch of the offsets topic 1 MB unless it was set lower."""


class Tombstones:
    """Those of one group in one slice."""

    __slots__ = ("_bytes_left", "_bytes_of_group", "group_id", "records")

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.records: list[Record] = []
        self._bytes_of_group = len(group_id.encode())
        self._bytes_left = _SLICE_BYTES

    def add(self, topic: str, partition: int) -> None:
        """Delete what the group has committed for the partition, also what is pending."""
        self.records.append(Record(OffsetCommitKey(group=self.group_id, topic=topic, partition=partition), None))
        self._bytes_left -= self._bytes_of_group + len(topic) + 10

    @property
    def full(self) -> bool:
        """Whether the rest has to wait for the next slice."""
        return len(self.records) >= SLICE or self._bytes_left <= 0

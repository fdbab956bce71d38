"""Records that delete offsets, in slices.

A group may have more offsets than one batch can delete, and more than one iteration of the event loop should delete. So
each deletion takes a slice of them and continues `PAUSE_MS` later with the rest: by then, the store no longer contains
the deleted ones.
"""

from __future__ import annotations

from typing import Final

from ...coordinator.outcome import Record
from ..records import OffsetCommitKey

PAUSE_MS: Final = 5
"""Between two slices, so that other requests are served."""

RETRY_MS: Final = 1000
"""After the log has rejected a slice: the reason, such as a full disk, probably persists."""

SLICE: Final = 250
"""The number of offsets in a slice, which take about a millisecond."""

_SLICE_BYTES: Final = 64 * 1024
"""The size of the keys: a group ID may have 32 kB, a batch of the offsets topic 1 MB unless it was set lower."""


class Tombstones:
    """The tombstones of one group in one slice."""

    __slots__ = ("_bytes_left", "_bytes_of_group", "group_id", "records")

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.records: list[Record] = []
        self._bytes_of_group = len(group_id.encode())
        self._bytes_left = _SLICE_BYTES

    def add(self, topic: str, partition: int) -> None:
        """Delete the group's offset of the partition, and pending ones."""
        self.records.append(Record(OffsetCommitKey(group=self.group_id, topic=topic, partition=partition), None))
        self._bytes_left -= self._bytes_of_group + len(topic) + 10

    @property
    def full(self) -> bool:
        """Whether the rest must wait for the next slice."""
        return len(self.records) >= SLICE or self._bytes_left <= 0

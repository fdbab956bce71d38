"""Entries of an index beside the batches that they stand for.

Each check is fed the batches of a segment in order and keeps its place in the index, so that one reading of the log
serves all of them. An index is wrong as a whole: the first wrong entry is told, and how many there are.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...protocol.records import RecordBatch
from ..index import OffsetIndex, TimeIndex

_NEVER = 1 << 63


class OffsetIndexCheck:
    """`.index`: each entry is the last offset of a batch and the position where that batch begins."""

    def __init__(self, data: bytes, base_offset: int) -> None:
        size = OffsetIndex.ENTRY.size
        self._base_offset = base_offset
        self._entries: Iterator[tuple[int, int]] = iter(OffsetIndex.ENTRY.iter_unpack(data[: len(data) // size * size]))
        self._number = -1
        self._offset = self._previous = -1
        self.next_position = 0
        """Of the next entry: batches before it need not be shown."""
        self.problem: str | None = None
        self.last_position = 0
        """Of the last entry that is right."""
        if len(data) % size:
            self.problem = f"its size of {len(data)} bytes is no multiple of {size}"
        self._advance()

    def _advance(self) -> None:
        self._number += 1
        entry = next(self._entries, None)
        if entry is None:
            self.next_position = _NEVER
            return
        previous = self.next_position
        offset, self.next_position = entry
        # The first batch never has an entry: searches begin there without one.
        if offset <= self._offset or self.next_position <= previous:
            self._wrong("does not come after the one before it")
        self._offset = offset

    def see(self, position: int, batch: RecordBatch) -> None:
        """The batch at `position`, which `next_position` has come to."""
        while self.next_position < position:
            self._wrong(f"leads to position {self.next_position}, where no batch begins")
            self._advance()
        if self.next_position == position:
            offset = self._base_offset + self._offset
            if offset != batch.last_offset:
                self._wrong(
                    f"has offset {offset} for position {position}, where the batch ends with {batch.last_offset}"
                )
            self.last_position = position
            self._advance()

    def finish(self, size: int) -> None:
        """The segment's batches end at `size`."""
        if self.next_position != _NEVER:
            self._wrong(f"leads to position {self.next_position}, where no batch begins")

    def _wrong(self, reason: str) -> None:
        if self.problem is None:
            self.problem = f"entry {self._number} {reason}"


class TimeIndexCheck:
    """`.timeindex`: each entry is the largest timestamp so far and the last offset of the batch that has it."""

    def __init__(self, data: bytes, base_offset: int) -> None:
        size = TimeIndex.ENTRY.size
        self._base_offset = base_offset
        self._entries: Iterator[tuple[int, int]] = iter(TimeIndex.ENTRY.iter_unpack(data[: len(data) // size * size]))
        self._number = -1
        self._timestamp = -1
        self._last_timestamp = -1
        self.next_offset = -1
        """Of the next entry: batches that end before it need not be shown."""
        self.problem: str | None = None
        self.inside_batch = False
        """An entry names an offset inside of its batch, as Kafka before 3.8 did: of the very record."""
        if len(data) % size:
            self.problem = f"its size of {len(data)} bytes is no multiple of {size}"
        self._advance()

    def _advance(self) -> None:
        self._number += 1
        entry = next(self._entries, None)
        if entry is None:
            self.next_offset = _NEVER
            return
        timestamp, relative = entry
        offset = self._base_offset + relative
        if self._number and (timestamp <= self._timestamp or offset <= self.next_offset):
            self._wrong("does not come after the one before it")
        self._timestamp, self.next_offset = timestamp, offset

    def see(self, batch: RecordBatch, largest_before: int) -> None:
        """A batch that `next_offset` has come to; `largest_before` is the largest timestamp of those before it."""
        while self.next_offset < batch.base_offset:
            self._wrong(f"names offset {self.next_offset}, which no batch has")
            self._advance()
        while self.next_offset <= batch.last_offset:
            if self._timestamp != batch.max_timestamp or self._timestamp <= largest_before:
                self._wrong(
                    f"has timestamp {self._timestamp} for offset {self.next_offset}, "
                    f"where the largest so far is {max(batch.max_timestamp, largest_before)}"
                )
            elif self.next_offset != batch.last_offset:
                self.inside_batch = True
            self._last_timestamp = self._timestamp
            self._advance()

    def finish(self, largest: int) -> None:
        """The segment ends, and `largest` is the largest timestamp in it (-1: none), which the last entry must have."""
        if self.next_offset != _NEVER:
            self._wrong(f"names offset {self.next_offset}, which no batch has")
        elif largest >= 0 and self._last_timestamp != largest and self.problem is None:
            self.problem = (
                f"its last entry has timestamp {self._last_timestamp}, but the segment's largest is {largest}: "
                f"it would be deleted by age too early"
            )

    def _wrong(self, reason: str) -> None:
        if self.problem is None:
            self.problem = f"entry {self._number} {reason}"

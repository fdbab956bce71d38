"""Comparing the entries of an index with the batches that they refer to.

Each check receives the batches of a segment in order and keeps its position in the index, so that reading the log once
is sufficient for all checks. An index is incorrect as a whole: the problem describes the first incorrect entry.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..log.index import OffsetIndex, TimeIndex
from ..protocol.records import RecordBatch

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
        """The position of the next entry: earlier batches need not be passed to `add_batch`."""
        self.problem: str | None = None
        self.last_position = 0
        """The position of the last correct entry."""
        if len(data) % size:
            self.problem = f"its size of {len(data)} bytes is not a multiple of {size}"
        self._advance()

    def _advance(self) -> None:
        self._number += 1
        entry = next(self._entries, None)
        if entry is None:
            self.next_position = _NEVER
            return
        previous = self.next_position
        offset, self.next_position = entry
        # The first batch never has an entry: searches begin there by default.
        if offset <= self._offset or self.next_position <= previous:
            self._wrong("is out of order")
        self._offset = offset

    def add_batch(self, position: int, batch: RecordBatch) -> None:
        """Check the batch at `position`, which is at or after `next_position`."""
        while self.next_position < position:
            self._wrong(f"points to position {self.next_position}, where no batch starts")
            self._advance()
        if self.next_position == position:
            offset = self._base_offset + self._offset
            if offset != batch.last_offset:
                self._wrong(
                    f"has offset {offset} for position {position}, where the batch ends with offset {batch.last_offset}"
                )
            self.last_position = position
            self._advance()

    def finish(self, size: int) -> None:
        """The segment's batches end at `size`."""
        if self.next_position != _NEVER:
            self._wrong(f"points to position {self.next_position}, where no batch starts")

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
        """The offset of the next entry: batches that end before it need not be passed to `add_batch`."""
        self.problem: str | None = None
        self.inside_batch = False
        """An entry contains the offset of the record, inside of its batch, as in Kafka before 3.8."""
        if len(data) % size:
            self.problem = f"its size of {len(data)} bytes is not a multiple of {size}"
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
            self._wrong("is out of order")
        self._timestamp, self.next_offset = timestamp, offset

    def add_batch(self, batch: RecordBatch, largest_before: int) -> None:
        """Check a batch at or after `next_offset`; `largest_before` is the largest timestamp before it."""
        while self.next_offset < batch.base_offset:
            self._wrong(f"has offset {self.next_offset}, which no batch contains")
            self._advance()
        while self.next_offset <= batch.last_offset:
            if self._timestamp != batch.max_timestamp or self._timestamp <= largest_before:
                self._wrong(
                    f"has timestamp {self._timestamp} for offset {self.next_offset}, "
                    f"but the largest up to there is {max(batch.max_timestamp, largest_before)}"
                )
            elif self.next_offset != batch.last_offset:
                self.inside_batch = True
            self._last_timestamp = self._timestamp
            self._advance()

    def finish(self, largest: int) -> None:
        """The segment ends, and `largest` is the largest timestamp in it (-1: none), which the last entry must have."""
        if self.next_offset != _NEVER:
            self._wrong(f"has offset {self.next_offset}, which no batch contains")
        elif largest >= 0 and self._last_timestamp != largest and self.problem is None:
            self.problem = (
                f"its last entry has timestamp {self._last_timestamp}, but the segment's largest is {largest}: "
                f"the segment would be deleted too early"
            )

    def _wrong(self, reason: str) -> None:
        if self.problem is None:
            self.problem = f"entry {self._number} {reason}"

"""The segments of a log in order: finding the segment of an offset, adding and removing segments.

There is always at least one, and the last is the active one. Files of removed segments are renamed immediately, and
their paths are added to `trash`, to be unlinked later: ranges that are being sent keep their descriptors.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from ..protocol.records import BatchHeader, RecordBatch
from .segment import Segment


class Segments:
    """See the module docstring."""

    __slots__ = ("_base_offsets", "_segments", "active", "trash")

    def __init__(self, segments: list[Segment]) -> None:
        self._segments = segments
        self._base_offsets = [segment.base_offset for segment in segments]
        self.active = segments[-1]
        self.trash: list[str] = []
        """Paths of files without any reference."""

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    def __getitem__(self, number: int) -> Segment:
        return self._segments[number]

    def number_of(self, offset: int) -> int:
        """The index of the segment whose range contains `offset`; 0 if `offset` is before all segments."""
        if offset >= self.active.base_offset:
            return len(self._segments) - 1
        return max(bisect_right(self._base_offsets, offset) - 1, 0)

    def starting_at(self, offset: int) -> list[Segment]:
        """The segment with `offset` and those after it."""
        return self._segments[self.number_of(offset) :]

    def end_of(self, number: int) -> int | None:
        """The base offset of the next segment, at which this one ends; None for the active one."""
        return self._base_offsets[number + 1] if number + 1 < len(self._segments) else None

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return sum(segment.size for segment in self._segments)

    # Changing

    def add(self, segment: Segment) -> None:
        """The new active segment."""
        self._segments.append(segment)
        self._base_offsets.append(segment.base_offset)
        self.active = segment

    def remove_last(self) -> None:
        """Remove the active segment; the one before it becomes active."""
        self._base_offsets.pop()
        self._discard(self._segments.pop())
        self.active = self._segments[-1]

    def replace_active(self, segment: Segment) -> None:
        """Replace the active segment, which must be empty."""
        self._base_offsets.pop()
        self._discard(self._segments.pop())
        self.add(segment)

    def remove_first(self, count: int) -> None:
        """Remove the oldest segments."""
        for _ in range(count):
            self._discard(self._segments[0])
            del self._segments[0]
            del self._base_offsets[0]

    def replace_all(self, segment: Segment) -> None:
        """Remove all segments; `segment` becomes the only one."""
        for old in self._segments:
            self._discard(old)
        self._segments = [segment]
        self._base_offsets = [segment.base_offset]
        self.active = segment

    def replace(self, number: int, count: int, segment: Segment) -> None:
        """Replace `count` segments from `number` on, whose files were renamed, by one whose files are in place."""
        self._segments[number : number + count] = [segment]
        self._base_offsets[number : number + count] = [segment.base_offset]

    def _discard(self, segment: Segment) -> None:
        if segment.on_disk:
            self.trash += segment.mark_deleted()
        else:
            segment.forget_files()

    def forget_files(self) -> None:
        """Close the descriptors."""
        for segment in self._segments:
            segment.forget_files()

    # Reading

    def find(
        self, offset: int, max_offset: int, log_end_offset: int, *, wait: bool = True
    ) -> tuple[Segment, int, int, int] | None:
        """The start of a read of [offset, max_offset): the segment, the position and size of the first batch, and the
        position where this segment's part of the range ends. None if there is nothing to read.

        Without `wait` it raises `ColdRead` instead of waiting for the device.
        """
        number = self.number_of(offset)
        while number < len(self._segments):
            segment = self._segments[number]
            if segment.base_offset >= max_offset:
                return None
            located = segment.locate(offset, wait=wait)
            if located is None:
                number += 1  # its remaining records were compacted away
                continue
            end = segment.size
            if max_offset < log_end_offset:
                next_base_offset = self.end_of(number)
                if next_base_offset is None or max_offset < next_base_offset:
                    limit = segment.locate(max_offset, wait=wait)
                    end = end if limit is None else limit[0]
            return segment, *located, end
        return None

    def batches(self, offset: int, end_offset: int) -> Iterator[RecordBatch]:
        """Iterates over complete batches from the one with `offset` on."""
        for segment, header, position in self.located_headers(offset, end_offset):
            yield segment.read_batch(position, header.size)

    def headers(self, offset: int, end_offset: int) -> Iterator[BatchHeader]:
        """The headers of the batches from the one with `offset` on."""
        for _segment, header, _position in self.located_headers(offset, end_offset):
            yield header

    def producer_batches(self, offset: int, end_offset: int) -> Iterator[tuple[BatchHeader, RecordBatch | None]]:
        """The batches of producers in [offset, end_offset): headers, and for control batches also the records."""
        for segment, header, position in self.located_headers(offset, end_offset):
            if header.producer_id >= 0:
                yield header, segment.read_batch(position, header.size) if header.is_control else None

    def located_headers(self, offset: int, end_offset: int) -> Iterator[tuple[Segment, BatchHeader, int]]:
        """The same with their segments, and their positions in them."""
        for segment in self.starting_at(offset):
            if segment.base_offset >= end_offset:
                return
            located = segment.locate(offset)
            if located is None:
                continue
            for header, position in segment.scan(located[0]):
                if header.base_offset >= end_offset:
                    return
                yield segment, header, position

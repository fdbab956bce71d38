"""Remote bytes as a sequence: they are read in windows, of which one is held.

For a sequential reader of a large batch (`compression.decompress_pieces`) in a process that does not have the batch in
memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import overload

WINDOW_BYTES = 256 * 1024

Read = Callable[[int, int], bytes]
"""Returns the bytes from a start to an end position (exclusive), at most `WINDOW_BYTES` of them."""


class PagedBytes:
    """A range of remote bytes. A slice is a copy, so slices should be short; `rest` is another range."""

    __slots__ = ("_begin", "_end", "_read", "_window", "_window_begin")

    def __init__(self, read: Read, begin: int, end: int) -> None:
        self._read = read
        self._begin = begin
        self._end = end
        self._window = memoryview(b"")
        self._window_begin = begin

    def __len__(self) -> int:
        return self._end - self._begin

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> memoryview: ...
    def __getitem__(self, index: int | slice) -> int | memoryview:
        if isinstance(index, int):
            if not 0 <= index < len(self):
                raise IndexError(index)
            return self._take(self._begin + index, self._begin + index + 1)[0]
        start, stop, step = index.indices(len(self))
        assert step == 1
        return self._take(self._begin + start, self._begin + max(start, stop))

    def rest(self, start: int) -> PagedBytes:
        """The range without its first ``start`` bytes."""
        return PagedBytes(self._read, min(self._begin + start, self._end), self._end)

    def _take(self, start: int, stop: int) -> memoryview:
        if start == stop:
            return memoryview(b"")
        offset = start - self._window_begin
        if offset >= 0 and stop - self._window_begin <= len(self._window):
            return self._window[offset : stop - self._window_begin]
        if stop - start > WINDOW_BYTES:
            whole = bytearray(stop - start)
            for position in range(start, stop, WINDOW_BYTES):
                end = min(position + WINDOW_BYTES, stop)
                whole[position - start : end - start] = self._read(position, end)
            return memoryview(whole)
        begin = b""
        if 0 <= offset < len(self._window):
            # The windows are consecutive, so that the window that is read ahead is the next one.
            begin = bytes(self._window[offset:])
        next_start = start + len(begin)
        window = self._read(next_start, min(next_start + WINDOW_BYTES, self._end))
        self._window = memoryview(begin + window if begin else window)
        self._window_begin = start
        return self._window[: stop - start]

"""A position in records that are decompressed piece by piece.

For records of many pieces, and for copying records without parsing them: only one piece is held.
"""

from __future__ import annotations

from collections.abc import Iterator

from .records import InvalidRecordsError, read_varint


class Cursor:
    """Reads forward, and drops the bytes that were read."""

    __slots__ = ("_before", "_pieces", "data", "position")

    def __init__(self, pieces: Iterator[bytes], data: bytes | bytearray = b"", position: int = 0) -> None:
        """The pieces follow ``data``, whose bytes before ``position`` were already read."""
        self._pieces = pieces
        self._before = 0
        self.data = data
        self.position = position

    @property
    def offset(self) -> int:
        """The number of bytes from the beginning of the first piece."""
        return self._before + self.position

    def varint(self, max_bytes: int = 5) -> int:
        """The zigzag varint at this position, of at most 5 bytes (10 for a varlong)."""
        while True:
            try:
                value, self.position = read_varint(self.data, self.position, max_bytes)
            except IndexError:
                rest = self.data[self.position :]
                self._next_piece()
                self._before -= len(rest)
                self.data = rest + self.data
            else:
                return value

    def take(self, count: int) -> Iterator[bytes]:
        """The next ``count`` bytes, in parts."""
        while count > (left := len(self.data) - self.position):
            if left:
                yield bytes(self.data[self.position :])
            count -= left
            self._next_piece()
        if count:
            end = self.position + count
            yield bytes(self.data[self.position : end])
            self.position = end

    def skip(self, count: int) -> Iterator[int]:
        """Skip the next ``count`` bytes; yields the length of each further piece."""
        while count > (left := len(self.data) - self.position):
            count -= left
            self._next_piece()
            yield len(self.data)
        self.position += count

    def _next_piece(self) -> None:
        piece = next(self._pieces, None)
        if piece is None:
            raise InvalidRecordsError("the records are truncated")
        self._before += len(self.data)
        self.data = piece
        self.position = 0

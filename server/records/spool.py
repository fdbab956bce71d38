"""Stores a recompressed batch: in memory while it is small, then in an unnamed file.

A job may produce 100 MB from a tiny batch, and several jobs run concurrently. The pages of a file belong to the
operating system, which writes them to the disk when it needs the memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO, cast

from ...protocol.errors import ErrorCode, KafkaError

PART_BYTES = 256 * 1024
"""How many bytes are read from the file in one step."""
_MEMORY_BYTES = 4 << 20


class Spool:
    """See `log.validation.Parts`. The file is in ``directory``, or in the system's temporary directory."""

    def __init__(self, directory: str | None) -> None:
        self._directory = directory
        self._first: list[bytes] = []  # all parts before those in the file
        self._file: BinaryIO | None = None
        self._file_bytes = 0
        self.size = 0
        """The size of all parts in bytes."""

    def __len__(self) -> int:
        return len(self._first) + -(-self._file_bytes // PART_BYTES)

    def __iter__(self) -> Iterator[bytes]:
        yield from self._first
        if self._file is not None:
            self._file.seek(0)
            while part := self._file.read(PART_BYTES):
                yield part

    def __contains__(self, part: object) -> bool:
        return any(part == each for each in self)

    def append(self, part: bytes) -> None:
        """Append a part.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR, which clients retry.
        """
        if self._file is None and self.size + len(part) <= _MEMORY_BYTES:
            self._first.append(part)
        else:
            try:
                self._write(part)
            except OSError as error:
                raise KafkaError(
                    ErrorCode.KAFKA_STORAGE_ERROR, f"Not enough space to recompress a large batch: {error}"
                ) from error
        self.size += len(part)

    def _write(self, part: bytes) -> None:
        if self._file is None:
            import tempfile  # with the codecs that it imports, it would add 3 ms to every startup

            # Stays open until `clear`.
            file = tempfile.TemporaryFile(dir=self._directory, prefix="moldau-", buffering=0)  # noqa: SIM115
            self._file = cast(BinaryIO, file)
            for each in self._first:
                self._write(each)
            self._first.clear()
        rest = memoryview(part)
        while rest:
            rest = rest[self._file.write(rest) :]
        self._file_bytes += len(part)

    def insert(self, index: int, part: bytes) -> None:
        """Insert a part before all others."""
        assert index == 0
        self._first.insert(0, part)
        self.size += len(part)

    def clear(self) -> None:
        """Discard all parts."""
        self._first.clear()
        self.size = self._file_bytes = 0
        if self._file is not None:
            self._file.close()
            self._file = None

    def __del__(self) -> None:
        self.clear()

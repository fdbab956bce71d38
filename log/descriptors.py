"""Open files are scarce: a bounded cache of them, and ranges of files that are being sent.

A broker may have 20,000 descriptors and 10,000 partitions with several files each, so a file is open only while it is
in use: by the cache, which keeps the recently used ones and closes the others, and by every existing `FileRange`. Each
holds a reference; releasing the last one closes the descriptor. Therefore a running `sendfile` remains valid when its
segment is deleted, compacted or truncated: the file is unlinked or replaced, and the range still has the old one.

Reading a range that is not in the page cache waits for the device. `cached` and `read_cached` detect this, and a thread
may call `read_ahead`; all other methods of ranges are called from one thread. A function that must not wait raises
`ColdRead` with the range to read ahead.

Eviction is second chance: each use sets `used`, which costs the hot path one store instead of the reordering of a list.
"""

from __future__ import annotations

import errno
from collections import deque
from typing import Protocol

from .files import File, FileSystem

# More than the kernel reads ahead: usually 128 kB, 8 MB with some devices.
_COLD_BEHIND_BYTES = 16 << 20


class Owner(Protocol):
    """An object that has a file open through the cache; the cache resets `open_file`."""

    path: str
    open_file: OpenFile | None


class OpenFile:
    """A descriptor with a count of its references; see the module docstring."""

    __slots__ = ("ahead_until", "cold_from", "cold_until", "file", "owner", "references", "used")

    def __init__(self, file: File, owner: Owner) -> None:
        self.file = file
        self.owner: Owner | None = owner
        """None when the cache has dropped it."""
        self.references = 1  # the cache's
        self.used = False
        """Used again since it was opened, or since eviction last skipped it."""
        self.cold_from = self.cold_until = 0
        """Bytes that a thread should read before they are sent: see `FileRange.was_read_ahead`."""
        self.ahead_until = 0
        """The position up to which `FileRange.ahead` has returned ranges."""

    def release(self) -> None:
        self.references -= 1
        if not self.references:
            self.file.close()


class FileRange:
    """Bytes of a file, to be sent with `os.sendfile` or read; they remain valid until `release`.

    `fd` is -1 for a file in memory: then only `read` works. A short `sendfile` means that another process truncated the
    file; the length was already sent, so the connection must be closed.
    """

    __slots__ = ("_open_file", "length", "position")

    def __init__(self, open_file: OpenFile, position: int, length: int) -> None:
        open_file.references += 1
        self._open_file: OpenFile | None = open_file
        self.position = position
        self.length = length

    def __len__(self) -> int:
        return self.length

    @property
    def fd(self) -> int:
        return self._file().fd

    def read(self, start: int = 0, length: int | None = None) -> bytes:
        """`length` bytes from `start` within the range, by default all of it."""
        rest = max(0, self.length - start)
        return self._file().read_at(self.position + start, rest if length is None else min(length, rest))

    def cached(self, start: int, length: int) -> int:
        """The number of these bytes, from the first on, that most likely can be sent without waiting (`File.cached`).

        0 where a thread should read ahead (`was_read_ahead`).
        """
        open_file = self._open_file
        assert open_file is not None
        position = self.position + start
        if open_file.cold_from <= position < open_file.cold_until:
            return 0
        return open_file.file.cached(position, min(length, self.length - start))

    def read_cached(self, buffer: bytearray | memoryview, start: int = 0) -> int:
        """Fill `buffer` from `start` on with data that can be read without waiting: see `File.read_cached`."""
        return self._file().read_cached(self.position + start, buffer)

    def part(self, start: int, length: int) -> FileRange:
        """A separate range of some of the bytes."""
        open_file = self._open_file
        assert open_file is not None
        return FileRange(open_file, self.position + start, min(length, self.length - start))

    def read_ahead(self) -> bool:
        """Load the bytes into the page cache. Returns whether the last one was missing. To be called from a thread; the
        range must not be released before it returns."""
        return self._file().read_ahead(self.position, self.length)

    def was_read_ahead(self, *, was_cold: bool) -> None:
        """A thread has read these bytes. If they were cold, the following bytes most likely are, too.

        A thread should also read the following bytes, even if they are cached by now. The kernel reads ahead, and marks
        a page; a read of the marked page starts the next read-ahead, which takes milliseconds when the disk is busy or
        `read_ahead_kb` is large. Only threads should read marked pages.
        """
        open_file = self._open_file
        assert open_file is not None
        end = self.position + self.length
        if was_cold:
            open_file.cold_from = end
            open_file.cold_until = end + _COLD_BEHIND_BYTES
        elif self.position <= open_file.cold_from < end:
            open_file.cold_from = end

    def ahead(self, start: int, length: int) -> FileRange | None:
        """The range to read ahead now for a reader at `start`; it may extend beyond the end of this range.

        Reading ahead stays between half of `length` and `length` in front of the reader. None if the disk was not
        needed recently, or a thread has already read the bytes.
        """
        open_file = self._open_file
        assert open_file is not None
        position = self.position + start
        if position >= open_file.cold_until:
            return None
        begin = max(position, open_file.cold_from)
        end = position + length
        if begin < open_file.ahead_until <= end:
            begin = open_file.ahead_until
        if begin >= position + length // 2:
            return None
        open_file.ahead_until = end
        return FileRange(open_file, begin, end - begin)

    def release(self) -> None:
        """Release the reference. Further calls have no effect."""
        open_file = self._open_file
        if open_file is not None:
            self._open_file = None
            open_file.release()

    def __del__(self) -> None:
        # For an exception between reading and sending; all other paths release it explicitly.
        self.release()

    def _file(self) -> File:
        if self._open_file is None:
            raise ValueError("the file range was released")
        return self._open_file.file

    def __enter__(self) -> FileRange:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def __repr__(self) -> str:
        return f"FileRange(position={self.position}, length={self.length})"


class ColdRead(Exception):  # noqa: N818 - not an error: it contains the range to read first
    """Continuing would wait for the device. `range` is the range to read ahead; it must be released."""

    def __init__(self, file_range: FileRange) -> None:
        super().__init__(file_range)
        self.range = file_range


class DescriptorCache:
    """Keeps at most `limit` files open, in addition to those of ranges. All partitions of a broker share one cache."""

    def __init__(self, file_system: FileSystem, limit: int = 1024) -> None:
        self.file_system = file_system
        self._limit = max(limit, 2)
        self._queue: deque[OpenFile] = deque()

    def open(self, owner: Owner, *, create: bool = False) -> OpenFile:
        """The owner's file, opened if necessary; also in `owner.open_file` for as long as the cache keeps it."""
        open_file = owner.open_file
        if open_file is None:
            if len(self._queue) >= self._limit:
                self._evict()
            open_file = OpenFile(self._open(owner.path, create), owner)
            owner.open_file = open_file
            self._queue.append(open_file)
        else:
            open_file.used = True
        return open_file

    def forget(self, owner: Owner) -> None:
        """Drop the owner's file: it is about to be unlinked, renamed or replaced, or is no longer needed."""
        open_file = owner.open_file
        if open_file is not None:
            self._queue.remove(open_file)
            self._drop(open_file)

    def close(self) -> None:
        """Drop all files."""
        while self._queue:
            self._drop(self._queue.popleft())

    def __len__(self) -> int:
        return len(self._queue)

    def _open(self, path: str, create: bool) -> File:
        while True:
            try:
                return self.file_system.open(path, create=create)
            except OSError as error:
                # The limit of the process may be lower than that of the cache: close another file.
                if error.errno not in (errno.EMFILE, errno.ENFILE) or not self._queue:
                    raise
                self._evict()

    def _evict(self) -> None:
        # This ends, because the first round clears every mark.
        while True:
            open_file = self._queue.popleft()
            if not open_file.used:
                self._drop(open_file)
                return
            open_file.used = False
            self._queue.append(open_file)

    def _drop(self, open_file: OpenFile) -> None:
        owner = open_file.owner
        if owner is not None:
            owner.open_file = None
            open_file.owner = None
            open_file.release()

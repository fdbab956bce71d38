"""Open files are scarce: a bounded cache of them, and ranges of files that are being sent.

A broker may have 20,000 descriptors and 10,000 partitions with several files each, so a file is open only while it is
in use: by the cache, which keeps the recently used ones and closes the others, and by every `FileRange` that was
handed out. Each holds a reference; the last one to go closes the descriptor. That is what keeps a running `sendfile`
whole when the segment under it is deleted, compacted or truncated: those unlink or replace the file, and the range
still has the old one.

A range that is not in the page cache would make its reader wait for the device. `cached` and `read_cached` tell, and a
thread may call `read_ahead`; everything else about ranges belongs to one thread. Whoever was asked not to wait raises
`ColdRead` with the range to read ahead.

Eviction is second chance: a user sets `used`, which costs the hot path one store instead of the reordering of a list.
"""

from __future__ import annotations

import errno
from collections import deque
from typing import Protocol

from .files import File, FileSystem

# More than the kernel reads ahead: 128 kB mostly, 8 MB with some devices.
_COLD_BEHIND_BYTES = 16 << 20


class Owner(Protocol):
    """Who has a file open through the cache, and is told to forget it."""

    path: str
    open_file: OpenFile | None


class OpenFile:
    """A descriptor with a count of its users; see the module's text."""

    __slots__ = ("ahead_until", "cold_from", "cold_until", "file", "owner", "references", "used")

    def __init__(self, file: File, owner: Owner) -> None:
        self.file = file
        self.owner: Owner | None = owner
        """None once the cache has let go of it."""
        self.references = 1  # the cache's
        self.used = False
        """Used again since it was opened, or since eviction passed it by."""
        self.cold_from = self.cold_until = 0
        """Bytes that a thread should read before they are sent: see `FileRange.was_read_ahead`."""
        self.ahead_until = 0
        """Up to here the reader before them has been given something to read ahead."""

    def release(self) -> None:
        self.references -= 1
        if not self.references:
            self.file.close()


class FileRange:
    """Bytes of a file, to be sent with `os.sendfile` or read; they stay there until `release`.

    `fd` is -1 where there is no descriptor (in memory): then only `read` works. A `sendfile` that comes up short means
    that somebody else cut the file; the length was promised, so only closing the connection is left.
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
        """How many of these bytes, from the first on, can most likely be sent without waiting: see `File.cached`.

        None where the disk is being read, or will have to be (`was_read_ahead`).
        """
        open_file = self._open_file
        assert open_file is not None
        position = self.position + start
        if open_file.cold_from <= position < open_file.cold_until:
            return 0
        return open_file.file.cached(position, min(length, self.length - start))

    def read_cached(self, buffer: bytearray | memoryview, start: int = 0) -> int:
        """Fill `buffer` from `start` on as far as nobody has to wait; how many bytes: see `File.read_cached`."""
        return self._file().read_cached(self.position + start, buffer)

    def part(self, start: int, length: int) -> FileRange:
        """A reference of its own on some of the bytes."""
        open_file = self._open_file
        assert open_file is not None
        return FileRange(open_file, self.position + start, min(length, self.length - start))

    def read_ahead(self) -> bool:
        """Return when the bytes are in memory; whether the last was not. To be called from a thread, which needs the
        reference to be kept meanwhile."""
        return self._file().read_ahead(self.position, self.length)

    def was_read_ahead(self, *, was_cold: bool) -> None:
        """A thread has read these bytes. If they were cold, so are most likely those that follow.

        Those should be read by a thread too, even if they are in memory by now. The kernel reads ahead by itself, and
        leaves a mark on a page; whoever reads that page begins with the next part, which takes milliseconds when the
        disk is busy or `read_ahead_kb` large. Only threads should meet those marks.
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
        """What should be read ahead now for a reader who has come to `start`, also beyond the end of the range.

        The reader stays between half of `length` and all of it behind. None where the disk was not needed lately, or a
        thread has been there.
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
        """Done with it. Further calls do nothing."""
        open_file = self._open_file
        if open_file is not None:
            self._open_file = None
            open_file.release()

    def __del__(self) -> None:
        # For paths that end in an exception between reading and sending; everybody else releases it.
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


class ColdRead(Exception):  # noqa: N818 - not an error: it says what to do first
    """Going on would wait for the device. `range` is what to read ahead; it must be released."""

    def __init__(self, file_range: FileRange) -> None:
        super().__init__(file_range)
        self.range = file_range


class DescriptorCache:
    """Keeps at most `limit` files open, beyond those that ranges hold. One for all partitions of a broker."""

    def __init__(self, file_system: FileSystem, limit: int = 1024) -> None:
        self.file_system = file_system
        self._limit = max(limit, 2)
        self._queue: deque[OpenFile] = deque()

    def open(self, owner: Owner, *, create: bool = False) -> OpenFile:
        """The owner's file, opened if it is not; noted in `owner.open_file` for as long as the cache keeps it."""
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
        """Let go of the owner's file: it is about to be unlinked, renamed or replaced, or nobody needs it."""
        open_file = owner.open_file
        if open_file is not None:
            self._queue.remove(open_file)
            self._let_go(open_file)

    def close(self) -> None:
        """Let go of everything."""
        while self._queue:
            self._let_go(self._queue.popleft())

    def __len__(self) -> int:
        return len(self._queue)

    def _open(self, path: str, create: bool) -> File:
        while True:
            try:
                return self.file_system.open(path, create=create)
            except OSError as error:
                # The process's limit may be lower than ours: give back what can be given back.
                if error.errno not in (errno.EMFILE, errno.ENFILE) or not self._queue:
                    raise
                self._evict()

    def _evict(self) -> None:
        # Ends: the first round clears every mark.
        while True:
            open_file = self._queue.popleft()
            if not open_file.used:
                self._let_go(open_file)
                return
            open_file.used = False
            self._queue.append(open_file)

    def _let_go(self, open_file: OpenFile) -> None:
        owner = open_file.owner
        if owner is not None:
            owner.open_file = None
            open_file.owner = None
            open_file.release()

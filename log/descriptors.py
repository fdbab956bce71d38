"""Open files are scarce: a bounded cache of them, and ranges of files that are being sent.

A broker may have 20,000 descriptors and 10,000 partitions with several files each, so a file is open only while it is
in use: by the cache, which keeps the recently used ones and closes the others, and by every `FileRange` that was
handed out. Each holds a reference; the last one to go closes the descriptor. That is what keeps a running `sendfile`
whole when the segment under it is deleted, compacted or truncated: those unlink or replace the file, and the range
still has the old one.

Eviction is second chance: a user sets `used`, which costs the hot path one store instead of the reordering of a list.
"""

from __future__ import annotations

import errno
from collections import deque
from typing import Protocol

from .files import File, FileSystem


class Owner(Protocol):
    """Who has a file open through the cache, and is told to forget it."""

    path: str
    open_file: OpenFile | None


class OpenFile:
    """A descriptor with a count of its users; see the module's text."""

    __slots__ = ("file", "owner", "references", "used")

    def __init__(self, file: File, owner: Owner) -> None:
        self.file = file
        self.owner: Owner | None = owner
        """None once the cache has let go of it."""
        self.references = 1  # the cache's
        self.used = False
        """Used again since it was opened, or since eviction passed it by."""

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

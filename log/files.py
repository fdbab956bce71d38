"""The port between the log and the file system, and its implementation with the operating system's files.

All file access of `log/` goes through `FileSystem` and `File`; this is the only module of the package that calls `os`
for files. `memory_files.py` is the in-memory implementation, which can tear writes, lose unsynced data, run out of
space, and fail. One test suite checks that both behave the same.

The log relies on these properties, and the tests check them:

* A write that has returned is visible to every later read, also through another descriptor, and survives the death of
  the process (page cache). It survives a power failure only after `sync`.
* `rename` replaces its target atomically. Names survive a power failure after `sync_directory`; before that, a
  journaling file system keeps some prefix of the changes.
* An unlinked or renamed file remains readable and writable through its open descriptors.
* Failures are `OSError` with an errno. A failed write may have written a part.
* Reading data that is not in the page cache waits for the device. `cached` and `read_cached` do not wait; `read_ahead`,
  which may be called from a thread, loads the missing data. The result of `cached` may be outdated immediately, and is
  based on samples: it avoids waits, and correctness must not depend on it.

Paths are strings, because importing `pathlib` would noticeably slow down the server's startup.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Sequence
from functools import cache
from typing import Protocol

Buffer = bytes | bytearray | memoryview

NO_DESCRIPTOR_ERRNOS = frozenset({errno.EMFILE, errno.ENFILE})
"""A file could not be opened. For a sync by name: no sync was attempted."""

TRANSIENT_ERRNOS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EFBIG})
"""Failures that end when resources are available again. Any other one is a device failure: the directory goes offline.
"""

# The distance in bytes between two pages that are checked; a check costs 0.8 us. Pages are cached in runs: the kernel
# reads ahead 128 kB or more, and evicts the oldest first. A gap between two samples costs a wait for the device.
SAMPLE_BYTES = 512 * 1024
# Where the file system cannot report what is cached, the end of a file is assumed to be cached.
_RECENT_BYTES = 4 << 20
_NOWAIT: int = getattr(os, "RWF_NOWAIT", 0)  # Linux only
_UNSUPPORTED_ERRNOS = frozenset({errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS})
# Buffers for reads whose data is not needed; several threads may use them at the same time.
_BYTE = (bytearray(1),)
_SCRATCH = bytearray(64 * 1024)


class File(Protocol):
    """One open file, for reading and writing. There is no current position: every call has its own."""

    fd: int
    """The descriptor, for `os.sendfile`; -1 for files in memory, which only `read_at` reads."""

    def read_at(self, position: int, length: int) -> bytes:
        """Up to `length` bytes; fewer only at the end of the file."""

    def cached(self, position: int, length: int) -> int:
        """The number of these bytes, from the first on, that can most likely be read without waiting for the device.

        Where the file system cannot report it: 0, unless they were written recently or the file system is in memory.
        """

    def read_cached(self, position: int, buffer: bytearray | memoryview) -> int:
        """Fill `buffer` with data that can be read without waiting; returns the number of bytes.

        Where the file system cannot report what is cached, this waits as `read_at` does.
        """

    def read_ahead(self, position: int, length: int) -> bool:
        """Load these bytes into the page cache. Returns whether the last one was missing, according to `cached`.

        May be called from a thread at the same time as other methods.
        """

    def write_at(self, buffers: Sequence[Buffer], position: int, length: int) -> None:
        """Write the consecutive buffers, `length` bytes in total, in one system call unless the system splits it."""

    def truncate(self, size: int) -> None:
        """Make the file `size` bytes long, by truncating it or by appending zeros."""

    def size(self) -> int:
        """Bytes in the file."""

    def sync(self) -> None:
        """Make the content durable. May be called from a thread at the same time as other methods."""

    def close(self) -> None: ...


class Lock(Protocol):
    """A held lock on a directory."""

    def release(self) -> None: ...


class LockHeldError(Exception):
    """Another process, or another server in this one, holds the lock file."""


class FileSystem(Protocol):
    """Names, small files as a whole, and opening files."""

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File:
        """Open for reading and writing; `FileNotFoundError` for a missing file unless `create`.

        With `read_only` the file cannot be written, and the file system may be mounted read-only.
        """

    def read_file(self, path: str) -> bytes: ...

    def replace_file(self, path: str, data: Buffer, *, sync: bool, private: bool = False) -> None:
        """Write `data` next to `path` and rename it, so that a reader finds either the old or the new content.

        With `sync`, this also holds after a power failure. `private`: only this user may read the file.
        """

    def list_directory(self, path: str) -> tuple[list[str], list[str]]:
        """Names of the files and of the directories in `path`, in no particular order.

        A symbolic link counts as its target, and as a file if the target is unavailable.
        """

    def link_target(self, path: str) -> str | None:
        """The target of the symbolic link `path`, unresolved; None for anything else."""

    def exists(self, path: str) -> bool: ...

    def size(self, path: str) -> int: ...

    def modified_ms(self, path: str) -> int: ...

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        """Set the modification time."""

    def space(self, path: str) -> tuple[int, int]:
        """(total bytes, available bytes) of the file system that contains `path`; -1 for unknown."""

    def make_directory(self, path: str, *, private: bool = False) -> None:
        """Create `path` and its missing parents; no error if it exists. `private`: only this user may enter it."""

    def rename(self, source: str, target: str) -> None: ...

    def unlink(self, path: str) -> None: ...

    def remove_directory(self, path: str) -> None:
        """Remove a directory, which must be empty (otherwise ENOTEMPTY). No method removes a directory's contents."""

    def sync_directory(self, path: str) -> None: ...

    def lock(self, path: str, *, shared: bool = False) -> Lock:
        """Acquire the lock file `path`, which is created if missing. Raises `LockHeldError` immediately if it is held.

        `shared`: a lock for readers, which excludes only writers. Then `path` must exist.
        """


def join(directory: str, name: str) -> str:
    """The path of `name` in `directory`, in the real file system and in the twin."""
    return directory + "/" + name


class RealFile:
    """A file of the operating system."""

    __slots__ = ("_durable", "_in_memory", "_reports_cached", "fd")

    def __init__(self, fd: int, durable: bool) -> None:
        self.fd = fd
        self._durable = durable
        self._reports_cached = _NOWAIT != 0
        """The file system can report what is cached, unless it is known that it cannot."""
        self._in_memory = False
        """Everything is cached, because the file system is a tmpfs."""

    def read_at(self, position: int, length: int) -> bytes:
        data = os.pread(self.fd, length, position)
        if len(data) == length or not data:
            return data
        # A short read means the end of the file or a signal; only another read distinguishes them.
        parts = [data]
        read = len(data)
        while read < length and (data := os.pread(self.fd, length - read, position + read)):
            parts.append(data)
            read += len(data)
        return b"".join(parts)

    def cached(self, position: int, length: int) -> int:
        if not self._reports_cached:
            return self._guess_cached(position, length)
        fd = self.fd
        end = position + length
        look = position
        try:
            # The last byte of each sample: the first one of a range was often read to find it.
            while look < end:
                last = min(look + SAMPLE_BYTES, end) - 1
                os.preadv(fd, _BYTE, last, _NOWAIT)
                look = last + 1
        except BlockingIOError:
            return look - position
        except OSError as error:
            self._note_unsupported(error)
            return self._guess_cached(position, length)
        return length

    def read_cached(self, position: int, buffer: bytearray | memoryview) -> int:
        if self._reports_cached:
            try:
                return os.preadv(self.fd, (buffer,), position, _NOWAIT)
            except BlockingIOError:
                return 0
            except OSError as error:
                self._note_unsupported(error)
        return os.preadv(self.fd, (buffer,), position)

    def read_ahead(self, position: int, length: int) -> bool:
        was_cold = not self.cached(position + length - 1, 1)
        # An ordinary read instead of POSIX_FADV_WILLNEED: the kernel may ignore parts of that, reads page by page
        # (eight times the CPU time), and does not report when the data has arrived.
        end = position + length
        while position < end:
            read = _read_and_discard(self.fd, position, end - position)
            if not read:
                break
            position += read
        return was_cold

    def _note_unsupported(self, error: OSError) -> None:
        if error.errno not in _UNSUPPORTED_ERRNOS:
            raise error
        self._reports_cached = False
        self._in_memory = _is_in_memory(self.fd)

    def _guess_cached(self, position: int, length: int) -> int:
        if self._in_memory or position >= self.size() - _RECENT_BYTES:
            return length
        return 0

    def write_at(self, buffers: Sequence[Buffer], position: int, length: int) -> None:
        written = os.pwritev(self.fd, buffers, position)
        if written != length:
            self._write_rest(buffers, position, written, length)

    def _write_rest(self, buffers: Sequence[Buffer], position: int, written: int, length: int) -> None:
        rest = memoryview(b"".join(buffers))
        if len(rest) != length:
            raise ValueError(f"the buffers hold {len(rest)} bytes, not {length}")
        while written < length:
            # The second write reports as an errno what stopped the first one, for example a full disk.
            count = os.pwrite(self.fd, rest[written:], position + written)
            if count == 0:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            written += count

    def truncate(self, size: int) -> None:
        os.ftruncate(self.fd, size)

    def size(self) -> int:
        return os.fstat(self.fd).st_size

    def sync(self) -> None:
        if self._durable:
            # fdatasync skips the times, and writes the size if it changed; macOS has only fsync.
            getattr(os, "fdatasync", os.fsync)(self.fd)

    def close(self) -> None:
        os.close(self.fd)


def _read_and_discard(fd: int, position: int, length: int) -> int:
    """Read up to `length` bytes with one system call, for the page cache only; returns the number, 0 at the end."""
    if sys.platform == "linux":
        return os.sendfile(_null(), fd, position, length)  # nothing is copied
    # The same small buffer many times, because it remains in the processor's cache.
    whole, rest = divmod(min(length, 256 * len(_SCRATCH)), len(_SCRATCH))
    return os.preadv(fd, [*[_SCRATCH] * whole, memoryview(_SCRATCH)[:rest]], position)


@cache
def _null() -> int:
    return os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)


def _is_in_memory(fd: int) -> bool:
    """Whether the file is on a tmpfs: no other file system supports seals."""
    import fcntl

    try:
        fcntl.fcntl(fd, fcntl.F_GET_SEALS)
    except (OSError, AttributeError):  # macOS does not have it
        return False
    return True


class RealFileSystem:
    """The operating system's files.

    `durable=False` omits every sync, for data that is not needed after a power failure (tests, ephemeral brokers).
    """

    def __init__(self, *, durable: bool = True) -> None:
        self._durable = durable

    @property
    def durable(self) -> bool:
        return self._durable

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> RealFile:
        flags = (os.O_RDONLY if read_only else os.O_RDWR) | os.O_CLOEXEC
        return RealFile(os.open(path, flags | os.O_CREAT if create else flags, 0o644), self._durable)

    def read_file(self, path: str) -> bytes:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            # Not a large constant: the buffer is allocated first, and allocating a megabyte costs more than the read.
            size = os.fstat(fd).st_size
            data = os.read(fd, size) if size else b""
            while len(data) < size and (more := os.read(fd, size - len(data))):
                data += more
            return data
        finally:
            os.close(fd)

    def replace_file(self, path: str, data: Buffer, *, sync: bool, private: bool = False) -> None:
        temporary = path + ".tmp"
        mode = 0o600 if private else 0o644
        fd = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
        file = RealFile(fd, self._durable)
        try:
            if private:
                os.fchmod(fd, mode)  # the file may remain from an earlier attempt
            file.write_at((data,), 0, len(data))
            if sync:
                file.sync()
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
        finally:
            file.close()
        os.rename(temporary, path)
        if sync:
            self.sync_directory(os.path.dirname(path))

    def list_directory(self, path: str) -> tuple[list[str], list[str]]:
        files: list[str] = []
        directories: list[str] = []
        with os.scandir(path) as entries:
            for entry in entries:
                (directories if entry.is_dir() else files).append(entry.name)
        return files, directories

    def link_target(self, path: str) -> str | None:
        try:
            return os.readlink(path)
        except OSError:
            return None

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        os.utime(path, ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))

    def space(self, path: str) -> tuple[int, int]:
        status = os.statvfs(path)
        return status.f_blocks * status.f_frsize, status.f_bavail * status.f_frsize

    def make_directory(self, path: str, *, private: bool = False) -> None:
        os.makedirs(path, 0o700 if private else 0o777, exist_ok=True)  # the mode is not that of the parents

    def rename(self, source: str, target: str) -> None:
        os.rename(source, target)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def remove_directory(self, path: str) -> None:
        os.rmdir(path)

    def sync_directory(self, path: str) -> None:
        if not self._durable:
            return
        fd = os.open(path or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def lock(self, path: str, *, shared: bool = False) -> RealLock:
        return RealLock(path, shared=shared)


class RealLock:
    """A POSIX record lock, as Java uses it: it also excludes Apache Kafka on the same directory.

    Such locks belong to the process, so `_held` excludes a second server in this process.
    """

    _held: set[str] = set()  # noqa: RUF012 - one per process, because the lock belongs to the process

    def __init__(self, path: str, *, shared: bool = False) -> None:
        import fcntl

        self._key = os.path.realpath(path)
        if self._key in self._held:
            raise LockHeldError(path)
        self._fd = os.open(path, (os.O_RDONLY if shared else os.O_RDWR | os.O_CREAT) | os.O_CLOEXEC, 0o644)
        try:
            fcntl.lockf(self._fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._fd)
            if error.errno in (errno.EAGAIN, errno.EACCES):
                raise LockHeldError(path) from None
            raise
        self._held.add(self._key)

    def release(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
            self._held.discard(self._key)

"""The file system as the log sees it: a small port, and the real thing behind it.

Everything that `log/` does to files goes through `FileSystem` and `File`; this is the only module of the package that
calls `os` for files. `memory_files.py` has the in-memory twin, which can tear writes, lose what was not synced, fill up
and fail; one suite of tests holds both to the same behaviour.

What the log relies on, and the tests check:

* A write that has returned is seen by every later read, also through another descriptor, and survives the death of the
  process (page cache). It survives the loss of power only after `sync`.
* `rename` replaces its target atomically. Names survive the loss of power after `sync_directory`; before, a journalling
  file system keeps some prefix of the changes.
* An unlinked or renamed file stays readable and writable through the descriptors that are open on it.
* Failures are `OSError` with its errno. A write that failed may have written a part.
* Reading what is not in the page cache waits for the device. `cached` and `read_cached` do not; what they find missing,
  `read_ahead` brings in, and that may be called from a thread. What they say is true of the moment only, and `cached`
  looks at samples: it saves waits, correctness must not hang on it.

Paths are strings; `pathlib` would be measurable in the server's start.
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
"""A file was not opened: of a sync by name, that none was tried."""

TRANSIENT_ERRNOS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EFBIG})
"""Failures that pass when there is room again. Any other is taken for a broken device: its directory goes offline."""

# One page is looked at for every so many bytes; a look costs 0.8 us. Pages come and go in runs: the kernel reads ahead
# 128 kB or more, and drops the oldest first. A hole between two looks costs a wait for the device.
SAMPLE_BYTES = 512 * 1024
# Where the file system cannot say what is cached, the end of a file counts as just written.
_RECENT_BYTES = 4 << 20
_NOWAIT: int = getattr(os, "RWF_NOWAIT", 0)  # Linux only
_CANNOT_SAY = frozenset({errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS})
# Bytes that nobody will look at are read to here, also by several threads at once.
_BYTE = (bytearray(1),)
_THROWN_AWAY = bytearray(64 * 1024)


class File(Protocol):
    """One open file, for reading and writing. There is no current position: every call names its own."""

    fd: int
    """The descriptor, for `os.sendfile`; -1 in memory, where `read_at` is the only way."""

    def read_at(self, position: int, length: int) -> bytes:
        """Up to `length` bytes; fewer only where the file ends."""

    def cached(self, position: int, length: int) -> int:
        """How many of these bytes, from the first on, can most likely be read without waiting for the device.

        Where the file system cannot say, none, unless they were written lately or the file system is in memory.
        """

    def read_cached(self, position: int, buffer: bytearray | memoryview) -> int:
        """Fill `buffer` with what can be read without waiting; how many bytes that was.

        Where the file system cannot say, this waits as `read_at` does.
        """

    def read_ahead(self, position: int, length: int) -> bool:
        """Return when these bytes are in memory, or the file ends; whether the last was not, as `cached` sees it.

        May be called from a thread while other calls go on.
        """

    def write_at(self, buffers: Sequence[Buffer], position: int, length: int) -> None:
        """Write the buffers, `length` bytes in all, one after another: one system call unless the system splits it."""

    def truncate(self, size: int) -> None:
        """Make the file `size` bytes long, cutting it off or filling it with zeros."""

    def size(self) -> int:
        """Bytes in the file."""

    def sync(self) -> None:
        """Return when the content is on the device. May be called from a thread while other calls go on."""

    def close(self) -> None: ...


class Lock(Protocol):
    """A held lock on a directory."""

    def release(self) -> None: ...


class LockHeldError(Exception):
    """Another process, or another server in this one, holds the lock file."""


class FileSystem(Protocol):
    """Names, whole small files, and how to open the rest."""

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File:
        """Open for reading and writing; `FileNotFoundError` for a missing file unless `create`.

        With `read_only` nothing can be written, and a file system that is mounted so does not mind.
        """

    def read_file(self, path: str) -> bytes: ...

    def replace_file(self, path: str, data: Buffer, *, sync: bool) -> None:
        """Write `data` beside `path` and rename it there, so that a reader finds the old or the new content, whole.

        With `sync`, also a reader after the loss of power.
        """

    def list_directory(self, path: str) -> tuple[list[str], list[str]]:
        """Names of the files and of the directories in `path`, in no order.

        A symbolic link is what it leads to, and a file where that is out of reach.
        """

    def link_target(self, path: str) -> str | None:
        """Where the symbolic link `path` leads, as it is written there; None for anything else."""

    def exists(self, path: str) -> bool: ...

    def size(self, path: str) -> int: ...

    def modified_ms(self, path: str) -> int: ...

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        """What `modified_ms` says until the file is changed again."""

    def space(self, path: str) -> tuple[int, int]:
        """Bytes of the file system that holds `path`: all, and those that may still be used; -1 for unknown."""

    def make_directory(self, path: str) -> None:
        """Make `path` and its missing parents; no error if it is there."""

    def rename(self, source: str, target: str) -> None: ...

    def unlink(self, path: str) -> None: ...

    def remove_directory(self, path: str) -> None:
        """Remove a directory, which must be empty (else ENOTEMPTY). There is no call that removes what is in one."""

    def sync_directory(self, path: str) -> None: ...

    def lock(self, path: str, *, shared: bool = False) -> Lock:
        """Take the lock file `path`, making it if missing. Raises `LockHeldError` at once if somebody holds it.

        `shared`: against those who write, by one who only reads and can share it. Then `path` must exist.
        """


def join(directory: str, name: str) -> str:
    """The path of `name` in `directory`, in the real file system and in the twin."""
    return directory + "/" + name


class RealFile:
    """A file of the operating system."""

    __slots__ = ("_can_say", "_durable", "_in_memory", "fd")

    def __init__(self, fd: int, durable: bool) -> None:
        self.fd = fd
        self._durable = durable
        self._can_say = _NOWAIT != 0
        """The file system tells what is cached, as far as we know."""
        self._in_memory = False
        """It does not, because everything is: a tmpfs."""

    def read_at(self, position: int, length: int) -> bytes:
        data = os.pread(self.fd, length, position)
        if len(data) == length or not data:
            return data
        # A short read is the end of the file, or a signal; only reading on tells.
        parts = [data]
        read = len(data)
        while read < length and (data := os.pread(self.fd, length - read, position + read)):
            parts.append(data)
            read += len(data)
        return b"".join(parts)

    def cached(self, position: int, length: int) -> int:
        if not self._can_say:
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
            self._note_cannot_say(error)
            return self._guess_cached(position, length)
        return length

    def read_cached(self, position: int, buffer: bytearray | memoryview) -> int:
        if self._can_say:
            try:
                return os.preadv(self.fd, (buffer,), position, _NOWAIT)
            except BlockingIOError:
                return 0
            except OSError as error:
                self._note_cannot_say(error)
        return os.preadv(self.fd, (buffer,), position)

    def read_ahead(self, position: int, length: int) -> bool:
        was_cold = not self.cached(position + length - 1, 1)
        # An ordinary read, and not POSIX_FADV_WILLNEED: of that the kernel takes no more than it likes, page by page
        # (eight times the CPU time), and nobody knows when it has come.
        end = position + length
        while position < end:
            read = _throw_away(self.fd, position, end - position)
            if not read:
                break
            position += read
        return was_cold

    def _note_cannot_say(self, error: OSError) -> None:
        if error.errno not in _CANNOT_SAY:
            raise error
        self._can_say = False
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
            # What stopped the first write, a full disk for one, is told by the second as an errno.
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
            # fdatasync leaves out the times, and writes the size where it changed; macOS has only fsync.
            getattr(os, "fdatasync", os.fsync)(self.fd)

    def close(self) -> None:
        os.close(self.fd)


def _throw_away(fd: int, position: int, length: int) -> int:
    """Read up to `length` bytes with one system call, for the page cache only; how many, 0 at the end of the file."""
    if sys.platform == "linux":
        return os.sendfile(_null(), fd, position, length)  # nothing is copied
    # Many times the same small buffer, which stays in the processor's cache.
    whole, rest = divmod(min(length, 256 * len(_THROWN_AWAY)), len(_THROWN_AWAY))
    return os.preadv(fd, [*[_THROWN_AWAY] * whole, memoryview(_THROWN_AWAY)[:rest]], position)


@cache
def _null() -> int:
    return os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)


def _is_in_memory(fd: int) -> bool:
    """The file is on a tmpfs: no other file system knows seals."""
    import fcntl

    try:
        fcntl.fcntl(fd, fcntl.F_GET_SEALS)
    except (OSError, AttributeError):  # macOS has no such thing
        return False
    return True


class RealFileSystem:
    """The operating system's files.

    `durable=False` leaves out every sync: for data that nobody needs after a loss of power (tests, throw-away brokers).
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
            # Not simply a large number: the buffer is made first, and a megabyte of it costs more than the read.
            size = os.fstat(fd).st_size
            data = os.read(fd, size) if size else b""
            while len(data) < size and (more := os.read(fd, size - len(data))):
                data += more
            return data
        finally:
            os.close(fd)

    def replace_file(self, path: str, data: Buffer, *, sync: bool) -> None:
        temporary = path + ".tmp"
        file = RealFile(os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644), self._durable)
        try:
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

    def make_directory(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

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
    """A POSIX record lock, the kind that Java takes: an Apache Kafka on the same directory is kept out too.

    Such locks belong to the process, so a second server in this process is kept out by `_held`.
    """

    _held: set[str] = set()  # noqa: RUF012 - one for the process, which is what the lock belongs to

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

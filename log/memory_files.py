"""The in-memory implementation of the port in `files.py`, which can simulate every failure of a disk.

It models a journaling file system with a page cache:

* Each file has its content and, until its next `sync`, the list of unsynced changes.
* Changes of names (creating, renaming, removing) are a journal. `sync` of any file or directory commits all of it, as
  in ext4 and XFS; before that, a crash keeps some prefix of it. With `journalled=False` only the guarantees of POSIX
  hold: only `sync_directory` commits names, those in this directory; before that, a crash may lose them.
* `crash` returns the file system that the next startup finds. After `kill -9` it contains everything that was written.
  After a power failure, the unsynced changes of each file are kept in any combination, which the seed determines: some
  prefix, torn in the middle, reordered, or a length without the content (zeros).

`evict` makes parts of a file cold, as the page cache does under memory pressure: reads of cold bytes that were not read
ahead are counted in `waits`, by path.

`capacity_bytes` limits the disk: a write that does not fit is done in part, then fails with ENOSPC. `fail_with` decides
for every operation whether it fails. `operations_left` ends the process in the middle of the n-th change.

A broker can also run on it: it then needs no directory, and keeps no data.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from .files import Buffer, LockHeldError

if TYPE_CHECKING:
    from random import Random


_PAGE_BYTES = 4096

_Names = dict[str, "_Inode | None"]
"""Files by path; None is a directory."""

_NameChange = tuple[str, "_Inode | None", bool]
"""A change of a name: created with this content, or removed."""


class SimulatedCrash(BaseException):
    """The process dies here. A BaseException, so that no error handler catches it."""


class _Inode:
    __slots__ = ("cold", "content", "modified_ms", "synced", "unsynced")

    def __init__(self, content: bytes = b"") -> None:
        self.content = bytearray(content)
        self.cold: set[int] = set()
        """The numbers of the pages that are not in the page cache."""
        self.modified_ms = 0  # there is no clock here
        self.synced = bytes(content)
        self.unsynced: list[tuple[int, bytes] | int] = []
        """Changes since the last sync, in order: (position, data) written, or the size it was truncated to."""

    def copy(self) -> _Inode:
        """The same file in another file system, with the same changes unsynced."""
        inode = _Inode(bytes(self.content))
        inode.modified_ms = self.modified_ms
        inode.synced = self.synced
        inode.unsynced = list(self.unsynced)
        return inode


class MemoryFile:
    """An open file of a `MemoryFileSystem`."""

    __slots__ = ("_file_system", "_inode", "_path", "_read_only", "fd")

    def __init__(self, file_system: MemoryFileSystem, path: str, inode: _Inode, read_only: bool) -> None:
        self.fd = -1
        self._read_only = read_only
        self._file_system = file_system
        self._path = path
        self._inode: _Inode | None = inode

    def _open_inode(self) -> _Inode:
        if self._inode is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        return self._inode

    def _inode_to_write(self) -> _Inode:
        if self._read_only:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self._path)
        return self._open_inode()

    def read_at(self, position: int, length: int) -> bytes:
        self._file_system.check("read", self._path)
        inode = self._open_inode()
        if inode.cold and not inode.cold.isdisjoint(pages := _pages(position, length)):
            self._file_system.waited(self._path)
            inode.cold.difference_update(pages)
        return bytes(inode.content[position : position + length])

    def cached(self, position: int, length: int) -> int:
        self._file_system.check("read", self._path)
        inode = self._open_inode()
        if not self._file_system.reports_cached_bytes:
            return 0
        for page in _pages(position, length) if inode.cold else ():
            if page in inode.cold:
                return max(0, page * _PAGE_BYTES - position)
        return length

    def read_cached(self, position: int, buffer: bytearray | memoryview) -> int:
        if not self._file_system.reports_cached_bytes:
            data = self.read_at(position, len(buffer))
        else:
            data = self.read_at(position, self.cached(position, len(buffer)))
        buffer[: len(data)] = data
        return len(data)

    def read_ahead(self, position: int, length: int) -> bool:
        self._file_system.check("read ahead", self._path)
        self._file_system.read_aheads.append((self._path, position, length))
        was_cold = not self.cached(position + length - 1, 1)
        if not self._file_system.forgets_read_ahead:
            self._open_inode().cold.difference_update(_pages(position, length))
        return was_cold

    def write_at(self, buffers: Sequence[Buffer], position: int, length: int) -> None:
        data = b"".join(buffers)
        if len(data) != length:
            raise ValueError(f"the buffers hold {len(data)} bytes, not {length}")
        inode = self._inode_to_write()
        allowed, error = self._file_system.admit_write(self._path, len(inode.content), position, len(data))
        data = data[:allowed]
        if data:
            _write(inode.content, position, data)
            inode.cold.difference_update(_pages(position, len(data)))
            if self._file_system.recording:
                inode.unsynced.append((position, data))
        if error is not None:
            raise error

    def truncate(self, size: int) -> None:
        self._file_system.check("truncate", self._path)
        inode = self._inode_to_write()
        _truncate(inode.content, size)
        if self._file_system.recording:
            inode.unsynced.append(size)

    def size(self) -> int:
        return len(self._open_inode().content)

    def sync(self) -> None:
        self._file_system.check("sync", self._path)
        inode = self._open_inode()
        if self._file_system.recording:
            inode.synced = bytes(inode.content)
            inode.unsynced.clear()
            if self._file_system.journalled:
                self._file_system.commit_names()

    def close(self) -> None:
        self._open_inode()
        self._inode = None
        self._file_system.open_files -= 1


class MemoryLock:
    """A held lock of a `MemoryFileSystem`."""

    def __init__(self, held: set[str], path: str) -> None:
        self._held = held
        self._path = path

    def release(self) -> None:
        self._held.discard(self._path)


class MemoryFileSystem:
    """See the module docstring. All paths are absolute; the root exists from the beginning.

    `recording=False` does not record unsynced changes: for a broker that runs in memory. `journalled`: see the module
    docstring.
    """

    def __init__(self, *, recording: bool = True, journalled: bool = True) -> None:
        self.recording = recording
        self.journalled = journalled
        self._names: _Names = {"": None}
        self._durable_names: _Names = {"": None}
        self._journal: list[
            list[_NameChange]
        ] = []  # that lead from the durable names to the names, one after the other
        self._moved: list[tuple[str, str]] = []  # directories that were renamed since their parents were synced
        self._locks: set[str] = set()
        self.open_files = 0
        """The number of open files, for tests of descriptors."""
        self.capacity_bytes: int | None = None
        self.fail_with: Callable[[str, str], int | None] | None = None
        """Called with (operation, path) before each operation; an errno that it returns is raised.

        Operations are read, read ahead, write, truncate, sync, open, create, rename, unlink, list and directory.
        """
        self.waits: dict[str, int] = {}
        """The number of reads of cold bytes, which would have waited for the device, by path."""
        self.read_aheads: list[tuple[str, int, int]] = []
        """Path, position and length of each `read_ahead`."""
        self.forgets_read_ahead = False
        """Memory is so short that pages that were read ahead are evicted before they are used."""
        self.reports_cached_bytes = True
        self.operations_left: int | None = None
        """Changes until `SimulatedCrash`; if the last one is a write, half of it is done."""

    # File

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> MemoryFile:
        inode = self._names.get(path)
        if inode is None:
            if path in self._names:
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
            if not create:
                self.check("open", path)
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            self.check("create", path)
            self._need_directory(path)
            inode = _Inode()
            self._change_names([(path, inode, True)])
        else:
            self.check("open", path)
        self.open_files += 1
        return MemoryFile(self, path, inode, read_only)

    def read_file(self, path: str) -> bytes:
        file = self.open(path)
        try:
            return file.read_at(0, file.size())
        finally:
            file.close()

    def replace_file(self, path: str, data: Buffer, *, sync: bool, private: bool = False) -> None:
        temporary = path + ".tmp"
        file = self.open(temporary, create=True)
        try:
            file.truncate(0)
            file.write_at((data,), 0, len(data))
            if sync:
                file.sync()
        except OSError:
            self.unlink(temporary)
            raise
        finally:
            file.close()
        self.rename(temporary, path)
        if sync:
            self.sync_directory(path.rpartition("/")[0])

    # Names

    def list_directory(self, path: str) -> tuple[list[str], list[str]]:
        self.check("list", path)
        if self._names.get(path, "missing") is not None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        files: list[str] = []
        directories: list[str] = []
        for name, inode in list(self._names.items()):  # a thread may be changing them
            parent, _, last = name.rpartition("/")
            if parent == path and last:
                (directories if inode is None else files).append(last)
        return files, directories

    def link_target(self, path: str) -> str | None:
        return None

    def exists(self, path: str) -> bool:
        return path in self._names

    def size(self, path: str) -> int:
        inode = self._names.get(path)
        if inode is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return len(inode.content)

    def modified_ms(self, path: str) -> int:
        self.size(path)
        inode = self._names[path]
        assert inode is not None
        return inode.modified_ms

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        self.size(path)
        inode = self._names[path]
        assert inode is not None
        inode.modified_ms = modified_ms

    def make_directory(self, path: str, *, private: bool = False) -> None:
        if path in self._names:
            if self._names[path] is not None:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
            return
        self.make_directory(path.rpartition("/")[0])
        self.check("directory", path)
        self._change_names([(path, None, True)])

    def rename(self, source: str, target: str) -> None:
        self.check("rename", source)
        if source not in self._names:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), source)
        self._need_directory(target)
        moved = self._names[source]
        changes: list[_NameChange] = []
        # With a copy of the names, as a thread may be removing files.
        for name, inode in list(self._names.items()) if moved is None else [(source, moved)]:
            if name == source or name.startswith(source + "/"):
                changes += (name, None, False), (target + name[len(source) :], inode, True)
        if self.recording and moved is None and source.rpartition("/")[0] == target.rpartition("/")[0]:
            self._moved.append((source, target))
        self._change_names(changes)

    def unlink(self, path: str) -> None:
        self.check("unlink", path)
        if self._names.get(path) is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        self._change_names([(path, None, False)])

    def remove_directory(self, path: str) -> None:
        self.check("unlink", path)
        if path not in self._names:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        if self._names[path] is not None:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        if any(name.startswith(path + "/") for name in list(self._names)):  # a thread may be changing them
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), path)
        self._change_names([(path, None, False)])

    def sync_directory(self, path: str) -> None:
        self.check("sync", path)
        if self._names.get(path, "missing") is not None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        if self.journalled:
            self.commit_names()
        elif self.recording:
            self._commit_names_in(path)

    def space(self, path: str) -> tuple[int, int]:
        if self.capacity_bytes is None:
            return -1, -1
        return self.capacity_bytes, max(0, self.capacity_bytes - self.used_bytes())

    def lock(self, path: str, *, shared: bool = False) -> MemoryLock:
        if path in self._locks:
            raise LockHeldError(path)
        self.open(path, create=not shared).close()
        self._locks.add(path)
        return MemoryLock(self._locks, path)

    # What goes wrong

    def check(self, operation: str, path: str) -> None:
        """Fail or die here if the test requires it; called before every operation."""
        if self.fail_with is not None:
            code = self.fail_with(operation, path)
            if code is not None:
                raise OSError(code, os.strerror(code), path)
        if operation not in ("read", "read ahead", "open", "list"):
            self._count_down()

    def admit_write(
        self, path: str, size: int, position: int, length: int
    ) -> tuple[int, Exception | SimulatedCrash | None]:
        """The number of bytes that are written, and the exception that is then raised."""
        try:
            self.check("write", path)
        except SimulatedCrash as crash:
            return length // 2, crash
        if self.capacity_bytes is not None:
            room = self.capacity_bytes - self.used_bytes() + max(0, size - position)
            if length > room:
                return max(0, room), OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        return length, None

    def evict(self, path: str, position: int = 0, length: int | None = None) -> None:
        """Make these bytes of a file cold, by default all."""
        inode = self._names[path]
        assert inode is not None
        inode.cold.update(_pages(position, len(inode.content) - position if length is None else length))

    def waited(self, path: str) -> None:
        self.waits[path] = self.waits.get(path, 0) + 1

    def used_bytes(self) -> int:
        return sum(len(inode.content) for inode in self._names.values() if inode is not None)

    def _count_down(self) -> None:
        if self.operations_left is not None:
            if self.operations_left <= 0:
                raise SimulatedCrash
            self.operations_left -= 1

    def crash(self, random: Random | None = None, *, discard_unsynced: bool = False) -> MemoryFileSystem:
        """The file system that the next process finds.

        Without `random` the process was killed, and all its writes survive. With it the power failed, and `random`
        selects the unsynced changes that survive. With `discard_unsynced` the power failed, and no unsynced change
        survives.

        It may be called while a thread is flushing: syncs that have not returned do not count.
        """
        survivor = MemoryFileSystem(journalled=self.journalled)
        copies: dict[int, _Inode] = {}
        if random is None and not discard_unsynced:

            def copy(inode: _Inode | None) -> _Inode | None:
                if inode is not None and id(inode) not in copies:
                    copies[id(inode)] = inode.copy()
                return None if inode is None else copies[id(inode)]

            # It makes nothing durable: the next power failure may still lose unsynced changes.
            survivor._names = {name: copy(inode) for name, inode in list(self._names.items())}
            survivor._durable_names = {name: copy(inode) for name, inode in list(self._durable_names.items())}
            survivor._journal = [
                [(name, copy(inode), there) for name, inode, there in changes] for changes in self._journal
            ]
            return survivor
        names = self._reachable(dict(self._durable_names))
        if random is not None and self.journalled:
            committed = random.choice(range(1 + len(self._journal)))
            for changes in self._journal[:committed]:
                _apply(changes, names)
        elif random is not None:
            names = random.choice([names, self._names])
        for name, inode in list(names.items()):
            if inode is None:
                survivor._names[name] = None
            else:
                content = inode.synced if random is None else _after_power_loss(inode, random)
                copies.setdefault(id(inode), _Inode(content))
                survivor._names[name] = copies[id(inode)]
        survivor._durable_names = dict(survivor._names)
        return survivor

    def commit_names(self) -> None:
        """The journal of names becomes durable."""
        self._durable_names = dict(self._names)
        self._journal.clear()
        self._moved.clear()

    def _commit_names_in(self, directory: str) -> None:
        """The names in one directory become durable; not the contents of a directory that was created or moved here. A
        directory that was renamed within its parent keeps its durable contents."""

        def names_in(names: _Names) -> list[str]:
            # In order, not a set: a crash draws for each name in turn, and a seed must give the same result again.
            return [name for name in names if name and name.rpartition("/")[0] == directory]

        durable = self._durable_names
        for source, target in [moved for moved in self._moved if moved[0].rpartition("/")[0] == directory]:
            self._moved.remove((source, target))
            for name in [name for name in durable if name == source or name.startswith(source + "/")]:
                durable[target + name.removeprefix(source)] = durable.pop(name)
        for gone in [name for name in names_in(durable) if name not in self._names]:
            for name in [name for name in durable if name == gone or name.startswith(gone + "/")]:
                del durable[name]
        for name in names_in(self._names):
            durable[name] = self._names[name]

    @staticmethod
    def _reachable(names: _Names) -> _Names:
        """Without names in directories that do not exist."""
        return {
            name: inode
            for name, inode in names.items()
            if all(name[:end] in names for end in range(len(name)) if name[end] == "/")
        }

    def _change_names(self, changes: list[_NameChange]) -> None:
        _apply(changes, self._names)
        if self.recording and self.journalled:
            self._journal.append(changes)

    def _need_directory(self, path: str) -> None:
        parent = path.rpartition("/")[0]
        if self._names.get(parent, "missing") is not None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)


def _apply(changes: list[_NameChange], names: _Names) -> None:
    for name, inode, there in changes:
        if there:
            names[name] = inode
        else:
            del names[name]


def _pages(position: int, length: int) -> range:
    return range(position // _PAGE_BYTES, -(-(position + length) // _PAGE_BYTES)) if length > 0 else range(0)


def _write(content: bytearray, position: int, data: bytes) -> None:
    if position > len(content):
        content.extend(bytes(position - len(content)))
    content[position : position + len(data)] = data


def _truncate(content: bytearray, size: int) -> None:
    if size < len(content):
        del content[size:]
    else:
        content.extend(bytes(size - len(content)))


def _after_power_loss(inode: _Inode, random: Random) -> bytes:
    """The durable content of a file with unsynced changes after a crash."""
    changes = inode.unsynced
    content = bytearray(inode.synced)
    kind = random.choice(("all", "prefix", "torn", "reordered", "zeros"))
    kept = len(changes) if kind == "all" else random.randint(0, len(changes))
    for number, change in enumerate(changes[:kept]):
        last = number == kept - 1
        if isinstance(change, int):
            _truncate(content, change)
            continue
        position, data = change
        if kind == "torn" and last:
            data = data[: random.randint(0, len(data))]
        elif kind == "reordered" and random.random() < 0.3:
            continue
        elif kind == "zeros" and random.random() < 0.3:
            data = bytes(len(data))
        _write(content, position, data)
    return bytes(content)

"""Temporary directories of ephemeral servers: removed at exit, or by a later startup after a crash.

A directory may be removed if it has the marker file that this module writes, belongs to the same user, and no living
process holds the lock on the marker. The kernel releases the lock however a process ends. The marker gets its name only
after it is locked: an unlocked marker belongs to a dead process. The directory's name alone proves nothing.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import shutil
import stat
import tempfile
import weakref

logger = logging.getLogger(__name__)

PREFIX = "moldau-"
MARKER = ".moldau-ephemeral"
_CONTENT = b"Moldau made this directory and removes it once no process holds the lock of this file.\n"
# A thread or a worker may create a file while the directory is removed.
_ATTEMPTS = 10


class EphemeralDirectory:
    """A new temporary directory, and its lock. `remove` deletes it; so does the deletion of this object."""

    def __init__(self, prefix: str = PREFIX) -> None:
        """The prefix must begin with `PREFIX`."""
        self.path = tempfile.mkdtemp(prefix=prefix)
        try:
            marker = os.open(os.path.join(self.path, MARKER + ".new"), os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
            try:
                fcntl.flock(marker, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.write(marker, _CONTENT)
                os.rename(os.path.join(self.path, MARKER + ".new"), os.path.join(self.path, MARKER))
            except BaseException:
                os.close(marker)
                raise
        except BaseException:
            _remove(self.path)
            raise
        self._finalizer = weakref.finalize(self, _remove_and_unlock, self.path, marker)

    def remove(self) -> bool:
        """Remove the directory with its contents. Returns false if it was, or is being, removed already."""
        if not self._finalizer.alive:
            return False
        self._finalizer()
        return True


def remove_leftovers() -> list[str]:
    """Remove the leftover directories of dead processes. Returns their paths."""
    removed = []
    try:
        with os.scandir(tempfile.gettempdir()) as entries:
            found = [entry.path for entry in entries if entry.name.startswith(PREFIX)]
    except OSError as error:
        logger.debug("Cannot search for leftover directories of killed servers: %s", error)
        return []
    for path in found:
        marker = _lock_of_dead(path)
        if marker is None:
            continue
        try:
            _remove(path)
        finally:
            os.close(marker)
        if os.path.lexists(path):
            logger.warning("Cannot remove %s, which a killed server left behind", path)
        else:
            removed.append(path)
    return removed


def _lock_of_dead(path: str) -> int | None:
    """The locked marker of a directory that a dead process has left; None for any other directory."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        directory = os.open(path, flags | os.O_DIRECTORY)
    except OSError:
        return None
    try:
        marker = os.open(MARKER, flags, dir_fd=directory)
    except OSError:
        return None
    finally:
        status = os.fstat(directory)
        os.close(directory)
    keep = False
    try:
        if (
            status.st_uid == os.geteuid()
            and stat.S_ISREG(os.fstat(marker).st_mode)
            and os.read(marker, len(_CONTENT) + 1) == _CONTENT
        ):
            fcntl.flock(marker, fcntl.LOCK_EX | fcntl.LOCK_NB)
            keep = True
    except OSError:
        return None  # it is in use, or its file system does not support locks
    finally:
        if not keep:
            os.close(marker)
    return marker if keep else None


def _remove_and_unlock(path: str, marker: int) -> None:
    _remove(path)
    os.close(marker)


def _remove(path: str) -> None:
    """Remove a directory. The marker is removed last: after an interruption, a later startup continues."""
    for _ in range(_ATTEMPTS):
        for name in _names(path):
            if name == MARKER:
                continue
            child = os.path.join(path, name)
            if os.path.isdir(child) and not os.path.islink(child):
                shutil.rmtree(child, ignore_errors=True)
            else:
                with contextlib.suppress(OSError):
                    os.unlink(child)
        if set(_names(path)) <= {MARKER}:
            break
    shutil.rmtree(path, ignore_errors=True)


def _names(path: str) -> list[str]:
    try:
        return os.listdir(path)
    except OSError:
        return []

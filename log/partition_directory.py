"""Whether a directory is a partition's, by what is in it: any directory of a user may be called `backup-2024`.

A partition's directory holds files of Kafka's names (`names.is_partition_file`), at least one, and nothing else: no
other file, no directory, no symbolic link. Only such a directory is renamed or removed without being asked for by its
topic; anything else stays where and as it is.
"""

from __future__ import annotations

import contextlib
import errno
from typing import NamedTuple

from .files import FileSystem, join
from .names import is_partition_file


class Contents(NamedTuple):
    """What is in a directory."""

    has_partition_files: bool
    foreign: str | None
    """What is not a partition's, one of it in words; None without any."""

    @property
    def is_partition(self) -> bool:
        return self.has_partition_files and self.foreign is None

    @property
    def why_not(self) -> str:
        """Why it is not a partition's directory."""
        return self.foreign if self.foreign is not None else "it is empty"


def look_into(file_system: FileSystem, path: str) -> Contents:
    """What is in the directory `path`. An `OSError` passes through, but for one that may not be read."""
    try:
        files, directories = file_system.list_directory(path)
    except PermissionError:
        return Contents(False, "it may not be read")
    if directories:
        return Contents(any(map(is_partition_file, files)), f"it holds the directory {min(directories)}")
    foreign = min((name for name in files if not is_partition_file(name)), default=None)
    if foreign is not None:
        return Contents(any(map(is_partition_file, files)), f"it holds {foreign}, which is not a file of a partition")
    for name in files:
        if file_system.link_target(join(path, name)) is not None:
            return Contents(True, f"it holds the symbolic link {name}")
    return Contents(bool(files), None)


def remove_partition_directory(file_system: FileSystem, path: str) -> None:
    """Remove a partition's directory, which was renamed for it; of a symbolic link the link alone. No error if it is
    gone.

    Raises `OSError` ENOTEMPTY and removes nothing where it holds anything else. May be called from a thread.
    """
    if file_system.link_target(path) is not None:
        file_system.unlink(path)
        return
    try:
        foreign = look_into(file_system, path).foreign
        if foreign is not None:
            raise OSError(errno.ENOTEMPTY, f"{foreign}. Move that away; the next start removes the rest", path)
        for name in file_system.list_directory(path)[0]:
            if is_partition_file(name):
                with contextlib.suppress(FileNotFoundError):
                    file_system.unlink(join(path, name))
        file_system.remove_directory(path)
    except FileNotFoundError:
        return

"""Whether a directory is a partition's, by its contents: a directory of a user may be named `backup-2024`, for example.

A partition's directory contains at least one file with a name of Kafka's (`names.is_partition_file`), and nothing else:
no other file, no directory, no symbolic link. Only such a directory is renamed or removed if its topic is unknown; any
other directory is not changed.
"""

from __future__ import annotations

import contextlib
import errno

from ..protocol.named_tuples import NamedTuple
from .checkpoints import TopicPartition
from .directory import LogDirectory
from .files import FileSystem, join
from .names import is_partition_file, retired_directory_name


class Contents(NamedTuple):
    """The contents of a directory."""

    has_partition_files: bool
    foreign: str | None
    """A description of one entry that is not a partition's; None if there is none."""

    @property
    def is_partition(self) -> bool:
        return self.has_partition_files and self.foreign is None

    @property
    def problem(self) -> str:
        """Why it is not a partition's directory."""
        return self.foreign if self.foreign is not None else "it is empty"


def inspect_partition_directory(file_system: FileSystem, path: str) -> Contents:
    """The contents of the directory `path`. Raises `OSError`, except if the directory may not be read."""
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
    """Remove a partition's directory, which was renamed before; of a symbolic link only the link. No error if it is
    missing.

    Raises `OSError` ENOTEMPTY, and removes nothing, if it contains anything else. May be called from a thread.
    """
    if file_system.link_target(path) is not None:
        file_system.unlink(path)
        return
    try:
        foreign = inspect_partition_directory(file_system, path).foreign
        if foreign is not None:
            raise OSError(errno.ENOTEMPTY, f"{foreign}. Move it away; the next startup removes the rest", path)
        for name in file_system.list_directory(path)[0]:
            if is_partition_file(name):
                with contextlib.suppress(FileNotFoundError):
                    file_system.unlink(join(path, name))
        file_system.remove_directory(path)
    except FileNotFoundError:
        return


def retire_directory(
    file_system: FileSystem, path: str, key: TopicPartition, directory: LogDirectory, suffix: str
) -> str:
    """Give a partition's directory a name in `directory` with a suffix; the new path. Raises `OSError`."""
    renamed = unique_path(key, directory, suffix)
    file_system.rename(path, renamed)
    return renamed


def unique_path(key: TopicPartition, directory: LogDirectory, suffix: str) -> str:
    """A new path in `directory` for a directory of the partition with this suffix."""
    return join(directory.path, retired_directory_name(*key, directory.new_uuid().hex(), suffix))


def blocking_message(path: str, what: str) -> str:
    """The error message for a directory that has the partition's name and is not the partition's."""
    return f"{path} blocks the partition: {what}. Move it to another location"

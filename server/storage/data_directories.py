"""Whether a directory may become a data directory: checked before startup creates, locks or writes anything.

A directory with `meta.properties` is a data directory. Any other directory must be missing or empty, as for `initdb`: a
mistyped path must not mix the server's files with other files. `lost+found`, hidden files, and leftovers of an
interrupted first startup do not count. `moldau serve --allow-non-empty` overrides this check, except for the
directories of the operating system and the user's home directory itself.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from ...log.checkpoints import META_PROPERTIES, RECOVERY_POINT_CHECKPOINT
from ...log.files import FileSystem, join
from ...log.names import TEMPORARY
from .ownership import was_used

_NAMED_AT_MOST = 3

_OF_A_FIRST_START = frozenset(
    {RECOVERY_POINT_CHECKPOINT, RECOVERY_POINT_CHECKPOINT + TEMPORARY, META_PROPERTIES + TEMPORARY}
)
"""Files that are written before `meta.properties`; see `LogDirectory.adopt`."""

_SYSTEM_DIRECTORIES = frozenset(
    (
        *("/", "/bin", "/boot", "/dev", "/dev/shm", "/etc", "/home", "/lib", "/lib32", "/lib64", "/libx32", "/opt"),
        *("/proc", "/root", "/run", "/sbin", "/sys", "/tmp", "/usr", "/var"),
        *(f"/usr/{name}" for name in ("bin", "include", "lib", "lib64", "libexec", "local", "sbin", "share", "src")),
        *(f"/usr/local/{name}" for name in ("bin", "etc", "lib", "sbin", "share")),
        *(f"/var/{name}" for name in ("cache", "lib", "lock", "log", "mail", "opt", "run", "spool", "tmp")),
        *("/Applications", "/Library", "/System", "/Users", "/Users/Shared", "/Volumes", "/cores", "/opt/homebrew"),
        *("/private", "/private/etc", "/private/tmp", "/private/var", "/private/var/tmp"),
    )
)
"""Directories of Linux and macOS. Their subdirectories are permitted, except those of the kernel's file systems."""

_OF_THE_KERNEL = ("/proc/", "/sys/")


class DataDirectoryError(Exception):
    """A directory must not be used for data. Nothing was changed. The message is for the user."""


def check_data_directories(file_system: FileSystem, paths: Iterable[str], *, allow_non_empty: bool) -> None:
    """Raise `DataDirectoryError` for the first directory that must not become a data directory.

    A directory that is missing or cannot be read passes: opening it creates it or fails with the reason.
    """
    for path in paths:
        try:
            _check(file_system, path or "/", allow_non_empty)
        except OSError:
            continue


def _check(file_system: FileSystem, path: str, allow_non_empty: bool) -> None:
    if file_system.exists(join(path, META_PROPERTIES)):
        return
    what = _system_directory(path)
    if what is not None:
        raise DataDirectoryError(
            f"{path} is {what}, not a data directory. Use a directory for Moldau alone, for example /var/lib/moldau. "
            "Nothing was changed."
        )
    if allow_non_empty or was_used(file_system, path):
        return
    files, directories = file_system.list_directory(path)
    found = sorted(name for name in (*files, *directories) if not _does_not_count(name))
    if found:
        more = f" and {len(found) - _NAMED_AT_MOST} more" if len(found) > _NAMED_AT_MOST else ""
        raise DataDirectoryError(
            f"{path} is not empty and is not a data directory: it has no {META_PROPERTIES}, but contains "
            f"{', '.join(found[:_NAMED_AT_MOST])}{more}. Use a new or empty directory, or start once with "
            "--allow-non-empty to store the data next to these files. Nothing was changed."
        )


def _does_not_count(name: str) -> bool:
    return name.startswith(".") or name == "lost+found" or name in _OF_A_FIRST_START


def _system_directory(path: str) -> str | None:
    real = os.path.realpath(path)
    if real != "/" and real in _homes():
        return "your home directory"
    if real in _SYSTEM_DIRECTORIES or real.startswith(_OF_THE_KERNEL):
        return "a directory of the operating system"
    return None


def _homes() -> set[str]:
    """Home directories from the environment and from the user database, which may differ (sudo)."""
    return {
        os.path.realpath(home)
        for home in (os.path.expanduser("~"), os.path.expanduser(f"~{_user()}"))
        if home[:1] == "/"
    }


def _user() -> str:
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a container's user without a name
        return ""

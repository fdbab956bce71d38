"""``ivy_lock()``: one process at a time downloads the connector.

Spark fetches packages with Ivy, which does not expect another process in its cache: two that start at the same time
on a machine without the jars damage each other's files, and all later starts fail.
"""

from __future__ import annotations

import fcntl
import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from .connector import PACKAGES

IVY = "spark.jars.ivy"

logger = logging.getLogger(__name__)


@contextmanager
def ivy_lock(settings: Mapping[str, str]) -> Iterator[None]:
    """Hold the user's lock of Ivy while a JVM with these settings starts; the lock ends with the process.

    Without packages in the settings there is nothing to fetch, and no lock. A lock that cannot be created, for example
    because the home directory is read-only, is only logged.
    """
    if not settings.get(PACKAGES):
        yield
        return
    path = lock_file(settings)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        logger.warning("no lock for the download of Spark's packages: %s", error)
        yield
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def lock_file(settings: Mapping[str, str]) -> Path:
    """The lock of a user, or of the folder that ``spark.jars.ivy`` names."""
    if folder := settings.get(IVY):
        return Path(folder) / ".moldau.lock"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "moldau" / "ivy.lock"

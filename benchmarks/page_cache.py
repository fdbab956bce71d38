"""Moves files in and out of the kernel's page cache: a measurement of cold reads must ensure that they are cold."""

from __future__ import annotations

import ctypes
import mmap
import os
import time
from collections.abc import Iterable
from pathlib import Path

_libc = ctypes.CDLL(None, use_errno=True)


def evict(files: Iterable[Path]) -> None:
    """Write ``files`` to the disk and drop their pages. Mapped pages are kept."""
    for file in files:
        descriptor = os.open(file, os.O_RDONLY)
        try:
            os.fsync(descriptor)  # an unwritten page cannot be dropped
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def evict_all(files: Iterable[Path], *, seconds: float = 5.0) -> bool:
    """Evict until no page of ``files`` is in memory: the kernel keeps pages that are in use. False if some remain after
    ``seconds``, as with a file system in memory."""
    files = list(files)
    deadline = time.monotonic() + seconds
    while True:
        evict(files)
        if not cached_share(files):
            return True
        if time.monotonic() > deadline:
            return False
        time.sleep(0.001)


def sync(files: Iterable[Path]) -> None:
    """Write ``files`` to the disk, so that the kernel does not do it during a measurement."""
    for file in files:
        descriptor = os.open(file, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def cached_share(files: Iterable[Path]) -> float:
    """The share of the pages of ``files`` that is in memory, from 0 to 1.

    Determined with ``mincore``, which does not access the pages. A ``preadv`` with RWF_NOWAIT would start a read-ahead.
    """
    pages = cached = 0
    for file in files:
        in_memory = _pages_in_memory(file)
        pages += len(in_memory)
        cached += sum(page & 1 for page in in_memory)
    return cached / pages if pages else 0.0


def _pages_in_memory(file: Path) -> bytes:
    """A byte for each page of ``file``; its lowest bit is set if the page is in memory."""
    with file.open("rb") as opened:
        size = os.fstat(opened.fileno()).st_size
        if not size:
            return b""
        # A copy-on-write map, because ctypes only accepts the address of writable memory. It is not written.
        with mmap.mmap(opened.fileno(), size, access=mmap.ACCESS_COPY) as mapped:
            start = ctypes.c_char.from_buffer(mapped)
            answer = (ctypes.c_ubyte * -(-size // mmap.PAGESIZE))()
            failed = _libc.mincore(ctypes.c_void_p(ctypes.addressof(start)), ctypes.c_size_t(size), answer)
            error = ctypes.get_errno()
            del start  # otherwise the map could not be closed
            if failed:
                raise OSError(error, os.strerror(error), str(file))
            return bytes(answer)

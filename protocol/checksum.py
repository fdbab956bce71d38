"""CRC-32C (Castagnoli), the checksum of record batches, producer snapshots and raft snapshots.

The work is done by the `crc32c` package (19 GB/s with the processor's instruction). Importing that package the usual
way costs 20 ms, all of it `importlib.metadata` reading the package's own version, which would be a tenth of the
server's start. So its extension module is loaded by path, and the package itself only if that ever stops working.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
from collections.abc import Callable
from typing import Any

__all__ = ["crc32c"]


def _load() -> Callable[..., int]:
    """The C function `crc32c(data, value=0) -> int`."""
    package = importlib.util.find_spec("crc32c")
    for folder in (package.submodule_search_locations or ()) if package is not None else ():
        finder = importlib.machinery.FileFinder(
            folder, (importlib.machinery.ExtensionFileLoader, importlib.machinery.EXTENSION_SUFFIXES)
        )
        extension = finder.find_spec("_crc32c")
        if extension is not None and extension.loader is not None:
            module: Any = importlib.util.module_from_spec(extension)
            extension.loader.exec_module(module)
            function: Callable[..., int] = module.crc32c
            return function
    from crc32c import crc32c as from_package

    return from_package


crc32c = _load()
"""`crc32c(data, value=0) -> int`: the CRC-32C of a bytes-like object, continued from `value`."""

"""CRC-32C (Castagnoli), the checksum of record batches, producer snapshots and raft snapshots.

The `crc32c` package does the work (19 GB/s with the processor's instruction). A normal import of that package costs
20 ms, because `importlib.metadata` reads the package's own version. This would be a tenth of the server's startup. So
the extension module is loaded by path, and the package itself is only imported if that fails.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
from collections.abc import Callable, Generator
from typing import Any

__all__ = ["STEP_BYTES", "crc32c", "crc32c_joined", "crc32c_steps"]


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

STEP_BYTES = 1 << 20
"""Bytes per step of `crc32c_steps`: 0.1 to 0.3 ms."""


def crc32c_steps(data: memoryview, value: int = 0) -> Generator[int, None, int]:
    """The same as `crc32c`, in steps between which other tasks can run; it yields 0."""
    for start in range(0, len(data), STEP_BYTES):
        value = crc32c(data[start : start + STEP_BYTES], value)
        yield 0
    return value


def crc32c_joined(first: int, second: int, second_size: int) -> int:
    """The checksum of two consecutive pieces of data, from the checksums of both: a multiplication of polynomials,
    0.3 ms for any size.

    ``second_size`` bytes after ``first`` multiply it by x to the power of 8 * ``second_size``. The same operation
    removes a prefix: ``crc32c_joined(first, whole, second_size)`` is the checksum of the second piece.
    """
    power, factor = 1 << 31, 1 << 23  # 1 and x^8; the highest bit is the coefficient of x^0
    while second_size:
        if second_size & 1:
            power = _product(power, factor)
        factor = _product(factor, factor)
        second_size >>= 1
    return _product(first, power) ^ second


_POLYNOMIAL = 0x82F63B78


def _product(first: int, second: int) -> int:
    """The product of two polynomials over GF(2), modulo that of CRC-32C. Their bits are reversed."""
    product = 0
    for bit in range(31, -1, -1):
        if first >> bit & 1:
            product ^= second
        second = second >> 1 ^ _POLYNOMIAL if second & 1 else second >> 1
    return product

"""Record batches for cases: valid ones, and ones with one wrong field."""

from __future__ import annotations

import struct
import time
from typing import Any

from ..protocol.checksum import crc32c
from ..protocol.records import CRC_POSITION, Record, build_batch

MAGIC_AT = 16
ATTRIBUTES_AT = 21
LAST_OFFSET_DELTA_AT = 23
RECORD_COUNT_AT = 57


def records(*values: bytes | None, timestamp: int | None = None) -> list[Record]:
    """Records without keys, stamped with the present time or with `timestamp` (milliseconds)."""
    when = int(time.time() * 1000) if timestamp is None else timestamp
    return [Record(timestamp=when, value=value) for value in values]


def batch(*values: bytes | None, timestamp: int | None = None, **options: Any) -> bytes:
    """A batch of records without keys. `options` are those of `build_batch`."""
    return build_batch(records(*values, timestamp=timestamp), **options)


def changed(data: bytes, position: int, new: bytes, *, with_crc: bool = True) -> bytes:
    """A batch with other bytes at a position, and the CRC that belongs to them unless `with_crc` is false."""
    result = bytearray(data)
    result[position : position + len(new)] = new
    if with_crc:
        struct.pack_into(">I", result, CRC_POSITION, crc32c(memoryview(result)[ATTRIBUTES_AT:]))
    return bytes(result)

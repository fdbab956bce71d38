"""The batch that replaces one of which not all records are kept, or that gets a delete horizon.

A small batch is made in memory. Of a large one (`parts.LargeRecords`), the records come piece by piece, and then the
header, which has their size, their CRC and their largest timestamp.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from ...protocol.checksum import crc32c, crc32c_joined
from ...protocol.compression import compress, compressor
from ...protocol.records import (
    BATCH_OVERHEAD,
    CODEC_MASK,
    CONTROL_MASK,
    DELETE_HORIZON_MASK,
    LOG_OVERHEAD,
    MAGIC,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
    wrap_int64,
)
from .parts import LargeRecords, Part
from .reading import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_SEQUENCE,
    BASE_TIMESTAMP,
    LAST_OFFSET_DELTA,
    LEADER_EPOCH,
    MAX_TIMESTAMP,
    PRODUCER_EPOCH,
    PRODUCER_ID,
)
from .records import rewrite

_PREFIX = Struct(">qiibI")
_CRC_COVERED_HEADER = Struct(">hiqqqhii")


class Changed(NamedTuple):
    """A rewritten batch."""

    data: bytes
    max_timestamp: int


def emptied(fields: tuple[int, ...]) -> Changed:
    """A batch without its records."""
    attributes = fields[ATTRIBUTES] & (TIMESTAMP_TYPE_MASK | TRANSACTIONAL_MASK | CONTROL_MASK)
    max_timestamp = fields[MAX_TIMESTAMP]
    covered = _covered_header(fields, attributes, NO_TIMESTAMP, max_timestamp, 0)
    return Changed(_prefix(fields, crc32c(covered), 0) + covered, max_timestamp)


def rebuilt(
    fields: tuple[int, ...], part: Part, flags: bytearray, count: int, delete_horizon_ms: int | None
) -> Changed:
    """A batch of one part, with the `count` records whose flag is set."""
    times = _Times(fields, delete_horizon_ms)
    data = times.rewrite(part, flags)
    if codec := fields[ATTRIBUTES] & CODEC_MASK:
        data = compress(codec, data)
    covered = times.covered_header(count)
    prefix = _prefix(fields, crc32c(data, crc32c(covered)), len(data))
    return Changed(b"".join((prefix, covered, data)), times.max_timestamp)


class Rebuilding:
    """The same, of a large batch. `pieces` is called once, then `header`."""

    __slots__ = ("_count", "_crc", "_fields", "_flags", "_records", "_size", "_times")

    def __init__(
        self,
        fields: tuple[int, ...],
        records: LargeRecords,
        flags: bytearray,
        count: int,
        delete_horizon_ms: int | None,
    ) -> None:
        self._fields = fields
        self._records = records
        self._flags = flags
        self._count = count
        self._times = _Times(fields, delete_horizon_ms)
        self._crc = self._size = 0

    def pieces(self) -> Iterator[bytes]:
        """What follows the header. Raises `InvalidRecordsError`."""
        output = compressor(self._fields[ATTRIBUTES] & CODEC_MASK)
        for plain in self._plain_pieces():
            if piece := output.add(plain):
                yield self._noted(piece)
        if piece := output.finish():
            yield self._noted(piece)

    def _plain_pieces(self) -> Iterator[bytes]:
        number = 0
        stays = False
        for part in self._records.with_continuations():
            data, begin, end, count = part
            if count:
                flags = self._flags[number : number + count]
                number += count
                stays = bool(flags[-1])
                if 1 in flags:
                    yield self._times.rewrite(part, flags)
            elif stays:
                yield data[begin:end]

    def _noted(self, piece: bytes) -> bytes:
        self._crc = crc32c(piece, self._crc)
        self._size += len(piece)
        return piece

    def header(self) -> bytes:
        """The header, after the last piece."""
        covered = self._times.covered_header(self._count)
        crc = crc32c_joined(crc32c(covered), self._crc, self._size)
        return _prefix(self._fields, crc, self._size) + covered

    @property
    def max_timestamp(self) -> int:
        """That of the batch, after the last piece."""
        return self._times.max_timestamp


class _Times:
    """Rewrites the records of a batch for its new base timestamp, and finds the largest timestamp."""

    __slots__ = ("_delete_horizon_ms", "_delta", "_fields", "_largest_delta", "_shift")

    def __init__(self, fields: tuple[int, ...], delete_horizon_ms: int | None) -> None:
        self._fields = fields
        self._delete_horizon_ms = delete_horizon_ms
        self._delta: int | None = None
        self._shift: int | None = None
        self._largest_delta = -(1 << 63)
        if fields[ATTRIBUTES] & TIMESTAMP_TYPE_MASK:  # LogAppendTime: the records' timestamps are ignored
            self._delta = 0 if delete_horizon_ms is None else fields[MAX_TIMESTAMP] - delete_horizon_ms
        elif delete_horizon_ms is not None:
            self._shift = delete_horizon_ms - fields[BASE_TIMESTAMP]

    def rewrite(self, part: Part, flags: bytearray) -> bytes:
        """The records of a part whose flag is set, at least one. The first of all determines the base timestamp."""
        data, position, _end, _count = part
        data, self._shift, largest = rewrite(data, position, flags, shift=self._shift, timestamp_delta=self._delta)
        if largest > self._largest_delta:
            self._largest_delta = largest
        return data

    @property
    def max_timestamp(self) -> int:
        if self._delta is not None:
            return self._fields[MAX_TIMESTAMP]
        return max(NO_TIMESTAMP, wrap_int64(self._fields[BASE_TIMESTAMP] + self._largest_delta))

    def covered_header(self, count: int) -> bytes:
        """The part of the header that the CRC covers, after all records were rewritten."""
        fields, horizon = self._fields, self._delete_horizon_ms
        attributes = fields[ATTRIBUTES] & (CODEC_MASK | TIMESTAMP_TYPE_MASK | TRANSACTIONAL_MASK | CONTROL_MASK)
        if horizon is not None:
            attributes |= DELETE_HORIZON_MASK
        if self._delta is not None:
            base_timestamp = fields[MAX_TIMESTAMP] if horizon is None else horizon
        else:
            assert self._shift is not None
            base_timestamp = wrap_int64(fields[BASE_TIMESTAMP] + self._shift)
        return _covered_header(fields, attributes, base_timestamp, self.max_timestamp, count)


def _covered_header(
    fields: tuple[int, ...], attributes: int, base_timestamp: int, max_timestamp: int, count: int
) -> bytes:
    return _CRC_COVERED_HEADER.pack(
        attributes,
        fields[LAST_OFFSET_DELTA],
        base_timestamp,
        max_timestamp,
        fields[PRODUCER_ID],
        fields[PRODUCER_EPOCH],
        fields[BASE_SEQUENCE],
        count,
    )


def _prefix(fields: tuple[int, ...], crc: int, size: int) -> bytes:
    """The rest of the header, for `size` bytes of records."""
    length = BATCH_OVERHEAD - LOG_OVERHEAD + size
    return _PREFIX.pack(fields[BASE_OFFSET], length, fields[LEADER_EPOCH], MAGIC, crc)

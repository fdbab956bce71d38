"""Finding records by time, for ListOffsets (KIP-79, KIP-734).

The time index leads to the batch, and that one batch is decoded, compressed or not: the answer is exact.
"""

from __future__ import annotations

from ..protocol.compression import CodecUnavailableError, CompressionError
from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.records import InvalidRecordsError, Record, iter_records
from .segment import Segment
from .segments import Segments


class TimestampAndOffset:
    """An answer by time: a record's timestamp, its offset, and the leader epoch it was written in (-1: unknown)."""

    __slots__ = ("leader_epoch", "offset", "timestamp")

    def __init__(self, timestamp: int, offset: int, leader_epoch: int) -> None:
        self.timestamp = timestamp
        self.offset = offset
        self.leader_epoch = leader_epoch

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TimestampAndOffset) and all(
            getattr(self, name) == getattr(other, name) for name in self.__slots__
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"TimestampAndOffset({self.timestamp}, {self.offset}, {self.leader_epoch})"


def find_timestamp(segments: Segments, timestamp: int, start_offset: int) -> TimestampAndOffset | None:
    """The first record from `start_offset` on with this timestamp or a later one; None if there is none."""
    for segment in segments:
        if segment.largest_timestamp() < timestamp:
            continue
        begin = max(segment.time_index.offset(timestamp), start_offset)
        for header, position in segment.scan(segment.offset_index.position(begin)):
            if header.max_timestamp < timestamp or header.last_offset < start_offset:
                continue
            for record in _decode(segment, position, header.size):
                if record.timestamp >= timestamp and record.offset >= start_offset:
                    return TimestampAndOffset(record.timestamp, record.offset, header.partition_leader_epoch)
    return None


def find_max_timestamp(segments: Segments) -> TimestampAndOffset | None:
    """The first record with the largest timestamp of all; None for a log without records or without timestamps.

    As in Apache Kafka, the beginning of the first segment counts too, even if it lies before the log start offset.
    """
    segment = max(segments, key=lambda segment: segment.max_timestamp)
    largest = segment.max_timestamp
    if largest < 0:
        return None
    for header, position in segment.scan(segment.offset_index.position(segment.offset_of_max_timestamp)):
        if header.max_timestamp == largest:
            # A producer may have put a larger timestamp into the header than into any record.
            record = max(_decode(segment, position, header.size), key=lambda record: record.timestamp, default=None)
            if record is None:
                continue  # compaction has emptied it
            return TimestampAndOffset(record.timestamp, record.offset, header.partition_leader_epoch)
    return None


def _decode(segment: Segment, position: int, size: int) -> list[Record]:
    try:
        return list(iter_records(segment.read_batch(position, size)))
    except (InvalidRecordsError, CompressionError) as error:
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE, f"the batch at position {position} of {segment.path} cannot be decoded: {error}"
        ) from error
    except CodecUnavailableError as error:
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, str(error)) from error

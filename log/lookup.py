"""Finding records by time, for ListOffsets (KIP-79, KIP-734).

The time index leads to the batch, and the records of this batch are read, compressed or not: the result is exact.

Decompressing a batch may take seconds, so it is a separate step (`BatchSearch`), which the server may run elsewhere.
`next_search` finds the batch. If no record was found in it, `next_search` is called again with a later offset: a
producer may have written a larger timestamp to the header than to any record. It keeps no state between two calls, so
the log may change.
"""

from __future__ import annotations

from collections.abc import Generator

from ..protocol.compression import (
    STORED_MAX_SIZE,
    CodecUnavailableError,
    CompressionError,
    DecompressedTooLargeError,
    decompress_pieces,
)
from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.named_tuples import NamedTuple
from ..protocol.paged_bytes import PagedBytes
from ..protocol.record_search import search
from ..protocol.records import BATCH_OVERHEAD, HEADER, LOG_APPEND_TIME, BatchHeader, InvalidRecordsError
from .segment import Segment
from .segments import Segments
from .validation import TooMuchWorkError, batch_in

_HEADERS_PER_CALL = 1000
_MIN_TIMESTAMP = -(1 << 63)


class TimestampAndOffset:
    """The result of a search by time: a record's timestamp, offset, and leader epoch (-1: unknown)."""

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


class BatchSearch(NamedTuple):
    """A batch that may contain the record."""

    batch: bytes
    timestamp: int | None
    """The first record with this timestamp or a later one; None: the first with the largest of the batch."""
    start_offset: int
    """Records before this offset are ignored."""
    place: str
    """Where the batch is, for messages."""

    @property
    def header(self) -> BatchHeader:
        return BatchHeader(*HEADER.unpack_from(self.batch))

    def steps(
        self, max_size: int | None = None, records: PagedBytes | None = None
    ) -> Generator[None, None, tuple[int, int] | None]:
        """Search in steps of about 2 ms; the generator's value is (timestamp, offset), or None. ``records``: what
        follows the header, if ``batch`` is that alone.

        Raises:
            KafkaError: CORRUPT_MESSAGE, UNSUPPORTED_COMPRESSION_TYPE.
            TooMuchWorkError: there are more than ``max_size`` decompressed bytes.
        """
        try:
            return (yield from self._steps(STORED_MAX_SIZE if max_size is None else max_size, records))
        except DecompressedTooLargeError as error:
            if max_size is not None:
                raise TooMuchWorkError from None
            raise self._corrupt(error) from None
        except (InvalidRecordsError, CompressionError) as error:
            raise self._corrupt(error) from None
        except CodecUnavailableError as error:
            raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, str(error)) from None

    def _steps(self, max_size: int, records: PagedBytes | None) -> Generator[None, None, tuple[int, int] | None]:
        batch = batch_in(self.batch)
        if not batch.record_count:
            return None  # compaction has emptied it
        log_append_time = batch.timestamp_type == LOG_APPEND_TIME  # all have the same
        if log_append_time and self.timestamp is not None and batch.max_timestamp < self.timestamp:
            return None
        found = yield from search(
            decompress_pieces(batch.codec, batch.data[BATCH_OVERHEAD:] if records is None else records, max_size),
            batch.record_count,
            batch.base_timestamp,
            timestamp=_MIN_TIMESTAMP if log_append_time else self.timestamp,
            first_delta=self.start_offset - batch.base_offset,
        )
        if found is None:
            return None
        timestamp, delta = found
        return batch.max_timestamp if log_append_time else timestamp, batch.base_offset + delta

    def _corrupt(self, error: Exception) -> KafkaError:
        return KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{self.place} cannot be decoded: {error}")


Next = BatchSearch | int | None
"""The next batch to search; or the offset for the next call, because one call is limited; or None: no more batches."""


def next_search(segments: Segments, timestamp: int, start_offset: int) -> Next:
    """For the first record from `start_offset` on with this timestamp or a later one."""
    headers = 0
    for segment in segments:
        if segment.largest_timestamp() < timestamp:
            continue
        begin = max(segment.time_index.offset(timestamp), start_offset)
        for header, position in segment.scan(segment.offset_index.position(begin)):
            if header.max_timestamp >= timestamp and header.last_offset >= start_offset:
                return _search(segment, position, header, timestamp, start_offset)
            headers += 1
            if headers >= _HEADERS_PER_CALL and header.next_offset > start_offset:
                return header.next_offset
    return None


def next_search_for_largest(segments: Segments, start_offset: int) -> Next:
    """For the first record with the largest timestamp of all.

    As in Apache Kafka, the beginning of the first segment counts too, even if it lies before the log start offset.
    """
    segment = max(segments, key=lambda segment: segment.max_timestamp)
    largest = segment.max_timestamp
    if largest < 0:
        return None
    begin = max(segment.offset_of_max_timestamp, start_offset)
    for headers, (header, position) in enumerate(segment.scan(segment.offset_index.position(begin)), 1):
        if header.max_timestamp == largest and header.last_offset >= start_offset:
            return _search(segment, position, header, None, header.base_offset)
        if headers >= _HEADERS_PER_CALL and header.next_offset > start_offset:
            return header.next_offset
    return None


def _search(
    segment: Segment, position: int, header: BatchHeader, timestamp: int | None, start_offset: int
) -> BatchSearch:
    batch = segment.read_batch(position, header.size)
    return BatchSearch(
        bytes(batch.data), timestamp, start_offset, f"the batch at position {position} of {segment.path}"
    )

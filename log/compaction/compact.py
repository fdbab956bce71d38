"""One pass over one partition: `compact`.

First the dirty part is read, for the latest offset of each key (`key_map`). Then all segments up to the end of these
keys are read again, filtered batch by batch (`batch_filter`), and written as new files next to the old ones.

A pass runs in a separate process: it computes for seconds, and sleeps to limit its rate.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from ...protocol.paged_bytes import PagedBytes
from ...protocol.records import CONTROL_MASK, TRANSACTIONAL_MASK, InvalidRecordsError
from ..files import FileSystem, join
from ..names import OFFSET_INDEX, TIME_INDEX, offset_file_name
from .batch_filter import BatchFilter, may_discard_marker
from .cleaned_segment import CleanedSegment
from .grouping import Sizes, group_segments
from .job import CompactionJob, CompactionResult, CompactionStatistics, Replacement, SegmentFiles
from .key_map import KeyMap
from .reading import (
    ATTRIBUTES,
    BASE_OFFSET,
    LAST_OFFSET_DELTA,
    MAX_TIMESTAMP,
    PRODUCER_ID,
    Batch,
    SegmentReader,
)
from .rebuilding import Rebuilding
from .throttle import Throttle
from .transactions import AbortedTransactions, Transactions

_OF_TRANSACTIONS = TRANSACTIONAL_MASK | CONTROL_MASK


def compact(
    job: CompactionJob,
    file_system: FileSystem,
    *,
    on_progress: Callable[[int, int], None] | None = None,
    on_replacement: Callable[[Replacement], None] | None = None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> CompactionResult:
    """Write the result of `job` as new files that are ready to be put in place.

    `on_progress(done, total)` is called with the bytes read, and may raise to end the pass. `on_replacement` is called
    with each new segment as soon as it is complete, so that it can be put in place before the next one needs disk
    space.

    Raises `CorruptSegmentError` for an invalid batch; `OSError` propagates. After an exception no new file remains,
    except those that were passed to `on_replacement` and those that cannot be removed.
    """
    return _Pass(job, file_system, on_progress, on_replacement, clock, sleep).run()


class _Pass:
    def __init__(
        self,
        job: CompactionJob,
        file_system: FileSystem,
        on_progress: Callable[[int, int], None] | None,
        on_replacement: Callable[[Replacement], None] | None,
        clock: Callable[[], float],
        sleep: Callable[[float], None],
    ) -> None:
        self._job = job
        self._file_system = file_system
        self._on_progress = on_progress
        self._on_replacement = on_replacement
        self._clock = clock
        self._sleep = sleep
        self._throttle = Throttle(job.io_bytes_per_second)
        self._bytes_read = self._bytes_written = 0
        dirty = sum(segment.size for segment in job.segments if segment.end_offset > job.first_dirty_offset)
        self._total = dirty + sum(segment.size for segment in job.segments)
        self._keys = KeyMap(job.dedupe_buffer_bytes, job.first_dirty_offset)
        self._end_offset = job.segments[-1].end_offset if job.segments else job.first_dirty_offset
        self._aborted = AbortedTransactions(
            file_system, job.directory, [*(segment.base_offset for segment in job.segments), *job.later_segments]
        )
        self._unfinished: list[CleanedSegment] = []
        """New segments that must be removed if the pass fails."""

    def run(self) -> CompactionResult:
        job = self._job
        began = self._clock()
        self._index()
        indexed = self._clock()
        self._keys.settle()
        clean_offset = self._keys.latest_offset + 1
        batch_filter = BatchFilter(
            self._keys,
            first_dirty_offset=job.first_dirty_offset,
            end_offset=self._end_offset,
            now_ms=job.now_ms,
            delete_retention_ms=job.delete_retention_ms,
            last_batches=job.last_batches,
        )
        segments = [segment for segment in job.segments if segment.base_offset < clean_offset]
        self._total = self._bytes_read + sum(segment.size for segment in segments)
        sizes = [self._sizes(segment) for segment in segments]
        replacements = []
        try:
            for group in group_segments(segments, sizes, job.segment_bytes, job.segment_index_bytes):
                replacement = self._rewrite(group, batch_filter)
                if replacement is not None:
                    replacements.append(replacement)
            if replacements and self._on_replacement is None:
                self._file_system.sync_directory(job.directory)
        except BaseException:  # no new files remain, whatever the exception is
            for unfinished in self._unfinished:
                unfinished.discard()
            raise
        return CompactionResult(
            tuple(replacements),
            clean_offset,
            CompactionStatistics(
                bytes_read=self._bytes_read,
                bytes_written=self._bytes_written,
                records_kept=batch_filter.records_kept,
                records_dropped=batch_filter.records_dropped,
                map_entries=len(self._keys),
                indexing_seconds=indexed - began,
                seconds=self._clock() - began,
            ),
        )

    def _index(self) -> None:
        """Fill the map from the dirty part, until the map is full."""
        keys = self._keys
        transactions = Transactions()
        for segment in self._job.segments:
            if segment.end_offset <= self._job.first_dirty_offset:
                continue
            transactions.expect(self._aborted.overlapping(segment.base_offset, segment.end_offset))
            reader = SegmentReader(self._file_system, self._job.directory, segment, self._note_read)
            for batch in reader.batches():
                try:
                    if batch[3][ATTRIBUTES] & _OF_TRANSACTIONS and not _is_data(batch, transactions):
                        keys.skip(batch[3][BASE_OFFSET] + batch[3][LAST_OFFSET_DELTA])
                    elif not keys.add(batch):
                        return
                except InvalidRecordsError as error:
                    raise reader.corrupt(batch, str(error)) from None
            keys.skip(segment.end_offset - 1)

    def _sizes(self, segment: SegmentFiles) -> Sizes:
        return Sizes(segment.size, *(self._size(segment, suffix) for suffix in (OFFSET_INDEX, TIME_INDEX)))

    def _size(self, segment: SegmentFiles, suffix: str) -> int:
        try:
            return self._file_system.size(join(self._job.directory, offset_file_name(segment.base_offset, suffix)))
        except FileNotFoundError:
            return 0

    def _rewrite(self, group: list[SegmentFiles], batch_filter: BatchFilter) -> Replacement | None:
        """Write one new segment; None if the only old segment is unchanged."""
        job = self._job
        cleaned = CleanedSegment(
            self._file_system,
            job.directory,
            group[0].base_offset,
            index_interval_bytes=job.index_interval_bytes,
            on_write=self._note_written,
        )
        self._unfinished.append(cleaned)
        transactions = batch_filter.transactions
        for number, segment in enumerate(group):
            if number:
                cleaned.diverge()
            transactions.expect(self._aborted.overlapping(segment.base_offset, segment.end_offset))
            self._rewrite_segment(segment, cleaned, batch_filter)
        aborted = transactions.still_needed
        transactions.still_needed = []
        if not cleaned.changed:
            self._unfinished.remove(cleaned)
            return None
        cleaned.finish(aborted, group[-1].modified_ms)
        replacement = Replacement(tuple(segment.base_offset for segment in group), cleaned.base_offset, cleaned.size)
        if self._on_replacement is not None:
            self._file_system.sync_directory(job.directory)
            self._unfinished.remove(cleaned)
            self._on_replacement(replacement)
        return replacement

    def _rewrite_segment(self, segment: SegmentFiles, cleaned: CleanedSegment, batch_filter: BatchFilter) -> None:
        reader = SegmentReader(self._file_system, self._job.directory, segment, self._note_read)
        for batch in reader.batches():
            try:
                outcome = batch_filter.filter(batch)
                if outcome is False:
                    cleaned.diverge()
                    continue
                data, start, end, fields = batch
                last_offset = fields[BASE_OFFSET] + fields[LAST_OFFSET_DELTA]
                if outcome is True:
                    cleaned.keep(_bytes_of(data, start, end), last_offset, fields[MAX_TIMESTAMP])
                elif isinstance(outcome, Rebuilding):
                    cleaned.add_in_pieces(outcome, last_offset)
                elif len(outcome.data) == end - start and outcome.data == data[start:end]:
                    cleaned.keep(outcome.data, last_offset, outcome.max_timestamp)
                else:
                    cleaned.add(outcome.data, last_offset, outcome.max_timestamp)
            except InvalidRecordsError as error:
                raise reader.corrupt(batch, str(error)) from None

    def _note_read(self, count: int) -> None:
        self._bytes_read += count
        self._wait(count)
        if self._on_progress is not None:
            self._on_progress(min(self._bytes_read, self._total), self._total)

    def _note_written(self, count: int) -> None:
        self._bytes_written += count
        self._wait(count)

    def _wait(self, count: int) -> None:
        pause = self._throttle.pause(count, self._clock())
        if pause > 0:
            self._sleep(pause)


def _bytes_of(data: bytes | PagedBytes, start: int, end: int) -> memoryview | PagedBytes:
    return data if isinstance(data, PagedBytes) else memoryview(data)[start:end]


def _is_data(batch: Batch, transactions: Transactions) -> bool:
    """Add the batch to `transactions`. Returns whether it is neither a control batch nor aborted."""
    fields = batch[3]
    if fields[ATTRIBUTES] & CONTROL_MASK:
        may_discard_marker(transactions, batch)
        return False
    return not transactions.is_aborted(fields[PRODUCER_ID], fields[BASE_OFFSET] + fields[LAST_OFFSET_DELTA])

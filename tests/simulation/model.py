"""The expected state of a partition, whatever happened to its files: the appended records and the guarantees for them.

This module does not depend on logs. `History` is the list of records. Its methods derive producers, transactions and
the latest record of each key from it, and `check_contents` compares the contents of a log with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

NO_PRODUCER = -1


class Kept(NamedTuple):
    """A record as a reader gets it. A marker has neither key nor value; its `marker` is "commit" or "abort"."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    marker: str = ""


class Batch(NamedTuple):
    """The batch of one append. `transactional`: the batch is data of a transaction."""

    records: tuple[Kept, ...]
    producer_id: int
    producer_epoch: int
    base_sequence: int
    leader_epoch: int
    transactional: bool

    @property
    def first_offset(self) -> int:
        return self.records[0].offset

    @property
    def end_offset(self) -> int:
        return self.records[-1].offset + 1

    @property
    def marker(self) -> str:
        return self.records[0].marker


class Transaction(NamedTuple):
    """An aborted transaction, with the fields of a `.txnindex` entry."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class Producer(NamedTuple):
    """The last batch of a producer. `last_sequence` is -1 if there is none in this epoch."""

    epoch: int
    last_sequence: int
    last_batch: Batch | None


class Pass(NamedTuple):
    """A compaction pass that has started. It may remove records before `end_offset`."""

    end_offset: int
    now_ms: int
    delete_retention_ms: int


@dataclass
class History:
    """All batches that were appended and not truncated, in order, with the state that limits their removal."""

    batches: list[Batch] = field(default_factory=list)
    passes: list[Pass] = field(default_factory=list)
    start_offset: int = 0
    """The log start offset: readers get no records below it, and after a crash it must not be higher."""
    deleted_until: int = 0
    """The highest log start offset so far. A crash may have lowered it again."""
    promised: int = 0
    """All records before this offset were durable once, or were acknowledged with a flush."""

    @property
    def end_offset(self) -> int:
        # A log that has lost all its records continues at its start offset.
        return max(self.batches[-1].end_offset if self.batches else 0, self.start_offset)

    @property
    def compacted_until(self) -> int:
        return max((done.end_offset for done in self.passes), default=0)

    def cut(self, offset: int) -> None:
        self.batches = [batch for batch in self.batches if batch.end_offset <= offset]
        self.promised = min(self.promised, offset)

    def producers(self) -> dict[int, Producer]:
        found: dict[int, Producer] = {}
        for batch in self.batches:
            before = found.get(batch.producer_id)
            if batch.producer_id == NO_PRODUCER:
                continue
            if not batch.marker:
                sequence = batch.base_sequence + len(batch.records) - 1
                found[batch.producer_id] = Producer(batch.producer_epoch, sequence, batch)
            elif before is None or before.epoch != batch.producer_epoch:
                found[batch.producer_id] = Producer(batch.producer_epoch, -1, None)
        return found

    def transactions(self) -> tuple[dict[int, int], list[Transaction]]:
        """The open transactions (first offset to producer id), and the aborted ones."""
        opened: dict[int, int] = {}
        aborted = []
        for batch in self.batches:
            if batch.transactional:
                opened.setdefault(batch.producer_id, batch.first_offset)
            elif batch.marker and batch.producer_id in opened:
                first, end = opened.pop(batch.producer_id), batch.first_offset
                if batch.marker == "abort":
                    stable = min([*opened.values(), end + 1])
                    aborted.append(Transaction(batch.producer_id, first, end, stable))
        return {first: producer_id for producer_id, first in opened.items()}, aborted


def check_contents(history: History, found: Sequence[Kept], start: int, end: int, now_ms: int) -> None:
    """Check `found`, the records of a log in [start, end): all are in the history, and all required ones are there."""
    there = {record.offset: record for record in found}
    assert len(there) == len(found), "an offset was found twice"
    assert [record.offset for record in found] == sorted(there), "offsets are out of order"
    requested = {record.offset: (record, batch) for batch in history.batches for record in batch.records}
    for offset, record in there.items():
        assert start <= offset < end, f"offset {offset} was found in a log from {start} to {end}"
        assert offset in requested, f"offset {offset} was never written: {record}"
        assert record == requested[offset][0], f"offset {offset} is another record"
    missing = [entry for offset, entry in requested.items() if start <= offset < end and offset not in there]
    if not missing:
        return
    limit = history.compacted_until
    assert limit <= end, f"compaction came to {limit}, and the log ends at {end}"
    aborted = _aborted_offsets(history)
    latest = _latest_offsets(history, limit, aborted)
    for record, _batch in missing:
        assert record.offset < limit, f"offset {record.offset} is lost"
        if record.marker:
            assert _may_have_expired(history, record.offset, now_ms), f"the marker at {record.offset} went too early"
        elif record.key is not None and record.offset not in aborted and latest[record.key] == record.offset:
            assert record.value is None, f"offset {record.offset}, the latest of its key, is lost"
            assert _may_have_expired(history, record.offset, now_ms), f"tombstone {record.offset} went too early"


def _may_have_expired(history: History, offset: int, now_ms: int) -> bool:
    """Tombstones and markers are removed only after `delete.retention.ms` since the first pass over them."""
    covering = [done for done in history.passes if offset < done.end_offset]
    wait_ms = min(done.delete_retention_ms for done in covering)
    return len(covering) > 1 and now_ms >= covering[0].now_ms + wait_ms


def _aborted_offsets(history: History) -> set[int]:
    _opened, aborted = history.transactions()
    return {
        record.offset
        for batch in history.batches
        if batch.transactional
        for transaction in aborted
        if transaction.producer_id == batch.producer_id
        and transaction.first_offset <= batch.first_offset < transaction.last_offset
        for record in batch.records
    }


def _latest_offsets(history: History, limit: int, aborted: set[int]) -> Mapping[bytes, int]:
    """The offset of the latest record of each key before `limit`, without aborted records."""
    return {
        record.key: record.offset
        for batch in history.batches
        for record in batch.records
        if record.key is not None and record.offset < limit and record.offset not in aborted
    }

"""Which records of a batch are kept.

The rules in order (`Cleaner.java`, `MemoryRecords.filterTo`; KIP-98, KIP-534):

* All records of an aborted transaction are removed.
* A marker is kept as long as a batch of its transaction remains. The pass that finds none gives the marker a *delete
  horizon*, `delete.retention.ms` from then; the first pass after that time removes it.
* A record beyond the range of the key map is kept.
* A record without a key is removed.
* A record is kept if it is the latest of its key. A tombstone (a record without a value) gets a delete horizon from the
  first pass that finds it to be the latest; the first pass after that time removes it.
* A batch without remaining records is removed, with two exceptions, where its empty header is kept: the last batch of
  its producer here, which has the producer's sequence numbers and epoch, and the last batch of the range, which shows
  at which offset the log continues.

The delete horizon replaces the batch's base timestamp, marked by bit 6 of the attributes; the records' timestamp deltas
are then relative to it. Everything else of a batch is unchanged: base offset, last offset, leader epoch, producer,
sequence number. Records keep their bytes, and the codec is the same. A batch of which all records are kept is copied
unchanged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from struct import Struct
from typing import NamedTuple

from ...protocol.records import CONTROL_MASK, DELETE_HORIZON_MASK, TRANSACTIONAL_MASK, time_after
from .key_map import KeyMap
from .parts import LargeRecords, Part, parts_of
from .reading import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_TIMESTAMP,
    LAST_OFFSET_DELTA,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    RECORD_COUNT,
    Batch,
)
from .rebuilding import Changed, Rebuilding, emptied, rebuilt
from .records import flag_older, record_keys
from .transactions import Transactions

_CONTROL_TYPE = Struct(">2x h")
_ABORT, _COMMIT = 0, 1


class _Kept(NamedTuple):
    """The records that are kept of a batch, if these are not all or have another base timestamp."""

    parts: Iterable[Part]
    """All records of the batch."""
    flags: bytearray
    """A byte per record, 1 if the record is kept."""
    delete_horizon_ms: int | None


def may_discard_marker(transactions: Transactions, batch: Batch) -> bool:
    """Add this control batch to `transactions`. Returns whether no batch of the transaction that it ends remains."""
    fields = batch[3]
    count = fields[RECORD_COUNT]
    commit: bool | None = None  # None: emptied by an earlier pass
    if count:
        part = next(iter(parts_of(batch)))
        key = record_keys(*part)[0].key
        kind = _CONTROL_TYPE.unpack_from(key)[0] if key is not None and len(key) >= _CONTROL_TYPE.size else None
        if kind not in (_ABORT, _COMMIT):
            return False
        commit = kind == _COMMIT
    return transactions.may_discard_marker(fields[PRODUCER_ID], fields[BASE_OFFSET] + fields[LAST_OFFSET_DELTA], commit)


class BatchFilter:
    """See the module docstring. Batches are filtered in the order of their offsets, from the log's first batch on."""

    __slots__ = (
        "_delete_horizon_ms",
        "_end_offset",
        "_first_dirty_offset",
        "_keys",
        "_last_batches",
        "_now_ms",
        "records_dropped",
        "records_kept",
        "transactions",
    )

    def __init__(
        self,
        keys: KeyMap,
        *,
        first_dirty_offset: int,
        end_offset: int,
        now_ms: int,
        delete_retention_ms: int,
        last_batches: Mapping[int, tuple[int, int]],
    ) -> None:
        """`keys` must be settled. `end_offset`: the end of the whole range. `last_batches`: see `CompactionJob`."""
        self._keys = keys
        self._first_dirty_offset = first_dirty_offset
        self._end_offset = end_offset
        self._now_ms = now_ms
        self._delete_horizon_ms = time_after(now_ms, delete_retention_ms)
        self._last_batches = last_batches
        self.transactions = Transactions()
        self.records_kept = 0
        self.records_dropped = 0

    def filter(self, batch: Batch) -> Changed | Rebuilding | bool:
        """Returns True to keep a batch unchanged, False to remove it, or the rewritten batch."""
        fields = batch[3]
        count, base_offset, attributes = fields[RECORD_COUNT], fields[BASE_OFFSET], fields[ATTRIBUTES]
        last_offset = base_offset + fields[LAST_OFFSET_DELTA]
        kept: _Kept | bool
        if attributes & CONTROL_MASK:
            kept = self._filter_marker(batch)
        elif attributes & TRANSACTIONAL_MASK and self.transactions.is_aborted(fields[PRODUCER_ID], last_offset):
            kept = False
        elif base_offset >= self._first_dirty_offset and last_offset < self._keys.next_staying:
            kept = False  # the usual case for dirty batches: one comparison
        else:
            kept = self._filter_records(batch)
        if kept is True:
            self.records_kept += count
            return True
        if kept is False:
            self.records_dropped += count
            if last_offset + 1 != self._end_offset and fields[PRODUCER_ID] not in self._last_batches:
                return False
            return emptied(fields) if self._must_stay(fields) else False
        number = kept.flags.count(1)
        self.records_kept += number
        self.records_dropped += count - number
        if isinstance(kept.parts, LargeRecords):
            return Rebuilding(fields, kept.parts, kept.flags, number, kept.delete_horizon_ms)
        (part,) = kept.parts
        return rebuilt(fields, part, kept.flags, number, kept.delete_horizon_ms)

    def _filter_marker(self, batch: Batch) -> _Kept | bool:
        fields = batch[3]
        discardable = may_discard_marker(self.transactions, batch)
        if not fields[RECORD_COUNT]:
            return False
        if not discardable:
            return True
        if fields[ATTRIBUTES] & DELETE_HORIZON_MASK:
            return fields[BASE_TIMESTAMP] > self._now_ms
        return _Kept(parts_of(batch), bytearray(b"\1" * fields[RECORD_COUNT]), self._delete_horizon_ms)

    def _filter_records(self, batch: Batch) -> _Kept | bool:
        fields = batch[3]
        count, attributes = fields[RECORD_COUNT], fields[ATTRIBUTES]
        base_offset = fields[BASE_OFFSET]
        last_offset = base_offset + fields[LAST_OFFSET_DELTA]
        if not count:
            return False
        has_horizon = bool(attributes & DELETE_HORIZON_MASK)
        keep_tombstones = not has_horizon or fields[BASE_TIMESTAMP] > self._now_ms
        keys = self._keys
        if base_offset >= self._first_dirty_offset and last_offset <= keys.latest_offset:
            staying = keys.staying(base_offset, last_offset)
            if not staying:
                return False
            tombstones = any(value & 1 for value in staying)
            if len(staying) == count and not tombstones:
                return True
            parts = parts_of(batch)
            if keep_tombstones and count == fields[LAST_OFFSET_DELTA] + 1:  # there are no gaps in the offsets
                flags = bytearray(count)
                for value in staying:
                    flags[(value >> 1) - base_offset] = 1
            else:
                flags, tombstones = self._flag(fields, parts, keep_tombstones)
        else:
            parts = parts_of(batch)
            flags, tombstones = self._flag(fields, parts, keep_tombstones)
        if 1 not in flags:
            return False
        needs_horizon = tombstones and not has_horizon
        if 0 not in flags and not needs_horizon:
            return True
        horizon = fields[BASE_TIMESTAMP] if has_horizon else None
        return _Kept(parts, flags, self._delete_horizon_ms if needs_horizon else horizon)

    def _flag(self, fields: tuple[int, ...], parts: Iterable[Part], keep_tombstones: bool) -> tuple[bytearray, bool]:
        """Which records are kept: a byte per record; and whether a tombstone is kept."""
        is_older = fields[BASE_OFFSET] + fields[LAST_OFFSET_DELTA] < self._first_dirty_offset
        flags, tombstones = bytearray(), False
        for part in parts:
            if is_older:
                of_part, found = flag_older(*part, self._keys.latest, keep_tombstones=keep_tombstones)
            else:
                of_part, found = self._flag_any(part, fields[BASE_OFFSET], keep_tombstones)
            flags += of_part
            tombstones |= found
        return flags, tombstones

    def _flag_any(self, part: Part, base_offset: int, keep_tombstones: bool) -> tuple[bytearray, bool]:
        """The same for one part, in any range."""
        latest, latest_offset = self._keys.latest, self._keys.latest_offset
        flags = bytearray(part[3])
        tombstones = False
        for number, (offset_delta, key, null_value) in enumerate(record_keys(*part)):
            offset = base_offset + offset_delta
            if offset > latest_offset or (
                key is not None and latest.get(key, -1) >> 1 <= offset and (keep_tombstones or not null_value)
            ):
                flags[number] = 1
                tombstones |= null_value
        return flags, tombstones

    def _must_stay(self, fields: tuple[int, ...]) -> bool:
        """Whether the header of a batch without records must be kept."""
        last_offset = fields[BASE_OFFSET] + fields[LAST_OFFSET_DELTA]
        if last_offset + 1 == self._end_offset:
            return True
        known = self._last_batches.get(fields[PRODUCER_ID])
        if known is None or fields[PRODUCER_ID] < 0:
            return False
        epoch, last_data_offset = known
        if last_data_offset >= 0:
            return last_offset == last_data_offset
        return bool(fields[ATTRIBUTES] & CONTROL_MASK) and fields[PRODUCER_EPOCH] == epoch

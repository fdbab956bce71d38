"""The latest offset of each key in the dirty part of a log, and the offsets that are kept.

While it is filled, the map is a table from keys to offsets. `settle` inverts it: of the dirty part, exactly the offsets
in the table are kept. So the rewriting looks up offsets, and does not decode a batch of which all or no records are
kept. Keys are only looked up for records before the range of the map: in the clean part.

Its memory is bounded. Once the map is full, the pass ends at that record; the next pass continues there.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left

from ...protocol.paged_bytes import PagedBytes
from ...protocol.records import BATCH_OVERHEAD, CODEC_MASK
from .parts import Part, parts_of
from .reading import ATTRIBUTES, BASE_OFFSET, LAST_OFFSET_DELTA, RECORD_COUNT, Batch
from .records import note_keys, record_keys

ENTRY_BYTES = 208
"""The bytes of an entry: 48 to 80 for its key, 32 for its offset, 30 to 60 in the table, up to 30 more while the table
grows, and finally 16 for sorting the offsets. Apache Kafka's entry has 24 bytes: where it needs one pass, this may need
three."""


class KeyMap:
    """See the module docstring. Batches are added, and queried, in the order of their offsets."""

    __slots__ = ("_cursor", "_first_offset", "_max_entries", "_staying", "latest", "latest_offset", "next_staying")

    def __init__(self, max_bytes: int, first_offset: int) -> None:
        """The map covers records from `first_offset` on."""
        self._max_entries = max(max_bytes // ENTRY_BYTES, 1)
        self._first_offset = first_offset
        self.latest: dict[bytes, int] = {}
        """By key, or the digest of a long key: its latest offset, times two, plus one for a tombstone."""
        self.latest_offset = first_offset - 1
        """The last offset that the map covers."""
        self._staying = array("q")
        self._cursor = 0
        self.next_staying = -1
        """The next offset that may be kept and was not looked up. Offsets beyond the map's range are kept."""

    def __len__(self) -> int:
        return len(self.latest)

    def add(self, batch: Batch) -> bool:
        """Add the keys of the batch's records. Returns false if the map was full before all were added."""
        data, position, end, fields = batch
        count, base_offset = fields[RECORD_COUNT], fields[BASE_OFFSET]
        last_offset = base_offset + fields[LAST_OFFSET_DELTA]
        if count and last_offset >= self._first_offset:
            if base_offset >= self._first_offset and len(self.latest) + count <= self._max_entries:
                # The usual batch is uncompressed, and may have one record: then each call matters.
                if fields[ATTRIBUTES] & CODEC_MASK or isinstance(data, PagedBytes):
                    for part in parts_of(batch):
                        note_keys(*part, base_offset, self.latest)
                else:
                    note_keys(data, position + BATCH_OVERHEAD, end, count, base_offset, self.latest)
            elif not self._add_in_parts(batch):
                return False
        if last_offset > self.latest_offset:
            self.latest_offset = last_offset
        return True

    def _add_in_parts(self, batch: Batch) -> bool:
        """The same, for a batch that begins before the range of the map, or for which there may be no room."""
        base_offset = batch[3][BASE_OFFSET]
        for part in parts_of(batch):
            in_range = max(base_offset, self.latest_offset) >= self._first_offset
            if in_range and len(self.latest) + part[3] <= self._max_entries:
                self.latest_offset = base_offset + note_keys(*part, base_offset, self.latest)
            elif not self._add_one_by_one(part, base_offset):
                return False
        return True

    def _add_one_by_one(self, part: Part, base_offset: int) -> bool:
        for offset_delta, key, null_value in record_keys(*part):
            offset = base_offset + offset_delta
            if offset < self._first_offset:
                continue
            if key is not None:
                if len(self.latest) >= self._max_entries and key not in self.latest:
                    return False
                self.latest[key] = offset << 1 | null_value
            self.latest_offset = offset
        return True

    def skip(self, last_offset: int) -> None:
        """There are no more keys to add up to this offset."""
        if last_offset > self.latest_offset:
            self.latest_offset = last_offset

    def settle(self) -> None:
        """The map is complete: from now on it is only queried."""
        self._staying = array("q", sorted(self.latest.values()))
        self._note_next()

    def _note_next(self) -> None:
        known = self._cursor < len(self._staying)
        self.next_staying = self._staying[self._cursor] >> 1 if known else self.latest_offset + 1

    def staying(self, base_offset: int, last_offset: int) -> array[int]:
        """The offsets in this range (inclusive) that are kept, each times two, plus one for a tombstone."""
        first = bisect_left(self._staying, base_offset << 1, self._cursor)
        end = self._cursor = bisect_left(self._staying, (last_offset + 1) << 1, first)
        self._note_next()
        return self._staying[first:end]

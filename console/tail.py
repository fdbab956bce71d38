"""The live end of a topic, which reports what it omits when records arrive faster than anyone can read.

Each leader is followed by one object with its own connection, which waits for records at the broker. What it does not
show it does not decode: the header of a batch has the number of its records. When it is far behind the end, it
continues near the end, and counts the offsets between.

The position of a tail is one offset per partition. A page that connects again continues there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ..cli.cluster import Cluster
from ..protocol.records import RecordBatch
from .fetching import Row, Topic, batches, fetch, rows
from .filters import Filter

SHOWN: Final = 50
"""The most records of one update."""
_JUMP: Final = 10_000
# How long a broker waits for records. The end of a page is noticed at the latest after this time.
_WAIT_MS: Final = 1000
_MAX_BYTES: Final = 2 << 20


@dataclass(frozen=True)
class Update:
    """Records in order of their arrival, the number of omitted ones, and the position after them."""

    rows: list[Row]
    omitted: int
    positions: dict[int, int]


class Tail:
    """The partitions of one leader."""

    def __init__(
        self, cluster: Cluster, topic: Topic, positions: Mapping[int, int], wanted: Filter | None, *, committed: bool
    ) -> None:
        self._cluster = cluster
        self._topic = topic
        self._positions = dict(positions)
        self._filter = wanted
        self._committed = committed

    @property
    def positions(self) -> dict[int, int]:
        """The next offset of each partition."""
        return dict(self._positions)

    def close(self) -> None:
        self._cluster.close()

    def next(self) -> Update:
        """What has arrived since the last update, after a second at most. Raises Failure and PeerError."""
        fetched = fetch(
            self._cluster,
            self._topic,
            self._positions,
            committed=self._committed,
            max_bytes=_MAX_BYTES,
            max_wait_ms=_WAIT_MS,
        )
        shown: deque[Row] = deque(maxlen=SHOWN)
        visible = 0
        omitted = 0
        for partition, data in fetched.items():
            low = self._positions[partition]
            found = [(batch, is_visible) for batch, is_visible in batches(data) if batch.last_offset >= low]
            if found:
                self._positions[partition] = found[-1][0].next_offset
            seen = [batch for batch, is_visible in found if is_visible]
            # From the last batch on backwards, as many as are shown; with a filter, all.
            first, count = len(seen), 0
            while first and (count < SHOWN or self._filter is not None):
                first -= 1
                count += seen[first].record_count
            omitted += sum(_count(partition, batch, low) for batch in seen[:first])
            for batch in seen[first:]:
                for row in rows(partition, batch, low, batch.next_offset):
                    if self._filter is None or row.problem is not None or self._filter.matches(partition, row.record):
                        visible += 1
                        shown.append(row)
            behind = data.end - self._positions[partition]
            if behind > _JUMP:
                omitted += behind - SHOWN
                self._positions[partition] = data.end - SHOWN
        return Update(list(shown), omitted + visible - len(shown), dict(self._positions))


def _count(partition: int, batch: RecordBatch, low: int) -> int:
    """The records of a batch from an offset on: those before it, which a batch in the middle may have, were counted."""
    if batch.base_offset >= low:
        return batch.record_count
    return sum(1 for _ in rows(partition, batch, low, batch.next_offset))

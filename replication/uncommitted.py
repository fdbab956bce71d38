"""Records that were appended and do not count yet, with the callbacks that wait for them.

There are two reasons why records do not count:

* They are not *durable*. A topic with ``flush.messages`` promises that acknowledged records were flushed. So the append
  that makes a flush due, and all later appends, wait until the flush has ended (`AwaitedFlush`).
* They are not *committed*: some in-sync replica does not have them, or this broker's copy is not durable
  (`UncommittedRecords`). They are above the high watermark: they are invisible to consumers, and ``acks=all`` is not
  acknowledged.

A partition has these objects only while such records exist. With one replica and without ``flush.messages`` it never
has them. They store offsets and sizes, and know neither files nor replicas; `Partition` computes the offsets.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Final

from ..protocol.errors import KafkaError

logger = logging.getLogger(__name__)

_MAX_APPENDS: Final = 256
"""Of more uncommitted appends, neighbors count as one. The high watermark may not move for days, while the in-sync
set is too small and producers do not use ``acks=all``."""

OnAcknowledged = Callable[[KafkaError | None], None]
"""Called once: with None when the records count, or with an error when it is unknown whether they ever will."""


class OffsetWaiters:
    """Callbacks that wait until an offset is reached."""

    __slots__ = ("_heap", "_numbers")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, OnAcknowledged]] = []  # (offset, number, callback)
        self._numbers = 0

    def add(self, offset: int, callback: OnAcknowledged) -> None:
        """Call ``callback`` when ``offset`` is reached."""
        self._numbers += 1
        heappush(self._heap, (offset, self._numbers, callback))

    @property
    def is_empty(self) -> bool:
        """Whether there are no callbacks."""
        return not self._heap

    def reach(self, offset: int) -> None:
        """Call the callbacks that wait for ``offset`` or less, the lowest offset first."""
        due = []
        while self._heap and self._heap[0][0] <= offset:
            due.append(heappop(self._heap)[2])
        _complete(due, None)

    def fail_all(self, error: KafkaError) -> None:
        """Call all callbacks with this error."""
        waiting, self._heap = sorted(self._heap), []
        _complete([callback for _, _, callback in waiting], error)


class AwaitedFlush:
    """A flush is due or in progress, and appends wait for it."""

    __slots__ = ("durable_offset", "waiters")

    def __init__(self, durable_offset: int) -> None:
        self.durable_offset = durable_offset
        self.waiters = OffsetWaiters()


class UncommittedRecords:
    """The records above the high watermark."""

    __slots__ = ("_appends", "_ending", "high_watermark", "waiters")

    def __init__(self, high_watermark: int) -> None:
        self.high_watermark = high_watermark
        self.waiters = OffsetWaiters()
        self._appends: deque[tuple[int, int]] = deque()  # (the end offset of the append, bytes), in order
        # Transactions whose marker is above the high watermark: (first offset, marker's offset), in order of markers.
        self._ending: deque[tuple[int, int]] = deque()

    @property
    def tracked(self) -> int:
        """The number of appends whose sizes are known separately."""
        return len(self._appends)

    def add(self, end_offset: int, size: int) -> None:
        """Records up to `end_offset` (exclusive) were appended."""
        if len(self._appends) == _MAX_APPENDS:
            self._join_neighbors()
        self._appends.append((end_offset, size))

    def _join_neighbors(self) -> None:
        appends = list(self._appends)  # _MAX_APPENDS, an even number
        neighbors = zip(appends[::2], appends[1::2], strict=True)
        self._appends = deque([(end_offset, size + more) for (_, size), (end_offset, more) in neighbors])

    def add_ending(self, first_offset: int, marker_offset: int) -> None:
        """The transaction that began at `first_offset` has its marker. The marker is above the high watermark, so
        readers still see the transaction as open."""
        self._ending.append((first_offset, marker_offset))

    @property
    def first_ending(self) -> int | None:
        """The first offset of the oldest transaction whose marker is above the high watermark."""
        return min([first for first, _ in self._ending], default=None)

    def move(self, high_watermark: int) -> int:
        """The high watermark has moved. Returns the size of the appends that it has passed, in bytes."""
        self.high_watermark = high_watermark
        size = 0
        while self._appends and self._appends[0][0] <= high_watermark:
            size += self._appends.popleft()[1]
        while self._ending and self._ending[0][1] < high_watermark:
            self._ending.popleft()
        return size

    def truncate(self, end_offset: int) -> None:
        """The records from ``end_offset`` on were removed."""
        self.high_watermark = min(self.high_watermark, end_offset)
        removed: tuple[int, int] | None = None
        while self._appends and self._appends[-1][0] > end_offset:
            removed = self._appends.pop()
        first_offset = self._appends[-1][0] if self._appends else self.high_watermark
        if removed is not None and first_offset < end_offset:
            self._appends.append((end_offset, removed[1]))  # an upper bound for the part that remains
        while self._ending and self._ending[-1][1] >= end_offset:
            self._ending.pop()


def _complete(callbacks: list[OnAcknowledged], error: KafkaError | None) -> None:
    for callback in callbacks:
        try:
            callback(error)
        except Exception:  # the other callbacks must not wait forever
            logger.exception("Completing a request failed with an unexpected error")

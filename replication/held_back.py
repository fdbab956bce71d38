"""What was appended and counts for nothing yet: it is not on the device.

A topic with ``flush.messages`` promises that what is acknowledged was flushed. So the append that makes a flush due,
and whatever comes behind it, is held back until the flush has ended: not acknowledged, not below the high watermark,
seen by no reader. One such object exists for a partition while that is so, and none otherwise: other topics pay
nothing.

It knows offsets and sizes, not files: `Partition.flushed` says how far the device is.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush

from ..protocol.errors import KafkaError

logger = logging.getLogger(__name__)

Told = Callable[[KafkaError | None], None]
"""Called once: the records are below the high watermark, or why it is not known whether they ever will be."""


class HeldBack:
    """See the module's text."""

    __slots__ = ("_appends", "_ending", "_numbers", "_waiting", "high_watermark")

    def __init__(self, high_watermark: int) -> None:
        self.high_watermark = high_watermark
        self._appends: deque[tuple[int, int]] = deque()  # (the offset after it, bytes), in order
        # Transactions whose marker is held back: (their first offset, the marker's offset), in the order of markers.
        self._ending: deque[tuple[int, int]] = deque()
        self._waiting: list[tuple[int, int, Told]] = []  # a heap of (offset, number, who is told)
        self._numbers = 0

    def add(self, end_offset: int, size: int) -> None:
        """Records up to `end_offset` (not included) were appended."""
        self._appends.append((end_offset, size))

    def add_ending(self, first_offset: int, marker_offset: int) -> None:
        """A transaction that began at `first_offset` has its marker, which is held back: so the transaction is not
        over for readers."""
        self._ending.append((first_offset, marker_offset))

    @property
    def first_ending(self) -> int | None:
        """Where the oldest transaction begins whose marker is held back."""
        return min([first for first, _ in self._ending], default=None)

    def wait(self, offset: int, told: Told) -> None:
        """Call `told` when the high watermark is `offset` or more."""
        self._numbers += 1
        heappush(self._waiting, (offset, self._numbers, told))

    def move(self, high_watermark: int) -> int:
        """The high watermark has come so far; returns the bytes that it has passed."""
        self.high_watermark = max(self.high_watermark, high_watermark)
        size = 0
        while self._appends and self._appends[0][0] <= high_watermark:
            size += self._appends.popleft()[1]
        while self._ending and self._ending[0][1] < high_watermark:
            self._ending.popleft()
        return size

    def tell(self) -> None:
        """Tell those whose offset the high watermark has reached, the lowest offset first."""
        due = []
        while self._waiting and self._waiting[0][0] <= self.high_watermark:
            due.append(heappop(self._waiting)[2])
        _tell(due, None)

    def refuse(self, error: KafkaError) -> None:
        """Tell everybody that the wait is over for another reason."""
        waiting, self._waiting = sorted(self._waiting), []
        _tell([told for _, _, told in waiting], error)


def _tell(waiting: list[Told], error: KafkaError | None) -> None:
    for told in waiting:
        try:
            told(error)
        except Exception:  # the others must not wait for ever
            logger.exception("The end of a flush could not be told")

"""Searching the records of a topic, in steps of a fraction of a second.

A search goes through the partitions one window of offsets at a time: backwards from the newest record, or forwards.
Each step returns what it found and how far it came. So a page shows progress, and ends a search by not asking for the
next step. Batches in which the text cannot be are not decoded.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from ..cli.cluster import Cluster
from .fetching import Row, Topic, batches, fetch, rows
from .filters import Filter

_STEP_S: Final = 0.2
_FIRST_SPAN: Final = 1000
_MAX_SPAN: Final = 100_000
_WINDOW_BYTES: Final = 4 << 20


@dataclass(frozen=True)
class Progress:
    """The result of one step."""

    rows: list[Row]
    scanned: int
    """The offsets that were searched so far, of ``total``."""
    total: int
    found: int
    is_done: bool


@dataclass
class _Range:
    """The offsets of one partition that remain, from ``low`` to below ``high``, and the size of the next window."""

    low: int
    high: int
    span: int = _FIRST_SPAN


class Search:
    """One search of a topic."""

    def __init__(
        self,
        cluster: Cluster,
        topic: Topic,
        wanted: Filter,
        partitions: Iterable[int],
        start: Mapping[int, int],
        *,
        backwards: bool,
        committed: bool,
        limit: int,
    ) -> None:
        """``start`` are the first offsets of a search that goes forwards, else the bounds above the newest ones."""
        self._cluster = cluster
        self._topic = topic
        self._filter = wanted
        self._backwards = backwards
        self._committed = committed
        self._limit = limit
        self._found = 0
        self._ranges: dict[int, _Range] = {}
        for each in partitions:
            known = topic.bounds.get(each)
            if known is not None:
                low = known.first if backwards else max(known.first, start.get(each, known.first))
                high = min(known.end, start.get(each, known.end)) if backwards else known.end
                self._ranges[each] = _Range(low, max(low, high))
        self._total = self._remaining()

    def step(self) -> Progress:
        """Search for a fraction of a second. Raises Failure and PeerError."""
        deadline = time.monotonic() + _STEP_S
        found: list[Row] = []
        while self._remaining() and self._found + len(found) < self._limit and time.monotonic() < deadline:
            # The partition with the most remaining offsets, so that all end together.
            partition = max(self._ranges, key=lambda each: self._ranges[each].high - self._ranges[each].low)
            found += self._window(partition)
        found = found[: self._limit - self._found]
        self._found += len(found)
        remaining = self._remaining()
        is_done = not remaining or self._found >= self._limit
        return Progress(found, self._total - remaining, self._total, self._found, is_done)

    def _remaining(self) -> int:
        return sum(each.high - each.low for each in self._ranges.values())

    def _window(self, partition: int) -> list[Row]:
        """The matching records of the next window, in the order of the search."""
        remains = self._ranges[partition]
        if not self._backwards:
            found, remains.low, _ = self._read(partition, remains.low, remains.high, once=True)
            return found
        low = max(remains.low, remains.high - remains.span)
        found, _, size = self._read(partition, low, remains.high, once=False)
        remains.high = low
        remains.span = min(_MAX_SPAN, remains.span * 2) if size < _WINDOW_BYTES // 2 else max(1, remains.span // 2)
        found.reverse()
        return found

    def _read(self, partition: int, low: int, high: int, *, once: bool) -> tuple[list[Row], int, int]:
        """The matching records in a range of offsets; where reading ended, and the bytes that were read."""
        found: list[Row] = []
        position, size = low, 0
        while position < high:
            fetched = fetch(self._cluster, self._topic, {partition: position}, committed=self._committed)[partition]
            size += len(fetched.records)
            before = position
            for batch, is_visible in batches(fetched):
                position = batch.next_offset
                if is_visible and self._filter.may_match(batch):
                    found += (
                        row
                        for row in rows(partition, batch, low, high)
                        if row.problem is not None or self._filter.matches(partition, row.record)
                    )
                if position >= high:
                    break
            if position == before:
                position = high  # the end of what can be read
            if once:
                break
        return found, min(position, high), size

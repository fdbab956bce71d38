"""Pages of records from all partitions of a topic: the newest ones, backwards, or from some offsets on, forwards.

Only what a page shows is read, so a topic of any size opens equally fast. A page is ordered by timestamp across
partitions; within a partition the order is that of the offsets, in any case. The position of a page is one offset per
partition, which is also the link to the next page.

Backwards, the last few offsets of each partition are read. These offsets may contain fewer records (compaction,
transaction markers), and then the window grows. Their records may be large, and then it shrinks.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from ..cli.cluster import Cluster
from .failures import BadRequest
from .fetching import Bounds, Fetched, Row, Topic, batches, fetch, rows

Offsets = Mapping[int, int]

# The most bytes that are read for the records of one partition, unless a single batch is larger.
_WINDOW_BYTES: Final = 4 << 20
# A page of sparse or slow partitions ends early; its link leads on.
_BUDGET_S: Final = 5.0
_MIN_SPAN: Final = 4


@dataclass(frozen=True)
class Page:
    """Records, in the order in which they are shown, and the offsets of the next page; None at the end."""

    rows: list[Row]
    next: dict[int, int] | None


@dataclass
class _Window:
    """The records of one partition that were read, in offset order, and the bound up to which all were read."""

    rows: list[Row]
    reached: int
    is_complete: bool
    """Whether there is nothing beyond ``reached``."""


def parse_offsets(text: str) -> dict[int, int]:
    """``0:120,1:7`` as offsets by partition. Raises BadRequest."""
    found: dict[int, int] = {}
    for part in filter(None, text.split(",")):
        partition, colon, offset = part.partition(":")
        if not (colon and all(each.isascii() and each.isdecimal() and len(each) < 20 for each in (partition, offset))):
            raise BadRequest(f"{text!r} are not offsets; they look like 0:120,1:7")
        found[int(partition)] = int(offset)
    return found


def written_offsets(offsets: Offsets) -> str:
    """The inverse of `parse_offsets`."""
    return ",".join(f"{partition}:{offset}" for partition, offset in sorted(offsets.items()))


def newest(
    cluster: Cluster, topic: Topic, partitions: Iterable[int], before: Offsets, limit: int, *, committed: bool = False
) -> Page:
    """The newest records below the offsets of ``before`` (default: the end), the newest one first."""
    deadline = time.monotonic() + _BUDGET_S
    wanted = {each: topic.bounds[each] for each in partitions if each in topic.bounds}
    uppers = {each: min(before.get(each, known.end), known.end) for each, known in wanted.items()}
    active = {each: upper for each, upper in uppers.items() if upper > wanted[each].first}
    # With many partitions, few records of each are on the page.
    span = max(_MIN_SPAN, 2 * limit // max(1, len(active))) if len(active) > 1 else limit
    lows = {each: max(wanted[each].first, upper - span) for each, upper in active.items()}
    started = fetch(cluster, topic, lows, committed=committed) if lows else {}
    windows = {
        each: _last(_Reader(cluster, topic, each, committed), wanted[each], upper, span, started.get(each), deadline)
        for each, upper in active.items()
    }
    chosen: list[Row] = []
    while len(chosen) < limit:
        if any(not window.rows and not window.is_complete for window in windows.values()):
            break  # what this partition has next may be newer than the others
        heads = [window.rows[-1] for window in windows.values() if window.rows]
        if not heads:
            break
        head = max(heads, key=lambda row: (row.record.timestamp, row.partition))
        chosen.append(windows[head.partition].rows.pop())
    following = {
        each: windows[each].rows[-1].record.offset + 1 if windows[each].rows else windows[each].reached
        for each in windows
    }
    has_more = any(offset > wanted[each].first for each, offset in following.items())
    rest = {each: uppers[each] for each in wanted if each not in windows}
    return Page(chosen, {**rest, **following} if has_more else None)


def forward(
    cluster: Cluster, topic: Topic, partitions: Iterable[int], start: Offsets, limit: int, *, committed: bool = False
) -> Page:
    """The records from the offsets of ``start`` (default: the first ones) on, the oldest one first."""
    deadline = time.monotonic() + _BUDGET_S
    wanted = {each: topic.bounds[each] for each in partitions if each in topic.bounds}
    lows = {each: max(known.first, start.get(each, known.first)) for each, known in wanted.items()}
    active = {each: low for each, low in lows.items() if low < wanted[each].end}
    started = fetch(cluster, topic, active, committed=committed) if active else {}
    windows = {}
    for each, low in active.items():
        reader = _Reader(cluster, topic, each, committed)
        windows[each] = reader.first(low, wanted[each].end, limit, started.get(each), deadline)
        windows[each].rows.reverse()
    chosen: list[Row] = []
    while len(chosen) < limit:
        if any(not window.rows and not window.is_complete for window in windows.values()):
            break
        heads = [window.rows[-1] for window in windows.values() if window.rows]
        if not heads:
            break
        head = min(heads, key=lambda row: (row.record.timestamp, row.partition))
        chosen.append(windows[head.partition].rows.pop())
    following = {
        each: window.rows[-1].record.offset if window.rows else window.reached for each, window in windows.items()
    }
    has_more = any(offset < wanted[each].end for each, offset in following.items())
    return Page(chosen, {**lows, **following} if has_more else None)


def single(cluster: Cluster, topic: Topic, partition: int, offset: int) -> Row | None:
    """The record at an offset; None if there is none (deleted, compacted, a transaction marker)."""
    known = topic.bounds.get(partition)
    if known is None or not known.first <= offset < known.end:
        return None
    found = _Reader(cluster, topic, partition, False).between(offset, offset + 1, None)
    assert found is not None
    return found[0] if found else None


def scan(
    cluster: Cluster, topic: Topic, partition: int, low: int, high: int, *, committed: bool = False
) -> Iterator[list[Row]]:
    """All records with offsets from ``low`` to below ``high``, one fetch at a time."""
    position = low
    while position < high:
        fetched = fetch(cluster, topic, {partition: position}, committed=committed)[partition]
        found: list[Row] = []
        before = position
        for batch, is_visible in batches(fetched):
            if is_visible:
                found += rows(partition, batch, position, high)
            position = batch.next_offset
            if position >= high:
                break
        if found:
            yield found
        if position == before:  # the end of what can be read
            return


def _last(reader: _Reader, known: Bounds, upper: int, wanted: int, started: Fetched | None, deadline: float) -> _Window:
    """The last ``wanted`` records below ``upper``, or fewer if that takes too long."""
    found: list[Row] = []
    span, high = wanted, upper
    while len(found) < wanted and high > known.first:
        low = max(known.first, high - span)
        part = reader.between(low, high, started)
        started = None
        if part is None:  # too many bytes
            span = max(1, span // 8)
            continue
        found = part + found
        high = low
        span = min(span * 4, 1_000_000)
        if time.monotonic() > deadline:
            break
    return _Window(found, high, high <= known.first)


class _Reader:
    """Reads ranges of one partition."""

    def __init__(self, cluster: Cluster, topic: Topic, partition: int, committed: bool) -> None:
        self._cluster = cluster
        self._topic = topic
        self._partition = partition
        self._committed = committed

    def between(self, low: int, high: int, started: Fetched | None) -> list[Row] | None:
        """The records with offsets from ``low`` to below ``high``, in this order; None if they are too large.

        ``started`` is the response to a fetch at ``low``, if there was one.
        """
        found: list[Row] = []
        position, size = low, 0
        while position < high:
            fetched, is_first = (started, True) if started is not None else (self._fetch(position), False)
            started = None
            before = position
            for batch, is_visible in batches(fetched):
                if is_visible:
                    found += rows(self._partition, batch, low, high)
                position = batch.next_offset
                if position >= high:
                    return found
            if position == before:
                if is_first:  # other partitions filled the shared response
                    continue
                return found  # the end of what can be read
            size += len(fetched.records)
            if size > _WINDOW_BYTES and high - low > 1:
                return None
        return found

    def first(self, low: int, end: int, wanted: int, started: Fetched | None, deadline: float) -> _Window:
        """The first ``wanted`` records from ``low`` on, or a few more, or fewer if they are large."""
        found: list[Row] = []
        position, size = low, 0
        while position < end:
            fetched, is_first = (started, True) if started is not None else (self._fetch(position), False)
            started = None
            before = position
            for batch, is_visible in batches(fetched):
                if is_visible:
                    found += rows(self._partition, batch, low, end)
                position = batch.next_offset
                if len(found) >= wanted:
                    return _Window(found, position, position >= end)
            if position == before:
                if is_first:
                    continue
                return _Window(found, position, True)
            size += len(fetched.records)
            if found and (size > _WINDOW_BYTES or time.monotonic() > deadline):
                break
        return _Window(found, position, position >= end)

    def _fetch(self, position: int) -> Fetched:
        return fetch(self._cluster, self._topic, {self._partition: position}, committed=self._committed)[
            self._partition
        ]

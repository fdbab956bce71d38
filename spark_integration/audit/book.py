"""The books of one client: its pages, and which of them must be sent.

Counting happens in whatever thread the client reports in (kafka-python's sender thread, librdkafka's callbacks), and
sending in calls of the application. Therefore the book has a lock. Nothing else here depends on threads, and there is
no clock: the time is a parameter.

A page is closed when it was sent and no record was counted on it until the next time. Later records of its window
begin another page. So memory holds only the current pages. A full page is closed as well, which limits the size of a
message.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from threading import Lock
from typing import NamedTuple

from .page import Owner, Page, closed_message, page_message

AUDIT_TOPIC = "_audit"

# The maximum of a page; 500 runs are about 10 kB of JSON.
MAX_RUNS = 500


class Counted(NamedTuple):
    """A record, as far as it matters for counting."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


class Message(NamedTuple):
    """A message to send; ``page`` is passed to ``Book.failed`` if it is not delivered."""

    key: bytes
    value: bytes
    page: Page


@dataclass(frozen=True, slots=True)
class Rule:
    """When counts are sent: with the first record after ``every_records`` records or ``every_s`` seconds."""

    window_ms: int = 60_000
    every_records: int = 10_000
    every_s: float = 10.0

    def __post_init__(self) -> None:
        if self.window_ms <= 0 or self.every_records <= 0 or self.every_s <= 0:
            raise ValueError("the length of a window, every_records and every_s must be greater than 0")


class Book:
    """The counts of one client instance."""

    def __init__(self, owner: Owner, rule: Rule, now_s: float) -> None:
        self.owner = owner
        self._window_ms = rule.window_ms
        self._every_records = rule.every_records
        self._every_s = rule.every_s
        self._lock = Lock()
        # The page on which the next record of a partition and window is counted.
        self._current: dict[tuple[str, int, int], Page] = {}
        # Full, or not delivered: must be sent (again), even if nothing more is counted on them.
        self._unsent: set[Page] = set()
        self._page_count = 0
        self._records = 0
        self._sent_at_s = now_s
        # The records of the open transaction; None outside of a transaction.
        self._uncommitted: list[Counted] | None = None

    def count(self, topic: str, partition: int, offset: int, timestamp_ms: int) -> None:
        """Count one record; a negative offset means that the offset is unknown."""
        with self._lock:
            if self._uncommitted is None:
                self._count(topic, partition, offset, timestamp_ms)
            else:
                self._uncommitted.append(Counted(topic, partition, offset, timestamp_ms))

    def count_all(self, records: Iterable[tuple[str, int, int, int]]) -> None:
        """Count records: topic, partition, offset, timestamp."""
        with self._lock:
            for record in records:
                self._count(*record)

    def begin(self) -> None:
        """Begin a transaction. Its records are buffered, because it may be aborted."""
        with self._lock:
            self._uncommitted = []

    def commit(self) -> None:
        """Commit the transaction: its buffered records are counted."""
        with self._lock:
            held, self._uncommitted = self._uncommitted or [], None
            for record in held:
                self._count(*record)

    def abort(self) -> None:
        """Abort the transaction: no reader of committed records sees its records, so they are not counted."""
        with self._lock:
            self._uncommitted = None

    def due(self, now_s: float) -> bool:
        """Whether it is time to send."""
        return self._records >= self._every_records or (self._records > 0 and now_s - self._sent_at_s >= self._every_s)

    def take(self, now_s: float, time_ms: int) -> list[Message]:
        """The pages to send now. They count as sent unless ``failed`` is called for them."""
        with self._lock:
            self._records = 0
            self._sent_at_s = now_s
            for place, page in list(self._current.items()):
                if page.changed:
                    self._unsent.add(page)
                else:
                    del self._current[place]
            messages = []
            for page in sorted(self._unsent, key=lambda page: page.number):
                page.revision += 1
                page.changed = False
                messages.append(Message(*page_message(self.owner, page, time_ms), page))
            self._unsent.clear()
            return messages

    def failed(self, page: Page) -> None:
        """Note that a page was not delivered: it is sent again with the next ones."""
        with self._lock:
            self._unsent.add(page)
            self._records = max(self._records, 1)

    @property
    def unsent(self) -> int:
        """The number of pages that would be sent now."""
        with self._lock:
            return len(self._unsent.union(page for page in self._current.values() if page.changed))

    def closed(self, time_ms: int) -> tuple[bytes, bytes]:
        """Key and value of the last message, which closes the books."""
        return closed_message(self.owner, time_ms)

    def _count(self, topic: str, partition: int, offset: int, timestamp_ms: int) -> None:
        self._records += 1
        window_start = timestamp_ms - timestamp_ms % self._window_ms
        place = (topic, partition, window_start)
        page = self._current.get(place)
        if page is None:
            self._page_count += 1
            page = Page(self._page_count, topic, partition, window_start, window_start + self._window_ms)
            self._current[place] = page
        page.add(offset)
        if len(page.runs) >= MAX_RUNS:
            self._unsent.add(self._current.pop(place))

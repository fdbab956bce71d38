"""The books of one client: pages, and which of them have to be sent.

Counting takes place wherever the client reports (kafka-python's sender thread, librdkafka's callbacks), sending where
the application calls. Therefore the lock; nothing else here knows of threads, and there is no clock: whoever asks
says what time it is.

A page is given up when it was sent and nothing was counted on it until the next time; what comes for its window later
begins another page. So memory holds what is being counted now. A page that is full is given up as well, which bounds a
message.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from threading import Lock
from typing import NamedTuple

from .page import Owner, Page, closed_message, page_message

AUDIT_TOPIC = "_audit"

# Of a page; 500 runs are about 10 kB of JSON.
MAX_RUNS = 500


class Counted(NamedTuple):
    """A record, as far as it is counted."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


class Message(NamedTuple):
    """What is to be sent; ``page`` comes back to ``Book.failed`` if that does not work."""

    key: bytes
    value: bytes
    page: Page


@dataclass(frozen=True, slots=True)
class Rule:
    """When counts are sent: with the record that comes after ``every_records`` records or ``every_s`` seconds."""

    window_ms: int = 60_000
    every_records: int = 10_000
    every_s: float = 10.0

    def __post_init__(self) -> None:
        if self.window_ms <= 0 or self.every_records <= 0 or self.every_s <= 0:
            raise ValueError("the length of a window, every_records and every_s must be greater than 0")


class Book:
    """What one instance of a client has counted."""

    def __init__(self, owner: Owner, rule: Rule, now_s: float) -> None:
        self.owner = owner
        self._window_ms = rule.window_ms
        self._every_records = rule.every_records
        self._every_s = rule.every_s
        self._lock = Lock()
        # Where the next record of a partition and window is counted.
        self._current: dict[tuple[str, int, int], Page] = {}
        # Full, or not delivered: to be sent (again), whatever is counted meanwhile.
        self._unsent: set[Page] = set()
        self._page_count = 0
        self._records = 0
        self._sent_at_s = now_s
        # Of a transaction that is neither committed nor aborted; None outside of one.
        self._held: list[Counted] | None = None

    def count(self, topic: str, partition: int, offset: int, timestamp_ms: int) -> None:
        """Count one record; a negative offset is one that is not known."""
        with self._lock:
            if self._held is None:
                self._count(topic, partition, offset, timestamp_ms)
            else:
                self._held.append(Counted(topic, partition, offset, timestamp_ms))

    def count_all(self, records: Iterable[tuple[str, int, int, int]]) -> None:
        """Count records: topic, partition, offset, timestamp."""
        with self._lock:
            for record in records:
                self._count(*record)

    def begin(self) -> None:
        """A transaction begins: what is counted now is held back, because it may be aborted."""
        with self._lock:
            self._held = []

    def commit(self) -> None:
        """The transaction is committed, and what was held back counts."""
        with self._lock:
            held, self._held = self._held or [], None
            for record in held:
                self._count(*record)

    def abort(self) -> None:
        """The transaction is aborted: its records are not in the log for anybody who reads what is committed."""
        with self._lock:
            self._held = None

    def due(self, now_s: float) -> bool:
        """It is time to send."""
        return self._records >= self._every_records or (self._records > 0 and now_s - self._sent_at_s >= self._every_s)

    def take(self, now_s: float, time_ms: int) -> list[Message]:
        """The pages that are to be sent now. They count as sent until ``failed`` says otherwise."""
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
        """A page was not delivered: it is sent again with the next ones."""
        with self._lock:
            self._unsent.add(page)
            self._records = max(self._records, 1)

    @property
    def unsent(self) -> int:
        """Pages that would be sent now."""
        with self._lock:
            return len(self._unsent.union(page for page in self._current.values() if page.changed))

    def closed(self, time_ms: int) -> tuple[bytes, bytes]:
        """Key and value of the message that nothing will follow."""
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

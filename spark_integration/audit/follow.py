"""A repeated audit: each window is reported when it is over, and again when its counts change later.

Every round is a complete audit of the newest windows. Only the earlier reports are kept between rounds. A window is
over when the newest record of its topic is newer than the end of the window by the watermark, as in a streaming job. So
it makes no difference whether a topic is replayed from old records or is current. When a topic has not grown for as
long as the watermark, all its windows are over.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from .balance import audit
from .report import Report, State, Window, with_late_counts
from .request import AuditRequest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FOREVER_MS = 1 << 62

_Key = tuple[str, int]


class Progress:
    """The progress of each topic, and the time since it last grew."""

    def __init__(self, watermark_ms: int) -> None:
        self._watermark_ms = watermark_ms
        self._newest_ms: dict[str, int] = {}
        self._grown: dict[str, tuple[int, float]] = {}

    def closed_before_ms(self, topic: str, newest_ms: int, end: int, now_s: float) -> int:
        """The time before which a topic's windows are over, from its newest timestamp and the sum of its ends."""
        newest_ms = max(newest_ms, self._newest_ms.get(topic, newest_ms))
        self._newest_ms[topic] = newest_ms
        before, since_s = self._grown.get(topic, (-1, now_s))
        if end != before:
            self._grown[topic] = (end, now_s)
        elif (now_s - since_s) * 1000 >= self._watermark_ms:
            return _FOREVER_MS
        return newest_ms - self._watermark_ms

    def watch_from_ms(self, keep_ms: int) -> int | None:
        """The start of the windows to audit, if windows are kept for ``keep_ms`` after they are over; None for all."""
        if not self._newest_ms:
            return None
        return min(self._newest_ms.values()) - self._watermark_ms - keep_ms


class Reported:
    """The windows that were reported: their first balanced and their latest state."""

    def __init__(self) -> None:
        self._first: dict[_Key, Window] = {}
        self._last: dict[_Key, Window] = {}

    def changed(self, windows: tuple[Window, ...], from_ms: int | None) -> list[Window]:
        """The windows that are over and whose report has changed since the last one."""
        if from_ms is not None:
            for key, window in list(self._first.items()):
                if window.books.window_end <= from_ms:
                    del self._first[key], self._last[key]
        news = []
        for window in windows:
            if window.state is State.OPEN:
                continue
            key = (window.books.topic, window.books.window_start)
            now = with_late_counts(window, self._first.setdefault(key, window))
            if self._last.get(key) != now:
                self._last[key] = now
                news.append(now)
        return news


def follow(
    spark: SparkSession, request: AuditRequest, *, every_s: float, keep_ms: int, wait: Callable[[float], bool]
) -> Iterator[Report]:
    """Yield a report of the changes after each round. ``wait(seconds)`` is called in between; False ends the loop.

    A window that is over is audited again for ``keep_ms`` of its topic's own time.
    """
    progress, reported = Progress(request.watermark_ms), Reported()
    from_ms = request.from_ms
    while True:
        began_s = time.monotonic()

        def closed_before(topic: str, newest_ms: int, end: int, now_s: float = began_s) -> int:
            return progress.closed_before_ms(topic, newest_ms, end, now_s)

        report = audit(spark, replace(request, from_ms=from_ms), closed_before)
        yield Report(tuple(reported.changed(report.windows, from_ms)), report.notes)
        if not wait(max(every_s - (time.monotonic() - began_s), 0)):
            return
        watched_ms = progress.watch_from_ms(keep_ms)
        if watched_ms is not None:
            from_ms = watched_ms if request.from_ms is None else max(watched_ms, request.from_ms)

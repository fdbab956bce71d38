"""How far a read of `read_topic` is, and its progress bar on standard error.

The bar appears only if standard error is a terminal, and only when the read has taken `SHOWN_AFTER_S`, so that short
reads print nothing. rich draws it, like the bars of Moldau's commands; it is loaded for the first bar.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rich.progress import Progress as Bars
    from rich.progress import TaskID

SHOWN_AFTER_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a read is. Offsets without records count as read when the reader has passed them."""

    records: int
    offsets: int
    offsets_total: int


ReportProgress = Callable[[Progress], None]


@contextmanager
def progress_bar(topic: str) -> Iterator[ReportProgress]:
    """A bar that follows the reported progress. It is removed at the end of the block."""
    if not sys.stderr.isatty():
        yield _ignore
        return
    bar = _Bar(topic)
    try:
        yield bar.update
    finally:
        bar.remove()


def _ignore(progress: Progress) -> None:
    """No bar."""


class _Bar:
    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._shown_at = time.monotonic() + SHOWN_AFTER_S
        self._shown: tuple[Bars, TaskID] | None = None

    def update(self, progress: Progress) -> None:
        if self._shown is None:
            if time.monotonic() < self._shown_at:
                return
            bars = _bars()
            self._shown = bars, bars.add_task(self._topic, total=progress.offsets_total, records=0)
            bars.start()
        bars, task = self._shown
        bars.update(task, completed=progress.offsets, records=progress.records)

    def remove(self) -> None:
        if self._shown is not None:
            self._shown[0].stop()


def _bars() -> Bars:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[records]:,} records", markup=False),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
        # With a redirection, what the program prints to its standard output would go to standard error.
        redirect_stdout=False,
        redirect_stderr=False,
    )

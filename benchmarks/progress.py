"""The progress of a run: a bar with the remaining time on a terminal, otherwise a line per step, on standard error.

The remaining time is estimated from the time of the same row in this run, or in an earlier one. A row that was never
measured counts as the average of the others.
"""

import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from .results import Outcome, Results
from .runner import WARM_UP, Step

_UNKNOWN_SECONDS = 20.0


def durations(results: Results) -> dict[str, float]:
    """The duration of a round of each row in these results."""
    found = {}
    for name, row in results.rows.items():
        seconds = [outcome.seconds for outcomes in row.subjects.values() for outcome in outcomes if not outcome.error]
        if seconds:
            found[name] = statistics.mean(seconds)
    return found


class Forecast:
    """An estimate of the remaining time."""

    def __init__(self, earlier: Mapping[str, float]) -> None:
        self._earlier = dict(earlier)
        self._measured: dict[str, list[float]] = {}
        self._left: list[Step] = []

    def begin(self, steps: Sequence[Step]) -> None:
        self._left = list(steps)

    def ended(self, step: Step, seconds: float) -> None:
        self._left.remove(step)
        if step.round:
            self._measured.setdefault(step.row.name, []).append(seconds)

    def seconds_left(self) -> float:
        known = {**self._earlier, **{name: statistics.mean(seconds) for name, seconds in self._measured.items()}}
        usual = statistics.mean(known.values()) if known else _UNKNOWN_SECONDS
        return sum(self._weight(step) * known.get(step.row.name, usual) for step in self._left)

    @staticmethod
    def _weight(step: Step) -> float:
        return 1.0 if step.round else WARM_UP


class TerminalProgress:
    """A ``runner.Progress`` for a terminal. It is a context manager, because the bar must be removed at the end."""

    def __init__(self, earlier: Mapping[str, float]) -> None:
        self._console = Console(stderr=True, highlight=False, markup=False, emoji=False)
        self._forecast = Forecast(earlier)
        self._resources = ExitStack()
        self._bar = Progress(
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TextColumn("{task.fields[left]} left  {task.description}", markup=False),
            console=self._console,
            disable=not self._console.is_terminal,
            transient=True,
            refresh_per_second=1,  # drawing must not affect the measurement
        )
        self._task = self._bar.add_task("", total=None, left="?")
        self._total = 0
        self._done = 0
        self._began = time.monotonic()

    def begin(self, steps: Sequence[Step]) -> None:
        self._total = len(steps)
        self._forecast.begin(steps)
        self._bar.update(self._task, total=self._total, left=self._left())

    def step_began(self, step: Step) -> None:
        self._bar.update(self._task, description=describe(step), left=self._left())

    def step_ended(self, step: Step, outcome: Outcome) -> None:
        self._done += 1
        self._forecast.ended(step, outcome.seconds)
        self._bar.update(self._task, advance=1, left=self._left())
        if outcome.error:
            text = f"FAILED {outcome.error}"
        elif self._console.is_terminal and not step.round:
            return
        else:
            text = ", ".join(f"{name} {value:.4g}" for name, value in outcome.numbers.items()) or "done"
        place = "" if self._console.is_terminal else f"[{self._done}/{self._total}, {self._left()} left] "
        self.say(f"{place}{describe(step)}: {text}")

    def say(self, text: str) -> None:
        """Print a permanent line."""
        if self._console.is_terminal:
            self._console.print(text, soft_wrap=True)
        else:
            print(text, file=sys.stderr, flush=True)

    def __enter__(self) -> Self:
        self._resources.enter_context(self._bar)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._resources.close()

    def _left(self) -> str:
        return duration(self._forecast.seconds_left())


def describe(step: Step) -> str:
    which = f"round {step.round}" if step.round else "warming up"
    return f"{step.row.name}, {which}, {step.subject}"


def duration(seconds: float) -> str:
    """``45 s``, ``12 min``, ``3 h 05 min``."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02} min"

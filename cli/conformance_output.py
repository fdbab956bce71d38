"""What ``moldau conformance`` prints, and how it ends after Ctrl-C."""

import contextlib
import os
import shutil
import signal
import sys
import textwrap
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

import click

from .output import print_table

if TYPE_CHECKING:
    from ..conformance.case import Case
    from ..conformance.outcome import Result
    from ..conformance.runner import Runner

_WIDTH: Final = 100


def print_results(results: "Sequence[Result]", html: Path | None, json_file: Path | None) -> None:
    """The failures, and then the areas by verdict."""
    from ..conformance.outcome import Verdict
    from ..conformance.reports import text

    colors = {"FAILED": "red", "INCONCLUSIVE": "yellow"}
    for line in text.failures(results):
        word, space, rest = line.partition(" ")
        click.echo(click.style(word, fg=colors[word], bold=True) + space + rest if word in colors else line)
    if any(result.verdict is Verdict.FAILED for result in results):
        print(text.hint(None if html is None else str(html), None if json_file is None else str(json_file)) + "\n")
    print_table(text.COLUMNS, text.rows(results))


def print_explanation(case: "Case", conditions: str) -> None:
    """What a case sends and expects, wrapped to the terminal."""
    width = min(_WIDTH, shutil.get_terminal_size().columns) if sys.stdout.isatty() else _WIDTH
    print(f"{case.id}: {case.title}\n")
    properties = (
        ("Sends", case.sends),
        ("Expects", case.expects),
        ("Why", case.why),
        ("Source", case.source),
        ("Level", f"{case.level}: {_LEVELS[case.level]}"),
        ("Layer", f"{case.layer}: {_LAYERS[case.layer]}"),
        ("Applies to", conditions),
        ("Run it", f"moldau conformance HOST:PORT --case {case.id} --html report.html"),
    )
    for name, value in properties:
        label = f"{name}:".ljust(13)
        print(textwrap.fill(label + value, width, subsequent_indent=" " * 13, break_on_hyphens=False))


_LEVELS: Final = {
    "must": "otherwise a client breaks, or data is wrong.",
    "should": "otherwise a client works; its user is misled, or waits longer.",
    "apache": "what Apache Kafka does without promising it.",
}
_LAYERS: Final = {
    "wire": "one exchange.",
    "contract": "several exchanges.",
    "crash": "the server is killed and restarted.",
    "cluster": "several brokers.",
    "clients": "a real client uses the server.",
}


class Progress:
    """A progress bar on a terminal; nothing elsewhere."""

    def __init__(self, cases: int) -> None:
        self._bar: Any = None
        self._task: Any = None
        self._failed = 0
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
            from rich.progress import Progress as Bar

            self._bar = Bar(
                BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.description}"),
                console=Console(stderr=True), transient=True,
            )  # fmt: skip
            self._task = self._bar.add_task("", total=cases)

    def finished(self, result: "Result") -> None:
        from ..conformance.outcome import Verdict

        self._failed += result.verdict is Verdict.FAILED
        if self._bar is not None:
            failed = f"[red]{self._failed} failed[/red] " if self._failed else ""
            self._bar.update(self._task, advance=1, description=f"{failed}{result.case.area}")

    def note(self, message: str) -> None:
        """A line above the bar."""
        if self._bar is not None:
            self._bar.console.print(message, markup=False, highlight=False)
        else:
            print(message, file=sys.stderr)

    def __enter__(self) -> "Progress":
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, *exception: object) -> None:
        if self._bar is not None:
            self._bar.stop()


@contextlib.contextmanager
def interrupts(runner: "Runner", progress: Progress) -> Iterator[None]:
    """Ctrl-C ends the run, and the reports are still written; pressed again, the run does not clean up.

    SIGTERM does the same. A handler that raised an exception could interrupt the writing of a report.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    count = 0

    def interrupt(number: int, frame: object) -> None:
        nonlocal count
        count += 1
        runner.interrupt()
        # The handler may have interrupted the progress bar's output, so another thread prints.
        message = "interrupted: deleting topics and groups; Ctrl-C again skips this" if count == 1 else "skipped"
        if count <= 2:
            threading.Thread(target=progress.note, args=(message,), daemon=True).start()

    before = {each: signal.signal(each, interrupt) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def leave(code: int) -> NoReturn:
    """Exit without waiting for threads: cases that do not end."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)

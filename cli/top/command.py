"""``moldau top``: a live table of topics, groups, clients and requests."""

from __future__ import annotations

import math
import signal
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import click

from ..client import bootstrap_option
from ..client_security import security_of_command
from ..failure import Failure
from ..output import print_json, print_table
from .discovery import address_of
from .report import Report, as_json, report
from .sampling import Sample, Sampler

if TYPE_CHECKING:
    from rich.console import Console

    from .keyboard import Keyboard

# How often the screen is drawn while a broker is not reachable, because it says for how long.
_DRAWN_EVERY_S: Final = 1.0
# How long --once waits for the metrics of brokers.
_PATIENCE_ONCE_S: Final = 15.0


@click.command("top", short_help="Show a live table of topics, groups, clients and requests.")
@click.option("--metrics", metavar="HOST:PORT", multiple=True, help="An endpoint of metrics of a broker; repeatable.")
@click.option(
    "--interval",
    type=click.FloatRange(0.2, 3600),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="The time between two samples.",
)
@click.option("--once", is_flag=True, help="Print the tables once, after one interval, and exit.")
@click.option("--json", "as_lines", is_flag=True, help="Print one JSON object per sample; with --once, a single one.")
@bootstrap_option
def command(metrics: tuple[str, ...], interval: float, once: bool, as_lines: bool, bootstrap_server: str) -> None:
    """Show rates of topics, lag of groups, clients, and slow requests of a Kafka server, as a table that is updated.

    Records per second, sizes, groups and their members come from any Kafka server. Bytes, requests, their durations
    and the software of clients come from metrics: `moldau serve --metrics HOST:PORT`, which is found through the
    settings of the broker, or a JMX exporter at Apache Kafka with Strimzi's rules, which --metrics names.

    Keys: q quits; 1 to 4 show one table, 0 all; Tab selects the next table; < and > select the column to sort by,
    r reverses the order; i shows internal topics; p pauses; arrows and page keys scroll.

    \b
    Examples:
      moldau top
      moldau top -b kafka.example:9092 --metrics kafka.example:9404
      moldau top --once
      moldau top --json --interval 10 | jq '.groups[] | select(.lag > 1000)'
    """
    if math.isnan(interval):  # it is neither below nor above the limits of the option
        raise click.BadParameter("nan is not a number of seconds", param_hint="--interval")
    addresses = [address_of(text) for text in metrics]
    if not (once or as_lines) and not sys.stdout.isatty():
        raise click.UsageError("the output is not a terminal; use --once or --json")
    sampler = Sampler(bootstrap_server, security_of_command(), addresses)
    try:
        if as_lines and not once:
            _print_lines(sampler, interval)
        elif once:
            _print_once(sampler, interval, as_lines)
        else:
            _show(sampler, interval, bootstrap_server)
    finally:
        sampler.close()


def _print_once(sampler: Sampler, interval: float, as_object: bool) -> None:
    before = sampler.sample(patience_s=_PATIENCE_ONCE_S)
    time.sleep(interval)
    found = report(before, sampler.sample(patience_s=_PATIENCE_ONCE_S))
    if as_object:
        print_json(as_json(found))
        return
    from .screen import VIEWS, cells_of, rows_of

    for view in VIEWS:
        rows = rows_of(view, found)
        print(f"{view.title} ({len(rows)})")
        if rows:
            print_table([column.title for column in view.columns], [cells_of(view, row) for row in rows])
        print()
    for note in found.missing:
        print(f"Note: {note}", file=sys.stderr)


def _print_lines(sampler: Sampler, interval: float) -> None:
    """Print an object for each sample. A server that is not reachable later is an object with ``error``."""
    before: Sample | None = sampler.sample()
    due = time.monotonic()
    while True:
        due = max(due + interval, time.monotonic())
        time.sleep(max(0.0, due - time.monotonic()))
        try:
            now = sampler.sample()
        except Failure as problem:
            when = datetime.now(UTC).isoformat(timespec="milliseconds")
            print_json({"time": when, "error": _first_line(problem)})
            before = None
        else:
            print_json(as_json(report(before, now)))
            before = now
        sys.stdout.flush()


def _first_line(problem: Failure) -> str:
    return problem.message.splitlines()[0]


class _Watch:
    """Samples in a thread, so that keys work while a broker does not respond."""

    def __init__(self, sampler: Sampler, interval: float, on_change: Callable[[], None], first: Sample) -> None:
        self._sampler = sampler
        self._interval = interval
        self._on_change = on_change
        self._before: Sample | None = first
        self.report: Report = report(None, first)
        self.problem: tuple[str, float] | None = None
        """Why there is no newer report, and since when, of a monotonic clock."""
        self.error: Exception | None = None
        """An unexpected error, after which there are no more samples."""
        # A daemon: it may wait for a broker that does not respond when the program ends.
        threading.Thread(target=self._run, name="samples", daemon=True).start()

    def _run(self) -> None:
        ended = threading.Event()
        # The rates of the first report are unknown, so the second one is due early.
        ended.wait(min(1.0, self._interval))
        try:
            while True:
                began = time.monotonic()
                self._sample()
                self._on_change()
                ended.wait(max(0.1, began + self._interval - time.monotonic()))
        except Exception as error:  # noqa: BLE001 -- the main thread raises it
            self.error = error
            self._on_change()

    def _sample(self) -> None:
        try:
            now = self._sampler.sample()
        except Failure as problem:
            since = time.monotonic() if self.problem is None else self.problem[1]
            self.problem = _first_line(problem), since
            self._before = None
            return
        self.report = report(self._before, now)
        self._before = now
        self.problem = None


def _show(sampler: Sampler, interval: float, server: str) -> None:
    from rich.console import Console

    console = Console(highlight=False, markup=False, emoji=False)
    if console.is_dumb_terminal:
        raise Failure("the terminal cannot draw (TERM); use --once or --json")
    first = sampler.sample()  # a failure at the beginning is a line, not a screen

    from .keyboard import INTERRUPT, Keyboard

    with Keyboard() as keyboard:
        watch = _Watch(sampler, interval, keyboard.wake, first)
        ended_by = _draw_until_end(console, keyboard, watch, server, interval)
    if watch.error is not None:
        raise watch.error
    # Not a KeyboardInterrupt, after which click begins a new line.
    if ended_by:
        sys.exit(128 + (signal.SIGINT if ended_by == INTERRUPT else signal.SIGTERM))


def _draw_until_end(console: Console, keyboard: Keyboard, watch: _Watch, server: str, interval: float) -> str:
    """Draw until a key, a signal or an error ends it; returns which signal it was."""
    from rich.live import Live

    from .keyboard import END, INTERRUPT, SUSPEND
    from .screen import State, draw

    state = State()
    found = watch.report
    live = Live(console=console, screen=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)
    with live:
        while watch.error is None:
            if not state.is_paused:
                found = watch.report
            width, height = console.size
            picture = draw(
                found, state, width=width, height=height, server=server, interval_s=interval, problem=_problem(watch)
            )
            live.update(picture, refresh=True)
            for key in keyboard.wait(_DRAWN_EVERY_S):
                if key in (INTERRUPT, END):
                    return key
                if key == SUSPEND:
                    live.stop()
                    keyboard.suspend()
                    live.start()
                elif not state.press(key, page=max(1, height // 2)):
                    return ""
    return ""


def _problem(watch: _Watch) -> str | None:
    if watch.problem is None:
        return None
    reason, since = watch.problem
    return f"{reason} (for {time.monotonic() - since:.0f} s; trying again)"

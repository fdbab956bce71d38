"""Plots of the results: SVG files for docs/performance/, byte for byte reproducible from one run.

They are readable on white and on black pages: there is no background, and text is gray. It stays text in the file, so
that the file is small and its changes can be read.

Rates and costs of different rows have no useful common axis. So the longest bar of each row has the full width, and the
numbers are next to the bars. If all rows have the same unit (memory), the axis shows it.

Only this module needs matplotlib (``pip install 'moldau[bench]'``).
"""

import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter

from .comparison import NAMES, Spread, spread
from .quantities import digits, main_numbers, quantity
from .results import Results, RowResults
from .row import Row, Subject

_GREY = "#808890"
_COLOURS = {Subject.MOLDAU: "#2f81f7", Subject.APACHE: "#db6d28", Subject.CEILING: "#a0a6ae"}
_PERCENTILES = (("p50", "o"), ("p99", "D"), ("p999", "^"))

# Latencies in whole milliseconds can be 0, which a logarithmic axis cannot show.
_MIN_MS = 0.5

_STYLE = {
    "svg.hashsalt": "moldau",
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 9,
    "text.color": _GREY,
    "axes.edgecolor": _GREY,
    "axes.labelcolor": _GREY,
    "xtick.color": _GREY,
    "ytick.color": _GREY,
}
_WIDTH = 9.0
_HEIGHT_OF_BAR = 0.19
_GAP = 1.2
_LABEL_LETTERS = 56


def draw(results: Results, rows: Sequence[Row], folder: Path) -> list[tuple[Path, str]]:
    """Draw the plots of the results, and return the files with their titles. A plot without numbers is not created, and
    an old file with its name is removed."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = []
    pictures: tuple[tuple[str, str, Callable[[Results, Sequence[Row], str], Figure | None]], ...] = (
        ("throughput", "Throughput", _throughput),
        ("latency", "Latency, percentiles", _latency),
        ("cpu", "CPU of the server per GB", _cpu),
        ("memory", "Resident memory", _memory),
    )
    for name, title, picture in pictures:
        path = folder / f"{name}.svg"
        with matplotlib.rc_context(_STYLE):
            figure = picture(results, rows, title)
            if figure is None:
                path.unlink(missing_ok=True)
                continue
            figure.savefig(
                path, format="svg", transparent=True, bbox_inches="tight", metadata={"Date": None, "Creator": None}
            )
        drawn.append((path, title))
    return drawn


def _throughput(results: Results, rows: Sequence[Row], title: str) -> Figure | None:
    return _bars(results, rows, title, _rate, tuple(Subject), common_axis=False)


def _cpu(results: Results, rows: Sequence[Row], title: str) -> Figure | None:
    return _bars(results, rows, title, _named("cpu_s_per_gb"), (Subject.MOLDAU, Subject.APACHE), common_axis=False)


def _memory(results: Results, rows: Sequence[Row], title: str) -> Figure | None:
    return _bars(results, rows, title, _named("rss_mb"), (Subject.MOLDAU, Subject.APACHE), common_axis=True)


def _named(number: str) -> Callable[[Row, RowResults], str | None]:
    return lambda _row, measured: number if number in measured.number_names() else None


def _rate(row: Row, measured: RowResults) -> str | None:
    """The rate shown in the table."""
    for number in main_numbers(measured.number_names(), (target.number for target in row.targets)):
        found = quantity(number)
        if found is not None and found.kind == "rate" and found.name == number:
            return number
    return None


def _bars(
    results: Results,
    rows: Sequence[Row],
    title: str,
    number_of: Callable[[Row, RowResults], str | None],
    subjects: Sequence[Subject],
    *,
    common_axis: bool,
) -> Figure | None:
    """A group of bars for each row that has the number, with whiskers from the lowest to the highest round."""
    groups: list[tuple[Row, str, list[tuple[Subject, Spread]]]] = []
    for row in rows:
        measured = results.rows.get(row.name)
        number = number_of(row, measured) if measured else None
        if measured is None or number is None:
            continue
        found = [(subject, spread(measured, subject, number)) for subject in subjects]
        groups.append((row, number, [(subject, each) for subject, each in found if each is not None]))
    if not groups:
        return None
    figure, axes = _figure(sum(len(bars) + _GAP for _row, _number, bars in groups) * _HEIGHT_OF_BAR, title)
    y = 0.0
    ticks = []
    for row, number, bars in groups:
        full = 1.0 if common_axis else max(each.highest for _subject, each in bars) or 1.0
        unit = getattr(quantity(number), "unit", "")
        ticks.append((y + (len(bars) - 1) / 2, _label(row)))
        for subject, each in bars:
            whiskers = [[(each.median - each.lowest) / full], [(each.highest - each.median) / full]]
            error = {"ecolor": _GREY, "elinewidth": 0.8, "capsize": 1.5}
            axes.barh(y, each.median / full, height=0.8, color=_COLOURS[subject], xerr=whiskers, error_kw=error)
            _annotate(axes, f"{digits(each.median)} {unit}", each.highest / full, y)
            y += 1
        y += _GAP
    _label_rows(axes, ticks)
    axes.set_ylim(y - _GAP, -1)
    axes.margins(x=0.22)
    axes.set_xlim(left=0)
    if common_axis:
        axes.set_xlabel(getattr(quantity(groups[0][1]), "unit", ""))
    else:
        axes.set_xticks([])
        axes.spines["bottom"].set_visible(False)
    shown = [subject for subject in subjects if any(each is subject for _r, _n, bars in groups for each, _s in bars)]
    _legend(axes, [Line2D([], [], color=_COLOURS[each], linewidth=6, label=_name(each)) for each in shown])
    return figure


def _latency(results: Results, rows: Sequence[Row], title: str) -> Figure | None:
    """p50, p99 and p99.9 as three marks on one line for each server, on a logarithmic axis."""
    groups: list[tuple[str, list[tuple[Subject, list[float]]]]] = []
    for row in rows:
        measured = results.rows.get(row.name)
        marks = [
            (subject, values)
            for subject in (Subject.MOLDAU, Subject.APACHE)
            if measured is not None and (values := _percentiles_ms(measured, subject))
        ]
        if marks:
            groups.append((_label(row), marks))
    if not groups:
        return None
    figure, axes = _figure(sum(len(marks) + _GAP for _title, marks in groups) * _HEIGHT_OF_BAR, title)
    y = 0.0
    ticks = []
    for label, marks in groups:
        ticks.append((y + (len(marks) - 1) / 2, label))
        for subject, values in marks:
            axes.plot(values, [y] * len(values), color=_COLOURS[subject], linewidth=1.2)
            for value, (_percentile, marker) in zip(values, _PERCENTILES, strict=True):
                axes.plot(value, y, marker=marker, color=_COLOURS[subject], markersize=4.5)
            _annotate(axes, digits(values[-1]), values[-1], y)
            y += 1
        y += _GAP
    _label_rows(axes, ticks)
    axes.set_ylim(y - _GAP, -1)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _position: digits(value)))
    axes.margins(x=0.1)
    axes.set_xlabel(f"ms (0 of whole milliseconds is shown as {_MIN_MS})")
    axes.grid(axis="x", color=_GREY, alpha=0.25, linewidth=0.6)
    subjects = [
        Line2D([], [], color=_COLOURS[each], linewidth=3, label=_name(each))
        for each in (Subject.MOLDAU, Subject.APACHE)
    ]
    marks_of = [
        Line2D([], [], color=_GREY, linestyle="", marker=marker, markersize=4.5, label=text)
        for (_percentile, marker), text in zip(_PERCENTILES, ("p50", "p99", "p99.9"), strict=True)
    ]
    _legend(axes, [*subjects, *marks_of])
    return figure


def _percentiles_ms(row: RowResults, subject: Subject) -> list[float]:
    """The medians of all three percentiles; empty if the row does not have them."""
    for unit, in_ms, least in (("us", 0.001, 0.0), ("ms", 1.0, _MIN_MS)):
        medians = [row.median(subject, f"{percentile}_{unit}") for percentile, _marker in _PERCENTILES]
        known = [max(median * in_ms, least) for median in medians if median is not None]
        if len(known) == len(_PERCENTILES):
            return known
    return []


def _figure(height: float, title: str) -> tuple[Figure, Any]:
    figure = Figure(figsize=(_WIDTH, height + 0.9))
    axes = figure.subplots()
    axes.set_title(title, loc="left", fontsize=11, pad=22)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    return figure, axes


def _label(row: Row) -> str:
    return f"{row.name}:\n{textwrap.fill(row.title, _LABEL_LETTERS)}"


def _annotate(axes: Any, text: str, x: float, y: float) -> None:
    axes.annotate(text, (x, y), xytext=(5, 0), textcoords="offset points", va="center", fontsize=7.5)


def _label_rows(axes: Any, ticks: Sequence[tuple[float, str]]) -> None:
    axes.set_yticks([y for y, _label in ticks], [label for _y, label in ticks])
    axes.tick_params(axis="y", length=0, labelsize=7.5)


def _legend(axes: Any, handles: Sequence[Line2D]) -> None:
    axes.legend(handles=handles, loc="lower left", bbox_to_anchor=(0, 1), ncols=len(handles), frameon=False, fontsize=8)


def _name(subject: Subject) -> str:
    return NAMES[subject].removeprefix("the ")

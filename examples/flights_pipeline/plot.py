"""Plots the result: the delays at each airport, over the weeks and over the day."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import matplotlib
from check import AirportHour
from events import AIRPORTS, NEW_YORK, Period, parse_time
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure

Key = TypeVar("Key", date, int)

NAMES = {"EWR": "Newark (EWR)", "JFK": "Kennedy (JFK)", "LGA": "LaGuardia (LGA)"}
# Distinguishable without red-green color vision.
COLOURS = {"EWR": "#0072b2", "JFK": "#e69f00", "LGA": "#009e73"}
STYLE = {"svg.fonttype": "none", "svg.hashsalt": "flights", "font.size": 10, "axes.grid": True, "grid.alpha": 0.3}

# At night a single late plane would determine the whole hour, and late planes of an evening still depart after
# midnight.
FEWEST_DEPARTURES = 20
DAY_BEGINS = 4


def draw(rows: Sequence[AirportHour], period: Period, path: Path) -> None:
    """Draw the rows to a file; its suffix determines the format, ``.svg`` or ``.png``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(10, 9.5), layout="constrained")
        days, cancelled, hours = figure.subplots(3, 1, height_ratios=(3, 2, 3))
        figure.suptitle(
            f"Departures from New York, {_day(period.first)} to {_day(period.last - timedelta(days=1))}",
            fontweight="bold",
        )
        _draw_days(days, rows)
        _draw_cancelled(cancelled, rows)
        cancelled.sharex(days)
        _draw_hours(hours, rows)
        metadata = {"Date": None, "Creator": None} if path.suffix == ".svg" else None
        figure.savefig(path, dpi=130, metadata=metadata)


def _draw_days(axes: Axes, rows: Sequence[AirportHour]) -> None:
    for airport in AIRPORTS:
        means = _mean_delays(_of(airport, rows), lambda row: _local(row).date())
        at: Any = list(means)  # matplotlib takes dates; its types do not
        axes.plot(at, list(means.values()), ".-", color=COLOURS[airport], label=NAMES[airport])
    axes.set(title="Over the weeks: mean delay of each day's departures", ylabel="minutes")
    axes.legend(title="Airport", loc="upper left")
    _label_dates(axes)


def _draw_cancelled(axes: Axes, rows: Sequence[AirportHour]) -> None:
    below: defaultdict[date, int] = defaultdict(int)
    for airport in AIRPORTS:
        counts: defaultdict[date, int] = defaultdict(int)
        for row in _of(airport, rows):
            counts[_local(row).date()] += row.cancelled
        at: Any = list(counts)
        under = [below[day] for day in counts]
        axes.bar(at, list(counts.values()), bottom=under, color=COLOURS[airport], label=NAMES[airport])
        for day, count in counts.items():
            below[day] += count
    axes.set(title="Cancelled flights of each day, one airport upon the other", xlabel="day", ylabel="flights")
    axes.legend(title="Airport", loc="upper left")
    _label_dates(axes)


def _draw_hours(axes: Axes, rows: Sequence[AirportHour]) -> None:
    for airport in AIRPORTS:
        means = _mean_delays(_of(airport, rows), lambda row: (_local(row).hour - DAY_BEGINS) % 24, FEWEST_DEPARTURES)
        axes.plot(list(means), list(means.values()), color=COLOURS[airport], marker="o", label=NAMES[airport])
    axes.set(
        title=f"Over the day: mean delay by the hour of departure (hours with {FEWEST_DEPARTURES} departures or more)",
        xlabel="hour of the day, New York time",
        ylabel="minutes",
        xticks=range(0, 24, 2),
        xticklabels=[f"{(DAY_BEGINS + hour) % 24:02}:00" for hour in range(0, 24, 2)],
        xlim=(-0.5, 23.5),
    )
    axes.legend(title="Airport", loc="upper left")


def _mean_delays(rows: Iterable[AirportHour], key: Callable[[AirportHour], Key], fewest: int = 1) -> dict[Key, float]:
    """The mean delay of the departures under each key, in its order."""
    departures: defaultdict[Key, int] = defaultdict(int)
    minutes: defaultdict[Key, int] = defaultdict(int)
    for row in rows:
        departures[key(row)] += row.departures
        minutes[key(row)] += row.delay_minutes
    return {at: minutes[at] / departures[at] for at in sorted(departures) if departures[at] >= fewest}


def _of(airport: str, rows: Iterable[AirportHour]) -> list[AirportHour]:
    return sorted((row for row in rows if row.airport == airport), key=lambda row: row.hour)


def _local(row: AirportHour) -> datetime:
    return parse_time(row.hour).astimezone(NEW_YORK)


def _day(day: date) -> str:
    return f"{day.day} {day:%B %Y}"


def _label_dates(axes: Axes) -> None:
    locator = AutoDateLocator()
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))

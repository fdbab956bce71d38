"""Drawing a report, and what the keys change about it.

There are four tables. All of them together show their first rows; one alone has the whole screen and scrolls. A table
shows as many columns as the terminal is wide; the most important ones come first. Names come from the cluster, so what
is not printable in them is replaced: it could control the terminal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from textwrap import wrap
from typing import Any, Final, NamedTuple

from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from .report import Report, TopicRow

HELP: Final = "q quit  1-4 one table  0 all  Tab next table  < > sort by  r reverse  i internal  p pause  arrows scroll"

_NAME_WIDTH: Final = 24
_COLUMNS_MIN: Final = 2
_GAP: Final = 2
_NONE: Final = "-"
# How many things that are missing are named on the screen; --json names all.
_NOTES: Final = 3


class Column(NamedTuple):
    """A column of a table: the name of a row's field, and how it is shown."""

    title: str
    field: str
    shown: Callable[[Any], str]
    is_number: bool = True


class View(NamedTuple):
    """A table."""

    title: str
    columns: tuple[Column, ...]
    sort: int
    """The index of the column by which it is sorted at first."""
    needs_metrics: bool = False


def _count(value: float | None) -> str:
    """A number of things, such as ``1,234`` or ``5.7 M``."""
    if value is None:
        return _NONE
    if abs(value) >= 1e9:
        return f"{value / 1e9:,.1f} G"
    if abs(value) >= 1e6:
        return f"{value / 1e6:,.1f} M"
    if abs(value) >= 10 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.1f}"


def _bytes(value: float | None) -> str:
    if value is None:
        return _NONE
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= size:
            return f"{value / size:,.1f} {unit}"
    return f"{value:,.0f} B"


def _milliseconds(value: float | None) -> str:
    if value is None:
        return _NONE
    return f"{value:,.0f} ms" if value >= 100 else f"{value:.1f} ms" if value >= 1 else f"{value:.2f} ms"


def _change(value: float | None) -> str:
    return _NONE if value is None else "0" if abs(value) < 0.05 else f"{'+' if value > 0 else '-'}{_count(abs(value))}"


def _duration(value: float | None) -> str:
    if value is None:
        return _NONE
    if value < 120:
        return f"{value:.0f} s"
    return f"{value / 60:.0f} min" if value < 7200 else f"{value / 3600:,.0f} h"


def _text(value: object) -> str:
    return _NONE if value is None or value == "" else printable(str(value))


TOPICS: Final = View(
    "Topics",
    (
        Column("topic", "topic", _text, is_number=False),
        Column("records/s", "records", _count),
        Column("in/s", "bytes_in", _bytes),
        Column("out/s", "bytes_out", _bytes),
        Column("size", "size_bytes", _bytes),
        Column("produce/s", "produce_requests", _count),
        Column("fetch/s", "fetch_requests", _count),
        Column("failed/s", "failed_requests", _count),
        Column("partitions", "partitions", _count),
        Column("no leader", "without_leader", _count),
        Column("not in sync", "under_replicated", _count),
    ),
    sort=1,
)
GROUPS: Final = View(
    "Groups",
    (
        Column("group", "group", _text, is_number=False),
        Column("lag", "lag", _count),
        Column("change/s", "lag_change", _change),
        Column("records/s", "records", _count),
        Column("caught up in", "catches_up_s", _duration),
        Column("members", "members", _count),
        Column("state", "state", _text, is_number=False),
        Column("partitions", "partitions", _count),
        Column("uncommitted", "uncommitted", _count),
        Column("type", "type", _text, is_number=False),
        Column("problem", "problem", _text, is_number=False),
    ),
    sort=1,
)
CLIENTS: Final = View(
    "Clients",
    (
        Column("client", "client", _text, is_number=False),
        Column("host", "host", _text, is_number=False),
        Column("group", "group", _text, is_number=False),
        Column("partitions", "partitions", _count),
        Column("connections", "connections", _count),
        Column("software", "software", _text, is_number=False),
        Column("version", "version", _text, is_number=False),
    ),
    sort=4,
)
REQUESTS: Final = View(
    "Requests",
    (
        Column("request", "request", _text, is_number=False),
        Column("99 % working", "working_p99_ms", _milliseconds),
        Column("99 % waiting", "waiting_p99_ms", _milliseconds),
        Column("99 % total", "p99_ms", _milliseconds),
        Column("median", "median_ms", _milliseconds),
        Column("requests/s", "per_second", _count),
        Column("errors/s", "errors", _count),
    ),
    sort=1,
    needs_metrics=True,
)
VIEWS: Final = (TOPICS, GROUPS, CLIENTS, REQUESTS)


class State:
    """What the user has selected."""

    def __init__(self) -> None:
        self.selected = 0
        """The index of the table whose order the keys change."""
        self.is_alone = False
        """Whether only the selected table is shown."""
        self.sort = [view.sort for view in VIEWS]
        self.reverse = [False] * len(VIEWS)
        self.first_row = 0
        self.with_internal = False
        self.is_paused = False

    def press(self, key: str, page: int = 10) -> bool:
        """Apply a key; ``page`` is the number of rows to scroll by. Returns False for the key that quits."""
        match key:
            case "q":
                return False
            case "1" | "2" | "3" | "4":
                self.selected, self.is_alone, self.first_row = int(key) - 1, True, 0
            case "0" | "\x1b":
                self.is_alone, self.first_row = False, 0
            case "\t" | "back tab":
                step = 1 if key == "\t" else -1
                self.selected, self.first_row = (self.selected + step) % len(VIEWS), 0
            case "<" | "left":
                self._sort_by(-1)
            case ">" | "right":
                self._sort_by(1)
            case "r":
                self.reverse[self.selected] = not self.reverse[self.selected]
            case "i":
                self.with_internal = not self.with_internal
            case "p" | " ":
                self.is_paused = not self.is_paused
            case _:
                self._scroll(key, page)
        return True

    def _sort_by(self, step: int) -> None:
        index = self.selected
        self.sort[index] = (self.sort[index] + step) % len(VIEWS[index].columns)
        self.reverse[index] = False

    def _scroll(self, key: str, page: int) -> None:
        if not self.is_alone:
            return
        steps = {"up": -1, "down": 1, "page up": -page, "page down": page, "home": -1 << 30, "end of list": 1 << 30}
        self.first_row = max(0, self.first_row + steps.get(key, 0))


def printable(text: str) -> str:
    """The text with a replacement for each character that could control the terminal."""
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)


def rows_of(view: View, report: Report, state: State | None = None) -> list[Any]:
    """The rows of a table in the selected order; the largest numbers are first, and unknown ones last.

    By lag, groups that have never committed an offset, although there are records for them, are before all others.
    """
    state = state or State()
    tables: tuple[Sequence[Any], ...] = (report.topics, report.groups, report.clients, report.requests)
    rows = tables[VIEWS.index(view)]
    if not state.with_internal:
        rows = [row for row in rows if not (isinstance(row, TopicRow) and row.internal)]
    index = VIEWS.index(view)
    column = view.columns[state.sort[index]]
    by_name = sorted(rows, key=lambda row: tuple(_text(cell) for cell in row[:3]))
    known = [row for row in by_name if getattr(row, column.field) is not None]
    unknown = [row for row in by_name if getattr(row, column.field) is None]
    known.sort(key=lambda row: getattr(row, column.field), reverse=column.is_number != state.reverse[index])
    if column.field == "lag" and not state.reverse[index]:
        known = [row for row in unknown if row.uncommitted] + known
        unknown = [row for row in unknown if not row.uncommitted]
    return known + unknown


def cells_of(view: View, row: Any) -> list[str]:
    """The texts of a row."""
    return [column.shown(getattr(row, column.field)) for column in view.columns]


def draw(
    report: Report | None, state: State, *, width: int, height: int, server: str, interval_s: float, problem: str | None
) -> RenderableType:
    """The screen. ``problem``: why there is no newer report. It sets the first row of ``state`` to one that exists."""
    lines: list[RenderableType] = list(_head(report, state, server, interval_s, problem))
    if report is None:
        return Group(*lines)
    notes = [
        Text(line, style="yellow", no_wrap=True, overflow="ellipsis")
        for note in report.missing[:_NOTES]
        for line in wrap(f"! {printable(note)}", max(20, width), subsequent_indent="  ")
    ]
    foot = [*notes, Text(HELP, style="dim", no_wrap=True, overflow="ellipsis")]
    room = height - len(lines) - len(foot)
    views = [VIEWS[state.selected]] if state.is_alone else list(VIEWS)
    tables = [(view, rows_of(view, report, state)) for view in views]
    shares = _shares(room, [len(rows) for _, rows in tables])
    used = 0
    for (view, rows), share in zip(tables, shares, strict=True):
        if share > 0:
            drawn = list(_table(view, rows, report, state, width, share))
            used += share + _HEAD_LINES
            lines += drawn
    lines += [Text("")] * (room - used)
    return Group(*lines, *foot)


_HEAD_LINES: Final = 2
"""The title and the names of the columns."""


def _shares(room: int, wanted: list[int]) -> list[int]:
    """How many rows each table gets, at least one; 0 if there is no room for a table."""
    shares = [0] * len(wanted)
    for index in range(len(wanted)):
        if room >= _HEAD_LINES + 1:
            shares[index] = 1
            room -= _HEAD_LINES + 1
    while room > 0:
        short = [index for index, share in enumerate(shares) if 0 < share < wanted[index]]
        if not short:
            break
        for index in short[:room]:
            shares[index] += 1
        room -= min(room, len(short))
    return shares


def _head(
    report: Report | None, state: State, server: str, interval_s: float, problem: str | None
) -> Iterable[RenderableType]:
    first = Text(f"moldau top  {server}", style="bold", no_wrap=True, overflow="ellipsis")
    if report is not None:
        clock = datetime.fromtimestamp(report.time_ms / 1000).strftime("%H:%M:%S")
        brokers = "1 broker" if report.brokers == 1 else f"{report.brokers} brokers"
        first.append(f"  {clock}  every {interval_s:g} s  {brokers}", style="not bold")
        if report.cluster_id:
            first.append(f"  cluster {printable(report.cluster_id)}", style="not bold dim")
    if state.is_paused:
        first.append("  paused", style="bold yellow")
    yield first
    if report is not None:
        yield _summary(report)
    if problem is not None:
        yield Text(f"! {printable(problem)}", style="bold red", no_wrap=True, overflow="ellipsis")
    if report is None and problem is None:
        yield Text("Reading the cluster ...")


def _summary(report: Report) -> Text:
    totals = report.totals
    text = Text(no_wrap=True, overflow="ellipsis")
    text.append(f"{_count(totals.records)} records/s")
    if report.has_metrics:
        text.append(f"  in {_bytes(totals.bytes_in)}/s  out {_bytes(totals.bytes_out)}/s")
        text.append(f"  {_count(totals.requests)} requests/s")
        if totals.idle is not None:
            text.append(f"  idle {totals.idle:.0%}")
        if totals.connections is not None:
            text.append(f"  {totals.connections} connections")
    text.append(f"  {report.partitions} partitions")
    if report.without_leader:
        text.append(f"  {report.without_leader} without a leader", style="bold red")
    if report.under_replicated:
        text.append(f"  {report.under_replicated} under-replicated", style="bold yellow")
    return text


def _table(
    view: View, rows: list[Any], report: Report, state: State, width: int, share: int
) -> Iterable[RenderableType]:
    index = VIEWS.index(view)
    is_selected = state.selected == index
    column = view.columns[state.sort[index]]
    first = 0
    if state.is_alone:
        first = state.first_row = max(0, min(state.first_row, len(rows) - share))
    shown = rows[first : first + share]
    title = Text(
        f"{view.title} ({len(rows)})",
        style="bold reverse" if is_selected else "bold",
        no_wrap=True,
        overflow="ellipsis",
    )
    order = "from the end" if state.reverse[index] else ""
    title.append(f"  by {column.title} {order}".rstrip(), style="not bold not reverse dim")
    if len(shown) < len(rows):
        title.append(f"  rows {first + 1}-{first + len(shown)}", style="not bold not reverse dim")
    yield title
    if not shown:
        yield Text(_empty(view, report), style="dim", no_wrap=True, overflow="ellipsis")
        for _ in range(share):
            yield Text("")
        return
    cells = [cells_of(view, row) for row in shown]
    widths = _widths(view, cells, width)
    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold cyan")
    for each, column_width in zip(view.columns, widths, strict=False):
        table.add_column(
            Text(each.title, style="underline" if each is column else ""),
            justify="right" if each.is_number else "left",
            no_wrap=True,
            overflow="ellipsis",
            width=column_width,
        )
    for row, texts in zip(shown, cells, strict=True):
        table.add_row(*map(Text, texts[: len(widths)]), style=_style(row))
    yield table


def _widths(view: View, cells: list[list[str]], width: int) -> list[int]:
    """The widths of the columns that have room, at least two.

    Numbers are never shortened, because a part of a number is wrong. Names are shortened to `_NAME_WIDTH` if that makes
    room for another column, and get what is left over, from the left to the right.
    """
    wanted = [
        max(cell_len(text) for text in (column.title, *(row[index] for row in cells)))
        for index, column in enumerate(view.columns)
    ]
    widths = [
        each if column.is_number else min(each, _NAME_WIDTH) for column, each in zip(view.columns, wanted, strict=True)
    ]
    used = widths[0]
    for index, each in enumerate(widths[1:], 1):
        used += _GAP + each
        if used > width and index >= _COLUMNS_MIN:
            del widths[index:]
            break
    room = width - sum(widths) - _GAP * (len(widths) - 1)
    for index, each in enumerate(widths):
        widths[index] = max(1, min(wanted[index], each + room))
        room -= widths[index] - each
    return widths


def _style(row: Any) -> str:
    if getattr(row, "without_leader", 0) or getattr(row, "problem", None):
        return "red"
    if (
        getattr(row, "under_replicated", 0)
        or getattr(row, "uncommitted", 0)
        or (getattr(row, "lag_change", None) or 0) > 0
    ):
        return "yellow"
    return ""


def _empty(view: View, report: Report) -> str:
    if view.needs_metrics and not report.has_metrics:
        return "Requests and their durations come from metrics, which are missing (see below)."
    return f"No {view.title.lower()}."

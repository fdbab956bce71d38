"""The results as text: the generated part of docs/performance.md, between two markers, and a table for the terminal.

The text outside of the markers is written manually, and kept. Numbers of two machines are not comparable, so each file
of results has a section with separate tables.
"""

import os
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path

from .comparison import NAMES, Line, Verdict, lines, ratio_text, verdicts
from .quantities import label
from .results import Results
from .row import Row

BEGIN = "<!-- bench:begin -->"
END = "<!-- bench:end -->"

COLUMNS = ("work", "number", "Moldau", "Apache Kafka", "ratio", "ceiling", "of the ceiling")

_LEGEND = (
    "A number is the median of the rounds, with the lowest and the highest after it. The ratio is Moldau's median\n"
    "divided by Apache Kafka's; the ceiling is the same client with a server that only acknowledges."
)

_REACHED = {True: "reached", False: "**not reached**", None: ""}


class MarkersError(Exception):
    """The page has no markers for the generated part."""


def write(
    page: Path, runs: Iterable[tuple[Results, Path]], rows: Sequence[Row], *, plots: Sequence[tuple[Path, str]]
) -> None:
    """Write the generated part of ``page`` from ``runs``, results with their files; ``plots`` are pictures with their
    titles."""

    def link(path: Path) -> str:
        return os.path.relpath(path.resolve(), page.parent.resolve()).replace(os.sep, "/")

    pictures = [f"![{shown}]({link(path)})" for path, shown in plots]
    text = markdown([(results, f"[{path.name}]({link(path)})") for results, path in runs], rows, pictures)
    page.write_text(replaced(page.read_text(encoding="utf-8"), text), encoding="utf-8")


def replaced(page: str, generated: str) -> str:
    """``page`` with ``generated`` between its markers."""
    before, begin, rest = page.partition(BEGIN)
    _old, end, after = rest.partition(END)
    if not begin or not end:
        raise MarkersError(f"there is no {BEGIN} with {END} after it")
    return f"{before}{BEGIN}\n{generated.strip()}\n{END}{after}"


def fullest(runs: Iterable[Results]) -> Results:
    """The most complete results: the first ones with the most rows."""
    return max(runs, key=lambda results: len(results.rows))


def markdown(runs: Iterable[tuple[Results, str]], rows: Sequence[Row], pictures: Iterable[str] = ()) -> str:
    """The generated text: for each of ``runs``, results with their source, the environment, the targets, and a table
    for each group; the newest last.

    The plots are those of the fullest results, and rows that none has measured are listed next to their targets.
    """
    in_order = sorted(runs, key=lambda run: run[0].date)
    main = fullest(results for results, _source in in_order)
    measured = {name for results, _source in in_order for name in results.rows}
    parts = [_LEGEND]
    for results, source in in_order:
        own = [row for row in rows if row.name in results.rows or (results is main and row.name not in measured)]
        parts += _section(results, own, source, pictures if results is main else ())
    return "\n\n".join(parts) + "\n"


def _section(results: Results, rows: Sequence[Row], source: str, pictures: Iterable[str]) -> list[str]:
    parts = [f"### Measured on {results.date}", _introduction(results, source)]
    if found := verdicts(results, rows):
        parts += ["#### Numbers to reach", _verdict_table(found)]
    parts += pictures
    shown = lines(results, rows)
    for group in dict.fromkeys(row.group for row in rows):
        names = {row.name for row in rows if row.group == group}
        of_group = [line for line in shown if line.row in names]
        if of_group:
            parts += [f"#### {group}", _table(COLUMNS, _cells(of_group))]
    problems = list(_problems(results))
    if problems:
        parts += ["#### Not measured", "\n".join(problems)]
    return parts


def terminal_table(results: Results, rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """Rows for ``COLUMNS``, with the short names of the work."""
    shown = lines(results, rows)
    # Only the first line of a row has its title, and its name.
    return [(line.row if cells[0] else "", *cells[1:]) for line, cells in zip(shown, _cells(shown), strict=True)]


def _introduction(results: Results, source: str) -> str:
    machine = results.machine
    versions = ", ".join(f"{name} {version}" for name, version in results.versions.items())
    work = results.settings.get("work", "1")
    part = "" if work == "1" else f"**Only {work} of each row's work was done: the numbers mean nothing.**\n"
    return part + (
        f"Commit {', '.join(results.commits)}. All numbers: {source}.\n"
        f"Rounds: {_rounds(results)}.\n"
        f"Machine: {', '.join(f'{name} {value}' for name, value in machine.items())}.\n"
        f"Versions: {versions}."
    )


def _rounds(results: Results) -> str:
    """The number of successful rounds, of the subject that has the fewest: the usual number, and the exceptions."""
    counts = {
        name: min((sum(not outcome.error for outcome in outcomes) for outcomes in row.subjects.values()), default=0)
        for name, row in results.rows.items()
    }
    if not counts:
        return "0"
    usual = statistics.mode(counts.values())
    others = ", ".join(f"{count} of `{name}`" for name, count in counts.items() if count != usual)
    return f"{usual} ({others})" if others else str(usual)


def _verdict_table(found: Sequence[Verdict]) -> str:
    rows = []
    previous = ""
    for each in found:
        work = ("", "") if each.row == previous else (f"`{each.row}`", each.title)
        rows.append((*work, label(each.number), each.wanted, each.measured, _REACHED[each.reached]))
        previous = each.row
    return _table(("row", "work", "number", "wanted", "measured", ""), rows)


def _cells(shown: Sequence[Line]) -> list[tuple[str, ...]]:
    cells = []
    previous = ""
    for line in shown:
        cells.append(
            (
                "" if line.row == previous else line.title,
                label(line.number),
                *("" if each is None else str(each) for each in (line.moldau, line.apache)),
                _ratio(line.ratio),
                "" if line.ceiling is None else str(line.ceiling),
                _ratio(line.of_the_ceiling),
            )
        )
        previous = line.row
    return cells


def _ratio(value: float | None) -> str:
    return "" if value is None else ratio_text(value)


def _problems(results: Results) -> Iterable[str]:
    for name, reason in results.skipped.items():
        yield f"- {name}: {reason}"
    for name, subject, outcome in results.errors():
        error_lines = (outcome.error or "").strip().splitlines() or [""]
        # A program's error begins with what was expected, and ends with what failed.
        text = error_lines[0] if len(error_lines) == 1 else f"{error_lines[0]} ... {error_lines[-1]}"
        yield f"- {name}, {NAMES[subject]}, round {outcome.round}: {text}"


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines_of_table = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in lines_of_table)

"""The results of a run, and their file: JSON that is written again after every measurement.

The file contains the machine, the versions and settings, and the commits of the run. Then it has, for each row and
subject, one line per round: its numbers, or the error. For rows that were not measured it has the reason. The order is
that of the rows and the format is fixed, so that two files can be compared with diff.

    {"format": 1, "date": ..., "commits": [...], "machine": {...}, "versions": {...}, "settings": {...},
     "skipped": {row or subject: reason},
     "rows": {name: {"title": ..., "group": ...,
                     "subjects": {subject: [{"round": 1, "seconds": ..., "numbers": {...}}, ...]}}}}
"""

from __future__ import annotations

import json
import os
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from .row import Numbers, Subject

FORMAT = 1

_SIGNIFICANT_DIGITS = 6


class ResultsError(Exception):
    """The file is not a file of results; the text states the position."""


@dataclass(frozen=True)
class Outcome:
    """One round of one row for one subject: its numbers, or its error."""

    round: int
    seconds: float
    """The duration of the round, including all preparation."""
    numbers: Numbers = field(default_factory=dict)
    error: str | None = None


@dataclass
class RowResults:
    title: str
    group: str
    subjects: dict[Subject, list[Outcome]] = field(default_factory=dict)

    def values(self, subject: Subject, number: str) -> list[float]:
        """The values of a number in all rounds that have it."""
        outcomes = self.subjects.get(subject, [])
        return [outcome.numbers[number] for outcome in outcomes if number in outcome.numbers]

    def median(self, subject: Subject, number: str) -> float | None:
        values = self.values(subject, number)
        return statistics.median(values) if values else None

    def number_names(self) -> list[str]:
        """Every number that some subject has, in the order of the row."""
        outcomes = (outcome for subject in Subject for outcome in self.subjects.get(subject, []))
        return list(dict.fromkeys(name for outcome in outcomes for name in outcome.numbers))


@dataclass
class Results:
    """A whole run."""

    date: str
    machine: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)
    commits: list[str] = field(default_factory=list)
    """More than one when a run was resumed after a change."""
    skipped: dict[str, str] = field(default_factory=dict)
    rows: dict[str, RowResults] = field(default_factory=dict)

    def add(self, name: str, title: str, group: str, subject: Subject, outcome: Outcome) -> None:
        """Add a measurement; it replaces one of the same round."""
        row = self.rows.setdefault(name, RowResults(title, group))
        row.title, row.group = title, group
        others = [each for each in row.subjects.get(subject, []) if each.round != outcome.round]
        row.subjects[subject] = sorted([*others, outcome], key=lambda each: each.round)

    def has(self, name: str, subject: Subject, round_number: int) -> bool:
        """Whether this was measured without an error."""
        row = self.rows.get(name)
        outcomes = row.subjects.get(subject, []) if row else []
        return any(outcome.round == round_number and outcome.error is None for outcome in outcomes)

    def errors(self) -> list[tuple[str, Subject, Outcome]]:
        return [
            (name, subject, outcome)
            for name, row in self.rows.items()
            for subject, outcomes in row.subjects.items()
            for outcome in outcomes
            if outcome.error is not None
        ]

    def in_order(self, names: Iterable[str]) -> None:
        """Sort the rows into this order; other rows come last."""
        known = [name for name in names if name in self.rows]
        self.rows = {name: self.rows[name] for name in dict.fromkeys([*known, *self.rows])}


# -- the file --


def save(results: Results, path: Path) -> None:
    """Write the file; at every moment it is complete."""
    path.parent.mkdir(parents=True, exist_ok=True)
    incoming = path.with_name(path.name + ".tmp")
    incoming.write_text(_text(_as_json(results)) + "\n", encoding="utf-8")
    os.replace(incoming, path)


def load(path: Path) -> Results:
    """Read a file; ResultsError if it is invalid."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ResultsError(f"{path}: {error}") from error
    try:
        return _from_json(document)
    except ResultsError as error:
        raise ResultsError(f"{path}: {error}") from None


def _as_json(results: Results) -> dict[str, object]:
    return {
        "format": FORMAT,
        "date": results.date,
        "commits": results.commits,
        "machine": results.machine,
        "versions": results.versions,
        "settings": results.settings,
        "skipped": results.skipped,
        "rows": {
            name: {
                "title": row.title,
                "group": row.group,
                "subjects": {
                    subject.value: [_outcome_as_json(outcome) for outcome in row.subjects[subject]]
                    for subject in Subject
                    if subject in row.subjects
                },
            }
            for name, row in results.rows.items()
        },
    }


def _outcome_as_json(outcome: Outcome) -> dict[str, object]:
    encoded: dict[str, object] = {"round": outcome.round, "seconds": round(outcome.seconds, 1)}
    if outcome.error is not None:
        encoded["error"] = outcome.error
    else:
        encoded["numbers"] = {name: _rounded(value) for name, value in outcome.numbers.items()}
    return encoded


def _rounded(value: float) -> float:
    return float(f"{value:.{_SIGNIFICANT_DIGITS}g}")


def _text(value: object, indent: str = "") -> str:
    """JSON with a line per member, but only one line for each outcome."""
    if not isinstance(value, dict | list) or not value or (isinstance(value, dict) and "round" in value):
        return json.dumps(value, ensure_ascii=False)
    inner = indent + " "
    if isinstance(value, dict):
        members = [f"{inner}{json.dumps(key)}: {_text(member, inner)}" for key, member in value.items()]
        return "{\n" + ",\n".join(members) + f"\n{indent}}}"
    return "[\n" + ",\n".join(inner + _text(member, inner) for member in value) + f"\n{indent}]"


def _from_json(document: object) -> Results:
    top = _object(document, "the file")
    if top.get("format") != FORMAT:
        raise ResultsError(f"has format {top.get('format')!r} instead of {FORMAT}")
    results = Results(
        date=_string(top.get("date"), "date"),
        machine=_strings(top.get("machine"), "machine"),
        versions=_strings(top.get("versions"), "versions"),
        settings=_strings(top.get("settings"), "settings"),
        commits=[_string(each, "commits") for each in _list(top.get("commits"), "commits")],
        skipped=_strings(top.get("skipped"), "skipped"),
    )
    for name, value in _object(top.get("rows"), "rows").items():
        row = _object(value, name)
        subjects: dict[Subject, list[Outcome]] = {}
        for subject, outcomes in _object(row.get("subjects"), f"{name}: subjects").items():
            where = f"{name}: {subject}"
            if subject not in {each.value for each in Subject}:
                raise ResultsError(f"{where}: unknown subject")
            subjects[Subject(subject)] = [_outcome(outcome, where) for outcome in _list(outcomes, where)]
        results.rows[name] = RowResults(_string(row.get("title"), name), _string(row.get("group"), name), subjects)
    return results


def _outcome(value: object, where: str) -> Outcome:
    members = _object(value, where)
    round_number = members.get("round")
    if not isinstance(round_number, int):
        raise ResultsError(f"{where}: invalid number of a round")
    error = members.get("error")
    numbers = _object(members.get("numbers", {}), f"{where}: numbers")
    return Outcome(
        round=round_number,
        seconds=_number(members.get("seconds"), where),
        numbers={name: _number(number, f"{where}: {name}") for name, number in numbers.items()},
        error=None if error is None else _string(error, where),
    )


def _object(value: object, where: str) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise ResultsError(f"{where} is not an object")
    return value


def _list(value: object, where: str) -> list[object]:
    if not isinstance(value, list):
        raise ResultsError(f"{where} is not a list")
    return value


def _string(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise ResultsError(f"{where}: {value!r} is not a string")
    return value


def _strings(value: object, where: str) -> dict[str, str]:
    return {name: _string(each, f"{where}: {name}") for name, each in _object(value, where).items()}


def _number(value: object, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ResultsError(f"{where}: {value!r} is not a number")
    return float(value)

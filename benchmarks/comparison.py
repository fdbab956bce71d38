"""Evaluates the numbers of a run: medians, spreads, ratios, and whether the targets are reached.

A ratio is always Moldau's median divided by the other one: above 1 is good for rates, below 1 for all other numbers.
"""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from .quantities import digits, main_numbers, quantity
from .results import Results, RowResults
from .row import Row, Subject, Target

NAMES = {Subject.MOLDAU: "Moldau", Subject.APACHE: "Apache Kafka", Subject.CEILING: "the ceiling"}


class Spread(NamedTuple):
    """One number over all rounds."""

    median: float
    lowest: float
    highest: float

    def __str__(self) -> str:
        if self.lowest == self.highest:
            return digits(self.median)
        return f"{digits(self.median)} ({digits(self.lowest)} to {digits(self.highest)})"


@dataclass(frozen=True)
class Line:
    """One number of one row, for all subjects."""

    row: str
    title: str
    number: str
    moldau: Spread | None
    apache: Spread | None
    ceiling: Spread | None

    @property
    def ratio(self) -> float | None:
        return _ratio(self.moldau, self.apache)

    @property
    def of_the_ceiling(self) -> float | None:
        return _ratio(self.moldau, self.ceiling)


@dataclass(frozen=True)
class Verdict:
    """A target and the measured value."""

    row: str
    title: str
    number: str
    wanted: str
    measured: str
    reached: bool | None
    """None: not measured."""


def spread(row: RowResults, subject: Subject, number: str) -> Spread | None:
    values = row.values(subject, number)
    return Spread(statistics.median(values), min(values), max(values)) if values else None


def lines(results: Results, rows: Sequence[Row]) -> list[Line]:
    """The main numbers of every row that was measured, in the order of ``rows``."""
    return [
        Line(
            row=row.name,
            title=row.title,
            number=number,
            moldau=spread(measured, Subject.MOLDAU, number),
            apache=spread(measured, Subject.APACHE, number),
            ceiling=spread(measured, Subject.CEILING, number),
        )
        for row, measured in _measured(results, rows)
        for number in main_numbers(measured.number_names(), (target.number for target in row.targets))
    ]


def verdicts(results: Results, rows: Iterable[Row]) -> list[Verdict]:
    """The verdict on every target."""
    return [
        _verdict(row, target, results.rows.get(row.name) or RowResults(row.title, row.group))
        for row in rows
        for target in row.targets
    ]


def _measured(results: Results, rows: Sequence[Row]) -> list[tuple[Row, RowResults]]:
    return [(row, results.rows[row.name]) for row in rows if row.name in results.rows]


def _verdict(row: Row, target: Target, measured: RowResults) -> Verdict:
    value = measured.median(Subject.MOLDAU, target.number)
    reference = 1.0 if target.against is None else measured.median(target.against, target.number)
    reached = None
    result = "not measured"
    if value is not None and reference is not None:
        reached = _is_reached(target, value, reference)
        result = _ratio_text(target, value, reference)
    return Verdict(row.name, row.title, target.number, _wanted(target), result, reached)


def _is_reached(target: Target, value: float, reference: float) -> bool:
    """Multiplied instead of divided, because the reference may be a latency of 0 ms."""
    enough = target.at_least is None or value >= target.at_least * reference
    return enough and (target.at_most is None or value <= target.at_most * reference + target.plus)


def _wanted(target: Target) -> str:
    bounds = [(sign, bound) for sign, bound in (("≥", target.at_least), ("≤", target.at_most)) if bound is not None]
    if target.against is None:
        return ", ".join(f"{sign} {digits(bound)}{_unit(target.number)}" for sign, bound in bounds)
    name = NAMES[target.against]
    texts = [f"{sign} {name}" if bound == 1 else f"{sign} {digits(bound)} × {name}" for sign, bound in bounds]
    return ", ".join(texts) + (f" + {digits(target.plus)}{_unit(target.number)}" if target.plus else "")


def _ratio_text(target: Target, value: float, reference: float) -> str:
    """The ratio, unless the target is about the numbers themselves."""
    unit = _unit(target.number)
    if target.against is None:
        return f"{digits(value)}{unit}"
    if target.plus or reference == 0:
        return f"{digits(value)}{unit}, {NAMES[target.against]} {digits(reference)}{unit}"
    return ratio_text(value / reference)


def ratio_text(ratio: float) -> str:
    """Two decimals, or three digits for small ratios."""
    return digits(ratio) if ratio < 0.1 else f"{ratio:.2f}"


def _unit(number: str) -> str:
    found = quantity(number)
    return f" {found.unit}" if found else ""


def _ratio(one: Spread | None, other: Spread | None) -> float | None:
    return one.median / other.median if one and other and other.median else None

"""The report on the terminal: failures first, each with what to change, then the areas by verdict."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from ..outcome import Result, Verdict
from . import summary
from .difference import locate

_SHOWN: Final = 300
_IN_FULL: Final = 20
"""The failures that are explained; the others have one line."""
_LISTED: Final = 4
_OF_ONE_CASE: Final = re.compile(r"\bconformance-[0-9a-f]{8}-\d+|\bv\d+\b|\bat offset \d+")

COLUMNS: Final = ("area", *(verdict.value for verdict in Verdict))


def failures(results: Sequence[Result]) -> Iterator[str]:
    """The lines for the cases that failed, and for those that could not be run.

    Versions and variants of a case that fail in the same way are one failure.
    """
    groups: dict[tuple[object, ...], list[Result]] = {}
    for result in results:
        if result.verdict is Verdict.FAILED:
            texts = (_steady(each) for each in (result.what, result.expected, result.actual))
            groups.setdefault((result.case.body, *texts), []).append(result)
    for number, group in enumerate(groups.values()):
        yield from _failure(group) if number < _IN_FULL else _failure_in_short(group)
    if len(groups) > _IN_FULL:
        yield ""
    yield from _inconclusive(results)


def _steady(text: str) -> str:
    """A text without what differs between cases that fail in the same way: their names, versions and places."""
    return _OF_ONE_CASE.sub("", text)


def _failure(group: Sequence[Result]) -> Iterator[str]:
    first = group[0]
    case = first.case
    yield f"FAILED {case.id} ({case.level}): {case.title}"
    if len(group) > 1:
        more = f" and {len(group) - 1 - _LISTED} more" if len(group) > 1 + _LISTED else ""
        yield f"  also {', '.join(each.case.id for each in group[1 : 1 + _LISTED])}{more}"
    place = locate(first.frames, first.what, first.actual)
    where = f" in the {first.frames[place.frame].title}" if place is not None else ""
    yield f"  {_printable(first.what)}{where}"
    yield f"    expected: {_printable(first.expected)}"
    yield f"    actual:   {_printable(first.actual)}"
    yield f"  why: {case.why}"
    yield f"  source: {case.source}; details: moldau conformance explain {case.id}"
    yield ""


def _failure_in_short(group: Sequence[Result]) -> Iterator[str]:
    first = group[0]
    also = f" and {len(group) - 1} others" if len(group) > 1 else ""
    yield f"FAILED {first.case.id}{also} ({first.case.level}): {_printable(first.what)}"


def _inconclusive(results: Sequence[Result]) -> Iterator[str]:
    reasons: dict[str, list[Result]] = {}
    for result in results:
        if result.verdict is Verdict.INCONCLUSIVE:
            reasons.setdefault(_steady(result.reason), []).append(result)
    for group in reasons.values():
        ids = [each.case.id for each in group]
        more = f" and {len(ids) - 3} more" if len(ids) > 3 else ""
        yield f"INCONCLUSIVE {', '.join(ids[:3])}{more}: {_printable(group[0].reason)}"
    if reasons:
        yield ""


def hint(html: str | None, json_file: str | None) -> str:
    """How to see the exchange of a failure."""
    if html is not None:
        return f"{html} shows the requests and responses of each failure; open it in a browser."
    if json_file is not None:
        return f"{json_file} has the requests and responses of each failure; --html FILE writes them as a page."
    return "--html FILE writes the requests and responses of each failure, decoded; --json FILE for programs."


def rows(results: Sequence[Result]) -> list[tuple[object, ...]]:
    """The rows of the table of areas, under `COLUMNS`."""
    return [(area, *(counts[verdict] for verdict in Verdict)) for area, counts in summary.by_area(results).items()]


def _printable(text: str) -> str:
    """A text of the server, shortened, without characters that control a terminal."""
    text = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)

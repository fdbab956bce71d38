"""The report on the terminal: failures first, each with what to change, then the areas by verdict."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from ..outcome import Result, Verdict
from . import summary

_SHOWN: Final = 300

COLUMNS: Final = ("area", *(verdict.value for verdict in Verdict))


def failures(results: Sequence[Result]) -> Iterator[str]:
    """The lines for the cases that failed, and for those that could not be run."""
    for result in results:
        if result.verdict is Verdict.FAILED:
            case = result.case
            yield f"FAILED {case.id} ({case.level}): {case.title}"
            yield f"  {result.what}"
            yield f"    expected: {_short(result.expected)}"
            yield f"    actual:   {_short(result.actual)}"
            yield f"  why: {case.why}"
            yield f"  source: {case.source}; details: moldau conformance explain {case.id}"
            yield ""
    reasons: dict[str, list[str]] = {}
    for result in results:
        if result.verdict is Verdict.INCONCLUSIVE:
            reasons.setdefault(result.reason, []).append(result.case.id)
    for reason, ids in reasons.items():
        more = f" and {len(ids) - 3} more" if len(ids) > 3 else ""
        yield f"INCONCLUSIVE {', '.join(ids[:3])}{more}: {_short(reason)}"
    if reasons:
        yield ""


def rows(results: Sequence[Result]) -> list[tuple[object, ...]]:
    """The rows of the table of areas, under `COLUMNS`."""
    return [(area, *(counts[verdict] for verdict in Verdict)) for area, counts in summary.by_area(results).items()]


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."

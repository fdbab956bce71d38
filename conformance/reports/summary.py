"""Counts of verdicts by area, which all formats show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from ..outcome import Result, Verdict


def by_area(results: Iterable[Result]) -> dict[str, Counter[Verdict]]:
    """Area to counts, sorted by area."""
    found: dict[str, Counter[Verdict]] = {}
    for result in results:
        found.setdefault(result.case.area, Counter())[result.verdict] += 1
    return dict(sorted(found.items()))


def total(results: Iterable[Result]) -> Counter[Verdict]:
    return Counter(result.verdict for result in results)


def in_words(results: Sequence[Result]) -> str:
    """ "612 passed, 3 failed, 20 not applicable"; verdicts that do not occur are omitted."""
    counts = total(results)
    return ", ".join(f"{counts[verdict]} {verdict}" for verdict in Verdict if counts[verdict]) or "no cases"


def nothing_tested(results: Sequence[Result]) -> str | None:
    """Why a run has found out nothing about the server: each case that applies is inconclusive. None otherwise."""
    counts = total(results)
    if counts[Verdict.PASSED] or counts[Verdict.FAILED] or not counts[Verdict.INCONCLUSIVE]:
        return None
    first = next(result for result in results if result.verdict is Verdict.INCONCLUSIVE)
    return f"Nothing was tested, because every case that applies is inconclusive. {first.case.id}: {first.reason}"

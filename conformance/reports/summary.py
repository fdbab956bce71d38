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

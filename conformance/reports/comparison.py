"""The differences between two JSON reports: the same server before and after a change, or two servers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ..outcome import Verdict
from .json_report import Report

MISSING = "not in the report"


class Difference(NamedTuple):
    """A case whose verdict differs."""

    id: str
    before: str
    after: str

    @property
    def is_worse(self) -> bool:
        """Whether the second report has a failure that the first one does not have."""
        return self.after == Verdict.FAILED


def differences(before: Report, after: Report) -> Iterator[Difference]:
    """In the order of the IDs."""
    for identifier in sorted(before.cases.keys() | after.cases.keys()):
        verdicts = [report.cases.get(identifier, {}).get("verdict", MISSING) for report in (before, after)]
        if verdicts[0] != verdicts[1]:
            yield Difference(identifier, *verdicts)

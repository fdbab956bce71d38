"""The result of an audit: for each window the counts of the tiers and the findings, as values, JSON and sentences.

    missing    records that were delivered and are not in the log, or records of the log that a consumer group has not
               read, or that are not in an archive
    double     a record that is twice in the log, was read twice by a group, or is twice in an archive
    uncounted  a record that is in the log but was counted by no producer: a producer does not count, or it died before
               it had sent its counts
    late       a record that arrived after its window was over, or that a tier counted after the window was balanced

This module is pure: it does not use Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

VERSION = 1

PRODUCER = "producer"
SERVER = "server"

# The maximum number of ranges in a sentence; the JSON has all that are known.
_RUNS_SHOWN = 5

# By partition, runs of offsets: first and last.
Places = Mapping[int, Sequence[tuple[int, int]]]


class Kind(StrEnum):
    """The kind of a discrepancy."""

    MISSING = "missing"
    DOUBLE = "double"
    UNCOUNTED = "uncounted"
    LATE = "late"


class State(StrEnum):
    """The state of a window: not over yet, or balanced with or without findings."""

    OPEN = "open"
    BALANCED = "balanced"
    UNBALANCED = "unbalanced"


@dataclass(frozen=True, slots=True)
class Reader:
    """A reading tier (group or archive) in one window."""

    count: int
    missing: int = 0
    # The missing records after the last record that this tier has counted in the partition.
    behind: int = 0
    double: int = 0


@dataclass(frozen=True, slots=True)
class Books:
    """The counts in a window of a topic. None if a tier does not count this topic."""

    topic: str
    window_start: int
    window_end: int
    server: int
    # Records of the server that arrived after the window was over.
    late: int = 0
    producer: int | None = None
    # Delivered with a known offset, but not in the log.
    lost: int = 0
    # Delivered without an offset (acks=0).
    unplaced: int = 0
    # In the log, but counted by no producer; those of the first field are equal to a counted record.
    doubled: int = 0
    uncounted: int = 0
    # Counted by a reader, but not in the log and counted by no producer.
    vanished: int = 0
    readers: Mapping[str, Reader] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Finding:
    """One discrepancy: a number of records of ``tier``, compared with ``against``."""

    kind: Kind
    topic: str
    window_start: int
    window_end: int
    tier: str
    count: int
    against: str | None = None
    # Of the missing records, those after the last record that the tier has counted.
    behind: int = 0
    # The places, if they are known and not too many.
    places: Places = field(default_factory=dict)

    def sentence(self) -> str:
        """The finding as a sentence."""
        what = {
            Kind.MISSING: f"{_records(self.count)} of the {self.against} {_are(self.count)} missing in the {self.tier}",
            Kind.DOUBLE: f"{_records(self.count)} duplicated in the {self.tier}",
            Kind.UNCOUNTED: f"{_records(self.count)} in the {self.tier} that no producer has counted",
            Kind.LATE: f"{_records(self.count)} late in the {self.tier}",
        }[self.kind]
        behind = ""
        if self.behind == self.count:
            behind = "; the tier may only be behind"
        elif self.behind:
            behind = f"; for {self.behind} of them the tier may only be behind"
        places = _places_text(self.places)
        where = f" ({places})" if places else ""
        return f"{self.topic} {window_text(self.window_start)}: {what}{where}{behind}"

    def as_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind.value,
            "topic": self.topic,
            "window_start": self.window_start,
            "window_end": self.window_end,
            "tier": self.tier,
            "against": self.against,
            "count": self.count,
            "behind": self.behind,
            "offsets": {str(partition): [list(run) for run in runs] for partition, runs in self.places.items()},
        }


@dataclass(frozen=True, slots=True)
class Window:
    """A window with its books and its findings."""

    books: Books
    state: State
    findings: tuple[Finding, ...] = ()

    @property
    def counts(self) -> dict[str, int]:
        """By tier, in the order of the data flow."""
        producer = {} if self.books.producer is None else {PRODUCER: self.books.producer}
        readers = {name: reader.count for name, reader in self.books.readers.items()}
        return {**producer, SERVER: self.books.server, **readers}

    def total(self, kind: Kind) -> int:
        """The number of records that are missing, double, ..."""
        return sum(finding.count for finding in self.findings if finding.kind is kind)

    def as_json(self) -> dict[str, Any]:
        return {
            "topic": self.books.topic,
            "window_start": self.books.window_start,
            "window_end": self.books.window_end,
            "state": self.state.value,
            "counts": self.counts,
            "differences": {tier: count - self.books.server for tier, count in self.counts.items() if tier != SERVER},
            "findings": [finding.as_json() for finding in self.findings],
        }


@dataclass(frozen=True, slots=True)
class Report:
    """The windows of an audit in order of topic and time, and notes."""

    windows: tuple[Window, ...]
    notes: tuple[str, ...] = ()

    @property
    def findings(self) -> list[Finding]:
        return [finding for window in self.windows for finding in window.findings]

    @property
    def tiers(self) -> list[str]:
        """All tiers of any window, in the order of the data flow."""
        found = {tier for window in self.windows for tier in window.counts}
        return sorted(found, key=lambda tier: (tier != PRODUCER, tier != SERVER, tier.startswith("archive"), tier))

    def as_json(self) -> dict[str, Any]:
        return {
            "version": VERSION,
            "balanced": not self.findings,
            "windows": [window.as_json() for window in self.windows],
            "notes": list(self.notes),
        }


def balanced(books: Books, places: Mapping[tuple[Kind, str], Places], *, is_closed: bool) -> Window:
    """The window with its findings, if it is over. ``places``: where the records of a finding are."""
    if not is_closed:
        return Window(books, State.OPEN)

    def found(kind: Kind, tier: str, count: int, against: str | None = None, behind: int = 0) -> Finding:
        where = places.get((kind, tier), {})
        return Finding(kind, books.topic, books.window_start, books.window_end, tier, count, against, behind, where)

    # A record without an offset accounts for an uncounted record first, and for a twin only if there is no other.
    unplaced = books.unplaced
    uncounted = max(books.uncounted - unplaced, 0)
    unplaced -= books.uncounted - uncounted
    doubled = max(books.doubled - unplaced, 0)
    unplaced -= books.doubled - doubled
    candidates = [
        found(Kind.MISSING, SERVER, books.lost + unplaced, PRODUCER),
        found(Kind.MISSING, SERVER, books.vanished, "readers"),
        found(Kind.DOUBLE, SERVER, doubled, PRODUCER),
        found(Kind.UNCOUNTED, SERVER, uncounted, PRODUCER),
        found(Kind.LATE, SERVER, books.late),
    ]
    for tier, reader in books.readers.items():
        candidates.append(found(Kind.MISSING, tier, reader.missing, SERVER, reader.behind))
        candidates.append(found(Kind.DOUBLE, tier, reader.double, SERVER))
    findings = tuple(finding for finding in candidates if finding.count)
    return Window(books, State.UNBALANCED if findings else State.BALANCED, findings)


def with_late_counts(window: Window, before: Window) -> Window:
    """The window with the changes since it was balanced as ``before``, in the tiers and in the log."""
    if State.OPEN in (window.state, before.state):
        return window
    books = window.books
    known = {finding.tier: finding for finding in window.findings if finding.kind is Kind.LATE}
    others = tuple(finding for finding in window.findings if finding.kind is not Kind.LATE)
    late = []
    for tier, count in window.counts.items():
        grown = count - before.counts.get(tier, 0)
        already = known.get(tier)
        if already is not None:
            late.append(replace(already, count=max(already.count, grown)))
        elif grown > 0:
            late.append(Finding(Kind.LATE, books.topic, books.window_start, books.window_end, tier, grown))
    findings = (*others, *late)
    return replace(window, findings=findings, state=State.UNBALANCED if findings else State.BALANCED)


def runs_of(offsets: Iterable[int]) -> list[tuple[int, int]]:
    """Offsets as runs: [3, 4, 5, 9] is (3, 5), (9, 9)."""
    runs: list[tuple[int, int]] = []
    for offset in sorted(set(offsets)):
        if runs and offset == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], offset)
        else:
            runs.append((offset, offset))
    return runs


def without(runs: Sequence[tuple[int, int]], others: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The runs without the offsets in ``others``."""
    left = {offset for first, last in runs for offset in range(first, last + 1)}
    return runs_of(left.difference(*(range(first, last + 1) for first, last in others)))


def window_text(window_start: int) -> str:
    """The start of a window, UTC: ``2026-11-20 17:05:00``."""
    try:
        moment = datetime.fromtimestamp(window_start // 1000, UTC)
    except (ValueError, OverflowError, OSError):
        # A timestamp is any 64-bit number, and not every number is a valid date.
        return f"{window_start} ms"
    return moment.strftime("%Y-%m-%d %H:%M:%S") + (f".{window_start % 1000:03}" if window_start % 1000 else "")


def _places_text(places: Places) -> str:
    texts = []
    for partition, runs in sorted(places.items()):
        shown = [str(first) if first == last else f"{first}-{last}" for first, last in runs[:_RUNS_SHOWN]]
        more = [f"and {len(runs) - len(shown)} more places"] if len(runs) > len(shown) else []
        texts.append(f"partition {partition}: {', '.join([*shown, *more])}")
    return "; ".join(texts)


def _records(count: int) -> str:
    return f"{count} record" if count == 1 else f"{count} records"


def _are(count: int) -> str:
    return "is" if count == 1 else "are"

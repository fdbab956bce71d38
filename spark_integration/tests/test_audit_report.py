"""Results of an audit: findings, their sentences, and changes after a window was balanced."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from moldau.spark_integration.audit.follow import Progress, Reported
from moldau.spark_integration.audit.ledger import Seen, TierSummary
from moldau.spark_integration.audit.report import (
    Books,
    Kind,
    Reader,
    Report,
    State,
    Window,
    balanced,
    runs_of,
    window_text,
    without,
)

START_MS = 1_767_614_400_000
BOOKS = Books("orders", START_MS, START_MS + 60_000, server=10, producer=10)


def window(books: Books, *, is_closed: bool = True) -> Window:
    return balanced(books, {}, is_closed=is_closed)


def found(books: Books) -> list[tuple[Kind, str, int]]:
    return [(finding.kind, finding.tier, finding.count) for finding in window(books).findings]


def test_balanced_books_have_no_findings() -> None:
    books = replace(BOOKS, readers={"consumer a": Reader(10), "archive": Reader(10)})

    assert window(books).state is State.BALANCED
    assert window(books).counts == {"producer": 10, "server": 10, "consumer a": 10, "archive": 10}


def test_an_open_window_has_no_findings() -> None:
    assert window(replace(BOOKS, lost=3, late=1), is_closed=False) == Window(replace(BOOKS, lost=3, late=1), State.OPEN)


@pytest.mark.parametrize(
    ("unplaced", "uncounted", "doubled", "findings"),
    [
        (5, 5, 0, []),
        (5, 3, 0, [(Kind.MISSING, "server", 2)]),
        (5, 7, 0, [(Kind.UNCOUNTED, "server", 2)]),
        (5, 5, 2, [(Kind.DOUBLE, "server", 2)]),
        (5, 3, 4, [(Kind.DOUBLE, "server", 2)]),
        (5, 1, 1, [(Kind.MISSING, "server", 3)]),
    ],
)
def test_records_without_offsets_account_for_uncounted_records(
    unplaced: int, uncounted: int, doubled: int, findings: list[tuple[Kind, str, int]]
) -> None:
    assert found(replace(BOOKS, unplaced=unplaced, uncounted=uncounted, doubled=doubled)) == findings


def test_a_loss_and_as_many_doubles_are_two_findings() -> None:
    books = replace(BOOKS, readers={"consumer a": Reader(10, missing=3, double=3)})

    assert found(books) == [(Kind.MISSING, "consumer a", 3), (Kind.DOUBLE, "consumer a", 3)]


def test_findings_have_sentences() -> None:
    books = replace(
        BOOKS,
        lost=1,
        vanished=2,
        doubled=3,
        uncounted=4,
        late=5,
        readers={"consumer a": Reader(7, missing=3, behind=2), "archive": Reader(7, missing=3, behind=3)},
    )
    places = {
        (Kind.MISSING, "server"): {1: [(4, 4)]},
        (Kind.LATE, "server"): {0: [(n, n + 1) for n in range(0, 21, 3)]},
    }

    assert [finding.sentence() for finding in balanced(books, places, is_closed=True).findings] == [
        "orders 2026-01-05 12:00:00: 1 record of the producer is missing in the server (partition 1: 4)",
        "orders 2026-01-05 12:00:00: 2 records of the readers are missing in the server (partition 1: 4)",
        "orders 2026-01-05 12:00:00: 3 records duplicated in the server",
        "orders 2026-01-05 12:00:00: 4 records in the server that no producer has counted",
        "orders 2026-01-05 12:00:00: 5 records late in the server "
        "(partition 0: 0-1, 3-4, 6-7, 9-10, 12-13, and 2 more places)",
        "orders 2026-01-05 12:00:00: 3 records of the server are missing in the consumer a; "
        "for 2 of them the tier may only be behind",
        "orders 2026-01-05 12:00:00: 3 records of the server are missing in the archive; the tier may only be behind",
    ]


def test_the_report_is_json() -> None:
    report = Report((balanced(replace(BOOKS, producer=11, lost=1), {}, is_closed=True),), ("a note",))

    assert json.loads(json.dumps(report.as_json())) == {
        "version": 1,
        "balanced": False,
        "windows": [
            {
                "topic": "orders",
                "window_start": START_MS,
                "window_end": START_MS + 60_000,
                "state": "unbalanced",
                "counts": {"producer": 11, "server": 10},
                "differences": {"producer": 1},
                "findings": [
                    {
                        "kind": "missing",
                        "topic": "orders",
                        "window_start": START_MS,
                        "window_end": START_MS + 60_000,
                        "tier": "server",
                        "against": "producer",
                        "count": 1,
                        "behind": 0,
                        "offsets": {},
                    }
                ],
            }
        ],
        "notes": ["a note"],
    }


def test_offsets_are_reported_as_runs() -> None:
    assert runs_of([9, 3, 4, 5, 4]) == [(3, 5), (9, 9)]
    assert runs_of([]) == []
    assert without([(0, 9)], [(2, 3), (9, 12)]) == [(0, 1), (4, 8)]


def test_a_timestamp_that_is_not_a_valid_date_is_reported_as_a_number() -> None:
    assert window_text(START_MS + 5) == "2026-01-05 12:00:00.005"
    assert window_text(1 << 62) == "4611686018427387904 ms"


# -- the beginning of a tier -------------------------------------------------------------------------------------------


def test_a_tier_accounts_for_records_after_its_first_one() -> None:
    summary = TierSummary(100, partitions={0: Seen(7, 200, 9), 1: Seen(3, 100, 5)})

    assert summary.beginning(0) == (7, None)
    # The tier has counted nothing in partition 2, and must account for it from the time when it began elsewhere.
    assert summary.beginning(2) == (0, 100)
    assert (summary.last_offset(0), summary.last_offset(2)) == (9, -1)


def test_a_group_from_the_earliest_accounts_for_complete_windows() -> None:
    summary = TierSummary(100, from_earliest=True, partitions={0: Seen(7, 200, 9)})

    assert summary.beginning(0) == (0, 200)


def test_without_known_offsets_a_tier_begins_with_a_window() -> None:
    summary = TierSummary(100, partitions={0: Seen(7, 200, 9)}, unplaced={0: 150, 1: 100})

    assert summary.beginning(0) == (0, 150)
    assert summary.beginning(1) == (0, 100)


# -- following ---------------------------------------------------------------------------------------------------------


def test_a_window_is_over_when_its_topic_has_newer_records_or_is_idle() -> None:
    progress = Progress(watermark_ms=10_000)

    assert progress.closed_before_ms("t", 500_000, 7, now_s=0) == 490_000
    assert progress.closed_before_ms("t", 500_000, 7, now_s=9) == 490_000
    # An old record arrives: the topic's time does not decrease, but the topic is not idle.
    assert progress.closed_before_ms("t", 300_000, 8, now_s=11) == 490_000
    assert progress.closed_before_ms("t", 300_000, 8, now_s=21) > 1 << 60


def test_windows_are_audited_for_some_time_after_they_are_over() -> None:
    progress = Progress(watermark_ms=10_000)
    assert progress.watch_from_ms(keep_ms=60_000) is None
    progress.closed_before_ms("ahead", 900_000, 1, now_s=0)
    progress.closed_before_ms("t", 500_000, 7, now_s=0)

    assert progress.watch_from_ms(keep_ms=60_000) == 430_000


def test_a_window_is_reported_when_it_is_over_and_when_it_changes_later() -> None:
    reported = Reported()
    behind = replace(BOOKS, readers={"consumer a": Reader(8, missing=2, behind=2)})
    caught_up = replace(BOOKS, readers={"consumer a": Reader(10)})

    assert reported.changed((window(behind, is_closed=False),), None) == []
    assert reported.changed((window(behind),), None) == [window(behind)]
    assert reported.changed((window(behind),), None) == []
    (late,) = reported.changed((window(caught_up),), None)
    assert [(each.kind, each.tier, each.count) for each in late.findings] == [(Kind.LATE, "consumer a", 2)]
    assert reported.changed((window(caught_up),), None) == []


def test_late_records_are_reported_once_whether_the_log_or_the_books_show_them() -> None:
    reported = Reported()
    reported.changed((window(BOOKS),), None)

    (late,) = reported.changed((window(replace(BOOKS, server=13, producer=13, late=2)),), None)

    assert [(each.kind, each.tier, each.count) for each in late.findings] == [
        (Kind.LATE, "producer", 3),
        (Kind.LATE, "server", 3),
    ]


def test_windows_that_are_no_longer_audited_are_forgotten() -> None:
    reported = Reported()
    reported.changed((window(BOOKS),), None)
    assert reported.changed((window(BOOKS),), START_MS + 59_999) == []
    reported.changed((), START_MS + 60_000)

    assert reported.changed((window(BOOKS),), None) == [window(BOOKS)]

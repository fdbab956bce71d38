"""The published conformance reports, and the script that writes them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from moldau.compat_tests import conformance_reports as reports
from moldau.compat_tests.conformance_servers import CALIBRATION, OTHERS, ConformanceServer, by_name
from moldau.conformance import catalog
from moldau.conformance.case import Case, case, declared
from moldau.conformance.check import Check
from moldau.conformance.outcome import Verdict
from moldau.conformance.reports import json_report
from moldau.conformance.target import Target
from moldau.testing import Broker

MAX_BYTES = 900_000
PUBLISHED = sorted(path for path in reports.FOLDER.glob("*.json") if not path.stem.startswith("client-"))


@pytest.mark.parametrize("path", PUBLISHED, ids=lambda path: path.stem)
def test_published_reports_can_be_compared_and_are_small(path: Any) -> None:
    assert path.stem in {server.name for server in reports.SERVERS}
    assert path.stat().st_size < MAX_BYTES
    found = json_report.read(path)
    assert found.cases
    if path.stem in {server.name for server in CALIBRATION}:
        verdicts = {each["verdict"] for each in found.cases.values()}
        assert verdicts <= {Verdict.PASSED, Verdict.NOT_APPLICABLE}


def test_the_page_is_that_of_the_published_reports() -> None:
    data = {
        server.name: json.loads(path.read_text())
        for server in reports.SERVERS
        if (path := reports.FOLDER / f"{server.name}.json").exists()
    }
    expected, found = list(reports.table(data)), (reports.FOLDER / "README.md").read_text().splitlines()
    assert [line for line in found if "several servers" not in line] == [
        line for line in expected if "several servers" not in line
    ]


def test_every_server_with_failures_has_a_judgment() -> None:
    judgments = (reports.FOLDER / "judgments.md").read_text()
    for server in OTHERS:
        assert f"## {server.title}" in judgments


def test_a_report_is_compact() -> None:
    (server,) = by_name(("moldau",), CALIBRATION)
    cases = catalog.select(ids=["produce.exchange", "produce.acks.none"])
    with server.open(1.0) as target:
        target.patience = 4.0
        described, results = reports.run(_opened(target), cases, 1.0)
    failed = results[0]._replace(
        verdict=Verdict.FAILED, reason="r", what="w", expected="conformance-0123abcd-7-topic-1", actual="x" * 1000
    )
    full = json_report.to_json(described, [failed, *results[1:]], complete=True)
    found = reports.compact(full, server)
    assert found["cases"][0]["expected"] == "conformance-topic-1"
    assert len(found["cases"][0]["actual"]) < 410
    assert "title" not in found["cases"][0]
    assert "address" not in found["server"]
    assert [each["verdict"] for each in found["cases"][1:]] == ["passed"] * (len(cases) - 1)


def _opened(target: Target) -> ConformanceServer:
    @contextmanager
    def same(patience: float) -> Iterator[Target]:
        yield target

    return ConformanceServer("moldau", "Moldau", "", lambda: "1", same)


def test_a_server_that_ends_is_started_again_for_the_other_cases() -> None:
    brokers: list[Broker] = []

    @contextmanager
    def start(patience: float) -> Iterator[Target]:
        with Broker() as broker:
            brokers.append(broker)
            target = Target(broker.bootstrap_servers)
            target.patience = patience
            yield target

    def ends(c: Check) -> None:
        brokers[-1].kill()
        c.connect()

    def passes(c: Check) -> None:
        c.topic()

    server = ConformanceServer("x", "X", "", lambda: "1", start)
    _, results = reports.run(server, _cases(passes, ends, passes), 1.0)
    assert [result.verdict for result in results] == [Verdict.PASSED, Verdict.INCONCLUSIVE, Verdict.PASSED]
    assert results[1].reason == "the server ended during this case"


def test_an_unknown_server_is_named() -> None:
    with pytest.raises(ValueError, match="there is no server 'kafka'; there are moldau"):
        by_name(("kafka",), reports.SERVERS)


def _cases(*bodies: Any) -> list[Case]:
    before = len(declared)
    for number, body in enumerate(bodies):
        body.__doc__ = "Sends: a.\n\nExpects: b.\n\nWhy: c."
        case(f"test.{number}", "a test", source="none")(body)
    found = declared[before:]
    del declared[before:]
    return found

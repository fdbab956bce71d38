"""All cases of the conformance suite, against the server under test: Moldau or Apache Kafka.

The cases run once, in parallel. Each case is one test, so that a failure has a name.
"""

from __future__ import annotations

import pytest

from moldau.conformance import catalog
from moldau.conformance.case import Layer
from moldau.conformance.outcome import Result, Verdict
from moldau.conformance.runner import Runner
from moldau.conformance.target import Target

CASES = catalog.select(layers=[Layer.WIRE, Layer.CONTRACT])
# CI's machine runs other tests in parallel.
PATIENCE = 4.0


@pytest.fixture(scope="module")
def results(bootstrap_servers: str) -> dict[str, Result]:
    target = Target(bootstrap_servers, patience=PATIENCE)
    target.describe()
    runner = Runner(target)
    found = {result.case.id: result for result in runner.run(CASES)}
    assert not runner.lost
    return found


@pytest.mark.parametrize("identifier", [case.id for case in CASES])
def test_case(results: dict[str, Result], identifier: str) -> None:
    result = results[identifier]
    assert result.verdict in (Verdict.PASSED, Verdict.NOT_APPLICABLE), result.reason

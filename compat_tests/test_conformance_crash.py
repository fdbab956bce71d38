"""The crash cases of the conformance suite, after ``kill -9`` and after a clean stop: Moldau or Apache Kafka."""

from __future__ import annotations

import pytest

from moldau.conformance import catalog
from moldau.conformance.case import Layer
from moldau.conformance.outcome import Result, Verdict
from moldau.conformance.runner import Runner
from moldau.conformance.target import Target
from moldau.testing.servers import Server

CASES = catalog.select(layers=[Layer.CRASH])
PATIENCE = 4.0

UNDER_LOAD = (
    "crash.records.retry",
    "crash.records.under-load.all",
    "crash.records.under-load.leader",
    "crash.topics.under-load",
)
"""Only after ``kill -9``. A server that stops cleanly rejects the last requests; and it stores only the last batch of a
producer, so that it does not recognize the ones before."""


@pytest.fixture(scope="module", params=["kill", "stop"])
def results(request: pytest.FixtureRequest, own_server: Server) -> dict[str, Result]:
    target = Target(own_server.bootstrap_servers, patience=PATIENCE)
    target.describe()
    killed = request.param == "kill"
    target.kill = own_server.kill if killed else own_server.stop

    def start() -> None:
        own_server.start()

    target.restart = start
    runner = Runner(target)
    results = runner.run([case for case in CASES if killed or case.id not in UNDER_LOAD])
    assert not runner.lost
    return {result.case.id: result for result in results}


@pytest.mark.parametrize("identifier", [case.id for case in CASES])
def test_case(results: dict[str, Result], identifier: str) -> None:
    if identifier not in results:
        pytest.skip("not after a clean stop")
    result = results[identifier]
    assert result.verdict in (Verdict.PASSED, Verdict.NOT_APPLICABLE), result.reason

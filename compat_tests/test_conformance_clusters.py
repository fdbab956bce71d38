"""All cases of the conformance suite on a broker that is one of several, and under Apache Kafka's controller."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from moldau.compat_tests.conformance_servers import CLUSTERS, by_name
from moldau.conformance import catalog
from moldau.conformance.case import Layer
from moldau.conformance.outcome import Result, Verdict
from moldau.conformance.runner import Runner

# All cases run in the fixture, beside other tests.
pytestmark = [pytest.mark.full, pytest.mark.timeout(1800)]

CASES = catalog.select(layers=[Layer.WIRE, Layer.CONTRACT, Layer.CLUSTER])
# CI's machine runs other tests in parallel.
PATIENCE = 4.0


@pytest.fixture(scope="module", params=["moldau-cluster", "moldau-under-apache-kafka"])
def run(request: pytest.FixtureRequest, both_servers: None) -> Iterator[tuple[str, list[Result]]]:
    """The name of the server, and the results."""
    (server,) = by_name((request.param,), CLUSTERS)
    with server.open(PATIENCE) as target:
        target.describe()
        runner = Runner(target)
        results = runner.run(CASES)
        assert not runner.lost
        yield server.name, results


def test_all_cases_pass(run: tuple[str, list[Result]]) -> None:
    allowed = (Verdict.PASSED, Verdict.NOT_APPLICABLE)
    assert [(each.case.id, each.reason) for each in run[1] if each.verdict not in allowed] == []


def test_cases_for_several_brokers_apply_to_a_cluster_only(run: tuple[str, list[Result]]) -> None:
    """Otherwise nothing of what the cases test was tested."""
    name, results = run
    verdicts = {each.verdict for each in results if each.case.layer is Layer.CLUSTER}
    assert (Verdict.PASSED in verdicts) is (name == "moldau-cluster")

"""The conformance cases of SASL, ACLs, delegation tokens and client metrics, against Apache Kafka: Moldau has none."""

from __future__ import annotations

import pytest

from moldau.compat_tests.conformance_servers import CALIBRATION, by_name
from moldau.conformance import catalog
from moldau.conformance.outcome import Result, Verdict
from moldau.conformance.runner import Runner

pytestmark = pytest.mark.full

AREAS = ("security", "telemetry")
PATIENCE = 4.0


@pytest.fixture(scope="module")
def results(both_servers: None) -> list[Result]:
    (server,) = by_name(("apache-kafka-4.3.1-secured",), CALIBRATION)
    with server.open(PATIENCE) as target:
        target.describe()
        return Runner(target).run(catalog.select(areas=AREAS))


def test_all_cases_pass(results: list[Result]) -> None:
    allowed = (Verdict.PASSED, Verdict.NOT_APPLICABLE)
    assert [(each.case.id, each.reason) for each in results if each.verdict not in allowed] == []


@pytest.mark.parametrize("name", ["sasl", "acls", "tokens", "denied", "allowed", "scram", "push", "subscriptions"])
def test_the_server_has_the_prerequisites_of_the_cases(results: list[Result], name: str) -> None:
    passed = [each for each in results if each.verdict is Verdict.PASSED and each.case.id.split(".")[1] == name]
    assert len(passed) >= 3

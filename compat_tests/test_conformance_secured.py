"""The conformance cases of SASL, ACLs, delegation tokens and client metrics, and those of TLS, against servers that
have them.

Moldau has SASL and ACLs. Apache Kafka, which calibrates the cases, has all of them.
"""

from __future__ import annotations

import pytest

from moldau.compat_tests.conformance_servers import CALIBRATION, WITH_TLS, UnavailableServerError, by_name
from moldau.conformance import catalog
from moldau.conformance.outcome import Result, Verdict
from moldau.conformance.runner import Runner
from moldau.testing.full_run import in_full_run
from moldau.testing.requirements import missing

AREAS = ("acl", "sasl", "security", "telemetry", "tls")
PATIENCE = 4.0

MOLDAU, APACHE_KAFKA = "moldau-secured", "apache-kafka-4.3.1-secured"
MOLDAU_TLS, APACHE_KAFKA_TLS = "moldau-tls", "apache-kafka-4.3.1-tls"
OF_BOTH = ("sasl", "acls", "denied", "allowed", "scram", "push", "subscriptions")
OF_TLS = ("plaintext", "handshake", "records", "client-certificate")
OF_APACHE_KAFKA = ("tokens",)

each_server = pytest.mark.parametrize("name", [MOLDAU, MOLDAU_TLS, *in_full_run(APACHE_KAFKA, APACHE_KAFKA_TLS)])


class Results:
    """Of each server, which runs once."""

    def __init__(self) -> None:
        self._found: dict[str, list[Result]] = {}

    def __call__(self, name: str) -> list[Result]:
        """The results of all cases on this server."""
        if name not in self._found:
            (server,) = by_name((name,), (*CALIBRATION, *WITH_TLS))
            try:
                with server.open(PATIENCE) as target:
                    target.describe()
                    self._found[name] = Runner(target).run(catalog.select(areas=AREAS))
            except UnavailableServerError as error:
                missing("Apache Kafka", str(error))
        return self._found[name]


@pytest.fixture(scope="module")
def results() -> Results:
    return Results()


@each_server
def test_all_cases_pass(results: Results, name: str) -> None:
    allowed = (Verdict.PASSED, Verdict.NOT_APPLICABLE)
    assert [(each.case.id, each.reason) for each in results(name) if each.verdict not in allowed] == []


@pytest.mark.parametrize(
    ("name", "group"),
    [
        *((MOLDAU, group) for group in OF_BOTH),
        *((MOLDAU_TLS, group) for group in OF_TLS),
        *(pytest.param(APACHE_KAFKA_TLS, group, marks=pytest.mark.full) for group in OF_TLS),
        *(pytest.param(APACHE_KAFKA, group, marks=pytest.mark.full) for group in OF_BOTH + OF_APACHE_KAFKA),
    ],
)
def test_the_server_has_the_prerequisites_of_the_cases(results: Results, name: str, group: str) -> None:
    passed = [each for each in results(name) if each.verdict is Verdict.PASSED and each.case.id.split(".")[1] == group]
    assert len(passed) >= 3

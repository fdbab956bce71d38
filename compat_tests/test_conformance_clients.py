"""The conformance cases of real clients, against the server under test: Moldau or Apache Kafka.

In a short run one client runs a few cases; the full run has all cases of all clients.
"""

from __future__ import annotations

import pytest

from moldau.conformance import catalog
from moldau.conformance.outcome import Verdict
from moldau.conformance.runner import Runner
from moldau.conformance.target import Target
from moldau.testing.clients import CLIENT_NAMES, installed
from moldau.testing.full_run import in_full_run
from moldau.testing.requirements import missing

# CI's machine runs other tests in parallel.
PATIENCE = 4.0
SHORT = (
    "clients.records.kafka-python",
    "clients.codec.zstd.kafka-python",
    "clients.transaction.kafka-python",
    "clients.topics.kafka-python",
)


def run(bootstrap_servers: str, *ids: str, clients: tuple[str, ...]) -> None:
    target = Target(bootstrap_servers, patience=PATIENCE)
    target.describe()
    runner = Runner(target, jobs=2, clients=clients)
    results = runner.run(catalog.select(ids=ids))
    assert not runner.lost
    passed = (Verdict.PASSED, Verdict.NOT_APPLICABLE)
    assert [f"{each.case.id}: {each.reason}" for each in results if each.verdict not in passed] == []
    assert Verdict.PASSED in {each.verdict for each in results}


def test_cases_of_one_client(bootstrap_servers: str) -> None:
    run(bootstrap_servers, *SHORT, clients=("kafka-python",))


@pytest.mark.parametrize("client", in_full_run(*CLIENT_NAMES))
def test_all_cases(bootstrap_servers: str, client: str) -> None:
    what = installed.what_is_missing(client)
    if what is not None:
        missing(client, what)
    run(bootstrap_servers, "clients", clients=(client,))

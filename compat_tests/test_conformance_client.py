"""`moldau conformance-client` with the five clients whose adapters are included: scenarios that each must pass.

All scenarios take up to half a minute per client; docs/conformance/ has the reports of complete runs.
"""

from __future__ import annotations

import sys

import pytest

from moldau.compat_tests.client_reports import CLIENTS, cause_of
from moldau.conformance.client.runner import Runner
from moldau.conformance.client.scenario import select
from moldau.conformance.outcome import Verdict
from moldau.testing.requirements import require_kafka_jars, require_program

SCENARIOS = (
    "produce.normal",
    "produce.retriable.not-leader-or-follower",
    "produce.lost-response",
    "produce.disconnect.once",
    "produce.fatal.message-too-large",
    "produce.old-broker.as-kafka-2.8",
    "consume.normal",
    "consume.retriable.not-leader-or-follower",
    "consume.disconnect.half-a-response",
    "consume.corrupt",
    "consume.trimmed",
    "consume.compacted",
    "groups.normal.classic",
    "groups.sync.rebalance-in-progress",
    "groups.commit.not-coordinator",
    "groups.fenced-instance.join",
    "groups.truncated",
    "transactions.normal",
    "transactions.fenced",
    "admin.normal",
    "cluster.dead-bootstrap.refused",
    "cluster.late-response",
)


@pytest.mark.parametrize("client", CLIENTS)
def test_scenarios(client: str) -> None:
    if client == "java":
        require_kafka_jars()
        require_program("javac")
    elif client == "franz-go":
        require_program("go")
    runner = Runner([sys.executable, "-m", "moldau.testing.clients.adapter", client], patience=2.0, jobs=1)
    scenarios = [each for each in select(SCENARIOS) if cause_of(client, each.id) is None]
    results = runner.run(scenarios)
    assert [(each.scenario.id, each.reason) for each in results if each.verdict is not Verdict.PASSED] == []

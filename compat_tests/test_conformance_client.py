"""`moldau conformance-client` with the five clients whose adapters are included: scenarios that each must pass.

All scenarios take up to half a minute per client; docs/conformance/ has the reports of complete runs.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from moldau.compat_tests.client_reports import CAUSES, CLIENTS, FOLDER, cause_of, page, published
from moldau.conformance.client.runner import Runner
from moldau.conformance.client.scenario import all_scenarios, select
from moldau.conformance.outcome import Verdict
from moldau.testing.full_run import in_full_run
from moldau.testing.requirements import require_kafka_jars, require_program

IN_EACH_RUN = ("confluent-kafka",)

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
def test_each_failure_of_the_published_report_has_a_cause(client: str) -> None:
    path = FOLDER / f"client-{client}.json"
    assert path.stat().st_size < 1_000_000
    verdicts = {each["id"]: each["verdict"] for each in json.loads(path.read_text(encoding="utf-8"))["cases"]}
    assert list(verdicts) == list(all_scenarios())
    assert Verdict.INCONCLUSIVE not in verdicts.values()
    failed = [each for each, verdict in verdicts.items() if verdict == Verdict.FAILED]
    assert [each for each in failed if cause_of(client, each) is None] == []
    for text, identifiers in CAUSES[client]:
        assert all(select((each,)) for each in identifiers), f"an ID of a scenario that does not exist: {text}"


def test_the_page_is_that_of_the_published_reports() -> None:
    assert (FOLDER / "clients.md").read_text(encoding="utf-8") == page(published())


@pytest.mark.parametrize("client", [*IN_EACH_RUN, *in_full_run(*(name for name in CLIENTS if name not in IN_EACH_RUN))])
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


def test_the_adapter_of_the_documentation(tmp_path: Path) -> None:
    require_program("kcat")
    page = (FOLDER.parent / "conformance.md").read_text(encoding="utf-8")
    (source,) = (
        each for each in re.findall(r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE) if "kcat" in each
    )
    adapter = tmp_path / "kcat_adapter.py"
    adapter.write_text(source, encoding="utf-8")
    passing = ("produce.normal", "produce.lost-response.disconnect", "produce.fatal.message-too-large")
    scenarios = select((*passing, "consume.normal", "consume.trimmed", "groups.normal.classic"))
    results = Runner([sys.executable, str(adapter)], patience=2.0, jobs=1).run(scenarios)
    verdicts = {each.scenario.id: (each.verdict, each.reason) for each in results}
    assert verdicts.pop("groups.normal.classic")[0] is Verdict.NOT_APPLICABLE
    assert {each for each in verdicts.items() if each[1][0] is not Verdict.PASSED} == set()

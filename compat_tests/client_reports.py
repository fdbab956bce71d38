"""Publishes the reports of `moldau conformance-client` for the five clients whose adapters are included.

    python -m moldau.compat_tests.client_reports

It runs all scenarios with each client, and writes `client-NAME.json` and `clients.md` in `docs/conformance/`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from moldau.conformance.client.runner import Result, Runner, to_json
from moldau.conformance.client.scenario import all_scenarios
from moldau.conformance.outcome import Verdict

CLIENTS: Final = ("aiokafka", "confluent-kafka", "franz-go", "java", "kafka-python")
FOLDER: Final = Path(__file__).parent.parent / "docs" / "conformance"

_INTRODUCTION: Final = """# Clients

This page is written by `python -m moldau.compat_tests.client_reports`. Each client did the jobs of all scenarios of
`moldau conformance-client` through its included adapter, with the client's default settings. `must` means that a record
was lost, duplicated or changed, or that the client hung; `should` means that an application has to repeat something
that other clients repeat themselves. The JSON files have the requests that each client sent in a failed scenario.

librdkafka (confluent-kafka) checks CRCs only if `check.crcs` is true, which is not its default.
"""


def main() -> int:
    """Run all clients, and write the pages. Returns 1 if a scenario was inconclusive."""
    FOLDER.mkdir(exist_ok=True)
    found: dict[str, Sequence[Result]] = {}
    for client in CLIENTS:
        print(f"{client}: {len(all_scenarios())} scenarios", file=sys.stderr, flush=True)
        runner = Runner([sys.executable, "-m", "moldau.testing.clients.adapter", client], patience=2.0)
        results = found[client] = runner.run(list(all_scenarios().values()))
        report = to_json(client, results, complete=not runner.interrupted)
        (FOLDER / f"client-{client}.json").write_text(_compact(report), encoding="utf-8")
    (FOLDER / "clients.md").write_text(_page(found), encoding="utf-8")
    return int(any(each.verdict is Verdict.INCONCLUSIVE for results in found.values() for each in results))


def _compact(report: dict[str, Any]) -> str:
    """One line for each case; times are omitted, because they differ from run to run."""
    cases = [{key: value for key, value in case.items() if key != "seconds"} for case in report["cases"]]
    for case in cases:
        for request in case.get("requests", ()):
            del request["seconds"]
    head = {key: value for key, value in report.items() if key != "cases"}
    lines = ",\n".join(json.dumps(case) for case in cases)
    return f'{json.dumps(head)[:-1]}, "cases": [\n{lines}\n]}}\n'


def _page(found: dict[str, Sequence[Result]]) -> str:
    lines = [_INTRODUCTION, "| client | passed | failed | failed, level must |", "| --- | --- | --- | --- |"]
    for client, results in found.items():
        failed = [each for each in results if each.verdict is Verdict.FAILED]
        passed = sum(each.verdict is Verdict.PASSED for each in results)
        must = sum(each.scenario.level == "must" for each in failed)
        lines.append(f"| [{client}](client-{client}.json) | {passed} | {len(failed)} | {must} |")
    lines += ["", "| client | scenario | level | expected | actual |", "| --- | --- | --- | --- | --- |"]
    for client, results in found.items():
        for each in results:
            if each.verdict is Verdict.FAILED:
                cells = (client, each.scenario.id, each.scenario.level.value, each.expected, each.actual)
                lines.append(f"| {' | '.join(cell.replace('|', '/')[:200] for cell in cells)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())

"""Publishes the reports of `moldau conformance-client` for the five clients whose adapters are included.

    python -m moldau.compat_tests.client_reports [CLIENT ...]

It runs all scenarios with each client, or with those that are named, and writes `client-NAME.json` and `clients.md` in
`docs/conformance/`.
"""

from __future__ import annotations

import json
import re
import sys
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from moldau.conformance.case import Level
from moldau.conformance.client.runner import Runner, to_json
from moldau.conformance.client.scenario import all_scenarios
from moldau.conformance.outcome import Verdict
from moldau.testing.clients.installed import version_of

CLIENTS: Final = ("aiokafka", "confluent-kafka", "franz-go", "java", "kafka-python")
FOLDER: Final = Path(__file__).parent.parent / "docs" / "conformance"

_INTRODUCTION: Final = """# Clients

This page is written by `python -m moldau.compat_tests.client_reports`. Each client did the jobs of all scenarios of
`moldau conformance-client` through its included adapter, with the client's default settings. A failure of a scenario of
the level `must` means that a record was lost, duplicated or changed, or that the client hung; of the level `should`,
that an application has to repeat something that other clients repeat themselves, or does not learn why it failed. The
JSON files have the requests that each client sent in a failed scenario.

Some of the failures depend on timing, and are in some runs only.
"""

_NO_RETRY_OF_CORRUPT_MESSAGE: Final = (
    "CORRUPT_MESSAGE, which Apache Kafka defines as retriable, is reported to the application without a retry."
)
_NO_REBOOTSTRAP: Final = (
    "The client looks for Metadata only at the brokers that the last Metadata named, and does not return to its "
    "bootstrap addresses (KIP-899). "
)
_COMMITTED_EPOCH: Final = (
    "The leader epoch of the committed offset is not compared with the log (OffsetForLeaderEpoch, KIP-320) when the "
    "member starts there."
)

CAUSES: Final[dict[str, tuple[tuple[str, tuple[str, ...]], ...]]] = {
    "aiokafka": (
        (
            f"{_NO_REBOOTSTRAP}The idempotent producer continues to try; no error is reported within 60 s.",
            ("cluster.unknown-host",),
        ),
        (
            "The client does not know this error code; the error that it reports does not contain it.",
            (
                "consume.list-offsets.offset-not-available",
                "groups.committed-error.unstable-offset-commit",
                "groups.rejected.fenced-instance-id",
                "groups.rejected.group-max-size-reached",
            ),
        ),
        (
            "REBALANCE_IN_PROGRESS as the response to JoinGroup is reported to the application; the client does not "
            "join again.",
            ("groups.join.rebalance-in-progress",),
        ),
        (
            "The client does not use OffsetForLeaderEpoch (KIP-320), and continues at its own offset.",
            ("groups.truncated",),
        ),
        (
            "The bootstrap tries each address once; if the connection ends meanwhile, the application starts again.",
            ("produce.api-versions",),
        ),
        (_NO_RETRY_OF_CORRUPT_MESSAGE, ("produce.corrupt-message",)),
    ),
    "confluent-kafka": (
        ("librdkafka checks CRCs only if `check.crcs` is true, which is not its default.", ("consume.corrupt",)),
        (
            f"{_COMMITTED_EPOCH} In some runs the member joins again when the broker was restarted, and also starts "
            "there.",
            ("groups.truncated",),
        ),
    ),
    "franz-go": (
        (
            "A request whose connection cannot be opened is repeated only if the next address is another one. The "
            "consumer and the lookup of the end take addresses from one sequence, and the second attempt of one of "
            "them may have the first address again.",
            ("cluster.dead-bootstrap",),
        ),
        (
            "A connection that ends before its first response is not retried, because the cause is often missing SASL.",
            ("consume.metadata.disconnect", "consume.metadata.half-a-response"),
        ),
        (
            "The lookup of the end (`kadm.ListEndOffsets`) reports LEADER_NOT_AVAILABLE of Metadata without a retry.",
            ("consume.metadata.leader-not-available",),
        ),
        (_NO_RETRY_OF_CORRUPT_MESSAGE, ("produce.corrupt-message",)),
    ),
    "java": (),
    "kafka-python": (
        (
            "The decoder does not accept unknown tagged fields in structs that are inside a tagged field, as the "
            "features in ApiVersions are. The client does not start.",
            ("cluster.tagged-fields",),
        ),
        (f"{_NO_REBOOTSTRAP}It continues to try, and then reports a timeout.", ("cluster.unknown-host",)),
        (_COMMITTED_EPOCH, ("groups.truncated.while-away",)),
        (_NO_RETRY_OF_CORRUPT_MESSAGE, ("produce.corrupt-message",)),
    ),
}
"""Why a client fails scenarios: those with these IDs, or below them."""


def main(names: Sequence[str] = ()) -> int:
    """Run clients, all of them by default, and write the page of all reports.

    Returns 1 if a scenario was inconclusive, or a failure has no cause.
    """
    FOLDER.mkdir(exist_ok=True)
    for client in names or CLIENTS:
        print(f"{client}: {len(all_scenarios())} scenarios", file=sys.stderr, flush=True)
        runner = Runner([sys.executable, "-m", "moldau.testing.clients.adapter", client], patience=2.0)
        results = runner.run(list(all_scenarios().values()))
        report = to_json(client, results, complete=not runner.interrupted)
        _path(client).write_text(_compact({"version": version_of(client), **report}), encoding="utf-8")
    reports = published()
    (FOLDER / "clients.md").write_text(page(reports), encoding="utf-8")
    unexplained = [
        f"{client}: {case['id']} is {case['verdict']}, and the cause is not described"
        for client, report in reports.items()
        for case in report["cases"]
        if case["verdict"] == Verdict.INCONCLUSIVE
        or (case["verdict"] == Verdict.FAILED and cause_of(client, case["id"]) is None)
    ]
    print("".join(f"{each}\n" for each in unexplained), end="", file=sys.stderr)
    return int(bool(unexplained))


def _path(client: str) -> Path:
    return FOLDER / f"client-{client}.json"


def published() -> dict[str, dict[str, Any]]:
    """The published reports, by client."""
    return {client: json.loads(_path(client).read_text(encoding="utf-8")) for client in CLIENTS}


def cause_of(client: str, scenario: str) -> str | None:
    """The description of a failure."""
    for text, identifiers in CAUSES[client]:
        if any(scenario == each or scenario.startswith(f"{each}.") for each in identifiers):
            return text
    return None


def _neutral(text: str) -> str:
    """Without the addresses and folders of this machine, which differ from run to run."""
    text = text.replace(str(Path(__file__).parent.parent), "moldau").replace(sys.prefix, "python")
    text = re.sub(r"(127\.0\.0\.1(?::|', ))\d{4,5}\b", r"\1PORT", text)
    return re.sub(r" on \d+(\.\d+){3}:53\b", "", text)


def _compact(report: dict[str, Any]) -> str:
    """One line for each case; times are omitted, because they differ from run to run."""
    cases = [{key: value for key, value in case.items() if key != "seconds"} for case in report["cases"]]
    for case in cases:
        for key in ("reason", "actual"):
            if key in case:
                case[key] = _neutral(case[key])
        for request in case.get("requests", ()):
            del request["seconds"]
    head = {key: value for key, value in report.items() if key != "cases"}
    lines = ",\n".join(json.dumps(case) for case in cases)
    return f'{json.dumps(head)[:-1]}, "cases": [\n{lines}\n]}}\n'


def page(reports: Mapping[str, Mapping[str, Any]]) -> str:
    """The page of these reports, by client."""
    lines = [_INTRODUCTION, "| client | version | passed | failed | failed, level must | not applicable |"]
    lines += ["| --- | --- | --- | --- | --- | --- |"]
    failures: dict[str, list[dict[str, Any]]] = {}
    for client, report in reports.items():
        failures[client] = [each for each in report["cases"] if each["verdict"] == Verdict.FAILED]
        counts = report["summary"]
        must = sum(each["level"] == Level.MUST for each in failures[client])
        cells = (counts[Verdict.PASSED], counts[Verdict.FAILED], must, counts[Verdict.NOT_APPLICABLE])
        lines.append(f"| [{client}](client-{client}.json) | {report['version']} | {' | '.join(map(str, cells))} |")
    for client, failed in failures.items():
        if failed:
            lines += ["", f"## {client}", ""]
        for text, _ in CAUSES[client]:
            identifiers = [f"`{each['id']}`" for each in failed if cause_of(client, each["id"]) == text]
            if identifiers:
                entry = f"- {text} ({', '.join(identifiers)})"
                lines += textwrap.wrap(
                    entry, 118, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
                )
    lines += ["", "## All failures"]
    lines += ["", "| client | scenario | level | expected | actual |", "| --- | --- | --- | --- | --- |"]
    for client, failed in failures.items():
        for each in failed:
            texts = (client, each["id"], each["level"], each["expected"], each["actual"])
            lines.append(f"| {' | '.join(' '.join(text.split()).replace('|', '/')[:200] for text in texts)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

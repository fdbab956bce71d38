"""Runs the conformance suite on several servers, and writes the published reports.

    python -m moldau.compat_tests.conformance_reports [--server NAME] [--to docs/conformance]

Each server is started here with its defaults (`conformance_servers`). `NAME.json` is the result on one server: that of
`moldau conformance --json`, without what differs in each run (times, ports, names), and with the last exchange of
failed cases only. `README.md` is the table. Servers that are not run, because `--server` names others or because they
are not installed, keep their reports. `judgments.md` is written by hand: what the failures are.

A server that ends during the run is started again: the cases that were running then run one at a time, and the one
during which it ends again is inconclusive.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from moldau.compat_tests.conformance_servers import (
    CALIBRATION,
    OTHERS,
    ConformanceServer,
    UnavailableServerError,
    by_name,
)
from moldau.conformance import catalog
from moldau.conformance.case import Case, Level
from moldau.conformance.outcome import Result, Verdict
from moldau.conformance.reports import json_report, summary
from moldau.conformance.runner import DEFAULT_JOBS, Runner
from moldau.testing.clients import CLIENT_NAMES

FOLDER: Final = Path(__file__).parent.parent / "docs" / "conformance"
SERVERS: Final = (*CALIBRATION, *OTHERS)

_ENDED: Final = "the server ended during this case"
_EXCHANGE_BYTES: Final = 60_000
"""The exchanges of a report, so that the file stays below 900 kB."""
_EXCHANGE_OF_CASE_BYTES: Final = 2_500
_TEXT_CHARACTERS: Final = 400
_PATIENCE: Final = 0.5
"""Half: a server that does not respond where a response is due is not waited for so long."""
_UNCERTAIN_SECONDS: Final = 10.0
"""What failed in the last seconds of a server may have failed because it ended."""
_JOBS: Final = 64
"""For servers that do not calibrate the suite: most of the time they wait for responses that do not come."""
_INTRODUCTION: Final = """\
# Conformance reports

The results of [`moldau conformance`](../conformance.md) on several servers, {date}. Each server is started with
its defaults on the local machine, with one broker, and Moldau again with SASL and ACLs. This page and the reports are
written by `python -m moldau.compat_tests.conformance_reports`; they can be compared:

    cd docs/conformance
    moldau conformance compare apache-kafka-3.9.1.json apache-kafka-4.3.1.json

Moldau and both releases of Apache Kafka calibrate the suite: a case that one of them fails is a wrong case. The other
servers have other purposes; kfake and the mock cluster of librdkafka, for example, are for tests of clients. A failure
is a difference from Apache Kafka, not a judgment of the server; [judgments.md](judgments.md) describes the differences.
It also lists servers that are not in the table. All were tested with at least half of the usual deadlines
(`--patience 0.5` and more). The cases of real clients (area `clients`) were run with all six clients on the servers
that have results for them.

The failed cases are counted by level: must / should / apache.

| server | version | protocol of | passed | failed | by level | not applicable | inconclusive |
| --- | --- | --- | --- | --- | --- | --- | --- |
"""
_CASE_FIELDS: Final = ("id", "area", "layer", "level", "verdict", "reason", "what", "expected", "actual", "exchange")
_SERVER_FIELDS: Final = ("protocolOfApacheKafka", "apis", "features")


def run(
    server: ConformanceServer,
    cases: Sequence[Case],
    patience: float,
    jobs: int = DEFAULT_JOBS,
    clients: Sequence[str] = (),
) -> tuple[dict[str, Any], list[Result]]:
    """The description of the server, and the results in the order of the cases."""
    found: dict[str, Result] = {}
    described: dict[str, Any] = {}
    ended: dict[str, tuple[float, Verdict]] = {}
    suspects: list[Case] = []
    while len(found) < len(cases):
        with server.open(patience) as target:
            target.describe()
            described = described or target.to_json()
            lost = False
            while suspects and not lost:
                runner = Runner(target, jobs=1, clients=clients)
                (result,) = runner.run([suspects[0]])
                lost = runner.lost
                found[result.case.id] = Result(result.case, Verdict.INCONCLUSIVE, 0.0, _ENDED) if lost else result
                del suspects[0]
            if not lost:

                def finished(result: Result) -> None:
                    ended[result.case.id] = time.monotonic(), result.verdict

                runner = Runner(target, jobs=jobs, clients=clients, finished=finished)
                results = runner.run([case for case in cases if case.id not in found])
                certain_until = time.monotonic() - _UNCERTAIN_SECONDS if runner.lost else math.inf
                for result in results:
                    passed = result.verdict in (Verdict.PASSED, Verdict.NOT_APPLICABLE)
                    at, verdict = ended[result.case.id]
                    if passed or (at < certain_until and verdict is result.verdict):
                        found[result.case.id] = result
                    elif result.seconds:
                        suspects.append(result.case)
    return described, [found[case.id] for case in cases]


def compact(report: dict[str, Any], server: ConformanceServer) -> dict[str, Any]:
    """The report as it is published."""
    cases = []
    left = _EXCHANGE_BYTES
    for case in report["cases"]:
        kept = {key: case[key] for key in _CASE_FIELDS if key in case}
        for key in ("reason", "what", "expected", "actual"):
            if key in kept:
                kept[key] = _steady(kept[key])
        if kept.get("what"):
            del kept["reason"]  # it repeats the three fields
        exchange = _last_exchange(kept.pop("exchange", []))
        size = len(json.dumps(exchange))
        if case["verdict"] == Verdict.FAILED and exchange and size <= min(left, _EXCHANGE_OF_CASE_BYTES):
            kept["exchange"] = exchange
            left -= size
        cases.append(kept)
    return {
        "moldau": report["moldau"],
        "server": {
            "name": server.title,
            "version": server.version(),
            **{key: report["server"][key] for key in _SERVER_FIELDS},
        },
        "complete": report["complete"],
        "summary": report["summary"],
        "cases": cases,
    }


def merged(report: dict[str, Any], path: Path) -> dict[str, Any]:
    """The published report with these cases instead of its own. Raises ValueError if it is of another catalog."""
    published = json.loads(path.read_text(encoding="utf-8"))
    found = {case["id"]: case for case in (*published["cases"], *report["cases"])}
    if found.keys() != catalog.all_cases().keys():
        raise ValueError(f"{path} does not have the present cases: run all of them")
    cases = [found[identifier] for identifier in catalog.all_cases()]
    left = _EXCHANGE_BYTES
    for case in cases:
        left -= len(json.dumps(case.get("exchange", "")))
        if left < 0:
            case.pop("exchange", None)
    counts = Counter(case["verdict"] for case in cases)
    return {**report, "summary": {verdict.value: counts[verdict] for verdict in Verdict}, "cases": cases}


def _last_exchange(frames: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The last request and its response, decoded."""
    last = [at for at, frame in enumerate(frames) if frame["direction"] == "request"][-1:]
    kept = ("direction", "title", "size", "decoded")
    return [{key: frame[key] for key in kept} for at in last for frame in frames[at : at + 2]]


def _steady(text: str) -> str:
    """A text without the names of this run."""
    text = re.sub(r"conformance-[0-9a-f]{8}-\d+", "conformance", text)
    text = re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:PORT", text)
    return text if len(text) <= _TEXT_CHARACTERS else f"{text[:_TEXT_CHARACTERS]}..."


def write(path: Path, report: dict[str, Any]) -> None:
    """A line for each case, so that changes can be reviewed."""
    cases = ",\n".join(json.dumps(case, ensure_ascii=False) for case in report["cases"])
    rest = json.dumps({key: value for key, value in report.items() if key != "cases"}, ensure_ascii=False)
    path.write_text(f'{rest[:-1]}, "cases": [\n{cases}\n]}}\n', encoding="utf-8")


def table(reports: dict[str, dict[str, Any]]) -> Iterator[str]:
    """The lines of README.md."""
    today = datetime.datetime.now(tz=datetime.UTC).date()
    yield from _INTRODUCTION.format(date=f"{today:%B %Y}").splitlines()
    for name, report in reports.items():
        counts = report["summary"]
        failed = Counter(case["level"] for case in report["cases"] if case["verdict"] == Verdict.FAILED)
        levels = " / ".join(str(failed[level.value]) for level in Level)
        yield (
            f"| [{report['server']['name']}]({name}.json) | {report['server']['version']} | "
            f"{report['server']['protocolOfApacheKafka']} | {counts['passed']} | {counts['failed']} | {levels} | "
            f"{counts['not applicable']} | {counts['inconclusive']} |"
        )
    yield from ("", "Passed and tested cases by area; a dash if none of the area's cases applies.", "")
    titles = [f"{report['server']['name']} {report['server']['version'].split()[0][:9]}" for report in reports.values()]
    yield f"| area | {' | '.join(titles)} |"
    yield "| --- " * (len(reports) + 1) + "|"
    for area in sorted({case["area"] for report in reports.values() for case in report["cases"]}):
        cells = []
        for report in reports.values():
            verdicts = Counter(case["verdict"] for case in report["cases"] if case["area"] == area)
            tested = sum(verdicts.values()) - verdicts[Verdict.NOT_APPLICABLE]
            cells.append(f"{verdicts[Verdict.PASSED]} / {tested}" if tested else "-")
        yield f"| {area} | {' | '.join(cells)} |"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m moldau.compat_tests.conformance_reports", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument(
        "--server", action="append", default=[], help=f"only this: {', '.join(s.name for s in SERVERS)}"
    )
    parser.add_argument(
        "--case", action="append", default=[], help="only this case, or the cases below it, in published reports"
    )
    parser.add_argument(
        "--clients", action="store_true", help="run the real clients on servers that do not calibrate the suite, too"
    )
    parser.add_argument("--patience", type=float, default=_PATIENCE)
    parser.add_argument("--to", type=Path, default=FOLDER, help="the folder of the reports")
    options = parser.parse_args(arguments)
    try:
        servers = by_name(tuple(options.server), SERVERS)
    except ValueError as error:
        parser.error(str(error))
    cases = catalog.select(ids=options.case)
    options.to.mkdir(parents=True, exist_ok=True)
    wrong = 0
    for server in servers:
        try:
            jobs = DEFAULT_JOBS if server in CALIBRATION else _JOBS
            clients = CLIENT_NAMES if server in CALIBRATION or options.clients else ()
            described, results = run(server, cases, options.patience, jobs, clients)
        except UnavailableServerError as reason:
            print(f"{server.name}: not installed: {reason}", file=sys.stderr, flush=True)
            continue
        print(f"{server.name}: {summary.in_words(results)}", flush=True)
        path = options.to / f"{server.name}.json"
        report = compact(json_report.to_json(described, results, complete=True), server)
        write(path, merged(report, path) if options.case and path.exists() else report)
        if server in CALIBRATION:
            wrong += sum(result.verdict in (Verdict.FAILED, Verdict.INCONCLUSIVE) for result in results)
    paths = {server.name: options.to / f"{server.name}.json" for server in SERVERS}
    reports = {name: json.loads(path.read_text()) for name, path in paths.items() if path.exists()}
    (options.to / "README.md").write_text("\n".join(table(reports)) + "\n", encoding="utf-8")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

"""``moldau conformance``: test any Kafka server, from the command line."""

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .conformance_output import Progress, interrupts, leave, print_explanation, print_results
from .conformance_security import MECHANISMS, SaslOptions, TlsOptions, connection_security
from .failure import Failure
from .output import print_json, print_table
from .suggestions import did_you_mean

if TYPE_CHECKING:
    from ..conformance.case import Case
    from ..conformance.outcome import Result

EXIT_FAILED = 1
EXIT_UNUSABLE = 2
EXIT_INTERRUPTED = 130

# Those of `conformance.real_clients`, without its imports.
CLIENTS = ("kafka-python", "confluent-kafka", "aiokafka", "kcat", "java", "franz-go", "all")

_OUTPUT = click.Path(dir_okay=False, writable=True, path_type=Path)
_INPUT = click.Path(exists=True, dir_okay=False, path_type=Path)


class _Unusable(Failure):
    """The server cannot be tested, or a file is not a report."""

    exit_code = EXIT_UNUSABLE


class _Commands(click.Group):
    """``moldau conformance HOST:PORT`` is short for ``moldau conformance run HOST:PORT``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in (*self.commands, *self.get_help_option_names(ctx)):
            suggestion = "" if args[0].startswith("-") or ":" in args[0] else did_you_mean(args[0], self.commands)
            if suggestion:
                raise click.UsageError(f"No such command {args[0]!r}.{suggestion}", ctx)
            args = ["run", *args]
        return super().parse_args(ctx, args)


@click.group("conformance", cls=_Commands, short_help="Test any Kafka server.", no_args_is_help=True)
def command() -> None:
    """Test any Kafka server: does it respond as Apache Kafka does?

    \b
    Examples:
      moldau conformance localhost:9092
      moldau conformance localhost:9092 --area produce --area fetch
      moldau conformance localhost:9092 --html report.html
      moldau conformance localhost:9092 --level must --junit report.xml --json report.json
      moldau conformance localhost:9092 --area clients --clients kafka-python --clients kcat
      moldau conformance explain produce.acks.invalid.2
      moldau conformance list --area groups
      moldau conformance compare before.json after.json

    `moldau conformance run --help` lists all options. Cases create topics and groups whose names begin with
    "conformance-" and delete them.

    \b
    Exit codes:
      0    no case failed
      1    a case failed
      2    the server cannot be tested, was lost during the run, or all cases that apply are inconclusive
      130  interrupted; the reports have been written
    """


@command.command("run", short_help="Run the cases (the default).")
@click.argument("address", metavar="HOST:PORT")
@click.option("--area", "areas", multiple=True, metavar="AREA", help="Only this area (see `list`); repeatable.")
@click.option("--case", "ids", multiple=True, metavar="CASE", help="Only this case, or the cases below it; repeatable.")
@click.option(
    "--layer",
    "layers",
    multiple=True,
    type=click.Choice(["wire", "contract", "crash", "cluster", "clients"]),
    help="Only this layer.",
)
@click.option(
    "--clients",
    "clients",
    multiple=True,
    type=click.Choice(CLIENTS),
    help="Also run this real client, if it is installed; repeatable. `--area clients` alone runs all of them.",
)
@click.option(
    "--level",
    type=click.Choice(["must", "should", "apache"]),
    default="apache",
    show_default=True,
    help="must: only what clients depend on. should: also what users see. apache: all of Apache Kafka's behavior.",
)
@click.option("--html", type=_OUTPUT, help="Write one page to read: matrices, filters, and the exchanges of failures.")
@click.option("--json", "json_file", type=_OUTPUT, help="Write the results for programs, and for `compare`.")
@click.option("--junit", type=_OUTPUT, help="Write the results for a CI system.")
@click.option("--badge", type=_OUTPUT, help="Write an SVG for a README.")
@click.option("--patience", type=click.FloatRange(0.1), default=1.0, show_default=True, help="Multiply all deadlines.")
@click.option("--jobs", type=click.IntRange(1, 256), default=16, show_default=True, help="Cases that run side by side.")
@click.option("--no-alter-configs", is_flag=True, help="Skip cases that change settings of the server.")
@click.option("--tls", is_flag=True, help="Connect with TLS.")
@click.option("--tls-ca", type=_INPUT, help="CA certificates (PEM) for --tls; default: those of the system.")
@click.option("--tls-certificate", type=_INPUT, help="Client certificate and key (PEM).")
@click.option("--tls-no-verify", is_flag=True, help="Accept any certificate.")
@click.option("--sasl-mechanism", type=click.Choice(MECHANISMS), help="Authenticate with SASL.")
@click.option("--username", help="The user of --sasl-mechanism.")
@click.option("--password", help="Its password. Other users of this machine can see it; use --password-file.")
@click.option("--password-file", type=_INPUT, help="A file with the password in its first line.")
@click.option(
    "--kill-command",
    metavar="COMMAND",
    help="Kills the server at HOST:PORT, for crash cases; run by /bin/sh: `kill -9 $(cat kafka.pid)`.",
)
@click.option(
    "--restart-command",
    metavar="COMMAND",
    help="Starts the server again, on the same data and port: `docker start kafka`. It may also be the server itself.",
)
def run(
    address: str,
    areas: tuple[str, ...],
    ids: tuple[str, ...],
    layers: tuple[str, ...],
    clients: tuple[str, ...],
    level: str,
    html: Path | None,
    json_file: Path | None,
    junit: Path | None,
    badge: Path | None,
    patience: float,
    jobs: int,
    no_alter_configs: bool,
    tls: bool,
    tls_ca: Path | None,
    tls_certificate: Path | None,
    tls_no_verify: bool,
    sasl_mechanism: str | None,
    username: str | None,
    password: str | None,
    password_file: Path | None,
    kill_command: str | None,
    restart_command: str | None,
) -> int:
    """Run the cases against the server at HOST:PORT.

    \b
    Examples:
      moldau conformance run localhost:9092
      moldau conformance run localhost:9092 --case produce.acks --json report.json
      moldau conformance run localhost:9092 --html report.html --level must
      moldau conformance run localhost:9093 --tls-ca ca.pem --patience 3
      moldau conformance run localhost:9094 --sasl-mechanism SCRAM-SHA-256 --username ann --password-file secret
      moldau conformance run localhost:9092 --clients all --html report.html
      moldau conformance run localhost:9092 --area clients --clients java
      moldau conformance run localhost:9092 --layer crash --kill-command "docker kill kafka" \\
        --restart-command "docker start kafka"
    """
    from ..conformance import catalog, probe, real_clients
    from ..conformance.case import Layer, Level
    from ..conformance.commands import use_commands
    from ..conformance.outcome import Verdict
    from ..conformance.reports import summary
    from ..conformance.runner import Runner
    from ..conformance.target import Target

    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise click.UsageError(f"{address!r} is not HOST:PORT, such as localhost:9092")
    if (kill_command is None) != (restart_command is None):
        raise click.UsageError("crash cases need both --kill-command and --restart-command")
    _check_names(areas, catalog.areas(), "area")
    cases = catalog.select(areas=areas, ids=ids, level=Level(level), layers=[Layer(layer) for layer in layers])
    if not cases:
        if ids:
            _check_names([id for id in ids if not catalog.select(ids=[id])], catalog.all_cases(), "case")
        raise click.UsageError("no case has all of these properties; `moldau conformance list` shows the cases")
    _check_writable((html, json_file, junit, badge))
    security = connection_security(
        TlsOptions(tls, tls_ca, tls_certificate, tls_no_verify),
        SaslOptions(sasl_mechanism, username, password, password_file),
    )
    selected = real_clients.selected(clients, areas=areas, ids=ids, layers=layers)
    target = Target(address, security, patience)
    try:
        probe.describe(target)
    except probe.UnusableServerError as error:
        raise _Unusable(str(error)) from error
    if kill_command is not None and restart_command is not None:
        use_commands(target, kill_command, restart_command)
    began = time.monotonic()
    with Progress(len(cases)) as progress:
        for client in selected:
            missing = real_clients.what_is_missing(client)
            if missing is not None:
                progress.note(f"the cases of {client} do not apply: it needs {missing}")
        runner = Runner(
            target, jobs=jobs, alter_configs=not no_alter_configs, clients=selected, finished=progress.finished
        )
        with interrupts(runner, progress):
            results = runner.run(cases)
            complete = not (runner.interrupted or runner.lost)
            _write(target.to_json(), results, html, json_file, junit, badge, complete=complete)
    print_results(results, html, json_file)
    print(f"\n{summary.in_words(results)} in {time.monotonic() - began:.1f} s")
    if runner.left_behind:
        print(f"topics and groups whose names begin with {runner.prefix} may remain on the server", file=sys.stderr)
    if runner.interrupted:
        if runner.abandoned:
            leave(EXIT_INTERRUPTED)
        return EXIT_INTERRUPTED
    if any(result.verdict is Verdict.FAILED for result in results):
        return EXIT_FAILED
    if not runner.lost and (reason := summary.nothing_tested(results)):
        print(reason, file=sys.stderr)
        return EXIT_UNUSABLE
    return EXIT_UNUSABLE if runner.lost else 0


@command.command("list", short_help="List the cases.")
@click.option("--area", "areas", multiple=True, metavar="AREA", help="Only this area; repeatable.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_cases(areas: tuple[str, ...], as_json: bool) -> int:
    """List the cases, with their level and layer.

    \b
    Examples:
      moldau conformance list
      moldau conformance list --area produce --json
    """
    from ..conformance import catalog

    _check_names(areas, catalog.areas(), "area")
    cases = catalog.select(areas=areas)
    if as_json:
        print_json([_as_json(case) for case in cases])
    else:
        print_table(
            ("case", "level", "layer", "title"), [(each.id, each.level, each.layer, each.title) for each in cases]
        )
    return 0


@command.command("explain", short_help="Explain a case.")
@click.argument("identifier", metavar="CASE")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def explain(identifier: str, as_json: bool) -> int:
    """What a case sends, what it expects, and why.

    \b
    Examples:
      moldau conformance explain produce.acks.none
      moldau conformance explain produce.acks.none --json
    """
    from ..conformance import catalog

    case = catalog.all_cases().get(identifier)
    if case is None:
        below = catalog.select(ids=[identifier])
        if below:
            listed = "\n".join(f"  {each.id}" for each in below)
            raise click.UsageError(f"{identifier} is a group of cases:\n{listed}")
        _check_names([identifier], catalog.all_cases(), "case")
        raise AssertionError(identifier)
    if as_json:
        print_json(_as_json(case))
        return 0
    print_explanation(case, _conditions(case))
    return 0


@command.command("compare", short_help="Compare two JSON reports.")
@click.argument("before", type=_INPUT)
@click.argument("after", type=_INPUT)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def compare(before: Path, after: Path, as_json: bool) -> int:
    """Show the cases whose verdict differs. The exit code is 1 if AFTER has a failure that BEFORE does not have, and 2
    if a file is not a report.

    \b
    Examples:
      moldau conformance compare before.json after.json
      moldau conformance compare before.json after.json --json
    """
    from ..conformance.reports import comparison, json_report

    try:
        found = list(comparison.differences(json_report.read(before), json_report.read(after)))
    except ValueError as error:
        raise _Unusable(str(error)) from error
    if as_json:
        print_json([each._asdict() for each in found])
    elif found:
        print_table(("case", before.name, after.name), found)
    else:
        print("no differences")
    return EXIT_FAILED if any(each.is_worse for each in found) else 0


def _check_names(given: Sequence[str], known: Sequence[str] | dict[str, Any], kind: str) -> None:
    for name in given:
        if name not in known:
            raise click.UsageError(f"There is no {kind} {name!r}.{did_you_mean(name, known)}")


def _check_writable(paths: Sequence[Path | None]) -> None:
    """Before a run of minutes whose reports could not be written."""
    for path in paths:
        if path is not None and not path.parent.is_dir():
            raise click.UsageError(f"{path} cannot be written: the folder {path.parent} does not exist")


def _write(
    server: dict[str, Any],
    results: "Sequence[Result]",
    html: Path | None,
    json_file: Path | None,
    junit: Path | None,
    badge: Path | None,
    *,
    complete: bool,
) -> None:
    from ..conformance.reports import json_report
    from ..conformance.reports.badge import to_badge
    from ..conformance.reports.html import to_html
    from ..conformance.reports.junit import to_junit

    try:
        if html is not None or json_file is not None:
            report = json_report.to_json(server, results, complete=complete)
            if json_file is not None:
                json_report.write(json_file, report)
            if html is not None:
                html.write_text(to_html(report), encoding="utf-8")
        if junit is not None:
            junit.write_text(to_junit(results), encoding="utf-8")
        if badge is not None:
            badge.write_text(to_badge(results), encoding="utf-8")
    except OSError as error:
        raise Failure(f"a report cannot be written: {error}") from error


def _as_json(case: "Case") -> dict[str, Any]:
    return {
        "id": case.id,
        "title": case.title,
        "area": case.area,
        "layer": case.layer.value,
        "level": case.level.value,
        "client": case.client,
        "source": case.source,
        "sends": case.sends,
        "expects": case.expects,
        "why": case.why,
        "needs": {need.api.message_name: need.version for need in case.needs},
        "since": None if case.since is None else str(case.since),
        "until": None if case.until is None else str(case.until),
        "brokers": case.brokers,
    }


def _conditions(case: "Case") -> str:
    found = [f"{need.api.message_name} v{need.version}" for need in case.needs]
    found += [f"{feature} {level}" for feature, level in case.features]
    if case.since is not None:
        found.append(f"Apache Kafka {case.since} and later")
    if case.until is not None:
        found.append(f"before Apache Kafka {case.until}")
    if case.brokers > 1:
        found.append(f"clusters of {case.brokers} brokers and more")
    if case.client is not None:
        found.append(f"{case.client} on this machine (--clients {case.client})")
    if case.alters_configs:
        found.append("not with --no-alter-configs")
    return ", ".join(found) or "every server"

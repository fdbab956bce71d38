"""``moldau conformance-client``: test any Kafka client, from the command line."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .failure import Failure
from .output import print_table
from .suggestions import did_you_mean

if TYPE_CHECKING:
    from ..conformance.client.runner import Result

EXIT_FAILED = 1
EXIT_INCONCLUSIVE = 2
EXIT_INTERRUPTED = 130
_SHOWN = 300

# The drivers of `moldau.testing.clients`, whose module has the same names; it is not imported for --help.
_CLIENTS = ("kafka-python", "confluent-kafka", "aiokafka", "java", "franz-go")


@click.command("conformance-client", short_help="Test any Kafka client.")
@click.argument("adapter", metavar="[-- COMMAND...]", nargs=-1, type=click.UNPROCESSED)
@click.option("--client", type=click.Choice(_CLIENTS), help="Use the adapter for this client, which is included.")
@click.option(
    "--scenario", "ids", multiple=True, metavar="ID", help="Only this scenario, or those below it; repeatable."
)
@click.option("--list", "list_scenarios", is_flag=True, help="List the scenarios and exit.")
@click.option("--explain", metavar="ID", help="Explain a scenario and exit.")
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), help="Write the results.")
@click.option("--patience", type=click.FloatRange(0.1), default=1.0, show_default=True, help="Multiply all deadlines.")
@click.option(
    "--jobs", type=click.IntRange(1, 32), default=2, show_default=True, help="Brokers and adapters side by side."
)
def command(
    adapter: tuple[str, ...],
    client: str | None,
    ids: tuple[str, ...],
    list_scenarios: bool,
    explain: str | None,
    json_file: Path | None,
    patience: float,
    jobs: int,
) -> int:
    """Test a Kafka client against a broker that misbehaves on purpose: errors, lost responses, disconnects, crashes.

    COMMAND starts an adapter: a program that reads jobs as JSON lines on standard input and does them with the client.
    docs/conformance.md describes its protocol.

    \b
    Examples:
      moldau conformance-client --client kafka-python
      moldau conformance-client --client confluent-kafka --scenario produce.lost-response --json report.json
      moldau conformance-client -- ./my-adapter --verbose
      moldau conformance-client --list
      moldau conformance-client --explain produce.lost-response.disconnect

    \b
    Exit codes:
      0    no scenario failed
      1    a scenario failed
      2    a scenario is inconclusive: the adapter does not start, or its answers are not valid
      130  interrupted; the results have been written
    """
    from ..conformance.client.runner import Runner, to_json
    from ..conformance.client.scenario import all_scenarios, select
    from ..conformance.outcome import Verdict

    if list_scenarios:
        print_table(("scenario", "level", "title"), [(each.id, each.level, each.title) for each in select(ids)])
        return 0
    if explain is not None:
        return _explain(explain)
    if bool(adapter) == (client is not None):
        raise click.UsageError("name a client with --client, or the command of an adapter after --")
    for identifier in ids:
        if not select((identifier,)):
            raise click.UsageError(f"There is no scenario {identifier!r}.{did_you_mean(identifier, all_scenarios())}")
    if json_file is not None and not json_file.parent.is_dir():
        # Before a run of minutes whose results could not be written.
        raise click.UsageError(f"{json_file} cannot be written: the folder {json_file.parent} does not exist")
    scenarios = select(ids)
    program = list(adapter) or [sys.executable, "-m", "moldau.testing.clients.adapter", str(client)]
    shown = _Progress(len(scenarios))
    runner = Runner(program, patience=patience, jobs=jobs, finished=shown.finished)
    try:
        results = runner.run(scenarios)
    finally:
        shown.close()
    if json_file is not None:
        import json

        report = to_json(client or " ".join(adapter), results, complete=not runner.interrupted)
        try:
            json_file.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
        except OSError as error:
            raise Failure(f"the report cannot be written: {error}") from error
    _print(results)
    if json_file is None and any(result.verdict is Verdict.FAILED for result in results):
        print("\n--json FILE writes what the client sent in each failed scenario; --explain ID describes a scenario.")
    if runner.interrupted:
        return EXIT_INTERRUPTED
    verdicts = {result.verdict for result in results}
    if Verdict.FAILED in verdicts:
        return EXIT_FAILED
    return EXIT_INCONCLUSIVE if Verdict.INCONCLUSIVE in verdicts else 0


def _explain(identifier: str) -> int:
    from ..conformance.client.scenario import all_scenarios, select

    found = all_scenarios().get(identifier)
    if found is None:
        below = select((identifier,))
        if below:
            raise click.UsageError(f"{identifier} is a group of scenarios: {', '.join(each.id for each in below)}")
        raise click.UsageError(f"There is no scenario {identifier!r}.{did_you_mean(identifier, all_scenarios())}")
    print(f"{found.id}: {found.title}\n")
    print(f"Broker:   {found.broker}\nJob:      {found.job}\nExpects:  {found.expects}\n")
    print(f"Level: {found.level}. Source: {found.source}.")
    return 0


def _print(results: "Sequence[Result]") -> None:
    from ..conformance.outcome import Verdict

    for result in results:
        scenario = result.scenario
        if result.verdict is Verdict.FAILED:
            print(f"FAILED {scenario.id} ({scenario.level}): {scenario.title}")
            print(f"  broker: {scenario.broker}\n  job: {scenario.job}\n  {result.what}")
            print(f"    expected: {result.expected[:_SHOWN]}\n    actual:   {result.actual[:_SHOWN]}\n")
        elif result.verdict is Verdict.INCONCLUSIVE:
            print(f"INCONCLUSIVE {scenario.id}: {result.reason[:_SHOWN]}\n")
    counts: dict[str, dict[Verdict, int]] = {}
    for result in results:
        area = counts.setdefault(result.scenario.area, dict.fromkeys(Verdict, 0))
        area[result.verdict] += 1
    print_table(
        ("area", *(verdict.value for verdict in Verdict)), [(area, *found.values()) for area, found in counts.items()]
    )


class _Progress:
    """A progress bar on a terminal; nothing elsewhere."""

    def __init__(self, scenarios: int) -> None:
        self._bar: Any = None
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import Progress

            self._bar = Progress(console=Console(stderr=True), transient=True)
            self._task = self._bar.add_task("scenarios", total=scenarios)
            self._bar.start()

    def finished(self, result: "Result") -> None:
        if self._bar is not None:
            self._bar.update(self._task, advance=1, description=result.scenario.id)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.stop()
